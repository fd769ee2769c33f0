#include "relay/supervisor.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/heart.h"
#include "keep/steering.h"
#include "keep/janitor.h"
#include "observe/observed.h"
#include "observe/routes.h"
#include "observe/survey.h"
#include "pg/conn.h"
#include "pg/migrate.h"
#include "relay/describe.h"
#include "relay/listener.h"
#include "relay/systemd.h"
#include "relay/worker.h"
#include "sink/branch_check.h"

enum {
	TICK_MS = 100,                  /* how soon we notice that all are ready, or all have ended */
	LOOK_AGAIN_MS = 250,            /* whether the node that is in our way is dead */
	STUCK_MS = 60 * 1000,           /* a loop that has not turned for so long hangs: systemd may restart us */
};

struct supervisor {
	const struct config *config;
	struct outbox *outboxes;
	struct worker **workers;        /* of all outboxes */
	size_t n_workers;
	struct listener *listener;
	struct node node;
	struct heart *heart;
	struct janitor *janitor;
	struct observed observed;
	struct http_server *http;       /* NULL: the settings want none */
	int schema_version;             /* that the database has */
	sigset_t signals;
	bool ready;
	int64_t watchdog_ms;            /* systemd wants to hear from us this often; 0: it does not */
	int64_t watchdog_at_ms;
};

/* --- the watchdog and signals ----------------------------------------------------------------------------------- */

static bool all_alive(const struct supervisor *s, int64_t now)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (!worker_ended(s->workers[i]) && now - worker_last_turn_ms(s->workers[i]) > STUCK_MS)
			return false;
	return true;
}

static void feed_watchdog(struct supervisor *s, int64_t now)
{
	if (s->watchdog_ms == 0 || now < s->watchdog_at_ms)
		return;
	s->watchdog_at_ms = now + s->watchdog_ms;
	if (all_alive(s, now))
		systemd_tell("WATCHDOG=1");
}

/* All threads are started with these blocked; only the main thread asks for them. */
static void block_signals(struct supervisor *s)
{
	sigemptyset(&s->signals);
	sigaddset(&s->signals, SIGTERM);
	sigaddset(&s->signals, SIGINT);
	sigaddset(&s->signals, SIGHUP);
	pthread_sigmask(SIG_BLOCK, &s->signals, NULL);
	signal(SIGPIPE, SIG_IGN);
}

/* The signal that came within `ms`, or 0. */
static int wait_signal(const struct supervisor *s, int64_t ms)
{
	struct timespec timeout = { .tv_sec = ms / 1000, .tv_nsec = (ms % 1000) * 1000000 };
	int sig = sigtimedwait(&s->signals, NULL, &timeout);

	return sig > 0 ? sig : 0;
}

/* --- starting ----------------------------------------------------------------------------------------------------- */

/* What does not need the database: wrong settings show at once, also while it is away. */
bool outbox_prepare(struct outbox *o, const struct database_config *database, struct node *node,
		    const struct outbox_config *settings, const struct reader_driver *reader, struct error *err)
{
	o->config = settings;
	o->database = database;
	o->reader = reader;
	o->node = node;
	bell_init(&o->bell, settings->poll_interval_ms);
	o->bell.for_all = o->reader->divides;
	hand_init(&o->hand);
	if (!reader_check_settings(o->reader, settings, err) || !route_compile(settings, &o->route, err))
		return false;
	o->targets = mem_new_array(struct sink_target *, settings->n_sinks);
	for (size_t i = 0; i < settings->n_sinks; i++) {
		const struct sink_driver *driver = sink_driver_find(settings->sinks[i].type);

		if (!sink_check_route(driver, o->route, err) || !driver->target_open(&settings->sinks[i], &o->targets[i], err))
			return false;
	}
	return true;
}

static bool prepare(struct supervisor *s, struct error *err)
{
	const struct config *c = s->config;

	s->outboxes = mem_new_array(struct outbox, c->n_outboxes);
	for (size_t i = 0; i < c->n_outboxes; i++)
		if (!outbox_prepare(&s->outboxes[i], &c->database, &s->node, &c->outboxes[i],
				    reader_driver_find(c->outboxes[i].reader), err))
			return false;
	return true;
}

