/* SPDX-License-Identifier: MIT */
/*
 * The datagram port, which datagram calls and msg's UD protocol share: sends from the port's
 * buffers and from the caller's memory, completions that cover unsignaled sends, resets. And the
 * round trip times that both measure.
 */
#include <errno.h>
#include <string.h>

#include "dgram/port.h"
#include "dgram/rtt.h"
#include "unit.h"

#define RECEIVES  64u
#define SENDS	  48u
#define BYTES	  1000u
#define INLINED	  64u
#define CHAIN	  8u
#define SIGNAL	  16u
#define LIMIT_US  5000000u
#define MS_NS	  1000000u
#define MANY	  500u
#define CQ_EXTRAS 16u

/* A port that sends to itself, from memory of the test. */
struct fixture {
	struct gn_fabric *fabric;
	struct link_loop loop;
	struct dgram_port port;
	struct gn_mem *mem;
	struct gn_mr *mr;
	struct gn_ah *ah;
	struct gn_ud_addr addr;
	uint8_t *data;
};

static void no_datagram(struct link_loop *loop, const struct gn_wc *wc)
{
	(void)loop, (void)wc;
}

static bool no_conn(struct link_conn *conn)
{
	(void)conn;
	return true;
}

static const struct link_ops ops = {.datagram = no_datagram, .destroy = no_conn};

static void fixture_open(struct fixture *f, uint32_t buffers)
{
	const struct port_opts opts = {.datagram_bytes = BYTES,
				       .receives = RECEIVES,
				       .sends = SENDS,
				       .buffers = buffers,
				       .max_inline = INLINED,
				       .chain = CHAIN,
				       .signal_every = SIGNAL};
	struct link_loop_opts loop = {.completions = RECEIVES + CQ_EXTRAS, .maintain_every = 1};

	*f = (struct fixture){0};
	assert_int_equal(gn_fabric_open("shm", &f->fabric), 0);
	loop.fabric = f->fabric;
	assert_int_equal(link_loop_open(&f->loop, &ops, &loop), 0);
	assert_int_equal(port_open(&f->port, &f->loop, &opts), 0);
	assert_int_equal(gn_mem_size(f->port.mem), port_bytes(&f->loop, &opts));
	assert_int_equal(gn_mem_alloc(f->fabric, 2 * BYTES, 0, &f->mem), 0);
	assert_int_equal(gn_mr_register(f->port.pd, f->mem, 0, 2 * BYTES, GN_LOCAL_WRITE, &f->mr),
			 0);
	f->data = gn_mem_addr(f->mem);
	assert_int_equal(gn_qp_ud_addr(f->port.qp, &f->addr), 0);
	assert_int_equal(gn_ah_create(f->port.qp, &f->addr, &f->ah), 0);
}

static void fixture_close(struct fixture *f)
{
	gn_qp_error(f->port.qp);
	gn_ah_destroy(f->ah);
	gn_mr_deregister(f->mr);
	gn_mem_free(f->mem);
	port_close(&f->port);
	link_loop_close(&f->loop);
	assert_int_equal(gn_fabric_close(f->fabric), 0);
}

static struct port_datagram datagram(struct fixture *f, uint32_t len)
{
	return (struct port_datagram){.data = f->data,
				      .len = len,
				      .lkey = gn_mr_lkey(f->mr),
				      .ah = f->ah,
				      .qpn = f->addr.qpn,
				      .qkey = f->addr.qkey};
}

/* Takes a datagram; the receive is posted again. */
static void expect_datagram(struct fixture *f, const void *data, uint32_t len, uint32_t imm)
{
	const uint64_t limit_ns = gn_deadline_us(LIMIT_US);
	const uint8_t *bytes;
	struct gn_wc wc;
	uint32_t got;

	while (gn_cq_poll(f->loop.cq, &wc, 1) != 1)
		assert_true(gn_now_ns() < limit_ns);
	bytes = port_received(&f->port, &wc, &got);
	assert_non_null(bytes);
	assert_int_equal(got, len);
	assert_memory_equal(bytes, data, len);
	assert_int_equal(wc.flags & GN_WC_IMM ? wc.imm : 0, imm);
	port_repost(&f->port, &wc);
	port_flush_receives(&f->port);
}

