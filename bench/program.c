/* SPDX-License-Identifier: MIT */
/*
 * The program that runs on every node or as every process of a load: opens the fabric, gives each
 * of its servers and clients a thread, and takes everything down again.
 */
#include <errno.h>

#include "load.h"

struct task {
	struct load_proc *proc;
	struct load_client *client; /* NULL: it serves */
	uint32_t server;
	struct gn_thread *thread;
};

static void task_run(void *arg)
{
	struct task *t = arg;

	if (t->client) {
		t->proc->client_main(t->client);
		__atomic_add_fetch(&t->proc->run->gone, 1, __ATOMIC_RELEASE);
	} else {
		t->proc->kind->serve(t->proc, t->server);
	}
}

/* Servers begin first. What cannot be started fails the run, which ends the others. */
static void tasks_run(struct load_proc *proc, struct task *tasks, uint32_t n)
{
	uint32_t started = 0;

	if (n == 1) {
		task_run(&tasks[0]);
		return;
	}
	for (; started < n && !load_failed(proc->run); started++) {
		const char *name = tasks[started].client ? "client" : "server";
		const int rc =
			gn_thread_start(name, task_run, &tasks[started], &tasks[started].thread);

		if (load_check(proc->run, rc, "starting a thread"))
			break;
	}
	for (uint32_t i = started; i < n; i++)
		proc->run->gone += tasks[i].client != NULL;
	for (uint32_t i = 0; i < started; i++)
		gn_thread_join(tasks[i].thread);
}

static void tasks_make(struct load_proc *proc, struct task *tasks, uint8_t *clients)
{
	const size_t bytes = proc->kind->client_bytes;

	for (uint32_t i = 0; i < proc->n_servers; i++)
		tasks[i] = (struct task){.proc = proc, .server = proc->first_server + i};
	for (uint32_t i = 0; i < proc->n_clients; i++) {
		struct load_client *c = (struct load_client *)(void *)(clients + i * bytes);

		load_client_init(c, proc, proc->first_client + i);
		tasks[proc->n_servers + i] = (struct task){.proc = proc, .client = c};
	}
}

int load_program(struct gn_env *env, int argc, char **argv)
{
	struct load_proc *proc = env->arg;
	struct load_run *run = proc->run;
	const uint32_t n = proc->n_servers + proc->n_clients;
	struct task *tasks = gn_alloc(n * sizeof(*tasks), 0);
	uint8_t *clients = gn_alloc(proc->n_clients * proc->kind->client_bytes + 1, 64);
	int rc = tasks && clients ? 0 : -ENOMEM;

	(void)argc;
	(void)argv;
	load_check(run, rc, "allocating clients");
	if (!rc)
		rc = load_check(run, gn_fabric_open(env->fabric, &proc->fabric),
				"opening the fabric");
	if (!rc && run->opts.paper && (proc->n_clients || proc->kind->one_ctx))
		rc = load_check(run, gn_ctx_create(proc->fabric, &proc->ctx), "creating a context");
	if (!rc && proc->kind->proc_open)
		rc = proc->kind->proc_open(proc);
	if (!rc) {
		tasks_make(proc, tasks, clients);
		tasks_run(proc, tasks, n);
	} else {
		run->gone += proc->n_clients;
		for (uint32_t i = 0; i < proc->n_servers; i++)
			proc->listens(proc, proc->first_server + i, rc);
	}
	if (proc->state)
		proc->kind->proc_close(proc);
	gn_ctx_destroy(proc->ctx);
	if (proc->fabric && run->simulated)
		load_count_fabric(proc->fabric, &run->life);
	if (proc->fabric)
		load_check(run, gn_fabric_close(proc->fabric), "closing the fabric");
	gn_free(clients);
	gn_free(tasks);
	return load_failed(run) ? 1 : 0;
}
