/* SPDX-License-Identifier: MIT */
/*
 * What a command of gannet is: a name, what it takes, and what it does. Its options are stated
 * once, in a table, from which they are parsed, checked, explained and completed.
 */
#ifndef GN_COMMAND_H
#define GN_COMMAND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- options ---- */

enum opt_type {
	OPT_END,    /* of the table */
	OPT_FLAG,   /* bool; takes no value */
	OPT_U32,    /* uint32_t; K, M and G are understood */
	OPT_U64,    /* uint64_t, likewise */
	OPT_REAL,   /* double */
	OPT_TEXT,   /* const char * */
	OPT_CHARS,  /* char [max] */
	OPT_CHOICE, /* an enum, whose names choices has in their order */
	OPT_OTHER,  /* what take() makes of it */
	OPT_TABLE,  /* the options of another table, for a struct within this one */
};

struct opt {
	enum opt_type type;
	const char *name;  /* without the dashes */
	const char *arg;   /* what its value is called */
	const char *help;  /* without range and default, which are added */
	const char *unset; /* what the help says the default is, where it is no value; "" nothing */
	char letter;	   /* -o for --output; 0: none */
	bool required;
	size_t to;	 /* where the value goes, in the command's struct */
	double min, max; /* of numbers; a max of 0: no limit, and none is shown */
	/* To a NULL; in any case. OPT_OTHER: to complete with, or NULL. */
	const char *const *choices;
	/* OPT_OTHER: 0, or EXIT_USAGE after an error message. */
	int (*take)(const char *name, const char *text, void *to);
	const struct opt *table;
};

#define RANGE(min_, max_) .min = (min_), .max = (max_)
#define OPT_ARRAY(struct_, member) \
	.to = offsetof(struct_, member), .max = sizeof(((struct_ *)0)->member)

/* ---- commands ---- */

struct args; /* what the command was given */

struct command {
	const char *name;
	const char *what;		       /* in the list of its likes; NULL: not listed */
	const char *about;		       /* what it is for; wrapped when it is printed */
	const char *more;		       /* what else there is to know, or NULL */
	const struct command *const *commands; /* to a NULL: what its next word may be, … */
	int (*run)(const struct args *args);   /* … or this, which returns the exit status */
	int (*raw)(int argc, char **argv);     /* … or this, which looks at the words itself */
	const char *words;		       /* that it takes besides options; NULL: none */
	int min_words, max_words;
	const struct opt *opts;
	size_t size;	      /* of the struct that the options are for */
	const void *defaults; /* its first content; NULL: zeros */
};

struct args {
	const struct command *command;
	char name[64]; /* the command's, whole: "bench rpc" */
	void *opts;    /* the struct that was filled in */
	char **words;
	int n_words;
	uint64_t given; /* options, by their position: opt_given() */
};

/* The options of a command, the struct that they are for, and what it has before any is given. */
#define OPTIONS(table, struct_, ...)                                           \
	.opts = (table), .size = sizeof(struct_), .defaults = &(const struct_) \
	{                                                                      \
		__VA_ARGS__                                                    \
	}

/* Was one of these options there? Names with blanks between them. */
bool opt_given(const struct args *args, const char *names);

/* Finds the command and runs it; argv[0] is the first word of it. */
int command_run(const struct command *root, int argc, char **argv);
/* What may stand where the last of these words is, a line each. */
int command_complete(const struct command *root, int argc, char **argv);
/* The help of the command that these words name. */
int command_help(const struct command *root, int argc, char **argv);

#endif
