/* SPDX-License-Identifier: MIT */
/*
 * A client of the test: threads, each with a client of the store, that execute operations one by
 * one, in batches, or asynchronously; sleep, read statistics, clear, close and reconnect. Requests
 * and responses are recorded.
 */
#include <errno.h>
#include <stdio.h>

#include "sim_kv.h"

#define ATTEMPTS	60u
#define UNTIL_NS	60000000ull /* no new operations from here on */
#define UNTIL_NAPS_NS	5000000000ull
#define DRAIN_NS	2000000000ull
#define TTL_MAX_S	4u
#define LAST_READS	40u
#define PATIENCE_US	50000u
#define LATE_NS		3000000ull   /* after its deadline; time of the program itself */
#define LATE_STALLED_NS 100000000ull /* … and of faults that stop or slow its node */
#define UNTOUCHED	0x5a
#define GUARD		64u
#define INFLIGHT_MAX		32u

struct inflight {
	struct gn_kv_op op;
	struct session *session;
	uint32_t number; /* in the history */
	uint32_t key_number;
	bool busy, ended;
	bool plain;	  /* a synchronous call, which does not return everything */
	uint64_t idle_ns; /* the session's when it began */
	char key[GN_KV_KEY_MAX + 1];
	uint8_t *value, *room;
};

struct session {
	struct world *w;
	const struct plan_client *plan;
	struct gn_fabric *fabric;
	struct gn_kv_client *client;
	struct gn_kv_limits limits;
	struct inflight inflight[INFLIGHT_MAX];
	struct inflight *batch[INFLIGHT_MAX]; /* those of a batch */
	uint8_t *memory;
	uint64_t *cas; /* of each key, as last seen */
	uint64_t idle_ns;
	unsigned id, left, busy;
	bool lost, quit, closing, failed;
	bool reads; /* only reads from now on */
};

static uint32_t below(uint64_t n)
{
	return (uint32_t)(gn_random() % n);
}

static uint64_t now(const struct session *s)
{
	return gn_sim_now_ns(s->w->run.sim);
}

/* ---- requests ---- */

static uint32_t draw_key(const struct session *s)
{
	const struct plan *plan = &s->w->plan;

	if (!plan->cold || below(1000) < plan->heat)
		return below(plan->hot);
	return plan->hot + below(plan->cold);
}

static enum gn_kv_verb draw_verb(const struct session *s, uint32_t key)
{
	static const enum gn_kv_verb writes[] = {GN_KV_SET, GN_KV_SET,	   GN_KV_SET,  GN_KV_SET,
						 GN_KV_ADD, GN_KV_REPLACE, GN_KV_TOUCH};
	const struct plan_client *plan = s->plan;
	const bool number = key < s->w->plan.counters;
	unsigned dice = below(1000);

	if (s->reads)
		return GN_KV_GET;
	if (dice < plan->writes)
		return writes[s->w->plan.plain ? 0 : below(7)];
	dice -= plan->writes;
	if (dice < plan->removes)
		return GN_KV_DELETE;
	dice -= plan->removes;
	if (dice < plan->numbers || (number && dice < 2 * plan->numbers))
		return below(3) ? GN_KV_INCR : GN_KV_DECR;
	dice -= plan->numbers;
	if (dice < plan->joins && !number)
		return below(2) ? GN_KV_APPEND : GN_KV_PREPEND;
	return GN_KV_GET;
}

static unsigned draw_how(const struct session *s, enum gn_kv_verb verb, uint32_t key)
{
	unsigned how = 0;

	if (s->cas[key] && below(4) == 0 && verb != GN_KV_GET && verb != GN_KV_ADD &&
	    verb != GN_KV_TOUCH)
		how |= GN_KV_IF_CAS;
	if (verb == GN_KV_GET) {
		how |= below(2) ? GN_KV_DETAILS : 0;
		how |= below(16) ? 0 : GN_KV_NO_VALUE;
		how |= below(16) ? 0 : GN_KV_QUIET;
		how |= s->w->plan.ttls && below(8) == 0 ? GN_KV_AND_TOUCH : 0;
	}
	if (verb == GN_KV_INCR || verb == GN_KV_DECR)
		how |= below(2) ? GN_KV_CREATE : 0;
	if (verb == GN_KV_SET && below(16) == 0 && !s->w->plan.plain)
		how |= GN_KV_SET_CAS;
	return how;
}

