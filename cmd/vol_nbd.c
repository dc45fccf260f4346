/* SPDX-License-Identifier: MIT */
/* gannet vol nbd: starts nbdkit with Gannet's plugin, says where it is, and ends it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gannet/vol.h>

#include "rpc_cmd.h"
#include "vol_cmd.h"

#define PLUGIN	  "nbdkit-gannet-plugin.so"
#define READY_FD  3 /* of the plugin: gets a line when the volume is there */
#define WORDS_MAX 48u
#define TELL_MS	  2000		       /* then it says what it waits for */
#define REPEAT_NS UINT64_C(1000000000) /* signals so soon after the first one are the same */
#define MIB	  1048576.0

#define AT(member) .to = offsetof(struct request, member)

struct request {
	struct gn_vol_opts vol;
	struct vol_donors donors;
	const char *socket, *backup, *monitor;
	uint32_t port; /* 0: a Unix socket */
	bool swap;
};

static const struct opt options[] = {
	OPT_VOL_DONORS(struct request, donors),
	{OPT_U64, "size", "N", "bytes of the volume, a multiple of 4096", "", AT(vol.bytes),
	 .required = true, RANGE(GN_VOL_BLOCK, GN_VOL_SIZE_MAX)},
	{OPT_U32, "copies", "N", "of each block, on different donors", AT(vol.copies),
	 RANGE(1, GN_VOL_COPIES_MAX)},
	{OPT_FLAG, "verify", NULL, "keep checksums, and check each read", AT(vol.verify)},
	OPT_VOL_HEADROOM(struct request, vol.headroom),
	{OPT_U32, "repair-share", "N", "percent of the time that repair may use",
	 AT(vol.repair_share), RANGE(1, 100)},
	{OPT_TEXT, "owner", "TAG", "how gannet donor list names the volume", "nbd", AT(vol.owner)},
	{OPT_TEXT, "backup", "FILE", "copy all writes to a new file, in the background", "none",
	 AT(backup)},
	OPT_VOL_MONITOR(struct request, monitor),
	{OPT_TEXT, "socket", "PATH", "the Unix socket to listen at", "a new one", AT(socket)},
	{OPT_U32, "port", "N", "… or a TCP port of this machine's loopback", "", AT(port),
	 RANGE(1, 65535)},
	{OPT_FLAG, "swap", NULL, "the volume is swap space of this machine (as root)", AT(swap)},
	{.type = OPT_END},
};

/* ---- the words of nbdkit's command line ---- */

struct words {
	char *word[WORDS_MAX + 1]; /* to a NULL */
	unsigned n;
	bool failed;
};

static void words_add(struct words *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void words_add(struct words *w, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	if (w->n == WORDS_MAX || vasprintf(&w->word[w->n], fmt, args) < 0)
		w->failed = true;
	else
		w->n++;
	va_end(args);
}

static void words_free(struct words *w)
{
	for (unsigned i = 0; i < w->n; i++)
		free(w->word[i]);
}

static void words_add_volume(struct words *w, const struct request *r)
{
	for (uint32_t i = 0; i < r->donors.n; i++)
		words_add(w, "donor=%s", r->donors.addr[i]);
	words_add(w, "size=%" PRIu64, r->vol.bytes);
	words_add(w, "copies=%" PRIu32, r->vol.copies);
	words_add(w, "repair-share=%" PRIu32, r->vol.repair_share);
	if (r->vol.verify)
		words_add(w, "verify=true");
	if (r->vol.headroom)
		words_add(w, "headroom=%" PRIu64, r->vol.headroom);
	if (r->vol.owner)
		words_add(w, "owner=%s", r->vol.owner);
	if (r->monitor)
		words_add(w, "monitor=%s", r->monitor);
	if (r->backup)
		words_add(w, "backup=%s", r->backup);
	words_add(w, "ready-fd=%d", READY_FD);
}

/* Beside this program in a build directory, or where make install put it. */
static int vol_nbd_find_plugin(char *path, size_t room)
{
	const ssize_t len = readlink("/proc/self/exe", path, room - sizeof("/" PLUGIN));
	char *dir = len > 0 ? memrchr(path, '/', (size_t)len) : NULL;

	if (dir) {
		strcpy(dir, "/" PLUGIN);
		if (!access(path, R_OK))
			return 0;
	}
	snprintf(path, room, "%s/%s", GN_NBD_PLUGIN_DIR, PLUGIN);
	if (!access(path, R_OK))
		return 0;
	fprintf(stderr,
		"gannet: %s is missing; install nbdkit's headers (Debian: "
		"nbdkit-plugin-dev), then build and install Gannet again\n",
		path);
	return -ENOENT;
}

/* ---- nbdkit ---- */

static int vol_nbd_spawn(char *const *argv, int ready_fd, pid_t *out)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attr;
	sigset_t none;
	int rc;

	sigemptyset(&none);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setsigmask(&attr, &none);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK);
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ready_fd, READY_FD);
	rc = posix_spawnp(out, argv[0], &actions, &attr, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	posix_spawnattr_destroy(&attr);
	if (rc == ENOENT)
		fprintf(stderr, "gannet: nbdkit is missing; install it (Debian: apt-get install "
				"nbdkit libnbd-bin)\n");
	else if (rc)
		fprintf(stderr, "gannet: cannot start nbdkit: %s\n", strerror(rc));
	return -rc;
}

