/* SPDX-License-Identifier: MIT */
/*
 * A program that knows nothing of a pager, for tests/e2e/test_pager_run. Its first argument says
 * what it does; it prints what it finds, and ends with 1 if something is wrong.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <poll.h>
#include <printf.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

void library_loads(void); /* pager_library.c */

#define PAGE 4096u
#define MIB  (1u << 20)

#define CHECK(so)                                                            \
	do {                                                                 \
		if (!(so)) {                                                 \
			fprintf(stderr, "line %d: %s: %m\n", __LINE__, #so); \
			exit(1);                                             \
		}                                                            \
	} while (0)

/* Every word of memory has a value of its own. */
static uint64_t word_at(uint64_t i, uint64_t salt)
{
	return (i + 1) * 0x9e3779b97f4a7c15u ^ salt;
}

static void fill(uint64_t *words, size_t bytes, uint64_t salt)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		words[i] = word_at(i, salt);
}

static bool is_filled(const uint64_t *words, size_t bytes, uint64_t salt)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i] != word_at(i, salt))
			return false;
	return true;
}

static bool is_zero(const uint64_t *words, size_t bytes)
{
	for (size_t i = 0; i < bytes / sizeof(*words); i++)
		if (words[i])
			return false;
	return true;
}

static uint64_t now_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000 + (uint64_t)ts.tv_nsec / 1000;
}

static void *map(size_t bytes)
{
	void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(ptr != MAP_FAILED);
	return ptr;
}

/* ---- heap and mappings ---- */

static void use_heap(size_t bytes)
{
	volatile size_t huge = SIZE_MAX;
	uint64_t *ptr, *aligned;

	ptr = calloc(1, bytes);
	CHECK(ptr && is_zero(ptr, bytes));
	fill(ptr, bytes, 1);
	ptr = realloc(ptr, 2 * bytes);
	CHECK(ptr && is_filled(ptr, bytes, 1));
	fill(ptr, 2 * bytes, 2);
	CHECK(is_filled(ptr, 2 * bytes, 2));
	aligned = aligned_alloc(2 * MIB, 4 * MIB);
	CHECK(aligned && (uintptr_t)aligned % (2 * MIB) == 0);
	fill(aligned, 4 * MIB, 3);
	CHECK(is_filled(ptr, 2 * bytes, 2) && is_filled(aligned, 4 * MIB, 3));
	free(aligned);
	free(ptr);
	ptr = calloc(1, bytes);
	CHECK(ptr && is_zero(ptr, bytes));
	ptr = reallocarray(ptr, bytes / 8, 16);
	CHECK(ptr && is_zero(ptr, bytes));
	CHECK(!reallocarray(ptr, huge / 2, 16) && errno == ENOMEM);
	free(ptr);
	ptr = pvalloc(5000);
	CHECK(ptr && (uintptr_t)ptr % PAGE == 0 && malloc_usable_size(ptr) >= (size_t)2 * PAGE);
	free(ptr);
	CHECK(!pvalloc(huge) && errno == ENOMEM);
}

