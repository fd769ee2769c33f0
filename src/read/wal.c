/* The reader `wal`: tails the database by logical replication, in the order of commits. No polling, no claims.
 *
 * One process at a time follows the slot, the leader of a pool (read/pool.h); the others stand by. Its parts:
 *   replication      the connection that brings the log (pg/replication.h)
 *   flow             what came from there and is not settled (read/wal_flow.h)
 *   parking          entities whose next event was refused (read/wal_parking.h)
 *   round            the trips to the database that settle (read/wal_round.h)
 *
 * The server may forget what is confirmed, and confirmed is only what is settled without a gap and known to be so on the
 * server's disk. The round writes the exact place down beside what it settles, so a crash repeats what was in flight, and
 * nothing else. */
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "pg/exec.h"
#include "read/pool.h"
#include "read/wal_round.h"
#include "read/wal_slot.h"
#include "read/wal_state.h"

enum { CONFIRM_MS = 1000, SLOT_BUSY_MS = 200, IDLE_MS = 1000, OVER_BUDGET_LOG_MS = 60 * 1000 };
enum { STREAM_MS = 1, STREAM_ROWS = 64, GATHER_MS = 5 };        /* see page_due_ms */

enum { ST_LEAD = ROUND_END, ST_IS_POLLED, ST_FORGET_PARKED, ST_POLL, ST_DROP_SLOT, ST_COUNT };

static const struct statement statements[ST_COUNT] = {
	SETTLE_PLAIN,
	ROUND_STATEMENTS,
	[ST_LEAD] = POOL_LEAD("wal"),
	[ST_IS_POLLED] = { "postrider_is_polled", "look up the replication slot",
		"SELECT w.polling_since IS NOT NULL FROM postrider.wal w WHERE w.outbox = {outbox}" },
	[ST_FORGET_PARKED] = { "postrider_forget_parked", "forget copies of parked rows",
		"DELETE FROM postrider.parked p WHERE p.outbox = {outbox} AND NOT p.is_message" },
	[ST_POLL] = { "postrider_poll", "remember that the table is polled",
		"UPDATE postrider.wal w SET polling_since = coalesce(w.polling_since, clock_timestamp())"
		" WHERE w.outbox = {outbox}" },
	[ST_DROP_SLOT] = { "postrider_drop_slot", "drop the replication slot",
		/* $1 its name. Whoever served it to us may not have left yet. */
		"SELECT postrider.drop_slot($1::name)" },
};

struct wal {
	struct pool pool;
	char *slot, *publication;
	struct replication stream;
	struct flow flow;
	struct parking parking;
	struct round round;
	bool gathered;                  /* all workers have come */
	bool streaming;
	int64_t dealt_ms;               /* when the last page was */
	uint64_t start_lsn;
	int64_t confirmed_ms;
	int64_t over_budget_ms;         /* when it was last logged */
	int64_t retained_before;        /* what was found at the last look; -1: there was none … */
	uint64_t n_looks;               /* … and how many there were */
	struct replication_system seen; /* the server that was read last; timeline 0: none … */
	uint64_t seen_lsn;              /* … and up to where, on its disk */
};

static struct wal *wal_of(struct pool *p)
{
	return (struct wal *)p;
}

/* --- falling back to polling ---------------------------------------------------------------------------------- */

extern const struct reader_driver reader_advisory;

static bool leave_to_polling(struct wal *w, struct error *err)
{
	w->pool.replacement = &reader_advisory;
	return error_set(err, ERROR_LOST, "the table is polled, since its replication slot was dropped");
}

/* Some node has dropped the slot before. */
static bool is_polled(struct wal *w, bool *ret, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct pool *p = &w->pool;

	if (!pipeline_run(&p->pipeline, ST_IS_POLLED, NULL, 0, p->database.statement_timeout_ms, &res, err))
		return false;
	*ret = PQntuples(res) > 0 && PQgetvalue(res, 0, 0)[0] == 't';
	return true;
}

