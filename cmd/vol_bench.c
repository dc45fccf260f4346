/* SPDX-License-Identifier: MIT */
/*
 * gannet vol bench: makes a volume on donors that run already, fills it, and reads and writes it
 * for a while. What is read is checked. Donors may be killed meanwhile: that is what it is for.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/exec.h>

#include "bench.h"
#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"
#include "vol_cmd.h"

#define BLOCK_MIN   8u
#define DEPTH_MAX   4096u
#define SECONDS_MAX 86400.0
#define LOOK_NS	    100000000u /* between looks at the clock and for a signal */
#define WAIT_US	    100000u
#define MIB	    1048576.0

enum load_op { OP_READ, OP_WRITE, OP_MIXED, OPS };
static const char *const op_names[OPS + 1] = {"read", "write", "mixed"};

struct request {
	struct vol_donors donors;
	struct gn_vol_opts opts;
	enum load_op op;
	uint32_t block, depth;
	double seconds, stats_s;
	const char *monitor, *metrics;
	bool json;
};

#define TO(member) .to = offsetof(struct request, member)

static const struct opt options[] = {
	OPT_VOL_DONORS(struct request, donors),
	{OPT_U64, "size", "N", "of the volume, a multiple of 4096", TO(opts.bytes),
	 RANGE(GN_VOL_BLOCK, GN_VOL_SIZE_MAX)},
	{OPT_U32, "copies", "R", "on different donors", TO(opts.copies),
	 RANGE(1, GN_VOL_COPIES_MAX)},
	{OPT_FLAG, "verify", NULL, "with a checksum of each 4 KiB", TO(opts.verify)},
	{OPT_U32, "repair-share", "PCT", "of the time that repair copies", "the library's choice",
	 TO(opts.repair_share), RANGE(1, 100)},
	{OPT_CHOICE, "op", "OP", "of requests; mixed: half and half", TO(op), .choices = op_names},
	{OPT_U32, "block", "B", "bytes of a request, a power of two", TO(block),
	 RANGE(BLOCK_MIN, GN_VOL_BYTES_MAX)},
	{OPT_U32, "depth", "D", "requests under way", TO(depth), RANGE(1, DEPTH_MAX)},
	{OPT_REAL, "seconds", "S", "to measure; Ctrl-C ends earlier", TO(seconds),
	 RANGE(0.01, SECONDS_MAX)},
	{OPT_REAL, "stats", "S", "a line every S seconds", "", TO(stats_s),
	 RANGE(0.1, SECONDS_MAX)},
	OPT_VOL_MONITOR(struct request, monitor),
	OPT_METRICS(struct request, metrics),
	{OPT_FLAG, "json", NULL, "one object, and what is for people on stderr", TO(json)},
	{.type = OPT_END},
};

/* ---- requests ---- */

struct load {
	const struct request *request;
	const sigset_t *signals;
	FILE *people;
	struct gn_vol *vol;
	struct gn_vol_queue *queue;
	struct gn_io_mem *mem;
	uint8_t *buffers;
	struct gn_vol_req *reqs, **idle;
	struct gn_io_sge *sges;
	uint64_t *began_ns;
	uint32_t n_idle;
	uint64_t random;
	struct gn_hist latency_ns;
	uint64_t ended, failed, wrong, longest_ns;
	int signo;
};

/* Every block begins with a word of its own. */
static uint64_t word_of(uint64_t offset)
{
	return (offset + 1) * 0x9e3779b97f4a7c15u;
}

static uint64_t next_random(struct load *l)
{
	l->random = l->random * 6364136223846793005u + 1442695040888963407u;
	return l->random >> 16;
}

static void load_prepare(struct load *l, struct gn_vol_req *req, enum gn_vol_op op, uint64_t offset)
{
	const uint64_t word = word_of(offset);

	req->op = op;
	req->offset = offset;
	if (op == GN_VOL_WRITE)
		memcpy(req->sge->addr, &word, sizeof(word));
	l->began_ns[req - l->reqs] = gn_now_ns();
}

