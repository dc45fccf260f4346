/* SPDX-License-Identifier: MIT */
/*
 * Sorts more numbers than the process may keep in its own memory: all are on a donor, and 4 MiB of
 * them at a time are here. "example-pager ADDR [MIB]", where a donor listens at ADDR, for example
 * "gannet donor serve --listen shm:attic --memory 64M --slab 1M".
 */
#include <err.h>
#include <gannet/pager.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB 1048576u

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

static int by_value(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

/* In place: qsort() may want as much memory again. */
static void sort(uint64_t *numbers, size_t n)
{
	while (n > 1024) {
		const uint64_t pivot = numbers[n / 2];
		size_t i = 0, j = n - 1;

		for (;; i++, j--) {
			while (numbers[i] < pivot)
				i++;
			while (numbers[j] > pivot)
				j--;
			if (i >= j)
				break;
			const uint64_t other = numbers[i];
			numbers[i] = numbers[j];
			numbers[j] = other;
		}
		sort(numbers, j + 1);
		numbers += j + 1;
		n -= j + 1;
	}
	qsort(numbers, n, sizeof(*numbers), by_value);
}

int main(int argc, char **argv)
{
	const unsigned long mib = argc > 2 ? strtoul(argv[2], NULL, 10) : 16;
	const size_t bytes = mib * MIB, n = bytes / sizeof(uint64_t);
	const struct gn_vol_opts vol_opts = {.size = sizeof(vol_opts),
					     .bytes = bytes,
					     .donors = (const char *const *)argv + 1,
					     .n_donors = 1,
					     .copies = 1};
	const struct gn_pager_opts pager_opts = {.size = sizeof(pager_opts),
						 .local_bytes = 4 * MIB};
	struct gn_pager_stats stats = {.size = sizeof(stats)};
	char provider[80];
	struct gn_fabric *fabric;
	struct gn_pager *pager;
	struct gn_vol *vol;
	uint64_t *numbers, state = 1;

	if (argc < 2 || !mib || mib > 65536)
		errx(2, "usage: example-pager ADDR [MIB]");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(argv[1], ":"), argv[1]);
	must(gn_fabric_open(provider, &fabric), provider);
	must(gn_vol_create(fabric, &vol_opts, &vol), argv[1]);
	must(gn_pager_create(vol, &pager_opts, &pager), "pager");
	must(gn_pager_map(pager, bytes, (void **)&numbers), "memory");
	for (size_t i = 0; i < n; i++)
		numbers[i] = state = state * 6364136223846793005u + 1442695040888963407u;
	sort(numbers, n);
	for (size_t i = 1; i < n; i++)
		if (numbers[i - 1] > numbers[i])
			errx(1, "numbers %zu and %zu are in the wrong order", i - 1, i);
	must(gn_pager_query(pager, &stats), "pager");
	printf("sorted %zu numbers; %" PRIu64 " faults, %" PRIu64 " pages read, %" PRIu64
	       " written\n",
	       n, stats.faults, stats.pages_in, stats.pages_out);
	must(gn_pager_destroy(pager), "pager");
	must(gn_vol_destroy(vol), "volume");
	must(gn_fabric_close(fabric), "fabric");
	return 0;
}
