/* SPDX-License-Identifier: MIT */
/*
 * Strangers and a responder's datagrams: datagrams that are longer than any request, with the right
 * qkey and with wrong ones, and a hello that names an address where nobody is. An honest requester asks
 * by datagrams on one connection all the while: it never ends, and no request waits for a stranger. On
 * Soft-RoCE with GANNET_MSG_ADDR=verbs:HOST:PORT.
 */
#include "fuzz.h"
#include "msg_raw.h"

#define OLD_QKEY  0x67736d67u /* what every datagram qp had once */
#define DATAGRAMS 300u
#define GREETINGS 4u
#define STALL_NS  (unit_slow() ? 3000000000u : 700000000u) /* of a resolution: a second and more */

static const uint8_t nowhere[16] = {[10] = 0xff, 0xff, 10, 77, 0, 99};

/* ---- too long ---- */

static int send_long(struct raw *raw, uint32_t qkey, uint32_t len)
{
	const struct gn_sge sge = {gn_mem_addr(raw->ep.mem), len, gn_mr_lkey(raw->ep.mr)};
	const uint64_t until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_wc wc;
	struct gn_wr wr;
	int n;

	gn_wr_ud(&wr, 0, &sge, raw->ah, raw->welcome.ud.qpn, qkey, GN_SIGNALED);
	EXPECT(gn_post_send(raw->ud, &wr, NULL) == 0);
	do
		n = gn_cq_wait(raw->ep.cq, &wc, 1, until_ns, "a datagram to leave");
	while (n == 1 && wc.qp != raw->ud);
	EXPECT(n == 1 && wc.status == GN_WC_OK);
	return 0;
}

static int stranger_sends(struct world *w, struct gn_fabric *fabric)
{
	const struct gn_ud_addr *to;
	struct gn_attr attr = {.size = sizeof(attr)};
	struct msg_hello hello;
	struct raw raw;

	EXPECT(gn_fabric_query(fabric, &attr) == 0);
	EXPECT(raw_make(&raw, fabric) == 0);
	hello = raw_hello(&raw, GN_MSG_UD);
	EXPECT(raw_greet(&raw, w->addr, &hello) == 0);
	to = &raw.welcome.ud;
	EXPECT(to->qkey != OLD_QKEY && to->qkey != 0);
	EXPECT(gn_ah_create(raw.ud, to, &raw.ah) == 0);
	for (unsigned i = 0; i < DATAGRAMS; i++) {
		const uint32_t keys[] = {to->qkey, to->qkey, to->qkey + 1, OLD_QKEY};
		const uint32_t len = i % 3 ? attr.ud_mtu : 1 + fuzz_pick(attr.ud_mtu);

		EXPECT(send_long(&raw, keys[i % 4], len) == 0);
		if (i % 16 == 0)
			gn_sleep_us(100);
	}
	raw_free(&raw);
	return 0;
}

static int too_long(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct honest h;

	if (client)
		return attack_beside_honest(w, fabric, stranger_sends);
	EXPECT(honest_during_attack(&h, w, fabric) == 0);
	for (unsigned i = 0; i < 20; i++)
		EXPECT(honest_ask(&h) == 0);
	gn_msg_requester_destroy(h.requester);
	return 0;
}

static void test_too_long(void **state)
{
	struct world w = {.program = too_long,
			  .clients = 2,
			  .protocol = GN_MSG_UD,
			  .opts = {.max_request = 16, .max_value = 16}};

	(void)state;
	fuzz_begin();
	run_where(&w, REAL);
	assert_int_equal(w.stats.resets, 0);
	for (unsigned seed = 1; seed <= 5 && !given_addr(); seed++) {
		simulate(&w, "cx3-roce", 0, seed, NULL);
		assert_int_equal(w.stats.resets, 0);
	}
}

/* ---- a hello from nowhere ---- */

/* The hello is accepted or refused at once; nothing is sent to the address it names. */
static int stranger_greets(struct world *w, struct gn_fabric *fabric)
{
	for (unsigned i = 0; i < GREETINGS; i++) {
		struct msg_hello hello;
		struct raw raw;

		EXPECT(raw_make(&raw, fabric) == 0);
		hello = raw_hello(&raw, GN_MSG_UD);
		memcpy(hello.ud.gid, nowhere, sizeof(nowhere));
		hello.ud.gid[15] = (uint8_t)(nowhere[15] + i);
		raw_greet(&raw, w->addr, &hello);
		raw_free(&raw);
	}
	return 0;
}

static int from_nowhere(struct world *w, struct gn_fabric *fabric, unsigned client)
{
	struct honest h;

	if (client)
		return attack_beside_honest(w, fabric, stranger_greets);
	EXPECT(honest_during_attack(&h, w, fabric) == 0);
	printf("# %s: %llu honest requests, the slowest took %llu us\n", w->profile,
	       (unsigned long long)h.asked, (unsigned long long)h.worst_ns / 1000);
	EXPECT(h.worst_ns < STALL_NS);
	gn_msg_requester_destroy(h.requester);
	return 0;
}

static void test_from_nowhere(void **state)
{
	struct world w = {.program = from_nowhere,
			  .clients = 2,
			  .protocol = GN_MSG_WRITE_WRITE,
			  .opts = {.max_conns = 8, .max_pending = 16}};

	(void)state;
	gn_log_to(fuzz_be_silent, NULL);
	run_where(&w, EVERYWHERE);
	gn_log_to(NULL, NULL);
}

/* With the name of a case, only that one. */
int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_too_long),
		cmocka_unit_test(test_from_nowhere),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
