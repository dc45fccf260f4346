/* SPDX-License-Identifier: MIT */
/*
 * Checks completions and memory against the model.
 */
#include <inttypes.h>
#include <string.h>

#include "program.h"

#define LL(x) ((unsigned long long)(x))

/* ---- the region ---- */

uint8_t *ep_region(const struct endpoint *ep)
{
	return (uint8_t *)gn_mem_addr(ep->mem) + GUARD;
}

uint32_t area_bytes(uint32_t max_len)
{
	return 2 * max_len + 2 * LINE;
}

uint32_t lines_bytes(uint32_t max_len)
{
	return max_len < 1024 ? max_len : 1024;
}

uint32_t region_bytes(uint32_t max_len)
{
	return area_bytes(max_len) + lines_bytes(max_len) + PAD;
}

static void fill_version(uint8_t *to, uint64_t version, uint32_t off, uint32_t len)
{
	bytes_fill(to, rng_mix(version + 1), off, len);
}

void ep_bump_version(struct endpoint *ep)
{
	const uint32_t from = area_bytes(ep->max_len);

	if (ep->model->deregistered_tick)
		return;
	fill_version(ep_region(ep) + from, ++ep->model->version, from, lines_bytes(ep->max_len));
}

/* ---- READs of lines that the target's CPU overwrites ---- */

struct versions {
	uint64_t low, high; /* that the bytes match; low > high: none */
};

static struct versions versions_of(const uint8_t *seen, uint32_t off, uint32_t len, uint64_t from,
				   uint64_t to)
{
	struct versions v = {.low = UINT64_MAX, .high = 0};
	uint8_t want[LINE];

	for (uint64_t version = from; version <= to; version++) {
		fill_version(want, version, off, len);
		if (memcmp(want, seen, len))
			continue;
		if (v.low == UINT64_MAX)
			v.low = version;
		v.high = version;
	}
	return v;
}

/* The first word is checked by itself: it may be older than the rest of its line. */
static void check_read_versions(struct endpoint *ep, const struct request *req, const uint8_t *seen)
{
	const uint64_t low = req->low, high = ep->peer->version;
	const uint32_t end = req->off + req->len;
	const uint32_t head = req->len < 8 ? req->len : 8;
	const struct versions first = versions_of(seen, req->off, head, low, high);

	CHECK(ep->run, first.low <= first.high,
	      "the head of a READ (offset %u) is of no version between %llu and %llu", req->off,
	      LL(low), LL(high));
	for (uint32_t at = req->off + head, to; at < end; at = to) {
		struct versions v;

		to = (at / LINE + 1) * LINE < end ? (at / LINE + 1) * LINE : end;
		v = versions_of(seen + (at - req->off), at, to - at, low, high);
		CHECK(ep->run, v.low <= v.high,
		      "bytes %u to %u of a READ at %u are of no version between %llu and %llu",
		      at - req->off, to - req->off, req->off, LL(low), LL(high));
		CHECK(ep->run, !(ep->caps & GN_CAP_READ_HEAD_FIRST) || first.low <= v.high,
		      "the head of a READ is of version %llu, later bytes of %llu", LL(first.low),
		      LL(v.high));
	}
}

/* ---- requests that succeeded ---- */

/* The first fenced request after request i. */
static uint32_t fenced_after(const struct qp_model *model, uint32_t i)
{
	do
		i++;
	while (i < model->n_req && !(model->req[i].flags & GN_FENCE));
	return i;
}

static void ep_check_read(struct endpoint *ep, uint32_t i, const uint8_t *seen)
{
	const struct request *req = &ep->model->req[i];
	uint32_t at;

	if (req->target == TARGET_LINES)
		check_read_versions(ep, req, seen);
	else
		CHECK(ep->run,
		      mem_model_possible(&ep->peer->area, seen, req->off, req->len, i,
					 fenced_after(ep->model, i), &at),
		      "READ %u of %u bytes at %u returned something else than the WRITEs before it "
		      "put there: line %u",
		      i, req->len, req->off, at / LINE);
}

static void ep_check_atomic(struct endpoint *ep, const struct request *req, const uint8_t *seen)
{
	uint64_t old;

	memcpy(&old, seen, sizeof(old));
	if (req->target == TARGET_FAA)
		atomics_faa_done(ep->run, ep->peer->atomics, req, old);
	else
		atomics_cas_done(ep->run, ep->peer->atomics, req, old);
}

static const char *const bad_targets[] = {
	[TARGET_BAD_KEY] = "with a wrong key",
	[TARGET_BAD_RANGE] = "out of range",
	[TARGET_BAD_RIGHT] = "with a key that does not permit it",
	[TARGET_BAD_LOCAL] = "with a wrong local key",
};

