/* SPDX-License-Identifier: MIT */
/*
 * What many outstanding requests, long gather lists and many pages cost on a simulated card: the
 * rate of a closed loop of requests over some qps. RDMAbox III.A and V.A blame these costs for the
 * drop of IOPS beyond 4 threads with one qp, and beyond 7 with four.
 */
#include <string.h>

#include "gannet/fabric.h"
#include "gannet/sim.h"
#include "unit.h"
#include "unit_world.h"

#define QPS_MAX	  16u
#define SGE_MAX	  32u
#define LIMIT_NS  10000000000u
#define PORT	  "sim:n0:1"
#define PAGE	  4096u
#define BLOCK	  (SGE_MAX * PAGE) /* RDMAbox V.A: 128 KiB */
#define THREADS	  11u		   /* the points of C11a and C12a */
#define IN_FLIGHT 8u		   /* requests of a thread; P60b: 7 threads have 7 MB in flight */

struct load {
	enum gn_op op;
	/* requests are timed, after as many to warm up */
	uint32_t bytes, n_sge, qps, outstanding, requests;
	bool events; /* wait for completions by events */
};

static const struct load *load;
static uint64_t measured_ns; /* by the requester */
static uint64_t measured_arms;
static uint64_t seed;

struct end {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_pd *pd;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_qp *qp[QPS_MAX];
	struct gn_mem *mem;
	struct gn_mr *mr;
	uint8_t *buf;
	uint64_t bytes;
	struct gn_remote peer;
};

static int end_open(struct end *e, const char *name, uint64_t bytes)
{
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = load->outstanding + 1};
	struct gn_qp_opts qp = {.size = sizeof(qp),
				.type = GN_QP_RC,
				.max_send_wr = load->outstanding,
				.max_send_sge = load->n_sge};

	*e = (struct end){.bytes = bytes};
	EXPECT(gn_fabric_open(name, &e->fabric) == 0);
	EXPECT(gn_ctx_create(e->fabric, &e->ctx) == 0);
	EXPECT(gn_pd_create(e->ctx, &e->pd) == 0);
	EXPECT(gn_chan_create(e->ctx, &e->chan) == 0);
	cq.chan = e->chan;
	EXPECT(gn_cq_create(e->ctx, &cq, &e->cq) == 0);
	qp.send_cq = qp.recv_cq = e->cq;
	qp.chan = e->chan;
	for (unsigned i = 0; i < load->qps; i++)
		EXPECT(gn_qp_create(e->pd, &qp, &e->qp[i]) == 0);
	EXPECT(gn_mem_alloc(e->fabric, bytes, rights, &e->mem) == 0);
	EXPECT(gn_mr_register(e->pd, e->mem, 0, bytes, GN_LOCAL_WRITE | rights, &e->mr) == 0);
	e->buf = gn_mem_addr(e->mem);
	return 0;
}

static int end_close(struct end *e)
{
	for (unsigned i = 0; i < load->qps; i++)
		EXPECT(gn_qp_destroy(e->qp[i]) == 0);
	EXPECT(gn_cq_destroy(e->cq) == 0);
	EXPECT(gn_chan_destroy(e->chan) == 0);
	EXPECT(gn_mr_deregister(e->mr) == 0);
	EXPECT(gn_mem_free(e->mem) == 0);
	EXPECT(gn_pd_destroy(e->pd) == 0);
	EXPECT(gn_ctx_destroy(e->ctx) == 0);
	EXPECT(gn_fabric_close(e->fabric) == 0);
	return 0;
}

static int target(struct gn_env *env, int argc, char **argv)
{
	struct gn_conn_opts opts = {.size = sizeof(opts), .private_len = sizeof(struct gn_remote)};
	struct gn_listener *listener;
	struct gn_remote remote;
	struct gn_event ev;
	struct end e;
	unsigned left = load->qps, accepted = 0;
	int rc;

	(void)argc, (void)argv;
	rc = end_open(&e, env->fabric, load->bytes);
	if (rc)
		return rc;
	EXPECT(gn_mr_remote(e.mr, &remote) == 0);
	opts.private_data = &remote;
	EXPECT(gn_listener_create(e.ctx, PORT, e.chan, 0, &listener) == 0);
	while (left > 0) {
		EXPECT(gn_chan_wait(e.chan, GN_FOREVER, &ev) == 0);
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			EXPECT(gn_accept(ev.req, e.qp[accepted++], &opts) == 0);
		left -= ev.type == GN_EVENT_DISCONNECTED;
	}
	EXPECT(gn_listener_destroy(listener) == 0);
	return end_close(&e);
}

/* Request i uses its own buffer, in pieces, while it is outstanding. */
static int post(struct end *e, unsigned i)
{
	struct gn_sge sge[SGE_MAX];
	const uint32_t len = load->bytes / load->n_sge;
	struct gn_wr wr;

	for (uint32_t k = 0; k < load->n_sge; k++)
		sge[k] = (struct gn_sge){e->buf + (uint64_t)i * load->bytes + k * len, len,
					 gn_mr_lkey(e->mr)};
	gn_wr_rdma(&wr, load->op, i, sge, &e->peer, 0, GN_SIGNALED);
	wr.n_sge = load->n_sge;
	return gn_post_send(e->qp[i % load->qps], &wr, NULL);
}

