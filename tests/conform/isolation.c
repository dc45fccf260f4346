/* SPDX-License-Identifier: MIT */
/*
 * Cases 54-57: access rights. B owns the memory, A tries to access it. Each attempt that must fail
 * breaks its connection, so each has a connection of its own. A second connection, open for the
 * whole case, shows that others are not affected.
 */
#include <string.h>

#include "conform.h"

#define ID	   UINT64_C(54)
#define NEXT_ID	   UINT64_C(55)
#define ACCESS_LEN 64u
#define MEM_PAGES  4u
#define MEM_BYTES  (MEM_PAGES * (size_t)GN_PAGE)
#define IMAGE_AT   (2 * MEM_BYTES) /* in a connection's buffer: the expected memory */
#define BUF_BYTES  (3 * MEM_BYTES)
#define A_TAG	   1u
#define B_TAG	   2u
#define ADDEND	   UINT64_C(0x0101010101010101)

/* One access by A to B's memory, and what must become of it. */
struct attempt {
	enum gn_op op;
	uint32_t key;
	uint64_t offset;
	uint32_t len_bytes;
	bool allowed;
};

/* What both sides keep through a case. */
struct room {
	struct cf_rc safe;  /* the connection that must not suffer */
	struct gn_pd *pd;   /* B: where the region lives */
	struct gn_mem *mem; /* B: the target, MEM_BYTES long */
	struct gn_mr *mr;   /* B: the part of mem that begins at start */
	size_t start;
	struct gn_remote to; /* mr */
	uint64_t tries;
};

static bool room_open(struct cf *cf, struct room *room, size_t start, size_t length,
		      unsigned access)
{
	memset(room, 0, sizeof(*room));
	room->start = start;
	CHECK(cf_rc_pair(cf, NULL, &room->safe));
	if (cf->role == CF_A)
		return cf_hear(cf, &room->to, sizeof(room->to));
	CHECK((room->pd = cf_make_pd(cf)));
	CHECK((room->mem = cf_make_mem(cf, MEM_BYTES, cf_all_rights(cf))));
	CHECK_INT(gn_mr_register(room->pd, room->mem, start, length, access, &room->mr), 0);
	cf_own(cf, CF_MR, room->mr);
	CHECK_INT(gn_mr_remote(room->mr, &room->to), 0);
	return cf_tell(cf, &room->to, sizeof(room->to));
}

static bool is_atomic(enum gn_op op)
{
	return op == GN_OP_CAS || op == GN_OP_FAA;
}

static uint32_t access_len(const struct attempt *at)
{
	return is_atomic(at->op) ? sizeof(uint64_t) : at->len_bytes;
}

/* Where in B's memory an access that is allowed goes. */
static uint8_t *place(const struct room *room, const struct attempt *at, uint8_t *memory)
{
	return memory + room->start + (at->offset - room->to.offset);
}

/* B's memory before the access. */
static uint8_t *image_before(struct cf *cf, const struct cf_rc *rc)
{
	cf_fill(cf, rc->buf + IMAGE_AT, MEM_BYTES, B_TAG);
	return rc->buf + IMAGE_AT;
}

/* … and after it. */
static const uint8_t *image_after(struct cf *cf, const struct cf_rc *rc, const struct room *room,
				  const struct attempt *at)
{
	uint8_t *image = image_before(cf, rc);
	uint64_t word;

	if (!at->allowed || at->op == GN_OP_READ)
		return image;
	if (is_atomic(at->op)) { /* the CAS swaps in what the FAA would have stored */
		memcpy(&word, place(room, at, image), sizeof(word));
		word += ADDEND;
		memcpy(place(room, at, image), &word, sizeof(word));
	} else {
		cf_fill(cf, place(room, at, image), at->len_bytes, A_TAG);
	}
	return image;
}

