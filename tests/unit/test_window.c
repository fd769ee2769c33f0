#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "relay/batch.h"
#include "relay/window.h"

/* A window, and the rows that were put into it. Rows are named "a1", "a2", "b1": the letter is the entity. Each row is a
 * batch of its own unless a test says otherwise, so that touching one that has left is seen as use after free. */
struct scene {
	struct window w;
	struct named {
		char name[8];
		struct event *ev;
	} rows[32];
	uint32_t n_rows;
	char text[256];
};

/* One letter per sink: K keeps order, S takes a single row of an entity at a time. */
static void scene_open(struct scene *s, const char *sinks)
{
	bool keeps_order[WINDOW_STAGES_MAX];

	*s = (struct scene){ 0 };
	for (size_t i = 0; sinks[i]; i++)
		keeps_order[i] = sinks[i] == 'K';
	window_init(&s->w, (uint32_t)strlen(sinks), keeps_order);
}

static void assert_empty(const struct scene *s)
{
	assert_int_equal(s->w.rows, 0);
	assert_int_equal(s->w.bytes, 0);
	assert_int_equal(s->w.orphans, 0);
	assert_int_equal(s->w.n_lanes, 0);
}

/* Whatever a test leaves behind has to be gone by now. */
static void scene_close(struct scene *s)
{
	assert_empty(s);
	window_release(&s->w);
}

static struct event *row(struct scene *s, const char *name)
{
	for (uint32_t i = s->n_rows; i-- > 0;)
		if (strcmp(s->rows[i].name, name) == 0)
			return s->rows[i].ev;
	fail_msg("no row %s", name);
	return NULL;
}

static struct event *name_row(struct scene *s, struct event *ev, const char *name, size_t len)
{
	struct named *n = &s->rows[s->n_rows++];

	assert_true(s->n_rows <= ARRAY_SIZE(s->rows) && len < sizeof(n->name));
	memcpy(n->name, name, len);
	n->ev = ev;
	ev->id = (struct slice){ n->name, len };
	ev->entity = ev->lane_key = (struct slice){ n->name, 1 };
	ev->payload = SLICE_LITERAL("payload");
	return ev;
}

static struct event *new_row(struct scene *s, const char *name)
{
	return name_row(s, &batch_new(NULL, 1)->events[0], name, strlen(name));
}

/* Takes in "a1 a2 b1". */
static void admit(struct scene *s, const char *names)
{
	for (const char *p = names; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		window_admit(&s->w, name_row(s, &batch_new(NULL, 1)->events[0], p, len));
		p += len;
	}
}

static void admit_alone(struct scene *s, const char *name)
{
	struct event *ev = new_row(s, name);

	ev->alone = true;
	window_admit(&s->w, ev);
}

static void admit_to(struct scene *s, const char *name, const char *topic, const char *key)
{
	struct event *ev = new_row(s, name);

	ev->topic = slice_of(topic);
	ev->key = slice_of(key);
	window_admit(&s->w, ev);
}

static void add_name(struct scene *s, const struct event *ev)
{
	size_t used = strlen(s->text);

	snprintf(s->text + used, sizeof(s->text) - used, "%s%.*s", used ? " " : "", (int)ev->id.len, ev->id.ptr);
}

static const char *names_of(struct scene *s, const struct event_list *l)
{
	uint32_t n = 0;

	s->text[0] = '\0';
	for (const struct event *ev = l->first; ev; ev = ev->next, n++)
		add_name(s, ev);
	assert_int_equal(n, l->count);
	return s->text;
}

#define assert_list(s, list, names) assert_string_equal(names_of((s), &(s)->w.list), (names))

static const char *submit_up_to(struct scene *s, uint32_t stage, uint32_t max)
{
	struct event *events[32];
	uint32_t n = window_submit(&s->w, stage, events, max);

	s->text[0] = '\0';
	for (uint32_t i = 0; i < n; i++)
		add_name(s, events[i]);
	return s->text;
}

/* Gives a sink all it may have now, and says what that was. */
static const char *submit(struct scene *s, uint32_t stage)
{
	return submit_up_to(s, stage, 32);
}

#define assert_submits(s, stage, names) assert_string_equal(submit((s), (stage)), (names))

static void pass(struct scene *s, const char *names)
{
	for (const char *p = names; *p; p += strspn(p, " ")) {
		char name[8] = "";
		size_t len = strcspn(p, " ");

		memcpy(name, p, len);
		window_passed(&s->w, row(s, name));
		p += len;
	}
}

static struct error *reason(const char *why)
{
	struct error *err = mem_new(struct error);

	error_set(err, ERROR_REJECTED, "%s", why);
	return err;
}

