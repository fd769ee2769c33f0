#include "read/sql.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "pg/install.h"

#define SQL_CEILING ((size_t)1 << 20)

/* "f0, f1, …": as many as the select list has. */
static char *aliases_of(const struct table *t)
{
	struct buf b;

	buf_init(&b, SQL_CEILING);
	for (size_t i = 0; i < FIELD_EXTRA + t->n_extra; i++)
		buf_printf(&b, "%sf%zu", i > 0 ? ", " : "", i);
	return buf_take(&b);
}

/* The name of a field of the table, for what is kept outside of it: as the settings call it, or a column's own. */
static const char *field_name(const struct table *t, size_t field)
{
	return field < FIELD_EXTRA ? table_mappings[field].key : t->extra[field - FIELD_EXTRA].name;
}

static char *literals_of_fields(const struct table *t, const char *before, const char *after)
{
	struct buf b;

	buf_init(&b, SQL_CEILING);
	for (size_t i = 0; i < FIELD_EXTRA + t->n_extra; i++) {
		_cleanup_(mem_freep) char *name = install_literal(field_name(t, i));

		buf_printf(&b, "%s%s%s%s", i > 0 ? ", " : "", before, name, after);
	}
	return buf_take(&b);
}

char *sql_shard_of(const struct outbox_config *settings, const char *key, const char *id)
{
	long long mask = (long long)settings->shards.count - 1;

	return settings->shards.key == SHARD_KEY_ID ? mem_printf("(%s::bigint & %lld)", id, mask) :
						      mem_printf("(hashtextextended(%s::text, 0) & %lld)", key, mask);
}

/* What becomes of a row when it is published: see sql.h. */
struct settling {
	char *settle, *archived, *begin, *end;
	const char *gone;
};

static void settling_release(struct settling *s)
{
	free(s->settle);
	free(s->archived);
	free(s->begin);
	free(s->end);
}

static struct settling settling_of(const struct table *t)
{
	_cleanup_(mem_freep) char *insert = NULL;

	if (!t->archive)
		return (struct settling){
			.settle = t->published_at.name ?
				mem_printf("UPDATE %s o SET %s = now()", t->name, t->published_at.quoted) :
				mem_printf("DELETE FROM %s o", t->name),
			.gone = "1",
			.archived = mem_strdup(""),
			.begin = mem_strdup(""),
			.end = mem_strdup(""),
		};
	insert = mem_printf("INSERT INTO %s (%s, published_at) SELECT %s, now() FROM gone", t->archive, t->archive_columns,
			    t->archive_columns);
	return (struct settling){
		.settle = mem_printf("DELETE FROM %s o", t->name),
		.gone = "o.*",
		.archived = mem_printf(", archived AS (%s)", insert),
		.begin = mem_strdup("WITH gone AS ("),
		.end = mem_printf(" RETURNING o.*) %s", insert),
	};
}

struct sql_name {
	const char *name, *text;
};

static const char *text_of(const struct sql_name *names, size_t n, struct slice name)
{
	for (size_t i = 0; i < n; i++)
		if (slice_is(name, names[i].name))
			return names[i].text;
	abort();
}

/* True when the name is not to be replaced, but begins or ends a part that only some tables have. */
static bool is_section(struct slice name, const struct table *t, bool untimed, bool *shown)
{
	bool scheduled = t->scheduled.name != NULL;

	if (slice_is(name, "if_scheduled"))
		*shown = scheduled && !untimed;
	else if (slice_is(name, "else"))
		*shown = !scheduled || untimed;
	else if (slice_is(name, "if_untimed"))
		*shown = untimed;
	else if (slice_is(name, "end"))
		*shown = true;
	else
		return false;
	return true;
}

/* A test that opens the way to an index of such rows; or, where the one that is wanted is not there, one that opens
 * none: the planner would take another, and sort all that is pending. */
static char *has_no_time(const struct table *t, enum table_partial wanted, const char *pending)
{
	if (!t->scheduled.name)
		return mem_strdup(pending);
	return mem_printf(t->partial[wanted] ? "%s AND o.%s IS NULL" :
					       "%s AND CASE WHEN o.%s IS NULL THEN true ELSE false END", pending,
			  t->scheduled.quoted);
}

