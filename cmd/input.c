/* SPDX-License-Identifier: MIT */
/*
 * Everything that is in a file or on stdin.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "cmd.h"

#define READ_STEP 65536u

int cmd_read_all(int fd, uint32_t max, uint8_t **out, uint32_t *len)
{
	uint8_t *bytes = NULL;
	size_t n = 0, room = 0;
	ssize_t got = 1;
	int rc = 0;

	while (!rc && got) {
		if (room - n < READ_STEP) {
			uint8_t *more = realloc(bytes, room = 2 * room + READ_STEP);

			if (!more) {
				free(bytes);
				return -ENOMEM;
			}
			bytes = more;
		}
		got = read(fd, bytes + n, room - n);
		if (got < 0)
			rc = errno == EINTR ? 0 : -errno;
		else
			n += (size_t)got;
		if (n > max)
			rc = -EFBIG;
	}
	if (rc) {
		free(bytes);
		return rc;
	}
	*out = bytes;
	*len = (uint32_t)n;
	return 0;
}