static bool writes_value(enum gn_kv_verb verb)
{
	return verb >= GN_KV_SET && verb <= GN_KV_PREPEND;
}

/* A number as text, or a piece of this operation. */
static void draw_value(struct session *s, struct inflight *inflight, struct history_op *h)
{
	const struct plan *plan = &s->w->plan;
	const uint32_t most = (below(8) ? plan->small : plan->large) - plan->least;
	struct piece piece = {.what = inflight->number};

	if (inflight->key_number < plan->counters) {
		piece.what = below(3) ? below(1000) : UINT64_MAX - below(100);
		piece.number = true;
		piece.len = (uint32_t)snprintf((char *)inflight->value, 32, "%llu",
					       (unsigned long long)piece.what);
	} else {
		piece.len = value_len(plan->least + below(most + 1));
		/* Appending nothing makes another version of the same value: see history.h. */
		if (!piece.len && h->verb >= GN_KV_APPEND)
			piece.len = 8;
		value_make(inflight->value, piece.len, inflight->key_number, inflight->number);
	}
	inflight->op.value = inflight->value;
	inflight->op.value_len = piece.len;
	h->value = history_value(s->w->history, &piece, piece.len ? 1 : 0);
}

static uint64_t draw_deadline(const struct session *s)
{
	if (below(1000) < s->plan->hurries)
		return gn_deadline_us(1 + below(s->plan->max_timeout_us));
	return gn_deadline_us(PATIENCE_US);
}

static void check_untouched(struct session *s, const struct inflight *inflight, uint32_t from)
{
	for (uint32_t i = from; i < inflight->op.room_bytes + GUARD && inflight->room; i++)
		if (inflight->room[i] != UNTOUCHED) {
			world_fail(s->w, "op %u: byte %u of its room is written%s", inflight->number, i,
				   inflight->ended ? " after its end" : "");
			break;
		}
}

static void begin_one(struct session *s);
static void done(struct gn_kv_op *op);

/* The operation, and its record in the history. */
static void make_op(struct session *s, struct inflight *inflight, uint64_t deadline_ns)
{
	const uint32_t key = draw_key(s);
	const enum gn_kv_verb verb = draw_verb(s, key);
	struct gn_kv_op *op = &inflight->op;
	/* First of all: another thread may run while this one reads the clock. */
	struct history_op *h;

	if (inflight->ended)
		check_untouched(s, inflight, 0);
	h = history_add(s->w->history, &inflight->number);
	inflight->key_number = key;
	inflight->busy = true;
	inflight->ended = inflight->plain = false;
	inflight->idle_ns = s->idle_ns;
	*op = (struct gn_kv_op){.verb = verb,
				.how = draw_how(s, verb, key),
				.key = inflight->key,
				.key_len = key_make(inflight->key, key),
				.room = inflight->room,
				.room_bytes = below(20) ? ROOM_MAX : below(200),
				.cas = s->cas[key],
				.new_cas = (1ull << 62) + inflight->number,
				.number = below(4) ? below(10) : gn_random(),
				.initial = below(1000),
				.deadline_ns = deadline_ns,
				.done = done,
				.arg = inflight};
	h->verb = verb;
	if (writes_value(verb)) {
		draw_value(s, inflight, h);
		op->flags = below(2) ? (uint32_t)gn_random() : 0;
	}
	if (verb == GN_KV_TOUCH || op->how & GN_KV_AND_TOUCH || below(1000) < s->w->plan.ttls)
		op->ttl_s = below(3) ? 1 + below(TTL_MAX_S) : 0;
	if (verb == GN_KV_INCR || verb == GN_KV_DECR || verb == GN_KV_DELETE)
		op->ttl_s = 0;
	h->client = s->id;
	h->key = key;
	h->how = op->how;
	h->flags = op->flags;
	h->ttl_s = op->ttl_s;
	h->cas = op->cas;
	h->new_cas = op->new_cas;
	h->number = op->number;
	h->initial = op->initial;
	h->begin_ns = now(s);
	memset(inflight->room, UNTOUCHED, op->room_bytes + GUARD);
	s->busy++;
	s->w->run.active_ns = now(s);
}

/* ---- responses ---- */

