/* SPDX-License-Identifier: MIT */
/*
 * Peers of an endpoint: by name, by the number in received datagrams, and their association. A peer
 * that the program has named stays; others are freed when their association ends.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/mutant.h"
#include "dgram/endpoint.h"
#include "fabric/addr.h"

/* ---- table ---- */

static uint32_t peer_hash(const struct gn_dgram_endpoint *ep, const struct dgram_remote *remote,
			  uint32_t thread)
{
	return ((uint32_t)((uintptr_t)remote >> 6) * 0x9e3779b1u + thread) & ep->hash_mask;
}

static struct gn_dgram_peer *peer_lookup(struct gn_dgram_endpoint *ep,
					 const struct dgram_remote *remote, uint32_t thread)
{
	struct gn_dgram_peer *peer = ep->hash[peer_hash(ep, remote, thread)];

	while (peer && (peer->remote != remote || peer->thread != thread || peer->secondary))
		peer = peer->next_in_hash;
	return peer;
}

static struct gn_dgram_peer *peer_create(struct gn_dgram_endpoint *ep, struct dgram_remote *remote,
					 uint32_t thread)
{
	struct gn_dgram_peer **list = &ep->hash[peer_hash(ep, remote, thread)];
	struct gn_dgram_peer *peer = ep->free_peers;

	if (peer)
		ep->free_peers = peer->next_in_hash;
	else
		peer = gn_alloc(sizeof(*peer), GN_CACHELINE);
	if (!peer)
		return NULL;
	*peer = (struct gn_dgram_peer){.ep = ep,
				       .remote = remote,
				       .thread = thread,
				       .open = PORT_NO_BUFFER,
				       .idle = true,
				       .next_in_hash = *list};
	dgram_credit_init(peer);
	*list = peer;
	counter_add(&ep->stats.peers, 1);
	return peer;
}

/*
 * A peer object that outlives its association uses the remote node, which lives as long as one of
 * its associations. Pairs with dgram_assocs_sweep().
 */
static void peer_hold(struct gn_dgram_peer *peer, struct dgram_assoc *assoc)
{
	if (peer->held)
		__atomic_fetch_sub(&peer->held->refs, 1, __ATOMIC_RELEASE);
	peer->held = assoc;
	if (assoc)
		__atomic_fetch_add(&assoc->refs, 1, __ATOMIC_RELAXED);
}

static void peer_free(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct gn_dgram_peer **at = &ep->hash[peer_hash(ep, peer->remote, peer->thread)];

	/* It may still be on the lists of this poll; a done function may have called it. */
	peer->free = true;
	if (peer->n_handlers || peer->flushing || peer->blocked || peer->session)
		return;
	peer_hold(peer, NULL);
	while (*at != peer)
		at = &(*at)->next_in_hash;
	*at = peer->next_in_hash;
	gn_free(peer->old_ah);
	peer->next_in_hash = ep->free_peers;
	ep->free_peers = peer;
	counter_sub(&ep->stats.peers, 1);
}

void dgram_peer_release(struct gn_dgram_peer *peer)
{
	if (unlikely(peer->free))
		peer_free(peer);
}

/* ---- sessions ---- */

int dgram_peer_session(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_session *session = ep->free_sessions;

	if (likely(peer->session))
		return 0;
	if (session)
		ep->free_sessions = session->next;
	else
		session = gn_alloc(sizeof(*session), GN_CACHELINE);
	if (!session)
		return -ENOMEM;
	memset(session, 0, sizeof(*session));
	session->peer = peer;
	session->waiting_tail = &session->waiting;
	session->active_ns = ep->now_ns;
	session->n_gone = __atomic_load_n(&peer->remote->n_gone, __ATOMIC_RELAXED);
	link_timer_init(&session->timer, dgram_timer_fired);
	peer->session = session;
	counter_add(&ep->stats.active_peers, 1);
	return 0;
}

static void group_free(struct gn_dgram_endpoint *ep, struct dgram_slot **group)
{
	/* A free group is chained by the first slot's data. */
	(*group)->data = (uint8_t *)ep->free_groups;
	ep->free_groups = *group;
	*group = NULL;
}

