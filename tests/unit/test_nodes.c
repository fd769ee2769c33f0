/* A node among others: when it may trust its own claims, and what it makes of what it sees of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/macros.h"
#include "keep/node.h"
#include "keep/peers.h"

/* --- trust ---------------------------------------------------------------------------------------------------- */

static void a_node_is_trusted_until_half_a_beat_before_others_may_take_it_for_dead(void **state _unused_)
{
	struct node n = { .heartbeat_ms = 1000, .id = 7, .beat_ms = 50000 };

	assert_true(node_is_trusted(&n, 50000));
	assert_true(node_is_trusted(&n, 52500));
	assert_false(node_is_trusted(&n, 52501));
	atomic_store(&n.beat_ms, 52000);
	assert_true(node_is_trusted(&n, 54500));
}

static void a_node_that_is_not_registered_is_not_trusted(void **state _unused_)
{
	struct node n = { .heartbeat_ms = 1000, .id = 0, .beat_ms = 50000 };

	assert_false(node_is_trusted(&n, 50000));
}

static void what_others_wait_for_is_longer_than_trust_at_every_heartbeat(void **state _unused_)
{
	static const int64_t heartbeats[] = { 100, 101, 999, 1000, 60000 };

	for (size_t i = 0; i < ARRAY_SIZE(heartbeats); i++) {
		struct node n = { .heartbeat_ms = heartbeats[i], .id = 1, .beat_ms = 1 };

		assert_true(node_is_trusted(&n, 1 + heartbeats[i] * 2));
		assert_false(node_is_trusted(&n, 1 + heartbeats[i] * 3 - heartbeats[i] / 2 + 1));
	}
}

/* --- peers ---------------------------------------------------------------------------------------------------- */

static struct peer_sight well(int64_t id)
{
	return (struct peer_sight){ .id = id, .name = "other", .version = "1" };
}

/* One look at these nodes; true when rows may have become free. */
static bool look(struct peers *p, const struct peer_sight *sights, size_t n)
{
	peers_begin(p);
	for (size_t i = 0; i < n; i++)
		peers_see(p, &sights[i]);
	return peers_end(p);
}

static void healthy_nodes_that_come_and_stay_free_nothing(void **state _unused_)
{
	struct peers p = { 0 };
	const struct peer_sight sights[] = { well(1), well(2), well(3) };

	assert_false(look(&p, sights, 0));
	assert_false(look(&p, sights, 2));
	assert_false(look(&p, sights, 3));
	assert_false(look(&p, sights, 3));
	assert_int_equal(p.count, 3);
	peers_release(&p);
}

static void a_node_that_leaves_frees_what_it_held_once(void **state _unused_)
{
	struct peers p = { 0 };
	const struct peer_sight sights[] = { well(1), well(2), well(3) };

	look(&p, sights, 3);
	assert_true(look(&p, sights + 1, 2));
	assert_false(look(&p, sights + 1, 2));
	assert_true(look(&p, sights, 0));
	assert_int_equal(p.count, 0);
	peers_release(&p);
}

static void a_node_that_is_gone_or_silent_frees_until_it_is_back(void **state _unused_)
{
	struct peers p = { 0 };
	struct peer_sight sight = well(1);

	look(&p, &sight, 1);
	sight.gone = true;
	assert_true(look(&p, &sight, 1));
	assert_true(look(&p, &sight, 1));
	sight.gone = false;
	sight.silent = true;
	assert_true(look(&p, &sight, 1));
	sight.silent = false;
	assert_false(look(&p, &sight, 1));
	peers_release(&p);
}

static void a_node_that_was_buried_is_not_missed(void **state _unused_)
{
	struct peers p = { 0 };
	const struct peer_sight sights[] = { well(1), well(2) };

	look(&p, sights, 2);
	peers_forget(&p, 1);
	peers_forget(&p, 1);
	assert_int_equal(p.count, 1);
	assert_int_equal(p.items[0].id, 2);
	assert_false(look(&p, sights + 1, 1));
	peers_release(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_node_is_trusted_until_half_a_beat_before_others_may_take_it_for_dead),
		cmocka_unit_test(a_node_that_is_not_registered_is_not_trusted),
		cmocka_unit_test(what_others_wait_for_is_longer_than_trust_at_every_heartbeat),
		cmocka_unit_test(healthy_nodes_that_come_and_stay_free_nothing),
		cmocka_unit_test(a_node_that_leaves_frees_what_it_held_once),
		cmocka_unit_test(a_node_that_is_gone_or_silent_frees_until_it_is_back),
		cmocka_unit_test(a_node_that_was_buried_is_not_missed),
	};

	log_silence();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
