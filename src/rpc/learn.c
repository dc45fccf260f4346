/* SPDX-License-Identifier: MIT */
/*
 * What a client learns from its calls: for each method fetch or reply, when the first fetch is
 * worth while, how much it should bring, and how many requests make a batch.
 *
 * Without a table the rules of thumb are: R is 5; Tx is R times half the shortest call, which is
 * about what a fetch takes; and a fetch of F bytes is as good as 1 / (1 + F / 4096).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"
#include "rpc/client.h"

#define RETRIES	      5u
#define FIRST_BYTES   216u /* until something has come: a message of 256 bytes */
#define BATCH_MAX     128u
#define BATCH_US      5000u
#define ALPHA_PCT     5u
#define AUTO_CALLS    256u /* calls after which the size of a batch is thought over */
#define AUTO_BATCHES  64u  /* … and batches: the calls of one are late together */
#define AUTO_PATIENCE 63u  /* windows, at most, until a size that was too large is tried again */
#define SLOW_NS	      10000u
#define SLACK_UP_NS   100u /* after a first fetch in vain, … */
#define SLACK_DOWN_NS 10u  /* … and after one that was not: so one in eleven is in vain */
#define SLACK_MAX_NS  2000u
#define CALLS_IN_ROW  2u
#define CLOCK_CALLS   8u /* of a message: it may cost a look at the clock */

/* ---- what it begins with ---- */

static int read_tuning(struct rpc_learn *l, const struct gn_rpc_tuning *given)
{
	const char *path = getenv("GANNET_RPC_TUNING");
	int rc = SIZED_READ(&l->tuning, given, "gn_rpc_tuning");

	if (rc)
		return rc;
	if (!given && path && *path)
		return gn_rpc_tuning_read(path, &l->tuning);
	if (l->tuning.n_sizes > GN_RPC_TUNING_SIZES || l->tuning.n_retries > GN_RPC_TUNING_RETRIES)
		return gn_fail(-EINVAL, "gn_rpc_tuning: %u sizes and %u retries: at most %u and %u",
			       l->tuning.n_sizes, l->tuning.n_retries, GN_RPC_TUNING_SIZES,
			       GN_RPC_TUNING_RETRIES);
	return 0;
}

int rpc_learn_init(struct gn_rpc_client *c, const struct gn_rpc_client_opts *o)
{
	struct rpc_learn *l = &c->learn;
	int rc = read_tuning(l, o->tuning);

	if (rc)
		return rc;
	l->retries = o->retries ? o->retries : l->tuning.retries ? l->tuning.retries : RETRIES;
	l->switch_us = o->switch_us ? o->switch_us : l->tuning.switch_us;
	l->fetch_fixed = o->fetch_bytes;
	l->fetch_bytes = o->fetch_bytes ? o->fetch_bytes : FIRST_BYTES;
	l->least_ns = UINT64_MAX;
	l->slow = true;
	l->last_method = l->quick_method = UINT64_MAX; /* none */
	l->batch = o->batch;
	if (!l->batch.entries)
		l->batch.entries = l->batch.limit_us ? BATCH_MAX : 1;
	if (!l->batch.bytes)
		l->batch.bytes = UINT32_MAX;
	if (!l->batch.wait_us)
		l->batch.wait_us = BATCH_US;
	if (!l->batch.alpha_pct)
		l->batch.alpha_pct = ALPHA_PCT;
	l->entries = l->batch.limit_us ? 1 : l->batch.entries;
	return 0;
}

void rpc_learn_free(struct gn_rpc_client *c)
{
	rpc_histogram_free(c->histograms);
	for (unsigned i = 0; i < sizeof(c->learn.kinds) / sizeof(c->learn.kinds[0]); i++) {
		struct rpc_kind *page = c->learn.kinds[i];

		for (unsigned j = 0; page && j < RPC_PAGE_KINDS; j++)
			gn_free(page[j].latency);
		gn_free(page);
	}
}

static void note_quick(struct rpc_learn *l)
{
	l->quick_method = l->last && l->last->quick ? l->last_method : UINT64_MAX;
}

struct rpc_kind *rpc_kind_of(struct gn_rpc_client *c, unsigned method)
{
	struct rpc_kind **page = &c->learn.kinds[method / RPC_PAGE_KINDS];

	if (unlikely(!*page))
		*page = gn_alloc(RPC_PAGE_KINDS * sizeof(**page), 0);
	if (unlikely(!*page))
		return NULL;
	c->learn.last_method = method;
	c->learn.last_entry = (uint64_t)method << 32;
	c->learn.last = &(*page)[method % RPC_PAGE_KINDS];
	note_quick(&c->learn);
	return c->learn.last;
}

