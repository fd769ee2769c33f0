/* Any bytes are either refused, waited on, or a request whose parts lie inside them; and what was complete stays the same
 * whatever follows. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "observe/http_guard.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must_lie_inside(struct slice part, struct slice all)
{
	if (part.ptr && (part.ptr < all.ptr || part.ptr + part.len > all.ptr + all.len))
		abort();
}

static void must_be_the_same(struct slice a, struct slice b)
{
	if (!a.ptr != !b.ptr || !slice_equal(a, b))
		abort();
}

static void check_request(const struct http_request *r, struct slice all)
{
	must_lie_inside(r->path, all);
	must_lie_inside(r->query, all);
	must_lie_inside(r->host, all);
	must_lie_inside(r->token, all);
	if (r->path.len == 0 || r->path.ptr[0] != '/' || memchr(r->path.ptr, '?', r->path.len))
		abort();
	http_guard(r, "", false);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(mem_freep) char *longer = mem_alloc(size + 4);
	struct slice all = { (const char *)data, size };
	struct http_request r, again;
	enum http_parsed parsed = http_request_parse(all, &r);

	memcpy(longer, data, size);
	memcpy(longer + size, "\r\n\r\n", 4);
	if (parsed == HTTP_UNFINISHED) {
		if (http_request_parse((struct slice){ longer, size + 4 }, &r) == HTTP_UNFINISHED)
			abort();
		return 0;
	}
	if (http_request_parse((struct slice){ longer, size + 4 }, &again) != parsed)
		abort();
	if (parsed != HTTP_COMPLETE)
		return 0;
	check_request(&r, all);
	must_be_the_same(r.path, again.path);
	must_be_the_same(r.host, again.host);
	must_be_the_same(r.token, again.token);
	return 0;
}
