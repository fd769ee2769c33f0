#include "read/wal_flow.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "pg/array.h"
#include "relay/field.h"

#define PREFIX "postrider"              /* of logical messages that are events */
#define SCHEDULE_PREFIX "postrider.schedule"    /* of those that tell that rows were rescheduled */
#define PART_MASK 0x7fffffffu           /* a row carries the low bits of its event's number */

enum { REFUSED_MAX = 16 };              /* messages that wait to be put aside */

void flow_init(struct flow *f, const struct reader_env *env, const struct tally_place *from)
{
	*f = (struct flow){ .env = env };
	tally_init(&f->tally, from);
	f->message = mem_new(struct pgoutput);
	wal_page_init(&f->page, env->table);
}

static void page_release(struct flow *f, struct flow_page *page)
{
	f->bytes -= page->bytes;
	shared_rows_release(page->rows);
	free(page->fates);
}

void flow_release(struct flow *f)
{
	if (!f->message)
		return;
	for (uint32_t i = 0; i < f->n_pages; i++)
		page_release(f, &f->pages[i]);
	for (uint32_t i = 0; i < f->n_refused; i++)
		free((char *)f->refused[i].content.ptr);
	free(f->refused);
	free(f->pages);
	free(f->to_park);
	free(f->rescheduled);
	free(f->message);
	wal_page_release(&f->page);
	wal_mapping_release(&f->mapping);
	tally_release(&f->tally);
	*f = (struct flow){ 0 };
}

bool flow_page_is_full(const struct flow *f)
{
	const struct outbox_config *o = f->env->outbox;

	return f->page.n_rows >= (uint32_t)o->batch_max || f->page.bytes >= (size_t)o->in_flight_bytes / 2;
}

/* Half of what all workers may hold: which of them gets it is not up to us. The tally's span ends everything: when one event
 * does not get settled, those behind it that are do not make room. */
bool flow_is_full(const struct flow *f)
{
	const struct outbox_config *o = f->env->outbox;

	return f->rows + f->page.n_rows >= (uint64_t)o->batch_max * (uint64_t)o->workers ||
	       f->bytes + f->page.bytes >= (size_t)o->in_flight_bytes * (size_t)o->workers / 2 ||
	       f->n_refused >= REFUSED_MAX || tally_span(&f->tally) + 2 >= TALLY_SPAN || flow_page_is_full(f);
}

/* --- from frames to pages --------------------------------------------------------------------------------------- */

static int32_t part_of(uint64_t number)
{
	return (int32_t)(number & PART_MASK);
}

static bool number_event(struct flow *f, uint64_t *ret)
{
	if (!tally_event(&f->tally, ret))
		return false;
	if (f->page.n_rows == 0)
		f->page_first = *ret;
	f->page_last = *ret;
	return true;
}

/* Of the row that was added last. */
static void set_address(struct flow *f, const char *address, int len)
{
	PQsetvalue(f->page.rows, (int)f->page.n_rows - 1, f->page.n_fields + 1, (char *)address, len);
}

static void note_rescheduled(struct flow *f)
{
	if (f->n_rescheduled > 0 && f->rescheduled[f->n_rescheduled - 1] == f->xid)
		return;
	f->rescheduled = mem_one_more(f->rescheduled, f->n_rescheduled, &f->rescheduled_room, sizeof(*f->rescheduled));
	f->rescheduled[f->n_rescheduled++] = f->xid;
}

/* A row with a time is published from the table: see read/wal_schedule.h. Nothing of it is left in the log. */
static bool pass_over_scheduled(struct flow *f, const struct pgoutput_insert *insert)
{
	uint64_t number;

	if (f->mapping.scheduled < 0 || (uint32_t)f->mapping.scheduled >= insert->n_values ||
	    !insert->values[f->mapping.scheduled].ptr)
		return false;
	note_rescheduled(f);
	if (number_event(f, &number)) {
		tally_mark(&f->tally, number);
		tally_advance(&f->tally);
	}
	return true;
}

