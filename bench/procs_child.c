/* SPDX-License-Identifier: MIT */
/*
 * A process that was spawned for a load: finds out which it is, and runs load_program() until the
 * parent says that it is over.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dgram.h"
#include "fabric.h"
#include "io.h"
#include "kv.h"
#include "msg.h"
#include "pair_load.h"
#include "procs.h"
#include "rpc.h"

#define ORDER_NAP_US	5000u /* between looks for an order: the core is the server thread's */
#define SIGNAL_NAP_US	100u
#define LISTEN_NAP_US	500u
#define BLOCK_NS	1000000u
#define THREAD_BLOCK_NS 50000u /* threads follow client 0 from one block to the other */

static const struct load_kind *const kinds[] = {
	&load_rpc, &load_kv, &load_msg, &load_dgram, &load_io, &load_fabric, &load_pair, NULL,
};

/* ---- a server ---- */

static uint32_t signal_of(const struct load_run *run)
{
	/* Pairs with the releases in procs.c. */
	return __atomic_load_n(&run->signal, __ATOMIC_ACQUIRE);
}

static uint64_t ns_of(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_usec * 1000u;
}

static void note_counters(struct load_run *run, struct gn_fabric *fabric,
			  struct gn_rpc_server *server)
{
	struct gn_rpc_counters rpc = {.size = sizeof(rpc)};
	struct load_sums sums = {0};
	struct rusage usage = {0};

	gn_rpc_server_counters(server, &rpc);
	load_count_fabric(fabric, &sums);
	getrusage(RUSAGE_SELF, &usage);
	run->served.cpu_ns = ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
	run->served.messages = rpc.batches;
	/* The server probes idle clients and wakes sleeping ones apart from calls. */
	run->served.wrs = sums.wrs - rpc.probes - rpc.notifies;
	run->served.doorbells = sums.doorbells - rpc.probes - rpc.notifies;
}

/* The parent waits for server 0 by itself, and for the others with all that were started. */
static void child_listens(struct load_proc *proc, uint32_t number, int rc)
{
	struct load_run *run = proc->run;

	/* Pairs with the acquire in procs_follow(). */
	if (!rc)
		__atomic_add_fetch(&run->listening, 1, __ATOMIC_RELEASE);
	if (!number)
		peer_answer(&run->pair, ORDER_START, rc);
	else if (!rc)
		__atomic_add_fetch(&run->ready, 1, __ATOMIC_RELEASE);
}

/* Orders to answer pings are for the thread that is held. */
static bool child_served(struct load_proc *proc, struct gn_rpc_server *rpc)
{
	struct load_run *run = proc->run;
	/* Pairs with the release in pair_order(). */
	const uint64_t word = __atomic_load_n(&run->pair.order, __ATOMIC_ACQUIRE);

	if (bench_stopped() || (word & 0xff) == ORDER_QUIT)
		return true;
	if (proc->first_server && proc->kind->threads) /* until the clients have closed */
		return false;
	if (proc->first_server) /* orders are for server 0 */
		return signal_of(run) == SIGNAL_END &&
		       (load_failed(run) ||
			__atomic_load_n(&run->gone, __ATOMIC_ACQUIRE) == run->n_clients);
	if ((word & 0xff) == ORDER_NOTE && run->pair.answer != word) {
		if (rpc)
			note_counters(run, proc->fabric, rpc);
		peer_answer(&run->pair, word, 0);
	}
	return false;
}

/* ---- a client ---- */

/* One block of what the signal says. */
static int follow_block(struct load_client *c, uint32_t signal)
{
	struct block block = {.ops = 0};

	gn_hist_init(&block.group_ns);
	/* Pairs with the acquire in procs.c. */
	__atomic_store_n(&c->tally->follows, signal, __ATOMIC_RELEASE);
	return signal == SIGNAL_LIMIT ?
		       c->kind->limit(c, THREAD_BLOCK_NS, &block) :
		       load_block(c, c->kind->limit ? THREAD_BLOCK_NS : BLOCK_NS, &block);
}

static int run_blocks(struct load_client *c)
{
	struct load_run *run = c->run;
	uint32_t signal;
	int rc = 0;

	/* Pairs with the acquire in procs.c. */
	__atomic_add_fetch(&run->ready, 1, __ATOMIC_RELEASE);
	while (signal_of(run) == SIGNAL_WAIT) {
		if (bench_stopped())
			return -EINTR;
		gn_sleep_us(SIGNAL_NAP_US);
	}
	while (!rc && (signal = signal_of(run)) != SIGNAL_END)
		rc = follow_block(c, signal);
	if (!rc)
		rc = c->kind->rest(c);
	return rc || !c->kind->check ? rc : c->kind->check(c);
}

void procs_follow(struct load_client *c)
{
	struct load_run *run = c->run;

	if (run->clients_per_proc > 1)
		sched_setaffinity(0, sizeof(cpu_set_t), &run->client_cpus[c->number]);
	/* Pairs with the release in child_listens(). */
	while (__atomic_load_n(&run->listening, __ATOMIC_ACQUIRE) < run->n_servers &&
	       !load_failed(run) && !bench_stopped())
		gn_sleep_us(LISTEN_NAP_US);
	if (!load_failed(run) && !bench_stopped() && !c->kind->open(c))
		run_blocks(c);
	c->kind->close(c);
}

/* ---- the process ---- */

static int map_run(struct load_run **out)
{
	struct load_run *run = MAP_FAILED;
	struct stat stat;

	if (!fstat(BENCH_PEER_FD, &stat) && (size_t)stat.st_size >= sizeof(*run))
		run = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_POPULATE, BENCH_PEER_FD, 0);
	if (run == MAP_FAILED) {
		gn_log(GN_LOG_ERROR, "this is for gannet bench itself");
		return -EBADF;
	}
	*out = run;
	return 0;
}

static const struct load_kind *kind_of(const struct load_run *run)
{
	for (unsigned i = 0; kinds[i]; i++)
		if (!strcmp(kinds[i]->name, run->kind))
			return kinds[i];
	return NULL;
}

int procs_main(void)
{
	struct load_proc proc = {.client_main = procs_follow,
				 .listens = child_listens,
				 .served = child_served,
				 .nap_us = ORDER_NAP_US};
	struct gn_env env = {.node = gn_node_name(), .arg = &proc};
	uint32_t number, each, procs;
	int status;

	if (map_run(&proc.run))
		return EXIT_FAILURE;
	each = proc.run->clients_per_proc;
	procs = proc.run->n_servers + proc.run->n_clients / each;
	number = __atomic_fetch_add(&proc.run->joined, 1, __ATOMIC_RELAXED);
	proc.kind = kind_of(proc.run);
	if (!proc.kind || number >= procs - 1)
		return EXIT_FAILURE;
	if (number < proc.run->n_servers) {
		proc.first_server = number;
		proc.n_servers = 1;
	} else {
		proc.first_client = (number - proc.run->n_servers + 1) * each;
		proc.n_clients = each;
	}
	if (sched_setaffinity(0, sizeof(cpu_set_t),
			      proc.n_clients ? &proc.run->client_cpus[proc.first_client] :
			      number	     ? &proc.run->more_server_cpus[number] :
					       &proc.run->server_cpus))
		gn_log(GN_LOG_WARN, "cannot run on some cpus only: %s", gn_strerror(-errno));
	env.fabric = proc.run->opts.provider;
	status = load_program(&env, 0, NULL);
	munmap(proc.run, proc.run->bytes);
	return status;
}
