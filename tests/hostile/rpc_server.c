/* SPDX-License-Identifier: MIT */
/*
 * A hostile server: it accepts clients, and then leaves and writes anything where their results
 * should be. A client may get wrong results from it, and may disconnect; it must respect its
 * callers' buffers and deadlines.
 */
#include <errno.h>
#include <string.h>

#include "cost.h"
#include "fuzz.h"
#include "rpc_raw_server.h"

#define CONNS	4u
#define GUARD	64u
#define CALL_US 3000u

/* ---- the server ---- */

struct evil {
	const char *addr;
	uint64_t seed;
	bool ready, stop;
	int failed;
	unsigned lives, results;
	struct raw_server raw;
	struct raw_conn conns[CONNS];
	bool honest[CONNS];
};

/* The response of a correct server, sometimes with one wrong field. */
static int accept_client(struct evil *e, const struct gn_event *event)
{
	const uint32_t which = fuzz_pick(CONNS);
	struct gn_conn_opts opts = {.size = sizeof(opts),
				    .private_len = sizeof(struct rpc_welcome)};
	struct raw_conn *c = &e->conns[which];
	struct rpc_welcome said;

	raw_conn_end(c);
	EXPECT(raw_conn_make(&e->raw, c, event) == 0);
	c->welcome.epoch = fuzz_any() | 1;
	if (fuzz_pick(2))
		c->welcome.park_us = fuzz_strange();
	said = c->welcome;
	if (!fuzz_pick(4)) {
		const uint32_t word = fuzz_strange();

		memcpy((uint8_t *)&said + fuzz_pick(sizeof(said) / 4) * 4, &word, 4);
	}
	opts.private_data = &said;
	if (!fuzz_pick(20))
		opts.private_len = fuzz_pick(sizeof(said));
	c->up = !gn_accept(event->req, c->qp, &opts);
	e->honest[which] = fuzz_pick(2);
	e->lives += c->up;
	return 0;
}

/* ---- results ---- */

static uint32_t draw_result(const struct raw_conn *c, uint8_t *to, uint32_t room)
{
	struct rpc_entry entry = {.len = fuzz_pick(200),
				  .code = (uint16_t)(fuzz_pick(4) ? 0 : fuzz_strange()),
				  .index = (uint16_t)fuzz_pick(fuzz_pick(8) ? 4 : c->hello.window)};

	if (rpc_align8(entry.len) + sizeof(entry) > room)
		entry.len = 0;
	for (uint32_t i = 0; i < entry.len; i++)
		to[sizeof(entry) + i] = (uint8_t)fuzz_any();
	if (!fuzz_pick(3) && room >= sizeof(entry) + sizeof(struct rpc_large_ref)) {
		struct gn_remote mine;
		struct rpc_large_ref ref;

		gn_mr_remote(c->mr[RAW_FAR], &mine);
		ref = (struct rpc_large_ref){.offset = fuzz_pick(20) ? 0 : fuzz_strange(),
					     .key = fuzz_pick(20) ? mine.key : fuzz_strange(),
					     .len = fuzz_pick(20) ? fuzz_pick(RAW_LARGE_BYTES) :
								    fuzz_strange()};
		entry.index |= RPC_LARGE;
		entry.len = sizeof(ref);
		memcpy(to + sizeof(entry), &ref, sizeof(ref));
	}
	if (!fuzz_pick(60))
		entry.len = fuzz_strange();
	if (!fuzz_pick(60))
		entry.index = (uint16_t)fuzz_strange();
	memcpy(to, &entry, sizeof(entry));
	return (uint32_t)sizeof(entry) + rpc_align8(entry.len);
}

/* The result that the request asks for: then calls succeed, and the client continues. */
static uint32_t copy_request(const struct raw_conn *c, uint8_t *to, uint32_t max)
{
	struct rpc_head head;
	const uint8_t *slot = raw_find_request(c, c->seen, &head);

	if (!slot || head.len > max)
		return 0;
	memcpy(to, slot + sizeof(head), head.len);
	for (uint32_t at = 0; at + sizeof(struct rpc_entry) <= head.len;) {
		struct rpc_entry entry;

		memcpy(&entry, to + at, sizeof(entry));
		entry.code = GN_RPC_OK;
		memcpy(to + at, &entry, sizeof(entry));
		at += (uint32_t)sizeof(entry) + rpc_align8(entry.len);
	}
	return head.len;
}

