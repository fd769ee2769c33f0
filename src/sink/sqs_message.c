#include "sink/sqs_message.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "sink/json_text.h"

#define ID "id"
#define KEY "postrider-key"
#define ENCODING "postrider-encoding"
#define PACKED "postrider-headers"
#define NO_BODY SLICE_LITERAL("-")      /* SQS takes no empty one */
#define PACKED_CEILING ((size_t)256 << 20)

enum { ATTRIBUTES_MAX = 10, NAME_MAX_BYTES = 256, ID_MAX_BYTES = 128, SHA256_BYTES = 32 };

/* --- text ----------------------------------------------------------------------------------------------------- */

/* U+FFFE and U+FFFF are no characters of XML, which SQS is bound to. */
static bool is_noncharacter(const unsigned char *p, size_t n)
{
	return n >= 3 && p[0] == 0xEF && p[1] == 0xBF && p[2] >= 0xBE;
}

static bool is_allowed(const unsigned char *p, size_t n)
{
	return n > 0 && (*p >= ' ' || *p == '\t' || *p == '\n' || *p == '\r') && !is_noncharacter(p, n);
}

bool sqs_text_is_allowed(struct slice s)
{
	const unsigned char *p = (const unsigned char *)s.ptr;

	for (size_t i = 0, n; i < s.len; i += n) {
		n = utf8_length(p + i, s.len - i);
		if (!is_allowed(p + i, n))
			return false;
	}
	return s.len > 0;
}

/* A JSON string in which nothing is left that SQS would refuse. */
static void add_plain_json(struct buf *b, struct slice s)
{
	_cleanup_(buf_release) struct buf json = { .ceiling = PACKED_CEILING };
	size_t from = 0;

	buf_add_json(&json, s);
	for (size_t i = 0; i < json.len; i++) {
		if (!is_noncharacter((const unsigned char *)json.data + i, json.len - i))
			continue;
		buf_add(b, json.data + from, i - from);
		buf_printf(b, "\\uff%02x", (unsigned char)json.data[i + 2] | 0x40);
		from = i + 3;
	}
	buf_add(b, json.data + from, json.len - from);
}

static bool is_id_character(unsigned char c)
{
	return c > ' ' && c < 0x7F;
}

void buf_add_sqs_name(struct buf *b, struct slice s)
{
	unsigned char hash[SHA256_BYTES];
	size_t i = 0;

	while (i < s.len && is_id_character((unsigned char)s.ptr[i]))
		i++;
	if (i == s.len && s.len > 0 && s.len <= ID_MAX_BYTES) {
		buf_add_slice(b, s);
		return;
	}
	mem_must(EVP_Digest(s.ptr ? s.ptr : "", s.len, hash, NULL, EVP_sha256(), NULL));
	for (i = 0; i < sizeof(hash); i++)
		buf_printf(b, "%02x", hash[i]);
}

/* --- attributes ----------------------------------------------------------------------------------------------- */

/* What an entry is made of while it is written. */
struct entry {
	struct buf *json;
	size_t counts;                  /* bytes, as SQS counts them */
	uint32_t direct;                /* attributes of their own so far */
	uint32_t room;                  /* how many there may be */
	struct buf packed;              /* the JSON object of the others */
};

/* What is done with each attribute in turn. */
typedef void attribute_step(struct entry *e, struct slice name, struct slice value);

static bool is_prefix(struct slice s, const char *prefix)
{
	return s.len >= strlen(prefix) && strncasecmp(s.ptr, prefix, strlen(prefix)) == 0;
}

static bool is_attribute_name(struct slice s)
{
	if (s.len == 0 || s.len > NAME_MAX_BYTES || s.ptr[0] == '.' || s.ptr[s.len - 1] == '.')
		return false;
	if (is_prefix(s, "AWS.") || is_prefix(s, "Amazon.") || memmem(s.ptr, s.len, "..", 2))
		return false;
	for (size_t i = 0; i < s.len; i++)
		if (!isascii(s.ptr[i]) || (!isalnum((unsigned char)s.ptr[i]) && !strchr("_-.", s.ptr[i])))
			return false;
	return true;
}

static bool is_attribute(struct slice name, struct slice value)
{
	return is_attribute_name(name) && sqs_text_is_allowed(value);
}

/* Those that are ours to set. */
static bool is_ours(struct slice name)
{
	return slice_is(name, ID) || slice_is(name, KEY) || slice_is(name, ENCODING) || slice_is(name, PACKED);
}

