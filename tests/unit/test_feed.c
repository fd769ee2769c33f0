/* The feed against a reader that does what a test says: no database, and a clock that only tests move. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <poll.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "pg/array.h"
#include "relay/feed.h"

enum { BATCH_SIZE = 10, BATCH_MAX = 80, BEAT_MS = 10000, WATCHDOG_MS = 5000 };

/* In the place of base/clock.c. */
static int64_t virtual_ms;

int64_t clock_ms(void)
{
	return virtual_ms;
}

int64_t clock_us(void)
{
	return virtual_ms * 1000;
}

static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* --- the reader ----------------------------------------------------------------------------------------------- */

/* What a test says: the answer to the exchange under way. */
struct reply {
	const char *rows;               /* "a1 a2 b1": the letter is the entity; a row with a "?" cannot be routed */
	bool exhausted;
	bool unsettled;
	enum error_kind why;            /* unsettled because of this */
	struct retry retry;
	int64_t look_again_ms;
	int64_t due_in_ms;
};

struct reader {
	const struct feed_env *env;
	bool connected, busy;
	uint32_t opens, begins, unchecked;
	/* The last exchange: "a1 a2 !b1(1) +10" settles two rows, holds one and claims up to ten. */
	char said[512];
	size_t want_bytes;
	int64_t hold_delay_ms;
	enum hold_kind hold_kind;
	char lanes[64];                 /* entities that must not be claimed again */

	enum error_kind refuse_open;
	bool lose_at_begin, lose_at_receive;
	bool replied;
	struct reply reply;
	size_t payload;
};

static struct reader server;

static void add_word(const char *sign, struct slice word, const char *note)
{
	size_t used = strlen(server.said);

	snprintf(server.said + used, sizeof(server.said) - used, "%s%s%.*s%s", used ? " " : "", sign, (int)word.len,
		 word.ptr, note);
}

static bool fake_open(const struct reader_env *env _unused_, struct reader **ret, struct error *err)
{
	assert_false(server.connected);
	server.opens++;
	if (server.refuse_open != ERROR_NONE)
		return error_set(err, server.refuse_open, "not now");
	server.connected = true;
	server.busy = server.replied = false;
	*ret = &server;
	return true;
}

static void fake_close(struct reader *r)
{
	assert_ptr_equal(r, &server);
	assert_true(server.connected);
	server.connected = false;
}

static void note_lane(void *arg, struct slice entity)
{
	strncat(arg, entity.ptr, entity.len);
}

static struct hand *shared_hand;        /* the scene's */

static bool fake_begin(struct reader *r, const struct exchange *x, struct error *err)
{
	assert_true(r->connected);
	assert_false(r->busy);
	r->begins++;
	r->unchecked++;
	/* Its walk is over before anybody can look. */
	if (x->has_hand)
		hand_pass(shared_hand);
	r->said[0] = r->lanes[0] = '\0';
	for (uint32_t i = 0; i < x->n_done; i++)
		add_word("", x->done[i]->id, "");
	for (uint32_t i = 0; i < x->n_holds; i++) {
		char note[32];

		snprintf(note, sizeof(note), "(%u)", x->holds[i].attempts);
		add_word("!", x->holds[i].event->id, note);
		r->hold_delay_ms = x->holds[i].delay_ms;
		r->hold_kind = x->holds[i].kind;
		assert_non_null(x->holds[i].event->failure);
	}
	if (x->want_rows > 0) {
		char number[16];

		snprintf(number, sizeof(number), "%u", x->want_rows);
		add_word("+", slice_of(number), "");
		assert_true(x->want_bytes > 0);
	}
	r->want_bytes = x->want_bytes;
	window_each_lane(x->window, note_lane, r->lanes);
	if (r->lose_at_begin)
		return error_set(err, ERROR_TRANSPORT, "connection reset");
	r->busy = true;
	return true;
}

static int fake_pollfd(const struct reader *r, short *ret_events _unused_)
{
	assert_true(r->connected);
	return 77;
}

static void add_row(PGresult *res, int row, const char *name, size_t len)
{
	static char payload[1 << 20];

	for (int i = 0; i <= FIELD_EXTRA; i++)
		assert_true(PQsetvalue(res, row, i, NULL, -1));
	assert_true(PQsetvalue(res, row, FIELD_ID, text(name), (int)len));
	assert_true(PQsetvalue(res, row, FIELD_ENTITY, text(name), 1));
	assert_true(PQsetvalue(res, row, FIELD_PAYLOAD, payload, (int)server.payload));
	if (!memchr(name, '?', len))
		assert_true(PQsetvalue(res, row, FIELD_TOPIC, text("orders"), 6));
	assert_true(PQsetvalue(res, row, FIELD_EXTRA, text("(0,1)"), 5));
}

static PGresult *rows_of(const char *names)
{
	PGresult *res = PQmakeEmptyPGresult(NULL, PGRES_TUPLES_OK);
	PGresAttDesc columns[FIELD_EXTRA + 1] = { 0 };
	int row = 0;

	for (size_t i = 0; i < ARRAY_SIZE(columns); i++)
		columns[i] = (PGresAttDesc){ .name = text("column"), .typid = TYPE_TEXT, .format = 1 };
	assert_true(PQsetResultAttrs(res, ARRAY_SIZE(columns), columns));
	for (const char *p = names; *p; p += strspn(p, " ")) {
		size_t len = strcspn(p, " ");

		add_row(res, row++, p, len);
		p += len;
	}
	return res;
}

