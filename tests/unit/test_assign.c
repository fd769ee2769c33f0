#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/backoff.h"
#include "base/macros.h"
#include "config/shard_list.h"
#include "read/assign.h"

enum { SHARDS = 16, MEMBERS_MAX = 24 };

static const struct member cluster[MEMBERS_MAX] = {
	{ "a", 1, 0 }, { "a", 1, 1 }, { "b", 2, 0 }, { "b", 2, 1 }, { "c", 3, 0 }, { "c", 3, 1 },
	{ "d", 4, 0 }, { "e", 5, 0 }, { "f", 6, 0 }, { "g", 7, 0 }, { "h", 8, 0 }, { "i", 9, 0 },
	{ "j", 10, 0 }, { "k", 11, 0 }, { "l", 12, 0 }, { "m", 13, 0 }, { "n", 14, 0 }, { "o", 15, 0 },
	{ "p", 16, 0 }, { "q", 17, 0 }, { "r", 18, 0 }, { "s", 19, 0 }, { "t", 20, 0 }, { "u", 21, 0 },
};

static void nobody_owns_anything(int32_t owners[SHARDS])
{
	for (uint32_t i = 0; i < SHARDS; i++)
		owners[i] = ASSIGN_NOBODY;
}

/* Members act one after the other: give up what they do not want, take what is free and wanted. Returns how many shards
 * changed hands. */
static uint32_t settle_down(uint32_t n_members, int32_t owners[SHARDS])
{
	uint32_t moved = 0;

	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t me = 0; me < n_members; me++) {
			bool wanted[SHARDS];

			assign_dynamic(cluster, n_members, me, owners, SHARDS, wanted);
			for (uint32_t i = 0; i < SHARDS; i++) {
				if (owners[i] == (int32_t)me && !wanted[i])
					owners[i] = ASSIGN_NOBODY;
				if (owners[i] == ASSIGN_NOBODY && wanted[i]) {
					owners[i] = (int32_t)me;
					moved++;
				}
			}
		}
	}
	return moved;
}

static void count_shares(const int32_t owners[SHARDS], uint32_t counts[MEMBERS_MAX])
{
	memset(counts, 0, MEMBERS_MAX * sizeof(*counts));
	for (uint32_t i = 0; i < SHARDS; i++) {
		assert_int_not_equal(owners[i], ASSIGN_NOBODY);
		counts[owners[i]]++;
	}
}

static void dynamic_shares_are_fair_and_complete_for_any_number_of_members(void **state _unused_)
{
	for (uint32_t n = 1; n <= MEMBERS_MAX; n++) {
		int32_t owners[SHARDS];
		uint32_t counts[MEMBERS_MAX];

		nobody_owns_anything(owners);
		settle_down(n, owners);
		count_shares(owners, counts);
		for (uint32_t i = 0; i < n; i++)
			assert_in_range(counts[i], SHARDS / n, SHARDS / n + (SHARDS % n > 0));
	}
}

static void dynamic_moves_no_more_than_the_newcomer_gets(void **state _unused_)
{
	int32_t owners[SHARDS];

	nobody_owns_anything(owners);
	settle_down(3, owners);
	assert_int_equal(settle_down(4, owners), SHARDS / 4);
	assert_int_equal(settle_down(4, owners), 0);
}

static void a_shard_of_somebody_unknown_is_not_free(void **state _unused_)
{
	int32_t owners[SHARDS];
	bool wanted[SHARDS];

	for (uint32_t i = 0; i < SHARDS; i++)
		owners[i] = 1;  /* one member, number 0: this is somebody else */
	assign_dynamic(cluster, 1, 0, owners, SHARDS, wanted);
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_false(wanted[i]);
}

static uint32_t rendezvous_owner(const struct member *members, uint32_t n, uint32_t shard)
{
	uint32_t owner = n;

	for (uint32_t me = 0; me < n; me++) {
		bool wanted[SHARDS];

		assign_rendezvous(members, n, me, SHARDS, wanted);
		if (!wanted[shard])
			continue;
		assert_int_equal(owner, n);     /* nobody else wants it */
		owner = me;
	}
	assert_int_not_equal(owner, n);
	return owner;
}

static void rendezvous_gives_each_shard_to_one_and_moves_only_those_of_who_left(void **state _unused_)
{
	for (uint32_t shard = 0; shard < SHARDS; shard++) {
		uint32_t before = rendezvous_owner(cluster, 6, shard);
		uint32_t after = rendezvous_owner(cluster, 5, shard);   /* the last one has left */

		if (before != 5)
			assert_int_equal(after, before);
	}
}

static void rendezvous_goes_by_name_so_that_who_comes_back_gets_the_same(void **state _unused_)
{
	struct member restarted[6];

	memcpy(restarted, cluster, sizeof(restarted));
	restarted[2].node = restarted[3].node = 77;
	for (uint32_t shard = 0; shard < SHARDS; shard++)
		assert_int_equal(rendezvous_owner(cluster, 6, shard), rendezvous_owner(restarted, 6, shard));
}

static void rendezvous_tells_namesakes_apart(void **state _unused_)
{
	const struct member twins[] = { { "a", 1, 0 }, { "a", 2, 0 } };
	uint32_t counts[2] = { 0 };

	for (uint32_t shard = 0; shard < SHARDS; shard++)
		counts[rendezvous_owner(twins, 2, shard)]++;
	assert_true(counts[0] > 0 && counts[1] > 0);
}

static void static_lists_go_round_the_workers(void **state _unused_)
{
	bool own[SHARDS] = { false }, wanted[SHARDS];
	uint32_t owners[SHARDS] = { 0 };

	assert_true(shard_list_parse("1, 4-7 ,15", SHARDS, own));
	for (uint32_t worker = 0; worker < 4; worker++) {
		assign_static(own, worker, 4, SHARDS, wanted);
		for (uint32_t i = 0; i < SHARDS; i++)
			owners[i] += wanted[i];
	}
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_int_equal(owners[i], own[i]);
}

static void lists_of_shards_are_read_strictly(void **state _unused_)
{
	static const char *const right[] = { "0", "15", "0-15", "3-3", " 1 , 2 ", "0,0" };
	static const char *const wrong[] = { "", "16", "0-16", "3-2", "1,", ",1", "a", "1-", "-1", "1 2", "1;2",
					     "99999999999999999999" };

	for (size_t i = 0; i < ARRAY_SIZE(right); i++)
		assert_true(shard_list_parse(right[i], SHARDS, NULL));
	for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
		assert_false(shard_list_parse(wrong[i], SHARDS, NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(dynamic_shares_are_fair_and_complete_for_any_number_of_members),
		cmocka_unit_test(dynamic_moves_no_more_than_the_newcomer_gets),
		cmocka_unit_test(a_shard_of_somebody_unknown_is_not_free),
		cmocka_unit_test(rendezvous_gives_each_shard_to_one_and_moves_only_those_of_who_left),
		cmocka_unit_test(rendezvous_goes_by_name_so_that_who_comes_back_gets_the_same),
		cmocka_unit_test(rendezvous_tells_namesakes_apart),
		cmocka_unit_test(static_lists_go_round_the_workers),
		cmocka_unit_test(lists_of_shards_are_read_strictly),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