/* The connection that has nothing to do with it carries data both ways. */
static bool safe_goes_on(struct cf *cf, struct room *room)
{
	struct cf_rc *safe = &room->safe;
	const uint64_t tag = B_TAG + ++room->tries;

	if (cf->role == CF_A) {
		cf_fill(cf, safe->buf, ACCESS_LEN, tag);
		CHECK(cf_write(cf, safe, tag, 0, 0, ACCESS_LEN, GN_SIGNALED));
		CHECK(cf_expect_wc(cf, safe->send_cq, tag, GN_WC_OK));
		return cf_publish(cf, safe);
	}
	CHECK(cf_observe(cf, safe));
	CHECK(cf_check_fill(cf, safe->buf, ACCESS_LEN, tag));
	return true;
}

/* A: post the access, and behind it a WRITE of nothing, which needs no right. */
static bool post_attempt(struct cf *cf, struct cf_rc *rc, const struct room *room,
			 const struct attempt *at)
{
	struct gn_sge sge = cf_sge(rc, 0, access_len(at));
	struct gn_remote to = {.key = at->key};
	struct gn_wr wr[2];
	uint64_t old = 0;

	gn_wr_rdma(&wr[0], at->op, ID, &sge, &to, at->offset, GN_SIGNALED);
	if (is_atomic(at->op))
		memcpy(&old, place(room, at, image_before(cf, rc)), sizeof(old));
	wr[0].to.remote.compare = at->op == GN_OP_FAA ? ADDEND : old;
	wr[0].to.remote.swap = old + ADDEND;
	gn_wr_init(&wr[1], GN_OP_WRITE, NEXT_ID, NULL, 0, GN_SIGNALED);
	wr[0].next = &wr[1];
	return cf_post(cf, rc->qp, wr);
}

static bool try_a(struct cf *cf, struct cf_rc *rc, const struct room *room,
		  const struct attempt *at)
{
	const uint32_t len = access_len(at);

	cf_fill(cf, rc->buf, len, A_TAG);
	CHECK(cf_sync(cf));
	CHECK(post_attempt(cf, rc, room, at));
	if (!at->allowed) {
		CHECK(cf_expect_wc(cf, rc->send_cq, ID, GN_WC_REMOTE_ACCESS));
		CHECK(cf_expect_wc(cf, rc->send_cq, NEXT_ID, GN_WC_FLUSHED));
		CHECK(cf_expect_state(cf, rc->qp, GN_QP_ERROR));
		CHECK(cf_check_fill(cf, rc->buf, len, A_TAG)); /* nothing was read */
		return cf_sync(cf);
	}
	CHECK(cf_expect_wc(cf, rc->send_cq, ID, GN_WC_OK));
	CHECK(cf_expect_wc(cf, rc->send_cq, NEXT_ID, GN_WC_OK));
	if (at->op == GN_OP_READ || is_atomic(at->op))
		CHECK(!memcmp(rc->buf, place(room, at, image_before(cf, rc)), len), "read wrong");
	CHECK(cf_publish(cf, rc));
	return cf_sync(cf);
}

/* B: the memory is as it should be, outside the region too, and no notification got through. */
static bool try_b(struct cf *cf, struct cf_rc *rc, const struct room *room,
		  const struct attempt *at)
{
	uint8_t *memory = gn_mem_addr(room->mem);
	struct gn_wc wc;
	int n;

	cf_fill(cf, memory, MEM_BYTES, B_TAG);
	if (at->op == GN_OP_WRITE_IMM)
		CHECK(cf_recv(cf, rc, ID, 0, 0));
	CHECK(cf_sync(cf));
	if (at->allowed && at->op == GN_OP_WRITE_IMM)
		CHECK(cf_expect_wc(cf, rc->recv_cq, ID, GN_WC_OK));
	if (at->allowed)
		CHECK(cf_observe(cf, rc));
	CHECK(cf_sync(cf));
	CHECK(!memcmp(memory, image_after(cf, rc, room, at), MEM_BYTES), "the memory is wrong");
	if (at->allowed)
		return true;
	n = gn_cq_poll(rc->recv_cq, &wc, 1);
	CHECK(n == 0 || (n == 1 && wc.status != GN_WC_OK), "a notification got through");
	return true;
}

