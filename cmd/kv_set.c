/* SPDX-License-Identifier: MIT */
/*
 * gannet kv set, del, touch, incr, decr and clear: what changes a store. All but incr and decr are
 * silent when all went well.
 */
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "kv_cmd.h"

#define AT_ONCE 64u

static bool is_number(const struct gn_kv_op *op)
{
	return op->verb == GN_KV_INCR || op->verb == GN_KV_DECR;
}

/* False: the operation failed, and a message was printed. */
static bool kv_set_print(const struct gn_kv_op *op, bool json)
{
	const bool ok = op->status == GN_KV_OK;

	if (json) {
		putchar('{');
		kv_json_bytes(stdout, "key", op->key, op->key_len);
		if (is_number(op))
			bench_json_count(stdout, "number", ok, op->number);
		bench_json_count(stdout, "cas", op->verb != GN_KV_DELETE && ok, op->cas);
		printf("\"status\":\"%s\"}\n", gn_kv_status_str(op->status));
	} else if (kv_tell(op) && is_number(op)) {
		printf("%" PRIu64 "\n", op->number);
	}
	return ok;
}

/* The same operation on keys, which are the command's words. */
static int kv_set_each(const struct args *args, const struct kv_target *target,
		       const struct gn_kv_op *like, bool json)
{
	bool failed = false;
	struct kv_link link;
	int rc = 0, status = kv_check_keys(args->words, args->n_words);

	if (status)
		return status;
	if (kv_link_open(&link, target))
		return EXIT_FAILURE;
	for (unsigned done = 0, n; !rc && done < (unsigned)args->n_words; done += n) {
		const unsigned left = (unsigned)args->n_words - done;
		struct gn_kv_op ops[AT_ONCE];

		n = left < AT_ONCE ? left : AT_ONCE;
		for (unsigned i = 0; i < n; i++) {
			ops[i] = *like;
			ops[i].key = args->words[done + i];
			ops[i].key_len = (uint32_t)strlen(ops[i].key);
		}
		rc = kv_link_do(&link, ops, n);
		for (unsigned i = 0; !rc && i < n; i++)
			failed |= !kv_set_print(&ops[i], json);
	}
	return kv_leave(&link, rc, failed);
}

/* ---- set ---- */

#define AT(member) .to = offsetof(struct set, member)

struct set {
	struct kv_target target;
	uint32_t ttl_s, flags;
	uint64_t cas;
	bool add, replace, append, prepend, json;
	uint8_t *input; /* what was on stdin */
};

static const struct opt set_options[] = {
	OPT_KV_TARGET(struct set, target),
	{OPT_U32, "ttl", "S", "live for S seconds; 0: for ever", AT(ttl_s), RANGE(0, KV_TTL_MAX)},
	{OPT_U32, "flags", "N", "a number that is kept with the value", AT(flags)},
	{OPT_FLAG, "add", NULL, "only if there is none yet", AT(add)},
	{OPT_FLAG, "replace", NULL, "only if there is one", AT(replace)},
	{OPT_FLAG, "append", NULL, "to the value that is there, which keeps its flags and time",
	 AT(append)},
	{OPT_FLAG, "prepend", NULL, "the same, in front of it", AT(prepend)},
	{OPT_U64, "cas", "N", "only if its version is N, as get --json has it", "", AT(cas)},
	{OPT_FLAG, "json", NULL, "an object with key, cas and status", AT(json)},
	{.type = OPT_END},
};

static int kv_set_check(const struct set *s, bool cas, char **words)
{
	if (s->add + s->replace + s->append + s->prepend > 1)
		return cmd_usage_error("--add, --replace, --append and --prepend exclude each "
				       "other");
	if (s->add && cas)
		return cmd_usage_error("--add is for what is not there, and has no --cas");
	if (strlen(words[1]) > GN_KV_VALUE_MAX)
		return cmd_usage_error("a value has at most %u bytes", GN_KV_VALUE_MAX);
	return kv_check_keys(words, 1);
}

