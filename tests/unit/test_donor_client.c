/* SPDX-License-Identifier: MIT */
/* A donor's client: the session, its slabs as regions of the engine, shares, notices, restarts. */
#include "donor_world.h"

#define N 4096u

struct user {
	struct gn_io *io;
	struct gn_donor *donor;
	struct gn_io_queue *queue;
	uint8_t buf[N];
};

static int user_open(struct donor_world *w, struct gn_fabric *fabric, struct user *u,
		     const struct gn_donor_id *id)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts), .owner = "me", .id = id};

	EXPECT(gn_io_create(fabric, NULL, &u->io) == 0);
	EXPECT(gn_donor_connect(fabric, u->io, w->addr, &opts, &u->donor) == 0);
	EXPECT(gn_io_queue_create(u->io, 16, &u->queue) == 0);
	return 0;
}

static int user_close(struct user *u, unsigned flags)
{
	EXPECT(gn_io_queue_destroy(u->queue) == 0);
	EXPECT(gn_donor_close(u->donor, flags) == 0);
	EXPECT(gn_io_destroy(u->io) == 0);
	return 0;
}

static int run(struct user *u, enum gn_io_op op, struct gn_io_region *region, uint64_t offset)
{
	const struct gn_io_sge sge = {.addr = u->buf, .len_bytes = N};
	struct gn_io_req req = {.op = op,
				.n_sge = 1,
				.region = region,
				.offset = offset,
				.sge = &sge,
				.deadline_ns = gn_deadline_us(LONG_US)};
	const int rc = gn_io_run(u->queue, &req);

	return rc < 0 ? rc : req.status;
}

static int write_seed(struct user *u, struct gn_io_region *region, uint64_t offset, uint32_t seed)
{
	fill(u->buf, N, seed);
	return run(u, GN_IO_WRITE, region, offset);
}

static bool has_seed(struct user *u, struct gn_io_region *region, uint64_t offset, uint32_t seed)
{
	memset(u->buf, 0xee, N);
	return run(u, GN_IO_READ, region, offset) == 0 && is_filled(u->buf, N, seed);
}

/* ---- slabs ---- */

static int count_mine(void *arg, const struct gn_donor_entry *entry)
{
	*(unsigned *)arg += entry->mine && entry->slab && !strcmp(entry->owner, "me");
	return 0;
}

static int slabs_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_slab *slab[9];
	unsigned n = 0;
	struct user u;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 5, slab, gn_deadline_us(LONG_US)) == 5);
	for (unsigned i = 0; i < 5; i++) {
		EXPECT(slab[i]->bytes == SLAB);
		EXPECT(write_seed(&u, slab[i]->region, i * N, i) == 0);
	}
	for (unsigned i = 0; i < 5; i++)
		EXPECT(has_seed(&u, slab[i]->region, i * N, i));
	EXPECT(gn_donor_list(u.donor, "me", count_mine, &n, gn_deadline_us(LONG_US)) == 0);
	EXPECT(n == 5);
	EXPECT(gn_donor_list(u.donor, "a b", count_mine, &n, GN_NO_WAIT) == -EINVAL);
	EXPECT(gn_donor_list(u.donor, "32-characters-are-one-too-many--", count_mine, &n,
			     GN_NO_WAIT) == -EINVAL);
	EXPECT(gn_donor_grant(u.donor, 4, slab + 5, gn_deadline_us(LONG_US)) == 3);
	EXPECT(gn_donor_grant(u.donor, 1, slab + 8, gn_deadline_us(LONG_US)) == -ENOSPC);
	EXPECT(gn_donor_release(u.donor, slab[2], gn_deadline_us(LONG_US)) == 0);
	EXPECT(gn_donor_grant(u.donor, 1, &slab[2], gn_deadline_us(LONG_US)) == 1);
	EXPECT(run(&u, GN_IO_READ, slab[2]->region, 2 * N) == 0);
	for (unsigned i = 0; i < N; i++)
		EXPECT(u.buf[i] == 0);
	EXPECT(gn_donor_query(u.donor, &stats, gn_deadline_us(LONG_US)) == 0);
	EXPECT(stats.granted == 8 && stats.grants == 9 && stats.releases == 1);
	n = 0;
	for (struct gn_donor_slab *s = gn_donor_next_slab(u.donor, NULL); s;
	     s = gn_donor_next_slab(u.donor, s))
		n++;
	EXPECT(n == 8);
	return user_close(&u, 0);
}