static int vol_nbd_say_ready(const struct request *r)
{
	char uri[256];

	if (r->port)
		snprintf(uri, sizeof(uri), "nbd://localhost:%" PRIu32, r->port);
	else
		snprintf(uri, sizeof(uri), "nbd+unix:///?socket=%s", r->socket);
	printf("a volume of %.1f MiB, %" PRIu32 " cop%s, at %s\n"
	       "  nbdcopy FILE '%s'\n"
	       "  nbdinfo '%s'\n",
	       (double)r->vol.bytes / MIB, r->vol.copies, r->vol.copies == 1 ? "y" : "ies", uri,
	       uri, uri);
	if (r->port)
		printf("  nbd-client localhost %" PRIu32 " /dev/nbd0   # as root\n", r->port);
	else
		printf("  nbd-client -unix %s /dev/nbd0   # as root\n", r->socket);
	puts("Ctrl-C ends it, and its content is lost");
	return cmd_flush_stdout();
}

/*
 * A signal came. nbdkit ends when all clients have disconnected, idle ones too. A second signal
 * ends it at once; the donors then keep the slabs for the lease. timeout(1) sends its signal
 * twice, to the process and to its group.
 */
static void vol_nbd_stop(pid_t pid, unsigned *n_signals, uint64_t *first_ns)
{
	if (!*n_signals)
		*first_ns = gn_now_ns();
	else if (gn_now_ns() - *first_ns < REPEAT_NS)
		return;
	kill(pid, ++*n_signals == 1 ? SIGTERM : SIGKILL);
}

static void vol_nbd_say_waits(const struct request *r, bool starting, unsigned n_signals)
{
	if (starting)
		fprintf(stderr, "gannet: waiting until the donors have granted %.1f MiB",
			(double)(r->vol.headroom ? r->vol.headroom : r->vol.bytes * r->vol.copies) /
				MIB);
	else
		fprintf(stderr, "gannet: waiting until the clients have disconnected");
	fprintf(stderr, "%s\n", n_signals ? "; another signal ends it at once" : "");
}

/* Until nbdkit ends: its status as of waitpid(). *signo: the first signal, or 0. */
static int vol_nbd_watch(const struct request *r, pid_t pid, int ready_fd, int signal_fd,
			 int *signo)
{
	struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
			       {.fd = ready_fd, .events = POLLIN}};
	struct signalfd_siginfo info;
	unsigned n_signals = 0;
	uint64_t first_ns = 0;
	bool told = false;
	char line[16];
	int status, n;

	for (;;) {
		const bool starting = fds[1].fd >= 0;

		n = poll(fds, 2, (starting || n_signals) && !told ? TELL_MS : -1);
		if (n == 0) {
			vol_nbd_say_waits(r, starting, n_signals);
			told = true;
		}
		if (n <= 0)
			continue;
		if (fds[1].revents) {
			if (read(ready_fd, line, sizeof(line)) > 0 && !n_signals &&
			    vol_nbd_say_ready(r))
				vol_nbd_stop(pid, &n_signals, &first_ns);
			fds[1].fd = -1;
			told = false;
		}
		if (!(fds[0].revents & POLLIN) || read(signal_fd, &info, sizeof(info)) < 0)
			continue;
		if (info.ssi_signo != SIGCHLD) {
			*signo = *signo ? *signo : (int)info.ssi_signo;
			vol_nbd_stop(pid, &n_signals, &first_ns);
		} else if (waitpid(pid, &status, WNOHANG) == pid) {
			return status;
		}
	}
}

