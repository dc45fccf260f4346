/* SPDX-License-Identifier: MIT */
/*
 * A node of the load of datagram calls: the process and its handler, an echo. The handler notes the
 * last number of each caller's slot: a call whose number comes again, or late, was executed twice.
 */
#include <errno.h>

#include "dgram_load.h"

#define RECEIVES 2048u /* the library's default */
#define ANSWERS	 4u    /* one receive in so many is for answers: see docs/ARCHITECTURE.md */

/* What the calls of a peer had as their last numbers. */
struct dgram_seen {
	struct dgram_seen *next;
	uint32_t seq[];
};

struct dgram_node {
	struct dgram_run *run;
	struct gn_dgram_node *gn;
	struct dgram_seen *seen; /* of all endpoints */
	uint8_t *fill;		 /* the bytes of a result behind those that are the request's */
	uint8_t *table;
	uint64_t lines; /* of the table */
};

/* ---- the handler ---- */

#define LINE_BYTES 64u

static inline const uint8_t *table_line(const struct dgram_node *p, const void *data)
{
	struct dgram_number number;

	memcpy(&number, data, sizeof(number));
	return p->table +
	       ((number.seq * 0x9e3779b97f4a7c15ull + number.slot) % p->lines) * LINE_BYTES;
}

static void prefetch_line(void *arg, const void *data, uint32_t len)
{
	if (len >= sizeof(struct dgram_number))
		__builtin_prefetch(table_line(arg, data));
}

/* The first call of a peer. NULL: out of memory. */
static struct dgram_seen *seen_create(struct dgram_node *p, struct gn_dgram_peer *peer)
{
	struct dgram_seen *seen =
		gn_alloc(sizeof(*seen) + dgram_under_way(&p->run->opts) * sizeof(seen->seq[0]), 0);

	if (!seen)
		return NULL;
	seen->next = __atomic_load_n(&p->seen, __ATOMIC_RELAXED);
	/* Threads of the process share the list, which the last of them frees. */
	while (!__atomic_compare_exchange_n(&p->seen, &seen->next, seen, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	gn_dgram_peer_set_user(peer, seen);
	return seen;
}

static unsigned echo_handler(void *arg, struct gn_dgram_request *request)
{
	struct dgram_node *p = arg;
	const struct bench_dgram_opts *o = &p->run->opts;
	struct dgram_seen *seen = gn_dgram_peer_user(request->peer);
	const uint32_t both = least_u32(request->len, o->result_bytes);
	struct dgram_number number;

	if (unlikely(request->len != o->request_bytes))
		return GN_RPC_FAILED;
	memcpy(&number, request->data, sizeof(number));
	if (unlikely(!seen))
		seen = seen_create(p, request->peer);
	if (unlikely(!seen || number.slot >= dgram_under_way(o)))
		return GN_RPC_FAILED;
	if (unlikely(number.seq <= seen->seq[number.slot]))
		__atomic_add_fetch(&p->run->misses.twice, 1, __ATOMIC_RELAXED);
	seen->seq[number.slot] = number.seq;
	if (unlikely(request->room < o->result_bytes) && !gn_dgram_result(request, o->result_bytes))
		return GN_RPC_BUSY;
	memcpy(request->result, request->data, both);
	if (o->result_bytes > both)
		memcpy((uint8_t *)request->result + both, p->fill + both, o->result_bytes - both);
	if (p->table && *(const volatile uint8_t *)table_line(p, request->data))
		return GN_RPC_FAILED; /* never: the table is zero */
	request->result_len = o->result_bytes;
	return GN_RPC_OK;
}

static unsigned null_handler(void *arg, struct gn_dgram_request *request)
{
	(void)arg;
	(void)request;
	return GN_RPC_OK;
}

/* ---- a process ---- */

struct dgram_listen {
	struct dgram_node *p;
	struct gn_fabric *fabric;
};

static uint32_t most_u32(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static int dgram_listen_at(void *arg, const char *addr)
{
	const struct dgram_listen *l = arg;
	const struct bench_dgram_opts *o = &l->p->run->opts;
	const uint32_t peers = (o->nodes - 1) * dgram_node_endpoints(o);
	const uint32_t receives = most_u32(ANSWERS * dgram_under_way(o), 2 * (peers + 1));
	const struct gn_dgram_opts opts = {
		.size = sizeof(opts),
		.threads = dgram_node_endpoints(o),
		.flags = dgram_flags_of(o),
		.receives = receives > RECEIVES ? receives : 0,
		.max_peers = receives > RECEIVES ? peers + 1 : 0,
	};

	return gn_dgram_node_create(l->fabric, addr, &opts, &l->p->gn);
}

static int make_table(struct dgram_node *p, const struct bench_dgram_opts *o)
{
	p->fill = gn_alloc(o->result_bytes + 1, 0);
	if (!p->fill)
		return -ENOMEM;
	pattern_fill(p->fill, o->result_bytes, o->load.seed);
	if (!o->table_bytes)
		return 0;
	p->lines = o->table_bytes / LINE_BYTES;
	p->table = gn_alloc(p->lines * LINE_BYTES, LINE_BYTES);
	if (p->table)
		memset(p->table, 0, p->lines * LINE_BYTES); /* page faults now, not later */
	return p->table ? 0 : -ENOMEM;
}

void dgram_node_close(struct load_proc *proc)
{
	struct dgram_node *p = proc->state;

	while (p->seen) {
		struct dgram_seen *next = p->seen->next;

		gn_free(p->seen);
		p->seen = next;
	}
	if (p->gn)
		load_check(proc->run, gn_dgram_node_destroy(p->gn), "ending a node");
	if (p->run->result)
		*p->run->result = p->run->misses;
	gn_free(p->table);
	gn_free(p->fill);
	gn_free(p);
	proc->state = NULL;
}

int dgram_node_open(struct load_proc *proc)
{
	struct dgram_run *run = dgram_run_of(proc->run);
	struct dgram_node *p = gn_alloc(sizeof(*p), 0);
	struct dgram_listen listen = {.p = p, .fabric = proc->fabric};
	int rc = load_check(proc->run, p ? 0 : -ENOMEM, "memory for a node");

	if (rc)
		return rc;
	proc->state = p;
	p->run = run;
	rc = load_check(proc->run, make_table(p, &run->opts), "memory for the handler's table");
	if (!rc)
		rc = load_listen_at(proc->run, proc->first_client / run->opts.load.threads,
				    dgram_listen_at, &listen);
	if (!rc)
		rc = gn_dgram_handle(p->gn, DGRAM_METHOD_ECHO, echo_handler,
				     p->table ? prefetch_line : NULL, p, 0);
	if (!rc)
		rc = gn_dgram_handle(p->gn, DGRAM_METHOD_NULL, null_handler, NULL, p, 0);
	return load_check(proc->run, rc, "registering a handler");
}

struct gn_dgram_node *dgram_node_of(const struct load_proc *proc)
{
	return ((const struct dgram_node *)proc->state)->gn;
}
