/* SPDX-License-Identifier: MIT */
/*
 * The data thread: accepts data connections and notices when they end. It carries no data: clients
 * access the slabs by one-sided operations. io/core/attach.h has the rules of the fence.
 */
#include <errno.h>

#include "base/mutant.h"
#include "donor/server.h"

#define PROBE_NS       1000000000u /* between two checks for a dead client */
#define CONN_RECVS     1u
#define MAINTAIN_EVERY 1u

struct donor_conn {
	struct link_conn link;
	struct gn_donor_server *server;
	struct donor_access *access;
	struct donor_session *session; /* NULL: the access is a share */
	uint32_t channel;
};

static struct donor_conn *conn_of(struct link_conn *link)
{
	return container_of(link, struct donor_conn, link);
}

static struct gn_donor_server *server_of(struct link_loop *loop)
{
	return container_of(loop, struct gn_donor_server, loop);
}

/* ---- attaching ---- */

/* What an attach request leads to. */
struct attach {
	struct io_attach request;
	struct io_attach_reply reply;
	struct donor_conn *conn;
};

static void attach_count_refusal(struct gn_donor_server *server, enum io_attach_status status)
{
	switch (status) {
	case IO_ATTACH_BAD_TOKEN:
		server->counts.bad_tokens++;
		break;
	case IO_ATTACH_OLD_GENERATION:
		server->counts.old_generations++;
		break;
	case IO_ATTACH_OTHER_INCARNATION:
		server->counts.other_incarnations++;
		break;
	case IO_ATTACH_BUSY:
		server->counts.busy++;
		break;
	default:
		server->counts.bad_requests++;
	}
}

/* With the lock held. */
static struct donor_access *attach_find(const struct gn_donor_server *server, struct attach *a,
					struct donor_session **session)
{
	struct donor_share *share;
	struct gn_remote remote;

	*session = NULL;
	if (a->request.kind == IO_ATTACH_SESSION) {
		*session = donor_session_by_token(server, a->request.token);
		return *session ? &(*session)->access : NULL;
	}
	share = donor_share_by_token(server, a->request.token);
	if (!share)
		return NULL;
	gn_mr_remote(share->mr, &remote);
	a->reply.offset = remote.offset;
	a->reply.length = remote.length;
	a->reply.key = remote.key;
	a->reply.rights = share->rights;
	return &share->access;
}

static bool attach_within_limits(const struct gn_donor_server *server)
{
	return server->n_conns < server->opts.max_conns &&
	       __atomic_load_n(&server->loop.n_opening, __ATOMIC_RELAXED) <
		       server->opts.max_opening;
}

/*
 * Closes the connections that this one replaces: of its channel, and of earlier clients. True if
 * there are none.
 */
static bool attach_replaces_none(struct donor_access *access, const struct io_attach *request)
{
	const bool takes_over = donor_epoch(request->generation) > access->epoch;
	bool none = true;

	for (uint32_t i = 0; i < IO_CHANNELS_MAX; i++) {
		struct donor_conn *conn = access->channels[i].conn;

		if (!conn || (i != request->channel && !takes_over))
			continue;
		if (mutant("donor-fence-error", MUTANT_ALWAYS))
			gn_qp_error(conn->link.qp);
		else
			link_conn_close(&conn->link);
		none = false;
	}
	return none;
}

/*
 * The fence: true when the qps that this connection replaces are destroyed. With the lock held, but
 * not while qps are destroyed; the count keeps the access meanwhile.
 */
static bool attach_fence(struct gn_donor_server *server, struct donor_access *access,
			 const struct io_attach *request)
{
	if (mutant("donor-no-fence", MUTANT_ALWAYS) || attach_replaces_none(access, request) ||
	    mutant("donor-fence-error", MUTANT_ALWAYS))
		return true;
	access->n_conns++;
	gn_mutex_unlock(&server->lock);
	link_conns_sweep(&server->loop);
	gn_mutex_lock(&server->lock);
	access->n_conns--;
	return attach_replaces_none(access, request);
}

