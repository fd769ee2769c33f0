#include "relay/listener.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum {
	SLICE_MS = 100,                 /* how often rates are looked at while rows flow */
	TOO_MANY_PER_SLICE = 100,       /* this many notifications: stop asking for them */
	FEW_PER_SLICE = 50,             /* this few rows: ask again */
	REARM_MS = 5000,                /* another node may have cleared the flag and died */
	PROBE_MS = 2000,
};

/* A transaction that inserted before the flag was set and commits after we looked rings for nobody. So we look a few more
 * times after setting it; the watchdog finds what took even longer. */
static const int64_t looks_after_arming_ms[] = { 0, 10, 40, 160, 640 };

struct ear {
	struct listener_outbox outbox;
	char number[16];                /* in postrider.outbox: the payload of its notifications */
	char sequence[32];              /* the flag */
	bool usable;                    /* registered, trigger there, flag can be set */
	bool complained;
	bool armed;
	uint32_t heard;                 /* notifications in this slice */
	uint64_t rows_before;           /* the bell's count at the start of this slice */
	int64_t armed_at_ms;
	size_t looks;                   /* of looks_after_arming_ms done */
};

struct listener {
	pthread_t thread;
	const struct database_config *database;
	struct ear *ears;
	size_t n_ears;
	int stop_fd;
	PGconn *conn;
	struct backoff backoff;
	bool lost;                      /* said so already */
};

/* --- the flag ------------------------------------------------------------------------------------------------- */

static bool set_flag(struct listener *l, struct ear *e, bool armed, struct error *err)
{
	return pg_query(l->conn, "set the wake-up flag",
			"SELECT setval($1::text::regclass, $2::bigint)"
			" WHERE pg_sequence_last_value($1::text::regclass) IS DISTINCT FROM $2::bigint",
			2, (const char *const[]){ e->sequence, armed ? "1" : "0" }, NULL, err);
}

static bool arm(struct listener *l, struct ear *e, int64_t now, struct error *err)
{
	if (!set_flag(l, e, true, err))
		return false;
	e->armed = true;
	e->armed_at_ms = now;
	e->looks = 0;
	bell_set_deaf(e->outbox.bell, false);
	return true;
}

static bool disarm(struct listener *l, struct ear *e, struct error *err)
{
	bell_set_deaf(e->outbox.bell, true);
	e->armed = false;
	return set_flag(l, e, false, err);
}

/* --- connecting ----------------------------------------------------------------------------------------------- */

static void complain(struct ear *e, const char *why, const char *hint)
{
	if (!e->complained)
		log_warn("wakeup.unavailable", F_STR("outbox", e->outbox.name), F_STR("reason", why), F_STR("hint", hint));
	e->complained = true;
}

static bool find_outbox(struct listener *l, struct ear *e, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;

	e->usable = e->armed = false;
	if (!pg_query(l->conn, "look for the wake-up trigger",
		      "SELECT o.id, EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = to_regclass(o.table_name)"
		      "   AND t.tgname = 'postrider_ring' AND t.tgenabled <> 'D'),"
		      " has_sequence_privilege(format('postrider.bell_%s', o.id), 'UPDATE')"
		      " FROM postrider.outbox o WHERE o.table_name = $1",
		      1, (const char *const[]){ e->outbox.table }, &res, err))
		return false;
	if (PQntuples(res) == 0 || PQgetvalue(res, 0, 1)[0] != 't')
		complain(e, "the outbox has no wake-up trigger", "postrider init --existing TABLE installs it");
	else if (PQgetvalue(res, 0, 2)[0] != 't')
		complain(e, "no right to set the wake-up flag", "postrider init --role ROLE grants it");
	else
		e->usable = true;
	if (e->usable) {
		snprintf(e->number, sizeof(e->number), "%s", PQgetvalue(res, 0, 0));
		snprintf(e->sequence, sizeof(e->sequence), "postrider.bell_%s", e->number);
	}
	return true;
}

