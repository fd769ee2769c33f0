/* What went wrong, and which kind of wrong it is: the kind, not the text, decides what happens next.
 *
 * Functions that can fail return bool and take `struct error *err` last; it is written only on failure. They do not
 * log: the owner of the work (a worker, a command) logs once. `message` is one clause without a full stop ("could not
 * claim from public.outbox: lock timeout"), `hint` what the reader can do about it. Neither carries a secret. */
#ifndef POSTRIDER_BASE_ERROR_H
#define POSTRIDER_BASE_ERROR_H

#include <stdbool.h>

#include "base/macros.h"

#define ERROR_KINDS(X)                                                             \
	X(ERROR_NONE, "none")           /* no error */                             \
	X(ERROR_TRANSPORT, "transport") /* the other side is away: wait for it */  \
	X(ERROR_THROTTLED, "throttled") /* the other side asks us to wait */      \
	X(ERROR_REJECTED, "rejected")   /* this one row is refused */              \
	X(ERROR_AUTH, "auth")           /* we are refused */                       \
	X(ERROR_CONFIG, "config")       /* a setting or an object is wrong */      \
	X(ERROR_LOST, "lost")           /* outcome unknown, or no longer ours */   \
	X(ERROR_BUG, "bug")             /* cannot happen */

enum error_kind {
#define X(kind, name) kind,
	ERROR_KINDS(X)
#undef X
	ERROR_KIND_COUNT
};

struct error {
	enum error_kind kind;
	char message[1024];
	char hint[1024];
};

/* Both return false, so that a failing function can end with `return error_set(err, …)`. */
bool error_set(struct error *err, enum error_kind kind, const char *fmt, ...) _printf_(3, 4);
bool error_hint(struct error *err, const char *fmt, ...) _printf_(2, 3);
/* Puts "<prefix>: " before the message. */
bool error_prefix(struct error *err, const char *fmt, ...) _printf_(2, 3);

struct error *error_copy(const struct error *err);      /* on the heap; the caller frees */

const char *error_kind_name(enum error_kind kind);

#endif
