/* SPDX-License-Identifier: MIT */
/*
 * Abandoned calls: how a handler learns that its caller stopped waiting. A client cancels a call by
 * writing the number of the call's message into the abandoned array behind its request slots; a
 * request carries the time left until its deadline; and the connection may break.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/fastpath.h"

#define CHECK_INTERVAL_NS 1000000u /* between two checks of watched requests */

/* 0: the call has no deadline, or its start was not timed. */
static uint64_t request_deadline(const struct gn_rpc_request *r)
{
	const uint64_t begin_ns = __atomic_load_n(&r->begin_ns, __ATOMIC_RELAXED);

	return r->left_us && begin_ns ? begin_ns + r->left_us * 1000ull : 0;
}

static bool request_expired(const struct gn_rpc_request *r, uint64_t now_ns)
{
	const uint64_t deadline_ns = request_deadline(r);

	return deadline_ns && now_ns >= deadline_ns;
}

enum gn_rpc_caller gn_rpc_request_state(const struct gn_rpc_request *r)
{
	if (__atomic_load_n(&r->conn->dead, __ATOMIC_RELAXED))
		return GN_RPC_CALLER_GONE;
	if (request_expired(r, gn_now_ns()))
		return GN_RPC_CALLER_EXPIRED;
	return rpc_conn_abandoned(r->conn, r->index, r->number) ? GN_RPC_CALLER_CANCELED :
								  GN_RPC_CALLER_WAITS;
}

/* ---- notification ---- */

void rpc_abandon_unregister(struct gn_rpc_request *r)
{
	struct rpc_abandon *a = &r->abandon;

	if (!a->prev)
		return;
	*a->prev = a->next;
	if (a->next)
		a->next->abandon.prev = a->prev;
	*a = (struct rpc_abandon){0};
}

int gn_rpc_request_on_abandon(struct gn_rpc_request *r, gn_rpc_abandon_fn *fn, void *arg)
{
	struct rpc_thread *t = r->conn->thread;

	if (!exec_is_owner(t->id))
		return gn_fail(-EPERM, "gn_rpc_request_on_abandon(): only the thread that ran the "
				       "handler may call it");
	if ((r->is.state != RPC_REQ_BUSY && r->is.state != RPC_REQ_RUNNING) ||
	    rpc_request_answered(r))
		return gn_fail(-EINVAL,
			       "gn_rpc_request_on_abandon(): the request is answered already");
	rpc_abandon_unregister(r);
	if (!fn)
		return 0;
	/* so that rpc_request_release() runs when the request is answered */
	rpc_request_copy_out(r);
	if (!r->begin_ns)
		__atomic_store_n(&r->begin_ns, gn_now_ns(), __ATOMIC_RELAXED);
	r->abandon = (struct rpc_abandon){.fn = fn, .arg = arg, .next = t->watched};
	r->abandon.prev = &t->watched;
	if (t->watched)
		t->watched->abandon.prev = &r->abandon.next;
	t->watched = r;
	t->watch_ns = 0;
	link_loop_force_maintain(&t->loop);
	return 0;
}

/* fn may answer this request and other watched ones. */
static void notify_abandoned(struct gn_rpc_request *r, enum gn_rpc_caller state)
{
	const struct rpc_abandon a = r->abandon;

	rpc_abandon_unregister(r);
	a.fn(r, state, a.arg);
}

void rpc_abandon_conn(struct rpc_conn *c)
{
	struct gn_rpc_request *r = c->thread->watched;

	while (r) {
		if (r->conn != c) {
			r = r->abandon.next;
			continue;
		}
		notify_abandoned(r, GN_RPC_CALLER_GONE);
		r = c->thread->watched;
	}
}

static struct gn_rpc_request *find_abandoned(struct rpc_thread *t, enum gn_rpc_caller *state,
					     uint64_t *first_ns)
{
	*first_ns = GN_FOREVER;
	for (struct gn_rpc_request *r = t->watched; r; r = r->abandon.next) {
		const uint64_t deadline_ns = request_deadline(r);

		*state = gn_rpc_request_state(r);
		/* Skip a request whose answer is queued for this thread. */
		if (*state != GN_RPC_CALLER_WAITS &&
		    !__atomic_load_n(&r->is.answered, __ATOMIC_ACQUIRE))
			return r;
		if (deadline_ns && deadline_ns < *first_ns)
			*first_ns = deadline_ns;
	}
	return NULL;
}

/*
 * An awake thread checks every CHECK_INTERVAL_NS. A sleeping thread is woken by a client that
 * abandons a call. A client that abandons many calls at once may send only one wake-up, so the
 * thread checks once more a while later.
 */
void rpc_abandon_check(struct rpc_thread *t, uint64_t now_ns)
{
	struct gn_rpc_request *r;
	enum gn_rpc_caller state;
	uint64_t due_ns;

	if (now_ns < t->watch_ns) {
		if (t->watch_woken && t->watch_ns < t->watch.due_ns)
			link_timer_set(&t->loop.timers, &t->watch, t->watch_ns);
		return;
	}
	while ((r = find_abandoned(t, &state, &due_ns)))
		notify_abandoned(r, state);
	t->watch_ns = now_ns + CHECK_INTERVAL_NS;
	if (t->watch_woken && due_ns > now_ns + 2 * CHECK_INTERVAL_NS)
		due_ns = now_ns + 2 * CHECK_INTERVAL_NS;
	t->watch_woken = false;
	link_timer_set(&t->loop.timers, &t->watch, t->watched ? due_ns : GN_FOREVER);
}

/* The check itself runs in this turn's rpc_abandon_check(). */
void rpc_abandon_due(struct link_timer *timer, uint64_t now_ns)
{
	container_of(timer, struct rpc_thread, watch)->watch_ns = now_ns;
}
