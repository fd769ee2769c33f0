#include "observe/http_request.h"

#include <stdbool.h>
#include <strings.h>

#include "base/macros.h"

static struct slice part(struct slice s, size_t from, size_t to)
{
	return (struct slice){ s.ptr + from, to - from };
}

static size_t find(struct slice s, const char *what, size_t len)
{
	const char *at = memmem(s.ptr, s.len, what, len);

	return at ? (size_t)(at - s.ptr) : s.len;
}

static bool is_named(struct slice name, const char *wanted)
{
	return name.len == strlen(wanted) && strncasecmp(name.ptr, wanted, name.len) == 0;
}

static struct slice trim(struct slice s)
{
	while (s.len > 0 && (s.ptr[0] == ' ' || s.ptr[0] == '\t'))
		s = part(s, 1, s.len);
	while (s.len > 0 && (s.ptr[s.len - 1] == ' ' || s.ptr[s.len - 1] == '\t'))
		s.len--;
	return s;
}

/* Characters of names in HTTP: RFC 9110 calls it a token. */
static bool is_token(struct slice s)
{
	static const char others[] = "!#$%&'*+-.^_`|~";

	for (size_t i = 0; i < s.len; i++) {
		char c = s.ptr[i];

		if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) &&
		    (c == '\0' || !strchr(others, c)))
			return false;
	}
	return s.len > 0;
}

static bool is_printable(struct slice s, bool blanks)
{
	for (size_t i = 0; i < s.len; i++) {
		unsigned char c = (unsigned char)s.ptr[i];

		if (c == 127 || c < ' ' ? c != '\t' || !blanks : c == ' ' && !blanks)
			return false;
	}
	return true;
}

static enum http_method method_of(struct slice name)
{
	return slice_is(name, "GET") ? HTTP_GET : slice_is(name, "HEAD") ? HTTP_HEAD : HTTP_OTHER;
}

static bool parse_request_line(struct slice line, struct http_request *r, bool *ret_needs_host)
{
	size_t target_at = find(line, " ", 1), version_at, question;
	struct slice target, version;

	if (target_at == line.len)
		return false;
	target = part(line, target_at + 1, line.len);
	version_at = find(target, " ", 1);
	if (version_at == target.len)
		return false;
	version = part(target, version_at + 1, target.len);
	target.len = version_at;
	if (!is_token(part(line, 0, target_at)) || target.len == 0 || target.ptr[0] != '/' || !is_printable(target, false))
		return false;
	*ret_needs_host = slice_is(version, "HTTP/1.1");
	if (!*ret_needs_host && !slice_is(version, "HTTP/1.0"))
		return false;
	question = find(target, "?", 1);
	r->method = method_of(part(line, 0, target_at));
	r->path = part(target, 0, question);
	if (question < target.len)
		r->query = part(target, question + 1, target.len);
	return true;
}

static bool parse_field(struct slice line, struct http_request *r)
{
	size_t colon = find(line, ":", 1);
	struct slice name = part(line, 0, colon), value;

	if (colon == line.len || !is_token(name))
		return false;
	value = trim(part(line, colon + 1, line.len));
	if (!is_printable(value, true))
		return false;
	if (is_named(name, "host")) {
		if (r->host.ptr)
			return false;
		r->host = value;
	} else if (is_named(name, "authorization")) {
		static const char scheme[] = "bearer ";

		if (r->token.ptr)
			return false;
		if (value.len >= strlen(scheme) && strncasecmp(value.ptr, scheme, strlen(scheme)) == 0)
			r->token = trim(part(value, strlen(scheme), value.len));
	}
	return true;
}

enum http_parsed http_request_parse(struct slice bytes, struct http_request *ret)
{
	struct http_request r = { 0 };
	size_t end = find(bytes, "\r\n\r\n", 4);
	struct slice head = part(bytes, 0, end);
	bool first = true, needs_host = false;

	if (end == bytes.len)
		return HTTP_UNFINISHED;
	for (;;) {
		size_t line_end = find(head, "\r\n", 2);
		struct slice line = part(head, 0, line_end);

		if (!(first ? parse_request_line(line, &r, &needs_host) : parse_field(line, &r)))
			return HTTP_MALFORMED;
		first = false;
		if (line_end == head.len)
			break;
		head = part(head, line_end + 2, head.len);
	}
	if (needs_host && !r.host.ptr)
		return HTTP_MALFORMED;
	*ret = r;
	return HTTP_COMPLETE;
}
