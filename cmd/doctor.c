/* SPDX-License-Identifier: MIT */
/*
 * gannet doctor: which providers work here, proven by use, and for each that does not the reason
 * and the command that mends it. Needs no rights, and changes nothing but the folder of shm's
 * sockets, which opening that provider makes.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <gannet/pager.h>

#include "cmd.h"
#include "command.h"
#include "doctor.h"

#define DIR_MAX	       37u /* bytes; what a socket's path leaves for the folder */
#define FILES_ENOUGH   1024u
#define ALL_SEALS      (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL)
#define HUGE_PAGES_DIR "/sys/kernel/mm/hugepages/hugepages-2048kB"

/* ---- findings ---- */

struct finding *doctor_say(struct doctor *d, enum doctor_state state, const char *about,
			   const char *what, const char *fmt, ...)
{
	struct finding *f = &d->findings[d->n < FINDINGS_MAX - 1 ? d->n : FINDINGS_MAX - 1];
	va_list ap;

	if (d->n < FINDINGS_MAX - 1)
		d->n++;
	*f = (struct finding){.about = about, .what = what, .state = state};
	va_start(ap, fmt);
	vsnprintf(f->detail, sizeof(f->detail), fmt, ap);
	va_end(ap);
	return f;
}

void doctor_fix(struct finding *finding, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(finding->fix, sizeof(finding->fix), fmt, ap);
	va_end(ap);
}

static void doctor_keep_reason(void *arg, enum gn_log_level level, const char *line)
{
	struct doctor *d = arg;
	const char *colon = strstr(line, ": ");

	if (level > GN_LOG_WARN || d->reason[0])
		return;
	/* "shm: cannot …; try …": the first column says whom it is about, and we what to do. */
	snprintf(d->reason, sizeof(d->reason), "%s", colon ? colon + 2 : line);
	d->reason[strcspn(d->reason, ";")] = '\0';
}

void doctor_try(struct doctor *d)
{
	d->reason[0] = '\0';
}

const char *doctor_reason(const struct doctor *d, int rc)
{
	return d->reason[0] ? d->reason : gn_strerror(rc);
}

bool doctor_read(char *out, size_t size, const char *fmt, ...)
{
	char path[512];
	va_list ap;
	FILE *file;
	bool got;

	va_start(ap, fmt);
	vsnprintf(path, sizeof(path), fmt, ap);
	va_end(ap);
	file = fopen(path, "re");
	if (!file)
		return false;
	got = fgets(out, (int)size, file);
	fclose(file);
	if (got)
		out[strcspn(out, "\n")] = '\0';
	return got;
}

/* ---- shm ---- */

/* As the provider chooses it; *by is the variable that said so, or NULL. */
static void doctor_find_dir(char *out, size_t size, const char **by)
{
	const char *given = getenv("GANNET_SHM_DIR"), *runtime = getenv("XDG_RUNTIME_DIR");
	struct stat st;

	if (given && *given) {
		*by = "GANNET_SHM_DIR";
		snprintf(out, size, "%s", given);
	} else if (runtime && *runtime && !stat(runtime, &st) && S_ISDIR(st.st_mode)) {
		*by = "XDG_RUNTIME_DIR";
		snprintf(out, size, "%s/gannet", runtime);
	} else {
		*by = NULL;
		snprintf(out, size, "/tmp/gannet-%u", (unsigned)geteuid());
	}
}

/* A folder of the user's own choice is taken as it is; ours must be ours alone. */
static void check_dir(struct doctor *d)
{
	const char *by, *wrong = NULL;
	bool chosen, can_mend = true;
	char dir[512];
	struct stat st;
	struct finding *f;

	doctor_find_dir(dir, sizeof(dir), &by);
	chosen = by && !strcmp(by, "GANNET_SHM_DIR");
	if (strlen(dir) > DIR_MAX)
		wrong = "its path is too long for a socket's", can_mend = false;
	else if (chosen ? stat(dir, &st) : lstat(dir, &st))
		wrong = gn_strerror(-errno);
	else if (!S_ISDIR(st.st_mode))
		wrong = "it is not a directory", can_mend = false;
	else if (!chosen && st.st_uid != geteuid())
		wrong = "it is somebody else's", can_mend = false;
	else if (!chosen && st.st_mode & 077)
		wrong = "others may enter";
	else if (access(dir, R_OK | W_OK | X_OK))
		wrong = gn_strerror(-errno);
	if (!wrong) {
		doctor_say(d, DOCTOR_OK, "shm", "folder", "%s, mode %04o", dir,
			   (unsigned)st.st_mode & 07777);
		return;
	}
	f = doctor_say(d, DOCTOR_NO, "shm", "folder", "%s: %s", dir, wrong);
	if (can_mend)
		doctor_fix(f, "mkdir -p %s && chmod 700 %s", dir, dir);
	else if (by)
		doctor_fix(f, "unset %s", by);
	else
		doctor_fix(f, "mkdir -m 700 ~/.gannet && export GANNET_SHM_DIR=~/.gannet");
}

