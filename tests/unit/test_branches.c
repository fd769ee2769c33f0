/* Outboxes with branches: what loading makes of them, and what is wrong with some. */
#include "config_fixture.h"

#define BRANCHES OUTBOX "    branches:\n"

static struct config *loaded(const char *yaml, struct config_request req)
{
	_cleanup_(mem_freep) char *errors = NULL;
	struct config *c = NULL;

	if (!load_request(yaml, req, &c, &errors))
		fail_msg("%s", errors);
	assert_string_equal(errors, "");
	return c;
}

static const struct outbox_config *outbox(const struct config *c, const char *name)
{
	for (size_t i = 0; i < c->n_outboxes; i++)
		if (strcmp(c->outboxes[i].name, name) == 0)
			return &c->outboxes[i];
	fail_msg("no outbox %s", name);
	return NULL;
}

static void an_outbox_becomes_itself_and_one_for_each_branch(void **state _unused_)
{
	_cleanup_(config_freep) struct config *c =
		loaded(BRANCHES "      search:\n        only: {event_type: order.*, headers: {tenant: acme}}\n"
				"        sinks: [{type: stdout}]\n      stream:\n        sinks: [{type: postgres}]\n"
				"  other:\n    table: public.other\n" SINK,
		       (struct config_request){ 0 });
	const struct outbox_config *orders = outbox(c, "orders"), *search = outbox(c, "orders.search");

	assert_int_equal(c->n_outboxes, 4);
	assert_int_equal(orders->n_branches, 2);
	assert_ptr_equal(orders->branches, search);
	assert_ptr_equal(search->parent, orders);
	assert_int_equal(orders->n_sinks, 1);
	assert_string_equal(orders->sinks[0].type, "branches");
	assert_ptr_equal(orders->sinks[0].branches.outbox, orders);
	assert_string_equal(search->sinks[0].type, "stdout");
	assert_string_equal(search->only.event_type, "order.*");
	assert_string_equal(search->only.headers.pairs[0].value, "acme");
	assert_string_equal(search->table, "postrider.\"branch_orders.search\"");
	assert_string_equal(search->order_by.name, BRANCH_ORDER_COLUMN);
	assert_string_equal(search->columns.scheduled_for.name, "");
	assert_string_equal(search->where, "f.yaml:4:7");
	assert_int_equal(outbox(c, "other")->n_branches, 0);
	assert_null(outbox(c, "other")->parent);
}

static void what_a_branch_does_not_say_is_its_outboxs(void **state _unused_)
{
	_cleanup_(config_freep) struct config *c =
		loaded(OUTBOX "    preset: debezium\n    workers: 7\n    published: mark\n    route: {headers: {a: x, b: x}}\n"
			      "    failure: {then: skip}\n    branches:\n"
			      "      one: {sinks: [{type: stdout}]}\n"
			      "      two: {workers: 2, route: {headers: {b: y}}, published: archive, sinks: [{type: stdout}]}\n",
		       (struct config_request){ 0 });
	const struct outbox_config *one = outbox(c, "orders.one"), *two = outbox(c, "orders.two");

	assert_int_equal(one->workers, 7);
	assert_int_equal(two->workers, 2);
	assert_string_equal(one->columns.entity_id.name, outbox(c, "orders")->columns.entity_id.name);
	assert_string_equal(one->columns.entity_id.name, "aggregateid");
	assert_int_equal(one->failure.then, REFUSED_SKIP);
	assert_int_equal(one->published, PUBLISHED_DELETE);
	assert_int_equal(two->published, PUBLISHED_ARCHIVE);
	assert_int_equal(one->route.headers.count, 2);
	assert_int_equal(two->route.headers.count, 2);
	assert_string_equal(two->route.headers.pairs[0].value, "y");
	assert_string_equal(two->route.headers.pairs[1].key, "a");
	assert_string_equal(one->route.source, "/postrider/orders");
}

/* The outbox itself publishes nothing: what would refuse a row there is no longer asked for. */
static void the_route_of_the_outbox_is_for_deciding_only(void **state _unused_)
{
	static const char yaml[] = OUTBOX
		"    route: {topic: \"{nothing}\", envelope: cloudevents}\n    failure: {dead_letter_topic: dead}\n"
		"    branches:\n      one: {sinks: [{type: stdout}]}\n";
	static const char by_topic[] = OUTBOX
		"    route: {topic: \"{entity_type}\"}\n    branches:\n      one: {only: {topic: a*}, sinks: [{type: stdout}]}\n";
	_cleanup_(config_freep) struct config *c = loaded(yaml, (struct config_request){ 0 });
	_cleanup_(config_freep) struct config *d = loaded(by_topic, (struct config_request){ 0 });

	assert_string_equal(c->outboxes[0].route.topic, "branches");
	assert_int_equal(c->outboxes[0].route.envelope, ENVELOPE_PLAIN);
	assert_string_equal(c->outboxes[0].failure.dead_letter_topic, "");
	assert_string_equal(c->outboxes[1].route.topic, "{nothing}");
	assert_int_equal(c->outboxes[1].route.envelope, ENVELOPE_CLOUDEVENTS);
	assert_string_equal(c->outboxes[1].failure.dead_letter_topic, "dead");
	assert_string_equal(d->outboxes[0].route.topic, "{entity_type}");
}

