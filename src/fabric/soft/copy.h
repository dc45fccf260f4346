/* SPDX-License-Identifier: MIT */
/*
 * Copies to and from memory that another thread or process reads or writes concurrently.
 *
 * copy_publish() stores the last aligned word of the destination last, with release: a reader that
 * sees the end of a message (acquire) sees all of it. This implements GN_CAP_INORDER_WRITE.
 * copy_fetch() loads the first word of the source first, with acquire: GN_CAP_READ_HEAD_FIRST.
 */
#ifndef GN_SOFT_COPY_H
#define GN_SOFT_COPY_H

#include "base/bits.h"

#include <stdint.h>
#include <string.h>

#if defined(__SANITIZE_THREAD__)
#define COPY_BY_WORD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COPY_BY_WORD 1
#endif
#endif
#ifndef COPY_BY_WORD
#define COPY_BY_WORD 0
#endif

#define COPY_WORDS 64u	/* up to this length words are faster than memcpy() */
#define COPY_SMALL 128u /* … and overlapping 16-byte moves of aligned words */

typedef uint64_t __attribute__((may_alias)) copy_u64;
typedef uint32_t __attribute__((may_alias)) copy_u32;
typedef uint16_t __attribute__((may_alias)) copy_u16;

static inline void copy_word(uint8_t *dst, const uint8_t *src, size_t at)
{
	__atomic_store_n((copy_u64 *)(dst + at),
			 __atomic_load_n((const copy_u64 *)(src + at), __ATOMIC_RELAXED),
			 __ATOMIC_RELAXED);
}

/* Both pointers aligned to 8, len a multiple of 8. */
static inline void copy_words(uint8_t *dst, const uint8_t *src, size_t len)
{
	for (size_t i = 0; i < len; i += 8)
		copy_word(dst, src, i);
}

typedef uint64_t copy_pair __attribute__((vector_size(16), aligned(1), may_alias));

static inline void copy_16(uint8_t *dst, const uint8_t *src)
{
	*(copy_pair *)dst = *(const copy_pair *)src;
}

/*
 * Copies whole words, at most 120 bytes, in any order, with overlapping 16-byte moves. The
 * processor may split these into words, but not further.
 */
static force_inline void copy_short_words(uint8_t *dst, const uint8_t *src, size_t len)
{
	if (COPY_BY_WORD) {
		copy_words(dst, src, len);
	} else if (len > 32) {
		copy_16(dst, src);
		copy_16(dst + 16, src + 16);
		if (unlikely(len > 64)) {
			copy_16(dst + 32, src + 32);
			copy_16(dst + 48, src + 48);
			copy_16(dst + len - 64, src + len - 64);
			copy_16(dst + len - 48, src + len - 48);
		}
		copy_16(dst + len - 32, src + len - 32);
		copy_16(dst + len - 16, src + len - 16);
	} else if (len >= 16) {
		copy_16(dst, src);
		copy_16(dst + len - 16, src + len - 16);
	} else if (len) {
		copy_word(dst, src, 0);
	}
}

static inline void copy_bytes(uint8_t *dst, const uint8_t *src, size_t len)
{
	for (size_t i = 0; i < len; i++)
		__atomic_store_n(dst + i, __atomic_load_n(src + i, __ATOMIC_RELAXED),
				 __ATOMIC_RELAXED);
}

/* Copies in any order. */
static inline void copy_relaxed(uint8_t *dst, const uint8_t *src, size_t len)
{
	if (!COPY_BY_WORD && len > COPY_WORDS) {
		memcpy(dst, src, len);
	} else if (((uintptr_t)dst | (uintptr_t)src) % 8 == 0) {
		copy_words(dst, src, len & ~(size_t)7);
		copy_bytes(dst + (len & ~(size_t)7), src + (len & ~(size_t)7), len & 7);
	} else if (COPY_BY_WORD) {
		copy_bytes(dst, src, len);
	} else {
		memcpy(dst, src, len);
	}
}

/*
 * Stores the 1 to 8 bytes at dst, which do not cross an aligned word, in address order with
 * release.
 */
static inline void copy_last(uint8_t *dst, const uint8_t *src, size_t len)
{
	while (len) {
		if (len == 8) {
			copy_u64 v;

			memcpy(&v, src, 8);
			__atomic_store_n((copy_u64 *)dst, v, __ATOMIC_RELEASE);
			return;
		}
		if (len >= 4 && (uintptr_t)dst % 4 == 0) {
			copy_u32 v;

			memcpy(&v, src, 4);
			__atomic_store_n((copy_u32 *)dst, v, __ATOMIC_RELEASE);
			dst += 4, src += 4, len -= 4;
		} else if (len >= 2 && (uintptr_t)dst % 2 == 0) {
			copy_u16 v;

			memcpy(&v, src, 2);
			__atomic_store_n((copy_u16 *)dst, v, __ATOMIC_RELEASE);
			dst += 2, src += 2, len -= 2;
		} else {
			__atomic_store_n(dst, *src, __ATOMIC_RELEASE);
			dst++, src++, len--;
		}
	}
}