static void write_back(struct raw_conn *c, uint64_t at, uint32_t bytes)
{
	const struct gn_sge sge = {(uint8_t *)gn_mem_addr(c->mem[RAW_RESULTS]) + at, bytes,
				   gn_mr_lkey(c->mr[RAW_RESULTS])};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &(struct gn_remote){.key = c->hello.reply_key}, at,
		   GN_SIGNALED);
	gn_post_send(c->qp, &wr, NULL);
}

/* The next message, where a client fetches it and where it finds replies. */
static void publish(struct evil *e, struct raw_conn *c, bool honest)
{
	const uint32_t max = rpc_max_len(c->welcome.max_result);
	const uint64_t stride = rpc_stride(c->welcome.max_result);
	const uint64_t at = raw_result_at(c);
	uint8_t *slot = raw_result(c);
	struct rpc_seal seal = {.seq = rpc_seq(c->welcome.epoch, c->published + 1),
				.nonce = c->hello.nonce,
				.flags = fuzz_pick(2) ? RPC_WANT_ACK : 0,
				.aux = (uint16_t)(fuzz_pick(2) ? 0 : fuzz_strange())};

	if (honest && fuzz_pick(20)) {
		seal.len = copy_request(c, slot + sizeof(struct rpc_head), max);
		if (!seal.len)
			return;
	} else {
		for (uint32_t i = 1 + fuzz_pick(3); i && seal.len + 8 <= max; i--) {
			const uint32_t n = draw_result(c, slot + sizeof(struct rpc_head) + seal.len,
						       max - seal.len);

			seal.len = n > max - seal.len ? max : seal.len + n;
		}
	}
	if (!fuzz_pick(50))
		seal.len = fuzz_strange();
	seal.len = seal.len > max ? max : seal.len & ~7u;
	seal.ack = fuzz_pick(50) ? 0 : fuzz_strange();
	rpc_seal(slot, &seal);
	write_back(c, at, (uint32_t)stride);
	c->published++;
	e->results++;
}

static void scribble(struct raw_conn *c)
{
	const uint64_t all = rpc_stride(c->welcome.max_result) * c->welcome.slots;
	const uint64_t at = fuzz_any() % all;
	const uint32_t left = (uint32_t)(all - at), len = fuzz_pick(left < 200 ? left : 200);

	for (uint32_t i = 0; i < len; i++)
		((uint8_t *)gn_mem_addr(c->mem[RAW_RESULTS]))[at + i] = (uint8_t)fuzz_any();
	write_back(c, at, len);
}

/* Sends a notification, mostly unsolicited. */
static void notify(struct raw_conn *c)
{
	struct gn_wr wr;

	gn_wr_init(&wr, GN_OP_WRITE_IMM, 0, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	wr.imm = fuzz_strange();
	gn_post_send(c->qp, &wr, NULL);
}

static int turn(struct evil *e)
{
	struct gn_event event;
	struct rpc_head head;
	struct gn_wc wc[32];
	int n;

	while (!gn_chan_next(e->raw.chan, &event)) {
		struct raw_conn *c = event.qp ? gn_qp_user(event.qp) : NULL;

		if (event.type == GN_EVENT_CONNECT_REQUEST)
			EXPECT(accept_client(e, &event) == 0);
		else if (c && event.type != GN_EVENT_ESTABLISHED)
			c->up = false;
	}
	n = gn_cq_poll(e->raw.cq, wc, 32);
	for (int i = 0; i < n; i++) {
		struct raw_conn *c = gn_qp_user(wc[i].qp);

		if (wc[i].status != GN_WC_OK)
			c->up = false;
		else if (wc[i].id)
			gn_post_recv(c->qp, &(struct gn_recv_wr){.id = 1}, NULL);
	}
	for (unsigned i = 0; i < CONNS; i++) {
		struct raw_conn *c = &e->conns[i];

		if (!c->up)
			continue;
		if (raw_find_request(c, c->seen + 1, &head)) {
			c->seen++;
			for (unsigned k = fuzz_pick(8) ? 1 : fuzz_pick(3); k; k--)
				publish(e, c, e->honest[i]);
		} else if (!fuzz_pick(500))
			scribble(c);
		else if (!fuzz_pick(3000))
			notify(c);
		else if (!fuzz_pick(5000))
			raw_conn_end(c);
	}
	return 0;
}

static int evil_serves(struct evil *e)
{
	EXPECT(raw_server_begin(&e->raw, e->addr) == 0);
	__atomic_store_n(&e->ready, true, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&e->stop, __ATOMIC_ACQUIRE)) {
		EXPECT(turn(e) == 0);
		gn_yield();
	}
	for (unsigned i = 0; i < CONNS; i++)
		raw_conn_end(&e->conns[i]);
	return raw_server_end(&e->raw);
}

