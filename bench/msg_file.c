/* SPDX-License-Identifier: MIT */
/*
 * The file of results. A process that was killed, or a full disk, may have left half a line at its
 * end: that is cut off. Any other line that is not ours means that the file is somebody else's.
 */
#include "msg_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "msg.h"

#define HEAD	  "{\"bench\":\"msg\","
#define BYTES_MAX (256u << 20) /* more than any sweep makes */

/* ---- reading ---- */

/* All of it, with a 0 behind it; to be freed. */
static char *read_all(int fd, size_t size)
{
	char *text = malloc(size + 1);
	size_t n = 0;
	ssize_t got = 1;

	while (text && n < size && got > 0) {
		got = pread(fd, text + n, size - n, (off_t)n);
		if (got > 0)
			n += (size_t)got;
		else if (got < 0 && errno == EINTR)
			got = 1;
	}
	if (!text || n < size) {
		free(text);
		return NULL;
	}
	text[size] = '\0';
	return text;
}

/* Its first bytes are those of every line, as far as it has some. */
static bool begins_as_ours(const char *line, size_t len)
{
	return !strncmp(line, HEAD, len < strlen(HEAD) ? len : strlen(HEAD));
}

static int note_line(struct result_file *f, char *line, size_t len, size_t number,
		     char why[BENCH_WHY_MAX])
{
	char **more, *results = NULL;

	line[len] = '\0';
	if (strlen(line) == len && len > strlen(HEAD) && begins_as_ours(line, len) &&
	    line[len - 1] == '}')
		results = strstr(line, BENCH_MSG_RESULTS);
	if (!results)
		return bench_refuse(why,
				    "%s, line %zu is no result of bench msg: name another file",
				    f->path, number);
	*results = '\0';
	if (!(f->n & (f->n - 1))) { /* a power of two: it is full */
		more = realloc(f->known, (f->n ? 2 * (size_t)f->n : 1) * sizeof(char *));
		if (!more)
			return bench_refuse(why, "%s: no memory for %zu lines", f->path, number);
		f->known = more;
	}
	f->known[f->n] = strdup(line);
	if (!f->known[f->n])
		return bench_refuse(why, "%s: no memory for %zu lines", f->path, number);
	f->n++;
	return 0;
}

/* Notes whole lines; *end is where they end. */
static int note_lines(struct result_file *f, char *text, size_t size, size_t *end,
		      char why[BENCH_WHY_MAX])
{
	size_t number = 0;
	int rc = 0;

	*end = 0;
	while (!rc && *end < size) {
		char *line = text + *end, *newline = memchr(line, '\n', size - *end);

		number++;
		if (!newline && begins_as_ours(line, size - *end))
			return 0;
		rc = note_line(f, line, newline ? (size_t)(newline - line) : size - *end, number,
			       why);
		*end = newline ? (size_t)(newline - text) + 1 : size;
	}
	return rc;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int look_at(struct result_file *f, bool *cut, char why[BENCH_WHY_MAX])
{
	struct stat stat;
	size_t end;
	char *text;
	int rc;

	if (flock(f->fd, LOCK_EX | LOCK_NB))
		return errno == EWOULDBLOCK ?
			       bench_refuse(why, "%s is in use by another run of bench msg",
					    f->path) :
			       bench_refuse(why, "%s: cannot lock it: %s", f->path,
					    strerror(errno));
	if (fstat(f->fd, &stat) || !S_ISREG(stat.st_mode))
		return bench_refuse(why, "%s is not a regular file", f->path);
	if ((uint64_t)stat.st_size > BYTES_MAX)
		return bench_refuse(why, "%s has more than %u MiB: name another file", f->path,
				    BYTES_MAX >> 20);
	text = read_all(f->fd, (size_t)stat.st_size);
	if (!text)
		return bench_refuse(why, "%s: cannot read it: %s", f->path, strerror(errno));
	rc = note_lines(f, text, (size_t)stat.st_size, &end, why);
	free(text);
	if (rc)
		return rc;
	*cut = end < (size_t)stat.st_size;
	if (*cut && ftruncate(f->fd, (off_t)end))
		return bench_refuse(why, "%s: cannot cut its last line off: %s", f->path,
				    strerror(errno));
	if (f->n)
		qsort(f->known, f->n, sizeof(char *), by_text);
	return 0;
}

int result_file_open(struct result_file *f, const char *path, bool *cut, char why[BENCH_WHY_MAX])
{
	int rc;

	*f = (struct result_file){.path = path};
	*cut = false;
	f->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
	if (f->fd < 0)
		return bench_refuse(why, "%s: %s", path, strerror(errno));
	rc = look_at(f, cut, why);
	if (rc)
		result_file_close(f);
	return rc;
}

bool result_file_has(const struct result_file *f, const char *identity)
{
	return f->n && bsearch(&identity, f->known, f->n, sizeof(char *), by_text);
}

/* ---- writing ---- */

int result_file_add(struct result_file *f, const char *line)
{
	const size_t len = strlen(line);
	struct stat before;
	ssize_t n;
	int rc;

	if (fstat(f->fd, &before))
		return -errno;
	n = write(f->fd, line, len);
	if (n == (ssize_t)len)
		return fdatasync(f->fd) && errno != EINVAL && errno != EROFS ? -errno : 0;
	rc = n < 0 ? -errno : -ENOSPC;
	/* Half a line is of no use to anybody; if it stays, the next run cuts it off. */
	if (n > 0 && ftruncate(f->fd, before.st_size))
		return rc;
	return rc;
}

void result_file_close(struct result_file *f)
{
	for (unsigned i = 0; i < f->n; i++)
		free(f->known[i]);
	free(f->known);
	if (f->fd >= 0)
		close(f->fd);
	*f = (struct result_file){.fd = -1};
}