/* Loads the 1 to 8 bytes at src, which do not cross an aligned word, with acquire. */
static inline void copy_first(uint8_t *dst, const uint8_t *src, size_t len)
{
	while (len) {
		size_t n = 1;

		if (len >= 4 && (uintptr_t)src % 4 == 0) {
			const copy_u32 v = __atomic_load_n((const copy_u32 *)src, __ATOMIC_ACQUIRE);

			n = 4;
			memcpy(dst, &v, n);
		} else if (len >= 2 && (uintptr_t)src % 2 == 0) {
			const copy_u16 v = __atomic_load_n((const copy_u16 *)src, __ATOMIC_ACQUIRE);

			n = 2;
			memcpy(dst, &v, n);
		} else {
			*dst = __atomic_load_n(src, __ATOMIC_ACQUIRE);
		}
		dst += n, src += n, len -= n;
	}
}

/*
 * A reader may act on any word of a READ, and write to memory that the word marks as unused. The
 * processor keeps that order, because the write depends on the word. The thread sanitizer does not
 * know, so load each word with acquire, in both sizes.
 */
static inline void copy_tsan_acquire(const uint8_t *src, size_t len)
{
	if (!COPY_BY_WORD)
		return;
	for (size_t i = -(uintptr_t)src & 7; i + 8 <= len; i += 8) {
		(void)__atomic_load_n((const copy_u64 *)(src + i), __ATOMIC_ACQUIRE);
		(void)__atomic_load_n((const copy_u32 *)(src + i + 4), __ATOMIC_ACQUIRE);
	}
}

/* copy_publish() and copy_fetch() of whole aligned words: 8 to COPY_SMALL bytes. */
static force_inline void copy_publish_short(uint8_t *dst, const uint8_t *src, size_t len)
{
	/* GN_CAP_WRITE_ORDER: no byte of this WRITE before the end of the last one. Free on x86. */
	__atomic_thread_fence(__ATOMIC_RELEASE);
	copy_short_words(dst, src, len - 8);
	__atomic_store_n((copy_u64 *)(dst + len - 8),
			 __atomic_load_n((const copy_u64 *)(src + len - 8), __ATOMIC_RELAXED),
			 __ATOMIC_RELEASE);
}

static force_inline void copy_fetch_short(uint8_t *dst, const uint8_t *src, size_t len)
{
	__atomic_store_n((copy_u64 *)dst, __atomic_load_n((const copy_u64 *)src, __ATOMIC_ACQUIRE),
			 __ATOMIC_RELAXED);
	copy_short_words(dst + 8, src + 8, len - 8);
	copy_tsan_acquire(src, len);
}

static force_inline void copy_publish(uint8_t *dst, const uint8_t *src, size_t len)
{
	size_t body;

	if (!len)
		return;
	if (len <= COPY_SMALL && (((uintptr_t)dst | (uintptr_t)src | len) & 7) == 0) {
		copy_publish_short(dst, src, len);
		return;
	}
	__atomic_thread_fence(__ATOMIC_RELEASE);	   /* as in copy_publish_short() */
	body = ((uintptr_t)dst + len - 1) & ~(uintptr_t)7; /* start of the last word */
	body = body > (uintptr_t)dst ? body - (uintptr_t)dst : 0;
	copy_relaxed(dst, src, body);
	copy_last(dst + body, src + body, len - body);
}

static force_inline void copy_fetch(uint8_t *dst, const uint8_t *src, size_t len)
{
	const size_t head = (uintptr_t)src % 8 == 0 && len >= 8 ? 8 : 0;

	if (len <= COPY_SMALL && (((uintptr_t)dst | (uintptr_t)src | len) & 7) == 0) {
		if (len)
			copy_fetch_short(dst, src, len);
		return;
	}
	if (head) {
		const copy_u64 v = __atomic_load_n((const copy_u64 *)src, __ATOMIC_ACQUIRE);

		memcpy(dst, &v, 8);
		copy_relaxed(dst + 8, src + 8, len - 8);
	} else {
		const size_t to_word = 8 - (uintptr_t)src % 8, n = to_word < len ? to_word : len;

		copy_first(dst, src, n);
		copy_relaxed(dst + n, src + n, len - n);
	}
	copy_tsan_acquire(src, len);
}

#endif
