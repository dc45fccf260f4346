/* SPDX-License-Identifier: MIT */
/*
 * A donor: sessions, grants, data connections and their fence, shares, leases, notices and pressure.
 * The client is written against the wire.
 */
#include "donor_world.h"

#define N 4096u /* bytes of an access */

/* ---- sessions and slabs ---- */

static int grant_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_grant_result slab[8], one;
	struct raw_endpoint e = {.ctx = NULL};
	struct io_attach_reply reply;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw.hello.slab_bytes == SLAB && raw.hello.n_slabs == 0);
	EXPECT(raw_hello(&raw, "me", NULL, 0) == GN_RPC_DENIED); /* one session each */
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(reply.incarnation == raw.hello.incarnation);
	for (unsigned i = 0; i < 8; i++) {
		EXPECT(raw_grant(&raw, &slab[i]) == GN_RPC_OK);
		EXPECT(slab[i].remote.length == SLAB);
		EXPECT(raw_is_zero(&e, &slab[i].remote, SLAB));
		EXPECT(raw_write_seed(&e, &slab[i].remote, SLAB - N, N, i) == GN_WC_OK);
	}
	EXPECT(raw_grant(&raw, &one) == DONOR_NO_SPACE);
	for (unsigned i = 0; i < 8; i++)
		EXPECT(raw_has_seed(&e, &slab[i].remote, SLAB - N, N, i));
	EXPECT(raw_release(&raw, slab[3].slab) == GN_RPC_OK);
	EXPECT(raw_release(&raw, slab[3].slab) == DONOR_NOT_FOUND);
	EXPECT(raw_grant(&raw, &one) == GN_RPC_OK);
	EXPECT(one.slab != slab[3].slab);
	EXPECT(raw_is_zero(&e, &one.remote, SLAB)); /* nothing of the last owner */
	EXPECT(raw_has_seed(&e, &slab[4].remote, SLAB - N, N, 4));
	raw_endpoint_end(&e);
	raw_close(&raw);
	return 0;
}

static void test_grant(void **state)
{
	(void)state;
	donor_run(NULL, grant_program);
}

/* The key of a slab that was released opens nothing, and its use breaks the connection. */
static int released_key_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_grant_result slab, next;
	struct raw_endpoint e = {.ctx = NULL};
	struct io_attach_reply reply;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	a = raw_attach_request(&raw, 3, 7);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	EXPECT(raw_write_seed(&e, &slab.remote, 0, N, 1) == GN_WC_OK);
	EXPECT(raw_release(&raw, slab.slab) == GN_RPC_OK);
	EXPECT(raw_grant(&raw, &next) == GN_RPC_OK);
	EXPECT(raw_write_seed(&e, &slab.remote, 0, N, 2) == GN_WC_REMOTE_ACCESS);
	raw_endpoint_end(&e);
	a.generation++;
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_is_zero(&e, &next.remote, SLAB));
	raw_endpoint_end(&e);
	raw_close(&raw);
	return 0;
}

static void test_released_key(void **state)
{
	(void)state;
	donor_run(NULL, released_key_program);
}

/* ---- the fence ---- */

static int fence_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint old = {.ctx = NULL}, new = {.ctx = NULL}, other = {.ctx = NULL};
	struct donor_grant_result slab;
	struct io_attach_reply reply;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 5);
	EXPECT(raw_attach(&raw, &a, &old, &reply) == IO_ATTACH_OK);
	a.channel = 1;
	EXPECT(raw_attach(&raw, &a, &other, &reply) == IO_ATTACH_OK);
	EXPECT(raw_write_seed(&old, &slab.remote, 0, N, 5) == GN_WC_OK);
	a.channel = 0;
	for (a.generation = 4; a.generation <= 5; a.generation++) {
		EXPECT(raw_attach(&raw, &a, &new, &reply) == IO_ATTACH_OLD_GENERATION);
		EXPECT(reply.generation == 5);
		raw_endpoint_end(&new);
	}
	EXPECT(raw_attach(&raw, &a, &new, &reply) == IO_ATTACH_OK); /* 6 */
	EXPECT(raw_write_seed(&new, &slab.remote, 0, N, 6) == GN_WC_OK);
	EXPECT(raw_has_seed(&new, &slab.remote, 0, N, 6)); /* visible to others, too */
	/* The old connection is gone, and another channel's is not. */
	EXPECT(raw_write_seed(&old, &slab.remote, 0, N, 7) != GN_WC_OK);
	EXPECT(raw_has_seed(&new, &slab.remote, 0, N, 6));
	EXPECT(raw_has_seed(&other, &slab.remote, 0, N, 6));
	raw_endpoint_end(&old);
	raw_endpoint_end(&new);
	raw_endpoint_end(&other);
	raw_close(&raw);
	return 0;
}

