/* SPDX-License-Identifier: MIT */
/* What a client hears from the donor, and its signs of life: notices and the renewal. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "donor/client.h"

#define RECONNECT_NS UINT64_C(100000000)

/* ---- renewal ---- */

void gn_donor_used(struct gn_donor *donor, const struct gn_donor_slab *slab, uint64_t used)
{
	if (!slab || donor_check_session(donor, "gn_donor_used()"))
		return;
	donor->uses[slab->use_offset / sizeof(uint64_t)] = used;
	if (slab->use_offset + sizeof(uint64_t) > donor->uses_end)
		donor->uses_end = slab->use_offset + sizeof(uint64_t);
}

int gn_donor_renew(struct gn_donor *donor)
{
	struct gn_io_req *req = NULL;
	int rc = donor_check_session(donor, "gn_donor_renew()");

	if (rc)
		return rc;
	if (donor->renewing && gn_io_poll(donor->queue, &req, 1) <= 0)
		return gn_io_target_state(donor->target);
	donor->renewing = false;
	donor->uses[0]++;
	memcpy(donor->sent, donor->uses, donor->uses_end);
	donor->renewal_sge =
		(struct gn_io_sge){.addr = donor->sent, .len_bytes = (uint32_t)donor->uses_end};
	donor->renewal = (struct gn_io_req){
		.op = GN_IO_WRITE, .n_sge = 1, .region = donor->lease, .sge = &donor->renewal_sge};
	req = &donor->renewal;
	rc = gn_io_submit(donor->queue, &req, 1);
	donor->renewing = rc == 1;
	return rc == 1 ? gn_io_target_state(donor->target) : rc;
}

/* ---- notices ---- */

static void notice_done(struct gn_rpc_op *op)
{
	((struct gn_donor *)op->arg)->notice_came = true;
}

/*
 * A lost connection is made anew even if the deadline is past: a caller that does not wait would
 * never have one again. But not all the time.
 */
static int notice_connect(struct gn_donor *donor, uint64_t deadline_ns)
{
	const uint64_t now_ns = gn_now_ns(), least_ns = now_ns + RECONNECT_NS;
	int rc;

	if (deadline_ns <= now_ns && now_ns < donor->retry_ns)
		return -ETIMEDOUT;
	rc = donor_control_up(donor, deadline_ns > least_ns ? deadline_ns : least_ns);
	donor->retry_ns = rc ? gn_now_ns() + RECONNECT_NS : 0;
	return rc;
}

static int notice_call(struct gn_donor *donor, uint64_t deadline_ns)
{
	int rc = notice_connect(donor, deadline_ns);

	if (rc)
		return rc;
	donor->notice_op = (struct gn_rpc_op){.method = DONOR_NOTICE,
					      .result = &donor->notice,
					      .result_room = sizeof(donor->notice),
					      .done = notice_done,
					      .arg = donor};
	donor->notice_came = false;
	rc = gn_rpc_submit(donor->rpc, &donor->notice_op);
	while (rc == -EAGAIN) { /* calls that the donor does not answer use all slots */
		rc = gn_rpc_wait(donor->rpc, deadline_ns);
		if (rc >= 0)
			rc = gn_rpc_submit(donor->rpc, &donor->notice_op);
	}
	if (!rc)
		rc = gn_rpc_flush(donor->rpc);
	donor->notice_called = !rc || donor->notice_came;
	return rc == -ENOTCONN ? 0 : rc;
}

static struct gn_donor_slab *slab_by_id(const struct gn_donor *donor, uint64_t id)
{
	struct gn_donor_slab *slab = donor->slabs;

	while (slab && slab->id != id)
		slab = slab->next;
	return slab;
}

static int notice_take(struct gn_donor *donor, struct gn_donor_notice *out)
{
	const struct donor_notice *n = &donor->notice;
	struct gn_donor_notice notice = {.size = sizeof(notice),
					 .id = n->slab,
					 .slab = n->slab ? slab_by_id(donor, n->slab) : NULL,
					 .deadline_ns = gn_now_ns() + n->left_ms * 1000000};

	if (donor->notice_op.result_len != sizeof(*n) || n->kind < DONOR_TAKE_BACK ||
	    n->kind > DONOR_LEAVING)
		return gn_fail(-EPROTO, "the donor at %s sends an unknown notice", donor->addr);
	notice.kind = (enum gn_donor_notice_kind)n->kind;
	return SIZED_WRITE(out, &notice, "gn_donor_notice");
}

int gn_donor_next_notice(struct gn_donor *donor, struct gn_donor_notice *out, uint64_t deadline_ns)
{
	int rc = donor_check_session(donor, "gn_donor_next_notice()");

	if (!rc && !out)
		rc = gn_fail(-EINVAL, "gn_donor_next_notice(): out is NULL");
	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		if (!donor->notice_called) {
			rc = notice_call(donor, deadline_ns);
			if (rc)
				return rc;
		}
		gn_rpc_poll(donor->rpc);
		if (donor->notice_came) {
			const unsigned status = donor->notice_op.status;

			donor->notice_called = donor->notice_came = false;
			if (status == GN_RPC_OK)
				return notice_take(donor, out);
			rc = donor_control_error(donor, status);
			if (rc != -ECONNRESET)
				return rc;
			continue; /* connects again */
		}
		if (gn_now_ns() >= deadline_ns)
			return gn_fail_text(-ETIMEDOUT, "gn_donor_next_notice(): there is none");
		rc = gn_rpc_wait(donor->rpc, deadline_ns);
		if (rc < 0)
			return rc;
	}
}

struct gn_source *gn_donor_source(struct gn_donor *donor)
{
	return donor_check(donor, "gn_donor_source()") ? NULL : gn_rpc_client_source(donor->rpc);
}
