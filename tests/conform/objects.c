/* SPDX-License-Identifier: MIT */
/*
 * Cases 1-7 and 11: making and destroying objects, and their limits.
 */
#include <errno.h>
#include <malloc.h>
#include <string.h>

#include "conform.h"

/* ---- 1 ---- */

static bool open_close_once(struct cf *cf)
{
	struct gn_fabric *fabric = NULL;

	CHECK_INT(gn_fabric_open(cf->fabric_name, &fabric), 0);
	CHECK_INT(gn_fabric_close(fabric), 0);
	return true;
}

static bool open_close(struct cf *cf)
{
	const size_t slack_bytes = 64 * 1024; /* what the C library may keep for itself */
	size_t heap;
	int fds;

	for (unsigned i = 0; i < 8; i++)
		CHECK(open_close_once(cf));
	fds = cf_open_fds(cf);
	heap = cf->process ? mallinfo2().uordblks : 0;
	for (uint64_t i = 0; cf_more(cf, i, 1000); i++)
		CHECK(open_close_once(cf));
	CHECK_INT(cf_open_fds(cf), fds);
	if (cf->process)
		CHECK(mallinfo2().uordblks <= heap + slack_bytes, "%zu bytes of heap became %zu",
		      heap, mallinfo2().uordblks);
	return true;
}

/* ---- 2 ---- */

static bool iff(bool a, bool b)
{
	return a == b;
}

static bool query(struct cf *cf)
{
	const char *const bad[] = {"", "nosuch", "nosuch:0", ":", "shmx", "verbs0"};
	struct gn_fabric *fabric = NULL;
	struct gn_attr attr = cf->attr;
	int fd = gn_chan_fd(cf->chan);

	CHECK(attr.provider[0] && memchr(attr.provider, 0, sizeof(attr.provider)));
	CHECK(memchr(attr.device, 0, sizeof(attr.device)));
	CHECK(attr.max_send_wr && attr.max_recv_wr && attr.max_sge && attr.max_cqe && attr.max_mr);
	CHECK(attr.max_msg >= 64 * 1024, "max_msg is %llu", (unsigned long long)attr.max_msg);
	CHECK(attr.max_private >= 56 && attr.max_private <= GN_PRIVATE_MAX);
	CHECK(attr.max_rd_atomic, "READs need it, atomics or not");
	CHECK(iff(attr.ud_mtu, attr.caps & GN_CAP_UD));
	CHECK(!(attr.caps & GN_CAP_ATOMIC_CPU) || attr.caps & GN_CAP_ATOMICS);
	CHECK(!(attr.caps & ~(2ull * GN_CAP_HUGE - 1)), "unknown capabilities");
	CHECK(iff(fd >= 0, attr.caps & GN_CAP_EVENT_FD));
	CHECK(fd >= 0 || fd == -EOPNOTSUPP);

	CHECK_INT(gn_fabric_query(NULL, &attr), -EINVAL);
	CHECK_INT(gn_fabric_query(cf->fabric, NULL), -EINVAL);
	CHECK_INT(gn_fabric_open(NULL, &fabric), -EINVAL);
	CHECK_INT(gn_fabric_open(cf->fabric_name, NULL), -EINVAL);
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(gn_fabric_open(bad[i], &fabric) < 0 && !fabric, "\"%s\" was opened", bad[i]);
	CHECK_INT(gn_fabric_close(NULL), 0);
	return true;
}

/* ---- 3 ---- */

static bool pds(struct cf *cf)
{
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_RC, .chan = cf->chan};
	struct gn_pd *pd = NULL, *many[50];
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_qp *qp;

	for (unsigned i = 0; i < 50; i++)
		CHECK(many[i] = cf_make_pd(cf));
	for (unsigned i = 0; i < 50; i++)
		CHECK(cf_destroy(cf, many[(i * 7) % 50]));

	CHECK_INT(gn_pd_create(NULL, &pd), -EINVAL);
	CHECK(!pd);
	CHECK(pd = cf_make_pd(cf));
	CHECK(mem = cf_make_mem(cf, GN_PAGE, 0));
	CHECK(mr = cf_make_mr(cf, pd, mem, GN_LOCAL_WRITE));
	CHECK(qp_opts.send_cq = qp_opts.recv_cq = cf_make_cq(cf, 16, NULL));
	CHECK(qp = cf_make_qp(cf, pd, &qp_opts));

	CHECK_INT(gn_pd_destroy(pd), -EBUSY);
	CHECK(cf_destroy(cf, qp));
	CHECK_INT(gn_pd_destroy(pd), -EBUSY);
	CHECK(cf_destroy(cf, mr));
	CHECK(cf_destroy(cf, pd));
	CHECK_INT(gn_pd_destroy(pd), -EINVAL);
	CHECK_INT(gn_pd_destroy(NULL), 0);
	CHECK_INT(gn_mr_deregister(mr), -EINVAL);
	CHECK_INT(gn_mr_deregister_try(mr), -EINVAL);
	CHECK_INT(gn_mr_deregister_try(NULL), 0);
	CHECK_INT(gn_qp_destroy(qp), -EINVAL);
	CHECK_INT(gn_qp_destroy_try(qp), -EINVAL);
	CHECK_INT(gn_qp_destroy_try(NULL), 0);
	CHECK_INT(gn_mr_register(pd, mem, 0, GN_PAGE, GN_LOCAL_WRITE, &mr), -EINVAL);
	return true;
}

