/* One line per event worth knowing, to standard error: a name, then fields.
 *
 *     log_warn("sink.slow", F_STR("sink", name), F_INT("waiting", n));
 *
 * As text:  2026-11-15T09:45:27.123Z WARN sink.slow sink=kafka waiting=17
 * As JSON:  {"time":"…","level":"warn","event":"sink.slow","sink":"kafka","waiting":17}
 *
 * Any thread may log; a line is written by one write(2). Control characters in values are escaped. Payloads and
 * secrets are never fields. */
#ifndef POSTRIDER_BASE_LOG_H
#define POSTRIDER_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/slice.h"

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARN, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };
enum log_format { LOG_FORMAT_TEXT, LOG_FORMAT_JSON };

struct log_field {
	const char *name;
	enum { LOG_FIELD_STR, LOG_FIELD_INT, LOG_FIELD_END } type;
	struct slice str;
	int64_t num;
};

#define F_STR(n, v) ((struct log_field){ (n), LOG_FIELD_STR, slice_of(v), 0 })
#define F_SLICE(n, v) ((struct log_field){ (n), LOG_FIELD_STR, (v), 0 })
#define F_INT(n, v) ((struct log_field){ (n), LOG_FIELD_INT, SLICE_NULL, (int64_t)(v) })
/* Fields with an empty value are left out, so an error without a hint has none. */
#define F_ERROR(e) \
	F_STR("kind", error_kind_name((e)->kind)), F_STR("error", (e)->message), F_STR("hint", (e)->hint)
#define LOG_FIELD_LAST ((struct log_field){ NULL, LOG_FIELD_END, SLICE_NULL, 0 })

void log_setup(enum log_level level, enum log_format format);
void log_silence(void);                 /* for commands that print what they find themselves */
bool log_enabled(enum log_level level);
void log_write(enum log_level level, const char *event, const struct log_field *fields);

#define log_at(level, event, ...)                                                                       \
	do {                                                                                            \
		if (log_enabled(level))                                                                 \
			log_write((level), (event),                                                     \
				  (const struct log_field[]){ __VA_ARGS__ __VA_OPT__(, ) LOG_FIELD_LAST }); \
	} while (0)
#define log_error(event, ...) log_at(LOG_LEVEL_ERROR, event, __VA_ARGS__)
#define log_warn(event, ...) log_at(LOG_LEVEL_WARN, event, __VA_ARGS__)
#define log_info(event, ...) log_at(LOG_LEVEL_INFO, event, __VA_ARGS__)
#define log_debug(event, ...) log_at(LOG_LEVEL_DEBUG, event, __VA_ARGS__)

#endif
