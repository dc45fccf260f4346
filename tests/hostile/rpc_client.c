/* SPDX-License-Identifier: MIT */
/*
 * Clients that mean ill: they speak the first words of an RPC client, and then write anything
 * anywhere they may. Beside them an honest client calls, on the same server thread, and must get its
 * own results, in time, each time. In the end the server has nothing left of those who went, and
 * does nothing when all are silent.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/resource.h>

#include "fuzz.h"
#include "rpc/wire.h"
#include "rpc_world.h"

#define EVILS	 3u
#define SENDS	 64u
#define STALL_NS (unit_slow() ? 5000000000u : 1000000000u)

struct evil {
	const char *addr;
	struct gn_fabric *fabric;
	uint64_t seed;
	bool *stop;
	unsigned lives, requests, answered; /* atomic */
	int failed;

	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_qp *qp;
	struct gn_mem *mem, *reply;
	struct gn_mr *mr, *reply_mr;
	uint8_t *buf;
	struct rpc_hello hello;
	struct rpc_welcome welcome;
	uint32_t number, results;
	bool up;
};

#define BUF_BYTES (1u << 20)

/* ---- its life ---- */

static void evil_end(struct evil *e)
{
	if (e->up && fuzz_pick(2))
		gn_disconnect(e->qp);
	gn_qp_destroy(e->qp);
	gn_mr_deregister(e->mr);
	gn_mr_deregister(e->reply_mr);
	gn_mem_free(e->mem);
	gn_mem_free(e->reply);
	gn_pd_destroy(e->pd);
	gn_cq_destroy(e->cq);
	gn_chan_destroy(e->chan);
	e->up = false;
	e->qp = NULL;
	e->mr = e->reply_mr = NULL;
	e->mem = e->reply = NULL;
	e->pd = NULL;
	e->cq = NULL;
	e->chan = NULL;
}

static int evil_make(struct evil *e)
{
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = SENDS, .max_inline = 64};

	EXPECT(gn_chan_create(e->ctx, &e->chan) == 0);
	EXPECT(gn_cq_create(e->ctx,
			    &(struct gn_cq_opts){.size = sizeof(struct gn_cq_opts),
						 .depth = 4 * SENDS,
						 .chan = e->chan},
			    &e->cq) == 0);
	EXPECT(gn_pd_create(e->ctx, &e->pd) == 0);
	EXPECT(gn_mem_alloc(e->fabric, BUF_BYTES, GN_REMOTE_READ, &e->mem) == 0);
	EXPECT(gn_mr_register(e->pd, e->mem, 0, BUF_BYTES, GN_LOCAL_WRITE | GN_REMOTE_READ,
			      &e->mr) == 0);
	EXPECT(gn_mem_alloc(e->fabric, BUF_BYTES, GN_REMOTE_WRITE, &e->reply) == 0);
	EXPECT(gn_mr_register(e->pd, e->reply, 0, BUF_BYTES, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
			      &e->reply_mr) == 0);
	qp.send_cq = qp.recv_cq = e->cq;
	qp.chan = e->chan;
	EXPECT(gn_qp_create(e->pd, &qp, &e->qp) == 0);
	e->buf = gn_mem_addr(e->mem);
	return 0;
}

static void draw_hello(struct evil *e)
{
	struct gn_remote reply;

	gn_mr_remote(e->reply_mr, &reply);
	e->hello = (struct rpc_hello){.magic = RPC_MAGIC,
				      .version = RPC_VERSION,
				      .bytes = sizeof(e->hello),
				      .slots = 1u << fuzz_pick(5),
				      .max_request = 64u << fuzz_pick(7),
				      .max_result = 64u << fuzz_pick(7),
				      .window = 1 + fuzz_pick(64),
				      .reply_key = fuzz_pick(4) ? reply.key : fuzz_strange(),
				      .nonce = fuzz_any()};
	if (!fuzz_pick(4)) { /* one field that is not as it should be */
		const uint32_t word = fuzz_strange();

		memcpy((uint8_t *)&e->hello + fuzz_pick(sizeof(e->hello) / 4) * 4, &word, 4);
	}
}

