/* SPDX-License-Identifier: MIT */
/*
 * Simulated processes: start, end, and everything freed at the end: threads, fabric objects, heap.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/list.h"
#include "sim/nodes.h"

#define PROCS_MAX 65536u

/* ---- hooks ---- */

void sim_hook_add(struct sim_proc *proc, struct sim_hook *hook)
{
	list_push(&proc->hooks, hook);
}

void sim_hook_del(struct sim_hook *hook)
{
	list_remove(hook);
}

/* ---- end ---- */

static void proc_report_leaks(const struct sim_proc *proc, uint64_t bytes, uint64_t leaks)
{
	gn_log(GN_LOG_WARN, "sim: process %u on %s left %llu allocations, %llu bytes", proc->number,
	       proc->node->name, (unsigned long long)leaks, (unsigned long long)bytes);
}

/* Frees everything of the process, in whatever state. */
static void proc_clear(struct sim_proc *proc)
{
	struct gn_sim *sim = proc->sim;
	struct sim_proc *before = sim_act_for(sim, proc);
	const uint64_t bytes = proc->block_bytes;
	uint64_t leaks;

	while (proc->threads)
		sim_thread_destroy(proc->threads);
	sim_event_cancel(&sim->engine, &proc->words);
	while (proc->hooks) {
		struct sim_hook *hook = proc->hooks;

		sim_hook_del(hook);
		hook->fn(hook);
	}
	while (proc->fibers)
		gn_fiber_destroy(proc->fibers);
	leaks = sim_heap_release(proc);
	if (leaks && !proc->killed) {
		sim->leaks += leaks;
		proc_report_leaks(proc, bytes, leaks);
	}
	sim_act_for(sim, before);
}

static void proc_end(struct sim_proc *proc)
{
	proc_clear(proc);
	proc->down = false;
	proc->ended = true;
	proc->sim->n_live--;
}

static void proc_end_event(struct sim_event *event)
{
	proc_end(container_of(event, struct sim_proc, end));
}

/* None of its threads runs from here on. */
static void proc_begin_end(struct sim_proc *proc, int status, bool killed)
{
	proc->ending = true;
	proc->killed = killed;
	proc->status = status;
	sim_event_now(&proc->sim->engine, &proc->end);
}

/* The same from inside an event, at once. */
static void proc_end_killed(struct sim_proc *proc)
{
	proc_begin_end(proc, GN_SIM_KILLED, true);
	sim_event_cancel(&proc->sim->engine, &proc->end);
	proc_end(proc);
}

static void proc_main_thread(void *arg)
{
	struct sim_proc *proc = arg;
	struct sim_thread *self = proc->sim->thread;
	int status = proc->program(&proc->env, proc->argc, proc->argv);

	sim_slots_end(self);
	proc_begin_end(proc, status, false);
	sim_park(self, SIM_NEVER, "the end of its process");
}

static struct sim_proc *proc_find(const struct gn_sim *sim, unsigned number)
{
	if (sim_check_home(sim))
		return NULL;
	if (number < sim->n_procs)
		return sim->procs[number];
	gn_fail_log(0, "sim: process %u is not there: %u were spawned", number, sim->n_procs);
	return NULL;
}

int gn_sim_kill(struct gn_sim *sim, unsigned process)
{
	struct sim_proc *proc = proc_find(sim, process);
	struct sim_thread *self;
	struct sim_entry before;

	if (!proc)
		return -EINVAL;
	if (proc->ending)
		return gn_fail(-ESRCH, "gn_sim_kill(): process %u has ended, or is ending",
			       process);
	self = sim->thread;
	/* its stack is about to be freed: leave that to the engine */
	if (self && self->proc == proc) {
		proc_begin_end(proc, GN_SIM_KILLED, true);
		sim_park(self, SIM_NEVER, "the end of its process");
	}
	before = sim_enter(sim);
	sim->thread = NULL; /* act as the engine */
	proc_end_killed(proc);
	sim->thread = self;
	sim_leave(before);
	return 0;
}

int gn_sim_status(const struct gn_sim *sim, unsigned process, int *out)
{
	const struct sim_proc *proc = proc_find(sim, process);

	if (!proc)
		return -EINVAL;
	if (!out)
		return gn_fail(-EINVAL, "gn_sim_status(): out is NULL");
	if (!proc->ended)
		return gn_fail_text(-EAGAIN, "gn_sim_status(): the process has not ended");
	*out = proc->status;
	return 0;
}

/* ---- start ---- */

static void free_argv(char **argv)
{
	for (int i = 0; argv && argv[i]; i++)
		free(argv[i]);
	free(argv);
}

