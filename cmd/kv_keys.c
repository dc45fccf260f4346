/* SPDX-License-Identifier: MIT */
/*
 * gannet kv keys: lists what a running server holds.
 */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>

#include "bench.h"
#include "kv_cmd.h"

static const char help[] =
	"Usage: gannet kv keys --server ADDR [OPTION…]\n"
	"\n"
	"Writes every key, a line each. The server goes on meanwhile: a key that is there all the\n"
	"time is listed at least once; what comes or goes may be, and a key may be listed twice.\n"
	"\n" KV_TARGET_HELP "\n"
	"  --json           an object for each key, with key, bytes, flags, cas, ttl_s (null: for\n"
	"                   ever) and idle_s; what is no UTF-8 is in key_hex instead";

enum { JSON = 256 };

static const struct option options[] = {
	KV_TARGET_OPTIONS,
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct request {
	struct kv_target target;
	bool json;
};

static void print_key(const struct gn_kv_key *key, void *arg)
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

static int list(struct request *r, struct kv_link *link)
{
	struct gn_kv_cursor cursor = {{0}};
	int rc;

	do {
		rc = gn_kv_scan(link->client, &cursor, print_key, r, kv_deadline(&r->target));
	} while (rc == 1 && !bench_stopped());
	if (rc == 1)
		rc = -EINTR;
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s: %s\n", r->target.addr, gn_strerror(rc));
	return rc;
}

static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.target = kv_target_default()};
	*status = 0;
	while (!*status &&
	       (option = cmd_option(argc, argv, options, help, "kv keys", status)) >= 0) {
		if (option == JSON)
			r->json = true;
		else
			*status = kv_target_option(option, optarg, &r->target);
	}
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = kv_target_check(&r->target, "kv keys");
	return *status ? -1 : 0;
}

int cmd_kv_keys(int argc, char **argv)
{
	struct kv_link link;
	struct request r;
	int status, rc;

	if (parse(argc, argv, &r, &status))
		return status;
	if (kv_link_open(&link, &r.target))
		return EXIT_FAILURE;
	rc = list(&r, &link);
	kv_link_close(&link);
	status = cmd_flush_stdout();
	return rc == -EINTR ? EXIT_INTERRUPTED : rc ? EXIT_FAILURE : status;
}
