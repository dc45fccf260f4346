/* SPDX-License-Identifier: MIT */
/* The I/O engine: data, merging, windows, deadlines, and connections that break. */
#include "io_world.h"

#define KIB 1024u

/* ---- data ---- */

static int one(struct user *u, enum gn_io_op op, uint64_t offset, void *bytes, uint32_t len,
	       struct gn_io_mem *mem)
{
	const struct gn_io_sge sge = {.addr = bytes, .len_bytes = len, .mem = mem};
	struct gn_io_req req = {
		.op = op, .region = u->region, .offset = offset, .sge = &sge, .n_sge = 1};

	return gn_io_run(u->queue, &req);
}

/* Writes and reads back, within a stripe and across two, from memory of each kind. */
static int program_data(struct world *w, struct gn_fabric *fabric)
{
	static const struct {
		uint64_t offset;
		uint32_t len;
	} ranges[] = {{0, 1},
		      {4096, 4096},
		      {1 << 20, 1 << 20},
		      {(1 << 20) - 100, 200},
		      {(3 << 20) - 1, 2},
		      {(2 << 20) - 4096, 1 << 20},
		      {LENT_BYTES - 1, 1}};
	uint8_t *out = gn_alloc(2 << 20, 4096), *in = out + (1 << 20);
	struct gn_io_mem *mem;
	struct user u;

	EXPECT(out);
	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, out, 2 << 20, &mem) == 0);
	for (unsigned i = 0; i < sizeof(ranges) / sizeof(*ranges); i++)
		for (unsigned kind = 0; kind < 2; kind++) {
			struct gn_io_mem *use = kind ? mem : NULL;

			fill(out, ranges[i].len, i + kind * 100);
			memset(in, 0, ranges[i].len);
			EXPECT(one(&u, GN_IO_WRITE, ranges[i].offset, out, ranges[i].len, use) ==
			       0);
			EXPECT(one(&u, GN_IO_READ, ranges[i].offset, in, ranges[i].len, use) == 0);
			EXPECT(!memcmp(out, in, ranges[i].len));
		}
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(out);
	return 0;
}

static void test_data(void **state)
{
	(void)state;
	for (unsigned mr = 0; mr < GN_IO_MRS; mr++)
		run_everywhere(program_data, &(struct gn_io_opts){.mr = (enum gn_io_mr)mr});
}

/* ---- many at once ---- */

#define BLOCK  512u
#define BLOCKS 1024u
#define DEPTH  64u

/*
 * Random blocks, some of which continue the one before, are written by lists and read back; each
 * holds what was written to it last.
 */
static int program_blocks(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *bytes = gn_alloc(DEPTH * BLOCK, 4096);
	uint32_t *version = gn_alloc(BLOCKS * sizeof(*version), 0);
	struct gn_io_req reqs[DEPTH], *list[DEPTH], *ended[DEPTH];
	struct gn_io_sge sges[DEPTH];
	uint64_t random = w->seed;
	struct gn_io_mem *mem;
	struct user u;

	EXPECT(user_open(&u, w, fabric) == 0);
	EXPECT(gn_io_mem_register(u.io, bytes, DEPTH * BLOCK, &mem) == 0);
	for (unsigned round = 0; round < 64; round++) {
		const enum gn_io_op op = round % 2 ? GN_IO_READ : GN_IO_WRITE;
		unsigned block[DEPTH], n = 0, got = 0;

		while (n < DEPTH) {
			const bool next = n && unit_next(&random) % 2;
			unsigned b = next ? block[n - 1] + 1 : unit_next(&random) % BLOCKS, i = 0;

			b %= BLOCKS;
			while (i < n && block[i] != b)
				i++;
			if (i < n)
				continue; /* requests that overlap have no order */
			block[n] = b;
			if (op == GN_IO_WRITE)
				fill(bytes + n * BLOCK, BLOCK, b + ++version[b] * BLOCKS);
			sges[n] = (struct gn_io_sge){
				.addr = bytes + n * BLOCK, .len_bytes = BLOCK, .mem = mem};
			/* They stand on both sides of the borders of stripes. */
			reqs[n] = (struct gn_io_req){.op = op,
						     .region = u.region,
						     .offset = (2 << 20) - BLOCKS * BLOCK / 2 +
							       100 + b * BLOCK,
						     .sge = &sges[n],
						     .n_sge = 1};
			list[n] = &reqs[n];
			n++;
		}
		EXPECT(gn_io_submit(u.queue, list, n) == (int)n);
		while (got < n) {
			int rc =
				gn_io_wait(u.queue, ended, DEPTH, gn_deadline_us(UNIT_PATIENCE_US));

			EXPECT(rc > 0);
			got += (unsigned)rc;
		}
		for (unsigned i = 0; i < n; i++) {
			EXPECT(reqs[i].status == 0);
			EXPECT(op == GN_IO_WRITE || !version[block[i]] ||
			       is_filled(bytes + i * BLOCK, BLOCK,
					 block[i] + version[block[i]] * BLOCKS));
		}
	}
	EXPECT(gn_io_mem_deregister(mem) == 0);
	EXPECT(user_close(&u) == 0);
	gn_free(version);
	gn_free(bytes);
	return 0;
}

static void test_blocks(void **state)
{
	(void)state;
	for (unsigned b = 0; b < GN_IO_BATCHINGS; b++)
		for (unsigned p = 0; p < GN_IO_POLLINGS; p++) {
			const struct gn_io_opts opts = {.batching = (enum gn_io_batching)b,
							.polling = (enum gn_io_polling)p,
							.write_window = b == 1 ? 3000 : 0,
							.read_window = p == 1 ? GN_IO_WINDOW_AUTO :
										0};

			run_everywhere(program_blocks, &opts);
		}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data),
		cmocka_unit_test(test_blocks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