/* A pooler may accept LISTEN and never pass on what it brings. Only a notification that arrives proves that they do. */
static bool hears_itself(struct listener *l, bool *ret, struct error *err)
{
	int64_t deadline = clock_ms() + PROBE_MS;

	*ret = false;
	if (!pg_query(l->conn, "listen", "LISTEN postrider", 0, NULL, NULL, err) ||
	    !pg_query(l->conn, "probe notifications", "SELECT pg_notify('postrider', 'probe')", 0, NULL, NULL, err))
		return false;
	for (;;) {
		struct pollfd p = { .fd = PQsocket(l->conn), .events = POLLIN };
		PGnotify *n;

		while ((n = PQnotifies(l->conn)) != NULL) {
			*ret |= n->be_pid == PQbackendPID(l->conn) || strcmp(n->extra, "probe") == 0;
			PQfreemem(n);
		}
		if (*ret || clock_ms() >= deadline)
			return true;
		poll(&p, 1, (int)(deadline - clock_ms()));
		if (PQconsumeInput(l->conn) != 1)
			return pg_error(l->conn, NULL, "listen", err);
	}
}

static bool connect_and_listen(struct listener *l, struct error *err)
{
	bool hears;

	if (!pg_connect(l->database, "listener", l->stop_fd, &l->conn, err))
		return false;
	for (size_t i = 0; i < l->n_ears; i++)
		if (!find_outbox(l, &l->ears[i], err))
			return false;
	if (!hears_itself(l, &hears, err))
		return false;
	for (size_t i = 0; i < l->n_ears; i++) {
		if (!hears) {
			l->ears[i].usable = false;
			complain(&l->ears[i], "notifications do not arrive; is a pooler in between?",
				 "connect to the server directly, or rely on polling with wakeup: off");
		}
		if (l->ears[i].usable && !arm(l, &l->ears[i], clock_ms(), err))
			return false;
	}
	return true;
}

/* --- the loop ------------------------------------------------------------------------------------------------- */

static void hear(struct listener *l)
{
	PGnotify *n;

	while ((n = PQnotifies(l->conn)) != NULL) {
		for (size_t i = 0; i < l->n_ears; i++) {
			if (!l->ears[i].usable || strcmp(l->ears[i].number, n->extra) != 0)
				continue;
			l->ears[i].heard++;
			bell_ring(l->ears[i].outbox.bell);
		}
		PQfreemem(n);
	}
}

/* What follows from a slice of time, for one outbox. */
static bool judge(struct listener *l, struct ear *e, int64_t now, struct error *err)
{
	uint64_t rows = atomic_load(&e->outbox.bell->rows);
	uint64_t rows_in_slice = rows - e->rows_before;
	uint32_t heard = e->heard;

	e->rows_before = rows;
	e->heard = 0;
	if (!e->usable)
		return true;
	if (e->armed && heard >= TOO_MANY_PER_SLICE && e->outbox.mode == WAKEUP_ARMED)
		return disarm(l, e, err);
	if (!e->armed && rows_in_slice <= FEW_PER_SLICE)
		return arm(l, e, now, err);
	return true;
}

/* Looks after arming that are due, and the flag set again in case another node cleared it. */
static bool keep_armed(struct listener *l, struct ear *e, int64_t now, struct error *err)
{
	if (!e->usable || !e->armed)
		return true;
	while (e->looks < ARRAY_SIZE(looks_after_arming_ms) && now >= e->armed_at_ms + looks_after_arming_ms[e->looks]) {
		e->looks++;
		bell_ring(e->outbox.bell);
	}
	if (now < e->armed_at_ms + REARM_MS)
		return true;
	if (!set_flag(l, e, true, err))
		return false;
	e->armed_at_ms = now;
	return true;
}

static int64_t next_deadline(const struct listener *l, int64_t slice_end)
{
	int64_t deadline = CLOCK_NEVER;

	for (size_t i = 0; i < l->n_ears; i++) {
		const struct ear *e = &l->ears[i];
		int64_t wait = e->looks < ARRAY_SIZE(looks_after_arming_ms) ? looks_after_arming_ms[e->looks] : REARM_MS;

		if (!e->usable)
			continue;
		if (e->armed)
			deadline = MIN(deadline, e->armed_at_ms + wait);
		/* Rates matter only while something happens. */
		if (!e->armed || e->heard > 0)
			deadline = MIN(deadline, slice_end);
	}
	return deadline;
}

