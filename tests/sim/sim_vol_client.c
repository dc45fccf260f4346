/* SPDX-License-Identifier: MIT */
/*
 * A client: creates a volume, lets its threads use it until the faults are over, and then checks
 * that the volume has repaired itself, that its copies are equal and as the model says, and that
 * nothing of it is left at the donors after its end.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "sim_vol.h"

#define LIVES_MAX     8u /* with many crashes it begins again and again */
#define CREATES_MAX   400u
#define CREATE_US     200000u
#define MEMORY_US     1000u
#define LOOK_US	      500u
#define REPAIR_US     20000000u
#define LIST_US	      1000000u
#define LEFT_US	      5000000u
#define ROOM_LARGE    (GN_VOL_BYTES_MAX / SECTOR)
#define ROOM_SMALL    (GN_VOL_BYTES_MAX / 16 / SECTOR)
#define THREAD_ROOM   (ROOM_LARGE + (DEPTH_MAX - 1) * ROOM_SMALL)
#define DECIDE_US_MAX 3000u
#define ROUNDS_MAX    8u

/* ---- the authority ---- */

static int decide(void *arg, const struct gn_vol_copy *copy, bool lose)
{
	const struct client_arg *a = arg;
	struct world *w = a->w;
	struct client_world *cw = &w->clients[a->index];
	unsigned donor = 0;
	bool refuses;

	cw->deciding++;
	gn_sleep_us(gn_random() % DECIDE_US_MAX);
	refuses = w->plan.authority == 2 && gn_random() % 3 == 0;
	cw->deciding--;
	w->sums.refused += refuses;
	world_log(w, "authority: %s copy of extent %llu on %s, slab %llu%s", lose ? "lose" : "add",
		  (unsigned long long)copy->extent, copy->donor, (unsigned long long)copy->slab,
		  refuses ? ": refused" : "");
	if (sscanf(copy->donor, "sim:n%u:", &donor) != 1 || donor >= w->plan.n_donors)
		world_fail(w, "the authority is asked about %s", copy->donor);
	else if (lose && w->plan.careful && !*w->plan.cluster.faults && !w->donors[donor].faulted)
		world_fail(w, "a copy on a donor that always worked is given up");
	return refuses ? -EAGAIN : 0;
}

static int lose_copy(void *arg, const struct gn_vol_copy *copy)
{
	return decide(arg, copy, true);
}

static int add_copy(void *arg, const struct gn_vol_copy *copy)
{
	return decide(arg, copy, false);
}

/* ---- the backup ---- */

static int backup_access(void *arg, void *to, const void *from, size_t len_bytes, uint64_t offset)
{
	const struct client_arg *a = arg;
	struct world *w = a->w;
	uint8_t *at = w->clients[a->index].backup + offset;

	gn_sleep_us(gn_random() % 200);
	if (offset % GN_VOL_BLOCK || len_bytes % GN_VOL_BLOCK || !len_bytes ||
	    offset + len_bytes > w->plan.bytes) {
		world_fail(w, "the backup is asked for %zu bytes at %llu", len_bytes,
			   (unsigned long long)offset);
		return -EINVAL;
	}
	world_log(w, "backup: %s %zu bytes at sector %llu", to ? "READ" : "WRITE", len_bytes,
		  (unsigned long long)offset / SECTOR);
	w->sums.backup_reads += to != NULL;
	memcpy(to ? to : at, to ? at : from, len_bytes);
	return 0;
}

static int backup_read(void *arg, void *buf, size_t len_bytes, uint64_t offset)
{
	return backup_access(arg, buf, NULL, len_bytes, offset);
}

static int backup_write(void *arg, const void *buf, size_t len_bytes, uint64_t offset)
{
	return backup_access(arg, NULL, buf, len_bytes, offset);
}

static int backup_sync(void *arg)
{
	(void)arg;
	gn_sleep_us(gn_random() % 1000);
	return 0;
}

/* ---- create ---- */

