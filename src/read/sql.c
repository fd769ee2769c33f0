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

char *sql_for_table(const char *sql, const struct table *t, const struct outbox_config *settings, bool ordered, int outbox)
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
	const struct table_column *lane = &t->columns[ordered ? FIELD_ENTITY : FIELD_ID];
	const struct {
		const char *name, *text;
	} names[] = {
		{ "table", t->name },
		{ "key", t->columns[FIELD_ENTITY].quoted },
		{ "key_type", t->columns[FIELD_ENTITY].type },
		{ "id", t->columns[FIELD_ID].quoted },
		{ "id_type", t->columns[FIELD_ID].type },
		{ "ids", ids },
		{ "order", t->order.quoted },
		{ "order_type", t->order.type },
		{ "pending", pending },
		{ "unsettled", pending },
		{ "settle", settling.settle },
		{ "gone", settling.gone },
		{ "archived", settling.archived },
		{ "settle_begin", settling.begin },
		{ "settle_end", settling.end },
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

	buf_init(&out, SQL_CEILING);
	while (*sql) {
		const char *end = *sql == '{' ? strchr(sql, '}') : NULL;
		size_t i = 0, len = end ? (size_t)(end - sql - 1) : 0;

		/* '{}' is an empty array of PostgreSQL, not a name. */
		if (len == 0) {
			buf_add_char(&out, *sql++);
			continue;
		}
		while (i < ARRAY_SIZE(names) && !slice_equal(slice_of(names[i].name), (struct slice){ sql + 1, len }))
			i++;
		if (i == ARRAY_SIZE(names))
			abort();
		buf_add_str(&out, names[i].text);
		sql = end + 1;
	}
	return buf_take(&out);
}
