/* SPDX-License-Identifier: MIT */
/*
 * What completions say and what memory holds, against the model.
 */
#include <inttypes.h>
#include <string.h>

#include "swarm_node.h"

#define LL(x) ((unsigned long long)(x))

/* ---- the region ---- */

uint8_t *end_region(const struct end *e)
{
	return (uint8_t *)gn_mem_addr(e->mem) + GUARD;
}

uint32_t area_size_of(uint32_t max_len)
{
	return 2 * max_len + 2 * LINE;
}

uint32_t lines_size_of(uint32_t max_len)
{
	return max_len < 1024 ? max_len : 1024;
}

uint32_t region_size_of(uint32_t max_len)
{
	return area_size_of(max_len) + lines_size_of(max_len) + PAD;
}

static void fill_line(uint8_t *to, uint64_t version, uint32_t off, uint32_t len)
{
	bytes_fill(to, rng_mix(version + 1), off, len);
}

void end_bump(struct end *e)
{
	const uint32_t from = area_size_of(e->max_len);

	if (e->half->gone_tick)
		return;
	fill_line(end_region(e) + from, ++e->half->version, from, lines_size_of(e->max_len));
}

/* ---- READs of lines that the target's CPU changes ---- */

struct versions {
	uint64_t low, high; /* that the bytes can be of; low > high: of none */
};

static struct versions versions_of(const uint8_t *seen, uint32_t off, uint32_t len, uint64_t from,
				   uint64_t to)
{
	struct versions v = {.low = UINT64_MAX, .high = 0};
	uint8_t want[LINE];

	for (uint64_t version = from; version <= to; version++) {
		fill_line(want, version, off, len);
		if (memcmp(want, seen, len))
			continue;
		if (v.low == UINT64_MAX)
			v.low = version;
		v.high = version;
	}
	return v;
}

/* The first word counts by itself: it may be older than the rest of its line. */
static void check_lines(struct end *e, const struct request *req, const uint8_t *seen)
{
	const uint64_t low = req->low, high = e->peer->version;
	const uint32_t end = req->off + req->len;
	const uint32_t head = req->len < 8 ? req->len : 8;
	const struct versions first = versions_of(seen, req->off, head, low, high);

	CHECK(e->s, first.low <= first.high,
	      "the head of a READ (offset %u) is of no version between %llu and %llu", req->off,
	      LL(low), LL(high));
	for (uint32_t at = req->off + head, to; at < end; at = to) {
		struct versions v;

		to = (at / LINE + 1) * LINE < end ? (at / LINE + 1) * LINE : end;
		v = versions_of(seen + (at - req->off), at, to - at, low, high);
		CHECK(e->s, v.low <= v.high,
		      "bytes %u to %u of a READ at %u are of no version between %llu and %llu",
		      at - req->off, to - req->off, req->off, LL(low), LL(high));
		CHECK(e->s, !(e->caps & GN_CAP_READ_HEAD_FIRST) || first.low <= v.high,
		      "the head of a READ is of version %llu, later bytes of %llu", LL(first.low),
		      LL(v.high));
	}
}

/* ---- requests that went well ---- */

/* The first request after it that must wait for it. */
static uint32_t fenced_after(const struct half *half, uint32_t i)
{
	do
		i++;
	while (i < half->n_req && !(half->req[i].flags & GN_FENCE));
	return i;
}

static void check_read(struct end *e, uint32_t i, const uint8_t *seen)
{
	const struct request *req = &e->half->req[i];
	uint32_t at;

	if (req->aim == AIM_LINES)
		check_lines(e, req, seen);
	else
		CHECK(e->s,
		      area_possible(&e->peer->area, seen, req->off, req->len, i,
				    fenced_after(e->half, i), &at),
		      "READ %u of %u bytes at %u returned something else than the WRITEs before it "
		      "put there: line %u",
		      i, req->len, req->off, at / LINE);
}

static void check_atomic(struct end *e, const struct request *req, const uint8_t *seen)
{
	uint64_t old;

	memcpy(&old, seen, sizeof(old));
	if (req->aim == AIM_FAA)
		hall_faa_done(e->s, e->peer->hall, req, old);
	else
		hall_cas_done(e->s, e->peer->hall, req, old);
}

