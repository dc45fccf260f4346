/* SPDX-License-Identifier: MIT */
/*
 * Requesters that mean ill: they greet as one does, or almost, and then write anything anywhere they
 * may, send anything of any length, and go without a word. Beside them an honest requester asks the
 * same responder by every protocol, and must get its own answers, in time, each time. In the end the
 * responder has nothing left of those who went.
 */
#include "evil_hello.h"
#include "fuzz.h"
#include "msg/wire.h"
#include "msg_stream.h"

#define EVILS	  2u
#define BUF_BYTES (256u << 10)
#define SENDS	  32u
#define RECEIVES  16u

struct evil {
	struct world *w;
	struct gn_fabric *fabric;
	struct raw_endpoint ep;
	struct gn_qp *ud;
	struct gn_ah *ah;
	uint8_t *buf;
	struct msg_hello hello;
	struct msg_welcome welcome;
	bool up;
	unsigned lives;
};

/* ---- its life ---- */

static void evil_end(struct evil *e)
{
	if (e->up && fuzz_pick(2))
		gn_disconnect(e->ep.qp);
	gn_ah_destroy(e->ah);
	gn_qp_destroy(e->ud);
	raw_endpoint_reset(&e->ep);
	e->up = false;
	e->ah = NULL;
	e->ud = NULL;
}

static int evil_make(struct evil *e)
{
	const struct raw_endpoint_opts opts = {.bytes = BUF_BYTES,
					       .remote = GN_REMOTE_WRITE,
					       .cq_depth = 8 * SENDS,
					       .notify = true};
	struct gn_qp_opts qp = {.size = sizeof(qp),
				.type = GN_QP_RC,
				.max_send_wr = SENDS,
				.max_recv_wr = RECEIVES,
				.max_inline = 64};

	EXPECT(raw_endpoint_make(&e->ep, e->fabric, &opts, &qp) == 0);
	qp.type = GN_QP_UD;
	qp.qkey = 77;
	EXPECT(gn_qp_create(e->ep.pd, &qp, &e->ud) == 0);
	e->buf = gn_mem_addr(e->ep.mem);
	for (uint32_t i = 0; i < BUF_BYTES; i += 4) {
		const uint32_t any = fuzz_any();

		memcpy(e->buf + i, &any, 4);
	}
	return 0;
}

static void draw_hello(struct evil *e)
{
	struct gn_remote answers;

	gn_mr_remote(e->ep.mr, &answers);
	e->hello = (struct msg_hello){.magic = MSG_MAGIC,
				      .version = MSG_VERSION,
				      .protocol = (uint8_t)fuzz_pick(GN_MSG_PROTOCOLS),
				      .flags = (uint8_t)fuzz_pick(4),
				      .pending = 1 + fuzz_pick(32),
				      .request_bytes = fuzz_pick(600),
				      .value_bytes = fuzz_pick(600),
				      .nonce = fuzz_any()};
	e->hello.answer_key = fuzz_pick(4) ? answers.key : fuzz_strange();
	if (e->hello.protocol == GN_MSG_UD)
		gn_qp_ud_addr(e->ud, &e->hello.ud);
	evil_hello_spoil(&e->hello, sizeof(e->hello));
}

/* Connected, or not, which is no failure. */
static int evil_begin(struct evil *e)
{
	struct gn_event event;

	EXPECT(evil_make(e) == 0);
	draw_hello(e);
	if (evil_hello_send(&e->ep, e->w->addr, &e->hello, sizeof(e->hello), &event))
		return 0;
	memcpy(&e->welcome, event.private_data, sizeof(e->welcome));
	e->up = true;
	e->lives++;
	if (e->hello.protocol == GN_MSG_UD && gn_ah_create(e->ud, &e->welcome.ud, &e->ah))
		e->ah = NULL;
	for (unsigned i = 0; i < RECEIVES; i++) {
		const struct gn_sge sge = {e->buf, 4096, gn_mr_lkey(e->ep.mr)};

		gn_post_recv(e->ep.qp, &(struct gn_recv_wr){.sge = &sge, .n_sge = 1}, NULL);
	}
	return 0;
}

