/* SPDX-License-Identifier: MIT */
/*
 * Cases 79 and 80: connections that are accepted and destroyed by other threads than the owner of
 * their cq and channel. Side A is the owner; threads of A accept and destroy. B is the clients.
 */
#include <errno.h>
#include <string.h>

#include "conform.h"

#define DOOR	   7u
#define GUESTS	   60u /* connections of a round */
#define RECVS	   3u
#define MSG_BYTES  16u
#define QUEUE	   64u
#define ECHO_ID	   99u
#define HURRY_US   5000u /* a client that waits no longer than this */
#define PATIENT_US 30000000u

/* How the owner waits for its guests. */
enum manner { POLLING, WAITING, ARMED };

static const struct cf_round {
	enum manner manner;
	bool apart; /* the cq has a channel of its own */
} rounds[] = {
	{POLLING, false}, {WAITING, false}, {ARMED, false}, {WAITING, true}, {ARMED, true},
};

#define ROUNDS (sizeof(rounds) / sizeof(*rounds))

/* What becomes of a client of case 80, which says so itself: one in a hurry may never arrive. */
enum luck { REJECTED = 1, LATE, UNMET, LAST };

/* One connection at the server: the acceptor's until gn_accept(), then the owner's. */
struct guest {
	struct gn_qp *qp;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *mr;
	unsigned established, got, flushed, gone;
	bool left;
	bool accepted; /* atomic */
};

struct house {
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_cq *cq;
	struct gn_chan *chan, *cq_chan, *door;
	struct gn_queue *leaving; /* from the owner to the cleaner */
	struct gn_thread *acceptor, *cleaner;
	struct guest guest[GUESTS];
	unsigned guests; /* to come */
	bool luck;	 /* case 80 */
	unsigned left;
	bool acceptor_done; /* atomic */
	bool stop;	    /* atomic: the cleaner's end */
	uint64_t deadline_ns;
	int acceptor_rc, cleaner_rc; /* once they have ended */
};

/* ---- threads of A's ---- */

/* Everything a connection has of its own, as a server would make it. */
static int make_guest(struct house *house, struct guest *guest)
{
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = house->cq,
				  .recv_cq = house->cq,
				  .chan = house->chan,
				  .max_recv_wr = RECVS,
				  .user = guest};
	struct gn_sge sge = {.len_bytes = MSG_BYTES};
	struct gn_recv_wr wr = {.sge = &sge, .n_sge = 1};
	int rc = gn_pd_create(house->ctx, &guest->pd);

	rc = rc ?: gn_mem_alloc(house->fabric, GN_PAGE, GN_REMOTE_WRITE, &guest->mem);
	rc = rc	   ?:
		     gn_mr_register(guest->pd, guest->mem, 0, GN_PAGE,
				    GN_LOCAL_WRITE | GN_REMOTE_WRITE, &guest->mr);
	rc = rc ?: gn_qp_create(guest->pd, &opts, &guest->qp);
	if (rc)
		return rc;
	sge.addr = gn_mr_addr(guest->mr);
	sge.lkey = gn_mr_lkey(guest->mr);
	for (; wr.id < RECVS && !rc; wr.id++)
		rc = gn_post_recv(guest->qp, &wr, NULL);
	return rc;
}

static int destroy_guest(struct guest *guest)
{
	int rc, first = 0;

	while ((rc = gn_qp_destroy_try(guest->qp)) == -EAGAIN)
		gn_yield();
	first = rc;
	rc = gn_mr_deregister(guest->mr);
	first = first ?: rc;
	rc = gn_mem_free(guest->mem);
	first = first ?: rc;
	rc = gn_pd_destroy(guest->pd);
	return first ?: rc;
}

