/* SPDX-License-Identifier: MIT */
/*
 * What a volume must notice before it gives a copy up, or relies on one: slabs that a donor took
 * without naming them, and a second copy that fails while the first one leaves or cannot be
 * reached.
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

/* ---- two failures at once ---- */

struct moving {
	struct vol_world *w;
	char from[64];
	unsigned killed, lost, added; /* atomic; the two others: calls for the copy at from */
};

/* The copy at from has moved: the donor of the new one is killed before the authority agrees. */
static int moving_lose(void *arg, const struct gn_vol_copy *copy)
{
	struct moving *m = arg;
	struct gn_vol_stats s;
	unsigned to;

	if (strcmp(copy->donor, m->from))
		return 0;
	__atomic_add_fetch(&m->lost, 1, __ATOMIC_ACQ_REL);
	if (__atomic_exchange_n(&m->killed, 1, __ATOMIC_ACQ_REL))
		return 0;
	to = !strcmp(m->w->addrs[0], m->from);
	donor_kill(m->w, to);
	VOL_AWAIT(m->w, s, s.donors[to].copies == 0);
	return 0;
}

static int moving_add(void *arg, const struct gn_vol_copy *copy)
{
	struct moving *m = arg;

	if (!strcmp(copy->donor, m->from))
		__atomic_add_fetch(&m->added, 1, __ATOMIC_ACQ_REL);
	return 0;
}

/* A donor leaves, and the one that its only copy moved to is lost: the copy stays where it was. */
static void test_move_to_a_donor_that_is_lost(void **state)
{
	struct moving m = {0};
	const struct gn_vol_authority authority = {moving_lose, moving_add, &m};
	struct gn_vol_opts opts;
	struct gn_vol_stats s;
	struct vol_world w;
	unsigned from;

	(void)state;
	m.w = &w;
	world_open(&w, 2, 4);
	opts = vol_opts(&w, VOL_SLAB, 1);
	opts.detect_us = DETECT;
	opts.repair_share = 100;
	opts.authority = &authority;
	vol_open(&w, &opts);
	fill(bytes, VOL_SLAB, 3);
	assert_int_equal(gn_vol_write(w.vol, bytes, VOL_SLAB, 0, 0), 0);
	from = donor_read(&w, 0);
	snprintf(m.from, sizeof(m.from), "%s", w.addrs[from]);
	assert_int_equal(gn_donor_server_leave(w.donor[from].server, gn_deadline_us(LONG_US)), 0);
	/* The authority knows again of the copy that it was told to forget. */
	VOL_AWAIT(&w, s,
		  s.donors[!from].lost == 1 && s.with_copies[1] == 1 &&
			  __atomic_load_n(&m.added, __ATOMIC_ACQUIRE) ==
				  __atomic_load_n(&m.lost, __ATOMIC_ACQUIRE));
	assert_int_equal(s.blocks_lost, 0);
	assert_int_equal(gn_vol_read(w.vol, got, VOL_SLAB, 0), 0);
	assert_memory_equal(got, bytes, VOL_SLAB);
	donor_start(&w, !from); /* when it is back the copy moves */
	assert_int_equal(gn_donor_server_drain(w.donor[from].server, gn_deadline_us(LONG_US)), 0);
	assert_int_equal(gn_vol_read(w.vol, got, VOL_SLAB, 0), 0);
	assert_memory_equal(got, bytes, VOL_SLAB);
	world_close(&w);
}

struct refusing {
	char first[64];
	unsigned asked, asked_first; /* atomic: calls; … for the copy at first */
};

static int refusing_lose(void *arg, const struct gn_vol_copy *copy)
{
	struct refusing *r = arg;

	__atomic_add_fetch(&r->asked, 1, __ATOMIC_ACQ_REL);
	if (!strcmp(copy->donor, r->first))
		__atomic_add_fetch(&r->asked_first, 1, __ATOMIC_ACQ_REL);
	return -EAGAIN;
}

struct cut {
	struct link_task task;
	struct gn_donor_server *server;
};

static void cut_run(struct link_task *task)
{
	struct gn_donor_server *server = ((struct cut *)(void *)task)->server;
	struct link_conn *next;

	server->opts.max_conns = 0;
	for (struct link_conn *link = server->loop.conns; link; link = next) {
		next = link->next;
		link_conn_close(link);
	}
}

/* A donor that cannot be reached is not given up if the only other copy is one that failed. */
static void test_other_copy_failed(void **state)
{
	struct refusing r = {0};
	const struct gn_vol_authority authority = {refusing_lose, NULL, &r};
	const uint64_t until_ns = gn_deadline_us(LONG_US);
	struct gn_vol_opts opts;
	struct vol_copy *other;
	struct vol_world w;
	static struct cut cut = {.task = {.run = cut_run}}; /* the donor accepts no data now */
	unsigned first, looked = 0;

	(void)state;
	world_open(&w, 2, 4);
	opts = vol_opts(&w, VOL_SLAB, 2);
	opts.detect_us = DETECT;
	opts.authority = &authority;
	vol_open(&w, &opts);
	assert_int_equal(gn_vol_write(w.vol, bytes, VOL_SLAB, 0, 0), 0);
	first = donor_read(&w, 0);
	snprintf(r.first, sizeof(r.first), "%s", w.addrs[first]);
	other = w.vol->extents[0].copy[1];
	vol_keeper_report_copy(other);
	cut.server = w.donor[first].server;
	link_loop_post(&cut.server->loop, &cut.task);
	/* The keeper asks again whenever it has looked at the donors. */
	while (__atomic_load_n(&r.asked, __ATOMIC_ACQUIRE) < looked + 3) {
		if (gn_io_target_down_us(w.vol->donors[first].target) < 2 * DETECT)
			looked = __atomic_load_n(&r.asked, __ATOMIC_ACQUIRE);
		assert_true(gn_now_ns() < until_ns);
		gn_sleep_us(500);
	}
	assert_int_equal(__atomic_load_n(&r.asked_first, __ATOMIC_ACQUIRE), 0);
	assert_int_equal(vol_stats(&w).donors[first].copies, 1);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_many_taken),
		cmocka_unit_test(test_move_to_a_donor_that_is_lost),
		cmocka_unit_test(test_other_copy_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