static void for_each(struct entry *e, const struct event *ev, const char *encoding, attribute_step *step)
{
	step(e, SLICE_LITERAL(ID), ev->message_id);
	if (ev->key.ptr)
		step(e, SLICE_LITERAL(KEY), ev->key);
	if (encoding)
		step(e, SLICE_LITERAL(ENCODING), slice_of(encoding));
	for (uint32_t i = 0; i < ev->n_headers; i++)
		if (!is_ours(ev->headers[i].name))
			step(e, ev->headers[i].name, ev->headers[i].value);
}

static void write_attribute(struct entry *e, struct slice name, struct slice value)
{
	buf_add_str(e->json, e->direct > 0 ? "," : "");
	buf_add_json(e->json, name);
	buf_add_str(e->json, ":{\"DataType\":\"String\",\"StringValue\":");
	buf_add_json(e->json, value);
	buf_add_char(e->json, '}');
	e->counts += name.len + strlen("String") + value.len;
	e->direct++;
}

static void pack(struct entry *e, struct slice name, struct slice value)
{
	buf_add_char(&e->packed, e->packed.len > 0 ? ',' : '{');
	add_plain_json(&e->packed, name);
	buf_add_char(&e->packed, ':');
	if (value.ptr)
		add_plain_json(&e->packed, value);
	else
		buf_add_str(&e->packed, "null");
}

static void add_or_pack(struct entry *e, struct slice name, struct slice value)
{
	if (e->direct < e->room && is_attribute(name, value))
		write_attribute(e, name, value);
	else
		pack(e, name, value);
}

/* One too many, or one that is none: then a place is needed for those that are packed. */
static void count(struct entry *e, struct slice name, struct slice value)
{
	if (!is_attribute(name, value))
		e->room = ATTRIBUTES_MAX - 1;
	if (++e->direct > ATTRIBUTES_MAX)
		e->room = ATTRIBUTES_MAX - 1;
}

static void add_attributes(struct entry *e, const struct event *ev, const char *encoding)
{
	e->room = ATTRIBUTES_MAX;
	for_each(e, ev, encoding, count);
	e->direct = 0;
	buf_init(&e->packed, PACKED_CEILING);
	for_each(e, ev, encoding, add_or_pack);
	if (e->packed.len > 0) {
		buf_add_char(&e->packed, '}');
		write_attribute(e, SLICE_LITERAL(PACKED), (struct slice){ buf_str(&e->packed), e->packed.len });
	}
	buf_release(&e->packed);
}

/* --- the entry ------------------------------------------------------------------------------------------------ */

static const char *encoding_of(struct slice payload)
{
	if (!payload.ptr)
		return "null";
	if (payload.len == 0)
		return "empty";
	return sqs_text_is_allowed(payload) ? NULL : "base64";
}

static void add_body(struct entry *e, struct slice payload, const char *encoding)
{
	size_t before = e->json->len;

	if (!encoding) {
		buf_add_json(e->json, payload);
		e->counts += payload.len;
	} else if (payload.len > 0) {
		buf_add_char(e->json, '"');
		buf_add_base64(e->json, payload);
		buf_add_char(e->json, '"');
		e->counts += e->json->len - before - 2;
	} else {
		buf_add_json(e->json, NO_BODY);
		e->counts += NO_BODY.len;
	}
}

static void add_name(struct buf *b, const char *member, struct slice s)
{
	_cleanup_(buf_release) struct buf name = { .ceiling = ID_MAX_BYTES + 1 };

	buf_add_sqs_name(&name, s);
	buf_printf(b, ",\"%s\":", member);
	buf_add_json(b, (struct slice){ buf_str(&name), name.len });
}

/* Rows that have neither key nor entity are bound to no order: each is a group of its own. */
static struct slice group_of(const struct event *ev)
{
	if (ev->key.ptr)
		return ev->key;
	return ev->entity.ptr ? ev->entity : ev->message_id;
}

size_t buf_add_sqs_entry(struct buf *b, const struct event *ev, uint32_t number, bool fifo)
{
	const char *encoding = encoding_of(ev->payload);
	struct entry e = { .json = b };

	buf_printf(b, "{\"Id\":\"%u\",\"MessageBody\":", number);
	add_body(&e, ev->payload, encoding);
	buf_add_str(b, ",\"MessageAttributes\":{");
	add_attributes(&e, ev, encoding);
	buf_add_char(b, '}');
	if (fifo) {
		add_name(b, "MessageGroupId", group_of(ev));
		add_name(b, "MessageDeduplicationId", ev->message_id);
	}
	buf_add_char(b, '}');
	return e.counts;
}