static void test_slabs(void **state)
{
	(void)state;
	donor_run(NULL, slabs_program);
}

/* ---- a session that outlives its client ---- */

static int resume_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_id id;
	struct gn_donor_slab *slab[2], *s;
	struct user u;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 2, slab, gn_deadline_us(LONG_US)) == 2);
	EXPECT(write_seed(&u, slab[0]->region, 0, (uint32_t)slab[0]->id) == 0);
	EXPECT(write_seed(&u, slab[1]->region, 0, (uint32_t)slab[1]->id) == 0);
	EXPECT(gn_donor_session_id(u.donor, &id) == 0);
	EXPECT(user_close(&u, GN_DONOR_KEEP) == 0);

	EXPECT(user_open(w, fabric, &u, &id) == 0);
	s = gn_donor_next_slab(u.donor, NULL);
	EXPECT(s && gn_donor_next_slab(u.donor, s));
	for (; s; s = gn_donor_next_slab(u.donor, s))
		EXPECT(has_seed(&u, s->region, 0, (uint32_t)s->id));
	EXPECT(user_close(&u, 0) == 0);

	/* It was ended, so nobody can take it over. */
	EXPECT(gn_io_create(fabric, NULL, &u.io) == 0);
	EXPECT(gn_donor_connect(
		       fabric, u.io, w->addr,
		       &(struct gn_donor_opts){.size = sizeof(struct gn_donor_opts), .id = &id},
		       &u.donor) == -ESTALE);
	EXPECT(gn_io_destroy(u.io) == 0);
	return 0;
}

static void test_resume(void **state)
{
	(void)state;
	donor_run(NULL, resume_program);
}

/* ---- a session that is taken over while its client still runs ---- */

static int take_over_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_slab *slab, *s;
	struct gn_donor_id id;
	struct user u, v;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 1, &slab, gn_deadline_us(LONG_US)) == 1);
	EXPECT(write_seed(&u, slab->region, 0, 1) == 0);
	EXPECT(gn_donor_session_id(u.donor, &id) == 0);
	EXPECT(user_open(w, fabric, &v, &id) == 0);
	s = gn_donor_next_slab(v.donor, NULL);
	EXPECT(s && has_seed(&v, s->region, 0, 1));
	EXPECT(write_seed(&v, s->region, 0, 2) == 0);
	/* The first client is out, also if it tries again, and does not disturb the second. */
	EXPECT(write_seed(&u, slab->region, 0, 3) == -ESTALE);
	EXPECT(gn_donor_renew(u.donor) == -ESTALE);
	EXPECT(has_seed(&v, s->region, 0, 2));
	EXPECT(user_close(&u, GN_DONOR_KEEP) == 0);
	EXPECT(has_seed(&v, s->region, 0, 2));
	return user_close(&v, 0);
}

static void test_take_over(void **state)
{
	(void)state;
	donor_run(NULL, take_over_program);
}

/* ---- shares ---- */

static int share_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts), .share = true};
	struct gn_donor_slab *slab;
	struct gn_io_range range;
	struct gn_io_target *target;
	struct gn_io_region *region;
	struct user u, other;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 1, &slab, gn_deadline_us(LONG_US)) == 1);
	EXPECT(write_seed(&u, slab->region, N, 7) == 0);
	EXPECT(has_seed(&u, slab->region, N, 7)); /* visible to others, too */
	EXPECT(gn_donor_share(u.donor, slab, N, N, GN_REMOTE_READ, gn_deadline_us(LONG_US),
			      opts.token) == 0);
	EXPECT(gn_donor_share(u.donor, slab, 1, N, GN_REMOTE_READ, gn_deadline_us(LONG_US),
			      opts.token) == -EINVAL);

	EXPECT(gn_io_create(fabric, NULL, &other.io) == 0);
	EXPECT(gn_io_queue_create(other.io, 4, &other.queue) == 0);
	EXPECT(gn_io_target_open(other.io, gn_donor_data_addr(u.donor), &opts, &range, &target) ==
	       0);
	EXPECT(range.rights == GN_REMOTE_READ && range.remote.length == N);
	EXPECT(gn_io_region_add(target, &range, &region) == 0);
	EXPECT(has_seed(&other, region, 0, 7));
	EXPECT(write_seed(&other, region, 0, 8) == -EACCES);
	EXPECT(gn_donor_revoke(u.donor, opts.token, gn_deadline_us(LONG_US)) == 0);
	EXPECT(run(&other, GN_IO_READ, region, 0) < 0);
	EXPECT(has_seed(&u, slab->region, N, 7));
	EXPECT(gn_io_region_remove(region) == 0);
	EXPECT(gn_io_target_close(target) == 0);
	EXPECT(gn_io_queue_destroy(other.queue) == 0);
	EXPECT(gn_io_destroy(other.io) == 0);
	return user_close(&u, 0);
}