/* Connected, with a welcome that fits what was asked for; or not, which is no failure. */
static int evil_begin(struct evil *e)
{
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &e->hello, .private_len = sizeof(e->hello)};
	struct gn_event event;

	EXPECT(evil_make(e) == 0);
	draw_hello(e);
	if (!fuzz_pick(16))
		opts.private_len = fuzz_pick(sizeof(e->hello));
	if (gn_connect_wait(e->qp, e->addr, &opts, &event))
		return 0;
	memcpy(&e->welcome, event.private_data, sizeof(e->welcome));
	e->number = 1;
	e->results = 0;
	e->up = true;
	__atomic_fetch_add(&e->lives, 1, __ATOMIC_RELAXED);
	return 0;
}

/* ---- what it does ---- */

static void post(struct evil *e, struct gn_wr *wr)
{
	struct gn_wc wc[16];
	int n;

	wr->flags |= GN_SIGNALED;
	for (unsigned tries = 0; e->up && gn_post_send(e->qp, wr, NULL) && tries < 10; tries++)
		gn_yield();
	n = gn_cq_poll(e->cq, wc, 16);
	for (int i = 0; i < n; i++)
		if (wc[i].status != GN_WC_OK)
			e->up = false; /* the server had enough of it */
}

static void write_at(struct evil *e, uint32_t from, uint64_t to, uint32_t len, uint32_t key)
{
	const struct gn_sge sge = {e->buf + from, len, gn_mr_lkey(e->mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &(struct gn_remote){.key = key}, to, 0);
	post(e, &wr);
}

static uint64_t request_bytes(const struct evil *e)
{
	return rpc_given_up_at(rpc_stride(e->welcome.max_request), e->welcome.slots,
			       e->welcome.window);
}

/* An entry as honest as is drawn; returns how many bytes it takes. */
static uint32_t draw_entry(struct evil *e, uint8_t *to, uint32_t room, uint32_t index)
{
	static const uint16_t methods[] = {ECHO,       LATER, BLOB,	   SUM,
					   ROOM_LATER, NEVER, GN_RPC_PING, GN_RPC_STATS_JSON};
	struct rpc_entry entry = {
		.len = fuzz_pick(64), .kind = methods[fuzz_pick(8)], .index = (uint16_t)index};
	struct gn_remote mine;

	if (rpc_align8(entry.len) + sizeof(entry) > room)
		entry.len = 0;
	for (uint32_t i = 0; i < entry.len; i++)
		to[sizeof(entry) + i] = (uint8_t)fuzz_any();
	if (!fuzz_pick(8) && room >= sizeof(entry) + sizeof(struct rpc_far)) {
		struct rpc_far far;

		gn_mr_remote(e->mr, &mine);
		far = (struct rpc_far){.offset = fuzz_pick(2) ? 0 : fuzz_strange(),
				       .key = fuzz_pick(3) ? mine.key : fuzz_strange(),
				       .len = fuzz_pick(2) ? fuzz_pick(BUF_BYTES) : fuzz_strange()};
		entry.index |= RPC_FAR;
		entry.len = sizeof(far);
		memcpy(to + sizeof(entry), &far, sizeof(far));
	}
	if (!fuzz_pick(40))
		entry.len = fuzz_strange();
	if (!fuzz_pick(40))
		entry.index = (uint16_t)fuzz_strange();
	memcpy(to, &entry, sizeof(entry));
	return (uint32_t)sizeof(entry) + rpc_align8(entry.len);
}

/* The next message: mostly one that is taken, with something wrong in it now and then. */
static void send_request(struct evil *e)
{
	const uint32_t max = rpc_max_len(e->welcome.max_request);
	const uint32_t slot = e->number & (e->welcome.slots - 1);
	const uint64_t to = slot * rpc_stride(e->welcome.max_request);
	struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, e->number),
				.nonce = e->hello.nonce,
				.flags = fuzz_pick(2) ? RPC_REPLY : 0,
				.word = e->results};
	uint32_t at = 0, n = 1 + fuzz_pick(3), bytes;

	for (uint32_t i = 0; i < n && at + sizeof(struct rpc_entry) <= max; i++)
		at += draw_entry(e, e->buf + sizeof(struct rpc_head) + at, max - at, i);
	seal.len = at <= max ? at : max;
	seal.aux = (uint16_t)n;
	if (!fuzz_pick(40))
		seal.aux = (uint16_t)fuzz_strange();
	if (!fuzz_pick(40))
		seal.len = fuzz_strange() % (BUF_BYTES / 2) & ~7u;
	if (!fuzz_pick(40))
		seal.word = fuzz_strange();
	if (!fuzz_pick(40))
		seal.seq = rpc_seq(e->welcome.epoch, e->number + fuzz_pick(3) - 1);
	if (!fuzz_pick(40))
		seal.flags = (uint16_t)fuzz_strange();
	bytes = (uint32_t)rpc_seal(e->buf, &seal);
	if (bytes > max + 32)
		bytes = max + 32;
	write_at(e, 0, to, fuzz_pick(20) ? bytes : fuzz_pick(bytes), e->welcome.request_key);
	e->number++;
	__atomic_fetch_add(&e->requests, 1, __ATOMIC_RELAXED);
	for (unsigned i = fuzz_pick(6); i > 3; i--) { /* changed while it is being served */
		const uint32_t off = fuzz_pick(bytes), len = fuzz_pick(bytes - off);

		for (uint32_t k = 0; k < len; k++)
			e->buf[off + k] = (uint8_t)fuzz_any();
		write_at(e, off, to + off, len, e->welcome.request_key);
	}
}