static bool take_insert(struct flow *f, const struct pgoutput_insert *insert, struct error *err)
{
	const struct table *t = f->env->table;
	uint64_t number;

	/* A publication of the user's own may have other tables too. A partition is not one of these. */
	if (insert->relation != t->oid && !t->partitioned)
		return true;
	if (insert->relation != t->oid) {
		error_set(err, ERROR_CONFIG, "the publication shows partitions of %s instead of the table", t->name);
		return error_hint(err, "run `postrider init`, which sets publish_via_partition_root");
	}
	if (insert->relation != f->mapping.relation)
		return error_set(err, ERROR_BUG, "a row of %s came before its description", t->name);
	return pass_over_scheduled(f, insert) || !number_event(f, &number) ||
	       wal_page_add(&f->page, &f->mapping, insert, part_of(number), err);
}

/* Its number is taken, so that the slot does not wait for it, and its content is kept until it is in a table. */
static void refuse(struct flow *f, uint64_t number, const struct pgoutput_emitted *m, const struct error *why)
{
	struct flow_refused *r;
	char *content = mem_new_array(char, m->content.len + 1);

	f->refused = mem_resize(f->refused, (f->n_refused + 1) * sizeof(*f->refused));
	r = &f->refused[f->n_refused++];
	if (m->content.len > 0)
		memcpy(content, m->content.ptr, m->content.len);
	*r = (struct flow_refused){ .number = number, .content = { content, m->content.len }, .why = *why };
	wal_lsn_write(r->lsn, m->lsn);
	log_error("message.refused", F_STR("outbox", f->env->outbox->name), F_STR("lsn", r->lsn), F_ERROR(why));
}

static bool is_event(struct flow *f, const struct pgoutput_emitted *m)
{
	if (!f->env->outbox->wal.messages || !slice_is(m->prefix, PREFIX))
		return false;
	if (!m->transactional && !f->warned_of_messages) {
		f->warned_of_messages = true;
		log_warn("message.ignored", F_STR("outbox", f->env->outbox->name),
			 F_STR("reason", "it was not written as part of its transaction: the first argument must be true"));
	}
	return m->transactional && f->in_transaction;
}

static void take_message(struct flow *f, const struct pgoutput_emitted *m)
{
	uint64_t number;
	bool foreign = false;
	struct error why = { 0 };

	if (f->in_transaction && slice_is(m->prefix, SCHEDULE_PREFIX))
		note_rescheduled(f);
	if (!is_event(f, m) || !number_event(f, &number))
		return;
	if (!wal_page_add_message(&f->page, m->content, f->env->outbox->name, m->lsn, part_of(number), &foreign, &why))
		refuse(f, number, m, &why);
	else if (foreign)
		tally_mark(&f->tally, number);          /* the affair of another outbox */
	else
		set_address(f, (const char[]){ ORIGIN_MESSAGE }, 1);
}

static bool take_relation(struct flow *f, const struct pgoutput_relation *relation, struct error *err)
{
	/* With partitions both the table and the partition are described, though rows are said to be the table's. */
	if (relation->oid != f->env->table->oid)
		return true;
	wal_mapping_release(&f->mapping);
	return wal_mapping_make(&f->mapping, f->env->table, relation, err);
}

/* Without it rows would go out before their time. */
static bool has_schedule(const struct flow *f, struct error *err)
{
	const struct table *t = f->env->table;

	if (!t->scheduled.name || f->mapping.relation != t->oid || f->mapping.scheduled >= 0)
		return true;
	error_set(err, ERROR_CONFIG, "the log has no column %s of table %s", t->scheduled.name, t->name);
	return error_hint(err, "it was dropped or renamed, or the publication has a list of columns without it: put it"
			       " there, or set outboxes.%s.columns.scheduled_for: \"\"", outbox_path(f->env->outbox));
}