static int accept_guest(struct house *house, struct gn_conn_req *req, struct guest *guest)
{
	struct gn_conn_opts conn = {.size = sizeof(conn), .private_len = sizeof(struct gn_remote)};
	struct gn_remote remote;
	int rc = make_guest(house, guest);

	rc = rc ?: gn_mr_remote(guest->mr, &remote);
	if (rc) {
		gn_reject(req, NULL, 0);
		return rc;
	}
	conn.private_data = &remote;
	return gn_accept(req, guest->qp, &conn);
}

/* Nothing of a qp that was not accepted is the owner's. */
static int try_luck(struct house *house, struct gn_conn_req *req, struct guest *guest,
		    enum luck luck)
{
	int rc;

	if (luck == REJECTED)
		return gn_reject(req, NULL, 0);
	if (luck == UNMET) {
		rc = make_guest(house, guest);
		rc = rc ?: destroy_guest(guest);
		return gn_reject(req, NULL, 0) ?: rc;
	}
	gn_sleep_us(2 * HURRY_US); /* the client has left, as likely as not */
	rc = accept_guest(house, req, guest);
	if (rc)
		return destroy_guest(guest);
	__atomic_store_n(&guest->accepted, true, __ATOMIC_RELEASE);
	return 0;
}

/* Requests come until they are as many as the guests. */
static void acceptor_main(void *arg)
{
	struct house *house = arg;
	struct gn_event ev;
	int rc = 0;

	for (unsigned i = 0; i < house->guests && !rc;) {
		rc = gn_chan_wait(house->door, house->deadline_ns, &ev);
		if (rc == -EINTR) {
			rc = 0;
			continue;
		}
		if (!rc && ev.type != GN_EVENT_CONNECT_REQUEST)
			rc = -EPROTO;
		if (!rc && house->luck && ev.private_data[0] == LAST) {
			rc = gn_reject(ev.req, NULL, 0);
			break;
		}
		if (!rc && house->luck)
			rc = try_luck(house, ev.req, &house->guest[i],
				      (enum luck)ev.private_data[0]);
		else if (!rc)
			rc = accept_guest(house, ev.req, &house->guest[i]);
		i++;
	}
	house->acceptor_rc = rc;
	__atomic_store_n(&house->acceptor_done, true, __ATOMIC_RELEASE);
}

static void cleaner_main(void *arg)
{
	struct house *house = arg;
	struct gn_wait_item item = gn_wait_on(gn_queue_source(house->leaving));

	for (;;) {
		const bool stop = __atomic_load_n(&house->stop, __ATOMIC_ACQUIRE);
		struct guest *guest = gn_queue_pop(house->leaving);
		int rc;

		if (!guest && stop)
			return;
		if (!guest) {
			gn_wait(&item, 1, gn_deadline_us(1000), "a guest that leaves");
			continue;
		}
		rc = destroy_guest(guest);
		house->cleaner_rc = house->cleaner_rc ?: rc;
	}
}

/* ---- the owner ---- */

static bool take_wc(struct cf *cf, struct house *house, const struct gn_wc *wc)
{
	struct guest *guest = gn_qp_user(wc->qp);
	struct gn_sge sge;
	struct gn_wr wr;

	CHECK(guest >= house->guest && guest < house->guest + GUESTS && guest->qp == wc->qp,
	      "a completion of no guest");
	CHECK(!guest->left, "a completion of a qp that was detached");
	if (wc->id == ECHO_ID)
		return true; /* flushed with a client that has left */
	if (wc->status != GN_WC_OK) {
		CHECK(wc->status == GN_WC_FLUSHED, "%s", gn_wc_status_str(wc->status));
		guest->flushed++;
	} else {
		CHECK_INT(wc->op, GN_OP_RECV_WRITE_IMM);
		guest->got++;
		sge = (struct gn_sge){gn_mr_addr(guest->mr), MSG_BYTES, gn_mr_lkey(guest->mr)};
		gn_wr_send(&wr, ECHO_ID, &sge, 0);
		CHECK_INT(gn_post_send(guest->qp, &wr, NULL), 0);
	}
	CHECK(guest->got + guest->flushed <= RECVS, "%u completions of %u receives",
	      guest->got + guest->flushed, RECVS);
	return true;
}

