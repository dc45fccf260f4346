/* SPDX-License-Identifier: MIT */
/* Cases 87-89: gn_post_fixed(), requests posted repeatedly between the same two regions. */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define FIRST 1024u  /* where WRITEs come from, … */
#define WHERE 16384u /* … and READs go */
#define LONG  9000u

static bool make_fixed(struct cf *cf, const struct cf_rc *rc, struct gn_fixed *to,
		       struct gn_fixed *from)
{
	struct gn_sge sge = cf_sge(rc, FIRST, 0);
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &rc->peer, 0, GN_SIGNALED);
	CHECK_INT(gn_fixed_init(to, rc->qp, &wr, 64), 0);
	sge = cf_sge(rc, WHERE, 0);
	gn_wr_rdma(&wr, GN_OP_READ, 0, &sge, &rc->peer, 0, GN_SIGNALED);
	CHECK_INT(gn_fixed_init(from, rc->qp, &wr, 64), 0);
	return true;
}

/* The request completes: the count of completed ones grows. */
static bool post_and_end(struct cf *cf, struct cf_rc *rc, struct gn_fixed *fixed, uint64_t offset,
			 uint32_t len, uint64_t id, uint64_t *done)
{
	const int answer = gn_post_fixed(fixed, offset, len, id);

	CHECK(answer == 0 || answer == 1, "it is %d", answer);
	*done += answer == 1;
	if (!answer)
		CHECK(cf_expect_wc(cf, rc->send_cq, id, GN_WC_OK));
	return true;
}

/* ---- 87 ---- */

static bool again_a(struct cf *cf)
{
	struct gn_counters c = {.size = sizeof(c)};
	struct gn_fixed to, from;
	uint64_t i, done = 0;
	struct cf_rc rc;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	CHECK(make_fixed(cf, &rc, &to, &from));
	for (i = 0; cf_more(cf, i, 5000); i++) {
		const uint64_t round = i % 2 ? 8 : 1;
		const uint32_t len =
			(uint32_t)(i % 2 ? cf_rand_in(cf, 1, 20) * 8 : cf_rand_in(cf, 1, LONG));
		const uint64_t at = cf_rand_in(cf, 0, (WHERE - FIRST - LONG) / round - 1) * round;
		uint8_t *mine = rc.buf + FIRST + at, *read = rc.buf + WHERE;

		cf_fill(cf, mine, len, i);
		CHECK(post_and_end(cf, &rc, &to, at, len, 2 * i, &done));
		memset(mine, 0, len);
		cf_paint(read, WHERE);
		CHECK(post_and_end(cf, &rc, &from, at, len, 2 * i + 1, &done));
		CHECK(cf_check_paint(cf, read, 0, at));
		CHECK(cf_check_paint(cf, read, at + len, WHERE));
		memcpy(mine, read + at, len);
		CHECK(cf_check_fill(cf, mine, len, i), "round %llu", (unsigned long long)i);
	}
	CHECK(cf_expect_none(cf, rc.send_cq));
	CHECK_INT(gn_qp_counters(rc.qp, &c), 0);
	CHECK_INT(c.wrs[GN_OP_WRITE], i);
	CHECK_INT(c.wrs[GN_OP_READ], i);
	CHECK_INT(c.bytes[GN_OP_WRITE], c.bytes[GN_OP_READ]);
	CHECK_INT(c.doorbells, 2 * i);
	CHECK_INT(c.cqes, 2 * i - done);
	CHECK(cf_publish(cf, &rc));
	cf_note(cf, "%llu done at once, %llu completed", (unsigned long long)done,
		(unsigned long long)(2 * i - done));
	return true;
}

/* ---- 88 ---- */

enum ending {
	BEYOND,	   /* a word behind the peer's region, … */
	WRAPS,	   /* … and so far behind it that the sum is small */
	BEHIND,	   /* a word behind our own region */
	REVOKED,   /* the peer's region is deregistered, … */
	REPLACED,  /* … and another one of its memory is registered */
	GONE_HERE, /* our own is deregistered */
	LEFT,	   /* the peer has disconnected */
	ENDINGS,
};

static const struct cf_rc_opts half = {.buf_bytes = 32768};

