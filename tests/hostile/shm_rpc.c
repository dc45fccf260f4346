/* SPDX-License-Identifier: MIT */
/*
 * A client of another user that has a server's replies written into the server's own memory: what it
 * shows (gn_rpc_request_show()), what it answers with (gn_rpc_answer_mem()), its results. The client
 * speaks the wire of shm and of calls by itself. It sends the memory back as its own, for reading, and
 * names it as the place of its replies.
 */
#include "shm_raw.h"

#include "gannet/rpc.h"
#include "rpc/wire.h"

#define ADDR	   "shm:rpc-test"
#define NAME	   "rpc-test"
#define SHOWN	   "what everybody may read"
#define LENT_BYTES (256u * 1024)
#define SLOTS	   4u
#define BYTES	   256u
#define SENT_ID	   77u
#define ELSEWHERE  2048u /* in the page of the results, behind them */
#define HANG_UP_MS 5000

enum method { SHOW = 1, LEND, ECHO };

/* ---- the hostile process ---- */

struct evil {
	struct raw raw;
	struct rpc_hello hello;
	struct rpc_welcome welcome;
	const struct grant *grants; /* the server's */
	struct {
		uint64_t id;
		int fd;
		bool writable;
	} mems[8];
	unsigned n_mems;
	uint8_t *requests;
	const uint8_t *results;
	uint32_t number;
};

static void evil_note_mems(struct evil *e, const struct wire_mems *msg, int fds[WIRE_FDS])
{
	for (uint32_t i = 0; i < msg->n && e->n_mems < 8; i++, e->n_mems++) {
		e->mems[e->n_mems].id = msg->mem[i].id;
		e->mems[e->n_mems].writable = msg->mem[i].writable;
		e->mems[e->n_mems].fd = fds[i];
		fds[i] = -1;
	}
}

/* The next mem that the server sends. */
static int evil_next_mem(struct evil *e)
{
	const unsigned had = e->n_mems;
	int fds[WIRE_FDS];
	union wire_any msg;

	while (e->n_mems == had) {
		assert_true(raw_recv(&e->raw, &msg, fds) > 0);
		if (msg.head.type == WIRE_MEM)
			evil_note_mems(e, &msg.mems, fds);
		wire_close_fds(fds);
	}
	assert_false(e->mems[had].writable);
	return e->mems[had].fd;
}

/* Where a region of the server's is. */
static uint8_t *evil_map(struct evil *e, uint32_t key, int prot, int *fd)
{
	const struct grant *g = &e->grants[soft_key_index(key)];

	for (unsigned i = 0; i < e->n_mems; i++)
		if (e->mems[i].id == g->mem_id) {
			uint8_t *addr =
				mmap(NULL, g->base + g->length, prot, MAP_SHARED, e->mems[i].fd, 0);

			assert_ptr_not_equal(addr, MAP_FAILED);
			*fd = e->mems[i].fd;
			return addr + g->base;
		}
	fail();
	return NULL;
}

/* Connected, as any client would be. Returns the descriptor of the results. */
static int evil_begin(struct evil *e)
{
	struct wire_hello hello = {.head = wire_head(WIRE_HELLO), .rq_size = RAW_RQ_SIZE};
	int fds[WIRE_FDS], fd;
	union wire_any msg;
	void *grants;

	*e = (struct evil){.number = 1};
	e->hello = (struct rpc_hello){.magic = RPC_MAGIC,
				      .version = RPC_VERSION,
				      .bytes = sizeof(e->hello),
				      .slots = SLOTS,
				      .max_request = BYTES,
				      .max_result = BYTES,
				      .window = SLOTS,
				      .reply_key = RAW_KEY,
				      .nonce = 0x1234567};
	raw_make(&e->raw);
	e->raw.sock = raw_dial(NAME);
	hello.private_len = sizeof(e->hello);
	memcpy(hello.private_data, &e->hello, sizeof(e->hello));
	fds[0] = e->raw.area_fd;
	fds[1] = e->raw.grants_fd;
	assert_int_equal(wire_send(e->raw.sock, &hello, sizeof(hello), fds, 2), 0);
	for (;;) {
		assert_true(raw_recv(&e->raw, &msg, fds) > 0);
		if (msg.head.type == WIRE_ACCEPT)
			break;
		if (msg.head.type == WIRE_MEM)
			evil_note_mems(e, &msg.mems, fds);
		wire_close_fds(fds);
	}
	memcpy(&e->welcome, msg.hello.private_data, sizeof(e->welcome));
	assert_int_equal(e->welcome.magic, RPC_MAGIC);
	grants = mmap(NULL, SOFT_KEYS * sizeof(struct grant), PROT_READ, MAP_SHARED, fds[1], 0);
	assert_ptr_not_equal(grants, MAP_FAILED);
	wire_close_fds(fds);
	e->grants = grants;
	e->requests = evil_map(e, e->welcome.request_key, PROT_READ | PROT_WRITE, &fd);
	e->results = evil_map(e, e->welcome.result_key, PROT_READ, &fd);
	return fd;
}

static void evil_call(struct evil *e, enum method method, uint32_t len, unsigned flags)
{
	const uint32_t slot = e->number & (e->welcome.slots - 1);
	uint8_t *to = e->requests + slot * rpc_stride(e->welcome.max_request);
	struct rpc_entry entry = {.len = len, .code = (uint16_t)method, .index = 0};
	struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, e->number++),
				.nonce = e->hello.nonce,
				.len = (uint32_t)sizeof(entry) + rpc_align8(len),
				.aux = 1,
				.flags = (uint16_t)flags};

	memcpy(to + sizeof(struct rpc_head), &entry, sizeof(entry));
	memset(to + sizeof(struct rpc_head) + sizeof(entry), 0x66, rpc_align8(len));
	rpc_seal(to, &seal);
}

