/* On what PostgreSQL 15.18 sent, through pg_logical_slot_peek_binary_changes. PostgreSQL 18.6 sent the same bytes for
 * the same statements, apart from the numbers of objects and transactions, places in the log, and times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <arpa/inet.h>
#include <cmocka.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/pgoutput.h"

enum {
	BEGIN,
	BEGIN_18,
	COMMIT,
	COMMIT_18,
	OUTBOX,
	OUTBOX_ROW,
	TYPES,                          /* what a mapping may name, and more; a generated column is not sent */
	TYPES_ROW,
	NULL_ROW,
	QUOTED,
	QUOTED_ROW,
	CHANGED_BEFORE,                 /* the table had columns a, b and c; then b was dropped and d was added */
	CHANGED_BEFORE_ROW,
	CHANGED_AFTER,
	CHANGED_AFTER_ROW,
	ROOT,                           /* publish_via_partition_root: both are sent, and the row as the root's */
	PARTITION,
	PARTITION_ROW,
	NO_COLUMNS,
	NO_COLUMNS_ROW,
	EMITTED,
	EMITTED_AT_ONCE,                /* outside of its transaction */
	EMITTED_BYTES,
	FIRST_OTHER,
	TYPE = FIRST_OTHER,
	ORIGIN,
	UPDATE,
	DELETE,
	TRUNCATE,
};

