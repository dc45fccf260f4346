/* SPDX-License-Identifier: MIT */
/*
 * A client of the test: it gets slabs, writes and reads their blocks, shares them, returns them,
 * leaves its session and takes it over again, and does what the donor asks for.
 */
#include <errno.h>
#include <string.h>

#include "sim_donor.h"

#define HELD_MAX   6u
#define DEPTH_MAX  8u
#define MAYBE_MAX  16u
#define ATTEMPTS   3000u
#define UNTIL_NS   20000000000ull
#define MEMORY_US  1000u
#define CONNECT_US 20000u
#define CALL_US	   2000000u
#define IO_US	   3000000u
#define LOST_US	   200000u

struct block {
	uint32_t written;
	uint32_t maybe[MAYBE_MAX]; /* WRITEs that failed or have not ended */
	unsigned n_maybe;
};

struct held {
	struct gn_donor_slab *slab; /* NULL: none */
	uint64_t id;
	bool lost; /* the donor took it, or is asked to free it */
	struct block blocks[BLOCKS];
};

struct op {
	struct gn_io_req req;
	struct gn_io_sge sge;
	struct held *held;
	unsigned block;
	uint32_t version;
	uint8_t *bytes;
};

struct client {
	struct world *w;
	unsigned index, steps;
	struct gn_fabric *fabric;
	struct gn_io *io;
	struct gn_donor *donor;
	struct gn_io_queue *queue;
	struct gn_donor_id id;
	bool keeps; /* a session waits to be taken over */
	struct held held[HELD_MAX];
	struct op op[DEPTH_MAX];
	uint8_t *bytes;
};

/* ---- the model ---- */

static bool line_is(const uint8_t *at, uint64_t word)
{
	for (unsigned k = 0; k < 8; k++)
		if (memcmp(at + k * 8, &word, 8))
			return false;
	return true;
}

static void check_read(const struct client *c, const struct op *op)
{
	const struct block *block = &op->held->blocks[op->block];

	for (unsigned i = 0; i < LINES; i++) {
		const uint8_t *at = op->bytes + i * 64;
		const uint64_t id = op->held->id;
		bool good = line_is(at, line_word(c->index, id, op->block, i, block->written));
		uint64_t word;

		for (unsigned m = 0; !good && m < block->n_maybe; m++)
			good = line_is(at, line_word(c->index, id, op->block, i, block->maybe[m]));
		memcpy(&word, at, sizeof(word));
		if (!good)
			world_fail(c->w,
				   "client %u, slab %llu, block %u, line %u: %llx, and written was "
				   "version %u",
				   c->index, (unsigned long long)id, op->block, i,
				   (unsigned long long)word, block->written);
	}
}

static void op_fill(const struct client *c, struct op *op)
{
	for (unsigned i = 0; i < LINES; i++)
		for (unsigned k = 0; k < 8; k++) {
			const uint64_t word =
				line_word(c->index, op->held->id, op->block, i, op->version);

			memcpy(op->bytes + i * 64 + k * 8, &word, sizeof(word));
		}
}

static struct held *held_any(struct client *c)
{
	struct held *held = &c->held[gn_random() % HELD_MAX];

	return held->slab && !held->lost ? held : NULL;
}

static bool session_lost(const struct client *c)
{
	return gn_io_target_state(gn_donor_target(c->donor)) != 0;
}

/* ---- requests ---- */

static void op_ended(struct client *c, struct op *op)
{
	struct world *w = c->w;
	struct block *block = &op->held->blocks[op->block];
	const int status = op->req.status;

	w->run.active_ns = gn_sim_now_ns(w->run.sim);
	world_log(w, "client %u: %s of slab %llu, block %u, version %u: %s", c->index,
		  op->req.op == GN_IO_READ ? "READ" : "WRITE", (unsigned long long)op->held->id,
		  op->block, op->version, gn_strerror(status));
	if (status && status != -ESTALE && status != -ETIMEDOUT && status != -EACCES)
		world_fail(w, "a request ended with %s", gn_strerror(status));
	/* The donor took the slab: only if memory was short. */
	if (status == -EACCES && !session_lost(c)) {
		if (!strstr(w->plan.cluster.faults, "low-memory"))
			world_fail(w, "a slab cannot be accessed");
		op->held->lost = true;
	}
	w->sums.failed += status != 0;
	if (status)
		return;
	if (op->req.op == GN_IO_READ) {
		check_read(c, op);
		w->sums.reads++;
		return;
	}
	/* A WRITE that ended well is the only one that can be there: the others cannot land. */
	block->written = op->version;
	block->n_maybe = 0;
	w->sums.writes++;
}