/* Submits the first n idle requests. */
static int load_submit(struct load *l, uint32_t n)
{
	int rc = n ? gn_vol_submit(l->queue, l->idle, n) : 0;

	if (rc < 0)
		return rc == -EAGAIN ? 0 : rc;
	l->n_idle -= (uint32_t)rc;
	memmove(l->idle, l->idle + rc, l->n_idle * sizeof(l->idle[0]));
	return 0;
}

static int load_take(struct load *l)
{
	struct gn_vol_req **ended = l->idle + l->n_idle;
	const int n = gn_vol_wait(l->queue, ended, l->request->depth - l->n_idle,
				  gn_deadline_us(WAIT_US));
	const uint64_t now_ns = gn_now_ns();

	if (n < 0)
		return n == -ETIMEDOUT || n == -EINTR || n == -EAGAIN ? 0 : n;
	for (int i = 0; i < n; i++) {
		const struct gn_vol_req *req = ended[i];
		const uint64_t word = word_of(req->offset),
			       ns = now_ns - l->began_ns[req - l->reqs];

		l->failed += req->status != 0;
		l->wrong += !req->status && req->op == GN_VOL_READ &&
			    memcmp(req->sge->addr, &word, sizeof(word)) != 0;
		if (!req->status)
			gn_hist_add(&l->latency_ns, ns, 1);
		l->longest_ns = ns > l->longest_ns ? ns : l->longest_ns;
	}
	l->n_idle += (uint32_t)n;
	l->ended += (uint64_t)n;
	return 0;
}

/* Requests that did not fail. */
static uint64_t load_done(const struct load *l)
{
	return l->ended - l->failed;
}

static int load_rest(struct load *l)
{
	int rc = 0;

	while (!rc && l->n_idle < l->request->depth)
		rc = load_take(l);
	return rc;
}

static int load_fill(struct load *l)
{
	const struct request *r = l->request;
	int rc = 0;

	for (uint64_t at = 0; !rc && at < r->opts.bytes && !l->signo;) {
		const uint32_t idle = l->n_idle;
		uint32_t n = 0;

		for (; n < idle && at + n * (uint64_t)r->block < r->opts.bytes; n++)
			load_prepare(l, l->idle[n], GN_VOL_WRITE, at + n * (uint64_t)r->block);
		rc = load_submit(l, n);
		at += (idle - l->n_idle) * (uint64_t)r->block;
		if (!rc)
			rc = load_take(l);
	}
	return rc ? rc : load_rest(l);
}

/* ---- the run ---- */

static void print_interval(const struct load *l, uint64_t done, double seconds)
{
	struct gn_vol_stats stats = {.size = sizeof(stats)};

	if (gn_vol_query(l->vol, &stats))
		return;
	fprintf(l->people, "%.1f MiB/s, %.1f thousand requests/s, %" PRIu64 " failed; ",
		(double)done * l->request->block / MIB / seconds, (double)done / 1e3 / seconds,
		l->failed);
	vol_stats_words(&stats, l->people);
}

static int load_run(struct load *l, double *seconds)
{
	const struct request *r = l->request;
	const uint64_t begin_ns = gn_now_ns(), blocks = r->opts.bytes / r->block;
	uint64_t end_ns = begin_ns + (uint64_t)(r->seconds * 1e9), look_ns = begin_ns;
	uint64_t told_ns = begin_ns, told = 0, now_ns = begin_ns;
	int rc = 0;

	gn_hist_init(&l->latency_ns);
	l->ended = l->failed = l->wrong = l->longest_ns = 0;
	while (!rc && now_ns < end_ns && !l->signo) {
		for (uint32_t i = 0; i < l->n_idle; i++) {
			const uint64_t random = next_random(l);
			const bool write = r->op == OP_WRITE || (r->op == OP_MIXED && random & 1);

			load_prepare(l, l->idle[i], write ? GN_VOL_WRITE : GN_VOL_READ,
				     (random >> 1) % blocks * r->block);
		}
		rc = load_submit(l, l->n_idle);
		if (!rc)
			rc = load_take(l);
		now_ns = gn_now_ns();
		if (now_ns < look_ns)
			continue;
		look_ns = now_ns + LOOK_NS;
		l->signo = serving_look(l->signals);
		if (r->stats_s > 0 && (double)(now_ns - told_ns) >= r->stats_s * 1e9) {
			print_interval(l, load_done(l) - told, (double)(now_ns - told_ns) / 1e9);
			told_ns = now_ns;
			told = load_done(l);
		}
	}
	*seconds = (double)(now_ns - begin_ns) / 1e9;
	return rc ? rc : load_rest(l);
}