/* ---- 4 ---- */

static bool cq_sizes(struct cf *cf)
{
	const uint32_t good[] = {1, 2, 3, 1000, cf->attr.max_cqe};
	struct gn_cq_opts opts = {.size = sizeof(opts), .depth = cf->attr.max_cqe + 1};
	struct gn_cq *cq = NULL;
	struct gn_wc wc;

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		if (good[i] > cf->attr.max_cqe)
			continue;
		CHECK(cq = cf_make_cq(cf, good[i], NULL), "of %u", good[i]);
		CHECK(gn_cq_depth(cq) >= good[i]);
		CHECK_INT(gn_cq_poll(cq, &wc, 1), 0);
		CHECK(cf_destroy(cf, cq));
		CHECK_INT(gn_cq_destroy(cq), -EINVAL);
	}
	cq = NULL;
	CHECK_INT(gn_cq_create(cf->ctx, &opts, &cq), -EINVAL);
	opts.depth = 0;
	CHECK_INT(gn_cq_create(cf->ctx, &opts, &cq), -EINVAL);
	opts.depth = UINT32_MAX;
	CHECK_INT(gn_cq_create(cf->ctx, &opts, &cq), -EINVAL);
	CHECK_INT(gn_cq_create(cf->ctx, NULL, &cq), -EINVAL);
	CHECK(!cq, "a failed call wrote to its output");
	opts = (struct gn_cq_opts){.size = sizeof(struct gn_cq_opts), .depth = 1, .flags = ~0u};
	CHECK_INT(gn_cq_create(cf->ctx, &opts, &cq), -EINVAL);
	CHECK(!cq, "a failed call wrote to its output");
	return true;
}

/* ---- 5 ---- */

static bool cq_channels(struct cf *cf)
{
	struct gn_cq *plain, *with;
	struct gn_event event;
	struct gn_chan *chan;
	struct gn_wc wc;

	CHECK(chan = cf_make_chan(cf));
	CHECK(plain = cf_make_cq(cf, 4, NULL));
	CHECK(with = cf_make_cq(cf, 4, chan));
	CHECK_INT(gn_cq_arm(plain, false), -EINVAL);
	CHECK_INT(gn_cq_arm(with, false), 0);
	CHECK_INT(gn_cq_arm(with, true), 0);
	CHECK_INT(gn_cq_poll(plain, &wc, 1), 0);
	CHECK_INT(gn_cq_poll(with, &wc, 1), 0);
	CHECK_INT(gn_cq_poll(with, &wc, -1), -EINVAL);
	CHECK_INT(gn_cq_poll(with, NULL, 1), -EINVAL);
	CHECK_INT(gn_chan_next(chan, &event), -EAGAIN);
	CHECK_INT(gn_cq_wait(plain, &wc, 1, gn_deadline_us(1000), "nothing"), -ETIMEDOUT);
	CHECK_INT(gn_cq_wait(with, &wc, 1, gn_deadline_us(1000), "nothing"), -ETIMEDOUT);
	CHECK_INT(gn_chan_destroy(chan), -EBUSY);
	CHECK(cf_destroy(cf, with));
	CHECK(cf_destroy(cf, chan));
	CHECK_INT(gn_chan_destroy(chan), -EINVAL);
	return true;
}

/* ---- 6 ---- */

/* One limit: where it stands in gn_qp_opts and in gn_qp_attr, and its value. */
struct limit {
	const char *name;
	size_t in_opts, in_attr;
	uint32_t max;
};

static uint32_t field(const void *base, size_t offset)
{
	uint32_t value;

	memcpy(&value, (const uint8_t *)base + offset, sizeof(value));
	return value;
}

