#include "sink/redis_errors.h"

#include <string.h>

#include "base/macros.h"

static const char no_cluster[] =
	"Redis Cluster is not supported: `address` must lead to a server, or a proxy, that has all streams";
static const char not_master[] = "the server is a replica: after a failover `address` must lead to the new master";
static const char check_login[] = "check user and password_file";
static const char too_large[] = "raise proto-max-bulk-len of the server, or delete the row";

/* The first word of a reply, and part of its text where the word is not enough. The first row that fits counts.
 * Anything that is not here somebody must look at, and it is not the row's fault: ERROR_CONFIG. */
static const struct {
	const char *code, *part;
	enum error_kind kind;
	const char *hint;
} codes[] = {
	/* The server is there, and not ready. The next connection may lead to another one. */
	{ "LOADING", NULL, ERROR_TRANSPORT, NULL },
	{ "MASTERDOWN", NULL, ERROR_TRANSPORT, "the server is a replica without its master" },
	{ "CLUSTERDOWN", NULL, ERROR_TRANSPORT, no_cluster },
	{ "READONLY", NULL, ERROR_TRANSPORT, not_master },
	{ "UNBLOCKED", NULL, ERROR_TRANSPORT, NULL },
	{ "NOREPLICAS", NULL, ERROR_TRANSPORT, "fewer replicas than the server's min-replicas-to-write are there" },
	{ "MISCONF", NULL, ERROR_TRANSPORT, "the server cannot save to its disk, and refuses writes until it can" },
	{ "BUSY", NULL, ERROR_TRANSPORT, "a script keeps the server busy" },
	{ "TRYAGAIN", NULL, ERROR_TRANSPORT, NULL },
	{ "ERR", "max number of clients", ERROR_TRANSPORT, "raise maxclients of the server" },
	{ "ERR", "WAIT cannot be used with replica", ERROR_TRANSPORT, not_master },

	{ "OOM", NULL, ERROR_THROTTLED, "the server is at its maxmemory: raise it, or let max_len keep streams short" },

	{ "NOAUTH", NULL, ERROR_AUTH, check_login },
	{ "WRONGPASS", NULL, ERROR_AUTH, check_login },
	{ "ERR", "invalid password", ERROR_AUTH, check_login },         /* before Redis 6 */
	{ "ERR", "without any password configured", ERROR_AUTH, "the server asks for no password: leave out password_file" },
	{ "ERR", "no password is set", ERROR_AUTH, "the server asks for no password: leave out password_file" },
	{ "DENIED", NULL, ERROR_AUTH, NULL },
	{ "NOPERM", NULL, ERROR_AUTH,
	  "grant the user +xadd on the stream, and +multi +exec (also +select for `database`, +wait for `wait_replicas`)" },

	{ "WRONGTYPE", NULL, ERROR_REJECTED, "the key is there and is not a stream: choose another topic, or delete the key" },
	{ "ERR", "Protocol error", ERROR_REJECTED, too_large },
	{ "ERR", "too large", ERROR_REJECTED, too_large },

	{ "MOVED", NULL, ERROR_CONFIG, no_cluster },
	{ "ASK", NULL, ERROR_CONFIG, no_cluster },
	{ "CROSSSLOT", NULL, ERROR_CONFIG, no_cluster },
	{ "ERR", "cluster mode", ERROR_CONFIG, no_cluster },
	{ "ERR", "DB index", ERROR_CONFIG, "check `database`: the server has fewer" },
	{ "ERR", "exhausted the last possible ID", ERROR_CONFIG, "the stream can take nothing more: rename it" },
	{ "ERR", "unknown command", ERROR_CONFIG, "streams need Redis 5 or newer, and commands that are not renamed" },

	{ "EXECABORT", NULL, ERROR_LOST, NULL },
};

static bool fits(size_t i, struct slice reply)
{
	size_t len = strlen(codes[i].code);
	const char *part = codes[i].part;

	return reply.len >= len && memcmp(reply.ptr, codes[i].code, len) == 0 && (reply.len == len || reply.ptr[len] == ' ') &&
	       (!part || memmem(reply.ptr, reply.len, part, strlen(part)));
}

/* An EXEC that is refused itself says why behind these words. */
static struct slice innermost(struct slice reply)
{
	static const char discarded[] = "EXECABORT Transaction discarded because of: ";
	size_t len = sizeof(discarded) - 1;

	if (reply.len <= len || memcmp(reply.ptr, discarded, len) != 0)
		return reply;
	return (struct slice){ reply.ptr + len, reply.len - len };
}

static size_t find(struct slice reply)
{
	size_t i = 0;

	reply = innermost(reply);

	while (i < ARRAY_SIZE(codes) && !fits(i, reply))
		i++;
	return i;
}

enum error_kind redis_error_kind(struct slice reply)
{
	size_t i = find(reply);

	return i < ARRAY_SIZE(codes) ? codes[i].kind : ERROR_CONFIG;
}

/* Of a command that it does not know, the server repeats arguments. */
static size_t harmless(struct slice reply)
{
	static const char repeated[] = "with args beginning";
	const char *args = memmem(reply.ptr, reply.len, repeated, sizeof(repeated) - 1);

	return args ? (size_t)(args - reply.ptr) : MIN(reply.len, 300);
}

bool redis_error_set(struct error *err, struct slice reply)
{
	size_t i = find(reply);

	error_set(err, redis_error_kind(reply), "Redis: %.*s", (int)harmless(reply), reply.ptr);
	if (i < ARRAY_SIZE(codes) && codes[i].hint)
		error_hint(err, "%s", codes[i].hint);
	return false;
}