/* A connection to try on, B's end of which lies in pd. */
static bool trial_open(struct cf *cf, struct gn_pd *pd, struct cf_rc *rc)
{
	struct cf_rc_opts opts = {
		.pd = cf->role == CF_A ? cf->pd : pd,
		.buf_bytes = BUF_BYTES,
		.access = GN_LOCAL_WRITE, /* its key may be a neighbour of the region's */
	};

	return cf_rc_pair(cf, &opts, rc);
}

static bool try_on(struct cf *cf, struct cf_rc *rc, struct room *room, const struct attempt *at)
{
	bool ok = cf->role == CF_A ? try_a(cf, rc, room, at) : try_b(cf, rc, room, at);

	CHECK(ok, "%s, key %+d, offset %#llx, %u bytes", gn_op_str(at->op),
	      (int)(at->key - room->to.key), (unsigned long long)at->offset, at->len_bytes);
	return safe_goes_on(cf, room);
}

static bool try_access(struct cf *cf, struct room *room, struct gn_pd *pd, const struct attempt *at)
{
	struct cf_rc rc;

	CHECK(trial_open(cf, pd, &rc));
	CHECK(try_on(cf, &rc, room, at));
	return cf_rc_close(cf, &rc);
}

static bool op_exists(const struct cf *cf, enum gn_op op)
{
	return cf->attr.caps & GN_CAP_ATOMICS || !is_atomic(op);
}

static const enum gn_op accesses[] = {
	GN_OP_WRITE, GN_OP_READ, GN_OP_WRITE_IMM, GN_OP_CAS, GN_OP_FAA,
};

#define ACCESSES (sizeof(accesses) / sizeof(accesses[0]))

/* ---- 54 ---- */

static bool other_pd(struct cf *cf)
{
	struct attempt at = {.len_bytes = ACCESS_LEN};
	struct room room;

	CHECK(room_open(cf, &room, 0, MEM_BYTES, GN_LOCAL_WRITE | cf_all_rights(cf)));
	at.key = room.to.key;
	at.offset = room.to.offset;
	for (unsigned i = 0; i < ACCESSES; i++) {
		at.op = accesses[i];
		if (op_exists(cf, at.op))
			CHECK(try_access(cf, &room, cf->pd, &at));
	}
	at.op = GN_OP_WRITE; /* and the key is good where it belongs */
	at.allowed = true;
	CHECK(try_access(cf, &room, room.pd, &at));
	return true;
}

/* ---- 55 ---- */

static bool bad_keys(struct cf *cf)
{
	struct attempt at = {.len_bytes = ACCESS_LEN};
	struct room room;
	struct cf_rc rc;

	CHECK(room_open(cf, &room, 0, MEM_BYTES, GN_LOCAL_WRITE | cf_all_rights(cf)));
	const uint32_t key[] = {room.to.key + 1, room.to.key - 1, ~room.to.key};

	at.offset = room.to.offset;
	for (unsigned i = 0; i < 2 * sizeof(key) / sizeof(key[0]); i++) {
		at.key = key[i / 2];
		at.op = i % 2 ? GN_OP_READ : GN_OP_WRITE;
		CHECK(try_access(cf, &room, room.pd, &at));
	}
	/* A connection that has used a key feels its end, and one that comes later does too. */
	at.key = room.to.key;
	at.allowed = true;
	CHECK(trial_open(cf, room.pd, &rc));
	CHECK(try_on(cf, &rc, &room, &at));
	if (cf->role == CF_B)
		CHECK(cf_destroy(cf, room.mr));
	at.allowed = false;
	CHECK(try_on(cf, &rc, &room, &at));
	CHECK(cf_rc_close(cf, &rc));
	for (unsigned i = 0; i < ACCESSES; i++) {
		at.op = accesses[i];
		if (op_exists(cf, at.op))
			CHECK(try_access(cf, &room, room.pd, &at));
	}
	return true;
}

/* ---- 56 ---- */

/* The region is the two middle pages less a few bytes: there is memory on both sides of it. */
#define REGION_START GN_PAGE
#define REGION_LEN   (2 * GN_PAGE - 24u)

