/* SPDX-License-Identifier: MIT */
/* The layers there are, and the metrics that their runs return. */
#include "lab.h"

#include <assert.h>
#include <string.h>

const struct lab_layer lab_layers[] = {
	{"rpc", lab_rpc_run}, {"kv", lab_kv_run}, {"msg", lab_msg_run}, {NULL, NULL},
};

void lab_metric_add(struct lab_metrics *metrics, const char *name, double value)
{
	assert(metrics->n < LAB_METRICS_MAX);
	metrics->metric[metrics->n].name = name;
	metrics->metric[metrics->n++].value = value;
}

const double *lab_metric_get(const struct lab_metrics *metrics, const char *name)
{
	for (unsigned i = 0; i < metrics->n; i++)
		if (!strcmp(metrics->metric[i].name, name))
			return &metrics->metric[i].value;
	return NULL;
}