static void test_share(void **state)
{
	(void)state;
	donor_run(NULL, share_program);
}

/* A client of a share, with that many channels. */
struct sharer {
	struct user u; /* without a session */
	struct gn_io_target *target;
	struct gn_io_region *region;
};

static int sharer_open(struct sharer *s, struct gn_fabric *fabric, const char *addr,
		       const struct gn_io_target_opts *opts, uint32_t channels)
{
	const struct gn_io_opts io = {.size = sizeof(io), .channels = channels};
	struct gn_io_range range;

	EXPECT(gn_io_create(fabric, &io, &s->u.io) == 0);
	EXPECT(gn_io_queue_create(s->u.io, 4, &s->u.queue) == 0);
	EXPECT(gn_io_target_open(s->u.io, addr, opts, &range, &s->target) == 0);
	EXPECT(gn_io_region_add(s->target, &range, &s->region) == 0);
	return 0;
}

static int sharer_close(struct sharer *s)
{
	EXPECT(gn_io_region_remove(s->region) == 0);
	EXPECT(gn_io_target_close(s->target) == 0);
	EXPECT(gn_io_queue_destroy(s->u.queue) == 0);
	EXPECT(gn_io_destroy(s->u.io) == 0);
	return 0;
}

/*
 * A share can be opened again, with more channels or fewer, also while an earlier client has it
 * open, or was killed: that one has lost it.
 */
static int reopen_program(struct donor_world *w, struct gn_fabric *fabric)
{
	static const uint32_t channels[] = {1, 4, 2, 16, 1, 4};
	struct gn_io_target_opts opts = {.size = sizeof(opts), .share = true};
	struct gn_donor_slab *slab;
	struct sharer first, second;
	const char *addr;
	struct user u;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	addr = gn_donor_data_addr(u.donor);
	EXPECT(gn_donor_grant(u.donor, 1, &slab, gn_deadline_us(LONG_US)) == 1);
	EXPECT(gn_donor_share(u.donor, slab, 0, SLAB, GN_REMOTE_READ | GN_REMOTE_WRITE,
			      gn_deadline_us(LONG_US), opts.token) == 0);
	for (uint32_t i = 0; i < sizeof(channels) / sizeof(channels[0]); i++) {
		EXPECT(sharer_open(&first, fabric, addr, &opts, channels[i]) == 0);
		EXPECT(i == 0 || has_seed(&first.u, first.region, 0, i));
		EXPECT(write_seed(&first.u, first.region, 0, i + 1) == 0);
		EXPECT(sharer_close(&first) == 0);
	}
	EXPECT(sharer_open(&first, fabric, addr, &opts, 2) == 0);
	EXPECT(sharer_open(&second, fabric, addr, &opts, 4) == 0);
	EXPECT(write_seed(&first.u, first.region, 0, 98) == -ESTALE);
	EXPECT(write_seed(&second.u, second.region, 0, 99) == 0);
	EXPECT(has_seed(&second.u, second.region, 0, 99));
	EXPECT(sharer_close(&first) == 0);
	EXPECT(has_seed(&second.u, second.region, 0, 99));
	EXPECT(sharer_close(&second) == 0);
	/* The last client that a token can have. */
	opts.generation = IO_EPOCH_MAX << IO_EPOCH_SHIFT;
	EXPECT(sharer_open(&first, fabric, addr, &opts, 1) == 0);
	EXPECT(has_seed(&first.u, first.region, 0, 99));
	EXPECT(sharer_close(&first) == 0);
	opts.generation = 0;
	EXPECT(gn_io_target_open(u.io, addr, &opts, NULL, &first.target) == -ESTALE);

	EXPECT(gn_donor_revoke(u.donor, opts.token, gn_deadline_us(LONG_US)) == 0);
	EXPECT(gn_io_target_open(u.io, addr, &opts, NULL, &first.target) == -EACCES);
	return user_close(&u, 0);
}