static void fail_row(struct scene *s, const char *name, enum window_action action)
{
	struct event *ev = row(s, name);

	ev->failure = reason(name);
	window_failed(&s->w, ev, action);
}

static void refuse(struct scene *s, const char *name)
{
	struct event *ev = row(s, name);

	ev->failure = reason(name);
	window_refused(&s->w, ev);
}

static void finish(struct scene *s, struct event_list *from)
{
	struct event_list taken = window_take(from, UINT32_MAX);

	for (struct event *ev = taken.first, *next; ev; ev = next) {
		next = ev->next;
		window_done(&s->w, ev);
	}
}

/* Settles what is delivered and records what is held, as a reader does. */
static void settle(struct scene *s)
{
	finish(s, &s->w.delivered);
	finish(s, &s->w.held);
}

/* --- order ---------------------------------------------------------------------------------------------------- */

static void a_sink_that_keeps_order_gets_the_rows_of_an_entity_back_to_back(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 b1 a3");
	assert_submits(&s, 0, "a1 a2 b1 a3");
	assert_submits(&s, 0, "");
	pass(&s, "a1 a2 b1 a3");
	settle(&s);
	scene_close(&s);
}

static void another_sink_gets_the_next_row_of_an_entity_when_the_last_one_is_acknowledged(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "S");
	admit(&s, "a1 a2 b1 b2");
	assert_submits(&s, 0, "a1 b1");
	assert_submits(&s, 0, "");
	pass(&s, "b1");
	assert_submits(&s, 0, "b2");
	pass(&s, "a1 b2");
	assert_submits(&s, 0, "a2");
	pass(&s, "a2");
	assert_list(&s, delivered, "b1 a1 b2 a2");
	settle(&s);
	scene_close(&s);
}

