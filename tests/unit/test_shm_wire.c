/* SPDX-License-Identifier: MIT */
/*
 * A client that speaks the control socket's protocol by itself, to say what the library never says.
 * The server must not be talked into writing its own sealed memory, into using memory that is not
 * there, or out of its fds.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDR	"shm:wire-test-" /* and the case, or one that fails would take others along */
#define RQ_SIZE 16u
#define KEY	0x10005u /* entry 1 of the grants */
#define ROUNDS	3

struct client {
	int sock, area_fd, grants_fd;
	struct area *area;
	struct grant *grants;
};

struct server {
	struct side side;
	struct gn_listener *listener;
	const char *name;
};

/* ---- the client ---- */

static int sealed_memfd(size_t size, void **out)
{
	const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	*out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(*out, MAP_FAILED);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static void client_dial(struct client *c, const struct server *server)
{
	struct sockaddr_un addr;
	void *mem;

	c->area_fd = sealed_memfd(area_bytes(RQ_SIZE), &mem);
	c->area = mem;
	c->grants_fd = sealed_memfd(SOFT_KEYS * sizeof(struct grant), &mem);
	c->grants = mem;
	c->sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_true(c->sock >= 0);
	shm_path((struct shm_fabric *)server->side.fabric, server->name, &addr);
	assert_int_equal(connect(c->sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
}

static void client_free(struct client *c)
{
	munmap(c->area, area_bytes(RQ_SIZE));
	munmap(c->grants, SOFT_KEYS * sizeof(struct grant));
	close(c->area_fd);
	close(c->grants_fd);
	close(c->sock);
}

/* Area, grants, and as many more as n_fds says. */
static void client_hello(struct client *c, int n_fds)
{
	const struct wire_hello hello = {.head = wire_head(WIRE_HELLO), .rq_size = RQ_SIZE};
	int fds[WIRE_FDS] = {c->area_fd, c->grants_fd};

	for (int i = 2; i < WIRE_FDS; i++)
		fds[i] = c->area_fd;
	assert_int_equal(wire_send(c->sock, &hello, sizeof(hello), fds, n_fds), 0);
}

static void client_says_nothing(struct client *c)
{
	int fds[WIRE_FDS];

	for (int i = 0; i < WIRE_FDS; i++)
		fds[i] = c->area_fd;
	assert_int_equal(wire_send(c->sock, "", 0, fds, WIRE_FDS), 0);
}

static void client_sends_mem(struct client *c, uint64_t id, int fd)
{
	const struct wire_mems msg = {
		.head = wire_head(WIRE_MEM),
		.n = 1,
		.mem[0] = {.id = id, .size = GN_PAGE, .writable = 1},
	};

	assert_int_equal(wire_send(c->sock, &msg, wire_mems_len(1), &fd, 1), 0);
}

static void client_forgets_mem(struct client *c, uint64_t id)
{
	const struct wire_mems msg = {.head = wire_head(WIRE_FORGET), .n = 1, .mem[0].id = id};

	assert_int_equal(wire_send(c->sock, &msg, wire_mems_len(1), NULL, 0), 0);
}

static void client_grants(struct client *c, uint64_t mem_id)
{
	c->grants[KEY >> 16] = (struct grant){.key = KEY,
					      .access = GN_REMOTE_WRITE | GN_REMOTE_READ,
					      .mem_id = mem_id,
					      .length = GN_PAGE};
}

/* The fd of the server's memory that is there for reading only. */
static int client_gets_mem(struct client *c)
{
	int fds[WIRE_FDS], found = -1;
	union wire_any msg;

	while (found < 0) {
		/* What the server has sent is here: -EAGAIN is a failure. */
		assert_true(wire_recv(c->sock, &msg, fds) > 0);
		if (msg.head.type == WIRE_MEM)
			for (uint32_t i = 0; i < msg.mems.n; i++)
				if (!msg.mems.mem[i].writable && found < 0) {
					found = fds[i];
					fds[i] = -1;
				}
		for (int i = 0; i < WIRE_FDS; i++)
			if (fds[i] >= 0)
				close(fds[i]);
	}
	return found;
}

/* ---- the server ---- */

static void server_make(struct server *s, const char *addr)
{
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&s->side);
	s->name = addr + strlen("shm:");
	assert_int_equal(gn_listen(s->side.ctx, addr, s->side.chan, 0, &s->listener), 0);
}

static void server_free(struct server *s)
{
	assert_int_equal(gn_listener_close(s->listener), 0);
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
static struct gn_qp *begin(struct client *c, struct server *s)
{
	client_dial(c, s);
	client_hello(c, 2);
	return server_accept(s);
}

static enum gn_wc_status server_writes(struct server *s, struct gn_qp *qp)
{
	struct gn_sge sge = {s->side.buf, 64, gn_mr_lkey(s->side.mr)};
	const struct gn_remote remote = {.key = KEY};
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

/* The server's own memory comes back as the client's, to be written: a confused deputy. */
static void own_memory_back(void **state)
{
	struct client client;
	struct server server;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_qp *qp;
	int fd;

	(void)state;
	server_make(&server, ADDR "deputy");
	assert_int_equal(gn_mem_alloc(server.side.fabric, GN_PAGE, GN_REMOTE_READ, &mem), 0);
	assert_int_equal(gn_mr_register(server.side.pd, mem, 0, GN_PAGE,
					GN_LOCAL_WRITE | GN_REMOTE_READ, &mr),
			 0);
	memset(server.side.buf, 0x66, 64);
	strcpy(gn_mem_addr(mem), "good");
	qp = begin(&client, &server);
	fd = client_gets_mem(&client);
	client_sends_mem(&client, 77, fd);
	client_grants(&client, 77);
	assert_int_not_equal(server_writes(&server, qp), GN_WC_OK);
	assert_string_equal(gn_mem_addr(mem), "good");
	close(fd);
	assert_int_equal(gn_qp_destroy(qp), 0);
	client_free(&client);
	assert_int_equal(gn_mr_deregister(mr), 0);
	assert_int_equal(gn_mem_free(mem), 0);
	server_free(&server);
}

/* No mem has the number 0: it is no way to reach one that was forgotten. */
static void mem_zero(void **state)
{
	struct client client;
	struct server server;
	struct gn_qp *qp;
	void *mem;
	int fd;

	(void)state;
	server_make(&server, ADDR "zero");
	memset(server.side.buf, 0x66, 64);
	fd = sealed_memfd(GN_PAGE, &mem);

	/* Granted, and nothing ever sent. */
	qp = begin(&client, &server);
	client_grants(&client, 0);
	assert_int_equal(server_writes(&server, qp), GN_WC_REMOTE_ACCESS);
	assert_int_equal(gn_qp_destroy(qp), 0);
	client_free(&client);

	/* Sent under that number. */
	qp = begin(&client, &server);
	client_sends_mem(&client, 0, fd);
	client_grants(&client, 0);
	server_hangs_up(&server, qp);
	assert_int_equal(gn_qp_destroy(qp), 0);
	client_free(&client);

	/* Sent as it should be, used, forgotten, and granted under that number. */
	qp = begin(&client, &server);
	client_sends_mem(&client, 5, fd);
	client_grants(&client, 5);
	assert_int_equal(server_writes(&server, qp), GN_WC_OK);
	assert_memory_equal(mem, server.side.buf, 64);
	client_forgets_mem(&client, 0);
	side_drain(server.side.chan);
	assert_int_equal(server_writes(&server, qp), GN_WC_OK);
	client_forgets_mem(&client, 5);
	side_drain(server.side.chan);
	memset(mem, 0, 64);
	client_grants(&client, 0);
	assert_int_equal(server_writes(&server, qp), GN_WC_REMOTE_ACCESS);
	assert_int_equal(*(uint8_t *)mem, 0);
	assert_int_equal(gn_qp_destroy(qp), 0);
	client_free(&client);

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

/* The server takes what is there, and refuses whoever asks to connect. */
static void server_looks(struct server *s)
{
	struct gn_event ev;

	while (!gn_chan_next(s->side.chan, &ev))
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			assert_int_equal(gn_reject(ev.req, NULL, 0), 0);
}

static void hello_with_many(struct client *c, struct server *s)
{
	client_dial(c, s);
	client_hello(c, WIRE_FDS);
	server_looks(s);
}

static void nothing_first(struct client *c, struct server *s)
{
	client_dial(c, s);
	client_says_nothing(c);
	server_looks(s);
}

/* The listener has it among those that said nothing yet when it speaks. */
static void nothing_late(struct client *c, struct server *s)
{
	client_dial(c, s);
	server_looks(s);
	client_says_nothing(c);
	server_looks(s);
}

static void nothing_when_connected(struct client *c, struct server *s)
{
	struct gn_qp *qp = begin(c, s);

	client_says_nothing(c);
	server_hangs_up(s, qp);
	assert_int_equal(gn_qp_destroy(qp), 0);
}

static void no_fd_stays(void **state)
{
	static void (*const cases[])(struct client * c, struct server * s) = {
		hello_with_many, nothing_first, nothing_late, nothing_when_connected};
	struct client client;
	struct server server;
	unsigned before = 0;

	(void)state;
	server_make(&server, ADDR "fds");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		for (int round = 0; round <= ROUNDS; round++) {
			cases[i](&client, &server);
			client_free(&client);
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