static void check_late(struct session *s, const struct inflight *inflight, uint64_t deadline_ns)
{
	const uint64_t now_ns = gn_now_ns(), unseen_ns = s->idle_ns - inflight->idle_ns;
	const uint64_t late_ns =
		unseen_ns + (s->w->plan.cluster.stalls ? LATE_STALLED_NS : LATE_NS);

	if (now_ns > deadline_ns + late_ns)
		world_fail(s->w, "op %u ends %llu ns after its deadline: %s", inflight->number,
			   (unsigned long long)(now_ns - deadline_ns),
			   gn_kv_status_str(inflight->op.status));
}

/* Is this status allowed? What it says about the key is for the history. */
static void check_status(struct session *s, const struct inflight *inflight)
{
	const struct plan *plan = &s->w->plan;
	const struct gn_kv_op *op = &inflight->op;
	bool ok = true;

	switch (op->status) {
	case GN_KV_TIMEOUT:
		ok = gn_now_ns() >= op->deadline_ns;
		break;
	case GN_KV_GONE:
		ok = !plan->strict || plan->stop_us || s->closing;
		break;
	case GN_KV_BUSY:
		ok = plan->drain_us || plan->cluster.no_memory;
		break;
	case GN_KV_FAILED: /* or busy, and it changes something */
		ok = plan->cluster.no_memory || (plan->drain_us && op->verb != GN_KV_GET);
		break;
	case GN_KV_NO_MEMORY:
		ok = !plan->ample;
		break;
	case GN_KV_INVALID:
		ok = false;
		break;
	case GN_KV_TOO_BIG:
		ok = op->verb == GN_KV_GET ?
			     op->len > op->room_bytes :
			     writes_value(op->verb) &&
				     (op->value_len > s->limits.max_value ||
				      op->verb == GN_KV_APPEND || op->verb == GN_KV_PREPEND);
		break;
	default:
		break;
	}
	if (!ok)
		world_fail(s->w, "op %u, verb %d how %x of key %u, %u bytes, ends: %s",
			   inflight->number, op->verb, op->how, inflight->key_number, op->value_len,
			   gn_kv_status_str(op->status));
}

/* The bytes that were read: pieces written for this key, and nothing else. */
static void take_value(struct session *s, struct inflight *inflight, struct history_op *h)
{
	const struct gn_kv_op *op = &inflight->op;
	struct piece pieces[PIECES];
	const int n = value_parse(inflight->room, op->len, inflight->key_number, pieces);

	for (int i = 0; i < n; i++)
		if (!pieces[i].number && pieces[i].what >= history_ops(s->w->history))
			world_fail(s->w, "op %u: key %u has a piece of %llu, which is not yet",
				   inflight->number, inflight->key_number,
				   (unsigned long long)pieces[i].what);
	if (n < 0) {
		world_fail(s->w, "op %u: key %u has %u bytes that are torn, or nobody's",
			   inflight->number, inflight->key_number, op->len);
		return;
	}
	h->seen = history_value(s->w->history, pieces, (unsigned)n);
	h->seen_flags = op->flags;
	h->flags_unseen = inflight->plain;
}

static bool tells_cas(const struct inflight *inflight)
{
	const struct gn_kv_op *op = &inflight->op;

	return op->status == GN_KV_OK && op->verb != GN_KV_DELETE && !inflight->plain &&
	       (op->verb != GN_KV_GET || op->how & GN_KV_DETAILS);
}

static void take(struct session *s, struct inflight *inflight)
{
	const struct gn_kv_op *op = &inflight->op;
	struct history_op *h = history_at(s->w->history, inflight->number);
	const bool ok = op->status == GN_KV_OK;
	const bool value = op->verb == GN_KV_GET && ok && !(op->how & GN_KV_NO_VALUE);

	h->status = op->status;
	h->end_ns = now(s);
	h->last_epoch = s->w->epoch;
	if (op->verb == GN_KV_GET && (ok || op->status == GN_KV_TOO_BIG))
		h->seen_len = op->len;
	if (value)
		take_value(s, inflight, history_at(s->w->history, inflight->number));
	if (tells_cas(inflight))
		h->seen_cas = s->cas[inflight->key_number] = op->cas;
	if (ok && op->verb == GN_KV_DELETE)
		s->cas[inflight->key_number] = 0;
	h->seen_number = op->number;
	if (value && op->len > op->room_bytes)
		world_fail(s->w, "op %u: %u bytes in a room of %u", inflight->number, op->len,
			   op->room_bytes);
	else
		check_untouched(s, inflight, value ? op->len : 0);
}

