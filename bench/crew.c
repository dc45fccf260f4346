/* SPDX-License-Identifier: MIT */
/*
 * The first client's side of a crew: the hall, the cores, and the other processes.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "crew.h"

#define JOIN_US 10000000u /* for all clients to connect, and to end */
#define STOP_US 2000000u  /* … to end, after a signal */
#define LOOK_US 1000u

/* ---- the hall ---- */

/* The first client and the first server thread have what was chosen; others share the rest. */
static void share_cpus(struct crew_hall *hall, const struct crew_opts *o, const cpu_set_t *allowed)
{
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

static int map_hall(struct crew *crew, size_t bytes)
{
	int rc;

	crew->pair.fd = memfd_create("gannet-bench", MFD_CLOEXEC);
	if (crew->pair.fd < 0)
		return -errno;
	if (ftruncate(crew->pair.fd, (off_t)bytes))
		goto close_fd;
	crew->hall = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			  crew->pair.fd, 0);
	if (crew->hall == MAP_FAILED)
		goto close_fd;
	return 0;

close_fd:
	rc = -errno;
	close(crew->pair.fd);
	return rc;
}

int crew_open(struct crew *crew, const struct crew_opts *opts)
{
	struct crew_hall *hall;
	const int rc = map_hall(crew, opts->bytes);

	if (rc) {
		gn_log(GN_LOG_ERROR, "cannot share memory: %s", gn_strerror(rc));
		return rc;
	}
	hall = crew->hall;
	hall->bytes = opts->bytes;
	hall->clients = opts->clients;
	hall->pair.opts = (struct bench_opts){.provider = "shm",
					      .seconds = opts->seconds,
					      .cpus = {opts->cpus[0], opts->cpus[1]}};
	hall->pair.eventfd = -1;
	hall->pair.answer = UINT64_MAX;
	for (uint32_t i = 0; i < opts->clients; i++)
		gn_hist_init(&hall->tally[i].group_ns);
	crew->hidden_arg = opts->hidden_arg;
	crew->pair.shared = &hall->pair;
	crew->pair.pid = 0;
	if (!sched_getaffinity(0, sizeof(crew->cpus_before), &crew->cpus_before)) {
		share_cpus(hall, opts, &crew->cpus_before);
		sched_setaffinity(0, sizeof(cpu_set_t), &hall->client_cpus[0]);
	}
	return 0;
}

void crew_close(struct crew *crew)
{
	sched_setaffinity(0, sizeof(crew->cpus_before), &crew->cpus_before);
	munmap(crew->hall, crew->hall->bytes);
	close(crew->pair.fd);
}

/* ---- the server ---- */

int crew_start_server(struct crew *crew)
{
	const int rc = bench_spawn(crew->hidden_arg, crew->pair.fd, &crew->pair.pid);

	return rc ? rc : pair_wait(&crew->pair);
}

void crew_stop_server(struct crew *crew)
{
	const uint64_t end_ns = gn_deadline_us(JOIN_US);

	if (crew->pair.pid <= 0)
		return;
	/* It may be answering pings. */
	__atomic_store_n(&crew->hall->pair.ping, CACHELINE_END, __ATOMIC_RELEASE);
	pair_order(&crew->pair, ORDER_QUIT);
	while (pair_peer_lives(&crew->pair) && gn_now_ns() < end_ns)
		gn_sleep_us(LOOK_US);
	if (crew->pair.pid > 0) {
		kill(crew->pair.pid, SIGKILL);
		waitpid(crew->pair.pid, NULL, 0);
	}
}

/* ---- more clients ---- */

/* 0 when there are none left. */
static unsigned reap_clients(struct crew *crew)
{
	unsigned left = 0;

	for (uint32_t i = 1; i < crew->hall->clients; i++) {
		if (crew->clients[i] > 0 && waitpid(crew->clients[i], NULL, WNOHANG) != 0)
			crew->clients[i] = 0;
		left += crew->clients[i] > 0;
	}
	return left;
}

int crew_start_clients(struct crew *crew)
{
	struct crew_hall *hall = crew->hall;
	const uint32_t others = hall->clients - 1;
	const uint64_t end_ns = gn_deadline_us(JOIN_US);
	int rc = 0;

	for (uint32_t i = 1; !rc && i <= others; i++)
		rc = bench_spawn(crew->hidden_arg, crew->pair.fd, &crew->clients[i]);
	/* Pairs with the release in crew_be_client(). */
	while (!rc && __atomic_load_n(&hall->ready, __ATOMIC_ACQUIRE) < others) {
		if (bench_stopped())
			rc = -EINTR;
		else if (hall->failed || reap_clients(crew) < others)
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

void crew_let_go(struct crew *crew)
{
	/* Pairs with the acquire in crew_be_client(). */
	__atomic_store_n(&crew->hall->signal, SIGNAL_RUN, __ATOMIC_RELEASE);
}

int crew_end_clients(struct crew *crew)
{
	const uint64_t end_ns = gn_deadline_us(JOIN_US), stop_ns = gn_deadline_us(STOP_US);

	__atomic_store_n(&crew->hall->signal, SIGNAL_END, __ATOMIC_RELEASE);
	while (reap_clients(crew) && gn_now_ns() < (bench_stopped() ? stop_ns : end_ns))
		gn_sleep_us(LOOK_US);
	if (!reap_clients(crew) && !crew->hall->failed)
		return 0;
	for (uint32_t i = 1; i < crew->hall->clients; i++) {
		if (crew->clients[i] > 0) {
			kill(crew->clients[i], SIGKILL);
			waitpid(crew->clients[i], NULL, 0);
			crew->clients[i] = 0;
		}
	}
	return bench_stopped() ? -EINTR : -EIO;
}
