/* SPDX-License-Identifier: MIT */
/*
 * A client that writes its messages itself: valid requests, the same requests once more after they
 * were executed, and well-formed ones of another epoch where the next is expected, as from an
 * earlier connection. It keeps its nonce, so that only the epoch differs. The server executes the
 * first kind only.
 */
#include <errno.h>

#include "raw_conn.h"
#include "rpc/wire.h"
#include "sim_rpc.h"

#define ROUNDS	 3u
#define REQUESTS 6u
#define TICK_US	 10u
#define TICKS	 1000u
#define BYTES	 128u
#define NONCE	 0x6e6f6e6365u

struct raw {
	struct world *w;
	unsigned life;
	struct gn_fabric *fabric;
	struct raw_endpoint ep;
	struct rpc_welcome welcome;
	uint32_t old_epoch;
};

static int open_conn(struct raw *r)
{
	const struct raw_endpoint_opts opts = {
		.bytes = GN_PAGE, .remote = GN_REMOTE_WRITE, .cq_depth = 64};
	const struct raw_conn_opts conn = {
		.addr = ADDR, .slots = 2, .max_bytes = BYTES, .nonce = NONCE};
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = 32, .max_recv_wr = 1};
	const int rc = raw_endpoint_make(&r->ep, r->fabric, &opts, &qp);

	return rc ? rc : raw_conn_open(&r->ep, &conn, &r->welcome);
}

/* Writes to the slot of message number, and wakes the server. */
static bool post(struct raw *r, uint32_t number, uint64_t bytes)
{
	const uint32_t slot = number & (r->welcome.slots - 1);
	const struct gn_sge sge = {gn_mem_addr(r->ep.mem), (uint32_t)bytes, gn_mr_lkey(r->ep.mr)};
	const struct gn_remote to = {.key = r->welcome.request_key};
	struct gn_wr wr, wake;
	struct gn_wc wc;
	int n = 0;

	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &to, slot * rpc_stride(r->welcome.max_request), 0);
	gn_wr_init(&wake, GN_OP_WRITE_IMM, 2, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	wr.next = &wake;
	if (gn_post_send(r->ep.qp, &wr, NULL))
		return false;
	r->w->run.active_ns = gn_sim_now_ns(r->w->run.sim);
	for (unsigned i = 0; i < TICKS && !n; i++) {
		n = gn_cq_poll(r->ep.cq, &wc, 1);
		if (!n)
			gn_sleep_us(TICK_US);
	}
	gn_sleep_us(gn_random() % 100);
	return n == 1 && wc.status == GN_WC_OK;
}

/* Builds a message with one request; returns its size. */
static uint64_t compose(struct raw *r, uint32_t epoch, uint32_t message, bool forbidden,
			uint32_t *number)
{
	const uint32_t most = r->welcome.max_request - (uint32_t)sizeof(struct request_head);
	const struct rpc_seal seal = {
		.seq = rpc_seq(epoch, message),
		.nonce = NONCE,
		.len = rpc_max_len(r->welcome.max_request),
		.aux = 1,
		.flags = RPC_CRC,
		.ack = message - 1,
	};
	const struct rpc_entry entry = {.len = r->welcome.max_request, .code = NOW};
	struct call *call = world_call(r->w, r->life, number);
	const struct request_head head = {.call = *number, .len = most};
	uint8_t *at = (uint8_t *)gn_mem_addr(r->ep.mem) + sizeof(struct rpc_head);

	if (!call)
		return 0;
	call->method = NOW;
	call->request_len = r->welcome.max_request;
	call->forbidden = forbidden;
	call->ended = 1; /* nobody waits */
	memcpy(at, &entry, sizeof(entry));
	memcpy(at + sizeof(entry), &head, sizeof(head));
	pattern_fill(at + sizeof(entry) + sizeof(head), most, *number, false);
	return rpc_seal(gn_mem_addr(r->ep.mem), &seal);
}

static bool is_executed(struct raw *r, uint32_t number)
{
	const struct plan *plan = &r->w->plan;
	const struct call *call = &r->w->call[number];

	for (unsigned i = 0; i < TICKS && !call->answered_ns; i++)
		gn_sleep_us(TICK_US);
	gn_sleep_us(TICK_US);
	if (!call->executed && plan->strict && !plan->stop_us)
		world_fail(r->w, "call %u is not executed", number);
	return call->executed;
}

static bool write_one(struct raw *r, uint32_t message)
{
	uint64_t bytes;
	uint32_t number;
	bool ok = true;

	if (gn_random() % 2) {
		bytes = compose(r, r->old_epoch, message, true, &number);
		r->w->sums.old++;
		ok = bytes && post(r, message, bytes);
	}
	bytes = compose(r, r->welcome.epoch, message, false, &number);
	ok = ok && bytes && post(r, message, bytes) && is_executed(r, number);
	if (ok && gn_random() % 2) {
		r->w->sums.again++;
		ok = post(r, message, bytes);
	}
	return ok;
}

static void round_of(struct raw *r)
{
	if (!open_conn(r)) {
		if (!r->old_epoch)
			r->old_epoch = r->welcome.epoch ^ 2;
		for (uint32_t i = 1; i <= REQUESTS && write_one(r, i); i++)
			;
		r->old_epoch = r->welcome.epoch;
		gn_disconnect(r->ep.qp);
	}
	raw_endpoint_end(&r->ep);
}

int raw_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	struct raw r = {.w = w, .life = w->n_lives++};

	(void)argc;
	(void)argv;
	if (!gn_fabric_open(env->fabric, &r.fabric)) {
		for (unsigned i = 0; i < ROUNDS; i++) {
			round_of(&r);
			gn_sleep_us(100);
		}
		if (gn_fabric_close(r.fabric))
			world_fail(w, "a client's fabric cannot be closed");
	}
	w->life[r.life].over = true;
	w->run.clients_over++;
	return 0;
}
