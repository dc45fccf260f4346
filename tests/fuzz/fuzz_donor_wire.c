/* SPDX-License-Identifier: MIT */
/*
 * What takes apart bytes that a donor's client wrote: control requests and the private data of data
 * connections. They are fed with ours, changed at random and cut off; they must not look outside of
 * what they are given, and what they accept must be within the limits that the donor relies on. Then a
 * donor is called with such requests, beside a client that means well.
 */
#include "../unit/donor_world.h"
#include "fuzz.h"

#define N	   4096u
#define BYTES_MAX  128u
#define EVIL_CALLS 8u

/* As long as it is, to the byte: whoever looks further is caught. */
static uint8_t *exactly(const void *from, uint32_t len)
{
	uint8_t *copy = malloc(len ? len : 1);

	assert_non_null(copy);
	if (len)
		memcpy(copy, from, len);
	return copy;
}

static void change(uint8_t *bytes, uint32_t len)
{
	const uint32_t word = fuzz_strange(), at = fuzz_pick(len);

	if (fuzz_pick(2))
		bytes[at] ^= (uint8_t)(1u << fuzz_pick(8));
	else
		memcpy(bytes + at, &word, len - at < 4 ? len - at : 4);
}

/* Our bytes with some changes, mostly as long as they were; to be freed. */
static uint8_t *changed(const void *ours, uint32_t size, uint32_t *len)
{
	uint8_t bytes[BYTES_MAX] = {0};

	assert_true(size <= sizeof(bytes));
	memcpy(bytes, ours, size);
	for (uint32_t i = fuzz_pick(4); i > 0; i--)
		change(bytes, size);
	*len = fuzz_pick(8) ? size : fuzz_pick(sizeof(bytes));
	return exactly(bytes, *len);
}

static void draw_owner(char owner[GN_DONOR_OWNER])
{
	const uint32_t len = fuzz_pick(GN_DONOR_OWNER + 1);

	memset(owner, 0, GN_DONOR_OWNER);
	for (uint32_t i = 0; i < len; i++)
		owner[i] = (char)(fuzz_pick(16) ? '!' + fuzz_pick(94) : fuzz_any());
}

static bool is_text(const char owner[GN_DONOR_OWNER])
{
	const size_t len = strnlen(owner, GN_DONOR_OWNER);

	for (size_t i = 0; i < len; i++)
		if (owner[i] <= ' ' || owner[i] > '~')
			return false;
	return len < GN_DONOR_OWNER;
}

/* ---- parsers ---- */

static void feed_hello(void)
{
	struct donor_hello hello = {.version = DONOR_VERSION, .resume = fuzz_pick(2)}, out;
	uint8_t *bytes;
	uint32_t len;

	draw_owner(hello.owner);
	bytes = changed(&hello, sizeof(hello), &len);
	if (donor_hello_read(bytes, len, &out))
		assert_true(len == sizeof(out) && is_text(out.owner) && out.resume <= 1);
	free(bytes);
}

static void feed_share(void)
{
	struct donor_share_request out, share = {.slab = fuzz_any(),
						 .offset = fuzz_pick(17) * N,
						 .length = fuzz_pick(17) * N,
						 .rights = fuzz_pick(4)};
	uint8_t *bytes;
	uint32_t len;

	bytes = changed(&share, sizeof(share), &len);
	if (donor_share_read(bytes, len, SLAB, &out)) {
		assert_true(out.length && out.length <= SLAB && out.offset <= SLAB - out.length);
		assert_true(out.offset % N == 0 && out.length % N == 0);
		assert_true(out.rights >= 1 && out.rights <= 3);
	}
	free(bytes);
}

static void feed_list(void)
{
	struct donor_list_request out, list = {.after = fuzz_any()};
	uint8_t *bytes;
	uint32_t len;

	draw_owner(list.owner);
	bytes = changed(&list, sizeof(list), &len);
	if (donor_list_read(bytes, len, &out))
		assert_true(is_text(out.owner));
	free(bytes);
}

static void feed_attach(void)
{
	struct io_attach out, attach = {.magic = IO_ATTACH_MAGIC,
					.version = IO_ATTACH_VERSION,
					.kind = (uint8_t)(1 + fuzz_pick(2)),
					.channel = fuzz_pick(IO_CHANNELS_MAX),
					.generation = 1 + fuzz_pick(9)};
	uint8_t *bytes;
	uint32_t len;

	bytes = changed(&attach, sizeof(attach), &len);
	if (donor_attach_read(bytes, len, &out) == IO_ATTACH_OK)
		assert_true(out.channel < IO_CHANNELS_MAX && out.generation &&
			    (out.kind == IO_ATTACH_SESSION || out.kind == IO_ATTACH_SHARE));
	free(bytes);
}