static void test_reopen(void **state)
{
	(void)state;
	donor_run(NULL, reopen_program);
}

/* ---- signs of life and notices ---- */

#define SILENCE_US 400000u

static int renew_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	struct gn_donor_slab *slab[2];
	struct user u;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 2, slab, gn_deadline_us(LONG_US)) == 2);
	gn_donor_used(u.donor, slab[0], 1000);
	for (unsigned i = 0; i < 30; i++) {
		EXPECT(gn_donor_renew(u.donor) == 0);
		gn_sleep_us(SILENCE_US / 10);
	}
	EXPECT(write_seed(&u, slab[0]->region, 0, 1) == 0);
	EXPECT(gn_donor_next_notice(u.donor, &notice, GN_NO_WAIT) == -ETIMEDOUT);
	gn_donor_used(u.donor, slab[0], 1u << 30); /* recently */
	for (unsigned i = 0; i < 4; i++) {
		EXPECT(gn_donor_renew(u.donor) == 0);
		gn_sleep_us(1000);
	}
	__atomic_store_n(&w->available, 0, __ATOMIC_RELAXED);
	EXPECT(gn_donor_next_notice(u.donor, &notice, gn_deadline_us(LONG_US)) == 0);
	EXPECT(notice.kind == GN_DONOR_TAKE_BACK && notice.slab == slab[1]);
	EXPECT(gn_donor_release(u.donor, notice.slab, gn_deadline_us(LONG_US)) == 0);
	EXPECT(gn_donor_next_notice(u.donor, &notice, gn_deadline_us(LONG_US)) == 0);
	EXPECT(notice.kind == GN_DONOR_TAKE_BACK && notice.slab == slab[0]);
	__atomic_store_n(&w->available, UINT64_MAX, __ATOMIC_RELAXED);
	return user_close(&u, 0);
}

static void test_renew(void **state)
{
	const struct gn_donor_server_opts opts = {.silence_us = SILENCE_US, .reserve = 1u << 30};

	(void)state;
	donor_run(&opts, renew_program);
}

/* A client that asks for notices late hears of the least used slab first, too. */
static int order_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_slab *slab[2];
	struct user u;

	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 2, slab, gn_deadline_us(LONG_US)) == 2);
	gn_donor_used(u.donor, slab[0], 1u << 30);
	EXPECT(gn_donor_renew(u.donor) == 0);
	__atomic_store_n(&w->available, 0, __ATOMIC_RELAXED);
	while (stats.asked < 2) {
		EXPECT(gn_donor_query(u.donor, &stats, gn_deadline_us(LONG_US)) == 0);
		gn_sleep_us(1000);
	}
	for (unsigned i = 0; i < 2; i++) {
		EXPECT(gn_donor_next_notice(u.donor, &notice, gn_deadline_us(LONG_US)) == 0);
		EXPECT(notice.kind == GN_DONOR_TAKE_BACK && notice.slab == slab[1 - i]);
	}
	return user_close(&u, 0);
}

static void test_order(void **state)
{
	const struct gn_donor_server_opts opts = {.reserve = 1u << 30};

	(void)state;
	donor_run(&opts, order_program);
}

/* ---- a donor that is restarted ---- */

static int restart_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_slab *slab;
	struct user u;

	if (w->simulated)
		return 0;
	EXPECT(user_open(w, fabric, &u, NULL) == 0);
	EXPECT(gn_donor_grant(u.donor, 1, &slab, gn_deadline_us(LONG_US)) == 1);
	gn_donor_server_destroy(w->server);
	EXPECT(gn_donor_query(u.donor, &stats, gn_deadline_us(50000)) == -ETIMEDOUT);
	EXPECT(donor_up(w) == 0);
	for (unsigned i = 0; i < 2; i++) {
		EXPECT(gn_donor_grant(u.donor, 1, &slab, gn_deadline_us(LONG_US)) == -ESTALE);
		EXPECT(strstr(gn_error(), "the donor was restarted"));
	}
	EXPECT(write_seed(&u, slab->region, 0, 1) == -ESTALE);
	EXPECT(gn_donor_renew(u.donor) == -ESTALE);
	return user_close(&u, 0);
}

