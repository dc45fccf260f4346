/* SPDX-License-Identifier: MIT */
/* This process's side of a load that runs as processes: the cores, the children, the figures. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "procs.h"

#define START_US     10000000u /* for all processes to start, and to end */
#define LISTEN_US    60000000u /* for server 0 to fill its memory and listen */
#define STOP_US	     2000000u  /* … to end, after a signal */
#define LOOK_US	     1000u
#define RUN_BLOCK_NS 20000000u
#define REAP_EVERY   1024u /* idle turns between looks at the other processes */
#define PORT_FIRST   20000u
#define PORTS	     8000u

/* ---- the control block ---- */

/* Client 0 and the first server thread have the chosen cores; the others share the rest. */
static void share_cpus(struct load_run *run, uint32_t threads, bool threaded,
		       const cpu_set_t *allowed)
{
	const struct load_opts *o = &run->opts;
	int spare[CPU_SETSIZE + 1];
	unsigned n = 0, used = 0;

	for (int cpu = CPU_SETSIZE - 1; cpu >= 0; cpu--)
		if (CPU_ISSET((size_t)cpu, allowed) && cpu != o->cpus[0] && cpu != o->cpus[1])
			spare[n++] = cpu;
	CPU_ZERO(&run->server_cpus);
	CPU_SET((size_t)o->cpus[1], &run->server_cpus);
	for (; used + 1 < threads && used < n; used++)
		CPU_SET((size_t)spare[used], &run->server_cpus);
	for (uint32_t i = 1; threaded && i < run->n_servers && i < LOAD_TALLIES_MAX; i++)
		run->more_server_cpus[i] = run->server_cpus;
	if (threaded) /* the servers sleep */
		spare[n++] = o->cpus[1];
	for (uint32_t i = 0; i < run->n_clients; i++) {
		const unsigned turn = i % (n - used + 1);

		CPU_ZERO(&run->client_cpus[i]);
		CPU_SET((size_t)(turn ? spare[used + turn - 1] : o->cpus[0]), &run->client_cpus[i]);
	}
}

static int map_run(struct procs *p, size_t bytes)
{
	int rc;

	p->pair.fd = memfd_create("gannet-bench", MFD_CLOEXEC);
	if (p->pair.fd < 0)
		return -errno;
	if (ftruncate(p->pair.fd, (off_t)bytes))
		goto close_fd;
	p->run =
		mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, p->pair.fd, 0);
	if (p->run == MAP_FAILED)
		goto close_fd;
	return 0;

close_fd:
	rc = -errno;
	close(p->pair.fd);
	return rc;
}

static void choose_addresses(struct load_run *run)
{
	if (run->opts.host[0]) {
		snprintf(run->prefix, sizeof(run->prefix), "verbs:%.128s:", run->opts.host);
		run->first_port = PORT_FIRST + (uint32_t)(gn_random() % PORTS);
	} else {
		snprintf(run->prefix, sizeof(run->prefix), "shm:bench-%d-", (int)getpid());
	}
}

int procs_open(struct procs *p, const struct load_kind *kind, size_t bytes,
	       const struct load_opts *opts, uint32_t servers, uint32_t threads, uint32_t clients)
{
	struct load_run *run;
	int rc;

	*p = (struct procs){.kind = kind};
	rc = map_run(p, bytes);
	if (rc) {
		gn_log(GN_LOG_ERROR, "cannot share memory: %s", gn_strerror(rc));
		return rc;
	}
	run = p->run;
	run->bytes = bytes;
	run->opts = *opts;
	run->n_servers = servers;
	run->n_clients = clients;
	run->clients_per_proc = kind->threads ? clients : 1;
	run->pair.opts = (struct bench_opts){.seconds = opts->seconds,
					     .cpus = {opts->cpus[0], opts->cpus[1]}};
	run->pair.eventfd = -1;
	run->pair.answer = UINT64_MAX;
	snprintf(run->kind, sizeof(run->kind), "%s", kind->name);
	choose_addresses(run);
	for (uint32_t i = 0; i < clients; i++)
		gn_hist_init(&run->tally[i].group_ns);
	for (uint32_t i = 0; i < clients; i++)
		gn_hist_init(&run->tally[i].latency_ns);
	p->pair.shared = &run->pair;
	if (!sched_getaffinity(0, sizeof(p->cpus_before), &p->cpus_before)) {
		share_cpus(run, threads, kind->threads, &p->cpus_before);
		sched_setaffinity(0, sizeof(cpu_set_t), &run->client_cpus[0]);
	}
	return 0;
}