/* What is parked is in the table as well, and what was refused in postrider.retry; messages are nowhere else. */
static bool drop_slot(struct wal *w, struct error *err)
{
	struct pool *p = &w->pool;
	int64_t timeout_ms = p->database.statement_timeout_ms;
	const struct param slot[] = { text_param(w->slot) };
	_cleanup_(pg_result_clearp) PGresult *said = NULL, *listed = NULL, *parked = NULL, *dropped = NULL;

	replication_close(&w->stream);
	return pipeline_run(&p->pipeline, ST_POLL, NULL, 0, timeout_ms, &said, err) &&
	       pipeline_run(&p->pipeline, ROUND_END_BACKLOG, NULL, 0, timeout_ms, &listed, err) &&
	       pipeline_run(&p->pipeline, ST_FORGET_PARKED, NULL, 0, timeout_ms, &parked, err) &&
	       pipeline_run(&p->pipeline, ST_DROP_SLOT, slot, 1, timeout_ms, &dropped, err);
}

static bool fall_back(struct wal *w, struct error *err)
{
	const struct outbox_config *o = w->pool.env.outbox;

	if (!drop_slot(w, err))
		return false;
	log_error("wal.fell_back", F_STR("outbox", o->name), F_STR("slot", w->slot),
		  F_INT("retained_bytes", w->round.retained_bytes), F_INT("budget_bytes", o->wal.budget_bytes),
		  F_STR("meanwhile", "the slot is dropped and the table is polled; messages that were not read are lost"),
		  F_STR("hint", "stop all nodes, run `postrider init --recreate-slot`, and start them again"));
	return leave_to_polling(w, err);
}

/* --- beginning ------------------------------------------------------------------------------------------------------- */

/* A server that was restored has an older memory of what we did, and knows nothing of the difference. We may. */
static bool has_not_gone_back(struct wal *w, const struct replication_system *system, const struct wal_place *at,
			      struct error *err)
{
	char now[WAL_LSN_TEXT], before[WAL_LSN_TEXT];

	if (system->timeline >= w->seen.timeline && at->confirmed_lsn >= w->seen_lsn &&
	    (w->seen.timeline == 0 || strcmp(system->identifier, w->seen.identifier) == 0)) {
		w->seen = *system;
		return true;
	}
	wal_lsn_write(now, at->confirmed_lsn);
	wal_lsn_write(before, w->seen_lsn);
	error_set(err, ERROR_CONFIG,
		  "the database has gone back: it remembers %s on timeline %u, and this process has settled up to %s on"
		  " timeline %u", now, system->timeline, before, w->seen.timeline);
	return error_hint(err, "it was restored from a backup, or is a primary from before a failover. If this is the one to"
			       " go on with, start the relay again; what it has forgotten is published again");
}

/* The slot, the server and our memory of both have to fit together. Plain queries, so not in pipeline mode. */
static bool find_place(struct wal *w, struct wal_place *ret, struct error *err)
{
	struct pool *p = &w->pool;
	struct replication_system system;
	bool found;

	if (!replication_open(&w->stream, &p->database, "wal", p->env.outbox->wal.sender_timeout_ms, p->wake_fd, err) ||
	    !replication_identify(&w->stream, &system, err))
		return false;
	if (!PQexitPipelineMode(p->pipeline.conn))
		return error_set(err, ERROR_BUG, "a trip to the database is under way");
	found = wal_place_find(p->pipeline.conn, p->env.outbox, p->env.table, &system, ret, err);
	return PQenterPipelineMode(p->pipeline.conn) && found && has_not_gone_back(w, &system, ret, err);
}

/* Who had the slot before us may be gone and the server not know yet. */
static bool wait_for_slot(struct wal *w, struct wal_place *ret, struct error *err)
{
	struct pool *p = &w->pool;
	bool said = false;

	while (!find_place(w, ret, err)) {
		replication_close(&w->stream);
		if (err->kind != ERROR_TRANSPORT || PQstatus(p->pipeline.conn) != CONNECTION_OK || atomic_load(&p->stopping))
			return false;
		if (!said)
			log_info("wal.waiting", F_STR("outbox", p->env.outbox->name), F_ERROR(err));
		said = true;
		pool_wait(p, (struct pollfd[1]){ 0 }, 1, SLOT_BUSY_MS);
	}
	return true;
}

