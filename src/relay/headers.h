/* The headers of one message while they are collected, and the JSON object that a row may bring along. */
#ifndef POSTRIDER_RELAY_HEADERS_H
#define POSTRIDER_RELAY_HEADERS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "relay/event.h"

#define HEADERS_JSON_MAX 1000           /* members of a row's object */

/* Sized once, by the caller, for everything that may come. */
struct header_list {
	struct header *items;
	uint32_t count;
};

/* For names that the list cannot have yet. */
static inline void header_list_add(struct header_list *l, struct slice name, struct slice value)
{
	l->items[l->count++] = (struct header){ name, value };
}

/* Replaces the value of a header with the same name, or adds it. */
void header_list_set(struct header_list *l, struct slice name, struct slice value);

/* How many headers a JSON text can bring at most: cheap to ask, never too low. */
uint32_t headers_json_bound(struct slice json);

/* Sets a header for each member of a JSON object: strings as their text, numbers and booleans as they are written, null
 * as a header without a value, arrays and objects as compact JSON. JSON's null brings none. What can be is a slice of
 * `json`, the rest lies in the arena. False with ERROR_REJECTED when it is not such an object: the message completes
 * "headers are …". The list may have some of the headers then. */
bool headers_from_json(struct slice json, struct arena *arena, struct header_list *l, struct error *err);

#endif