void dgram_peer_free_slots(struct gn_dgram_peer *peer, bool all)
{
	struct dgram_session *session = peer->session;

	for (uint32_t g = 0; g < GN_DGRAM_SLOTS / DGRAM_SLOT_GROUP; g++) {
		bool busy = false;

		for (uint32_t i = 0; session->groups[g] && i < DGRAM_SLOT_GROUP; i++) {
			struct dgram_slot *slot = &session->groups[g][i];

			/* The caller's idle message may be older than the slot's call. */
			if (!all && (!dgram_before(slot->number, peer->floor) ||
				     (slot->state == DGRAM_SLOT_EXECUTING && !slot->assembling)))
				busy = true;
			else
				dgram_serve_free(peer, slot);
		}
		if (session->groups[g] && !busy)
			group_free(peer->ep, &session->groups[g]);
	}
}

/*
 * Calls half the distance below the newest one have ended long ago: a caller repeats what was not
 * answered every 100 ms. A call that still executes keeps its number, which only its own duplicates
 * have to match.
 */
void dgram_peer_raise_floor(struct gn_dgram_peer *peer)
{
	const struct dgram_session *session = peer->session;
	const uint32_t floor = peer->grant - DGRAM_NUMBERS_MAX / 2;

	peer->floor = floor;
	for (uint32_t i = 0; session && i < GN_DGRAM_SLOTS; i++) {
		struct dgram_slot *slot = session->groups[i / DGRAM_SLOT_GROUP];

		if (!slot)
			continue;
		slot += i % DGRAM_SLOT_GROUP;
		if (slot->state == DGRAM_SLOT_EXECUTING ||
		    peer->grant - slot->number <= DGRAM_NUMBERS_MAX / 2)
			continue;
		dgram_serve_free(peer, slot);
		slot->number = floor - 1;
	}
}

struct dgram_slot *dgram_peer_slot(struct gn_dgram_peer *peer, uint32_t index)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_slot **group = &peer->session->groups[index / DGRAM_SLOT_GROUP];

	if (likely(*group))
		return &(*group)[index % DGRAM_SLOT_GROUP];
	if (ep->free_groups) {
		*group = ep->free_groups;
		ep->free_groups = (struct dgram_slot *)(void *)(*group)->data;
	} else {
		*group = gn_alloc(DGRAM_SLOT_GROUP * sizeof(struct dgram_slot), GN_CACHELINE);
	}
	if (!*group)
		return NULL;
	memset(*group, 0, DGRAM_SLOT_GROUP * sizeof(struct dgram_slot));
	for (uint32_t i = 0; i < DGRAM_SLOT_GROUP; i++)
		(*group)[i].number = peer->floor - 1;
	return &(*group)[index % DGRAM_SLOT_GROUP];
}

void dgram_peer_rest(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_session *session = peer->session;

	if (!session || session->used || session->n_waiting || session->n_executing)
		return;
	for (uint32_t g = 0; g < GN_DGRAM_SLOTS / DGRAM_SLOT_GROUP; g++)
		if (session->groups[g])
			return;
	link_timer_set(&ep->loop.timers, &session->timer, GN_FOREVER);
	peer->session = NULL;
	session->next = ep->free_sessions;
	ep->free_sessions = session;
	counter_sub(&ep->stats.active_peers, 1);
}

/* ---- address handles ---- */

/* Memory to drop the handle later, when there may be none. */
static int peer_prepare_ah(struct gn_dgram_peer *peer)
{
	if (!peer->old_ah)
		peer->old_ah = gn_alloc(sizeof(*peer->old_ah), 0);
	return peer->old_ah ? 0 : -ENOMEM;
}

/*
 * The address of a peer that the program has named may have to be resolved, which takes time if
 * nothing answers there. Any other peer sends first: see dgram_peer_ah_from().
 */
int dgram_peer_ah(struct gn_dgram_peer *peer)
{
	const int rc = peer->opened ? peer_prepare_ah(peer) : -EHOSTUNREACH;

	return rc ? rc :
		    gn_ah_create(peer->ep->port.qp, &peer->assoc->addr[peer->thread], &peer->ah);
}

/* The sender of a datagram is there, whatever address its hello named. */
void dgram_peer_ah_from(struct gn_dgram_peer *peer, const struct gn_wc *wc, const uint8_t *grh)
{
	if (peer_prepare_ah(peer) || gn_ah_create_from_wc(peer->ep->port.qp, wc, grh, &peer->ah))
		peer->ah = NULL;
}

static void peer_drop_ah(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_old_ah *old = peer->old_ah;

	if (!peer->ah || mutant("dgram-ah", MUTANT_ALWAYS))
		return;
	port_flush_sends(&ep->port);
	*old = (struct dgram_old_ah){peer->ah, peer->ah_sends, ep->old_ahs};
	ep->old_ahs = old;
	peer->old_ah = NULL;
	peer->ah = NULL;
}

