/* SPDX-License-Identifier: MIT */
/*
 * One seed: the plan, the cluster, the run, and the checks at its end.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define LIMIT_NS    60000000000ull
#define STACK_BYTES 65536u

/* Keeps the end of the log for the report of a failure. */
static void fuzz_keep_log(void *arg, enum gn_log_level level, const char *line)
{
	struct fuzz_run *run = arg;
	const size_t len = strlen(line) + 1, room = sizeof(run->log) - 1;

	if (run->opts->verbose)
		fprintf(stderr, "%12llu ns log: %s\n",
			(unsigned long long)(run->sim ? gn_sim_now_ns(run->sim) : 0), line);
	if (level > GN_LOG_WARN || len > room)
		return;
	if (run->log_len + len > room) {
		const size_t drop = run->log_len + len - room;

		memmove(run->log, run->log + drop, run->log_len - drop);
		run->log_len -= drop;
	}
	memcpy(run->log + run->log_len, line, len - 1);
	run->log_len += len;
	run->log[run->log_len - 1] = '\n';
	run->log[run->log_len] = '\0';
}

void fuzz_trace(struct fuzz_run *run, const char *fmt, ...)
{
	va_list args;

	if (!run->opts->verbose)
		return;
	fprintf(stderr, "%12llu ns %s: ", (unsigned long long)gn_sim_now_ns(run->sim),
		gn_node_name());
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static void fuzz_note_failure(struct fuzz_run *run, const char *where, const char *fmt,
			      va_list args)
{
	struct fuzz_result *r = run->result;
	int n;

	if (r->failed)
		return;
	r->failed = true;
	n = snprintf(r->what, sizeof(r->what),
		     "at %llu ns, %s: ", (unsigned long long)gn_sim_now_ns(run->sim), where);
	vsnprintf(r->what + n, sizeof(r->what) - (size_t)n, fmt, args);
}

/* The other threads go on; only the first failure is reported. */
void fuzz_fail(struct fuzz_run *run, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fuzz_note_failure(run, gn_node_name(), fmt, args);
	va_end(args);
	for (;;)
		gn_sleep_us(LIMIT_NS / 1000);
}

static void fuzz_fail_after(struct fuzz_run *run, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void fuzz_fail_after(struct fuzz_run *run, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	fuzz_note_failure(run, "the end", fmt, args);
	va_end(args);
}

/* ---- simulation ---- */

static void fuzz_check_end(struct fuzz_run *run, int rc)
{
	if (rc)
		fuzz_fail_after(run, "the run ended with %s\n%s", gn_strerror(rc), run->log);
	for (unsigned i = 0; i < run->plan.n_procs && !plan_ends_programs(run); i++) {
		int status;

		if (gn_sim_status(run->sim, i, &status) || status)
			fuzz_fail_after(run, "process %u did not exit with 0", i);
	}
	if (gn_sim_leaks(run->sim))
		fuzz_fail_after(run, "%llu allocations were left behind\n%s",
				(unsigned long long)gn_sim_leaks(run->sim), run->log);
	for (const struct conn *conn = run->conns; conn; conn = conn->next)
		if (*conn->unexplained && !conn->may_break)
			fuzz_fail_after(run, "link %u connection %u broke without a reason: %s",
					conn->link, conn->number, conn->unexplained);
}

static int fuzz_simulate(struct fuzz_run *run)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = run->plan.profile,
		.seed = run->opts->seed,
		.nodes = run->plan.n_nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.caps_off = run->plan.caps_off,
		.faults = *run->plan.faults ? run->plan.faults : NULL,
	};
	struct program_arg arg[PROCS_MAX];
	int rc = gn_sim_create(&opts, &run->sim);

	if (rc)
		return rc;
	for (unsigned i = 0; i < run->plan.n_procs && !rc; i++) {
		arg[i] = (struct program_arg){.run = run, .proc = i};
		rc = gn_sim_spawn(run->sim, run->plan.proc[i].node, program_main, 0, NULL, &arg[i],
				  NULL);
	}
	if (!rc) {
		fuzz_check_end(run, gn_sim_run(run->sim));
		run->result->hash = gn_sim_trace_hash(run->sim);
		run->result->events = gn_sim_events(run->sim);
		run->result->virtual_ns = gn_sim_now_ns(run->sim);
		for (unsigned i = 0; i < FUZZ_FAULTS && gn_sim_fault_name(i); i++)
			run->result->faults[i] = gn_sim_fault_count(run->sim, i);
	}
	gn_sim_destroy(run->sim);
	run->sim = NULL;
	return rc;
}

static void fuzz_free_model(struct fuzz_run *run)
{
	while (run->conns) {
		struct conn *conn = run->conns;

		run->conns = conn->next;
		qp_model_fini(&conn->model[0]);
		qp_model_fini(&conn->model[1]);
		free(conn);
	}
	while (run->all_atomics) {
		struct atomics *atomics = run->all_atomics;

		run->all_atomics = atomics->next;
		atomics_fini(atomics);
		free(atomics);
	}
	for (unsigned i = 0; i < run->n_uds; i++) {
		qp_model_fini(&run->ud[i].model);
		free(run->ud[i].in);
	}
}

int fuzz_seed(const struct fuzz_opts *opts, struct fuzz_result *out)
{
	struct fuzz_run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	run->opts = opts;
	run->result = out;
	*out = (struct fuzz_result){0};
	plan_draw(run);
	if (opts->verbose)
		plan_print(run);
	gn_log_to(fuzz_keep_log, run);
	rc = fuzz_simulate(run);
	gn_log_to(NULL, NULL);
	fuzz_free_model(run);
	free(run);
	return rc;
}