static bool take_event(struct cf *cf, struct house *house, const struct gn_event *ev)
{
	struct guest *guest;

	if (ev->type == GN_EVENT_CQ)
		return true;
	guest = ev->qp ? gn_qp_user(ev->qp) : NULL;
	CHECK(guest >= house->guest && guest < house->guest + GUESTS && guest->qp == ev->qp,
	      "%s of no guest", gn_event_str(ev->type));
	CHECK(!guest->left, "%s of a qp that was detached", gn_event_str(ev->type));
	if (ev->type == GN_EVENT_ESTABLISHED)
		guest->established++;
	else if (ev->type == GN_EVENT_DISCONNECTED ||
		 (ev->type == GN_EVENT_UNREACHABLE && house->luck))
		guest->gone++;
	else
		CHECK(false, "%s", gn_event_str(ev->type));
	CHECK(guest->established == (ev->type != GN_EVENT_UNREACHABLE) && guest->gone <= 1,
	      "%s: %u ESTABLISHED, %u ends", gn_event_str(ev->type), guest->established,
	      guest->gone);
	return true;
}

/* Those of whom everything has come are detached, and another thread does the rest. */
static bool see_out(struct cf *cf, struct house *house)
{
	for (struct guest *guest = house->guest; guest < house->guest + house->guests; guest++) {
		if (guest->left || !guest->gone || guest->got + guest->flushed < RECVS)
			continue;
		CHECK(house->luck || guest->got == 1, "%u messages of a client that sent one",
		      guest->got);
		guest->left = true;
		house->left++;
		CHECK_INT(gn_qp_detach(guest->qp), 0);
		CHECK_INT(gn_queue_push(house->leaving, guest), 0);
	}
	return true;
}

static bool take_all(struct cf *cf, struct house *house, bool *any)
{
	struct gn_chan *const chans[] = {house->chan, house->cq_chan};
	struct gn_event ev;
	struct gn_wc wc[4];
	int n, rc = 0;

	*any = false;
	while ((n = gn_cq_poll(house->cq, wc, 4)) > 0) {
		*any = true;
		for (int i = 0; i < n; i++)
			CHECK(take_wc(cf, house, &wc[i]));
	}
	CHECK_INT(n, 0);
	for (unsigned i = 0; i < (chans[0] == chans[1] ? 1u : 2u); i++) {
		while (!(rc = gn_chan_next(chans[i], &ev))) {
			*any = true;
			CHECK(take_event(cf, house, &ev));
		}
		CHECK_INT(rc, -EAGAIN);
	}
	return see_out(cf, house);
}

/* Only what comes wakes it: the clients wait for the owner meanwhile. */
static bool sleep_once(struct cf *cf, struct house *house, enum manner manner)
{
	struct gn_wait_item items[2] = {gn_wait_on(gn_chan_source(house->chan)),
					gn_wait_on(gn_cq_source(house->cq))};
	bool any;
	int rc;

	if (manner == POLLING) {
		gn_yield();
		return true;
	}
	if (manner == ARMED) {
		items[1] = gn_wait_on(gn_chan_source(house->cq_chan));
		CHECK_INT(gn_cq_arm(house->cq, false), 0);
		CHECK(take_all(cf, house, &any));
		if (any || house->left == house->guests)
			return true;
	}
	rc = gn_wait(items, 2, cf_deadline(cf), "a guest");
	CHECK(rc >= 0 || rc == -EINTR, "nothing wakes the owner: %s", gn_strerror(rc));
	return true;
}

static bool serve(struct cf *cf, struct house *house, enum manner manner)
{
	bool any;

	while (house->left < house->guests) {
		CHECK(gn_now_ns() < house->deadline_ns, "%u of %u guests have left", house->left,
		      house->guests);
		CHECK(take_all(cf, house, &any));
		if (!any && house->left < house->guests)
			CHECK(sleep_once(cf, house, manner));
	}
	return true;
}

