/* SPDX-License-Identifier: MIT */
/* Calls: drawing them, making them in all ways that there are, and checking how they end. */
#include <errno.h>
#include <stdio.h>

#include "sim_dgram.h"

#define SMALL_BYTES	64u
#define MIDDLE_BYTES	5000u
#define LARGE_BYTES	40000u
#define DEADLINE_US_MAX 3000u
#define NESTED_US	20000u
#define FAULTLESS_NS	1000000000ull /* longest call if nothing goes wrong */

/* ---- drawing ---- */

static bool of_1000(unsigned share)
{
	return gn_random() % 1000 < share;
}

static uint32_t draw_len(const struct plan *plan, bool small)
{
	if (small || gn_random() % plan->large) {
		const uint32_t most = small || gn_random() % 6 ? SMALL_BYTES : MIDDLE_BYTES;

		return (uint32_t)(gn_random() % (most + 1));
	}
	switch (gn_random() % 8) {
	case 0:
		return GN_DGRAM_BYTES_MAX;
	case 1:
		return (uint32_t)(gn_random() % (GN_DGRAM_BYTES_MAX + 1));
	default:
		return (uint32_t)(gn_random() % LARGE_BYTES);
	}
}

static uint8_t draw_method(const struct plan *plan, const struct wish *wish)
{
	if (wish->method >= 0)
		return (uint8_t)wish->method;
	if (plan->slow)
		return DG_INLINE;
	if (of_1000(plan->nested) && plan->n_nodes > 2)
		return DG_NESTED;
	if (of_1000(plan->in_worker))
		return DG_IN_WORKER;
	switch (gn_random() % 40) {
	case 0:
		return DG_MISSING;
	case 1:
		return DG_EMPTY;
	default:
		return DG_INLINE;
	}
}

static void draw_target(const struct thread *t, const struct wish *wish, struct call *call)
{
	const struct plan *plan = &t->node->w->plan;
	unsigned node;

	if (plan->incast && wish->node < 0 && t->node->index) {
		call->to_node = 0;
		call->to_thread = plan->opts[0].flags & GN_DGRAM_MAPPED ? (uint8_t)t->index : 0;
		return;
	}
	do
		node = wish->node >= 0 ? (unsigned)wish->node :
					 (unsigned)(gn_random() % plan->n_nodes);
	while (wish->node < 0 && (node == t->node->index || plan->silent[node]));
	call->to_node = (uint8_t)node;
	call->to_thread = (uint8_t)(wish->thread >= 0 ? (unsigned)wish->thread :
				    plan->opts[0].flags & GN_DGRAM_MAPPED ?
							t->index :
							gn_random() % plan->n_threads);
}

static uint16_t draw_refusal(void)
{
	static const uint16_t codes[] = {GN_RPC_DENIED, GN_RPC_BUSY, GN_RPC_FAILED, DG_OWN_CODE};

	return gn_random() % 32 ? 0 : codes[gn_random() % 4];
}

static void draw_call(const struct thread *t, const struct wish *wish, struct call *call)
{
	const struct plan *plan = &t->node->w->plan;

	*call = (struct call){
		.node = (uint8_t)t->node->index,
		.thread = (uint8_t)t->index,
		.life = t->node->life,
		.method = draw_method(plan, wish),
		.value_len = draw_len(plan, wish->small),
		.start_ns = gn_now_ns(),
		.nested = wish->nested,
	};
	draw_target(t, wish, call);
	call->len = call->method == DG_EMPTY ? 0 : DG_HEAD + draw_len(plan, wish->small);
	if (call->len > GN_DGRAM_BYTES_MAX)
		call->len = GN_DGRAM_BYTES_MAX;
	if (call->method == DG_EMPTY)
		call->value_len = 0;
	call->room = call->value_len;
	if (wish->sure)
		return;
	if (call->method < DG_EMPTY)
		call->refuse = draw_refusal();
	if (call->room && gn_random() % 64 == 0)
		call->room = (uint32_t)(gn_random() % call->room);
	/* Handlers that wait for each other's slots need a deadline. */
	if (wish->nested)
		call->deadline_ns = gn_deadline_us(NESTED_US);
	else if (of_1000(plan->deadlines))
		call->deadline_ns = gn_random() % 16 ?
					    gn_deadline_us(gn_random() % DEADLINE_US_MAX) :
					    GN_NO_WAIT;
}

