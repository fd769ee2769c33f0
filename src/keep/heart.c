#include "keep/heart.h"

#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/backoff.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "keep/entry.h"
#include "keep/heart_sql.h"
#include "keep/line.h"
#include "keep/peers.h"
#include "keep/steering.h"
#include "pg/conn.h"
#include "pg/exec.h"

enum {
	RECONNECT_FIRST_MS = 100,
	RECONNECT_MAX_MS = 1000,        /* soon: whoever does not beat again in time is taken for dead */
	ANSWER_MIN_MS = 1000,           /* a statement of the heart takes a millisecond */
	ANSWER_MAX_MS = 5000,
	SECOND_LOOK_MS = 200,
	WAKE_BEATS = 3,                 /* sessions of one process do not all end at the same moment */
};

struct heart {
	struct heart_env env;
	struct database_config database;        /* with timeouts of our own */
	pthread_t thread;
	bool started;
	struct line line;
	struct backoff backoff;
	int64_t connected_ms;                   /* since when we are */
	struct peers peers;
	uint32_t wakes_left;                    /* beats at which workers are woken */
	bool lost;                              /* said so already */
	bool outgrown;                          /* said already that the schema no longer serves us */
	bool cannot_bury;                       /* said so already */
	bool cannot_look;                       /* at what is paused: said so already */
	struct error why_refused;               /* written before `refused` is set */
	_Atomic bool refused;
	_Atomic int64_t turned_ms;              /* when the loop last went round */
};

/* --- the connection ------------------------------------------------------------------------------------------- */

static bool connect_heart(struct heart *h, struct error *err)
{
	if (h->line.conn)
		return true;
	if (!line_open(&h->line, &h->database, "heart", err))
		return false;
	if (!steering_listen(&h->line, err)) {
		line_close(&h->line);
		return false;
	}
	h->connected_ms = clock_ms();
	/* Whatever was said while nobody listened. */
	h->env.steered(h->env.arg);
	return true;
}

/* Through this connection. */
static int64_t connected_for_ms(const struct heart *h)
{
	return clock_ms() - h->connected_ms;
}

static void lose(struct heart *h, const struct error *err)
{
	line_close(&h->line);
	if (!h->lost)
		log_warn("heart.lost", F_ERROR(err), F_STR("meaning", "others cannot see that this node lives"));
	h->lost = true;
}

static void recovered(struct heart *h)
{
	if (h->lost)
		log_info("heart.back", F_INT("tries", h->backoff.tries));
	h->lost = false;
	backoff_reset(&h->backoff);
}

/* --- what people ask for ---------------------------------------------------------------------------------------- */

static bool look_at_pauses(struct heart *h, struct error *err)
{
	if (steering_look(&h->line, h->env.tell, h->env.arg, err)) {
		h->cannot_look = false;
		return true;
	}
	if (PQtransactionStatus(h->line.conn) != PQTRANS_IDLE)
		return false;
	/* A right is missing: that must not make us look dead. */
	if (!h->cannot_look)
		log_warn("pause.unknown", F_ERROR(err), F_STR("meaning", "this node does not know which outboxes are paused"));
	h->cannot_look = true;
	return true;
}

/* --- burying -------------------------------------------------------------------------------------------------- */

static void log_burial(const PGresult *res, int row)
{
	log_warn("node.buried", F_STR("node", PQgetvalue(res, row, BURY_NAME)),
		 F_INT("number", atoll(PQgetvalue(res, row, BURY_ID))),
		 F_STR("version", PQgetvalue(res, row, BURY_VERSION)),
		 F_INT("silent_ms", atoll(PQgetvalue(res, row, BURY_SILENT_MS))),
		 F_INT("claims", atoll(PQgetvalue(res, row, BURY_CLAIMS))),
		 F_INT("shards", atoll(PQgetvalue(res, row, BURY_SHARDS))));
}

static bool bury(struct heart *h, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	struct number id, connected;
	const char *const params[] = { number(&id, atomic_load(&h->env.node->id)), number(&connected, connected_for_ms(h)) };

	if (!line_ask(&h->line, "bury dead nodes", sql_bury, ARRAY_SIZE(params), params, &res, err)) {
		/* A right is missing, or a lock: that others are dead must not make us look so. */
		if (PQtransactionStatus(h->line.conn) != PQTRANS_IDLE)
			return false;
		if (!h->cannot_bury)
			log_warn("node.unburied", F_ERROR(err));
		h->cannot_bury = true;
		return true;
	}
	h->cannot_bury = false;
	for (int i = 0; i < PQntuples(res); i++) {
		log_burial(res, i);
		peers_forget(&h->peers, atoll(PQgetvalue(res, i, BURY_ID)));
	}
	return true;
}

/* --- registering ---------------------------------------------------------------------------------------------- */

