/* SPDX-License-Identifier: MIT */
/*
 * Draws a plan from a seed: the size of the cluster, the links, the operations and the faults. Each
 * feature is often left out altogether, because some defects only show when it is missing.
 */
#include <stdio.h>
#include <string.h>

#include "model.h"

#define OPTIONAL_CAPS                                                            \
	(GN_CAP_UD | GN_CAP_ATOMICS | GN_CAP_ATOMIC_CPU | GN_CAP_INORDER_WRITE | \
	 GN_CAP_INORDER_128 | GN_CAP_WRITE_ORDER | GN_CAP_READ_HEAD_FIRST | GN_CAP_FOREIGN_REMOTE)

/* ---- faults ---- */

static size_t name_len(const char *text)
{
	return strcspn(text, "=@, \t");
}

static const char *next_name(const char *text)
{
	text += strcspn(text, ", \t");
	return text + strspn(text, ", \t");
}

static bool list_names(const char *list, const char *kind)
{
	for (list += strspn(list, ", \t"); *list; list = next_name(list))
		if (name_len(list) == strlen(kind) && !memcmp(list, kind, strlen(kind)))
			return true;
	return false;
}

bool plan_fault(const struct fuzz_run *run, const char *kind)
{
	return list_names(run->plan.faults, kind);
}

bool plan_ends_programs(const struct fuzz_run *run)
{
	return plan_fault(run, "crash") || plan_fault(run, "kill");
}

bool fuzz_faults_known(const char *list, const char **bad, size_t *bad_len)
{
	for (list += strspn(list, ", \t"); *list; list = next_name(list)) {
		const char *name;
		unsigned i = 0;

		*bad = list;
		*bad_len = name_len(list);
		while ((name = gn_sim_fault_name(i)) &&
		       (strlen(name) != *bad_len || memcmp(name, list, *bad_len)))
			i++;
		if (!name)
			return false;
	}
	return true;
}

static bool is_one_of(const char *kind, const char *const *list)
{
	while (*list && strcmp(kind, *list))
		list++;
	return *list;
}

/*
 * Faults of nodes are counted in milliseconds, and a run has some ten of them. Faults that end a
 * connection are rare, so that there is something to check before.
 */
static void draw_fault_rate(struct rng *rng, const char *kind, bool node, char *to, size_t size)
{
	static const char *const rare[] = {"qp-error", "rnr", "alloc", "register", NULL};
	const uint32_t ppm = node		   ? rng_range(rng, 5000, 100000) :
			     is_one_of(kind, rare) ? rng_range(rng, 200, 10000) :
						     rng_range(rng, 1000, 200000);

	snprintf(to, size, "%s=%uppm", kind, ppm);
}

/* At a time: at one of the two nodes that every seed has, for a while. */
static void draw_fault_schedule(struct rng *rng, const char *kind, char *to, size_t size)
{
	const bool slow = !strncmp(kind, "slow-", strlen("slow-"));
	const unsigned node = rng_below(rng, 2);
	const uint32_t at_us = rng_below(rng, 3000), longer = rng_one_in(rng, 12) ? 500 : 1;
	const uint32_t for_us = rng_range(rng, 20, 4000) * longer; /* up to 2 s */
	const bool one_way = rng_one_in(rng, 2);
	const uint32_t amount = rng_range(rng, 1, 1000);

	if (!strcmp(kind, "drift")) /* permanent */
		snprintf(to, size, "%s@%uus:n%u:%s%uppm", kind, at_us, node, one_way ? "-" : "",
			 amount);
	else if (slow)
		snprintf(to, size, "%s@%uus+%uus:n%u:%ux", kind, at_us, for_us, node,
			 2 + amount % 30);
	else
		snprintf(to, size, "%s@%uus+%uus:n%u%s", kind, at_us, for_us, node,
			 one_way && !strcmp(kind, "partition") ? ">" : "");
}

static void draw_faults(struct fuzz_run *run, struct rng *rng)
{
	static const char *const of_nodes[] = {"crash",	    "kill",	  "pause",
					       "slow-node", "slow-link",  "partition",
					       "drift",	    "low-memory", NULL};
	const bool none = rng_one_in(rng, 8);
	char *text = run->plan.faults;
	size_t len = 0;
	const char *kind;

	*text = '\0';
	for (unsigned i = 0; (kind = gn_sim_fault_name(i)); i++) {
		const bool chosen = rng_one_in(rng, 3) && !none;
		const bool node = is_one_of(kind, of_nodes);
		char fault[64];

		if (node && rng_one_in(rng, 2))
			draw_fault_schedule(rng, kind, fault, sizeof(fault));
		else
			draw_fault_rate(rng, kind, node, fault, sizeof(fault));
		if (!chosen ||
		    (run->opts->only_faults && !list_names(run->opts->only_faults, kind)))
			continue;
		len += (size_t)snprintf(text + len, sizeof(run->plan.faults) - len, "%s%s",
					len ? "," : "", fault);
	}
}

static void plan_set_fault_effects(struct fuzz_run *run)
{
	run->breaks = plan_fault(run, "qp-error") || plan_ends_programs(run) ||
		      plan_fault(run, "partition") || plan_fault(run, "rnr");
	run->no_memory = plan_fault(run, "alloc") || plan_fault(run, "register");
	run->stalls = plan_fault(run, "pause") || plan_fault(run, "slow-node") ||
		      plan_fault(run, "drift");
}

/* ---- the cluster ---- */

