/* What `postrider replay` is about to do and has done, for its report. */
#ifndef POSTRIDER_CLI_REPLAY_H
#define POSTRIDER_CLI_REPLAY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "config/config.h"
#include "read/history.h"
#include "read/replay.h"
#include "relay/replayer.h"

struct replay_report {
	const struct outbox_config *outbox;
	const struct history *history;
	const struct history_filter *filter;
	const struct history_size *size;
	const char *time;                       /* of the replay, RFC 3339 */
	const char *since;                      /* and so is this; NULL: from the beginning */
	const char *until;                      /* rows published since then are not part of it, RFC 3339 */
	const char *topic;                      /* that was asked for; NULL: that of the settings */
	int64_t rate, limit;

	bool ran;                               /* what follows is known */
	const struct replay *replay;
	enum replay_end end;
	const struct error *error;              /* of REPLAY_FAILED */
	int64_t ms;
};

void replay_report_plan(const struct replay_report *r, struct buf *out);        /* for people, before it begins */
void replay_report_text(const struct replay_report *r, struct buf *out);
void replay_report_json(const struct replay_report *r, struct buf *out);

#endif
