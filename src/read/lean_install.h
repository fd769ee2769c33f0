/* What `postrider init` runs for the setting `published`, besides what it runs for the reader. */
#ifndef POSTRIDER_READ_LEAN_INSTALL_H
#define POSTRIDER_READ_LEAN_INSTALL_H

#include <stdbool.h>

#include "config/config.h"

/* SQL that returns a line for each thing that it did. `table` is a literal with the
 * table's name, `role` one with who will run the relay, or NULL. `recommended`: the table is as init makes it, so it may get
 * a column more. The caller frees. */
char *lean_install_sql(const struct outbox_config *outbox, bool recommended, const char *table, const char *role);

#endif
