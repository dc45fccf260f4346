/* SPDX-License-Identifier: MIT */
/*
 * What a requester can make a responder hold and wait for, by shared memory: connections, buffers, a
 * copy that never ends. docs/limits.md states the numbers.
 */
#include "fabric/shm/shm.h"
#include "fuzz.h"
#include "msg_raw.h"

#include <sys/wait.h>
#include <unistd.h>

#define QUICK_NS (unit_slow() ? 900000000u : 500000000u) /* a wait for a peer takes a second */
#define STUCK	 4u

/* ---- a copy that never ends ---- */

/* A message that is longer than any may be, which ends the connection. */
static int write_nonsense(struct raw *raw)
{
	const struct gn_remote to = {.key = raw->welcome.request_key};
	const uint32_t head[2] = {1, ~MSG_REFUSED};
	const struct gn_sge sge = {gn_mem_addr(raw->ep.mem), sizeof(head), gn_mr_lkey(raw->ep.mr)};
	struct gn_wr wr;
	struct gn_wc wc;

	memcpy(sge.addr, head, sizeof(head));
	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &to, 0, GN_SIGNALED);
	EXPECT(gn_post_send(raw->ep.qp, &wr, NULL) == 0);
	EXPECT(gn_cq_wait(raw->ep.cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "a WRITE") == 1);
	EXPECT(wc.status == GN_WC_OK);
	return 0;
}

/* Breaks the rules, and seems to be in the middle of a copy to the responder's memory from then on. */
static int get_stuck(struct raw *raw, struct world *w, struct gn_fabric *fabric)
{
	struct msg_hello hello;
	uint64_t *word;

	EXPECT(raw_make(raw, fabric) == 0);
	hello = raw_hello(raw, GN_MSG_WRITE_WRITE);
	EXPECT(raw_greet(raw, w->addr, &hello) == 0);
	world_still(w);
	EXPECT(write_nonsense(raw) == 0);
	word = &((struct shm_qp *)raw->ep.qp)->conn.own_area->busy.posting;
	__atomic_store_n(word, *word | 1, __ATOMIC_SEQ_CST);
	world_still(w);
	return 0;
}

static int stuck(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct raw raw[STUCK];
	struct honest h;

	if (client) {
		world_await_least(w, &w->step, 1);
		for (unsigned i = 0; i < STUCK; i++)
			EXPECT(get_stuck(&raw[i], w, fabric) == 0);
		STORE(w->step, 2);
		world_await_least(w, &w->step, 3);
		for (unsigned i = 0; i < STUCK; i++)
			raw_free(&raw[i]);
		return 0;
	}
	EXPECT(honest_begin(&h, w, fabric) == 0);
	EXPECT(honest_ask(&h) == 0);
	STORE(w->step, 1);
	/* Their places are free at once, though their buffers are not yet. */
	while (LOAD(w->step) < 2 || LOAD(w->conns) > 1)
		EXPECT(honest_ask(&h) == 0);
	printf("# %llu honest requests, the slowest took %llu us\n", (unsigned long long)h.asked,
	       (unsigned long long)h.worst_ns / 1000);
	EXPECT(h.worst_ns < QUICK_NS);
	STORE(w->step, 3);
	gn_msg_requester_destroy(h.requester);
	return 0;
}

static void test_stuck(void **state)
{
	struct world w = {.program = stuck,
			  .clients = 2,
			  .protocol = GN_MSG_WRITE_WRITE,
			  .opts = {.max_conns = 1 + STUCK}};

	(void)state;
	run_where(&w, REAL);
}

/* ---- more than there may be ---- */

#define CROWD  10u
#define PLACES 4u

/* Connections, requests in flight and bytes: one more than allowed is refused, with the reason. */
static int beyond(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	static const enum msg_refusal why[] = {MSG_TOO_MANY_PENDING, MSG_TOO_LARGE_REQUEST,
					       MSG_TOO_LARGE_VALUE};
	struct msg_hello hello;
	struct raw raw[CROWD];
	struct honest h;

	(void)client;
	EXPECT(honest_begin(&h, w, fabric) == 0);
	for (unsigned i = 0; i < 3; i++) {
		EXPECT(raw_make(&raw[0], fabric) == 0);
		hello = raw_hello(&raw[0], w->protocol);
		hello.pending = w->opts.max_pending + (i == 0);
		hello.request_bytes = w->opts.max_request + (i == 1);
		hello.value_bytes = w->opts.max_value + (i == 2);
		EXPECT(raw_greet(&raw[0], w->addr, &hello) == -ECONNREFUSED);
		EXPECT(raw[0].welcome.refusal == why[i]);
		raw_free(&raw[0]);
	}
	for (unsigned i = 0; i < CROWD; i++) {
		const bool fits = i < PLACES - 1;

		EXPECT(raw_make(&raw[i], fabric) == 0);
		hello = raw_hello(&raw[i], w->protocol);
		EXPECT(raw_greet(&raw[i], w->addr, &hello) == (fits ? 0 : -ECONNREFUSED));
		EXPECT(fits || raw[i].welcome.refusal == MSG_FULL);
		EXPECT(honest_ask(&h) == 0);
	}
	for (unsigned i = 0; i < CROWD; i++)
		raw_free(&raw[i]);
	gn_msg_requester_destroy(h.requester);
	return 0;
}

static void test_beyond(void **state)
{
	struct world w = {.program = beyond,
			  .clients = 1,
			  .opts = {.max_conns = PLACES,
				   .max_pending = 16,
				   .max_request = 64,
				   .max_value = 256}};

	(void)state;
	run_protocols(&w, REAL, BUT_READ);
}

