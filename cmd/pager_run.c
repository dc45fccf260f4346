/* SPDX-License-Identifier: MIT */
/*
 * gannet pager run: starts a program with the pager's library in it, passes signals and the exit
 * status on, and prints the statistics that the library writes to a page of both.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_cmd.h"
#include "io.h"
#include "metrics.h"
#include "pager_cmd.h"
#include "rpc_cmd.h"
#include "serving.h"
#include "shared.h"
#include "vol_cmd.h"

#define LOCAL_LITTLE (16u << 20) /* bytes */
#define TELL_NS	     2000000000u /* then it says what it waits for */
#define LOOK_MS	     200	 /* between two looks at the page */
#define PROGRESS_NS  1000000000u
#define VOLUME_TIMES 4u
#define RELEASE_US   500000u /* to reach a donor after the program's end */
#define LOST_MS_MAX  3600000u
#define MIB	     1048576.0
#define SIGNALED     128 /* exit status of a program that was ended by a signal, less that signal */

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct gn_vol_opts vol;
	struct gn_io_opts io;
	struct vol_donors donors;
	uint64_t local;
	uint32_t prefetch, lost_ms;
	const char *monitor, *metrics, *json;
	bool progress, children;
};

static const struct opt options[] = {
	OPT_VOL_DONORS(struct request, donors),
	{OPT_U64, "local", "N", "bytes of paged memory that are local at most", "", AT(local),
	 .required = true, RANGE(GN_PAGER_LOCAL_MIN, GN_VOL_SIZE_MAX)},
	{OPT_U64, "volume", "N", "bytes of paged memory in all, local and remote",
	 "4 times --local", AT(vol.bytes), RANGE(GN_PAGER_LOCAL_MIN, GN_VOL_SIZE_MAX)},
	{OPT_U32, "copies", "N", "of each page, on different donors", "2, or 1 with one donor",
	 AT(vol.copies), RANGE(1, GN_VOL_COPIES_MAX)},
	OPT_VOL_HEADROOM(struct request, vol.headroom),
	{OPT_U32, "lost-ms", "N", "then a donor that has the only copy of a page is given up",
	 AT(lost_ms), RANGE(1, LOST_MS_MAX)},
	{OPT_OTHER, "prefetch", "N", "pages read ahead of a trend at most, or off", "32",
	 AT(prefetch), .choices = cmd_prefetches, .take = cmd_take_prefetch},
	{OPT_CHOICE, "batching", "M", "of the I/O engine: hybrid, single, doorbell or merge",
	 AT(io.batching), .choices = bench_io_batchings},
	{OPT_CHOICE, "poll", "P", "how it waits: adaptive, busy, event, event-batch, …",
	 AT(io.polling), .choices = bench_io_polls},
	{OPT_OTHER, "window", "W", "its bytes in flight, of READs and of WRITEs; none; auto",
	 "7000000", AT(io.read_window), .choices = cmd_windows, .take = cmd_take_window},
	{OPT_TEXT, "owner", "TAG", "how gannet donor list names the volume", AT(vol.owner)},
	OPT_VOL_MONITOR(struct request, monitor),
	OPT_METRICS(struct request, metrics),
	{OPT_FLAG, "progress", NULL, "a line on stderr that shows what happens", AT(progress)},
	{OPT_TEXT, "json", "FILE", "write the statistics there at the end", "", AT(json)},
	{OPT_FLAG, "children", NULL, "programs that COMMAND starts have pagers of their own, too",
	 AT(children)},
	{.type = OPT_END},
};

/* ---- the page that the program shares ---- */

struct run {
	const struct request *request;
	const char *command;
	struct preload_shared *shared;
	int shared_fd;
	pid_t pid;
	uint64_t began_ns, lined_ns; /* start; the last line of --progress */
	struct gn_pager_stats lined;
	unsigned told; /* bits of preload_shared.denied that were said */
	bool told_wait, told_exec, terminal, line_open;
	bool executed;	  /* preload_shared.executed at the last look */
	uint32_t version; /* of the last sample, and when it was seen first */
	uint64_t version_ns;
};

/* The program can write anything to the page: numbers that count, and texts, stay inside. */
static void sample_bound(struct preload_sample *s)
{
	s->vol.n_donors = s->vol.n_donors < GN_VOL_DONORS_MAX ? s->vol.n_donors : GN_VOL_DONORS_MAX;
	for (unsigned i = 0; i < GN_VOL_DONORS_MAX; i++)
		s->vol.donors[i].addr[GN_VOL_ADDR - 1] = '\0';
}

