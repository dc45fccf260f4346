/* SPDX-License-Identifier: MIT */
/*
 * The control thread: one handshake per pair of nodes, over an RC connection that carries one hello
 * each way and is then closed. The thread sleeps while there is none.
 *
 *     initiator   connect ─ established ▶ send NEW, CHECK, … ─ receive OK, … ▶ close
 *     acceptor    accept  ─ receive ▶ make the association, tell endpoints ▶ send OK ─ peer closes
 *
 * The acceptor tells its endpoints before it sends the reply, so an endpoint that receives a
 * datagram of an unknown number finds the task in its inbox.
 *
 * If two nodes connect to each other at the same time, the hello of the lower incarnation wins: the
 * other node's is answered with BUSY.
 */
#include <errno.h>
#include <string.h>

#include "base/counter.h"
#include "base/fail.h"
#include "base/list.h"
#include "dgram/handshake.h"

#define HANDSHAKE_NS   1000000000u /* from the connection to the reply */
#define CONNECT_US     1000000u
#define BYE_NS	       100000000u /* for all goodbyes of a node */
#define HELLO_STRIDE   ((uint32_t)((sizeof(struct dgram_hello) + 63) / 64 * 64))
#define CONN_SENDS     1u
#define CONN_RECVS     1u
#define CONN_CQES      (CONN_SENDS + CONN_RECVS + LINK_PROBE_SENDS)
#define CLOSING_FACTOR 2u	   /* connections that are closing, beside those that are open */
#define RESERVED_SHARE 4u	   /* a quarter of max_handshakes is for each side alone */
#define LOOK_UP_NS     1000000000u /* between attempts that the provider refuses at once */
#define FAILING_NS     100000000u  /* before the log says that a node is not reached */
#define BUSY_NS	       1000000000u /* … that it is busy */
#define ID_RECV	       1u
#define ID_SEND	       2u

void dgram_remote_task(struct link_task *task);

static struct gn_dgram_node *node_of(struct link_loop *loop)
{
	return container_of(loop, struct gn_dgram_node, loop);
}

static struct dgram_conn *conn_of(struct link_conn *link)
{
	return container_of(link, struct dgram_conn, link);
}

/* ---- connections ---- */

static void conn_limit_fired(struct link_timer *timer, uint64_t now_ns)
{
	struct dgram_conn *conn = container_of(timer, struct dgram_conn, limit);

	(void)now_ns;
	if (conn->purpose == CONN_VERIFY) {
		gn_mutex_lock(&conn->node->lock);
		dgram_accept_verified(conn, NULL);
		gn_mutex_unlock(&conn->node->lock);
	}
	link_conn_close(&conn->link);
}

static int conn_post_recv(struct dgram_conn *conn)
{
	const struct gn_sge sge = {conn->in, (uint32_t)sizeof(*conn->in),
				   gn_mr_lkey(conn->node->mr)};
	const struct gn_recv_wr wr = {.id = ID_RECV, .sge = &sge, .n_sge = 1};

	return gn_post_recv(conn->link.qp, &wr, NULL);
}

/* Is the handshake begun by others, or for their sake? */
static bool conn_is_foreign(enum dgram_purpose purpose)
{
	return purpose == CONN_ACCEPTED || purpose == CONN_VERIFY;
}

/* A free place; neither others' handshakes nor this node's own can take all of them. */
static uint32_t conn_find_place(const struct gn_dgram_node *node, enum dgram_purpose purpose)
{
	const uint32_t max = node->opts.max_handshakes, share = max - max / RESERVED_SHARE;
	uint32_t place = max, taken = 0;

	for (uint32_t i = 0; i < max; i++) {
		const struct dgram_conn *conn = node->conns[i];

		if (!conn)
			place = min_u32(place, i);
		else
			taken += conn_is_foreign(conn->purpose) == conn_is_foreign(purpose);
	}
	return taken < share ? place : max;
}

void dgram_conn_limit(struct dgram_conn *conn, uint64_t ns)
{
	link_timer_set(&conn->node->loop.timers, &conn->limit, gn_now_ns() + ns);
}

