/* SPDX-License-Identifier: MIT */
/*
 * The program that gannet pager run starts. The dynamic linker loads the library into it; programs
 * without one, and programs with rights of their own, ignore LD_PRELOAD, which is said before they
 * start.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pager_cmd.h"
#include "shared.h"

#define SCRIPTS_MAX 4 /* interpreters of interpreters, as in the kernel */

int pager_program_library(char *path, size_t room)
{
	const ssize_t len = readlink("/proc/self/exe", path, room - sizeof("/" PRELOAD_LIBRARY));
	char *dir = len > 0 ? memrchr(path, '/', (size_t)len) : NULL;

	if (dir) {
		strcpy(dir, "/" PRELOAD_LIBRARY); /* a build directory */
		if (!access(path, R_OK))
			return 0;
	}
	snprintf(path, room, "%s/%s", GN_PRELOAD_DIR, PRELOAD_LIBRARY);
	if (!access(path, R_OK))
		return 0;
	fprintf(stderr,
		"gannet: %s is missing; install jemalloc's headers (Debian: libjemalloc-dev), then "
		"build and install Gannet again\n",
		path);
	return -ENOENT;
}

/* As execvp() finds it. */
static int program_find(const char *command, char *path, size_t room)
{
	const char *dirs = getenv("PATH");
	int len;

	if (strchr(command, '/')) {
		snprintf(path, room, "%s", command);
		return access(path, X_OK) ? -errno : 0;
	}
	for (dirs = dirs ? dirs : "/bin:/usr/bin"; *dirs; dirs += *dirs == ':') {
		len = (int)strcspn(dirs, ":");
		snprintf(path, room, "%.*s/%s", len ? len : 1, len ? dirs : ".", command);
		if (!access(path, X_OK))
			return 0;
		dirs += len;
	}
	return -ENOENT;
}

/* Whether the kernel gives it other rights than this process has: then LD_PRELOAD is ignored. */
static bool program_has_rights(int fd)
{
	struct stat st;

	if (fstat(fd, &st))
		return false;
	return (st.st_mode & S_ISUID && st.st_uid != geteuid()) ||
	       (st.st_mode & S_ISGID && st.st_gid != getegid()) ||
	       (geteuid() && fgetxattr(fd, "security.capability", NULL, 0) > 0);
}

static bool program_is_static(int fd, const Elf64_Ehdr *head)
{
	Elf64_Phdr part;

	for (unsigned i = 0; i < head->e_phnum; i++) {
		const off_t at = (off_t)(head->e_phoff + (uint64_t)i * head->e_phentsize);

		if (pread(fd, &part, sizeof(part), at) == sizeof(part) && part.p_type == PT_INTERP)
			return false;
	}
	return true;
}

/* "#!INTERPRETER …": replaces path, and returns true. */
static bool program_interpreter(int fd, char *path, size_t room)
{
	char line[256];
	const ssize_t n = pread(fd, line, sizeof(line) - 1, 0);
	char *from = line + 2;

	if (n < 3 || strncmp(line, "#!", 2))
		return false;
	line[n] = 0;
	from += strspn(from, " \t");
	from[strcspn(from, " \t\r\n")] = 0;
	snprintf(path, room, "%s", from);
	return true;
}

static int program_refuse(const char *path, const char *why)
{
	fprintf(stderr,
		"gannet: %s %s, so the pager's library cannot be loaded into it; it was not "
		"started\n",
		path, why);
	return -ENOTSUP;
}

static int program_check_file(int fd, const char *path)
{
	Elf64_Ehdr head;

	if (program_has_rights(fd))
		return program_refuse(path, "is set-user-ID, set-group-ID or has capabilities");
	if (pread(fd, &head, sizeof(head), 0) != sizeof(head) ||
	    memcmp(head.e_ident, ELFMAG, SELFMAG))
		return 0; /* posix_spawn() knows better */
	if (head.e_ident[EI_CLASS] != ELFCLASS64)
		return program_refuse(path, "is not a 64-bit program");
	if (program_is_static(fd, &head))
		return program_refuse(path, "is statically linked");
	return 0;
}

int pager_program_check(const char *command)
{
	char path[4096];
	int fd, rc = program_find(command, path, sizeof(path));

	if (rc) {
		fprintf(stderr, "gannet: %s: %s\n", command, strerror(-rc));
		return rc;
	}
	for (int i = 0; i < SCRIPTS_MAX; i++) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd < 0)
			return 0; /* may be executed and not read */
		if (!program_interpreter(fd, path, sizeof(path))) {
			rc = program_check_file(fd, path);
			i = SCRIPTS_MAX;
		}
		close(fd);
	}
	return rc;
}