static bool qp_limit(struct cf *cf, struct gn_qp_opts opts, const struct limit *limit)
{
	uint32_t *value = (uint32_t *)((uint8_t *)&opts + limit->in_opts);
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_qp *qp = NULL;

	*value = limit->max;
	CHECK_INT(gn_qp_create(cf->pd, &opts, &qp), 0);
	cf_own(cf, CF_QP, qp);
	CHECK_INT(gn_qp_query(qp, &attr), 0);
	CHECK(field(&attr, limit->in_attr) >= limit->max, "got %u of %u",
	      field(&attr, limit->in_attr), limit->max);
	CHECK(cf_destroy(cf, qp));

	qp = NULL;
	if (limit->max == UINT32_MAX)
		return true;
	*value = limit->max + 1;
	CHECK_INT(gn_qp_create(cf->pd, &opts, &qp), -EINVAL);
	*value = UINT32_MAX;
	CHECK_INT(gn_qp_create(cf->pd, &opts, &qp), -EINVAL);
	CHECK(!qp, "a failed call wrote to its output");
	return true;
}

#define LIMIT(name, limit)                                                                         \
	{                                                                                          \
#name, offsetof(struct gn_qp_opts, name), offsetof(struct gn_qp_attr, name), limit \
	}

static bool qp_limits(struct cf *cf)
{
	const struct limit limits[] = {
		LIMIT(max_send_wr, cf->attr.max_send_wr), LIMIT(max_recv_wr, cf->attr.max_recv_wr),
		LIMIT(max_send_sge, cf->attr.max_sge),	  LIMIT(max_recv_sge, cf->attr.max_sge),
		LIMIT(max_inline, cf->attr.max_inline),
	};
	struct gn_qp_opts opts = {.size = sizeof(opts), .chan = cf->chan};

	CHECK(opts.send_cq = opts.recv_cq = cf_make_cq(cf, 16, NULL));
	for (unsigned i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		opts.type = GN_QP_RC;
		CHECK(qp_limit(cf, opts, &limits[i]), "%s of RC", limits[i].name);
		opts.type = GN_QP_UD;
		if (cf->attr.caps & GN_CAP_UD)
			CHECK(qp_limit(cf, opts, &limits[i]), "%s of UD", limits[i].name);
	}
	return true;
}

/* ---- 7 ---- */

static uint32_t draw(struct cf *cf, uint32_t max, uint32_t most)
{
	return (uint32_t)cf_rand_in(cf, 0, max < most ? max : most);
}

static bool qp_draw(struct cf *cf, struct gn_cq *cq, enum gn_qp_type type, uint32_t *last_qpn)
{
	struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = type,
		.send_cq = cq,
		.recv_cq = cq,
		.chan = cf->chan,
		.max_send_wr = draw(cf, cf->attr.max_send_wr, 500),
		.max_recv_wr = draw(cf, cf->attr.max_recv_wr, 500),
		.max_send_sge = draw(cf, cf->attr.max_sge, 8),
		.max_recv_sge = draw(cf, cf->attr.max_sge, 8),
		.max_inline = draw(cf, cf->attr.max_inline, 300),
		.user = &opts,
	};
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	struct gn_qp *qp;

	CHECK(qp = cf_make_qp(cf, cf->pd, &opts));
	CHECK_INT(gn_qp_query(qp, &attr), 0);
	CHECK(attr.max_send_wr >= (opts.max_send_wr ? opts.max_send_wr : 128));
	CHECK(attr.max_recv_wr >= (opts.max_recv_wr ? opts.max_recv_wr : 128));
	CHECK(attr.max_send_sge >= (opts.max_send_sge ? opts.max_send_sge : 1));
	CHECK(attr.max_recv_sge >= (opts.max_recv_sge ? opts.max_recv_sge : 1));
	CHECK(attr.max_inline >= opts.max_inline);
	CHECK_INT(attr.state, type == GN_QP_UD ? GN_QP_READY : GN_QP_NEW);
	CHECK((attr.caps & cf->attr.caps) == cf->attr.caps, "less than the fabric promises");
	CHECK(attr.qpn != *last_qpn, "two live qps have number %u", attr.qpn);
	CHECK(gn_qp_user(qp) == &opts);
	*last_qpn = attr.qpn;
	return true;
}

static bool qp_caps(struct cf *cf)
{
	uint32_t last_qpn = UINT32_MAX;
	struct gn_cq *cq;

	CHECK(cq = cf_make_cq(cf, 16, NULL));
	for (uint64_t i = 0; cf_more(cf, i, 100); i++) {
		CHECK(qp_draw(cf, cq, GN_QP_RC, &last_qpn));
		if (cf->attr.caps & GN_CAP_UD)
			CHECK(qp_draw(cf, cq, GN_QP_UD, &last_qpn));
	}
	return true;
}

/* ---- 11 ---- */

enum { FABRIC, CTX, CHAN, PD, MEM, MR, CQ, QP, LISTENER, OBJECTS };

#define ON(x) (1u << (x))

