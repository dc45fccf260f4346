/* SPDX-License-Identifier: MIT */
/*
 * What a client adapts to its calls: fetch or reply per method, when to post the first fetch, how
 * many bytes to fetch, and the batch size.
 *
 * Without a tuning the defaults are: R is 5; Tx is R times half the shortest call, which is about
 * the time of a fetch; the value of a fetch of F bytes is 1 / (1 + F / 4096).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"
#include "rpc/client.h"

#define RETRIES_DEFAULT	    5u
#define FETCH_BYTES_INITIAL 216u /* before the first result: a message of 256 bytes */
#define BATCH_MAX	    128u
#define BATCH_WAIT_US	    5000u
#define ALPHA_PCT	    5u
#define AUTO_WINDOW_CALLS   256u /* calls per adaptation of the batch size */
#define AUTO_WINDOW_BATCHES 64u	 /* … and batches: calls of one batch are late together */
/* windows, at most, before a batch size that failed is tried again */
#define AUTO_RETRY_WINDOWS_MAX 63u
#define SLOW_CALL_NS	       10000u
#define SLACK_UP_NS	       100u /* after a failed first fetch */
#define SLACK_DOWN_NS	       10u  /* after a successful first fetch: so one in eleven fails */
#define SLACK_MAX_NS	       2000u
#define SWITCH_STREAK	       2u
#define TIMED_BATCH_MIN	       8u /* entries of a message that make reading the clock affordable */

/* ---- set-up ---- */

static int adapt_read_tuning(struct rpc_adapt *l, const struct gn_rpc_tuning *given)
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

int rpc_adapt_init(struct gn_rpc_client *c, const struct gn_rpc_client_opts *o)
{
	struct rpc_adapt *l = &c->adapt;
	int rc = adapt_read_tuning(l, o->tuning);

	if (rc)
		return rc;
	l->retries = o->retries	       ? o->retries :
		     l->tuning.retries ? l->tuning.retries :
					 RETRIES_DEFAULT;
	l->switch_us = o->switch_us ? o->switch_us : l->tuning.switch_us;
	l->fetch_fixed = o->fetch_bytes;
	l->fetch_bytes = o->fetch_bytes ? o->fetch_bytes : FETCH_BYTES_INITIAL;
	l->least_ns = UINT64_MAX;
	l->slow = true;
	l->last_method = l->fast_method = UINT64_MAX; /* none */
	l->batch = o->batch;
	if (!l->batch.entries)
		l->batch.entries = l->batch.limit_us ? BATCH_MAX : 1;
	if (!l->batch.bytes)
		l->batch.bytes = UINT32_MAX;
	if (!l->batch.wait_us)
		l->batch.wait_us = BATCH_WAIT_US;
	if (!l->batch.alpha_pct)
		l->batch.alpha_pct = ALPHA_PCT;
	l->entries = l->batch.limit_us ? 1 : l->batch.entries;
	return 0;
}

void rpc_adapt_free(struct gn_rpc_client *c)
{
	rpc_histogram_free(c->histograms);
	for (unsigned i = 0; i < sizeof(c->adapt.mstates) / sizeof(c->adapt.mstates[0]); i++) {
		struct rpc_method_state *page = c->adapt.mstates[i];

		for (unsigned j = 0; page && j < RPC_PAGE_MSTATES; j++)
			gn_free(page[j].latency);
		gn_free(page);
	}
}

static void adapt_update_fast_method(struct rpc_adapt *l)
{
	l->fast_method = l->last && l->last->fast ? l->last_method : UINT64_MAX;
}

struct rpc_method_state *rpc_method_state_of(struct gn_rpc_client *c, unsigned method)
{
	struct rpc_method_state **page = &c->adapt.mstates[method / RPC_PAGE_MSTATES];

	if (unlikely(!*page))
		*page = gn_alloc(RPC_PAGE_MSTATES * sizeof(**page), 0);
	if (unlikely(!*page))
		return NULL;
	c->adapt.last_method = method;
	c->adapt.last_entry = (uint64_t)method << 32;
	c->adapt.last = &(*page)[method % RPC_PAGE_MSTATES];
	adapt_update_fast_method(&c->adapt);
	return c->adapt.last;
}

/* ---- fetch or reply ---- */

uint32_t rpc_adapt_switch_us(const struct gn_rpc_client *c)
{
	const struct rpc_adapt *l = &c->adapt;
	uint64_t us;

	if (l->switch_us)
		return l->switch_us;
	if (l->least_ns == UINT64_MAX)
		return UINT16_MAX;
	us = l->retries * l->least_ns / 2000;
	return us < UINT16_MAX ? (uint32_t)us + 1 : UINT16_MAX;
}

