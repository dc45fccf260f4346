/* SPDX-License-Identifier: MIT */
/*
 * gannet kv get: values, as they are. What went wrong is said on stderr, key by key.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kv_cmd.h"

#define AT_ONCE 64u /* keys, each with room for the largest value */

static const char help[] =
	"Usage: gannet kv get --server ADDR [OPTION…] KEY…\n"
	"\n"
	"Writes the value of KEY to stdout, as it is. Of several keys, each is a line with the\n"
	"key, a tab and the value. What is not there is said on stderr, and the exit status is\n"
	"then 1.\n"
	"\n" KV_TARGET_HELP "\n"
	"  --touch S        live for S more seconds from now on, 0: for ever\n"
	"  --json           an object for each key, with key, status, bytes, flags, cas,\n"
	"                   ttl_s (null: for ever) and value; what is no UTF-8 is in\n"
	"                   key_hex or value_hex instead";

struct request {
	struct kv_target target;
	char **keys;
	unsigned n;
	bool touch, json;
	uint32_t ttl_s;
};

enum { TOUCH = 256, JSON };

static const struct option options[] = {
	KV_TARGET_OPTIONS,
	{"touch", required_argument, NULL, TOUCH},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int parse_option(int option, struct request *r)
{
	switch (option) {
	case TOUCH:
		r->touch = true;
		return cmd_count("--touch", optarg, 0, UINT32_MAX - 1, &r->ttl_s);
	case JSON:
		r->json = true;
		return 0;
	default:
		return kv_target_option(option, optarg, &r->target);
	}
}

static int parse(int argc, char **argv, struct request *r, int *status)
{
	int option;

	*r = (struct request){.target = kv_target_default()};
	*status = 0;
	while (!*status &&
	       (option = cmd_option_of(argc, argv, options, help, "kv get", INT_MAX, status)) >= 0)
		*status = parse_option(option, r);
	if (option == CMD_LEAVE)
		return -1;
	r->keys = argv + optind;
	r->n = (unsigned)(argc - optind);
	if (!*status && !r->n)
		*status = cmd_usage_error("kv get needs a key, or several");
	for (unsigned i = 0; !*status && i < r->n; i++)
		*status = kv_check_key(r->keys[i]);
	if (!*status)
		*status = kv_target_check(&r->target, "kv get");
	return *status ? -1 : 0;
}

static void print_json(const struct gn_kv_op *op)
{
	const bool there = op->status == GN_KV_OK;

	putchar('{');
	kv_json_bytes(stdout, "key", op->key, op->key_len);
	bench_json_count(stdout, "bytes", there, op->len);
	bench_json_count(stdout, "flags", there, op->flags);
	bench_json_count(stdout, "cas", there, op->cas);
	bench_json_count(stdout, "ttl_s", there && op->ttl_s != GN_KV_TTL_NONE, op->ttl_s);
	if (there)
		kv_json_bytes(stdout, "value", op->room, op->len);
	printf("\"status\":\"%s\"}\n", gn_kv_status_str(op->status));
}

/* False: it is not there, or something failed, and that was said. */
static bool print(const struct request *r, const struct gn_kv_op *op)
{
	if (r->json) {
		print_json(op);
		return op->status == GN_KV_OK;
	}
	if (!kv_tell(op))
		return false;
	if (r->n > 1)
		printf("%.*s\t", (int)op->key_len, (const char *)op->key);
	fwrite(op->room, 1, op->len, stdout);
	if (r->n > 1)
		putchar('\n');
	return true;
}

static int get_some(const struct request *r, struct kv_link *link, unsigned first, uint8_t *room)
{
	const unsigned n = r->n - first < AT_ONCE ? r->n - first : AT_ONCE;
	const uint32_t bytes = link->limits.max_value;
	struct gn_kv_op ops[AT_ONCE];
	int rc, failed = 0;

	for (unsigned i = 0; i < n; i++)
		ops[i] = (struct gn_kv_op){.verb = GN_KV_GET,
					   .how = (r->touch ? GN_KV_AND_TOUCH : 0u) |
						  (r->json ? GN_KV_DETAILS : 0u),
					   .ttl_s = r->ttl_s,
					   .key = r->keys[first + i],
					   .key_len = (uint32_t)strlen(r->keys[first + i]),
					   .room = room + (size_t)i * bytes,
					   .room_bytes = bytes};
	rc = kv_link_do(link, ops, n);
	for (unsigned i = 0; !rc && i < n; i++)
		failed |= !print(r, &ops[i]);
	return rc ? rc : failed;
}

static int get(const struct request *r, struct kv_link *link)
{
	const unsigned at_once = r->n < AT_ONCE ? r->n : AT_ONCE;
	/* As large as values get: what is not written to costs nothing. */
	uint8_t *room = malloc((size_t)at_once * link->limits.max_value + 1);
	int rc = room ? 0 : -ENOMEM, failed = 0, status;

	for (unsigned i = 0; rc >= 0 && i < r->n; i += AT_ONCE) {
		rc = get_some(r, link, i, room);
		failed |= rc > 0;
	}
	kv_link_close(link); /* before the room goes */
	free(room);
	status = cmd_flush_stdout();
	if (rc < 0)
		return rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	return status ? status : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int cmd_kv_get(int argc, char **argv)
{
	struct kv_link link;
	struct request r;
	int status;

	if (parse(argc, argv, &r, &status))
		return status;
	if (kv_link_open(&link, &r.target))
		return EXIT_FAILURE;
	return get(&r, &link);
}
