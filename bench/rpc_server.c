/* SPDX-License-Identifier: MIT */
/*
 * The server of the load of calls: an echo, and the limits' other side. A result begins with the
 * bytes of its request; the rest is always the same.
 */
#include <errno.h>

#include "procs.h"
#include "rpc_load.h"

#define PARK_US	    1000000u /* the papers' servers poll every client's slots all the time */
#define ENTRY_BYTES 16u	     /* that a call takes in a batch, besides its own, at most */

/* ---- sizes ---- */

/* One batch after the other, by the papers' way or by the library's defaults. */
static bool is_plain(const struct bench_rpc_opts *o)
{
	return (o->load.paper || o->load.profile) && o->load.inflight <= o->load.batch;
}

uint32_t rpc_slots(const struct bench_rpc_opts *o)
{
	const uint32_t batches = (o->load.inflight + o->load.batch - 1) / o->load.batch;

	if (is_plain(o))
		return o->load.paper ? 1 : 0;
	return o->load.batch > 1 && batches < 2 ? 2 : batches;
}

/*
 * Plain slots are as large as the library's usually are, or twice a batch: results are gathered in
 * place as long as the largest would still fit.
 */
uint32_t rpc_slot_bytes(const struct bench_rpc_opts *o, uint32_t each)
{
	const uint32_t times = is_plain(o) ? 2 : 1;
	uint64_t bytes = each;

	if (o->load.batch > 1)
		bytes = (uint64_t)times * o->load.batch * (each + ENTRY_BYTES);
	if (is_plain(o) && bytes < GN_RPC_BYTES_DEFAULT)
		bytes = GN_RPC_BYTES_DEFAULT;
	if (bytes > GN_RPC_BYTES_MAX)
		bytes = GN_RPC_BYTES_MAX;
	return bytes ? (uint32_t)bytes : 1; /* 0 is another option */
}

/* ---- the echo ---- */

int rpc_echo_init(struct rpc_echo *echo, const struct bench_rpc_opts *o)
{
	echo->bytes = o->result_bytes;
	echo->work_ns = (uint64_t)(o->work_us * 1000);
	echo->in_place = is_plain(o);
	echo->grouped = o->load.batch > 1 && !is_plain(o);
	echo->fill = gn_alloc(echo->bytes + 1, 0);
	if (!echo->fill)
		return -ENOMEM;
	pattern_fill(echo->fill, echo->bytes, o->load.seed ^ RESULT_SEED);
	return 0;
}

void rpc_echo_free(struct rpc_echo *echo)
{
	gn_free(echo->fill);
}

static inline void echo_put(const struct rpc_echo *echo, uint8_t *result, const void *data,
			    uint32_t len)
{
	const uint32_t both = least_u32(len, echo->bytes);

	memcpy(result, data, both);
	memcpy(result + both, echo->fill + both, echo->bytes - both);
}

/* The library copies the bytes of a request; what it does not have is put together in place. */
static void echo_one(struct gn_rpc_request *request, void *arg)
{
	const struct rpc_echo *echo = arg;
	uint32_t len, room = 0;
	const void *data = gn_rpc_request_data(request, &len);
	uint8_t *result, *own = NULL;

	if (echo->work_ns)
		load_work(echo->work_ns);
	if (likely(len >= echo->bytes && !echo->in_place))
		return gn_rpc_answer(request, GN_RPC_OK, data, echo->bytes);
	result = gn_rpc_request_room(request, &room);
	if (unlikely(!result || room < echo->bytes)) /* in the middle of a batch, perhaps */
		result = own = gn_alloc(echo->bytes + 1, 0);
	if (unlikely(!result))
		return gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	echo_put(echo, result, data, len);
	gn_rpc_answer(request, GN_RPC_OK, result, echo->bytes);
	gn_free(own);
}

