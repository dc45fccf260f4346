/* SPDX-License-Identifier: MIT */
/* Which threads are connected (message passing evaluation, section IV), and whether that can be. */
#include <errno.h>

#include "msg_load.h"

/* IV.A.2: 14 threads respond when a node requests with one thread, else 16. */
#define RESP_THREADS_ONE 14u
#define RESP_THREADS	 16u

static uint32_t responding_nodes(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_M1 ? 1 : o->nodes;
}

uint32_t bench_msg_requesters(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_1M ? o->threads : o->nodes * o->threads;
}

/* M:1 only: else a thread responds for each that requests. */
uint32_t msg_resp_threads(const struct bench_msg_opts *o)
{
	const uint32_t all = o->nodes * o->threads;
	uint32_t n = o->resp_threads;

	if (o->topology != BENCH_MSG_M1 || (!n && !o->load.profile))
		return o->threads;
	if (!n)
		n = o->threads == 1 ? RESP_THREADS_ONE : RESP_THREADS;
	return n < all ? n : all;
}

uint32_t msg_resp_conns(const struct bench_msg_opts *o)
{
	const uint32_t threads = msg_resp_threads(o);

	switch (o->topology) {
	case BENCH_MSG_M1:
		return (o->nodes * o->threads + threads - 1) / threads;
	case BENCH_MSG_1M:
		return 1;
	default:
		return o->nodes - 1;
	}
}

uint32_t bench_msg_responders(const struct bench_msg_opts *o)
{
	return responding_nodes(o) * msg_resp_threads(o);
}

uint32_t bench_msg_conns(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_MM ? o->nodes - 1 : responding_nodes(o);
}

/* Thread k of a node is connected to thread k of each node that responds, but of its own. */
uint32_t msg_responder_of(const struct bench_msg_opts *o, uint32_t requester, uint32_t i,
			  uint32_t *number)
{
	const uint32_t node = requester / o->threads, k = requester % o->threads;
	const uint32_t threads = msg_resp_threads(o);
	uint32_t to;

	switch (o->topology) {
	case BENCH_MSG_M1:
		*number = requester / threads;
		return requester % threads;
	case BENCH_MSG_1M:
		*number = 0;
		return i * threads + k;
	default:
		to = (node + 1 + i) % o->nodes;
		*number = node < to ? node : node - 1;
		return to * threads + k;
	}
}

int bench_msg_check(const struct bench_msg_opts *o, char why[BENCH_WHY_MAX])
{
	const uint32_t processes = bench_msg_requesters(o) + bench_msg_responders(o);
	const uint64_t bytes = (uint64_t)o->request_bytes + o->value_bytes;

	if (o->topology == BENCH_MSG_MM && o->nodes < 2)
		return bench_refuse(why, "M:M needs 2 nodes at least, not %u", o->nodes);
	if (!o->load.profile && processes > BENCH_MSG_PROCESSES_MAX)
		return bench_refuse(
			why, "%s with %u nodes of %u threads is %u processes; the most are %u",
			bench_msg_topologies[o->topology], o->nodes, o->threads, processes,
			BENCH_MSG_PROCESSES_MAX);
	if (bytes * o->pending * bench_msg_conns(o) > BENCH_MSG_BUFFERS_MAX)
		return bench_refuse(
			why,
			"%u pending of %u and %u bytes on %u connections is more than %llu MiB",
			o->pending, o->request_bytes, o->value_bytes, bench_msg_conns(o),
			BENCH_MSG_BUFFERS_MAX >> 20);
	if (msg_resp_conns(o) > (o->conns_max ? o->conns_max : GN_MSG_CONNS_MAX))
		return bench_refuse(
			why,
			"%u requesting threads are more than %u responding ones take, with %u "
			"connections each",
			bench_msg_requesters(o), msg_resp_threads(o),
			o->conns_max ? o->conns_max : GN_MSG_CONNS_MAX);
	return 0;
}