/* Consistent, while the program writes. False: there are none. */
static bool run_stats(const struct run *run, struct preload_sample *out)
{
	const struct preload_shared *s = run->shared;
	uint32_t before, after;

	for (int tries = 0; tries < 1000; tries++) {
		before = atomic_load_explicit(&s->version, memory_order_acquire);
		*out = s->sample;
		sample_bound(out);
		atomic_thread_fence(memory_order_acquire); /* pairs with island_sample() */
		after = atomic_load_explicit(&s->version, memory_order_relaxed);
		if (before == after && !(before & 1))
			return before;
	}
	return true; /* killed while it wrote */
}

static int run_share(struct run *run)
{
	run->shared_fd = memfd_create("gannet-pager", MFD_CLOEXEC);
	if (run->shared_fd < 0 || ftruncate(run->shared_fd, sizeof(*run->shared)))
		return -errno;
	run->shared = mmap(NULL, sizeof(*run->shared), PROT_READ | PROT_WRITE, MAP_SHARED,
			   run->shared_fd, 0);
	if (run->shared == MAP_FAILED)
		return -errno;
	run->shared->size = sizeof(*run->shared);
	run->shared->pid = getpid();
	return 0;
}

/* ---- what people see ---- */

static void run_end_line(struct run *run)
{
	if (run->line_open)
		fputs("\r\033[K", stderr);
	run->line_open = false;
}

static void run_print_stats(struct run *run)
{
	struct preload_sample sample;

	run_end_line(run);
	if (!run_stats(run, &sample)) {
		fputs("gannet: no statistics yet\n", stderr);
		return;
	}
	fprintf(stderr, "gannet: pager of %s after %.1f s\n", run->command,
		(double)(gn_now_ns() - run->began_ns) / 1e9);
	pager_stats_print(&sample.pager, stderr);
	fprintf(stderr, "volume     %.1f MiB, ", (double)sample.vol.bytes / MIB);
	vol_stats_words(&sample.vol, stderr);
}

static void run_show_progress(struct run *run)
{
	const uint64_t now_ns = gn_now_ns();
	struct preload_sample sample;
	char line[256];

	if (!run->request->progress || now_ns - run->lined_ns < PROGRESS_NS ||
	    !run_stats(run, &sample))
		return;
	pager_stats_line(&run->lined, &sample.pager, (double)(now_ns - run->lined_ns) / 1e9, line,
			 sizeof(line));
	if (run->terminal)
		fprintf(stderr, "\r%s; volume %s\033[K", line, vol_stats_state(&sample.vol));
	else
		fprintf(stderr, "%s; volume %s\n", line, vol_stats_state(&sample.vol));
	run->line_open = run->terminal;
	run->lined = sample.pager;
	run->lined_ns = now_ns;
}

static const char *const denied_words[PRELOAD_DENIED_ALL] = {
	[PRELOAD_DENIED_MEMORY] = "out of memory: the volume is full, and malloc() or mmap() "
				  "failed; give it a larger --volume",
	[PRELOAD_DENIED_FORK] =
		"fork() was denied: the child would not have the paged memory. vfork(), "
		"posix_spawn(), system() and Python's subprocess work; run servers in the "
		"foreground",
	[PRELOAD_DENIED_MLOCKALL] = "mlockall() was denied: paged memory cannot be all local; "
				    "mlock() of a range works",
	[PRELOAD_DENIED_FIXED] = "mmap() or mremap() at an address in paged memory was denied",
};

static void run_tell_denied(struct run *run)
{
	const unsigned denied = atomic_load_explicit(&run->shared->denied, memory_order_relaxed);

	for (unsigned i = 0; i < PRELOAD_DENIED_ALL; i++)
		if (denied & ~run->told & 1u << i) {
			run_end_line(run);
			fprintf(stderr, "gannet: %s: %s\n", run->command, denied_words[i]);
		}
	run->told |= denied;
}

static void run_tell_wait(struct run *run)
{
	const struct preload_shared *s = run->shared;

	if (run->told_wait || s->state != PRELOAD_STARTS || gn_now_ns() - run->began_ns < TELL_NS)
		return;
	if (s->orphans)
		fputs("gannet: waiting for memory of programs that have ended: the donors keep it "
		      "until the lease ends\n",
		      stderr);
	else if (!s->wanted)
		fputs("gannet: waiting for an answer of the donors\n", stderr);
	else
		fprintf(stderr,
			"gannet: waiting until the donors have granted %.1f MiB: %.1f MiB so far\n",
			(double)s->wanted / MIB, (double)s->granted / MIB);
	run->told_wait = true;
}