static bool fake_receive(struct reader *r, bool *ret_complete, struct answer *ret, struct error *err)
{
	assert_true(r->connected);
	*ret_complete = false;
	if (r->lose_at_receive)
		return error_set(err, ERROR_TRANSPORT, "terminating connection due to administrator command");
	if (!r->busy || !r->replied)
		return true;
	*ret = (struct answer){ .settled = !r->reply.unsettled, .exhausted = r->reply.exhausted,
				.look_again_ms = r->reply.look_again_ms, .due_in_ms = r->reply.due_in_ms };
	if (r->reply.unsettled && r->reply.why != ERROR_NONE)
		error_set(&ret->settle_error, r->reply.why, "could not settle");
	if (strchr(r->said, '+'))
		ret->rows = rows_of(r->reply.rows ? r->reply.rows : "");
	if (r->reply.retry.entity.ptr) {
		ret->retries = &r->reply.retry;
		ret->n_retries = 1;
	}
	r->busy = r->replied = false;
	*ret_complete = true;
	return true;
}

static struct reader_driver fake_driver = {
	.name = "fake",
	.takes_turns = true,
	.open = fake_open,
	.close = fake_close,
	.begin = fake_begin,
	.pollfd = fake_pollfd,
	.receive = fake_receive,
};

/* --- a feed --------------------------------------------------------------------------------------------------- */

struct scene {
	struct outbox_config outbox;
	struct hand hand;
	struct database_config database;
	struct route *route;
	struct bell bell;
	struct mailbox box;
	struct window window;
	struct feed feed;
	int64_t now, deadline;
	struct event *with_sink[256];           /* submitted, and no outcome yet */
	uint32_t n_with_sink;
};

static void turn(struct scene *s)
{
	virtual_ms = s->now;
	feed_turn(&s->feed, s->now, &s->deadline);
}

static void prepare(struct scene *s)
{
	struct error err;

	server = (struct reader){ .payload = 10 };
	fake_driver.entities_max = 0;
	fake_driver.settles_whole = false;
	fake_driver.keeps_order = NULL;
	*s = (struct scene){
		.outbox = { .failure = { .max_retries = 10, .first_delay_ms = 1000, .max_delay_ms = 300000, .jitter = 50 },
			    .name = text("orders"), .batch_size = BATCH_SIZE, .batch_max = BATCH_MAX,
			    .in_flight_bytes = 1 << 20,
			    .columns = { .id.name = text("id"), .entity_id.name = text("entity_id"),
					 .payload.name = text("payload"), .topic.name = text("topic"),
					 .message_id.name = text(""), .entity_type.name = text(""),
					 .event_type.name = text(""), .headers.name = text(""),
					 .created_at.name = text(""), .traceparent.name = text("") },
			    .route = { .topic = text("{topic}"), .key = text("{entity_id}"), .source = text("") } },
		.database = { .idle_session_timeout_ms = 3 * BEAT_MS },
		.now = 1000000,
	};
	if (!route_compile(&s->outbox, &s->route, &err))
		fail_msg("%s", err.message);
	mailbox_init(&s->box);
	hand_init(&s->hand);
	shared_hand = &s->hand;
	bell_init(&s->bell, WATCHDOG_MS);
	bell_add_worker(&s->bell, &s->box);
	bell_set_deaf(&s->bell, false);
	window_init(&s->window, 1, (const bool[]){ true });
	feed_init(&s->feed,
		  &(struct feed_env){ .driver = &fake_driver,
				      .reader = { .database = &s->database, .outbox = &s->outbox, .interrupt_fd = -1,
						  .hand = &s->hand },
				      .route = s->route, .bell = &s->bell, .outcomes = &s->box, .seed = 1 },
		  &s->window);
}

static void scene_open(struct scene *s)
{
	prepare(s);
	turn(s);
}

static void scene_close(struct scene *s)
{
	window_abandon(&s->window);
	for (uint32_t i = 0; i < s->n_with_sink; i++)
		window_passed(&s->window, s->with_sink[i]);
	assert_int_equal(s->window.rows, 0);
	feed_release(&s->feed);
	assert_false(server.connected);
	window_release(&s->window);
	hand_release(&s->hand);
	mailbox_release(&s->box);
	route_free(s->route);
}

/* One exchange was begun since the last time that this was asked, and it says that. */
static void assert_exchange(const char *said)
{
	assert_int_equal(server.unchecked, 1);
	server.unchecked = 0;
	assert_string_equal(server.said, said);
}

static void assert_quiet(void)
{
	if (server.unchecked != 0)
		fail_msg("%u exchanges, the last one \"%s\"", server.unchecked, server.said);
}

/* The reader answers the exchange under way, and the feed goes on. */
static void reply(struct scene *s, struct reply r)
{
	assert_true(server.busy);
	assert_false(server.replied);
	server.reply = r;
	server.replied = true;
	turn(s);
	assert_false(server.replied);
}

/* The sink takes all rows that it may have, and keeps still. */
static void submit(struct scene *s)
{
	s->n_with_sink += window_submit(&s->window, 0, s->with_sink + s->n_with_sink,
					ARRAY_SIZE(s->with_sink) - s->n_with_sink);
}

/* The sink takes all rows that it may have, and has them. */
static void deliver(struct scene *s)
{
	struct event *events[256];
	uint32_t n = window_submit(&s->window, 0, events, ARRAY_SIZE(events));

	for (uint32_t i = 0; i < n; i++)
		window_passed(&s->window, events[i]);
}

/* The sink refuses the first row that it is given. */
static void refuse(struct scene *s, enum error_kind kind)
{
	struct event *ev;

	assert_int_equal(window_submit(&s->window, 0, &ev, 1), 1);
	ev->failure = mem_new(struct error);
	error_set(ev->failure, kind, "refused");
	window_failed(&s->window, ev, WINDOW_HOLD);
}

static struct event *first_ready(struct scene *s)
{
	assert_non_null(s->window.ready[0].first);
	return s->window.ready[0].first;
}

/* --- claiming ------------------------------------------------------------------------------------------------- */

static void claims_grow_while_there_is_more_and_begin_anew_when_there_is_not(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1" });
	assert_exchange("+20");
	reply(&s, (struct reply){ .rows = "b1" });
	assert_exchange("+40");
	reply(&s, (struct reply){ .rows = "c1" });
	assert_exchange("+80");
	reply(&s, (struct reply){ .rows = "d1" });
	assert_exchange("+80");
	reply(&s, (struct reply){ .rows = "e1", .exhausted = true });
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1 b1 c1 d1 e1 +10");
	scene_close(&s);
}

