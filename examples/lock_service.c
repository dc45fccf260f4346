/* SPDX-License-Identifier: MIT */
/*
 * A lock service: "example-lock-service serve shm:locks" in one terminal, and in another
 * "example-lock-service shm:locks 8 1000": 8 workers of one thread lock one of four keys, work, and
 * unlock it, 1000 times each. Other networks: verbs:HOST:PORT.
 *
 * LOCK and UNLOCK must not be executed twice: a second LOCK would find the key locked by the first
 * one, and a second UNLOCK would release the next holder's lock. Datagrams get lost and are sent
 * again, but a call is executed at most once. The server counts what it executed for each caller,
 * and the caller compares that with the calls it has made.
 */
#include <err.h>
#include <gannet/dgram.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEYS	    4
#define WORKERS_MAX 32
#define CALLERS_MAX 1024
#define LEASE_NS    2000000000u		/* a holder that is gone keeps others waiting so long */
#define HELD	    (GN_RPC_FAILED + 1) /* statuses of our own */
#define NOT_HELD    (GN_RPC_FAILED + 2)

enum { LOCK = 1, UNLOCK, COUNT };

struct unlock {
	uint64_t token;
	uint32_t key, unused;
};

struct counts {
	uint64_t locks, unlocks; /* executed for one caller */
};

static volatile sig_atomic_t stop;

static void on_signal(int sig)
{
	(void)sig;
	stop = 1;
}

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* ---- the server ---- */

struct lock {
	uint64_t token, until_ns; /* of the holder; token 0: nobody */
};

struct service {
	struct lock locks[KEYS];
	uint64_t last_token;
	struct counts counts[CALLERS_MAX];
	unsigned callers;
};

/* Each caller has its own counts: the program's pointer of its peer. NULL: too many callers. */
static struct counts *counts_of(struct service *service, struct gn_dgram_peer *peer)
{
	if (!gn_dgram_peer_user(peer) && service->callers < CALLERS_MAX)
		gn_dgram_peer_set_user(peer, &service->counts[service->callers++]);
	return gn_dgram_peer_user(peer);
}

/* Handlers run within the poll and never wait: the caller tries again. */
static unsigned lock_key(void *arg, struct gn_dgram_request *request)
{
	struct service *service = arg;
	struct counts *counts = counts_of(arg, request->peer);
	struct lock *lock;
	uint32_t key;

	if (request->len != sizeof(key) || !counts)
		return GN_RPC_FAILED;
	memcpy(&key, request->data, sizeof(key));
	if (key >= KEYS)
		return GN_RPC_DENIED;
	counts->locks++;
	lock = &service->locks[key];
	if (lock->token && gn_now_ns() < lock->until_ns)
		return HELD;
	lock->token = ++service->last_token; /* a later holder always has a higher one */
	lock->until_ns = gn_now_ns() + LEASE_NS;
	memcpy(request->result, &lock->token, sizeof(lock->token));
	request->result_len = sizeof(lock->token);
	return GN_RPC_OK;
}

static unsigned unlock_key(void *arg, struct gn_dgram_request *request)
{
	struct service *service = arg;
	struct counts *counts = counts_of(arg, request->peer);
	struct unlock unlock;

	if (request->len != sizeof(unlock) || !counts)
		return GN_RPC_FAILED;
	memcpy(&unlock, request->data, sizeof(unlock));
	if (unlock.key >= KEYS)
		return GN_RPC_DENIED;
	counts->unlocks++;
	if (service->locks[unlock.key].token != unlock.token)
		return NOT_HELD; /* the lease ended, and somebody else has the lock */
	service->locks[unlock.key].token = 0;
	return GN_RPC_OK;
}

static unsigned tell_counts(void *arg, struct gn_dgram_request *request)
{
	const struct counts *counts = counts_of(arg, request->peer);

	if (!counts)
		return GN_RPC_FAILED;
	memcpy(request->result, counts, sizeof(*counts));
	request->result_len = sizeof(*counts);
	return GN_RPC_OK;
}

static void serve(struct gn_fabric *fabric, const char *addr)
{
	struct service service = {.last_token = 0};
	struct gn_dgram_endpoint *endpoint;
	struct gn_dgram_node *node;

	must(gn_dgram_node_create(fabric, addr, NULL, &node), addr);
	must(gn_dgram_handle(node, LOCK, lock_key, NULL, &service, 0), "LOCK");
	must(gn_dgram_handle(node, UNLOCK, unlock_key, NULL, &service, 0), "UNLOCK");
	must(gn_dgram_handle(node, COUNT, tell_counts, NULL, &service, 0), "COUNT");
	must(gn_dgram_endpoint_create(node, 0, &endpoint), addr);
	signal(SIGINT, on_signal);
	signal(SIGTERM, on_signal);
	while (!stop) /* a deadline, so that a signal is noticed whenever it comes */
		gn_dgram_wait(endpoint, gn_deadline_us(100000));
	gn_dgram_endpoint_destroy(endpoint);
	gn_dgram_node_destroy(node);
}

