/* SPDX-License-Identifier: MIT */
/*
 * The other processes of a crew: who they are, and what they do until they are told to end.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "crew.h"

#define ORDER_NAP_US  5000u /* between looks for an order: the core is the server thread's */
#define SIGNAL_NAP_US 100u
#define BLOCK_NS      1000000u

int crew_join(size_t least_bytes, struct crew_hall **out, uint32_t *number)
{
	struct crew_hall *hall = MAP_FAILED;
	struct stat stat;

	if (!fstat(BENCH_PEER_FD, &stat) && (size_t)stat.st_size >= least_bytes)
		hall = mmap(NULL, (size_t)stat.st_size, PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_POPULATE, BENCH_PEER_FD, 0);
	if (hall == MAP_FAILED) {
		gn_log(GN_LOG_ERROR, "this is for gannet bench itself");
		return -EBADF;
	}
	*number = __atomic_fetch_add(&hall->joined, 1, __ATOMIC_RELAXED);
	*out = hall;
	return 0;
}

void crew_leave(struct crew_hall *hall)
{
	munmap(hall, hall->bytes);
}

/* ---- the server ---- */

void crew_be_server(struct crew_hall *hall)
{
	if (sched_setaffinity(0, sizeof(hall->server_cpus), &hall->server_cpus))
		gn_log(GN_LOG_WARN, "cannot run on the server's cpus only: %s",
		       gn_strerror(-errno));
}

static uint64_t ns_of(const struct timeval *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_usec * 1000u;
}

static void report(struct crew_hall *hall, struct gn_fabric *fabric, struct gn_rpc_server *server)
{
	struct gn_rpc_counters rpc = {.size = sizeof(rpc)};
	struct gn_counters wrs = {.size = sizeof(wrs)};
	struct rusage usage = {0};

	gn_rpc_server_counters(server, &rpc);
	gn_fabric_counters(fabric, &wrs);
	getrusage(RUSAGE_SELF, &usage);
	hall->server_cpu_ns = ns_of(&usage.ru_utime) + ns_of(&usage.ru_stime);
	hall->server_batches = rpc.batches;
	/* A silent client is probed, and one that sleeps is woken, apart from calls. */
	hall->server_wrs = 0 - rpc.probes - rpc.notifies;
	for (int op = 0; op < GN_OP_RECV; op++)
		hall->server_wrs += wrs.wrs[op];
	hall->server_doorbells = wrs.doorbells - rpc.probes - rpc.notifies;
}

/* Orders to answer pings are for the thread that is held. */
void crew_obey(struct crew_hall *hall, struct gn_fabric *fabric, struct gn_rpc_server *rpc)
{
	struct shared *shared = &hall->pair;
	uint64_t word, last = ORDER_START;

	for (; !bench_stopped(); gn_sleep_us(ORDER_NAP_US)) {
		/* Pairs with the release in pair_order(). */
		word = __atomic_load_n(&shared->order, __ATOMIC_ACQUIRE);
		if (word == last)
			continue;
		last = word;
		if ((word & 0xff) == ORDER_QUIT)
			return;
		if ((word & 0xff) == ORDER_CHECK) {
			report(hall, fabric, rpc);
			peer_answer(shared, word, 0);
		}
	}
}

/* ---- a client ---- */

static uint32_t signal_of(const struct crew_hall *hall)
{
	/* Pairs with the releases in crew.c. */
	return __atomic_load_n(&hall->signal, __ATOMIC_ACQUIRE);
}

static int run_until_told(struct crew_hall *hall, void *client, const struct crew_client *ops)
{
	struct block block;
	int rc = ops->warm(client);

	/* Pairs with the acquire in crew_start_clients(). */
	__atomic_add_fetch(&hall->ready, 1, __ATOMIC_RELEASE);
	while (!rc && signal_of(hall) == SIGNAL_WAIT) {
		if (bench_stopped())
			return -EINTR;
		gn_sleep_us(SIGNAL_NAP_US);
	}
	while (!rc && signal_of(hall) == SIGNAL_RUN) {
		block = (struct block){.ops = 0};
		gn_hist_init(&block.group_ns);
		rc = ops->run(client, BLOCK_NS, &block);
	}
	return rc ? rc : ops->finish(client);
}

int crew_be_client(struct crew_hall *hall, uint32_t index, const struct crew_client *ops)
{
	void *client;
	int rc = index < hall->clients ? 0 : -EBADF;

	if (!rc && sched_setaffinity(0, sizeof(cpu_set_t), &hall->client_cpus[index]))
		gn_log(GN_LOG_WARN, "cannot run on one cpu only: %s", gn_strerror(-errno));
	if (!rc)
		rc = ops->create(hall, index, &client);
	if (!rc) {
		rc = run_until_told(hall, client, ops);
		ops->destroy(client);
	}
	if (rc)
		__atomic_add_fetch(&hall->failed, 1, __ATOMIC_RELEASE);
	return rc;
}