static void use_mappings(size_t bytes)
{
	char *ptr = map(bytes);
	uint64_t *words = (uint64_t *)ptr;

	CHECK(is_zero(words, bytes));
	fill(words, bytes, 4);
	ptr = mremap(ptr, bytes, 2 * bytes, MREMAP_MAYMOVE);
	CHECK(ptr != MAP_FAILED);
	words = (uint64_t *)ptr;
	CHECK(is_filled(words, bytes, 4) && is_zero(words + bytes / 8, bytes));
	CHECK(mremap(ptr, 2 * bytes, bytes, 0) == ptr);
	CHECK(is_filled(words, bytes, 4));
	CHECK(!madvise(ptr, bytes, MADV_HUGEPAGE) && !madvise(ptr, bytes, MADV_WILLNEED));
	CHECK(!madvise(ptr + MIB, MIB, MADV_DONTNEED));
	CHECK(is_filled(words, MIB, 4) && is_zero(words + MIB / 8, MIB));
	CHECK(words[2 * MIB / 8] == word_at(2 * MIB / 8, 4));
	CHECK(!madvise(ptr, bytes, MADV_COLD));
	CHECK(is_filled(words, MIB, 4));
	/* Fresh memory over old, as some allocators ask for it. */
	CHECK(mmap(ptr, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == ptr);
	CHECK(is_zero(words, MIB));
	fill(words, MIB, 4);
	CHECK(mmap(ptr, 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	      ptr);
	CHECK(write(STDOUT_FILENO, ptr, 1) == -1 && errno == EFAULT);
	CHECK(mmap(ptr, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
		   0) == ptr);
	CHECK(is_zero(words, MIB));
	words[0] = 1;
	/* As the kernel: no size that is beyond all memory, no address within a page. */
	CHECK(mremap(ptr, MIB, SIZE_MAX, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(mremap(ptr + 1, MIB, PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
	CHECK(words[0] == 1);
	/* A hole, and then all of it. */
	CHECK(!munmap(ptr + 2 * MIB, MIB));
	CHECK(!munmap(ptr, bytes));
}

/* Ranges of which a part is not mapped, as the kernel treats them. */
static void use_holes(void)
{
	char *ptr = map(4 * MIB), *plain;
	uint64_t *words = (uint64_t *)ptr;

	fill(words, 4 * MIB, 6);
	CHECK(!munmap(ptr + MIB, MIB));
	CHECK(mremap(ptr, 4 * MIB, 8 * MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
	CHECK(is_filled(words, MIB, 6));
	CHECK(madvise(ptr, 4 * MIB, MADV_DONTNEED) == -1 && errno == ENOMEM);
	CHECK(is_zero(words, MIB) && is_zero(words + 2 * MIB / 8, 2 * MIB));
	CHECK(!munmap(ptr, 4 * MIB));
	/* Memory that the program makes executable. */
	plain = map(256 << 10);
	memcpy(plain, (const char[]){(char)0xc3}, 1);
	CHECK(!mprotect(plain, 256 << 10, PROT_READ | PROT_EXEC));
#ifdef __x86_64__
	((void (*)(void))(uintptr_t)plain)();
#endif
	CHECK(!munmap(plain, 256 << 10));
}

static void use_limits(void)
{
	char *ptr = map(8 * MIB);
	uint64_t *words = (uint64_t *)ptr;
	const int fd = open("/proc/self/exe", O_RDONLY);

	fill(words, 8 * MIB, 5);
	CHECK(!mlock(ptr + 100, MIB) && !munlock(ptr + 100, MIB));
	CHECK(mlockall(MCL_CURRENT) == -1 && errno == EPERM);
	CHECK(mmap(ptr, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == MAP_FAILED &&
	      errno == EINVAL);
	CHECK(mmap(ptr, MIB, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, 0) == MAP_FAILED &&
	      errno == EEXIST);
	CHECK(is_filled(words, 8 * MIB, 5));
	CHECK(!munmap(ptr, 8 * MIB));
	close(fd);
}

static int run_memory(size_t bytes)
{
	use_heap(bytes);
	use_mappings(bytes);
	use_holes();
	use_limits();
	puts("memory is right");
	return 0;
}

/* ---- more than the volume has ---- */

static int run_full(size_t bytes)
{
	void *ptr;

	errno = 0;
	CHECK(!malloc(bytes) && errno == ENOMEM);
	CHECK(mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
		      MAP_FAILED &&
	      errno == ENOMEM);
	ptr = malloc(MIB);
	CHECK(ptr);
	fill(ptr, MIB, 6);
	CHECK(is_filled(ptr, MIB, 6));
	free(ptr);
	puts("ENOMEM");
	return 0;
}

/* ---- threads ---- */

#define THREADS 6u

static size_t thread_bytes;

static void thread_use(uint64_t salt)
{
	uint64_t *own = malloc(thread_bytes), *mapped = map(thread_bytes);

	fill(own, thread_bytes, salt);
	fill(mapped, thread_bytes, ~salt);
	CHECK(is_filled(own, thread_bytes, salt) && is_filled(mapped, thread_bytes, ~salt));
	free(own);
	CHECK(!munmap(mapped, thread_bytes));
}

static void *thread_run(void *arg)
{
	thread_use((uintptr_t)arg);
	return arg;
}

static int thread_run_c11(void *arg)
{
	thread_use((uintptr_t)arg);
	return 7;
}

static int run_threads(size_t bytes)
{
	pthread_t threads[THREADS];
	void *result;
	thrd_t other;
	int seven = 0;

	thread_bytes = bytes / THREADS / 2;
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_create(&threads[i], NULL, thread_run, (void *)(i + 1)));
	CHECK(thrd_create(&other, thread_run_c11, (void *)99) == thrd_success);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(!pthread_join(threads[i], &result) && result == (void *)(i + 1));
	CHECK(thrd_join(other, &seven) == thrd_success && seven == 7);
	puts("threads are right");
	return 0;
}

/* ---- processes ---- */

static void wait_ok(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
	      WEXITSTATUS(status) == 0);
}

static int run_processes(size_t bytes)
{
	char *const words[] = {"sh", "-c", "test -z \"$LD_PRELOAD$GANNET_PAGER\"", NULL};
	uint64_t *ptr = malloc(bytes);
	char line[64] = "";
	FILE *pipe;
	pid_t pid;

	fill(ptr, bytes, 7);
	CHECK(fork() == -1 && errno == ENOSYS);
	CHECK(daemon(1, 1) == -1 && errno == ENOSYS);
	pid = vfork();
	if (!pid) {
		execv("/bin/sh", words);
		_exit(1);
	}
	wait_ok(pid);
	CHECK(!posix_spawn(&pid, "/bin/sh", NULL, NULL, words, environ));
	wait_ok(pid);
	CHECK(system(words[2]) == 0);
	pipe = popen("echo from a pipe", "r");
	CHECK(pipe && fgets(line, sizeof(line), pipe) && !strcmp(line, "from a pipe\n"));
	CHECK(!pclose(pipe));
	CHECK(is_filled(ptr, bytes, 7));
	puts("processes are right");
	return 0;
}

/* ---- descriptors ---- */

static int run_closed(size_t bytes)
{
	uint64_t *ptr = malloc(bytes);

	for (int fd = 0; fd < 4096; fd++)
		close(fd);
	/* The numbers of descriptors that the pager might have. */
	for (int fd = 0; fd < 64; fd++)
		CHECK(open("/dev/null", O_RDWR) == fd);
	fill(ptr, bytes, 8);
	return is_filled(ptr, bytes, 8) ? 0 : 1;
}

/* ---- state of the C library, which the pager's threads use too ---- */

static int no_arg(const struct printf_info *info, size_t n, int *types, int *sizes)
{
	(void)info;
	(void)n;
	(void)types;
	(void)sizes;
	return 0;
}

static int print_own(FILE *to, const struct printf_info *info, const void *const *args)
{
	(void)info;
	(void)args;
	return fputs("own", to) < 0 ? -1 : 3;
}

/* Touched once, and then not for long: all that it allocates may be evicted. */
static int run_libc(size_t bytes)
{
	uint64_t *ptr;
	char text[64];

	CHECK(!register_printf_specifier('W', print_own, no_arg));
	CHECK(register_printf_modifier(L"QQ") >= 0);
	for (int i = 0; i < 100; i++) {
		snprintf(text, sizeof(text), "GN_TEST_%d", i);
		CHECK(!setenv(text, text, 1));
	}
	ptr = malloc(bytes);
	for (uint64_t salt = 0; salt < 3; salt++) {
		fill(ptr, bytes, salt);
		CHECK(is_filled(ptr, bytes, salt));
	}
	puts("libc is right");
	return 0;
}

/* ---- donors that go away ---- */

static sigjmp_buf lost_page;

static void on_bus(int signo)
{
	(void)signo;
	siglongjmp(lost_page, 1);
}

static bool stdin_has_ended(void)
{
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&fd, 1, 0) > 0;
}

static void wait_stdin(void)
{
	struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};

	puts("filled");
	fflush(stdout);
	poll(&fd, 1, -1);
}

/* Rewrites memory until stdin ends, and says the longest time that one page took. */
static int run_rewrite(size_t bytes)
{
	uint64_t *ptr = malloc(bytes), longest_us = 0, passes = 0;

	fill(ptr, bytes, 0);
	puts("filled");
	fflush(stdout);
	for (; !stdin_has_ended(); passes++)
		for (size_t at = 0; at < bytes / 8; at += PAGE / 8) {
			const uint64_t began_us = now_us();
			uint64_t took_us;

			for (size_t i = at; i < at + PAGE / 8; i++) {
				CHECK(ptr[i] == word_at(i, passes));
				ptr[i] = word_at(i, passes + 1);
			}
			took_us = now_us() - began_us;
			longest_us = took_us > longest_us ? took_us : longest_us;
		}
	CHECK(is_filled(ptr, bytes, passes));
	printf("passes %" PRIu64 " longest_us %" PRIu64 "\n", passes, longest_us);
	return 0;
}

static size_t library_bytes;

__attribute__((visibility("default"))) void library_loads(void)
{
	CHECK(!run_rewrite(library_bytes));
}

/* The same in the constructor of a library: the thread has a lock of the dynamic linker. */
static int run_loading(size_t bytes)
{
	library_bytes = bytes;
	CHECK(dlopen(getenv("PAGER_LIBRARY"), RTLD_NOW));
	return 0;
}

static int run_lost(size_t bytes)
{
	volatile uint64_t good = 0, lost = 0, wrong = 0, faults = 0;
	uint64_t *ptr = map(bytes);
	int fds[2];

	CHECK(!pipe(fds));
	fill(ptr, bytes, 9);
	wait_stdin();
	signal(SIGBUS, on_bus);
	for (volatile size_t at = 0; at < bytes / 8; at = at + PAGE / 8) {
		if (sigsetjmp(lost_page, 1)) {
			lost++;
			/* A system call fails instead. */
			faults += write(fds[1], ptr + at, 8) == -1 && errno == EFAULT;
			continue;
		}
		for (size_t i = at; i < at + PAGE / 8; i++)
			wrong += ptr[i] != word_at(i, 9);
		good++;
	}
	printf("good %" PRIu64 " lost %" PRIu64 " wrong %" PRIu64 " efault %" PRIu64 "\n", good,
	       lost, wrong, faults);
	return 0;
}

/* Touches all of it in a loop, until a signal ends it. */
static int run_forever(size_t bytes)
{
	uint64_t *ptr = malloc(bytes);

	fill(ptr, bytes, 10);
	puts("filled");
	fflush(stdout);
	for (;;)
		CHECK(is_filled(ptr, bytes, 10));
}

static void on_signal(int signo)
{
	const char text[] = {(char)('0' + signo / 10), (char)('0' + signo % 10), '\n'};

	if (write(STDOUT_FILENO, text, sizeof(text)) < 0 || signo != SIGUSR1)
		_exit(40 + signo);
}

/* Prints each signal; all but SIGUSR1 end it. */
static int run_signals(size_t bytes)
{
	const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

	for (unsigned i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		signal(signals[i], on_signal);
	return run_forever(bytes);
}

#ifdef __x86_64__
#define TRAP_FLAG   0x100u
#define STEPS_TOUCH 7u /* instructions between two touches */

static char *step_memory;
static size_t step_bytes;
static unsigned steps;

/* After each instruction of the program; wherever it is, it may wait for a page. */
static void on_step(int signo, siginfo_t *info, void *context)
{
	ucontext_t *c = context;

	(void)signo;
	(void)info;
	c->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
	if (!(++steps % STEPS_TOUCH))
		((volatile char *)step_memory)[(size_t)steps * 7 * PAGE % step_bytes]++;
}

static void step_begin(size_t bytes)
{
	const struct sigaction act = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};

	step_memory = map(bytes);
	step_bytes = bytes;
	memset(step_memory, 1, bytes);
	CHECK(!sigaction(SIGTRAP, &act, NULL));
	puts("filled");
	fflush(stdout);
	CHECK(!raise(SIGTRAP));
}
#else
static void step_begin(size_t bytes)
{
	uint64_t *ptr = map(bytes);

	fill(ptr, bytes, 11);
	CHECK(is_filled(ptr, bytes, 11));
	puts("filled");
	fflush(stdout);
}
#endif

/*
 * Uses the C library, and ends, with page faults at every place: no lock that this thread can have
 * may be one that the pager needs.
 */
static int run_stepped(size_t bytes)
{
	struct tm tm;
	char *text;
	FILE *file;

	step_begin(bytes);
	file = fopen("/dev/null", "r+");
	CHECK(file && fprintf(file, "%s %f\n", strerror(ENOENT), 0.1) > 0);
	CHECK(localtime_r(&(time_t){0}, &tm) && !setenv("GN_TEST", "stepped", 1));
	CHECK(asprintf(&text, "%d", getpid()) > 0);
	free(text);
	CHECK(!fclose(file) && dlsym(RTLD_DEFAULT, "printf"));
	exit(0);
}

/* With locks of the plain heap, in which the C library allocates what is its own. */
static int run_opening(size_t bytes)
{
	uint64_t longest_us = 0;

	step_begin(bytes);
	while (!stdin_has_ended()) {
		const uint64_t began_us = now_us();
		DIR *dir = opendir("/");

		CHECK(dir && !closedir(dir));
		longest_us = now_us() - began_us > longest_us ? now_us() - began_us : longest_us;
	}
	printf("longest_us %" PRIu64 "\n", longest_us);
	return 0;
}

static const struct {
	const char *name;
	int (*run)(size_t bytes);
} modes[] = {
	{"memory", run_memory},	      {"full", run_full},	{"threads", run_threads},
	{"processes", run_processes}, {"closed", run_closed},	{"libc", run_libc},
	{"rewrite", run_rewrite},     {"lost", run_lost},	{"forever", run_forever},
	{"signals", run_signals},     {"loading", run_loading}, {"stepped", run_stepped},
	{"opening", run_opening},
};

int main(int argc, char **argv)
{
	for (unsigned i = 0; argc == 3 && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (!strcmp(argv[1], modes[i].name))
			return modes[i].run((size_t)atoi(argv[2]) * MIB);
	fprintf(stderr, "usage: pager_program MODE MIB\n");
	return 2;
}
