/* The main thread of `postrider run`: starts everything in order, waits for signals, tells systemd, and takes everything
 * down in order. */
#ifndef POSTRIDER_RELAY_SUPERVISOR_H
#define POSTRIDER_RELAY_SUPERVISOR_H

#include <stdbool.h>

#include "base/error.h"
#include "config/config.h"

/* Runs until a signal asks it to stop. True: stopped cleanly. False with ERROR_CONFIG: a setting, table or right is wrong;
 * nothing was published. False with another kind: it could not go on, or was stopped by force. */
bool supervisor_run(const struct config *config, struct error *err);

#endif
