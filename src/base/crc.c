/* SPDX-License-Identifier: MIT */
/*
 * Checksums by ISA-L. Both are reflected CRCs with inverted start and end values, so they can be
 * continued: crc(crc(0, a), b) == crc(0, ab).
 */
#include <isa-l.h>

#include "gannet/base.h"

#define CHUNK_BYTES ((size_t)1 << 30) /* ISA-L's CRC-32C takes an int length */

uint32_t gn_crc32c(uint32_t crc, const void *data, size_t len_bytes)
{
	unsigned char *next = (unsigned char *)(uintptr_t)data; /* ISA-L does not write to it */

	crc = ~crc;
	while (len_bytes > 0) {
		size_t n = len_bytes < CHUNK_BYTES ? len_bytes : CHUNK_BYTES;

		crc = crc32_iscsi(next, (int)n, crc);
		next += n;
		len_bytes -= n;
	}
	return ~crc;
}

/* Unlike its CRC-32C, ISA-L's CRC-64 does the inversions itself. */
uint64_t gn_crc64(uint64_t crc, const void *data, size_t len_bytes)
{
	return len_bytes ? crc64_ecma_refl(crc, data, len_bytes) : crc;
}