static void feed_addr(void)
{
	char name[DONOR_DATA_NAME], addr[DONOR_ADDR_MAX], given[DONOR_DATA_NAME];

	for (unsigned i = 0; i < sizeof(given); i++)
		given[i] = (char)(fuzz_pick(40) ? "a:.0 9/"[fuzz_pick(7)] : 0);
	if (!donor_data_addr("shm:x", given, addr))
		assert_true(strlen(addr) < sizeof(addr) && !strchr(addr + 4, ':'));
	given[sizeof(given) - 1] = '\0';
	if (!donor_data_name(given, name))
		assert_true(strlen(name) > 0 && strlen(name) < sizeof(name));
}

static void test_parsers(void **state)
{
	const uint64_t until_ns = fuzz_begin();

	(void)state;
	while (gn_now_ns() < until_ns)
		for (unsigned i = 0; i < 1000; i++) {
			feed_hello();
			feed_share();
			feed_list();
			feed_attach();
			feed_addr();
		}
}

/* ---- a donor ---- */

struct evil_call {
	struct gn_rpc_op op;
	uint8_t bytes[BYTES_MAX], result[4096];
	unsigned *ended;
};

static void evil_ended(struct gn_rpc_op *op)
{
	++*((struct evil_call *)op->arg)->ended;
}

/* Requests that are nearly right, and things that belong to the honest client. */
static uint32_t draw_request(uint8_t bytes[BYTES_MAX], const struct donor_raw *honest,
			     uint64_t slab)
{
	const struct donor_hello hello = {.version = DONOR_VERSION,
					  .resume = fuzz_pick(2),
					  .incarnation = honest->hello.incarnation,
					  .owner = "evil"};
	const struct donor_share_request share = {slab + fuzz_pick(5), fuzz_pick(3) * N,
						  fuzz_pick(3) * N, fuzz_pick(5), 0};
	const uint64_t id = slab + fuzz_pick(5);
	uint32_t len;

	memset(bytes, 0, BYTES_MAX);
	switch (fuzz_pick(4)) {
	case 0:
		memcpy(bytes, &hello, len = sizeof(hello));
		break;
	case 1:
		memcpy(bytes, &share, len = sizeof(share));
		break;
	case 2:
		memcpy(bytes, &id, len = sizeof(id));
		break;
	default:
		len = sizeof(struct donor_list_request);
	}
	if (fuzz_pick(3) == 0)
		change(bytes, len);
	return fuzz_pick(8) ? len : fuzz_pick(BYTES_MAX);
}

static int evil_round(struct donor_world *w, struct gn_fabric *fabric,
		      const struct donor_raw *honest, uint64_t slab)
{
	static struct evil_call calls[EVIL_CALLS];
	unsigned ended = 0, begun = 0;
	struct donor_raw evil;

	EXPECT(raw_connect(w, fabric, &evil) == 0);
	if (fuzz_pick(2))
		raw_hello(&evil, "evil", NULL, 0);
	for (unsigned i = 0; i < EVIL_CALLS; i++) {
		struct evil_call *c = &calls[i];

		c->ended = &ended;
		c->op = (struct gn_rpc_op){.method = 1 + fuzz_pick(DONOR_END),
					   .request = c->bytes,
					   .request_len = draw_request(c->bytes, honest, slab),
					   .result = c->result,
					   .result_room = fuzz_pick(4) ? sizeof(c->result) : 16,
					   .deadline_ns = gn_deadline_us(1000 + fuzz_pick(20000)),
					   .done = evil_ended,
					   .arg = c};
		begun += gn_rpc_submit(evil.rpc, &c->op) == 0;
	}
	gn_rpc_flush(evil.rpc);
	while (fuzz_pick(8) && ended < begun)
		gn_rpc_wait(evil.rpc, gn_deadline_us(500));
	raw_close(&evil);
	EXPECT(ended == begun);
	return 0;
}

static int donor_program(struct donor_world *w, struct gn_fabric *fabric)
{
	const uint64_t until_ns = fuzz_begin();
	struct raw_endpoint e = {.ctx = NULL};
	struct donor_grant_result slab;
	struct io_attach_reply reply;
	struct donor_raw honest;
	struct io_attach a;

	EXPECT(raw_open(w, fabric, &honest) == 0);
	EXPECT(raw_grant(&honest, &slab) == GN_RPC_OK);
	a = raw_attach_request(&honest, 0, 1);
	EXPECT(raw_attach(&honest, &a, &e, &reply) == IO_ATTACH_OK);
	EXPECT(raw_write_seed(&e, &slab.remote, 0, SLAB, 5) == GN_WC_OK);
	while (gn_now_ns() < until_ns)
		EXPECT(evil_round(w, fabric, &honest, slab.slab) == 0);
	EXPECT(raw_has_seed(&e, &slab.remote, 0, SLAB, 5));
	RAW_AWAIT(&honest, sessions, 1);
	RAW_AWAIT(&honest, granted, 1);
	raw_endpoint_end(&e);
	raw_close(&honest);
	return 0;
}

static void test_donor(void **state)
{
	struct donor_world w = {.program = donor_program,
				.opts = {.lease_us = 10000, .memory = 8 * SLAB}};

	(void)state;
	gn_log_to(fuzz_be_silent, NULL);
	assert_int_equal(donor_run_here(&w), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_parsers),
					   cmocka_unit_test(test_donor)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
