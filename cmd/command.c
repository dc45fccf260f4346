/* SPDX-License-Identifier: MIT */
/*
 * From words to a command that runs: the tree of commands, and the tables of their options.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "command.h"

#define OPTIONS_MAX 48
#define FIRST	    256 /* of the values that getopt_long() knows options by */
#define WIDTH	    88  /* columns of a help text */
#define COLUMN	    18  /* where what an option means begins */

/* A command's options, those of other tables within it included. */
struct list {
	const struct opt *opt[OPTIONS_MAX];
	size_t at[OPTIONS_MAX]; /* where the struct of its table is within the command's */
	int n;
};

static void list_add(struct list *list, const struct opt *opts, size_t at)
{
	for (; opts && opts->type != OPT_END; opts++) {
		if (opts->type == OPT_TABLE) {
			list_add(list, opts->table, at + opts->to);
		} else if (list->n < OPTIONS_MAX) {
			list->opt[list->n] = opts;
			list->at[list->n++] = at;
		}
	}
}

static struct list list_of(const struct command *command)
{
	struct list list = {.n = 0};

	list_add(&list, command->opts, 0);
	return list;
}

bool opt_given(const struct args *args, const char *name)
{
	const struct list list = list_of(args->command);

	for (int i = 0; i < list.n; i++)
		if (!strcmp(list.opt[i]->name, name))
			return args->given >> i & 1;
	return false;
}

/* ---- help ---- */

/* Words from a column on, in lines of at most WIDTH columns; a newline is one. */
static void print_wrapped(const char *text, int column, int at)
{
	for (; *text == ' '; text++)
		;
	while (*text) {
		const int n = (int)strcspn(text, " \n");

		if (at > column && at + 1 + n > WIDTH) {
			printf("\n%*s", column, "");
			at = column;
		}
		at += printf("%s%.*s", at > column ? " " : "", n, text);
		text += n;
		if (*text == '\n') {
			printf("\n%*s", text[1] && text[1] != '\n' ? column : 0, "");
			at = column;
		}
		text += *text != 0;
	}
	putchar('\n');
}

/* 1048576 is 1M. */
static int put_number(char *to, size_t room, double n)
{
	static const char suffixes[] = "KMG";
	int suffix = -1;

	while (suffix < 2 && n >= 1024 && n / 1024 == (double)(uint64_t)(n / 1024)) {
		n /= 1024;
		suffix++;
	}
	return snprintf(to, room, "%.15g%.*s", n, suffix >= 0, suffixes + (suffix >= 0 ? suffix : 0));
}

static void put_default(char *to, size_t room, const struct opt *opt, const uint8_t *value)
{
	char number[32];
	uint32_t n;
	uint64_t large;
	double real;
	const char *text;

	*to = 0;
	if (opt->unset) {
		snprintf(to, room, *opt->unset ? " (%s)" : "", opt->unset);
		return;
	}
	if (!value)
		return;
	switch (opt->type) {
	case OPT_U32:
		memcpy(&n, value, sizeof(n));
		put_number(number, sizeof(number), n);
		break;
	case OPT_U64:
		memcpy(&large, value, sizeof(large));
		put_number(number, sizeof(number), (double)large);
		break;
	case OPT_REAL:
		memcpy(&real, value, sizeof(real));
		snprintf(number, sizeof(number), "%g", real);
		break;
	case OPT_CHOICE:
		memcpy(&n, value, sizeof(n));
		snprintf(number, sizeof(number), "%s", opt->choices[n]);
		break;
	case OPT_TEXT:
		memcpy(&text, value, sizeof(text));
		if (!text)
			return;
		snprintf(number, sizeof(number), "%s", text);
		break;
	default:
		return;
	}
	snprintf(to, room, " (%s)", number);
}

static void print_option(const struct opt *opt, const uint8_t *value)
{
	char range[80] = "", unset[80], text[640], low[32], high[32];
	int at = printf("  --%s%s%s", opt->name, opt->arg ? " " : "", opt->arg ? opt->arg : "");

	if (opt->max > 0) {
		put_number(low, sizeof(low), opt->min);
		put_number(high, sizeof(high), opt->max);
		snprintf(range, sizeof(range), "; %s to %s", low, high);
	}
	put_default(unset, sizeof(unset), opt, value);
	snprintf(text, sizeof(text), "%s%s%s", opt->help, range, unset);
	if (at >= COLUMN - 1) {
		putchar('\n');
		at = 0;
	}
	printf("%*s", COLUMN - at, "");
	print_wrapped(text, COLUMN, COLUMN);
}

