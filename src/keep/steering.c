#include "keep/steering.h"

#include <poll.h>
#include <stdlib.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/exec.h"

enum { LOOK_MS = 400 };                 /* where nothing can be heard */

static const char sql_look[] =
	"SELECT * FROM (SELECT b.table_name, EXISTS (SELECT FROM postrider.pause p WHERE p.outbox = b.id) AS paused,"
	"   EXISTS (SELECT FROM postrider.dead_letter d WHERE d.outbox = b.id AND d.passed_at IS NULL) AS letters"
	"  FROM postrider.outbox b) b WHERE b.paused OR b.letters";

bool steering_listen(struct line *l, struct error *err)
{
	return !l->hears || line_ask(l, "listen", "LISTEN " STEERING_CHANNEL, 0, NULL, NULL, err);
}

bool steering_look(struct line *l, void (*tell)(void *arg, const struct steering_word *words, size_t n), void *arg,
		   struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) struct steering_word *words = NULL;
	int n;

	if (!line_ask(l, "look for paused outboxes and dead letters", sql_look, 0, NULL, &res, err))
		return false;
	n = PQntuples(res);
	words = mem_new_array(struct steering_word, (size_t)n);
	for (int i = 0; i < n; i++)
		words[i] = (struct steering_word){
			.table = PQgetvalue(res, i, 0),
			.paused = PQgetvalue(res, i, 1)[0] == 't',
			.letters = PQgetvalue(res, i, 2)[0] == 't',
		};
	tell(arg, words, (size_t)n);
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
