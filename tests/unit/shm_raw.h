/* SPDX-License-Identifier: MIT */
/*
 * A peer on shared memory that speaks the control socket's protocol by itself, to say what the
 * library never says: in this process, or as another user in a process of its own.
 */
#ifndef GN_TESTS_SHM_RAW_H
#define GN_TESTS_SHM_RAW_H

#include "../hostile/cost.h"
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define RAW_RQ_SIZE 16u
#define RAW_KEY	    0x10005u /* entry 1 of the grants */

struct raw {
	int sock, area_fd, grants_fd;
	struct area *area;
	struct grant *grants;
};

static inline int raw_memfd(size_t size, void **out)
{
	const int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	*out = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	assert_ptr_not_equal(*out, MAP_FAILED);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
	return fd;
}

static inline void raw_make(struct raw *r)
{
	void *mem;

	r->area_fd = raw_memfd(area_bytes(RAW_RQ_SIZE), &mem);
	r->area = mem;
	r->grants_fd = raw_memfd(SOFT_KEYS * sizeof(struct grant), &mem);
	r->grants = mem;
	r->sock = -1;
}

static inline void raw_free(struct raw *r)
{
	munmap(r->area, area_bytes(RAW_RQ_SIZE));
	munmap(r->grants, SOFT_KEYS * sizeof(struct grant));
	close(r->area_fd);
	close(r->grants_fd);
	if (r->sock >= 0)
		close(r->sock);
}

static inline void raw_path(const char *name, struct sockaddr_un *addr)
{
	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/%s", getenv("GANNET_SHM_DIR"), name);
}