static void test_fence(void **state)
{
	(void)state;
	donor_run(NULL, fence_program);
}

/* ---- resuming, leases ---- */

#define LEASE_US 200000u
#define PAUSE_US 2000000u

static const struct gn_donor_server_opts short_lease = {.lease_us = LEASE_US,
							.silence_us = 20 * LEASE_US};

/* A client that comes back in time finds its slabs; the donor keeps them without any connection. */
static int resume_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e = {.ctx = NULL};
	struct donor_grant_result slab;
	struct donor_raw raw, again;
	struct io_attach_reply reply;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_write_seed(&e, &slab.remote, 0, N, 11) == GN_WC_OK);
	raw_close(&raw);
	raw_endpoint_end(&e);

	EXPECT(raw_connect(w, fabric, &again) == 0);
	EXPECT(raw_hello(&again, "me", raw.hello.token, raw.hello.incarnation + 2) ==
	       DONOR_OTHER_INCARNATION);
	EXPECT(raw_hello(&again, "me", raw.hello.token, raw.hello.incarnation) == GN_RPC_OK);
	EXPECT(again.hello.session == raw.hello.session && again.hello.n_slabs == 1);
	EXPECT(donor_data_addr(w->addr, again.hello.data, again.data_addr) == 0);
	a.generation++;
	EXPECT(raw_attach(&again, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_has_seed(&e, &slab.remote, 0, N, 11));
	raw_endpoint_end(&e);

	/* Without a slab there is nothing to come back for. */
	EXPECT(raw_release(&again, slab.slab) == GN_RPC_OK);
	raw_close(&again);
	EXPECT(raw_connect(w, fabric, &again) == 0);
	RAW_AWAIT(&again, sessions, 0);
	EXPECT(raw_hello(&again, "me", raw.hello.token, raw.hello.incarnation) == DONOR_NO_SESSION);
	raw_close(&again);
	return 0;
}

static void test_resume(void **state)
{
	const struct gn_donor_server_opts opts = {.lease_us = 0};

	(void)state;
	donor_run(&opts, resume_program);
}

static int expire_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e = {.ctx = NULL};
	struct gn_donor_stats stats;
	struct donor_grant_result slab;
	struct donor_raw raw, watch;
	struct io_attach_reply reply;
	struct io_attach a;
	uint64_t gone_ns;

	EXPECT(raw_connect(w, fabric, &watch) == 0);
	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	raw_close(&raw); /* the data connection keeps the session */
	gn_sleep_us(2 * LEASE_US);
	EXPECT(raw_stats(&watch, &stats) == 0);
	EXPECT(stats.granted == 1 && stats.orphans == 0 && stats.sessions == 1);
	gone_ns = gn_now_ns();
	raw_endpoint_end(&e);
	RAW_AWAIT(&watch, orphans, 1);
	RAW_AWAIT(&watch, sessions, 0);
	EXPECT(gn_now_ns() - gone_ns >= LEASE_US * 1000ull);
	EXPECT(raw_stats(&watch, &stats) == 0);
	EXPECT(stats.expired == 1 && stats.granted == 0 && stats.ending == 0);
	a.generation++;
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_BAD_TOKEN);
	raw_endpoint_end(&e);
	raw_close(&watch);
	return 0;
}

