/* SPDX-License-Identifier: MIT */
/*
 * Calls without copies: requests built in place (prepare and commit) and results used in place, in
 * every mode, small and large, and misuse of both.
 */
#include "rpc_world.h"

#define N     16u
#define LARGE 300000u

/* A call whose result is checked in place, in done. */
struct in_place {
	struct gn_rpc_op op;
	uint32_t seed;
	unsigned ended, right;	     /* right: its bytes were there, and aligned */
	struct gn_rpc_client *again; /* done submits next there, and checks afterwards */
	struct async_call *next;
};

static void look_done(struct gn_rpc_op *op)
{
	struct in_place *l = op->arg;

	l->ended++;
	if (l->again)
		submit_echo(l->again, l->next, ECHO, 0);
	if (op->data || !op->result_len)
		l->right += !((uintptr_t)op->data % 8) &&
			    is_filled(op->data, op->result_len, l->seed);
}

static void look_make(struct in_place *l, unsigned method, uint32_t len, uint32_t seed)
{
	*l = (struct in_place){.seed = seed};
	l->op = (struct gn_rpc_op){.method = method,
				   .request_len = len,
				   .result_room = LARGE,
				   .done = look_done,
				   .arg = l,
				   .flags = GN_RPC_IN_PLACE};
}

static int put(struct gn_rpc_client *client, struct in_place *l)
{
	void *to;

	EXPECT(gn_rpc_prepare(client, &l->op, &to) == 0);
	EXPECT((uintptr_t)to % 8 == 0);
	fill(to, l->op.request_len, l->seed);
	return gn_rpc_commit(client, &l->op);
}

static int wait_look(struct gn_rpc_client *client, const struct in_place *l)
{
	while (!l->ended)
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
	return 0;
}

static int look_check(const struct in_place *l, uint32_t len)
{
	EXPECT(l->ended == 1 && l->op.status == GN_RPC_OK && l->op.result_len == len);
	EXPECT(l->right == 1);
	return 0;
}

static int open_client(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		       uint32_t entries, struct gn_rpc_client **out)
{
	struct gn_rpc_client_opts opts = in_mode(mode);

	opts.slots = 4 * N;
	opts.batch = (struct gn_rpc_batch){.entries = entries, .wait_us = 1000000};
	return gn_rpc_client_open(fabric, w->addr, &opts, out);
}

/* ---- use ---- */

/* Of every length, beside calls that are copied, with and without deadlines. */
static int both_ways(struct gn_rpc_client *client, uint32_t bytes)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct in_place l[N];
	struct async_call f[N];

	for (unsigned i = 0; i < N; i++) {
		look_make(&l[i], i % 3 ? ECHO : LATER, (i * 37) % (bytes + 1), i);
		l[i].op.deadline_ns = i % 2 ? deadline_ns : 0;
		EXPECT(put(client, &l[i]) == 0);
		EXPECT(submit_echo(client, &f[i], ECHO, i % 4 ? deadline_ns : 0) == 0);
	}
	for (unsigned i = 0; i < N; i++) {
		EXPECT(wait_look(client, &l[i]) == 0);
		EXPECT(look_check(&l[i], (i * 37) % (bytes + 1)) == 0);
	}
	EXPECT(wait_all(client, f, N) == 0);
	for (unsigned i = 0; i < N; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	return 0;
}

/* A prepared request may become shorter; a request of a full slot can be prepared. */
static int lengths(struct gn_rpc_client *client)
{
	struct in_place l;
	void *to;

	look_make(&l, ECHO, MAX, 3);
	EXPECT(put(client, &l) == 0);
	EXPECT(wait_look(client, &l) == 0 && look_check(&l, MAX) == 0);
	look_make(&l, ECHO, MAX, 4);
	l.op.deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == 0);
	l.op.request_len = 21;
	fill(to, 21, 4);
	EXPECT(gn_rpc_commit(client, &l.op) == 0);
	EXPECT(wait_look(client, &l) == 0 && look_check(&l, 21) == 0);
	look_make(&l, ECHO, 0, 0);
	EXPECT(put(client, &l) == 0);
	EXPECT(wait_look(client, &l) == 0 && l.op.status == GN_RPC_OK && !l.op.result_len);
	EXPECT(!l.op.data);
	return 0;
}