static void await_sent(struct fixture *f, uint64_t sequence)
{
	const uint64_t limit_ns = gn_deadline_us(LIMIT_US);

	while (!port_sent(&f->port, sequence))
		assert_true(gn_now_ns() < limit_ns);
}

/* ---- sends ---- */

/* Short ones go inline, all arrive as they are, with their immediate data if they have some. */
static void test_from_memory(void **state)
{
	static const uint32_t lens[4] = {1, INLINED, INLINED + 1, BYTES};
	struct fixture f;

	(void)state;
	fixture_open(&f, 0);
	for (unsigned i = 0; i < 4; i++) {
		struct port_datagram d = datagram(&f, lens[i]);

		memset(f.data, 'a' + (int)i, BYTES);
		d.imm = i % 2 ? 7 + i : 0;
		assert_int_equal(port_inlines(&f.port, d.len), lens[i] <= INLINED);
		assert_int_equal(port_send_from(&f.port, &d), 0);
		assert_int_equal(port_posted(&f.port), i);
		port_flush_sends(&f.port);
		assert_int_equal(port_posted(&f.port), i + 1);
		expect_datagram(&f, f.data, d.len, d.imm);
	}
	assert_int_equal(f.port.stats.sent, 4);
	fixture_close(&f);
}

/* An unsignaled send counts as complete with the next signaled one: each 16th, or on demand. */
static void test_signals(void **state)
{
	struct port_datagram d;
	struct fixture f;

	(void)state;
	fixture_open(&f, 0);
	d = datagram(&f, BYTES);
	for (unsigned i = 0; i < SIGNAL - 1; i++)
		assert_int_equal(port_send_from(&f.port, &d), 0);
	port_flush_sends(&f.port);
	assert_int_equal(port_signaled(&f.port), 0);
	for (unsigned i = 0; i < SIGNAL - 1; i++)
		expect_datagram(&f, f.data, BYTES, 0);
	assert_false(port_sent(&f.port, 1));
	assert_int_equal(port_send_from(&f.port, &d), 0);
	assert_int_equal(port_signaled(&f.port), SIGNAL);
	port_flush_sends(&f.port);
	await_sent(&f, SIGNAL);
	expect_datagram(&f, f.data, BYTES, 0);
	d.signal = true;
	assert_int_equal(port_send_from(&f.port, &d), 0);
	assert_int_equal(port_signaled(&f.port), SIGNAL + 1);
	port_flush_sends(&f.port);
	await_sent(&f, SIGNAL + 1);
	fixture_close(&f);
}

/* More sends than the queue has entries, in full chains: none is refused, and none is lost. */
static void test_chains(void **state)
{
	struct fixture f;

	(void)state;
	fixture_open(&f, 0);
	for (unsigned i = 0; i < MANY; i += CHAIN) {
		for (unsigned k = 0; k < CHAIN; k++) {
			struct port_datagram d = datagram(&f, INLINED + k);

			d.imm = i + k + 1;
			assert_int_equal(port_send_from(&f.port, &d), 0);
		}
		assert_int_equal(f.port.n_chain, 0); /* a full chain is posted */
		for (unsigned k = 0; k < CHAIN; k++)
			expect_datagram(&f, f.data, INLINED + k, i + k + 1);
	}
	assert_int_equal(f.port.stats.doorbells, f.port.stats.sent / CHAIN);
	fixture_close(&f);
}