static void ops_run(struct client *c, unsigned n)
{
	struct gn_io_req *list[DEPTH_MAX], *ended[DEPTH_MAX];
	unsigned sent = 0, done = 0;

	for (unsigned i = 0; i < n; i++)
		list[i] = &c->op[i].req;
	while (done < n && !*c->w->run.failure) {
		int rc = sent < n ? gn_io_submit(c->queue, list + sent, n - sent) : 0;

		if (rc < 0 && rc != -EAGAIN && rc != -ENOMEM && rc != -ESTALE)
			world_fail(c->w, "submit: %s", gn_strerror(rc));
		if ((rc == -ENOMEM || rc == -ESTALE) && done == sent) { /* these were not begun */
			for (; sent < n; sent++, done++)
				if (c->op[sent].req.op == GN_IO_WRITE)
					c->op[sent].held->blocks[c->op[sent].block].n_maybe--;
			return;
		}
		sent += rc > 0 ? (unsigned)rc : 0;
		rc = gn_io_wait(c->queue, ended, DEPTH_MAX, gn_deadline_us(1000));
		for (int i = 0; i < rc; i++, done++)
			op_ended(c, ended[i]->user);
	}
}

static bool op_draw(struct client *c, struct op *op, unsigned n)
{
	struct block *block;

	op->held = held_any(c);
	op->block = (unsigned)gn_random() % c->w->plan.blocks;
	if (!op->held)
		return false;
	for (unsigned i = 0; i < n; i++) /* one request for each block at a time */
		if (c->op[i].held == op->held && c->op[i].block == op->block)
			return false;
	block = &op->held->blocks[op->block];
	op->version = ++c->w->version;
	op->sge = (struct gn_io_sge){.addr = op->bytes, .len_bytes = BLOCK};
	op->req = (struct gn_io_req){
		.op = gn_random() % 3 && block->n_maybe < MAYBE_MAX ? GN_IO_WRITE : GN_IO_READ,
		.region = op->held->slab->region,
		.offset = op->block * GN_PAGE,
		.sge = &op->sge,
		.n_sge = 1,
		.deadline_ns = gn_deadline_us(IO_US),
		.user = op};
	if (op->req.op == GN_IO_WRITE) {
		op_fill(c, op);
		block->maybe[block->n_maybe++] = op->version;
	}
	return true;
}

static void step_io(struct client *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i < c->w->plan.depth; i++)
		n += op_draw(c, &c->op[n], n);
	ops_run(c, n);
}

/* All blocks of all slabs. */
static void verify_all(struct client *c)
{
	for (unsigned i = 0; i < HELD_MAX * BLOCKS && !*c->w->run.failure; i++) {
		struct op *op = &c->op[0];

		op->held = &c->held[i / BLOCKS];
		op->block = i % BLOCKS;
		if (!op->held->slab || op->held->lost)
			continue;
		op->sge = (struct gn_io_sge){.addr = op->bytes, .len_bytes = BLOCK};
		op->req = (struct gn_io_req){.op = GN_IO_READ,
					     .region = op->held->slab->region,
					     .offset = op->block * GN_PAGE,
					     .sge = &op->sge,
					     .n_sge = 1,
					     .deadline_ns = gn_deadline_us(IO_US),
					     .user = op};
		ops_run(c, 1);
	}
}

/* ---- slabs ---- */

/* 0: the call had its effect. Other errors need a reason. */
static int call_result(struct client *c, int rc, const char *what)
{
	c->w->run.active_ns = gn_sim_now_ns(c->w->run.sim);
	world_log(c->w, "client %u: %s: %s", c->index, what, gn_strerror(rc < 0 ? rc : 0));
	if (rc >= 0)
		return 0;
	switch (-rc) {
	case ESTALE:
	case ETIMEDOUT:
	case ECONNRESET:
	case EBUSY:
	case ENOSPC:
	case EDQUOT:
	case ESHUTDOWN:
	case ENOENT:
	case EAGAIN:
		break;
	case ENOMEM:
		if (c->w->plan.cluster.no_memory)
			break;
		/* fallthrough */
	default:
		/* A donor that has no memory says that it failed. */
		if (!c->w->plan.cluster.no_memory)
			world_fail(c->w, "%s: %s", what, gn_error() ? gn_error() : gn_strerror(rc));
	}
	return rc;
}

