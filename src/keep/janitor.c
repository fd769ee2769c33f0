#include "keep/janitor.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/macros.h"
#include "base/mem.h"
#include "keep/line.h"
#include "pg/exec.h"

enum {
	SECOND_MS = 1000,
	RETRY_FIRST_MS = 1000,          /* of a duty that failed, and of a connection */
	RETRY_MAX_MS = 60 * 1000,
	WARN_AFTER = 10,                /* failures in a row of what somebody else's lock was in the way of */
	STATEMENT_MS = 30 * 1000,
};

/* What a duty's statement wants to know behind the number of the outbox. */
enum duty_needs { NEEDS_NOTHING, NEEDS_RETENTION, NEEDS_PARTITIONS };

/* Each statement does one piece of work and returns a line when there may be more of it. */
struct duty {
	enum published of;
	const char *doing;
	const char *sql;
	enum duty_needs needs;
	int64_t every_ms;               /* when there is nothing to do */
	enum log_level level;           /* of the line: what removes history is worth knowing */
};

#define OF_OUTBOX "(SELECT o.id FROM postrider.outbox o WHERE to_regclass(o.table_name) = to_regclass($1))"

static const struct duty duties[] = {
	{ PUBLISHED_MARK, "remove rows past their retention", "SELECT postrider.expire_marked(" OF_OUTBOX ", $2)",
	  NEEDS_RETENTION, SECOND_MS, LOG_LEVEL_DEBUG },
	{ PUBLISHED_ARCHIVE, "make partitions of the archive", "SELECT postrider.extend_archive(" OF_OUTBOX ")",
	  NEEDS_NOTHING, 60 * SECOND_MS, LOG_LEVEL_INFO },
	{ PUBLISHED_ARCHIVE, "remove history past its retention", "SELECT postrider.expire_archive(" OF_OUTBOX ", $2)",
	  NEEDS_RETENTION, 10 * SECOND_MS, LOG_LEVEL_INFO },
	{ PUBLISHED_PARTITIONS, "make partitions", "SELECT postrider.add_partition(" OF_OUTBOX ", $2, $3)",
	  NEEDS_PARTITIONS, SECOND_MS, LOG_LEVEL_DEBUG },
	{ PUBLISHED_PARTITIONS, "empty partitions", "SELECT postrider.empty_partition(" OF_OUTBOX ")", NEEDS_NOTHING,
	  SECOND_MS, LOG_LEVEL_DEBUG },
	{ PUBLISHED_PARTITIONS, "drop empty partitions", "SELECT postrider.drop_partitions(" OF_OUTBOX ")", NEEDS_NOTHING,
	  SECOND_MS, LOG_LEVEL_DEBUG },
};

/* A duty at one outbox. */
struct chore {
	const struct duty *duty;
	const struct outbox_config *outbox;
	int64_t due_ms;
	uint32_t failures;              /* in a row */
	struct backoff backoff;
};

struct janitor {
	struct database_config database;        /* with timeouts of our own */
	struct line line;
	struct chore *chores;
	size_t n_chores;
	struct backoff backoff;
	bool lost;                              /* said so already */
	pthread_t thread;
};

/* --- one piece of work ------------------------------------------------------------------------------------------ */

static bool ask(struct janitor *j, const struct chore *c, PGresult **ret, struct error *err)
{
	_cleanup_(mem_freep) char *table = NULL;
	struct number retention, rows, ahead;
	const char *params[3];
	int n = 1;

	if (!pg_quote_qualified(j->line.conn, c->outbox->table, &table, err))
		return false;
	params[0] = table;
	if (c->duty->needs == NEEDS_RETENTION)
		params[n++] = number(&retention, c->outbox->retention_ms);
	if (c->duty->needs == NEEDS_PARTITIONS) {
		params[n++] = number(&rows, c->outbox->partitions.rows);
		params[n++] = number(&ahead, c->outbox->partitions.ahead);
	}
	return line_ask(&j->line, c->duty->doing, c->duty->sql, n, params, ret, err);
}

static void done(struct chore *c, const PGresult *res, int64_t now)
{
	bool any = PQntuples(res) > 0;

	if (c->failures >= WARN_AFTER)
		log_info("janitor.back", F_STR("outbox", c->outbox->name), F_STR("doing", c->duty->doing));
	c->failures = 0;
	backoff_reset(&c->backoff);
	c->due_ms = any ? now : now + c->duty->every_ms;
	if (any)
		log_at(c->duty->level, "janitor.done", F_STR("outbox", c->outbox->name),
		       F_STR("what", PQgetvalue(res, 0, 0)));
}

