/* SPDX-License-Identifier: MIT */
/*
 * The limit of a pager: a handler that does nothing but UFFDIO_COPY from local memory, on the core
 * of the thread that faults, into a file that has no such page yet.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gannet/exec.h>

#include "choice.h"
#include "pager.h"
#include "pair.h"

#define PAGE   GN_PAGER_PAGE
#define FAULTS 64u /* of a group */

struct bare_pager {
	int fd, file, cpu;
	uint8_t *base, *from, *bell; /* pages; where their bytes are; the end */
	uint64_t pages;
	uint32_t *order, next;
	struct gn_thread *thread;
};

static void bare_main(void *arg)
{
	const struct bare_pager *b = arg;
	struct uffd_msg msg;

	if (b->cpu >= 0)
		bench_pin(b->cpu);
	while (read(b->fd, &msg, sizeof(msg)) == sizeof(msg)) {
		const uint64_t addr = msg.arg.pagefault.address & ~(uint64_t)(PAGE - 1);
		const bool end = addr == (uintptr_t)b->bell;
		struct uffdio_copy copy = {.dst = addr,
					   .src = end ? (uintptr_t)b->from :
							addr - (uintptr_t)b->base +
								  (uintptr_t)b->from,
					   .len = PAGE};

		ioctl(b->fd, UFFDIO_COPY, &copy);
		if (end)
			return;
	}
}

static int bare_map(struct bare_pager *b)
{
	const uint64_t bytes = b->pages * PAGE;
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_FEATURE_MISSING_SHMEM};
	struct uffdio_register r = {.mode = UFFDIO_REGISTER_MODE_MISSING};

	b->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	b->file = memfd_create("gannet-bench", MFD_CLOEXEC);
	if (b->fd < 0 || b->file < 0 || ftruncate(b->file, (off_t)(bytes + PAGE)) ||
	    ioctl(b->fd, UFFDIO_API, &api))
		return -errno;
	b->base = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, b->file, 0);
	b->from = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (b->base == MAP_FAILED || b->from == MAP_FAILED)
		return -errno;
	memset(b->from, 1, bytes);
	b->bell = b->base + bytes;
	r.range = (struct uffdio_range){(uintptr_t)b->base, bytes + PAGE};
	return ioctl(b->fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

int bare_pager_create(uint64_t pages, int cpu, uint64_t seed, struct bare_pager **out)
{
	struct bare_pager *b = calloc(1, sizeof(*b));
	struct choice choice;
	int rc;

	if (!b)
		return -ENOMEM;
	*b = (struct bare_pager){.fd = -1, .file = -1, .cpu = cpu, .pages = pages};
	b->base = b->from = MAP_FAILED;
	b->order = calloc(pages, sizeof(*b->order));
	rc = b->order ? bare_map(b) : -ENOMEM;
	choice_init(&choice, (uint32_t)pages, (uint32_t)pages, 0, seed);
	for (uint32_t i = 0; !rc && i < pages; i++) {
		const uint32_t j = (uint32_t)(choice_word(&choice) % (i + 1));

		b->order[i] = b->order[j];
		b->order[j] = i;
	}
	if (!rc)
		rc = gn_thread_start("bare", bare_main, b, &b->thread);
	if (rc)
		bare_pager_destroy(b);
	else
		*out = b;
	return rc;
}

void bare_pager_destroy(struct bare_pager *b)
{
	if (!b)
		return;
	if (b->thread) {
		*(volatile uint8_t *)b->bell; /* ends it */
		gn_thread_join(b->thread);
	}
	if (b->base != MAP_FAILED)
		munmap(b->base, (b->pages + 1) * PAGE);
	if (b->from != MAP_FAILED)
		munmap(b->from, b->pages * PAGE);
	if (b->fd >= 0)
		close(b->fd);
	if (b->file >= 0)
		close(b->file);
	free(b->order);
	free(b);
}

int bare_pager_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct bare_pager *b = arg;

	out->group_ops = FAULTS;
	while (out->ns < block_ns) {
		uint64_t since_ns;

		if (b->next + FAULTS > b->pages) { /* not measured */
			if (fallocate(b->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
				      (off_t)(b->pages * PAGE)))
				return -errno;
			b->next = 0;
		}
		since_ns = gn_now_ns();
		for (unsigned i = 0; i < FAULTS; i++)
			*(volatile uint8_t *)(b->base + (uint64_t)b->order[b->next++] * PAGE);
		block_group(out, since_ns);
		if (bench_stopped())
			return -EINTR;
	}
	return 0;
}
