/* SPDX-License-Identifier: MIT */
/* The monitor of a volume: its wire format, and answers to other processes. */
#include "gannet/rpc.h"
#include "vol/monitor.h"
#include "vol_world.h"

#define BYTES (3u * VOL_SLAB)

static struct gn_vol_stats example(void)
{
	struct gn_vol_stats s;
	uint64_t word = 1;

	memset(&s, 0, sizeof(s));
	for (size_t i = 0; i + 8 <= offsetof(struct gn_vol_stats, donors); i += 8, word++)
		memcpy((char *)&s + i, &word, sizeof(word));
	s.size = sizeof(s);
	s.copies = 2;
	s.n_donors = GN_VOL_DONORS_MAX;
	s.backup_error = -ENOSPC;
	for (uint32_t i = 0; i < s.n_donors; i++) {
		struct gn_vol_donor_stats *d = &s.donors[i];

		snprintf(d->addr, sizeof(d->addr), "shm:donor-%u", i);
		d->state = (enum gn_vol_donor_state)(i % 3);
		d->copies = i + 100;
		d->spare = i + 200;
		d->free_bytes = i + 300;
		d->lost = i + 400;
	}
	return s;
}

/* No member is forgotten. */
static void test_wire(void **state)
{
	_Alignas(8) uint8_t buf[VOL_STATUS_MAX];
	const struct gn_vol_stats s = example();
	struct gn_vol_stats back;
	const uint32_t len = vol_status_write(&s, buf);

	(void)state;
	memset(&back, 0xee, sizeof(back));
	assert_int_equal(len, VOL_STATUS_MAX);
	assert_true(vol_status_read(buf, len, &back));
#define SAME(member) assert_memory_equal(&s.member, &back.member, sizeof(s.member))
	SAME(bytes);
	SAME(extent_bytes);
	SAME(copies);
	SAME(n_donors);
	SAME(extents);
	SAME(with_copies);
	SAME(unused);
	SAME(blocks_written);
	SAME(blocks_lost);
	SAME(repair_bytes);
	SAME(repair_done);
	SAME(requests);
	SAME(failed);
	SAME(copies_lost);
	SAME(copies_made);
	SAME(copies_moved);
	SAME(repaired_bytes);
	SAME(crc_errors);
	SAME(serialised);
	SAME(backup_lag);
	SAME(backup_error);
	SAME(headroom);
	for (unsigned i = 0; i < GN_VOL_DONORS_MAX; i++) {
		assert_string_equal(s.donors[i].addr, back.donors[i].addr);
		SAME(donors[i].state);
		SAME(donors[i].copies);
		SAME(donors[i].spare);
		SAME(donors[i].free_bytes);
		SAME(donors[i].lost);
	}
}

static void refused_with(size_t at, uint8_t byte)
{
	_Alignas(8) uint8_t buf[VOL_STATUS_MAX];
	const struct gn_vol_stats s = example();
	const uint32_t len = vol_status_write(&s, buf);
	struct gn_vol_stats back;

	buf[at] = byte;
	assert_false(vol_status_read(buf, len, &back));
}

static void test_wire_garbage(void **state)
{
	_Alignas(8) uint8_t buf[VOL_STATUS_MAX];
	const struct gn_vol_stats s = example();
	const uint32_t len = vol_status_write(&s, buf);
	struct gn_vol_stats back;
	uint64_t seed = unit_seed();

	(void)state;
	for (uint32_t i = 0; i < len; i++)
		assert_false(vol_status_read(buf, i, &back));
	refused_with(offsetof(struct vol_status, version), VOL_STATUS_VERSION + 1);
	refused_with(offsetof(struct vol_status, n_donors), GN_VOL_DONORS_MAX + 1);
	refused_with(offsetof(struct vol_status, n_donors), GN_VOL_DONORS_MAX - 1);
	refused_with(offsetof(struct vol_status, n_donors) + 3, 0x80);
	refused_with(offsetof(struct vol_status, copies), GN_VOL_COPIES_MAX + 1);
	refused_with(offsetof(struct vol_status, backup_error) + 3, 0x7f);
	refused_with(sizeof(struct vol_status) + offsetof(struct vol_status_donor, state), 3);
	refused_with(sizeof(struct vol_status), 0);		   /* no address */
	refused_with(sizeof(struct vol_status), '\n');		   /* no text */
	memset(buf + sizeof(struct vol_status), 'x', GN_VOL_ADDR); /* no end */
	assert_false(vol_status_read(buf, len, &back));
	for (unsigned i = 0; i < 100000; i++) {
		vol_status_write(&s, buf);
		for (unsigned k = unit_next(&seed) % 8; k-- > 0;)
			buf[unit_next(&seed) % len] = (uint8_t)unit_next(&seed);
		if (!vol_status_read(buf, len, &back))
			continue;
		assert_true(back.n_donors <= GN_VOL_DONORS_MAX);
		assert_true(back.copies <= GN_VOL_COPIES_MAX);
		for (uint32_t d = 0; d < back.n_donors; d++)
			assert_true(strlen(back.donors[d].addr) < GN_VOL_ADDR &&
				    back.donors[d].state <= GN_VOL_DONOR_LEAVING);
	}
}

/* ---- the service ---- */

struct asker {
	struct gn_fabric *fabric;
	struct gn_rpc_client *rpc;
};

static void asker_open(struct asker *a, const char *addr)
{
	assert_int_equal(gn_fabric_open("shm", &a->fabric), 0);
	assert_int_equal(gn_rpc_client_open(a->fabric, addr, NULL, &a->rpc), 0);
}