/* Slabs that the session has and the model does not, because an answer was lost. */
static void adopt_unknown(struct client *c)
{
	for (struct gn_donor_slab *s = NULL; (s = gn_donor_next_slab(c->donor, s));) {
		struct held *free = NULL;
		bool known = false;

		for (unsigned i = 0; i < HELD_MAX; i++) {
			known |= c->held[i].slab == s;
			if (!c->held[i].slab)
				free = &c->held[i];
		}
		if (!known && free)
			*free = (struct held){.slab = s, .id = s->id};
	}
}

static void step_grant(struct client *c)
{
	struct gn_donor_slab *slabs[2];
	unsigned have = 0;
	int rc;

	for (unsigned i = 0; i < HELD_MAX; i++)
		have += c->held[i].slab != NULL;
	if (have + 2 > HELD_MAX)
		return;
	rc = gn_donor_grant(c->donor, 1 + gn_random() % 2, slabs, gn_deadline_us(CALL_US));
	c->w->sums.grants += rc > 0 ? (unsigned)rc : 0;
	c->w->sums.refused += rc == -ENOSPC;
	call_result(c, rc, "grant");
	adopt_unknown(c);
}

static void held_release(struct client *c, struct held *held)
{
	const int rc = gn_donor_release(c->donor, held->slab, gn_deadline_us(CALL_US));

	call_result(c, rc, "release");
	held->lost = true;
	if (rc && rc != -ESTALE)
		return; /* to be tried again */
	held->slab = NULL;
	c->w->sums.releases += !rc;
}

static void step_release(struct client *c)
{
	struct held *held = &c->held[gn_random() % HELD_MAX];

	if (held->slab)
		held_release(c, held);
}

/* ---- notices ---- */

static void step_notice(struct client *c)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	const int rc = gn_donor_next_notice(c->donor, &notice, gn_deadline_us(gn_random() % 300));

	if (call_result(c, rc, "notice"))
		return;
	c->w->sums.asked += notice.kind == GN_DONOR_TAKE_BACK;
	c->w->sums.taken += notice.kind == GN_DONOR_TAKEN;
	c->w->sums.leaving += notice.kind == GN_DONOR_GOING_AWAY;
	for (unsigned i = 0; i < HELD_MAX; i++) {
		struct held *held = &c->held[i];

		if (!held->slab || (notice.slab && held->slab != notice.slab))
			continue;
		if (notice.kind == GN_DONOR_TAKEN && notice.slab)
			held->lost = true;
		else if (notice.kind != GN_DONOR_TAKEN && gn_random() % 4)
			held_release(c, held);
	}
}

/* ---- shares ---- */

/* A request for block 0 of a slab, through its own region or a share's; its status. */
static int share_io(struct client *c, enum gn_io_op io, struct gn_io_region *region,
		    struct held *held)
{
	struct op *op = &c->op[0];
	int rc;

	op->held = held;
	op->block = 0;
	op->version = ++c->w->version;
	op->sge = (struct gn_io_sge){.addr = op->bytes, .len_bytes = BLOCK};
	op->req = (struct gn_io_req){.op = io,
				     .region = region,
				     .sge = &op->sge,
				     .n_sge = 1,
				     .deadline_ns = gn_deadline_us(IO_US / 10),
				     .user = op};
	if (io == GN_IO_WRITE)
		op_fill(c, op);
	rc = gn_io_run(c->queue, &op->req);
	return rc ? rc : op->req.status;
}

/*
 * Another target reads a block, and writes it; after the revocation its WRITE must not land: the
 * model does not have its version. A READ makes earlier WRITEs of its connection visible to others.
 */
