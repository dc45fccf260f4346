/* SPDX-License-Identifier: MIT */
/*
 * Credits for requests. A receiver never has fewer receives posted than it has granted credits,
 * reserved answers and slack. Every peer of an association has one credit all the time; more are
 * granted when the peer says that calls wait (want), while there are receives. An idle peer gives
 * back what it does not use.
 *
 * All counters are cumulative. Outstanding are grant - seen - returned: each number below grant is
 * seen once, however often it is sent, or given back.
 */
#include "base/mutant.h"
#include "dgram/endpoint.h"

static uint32_t credit_level(const struct gn_dgram_peer *peer)
{
	return peer->grant - peer->seen - peer->peer_returned;
}

/* Receives that the peer's credits take; one is always set aside for it. */
static uint32_t credit_receives(const struct gn_dgram_peer *peer)
{
	const uint32_t level = credit_level(peer);

	return level > DGRAM_GRANT_MIN ? level : DGRAM_GRANT_MIN;
}

void dgram_credit_init(struct gn_dgram_peer *peer)
{
	peer->next_number = peer->done = peer->returned = 0;
	peer->granted = DGRAM_GRANT_MIN;
	peer->floor = peer->seen = peer->peer_returned = 0;
	peer->grant = DGRAM_GRANT_MIN;
	peer->quota = DGRAM_GRANT_MIN;
}

void dgram_credit_fini(struct gn_dgram_peer *peer)
{
	counter_sub(&peer->ep->grants, credit_receives(peer) - DGRAM_GRANT_MIN);
	dgram_credit_init(peer);
}

void dgram_credit_received(struct gn_dgram_peer *peer, const struct dgram_head *head)
{
	const uint32_t receives = credit_receives(peer);
	const uint32_t returned = head->returned - peer->peer_returned;

	/* More than 64 calls cannot be outstanding, so credits beyond are forged or useless. */
	if (mutant("dgram-credit-increment", MUTANT_ALWAYS)) {
		peer->granted++; /* by a repeated datagram, too */
	} else if (dgram_before(peer->granted, head->granted)) {
		if (head->granted - peer->next_number <= 2 * GN_DGRAM_SLOTS)
			peer->granted = head->granted;
		else
			ep_count(peer->ep, malformed);
	}
	if (head->want) {
		const uint32_t quota = peer->quota + (uint32_t)head->want;

		peer->quota = (uint16_t)min_u32(quota, GN_DGRAM_SLOTS);
	}
	if (likely(!returned) || (int32_t)returned < 0)
		return;
	if (returned > credit_level(peer)) {
		ep_count(peer->ep, over_credit);
		return;
	}
	peer->peer_returned = head->returned;
	peer->quota = DGRAM_GRANT_MIN;
	counter_sub(&peer->ep->grants, receives - credit_receives(peer));
}

bool dgram_credit_take(struct gn_dgram_peer *peer, uint32_t number)
{
	const uint32_t receives = credit_receives(peer);

	if (!dgram_before(number, peer->grant) || !credit_level(peer)) {
		ep_count(peer->ep, over_credit);
		return false;
	}
	peer->seen++;
	counter_sub(&peer->ep->grants, receives - credit_receives(peer));
	return true;
}

void dgram_credit_grant(struct gn_dgram_peer *peer)
{
	struct gn_dgram_endpoint *ep = peer->ep;
	const uint32_t level = credit_level(peer), receives = credit_receives(peer);
	const uint32_t spare = dgram_ep_spare_grants(ep);

	if (likely(level >= peer->quota))
		return;
	peer->grant += min_u32(peer->quota, receives + spare) - level;
	if (mutant("dgram-credit-twice", peer->seen))
		peer->grant += peer->quota;
	counter_add(&ep->grants, credit_receives(peer) - receives);
}

void dgram_credit_return(struct gn_dgram_peer *peer)
{
	const uint32_t unused = peer->granted - peer->next_number;

	if (unused > DGRAM_GRANT_MIN && unused <= 2 * GN_DGRAM_SLOTS) {
		peer->next_number += unused - DGRAM_GRANT_MIN;
		peer->returned += unused - DGRAM_GRANT_MIN;
	}
	peer->done = peer->next_number;
}
