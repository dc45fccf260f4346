/* SPDX-License-Identifier: MIT */
/*
 * The tuning file: a written file can be read, and an invalid file is refused with its line and the
 * wrong value.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gannet/rpc.h"
#include "unit.h"

static char path[] = "/tmp/gannet-tuning-XXXXXX";
static char said[1024];

static void hear(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	(void)level;
	snprintf(said, sizeof(said), "%s", line);
}

static int set_up(void **state)
{
	const int fd = mkstemp(path);

	(void)state;
	gn_log_to(hear, NULL);
	return fd < 0 ? -1 : close(fd);
}

static int tear_down(void **state)
{
	(void)state;
	gn_log_to(NULL, NULL);
	return unlink(path);
}

static void there_and_back(void **state)
{
	struct gn_rpc_tuning t = {
		.size = sizeof(t), .retries = 5, .switch_us = 7, .n_retries = 8, .n_sizes = 16};
	struct gn_rpc_tuning back = {.size = sizeof(back)};

	(void)state;
	for (uint32_t f = 0; f < t.n_sizes; f++) {
		t.bytes[f] = 1u << (f + 1);
		for (uint32_t r = 0; r < t.n_retries; r++)
			t.rate[r][f] = UINT32_MAX - r * 100 - f;
	}
	assert_int_equal(gn_rpc_tuning_write(path, &t), 0);
	memset(&back, 0xa5, sizeof(back));
	assert_int_equal(gn_rpc_tuning_read(path, &back), -E2BIG); /* its size is invalid */
	back.size = sizeof(back);
	assert_int_equal(gn_rpc_tuning_read(path, &back), 0);
	assert_memory_equal(&back, &t, sizeof(t));
}

static void impossible_ones(void **state)
{
	const struct gn_rpc_tuning good = {.size = sizeof(good),
					   .retries = 1,
					   .n_retries = 1,
					   .n_sizes = 2,
					   .bytes = {32, 64}};
	struct gn_rpc_tuning t = good;

	(void)state;
	assert_int_equal(gn_rpc_tuning_write(path, &t), 0);
	t.retries = 0;
	assert_int_equal(gn_rpc_tuning_write(path, &t), -EINVAL);
	t = good, t.n_retries = GN_RPC_TUNING_RETRIES + 1;
	assert_int_equal(gn_rpc_tuning_write(path, &t), -EINVAL);
	t = good, t.n_sizes = GN_RPC_TUNING_SIZES + 1;
	assert_int_equal(gn_rpc_tuning_write(path, &t), -EINVAL);
	t = good, t.bytes[1] = 32;
	assert_int_equal(gn_rpc_tuning_write(path, &t), -EINVAL);
	assert_non_null(strstr(said, "ascending"));
	t = good, t.switch_us = 65536;
	assert_int_equal(gn_rpc_tuning_write(path, &t), -EINVAL);
	assert_int_equal(gn_rpc_tuning_write(NULL, &good), -EINVAL);
	assert_int_equal(gn_rpc_tuning_write("/nonsense/file", &good), -ENOENT);
	assert_int_equal(gn_rpc_tuning_read("/nonsense/file", &t), -ENOENT);
	assert_int_equal(gn_rpc_tuning_read(path, NULL), -EINVAL);
}

#define HEAD "gannet-rpc-tuning\t1\n"
#define BODY HEAD "bytes\t32\t64\nrate\t1\t900\t800\n"

/* Each with a part of its error; NULL: valid. */
static const struct {
	const char *text, *word;
} files[] = {
	{BODY "retries\t3\nswitch_us\t7\n", NULL},
	{"# a word\n\n" BODY "# another\nretries\t3\nswitch_us\t0\n", NULL},
	{"", "line 0: the file ends before"},
	{"\n", "the file ends before"},
	{"nonsense\n", "line 1: must begin with"},
	{"gannet-rpc-tuning\t2\n", "not version 1"},
	{"gannet-rpc-tuning\n", "not one number"},
	{HEAD HEAD, "line 2: a second line"},
	{BODY "retries\t3\n", "the file ends before"},
	{BODY "retries\t3\nswitch_us\t7", "does not end"},
	{BODY "retries\t3\nretries\t3\nswitch_us\t7\n", "line 5: a second line"},
	{BODY "retries\t0\nswitch_us\t7\n", "retries is not"},
	{BODY "retries\t-1\nswitch_us\t7\n", "'-1'"},
	{BODY "retries\t3x\nswitch_us\t7\n", "'3x'"},
	{BODY "retries\t\nswitch_us\t7\n", "not a number"},
	{BODY "retries\t99999999999999999999999\nswitch_us\t7\n", "not a number"},
	{BODY "retries\t3\nswitch_us\t65536\n", "switch_us is more"},
	{BODY "wings\t2\n", "no such name: 'wings'"},
	{BODY "rate\t3\t900\t800\n", "must count"},
	{BODY "rate\t2\t900\n", "as many numbers"},
	{BODY "rate\t2\t900\t800\t700\n", "as many numbers"},
	{BODY "bytes\t32\n", "a second line"},
	{HEAD "retries\t3\nswitch_us\t7\n", "bytes has not"},
	{HEAD "bytes\t32\nretries\t3\nswitch_us\t7\n", "rate has not"},
	{HEAD "bytes\t64\t32\nrate\t1\t1\t1\nretries\t3\nswitch_us\t7\n", "ascending"},
	{HEAD "bytes\t0\nrate\t1\t1\nretries\t3\nswitch_us\t7\n", "ascending"},
	{HEAD "bytes\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13\t14\t15\t16\t17\t18\n", "too many"},
	{HEAD "bytes\t1\t2\t3\t4\t5\t6\t7\t8\t9\t10\t11\t12\t13\t14\t15\t16\t17\n", "1 to 16"},
};

static void strange_files(void **state)
{
	struct gn_rpc_tuning t = {.size = sizeof(t), .retries = 77};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		fputs(files[i].text, f);
		fclose(f);
		said[0] = '\0';
		assert_int_equal(gn_rpc_tuning_read(path, &t), files[i].word ? -EINVAL : 0);
		if (files[i].word && !strstr(said, files[i].word))
			fail_msg("file %zu: \"%s\" has no \"%s\"", i, said, files[i].word);
		if (!files[i].word)
			t = (struct gn_rpc_tuning){.size = sizeof(struct gn_rpc_tuning),
						   .retries = 77};
		assert_int_equal(t.retries, 77);
	}
}

/* NULs, non-ASCII bytes and a line without an end are not numbers either. */
static void bytes_at_random(void **state)
{
	struct gn_rpc_tuning t = {.size = sizeof(t)};
	uint64_t seed = unit_seed();

	(void)state;
	for (unsigned i = 0; i < 2000; i++) {
		char text[] = BODY "retries\t3\nswitch_us\t7\n";
		FILE *f = fopen(path, "w");

		assert_non_null(f);
		for (unsigned n = 0; n < 1 + i % 4; n++) {
			const uint32_t drawn = unit_next(&seed);

			text[drawn % (sizeof(text) - 1)] = (char)(drawn >> 24);
		}
		fwrite(text, 1, sizeof(text) - 1, f);
		fclose(f);
		if (!gn_rpc_tuning_read(path, &t)) {
			assert_in_range(t.n_sizes, 1, GN_RPC_TUNING_SIZES);
			assert_in_range(t.n_retries, 1, GN_RPC_TUNING_RETRIES);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(there_and_back),
		cmocka_unit_test(impossible_ones),
		cmocka_unit_test(strange_files),
		cmocka_unit_test(bytes_at_random),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
