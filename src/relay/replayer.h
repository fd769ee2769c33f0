/* The main thread of a replay: one worker between the history of an outbox and its sinks, until everything is published
 * or a signal asks it to stop. Not a node among others: it claims nothing, and relays beside it do not know of it. */
#ifndef POSTRIDER_RELAY_REPLAYER_H
#define POSTRIDER_RELAY_REPLAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"
#include "read/replay.h"

struct replayer_env {
	const struct database_config *database;
	const struct outbox_config *outbox;     /* see replayer_settings */
	const char *node;                       /* our name */
	const char *time;                       /* of the replay, for the header */
	bool topic_for_all;                     /* the topic counts for rows, too, that name one of their own */
	int64_t stop_timeout_ms;
	void (*tell)(void *arg, bool stopping); /* some ten times a second, to show how far it is */
	void *arg;
};

enum replay_end {
	REPLAY_COMPLETE,                        /* what was asked for is out, except what was refused */
	REPLAY_INTERRUPTED,                     /* by a signal */
	REPLAY_FAILED,                          /* it could not go on: see the error */
};

/* The settings of an outbox, as a replay wants them: *ret points into `outbox`, and at `topic` unless that is NULL. */
void replayer_settings(const struct outbox_config *outbox, const char *topic, struct outbox_config *ret);

/* Runs in the calling thread, which has the signals SIGINT, SIGTERM and SIGHUP blocked from then on. After it `replay`
 * says how far it has come. */
enum replay_end replayer_run(const struct replayer_env *env, struct replay *replay, struct error *err);

#endif
