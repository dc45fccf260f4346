/* SPDX-License-Identifier: MIT */
/*
 * gannet kv keys: lists what a running server holds.
 */
#include <errno.h>
#include <stdlib.h>

#include "bench.h"
#include "kv_cmd.h"

struct request {
	struct kv_target target;
	bool json;
};

static const struct opt options[] = {
	OPT_KV_TARGET(struct request, target),
	{OPT_FLAG, "json", NULL,
	 "an object for each key, with key, bytes, flags, cas, ttl_s (null: for ever) and idle_s; "
	 "what is no UTF-8 is in key_hex instead",
	 .to = offsetof(struct request, json)},
	{.type = OPT_END},
};

static void kv_keys_print(const struct gn_kv_key *key, void *arg)
{
	const struct request *r = arg;

	if (!r->json) {
		fwrite(key->key, 1, key->key_len, stdout);
		putchar('\n');
		return;
	}
	putchar('{');
	kv_json_bytes(stdout, "key", key->key, key->key_len);
	bench_json_count(stdout, "bytes", true, key->len);
	bench_json_count(stdout, "flags", true, key->flags);
	bench_json_count(stdout, "cas", true, key->cas);
	bench_json_count(stdout, "ttl_s", key->ttl_s != GN_KV_TTL_NONE, key->ttl_s);
	printf("\"idle_s\":%u}\n", key->idle_s);
}

static int kv_keys_list(struct request *r, struct kv_link *link)
{
	struct gn_kv_cursor cursor = {{0}};
	int rc;

	do {
		rc = gn_kv_scan(link->client, &cursor, kv_keys_print, r, kv_deadline(&r->target));
	} while (rc == 1 && !bench_stopped());
	if (rc == 1)
		rc = -EINTR;
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s: %s\n", r->target.addr, gn_strerror(rc));
	return rc;
}

static int kv_keys_run(const struct args *args)
{
	struct request *r = args->opts;
	struct kv_link link;

	if (kv_link_open(&link, &r->target))
		return EXIT_FAILURE;
	return kv_leave(&link, kv_keys_list(r, &link), false);
}

const struct command command_kv_keys = {
	.name = "keys",
	.what = "list what a running server holds",
	.about = "Writes every key, a line each. The server goes on meanwhile: a key that is there "
		 "all the time is listed at least once; what comes or goes may be, and a key may "
		 "be listed twice.",
	.run = kv_keys_run,
	OPTIONS(options, struct request, .target = KV_TARGET_DEFAULT),
};