/* Which objects each one was made from: these cannot go before it. */
static const unsigned made_from[OBJECTS] = {
	[CTX] = ON(FABRIC),
	[CHAN] = ON(FABRIC) | ON(CTX),
	[PD] = ON(FABRIC) | ON(CTX),
	[MEM] = ON(FABRIC),
	[MR] = ON(FABRIC) | ON(PD) | ON(MEM),
	[CQ] = ON(FABRIC) | ON(CTX) | ON(CHAN),
	[QP] = ON(FABRIC) | ON(PD) | ON(CQ) | ON(CHAN),
	[LISTENER] = ON(FABRIC) | ON(CTX) | ON(CHAN),
};

struct family {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_cq *cq;
	struct gn_qp *qp;
	struct gn_listener *listener;
	unsigned live; /* ON() bits */
};

static int family_make(struct cf *cf, struct family *f, int which)
{
	struct gn_cq_opts cq_opts = {.size = sizeof(cq_opts), .depth = 8, .chan = f->chan};
	struct gn_qp_opts qp_opts = {.size = sizeof(qp_opts), .type = GN_QP_RC, .chan = f->chan};
	char addr[CF_ADDR_MAX];

	qp_opts.send_cq = qp_opts.recv_cq = f->cq;
	switch (which) {
	case FABRIC:
		return gn_fabric_open(cf->fabric_name, &f->fabric);
	case CTX:
		return gn_ctx_create(f->fabric, &f->ctx);
	case CHAN:
		return gn_chan_create(f->ctx, &f->chan);
	case PD:
		return gn_pd_create(f->ctx, &f->pd);
	case MEM:
		return gn_mem_alloc(f->fabric, GN_PAGE, GN_REMOTE_READ, &f->mem);
	case MR:
		return gn_mr_register(f->pd, f->mem, 0, GN_PAGE, GN_REMOTE_READ, &f->mr);
	case CQ:
		return gn_cq_create(f->ctx, &cq_opts, &f->cq);
	case QP:
		return gn_qp_create(f->pd, &qp_opts, &f->qp);
	default:
		return gn_listener_create(f->ctx, cf_addr(cf, CF_A, 1, addr), f->chan, 0,
					  &f->listener);
	}
}

static int family_unmake(struct family *f, int which)
{
	switch (which) {
	case FABRIC:
		return gn_fabric_close(f->fabric);
	case CTX:
		return gn_ctx_destroy(f->ctx);
	case CHAN:
		return gn_chan_destroy(f->chan);
	case PD:
		return gn_pd_destroy(f->pd);
	case MEM:
		return gn_mem_free(f->mem);
	case MR:
		return gn_mr_deregister(f->mr);
	case CQ:
		return gn_cq_destroy(f->cq);
	case QP:
		return gn_qp_destroy(f->qp);
	default:
		return gn_listener_destroy(f->listener);
	}
}

static bool family_needed(const struct family *f, int which)
{
	for (int i = 0; i < OBJECTS; i++)
		if (f->live & ON(i) && made_from[i] & ON(which))
			return true;
	return false;
}

/* Anything can be made once its parents are there, and is destroyed only when no child is left. */
static bool any_order_once(struct cf *cf)
{
	struct family f = {.live = 0};

	while (f.live != ON(OBJECTS) - 1) {
		int which = (int)(cf_rand(cf) % OBJECTS);

		if (f.live & ON(which) || (made_from[which] & ~f.live))
			continue;
		CHECK_INT(family_make(cf, &f, which), 0);
		f.live |= ON(which);
	}
	while (f.live) {
		int which = (int)(cf_rand(cf) % OBJECTS);
		bool needed = family_needed(&f, which);

		if (!(f.live & ON(which)))
			continue;
		CHECK(family_unmake(&f, which) == (needed ? -EBUSY : 0), "object %d, live %#x",
		      which, f.live);
		if (!needed)
			f.live &= ~ON(which);
	}
	return true;
}

static bool any_order(struct cf *cf)
{
	for (uint64_t i = 0; cf_more(cf, i, 200); i++)
		CHECK(any_order_once(cf), "round %llu", (unsigned long long)i);
	return true;
}

const struct cf_case cf_cases_objects[] = {
	{1, "open and close many times, nothing left", open_close, NULL, 0, 0},
	{2, "every limit and capability is stated", query, NULL, 0, 0},
	{3, "pd: destroyed twice, or with children", pds, NULL, 0, 0},
	{4, "cq of 1, of the maximum, of more", cq_sizes, NULL, 0, 0},
	{5, "cq with and without a channel", cq_channels, NULL, 0, 0},
	{6, "qp with each limit at its maximum and beyond", qp_limits, NULL, 0, 0},
	{7, "qp reports at least what was asked for", qp_caps, NULL, 0, 0},
	{11, "made in any order, destroyed only without children", any_order, NULL, 0, 0},
	{0},
};