static char *make(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox,
		  bool untimed)
{
	_cleanup_(mem_freep) char *oid = mem_printf("%u", t->oid);
	_cleanup_(mem_freep) char *toast = mem_printf("%u", t->toast_oid);
	_cleanup_(mem_freep) char *number = mem_printf("%d", outbox);
	/* A percentage that gives some twenty pages. A partitioned table has no size of its own. */
	_cleanup_(mem_freep) char *sample = t->partitioned ?
		mem_strdup("0.1") :
		mem_printf("least(100, 100.0 * 20 * 8192 / (pg_relation_size(%u) + 1))", t->oid);
	/* Ids come back as they were read: in their own type, or as text where they were cast to it. */
	_cleanup_(mem_freep) char *ids = mem_printf(
		table_is_uncast(&t->columns[FIELD_ID], FIELD_ID) ? "%s[]" : "text[]::%s[]", t->columns[FIELD_ID].type);
	bool order_is_uncast = table_is_uncast(&t->order, FIELD_ID);
	_cleanup_(mem_freep) char *orders = mem_printf(order_is_uncast ? "%s[]" : "text[]::%s[]", t->order.type);
	_cleanup_(mem_freep) char *aliases = aliases_of(t);
	_cleanup_(mem_freep) char *key_of_row = mem_printf("o.%s", t->columns[FIELD_ENTITY].quoted);
	_cleanup_(mem_freep) char *id_of_row = mem_printf("o.%s", t->columns[FIELD_ID].quoted);
	_cleanup_(mem_freep) char *shard = sql_shard_of(settings, key_of_row, id_of_row);
	_cleanup_(mem_freep) char *shard_of_retry = sql_shard_of(settings, "r.entity", "r.entity");
	_cleanup_(mem_freep) char *parked_names = literals_of_fields(t, "", "");
	_cleanup_(mem_freep) char *parked_fields = literals_of_fields(t, "p.fields[array_position(p.names, ", ")]");
	_cleanup_(mem_freep) char *pending = table_pending(t);
	_cleanup_(settling_release) struct settling settling = settling_of(t);
	/* A statement's own time is never later than the clock, so no row is early; and it does not stand still in a
	 * transaction that lasts, as now() does. */
	_cleanup_(mem_freep) char *due = t->scheduled.name ?
		mem_printf("%s AND o.%s <= pg_catalog.statement_timestamp()", pending, t->scheduled.quoted) : mem_strdup("false");
	_cleanup_(mem_freep) char *at_once = has_no_time(t, PARTIAL_ENTITY, pending);
	_cleanup_(mem_freep) char *at_once_in_order = has_no_time(t, PARTIAL_ORDER, pending);
	_cleanup_(mem_freep) char *at_once_of_shard = has_no_time(t, PARTIAL_SHARD, pending);
	_cleanup_(mem_freep) char *ready = t->scheduled.name ?
		mem_printf("%s AND (o.%s <= pg_catalog.statement_timestamp()) IS NOT FALSE", pending, t->scheduled.quoted) :
		mem_strdup(pending);
	const struct table_column *lane = &t->columns[ordered ? FIELD_ENTITY : FIELD_ID];
	const struct sql_name names[] = {
		{ "table", t->name },
		{ "key", t->columns[FIELD_ENTITY].quoted },
		{ "key_type", t->columns[FIELD_ENTITY].type },
		{ "id", t->columns[FIELD_ID].quoted },
		{ "id_type", t->columns[FIELD_ID].type },
		{ "ids", ids },
		{ "order", t->order.quoted },
		{ "order_type", t->order.type },
		{ "pending", pending },
		{ "unsettled", at_once_in_order },
		{ "settle", settling.settle },
		{ "gone", settling.gone },
		{ "archived", settling.archived },
		{ "settle_begin", settling.begin },
		{ "settle_end", settling.end },
		{ "at_once", at_once },
		{ "at_once_in_order", at_once_in_order },
		{ "at_once_of_shard", at_once_of_shard },
		{ "due", due },
		{ "ready", ready },
		{ "scheduled", t->scheduled.name ? t->scheduled.quoted : "" },
		{ "payload", t->columns[FIELD_PAYLOAD].quoted },
		{ "fields", t->select_list },
		{ "oid", oid },
		{ "toast", toast },
		{ "outbox", number },
		{ "sample", sample },
		{ "lane", lane->quoted },
		{ "lane_type", lane->type },
		{ "orders", orders },
		{ "order_cast", order_is_uncast ? t->order.type : "text" },
		{ "aliases", aliases },
		{ "parked_names", parked_names },
		{ "parked_fields", parked_fields },
		{ "shard", shard },
		{ "shard_of_retry", shard_of_retry },
	};
	struct buf out;
	bool shown = true;

	buf_init(&out, SQL_CEILING);
	while (*sql) {
		const char *end = *sql == '{' ? strchr(sql, '}') : NULL;
		struct slice name = { sql + 1, end ? (size_t)(end - sql - 1) : 0 };

		/* '{}' is an empty array of PostgreSQL, not a name. */
		if (name.len == 0) {
			if (shown)
				buf_add_char(&out, *sql);
			sql++;
			continue;
		}
		if (!is_section(name, t, untimed, &shown) && shown)
			buf_add_str(&out, text_of(names, ARRAY_SIZE(names), name));
		sql = end + 1;
	}
	return buf_take(&out);
}

char *sql_for_table(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox)
{
	return make(sql, t, settings, ordered, outbox, false);
}

char *sql_for_untimed_table(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox)
{
	bool differs = strstr(sql, "{if_scheduled}") || strstr(sql, "{if_untimed}");

	return t->scheduled.name && differs ? make(sql, t, settings, ordered, outbox, true) : NULL;
}