/* Somebody else's lock is no news; one that never goes is, and so is anything else at once. */
static void failed(struct chore *c, const struct error *err, int64_t now)
{
	c->failures++;
	c->due_ms = now + backoff_next(&c->backoff);
	if (c->failures == (err->kind == ERROR_TRANSPORT ? WARN_AFTER : 1))
		log_warn("janitor.failed", F_STR("outbox", c->outbox->name), F_STR("doing", c->duty->doing),
			 F_INT("failures", c->failures), F_ERROR(err), F_STR("meanwhile", "trying again"));
}

/* False: the connection is gone. */
static bool do_chore(struct janitor *j, struct chore *c, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	if (ask(j, c, &res, err)) {
		done(c, res, clock_ms());
		return true;
	}
	if (PQstatus(j->line.conn) != CONNECTION_OK || PQtransactionStatus(j->line.conn) != PQTRANS_IDLE)
		return false;
	failed(c, err, clock_ms());
	return true;
}

/* --- the thread --------------------------------------------------------------------------------------------------- */

static bool work(struct janitor *j, struct error *err)
{
	if (!j->line.conn && !line_open(&j->line, &j->database, "janitor", err))
		return false;
	for (size_t i = 0; i < j->n_chores && !line_stopping(&j->line); i++)
		if (j->chores[i].due_ms <= clock_ms() && !do_chore(j, &j->chores[i], err))
			return false;
	return true;
}

static int64_t next_due_ms(const struct janitor *j)
{
	int64_t due = CLOCK_NEVER;

	for (size_t i = 0; i < j->n_chores; i++)
		due = MIN(due, j->chores[i].due_ms);
	return due;
}

static void wait_or_stop(const struct janitor *j, int64_t ms)
{
	struct pollfd p = { .fd = j->line.stop_fd, .events = POLLIN };

	poll(&p, 1, (int)MIN(MAX(ms, 0), RETRY_MAX_MS));
}

static void *janitor_main(void *arg)
{
	struct janitor *j = arg;

	while (!line_stopping(&j->line)) {
		struct error err = { 0 };

		if (work(j, &err)) {
			j->lost = false;
			backoff_reset(&j->backoff);
			wait_or_stop(j, next_due_ms(j) - clock_ms());
			continue;
		}
		line_close(&j->line);
		if (!j->lost && !line_stopping(&j->line))
			log_warn("janitor.lost", F_ERROR(&err), F_STR("meaning", "published rows are not removed meanwhile"));
		j->lost = true;
		wait_or_stop(j, backoff_next(&j->backoff));
	}
	return NULL;
}

/* --- starting and stopping ---------------------------------------------------------------------------------------- */

static void add_chores(struct janitor *j, const struct outbox_config *outbox)
{
	for (size_t i = 0; i < ARRAY_SIZE(duties); i++) {
		struct chore *c;

		if (duties[i].of != outbox->published)
			continue;
		j->chores = mem_resize(j->chores, (j->n_chores + 1) * sizeof(*j->chores));
		c = &j->chores[j->n_chores++];
		*c = (struct chore){ .duty = &duties[i], .outbox = outbox };
		backoff_init(&c->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	}
}

static void janitor_free(struct janitor *j)
{
	line_close(&j->line);
	close(j->line.stop_fd);
	free(j->chores);
	free(j);
}

bool janitor_start(const struct config *config, struct janitor **ret, struct error *err)
{
	struct janitor *j = mem_new(struct janitor);
	int rc;

	j->database = config->database;
	j->database.statement_timeout_ms = STATEMENT_MS;
	/* The pause after a failure, and more, must fit between two statements. */
	j->database.idle_session_timeout_ms = MAX(j->database.idle_session_timeout_ms, 5 * RETRY_MAX_MS);
	j->line.patience_ms = STATEMENT_MS + SECOND_MS;
	backoff_init(&j->backoff, RETRY_FIRST_MS, RETRY_MAX_MS, random_seed());
	j->line.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (j->line.stop_fd < 0)
		abort();        /* out of descriptors at start */
	for (size_t i = 0; i < config->n_outboxes; i++)
		add_chores(j, &config->outboxes[i]);
	rc = j->n_chores > 0 ? pthread_create(&j->thread, NULL, janitor_main, j) : 0;
	if (j->n_chores == 0 || rc != 0) {
		janitor_free(j);
		j = NULL;
	}
	*ret = j;
	return rc == 0 || error_set(err, ERROR_CONFIG, "could not start the janitor's thread: %s", strerror(rc));
}

void janitor_stop(struct janitor *j)
{
	ssize_t ignored _unused_;

	if (!j)
		return;
	ignored = write(j->line.stop_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(j->thread, NULL);
	janitor_free(j);
}