static const struct slice captured[] = {
	[BEGIN] = SLICE_LITERAL("B\000\000\000\000\001U@\030\000\003\003R\034\203\243S\000\000\002\347"),
	[BEGIN_18] = SLICE_LITERAL("B\000\000\000\000\001{\336\020\000\003\003R\034\222-\200\000\000\003\003"),
	[COMMIT] = SLICE_LITERAL("C\000\000\000\000\000\001U@\030\000\000\000\000\001U@H\000\003\003R\034\203\243S"),
	[COMMIT_18] = SLICE_LITERAL(
		"C\000\000\000\000\000\001{\336\020\000\000\000\000\001{\336@\000\003\003R\034\222-\200"),
	[OUTBOX] = SLICE_LITERAL(
		"R\000\000@\001public\000outbox\000f\000\004\001id\000\000\000\000\024\377\377\377\377\001entity_id"
		"\000\000\000\013\206\377\377\377\377\001payload\000\000\000\016\332\377\377\377\377\001headers\000"
		"\000\000\016\332\377\377\377\377"),
	[OUTBOX_ROW] = SLICE_LITERAL(
		"I\000\000@\001N\000\004t\000\000\000\00217t\000\000\000$00000000-0000-0000-0000-000000000007t\000"
		"\000\000\010{\"a\": 1}n"),
	[TYPES] = SLICE_LITERAL(
		"R\000\000@\010public\000types\000d\000\022\000i2\000\000\000\000\025\377\377\377\377\000i4\000\000"
		"\000\000\027\377\377\377\377\000i8\000\000\000\000\024\377\377\377\377\000b\000\000\000\000\020\377"
		"\377\377\377\000n\000\000\000\006\244\377\377\377\377\000f8\000\000\000\002\275\377\377\377\377\000t"
		"\000\000\000\000\031\377\377\377\377\000v\000\000\000\004\023\000\000\000\016\000c\000\000\000\004"
		"\022\000\000\000\010\000by\000\000\000\000\021\377\377\377\377\000u\000\000\000\013\206\377\377\377"
		"\377\000ts\000\000\000\004\240\377\377\377\377\000d\000\000\000\004:\377\377\377\377\000j\000\000"
		"\000\000r\377\377\377\377\000jb\000\000\000\016\332\377\377\377\377\000ta\000\000\000\003\361\377"
		"\377\377\377\000iv\000\000\000\004\242\377\377\377\377\000xi\000\000\000\023\315\377\377\377\377"),
	[TYPES_ROW] = SLICE_LITERAL(
		"I\000\000@\010N\000\022t\000\000\000\002-1t\000\000\000\0122147483647t\000\000\000\02392233720368547"
		"75807t\000\000\000\001tt\000\000\000\00512.50t\000\000\000\0030.1t\000\000\000\001xt\000\000\000\001"
		"yt\000\000\000\004z   t\000\000\000\010\\x00ff27t\000\000\000$00000000-0000-0000-0000-000000000007t"
		"\000\000\000\0302024-02-29 12:00:00.5+00t\000\000\000\0122024-02-29t\000\000\000\016{\"b\":1, \"a\":"
		"2}t\000\000\000\020{\"a\": 2, \"b\": 1}t\000\000\000\016{a,NULL,\"b c\"}t\000\000\000\0051 dayt\000"
		"\000\000\0124294967296"),
	[NULL_ROW] = SLICE_LITERAL("I\000\000@\010N\000\022nnnnnnnnnnnnnnnnnn"),
	[QUOTED] = SLICE_LITERAL(
		"R\000\000@\033shop\000Gr\303\274\303\237e \"7\"\000d\000\002\000Schl\303\274ssel\000\000\000\000\031"
		"\377\377\377\377\000it's\000\000\000\000\031\377\377\377\377"),
	[QUOTED_ROW] = SLICE_LITERAL(
		"I\000\000@\033N\000\002t\000\000\000\021\303\204rger's \"x\" \360\237\232\200t\000\000\000\000"),
	[CHANGED_BEFORE] = SLICE_LITERAL(
		"R\000\000@ public\000changed\000f\000\003\001a\000\000\000\000\027\377\377\377\377\001b\000\000\000"
		"\000\031\377\377\377\377\001c\000\000\000\000\031\377\377\377\377"),
	[CHANGED_BEFORE_ROW] = SLICE_LITERAL("I\000\000@ N\000\003t\000\000\000\0011t\000\000\000\003onen"),
	[CHANGED_AFTER] = SLICE_LITERAL(
		"R\000\000@ public\000changed\000f\000\003\001a\000\000\000\000\027\377\377\377\377\001c\000\000\000"
		"\000\031\377\377\377\377\001d\000\000\000\000\027\377\377\377\377"),
	[CHANGED_AFTER_ROW] = SLICE_LITERAL(
		"I\000\000@ N\000\003t\000\000\000\0012t\000\000\000\003twot\000\000\000\0014"),
	[ROOT] = SLICE_LITERAL(
		"R\000\000@%public\000parted\000d\000\002\000id\000\000\000\000\024\377\377\377\377\000day\000\000"
		"\000\004:\377\377\377\377"),
	[PARTITION] = SLICE_LITERAL(
		"R\000\000@+public\000parted_2\000d\000\002\000day\000\000\000\004:\377\377\377\377\000id\000\000\000"
		"\000\024\377\377\377\377"),
	[PARTITION_ROW] = SLICE_LITERAL("I\000\000@%N\000\002t\000\000\000\0012t\000\000\000\0122025-05-01"),
	[NO_COLUMNS] = SLICE_LITERAL("R\000\000@0public\000empty\000d\000\000"),
	[NO_COLUMNS_ROW] = SLICE_LITERAL("I\000\000@0N\000\000"),
	[EMITTED] = SLICE_LITERAL("M\001\000\000\000\000\001UR8postrider\000\000\000\000\013{\"key\":\"7\"}"),
	[EMITTED_AT_ONCE] = SLICE_LITERAL("M\000\000\000\000\000\001UR\250postrider\000\000\000\000\000"),
	[EMITTED_BYTES] = SLICE_LITERAL("M\001\000\000\000\000\001UR\340\000\000\000\000\004\000\001\002\377"),
	[TYPE] = SLICE_LITERAL("Y\000\000@\017public\000mood\000"),
	[ORIGIN] = SLICE_LITERAL("O\000\000\000\000\000\000\000\000elsewhere\000"),
	[UPDATE] = SLICE_LITERAL(
		"U\000\000@\001O\000\004t\000\000\000\00217t\000\000\000$00000000-0000-0000-0000-000000000007t\000"
		"\000\000\010{\"a\": 1}nN\000\004t\000\000\000\00217t\000\000\000$00000000-0000-0000-0000-00000000000"
		"7t\000\000\000\010{\"a\": 1}t\000\000\000\002{}"),
	[DELETE] = SLICE_LITERAL(
		"D\000\000@\001O\000\004t\000\000\000\00217t\000\000\000$00000000-0000-0000-0000-000000000007t\000"
		"\000\000\010{\"a\": 1}t\000\000\000\002{}"),
	[TRUNCATE] = SLICE_LITERAL("T\000\000\000\001\000\000\000@ "),
};

