/* SPDX-License-Identifier: MIT */
/* A node: options, handlers, its endpoints. */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/fail.h"
#include "base/sized.h"
#include "dgram/endpoint.h"

#define DATAGRAM_BYTES	4096u
#define RECEIVES	2048u
#define RECEIVES_MIN	64u
#define WINDOW_BYTES	(28u << 10)
#define MIN_RTO_US	50u
#define FIRST_RTO_US	2000u
#define CHECK_US	50000u
#define HANDLER_WORKERS 64u
#define STACK_BYTES	(64u << 10)
#define PEER_BYTES	(1u << 20)
#define ALL_BYTES	(64ull << 20)
#define HANDSHAKES	64u

#define DGRAM_FLAGS                                                            \
	(GN_DGRAM_NO_BATCH | GN_DGRAM_NO_COALESCE | GN_DGRAM_NO_ANSWER_BATCH | \
	 GN_DGRAM_NO_CHEAP_RECV | GN_DGRAM_SIGNAL_ALL | GN_DGRAM_NO_PREFETCH | GN_DGRAM_MAPPED)

#define OR_DEFAULT(member, value) ((member) = (member) ? (member) : (value))

/* ---- options ---- */

static void opts_defaults(struct gn_dgram_opts *opts, const struct gn_attr *attr)
{
	OR_DEFAULT(opts->threads, 1);
	OR_DEFAULT(opts->datagram_bytes, DATAGRAM_BYTES);
	opts->datagram_bytes = min_u32(opts->datagram_bytes, attr->ud_mtu) & ~(DGRAM_ALIGN - 1);
	OR_DEFAULT(opts->receives, RECEIVES);
	opts->receives = min_u32(opts->receives, attr->max_recv_wr);
	OR_DEFAULT(opts->calls, opts->receives / 4);
	OR_DEFAULT(opts->window_bytes, WINDOW_BYTES);
	if (opts->window_bytes < DGRAM_WINDOW_MIN)
		opts->window_bytes = DGRAM_WINDOW_MIN;
	OR_DEFAULT(opts->min_rto_us, MIN_RTO_US);
	OR_DEFAULT(opts->first_rto_us, FIRST_RTO_US);
	OR_DEFAULT(opts->check_us, CHECK_US);
	OR_DEFAULT(opts->handler_workers, HANDLER_WORKERS);
	OR_DEFAULT(opts->stack_bytes, STACK_BYTES);
	OR_DEFAULT(opts->max_peers, opts->receives / 2);
	OR_DEFAULT(opts->max_peer_bytes, PEER_BYTES);
	OR_DEFAULT(opts->max_bytes, ALL_BYTES);
	OR_DEFAULT(opts->max_answer_bytes, ALL_BYTES);
	OR_DEFAULT(opts->max_handshakes, HANDSHAKES);
}

/* What the program has given, before defaults and the device change it. */
static int opts_check_given(const struct gn_dgram_opts *opts)
{
	const unsigned unknown = opts->flags & ~(unsigned)DGRAM_FLAGS;

	if (unknown)
		return gn_fail(-EINVAL, "gn_dgram_node_create(): opts.flags has unknown bits: 0x%x",
			       unknown);
	if (opts->threads > GN_DGRAM_THREADS_MAX)
		return gn_fail(-EINVAL,
			       "gn_dgram_node_create(): opts.threads is %u, more than "
			       "GN_DGRAM_THREADS_MAX (%u)",
			       opts->threads, GN_DGRAM_THREADS_MAX);
	if (opts->datagram_bytes && opts->datagram_bytes < GN_DGRAM_BYTES_MIN)
		return gn_fail(-EINVAL,
			       "gn_dgram_node_create(): opts.datagram_bytes is %u, less than "
			       "GN_DGRAM_BYTES_MIN (%u)",
			       opts->datagram_bytes, GN_DGRAM_BYTES_MIN);
	return 0;
}