static void share_use(struct client *c, struct gn_io_region *region, struct held *held,
		      const uint8_t *token)
{
	struct block *block = &held->blocks[0];

	if (block->n_maybe == MAYBE_MAX || share_io(c, GN_IO_READ, held->slab->region, held) ||
	    share_io(c, GN_IO_READ, region, held))
		return;
	op_ended(c, &c->op[0]);
	block->maybe[block->n_maybe++] = c->w->version + 1;
	if (share_io(c, GN_IO_WRITE, region, held) || share_io(c, GN_IO_READ, region, held))
		return;
	op_ended(c, &c->op[0]);
	if (call_result(c, gn_donor_revoke(c->donor, token, gn_deadline_us(CALL_US)), "revoke"))
		return;
	c->w->sums.revoked++;
	if (!share_io(c, GN_IO_WRITE, region, held))
		world_fail(c->w, "a WRITE succeeded after its share was revoked");
}

static void share_close(struct client *c, struct gn_io_target *target)
{
	if (gn_io_target_close(target) && !*c->w->run.failure)
		world_fail(c->w, "a share's target cannot be closed: %s", gn_error());
}

/* Sometimes it is opened before, and closed or not: then the second target takes it over. */
static int share_open(struct client *c, const struct gn_io_target_opts *opts,
		      struct gn_io_range *range, struct gn_io_target **target)
{
	const char *addr = gn_donor_data_addr(c->donor);
	const bool again = gn_random() % 2, stays = gn_random() % 2;
	struct gn_io_target *before = NULL;
	int rc;

	if (again && gn_io_target_open(c->io, addr, opts, NULL, &before))
		before = NULL;
	if (before && !stays)
		share_close(c, before);
	rc = gn_io_target_open(c->io, addr, opts, range, target);
	c->w->sums.reopened += before && !rc;
	if (before && stays)
		share_close(c, before);
	return rc;
}

static void step_share(struct client *c)
{
	struct gn_io_target_opts opts = {
		.size = sizeof(opts), .share = true, .timeout_us = CONNECT_US};
	struct held *held = held_any(c);
	struct gn_io_target *target;
	struct gn_io_region *region;
	struct gn_io_range range;

	if (!held || call_result(c,
				 gn_donor_share(c->donor, held->slab, 0, GN_PAGE,
						GN_REMOTE_READ | GN_REMOTE_WRITE,
						gn_deadline_us(CALL_US), opts.token),
				 "share"))
		return;
	if (share_open(c, &opts, &range, &target))
		return;
	c->w->sums.shared++;
	if (!gn_io_region_add(target, &range, &region)) {
		share_use(c, region, held, opts.token);
		gn_io_region_remove(region);
	}
	share_close(c, target);
}

/* ---- sessions ---- */

static int client_connect(struct client *c)
{
	struct gn_donor_opts opts = {.size = sizeof(opts), .owner = "client"};
	const bool resumed = c->keeps;
	int rc;

	opts.id = resumed ? &c->id : NULL;
	opts.timeout_us = CONNECT_US;
	rc = gn_donor_connect(c->fabric, c->io, ADDR, &opts, &c->donor);
	world_log(c->w, "client %u: connects%s: %s", c->index, resumed ? " again" : "",
		  gn_strerror(rc));
	if (rc == -ESTALE || rc == -EACCES) { /* of a session that ended meanwhile */
		c->w->sums.lost += resumed;
		c->keeps = false;
		memset(c->held, 0, sizeof(c->held));
	}
	if (rc)
		return rc;
	c->keeps = false;
	c->w->sums.resumed += resumed;
	for (unsigned i = 0; i < HELD_MAX; i++) {
		struct held *held = &c->held[i];
		struct gn_donor_slab *s = gn_donor_next_slab(c->donor, NULL);

		while (resumed && s && s->id != held->id)
			s = gn_donor_next_slab(c->donor, s);
		if (!resumed || !s || !held->slab)
			*held = (struct held){.slab = NULL};
		else
			held->slab = s;
	}
	adopt_unknown(c);
	return 0;
}

/* An earlier user of the session comes back: it must not get in. */
static void step_intrude(struct client *c)
{
	struct gn_io_target_opts opts = {
		.size = sizeof(opts), .generation = 1, .timeout_us = CONNECT_US};
	struct gn_io_target *target;
	int rc;

	if (!c->w->plan.intrudes || session_lost(c))
		return;
	gn_donor_session_id(c->donor, &c->id);
	memcpy(opts.token, c->id.token, sizeof(opts.token));
	opts.incarnation = c->id.incarnation;
	rc = gn_io_target_open(c->io, gn_donor_data_addr(c->donor), &opts, NULL, &target);
	c->w->sums.intruded += rc == -ESTALE;
	if (rc)
		return;
	world_fail(c->w, "a lower generation was accepted");
	gn_io_target_close(target);
}

