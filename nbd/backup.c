/* SPDX-License-Identifier: MIT */
/* The backup of a volume in a local file: struct gn_vol_backup over a file descriptor. */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <nbdkit-plugin.h>
#include <stdint.h>
#include <unistd.h>

#include "plugin.h"

static int backup_fd(void *arg)
{
	return (int)(intptr_t)arg;
}

static int backup_read(void *arg, void *buf, size_t len_bytes, uint64_t offset)
{
	for (size_t at = 0; at < len_bytes;) {
		const ssize_t n = pread(backup_fd(arg), (char *)buf + at, len_bytes - at,
					(off_t)(offset + at));

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 0)
			return -EIO; /* the file was cut */
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int backup_write(void *arg, const void *buf, size_t len_bytes, uint64_t offset)
{
	for (size_t at = 0; at < len_bytes;) {
		const ssize_t n = pwrite(backup_fd(arg), (const char *)buf + at, len_bytes - at,
					 (off_t)(offset + at));

		if (n < 0 && errno != EINTR)
			return -errno;
		at += n > 0 ? (size_t)n : 0;
	}
	return 0;
}

static int backup_sync(void *arg)
{
	return fdatasync(backup_fd(arg)) ? -errno : 0;
}

int nbd_backup_open(const char *path, uint64_t bytes, struct gn_vol_backup *out)
{
	/* An older file may be all that is left of a volume. */
	const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	if (fd < 0 || ftruncate(fd, (off_t)bytes)) {
		nbdkit_error("backup=%s: %m%s", path,
			     errno == EEXIST ? ": a volume begins empty, and replaces no file" :
					       "");
		if (fd >= 0) {
			unlink(path);
			close(fd);
		}
		return -1;
	}
	*out = (struct gn_vol_backup){.read = backup_read,
				      .write = backup_write,
				      .sync = backup_sync,
				      .arg = (void *)(intptr_t)fd};
	return 0;
}

void nbd_backup_close(struct gn_vol_backup *backup)
{
	if (backup->write)
		close(backup_fd(backup->arg));
	*backup = (struct gn_vol_backup){0};
}
