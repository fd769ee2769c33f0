/* Frames of the log, as the server sends them, through the flow to the queues of two workers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <arpa/inet.h>
#include <endian.h>
#include <string.h>

#include "base/macros.h"
#include "pg/array.h"
#include "read/wal_flow.h"
#include "relay/field.h"

#define TABLE_OID 16385

enum { WORKERS = 2 };

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* --- what the server sends ---------------------------------------------------------------------------------------- */

static void add_u8(struct buf *b, uint8_t value)
{
	buf_add(b, &value, 1);
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

static void add_u64(struct buf *b, uint64_t value)
{
	value = htobe64(value);
	buf_add(b, &value, sizeof(value));
}

static void add_name(struct buf *b, const char *name)
{
	buf_add(b, name, strlen(name) + 1);
}

static void add_value(struct buf *b, const char *value)
{
	add_u8(b, 't');
	add_u32(b, (uint32_t)strlen(value));
	buf_add(b, value, strlen(value));
}

/* --- a leader without a thread -------------------------------------------------------------------------------------- */

struct scene {
	struct table table;
	struct outbox_config outbox;
	struct reader_env env;
	struct pool pool;
	struct flow flow;
	struct parking parking;
	struct buf message;
	uint64_t lsn;
};

static void scene_open(struct scene *s)
{
	static const struct tally_place from = { .confirmed_lsn = 1000 };

	memset(s, 0, sizeof(*s));
	s->table = (struct table){
		.name = text("public.outbox"),
		.oid = TABLE_OID,
		.columns = {
			[FIELD_ID] = { .name = text("id"), .type = text("bigint") },
			[FIELD_ENTITY] = { .name = text("entity_id"), .type = text("text") },
			[FIELD_PAYLOAD] = { .name = text("payload"), .type = text("json") },
		},
	};
	s->outbox = (struct outbox_config){
		.name = text("orders"),
		.workers = WORKERS,
		.batch_max = 100,
		.in_flight_bytes = 1 << 20,
		.wal.messages = true,
	};
	s->env = (struct reader_env){ .outbox = &s->outbox, .table = &s->table };
	s->pool.env = s->env;
	s->pool.n_channels = WORKERS;
	for (uint32_t i = 0; i < WORKERS; i++) {
		channel_init(&s->pool.channels[i]);
		s->pool.channels[i].state = CHANNEL_IDLE;
	}
	flow_init(&s->flow, &s->env, &from);
	parking_init(&s->parking);
	buf_init(&s->message, 1 << 20);
	s->lsn = 2000;
}

static void scene_close(struct scene *s)
{
	for (uint32_t i = 0; i < WORKERS; i++)
		channel_release(&s->pool.channels[i]);
	flow_release(&s->flow);
	parking_release(&s->parking);
	buf_release(&s->message);
}

static bool take(struct scene *s, struct error *err)
{
	const struct wal_frame frame = { .kind = WAL_DATA, .data = { s->message.data, s->message.len } };

	return flow_take(&s->flow, &frame, err);
}

static void must_take(struct scene *s)
{
	struct error err;

	assert_true(take(s, &err));
}

static void begin(struct scene *s)
{
	buf_clear(&s->message);
	add_u8(&s->message, 'B');
	add_u64(&s->message, s->lsn);
	add_u64(&s->message, 0);
	add_u32(&s->message, 770);
	must_take(s);
}

static void commit(struct scene *s)
{
	buf_clear(&s->message);
	add_u8(&s->message, 'C');
	add_u8(&s->message, 0);
	add_u64(&s->message, s->lsn);
	add_u64(&s->message, s->lsn + 10);
	add_u64(&s->message, 0);
	must_take(s);
	s->lsn += 100;
}

static void write_relation(struct scene *s, uint32_t oid, uint16_t n_columns)
{
	static const char *const names[] = { "id", "entity_id", "payload", "due_at" };

	buf_clear(&s->message);
	add_u8(&s->message, 'R');
	add_u32(&s->message, oid);
	add_name(&s->message, "public");
	add_name(&s->message, "outbox");
	add_u8(&s->message, 'd');
	add_u16(&s->message, n_columns);
	for (size_t i = 0; i < n_columns; i++) {
		add_u8(&s->message, 0);
		add_name(&s->message, names[i]);
		add_u32(&s->message, TYPE_TEXT);
		add_u32(&s->message, UINT32_MAX);
	}
}

static void relation(struct scene *s, uint32_t oid)
{
	write_relation(s, oid, 3);
	must_take(s);
}

static void write_insert(struct scene *s, uint32_t oid, const char *id, const char *entity)
{
	buf_clear(&s->message);
	add_u8(&s->message, 'I');
	add_u32(&s->message, oid);
	add_u8(&s->message, 'N');
	add_u16(&s->message, 3);
	add_value(&s->message, id);
	add_value(&s->message, entity);
	add_value(&s->message, "{}");
}

static void insert(struct scene *s, const char *id, const char *entity)
{
	write_insert(s, TABLE_OID, id, entity);
	must_take(s);
}

/* A row of the table with a column of schedules; `due` may be NULL. */
static void insert_due(struct scene *s, const char *id, const char *entity, const char *due)
{
	buf_clear(&s->message);
	add_u8(&s->message, 'I');
	add_u32(&s->message, TABLE_OID);
	add_u8(&s->message, 'N');
	add_u16(&s->message, 4);
	add_value(&s->message, id);
	add_value(&s->message, entity);
	add_value(&s->message, "{}");
	if (due)
		add_value(&s->message, due);
	else
		add_u8(&s->message, 'n');
	must_take(s);
}

static void message(struct scene *s, const char *content)
{
	buf_clear(&s->message);
	add_u8(&s->message, 'M');
	add_u8(&s->message, 1);
	add_u64(&s->message, s->lsn);
	add_name(&s->message, "postrider");
	add_u32(&s->message, (uint32_t)strlen(content));
	buf_add(&s->message, content, strlen(content));
	must_take(s);
}

static uint32_t queued(const struct scene *s)
{
	return s->pool.channels[0].queued + s->pool.channels[1].queued;
}

static void expect_to_park(const struct scene *s, uint32_t i, const char *id)
{
	const PGresult *rows;
	int row;

	flow_find(&s->flow, s->flow.to_park[i], &rows, &row);
	assert_true(slice_is(field_raw(rows, row, FIELD_ID), id));
}

/* --- tests ---------------------------------------------------------------------------------------------------------- */

static void rows_are_dealt_out_and_kept_until_they_are_settled(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	insert(&s, "1", "a");
	insert(&s, "2", "b");
	insert(&s, "3", "a");
	commit(&s);
	flow_deal(&s.flow, &s.pool, &s.parking);
	assert_int_equal(queued(&s), 3);
	assert_int_equal(s.flow.rows, 3);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 1000);
	/* Out of order, and from the numbers that the rows carry. */
	flow_settled(&s.flow, (const uint64_t[]){ flow_number(&s.flow, 2), flow_number(&s.flow, 0) }, 2);
	assert_int_equal(s.flow.n_pages, 1);
	flow_settled(&s.flow, (const uint64_t[]){ flow_number(&s.flow, 1) }, 1);
	assert_int_equal(s.flow.n_pages, 0);
	assert_int_equal(s.flow.rows, 0);
	assert_int_equal(s.flow.bytes, 0);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 2010);
	scene_close(&s);
}

