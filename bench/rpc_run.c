/* SPDX-License-Identifier: MIT */
/*
 * A run of calls from start to end: the hall, the server, the clients, the figures.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rpc_hall.h"

#define JOIN_US 10000000u /* for all clients to connect, and to end */
#define LOOK_US 1000u

const char *const bench_rpc_modes[BENCH_RPC_MODES] = {
	[BENCH_RPC_FETCH] = "fetch",
	[BENCH_RPC_REPLY] = "reply",
	[BENCH_RPC_HYBRID] = "hybrid",
	[BENCH_RPC_LIMIT] = "limit",
};

struct run {
	struct pair pair; /* this process and the server */
	struct hall *hall;
	struct bench_rpc_result result;
	bench_progress_fn *progress;
	pid_t clients[BENCH_RPC_CLIENTS_MAX]; /* from 1 on; 0: none */
	cpu_set_t cpus_before;
};

/* ---- the hall ---- */

/* The first client and the first server thread have what was chosen; others share the rest. */
static void share_cpus(struct hall *hall, const cpu_set_t *allowed)
{
	const struct bench_rpc_opts *o = &hall->opts;
	int spare[CPU_SETSIZE];
	unsigned n = 0, used = 0;

	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET((size_t)cpu, allowed) && cpu != o->cpus[0] && cpu != o->cpus[1])
			spare[n++] = cpu;
	CPU_ZERO(&hall->server_cpus);
	CPU_SET((size_t)o->cpus[1], &hall->server_cpus);
	for (; used + 1 < o->threads && used < n; used++)
		CPU_SET((size_t)spare[used], &hall->server_cpus);
	for (uint32_t i = 0; i < o->clients; i++) {
		const unsigned turn = i % (n - used + 1);

		CPU_ZERO(&hall->client_cpus[i]);
		CPU_SET((size_t)(turn ? spare[used + turn - 1] : o->cpus[0]),
			&hall->client_cpus[i]);
	}
}

static int open_hall(struct run *run, const struct bench_rpc_opts *opts)
{
	const size_t bytes = sizeof(struct hall) + limit_bytes(opts);
	struct hall *hall;
	int rc;

	run->pair.fd = memfd_create("gannet-bench", MFD_CLOEXEC);
	if (run->pair.fd < 0)
		return -errno;
	if (ftruncate(run->pair.fd, (off_t)bytes))
		goto close_fd;
	hall = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, run->pair.fd,
		    0);
	if (hall == MAP_FAILED)
		goto close_fd;
	hall->bytes = bytes;
	hall->opts = *opts;
	hall->pair.opts = (struct bench_opts){.provider = "shm",
					      .seconds = opts->seconds,
					      .cpus = {opts->cpus[0], opts->cpus[1]}};
	hall->pair.eventfd = -1;
	hall->pair.answer = UINT64_MAX;
	run->hall = hall;
	run->pair.shared = &hall->pair;
	if (!sched_getaffinity(0, sizeof(run->cpus_before), &run->cpus_before))
		share_cpus(hall, &run->cpus_before);
	return 0;

close_fd:
	rc = -errno;
	close(run->pair.fd);
	return rc;
}

static void close_hall(struct run *run)
{
	sched_setaffinity(0, sizeof(run->cpus_before), &run->cpus_before);
	munmap(run->hall, run->hall->bytes);
	close(run->pair.fd);
}

/* ---- other processes ---- */

/* 0 when there are none left. */
static unsigned reap_clients(struct run *run)
{
	unsigned left = 0;

	for (uint32_t i = 1; i < run->hall->opts.clients; i++) {
		if (run->clients[i] > 0 && waitpid(run->clients[i], NULL, WNOHANG) != 0)
			run->clients[i] = 0;
		left += run->clients[i] > 0;
	}
	return left;
}

