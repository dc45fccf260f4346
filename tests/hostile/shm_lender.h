/* SPDX-License-Identifier: MIT */
/*
 * A process that lends one mem to two clients: one may write all of it, the other, which is hostile,
 * gets a region with fewer rights. The hostile client keeps every descriptor that it receives.
 */
#ifndef GN_TESTS_SHM_LENDER_H
#define GN_TESTS_SHM_LENDER_H

#include "shm_raw.h"
#include "shm_side.h"

#define ADDR	    "shm:rights-test"
#define NAME	    "rights-test"
#define SECRET	    "for the other client only"
#define PAGES	    4u
#define BYTES	    (PAGES * (size_t)GN_PAGE)
#define CONNECTIONS 16u

/* ---- the hostile client ---- */

/* Connects, and keeps the descriptors of all messages up to the one that it expects last. */
struct loot {
	struct raw raw;
	int fds[WIRE_FDS];
	unsigned n;
	int sock; /* for requests, or -1: one of fds */
};

static inline bool loot_take(struct loot *l)
{
	int fds[WIRE_FDS];
	union wire_any msg;

	assert_true(raw_recv(&l->raw, &msg, fds) > 0);
	for (int i = 0; i < WIRE_FDS && fds[i] >= 0; i++) {
		assert_true(l->n < WIRE_FDS);
		l->fds[l->n++] = fds[i];
	}
	return msg.head.type == WIRE_ACCEPT;
}

static inline void loot_begin(struct loot *l)
{
	*l = (struct loot){.sock = -1};
	raw_make(&l->raw);
	l->raw.sock = raw_dial(NAME);
	raw_say(&l->raw, WIRE_HELLO, l->raw.area_fd, l->raw.grants_fd);
	while (!loot_take(l))
		;
}

static inline void loot_end(struct loot *l)
{
	for (unsigned i = 0; i < l->n; i++)
		close(l->fds[i]);
	raw_free(&l->raw);
}

/* ---- the lender ---- */

struct victim {
	struct side side; /* its own pd is the hostile client's */
	struct gn_listener *listener;
	struct gn_mem *mem;
	struct gn_pd *other_pd;
	struct gn_mr *all; /* for the other client: the whole mem, writable */
	struct gn_mr *part;
	struct gn_qp *qps[CONNECTIONS];
	unsigned n_qps;
	struct raw_process evil;
	uint8_t before[BYTES];
};

static inline void victim_make(struct victim *v)
{
	uint8_t *data;

	*v = (struct victim){.n_qps = 0};
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&v->side);
	/* The mem that every side has gives the peer rights that this test does not want. */
	assert_int_equal(gn_mr_deregister(v->side.mr), 0);
	assert_int_equal(
		gn_mr_register(v->side.pd, v->side.mem, 0, SIDE_BYTES, GN_LOCAL_WRITE, &v->side.mr),
		0);
	assert_int_equal(gn_pd_create(v->side.ctx, &v->other_pd), 0);
	assert_int_equal(gn_mem_alloc(v->side.fabric, BYTES, SIDE_RIGHTS, &v->mem), 0);
	assert_int_equal(gn_mr_register(v->other_pd, v->mem, 0, BYTES, SIDE_RIGHTS | GN_LOCAL_WRITE,
					&v->all),
			 0);
	data = gn_mem_addr(v->mem);
	memset(data, 0x5a, BYTES);
	strcpy((char *)data, SECRET);
	memcpy(v->before, data, BYTES);
	assert_int_equal(
		gn_listener_create(v->side.ctx, ADDR, v->side.chan, GN_ANY_USER, &v->listener), 0);
}

static inline void victim_register(struct victim *v, size_t offset, size_t length, unsigned access)
{
	assert_int_equal(gn_mr_register(v->side.pd, v->mem, offset, length, access, &v->part), 0);
}

static inline void victim_accept_one(struct victim *v)
{
	struct gn_event ev;

	do {
		assert_int_equal(gn_chan_wait(v->side.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev),
				 0);
	} while (ev.type != GN_EVENT_CONNECT_REQUEST);
	v->qps[v->n_qps] = side_qp(&v->side, GN_QP_RC);
	assert_int_equal(gn_accept(ev.req, v->qps[v->n_qps++], NULL), 0);
}

static inline void victim_accept(struct victim *v, const char *role)
{
	raw_start(&v->evil, role);
	victim_accept_one(v);
}

/* The hostile client has done what it can: the memory is as it was. */
static inline void victim_check(struct victim *v)
{
	raw_turn_wait(v->evil.ctl);
	assert_memory_equal(gn_mem_addr(v->mem), v->before, BYTES);
}

static inline void victim_free(struct victim *v)
{
	raw_turn_end(v->evil.ctl);
	raw_end(&v->evil);
	for (unsigned i = 0; i < v->n_qps; i++)
		assert_int_equal(gn_qp_destroy(v->qps[i]), 0);
	assert_int_equal(gn_listener_destroy(v->listener), 0);
	assert_int_equal(gn_mr_deregister(v->part), 0);
	assert_int_equal(gn_mr_deregister(v->all), 0);
	assert_int_equal(gn_mem_free(v->mem), 0);
	assert_int_equal(gn_pd_destroy(v->other_pd), 0);
	side_free(&v->side);
}

#endif