int dgram_conn_create(struct gn_dgram_node *node, enum dgram_purpose purpose,
		      struct dgram_conn **out)
{
	const uint32_t i = conn_find_place(node, purpose);
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .max_send_wr = CONN_SENDS,
				  .max_recv_wr = CONN_RECVS};
	struct dgram_conn *conn;
	uint8_t *at;
	int rc;

	if (i == node->opts.max_handshakes)
		return -ENOSPC;
	conn = gn_alloc(sizeof(*conn), 0);
	if (!conn)
		return -ENOMEM;
	at = (uint8_t *)gn_mem_addr(node->mem) + (size_t)i * 2 * HELLO_STRIDE;
	conn->node = node;
	conn->purpose = purpose;
	conn->index = i;
	conn->in = (struct dgram_hello *)(void *)at;
	conn->out = (struct dgram_hello *)(void *)(at + HELLO_STRIDE);
	link_timer_init(&conn->limit, conn_limit_fired);
	link_conn_init(&node->loop, &conn->link);
	rc = link_conn_create_qp(&conn->link, node->pd, &opts);
	if (!rc)
		rc = conn_post_recv(conn);
	if (rc) {
		gn_qp_destroy(conn->link.qp);
		gn_free(conn);
		return rc;
	}
	node->conns[i] = conn;
	dgram_conn_limit(conn, HANDSHAKE_NS);
	*out = conn;
	return 0;
}

/* ---- hellos ---- */

void dgram_hello_fill(struct gn_dgram_node *node, struct dgram_hello *out, uint32_t kind)
{
	memset(out, 0, sizeof(*out));
	out->magic = DGRAM_MAGIC;
	out->kind = kind;
	memcpy(out->addr, node->addr, sizeof(out->addr));
	if (kind != DGRAM_HELLO_NEW && kind != DGRAM_HELLO_OK)
		return; /* strangers do not learn qkeys */
	out->threads = node->opts.threads;
	out->incarnation = node->incarnation;
	out->flags = node->opts.flags & GN_DGRAM_MAPPED;
	out->datagram_bytes = node->opts.datagram_bytes;
	memcpy(out->thread, node->thread_addr, out->threads * sizeof(*out->thread));
}

void dgram_conn_send(struct dgram_conn *conn)
{
	const struct gn_sge sge = {conn->out, DGRAM_HELLO_BYTES(conn->out->threads),
				   gn_mr_lkey(conn->node->mr)};
	struct gn_wr wr;

	gn_wr_send(&wr, ID_SEND, &sge, GN_SIGNALED);
	if (gn_post_send(conn->link.qp, &wr, NULL))
		link_conn_fail(&conn->link);
}

/* ---- failures ---- */

/* For the log: the text of the call that failed. */
static void conn_keep_failure(struct dgram_conn *conn)
{
	strncpy(conn->failure, gn_error(), sizeof(conn->failure) - 1);
}

void dgram_remote_reached(struct dgram_remote *remote)
{
	remote->failing_ns = 0;
	remote->reported = false;
}

/* A handshake of this node has failed. True: the log shall say so, once until one succeeds. */
static bool remote_failed(struct dgram_remote *remote, const struct dgram_conn *conn)
{
	const uint64_t now_ns = gn_now_ns();

	link_backoff_failed(&remote->backoff);
	if (conn->refused_at_once) /* by the provider, which logs the reason: a name, or memory */
		remote->backoff.at_ns = now_ns + LOOK_UP_NS;
	if (!remote->failing_ns)
		remote->failing_ns = now_ns;
	if (remote->reported || conn->refused_at_once ||
	    __atomic_load_n(&conn->node->stop, __ATOMIC_RELAXED) ||
	    now_ns - remote->failing_ns < (*conn->failure ? FAILING_NS : BUSY_NS))
		return false;
	remote->reported = true;
	return true;
}

static void conn_report(const struct dgram_conn *conn)
{
	const char *addr = conn->addr;
	static const char wait[] = "calls to it wait until their deadlines";

	if (*conn->failure)
		gn_log(GN_LOG_WARN, "dgram: %s; %s", conn->failure, wait);
	else if (conn->reply == DGRAM_HELLO_BUSY)
		gn_log(GN_LOG_WARN,
		       "dgram: %s is busy: not all of its endpoints exist, or one of its limits is "
		       "reached; %s",
		       addr, wait);
	else if (conn->reply == DGRAM_HELLO_REFUSED)
		gn_log(GN_LOG_WARN,
		       "dgram: %s refuses this node: GN_DGRAM_MAPPED or the number of threads "
		       "differs, or it is this node; %s",
		       addr, wait);
	else if (conn->reply == DGRAM_HELLO_OK || (conn->purpose == CONN_NEW && !conn->has_index))
		gn_log(GN_LOG_WARN, "dgram: no call to %s: this node has max_peers; %s", addr,
		       wait);
	else
		gn_log(GN_LOG_WARN, "dgram: %s does not answer; %s", addr, wait);
}

/* ---- initiator ---- */

