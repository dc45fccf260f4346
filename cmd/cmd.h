/* SPDX-License-Identifier: MIT */
/*
 * The gannet command: one file per subcommand, each a struct command (command.h), of which main.c
 * has the tree.
 */
#ifndef GN_CMD_H
#define GN_CMD_H

#include <stdint.h>

struct command;
extern const struct command command_advise, command_bench, command_demo, command_doctor,
	command_donor, command_kv, command_pager, command_rpc, command_sim, command_vol;

/*
 * The other processes of benchmarks; not for people. argv[0] is the command's word. As all
 * commands, they return the exit status: 0, 1 failed, 2 wrong usage.
 */
int cmd_bench_load_peer(int argc, char **argv);
int cmd_bench_count_peer(int argc, char **argv);

#define EXIT_USAGE	 2
#define EXIT_INTERRUPTED 130

/* One line on stderr, "gannet: …", that says what to do. Returns EXIT_USAGE. */
int cmd_usage_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Why a call of Gannet's returned rc: in its own words, or the C library's if it has none. */
const char *cmd_why(int rc);
/* One line on stderr for an address that could not be reached, where such a server should be. */
void cmd_connect_failed(const char *addr, int rc, const char *server);

/* Can the simulator make such a cluster? If not, prints why and returns EXIT_USAGE. */
struct gn_sim_opts;
int cmd_sim_check(const struct gn_sim_opts *opts);

/* 0, or EXIT_USAGE after an error message (command.c). Counts may end in K, M or G. */
int cmd_number(const char *option, const char *text, uint64_t min, uint64_t max, uint64_t *out);
int cmd_count(const char *option, const char *text, uint32_t min, uint32_t max, uint32_t *out);
int cmd_real(const char *option, const char *text, double min, double max, double *out);

/* All that fd has, to be freed: 0, -errno; more than max bytes are -EFBIG. */
int cmd_read_all(int fd, uint32_t max, uint8_t **out, uint32_t *len);

/* 0 or EXIT_FAILURE when something could not be written to stdout. */
int cmd_flush_stdout(void);

#endif