static void under_a_backlog_a_worker_waits_for_its_turn_to_claim(void **state _unused_)
{
	struct mailbox other;
	struct pollfd p;
	struct scene s;

	scene_open(&s);
	mailbox_init(&other);
	assert_exchange("+10");
	assert_true(hand_take(&s.hand, &other));
	reply(&s, (struct reply){ .rows = "a1" });
	assert_quiet();
	p = (struct pollfd){ .fd = s.box.fd, .events = POLLIN };
	mailbox_take(&s.box);
	assert_int_equal(poll(&p, 1, 0), 0);
	hand_pass(&s.hand);
	assert_int_equal(poll(&p, 1, 0), 1);
	turn(&s);
	assert_exchange("+20");
	/* Somebody who never passes it on is not waited for for long. */
	assert_true(hand_take(&s.hand, &other));
	reply(&s, (struct reply){ .rows = "x1" });
	assert_quiet();
	s.now += 499;
	turn(&s);
	assert_quiet();
	s.now += 1;
	turn(&s);
	assert_exchange("+40");
	hand_pass(&s.hand);
	/* What is delivered does not wait for a turn. */
	assert_true(hand_take(&s.hand, &other));
	deliver(&s);
	reply(&s, (struct reply){ .rows = "b1" });
	assert_exchange("a1 x1");
	hand_pass(&s.hand);
	mailbox_release(&other);
	scene_close(&s);
}

static void what_one_transaction_holds_is_settled_whole_and_with_the_next_claim(void **state _unused_)
{
	struct event *first;
	struct scene s;

	scene_open(&s);
	fake_driver.settles_whole = true;
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 b1 c1" });
	refuse(&s, ERROR_REJECTED);
	assert_int_equal(window_submit(&s.window, 0, &first, 1), 1);
	deliver(&s);
	turn(&s);
	assert_quiet();
	window_passed(&s.window, first);
	turn(&s);
	assert_exchange("c1 b1 !a1(1) +20");
	/* Rows of a claim that is gone are still with the sink: the next one does not wait for them. */
	reply(&s, (struct reply){ .rows = "d1" });
	submit(&s);
	server.lose_at_receive = true;
	turn(&s);
	server.lose_at_receive = false;
	s.now += 60000;
	turn(&s);
	assert_exchange("+40");
	reply(&s, (struct reply){ .rows = "e1" });
	deliver(&s);
	turn(&s);
	assert_exchange("e1 +80");
	scene_close(&s);
}

static bool keeps_no_order(const struct outbox_config *outbox _unused_)
{
	return false;
}

static void without_order_a_refused_row_is_held_alone(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	fake_driver.keeps_order = keeps_no_order;
	feed_release(&s.feed);
	feed_init(&s.feed, &(struct feed_env){ .driver = &fake_driver, .reader = s.feed.env.reader, .route = s.route,
					       .bell = &s.bell, .outcomes = &s.box, .seed = 1 }, &s.window);
	turn(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 a2 a3", .exhausted = true,
				  .retry = { slice_of("a2"), slice_of("a2"), 4 } });
	refuse(&s, ERROR_REJECTED);
	assert_string_equal(first_ready(&s)->key.ptr, "a");
	assert_int_equal(first_ready(&s)->attempt, 4);
	deliver(&s);
	turn(&s);
	assert_exchange("a2 a3 !a1(1) +10");
	scene_close(&s);
}

static void an_empty_claim_does_not_make_the_next_one_larger(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	for (int i = 0; i < 3; i++) {
		reply(&s, (struct reply){ 0 });
		assert_exchange("+10");
	}
	scene_close(&s);
}

static void plenty_is_told_to_another_worker(void **state _unused_)
{
	struct mailbox other;
	struct scene s;
	int64_t until;

	scene_open(&s);
	mailbox_init(&other);
	bell_add_worker(&s.bell, &other);
	bell_claimed(&s.bell, 0, s.now);
	assert_true(bell_sleep(&s.bell, 1, bell_rings(&s.bell), s.now, &until));
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true });
	assert_true(atomic_load(&s.bell.asleep[1]));
	deliver(&s);
	turn(&s);
	reply(&s, (struct reply){ .rows = "b1" });
	assert_false(atomic_load(&s.bell.asleep[1]));
	mailbox_release(&other);
	scene_close(&s);
}

static void a_worker_that_found_nothing_sleeps_until_the_bell_or_the_watchdog(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .exhausted = true });
	assert_quiet();
	assert_int_equal(s.deadline, s.now + WATCHDOG_MS);
	assert_true(atomic_load(&s.bell.asleep[0]));
	s.now += 100;
	turn(&s);
	assert_quiet();
	bell_ring(&s.bell);
	turn(&s);
	assert_true(s.deadline <= s.now);
	turn(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .exhausted = true });
	s.now = s.deadline;
	turn(&s);
	turn(&s);
	assert_exchange("+10");
	scene_close(&s);
}

static void while_it_is_paused_nothing_is_claimed_and_what_is_on_its_way_is_settled(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 b1" });
	assert_exchange("+20");
	bell_set_paused(&s.bell, true);
	reply(&s, (struct reply){ .rows = "c1" });
	/* One exchange gives back what was claimed in vain. */
	assert_exchange("");
	reply(&s, (struct reply){ 0 });
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1 b1 c1");
	reply(&s, (struct reply){ 0 });
	assert_quiet();
	bell_ring(&s.bell);
	turn(&s);
	assert_quiet();
	assert_true(s.deadline > s.now);
	bell_set_paused(&s.bell, false);
	turn(&s);
	assert_exchange("+40");
	scene_close(&s);
}

static void a_ring_during_the_claim_is_not_missed(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	bell_ring(&s.bell);
	reply(&s, (struct reply){ .exhausted = true });
	assert_true(s.deadline <= s.now);
	turn(&s);
	assert_exchange("+10");
	scene_close(&s);
}