static int client_try(struct client *c, const struct client_arg *arg)
{
	const struct plan *plan = &c->w->plan;
	char addr[DONORS_MAX][24], owner[16];
	const char *donors[DONORS_MAX];
	const struct gn_vol_authority authority = {lose_copy, add_copy, (void *)arg};
	const struct gn_vol_backup backup = {backup_read, backup_write, backup_sync, (void *)arg,
					     1u << 20};
	struct gn_io_opts io = plan->io;
	const struct gn_vol_opts opts = {
		.size = sizeof(opts),
		.bytes = plan->bytes,
		.donors = donors,
		.n_donors = plan->n_donors,
		.copies = plan->copies,
		.verify = plan->verify,
		.headroom = plan->headroom,
		.repair_share = plan->repair_share,
		.detect_us = plan->detect_us,
		.lost_us = plan->lost_us,
		.owner = owner,
		.io = &io,
		.authority = plan->authority ? &authority : NULL,
		.backup = plan->backup ? &backup : NULL,
		.timeout_us = CREATE_US,
	};

	io.size = sizeof(io);
	snprintf(owner, sizeof(owner), "c%u", c->index);
	for (unsigned i = 0; i < plan->n_donors; i++) {
		snprintf(addr[i], sizeof(addr[i]), "sim:n%u:9", i);
		donors[i] = addr[i];
	}
	return gn_vol_create(c->fabric, &opts, &c->vol);
}

static int client_create(struct client *c, const struct client_arg *arg)
{
	struct world *w = c->w;
	struct client_world *cw = &w->clients[c->index];
	int rc = -EAGAIN;

	if (w->plan.backup)
		memset(cw->backup, 0xbb, w->plan.bytes);
	for (unsigned i = 0; rc && i < CREATES_MAX && !*w->run.failure; i++) {
		rc = client_try(c, arg);
		w->active_ns = gn_sim_now_ns(w->run.sim);
		world_log(w, "client %u: create: %s (%s)", c->index, gn_strerror(rc),
			  rc ? gn_error() : "");
		if (rc && rc != -ENOSPC && rc != -ETIMEDOUT && rc != -ECONNREFUSED &&
		    rc != -ECONNRESET && rc != -ESHUTDOWN && rc != -ESTALE &&
		    !((rc == -ENOMEM || rc == -EDQUOT || rc == -EBUSY) &&
		      w->plan.cluster.no_memory))
			world_fail(w, "no volume: %s: %s", gn_strerror(rc), gn_error());
		if (rc)
			gn_sleep_us(MEMORY_US * (1 + gn_random() % 20));
	}
	if (rc)
		return rc;
	w->sums.created++;
	model_reset(&cw->model, w->plan.bytes);
	cw->deciding = 0;
	cw->crashes = node_crashes(w, w->plan.n_donors + c->index);
	cw->vol = c->vol;
	return 0;
}

/* ---- threads ---- */

static void client_threads(struct client *c, struct thread *threads)
{
	const unsigned n = c->w->plan.n_threads;
	unsigned started = 0;

	for (; started < n; started++)
		if (gn_thread_start("vol-user", thread_main, &threads[started],
				    &c->threads[started]))
			break;
	for (unsigned i = 0; i < started; i++)
		gn_thread_join(c->threads[i]);
}

static void threads_init(struct client *c, struct thread *threads)
{
	for (unsigned i = 0; i < THREADS_MAX; i++) {
		uint8_t *at = c->bytes + (size_t)i * THREAD_ROOM * SECTOR;

		threads[i] = (struct thread){.c = c,
					     .index = i,
					     .steps = c->w->plan.steps,
					     .blocking = gn_random() % 3 == 0};
		for (unsigned k = 0; k < DEPTH_MAX; k++) {
			struct op *op = &threads[i].op[k];

			op->slot = i * DEPTH_MAX + k;
			op->room = k ? ROOM_SMALL : ROOM_LARGE;
			op->bytes = at;
			at += (size_t)op->room * SECTOR;
		}
	}
}

/* ---- the end ---- */