static void ep_request_succeeded(struct endpoint *ep, uint32_t i)
{
	const struct request *req = &ep->model->req[i];
	const uint8_t *seen =
		gather(ep->run, ep_send_slot(ep, i), req->n_sge, req->piece, req->len);

	CHECK(ep->run, req->target < TARGET_BAD_KEY, "request %u (%s), %s, succeeded", i,
	      gn_op_str(req->op), bad_targets[req->target]);
	if (ep->ud) {
		ud_sent(ep, i);
	} else {
		CHECK(ep->run,
		      (req->target != TARGET_AREA && req->target != TARGET_LINES) ||
			      !ep->peer->deregistered_tick ||
			      req->tick < ep->peer->deregistered_tick,
		      "request %u (%s) reached memory that had been deregistered before", i,
		      gn_op_str(req->op));
		if (ep->model->msg_ok < ep->model->n_msg && ep->model->msg[ep->model->msg_ok] == i)
			ep->model->msg_ok++;
		if (req->op == GN_OP_READ && req->len > 0)
			ep_check_read(ep, i, seen);
		else if (req->target == TARGET_FAA || req->target == TARGET_CAS)
			ep_check_atomic(ep, req, seen);
	}
	memset(ep_send_slot(ep, i), JUNK_BYTE, req->len); /* the device must not read it any more */
}

void ep_sent(struct endpoint *ep, const struct gn_wc *wc)
{
	uint32_t bad;
	const uint32_t ok = qp_model_send_done(ep->run, ep->model, wc, &bad);

	for (uint32_t i = ep->model->ok; i < ok; i++)
		ep_request_succeeded(ep, i);
	ep->model->ok = ok;
	if (ep->peer)
		mem_model_forget(&ep->peer->area, ok);
	if (wc->status == GN_WC_OK)
		return;
	ep->broken = true;
	if (bad == UINT32_MAX)
		return;
	if (ep->conn)
		qp_model_explain(ep->run, ep->conn, ep->model, ep->peer, bad, wc->status);
	else
		ud_failed(ep, bad, wc->status);
}

/* ---- messages ---- */

/* All WRITEs that the sender posted before this message have been placed. */
static void check_writes_before(struct endpoint *ep, uint32_t req)
{
	struct mem_model *area = &ep->model->area;
	const uint8_t *region = ep_region(ep);

	for (uint32_t i = 0; i < area->n && area->pending[i].req <= req; i++) {
		const struct mem_write *w = &area->pending[i];
		uint32_t at;

		if (w->req < area->settled)
			continue;
		CHECK(ep->run,
		      mem_model_possible(area, region + w->off, w->off, w->len, req + 1, UINT32_MAX,
					 &at),
		      "message %u arrived (request %u), but WRITE %u before it is not there: line "
		      "%u",
		      ep->model->got - 1, req, w->req, at / LINE);
	}
	if (area->settled <= req)
		area->settled = req + 1;
}

static void ep_check_message(struct endpoint *ep, const struct gn_wc *wc, uint32_t recv)
{
	const struct recv *r = &ep->model->recv[recv];
	const struct request *req;
	const uint8_t *seen;
	bool imm;

	CHECK(ep->run, ep->model->got < ep->peer->n_msg,
	      "message %u arrived, but only %u were sent", ep->model->got, ep->peer->n_msg);
	req = &ep->peer->req[ep->peer->msg[ep->model->got]];
	imm = req->op != GN_OP_SEND;
	CHECK(ep->run, wc->op == (req->op == GN_OP_WRITE_IMM ? GN_OP_RECV_WRITE_IMM : GN_OP_RECV),
	      "message %u was a %s and arrives as %s", ep->model->got, gn_op_str(req->op),
	      gn_op_str(wc->op));
	CHECK(ep->run, wc->len_bytes == req->len, "message %u of %u bytes arrives with %u",
	      ep->model->got, req->len, wc->len_bytes);
	CHECK(ep->run, imm == !!(wc->flags & GN_WC_IMM) && (!imm || wc->imm == req->imm),
	      "message %u (%s) with immediate %" PRIx32 " arrives with %" PRIx32 ", flags %x",
	      ep->model->got, gn_op_str(req->op), req->imm, wc->imm, wc->flags);
	if (req->op != GN_OP_WRITE_IMM) {
		CHECK(ep->run, req->len <= r->len, "message %u of %u bytes fits a receive of %u",
		      ep->model->got, req->len, r->len);
		seen = gather(ep->run, ep_recv_slot(ep, recv), r->n_sge, r->piece, req->len);
		CHECK(ep->run, bytes_equal(seen, req->seed, 0, req->len),
		      "message %u (%u bytes) arrives with other bytes", ep->model->got, req->len);
	}
	ep->run->result->ops[GN_OP_RECV]++;
	check_writes_before(ep, ep->peer->msg[ep->model->got++]);
}

