/* SPDX-License-Identifier: MIT */
/*
 * When has a peer stopped accessing revoked memory? A peer makes its busy counter odd before it
 * reads our grants, and even when it has finished (post.c). A peer whose counter is even after a
 * revocation will not see the revoked grant; a peer whose counter is odd must change it first.
 * Nothing here waits: the state is kept in the connection, and callers ask again.
 *
 * Revocations are numbered. For each connection we know up to which revocation its peer has
 * quiesced, and at most one odd counter value that must change: it covers all revocations up to the
 * last time it was sampled.
 */
#include "fabric/shm/shm.h"

#include <poll.h>
#include <sys/socket.h>

void shm_revoke(struct shm_fabric *fabric, struct shm_ending *ending)
{
	ending->revocation = ++fabric->revocations;
	ending->deadline_ns = gn_deadline_us(GN_TEARDOWN_US);
}

/* The peer closed its socket or died: it accesses nothing. */
static bool peer_is_closed(const struct shm_conn *c)
{
	struct pollfd pfd = {.fd = c->sock.fd, .events = POLLRDHUP};

	return poll(&pfd, 1, 0) == 1 && pfd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

/* Samples the peer's busy counter. now: the last revocation. */
static void peer_sample_busy(struct shm_conn *c, uint64_t now)
{
	const uint64_t word = __atomic_load_n(&c->peer->busy.posting, __ATOMIC_ACQUIRE);

	if (c->busy_word && word != c->busy_word) {
		c->quiesced_to = c->busy_to;
		c->busy_word = 0;
	}
	if (word & 1) {
		c->busy_word = word;
		c->busy_to = now;
	} else {
		c->quiesced_to = now;
	}
}

static bool peer_quiesced(struct shm_conn *c, const struct shm_ending *ending, uint64_t now)
{
	/* NULL: still connecting. Pairs with the release in conn_map_peer(). */
	if (!__atomic_load_n(&c->peer, __ATOMIC_ACQUIRE) || c->abandoned)
		return true;
	if (c->quiesced_to < ending->revocation)
		peer_sample_busy(c, now);
	if (c->quiesced_to >= ending->revocation)
		return true;
	c->abandoned = peer_is_closed(c);
	if (!c->abandoned && gn_now_ns() >= ending->deadline_ns) {
		gn_log(GN_LOG_WARN, "shm: a peer copies for over a second; closing its connection");
		shutdown(c->sock.fd, SHUT_RDWR);
		c->abandoned = true;
	}
	return c->abandoned;
}

bool shm_peers_quiesced(struct shm_fabric *fabric, const struct gn_pd *pd, struct shm_qp *qp,
			const struct shm_ending *ending)
{
	bool quiet = true;

	/*
	 * Pairs with the fence in conn_busy_begin(): the peer sees the revocation, or we see it
	 * busy.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!pd)
		return peer_quiesced(&qp->conn, ending, fabric->revocations);
	for (qp = fabric->conns; qp; qp = qp->next_conn)
		if (qp->qp.pd == pd)
			quiet &= peer_quiesced(&qp->conn, ending, fabric->revocations);
	return quiet;
}