void dgram_peers_free_ahs(struct gn_dgram_endpoint *ep)
{
	struct dgram_old_ah **at = &ep->old_ahs;

	while (*at) {
		struct dgram_old_ah *old = *at;

		if (!port_sent(&ep->port, old->sends)) {
			at = &old->next;
			continue;
		}
		*at = old->next;
		gn_ah_destroy(old->ah);
		gn_free(old);
	}
}

/* ---- associations ---- */

static void peer_bind(struct gn_dgram_peer *peer, struct dgram_assoc *assoc)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const struct gn_ud_addr *addr = &assoc->addr[peer->thread];

	peer->free = false; /* it was to be freed, and is used again */
	peer_hold(peer, NULL);
	peer->assoc = assoc;
	peer->epoch = assoc->epoch;
	peer->head_peer = DGRAM_PEER(assoc->remote_index, ep->thread);
	peer->qpn = addr->qpn;
	peer->qkey = addr->qkey;
	peer->max_bytes = min_u32(assoc->datagram_bytes, ep->node->opts.datagram_bytes);
	peer->window_bytes = ep->node->opts.window_bytes;
	peer->used_bytes = peer->result_bytes = 0;
	peer->rtt = (struct dgram_rtt){.rto_ns = ep->node->opts.first_rto_us * 1000};
	peer->idle = true;
	peer->confirmed = __atomic_load_n(&assoc->confirmed, __ATOMIC_RELAXED);
	peer->heard_ns = ep->now_ns;
	dgram_credit_init(peer);
	ep->tables[assoc->index].peers[peer->thread] = peer;
	ep_count(ep, epochs);
}

/* The end of the peer's association: all its calls end, in both directions. */
void dgram_peer_gone(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;

	dgram_send_discard(peer);
	if (peer->assoc->evicted && peer->ah) {
		dgram_send_head(peer, DGRAM_GONE);
		dgram_send_now(peer);
	}
	if (peer->session) {
		dgram_call_end_all(peer, GN_RPC_PEER_GONE);
		dgram_peer_free_slots(peer, true);
		peer->session->n_executing = 0;
		if (peer->confirmed) /* else calls may still wait: see the timer */
			peer->session->n_gone =
				__atomic_load_n(&peer->remote->n_gone, __ATOMIC_RELAXED);
		dgram_peer_rest(peer);
	}
	dgram_credit_fini(peer);
	ep->tables[peer->assoc->index].peers[peer->thread] = NULL;
	peer_drop_ah(peer);
	if (!peer->opened)
		peer_hold(peer, peer->assoc);
	peer->assoc = NULL;
	peer->confirmed = false;
	peer->epoch = 0;
	ep_count(ep, gone);
	if (!peer->opened)
		peer_free(peer);
}

/* Calls that have not been sent wait for the next association. */
void dgram_peer_ended(struct gn_dgram_peer *peer)
{
	peer->confirmed = false;
	__atomic_store_n(&peer->assoc->confirmed, false, __ATOMIC_RELAXED);
	__atomic_store_n(&peer->remote->ended_epoch, peer->epoch, __ATOMIC_RELEASE);
	dgram_remote_want(peer->remote);
}

struct gn_dgram_peer *dgram_peer_find(struct gn_dgram_endpoint *ep, uint32_t number)
{
	const uint32_t index = DGRAM_PEER_INDEX(number), thread = DGRAM_PEER_THREAD(number);
	const struct dgram_table *table = &ep->tables[index];
	struct gn_dgram_peer *peer;

	if (unlikely(index >= ep->node->opts.max_peers) || unlikely(!table->assoc) ||
	    unlikely(thread >= table->assoc->threads) ||
	    unlikely(ep->flags & GN_DGRAM_MAPPED && thread != ep->thread))
		return NULL;
	peer = table->peers[thread];
	if (likely(peer))
		return peer;
	peer = peer_lookup(ep, table->assoc->remote, thread);
	if (!peer || peer->assoc) {
		const bool secondary = peer;

		peer = peer_create(ep, table->assoc->remote, thread);
		if (!peer)
			return NULL;
		peer->secondary = secondary;
	}
	peer_bind(peer, table->assoc);
	return peer;
}

void dgram_peer_assoc_up(struct link_task *task)
{
	struct dgram_assoc_end *end = container_of(task, struct dgram_assoc_end, up);
	struct gn_dgram_endpoint *ep = end->ep;
	struct dgram_assoc *assoc = end->assoc;
	struct dgram_table *table = &ep->tables[assoc->index];

	table->peers = end->peers;
	table->assoc = assoc;
	counter_add(&ep->grants, dgram_assoc_peers(ep->node, assoc->threads) * DGRAM_GRANT_MIN);
	ep->now_ns = gn_now_ns();
	for (uint32_t i = 0; i < assoc->threads; i++) {
		struct gn_dgram_peer *peer = peer_lookup(ep, assoc->remote, i);

		if (!peer || peer->assoc)
			continue;
		peer_bind(peer, assoc);
		if (peer->session)
			dgram_call_start(peer);
	}
}