static int conn_established(struct link_conn *link, const struct gn_event *event)
{
	struct dgram_conn *conn = conn_of(link);
	struct gn_dgram_node *node = conn->node;
	static const uint32_t kinds[] = {[CONN_NEW] = DGRAM_HELLO_NEW,
					 [CONN_CHECK] = DGRAM_HELLO_CHECK,
					 [CONN_VERIFY] = DGRAM_HELLO_VERIFY,
					 [CONN_BYE] = DGRAM_HELLO_BYE};

	if (event->type != GN_EVENT_ESTABLISHED) {
		const int rc = link_connect_error(link, event);

		conn_keep_failure(conn);
		return rc;
	}
	dgram_hello_fill(node, conn->out, kinds[conn->purpose]);
	if (conn->purpose == CONN_NEW && !*node->addr)
		conn->out->incarnation = conn->remote->own_incarnation;
	conn->out->random = gn_random();
	conn->out->epoch = conn->epoch;
	conn->out->attempt = ++node->attempts;
	conn->out->index = conn->assoc_index;
	link_conn_established(link);
	dgram_conn_send(conn);
	return 0;
}

static void remote_connect(struct dgram_remote *remote, uint64_t check_epoch)
{
	struct gn_dgram_node *node = remote->node;
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = CONNECT_US};
	struct dgram_conn *conn;

	if (remote->connecting || !*remote->addr || node->n_endpoints < node->opts.threads ||
	    remote->backoff.at_ns > gn_now_ns())
		return;
	if (dgram_conn_create(node, check_epoch ? CONN_CHECK : CONN_NEW, &conn)) {
		link_backoff_failed(&remote->backoff);
		return;
	}
	conn->remote = remote;
	conn->epoch = check_epoch;
	conn->has_index = !check_epoch && !dgram_index_take(node, &conn->assoc_index);
	remote->connecting = true;
	counter_add(&node->stats.attempts, 1);
	counter_add(&node->stats.checks, check_epoch != 0);
	if (check_epoch || conn->has_index)
		conn->refused_at_once = link_conn_connect(&conn->link, remote->addr, &opts);
	if (conn->refused_at_once || (!check_epoch && !conn->has_index))
		link_conn_close(&conn->link);
	if (!check_epoch && !conn->has_index)
		dgram_evict(node);
}

struct dgram_assoc *dgram_assoc_of_epoch(struct gn_dgram_node *node, uint64_t epoch)
{
	struct dgram_assoc *assoc = node->assocs;

	while (assoc && assoc->epoch != epoch)
		assoc = assoc->next;
	return assoc;
}

static void remote_end_all(struct dgram_remote *remote)
{
	for (struct dgram_assoc *a = remote->node->assocs, *next; a; a = next) {
		next = a->next;
		if (a->remote == remote)
			dgram_assoc_end(a);
	}
}

/* Runs in the control thread: an endpoint has no association, suspects one, or ends it. */
void dgram_remote_task(struct link_task *task)
{
	struct dgram_remote *remote = container_of(task, struct dgram_remote, want);
	struct gn_dgram_node *node = remote->node;
	uint64_t check_epoch, renew_epoch, ended_epoch;
	struct dgram_assoc *ended;

	gn_mutex_lock(&node->lock);
	__atomic_store_n(&remote->wanted, false, __ATOMIC_RELEASE);
	check_epoch = __atomic_exchange_n(&remote->check_epoch, 0, __ATOMIC_ACQ_REL);
	renew_epoch = __atomic_exchange_n(&remote->renew_epoch, 0, __ATOMIC_ACQ_REL);
	ended_epoch = __atomic_exchange_n(&remote->ended_epoch, 0, __ATOMIC_ACQ_REL);
	ended = ended_epoch ? dgram_assoc_of_epoch(node, ended_epoch) : NULL;
	if (__atomic_exchange_n(&remote->gone, false, __ATOMIC_ACQ_REL))
		remote_end_all(remote);
	else if (ended)
		dgram_assoc_end(ended);
	else if (ended_epoch) /* only its end was to be reported: calls that wait ask again */
		check_epoch = 0;
	else if (!remote->assoc || remote->assoc->epoch == renew_epoch)
		remote_connect(remote, 0);
	else if (check_epoch && dgram_assoc_of_epoch(node, check_epoch))
		remote_connect(remote, check_epoch);
	dgram_remote_put(remote);
	dgram_assocs_sweep(node);
	gn_mutex_unlock(&node->lock);
}

bool dgram_peers_allowed(struct gn_dgram_node *node, uint32_t threads)
{
	if (node->n_peers + dgram_assoc_peers(node, threads) <= node->opts.max_peers)
		return true;
	dgram_evict(node);
	return false;
}

