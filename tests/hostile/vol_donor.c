/* SPDX-License-Identifier: MIT */
/*
 * Hostile donors of a volume: they do not answer, answer garbage, grant memory that is none, want
 * back what they never gave, or tell without end. Creating a volume with them fails in time and with
 * words, or the volume works with its other donors; it ends in time in any case (docs/limits.md).
 */
#include "../unit/vol_world.h"
#include "gannet/rpc.h"

#define BYTES	     (2u * VOL_SLAB)
#define CREATE_US    10000000u
#define SILENT_US    3000000u /* the same with a donor that does not answer: a call takes 1 s */
#define TIMELY_NS    20000000000ull /* on a busy machine, for what must not hang */
#define NOTICES_US   300000u
#define LATE_GRANTS  2u
#define WRONG_GRANTS 200u /* in CREATE_US, from a donor whose slabs cannot be used */

enum evil {
	EVIL_NOT, /* hands everything to the donor behind it */
	EVIL_SILENT,
	EVIL_SHORT,   /* HELLO: a byte */
	EVIL_VERSION, /* HELLO: another one */
	EVIL_NO_SLAB, /* HELLO: slabs of no bytes */
	EVIL_ODD_SLAB,
	EVIL_HUGE_SLAB,
	EVIL_NO_DATA,	   /* HELLO: no data address */
	EVIL_WRONG_DATA,   /* HELLO: nobody listens there */
	EVIL_GRANT_SILENT, /* from here on HELLO is good */
	EVIL_GRANT_SHORT,
	EVIL_GRANT_RANDOM,
	EVIL_GRANT_SMALL, /* a slab that is shorter than promised */
	EVIL_GRANT_LONG,
	EVIL_GRANT_TWICE, /* the same slab again */
	EVIL_GRANT_KEY,	  /* no such key */
	EVIL_GRANT_LATE,  /* grants, but the first answers are lost */
	EVIL_STATS_SLAB,  /* STATS: slabs of another size than HELLO */
	EVIL_NOTICE_RANDOM,
	EVIL_NOTICE_TAKE, /* unknown slabs, without end */
	EVIL_NOTICE_TAKEN,
	EVIL_NOTICE_LEAVE,
	EVILS
};

/* A control server in front of an honest donor. */
struct evil_donor {
	struct gn_fabric *fabric;
	struct gn_rpc_server *server;
	struct gn_rpc_client *real; /* of the server's thread */
	const char *real_addr;
	char addr[64];
	enum evil evil;
	struct donor_grant_result first;
	unsigned grants;  /* atomic: that were executed */
	uint64_t notices; /* atomic */
	struct gn_rpc_request *held[64];
	unsigned n_held;
};

static void hold(struct evil_donor *e, struct gn_rpc_request *request)
{
	if (e->n_held < 64)
		e->held[e->n_held++] = request;
	else
		gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
}

static void evil_hello(struct evil_donor *e, struct donor_hello_result *hello, uint32_t *len)
{
	switch (e->evil) {
	case EVIL_SHORT:
		*len = 1;
		break;
	case EVIL_VERSION:
		hello->version++;
		break;
	case EVIL_NO_SLAB:
		hello->slab_bytes = 0;
		break;
	case EVIL_ODD_SLAB:
		hello->slab_bytes = VOL_SLAB + 1;
		break;
	case EVIL_HUGE_SLAB:
		hello->slab_bytes = UINT64_MAX & ~(uint64_t)(VOL_SLAB - 1);
		break;
	case EVIL_NO_DATA:
		memset(hello->data, 'x', sizeof(hello->data));
		break;
	case EVIL_WRONG_DATA:
		strcpy(hello->data, "vol-nobody-lives-here");
		break;
	default:
		break;
	}
}

static void evil_grant(struct evil_donor *e, struct donor_grant_result *grant, uint32_t *len)
{
	switch (e->evil) {
	case EVIL_GRANT_SHORT:
		*len = 5;
		break;
	case EVIL_GRANT_RANDOM:
		for (unsigned i = 0; i < sizeof(*grant); i++)
			((uint8_t *)grant)[i] = (uint8_t)gn_random();
		break;
	case EVIL_GRANT_SMALL:
		grant->remote.length = 4096;
		break;
	case EVIL_GRANT_LONG:
		grant->remote.length = 16ull << 40;
		break;
	case EVIL_GRANT_TWICE:
		if (e->first.slab)
			*grant = e->first;
		e->first = *grant;
		break;
	case EVIL_GRANT_KEY:
		grant->remote.key ^= 0x5555;
		break;
	case EVIL_STATS_SLAB:
		e->first = *grant;
		break;
	default:
		break;
	}
}