static int start_clients(struct run *run)
{
	struct hall *hall = run->hall;
	const uint32_t others = hall->opts.clients - 1;
	const uint64_t end_ns = gn_deadline_us(JOIN_US);
	int rc = 0;

	for (uint32_t i = 1; !rc && i <= others; i++)
		rc = bench_spawn("--bench-rpc", run->pair.fd, &run->clients[i]);
	/* Pairs with the releases in rpc_client.c. */
	while (!rc && __atomic_load_n(&hall->ready, __ATOMIC_ACQUIRE) < others) {
		if (bench_stopped())
			rc = -EINTR;
		else if (hall->failed || reap_clients(run) < others)
			rc = -EPIPE;
		else if (gn_now_ns() > end_ns)
			rc = -ETIMEDOUT;
		gn_sleep_us(LOOK_US);
	}
	if (rc && rc != -EINTR)
		gn_log(GN_LOG_ERROR, "bench: %u of %u more clients have started: %s", hall->ready,
		       others, gn_strerror(rc));
	return rc;
}

static int end_clients(struct run *run)
{
	const uint64_t end_ns = gn_deadline_us(JOIN_US);

	__atomic_store_n(&run->hall->signal, SIGNAL_END, __ATOMIC_RELEASE);
	while (reap_clients(run) && gn_now_ns() < end_ns && !bench_stopped())
		gn_sleep_us(LOOK_US);
	if (!reap_clients(run) && !run->hall->failed)
		return 0;
	for (uint32_t i = 1; i < run->hall->opts.clients; i++) {
		if (run->clients[i] > 0) {
			kill(run->clients[i], SIGKILL);
			waitpid(run->clients[i], NULL, 0);
			run->clients[i] = 0;
		}
	}
	return bench_stopped() ? -EINTR : -EIO;
}

static void stop_server(struct run *run)
{
	const uint64_t end_ns = gn_deadline_us(JOIN_US);

	/* It may be answering pings. */
	__atomic_store_n(&run->hall->pair.ping, CACHELINE_END, __ATOMIC_RELEASE);
	pair_order(&run->pair, ORDER_QUIT);
	while (pair_peer_lives(&run->pair) && gn_now_ns() < end_ns)
		gn_sleep_us(LOOK_US);
	if (run->pair.pid > 0) {
		kill(run->pair.pid, SIGKILL);
		waitpid(run->pair.pid, NULL, 0);
	}
}

/* ---- figures ---- */

/* One at a time next to a line, or several next to the loop without calls. */
static void take_comparison(struct run *run, const struct comparison *compared)
{
	const bool line = run->hall->opts.inflight == 1;

	run->result.run.cacheline_ratio = line ? compared->ratio : NAN;
	run->result.run.overhead_ns = line ? compared->overhead_ns : NAN;
	run->result.limit_ratio = line ? NAN : 1 / compared->ratio;
}

/* A closed loop: with several calls under way, each takes that many times its share. */
static void add_up(struct run *run)
{
	const struct hall *hall = run->hall;
	struct bench_rpc_result *r = &run->result;
	struct tally all = {.calls = 0};
	double calls;

	gn_hist_init(&all.group_ns);
	r->mops = 0;
	for (uint32_t i = 0; i < hall->opts.clients; i++) {
		const struct tally *t = &hall->tally[i];

		gn_hist_merge(&all.group_ns, &t->group_ns);
		all.calls += t->calls;
		all.wrs += t->wrs;
		all.doorbells += t->doorbells;
		all.batches += t->batches;
		all.fetches += t->fetches;
		r->switches += t->switches;
		r->failed_fetches += t->failed_fetches;
		r->second_reads += t->second_reads;
		if (t->ns)
			r->mops += (double)t->group_ns.count * (double)t->group_ops /
				   ((double)t->ns / 1e3);
	}
	calls = (double)all.calls;
	r->run.ops = all.calls;
	r->run.p50_ns =
		(double)gn_hist_percentile(&all.group_ns, 50) / (double)hall->tally[0].group_ops;
	r->run.p99_ns =
		(double)gn_hist_percentile(&all.group_ns, 99) / (double)hall->tally[0].group_ops;
	r->has_counters = true;
	r->client_wrs = (double)all.wrs / calls;
	r->server_wrs = (double)hall->server_wrs / (double)hall->server_calls;
	r->doorbells = (double)all.doorbells / calls +
		       (double)hall->server_doorbells / (double)hall->server_calls;
	r->batch_fill = all.batches ? calls / (double)all.batches : NAN;
	/* What a client waits for: its own reads, and what the server's card did. */
	r->round_trips = (double)all.fetches / calls + r->server_wrs;
}

