#include "pg/pgoutput.h"

#include <string.h>

/* Reads from the front. The first thing that is wrong stays, with its place, and whatever is read after that is zero or
 * empty: so a message is read field by field, and asked once at its end whether it was one. */
struct cursor {
	struct slice bytes;
	size_t at;
	const char *wrong;              /* NULL: nothing so far */
	size_t place;                   /* of what is wrong */
};

static void refuse(struct cursor *c, size_t place, const char *wrong)
{
	if (c->wrong)
		return;
	c->wrong = wrong;
	c->place = place;
}

static struct slice get_bytes(struct cursor *c, size_t len)
{
	struct slice s;

	if (len > c->bytes.len - c->at)
		refuse(c, c->at, "it ends too early");
	if (c->wrong)
		return SLICE_NULL;
	s = (struct slice){ c->bytes.ptr + c->at, len };
	c->at += len;
	return s;
}

/* In network order. */
static uint64_t get_number(struct cursor *c, size_t bytes)
{
	struct slice s = get_bytes(c, bytes);
	uint64_t value = 0;

	for (size_t i = 0; i < s.len; i++)
		value = value << 8 | (uint8_t)s.ptr[i];
	return value;
}

static uint8_t get_u8(struct cursor *c)
{
	return (uint8_t)get_number(c, sizeof(uint8_t));
}

static uint16_t get_u16(struct cursor *c)
{
	return (uint16_t)get_number(c, sizeof(uint16_t));
}

static uint32_t get_u32(struct cursor *c)
{
	return (uint32_t)get_number(c, sizeof(uint32_t));
}

static uint64_t get_u64(struct cursor *c)
{
	return get_number(c, sizeof(uint64_t));
}

/* Without the zero byte at its end, which must be there. */
static struct slice get_string(struct cursor *c)
{
	const char *end = memchr(c->bytes.ptr + c->at, '\0', c->bytes.len - c->at);
	struct slice s;

	if (!end) {
		refuse(c, c->at, "a name without an end");
		return SLICE_NULL;
	}
	s = get_bytes(c, (size_t)(end - c->bytes.ptr) - c->at);
	get_u8(c);
	return s;
}

/* Of columns; the arrays that they go into have room for no more. */
static uint32_t get_count(struct cursor *c)
{
	uint32_t count = get_u16(c);

	if (count <= PGOUTPUT_COLUMNS_MAX)
		return count;
	refuse(c, c->at - sizeof(uint16_t), "more columns than a table can have");
	return 0;
}

static void get_begin(struct cursor *c, struct pgoutput *ret)
{
	ret->begin.final_lsn = get_u64(c);
	ret->begin.commit_time = (int64_t)get_u64(c);
	ret->begin.xid = get_u32(c);
}

static void get_commit(struct cursor *c, struct pgoutput *ret)
{
	/* There are no flags yet. One that came later could mean that this is no usual commit. */
	if (get_u8(c) != 0)
		refuse(c, c->at - 1, "an unknown flag");
	ret->commit.lsn = get_u64(c);
	ret->commit.end_lsn = get_u64(c);
	ret->commit.commit_time = (int64_t)get_u64(c);
}

static void get_relation(struct cursor *c, struct pgoutput *ret)
{
	struct pgoutput_relation *relation = &ret->relation;

	relation->oid = get_u32(c);
	relation->schema = get_string(c);
	relation->name = get_string(c);
	get_u8(c);                      /* the replica identity, which inserts do not need */
	relation->n_columns = get_count(c);
	for (uint32_t i = 0; i < relation->n_columns && !c->wrong; i++) {
		get_u8(c);              /* whether it is part of that identity */
		relation->columns[i].name = get_string(c);
		relation->columns[i].type = get_u32(c);
		get_u32(c);             /* what modifies the type: text is text */
	}
}

static struct slice get_value(struct cursor *c)
{
	switch (get_u8(c)) {
	case 'n':
		return SLICE_NULL;
	case 't':
		return get_bytes(c, get_u32(c));
	case 'u':
		refuse(c, c->at - 1, "a value that is left out as unchanged, though the row is new");
		return SLICE_NULL;
	case 'b':
		refuse(c, c->at - 1, "a binary value, though text was asked for");
		return SLICE_NULL;
	default:
		refuse(c, c->at - 1, "a value of an unknown kind");
		return SLICE_NULL;
	}
}

static void get_insert(struct cursor *c, struct pgoutput *ret)
{
	struct pgoutput_insert *insert = &ret->insert;

	insert->relation = get_u32(c);
	if (get_u8(c) != 'N')
		refuse(c, c->at - 1, "no new row");
	insert->n_values = get_count(c);
	for (uint32_t i = 0; i < insert->n_values && !c->wrong; i++)
		insert->values[i] = get_value(c);
}

static void get_message(struct cursor *c, struct pgoutput *ret)
{
	uint8_t flags = get_u8(c);

	if (flags > 1)
		refuse(c, c->at - 1, "an unknown flag");
	ret->message.transactional = flags;
	ret->message.lsn = get_u64(c);
	ret->message.prefix = get_string(c);
	ret->message.content = get_bytes(c, get_u32(c));
}

/* By their first byte. What has no function is not looked into. The messages of later versions of the protocol, for
 * parts of transactions and for prepared ones, are not asked for and would change what these mean: they are unknown. */
static const struct format {
	const char *name;
	enum pgoutput_kind kind;
	void (*get)(struct cursor *c, struct pgoutput *ret);
} formats[UINT8_MAX + 1] = {
	['B'] = { "begin", PGOUTPUT_BEGIN, get_begin },
	['C'] = { "commit", PGOUTPUT_COMMIT, get_commit },
	['D'] = { "delete", PGOUTPUT_OTHER, NULL },
	['I'] = { "insert", PGOUTPUT_INSERT, get_insert },
	['M'] = { "message", PGOUTPUT_MESSAGE, get_message },
	['O'] = { "origin", PGOUTPUT_OTHER, NULL },
	['R'] = { "relation", PGOUTPUT_RELATION, get_relation },
	['T'] = { "truncate", PGOUTPUT_OTHER, NULL },
	['U'] = { "update", PGOUTPUT_OTHER, NULL },
	['Y'] = { "type", PGOUTPUT_OTHER, NULL },
};

bool pgoutput_decode(struct slice bytes, struct pgoutput *ret, struct error *err)
{
	struct cursor c = { .bytes = bytes };
	uint8_t first = get_u8(&c);
	const struct format *format = &formats[first];

	if (!bytes.len)
		return error_set(err, ERROR_BUG, "could not decode a message of pgoutput: it is empty");
	if (!format->name)
		return error_set(err, ERROR_BUG, "could not decode a message of pgoutput: unknown kind 0x%02x", first);
	ret->kind = format->kind;
	if (!format->get)
		return true;
	format->get(&c, ret);
	if (c.at < bytes.len)
		refuse(&c, c.at, "it goes on behind its end");
	if (c.wrong)
		return error_set(err, ERROR_BUG, "could not decode %s of pgoutput: at byte %zu of %zu: %s",
				 format->name, c.place, bytes.len, c.wrong);
	return true;
}