static void test_expire(void **state)
{
	(void)state;
	donor_run(&short_lease, expire_program);
}

/* WRITEs of the lease's counter keep a session that makes no calls; without them it ends. */
static int silence_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e = {.ctx = NULL};
	struct donor_grant_result slab;
	struct donor_raw raw, watch;
	struct gn_donor_stats stats;
	struct io_attach_reply reply;
	struct io_attach a;

	EXPECT(raw_connect(w, fabric, &watch) == 0);
	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	for (uint64_t i = 1; i <= 8; i++) {
		memcpy(gn_mr_addr(e.mr), &i, sizeof(i));
		EXPECT(raw_access(&e, GN_OP_WRITE, &raw.hello.lease, 0, sizeof(i)) == GN_WC_OK);
		gn_sleep_us(LEASE_US / 2);
	}
	EXPECT(raw_stats(&watch, &stats) == 0);
	EXPECT(stats.sessions == 1 && stats.expired == 0);
	RAW_AWAIT(&watch, sessions, 0);
	EXPECT(raw_grant(&raw, &slab) == DONOR_NO_SESSION);
	raw_endpoint_end(&e);
	raw_close(&raw);
	raw_close(&watch);
	return 0;
}

static void test_silence(void **state)
{
	const struct gn_donor_server_opts opts = {.silence_us = 2 * LEASE_US};

	(void)state;
	donor_run(&opts, silence_program);
}

/* A donor that was stopped for longer than the lease keeps the session: its client could not come. */
static int paused_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_stats stats;
	struct donor_grant_result slab;
	struct donor_raw raw, again;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	raw_close(&raw);
	gn_sleep_us(PAUSE_US + LEASE_US);
	EXPECT(raw_connect(w, fabric, &again) == 0);
	EXPECT(raw_stats(&again, &stats) == 0);
	EXPECT(stats.pauses >= 1 && stats.expired == 0);
	EXPECT(raw_hello(&again, "me", raw.hello.token, raw.hello.incarnation) == GN_RPC_OK);
	EXPECT(again.hello.n_slabs == 1);
	raw_close(&again);
	/* … and no longer than it must. */
	EXPECT(raw_connect(w, fabric, &again) == 0);
	RAW_AWAIT(&again, sessions, 0);
	EXPECT(raw_stats(&again, &stats) == 0);
	EXPECT(stats.expired == 1);
	raw_close(&again);
	return 0;
}

static void test_paused(void **state)
{
	struct donor_world w = {.program = paused_program,
				.opts = {.lease_us = 2 * LEASE_US},
				.faults = "pause@200ms+2s:n0"};

	(void)state;
	if (!THREADS_WATCHED)
		donor_run_simulated(&w, "ideal", 0);
}

/* ---- shares ---- */

