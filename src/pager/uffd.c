/* SPDX-License-Identifier: MIT */
/*
 * Opens userfaultfd with what the kernel has, and proves by use what no feature bit tells; the
 * address range, its file, and the events.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/bits.h"
#include "base/fail.h"
#include "gannet/exec.h"
#include "pager/uffd.h"
#include "pager/uffd_abi.h"

#define PAGE GN_PAGER_PAGE
#define HUGE (2u << 20) /* the range begins at a multiple, so no chunk crosses a page table */
#define REQUIRED                                                                                \
	(UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_MISSING_SHMEM | UFFD_FEATURE_THREAD_ID | \
	 UFFD_FEATURE_MINOR_SHMEM | UFFD_FEATURE_WP_HUGETLBFS_SHMEM)
#define REGISTER_ALL \
	(UFFDIO_REGISTER_MODE_MISSING | UFFDIO_REGISTER_MODE_WP | UFFDIO_REGISTER_MODE_MINOR)
#define GIVE_RIGHT                                                                            \
	"a pager needs the right to handle page faults of system calls: run as root or with " \
	"CAP_SYS_PTRACE, or `sysctl vm.unprivileged_userfaultfd=1`, or give access to "       \
	"/dev/userfaultfd"

/* ---- opening ---- */

/* Without UFFD_USER_MODE_ONLY: with it, read(2) into paged memory would fail with EFAULT. */
static int uffd_new(void)
{
	const int dev = open("/dev/userfaultfd", O_RDWR | O_CLOEXEC);
	int fd = -1;

	if (dev >= 0) {
		fd = ioctl(dev, USERFAULTFD_IOC_NEW, O_CLOEXEC);
		close(dev);
	}
	if (fd < 0)
		fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno == EPERM)
		return gn_fail(-EPERM, "%s", GIVE_RIGHT);
	if (errno == ENOSYS)
		return gn_fail(-EOPNOTSUPP, "this kernel has no userfaultfd: a pager needs Linux "
					    "6.1 or later with CONFIG_USERFAULTFD");
	return gn_fail(-errno, "userfaultfd: %s", gn_strerror(-errno));
}

/* A descriptor takes features only once: another one asks what there is. */
static int uffd_features(uint64_t *out)
{
	struct uffdio_api api = {.api = UFFD_API};
	const int fd = uffd_new();
	int rc;

	if (fd < 0)
		return fd;
	rc = ioctl(fd, UFFDIO_API, &api) ? -errno : 0;
	close(fd);
	if (rc)
		return gn_fail(-EOPNOTSUPP, "userfaultfd of this kernel: %s", gn_strerror(rc));
	*out = api.features;
	if ((api.features & REQUIRED) != REQUIRED)
		return gn_fail(
			-EOPNOTSUPP,
			"userfaultfd of this kernel lacks minor faults or write protection "
			"of shared memory (features 0x%llx): a pager needs Linux 6.1 or later",
			(unsigned long long)api.features);
	return 0;
}

static int uffd_enable(struct uffd *u, uint64_t features)
{
	struct uffdio_api api = {.api = UFFD_API, .features = features};

	u->fd = uffd_new();
	if (u->fd < 0)
		return u->fd;
	if (ioctl(u->fd, UFFDIO_API, &api))
		return gn_fail(-EOPNOTSUPP, "userfaultfd of this kernel: %s", gn_strerror(-errno));
	return 0;
}

static int file_create(const char *name, uint64_t bytes, int *out)
{
	struct rlimit limit;
	int fd;

	/* Beyond the limit, ftruncate() raises SIGXFSZ. */
	if (!getrlimit(RLIMIT_FSIZE, &limit) && bytes > limit.rlim_cur)
		return gn_fail(-EFBIG,
			       "a pager's file of %llu bytes: the limit is %llu: ulimit -f "
			       "unlimited",
			       (unsigned long long)bytes, (unsigned long long)limit.rlim_cur);
	fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);

	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC);
	if (fd < 0)
		return gn_fail(-errno, "a pager's file: %s", gn_strerror(-errno));
	*out = fd;
	if (ftruncate(fd, (off_t)bytes))
		return gn_fail(-errno, "a pager's file of %llu bytes: %s",
			       (unsigned long long)bytes, gn_strerror(-errno));
	return 0;
}

static int uffd_register(struct uffd *u, uint8_t *addr, uint64_t bytes, uint64_t mode)
{
	struct uffdio_register r = {.range = {(uintptr_t)addr, bytes}, .mode = mode};

	return ioctl(u->fd, UFFDIO_REGISTER, &r) ? -errno : 0;
}

/* ---- what no feature bit tells ---- */

#define TRIAL_PAGES 3u

