/* SPDX-License-Identifier: MIT */
/*
 * Event channels: a queue of events that live in the objects they are about, so that queueing one
 * never fails, and destroying an object takes its events along.
 */
#include "base/fail.h"
#include "fabric/fabric.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

static bool source_ready(struct gn_source *source)
{
	struct gn_chan *chan = container_of(source, struct gn_chan, source);

	chan->obj.fabric->provider->chan_pump(chan);
	return __atomic_load_n(&chan->first, __ATOMIC_RELAXED);
}

static int source_arm(struct gn_source *source)
{
	struct gn_chan *chan = container_of(source, struct gn_chan, source);

	if (source_ready(source))
		return -EAGAIN;
	return chan->fd >= 0 ? chan->fd : -EOPNOTSUPP;
}

static const struct source_ops chan_source = {.ready = source_ready, .arm = source_arm};

int gn_chan_create(struct gn_ctx *ctx, struct gn_chan **out)
{
	const unsigned said = gn_fail_count();
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
		return gn_fail_since(said, rc, "gn_chan_create()");
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
	chan->obj.fabric->gone.events += chan->events;
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
	/* Its owner looks at the first one without the lock. */
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
static void unlink_node(struct gn_chan *chan, struct chan_node **at)
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
			unlink_node(chan, at);
			break;
		}
	gn_mutex_unlock(&chan->lock);
}

static void fill_private(struct gn_event *ev, const uint8_t *data, uint32_t len)
{
	ev->private_len = len;
	memcpy(ev->private_data, data, len);
}

static void fill_event(const struct chan_node *node, struct gn_event *ev)
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
			fill_private(ev, ev->qp->private_data, ev->qp->private_len);
	} else if (node->about->type == OBJ_REQ) {
		ev->req = container_of(node->about, struct gn_conn_req, obj);
		ev->listener = ev->req->listener;
		fill_private(ev, ev->req->private_data, ev->req->private_len);
	}
}

/* An event of a cq that only gn_wait() had armed is not the user's business. */
static bool wanted(const struct chan_node *node)
{
	return node->type != GN_EVENT_CQ ||
	       __atomic_exchange_n(&container_of(node->about, struct gn_cq, obj)->user_armed, false,
				   __ATOMIC_RELAXED);
}

/* The first event, or with about the first one about that. */
static bool take(struct gn_chan *chan, const struct obj *about, struct gn_event *ev)
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
		unlink_node(chan, at);
		found = wanted(node);
		if (found) {
			fill_event(node, ev);
			shared = ev->qp && ev->qp->shared;
		}
	}
	counter_add(&chan->events, found);
	gn_mutex_unlock(&chan->lock);
	/* Any thread may use a shared qp, and even destroy it meanwhile. */
	if (found && ev->type == GN_EVENT_ESTABLISHED && !shared)
		chan->obj.fabric->provider->qp_adopt(ev->qp);
	return found;
}

static int next_about(struct gn_chan *chan, const struct obj *about, struct gn_event *out)
{
	if (take(chan, about, out))
		return 0;
	chan->obj.fabric->provider->chan_pump(chan);
	return take(chan, about, out) ? 0 : -EAGAIN;
}

int gn_chan_next(struct gn_chan *chan, struct gn_event *out)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_chan_next(): out is NULL");
	return next_about(chan, NULL, out); /* "none" is an answer, and no failure to be told */
}

int gn_chan_timer(struct gn_chan *chan, uint64_t deadline_ns)
{
	const unsigned said = gn_fail_count();
	int rc;

	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	chan_remove(chan, &chan->ev_timer);
	rc = chan->obj.fabric->provider->chan_timer(chan, deadline_ns ? deadline_ns : GN_FOREVER);
	return rc ? gn_fail_since(said, rc, "gn_chan_timer()") : 0;
}

static int wait_about(struct gn_chan *chan, const struct obj *about, uint64_t deadline_ns,
		      const char *reason, struct gn_event *out)
{
	struct gn_wait_item item = gn_wait_on(&chan->source);
	int rc;

	for (;;) {
		rc = next_about(chan, about, out);
		if (rc != -EAGAIN)
			return rc;
		rc = exec_wait(&item, 1, deadline_ns, reason);
		if (rc < 0)
			return exec_wait_failed(rc, deadline_ns, reason);
		/* Others' events keep the channel ready, and are not ours to take. */
		if (about && __atomic_load_n(&chan->first, __ATOMIC_RELAXED))
			gn_sleep_us(OTHERS_NAP_US);
	}
}

int gn_chan_wait(struct gn_chan *chan, uint64_t deadline_ns, struct gn_event *out)
{
	if (obj_check(chan, OBJ_CHAN))
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_chan_wait(): out is NULL");
	return wait_about(chan, NULL, deadline_ns, "an event of a channel", out);
}

int gn_connect_wait(struct gn_qp *qp, const char *addr, const struct gn_conn_opts *opts,
		    struct gn_event *reply)
{
	struct gn_event ev;
	int rc = gn_connect(qp, addr, opts);

	if (rc)
		return rc;
	/* The provider bounds the attempt by opts->timeout_us and then says UNREACHABLE. */
	do {
		rc = wait_about(qp->chan, &qp->obj, GN_FOREVER, "a connection to be made", &ev);
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
		return gn_fail(-ECONNREFUSED, "cannot connect to %s: it was refused there", addr);
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