static int opts_check(const struct gn_dgram_opts *opts)
{
	const uint32_t slack = opts->receives / 4;

	if (opts->datagram_bytes < GN_DGRAM_BYTES_MIN)
		return gn_fail(-EOPNOTSUPP,
			       "gn_dgram_node_create(): the device's datagrams of %u bytes are "
			       "shorter than GN_DGRAM_BYTES_MIN (%u)",
			       opts->datagram_bytes, GN_DGRAM_BYTES_MIN);
	if (opts->receives < RECEIVES_MIN || opts->calls > opts->receives / 2)
		return gn_fail(-EINVAL,
			       "gn_dgram_node_create(): %u receives are too few for %u calls",
			       opts->receives, opts->calls);
	if (opts->max_peers > opts->receives - slack - opts->calls)
		return gn_fail(-EINVAL,
			       "gn_dgram_node_create(): %u peers need more than %u receives",
			       opts->max_peers, opts->receives);
	if (opts->first_rto_us > DGRAM_RTO_MAX_NS / 1000 ||
	    opts->min_rto_us > DGRAM_RTO_MAX_NS / 1000)
		return gn_fail_text(-EINVAL, "gn_dgram_node_create(): a timeout exceeds 100 ms");
	return 0;
}

/* ---- nodes ---- */

static void node_free(struct gn_dgram_node *node)
{
	while (node->assocs || node->dead) {
		struct dgram_assoc **list = node->assocs ? &node->assocs : &node->dead;
		struct dgram_assoc *assoc = *list;

		*list = assoc->next;
		gn_free(assoc->ends);
		gn_free(assoc);
	}
	while (node->remotes) {
		struct dgram_remote *remote = node->remotes;

		node->remotes = remote->next;
		gn_free(remote);
	}
	gn_free(node->indices);
	gn_mutex_fini(&node->lock);
	gn_free(node);
}

int gn_dgram_node_create(struct gn_fabric *fabric, const char *addr,
			 const struct gn_dgram_opts *opts, struct gn_dgram_node **out)
{
	struct gn_dgram_node *node;
	int rc;

	if (!fabric || !out)
		return gn_fail_text(-EINVAL, "gn_dgram_node_create(): fabric or out is NULL");
	if (addr && strlen(addr) >= GN_DGRAM_ADDR_MAX)
		return gn_fail(-EINVAL,
			       "gn_dgram_node_create(): the address has %zu bytes, more than %u",
			       strlen(addr), GN_DGRAM_ADDR_MAX - 1);
	node = gn_alloc(sizeof(*node), GN_CACHELINE);
	if (!node)
		return gn_fail_text(-ENOMEM, "gn_dgram_node_create(): " NO_MEMORY);
	node->fabric = fabric;
	gn_mutex_init(&node->lock);
	node->attr.size = sizeof(node->attr);
	rc = SIZED_READ(&node->opts, opts, "gn_dgram_opts");
	if (!rc)
		rc = opts_check_given(&node->opts);
	if (!rc)
		rc = gn_fabric_query(fabric, &node->attr);
	if (!rc && !(node->attr.caps & GN_CAP_UD))
		rc = gn_fail_text(-EOPNOTSUPP,
				  "gn_dgram_node_create(): the fabric has no datagrams");
	if (rc) {
		node_free(node);
		return rc;
	}
	opts_defaults(&node->opts, &node->attr);
	rc = opts_check(&node->opts);
	if (addr)
		strncpy(node->addr, addr, sizeof(node->addr) - 1);
	node->incarnation = gn_random() | 1;
	node->indices = gn_alloc(node->opts.max_peers * sizeof(bool), 0);
	if (!rc && !node->indices)
		rc = gn_fail_text(-ENOMEM, "gn_dgram_node_create(): " NO_MEMORY);
	if (!rc) {
		rc = dgram_control_start(node);
		if (rc)
			dgram_control_stop(node);
	}
	if (rc)
		node_free(node);
	else
		*out = node;
	return rc;
}

int gn_dgram_node_destroy(struct gn_dgram_node *node)
{
	if (!node)
		return 0;
	if (node->n_endpoints)
		return gn_fail_text(-EBUSY, "gn_dgram_node_destroy(): the node has endpoints");
	dgram_control_stop(node);
	node_free(node);
	return 0;
}