static const char *const bad_aims[] = {
	[AIM_BAD_KEY] = "with a wrong key",
	[AIM_BAD_RANGE] = "out of range",
	[AIM_BAD_RIGHT] = "with a key that has not the right",
	[AIM_BAD_LOCAL] = "with a wrong local key",
};

static void request_ok(struct end *e, uint32_t i)
{
	const struct request *req = &e->half->req[i];
	const uint8_t *seen = gather(e->s, end_bay(e, i), req->n_sge, req->piece, req->len);

	CHECK(e->s, req->aim < AIM_BAD_KEY, "request %u (%s), %s, went well", i, gn_op_str(req->op),
	      bad_aims[req->aim]);
	if (e->ud) {
		ud_sent(e, i);
	} else {
		CHECK(e->s,
		      (req->aim != AIM_AREA && req->aim != AIM_LINES) || !e->peer->gone_tick ||
			      req->tick < e->peer->gone_tick,
		      "request %u (%s) reached memory that had been deregistered before", i,
		      gn_op_str(req->op));
		if (e->half->msg_ok < e->half->n_msg && e->half->msg[e->half->msg_ok] == i)
			e->half->msg_ok++;
		if (req->op == GN_OP_READ && req->len > 0)
			check_read(e, i, seen);
		else if (req->aim == AIM_FAA || req->aim == AIM_CAS)
			check_atomic(e, req, seen);
	}
	memset(end_bay(e, i), JUNK_BYTE, req->len); /* the device must not need it any more */
}

void end_sent(struct end *e, const struct gn_wc *wc)
{
	uint32_t bad;
	const uint32_t ok = half_completed(e->s, e->half, wc, &bad);

	for (uint32_t i = e->half->ok; i < ok; i++)
		request_ok(e, i);
	e->half->ok = ok;
	if (e->peer)
		area_forget(&e->peer->area, ok);
	if (wc->status == GN_WC_OK)
		return;
	e->broken = true;
	if (bad == UINT32_MAX)
		return;
	if (e->life)
		half_judge(e->s, e->life, e->half, e->peer, bad, wc->status);
	else
		ud_failed(e, bad, wc->status);
}

/* ---- messages ---- */

/* Everything that the sender wrote before this message is here now. */
static void check_settled(struct end *e, uint32_t req)
{
	struct area *area = &e->half->area;
	const uint8_t *region = end_region(e);

	for (uint32_t i = 0; i < area->n && area->pending[i].req <= req; i++) {
		const struct area_write *w = &area->pending[i];
		uint32_t at;

		if (w->req < area->settled)
			continue;
		CHECK(e->s,
		      area_possible(area, region + w->off, w->off, w->len, req + 1, UINT32_MAX,
				    &at),
		      "message %u arrived (request %u), but WRITE %u before it is not there: line "
		      "%u",
		      e->half->got - 1, req, w->req, at / LINE);
	}
	if (area->settled <= req)
		area->settled = req + 1;
}

static void check_message(struct end *e, const struct gn_wc *wc, uint32_t recv)
{
	const struct receipt *r = &e->half->recv[recv];
	const struct request *req;
	const uint8_t *seen;
	bool imm;

	CHECK(e->s, e->half->got < e->peer->n_msg, "message %u arrived, but only %u were sent",
	      e->half->got, e->peer->n_msg);
	req = &e->peer->req[e->peer->msg[e->half->got]];
	imm = req->op != GN_OP_SEND;
	CHECK(e->s, wc->op == (req->op == GN_OP_WRITE_IMM ? GN_OP_RECV_WRITE_IMM : GN_OP_RECV),
	      "message %u was a %s and arrives as %s", e->half->got, gn_op_str(req->op),
	      gn_op_str(wc->op));
	CHECK(e->s, wc->len_bytes == req->len, "message %u of %u bytes arrives with %u",
	      e->half->got, req->len, wc->len_bytes);
	CHECK(e->s, imm == !!(wc->flags & GN_WC_IMM) && (!imm || wc->imm == req->imm),
	      "message %u (%s) with immediate %" PRIx32 " arrives with %" PRIx32 ", flags %x",
	      e->half->got, gn_op_str(req->op), req->imm, wc->imm, wc->flags);
	if (req->op != GN_OP_WRITE_IMM) {
		CHECK(e->s, req->len <= r->len, "message %u of %u bytes fits a receive of %u",
		      e->half->got, req->len, r->len);
		seen = gather(e->s, end_recv_bay(e, recv), r->n_sge, r->piece, req->len);
		CHECK(e->s, bytes_equal(seen, req->seed, 0, req->len),
		      "message %u (%u bytes) arrives with other bytes", e->half->got, req->len);
	}
	e->s->result->ops[GN_OP_RECV]++;
	check_settled(e, e->peer->msg[e->half->got++]);
}