/* Answers a NOTICE call at once, if the donor lies about such. */
static bool evil_notice(struct evil_donor *e, struct gn_rpc_request *request)
{
	struct donor_notice notice = {.left_ms = 1};

	if (e->evil < EVIL_NOTICE_RANDOM)
		return false;
	notice.kind = e->evil == EVIL_NOTICE_TAKE  ? DONOR_TAKE_BACK :
		      e->evil == EVIL_NOTICE_TAKEN ? DONOR_TAKEN :
						     DONOR_LEAVING;
	notice.slab = e->evil == EVIL_NOTICE_LEAVE ? 0 : gn_random();
	if (e->evil == EVIL_NOTICE_RANDOM)
		for (unsigned i = 0; i < sizeof(notice); i++)
			((uint8_t *)&notice)[i] = (uint8_t)gn_random();
	__atomic_add_fetch(&e->notices, 1, __ATOMIC_RELAXED);
	gn_rpc_answer(request, GN_RPC_OK, &notice, sizeof(notice));
	return true;
}

static void evil_call(struct gn_rpc_request *request, void *arg)
{
	struct evil_donor *e = arg;
	const unsigned method = gn_rpc_request_method(request);
	_Alignas(8) uint8_t result[4096], copy[512];
	unsigned status = GN_RPC_FAILED;
	uint32_t len, got = 0;
	const void *data = gn_rpc_request_data(request, &len);

	if (e->evil == EVIL_SILENT || (e->evil == EVIL_GRANT_SILENT && method == DONOR_GRANT)) {
		hold(e, request);
		return;
	}
	if (method == DONOR_NOTICE) {
		if (!evil_notice(e, request))
			hold(e, request); /* the thread must not wait for the donor */
		return;
	}
	if (e->evil == EVIL_STATS_SLAB && method == DONOR_GRANT && e->first.slab) {
		e->first.slab++; /* the same memory under another name */
		__atomic_fetch_add(&e->grants, 1, __ATOMIC_RELAXED);
		gn_rpc_answer(request, GN_RPC_OK, &e->first, sizeof(e->first));
		return;
	}
	len = len < sizeof(copy) ? len : sizeof(copy);
	memcpy(copy, data, len);
	if (!e->real)
		assert_int_equal(gn_rpc_client_open(e->fabric, e->real_addr, NULL, &e->real), 0);
	gn_rpc_call(e->real, method, copy, len, result, sizeof(result), &got,
		    gn_deadline_us(LONG_US), &status);
	if (method == DONOR_HELLO && status == GN_RPC_OK)
		evil_hello(e, (struct donor_hello_result *)(void *)result, &got);
	if (method == DONOR_GRANT && status == GN_RPC_OK) {
		evil_grant(e, (struct donor_grant_result *)(void *)result, &got);
		if (__atomic_fetch_add(&e->grants, 1, __ATOMIC_RELAXED) < LATE_GRANTS &&
		    e->evil == EVIL_GRANT_LATE) {
			hold(e, request);
			return;
		}
	}
	if (method == DONOR_STATS && e->evil == EVIL_STATS_SLAB && status == GN_RPC_OK) {
		struct gn_donor_stats stats = {.size = sizeof(stats)};

		donor_stats_read((uint64_t *)(void *)result, &stats);
		stats.slab_bytes *= 2;
		donor_stats_write((uint64_t *)(void *)result, &stats);
	}
	gn_rpc_answer(request, status, result, got);
}

/* The donor loses its session with its client: the next one begins anew. */
static void evil_peer(void *arg, uint64_t client, bool came)
{
	struct evil_donor *e = arg;

	(void)client;
	if (came)
		return;
	gn_rpc_client_close(e->real);
	e->real = NULL;
}