static int kv_set_read_stdin(struct set *s, struct gn_kv_op *op)
{
	int rc;

	if (strcmp(op->value, "-"))
		return 0;
	rc = cmd_read_all(STDIN_FILENO, GN_KV_VALUE_MAX, &s->input, &op->value_len);
	op->value = s->input;
	if (rc == -EFBIG)
		fprintf(stderr, "gannet: stdin has more than %u bytes, which a value may have\n",
			GN_KV_VALUE_MAX);
	else if (rc)
		fprintf(stderr, "gannet: cannot read stdin: %s\n", gn_strerror(rc));
	return rc;
}

static int kv_set_run(const struct args *args)
{
	struct set *s = args->opts;
	const bool cas = opt_given(args, "cas");
	struct gn_kv_op op = {.verb = s->add	 ? GN_KV_ADD :
				      s->replace ? GN_KV_REPLACE :
				      s->append	 ? GN_KV_APPEND :
				      s->prepend ? GN_KV_PREPEND :
						   GN_KV_SET,
			      .how = cas ? GN_KV_IF_CAS : 0u,
			      .key = args->words[0],
			      .key_len = (uint32_t)strlen(args->words[0]),
			      .value = args->words[1],
			      .value_len = (uint32_t)strlen(args->words[1]),
			      .flags = s->flags,
			      .ttl_s = s->ttl_s,
			      .cas = s->cas};
	struct kv_link link;
	int status = kv_set_check(s, cas, args->words), rc;

	if (status)
		return status;
	rc = kv_set_read_stdin(s, &op);
	if (!rc)
		rc = kv_link_open(&link, &s->target);
	if (!rc) {
		rc = kv_link_do(&link, &op, 1);
		status = kv_leave(&link, rc, !rc && !kv_set_print(&op, s->json));
	} else {
		status = EXIT_FAILURE;
	}
	free(s->input);
	return status;
}

const struct command command_kv_set = {
	.name = "set",
	.what = "store a value",
	.about = "Stores VALUE under KEY; - stands for what is on stdin. The exit status is 1 if "
		 "it was not stored, and stderr says why.",
	.run = kv_set_run,
	.words = "KEY VALUE",
	.min_words = 2,
	.max_words = 2,
	OPTIONS(set_options, struct set, .target = KV_TARGET_DEFAULT),
};

#undef AT

/* ---- del, touch, incr, decr, clear ---- */

#define AT(member) .to = offsetof(struct change, member)

struct change {
	struct kv_target target;
	uint32_t seconds;
	uint64_t initial;
	bool json;
};

static const struct opt del_options[] = {
	OPT_KV_TARGET(struct change, target),
	{OPT_FLAG, "json", NULL, "an object for each key, with key, cas and status", AT(json)},
	{.type = OPT_END},
};

static int kv_del_run(const struct args *args)
{
	const struct change *c = args->opts;

	return kv_set_each(args, &c->target, &(struct gn_kv_op){.verb = GN_KV_DELETE}, c->json);
}

const struct command command_kv_del = {
	.name = "del",
	.what = "delete keys",
	.about =
		"Deletes keys. Missing keys are reported on stderr, and the exit status is then 1.",
	.run = kv_del_run,
	.words = "KEY…",
	.min_words = 1,
	.max_words = INT_MAX,
	OPTIONS(del_options, struct change, .target = KV_TARGET_DEFAULT),
};

static const struct opt touch_options[] = {
	OPT_KV_TARGET(struct change, target),
	{OPT_U32, "ttl", "S", "live for S seconds from now on; 0: for ever", "", AT(seconds),
	 .required = true, RANGE(0, KV_TTL_MAX)},
	{OPT_FLAG, "json", NULL, "an object for each key, with key, cas and status", AT(json)},
	{.type = OPT_END},
};

