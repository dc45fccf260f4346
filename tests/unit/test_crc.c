/* SPDX-License-Identifier: MIT */
/*
 * Checksums against their published check values, against a bit-by-bit computation, and continued
 * at every cut.
 */
#include "unit.h"

#include <string.h>
#include <sys/mman.h>

#define POLY32 0x82f63b78u		    /* 0x1edc6f41 reflected */
#define POLY64 UINT64_C(0xc96c5795d7870f42) /* ECMA-182's, reflected */

static uint64_t slow_crc(uint64_t poly, uint64_t mask, const unsigned char *data, size_t len)
{
	uint64_t crc = mask;

	for (size_t i = 0; i < len; i++) {
		crc ^= data[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc & 1 ? crc >> 1 ^ poly : crc >> 1;
	}
	return crc ^ mask;
}

static void test_check_values(void **state)
{
	static const char zeros[32];

	(void)state;
	assert_int_equal(gn_crc32c(0, "123456789", 9), 0xe3069283);
	assert_int_equal(gn_crc64(0, "123456789", 9), UINT64_C(0x995dc9bbdf1939fa));
	assert_int_equal(gn_crc32c(0, zeros, 32), 0x8a9136aa); /* RFC 3720, B.4 */
}

static void test_nothing(void **state)
{
	(void)state;
	assert_int_equal(gn_crc32c(0, NULL, 0), 0);
	assert_int_equal(gn_crc64(0, NULL, 0), 0);
	assert_int_equal(gn_crc32c(0x12345678, "", 0), 0x12345678);
	assert_int_equal(gn_crc64(0x12345678, "", 0), 0x12345678);
}

static void test_random_bytes(void **state)
{
	unsigned char data[700];
	uint64_t seed = unit_seed();

	(void)state;
	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (unsigned char)unit_next(&seed);
	for (int round = 0; round < 300; round++) {
		size_t at = unit_next(&seed) % 64;
		size_t len = unit_next(&seed) % (sizeof(data) - 64);
		size_t cut = len ? unit_next(&seed) % len : 0;
		uint32_t c32 = gn_crc32c(0, data + at, len);
		uint64_t c64 = gn_crc64(0, data + at, len);

		assert_int_equal(c32, slow_crc(POLY32, UINT32_MAX, data + at, len));
		assert_int_equal(c64, slow_crc(POLY64, UINT64_MAX, data + at, len));
		assert_int_equal(
			c32, gn_crc32c(gn_crc32c(0, data + at, cut), data + at + cut, len - cut));
		assert_int_equal(c64,
				 gn_crc64(gn_crc64(0, data + at, cut), data + at + cut, len - cut));
	}
}

/* Longer than an int counts. The memory is the kernel's one zero page, read and never written. */
static void test_huge(void **state)
{
	size_t len = (size_t)INT32_MAX + 12345, cut = 123456789;
	unsigned char *data;

	(void)state;
	data = mmap(NULL, len, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(data != MAP_FAILED);
	assert_int_equal(gn_crc32c(0, data, len),
			 gn_crc32c(gn_crc32c(0, data, cut), data + cut, len - cut));
	munmap(data, len);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_check_values),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_huge),
	};

	return cmocka_run_group_tests_name("crc", tests, NULL, NULL);
}