struct range {
	uint64_t offset;
	uint32_t len_bytes;
	bool allowed;
};

static const struct range ranges[] = {
	{0, REGION_LEN, true},
	{REGION_LEN - 1, 1, true},
	{REGION_LEN, 1, false},
	{REGION_LEN - 1, 2, false},
	{0, REGION_LEN + 1, false},
	{REGION_LEN / 2, REGION_LEN, false},
	{UINT64_MAX, 1, false}, /* the byte before the region */
	{UINT64_MAX, 2, false}, /* … and its first: the sum wraps to 1 */
	{UINT64_MAX - GN_PAGE + 1, 2 * GN_PAGE, false},
	{UINT64_MAX - REGION_LEN + 1, REGION_LEN, false}, /* the sum wraps to 0 */
	{UINT64_C(1) << 32, 8, false},			  /* 0, if cut to 32 bits */
	{UINT64_C(1) << 63, 8, false},
};

#define RANGES (sizeof(ranges) / sizeof(ranges[0]))

static bool bad_ranges(struct cf *cf)
{
	struct room room;

	CHECK(room_open(cf, &room, REGION_START, REGION_LEN, GN_LOCAL_WRITE | cf_all_rights(cf)));
	for (unsigned i = 0; i < 2 * RANGES; i++) {
		const struct range *range = &ranges[i / 2];
		struct attempt at = {
			.op = i % 2 ? GN_OP_READ : GN_OP_WRITE,
			.key = room.to.key,
			.offset = room.to.offset + range->offset,
			.len_bytes = range->len_bytes,
			.allowed = range->allowed,
		};

		CHECK(try_access(cf, &room, room.pd, &at));
	}
	return true;
}

/* ---- 57 ---- */

static unsigned right_for(enum gn_op op)
{
	switch (op) {
	case GN_OP_READ:
		return GN_REMOTE_READ;
	case GN_OP_CAS:
	case GN_OP_FAA:
		return GN_REMOTE_ATOMIC;
	default:
		return GN_REMOTE_WRITE;
	}
}

/* Registers the same memory again with other rights, and sends A the key. */
static bool reopen(struct cf *cf, struct room *room, unsigned access)
{
	if (cf->role == CF_A)
		return cf_hear(cf, &room->to, sizeof(room->to));
	CHECK(cf_destroy(cf, room->mr));
	CHECK((room->mr = cf_make_mr(cf, room->pd, room->mem, access)));
	CHECK_INT(gn_mr_remote(room->mr, &room->to), 0);
	return cf_tell(cf, &room->to, sizeof(room->to));
}

static bool rights(struct cf *cf)
{
	const unsigned rights[] = {GN_REMOTE_READ, GN_REMOTE_WRITE, GN_REMOTE_ATOMIC,
				   GN_REMOTE_READ | GN_REMOTE_WRITE};
	struct attempt at = {.len_bytes = ACCESS_LEN};
	struct room room;

	CHECK(room_open(cf, &room, 0, MEM_BYTES, GN_LOCAL_WRITE | cf_all_rights(cf)));
	for (unsigned r = 0; r < sizeof(rights) / sizeof(rights[0]); r++) {
		if (rights[r] & ~cf_all_rights(cf))
			continue;
		CHECK(reopen(cf, &room, GN_LOCAL_WRITE | rights[r]));
		at.key = room.to.key;
		at.offset = room.to.offset;
		for (unsigned i = 0; i < ACCESSES; i++) {
			at.op = accesses[i];
			at.allowed = right_for(at.op) & rights[r];
			if (op_exists(cf, at.op))
				CHECK(try_access(cf, &room, room.pd, &at));
		}
	}
	return true;
}

const struct cf_case cf_cases_isolation[] = {
	{54, "a key of another pd", other_pd, other_pd, 0, 0},
	{55, "neighbours' keys and stale ones", bad_keys, bad_keys, 0, 0},
	{56, "ranges: last byte, one past, wrap-around", bad_ranges, bad_ranges, 0, 0},
	{57, "rights", rights, rights, 0, 0},
	{0},
};
