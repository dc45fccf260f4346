/* SPDX-License-Identifier: MIT */
/*
 * --metrics HOST:PORT: what a command counts, for Prometheus to scrape at /metrics over HTTP.
 */
#ifndef GN_CMD_METRICS_H
#define GN_CMD_METRICS_H

#include <stddef.h>

#include "base/prometheus.h"
#include "command.h"

struct metrics;

/* Writes a text as snprintf() does: its length, or -errno; at most room bytes are in buf. */
typedef int metrics_write_fn(void *arg, char *buf, size_t room);
/* All of it, to be freed: 0 or -errno. */
int metrics_text(metrics_write_fn *write, void *arg, char **text);

/* A member of a struct of statistics. */
struct stat_field {
	const char *name; /* … of the member */
	size_t at;	  /* a uint64_t */
	const char *metric;
	enum prom_type kind;
	const char *what; /* the help text of the metric */
};

#define STAT_FIELD(s, member) #member, offsetof(s, member)

/* The member of *stats at that offset. */
uint64_t stat_value(const void *stats, size_t at);
void stat_fields_prometheus(const struct stat_field *fields, size_t n, const void *stats,
			    struct prom *prom);

/* The source of the metrics. All three are called in one thread; begin and end may be NULL. */
struct metrics_source {
	void *arg;
	int (*begin)(void *arg);
	metrics_write_fn *write; /* within a second or so */
	void (*end)(void *arg);
};

/* For OPT_OTHER: HOST:PORT, into a const char *. */
int metrics_take(const char *name, const char *text, void *to);
#define OPT_METRICS(s, member)                                                                   \
	{                                                                                        \
		.type = OPT_OTHER, .name = "metrics", .arg = "WHERE", .to = offsetof(s, member), \
		.take = metrics_take, .unset = "",                                               \
		.help = "PORT or HOST:PORT, for Prometheus: /metrics over HTTP"                  \
	}

/*
 * Listens and answers until it is stopped. where NULL: does nothing, and *out is NULL. -errno after
 * an error message.
 */
int metrics_start(const char *where, const struct metrics_source *source, struct metrics **out);
/* "127.0.0.1:9100" */
const char *metrics_place(const struct metrics *metrics);
/* metrics may be NULL. */
void metrics_stop(struct metrics *metrics);

#endif
