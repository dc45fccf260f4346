/* SPDX-License-Identifier: MIT */
/*
 * A hostile client: it connects like an RPC client, and then writes anything to any memory that it
 * can: messages with wrong lengths and entries, for methods that are handled one by one and in
 * groups; it abandons running calls, changes requests while they are served, and disconnects.
 */
#ifndef GN_TESTS_HOSTILE_RPC_EVIL_H
#define GN_TESTS_HOSTILE_RPC_EVIL_H

#include <errno.h>
#include <string.h>

#include "evil_hello.h"
#include "fuzz.h"
#include "rpc/wire.h"
#include "rpc_world.h"

#define SENDS 64u

/*
 * Handled in groups: ordered or not, correctly or not. The including file has the server's methods.
 */
enum { GROUP_ECHO = 100, GROUP_ECHO_TOO, GROUP_ANY, GROUP_ANY_TOO };

struct evil {
	const char *addr;
	struct gn_fabric *fabric;
	uint64_t seed;
	bool *stop;
	unsigned lives, requests, answered; /* atomic */
	int failed;

	struct raw_endpoint ep;
	struct gn_mem *reply;
	struct gn_mr *reply_mr;
	uint8_t *buf;
	struct rpc_hello hello;
	struct rpc_welcome welcome;
	uint32_t number, results;
	/* Of the current message: the more entries, the fewer errors in each. */
	uint32_t entries, kind;
	bool up;
};

#define BUF_BYTES (1u << 20)

/* ---- connection ---- */

static void evil_end(struct evil *e)
{
	if (e->up && fuzz_pick(2))
		gn_disconnect(e->ep.qp);
	gn_qp_destroy(e->ep.qp);
	e->ep.qp = NULL;
	gn_mr_deregister(e->reply_mr);
	gn_mem_free(e->reply);
	raw_endpoint_reset(&e->ep);
	e->up = false;
	e->reply_mr = NULL;
	e->reply = NULL;
}

static int evil_make(struct evil *e)
{
	const struct raw_endpoint_opts opts = {.bytes = BUF_BYTES,
					       .remote = GN_REMOTE_READ,
					       .cq_depth = 4 * SENDS,
					       .notify = true};
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = SENDS, .max_inline = 64};

	EXPECT(raw_endpoint_make(&e->ep, e->fabric, &opts, &qp) == 0);
	EXPECT(gn_mem_alloc(e->fabric, BUF_BYTES, GN_REMOTE_WRITE, &e->reply) == 0);
	EXPECT(gn_mr_register(e->ep.pd, e->reply, 0, BUF_BYTES, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
			      &e->reply_mr) == 0);
	e->buf = gn_mem_addr(e->ep.mem);
	return 0;
}

static void draw_hello(struct evil *e)
{
	struct gn_remote reply;

	gn_mr_remote(e->reply_mr, &reply);
	e->hello = (struct rpc_hello){.magic = RPC_MAGIC,
				      .version = RPC_VERSION,
				      .bytes = sizeof(e->hello),
				      .slots = 1u << fuzz_pick(5),
				      .max_request = 64u << fuzz_pick(7),
				      .max_result = 64u << fuzz_pick(7),
				      .window = 1 + fuzz_pick(64),
				      .reply_key = fuzz_pick(4) ? reply.key : fuzz_strange(),
				      .nonce = fuzz_any()};
	evil_hello_spoil(&e->hello, sizeof(e->hello));
}

/* Connected, with a welcome that fits the hello; or refused, which is no failure. */
static int evil_begin(struct evil *e)
{
	struct gn_event event;

	EXPECT(evil_make(e) == 0);
	draw_hello(e);
	if (evil_hello_send(&e->ep, e->addr, &e->hello, sizeof(e->hello), &event))
		return 0;
	memcpy(&e->welcome, event.private_data, sizeof(e->welcome));
	e->number = 1;
	e->results = 0;
	e->up = true;
	__atomic_fetch_add(&e->lives, 1, __ATOMIC_RELAXED);
	return 0;
}

/* ---- actions ---- */

static void post(struct evil *e, struct gn_wr *wr)
{
	struct gn_wc wc[16];
	int n;

	wr->flags |= GN_SIGNALED;
	for (unsigned tries = 0; e->up && gn_post_send(e->ep.qp, wr, NULL) && tries < 10; tries++)
		gn_yield();
	n = gn_cq_poll(e->ep.cq, wc, 16);
	for (int i = 0; i < n; i++)
		if (wc[i].status != GN_WC_OK)
			e->up = false; /* the server has disconnected it */
}

static void write_at(struct evil *e, uint32_t from, uint64_t to, uint32_t len, uint32_t key)
{
	const struct gn_sge sge = {e->buf + from, len, gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &(struct gn_remote){.key = key}, to, 0);
	post(e, &wr);
}

static uint64_t request_bytes(const struct evil *e)
{
	return rpc_abandoned_at(rpc_stride(e->welcome.max_request), e->welcome.slots,
				e->welcome.window);
}

