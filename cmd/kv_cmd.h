/* SPDX-License-Identifier: MIT */
/*
 * What the commands of gannet kv share.
 */
#ifndef GN_CMD_KV_H
#define GN_CMD_KV_H

#include <stdio.h>

#include <gannet/kv.h>

#include "cmd.h"
#include "command.h"

extern const struct command command_kv_clear, command_kv_decr, command_kv_del, command_kv_get,
	command_kv_incr, command_kv_keys, command_kv_proxy, command_kv_serve, command_kv_set,
	command_kv_stats, command_kv_touch;

/* ---- options that every client has (kv.c) ---- */

enum { KV_MODE_BYPASS = GN_RPC_MODES, KV_MODE_ANY };

struct kv_target {
	const char *addr;
	uint32_t mode; /* an enum gn_rpc_mode, or one of the above */
	uint32_t timeout_ms;
};

#define KV_TARGET_DEFAULT                               \
	{                                               \
		.mode = KV_MODE_ANY, .timeout_ms = 5000 \
	}
extern const struct opt kv_target_options[];
#define OPT_KV_TARGET(struct_, member)                                                         \
	{                                                                                      \
		.type = OPT_TABLE, .to = offsetof(struct_, member), .table = kv_target_options \
	}

#define KV_TTL_MAX (UINT32_MAX - 1) /* seconds; one more means something else */

/* Are these keys? 0 or EXIT_USAGE. */
int kv_check_keys(char **keys, int n);

/* ---- a connection (kv.c) ---- */

struct kv_link {
	const struct kv_target *target;
	struct gn_fabric *fabric;
	struct gn_kv_client *client;
	struct gn_kv_limits limits;
};

/* -errno after an error message. From then on signals are handled: bench_stopped(). */
int kv_link_open(struct kv_link *link, const struct kv_target *target);
void kv_link_close(struct kv_link *link);
/*
 * Runs the operations until all have completed: 0, -EINTR by an interrupt, or another error after
 * an error message. Then the outstanding operations complete when the link is closed.
 */
int kv_link_do(struct kv_link *link, struct gn_kv_op *ops, unsigned n);
/* The deadline of something that begins now. */
uint64_t kv_deadline(const struct kv_target *target);

/* Closes the link: the exit status after rc of the above, or after operations that failed. */
int kv_leave(struct kv_link *link, int rc, bool failed);

/* ---- statistics (kv_stats.c) ---- */

/* A store's, and of each partition. */
struct kv_report {
	uint32_t n;
	struct gn_kv_stats all;
	struct gn_kv_stats *parts; /* to be freed, also after an error */
};

int kv_report_ask(struct gn_kv_client *client, uint32_t partitions, uint64_t deadline_ns,
		  struct kv_report *report);
/* For Prometheus, as snprintf(): the length of the text. */
size_t kv_report_write(const struct kv_report *report, char *buf, size_t room);

/* ---- output (kv.c) ---- */

/* What became of a key's operation, on stderr; true: it went well. */
bool kv_tell(const struct gn_kv_op *op);
/* A member of an object, and a comma: "name":"…", or "name_hex":"…" for what is no UTF-8. */
void kv_json_bytes(FILE *f, const char *name, const void *bytes, uint32_t len);

#endif
