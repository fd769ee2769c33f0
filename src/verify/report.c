#include "verify/report.h"

#include <inttypes.h>

#include "base/macros.h"

static const struct ledger *ledger_of(const struct verify_report *r)
{
	return r->comparison->ledger;
}

/* Everything that the table has, routable or not. */
static uint64_t count_rows(const struct ledger *l)
{
	return l->ids.count + l->repeated + l->unroutable.count;
}

static uint64_t count_missing(const struct verify_report *r)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < ledger_of(r)->topics.count; i++)
		n += r->topics[i].missing;
	return n;
}

static struct slice id_of(const struct verify_report *r, const struct verify_case *c)
{
	if (c->row != WORDS_NONE)
		return words_get(&ledger_of(r)->ids, c->row);
	return (struct slice){ c->id, c->id_len };
}

/* ---- Text -------------------------------------------------------------------------------------------------------- */

/* In quotes and escaped: ids come from outside, and end on somebody's terminal. */
static void add_quoted(struct buf *out, struct slice s)
{
	if (s.ptr)
		buf_add_json(out, s);
	else
		buf_add_str(out, "(none)");
}

static void add_plural(struct buf *out, uint64_t n, const char *one, const char *many)
{
	buf_printf(out, "%" PRIu64 " %s", n, n == 1 ? one : many);
}

/* A name that is no topic's may be anything. */
static void add_topic(const struct verify_report *r, uint32_t topic, struct buf *out)
{
	struct slice name = words_get(&ledger_of(r)->topics, topic);

	if (r->topics[topic].partitions > 0)
		buf_add_slice(out, name);
	else
		add_quoted(out, name);
}

static void add_place(const struct verify_report *r, const struct verify_case *c, struct buf *out)
{
	if (c->topic == WORDS_NONE)
		return;
	buf_add_str(out, c->offset >= 0 ? ", at " : ", expected in ");
	add_topic(r, c->topic, out);
	if (c->offset >= 0)
		buf_printf(out, " partition %" PRId32 " offset %" PRId64, c->partition, c->offset);
}

static void add_case(const struct verify_report *r, const struct verify_case *c, struct buf *out)
{
	buf_add_str(out, "  id ");
	add_quoted(out, id_of(r, c));
	if (c->entity != WORDS_NONE) {
		buf_add_str(out, ", entity ");
		add_quoted(out, words_get(&ledger_of(r)->entities, c->entity));
	}
	add_place(r, c, out);
	if (c->behind != WORDS_NONE) {
		buf_add_str(out, ", behind ");
		add_quoted(out, words_get(&ledger_of(r)->ids, c->behind));
	}
	buf_add_char(out, '\n');
}

static void add_cases(const struct verify_report *r, enum verify_kind kind, struct buf *out)
{
	const struct verify_found *f = &r->comparison->found[kind];

	if (f->n_cases == 0)
		return;
	buf_printf(out, "\n%s", verify_kind_name(kind));
	if (f->n_cases < f->count)
		buf_printf(out, ", the first %" PRIu32 " of %" PRIu64, f->n_cases, f->count);
	buf_add_str(out, ":\n");
	for (uint32_t i = 0; i < f->n_cases; i++)
		add_case(r, &f->cases[i], out);
}

static void add_kind(const struct verify_report *r, enum verify_kind kind, struct buf *out)
{
	uint64_t count = r->comparison->found[kind].count;
	const char *verdict = "ok";

	if (count > 0)
		verdict = verify_kind_judged(kind, &r->rules) ? "FAIL" : "allowed";
	buf_printf(out, "  %-13s %12" PRIu64 "  %-8s %s\n", verify_kind_name(kind), count, verdict,
		   verify_kind_meaning(kind));
}

static void add_topics(const struct verify_report *r, struct buf *out)
{
	for (uint32_t i = 0; i < ledger_of(r)->topics.count; i++) {
		buf_add_str(out, "topic ");
		add_topic(r, i, out);
		buf_add_str(out, r->topics[i].partitions > 0 ? ": " : ": does not exist\n");
		if (r->topics[i].partitions == 0)
			continue;
		add_plural(out, r->topics[i].records, "record in ", "records in ");
		add_plural(out, (uint64_t)r->topics[i].partitions, "partition\n", "partitions\n");
	}
}

