/* The main thread of `postrider run`: starts everything in order, waits for signals, tells systemd, and takes everything
 * down in order. */
#ifndef POSTRIDER_RELAY_SUPERVISOR_H
#define POSTRIDER_RELAY_SUPERVISOR_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"
#include "relay/worker.h"

/* Runs until a signal asks it to stop. True: stopped cleanly. False with ERROR_CONFIG: a setting, table or right is wrong;
 * nothing was published. False with another kind: it could not go on, or was stopped by force. */
bool supervisor_run(const struct config *config, struct error *err);

/* For whoever runs workers himself: what they share, with its sinks' targets, before the first of them is made; and its
 * end, before worker_free. Wrong settings are ERROR_CONFIG; what was made by then is to be released all the same. */
bool outbox_prepare(struct outbox *o, const struct database_config *database, struct node *node,
		    const struct outbox_config *settings, const struct reader_driver *reader, struct error *err);
void outbox_release(struct outbox *o);

#endif