/* Until all are gone whom the acceptor, in the end, has let in. */
static bool serve_lucky(struct cf *cf, struct house *house)
{
	unsigned accepted = 0, i = 0;
	bool any;

	while (!__atomic_load_n(&house->acceptor_done, __ATOMIC_ACQUIRE) ||
	       house->left < accepted) {
		CHECK(gn_now_ns() < house->deadline_ns, "%u of %u guests have left", house->left,
		      accepted);
		CHECK(take_all(cf, house, &any));
		if (__atomic_load_n(&house->acceptor_done, __ATOMIC_ACQUIRE))
			for (; i < house->guests; i++)
				accepted += house->guest[i].accepted;
		if (!any)
			gn_yield();
	}
	return cf_expect_none(cf, house->cq);
}

/* What the threads use must outlive them, whatever the owner has found. */
static bool end_threads(struct cf *cf, struct house *house)
{
	int rc = house->acceptor ? gn_thread_join(house->acceptor) : 0;

	__atomic_store_n(&house->stop, true, __ATOMIC_RELEASE);
	rc = (house->cleaner ? gn_thread_join(house->cleaner) : 0) ?: rc;
	gn_queue_destroy(house->leaving);
	CHECK_INT(rc, 0);
	CHECK_INT(house->acceptor_rc, 0);
	CHECK_INT(house->cleaner_rc, 0);
	return true;
}

static bool open_house(struct cf *cf, struct house *house, unsigned number, bool apart)
{
	char addr[CF_ADDR_MAX];

	*house = (struct house){
		.fabric = cf->fabric, .ctx = cf->ctx, .deadline_ns = cf_deadline(cf)};
	CHECK((house->chan = house->cq_chan = cf_make_chan(cf)));
	if (apart)
		CHECK((house->cq_chan = cf_make_chan(cf)));
	CHECK((house->door = cf_make_chan(cf)));
	CHECK((house->cq = cf_make_cq(cf, GUESTS * (RECVS + 2), house->cq_chan)));
	CHECK(cf_make_listener(cf, cf_addr(cf, CF_A, DOOR + number, addr), house->door));
	return true;
}

/* ---- 79: accepted and destroyed by others; 80: not accepted ---- */

static bool round_a(struct cf *cf, unsigned number, bool luck)
{
	struct house *house = gn_alloc(sizeof(*house), 0);
	bool ok;

	CHECK(house, "no memory");
	ok = open_house(cf, house, number, rounds[number].apart);
	if (ok) {
		house->guests = luck ? GUESTS : (unsigned)cf_count(cf, GUESTS);
		house->luck = luck;
		ok = !gn_queue_create(QUEUE, &house->leaving) &&
		     !gn_thread_start("cleaner", cleaner_main, house, &house->cleaner) &&
		     !gn_thread_start("acceptor", acceptor_main, house, &house->acceptor);
		ok = ok && cf_sync(cf) &&
		     (luck ? serve_lucky(cf, house) : serve(cf, house, rounds[number].manner));
		ok = end_threads(cf, house) && ok;
	}
	gn_free(house);
	return ok && cf_sync(cf);
}

struct client {
	struct gn_qp *qp;
	struct gn_cq *cq;
	struct gn_mr *mr;
	char addr[CF_ADDR_MAX];
};

static bool client_init(struct cf *cf, struct client *client, unsigned number)
{
	struct gn_mem *mem;

	CHECK((client->cq = cf_make_cq(cf, 64, cf->chan)));
	CHECK((mem = cf_make_mem(cf, GN_PAGE, 0)));
	CHECK((client->mr = cf_make_mr(cf, cf->pd, mem, GN_LOCAL_WRITE)));
	cf_addr(cf, CF_A, DOOR + number, client->addr);
	return cf_sync(cf);
}

