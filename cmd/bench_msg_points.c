/* SPDX-License-Identifier: MIT */
/*
 * The points of gannet bench msg: whether they can be, before anything is measured; then one after
 * the other, each written as soon as it is known.
 */
#include "bench_msg.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/sim.h>

#include "bench_cmd.h"
#include "cmd.h"
#include "msg_file.h"

struct points {
	struct msg_job *job;
	uint32_t n;
	struct bench_msg_opts *opts; /* of each */
	bool *skip;		     /* it cannot be, or is known already */
	struct result_file file;
	bool has_file;
	double wall_seconds; /* that those that were run took */
	uint32_t run, left;
};

/* ---- what can be ---- */

static int check_points(struct points *p)
{
	char why[BENCH_WHY_MAX];

	for (uint32_t i = 0; i < p->n; i++) {
		p->opts[i] = p->job->opts;
		sweep_point(&p->job->sweep, i, &p->opts[i]);
		if (bench_msg_check(&p->opts[i], why))
			return cmd_usage_error("%s", why);
	}
	return 0;
}

/* A node of the cluster says what its card can carry. */
struct tries {
	const struct bench_msg_opts *opts;
	unsigned n;
	int *rcs;
};

static int try_all(struct gn_env *env, int argc, char **argv)
{
	const struct tries *t = env->arg;
	struct gn_fabric *fabric;
	const int rc = gn_fabric_open(env->fabric, &fabric);

	(void)argc;
	(void)argv;
	if (rc)
		return 1;
	for (unsigned i = 0; i < t->n; i++)
		t->rcs[i] = bench_msg_try(fabric, &t->opts[i]);
	gn_fabric_close(fabric);
	return 0;
}

static int simulate_tries(const struct bench_msg_opts *opts, unsigned n, int *rcs)
{
	struct tries tries = {opts, n, rcs};
	struct gn_sim *sim;
	int status = 1, rc;

	if (!n)
		return 0;
	rc = gn_sim_create(&(struct gn_sim_opts){.size = sizeof(struct gn_sim_opts),
						 .profile = opts->load.profile,
						 .nodes = 1},
			   &sim);
	if (rc)
		return rc;
	rc = gn_sim_spawn(sim, 0, try_all, 0, NULL, &tries, NULL);
	if (!rc)
		rc = gn_sim_run(sim);
	if (!rc)
		rc = gn_sim_status(sim, 0, &status);
	gn_sim_destroy(sim);
	return rc ? rc : status ? -EIO : 0;
}

/* Only datagrams have a limit that the fabric alone knows. */
static int try_datagrams(struct points *p, struct bench_msg_opts *tried, int *rcs, uint32_t n)
{
	struct gn_fabric *fabric;
	int rc;

	if (p->job->opts.load.profile)
		return simulate_tries(tried, n, rcs);
	rc = gn_fabric_open(p->job->opts.load.provider, &fabric);
	if (rc == -EINVAL) /* anything else has been logged */
		fprintf(stderr, "gannet: cannot open %s: %s\n", p->job->opts.load.provider,
			gn_strerror(rc));
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n; i++)
		rcs[i] = bench_msg_try(fabric, &tried[i]);
	gn_fabric_close(fabric);
	return 0;
}

/* A row that cannot be is left out, unless there is no other. */
static int drop_point(struct points *p, uint32_t i, int rc)
{
	const struct bench_msg_opts *o = &p->opts[i];
	char why[BENCH_WHY_MAX];

	if (rc == -EMSGSIZE)
		snprintf(why, sizeof(why), "UD with value=%u: more than a datagram of %s carries",
			 o->value_bytes, o->load.provider);
	else
		snprintf(why, sizeof(why), "UD with pending=%u, value=%u over %s: %s", o->pending,
			 o->value_bytes, o->load.provider, gn_strerror(rc));
	if (p->n == 1 || (rc != -EMSGSIZE && rc != -EOPNOTSUPP))
		return cmd_usage_error("%s", why);
	fprintf(stderr, "gannet: skipped: %s\n", why);
	p->skip[i] = true;
	return 0;
}

static int check_datagrams(struct points *p)
{
	struct bench_msg_opts *tried = calloc(p->n, sizeof(*tried));
	int *rcs = calloc(p->n, sizeof(*rcs));
	uint32_t n = 0, dropped = 0;
	int status = 0;

	for (uint32_t i = 0; tried && i < p->n; i++)
		if (p->opts[i].protocol == GN_MSG_UD)
			tried[n++] = p->opts[i];
	if (!tried || !rcs || try_datagrams(p, tried, rcs, n))
		status = EXIT_FAILURE;
	for (uint32_t i = 0, k = 0; !status && i < p->n; i++) {
		if (p->opts[i].protocol != GN_MSG_UD)
			continue;
		if (rcs[k])
			status = drop_point(p, i, rcs[k]);
		dropped += rcs[k++] != 0;
	}
	if (!status && dropped == p->n)
		status = cmd_usage_error("UD cannot carry any of these values");
	free(tried);
	free(rcs);
	return status;
}

