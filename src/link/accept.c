/* SPDX-License-Identifier: MIT */
/*
 * An accepting thread beside the serving threads: a long handler or a busy loop does not delay new
 * connections.
 */
#include "link/link.h"

static void acceptor_main(void *arg)
{
	struct link_acceptor *acceptor = arg;
	struct gn_event event;

	while (!__atomic_load_n(&acceptor->stop, __ATOMIC_ACQUIRE))
		if (!gn_chan_wait(acceptor->chan, GN_FOREVER, &event) &&
		    event.type == GN_EVENT_CONNECT_REQUEST)
			acceptor->request(acceptor->arg, &event);
}

int link_acceptor_start(struct link_acceptor *acceptor, struct gn_ctx *ctx, const char *addr,
			unsigned flags, link_request_fn *request, void *arg)
{
	int rc;

	*acceptor = (struct link_acceptor){.request = request, .arg = arg};
	rc = gn_chan_create(ctx, &acceptor->chan);
	if (!rc)
		rc = gn_listener_create(ctx, addr, acceptor->chan, flags, &acceptor->listener);
	if (!rc)
		rc = gn_thread_start("accept", acceptor_main, acceptor, &acceptor->thread);
	if (rc)
		link_acceptor_stop(acceptor);
	return rc;
}

void link_acceptor_stop(struct link_acceptor *acceptor)
{
	struct gn_event event;

	if (acceptor->thread) {
		__atomic_store_n(&acceptor->stop, true, __ATOMIC_RELEASE);
		gn_chan_wake(acceptor->chan);
		gn_thread_join(acceptor->thread);
	}
	gn_listener_destroy(acceptor->listener);
	while (acceptor->chan && !gn_chan_next(acceptor->chan, &event))
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			gn_reject(event.req, NULL, 0);
	gn_chan_destroy(acceptor->chan);
	*acceptor = (struct link_acceptor){.chan = NULL};
}