static void check_sealing(struct doctor *d)
{
	const int fd = memfd_create("gannet-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	const int rc =
		fd < 0 || ftruncate(fd, GN_PAGE) || fcntl(fd, F_ADD_SEALS, ALL_SEALS) ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (rc)
		doctor_fix(doctor_say(d, DOCTOR_NO, "shm", "sealed memory",
				      "memfd_create and its seals: %s", gn_strerror(rc)),
			   "boot a kernel of version 5.1 or newer");
	else
		doctor_say(d, DOCTOR_OK, "shm", "sealed memory",
			   "against shrinking, growing and others' writing");
}

static void check_files(struct doctor *d)
{
	struct finding *f;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit))
		return;
	f = doctor_say(d, limit.rlim_cur < FILES_ENOUGH ? DOCTOR_NOTE : DOCTOR_OK, "shm",
		       "open files",
		       "at most %llu; each connection, pd, cq and mem for peers takes one",
		       (unsigned long long)limit.rlim_cur);
	if (limit.rlim_cur >= FILES_ENOUGH)
		return;
	if (limit.rlim_max > limit.rlim_cur)
		doctor_fix(f, "ulimit -n $(ulimit -Hn)");
	else
		doctor_fix(f, "%sprlimit --pid $$ --nofile=65536", geteuid() ? "sudo " : "");
}

static bool check_shm(struct doctor *d)
{
	struct probe_result result;
	char addr[64];
	int rc;

	snprintf(addr, sizeof(addr), "shm:doctor-%ld", (long)getpid());
	doctor_try(d);
	rc = probe_self("shm", addr, &result);
	if (rc)
		doctor_say(d, DOCTOR_NO, "shm", "connection", "%s: %s", result.step,
			   doctor_reason(d, rc));
	else
		doctor_say(d, DOCTOR_OK, "shm", "connection",
			   "moved bytes by WRITE, READ and SEND over a connection to itself");
	check_dir(d);
	check_sealing(d);
	check_files(d);
	return !rc;
}

/* ---- sim ---- */

static void check_sim(struct doctor *d)
{
	struct probe_result result;
	int rc;

	doctor_try(d);
	rc = probe_sim(&result);
	if (rc)
		doctor_say(d, DOCTOR_NO, "sim", "two nodes", "%s: %s",
			   result.step ? result.step : "running", doctor_reason(d, rc));
	else
		doctor_say(d, DOCTOR_OK, "sim", "two nodes",
			   "sent a message in %llu ns of virtual time, %llu events",
			   (unsigned long long)result.virtual_ns,
			   (unsigned long long)result.events);
}

/* ---- the pager ---- */

static void check_pager(struct doctor *d)
{
	const int rc = gn_pager_probe();
	struct finding *f;

	if (!rc) {
		doctor_say(d, DOCTOR_OK, "pager", "page faults",
			   "userfaultfd works, also for memory that system calls touch");
		return;
	}
	f = doctor_say(d, DOCTOR_NO, "pager", "page faults", "%s", gn_error());
	if (rc == -EPERM)
		doctor_fix(f, "sudo sysctl vm.unprivileged_userfaultfd=1");
	else if (rc == -EOPNOTSUPP)
		doctor_fix(f, "boot a kernel of version 6.1 or newer");
}

/* ---- the machine ---- */