/* ---- the file ---- */

static int open_file(struct points *p)
{
	char why[BENCH_WHY_MAX];
	uint32_t known = 0;
	bool cut;

	if (!p->job->out)
		return 0;
	if (result_file_open(&p->file, p->job->out, &cut, why))
		return cmd_usage_error("--out: %s", why);
	p->has_file = true;
	if (cut)
		fprintf(stderr, "gannet: --out %s: its last line was half written, and is gone\n",
			p->job->out);
	for (uint32_t i = 0; i < p->n; i++) {
		char *identity = p->skip[i] ? NULL : bench_msg_identity(&p->opts[i]);

		if (identity && result_file_has(&p->file, identity)) {
			p->skip[i] = true;
			known++;
		}
		free(identity);
	}
	if (known)
		fprintf(stderr, "gannet: --out %s: has %u of %u points already\n", p->job->out,
			known, p->n);
	return 0;
}

/* ---- running ---- */

static int points_show(struct points *p, const struct bench_msg_opts *o,
		       const struct bench_msg_result *r)
{
	char *line = bench_msg_json(o, r);
	int rc = line ? 0 : -ENOMEM;

	msg_progress_hide();
	if (!rc && p->has_file)
		rc = result_file_add(&p->file, line);
	if (rc)
		fprintf(stderr, "gannet: --out %s: cannot write: %s\n", p->job->out,
			gn_strerror(rc));
	if (line && p->job->json) {
		fputs(line, stdout);
	} else if (line) {
		if (!p->run)
			bench_msg_print_head(stdout);
		bench_msg_print_row(stdout, o, r);
	}
	free(line);
	return rc || cmd_flush_stdout() ? -EIO : 0;
}

/* What a point takes: as those before it, or what was asked for and some time to connect. */
static double points_estimate(const struct points *p)
{
	if (p->run)
		return p->wall_seconds / p->run;
	return p->job->opts.load.profile ? NAN : 1.3 * p->job->opts.load.seconds + 0.1;
}

static int run_point(struct points *p, const struct bench_msg_opts *o)
{
	const uint64_t began_ns = gn_now_ns();
	struct bench_msg_result result;
	int rc;

	msg_progress_point(o, points_estimate(p));
	rc = bench_msg_run(o, msg_progress_part, &result);
	if (rc) {
		msg_progress_hide();
		if (rc != -EINTR && result.error[0])
			fprintf(stderr, "gannet: bench msg: %s\n", result.error);
		return rc;
	}
	rc = points_show(p, o, &result);
	p->run++;
	p->wall_seconds += 1e-9 * (double)(gn_now_ns() - began_ns);
	msg_progress_done();
	return rc;
}

static int run_points(struct points *p)
{
	int cpus[2], rc = 0;

	for (uint32_t i = 0; i < p->n; i++)
		p->left += !p->skip[i];
	bench_begin(cpus);
	msg_progress_begin(p->left);
	for (uint32_t i = 0; !rc && i < p->n; i++) {
		p->opts[i].load.cpus[0] = cpus[0];
		p->opts[i].load.cpus[1] = cpus[1];
		if (bench_stopped())
			rc = -EINTR;
		else if (!p->skip[i])
			rc = run_point(p, &p->opts[i]);
	}
	msg_progress_hide();
	if (rc == -EINTR || bench_stopped())
		return EXIT_INTERRUPTED;
	return rc ? EXIT_FAILURE : 0;
}

int msg_job_run(struct msg_job *job)
{
	struct points p = {.job = job, .n = sweep_points(&job->sweep)};
	int status = EXIT_FAILURE;

	p.opts = calloc(p.n, sizeof(*p.opts));
	p.skip = calloc(p.n, sizeof(*p.skip));
	if (!p.opts || !p.skip)
		fprintf(stderr, "gannet: no memory for %u points\n", p.n);
	else
		status = check_points(&p);
	if (!status)
		status = check_datagrams(&p);
	if (!status)
		status = open_file(&p);
	if (!status)
		status = run_points(&p);
	if (p.has_file)
		result_file_close(&p.file);
	free(p.opts);
	free(p.skip);
	return status;
}