static int kv_touch_run(const struct args *args)
{
	const struct change *c = args->opts;
	const struct gn_kv_op like = {.verb = GN_KV_TOUCH, .ttl_s = c->seconds};

	return kv_set_each(args, &c->target, &like, c->json);
}

const struct command command_kv_touch = {
	.name = "touch",
	.what = "set how long keys live",
	.about = "Sets the time to live of keys, and leaves their values alone. Missing keys are "
		 "reported on stderr, and the exit status is then 1.",
	.run = kv_touch_run,
	.words = "KEY…",
	.min_words = 1,
	.max_words = INT_MAX,
	OPTIONS(touch_options, struct change, .target = KV_TARGET_DEFAULT),
};

static const struct opt number_options[] = {
	OPT_KV_TARGET(struct change, target),
	{OPT_U64, "initial", "N", "what is stored, and printed, if there is none", "nothing",
	 AT(initial)},
	{OPT_U32, "ttl", "S", "how long that lives; 0: for ever", AT(seconds),
	 RANGE(0, KV_TTL_MAX)},
	{OPT_FLAG, "json", NULL, "an object with key, number, cas and status", AT(json)},
	{.type = OPT_END},
};

static int kv_number_run(const struct args *args)
{
	const struct change *c = args->opts;
	struct gn_kv_op op = {
		.verb = strcmp(args->command->name, "incr") ? GN_KV_DECR : GN_KV_INCR,
		.how = opt_given(args, "initial") ? GN_KV_CREATE : 0u,
		.number = 1,
		.initial = c->initial,
		.create_s = c->seconds,
	};
	struct args key = *args;
	int status = 0;

	if (args->n_words == 2)
		status = cmd_number("BY", args->words[1], 0, UINT64_MAX, &op.number);
	if (!status && opt_given(args, "ttl") && !op.how)
		status = cmd_usage_error("--ttl is of what --initial stores; kv touch sets that of "
					 "what is there");
	key.n_words = 1;
	return status ? status : kv_set_each(&key, &c->target, &op, c->json);
}

#define NUMBER_COMMAND(verb, what_, about_)                                          \
	const struct command command_kv_##verb = {                                   \
		.name = #verb,                                                       \
		.what = (what_),                                                     \
		.about = (about_),                                                   \
		.run = kv_number_run,                                                \
		.words = "KEY [BY]",                                                 \
		.min_words = 1,                                                      \
		.max_words = 2,                                                      \
		OPTIONS(number_options, struct change, .target = KV_TARGET_DEFAULT), \
	}

NUMBER_COMMAND(
	incr, "add to a number",
	"Adds BY, or 1, to the decimal number that is stored under KEY, and prints the sum, which "
	"wraps at 64 bits.");
NUMBER_COMMAND(
	decr, "subtract from a number",
	"Subtracts BY, or 1, from the decimal number that is stored under KEY, and prints the "
	"difference, which is never below 0.");

static const struct opt clear_options[] = {
	OPT_KV_TARGET(struct change, target),
	{OPT_U32, "delay", "S", "in S seconds: what is stored until then is forgotten, too",
	 AT(seconds), RANGE(0, KV_TTL_MAX)},
	{.type = OPT_END},
};

static int kv_clear_run(const struct args *args)
{
	const struct change *c = args->opts;
	struct kv_link link;
	int rc;

	if (kv_link_open(&link, &c->target))
		return EXIT_FAILURE;
	rc = gn_kv_clear(link.client, c->seconds, kv_deadline(&c->target));
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: cannot clear %s: %s\n", c->target.addr, gn_strerror(rc));
	return kv_leave(&link, rc, false);
}

const struct command command_kv_clear = {
	.name = "clear",
	.what = "have a server forget everything",
	.about = "Has the server forget everything that it holds, now or later.",
	.run = kv_clear_run,
	OPTIONS(clear_options, struct change, .target = KV_TARGET_DEFAULT),
};
