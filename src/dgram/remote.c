/* SPDX-License-Identifier: MIT */
/*
 * Remote nodes and associations. The control thread makes and ends associations and tells every
 * endpoint by a task; an association is freed when the last endpoint has let go of it, and only
 * then is its index used again.
 */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/list.h"
#include "dgram/endpoint.h"

void dgram_remote_task(struct link_task *task); /* handshake.c */

/* ---- remote nodes ---- */

struct dgram_remote *dgram_remote_find(struct gn_dgram_node *node, const char *addr)
{
	struct dgram_remote *remote = *addr ? node->remotes : NULL;

	while (remote && strcmp(remote->addr, addr))
		remote = remote->next;
	return remote;
}

struct dgram_remote *dgram_remote_get(struct gn_dgram_node *node, const char *addr)
{
	struct dgram_remote *remote = dgram_remote_find(node, addr);

	if (remote)
		return remote;
	if (node->n_remotes >= node->opts.max_peers)
		return NULL;
	remote = gn_alloc(sizeof(*remote), 0);
	if (!remote)
		return NULL;
	remote->node = node;
	remote->own_incarnation = gn_random() | 1;
	remote->want.run = dgram_remote_task;
	strncpy(remote->addr, addr, sizeof(remote->addr) - 1);
	list_push(&node->remotes, remote);
	node->n_remotes++;
	return remote;
}

void dgram_remote_want(struct dgram_remote *remote)
{
	if (!__atomic_exchange_n(&remote->wanted, true, __ATOMIC_ACQ_REL))
		link_loop_post(&remote->node->loop, &remote->want);
}

void dgram_remote_put(struct dgram_remote *remote)
{
	if (remote->opened || remote->n_assocs || remote->connecting ||
	    __atomic_load_n(&remote->wanted, __ATOMIC_ACQUIRE))
		return;
	list_remove(remote);
	remote->node->n_remotes--;
	gn_free(remote);
}

/* ---- indices ---- */

int dgram_index_take(struct gn_dgram_node *node, uint32_t *out)
{
	for (uint32_t i = 0; i < node->opts.max_peers; i++) {
		if (node->indices[i])
			continue;
		node->indices[i] = true;
		*out = i;
		return 0;
	}
	return -ENOSPC;
}

uint32_t dgram_assoc_peers(const struct gn_dgram_node *node, uint32_t threads)
{
	return node->opts.flags & GN_DGRAM_MAPPED ? 1 : threads;
}

/* ---- associations ---- */

static void assoc_tell_up(struct dgram_assoc *assoc)
{
	struct gn_dgram_node *node = assoc->node;
	struct gn_dgram_peer **peers = (void *)(assoc->ends + node->opts.threads);

	for (uint32_t i = 0; i < node->opts.threads; i++) {
		struct dgram_assoc_end *end = &assoc->ends[i];

		*end = (struct dgram_assoc_end){.assoc = assoc,
						.ep = node->endpoints[i],
						.peers = peers + (size_t)i * assoc->threads,
						.up = {.run = dgram_peer_assoc_up},
						.down = {.run = dgram_peer_assoc_down}};
		link_loop_post(&end->ep->loop, &end->up);
	}
}

struct dgram_assoc *dgram_assoc_add(struct dgram_remote *remote, const struct dgram_hello *hello,
				    uint64_t epoch, bool initiated, uint32_t index)
{
	struct gn_dgram_node *node = remote->node;
	const size_t bytes = sizeof(struct dgram_assoc) + hello->threads * sizeof(*hello->thread);
	struct dgram_assoc *assoc = gn_alloc(bytes, 0);

	if (!assoc)
		return NULL;
	/* With the tables of all endpoints: an endpoint must not fail to take the association. */
	assoc->ends =
		gn_alloc(node->opts.threads * (sizeof(*assoc->ends) +
					       hello->threads * sizeof(struct gn_dgram_peer *)),
			 0);
	if (!assoc->ends) {
		gn_free(assoc);
		return NULL;
	}
	assoc->node = node;
	assoc->remote = remote;
	assoc->epoch = epoch;
	assoc->incarnation = hello->incarnation;
	assoc->initiated = assoc->confirmed = initiated;
	assoc->index = index;
	assoc->remote_index = hello->index;
	assoc->threads = hello->threads;
	assoc->datagram_bytes = hello->datagram_bytes;
	assoc->refs = node->opts.threads;
	assoc->made_ns = gn_now_ns();
	memcpy(assoc->addr, hello->thread, hello->threads * sizeof(*hello->thread));
	node->n_peers += dgram_assoc_peers(node, assoc->threads);
	list_push(&node->assocs, assoc);
	remote->n_assocs++;
	if (remote->incarnation != hello->incarnation)
		remote->attempt = 0; /* each incarnation counts from one */
	remote->incarnation = hello->incarnation;
	if (!remote->assoc || initiated)
		remote->assoc = assoc;
	counter_add(&node->stats.epochs, 1);
	assoc_tell_up(assoc);
	return assoc;
}

void dgram_assoc_end(struct dgram_assoc *assoc)
{
	struct gn_dgram_node *node = assoc->node;
	struct dgram_remote *remote = assoc->remote;

	if (assoc->dead)
		return;
	assoc->dead = true;
	list_remove(assoc);
	list_push(&node->dead, assoc);
	if (remote->assoc == assoc) {
		remote->assoc = NULL;
		for (struct dgram_assoc *a = node->assocs; a && !remote->assoc; a = a->next)
			if (a->remote == remote)
				remote->assoc = a;
	}
	counter_add(&node->stats.replaced, 1);
	for (uint32_t i = 0; i < node->opts.threads; i++)
		if (assoc->ends[i].ep) /* NULL: destroyed */
			link_loop_post(&assoc->ends[i].ep->loop, &assoc->ends[i].down);
}

static void assoc_free(struct dgram_assoc *assoc)
{
	struct dgram_remote *remote = assoc->remote;

	assoc->node->indices[assoc->index] = false;
	assoc->node->n_peers -= dgram_assoc_peers(assoc->node, assoc->threads);
	list_remove(assoc);
	remote->n_assocs--;
	gn_free(assoc->ends);
	gn_free(assoc);
	dgram_remote_put(remote);
}

void dgram_assocs_sweep(struct gn_dgram_node *node)
{
	for (struct dgram_assoc *a = node->dead, *next; a; a = next) {
		next = a->next;
		/* Pairs with the release of the endpoint that lets go. */
		if (!__atomic_load_n(&a->refs, __ATOMIC_ACQUIRE))
			assoc_free(a);
	}
}
