/* SPDX-License-Identifier: MIT */
/*
 * The turns of the counted process. A message is submitted by the client, then server and client
 * take turns until all of its calls have ended.
 */
#include <errno.h>
#include <stdlib.h>

#include <gannet/exec.h>

#include "count_clock.h"
#include "count_turns.h"

#define COUNTED_CALLS	 4096u
#define COUNTED_MESSAGES 256u /* at least */
/* Of each side for a message; then something is wrong. A parked client takes many, at first. */
#define TURNS_MAX 10000u
#define FREE_US	  1000u
/* By which the clock advances: about as fast as time passes without callgrind. */
#define TURN_NS	   200u /* for each turn, and … */
#define CALL_NS	   50u	/* … for each call of a message */
#define COLLECT_NS 20000u

/* ---- the counted functions ---- */

/*
 * callgrind's file has the cost of what these call. They are not to be inlined, nor to end in a
 * jump.
 */
#define COUNTED(name)                                                          \
	int name(int (*fn)(void *), void *arg);                                \
	__attribute__((noinline, used)) int name(int (*fn)(void *), void *arg) \
	{                                                                      \
		int rc = fn(arg);                                              \
                                                                               \
		__asm__ volatile("" : "+r"(rc));                               \
		return rc;                                                     \
	}

COUNTED(bench_count_submit)
COUNTED(bench_count_collect)
COUNTED(bench_count_server)

static int call_plainly(int (*fn)(void *), void *arg)
{
	return fn(arg);
}

struct ways {
	int (*submit)(int (*fn)(void *), void *arg);
	int (*collect)(int (*fn)(void *), void *arg);
	int (*server)(int (*fn)(void *), void *arg);
};

static const struct ways counted = {bench_count_submit, bench_count_collect, bench_count_server};
static const struct ways warming = {call_plainly, call_plainly, call_plainly};

/* ---- the server's thread ---- */

enum phase { STARTING, FREE, TURNS, STOP };
enum who { CLIENT, SERVER };

struct count_turns {
	struct count_server *server;
	struct gn_thread *thread;
	struct gn_mutex mutex;
	struct gn_cond cond;
	enum phase phase;
	enum who turn;
	const struct ways *ways;
	int rc; /* of start, then of the last turn */
};

static void pass_to(struct count_turns *t, enum who who)
{
	gn_mutex_lock(&t->mutex);
	t->turn = who;
	gn_cond_broadcast(&t->cond);
	gn_mutex_unlock(&t->mutex);
}

static void await_turn(struct count_turns *t, enum who who)
{
	gn_mutex_lock(&t->mutex);
	while (t->turn != who)
		gn_cond_wait(&t->cond, &t->mutex, GN_FOREVER, "a turn");
	gn_mutex_unlock(&t->mutex);
}

static enum phase phase_of(struct count_turns *t)
{
	return __atomic_load_n(&t->phase, __ATOMIC_ACQUIRE);
}

static int server_turn(void *arg)
{
	return gn_rpc_server_poll(arg);
}

static void server_main(void *arg)
{
	struct count_turns *t = arg;
	struct count_server *s = t->server;

	t->rc = s->start(s);
	__atomic_store_n(&t->phase, t->rc ? STOP : FREE, __ATOMIC_RELEASE);
	pass_to(t, CLIENT);
	while (phase_of(t) == FREE)
		if (!gn_rpc_server_poll(s->rpc))
			gn_rpc_server_wait(s->rpc, gn_deadline_us(FREE_US));
	while (phase_of(t) == TURNS) {
		await_turn(t, SERVER);
		if (phase_of(t) == TURNS)
			t->rc = t->ways->server(server_turn, s->rpc);
		pass_to(t, CLIENT);
	}
	s->stop(s);
}

static void free_turns(struct count_turns *t)
{
	gn_cond_fini(&t->cond);
	gn_mutex_fini(&t->mutex);
	free(t);
}

int count_turns_begin(struct count_server *server, struct count_turns **out)
{
	struct count_turns *t = calloc(1, sizeof(*t));
	int rc;

	if (!t)
		return -ENOMEM;
	t->server = server;
	t->turn = SERVER;
	gn_mutex_init(&t->mutex);
	gn_cond_init(&t->cond);
	rc = gn_thread_start("server", server_main, t, &t->thread);
	if (rc) {
		free_turns(t);
		return rc;
	}
	await_turn(t, CLIENT);
	rc = t->rc;
	if (rc) {
		gn_thread_join(t->thread);
		free_turns(t);
		return rc;
	}
	*out = t;
	return 0;
}

void count_turns_end(struct count_turns *t)
{
	__atomic_store_n(&t->phase, STOP, __ATOMIC_RELEASE);
	pass_to(t, SERVER);
	gn_thread_join(t->thread);
	free_turns(t);
}

/* ---- messages ---- */

static int let_serve(struct count_turns *t, const struct ways *ways)
{
	t->ways = ways;
	pass_to(t, SERVER);
	await_turn(t, CLIENT);
	return t->rc < 0 ? t->rc : 0;
}

/* t is NULL where there is no server. It has another turn when nothing has come of the last. */
static int one_message(struct count_turns *t, struct count_client *c, const struct ways *ways)
{
	const uint64_t turn_ns = TURN_NS + CALL_NS * c->batch;
	uint32_t ended = 0, turns = 0;
	bool serve = t != NULL;
	int rc = c->prepare(c);

	if (!rc)
		rc = ways->submit(c->submit, c);
	while (!rc && ended < c->batch) {
		count_clock_step(turn_ns);
		if (serve)
			rc = let_serve(t, ways);
		if (rc)
			break;
		count_clock_step(turn_ns);
		c->deadline_ns = count_clock_ns() + COLLECT_NS;
		rc = ways->collect(c->collect, c);
		serve = t && rc <= 0;
		ended += rc > 0 ? (uint32_t)rc : 0;
		rc = rc < 0 && rc != -ETIMEDOUT ? rc : 0;
		if (++turns == TURNS_MAX + c->batch && ended < c->batch)
			rc = -ETIMEDOUT;
	}
	return rc ? rc : c->check(c);
}

static int all_messages(struct count_turns *t, struct count_client *c, struct count_page *page)
{
	const uint32_t enough = COUNTED_CALLS / c->batch;
	int rc = 0;

	page->messages = enough < COUNTED_MESSAGES ? COUNTED_MESSAGES : enough;
	page->calls = page->messages * c->batch;
	/* ahead of what the other thread has read */
	count_clock_begin(gn_deadline_us(FREE_US));
	for (unsigned i = 0; !rc && i < COUNT_WARM_MESSAGES; i++)
		rc = one_message(t, c, &warming);
	for (uint64_t i = 0; !rc && i < page->messages; i++)
		rc = bench_stopped() ? -EINTR : one_message(t, c, &counted);
	count_clock_end();
	return rc;
}

int count_turns_run(struct count_turns *t, struct count_client *client, struct count_page *page)
{
	__atomic_store_n(&t->phase, TURNS, __ATOMIC_RELEASE);
	return all_messages(t, client, page);
}

int count_alone(struct count_client *client, struct count_page *page)
{
	return all_messages(NULL, client, page);
}