/* ---- memory ---- */

#define HUNGRY	     20u
#define MEMORY_BYTES (16ull << 20)
#define HUNGRY_BYTES (64ull * (4096 + 32768)) /* what one asks for, and gets some more */

static int greet_hungry(struct raw *raw, const struct world *w)
{
	struct msg_hello hello = raw_hello(raw, w->protocol);

	hello.pending = 64;
	hello.request_bytes = 4096;
	hello.value_bytes = 32768;
	return raw_greet(raw, w->addr, &hello);
}

/*
 * Each requester asks for much; as many are accepted as fit, the others get the reason, and no
 * honest one fails.
 */
static int hungry(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct raw raw[HUNGRY];
	unsigned accepted = 0;
	struct honest h;

	(void)client;
	EXPECT(honest_begin(&h, w, fabric) == 0);
	for (unsigned i = 0; i < HUNGRY; i++) {
		int rc;

		EXPECT(raw_make(&raw[i], fabric) == 0);
		rc = greet_hungry(&raw[i], w);
		accepted += rc == 0;
		EXPECT(rc == 0 || (rc == -ECONNREFUSED && raw[i].welcome.refusal == MSG_NO_MEMORY));
		EXPECT(honest_ask(&h) == 0);
	}
	EXPECT(accepted >= 1 && accepted * HUNGRY_BYTES <= MEMORY_BYTES);
	/* Who leaves makes room. */
	for (unsigned i = 0; i < HUNGRY; i++)
		raw_free(&raw[i]);
	world_await(w, &w->conns, 1);
	EXPECT(raw_make(&raw[0], fabric) == 0);
	EXPECT(greet_hungry(&raw[0], w) == 0);
	raw_free(&raw[0]);
	gn_msg_requester_destroy(h.requester);
	return 0;
}

static void test_hungry(void **state)
{
	struct world w = {.program = hungry,
			  .clients = 1,
			  .opts = {.max_memory = MEMORY_BYTES, .max_conns = 64}};

	(void)state;
	run_protocols(&w, REAL, RC_ASKS);
}

/* A datagram requester's share counts as well: the receives of all, and its own answers. */
static int hungry_by_datagrams(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct gn_msg_requester_opts opts = requester_opts(w);
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
	const char *why = NULL;

	(void)client;
	opts.value_bytes = 64;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, &why, &conn) == -ECONNREFUSED);
	EXPECT(!strcmp(why, msg_refusal_text(MSG_NO_MEMORY)));
	gn_msg_requester_destroy(requester);
	/* Others are welcome: nothing is left of the attempt. */
	opts.protocol = GN_MSG_WRITE_WRITE;
	EXPECT(gn_msg_requester_create(fabric, &opts, &requester) == 0);
	EXPECT(gn_msg_conn_open(requester, w->addr, &why, &conn) == 0);
	gn_msg_requester_destroy(requester);
	return 0;
}

static void test_hungry_by_datagrams(void **state)
{
	struct world w = {.program = hungry_by_datagrams,
			  .clients = 1,
			  .protocol = GN_MSG_UD,
			  .opts = {.max_memory = 1u << 20}};

	(void)state;
	run_where(&w, REAL);
}

/* ---- an address of somebody else ---- */

static struct gn_ud_addr bystander;

/* A process with a datagram qp that has nothing to do with anybody: its address, until in is closed. */
static int be_bystander(int in, int out)
{
	struct gn_fabric *fabric;
	struct raw raw;
	struct gn_ud_addr addr;
	char end;

	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(raw_make(&raw, fabric) == 0);
	EXPECT(gn_qp_ud_addr(raw.ud, &addr) == 0);
	EXPECT(write(out, &addr, sizeof(addr)) == sizeof(addr));
	EXPECT(read(in, &end, 1) == 0);
	raw_free(&raw);
	return gn_fabric_close(fabric);
}

/* A hello that names a qp of another process than its sender's gets no connection to keep. */
static int reflected(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct msg_hello hello;
	struct gn_event event;
	struct raw raw;

	(void)client;
	EXPECT(raw_make(&raw, fabric) == 0);
	hello = raw_hello(&raw, GN_MSG_UD);
	EXPECT(raw_greet(&raw, w->addr, &hello) == 0);
	raw_free(&raw);
	EXPECT(raw_make(&raw, fabric) == 0);
	hello = raw_hello(&raw, GN_MSG_UD);
	hello.ud = bystander;
	EXPECT(raw_greet(&raw, w->addr, &hello) == 0);
	EXPECT(gn_chan_wait(raw.ep.chan, until_ns, &event) == 0);
	EXPECT(event.type == GN_EVENT_DISCONNECTED);
	raw_free(&raw);
	return 0;
}

static void test_reflected(void **state)
{
	struct world w = {.program = reflected, .clients = 1, .protocol = GN_MSG_UD};
	int in[2], out[2], status;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe(in), 0);
	assert_int_equal(pipe(out), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		close(in[1]);
		_exit(be_bystander(in[0], out[1]) != 0);
	}
	assert_int_equal(read(out[0], &bystander, sizeof(bystander)), sizeof(bystander));
	gn_log_to(fuzz_be_silent, NULL);
	run_where(&w, REAL);
	gn_log_to(NULL, NULL);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(close(in[1 - i]) || close(out[i]), 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stuck),	  cmocka_unit_test(test_beyond),
		cmocka_unit_test(test_hungry),	  cmocka_unit_test(test_hungry_by_datagrams),
		cmocka_unit_test(test_reflected),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