static int share_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e = {.ctx = NULL}, owner = {.ctx = NULL};
	struct donor_remote range;
	struct donor_grant_result slab;
	struct donor_token read, write;
	struct io_attach_reply reply;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &owner, &reply) == IO_ATTACH_OK);
	EXPECT(raw_write_seed(&owner, &slab.remote, N, N, 21) == GN_WC_OK);
	EXPECT(raw_share(&raw, slab.slab, N, N, IO_RIGHT_READ, &read) == GN_RPC_OK);
	EXPECT(raw_share(&raw, slab.slab, 2 * N, N, IO_RIGHT_READ | IO_RIGHT_WRITE, &write) ==
	       GN_RPC_OK);

	a = raw_attach_share(&raw, &read, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(reply.length == N && reply.rights == IO_RIGHT_READ);
	range = (struct donor_remote){reply.offset, reply.length, reply.key, 0};
	EXPECT(raw_has_seed(&e, &range, 0, N, 21));
	EXPECT(raw_write_seed(&e, &range, 0, N, 22) == GN_WC_REMOTE_ACCESS);
	raw_endpoint_end(&e);
	EXPECT(raw_has_seed(&owner, &slab.remote, N, N, 21));

	a = raw_attach_share(&raw, &write, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	range = (struct donor_remote){reply.offset, reply.length, reply.key, 0};
	EXPECT(raw_write_seed(&e, &range, 0, N, 23) == GN_WC_OK);
	EXPECT(raw_has_seed(&e, &range, 0, N, 23)); /* visible to others, too */
	EXPECT(raw_has_seed(&owner, &slab.remote, 2 * N, N, 23));

	/* After revoke nothing lands, and the slab's owner is not disturbed. */
	EXPECT(raw_revoke(&raw, &write) == GN_RPC_OK);
	EXPECT(raw_write_seed(&e, &range, 0, N, 24) != GN_WC_OK);
	raw_endpoint_end(&e);
	EXPECT(raw_has_seed(&owner, &slab.remote, 2 * N, N, 23));
	EXPECT(raw_revoke(&raw, &write) == DONOR_NOT_FOUND);
	a.generation++;
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_BAD_TOKEN);
	EXPECT(!reply.key && !reply.length);
	raw_endpoint_end(&e);

	/* A release revokes the shares of the slab. */
	EXPECT(raw_release(&raw, slab.slab) == GN_RPC_OK);
	a = raw_attach_share(&raw, &read, 0, 2);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_BAD_TOKEN);
	raw_endpoint_end(&e);
	raw_endpoint_end(&owner);
	raw_close(&raw);
	return 0;
}

static void test_share(void **state)
{
	(void)state;
	donor_run(NULL, share_program);
}

/* ---- notices, pressure, end ---- */

struct notice_call {
	struct gn_rpc_op op;
	struct donor_notice notice;
	bool done;
};

static void notice_done(struct gn_rpc_op *op)
{
	((struct notice_call *)op->arg)->done = true;
}

static int notice_begin(struct donor_raw *raw, struct notice_call *call)
{
	*call = (struct notice_call){.op = {.method = DONOR_NOTICE,
					    .result = &call->notice,
					    .result_room = sizeof(call->notice),
					    .done = notice_done,
					    .arg = call}};
	EXPECT(gn_rpc_submit(raw->rpc, &call->op) == 0);
	EXPECT(gn_rpc_flush(raw->rpc) == 0);
	return 0;
}

static int notice_await(struct donor_raw *raw, const struct notice_call *call, unsigned kind)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);

	while (!call->done) {
		EXPECT(gn_now_ns() < until_ns);
		gn_rpc_wait(raw->rpc, gn_deadline_us(1000));
	}
	EXPECT(call->op.status == GN_RPC_OK && call->op.result_len == sizeof(call->notice));
	EXPECT(call->notice.kind == kind);
	return 0;
}

#define TAKE_BACK_US 1500000u

/*
 * Reports uses of two slabs, until the donor has sent its notice: the donor halves what it knows at
 * each of its checks. The slab that is used more comes first, so that it is never the less used one.
 */
static int report_uses(struct donor_raw *raw, struct raw_endpoint *e,
		       const struct donor_grant_result *less, const struct donor_grant_result *more,
		       const struct notice_call *call)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);

	for (uint64_t use = 1u << 30; !call->done; use += 1u << 30) {
		const uint64_t used[] = {2 * use, use};

		EXPECT(gn_now_ns() < until_ns);
		for (unsigned i = 0; i < 2; i++) {
			memcpy(gn_mr_addr(e->mr), &used[i], sizeof(used[i]));
			EXPECT(raw_access(e, GN_OP_WRITE, &raw->hello.lease,
					  (i ? less : more)->use_offset,
					  sizeof(used[i])) == GN_WC_OK);
		}
		gn_rpc_wait(raw->rpc, gn_deadline_us(1000));
	}
	return 0;
}