/* A reply to NEW. */
static void initiator_new(struct dgram_conn *conn, const struct dgram_hello *hello)
{
	struct gn_dgram_node *node = conn->node;
	struct dgram_remote *remote = conn->remote;
	const uint64_t epoch = dgram_epoch(conn->out->random, hello->random);

	if (hello->kind != DGRAM_HELLO_OK || node->n_endpoints < node->opts.threads ||
	    !dgram_peers_allowed(node, hello->threads) || dgram_assoc_of_epoch(node, epoch))
		return;
	for (struct dgram_assoc *a = node->assocs, *next; a; a = next) {
		next = a->next;
		if (a->remote == remote && a->incarnation != hello->incarnation)
			dgram_assoc_end(a);
	}
	if (!dgram_assoc_add(remote, hello, epoch, true, conn->assoc_index))
		return;
	conn->has_index = false;
	conn->succeeded = true;
}

static void initiator_received(struct dgram_conn *conn, const struct dgram_hello *hello)
{
	struct dgram_assoc *assoc = dgram_assoc_of_epoch(conn->node, conn->epoch);

	conn->reply = hello->kind;
	switch (conn->purpose) {
	case CONN_NEW:
		initiator_new(conn, hello);
		break;
	case CONN_CHECK:
		conn->succeeded = true;
		if (hello->kind == DGRAM_HELLO_UNKNOWN && assoc)
			dgram_assoc_end(assoc);
		else if (hello->kind == DGRAM_HELLO_OK && assoc)
			__atomic_store_n(&assoc->confirmed, true, __ATOMIC_RELAXED);
		break;
	case CONN_VERIFY:
		dgram_accept_verified(conn, hello);
		break;
	default:
		break;
	}
	if (conn->remote && conn->succeeded) {
		conn->remote->backoff = (struct link_backoff){0};
		dgram_remote_reached(conn->remote);
	}
}

/* ---- acceptor ---- */

static void control_request(struct link_loop *loop, struct gn_event *event)
{
	struct gn_dgram_node *node = node_of(loop);
	const struct gn_conn_opts opts = {.size = sizeof(opts)};
	struct dgram_conn *conn;

	if (dgram_conn_create(node, CONN_ACCEPTED, &conn)) {
		counter_add(&node->stats.refused, 1);
		gn_reject(event->req, NULL, 0);
		return;
	}
	if (gn_accept(event->req, conn->link.qp, &opts))
		link_conn_close(&conn->link);
	else
		link_conn_accepted(&conn->link);
}

/* ---- link callbacks ---- */

static void control_completed(struct link_conn *link, const struct gn_wc *wc)
{
	struct dgram_conn *conn = conn_of(link);
	struct gn_dgram_node *node = conn->node;
	struct dgram_hello hello;

	link->active = true;
	if (wc->id != ID_RECV || conn->replied)
		return;
	conn->replied = true;
	gn_mutex_lock(&node->lock);
	dgram_assocs_sweep(node);
	if (dgram_hello_check(conn->in, wc->len_bytes, &hello)) {
		counter_add(&node->stats.refused, 1);
		link_conn_fail(link);
	} else if (conn->purpose != CONN_ACCEPTED) {
		initiator_received(conn, &hello);
		link_conn_fail(link); /* it has served its purpose */
	} else {
		dgram_accept_hello(conn, &hello);
	}
	dgram_assocs_sweep(node);
	gn_mutex_unlock(&node->lock);
}

static void control_conn_failed(struct link_conn *link)
{
	link_conn_close(link);
}

static bool control_destroy(struct link_conn *link)
{
	struct dgram_conn *conn = conn_of(link);
	struct gn_dgram_node *node = conn->node;
	bool report = false;

	link_timer_set(&node->loop.timers, &conn->limit, GN_FOREVER);
	gn_mutex_lock(&node->lock);
	if (conn->remote) {
		conn->remote->connecting = false;
		memcpy(conn->addr, conn->remote->addr, sizeof(conn->addr));
		if (!conn->succeeded)
			report = remote_failed(conn->remote, conn);
		dgram_remote_put(conn->remote);
	}
	if (conn->purpose == CONN_VERIFY)
		dgram_accept_verified(conn, NULL);
	else if (conn->other) /* the verification goes on for nobody */
		conn->other->other = NULL;
	if (conn->has_index)
		node->indices[conn->assoc_index] = false;
	node->conns[conn->index] = NULL;
	gn_mutex_unlock(&node->lock);
	if (report)
		conn_report(conn);
	gn_free(conn->hello);
	gn_free(conn);
	return true;
}

