/* SPDX-License-Identifier: MIT */
/*
 * Layers: what runs a configuration of the list of figures on a simulated cluster. Each is one
 * function; a layer that is not in the table waits to be written.
 */
#ifndef GN_LAB_LAB_H
#define GN_LAB_LAB_H

#include <signal.h>

#include "config.h"

#define LAB_METRICS_MAX 24u

/* What a run measured, by the names that the list gives. Names are static. */
struct lab_metrics {
	unsigned n;
	struct {
		const char *name;
		double value;
	} metric[LAB_METRICS_MAX];
};

void lab_metric_add(struct lab_metrics *metrics, const char *name, double value);
/* NULL: there is no such metric. */
const double *lab_metric_get(const struct lab_metrics *metrics, const char *name);

/* What a run needs besides its configuration. */
struct lab_setup {
	const char *profile; /* as the list names it: decides what a machine is */
	const char *card;    /* the profile to simulate: the same, or a file in its place */
	const char *preset;
	uint64_t seed;
	double effort;				  /* 1: the usual length of a run */
	const volatile sig_atomic_t *interrupted; /* may be NULL */
};

typedef int lab_run_fn(const struct lab_setup *setup, const struct config *config,
		       struct lab_metrics *out, struct lab_error *error);

struct lab_layer {
	const char *name; /* NULL ends the table */
	lab_run_fn *run;
};

extern const struct lab_layer lab_layers[];

lab_run_fn lab_kv_run, lab_msg_run, lab_rpc_run;

#endif
