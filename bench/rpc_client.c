/* SPDX-License-Identifier: MIT */
/*
 * A client that calls all the time: one call after the other with gn_rpc_call(), or several under
 * way, or in a batch, with gn_rpc_submit() and gn_rpc_wait(). A request of 8 bytes or more begins
 * with the call's number, and so must its result.
 */
#include <errno.h>
#include <stdlib.h>

#include "rpc_hall.h"

#define DEEP_GROUP 8u	     /* several under way are timed over so many times more calls */
#define CALL_US	   30000000u /* a group that takes longer, beyond what it computes, has failed */

struct call {
	struct gn_rpc_op op;
	struct caller *caller;
	uint64_t number;
	uint8_t *request, *result;
};

struct caller {
	struct hall *hall;
	uint32_t index;
	struct gn_fabric *fabric;
	struct gn_rpc_client *rpc;
	uint64_t begun, ended;
	uint64_t deadline_ns;
	int error; /* of a call that ended */
	struct call *calls, **idle;
	uint32_t n_idle;
	uint8_t *bytes; /* requests and results of all calls */
};

static uint64_t seed_of(const struct caller *c, uint32_t i)
{
	return c->hall->opts.seed + ((uint64_t)c->index << 32) + i;
}

static int connect_caller(struct caller *c)
{
	const struct bench_rpc_opts *o = &c->hall->opts;
	struct gn_rpc_client_opts opts = {0};
	int rc = gn_fabric_open(c->hall->crew.pair.opts.provider, &c->fabric);

	opts.mode = o->mode == BENCH_RPC_REPLY	? GN_RPC_REPLY :
		    o->mode == BENCH_RPC_HYBRID ? GN_RPC_HYBRID :
						  GN_RPC_FETCH;
	opts.slots = slots_for(o);
	opts.batch.entries = o->batch;
	opts.max_request = room_for(o->request_bytes, o->batch);
	opts.max_result = room_for(o->result_bytes, o->batch);
	opts.fetch_bytes = o->fetch_bytes;
	if (!rc)
		rc = gn_rpc_client_open(c->fabric, c->hall->crew.pair.addr, &opts, &c->rpc);
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot connect to the server: %s", gn_strerror(rc));
	return rc;
}

static int check_result(struct caller *c, const struct call *call, unsigned status, uint32_t len)
{
	const struct bench_rpc_opts *o = &c->hall->opts;

	if (unlikely(c->error)) /* the others of a broken connection: the first was told */
		return c->error;
	if (unlikely(status != GN_RPC_OK || len != o->result_bytes)) {
		gn_log(GN_LOG_ERROR, "call %llu failed: %s, %u bytes",
		       (unsigned long long)call->number, gn_rpc_status_str(status), len);
		return -EIO;
	}
	if (o->request_bytes < sizeof(call->number) || len < sizeof(call->number))
		return 0;
	if (likely(!memcmp(call->result, &call->number, sizeof(call->number))))
		return 0;
	gn_log(GN_LOG_ERROR, "call %llu was answered with another's result",
	       (unsigned long long)call->number);
	return -EBADMSG;
}

static void note_end(struct gn_rpc_op *op)
{
	struct call *call = op->arg;
	struct caller *c = call->caller;
	const int rc = check_result(c, call, op->status, op->result_len);

	if (unlikely(rc && !c->error))
		c->error = rc;
	c->ended++;
	c->idle[c->n_idle++] = call;
}

static int make_calls(struct caller *c)
{
	const struct bench_rpc_opts *o = &c->hall->opts;
	const size_t stride = (size_t)o->request_bytes + o->result_bytes;

	c->calls = calloc(o->inflight, sizeof(*c->calls));
	c->idle = calloc(o->inflight, sizeof(struct call *));
	c->bytes = malloc(stride * o->inflight + 1);
	if (!c->calls || !c->idle || !c->bytes)
		return -ENOMEM;
	for (uint32_t i = 0; i < o->inflight; i++) {
		struct call *call = &c->calls[i];

		call->caller = c;
		call->request = c->bytes + i * stride;
		call->result = call->request + o->request_bytes;
		pattern_fill(call->request, o->request_bytes, seed_of(c, i));
		call->op = (struct gn_rpc_op){.method = METHOD_ECHO,
					      .request = call->request,
					      .request_len = o->request_bytes,
					      .result = call->result,
					      .result_room = o->result_bytes,
					      .done = note_end,
					      .arg = call};
		c->idle[c->n_idle++] = call;
	}
	return 0;
}

static void caller_destroy(void *arg)
{
	struct caller *c = arg;

	gn_rpc_client_close(c->rpc);
	gn_fabric_close(c->fabric);
	free(c->calls);
	free(c->idle);
	free(c->bytes);
	free(c);
}

static int caller_create(struct crew_hall *crew, uint32_t index, void **out)
{
	struct caller *c = calloc(1, sizeof(*c));
	int rc;

	if (!c)
		return -ENOMEM;
	c->hall = (struct hall *)crew; /* which it begins with */
	c->index = index;
	rc = make_calls(c);
	if (!rc)
		rc = connect_caller(c);
	if (rc) {
		caller_destroy(c);
		return rc;
	}
	*out = c;
	return 0;
}

/* ---- calling ---- */