/* The client reports how often it uses each slab: the one that it does not use is asked for. */
static int pressure_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct raw_endpoint e = {.ctx = NULL};
	struct donor_grant_result slab[3], more;
	struct io_attach_reply reply;
	struct notice_call call;
	struct gn_donor_stats stats;
	struct donor_raw raw;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	for (unsigned i = 0; i < 3; i++)
		EXPECT(raw_grant(&raw, &slab[i]) == GN_RPC_OK);
	a = raw_attach_request(&raw, 0, 1);
	EXPECT(raw_attach(&raw, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(notice_begin(&raw, &call) == 0);
	RAW_AWAIT(&raw, ready, 2);
	/* The ready slabs are enough at first: nobody is asked. */
	__atomic_store_n(&w->available, (1u << 30) - 2 * SLAB, __ATOMIC_RELAXED);
	EXPECT(report_uses(&raw, &e, &slab[0], &slab[2], &call) == 0);
	RAW_AWAIT(&raw, ready, 0);
	EXPECT(notice_await(&raw, &call, DONOR_TAKE_BACK) == 0);
	EXPECT(call.notice.slab == slab[1].slab && call.notice.left_ms <= TAKE_BACK_US / 1000);
	EXPECT(raw_grant(&raw, &more) == DONOR_NO_SPACE);
	EXPECT(raw_release(&raw, slab[1].slab) == GN_RPC_OK);
	/* The next one is not returned, and taken; its content is gone. */
	EXPECT(notice_begin(&raw, &call) == 0);
	EXPECT(notice_await(&raw, &call, DONOR_TAKE_BACK) == 0);
	EXPECT(call.notice.slab == slab[0].slab);
	EXPECT(notice_begin(&raw, &call) == 0);
	for (;;) {
		EXPECT(raw_stats(&raw, &stats) == 0);
		if (stats.taken)
			break;
		gn_sleep_us(1000);
	}
	__atomic_store_n(&w->available, UINT64_MAX, __ATOMIC_RELAXED);
	while (!call.done || call.notice.kind == DONOR_TAKE_BACK) {
		if (call.done)
			EXPECT(notice_begin(&raw, &call) == 0);
		gn_rpc_wait(raw.rpc, gn_deadline_us(1000));
	}
	EXPECT(call.op.status == GN_RPC_OK && call.notice.kind == DONOR_TAKEN);
	EXPECT(call.notice.slab == slab[0].slab);
	RAW_AWAIT(&raw, ready, 2);
	EXPECT(raw_grant(&raw, &more) == GN_RPC_OK);
	raw_endpoint_end(&e);
	raw_close(&raw);
	return 0;
}

static void test_pressure(void **state)
{
	const struct gn_donor_server_opts opts = {.reserve = 1u << 30,
						  .take_back_us = TAKE_BACK_US};

	(void)state;
	donor_run(&opts, pressure_program);
}

/* A donor that starts on a machine that is short of memory lends none. */
static int short_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_grant_result slab;
	struct gn_donor_stats stats;
	struct donor_raw raw;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_grant(&raw, &slab) == DONOR_NO_SPACE);
	EXPECT(raw_stats(&raw, &stats) == 0);
	EXPECT(stats.available == 4096 && stats.ready == 0 && stats.refused == 1);
	__atomic_store_n(&w->available, UINT64_MAX, __ATOMIC_RELAXED);
	RAW_AWAIT(&raw, ready, 2);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	raw_close(&raw);
	return 0;
}

static void test_short_from_the_start(void **state)
{
	struct donor_world w = {.program = short_program, .available = 4096};

	(void)state;
	w.opts.reserve = 1u << 30;
	w.opts.available = world_available;
	w.opts.available_arg = &w;
	assert_int_equal(donor_run_here(&w), 0);
}