static void test_restart(void **state)
{
	(void)state;
	donor_run(NULL, restart_program);
}

/* ---- as many connections and threads as an engine has ---- */

#define CHANNELS      16u
#define SESSIONS_MAX  15u /* 60 pollers with 4 channels of full depth each */
#define MANY_THREADS  70u
#define MANY_REQUESTS 20u

struct crowd {
	struct gn_io *io;
	struct gn_donor *donors[SESSIONS_MAX];
	struct gn_donor_slab *slabs[SESSIONS_MAX];
};

struct one_of_many {
	struct crowd *crowd;
	unsigned index;
	int rc;
};

/* Each thread has a page of each slab. */
static int many_run(const struct one_of_many *t)
{
	const uint64_t offset = (uint64_t)t->index * N;
	struct user u = {.io = t->crowd->io};

	EXPECT(gn_io_queue_create(u.io, 4, &u.queue) == 0);
	for (unsigned i = 0; i < MANY_REQUESTS; i++) {
		const unsigned k = (t->index + i) % SESSIONS_MAX;
		struct gn_io_region *region = t->crowd->slabs[k]->region;

		EXPECT(write_seed(&u, region, offset, t->index + k) == 0);
		EXPECT(has_seed(&u, region, offset, t->index + k));
	}
	EXPECT(gn_io_queue_destroy(u.queue) == 0);
	return 0;
}

static void many_main(void *arg)
{
	struct one_of_many *t = arg;

	t->rc = many_run(t);
}

static int many_program(struct donor_world *w, struct gn_fabric *fabric)
{
	const struct gn_io_opts opts = {.size = sizeof(opts), .channels = CHANNELS, .depth = 16};
	struct gn_thread *threads[MANY_THREADS];
	struct one_of_many of[MANY_THREADS];
	struct gn_donor *more = NULL;
	struct crowd crowd;

	EXPECT(gn_io_create(fabric, &opts, &crowd.io) == 0);
	for (unsigned i = 0; i < SESSIONS_MAX; i++) {
		EXPECT(gn_donor_connect(fabric, crowd.io, w->addr, NULL, &crowd.donors[i]) == 0);
		EXPECT(gn_donor_grant(crowd.donors[i], 1, &crowd.slabs[i],
				      gn_deadline_us(LONG_US)) == 1);
	}
	/* No space for another target, until one is closed. */
	EXPECT(gn_donor_connect(fabric, crowd.io, w->addr, NULL, &more) == -ENOSPC && !more);
	EXPECT(gn_donor_close(crowd.donors[3], 0) == 0);
	EXPECT(gn_donor_connect(fabric, crowd.io, w->addr, NULL, &crowd.donors[3]) == 0);
	EXPECT(gn_donor_grant(crowd.donors[3], 1, &crowd.slabs[3], gn_deadline_us(LONG_US)) == 1);
	for (unsigned i = 0; i < MANY_THREADS; i++) {
		of[i] = (struct one_of_many){.crowd = &crowd, .index = i};
		EXPECT(gn_thread_start("many", many_main, &of[i], &threads[i]) == 0);
	}
	for (unsigned i = 0; i < MANY_THREADS; i++) {
		EXPECT(gn_thread_join(threads[i]) == 0);
		EXPECT(of[i].rc == 0);
	}
	for (unsigned i = 0; i < SESSIONS_MAX; i++)
		EXPECT(gn_donor_close(crowd.donors[i], 0) == 0);
	EXPECT(gn_io_destroy(crowd.io) == 0);
	return 0;
}

static void test_many(void **state)
{
	const struct gn_donor_server_opts opts = {.slab = 1u << 20, .memory = 16u << 20};

	(void)state;
	donor_run(&opts, many_program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_slabs),	cmocka_unit_test(test_resume),
		cmocka_unit_test(test_share),	cmocka_unit_test(test_renew),
		cmocka_unit_test(test_restart), cmocka_unit_test(test_take_over),
		cmocka_unit_test(test_many),	cmocka_unit_test(test_order),
		cmocka_unit_test(test_reopen),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