/* Others hold all that there is. Looking again at once does not change that. */
static void a_worker_that_finds_everything_claimed_does_not_spin(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	server.begins = 0;
	for (int64_t end = s.now + 1000; s.now < end; s.now++) {
		for (uint32_t before = server.begins; server.busy; assert_true(server.begins < before + 20))
			reply(&s, (struct reply){ .rows = "" });
		if (s.deadline <= s.now)
			turn(&s);
		turn(&s);
	}
	assert_in_range(server.begins, 40, 450);
	scene_close(&s);
}

/* The entities that it gives back may have more rows, which nobody else was able to claim. */
static void an_exchange_that_only_gave_entities_back_is_followed_by_a_claim(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	server.payload = 300 << 10;             /* two of them leave no room for a claim */
	reply(&s, (struct reply){ .rows = "a1 a2", .exhausted = true });
	deliver(&s);
	turn(&s);
	assert_exchange("a1 a2");
	reply(&s, (struct reply){ 0 });
	assert_exchange("+10");
	scene_close(&s);
}

static void entities_in_the_window_are_named_to_the_reader_except_those_that_end(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 a2 b1", .exhausted = true });
	deliver(&s);
	turn(&s);
	assert_string_equal(server.said, "a1 a2 b1 +10");
	assert_string_equal(server.lanes, "");
	reply(&s, (struct reply){ .rows = "c1 d1", .exhausted = true });
	refuse(&s, ERROR_CONFIG);
	turn(&s);
	assert_string_equal(server.lanes, "d");
	scene_close(&s);
}

/* --- room ----------------------------------------------------------------------------------------------------- */

static void no_more_rows_are_claimed_than_two_claims_at_their_largest(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	s.outbox.batch_max = BATCH_SIZE;
	turn(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 a2 a3 a4 a5 a6 a7 a8 a9 a10" });
	assert_exchange("+10");
	submit(&s);
	reply(&s, (struct reply){ .rows = "b1" });
	assert_quiet();
	s.now += 100;
	turn(&s);
	assert_quiet();
	assert_true(s.deadline > s.now);
	scene_close(&s);
}

static void no_more_bytes_are_claimed_than_there_is_room_for(void **state _unused_)
{
	struct scene s;
	size_t before;

	scene_open(&s);
	before = server.want_bytes;
	assert_int_equal(before, 1 << 20);
	server.payload = 100 << 10;
	reply(&s, (struct reply){ .rows = "a1 a2 a3 a4" });
	server.unchecked = 0;
	assert_int_equal(server.want_bytes, before - s.window.bytes);
	reply(&s, (struct reply){ .rows = "b1 b2" });
	assert_true(s.window.bytes > 512 << 10);
	s.now += 100;
	turn(&s);
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1 a2 a3 a4 b1 b2");
	reply(&s, (struct reply){ 0 });
	assert_exchange("+40");
	assert_int_equal(server.want_bytes, before);
	scene_close(&s);
}

static void a_row_larger_than_all_room_is_claimed_alone(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	s.outbox.in_flight_bytes = 1000;
	turn(&s);
	assert_int_equal(server.want_bytes, 1000);
	server.payload = 5000;
	reply(&s, (struct reply){ .rows = "a1" });
	server.unchecked = 0;
	turn(&s);
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1");
	reply(&s, (struct reply){ 0 });
	assert_exchange("+20");
	scene_close(&s);
}

static void no_more_entities_are_claimed_than_the_reader_can_hold(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	fake_driver.entities_max = 4;
	turn(&s);
	reply(&s, (struct reply){ .rows = "a1 b1" });
	reply(&s, (struct reply){ .rows = "c1" });
	server.unchecked = 0;
	turn(&s);
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1 b1 c1");
	scene_close(&s);
}

/* --- settling ------------------------------------------------------------------------------------------------- */

static void settling_travels_with_the_next_claim(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 a2 b1", .exhausted = true });
	assert_quiet();
	deliver(&s);
	turn(&s);
	assert_exchange("a1 a2 b1 +10");
	assert_int_equal(s.feed.counts.settled, 0);
	reply(&s, (struct reply){ .exhausted = true });
	assert_quiet();
	assert_int_equal(s.feed.counts.settled, 3);
	assert_int_equal(s.window.rows, 0);
	scene_close(&s);
}

static void one_exchange_is_under_way_at_a_time(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	for (int i = 0; i < 5; i++) {
		s.now += BEAT_MS;
		bell_ring(&s.bell);
		turn(&s);
		assert_quiet();
		assert_int_equal(s.deadline, CLOCK_NEVER);
	}
	scene_close(&s);
}

static void a_settle_that_the_server_could_not_do_now_is_repeated_later_with_the_same_rows(void **state _unused_)
{
	static const enum error_kind kinds[] = { ERROR_TRANSPORT, ERROR_AUTH, ERROR_CONFIG, ERROR_LOST, ERROR_BUG };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct scene s;

		scene_open(&s);
		reply(&s, (struct reply){ .rows = "a1 a2 b1", .exhausted = true });
		deliver(&s);
		turn(&s);
		server.unchecked = 0;
		reply(&s, (struct reply){ .unsettled = true, .why = kinds[i], .exhausted = true });
		assert_quiet();
		assert_int_equal(s.window.rows, 3);
		assert_int_equal(s.feed.counts.settled, 0);
		assert_in_range(s.deadline, s.now + 100, s.now + 200);
		s.now = s.deadline - 1;
		turn(&s);
		assert_quiet();
		s.now = s.deadline;
		turn(&s);
		assert_exchange("a1 a2 b1 +10");
		reply(&s, (struct reply){ .exhausted = true });
		assert_int_equal(s.feed.counts.settled, 3);
		assert_int_equal(s.window.rows, 0);
		scene_close(&s);
	}
}