/* ---- what it does ---- */

static void post(struct evil *e, struct gn_qp *qp, struct gn_wr *wr)
{
	struct gn_wc wc[16];

	wr->flags |= GN_SIGNALED;
	for (unsigned tries = 0; gn_post_send(qp, wr, NULL) == -EAGAIN && tries < 10; tries++)
		gn_yield();
	gn_cq_poll(e->ep.cq, wc, 16);
}

/* The head of a message as it might be, with something wrong, or all right. */
static uint32_t draw_message(struct evil *e)
{
	static const enum msg_frame frames[] = {MSG_MARKERS, MSG_SEQUENCED, MSG_CHECKSUMMED};
	const enum msg_frame frame = frames[fuzz_pick(3)];
	const uint32_t len = fuzz_pick(600);

	msg_frame_put(frame, e->buf, fuzz_pick(100), e->hello.nonce, len);
	if (fuzz_pick(2)) {
		const uint32_t word = fuzz_strange();

		memcpy(e->buf + fuzz_pick(32), &word, 4);
	}
	return msg_frame_bytes(frame, len);
}

static void evil_write(struct evil *e)
{
	const uint64_t area = e->hello.pending * 1024ull;
	struct gn_remote to = {.key = fuzz_pick(16) ? e->welcome.request_key : fuzz_strange()};
	const uint32_t len = fuzz_pick(2) ? draw_message(e) : fuzz_pick(2000);
	const struct gn_sge sge = {e->buf + (len < 1000 ? 0 : fuzz_pick(1000)), len,
				   gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, fuzz_pick(4) ? GN_OP_WRITE : GN_OP_WRITE_IMM, 0, &sge, &to,
		   fuzz_pick(64) ? fuzz_pick(area) / 64 * 64 : fuzz_strange(), 0);
	wr.imm = fuzz_pick(2) ? len : fuzz_strange();
	post(e, e->ep.qp, &wr);
}

/* It sleeps, it says, and waits for any number: it is to be woken. */
static void evil_sleep(struct evil *e)
{
	const uint64_t word = fuzz_pick(4) ? 1ull << 32 | fuzz_pick(100) : fuzz_any();
	const struct gn_sge sge = {e->buf, sizeof(word), gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	memcpy(e->buf, &word, sizeof(word));
	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &(struct gn_remote){.key = e->welcome.sleep_key},
		   fuzz_pick(32) ? 0 : fuzz_pick(256), 0);
	post(e, e->ep.qp, &wr);
}