static bool take_data(struct flow *f, struct slice data, struct error *err)
{
	struct pgoutput *m = f->message;

	if (!pgoutput_decode(data, m, err))
		return false;
	switch (m->kind) {
	case PGOUTPUT_BEGIN:
		f->in_transaction = true;
		f->xid = m->begin.xid;
		tally_begin(&f->tally, m->begin.final_lsn, m->begin.xid);
		break;
	case PGOUTPUT_COMMIT:
		f->in_transaction = false;
		tally_end(&f->tally, m->commit.end_lsn);
		break;
	case PGOUTPUT_RELATION:
		return take_relation(f, &m->relation, err) && has_schedule(f, err);
	case PGOUTPUT_INSERT:
		return take_insert(f, &m->insert, err);
	case PGOUTPUT_MESSAGE:
		take_message(f, &m->message);
		break;
	case PGOUTPUT_OTHER:
		break;
	}
	return true;
}

bool flow_take(struct flow *f, const struct wal_frame *frame, struct error *err)
{
	if (frame->kind == WAL_DATA)
		return take_data(f, frame->data, err);
	if (!f->in_transaction)
		tally_pass(&f->tally, frame->end_lsn);
	return true;
}

/* --- rows from before the slot ------------------------------------------------------------------------------------ */

void flow_begin_backlog(struct flow *f)
{
	tally_begin(&f->tally, TALLY_NOWHERE, 0);
}

void flow_end_backlog(struct flow *f)
{
	tally_end(&f->tally, f->tally.known.confirmed_lsn);
}

/* The result described as the log would describe the table: so its rows take the same way. */
static bool map_result(struct flow *f, const PGresult *rows, struct error *err)
{
	struct pgoutput_relation *r = &f->message->relation;

	*r = (struct pgoutput_relation){ .oid = f->env->table->oid, .n_columns = (uint32_t)f->page.n_fields };
	for (int i = 0; i < f->page.n_fields; i++)
		r->columns[i] = (struct pgoutput_column){
			slice_of(table_column_of(f->env->table, (size_t)i)->name),
			PQftype(rows, i),
		};
	return take_relation(f, r, err);
}

bool flow_take_backlog(struct flow *f, const PGresult *rows, struct error *err)
{
	struct pgoutput_insert *insert = &f->message->insert;
	int n_fields = f->page.n_fields;

	if (!map_result(f, rows, err))
		return false;
	for (int row = 0; row < PQntuples(rows); row++) {
		char address[24];
		uint64_t number;
		int len;

		if (PQgetisnull(rows, row, FIELD_ID))
			continue;       /* somebody deleted it */
		insert->n_values = (uint32_t)n_fields;
		for (int i = 0; i < n_fields; i++)
			insert->values[i] = field_raw(rows, row, i);
		number_event(f, &number);
		if (!wal_page_add(&f->page, &f->mapping, insert, part_of(number), err))
			return false;
		len = snprintf(address, sizeof(address), "%c%s", ORIGIN_BACKLOG, PQgetvalue(rows, row, n_fields));
		set_address(f, address, len);
	}
	return true;
}

/* --- pages ---------------------------------------------------------------------------------------------------- */

static void add_to_park(struct flow *f, uint64_t number, struct parked *parked)
{
	f->to_park = mem_one_more(f->to_park, f->n_to_park, &f->to_park_room, sizeof(*f->to_park));
	f->to_park[f->n_to_park++] = number;
	parked->leaving_log++;
}

uint64_t flow_number(const struct flow *f, int32_t part)
{
	return f->tally.head + (((uint32_t)part - (uint32_t)f->tally.head) & PART_MASK);
}

/* Counted from the first of its page: the tally's head may be behind a row that is settled. */
static uint64_t number_of_row(uint64_t first, const PGresult *rows, int row)
{
	return first + (((uint32_t)field_int4(rows, row, PQnfields(rows) - 2) - (uint32_t)first) & PART_MASK);
}