/*
 * While a peer has an association, a second one of the same nodes belongs to another peer object.
 * When the first ends, the peer takes the second one if nobody uses it, or a new one is made. Calls
 * to a thread that the remote node does not have end.
 */
void dgram_peer_want(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	struct dgram_remote *remote = peer->remote;
	const struct dgram_table *table;
	struct dgram_assoc *assoc;
	bool missing;

	gn_mutex_lock(&ep->node->lock);
	assoc = remote->assoc;
	table = assoc ? &ep->tables[assoc->index] : NULL;
	missing = assoc && peer->thread >= assoc->threads;
	if (assoc && table->assoc == assoc && !missing) {
		if (!table->peers[peer->thread])
			peer_bind(peer, assoc);
		else
			__atomic_store_n(&remote->renew_epoch, assoc->epoch, __ATOMIC_RELEASE);
	}
	gn_mutex_unlock(&ep->node->lock);
	if (missing)
		dgram_call_end_waiting(peer, GN_RPC_NO_METHOD);
	else if (!peer->assoc)
		dgram_remote_want(remote);
}

void dgram_peer_assoc_down(struct link_task *task)
{
	struct dgram_assoc_end *end = container_of(task, struct dgram_assoc_end, down);
	struct gn_dgram_endpoint *ep = end->ep;
	struct dgram_assoc *assoc = end->assoc;
	struct dgram_table *table = &ep->tables[assoc->index];

	ep->now_ns = gn_now_ns();
	for (uint32_t i = 0; table->peers && i < assoc->threads; i++)
		if (table->peers[i])
			dgram_peer_gone(table->peers[i]);
	if (table->peers)
		counter_sub(&ep->grants,
			    dgram_assoc_peers(ep->node, assoc->threads) * DGRAM_GRANT_MIN);
	*table = (struct dgram_table){0};
	/* Pairs with dgram_assocs_sweep(). */
	__atomic_fetch_sub(&assoc->refs, 1, __ATOMIC_RELEASE);
}

/* ---- public ---- */

static int peer_open_check(const struct gn_dgram_endpoint *ep, const char *addr, uint32_t thread)
{
	if (!addr || !*addr)
		return gn_fail_text(-EINVAL, "gn_dgram_peer_open(): there is no address");
	if (strlen(addr) >= GN_DGRAM_ADDR_MAX)
		return gn_fail(-EINVAL,
			       "gn_dgram_peer_open(): the address has %zu bytes, more than %u",
			       strlen(addr), GN_DGRAM_ADDR_MAX - 1);
	if (!strcmp(addr, ep->node->addr))
		return gn_fail(-EINVAL,
			       "gn_dgram_peer_open(): %s is the node's own address; a node cannot "
			       "call itself",
			       addr);
	if (thread >= GN_DGRAM_THREADS_MAX)
		return gn_fail(-EINVAL,
			       "gn_dgram_peer_open(): thread %u is not below GN_DGRAM_THREADS_MAX "
			       "(%u)",
			       thread, GN_DGRAM_THREADS_MAX);
	if (ep->flags & GN_DGRAM_MAPPED && thread != ep->thread)
		return gn_fail(-EINVAL,
			       "gn_dgram_peer_open(): with GN_DGRAM_MAPPED thread %u cannot call "
			       "thread %u",
			       ep->thread, thread);
	return fabric_addr_check(ep->node->fabric, addr);
}

int gn_dgram_peer_open(struct gn_dgram_endpoint *ep, const char *addr, uint32_t thread,
		       struct gn_dgram_peer **out)
{
	struct dgram_remote *remote;
	struct gn_dgram_peer *peer;
	struct dgram_assoc *assoc;
	bool full;
	int rc = dgram_ep_check(ep, "gn_dgram_peer_open()");