static struct pgoutput decoded;
static struct error error;

static void decode(struct slice bytes, enum pgoutput_kind kind)
{
	if (!pgoutput_decode(bytes, &decoded, &error))
		fail_msg("%s", error.message);
	assert_int_equal(decoded.kind, kind);
}

static void refused(struct slice bytes, const char *why)
{
	memset(&error, 0, sizeof(error));
	assert_false(pgoutput_decode(bytes, &decoded, &error));
	assert_int_equal(error.kind, ERROR_BUG);
	assert_non_null(strstr(error.message, "could not decode"));
	if (why)
		assert_string_equal(error.message, why);
}

static void equal(struct slice s, const char *text)
{
	assert_int_equal(s.ptr == NULL, text == NULL);
	if (text)
		assert_int_equal(s.len, strlen(text));
	if (text)
		assert_memory_equal(s.ptr, text, s.len);
}

static void a_transaction_begins_and_commits(void **state _unused_)
{
	decode(captured[BEGIN], PGOUTPUT_BEGIN);
	assert_int_equal(decoded.begin.final_lsn, 0x1554018);
	assert_int_equal(decoded.begin.commit_time, 848076130722643);
	assert_int_equal(decoded.begin.xid, 743);

	decode(captured[COMMIT], PGOUTPUT_COMMIT);
	assert_int_equal(decoded.commit.lsn, 0x1554018);
	assert_int_equal(decoded.commit.end_lsn, 0x1554048);
	assert_int_equal(decoded.commit.commit_time, 848076130722643);

	decode(captured[BEGIN_18], PGOUTPUT_BEGIN);
	assert_int_equal(decoded.begin.final_lsn, 0x17bde10);
	assert_int_equal(decoded.begin.xid, 771);

	decode(captured[COMMIT_18], PGOUTPUT_COMMIT);
	assert_int_equal(decoded.commit.lsn, 0x17bde10);
	assert_int_equal(decoded.commit.end_lsn, 0x17bde40);
}