/* Two pages, one of them written: can they be told apart after they were unmapped? */
static bool tells_written(struct uffd *u)
{
	const uint8_t bytes[2 * PAGE] = {0};
	uint64_t bits = 0;

	if (uffd_ops.copy(u, 0, 2, bytes, true) != 2)
		return false;
	*(volatile uint8_t *)(u->base + PAGE) = 1; /* no event: the kernel ends the protection */
	return !uffd_ops.unmap(u, 0, 2) && !uffd_ops.written(u, 0, 2, &bits) && bits == 2;
}

static bool maps_protected(struct uffd *u)
{
	const uint8_t bytes[PAGE] = {0};
	struct uffdio_continue c = {.range = {(uintptr_t)u->base + 2 * PAGE, PAGE},
				    .mode = UFFDIO_CONTINUE_MODE_WP};

	return uffd_ops.copy(u, 2, 1, bytes, true) == 1 && !uffd_ops.unmap(u, 2, 1) &&
	       !ioctl(u->fd, UFFDIO_CONTINUE, &c);
}

/* With a few pages of their own. -EAGAIN: written pages cannot be told. */
static int uffd_try(struct uffd *u)
{
	uint64_t changed = 0;
	struct uffd trial = *u;
	int rc = file_create("gannet-pager-trial", TRIAL_PAGES * PAGE, &trial.file);

	if (rc)
		return rc;
	trial.changed = u->write_faults ? &changed : NULL;
	trial.base =
		mmap(NULL, TRIAL_PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, trial.file, 0);
	close(trial.file);
	if (trial.base == MAP_FAILED)
		return gn_fail(-errno, "a pager's memory: %s", gn_strerror(-errno));
	rc = uffd_register(u, trial.base, TRIAL_PAGES * PAGE, REGISTER_ALL);
	if (rc) {
		gn_fail(rc, "userfaultfd: memory cannot be registered: %s", gn_strerror(rc));
	} else {
		u->map_protected = maps_protected(&trial);
		if (!u->write_faults && !tells_written(&trial))
			rc = -EAGAIN;
	}
	munmap(trial.base, TRIAL_PAGES * PAGE);
	return rc;
}

/* Chooses how writes are noticed. */
static int uffd_negotiate(struct uffd *u, bool write_faults)
{
	struct iovec iov = {.iov_len = 0};
	struct uffd_msg msg;
	uint64_t has = 0;
	int rc = uffd_features(&has);

	if (rc)
		return rc;
	u->write_faults = write_faults || !(has & UFFD_FEATURE_WP_ASYNC);
	for (;;) {
		rc = uffd_enable(u, REQUIRED | (has & UFFD_FEATURE_POISON) |
					    (u->write_faults ? 0 : UFFD_FEATURE_WP_ASYNC));
		if (!rc)
			rc = uffd_try(u);
		if (rc != -EAGAIN || u->write_faults)
			break;
		gn_log(GN_LOG_WARN, "pager: PAGEMAP_SCAN does not tell written pages here; each "
				    "first write is a fault instead");
		close(u->fd);
		u->write_faults = true;
	}
	if (rc)
		return rc;
	iov = (struct iovec){&msg, sizeof(msg)};
	u->nowait = !write_faults && preadv2(u->fd, &iov, 1, -1, RWF_NOWAIT) < 0 && errno == EAGAIN;
	/* poll() tells nothing about a blocking userfaultfd. */
	if (!u->nowait && fcntl(u->fd, F_SETFL, O_NONBLOCK))
		return gn_fail(-errno, "userfaultfd: %s", gn_strerror(-errno));
	return has & UFFD_FEATURE_POISON ? 0 : file_create("gannet-pager-lost", 0, &u->empty);
}

/* ---- the range ---- */

static void *reserve(void *addr, uint64_t bytes, int flags)
{
	return mmap(addr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1,
		    0);
}

static int reserve_range(struct uffd *u)
{
	const uint64_t bytes = u->pages * PAGE;
	uint8_t *at = reserve(NULL, bytes + HUGE, 0), *base;

	if (at == MAP_FAILED)
		return gn_fail(-errno, "address space of %llu bytes: %s", (unsigned long long)bytes,
			       gn_strerror(-errno));
	base = (uint8_t *)(((uintptr_t)at + HUGE - 1) / HUGE * HUGE);
	if (base > at)
		munmap(at, (size_t)(base - at));
	if (at + HUGE > base)
		munmap(base + bytes, (size_t)(at + HUGE - base));
	u->base = base;
	return 0;
}

static int doorbell_create(struct uffd *u)
{
	int rc;

	u->doorbell = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (u->doorbell == MAP_FAILED) {
		u->doorbell = NULL;
		return gn_fail(-errno, "a pager's memory: %s", gn_strerror(-errno));
	}
	rc = uffd_register(u, u->doorbell, PAGE, UFFDIO_REGISTER_MODE_MISSING);
	if (!rc && madvise(u->doorbell, PAGE, MADV_DONTFORK))
		rc = -errno;
	uffd_arm(u); /* mlockall(MCL_FUTURE) has filled it */
	return rc ? gn_fail(rc, "userfaultfd: memory cannot be registered: %s", gn_strerror(rc)) :
		    0;
}