static void evil_start(struct evil_donor *e, struct vol_world *w, unsigned i, enum evil evil)
{
	const struct gn_rpc_server_opts opts = {
		.size = sizeof(opts), .max_slots = 64, .peer = evil_peer, .peer_arg = e};

	*e = (struct evil_donor){.evil = evil, .real_addr = w->donor[i].addr};
	snprintf(e->addr, sizeof(e->addr), "shm:evil-%llx", (unsigned long long)gn_random());
	assert_int_equal(gn_fabric_open("shm", &e->fabric), 0);
	assert_int_equal(gn_rpc_server_create(e->fabric, e->addr, &opts, &e->server), 0);
	for (unsigned m = DONOR_HELLO; m <= DONOR_END; m++)
		assert_int_equal(gn_rpc_server_handle(e->server, m, evil_call, e), 0);
	assert_int_equal(gn_rpc_server_start(e->server), 0);
	w->addrs[i] = e->addr;
}

static void evil_stop(struct evil_donor *e, struct vol_world *w, unsigned i)
{
	for (unsigned k = 0; k < e->n_held; k++)
		gn_rpc_answer(e->held[k], GN_RPC_FAILED, NULL, 0);
	gn_rpc_server_destroy(e->server);
	assert_null(e->real);
	assert_int_equal(gn_fabric_close(e->fabric), 0);
	w->addrs[i] = w->donor[i].addr;
}

static const char *evil_name(enum evil evil)
{
	static const char *const names[EVILS] = {
		[EVIL_NOT] = "not",
		[EVIL_SILENT] = "silent",
		[EVIL_SHORT] = "short hello",
		[EVIL_VERSION] = "other version",
		[EVIL_NO_SLAB] = "slabs of no bytes",
		[EVIL_ODD_SLAB] = "odd slabs",
		[EVIL_HUGE_SLAB] = "huge slabs",
		[EVIL_NO_DATA] = "no data address",
		[EVIL_WRONG_DATA] = "wrong data address",
		[EVIL_GRANT_SILENT] = "grants are not answered",
		[EVIL_GRANT_SHORT] = "short grants",
		[EVIL_GRANT_RANDOM] = "random grants",
		[EVIL_GRANT_SMALL] = "small slabs",
		[EVIL_GRANT_LONG] = "long slabs",
		[EVIL_GRANT_TWICE] = "a slab twice",
		[EVIL_GRANT_KEY] = "wrong keys",
		[EVIL_GRANT_LATE] = "answers are lost",
		[EVIL_STATS_SLAB] = "two sizes",
		[EVIL_NOTICE_RANDOM] = "random notices",
		[EVIL_NOTICE_TAKE] = "wants unknown slabs back",
		[EVIL_NOTICE_TAKEN] = "took unknown slabs",
		[EVIL_NOTICE_LEAVE] = "always leaves",
	};

	return names[evil];
}

/* Data are never wrong, whatever the donor says; a request may fail only where a copy is missing. */
static void use_volume(struct vol_world *w)
{
	static uint8_t bytes[BYTES], got[BYTES];

	fill(bytes, BYTES, 5);
	assert_int_equal(gn_vol_write(w->vol, bytes, BYTES, 0, 0), 0);
	assert_int_equal(gn_vol_read(w->vol, got, BYTES, 0), 0);
	assert_memory_equal(got, bytes, BYTES);
	assert_int_equal(gn_vol_flush(w->vol), 0);
}

/* One of three donors is hostile, two copies: it is not needed. */
static void run_evil(enum evil evil)
{
	struct evil_donor e;
	struct gn_vol_opts opts;
	struct vol_world w;
	uint64_t begin_ns;
	int rc;

	world_open(&w, 3, 6);
	evil_start(&e, &w, 0, evil);
	opts = vol_opts(&w, BYTES, 2);
	opts.timeout_us = evil == EVIL_GRANT_SILENT ? SILENT_US : CREATE_US;
	opts.verify = evil == EVIL_GRANT_TWICE; /* such a donor has wrong bytes */
	opts.detect_us = 30000;
	opts.lost_us = 300000;
	begin_ns = gn_now_ns();
	rc = gn_vol_create(w.fabric, &opts, &w.vol);
	printf("# %s: %s%s\n", evil_name(evil), rc ? gn_error() : "a volume", rc ? "" : " is made");
	assert_true(gn_now_ns() - begin_ns < TIMELY_NS);
	if (!rc) {
		use_volume(&w);
		if (evil >= EVIL_NOTICE_RANDOM)
			gn_sleep_us(NOTICES_US);
		use_volume(&w);
	} else {
		assert_non_null(strstr(gn_error(), e.addr)); /* names the donor */
		w.vol = NULL;
	}
	begin_ns = gn_now_ns();
	assert_int_equal(gn_vol_destroy(w.vol), 0);
	assert_true(gn_now_ns() - begin_ns < TIMELY_NS);
	w.vol = NULL;
	evil_stop(&e, &w, 0);
	world_close(&w);
}

