/* SPDX-License-Identifier: MIT */
/*
 * A client that speaks the control socket's protocol by itself, to say what the library never says.
 * The server must not be talked into writing its own sealed memory, into using memory that is not
 * there, or out of its fds.
 */
#include "shm_raw.h"
#include "shm_side.h"

#include <dirent.h>
#include <string.h>
#include <unistd.h>

#define ADDR   "shm:wire-test-" /* and the case, or one that fails would take others along */
#define ROUNDS 3

struct server {
	struct side side;
	struct gn_listener *listener;
	const char *name;
};

/* ---- the client ---- */

static void client_dial(struct raw *c, const struct server *server)
{
	raw_make(c);
	c->sock = raw_dial(server->name);
}

/* Area, grants, and as many more as n_fds says. */
static void client_hello(struct raw *c, int n_fds)
{
	const struct wire_hello hello = {.head = wire_head(WIRE_HELLO), .rq_size = RAW_RQ_SIZE};
	int fds[WIRE_FDS] = {c->area_fd, c->grants_fd};

	for (int i = 2; i < WIRE_FDS; i++)
		fds[i] = c->area_fd;
	assert_int_equal(wire_send(c->sock, &hello, sizeof(hello), fds, n_fds), 0);
}

static void client_says_nothing(struct raw *c)
{
	int fds[WIRE_FDS];

	for (int i = 0; i < WIRE_FDS; i++)
		fds[i] = c->area_fd;
	assert_int_equal(wire_send(c->sock, "", 0, fds, WIRE_FDS), 0);
}

/* ---- the server ---- */

static void server_make(struct server *s, const char *addr)
{
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&s->side);
	s->name = addr + strlen("shm:");
	assert_int_equal(gn_listener_create(s->side.ctx, addr, s->side.chan, 0, &s->listener), 0);
}

static void server_free(struct server *s)
{
	assert_int_equal(gn_listener_destroy(s->listener), 0);
	side_free(&s->side);
}

static struct gn_qp *server_accept(struct server *s)
{
	struct gn_qp *qp = side_qp(&s->side, GN_QP_RC);
	struct gn_event ev;

