/* SPDX-License-Identifier: MIT */
/*
 * What the commands of gannet rpc share.
 */
#ifndef GN_CMD_RPC_H
#define GN_CMD_RPC_H

#include <gannet/rpc.h>

#include "cmd.h"
#include "command.h"

extern const struct command command_rpc_call, command_rpc_ping, command_rpc_serve,
	command_rpc_stats, command_rpc_tune;

/* ---- addresses (rpc.c) ---- */

/* For OPT_OTHER: an address, into a const char *. */
int cmd_take_addr(const char *name, const char *text, void *to);
/* Every client's option for the address of its server. */
#define OPT_SERVER(s, member)                                                                  \
	{                                                                                      \
		.type = OPT_OTHER, .name = "server", .arg = "ADDR", .to = offsetof(s, member), \
		.take = cmd_take_addr, .required = true, .help = "shm:NAME or verbs:HOST:PORT" \
	}
/* … and a server, where it is to be. */
#define OPT_LISTEN(s, member)                                                                  \
	{                                                                                      \
		.type = OPT_OTHER, .name = "listen", .arg = "ADDR", .to = offsetof(s, member), \
		.take = cmd_take_addr, .required = true, .help = "shm:NAME or verbs:HOST:PORT" \
	}
/* Opens the provider of an address. -errno after an error message with the address. */
int rpc_open(const char *addr, struct gn_fabric **out);

/* ---- a connection (rpc.c) ---- */

struct rpc_link {
	const char *addr;
	struct gn_fabric *fabric;
	struct gn_rpc_client *client;
	struct gn_rpc_limits limits;
};

/* -errno after an error message. From then on signals are handled: bench_stopped(). */
int rpc_link_open(struct rpc_link *link, const char *addr, const struct gn_rpc_client_opts *opts);
void rpc_link_close(struct rpc_link *link);

/*
 * One call, which an interrupt ends: -EINTR. 0: *op has the status. Others: an error was printed.
 */
int rpc_link_call(struct rpc_link *link, struct gn_rpc_op *op, uint32_t timeout_ms);

/* A server's counters as text, to be freed; method: GN_RPC_STATS_… . -errno after a message. */
int rpc_stats_text(struct rpc_link *link, unsigned method, char **out);

/* "ok", "no such method", "failed, 12": static, until the next call of this. */
const char *rpc_status_text(unsigned status);
extern const char *const rpc_modes[]; /* by enum gn_rpc_mode, to a NULL */

/* ---- what gannet rpc serve can do (rpc_service.c) ---- */

struct rpc_method {
	const char *name;
	unsigned number;
	gn_rpc_handler *handler; /* NULL: every server has it */
};
extern const struct rpc_method rpc_methods[];
extern const unsigned rpc_n_methods;

/* A name or a number; EXIT_USAGE after an error message. */
int rpc_parse_method(const char *text, unsigned *out);

#endif
