/* SPDX-License-Identifier: MIT */
/*
 * What a volume must notice before it relies on a copy: slabs that a donor took without naming them.
 */
#define EXTENTS 20u
#include "vol_filled.h"

static const struct gn_vol_opts plain = {.size = 0};

/* ---- slabs that were taken ---- */

/*
 * The donor takes more slabs at once than it names: all of them are copies that are lost, also those
 * that nobody reads or writes.
 */
static void test_many_taken(void **state)
{
	struct gn_donor_server *server;
	struct gn_vol_stats s;
	struct vol_world w;

	(void)state;
	static_assert(EXTENTS > DONOR_TAKEN_MAX + 1, "one more is told at once");
	open_filled(&w, 2, 2, 2 * EXTENTS, &plain);
	server = w.donor[1].server;
	gn_mutex_lock(&server->lock);
	for (unsigned i = 0; i < server->n_slabs; i++) {
		server->slabs[i].asked_ns = server->slabs[i].state == SLAB_GRANTED;
		server->slabs[i].asked_told = true;
	}
	gn_mutex_unlock(&server->lock);
	__atomic_store_n(&w.donor[1].available, 0, __ATOMIC_RELAXED);
	VOL_AWAIT(&w, s, s.copies_lost == EXTENTS);
	assert_int_equal(s.donors[1].lost, 0);
	__atomic_store_n(&w.donor[1].available, UINT64_MAX, __ATOMIC_RELAXED);
	VOL_AWAIT(&w, s, is_whole(&s));
	check_all(&w);
	assert_copies_equal(&w, 2);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_taken),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