/*
 * The program has executed another one whose library has not begun: there is none. At an end it has
 * had the time for that, otherwise it has if this was so at the last look, too.
 */
static void run_tell_executed(struct run *run, bool ended)
{
	const bool before = run->executed;
	char path[PRELOAD_PATH];

	run->executed = atomic_load_explicit(&run->shared->executed, memory_order_acquire);
	if (!run->executed || run->told_exec || !(before || ended))
		return;
	memcpy(path, run->shared->executed_path, sizeof(path));
	path[sizeof(path) - 1] = '\0';
	run_end_line(run);
	fprintf(stderr, "gannet: %s has executed %s, which has no pager%s\n", run->command, path,
		run->request->children ? ": it did not load " PRELOAD_LIBRARY :
					 ": run that program itself, or use --children");
	run->told_exec = true;
}

/* A program that executes another one, or that is stopped, writes no samples. */
static void run_tell_exec(struct run *run)
{
	const struct preload_shared *s = run->shared;
	const uint32_t version = atomic_load_explicit(&s->version, memory_order_relaxed);
	const uint64_t now_ns = gn_now_ns();

	if (version != run->version || s->state != PRELOAD_READY) {
		run->version = version;
		run->version_ns = now_ns;
	}
	if (run->told_exec || now_ns - run->version_ns < TELL_NS)
		return;
	run_end_line(run);
	fprintf(stderr,
		"gannet: %s is stopped, or has executed another program, which has no pager "
		"(--children gives it one)\n",
		run->command);
	run->told_exec = true;
}

static void run_write_json(struct run *run, FILE *to, int status)
{
	struct preload_sample sample = {0};
	const bool known = run_stats(run, &sample);

	fprintf(to, "{\"status\":%d,\"signal\":%d,", WIFEXITED(status) ? WEXITSTATUS(status) : -1,
		WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	bench_json_number(to, "seconds", (double)(gn_now_ns() - run->began_ns) / 1e9, 3);
	if (known) {
		pager_stats_print_json(&sample.pager, to);
		fputs(",\"volume\":{", to);
		vol_stats_print_json(&sample.vol, to);
		fprintf(to, "},\"wrs\":%" PRIu64 ",\"doorbells\":%" PRIu64 "}\n", sample.io.wrs,
			sample.io.doorbells);
	} else {
		fputs("\"volume\":null}\n", to);
	}
}

static int run_metrics(void *arg, char *buf, size_t room)
{
	struct preload_sample sample = {0};
	size_t len;
	bool fits;

	run_stats(arg, &sample);
	len = pager_stats_prometheus(&sample.pager, buf, room);
	fits = len < room;
	return (int)(len + vol_stats_prometheus(&sample.vol, fits ? buf + len : NULL,
						fits ? room - len : 0));
}

/* ---- the program ---- */

struct text {
	char bytes[8192];
	size_t len;
};

static void text_add(struct text *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text *t, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	t->len += (size_t)vsnprintf(t->bytes + t->len, sizeof(t->bytes) - t->len, fmt, args);
	t->len = t->len < sizeof(t->bytes) ? t->len : sizeof(t->bytes) - 1;
	va_end(args);
}

static int run_set_env(const struct run *run, const char *library)
{
	const struct request *r = run->request;
	const char *preload = getenv("LD_PRELOAD");
	struct text t = {.len = 0};
	char all[8192];

	if (strpbrk(library, " :")) {
		fprintf(stderr, "gannet: '%s': LD_PRELOAD takes no path with blanks or colons\n",
			library);
		return -EINVAL;
	}
	snprintf(all, sizeof(all), "%s%s%s", library, preload && *preload ? ":" : "",
		 preload ? preload : "");
	text_add(&t, "local=%" PRIu64 "\nvolume=%" PRIu64 "\ncopies=%u\nheadroom=%" PRIu64 "\n",
		 r->local, r->vol.bytes, r->vol.copies, r->vol.headroom);
	text_add(&t, "batching=%d\npoll=%d\nwindow=%" PRIu64 "\n", (int)r->io.batching,
		 (int)r->io.polling, r->io.read_window);
	text_add(&t, "lost-us=%" PRIu64 "\n", (uint64_t)r->lost_ms * 1000);
	text_add(&t, "prefetch=%u\nowner=%s\nchildren=%d\nshared=/proc/%d/fd/%d\n", r->prefetch,
		 r->vol.owner, r->children, (int)getpid(), run->shared_fd);
	if (r->monitor)
		text_add(&t, "monitor=%s\n", r->monitor);
	for (uint32_t i = 0; i < r->donors.n; i++)
		text_add(&t, "donor=%s\n", r->donors.addr[i]);
	return setenv("LD_PRELOAD", all, 1) || setenv(PRELOAD_ENV, t.bytes, 1) ? -errno : 0;
}

/* With the signals that this command was started with. */
static int run_spawn(struct run *run, char *const *argv, const sigset_t *mask)
{
	posix_spawnattr_t attr;
	sigset_t plain;
	int rc;

	sigemptyset(&plain);
	sigaddset(&plain, SIGPIPE);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, mask);
	posix_spawnattr_setsigdefault(&attr, &plain);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	rc = posix_spawnp(&run->pid, argv[0], NULL, &attr, argv, environ);
	posix_spawnattr_destroy(&attr);
	if (rc)
		fprintf(stderr, "gannet: %s: %s\n", argv[0], strerror(rc));
	return -rc;
}

