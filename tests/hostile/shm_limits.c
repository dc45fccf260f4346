/* SPDX-License-Identifier: MIT */
/*
 * What a peer may make us hold: half-open connections, requests, descriptors, mappings. The peers are
 * another user's process. docs/limits.md states the limits, and each is asserted here; beside each, an
 * honest peer still gets what it needs.
 */
#include "shm_raw.h"

#include <sys/file.h>
#include <sys/resource.h>

#define ADDR	   "shm:limits-test"
#define NAME	   "limits-test"
#define HALF_OPEN  400u
#define ASKING	   (SHM_REQUESTS_MAX + 40)
#define CONNS	   6u
#define TIB	   (1ull << 40)
#define HOARD_MEMS 1000u /* on each connection */

/* ---- the hostile process ---- */

/* Connects, and says nothing. It is hung up on. */
static void evil_silent(int ctl)
{
	struct pollfd pfd = {.fd = raw_dial(NAME), .events = POLLIN};

	raw_turn_end(ctl);
	assert_int_equal(poll(&pfd, 1, UNIT_PATIENCE_US / 1000), 1);
	assert_int_equal(recv(pfd.fd, &(char){0}, 1, 0), 0);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* Many of them. */
static void evil_half_open(int ctl)
{
	raw_turn_wait(ctl);
	for (unsigned i = 0; i < HALF_OPEN; i++)
		raw_dial(NAME);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* Many that say hello. */
static void evil_asking(int ctl)
{
	struct raw r;

	raw_make(&r);
	for (unsigned i = 0; i < ASKING; i++) {
		r.sock = raw_dial(NAME);
		raw_say(&r, WIRE_HELLO, r.area_fd, r.grants_fd);
	}
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

static void evil_clients(struct raw *r, unsigned n)
{
	int area_fd, grants_fd;

	for (unsigned i = 0; i < n; i++) {
		raw_make(&r[i]);
		r[i].sock = raw_dial(NAME);
		raw_say(&r[i], WIRE_HELLO, r[i].area_fd, r[i].grants_fd);
		raw_take_accept(&r[i], &area_fd, &grants_fd);
	}
}

/*
 * Until the socket takes it, or the connection has ended. -ETOOMANYREFS: too many descriptors are in
 * flight, on all sockets; the victim takes them, also while this socket has space.
 */
static bool evil_sends(const struct raw *r, const struct wire_mems *msg, const int *fds)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct pollfd pfd = {.fd = r->sock, .events = POLLOUT};
	int rc;

	while ((rc = wire_send(r->sock, msg, wire_mems_len(msg->n), fds, (int)msg->n)) == -EAGAIN ||
	       rc == -ETOOMANYREFS) {
		assert_true(gn_now_ns() < deadline_ns);
		poll(&pfd, 1, UNIT_PATIENCE_US / 1000);
	}
	return !rc;
}

/* Sends n mems of this size on a connection, one file under many ids. */
static void evil_hoards(const struct raw *r, int fd, uint64_t size, unsigned n)
{
	struct wire_mems msg = {.head = wire_head(WIRE_MEM)};
	int fds[WIRE_FDS];

	for (unsigned i = 0; i < WIRE_FDS; i++)
		fds[i] = fd;
	for (unsigned sent = 0; sent < n; sent += msg.n) {
		msg.n = n - sent < WIRE_MEMS ? n - sent : WIRE_MEMS;
		for (uint32_t i = 0; i < msg.n; i++)
			msg.mem[i] = (struct wire_mem){.id = sent + i + 1, .size = size};
		if (!evil_sends(r, &msg, fds))
			return;
	}
}

static int evil_sparse(uint64_t size)
{
	const int fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static void evil_mems(int ctl)
{
	struct raw r[CONNS];
	const int fd = evil_sparse(GN_PAGE);

	evil_clients(r, CONNS);
	evil_hoards(&r[0], fd, GN_PAGE, SHM_CONN_MEMS + 1);
	for (unsigned i = 1; i < CONNS; i++)
		evil_hoards(&r[i], fd, GN_PAGE, HOARD_MEMS);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

static void evil_bytes(int ctl)
{
	struct raw r[CONNS];
	const int fd = evil_sparse(TIB);

	evil_clients(r, CONNS);
	evil_hoards(&r[0], fd, TIB, 2);
	for (unsigned i = 1; i < CONNS; i++)
		evil_hoards(&r[i], fd, TIB - 4 * SIDE_BYTES, 1);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

static const struct raw_role roles[] = {
	{"silent", evil_silent}, {"half_open", evil_half_open}, {"asking", evil_asking},
	{"mems", evil_mems},	 {"bytes", evil_bytes},		{NULL, NULL},
};

/* ---- the victim ---- */

struct victim {
	struct side side;
	struct gn_listener *listener;
	struct raw_process evil;
};

static void victim_begin(struct victim *v, const char *role)
{
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&v->side);
	assert_int_equal(
		gn_listener_create(v->side.ctx, ADDR, v->side.chan, GN_ANY_USER, &v->listener), 0);
	raw_start(&v->evil, role);
}

static void victim_end(struct victim *v)
{
	raw_turn_end(v->evil.ctl);
	raw_end(&v->evil);
	assert_int_equal(gn_listener_destroy(v->listener), 0);
	side_free(&v->side);
}

/* Serve until the other process has done its turn. */
static void serve(struct victim *v, struct gn_qp **qps, unsigned *n_qps)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct pollfd pfd = {.fd = v->evil.ctl, .events = POLLIN};

	for (;;) {
		struct gn_event ev;

		assert_true(gn_now_ns() < deadline_ns);
		if (gn_chan_wait(v->side.chan, gn_deadline_us(1000), &ev)) {
			if (poll(&pfd, 1, 0) == 1)
				break;
		} else if (ev.type == GN_EVENT_CONNECT_REQUEST) {
			qps[*n_qps] = side_qp(&v->side, GN_QP_RC);
			assert_int_equal(gn_accept(ev.req, qps[(*n_qps)++], NULL), 0);
		}
	}
	raw_turn_wait(v->evil.ctl);
}

/* A client that says nothing is let go after SHM_HELLO_NS. */
static void half_open_time(void **state)
{
	const unsigned before = cost_fds(getpid()) + 1;
	uint64_t begun_ns, took_ns;
	struct victim v;
	unsigned n = 0;

	(void)state;
	victim_begin(&v, "silent");
	serve(&v, NULL, &n);
	begun_ns = gn_now_ns();
	serve(&v, NULL, &n);
	took_ns = gn_now_ns() - begun_ns;
	print_message("# hung up after %u ms\n", (unsigned)(took_ns / 1000000));
	assert_true(took_ns > SHM_HELLO_NS / 2 && took_ns < 4 * SHM_HELLO_NS);
	victim_end(&v);
	assert_true(cost_fds(getpid()) <= before);
}

/* Says hello, and waits until the victim has a request: whoever dialled before was met before. */
static struct gn_conn_req *honest_asks(struct victim *v, const struct raw *honest)
{
	struct gn_event ev;

	raw_say(honest, WIRE_HELLO, honest->area_fd, honest->grants_fd);
	assert_int_equal(gn_chan_wait(v->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_CONNECT_REQUEST);
	return ev.req;
}

static void honest_gets_in(struct victim *v, struct raw *honest, struct gn_conn_req *req)
{
	struct gn_qp *qp = side_qp(&v->side, GN_QP_RC);
	int area_fd, grants_fd;

	assert_int_equal(gn_accept(req, qp, NULL), 0);
	raw_take_accept(honest, &area_fd, &grants_fd);
	close(area_fd);
	close(grants_fd);
	raw_free(honest);
	assert_int_equal(gn_qp_destroy(qp), 0);
}

/* Many of them cost SHM_PENDING_MAX descriptors, and drive out their own kind. */
static void half_open_count(void **state)
{
	struct gn_conn_req *req;
	struct raw first, last;
	struct gn_event ev;
	struct victim v;
	unsigned before, n = 0, most;

	(void)state;
	victim_begin(&v, "half_open");
	/* A client of our own user, in the middle of its beginning. */
	raw_make(&first);
	raw_make(&last);
	first.sock = raw_dial(NAME);
	assert_int_equal(gn_chan_next(v.side.chan, &ev), -EAGAIN);
	before = cost_fds(getpid());
	raw_turn_end(v.evil.ctl);
	serve(&v, NULL, &n);
	last.sock = raw_dial(NAME);
	req = honest_asks(&v, &last);
	most = cost_fds(getpid()) - before - 4; /* the last one's socket, and its request's three */
	print_message("# %u connections that say nothing cost %u descriptors\n", HALF_OPEN, most);
	assert_true(most <= SHM_PENDING_MAX && most > 0);
	honest_gets_in(&v, &last, req);
	honest_gets_in(&v, &first, honest_asks(&v, &first));
	victim_end(&v);
}

/* Requests that the program does not answer: SHM_REQUESTS_MAX, of three descriptors each. */
static void asking(void **state)
{
	struct gn_conn_req *reqs[ASKING];
	struct pollfd pfd;
	struct gn_event ev;
	struct victim v;
	unsigned n = 0, before;

	(void)state;
	victim_begin(&v, "asking");
	before = cost_fds(getpid());
	pfd = (struct pollfd){.fd = v.evil.ctl, .events = POLLIN};
	do {
		while (!gn_chan_wait(v.side.chan, gn_deadline_us(2000), &ev))
			if (ev.type == GN_EVENT_CONNECT_REQUEST)
				reqs[n++] = ev.req;
	} while (poll(&pfd, 1, 0) != 1);
	raw_turn_wait(v.evil.ctl);
	print_message("# %u requests, %u descriptors\n", n, cost_fds(getpid()) - before);
	assert_int_equal(n, SHM_REQUESTS_MAX);
	assert_true(cost_fds(getpid()) - before <= 3 * SHM_REQUESTS_MAX);
	while (n)
		assert_int_equal(gn_reject(reqs[--n], NULL, 0), 0);
	victim_end(&v);
}

/* What is mapped of these connections' peers; how many of them have ended. */
static unsigned hoarded(struct gn_qp **qps, uint64_t *mems, uint64_t *bytes)
{
	unsigned ended = 0;

	*mems = *bytes = 0;
	for (unsigned i = 0; i < CONNS; i++) {
		const struct shm_conn *conn = &((struct shm_qp *)qps[i])->conn;

		assert_true(conn->n_mems <= SHM_CONN_MEMS);
		assert_true(conn->mapped_bytes <= SHM_CONN_BYTES);
		*mems += conn->n_mems;
		*bytes += conn->mapped_bytes;
		ended += conn->peer_ended;
	}
	return ended;
}

/* Mappings: on one connection, and of one user on all of them. Our own user's are not concerned. */
static void hoard(const char *role, uint64_t *mems, uint64_t *bytes)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_qp *qps[CONNS], *c, *s;
	struct victim v;
	struct side honest;
	unsigned n = 0, ended;

	victim_begin(&v, role);
	serve(&v, qps, &n);
	assert_int_equal(n, CONNS);
	/* The first asks too much for itself, the user too much on all of them. */
	while ((ended = hoarded(qps, mems, bytes)) < 2) {
		assert_true(gn_now_ns() < deadline_ns);
		side_drain(v.side.chan);
	}
	print_message("# %u mems of %u GiB, %u of %u connections ended\n", (unsigned)*mems,
		      (unsigned)(*bytes >> 30), ended, CONNS);
	side_make(&honest);
	side_connect(&honest, &v.side, ADDR, &c, &s);
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(s), 0);
	side_free(&honest);
	for (unsigned i = 0; i < CONNS; i++)
		assert_int_equal(gn_qp_destroy(qps[i]), 0);
	victim_end(&v);
}

static void hoard_mems(void **state)
{
	uint64_t mems, bytes;

	(void)state;
	hoard("mems", &mems, &bytes);
	assert_true(mems <= SHM_USER_MEMS && mems > SHM_USER_MEMS / 2);
}

static void hoard_bytes(void **state)
{
	uint64_t mems, bytes;

	(void)state;
	hoard("bytes", &mems, &bytes);
	assert_true(bytes <= SHM_USER_BYTES && bytes > SHM_USER_BYTES / 2);
}

/* Without a descriptor to spare, a listener with clients at its door does not spin. */
static void no_descriptors(void **state)
{
	struct rlimit old, low;
	uint64_t deadline_ns;
	struct gn_event ev;
	unsigned woken = 0;
	struct pollfd pfd;
	struct victim v;
	int socks[8];

	(void)state;
	victim_begin(&v, "asking"); /* which is not served */
	raw_turn_wait(v.evil.ctl);
	for (int i = 0; i < 8; i++)
		socks[i] = raw_dial(NAME);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	pfd = (struct pollfd){.fd = gn_chan_fd(v.side.chan), .events = POLLIN};
	for (deadline_ns = gn_deadline_us(500000); gn_now_ns() < deadline_ns; woken++) {
		poll(&pfd, 1, 100);
		assert_int_equal(gn_chan_next(v.side.chan, &ev), -EAGAIN);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	print_message("# woken %u times in 500 ms\n", woken);
	/* By the timer, and by the listener's next try. */
	assert_true(woken <= 2 * 500000000 / SHM_ACCEPT_RETRY_NS + 10);
	/* And then it takes them. */
	assert_int_equal(gn_chan_wait(v.side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_CONNECT_REQUEST);
	assert_int_equal(gn_reject(ev.req, NULL, 0), 0);
	for (int i = 0; i < 8; i++)
		close(socks[i]);
	victim_end(&v);
}

/* One look at a socket takes 64 messages and mems, and the rest of the message it is at. */
static void one_look(void **state)
{
	void *mem;
	const int fd = raw_memfd(GN_PAGE, &mem);
	struct gn_listener *listener;
	const struct shm_conn *conn;
	struct gn_event ev;
	struct gn_qp *qp;
	struct side side;
	struct raw r;

	(void)state;
	side_make(&side);
	assert_int_equal(gn_listener_create(side.ctx, ADDR, side.chan, 0, &listener), 0);
	raw_make(&r);
	r.sock = raw_dial(NAME);
	raw_say(&r, WIRE_HELLO, r.area_fd, r.grants_fd);
	assert_int_equal(gn_chan_wait(side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	qp = side_qp(&side, GN_QP_RC);
	assert_int_equal(gn_accept(ev.req, qp, NULL), 0);
	assert_int_equal(gn_chan_next(side.chan, &ev), 0);
	evil_hoards(&r, fd, GN_PAGE, 16 * WIRE_MEMS);
	conn = &((struct shm_qp *)qp)->conn;
	assert_int_equal(gn_chan_next(side.chan, &ev), -EAGAIN);
	assert_in_range(conn->n_mems, 1, 64 + WIRE_MEMS);
	assert_int_equal(gn_qp_destroy(qp), 0);
	raw_free(&r);
	munmap(mem, GN_PAGE);
	close(fd);
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&side);
}

/* All other users together, whatever number of them. */
static void all_others(void **state)
{
	enum { USERS = 6, EACH = SHM_USER_MEMS / SHM_CONN_MEMS };
	struct shm_qp qps[USERS * EACH] = {{.conn.peer_kind = PEER_OTHER_USER}};
	struct shm_fabric *fabric;
	struct side side;
	uint64_t taken = 0;

	(void)state;
	side_make(&side);
	fabric = (struct shm_fabric *)side.fabric;
	for (unsigned i = 0; i < USERS * EACH; i++) {
		qps[i].qp.obj.fabric = side.fabric;
		assert_int_equal(shm_quota_join(&qps[i], 70000 + i / EACH), 0);
		for (unsigned n = 0; n < SHM_CONN_MEMS; n++)
			taken += !shm_quota_take(&qps[i], 1);
		assert_int_equal(shm_quota_take(&qps[i], 1), -EDQUOT);
	}
	assert_int_equal(taken, SHM_ALL_USERS_MEMS);
	assert_int_equal(fabric->others.bytes, SHM_ALL_USERS_MEMS);
	shm_quota_give(&qps[0], 1);
	assert_int_equal(shm_quota_take(&qps[0], SHM_ALL_USERS_BYTES), -EDQUOT);
	for (unsigned i = 0; i < USERS * EACH; i++)
		shm_quota_leave(&qps[i]);
	assert_int_equal(fabric->others.mems, 0);
	assert_int_equal(fabric->others.bytes, 0);
	assert_null(fabric->users);
	side_free(&side);
}

/* The same for a datagram qp, where only our own user may come in; an honest sender still does. */
static void ud_half_open(void **state)
{
	int socks[HALF_OPEN];
	struct gn_ud_addr addr;
	struct gn_qp *to, *from;
	struct gn_ah *ah;
	struct side side;
	struct gn_sge sge;
	struct gn_wr wr;
	struct gn_wc wc;
	char name[48];
	unsigned cost;

	(void)state;
	side_make(&side);
	to = side_qp(&side, GN_QP_UD);
	from = side_qp(&side, GN_QP_UD);
	assert_int_equal(gn_qp_ud_addr(to, &addr), 0);
	snprintf(name, sizeof(name), SHM_UD_PREFIX "%016llx-%06x",
		 (unsigned long long)((struct shm_fabric *)side.fabric)->gid_tail, addr.qpn);
	cost = cost_fds(getpid()) + HALF_OPEN;
	for (unsigned i = 0; i < HALF_OPEN; i++) {
		socks[i] = raw_dial(name);
		side_drain(side.chan);
	}
	for (unsigned i = 0; i < HALF_OPEN; i++)
		side_drain(side.chan);
	cost = cost_fds(getpid()) - cost;
	print_message("# %u senders that say nothing cost %u descriptors\n", HALF_OPEN, cost);
	assert_in_range(cost, 1, SHM_PENDING_MAX);
	assert_int_equal(gn_ah_create(from, &addr, &ah), 0);
	assert_int_equal(side_recv(&side, to, 3, 0, 128), 0);
	sge = (struct gn_sge){side.buf + GN_PAGE, 8, gn_mr_lkey(side.mr)};
	gn_wr_ud(&wr, 1, &sge, ah, addr.qpn, addr.qkey, 0);
	assert_int_equal(gn_post_send(from, &wr, NULL), 0);
	assert_int_equal(
		gn_cq_wait(side.cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "a datagram"), 1);
	assert_int_equal(wc.id, 3);
	for (unsigned i = 0; i < HALF_OPEN; i++)
		close(socks[i]);
	assert_int_equal(gn_ah_destroy(ah), 0);
	assert_int_equal(gn_qp_destroy(from), 0);
	assert_int_equal(gn_qp_destroy(to), 0);
	side_free(&side);
}

/* A process that may enter the directory holds its lock, which a datagram qp needs briefly. */
static void folder_held(void **state)
{
	const int dir = open(getenv("GANNET_SHM_DIR"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	uint64_t begun_ns, took_ns;
	struct gn_qp *qp;
	struct side side;

	(void)state;
	side_make(&side);
	assert_int_equal(flock(dir, LOCK_EX | LOCK_NB), 0);
	begun_ns = gn_now_ns();
	qp = side_qp(&side, GN_QP_UD);
	took_ns = gn_now_ns() - begun_ns;
	print_message("# a datagram qp took %u ms\n", (unsigned)(took_ns / 1000000));
	assert_true(took_ns < 2000000000);
	close(dir);
	assert_int_equal(gn_qp_destroy(qp), 0);
	side_free(&side);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE(half_open_time), RAW_CASE(half_open_count), RAW_CASE(asking),
		RAW_CASE(hoard_mems),	  RAW_CASE(hoard_bytes),     RAW_CASE(no_descriptors),
		RAW_CASE(one_look),	  RAW_CASE(all_others),	     RAW_CASE(ud_half_open),
		RAW_CASE(folder_held),
	};
	const int status = raw_main(roles, 4096, argc, argv);

	return status >= 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
