/* SPDX-License-Identifier: MIT */
/*
 * Counted requests of the fabric: gn_post_send() of a chain whose last request is signaled, then
 * gn_cq_poll() of its completion. The target does nothing.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>

#include "count_turns.h"

struct initiator {
	struct count_client base;
	struct side ours, theirs;
	struct shared *shared;
	char addr[32];
	struct chain chain;
	bool done; /* without a completion */
};

static int prepare(struct count_client *base)
{
	(void)base;
	return 0;
}

static int submit(void *arg)
{
	struct initiator *in = arg;

	return gn_post_send(in->ours.qp, in->chain.wr, NULL);
}

static int submit_one(void *arg)
{
	struct initiator *in = arg;
	const int rc = gn_post_one(in->ours.qp, in->chain.wr);

	in->done = rc == 1;
	return rc < 0 ? rc : 0;
}

static int collect(void *arg)
{
	struct initiator *in = arg;
	struct gn_wc wc;
	const int n = gn_cq_poll(in->ours.cq, &wc, 1);

	if (n == 1 && unlikely(wc.status != GN_WC_OK))
		return -EIO;
	return n == 1 ? (int)in->base.batch : n;
}

/* Of what is done a poll finds nothing. */
static int collect_one(void *arg)
{
	struct initiator *in = arg;
	const int n = collect(arg);

	return in->done && !n ? 1 : n;
}

static int check(struct count_client *base)
{
	struct initiator *in = (struct initiator *)base; /* which it begins with */

	if (bench_traits[in->ours.opts.op].kind == BENCH_ATOMIC)
		return 0;
	for (uint32_t i = 0; i < base->batch; i++)
		if (memcmp(in->chain.sge[i].addr,
			   in->theirs.exposed + in->chain.wr[i].to.remote.offset,
			   in->ours.opts.size_bytes))
			return -EBADMSG;
	return 0;
}

/* ---- beginning and end ---- */

static void accept_main(void *arg)
{
	struct initiator *in = arg;

	side_accept(&in->theirs); /* what goes wrong is told, and the other side sees it too */
}

static int meet(struct initiator *in)
{
	struct gn_thread *thread;
	int rc = side_publish(&in->theirs, in->shared);

	snprintf(in->addr, sizeof(in->addr), "shm:bench-%d", getpid());
	if (!rc)
		rc = side_listen(&in->theirs, in->addr);
	if (!rc)
		rc = gn_thread_start("accept", accept_main, in, &thread);
	if (rc)
		return rc;
	rc = side_connect(&in->ours, in->addr);
	gn_thread_join(thread);
	return rc ? rc : side_meet(&in->ours, in->shared);
}

static int make_chain(struct initiator *in)
{
	const struct bench_opts *o = &in->ours.opts;
	const uint32_t n = in->base.batch, stride = in->ours.plan.stride;
	const int rc = chain_create(&in->chain, n, o, gn_mr_lkey(in->ours.local_mr), 0);

	slots_fill(o->op == BENCH_READ ? in->theirs.exposed : in->ours.local, in->ours.plan.slots,
		   stride, o->size_bytes, o->seed);
	for (uint32_t i = 0; i < n && !rc; i++) {
		const uint64_t at = (uint64_t)(i % in->ours.plan.slots) * stride;

		in->chain.sge[i].addr = in->ours.local + at;
		in->chain.wr[i].to.remote.key = in->ours.remote.key;
		in->chain.wr[i].to.remote.offset = in->ours.remote.offset + at;
	}
	if (!rc)
		in->chain.wr[n - 1].flags = GN_SIGNALED;
	return rc;
}

int count_fabric_main(struct count_page *page)
{
	struct initiator *in = calloc(1, sizeof(*in));
	int rc;

	if (!in)
		return -ENOMEM;
	in->base = (struct count_client){.batch = page->opts.fabric.depth,
					 .prepare = prepare,
					 .submit = page->opts.post_one ? submit_one : submit,
					 .collect = page->opts.post_one ? collect_one : collect,
					 .check = check};
	in->shared = aligned_alloc(_Alignof(struct shared), sizeof(*in->shared));
	rc = in->shared ? side_open(&in->ours, INITIATOR, &page->opts.fabric, NULL) : -ENOMEM;
	if (!rc)
		rc = side_open(&in->theirs, PEER, &page->opts.fabric, NULL);
	if (!rc)
		rc = meet(in);
	if (!rc)
		rc = make_chain(in);
	if (!rc)
		rc = count_alone(&in->base, page);
	chain_destroy(&in->chain);
	side_close(&in->ours);
	side_close(&in->theirs);
	free(in->shared);
	free(in);
	return rc;
}