static void waits_between_failing_settles_grow_and_begin_anew_when_it_worked(void **state _unused_)
{
	int64_t longest = 200;
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	deliver(&s);
	turn(&s);
	for (int i = 0; i < 8; i++, longest = MIN(longest * 2, 10000)) {
		reply(&s, (struct reply){ .unsettled = true, .why = ERROR_TRANSPORT, .exhausted = true });
		assert_in_range(s.deadline - s.now, longest / 2, longest);
		s.now = s.deadline;
		turn(&s);
	}
	reply(&s, (struct reply){ .rows = "c1", .exhausted = true });
	deliver(&s);
	turn(&s);
	reply(&s, (struct reply){ .unsettled = true, .why = ERROR_TRANSPORT, .exhausted = true });
	assert_in_range(s.deadline - s.now, 100, 200);
	scene_close(&s);
}

static int64_t short_beat_ms(const struct reader_env *env _unused_)
{
	return 150;
}

/* Beats keep what is claimed; the rows themselves wait. */
static void while_a_failed_settle_waits_there_are_beats(void **state _unused_)
{
	struct scene s;
	int64_t again_at;

	fake_driver.beat_ms = short_beat_ms;
	scene_open(&s);
	fake_driver.beat_ms = NULL;
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	deliver(&s);
	turn(&s);
	for (int i = 0; i < 4; i++) {
		assert_exchange("a1 b1 +10");
		reply(&s, (struct reply){ .unsettled = true, .why = ERROR_TRANSPORT, .exhausted = true });
		again_at = s.feed.retry_at_ms;
		while (s.deadline < again_at) {
			s.now = s.deadline;
			turn(&s);
			assert_exchange("");
			reply(&s, (struct reply){ 0 });
			assert_int_equal(s.feed.retry_at_ms, again_at);
			assert_true(s.deadline > s.now);
		}
		s.now = s.deadline;
		turn(&s);
	}
	assert_in_range(s.feed.backoff.tries, 4, 4);    /* a beat is no success */
	reply(&s, (struct reply){ .exhausted = true });
	assert_int_equal(s.feed.counts.settled, 2);
	scene_close(&s);
}

static void a_reader_says_when_to_look_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .exhausted = true, .look_again_ms = 1000 });
	assert_int_equal(s.deadline, s.now + 1000);
	s.now = s.deadline;
	turn(&s);
	turn(&s);
	assert_exchange("+10");
	scene_close(&s);
}

static void a_row_that_is_scheduled_wakes_the_worker_in_time(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .exhausted = true, .due_in_ms = 300 });
	assert_int_equal(s.deadline, s.now + 300);
	s.now = s.deadline;
	turn(&s);
	turn(&s);
	assert_exchange("+10");
	/* The one after it is not forgotten. */
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true, .due_in_ms = 200 });
	assert_int_equal(s.deadline, s.now + 200);
	scene_close(&s);
}

static void rows_that_were_not_where_they_had_been_are_settled_again_at_once(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 a2 b1", .exhausted = true });
	deliver(&s);
	turn(&s);
	server.unchecked = 0;
	reply(&s, (struct reply){ .unsettled = true, .why = ERROR_NONE, .exhausted = true });
	assert_exchange("a1 a2 b1 +10");
	scene_close(&s);
}

static void what_was_claimed_beside_a_failing_settle_is_sent_all_the_same(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	deliver(&s);
	turn(&s);
	reply(&s, (struct reply){ .rows = "c1", .unsettled = true, .why = ERROR_TRANSPORT, .exhausted = true });
	assert_int_equal(s.window.rows, 3);
	deliver(&s);
	server.unchecked = 0;
	s.now = s.deadline;
	turn(&s);
	assert_exchange("a1 b1 c1 +10");
	scene_close(&s);
}

/* The reader answers until nothing is under way; a settle that contains `bad` is refused. Says what was exchanged. */
static const char *settle_except(struct scene *s, const char *bad)
{
	static char log[512];

	log[0] = '\0';
	for (int i = 0; server.busy && i < 20; i++) {
		size_t used = strlen(log);
		bool refused = strstr(server.said, bad) && server.said[0] != '!';

		snprintf(log + used, sizeof(log) - used, "%s[%s]", used ? " " : "", server.said);
		reply(s, (struct reply){ .unsettled = refused, .why = ERROR_REJECTED, .exhausted = true });
	}
	assert_false(server.busy);
	return log;
}

static void a_refused_settle_is_repeated_row_by_row_and_holds_only_the_row_that_is_meant(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 a2 a3 b1 c1", .exhausted = true });
	deliver(&s);
	turn(&s);
	/* a3 leaves with a2, unsettled. */
	assert_string_equal(settle_except(&s, "a2"),
			    "[a1 a2 a3 b1 c1 +10] [a1 +10] [a2 +10] [b1 +10] [c1 +10] [!a2(1) +10]");
	assert_int_equal(s.window.rows, 0);
	assert_int_equal(s.feed.counts.settled, 3);
	assert_in_range(server.hold_delay_ms, 500, 1000);
	scene_close(&s);
}

static void rows_are_settled_together_again_after_the_refused_one_was_found(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1 c1", .exhausted = true });
	deliver(&s);
	turn(&s);
	settle_except(&s, "b1");
	bell_ring(&s.bell);
	turn(&s);
	turn(&s);
	reply(&s, (struct reply){ .rows = "d1 e1", .exhausted = true });
	deliver(&s);
	server.unchecked = 0;
	turn(&s);
	assert_exchange("d1 e1 +10");
	scene_close(&s);
}

static void a_single_row_that_settling_refuses_is_held_at_once(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true });
	deliver(&s);
	turn(&s);
	assert_string_equal(settle_except(&s, "a1"), "[a1 +10] [!a1(1) +10]");
	assert_int_equal(s.window.rows, 0);
	assert_int_equal(s.feed.counts.settled, 0);
	scene_close(&s);
}

