/* SPDX-License-Identifier: MIT */
/*
 * Killed processes leave their sockets behind. The next process that opens the provider removes
 * them: names whose lock is free, and datagram sockets without a listener.
 */
#include "fabric/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define SWEEP_MAX     1024 /* directory entries per sweep */
#define LOCK_TRIES    100
#define LOCK_RETRY_US 1000

static bool entry_is_socket(const char *path)
{
	struct stat st;

	return !lstat(path, &st) && S_ISSOCK(st.st_mode) && st.st_uid == geteuid();
}

static void sweep_name(const struct shm_fabric *fabric, const char *lock)
{
	struct sockaddr_un path, name;
	struct stat by_fd, by_path;
	int fd;

	shm_path(fabric, lock, &path);
	name = path;
	*strrchr(name.sun_path, '~') = '\0';
	fd = open(path.sun_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	/*
	 * The holder of the exclusive lock owns the name. A sweep takes it shared, so that
	 * listener_lock_name() can tell a sweep from an owner. Sweeps exclude each other. Only our
	 * own files are removed: in a shared directory anybody can create a file that looks like a
	 * lock.
	 */
	if (!flock(fd, LOCK_SH | LOCK_NB) && !fstat(fd, &by_fd) &&
	    !lstat(path.sun_path, &by_path) && by_fd.st_ino == by_path.st_ino &&
	    S_ISREG(by_fd.st_mode) && by_fd.st_uid == geteuid()) {
		if (entry_is_socket(name.sun_path))
			unlink(name.sun_path);
		unlink(path.sun_path);
	}
	close(fd);
}

static void sweep_datagram(const struct shm_fabric *fabric, const char *name)
{
	const int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un path;

	if (sock < 0)
		return;
	shm_path(fabric, name, &path);
	if (entry_is_socket(path.sun_path) &&
	    connect(sock, (struct sockaddr *)&path, sizeof(path)) && errno == ECONNREFUSED)
		unlink(path.sun_path);
	close(sock);
}

static bool ends_with(const char *name, const char *end)
{
	const size_t len = strlen(name), n = strlen(end);

	return len > n && !strcmp(name + len - n, end);
}

void shm_sweep(const struct shm_fabric *fabric)
{
	DIR *dir = opendir(fabric->dir);
	struct dirent *entry;

	if (!dir)
		return;
	/* No socket may be between bind() and listen(): see shm_ud_bind(). */
	if (!flock(dirfd(dir), LOCK_EX | LOCK_NB))
		for (int i = 0; i < SWEEP_MAX && (entry = readdir(dir)); i++) {
			if (ends_with(entry->d_name, SHM_LOCK_SUFFIX))
				sweep_name(fabric, entry->d_name);
			else if (!strncmp(entry->d_name, SHM_UD_PREFIX, strlen(SHM_UD_PREFIX)))
				sweep_datagram(fabric, entry->d_name);
		}
	closedir(dir);
}

int shm_ud_bind(const struct shm_fabric *fabric, int sock, const struct sockaddr_un *addr,
		int backlog)
{
	const int dir = open(fabric->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = dir < 0 ? -errno : 0;

	/*
	 * A sweep is short. A process that holds the directory's lock for longer does not stop us.
	 */
	for (int i = 0; !rc && i < LOCK_TRIES && flock(dir, LOCK_SH | LOCK_NB); i++)
		gn_sleep_us(LOCK_RETRY_US);
	if (!rc &&
	    (bind(sock, (const struct sockaddr *)addr, sizeof(*addr)) || listen(sock, backlog)))
		rc = -errno;
	if (dir >= 0)
		close(dir);
	return rc;
}