static void no_row_is_delivered_before_the_row_ahead_of_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 b1");
	submit(&s, 0);
	pass(&s, "a3 b1 a2");
	assert_list(&s, delivered, "b1");
	pass(&s, "a1");
	assert_list(&s, delivered, "b1 a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void no_row_enters_the_next_sink_before_the_row_ahead_of_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	pass(&s, "a3 a2");
	assert_submits(&s, 1, "");
	pass(&s, "a1");
	assert_submits(&s, 1, "a1 a2 a3");
	assert_list(&s, delivered, "");
	pass(&s, "a1 a2 a3");
	assert_list(&s, delivered, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void a_row_may_be_at_the_second_sink_while_the_next_is_at_the_first(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "SS");
	admit(&s, "a1 a2 a3");
	assert_submits(&s, 0, "a1");
	pass(&s, "a1");
	assert_submits(&s, 0, "a2");
	assert_submits(&s, 1, "a1");
	pass(&s, "a2");
	assert_submits(&s, 0, "a3");
	assert_submits(&s, 1, "");
	pass(&s, "a1");
	assert_submits(&s, 1, "a2");
	pass(&s, "a3 a2");
	assert_submits(&s, 1, "a3");
	pass(&s, "a3");
	assert_list(&s, delivered, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void each_sink_has_its_own_rule(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KSK");
	admit(&s, "a1 a2");
	assert_submits(&s, 0, "a1 a2");
	pass(&s, "a1 a2");
	assert_submits(&s, 1, "a1");
	pass(&s, "a1");
	assert_submits(&s, 1, "a2");
	assert_submits(&s, 2, "a1");
	pass(&s, "a2");
	assert_submits(&s, 2, "a2");
	pass(&s, "a2 a1");
	assert_list(&s, delivered, "a1 a2");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_comes_later_stands_behind_those_of_its_entity(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "S");
	admit(&s, "a1");
	submit(&s, 0);
	admit(&s, "a2");
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	settle(&s);
	assert_submits(&s, 0, "a2");
	admit(&s, "a3");
	pass(&s, "a2");
	assert_submits(&s, 0, "a3");
	pass(&s, "a3");
	settle(&s);
	scene_close(&s);
}

/* --- rows that are read ahead -------------------------------------------------------------------------------------- */

/* Whether it would be taken in; it is not. */
static bool takes(struct scene *s, const char *name, bool again)
{
	struct event *ev = new_row(s, name);
	bool taken = window_takes(&s->w, ev, again);

	s->n_rows--;
	batch_release_event(ev);
	return taken;
}

static void a_row_that_is_here_is_not_taken_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	assert_true(takes(&s, "a1", true));
	admit(&s, "a1 a2");
	submit(&s, 0);
	assert_false(takes(&s, "a1", true));
	assert_false(takes(&s, "a2", true));
	assert_true(takes(&s, "a3", true));
	assert_true(takes(&s, "b1", true));
	pass(&s, "a1 a2");
	assert_false(takes(&s, "a1", true));
	settle(&s);
	assert_true(takes(&s, "a1", true));
	scene_close(&s);
}

static void no_row_is_taken_behind_one_that_is_being_held_back(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	submit(&s, 0);
	fail_row(&s, "a1", WINDOW_HOLD);
	assert_false(takes(&s, "a3", false));   /* a2 is still with the sink */
	pass(&s, "a2");
	assert_list(&s, held, "a1");
	assert_false(takes(&s, "a3", false));   /* held, and not recorded yet */
	assert_true(takes(&s, "b1", false));
	settle(&s);
	assert_true(takes(&s, "a1", false));
	scene_close(&s);
}

static void a_row_may_come_behind_one_that_goes_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1");
	submit(&s, 0);
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_true(takes(&s, "a2", false));
	admit(&s, "a2");
	assert_submits(&s, 0, "a1 a2");
	pass(&s, "a1 a2");
	settle(&s);
	scene_close(&s);
}

/* --- submitting ------------------------------------------------------------------------------------------------- */

static void a_sink_gets_no_more_rows_than_it_asks_for(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 b1 b2");
	assert_string_equal(submit_up_to(&s, 0, 3), "a1 a2 b1");
	assert_string_equal(submit_up_to(&s, 0, 3), "b2");
	pass(&s, "a1 a2 b1 b2");
	settle(&s);
	scene_close(&s);
}

static void what_a_sink_did_not_take_is_next_again_in_the_same_order(void **state _unused_)
{
	struct event *events[8];
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 b1 b2 c1");
	assert_int_equal(window_submit(&s.w, 0, events, 4), 4);
	window_unsubmit(&s.w, 0, events + 1, 3);
	assert_list(&s, ready[0], "a2 b1 b2 c1");
	assert_submits(&s, 0, "a2 b1 b2 c1");
	pass(&s, "a1 a2 b1 b2 c1");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_came_back_from_the_sink_is_called_back_when_one_ahead_fails(void **state _unused_)
{
	struct event *events[8];
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 b1");
	window_submit(&s.w, 0, events, 3);
	window_unsubmit(&s.w, 0, events + 1, 2);
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_list(&s, ready[0], "b1 a1 a2");
	submit(&s, 0);
	pass(&s, "b1 a1 a2");
	settle(&s);
	scene_close(&s);
}

/* --- topics and keys -------------------------------------------------------------------------------------------- */

static void a_row_that_goes_another_way_waits_for_those_ahead(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit_to(&s, "a1", "one", "a");
	admit_to(&s, "a2", "one", "a");
	admit_to(&s, "a3", "two", "a");
	admit_to(&s, "a4", "two", "a");
	admit_to(&s, "a5", "two", NULL);
	admit_to(&s, "a6", "two", "");
	assert_submits(&s, 0, "a1 a2");
	pass(&s, "a2");
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	assert_submits(&s, 0, "a3 a4");
	pass(&s, "a3 a4");
	assert_submits(&s, 0, "a5");
	pass(&s, "a5");
	assert_submits(&s, 0, "a6");
	pass(&s, "a6");
	settle(&s);
	scene_close(&s);
}

static void nothing_passes_a_refused_row_on_another_way(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit_to(&s, "a1", "missing", "a");
	admit_to(&s, "a2", "there", "a");
	assert_submits(&s, 0, "a1");
	fail_row(&s, "a1", WINDOW_HOLD);
	assert_submits(&s, 0, "");
	assert_list(&s, held, "a1");
	settle(&s);
	scene_close(&s);
}

static void to_a_sink_with_one_stream_all_ways_are_the_same(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	s.w.one_stream[0] = true;
	admit_to(&s, "a1", "one", "a");
	admit_to(&s, "a2", "two", NULL);
	assert_submits(&s, 0, "a1 a2");
	pass(&s, "a1 a2");
	settle(&s);
	scene_close(&s);
}

/* --- alone ------------------------------------------------------------------------------------------------------ */

static void a_row_that_must_be_alone_waits_for_those_ahead_and_keeps_back_those_behind(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	admit_alone(&s, "a3");
	admit(&s, "a4 a5 b1");
	assert_submits(&s, 0, "a1 a2 b1");
	pass(&s, "a2");
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	assert_submits(&s, 0, "a3");
	pass(&s, "a3");
	assert_submits(&s, 0, "a4 a5");
	pass(&s, "a4 a5 b1");
	settle(&s);
	scene_close(&s);
}

static void rows_that_must_be_alone_go_one_by_one(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit_alone(&s, "a1");
	admit_alone(&s, "a2");
	assert_submits(&s, 0, "a1");
	pass(&s, "a1");
	assert_submits(&s, 0, "a2");
	pass(&s, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_must_be_alone_is_so_at_every_sink(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit_alone(&s, "a1");
	admit(&s, "a2 a3");
	assert_submits(&s, 0, "a1");
	pass(&s, "a1");
	submit(&s, 0);
	assert_submits(&s, 1, "a1");
	pass(&s, "a2");
	assert_submits(&s, 1, "");
	pass(&s, "a1");
	submit(&s, 0);
	assert_submits(&s, 1, "a2");
	pass(&s, "a3");
	assert_submits(&s, 1, "a3");
	pass(&s, "a2 a3");
	settle(&s);
	scene_close(&s);
}

static void a_sink_may_ask_that_a_failed_row_goes_alone_next_time(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	row(&s, "a1")->alone = row(&s, "a2")->alone = true;
	fail_row(&s, "a1", WINDOW_RESEND);
	fail_row(&s, "a2", WINDOW_RESEND);
	fail_row(&s, "a3", WINDOW_RESEND);
	assert_submits(&s, 0, "a1");
	pass(&s, "a1");
	assert_submits(&s, 0, "a2");
	pass(&s, "a2");
	assert_submits(&s, 0, "a3");
	pass(&s, "a3");
	settle(&s);
	scene_close(&s);
}

/* --- failure: sent again ---------------------------------------------------------------------------------------- */

static void a_failed_row_goes_again_with_those_behind_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 b1");
	assert_submits(&s, 0, "a1 a2 a3 b1");
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_RESEND);
	fail_row(&s, "a3", WINDOW_RESEND);
	assert_null(row(&s, "a2")->failure);
	assert_null(row(&s, "a3")->failure);
	assert_submits(&s, 0, "a2 a3");
	pass(&s, "a2 a3 b1");
	assert_list(&s, delivered, "a1 a2 a3 b1");
	settle(&s);
	scene_close(&s);
}

static void what_is_submitted_is_waited_for_before_a_lane_goes_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	fail_row(&s, "a2", WINDOW_RESEND);
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	assert_submits(&s, 0, "");
	assert_list(&s, delivered, "");
	fail_row(&s, "a3", WINDOW_RESEND);
	assert_list(&s, delivered, "a1");
	assert_submits(&s, 0, "a2 a3");
	pass(&s, "a2 a3");
	settle(&s);
	scene_close(&s);
}

static void what_is_ready_is_called_back_when_a_row_ahead_fails(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 b1");
	assert_string_equal(submit_up_to(&s, 0, 2), "a1 a2");
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_list(&s, ready[0], "b1");
	fail_row(&s, "a2", WINDOW_RESEND);
	assert_list(&s, ready[0], "b1 a1 a2 a3");
	submit(&s, 0);
	pass(&s, "b1 a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void what_a_sink_acknowledged_behind_a_failed_row_counts_as_not_sent(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	pass(&s, "a3");
	fail_row(&s, "a1", WINDOW_RESEND);
	pass(&s, "a2");
	assert_submits(&s, 0, "a1 a2 a3");
	pass(&s, "a1 a2 a3");
	assert_list(&s, delivered, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_fails_at_the_second_sink_is_not_sent_to_the_first_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	pass(&s, "a1 a2");
	assert_submits(&s, 1, "a1 a2");
	pass(&s, "a2");
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_submits(&s, 1, "");
	pass(&s, "a3");
	/* a3 has passed the first sink, but behind a failed row: once more. */
	assert_submits(&s, 0, "a3");
	assert_submits(&s, 1, "a1 a2");
	pass(&s, "a1 a2 a3");
	assert_submits(&s, 1, "a3");
	pass(&s, "a3");
	assert_list(&s, delivered, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_fails_at_the_first_sink_does_not_disturb_the_second(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2");
	submit(&s, 0);
	pass(&s, "a1");
	assert_submits(&s, 1, "a1");
	fail_row(&s, "a2", WINDOW_RESEND);
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	assert_list(&s, delivered, "a1");
	assert_submits(&s, 0, "a2");
	pass(&s, "a2");
	assert_submits(&s, 1, "a2");
	pass(&s, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_row_ready_for_the_second_sink_is_called_back_and_goes_there_after_the_failure(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2");
	submit(&s, 0);
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_RESEND);
	assert_list(&s, ready[0], "a2");
	assert_list(&s, ready[1], "a1");
	submit(&s, 0);
	submit(&s, 1);
	pass(&s, "a1 a2");
	submit(&s, 1);
	pass(&s, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_row_acknowledged_out_of_turn_does_not_keep_those_behind_it_from_going_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2 a3 a4");
	submit(&s, 0);
	pass(&s, "a1 a3");
	assert_submits(&s, 1, "a1");
	fail_row(&s, "a1", WINDOW_RESEND);
	pass(&s, "a2 a4");
	assert_list(&s, ready[0], "a2 a4");
	assert_submits(&s, 1, "a1");
	submit(&s, 0);
	pass(&s, "a1 a2 a4");
	assert_submits(&s, 1, "a2 a3 a4");
	pass(&s, "a2 a3 a4");
	settle(&s);
	scene_close(&s);
}

static void the_earliest_of_several_failed_rows_decides(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 b1 b2");
	submit(&s, 0);
	fail_row(&s, "a3", WINDOW_HOLD);
	fail_row(&s, "a1", WINDOW_RESEND);
	pass(&s, "a2");
	assert_list(&s, held, "");
	assert_submits(&s, 0, "a1 a2 a3");
	fail_row(&s, "b1", WINDOW_HOLD);
	fail_row(&s, "b2", WINDOW_RESEND);
	assert_list(&s, held, "b1");
	pass(&s, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

static void a_row_that_is_admitted_to_a_stopped_lane_goes_when_it_goes_on(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	submit(&s, 0);
	fail_row(&s, "a1", WINDOW_RESEND);
	admit(&s, "a3");
	assert_submits(&s, 0, "");
	pass(&s, "a2");
	assert_submits(&s, 0, "a1 a2 a3");
	pass(&s, "a1 a2 a3");
	settle(&s);
	scene_close(&s);
}

/* --- failure: held ---------------------------------------------------------------------------------------------- */

static void a_held_row_stays_to_be_recorded_and_those_behind_it_leave(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 a4 b1");
	submit(&s, 0);
	pass(&s, "a1 a4");
	fail_row(&s, "a2", WINDOW_HOLD);
	assert_list(&s, held, "");
	pass(&s, "a3");
	assert_list(&s, delivered, "a1");
	assert_list(&s, held, "a2");
	assert_int_equal(s.w.rows, 3);
	assert_string_equal(row(&s, "a2")->failure->message, "a2");
	assert_true(window_ends_lane(row(&s, "a2")));
	settle(&s);
	assert_int_equal(s.w.rows, 1);
	pass(&s, "b1");
	settle(&s);
	scene_close(&s);
}

static void a_row_is_held_only_after_all_rows_ahead_of_it_are_delivered(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2");
	submit(&s, 0);
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_HOLD);
	assert_list(&s, held, "");
	assert_submits(&s, 1, "a1");
	assert_list(&s, held, "");
	pass(&s, "a1");
	assert_list(&s, delivered, "a1");
	assert_list(&s, held, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_held_row_leaves_when_a_row_ahead_of_it_is_held(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2");
	submit(&s, 0);
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_HOLD);
	submit(&s, 1);
	fail_row(&s, "a1", WINDOW_HOLD);
	assert_list(&s, held, "a1");
	assert_int_equal(s.w.rows, 1);
	settle(&s);
	scene_close(&s);
}

static void a_held_row_keeps_its_reason_when_a_row_ahead_of_it_is_sent_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	refuse(&s, "a2");
	assert_submits(&s, 0, "a1");
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_submits(&s, 0, "a1");
	pass(&s, "a1");
	assert_list(&s, held, "a2");
	assert_non_null(row(&s, "a2")->failure);
	assert_string_equal(row(&s, "a2")->failure->message, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_row_held_at_the_first_sink_keeps_its_reason_when_one_ahead_fails_at_the_second(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2");
	submit(&s, 0);
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_HOLD);
	assert_submits(&s, 1, "a1");
	fail_row(&s, "a1", WINDOW_RESEND);
	assert_submits(&s, 1, "a1");
	pass(&s, "a1");
	assert_list(&s, held, "a2");
	assert_non_null(row(&s, "a2")->failure);
	settle(&s);
	scene_close(&s);
}

/* --- refused without a sink ------------------------------------------------------------------------------------- */

static void a_row_that_cannot_be_routed_is_held_and_those_ahead_of_it_go(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 a4 b1");
	refuse(&s, "a3");
	assert_int_equal(s.w.rows, 4);
	assert_list(&s, held, "");
	assert_submits(&s, 0, "b1 a1 a2");
	pass(&s, "a1 a2 b1");
	assert_list(&s, delivered, "a1 a2 b1");
	assert_list(&s, held, "a3");
	settle(&s);
	scene_close(&s);
}

static void the_first_row_that_cannot_be_routed_is_held_at_once(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "S");
	admit(&s, "a1 a2");
	refuse(&s, "a1");
	assert_list(&s, held, "a1");
	assert_submits(&s, 0, "");
	assert_int_equal(s.w.rows, 1);
	settle(&s);
	scene_close(&s);
}

static void a_row_that_the_settling_transaction_refuses_is_held_and_those_behind_it_leave(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3 b1");
	submit(&s, 0);
	pass(&s, "a1 a2 a3 b1");
	refuse(&s, "a2");
	assert_list(&s, delivered, "b1 a1");
	assert_list(&s, held, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_refusal_by_the_settling_transaction_waits_for_what_is_submitted_behind(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	pass(&s, "a1 a2");
	refuse(&s, "a2");
	assert_list(&s, held, "");
	pass(&s, "a3");
	assert_list(&s, delivered, "a1");
	assert_list(&s, held, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_refusal_by_the_settling_transaction_takes_a_held_row_behind_it_along(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	refuse(&s, "a2");
	submit(&s, 0);
	pass(&s, "a1");
	assert_list(&s, delivered, "a1");
	assert_list(&s, held, "a2");
	refuse(&s, "a1");
	assert_list(&s, delivered, "");
	assert_int_equal(s.w.rows, 1);
	assert_int_equal(s.w.held.count, 1);
	assert_ptr_equal(s.w.held.first, row(&s, "a1"));
	settle(&s);
	scene_close(&s);
}

/* --- settling --------------------------------------------------------------------------------------------------- */

static void rows_are_taken_from_the_front_and_come_back_to_the_front(void **state _unused_)
{
	struct event_list taken;
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 b1 c1");
	submit(&s, 0);
	pass(&s, "a1 a2 b1");
	taken = window_take(&s.w.delivered, 2);
	assert_string_equal(names_of(&s, &taken), "a1 a2");
	assert_list(&s, delivered, "b1");
	pass(&s, "c1");
	window_return(&s.w.delivered, taken);
	assert_list(&s, delivered, "a1 a2 b1 c1");
	taken = window_take(&s.w.delivered, UINT32_MAX);
	assert_string_equal(names_of(&s, &taken), "a1 a2 b1 c1");
	assert_list(&s, delivered, "");
	window_return(&s.w.delivered, taken);
	window_return(&s.w.delivered, (struct event_list){ 0 });
	assert_list(&s, delivered, "a1 a2 b1 c1");
	settle(&s);
	scene_close(&s);
}

static void the_last_row_of_a_lane_ends_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2");
	submit(&s, 0);
	assert_false(window_ends_lane(row(&s, "a1")));
	assert_true(window_ends_lane(row(&s, "a2")));
	pass(&s, "a1 a2");
	settle(&s);
	scene_close(&s);
}

static void note_entity(void *text, struct slice entity)
{
	size_t used = strlen(text);

	snprintf((char *)text + used, 64 - used, "%.*s", (int)entity.len, entity.ptr);
}

static const char *lanes(struct scene *s)
{
	s->text[0] = '\0';
	window_each_lane(&s->w, note_entity, s->text);
	return s->text;
}

static void every_lane_is_named_except_those_that_end_with_what_is_being_settled(void **state _unused_)
{
	struct event_list done, held;
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 b1 b2 c1 c2");
	assert_int_equal(strlen(lanes(&s)), 3);
	submit(&s, 0);
	pass(&s, "a1 b1 c1");
	fail_row(&s, "c2", WINDOW_HOLD);
	done = window_take(&s.w.delivered, UINT32_MAX);
	assert_int_equal(strlen(lanes(&s)), 2);
	held = window_take(&s.w.held, UINT32_MAX);
	assert_string_equal(lanes(&s), "b");
	window_return(&s.w.delivered, done);
	window_return(&s.w.held, held);
	assert_int_equal(strlen(lanes(&s)), 3);
	settle(&s);
	assert_string_equal(lanes(&s), "b");
	pass(&s, "b2");
	settle(&s);
	assert_string_equal(lanes(&s), "");
	scene_close(&s);
}

static void an_entity_comes_again_after_its_lane_has_ended(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "S");
	for (int i = 0; i < 3; i++) {
		admit(&s, "a1 a2");
		assert_submits(&s, 0, "a1");
		pass(&s, "a1");
		assert_submits(&s, 0, "a2");
		pass(&s, "a2");
		settle(&s);
		assert_empty(&s);
	}
	scene_close(&s);
}

/* --- a lost claim ----------------------------------------------------------------------------------------------- */

static void when_the_claim_is_gone_all_rows_leave_but_those_with_a_sink(void **state _unused_)
{
	struct event_list taken;
	struct scene s;

	scene_open(&s, "KK");
	admit(&s, "a1 a2 b1 b2 c1 c2 d1");
	refuse(&s, "d1");
	assert_string_equal(submit_up_to(&s, 0, 5), "a1 a2 b1 b2 c1");
	pass(&s, "a1 b1 b2");
	assert_submits(&s, 1, "a1 b1 b2");
	pass(&s, "b1 b2");
	taken = window_take(&s.w.delivered, 1);
	assert_string_equal(names_of(&s, &taken), "b1");
	assert_list(&s, delivered, "b2");
	window_abandon(&s.w);
	assert_int_equal(s.w.orphans, 3);
	assert_int_equal(s.w.rows, 3);
	assert_int_equal(s.w.bytes, 3 * event_bytes(row(&s, "a1")));
	assert_list(&s, delivered, "");
	assert_list(&s, held, "");
	assert_submits(&s, 0, "");
	assert_submits(&s, 1, "");
	assert_string_equal(lanes(&s), "");
	pass(&s, "a1");
	fail_row(&s, "a2", WINDOW_HOLD);
	fail_row(&s, "c1", WINDOW_RESEND);
	assert_list(&s, delivered, "");
	assert_list(&s, held, "");
	scene_close(&s);
}

static void an_entity_is_claimed_anew_beside_its_orphans(void **state _unused_)
{
	struct event *orphan;
	struct scene s;

	scene_open(&s, "S");
	admit(&s, "a1 a2");
	submit(&s, 0);
	orphan = row(&s, "a1");
	window_abandon(&s.w);
	admit(&s, "a1 a2");
	assert_submits(&s, 0, "a1");
	window_passed(&s.w, orphan);
	assert_list(&s, delivered, "");
	assert_submits(&s, 0, "");
	pass(&s, "a1");
	assert_list(&s, delivered, "a1");
	submit(&s, 0);
	pass(&s, "a2");
	settle(&s);
	scene_close(&s);
}

static void a_stopped_lane_can_be_abandoned(void **state _unused_)
{
	struct scene s;

	scene_open(&s, "K");
	admit(&s, "a1 a2 a3");
	submit(&s, 0);
	fail_row(&s, "a2", WINDOW_HOLD);
	window_abandon(&s.w);
	assert_int_equal(s.w.orphans, 2);
	pass(&s, "a3 a1");
	scene_close(&s);
}

/* --- memory ----------------------------------------------------------------------------------------------------- */

static void a_batch_lives_until_its_last_row_has_left(void **state _unused_)
{
	struct batch *b = batch_new(NULL, 3);
	struct scene s;

	scene_open(&s, "K");
	window_admit(&s.w, name_row(&s, &b->events[0], "a1", 2));
	window_admit(&s.w, name_row(&s, &b->events[1], "b1", 2));
	window_admit(&s.w, name_row(&s, &b->events[2], "b2", 2));
	assert_int_equal(s.w.rows, 3);
	assert_int_equal(s.w.bytes, 3 * event_bytes(&b->events[0]));
	submit(&s, 0);
	pass(&s, "b1 b2");
	settle(&s);
	assert_int_equal(b->live, 1);
	assert_int_equal(s.w.bytes, event_bytes(&b->events[0]));
	pass(&s, "a1");
	settle(&s);
	scene_close(&s);
}

static void thousands_of_entities_find_their_lanes(void **state _unused_)
{
	enum { ENTITIES = 3000, EACH = 2 };
	struct batch *b = batch_new(NULL, ENTITIES * EACH);
	static struct event *events[ENTITIES * EACH];
	struct scene s;

	scene_open(&s, "S");
	for (uint32_t i = 0; i < ENTITIES * EACH; i++) {
		struct event *ev = &b->events[i];
		char text[16];
		int len = snprintf(text, sizeof(text), "%u", i % ENTITIES);

		ev->id = ev->entity = ev->lane_key = arena_copy(&b->arena, (struct slice){ text, (size_t)len });
		window_admit(&s.w, ev);
	}
	assert_int_equal(s.w.n_lanes, ENTITIES);
	for (int round = 0; round < EACH; round++) {
		assert_int_equal(window_submit(&s.w, 0, events, ENTITIES * EACH), ENTITIES);
		for (uint32_t i = 0; i < ENTITIES; i++)
			window_passed(&s.w, events[i]);
	}
	assert_int_equal(s.w.delivered.count, ENTITIES * EACH);
	settle(&s);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sink_that_keeps_order_gets_the_rows_of_an_entity_back_to_back),
		cmocka_unit_test(another_sink_gets_the_next_row_of_an_entity_when_the_last_one_is_acknowledged),
		cmocka_unit_test(no_row_is_delivered_before_the_row_ahead_of_it),
		cmocka_unit_test(no_row_enters_the_next_sink_before_the_row_ahead_of_it),
		cmocka_unit_test(a_row_may_be_at_the_second_sink_while_the_next_is_at_the_first),
		cmocka_unit_test(each_sink_has_its_own_rule),
		cmocka_unit_test(a_row_that_comes_later_stands_behind_those_of_its_entity),
		cmocka_unit_test(a_row_that_is_here_is_not_taken_again),
		cmocka_unit_test(no_row_is_taken_behind_one_that_is_being_held_back),
		cmocka_unit_test(a_row_may_come_behind_one_that_goes_again),
		cmocka_unit_test(a_sink_gets_no_more_rows_than_it_asks_for),
		cmocka_unit_test(what_a_sink_did_not_take_is_next_again_in_the_same_order),
		cmocka_unit_test(a_row_that_came_back_from_the_sink_is_called_back_when_one_ahead_fails),
		cmocka_unit_test(a_row_that_goes_another_way_waits_for_those_ahead),
		cmocka_unit_test(nothing_passes_a_refused_row_on_another_way),
		cmocka_unit_test(to_a_sink_with_one_stream_all_ways_are_the_same),
		cmocka_unit_test(a_row_that_must_be_alone_waits_for_those_ahead_and_keeps_back_those_behind),
		cmocka_unit_test(rows_that_must_be_alone_go_one_by_one),
		cmocka_unit_test(a_row_that_must_be_alone_is_so_at_every_sink),
		cmocka_unit_test(a_sink_may_ask_that_a_failed_row_goes_alone_next_time),
		cmocka_unit_test(a_failed_row_goes_again_with_those_behind_it),
		cmocka_unit_test(what_is_submitted_is_waited_for_before_a_lane_goes_again),
		cmocka_unit_test(what_is_ready_is_called_back_when_a_row_ahead_fails),
		cmocka_unit_test(what_a_sink_acknowledged_behind_a_failed_row_counts_as_not_sent),
		cmocka_unit_test(a_row_that_fails_at_the_second_sink_is_not_sent_to_the_first_again),
		cmocka_unit_test(a_row_that_fails_at_the_first_sink_does_not_disturb_the_second),
		cmocka_unit_test(a_row_ready_for_the_second_sink_is_called_back_and_goes_there_after_the_failure),
		cmocka_unit_test(a_row_acknowledged_out_of_turn_does_not_keep_those_behind_it_from_going_again),
		cmocka_unit_test(the_earliest_of_several_failed_rows_decides),
		cmocka_unit_test(a_row_that_is_admitted_to_a_stopped_lane_goes_when_it_goes_on),
		cmocka_unit_test(a_held_row_stays_to_be_recorded_and_those_behind_it_leave),
		cmocka_unit_test(a_row_is_held_only_after_all_rows_ahead_of_it_are_delivered),
		cmocka_unit_test(a_held_row_leaves_when_a_row_ahead_of_it_is_held),
		cmocka_unit_test(a_held_row_keeps_its_reason_when_a_row_ahead_of_it_is_sent_again),
		cmocka_unit_test(a_row_held_at_the_first_sink_keeps_its_reason_when_one_ahead_fails_at_the_second),
		cmocka_unit_test(a_row_that_cannot_be_routed_is_held_and_those_ahead_of_it_go),
		cmocka_unit_test(the_first_row_that_cannot_be_routed_is_held_at_once),
		cmocka_unit_test(a_row_that_the_settling_transaction_refuses_is_held_and_those_behind_it_leave),
		cmocka_unit_test(a_refusal_by_the_settling_transaction_waits_for_what_is_submitted_behind),
		cmocka_unit_test(a_refusal_by_the_settling_transaction_takes_a_held_row_behind_it_along),
		cmocka_unit_test(rows_are_taken_from_the_front_and_come_back_to_the_front),
		cmocka_unit_test(the_last_row_of_a_lane_ends_it),
		cmocka_unit_test(every_lane_is_named_except_those_that_end_with_what_is_being_settled),
		cmocka_unit_test(an_entity_comes_again_after_its_lane_has_ended),
		cmocka_unit_test(when_the_claim_is_gone_all_rows_leave_but_those_with_a_sink),
		cmocka_unit_test(an_entity_is_claimed_anew_beside_its_orphans),
		cmocka_unit_test(a_stopped_lane_can_be_abandoned),
		cmocka_unit_test(a_batch_lives_until_its_last_row_has_left),
		cmocka_unit_test(thousands_of_entities_find_their_lanes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
