/* SPDX-License-Identifier: MIT */
/*
 * A cache in front of something slow: how many primes there are below a number. In one terminal
 * "gannet kv serve --listen shm:cache", and in another, twice, "example-kv shm:cache 3000000 700";
 * or: verbs:HOST:PORT. All questions are asked in one message; what the store does not know is
 * computed, and stored for others for a minute.
 */
#include <err.h>
#include <gannet/kv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST	  64
#define TTL_S	  60u
#define TIMEOUT	  gn_deadline_us(2000000)
#define PRIME_MAX 100000000u

struct question {
	uint32_t below;
	char key[32];
	uint32_t answer;
};

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* The slow part: a sieve. */
static uint32_t count_primes(uint32_t below)
{
	char *composite = calloc(below + 1, 1);
	uint32_t n = 0;

	if (!composite)
		errx(1, "no memory for a sieve of %u", below);
	for (uint32_t i = 2; i < below; i++) {
		n += !composite[i];
		for (uint64_t j = (uint64_t)i * i; !composite[i] && j < below; j += i)
			composite[j] = 1;
	}
	free(composite);
	return n;
}

/* A cache that is gone, late or full is no reason to fail: then everything is computed. */
static void look_up(struct gn_kv_client *cache, struct question *questions, struct gn_kv_op *ops,
		    unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct question *q = &questions[i];

		ops[i] = (struct gn_kv_op){.verb = GN_KV_GET,
					   .key = q->key,
					   .key_len = (uint32_t)snprintf(q->key, sizeof(q->key),
									 "primes:%u", q->below),
					   .room = &q->answer,
					   .room_bytes = sizeof(q->answer)};
	}
	must(gn_kv_do(cache, ops, n, TIMEOUT), "look up");
}

static void answer(struct gn_kv_client *cache, struct question *q, const struct gn_kv_op *op)
{
	const uint64_t since_ns = gn_now_ns();
	int rc;

	if (op->status == GN_KV_OK && op->len == sizeof(q->answer)) {
		printf("%u primes below %u, known\n", q->answer, q->below);
		return;
	}
	if (op->status != GN_KV_MISS)
		warnx("no help from the cache: %s", gn_kv_status_str(op->status));
	q->answer = count_primes(q->below);
	printf("%u primes below %u, computed in %.1f ms\n", q->answer, q->below,
	       (double)(gn_now_ns() - since_ns) / 1e6);
	rc = gn_kv_set(cache, op->key, op->key_len, &q->answer, sizeof(q->answer), TTL_S, TIMEOUT);
	if (rc)
		warnx("not cached: %s", gn_error());
}

int main(int argc, char **argv)
{
	static struct question questions[MOST];
	static struct gn_kv_op ops[MOST];
	struct gn_kv_client *cache;
	struct gn_fabric *fabric;
	const unsigned n = (unsigned)argc - 2;
	char provider[16]; /* "shm" or "verbs" */

	if (argc < 3 || n > MOST)
		errx(2, "usage: example-kv ADDR NUMBER... (up to %d)", MOST);
	for (unsigned i = 0; i < n; i++) {
		const unsigned long below = strtoul(argv[i + 2], NULL, 10);

		if (below < 1 || below > PRIME_MAX)
			errx(2, "%s is not a number from 1 to %u", argv[i + 2], PRIME_MAX);
		questions[i].below = (uint32_t)below;
	}
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(argv[1], ":"), argv[1]);
	must(gn_fabric_open(provider, &fabric), provider);
	must(gn_kv_client_open(fabric, argv[1], NULL, &cache), argv[1]);
	look_up(cache, questions, ops, n);
	for (unsigned i = 0; i < n; i++)
		answer(cache, &questions[i], &ops[i]);
	gn_kv_client_close(cache);
	gn_fabric_close(fabric);
}