static void what_stands_behind_a_refused_row_is_parked_with_it(void **state _unused_)
{
	struct scene s;
	struct parked *parked;

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	insert(&s, "1", "a");
	insert(&s, "2", "a");
	insert(&s, "3", "b");
	flow_deal(&s.flow, &s.pool, &s.parking);
	insert(&s, "4", "a");
	flow_deal(&s.flow, &s.pool, &s.parking);
	/* Row 1 has passed, row 2 is refused. */
	flow_settled(&s.flow, (const uint64_t[]){ 0 }, 1);
	parked = parking_add(&s.parking, slice_of("a"));
	flow_park_from(&s.flow, 1, slice_of("a"), parked);
	/* The same is said again when its settle failed. */
	flow_park_from(&s.flow, 1, slice_of("a"), parked);
	assert_int_equal(s.flow.n_to_park, 2);
	/* Another one comes: it is not dealt out at all. */
	insert(&s, "5", "a");
	insert(&s, "6", "c");
	commit(&s);
	flow_deal(&s.flow, &s.pool, &s.parking);
	assert_int_equal(queued(&s), 5);
	assert_int_equal(s.flow.n_to_park, 3);
	assert_int_equal(parked->leaving_log, 3);
	expect_to_park(&s, 0, "2");
	expect_to_park(&s, 1, "4");
	expect_to_park(&s, 2, "5");
	flow_parked(&s.flow, 3);
	assert_int_equal(s.flow.n_to_park, 0);
	flow_settled(&s.flow, (const uint64_t[]){ 2, 5 }, 2);
	assert_int_equal(s.flow.n_pages, 0);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 2010);
	scene_close(&s);
}

static void rows_with_a_time_are_left_to_the_table(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	s.table.scheduled = (struct table_column){ .name = text("due_at"), .type = text("timestamp with time zone") };
	begin(&s);
	write_relation(&s, TABLE_OID, 4);
	must_take(&s);
	insert_due(&s, "1", "a", "2027-01-01 00:00:00+00");
	insert_due(&s, "2", "a", NULL);
	insert_due(&s, "3", "b", "2027-01-01 00:00:00+00");
	commit(&s);
	flow_deal(&s.flow, &s.pool, &s.parking);
	assert_int_equal(queued(&s), 1);
	/* Its transaction is to be waited for, once. */
	assert_int_equal(s.flow.n_rescheduled, 1);
	assert_int_equal(s.flow.rescheduled[0], 770);
	flow_settled(&s.flow, (const uint64_t[]){ 1 }, 1);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 2010);
	scene_close(&s);
}