/* ---- jobs ---- */

static void job_done(struct gn_dgram_op *op)
{
	struct job *job = op->arg;

	job->t->under_way--;
	job_call_ended(job, 0, 0);
	job_free(job);
}

static size_t job_bytes(const struct call *calls, unsigned n)
{
	size_t bytes = 0;

	for (unsigned i = 0; i < n; i++)
		bytes += (calls[i].len + 7) / 8 * 8 + (calls[i].room + 7) / 8 * 8;
	return bytes;
}

static void job_fill(struct job *job, const struct call *calls)
{
	struct world *w = job->t->node->w;
	uint8_t *at = job->bytes;

	for (unsigned i = 0; i < job->n; i++) {
		const uint32_t number = w->n_calls++;
		const struct call *call = &calls[i];
		struct gn_dgram_op *op = &job->op[i];

		w->calls[number] = *call;
		job->number[i] = number;
		*op = (struct gn_dgram_op){
			.peer = thread_peer(job->t, call->to_node, call->to_thread),
			.request = call->len ? at : NULL,
			.request_len = call->len,
			.result = at + (call->len + 7) / 8 * 8,
			.result_room = call->room,
			.deadline_ns = call->deadline_ns,
			.method = call->method,
			.done = job_done,
			.arg = job,
		};
		if (call->len) {
			memcpy(at, &number, DG_HEAD);
			pattern_fill(at + DG_HEAD, call->len - DG_HEAD, number, false);
		}
		at += (call->len + 7) / 8 * 8 + (call->room + 7) / 8 * 8;
	}
}

struct job *job_create(struct thread *t, unsigned n, const struct wish *wish)
{
	struct world *w = t->node->w;
	struct call calls[DG_BATCH_MAX];
	struct job *job;

	if (w->n_calls + n > DG_CALLS_MAX)
		return NULL;
	for (unsigned i = 0; i < n; i++) {
		draw_call(t, wish, &calls[i]);
		if (!thread_peer(t, calls[i].to_node, calls[i].to_thread))
			return NULL;
	}
	job = gn_alloc(sizeof(*job) + job_bytes(calls, n), 0);
	if (!job)
		return NULL;
	job->t = t;
	job->n = n;
	job_fill(job, calls);
	job->next = t->jobs;
	job->prev = &t->jobs;
	if (job->next)
		job->next->prev = &job->next;
	t->jobs = job;
	return job;
}

/* Whatever still reads the buffers of a call that has ended sees other bytes. */
void job_free(struct job *job)
{
	const uint8_t *end = job->op[job->n - 1].result;
	const size_t bytes = (size_t)(end - job->bytes) + job->op[job->n - 1].result_room;

	memset(job->bytes, 0xdb, bytes);
	*job->prev = job->next;
	if (job->next)
		job->next->prev = job->prev;
	gn_free(job);
}

void jobs_discard(struct thread *t)
{
	struct world *w = t->node->w;

	while (t->jobs) {
		for (unsigned i = 0; i < t->jobs->n; i++) {
			if (!t->jobs->worker)
				world_fail(w, "call %u has no end", t->jobs->number[i]);
			w->calls[t->jobs->number[i]].ended = 1;
			w->run.ended++;
		}
		job_free(t->jobs);
	}
}

void job_refused(struct job *job, int rc)
{
	struct world *w = job->t->node->w;

	if (rc == -EAGAIN)
		w->sums.again++;
	else if (rc != -ENOMEM || !w->plan.cluster.no_memory)
		world_fail(w, "call %u is refused: %s", job->number[0], gn_strerror(rc));
	for (unsigned i = 0; i < job->n; i++)
		w->calls[job->number[i]].ended = 1;
	job_free(job);
}