/* As entry_try, but a dead node in the way is buried first. ENTRY_DEAD when that was left to somebody else. */
static enum entry_result join(struct heart *h, struct error *err)
{
	struct node *node = h->env.node;
	_cleanup_(mem_freep) char *state = h->env.describe(h->env.arg);
	struct entry entry = { node->name, h->env.schema, node->heartbeat_ms, state, connected_for_ms(h) };
	int64_t sent_ms = clock_ms(), id = 0;
	enum entry_result result = entry_try(&h->line, &entry, &id, err);

	/* Once buried, it cannot come back without asking for entry like us. */
	if (result == ENTRY_DEAD) {
		if (!bury(h, err))
			return ENTRY_FAILED;
		sent_ms = clock_ms();
		result = entry_try(&h->line, &entry, &id, err);
	}
	if (result != ENTRY_DONE)
		return result;
	atomic_store(&node->beat_ms, sent_ms);
	atomic_store(&node->id, id);
	log_info("node.joined", F_STR("node", node->name), F_INT("number", id), F_STR("version", POSTRIDER_VERSION),
		 F_INT("pid", getpid()));
	return ENTRY_DONE;
}

static void refuse(struct heart *h, const struct error *why)
{
	h->why_refused = *why;
	atomic_store(&h->refused, true);
}

/* Others buried us: we were frozen or cut off for longer than they wait, and what we held may be theirs. True also when we
 * have to wait for another node. */
static bool join_again(struct heart *h, struct error *err)
{
	int64_t old = atomic_exchange(&h->env.node->id, 0);
	enum entry_result result;

	if (old != 0)
		log_warn("node.replaced", F_STR("node", h->env.node->name), F_INT("number", old),
			 F_STR("meaning", "others took this node for dead; it goes on under a new number"));
	result = join(h, err);
	if (result == ENTRY_REFUSED)
		refuse(h, err);
	return result != ENTRY_REFUSED && result != ENTRY_FAILED;
}

/* --- beating -------------------------------------------------------------------------------------------------- */

/* What the answer to a beat says of the others. *ret_dead: one of them may be buried. */
static void look_at_others(struct heart *h, const PGresult *res, bool *ret_dead)
{
	*ret_dead = false;
	peers_begin(&h->peers);
	for (int i = 0; i < PQntuples(res); i++) {
		if (PQgetisnull(res, i, BEAT_ID))
			continue;
		peers_see(&h->peers, &(struct peer_sight){
					     .id = atoll(PQgetvalue(res, i, BEAT_ID)),
					     .name = PQgetvalue(res, i, BEAT_NAME),
					     .version = PQgetvalue(res, i, BEAT_VERSION),
					     .gone = PQgetvalue(res, i, BEAT_GONE)[0] == 't',
					     .silent = PQgetvalue(res, i, BEAT_SILENT)[0] == 't',
				     });
		*ret_dead |= PQgetvalue(res, i, BEAT_DEAD)[0] == 't';
	}
	if (peers_end(&h->peers))
		h->wakes_left = WAKE_BEATS;
}

static void look_at_schema(struct heart *h, const PGresult *res)
{
	int needs = PQgetisnull(res, 0, BEAT_NEEDS) ? 0 : atoi(PQgetvalue(res, 0, BEAT_NEEDS));

	if (needs <= h->env.schema || h->outgrown)
		return;
	h->outgrown = true;
	log_warn("schema.outgrown", F_INT("serves", needs), F_INT("known", h->env.schema),
		 F_STR("meaning", "the schema postrider was upgraded and no longer serves this version of the program"),
		 F_STR("hint", "upgrade this node: it cannot start again"));
}

static void wake(struct heart *h)
{
	if (h->wakes_left == 0)
		return;
	h->wakes_left--;
	h->env.wake(h->env.arg);
}

static bool beat(struct heart *h, struct error *err)
{
	_cleanup_(pg_result_clearp) PGresult *res = NULL;
	_cleanup_(mem_freep) char *state = h->env.describe(h->env.arg);
	int64_t sent_ms = clock_ms();
	struct number session, id, schema, connected;
	const char *const params[] = { line_own_pid(&h->line, &session), number(&id, atomic_load(&h->env.node->id)), state,
				       number(&schema, h->env.schema), number(&connected, connected_for_ms(h)) };
	bool any_dead;

	if (!line_ask(&h->line, "beat", sql_beat, ARRAY_SIZE(params), params, &res, err))
		return false;
	if (PQgetvalue(res, 0, BEAT_MINE)[0] != '0')
		atomic_store(&h->env.node->beat_ms, sent_ms);
	else if (!join_again(h, err))
		return false;
	look_at_schema(h, res);
	look_at_others(h, res, &any_dead);
	if (any_dead && !bury(h, err))
		return false;
	wake(h);
	return true;
}

/* --- the thread ----------------------------------------------------------------------------------------------- */