static void several_refused_rows_are_all_found(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a7 b1 c7 d1 d7", .exhausted = true });
	deliver(&s);
	turn(&s);
	settle_except(&s, "7");
	assert_int_equal(s.window.rows, 0);
	assert_int_equal(s.feed.counts.settled, 2);
	assert_string_equal(server.said, "!a7(1) !c7(1) !d7(1) +10");
	scene_close(&s);
}

static void delivered_rows_are_settled_at_the_latest_with_a_beat(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	s.outbox.batch_max = BATCH_SIZE;
	turn(&s);
	reply(&s, (struct reply){ .rows = "a1 b1" });
	deliver(&s);
	reply(&s, (struct reply){ .rows = "c1 c2 c3 c4 c5 c6 c7 c8 c9 c10 c11" });
	submit(&s);                     /* and the sink keeps them */
	server.unchecked = 0;
	turn(&s);
	assert_quiet();
	for (int64_t end = s.now + BEAT_MS; s.now < end && server.unchecked == 0; s.now += 50)
		turn(&s);
	turn(&s);
	assert_exchange("a1 b1");
	scene_close(&s);
}

/* --- holding -------------------------------------------------------------------------------------------------- */

static void a_refused_row_is_recorded_with_its_attempts_and_a_delay(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true,
				  .retry = { SLICE_LITERAL("a"), SLICE_LITERAL("a1"), 3 } });
	assert_int_equal(first_ready(&s)->attempt, 3);
	assert_true(first_ready(&s)->alone);
	assert_true(first_ready(&s)->retried);
	refuse(&s, ERROR_REJECTED);
	server.unchecked = 0;
	turn(&s);
	assert_exchange("!a1(4) +10");
	assert_in_range(server.hold_delay_ms, 4000, 8000);
	reply(&s, (struct reply){ .exhausted = true });
	assert_int_equal(s.window.rows, 0);
	scene_close(&s);
}

/* What is recorded of a row that was refused as often as that before. */
static enum hold_kind kind_after(enum when_refused then, uint32_t attempts)
{
	enum hold_kind kind;
	struct scene s;

	prepare(&s);
	s.outbox.failure.then = then;
	turn(&s);
	reply(&s, (struct reply){ .rows = "a1 a2", .exhausted = true,
				  .retry = { SLICE_LITERAL("a"), SLICE_LITERAL("a1"), attempts } });
	refuse(&s, ERROR_REJECTED);
	turn(&s);
	kind = server.hold_kind;
	assert_int_equal(s.feed.stop.kind, then == REFUSED_STOP ? ERROR_REJECTED : ERROR_NONE);
	reply(&s, (struct reply){ .exhausted = true });
	assert_int_equal(s.window.rows, 0);     /* what stood behind it is claimed again */
	scene_close(&s);
	return kind;
}

static void what_is_recorded_of_a_refused_row_is_the_policys(void **state _unused_)
{
	assert_int_equal(kind_after(REFUSED_BLOCK, 9), HOLD_RETRY);
	assert_int_equal(kind_after(REFUSED_BLOCK, 10), HOLD_BLOCK);
	assert_int_equal(kind_after(REFUSED_DEAD_LETTER, 9), HOLD_RETRY);
	assert_int_equal(kind_after(REFUSED_DEAD_LETTER, 10), HOLD_BURY);
	assert_int_equal(kind_after(REFUSED_SKIP, 10), HOLD_SKIP);
	assert_int_equal(kind_after(REFUSED_STOP, 0), HOLD_STOP);
}

static void what_a_row_is_not_to_blame_for_is_not_counted(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true,
				  .retry = { SLICE_LITERAL("a"), SLICE_LITERAL("a1"), 2 } });
	refuse(&s, ERROR_AUTH);
	turn(&s);
	assert_string_equal(server.said, "!a1(2) +10");
	scene_close(&s);
}

static void an_entity_that_was_held_for_a_row_that_is_gone_starts_afresh(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a2", .exhausted = true,
				  .retry = { SLICE_LITERAL("a"), SLICE_LITERAL("a1"), 3 } });
	assert_int_equal(first_ready(&s)->attempt, 0);
	assert_false(first_ready(&s)->alone);
	assert_true(first_ready(&s)->retried);  /* its entry is to be cleared */
	scene_close(&s);
}

static void the_worker_wakes_when_a_held_entity_is_due(void **state _unused_)
{
	struct scene s;
	int64_t due;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true });
	refuse(&s, ERROR_REJECTED);
	turn(&s);
	due = s.now + server.hold_delay_ms;
	reply(&s, (struct reply){ .exhausted = true });
	assert_in_range(s.deadline, due, due + 200);
	s.now = s.deadline;
	server.unchecked = 0;
	turn(&s);
	turn(&s);
	assert_exchange("+10");
	scene_close(&s);
}

static void a_held_row_is_recorded_with_or_after_what_is_delivered_ahead_of_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 a2? a3 b1", .exhausted = true });
	assert_int_equal(s.window.rows, 3);
	deliver(&s);
	turn(&s);
	assert_string_equal(server.said, "b1 a1 !a2?(1) +10");
	scene_close(&s);
}

static void a_row_that_cannot_be_routed_holds_only_its_own_entity(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1? a2 a3? b1", .exhausted = true });
	assert_exchange("!a1?(1) +10");
	deliver(&s);
	reply(&s, (struct reply){ .exhausted = true });
	assert_exchange("b1 +10");
	scene_close(&s);
}

static void holds_that_cannot_be_recorded_now_are_recorded_later(void **state _unused_)
{
	static const enum error_kind kinds[] = { ERROR_TRANSPORT, ERROR_REJECTED, ERROR_CONFIG };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct scene s;

		scene_open(&s);
		assert_exchange("+10");
		reply(&s, (struct reply){ .rows = "a1? b1?", .exhausted = true });
		assert_exchange("!a1?(1) !b1?(1) +10");
		reply(&s, (struct reply){ .unsettled = true, .why = kinds[i], .exhausted = true });
		assert_quiet();
		s.now = s.deadline;
		turn(&s);
		assert_exchange("!a1?(1) !b1?(1) +10");
		reply(&s, (struct reply){ .exhausted = true });
		assert_int_equal(s.window.rows, 0);
		scene_close(&s);
	}
}

