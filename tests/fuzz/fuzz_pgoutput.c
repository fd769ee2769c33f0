/* Any bytes are either refused with a reason, or a frame or message whose parts lie inside of them and fill them: what
 * is fixed and what is variable adds up to all of the bytes. And a place in the log reads again as what it was. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/macros.h"
#include "base/mem.h"
#include "pg/pgoutput.h"
#include "pg/wal_frame.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The length of a part, which lies inside of the whole. */
static size_t length_inside(struct slice whole, struct slice part)
{
	uintptr_t start = (uintptr_t)whole.ptr, at = (uintptr_t)part.ptr;

	if (at < start || at > start + whole.len || part.len > start + whole.len - at)
		abort();
	return part.len;
}

/* With the zero byte behind it. */
static size_t name_length(struct slice whole, struct slice name)
{
	size_t len = length_inside(whole, (struct slice){ name.ptr, name.len + 1 });

	if (memchr(name.ptr, '\0', len) != name.ptr + name.len)
		abort();
	return len;
}

static size_t relation_length(struct slice bytes, const struct pgoutput_relation *relation)
{
	size_t len = 1 + 4 + name_length(bytes, relation->schema) + name_length(bytes, relation->name) + 1 + 2;

	if (relation->n_columns > PGOUTPUT_COLUMNS_MAX)
		abort();
	for (uint32_t i = 0; i < relation->n_columns; i++)
		len += 1 + name_length(bytes, relation->columns[i].name) + 4 + 4;
	return len;
}

static size_t insert_length(struct slice bytes, const struct pgoutput_insert *insert)
{
	size_t len = 1 + 4 + 1 + 2;

	if (insert->n_values > PGOUTPUT_COLUMNS_MAX)
		abort();
	for (uint32_t i = 0; i < insert->n_values; i++)
		len += insert->values[i].ptr ? 1 + 4 + length_inside(bytes, insert->values[i]) : 1;
	return len;
}

static size_t message_length(struct slice bytes, const struct pgoutput *m)
{
	switch (m->kind) {
	case PGOUTPUT_BEGIN:
		return 1 + 8 + 8 + 4;
	case PGOUTPUT_COMMIT:
		return 1 + 1 + 8 + 8 + 8;
	case PGOUTPUT_RELATION:
		return relation_length(bytes, &m->relation);
	case PGOUTPUT_INSERT:
		return insert_length(bytes, &m->insert);
	case PGOUTPUT_MESSAGE:
		return 1 + 1 + 8 + name_length(bytes, m->message.prefix) + 4 + length_inside(bytes, m->message.content);
	case PGOUTPUT_OTHER:
		return bytes.len;
	}
	abort();
}

static void check_message(struct slice bytes)
{
	static struct pgoutput message;
	struct error err = { 0 };

	if (pgoutput_decode(bytes, &message, &err)) {
		if (message_length(bytes, &message) != bytes.len)
			abort();
	} else if (err.kind != ERROR_BUG || !err.message[0]) {
		abort();
	}
}

static void check_frame(struct slice bytes)
{
	struct wal_frame frame;
	struct error err = { 0 };

	if (!wal_frame_decode(bytes, &frame, &err)) {
		if (err.kind != ERROR_BUG || !err.message[0])
			abort();
		return;
	}
	if (frame.kind == WAL_KEEPALIVE)
		return;
	if (1 + 8 + 8 + 8 + length_inside(bytes, frame.data) != bytes.len)
		abort();
	check_message(frame.data);
}

static void check_place(const char *text)
{
	char written[WAL_LSN_TEXT];
	uint64_t lsn, again;

	if (!wal_lsn_parse(text, &lsn))
		return;
	wal_lsn_write(written, lsn);
	if (!wal_lsn_parse(written, &again) || again != lsn)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	_cleanup_(mem_freep) char *text = mem_strndup((const char *)data, size);
	struct slice bytes = { (const char *)data, size };

	check_message(bytes);
	check_frame(bytes);
	check_place(text);
	return 0;
}
