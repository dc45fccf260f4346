/* SPDX-License-Identifier: MIT */
/* A client's control connection: calls, and connecting again with the same session. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "donor/client.h"
#include "link/link.h"

static int lost(struct gn_donor *donor, const char *why)
{
	donor->lost = why;
	return gn_fail(-ESTALE, "the session with the donor at %s is lost: %s", donor->addr, why);
}

int donor_control_error(struct gn_donor *donor, unsigned status)
{
	switch (status) {
	case GN_RPC_OK:
		return 0;
	case GN_RPC_TIMEOUT:
		return gn_fail(-ETIMEDOUT, "the donor at %s did not answer in time", donor->addr);
	case GN_RPC_CANCELED:
	case GN_RPC_PEER_GONE:
		return gn_fail(-ECONNRESET, "the connection to the donor at %s broke", donor->addr);
	case DONOR_NO_SESSION:
		return lost(donor, "it has ended");
	case DONOR_OTHER_INCARNATION:
		return lost(donor, "the donor was restarted");
	case DONOR_BAD_VERSION:
		return gn_fail(-EPROTO, "the donor at %s has another version", donor->addr);
	case DONOR_NO_SPACE:
		return gn_fail(-ENOSPC, "the donor at %s has no memory left", donor->addr);
	case DONOR_LIMIT:
		return gn_fail(-EDQUOT, "a limit of the donor at %s is reached", donor->addr);
	case DONOR_NOT_FOUND:
		return gn_fail(-ENOENT, "the donor at %s does not know the slab or the token",
			       donor->addr);
	case DONOR_INVALID:
		return gn_fail(-EINVAL, "the donor at %s does not accept the request", donor->addr);
	case DONOR_GOING_AWAY:
		return gn_fail(-ESHUTDOWN, "the donor at %s is going away", donor->addr);
	case GN_RPC_NO_METHOD:
		return gn_fail(-EPROTO, "%s is not the address of a donor", donor->addr);
	case GN_RPC_BUSY:
		return gn_fail(-EBUSY, "the donor at %s is busy", donor->addr);
	default:
		return gn_fail(-EPROTO, "the donor at %s answers: %s", donor->addr,
			       gn_rpc_status_str(status));
	}
}

/* ---- HELLO ---- */

/* Is this the session that the client has? */
static bool hello_is_same(const struct donor_hello_result *a, const struct donor_hello_result *b)
{
	return !memcmp(a->token, b->token, sizeof(a->token)) && a->incarnation == b->incarnation &&
	       a->session == b->session && a->slab_bytes == b->slab_bytes &&
	       a->lease.offset == b->lease.offset && a->lease.length == b->lease.length &&
	       a->lease.key == b->lease.key && !memcmp(a->data, b->data, sizeof(a->data));
}

/*
 * Of a client that lost its connection, generation is its own. All that it knows of the session
 * stays: its memory is as long as the lease that it was told of first.
 */
static int control_hello(struct gn_donor *donor, const struct gn_donor_id *id, uint32_t generation,
			 uint64_t deadline_ns)
{
	struct donor_hello hello = {
		.version = DONOR_VERSION, .resume = id != NULL, .generation = generation};
	struct donor_hello_result result;
	unsigned status;
	uint32_t len;
	int rc;

	memcpy(hello.owner, donor->owner, sizeof(hello.owner));
	if (id) {
		memcpy(hello.token, id->token, sizeof(hello.token));
		hello.incarnation = id->incarnation;
	}
	rc = gn_rpc_call(donor->rpc, DONOR_HELLO, &hello, sizeof(hello), &result, sizeof(result),
			 &len, deadline_ns, &status);
	if (!rc || rc == -ENOTCONN)
		rc = donor_control_error(donor, rc ? GN_RPC_PEER_GONE : status);
	if (rc)
		return rc;
	if (len != sizeof(result) || result.version != DONOR_VERSION || !result.slab_bytes ||
	    result.n_slabs > GN_DONOR_SLABS_MAX)
		return gn_fail(-EPROTO, "%s is no donor of this version", donor->addr);
	if (donor->target && !hello_is_same(&donor->hello, &result))
		return lost(donor, "the donor has another session instead");
	if (donor->target)
		result.generation = generation;
	donor->hello = result;
	donor->in_session = true;
	return donor_data_addr(donor->addr, donor->hello.data, donor->data_addr);
}

int donor_control_open(struct gn_donor *donor, const struct gn_donor_id *id, uint64_t timeout_us)
{
	const uint64_t deadline_ns = gn_deadline_us(timeout_us);
	const struct gn_rpc_client_opts opts = {.size = sizeof(opts), .timeout_us = timeout_us};
	const int rc = gn_rpc_client_open(donor->fabric, donor->addr, &opts, &donor->rpc);

	if (rc || !donor->io)
		return rc;
	return control_hello(donor, id, 0, deadline_ns);
}

/* ---- connecting again ---- */

static int control_reconnect(struct gn_donor *donor, uint64_t deadline_ns)
{
	struct gn_donor_id id = {.incarnation = donor->hello.incarnation};
	struct link_backoff backoff = {.failed = 0};
	int rc;

	memcpy(id.token, donor->hello.token, sizeof(id.token));
	for (;;) {
		rc = gn_rpc_reconnect(donor->rpc);
		if (!rc && donor->io)
			rc = control_hello(donor, &id, donor->hello.generation, deadline_ns);
		if (!rc || donor->lost)
			return rc;
		link_backoff_failed(&backoff);
		if (link_backoff_wait(&backoff, deadline_ns))
			return gn_fail(-ETIMEDOUT, "the donor at %s cannot be reached: %s",
				       donor->addr, gn_strerror(rc));
	}
}

int donor_control_up(struct gn_donor *donor, uint64_t deadline_ns)
{
	int rc = gn_rpc_flush(donor->rpc);

	if (donor->lost)
		return lost(donor, donor->lost);
	if (rc != -ENOTCONN && (donor->in_session || !donor->io))
		return rc;
	donor->in_session = false;
	return control_reconnect(donor, deadline_given(deadline_ns));
}

/* -EAGAIN of a call: earlier calls, which the donor did not answer, used all slots in that time. */
int donor_control_call(struct gn_donor *donor, struct gn_rpc_op *op, bool repeat)
{
	int rc;

	do {
		rc = donor_control_up(donor, op->deadline_ns);
		if (!rc)
			rc = gn_rpc_call(donor->rpc, op->method, op->request, op->request_len,
					 op->result, op->result_room, &op->result_len,
					 op->deadline_ns, &op->status);
		if (rc == -ENOTCONN) {
			donor->in_session = false;
			op->status = GN_RPC_PEER_GONE;
			rc = 0;
		}
		if (rc == -EAGAIN)
			return donor_control_error(donor, GN_RPC_TIMEOUT);
		if (rc)
			return rc;
	} while (op->status == GN_RPC_PEER_GONE && repeat);
	return donor_control_error(donor, op->status);
}