/* --- the connection ------------------------------------------------------------------------------------------- */

static void a_lost_connection_abandons_the_window_and_all_is_claimed_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1 c1", .exhausted = true });
	deliver(&s);
	turn(&s);
	server.lose_at_receive = true;
	turn(&s);
	server.lose_at_receive = false;
	assert_false(server.connected);
	assert_false(feed_connected(&s.feed));
	assert_int_equal(s.window.rows, 0);
	assert_in_range(s.deadline, s.now + 100, s.now + 200);
	server.unchecked = 0;
	s.now = s.deadline - 1;
	turn(&s);
	assert_int_equal(server.opens, 1);
	s.now = s.deadline;
	turn(&s);
	assert_int_equal(server.opens, 2);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 b1 c1", .exhausted = true });
	assert_int_equal(s.window.rows, 3);
	scene_close(&s);
}

static void rows_with_a_sink_outlive_the_connection_as_orphans(void **state _unused_)
{
	struct event *ev;
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	assert_int_equal(window_submit(&s.window, 0, &ev, 1), 1);
	server.lose_at_receive = true;
	turn(&s);
	assert_int_equal(s.window.rows, 1);
	assert_int_equal(s.window.orphans, 1);
	assert_true(feed_idle(&s.feed));
	window_passed(&s.window, ev);
	scene_close(&s);
}

static void a_connection_that_breaks_at_sending_is_lost_too(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	deliver(&s);
	server.lose_at_begin = true;
	turn(&s);
	assert_false(server.connected);
	assert_int_equal(s.window.rows, 0);
	assert_true(s.deadline > s.now);
	scene_close(&s);
}

static void a_server_that_is_away_is_asked_ever_less_often(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	server.refuse_open = ERROR_TRANSPORT;
	for (int64_t end = s.now + 60 * 1000; s.now < end; s.now += 5)
		if (s.now >= s.deadline)
			turn(&s);
	/* 0.2 s, 0.4 s, … up to 10 s, each shortened by up to a half. */
	assert_in_range(server.opens, 10, 20);
	assert_int_equal(s.feed.refused.kind, ERROR_NONE);
	server.refuse_open = ERROR_NONE;
	s.now = MAX(s.now, s.deadline);
	turn(&s);
	assert_true(feed_connected(&s.feed));
	scene_close(&s);
}

static void a_server_that_answers_and_then_breaks_is_not_asked_without_pause(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	server.lose_at_begin = true;            /* lets us in each time */
	for (int64_t end = s.now + 60 * 1000; s.now < end; s.now += 5)
		if (s.now >= s.deadline)
			turn(&s);
	assert_in_range(server.opens, 10, 20);
	scene_close(&s);
}

static void a_first_connection_that_is_refused_for_good_is_told(void **state _unused_)
{
	static const enum error_kind kinds[] = { ERROR_CONFIG, ERROR_AUTH };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		struct scene s;

		prepare(&s);
		server.refuse_open = kinds[i];
		turn(&s);
		assert_int_equal(s.feed.refused.kind, kinds[i]);
		scene_close(&s);
	}
}

static void a_later_refusal_is_waited_out(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .exhausted = true });
	server.lose_at_receive = true;
	turn(&s);
	server.refuse_open = ERROR_AUTH;
	s.now = s.deadline;
	turn(&s);
	assert_int_equal(server.opens, 2);
	assert_int_equal(s.feed.refused.kind, ERROR_NONE);
	scene_close(&s);
}

static void an_idle_connection_gives_a_sign_of_life(void **state _unused_)
{
	struct scene s;

	prepare(&s);
	s.bell.watchdog_ms = 3600 * 1000;
	turn(&s);
	reply(&s, (struct reply){ .exhausted = true });
	server.unchecked = 0;
	assert_int_equal(s.deadline, s.now + BEAT_MS);
	s.now = s.deadline - 1;
	turn(&s);
	assert_quiet();
	s.now = s.deadline;
	turn(&s);
	assert_exchange("");
	reply(&s, (struct reply){ 0 });
	assert_int_equal(s.deadline, s.now + BEAT_MS);
	scene_close(&s);
}

/* --- a sink that is away -------------------------------------------------------------------------------------- */

static void while_the_sink_is_away_rings_do_not_make_the_worker_claim(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1 b1", .exhausted = true });
	submit(&s);
	server.begins = 0;
	for (int64_t end = s.now + 5000; s.now < end; s.now += 10) {
		bell_ring(&s.bell);
		turn(&s);
		if (server.busy)
			reply(&s, (struct reply){ .exhausted = true });
	}
	/* Until it is noticed every ring counts; then none does. */
	assert_true(server.begins <= 51);
	assert_true(s.deadline <= s.now + 1000);
	scene_close(&s);
}

/* --- the end -------------------------------------------------------------------------------------------------- */

static void a_draining_feed_claims_no_more_and_settles_what_it_has(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	assert_exchange("+10");
	reply(&s, (struct reply){ .rows = "a1 b1?" });
	assert_exchange("!b1?(1) +20");
	feed_drain(&s.feed);
	/* A claim was under way: what it brings is worked off as well. */
	reply(&s, (struct reply){ .rows = "c1" });
	assert_quiet();
	assert_false(feed_idle(&s.feed));
	deliver(&s);
	turn(&s);
	assert_exchange("a1 c1");
	assert_false(feed_idle(&s.feed));
	reply(&s, (struct reply){ 0 });
	assert_true(feed_idle(&s.feed));
	assert_int_equal(s.feed.counts.settled, 2);
	bell_ring(&s.bell);
	s.now += WATCHDOG_MS;
	turn(&s);
	assert_quiet();
	scene_close(&s);
}

