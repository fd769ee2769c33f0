#include "keep/steering.h"

#include <poll.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"

enum { LOOK_MS = 400 };                 /* where nothing can be heard */

static const char sql_paused[] =
	"SELECT b.table_name FROM postrider.pause p JOIN postrider.outbox b ON b.id = p.outbox";

bool steering_listen(struct line *l, struct error *err)
{
	return !l->hears || line_ask(l, "listen", "LISTEN " STEERING_CHANNEL, 0, NULL, NULL, err);
}

bool steering_look(struct line *l, void (*pause)(void *arg, const char *const *tables, size_t n), void *arg,
		   struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) const char **tables = NULL;
	size_t n;

	if (!line_ask(l, "look for paused outboxes", sql_paused, 0, NULL, &res, err))
		return false;
	n = (size_t)PQntuples(res);
	tables = mem_new_array(const char *, n);
	for (size_t i = 0; i < n; i++)
		tables[i] = PQgetvalue(res, (int)i, 0);
	pause(arg, tables, n);
	return true;
}

static bool heard(struct line *l)
{
	bool any = false;
	PGnotify *n;

	while ((n = PQnotifies(l->conn)) != NULL) {
		any = true;
		PQfreemem(n);
	}
	return any;
}

bool steering_wait(struct line *l, int64_t ms)
{
	struct pollfd fds[] = {
		{ .fd = l->stop_fd, .events = POLLIN },
		{ .fd = PQsocket(l->conn), .events = POLLIN },
	};

	/* Some may have come with an answer. */
	if (heard(l))
		return true;
	poll(fds, ARRAY_SIZE(fds), (int)MAX(l->hears ? ms : MIN(ms, LOOK_MS), 0));
	if (!fds[1].revents)
		return false;
	return PQconsumeInput(l->conn) != 1 || heard(l);
}