/* Draws an entry, valid or not; returns its size in bytes. */
static uint32_t draw_entry(struct evil *e, uint8_t *to, uint32_t room, uint32_t index)
{
	static const uint16_t methods[] = {
		ECHO,	    LATER,	  BLOB,		  SUM,
		ROOM_LATER, NEVER,	  GN_RPC_PING,	  GN_RPC_STATS_JSON,
		WATCH,	    GROUP_ECHO,	  GROUP_ECHO_TOO, GROUP_ANY,
		GROUP_ANY,  GROUP_ANY_TOO};
	static const uint32_t n_methods = sizeof(methods) / sizeof(methods[0]);
	/* Calls of one message mostly have one method: only those become groups. */
	struct rpc_entry entry = {
		.len = fuzz_pick(64),
		.code = methods[fuzz_pick(16) ? e->kind % n_methods : fuzz_pick(n_methods)],
		.index = (uint16_t)index};
	struct gn_remote mine;
	uint32_t bytes;

	if (rpc_align8(entry.len) + sizeof(entry) > room)
		entry.len = 0;
	for (uint32_t i = 0; i < entry.len; i++)
		to[sizeof(entry) + i] = (uint8_t)fuzz_any();
	if (!fuzz_pick(8 * e->entries) && room >= sizeof(entry) + sizeof(struct rpc_large_ref)) {
		struct rpc_large_ref ref;

		gn_mr_remote(e->ep.mr, &mine);
		ref = (struct rpc_large_ref){.offset = fuzz_pick(2) ? 0 : fuzz_strange(),
					     .key = fuzz_pick(3) ? mine.key : fuzz_strange(),
					     .len = fuzz_pick(2) ? fuzz_pick(BUF_BYTES) :
								   fuzz_strange()};
		entry.index |= RPC_LARGE;
		entry.len = sizeof(ref);
		memcpy(to + sizeof(entry), &ref, sizeof(ref));
	}
	bytes = (uint32_t)sizeof(entry) + rpc_align8(entry.len);
	if (!fuzz_pick(4)) { /* with a deadline, which may not fit */
		const struct rpc_time_left left = {.us = fuzz_pick(2) ? fuzz_pick(2000) :
									fuzz_strange()};

		if (entry.len >= sizeof(left))
			memcpy(to + sizeof(entry), &left, sizeof(left));
		entry.len |= entry.len >= sizeof(left) || !fuzz_pick(20) ? RPC_HAS_DEADLINE : 0;
	}
	if (!fuzz_pick(40 * e->entries))
		entry.len = fuzz_strange();
	if (!fuzz_pick(40 * e->entries))
		entry.index = (uint16_t)fuzz_strange();
	memcpy(to, &entry, sizeof(entry));
	return bytes;
}

/* The next message: mostly a valid one, sometimes with an error in it. */
static void send_request(struct evil *e)
{
	const uint32_t max = rpc_max_len(e->welcome.max_request);
	const uint32_t slot = e->number & (e->welcome.slots - 1);
	const uint64_t to = slot * rpc_stride(e->welcome.max_request);
	struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, e->number),
				.nonce = e->hello.nonce,
				.flags = fuzz_pick(2) ? RPC_REPLY : 0,
				.ack = e->results};
	uint32_t at = 0, n = 1 + fuzz_pick(fuzz_pick(4) ? 3 : 100), bytes;

	e->entries = n;
	e->kind = fuzz_any();
	for (; seal.aux < n && at + sizeof(struct rpc_entry) <= max; seal.aux++)
		at += draw_entry(e, e->buf + sizeof(struct rpc_head) + at, max - at,
				 seal.aux % e->welcome.window);
	seal.len = at <= max ? at : max;
	if (!fuzz_pick(40))
		seal.aux = (uint16_t)fuzz_strange();
	if (!fuzz_pick(40))
		seal.len = fuzz_strange() % (BUF_BYTES / 2) & ~7u;
	if (!fuzz_pick(40))
		seal.ack = fuzz_strange();
	if (!fuzz_pick(40))
		seal.seq = rpc_seq(e->welcome.epoch, e->number + fuzz_pick(3) - 1);
	if (!fuzz_pick(40))
		seal.flags = (uint16_t)fuzz_strange();
	bytes = (uint32_t)rpc_seal(e->buf, &seal);
	if (bytes > max + 32)
		bytes = max + 32;
	write_at(e, 0, to, fuzz_pick(20) ? bytes : fuzz_pick(bytes), e->welcome.request_key);
	e->number++;
	__atomic_fetch_add(&e->requests, 1, __ATOMIC_RELAXED);
	for (unsigned i = fuzz_pick(6); i > 3; i--) { /* changed while it is being served */
		const uint32_t off = fuzz_pick(bytes), len = fuzz_pick(bytes - off);

		for (uint32_t k = 0; k < len; k++)
			e->buf[off + k] = (uint8_t)fuzz_any();
		write_at(e, off, to + off, len, e->welcome.request_key);
	}
}

