/* SPDX-License-Identifier: MIT */
/*
 * What the commands of gannet kv share.
 */
#ifndef GN_CMD_KV_H
#define GN_CMD_KV_H

#include <stdio.h>

#include <gannet/kv.h>

#include "cmd.h"

int cmd_kv_del(int argc, char **argv);
int cmd_kv_clear(int argc, char **argv);
int cmd_kv_get(int argc, char **argv);
int cmd_kv_keys(int argc, char **argv);
int cmd_kv_serve(int argc, char **argv);
int cmd_kv_set(int argc, char **argv);
int cmd_kv_stats(int argc, char **argv);

/* ---- options that every client has (kv_link.c) ---- */

struct kv_target {
	const char *addr;
	struct gn_kv_client_opts opts;
	bool bypass; /* it must be possible */
	uint32_t timeout_ms;
};

enum { KV_SERVER = 512, KV_MODE, KV_TIMEOUT };

#define KV_TARGET_OPTIONS                                         \
	{"server", required_argument, NULL, KV_SERVER},           \
		{"mode", required_argument, NULL, KV_MODE},       \
	{                                                         \
		"timeout-ms", required_argument, NULL, KV_TIMEOUT \
	}

#define KV_TARGET_HELP                                                                        \
	"  --server ADDR    shm:NAME or verbs:HOST:PORT; needed\n"                            \
	"  --mode M         hybrid, fetch or reply: call, and get results so; bypass: read\n" \
	"                   values (bypass if the server has it, else hybrid)\n"              \
	"  --timeout-ms N   to connect, and for the answer (5000)"

struct kv_target kv_target_default(void);
/* 0, or EXIT_USAGE. */
int kv_target_option(int option, const char *text, struct kv_target *target);
int kv_target_check(struct kv_target *target, const char *command);
/* Is it a key? */
int kv_check_key(const char *key);

/* ---- a connection (kv_link.c) ---- */

struct kv_link {
	const struct kv_target *target;
	struct gn_fabric *fabric;
	struct gn_kv_client *client;
	struct gn_kv_limits limits;
};

/* -errno, and told. From then on signals are looked for: bench_stopped(). */
int kv_link_open(struct kv_link *link, const struct kv_target *target);
void kv_link_close(struct kv_link *link);
/*
 * Operations, and all their ends: 0, -EINTR by an interrupt, or another error, which is told. Those
 * that have no end then have one when the link is closed.
 */
int kv_link_do(struct kv_link *link, struct gn_kv_op *ops, unsigned n);
/* The deadline of something that begins now. */
uint64_t kv_deadline(const struct kv_target *target);

/* ---- output (kv_link.c) ---- */

/* What became of a key's operation, on stderr; true: it went well. */
bool kv_tell(const struct gn_kv_op *op);
/* A member of an object, and a comma: "name":"…", or "name_hex":"…" for what is no UTF-8. */
void kv_json_bytes(FILE *f, const char *name, const void *bytes, uint32_t len);

#endif