static void print_result(const struct load *l, double seconds)
{
	const struct request *r = l->request;
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	struct bench_sheet s = {0};

	gn_vol_query(l->vol, &stats);
	sheet_text(&s, "op", op_names[r->op]);
	sheet_number(&s, "block", r->block, 0);
	sheet_number(&s, "depth", r->depth, 0);
	sheet_number(&s, "seconds", seconds, 3);
	sheet_count(&s, "requests", l->ended);
	sheet_count(&s, "failed", l->failed);
	sheet_count(&s, "wrong", l->wrong);
	sheet_number(&s, "kiops", (double)load_done(l) / 1e3 / seconds, 3);
	sheet_number(&s, "mib_per_s", (double)load_done(l) * r->block / MIB / seconds, 3);
	sheet_number(&s, "p50_us", (double)gn_hist_percentile(&l->latency_ns, 50) / 1e3, 2);
	sheet_number(&s, "p99_us", (double)gn_hist_percentile(&l->latency_ns, 99) / 1e3, 2);
	sheet_number(&s, "max_ms", (double)l->longest_ns / 1e6, 3);
	if (!r->json) {
		sheet_lines(stdout, &s);
		return;
	}
	putchar('{');
	sheet_members(stdout, &s);
	fputs("\"volume\":{", stdout);
	vol_stats_print_json(&stats, stdout);
	puts("}}");
}

/* ---- beginning and end ---- */

static int load_open(struct load *l)
{
	const struct request *r = l->request;
	const size_t bytes = (size_t)r->depth * r->block;
	int rc;

	l->reqs = calloc(r->depth, sizeof(*l->reqs));
	l->idle = calloc(r->depth, sizeof(struct gn_vol_req *));
	l->sges = calloc(r->depth, sizeof(*l->sges));
	l->began_ns = calloc(r->depth, sizeof(*l->began_ns));
	l->buffers = aligned_alloc(GN_PAGE, (bytes + GN_PAGE - 1) / GN_PAGE * GN_PAGE);
	if (!l->reqs || !l->idle || !l->sges || !l->began_ns || !l->buffers)
		return -ENOMEM;
	memset(l->buffers, 0x5a, bytes);
	rc = gn_io_mem_register(gn_vol_engine(l->vol), l->buffers, bytes, &l->mem);
	for (uint32_t i = 0; i < r->depth; i++) {
		l->sges[i] = (struct gn_io_sge){.addr = l->buffers + (size_t)i * r->block,
						.len_bytes = r->block,
						.mem = l->mem};
		l->reqs[i] = (struct gn_vol_req){.sge = &l->sges[i], .n_sge = 1};
		l->idle[i] = &l->reqs[i];
	}
	l->n_idle = r->depth;
	l->random = 1;
	return rc ? rc : gn_vol_queue_create(l->vol, r->depth, &l->queue);
}

static void load_close(struct load *l)
{
	if (l->queue)
		gn_vol_queue_destroy(l->queue);
	gn_io_mem_deregister(l->mem);
	free(l->reqs);
	free(l->idle);
	free(l->sges);
	free(l->began_ns);
	free(l->buffers);
}