static int vol_nbd_end(int status, int signo)
{
	if (WIFSIGNALED(status) && (WTERMSIG(status) != SIGKILL || !signo)) {
		fprintf(stderr, "gannet: nbdkit was ended by signal %d (%s); the volume is lost\n",
			WTERMSIG(status), strsignal(WTERMSIG(status)));
		return EXIT_FAILURE;
	}
	if (WIFEXITED(status) && WEXITSTATUS(status))
		return EXIT_FAILURE; /* nbdkit has said why */
	return signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

static int vol_nbd_serve(const struct request *r, char *const *argv)
{
	int fds[2], signal_fd, status = 0, signo = 0;
	sigset_t set;
	pid_t pid;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGCHLD);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal_fd = signalfd(-1, &set, SFD_CLOEXEC);
	if (signal_fd < 0 || pipe2(fds, O_CLOEXEC)) {
		perror("gannet: cannot watch nbdkit");
		return EXIT_FAILURE;
	}
	if (vol_nbd_spawn(argv, fds[1], &pid))
		return EXIT_FAILURE;
	close(fds[1]);
	status = vol_nbd_watch(r, pid, fds[0], signal_fd, &signo);
	close(fds[0]);
	close(signal_fd);
	if (!r->port)
		unlink(r->socket);
	return vol_nbd_end(status, signo);
}

static bool vol_nbd_is_socket(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISSOCK(st.st_mode);
}

/*
 * Removes a socket that nobody listens at: a command that was killed left it. What else is there
 * stays there.
 */
static int vol_nbd_clear_socket(const char *path)
{
	struct sockaddr_un addr = {.sun_family = AF_UNIX};
	int fd, err;

	if (strlen(path) >= sizeof(addr.sun_path)) {
		fprintf(stderr, "gannet: --socket %s is too long: at most %zu bytes\n", path,
			sizeof(addr.sun_path) - 1);
		return -ENAMETOOLONG;
	}
	if (access(path, F_OK))
		return 0;
	strcpy(addr.sun_path, path);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	err = fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
	if (fd >= 0)
		close(fd);
	/* A file that is no socket refuses a connection, too. */
	if (err == ECONNREFUSED && vol_nbd_is_socket(path) && !unlink(path))
		return 0;
	if (err && err != EAGAIN)
		fprintf(stderr, "gannet: %s exists; remove it, or choose another --socket\n", path);
	else
		fprintf(stderr,
			"gannet: %s: another server listens at it; choose another --socket\n",
			path);
	return -EEXIST;
}

/* The plugin checks the same, in terms of its parameters. */
static int vol_nbd_check(const struct request *r)
{
	if (r->vol.bytes % GN_VOL_BLOCK)
		return cmd_usage_error("--size must be a multiple of %u, not %" PRIu64,
				       GN_VOL_BLOCK, r->vol.bytes);
	if (r->socket && r->port)
		return cmd_usage_error("--socket or --port, not both");
	return vol_donors_check(&r->donors, r->vol.copies);
}

static int vol_nbd_run(const struct args *args)
{
	struct request *r = args->opts;
	struct words w = {0};
	char plugin[4096], path[108];
	const char *dir = getenv("XDG_RUNTIME_DIR");
	int status = EXIT_FAILURE;

	if (vol_nbd_check(r))
		return EXIT_USAGE;
	snprintf(path, sizeof(path), "%s/gannet-nbd-%d", dir && *dir ? dir : "/tmp", (int)getpid());
	if (!r->socket)
		r->socket = path;
	if (!r->port && vol_nbd_clear_socket(r->socket))
		return EXIT_FAILURE;
	if (vol_nbd_find_plugin(plugin, sizeof(plugin)))
		return EXIT_FAILURE;
	words_add(&w, "nbdkit");
	words_add(&w, "--foreground");
	words_add(&w, "--exit-with-parent");
	if (r->port) {
		words_add(&w, "--ipaddr=localhost");
		words_add(&w, "--port=%" PRIu32, r->port);
	} else {
		words_add(&w, "--unix=%s", r->socket);
	}
	if (r->swap)
		words_add(&w, "--swap");
	words_add(&w, "%s", plugin);
	words_add_volume(&w, r);
	if (w.failed)
		fprintf(stderr, "gannet: there is no memory\n");
	else
		status = vol_nbd_serve(r, w.word);
	words_free(&w);
	return status;
}

const struct command command_vol_nbd = {
	.name = "nbd",
	.what = "a volume for everything that speaks NBD",
	.about = "Starts nbdkit with Gannet's plugin, until Ctrl-C or SIGTERM. The volume and its "
		 "content end with it.",
	.more = "nbdkit-gannet-plugin(1) has what nbdkit itself can add: TLS, filters, other "
		"addresses.",
	.run = vol_nbd_run,
	OPTIONS(options, struct request, .vol = {.copies = 2, .repair_share = 25}),
};