static void a_log_without_the_times_is_refused(void **state _unused_)
{
	struct scene s;
	struct error err = { 0 };

	scene_open(&s);
	s.table.scheduled = (struct table_column){ .name = text("due_at"), .type = text("timestamp with time zone") };
	begin(&s);
	write_relation(&s, TABLE_OID, 3);
	assert_false(take(&s, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	assert_non_null(strstr(err.message, "no column due_at"));
	scene_close(&s);
}

static void rows_of_other_tables_are_none_of_ours(void **state _unused_)
{
	struct scene s;
	struct error err = { 0 };

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	relation(&s, TABLE_OID + 1);
	write_insert(&s, TABLE_OID + 1, "1", "a");
	must_take(&s);
	assert_int_equal(s.flow.page.n_rows, 0);
	/* But a partition that comes under its own name would be lost without a word. */
	s.table.partitioned = true;
	assert_false(take(&s, &err));
	assert_int_equal(err.kind, ERROR_CONFIG);
	scene_close(&s);
}

static void a_message_that_makes_no_event_does_not_hold_the_slot(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	insert(&s, "1", "a");
	message(&s, "{\"entity_id\":\"a\",\"payload\":{\"n\":1}}");
	message(&s, "not at all");
	message(&s, "{\"outbox\":\"others\"}");
	insert(&s, "2", "a");
	commit(&s);
	flow_deal(&s.flow, &s.pool, &s.parking);
	assert_int_equal(queued(&s), 3);
	assert_int_equal(s.flow.n_refused, 1);
	assert_true(slice_is(s.flow.refused[0].content, "not at all"));
	flow_settled(&s.flow, (const uint64_t[]){ 0, 1, 4 }, 3);
	assert_int_equal(s.flow.n_pages, 0);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 1000);
	flow_refused_settled(&s.flow, 1);
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 2010);
	scene_close(&s);
}

static void it_is_full_when_workers_have_enough(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	for (int page = 0; page < WORKERS; page++) {
		for (int i = 0; i < 100; i++) {
			assert_false(flow_is_full(&s.flow));
			insert(&s, "1", "a");
		}
		assert_true(flow_page_is_full(&s.flow));
		flow_deal(&s.flow, &s.pool, &s.parking);
	}
	assert_true(flow_is_full(&s.flow));
	flow_settled(&s.flow, (const uint64_t[]){ 100 }, 1);
	assert_false(flow_is_full(&s.flow));
	scene_close(&s);
}

/* The log is confirmed up to where the server says there is nothing for us, but not past what is on its way. */
static void keepalives_confirm_an_idle_log(void **state _unused_)
{
	const struct wal_frame keepalive = { .kind = WAL_KEEPALIVE, .end_lsn = 5000 };
	struct scene s;
	struct error err;

	scene_open(&s);
	begin(&s);
	relation(&s, TABLE_OID);
	insert(&s, "1", "a");
	assert_true(flow_take(&s.flow, &keepalive, &err));
	commit(&s);
	assert_true(flow_take(&s.flow, &keepalive, &err));
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 1000);
	flow_deal(&s.flow, &s.pool, &s.parking);
	flow_settled(&s.flow, (const uint64_t[]){ 0 }, 1);
	assert_true(flow_take(&s.flow, &keepalive, &err));
	assert_int_equal(s.flow.tally.known.confirmed_lsn, 5000);
	scene_close(&s);
}

static void an_address_says_where_a_row_comes_from(void **state _unused_)
{
	enum origin origin;

	assert_int_equal(flow_origin(SLICE_LITERAL(""), &origin), 0);
	assert_int_equal(origin, ORIGIN_LOG);
	assert_int_equal(flow_origin(SLICE_LITERAL("b4711"), &origin), 4711);
	assert_int_equal(origin, ORIGIN_BACKLOG);
	assert_int_equal(flow_origin(SLICE_LITERAL("m"), &origin), 0);
	assert_int_equal(origin, ORIGIN_MESSAGE);
	assert_int_equal(flow_origin(SLICE_LITERAL("p-4611686018427387887"), &origin), -4611686018427387887);
	assert_int_equal(origin, ORIGIN_PARKED);
	assert_int_equal(flow_origin(SLICE_LITERAL("q9000000000"), &origin), 9000000000);
	assert_int_equal(origin, ORIGIN_PARKED_MESSAGE);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(rows_are_dealt_out_and_kept_until_they_are_settled),
		cmocka_unit_test(what_stands_behind_a_refused_row_is_parked_with_it),
		cmocka_unit_test(rows_with_a_time_are_left_to_the_table),
		cmocka_unit_test(a_log_without_the_times_is_refused),
		cmocka_unit_test(rows_of_other_tables_are_none_of_ours),
		cmocka_unit_test(a_message_that_makes_no_event_does_not_hold_the_slot),
		cmocka_unit_test(it_is_full_when_workers_have_enough),
		cmocka_unit_test(keepalives_confirm_an_idle_log),
		cmocka_unit_test(an_address_says_where_a_row_comes_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
