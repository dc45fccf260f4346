/* SPDX-License-Identifier: MIT */
/*
 * Associations of nodes that have vanished, or are idle, give way to new ones when a limit is
 * reached. Only endpoints know when they last heard of a node: a survey asks them. The next hello
 * that finds no space evicts those that were idle for longest, and those nodes are told: the next
 * call of such a node makes a new epoch. An association that the program of this node has named, or
 * that has calls under way, stays.
 */
#include "dgram/endpoint.h"

#define EVICT_IDLE_NS	1000000000u /* without a datagram, before an association gives way */
#define SURVEY_NS	20000000u   /* between two surveys */
#define SURVEY_VALID_NS 300000000u  /* for hellos that are tried again: see link_backoff */
#define EVICT_SHARE	16u	    /* of max_peers at a time */

/* ---- at an endpoint ---- */

static bool survey_peer_stays(const struct gn_dgram_peer *peer)
{
	const struct dgram_session *session = peer->session;

	return peer->opened || peer->n_handlers ||
	       (session && (session->used || session->n_waiting || session->n_executing));
}

void dgram_evict_survey(struct link_task *task)
{
	struct gn_dgram_endpoint *ep = container_of(task, struct gn_dgram_endpoint, survey_task);
	uint64_t survey;

	/* Pairs with survey_begin(): a survey that begins from now on posts the task again. */
	__atomic_store_n(&ep->survey_posted, false, __ATOMIC_SEQ_CST);
	survey = __atomic_load_n(&ep->survey, __ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < ep->node->opts.max_peers; i++) {
		const struct dgram_table *table = &ep->tables[i];
		struct dgram_assoc_end *end;
		uint64_t heard_ns = 0;
		bool in_use = false;

		if (!table->assoc)
			continue;
		end = &table->assoc->ends[ep->thread];
		for (uint32_t k = 0; k < table->assoc->threads; k++) {
			const struct gn_dgram_peer *peer = table->peers[k];

			if (!peer)
				continue;
			in_use |= survey_peer_stays(peer);
			if (peer->heard_ns > heard_ns)
				heard_ns = peer->heard_ns;
		}
		__atomic_store_n(&end->heard_ns, heard_ns, __ATOMIC_RELAXED);
		__atomic_store_n(&end->in_use, in_use, __ATOMIC_RELAXED);
	}
	/* Pairs with survey_is_complete(). */
	__atomic_store_n(&ep->surveyed, survey, __ATOMIC_RELEASE);
}

/* ---- the control thread ---- */

static bool survey_is_complete(const struct gn_dgram_node *node)
{
	for (uint32_t i = 0; i < node->opts.threads; i++) {
		const struct gn_dgram_endpoint *ep = node->endpoints[i];

		/* Pairs with dgram_evict_survey(). */
		if (!ep || __atomic_load_n(&ep->surveyed, __ATOMIC_ACQUIRE) != node->survey)
			return false;
	}
	return node->survey;
}

static void survey_begin(struct gn_dgram_node *node, uint64_t now_ns)
{
	node->survey_ns = now_ns;
	node->survey++;
	for (uint32_t i = 0; i < node->opts.threads; i++) {
		struct gn_dgram_endpoint *ep = node->endpoints[i];

		if (!ep)
			continue;
		__atomic_store_n(&ep->survey, node->survey, __ATOMIC_SEQ_CST);
		/* Pairs with dgram_evict_survey(). */
		if (!__atomic_exchange_n(&ep->survey_posted, true, __ATOMIC_SEQ_CST))
			link_loop_post(&ep->loop, &ep->survey_task);
	}
}

/* When the association was last used; GN_FOREVER: it stays. */
static uint64_t assoc_used_ns(const struct dgram_assoc *assoc)
{
	uint64_t used_ns = assoc->made_ns;

	for (uint32_t i = 0; i < assoc->node->opts.threads; i++) {
		const uint64_t ns = __atomic_load_n(&assoc->ends[i].heard_ns, __ATOMIC_RELAXED);

		if (__atomic_load_n(&assoc->ends[i].in_use, __ATOMIC_RELAXED))
			return GN_FOREVER;
		if (ns > used_ns)
			used_ns = ns;
	}
	return used_ns;
}

static struct dgram_assoc *evict_choose(const struct gn_dgram_node *node, uint64_t before_ns)
{
	struct dgram_assoc *oldest = NULL;

	for (struct dgram_assoc *a = node->assocs; a; a = a->next) {
		const uint64_t used_ns = assoc_used_ns(a);

		if (used_ns >= before_ns)
			continue;
		before_ns = used_ns;
		oldest = a;
	}
	return oldest;
}

/* True: the last survey has found some. */
static bool evict_surveyed(struct gn_dgram_node *node, uint64_t now_ns)
{
	const uint32_t n = 1 + node->opts.max_peers / EVICT_SHARE;
	uint32_t i = 0;

	if (now_ns < EVICT_IDLE_NS || now_ns - node->survey_ns > SURVEY_VALID_NS ||
	    !survey_is_complete(node))
		return false;
	for (; i < n; i++) {
		struct dgram_assoc *assoc = evict_choose(node, now_ns - EVICT_IDLE_NS);

		if (!assoc)
			break;
		assoc->evicted = true;
		dgram_assoc_end(assoc);
	}
	return i;
}

void dgram_evict(struct gn_dgram_node *node)
{
	const uint64_t now_ns = gn_now_ns();

	if (!evict_surveyed(node, now_ns) &&
	    (!node->survey || now_ns - node->survey_ns >= SURVEY_NS))
		survey_begin(node, now_ns);
}