/* Reads everything: at once, and block by block where something is lost. */
static void final_read(struct thread *t)
{
	struct world *w = t->c->w;
	const unsigned all = (unsigned)(w->plan.bytes / SECTOR);

	for (unsigned at = 0; at < all && !*w->run.failure; at += ROOM_LARGE) {
		const unsigned n = all - at < ROOM_LARGE ? all - at : ROOM_LARGE;

		if (!thread_run(t, &t->op[0], GN_VOL_READ, at, n))
			continue;
		for (unsigned b = at; b < at + n && !*w->run.failure; b += BLOCK_SECTORS)
			if (thread_run(t, &t->op[0], GN_VOL_READ, b, BLOCK_SECTORS) == -EIO)
				w->sums.lost_blocks++;
	}
}

/*
 * False: an extent has too few copies, and the status says so: a connection that broke before the
 * end of the faults was noticed only now.
 */
static bool final_stats(struct client *c)
{
	struct world *w = c->w;
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	const int rc = gn_vol_query(c->vol, &stats);

	if (rc)
		world_fail(w, "no statistics: %s", gn_strerror(rc));
	if (!truth_check_stats(w, c->index, &stats))
		return false;
	w->sums.copies_lost += stats.copies_lost;
	w->sums.copies_made += stats.copies_made;
	w->sums.copies_moved += stats.copies_moved;
	w->sums.serialised += stats.serialised;
	if (stats.crc_errors)
		world_fail(w, "%llu blocks were wrong", (unsigned long long)stats.crc_errors);
	if (w->plan.careful && stats.blocks_lost)
		world_fail(w, "%llu blocks are lost", (unsigned long long)stats.blocks_lost);
	return true;
}

/* The volume notices what happened, and repairs itself: perhaps with memory of a lease that ends. */
static int await_repair(struct client *c)
{
	struct world *w = c->w;
	const uint64_t until_ns = gn_deadline_us(w->plan.lease_us + REPAIR_US);
	int rc;

	while (!(rc = gn_vol_wait_repaired(c->vol, until_ns)) && !truth_whole(w, c->index) &&
	       !*w->run.failure) {
		if (gn_now_ns() > until_ns)
			return -EIO;
		gn_sleep_us(LOOK_US);
	}
	return rc;
}

/* One round of checks; false: another one is necessary. */
static bool final_round(struct client *c, struct thread *t)
{
	struct world *w = c->w;
	const int rc = await_repair(c);

	if (rc && !w->plan.cluster.no_memory)
		world_fail(w, "client %u: the repair did not end: %s", c->index, gn_strerror(rc));
	if (!*w->run.failure)
		thread_run(t, &t->op[0], GN_VOL_FLUSH, 0, 0);
	if (!*w->run.failure && !rc)
		truth_compare(w, c->index);
	if (!*w->run.failure)
		final_read(t);
	return *w->run.failure || rc || final_stats(c);
}

/* A copy changes in the donor's memory: the READ notices, uses another one, and it is made anew. */
static void final_spoil(struct client *c, struct thread *t)
{
	struct world *w = c->w;
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	unsigned sector;

	if (!w->plan.verify || w->plan.copies < 2 || w->plan.cluster.no_memory ||
	    !truth_spoil(w, c->index, &sector))
		return;
	if (thread_run(t, &t->op[0], GN_VOL_READ, sector,
		       1 + (unsigned)gn_random() % BLOCK_SECTORS))
		world_fail(w, "a block cannot be read: one of its copies is wrong");
	gn_vol_query(c->vol, &stats);
	w->sums.crc_errors += stats.crc_errors;
	if (!stats.crc_errors)
		world_fail(w, "nobody noticed that a copy is wrong");
	if (!*w->run.failure && await_repair(c))
		world_fail(w, "a copy that was wrong was not made anew");
	if (!*w->run.failure)
		thread_run(t, &t->op[0], GN_VOL_FLUSH, 0, 0);
	if (!*w->run.failure)
		truth_compare(w, c->index);
}

