/* SPDX-License-Identifier: MIT */
/*
 * Who is connected to whom, as S003 IV has it, and whether such a cluster can be.
 */
#include <errno.h>

#include "msg_hall.h"

static uint32_t answering_nodes(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_M1 ? 1 : o->nodes;
}

uint32_t bench_msg_requesters(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_1M ? o->threads : o->nodes * o->threads;
}

uint32_t bench_msg_responders(const struct bench_msg_opts *o)
{
	return answering_nodes(o) * o->threads;
}

uint32_t bench_msg_conns(const struct bench_msg_opts *o)
{
	return o->topology == BENCH_MSG_MM ? o->nodes - 1 : answering_nodes(o);
}

/* Thread k of a node asks thread k of each node that answers, but of its own. */
uint32_t msg_responder_of(const struct bench_msg_opts *o, uint32_t requester, uint32_t i)
{
	const uint32_t node = requester / o->threads, k = requester % o->threads;
	const uint32_t to = o->topology == BENCH_MSG_MM ? (node + 1 + i) % o->nodes : i;

	return to * o->threads + k;
}

int bench_msg_check(const struct bench_msg_opts *o, char why[BENCH_MSG_WHY_MAX])
{
	const uint32_t processes = bench_msg_requesters(o) + bench_msg_responders(o);
	const uint64_t bytes = (uint64_t)o->request_bytes + o->value_bytes;

	if (o->topology == BENCH_MSG_MM && o->nodes < 2) {
		snprintf(why, BENCH_MSG_WHY_MAX, "M:M needs 2 nodes at least, not %u", o->nodes);
		return -EINVAL;
	}
	if (!o->profile && processes > BENCH_MSG_PROCESSES_MAX) {
		snprintf(why, BENCH_MSG_WHY_MAX,
			 "%s with %u nodes of %u threads is %u processes; the most are %u",
			 bench_msg_topologies[o->topology], o->nodes, o->threads, processes,
			 BENCH_MSG_PROCESSES_MAX);
		return -EINVAL;
	}
	if (bytes * o->pending * bench_msg_conns(o) > BENCH_MSG_BUFFERS_MAX) {
		snprintf(why, BENCH_MSG_WHY_MAX,
			 "%u pending of %u and %u bytes on %u connections is more than %llu MiB",
			 o->pending, o->request_bytes, o->value_bytes, bench_msg_conns(o),
			 BENCH_MSG_BUFFERS_MAX >> 20);
		return -EINVAL;
	}
	return 0;
}