static void wait_or_stop(const struct heart *h, int64_t ms)
{
	struct pollfd p = { .fd = h->line.stop_fd, .events = POLLIN };

	poll(&p, 1, (int)MAX(ms, 0));
}

/* Until the next beat is due, or somebody has said something: then the beat comes earlier and says that we know. */
static bool rest_until(struct heart *h, int64_t when_ms, struct error *err)
{
	while (!line_stopping(&h->line) && clock_ms() < when_ms) {
		if (steering_wait(&h->line, when_ms - clock_ms())) {
			h->env.steered(h->env.arg);
			return true;
		}
		if (!h->line.hears && !look_at_pauses(h, err))
			return false;
	}
	return true;
}

static void leave(struct heart *h)
{
	struct number id;
	struct error ignored;

	if (h->line.conn && atomic_load(&h->env.node->id) != 0)
		line_ask(&h->line, "sign off", sql_leave, 1,
			 (const char *const[]){ number(&id, atomic_load(&h->env.node->id)) }, NULL, &ignored);
	atomic_store(&h->env.node->id, 0);
}

static void *heart_main(void *arg)
{
	struct heart *h = arg;

	while (!line_stopping(&h->line) && !atomic_load(&h->refused)) {
		int64_t began_ms = clock_ms();
		struct error err = { 0 };

		atomic_store(&h->turned_ms, began_ms);
		if (connect_heart(h, &err) && look_at_pauses(h, &err) && beat(h, &err)) {
			recovered(h);
			if (!rest_until(h, began_ms + h->env.node->heartbeat_ms, &err))
				lose(h, &err);
		} else if (!line_stopping(&h->line) && !atomic_load(&h->refused)) {
			lose(h, &err);
			wait_or_stop(h, backoff_next(&h->backoff));
		} else {
			line_close(&h->line);
		}
	}
	return NULL;
}

struct heart *heart_new(const struct heart_env *env)
{
	struct heart *h = mem_new(struct heart);

	h->env = *env;
	h->database = *env->database;
	/* Whatever happens to a beat, the next one is due soon; and the server must not end a session between two beats. */
	h->database.statement_timeout_ms = MIN(h->database.statement_timeout_ms, ANSWER_MAX_MS);
	h->database.lock_timeout_ms = MIN(h->database.lock_timeout_ms, ANSWER_MIN_MS);
	h->database.idle_session_timeout_ms = MAX(h->database.idle_session_timeout_ms,
						  NODE_SILENT_BEATS * env->node->heartbeat_ms);
	h->line.patience_ms = MIN(MAX(env->node->heartbeat_ms, ANSWER_MIN_MS), ANSWER_MAX_MS);
	backoff_init(&h->backoff, RECONNECT_FIRST_MS, RECONNECT_MAX_MS, random_seed());
	h->line.stop_fd = eventfd(0, EFD_CLOEXEC);
	if (h->line.stop_fd < 0)
		abort();        /* out of descriptors at start */
	return h;
}

bool heart_open(struct heart *h, bool *ret_waiting, struct error *err)
{
	/* What is paused is known before any worker runs. */
	enum entry_result result = connect_heart(h, err) && look_at_pauses(h, err) ? join(h, err) : ENTRY_FAILED;

	/* One that was killed this moment still has its session. */
	if (result == ENTRY_REFUSED) {
		wait_or_stop(h, SECOND_LOOK_MS);
		result = join(h, err);
	}
	*ret_waiting = result == ENTRY_DEAD || result == ENTRY_LATER;
	/* Who waits keeps his connection: it says since when he has been watching. */
	if (result == ENTRY_REFUSED || result == ENTRY_FAILED)
		line_close(&h->line);
	return result == ENTRY_DONE;
}

bool heart_refused(const struct heart *h, struct error *ret_why)
{
	if (!atomic_load(&h->refused))
		return false;
	*ret_why = h->why_refused;
	return true;
}

int64_t heart_last_turn_ms(const struct heart *h)
{
	return atomic_load(&h->turned_ms);
}

bool heart_start(struct heart *h, struct error *err)
{
	int rc;

	atomic_store(&h->turned_ms, clock_ms());
	rc = pthread_create(&h->thread, NULL, heart_main, h);

	if (rc != 0)
		return error_set(err, ERROR_CONFIG, "could not start the heart's thread: %s", strerror(rc));
	h->started = true;
	return true;
}

void heart_free(struct heart *h)
{
	ssize_t ignored _unused_;

	if (!h)
		return;
	ignored = write(h->line.stop_fd, &(uint64_t){ 1 }, sizeof(uint64_t));
	if (h->started)
		pthread_join(h->thread, NULL);
	leave(h);
	line_close(&h->line);
	peers_release(&h->peers);
	close(h->line.stop_fd);
	free(h);
}