/* A drain tells the owners, and ends when they have returned their slabs. */
static int drain_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_list_request list = {.owner = "me"};
	union {
		struct donor_list_result page;
		uint8_t bytes[4096];
	} result;
	struct donor_grant_result slab;
	struct gn_donor_stats stats;
	struct notice_call call;
	struct donor_raw raw, late;

	if (w->simulated) /* only the donor's process may call it */
		return 0;
	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_connect(w, fabric, &late) == 0);
	EXPECT(raw_grant(&raw, &slab) == GN_RPC_OK);
	EXPECT(notice_begin(&raw, &call) == 0);
	EXPECT(gn_donor_server_drain(w->server, gn_deadline_us(10000)) == -ETIMEDOUT);
	EXPECT(notice_await(&raw, &call, DONOR_LEAVING) == 0);
	EXPECT(raw_grant(&raw, &slab) == DONOR_GOING_AWAY);
	EXPECT(raw_hello(&late, "me", NULL, 0) == DONOR_GOING_AWAY);
	EXPECT(raw_stats(&raw, &stats) == 0 && stats.asked == 1);
	EXPECT(raw_call(&raw, DONOR_LIST, &list, sizeof(list), &result, sizeof(result), NULL) ==
	       GN_RPC_OK);
	EXPECT(result.page.n == 1 && result.page.entries[0].state == DONOR_ASKED);
	EXPECT(raw_release(&raw, slab.slab) == GN_RPC_OK);
	EXPECT(gn_donor_server_drain(w->server, gn_deadline_us(LONG_US)) == 0);
	raw_close(&late);
	raw_close(&raw);
	return 0;
}

static void test_drain(void **state)
{
	(void)state;
	donor_run(NULL, drain_program);
}

/* ---- list ---- */

static int list_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct donor_list_request list = {.owner = "me"};
	union {
		struct donor_list_result page;
		uint8_t bytes[4096];
	} result;
	struct donor_grant_result slab[30];
	struct donor_raw raw, other;
	unsigned n = 0, ours = 0;
	uint32_t len;

	EXPECT(raw_open(w, fabric, &raw) == 0);
	EXPECT(raw_connect(w, fabric, &other) == 0);
	for (unsigned i = 0; i < 30; i++)
		EXPECT(raw_grant(&raw, &slab[i]) == GN_RPC_OK);
	do {
		EXPECT(raw_call(&raw, DONOR_LIST, &list, sizeof(list), &result, sizeof(result),
				&len) == GN_RPC_OK);
		EXPECT(len == sizeof(result.page) + result.page.n * sizeof(result.page.entries[0]));
		for (unsigned i = 0; i < result.page.n; i++) {
			const struct donor_list_entry *entry = &result.page.entries[i];

			EXPECT(entry->session == raw.hello.session && !strcmp(entry->owner, "me"));
			EXPECT(entry->bytes == SLAB && entry->state == DONOR_HELD);
			for (unsigned k = 0; k < 30; k++)
				ours += slab[k].slab == entry->slab &&
					slab[k].remote.key == entry->remote.key &&
					slab[k].use_offset == entry->use_offset;
		}
		n += result.page.n;
		list.after = result.page.next;
	} while (list.after);
	EXPECT(n == 30 && ours == 30);
	/* Others see what is held, and no keys. */
	EXPECT(raw_call(&other, DONOR_LIST, &list, sizeof(list), &result, sizeof(result), NULL) ==
	       GN_RPC_OK);
	EXPECT(result.page.n == DONOR_LIST_MAX && !result.page.entries[0].remote.length);
	strcpy(list.owner, "nobody");
	EXPECT(raw_call(&raw, DONOR_LIST, &list, sizeof(list), &result, sizeof(result), NULL) ==
	       GN_RPC_OK);
	EXPECT(result.page.n == 0);
	raw_close(&other);
	raw_close(&raw);
	return 0;
}

static void test_list(void **state)
{
	const struct gn_donor_server_opts opts = {.slab = SLAB, .memory = 32 * SLAB};

	(void)state;
	donor_run(&opts, list_program);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_grant),  cmocka_unit_test(test_released_key),
		cmocka_unit_test(test_fence),  cmocka_unit_test(test_resume),
		cmocka_unit_test(test_expire), cmocka_unit_test(test_silence),
		cmocka_unit_test(test_share),  cmocka_unit_test(test_pressure),
		cmocka_unit_test(test_drain),  cmocka_unit_test(test_list),
		cmocka_unit_test(test_paused), cmocka_unit_test(test_short_from_the_start),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