/* Does this sample favor the other mode? */
static bool favors_other_mode(const struct gn_rpc_client *c, const struct rpc_method_state *mstate,
			      uint32_t fails, uint32_t time_us)
{
	const bool by_fails = c->flags & GN_RPC_BY_FAILS;

	if (by_fails && !mstate->reply)
		return fails >= c->adapt.retries;
	/*
	 * A switch caused by failed fetches is undone when the server's time is shorter than it was
	 * then.
	 */
	if (by_fails && !c->adapt.switch_us)
		return time_us * 5ull < mstate->switched_us * 4ull;
	if (mstate->reply)
		return time_us * 5ull < rpc_adapt_switch_us(c) * 4ull;
	return time_us > rpc_adapt_switch_us(c);
}

static void adapt_mode(struct gn_rpc_client *c, struct rpc_method_state *mstate, uint32_t fails,
		       uint32_t time_us)
{
	if (likely(!favors_other_mode(c, mstate, fails, time_us))) {
		mstate->streak = 0;
		return;
	}
	if (++mstate->streak < SWITCH_STREAK)
		return;
	mstate->streak = 0;
	mstate->reply = !mstate->reply;
	mstate->switched_us = time_us;
	c->count.switches++;
}

/* ---- batches ---- */

/* A batch size that failed is tried again, each time after more windows. */
static void batch_shrink(struct rpc_adapt *l)
{
	if (l->entries != l->failed_entries)
		l->retry_windows = 0;
	else if (l->retry_windows < AUTO_RETRY_WINDOWS_MAX)
		l->retry_windows = 2 * l->retry_windows + 1;
	l->failed_entries = l->entries--;
	l->windows = 0;
}

static void batch_grow(struct rpc_adapt *l)
{
	if (l->entries + 1 != l->failed_entries || ++l->windows > l->retry_windows)
		l->entries++;
}

/* RF-RPC, equation 3, over a window of calls. */
static void adapt_batch(struct gn_rpc_client *c, uint64_t ns, uint32_t calls)
{
	struct rpc_adapt *l = &c->adapt;
	uint64_t late_permille;

	if (ns > l->batch.limit_us * 1000ull)
		l->window_late += calls;
	l->window_calls += calls;
	if (l->window_calls < AUTO_WINDOW_CALLS ||
	    l->window_calls < AUTO_WINDOW_BATCHES * l->entries)
		return;
	late_permille = l->window_late * 1000ull / l->window_calls;
	if (late_permille > l->batch.alpha_pct * 10ull && l->entries > 1)
		batch_shrink(l);
	else if (late_permille < l->batch.alpha_pct && l->entries < l->batch.entries)
		batch_grow(l);
	l->window_calls = l->window_late = 0;
}

static void adapt_to_time(struct gn_rpc_client *c, const struct rpc_sample *sample)
{
	const uint64_t ns = sample->now_ns - sample->sent_ns;
	const uint64_t server_ns = sample->time_us * 1000ull;
	struct rpc_method_state *mstate = sample->mstate;

	if (likely(mstate->latency))
		rpc_times_add(mstate->latency, ns, sample->calls);
	if (ns > server_ns && ns - server_ns < c->adapt.least_ns)
		c->adapt.least_ns = ns - server_ns;
	if (c->adapt.batch.limit_us)
		adapt_batch(c, ns, sample->calls);
	c->adapt.slow = ns > SLOW_CALL_NS || sample->calls >= TIMED_BATCH_MIN ||
			c->adapt.batch.limit_us;
}

void rpc_adapt_calls(struct gn_rpc_client *c, const struct rpc_sample *sample)
{
	struct rpc_method_state *mstate = sample->mstate;

	if (unlikely(!mstate->latency))
		mstate->latency = gn_alloc(sizeof(*mstate->latency), 0);
	if (likely(mstate->latency))
		counter_add(&mstate->latency->calls, sample->calls);
	if (sample->now_ns && sample->sent_ns)
		adapt_to_time(c, sample);
	mstate->time_us = sample->time_us < mstate->last_us ? sample->time_us : mstate->last_us;
	mstate->last_us = sample->time_us;
	if (c->mode == GN_RPC_HYBRID)
		adapt_mode(c, mstate, sample->fails, sample->time_us);
	mstate->fast = mstate->latency && !mstate->last_us && !mstate->streak && !mstate->reply;
	adapt_update_fast_method(&c->adapt);
}