	do {
		assert_int_equal(gn_chan_wait(s->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.type != GN_EVENT_CONNECT_REQUEST);
	assert_int_equal(gn_accept(ev.req, qp, NULL), 0);
	return qp;
}

/* A well-behaved beginning. */
static struct gn_qp *begin(struct raw *c, struct server *s)
{
	client_dial(c, s);
	client_hello(c, 2);
	return server_accept(s);
}

static enum gn_wc_status server_writes(struct server *s, struct gn_qp *qp)
{
	struct gn_sge sge = {s->side.buf, 64, gn_mr_lkey(s->side.mr)};
	const struct gn_remote remote = {.key = RAW_KEY};
	struct gn_wr wr;
	struct gn_wc wc;

	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(qp, &wr, NULL), 0);
	assert_int_equal(
		gn_cq_wait(s->side.cq, &wc, 1, gn_deadline_us(UNIT_PATIENCE_US), "a write"), 1);
	return wc.status;
}

/* The server's end of this connection, noticed without being asked. */
static void server_hangs_up(struct server *s, struct gn_qp *qp)
{
	struct gn_event ev;

	do {
		assert_int_equal(gn_chan_wait(s->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.type != GN_EVENT_DISCONNECTED || ev.qp != qp);
}

/* ---- memory ---- */

/*
 * The server's own memory comes back as the client's: a confused deputy. Even in one process, where
 * it is not mapped anew, it has the rights that the client says.
 */
static void own_memory_comes_back(bool writable)
{
	struct raw client;
	struct server server;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_qp *qp;
	int fd;

	server_make(&server, ADDR "deputy");
	assert_int_equal(gn_mem_alloc(server.side.fabric, GN_PAGE, GN_REMOTE_READ, &mem), 0);
	assert_int_equal(gn_mr_register(server.side.pd, mem, 0, GN_PAGE,
					GN_LOCAL_WRITE | GN_REMOTE_READ, &mr),
			 0);
	memset(server.side.buf, 0x66, 64);
	strcpy(gn_mem_addr(mem), "good");
	qp = begin(&client, &server);
	fd = raw_take_sealed(&client);
	raw_send_mem(&client, 77, fd, GN_PAGE, writable);
	raw_grant(&client, 77, GN_PAGE);
	assert_int_not_equal(server_writes(&server, qp), GN_WC_OK);
	assert_string_equal(gn_mem_addr(mem), "good");
	close(fd);
	assert_int_equal(gn_qp_destroy(qp), 0);
	raw_free(&client);
	assert_int_equal(gn_mr_deregister(mr), 0);
	assert_int_equal(gn_mem_free(mem), 0);
	server_free(&server);
}

static void own_memory_back(void **state)
{
	(void)state;
	own_memory_comes_back(true);
	own_memory_comes_back(false);
}

/* No mem has the number 0: it is no way to reach one that was forgotten. */
static void mem_zero(void **state)
{
	struct raw client;
	struct server server;
	struct gn_qp *qp;
	void *mem;
	int fd;

	(void)state;
	server_make(&server, ADDR "zero");
	memset(server.side.buf, 0x66, 64);
	fd = raw_memfd(GN_PAGE, &mem);

	/* Granted, and nothing ever sent. */
	qp = begin(&client, &server);
	raw_grant(&client, 0, GN_PAGE);
	assert_int_equal(server_writes(&server, qp), GN_WC_REMOTE_ACCESS);
	assert_int_equal(gn_qp_destroy(qp), 0);
	raw_free(&client);

	/* Sent under that number. */
	qp = begin(&client, &server);
	raw_send_mem(&client, 0, fd, GN_PAGE, true);
	raw_grant(&client, 0, GN_PAGE);
	server_hangs_up(&server, qp);
	assert_int_equal(gn_qp_destroy(qp), 0);
	raw_free(&client);

	/* Sent as it should be, used, forgotten, and granted under that number. */
	qp = begin(&client, &server);
	raw_send_mem(&client, 5, fd, GN_PAGE, true);
	raw_grant(&client, 5, GN_PAGE);
	assert_int_equal(server_writes(&server, qp), GN_WC_OK);
	assert_memory_equal(mem, server.side.buf, 64);
	raw_forget_mem(&client, 0);
	side_drain(server.side.chan);
	assert_int_equal(server_writes(&server, qp), GN_WC_OK);
	raw_forget_mem(&client, 5);
	side_drain(server.side.chan);
	memset(mem, 0, 64);
	raw_grant(&client, 0, GN_PAGE);
	assert_int_equal(server_writes(&server, qp), GN_WC_REMOTE_ACCESS);
	assert_int_equal(*(uint8_t *)mem, 0);
	assert_int_equal(gn_qp_destroy(qp), 0);
	raw_free(&client);

	munmap(mem, GN_PAGE);
	close(fd);
	server_free(&server);
}

/* ---- fds ---- */

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	assert_non_null(dir);
	while (readdir(dir))
		n++;
	closedir(dir);
	return n;
}

/* The server handles all events, and rejects connect requests. */
static void server_looks(struct server *s)
{
	struct gn_event ev;

	while (!gn_chan_next(s->side.chan, &ev))
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			assert_int_equal(gn_reject(ev.req, NULL, 0), 0);
}

static void hello_with_many(struct raw *c, struct server *s)
{
	client_dial(c, s);
	client_hello(c, WIRE_FDS);
	server_looks(s);
}

static void nothing_first(struct raw *c, struct server *s)
{
	client_dial(c, s);
	client_says_nothing(c);
	server_looks(s);
}

/* The client sends its first message while it is on the listener's list of pending clients. */
static void nothing_late(struct raw *c, struct server *s)
{
	client_dial(c, s);
	server_looks(s);
	client_says_nothing(c);
	server_looks(s);
}

static void nothing_when_connected(struct raw *c, struct server *s)
{
	struct gn_qp *qp = begin(c, s);

	client_says_nothing(c);
	server_hangs_up(s, qp);
	assert_int_equal(gn_qp_destroy(qp), 0);
}

static void no_fd_stays(void **state)
{
	static void (*const cases[])(struct raw * c, struct server * s) = {
		hello_with_many, nothing_first, nothing_late, nothing_when_connected};
	struct raw client;
	struct server server;
	unsigned before = 0;

	(void)state;
	server_make(&server, ADDR "fds");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int round = 0; round <= ROUNDS; round++) {
			cases[i](&client, &server);
			raw_free(&client);
			server_looks(&server);
			/* Some fds are made when they are first needed, and stay. */
			if (!round)
				before = open_fds();
			else
				assert_int_equal(open_fds(), before);
		}
	server_free(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(own_memory_back),
		cmocka_unit_test(mem_zero),
		cmocka_unit_test(no_fd_stays),
	};

	return cmocka_run_group_tests(tests, side_folder_make, side_folder_remove);
}
