/* SPDX-License-Identifier: MIT */
/*
 * What the commands of gannet rpc share.
 */
#ifndef GN_CMD_RPC_H
#define GN_CMD_RPC_H

#include <gannet/rpc.h>

#include "cmd.h"

int cmd_rpc_call(int argc, char **argv);
int cmd_rpc_ping(int argc, char **argv);
int cmd_rpc_serve(int argc, char **argv);
int cmd_rpc_stats(int argc, char **argv);
int cmd_rpc_tune(int argc, char **argv);

/* ---- addresses (rpc.c) ---- */

/* Is it PROVIDER:REST? If not, says so and returns EXIT_USAGE. NULL: it is missing. */
int rpc_check_addr(const char *addr, const char *command);
/* The provider of an address; what is wrong is told, with the address. -errno. */
int rpc_open(const char *addr, struct gn_fabric **out);

/* ---- a connection (rpc.c) ---- */

struct rpc_link {
	const char *addr;
	struct gn_fabric *fabric;
	struct gn_rpc_client *client;
	struct gn_rpc_limits limits;
};

/* -errno, and told. From then on signals are looked for: bench_stopped(). */
int rpc_link_open(struct rpc_link *link, const char *addr, const struct gn_rpc_client_opts *opts);
void rpc_link_close(struct rpc_link *link);

/* One call, which an interrupt ends: -EINTR. 0: *op has the status. Other errors are told. */
int rpc_link_call(struct rpc_link *link, struct gn_rpc_op *op, uint32_t timeout_ms);

/* What a server has counted, to be freed; method: GN_RPC_STATS_… . -errno, and told. */
int rpc_stats_text(struct rpc_link *link, unsigned method, char **out);

/* "ok", "no such method", "failed, 12": static, until the next call of this. */
const char *rpc_status_text(unsigned status);
/* -ENOENT, and not told. */
int rpc_find_mode(const char *text, enum gn_rpc_mode *out);
int rpc_parse_mode(const char *text, enum gn_rpc_mode *out);

/* ---- what gannet rpc serve can do (rpc_service.c) ---- */

struct rpc_method {
	const char *name;
	unsigned number;
	gn_rpc_handler *handler; /* NULL: every server has it */
};
extern const struct rpc_method rpc_methods[];
extern const unsigned rpc_n_methods;

/* A name or a number; EXIT_USAGE, and told. */
int rpc_parse_method(const char *text, unsigned *out);

#endif
