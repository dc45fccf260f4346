/* SPDX-License-Identifier: MIT */
/*
 * Memory that a peer sends is used with the rights that this peer has to it and said on this
 * connection. The peer is another user's process. It sends memory back that it was given for reading,
 * areas and grants of ours, the same memory twice with different rights, and grants that exceed what
 * it sent. Both directions: a hostile client, a hostile server.
 */
#include "cost.h"
#include "shm_raw.h"
#include "shm_side.h"

#define ADDR	"shm:memory-test"
#define NAME	"memory-test"
#define SECRET	"sealed"
#define SENT_ID 77u

/* ---- the hostile process; each case's function is its ROLE ---- */

static void evil_hello(struct raw *r)
{
	raw_make(r);
	r->sock = raw_dial(NAME);
	raw_say(r, WIRE_HELLO, r->area_fd, r->grants_fd);
}

/* Ready for the victim's post; then it is over. */
static void evil_turn(struct raw *r, int ctl)
{
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	if (r)
		raw_free(r);
}

/* The server's sealed memory comes back, as memory that is not to be written. */
static void evil_own_memory(int ctl)
{
	struct raw r;
	int fd;

	evil_hello(&r);
	fd = raw_take_sealed(&r);
	raw_send_mem(&r, SENT_ID, fd, GN_PAGE, false);
	raw_grant(&r, SENT_ID, GN_PAGE);
	evil_turn(&r, ctl);
}

/* … as memory that may be written. */
static void evil_own_writable(int ctl)
{
	struct raw r;

	evil_hello(&r);
	raw_send_mem(&r, SENT_ID, raw_take_sealed(&r), GN_PAGE, true);
	raw_grant(&r, SENT_ID, GN_PAGE);
	evil_turn(&r, ctl);
}

/* … as the area and the grants of a second connection. */
static void evil_own_area(int ctl)
{
	struct raw first, second;
	int area_fd, grants_fd;

	evil_hello(&first);
	raw_take_accept(&first, &area_fd, &grants_fd);
	raw_make(&second);
	second.sock = raw_dial(NAME);
	raw_say(&second, WIRE_HELLO, area_fd, grants_fd);
	evil_turn(&second, ctl);
	raw_free(&first);
}

/* A server that is connected to: the client's memory comes back before the connection is up. */
static void evil_server(int ctl)
{
	const int door = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	struct sockaddr_un addr;
	struct raw r;

	assert_true(door >= 0);
	raw_path(NAME, &addr);
	assert_int_equal(bind(door, (struct sockaddr *)&addr, sizeof(addr)), 0);
	assert_int_equal(listen(door, 1), 0);
	raw_turn_end(ctl);
	raw_make(&r);
	r.sock = accept4(door, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	assert_true(r.sock >= 0);
	raw_send_mem(&r, SENT_ID, raw_take_sealed(&r), GN_PAGE, false);
	raw_grant(&r, SENT_ID, GN_PAGE);
	raw_say(&r, WIRE_ACCEPT, r.area_fd, r.grants_fd);
	raw_turn_wait(ctl);
	unlink(addr.sun_path);
	raw_free(&r);
}

/* Sends the same memory on two connections, with different rights. */
static int evil_twice(struct raw *first, struct raw *second)
{
	void *mem;
	const int fd = raw_memfd(2 * GN_PAGE, &mem);
	int area_fd, grants_fd;

	evil_hello(first);
	raw_take_accept(first, &area_fd, &grants_fd); /* before the second: it is the first */
	raw_send_mem(first, SENT_ID, fd, 2 * GN_PAGE, true);
	raw_grant(first, SENT_ID, 2 * GN_PAGE);
	evil_hello(second);
	return fd;
}

static void evil_two_rights(int ctl)
{
	struct raw first, second;
	const int fd = evil_twice(&first, &second);

	raw_send_mem(&second, SENT_ID, fd, 2 * GN_PAGE, false);
	raw_grant(&second, SENT_ID, 2 * GN_PAGE);
	evil_turn(&second, ctl);
	raw_free(&first);
}

static void evil_two_sizes(int ctl)
{
	struct raw first, second;
	const int fd = evil_twice(&first, &second);

	raw_send_mem(&second, SENT_ID, fd, GN_PAGE, true);
	raw_grant(&second, SENT_ID, 2 * GN_PAGE);
	evil_turn(&second, ctl);
	raw_free(&first);
}

/* The second connection has a descriptor that is good for reading only, and says otherwise. */
static void evil_read_only_fd(int ctl)
{
	struct raw first, second;
	const int fd = evil_twice(&first, &second);
	char path[32];
	int again;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(again >= 0);
	raw_send_mem(&second, SENT_ID, again, 2 * GN_PAGE, true);
	raw_grant(&second, SENT_ID, 2 * GN_PAGE);
	evil_turn(&second, ctl);
	raw_free(&first);
}

/* The second connection's grants name what the first one sent. */
static void evil_other_id(int ctl)
{
	struct raw first, second;

	evil_twice(&first, &second);
	raw_grant(&second, SENT_ID, GN_PAGE);
	evil_turn(&second, ctl);
	raw_free(&first);
}

/* The same id twice on one connection. */
static void evil_same_id(int ctl)
{
	void *mem;
	const int fd = raw_memfd(GN_PAGE, &mem);
	struct raw r;

	evil_hello(&r);
	raw_send_mem(&r, SENT_ID, fd, GN_PAGE, false);
	raw_send_mem(&r, SENT_ID, fd, GN_PAGE, true);
	raw_grant(&r, SENT_ID, GN_PAGE);
	evil_turn(&r, ctl);
}

/* Forgotten and sent anew with less right, after it was used. */
static void evil_sent_again(int ctl)
{
	void *mem;
	const int fd = raw_memfd(GN_PAGE, &mem);
	struct raw r;

	evil_hello(&r);
	raw_send_mem(&r, SENT_ID, fd, GN_PAGE, true);
	raw_grant(&r, SENT_ID, GN_PAGE);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	assert_int_equal(*(uint8_t *)mem, 0x66);
	raw_forget_mem(&r, SENT_ID);
	raw_send_mem(&r, SENT_ID, fd, GN_PAGE, false);
	evil_turn(&r, ctl);
}

static const struct raw_role roles[] = {
	{"own_memory", evil_own_memory},
	{"own_writable", evil_own_writable},
	{"own_area", evil_own_area},
	{"server", evil_server},
	{"two_rights", evil_two_rights},
	{"two_sizes", evil_two_sizes},
	{"read_only_fd", evil_read_only_fd},
	{"other_id", evil_other_id},
	{"same_id", evil_same_id},
	{"sent_again", evil_sent_again},
	{NULL, NULL},
};

/* ---- the victim ---- */

struct victim {
	struct side side;
	struct gn_listener *listener;
	struct gn_mem *mem; /* for peers to read */
	struct gn_mr *mr;
	struct gn_qp *qps[2];
	unsigned n_qps;
	struct raw_process evil;
};

static void victim_make(struct victim *v)
{
	*v = (struct victim){.n_qps = 0};
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&v->side);
	assert_int_equal(gn_mem_alloc(v->side.fabric, GN_PAGE, GN_REMOTE_READ, &v->mem), 0);
	assert_int_equal(gn_mr_register(v->side.pd, v->mem, 0, GN_PAGE,
					GN_LOCAL_WRITE | GN_REMOTE_READ, &v->mr),
			 0);
	memset(v->side.buf, 0x66, 2 * GN_PAGE);
	strcpy(gn_mem_addr(v->mem), SECRET);
}

