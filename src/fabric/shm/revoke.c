/* SPDX-License-Identifier: MIT */
/*
 * When does a peer copy no more under what it was granted? A peer makes its busy word odd before it
 * looks at our grants and even when it is done (post.c). So a peer whose word is even after a
 * revocation will not find what was revoked; one whose word is odd has to change it first. Nothing
 * here waits: the state is kept in the connection, and is asked for again.
 *
 * Revocations are counted. For each connection we know up to which of them its peer is quiet, and
 * at most one odd word that has to change: it stands for all revocations up to the last time that
 * it was seen.
 */
#include "fabric/shm/shm.h"

#include <poll.h>
#include <sys/socket.h>

void shm_revoke(struct shm_fabric *fabric, struct shm_ending *ending)
{
	ending->revocation = ++fabric->revocations;
	ending->deadline_ns = gn_deadline_us(GN_TEARDOWN_US);
}

/* The peer closed its end, or its process died: it copies nothing. */
static bool is_gone(const struct shm_conn *c)
{
	struct pollfd pfd = {.fd = c->sock.fd, .events = POLLRDHUP};

	return poll(&pfd, 1, 0) == 1 && pfd.revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL);
}

/* Look at the peer's word. now: the last revocation. */
static void look_at_word(struct shm_conn *c, uint64_t now)
{
	const uint64_t word = __atomic_load_n(&c->peer->busy.posting, __ATOMIC_ACQUIRE);

	if (c->busy_word && word != c->busy_word) {
		c->quiet_to = c->busy_to;
		c->busy_word = 0;
	}
	if (word & 1) {
		c->busy_word = word;
		c->busy_to = now;
	} else {
		c->quiet_to = now;
	}
}

static bool peer_quiet(struct shm_conn *c, const struct shm_ending *ending, uint64_t now)
{
	/* No peer: still connecting. Pairs with the release in map_peer(). */
	if (!__atomic_load_n(&c->peer, __ATOMIC_ACQUIRE) || c->cut_off)
		return true;
	if (c->quiet_to < ending->revocation)
		look_at_word(c, now);
	if (c->quiet_to >= ending->revocation)
		return true;
	c->cut_off = is_gone(c);
	if (!c->cut_off && gn_now_ns() >= ending->deadline_ns) {
		gn_log(GN_LOG_WARN, "shm: a peer copies for over a second; its connection ends");
		shutdown(c->sock.fd, SHUT_RDWR);
		c->cut_off = true;
	}
	return c->cut_off;
}

bool shm_peers_quiet(struct shm_fabric *fabric, const struct gn_pd *pd, struct shm_qp *qp,
		     const struct shm_ending *ending)
{
	bool quiet = true;

	/*
	 * Pairs with the fence in busy_begin(): either the peer sees what was revoked, or we see it
	 * busy.
	 */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	if (!pd)
		return peer_quiet(&qp->conn, ending, fabric->revocations);
	for (qp = fabric->conns; qp; qp = qp->next_conn)
		if (qp->qp.pd == pd)
			quiet &= peer_quiet(&qp->conn, ending, fabric->revocations);
	return quiet;
}
