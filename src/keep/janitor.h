/* The janitor of a node: one thread with a connection of its own that keeps outbox tables lean. It removes published rows
 * that were kept for long enough, makes partitions before they are needed, and drops those that are empty or past their
 * time. docs/lean.md says what that is for.
 *
 * Each piece of work is a function of the schema postrider and one short transaction, with a lock_timeout of its own. Of all
 * nodes one works at an outbox at a time: the functions take an advisory lock that ends with the transaction, so it works
 * behind a pooler too, and there is nothing to take over from a node that was killed. What could not be done is done later:
 * nothing that a janitor does is urgent, because settling and writing never depend on it. */
#ifndef POSTRIDER_KEEP_JANITOR_H
#define POSTRIDER_KEEP_JANITOR_H

#include "base/error.h"
#include "config/config.h"

struct janitor;

/* Starts the thread. *ret is NULL when no outbox has anything to be kept. The settings must outlive it. */
bool janitor_start(const struct config *config, struct janitor **ret, struct error *err);
/* Ends the thread: a transaction under way is given up. Accepts NULL. */
void janitor_stop(struct janitor *j);

#endif