/* By events: one completion for each. */
static int next_completions(struct end *e, struct gn_wc *wc, int max)
{
	struct gn_wait_item item = gn_wait_on(gn_cq_source(e->cq));
	int n = 0, rc = 0;

	if (!load->events)
		return gn_cq_wait(e->cq, wc, max, GN_FOREVER, "completions");
	while (!n && rc >= 0) {
		rc = gn_wait_sleep(&item, 1, GN_FOREVER, "an event");
		n = gn_cq_poll(e->cq, wc, 1);
	}
	return n;
}

static int requester(struct gn_env *env, int argc, char **argv)
{
	struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct gn_counters count = {.size = sizeof(count)};
	unsigned begun = 0, ended = 0;
	uint64_t start_ns = 0;
	struct gn_event ev;
	struct gn_wc wc[16];
	struct end e;
	int rc;

	(void)argc, (void)argv;
	rc = end_open(&e, env->fabric, (uint64_t)load->bytes * load->outstanding);
	if (rc)
		return rc;
	gn_sleep_us(10);
	for (unsigned i = 0; i < load->qps; i++)
		EXPECT(gn_connect_wait(e.qp[i], PORT, &opts, &ev) == 0);
	memcpy(&e.peer, ev.private_data, sizeof(e.peer));
	for (; begun < load->outstanding; begun++)
		EXPECT(post(&e, begun) == 0);
	while (ended < 2 * load->requests) {
		const int n = next_completions(&e, wc, 16);

		EXPECT(n > 0);
		for (int i = 0; i < n; i++) {
			EXPECT(wc[i].status == GN_WC_OK);
			if (ended++ == load->requests)
				start_ns = gn_now_ns();
			if (begun < 2 * load->requests) {
				EXPECT(post(&e, (unsigned)wc[i].id) == 0);
				begun++;
			}
		}
	}
	measured_ns = gn_now_ns() - start_ns;
	EXPECT(gn_fabric_counters(e.fabric, &count) == 0);
	measured_arms = count.arms;
	for (unsigned i = 0; i < load->qps; i++)
		EXPECT(gn_disconnect(e.qp[i]) == 0);
	return end_close(&e);
}

/* Picoseconds for each request. */
static uint64_t request_ps(const struct load *l, struct gn_sim_stats *stats)
{
	const struct gn_sim_opts opts = {.size = sizeof(opts),
					 .profile = "cx3-fdr",
					 .seed = seed,
					 .nodes = 2,
					 .limit_ns = LIMIT_NS};
	struct gn_sim *sim;
	int status;

	load = l;
	assert_int_equal(gn_sim_create(&opts, &sim), 0);
	assert_int_equal(gn_sim_spawn(sim, 0, target, 0, NULL, NULL, NULL), 0);
	assert_int_equal(gn_sim_spawn(sim, 1, requester, 0, NULL, NULL, NULL), 0);
	assert_int_equal(gn_sim_run(sim), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(gn_sim_status(sim, i, &status), 0);
		if (status)
			fail_msg("node %u: line %d", i, status);
	}
	*stats = (struct gn_sim_stats){.size = sizeof(*stats)};
	assert_int_equal(gn_sim_node_stats(sim, 1, stats), 0);
	assert_int_equal(gn_sim_leaks(sim), 0);
	gn_sim_destroy(sim);
	return measured_ns * 1000 / l->requests;
}

/* The card keeps 512 lines: of 1024 requests of one line, half are fetched again. */
static void writes_fetched_again(void **state)
{
	struct load l = {.op = GN_OP_WRITE, .bytes = PAGE, .n_sge = 1, .qps = 4, .requests = 4096};
	struct gn_sim_stats stats;

	(void)state;
	l.outstanding = 512;
	request_ps(&l, &stats);
	assert_int_equal(stats.wqe_misses, 0);
	l.outstanding = 1024;
	request_ps(&l, &stats);
	/* The last 1024 requests are fewer and fewer. */
	assert_in_range(stats.wqe_misses, 3500, 4096);
	l.op = GN_OP_READ;
	request_ps(&l, &stats);
	assert_in_range(stats.wqe_misses, 3500, 4096);
}

/* One qp may use 320 of the lines. */
static void writes_of_one_qp(void **state)
{
	struct load l = {.op = GN_OP_WRITE, .bytes = PAGE, .n_sge = 1, .qps = 1, .requests = 4096};
	struct gn_sim_stats stats;

	(void)state;
	l.outstanding = 320;
	request_ps(&l, &stats);
	assert_int_equal(stats.wqe_misses, 0);
	l.outstanding = 400;
	request_ps(&l, &stats);
	assert_in_range(stats.wqe_misses, 1400, 1640);
}

/*
 * 32 SGEs are 9 lines: with 112 requests outstanding, 496 of 1008 lines are fetched again. 8 of
 * each 9 lines wait for memory, 375 ns each.
 */