static void echo_group(struct gn_rpc_group *group, void *arg)
{
	const struct rpc_echo *echo = arg;
	const uint32_t bytes = echo->bytes;
	const unsigned n = gn_rpc_group_size(group);

	for (unsigned i = 0; i < n; i++) {
		uint32_t len;
		const void *data = gn_rpc_group_data(group, i, &len);
		uint8_t *result;

		if (unlikely(echo->work_ns))
			load_work(echo->work_ns);
		if (likely(len >= bytes)) {
			gn_rpc_group_answer(group, i, GN_RPC_OK, data, bytes);
			continue;
		}
		result = gn_rpc_group_room(group, i, bytes);
		if (unlikely(!result))
			continue; /* the call has ended */
		echo_put(echo, result, data, len);
		gn_rpc_group_answer(group, i, GN_RPC_OK, result, bytes);
	}
}

int rpc_echo_handle(struct rpc_echo *echo, struct gn_rpc_server *server)
{
	if (echo->grouped)
		return gn_rpc_server_handle_group(server, METHOD_ECHO, echo_group, echo, 0);
	return gn_rpc_server_handle(server, METHOD_ECHO, echo_one, echo);
}

/* ---- the server ---- */

struct rpc_server {
	struct load_proc *proc;
	struct rpc_run *run;
	struct rpc_echo echo;
	struct gn_rpc_server *rpc;
};

static void hold_rings(struct gn_rpc_request *request, void *arg)
{
	struct rpc_run *run = arg;
	const struct limit_place place = rpc_limit_place(run);
	const uint64_t order = __atomic_load_n(&run->load.pair.order, __ATOMIC_ACQUIRE);
	int rc;

	/* Pairs with the acquire in hold_begin(). */
	__atomic_store_n(&run->held, order, __ATOMIC_RELEASE);
	rc = bare_answer(&place, order);
	gn_rpc_answer(request, rc ? GN_RPC_FAILED : GN_RPC_OK, NULL, 0);
}

static int rpc_listen_at(void *arg, const char *addr)
{
	struct rpc_server *s = arg;
	const struct bench_rpc_opts *o = &s->run->opts;
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts),
		.threads = o->load.threads,
		.max_slots = rpc_slots(o),
		.max_request = rpc_slot_bytes(o, o->request_bytes),
		.max_result = rpc_slot_bytes(o, o->result_bytes),
		.park_us = o->load.paper ? PARK_US : 0,
		.flags = o->load.paper ? GN_RPC_SERVER_PAPER : 0,
	};
	int rc = gn_rpc_server_create(s->proc->fabric, addr, &opts, &s->rpc);

	if (!rc)
		rc = rpc_echo_handle(&s->echo, s->rpc);
	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, METHOD_CACHELINE, hold_answer,
					  &s->run->load.pair);
	if (!rc)
		rc = gn_rpc_server_handle(s->rpc, METHOD_BARE, hold_rings, s->run);
	if (!rc)
		rc = gn_rpc_server_start(s->rpc);
	if (rc) {
		gn_rpc_server_destroy(s->rpc);
		s->rpc = NULL;
	}
	return rc;
}

/* The mode limit: this thread answers itself. */
static int serve_limit(struct load_proc *proc, struct rpc_run *run)
{
	const struct limit_place place = rpc_limit_place(run);
	struct shared *shared = &run->load.pair;
	uint64_t word = ORDER_START;
	int rc = 0;

	proc->listens(proc, 0, 0);
	while (!rc) {
		word = load_next_order(proc, word);
		if ((word & 0xff) == ORDER_QUIT)
			return 0;
		if ((word & 0xff) == ORDER_NOTE)
			peer_answer(shared, word, 0);
		else if ((word & 0xff) == ORDER_CACHELINE)
			rc = cacheline_answer(shared);
		else
			rc = bare_answer(&place, word);
	}
	peer_answer(shared, word, rc);
	return rc;
}

int rpc_serve(struct load_proc *proc, uint32_t number)
{
	struct rpc_run *run = (struct rpc_run *)proc->run; /* which begins with it */
	struct rpc_server s = {.proc = proc, .run = run};
	int rc;

	if (run->opts.mode == BENCH_RPC_LIMIT)
		return serve_limit(proc, run);
	rc = load_check(proc->run, rpc_echo_init(&s.echo, &run->opts), "memory for results");
	if (!rc)
		rc = load_listen(proc, number, rpc_listen_at, &s);
	if (!rc)
		load_serve(proc, s.rpc);
	gn_rpc_server_destroy(s.rpc);
	rpc_echo_free(&s.echo);
	return rc;
}