static void end_lane(struct session *s, struct inflight *inflight)
{
	inflight->busy = false;
	s->busy--;
}

static void finish(struct session *s, struct inflight *inflight)
{
	struct sums *sums = &s->w->sums;

	if (!inflight->busy) {
		world_fail(s->w, "op %u ends twice", inflight->number);
		return;
	}
	world_log(s->w, "op %u, verb %d of key %u, ends: %s", inflight->number, inflight->op.verb,
		  inflight->key_number, gn_kv_status_str(inflight->op.status));
	if (inflight->op.status >= GN_KV_STATUSES) {
		world_fail(s->w, "op %u: status %u", inflight->number, inflight->op.status);
		inflight->op.status = GN_KV_FAILED;
	}
	take(s, inflight);
	check_late(s, inflight, inflight->op.deadline_ns);
	check_status(s, inflight);
	sums->statuses[inflight->op.status]++;
	sums->verbs[inflight->op.verb]++;
	sums->ops++;
	sums->large += inflight->op.status == GN_KV_OK &&
		       (inflight->op.value_len > 8192 || inflight->op.len > 8192);
	s->lost |= inflight->op.status == GN_KV_GONE;
	memset(inflight->room, UNTOUCHED, inflight->op.room_bytes + GUARD);
	inflight->ended = true;
	end_lane(s, inflight);
}

static void done(struct gn_kv_op *op)
{
	struct inflight *inflight = op->arg;
	struct session *s = inflight->session;

	finish(s, inflight);
	if (below(3) == 0 && s->left && !*s->w->run.failure)
		begin_one(s);
}

/* It was not started: as if it had never been. */
static void forget(struct session *s, struct inflight *inflight)
{
	struct history_op *h = history_at(s->w->history, inflight->number);

	h->status = GN_KV_BUSY;
	h->end_ns = now(s);
	end_lane(s, inflight);
}

/* ---- steps of a session ---- */

static struct inflight *free_lane(struct session *s)
{
	for (unsigned i = 0; i < INFLIGHT_MAX; i++)
		if (!s->inflight[i].busy)
			return &s->inflight[i];
	return NULL;
}

static void count_down(struct session *s)
{
	s->left -= s->left > 0;
}

static void do_several(struct session *s, unsigned most)
{
	struct gn_kv_op ops[INFLIGHT_MAX];
	const uint64_t deadline_ns = draw_deadline(s);
	const uint32_t batch = ++s->w->batches;
	unsigned n = 0;
	int rc;

	for (unsigned i = 0; i < INFLIGHT_MAX && n < most && s->left; i++) {
		struct inflight *inflight = &s->inflight[i];

		if (inflight->busy)
			continue;
		make_op(s, inflight, deadline_ns);
		history_at(s->w->history, inflight->number)->batch = batch;
		ops[n] = inflight->op;
		s->batch[n++] = inflight;
		count_down(s);
	}
	world_log(s->w, "%u ops from %u on", n, n ? s->batch[0]->number : 0);
	rc = gn_kv_do(s->client, ops, n, deadline_ns);
	if (rc)
		world_fail(s->w, "gn_kv_do(): %s", gn_strerror(rc));
	for (unsigned i = 0; i < n; i++) {
		s->batch[i]->op = ops[i];
		finish(s, s->batch[i]);
	}
}

static unsigned status_of(int rc)
{
	static const int errors[GN_KV_STATUSES] = {0,	       -ENOENT,	  -EEXIST, -EEXIST,
						   1,	       -EFBIG,	  -ENOMEM, -EINVAL,
						   -ETIMEDOUT, -ENOTCONN, -EBUSY,  -EIO};
	unsigned status = 0;

	while (status < GN_KV_STATUSES && errors[status] != rc)
		status++;
	return status;
}