/* ---- the end of a call ---- */

/* Something happened that ends epochs of these two nodes. */
static bool epoch_may_end(const struct world *w, const struct call *call)
{
	return w->nodes[call->to_node].lives > 1 || w->nodes[call->node].lives > 1 ||
	       w->nodes[call->node].gones[call->to_node] ||
	       w->nodes[call->to_node].gones[call->node] || w->plan.cluster.no_memory ||
	       w->nodes[call->to_node].restarted; /* said goodbye, and begins again later */
}

/* A limit of the executing node may have refused the call. */
static bool may_be_busy(const struct world *w, const struct call *call)
{
	const struct gn_dgram_opts *o = &w->plan.opts[call->to_node];

	return call->refuse == GN_RPC_BUSY || call->method == DG_IN_WORKER ||
	       call->method == DG_NESTED || w->plan.cluster.no_memory || o->max_answer_bytes ||
	       call->len > SMALL_BYTES + DG_HEAD || call->value_len > SMALL_BYTES;
}

static bool may_end(const struct world *w, const struct call *call, unsigned status)
{
	switch (status) {
	case GN_RPC_OK:
		return call->method == DG_EMPTY ||
		       (call->executed == 1 && !call->refuse && call->method != DG_MISSING);
	case GN_RPC_TIMEOUT:
		if (w->plan.cluster.no_memory && call->len > SMALL_BYTES)
			return true; /* there was no memory to send the rest of the request */
		return call->deadline_ns && gn_now_ns() >= call->deadline_ns;
	case GN_RPC_CANCELED:
		return call->canceled;
	case GN_RPC_PEER_GONE:
		return epoch_may_end(w, call);
	case GN_RPC_NO_METHOD:
		return call->method == DG_MISSING;
	case GN_RPC_TOO_BIG:
		return call->room < call->value_len && call->executed == 1;
	case GN_RPC_BUSY:
		return may_be_busy(w, call);
	default:
		return call->refuse == status && call->executed == 1;
	}
}

static void check_result(struct world *w, const struct call *call, uint32_t number,
			 const struct gn_dgram_op *op)
{
	uint32_t bad;

	if (op->result_len != call->value_len)
		world_fail(w, "call %u is answered with %u bytes instead of %u", number,
			   op->result_len, call->value_len);
	else if (call->value_len && !pattern_is(op->result, op->result_len, number, true, &bad))
		world_fail(w, "call %u: its answer of %u bytes is wrong from %u on", number,
			   op->result_len, bad);
}

static void count_end(struct world *w, const struct call *call, unsigned status)
{
	const uint64_t ns = gn_now_ns() - call->start_ns;

	w->run.ended++;
	w->run.active_ns = gn_sim_now_ns(w->run.sim);
	w->sums.statuses[status < GN_RPC_FAILED ? status : GN_RPC_FAILED]++;
	w->sums.never_executed += !call->executed;
	if (ns / 1000000 > w->sums.max_ms)
		w->sums.max_ms = ns / 1000000;
	if (status == GN_RPC_OK) {
		w->sums.methods[call->method]++;
		w->sums.large_requests += call->len > MIDDLE_BYTES;
		w->sums.large_results += call->value_len > MIDDLE_BYTES;
		w->empty_ok += call->method == DG_EMPTY;
	}
	if (w->plan.faultless && ns > FAULTLESS_NS)
		world_fail(w, "a call to n%u.%u took %llu us", call->to_node, call->to_thread,
			   (unsigned long long)ns / 1000);
}

/*
 * No round trip is shorter than the handler's work (by a processor of twice the usual speed), so none
 * was measured shorter (Karn).
 */
static void check_rtt(struct thread *t)
{
	struct world *w = t->node->w;
	struct gn_dgram_stats s = {.size = sizeof(s)};

	if (!w->plan.slow || t->node->index)
		return;
	gn_dgram_endpoint_stats(t->endpoint, &s);
	if (s.srtt_ns && s.srtt_ns < w->plan.work_us * 500ull)
		world_fail(w, "a round trip of %llu ns, and the handler works for %u us",
			   (unsigned long long)s.srtt_ns, w->plan.work_us);
}