static bool begin(struct wal *w, struct error *err)
{
	struct pool *p = &w->pool;
	struct wal_place at;
	struct tally_place from;
	bool polled;

	if (!wal_schedule_is_possible(p->env.outbox, p->env.table, err) || !is_polled(w, &polled, err))
		return false;
	/* Who did so may have been killed in the middle of it. */
	if (polled)
		return drop_slot(w, err) && leave_to_polling(w, err);
	if (!wait_for_slot(w, &at, err))
		return false;
	from = (struct tally_place){ at.confirmed_lsn, at.transaction_lsn, at.transaction_rows };
	w->start_lsn = at.confirmed_lsn;
	w->streaming = w->gathered = false;
	w->retained_before = -1;
	w->n_looks = 0;
	flow_init(&w->flow, &p->env, &from);
	parking_init(&w->parking);
	round_init(&w->round, &p->env, w->slot, &w->flow, &w->parking, at.confirmed_lsn, at.has_backlog);
	if (at.has_backlog)
		flow_begin_backlog(&w->flow);
	w->round.sent_ms = clock_ms();
	return round_open(&w->round, p, err);
}

/* Rows from before the slot come first; then the log. */
static bool begin_to_stream(struct wal *w, struct error *err)
{
	const struct wal_config *c = &w->pool.env.outbox->wal;

	if (w->streaming || w->round.backlog)
		return true;
	w->streaming = true;
	w->confirmed_ms = clock_ms();
	/* A message also tells that a row was rescheduled. */
	return replication_start(&w->stream, w->slot, w->publication, c->messages || w->pool.env.table->scheduled.name,
				 w->start_lsn, err);
}

/* --- the log --------------------------------------------------------------------------------------------------------- */

/* Nothing is read for a worker that is not there. */
static bool all_are_there(const struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++)
		if (p->channels[i].state == CHANNEL_CLOSED)
			return false;
	return true;
}

/* With the lock held. */
static bool may_read(const struct wal *w)
{
	return w->gathered && all_are_there(&w->pool);
}

static bool wants_log(const struct wal *w, bool may)
{
	return w->streaming && may && !flow_is_full(&w->flow);
}

static bool confirm(struct wal *w, int64_t now_ms, struct error *err)
{
	w->confirmed_ms = now_ms;
	return replication_confirm(&w->stream, w->round.durable_lsn, err);
}

/* Takes frames until there are no more, or enough. *ret_reply: the server wants to hear from us. */
static bool take_frames(struct wal *w, bool may, bool *ret_reply, struct error *err)
{
	bool fresh = false;             /* nothing was taken since the last look at the socket */

	while (wants_log(w, may)) {
		struct wal_frame frame;
		bool any;

		if (!replication_next(&w->stream, &any, &frame, err))
			return false;
		if (!any && fresh)
			return true;
		if (!any && !replication_read(&w->stream, err))
			return false;
		fresh = !any;
		if (!any)
			continue;
		*ret_reply |= frame.kind == WAL_KEEPALIVE && frame.reply_wanted;
		if (!flow_take(&w->flow, &frame, err))
			return false;
	}
	return true;
}

/* Some worker has nothing to do. */
static bool is_waited_for(const struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++) {
		const struct channel *c = &p->channels[i];

		if (c->queued == 0 && (c->state == CHANNEL_ASKED || (c->state == CHANNEL_IDLE && c->in_flight == 0)))
			return true;
	}
	return false;
}

/* With the lock held. When the page is to be dealt out. A row that comes alone goes at once. In a stream, rows had better wait
 * a moment for company, for many small pages cost more than a large one; and longer when they are many already, or no worker
 * is free. */
static int64_t page_due_ms(const struct wal *w)
{
	bool wait = w->flow.page.n_rows >= STREAM_ROWS || !is_waited_for(&w->pool);

	if (w->flow.page.n_rows == 0)
		return CLOCK_NEVER;
	return flow_page_is_full(&w->flow) ? 0 : w->dealt_ms + (wait ? GATHER_MS : STREAM_MS);
}

static void deal_page(struct wal *w, int64_t now_ms)
{
	if (now_ms < page_due_ms(w))
		return;
	flow_deal(&w->flow, &w->pool, &w->parking);
	pool_ring(&w->pool);
	w->dealt_ms = now_ms;
}

