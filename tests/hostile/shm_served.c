/* SPDX-License-Identifier: MIT */
/*
 * Requests that the owner of the memory executes (src/fabric/shm/serve.c). A hostile client sends
 * requests beyond its rights, messages that are no requests, and requests without end; beside it an
 * honest one is served. A hostile owner sends what is no socket, does not answer, or lies.
 */
#include "cost.h"
#include "shm_lender.h"

/* ---- requests that the victim executes ---- */

struct evil_keys {
	uint32_t own, other; /* the latter in the other client's pd */
};

static struct evil_keys evil_keys(int ctl)
{
	struct evil_keys keys;

	assert_int_equal(read(ctl, &keys, sizeof(keys)), sizeof(keys));
	return keys;
}

/* The socket for requests, and the memory of their results, come before ACCEPT. */
static const struct serve_result *loot_served(struct loot *l)
{
	const void *result;

	loot_begin(l);
	assert_int_equal(l->n, 4);
	l->sock = l->fds[0];
	result = mmap(NULL, sizeof(struct serve_result), PROT_READ, MAP_SHARED, l->fds[1], 0);
	assert_ptr_not_equal(result, MAP_FAILED);
	return result;
}

/* Sends a request with this many bytes after it; the status of the result. */
static uint32_t evil_request(const struct loot *l, const struct serve_result *result,
			     struct serve_request rq, size_t data_len)
{
	static uint8_t msg[sizeof(rq) + SERVE_CHUNK];
	const uint64_t end_ns = gn_deadline_us(UNIT_PATIENCE_US);

	rq.serial = result->serial + 1;
	memset(msg, 'X', sizeof(msg));
	memcpy(msg, &rq, sizeof(rq));
	assert_int_equal(send(l->sock, msg, sizeof(rq) + data_len, 0),
			 (ssize_t)(sizeof(rq) + data_len));
	while (__atomic_load_n(&result->serial, __ATOMIC_ACQUIRE) != rq.serial)
		assert_true(gn_now_ns() < end_ns);
	return result->status;
}

/* Well-formed requests that exceed the rights: the region may be read, one page of it. */
static void evil_requests(int ctl)
{
	const struct evil_keys keys = evil_keys(ctl);
	struct serve_request rq = {.op = GN_OP_READ, .key = keys.own, .length = 8};
	const struct serve_result *result;
	struct loot l;

	result = loot_served(&l);
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_OK);
	rq.op = GN_OP_WRITE;
	assert_int_equal(evil_request(&l, result, rq, 8), GN_WC_REMOTE_ACCESS);
	rq.op = GN_OP_FAA;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.op = GN_OP_READ;
	rq.offset = GN_PAGE;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.offset = GN_PAGE - 7;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.offset = UINT64_MAX - 3;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.offset = 0;
	rq.length = SERVE_CHUNK;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.length = 8;
	rq.key = keys.other;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.key = 0;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	rq.key = keys.own + 1;
	assert_int_equal(evil_request(&l, result, rq, 0), GN_WC_REMOTE_ACCESS);
	assert_ptr_equal(memmem(result->data, SERVE_CHUNK, SECRET, strlen(SECRET)), NULL);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	loot_end(&l);
}

/* A message that is no request, on a connection of its own: the socket is closed. */
static void evil_message(const struct serve_request *rq, size_t len, const int *fd)
{
	static uint8_t msg[sizeof(*rq) + SERVE_CHUNK + 64];
	const uint64_t end_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct loot l;

	loot_served(&l);
	memcpy(msg, rq, sizeof(*rq));
	assert_int_equal(wire_send(l.sock, msg, len, fd, fd ? 1 : 0), 0);
	while (send(l.sock, rq, sizeof(*rq), MSG_NOSIGNAL | MSG_DONTWAIT) >= 0 || errno == EAGAIN)
		assert_true(gn_now_ns() < end_ns);
	assert_true(errno == EPIPE || errno == ECONNRESET);
	loot_end(&l);
}

