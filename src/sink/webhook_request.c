#include "sink/webhook_request.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "base/mem.h"

#define HEADERS_CEILING ((size_t)1 << 20)
#define URL_CEILING ((size_t)64 << 10)

void webhook_request_init(struct webhook_request *r)
{
	*r = (struct webhook_request){ 0 };
	buf_init(&r->url, URL_CEILING);
	buf_init(&r->text, HEADERS_CEILING);
}

void webhook_request_release(struct webhook_request *r)
{
	buf_release(&r->url);
	buf_release(&r->text);
	free(r->begins);
	free(r->lines);
}

/* --- names and values ------------------------------------------------------------------------------------------- */

static bool is_plain(unsigned char c)
{
	return c < 0x80 && isalnum(c);
}

bool webhook_is_name(struct slice name)
{
	for (size_t i = 0; i < name.len; i++)
		if (!is_plain((unsigned char)name.ptr[i]) && !memchr("!#$%&'*+-.^_`|~", name.ptr[i], 15))
			return false;
	return name.len > 0;
}

static bool name_is(struct slice name, const char *wanted)
{
	return name.len == strlen(wanted) && strncasecmp(name.ptr, wanted, name.len) == 0;
}

static bool begins_with(struct slice name, const char *beginning)
{
	size_t len = strlen(beginning);

	return name.len > len && strncasecmp(name.ptr, beginning, len) == 0;
}

/* What others have given a meaning in HTTP, and look for under this very name. */
static bool needs_no_prefix(struct slice name)
{
	return name_is(name, "traceparent") || name_is(name, "tracestate") || begins_with(name, "ce_");
}

/* Many servers drop headers with an underscore in their name. */
static void add_name(struct buf *b, struct slice name)
{
	for (size_t i = 0; i < name.len; i++)
		buf_add_char(b, name.ptr[i] == '_' ? '-' : name.ptr[i]);
}

/* Printable ASCII as it is, all else and the percent sign as %XX: nothing can end the line, and nothing is lost. So do
 * CloudEvents. Blanks at the ends would be. */
static void add_value(struct buf *b, struct slice value)
{
	for (size_t i = 0; i < value.len; i++) {
		char c = value.ptr[i];

		if (c < ' ' || c > '~' || c == '%' || (c == ' ' && (i == 0 || i + 1 == value.len)))
			buf_printf(b, "%%%02X", (unsigned)(unsigned char)c);
		else
			buf_add_char(b, c);
	}
}

/* --- headers ---------------------------------------------------------------------------------------------------- */

static void begin_line(struct webhook_request *r)
{
	if (r->n_lines == r->room) {
		r->room = r->room ? 2 * r->room : 32;
		r->begins = mem_resize(r->begins, r->room * sizeof(*r->begins));
		r->lines = mem_resize(r->lines, r->room * sizeof(*r->lines));
	}
	r->begins[r->n_lines++] = r->text.len;
}

static void end_line(struct webhook_request *r)
{
	buf_add_char(&r->text, '\0');
}

/* libcurl wants an empty value marked. */
static void add_header(struct webhook_request *r, const char *prefix, struct slice name, struct slice value)
{
	begin_line(r);
	buf_add_str(&r->text, prefix);
	add_name(&r->text, name);
	buf_add_str(&r->text, value.len > 0 ? ": " : ";");
	add_value(&r->text, value);
	end_line(r);
}

static bool has_header(const struct event *ev, const char *name)
{
	for (uint32_t i = 0; i < ev->n_headers; i++)
		if (name_is(ev->headers[i].name, name))
			return true;
	return false;
}

/* What the event is, beside its own headers; one of these may take the place. */
static void add_ours(struct webhook_request *r, const char *prefix, const struct event *ev)
{
	if (ev->key.ptr && !has_header(ev, "key"))
		add_header(r, prefix, SLICE_LITERAL("key"), ev->key);
	if (!has_header(ev, "topic"))
		add_header(r, prefix, SLICE_LITERAL("topic"), ev->topic);
	if (!ev->payload.ptr && !has_header(ev, "payload"))
		add_header(r, prefix, SLICE_LITERAL("payload"), SLICE_LITERAL("null"));
}