/* Checks the request and reserves the channel. With the lock held. */
static enum io_attach_status attach_check(struct gn_donor_server *server, struct attach *a)
{
	struct donor_session *session;
	struct donor_access *access;
	struct donor_channel *channel;

	if (a->request.incarnation && a->request.incarnation != server->incarnation)
		return IO_ATTACH_OTHER_INCARNATION;
	access = attach_find(server, a, &session);
	if (!access)
		return IO_ATTACH_BAD_TOKEN;
	channel = &access->channels[a->request.channel];
	if ((a->request.generation <= channel->generation ||
	     donor_epoch(a->request.generation) < access->epoch) &&
	    !mutant("donor-old-generation", MUTANT_ALWAYS)) {
		a->reply.generation = donor_epoch(channel->generation) == access->epoch ?
					      channel->generation :
					      access->epoch << IO_EPOCH_SHIFT;
		return IO_ATTACH_OLD_GENERATION;
	}
	if (!attach_fence(server, access, &a->request) || !attach_within_limits(server) ||
	    access->state != ACCESS_OPEN) {
		gn_cond_signal(&server->work); /* the access may have ended */
		return IO_ATTACH_BUSY;
	}
	a->conn = gn_alloc(sizeof(*a->conn), 0);
	if (!a->conn)
		return IO_ATTACH_BUSY;
	*a->conn = (struct donor_conn){.server = server,
				       .access = access,
				       .session = session,
				       .channel = a->request.channel};
	link_conn_init(&server->loop, &a->conn->link);
	a->conn->link.probe_ns = PROBE_NS;
	channel->conn = a->conn;
	access->n_conns++;
	server->n_conns++;
	if (session)
		donor_session_connected(server, session);
	return IO_ATTACH_OK;
}

/* After success the connection is the loop's; otherwise the loop closes it. */
static int attach_accept(struct gn_donor_server *server, struct attach *a, struct gn_event *event)
{
	struct donor_conn *conn = a->conn;
	struct gn_qp_opts qp = {.size = sizeof(qp), .type = GN_QP_RC, .max_recv_wr = CONN_RECVS};
	const struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &a->reply, .private_len = sizeof(a->reply)};
	int rc = link_conn_create_qp(&conn->link, conn->access->pd, &qp);

	if (rc) {
		a->reply.status = IO_ATTACH_BUSY;
		gn_reject(event->req, &a->reply, sizeof(a->reply));
	} else {
		rc = gn_accept(event->req, conn->link.qp, &opts);
	}
	if (rc) {
		link_conn_close(&conn->link);
		return rc;
	}
	link_conn_accepted(&conn->link);
	gn_mutex_lock(&server->lock);
	conn->access->channels[conn->channel].generation = a->request.generation;
	conn->access->epoch = donor_epoch(a->request.generation);
	server->counts.attached++;
	gn_mutex_unlock(&server->lock);
	return 0;
}

static void data_request(struct link_loop *loop, struct gn_event *event)
{
	struct gn_donor_server *server = server_of(loop);
	struct attach a = {.conn = NULL};
	enum io_attach_status status =
		donor_attach_read(event->private_data, event->private_len, &a.request);

	a.reply = (struct io_attach_reply){.magic = IO_ATTACH_MAGIC,
					   .version = IO_ATTACH_VERSION,
					   .incarnation = server->incarnation,
					   .generation = a.request.generation};
	gn_mutex_lock(&server->lock);
	if (!status)
		status = attach_check(server, &a);
	if (status)
		attach_count_refusal(server, status);
	gn_mutex_unlock(&server->lock);
	if (!status) {
		attach_accept(server, &a, event);
		return;
	}
	/* Nothing about a range that is not accessible. */
	a.reply.offset = a.reply.length = a.reply.key = a.reply.rights = 0;
	a.reply.status = (uint16_t)status;
	gn_reject(event->req, &a.reply, sizeof(a.reply));
}