static void check_huge_pages(struct doctor *d)
{
	char total[32], free_pages[32];
	struct finding *f;

	if (!doctor_read(total, sizeof(total), HUGE_PAGES_DIR "/nr_hugepages") ||
	    !doctor_read(free_pages, sizeof(free_pages), HUGE_PAGES_DIR "/free_hugepages")) {
		doctor_say(d, DOCTOR_NOTE, "machine", "huge pages",
			   "this kernel has none of 2 MiB; GN_MEM_HUGE will fail");
		return;
	}
	if (atol(free_pages) > 0) {
		doctor_say(d, DOCTOR_OK, "machine", "huge pages",
			   "%s of %s are free, of 2 MiB each", free_pages, total);
		return;
	}
	f = doctor_say(d, DOCTOR_NOTE, "machine", "huge pages",
		       "none of %s is free; only GN_MEM_HUGE needs them", total);
	doctor_fix(f, "%ssysctl vm.nr_hugepages=%ld", geteuid() ? "sudo " : "", atol(total) + 64);
}

static void check_cores(struct doctor *d)
{
	const long there = sysconf(_SC_NPROCESSORS_ONLN);
	cpu_set_t set;
	const int ours = sched_getaffinity(0, sizeof(set), &set) ? (int)there : CPU_COUNT(&set);
	struct finding *f;

	if (ours >= 2) {
		doctor_say(d, DOCTOR_OK, "machine", "cores",
			   "%d of %ld; a thread that polls fills one: pin it with taskset -c N",
			   ours, there);
		return;
	}
	f = doctor_say(d, DOCTOR_NOTE, "machine", "cores",
		       "%d of %ld: two ends that poll take turns here", ours, there);
	if (there > 1)
		doctor_fix(f, "taskset -pc 0-%ld $$", there - 1);
}

/* ---- printing ---- */

static const char *const state_names[] = {"ok", "no", "note"};

static void doctor_print_text(const struct doctor *d)
{
	const char *about = "";
	struct utsname os;

	if (!uname(&os))
		printf("gannet %s on %s, %s %s %s\n\n", gn_version(), os.nodename, os.sysname,
		       os.release, os.machine);
	for (unsigned i = 0; i < d->n; i++) {
		const struct finding *f = &d->findings[i];
		const bool first = strcmp(about, f->about);

		printf("%-8s %-5s %-16s %s\n", first ? f->about : "", state_names[f->state],
		       f->what, f->detail);
		if (f->fix[0])
			printf("%-8s %-5s %-16s %s\n", "", "", "  fix:", f->fix);
		about = f->about;
	}
}

static void doctor_print_string(const char *name, const char *value)
{
	printf("\"%s\":\"", name);
	for (const char *c = value; *c; c++) {
		if (*c == '"' || *c == '\\')
			putchar('\\');
		putchar((unsigned char)*c < ' ' ? ' ' : *c);
	}
	putchar('"');
}

static void doctor_print_json(const struct doctor *d)
{
	for (unsigned i = 0; i < d->n; i++) {
		const struct finding *f = &d->findings[i];

		putchar('{');
		doctor_print_string("about", f->about);
		putchar(',');
		doctor_print_string("what", f->what);
		putchar(',');
		doctor_print_string("state", state_names[f->state]);
		putchar(',');
		doctor_print_string("detail", f->detail);
		putchar(',');
		doctor_print_string("fix", f->fix);
		puts("}");
	}
}

static const struct opt options[] = {
	{OPT_FLAG, "json", NULL,
	 "one object a line: about, what, state (ok, no, note), detail, fix", .to = 0},
	{.type = OPT_END},
};

static int doctor_run(const struct args *args)
{
	const bool *json = args->opts;
	struct doctor *d = calloc(1, sizeof(*d));
	bool works;
	int rc;

	if (!d) {
		fprintf(stderr, "gannet: doctor: %s\n", gn_strerror(-ENOMEM));
		return EXIT_FAILURE;
	}
	gn_log_to(doctor_keep_reason, d);
	works = check_shm(d);
	doctor_verbs(d);
	check_sim(d);
	check_pager(d);
	check_huge_pages(d);
	check_cores(d);
	gn_log_to(NULL, NULL);
	(*json ? doctor_print_json : doctor_print_text)(d);
	free(d);
	rc = cmd_flush_stdout();
	return rc ? rc : works ? EXIT_SUCCESS : EXIT_FAILURE;
}

const struct command command_doctor = {
	.name = "doctor",
	.what = "which providers work here, and what the others lack",
	.about =
		"Tries each provider and says which work here; for one that does not, why, and the "
		"command that mends it. Leaves with 0 if shared memory works.",
	.run = doctor_run,
	OPTIONS(options, bool, false),
};
