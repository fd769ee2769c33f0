#include "read/sql.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"

#define SQL_CEILING ((size_t)1 << 20)

char *sql_for_table(const char *sql, const struct table *t, int outbox)
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
		{ "payload", t->columns[FIELD_PAYLOAD].quoted },
		{ "fields", t->select_list },
		{ "oid", oid },
		{ "toast", toast },
		{ "outbox", number },
		{ "sample", sample },
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
