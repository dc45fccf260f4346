/* SPDX-License-Identifier: MIT */
/* From a line's configuration to the options of a load: what rpc and kv have in common. */
#ifndef GN_LAB_CALLS_H
#define GN_LAB_CALLS_H

#include "load.h"
#include "lab.h"

#define CALL_KEYS                                                                                \
	"server_threads", "client_machines", "clients_per_machine", "mode", "batch", "limit_us", \
		"alpha_pct", "fetch_size", "retries"

int calls_read(const struct lab_setup *setup, const struct config *config, struct load_opts *out,
	       struct lab_error *error);
/* The value of mode among the first n names: those behind run as processes only. */
int calls_mode(const struct config *config, const char *const *names, unsigned n, unsigned *out,
	       struct lab_error *error);
void calls_metrics(const struct load_result *result, uint32_t bytes, struct lab_metrics *out);

#endif