static void a_relation_names_its_columns(void **state _unused_)
{
	static const struct {
		int message;
		uint32_t oid;
		const char *schema, *name;
		uint32_t n_columns;
		struct {
			const char *name;
			uint32_t type;
		} columns[18];
	} cases[] = {
		{ OUTBOX, 16385, "public", "outbox", 4,
		  { { "id", 20 }, { "entity_id", 2950 }, { "payload", 3802 }, { "headers", 3802 } } },
		{ TYPES, 16392, "public", "types", 18,
		  { { "i2", 21 }, { "i4", 23 }, { "i8", 20 }, { "b", 16 }, { "n", 1700 }, { "f8", 701 }, { "t", 25 },
		    { "v", 1043 }, { "c", 1042 }, { "by", 17 }, { "u", 2950 }, { "ts", 1184 }, { "d", 1082 },
		    { "j", 114 }, { "jb", 3802 }, { "ta", 1009 }, { "iv", 1186 }, { "xi", 5069 } } },
		{ QUOTED, 16411, "shop", "Grüße \"7\"", 2, { { "Schlüssel", 25 }, { "it's", 25 } } },
		{ CHANGED_BEFORE, 16416, "public", "changed", 3, { { "a", 23 }, { "b", 25 }, { "c", 25 } } },
		{ CHANGED_AFTER, 16416, "public", "changed", 3, { { "a", 23 }, { "c", 25 }, { "d", 23 } } },
		{ ROOT, 16421, "public", "parted", 2, { { "id", 20 }, { "day", 1082 } } },
		{ PARTITION, 16427, "public", "parted_2", 2, { { "day", 1082 }, { "id", 20 } } },
		{ NO_COLUMNS, 16432, "public", "empty", 0, { { NULL, 0 } } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		decode(captured[cases[i].message], PGOUTPUT_RELATION);
		assert_int_equal(decoded.relation.oid, cases[i].oid);
		equal(decoded.relation.schema, cases[i].schema);
		equal(decoded.relation.name, cases[i].name);
		assert_int_equal(decoded.relation.n_columns, cases[i].n_columns);
		for (uint32_t k = 0; k < cases[i].n_columns; k++) {
			equal(decoded.relation.columns[k].name, cases[i].columns[k].name);
			assert_int_equal(decoded.relation.columns[k].type, cases[i].columns[k].type);
		}
	}
}

static void an_insert_has_its_values_as_text(void **state _unused_)
{
	static const char uuid[] = "00000000-0000-0000-0000-000000000007";
	static const struct {
		int message;
		uint32_t relation, n_values;
		const char *values[18];
	} cases[] = {
		{ OUTBOX_ROW, 16385, 4, { "17", uuid, "{\"a\": 1}", NULL } },
		{ TYPES_ROW, 16392, 18,
		  { "-1", "2147483647", "9223372036854775807", "t", "12.50", "0.1", "x", "y", "z   ", "\\x00ff27", uuid,
		    "2024-02-29 12:00:00.5+00", "2024-02-29", "{\"b\":1, \"a\":2}", "{\"a\": 2, \"b\": 1}",
		    "{a,NULL,\"b c\"}", "1 day", "4294967296" } },
		{ NULL_ROW, 16392, 18, { NULL } },
		{ QUOTED_ROW, 16411, 2, { "Ärger's \"x\" 🚀", "" } },
		{ CHANGED_BEFORE_ROW, 16416, 3, { "1", "one", NULL } },
		{ CHANGED_AFTER_ROW, 16416, 3, { "2", "two", "4" } },
		{ PARTITION_ROW, 16421, 2, { "2", "2025-05-01" } },
		{ NO_COLUMNS_ROW, 16432, 0, { NULL } },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		decode(captured[cases[i].message], PGOUTPUT_INSERT);
		assert_int_equal(decoded.insert.relation, cases[i].relation);
		assert_int_equal(decoded.insert.n_values, cases[i].n_values);
		for (uint32_t k = 0; k < cases[i].n_values; k++)
			equal(decoded.insert.values[k], cases[i].values[k]);
	}
}

static void an_emitted_message_has_prefix_and_content(void **state _unused_)
{
	decode(captured[EMITTED], PGOUTPUT_MESSAGE);
	assert_true(decoded.message.transactional);
	assert_int_equal(decoded.message.lsn, 0x1555238);
	equal(decoded.message.prefix, "postrider");
	equal(decoded.message.content, "{\"key\":\"7\"}");

	decode(captured[EMITTED_AT_ONCE], PGOUTPUT_MESSAGE);
	assert_false(decoded.message.transactional);
	assert_int_equal(decoded.message.lsn, 0x15552a8);
	equal(decoded.message.prefix, "postrider");
	equal(decoded.message.content, "");

	decode(captured[EMITTED_BYTES], PGOUTPUT_MESSAGE);
	assert_true(decoded.message.transactional);
	equal(decoded.message.prefix, "");
	assert_int_equal(decoded.message.content.len, 4);
	assert_memory_equal(decoded.message.content.ptr, "\0\1\2\xff", 4);
}

static void what_is_no_news_is_not_looked_into(void **state _unused_)
{
	for (size_t i = FIRST_OTHER; i < ARRAY_SIZE(captured); i++) {
		decode(captured[i], PGOUTPUT_OTHER);
		decode((struct slice){ captured[i].ptr, 1 }, PGOUTPUT_OTHER);
	}
}

static void unknown_kinds_are_refused(void **state _unused_)
{
	for (int i = 0; i <= UINT8_MAX; i++) {
		char first = (char)i;

		if (i == 0 || !strchr("BCDIMORTUY", first))
			refused((struct slice){ &first, 1 }, NULL);
	}
	refused(SLICE_NULL, "could not decode a message of pgoutput: it is empty");
	refused(SLICE_LITERAL(""), "could not decode a message of pgoutput: it is empty");
	/* The beginning of a part of a transaction: only from version 2 on. */
	refused(SLICE_LITERAL("S\0\0\3\1\1"), "could not decode a message of pgoutput: unknown kind 0x53");
}

static void what_is_wrong_is_told_with_its_place(void **state _unused_)
{
	static const struct {
		struct slice bytes;
		const char *why;
	} cases[] = {
		{ SLICE_LITERAL("B\0\0\0"), "begin of pgoutput: at byte 1 of 4: it ends too early" },
		{ SLICE_LITERAL("C\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
		  "commit of pgoutput: at byte 1 of 26: an unknown flag" },
		{ SLICE_LITERAL("R\0\0\0\1public\0outbox"),
		  "relation of pgoutput: at byte 12 of 18: a name without an end" },
		{ SLICE_LITERAL("R\0\0\0\1"), "relation of pgoutput: at byte 5 of 5: a name without an end" },
		{ SLICE_LITERAL("R\0\0\0\1\0\0d\6\101"),
		  "relation of pgoutput: at byte 8 of 10: more columns than a table can have" },
		{ SLICE_LITERAL("I\0\0\0\1K\0\0"), "insert of pgoutput: at byte 5 of 8: no new row" },
		{ SLICE_LITERAL("I\0\0\0\1O\0\0"), "insert of pgoutput: at byte 5 of 8: no new row" },
		{ SLICE_LITERAL("I\0\0\0\1N\377\377"),
		  "insert of pgoutput: at byte 6 of 8: more columns than a table can have" },
		{ SLICE_LITERAL("I\0\0\0\1N\6\100n"), "insert of pgoutput: at byte 9 of 9: it ends too early" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\2nu"),
		  "insert of pgoutput: at byte 9 of 10: a value that is left out as unchanged, though the row is new" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\1b\0\0\0\1x"),
		  "insert of pgoutput: at byte 8 of 14: a binary value, though text was asked for" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\1x"), "insert of pgoutput: at byte 8 of 9: a value of an unknown kind" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\1t\0\0\0\2x"),
		  "insert of pgoutput: at byte 13 of 14: it ends too early" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\1t\177\377\377\377x"),
		  "insert of pgoutput: at byte 13 of 14: it ends too early" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\1t\377\377\377\377x"),
		  "insert of pgoutput: at byte 13 of 14: it ends too early" },
		{ SLICE_LITERAL("I\0\0\0\1N\0\0n"), "insert of pgoutput: at byte 8 of 9: it goes on behind its end" },
		{ SLICE_LITERAL("M\2\0\0\0\0\0\0\0\0p\0\0\0\0\0"),
		  "message of pgoutput: at byte 1 of 16: an unknown flag" },
		{ SLICE_LITERAL("M\0\0\0\0\0\0\0\0\0p\0\377\377\377\377x"),
		  "message of pgoutput: at byte 16 of 17: it ends too early" },
		{ SLICE_LITERAL("M\0\0\0\0\0\0\0\0\0p\0\0\0\0\0x"),
		  "message of pgoutput: at byte 16 of 17: it goes on behind its end" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *why = mem_printf("could not decode %s", cases[i].why);

		refused(cases[i].bytes, why);
	}
}

/* In memory of exactly that size, where the address sanitizer sees whoever reads past its end. */
static char *copy_of(struct slice s)
{
	char *copy = mem_alloc(s.len ? s.len : 1);

	memcpy(copy, s.ptr, s.len);
	return copy;
}

static void every_truncation_is_refused(void **state _unused_)
{
	for (size_t i = 0; i < FIRST_OTHER; i++)
		for (size_t len = 0; len < captured[i].len; len++) {
			_cleanup_(mem_freep) char *copy = copy_of((struct slice){ captured[i].ptr, len });

			refused((struct slice){ copy, len }, NULL);
		}
}

static void every_byte_too_many_is_refused(void **state _unused_)
{
	for (size_t i = 0; i < FIRST_OTHER; i++) {
		_cleanup_(mem_freep) char *copy = mem_alloc(captured[i].len + 1);

		memcpy(copy, captured[i].ptr, captured[i].len);
		copy[captured[i].len] = '\0';
		refused((struct slice){ copy, captured[i].len + 1 }, NULL);
	}
}

static void inside(struct slice bytes, struct slice s)
{
	if (!s.ptr)
		return;
	assert_in_range((uintptr_t)s.ptr, (uintptr_t)bytes.ptr, (uintptr_t)bytes.ptr + bytes.len);
	assert_true(s.len <= (size_t)(bytes.ptr + bytes.len - s.ptr));
}

static void all_inside(struct slice bytes)
{
	switch (decoded.kind) {
	case PGOUTPUT_RELATION:
		inside(bytes, decoded.relation.schema);
		inside(bytes, decoded.relation.name);
		assert_in_range(decoded.relation.n_columns, 0, PGOUTPUT_COLUMNS_MAX);
		for (uint32_t i = 0; i < decoded.relation.n_columns; i++)
			inside(bytes, decoded.relation.columns[i].name);
		return;
	case PGOUTPUT_INSERT:
		assert_in_range(decoded.insert.n_values, 0, PGOUTPUT_COLUMNS_MAX);
		for (uint32_t i = 0; i < decoded.insert.n_values; i++)
			inside(bytes, decoded.insert.values[i]);
		return;
	case PGOUTPUT_MESSAGE:
		inside(bytes, decoded.message.prefix);
		inside(bytes, decoded.message.content);
		return;
	case PGOUTPUT_BEGIN:
	case PGOUTPUT_COMMIT:
	case PGOUTPUT_OTHER:
		return;
	}
}

static void any_wrong_byte_is_survived(void **state _unused_)
{
	for (size_t i = 0; i < ARRAY_SIZE(captured); i++) {
		_cleanup_(mem_freep) char *copy = copy_of(captured[i]);
		struct slice bytes = { copy, captured[i].len };

		for (size_t at = 0; at < bytes.len; at++)
			for (int flip = 0; flip <= UINT8_MAX; flip++) {
				copy[at] = (char)(captured[i].ptr[at] ^ flip);
				if (pgoutput_decode(bytes, &decoded, &error))
					all_inside(bytes);
				copy[at] = captured[i].ptr[at];
			}
	}
}

static void add_u16(struct buf *b, uint16_t value)
{
	value = htons(value);
	buf_add(b, &value, sizeof(value));
}

static void add_u32(struct buf *b, uint32_t value)
{
	value = htonl(value);
	buf_add(b, &value, sizeof(value));
}

static struct slice slice_of_buf(const struct buf *b)
{
	assert_false(b->overflow);
	return (struct slice){ b->data, b->len };
}

/* In the shape of what PostgreSQL sends for values that it keeps out of line: 5 MiB of text, 2.5 MB of bytea. */
static void values_of_megabytes_are_not_copied(void **state _unused_)
{
	enum { TEXT = 5 << 20, BYTEA = 2 + 2 * 2500000 };
	_cleanup_(buf_release) struct buf b = { .ceiling = 16 << 20 };
	_cleanup_(mem_freep) char *text = mem_alloc(TEXT), *bytea = mem_alloc(BYTEA);
	struct slice bytes;

	memset(text, 'x', TEXT);
	memset(bytea, 'a', BYTEA);
	buf_add(&b, "I\0\0@\10N\0\22nt\0\0\0\0011nnnnt", 20);
	add_u32(&b, TEXT);
	buf_add(&b, text, TEXT);
	buf_add_str(&b, "nnt");
	add_u32(&b, BYTEA);
	buf_add(&b, bytea, BYTEA);
	buf_add_str(&b, "nnnnnnnn");
	bytes = slice_of_buf(&b);

	decode(bytes, PGOUTPUT_INSERT);
	assert_int_equal(decoded.insert.n_values, 18);
	equal(decoded.insert.values[1], "1");
	assert_ptr_equal(decoded.insert.values[6].ptr, bytes.ptr + 24);
	assert_int_equal(decoded.insert.values[6].len, TEXT);
	assert_memory_equal(decoded.insert.values[6].ptr, text, TEXT);
	assert_ptr_equal(decoded.insert.values[9].ptr, bytes.ptr + 24 + TEXT + 7);
	assert_int_equal(decoded.insert.values[9].len, BYTEA);
	assert_memory_equal(decoded.insert.values[9].ptr, bytea, BYTEA);
	equal(decoded.insert.values[17], NULL);
	for (size_t len = 0; len < bytes.len; len += len < 100 || len > bytes.len - 100 ? 1 : 99991)
		refused((struct slice){ bytes.ptr, len }, NULL);
}

static void make_relation(struct buf *b, uint16_t n_columns)
{
	buf_clear(b);
	buf_add(b, "R\0\0@\1s\0t\0d", 10);
	add_u16(b, n_columns);
	for (uint32_t i = 0; i < n_columns; i++) {
		buf_add_char(b, 0);
		buf_printf(b, "c%u", i);
		buf_add(b, "\0\0\0\0\31\377\377\377\377", 9);
	}
}

static void make_insert(struct buf *b, uint16_t n_columns)
{
	buf_clear(b);
	buf_add(b, "I\0\0@\1N", 6);
	add_u16(b, n_columns);
	for (uint32_t i = 0; i < n_columns; i++)
		buf_add(b, "t\0\0\0\1v", 6);
}

static void as_many_columns_as_a_table_can_have(void **state _unused_)
{
	_cleanup_(buf_release) struct buf b = { .ceiling = 1 << 20 };

	make_relation(&b, PGOUTPUT_COLUMNS_MAX);
	decode(slice_of_buf(&b), PGOUTPUT_RELATION);
	assert_int_equal(decoded.relation.n_columns, PGOUTPUT_COLUMNS_MAX);
	equal(decoded.relation.columns[PGOUTPUT_COLUMNS_MAX - 1].name, "c1599");
	make_insert(&b, PGOUTPUT_COLUMNS_MAX);
	decode(slice_of_buf(&b), PGOUTPUT_INSERT);
	assert_int_equal(decoded.insert.n_values, PGOUTPUT_COLUMNS_MAX);
	equal(decoded.insert.values[PGOUTPUT_COLUMNS_MAX - 1], "v");

	make_relation(&b, PGOUTPUT_COLUMNS_MAX + 1);
	refused(slice_of_buf(&b), NULL);
	make_insert(&b, PGOUTPUT_COLUMNS_MAX + 1);
	refused(slice_of_buf(&b), NULL);
	make_relation(&b, UINT16_MAX);
	refused(slice_of_buf(&b), NULL);
	make_insert(&b, UINT16_MAX);
	refused(slice_of_buf(&b), NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_transaction_begins_and_commits),
		cmocka_unit_test(a_relation_names_its_columns),
		cmocka_unit_test(an_insert_has_its_values_as_text),
		cmocka_unit_test(an_emitted_message_has_prefix_and_content),
		cmocka_unit_test(what_is_no_news_is_not_looked_into),
		cmocka_unit_test(unknown_kinds_are_refused),
		cmocka_unit_test(what_is_wrong_is_told_with_its_place),
		cmocka_unit_test(every_truncation_is_refused),
		cmocka_unit_test(every_byte_too_many_is_refused),
		cmocka_unit_test(any_wrong_byte_is_survived),
		cmocka_unit_test(values_of_megabytes_are_not_copied),
		cmocka_unit_test(as_many_columns_as_a_table_can_have),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
