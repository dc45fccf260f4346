/* SPDX-License-Identifier: MIT */
/*
 * The log: levels, sinks, what becomes of control characters and of long lines, that a line reaches
 * stderr in one piece, and that nobody waits for a reader of stderr.
 */
#include "unit.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static char last[4096];
static unsigned lines;
static enum gn_log_level last_level;

static void remember(void *arg, enum gn_log_level level, const char *line)
{
	assert_ptr_equal(arg, last);
	last_level = level;
	lines++;
	snprintf(last, sizeof(last), "%s", line);
	errno = EIO;
}

static int set_up(void **state)
{
	(void)state;
	lines = 0;
	gn_log_to(remember, last);
	gn_log_level_set(GN_LOG_WARN);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	gn_log_to(NULL, NULL);
	return 0;
}

static void log_all_levels(void)
{
	for (int level = GN_LOG_ERROR; level <= GN_LOG_DEBUG; level++)
		gn_log((enum gn_log_level)level, "%d", level);
}

/* First in the program: the level is read once. main() set GANNET_LOG. */
static void test_level_from_environment(void **state)
{
	(void)state;
	gn_log_to(remember, last);
	log_all_levels();
	assert_int_equal(lines, 3);
	assert_string_equal(last, "2");
	setenv("GANNET_LOG", "debug", 1);
	log_all_levels();
	assert_int_equal(lines, 6);
	gn_log_to(NULL, NULL);
}

static void test_levels(void **state)
{
	(void)state;
	for (unsigned level = GN_LOG_ERROR; level <= GN_LOG_DEBUG; level++) {
		lines = 0;
		gn_log_level_set((enum gn_log_level)level);
		log_all_levels();
		assert_int_equal(lines, level + 1);
		assert_int_equal(last_level, level);
	}
	gn_log((enum gn_log_level)99, "no such level");
	assert_int_equal(lines, 4);
}

static void test_keeps_errno(void **state)
{
	(void)state;
	errno = ENOENT;
	gn_log(GN_LOG_ERROR, "%s", strerror(errno));
	assert_int_equal(errno, ENOENT);
	assert_int_equal(lines, 1);
}

static void test_control_characters(void **state)
{
	(void)state;
	gn_log(GN_LOG_ERROR, "a\nb\r\tc\x1b[31m\x7f é");
	assert_string_equal(last, "a b  c [31m  é");
}

static void test_long_line(void **state)
{
	char text[5000];

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	gn_log(GN_LOG_ERROR, "%s", text);
	assert_int_equal(strlen(last), 1023);
}

/* A socket that keeps messages apart shows how many writes there were. */
static void test_one_write(void **state)
{
	char text[5000], got[8192];
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t first, second, more;

	(void)state;
	memset(text, 'x', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fds), 0);
	gn_log_to(NULL, NULL);
	dup2(fds[1], STDERR_FILENO);
	gn_log(GN_LOG_WARN, "disk %d is %s", 3, "on fire");
	gn_log(GN_LOG_ERROR, "%s", text);
	dup2(saved, STDERR_FILENO);
	first = read(fds[0], got, sizeof(got) - 1);
	assert_true(first > 0);
	got[first] = '\0';
	assert_string_equal(got, "gannet: warn: disk 3 is on fire\n");
	second = read(fds[0], got, sizeof(got));
	assert_true(second > 1000);
	assert_int_equal(got[second - 1], '\n');
	more = read(fds[0], got, sizeof(got));
	assert_true(more <= 0);
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

/* A line that waited for a reader would end this program. */
static void test_nobody_reads(void **state)
{
	static const char want[] =
		"gannet: warn: 3 lines of the log were lost: nobody read stderr\n"
		"gannet: error: here\n";
	char block[4096] = {0}, got[256];
	int fds[2], saved = dup(STDERR_FILENO);
	ssize_t len;

	(void)state;
	assert_int_equal(pipe2(fds, O_NONBLOCK), 0);
	while (write(fds[1], block, sizeof(block)) > 0)
		;
	assert_int_equal(fcntl(fds[1], F_SETFL, 0), 0);
	gn_log_to(NULL, NULL);
	dup2(fds[1], STDERR_FILENO);
	alarm(UNIT_PATIENCE_US / 1000000);
	for (unsigned i = 0; i < 3; i++)
		gn_log(GN_LOG_ERROR, "%u", i);
	alarm(0);
	while (read(fds[0], block, sizeof(block)) > 0)
		;
	gn_log(GN_LOG_ERROR, "here");
	dup2(saved, STDERR_FILENO);
	len = read(fds[0], got, sizeof(got) - 1);
	assert_true(len > 0);
	got[len] = '\0';
	assert_string_equal(got, want);
	close(saved);
	close(fds[0]);
	close(fds[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_level_from_environment),
		cmocka_unit_test_setup_teardown(test_levels, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_keeps_errno, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_control_characters, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_long_line, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_one_write, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_nobody_reads, set_up, tear_down),
	};

	setenv("GANNET_LOG", "info", 1);
	return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
