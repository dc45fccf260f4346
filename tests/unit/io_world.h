/* SPDX-License-Identifier: MIT */
/*
 * Shared by the tests of the I/O engine: a process that lends memory, as a donor does, and
 * environments ("worlds") in which a program uses it: shared memory or verbs, with both as threads
 * of one process, and simulated cards.
 */
#ifndef GN_TESTS_IO_WORLD_H
#define GN_TESTS_IO_WORLD_H

#include <errno.h>
#include <string.h>

#include "gannet/io.h"
#include "gannet/sim.h"
#include "io/core/attach.h"
#include "unit.h"
#include "unit_sim_run.h"
#include "unit_world.h"

#ifndef LENT_BYTES
#define LENT_BYTES  (8u << 20)
#endif
#define SIM_ADDR    "sim:n0:7100"
#define INCARNATION 77u

struct lender {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_listener *listener;
	struct gn_thread *thread;
	struct gn_qp *qps[IO_CHANNELS_MAX];
	uint32_t generation[IO_CHANNELS_MAX];
	unsigned breaks; /* atomic: connections to be broken */
	unsigned broken, accepted;
	uint64_t incarnation;
	bool stop, refuse; /* atomic */
	bool drop;	   /* atomic: destroys each qp that it has accepted */
	bool odd;	   /* atomic: channels of a share get different ranges */
	bool silent;	   /* atomic: answers no connect request */
	bool nonsense;	   /* atomic: answers each with other bytes */
};

static inline void lender_answer(struct lender *l, struct gn_event *event)
{
	struct io_attach_reply reply = {.magic = IO_ATTACH_MAGIC,
					.version = IO_ATTACH_VERSION,
					.incarnation = l->incarnation};
	struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &reply, .private_len = sizeof(reply)};
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .send_cq = l->cq,
				  .recv_cq = l->cq,
				  .chan = l->chan,
				  .max_send_wr = 1,
				  .max_recv_wr = 1};
	struct io_attach attach;

	memcpy(&attach, event->private_data, sizeof(attach));
	if (attach.incarnation != l->incarnation)
		reply.status = IO_ATTACH_OTHER_INCARNATION;
	else if (attach.generation <= l->generation[attach.channel])
		reply.status = IO_ATTACH_OLD_GENERATION;
	else if (__atomic_load_n(&l->refuse, __ATOMIC_RELAXED))
		reply.status = IO_ATTACH_BUSY;
	reply.generation = l->generation[attach.channel];
	if (attach.kind == IO_ATTACH_SHARE) {
		struct gn_remote remote;

		if (gn_mr_remote(l->mr, &remote))
			abort();
		reply.key = remote.key;
		reply.offset = remote.offset;
		reply.length = remote.length;
		reply.rights = IO_RIGHT_READ;
		if (__atomic_load_n(&l->odd, __ATOMIC_RELAXED))
			reply.rights |= attach.channel % 2 ? IO_RIGHT_WRITE : 0;
	}
	if (reply.status) {
		gn_reject(event->req, &reply, sizeof(reply));
		return;
	}
	gn_qp_destroy(l->qps[attach.channel]);
	l->generation[attach.channel] = attach.generation;
	if (gn_qp_create(l->pd, &opts, &l->qps[attach.channel]) ||
	    gn_accept(event->req, l->qps[attach.channel], &conn))
		abort();
	__atomic_add_fetch(&l->accepted, 1, __ATOMIC_RELAXED);
}

static inline void lender_drop(struct lender *l, struct gn_qp *qp)
{
	for (unsigned i = 0; i < IO_CHANNELS_MAX; i++)
		if (l->qps[i] == qp) {
			gn_qp_destroy(qp);
			l->qps[i] = NULL;
		}
}

