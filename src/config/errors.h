/* Adding to the list that config_load hands back. */
#ifndef POSTRIDER_CONFIG_ERRORS_H
#define POSTRIDER_CONFIG_ERRORS_H

#include "base/buf.h"
#include "config/load.h"

/* `where` may be NULL; both texts are copied. Past a limit only the number of failures grows. */
void config_errors_add(struct config_errors *errors, enum config_severity severity, const char *where, const char *fmt,
		       ...) _printf_(4, 5);
/* A user's value in double quotes, shortened, and safe to print. */
void config_add_quoted(struct buf *b, const char *text);

#endif