static bool take_log(struct wal *w, int64_t now_ms, struct error *err)
{
	struct pool *p = &w->pool;
	bool reply = false, may;

	pthread_mutex_lock(&p->lock);
	may = may_read(w);
	pthread_mutex_unlock(&p->lock);
	if (!take_frames(w, may, &reply, err))
		return false;
	pthread_mutex_lock(&p->lock);
	deal_page(w, now_ms);
	pthread_mutex_unlock(&p->lock);
	return !reply || confirm(w, now_ms, err);
}

/* --- the budget ------------------------------------------------------------------------------------------------------- */

static void warn_of_budget(struct wal *w, int64_t now_ms)
{
	const struct outbox_config *o = w->pool.env.outbox;

	if (w->over_budget_ms != 0 && now_ms - w->over_budget_ms < OVER_BUDGET_LOG_MS)
		return;
	w->over_budget_ms = now_ms;
	log_warn("wal.over_budget", F_STR("outbox", o->name), F_STR("slot", w->slot),
		 F_INT("retained_bytes", w->round.retained_bytes), F_INT("budget_bytes", o->wal.budget_bytes),
		 F_STR("wal_status", w->round.wal_status));
}

static bool stop_over_budget(const struct wal *w, struct error *err)
{
	error_set(err, ERROR_CONFIG, "the server keeps %lld bytes of its log for the slot %s, more than wal.budget",
		  (long long)w->round.retained_bytes, w->slot);
	return error_hint(err, "find out why events are not published; the slot is still there and keeps the log. To let it"
			       " go, run `SELECT pg_drop_replication_slot('%s')`", w->slot);
}

/* Who was away for long and now catches up is over the budget as well, and less so with each look. */
static bool keep_to_budget(struct wal *w, int64_t now_ms, struct error *err)
{
	const struct outbox_config *o = w->pool.env.outbox;
	int64_t before = w->retained_before, bytes = w->round.retained_bytes;

	if (w->round.n_looks == w->n_looks || w->round.under_way)
		return true;
	w->n_looks = w->round.n_looks;
	w->retained_before = bytes;
	if (bytes <= o->wal.budget_bytes)
		return true;
	warn_of_budget(w, now_ms);
	if (before < 0 || bytes < before || o->wal.over_budget == OVER_BUDGET_WARN)
		return true;
	return o->wal.over_budget == OVER_BUDGET_STOP ? stop_over_budget(w, err) : fall_back(w, err);
}

static bool guard(struct wal *w, int64_t now_ms, struct error *err)
{
	if (strcmp(w->round.wal_status, "gone") == 0 || strcmp(w->round.wal_status, "lost") == 0) {
		error_set(err, ERROR_CONFIG, "replication slot %s is %s", w->slot,
			  w->round.wal_status[0] == 'g' ? "gone: somebody dropped it" : "given up by the server");
		return error_hint(err, WAL_RECREATE_HINT);
	}
	if (w->round.unpublished) {
		error_set(err, ERROR_CONFIG, "publication %s is gone, or does not show inserts into %s any more",
			  w->publication, w->pool.env.table->name);
		return error_hint(err, "run `postrider init`, which mends it; rows that were written meanwhile do not come: "
				       WAL_RECREATE_HINT);
	}
	return keep_to_budget(w, now_ms, err);
}

/* --- leading -------------------------------------------------------------------------------------------------- */

/* With the lock held. What only asks for rows is answered without a trip; who gets none is rung for when some have come. */
static void answer_askers(struct pool *p)
{
	for (uint32_t i = 0; i < p->n_channels; i++) {
		struct channel *c = &p->channels[i];

		if (c->state != CHANNEL_ASKED || c->has_settle)
			continue;
		c->answer = (struct answer){ .settled = true };
		pool_answer_one(p, c, false);
	}
}

/* Nothing is read before all workers are there. What was dealt to one that began anew is with nobody, so then everything
 * begins anew. */
static bool gather(struct wal *w, struct error *err)
{
	struct pool *p = &w->pool;

	if (w->gathered && p->newcomer)
		return error_set(err, ERROR_LOST, "a worker has begun anew");
	w->gathered = w->gathered || all_are_there(p);
	if (w->gathered)
		p->newcomer = false;
	return true;
}