static void evil_garbage(int ctl)
{
	struct serve_request rq = {.op = GN_OP_READ, .key = evil_keys(ctl).own, .length = 8};
	const size_t len = sizeof(rq);
	int fd;

	evil_message(&rq, 1, NULL);
	evil_message(&rq, len + 8, NULL);
	evil_message(&rq, len, (fd = dup(ctl), &fd));
	close(fd);
	rq.length = 0;
	evil_message(&rq, len, NULL);
	rq.length = UINT64_MAX;
	evil_message(&rq, len, NULL);
	rq.op = GN_OP_WRITE;
	evil_message(&rq, len + SERVE_CHUNK, NULL);
	rq.length = SERVE_CHUNK + 16;
	evil_message(&rq, len + SERVE_CHUNK + 16, NULL);
	rq.length = SERVE_CHUNK;
	evil_message(&rq, len + SERVE_CHUNK + 16, NULL);
	rq.op = GN_OP_CAS;
	rq.length = 16;
	evil_message(&rq, len, NULL);
	rq.length = 8;
	rq.offset = 4;
	evil_message(&rq, len, NULL);
	rq.op = GN_OP_SEND;
	evil_message(&rq, len, NULL);
	rq.op = UINT32_MAX;
	evil_message(&rq, len, NULL);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* Requests without end, whose results it does not read. */
static void evil_flood(int ctl)
{
	const struct serve_request rq = {
		.op = GN_OP_READ, .key = evil_keys(ctl).own, .length = GN_PAGE};
	struct pollfd pfd = {.fd = ctl, .events = POLLIN};
	struct loot l;

	loot_served(&l);
	raw_turn_end(ctl);
	while (!poll(&pfd, 1, 0))
		for (int i = 0; i < 64; i++)
			send(l.sock, &rq, sizeof(rq), MSG_NOSIGNAL | MSG_DONTWAIT);
	raw_turn_wait(ctl);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
	loot_end(&l);
}

static const struct raw_role roles[] = {
	{"requests", evil_requests},
	{"garbage", evil_garbage},
	{"flood", evil_flood},
	{NULL, NULL},
};

/* ---- the owner ---- */

/* An honest client of the same region reads all of it, beside the hostile one. */
static void honest_reads(struct victim *v)
{
	struct side honest;
	struct gn_qp *c, *s;
	struct gn_remote remote;
	struct gn_sge sge;
	struct gn_wr wr;

	side_make(&honest);
	side_connect(&honest, &v->side, ADDR, &c, &s);
	sge = (struct gn_sge){honest.buf, GN_PAGE, gn_mr_lkey(honest.mr)};
	assert_int_equal(gn_mr_remote(v->part, &remote), 0);
	for (uint64_t id = 1; id <= 100; id++) {
		memset(honest.buf, 0, GN_PAGE);
		gn_wr_rdma(&wr, GN_OP_READ, id, &sge, &remote, 0, GN_SIGNALED);
		assert_int_equal(gn_post_send(c, &wr, NULL), 0);
		side_expect(honest.cq, id, GN_WC_OK);
		assert_memory_equal(honest.buf, v->before + GN_PAGE, GN_PAGE);
	}
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(s), 0);
	side_free(&honest);
}

static void victim_send_keys(struct victim *v)
{
	struct gn_remote part, all;
	struct evil_keys keys;

	assert_int_equal(gn_mr_remote(v->part, &part), 0);
	assert_int_equal(gn_mr_remote(v->all, &all), 0);
	keys = (struct evil_keys){part.key, all.key};
	assert_int_equal(write(v->evil.ctl, &keys, sizeof(keys)), sizeof(keys));
}

/* connections: of the hostile client. */
static void served_as(const char *role, unsigned connections)
{
	struct victim v;

	victim_make(&v);
	victim_register(&v, GN_PAGE, GN_PAGE, GN_REMOTE_READ);
	raw_start(&v.evil, role);
	victim_send_keys(&v);
	while (v.n_qps < connections)
		victim_accept_one(&v);
	victim_check(&v);
	honest_reads(&v);
	victim_free(&v);
}

static void requests(void **state)
{
	(void)state;
	served_as("same-user-requests", 1);
}

static void garbage(void **state)
{
	(void)state;
	served_as("same-user-garbage", 12);
}

static void flood(void **state)
{
	struct victim v;

	(void)state;
	victim_make(&v);
	victim_register(&v, GN_PAGE, GN_PAGE, GN_REMOTE_READ);
	raw_start(&v.evil, "same-user-flood");
	victim_send_keys(&v);
	victim_accept_one(&v);
	raw_turn_wait(v.evil.ctl);
	honest_reads(&v);
	raw_turn_end(v.evil.ctl);
	victim_check(&v);
	victim_free(&v);
}

/* ---- a hostile owner: the victim requests what the owner should execute ---- */

#define OWNER_KEY ((uint32_t)RAW_KEY)

struct owner {
	struct victim victim;
	struct raw raw;
	struct gn_qp *qp; /* the victim's */
	int pair[2], result_fd;
	struct serve_result *result;
};

static void owner_make(struct owner *o)
{
	void *mem;

	victim_make(&o->victim);
	raw_make(&o->raw);
	o->raw.sock = raw_dial(NAME);
	raw_say(&o->raw, WIRE_HELLO, o->raw.area_fd, o->raw.grants_fd);
	victim_accept_one(&o->victim);
	o->qp = o->victim.qps[0];
	o->result_fd = raw_memfd((sizeof(*o->result) + GN_PAGE - 1) / GN_PAGE * GN_PAGE, &mem);
	o->result = mem;
	assert_int_equal(
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, o->pair), 0);
	raw_grant(&o->raw, 77, GN_PAGE);
	o->raw.grants[RAW_KEY >> 16].access |= GRANT_SERVED;
}