/* ---- bytes of a fetch ---- */

/* I(R, F) of the tuning, interpolated between its sizes; or the default. */
static uint64_t adapt_rate(const struct rpc_adapt *l, uint32_t bytes)
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

/* How many bytes of a message the first READ brings. */
void rpc_adapt_first_read(struct gn_rpc_client *c)
{
	const uint64_t bytes = rpc_message_bytes(rpc_max_len(c->adapt.fetch_bytes));
	uint32_t len;

	c->adapt.first_bytes = (uint32_t)(bytes < c->result_stride ? bytes : c->result_stride);
	len = c->adapt.first_bytes - (uint32_t)rpc_message_bytes(0);
	len = len < c->max_results ? len : c->max_results;
	c->adapt.first_words = (len - (uint32_t)sizeof(struct rpc_entry)) / 8;
}

/* RF-RPC, equation 2: the size with which the sampled results would have come fastest. */
static void adapt_fetch_bytes(struct gn_rpc_client *c)
{
	struct rpc_adapt *l = &c->adapt;
	uint64_t best = 0;

	for (uint32_t all = 64; all / 2 < c->result_stride; all *= 2) {
		const uint32_t bytes = all - (uint32_t)rpc_message_bytes(sizeof(struct rpc_entry));
		const uint64_t rate = adapt_rate(l, bytes);
		uint64_t sum = 0;

		for (uint32_t i = 0; i < RPC_SIZE_SAMPLES; i++)
			sum += bytes >= l->size_samples[i] ? rate : rate / 2;
		if (sum > best) {
			best = sum;
			l->fetch_bytes = bytes;
		}
	}
	rpc_adapt_first_read(c);
}

void rpc_adapt_fetch_size(struct gn_rpc_client *c, uint32_t len)
{
	struct rpc_adapt *l = &c->adapt;

	if (l->fetch_fixed)
		return;
	l->size_samples[l->n_size_samples++] = len - (uint32_t)sizeof(struct rpc_entry);
	if (l->n_size_samples < RPC_SIZE_SAMPLES)
		return;
	l->n_size_samples = 0;
	adapt_fetch_bytes(c);
}

/* ---- time of the first fetch ---- */

void rpc_adapt_slack(struct gn_rpc_client *c, bool found)
{
	struct rpc_adapt *l = &c->adapt;

	if (!found)
		l->slack_ns = l->slack_ns < SLACK_MAX_NS ? l->slack_ns + SLACK_UP_NS : SLACK_MAX_NS;
	else if (l->slack_ns >= SLACK_DOWN_NS)
		l->slack_ns -= SLACK_DOWN_NS;
}

uint32_t rpc_adapt_untimed(const struct gn_rpc_client *c)
{
	/* 0 to 15: no fixed interval, because calls may be periodic. */
	return c->adapt.slow || c->slow_reads ? 0 : c->number * 0x9e3779b1u >> 28;
}

uint64_t rpc_adapt_fetch_ns(const struct gn_rpc_client *c, uint64_t ns, uint32_t time_us)
{
	if (c->slow_reads)
		return ns + time_us * 1000ull + c->adapt.slack_ns;
	return time_us > 1 ? ns + time_us * 1000ull : 0;
}

int gn_rpc_client_choice(const struct gn_rpc_client *c, unsigned method, struct gn_rpc_choice *out)
{
	const struct rpc_method_state *page;
	struct gn_rpc_choice choice = {.size = sizeof(choice)};

	if (!c || method >= GN_RPC_BUILTIN_END)
		return gn_fail(-EINVAL,
			       "gn_rpc_client_choice(): client is NULL, or method is not below "
			       "GN_RPC_BUILTIN_END");
	page = c->adapt.mstates[method / RPC_PAGE_MSTATES];
	choice = (struct gn_rpc_choice){
		.size = sizeof(struct gn_rpc_choice),
		.mode = c->mode == GN_RPC_REPLY || (page && page[method % RPC_PAGE_MSTATES].reply) ?
				GN_RPC_REPLY :
				GN_RPC_FETCH,
		.retries = c->adapt.retries,
		.fetch_bytes = c->adapt.fetch_bytes,
		.switch_us = rpc_adapt_switch_us(c),
		.batch = c->adapt.entries,
	};
	return SIZED_WRITE(out, &choice, "gn_rpc_choice");
}
