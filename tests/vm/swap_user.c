/* SPDX-License-Identifier: MIT */
/*
 * Fills more memory than its cgroup may have, and checks that every byte of it has kept its value.
 * Each word has a value of its own, in each round another. Usage: swap_user MIB ROUNDS
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static uint64_t word_of(uint64_t i, uint64_t round)
{
	return (i * 0x9e3779b97f4a7c15u) ^ (round * 0xbf58476d1ce4e5b9u);
}

int main(int argc, char **argv)
{
	const uint64_t mib = argc == 3 ? strtoull(argv[1], NULL, 10) : 0;
	const uint64_t rounds = argc == 3 ? strtoull(argv[2], NULL, 10) : 0;
	const uint64_t words = mib * (1048576 / sizeof(uint64_t));
	uint64_t *mem;

	if (!words || !rounds)
		return 2;
	mem = mmap(NULL, mib * 1048576, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (mem == MAP_FAILED)
		return 1;
	for (uint64_t round = 0; round <= rounds; round++)
		for (uint64_t i = 0; i < words; i++) {
			if (round && mem[i] != word_of(i, round)) {
				printf("round %" PRIu64 ": word %" PRIu64 " is %016" PRIx64
				       " instead of %016" PRIx64 "\n",
				       round, i, mem[i], word_of(i, round));
				return 1;
			}
			mem[i] = word_of(i, round + 1);
		}
	printf("%" PRIu64 " MiB are right\n", mib);
	return 0;
}