static void warn_left_over(void *arg, const char *table, long rows)
{
	const struct outbox_config *outbox = arg;

	log_warn("branch.left_over", F_STR("outbox", outbox->name), F_STR("table", table), F_INT("rows", rows),
		 F_STR("meaning", "the settings no longer have this branch, and nobody publishes its rows"),
		 F_STR("hint", BRANCH_LEFT_OVER_HINT));
}

static bool look_at_tables(struct supervisor *s, struct error *err)
{
	_cleanup_(pg_closep) PGconn *conn = NULL;

	if (!pg_connect(&s->config->database, "start", -1, &conn, err) ||
	    !migrate_version_served(conn, &s->schema_version, err))
		return false;
	for (size_t i = 0; i < s->config->n_outboxes; i++) {
		struct outbox *o = &s->outboxes[i];
		size_t n_extra;
		const char *const *extra = route_extra_columns(o->route, &n_extra);

		if (!o->table && !table_open(conn, o->config, extra, n_extra, &o->table, err))
			return false;
		if (!table_check_marks(conn, o->config, o->table, err) || !route_check_table(o->route, o->table, err))
			return false;
		if (o->table->columns[FIELD_ENTITY].nullable && !o->reader->takes_nameless &&
		    reader_keeps_order(o->reader, o->config))
			log_warn("outbox.nullable_entity", F_STR("outbox", o->config->name),
				 F_STR("meaning", "rows without an entity have no order and are never published"),
				 F_STR("hint", "`postrider check` says how to mend it"));
		if (!o->config->parent &&
		    !branch_find_left_over(conn, o->config, warn_left_over, (void *)(uintptr_t)o->config, err))
			return false;
	}
	return true;
}

/* --- the node among others ---------------------------------------------------------------------------------------- */

static bool is_watched(const struct supervisor *s)
{
	return s->config->http.listen[0] != '\0';
}

static char *describe(void *arg)
{
	struct supervisor *s = arg;

	return describe_workers(s->outboxes, s->config->n_outboxes, s->workers, s->n_workers,
				is_watched(s));
}

/* Another node has gone: what it held may be free. */
static void wake_all(void *arg)
{
	struct supervisor *s = arg;

	for (size_t i = 0; i < s->config->n_outboxes; i++)
		bell_ring_all(&s->outboxes[i].bell);
}

static struct steering_word word_of(const char *table, const struct steering_word *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(words[i].table, table) == 0)
			return words[i];
	return (struct steering_word){ 0 };
}

static void tell_outboxes(void *arg, const struct steering_word *words, size_t n)
{
	struct supervisor *s = arg;

	for (size_t i = 0; i < s->config->n_outboxes; i++) {
		struct outbox *o = &s->outboxes[i];
		struct steering_word word = word_of(o->table->name, words, n);

		if (word.paused != bell_is_paused(&o->bell))
			log_info(word.paused ? "outbox.paused" : "outbox.resumed", F_STR("outbox", o->config->name));
		bell_set_paused(&o->bell, word.paused);
		bell_set_letters(&o->bell, word.letters);
	}
}

static void steer_all(void *arg)
{
	struct supervisor *s = arg;

	for (size_t i = 0; i < s->config->n_outboxes; i++)
		bell_steer(&s->outboxes[i].bell);
}

static bool join_others(struct supervisor *s, bool *ret_waiting, struct error *err)
{
	if (!s->heart)
		s->heart = heart_new(&(struct heart_env){
			.database = &s->config->database,
			.node = &s->node,
			.schema = (int)n_migrations,
			.describe = describe,
			.wake = wake_all,
			.tell = tell_outboxes,
			.steered = steer_all,
			.arg = s,
		});
	return heart_open(s->heart, ret_waiting, err);
}

/* Once for each reason. */
static void log_waiting(bool for_node, bool logged[2], const struct error *err)
{
	if (logged[for_node])
		return;
	logged[for_node] = true;
	if (for_node)
		log_warn("node.waiting", F_ERROR(err),
			 F_STR("meanwhile", "that node may be dead, which shows after three heartbeats: trying again"));
	else
		log_warn("database.unreachable", F_ERROR(err), F_STR("meanwhile", "trying again"));
}

/* A database that is away is waited for, and so is a node in our way that may be dead. False with a signal in *ret_signal
 * when asked to stop meanwhile, or with an error that waiting does not mend. */
