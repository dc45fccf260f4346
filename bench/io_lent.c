/* SPDX-License-Identifier: MIT */
/*
 * Over shm the fabric has mapped the lent memory into this process. memcpy must copy from the same
 * pages: another memory of the same size may be 20 % faster or slower, by where its pages are.
 */
#include <errno.h>

#include "io_load.h"

/* Has it the blocks of the region from this offset on? */
static bool is_lent(const struct bench_io_opts *o, const uint8_t *memory, uint64_t offset,
		    uint64_t bytes)
{
	const uint64_t last = (bytes / o->block_bytes - 1) * o->block_bytes;
	const uint64_t want[2] = {io_first_word(offset, o->load.seed),
				  io_first_word(offset + last, o->load.seed)};

	return !memcmp(memory, &want[0], sizeof(want[0])) &&
	       !memcmp(memory + last, &want[1], sizeof(want[1]));
}

/* A mapping of the size of an extent. Of several copies any will do. */
static void take_mapping(const struct io_run *run, struct io_process *p, uint8_t *memory,
			 uint64_t n, uint64_t extent_bytes)
{
	const struct bench_io_opts *o = &run->opts;

	for (uint64_t i = 0; i < n; i++) {
		const uint64_t left = o->region_bytes - i * extent_bytes;

		if (!p->lent[i] &&
		    is_lent(o, memory, i * extent_bytes, left < extent_bytes ? left : extent_bytes))
			p->lent[i] = memory;
	}
}

int io_lent_find(const struct io_run *run, struct io_process *p)
{
	const struct bench_io_opts *o = &run->opts;
	const uint64_t page_bytes = (o->region_bytes + GN_PAGE - 1) / GN_PAGE * GN_PAGE;
	const uint64_t extent_bytes = o->volume ? o->slab_bytes : page_bytes;
	const uint64_t n = (o->region_bytes + extent_bytes - 1) / extent_bytes;
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512], path[128];
	unsigned long start, end;
	char rights[8];
	int rc = f ? 0 : -errno;

	p->lent = gn_alloc(n * sizeof(p->lent[0]), 0);
	p->lent_shift = o->volume ? (unsigned)__builtin_ctzll(extent_bytes) : 63;
	if (!p->lent)
		rc = -ENOMEM;
	while (!rc && fgets(line, sizeof(line), f))
		if (sscanf(line, "%lx-%lx %7s %*s %*s %*s %127s", &start, &end, rights, path) ==
			    4 &&
		    end - start == extent_bytes && rights[0] == 'r' && !strncmp(path, "/memfd:", 7))
			take_mapping(run, p, (uint8_t *)start, n, extent_bytes);
	if (f)
		fclose(f);
	for (uint64_t i = 0; !rc && i < n; i++)
		rc = p->lent[i] ? 0 : -ENOENT;
	return rc;
}