/* An honest client would take its results: so does this one, sometimes, and goes on. */
static void read_results(struct evil *e)
{
	const uint64_t stride = rpc_stride(e->welcome.max_result);
	const uint32_t next = e->results + 1;
	const struct gn_sge sge = {e->buf, (uint32_t)stride, gn_mr_lkey(e->mr)};
	struct gn_wr wr;
	uint64_t seq;

	gn_wr_rdma(&wr, GN_OP_READ, 0, &sge, &(struct gn_remote){.key = e->welcome.result_key},
		   (next & (e->welcome.slots - 1)) * stride, 0);
	post(e, &wr);
	memcpy(&seq, e->buf, sizeof(seq)); /* shared memory: it is there already */
	if (e->up && seq == rpc_seq(e->welcome.epoch, next)) {
		e->results++;
		__atomic_fetch_add(&e->answered, 1, __ATOMIC_RELAXED);
	}
}

static void tell(struct evil *e)
{
	uint64_t word = rpc_seq(fuzz_pick(4) ? e->welcome.epoch : fuzz_any(),
				fuzz_pick(2) ? e->results : fuzz_strange());

	memcpy(e->buf, &word, sizeof(word));
	write_at(e, 0, rpc_ack_at(rpc_stride(e->welcome.max_request), e->welcome.slots),
		 sizeof(word), e->welcome.request_key);
}

static void scribble(struct evil *e)
{
	const uint64_t all = request_bytes(e);
	const uint64_t to = fuzz_any() % all;
	const uint32_t left = (uint32_t)(all - to), len = fuzz_pick(left < 300 ? left : 300);

	for (uint32_t i = 0; i < len; i++)
		e->buf[i] = (uint8_t)fuzz_any();
	write_at(e, 0, to, len, e->welcome.request_key);
}

static void flood(struct evil *e)
{
	for (unsigned n = fuzz_pick(300); n && e->up; n--) {
		struct gn_wr wr;

		gn_wr_init(&wr, GN_OP_WRITE_IMM, 0, NULL, 0, fuzz_pick(2) ? GN_SOLICITED : 0);
		wr.imm = fuzz_any();
		post(e, &wr);
	}
}