static bool wait_to_join(struct supervisor *s, int *ret_signal, struct error *err)
{
	struct backoff backoff;
	bool logged[2] = { false };

	backoff_init(&backoff, 200, 10000, random_seed());
	for (;;) {
		bool for_node = false;

		if (look_at_tables(s, err) && join_others(s, &for_node, err))
			return true;
		if (err->kind != ERROR_TRANSPORT && !for_node)
			return false;
		log_waiting(for_node, logged, err);
		systemd_tell(for_node ? "STATUS=waiting for another node\nEXTEND_TIMEOUT_USEC=60000000" :
					"STATUS=waiting for the database\nEXTEND_TIMEOUT_USEC=60000000");
		feed_watchdog(s, clock_ms());
		*ret_signal = wait_signal(s, for_node ? LOOK_AGAIN_MS : backoff_next(&backoff));
		if (*ret_signal)
			return false;
	}
}

static void share_reader(struct outbox *o)
{
	struct reader_env env = {
		.database = o->database,
		.outbox = o->config,
		.table = o->table,
		.purpose = o->reader->name,
		.node = o->node,
		.bell = &o->bell,
		.interrupt_fd = -1,
	};

	if (o->reader->share)
		o->pool = o->reader->share(&env);
}

static bool start_workers(struct supervisor *s, struct error *err)
{
	size_t started = 0;

	for (size_t i = 0; i < s->config->n_outboxes; i++) {
		const struct outbox_config *o = &s->config->outboxes[i];

		share_reader(&s->outboxes[i]);
		s->workers = mem_resize(s->workers, (s->n_workers + (size_t)o->workers) * sizeof(*s->workers));
		for (int64_t k = 0; k < o->workers; k++)
			s->workers[s->n_workers++] = worker_new(&s->outboxes[i]);
	}
	while (started < s->n_workers && worker_start(s->workers[started], err))
		started++;
	return started == s->n_workers;
}

static void start_listener(struct supervisor *s)
{
	size_t n = s->config->n_outboxes, listening = 0;
	struct listener_outbox *outboxes = mem_new_array(struct listener_outbox, n);

	for (size_t i = 0; i < n; i++) {
		struct outbox *o = &s->outboxes[i];
		enum wakeup_mode mode = o->reader->rings_itself ? WAKEUP_OFF : o->config->wakeup;

		if (o->reader->rings_itself)
			bell_set_deaf(&o->bell, false);
		outboxes[i] = (struct listener_outbox){ o->config->name, o->table->name, mode, &o->bell };
		listening += mode != WAKEUP_OFF;
	}
	if (listening > 0)
		s->listener = listener_start(&s->config->database, outboxes, n);
	free(outboxes);
}

/* --- being watched ------------------------------------------------------------------------------------------------ */

/* Before anything else, so that probes are answered while we wait for the database. */
static void start_http(struct supervisor *s)
{
	s->observed.config = s->config;
	s->observed.node = &s->node;
	s->observed.outboxes = s->outboxes;
	if (is_watched(s))
		s->http = http_server_start(&s->config->http, observe_routes, &s->observed);
}

/* When all threads run. */
static void show_all(struct supervisor *s)
{
	if (!is_watched(s))
		return;
	s->observed.workers = s->workers;
	s->observed.heart = s->heart;
	s->observed.survey = survey_start(s->config, &s->node, s->outboxes);
	atomic_store(&s->observed.running, true);
}

static void stop_watching(struct supervisor *s)
{
	http_server_stop(TAKE_PTR(s->http));
	survey_stop(TAKE_PTR(s->observed.survey));
}

/* --- running ------------------------------------------------------------------------------------------------------ */

static bool all_ready(const struct supervisor *s)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (!worker_ready(s->workers[i]))
			return false;
	return true;
}

static bool any_broken(const struct supervisor *s, struct error *ret_why)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (worker_broken(s->workers[i], ret_why))
			return true;
	return false;
}

static bool all_ended(const struct supervisor *s)
{
	for (size_t i = 0; i < s->n_workers; i++)
		if (!worker_ended(s->workers[i]))
			return false;
	return true;
}