static inline void lender_main(void *arg)
{
	struct lender *l = arg;
	struct gn_event event;
	struct gn_wc wc;

	while (!__atomic_load_n(&l->stop, __ATOMIC_ACQUIRE)) {
		const unsigned breaks = __atomic_load_n(&l->breaks, __ATOMIC_ACQUIRE);

		if (gn_chan_wait(l->chan, gn_deadline_us(200), &event))
			event.type = GN_EVENT_CQ;
		if (event.type == GN_EVENT_CONNECT_REQUEST &&
		    __atomic_load_n(&l->nonsense, __ATOMIC_RELAXED))
			gn_reject(event.req, "nonsense", 8);
		else if (event.type == GN_EVENT_CONNECT_REQUEST &&
			 !__atomic_load_n(&l->silent, __ATOMIC_RELAXED))
			lender_answer(l, &event);
		if (event.type == GN_EVENT_ESTABLISHED &&
		    __atomic_load_n(&l->drop, __ATOMIC_RELAXED))
			lender_drop(l, event.qp);
		gn_cq_poll(l->cq, &wc, 1);
		if (l->broken != breaks) {
			struct gn_qp **qp = &l->qps[l->broken % 4];

			gn_qp_destroy(*qp);
			*qp = NULL;
			__atomic_add_fetch(&l->broken, 1, __ATOMIC_RELEASE);
		}
	}
	for (unsigned i = 0; i < IO_CHANNELS_MAX; i++)
		gn_qp_destroy(l->qps[i]);
}

static inline int lender_start(struct lender *l, struct gn_fabric *fabric, const char *addr)
{
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 64};
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;

	*l = (struct lender){.fabric = fabric, .incarnation = INCARNATION};
	EXPECT(gn_ctx_create(fabric, &l->ctx) == 0);
	EXPECT(gn_chan_create(l->ctx, &l->chan) == 0);
	cq.chan = l->chan;
	EXPECT(gn_cq_create(l->ctx, &cq, &l->cq) == 0);
	EXPECT(gn_pd_create(l->ctx, &l->pd) == 0);
	EXPECT(gn_mem_alloc(fabric, LENT_BYTES, rights, &l->mem) == 0);
	EXPECT(gn_mr_register(l->pd, l->mem, 0, LENT_BYTES, GN_LOCAL_WRITE | rights, &l->mr) == 0);
	EXPECT(gn_listener_create(l->ctx, addr, l->chan, 0, &l->listener) == 0);
	EXPECT(gn_thread_start("lender", lender_main, l, &l->thread) == 0);
	return 0;
}

static inline int lender_stop(struct lender *l)
{
	__atomic_store_n(&l->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(l->thread) == 0);
	EXPECT(gn_listener_destroy(l->listener) == 0);
	EXPECT(gn_mr_deregister(l->mr) == 0);
	EXPECT(gn_mem_free(l->mem) == 0);
	EXPECT(gn_pd_destroy(l->pd) == 0);
	EXPECT(gn_cq_destroy(l->cq) == 0);
	EXPECT(gn_chan_destroy(l->chan) == 0);
	EXPECT(gn_ctx_destroy(l->ctx) == 0);
	return 0;
}

/* ---- worlds ---- */

struct world {
	const char *addr;
	struct lender lender;
	struct gn_io_opts opts; /* the program's engine */
	int (*program)(struct world *w, struct gn_fabric *fabric);
	bool simulated, ready, ended;
	const char *faults;
	uint64_t seed;
	unsigned arg;
};

/* What a program has: an engine with one target and its whole memory as a region. */
struct user {
	struct gn_io *io;
	struct gn_io_target *target;
	struct gn_io_region *region;
	struct gn_io_queue *queue;
};

static inline int user_open(struct user *u, struct world *w, struct gn_fabric *fabric)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts), .incarnation = INCARNATION};
	struct gn_io_range range = {.rights = GN_REMOTE_READ | GN_REMOTE_WRITE};

	while (!__atomic_load_n(&w->ready, __ATOMIC_ACQUIRE))
		gn_sleep_us(20);
	EXPECT(gn_mr_remote(w->lender.mr, &range.remote) == 0);
	w->opts.size = sizeof(w->opts);
	EXPECT(gn_io_create(fabric, &w->opts, &u->io) == 0);
	EXPECT(gn_io_target_open(u->io, w->addr, &opts, NULL, &u->target) == 0);
	EXPECT(gn_io_region_add(u->target, &range, &u->region) == 0);
	EXPECT(gn_io_queue_create(u->io, 256, &u->queue) == 0);
	return 0;
}