void ep_received(struct endpoint *ep, const struct gn_wc *wc)
{
	const uint32_t recv = qp_model_recv_done(ep->run, ep->model, wc);

	if (wc->status == GN_WC_OK) {
		if (ep->ud)
			ud_received(ep, wc, recv);
		else
			ep_check_message(ep, wc, recv);
		return;
	}
	ep->broken = true;
	if (wc->status == GN_WC_FLUSHED) {
		if (ep->conn)
			conn_broke(ep->run, ep->conn, "a receive was flushed");
		return;
	}
	CHECK(ep->run,
	      wc->status == GN_WC_LOCAL_LENGTH && ep->conn && ep->model->got < ep->peer->n_msg &&
		      ep->peer->req[ep->peer->msg[ep->model->got]].len > ep->model->recv[recv].len,
	      "receive %u of %u bytes failed: %s", recv, ep->model->recv[recv].len,
	      gn_wc_status_str(wc->status));
	ep->conn->may_break = true;
}

/* ---- the target's CPU ---- */

void ep_check_memory(struct endpoint *ep)
{
	const struct mem_model *area = &ep->model->area;
	uint32_t at;

	CHECK(ep->run,
	      mem_model_possible(area, ep_region(ep), 0, area->size, area->settled, UINT32_MAX,
				 &at),
	      "line %u holds what no WRITE put there", at / LINE);
	CHECK(ep->run, mem_model_in_order(area, ep_region(ep), ep->caps, &at),
	      "line %u of a WRITE is visible before what the capabilities promise to be first",
	      at / LINE);
}

/* Has the peer a READ in flight of lines that this side overwrites? */
static bool ep_read_in_flight(const struct endpoint *ep)
{
	for (uint32_t i = ep->peer->done; i < ep->peer->n_req; i++)
		if (ep->peer->req[i].target == TARGET_LINES)
			return true;
	return false;
}

/*
 * The model knows the requests in flight, so the CPU can interfere just then: it overwrites lines
 * while they are read, and checks lines while they are written.
 */
void ep_interfere(struct endpoint *ep)
{
	if (ep->state != EP_UP || !ep->mr || ep->broken)
		return;
	if (ep_read_in_flight(ep))
		ep_bump_version(ep);
	if (ep->model->area.n > 0 && rng_one_in(&ep->worker->rng, 8))
		ep_check_memory(ep);
}

void ep_deregister(struct endpoint *ep)
{
	struct mem_model *area = &ep->model->area;
	uint32_t crc, at;
	int rc;

	if (!ep->mr)
		return;
	ep->conn->may_break = true;
	ep->model->deregistering = true;
	rc = gn_mr_deregister(ep->mr);
	CHECK(ep->run, rc == 0, "deregistering a region gave %s", gn_strerror(rc));
	ep->mr = NULL;
	ep->model->deregistered_tick = ++ep->run->tick;
	/* No copy is in flight: completed WRITEs are placed, and no others follow. */
	if (area->settled < ep->peer->ok)
		area->settled = ep->peer->ok;
	CHECK(ep->run,
	      mem_model_possible(area, ep_region(ep), 0, area->size, area->settled, UINT32_MAX,
				 &at),
	      "deregistered, and a WRITE that completed is missing, or bytes are wrong: line %u",
	      at / LINE);
	crc = gn_crc32c(0, ep_region(ep), area->size);
	gn_charge(GN_WORK_NS, rng_below(&ep->worker->rng, 20000));
	CHECK(ep->run, crc == gn_crc32c(0, ep_region(ep), area->size),
	      "memory changed after its region had been deregistered");
}

void ep_check_guards(struct endpoint *ep)
{
	const uint8_t *mem = gn_mem_addr(ep->mem);
	const size_t size = gn_mem_size(ep->mem), end = GUARD + region_bytes(ep->max_len);

	for (size_t i = 0; i < size; i++)
		if (i < GUARD || i >= end)
			CHECK(ep->run, mem[i] == GUARD_BYTE,
			      "byte %lld of a region of %u, which nothing may write, is %02x",
			      (long long)i - (long long)GUARD, region_bytes(ep->max_len), mem[i]);
}
