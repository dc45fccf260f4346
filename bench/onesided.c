/* SPDX-License-Identifier: MIT */
/*
 * WRITE, READ, CAS and FAA in chains, unsignaled except where the send queue needs a completion to
 * get its slots back. The target's CPU does nothing until the end, when it checks what arrived.
 *
 * Requests go round in buffers: number i touches target buffer i mod n. A WRITE or READ copies
 * from source buffer i mod 2n, so that each lap brings other bytes; a CAS turns lap into lap + 1,
 * a FAA adds 1.
 */
#include "pair.h"

#include <errno.h>
#include <stdlib.h>

#include <gannet/exec.h>

#define GROUP_OPS   512u	 /* timed together: a clock reading costs as much as two */
#define GROUP_BYTES (256u << 10) /* … but not more than this */
#define WARM_NS	    100000000u	 /* at most */
#define POLL_BATCH  16

struct one_sided {
	struct side *side;
	uint64_t posted, done, signaled; /* requests: posted, known to be done, last to complete */
	uint32_t local_at, remote_at;	 /* next buffer */
	uint32_t local_slots, remote_slots;
	uint32_t signal_every; /* requests; not more than are timed together */
	struct chain chain;
};

static enum gn_op fabric_op(enum bench_op op)
{
	switch (op) {
	case BENCH_READ:
		return GN_OP_READ;
	case BENCH_CAS:
		return GN_OP_CAS;
	case BENCH_FAA:
		return GN_OP_FAA;
	case BENCH_UD_SEND:
		return GN_OP_SEND;
	default:
		return GN_OP_WRITE;
	}
}

int chain_create(struct chain *chain, uint32_t n, const struct bench_opts *opts, uint32_t lkey,
		 uint32_t flags)
{
	*chain = (struct chain){.wr = gn_alloc(n * sizeof(*chain->wr), 0),
				.sge = gn_alloc(n * sizeof(*chain->sge), 0),
				.n = n};
	if (!chain->wr || !chain->sge)
		return -ENOMEM;
	for (uint32_t i = 0; i < n; i++) {
		chain->sge[i] = (struct gn_sge){.len_bytes = opts->size_bytes, .lkey = lkey};
		gn_wr_init(&chain->wr[i], fabric_op(opts->op), 0, &chain->sge[i], 1, flags);
		if (opts->op == BENCH_FAA)
			chain->wr[i].to.remote.compare = 1;
		if (i)
			chain->wr[i - 1].next = &chain->wr[i];
	}
	return 0;
}

void chain_destroy(struct chain *chain)
{
	gn_free(chain->wr);
	gn_free(chain->sge);
}

uint64_t one_sided_group_ops(const struct bench_opts *opts)
{
	uint64_t ops = GROUP_BYTES / opts->size_bytes;

	ops = ops > GROUP_OPS ? GROUP_OPS : ops;
	return ops <= opts->depth ? opts->depth : ops / opts->depth * opts->depth;
}

int one_sided_create(struct side *side, struct one_sided **out)
{
	const struct bench_opts *opts = &side->opts;
	const uint32_t slots = side->plan.slots;
	struct one_sided *o = gn_alloc(sizeof(*o), 0);

	if (!o)
		return -ENOMEM;
	if (chain_create(&o->chain, opts->depth, opts, gn_mr_lkey(side->local_mr), 0)) {
		one_sided_destroy(o);
		return -ENOMEM;
	}
	o->side = side;
	o->local_slots = opts->op == BENCH_WRITE ? 2 * slots : slots;
	o->remote_slots = opts->op == BENCH_READ ? 2 * slots : slots;
	o->signal_every = least_u32(side->plan.send_wrs / 2, (uint32_t)one_sided_group_ops(opts));
	for (uint32_t i = 0; i < opts->depth; i++)
		o->chain.wr[i].to.remote.key = side->remote.key;
	*out = o;
	return 0;
}

void one_sided_destroy(struct one_sided *o)
{
	if (!o)
		return;
	chain_destroy(&o->chain);
	gn_free(o);
}

static int reap(struct one_sided *o)
{
	struct gn_wc wc[POLL_BATCH];
	const int n = gn_cq_poll(o->side->cq, wc, POLL_BATCH);

	for (int i = 0; i < n; i++) {
		if (wc[i].status != GN_WC_OK) {
			gn_log(GN_LOG_ERROR, "%s failed: %s", bench_ops[o->side->opts.op],
			       gn_wc_status_str(wc[i].status));
			return -EIO;
		}
		o->done = wc[i].id;
	}
	return n;
}