static int help_of(const struct command *command, const char *name)
{
	const struct list list = list_of(command);
	const bool first = !*name;

	printf("Usage: gannet%s%s%s", first ? "" : " ", name, command->commands ? " COMMAND" : "");
	for (int i = 0; i < list.n; i++)
		if (list.opt[i]->required)
			printf(" --%s %s", list.opt[i]->name, list.opt[i]->arg);
	printf("%s%s%s\n\n", list.n || command->commands ? " [OPTION…]" : "",
	       command->words ? " " : "", command->words ? command->words : "");
	print_wrapped(command->about, 0, 0);
	if (list.n || command->commands)
		putchar('\n');
	for (const struct command *const *c = command->commands; c && *c; c++)
		if ((*c)->what)
			printf("  %-10s %s\n", (*c)->name, (*c)->what);
	for (int i = 0; i < list.n; i++) {
		const size_t at = list.at[i] + list.opt[i]->to;

		print_option(list.opt[i],
			     command->defaults ? (const uint8_t *)command->defaults + at : NULL);
	}
	if (command->more) {
		putchar('\n');
		print_wrapped(command->more, 0, 0);
	}
	if (command->commands)
		printf("\ngannet%s%s COMMAND --help explains a command.\n", first ? "" : " ", name);
	return cmd_flush_stdout();
}

/* ---- finding it ---- */

/* The command that the first words name, and how many they were. */
static const struct command *find(const struct command *root, int argc, char **argv, int *n,
				  char *name, size_t room)
{
	const struct command *command = root;

	*name = 0;
	for (*n = 0; command->commands && *n < argc; ++*n) {
		const struct command *const *c = command->commands;
		const size_t len = strlen(name);

		while (*c && strcmp((*c)->name, argv[*n]))
			c++;
		if (!*c)
			break;
		command = *c;
		snprintf(name + len, room - len, "%s%s", len ? " " : "", command->name);
	}
	return command;
}

int command_help(const struct command *root, int argc, char **argv)
{
	char name[sizeof(((struct args *)0)->name)];
	int n;
	const struct command *command = find(root, argc, argv, &n, name, sizeof(name));

	if (n < argc)
		return cmd_usage_error("there is no command '%s'; try gannet help", argv[n]);
	return help_of(command, name);
}

int command_complete(const struct command *root, int argc, char **argv)
{
	char name[sizeof(((struct args *)0)->name)];
	int n;
	const struct command *command = find(root, argc - 1, argv, &n, name, sizeof(name));
	const char *last = argc ? argv[argc - 1] : "", *before = argc > 1 ? argv[argc - 2] : "";
	const struct list list = list_of(command);
	const size_t len = strlen(last);

	for (int i = 0; i < list.n; i++) {
		const struct opt *opt = list.opt[i];
		const char *const *choice = opt->choices;

		if (opt->arg && !strncmp(before, "--", 2) && !strcmp(before + 2, opt->name)) {
			for (; choice && *choice; choice++)
				if (!strncmp(*choice, last, len))
					puts(*choice);
			return cmd_flush_stdout();
		}
	}
	for (const struct command *const *c = command->commands; n == argc - 1 && c && *c; c++)
		if ((*c)->what && !strncmp((*c)->name, last, len))
			puts((*c)->name);
	for (int i = 0; *last == '-' && i < list.n; i++) {
		char text[64];

		snprintf(text, sizeof(text), "--%s", list.opt[i]->name);
		if (!strncmp(text, last, len))
			puts(text);
	}
	if (!strncmp("--help", last, len) && len)
		puts("--help");
	return cmd_flush_stdout();
}

/* ---- values ---- */

static int take_choice(const struct opt *opt, const char *text, void *to)
{
	char all[256] = "";
	uint32_t n = 0;

	for (; opt->choices[n]; n++) {
		const size_t len = strlen(all);

		if (!strcmp(opt->choices[n], text)) {
			memcpy(to, &n, sizeof(n));
			return 0;
		}
		snprintf(all + len, sizeof(all) - len, "%s%s",
			 !n ? "" : opt->choices[n + 1] ? ", " : " or ", opt->choices[n]);
	}
	return cmd_usage_error("--%s must be %s, not '%s'", opt->name, all, text);
}

