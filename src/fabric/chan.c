/* SPDX-License-Identifier: MIT */
/*
 * Event channels. A queued event is embedded in its object (struct chan_node): queueing cannot
 * fail, and destroying an object removes its events.
 */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

static bool chan_source_ready(struct gn_source *source)
{
	struct gn_chan *chan = container_of(source, struct gn_chan, source);

	chan->obj.fabric->provider->chan_pump(chan);
	return __atomic_load_n(&chan->first, __ATOMIC_RELAXED);
}

static int chan_source_arm(struct gn_source *source)
{
	struct gn_chan *chan = container_of(source, struct gn_chan, source);

	if (chan_source_ready(source))
		return -EAGAIN;
	return chan->fd >= 0 ? chan->fd : -EOPNOTSUPP;
}

static const struct source_ops chan_source = {.ready = chan_source_ready, .arm = chan_source_arm};

int gn_chan_create(struct gn_ctx *ctx, struct gn_chan **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *p;
	struct gn_chan *chan;
	int rc;

	if (obj_check(ctx, OBJ_CTX))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_chan_create(): out is NULL");
	p = ctx->obj.fabric->provider;
	rc = obj_create(ctx->obj.fabric, OBJ_CHAN, sizeof(*chan), &chan);
	if (rc)
		return rc;
	chan->ctx = ctx;
	chan->fd = chan->wake_fd = chan->timer.fd = -1;
	chan->ev_timer = (struct chan_node){.type = GN_EVENT_TIMER, .about = &chan->obj};
	chan->last = &chan->first;
	chan->ev_wake = (struct chan_node){.type = GN_EVENT_WAKE, .about = &chan->obj};
	source_init(&chan->source, &chan_source);
	gn_mutex_init(&chan->lock);
	rc = p->chan_init(chan);
	if (rc) {
		gn_mutex_fini(&chan->lock);
		obj_destroy(&chan->obj);
		return gn_fail_since(failures_before, rc, "gn_chan_create()");
	}
	obj_hold(&ctx->obj);
	*out = chan;
	return 0;
}

int gn_chan_destroy(struct gn_chan *chan)
{
	int rc;

	if (!chan)
		return 0;
	rc = obj_check_idle(chan, OBJ_CHAN);
	if (rc)
		return rc;
	source_fini(&chan->source);
	chan->obj.fabric->provider->chan_fini(chan);
	gn_mutex_fini(&chan->lock);
	gn_mutex_lock(&chan->obj.fabric->lock);
	chan->obj.fabric->past_counters.events += chan->events;
	gn_mutex_unlock(&chan->obj.fabric->lock);
	obj_release(&chan->ctx->obj);
	obj_destroy(&chan->obj);
	return 0;
}

int gn_chan_fd(const struct gn_chan *chan)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	return chan->fd >= 0 ? chan->fd :
			       gn_fail(-EOPNOTSUPP, "gn_chan_fd(): channels have no fd on %s",
				       chan->obj.fabric->attr.provider);
}

struct gn_source *gn_chan_source(struct gn_chan *chan)
{
	return obj_check(chan, OBJ_CHAN) ? NULL : &chan->source;
}

int gn_chan_wake(struct gn_chan *chan)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	chan_push(chan, &chan->ev_wake);
	return 0;
}

int gn_chan_count(struct gn_chan *chan, enum gn_event_type type)
{
	int n = 0;

	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	gn_mutex_lock(&chan->lock);
	for (const struct chan_node *node = chan->first; node; node = node->next)
		n += node->type == type;
	gn_mutex_unlock(&chan->lock);
	return n;
}

void chan_push_locked(struct gn_chan *chan, struct chan_node *node)
{
	const bool was_empty = !chan->first;

	if (node->queued)
		return;
	node->queued = true;
	node->next = NULL;
	/* The channel's owner reads first without the lock. */
	__atomic_store_n(chan->last, node, __ATOMIC_RELAXED);
	chan->last = &node->next;
	if (was_empty && chan->wake_fd >= 0)
		eventfd_write(chan->wake_fd, 1);
}

void chan_push(struct gn_chan *chan, struct chan_node *node)
{
	if (!chan)
		return;
	gn_mutex_lock(&chan->lock);
	chan_push_locked(chan, node);
	gn_mutex_unlock(&chan->lock);
	source_wake(&chan->source);
}

/* Unlinks the node that *at points to. The lock is held. */
static void chan_unlink_node(struct gn_chan *chan, struct chan_node **at)
{
	struct chan_node *node = *at;
	eventfd_t n;

	__atomic_store_n(at, node->next, __ATOMIC_RELAXED);
	if (!node->next)
		chan->last = at;
	node->queued = false;
	if (!chan->first && chan->wake_fd >= 0)
		eventfd_read(chan->wake_fd, &n);
}

void chan_remove(struct gn_chan *chan, struct chan_node *node)
{
	if (!chan)
		return;
	gn_mutex_lock(&chan->lock);
	for (struct chan_node **at = &chan->first; *at; at = &(*at)->next)
		if (*at == node) {
			chan_unlink_node(chan, at);
			break;
		}
	gn_mutex_unlock(&chan->lock);
}

static void event_set_private(struct gn_event *ev, const uint8_t *data, uint32_t len)
{
	ev->private_len = len;
	memcpy(ev->private_data, data, len);
}