/* Synchronous calls, for operations simple enough. */
static void do_in_a_line(struct session *s)
{
	struct inflight *inflight = free_lane(s);
	struct gn_kv_op *op;
	int rc;

	if (!inflight)
		return;
	make_op(s, inflight, draw_deadline(s));
	op = &inflight->op;
	if (op->how ||
	    (op->verb != GN_KV_GET && op->verb != GN_KV_SET && op->verb != GN_KV_DELETE)) {
		forget(s, inflight);
		return;
	}
	count_down(s);
	history_at(s->w->history, inflight->number)->flags = op->flags = 0;
	if (op->verb == GN_KV_GET)
		rc = gn_kv_get(s->client, op->key, op->key_len, op->room, op->room_bytes, &op->len,
			       op->deadline_ns);
	else if (op->verb == GN_KV_SET)
		rc = gn_kv_set(s->client, op->key, op->key_len, op->value, op->value_len, op->ttl_s,
			       op->deadline_ns);
	else
		rc = gn_kv_del(s->client, op->key, op->key_len, op->deadline_ns);
	op->status = status_of(rc);
	op->cas = 0;
	inflight->plain = true;
	finish(s, inflight);
}

static void begin_one(struct session *s)
{
	struct inflight *inflight = free_lane(s);
	uint32_t number;
	int rc;

	if (!inflight || s->busy >= s->plan->window)
		return;
	make_op(s, inflight, draw_deadline(s));
	number = inflight->number; /* another may have its record if it completed at once */
	world_log(s->w, "op %u begins", number);
	rc = gn_kv_submit(s->client, &inflight->op);
	if (!rc) {
		if (s->closing)
			world_fail(s->w, "op %u begins while its client closes", number);
		count_down(s);
		return;
	}
	s->lost |= rc == -ENOTCONN;
	if (rc != -ENOTCONN && rc != -EAGAIN && !(rc == -ENOMEM && s->w->plan.cluster.no_memory))
		world_fail(s->w, "op %u cannot begin: %s", inflight->number, gn_strerror(rc));
	forget(s, inflight);
}

static void poll_some(struct session *s)
{
	int rc;

	if (below(2))
		rc = gn_kv_poll(s->client);
	else
		rc = gn_kv_wait(s->client, gn_deadline_us(below(100)));
	if (rc < 0 && rc != -ETIMEDOUT)
		world_fail(s->w, "polling: %s", gn_strerror(rc));
}

static void nap(struct session *s, unsigned tenths)
{
	const uint64_t from_ns = now(s);

	for (; tenths; tenths--) {
		gn_sleep_us(100000);
		s->w->run.active_ns = now(s);
	}
	s->idle_ns += now(s) - from_ns;
}

static void sleep_some(struct session *s)
{
	const uint64_t from_ns = now(s);

	if (s->w->plan.naps && below(4) == 0) {
		nap(s, 1 + below(14));
		return;
	}
	gn_sleep_us(below(300));
	s->idle_ns += now(s) - from_ns;
}

/* Only keys that this test made, whatever happens meanwhile. */
static void count_key(const struct gn_kv_key *key, void *arg)
{
	struct session *s = arg;

	if (!key->key_len || key->key_len > GN_KV_KEY_MAX || key->len > GN_KV_VALUE_MAX)
		world_fail(s->w, "a scan returned a key with %u bytes and a value with %u",
			   key->key_len, key->len);
}

static void list(struct session *s)
{
	struct gn_kv_cursor cursor = {{0}};
	int rc;

	do {
		rc = gn_kv_scan(s->client, &cursor, count_key, s, gn_deadline_us(PATIENCE_US));
	} while (rc == 1);
	s->lost |= rc == -ENOTCONN;
	s->w->sums.verbs[GN_KV_SCAN] += !rc;
}

static void look(struct session *s)
{
	struct sums *sums = &s->w->sums;
	struct gn_kv_stats stats = {.size = sizeof(stats)};
	const int rc =
		gn_kv_client_stats(s->client, GN_KV_ALL, &stats, gn_deadline_us(PATIENCE_US));

	s->lost |= rc == -ENOTCONN;
	if (rc)
		return;
	if (stats.used > stats.memory || stats.memory != s->w->plan.server.memory)
		world_fail(s->w, "%llu bytes are used, of %llu", (unsigned long long)stats.used,
			   (unsigned long long)stats.memory);
	if (s->w->plan.ample && (stats.evicted_bucket || stats.evicted_log || stats.no_memory))
		world_fail(s->w, "with memory for all, %llu and %llu were forgotten",
			   (unsigned long long)stats.evicted_bucket,
			   (unsigned long long)stats.evicted_log);
	sums->evicted_bucket += stats.evicted_bucket;
	sums->evicted_log += stats.evicted_log;
	sums->moved += stats.moved;
	sums->splits += stats.splits;
	sums->kicks += stats.kicks;
	sums->expired += stats.expired;
	if (below(4) == 0)
		list(s);
}