static void run_take_signal(struct run *run, const struct signalfd_siginfo *info)
{
	if (info->ssi_signo == SIGUSR1)
		run_print_stats(run);
	else if (info->ssi_signo != SIGCHLD && info->ssi_code != SI_KERNEL)
		kill(run->pid, (int)info->ssi_signo);
	/* A terminal has sent it to the program, too. */
}

static void sessions_end(const struct run *run, const struct gn_vol_session *sessions, uint32_t n)
{
	struct gn_io_opts io_opts = {.size = sizeof(io_opts), .channels = 1};
	struct gn_fabric *fabric;
	struct gn_donor *donor;
	struct gn_io *io;

	if (rpc_open(run->request->donors.addr[0], &fabric))
		return;
	if (!gn_io_create(fabric, &io_opts, &io)) {
		for (uint32_t i = 0; i < n; i++) {
			const struct gn_donor_opts opts = {.size = sizeof(opts),
							   .id = &sessions[i].id,
							   .timeout_us = RELEASE_US};

			if (!gn_donor_connect(fabric, io, sessions[i].addr, &opts, &donor))
				gn_donor_close(donor, 0);
		}
		gn_io_destroy(io);
	}
	gn_fabric_close(fabric);
}

/*
 * Programs that have ended, however they did: the donors need not keep their memory for the lease.
 * A program that lives has its slot locked.
 */
static void run_release(const struct run *run)
{
	for (unsigned i = 0; i < PRELOAD_SLOTS; i++) {
		struct preload_slot *slot = &run->shared->slots[i];
		struct gn_vol_session sessions[GN_VOL_DONORS_MAX];
		struct flock one = {.l_type = F_WRLCK, .l_start = i, .l_len = 1};
		uint32_t n =
			atomic_load_explicit(&slot->n, memory_order_acquire); /* slot_write() */

		if (!n || fcntl(run->shared_fd, F_OFD_SETLK, &one))
			continue;
		n = n < GN_VOL_DONORS_MAX ? n : GN_VOL_DONORS_MAX;
		memcpy(sessions, slot->sessions, sizeof(sessions));
		for (uint32_t k = 0; k < n; k++)
			sessions[k].addr[GN_VOL_ADDR - 1] = '\0';
		sessions_end(run, sessions, n);
		atomic_store_explicit(&slot->n, 0, memory_order_release);
		one.l_type = F_UNLCK;
		fcntl(run->shared_fd, F_OFD_SETLK, &one);
	}
}

/* Until the program ends: its status as of waitpid(). */
static int run_watch(struct run *run, int signal_fd)
{
	struct pollfd fd = {.fd = signal_fd, .events = POLLIN};
	struct signalfd_siginfo info;
	int status;

	for (;;) {
		if (poll(&fd, 1, LOOK_MS) > 0 && read(signal_fd, &info, sizeof(info)) > 0)
			run_take_signal(run, &info);
		run_tell_wait(run);
		run_tell_denied(run);
		run_tell_executed(run, false);
		run_tell_exec(run);
		run_show_progress(run);
		run_release(run);
		if (waitpid(run->pid, &status, WNOHANG) == run->pid)
			return status;
	}
}