static const struct link_ops control_ops = {
	.completed = control_completed,
	.request = control_request,
	.connect_done = conn_established,
	.conn_failed = control_conn_failed,
	.destroy = control_destroy,
};

/* ---- the thread ---- */

/* Begins goodbyes, as many as there is space for; returns how many associations are left. */
static uint32_t bye_begin(struct gn_dgram_node *node)
{
	const struct gn_conn_opts opts = {.size = sizeof(opts), .timeout_us = BYE_NS / 1000};
	struct dgram_conn *conn;
	uint32_t left = 0;

	for (struct dgram_assoc *a = node->assocs; a; a = a->next) {
		if (a->bye || !*a->remote->addr)
			continue;
		if (dgram_conn_create(node, CONN_BYE, &conn)) {
			left++;
			continue;
		}
		a->bye = true;
		conn->epoch = a->epoch;
		memcpy(conn->addr, a->remote->addr, sizeof(conn->addr));
		if (link_conn_connect(&conn->link, conn->addr, &opts))
			link_conn_close(&conn->link);
	}
	for (uint32_t i = 0; i < node->opts.max_handshakes; i++)
		left += node->conns[i] && node->conns[i]->purpose == CONN_BYE;
	return left;
}

/* The node is destroyed: tells other nodes, which need not find out then. */
static void control_say_bye(struct gn_dgram_node *node)
{
	const uint64_t until_ns = gn_now_ns() + BYE_NS;
	struct link_loop *loop = &node->loop;
	uint32_t left;

	do {
		gn_mutex_lock(&node->lock);
		left = bye_begin(node);
		gn_mutex_unlock(&node->lock);
		link_loop_force_maintain(loop);
		link_loop_maintain(loop);
		if (left)
			link_loop_wait(loop, until_ns, "goodbyes of datagram calls");
	} while (left && gn_now_ns() < until_ns);
}

static void control_main(void *arg)
{
	struct gn_dgram_node *node = arg;
	struct link_loop *loop = &node->loop;

	while (!__atomic_load_n(&node->stop, __ATOMIC_ACQUIRE)) {
		link_loop_run_tasks(loop);
		link_loop_force_maintain(loop);
		link_loop_maintain(loop);
		link_loop_wait(loop, GN_FOREVER, "handshakes of datagram calls");
	}
	link_loop_run_tasks(loop);
	control_say_bye(node);
}

int dgram_control_start(struct gn_dgram_node *node)
{
	const uint32_t n = node->opts.max_handshakes;
	const size_t bytes = (size_t)n * 2 * HELLO_STRIDE;
	const struct link_loop_opts opts = {.fabric = node->fabric,
					    .completions = CLOSING_FACTOR * n * CONN_CQES,
					    .maintain_every = 1};
	int rc = link_loop_open(&node->loop, &control_ops, &opts);

	if (!rc)
		rc = gn_pd_create(node->loop.ctx, &node->pd);
	if (!rc)
		rc = gn_mem_alloc(node->fabric, bytes, 0, &node->mem);
	if (!rc)
		rc = gn_mr_register(node->pd, node->mem, 0, bytes, GN_LOCAL_WRITE, &node->mr);
	node->conns = gn_alloc(n * sizeof(struct dgram_conn *), 0);
	if (!rc && !node->conns)
		rc = gn_fail_text(-ENOMEM, "gn_dgram_node_create(): " NO_MEMORY);
	if (!rc && *node->addr)
		rc = gn_listener_create(node->loop.ctx, node->addr, node->loop.chan,
					node->opts.listener_flags, &node->listener);
	if (!rc)
		rc = gn_thread_start("dgram", control_main, node, &node->thread);
	return rc;
}

static void control_wake(struct link_task *task)
{
	(void)task;
}

void dgram_control_stop(struct gn_dgram_node *node)
{
	if (node->thread) {
		__atomic_store_n(&node->stop, true, __ATOMIC_RELEASE);
		node->wake.run = control_wake;
		link_loop_post(&node->loop, &node->wake);
		gn_thread_join(node->thread);
	}
	gn_listener_destroy(node->listener);
	for (uint32_t i = 0; node->conns && i < node->opts.max_handshakes; i++)
		if (node->conns[i])
			link_conn_close(&node->conns[i]->link);
	link_conns_sweep_all(&node->loop);
	gn_mr_deregister(node->mr);
	gn_mem_free(node->mem);
	gn_pd_destroy(node->pd);
	link_loop_close(&node->loop);
	gn_free(node->conns);
}