/* A done that starts another call still has its bytes. */
static int again(struct gn_rpc_client *client)
{
	struct in_place l[N];
	struct async_call f[N];

	for (unsigned i = 0; i < N; i++) {
		look_make(&l[i], ECHO, 100 + i, 50 + i);
		l[i].again = client;
		l[i].next = &f[i];
		f[i].ended = 0;
		EXPECT(put(client, &l[i]) == 0);
	}
	EXPECT(gn_rpc_flush(client) == 0);
	for (unsigned i = 0; i < N; i++) {
		EXPECT(wait_look(client, &l[i]) == 0);
		EXPECT(look_check(&l[i], 100 + i) == 0);
	}
	EXPECT(wait_all(client, f, N) == 0);
	for (unsigned i = 0; i < N; i++)
		EXPECT(async_call_check(&f[i]) == 0);
	return 0;
}

static int put_blob(struct gn_rpc_client *client, struct in_place *l, uint32_t bytes, uint32_t room)
{
	const struct two want = {bytes, 9};
	void *to;

	look_make(l, BLOB, sizeof(want), 9);
	l->op.result_room = room;
	EXPECT(gn_rpc_prepare(client, &l->op, &to) == 0);
	memcpy(to, &want, sizeof(want));
	return gn_rpc_commit(client, &l->op);
}

/* Results too large for a slot, or for the caller, or of calls that completed early. */
static int large(struct gn_rpc_client *client)
{
	struct in_place l, other;

	EXPECT(put_blob(client, &l, LARGE, LARGE) == 0);
	EXPECT(wait_look(client, &l) == 0 && look_check(&l, LARGE) == 0);
	for (uint32_t bytes = 100; bytes <= LARGE; bytes += LARGE - 100) {
		EXPECT(put_blob(client, &l, bytes, bytes - 1) == 0);
		EXPECT(wait_look(client, &l) == 0);
		EXPECT(l.op.status == GN_RPC_TOO_BIG && l.op.result_len == bytes && !l.op.data);
	}
	/* Canceled at any moment, also while it is being read, with another one behind it. */
	for (unsigned polls = 0; polls < 40; polls++) {
		EXPECT(put_blob(client, &l, LARGE, LARGE) == 0);
		EXPECT(put_blob(client, &other, LARGE, LARGE) == 0);
		EXPECT(gn_rpc_flush(client) == 0);
		for (unsigned i = 0; i < polls && !l.ended; i++)
			EXPECT(gn_rpc_poll(client) >= 0);
		if (!l.ended) {
			EXPECT(gn_rpc_cancel(&l.op) == 0);
			EXPECT(l.ended == 1 && l.op.status == GN_RPC_CANCELED && !l.op.data);
		}
		EXPECT(wait_look(client, &other) == 0 && look_check(&other, LARGE) == 0);
	}
	return 0;
}

static int own_code(struct gn_rpc_client *client)
{
	struct in_place l;

	look_make(&l, OWN_STATUS, 0, 0);
	EXPECT(put(client, &l) == 0);
	EXPECT(wait_look(client, &l) == 0 && l.op.status == GN_RPC_FAILED + 34);
	EXPECT(l.op.data && l.op.result_len == 2);
	look_make(&l, NEVER, 0, 0);
	EXPECT(put(client, &l) == 0);
	EXPECT(wait_look(client, &l) == 0 && l.op.status == GN_RPC_NO_METHOD);
	return 0;
}

static int use(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		for (uint32_t entries = 1; entries <= 9; entries += 8) {
			struct gn_rpc_client *client;

			EXPECT(open_client(w, fabric, mode, entries, &client) == 0);
			EXPECT(both_ways(client, 500) == 0);
			EXPECT(lengths(client) == 0);
			EXPECT(again(client) == 0);
			EXPECT(large(client) == 0);
			EXPECT(own_code(client) == 0);
			EXPECT(both_ways(client, 0) == 0);
			EXPECT(gn_rpc_client_close(client) == 0);
		}
	return 0;
}