static void evil_send(struct evil *e)
{
	const struct gn_sge sge = {e->buf + fuzz_pick(1000), fuzz_pick(16) ? fuzz_pick(600) : 5000,
				   gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	gn_wr_send(&wr, 0, &sge, 0);
	if (!fuzz_pick(4)) {
		wr.op = GN_OP_SEND_IMM;
		wr.imm = fuzz_strange();
	}
	post(e, e->ep.qp, &wr);
}

static void evil_datagram(struct evil *e)
{
	struct msg_datagram head = {.conn = (uint16_t)e->welcome.conn,
				    .slot = (uint16_t)fuzz_pick(e->hello.pending + 1),
				    .nonce = e->hello.nonce,
				    .seq = fuzz_pick(2) ? fuzz_pick(100) : fuzz_strange(),
				    .length = fuzz_pick(600)};
	const struct gn_sge sge = {e->buf, (uint32_t)sizeof(head) + head.length,
				   gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	if (!e->ah)
		return;
	if (fuzz_pick(2)) { /* others' connections, lengths that are not so, … */
		const uint32_t word = fuzz_pick(2) ? fuzz_pick(16) : fuzz_strange();

		memcpy((uint8_t *)&head + fuzz_pick(sizeof(head) / 2 - 1) * 2, &word, 4);
	}
	memcpy(e->buf, &head, sizeof(head));
	gn_wr_ud(&wr, 0, &sge, e->ah, e->welcome.ud.qpn, e->welcome.ud.qkey, 0);
	if (fuzz_pick(2)) { /* which copy of a request it is */
		wr.op = GN_OP_SEND_IMM;
		wr.imm = fuzz_strange();
	}
	post(e, e->ud, &wr);
}

static void evil_act(struct evil *e)
{
	switch (fuzz_pick(5)) {
	case 0:
		evil_send(e);
		break;
	case 4:
		evil_sleep(e);
		break;
	case 1:
		evil_datagram(e);
		break;
	default:
		evil_write(e);
		break;
	}
}

static int evil(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct evil e = {.w = w, .fabric = fabric};

	fuzz_own = fuzz_state + client;
	EXPECT(gn_ctx_create(fabric, &e.ep.ctx) == 0);
	while (!LOAD(w->step)) {
		EXPECT(evil_begin(&e) == 0);
		for (unsigned n = fuzz_pick(60); e.up && n && !LOAD(w->step); n--)
			evil_act(&e);
		evil_end(&e);
	}
	EXPECT(gn_ctx_destroy(e.ep.ctx) == 0);
	EXPECT(e.lives > 0);
	return 0;
}

/* ---- an honest requester beside them ---- */

static int honest(struct world *w, struct gn_fabric *fabric, const uint8_t *data, unsigned protocol)
{
	const struct world as = {.addr = w->addr,
				 .flags = w->flags,
				 .data_bytes = w->data_bytes,
				 .protocol = (enum gn_msg_protocol)protocol};
	struct stream s = {.conns = 2,
			   .pending = 8,
			   .max_request = 100,
			   .max_value = 500,
			   .refused_one_in = 10,
			   .n = 100,
			   .rng = fuzz_any(),
			   .data = data};

	EXPECT(stream_begin(&s, &as, fabric) == 0);
	EXPECT(stream_run(&s) == 0);
	gn_msg_requester_destroy(s.requester);
	return 0;
}

static int program(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	const uint64_t until_ns = gn_deadline_us(fuzz_us());
	uint8_t *data;
	int rc = 0;

	if (client)
		return evil(w, fabric, client);
	data = data_of(w);
	EXPECT(data);
	fuzz_own = fuzz_state + 1000;
	for (unsigned i = 0; !rc && (gn_now_ns() < until_ns || i < GN_MSG_PROTOCOLS); i++)
		rc = honest(w, fabric, data, i % GN_MSG_PROTOCOLS);
	STORE(w->step, 1);
	gn_free(data);
	EXPECT(rc == 0);
	world_await_least(w, &w->finished, EVILS);
	world_await(w, &w->conns, 0);
	return 0;
}

/* What the hostile ask is not checked, but answered: they may change it while it is read. */
static int answer_any(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	struct ask ask;

	(void)arg;
	if (len < sizeof(ask)) {
		memcpy(value, request, len < max ? len : max);
		return (int)(len < max ? len : max);
	}
	memcpy(&ask, request, sizeof(ask));
	if (ask.value_len > max)
		return -EPERM;
	fill(value, ask.value_len, ask.seed + 1);
	return (int)ask.value_len;
}

static void test_hostile(void **state)
{
	struct world w = {.program = program,
			  .clients = 1 + EVILS,
			  .data_bytes = MSG_DATA_BYTES,
			  .opts = {.answer = answer_any, .max_pending = 64}};

	(void)state;
	fuzz_begin();
	gn_log_to(fuzz_be_silent, NULL);
	for (unsigned paper = 0; paper < 2; paper++) {
		w.flags = paper ? GN_MSG_PAPER : 0;
		run_threads(&w);
	}
	gn_log_to(NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_hostile)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