/* ---- fetch or reply ---- */

uint32_t rpc_learn_switch(const struct gn_rpc_client *c)
{
	const struct rpc_learn *l = &c->learn;
	uint64_t us;

	if (l->switch_us)
		return l->switch_us;
	if (l->least_ns == UINT64_MAX)
		return UINT16_MAX;
	us = l->retries * l->least_ns / 2000;
	return us < UINT16_MAX ? (uint32_t)us + 1 : UINT16_MAX;
}

/* Does this call speak for the other mode? */
static bool strikes(const struct gn_rpc_client *c, const struct rpc_kind *kind, uint32_t fails,
		    uint32_t time_us)
{
	const bool by_fails = c->flags & GN_RPC_BY_FAILS;

	if (by_fails && !kind->reply)
		return fails >= c->learn.retries;
	/* What failed fetches have led to, a shorter time than it was then ends. */
	if (by_fails && !c->learn.switch_us)
		return time_us * 5ull < kind->switched_us * 4ull;
	if (kind->reply)
		return time_us * 5ull < rpc_learn_switch(c) * 4ull;
	return time_us > rpc_learn_switch(c);
}

static void choose_mode(struct gn_rpc_client *c, struct rpc_kind *kind, uint32_t fails,
			uint32_t time_us)
{
	if (likely(!strikes(c, kind, fails, time_us))) {
		kind->strikes = 0;
		return;
	}
	if (++kind->strikes < CALLS_IN_ROW)
		return;
	kind->strikes = 0;
	kind->reply = !kind->reply;
	kind->switched_us = time_us;
	c->count.switches++;
}

/* ---- batches ---- */

/* A size that was too large is tried again, but each time later. */
static void shrink(struct rpc_learn *l)
{
	if (l->entries != l->too_many)
		l->patience = 0;
	else if (l->patience < AUTO_PATIENCE)
		l->patience = 2 * l->patience + 1;
	l->too_many = l->entries--;
	l->windows = 0;
}

static void grow(struct rpc_learn *l)
{
	if (l->entries + 1 != l->too_many || ++l->windows > l->patience)
		l->entries++;
}

/* RF-RPC, equation 3, over a window of calls. */
static void choose_batch(struct gn_rpc_client *c, uint64_t ns, uint32_t calls)
{
	struct rpc_learn *l = &c->learn;
	uint64_t late_permille;

	if (ns > l->batch.limit_us * 1000ull)
		l->late += calls;
	l->seen += calls;
	if (l->seen < AUTO_CALLS || l->seen < AUTO_BATCHES * l->entries)
		return;
	late_permille = l->late * 1000ull / l->seen;
	if (late_permille > l->batch.alpha_pct * 10ull && l->entries > 1)
		shrink(l);
	else if (late_permille < l->batch.alpha_pct && l->entries < l->batch.entries)
		grow(l);
	l->seen = l->late = 0;
}

static void learn_time(struct gn_rpc_client *c, const struct rpc_lesson *lesson)
{
	const uint64_t ns = lesson->now_ns - lesson->sent_ns;
	const uint64_t server_ns = lesson->time_us * 1000ull;
	struct rpc_kind *kind = lesson->kind;

	if (likely(kind->latency))
		rpc_times_add(kind->latency, ns, lesson->calls);
	if (ns > server_ns && ns - server_ns < c->learn.least_ns)
		c->learn.least_ns = ns - server_ns;
	if (c->learn.batch.limit_us)
		choose_batch(c, ns, lesson->calls);
	c->learn.slow = ns > SLOW_NS || lesson->calls >= CLOCK_CALLS || c->learn.batch.limit_us;
}

void rpc_learn_calls(struct gn_rpc_client *c, const struct rpc_lesson *lesson)
{
	struct rpc_kind *kind = lesson->kind;

	if (unlikely(!kind->latency))
		kind->latency = gn_alloc(sizeof(*kind->latency), 0);
	if (likely(kind->latency))
		counter_add(&kind->latency->calls, lesson->calls);
	if (lesson->now_ns && lesson->sent_ns)
		learn_time(c, lesson);
	kind->time_us = lesson->time_us < kind->last_us ? lesson->time_us : kind->last_us;
	kind->last_us = lesson->time_us;
	if (c->mode == GN_RPC_HYBRID)
		choose_mode(c, kind, lesson->fails, lesson->time_us);
	kind->quick = kind->latency && !kind->last_us && !kind->strikes && !kind->reply;
	note_quick(&c->learn);
}

/* ---- how much a fetch brings ---- */

