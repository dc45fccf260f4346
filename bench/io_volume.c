/* SPDX-License-Identifier: MIT */
/*
 * A volume in place of the engine's target: its donors, each a process or a simulated machine, and
 * queues that hand the requests of the load to the volume.
 */
#include <errno.h>
#include <unistd.h>

#include "io_load.h"

#define DONOR_ADDRS 2u /* a donor has two: the second is for its data connections */
#define SPARE_SLABS 2u

/* ---- donors ---- */

static uint32_t donor_addr_number(uint32_t donor)
{
	return donor * DONOR_ADDRS;
}

struct donor_place {
	const struct bench_io_opts *opts;
	struct gn_fabric *fabric;
	struct gn_donor_server *server;
};

static int donor_listen(void *arg, const char *addr)
{
	struct donor_place *place = arg;
	const struct bench_io_opts *o = place->opts;
	/* The copies of an extent are on different donors. */
	const uint64_t extents = (o->region_bytes + o->slab_bytes - 1) / o->slab_bytes;
	const struct gn_donor_server_opts opts = {
		.size = sizeof(opts),
		.slab = o->slab_bytes,
		.memory = (extents * o->load.machines + SPARE_SLABS) * o->slab_bytes,
	};
	int rc = gn_donor_server_create(place->fabric, addr, &opts, &place->server);

	if (!rc)
		rc = gn_donor_server_start(place->server);
	if (rc) {
		gn_donor_server_destroy(place->server);
		place->server = NULL;
	}
	return rc;
}

int io_volume_serve(struct load_proc *proc, uint32_t number)
{
	struct io_run *run = (struct io_run *)proc->run; /* which begins with it */
	struct donor_place place = {.opts = &run->opts, .fabric = proc->fabric};
	int rc;

	if (!run->load.simulated)
		/* Pairs with the acquire in io_kill.c. */
		__atomic_store_n(&run->donor_pid[number], (int32_t)getpid(), __ATOMIC_RELEASE);
	rc = load_listen(proc, donor_addr_number(number), donor_listen, &place);
	while (!rc && !proc->served(proc, NULL))
		gn_sleep_us(proc->nap_us);
	gn_donor_server_destroy(place.server);
	return rc;
}

/* ---- the volume ---- */

int io_volume_open(struct load_proc *proc, struct io_process *p, const struct gn_io_opts *io)
{
	const struct io_run *run = (const struct io_run *)proc->run;
	const struct bench_io_opts *o = &run->opts;
	char addrs[GN_VOL_DONORS_MAX][LOAD_ADDR_MAX];
	const char *donors[GN_VOL_DONORS_MAX];
	const struct gn_vol_opts opts = {.size = sizeof(opts),
					 .bytes = o->region_bytes,
					 .donors = donors,
					 .n_donors = o->donors,
					 .copies = o->copies,
					 .verify = o->verify,
					 .repair_share = o->repair_share,
					 .owner = "bench",
					 .io = io};
	int rc;

	for (uint32_t i = 0; i < o->donors; i++) {
		load_server_addr(proc->run, donor_addr_number(i), addrs[i]);
		donors[i] = addrs[i];
	}
	rc = gn_vol_create(proc->fabric, &opts, &p->vol);
	if (rc)
		return load_fail(proc->run, rc, "creating the volume: %s",
				 gn_error()[0] ? gn_error() : gn_strerror(rc));
	p->io = gn_vol_engine(p->vol);
	return 0;
}

int io_volume_close(struct io_process *p)
{
	struct gn_vol *vol = p->vol;

	p->vol = NULL;
	p->io = NULL;
	return gn_vol_destroy(vol);
}

uint64_t io_volume_requests(const struct io_process *p)
{
	struct gn_vol_stats stats = {.size = sizeof(stats)};

	return gn_vol_query(p->vol, &stats) ?
		       0 :
		       stats.requests[GN_VOL_READ] + stats.requests[GN_VOL_WRITE];
}

/* ---- queues ---- */

int io_queue_create(struct io_process *p, struct gn_io_req *reqs, uint32_t depth,
		    struct io_queue *out)
{
	struct io_queue q = {.reqs = reqs};
	int rc;

	if (!p->vol)
		return gn_io_queue_create(p->io, depth, &out->io);
	q.twins = gn_alloc(depth * sizeof(*q.twins), 64);
	q.list = gn_alloc(depth * sizeof(struct gn_vol_req *), 0);
	rc = q.twins && q.list ? gn_vol_queue_create(p->vol, depth, &q.vol) : -ENOMEM;
	if (rc) {
		gn_free(q.twins);
		gn_free(q.list);
		return rc;
	}
	for (uint32_t i = 0; i < depth; i++)
		q.twins[i] = (struct gn_vol_req){
			.sge = reqs[i].sge, .n_sge = reqs[i].n_sge, .user = &reqs[i]};
	*out = q;
	return 0;
}

int io_queue_destroy(struct io_queue *q)
{
	int rc = 0;

	if (q->io)
		rc = gn_io_queue_destroy(q->io);
	if (q->vol)
		rc = gn_vol_queue_destroy(q->vol);
	gn_free(q->twins);
	gn_free(q->list);
	*q = (struct io_queue){.io = NULL};
	return rc;
}

int io_queue_source(struct io_queue *q, struct gn_source **out)
{
	return q->vol ? gn_vol_queue_source(q->vol, out) : gn_io_queue_source(q->io, out);
}

_Static_assert((int)GN_VOL_READ == (int)GN_IO_READ && (int)GN_VOL_WRITE == (int)GN_IO_WRITE,
	       "the same numbers");

int io_queue_submit(struct io_queue *q, struct gn_io_req *const *reqs, uint32_t n)
{
	if (!q->vol)
		return gn_io_submit(q->io, reqs, n);
	for (uint32_t i = 0; i < n; i++) {
		struct gn_vol_req *twin = &q->twins[reqs[i] - q->reqs];

		twin->op = (enum gn_vol_op)reqs[i]->op;
		twin->offset = reqs[i]->offset;
		q->list[i] = twin;
	}
	return gn_vol_submit(q->vol, q->list, n);
}

/* The requests of the first n twins in the list, which have ended. */
static int take_twins(struct io_queue *q, struct gn_io_req **reqs, int n)
{
	for (int i = 0; i < n; i++) {
		reqs[i] = q->list[i]->user;
		reqs[i]->status = q->list[i]->status;
	}
	return n;
}

int io_queue_poll(struct io_queue *q, struct gn_io_req **reqs, uint32_t n)
{
	if (!q->vol)
		return gn_io_poll(q->io, reqs, n);
	return take_twins(q, reqs, gn_vol_poll(q->vol, q->list, n));
}

int io_queue_wait(struct io_queue *q, struct gn_io_req **reqs, uint32_t n, uint64_t deadline_ns)
{
	if (!q->vol)
		return gn_io_wait(q->io, reqs, n, deadline_ns);
	return take_twins(q, reqs, gn_vol_wait(q->vol, q->list, n, deadline_ns));
}

int io_queue_run(struct io_queue *q, struct gn_io_req *req)
{
	struct gn_io_req *ended;
	int rc;

	if (!q->vol)
		return gn_io_run(q->io, req);
	rc = io_queue_submit(q, &req, 1);
	if (rc >= 0)
		rc = io_queue_wait(q, &ended, 1, gn_deadline_us(LOAD_OP_US));
	return rc < 0 ? rc : req->status;
}