/* Which is known by its posts before, and does not do what it did. */
static bool ends(struct cf *cf, struct cf_rc *rc, enum ending ending, bool reads)
{
	enum gn_wc_status status = GN_WC_REMOTE_ACCESS;
	struct gn_fixed to, from;
	struct gn_fixed *fixed = reads ? &from : &to;
	uint64_t done = 0, offset = 0;
	struct gn_wc wc;

	CHECK(make_fixed(cf, rc, &to, &from));
	for (unsigned i = 0; i < 8; i++)
		CHECK(post_and_end(cf, rc, fixed, 64 * i, i % 2 ? 64 : 96, i, &done));
	CHECK(cf_sync(cf));
	if (ending == BEYOND)
		offset = rc->peer.length - 88;
	else if (ending == WRAPS)
		offset = UINT64_MAX - 87;
	else if (ending == BEHIND)
		offset = rc->buf_bytes - (reads ? WHERE : FIRST) - 88, status = GN_WC_LOCAL_ACCESS;
	else if (ending == GONE_HERE)
		status = GN_WC_LOCAL_ACCESS;
	if (ending == GONE_HERE)
		CHECK(cf_destroy(cf, rc->mr));
	CHECK(cf_sync(cf));
	CHECK_INT(gn_post_fixed(fixed, offset, 96, 77), 0);
	CHECK(cf_poll_one(cf, rc->send_cq, &wc));
	CHECK_INT(wc.id, 77);
	if (ending == LEFT) /* it was sent in vain, or not any more */
		CHECK(wc.status != GN_WC_OK);
	else if (ending == GONE_HERE && wc.status == GN_WC_LOCAL_QP) /* as Soft-RoCE calls it */
		CHECK(!strcmp(cf->attr.provider, "verbs"));
	else
		CHECK_INT(wc.status, status);
	CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
	CHECK_INT(gn_post_fixed(fixed, 0, 64, 78), 0);
	CHECK(cf_expect_wc(cf, rc->send_cq, 78, GN_WC_FLUSHED));
	CHECK(cf_sync(cf));
	return true;
}

/* The local region is the larger one, except where it must be the smaller. */
static bool ends_a(struct cf *cf)
{
	for (unsigned i = 0; i < 2 * ENDINGS; i++) {
		struct cf_rc rc;

		CHECK(cf_rc_pair(cf, i / 2 == BEHIND ? &half : NULL, &rc));
		CHECK(ends(cf, &rc, (enum ending)(i / 2), i % 2), "ending %u, %s", i / 2,
		      i % 2 ? "READ" : "WRITE");
	}
	return true;
}

static bool ends_b(struct cf *cf)
{
	for (unsigned i = 0; i < 2 * ENDINGS; i++) {
		const enum ending ending = (enum ending)(i / 2);
		struct cf_rc rc;

		CHECK(cf_rc_pair(cf, ending == BEYOND || ending == WRAPS ? &half : NULL, &rc));
		CHECK(cf_sync(cf));
		if (ending == REVOKED || ending == REPLACED)
			CHECK(cf_destroy(cf, rc.mr));
		if (ending == REPLACED)
			CHECK(cf_make_mr(cf, rc.pd, rc.mem, GN_LOCAL_WRITE | cf_all_rights(cf)));
		if (ending == LEFT)
			CHECK_INT(gn_disconnect(rc.qp), 0);
		CHECK(cf_sync(cf));
		CHECK(cf_sync(cf));
	}
	return true;
}

/* ---- 89 ---- */

static bool arguments_a(struct cf *cf)
{
	struct gn_fixed fixed = {0}, to, from;
	struct gn_sge sge[2];
	uint64_t done = 0;
	struct cf_rc rc;
	struct gn_wr wr;

	CHECK(cf_rc_pair(cf, NULL, &rc));
	/* Of no bytes, as any other. */
	CHECK(make_fixed(cf, &rc, &to, &from));
	CHECK(post_and_end(cf, &rc, &to, 0, 0, 1, &done));
	CHECK(post_and_end(cf, &rc, &from, 0, 0, 2, &done));
	sge[0] = sge[1] = cf_sge(&rc, 0, 0);
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, sge, &rc.peer, 0, 0);
	CHECK_INT(gn_fixed_init(NULL, rc.qp, &wr, 0), -EINVAL);
	CHECK_INT(gn_fixed_init(&fixed, NULL, &wr, 0), -EINVAL);
	CHECK_INT(gn_fixed_init(&fixed, rc.qp, NULL, 0), -EINVAL);
	wr.n_sge = 2;
	CHECK_INT(gn_fixed_init(&fixed, rc.qp, &wr, 0), -EINVAL);
	wr.n_sge = 1;
	wr.op = GN_OP_SEND;
	CHECK_INT(gn_fixed_init(&fixed, rc.qp, &wr, 0), -EINVAL);
	wr.op = GN_OP_WRITE;
	wr.flags = 1u << 20;
	CHECK_INT(gn_fixed_init(&fixed, rc.qp, &wr, 0), -EINVAL);
	CHECK_INT(gn_post_fixed(NULL, 0, 8, 1), -EINVAL);
	CHECK_INT(gn_post_fixed(&fixed, 0, 8, 1), -EINVAL); /* it was not made */
	CHECK(cf_publish(cf, &rc));
	return true;
}

const struct cf_case cf_cases_fixed[] = {
	{87, "fixed requests at any offset, done or completed", again_a, cf_idle_peer, 0, 0},
	{88, "a fixed request does not outlive what it is about", ends_a, ends_b, 0, 0},
	{89, "what a fixed request may be", arguments_a, cf_idle_peer, 0, 0},
	{0, NULL, NULL, NULL, 0, 0},
};