static bool stopping(const struct listener *l)
{
	struct pollfd p = { .fd = l->stop_fd, .events = POLLIN };

	return poll(&p, 1, 0) > 0;
}

/* Until asked to stop (true) or the connection fails (false). */
static bool listen_until_stopped(struct listener *l, struct error *err)
{
	int64_t slice_end = clock_ms() + SLICE_MS;

	while (!stopping(l)) {
		int64_t now = clock_ms();
		int64_t wait = MIN(next_deadline(l, slice_end) - now, 60 * 1000);
		struct pollfd fds[] = {
			{ .fd = PQsocket(l->conn), .events = POLLIN },
			{ .fd = l->stop_fd, .events = POLLIN },
		};

		poll(fds, ARRAY_SIZE(fds), (int)MAX(wait, 0));
		if (PQconsumeInput(l->conn) != 1)
			return pg_error(l->conn, NULL, "listen", err);
		hear(l);
		now = clock_ms();
		for (size_t i = 0; i < l->n_ears; i++) {
			if (now >= slice_end && !judge(l, &l->ears[i], now, err))
				return false;
			if (!keep_armed(l, &l->ears[i], now, err))
				return false;
		}
		if (now >= slice_end)
			slice_end = now + SLICE_MS;
	}
	return true;
}

/* The last relay to leave clears the flags, so that writers do not notify into the void. */
static void leave(struct listener *l)
{
	struct error ignored;

	for (size_t i = 0; i < l->n_ears; i++)
		if (l->ears[i].usable)
			pg_query(l->conn, "clear the wake-up flag",
				 "SELECT setval($1::text::regclass, 0) WHERE NOT EXISTS (SELECT FROM pg_stat_activity a"
				 " WHERE a.application_name = 'postrider listener' AND a.datname = current_database()"
				 " AND a.pid <> pg_backend_pid())",
				 1, (const char *const[]){ l->ears[i].sequence }, NULL, &ignored);
}

static void wait_or_stop(struct listener *l, int64_t ms)
{
	struct pollfd p = { .fd = l->stop_fd, .events = POLLIN };

	poll(&p, 1, (int)ms);
}

static void report_loss(struct listener *l, const struct error *err)
{
	for (size_t i = 0; i < l->n_ears; i++)
		bell_set_deaf(l->ears[i].outbox.bell, true);
	if (!l->lost)
		log_warn("wakeup.lost", F_ERROR(err), F_STR("meanwhile", "workers poll"));
	l->lost = true;
}

static void *listener_main(void *arg)
{
	struct listener *l = arg;

	while (!stopping(l)) {
		struct error err = { 0 };

		if (connect_and_listen(l, &err)) {
			if (l->lost)
				log_info("wakeup.back", F_INT("tries", l->backoff.tries));
			l->lost = false;
			backoff_reset(&l->backoff);
			if (listen_until_stopped(l, &err)) {
				leave(l);
				break;
			}
		}
		if (stopping(l))
			break;
		report_loss(l, &err);
		pg_closep(&l->conn);
		wait_or_stop(l, backoff_next(&l->backoff));
	}
	pg_closep(&l->conn);
	return NULL;
}

struct listener *listener_start(const struct database_config *database, const struct listener_outbox *outboxes, size_t n)
{
	struct listener *l = mem_new(struct listener);

	l->database = database;
	l->ears = mem_new_array(struct ear, n);
	for (size_t i = 0; i < n; i++)
		if (outboxes[i].mode != WAKEUP_OFF)
			l->ears[l->n_ears++].outbox = outboxes[i];
	l->stop_fd = eventfd(0, EFD_CLOEXEC);
	backoff_init(&l->backoff, 200, 10000, random_seed());
	if (l->stop_fd < 0 || pthread_create(&l->thread, NULL, listener_main, l) != 0)
		abort();        /* out of descriptors or threads at start */
	return l;
}

void listener_stop(struct listener *l)
{
	ssize_t ignored _unused_;

	if (!l)
		return;
	ignored = write(l->stop_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	pthread_join(l->thread, NULL);
	close(l->stop_fd);
	free(l->ears);
	free(l);
}
