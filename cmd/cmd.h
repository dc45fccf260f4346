/* SPDX-License-Identifier: MIT */
/*
 * The gannet command: one file per subcommand, each with an entry in the table of main.c.
 */
#ifndef GN_CMD_H
#define GN_CMD_H

#include <stdint.h>

struct option;

struct command;
extern const struct command command_rpc;

/* argv[0] is the subcommand's name. Each returns the exit status: 0, 1 failed, 2 wrong usage. */
int cmd_advise(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_bench_fabric(int argc, char **argv);
int cmd_bench_kv(int argc, char **argv);
int cmd_bench_msg(int argc, char **argv);
int cmd_bench_rpc(int argc, char **argv);
int cmd_demo(int argc, char **argv);
int cmd_bench_sim(int argc, char **argv);
int cmd_bench_socket(int argc, char **argv);
int cmd_doctor(int argc, char **argv);
int cmd_kv(int argc, char **argv);
int cmd_kv_proxy(int argc, char **argv);
int cmd_report(int argc, char **argv);
int cmd_sim(int argc, char **argv);
int cmd_sim_calibrate(int argc, char **argv);
int cmd_sim_figures(int argc, char **argv);
int cmd_sim_profile(int argc, char **argv);
int cmd_sim_reproduce(int argc, char **argv);
int cmd_sim_soak(int argc, char **argv);

/* The other processes of benchmarks; not for people. */
int cmd_bench_peer(int argc, char **argv);
int cmd_bench_rpc_peer(int argc, char **argv);
int cmd_bench_kv_peer(int argc, char **argv);
int cmd_bench_msg_peer(int argc, char **argv);
int cmd_bench_count_peer(int argc, char **argv);

#define EXIT_USAGE	 2
#define EXIT_INTERRUPTED 130

/* One line on stderr, "gannet: …", that says what to do; returns EXIT_USAGE. */
int cmd_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Why a call of Gannet's returned rc: in its own words, or the C library's if it has none. */
const char *cmd_why(int rc);
/* One line on stderr for an address that could not be reached; advice follows it, or is empty. */
void cmd_connect_failed(const char *addr, int rc, const char *advice);

/* Can such a cluster be? If not, says why in one line, and returns EXIT_USAGE. */
struct gn_sim_opts;
int cmd_sim_check(const struct gn_sim_opts *opts);

/* Commands that have a word in common (group.c). */
struct cmd_word {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *what;
};
struct cmd_group {
	const char *name;
	const char *about;	      /* what they are for */
	const char *more;	      /* what else to know, ending a line, or empty */
	const struct cmd_word *words; /* to one without a name */
};
int cmd_second_word(int argc, char **argv, const struct cmd_group *group);

#define CMD_LEAVE (-2)

/*
 * The next of a command's options, as getopt_long(); -1: there are no more, and nothing else stands
 * there; CMD_LEAVE: the help was printed or a mistake told, and *status is what to leave with.
 */
int cmd_option(int argc, char **argv, const struct option *options, const char *help,
	       const char *command, int *status);

/* … of a command that takes up to so many other words: argv[optind] and on, after -1. */
int cmd_option_of(int argc, char **argv, const struct option *options, const char *help,
		  const char *command, int words, int *status);

/* 0, or a mistake told and EXIT_USAGE. K, M and G are understood in counts. */
int cmd_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);
int cmd_count(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out);
int cmd_real(const char *option, const char *text, double min, double max, double *out);

/* All that fd has, to be freed: 0, -errno; more than max bytes are -EFBIG. */
int cmd_read_all(int fd, uint32_t max, uint8_t **out, uint32_t *len);

/* 0 or EXIT_FAILURE when something could not be written to stdout. */
int cmd_flush_stdout(void);

#endif