/* What one client's calls can be compared with; several clients share a core, or have more. */
static const struct load *limit_for(const struct bench_rpc_opts *o, const struct load *line,
				    const struct load *bare)
{
	if (o->clients > 1)
		return NULL;
	return o->inflight == 1 ? line : bare;
}

static int measure_calls(struct run *run)
{
	const struct bench_rpc_opts *o = &run->hall->opts;
	struct hold hold = {.pair = &run->pair, .hall = run->hall};
	const struct load line = {hold_line, &hold, 0.25}, bare = {hold_bare, &hold, 0.25};
	struct comparison compared = {NAN, NAN};
	struct load own = {.run = caller_run};
	int rc = caller_create(run->hall, 0, &hold.caller), end;

	if (rc)
		return rc;
	own.arg = hold.caller;
	rc = bare_create(&run->pair, run->hall, &hold.bare);
	if (!rc)
		rc = start_clients(run);
	__atomic_store_n(&run->hall->signal, SIGNAL_RUN, __ATOMIC_RELEASE);
	if (!rc)
		rc = blocks_run(&run->pair, &own, limit_for(o, &line, &bare), run->progress,
				&run->result.run, &compared);
	end = end_clients(run);
	rc = rc ? rc : end;
	if (!rc)
		rc = caller_finish(hold.caller);
	if (!rc)
		rc = pair_ask(&run->pair, ORDER_CHECK);
	if (!rc) {
		take_comparison(run, &compared);
		add_up(run);
	}
	bare_destroy(hold.bare);
	caller_destroy(hold.caller);
	return rc;
}

static int measure_limit(struct run *run)
{
	const struct bench_rpc_opts *o = &run->hall->opts;
	const struct load limit = {cacheline_run, &run->pair, 0.25};
	struct bench_rpc_result *r = &run->result;
	struct comparison compared;
	struct bare *bare;
	struct load own = {.run = bare_run};
	int rc = bare_create(&run->pair, run->hall, &bare);

	if (rc)
		return rc;
	own.arg = bare;
	rc = blocks_run(&run->pair, &own, o->inflight == 1 ? &limit : NULL, run->progress, &r->run,
			&compared);
	if (!rc)
		rc = bare_check(bare);
	take_comparison(run, &compared);
	r->mops = (double)r->run.ops / r->run.seconds / 1e6;
	r->server_wrs = r->client_wrs = r->round_trips = r->doorbells = r->batch_fill = NAN;
	bare_destroy(bare);
	return rc;
}

int bench_rpc_run(const struct bench_rpc_opts *opts, bench_progress_fn *progress,
		  struct bench_rpc_result *out)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	run->pair.pid = -1;
	run->progress = progress;
	rc = open_hall(run, opts);
	if (rc) {
		gn_log(GN_LOG_ERROR, "cannot share memory: %s", gn_strerror(rc));
		free(run);
		return rc;
	}
	sched_setaffinity(0, sizeof(cpu_set_t), &run->hall->client_cpus[0]);
	rc = bench_spawn("--bench-rpc", run->pair.fd, &run->pair.pid);
	if (!rc)
		rc = pair_wait(&run->pair);
	if (!rc)
		rc = opts->mode == BENCH_RPC_LIMIT ? measure_limit(run) : measure_calls(run);
	if (run->pair.pid > 0)
		stop_server(run);
	if (!rc) {
		run->result.run.p50_ns *= opts->inflight;
		run->result.run.p99_ns *= opts->inflight;
		*out = run->result;
	}
	close_hall(run);
	free(run);
	return rc;
}

/* The server comes first, and is waited for; then come clients, which are all alike. */
int bench_rpc_peer_main(void)
{
	struct stat stat;
	struct hall *hall = MAP_FAILED;
	uint32_t number;
	int rc;

	if (!fstat(BENCH_PEER_FD, &stat) && (size_t)stat.st_size >= sizeof(*hall))
		hall = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_POPULATE, BENCH_PEER_FD, 0);
	if (hall == MAP_FAILED) {
		gn_log(GN_LOG_ERROR, "--bench-rpc is for gannet bench itself");
		return EXIT_FAILURE;
	}
	number = __atomic_fetch_add(&hall->joined, 1, __ATOMIC_RELAXED);
	rc = number ? caller_main(hall, number) : server_main(hall);
	munmap(hall, (size_t)stat.st_size);
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}