/* What nobody may: it costs the connection. */
static void trespass(struct evil *e)
{
	const struct gn_sge sge = {e->buf, 64, gn_mr_lkey(e->mr)};
	struct gn_wr wr;

	switch (fuzz_pick(4)) {
	case 0:
		write_at(e, 0, 0, 64, fuzz_any());
		break;
	case 1:
		write_at(e, 0, 0, 64, e->welcome.result_key);
		break;
	case 2:
		write_at(e, 0, fuzz_any(), 64, e->welcome.request_key);
		break;
	default:
		gn_wr_send(&wr, 0, &sge, 0); /* there is no receive for its bytes */
		post(e, &wr);
		break;
	}
}

static void act(struct evil *e)
{
	const uint32_t what = fuzz_pick(100);
	const bool room = e->number - e->results <= e->welcome.slots;

	/* It must get along for a while to be let do anything. */
	if (what < 45 && (room || !fuzz_pick(50)))
		send_request(e);
	else if (what < 80)
		read_results(e);
	else if (what < 86)
		tell(e);
	else if (what < 92)
		scribble(e);
	else if (what < 96)
		flood(e);
	else if (what == 96 && !fuzz_pick(3))
		trespass(e);
	else
		gn_sleep_us(fuzz_pick(2000)); /* until it is put aside */
}

static int evil_lives(struct evil *e)
{
	EXPECT(gn_ctx_create(e->fabric, &e->ctx) == 0);
	while (!__atomic_load_n(e->stop, __ATOMIC_ACQUIRE)) {
		struct gn_event event;
		unsigned acts = fuzz_pick(300);

		EXPECT(evil_begin(e) == 0);
		while (acts-- && e->up && !__atomic_load_n(e->stop, __ATOMIC_ACQUIRE)) {
			act(e);
			if (!gn_chan_next(e->chan, &event) && event.type == GN_EVENT_DISCONNECTED)
				e->up = false;
		}
		evil_end(e);
	}
	EXPECT(gn_ctx_destroy(e->ctx) == 0);
	return 0;
}

static void evil_main(void *arg)
{
	struct evil *e = arg;

	fuzz_own = e->seed;
	e->failed = evil_lives(e);
}

/* ---- the honest one ---- */

/* What the hostile clients have done so far. */
struct sums {
	unsigned lives, requests, answered;
};

static struct sums sum_up(const struct evil *evils)
{
	struct sums sums = {0};

	for (unsigned i = 0; i < EVILS; i++) {
		sums.lives += __atomic_load_n(&evils[i].lives, __ATOMIC_RELAXED);
		sums.requests += __atomic_load_n(&evils[i].requests, __ATOMIC_RELAXED);
		sums.answered += __atomic_load_n(&evils[i].answered, __ATOMIC_RELAXED);
	}
	return sums;
}

static bool is_enough(struct sums sums, unsigned calls)
{
	return calls > 100 && sums.lives > 5 && sums.answered > 20;
}

/* Until end_ns; beside hostile clients, which may be NULL, until enough has been done. */
static int honest_calls(struct world *w, const struct evil *evils, uint64_t end_ns, unsigned *calls)
{
	const uint64_t deadline_ns = end_ns + UNIT_PATIENCE_US * 1000ull;
	struct gn_rpc_client *clients[GN_RPC_MODES];
	uint64_t slowest_ns = 0;

	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		const struct gn_rpc_client_opts opts = in_mode(mode);

		EXPECT(gn_rpc_client_open(w->fabric, w->addr, &opts, &clients[mode]) == 0);
	}
	while (gn_now_ns() < end_ns || (evils && !is_enough(sum_up(evils), *calls))) {
		const uint64_t begin_ns = gn_now_ns();

		EXPECT(begin_ns < deadline_ns);
		EXPECT(call_echo(clients[*calls % 3], *calls % 11 ? ECHO : LATER, *calls % 700,
				 *calls) == 0);
		if (gn_now_ns() - begin_ns > slowest_ns)
			slowest_ns = gn_now_ns() - begin_ns;
		if (!(++*calls % 1000))
			gn_sleep_us(3000);
	}
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(gn_rpc_client_close(clients[mode]) == 0);
	print_message("# the honest client: %u calls, the slowest took %.1f ms\n", *calls,
		      (double)slowest_ns * 1e-6);
	EXPECT(slowest_ns < STALL_NS);
	return 0;
}

