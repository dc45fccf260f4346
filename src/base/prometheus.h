/* SPDX-License-Identifier: MIT */
/*
 * The one writer of Prometheus' text format, version 0.0.4, for the library, the commands and the
 * proxy. A metric family is its HELP and TYPE lines, then its samples. Like snprintf(), the writer
 * counts bytes for which the buffer has no space: write again with a buffer of prom.len + 1 bytes.
 */
#ifndef GN_BASE_PROMETHEUS_H
#define GN_BASE_PROMETHEUS_H

#include <stddef.h>
#include <stdint.h>

/* Version in the Content-Type of an HTTP response. */
#define PROM_CONTENT_TYPE "text/plain; version=0.0.4; charset=utf-8"

enum prom_type { PROM_COUNTER, PROM_GAUGE, PROM_HISTOGRAM };

struct prom {
	const char *prefix; /* of every metric name: "gannet_rpc_server_" */
	char *buf;
	size_t room, len; /* len: bytes of the whole text, without its NUL */
	const char *family;
};

struct prom_label {
	const char *name, *value; /* the value is any text: it is escaped */
};

/* One series of a histogram. */
struct prom_histogram {
	unsigned n;
	const double *le;	/* upper bounds, ascending; +Inf is added */
	const uint64_t *bucket; /* observations in bucket i alone; bucket[n]: above le[n - 1] */
	double sum;
};

void prom_init(struct prom *p, const char *prefix, char *buf, size_t room);
/*
 * Begin a family; its samples follow. The name of a counter ends in _total, and units are base
 * units: _seconds, _bytes.
 */
void prom_family(struct prom *p, enum prom_type type, const char *name, const char *help);
/* label may be NULL. */
void prom_count(struct prom *p, const struct prom_label *label, uint64_t value);
void prom_real(struct prom *p, const struct prom_label *label, double value);
void prom_histogram(struct prom *p, const struct prom_label *label,
		    const struct prom_histogram *histogram);
/* A family of one sample without a label. */
void prom_single(struct prom *p, enum prom_type type, const char *name, const char *help,
		 uint64_t value);

#endif