/* ---- the callers ---- */

static struct gn_dgram_endpoint *here;
static struct gn_dgram_peer *server;
static unsigned rounds, inside[KEYS];
static struct counts made; /* calls */

static unsigned call(unsigned method, const void *request, uint32_t len, void *result,
		     uint32_t room)
{
	struct gn_dgram_op op = {.peer = server,
				 .method = method,
				 .request = request,
				 .request_len = len,
				 .result = result,
				 .result_room = room,
				 .deadline_ns = gn_deadline_us(5000000)};

	must(gn_dgram_call(&op), "call"); /* other workers run meanwhile */
	if (op.status == NOT_HELD)
		errx(1, "the lock was lost: the lease is over");
	if (op.status == GN_RPC_TIMEOUT && !gn_dgram_peer_epoch(server))
		errx(1, "%s: nobody listens there", gn_dgram_peer_addr(server));
	if (op.status != GN_RPC_OK && op.status != HELD)
		errx(1, "%s: %s", gn_dgram_peer_addr(server), gn_rpc_status_str(op.status));
	made.locks += method == LOCK;
	made.unlocks += method == UNLOCK;
	return op.status;
}

static void work(void *arg)
{
	const unsigned number = *(const unsigned *)arg;

	for (unsigned i = 0; i < rounds; i++) {
		struct unlock unlock = {.key = (number + i) % KEYS};

		while (call(LOCK, &unlock.key, sizeof(unlock.key), &unlock.token,
			    sizeof(unlock.token)) == HELD)
			; /* other workers ran meanwhile */
		if (inside[unlock.key]++)
			errx(1, "key %u has two holders", unlock.key);
		gn_dgram_yield(here); /* if two could be inside, the other would be now */
		inside[unlock.key]--;
		call(UNLOCK, &unlock, sizeof(unlock), NULL, 0);
	}
}

static void lock_and_unlock(struct gn_fabric *fabric, const char *addr, unsigned workers)
{
	unsigned numbers[WORKERS_MAX];
	struct gn_dgram_stats stats = {.size = sizeof(stats)};
	struct gn_dgram_node *node;
	struct counts counts;

	must(gn_dgram_node_create(fabric, NULL, NULL, &node), "node"); /* it only calls */
	must(gn_dgram_endpoint_create(node, 0, &here), "endpoint");
	must(gn_dgram_peer_open(here, addr, 0, &server), addr);
	for (unsigned i = 0; i < workers; i++) {
		numbers[i] = i;
		must(gn_dgram_spawn(here, work, &numbers[i]), "worker");
	}
	must(gn_dgram_run(here, GN_FOREVER), "workers");
	call(COUNT, NULL, 0, &counts, sizeof(counts));
	gn_dgram_endpoint_stats(here, &stats);
	printf("%u rounds by %u workers; made: %llu LOCK, %llu UNLOCK; executed: %llu, %llu\n",
	       workers * rounds, workers, (unsigned long long)made.locks,
	       (unsigned long long)made.unlocks, (unsigned long long)counts.locks,
	       (unsigned long long)counts.unlocks);
	fprintf(stderr, "%llu messages in %llu datagrams, %llu sent again\n",
		(unsigned long long)stats.messages, (unsigned long long)stats.sent,
		(unsigned long long)stats.repeats);
	gn_dgram_endpoint_destroy(here);
	gn_dgram_node_destroy(node);
	if (counts.locks != made.locks || counts.unlocks != made.unlocks)
		errx(1, "not every call was executed once");
}

int main(int argc, char **argv)
{
	const int serving = argc == 3 && !strcmp(argv[1], "serve");
	const char *addr = argc > 1 ? argv[serving ? 2 : 1] : "";
	const unsigned workers = argc == 4 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
	struct gn_fabric *fabric;
	char provider[16]; /* "shm" or "verbs" */

	rounds = argc == 4 ? (unsigned)strtoul(argv[3], NULL, 10) : 0;
	if (!serving && (!workers || workers > WORKERS_MAX || !rounds))
		errx(2, "usage: example-lock-service serve ADDR | ADDR WORKERS ROUNDS");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	must(gn_fabric_open(provider, &fabric), provider);
	if (serving)
		serve(fabric, addr);
	else
		lock_and_unlock(fabric, addr, workers);
	gn_fabric_close(fabric);
}