/* Until a signal (returned) or a worker or the node that cannot go on (0, and why). */
static int run_until_signal(struct supervisor *s, struct error *err)
{
	for (;;) {
		int64_t pause = !s->ready ? TICK_MS : s->watchdog_ms > 0 ? MIN(s->watchdog_ms, 1000) : 1000;
		int sig = wait_signal(s, pause);

		if (sig)
			return sig;
		/* Said before the drain, which may take long. */
		if (any_broken(s, err) || heart_refused(s->heart, err)) {
			log_error("relay.gives_up", F_ERROR(err));
			return 0;
		}
		if (!s->ready && all_ready(s)) {
			s->ready = true;
			log_info("relay.ready", F_INT("outboxes", s->config->n_outboxes), F_INT("workers", s->n_workers));
			systemd_tell("READY=1\nSTATUS=relaying");
		}
		feed_watchdog(s, clock_ms());
	}
}

/* --- stopping ----------------------------------------------------------------------------------------------------- */

/* True when all workers ended by themselves; false when a second signal did not want to wait. */
static bool drain(struct supervisor *s)
{
	int64_t deadline = clock_ms() + s->config->stop_timeout_ms;

	systemd_tell("STOPPING=1");
	for (size_t i = 0; i < s->n_workers; i++)
		worker_drain(s->workers[i], deadline);
	while (!all_ended(s)) {
		if (wait_signal(s, TICK_MS / 10))
			return false;
		feed_watchdog(s, clock_ms());
	}
	return true;
}

static void log_stopped(const struct worker_totals *t)
{
	log_info("relay.stopped", F_INT("published", t->settled), F_INT("claimed", t->claimed), F_INT("claims", t->claims),
		 F_INT("empty_claims", t->empty_claims));
}

void outbox_release(struct outbox *o)
{
	for (size_t k = 0; o->targets && k < o->config->n_sinks; k++)
		if (o->targets[k])
			sink_driver_find(o->config->sinks[k].type)->target_close(o->targets[k]);
	free(o->targets);
	hand_release(&o->hand);
	route_free(o->route);
	table_free(o->table);
}

static void release(struct supervisor *s)
{
	heart_free(s->heart);
	for (size_t i = 0; i < s->config->n_outboxes && s->outboxes; i++)
		outbox_release(&s->outboxes[i]);
	for (size_t i = 0; i < s->n_workers; i++)
		worker_free(s->workers[i]);
	free(s->workers);
	free(s->outboxes);
}

/* --- all of it ---------------------------------------------------------------------------------------------------- */

static bool run_and_stop(struct supervisor *s, struct error *err)
{
	struct worker_totals totals = { 0 };
	int sig;

	if (s->schema_version > (int)n_migrations)
		log_info("schema.newer", F_INT("version", s->schema_version), F_INT("known", n_migrations),
			 F_STR("meaning", "it still serves this program; upgrade this node soon"));
	if (!start_workers(s, err) || !heart_start(s->heart, err) || !janitor_start(s->config, &s->janitor, err))
		abort();        /* some threads run and some do not: nothing sensible is left to do */
	start_listener(s);
	show_all(s);
	sig = run_until_signal(s, err);
	log_info("relay.stopping", F_STR("signal", sig ? sigabbrev_np(sig) : ""), F_INT("timeout_ms", s->config->stop_timeout_ms));
	if (!drain(s)) {
		log_warn("relay.killed", F_STR("meaning", "rows on their way are published again after the next start"));
		_exit(1);
	}
	stop_watching(s);
	listener_stop(s->listener);
	janitor_stop(s->janitor);
	for (size_t i = 0; i < s->n_workers; i++)
		worker_join(s->workers[i], &totals);
	for (size_t i = 0; i < s->config->n_outboxes; i++)
		if (s->outboxes[i].pool)
			s->outboxes[i].reader->unshare(s->outboxes[i].pool);
	heart_free(TAKE_PTR(s->heart));
	log_stopped(&totals);
	return sig != 0;
}

bool supervisor_run(const struct config *config, struct error *err)
{
	struct supervisor s = {
		.config = config,
		.node = { .name = config->node, .heartbeat_ms = config->heartbeat_ms },
		.watchdog_ms = systemd_watchdog_ms(),
	};
	bool ok = false;
	int sig = 0;

	block_signals(&s);
	log_info("relay.started", F_STR("version", POSTRIDER_VERSION), F_STR("node", config->node),
		 F_STR("config", config->file));
	if (prepare(&s, err)) {
		start_http(&s);
		if (wait_to_join(&s, &sig, err))
			ok = run_and_stop(&s, err);
		else
			ok = sig != 0;
	}
	stop_watching(&s);
	release(&s);
	return ok;
}
