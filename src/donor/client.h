/* SPDX-License-Identifier: MIT */
/* A client's session with a donor: control calls (control.c), slabs, renewal and notices. */
#ifndef GN_DONOR_CLIENT_H
#define GN_DONOR_CLIENT_H

#include "donor/wire.h"
#include "gannet/exec.h"
#include "gannet/rpc.h"

struct gn_donor {
	struct gn_fabric *fabric;
	struct gn_io *io; /* NULL: no session */
	struct gn_io_target *target;
	struct gn_rpc_client *rpc;
	char *addr, data_addr[DONOR_ADDR_MAX];
	char owner[GN_DONOR_OWNER];
	struct donor_hello_result hello;
	bool in_session; /* the control connection has the session */
	bool lost;	 /* -ESTALE from now on */
	struct gn_donor_slab *slabs;
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
	struct gn_rpc_op notice_op;
	struct donor_notice notice;
};

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