static unsigned open_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned n = 0;

	while (dir && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n;
}

static uint64_t cpu_ns(void)
{
	struct rusage use;

	getrusage(RUSAGE_SELF, &use);
	return (uint64_t)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1000000000u +
	       (uint64_t)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) * 1000u;
}

/* Handlers of others may answer with what a request says, but not with gigabytes of it. */
static void blob_of_64k(struct gn_rpc_request *request, void *arg)
{
	static const uint8_t bytes[65536];
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	struct two want = {0};

	(void)arg;
	memcpy(&want, data, len < sizeof(want) ? len : sizeof(want));
	gn_rpc_answer(request, GN_RPC_OK, bytes, want.bytes % sizeof(bytes));
}

static int start(struct world *w, const char *addr)
{
	struct service *s = &w->service;

	gn_mutex_init(&s->lock);
	EXPECT(gn_fabric_open("shm", &w->fabric) == 0);
	w->addr = addr;
	w->opts = (struct gn_rpc_server_opts){
		.size = sizeof(struct gn_rpc_server_opts), .peer = service_peer, .peer_arg = s};
	EXPECT(gn_rpc_server_create(w->fabric, addr, &w->opts, &s->server) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, LATER, put_aside, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, ROOM_LATER, room_later, s) == 0);
	EXPECT(gn_rpc_server_handle(s->server, SUM, sum, NULL) == 0);
	EXPECT(gn_rpc_server_handle(s->server, BLOB, blob_of_64k, NULL) == 0);
	EXPECT(gn_rpc_server_start(s->server) == 0);
	EXPECT(gn_thread_start("answerer", answer_later, s, &s->answerer) == 0);
	return 0;
}

static int finish(struct world *w)
{
	struct service *s = &w->service;

	gn_rpc_server_destroy(s->server);
	__atomic_store_n(&s->stop, true, __ATOMIC_RELEASE);
	EXPECT(gn_thread_join(s->answerer) == 0);
	gn_mutex_fini(&s->lock);
	EXPECT(s->came == s->went);
	EXPECT(gn_fabric_close(w->fabric) == 0);
	return 0;
}

static int clients_are(struct gn_rpc_server *server, uint64_t n)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_rpc_counters count = {.size = sizeof(count)};

	do {
		EXPECT(gn_rpc_server_counters(server, &count) == 0);
		EXPECT(gn_now_ns() < deadline_ns);
		gn_sleep_us(1000);
	} while (count.clients != n);
	return 0;
}

static void test_hostile_clients(void **state)
{
	struct world *w = calloc(1, sizeof(*w));
	struct evil *evils = calloc(EVILS, sizeof(*evils));
	struct gn_thread *threads[EVILS];
	unsigned calls = 0, fds;
	const uint64_t end_ns = fuzz_begin() + fuzz_us() * 2000;
	bool stop = false;
	struct sums sums;
	char addr[64];
	int rc;

	(void)state;
	assert_true(w && evils);
	gn_log_to(fuzz_be_silent, NULL);
	snprintf(addr, sizeof(addr), "shm:hostile-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(start(w, addr), 0);
	fds = open_fds();
	for (unsigned i = 0; i < EVILS; i++) {
		evils[i] = (struct evil){.addr = addr,
					 .fabric = w->fabric,
					 .seed = (uint64_t)fuzz_any() << 8 | (i + 1),
					 .stop = &stop};
		assert_int_equal(gn_thread_start("evil", evil_main, &evils[i], &threads[i]), 0);
	}
	rc = honest_calls(w, evils, end_ns, &calls);
	__atomic_store_n(&stop, true, __ATOMIC_RELEASE);
	for (unsigned i = 0; i < EVILS; i++) {
		assert_int_equal(gn_thread_join(threads[i]), 0);
		assert_int_equal(evils[i].failed, 0);
	}
	assert_int_equal(rc, 0);
	sums = sum_up(evils);
	print_message("# the others: %u lives, %u requests, %u results\n", sums.lives,
		      sums.requests, sums.answered);
	assert_true(is_enough(sums, calls));
	/* What they had is free again, and those that are yet to come find all well. */
	assert_int_equal(clients_are(w->service.server, 0), 0);
	gn_sleep_us(200000);
	/* The service may look at one meanwhile; two more a thread makes when it first has to wait
	 * for a client's receive. */
	assert_true(open_fds() <= fds + 3);
	calls = 0;
	assert_int_equal(honest_calls(w, NULL, gn_deadline_us(100000), &calls), 0);
	assert_int_equal(finish(w), 0);
	gn_log_to(NULL, NULL);
	free(evils);
	free(w);
}

/* ---- silence ---- */

/* Left behind: half a message, results that nobody takes, memory that nobody reads. */
static void leave_half(struct evil *e)
{
	struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, 1), .len = 64, .aux = 1};

	rpc_seal(e->buf, &seal);
	write_at(e, 0, rpc_stride(e->welcome.max_request), 48, e->welcome.request_key);
}