/* The slabs of answers that were lost are found, and used or returned. */
static void test_grant_late(void **state)
{
	struct gn_donor_stats donor = {.size = sizeof(donor)};
	struct gn_vol_stats s;
	struct evil_donor e;
	struct gn_vol_opts opts;
	struct vol_world w;

	(void)state;
	world_open(&w, 2, 6);
	evil_start(&e, &w, 0, EVIL_GRANT_LATE);
	opts = vol_opts(&w, BYTES, 2);
	vol_open(&w, &opts);
	assert_true(e.grants > LATE_GRANTS);
	use_volume(&w);
	VOL_AWAIT(&w, s,
		  gn_donor_server_stats(w.donor[0].server, &donor) == 0 && !s.donors[0].spare &&
			  donor.granted == s.donors[0].copies);
	assert_int_equal(gn_vol_destroy(w.vol), 0);
	w.vol = NULL;
	evil_stop(&e, &w, 0);
	world_close(&w);
}

/* Slabs that cannot be used are returned, and others are not asked for without a pause. */
static void test_stats_slab(void **state)
{
	struct gn_donor_stats donor = {.size = sizeof(donor)};
	struct evil_donor e;
	struct gn_vol_opts opts;
	struct vol_world w;
	int rc;

	(void)state;
	world_open(&w, 1, 6);
	evil_start(&e, &w, 0, EVIL_STATS_SLAB);
	opts = vol_opts(&w, BYTES, 1);
	opts.timeout_us = SILENT_US;
	rc = gn_vol_create(w.fabric, &opts, &w.vol);
	printf("# %s, %u grants\n", gn_error(), e.grants);
	assert_true(rc < 0);
	assert_true(e.grants < WRONG_GRANTS);
	assert_int_equal(gn_donor_server_stats(w.donor[0].server, &donor), 0);
	assert_int_equal(donor.granted, 0);
	w.vol = NULL;
	evil_stop(&e, &w, 0);
	world_close(&w);
}

#define TEST(name, evil)                      \
	static void test_##name(void **state) \
	{                                     \
		(void)state;                  \
		run_evil(evil);               \
	}

TEST(not, EVIL_NOT)
TEST(silent, EVIL_SILENT)
TEST(short_hello, EVIL_SHORT)
TEST(version, EVIL_VERSION)
TEST(no_slab, EVIL_NO_SLAB)
TEST(odd_slab, EVIL_ODD_SLAB)
TEST(huge_slab, EVIL_HUGE_SLAB)
TEST(no_data, EVIL_NO_DATA)
TEST(wrong_data, EVIL_WRONG_DATA)
TEST(grant_silent, EVIL_GRANT_SILENT)
TEST(grant_short, EVIL_GRANT_SHORT)
TEST(grant_random, EVIL_GRANT_RANDOM)
TEST(grant_small, EVIL_GRANT_SMALL)
TEST(grant_long, EVIL_GRANT_LONG)
TEST(grant_twice, EVIL_GRANT_TWICE)
TEST(grant_key, EVIL_GRANT_KEY)
TEST(notice_random, EVIL_NOTICE_RANDOM)
TEST(notice_take, EVIL_NOTICE_TAKE)
TEST(notice_taken, EVIL_NOTICE_TAKEN)
TEST(notice_leave, EVIL_NOTICE_LEAVE)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not),	      cmocka_unit_test(test_silent),
		cmocka_unit_test(test_short_hello),   cmocka_unit_test(test_version),
		cmocka_unit_test(test_no_slab),	      cmocka_unit_test(test_odd_slab),
		cmocka_unit_test(test_huge_slab),     cmocka_unit_test(test_no_data),
		cmocka_unit_test(test_wrong_data),    cmocka_unit_test(test_grant_silent),
		cmocka_unit_test(test_grant_short),   cmocka_unit_test(test_grant_random),
		cmocka_unit_test(test_grant_small),   cmocka_unit_test(test_grant_long),
		cmocka_unit_test(test_grant_twice),   cmocka_unit_test(test_grant_key),
		cmocka_unit_test(test_notice_random), cmocka_unit_test(test_notice_take),
		cmocka_unit_test(test_notice_taken),  cmocka_unit_test(test_notice_leave),
		cmocka_unit_test(test_grant_late),    cmocka_unit_test(test_stats_slab),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