static void gather_list_fetched_again(void **state)
{
	struct load l = {
		.op = GN_OP_WRITE, .bytes = BLOCK, .qps = 4, .outstanding = 112, .requests = 500};
	struct gn_sim_stats stats;
	uint64_t one_ps, many_ps;

	(void)state;
	l.n_sge = 1;
	one_ps = request_ps(&l, &stats);
	assert_int_equal(stats.wqe_misses, 0);
	l.n_sge = SGE_MAX;
	many_ps = request_ps(&l, &stats);
	assert_in_range(many_ps - one_ps, 8 * 375000 * 45 / 100, 8 * 375000 * 55 / 100);
}

/* 450 translations fit: 4 requests of 32 pages need no fetch, of 64 every page is fetched. */
static void pages_fetched(void **state)
{
	struct load l = {.op = GN_OP_WRITE, .bytes = BLOCK, .n_sge = 1, .qps = 1, .requests = 500};
	struct gn_sim_stats stats;
	uint64_t few_ps, many_ps;

	(void)state;
	l.outstanding = 4;
	few_ps = request_ps(&l, &stats);
	assert_true(stats.cache_misses <= 4 * 32 + 1);
	l.outstanding = 64;
	many_ps = request_ps(&l, &stats);
	assert_in_range(stats.cache_misses, 1000 * 32, 1000 * 32 + 64 * 32);
	assert_in_range(many_ps - few_ps, 32 * 19000 * 95 / 100, 32 * 19000 * 105 / 100);
}

/*
 * The rate of 128 KiB WRITEs of 32 pages by threads with 8 outstanding requests each. The threads
 * of data/paper.tsv's line are within 5 % of the best, with each further thread the rate falls, and
 * in the end by more than 5 %: the line is not met by a flat curve.
 */
static void falls_after(unsigned qps, unsigned peak)
{
	static const unsigned threads[THREADS] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16};
	struct load l = {
		.op = GN_OP_WRITE, .bytes = BLOCK, .n_sge = SGE_MAX, .qps = qps, .requests = 400};
	uint64_t ps[THREADS], best_ps = UINT64_MAX, peak_ps = 0;
	struct gn_sim_stats stats;

	for (unsigned i = 0; i < THREADS; i++) {
		l.outstanding = threads[i] * IN_FLIGHT;
		ps[i] = request_ps(&l, &stats);
		print_message("%u qps, %2u threads, %3u outstanding: %.1f k/s\n", qps, threads[i],
			      l.outstanding, 1e9 / (double)ps[i]);
		best_ps = ps[i] < best_ps ? ps[i] : best_ps;
		if (threads[i] == peak)
			peak_ps = ps[i];
		else if (threads[i] > peak)
			assert_true(ps[i] > ps[i - 1]);
	}
	assert_true(peak_ps * 95 <= best_ps * 100);
	assert_true(ps[THREADS - 1] * 95 > best_ps * 100);
}

static void one_qp_falls_after_4_threads(void **state)
{
	(void)state;
	falls_after(1, 4);
}

static void four_qps_fall_after_7_threads(void **state)
{
	(void)state;
	falls_after(4, 7);
}

/*
 * A thread that waits for events pays for an interrupt by each completion, also for those that are
 * there when it returns to the wait. A thread that spins does not.
 */
static void interrupt_for_each_event(void **state)
{
	enum { REQUESTS = 100, INTERRUPT_NS = 7000 };
	struct load l = {.op = GN_OP_WRITE,
			 .bytes = 512,
			 .n_sge = 1,
			 .qps = 1,
			 .outstanding = 1,
			 .requests = REQUESTS};
	struct gn_sim_stats spins, events;
	uint64_t spin_ps, event_ps;

	(void)state;
	spin_ps = request_ps(&l, &spins);
	assert_int_equal(spins.interrupts, 0);
	assert_int_equal(measured_arms, 0);
	l.events = true;
	event_ps = request_ps(&l, &events);
	assert_int_equal(events.interrupts, 2 * REQUESTS);
	assert_int_equal(measured_arms, 2 * REQUESTS);
	assert_in_range(event_ps - spin_ps, INTERRUPT_NS * 980, INTERRUPT_NS * 1020);
	assert_in_range(events.cpu_busy_ns - spins.cpu_busy_ns,
			2 * REQUESTS * INTERRUPT_NS / 100 * 98,
			2 * REQUESTS * INTERRUPT_NS / 100 * 102);
	l.outstanding = 8;
	event_ps = request_ps(&l, &events);
	assert_int_equal(events.interrupts, 2 * REQUESTS);
	assert_int_equal(measured_arms, 2 * REQUESTS);
	assert_in_range(event_ps, INTERRUPT_NS * 1000, INTERRUPT_NS * 1100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(writes_fetched_again),
		cmocka_unit_test(writes_of_one_qp),
		cmocka_unit_test(gather_list_fetched_again),
		cmocka_unit_test(pages_fetched),
		cmocka_unit_test(interrupt_for_each_event),
		cmocka_unit_test(one_qp_falls_after_4_threads),
		cmocka_unit_test(four_qps_fall_after_7_threads),
	};

	seed = unit_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