static void variables_and_flags_reach_branches(void **state _unused_)
{
	static const char *const sets[] = { "outboxes.orders.branches.one.batch_size=9",
					    "outboxes.orders.branches.one.only.headers.tenant=acme" };
	char *environment[] = { (char[]){ "POSTRIDER_OUTBOXES_ORDERS_BRANCHES_ONE_WORKERS=3" },
				(char[]){ "POSTRIDER_OUTBOXES_ORDERS_BRANCHES_ONE_SINKS_0_PATH=/x" },
				(char[]){ "OUTBOX_POLL_INTERVAL=7s" }, NULL };
	_cleanup_(config_freep) struct config *c =
		loaded(BRANCHES "      one: {poll_interval: 1s, sinks: [{type: stdout}]}\n",
		       (struct config_request){ .environment = environment, .sets = sets, .n_sets = ARRAY_SIZE(sets) });
	const struct outbox_config *one = outbox(c, "orders.one");

	assert_int_equal(one->workers, 3);
	assert_int_equal(one->batch_size, 9);
	assert_int_equal(one->poll_interval_ms, 7000);
	assert_string_equal(one->sinks[0].std.path, "/x");
	assert_string_equal(one->only.headers.pairs[0].value, "acme");
	assert_int_equal(outbox(c, "orders")->workers, 4);
}

static void wrong_branches_are_told_with_their_place(void **state _unused_)
{
	static const struct {
		const char *yaml, *errors;
	} cases[] = {
		{ BRANCHES "      one: {sinks: [{type: stdout}]}\n    sinks: [{type: stdout}]\n",
		  "f.yaml:5:13: outbox `orders` has `sinks` and `branches`: make a branch of the sinks, or leave the branches out\n" },
		{ OUTBOX "    branches: [a]\n    sinks: [{type: stdout}]\n",
		  "f.yaml:3:15: `branches` must be a mapping of names to branches, not a list\n" },
		{ OUTBOX "    branches: {}\n",
		  "f.yaml:2:3: outbox `orders` has no sinks; write for example `sinks: [{type: stdout}]`\n" },
		{ BRANCHES "      one: {}\n",
		  "f.yaml:4:7: outbox `orders.one` has no sinks; write for example `sinks: [{type: stdout}]`\n" },
		{ BRANCHES "      one: text\n",
		  "f.yaml:4:12: a branch must be a mapping, not text\n"
		  "f.yaml:4:7: outbox `orders.one` has no sinks; write for example `sinks: [{type: stdout}]`\n" },
		{ BRANCHES "      O.ne: {sinks: [{type: stdout}]}\n",
		  "f.yaml:4:7: the name of a branch must be 1 to 40 small letters, digits, _ or -, not \"O.ne\"\n" },
		{ BRANCHES "      a-name-that-is-long-enough-to-be-cut: {sinks: [{type: stdout}]}\n",
		  "f.yaml:4:7: the names of an outbox and of its branch may be 32 characters long together, and "
		  "`orders.a-name-that-is-long-enough-to-be-cut` is 42\n" },
		{ BRANCHES "      one: {table: public.x, columns: {id: n}, order_by: n, sinks: [{type: stdout}]}\n",
		  "f.yaml:4:20: a branch has no `table` of its own: `postrider init` makes the table of a branch\n"
		  "f.yaml:4:58: a branch has no `order_by` of its own: the rows of a branch have the order in which they left the "
		  "outbox\n"
		  "f.yaml:4:44: a branch has no `columns.id` of its own: a branch has the columns of its outbox\n" },
		{ BRANCHES "      one: {branches: {x: {}}, sinks: [{type: stdout}]}\n", NULL },
		{ BRANCHES "      one: {only: {type: x}, sinks: [{type: stdout}]}\n",
		  "f.yaml:4:20: unknown key \"type\"; known are event_type, topic, headers\n" },
		{ OUTBOX "    only: {topic: x}\n" SINK, NULL },
		{ OUTBOX "    shards: {count: 3}\n    branches:\n      one: {sinks: [{type: stdout}]}\n",
		  "f.yaml:3:21: `shards.count` is 3, which is not a power of two\n" },
		{ BRANCHES "      one: {sinks: [{type: branches}]}\n",
		  "f.yaml:4:28: this build has no sink of type \"branches\"; known are kafka, postgres, stdout\n" },
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		_cleanup_(mem_freep) char *errors = NULL;
		struct config *c = NULL;

		assert_false(load_request(cases[i].yaml, (struct config_request){ 0 }, &c, &errors));
		if (cases[i].errors)
			assert_string_equal(errors, cases[i].errors);
		else
			assert_non_null(strstr(errors, "unknown key"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_outbox_becomes_itself_and_one_for_each_branch),
		cmocka_unit_test(what_a_branch_does_not_say_is_its_outboxs),
		cmocka_unit_test(the_route_of_the_outbox_is_for_deciding_only),
		cmocka_unit_test(variables_and_flags_reach_branches),
		cmocka_unit_test(wrong_branches_are_told_with_their_place),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
