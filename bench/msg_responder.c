/* SPDX-License-Identifier: MIT */
/*
 * A thread that answers until it is told to stop. The first one is the limit's other side as well.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "msg_hall.h"

#define PORT_FIRST 20000u
#define PORTS	   10000u
#define PORT_TRIES 50
#define IDLE_US	   50u
#define LEAVE_US   3000000u /* for all requesters to be through, when one has failed */

struct responder {
	struct msg_hall *hall;
	uint32_t number;
	uint32_t keys;
	struct gn_fabric *fabric;
	struct gn_mem *data;
	struct gn_msg_responder *msg;
};

/* The answer to a key is its value. */
static int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	const struct responder *s = arg;
	const struct bench_msg_opts *o = &s->hall->opts;
	const uint32_t key = request_get(request, len);

	if (unlikely(key >= s->keys || len != o->request_bytes || max < o->value_bytes))
		return -1;
	memcpy(value, (uint8_t *)gn_mem_addr(s->data) + key * value_stride(o), o->value_bytes);
	return (int)o->value_bytes;
}

/* ---- making ---- */

static int make_data(struct responder *s)
{
	const struct bench_msg_opts *o = &s->hall->opts;
	const int rc = gn_mem_alloc(s->fabric, s->keys * value_stride(o), GN_REMOTE_READ, &s->data);

	for (uint32_t key = 0; !rc && key < s->keys; key++)
		pattern_fill((uint8_t *)gn_mem_addr(s->data) + key * value_stride(o),
			     o->value_bytes, value_seed(o, s->number, key));
	return rc;
}

/* A name, or a port that happens to be free. */
static int listen_somewhere(struct responder *s)
{
	const struct bench_msg_opts *o = &s->hall->opts;
	const struct gn_msg_responder_opts opts = {
		.size = sizeof(opts),
		.answer = answer,
		.arg = s,
		.data = s->data,
		.max_conns = bench_msg_requesters(o),
		.max_pending = o->pending,
		.max_request = o->request_bytes,
		.max_value = o->value_bytes,
		.flags = o->paper ? GN_MSG_PAPER : 0,
	};
	char *addr = s->hall->addr[s->number];
	int rc = -EADDRINUSE;

	for (int i = 0; i < PORT_TRIES && rc == -EADDRINUSE; i++) {
		if (o->host[0])
			snprintf(addr, ADDR_MAX, "verbs:%s:%u", o->host,
				 PORT_FIRST + (unsigned)(gn_random() % PORTS));
		else
			snprintf(addr, ADDR_MAX, "shm:bench-msg-%d", (int)getpid());
		rc = gn_msg_responder_create(s->fabric, addr, &opts, &s->msg);
	}
	return rc;
}

static int start(struct responder *s)
{
	int rc = gn_fabric_open(s->hall->opts.provider, &s->fabric);

	if (!rc)
		rc = make_data(s);
	if (!rc)
		rc = listen_somewhere(s);
	if (rc)
		gn_log(GN_LOG_ERROR, "bench: cannot start a responder over %s: %s",
		       s->hall->opts.provider, gn_strerror(rc));
	return rc;
}

/* ---- answering ---- */

/* All requesters are through, or it does not matter any more. */
static bool is_over(const struct msg_hall *hall, uint64_t *since_ns)
{
	/* Pairs with the releases in crew.c and msg_requester.c. */
	if (__atomic_load_n(&hall->crew.signal, __ATOMIC_ACQUIRE) != SIGNAL_END)
		return false;
	if (!*since_ns)
		*since_ns = gn_now_ns();
	return __atomic_load_n(&hall->left, __ATOMIC_ACQUIRE) ==
		       bench_msg_requesters(&hall->opts) ||
	       hall->crew.failed || gn_now_ns() - *since_ns > LEAVE_US * 1000ull;
}

/* Answers until there is nothing for a while: others on this core run at once then. */
static int answer_some(struct responder *s)
{
	const uint64_t end_ns = s->hall->crowded ? GN_NO_WAIT : gn_deadline_us(IDLE_US);
	int n;

	do
		n = gn_msg_respond(s->msg, end_ns);
	while (n > 0);
	if (s->hall->crowded)
		gn_yield();
	if (bench_stopped())
		return -EINTR;
	return n == -EINTR ? 0 : n;
}

static int serve(struct responder *s)
{
	struct msg_hall *hall = s->hall;
	const struct limit_place place = msg_limit_place(hall);
	uint64_t order, over_ns = 0;
	int rc = 0;

	while (!rc && !is_over(hall, &over_ns)) {
		/* Pairs with the release in pair_order(). */
		order = __atomic_load_n(&hall->crew.pair.order, __ATOMIC_ACQUIRE);
		if (!s->number && (order & 0xff) == ORDER_ECHO)
			rc = bare_answer(&place, order);
		else if (!s->number && (order & 0xff) == ORDER_QUIT)
			break;
		else
			rc = answer_some(s);
	}
	return rc == -EINTR ? 0 : rc;
}

static void account(struct responder *s)
{
	struct msg_account *a = &s->hall->answered[s->number];
	struct gn_msg_stats stats = {.size = sizeof(stats)};

	gn_msg_responder_stats(s->msg, &stats);
	a->requests = stats.requests;
	a->repeats = stats.repeats;
	msg_count(s->fabric, 1, &a->wrs, &a->doorbells, &a->cqes);
}

/* The first is waited for by itself, the others with all that were started. */
static void tell_ready(struct responder *s, int rc)
{
	struct crew_hall *crew = &s->hall->crew;

	if (!rc) /* pairs with the acquire in msg_requester.c */
		__atomic_add_fetch(&s->hall->listening, 1, __ATOMIC_RELEASE);
	if (!s->number)
		peer_answer(&crew->pair, ORDER_START, rc);
	else if (!rc)
		__atomic_add_fetch(&crew->ready, 1, __ATOMIC_RELEASE);
}

int msg_responder_main(struct msg_hall *hall, uint32_t number)
{
	struct responder s = {.hall = hall, .number = number, .keys = keys_of(&hall->opts)};
	int rc;

	sched_setaffinity(0, sizeof(cpu_set_t),
			  number ? &hall->crew.client_cpus[number] : &hall->crew.server_cpus);
	rc = start(&s);
	tell_ready(&s, rc);
	if (!rc) {
		rc = serve(&s);
		account(&s);
	}
	gn_msg_responder_destroy(s.msg);
	gn_mem_free(s.data);
	gn_fabric_close(s.fabric);
	if (rc)
		__atomic_add_fetch(&hall->crew.failed, 1, __ATOMIC_RELEASE);
	return rc;
}