static void owner_free(struct owner *o)
{
	struct victim *v = &o->victim;

	munmap(o->result, sizeof(*o->result));
	close(o->result_fd);
	close(o->pair[0]);
	close(o->pair[1]);
	raw_free(&o->raw);
	assert_int_equal(gn_qp_destroy(o->qp), 0);
	assert_int_equal(gn_listener_destroy(v->listener), 0);
	assert_int_equal(gn_mr_deregister(v->all), 0);
	assert_int_equal(gn_mem_free(v->mem), 0);
	assert_int_equal(gn_pd_destroy(v->other_pd), 0);
	side_free(&v->side);
}

static void owner_serves(const struct owner *o, int sock, int result_fd)
{
	const struct wire_head head = wire_head(WIRE_SERVE);
	const int fds[2] = {sock, result_fd};

	assert_int_equal(wire_send(o->raw.sock, &head, sizeof(head), fds, 2), 0);
}

/* The posting thread does not wait. */
static void owner_post(struct owner *o, enum gn_op op, uint32_t len)
{
	struct side *side = &o->victim.side;
	struct gn_sge sge = {side->buf, len, gn_mr_lkey(side->mr)};
	const struct gn_remote remote = {.key = OWNER_KEY};
	const uint64_t begin_ns = gn_now_ns() - cost_queued_ns();
	struct gn_wr wr;

	gn_wr_rdma(&wr, op, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(o->qp, &wr, NULL), 0);
	assert_true(gn_now_ns() - cost_queued_ns() - begin_ns < SHM_SERVE_WAIT_NS / 2);
}

static void owner_expect(struct owner *o, enum gn_wc_status status)
{
	side_expect(o->victim.side.cq, 1, status);
}

/* It grants, and sends nothing to request it with. */
static void owner_absent(void **state)
{
	struct owner o;

	(void)state;
	owner_make(&o);
	owner_post(&o, GN_OP_READ, 8);
	owner_expect(&o, GN_WC_REMOTE_ACCESS);
	owner_free(&o);
}

/* What it sends is no socket, or no memory that cannot shrink; or it sends it twice. */
static void owner_sends(int sock, int result_fd, bool twice)
{
	struct gn_event ev;
	struct owner o;

	owner_make(&o);
	owner_serves(&o, sock < 0 ? o.pair[1] : sock, result_fd < 0 ? o.result_fd : result_fd);
	if (twice)
		owner_serves(&o, o.pair[1], o.result_fd);
	do {
		assert_int_equal(
			gn_chan_wait(o.victim.side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	} while (ev.type != GN_EVENT_DISCONNECTED);
	owner_free(&o);
}

static void owner_bad_fds(void **state)
{
	const int stream = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int memory = memfd_create("no seals", MFD_CLOEXEC);

	(void)state;
	assert_int_equal(ftruncate(memory, 1 << 20), 0);
	owner_sends(stream, -1, false);
	owner_sends(memory, -1, false);
	owner_sends(-1, memory, false);
	owner_sends(-1, stream, false);
	owner_sends(-1, -1, true);
	close(stream);
	close(memory);
}

/* It never answers: the request ends. */
static void owner_silent(void **state)
{
	struct owner o;

	(void)state;
	owner_make(&o);
	owner_serves(&o, o.pair[1], o.result_fd);
	owner_post(&o, GN_OP_READ, 8);
	owner_expect(&o, GN_WC_RETRY);
	owner_free(&o);
}

/* It closes its end. */
static void owner_closes(void **state)
{
	struct owner o;

	(void)state;
	owner_make(&o);
	owner_serves(&o, o.pair[1], o.result_fd);
	shutdown(o.pair[0], SHUT_RDWR);
	owner_post(&o, GN_OP_WRITE, 8);
	owner_expect(&o, GN_WC_RETRY);
	owner_free(&o);
}

/* Its results have wrong numbers, and any status. */
static void owner_lies(void **state)
{
	struct owner o;

	(void)state;
	owner_make(&o);
	owner_serves(&o, o.pair[1], o.result_fd);
	o.result->serial = UINT64_MAX;
	o.result->status = GN_WC_OK;
	memset(o.victim.side.buf, 0x11, 64);
	memset(o.result->data, 0x22, SERVE_CHUNK);
	owner_post(&o, GN_OP_READ, 8);
	assert_int_equal(gn_cq_poll(o.victim.side.cq, &(struct gn_wc){.id = 0}, 1), 0);
	assert_int_equal(o.victim.side.buf[0], 0x11);
	o.result->status = 0xffffffff;
	__atomic_store_n(&o.result->serial, 1, __ATOMIC_RELEASE);
	owner_expect(&o, GN_WC_REMOTE_ACCESS);
	assert_int_equal(o.victim.side.buf[0], 0x11);
	owner_free(&o);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE(requests),	RAW_CASE(garbage),	 RAW_CASE(flood),
		RAW_CASE(owner_absent), RAW_CASE(owner_bad_fds), RAW_CASE(owner_silent),
		RAW_CASE(owner_closes), RAW_CASE(owner_lies),
	};

	if (argc == 3)
		return raw_run_role(roles, argv[1], atoi(argv[2]));
	return cmocka_run_group_tests(tests, NULL, NULL);
}
