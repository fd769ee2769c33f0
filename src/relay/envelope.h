/* What messages say about their row in headers, before the user's own: one table per kind of envelope. */
#ifndef POSTRIDER_RELAY_ENVELOPE_H
#define POSTRIDER_RELAY_ENVELOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"
#include "config/config.h"
#include "pg/table.h"
#include "relay/headers.h"

struct envelope_header;

/* Immutable once made; shared by workers. */
struct envelope {
	const struct envelope_header *headers;
	size_t count;
	uint32_t hidden;                /* bit i: the user's own header replaces headers[i] in every message */
};

/* What is known of a row when its headers are made. */
struct envelope_facts {
	const struct slice *values;     /* by enum field, created_at and message_id as the event has them */
	struct slice source;            /* CloudEvents only */
	bool timed;                     /* created_at is RFC 3339 */
	bool binary;                    /* the payload is bytea */
	bool empty;                     /* the message has a null value */
};

/* The header that says that a message is a repetition, and since when. */
struct slice envelope_replay_header(enum envelope_mode mode);

void envelope_init(struct envelope *e, enum outbox_preset preset, enum envelope_mode mode);
/* The user sets this header for every message, so the envelope leaves it out. */
void envelope_hide(struct envelope *e, struct slice name);
/* True when no message can be made of a row in which this field is NULL. */
bool envelope_requires(const struct envelope *e, enum field field);

/* Adds at most e->count headers to a list that has none. False with ERROR_REJECTED when the row lacks something without
 * which the message would not be what it says to be. */
bool envelope_add(const struct envelope *e, const struct envelope_facts *facts, struct header_list *l,
		  struct error *err);

#endif