static bool add_events(struct webhook_request *r, const struct webhook_config *config, const struct event *ev,
		       struct error *err)
{
	struct slice content_type = slice_of(config->content_type);

	for (uint32_t i = 0; i < ev->n_headers; i++) {
		struct slice name = ev->headers[i].name;

		if (!webhook_is_name(name))
			return error_set(err, ERROR_REJECTED, "%.*s is not a name that a header of HTTP can have",
					 (int)MIN(name.len, 100), name.ptr);
		if (name_is(name, "content-type"))
			content_type = ev->headers[i].value;
		else
			add_header(r, needs_no_prefix(name) ? "" : config->header_prefix, name, ev->headers[i].value);
	}
	add_header(r, "", SLICE_LITERAL("Content-Type"), content_type);
	add_ours(r, config->header_prefix, ev);
	return true;
}

/* The id is signed as it is sent. */
static void add_signed(struct webhook_request *r, const struct webhook_keys *keys, const struct event *ev, int64_t timestamp)
{
	_cleanup_(buf_release) struct buf id = { .ceiling = 3 * ev->message_id.len + 1 };

	add_value(&id, ev->message_id);
	begin_line(r);
	buf_printf(&r->text, "webhook-id: %s", buf_str(&id));
	end_line(r);
	begin_line(r);
	buf_printf(&r->text, "webhook-timestamp: %" PRId64, timestamp);
	end_line(r);
	begin_line(r);
	buf_add_str(&r->text, "webhook-signature: ");
	webhook_keys_sign(keys, (struct slice){ buf_str(&id), id.len }, timestamp, ev->payload, &r->text);
	end_line(r);
	if (keys->authorization) {
		begin_line(r);
		buf_add_str(&r->text, keys->authorization);
		end_line(r);
	}
}

/* --- all of it -------------------------------------------------------------------------------------------------- */

static void build_url(struct webhook_request *r, const char *template, struct slice topic)
{
	const char *hole;

	buf_clear(&r->url);
	while ((hole = strstr(template, WEBHOOK_TOPIC))) {
		buf_add(&r->url, template, (size_t)(hole - template));
		buf_add_percent_encoded(&r->url, topic);
		template = hole + sizeof(WEBHOOK_TOPIC) - 1;
	}
	buf_add_str(&r->url, template);
}

/* Dots alone would lead out of the folder that the URL names. */
static bool check_topic(const struct webhook_config *config, struct slice topic, struct error *err)
{
	if (!strstr(config->url, WEBHOOK_TOPIC) || !(slice_is(topic, ".") || slice_is(topic, "..")))
		return true;
	return error_set(err, ERROR_REJECTED, "the topic %.*s cannot be a part of a URL", (int)topic.len, topic.ptr);
}

bool webhook_request_build(struct webhook_request *r, const struct webhook_config *config, const struct webhook_keys *keys,
			   const struct event *ev, int64_t timestamp, struct http_request *ret, struct error *err)
{
	r->n_lines = 0;
	buf_clear(&r->text);
	if (!check_topic(config, ev->topic, err) || !add_events(r, config, ev, err))
		return false;
	build_url(r, config->url, ev->topic);
	add_signed(r, keys, ev, timestamp);
	if (r->text.overflow || r->url.overflow)
		return error_set(err, ERROR_REJECTED, "its headers are larger than 1 MiB, or its URL than 64 KiB");
	for (uint32_t i = 0; i < r->n_lines; i++)
		r->lines[i] = r->text.data + r->begins[i];
	*ret = (struct http_request){ .url = buf_str(&r->url), .headers = r->lines, .n_headers = r->n_lines, .body = ev->payload };
	return true;
}
