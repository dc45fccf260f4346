/* SPDX-License-Identifier: MIT */
/*
 * io_uring with the memory of a pager: threads of the kernel touch pages that are not local, and
 * registered buffers are pinned. By system calls, so that it needs no library.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "pager_world.h"

#define ENTRIES 8u
#define PAGES	1280u /* of each of two mappings: the local memory has fewer than one */

struct ring {
	int fd;
	struct io_uring_params params;
	uint8_t *sq, *cq;
	size_t sq_bytes, cq_bytes;
	struct io_uring_sqe *sqes;
};

static uint32_t *ring_word(uint8_t *ring, uint32_t offset)
{
	return (uint32_t *)(void *)(ring + offset);
}

static int ring_create(struct ring *r)
{
	const struct io_uring_params *p = &r->params;

	*r = (struct ring){.fd = -1};
	r->fd = (int)syscall(SYS_io_uring_setup, ENTRIES, &r->params);
	if (r->fd < 0)
		return -errno;
	r->sq_bytes = p->sq_off.array + p->sq_entries * sizeof(uint32_t);
	r->cq_bytes = p->cq_off.cqes + p->cq_entries * sizeof(struct io_uring_cqe);
	r->sq = mmap(NULL, r->sq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_SQ_RING);
	r->cq = mmap(NULL, r->cq_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd,
		     IORING_OFF_CQ_RING);
	r->sqes = mmap(NULL, p->sq_entries * sizeof(*r->sqes), PROT_READ | PROT_WRITE, MAP_SHARED,
		       r->fd, IORING_OFF_SQES);
	assert_true(r->sq != MAP_FAILED && r->cq != MAP_FAILED && r->sqes != MAP_FAILED);
	return 0;
}

static void ring_destroy(struct ring *r)
{
	munmap(r->sqes, r->params.sq_entries * sizeof(*r->sqes));
	munmap(r->cq, r->cq_bytes);
	munmap(r->sq, r->sq_bytes);
	close(r->fd);
}

/* One request, to its end: its result. */
static int ring_run(struct ring *r, const struct io_uring_sqe *sqe)
{
	const uint32_t mask = *ring_word(r->sq, r->params.sq_off.ring_mask);
	uint32_t *tail = ring_word(r->sq, r->params.sq_off.tail);
	uint32_t *head = ring_word(r->cq, r->params.cq_off.head);
	const uint32_t *ended = ring_word(r->cq, r->params.cq_off.tail);
	const struct io_uring_cqe *cqes = (const void *)(r->cq + r->params.cq_off.cqes);
	int result;

	r->sqes[*tail & mask] = *sqe;
	ring_word(r->sq, r->params.sq_off.array)[*tail & mask] = *tail & mask;
	__atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE); /* pairs with the kernel */
	while (syscall(SYS_io_uring_enter, r->fd, 1, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		assert_int_equal(errno, EINTR);
	while (__atomic_load_n(ended, __ATOMIC_ACQUIRE) == *head)
		syscall(SYS_io_uring_enter, r->fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
	result = cqes[*head & *ring_word(r->cq, r->params.cq_off.ring_mask)].res;
	__atomic_store_n(head, *head + 1, __ATOMIC_RELEASE); /* pairs with the kernel */
	return result;
}

/* A READ or WRITE of one page of a file, by another thread than this one: IOSQE_ASYNC. */
static struct io_uring_sqe page_request(uint8_t opcode, int fd, uint8_t *base, uint64_t page)
{
	return (struct io_uring_sqe){.opcode = opcode,
				     .flags = IOSQE_ASYNC,
				     .fd = fd,
				     .off = page * PAGE,
				     .addr = (uintptr_t)(base + page * PAGE),
				     .len = PAGE};
}

static int file_create(void)
{
	const int fd = memfd_create("test_pager_uring", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)PAGES * PAGE), 0);
	return fd;
}

static void pages_write(uint8_t *base, uint32_t version)
{
	for (uint64_t page = 0; page < PAGES; page++)
		page_write(base, page, version);
}

/* ---- tests ---- */

static void test_kernel_threads(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	const int fd = file_create();
	struct pager_world w;
	struct ring ring;
	uint8_t *a, *b, *file;

	(void)state;
	assert_int_equal(ring_create(&ring), 0);
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, PAGES * PAGE);
	b = pager_map(&w, PAGES * PAGE);
	pages_write(a, 1);
	pages_write(b, 2); /* now hardly a page of a is local */
	for (uint64_t page = 0; page < PAGES; page++) {
		const struct io_uring_sqe sqe = page_request(IORING_OP_WRITE, fd, a, page);

		assert_int_equal(ring_run(&ring, &sqe), PAGE);
	}
	file = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(file, MAP_FAILED);
	for (uint64_t page = 0; page < PAGES; page++)
		assert_true(page_is(file, page, 1));
	/* Into pages of b, which are written back, and come again. */
	for (uint64_t page = 0; page < PAGES; page++) {
		const struct io_uring_sqe sqe = page_request(IORING_OP_READ, fd, b, page);

		assert_int_equal(ring_run(&ring, &sqe), PAGE);
	}
	pages_write(a, 3);
	for (uint64_t page = 0; page < PAGES; page++) {
		assert_true(page_is(b, page, 1));
		assert_true(page_is(a, page, 3));
	}
	munmap(file, PAGES * PAGE);
	close(fd);
	pager_close(&w);
	ring_destroy(&ring);
}

/* The kernel writes to the pages, whatever the page table says: they are pinned meanwhile. */
static void test_registered_buffers(void **state)
{
	const struct gn_pager_opts opts = pager_opts(false);
	const uint64_t n = 64;
	const int fd = file_create();
	struct pager_world w;
	struct iovec buffer;
	struct ring ring;
	uint8_t *a, *b;

	(void)state;
	assert_int_equal(ring_create(&ring), 0);
	pager_open(&w, 1, 1, 16, &opts);
	a = pager_map(&w, PAGES * PAGE);
	b = pager_map(&w, PAGES * PAGE);
	pages_write(a, 1);
	assert_int_equal(write(fd, a, PAGES * PAGE), PAGES * PAGE);
	pages_write(a, 2);
	assert_int_equal(gn_pager_advise(w.pager, a, n * PAGE, GN_PAGER_PIN), 0);
	buffer = (struct iovec){a, n * PAGE};
	assert_int_equal(
		syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &buffer, 1), 0);
	pages_write(b, 3); /* everything else is evicted */
	for (uint64_t page = 0; page < n; page++) {
		const struct io_uring_sqe sqe = page_request(IORING_OP_READ_FIXED, fd, a, page);

		assert_int_equal(ring_run(&ring, &sqe), PAGE);
	}
	assert_int_equal(
		syscall(SYS_io_uring_register, ring.fd, IORING_UNREGISTER_BUFFERS, NULL, 0), 0);
	assert_int_equal(gn_pager_advise(w.pager, a, n * PAGE, GN_PAGER_UNPIN), 0);
	pages_write(b, 4);
	for (uint64_t page = 0; page < PAGES; page++)
		assert_true(page_is(a, page, page < n ? 1 : 2));
	close(fd);
	pager_close(&w);
	ring_destroy(&ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kernel_threads),
		cmocka_unit_test(test_registered_buffers),
	};
	struct ring ring;
	int rc;

	pager_require();
	rc = ring_create(&ring);
	if (rc) {
		printf("1..0 # SKIP no io_uring here: %s\n", gn_strerror(rc));
		return 77;
	}
	ring_destroy(&ring);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