static void client_disconnect(struct client *c, bool keep)
{
	keep = keep && !session_lost(c);
	if (keep)
		gn_donor_session_id(c->donor, &c->id);
	if (gn_donor_close(c->donor, keep ? GN_DONOR_KEEP : 0))
		world_fail(c->w, "a session cannot be closed: %s", gn_error());
	c->donor = NULL;
	c->keeps = keep;
	if (!keep)
		memset(c->held, 0, sizeof(c->held));
}

static void client_step(struct client *c)
{
	const unsigned what = (unsigned)gn_random() % 100;

	if (what < 65)
		step_io(c);
	else if (what < 75)
		step_grant(c);
	else if (what < 79)
		step_release(c);
	else if (what < 87)
		step_notice(c);
	else if (what < 91)
		step_share(c);
	else if (what < 95)
		gn_donor_renew(c->donor);
	else if (what < 96)
		step_intrude(c);
	else if (what < 97)
		gn_sleep_us(gn_random() % 6000); /* the donor stops polling the client */
	else
		client_disconnect(c, what == 97);
}

static void client_run(struct client *c)
{
	struct world *w = c->w;
	unsigned attempts = 0;

	while (c->steps && !*w->run.failure && gn_sim_now_ns(w->run.sim) < UNTIL_NS &&
	       attempts < ATTEMPTS) {
		if (!c->donor && client_connect(c)) {
			attempts++;
			gn_sleep_us(MEMORY_US);
			continue;
		}
		c->steps--;
		client_step(c);
		if (c->donor && session_lost(c)) {
			w->sums.lost++;
			client_disconnect(c, false);
		}
	}
	if (c->donor) {
		verify_all(c);
		client_disconnect(c, false);
	}
	w->sums.ended += !c->steps;
	if (c->steps && w->plan.heals && !w->plan.cluster.no_memory && !*w->run.failure)
		world_fail(w, "client %u did not come to its end", c->index);
}

static int client_open(struct client *c)
{
	struct gn_io_opts opts = {.size = sizeof(opts),
				  .channels = c->w->plan.channels,
				  .staging_bytes = 2u << 20,
				  .mr = GN_IO_MR_PRE,
				  .lost_us = LOST_US};
	int rc = gn_io_create(c->fabric, &opts, &c->io);

	if (rc)
		return rc;
	c->bytes = gn_alloc(DEPTH_MAX * BLOCK, 0);
	rc = c->bytes ? gn_io_queue_create(c->io, DEPTH_MAX, &c->queue) : -ENOMEM;
	for (unsigned i = 0; !rc && i < DEPTH_MAX; i++)
		c->op[i].bytes = c->bytes + i * BLOCK;
	return rc;
}

static void client_close(struct client *c)
{
	struct gn_io_stats stats = {.size = sizeof(stats)};

	if (c->io)
		gn_io_query(c->io, &stats);
	c->w->sums.repeated += stats.repeated;
	if (gn_io_queue_destroy(c->queue) && !*c->w->run.failure)
		world_fail(c->w, "a queue cannot be destroyed: %s", gn_error());
	gn_free(c->bytes);
	if (c->io && gn_io_destroy(c->io) && !*c->w->run.failure)
		world_fail(c->w, "the engine cannot be destroyed: %s", gn_error());
}

int client_main(struct gn_env *env, int argc, char **argv)
{
	const struct seeds_client *arg = env->arg;
	struct world *w = (struct world *)arg->run;
	struct client *c;
	int rc;

	(void)argc, (void)argv;
	c = gn_alloc(sizeof(*c), 0);
	if (!c)
		return 0;
	*c = (struct client){.w = w, .index = arg->index, .steps = w->plan.steps};
	rc = seeds_fabric_open(env, 100, MEMORY_US, &c->fabric);
	if (rc) {
		gn_free(c);
		return w->plan.cluster.no_memory ? 0 : 1;
	}
	rc = client_open(c);
	if (!rc)
		client_run(c);
	else if (rc != -ENOMEM || !w->plan.cluster.no_memory)
		world_fail(w, "no engine: %s", gn_strerror(rc));
	client_close(c);
	if (!*w->run.failure)
		seeds_fabric_close(&w->run, c->fabric, "a client");
	gn_free(c);
	w->run.clients_over++;
	return 0;
}
