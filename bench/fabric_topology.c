/* SPDX-License-Identifier: MIT */
/* Which processes of a cluster's fabric are connected, and how much each has under way. */
#include <errno.h>

#include "fabric_load.h"

const char *const bench_fabric_topologies[FABRIC_TOPOLOGIES + 1] = {
	[FABRIC_IN] = "in",  [FABRIC_OUT] = "out", [FABRIC_M1] = "M:1",
	[FABRIC_1M] = "1:M", [FABRIC_MM] = "M:M",
};

struct fabric_shape fabric_shape(const struct bench_fabric_opts *o)
{
	const struct load_opts *l = &o->load;
	const uint32_t clients = o->topology == FABRIC_IN ? l->clients : l->threads;
	struct fabric_shape s = {.client_nodes = 1,
				 .client_procs_per_node = o->procs_each ? clients : 1,
				 .threads_per_proc = o->procs_each ? 1 : clients,
				 .server_nodes = 1,
				 .servers_per_node = 1};

	switch ((enum fabric_topology)o->topology) {
	case FABRIC_IN:
		s.first_client_node = 1;
		s.client_nodes = l->machines;
		s.servers_per_node = o->procs_each ? l->threads : 1;
		break;
	case FABRIC_OUT:
		s.first_server_node = 1;
		s.server_nodes = l->machines;
		s.servers_per_node = o->procs_each ? l->clients : 1;
		break;
	case FABRIC_M1:
		s.first_client_node = 1;
		s.client_nodes = o->nodes;
		break;
	case FABRIC_1M:
		s.first_server_node = 1;
		s.server_nodes = o->nodes;
		break;
	default:
		s.client_nodes = s.server_nodes = o->nodes;
		break;
	}
	s.nodes = o->topology == FABRIC_MM ? o->nodes : s.client_nodes + s.server_nodes;
	return s;
}

/* Of a process, to each that it is connected to. */
static uint32_t conns_to_each(const struct bench_fabric_opts *o)
{
	/* A server's thread has a connection to every thread of its clients. */
	return o->qps * (o->topology == FABRIC_OUT && !o->procs_each ? o->load.clients : 1);
}

uint32_t fabric_conns(const struct bench_fabric_opts *o)
{
	const struct fabric_shape s = fabric_shape(o);

	if (o->topology == FABRIC_OUT || o->topology == FABRIC_1M)
		return conns_to_each(o) * s.server_nodes * s.servers_per_node;
	return o->qps;
}

uint32_t fabric_server_of(const struct bench_fabric_opts *o, uint32_t client_proc, uint32_t i)
{
	switch ((enum fabric_topology)o->topology) {
	case FABRIC_IN:
		return client_proc % fabric_shape(o).servers_per_node;
	case FABRIC_OUT:
	case FABRIC_1M:
		return i / conns_to_each(o);
	case FABRIC_MM: /* every other node, going round */
		return (client_proc + 1 + i % (o->nodes - 1)) % o->nodes;
	default:
		return 0;
	}
}

uint32_t fabric_accepts(const struct bench_fabric_opts *o, uint32_t server)
{
	const struct fabric_shape s = fabric_shape(o);
	const uint32_t procs = s.client_nodes * s.client_procs_per_node;
	const uint32_t ends = (s.threads_per_proc + o->shared_by - 1) / o->shared_by;

	switch ((enum fabric_topology)o->topology) {
	case FABRIC_IN:
		return (procs / s.servers_per_node + (server < procs % s.servers_per_node)) * ends *
		       o->qps;
	case FABRIC_MM:
		return ends * o->qps;
	default:
		return procs * ends * conns_to_each(o);
	}
}

uint32_t fabric_window(const struct bench_fabric_opts *o, uint32_t client)
{
	const struct fabric_shape s = fabric_shape(o);
	const uint32_t threads = s.client_procs_per_node * s.threads_per_proc;

	if (o->signal_every)
		return 2 * o->signal_every;
	if (o->window_qp)
		return o->window_qp * fabric_conns(o);
	if (o->window_machine)
		return o->window_machine / threads +
		       (client % threads < o->window_machine % threads);
	return o->window;
}

/* ---- what goes together ---- */

static const char *check_requests(const struct bench_fabric_opts *o)
{
	const bool atomic = bench_traits[o->op].kind == BENCH_ATOMIC;

	if (!atomic && bench_traits[o->op].kind != BENCH_ONE_SIDED && !fabric_ud(o))
		return "a cluster requests by write, read, cas, faa or ud-send";
	if (atomic && o->size_bytes != 8)
		return "an atomic has 8 bytes";
	if (atomic && !o->region_bytes)
		return "an atomic needs --region";
	if (!atomic && o->region_bytes)
		return "--region is for atomics";
	if (o->inlined && o->op != BENCH_WRITE && !fabric_ud(o))
		return "only write and ud-send can be inline";
	if (fabric_ud(o) && o->topology != FABRIC_IN && o->topology != FABRIC_OUT)
		return "datagrams go with --topology in or out";
	if (o->topology == FABRIC_MM && o->nodes < 2)
		return "at least 2 nodes are needed to reach another";
	if (o->topology == FABRIC_MM && o->procs_each)
		return "--procs-each does not go with --topology M:M";
	return NULL;
}

static const char *check_windows(const struct bench_fabric_opts *o)
{
	const uint32_t window = o->window_machine ? o->window_machine : o->window;

	if (!!o->window + !!o->window_qp + !!o->window_machine + !!o->signal_every != 1)
		return "only one of --window, --window-qp, --window-machine and --signal-every "
		       "makes sense";
	if (o->signal_every && (o->shared_by > 1 || o->requests > 1 || o->chain > 1))
		return "--signal-every goes without --shared-by, --requests and --depth";
	if (o->chain > 1 && o->requests > 1)
		return "--requests goes without --depth";
	if (o->window_qp && (o->chain > 1 || o->shared_by > 1))
		return "--window-qp goes without --depth and --shared-by";
	if (o->window_machine && o->chain > 1)
		return "--window-machine goes without --depth";
	if (window % o->chain)
		return "the window must be a multiple of --depth";
	if ((uint64_t)fabric_buffer_bytes(o) * fabric_window(o, 0) > BENCH_IN_FLIGHT_MAX)
		return "a thread has at most 64 MiB under way";
	return NULL;
}

int bench_fabric_check(const struct bench_fabric_opts *o, char error[LOAD_ERROR_MAX])
{
	const char *why = check_requests(o);

	if (!why)
		why = check_windows(o);
	if (why)
		snprintf(error, LOAD_ERROR_MAX, "%s", why);
	return why ? -EINVAL : 0;
}
