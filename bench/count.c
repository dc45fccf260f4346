/* SPDX-License-Identifier: MIT */
/*
 * A counted run, from outside: the process under callgrind, and its file.
 */
#include "count.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "count_file.h"
#include "count_turns.h"

#define PATH_BYTES 4096u

/* ---- the counted process ---- */

static int count_run_here(struct count_page *page)
{
	switch (page->opts.kind) {
	case COUNT_RPC:
		return count_rpc_main(page);
	case COUNT_KV:
		return count_kv_main(page);
	default:
		return count_fabric_main(page);
	}
}

int count_main(void)
{
	struct count_page *page =
		mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, BENCH_PEER_FD, 0);
	int rc;

	if (page == MAP_FAILED)
		return EXIT_FAILURE;
	rc = count_run_here(page);
	if (rc && rc != -EINTR)
		gn_log(GN_LOG_ERROR, "bench: the counted run failed: %s", gn_strerror(rc));
	munmap(page, sizeof(*page));
	return rc ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* ---- callgrind ---- */

static int open_page(const struct count_opts *opts, struct count_page **out)
{
	const int fd = memfd_create("gannet-count", MFD_CLOEXEC);
	struct count_page *page = MAP_FAILED;

	if (fd >= 0 && !ftruncate(fd, sizeof(*page)))
		page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (page == MAP_FAILED) {
		const int rc = -errno;

		if (fd >= 0)
			close(fd);
		return rc;
	}
	page->opts = *opts;
	*out = page;
	return fd;
}

/* Until it has ended; a signal that stops us stops it, too. */
static int count_await(int pid)
{
	int status;

	while (waitpid(pid, &status, 0) != pid) {
		if (errno != EINTR)
			return -errno;
		if (bench_stopped())
			kill(pid, SIGTERM);
	}
	if (bench_stopped())
		return -EINTR;
	if (WIFEXITED(status) && !WEXITSTATUS(status))
		return 0;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return -ECHILD;
}

static int run_callgrind(int fd, const char *path)
{
	char exe[PATH_BYTES], out[PATH_BYTES + 32], parent[16];
	char *const argv[] = {"valgrind",
			      "-q",
			      "--tool=callgrind",
			      out,
			      "--compress-strings=no",
			      exe,
			      "--bench-count",
			      parent,
			      NULL};
	const ssize_t len = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
	int pid, rc;

	if (len < 0)
		return -errno;
	exe[len] = 0;
	snprintf(out, sizeof(out), "--callgrind-out-file=%s", path);
	snprintf(parent, sizeof(parent), "%d", (int)getpid());
	rc = bench_spawn_file("valgrind", argv, fd, &pid);
	if (!rc)
		rc = count_await(pid);
	if (rc == -ENOENT)
		fputs("gannet: --instructions needs valgrind; on Debian: apt-get install "
		      "valgrind\n",
		      stderr);
	else if (rc == -ECHILD)
		fputs("gannet: the counted process failed under valgrind\n", stderr);
	return rc;
}

/* ---- figures ---- */

static int take_figures(const struct count_page *page, FILE *f, struct count_result *out)
{
	struct count_function fn[] = {
		{.name = "bench_count_submit"},
		{.name = "bench_count_collect"},
		{.name = "bench_count_server"},
		/* and what those call of the bench, by the files' names for it */
		{.name = "submit"},
		{.name = "submit_one"},
		{.name = "submit_local"},
		{.name = "collect"},
		{.name = "collect_one"},
		{.name = "collect_local"},
		{.name = "note_end"}};
	const unsigned n_fn = sizeof(fn) / sizeof(fn[0]);
	const double counted =
		(double)page->messages / (double)(page->messages + COUNT_WARM_MESSAGES);
	const double calls = (double)page->calls, messages = (double)page->messages;
	const bool has_server =
		page->opts.kind == COUNT_RPC ||
		(page->opts.kind == COUNT_KV && page->opts.kv.mode != BENCH_KV_LOCAL);
	const int rc = count_file_read(f, fn, n_fn);

	if (rc || fn[0].calls != page->messages || (has_server && !fn[2].calls)) {
		fputs("gannet: callgrind's file does not have the counted functions; is this "
		      "program stripped?\n",
		      stderr);
		return rc ? rc : -EBADMSG;
	}
	*out = (struct count_result){.calls = page->calls,
				     .submit = (double)fn[0].instructions / calls,
				     .collect = (double)fn[1].instructions / calls,
				     .collect_turns = (double)fn[1].calls / messages,
				     .bench = (double)(fn[0].self + fn[1].self) / calls,
				     .server = NAN,
				     .server_turns = NAN};
	for (unsigned i = 3; i < n_fn; i++)
		out->bench += (double)fn[i].self * counted / calls;
	if (has_server) {
		out->server = (double)fn[2].instructions / calls;
		out->server_turns = (double)fn[2].calls / messages;
	}
	return 0;
}

static int read_figures(const struct count_page *page, const char *path, struct count_result *out)
{
	FILE *f = fopen(path, "r");
	int rc;

	if (!f) {
		rc = -errno;
		fprintf(stderr, "gannet: %s: %s\n", path, gn_strerror(rc));
		return rc;
	}
	rc = take_figures(page, f, out);
	fclose(f);
	return rc;
}

/* An empty file of our own, for callgrind to write over. */
static int make_file(char *path, size_t size)
{
	const char *dir = getenv("TMPDIR");
	int fd;

	if ((size_t)snprintf(path, size, "%s/gannet-count-XXXXXX", dir && *dir ? dir : "/tmp") >=
	    size)
		return -ENAMETOOLONG;
	fd = mkstemp(path);
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int count_run(const struct count_opts *opts, struct count_result *out)
{
	struct count_page *page = NULL;
	char path[PATH_BYTES];
	int rc = 0, fd;

	if (!opts->keep)
		rc = make_file(path, sizeof(path));
	else if ((size_t)snprintf(path, sizeof(path), "%s", opts->keep) >= sizeof(path))
		rc = -ENAMETOOLONG;
	if (rc) {
		fprintf(stderr, "gannet: no file for callgrind: %s\n", gn_strerror(rc));
		return rc;
	}
	fd = rc = open_page(opts, &page);
	if (rc >= 0)
		rc = run_callgrind(fd, path);
	if (!rc)
		rc = read_figures(page, path, out);
	if (page)
		munmap(page, sizeof(*page));
	if (fd >= 0)
		close(fd);
	if (!opts->keep)
		unlink(path);
	return rc;
}
