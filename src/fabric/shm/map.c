/* SPDX-License-Identifier: MIT */
/*
 * memfds and their mappings. A file received on several connections with the same rights is mapped
 * once, because the page tables of a large store cost memory. Only descriptors that would get the
 * same mapping share one, so sharing grants no rights. Our own memory is mapped writable; when a
 * peer sends it back, it gets a separate mapping with the peer's rights, unless the peer is this
 * process.
 */
#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct shm_map *maps;

/* Returns an existing mapping of this file with exactly the rights this peer would get. */
static struct shm_map *map_find(const struct stat *st, size_t size, bool writable,
				enum wire_peer kind)
{
	for (struct shm_map *m = maps; m; m = m->next)
		if (m->dev == st->st_dev && m->ino == st->st_ino && m->size >= size &&
		    (m->own ? kind == PEER_SELF : m->writable == writable))
			return m;
	return NULL;
}

/* Maps fd and adds it to the list. The caller holds the lock. */
static int map_enter(int fd, const struct stat *st, size_t size, bool writable,
		     struct shm_map **out)
{
	struct shm_map *map = gn_alloc(sizeof(*map), 0);
	void *addr;

	if (!map)
		return -ENOMEM;
	addr = mmap(NULL, size, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
	if (addr == MAP_FAILED) {
		const int rc = -errno;

		gn_free(map);
		return rc;
	}
	/* A forked child must not write to its parent's memory: it gets no mapping. */
	madvise(addr, size, MADV_DONTFORK);
	*map = (struct shm_map){.next = maps,
				.dev = st->st_dev,
				.ino = st->st_ino,
				.addr = addr,
				.size = size,
				.writable = writable,
				.refs = 1};
	maps = map;
	*out = map;
	return 0;
}

static int map_seal(int fd, bool writes)
{
	return fcntl(fd, F_ADD_SEALS,
		     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL |
			     (writes ? F_SEAL_FUTURE_WRITE : 0));
}

int shm_map_create(const char *name, size_t size, bool huge, bool seal_writes, struct shm_map **out,
		   int *fd)
{
	const size_t page = huge ? SHM_HUGE_PAGE : GN_PAGE;
	struct shm_map *map;
	struct stat st;
	int rc, new_fd;

	size = (size + page - 1) & ~(page - 1);
	new_fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? MFD_HUGETLB : 0));
	if (new_fd < 0)
		return -errno;
	if (ftruncate(new_fd, (off_t)size) || fstat(new_fd, &st)) {
		rc = -errno;
		goto close_fd;
	}
	pthread_mutex_lock(&lock);
	rc = map_enter(new_fd, &st, size, true, &map);
	if (!rc)
		map->own = true;
	pthread_mutex_unlock(&lock);
	if (rc)
		goto close_fd;
	if (map_seal(new_fd, seal_writes)) {
		rc = -errno;
		shm_map_put(map);
		goto close_fd;
	}
	*out = map;
	*fd = new_fd;
	return 0;
close_fd:
	close(new_fd);
	return rc;
}

int shm_map_peer(int fd, size_t size, bool writable, enum wire_peer kind, struct shm_map **out)
{
	const int seals = fcntl(fd, F_GET_SEALS), mode = fcntl(fd, F_GETFL) & O_ACCMODE;
	const bool trusted = kind != PEER_OTHER_USER;
	struct shm_map *map;
	struct statfs fs;
	struct stat st;
	int rc = 0;

	/* Without these seals the peer could shrink the file and kill us with SIGBUS. */
	if (seals < 0 || (seals & (F_SEAL_SHRINK | F_SEAL_GROW)) != (F_SEAL_SHRINK | F_SEAL_GROW))
		return -EPROTO;
	/*
	 * Checks what mmap() would refuse, because an existing mapping needs no mmap(). The file
	 * may be our own, sent back: one sealed against writes must not become writable.
	 */
	if (mode == O_WRONLY ||
	    (writable && (mode != O_RDWR || seals & (F_SEAL_FUTURE_WRITE | F_SEAL_WRITE))))
		return -EACCES;
	/* Access to a hole in a huge page file needs free huge pages: SIGBUS again. */
	if (fstatfs(fd, &fs) || (fs.f_type == HUGETLBFS_MAGIC && !trusted))
		return -EPROTO;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_size < 0 ||
	    (uint64_t)st.st_size < size || !size)
		return -EPROTO;
	pthread_mutex_lock(&lock);
	map = map_find(&st, size, writable, kind);
	if (!map)
		/* Map no more than needed: a sparse file may exceed the address space. */
		rc = map_enter(fd, &st, trusted ? (size_t)st.st_size : size, writable, &map);
	else
		map->refs++;
	pthread_mutex_unlock(&lock);
	if (!rc)
		*out = map;
	return rc;
}

void shm_map_put(struct shm_map *map)
{
	bool last;

	if (!map)
		return;
	pthread_mutex_lock(&lock);
	last = !--map->refs;
	if (last) {
		struct shm_map **at = &maps;

		while (*at != map)
			at = &(*at)->next;
		*at = map->next;
	}
	pthread_mutex_unlock(&lock);
	if (last) { /* outside the lock: this may take long */
		shm_unmap(map->addr, map->size);
		gn_free(map);
	}
}