void job_call_ended(struct job *job, unsigned i, int rc)
{
	struct world *w = job->t->node->w;
	const struct gn_dgram_op *op = &job->op[i];
	const uint32_t number = job->number[i];
	struct call *call = &w->calls[number];

	world_log(w, "call %u of n%u.%u to n%u.%u ends: %s", number, call->node, call->thread,
		  call->to_node, call->to_thread, gn_rpc_status_str(op->status));
	call->status = op->status;
	if (call->ended++)
		world_fail(w, "call %u ended %u times", number, call->ended);
	if (job->t->node->ending || rc)
		call->canceled = true;
	if (!may_end(w, call, op->status))
		world_fail(w, "call %u (method %u, n%u to n%u, executed %u times) ends: %s (%u)",
			   number, call->method, call->node, call->to_node, call->executed,
			   gn_rpc_status_str(op->status), op->status);
	if (op->status == GN_RPC_OK)
		check_result(w, call, number, op);
	count_end(w, call, op->status);
	if (!job->t->node->ending)
		check_rtt(job->t);
}

/* ---- making calls ---- */

static void note_start(struct job *job)
{
	struct world *w = job->t->node->w;

	for (unsigned i = 0; i < job->n; i++) {
		const struct call *call = &w->calls[job->number[i]];

		w->run.submitted++;
		w->empty_started += call->method == DG_EMPTY;
		world_log(w, "call %u of n%u.%u to n%u.%u: method %u, %u and %u bytes",
			  job->number[i], call->node, call->thread, call->to_node, call->to_thread,
			  call->method, call->len, call->value_len);
	}
}

int job_run(struct job *job)
{
	struct world *w = job->t->node->w;
	const bool all = job->n > 1 || gn_random() % 4 == 0;
	int rc;

	job->worker = true;
	note_start(job);
	rc = all ? gn_dgram_call_all(job->op, job->n) : gn_dgram_call(&job->op[0]);
	if (rc && !all) {
		w->run.submitted--;
		job_refused(job, rc);
		return rc;
	}
	if (rc && rc != -EAGAIN && !(rc == -ENOMEM && w->plan.cluster.no_memory))
		world_fail(w, "calls from %u on: %s", job->number[0], gn_strerror(rc));
	w->sums.batches += all;
	w->sums.called += job->n;
	for (unsigned i = 0; i < job->n; i++)
		job_call_ended(job, i, rc);
	job_free(job);
	return rc;
}

int job_submit(struct job *job)
{
	struct thread *t = job->t;
	int rc;

	note_start(job);
	t->under_way++;
	rc = gn_dgram_submit(&job->op[0]);
	if (!rc) {
		t->node->w->sums.submitted++;
		return 0;
	}
	t->under_way--;
	t->node->w->run.submitted--;
	job_refused(job, rc);
	return rc;
}

void job_cancel_one(struct thread *t)
{
	struct world *w = t->node->w;
	struct job *job = t->jobs;
	uint32_t number;
	bool before;
	unsigned i;
	int rc;

	for (unsigned skip = (unsigned)(gn_random() % 4); job && job->next && skip; skip--)
		job = job->next;
	if (!job)
		return;
	i = (unsigned)(gn_random() % job->n);
	number = job->number[i];
	if (w->calls[number].ended)
		return;
	before = w->calls[number].canceled;
	w->calls[number].canceled = true; /* done comes before the return */
	rc = gn_dgram_cancel(&job->op[i]);
	world_log(w, "cancels call %u: %s", number, gn_strerror(rc));
	if (rc && rc != -ESRCH && rc != -EINVAL)
		world_fail(w, "call %u cannot be canceled: %s", number, gn_strerror(rc));
	if (rc && !w->calls[number].ended)
		w->calls[number].canceled = before;
	w->sums.canceled += !rc;
}
