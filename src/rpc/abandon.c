/* SPDX-License-Identifier: MIT */
/*
 * Callers that give up: what a handler can know of it. A client writes the number of a call's
 * message into the word of its index, behind the slots; it says how much time is left for a call
 * when it begins; and its connection may be gone.
 */
#include <errno.h>

#include "base/bits.h"
#include "base/fail.h"
#include "rpc/quick.h"

#define LOOK_NS 1000000u /* between two looks at requests that are watched */

/* 0: it has no deadline, or nobody knows when it came. */
static uint64_t deadline_of(const struct gn_rpc_request *r)
{
	const uint64_t begin_ns = __atomic_load_n(&r->begin_ns, __ATOMIC_RELAXED);

	return r->left_us && begin_ns ? begin_ns + r->left_us * 1000ull : 0;
}

static bool expired(const struct gn_rpc_request *r, uint64_t now_ns)
{
	const uint64_t deadline_ns = deadline_of(r);

	return deadline_ns && now_ns >= deadline_ns;
}

enum gn_rpc_caller gn_rpc_request_state(const struct gn_rpc_request *r)
{
	if (__atomic_load_n(&r->conn->dead, __ATOMIC_RELAXED))
		return GN_RPC_CALLER_GONE;
	if (expired(r, gn_now_ns()))
		return GN_RPC_CALLER_EXPIRED;
	return rpc_conn_given_up(r->conn, r->index, r->number) ? GN_RPC_CALLER_CANCELED :
								 GN_RPC_CALLER_WAITS;
}

/* ---- being told ---- */

void rpc_abandon_forget(struct gn_rpc_request *r)
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
	if ((r->is.state != RPC_BUSY && r->is.state != RPC_RUNNING) || rpc_request_answered(r))
		return gn_fail(-EINVAL,
			       "gn_rpc_request_on_abandon(): the request is answered already");
	rpc_abandon_forget(r);
	if (!fn)
		return 0;
	rpc_request_copy_out(r); /* so that rpc_request_release() is called when it is answered */
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

/* What it is told may answer this request, and others that are watched. */
static void tell_abandoned(struct gn_rpc_request *r, enum gn_rpc_caller state)
{
	const struct rpc_abandon a = r->abandon;

	rpc_abandon_forget(r);
	a.fn(r, state, a.arg);
}

void rpc_abandon_gone(struct rpc_conn *c)
{
	struct gn_rpc_request *r = c->thread->watched;

	while (r) {
		if (r->conn != c) {
			r = r->abandon.next;
			continue;
		}
		tell_abandoned(r, GN_RPC_CALLER_GONE);
		r = c->thread->watched;
	}
}

static struct gn_rpc_request *find_abandoned(struct rpc_thread *t, enum gn_rpc_caller *state,
					     uint64_t *first_ns)
{
	*first_ns = GN_FOREVER;
	for (struct gn_rpc_request *r = t->watched; r; r = r->abandon.next) {
		const uint64_t deadline_ns = deadline_of(r);

		*state = gn_rpc_request_state(r);
		if (*state != GN_RPC_CALLER_WAITS &&
		    !__atomic_load_n(&r->is.answered, __ATOMIC_ACQUIRE)) /* and is on its way */
			return r;
		if (deadline_ns && deadline_ns < *first_ns)
			*first_ns = deadline_ns;
	}
	return NULL;
}

/*
 * A thread that is awake looks every LOOK_NS. One that sleeps is woken by a client that gives up,
 * but not for each call if those are many at once: so it looks once more a while after that.
 */
void rpc_abandon_look(struct rpc_thread *t, uint64_t now_ns)
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
		tell_abandoned(r, state);
	t->watch_ns = now_ns + LOOK_NS;
	if (t->watch_woken && due_ns > now_ns + 2 * LOOK_NS)
		due_ns = now_ns + 2 * LOOK_NS;
	t->watch_woken = false;
	link_timer_set(&t->loop.timers, &t->watch, t->watched ? due_ns : GN_FOREVER);
}

/* The turn that it is due in looks. */
void rpc_abandon_due(struct link_timer *timer, uint64_t now_ns)
{
	container_of(timer, struct rpc_thread, watch)->watch_ns = now_ns;
}