static void draw_profile(struct plan *plan, struct rng *rng)
{
	unsigned n = 0;

	while (gn_sim_profile_name(n))
		n++;
	snprintf(plan->profile, sizeof(plan->profile), "%s",
		 gn_sim_profile_name(rng_below(rng, n)));
}

static uint64_t draw_caps_off(struct rng *rng)
{
	const uint64_t some = rng_next(rng) & OPTIONAL_CAPS;

	switch (rng_below(rng, 3)) {
	case 0:
		return 0;
	case 1:
		return OPTIONAL_CAPS;
	default:
		return some;
	}
}

/* Each draw is a statement of its own, so that no compiler chooses the order. */
static void draw_worker(struct plan_worker *worker, unsigned proc, struct rng *rng)
{
	worker->proc = proc;
	worker->steps = rng_range(rng, 50, 250);
	worker->datagrams = rng_one_in(rng, 2);
	worker->hostile = rng_one_in(rng, 4);
}

static void draw_programs(struct plan *plan, struct rng *rng)
{
	plan->n_nodes = rng_range(rng, 2, NODES_MAX);
	for (unsigned node = 0; node < plan->n_nodes; node++) {
		unsigned n = rng_one_in(rng, 6) ? 2 : 1;

		for (; n > 0 && plan->n_procs < PROCS_MAX; n--) {
			struct plan_proc *proc = &plan->proc[plan->n_procs];

			proc->node = node;
			proc->first_worker = plan->n_workers;
			proc->n_workers = rng_one_in(rng, 2) ? 1 : 2;
			proc->shared = rng_one_in(rng, 3);
			for (unsigned i = 0; i < proc->n_workers; i++)
				draw_worker(&plan->worker[plan->n_workers++], plan->n_procs, rng);
			plan->n_procs++;
		}
	}
}

static void draw_link(struct plan *plan, struct plan_link *link, struct rng *rng)
{
	static const uint32_t lens[] = {64, 256, 256, 1024, 1024, 4096, LEN_MAX};

	do { /* of two processes, which may be on one node */
		link->client = rng_below(rng, plan->n_workers);
		link->server = rng_below(rng, plan->n_workers);
	} while (plan->worker[link->client].proc == plan->worker[link->server].proc);
	link->max_len = lens[rng_below(rng, sizeof(lens) / sizeof(lens[0]))];
	link->window = rng_range(rng, 4, 20);
	link->recvs = rng_range(rng, 2, 16);
	for (unsigned op = 0; op <= GN_OP_FAA; op++)
		link->weight[op] = rng_one_in(rng, 4) ? 0 : rng_range(rng, 1, 8);
	link->weight[GN_OP_WRITE] += link->weight[GN_OP_WRITE] ? 8 : 0;
	link->weight[GN_OP_READ] += 4; /* READs check everything else */
	link->signal_one_in = rng_range(rng, 1, 6);
	link->few_recvs = rng_one_in(rng, 4);
	link->hostile = rng_one_in(rng, 4);
	link->close_one_in = rng_one_in(rng, 2) ? 60 : 400;
	link->conn.size = sizeof(link->conn);
	link->conn.rnr_retry = rng_one_in(rng, 8) ? GN_RNR_NONE : rng_range(rng, 1, 6);
	link->conn.rnr_timer_us = rng_one_in(rng, 4) ? rng_range(rng, 10, 100) : 640;
	link->conn.timeout_us = rng_range(rng, 2000, 20000);
}

void plan_draw(struct fuzz_run *run)
{
	struct rng rng = {.state = rng_mix(run->opts->seed + 0x73776172)};
	struct plan *plan = &run->plan;

	draw_profile(plan, &rng);
	if (run->opts->profile)
		snprintf(plan->profile, sizeof(plan->profile), "%s", run->opts->profile);
	plan->caps_off = draw_caps_off(&rng);
	plan->ud_len = 64u << 2 * rng_below(&rng, 4);
	draw_programs(plan, &rng);
	plan->n_links = rng_range(
		&rng, 1, LINKS_MAX < plan->n_workers + 2 ? LINKS_MAX : plan->n_workers + 2);
	for (unsigned i = 0; i < plan->n_links; i++)
		draw_link(plan, &plan->link[i], &rng);
	draw_faults(run, &rng);
	if (run->opts->faults)
		snprintf(plan->faults, sizeof(plan->faults), "%s", run->opts->faults);
	plan_set_fault_effects(run);
}

void plan_print(const struct fuzz_run *run)
{
	const struct plan *plan = &run->plan;

	fprintf(stderr,
		"seed %llu: profile %s, %u nodes, %u processes, %u workers, caps off %llx\n"
		"seed %llu: faults %s\n",
		(unsigned long long)run->opts->seed, plan->profile, plan->n_nodes, plan->n_procs,
		plan->n_workers, (unsigned long long)plan->caps_off,
		(unsigned long long)run->opts->seed, *plan->faults ? plan->faults : "none");
	for (unsigned i = 0; i < plan->n_links; i++) {
		const struct plan_link *link = &plan->link[i];

		fprintf(stderr,
			"seed %llu: link %u: n%u worker %u to n%u worker %u, up to %u bytes, "
			"window %u, %u receives%s%s\n",
			(unsigned long long)run->opts->seed, i,
			plan->proc[plan->worker[link->client].proc].node, link->client,
			plan->proc[plan->worker[link->server].proc].node, link->server,
			link->max_len, link->window, link->recvs,
			link->few_recvs ? ", few receives" : "", link->hostile ? ", hostile" : "");
	}
}
