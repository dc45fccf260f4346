/* SPDX-License-Identifier: MIT */
/*
 * gannet kv set, del and clear: what changes a store. Silent when all went well.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "kv_cmd.h"

#define TTL_MAX (UINT32_MAX - 1) /* one more means something else */
#define AT_ONCE 64u

/* 0 when all went well; closes the link, whatever is under way. */
static int leave(struct kv_link *link, int rc, bool failed)
{
	const int status = cmd_flush_stdout();

	kv_link_close(link);
	if (rc)
		return rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	return status ? status : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

static bool print(const struct gn_kv_op *op, bool json)
{
	if (!json)
		return kv_tell(op);
	putchar('{');
	kv_json_bytes(stdout, "key", op->key, op->key_len);
	bench_json_count(stdout, "cas", op->verb != GN_KV_DELETE && op->status == GN_KV_OK,
			 op->cas);
	printf("\"status\":\"%s\"}\n", gn_kv_status_str(op->status));
	return op->status == GN_KV_OK;
}

/* ---- set ---- */

static const char set_help[] =
	"Usage: gannet kv set --server ADDR [OPTION…] KEY VALUE\n"
	"\n"
	"Stores VALUE under KEY; - stands for what is on stdin. The exit status is 1 if it was\n"
	"not stored, and stderr says why.\n"
	"\n" KV_TARGET_HELP "\n"
	"  --ttl S          live for S seconds (0: for ever)\n"
	"  --flags N        a number that is kept with the value (0)\n"
	"  --add            only if there is none yet\n"
	"  --replace        only if there is one\n"
	"  --append         to the value that is there, which keeps its flags and time\n"
	"  --prepend        the same, in front of it\n"
	"  --cas N          only if its version is N, as get --json has it\n"
	"  --json           an object with key, cas and status";

enum { TTL = 256, FLAGS, ADD, REPLACE, APPEND, PREPEND, CAS, JSON };

static const struct option set_options[] = {
	KV_TARGET_OPTIONS,
	{"ttl", required_argument, NULL, TTL},
	{"flags", required_argument, NULL, FLAGS},
	{"add", no_argument, NULL, ADD},
	{"replace", no_argument, NULL, REPLACE},
	{"append", no_argument, NULL, APPEND},
	{"prepend", no_argument, NULL, PREPEND},
	{"cas", required_argument, NULL, CAS},
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

struct set {
	struct kv_target target;
	struct gn_kv_op op;
	uint8_t *input; /* what was on stdin */
	bool json;
};

static int choose_verb(struct gn_kv_op *op, enum gn_kv_verb verb)
{
	if (op->verb != GN_KV_SET && op->verb != verb)
		return cmd_usage_error("--add, --replace, --append and --prepend exclude each "
				       "other");
	op->verb = verb;
	return 0;
}

static int set_option(int option, struct set *s)
{
	switch (option) {
	case TTL:
		return cmd_count("--ttl", optarg, 0, TTL_MAX, &s->op.ttl_s);
	case FLAGS:
		return cmd_count("--flags", optarg, 0, UINT32_MAX, &s->op.flags);
	case ADD:
		return choose_verb(&s->op, GN_KV_ADD);
	case REPLACE:
		return choose_verb(&s->op, GN_KV_REPLACE);
	case APPEND:
		return choose_verb(&s->op, GN_KV_APPEND);
	case PREPEND:
		return choose_verb(&s->op, GN_KV_PREPEND);
	case CAS:
		s->op.how |= GN_KV_IF_CAS;
		return cmd_number("--cas", optarg, 0, UINT64_MAX, &s->op.cas);
	case JSON:
		s->json = true;
		return 0;
	default:
		return kv_target_option(option, optarg, &s->target);
	}
}

static int set_words(int n, char **words, struct set *s)
{
	int status;

	if (n < 2)
		return cmd_usage_error("kv set needs a key and a value, or - for stdin");
	status = kv_check_key(words[0]);
	if (status)
		return status;
	if (s->op.verb == GN_KV_ADD && s->op.how & GN_KV_IF_CAS)
		return cmd_usage_error("--add is for what is not there, and has no --cas");
	s->op.key = words[0];
	s->op.key_len = (uint32_t)strlen(words[0]);
	s->op.value = words[1];
	if (strlen(words[1]) > GN_KV_VALUE_MAX)
		return cmd_usage_error("a value has at most %u bytes", GN_KV_VALUE_MAX);
	s->op.value_len = (uint32_t)strlen(words[1]);
	return kv_target_check(&s->target, "kv set");
}

static int set_parse(int argc, char **argv, struct set *s, int *status)
{
	int option;

	*s = (struct set){.target = kv_target_default(), .op = {.verb = GN_KV_SET}};
	*status = 0;
	while (!*status && (option = cmd_option_of(argc, argv, set_options, set_help, "kv set", 2,
						   status)) >= 0)
		*status = set_option(option, s);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = set_words(argc - optind, argv + optind, s);
	return *status ? -1 : 0;
}

static int take_stdin(struct set *s)
{
	int rc;

	if (strcmp(s->op.value, "-"))
		return 0;
	rc = cmd_read_all(STDIN_FILENO, GN_KV_VALUE_MAX, &s->input, &s->op.value_len);
	s->op.value = s->input;
	if (rc == -EFBIG)
		fprintf(stderr, "gannet: stdin has more than %u bytes, which a value may have\n",
			GN_KV_VALUE_MAX);
	else if (rc)
		fprintf(stderr, "gannet: cannot read stdin: %s\n", gn_strerror(rc));
	return rc;
}

int cmd_kv_set(int argc, char **argv)
{
	struct kv_link link;
	struct set s;
	bool stored = false;
	int status, rc;

	if (set_parse(argc, argv, &s, &status))
		return status;
	rc = take_stdin(&s);
	if (!rc)
		rc = kv_link_open(&link, &s.target);
	if (rc) {
		free(s.input);
		return EXIT_FAILURE;
	}
	rc = kv_link_do(&link, &s.op, 1);
	if (!rc)
		stored = print(&s.op, s.json);
	status = leave(&link, rc, !stored);
	free(s.input);
	return status;
}

/* ---- del ---- */

static const char del_help[] =
	"Usage: gannet kv del --server ADDR [OPTION…] KEY…\n"
	"\n"
	"Deletes keys. What is not there is said on stderr, and the exit status is then 1.\n"
	"\n" KV_TARGET_HELP "\n"
	"  --json           an object for each key, with key, cas and status";

static const struct option del_options[] = {
	KV_TARGET_OPTIONS,
	{"json", no_argument, NULL, JSON},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int del_some(struct kv_link *link, char **keys, unsigned n, bool json, bool *failed)
{
	struct gn_kv_op ops[AT_ONCE];
	int rc;

	for (unsigned i = 0; i < n; i++)
		ops[i] = (struct gn_kv_op){
			.verb = GN_KV_DELETE, .key = keys[i], .key_len = (uint32_t)strlen(keys[i])};
	rc = kv_link_do(link, ops, n);
	for (unsigned i = 0; !rc && i < n; i++)
		*failed |= !print(&ops[i], json);
	return rc;
}

static int del_parse(int argc, char **argv, struct kv_target *target, bool *json, int *status)
{
	int option;

	*target = kv_target_default();
	*json = false;
	*status = 0;
	while (!*status && (option = cmd_option_of(argc, argv, del_options, del_help, "kv del",
						   INT_MAX, status)) >= 0) {
		if (option == JSON)
			*json = true;
		else
			*status = kv_target_option(option, optarg, target);
	}
	if (option == CMD_LEAVE)
		return -1;
	if (!*status && optind == argc)
		*status = cmd_usage_error("kv del needs a key, or several");
	for (int i = optind; !*status && i < argc; i++)
		*status = kv_check_key(argv[i]);
	if (!*status)
		*status = kv_target_check(target, "kv del");
	return *status ? -1 : 0;
}

int cmd_kv_del(int argc, char **argv)
{
	struct kv_target target;
	struct kv_link link;
	bool json, failed = false;
	int status, rc = 0;

	if (del_parse(argc, argv, &target, &json, &status))
		return status;
	if (kv_link_open(&link, &target))
		return EXIT_FAILURE;
	for (int i = optind; !rc && i < argc; i += (int)AT_ONCE) {
		const unsigned left = (unsigned)(argc - i);

		rc = del_some(&link, argv + i, left < AT_ONCE ? left : AT_ONCE, json, &failed);
	}
	return leave(&link, rc, failed);
}

/* ---- clear ---- */

static const char clear_help[] =
	"Usage: gannet kv clear --server ADDR [OPTION…]\n"
	"\n"
	"Has the server forget everything that it holds, now or later.\n"
	"\n" KV_TARGET_HELP "\n"
	"  --delay S        in S seconds: what is stored until then is forgotten, too (0)";

enum { DELAY = 256 };

static const struct option clear_options[] = {
	KV_TARGET_OPTIONS,
	{"delay", required_argument, NULL, DELAY},
	{"help", no_argument, NULL, 'h'},
	{NULL, 0, NULL, 0},
};

static int clear_parse(int argc, char **argv, struct kv_target *target, uint32_t *delay_s,
		       int *status)
{
	int option;

	*target = kv_target_default();
	*delay_s = 0;
	*status = 0;
	while (!*status && (option = cmd_option(argc, argv, clear_options, clear_help, "kv clear",
						status)) >= 0)
		*status = option == DELAY ? cmd_count("--delay", optarg, 0, TTL_MAX, delay_s) :
					    kv_target_option(option, optarg, target);
	if (option == CMD_LEAVE)
		return -1;
	if (!*status)
		*status = kv_target_check(target, "kv clear");
	return *status ? -1 : 0;
}

int cmd_kv_clear(int argc, char **argv)
{
	struct kv_target target;
	struct kv_link link;
	uint32_t delay_s;
	int status, rc;

	if (clear_parse(argc, argv, &target, &delay_s, &status))
		return status;
	if (kv_link_open(&link, &target))
		return EXIT_FAILURE;
	rc = gn_kv_clear(link.client, delay_s, kv_deadline(&target));
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: cannot clear %s: %s\n", target.addr, gn_strerror(rc));
	return leave(&link, rc, false);
}
