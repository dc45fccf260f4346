/* SPDX-License-Identifier: MIT */
/*
 * One thread that touches the pages of a pager, in blocks that alternate with its limit. The volume
 * has one donor, of this process: a READ takes the same way as to another process.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "choice.h"
#include "pager.h"
#include "pair.h"

#define PAGE	   GN_PAGER_PAGE
#define TOUCHES	   64u /* between looks at the clock and the counters */
#define ZIPF	   0.99
#define SLAB	   (1u << 20)
#define BARE_PAGES 16384u /* of the limit, at most */
#define SHARE	   0.5	  /* of the time, for the limit */
#define WARM_S	   0.1
#define BURSTS	   32u /* of the local memory: eviction frees a 64th at a time */
#define BLOCK_MAX  20u /* times longer than asked for */

const char *const bench_pager_patterns[PAGER_PATTERNS + 1] = {"random", "sequential", "zipf",
							      "single", NULL};

struct touches {
	const struct bench_pager_opts *opts;
	struct gn_fabric *fabric;
	struct gn_donor_server *donor;
	struct gn_vol *vol;
	struct gn_pager *pager;
	uint8_t *base, *scratch;
	uint64_t pages, local_bytes;
	struct choice choice;
	uint64_t next,
		left; /* of PAGER_SINGLE: pages that may be touched before frames are freed */
	uint64_t touches, ns, wrong;
};

static int fail(int rc, const char *what)
{
	gn_log(GN_LOG_ERROR, "%s: %s", what, gn_error()[0] ? gn_error() : gn_strerror(rc));
	return rc;
}

/* ---- touches ---- */