/* I(R, F) of the table, between its sizes by a straight line; or the rule of thumb. */
static uint64_t rate_of(const struct rpc_learn *l, uint32_t bytes)
{
	const struct gn_rpc_tuning *t = &l->tuning;
	const uint32_t r = l->retries < t->n_retries ? l->retries : t->n_retries;
	uint32_t i = 0;

	if (!r || !t->n_sizes)
		return (1u << 24) / (4096u + bytes);
	while (i + 1 < t->n_sizes && t->bytes[i] < bytes)
		i++;
	if (!i || t->bytes[i] <= bytes || t->bytes[i] == t->bytes[i - 1])
		return t->rate[r - 1][i];
	return (t->rate[r - 1][i - 1] * (uint64_t)(t->bytes[i] - bytes) +
		t->rate[r - 1][i] * (uint64_t)(bytes - t->bytes[i - 1])) /
	       (t->bytes[i] - t->bytes[i - 1]);
}

/* So many bytes of a message the first read brings. */
void rpc_learn_stride(struct gn_rpc_client *c)
{
	const uint64_t bytes = rpc_message_bytes(rpc_max_len(c->learn.fetch_bytes));
	uint32_t len;

	c->learn.first_bytes = (uint32_t)(bytes < c->result_stride ? bytes : c->result_stride);
	len = c->learn.first_bytes - (uint32_t)rpc_message_bytes(0);
	len = len < c->max_results ? len : c->max_results;
	c->learn.first_words = (len - (uint32_t)sizeof(struct rpc_entry)) / 8;
}

/* RF-RPC, equation 2: the size with which the samples would have come fastest. */
static void choose_fetch(struct gn_rpc_client *c)
{
	struct rpc_learn *l = &c->learn;
	uint64_t best = 0;

	for (uint32_t all = 64; all / 2 < c->result_stride; all *= 2) {
		const uint32_t bytes = all - (uint32_t)rpc_message_bytes(sizeof(struct rpc_entry));
		const uint64_t rate = rate_of(l, bytes);
		uint64_t sum = 0;

		for (uint32_t i = 0; i < RPC_SAMPLES; i++)
			sum += bytes >= l->samples[i] ? rate : rate / 2;
		if (sum > best) {
			best = sum;
			l->fetch_bytes = bytes;
		}
	}
	rpc_learn_stride(c);
}

void rpc_learn_size(struct gn_rpc_client *c, uint32_t len)
{
	struct rpc_learn *l = &c->learn;

	if (l->fetch_fixed)
		return;
	l->samples[l->n_samples++] = len - (uint32_t)sizeof(struct rpc_entry);
	if (l->n_samples < RPC_SAMPLES)
		return;
	l->n_samples = 0;
	choose_fetch(c);
}

/* ---- when to fetch ---- */

void rpc_learn_first(struct gn_rpc_client *c, bool found)
{
	struct rpc_learn *l = &c->learn;

	if (!found)
		l->slack_ns = l->slack_ns < SLACK_MAX_NS ? l->slack_ns + SLACK_UP_NS : SLACK_MAX_NS;
	else if (l->slack_ns >= SLACK_DOWN_NS)
		l->slack_ns -= SLACK_DOWN_NS;
}

uint32_t rpc_learn_untimed(const struct gn_rpc_client *c)
{
	/* None to fifteen: calls have rhythms of their own. */
	return c->learn.slow || c->slow_reads ? 0 : c->number * 0x9e3779b1u >> 28;
}

uint64_t rpc_learn_delay(const struct gn_rpc_client *c, uint64_t ns, uint32_t time_us)
{
	if (c->slow_reads)
		return ns + time_us * 1000ull + c->learn.slack_ns;
	return time_us > 1 ? ns + time_us * 1000ull : 0;
}

int gn_rpc_client_choice(const struct gn_rpc_client *c, unsigned method, struct gn_rpc_choice *out)
{
	const struct rpc_kind *page;
	struct gn_rpc_choice choice = {.size = sizeof(choice)};

	if (!c || method >= GN_RPC_BUILTIN_END)
		return gn_fail(-EINVAL,
			       "gn_rpc_client_choice(): client is NULL, or method is not below "
			       "GN_RPC_BUILTIN_END");
	page = c->learn.kinds[method / RPC_PAGE_KINDS];
	choice = (struct gn_rpc_choice){
		.size = sizeof(struct gn_rpc_choice),
		.mode = c->mode == GN_RPC_REPLY || (page && page[method % RPC_PAGE_KINDS].reply) ?
				GN_RPC_REPLY :
				GN_RPC_FETCH,
		.retries = c->learn.retries,
		.fetch_bytes = c->learn.fetch_bytes,
		.switch_us = rpc_learn_switch(c),
		.batch = c->learn.entries,
	};
	return SIZED_WRITE(out, &choice, "gn_rpc_choice");
}