static bool trip(struct wal *w, int64_t now_ms, struct error *err)
{
	struct pool *p = &w->pool;
	bool ok;

	pthread_mutex_lock(&p->lock);
	ok = gather(w, err);
	answer_askers(p);
	ok = ok && round_begin(&w->round, p, may_read(w), now_ms, err);
	pthread_mutex_unlock(&p->lock);
	return ok && round_receive(&w->round, p, err);
}

static void wait_for_something(struct wal *w, int64_t now_ms)
{
	struct pool *p = &w->pool;
	struct pollfd fds[3] = { 0 };
	int64_t until;
	bool may;

	pthread_mutex_lock(&p->lock);
	may = may_read(w);
	until = MIN(MIN(now_ms + IDLE_MS, page_due_ms(w)), round_due_ms(&w->round, p, may));
	pthread_mutex_unlock(&p->lock);
	if (!w->streaming && !w->round.backlog)
		return;
	fds[1].fd = pipeline_pollfd(&p->pipeline, &fds[1].events);
	fds[2].fd = -1;
	if (w->streaming) {
		fds[2].fd = replication_pollfd(&w->stream, &fds[2].events);
		until = MIN(until, w->confirmed_ms + CONFIRM_MS);
		if (!wants_log(w, may))
			fds[2].events &= ~POLLIN;
	}
	pool_wait(p, fds, ARRAY_SIZE(fds), MAX(until - now_ms, 0));
}

static bool wal_work(struct pool *p, struct error *err)
{
	struct wal *w = wal_of(p);

	if (!begin(w, err))
		return atomic_load(&p->stopping);
	pool_set_active(p);
	while (!atomic_load(&p->stopping)) {
		int64_t now = clock_ms();

		if (!begin_to_stream(w, err) || !take_log(w, now, err) || !trip(w, now, err) ||
		    !guard(w, now, err))
			return false;
		if (w->streaming && now - w->confirmed_ms >= CONFIRM_MS && !confirm(w, now, err))
			return false;
		if (w->streaming && !replication_flush(&w->stream, err))
			return false;
		wait_for_something(w, clock_ms());
	}
	return true;
}

static void wal_ended(struct pool *p)
{
	struct wal *w = wal_of(p);

	replication_close(&w->stream);
	w->seen_lsn = MAX(w->seen_lsn, w->round.durable_lsn);
	round_release(&w->round);
	flow_release(&w->flow);
	parking_release(&w->parking);
	w->over_budget_ms = 0;
}

extern const struct reader_driver reader_wal;

static const struct pool_leader leader = {
	.driver = &reader_wal,
	.statements = statements,
	.n_statements = ST_COUNT,
	.lead = ST_LEAD,
	.standby_event = "wal.standby",
	.active_event = "wal.active",
	.work = wal_work,
	.ended = wal_ended,
};

static struct pool *wal_share(const struct reader_env *env)
{
	struct wal *w = mem_new(struct wal);
	struct database_config database = *env->database;
	struct reader_env leaders = *env;

	/* A frozen leader must lose its session no later than the slot. */
	database.idle_session_timeout_ms = MIN(database.idle_session_timeout_ms, env->outbox->wal.sender_timeout_ms);
	leaders.database = &database;
	w->slot = wal_slot_name(env->outbox);
	w->publication = wal_publication_name(env->outbox);
	pool_start(&w->pool, &leader, &leaders);
	return &w->pool;
}

static void wal_unshare(struct pool *p)
{
	struct wal *w = wal_of(p);

	pool_stop(p);
	free(w->slot);
	free(w->publication);
	free(w);
}

const struct reader_driver reader_wal = {
	.name = "wal",
	.summary = "tails the database by logical replication; other processes stand by",
	.needs_session = true,
	.divides = true,
	.reads_ahead = true,
	.takes_nameless = true,
	.rings_itself = true,
	.ends_when_refused = true,
	.install_sql = wal_install_sql,
	.install = wal_install,
	.check = wal_check,
	.share = wal_share,
	.unshare = wal_unshare,
	.instead = pool_instead,
	.open = pool_open,
	.close = pool_close,
	.identity = pool_identity,
	.condition = pool_condition,
	.holds_until = pool_holds_until,
	.begin = pool_begin,
	.pollfd = pool_pollfd,
	.receive = pool_receive,
};