static void evil_main(void *arg)
{
	struct evil *e = arg;

	fuzz_own = e->seed;
	e->failed = evil_serves(e);
}

/* ---- the client ---- */

struct ask {
	struct gn_rpc_op op;
	uint64_t deadline_ns, ended_ns;
	unsigned ended, sum;
	uint8_t request[300];
	uint8_t *result; /* GUARD bytes before and behind its buffer */
};

static void ask_done(struct gn_rpc_op *op)
{
	struct ask *a = op->arg;

	a->ended++;
	a->ended_ns = gn_now_ns();
	if (op->flags & GN_RPC_IN_PLACE && op->status == GN_RPC_OK)
		for (uint32_t i = 0; i < op->result_len; i++)
			a->sum += ((const uint8_t *)op->data)[i];
}

static void ask_make(struct ask *a)
{
	const uint32_t room = fuzz_pick(4) ? fuzz_pick(300) : fuzz_pick(300000);

	a->ended = 0;
	a->deadline_ns = gn_deadline_us(CALL_US);
	a->result = malloc(room + 2 * GUARD);
	assert_non_null(a->result);
	memset(a->result, 0xee, room + 2 * GUARD);
	a->op = (struct gn_rpc_op){.method = fuzz_pick(5),
				   .request = a->request,
				   .request_len = fuzz_pick(sizeof(a->request)),
				   .result = a->result + GUARD,
				   .result_room = room,
				   .deadline_ns = a->deadline_ns,
				   .done = ask_done,
				   .arg = a};
	if (!fuzz_pick(3)) {
		a->op.result = NULL;
		a->op.flags = GN_RPC_IN_PLACE;
	}
}

/* In one step or in two; sometimes it is canceled at once. */
static int ask_begin(struct gn_rpc_client *client, struct ask *a)
{
	void *to;
	int rc;

	if (fuzz_pick(2)) {
		rc = gn_rpc_submit(client, &a->op);
	} else {
		rc = gn_rpc_prepare(client, &a->op, &to);
		if (!rc && !fuzz_pick(8)) { /* something comes between */
			gn_rpc_flush(client);
			if (fuzz_pick(2))
				gn_rpc_poll(client);
		} else if (!rc) {
			memset(to, 1, a->op.request_len);
		}
		if (!rc)
			rc = gn_rpc_commit(client, &a->op);
		if (rc == -ESRCH || rc == -EMSGSIZE) /* overtaken; larger than a slot */
			rc = gn_rpc_submit(client, &a->op);
	}
	if (!rc && !fuzz_pick(8))
		gn_rpc_cancel(&a->op);
	return rc;
}

/* By its own wait, or by its source; an idle client may change threads. */
static int ask_wait(struct gn_rpc_client *client, const struct ask *a, bool by_source)
{
	while (!a->ended && by_source) {
		struct gn_wait_item item = gn_wait_on(gn_rpc_client_source(client));

		/* A disconnected client is never ready, and has nothing outstanding. */
		EXPECT(gn_wait(&item, 1, gn_deadline_us(UNIT_PATIENCE_US), "a hostile server") >=
		       0);
		EXPECT(gn_rpc_poll(client) >= 0);
	}
	while (!a->ended)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	return 0;
}

static int ask_check(struct ask *a, unsigned *statuses)
{
	const struct gn_rpc_op *op = &a->op;

	EXPECT(a->ended == 1);
	EXPECT(op->status != GN_RPC_OK || op->result_len <= op->result_room);
	for (unsigned i = 0; i < GUARD; i++)
		EXPECT(a->result[i] == 0xee && a->result[GUARD + op->result_room + i] == 0xee);
	statuses[op->status < GN_RPC_FAILED ? op->status : GN_RPC_FAILED]++;
	free(a->result);
	return 0;
}

#define ASKS 12u

/*
 * A burst of calls: all complete, not much later than they should; time that other processes had
 * the processor does not count.
 */
