/* SPDX-License-Identifier: MIT */
/* The cluster: options, nodes, the run, and reports of failed runs. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/fail.h"
#include "base/sized.h"
#include "sim/nodes.h"

/* The only mutable static of the simulator. initial-exec as in base/exec.c: one instruction. */
static _Thread_local struct gn_sim *current __attribute__((tls_model("initial-exec")));

struct gn_sim *sim_current(void)
{
	return current;
}

int sim_check_home(const struct gn_sim *sim)
{
	if (sim && sim->home == &current)
		return 0;
	return gn_fail_log(-EINVAL, "sim: %s",
			   sim ? "used by another OS thread than it belongs to" : "it is NULL");
}

struct sim_entry sim_enter(struct gn_sim *sim)
{
	struct sim_entry before = {.sim = current, .ops = exec_install(&exec_sim)};

	current = sim;
	return before;
}

void sim_leave(struct sim_entry before)
{
	current = before.sim;
	exec_install(before.ops);
}

/* ---- create, destroy ---- */

static const sig_atomic_t sim_never_interrupted;

static int sim_check_opts(const struct gn_sim_opts *opts)
{
	if (opts->nodes < 1 || opts->nodes > GN_SIM_NODES_MAX)
		return gn_fail_log(-EINVAL, "sim: nodes %u is not within 1 to %u", opts->nodes,
				   GN_SIM_NODES_MAX);
	if (opts->stack_bytes && opts->stack_bytes < GN_FIBER_STACK_MIN)
		return gn_fail_log(-EINVAL, "sim: stack_bytes %zu is below %u", opts->stack_bytes,
				   GN_FIBER_STACK_MIN);
	if (opts->limit_ns > SIM_NS_MAX)
		return gn_fail_log(-EINVAL, "sim: limit_ns %llu is above %llu",
				   (unsigned long long)opts->limit_ns,
				   (unsigned long long)SIM_NS_MAX);
	return 0;
}

static void sim_destroy_nodes(struct gn_sim *sim)
{
	for (unsigned i = 0; i < sim->n_nodes; i++) {
		struct sim_node *node = &sim->nodes[i];

		if (node->nic)
			node->nic_free(node->nic);
		sim_device_fini(&node->device);
		sim_cpu_fini(&node->cpu);
	}
	free(sim->nodes);
}

static int sim_create_nodes(struct gn_sim *sim, unsigned n)
{
	sim->nodes = calloc(n, sizeof(*sim->nodes));
	if (!sim->nodes)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	for (unsigned i = 0; i < n; i++) {
		struct sim_node *node = &sim->nodes[i];
		int rc;

		node->sim = sim;
		node->index = i;
		snprintf(node->name, sizeof(node->name), "n%u", i);
		snprintf(node->fabric, sizeof(node->fabric), "sim:n%u", i);
		rc = sim_device_init(&node->device, &sim->engine, &sim->profile);
		if (!rc)
			rc = sim_cpu_init(&node->cpu, &sim->profile);
		sim->n_nodes++; /* sim_destroy() frees this one, too */
		if (rc) {
			sim_destroy_nodes(sim);
			return rc;
		}
	}
	return 0;
}

int gn_sim_create(const struct gn_sim_opts *given, struct gn_sim **out)
{
	struct gn_sim_opts own = {.size = sizeof(own)}, *opts = &own;
	struct gn_sim *sim;
	int rc;

	if (!given || !out)
		return gn_fail(-EINVAL, "gn_sim_create(): opts is NULL, or out is NULL");
	rc = SIZED_READ(opts, given, "gn_sim_opts");
	if (!rc)
		rc = sim_check_opts(opts);
	if (rc)
		return rc;
	sim = calloc(1, sizeof(*sim));
	if (!sim)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	rc = sim_profile_load(opts->profile ? opts->profile : "ideal", &sim->profile);
	if (rc)
		goto free_sim;
	rc = gn_fiber_adopt(&sim->scheduler);
	if (rc)
		goto free_sim;
	sim_engine_init(&sim->engine, opts->seed,
			opts->limit_ns ? sim_ns_to_ps(opts->limit_ns) : SIM_NEVER);
	rc = sim_create_nodes(sim, opts->nodes);
	if (rc)
		goto destroy_scheduler;
	sim->caps_off = opts->caps_off;
	sim->interrupted = opts->interrupted ? opts->interrupted : &sim_never_interrupted;
	sim->stack_bytes = opts->stack_bytes ? opts->stack_bytes : GN_SIM_STACK_DEFAULT;
	sim->home = &current;
	rc = opts->faults ? gn_sim_inject(sim, opts->faults) : 0;
	if (rc) {
		gn_sim_destroy(sim);
		return rc;
	}
	*out = sim;
	return 0;

destroy_scheduler:
	gn_fiber_destroy(sim->scheduler);
free_sim:
	free(sim);
	return rc;
}

void gn_sim_destroy(struct gn_sim *sim)
{
	struct sim_entry before;

	if (!sim || sim_check_home(sim))
		return;
	if (sim->running) {
		gn_fail_log(0, "sim: destroyed while it runs; it is left alone");
		return;
	}
	before = sim_enter(sim);
	for (unsigned i = 0; i < sim->n_procs; i++)
		sim_proc_destroy(sim->procs[i]);
	sim_leave(before);
	sim_faults_fini(sim);
	sim_destroy_nodes(sim);
	sim_engine_fini(&sim->engine);
	gn_fiber_destroy(sim->scheduler);
	free(sim->procs);
	free(sim);
}