static int bench_metrics(void *vol, char *buf, size_t room)
{
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	const int rc = gn_vol_query(vol, &stats);

	return rc ? rc : (int)vol_stats_prometheus(&stats, buf, room);
}

static int bench_volume(struct load *l)
{
	uint64_t fill_failed;
	double seconds;
	int rc = load_open(l);

	gn_hist_init(&l->latency_ns);
	if (!rc)
		rc = load_fill(l);
	fill_failed = l->failed;
	if (!rc && !l->failed)
		fprintf(l->people, "filled %.1f MiB\n", (double)l->request->opts.bytes / MIB);
	fflush(l->people);
	l->failed = 0;
	if (!rc)
		rc = load_run(l, &seconds);
	if (!rc)
		print_result(l, seconds);
	if (l->wrong)
		fprintf(stderr, "gannet: %" PRIu64 " blocks had wrong bytes\n", l->wrong);
	l->failed += fill_failed;
	if (l->failed)
		fprintf(stderr, "gannet: %" PRIu64 " requests failed\n", l->failed);
	load_close(l);
	return rc;
}

static int bench_at(const void *arg, struct gn_fabric *fabric, const sigset_t *set)
{
	const struct request *r = arg;
	struct load l = {.request = r, .signals = set, .people = r->json ? stderr : stdout};
	struct metrics_source source = {.write = bench_metrics};
	struct gn_vol_monitor *monitor = NULL;
	struct metrics *metrics = NULL;
	int rc = gn_vol_create(fabric, &r->opts, &l.vol);

	source.arg = l.vol;
	if (!rc && r->monitor)
		rc = gn_vol_monitor_create(l.vol, fabric, r->monitor, 0, &monitor);
	if (!rc)
		rc = metrics_start(r->metrics, &source, &metrics);
	serving_tell_metrics(l.people, metrics);
	if (!rc)
		rc = bench_volume(&l);
	if (rc)
		fprintf(stderr, "gannet: %s\n", cmd_why(rc));
	metrics_stop(metrics);
	gn_vol_monitor_destroy(monitor);
	if (l.vol && gn_vol_destroy(l.vol))
		fprintf(stderr, "gannet: the volume cannot be closed: %s\n", gn_error());
	return rc || l.wrong || l.failed ? EXIT_FAILURE :
	       l.signo == SIGINT	 ? EXIT_INTERRUPTED :
					   cmd_flush_stdout();
}

static int vol_bench_run(const struct args *args)
{
	struct request *r = args->opts;

	if (r->opts.bytes % GN_VOL_BLOCK)
		return cmd_usage_error("--size must be a multiple of %u", GN_VOL_BLOCK);
	if (r->block & (r->block - 1) || r->opts.bytes % r->block)
		return cmd_usage_error(
			"--block must be a power of two, and --size a multiple of it");
	if ((uint64_t)r->block * r->depth > BENCH_IN_FLIGHT_MAX)
		return cmd_usage_error("--block times --depth must not exceed %u MiB",
				       BENCH_IN_FLIGHT_MAX >> 20);
	if (vol_donors_check(&r->donors, r->opts.copies))
		return EXIT_USAGE;
	if (r->opts.copies == 1)
		fprintf(stderr, "gannet: warning: --copies 1: a donor that ends takes its part of "
				"the volume with it\n");
	r->opts.donors = r->donors.addr;
	r->opts.n_donors = r->donors.n;
	return serving(r->donors.addr[0], bench_at, r);
}

const struct command command_vol_bench = {
	.name = "bench",
	.what = "makes a volume on donors that run, and reads and writes it",
	.about =
		"Makes a volume on the given donors, fills it, and reads and writes random blocks "
		"for a while. What is read is checked. Kill a donor meanwhile to see what happens. "
		"The exit status is 1 if a request failed.",
	.run = vol_bench_run,
	OPTIONS(options, struct request, .block = 4096, .depth = 16, .seconds = 5,
		.opts = {.size = sizeof(struct gn_vol_opts), .bytes = 256u << 20, .copies = 2}),
};
