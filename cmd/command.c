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
#include <strings.h>

#include "cmd.h"
#include "command.h"

#define OPTIONS_MAX 48
#define FIRST	    256 /* of the values that getopt_long() knows options by */
#define WIDTH	    88	/* columns of a help text */
#define OPTION_WIDE 20	/* columns of an option that has a line for itself, if it is wider */
#define SUFFIXES    "KMGT"

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

static bool opt_is_named(const char *name, const char *names)
{
	const size_t len = strlen(name);

	for (const char *at = names; (at = strstr(at, name)); at += len)
		if ((at == names || at[-1] == ' ') && (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* A command as it is typed: "gannet bench rpc". Valid until the next call. */
static const char *opt_is_typed(const char *name)
{
	static char text[128];

	snprintf(text, sizeof(text), "%s%s%s", program_invocation_short_name, *name ? " " : "",
		 name);
	return text;
}

bool opt_given(const struct args *args, const char *names)
{
	const struct list list = list_of(args->command);

	for (int i = 0; i < list.n; i++)
		if (args->given >> i & 1 && opt_is_named(list.opt[i]->name, names))
			return true;
	return false;
}

/* ---- help ---- */

/* Words from a column on, in lines of at most WIDTH columns; blanks at a line's start stay. */
static void help_print_wrapped(const char *text, int column)
{
	bool first = true; /* of its line */
	int at = column;

	while (*text) {
		const int n = (int)strcspn(text, " \n");

		if (!first && at + 1 + n > WIDTH) {
			printf("\n%*s", column, "");
			at = column;
			first = true;
		}
		at += printf("%s%.*s", first ? "" : " ", n, text);
		first = false;
		text += n;
		if (*text == '\n') {
			printf("\n%*s", text[1] && text[1] != '\n' ? column : 0, "");
			at = column;
			first = true;
		}
		text += *text != 0;
	}
	putchar('\n');
}

/* 1048576 is 1M, 1024 is itself, and 86400000, which 1024 divides by chance, is, too. */
static void help_put_number(char *to, size_t room, double n)
{
	double short_n = n;
	int suffix = 0;

	while (SUFFIXES[suffix] && n >= 4096 && short_n >= 1024 &&
	       short_n / 1024 == (double)(uint64_t)(short_n / 1024)) {
		short_n /= 1024;
		suffix++;
	}
	if (suffix && short_n <= 4096)
		snprintf(to, room, "%.15g%c", short_n, SUFFIXES[suffix - 1]);
	else
		snprintf(to, room, "%.15g", n);
}

static void help_put_default(char *to, size_t room, const struct opt *opt, const uint8_t *value)
{
	char number[32];
	uint32_t n;
	uint64_t large;
	double real;
	const char *text;

	*to = 0;
	if (opt->unset) {
		if (*opt->unset)
			snprintf(to, room, " (%s)", opt->unset);
		return;
	}
	if (!value)
		return;
	switch (opt->type) {
	case OPT_U32:
		memcpy(&n, value, sizeof(n));
		help_put_number(number, sizeof(number), n);
		break;
	case OPT_U64:
		memcpy(&large, value, sizeof(large));
		help_put_number(number, sizeof(number), (double)large);
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
	case OPT_CHARS:
		memcpy(&text, value, sizeof(text));
		if (opt->type == OPT_CHARS)
			text = (const char *)value;
		if (!text || !*text)
			return;
		snprintf(number, sizeof(number), "%s", text);
		break;
	default:
		return;
	}
	snprintf(to, room, " (%s)", number);
}

static int help_put_option(char *to, size_t room, const struct opt *opt)
{
	char letter[8] = "";

	if (opt->letter)
		snprintf(letter, sizeof(letter), "-%c, ", opt->letter);
	return snprintf(to, room, "  %s--%s%s%s", letter, opt->name, opt->arg ? " " : "",
			opt->arg ? opt->arg : "");
}

/* Where what the options mean begins. */
static int help_column(const struct list *list)
{
	char text[80];
	int column = 0;

	for (int i = 0; i < list->n; i++) {
		const int n = help_put_option(text, sizeof(text), list->opt[i]);

		if (n <= OPTION_WIDE && n > column)
			column = n;
	}
	return column + 2;
}

static void help_print_option(const struct opt *opt, const uint8_t *value, int column)
{
	char name[80], range[80] = "", unset[80], text[640], low[32], high[32];
	int at = help_put_option(name, sizeof(name), opt);

	/* All that the type holds is no range. */
	if (opt->max > 0 && opt->type != OPT_CHARS &&
	    !(opt->type == OPT_U32 && opt->max >= UINT32_MAX - 1)) {
		help_put_number(low, sizeof(low), opt->min);
		help_put_number(high, sizeof(high), opt->max);
		snprintf(range, sizeof(range), "; %s to %s", low, high);
	}
	help_put_default(unset, sizeof(unset), opt, value);
	snprintf(text, sizeof(text), "%s%s%s", opt->help, range, unset);
	fputs(name, stdout);
	if (at >= column) {
		putchar('\n');
		at = 0;
	}
	printf("%*s", column - at, "");
	help_print_wrapped(text, column);
}

static int command_print_help(const struct command *command, const char *name)
{
	const struct list list = list_of(command);
	const int column = help_column(&list);

	printf("Usage: %s%s", opt_is_typed(name), command->commands ? " COMMAND" : "");
	for (int i = 0; i < list.n; i++)
		if (list.opt[i]->required)
			printf(" --%s %s", list.opt[i]->name, list.opt[i]->arg);
	printf("%s%s%s\n\n", list.n || command->commands ? " [OPTION…]" : "",
	       command->words ? " " : "", command->words ? command->words : "");
	help_print_wrapped(command->about, 0);
	if (list.n || command->commands)
		putchar('\n');
	for (const struct command *const *c = command->commands; c && *c; c++)
		if ((*c)->what)
			printf("  %-10s %s\n", (*c)->name, (*c)->what);
	for (int i = 0; i < list.n; i++) {
		const size_t at = list.at[i] + list.opt[i]->to;

		help_print_option(
			list.opt[i],
			command->defaults ? (const uint8_t *)command->defaults + at : NULL, column);
	}
	if (command->more) {
		putchar('\n');
		help_print_wrapped(command->more, 0);
	}
	if (command->commands)
		printf("\n%s COMMAND --help explains a command.\n", opt_is_typed(name));
	return cmd_flush_stdout();
}

/* ---- finding it ---- */

/* The command that the first words name, and how many they were. */
static const struct command *command_find(const struct command *root, int argc, char **argv, int *n,
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
	const struct command *command = command_find(root, argc, argv, &n, name, sizeof(name));

	if (n < argc)
		return cmd_usage_error("there is no command '%s'; try %s", argv[n],
				       opt_is_typed("help"));
	return command_print_help(command, name);
}

int command_complete(const struct command *root, int argc, char **argv)
{
	char name[sizeof(((struct args *)0)->name)];
	int n;
	const struct command *command = command_find(root, argc - 1, argv, &n, name, sizeof(name));
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

static void opt_put_limit(char *to, size_t room, uint64_t n)
{
	if (n < 1ull << 53)
		help_put_number(to, room, (double)n);
	else
		snprintf(to, room, "%" PRIu64, n);
}

static int opt_out_of_range(const char *option, const char *text, uint64_t min, uint64_t max)
{
	char low[32], high[32];

	opt_put_limit(low, sizeof(low), min);
	opt_put_limit(high, sizeof(high), max);
	return cmd_usage_error("%s must be a number from %s to %s, not '%s'", option, low, high,
			       text);
}

int cmd_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
	const char *suffix;
	char *end;
	unsigned long long n;
	unsigned shift = 0;

	errno = 0;
	n = strtoull(text, &end, 10);
	suffix = *end ? strchr(SUFFIXES, *end) : NULL;
	if (suffix) {
		shift = 10 * (unsigned)(suffix - SUFFIXES + 1);
		end++;
	}
	if (*text < '0' || *text > '9' || *end || errno || n > max >> shift || n << shift < min)
		return opt_out_of_range(option, text, min, max);
	*out = n << shift;
	return 0;
}

int cmd_count(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out)
{
	uint64_t n;
	const int status = cmd_number(option, text, min, max, &n);

	if (!status)
		*out = (uint32_t)n;
	return status;
}

int cmd_real(const char *option, const char *text, double min, double max, double *out)
{
	char *end;
	const double value = strtod(text, &end);

	if (end == text || *end || !(value >= min && value <= max))
		return cmd_usage_error("%s must be a number from %g to %g, not '%s'", option, min,
				       max, text);
	*out = value;
	return 0;
}

static int opt_take_chars(const struct opt *opt, const char *text, char *to)
{
	if (!*text || strlen(text) >= (size_t)opt->max)
		return cmd_usage_error("--%s must have 1 to %.0f characters, not %zu", opt->name,
				       opt->max - 1, strlen(text));
	strcpy(to, text);
	return 0;
}

static int opt_take_choice(const struct opt *opt, const char *text, void *to)
{
	char all[256] = "";
	uint32_t n = 0;

	for (; opt->choices[n]; n++) {
		const size_t len = strlen(all);

		if (!strcasecmp(opt->choices[n], text)) {
			memcpy(to, &n, sizeof(n));
			return 0;
		}
		snprintf(all + len, sizeof(all) - len, "%s%s",
			 !n		     ? "" :
			 opt->choices[n + 1] ? ", " :
					       " or ",
			 opt->choices[n]);
	}
	return cmd_usage_error("--%s must be %s, not '%s'", opt->name, all, text);
}

static int opt_take(const struct opt *opt, const char *text, void *to)
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
	case OPT_CHARS:
		return opt_take_chars(opt, text, to);
	case OPT_CHOICE:
		return opt_take_choice(opt, text, to);
	case OPT_OTHER:
		return opt->take(name, text, to);
	default:
		return 0;
	}
}

/* ---- running it ---- */

/* 0; -1: leave with *status. */
static int args_parse(struct args *args, int argc, char **argv, int *status)
{
	const struct command *command = args->command;
	const struct list list = list_of(command);
	struct option options[OPTIONS_MAX + 2] = {{"help", no_argument, NULL, 'h'}};
	char letters[2 * OPTIONS_MAX + 3] = ":h";
	int option;

	for (int i = 0; i < list.n; i++) {
		const struct opt *opt = list.opt[i];
		const size_t len = strlen(letters);

		options[i + 1] = (struct option){
			opt->name, opt->arg ? required_argument : no_argument, NULL, FIRST + i};
		if (opt->letter)
			snprintf(letters + len, sizeof(letters) - len, "%c%s", opt->letter,
				 opt->arg ? ":" : "");
	}
	opterr = 0;
	optind = 1;
	*status = 0;
	while ((option = getopt_long(argc, argv, letters, options, NULL)) >= 0) {
		int i = option - FIRST;

		for (int k = 0; k < list.n; k++)
			if (option == list.opt[k]->letter)
				i = k;
		if (option == 'h')
			*status = command_print_help(command, args->name);
		else if (option == ':')
			*status = cmd_usage_error("%s needs a value", argv[optind - 1]);
		else if (option == '?')
			*status = cmd_usage_error("unknown option '%s'; try %s --help",
						  argv[optind - 1], opt_is_typed(args->name));
		else
			*status = opt_take(list.opt[i], optarg,
					   (uint8_t *)args->opts + list.at[i] + list.opt[i]->to);
		if (i < 0 || *status)
			return -1;
		args->given |= UINT64_C(1) << i;
	}
	args->words = argv + optind;
	args->n_words = argc - optind;
	for (int i = 0; i < list.n && !*status; i++)
		if (list.opt[i]->required && !(args->given >> i & 1))
			*status = cmd_usage_error(
				"%s%s--%s %s, %s", args->name, *args->name ? " needs " : "missing ",
				list.opt[i]->name, list.opt[i]->arg, list.opt[i]->help);
	if (*status)
		return -1;
	if (args->n_words > command->max_words)
		*status = cmd_usage_error("'%s' is one too many; try %s --help",
					  args->words[command->max_words],
					  opt_is_typed(args->name));
	else if (args->n_words < command->min_words)
		*status = cmd_usage_error("%s needs %s; try %s --help", args->name, command->words,
					  opt_is_typed(args->name));
	return *status ? -1 : 0;
}

static int command_run_leaf(struct args *args, int argc, char **argv)
{
	const struct command *command = args->command;
	int status;

	args->opts = calloc(1, command->size + 1);
	if (!args->opts)
		return cmd_usage_error("no memory"), EXIT_FAILURE;
	if (command->defaults)
		memcpy(args->opts, command->defaults, command->size);
	if (!args_parse(args, argc, argv, &status))
		status = command->run(args);
	free(args->opts);
	return status;
}

int command_run(const struct command *root, int argc, char **argv)
{
	struct args args = {.given = 0};
	int n;

	args.command = command_find(root, argc, argv, &n, args.name, sizeof(args.name));
	if (args.command->raw)
		return args.command->raw(argc - n + 1, argv + n - 1);
	if (args.command->run)
		return command_run_leaf(&args, argc - n + 1, argv + n - 1);
	if (n == argc)
		return cmd_usage_error("%s what? Try %s --help", args.name,
				       opt_is_typed(args.name));
	if (!strcmp(argv[n], "--help") || !strcmp(argv[n], "-h") || !strcmp(argv[n], "help"))
		return command_print_help(args.command, args.name);
	return cmd_usage_error("unknown command '%s%s%s'; try %s%shelp", args.name,
			       *args.name ? " " : "", argv[n], opt_is_typed(args.name),
			       *args.name ? " --" : " ");
}