/* A socket that is connected to a listener; it says nothing yet. */
static inline int raw_dial(const char *name)
{
	const int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un addr;

	assert_true(sock >= 0);
	raw_path(name, &addr);
	assert_int_equal(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	return sock;
}

static inline void raw_say(const struct raw *r, enum wire_type type, int area_fd, int grants_fd)
{
	const struct wire_hello hello = {.head = wire_head(type), .rq_size = RAW_RQ_SIZE};
	const int fds[2] = {area_fd, grants_fd};

	assert_int_equal(wire_send(r->sock, &hello, sizeof(hello), fds, 2), 0);
}

static inline void raw_send_mem(const struct raw *r, uint64_t id, int fd, uint64_t size,
				bool writable)
{
	const struct wire_mems msg = {
		.head = wire_head(WIRE_MEM),
		.n = 1,
		.mem[0] = {.id = id, .size = size, .writable = writable},
	};

	assert_int_equal(wire_send(r->sock, &msg, wire_mems_len(1), &fd, 1), 0);
}

static inline void raw_forget_mem(const struct raw *r, uint64_t id)
{
	const struct wire_mems msg = {.head = wire_head(WIRE_FORGET), .n = 1, .mem[0].id = id};

	assert_int_equal(wire_send(r->sock, &msg, wire_mems_len(1), NULL, 0), 0);
}

static inline void raw_grant(struct raw *r, uint64_t mem_id, uint64_t length)
{
	r->grants[RAW_KEY >> 16] =
		(struct grant){.key = RAW_KEY,
			       .access = GN_REMOTE_WRITE | GN_REMOTE_READ | GN_REMOTE_ATOMIC,
			       .mem_id = mem_id,
			       .length = length};
}

/* The next message, when it has come. */
static inline ssize_t raw_recv(const struct raw *r, union wire_any *msg, int fds[WIRE_FDS])
{
	struct pollfd pfd = {.fd = r->sock, .events = POLLIN};

	assert_int_equal(poll(&pfd, 1, UNIT_PATIENCE_US / 1000), 1);
	return wire_recv(r->sock, msg, fds);
}

/* Take messages up to the peer's memory that is for reading only; its fd. */
static inline int raw_take_sealed(const struct raw *r)
{
	int fds[WIRE_FDS], found = -1;
	union wire_any msg;

	while (found < 0) {
		assert_true(raw_recv(r, &msg, fds) > 0);
		if (msg.head.type == WIRE_MEM)
			for (uint32_t i = 0; i < msg.mems.n; i++)
				if (!msg.mems.mem[i].writable && found < 0) {
					found = fds[i];
					fds[i] = -1;
				}
		wire_close_fds(fds);
	}
	return found;
}

/* Take messages up to the peer's answer; its area and grants. */
static inline void raw_take_accept(const struct raw *r, int *area_fd, int *grants_fd)
{
	int fds[WIRE_FDS];
	union wire_any msg;

	for (;;) {
		assert_true(raw_recv(r, &msg, fds) > 0);
		if (msg.head.type == WIRE_ACCEPT)
			break;
		wire_close_fds(fds);
	}
	*area_fd = fds[0];
	*grants_fd = fds[1];
}

/* ---- in a process of its own ---- */

struct raw_process {
	pid_t pid;
	int ctl; /* both sides take turns: a byte each */
};

static inline void raw_turn_end(int ctl)
{
	assert_int_equal(write(ctl, "x", 1), 1);
}

static inline void raw_turn_wait(int ctl)
{
	struct pollfd pfd = {.fd = ctl, .events = POLLIN};
	char byte;

	assert_int_equal(poll(&pfd, 1, UNIT_PATIENCE_US / 1000), 1);
	assert_int_equal(read(ctl, &byte, 1), 1);
}

/* This program again, as: argv[0] ROLE CTL. Its assertions end it, for no test runs there. */
static inline void raw_start(struct raw_process *p, const char *role)
{
	char ctl[16];
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	assert_int_equal(fcntl(pair[0], F_SETFD, FD_CLOEXEC), 0);
	snprintf(ctl, sizeof(ctl), "%d", pair[1]);
	p->pid = fork();
	if (!p->pid) {
		execl("/proc/self/exe", "raw", role, ctl, (char *)NULL);
		_exit(127);
	}
	assert_true(p->pid > 0);
	close(pair[1]);
	p->ctl = pair[0];
}

/* What the other process does, by name; the last has none. */
struct raw_role {
	const char *name;
	void (*run)(int ctl);
};

/* A role whose name begins so stays the same user. */
#define RAW_SAME_USER "same-user-"

static inline int raw_run_role(const struct raw_role *roles, const char *name, int ctl)
{
	if (!strncmp(name, RAW_SAME_USER, strlen(RAW_SAME_USER)))
		name += strlen(RAW_SAME_USER);
	else if (cost_other_user())
		return 1;
	for (; roles->name; roles++)
		if (!strcmp(name, roles->name)) {
			roles->run(ctl);
			return 0;
		}
	return 1;
}

/*
 * The beginning of main(): runs the role that the arguments name, or skips the tests. Returns the
 * exit status, or -1: run the tests. fds: limit of descriptors for both processes; 0: as it is.
 */
static inline int raw_main(const struct raw_role *roles, unsigned fds, int argc, char **argv)
{
	const struct rlimit limit = {.rlim_cur = fds, .rlim_max = fds};

	if (argc == 3)
		return raw_run_role(roles, argv[1], atoi(argv[2]));
	if (geteuid() || (fds && setrlimit(RLIMIT_NOFILE, &limit))) {
		printf("1..0 # SKIP only root can be another user, too\n");
		return 0;
	}
	return -1;
}

/* Set-up of a case: a folder of its own, where another user may come in and make sockets. */
static inline int raw_folder_make(void **state)
{
	return side_folder_make(state) || chmod(getenv("GANNET_SHM_DIR"), 0777);
}

#define RAW_CASE(name) cmocka_unit_test_setup_teardown(name, raw_folder_make, side_folder_remove)
/* A case that is run with the name of a role as its state. */
#define RAW_CASE_ROLE(name, run, role)                                \
	{                                                             \
#name, run, raw_folder_make, side_folder_remove, role \
	}

static inline void raw_end(struct raw_process *p)
{
	int status;

	assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
	assert_int_equal(status, 0);
	close(p->ctl);
}

#endif
