/* SPDX-License-Identifier: MIT */
/* Gather and scatter between an SGE list and one range. */
#include "fabric/soft/copy.h"
#include "fabric/soft/soft.h"

/* Executes what for each run of at most len bytes of the SGE list, starting at offset. */
#define FOR_PIECES(sge, n, offset, len, ptr, run, what)                                   \
	for (uint32_t i_ = 0; i_ < (n) && (len); i_++) {                                  \
		const uint64_t size_ = (sge)[i_].len_bytes;                               \
                                                                                          \
		if ((offset) >= size_) {                                                  \
			(offset) -= size_;                                                \
			continue;                                                         \
		}                                                                         \
		uint8_t *ptr = (uint8_t *)(sge)[i_].addr + (offset);                      \
		const uint64_t run = size_ - (offset) < (len) ? size_ - (offset) : (len); \
                                                                                          \
		(offset) = 0;                                                             \
		(len) -= run;                                                             \
		what;                                                                     \
	}

void soft_gather(uint8_t *dst, const struct gn_sge *sge, uint32_t n, uint64_t offset, uint64_t len)
{
	FOR_PIECES(sge, n, offset, len, ptr, run, {
		copy_relaxed(dst, ptr, run);
		dst += run;
	})
}

void soft_scatter(const struct gn_sge *sge, uint32_t n, uint64_t offset, const uint8_t *src,
		  uint64_t len)
{
	FOR_PIECES(sge, n, offset, len, ptr, run, {
		copy_relaxed(ptr, src, run);
		src += run;
	})
}

void soft_write(uint8_t *dst, const struct gn_sge *sge, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		copy_publish(dst, sge[i].addr, sge[i].len_bytes);
		dst += sge[i].len_bytes;
	}
}

void soft_read(const struct gn_sge *sge, uint32_t n, const uint8_t *src)
{
	for (uint32_t i = 0; i < n; i++) {
		copy_fetch(sge[i].addr, src, sge[i].len_bytes);
		src += sge[i].len_bytes;
	}
}
