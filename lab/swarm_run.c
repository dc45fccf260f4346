/* SPDX-License-Identifier: MIT */
/*
 * One seed: plan, cluster, run, and what must be true when all is over.
 */
#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "swarm_model.h"

#define LIMIT_NS    60000000000ull
#define STACK_BYTES 65536u

/* A seed's log is of interest only if the seed fails, and then its end. */
static void keep_line(void *arg, enum gn_log_level level, const char *line)
{
	struct swarm *s = arg;
	const size_t len = strlen(line) + 1, room = sizeof(s->log) - 1;

	if (s->opts->verbose)
		fprintf(stderr, "%12llu ns log: %s\n",
			(unsigned long long)(s->sim ? gn_sim_now_ns(s->sim) : 0), line);
	if (level > GN_LOG_WARN || len > room)
		return;
	if (s->log_len + len > room) {
		const size_t drop = s->log_len + len - room;

		memmove(s->log, s->log + drop, s->log_len - drop);
		s->log_len -= drop;
	}
	memcpy(s->log + s->log_len, line, len - 1);
	s->log_len += len;
	s->log[s->log_len - 1] = '\n';
	s->log[s->log_len] = '\0';
}

void swarm_say(struct swarm *s, const char *fmt, ...)
{
	va_list args;

	if (!s->opts->verbose)
		return;
	fprintf(stderr, "%12llu ns %s: ", (unsigned long long)gn_sim_now_ns(s->sim),
		gn_node_name());
	va_start(args, fmt);
	vfprintf(stderr, fmt, args);
	va_end(args);
	fputc('\n', stderr);
}

static void note(struct swarm *s, const char *where, const char *fmt, va_list args)
{
	struct swarm_result *r = s->result;
	int n;

	if (r->failed)
		return;
	r->failed = true;
	n = snprintf(r->what, sizeof(r->what),
		     "at %llu ns, %s: ", (unsigned long long)gn_sim_now_ns(s->sim), where);
	vsnprintf(r->what + n, sizeof(r->what) - (size_t)n, fmt, args);
}

/* The thread that found it stays here; the others go on, and the first is the one that counts. */
void swarm_fail(struct swarm *s, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	note(s, gn_node_name(), fmt, args);
	va_end(args);
	for (;;)
		gn_sleep_us(LIMIT_NS / 1000);
}

static void fail_after(struct swarm *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail_after(struct swarm *s, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	note(s, "the end", fmt, args);
	va_end(args);
}

/* ---- the run ---- */

static void check_end(struct swarm *s, int rc)
{
	if (rc)
		fail_after(s, "the run ended with %s\n%s", gn_strerror(rc), s->log);
	for (unsigned i = 0; i < s->plan.n_procs && !plan_ends_programs(s); i++) {
		int status;

		if (gn_sim_status(s->sim, i, &status) || status)
			fail_after(s, "process %u did not end well", i);
	}
	if (gn_sim_leaks(s->sim))
		fail_after(s, "%llu allocations were left behind\n%s",
			   (unsigned long long)gn_sim_leaks(s->sim), s->log);
	for (const struct life *life = s->lives; life; life = life->next)
		if (*life->unexplained && !life->may_break)
			fail_after(s, "link %u life %u broke without a reason: %s", life->link,
				   life->number, life->unexplained);
}

static int run(struct swarm *s)
{
	const struct gn_sim_opts opts = {
		.size = sizeof(opts),
		.profile = s->plan.profile,
		.seed = s->opts->seed,
		.nodes = s->plan.n_nodes,
		.stack_bytes = STACK_BYTES,
		.limit_ns = LIMIT_NS,
		.caps_off = s->plan.caps_off,
		.faults = *s->plan.faults ? s->plan.faults : NULL,
	};
	struct swarm_arg arg[PROCS_MAX];
	int rc = gn_sim_create(&opts, &s->sim);

	if (rc)
		return rc;
	for (unsigned i = 0; i < s->plan.n_procs && !rc; i++) {
		arg[i] = (struct swarm_arg){.s = s, .proc = i};
		rc = gn_sim_spawn(s->sim, s->plan.proc[i].node, swarm_node, 0, NULL, &arg[i], NULL);
	}
	if (!rc) {
		check_end(s, gn_sim_run(s->sim));
		s->result->hash = gn_sim_trace_hash(s->sim);
		s->result->events = gn_sim_events(s->sim);
		s->result->virtual_ns = gn_sim_now_ns(s->sim);
		for (unsigned i = 0; i < SWARM_FAULTS && gn_sim_fault_name(i); i++)
			s->result->faults[i] = gn_sim_fault_count(s->sim, i);
	}
	gn_sim_destroy(s->sim);
	s->sim = NULL;
	return rc;
}

static void free_model(struct swarm *s)
{
	while (s->lives) {
		struct life *life = s->lives;

		s->lives = life->next;
		half_fini(&life->half[0]);
		half_fini(&life->half[1]);
		free(life);
	}
	while (s->halls) {
		struct hall *hall = s->halls;

		s->halls = hall->next;
		hall_fini(hall);
		free(hall);
	}
	for (unsigned i = 0; i < s->n_uds; i++) {
		half_fini(&s->ud[i].half);
		free(s->ud[i].in);
	}
}

int swarm_run(const struct swarm_opts *opts, struct swarm_result *out)
{
	struct swarm *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return -ENOMEM;
	s->opts = opts;
	s->result = out;
	*out = (struct swarm_result){0};
	plan_draw(s);
	if (opts->verbose)
		plan_print(s);
	gn_log_to(keep_line, s);
	rc = run(s);
	gn_log_to(NULL, NULL);
	free_model(s);
	free(s);
	return rc;
}