int gn_dgram_handle(struct gn_dgram_node *node, unsigned method, gn_dgram_handler *fn,
		    gn_dgram_prefetch *prefetch, void *arg, unsigned flags)
{
	if (!node || !fn)
		return gn_fail_text(-EINVAL, "gn_dgram_handle(): node or fn is NULL");
	if (method >= GN_DGRAM_METHODS_MAX)
		return gn_fail(
			-EINVAL,
			"gn_dgram_handle(): method %u is not below GN_DGRAM_METHODS_MAX (%u)",
			method, GN_DGRAM_METHODS_MAX);
	if (flags & ~GN_DGRAM_IN_WORKER)
		return gn_fail(-EINVAL, "gn_dgram_handle(): flags has unknown bits: 0x%x",
			       flags & ~GN_DGRAM_IN_WORKER);
	if (node->had_endpoints)
		return gn_fail_text(-EBUSY, "gn_dgram_handle(): after the first endpoint");
	if (node->methods[method].fn)
		return gn_fail(-EEXIST, "gn_dgram_handle(): method %u has a handler", method);
	node->methods[method] =
		(struct dgram_method){.fn = fn, .prefetch = prefetch, .arg = arg, .flags = flags};
	node->any_prefetch |= prefetch != NULL;
	return 0;
}

/* ---- endpoints of a node ---- */

/*
 * An earlier endpoint of the thread had other addresses, and took its peers with it: both nodes
 * need new epochs.
 */
static void assocs_end_without(struct gn_dgram_node *node, uint32_t thread)
{
	for (struct dgram_assoc *a = node->assocs, *next; a; a = next) {
		next = a->next;
		if (!a->ends[thread].ep)
			dgram_assoc_end(a);
	}
}

int dgram_node_add(struct gn_dgram_endpoint *ep)
{
	struct gn_dgram_node *node = ep->node;
	int rc = 0;

	gn_mutex_lock(&node->lock);
	if (node->endpoints[ep->thread])
		rc = gn_fail(-EEXIST, "gn_dgram_endpoint_create(): thread %u has an endpoint",
			     ep->thread);
	if (!rc)
		rc = gn_qp_ud_addr(ep->port.qp, &node->thread_addr[ep->thread]);
	if (!rc) {
		assocs_end_without(node, ep->thread);
		node->endpoints[ep->thread] = ep;
		node->n_endpoints++;
		node->had_endpoints = true;
	}
	gn_mutex_unlock(&node->lock);
	return rc;
}

static void assoc_forget(struct dgram_assoc *assoc, struct gn_dgram_endpoint *ep)
{
	if (assoc->ends[ep->thread].ep != ep)
		return;
	assoc->ends[ep->thread].ep = NULL;
	__atomic_fetch_sub(&assoc->refs, ep->tables[assoc->index].assoc == assoc, __ATOMIC_RELEASE);
}

/* Its associations are not usable any more; peers' calls to the node's other threads go on. */
void dgram_node_remove(struct gn_dgram_endpoint *ep)
{
	struct gn_dgram_node *node = ep->node;

	/* Done functions run without the lock; nothing is posted while it is held. */
	for (;;) {
		link_loop_run_tasks(&ep->loop);
		gn_mutex_lock(&node->lock);
		if (!__atomic_load_n(&ep->loop.tasks, __ATOMIC_ACQUIRE))
			break;
		gn_mutex_unlock(&node->lock);
	}
	for (struct dgram_assoc *a = node->assocs; a; a = a->next)
		assoc_forget(a, ep);
	for (struct dgram_assoc *a = node->dead; a; a = a->next)
		assoc_forget(a, ep);
	node->endpoints[ep->thread] = NULL;
	node->n_endpoints--;
	gn_mutex_unlock(&node->lock);
}

int gn_dgram_node_stats_read(struct gn_dgram_node *node, struct gn_dgram_node_stats *out)
{
	struct gn_dgram_node_stats stats;

	if (!node)
		return gn_fail_text(-EINVAL, "gn_dgram_node_stats_read(): the node is NULL");
	gn_mutex_lock(&node->lock);
	counters_read((uint64_t *)&stats, (const uint64_t *)&node->stats, sizeof(stats));
	stats.nodes = node->n_remotes;
	gn_mutex_unlock(&node->lock);
	return SIZED_WRITE(out, &stats, "gn_dgram_node_stats");
}