static void test_use(void **state)
{
	(void)state;
	run_everywhere(use, &(struct gn_rpc_server_opts){.max_slots = 64}, 2);
}

/* ---- misuse ---- */

static int refused(struct gn_rpc_client *client)
{
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	struct in_place l;
	void *to = &l;

	EXPECT(gn_rpc_client_limits(client, &limits) == 0);
	look_make(&l, ECHO, 8, 1);
	EXPECT(gn_rpc_prepare(NULL, &l.op, &to) == -EINVAL);
	EXPECT(gn_rpc_prepare(client, NULL, &to) == -EINVAL);
	EXPECT(gn_rpc_prepare(client, &l.op, NULL) == -EINVAL);
	EXPECT(gn_rpc_commit(NULL, &l.op) == -EINVAL);
	EXPECT(gn_rpc_commit(client, NULL) == -ESRCH);
	EXPECT(gn_rpc_commit(client, &l.op) == -ESRCH);
	l.op.request_len = limits.max_request + 1;
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -EMSGSIZE);
	l.op.request_len = 8;
	l.op.flags = 1;
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -EINVAL);
	EXPECT(gn_rpc_submit(client, &l.op) == -EINVAL);
	l.op.flags = 0; /* result_room without result */
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -EINVAL);
	l.op.flags = GN_RPC_IN_PLACE;
	l.op.done = NULL; /* done is NULL */
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -EINVAL);
	l.op.done = look_done;
	l.op.method = GN_RPC_BUILTIN_END;
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -EINVAL);
	EXPECT(to == &l); /* untouched */
	return 0;
}

/* A prepared request is changed until it does not fit any more. */
static int changed(struct gn_rpc_client *client)
{
	struct in_place l;
	void *to;

	look_make(&l, ECHO, 8, 1);
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == 0);
	l.op.request_len = 9;
	EXPECT(gn_rpc_commit(client, &l.op) == -EINVAL);
	l.op.request_len = 8;
	l.op.method = SUM;
	EXPECT(gn_rpc_commit(client, &l.op) == -EINVAL);
	l.op.method = ECHO;
	l.op.deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	EXPECT(gn_rpc_commit(client, &l.op) == -ESRCH);
	l.op.deadline_ns = 0;
	fill(to, 8, 1);
	EXPECT(gn_rpc_commit(client, &l.op) == 0);
	EXPECT(gn_rpc_commit(client, &l.op) == -ESRCH); /* twice */
	EXPECT(wait_look(client, &l) == 0 && look_check(&l, 8) == 0);
	return 0;
}

/* Prepared and forgotten, or overtaken: it has no effect. */
static int forgotten(struct gn_rpc_client *client)
{
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	struct in_place a, b;
	struct async_call f;
	void *to;

	EXPECT(gn_rpc_client_limits(client, &limits) == 0);
	look_make(&a, ECHO, 40, 1);
	look_make(&b, ECHO, 50, 2);
	for (unsigned i = 0; i < 2 * limits.window; i++)
		EXPECT(gn_rpc_prepare(client, i % 2 ? &b.op : &a.op, &to) == 0);
	EXPECT(gn_rpc_wait(client, GN_FOREVER) == 0); /* nothing is outstanding */
	EXPECT(gn_rpc_cancel(&b.op) == -ESRCH);
	EXPECT(gn_rpc_prepare(client, &a.op, &to) == 0);
	EXPECT(put(client, &b) == 0);
	EXPECT(gn_rpc_commit(client, &a.op) == -ESRCH);
	EXPECT(wait_look(client, &b) == 0 && look_check(&b, 50) == 0);
	/* Another call is started, or the message is sent. */
	EXPECT(gn_rpc_prepare(client, &a.op, &to) == 0);
	EXPECT(submit_echo(client, &f, ECHO, 0) == 0);
	EXPECT(gn_rpc_commit(client, &a.op) == -ESRCH);
	EXPECT(gn_rpc_prepare(client, &a.op, &to) == 0);
	EXPECT(wait_all(client, &f, 1) == 0 && async_call_check(&f) == 0);
	(void)gn_rpc_commit(client, &a.op); /* -ESRCH if f was still to be sent */
	if (a.op.client)
		EXPECT(wait_look(client, &a) == 0);
	EXPECT(put(client, &b) == 0);
	EXPECT(gn_rpc_cancel(&b.op) == 0 && b.ended == 2 && b.op.status == GN_RPC_CANCELED);
	EXPECT(call_echo(client, ECHO, 10, 10) == 0);
	return 0;
}

