/* SPDX-License-Identifier: MIT */
/*
 * Defaults for a provider's table: -EOPNOTSUPP for a requested operation, no action where nothing
 * is needed. A provider fills in only what it implements.
 */
#include "fabric/fabric.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static int no_open(struct gn_fabric *fabric, const char *device)
{
	(void)fabric;
	(void)device;
	return -EOPNOTSUPP;
}

/* Initialisers: nothing to do, unsupported, and finalisers. */
#define INIT(object, name, answer)                        \
	static int object##_##name(struct gn_##object *o) \
	{                                                 \
		(void)o;                                  \
		return answer;                            \
	}
#define FINI(object)                                        \
	static void object##_nothing(struct gn_##object *o) \
	{                                                   \
		(void)o;                                    \
	}

INIT(ctx, fine, 0)
INIT(mem, fine, 0)
INIT(pd, fine, 0)
INIT(chan, fine, 0)
INIT(mr, fine, 0)
INIT(qp, fine, 0)
INIT(mem, unsupported, -EOPNOTSUPP)
INIT(mr, unsupported, -EOPNOTSUPP)
INIT(cq, unsupported, -EOPNOTSUPP)
INIT(qp, unsupported, -EOPNOTSUPP)
INIT(ah, unsupported, -EOPNOTSUPP)
FINI(fabric)
FINI(ctx)
FINI(mem)
FINI(pd)
FINI(mr)
FINI(chan)
FINI(cq)
FINI(qp)
FINI(ah)
FINI(listener)

static int no_completions(struct gn_cq *cq, struct gn_wc *wc, int n)
{
	(void)cq;
	(void)wc;
	(void)n;
	return 0;
}

static int no_timer(struct gn_chan *chan, uint64_t deadline_ns)
{
	(void)chan;
	(void)deadline_ns;
	return -EOPNOTSUPP;
}

static int no_arm(struct gn_cq *cq, bool solicited_only)
{
	(void)cq;
	(void)solicited_only;
	return -EOPNOTSUPP;
}

static bool never_ready(struct gn_cq *cq)
{
	(void)cq;
	return false;
}

static int no_ud_addr(struct gn_qp *qp, struct gn_ud_addr *out)
{
	(void)qp;
	(void)out;
	return -EOPNOTSUPP;
}

static int no_reverse(struct gn_qp *qp, const struct gn_wc *wc, const void *grh,
		      struct gn_ud_addr *out)
{
	(void)wc;
	(void)grh;
	return no_ud_addr(qp, out);
}

static unsigned take_no_sends(struct gn_qp *qp, const struct gn_wr *wr, unsigned n)
{
	(void)qp;
	(void)wr;
	(void)n;
	return 0;
}

static unsigned take_no_receives(struct gn_qp *qp, const struct gn_recv_wr *wr, unsigned n)
{
	(void)qp;
	(void)wr;
	(void)n;
	return 0;
}

static bool none_is_plain(struct gn_qp *qp, const struct gn_wr *wr)
{
	(void)qp;
	(void)wr;
	return false;
}

static int no_listen(struct gn_listener *listener, const char *addr)
{
	(void)listener;
	(void)addr;
	return -EOPNOTSUPP;
}

static int any_addr(struct gn_fabric *fabric, const char *addr)
{
	(void)fabric;
	(void)addr;
	return 0;
}

static int no_connect(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts)
{
	(void)qp;
	(void)addr;
	(void)opts;
	return -EOPNOTSUPP;
}

static int no_accept(struct gn_conn_req *req, struct gn_qp *qp, const struct gn_conn_opts *opts)
{
	(void)req;
	(void)qp;
	(void)opts;
	return -EOPNOTSUPP;
}

static int no_reject(struct gn_conn_req *req, const void *private_data, uint32_t private_len)
{
	(void)req;
	(void)private_data;
	(void)private_len;
	return -EOPNOTSUPP;
}

static const struct provider defaults = {
	.open = no_open,
	.close = fabric_nothing,
	.ctx_init = ctx_fine,
	.ctx_fini = ctx_nothing,
	.mem_alloc = mem_unsupported,
	.mem_wrap = mem_fine,
	.mem_fini = mem_nothing,
	.pd_init = pd_fine,
	.pd_fini = pd_nothing,
	.mr_init = mr_unsupported,
	.mr_revoke = mr_fine,
	.mr_fini = mr_nothing,
	.chan_init = chan_fine,
	.chan_fini = chan_nothing,
	.chan_pump = chan_nothing,
	.chan_timer = no_timer,
	.cq_init = cq_unsupported,
	.cq_fini = cq_nothing,
	.cq_poll = no_completions,
	.cq_arm = no_arm,
	.cq_ready = never_ready,
	.qp_init = qp_unsupported,
	.qp_detach = qp_nothing,
	.qp_close = qp_fine,
	.qp_fini = qp_nothing,
	.qp_query = qp_nothing,
	.qp_adopt = qp_nothing,
	.qp_error = qp_unsupported,
	.qp_reset = qp_unsupported,
	.ud_addr = no_ud_addr,
	.ah_init = ah_unsupported,
	.ah_fini = ah_nothing,
	.ah_reverse = no_reverse,
	.post_send = take_no_sends,
	.post_plain = none_is_plain,
	.post_recv = take_no_receives,
	.addr_check = any_addr,
	.listen_init = no_listen,
	.listen_fini = listener_nothing,
	.connect = no_connect,
	.accept = no_accept,
	.reject = no_reject,
	.disconnect = qp_unsupported,
};

/* The calls follow each other at the end of the table. */
#define FIRST_CALL offsetof(struct provider, open)
#define CALLS	   ((sizeof(struct provider) - FIRST_CALL) / sizeof(void (*)(void)))

void provider_fill(struct provider *out, const struct provider *own)
{
	void (*calls[CALLS])(void), (*fallback[CALLS])(void);

	static_assert(FIRST_CALL + CALLS * sizeof(calls[0]) == sizeof(struct provider),
		      "only calls");
	memcpy(calls, (const char *)own + FIRST_CALL, sizeof(calls));
	memcpy(fallback, (const char *)&defaults + FIRST_CALL, sizeof(fallback));
	for (size_t i = 0; i < CALLS; i++) {
		assert(fallback[i]);
		if (!calls[i])
			calls[i] = fallback[i];
	}
	*out = *own;
	memcpy((char *)out + FIRST_CALL, calls, sizeof(calls));
}