	if (rc)
		return rc;
	rc = peer_open_check(ep, addr, thread);
	if (!out)
		rc = gn_fail_text(-EINVAL, "gn_dgram_peer_open(): out is NULL");
	if (rc)
		return rc;
	gn_mutex_lock(&ep->node->lock);
	full = ep->node->n_remotes >= ep->node->opts.max_peers;
	remote = dgram_remote_get(ep->node, addr);
	if (remote)
		remote->opened = true;
	assoc = remote ? remote->assoc : NULL;
	/* The association's task may still be in the inbox: then it binds the peer. */
	if (assoc && (ep->tables[assoc->index].assoc != assoc || thread >= assoc->threads))
		assoc = NULL;
	gn_mutex_unlock(&ep->node->lock);
	if (!remote)
		return full ? gn_fail_text(-ENOSPC,
					   "gn_dgram_peer_open(): max_peers nodes are known") :
			      gn_fail_text(-ENOMEM, "gn_dgram_peer_open(): " NO_MEMORY);
	peer = peer_lookup(ep, remote, thread);
	if (!peer && assoc && ep->tables[assoc->index].peers[thread]) {
		/* The peer's first object is gone, and its second one has the association. */
		peer = ep->tables[assoc->index].peers[thread];
		peer->secondary = false;
	}
	if (!peer && ep->stats.peers >= ep->node->opts.max_peers)
		return gn_fail_text(-ENOSPC, "gn_dgram_peer_open(): the endpoint has max_peers");
	if (!peer)
		peer = peer_create(ep, remote, thread);
	if (!peer)
		return gn_fail_text(-ENOMEM, "gn_dgram_peer_open(): " NO_MEMORY);
	peer->opened = true;
	peer->free = false;
	peer_hold(peer, NULL); /* the remote node stays */
	if (!peer->assoc && assoc && !ep->tables[assoc->index].peers[thread])
		peer_bind(peer, assoc);
	*out = peer;
	return 0;
}

int gn_dgram_peer_gone(struct gn_dgram_peer *peer)
{
	const int rc = peer ? dgram_ep_check(peer->ep, "gn_dgram_peer_gone()") :
			      gn_fail_text(-EINVAL, "gn_dgram_peer_gone(): peer is NULL");

	if (rc)
		return rc;
	__atomic_fetch_add(&peer->remote->n_gone, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&peer->remote->gone, true, __ATOMIC_RELEASE);
	dgram_remote_want(peer->remote);
	return 0;
}

const char *gn_dgram_peer_addr(const struct gn_dgram_peer *peer)
{
	return peer->remote->addr;
}

uint32_t gn_dgram_peer_thread(const struct gn_dgram_peer *peer)
{
	return peer->thread;
}

uint64_t gn_dgram_peer_epoch(const struct gn_dgram_peer *peer)
{
	return peer->epoch;
}

void gn_dgram_peer_set_user(struct gn_dgram_peer *peer, void *user)
{
	peer->user = user;
}

void *gn_dgram_peer_user(const struct gn_dgram_peer *peer)
{
	return peer->user;
}

/* All calls end before the first peer is freed: done functions may use other peers. */
static void peers_end_calls(struct gn_dgram_endpoint *ep)
{
	for (uint32_t i = 0; ep->hash && i <= ep->hash_mask; i++) {
		for (struct gn_dgram_peer *peer = ep->hash[i]; peer; peer = peer->next_in_hash) {
			if (!peer->session)
				continue;
			dgram_call_end_all(peer, GN_RPC_CANCELED);
			dgram_peer_free_slots(peer, true);
			peer->session->n_executing = 0;
			dgram_peer_rest(peer);
		}
	}
}

void dgram_peers_destroy(struct gn_dgram_endpoint *ep)
{
	peers_end_calls(ep);
	for (uint32_t i = 0; ep->hash && i <= ep->hash_mask; i++) {
		while (ep->hash[i]) {
			struct gn_dgram_peer *peer = ep->hash[i];

			ep->hash[i] = peer->next_in_hash;
			peer_hold(peer, NULL);
			dgram_send_discard(peer);
			gn_ah_destroy(peer->ah);
			gn_free(peer->old_ah);
			gn_free(peer);
		}
	}
	while (ep->free_peers) {
		struct gn_dgram_peer *peer = ep->free_peers;

		ep->free_peers = peer->next_in_hash;
		gn_free(peer);
	}
	while (ep->free_sessions) {
		struct dgram_session *session = ep->free_sessions;

		ep->free_sessions = session->next;
		gn_free(session);
	}
	while (ep->free_groups) {
		struct dgram_slot *group = ep->free_groups;

		ep->free_groups = (struct dgram_slot *)(void *)group->data;
		gn_free(group);
	}
	while (ep->old_ahs) {
		struct dgram_old_ah *old = ep->old_ahs;

		ep->old_ahs = old->next;
		gn_ah_destroy(old->ah);
		gn_free(old);
	}
}
