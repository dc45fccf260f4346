/* SPDX-License-Identifier: MIT */
/* gannet kv get: prints values unchanged. Errors are printed to stderr for each key. */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kv_cmd.h"

#define AT_ONCE 64u /* keys, each with room for the largest value */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct kv_target target;
	char **keys;
	unsigned n;
	bool touch, json;
	uint32_t ttl_s;
};

static const struct opt options[] = {
	OPT_KV_TARGET(struct request, target),
	{OPT_U32, "touch", "S", "live for S more seconds from now on, 0: for ever", "", AT(ttl_s),
	 RANGE(0, KV_TTL_MAX)},
	{OPT_FLAG, "json", NULL,
	 "an object for each key, with key, status, bytes, flags, cas, ttl_s (null: for ever) and "
	 "value; what is no UTF-8 is in key_hex or value_hex instead",
	 AT(json)},
	{.type = OPT_END},
};

static void kv_get_print_json(const struct gn_kv_op *op)
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

/* False: the key is missing, or the operation failed; a message was printed. */
static bool kv_get_print_value(const struct request *r, const struct gn_kv_op *op)
{
	if (r->json) {
		kv_get_print_json(op);
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

static int kv_get_batch(const struct request *r, struct kv_link *link, unsigned first,
			uint8_t *room)
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
		failed |= !kv_get_print_value(r, &ops[i]);
	return rc ? rc : failed;
}

static int kv_get_all(const struct request *r, struct kv_link *link)
{
	const unsigned at_once = r->n < AT_ONCE ? r->n : AT_ONCE;
	/* As large as values get: what is not written to costs nothing. */
	uint8_t *room = malloc((size_t)at_once * link->limits.max_value + 1);
	int rc = room ? 0 : -ENOMEM, failed = 0, status;

	for (unsigned i = 0; rc >= 0 && i < r->n; i += AT_ONCE) {
		rc = kv_get_batch(r, link, i, room);
		failed |= rc > 0;
	}
	status = kv_leave(link, rc < 0 ? rc : 0, failed);
	free(room); /* when the link is closed, and nothing is written there any more */
	return status;
}

static int kv_get_run(const struct args *args)
{
	struct request *r = args->opts;
	struct kv_link link;
	const int status = kv_check_keys(args->words, args->n_words);

	if (status)
		return status;
	r->keys = args->words;
	r->n = (unsigned)args->n_words;
	r->touch = opt_given(args, "touch");
	if (kv_link_open(&link, &r->target))
		return EXIT_FAILURE;
	return kv_get_all(r, &link);
}

const struct command command_kv_get = {
	.name = "get",
	.what = "print values",
	.about = "Writes the value of KEY to stdout, as it is. Of several keys, each is a line "
		 "with the key, a tab and the value. Missing keys are reported on stderr, and the "
		 "exit status is then 1.",
	.run = kv_get_run,
	.words = "KEY…",
	.min_words = 1,
	.max_words = INT_MAX,
	OPTIONS(options, struct request, .target = KV_TARGET_DEFAULT),
};