static int run_end(struct run *run, int status, FILE *json)
{
	const uint32_t state = atomic_load_explicit(&run->shared->state, memory_order_acquire);

	run_tell_denied(run);
	run_tell_executed(run, true);
	run_end_line(run);
	run_release(run);
	if (json)
		run_write_json(run, json, status);
	if (state == PRELOAD_FAILED) {
		fprintf(stderr, "gannet: %s was not started: %.*s\n", run->command,
			(int)PRELOAD_WHY, run->shared->why);
		return EXIT_FAILURE;
	}
	if (state == PRELOAD_READY)
		run_print_stats(run);
	else if (state == PRELOAD_ABSENT)
		fprintf(stderr, "gannet: %s did not load %s, and ran without the pager\n",
			run->command, PRELOAD_LIBRARY);
	if (!WIFSIGNALED(status))
		return WEXITSTATUS(status);
	fprintf(stderr, "gannet: %s was ended by signal %d (%s)\n", run->command, WTERMSIG(status),
		strsignal(WTERMSIG(status)));
	return SIGNALED + WTERMSIG(status);
}

/* ---- the command ---- */

static int run_start(struct run *run, char *const *argv, FILE *json)
{
	static const int forwarded[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR2};
	const struct metrics_source source = {.arg = run, .write = run_metrics};
	struct metrics *metrics;
	sigset_t set, before;
	int signal_fd, status;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGUSR1);
	for (unsigned i = 0; i < sizeof(forwarded) / sizeof(forwarded[0]); i++)
		sigaddset(&set, forwarded[i]);
	sigprocmask(SIG_BLOCK, &set, &before);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (signal_fd < 0 || metrics_start(run->request->metrics, &source, &metrics))
		return EXIT_FAILURE;
	serving_tell_metrics(stderr, metrics);
	run->began_ns = run->lined_ns = gn_now_ns();
	if (run_spawn(run, argv, &before)) {
		metrics_stop(metrics);
		return EXIT_FAILURE;
	}
	status = run_watch(run, signal_fd);
	metrics_stop(metrics);
	return run_end(run, status, json);
}

static int pager_run_check(struct request *r)
{
	if (!r->vol.bytes)
		r->vol.bytes = VOLUME_TIMES * r->local;
	if (!r->vol.copies)
		r->vol.copies = r->donors.n > 1 ? 2 : 1;
	if (r->vol.bytes % GN_VOL_BLOCK || r->local % GN_VOL_BLOCK)
		return cmd_usage_error("--local and --volume must be multiples of %u",
				       GN_VOL_BLOCK);
	if (r->local > r->vol.bytes)
		return cmd_usage_error("--local must not exceed --volume, which counts the local "
				       "memory, too");
	return vol_donors_check(&r->donors, r->vol.copies);
}

static int pager_run_run(const struct args *args)
{
	struct request *r = args->opts;
	struct run run = {
		.request = r, .command = args->words[0], .terminal = isatty(STDERR_FILENO)};
	char library[4096];
	FILE *json = NULL;
	int rc, status = pager_run_check(r);

	if (status)
		return status;
	if (pager_program_library(library, sizeof(library)) || pager_program_check(args->words[0]))
		return EXIT_FAILURE;
	rc = gn_pager_probe();
	if (rc) {
		fprintf(stderr, "gannet: there can be no pager: %s\n", cmd_why(rc));
		return EXIT_FAILURE;
	}
	if (r->local < LOCAL_LITTLE)
		fprintf(stderr,
			"gannet: --local is less than %u MiB: a program that uses more than that "
			"at a time does little else than wait for pages\n",
			LOCAL_LITTLE >> 20);
	if (r->json) {
		json = fopen(r->json, "we");
		if (!json) {
			fprintf(stderr, "gannet: %s: %s\n", r->json, strerror(errno));
			return EXIT_FAILURE;
		}
	}
	rc = run_share(&run);
	if (!rc)
		rc = run_set_env(&run, library);
	if (rc)
		fprintf(stderr, "gannet: cannot prepare %s: %s\n", run.command, strerror(-rc));
	status = rc ? EXIT_FAILURE : run_start(&run, args->words, json);
	if (json && fclose(json)) {
		fprintf(stderr, "gannet: %s: %s\n", r->json, strerror(errno));
		return EXIT_FAILURE;
	}
	return status;
}

const struct command command_pager_run = {
	.name = "run",
	.what = "a program whose memory is partly with donors",
	.about =
		"Runs COMMAND with its heap and its large anonymous mappings in a volume, of which "
		"at most --local bytes are in this machine's memory. SIGUSR1 prints statistics, "
		"which also come at the end; other signals and the exit status are passed on.",
	.more = "The program is dynamically linked and does not fork(). docs/paging.md has the "
		"limits.",
	.run = pager_run_run,
	.words = "-- COMMAND [ARG…]",
	.min_words = 1,
	.max_words = INT_MAX,
	OPTIONS(options, struct request, .prefetch = 32, .lost_ms = 40000,
		.vol = {.owner = "pager"}),
};