static inline int user_close(struct user *u)
{
	EXPECT(gn_io_queue_destroy(u->queue) == 0);
	EXPECT(gn_io_region_remove(u->region) == 0);
	EXPECT(gn_io_target_close(u->target) == 0);
	EXPECT(gn_io_destroy(u->io) == 0);
	return 0;
}

static inline int sim_lender(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = lender_start(&w->lender, fabric, w->addr);
	w->ready = !rc;
	while (!rc && !w->ended)
		gn_sleep_us(100);
	if (!rc)
		rc = lender_stop(&w->lender);
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static inline int sim_user(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	struct gn_fabric *fabric;
	int rc;

	(void)argc, (void)argv;
	EXPECT(gn_fabric_open(env->fabric, &fabric) == 0);
	rc = w->program(w, fabric);
	w->ended = true;
	EXPECT(rc || gn_fabric_close(fabric) == 0);
	return rc;
}

static inline void simulate(struct world *w, const char *profile, uint64_t caps_off, uint64_t seed)
{
	const struct sim_run run = {.profile = profile,
				    .caps_off = caps_off,
				    .seed = seed,
				    .limit_ns = 60000000000u,
				    .faults = w->faults,
				    .server = sim_lender,
				    .client = sim_user,
				    .clients = 1,
				    .arg = w};

	w->simulated = true;
	w->addr = SIM_ADDR;
	w->ready = w->ended = false;
	sim_run(&run);
}

/* Where else than over shared memory: an address of verbs, or NULL. */
static inline const char *given_addr(void)
{
	return getenv("GANNET_IO_ADDR");
}

static inline void run_shm(struct world *w)
{
	const char *given = given_addr();
	struct gn_fabric *fabric;
	char addr[64];

	snprintf(addr, sizeof(addr), "shm:test-io-%llx", (unsigned long long)gn_random());
	if (given)
		snprintf(addr, sizeof(addr), "%s", given);
	w->addr = addr;
	w->simulated = false;
	assert_int_equal(gn_fabric_open(given ? "verbs" : "shm", &fabric), 0);
	assert_int_equal(lender_start(&w->lender, fabric, addr), 0);
	w->ready = true;
	assert_int_equal(w->program(w, fabric), 0);
	assert_int_equal(lender_stop(&w->lender), 0);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

static inline struct world *world_make(int (*program)(struct world *, struct gn_fabric *),
				       const struct gn_io_opts *opts)
{
	struct world *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->program = program;
	w->seed = unit_seed();
	if (opts)
		w->opts = *opts;
	return w;
}

/* Shared memory, or verbs if an address is given. */
static inline void run_here(int (*program)(struct world *, struct gn_fabric *),
			    const struct gn_io_opts *opts)
{
	struct world *w = world_make(program, opts);

	run_shm(w);
	free(w);
}

static inline void run_simulated(int (*program)(struct world *, struct gn_fabric *),
				 const struct gn_io_opts *opts)
{
	struct world *w = world_make(program, opts);

	if (!given_addr() && !THREADS_WATCHED)
		simulate(w, "cx3-fdr", 0, w->seed);
	free(w);
}

/* Shared memory, or verbs, and then simulated cards with all guarantees and with none. */
static inline void run_everywhere(int (*program)(struct world *, struct gn_fabric *),
				  const struct gn_io_opts *opts)
{
	struct world *w = world_make(program, opts);

	run_shm(w);
	if (!given_addr() && !THREADS_WATCHED) {
		simulate(w, "ideal", 0, w->seed);
		simulate(w, "cx3-fdr", SIM_CAPS, w->seed + 1);
	}
	free(w);
}

#endif
