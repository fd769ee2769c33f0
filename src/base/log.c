#include "base/log.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"

#define LINE_CEILING ((size_t)16 * 1024)

/* Set once before any thread starts. */
static enum log_level threshold = LOG_LEVEL_INFO;
static bool silent;
static enum log_format line_format = LOG_FORMAT_TEXT;

static const struct {
	const char *text, *json;
} level_names[] = {
	[LOG_LEVEL_ERROR] = { "ERROR", "error" },
	[LOG_LEVEL_WARN] = { "WARN", "warn" },
	[LOG_LEVEL_INFO] = { "INFO", "info" },
	[LOG_LEVEL_DEBUG] = { "DEBUG", "debug" },
};

void log_setup(enum log_level level, enum log_format format)
{
	threshold = level;
	line_format = format;
}

void log_silence(void)
{
	silent = true;
}

bool log_enabled(enum log_level level)
{
	return level <= threshold && !silent;
}

static void add_time(struct buf *line)
{
	struct timespec now;
	struct tm utc;
	char text[32];

	clock_gettime(CLOCK_REALTIME, &now);
	gmtime_r(&now.tv_sec, &utc);
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &utc);
	buf_printf(line, "%s.%03ldZ", text, now.tv_nsec / 1000000);
}

static bool is_plain(struct slice s)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c <= ' ' || c >= 0x7F || c == '"' || c == '=' || c == '\\')
			return false;
	}
	return s.len > 0;
}

static void add_text(struct buf *line, enum log_level level, const char *event, const struct log_field *f)
{
	add_time(line);
	buf_printf(line, " %s %s", level_names[level].text, event);
	for (; f->type != LOG_FIELD_END; f++) {
		if (f->type == LOG_FIELD_STR && f->str.len == 0)
			continue;
		buf_printf(line, " %s=", f->name);
		if (f->type == LOG_FIELD_INT)
			buf_printf(line, "%" PRId64, f->num);
		else if (is_plain(f->str))
			buf_add_slice(line, f->str);
		else
			buf_add_json(line, f->str);
	}
}

static void add_json(struct buf *line, enum log_level level, const char *event, const struct log_field *f)
{
	buf_add_str(line, "{\"time\":\"");
	add_time(line);
	buf_printf(line, "\",\"level\":\"%s\",\"event\":\"%s\"", level_names[level].json, event);
	for (; f->type != LOG_FIELD_END; f++) {
		if (f->type == LOG_FIELD_STR && f->str.len == 0)
			continue;
		buf_printf(line, ",\"%s\":", f->name);
		if (f->type == LOG_FIELD_INT)
			buf_printf(line, "%" PRId64, f->num);
		else
			buf_add_json(line, f->str);
	}
	buf_add_char(line, '}');
}

void log_write(enum log_level level, const char *event, const struct log_field *fields)
{
	_cleanup_(buf_release) struct buf line;
	ssize_t ignored _unused_;

	buf_init(&line, LINE_CEILING);
	if (line_format == LOG_FORMAT_JSON)
		add_json(&line, level, event, fields);
	else
		add_text(&line, level, event, fields);
	buf_add_char(&line, '\n');
	ignored = write(STDERR_FILENO, buf_str(&line), line.len);
}