static void clear(struct session *s)
{
	uint32_t number;
	struct history_op *h = history_add(s->w->history, &number);
	int rc;

	h->client = s->id;
	h->verb = HISTORY_FORGET;
	h->begin_ns = now(s);
	rc = gn_kv_clear(s->client, 0, gn_deadline_us(PATIENCE_US));
	h = history_at(s->w->history, number);
	h->end_ns = now(s);
	h->last_epoch = s->w->epoch;
	h->status = rc ? GN_KV_FAILED : GN_KV_OK;
	s->lost |= rc == -ENOTCONN;
}

static void step(struct session *s)
{
	const struct plan_client *plan = s->plan;
	const unsigned to[] = {plan->closes, plan->sleeps,  plan->clears,
			       plan->looks,  plan->singles, plan->asyncs};

	switch (seeds_draw_action(to, 6)) {
	case 0:
		s->quit = true;
		break;
	case 1:
		sleep_some(s);
		break;
	case 2:
		clear(s);
		break;
	case 3:
		look(s);
		break;
	case 4:
		below(3) ? do_several(s, 1) : do_in_a_line(s);
		break;
	case 5:
		for (unsigned k = below(plan->window) + 1; k; k--)
			begin_one(s);
		poll_some(s);
		break;
	default:
		do_several(s, 1 + below(plan->batch));
	}
	if (s->busy && below(4) == 0)
		poll_some(s);
	/* A client that must not reconnect has to leave. */
	s->quit |= s->lost && (!(plan->opts.flags & GN_KV_RECONNECT) || below(8) == 0);
	s->lost = false;
}

/* All outstanding operations complete. */
static void drain(struct session *s)
{
	const uint64_t until_ns = now(s) + DRAIN_NS;

	while (s->busy && now(s) < until_ns) {
		s->w->run.active_ns = now(s);
		gn_kv_wait(s->client, gn_deadline_us(10000));
	}
	for (unsigned i = 0; i < INFLIGHT_MAX && s->busy; i++)
		if (s->inflight[i].busy)
			world_fail(s->w, "op %u has not ended", s->inflight[i].number);
}

/*
 * Reads after everything with a time to live has expired. Earlier reads rarely show this: most keys
 * are written again before.
 */
static void read_the_dead(struct session *s)
{
	nap(s, 10 * (TTL_MAX_S + 2)); /* a second for the checker's slack, one for others' writes */
	s->reads = true;
	s->left = LAST_READS;
	while (s->left && !*s->w->run.failure)
		do_several(s, 1 + below(s->plan->batch));
	s->reads = false;
}

static bool make_inflight(struct session *s)
{
	const size_t each = BYTES_MAX + ROOM_MAX + 2 * GUARD;

	s->memory = gn_alloc(INFLIGHT_MAX * each, 0);
	s->cas = gn_alloc(KEYS_MAX * sizeof(*s->cas), 0);
	if (!s->memory || !s->cas)
		return false;
	for (unsigned i = 0; i < INFLIGHT_MAX; i++) {
		s->inflight[i].session = s;
		s->inflight[i].value = s->memory + i * each;
		s->inflight[i].room = s->inflight[i].value + BYTES_MAX + GUARD;
	}
	return true;
}

static void add_counters(struct session *s)
{
	struct sums *sums = &s->w->sums;
	struct gn_kv_counters count = {.size = sizeof(count)};

	if (gn_kv_client_counters(s->client, &count))
		return;
	sums->reconnects += count.reconnects;
	sums->bypassed += count.bypass_gets;
	sums->torn += count.torn;
	sums->fell_back += count.fell_back;
	sums->messages += count.messages;
}

static void work(struct session *s)
{
	const uint64_t until_ns = s->w->plan.naps ? UNTIL_NAPS_NS : UNTIL_NS;

	s->limits.size = sizeof(s->limits);
	gn_kv_client_limits(s->client, &s->limits);
	while (!s->quit && s->left && now(s) < until_ns && !*s->w->run.failure)
		step(s);
	if (!s->quit) {
		drain(s);
		if (s->w->plan.naps)
			read_the_dead(s);
		look(s);
	}
	add_counters(s);
	s->closing = true;
	gn_kv_client_close(s->client);
	s->closing = s->quit = false;
	if (s->busy)
		world_fail(s->w, "%u operations have not ended with their client", s->busy);
	for (unsigned i = 0; i < INFLIGHT_MAX; i++)
		if (s->inflight[i].ended)
			check_untouched(s, &s->inflight[i], 0);
}