/* Every page begins with a word of its own. */
static uint64_t word_of(uint64_t page)
{
	return (page + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t next_page(struct touches *t)
{
	switch (t->opts->pattern) {
	case PAGER_SEQUENTIAL:
		t->next = t->next + 1 == t->pages ? 0 : t->next + 1;
		return t->next;
	case PAGER_SINGLE: /* all pages in turn, none next to the last ones */
		t->next = (t->next + (t->pages * 3 / 8 | 1)) % t->pages;
		return t->next;
	default:
		return choice_draw(&t->choice);
	}
}

static void touch(struct touches *t)
{
	const uint64_t page = next_page(t);
	volatile uint64_t *word = (uint64_t *)(void *)(t->base + page * PAGE);

	t->wrong += *word != word_of(page);
	if (t->opts->write_pct && choice_word(&t->choice) % 100 < t->opts->write_pct)
		word[1]++;
}

/* Other memory takes all frames, and returns them. */
static int free_frames(struct touches *t)
{
	int rc;

	for (uint64_t at = 0; at < t->local_bytes; at += PAGE)
		*(volatile uint8_t *)(t->scratch + at) = 1;
	rc = gn_pager_advise(t->pager, t->scratch, t->local_bytes, GN_PAGER_DONT_NEED);
	t->left = t->local_bytes / PAGE / 2;
	return rc ? fail(rc, "gn_pager_advise()") : 0;
}

/*
 * A load of blocks.c. An operation is a fault that the thread waited for; a block is one group. It
 * lasts until eviction, which works in bursts, has been through some of them.
 */
static int touches_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct touches *t = arg;
	const uint64_t burst = t->local_bytes / PAGE / BURSTS;
	struct gn_pager_stats before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	uint64_t in = 0;
	int rc = gn_pager_query(t->pager, &before);

	out->group_ops = 1;
	while (!rc && (out->ns < block_ns || (in < burst && out->ns < BLOCK_MAX * block_ns))) {
		uint64_t since_ns, ns;

		if (t->opts->pattern == PAGER_SINGLE && t->left < TOUCHES) {
			rc = free_frames(t);
			gn_pager_query(t->pager, &before);
			if (rc)
				break;
		}
		t->left -= TOUCHES;
		since_ns = gn_now_ns();
		for (unsigned i = 0; i < TOUCHES; i++)
			touch(t);
		ns = gn_now_ns() - since_ns;
		t->touches += TOUCHES;
		t->ns += ns;
		out->ns += ns;
		rc = gn_pager_query(t->pager, &after);
		out->ops += after.faults - before.faults;
		in += after.pages_in - before.pages_in;
		before = after;
		if (bench_stopped())
			return -EINTR;
	}
	if (out->ops)
		gn_hist_add(&out->group_ns, out->ns / out->ops, 1);
	return rc;
}

/* ---- a volume and its pager ---- */

static int touches_open(struct touches *t)
{
	const struct bench_pager_opts *o = t->opts;
	const uint64_t scratch = o->pattern == PAGER_SINGLE ? t->local_bytes : 0;
	const uint64_t bytes = (o->bytes + scratch + SLAB - 1) / SLAB * SLAB;
	const struct gn_donor_server_opts donor = {
		.size = sizeof(donor), .memory = bytes, .slab = SLAB};
	const struct gn_pager_opts pager = {.size = sizeof(pager),
					    .local_bytes = t->local_bytes,
					    .prefetch = o->prefetch,
					    .write_faults = o->write_faults,
					    .stay = o->stay};
	char addr[64];
	const char *const addrs[] = {addr};
	const struct gn_vol_opts vol = {.size = sizeof(vol),
					.bytes = bytes,
					.donors = addrs,
					.n_donors = 1,
					.copies = 1,
					.owner = "bench"};
	int rc = gn_fabric_open("shm", &t->fabric);

	snprintf(addr, sizeof(addr), "shm:bench-pager-%d", (int)getpid());
	if (!rc)
		rc = gn_donor_server_create(t->fabric, addr, &donor, &t->donor);
	if (!rc)
		rc = gn_donor_server_start(t->donor);
	if (!rc)
		rc = gn_vol_create(t->fabric, &vol, &t->vol);
	if (!rc)
		rc = gn_pager_create(t->vol, &pager, &t->pager);
	if (!rc)
		rc = gn_pager_map(t->pager, o->bytes, (void **)&t->base);
	if (!rc && scratch)
		rc = gn_pager_map(t->pager, scratch, (void **)&t->scratch);
	return rc ? fail(rc, "the pager") : 0;
}

static int touches_close(struct touches *t, int rc)
{
	int end = gn_pager_destroy(t->pager);

	if (!end && t->vol)
		end = gn_vol_destroy(t->vol);
	if (t->donor)
		gn_donor_server_destroy(t->donor);
	if (!end && t->fabric)
		end = gn_fabric_close(t->fabric);
	return rc ? rc : end ? fail(end, "the pager") : 0;
}

/* Until the frames hold what the pattern leaves there. */
static int touches_warm(struct touches *t)
{
	struct block block = {.ops = 0};

	for (uint64_t page = 0; page < t->pages && !bench_stopped(); page++)
		*(volatile uint64_t *)(void *)(t->base + page * PAGE) = word_of(page);
	gn_hist_init(&block.group_ns);
	return touches_run(t, (uint64_t)(WARM_S * 1e9), &block);
}

/* ---- the run ---- */

static void stats_subtract(struct gn_pager_stats *s, const struct gn_pager_stats *before)
{
	uint64_t *const counters[] = {&s->faults,	 &s->faults_fresh,    &s->faults_remote,
				      &s->faults_cached, &s->faults_write,    &s->zeroed,
				      &s->pages_in,	 &s->pages_out,	      &s->reads,
				      &s->writes,	 &s->dropped,	      &s->prefetched,
				      &s->prefetch_used, &s->prefetch_wasted, &s->stalls,
				      &s->lost,		 &s->moves,	      &s->fault_ns};

	for (unsigned i = 0; i < sizeof(counters) / sizeof(counters[0]); i++)
		*counters[i] -= *(const uint64_t *)((const char *)before +
						    ((char *)counters[i] - (char *)s));
}

static int touches_measure(struct touches *t, struct bare_pager *bare, bench_progress_fn *progress,
			   struct bench_pager_result *out)
{
	struct gn_pager_stats before = {.size = sizeof(before)};
	struct shared *shared = calloc(1, sizeof(*shared));
	const struct load own = {touches_run, t, 1}, limit = {bare_pager_run, bare, SHARE};
	struct bench_result result = {.ops = 0};
	struct comparison compared;
	struct pair pair = {.shared = shared};
	int rc;

	if (!shared)
		return -ENOMEM;
	shared->opts.seconds = t->opts->seconds;
	t->touches = t->ns = 0;
	gn_pager_query(t->pager, &before);
	rc = blocks_run(&pair, &own, &limit, NULL, progress, &result, &compared);
	free(shared);
	out->stats = (struct gn_pager_stats){.size = sizeof(out->stats)};
	gn_pager_query(t->pager, &out->stats);
	stats_subtract(&out->stats, &before);
	out->mops = t->ns ? 1e3 * (double)t->touches / (double)t->ns : NAN;
	out->seconds = result.seconds;
	out->fault_us = result.ops ? result.p50_ns / 1e3 : NAN;
	out->bare_us = compared.limit_ns / 1e3;
	out->fault_ratio = result.ops ? compared.ratio : NAN;
	out->blocks = result.blocks;
	out->blocks_dropped = result.blocks_dropped;
	out->wrong = t->wrong;
	return rc;
}

int bench_pager_run(const struct bench_pager_opts *opts, bench_progress_fn *progress,
		    struct bench_pager_result *out)
{
	struct touches t = {.opts = opts, .pages = opts->bytes / PAGE};
	struct bare_pager *bare = NULL;
	int rc;

	t.local_bytes = opts->bytes * opts->local_pct / 100 / PAGE * PAGE + PAGE; /* a reserve */
	if (t.local_bytes < GN_PAGER_LOCAL_MIN)
		t.local_bytes = GN_PAGER_LOCAL_MIN;
	choice_init(&t.choice, (uint32_t)t.pages, (uint32_t)t.pages,
		    opts->pattern == PAGER_ZIPF ? ZIPF : 0, opts->seed);
	rc = touches_open(&t);
	if (!rc && opts->cpu >= 0)
		rc = bench_pin(opts->cpu);
	if (!rc)
		rc = bare_pager_create(t.pages < BARE_PAGES ? t.pages : BARE_PAGES, opts->cpu,
				       opts->seed, &bare);
	if (!rc)
		rc = touches_warm(&t);
	if (!rc)
		rc = touches_measure(&t, bare, progress, out);
	bare_pager_destroy(bare);
	return touches_close(&t, rc);
}
