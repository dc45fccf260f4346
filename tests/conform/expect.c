/* SPDX-License-Identifier: MIT */
/*
 * Waits for completions, events and states, and reports what came instead. A wait ends before its
 * deadline if the other side has failed.
 */
#include <errno.h>

#include "harness.h"

#define LOOK_US	 100000u /* between checks of the other side */
#define QUIET_US 2000u	 /* in which nothing may happen */

/* False: waiting on is useless. */
static bool peer_fine(struct cf *cf)
{
	if (!cf->running->b || !cf_ctl_ended(cf->ctl))
		return true;
	if (cf->running->flags & CF_B_DIES)
		return true; /* it is meant to */
	cf->peer_ended = true;
	return cf_why(cf, "the other side has failed");
}

static uint64_t next_look(uint64_t deadline_ns)
{
	uint64_t look_ns = gn_deadline_us(LOOK_US);

	return look_ns < deadline_ns ? look_ns : deadline_ns;
}

bool cf_poll_one(struct cf *cf, struct gn_cq *cq, struct gn_wc *wc)
{
	uint64_t deadline_ns = cf_deadline(cf);
	int n;

	do {
		n = gn_cq_wait(cq, wc, 1, next_look(deadline_ns), "a case's completion");
		if (n == 1)
			return true;
		if (n != -ETIMEDOUT && n != -EINTR)
			return cf_why(cf, "gn_cq_wait: %s", n < 0 ? gn_strerror(n) : "nothing");
	} while (gn_now_ns() < deadline_ns && peer_fine(cf));
	return cf->peer_ended ? false : cf_why(cf, "no completion came");
}

bool cf_expect_wc(struct cf *cf, struct gn_cq *cq, uint64_t id, enum gn_wc_status status)
{
	struct gn_wc wc;

	if (!cf_poll_one(cf, cq, &wc))
		return false;
	if (wc.id == id && wc.status == status)
		return true;
	return cf_why(cf, "completion %llu is %s (vendor %u), expected %llu %s",
		      (unsigned long long)wc.id, gn_wc_status_str(wc.status), wc.vendor,
		      (unsigned long long)id, gn_wc_status_str(status));
}

bool cf_expect_none(struct cf *cf, struct gn_cq *cq)
{
	struct gn_wc wc;
	int n = gn_cq_wait(cq, &wc, 1, gn_deadline_us(QUIET_US), "nothing to happen");

	if (n == -ETIMEDOUT)
		return true;
	if (n < 0)
		return cf_why(cf, "gn_cq_wait: %s", gn_strerror(n));
	return cf_why(cf, "completion %llu (%s) where none should be", (unsigned long long)wc.id,
		      gn_wc_status_str(wc.status));
}

bool cf_expect_flushed(struct cf *cf, struct gn_cq *cq, uint64_t first, unsigned n)
{
	for (uint64_t id = first; id < first + n; id++)
		if (!cf_expect_wc(cf, cq, id, GN_WC_FLUSHED))
			return false;
	return true;
}

bool cf_expect_event(struct cf *cf, struct gn_chan *chan, enum gn_event_type type,
		     struct gn_event *out)
{
	uint64_t deadline_ns = cf_deadline(cf);
	struct gn_event event;
	int err;

	do {
		err = gn_chan_wait(chan, next_look(deadline_ns), &event);
		if (err && err != -ETIMEDOUT && err != -EINTR)
			return cf_why(cf, "gn_chan_wait: %s", gn_strerror(err));
	} while (err && gn_now_ns() < deadline_ns && peer_fine(cf));
	if (cf->peer_ended)
		return false;
	if (err)
		return cf_why(cf, "no event came, %s expected", gn_event_str(type));
	if (event.type != type)
		return cf_why(cf, "event %s (status %s), %s expected", gn_event_str(event.type),
			      gn_strerror(event.status), gn_event_str(type));
	if (out)
		*out = event;
	return true;
}

bool cf_expect_state(struct cf *cf, struct gn_qp *qp, enum gn_qp_state state)
{
	const uint64_t pause_us = 100;
	uint64_t deadline_ns = cf_deadline(cf);
	struct gn_qp_attr attr = {.size = sizeof(attr)};
	int err;

	for (;;) {
		err = gn_qp_query(qp, &attr);
		if (err)
			return cf_why(cf, "gn_qp_query: %s", gn_strerror(err));
		if (attr.state == state)
			return true;
		if (gn_now_ns() >= deadline_ns)
			return cf_why(cf, "the qp stays in state %d, not %d", attr.state, state);
		gn_sleep_us(pause_us);
	}
}
