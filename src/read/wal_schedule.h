/* Scheduled rows with the reader `wal`. The log shows a row when it is committed, and shows neither that it was
 * cancelled nor that it was rescheduled: so of rows with a time the truth is the table. The log passes over them, and
 * the leader looks into the table when the next one is due, and when the log says that something about schedules has
 * changed.
 *
 * What is due is parked (read/wal_parking.h): copied to postrider.parked, and published from there like what a sink
 * refused, with everything of its entity that comes later behind it. So it takes the entity's own worker, in one
 * order with the rest.
 *
 * Belongs to the leader. Only where published rows are deleted: of rows that stay nobody could tell which are still
 * to come. */
#ifndef POSTRIDER_READ_WAL_SCHEDULE_H
#define POSTRIDER_READ_WAL_SCHEDULE_H

#include <libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

#include "read/wal_page.h"
#include "read/wal_parking.h"
#include "read/reader.h"

/* $1 rows. Rows that are parked already are still in the table. */
#define WAL_SCHEDULE_SQL_READ                                                                                   \
	"SELECT {fields} FROM ({if_scheduled}SELECT o.* FROM {table} o WHERE {due}"                             \
	"   AND (coalesce(o.{key}::text, ''), o.{id}::text) NOT IN ("                                           \
	"     SELECT p.entity, p.row_id FROM postrider.parked p WHERE p.outbox = {outbox} AND NOT p.is_message)" \
	"   ORDER BY o.{scheduled} LIMIT $1::int{else}SELECT o.* FROM {table} o LIMIT 0 * $1::int{end}) o ORDER BY o.{order}"

struct wal_schedule {
	const struct reader_env *env;
	int64_t look_ms;                /* when to look into the table next */
	int64_t looked_ms;              /* when that was done last */
	bool full;                      /* the last look brought as much as it may */
	struct wal_page page;
	PGresult *rows;                 /* due, and to be parked by the next round; NULL: none */
	uint32_t outstanding;           /* rows that were parked and are not published, or fewer */
};

void wal_schedule_init(struct wal_schedule *s, const struct reader_env *env);
void wal_schedule_release(struct wal_schedule *s);

/* ERROR_CONFIG where the settings leave no way to keep to schedules. */
bool wal_schedule_is_possible(const struct outbox_config *o, const struct table *t, struct error *err);

/* When to look; CLOCK_NEVER while that has to wait. `told`: the log says that schedules have changed. */
int64_t wal_schedule_look_ms(const struct wal_schedule *s, bool told);
uint32_t wal_schedule_rows(const struct wal_schedule *s);
/* The answer to a look: due rows as text, and when the next one is due. Their entities are parked from now on. */
bool wal_schedule_take(struct wal_schedule *s, struct parking *parking, const PGresult *res, struct error *err);
void wal_schedule_take_next(struct wal_schedule *s, const PGresult *res, int64_t now_ms);
/* The rows are in postrider.parked. */
void wal_schedule_parked(struct wal_schedule *s, struct parking *parking, int64_t now_ms);
/* So many were published from there, of whatever kind. */
void wal_schedule_published(struct wal_schedule *s, uint32_t n);

/* The entity of a row, as it is called among those that are parked. */
struct slice wal_schedule_entity(const PGresult *rows, int row);

#endif
