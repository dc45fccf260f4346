/* SPDX-License-Identifier: MIT */
/*
 * Processes that were killed leave their sockets behind. Whoever opens the provider next takes them
 * away: names whose lock nobody holds, and datagram sockets nobody listens on.
 */
#include "fabric/shm/shm.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#define SWEEP_MAX 1024 /* entries looked at */

static void sweep_name(const struct shm_fabric *fabric, const char *lock)
{
	struct sockaddr_un path;
	int fd;

	shm_path(fabric, lock, &path);
	fd = open(path.sun_path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	/*
	 * Whoever gets this lock owns the name; its socket goes first, so it is never without a
	 * lock.
	 */
	if (!flock(fd, LOCK_EX | LOCK_NB)) {
		*strrchr(path.sun_path, '~') = '\0';
		unlink(path.sun_path);
		shm_path(fabric, lock, &path);
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
	if (connect(sock, (struct sockaddr *)&path, sizeof(path)) && errno == ECONNREFUSED)
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
	/* Nobody may be between binding and listening: see shm_ud_bind(). */
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
	int rc = dir < 0 || flock(dir, LOCK_SH) ? -errno : 0;

	if (!rc &&
	    (bind(sock, (const struct sockaddr *)addr, sizeof(*addr)) || listen(sock, backlog)))
		rc = -errno;
	if (dir >= 0)
		close(dir);
	return rc;
}