/* All slots or the whole window are in use: -EAGAIN, until a wait says otherwise. */
static int full(struct world *w, struct gn_rpc_client *client)
{
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	struct in_place *l;
	unsigned n = 0;
	void *to;
	int rc;

	EXPECT(gn_rpc_client_limits(client, &limits) == 0);
	l = calloc(limits.window + 1, sizeof(*l));
	EXPECT(l);
	shut(&w->service, true);
	do {
		look_make(&l[n], LATER, 30, n);
		rc = gn_rpc_prepare(client, &l[n].op, &to);
		if (rc)
			break;
		fill(to, 30, n);
		rc = gn_rpc_commit(client, &l[n].op);
	} while (!rc && ++n <= limits.window);
	EXPECT(rc == -EAGAIN && n >= limits.slots && n <= limits.window);
	shut(&w->service, false);
	while (rc == -EAGAIN) {
		EXPECT(gn_rpc_wait(client, gn_deadline_us(UNIT_PATIENCE_US)) >= 0);
		rc = gn_rpc_prepare(client, &l[n].op, &to);
	}
	EXPECT(!rc);
	fill(to, 30, n);
	EXPECT(gn_rpc_commit(client, &l[n].op) == 0);
	for (unsigned i = 0; i <= n; i++)
		EXPECT(wait_look(client, &l[i]) == 0 && look_check(&l[i], 30) == 0);
	free(l);
	return 0;
}

/*
 * The server restarts between prepare and commit; the prepared call is not valid for the next
 * connection.
 */
static int broken(struct world *w, struct gn_rpc_client *client)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	unsigned status = GN_RPC_OK;
	struct in_place l;
	void *to;
	int rc;

	look_make(&l, ECHO, 20, 1);
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == 0);
	EXPECT(world_restart(w) == 0);
	do {
		rc = gn_rpc_call(client, ECHO, NULL, 0, NULL, 0, NULL, deadline_ns, &status);
	} while (!rc && status == GN_RPC_OK && gn_now_ns() < deadline_ns);
	EXPECT(rc == -ENOTCONN || status == GN_RPC_PEER_GONE);
	fill(to, 20, 1);
	EXPECT(gn_rpc_commit(client, &l.op) == -ENOTCONN);
	EXPECT(gn_rpc_prepare(client, &l.op, &to) == -ENOTCONN);
	do {
		rc = gn_rpc_reconnect(client);
		if (rc)
			gn_sleep_us(1000);
	} while (rc && gn_now_ns() < deadline_ns);
	EXPECT(!rc);
	EXPECT(gn_rpc_commit(client, &l.op) == -ESRCH);
	EXPECT(put(client, &l) == 0);
	EXPECT(wait_look(client, &l) == 0 && look_check(&l, 20) == 0);
	return 0;
}

static int misuse(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_FETCH; mode < GN_RPC_MODES; mode++)
		for (uint32_t entries = 1; entries <= 4; entries += 3) {
			struct gn_rpc_client *client;

			EXPECT(open_client(w, fabric, mode, entries, &client) == 0);
			EXPECT(refused(client) == 0);
			EXPECT(changed(client) == 0);
			EXPECT(forgotten(client) == 0);
			EXPECT(full(w, client) == 0);
			EXPECT(broken(w, client) == 0);
			EXPECT(gn_rpc_client_close(client) == 0);
		}
	return 0;
}

static void test_misuse(void **state)
{
	(void)state;
	run_everywhere(misuse, &(struct gn_rpc_server_opts){.max_slots = SLOTS}, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_use),
		cmocka_unit_test(test_misuse),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