/* Abandons calls of the last messages, or claims to: running ones and completed ones. */
static void abandon_calls(struct evil *e)
{
	for (uint32_t n = 1 + fuzz_pick(8); n; n--) {
		const uint32_t number = e->number - fuzz_pick(4);

		memcpy(e->buf, &number, sizeof(number));
		write_at(e, 0,
			 rpc_abandoned_at(rpc_stride(e->welcome.max_request), e->welcome.slots,
					  fuzz_pick(e->welcome.window)),
			 sizeof(number), e->welcome.request_key);
	}
}

/* Sometimes consumes its results like an honest client, and continues. */
static void read_results(struct evil *e)
{
	const uint64_t stride = rpc_stride(e->welcome.max_result);
	const uint32_t next = e->results + 1;
	const struct gn_sge sge = {e->buf, (uint32_t)stride, gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;
	uint64_t seq;

	gn_wr_rdma(&wr, GN_OP_READ, 0, &sge, &(struct gn_remote){.key = e->welcome.result_key},
		   (next & (e->welcome.slots - 1)) * stride, 0);
	post(e, &wr);
	memcpy(&seq, e->buf, sizeof(seq)); /* shared memory: the READ is done already */
	if (e->up && seq == rpc_seq(e->welcome.epoch, next)) {
		e->results++;
		__atomic_fetch_add(&e->answered, 1, __ATOMIC_RELAXED);
	}
}

static void tell(struct evil *e)
{
	uint64_t word = rpc_seq(fuzz_pick(4) ? e->welcome.epoch : fuzz_any(),
				fuzz_pick(2) ? e->results : fuzz_strange());

	memcpy(e->buf, &word, sizeof(word));
	write_at(e, 0, rpc_ack_at(rpc_stride(e->welcome.max_request), e->welcome.slots),
		 sizeof(word), e->welcome.request_key);
}

static void scribble(struct evil *e)
{
	const uint64_t all = request_bytes(e);
	const uint64_t to = fuzz_any() % all;
	const uint32_t left = (uint32_t)(all - to), len = fuzz_pick(left < 300 ? left : 300);

	for (uint32_t i = 0; i < len; i++)
		e->buf[i] = (uint8_t)fuzz_any();
	write_at(e, 0, to, len, e->welcome.request_key);
}

static void flood(struct evil *e)
{
	for (unsigned n = fuzz_pick(300); n && e->up; n--) {
		struct gn_wr wr;

		gn_wr_init(&wr, GN_OP_WRITE_IMM, 0, NULL, 0, fuzz_pick(2) ? GN_SOLICITED : 0);
		wr.imm = fuzz_any();
		post(e, &wr);
	}
}

/* Forbidden accesses: they cost the connection. */
static void trespass(struct evil *e)
{
	const struct gn_sge sge = {e->buf, 64, gn_mr_lkey(e->ep.mr)};
	struct gn_wr wr;

	switch (fuzz_pick(4)) {
	case 0:
		write_at(e, 0, 0, 64, fuzz_any());
		break;
	case 1:
		write_at(e, 0, 0, 64, e->welcome.result_key);
		break;
	case 2:
		write_at(e, 0, fuzz_any(), 64, e->welcome.request_key);
		break;
	default:
		gn_wr_send(&wr, 0, &sge, 0); /* there is no receive for its bytes */
		post(e, &wr);
		break;
	}
}

static void act(struct evil *e)
{
	const uint32_t what = fuzz_pick(100);
	const bool room = e->number - e->results <= e->welcome.slots;

	/* The connection must last for a while to reach the server's code. */
	if (what < 45 && (room || !fuzz_pick(50)))
		send_request(e);
	else if (what < 80)
		read_results(e);
	else if (what < 83)
		tell(e);
	else if (what < 86)
		abandon_calls(e);
	else if (what < 92)
		scribble(e);
	else if (what < 96)
		flood(e);
	else if (what == 96 && !fuzz_pick(3))
		trespass(e);
	else
		gn_sleep_us(fuzz_pick(2000)); /* until it is parked */
}

static int evil_lives(struct evil *e)
{
	EXPECT(gn_ctx_create(e->fabric, &e->ep.ctx) == 0);
	while (!__atomic_load_n(e->stop, __ATOMIC_ACQUIRE)) {
		struct gn_event event;
		unsigned acts = fuzz_pick(300);

		EXPECT(evil_begin(e) == 0);
		while (acts-- && e->up && !__atomic_load_n(e->stop, __ATOMIC_ACQUIRE)) {
			act(e);
			if (!gn_chan_next(e->ep.chan, &event) &&
			    event.type == GN_EVENT_DISCONNECTED)
				e->up = false;
		}
		evil_end(e);
	}
	EXPECT(gn_ctx_destroy(e->ep.ctx) == 0);
	return 0;
}

static void evil_main(void *arg)
{
	struct evil *e = arg;

	fuzz_own = e->seed;
	e->failed = evil_lives(e);
}

#endif