static void asker_close(struct asker *a)
{
	gn_rpc_client_close(a->rpc);
	assert_int_equal(gn_fabric_close(a->fabric), 0);
}

static int ask(const struct asker *a, struct gn_vol_stats *out)
{
	*out = (struct gn_vol_stats){.size = sizeof(*out)};
	return gn_vol_monitor_query(a->rpc, out, gn_deadline_us(LONG_US));
}

static void test_answers(void **state)
{
	struct gn_vol_monitor *monitor, *second;
	struct gn_vol_stats s, own;
	struct gn_vol_opts opts;
	struct vol_world w;
	struct asker a;
	char addr[64];
	unsigned status;

	(void)state;
	snprintf(addr, sizeof(addr), "shm:monitor-%llx", (unsigned long long)gn_random());
	world_open(&w, 3, 6);
	opts = vol_opts(&w, BYTES, 2);
	opts.detect_us = 30000;
	vol_open(&w, &opts);
	mark_extents(&w);
	assert_int_equal(gn_vol_monitor_create(NULL, w.fabric, addr, 0, &monitor), -EINVAL);
	assert_int_equal(gn_vol_monitor_create(w.vol, NULL, addr, 0, &monitor), -EINVAL);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, NULL, 0, &monitor), -EINVAL);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, addr, 0, NULL), -EINVAL);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, "nowhere", 0, &monitor), -EINVAL);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, addr, 0, &monitor), 0);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, addr, 0, &second), -EADDRINUSE);
	asker_open(&a, addr);
	assert_int_equal(gn_vol_monitor_query(NULL, &s, GN_FOREVER), -EINVAL);
	assert_int_equal(gn_vol_monitor_query(a.rpc, NULL, gn_deadline_us(LONG_US)), -EINVAL);
	assert_int_equal(ask(&a, &s), 0);
	own = vol_stats(&w);
	assert_int_equal(s.bytes, BYTES);
	assert_int_equal(s.with_copies[2], 3);
	assert_int_equal(s.blocks_written, own.blocks_written);
	assert_int_equal(s.n_donors, 3);
	for (unsigned i = 0; i < 3; i++)
		assert_string_equal(s.donors[i].addr, w.addrs[i]);
	/* A request with bytes is none of ours. */
	assert_int_equal(gn_rpc_call(a.rpc, VOL_STATUS, "x", 1, &s, sizeof(s), NULL,
				     gn_deadline_us(LONG_US), &status),
			 0);
	assert_int_equal(status, GN_RPC_FAILED);
	donor_kill(&w, 2);
	VOL_AWAIT(&w, own, own.donors[2].lost && is_whole(&own) && !own.repair_bytes);
	assert_int_equal(ask(&a, &s), 0);
	assert_int_equal(s.donors[2].state, GN_VOL_DONOR_DOWN);
	assert_int_equal(s.copies_made, own.copies_made);
	gn_vol_monitor_destroy(monitor);
	assert_int_equal(ask(&a, &s), -ECONNRESET);
	asker_close(&a);
	gn_vol_monitor_destroy(NULL);
	world_close(&w);
}

static void lying(struct gn_rpc_request *request, void *arg)
{
	uint8_t bytes[VOL_STATUS_MAX];

	(void)arg;
	memset(bytes, 0xff, sizeof(bytes));
	gn_rpc_answer(request, GN_RPC_OK, bytes, sizeof(bytes));
}

/* A server that is no monitor, or lies. */
static void test_no_monitor(void **state)
{
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	struct gn_vol_stats s;
	struct asker a;
	char addr[64];

	(void)state;
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	for (unsigned lies = 0; lies < 2; lies++) {
		snprintf(addr, sizeof(addr), "shm:no-monitor-%llx",
			 (unsigned long long)gn_random());
		assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
		if (lies)
			assert_int_equal(gn_rpc_server_handle(server, VOL_STATUS, lying, NULL), 0);
		assert_int_equal(gn_rpc_server_start(server), 0);
		asker_open(&a, addr);
		assert_int_equal(ask(&a, &s), -EPROTO);
		assert_non_null(strstr(gn_error(), "monitor"));
		asker_close(&a);
		gn_rpc_server_destroy(server);
	}
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* docs/limits.md: connections beyond the limit are refused. */
static void test_connections(void **state)
{
	struct gn_vol_monitor *monitor;
	struct gn_rpc_client *clients[GN_VOL_MONITOR_CLIENTS], *more;
	struct gn_fabric *fabric;
	struct vol_world w;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:monitor-%llx", (unsigned long long)gn_random());
	world_open_vol(&w, 2, 4, BYTES, 1);
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_vol_monitor_create(w.vol, w.fabric, addr, 0, &monitor), 0);
	for (unsigned i = 0; i < GN_VOL_MONITOR_CLIENTS; i++)
		assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &clients[i]), 0);
	assert_int_equal(gn_rpc_client_open(fabric, addr, NULL, &more), -ECONNREFUSED);
	for (unsigned i = 0; i < GN_VOL_MONITOR_CLIENTS; i++)
		gn_rpc_client_close(clients[i]);
	gn_vol_monitor_destroy(monitor);
	assert_int_equal(gn_fabric_close(fabric), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wire),	    cmocka_unit_test(test_wire_garbage),
		cmocka_unit_test(test_answers),	    cmocka_unit_test(test_no_monitor),
		cmocka_unit_test(test_connections),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