static bool client_qp(struct cf *cf, struct client *client)
{
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .type = GN_QP_RC,
				  .send_cq = client->cq,
				  .recv_cq = client->cq,
				  .chan = cf->chan};

	CHECK((client->qp = cf_make_qp(cf, cf->pd, &opts)));
	return true;
}

/* One connection: a message, the answer, and the end in one of two ways. */
static bool visit(struct cf *cf, struct client *client, bool disconnects)
{
	const struct gn_conn_opts patient = {.size = sizeof(patient), .timeout_us = PATIENT_US};
	struct gn_sge sge = {gn_mr_addr(client->mr), MSG_BYTES, gn_mr_lkey(client->mr)};
	struct gn_recv_wr recv = {.id = 1, .sge = &sge, .n_sge = 1};
	struct gn_remote remote;
	struct gn_event ev;
	struct gn_wc wc;
	struct gn_wr wr;

	CHECK(client_qp(cf, client));
	CHECK_INT(gn_post_recv(client->qp, &recv, NULL), 0);
	CHECK_INT(gn_connect_wait(client->qp, client->addr, &patient, &ev), 0);
	memcpy(&remote, ev.private_data, sizeof(remote));
	gn_wr_rdma(&wr, GN_OP_WRITE_IMM, 2, &sge, &remote, 0, GN_SIGNALED);
	CHECK(cf_post(cf, client->qp, &wr));
	for (unsigned i = 0; i < 2; i++) {
		CHECK(cf_poll_one(cf, client->cq, &wc));
		CHECK(wc.status == GN_WC_OK, "%s", gn_wc_status_str(wc.status));
	}
	if (disconnects) {
		CHECK_INT(gn_disconnect(client->qp), 0);
		CHECK(cf_expect_event(cf, cf->chan, GN_EVENT_DISCONNECTED, NULL));
	}
	return cf_destroy(cf, client->qp);
}

static bool beside_a(struct cf *cf)
{
	for (unsigned i = 0; i < ROUNDS; i++)
		CHECK(round_a(cf, i, false));
	return true;
}

static bool beside_b(struct cf *cf)
{
	struct client client;

	for (unsigned i = 0; i < ROUNDS; i++) {
		CHECK(client_init(cf, &client, i));
		for (unsigned k = 0; k < cf_count(cf, GUESTS); k++)
			CHECK(visit(cf, &client, k % 2));
		CHECK(cf_sync(cf));
	}
	return true;
}

static bool unmet_a(struct cf *cf)
{
	return round_a(cf, 0, true);
}

static bool unmet_b(struct cf *cf)
{
	const unsigned clients = (unsigned)cf_count(cf, GUESTS);
	struct client client;

	CHECK(client_init(cf, &client, 0));
	for (unsigned k = 1; k <= clients; k++) {
		const uint8_t luck = k == clients ? LAST : (uint8_t)(REJECTED + k % 3);
		const struct gn_conn_opts opts = {
			.size = sizeof(opts),
			.private_data = &luck,
			.private_len = 1,
			.timeout_us = luck == LATE ? HURRY_US : PATIENT_US,
		};
		struct gn_event ev;
		int rc;

		CHECK(client_qp(cf, &client));
		rc = gn_connect_wait(client.qp, client.addr, &opts, &ev);
		if (luck != LATE)
			CHECK(rc == -ECONNREFUSED && ev.type == GN_EVENT_REJECTED, "%s",
			      gn_strerror(rc));
		CHECK(cf_destroy(cf, client.qp));
	}
	return cf_sync(cf);
}

const struct cf_case cf_cases_beside[] = {
	{79, "accepted and destroyed by other threads", beside_a, beside_b, 0, 0},
	{80, "another thread's qp that is not accepted", unmet_a, unmet_b, 0, 0},
	{0},
};
