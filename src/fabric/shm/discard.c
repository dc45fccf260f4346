/* SPDX-License-Identifier: MIT */
/*
 * Closes descriptors that a peer sent. Memory is closed at once. Closing another type of file may
 * take as long as the peer likes: a socket may linger, a file system may hang. A separate thread
 * closes these; it exists only while there are any. Descriptors queued for it count against the
 * process's limit; at the limit no new connection is accepted.
 *
 * The same thread unmaps long mappings: 20 ms for 64 MiB. The thread that ends a connection has
 * other connections to look after.
 */
#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define UNMAP_AT_ONCE (4u << 20) /* bytes */

struct discarded {
	int fd; /* -1: a mapping */
	void *addr;
	size_t size;
	struct discarded *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct discarded *discarded;
static bool running;

static void *closer_main(void *arg)
{
	(void)arg;
	for (;;) {
		struct discarded *d;

		pthread_mutex_lock(&lock);
		d = discarded;
		if (d)
			discarded = d->next;
		else
			running = false;
		pthread_mutex_unlock(&lock);
		if (!d)
			return NULL;
		if (d->fd >= 0)
			close(d->fd);
		else
			munmap(d->addr, d->size);
		gn_free(d);
	}
}

/* The caller holds the lock. The thread blocks all signals. */
static bool closer_start(void)
{
	sigset_t all, before;
	pthread_attr_t attr;
	pthread_t thread;
	int rc;

	if (pthread_attr_init(&attr))
		return false;
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	rc = pthread_create(&thread, &attr, closer_main, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	return !rc;
}

static void closer_queue(struct discarded *d)
{
	pthread_mutex_lock(&lock);
	d->next = discarded;
	discarded = d;
	/* If no thread can be started, the next call tries again. */
	running = running || closer_start();
	pthread_mutex_unlock(&lock);
}

static void closer_add(int fd)
{
	const struct linger none = {.l_onoff = 0};
	struct discarded *d = gn_alloc(sizeof(*d), 0);

	setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof(none));
	if (!d) {
		close(fd);
		return;
	}
	d->fd = fd;
	closer_queue(d);
}

void shm_unmap(void *addr, size_t size)
{
	struct discarded *d = size > UNMAP_AT_ONCE ? gn_alloc(sizeof(*d), 0) : NULL;

	if (!d) {
		munmap(addr, size);
		return;
	}
	*d = (struct discarded){.fd = -1, .addr = addr, .size = size};
	closer_queue(d);
}

void shm_close_fd(int fd)
{
	if (fd < 0)
		return;
	if (fcntl(fd, F_GET_SEALS) >= 0)
		close(fd);
	else
		closer_add(fd);
}

void shm_close_sock(int sock)
{
	if (sock < 0)
		return;
	if (wire_drain(sock))
		close(sock);
	else
		closer_add(sock);
}

void shm_close_listener(int sock)
{
	shutdown(sock, SHUT_RDWR);
	for (;;) {
		const int waiting = accept4(sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (waiting >= 0)
			shm_close_sock(waiting);
		else if (errno != EINTR && errno != ECONNABORTED)
			break;
	}
	close(sock);
}