static inline void number_call(struct caller *c, struct call *call, uint64_t number)
{
	call->number = number;
	if (c->hall->opts.request_bytes >= sizeof(call->number))
		memcpy(call->request, &call->number, sizeof(call->number));
}

static inline int call_once(struct caller *c)
{
	struct call *call = &c->calls[0];
	unsigned status;
	uint32_t len;
	int rc;

	number_call(c, call, ++c->begun);
	rc = gn_rpc_call(c->rpc, METHOD_ECHO, call->request, call->op.request_len, call->result,
			 call->op.result_room, &len, c->deadline_ns, &status);
	if (unlikely(rc)) {
		gn_log(GN_LOG_ERROR, "cannot call: %s", gn_strerror(rc));
		return rc;
	}
	c->ended++;
	return check_result(c, call, status, len);
}

static int keep_calling(struct caller *c)
{
	int rc;

	while (c->n_idle) {
		struct call *call = c->idle[c->n_idle - 1];
		const uint64_t last = call->number;

		number_call(c, call, c->begun + 1);
		call->op.deadline_ns = c->deadline_ns;
		rc = gn_rpc_submit(c->rpc, &call->op);
		if (rc == -EAGAIN) { /* its slot's turn has not come */
			number_call(c, call, last);
			return 0;
		}
		if (unlikely(rc)) {
			gn_log(GN_LOG_ERROR, "cannot submit a call: %s", gn_strerror(rc));
			return rc;
		}
		c->n_idle--;
		c->begun++;
	}
	return 0;
}

static int wait_for_some(struct caller *c)
{
	const int rc = gn_rpc_wait(c->rpc, c->deadline_ns);

	if (rc == -EINTR && !bench_stopped())
		return 0;
	return rc < 0 ? rc : c->error;
}

static int call_group(struct caller *c, uint64_t calls)
{
	const uint64_t until = c->ended + calls;
	int rc = 0;

	c->deadline_ns = gn_deadline_us(CALL_US + (uint64_t)(2 * c->hall->opts.work_us) * calls);
	while (!rc && c->ended < until) {
		if (unlikely(bench_stopped()))
			return -EINTR;
		if (c->hall->opts.inflight == 1) {
			rc = call_once(c);
			continue;
		}
		rc = keep_calling(c);
		if (!rc)
			rc = wait_for_some(c);
	}
	return rc;
}

static uint64_t group_calls(const struct bench_rpc_opts *opts)
{
	if (opts->inflight == 1)
		return GROUP_TRIPS;
	return opts->inflight < GROUP_TRIPS ? (uint64_t)GROUP_TRIPS * DEEP_GROUP :
					      (uint64_t)opts->inflight * DEEP_GROUP;
}

static void tally_up(struct caller *c, int sign)
{
	struct tally *t = &c->hall->crew.tally[c->index];
	struct gn_rpc_counters rpc = {0};

	tally_calls(t, c->rpc, sign);
	tally_fabric(t, c->fabric, sign);
	gn_rpc_client_counters(c->rpc, &rpc);
	t->calls += (uint64_t)(int64_t)sign * rpc.calls;
	t->switches = rpc.switches; /* of all its life: most come at the beginning */
}

static int warm(void *arg)
{
	return call_group(arg, GROUP_TRIPS);
}

static int caller_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct caller *c = arg;
	uint64_t since_ns;
	int rc;

	out->group_ops = group_calls(&c->hall->opts);
	rc = warm(c); /* both sides have done something else before */
	tally_up(c, -1);
	since_ns = gn_now_ns();
	while (!rc && out->ns < block_ns) {
		rc = call_group(c, out->group_ops);
		if (!rc)
			since_ns = block_group(out, since_ns);
	}
	tally_up(c, 1);
	tally_block(&c->hall->crew.tally[c->index], out);
	return rc;
}

/* ---- the end ---- */

static int check_bytes(const struct caller *c)
{
	const struct bench_rpc_opts *o = &c->hall->opts;
	const uint32_t both = least_u32(o->request_bytes, o->result_bytes);
	uint8_t *want = malloc(o->result_bytes + 1);
	int rc = want ? 0 : -ENOMEM;

	for (uint32_t i = 0; !rc && i < o->inflight; i++) {
		if (!c->calls[i].number)
			continue; /* the window was never that full */
		pattern_fill(want, o->result_bytes, o->seed ^ RESULT_SEED);
		memcpy(want, c->calls[i].request, both);
		if (!memcmp(want, c->calls[i].result, o->result_bytes))
			continue;
		gn_log(GN_LOG_ERROR, "the last result of buffer %u is wrong", i);
		rc = -EBADMSG;
	}
	free(want);
	return rc;
}

static int rest(struct caller *c)
{
	int rc = 0;

	c->deadline_ns = gn_deadline_us(CALL_US);
	while (!rc && c->ended < c->begun)
		rc = wait_for_some(c);
	return rc;
}

struct gn_rpc_client *caller_rest(void *arg)
{
	struct caller *c = arg;

	return rest(c) ? NULL : c->rpc;
}

/* Ends what is under way; then every byte of the last results is checked. */
static int finish(void *arg)
{
	const int rc = rest(arg);

	return rc ? rc : check_bytes(arg);
}

const struct crew_client caller_ops = {
	.create = caller_create,
	.destroy = caller_destroy,
	.warm = warm,
	.run = caller_run,
	.finish = finish,
};