/* The port's buffers and the caller's on one port: every buffer comes back. */
static void test_both(void **state)
{
	struct fixture f;
	uint16_t buffer;

	(void)state;
	fixture_open(&f, 4);
	for (unsigned i = 0; i < MANY; i++) {
		struct port_datagram d = datagram(&f, BYTES);
		const uint32_t len = i % 3 ? INLINED : BYTES;

		assert_int_equal(port_send_from(&f.port, &d), 0);
		assert_int_equal(port_take(&f.port, &buffer), 0);
		memset(port_buffer(&f.port, buffer), (int)i, len);
		port_send(&f.port, buffer, len, f.ah, f.addr.qpn, f.addr.qkey);
		port_flush_sends(&f.port);
		expect_datagram(&f, f.data, BYTES, 0);
		expect_datagram(&f, port_buffer(&f.port, buffer), len, 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(port_take(&f.port, &buffer), 0);
	assert_int_equal(port_take(&f.port, &buffer), -EAGAIN);
	fixture_close(&f);
}

/* ---- resets ---- */

/* A broken port refuses sends until it is reset; all sends before count as complete. */
static void test_reset(void **state)
{
	const uint64_t now_ns = gn_now_ns();
	struct port_datagram d;
	struct fixture f;

	(void)state;
	fixture_open(&f, 0);
	d = datagram(&f, BYTES);
	assert_false(port_maintain(&f.port, now_ns));
	assert_int_equal(port_send_from(&f.port, &d), 0);
	assert_int_equal(gn_qp_error(f.port.qp), 0);
	f.port.broken = true;
	assert_int_equal(port_send_from(&f.port, &d), -EAGAIN);
	assert_false(port_sent(&f.port, 1));
	assert_true(port_maintain(&f.port, now_ns));
	assert_true(port_sent(&f.port, 1));
	assert_int_equal(port_signaled(&f.port), 1);
	assert_int_equal(port_send_from(&f.port, &d), 0);
	port_flush_sends(&f.port);
	expect_datagram(&f, f.data, BYTES, 0);
	f.port.broken = true;
	assert_false(port_maintain(&f.port, now_ns + 9 * MS_NS));
	assert_true(port_maintain(&f.port, now_ns + 10 * MS_NS));
	assert_int_equal(f.port.stats.resets, 2);
	fixture_close(&f);
}

/* A queue that cannot hold the unsignaled sends would never report a completion. */
static void test_too_few(void **state)
{
	const struct port_opts opts = {
		.datagram_bytes = BYTES, .receives = RECEIVES, .sends = SIGNAL};
	struct dgram_port port;
	struct fixture f;

	(void)state;
	fixture_open(&f, 0);
	assert_int_equal(port_open(&port, &f.loop, &opts), -ENOSPC);
	fixture_close(&f);
}

/* ---- round trip times ---- */

static void test_rto(void **state)
{
	const struct dgram_rto_bounds bounds = {
		.min_ns = 100000, .max_ns = 2000000000, .var_divisor = 4};
	struct dgram_rtt rtt = {0};

	(void)state;
	for (unsigned i = 0; i < 100; i++)
		dgram_rtt_measured(&rtt, 10000);
	assert_int_equal(dgram_rto_ns(&rtt, bounds), bounds.min_ns);
	for (unsigned i = 0; i < 100; i++)
		dgram_rtt_measured(&rtt, MS_NS);
	/* Without variation twice the round trip, and for datagram calls five times. */
	assert_in_range(dgram_rto_ns(&rtt, bounds), 19 * MS_NS / 10, 21 * MS_NS / 10);
	dgram_rtt_sample(&rtt, MS_NS, 100000);
	assert_in_range(rtt.rto_ns, 49 * MS_NS / 10, 51 * MS_NS / 10);
	/* A peer as slow as the longest timeout, and slower ones. */
	for (unsigned i = 0; i < 100; i++)
		dgram_rtt_measured(&rtt, 1000ull * MS_NS);
	assert_true(dgram_rto_ns(&rtt, bounds) > 1900ull * MS_NS);
	for (unsigned i = 0; i < 100; i++)
		dgram_rtt_measured(&rtt, UINT64_MAX);
	assert_int_equal(dgram_rto_ns(&rtt, bounds), bounds.max_ns);
	assert_int_equal(dgram_rto_doubled(MS_NS, bounds.max_ns), 2 * MS_NS);
	assert_int_equal(dgram_rto_doubled(bounds.max_ns, bounds.max_ns), bounds.max_ns);
}

/* An answer to the first or the last attempt is a sample; the numbers end at 255. */
static void test_samples(void **state)
{
	(void)state;
	assert_true(dgram_rtt_is_sample(0, 0));
	assert_true(dgram_rtt_is_sample(0, 3));
	assert_false(dgram_rtt_is_sample(1, 3));
	assert_true(dgram_rtt_is_sample(3, 3));
	assert_true(dgram_rtt_is_sample(254, 254));
	assert_false(dgram_rtt_is_sample(255, 255));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_from_memory), cmocka_unit_test(test_signals),
		cmocka_unit_test(test_chains),	    cmocka_unit_test(test_both),
		cmocka_unit_test(test_reset),	    cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_rto),	    cmocka_unit_test(test_samples),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