static int burst(struct gn_rpc_client *client, unsigned *statuses, uint64_t *latest_ns)
{
	struct ask *asks = calloc(ASKS, sizeof(*asks));
	const uint64_t queued_ns = cost_queued_ns();
	const bool by_source = fuzz_pick(2);
	unsigned n = 0;
	int rc = 0;

	EXPECT(asks);
	for (; n < 1 + fuzz_pick(ASKS) && n < ASKS && !rc; n += !rc) {
		ask_make(&asks[n]);
		rc = ask_begin(client, &asks[n]);
		if (rc)
			free(asks[n].result);
	}
	EXPECT(rc == 0 || rc == -EAGAIN || rc == -ENOTCONN);
	for (unsigned i = 0; i < n; i++) {
		int64_t late_ns;

		EXPECT(ask_wait(client, &asks[i], by_source) == 0);
		late_ns = (int64_t)(asks[i].ended_ns - asks[i].deadline_ns) -
			  (int64_t)(cost_queued_ns() - queued_ns);
		if (late_ns > (int64_t)*latest_ns)
			*latest_ns = (uint64_t)late_ns;
		EXPECT(ask_check(&asks[i], statuses) == 0);
	}
	free(asks);
	if (rc != -ENOTCONN && gn_rpc_client_release(client) == 0)
		EXPECT(gn_rpc_client_adopt(client) == 0);
	return rc == -ENOTCONN ? 1 : 0;
}

static int one_life(struct gn_fabric *fabric, const char *addr, uint64_t end_ns, unsigned *statuses,
		    uint64_t *latest_ns)
{
	struct gn_rpc_client_opts opts = in_mode((enum gn_rpc_mode)fuzz_pick(GN_RPC_MODES));
	struct gn_rpc_client *client;
	int rc;

	opts.slots = 1u << fuzz_pick(4);
	opts.max_result = 64u << fuzz_pick(5);
	opts.max_request = 300;
	opts.batch.entries = 1 + fuzz_pick(4);
	opts.timeout_us = 100000;
	rc = gn_rpc_client_open(fabric, addr, &opts, &client);
	EXPECT(rc <= 0); /* it may be refused, disconnected, or accepted with an invalid welcome */
	if (rc)
		return 0;
	for (unsigned i = fuzz_pick(40); i && gn_now_ns() < end_ns && !rc; i--) {
		rc = burst(client, statuses, latest_ns);
		EXPECT(rc == 0 || rc == 1);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static bool enough(const unsigned *statuses)
{
	return statuses[GN_RPC_OK] > 10 && statuses[GN_RPC_PEER_GONE] > 10;
}

static void test_hostile_server(void **state)
{
	const uint64_t end_ns = fuzz_begin() + fuzz_us() * 2000;
	const uint64_t patient_ns = end_ns + UNIT_PATIENCE_US * 1000ull;
	unsigned statuses[GN_RPC_FAILED + 1] = {0};
	struct evil *e = calloc(1, sizeof(*e));
	uint64_t latest_ns = 0;
	struct gn_thread *thread;
	char addr[64];
	int rc = 0;

	(void)state;
	assert_non_null(e);
	gn_log_to(fuzz_be_silent, NULL);
	snprintf(addr, sizeof(addr), "shm:hostile-rpc-%llx", (unsigned long long)gn_random());
	e->addr = addr;
	e->seed = fuzz_any() | 1;
	assert_int_equal(gn_fabric_open("shm", &e->raw.fabric), 0);
	assert_int_equal(gn_thread_start("evil", evil_main, e, &thread), 0);
	while (!__atomic_load_n(&e->ready, __ATOMIC_ACQUIRE) && !e->failed)
		gn_sleep_us(100);
	/* On a busy machine it takes longer until enough has happened. */
	while (!rc && gn_now_ns() < (enough(statuses) ? end_ns : patient_ns))
		rc = one_life(e->raw.fabric, addr, patient_ns, statuses, &latest_ns);
	__atomic_store_n(&e->stop, true, __ATOMIC_RELEASE);
	assert_int_equal(gn_thread_join(thread), 0);
	print_message("# %u lives, %u results; calls: %u ok, %u late, %u gone, %u too big, %u "
		      "other; the latest %.1f ms after its deadline\n",
		      e->lives, e->results, statuses[GN_RPC_OK], statuses[GN_RPC_TIMEOUT],
		      statuses[GN_RPC_PEER_GONE], statuses[GN_RPC_TOO_BIG], statuses[GN_RPC_FAILED],
		      (double)latest_ns * 1e-6);
	assert_int_equal(rc, 0);
	assert_int_equal(e->failed, 0);
	assert_true(enough(statuses));
	assert_true(latest_ns < (unit_slow() ? 5000000000u : 1000000000u));
	assert_int_equal(gn_fabric_close(e->raw.fabric), 0);
	gn_log_to(NULL, NULL);
	free(e);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