static void event_fill(const struct chan_node *node, struct gn_event *ev)
{
	memset(ev, 0, sizeof(*ev));
	ev->type = node->type;
	ev->status = node->status;
	if (node->about->type == OBJ_CHAN)
		return;
	if (node->about->type == OBJ_CQ) {
		ev->cq = container_of(node->about, struct gn_cq, obj);
	} else if (node->about->type == OBJ_QP) {
		ev->qp = container_of(node->about, struct gn_qp, obj);
		if (node->type == GN_EVENT_ESTABLISHED || node->type == GN_EVENT_REJECTED ||
		    node->type == GN_EVENT_UNREACHABLE)
			event_set_private(ev, ev->qp->private_data, ev->qp->private_len);
	} else if (node->about->type == OBJ_REQ) {
		ev->req = container_of(node->about, struct gn_conn_req, obj);
		ev->listener = ev->req->listener;
		event_set_private(ev, ev->req->private_data, ev->req->private_len);
	}
}

/* Drops the event of a cq that only gn_wait() armed: the user did not request it. */
static bool event_wanted(const struct chan_node *node)
{
	return node->type != GN_EVENT_CQ ||
	       __atomic_exchange_n(&container_of(node->about, struct gn_cq, obj)->user_armed, false,
				   __ATOMIC_RELAXED);
}

/* Takes the first event; with about, the first event of that object. */
static bool chan_take_event(struct gn_chan *chan, const struct obj *about, struct gn_event *ev)
{
	struct chan_node **at = &chan->first;
	bool found = false, shared = false;

	gn_mutex_lock(&chan->lock);
	while (*at && !found) {
		struct chan_node *node = *at;

		if (about && node->about != about) {
			at = &node->next;
			continue;
		}
		chan_unlink_node(chan, at);
		found = event_wanted(node);
		if (found) {
			event_fill(node, ev);
			shared = ev->qp && ev->qp->shared;
		}
	}
	counter_add(&chan->events, found);
	gn_mutex_unlock(&chan->lock);
	/* Another thread may use or destroy a shared qp now. */
	if (found && ev->type == GN_EVENT_ESTABLISHED && !shared)
		chan->obj.fabric->provider->qp_adopt(ev->qp);
	return found;
}

static int chan_next_of(struct gn_chan *chan, const struct obj *about, struct gn_event *out)
{
	if (chan_take_event(chan, about, out))
		return 0;
	chan->obj.fabric->provider->chan_pump(chan);
	return chan_take_event(chan, about, out) ? 0 : -EAGAIN;
}

int gn_chan_next(struct gn_chan *chan, struct gn_event *out)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_chan_next(): out is NULL");
	return chan_next_of(chan, NULL, out); /* an empty channel is not a failure for gn_error() */
}

int gn_chan_timer(struct gn_chan *chan, uint64_t deadline_ns)
{
	const unsigned failures_before = gn_fail_count();
	int rc;

	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	chan_remove(chan, &chan->ev_timer);
	rc = chan->obj.fabric->provider->chan_timer(chan, deadline_ns ? deadline_ns : GN_FOREVER);
	return rc ? gn_fail_since(failures_before, rc, "gn_chan_timer()") : 0;
}

static int chan_wait_of(struct gn_chan *chan, const struct obj *about, uint64_t deadline_ns,
			const char *reason, struct gn_event *out)
{
	struct gn_wait_item item = gn_wait_on(&chan->source);
	int rc;

	for (;;) {
		rc = chan_next_of(chan, about, out);
		if (rc != -EAGAIN)
			return rc;
		rc = exec_wait(&item, 1, deadline_ns, reason);
		if (rc < 0)
			return exec_wait_failed(rc, deadline_ns, reason);
		/*
		 * Events of other objects keep the channel ready, but the caller cannot take them.
		 */
		if (about && __atomic_load_n(&chan->first, __ATOMIC_RELAXED))
			gn_sleep_us(PENDING_EVENTS_SLEEP_US);
	}
}

int gn_chan_wait(struct gn_chan *chan, uint64_t deadline_ns, struct gn_event *out)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_chan_wait(): out is NULL");
	return chan_wait_of(chan, NULL, deadline_ns, "channel event", out);
}

int gn_connect_wait(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts,
		    struct gn_event *reply)
{
	struct gn_event ev;
	int rc = gn_connect(qp, addr, opts);

	if (rc)
		return rc;
	/* The provider ends the attempt after opts->timeout_us with UNREACHABLE. */
	do {
		rc = chan_wait_of(qp->chan, &qp->obj, GN_FOREVER, "connection", &ev);
	} while (rc == -EINTR);
	if (rc)
		return rc;
	if (reply)
		*reply = ev;
	switch (ev.type) {
	case GN_EVENT_ESTABLISHED:
		return 0;
	case GN_EVENT_UNREACHABLE:
		return gn_fail(ev.status, "cannot connect to %s: %s%s%.*s", addr,
			       gn_strerror(ev.status), ev.private_len ? "; " : "",
			       (int)ev.private_len, (const char *)ev.private_data);
	default:
		if (ev.status == -EACCES)
			return gn_fail(-EACCES, "the server at %s does not accept other users",
				       addr);
		return gn_fail(-ECONNREFUSED, "cannot connect to %s: the server refused", addr);
	}
}

static const char *const event_names[GN_EVENTS] = {
	[GN_EVENT_CQ] = "completion",
	[GN_EVENT_CQ_OVERRUN] = "cq overrun",
	[GN_EVENT_CONNECT_REQUEST] = "connect request",
	[GN_EVENT_ESTABLISHED] = "established",
	[GN_EVENT_REJECTED] = "rejected",
	[GN_EVENT_UNREACHABLE] = "unreachable",
	[GN_EVENT_DISCONNECTED] = "disconnected",
	[GN_EVENT_WAKE] = "wake",
	[GN_EVENT_TIMER] = "timer",
};

const char *gn_event_str(enum gn_event_type type)
{
	return (unsigned)type < GN_EVENTS ? event_names[type] : "unknown event";
}