static int copy_argv(int argc, char **argv, char ***out)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	if (!copy)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	for (int i = 0; i < argc; i++) {
		copy[i] = strdup(argv[i]);
		if (!copy[i]) {
			free_argv(copy);
			return gn_fail_text(-ENOMEM, NO_MEMORY);
		}
	}
	*out = copy;
	return 0;
}

/* Starts the program with its own copy of the arguments, which it may change (getopt()). */
static int proc_start(struct sim_proc *proc)
{
	struct sim_thread *thread;
	int rc;

	free_argv(proc->argv);
	proc->argv = NULL;
	rc = copy_argv(proc->argc, proc->args, &proc->argv);
	if (rc)
		return rc;
	return sim_thread_create(proc, "main", proc_main_thread, proc, &thread);
}

static int proc_check_spawn(const struct gn_sim *sim, unsigned node, gn_node_main *program,
			    int argc, char **argv)
{
	if (sim_check_home(sim))
		return -EINVAL;
	if (!program)
		return gn_fail(-EINVAL, "gn_sim_spawn(): program is NULL");
	if (node >= sim->n_nodes)
		return gn_fail_log(-EINVAL, "sim: node %u is not there: nodes is %u", node,
				   sim->n_nodes);
	if (sim->nodes[node].crashed)
		return gn_fail_log(-EHOSTDOWN, "sim: node %u has crashed and is down", node);
	if (argc < 0 || (argc && !argv))
		return gn_fail_log(-EINVAL, "sim: argc %d %s", argc,
				   argc < 0 ? "is negative" : "without argv");
	if (sim->n_procs == PROCS_MAX)
		return gn_fail_log(-EAGAIN, "sim: more than %u processes", PROCS_MAX);
	return 0;
}

static int proc_add(struct gn_sim *sim, struct sim_proc *proc)
{
	struct sim_proc **procs = reallocarray(sim->procs, sim->n_procs + 1, sizeof(*sim->procs));

	if (!procs)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	sim->procs = procs;
	proc->number = sim->n_procs++;
	sim->procs[proc->number] = proc;
	sim->n_live++;
	return 0;
}

static void proc_free(struct sim_proc *proc)
{
	free_argv(proc->args);
	free_argv(proc->argv);
	free(proc);
}

int gn_sim_spawn(struct gn_sim *sim, unsigned node, gn_node_main *program, int argc, char **argv,
		 void *arg, unsigned *out)
{
	struct sim_proc *proc;
	int rc = proc_check_spawn(sim, node, program, argc, argv);

	if (rc)
		return rc;
	proc = calloc(1, sizeof(*proc));
	if (!proc)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	proc->sim = sim;
	proc->node = &sim->nodes[node];
	proc->program = program;
	proc->env =
		(struct gn_env){.fabric = proc->node->fabric, .node = proc->node->name, .arg = arg};
	proc->argc = argc;
	rc = copy_argv(argc, argv, &proc->args);
	if (rc)
		goto proc_free;
	rc = sim_event_init(&sim->engine, &proc->end, proc_end_event, SIM_KIND_PROC, sim->n_procs);
	if (rc)
		goto proc_free;
	rc = sim_event_init(&sim->engine, &proc->words, sim_words_due, SIM_KIND_PROC, sim->n_procs);
	if (rc)
		goto fini_end;
	rc = proc_start(proc);
	if (rc)
		goto fini_words;
	rc = proc_add(sim, proc);
	if (rc)
		goto destroy_thread;
	if (out)
		*out = proc->number;
	return 0;

destroy_thread:
	sim_thread_destroy(proc->threads);
fini_words:
	sim_event_fini(&sim->engine, &proc->words);
fini_end:
	sim_event_fini(&sim->engine, &proc->end);
proc_free:
	proc_free(proc);
	return rc;
}

/* ---- crash and restart of the node ---- */

void sim_proc_crash(struct sim_proc *proc, bool restarts)
{
	if (proc->ending) /* it has returned, or was killed: that status stays */
		return;
	if (!restarts) {
		proc_end_killed(proc);
		return;
	}
	proc->killed = true;
	proc_clear(proc);
	proc->down = true;
}

void sim_proc_restart(struct sim_proc *proc)
{
	int rc;

	proc->down = false;
	proc->killed = false;
	memset(proc->slot, 0, sizeof(proc->slot)); /* these were in its heap */
	rc = proc_start(proc);
	if (rc) {
		gn_log(GN_LOG_ERROR, "sim: process %u on %s cannot start again: %s", proc->number,
		       proc->node->name, gn_strerror(rc));
		proc_end_killed(proc);
	}
}

void sim_proc_destroy(struct sim_proc *proc)
{
	if (!proc->ended) {
		proc->ending = proc->killed = true;
		proc_end(proc);
	}
	sim_event_fini(&proc->sim->engine, &proc->words);
	sim_event_fini(&proc->sim->engine, &proc->end);
	proc_free(proc);
}