static void victim_free(struct victim *v)
{
	raw_turn_end(v->evil.ctl);
	raw_end(&v->evil);
	assert_string_equal(gn_mem_addr(v->mem), SECRET);
	for (unsigned i = 0; i < v->n_qps; i++)
		assert_int_equal(gn_qp_destroy(v->qps[i]), 0);
	assert_int_equal(gn_listener_destroy(v->listener), 0);
	assert_int_equal(gn_mr_deregister(v->mr), 0);
	assert_int_equal(gn_mem_free(v->mem), 0);
	side_free(&v->side);
}

static void victim_listen(struct victim *v)
{
	assert_int_equal(
		gn_listener_create(v->side.ctx, ADDR, v->side.chan, GN_ANY_USER, &v->listener), 0);
}

/* The next connection of the hostile client. */
static struct gn_qp *victim_accepts(struct victim *v)
{
	struct gn_qp *qp = side_qp(&v->side, GN_QP_RC);
	struct gn_event ev;

	do {
		assert_int_equal(gn_chan_wait(v->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.type != GN_EVENT_CONNECT_REQUEST);
	assert_int_equal(gn_accept(ev.req, qp, NULL), 0);
	v->qps[v->n_qps++] = qp;
	return qp;
}

/* A server, and n connections of a hostile client; the last of them. */
static struct gn_qp *victim_begin(struct victim *v, const char *role, unsigned n)
{
	struct gn_qp *qp = NULL;

	victim_make(v);
	victim_listen(v);
	raw_start(&v->evil, role);
	for (unsigned i = 0; i < n; i++)
		qp = victim_accepts(v);
	raw_turn_wait(v->evil.ctl);
	return qp;
}

static enum gn_wc_status victim_posts(struct victim *v, struct gn_qp *qp, enum gn_op op,
				      uint64_t offset)
{
	struct gn_sge sge = {v->side.buf, op == GN_OP_FAA ? 8 : 64, gn_mr_lkey(v->side.mr)};
	const struct gn_remote remote = {.key = RAW_KEY};
	struct gn_wr wr;
	struct gn_wc wc;

	gn_wr_rdma(&wr, op, 1, &sge, &remote, offset, GN_SIGNALED);
	wr.to.remote.compare = 1;
	assert_int_equal(gn_post_send(qp, &wr, NULL), 0);
	do {
		assert_int_equal(
			gn_cq_wait(v->side.cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "a post"),
			1);
	} while (wc.qp != qp);
	return wc.status;
}

static void own_memory_of(enum gn_op op)
{
	struct victim v;
	struct gn_qp *qp = victim_begin(&v, "own_memory", 1);

	assert_int_equal(victim_posts(&v, qp, op, 0), GN_WC_REMOTE_ACCESS);
	assert_string_equal(gn_mem_addr(v.mem), SECRET);
	victim_free(&v);
}

static void own_memory_write(void **state)
{
	(void)state;
	own_memory_of(GN_OP_WRITE);
}

static void own_memory_atomic(void **state)
{
	(void)state;
	own_memory_of(GN_OP_FAA);
}

/* The victim may read it: that is what this peer may do with it. */
static void own_memory_read(void **state)
{
	struct victim v;
	struct gn_qp *qp;

	(void)state;
	qp = victim_begin(&v, "own_memory", 1);
	assert_int_equal(victim_posts(&v, qp, GN_OP_READ, 0), GN_WC_OK);
	assert_string_equal((char *)v.side.buf, SECRET);
	victim_free(&v);
}

static void own_memory_writable(void **state)
{
	struct victim v;
	struct gn_qp *qp;

	(void)state;
	qp = victim_begin(&v, "own_writable", 1);
	assert_int_not_equal(victim_posts(&v, qp, GN_OP_WRITE, 0), GN_WC_OK);
	victim_free(&v);
}

/* Its own area says what it says to others; nothing of ours is written through it. */
static void own_area(void **state)
{
	struct gn_qp *first, *second;
	struct victim v;
	int status;

	(void)state;
	victim_make(&v);
	victim_listen(&v);
	raw_start(&v.evil, "own_area");
	first = victim_accepts(&v);
	second = victim_accepts(&v);
	raw_turn_wait(v.evil.ctl);
	assert_int_equal(side_recv(&v.side, first, 7, 0, 64), 0);
	assert_int_equal(side_recv(&v.side, second, 8, 0, 64), 0);
	status = (int)victim_posts(&v, second, GN_OP_WRITE, 0);
	assert_int_not_equal(status, GN_WC_OK);
	victim_free(&v);
}

static void hostile_server(void **state)
{
	struct victim v;
	struct gn_qp *qp;

	(void)state;
	victim_make(&v);
	raw_start(&v.evil, "server");
	raw_turn_wait(v.evil.ctl);
	qp = v.qps[v.n_qps++] = side_qp(&v.side, GN_QP_RC);
	assert_int_equal(gn_connect_wait(qp, ADDR, NULL, NULL), 0);
	assert_int_equal(victim_posts(&v, qp, GN_OP_WRITE, 0), GN_WC_REMOTE_ACCESS);
	assert_string_equal(gn_mem_addr(v.mem), SECRET);
	victim_free(&v);
}

/* The first connection's rights are its own; the second gets none of them. */
static void two_connections(const char *role, uint64_t offset)
{
	struct gn_qp *second;
	struct victim v;

	second = victim_begin(&v, role, 2);
	assert_int_equal(victim_posts(&v, v.qps[0], GN_OP_WRITE, offset), GN_WC_OK);
	assert_int_not_equal(victim_posts(&v, second, GN_OP_WRITE, offset), GN_WC_OK);
	victim_free(&v);
}

static void two_rights(void **state)
{
	(void)state;
	two_connections("two_rights", 0);
}

static void two_sizes(void **state)
{
	(void)state;
	two_connections("two_sizes", GN_PAGE);
}

static void read_only_fd(void **state)
{
	(void)state;
	two_connections("read_only_fd", 0);
}

static void other_id(void **state)
{
	(void)state;
	two_connections("other_id", 0);
}

static void same_id(void **state)
{
	struct gn_event ev;
	struct gn_qp *qp;
	struct victim v;

	(void)state;
	qp = victim_begin(&v, "same_id", 1);
	do {
		assert_int_equal(gn_chan_wait(v.side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.type != GN_EVENT_DISCONNECTED || ev.qp != qp);
	victim_free(&v);
}

static void sent_again(void **state)
{
	struct gn_qp *qp;
	struct victim v;

	(void)state;
	qp = victim_begin(&v, "sent_again", 1);
	assert_int_equal(victim_posts(&v, qp, GN_OP_WRITE, 0), GN_WC_OK);
	raw_turn_end(v.evil.ctl);
	raw_turn_wait(v.evil.ctl);
	side_drain(v.side.chan);
	assert_int_not_equal(victim_posts(&v, qp, GN_OP_WRITE, 0), GN_WC_OK);
	victim_free(&v);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE(own_memory_write), RAW_CASE(own_memory_atomic),
		RAW_CASE(own_memory_read),  RAW_CASE(own_memory_writable),
		RAW_CASE(own_area),	    RAW_CASE(hostile_server),
		RAW_CASE(two_rights),	    RAW_CASE(two_sizes),
		RAW_CASE(read_only_fd),	    RAW_CASE(other_id),
		RAW_CASE(same_id),	    RAW_CASE(sent_again),
	};
	const int status = raw_main(roles, 0, argc, argv);

	return status >= 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