/* Takes over the rows, deals those out whose entity is not parked, and keeps them until they are settled. */
static void deal(struct flow *f, struct pool *p, struct parking *parking, PGresult *rows, uint64_t first, uint64_t last,
		 size_t bytes)
{
	uint32_t n = (uint32_t)PQntuples(rows);
	bool *skips = parking->count > 0 ? mem_new_array(bool, n) : NULL;
	struct flow_page *page;

	f->pages = mem_one_more(f->pages, f->n_pages, &f->room, sizeof(*f->pages));
	page = &f->pages[f->n_pages++];
	*page = (struct flow_page){ .first = first, .last = last, .left = n, .bytes = bytes };
	page->fates = mem_new_array(uint8_t, n);
	for (uint32_t row = 0; skips && row < n; row++) {
		struct parked *parked = parking_find(parking, field_raw(rows, (int)row, FIELD_ENTITY));

		skips[row] = parked != NULL;
		if (!parked)
			continue;
		page->fates[row] = FATE_PARK;
		add_to_park(f, number_of_row(first, rows, (int)row), parked);
	}
	f->rows += n;
	f->bytes += bytes;
	p->round++;
	page->rows = pool_deal(p, rows, skips, false, NULL, 0);
	free(skips);
}

void flow_deal(struct flow *f, struct pool *p, struct parking *parking)
{
	size_t bytes = f->page.bytes;

	if (f->page.n_rows > 0)
		deal(f, p, parking, wal_page_take(&f->page), f->page_first, f->page_last, bytes);
}

/* The page that the number is in; NULL: none. */
static struct flow_page *page_of(const struct flow *f, uint64_t number)
{
	uint32_t low = 0, high = f->n_pages;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (f->pages[middle].last < number)
			low = middle + 1;
		else
			high = middle;
	}
	return low < f->n_pages && f->pages[low].first <= number ? &f->pages[low] : NULL;
}

void flow_find(const struct flow *f, uint64_t number, const PGresult **ret_rows, int *ret_row)
{
	const struct flow_page *page = page_of(f, number);

	*ret_rows = page->rows->rows;
	/* Numbers without a row only ever make the row come earlier. */
	*ret_row = MIN((int)(number - page->first), PQntuples(*ret_rows) - 1);
	while (number_of_row(page->first, *ret_rows, *ret_row) != number)
		--*ret_row;
}

void flow_park_from(struct flow *f, uint64_t number, struct slice entity, struct parked *parked)
{
	for (struct flow_page *page = page_of(f, number); page < f->pages + f->n_pages; page++)
		for (int row = 0; row < PQntuples(page->rows->rows); row++) {
			uint64_t n;

			if (page->fates[row] == FATE_PARK ||
			    !slice_equal(field_raw(page->rows->rows, row, FIELD_ENTITY), entity))
				continue;
			n = number_of_row(page->first, page->rows->rows, row);
			if (n < number || tally_is_marked(&f->tally, n))
				continue;
			page->fates[row] = FATE_PARK;
			add_to_park(f, n, parked);
		}
}

void flow_settled(struct flow *f, const uint64_t *numbers, uint32_t n)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct flow_page *page = page_of(f, numbers[i]);

		tally_mark(&f->tally, numbers[i]);
		page->left--;
		f->rows--;
	}
	for (uint32_t i = 0; i < f->n_pages; i++)
		if (f->pages[i].left == 0)
			page_release(f, &f->pages[i]);
		else
			f->pages[kept++] = f->pages[i];
	f->n_pages = kept;
	tally_advance(&f->tally);
}

void flow_refused_settled(struct flow *f, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		tally_mark(&f->tally, f->refused[i].number);
		free((char *)f->refused[i].content.ptr);
	}
	f->n_refused -= n;
	if (n > 0)
		memmove(f->refused, f->refused + n, f->n_refused * sizeof(*f->refused));
	tally_advance(&f->tally);
}

void flow_parked(struct flow *f, uint32_t n)
{
	flow_settled(f, f->to_park, n);
	f->n_to_park -= n;
	if (n > 0)
		memmove(f->to_park, f->to_park + n, f->n_to_park * sizeof(*f->to_park));
}

int64_t flow_origin(struct slice address, enum origin *ret)
{
	int64_t number = 0;

	bool negative = address.len > 1 && address.ptr[1] == '-';

	*ret = address.len > 0 ? (enum origin)address.ptr[0] : ORIGIN_LOG;
	for (size_t i = negative ? 2 : 1; i < address.len; i++)
		number = 10 * number + (address.ptr[i] - '0');
	return negative ? -number : number;
}