/* What keeps the result from being the whole truth. */
static void add_notes(const struct verify_report *r, struct buf *out)
{
	uint64_t missing = count_missing(r);

	if (r->outbox_itself)
		buf_add_str(out, "note: this table is the outbox itself, whose rows are all still to be published: none"
				 " counts as lost. Name an archive, or say with --marked which rows are published.\n");
	if (missing > 0 && !r->rules.partial)
		buf_printf(out, "note: the topics no longer have their first %" PRIu64 " records, so older rows count"
				" as lost. Leave them out with --since.\n", missing);
	if (ledger_of(r)->repeated > 0)
		buf_printf(out, "note: %" PRIu64 " rows have the id of another row. In a topic they cannot be told"
				" apart; each id was looked for once.\n", ledger_of(r)->repeated);
	if (ledger_of(r)->ids.count == 0)
		buf_add_str(out, "note: there was no row to look for.\n");
}

void report_write_text(const struct verify_report *r, struct buf *out)
{
	const struct comparison *c = r->comparison;

	buf_printf(out, "outbox %s against %s: ", r->outbox, r->table);
	add_plural(out, count_rows(ledger_of(r)), "row", "rows");
	if (c->pending > 0)
		buf_printf(out, ", of which %" PRIu64 " not published yet", c->pending);
	buf_add_char(out, '\n');
	add_topics(r, out);
	buf_add_char(out, '\n');
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++)
		add_kind(r, k, out);
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++)
		add_cases(r, k, out);
	buf_add_char(out, '\n');
	add_notes(r, out);
	buf_add_str(out, compare_is_clean(c, &r->rules) ? "clean\n" : "NOT clean\n");
}

/* ---- JSON -------------------------------------------------------------------------------------------------------- */

static void add_member(struct buf *out, const char *name, struct slice value)
{
	buf_printf(out, "\"%s\":", name);
	if (value.ptr)
		buf_add_json(out, value);
	else
		buf_add_str(out, "null");
}

static void add_json_case(const struct verify_report *r, const struct verify_case *c, struct buf *out)
{
	buf_add_char(out, '{');
	add_member(out, "id", id_of(r, c));
	if (c->entity != WORDS_NONE) {
		buf_add_char(out, ',');
		add_member(out, "entity", words_get(&ledger_of(r)->entities, c->entity));
	}
	if (c->topic != WORDS_NONE) {
		buf_add_char(out, ',');
		add_member(out, "topic", words_get(&ledger_of(r)->topics, c->topic));
	}
	if (c->offset >= 0)
		buf_printf(out, ",\"partition\":%" PRId32 ",\"offset\":%" PRId64, c->partition, c->offset);
	if (c->behind != WORDS_NONE) {
		buf_add_char(out, ',');
		add_member(out, "behind", words_get(&ledger_of(r)->ids, c->behind));
	}
	buf_add_char(out, '}');
}

static void add_json_kind(const struct verify_report *r, enum verify_kind kind, struct buf *out)
{
	const struct verify_found *f = &r->comparison->found[kind];

	buf_printf(out, ",\"%s\":{\"count\":%" PRIu64 ",\"violation\":%s,\"first\":[", verify_kind_name(kind), f->count,
		   f->count > 0 && verify_kind_judged(kind, &r->rules) ? "true" : "false");
	for (uint32_t i = 0; i < f->n_cases; i++) {
		if (i > 0)
			buf_add_char(out, ',');
		add_json_case(r, &f->cases[i], out);
	}
	buf_add_str(out, "]}");
}

static void add_json_topics(const struct verify_report *r, struct buf *out)
{
	buf_add_str(out, ",\"topics\":[");
	for (uint32_t i = 0; i < ledger_of(r)->topics.count; i++) {
		buf_add_str(out, i ? ",{" : "{");
		add_member(out, "topic", words_get(&ledger_of(r)->topics, i));
		buf_printf(out, ",\"partitions\":%" PRId32 ",\"records\":%" PRIu64 ",\"deleted\":%" PRIu64 "}",
			   r->topics[i].partitions, r->topics[i].records, r->topics[i].missing);
	}
	buf_add_char(out, ']');
}

void report_write_json(const struct verify_report *r, struct buf *out)
{
	const struct comparison *c = r->comparison;

	buf_printf(out, "{\"clean\":%s,", compare_is_clean(c, &r->rules) ? "true" : "false");
	add_member(out, "outbox", slice_of(r->outbox));
	buf_add_char(out, ',');
	add_member(out, "table", slice_of(r->table));
	buf_printf(out, ",\"rows\":%" PRIu64 ",\"pending\":%" PRIu64 ",\"same_id\":%" PRIu64 ",\"records\":%" PRIu64,
		   count_rows(ledger_of(r)), c->pending, ledger_of(r)->repeated, c->records);
	add_json_topics(r, out);
	for (enum verify_kind k = 0; k < VERIFY_KINDS; k++)
		add_json_kind(r, k, out);
	buf_add_str(out, "}\n");
}