void end_received(struct end *e, const struct gn_wc *wc)
{
	const uint32_t recv = half_received(e->s, e->half, wc);

	if (wc->status == GN_WC_OK) {
		if (e->ud)
			ud_received(e, wc, recv);
		else
			check_message(e, wc, recv);
		return;
	}
	e->broken = true;
	if (wc->status == GN_WC_FLUSHED) {
		if (e->life)
			life_broke(e->s, e->life, "a receive was flushed");
		return;
	}
	CHECK(e->s,
	      wc->status == GN_WC_LOCAL_LENGTH && e->life && e->half->got < e->peer->n_msg &&
		      e->peer->req[e->peer->msg[e->half->got]].len > e->half->recv[recv].len,
	      "receive %u of %u bytes failed: %s", recv, e->half->recv[recv].len,
	      gn_wc_status_str(wc->status));
	e->life->may_break = true;
}

/* ---- the target's CPU ---- */

void end_sample(struct end *e)
{
	const struct area *area = &e->half->area;
	uint32_t at;

	CHECK(e->s,
	      area_possible(area, end_region(e), 0, area->size, area->settled, UINT32_MAX, &at),
	      "line %u holds what no WRITE put there", at / LINE);
	CHECK(e->s, area_in_order(area, end_region(e), e->caps, &at),
	      "line %u of a WRITE is visible before what the capabilities promise to be first",
	      at / LINE);
}

/* Whether the peer has a READ under way of lines that this side changes. */
static bool is_read_now(const struct end *e)
{
	for (uint32_t i = e->peer->done; i < e->peer->n_req; i++)
		if (e->peer->req[i].aim == AIM_LINES)
			return true;
	return false;
}

/*
 * The model knows what is under way, so the CPU can do its worst just then: change lines while they
 * are read, look at them while they are written.
 */
void end_interfere(struct end *e)
{
	if (e->state != END_UP || !e->mr || e->broken)
		return;
	if (is_read_now(e))
		end_bump(e);
	if (e->half->area.n > 0 && rng_one_in(&e->worker->rng, 8))
		end_sample(e);
}

void end_withdraw(struct end *e)
{
	struct area *area = &e->half->area;
	uint32_t crc, at;
	int rc;

	if (!e->mr)
		return;
	e->life->may_break = true;
	e->half->withdrawn = true;
	rc = gn_mr_deregister(e->mr);
	CHECK(e->s, rc == 0, "deregistering a region gave %s", gn_strerror(rc));
	e->mr = NULL;
	e->half->gone_tick = ++e->s->tick;
	/* No copy is under way: what completed is there, and nothing comes after it. */
	if (area->settled < e->peer->ok)
		area->settled = e->peer->ok;
	CHECK(e->s,
	      area_possible(area, end_region(e), 0, area->size, area->settled, UINT32_MAX, &at),
	      "deregistered, and a WRITE that completed is missing, or bytes are wrong: line %u",
	      at / LINE);
	crc = gn_crc32c(0, end_region(e), area->size);
	gn_charge(GN_WORK_NS, rng_below(&e->worker->rng, 20000));
	CHECK(e->s, crc == gn_crc32c(0, end_region(e), area->size),
	      "memory changed after its region had been deregistered");
}

void end_check_guards(struct end *e)
{
	const uint8_t *mem = gn_mem_addr(e->mem);
	const size_t size = gn_mem_size(e->mem), end = GUARD + region_size_of(e->max_len);

	for (size_t i = 0; i < size; i++)
		if (i < GUARD || i >= end)
			CHECK(e->s, mem[i] == GUARD_BYTE,
			      "byte %lld of a region of %u, which nobody may touch, is %02x",
			      (long long)i - (long long)GUARD, region_size_of(e->max_len), mem[i]);
}
