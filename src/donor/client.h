/* SPDX-License-Identifier: MIT */
/* A client's session with a donor: control calls (control.c), slabs, renewal and notices. */
#ifndef GN_DONOR_CLIENT_H
#define GN_DONOR_CLIENT_H

#include <errno.h>

#include "base/fail.h"
#include "base/owner.h"
#include "donor/wire.h"
#include "gannet/exec.h"
#include "gannet/rpc.h"

struct gn_donor {
	uint64_t thread; /* that connected it: gn_thread_id() */
	struct gn_fabric *fabric;
	struct gn_io *io; /* NULL: no session */
	struct gn_io_target *target;
	struct gn_rpc_client *rpc;
	char *addr, data_addr[DONOR_ADDR_MAX];
	char owner[GN_DONOR_OWNER];
	struct donor_hello_result hello;
	bool in_session;  /* the control connection has the session */
	const char *lost; /* why: -ESTALE from now on */
	struct gn_donor_slab *slabs;
	unsigned n_slabs;
	bool unsure; /* GRANTs without an answer may have been executed */
	/* renewal */
	struct gn_io_queue *queue;
	struct gn_io_region *lease;
	uint64_t *uses, *sent; /* the lease memory: as it is, and as it is being written */
	uint64_t uses_end;     /* bytes of uses that are in use */
	bool renewing;
	struct gn_io_sge renewal_sge;
	struct gn_io_req renewal;
	/* the notice that is waited for */
	bool notice_called, notice_came;
	uint64_t retry_ns; /* not connected for a notice before */
	struct gn_rpc_op notice_op;
	struct donor_notice notice;
};

/* May the caller use it? call: for the text. */
static inline int donor_check(const struct gn_donor *donor, const char *call)
{
	if (!donor)
		return gn_fail(-EINVAL, "%s: donor is NULL", call);
	return exec_is_owner(donor->thread) ? 0 : exec_not_owner(donor->thread, call);
}

/* … for calls that need a session. */
static inline int donor_check_session(const struct gn_donor *donor, const char *call)
{
	const int rc = donor_check(donor, call);

	return rc || donor->io ? rc :
				 gn_fail(-EINVAL, "%s: it was connected without an engine", call);
}

/* ---- control.c ---- */

/* Connects, and creates or (token) takes over the session, if there is an engine. */
int donor_control_open(struct gn_donor *donor, const struct gn_donor_id *id, uint64_t timeout_us);
/*
 * A call, after connecting again if that is due. repeat: the call is repeated if the connection
 * broke meanwhile. Returns 0, or the -errno of the call's status.
 */
int donor_control_call(struct gn_donor *donor, struct gn_rpc_op *op, bool repeat);
/* Connects again if that is due. */
int donor_control_up(struct gn_donor *donor, uint64_t deadline_ns);
/* 0 or -errno, with a text; notes what the status says about the session. */
int donor_control_error(struct gn_donor *donor, unsigned status);

#endif