static void client_final(struct client *c, struct thread *t)
{
	struct world *w = c->w;
	unsigned rounds = 0;

	w->clients[c->index].ready = true;
	while (!w->calm && !*w->run.failure)
		gn_sleep_us(LOOK_US);
	while (!*w->run.failure && !final_round(c, t))
		if (++rounds == ROUNDS_MAX)
			world_fail(w, "client %u: copies are lost without faults", c->index);
	if (!*w->run.failure)
		final_spoil(c, t);
}

static int count_slab(void *arg, const struct gn_donor_entry *entry)
{
	*(unsigned *)arg += entry->slab != 0;
	return 0;
}

/* The number of slabs of this client at a donor; -1: it does not answer. */
static int slabs_left(struct client *c, unsigned donor)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts), .timeout_us = CREATE_US};
	struct gn_donor *d;
	char addr[32], owner[16];
	unsigned n = 0;
	int rc;

	snprintf(addr, sizeof(addr), "sim:n%u:9", donor);
	snprintf(owner, sizeof(owner), "c%u", c->index);
	if (gn_donor_connect(c->fabric, NULL, addr, &opts, &d))
		return -1;
	rc = gn_donor_list(d, owner, count_slab, &n, gn_deadline_us(LIST_US));
	gn_donor_close(d, 0);
	return rc ? -1 : (int)n;
}

/*
 * After its end a volume has no slabs. Sessions with a donor that could not be reached meanwhile end
 * with their leases.
 */
static void check_nothing_left(struct client *c)
{
	struct world *w = c->w;
	const uint64_t until_ns = gn_deadline_us(w->plan.lease_us + LEFT_US);

	for (unsigned i = 0; i < w->plan.n_donors && !*w->run.failure; i++)
		for (int n; (n = slabs_left(c, i)) && !*w->run.failure;) {
			w->active_ns = gn_sim_now_ns(w->run.sim);
			if (gn_now_ns() > until_ns && !w->plan.cluster.no_memory) {
				world_fail(w, "donor %u has %d slabs of client %u after its end", i,
					   n, c->index);
				return;
			}
			if (gn_now_ns() > until_ns)
				return;
			gn_sleep_us(MEMORY_US);
		}
}

static void client_use(struct client *c)
{
	struct world *w = c->w;
	struct thread *threads = gn_alloc(sizeof(*threads) * THREADS_MAX, 0);

	c->bytes = gn_alloc((size_t)THREADS_MAX * THREAD_ROOM * SECTOR, 0);
	if (threads && c->bytes) {
		threads_init(c, threads);
		if (gn_io_mem_register(gn_vol_engine(c->vol), c->bytes,
				       (size_t)THREADS_MAX * THREAD_ROOM * SECTOR, &c->mem))
			c->mem = NULL;
		client_threads(c, threads);
		client_final(c, &threads[0]);
		w->sums.ended++;
	}
	if (c->mem && gn_io_mem_deregister(c->mem) && !*w->run.failure)
		world_fail(w, "a mem cannot be deregistered");
	gn_free(c->bytes);
	gn_free(threads);
}

static void client_run(struct client *c, const struct client_arg *arg)
{
	struct world *w = c->w;
	int rc;

	if (client_create(c, arg)) {
		if (w->plan.careful)
			world_fail(w, "client %u has no volume", c->index);
		return;
	}
	client_use(c);
	w->clients[c->index].vol = NULL;
	rc = *w->run.failure ? 0 : gn_vol_destroy(c->vol);
	if (rc)
		world_fail(w, "the volume cannot be destroyed: %s: %s", gn_strerror(rc),
			   gn_error());
	if (!*w->run.failure)
		check_nothing_left(c);
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	const struct client_arg *arg = env->arg;
	struct world *w = arg->w;
	struct client_world *cw = &w->clients[arg->index];
	struct client c = {.w = w, .index = arg->index};

	(void)argc, (void)argv;
	cw->vol = NULL;
	cw->ready = false;
	if (cw->lives++ < LIVES_MAX && !seeds_fabric_open(env, 100, MEMORY_US, &c.fabric)) {
		client_run(&c, arg);
		if (!*w->run.failure)
			seeds_fabric_close(&w->run, c.fabric, "a client");
	}
	cw->ready = cw->over = true;
	return 0;
}