/* ---- link callbacks ---- */

/* Clients send nothing: their operations are one-sided. */
static void data_completed(struct link_conn *link, const struct gn_wc *wc)
{
	(void)wc;
	link_conn_fail(link);
}

static void data_failed(struct link_conn *link)
{
	if (mutant("donor-no-fence", MUTANT_ALWAYS) || mutant("donor-fence-error", MUTANT_ALWAYS))
		return; /* its qp lives on in the error state */
	link_conn_close(link);
}

static bool data_destroy(struct link_conn *link)
{
	struct donor_conn *conn = conn_of(link);
	struct gn_donor_server *server = conn->server;
	struct donor_channel *channel = &conn->access->channels[conn->channel];

	gn_mutex_lock(&server->lock);
	if (channel->conn == conn)
		channel->conn = NULL;
	server->n_conns--;
	conn->access->n_conns--;
	if (conn->session && conn->session->access.state == ACCESS_OPEN)
		donor_session_connected(server, conn->session);
	gn_cond_signal(&server->work);
	gn_mutex_unlock(&server->lock);
	gn_free(conn);
	return true;
}

static const struct link_ops data_ops = {
	.completed = data_completed,
	.request = data_request,
	.conn_failed = data_failed,
	.destroy = data_destroy,
};

/* ---- tasks of other threads ---- */

static void data_close_ended(struct link_task *task)
{
	struct gn_donor_server *server = container_of(task, struct gn_donor_server, close_task);
	struct link_conn *next;

	__atomic_store_n(&server->close_posted, 0, __ATOMIC_SEQ_CST);
	gn_mutex_lock(&server->lock);
	for (struct link_conn *link = server->loop.conns; link; link = next) {
		next = link->next;
		if (conn_of(link)->access->state == ACCESS_ENDING)
			link_conn_close(link);
	}
	gn_mutex_unlock(&server->lock);
}

void donor_data_kick(struct gn_donor_server *server)
{
	if (!__atomic_exchange_n(&server->close_posted, 1, __ATOMIC_SEQ_CST))
		link_loop_post(&server->loop, &server->close_task);
}

static void data_stop(struct link_task *task)
{
	container_of(task, struct gn_donor_server, stop_task)->stop_data = true;
}

void donor_data_stop(struct gn_donor_server *server)
{
	link_loop_post(&server->loop, &server->stop_task);
}

/* ---- thread ---- */

int donor_data_open(struct gn_donor_server *server)
{
	const struct link_loop_opts opts = {
		.fabric = server->fabric,
		.completions = server->opts.max_conns * (LINK_PROBE_SENDS + CONN_RECVS),
		.maintain_every = MAINTAIN_EVERY,
	};

	server->close_task.run = data_close_ended;
	server->stop_task.run = data_stop;
	link_timer_init(&server->tick, donor_tick);
	return link_loop_open(&server->loop, &data_ops, &opts);
}

void donor_data_close(struct gn_donor_server *server)
{
	struct gn_event event;

	gn_listener_destroy(server->listener);
	while (server->loop.chan && !gn_chan_next(server->loop.chan, &event))
		if (event.type == GN_EVENT_CONNECT_REQUEST)
			gn_reject(event.req, NULL, 0);
	link_loop_close(&server->loop);
}

void donor_data_main(void *arg)
{
	struct gn_donor_server *server = arg;
	struct link_loop *loop = &server->loop;

	server->ticked_ns = gn_now_ns();
	link_timer_set(&loop->timers, &server->tick, server->ticked_ns + server->tick_ns);
	while (!server->stop_data) {
		link_loop_run_tasks(loop);
		link_loop_force_maintain(loop);
		link_loop_maintain(loop);
		if (!server->stop_data)
			link_loop_wait(loop, GN_FOREVER, "data connections");
	}
}