static void a_draining_feed_that_settles_again_after_a_failure_claims_nothing_with_it(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true });
	deliver(&s);
	turn(&s);
	reply(&s, (struct reply){ .unsettled = true, .why = ERROR_TRANSPORT });
	feed_drain(&s.feed);
	s.now = s.deadline;
	server.unchecked = 0;
	turn(&s);
	assert_exchange("a1");
	reply(&s, (struct reply){ 0 });
	assert_true(feed_idle(&s.feed));
	scene_close(&s);
}

static void a_draining_feed_is_not_idle_before_the_answer_is_in(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	feed_drain(&s.feed);
	assert_false(feed_idle(&s.feed));
	reply(&s, (struct reply){ .exhausted = true });
	assert_true(feed_idle(&s.feed));
	scene_close(&s);
}

static void a_draining_feed_does_not_connect_again(void **state _unused_)
{
	struct scene s;

	scene_open(&s);
	reply(&s, (struct reply){ .rows = "a1", .exhausted = true });
	feed_drain(&s.feed);
	server.lose_at_receive = true;
	turn(&s);
	assert_true(feed_idle(&s.feed));
	s.now += 60 * 1000;
	turn(&s);
	assert_int_equal(server.opens, 1);
	scene_close(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(claims_grow_while_there_is_more_and_begin_anew_when_there_is_not),
		cmocka_unit_test(under_a_backlog_a_worker_waits_for_its_turn_to_claim),
		cmocka_unit_test(what_one_transaction_holds_is_settled_whole_and_with_the_next_claim),
		cmocka_unit_test(without_order_a_refused_row_is_held_alone),
		cmocka_unit_test(an_empty_claim_does_not_make_the_next_one_larger),
		cmocka_unit_test(plenty_is_told_to_another_worker),
		cmocka_unit_test(a_worker_that_found_nothing_sleeps_until_the_bell_or_the_watchdog),
		cmocka_unit_test(while_it_is_paused_nothing_is_claimed_and_what_is_on_its_way_is_settled),
		cmocka_unit_test(a_ring_during_the_claim_is_not_missed),
		cmocka_unit_test(a_worker_that_finds_everything_claimed_does_not_spin),
		cmocka_unit_test(an_exchange_that_only_gave_entities_back_is_followed_by_a_claim),
		cmocka_unit_test(entities_in_the_window_are_named_to_the_reader_except_those_that_end),
		cmocka_unit_test(no_more_rows_are_claimed_than_two_claims_at_their_largest),
		cmocka_unit_test(no_more_bytes_are_claimed_than_there_is_room_for),
		cmocka_unit_test(a_row_larger_than_all_room_is_claimed_alone),
		cmocka_unit_test(no_more_entities_are_claimed_than_the_reader_can_hold),
		cmocka_unit_test(settling_travels_with_the_next_claim),
		cmocka_unit_test(one_exchange_is_under_way_at_a_time),
		cmocka_unit_test(a_settle_that_the_server_could_not_do_now_is_repeated_later_with_the_same_rows),
		cmocka_unit_test(waits_between_failing_settles_grow_and_begin_anew_when_it_worked),
		cmocka_unit_test(while_a_failed_settle_waits_there_are_beats),
		cmocka_unit_test(a_reader_says_when_to_look_again),
		cmocka_unit_test(a_row_that_is_scheduled_wakes_the_worker_in_time),
		cmocka_unit_test(rows_that_were_not_where_they_had_been_are_settled_again_at_once),
		cmocka_unit_test(what_was_claimed_beside_a_failing_settle_is_sent_all_the_same),
		cmocka_unit_test(a_refused_settle_is_repeated_row_by_row_and_holds_only_the_row_that_is_meant),
		cmocka_unit_test(rows_are_settled_together_again_after_the_refused_one_was_found),
		cmocka_unit_test(a_single_row_that_settling_refuses_is_held_at_once),
		cmocka_unit_test(several_refused_rows_are_all_found),
		cmocka_unit_test(delivered_rows_are_settled_at_the_latest_with_a_beat),
		cmocka_unit_test(a_refused_row_is_recorded_with_its_attempts_and_a_delay),
		cmocka_unit_test(what_is_recorded_of_a_refused_row_is_the_policys),
		cmocka_unit_test(what_a_row_is_not_to_blame_for_is_not_counted),
		cmocka_unit_test(an_entity_that_was_held_for_a_row_that_is_gone_starts_afresh),
		cmocka_unit_test(the_worker_wakes_when_a_held_entity_is_due),
		cmocka_unit_test(a_held_row_is_recorded_with_or_after_what_is_delivered_ahead_of_it),
		cmocka_unit_test(a_row_that_cannot_be_routed_holds_only_its_own_entity),
		cmocka_unit_test(holds_that_cannot_be_recorded_now_are_recorded_later),
		cmocka_unit_test(a_lost_connection_abandons_the_window_and_all_is_claimed_again),
		cmocka_unit_test(rows_with_a_sink_outlive_the_connection_as_orphans),
		cmocka_unit_test(a_connection_that_breaks_at_sending_is_lost_too),
		cmocka_unit_test(a_server_that_is_away_is_asked_ever_less_often),
		cmocka_unit_test(a_server_that_answers_and_then_breaks_is_not_asked_without_pause),
		cmocka_unit_test(a_first_connection_that_is_refused_for_good_is_told),
		cmocka_unit_test(a_later_refusal_is_waited_out),
		cmocka_unit_test(an_idle_connection_gives_a_sign_of_life),
		cmocka_unit_test(while_the_sink_is_away_rings_do_not_make_the_worker_claim),
		cmocka_unit_test(a_draining_feed_claims_no_more_and_settles_what_it_has),
		cmocka_unit_test(a_draining_feed_that_settles_again_after_a_failure_claims_nothing_with_it),
		cmocka_unit_test(a_draining_feed_is_not_idle_before_the_answer_is_in),
		cmocka_unit_test(a_draining_feed_does_not_connect_again),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