/* Until at most `left` requests are not known to be done. */
static int drain(struct one_sided *o, uint64_t left)
{
	struct patience patience = patience_for(&o->side->opts, SILENCE_US);
	int rc = 0;

	while (o->posted - o->done > left) {
		rc = reap(o);
		if (!rc)
			rc = patience_turn(&patience);
		else
			patience_reset(&patience);
		if (rc < 0)
			break;
	}
	if (rc == -ETIMEDOUT)
		gn_log(GN_LOG_ERROR, "%s: no completion for 5 s", bench_ops[o->side->opts.op]);
	return rc < 0 ? rc : 0;
}

static inline void aim(struct one_sided *o, uint32_t i)
{
	const size_t stride = o->side->plan.stride;

	o->chain.sge[i].addr = o->side->local + o->local_at * stride;
	o->chain.wr[i].to.remote.offset = o->side->remote.offset + o->remote_at * stride;
	o->local_at = o->local_at + 1 == o->local_slots ? 0 : o->local_at + 1;
	o->remote_at = o->remote_at + 1 == o->remote_slots ? 0 : o->remote_at + 1;
}

static inline int post_chain(struct one_sided *o)
{
	const uint32_t depth = o->side->opts.depth, queue = o->side->plan.send_wrs;
	uint64_t id = 0;
	int rc;

	if (unlikely(o->posted - o->done + depth > queue)) {
		rc = drain(o, queue - depth);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < depth; i++) {
		if (o->side->opts.op == BENCH_CAS) {
			const uint64_t lap = (o->posted + i) / o->side->plan.slots;

			o->chain.wr[i].to.remote.compare = lap;
			o->chain.wr[i].to.remote.swap = lap + 1;
		}
		aim(o, i);
	}
	o->posted += depth;
	if (o->posted - o->signaled >= o->signal_every)
		id = o->signaled = o->posted;
	rc = chain_post(&o->chain, o->side->qp, id);
	if (unlikely(rc))
		gn_log(GN_LOG_ERROR, "%s: cannot post: %s", bench_ops[o->side->opts.op],
		       gn_strerror(rc));
	return rc;
}

int one_sided_post(struct one_sided *o, uint32_t n)
{
	int rc = 0;

	for (; n && likely(!rc); n -= o->side->opts.depth)
		rc = post_chain(o);
	return rc;
}

int one_sided_warm(struct one_sided *o)
{
	const uint64_t end_ns = gn_now_ns() + WARM_NS;
	int rc = 0;

	while (!rc && o->posted < 2 * (uint64_t)o->side->plan.slots && gn_now_ns() < end_ns)
		rc = post_chain(o);
	return rc;
}

/* A message is received only after all earlier requests are placed. */
int one_sided_settle(struct one_sided *o, uint64_t *ops)
{
	struct gn_wr wr;
	int rc = drain(o, o->side->plan.send_wrs - 1);

	if (rc)
		return rc;
	*ops = o->posted;
	gn_wr_init(&wr, GN_OP_SEND, ++o->posted, NULL, 0, GN_SIGNALED);
	rc = gn_post_send(o->side->qp, &wr, NULL);
	if (rc)
		gn_log(GN_LOG_ERROR, "cannot send: %s", gn_strerror(rc));
	return rc ? rc : drain(o, 0);
}

/* ---- checks ---- */

/* Every buffer was hit once per lap: its word is the number of hits. */
static int check_words(const uint8_t *p, const struct plan *plan, uint64_t ops, uint64_t minus,
		       const char *what)
{
	for (uint32_t slot = 0; slot < plan->slots && slot < ops; slot++) {
		const uint64_t hits = (ops - 1 - slot) / plan->slots + 1;
		uint64_t word;

		memcpy(&word, p + (size_t)slot * plan->stride, sizeof(word));
		if (word != hits - minus) {
			gn_log(GN_LOG_ERROR, "%s: word %u is %llu after %llu hits", what, slot,
			       (unsigned long long)word, (unsigned long long)hits);
			return -EBADMSG;
		}
	}
	return 0;
}

int one_sided_check(const struct one_sided *o, uint64_t ops)
{
	const struct side *side = o->side;
	const char *name = bench_ops[side->opts.op];

	switch (side->opts.op) {
	case BENCH_READ:
		return slots_check(name, side->local, &side->plan, side->opts.size_bytes, ops,
				   side->opts.seed);
	case BENCH_CAS:
	case BENCH_FAA: /* what came back is the value before */
		return check_words(side->local, &side->plan, ops, 1, name);
	default:
		return 0;
	}
}

int one_sided_check_target(const struct side *side, uint64_t ops)
{
	const char *name = bench_ops[side->opts.op];

	switch (side->opts.op) {
	case BENCH_WRITE:
		return slots_check(name, side->exposed, &side->plan, side->opts.size_bytes, ops,
				   side->opts.seed);
	case BENCH_CAS:
	case BENCH_FAA:
		return check_words(side->exposed, &side->plan, ops, 0, name);
	default:
		return 0;
	}
}