/* ---- run ---- */

static void sim_report_thread(const struct sim_thread *thread, enum gn_log_level level)
{
	const struct sim_node *node = thread->proc->node;
	char of[64] = "", until[64] = "", paused[64] = "";

	if (thread->done)
		return;
	if (thread->reason_id)
		snprintf(of, sizeof(of), " (thread %llu)", (unsigned long long)thread->reason_id);
	if (thread->reason && thread->until_ps != SIM_NEVER)
		snprintf(until, sizeof(until), ", until %llu ns",
			 (unsigned long long)(thread->until_ps / SIM_PS_PER_NS));
	if (node->paused_until_ps > node->sim->engine.now_ps)
		snprintf(paused, sizeof(paused), "; its node is paused until %llu ns",
			 (unsigned long long)(node->paused_until_ps / SIM_PS_PER_NS));
	gn_log(level, "sim: %s process %u thread %llu '%s' waits for %s%s%s%s", node->name,
	       thread->proc->number, (unsigned long long)thread->id, thread->name,
	       thread->reason ? thread->reason : "its turn", of, until, paused);
}

static void sim_report_threads(const struct gn_sim *sim, enum gn_log_level level)
{
	for (unsigned i = 0; i < sim->n_procs; i++) {
		const struct sim_proc *proc = sim->procs[i];

		if (proc->down)
			gn_log(level, "sim: %s process %u waits for its node, down until %llu ns",
			       proc->node->name, proc->number,
			       (unsigned long long)(proc->node->up_ps / SIM_PS_PER_NS));
		for (struct sim_thread *t = proc->threads; t; t = t->next)
			sim_report_thread(t, level);
	}
}

void sim_give_up(struct gn_sim *sim, int rc)
{
	sim->stop = rc;
	sim_park(sim->thread, sim->engine.now_ps, "the run to be taken up again");
}

static int sim_run_events(struct gn_sim *sim)
{
	struct sim_engine *engine = &sim->engine;

	while (sim->n_live > 0 && !sim->stop) {
		if (*sim->interrupted)
			return gn_fail(-EINTR, "sim: interrupted");
		int rc = sim_only_idle(sim) ? -ENOENT : sim_engine_step(engine);

		if (rc == -ETIMEDOUT)
			return rc;
		if (rc)
			return gn_fail_log(-EDEADLK,
					   "sim: deadlock at %llu ns: nothing can run any more",
					   (unsigned long long)gn_sim_now_ns(sim));
		if (engine->taken_instant > SIM_INSTANT_MAX) {
			engine->taken_instant = 0;
			return gn_fail_log(-EDEADLK, "sim: time stands still at %llu ns: %u events",
					   (unsigned long long)gn_sim_now_ns(sim), SIM_INSTANT_MAX);
		}
	}
	return sim->stop;
}

int gn_sim_run(struct gn_sim *sim)
{
	struct sim_entry before;
	int rc;

	rc = sim_check_home(sim);
	if (rc)
		return rc;
	if (current)
		return gn_fail_log(-EBUSY, "sim: a run inside of a run");
	sim->running = true;
	sim->stop = 0;
	sim->error.text[0] = '\0';
	before = sim_enter(sim);
	rc = sim_run_events(sim);
	if (rc == -EDEADLK)
		sim_report_threads(sim, GN_LOG_ERROR);
	if (rc == -ETIMEDOUT) {
		gn_fail(rc, "sim: limit_ns %llu reached with %u processes running",
			(unsigned long long)(sim->engine.limit_ps / SIM_PS_PER_NS), sim->n_live);
		gn_log(GN_LOG_WARN, "%s", gn_error());
		sim_report_threads(sim, GN_LOG_INFO);
	}
	sim_leave(before);
	sim->running = false;
	if (!rc)
		return 0;
	/* gn_error() inside the simulation is separate: copy its text to the caller's. */
	return gn_fail(rc, "%s",
		       *sim->error.text ? sim->error.text : "sim: a process gave up the run");
}

/* ---- results ---- */

uint64_t gn_sim_now_ns(const struct gn_sim *sim)
{
	return sim->engine.now_ps / SIM_PS_PER_NS;
}

uint64_t gn_sim_trace_hash(const struct gn_sim *sim)
{
	return sim_mix(sim->engine.hash);
}

uint64_t gn_sim_events(const struct gn_sim *sim)
{
	return sim->engine.taken;
}

uint64_t gn_sim_leaks(const struct gn_sim *sim)
{
	return sim->leaks;
}

int gn_sim_node_stats(const struct gn_sim *sim, unsigned node, struct gn_sim_stats *out)
{
	struct gn_sim_stats stats = {.size = sizeof(stats)};

	if (!sim || node >= sim->n_nodes)
		return gn_fail(
			-EINVAL,
			"gn_sim_node_stats(): sim is NULL, or it has no node of this number");
	stats = (struct gn_sim_stats){.size = sizeof(struct gn_sim_stats),
				      .cpu_busy_ns = sim->nodes[node].cpu.busy_ps / SIM_PS_PER_NS};
	sim_device_stats(&sim->nodes[node].device, &stats);
	return SIZED_WRITE(out, &stats, "gn_sim_stats");
}