int uffd_open(struct uffd *u, uint64_t pages, bool write_faults)
{
	int rc;

	*u = (struct uffd){.fd = -1, .file = -1, .pagemap = -1, .empty = -1, .pages = pages};
	u->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	/* Without /proc, or if it is another user's since setuid(). */
	rc = uffd_negotiate(u, write_faults || u->pagemap < 0);
	if (!rc && u->write_faults) {
		u->changed = gn_alloc((pages + 63) / 64 * sizeof(*u->changed), 0);
		rc = u->changed ? 0 : gn_fail(-ENOMEM, NO_MEMORY);
	}
	if (!rc)
		rc = file_create("gannet-pager", pages * PAGE, &u->file);
	if (!rc)
		rc = reserve_range(u);
	if (!rc)
		rc = doorbell_create(u);
	if (rc)
		uffd_close(u);
	return rc;
}

void uffd_close(struct uffd *u)
{
	const int fds[] = {u->fd, u->file, u->pagemap, u->empty};

	if (u->base)
		munmap(u->base, u->pages * PAGE);
	if (u->doorbell)
		munmap(u->doorbell, PAGE);
	gn_free(u->changed);
	for (unsigned i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
		if (fds[i] >= 0)
			close(fds[i]);
	*u = (struct uffd){.fd = -1, .file = -1, .pagemap = -1, .empty = -1};
}

int uffd_probe(void)
{
	struct uffd u;
	const int rc = uffd_open(&u, 1, false);

	if (!rc)
		uffd_close(&u);
	return rc;
}

/*
 * Inaccessible until it is registered and kept from children. Then mlockall(MCL_FUTURE) does not
 * fill it, and a child of a fork() at the wrong moment cannot touch it.
 */
int uffd_map_range(struct uffd *u, uint64_t page, uint64_t n)
{
	uint8_t *addr = u->base + page * PAGE;
	const uint64_t bytes = n * PAGE;
	int rc = 0;

	if (mmap(addr, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, u->file,
		 (off_t)(page * PAGE)) == MAP_FAILED)
		return -errno;
	if (madvise(addr, bytes, MADV_DONTFORK))
		rc = -errno;
	if (!rc)
		rc = uffd_register(u, addr, bytes, REGISTER_ALL);
	if (!rc && mprotect(addr, bytes, PROT_READ | PROT_WRITE))
		rc = -errno;
	if (rc)
		uffd_unmap_range(u, page, n);
	return rc;
}

int uffd_unmap_range(struct uffd *u, uint64_t page, uint64_t n)
{
	struct uffdio_range range = {(uintptr_t)u->base + page * PAGE, n * PAGE};

	if (reserve(u->base + page * PAGE, n * PAGE, MAP_FIXED) == MAP_FAILED)
		return -errno;
	/* Threads that wait for one of the pages would wait forever. */
	return ioctl(u->fd, UFFDIO_WAKE, &range) ? -errno : 0;
}

/* ---- events ---- */

int uffd_read(struct uffd *u, struct uffd_event *events, bool wait)
{
	struct uffd_msg msgs[UFFD_EVENTS];
	struct iovec iov = {msgs, sizeof(msgs)};
	struct pollfd poll_fd = {.fd = u->fd, .events = POLLIN};
	unsigned n = 0;
	ssize_t got;

	if (!wait && u->nowait) {
		got = preadv2(u->fd, &iov, 1, -1, RWF_NOWAIT);
	} else {
		if (wait && !u->nowait)
			poll(&poll_fd, 1, -1);
		got = read(u->fd, msgs, sizeof(msgs));
	}
	if (got < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -errno;
	if (!got || (size_t)got % sizeof(msgs[0]))
		return -EBADF; /* another file has its number */
	for (unsigned i = 0; i < (size_t)got / sizeof(msgs[0]); i++) {
		if (msgs[i].event != UFFD_EVENT_PAGEFAULT)
			continue;
		events[n++] = (struct uffd_event){
			.addr = (uint8_t *)(msgs[i].arg.pagefault.address & ~(uint64_t)(PAGE - 1)),
			.thread = (pid_t)msgs[i].arg.pagefault.feat.ptid,
			.write = msgs[i].arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP,
			.writes = msgs[i].arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WRITE};
	}
	return (int)n;
}

int uffd_answer(struct uffd *u)
{
	struct uffdio_range range = {(uintptr_t)u->doorbell, PAGE};
	struct uffdio_zeropage zero = {.range = range};

	if (!ioctl(u->fd, UFFDIO_ZEROPAGE, &zero))
		return 0;
	return ioctl(u->fd, UFFDIO_WAKE, &range) ? -errno : 0; /* it is there already */
}

void uffd_arm(struct uffd *u)
{
	madvise(u->doorbell, PAGE, MADV_DONTNEED_LOCKED);
}
