/* SPDX-License-Identifier: MIT */
/*
 * The fabric benchmark, as the gannet command sees it: fill in options, run, print.
 *
 * A run is two processes on two cores: the caller's measures, a second one that it spawns is the
 * peer. Each benchmark runs next to its limit: latencies next to a bare ping-pong of two cache
 * lines, copies next to memcpy, in short blocks that take turns, because what a machine can do
 * changes from second to second. One thread at a time. Or it is the same two programs on two
 * simulated machines, where there are no limits.
 */
#ifndef GN_BENCH_H
#define GN_BENCH_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_op {
	BENCH_WRITE,
	BENCH_READ,
	BENCH_SEND,
	BENCH_WRITE_IMM,
	BENCH_CAS,
	BENCH_FAA,
	BENCH_UD_SEND,
	BENCH_CACHELINE,
	BENCH_MEMCPY,
	BENCH_WAKE,
	BENCH_OPS
};

/* What an operation is to the benchmark, and the defaults of its options. */
enum bench_kind { BENCH_ONE_SIDED, BENCH_ATOMIC, BENCH_MESSAGE, BENCH_LIMIT, BENCH_SLEEPER };

struct bench_trait {
	enum bench_kind kind;
	uint32_t size_bytes;
	uint32_t depth;
};

extern const struct bench_trait bench_traits[BENCH_OPS];
extern const char *const bench_ops[BENCH_OPS + 1]; /* names, to a NULL */

#define BENCH_SIZE_MAX	    (64u << 20)
#define BENCH_WAKE_SIZE_MAX 65536u
#define BENCH_DEPTH_MAX	    1024u
#define BENCH_IN_FLIGHT_MAX (64u << 20) /* bytes: size times depth */
#define BENCH_SECONDS_MAX   3600.0
#define BENCH_CPUS_MAX	    1024 /* as many as a cpu_set_t holds */

struct bench_opts {
	char provider[80];   /* for gn_fabric_open() */
	char host[128];	     /* where the peer listens over verbs; else empty */
	const char *profile; /* of simulated machines; NULL: processes */
	enum bench_op op;
	uint32_t size_bytes;
	uint32_t depth; /* requests of a chain; messages in flight */
	double seconds; /* of the operation itself; its limit takes a part of that on top */
	int cpus[2];	/* the caller's and the peer's, see bench_pick_cpus() */
	uint64_t seed;	/* of the payload */
};

/* NAN where a figure has no meaning for the operation. */
struct bench_result {
	uint64_t ops;
	double seconds;					   /* they took */
	double p50_ns, p99_ns, p999_ns;			   /* time of one, over groups of several */
	double cacheline_ratio, overhead_ns, memcpy_ratio; /* medians over blocks */
	unsigned blocks, blocks_dropped;
	bool has_counters;
	uint64_t wrs, doorbells, cqes, lost; /* of the caller's side */
	uint64_t working_set_bytes;	     /* that the caller's core touches */
	/* a sleeping receiver's */
	double cpu_percent, eventfd_p50_ns, eventfd_cpu_percent;
	uint64_t sleeps; /* on the event channel */
};

/* Called now and then with the part of the run that is done, 0 to 1. */
typedef void bench_progress_fn(const struct bench_opts *opts, double done);

/*
 * 0, -EINTR after bench_stop_on_signals() caught one, or what went wrong, which has been logged.
 * progress may be NULL.
 */
int bench_run(const struct bench_opts *opts, bench_progress_fn *progress, struct bench_result *out);

/* SIGINT, SIGTERM and SIGHUP end a run early and tidily. */
void bench_stop_on_signals(void);
void bench_stop(void); /* as one of them */
bool bench_stopped(void);
/* The same as a word, not 0 when stopped. */
const volatile sig_atomic_t *bench_stop_flag(void);

/* Two cores this process may use: two equal ones if there is only one. */
void bench_pick_cpus(int cpus[2]);
/* Run on this one only; -errno. */
int bench_pin(int cpu);

struct bench_machine {
	char cpu[80];
	int cores;
	char kernel[80];
};
void bench_machine_get(struct bench_machine *out);

/* Why something cannot be run: one line without a newline. */
#define BENCH_WHY_MAX 512u
/* Returns -EINVAL, for the caller to return in turn. */
int bench_refuse(char why[BENCH_WHY_MAX], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* machine may be NULL. */
void bench_print_json(FILE *f, const struct bench_opts *opts, const struct bench_result *result,
		      const struct bench_machine *machine);
void bench_print_head(FILE *f);
void bench_print_row(FILE *f, const struct bench_opts *opts, const struct bench_result *result);

/* One member of a JSON object, and a comma; null for a number that is not finite, or unknown. */
void bench_json_string(FILE *f, const char *key, const char *value);
void bench_json_number(FILE *f, const char *key, double value, int digits);
void bench_json_count(FILE *f, const char *key, bool known, uint64_t value);

/* Figures and words with their names, in order: a JSON object, or lines for people. */
#define BENCH_SHEET_MAX 64u
#define SHEET_COUNT	(-1)
struct bench_sheet {
	unsigned n;
	struct {
		const char *name;
		const char *text; /* NULL: it is a number */
		double value;	  /* not finite: unknown */
		int digits;	  /* behind the point */
		uint64_t count;	  /* if digits is SHEET_COUNT: all of its bits matter */
	} cell[BENCH_SHEET_MAX];
};
/* Names and texts stay the caller's. */
void sheet_text(struct bench_sheet *sheet, const char *name, const char *text);
void sheet_number(struct bench_sheet *sheet, const char *name, double value, int digits);
void sheet_count(struct bench_sheet *sheet, const char *name, uint64_t count);
/* Each as a member, and a comma. */
void sheet_members(FILE *f, const struct bench_sheet *sheet);
/* One line: an object of all, and what a run was on. */
void sheet_json(FILE *f, const struct bench_sheet *sheet, const int cpus[2]);
/* A line for each: its name, a tab, and - where it is unknown. */
void sheet_lines(FILE *f, const struct bench_sheet *sheet);

/*
 * Start this very program again with a hidden argument and our process id. The new process finds
 * the descriptor fd as BENCH_PEER_FD; before anything else it calls bench_die_with_parent().
 */
#define BENCH_PEER_FD 3
int bench_spawn(const char *hidden_arg, int fd, int *pid);
/*
 * The same with a command for people, which writes to out_fd in place of its stdout: spawned as
 * "--child PID WORD…".
 */
int bench_spawn_words(const char *const *words, int out_fd, int *pid);
/* Any program that is found in PATH, with the descriptor fd as BENCH_PEER_FD. */
int bench_spawn_file(const char *file, char *const *argv, int fd, int *pid);
int bench_die_with_parent(const char *parent);

#endif