/* This memory is where the replies go; then one is asked for. The server has enough of that. */
static void evil_strike(struct evil *e, int fd, uint64_t base, int ctl)
{
	struct pollfd pfd = {.fd = e->raw.sock, .events = POLLIN};
	int fds[WIRE_FDS];
	union wire_any msg;
	ssize_t len = -EAGAIN;

	raw_send_mem(&e->raw, SENT_ID, fd, GN_PAGE, false);
	raw_grant(&e->raw, SENT_ID, GN_PAGE - base);
	e->raw.grants[RAW_KEY >> 16].base = base;
	evil_call(e, ECHO, 64, RPC_REPLY);
	while (len && poll(&pfd, 1, HANG_UP_MS) == 1) {
		len = wire_recv(e->raw.sock, &msg, fds);
		wire_close_fds(fds);
	}
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	assert_int_equal(len, 0);
	raw_free(&e->raw);
}

static void evil_shown(int ctl)
{
	struct evil e;

	evil_begin(&e);
	evil_call(&e, SHOW, 0, 0);
	evil_strike(&e, evil_next_mem(&e), 0, ctl);
}

static void evil_lent(int ctl)
{
	struct evil e;

	evil_begin(&e);
	evil_call(&e, LEND, 0, 0);
	evil_strike(&e, evil_next_mem(&e), 0, ctl);
}

static void evil_results(int ctl)
{
	struct evil e;
	const int fd = evil_begin(&e);

	evil_strike(&e, fd, ELSEWHERE, ctl);
	for (unsigned i = ELSEWHERE; i < GN_PAGE; i++)
		assert_int_equal(e.results[i], 0);
}

static const struct raw_role roles[] = {
	{"shown", evil_shown},
	{"lent", evil_lent},
	{"results", evil_results},
	{NULL, NULL},
};

/* ---- the server ---- */

struct service {
	struct gn_fabric *fabric;
	struct gn_rpc_server *server;
	struct gn_mem *shown, *lent;
};

static void show(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;
	struct gn_rpc_view view;

	if (gn_rpc_request_show(request, s->shown, &view))
		gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
	else
		gn_rpc_answer(request, GN_RPC_OK, &view, sizeof(view));
}

static void released(void *arg)
{
	(void)arg;
}

static void lend(struct gn_rpc_request *request, void *arg)
{
	struct service *s = arg;

	gn_rpc_answer_mem(request, GN_RPC_OK, s->lent, 0, LENT_BYTES, released, NULL);
}

static void echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static void service_start(struct service *s)
{
	/* The hostile client cannot wake a server that parked it. */
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .listener_flags = GN_ANY_USER, .park_us = UNIT_PATIENCE_US};

	gn_log_level_set(GN_LOG_ERROR);
	assert_int_equal(gn_fabric_open("shm", &s->fabric), 0);
	assert_int_equal(gn_mem_alloc(s->fabric, GN_PAGE, GN_REMOTE_READ, &s->shown), 0);
	strcpy(gn_mem_addr(s->shown), SHOWN);
	assert_int_equal(gn_mem_alloc(s->fabric, LENT_BYTES, GN_REMOTE_READ, &s->lent), 0);
	strcpy(gn_mem_addr(s->lent), SHOWN);
	assert_int_equal(gn_rpc_server_create(s->fabric, ADDR, &opts, &s->server), 0);
	assert_int_equal(gn_rpc_server_handle(s->server, SHOW, show, s), 0);
	assert_int_equal(gn_rpc_server_handle(s->server, LEND, lend, s), 0);
	assert_int_equal(gn_rpc_server_handle(s->server, ECHO, echo, s), 0);
	assert_int_equal(gn_rpc_server_start(s->server), 0);
}

static void service_stop(struct service *s)
{
	gn_rpc_server_destroy(s->server);
	assert_int_equal(gn_mem_free(s->lent), 0);
	assert_int_equal(gn_mem_free(s->shown), 0);
	assert_int_equal(gn_fabric_close(s->fabric), 0);
}

/* An honest client is served afterwards, before the hostile one has disconnected. */
static void honest_call(struct service *s)
{
	struct gn_rpc_client *client;
	uint32_t len = 0;
	unsigned status;
	char out[8];

	assert_int_equal(gn_rpc_client_open(s->fabric, ADDR, NULL, &client), 0);
	assert_int_equal(gn_rpc_call(client, ECHO, "honest", 7, out, sizeof(out), &len,
				     gn_deadline_us(UNIT_PATIENCE_US), &status),
			 0);
	assert_int_equal(status, GN_RPC_OK);
	assert_int_equal(len, 7);
	assert_string_equal(out, "honest");
	gn_rpc_client_close(client);
}

static void untouched(const struct gn_mem *mem)
{
	const char *bytes = gn_mem_addr(mem);

	assert_string_equal(bytes, SHOWN);
	for (size_t i = strlen(SHOWN); i < gn_mem_size(mem); i++)
		assert_int_equal(bytes[i], 0);
}

static void serve_hostile(void **state)
{
	struct raw_process evil;
	struct service s;

	service_start(&s);
	raw_start(&evil, *state);
	raw_turn_wait(evil.ctl);
	untouched(s.shown);
	untouched(s.lent);
	honest_call(&s);
	raw_turn_end(evil.ctl);
	raw_end(&evil);
	service_stop(&s);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE_ROLE(shown_memory, serve_hostile, "shown"),
		RAW_CASE_ROLE(lent_memory, serve_hostile, "lent"),
		RAW_CASE_ROLE(result_memory, serve_hostile, "results"),
	};
	const int status = raw_main(roles, 0, argc, argv);

	return status >= 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