static void leave_results(struct evil *e, uint16_t method, uint32_t entries)
{
	const struct two want = {5000, 0};

	for (uint32_t n = 1; n <= e->welcome.slots; n++) {
		const uint64_t to =
			(n & (e->welcome.slots - 1)) * rpc_stride(e->welcome.max_request);
		struct rpc_seal seal = {.seq = rpc_seq(e->welcome.epoch, n),
					.nonce = e->hello.nonce,
					.len = entries * 16,
					.aux = (uint16_t)entries};
		const struct rpc_entry entry = {.len = sizeof(want), .kind = method};

		for (uint32_t i = 0; i < entries; i++) {
			memcpy(e->buf + 24 + i * 16, &entry, sizeof(entry));
			memcpy(e->buf + 32 + i * 16, &want, sizeof(want));
		}
		write_at(e, 0, to, (uint32_t)rpc_seal(e->buf, &seal), e->welcome.request_key);
	}
}

/* A share of one core, over half a second in which nobody does anything. */
static double idle_share(void)
{
	const uint64_t cpu = cpu_ns(), ns = gn_now_ns();

	gn_sleep_us(500000);
	return (double)(cpu_ns() - cpu) / (double)(gn_now_ns() - ns);
}

static void test_silence(void **state)
{
	static const char *const what[] = {"nobody", "half a message", "results", "memory"};
	struct world *w = calloc(1, sizeof(*w));
	unsigned calls = 0;
	char addr[64];

	(void)state;
	assert_non_null(w);
	gn_log_to(fuzz_be_silent, NULL);
	snprintf(addr, sizeof(addr), "shm:hostile-rpc-%llx", (unsigned long long)gn_random());
	assert_int_equal(start(w, addr), 0);
	for (unsigned k = 0; k < 4; k++) {
		struct evil e = {.addr = addr, .fabric = w->fabric};
		double share;

		assert_int_equal(gn_ctx_create(e.fabric, &e.ctx), 0);
		do { /* until it has drawn a hello that is taken */
			evil_end(&e);
			assert_int_equal(evil_begin(&e), 0);
		} while (!e.up || e.welcome.slots < 2 || e.welcome.max_request < 512 ||
			 e.welcome.max_result < 64 || e.welcome.window < 16);
		if (k == 1)
			leave_half(&e);
		if (k == 2)
			leave_results(&e, ECHO, 16 / e.welcome.slots + 1);
		if (k == 3)
			leave_results(&e, BLOB, 1);
		gn_sleep_us(1200000);	 /* it has shown patience */
		shut(&w->service, true); /* it sleeps longer then */
		share = idle_share();
		shut(&w->service, false);
		print_message("# left behind: %s; %.1f %% of a core\n", what[k], share * 100);
		if (!unit_slow())
			assert_true(share < 0.1);
		assert_int_equal(honest_calls(w, NULL, gn_deadline_us(50000), &calls), 0);
		evil_end(&e);
		assert_int_equal(gn_ctx_destroy(e.ctx), 0);
	}
	assert_int_equal(finish(w), 0);
	gn_log_to(NULL, NULL);
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hostile_clients),
		cmocka_unit_test(test_silence),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