/* ---- starting ---- */

/* How many live. One that died has not done all that it was to do: the run fails. */
static uint32_t procs_reap(struct procs *p)
{
	uint32_t left = 0;

	for (uint32_t i = 0; i < p->n_pids; i++) {
		int status = 0;

		if (p->pids[i] > 0 && waitpid(p->pids[i], &status, WNOHANG) != 0)
			p->pids[i] = 0;
		left += p->pids[i] > 0;
		if (status)
			load_fail(p->run, -EPIPE, "another process has died: %s %d",
				  WIFSIGNALED(status) ? "signal" : "exit status",
				  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
	}
	return left;
}

/* All but server 0 and this process. */
static int start_others(struct procs *p)
{
	struct load_run *run = p->run;
	const uint32_t servers = run->n_servers ? run->n_servers - 1 : 0;
	const uint32_t clients = run->n_clients - run->clients_per_proc;
	const uint32_t others = servers + clients / run->clients_per_proc;
	const uint64_t end_ns = gn_deadline_us(START_US);
	int rc = 0;

	while (!rc && p->n_pids < others) {
		rc = bench_spawn("--bench-load", p->pair.fd, &p->pids[p->n_pids]);
		p->n_pids += !rc;
	}
	/* Pairs with the releases in procs_child.c. */
	while (!rc && __atomic_load_n(&run->ready, __ATOMIC_ACQUIRE) < servers + clients) {
		if (bench_stopped())
			rc = -EINTR;
		else if (load_failed(run) || procs_reap(p) < others)
			rc = -EPIPE;
		else if (gn_now_ns() > end_ns)
			rc = -ETIMEDOUT;
		gn_sleep_us(LOOK_US);
	}
	if (rc)
		load_fail(run, rc, "%u of %u more servers and clients have started: %s", run->ready,
			  servers + clients, gn_strerror(rc));
	return rc;
}

static int open_client(struct procs *p)
{
	struct load_run *run = p->run;
	int rc = load_check(run, gn_fabric_open(run->opts.provider, &p->self.fabric),
			    "opening the fabric");

	p->self.run = run;
	p->self.kind = p->kind;
	p->self.pair = &p->pair;
	if (!rc && run->opts.paper)
		rc = load_check(run, gn_ctx_create(p->self.fabric, &p->self.ctx),
				"creating a context");
	p->self.n_clients = run->clients_per_proc;
	if (!rc && p->kind->proc_open)
		rc = p->kind->proc_open(&p->self);
	if (rc)
		return rc;
	p->client = gn_alloc(p->kind->client_bytes, 64);
	if (!p->client)
		return load_check(run, -ENOMEM, "allocating a client");
	load_client_init(p->client, &p->self, 0);
	return p->kind->open(p->client);
}

/* ---- clients that are threads ---- */

static struct load_client *other_client(const struct procs *p, uint32_t i)
{
	return (struct load_client *)(void *)(p->others + i * p->kind->client_bytes);
}

static void thread_main(void *arg)
{
	procs_follow(arg);
}

/* Waits until the other clients are where the signal says, or have given up. */
static int await_clients(struct procs *p, uint32_t signal)
{
	const uint64_t end_ns = gn_deadline_us(START_US);

	for (uint32_t i = 1; i < p->run->n_clients;) {
		/* Pairs with the release in procs_child.c. */
		if (__atomic_load_n(&p->run->tally[i].follows, __ATOMIC_ACQUIRE) == signal)
			i++;
		else if (load_failed(p->run) || bench_stopped())
			return -EINTR;
		else if (gn_now_ns() > end_ns)
			return load_fail(p->run, -ETIMEDOUT, "a client does not answer");
		else if (p->kind->idle)
			p->kind->idle(p->client);
		else
			gn_yield();
	}
	return 0;
}

static int start_threads(struct procs *p)
{
	struct load_run *run = p->run;
	const uint32_t n = run->clients_per_proc - 1, others = run->ready;
	const uint64_t end_ns = gn_deadline_us(START_US);
	int rc = 0;

	if (!n)
		return 0;
	p->others = gn_alloc(n * p->kind->client_bytes, 64);
	if (!p->others)
		return load_check(run, -ENOMEM, "allocating clients");
	while (!rc && p->n_threads < n) {
		struct load_client *c = other_client(p, p->n_threads);

		load_client_init(c, &p->self, p->n_threads + 1);
		rc = gn_thread_start("client", thread_main, c, &p->threads[p->n_threads]);
		load_check(run, rc, "starting a thread");
		p->n_threads += !rc;
	}
	/* Pairs with the release in procs_child.c. */
	while (!rc && __atomic_load_n(&run->ready, __ATOMIC_ACQUIRE) < others + n) {
		if (load_failed(run) || bench_stopped())
			rc = -EINTR;
		else if (gn_now_ns() > end_ns)
			rc = load_fail(run, -ETIMEDOUT, "threads do not start");
		else
			gn_sleep_us(LOOK_US);
	}
	return rc;
}

static void join_threads(struct procs *p)
{
	while (p->n_threads)
		gn_thread_join(p->threads[--p->n_threads]);
}

int procs_start_server(struct procs *p)
{
	const int rc = bench_spawn("--bench-load", p->pair.fd, &p->pair.pid);

	return rc ? rc : pair_wait_us(&p->pair, LISTEN_US);
}

int procs_start(struct procs *p)
{
	int rc = p->run->n_servers ? procs_start_server(p) : 0;

	if (!rc)
		rc = start_others(p);
	if (!rc)
		rc = open_client(p);
	return rc ? rc : start_threads(p);
}

/* ---- measuring ---- */

static void signal_others(struct procs *p, enum load_signal signal)
{
	/* Pairs with the acquire in procs_child.c. */
	__atomic_store_n(&p->run->signal, signal, __ATOMIC_RELEASE);
}

int procs_limit(void *procs, uint64_t block_ns, struct block *out)
{
	struct procs *p = procs;
	int rc;

	signal_others(p, SIGNAL_LIMIT);
	rc = await_clients(p, SIGNAL_LIMIT);
	if (!rc)
		rc = p->kind->limit(p->client, block_ns, out);
	signal_others(p, SIGNAL_RUN);
	return rc ? rc : await_clients(p, SIGNAL_RUN);
}

/* Waits for the processes that were told to end. */
static int end_processes(struct procs *p)
{
	const uint64_t end_ns = gn_deadline_us(START_US), stop_ns = gn_deadline_us(STOP_US);

	while (procs_reap(p) && gn_now_ns() < (bench_stopped() ? stop_ns : end_ns))
		gn_sleep_us(LOOK_US);
	if (!procs_reap(p))
		return load_failed(p->run) ? -EIO : 0;
	for (uint32_t i = 0; i < p->n_pids; i++) {
		if (p->pids[i] > 0) {
			kill(p->pids[i], SIGKILL);
			waitpid(p->pids[i], NULL, 0);
			p->pids[i] = 0;
		}
	}
	return bench_stopped() ? -EINTR : load_fail(p->run, -EIO, "a process did not end");
}

static int end_others(struct procs *p)
{
	const uint64_t end_ns = gn_deadline_us(START_US);

	signal_others(p, SIGNAL_END);
	if (p->kind->idle && bench_stopped()) /* the others wait for answers of this process */
		load_fail(p->run, -EINTR, "interrupted");
	for (unsigned i = 1; p->kind->idle && p->client && p->kind->idle(p->client); i++) {
		if (i % REAP_EVERY == 0)
			procs_reap(p);
		if (load_failed(p->run) || bench_stopped() || gn_now_ns() > end_ns)
			break;
	}
	join_threads(p);
	if (p->kind->threads) /* only servers are left: until the clients have closed */
		return load_failed(p->run) ? -EIO : 0;
	return end_processes(p);
}

static double share_of(const struct gn_hist *hist, double percent, uint64_t group_ops)
{
	return (double)gn_hist_percentile(hist, percent) / (double)group_ops;
}

/* Figures are per operation; its time is a share of its group's. */
static void sum_up(const struct load_run *run, const struct load_served *served,
		   struct load_result *r)
{
	struct load_sums *sums = &r->sums;
	struct gn_hist group_ns, latency_ns;
	const uint64_t group_ops = run->tally[0].group_ops;
	double ops, per_message;

	r->inflight_max = run->tally[0].inflight_max;
	gn_hist_init(&group_ns);
	gn_hist_init(&latency_ns);
	r->mops = 0;
	for (uint32_t i = 0; i < run->n_clients; i++) {
		const struct load_tally *t = &run->tally[i];

		gn_hist_merge(&group_ns, &t->group_ns);
		gn_hist_merge(&latency_ns, &t->latency_ns);
		load_sums_add(sums, &t->sums, 1);
		if (t->ns)
			r->mops += (double)t->sums.ops / ((double)t->ns / 1e3);
	}
	ops = (double)sums->ops;
	r->run.ops = sums->ops;
	r->run.p50_ns = share_of(&group_ns, 50, group_ops);
	r->run.p99_ns = share_of(&group_ns, 99, group_ops);
	r->run.p999_ns = share_of(&group_ns, 99.9, group_ops);
	if (latency_ns.count) {
		r->run.p50_ns = (double)gn_hist_percentile(&latency_ns, 50);
		r->run.p99_ns = (double)gn_hist_percentile(&latency_ns, 99);
		r->run.p999_ns = (double)gn_hist_percentile(&latency_ns, 99.9);
	}
	r->run.has_counters = true;
	r->client_wrs = (double)sums->wrs / ops;
	r->cqes = (double)sums->cqes / ops;
	r->doorbells = (double)sums->doorbells / ops;
	r->batch = sums->batched ? (double)sums->batches / (double)sums->batched : NAN;
	if (!served->messages)
		return;
	/* Work requests of the server go with messages, not with calls. */
	per_message = (double)sums->messages / ops / (double)served->messages;
	r->server_wrs = (double)served->wrs * per_message;
	r->doorbells += (double)served->doorbells * per_message;
	/* Operations that bypass the server are in no message. */
	r->batch_fill = sums->messages ?
				(double)(sums->ops - sums->bypass_gets) / (double)sums->messages :
				NAN;
	/* What a client waits for: its own reads, and what the server's card did. */
	r->round_trips = (double)sums->fetches / ops + r->server_wrs;
}

static int note_server(struct procs *p)
{
	return p->run->n_servers == 1 ? pair_ask(&p->pair, ORDER_NOTE) : 0;
}

/* A block of client 0; then a look at the other processes. */
static int run_own_block(void *arg, uint64_t block_ns, struct block *out)
{
	struct procs *p = arg;
	const int rc = load_block(p->client, block_ns, out);

	procs_reap(p);
	return rc || !load_failed(p->run) ? rc : -EPIPE;
}

/* The other clients end, and all counters are taken. */
static int end_measure(struct procs *p, int rc, const struct load_served *served,
		       struct load_result *out)
{
	int rc_end;

	__atomic_add_fetch(&p->run->gone, 1, __ATOMIC_RELEASE);
	rc_end = end_others(p);
	rc = rc ? rc : rc_end;
	if (!rc)
		sum_up(p->run, served, out);
	return rc;
}

int procs_run(struct procs *p, bool (*is_over)(void *arg), void *arg, struct load_result *out)
{
	const struct load_served served = {0};
	struct load_client *c = p->client;
	int rc = 0;

	signal_others(p, SIGNAL_RUN);
	while (!rc && !is_over(arg)) {
		struct block block = {.ops = 0};

		gn_hist_init(&block.group_ns);
		rc = run_own_block(p, RUN_BLOCK_NS, &block);
		out->run.seconds += (double)block.ns / 1e9;
	}
	if (!rc)
		rc = c->kind->rest(c);
	if (!rc && c->kind->check)
		rc = c->kind->check(c);
	return end_measure(p, rc, &served, out);
}

int procs_measure(struct procs *p, const struct load *limit, const struct load *part,
		  bench_progress_fn *progress, struct load_result *out, struct comparison *compared)
{
	const struct load own = {.run = run_own_block, .arg = p};
	struct load_client *c = p->client;
	int rc = note_server(p);
	const struct load_served before = p->run->served;
	const uint64_t since_ns = gn_now_ns();
	struct load_served served;

	signal_others(p, SIGNAL_RUN);
	if (!rc)
		rc = blocks_run(&p->pair, &own, limit, part, progress, &out->run, compared);
	if (!rc)
		rc = c->kind->rest(c);
	if (!rc && c->kind->check)
		rc = c->kind->check(c);
	if (!rc)
		rc = note_server(p);
	served = (struct load_served){.messages = p->run->served.messages - before.messages,
				      .wrs = p->run->served.wrs - before.wrs,
				      .doorbells = p->run->served.doorbells - before.doorbells,
				      .cpu_ns = p->run->served.cpu_ns - before.cpu_ns};
	out->server_cpu_percent = 100 * (double)served.cpu_ns / (double)(gn_now_ns() - since_ns);
	return end_measure(p, rc, &served, out);
}

void procs_scale_latency(const struct load_opts *o, struct load_result *r)
{
	const double under_way = o->batch_auto ? r->batch : o->inflight;

	r->run.p50_ns *= under_way;
	r->run.p99_ns *= under_way;
	r->run.p999_ns *= under_way;
}

/* ---- the end ---- */

void procs_stop_server(struct procs *p)
{
	const uint64_t end_ns = gn_deadline_us(START_US);

	if (p->pair.pid <= 0)
		return;
	/* It may be answering pings. */
	__atomic_store_n(&p->run->pair.ping, CACHELINE_END, __ATOMIC_RELEASE);
	pair_order(&p->pair, ORDER_QUIT);
	while (pair_peer_lives(&p->pair) && gn_now_ns() < end_ns)
		gn_sleep_us(LOOK_US);
	if (p->pair.pid > 0) {
		kill(p->pair.pid, SIGKILL);
		waitpid(p->pair.pid, NULL, 0);
	}
	p->pair.pid = 0;
}

int procs_close(struct procs *p, int rc, struct load_result *out)
{
	if (rc && p->pair.pid > 0)
		pair_check(&p->pair); /* says so if it has died */
	if (rc && (procs_reap(p) || p->n_threads))
		end_others(p);
	if (p->client)
		p->kind->close(p->client);
	if (p->self.state)
		p->kind->proc_close(&p->self);
	gn_free(p->others);
	gn_free(p->client);
	gn_ctx_destroy(p->self.ctx);
	gn_fabric_close(p->self.fabric);
	procs_stop_server(p);
	if (procs_reap(p)) /* further servers */
		end_processes(p);
	memcpy(out->error, p->run->error, sizeof(out->error));
	sched_setaffinity(0, sizeof(p->cpus_before), &p->cpus_before);
	munmap(p->run, p->run->bytes);
	close(p->pair.fd);
	return rc;
}