static int take(const struct opt *opt, const char *text, void *to)
{
	const bool any = !(opt->max > 0);
	char name[64];

	snprintf(name, sizeof(name), "--%s", opt->name);
	switch (opt->type) {
	case OPT_FLAG:
		*(bool *)to = true;
		return 0;
	case OPT_U32:
		return cmd_count(name, text, any ? 0 : (uint32_t)opt->min,
				 any ? UINT32_MAX : (uint32_t)opt->max, to);
	case OPT_U64:
		return cmd_number(name, text, any ? 0 : (uint64_t)opt->min,
				  any ? UINT64_MAX : (uint64_t)opt->max, to);
	case OPT_REAL:
		return cmd_real(name, text, opt->min, opt->max, to);
	case OPT_TEXT:
		memcpy(to, &text, sizeof(text));
		return 0;
	case OPT_CHOICE:
		return take_choice(opt, text, to);
	case OPT_OTHER:
		return opt->take(name, text, to);
	default:
		return 0;
	}
}

/* ---- running it ---- */

/* 0; -1: leave with *status. */
static int parse(struct args *args, int argc, char **argv, int *status)
{
	const struct command *command = args->command;
	const struct list list = list_of(command);
	struct option options[OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
	int option;

	for (int i = 0; i < list.n; i++)
		options[i + 1] = (struct option){
			list.opt[i]->name, list.opt[i]->arg ? required_argument : no_argument, NULL,
			FIRST + i};
	opterr = 0;
	optind = 1;
	*status = 0;
	while ((option = getopt_long(argc, argv, ":h", options, NULL)) >= 0) {
		const int i = option - FIRST;

		if (option == 'h')
			*status = help_of(command, args->name);
		else if (option == ':')
			*status = cmd_usage_error("%s needs a value", argv[optind - 1]);
		else if (option == '?')
			*status = cmd_usage_error("unknown option '%s'; try gannet %s --help",
						  argv[optind - 1], args->name);
		else
			*status = take(list.opt[i], optarg,
				       (uint8_t *)args->opts + list.at[i] + list.opt[i]->to);
		if (option < FIRST || *status)
			return -1;
		args->given |= UINT64_C(1) << i;
	}
	args->words = argv + optind;
	args->n_words = argc - optind;
	for (int i = 0; i < list.n && !*status; i++)
		if (list.opt[i]->required && !(args->given >> i & 1))
			*status = cmd_usage_error("%s needs --%s %s, %s", args->name,
						  list.opt[i]->name, list.opt[i]->arg,
						  list.opt[i]->help);
	if (*status)
		return -1;
	if (args->n_words > command->max_words)
		*status = cmd_usage_error("'%s' is one too many; try gannet %s --help",
					  args->words[command->max_words], args->name);
	else if (args->n_words < command->min_words)
		*status = cmd_usage_error("%s needs %s; try gannet %s --help", args->name,
					  command->words, args->name);
	return *status ? -1 : 0;
}

static int run_leaf(struct args *args, int argc, char **argv)
{
	const struct command *command = args->command;
	int status;

	args->opts = calloc(1, command->size + 1);
	if (!args->opts)
		return cmd_usage_error("no memory"), EXIT_FAILURE;
	if (command->defaults)
		memcpy(args->opts, command->defaults, command->size);
	if (!parse(args, argc, argv, &status))
		status = command->run(args);
	free(args->opts);
	return status;
}

int command_run(const struct command *root, int argc, char **argv)
{
	struct args args = {.given = 0};
	int n;

	args.command = find(root, argc, argv, &n, args.name, sizeof(args.name));
	if (args.command->raw)
		return args.command->raw(argc - n + 1, argv + n - 1);
	if (args.command->run)
		return run_leaf(&args, argc - n + 1, argv + n - 1);
	if (n == argc)
		return cmd_usage_error("%s what? Try gannet %s --help", args.name, args.name);
	if (!strcmp(argv[n], "--help") || !strcmp(argv[n], "-h") || !strcmp(argv[n], "help"))
		return help_of(args.command, args.name);
	return cmd_usage_error("unknown command '%s%s%s'; try gannet %s%shelp", args.name,
			       *args.name ? " " : "", argv[n], args.name, *args.name ? " --" : "");
}