/* ---- threads, and the process ---- */

static void check_connected(struct session *s, uint64_t begin_ns, int rc)
{
	const struct plan *plan = &s->w->plan;
	const uint64_t took_ns = gn_now_ns() - begin_ns;
	const uint64_t most_ns = (plan->server.threads + 1) * s->plan->opts.rpc.timeout_us * 1000;
	const bool memory = rc == -ENOMEM && plan->cluster.no_memory;
	const bool refused = rc == -ECONNREFUSED || rc == -ETIMEDOUT || rc == -ECONNRESET ||
			     rc == -ENOTCONN;

	world_log(s->w, "connected: %s", gn_strerror(rc));
	if (rc && !memory && !refused &&
	    !(rc == -EBUSY && (plan->drain_us || plan->cluster.no_memory)))
		world_fail(s->w, "no connection: %s", gn_strerror(rc));
	if (took_ns > most_ns + LATE_STALLED_NS)
		world_fail(s->w, "connecting takes %llu ns", (unsigned long long)took_ns);
	s->w->run.active_ns = now(s);
}

static void thread_main(void *arg)
{
	struct session *s = arg;
	const uint64_t until_ns = s->w->plan.naps ? UNTIL_NAPS_NS : UNTIL_NS;

	s->left = s->plan->ops;
	for (unsigned i = 0; i < ATTEMPTS && s->left && now(s) < until_ns && !*s->w->run.failure;
	     i++) {
		const uint64_t begin_ns = gn_now_ns();
		struct gn_kv_client_opts opts = s->plan->opts;
		int rc;

		opts.size = sizeof(opts);
		rc = gn_kv_client_open(s->fabric, ADDR, &opts, &s->client);
		check_connected(s, begin_ns, rc);
		if (rc)
			gn_sleep_us(100 + i * 50);
		else
			work(s);
	}
}

static struct session *make_session(const struct client_arg *arg, struct gn_fabric *fabric,
				    unsigned thread)
{
	struct session *s = gn_alloc(sizeof(*s), 0);

	if (!s)
		return NULL;
	s->w = arg->w;
	s->plan = &arg->w->plan.client[arg->index];
	s->fabric = fabric;
	s->id = arg->index * 10 + thread;
	if (make_inflight(s))
		return s;
	gn_free(s->memory);
	gn_free(s->cas);
	gn_free(s);
	return NULL;
}

static void run_threads(const struct client_arg *arg, struct gn_fabric *fabric)
{
	struct session *s[THREADS_MAX] = {NULL};
	struct gn_thread *thread[THREADS_MAX] = {NULL};
	const unsigned n = arg->w->plan.client[arg->index].threads;

	for (unsigned i = 0; i < n; i++) {
		s[i] = make_session(arg, fabric, i);
		if (s[i] && gn_thread_start("client", thread_main, s[i], &thread[i]))
			thread[i] = NULL;
	}
	for (unsigned i = 0; i < n; i++) {
		if (thread[i])
			gn_thread_join(thread[i]);
		if (!s[i])
			continue;
		gn_free(s[i]->memory);
		gn_free(s[i]->cas);
		gn_free(s[i]);
	}
}

/* What this client had started before its node crashed is executed by then, or never. */
static void end_last_life(struct world *w, unsigned index)
{
	for (uint32_t i = 0; i < history_ops(w->history); i++) {
		struct history_op *h = history_at(w->history, i);

		if (h->end_ns == HISTORY_NEVER && h->client / 10 == index &&
		    h->last_epoch == UINT32_MAX)
			h->last_epoch = w->epoch;
	}
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	struct gn_fabric *fabric;
	int rc;

	(void)argc;
	(void)argv;
	if (w->lives[arg->index]++)
		end_last_life(w, arg->index);
	rc = seeds_fabric_open(env, ATTEMPTS, 10, &fabric);
	if (!rc) {
		run_threads(arg, fabric);
		seeds_fabric_close(&w->run, fabric, "a client");
	} else if (!w->plan.cluster.no_memory) {
		world_fail(w, "no fabric: %s", gn_strerror(rc));
	}
	w->run.clients_over++;
	return 0;
}
