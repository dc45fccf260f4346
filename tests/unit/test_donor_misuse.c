/* SPDX-License-Identifier: MIT */
/*
 * A donor's client that does something wrong, or connects to something else: which error it gets,
 * and what gn_error() and the log say. Calls of another thread, and of a forked child.
 */
#include <sys/wait.h>

#include "donor_world.h"

struct user {
	struct gn_io *io;
	struct gn_donor *donor;
	struct gn_io_queue *queue;
	struct gn_donor_slab *slab;
	uint8_t page[4096];
};

static int user_open(struct donor_world *w, struct gn_fabric *fabric, struct user *u)
{
	EXPECT(gn_io_create(fabric, NULL, &u->io) == 0);
	EXPECT(gn_donor_connect(fabric, u->io, w->addr, NULL, &u->donor) == 0);
	EXPECT(gn_io_queue_create(u->io, 16, &u->queue) == 0);
	EXPECT(gn_donor_grant(u->donor, 1, &u->slab, gn_deadline_us(LONG_US)) == 1);
	return 0;
}

static int user_close(struct user *u)
{
	EXPECT(gn_donor_close(u->donor, 0) == 0);
	EXPECT(gn_io_queue_destroy(u->queue) == 0);
	EXPECT(gn_io_destroy(u->io) == 0);
	return 0;
}

static int run(struct user *u, enum gn_io_op op, uint64_t offset, uint64_t timeout_us)
{
	const struct gn_io_sge sge = {.addr = u->page, .len_bytes = sizeof(u->page)};
	struct gn_io_req req = {.op = op,
				.n_sge = 1,
				.sge = &sge,
				.region = u->slab->region,
				.offset = offset,
				.deadline_ns = gn_deadline_us(timeout_us)};

	return gn_io_run(u->queue, &req);
}

static bool says(const char *word)
{
	return strstr(gn_error(), word) != NULL;
}

/* ---- texts ---- */

static int list_nothing(void *arg, const struct gn_donor_entry *entry)
{
	(void)arg, (void)entry;
	return 0;
}

static int texts_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_donor_opts opts = {.size = sizeof(opts), .owner = "two words"};
	const unsigned all = GN_REMOTE_READ | GN_REMOTE_WRITE;
	struct gn_donor *donor = NULL;
	uint8_t token[GN_DONOR_TOKEN];
	struct user u;

	EXPECT(user_open(w, fabric, &u) == 0);
	EXPECT(gn_donor_connect(fabric, u.io, w->addr, &opts, &donor) == -EINVAL);
	EXPECT(says("owner") && says("blank") && !donor);
	opts.owner = "bell\a";
	EXPECT(gn_donor_connect(fabric, u.io, w->addr, &opts, &donor) == -EINVAL);
	EXPECT(gn_donor_list(u.donor, "two words", list_nothing, NULL, GN_FOREVER) == -EINVAL);
	EXPECT(gn_donor_share(u.donor, u.slab, 1, 4096, all, gn_deadline_us(LONG_US), token) ==
	       -EINVAL);
	EXPECT(says("4096") && says("gn_donor_share()"));
	EXPECT(gn_donor_share(u.donor, u.slab, 4096, SLAB, all, gn_deadline_us(LONG_US), token) ==
	       -EINVAL);
	EXPECT(says("inside"));
	EXPECT(gn_donor_share(u.donor, u.slab, 0, 4096, 0, gn_deadline_us(LONG_US), token) ==
	       -EINVAL);
	EXPECT(says("rights"));
	EXPECT(run(&u, GN_IO_WRITE, 0, LONG_US) == 0);
	return user_close(&u);
}

static void test_texts(void **state)
{
	(void)state;
	donor_run(NULL, texts_program);
}

/* gn_io_run() says why a request failed, not why something before it did. */
static int status_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct user u;

	if (w->simulated)
		return 0;
	EXPECT(user_open(w, fabric, &u) == 0);
	gn_donor_server_destroy(w->server);
	EXPECT(run(&u, GN_IO_READ, 1 << 20, 20000) == -ERANGE);
	EXPECT(run(&u, GN_IO_READ, 0, 20000) == -ETIMEDOUT && says("deadline"));
	EXPECT(donor_up(w) == 0);
	EXPECT(run(&u, GN_IO_READ, 1 << 20, 20000) == -ERANGE);
	EXPECT(run(&u, GN_IO_READ, 0, LONG_US) == -ESTALE && says(w->addr) && says("lost"));
	EXPECT(gn_io_target_state(gn_donor_target(u.donor)) == -ESTALE);
	EXPECT(says("restarted"));
	return user_close(&u);
}

static void test_status(void **state)
{
	(void)state;
	donor_run(NULL, status_program);
}

/* Calls without donors: another server, and a name that cannot be one. */
static void test_other_server(void **state)
{
	struct gn_donor_server_opts opts = {
		.size = sizeof(opts), .memory = 8 * SLAB, .slab = SLAB};
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_server *donor = NULL;
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;
	struct gn_donor *client;
	struct gn_io *io;
	char addr[64];

	(void)state;
	snprintf(addr, sizeof(addr), "shm:no-donor-%d", (int)getpid());
	assert_int_equal(gn_fabric_open("shm", &fabric), 0);
	assert_int_equal(gn_rpc_server_create(fabric, addr, NULL, &server), 0);
	assert_int_equal(gn_rpc_server_start(server), 0);
	assert_int_equal(gn_io_create(fabric, NULL, &io), 0);
	assert_int_equal(gn_donor_connect(fabric, io, addr, NULL, &client), -EPROTO);
	assert_true(says("not the address of a donor"));
	assert_int_equal(gn_donor_connect(fabric, NULL, addr, NULL, &client), 0);
	assert_int_equal(gn_donor_query(client, &stats, gn_deadline_us(LONG_US)), -EPROTO);
	assert_true(says("not the address of a donor"));
	assert_int_equal(gn_donor_close(client, 0), 0);
	for (const char *const *a = (const char *const[]){"shm:../up", "shm:a b", "shm:", NULL}; *a;
	     a++) {
		assert_int_equal(gn_donor_server_create(fabric, *a, &opts, &donor), -EINVAL);
		assert_true(says(*a) && says("no address of a donor"));
	}
	assert_int_equal(gn_io_destroy(io), 0);
	gn_rpc_server_destroy(server);
	assert_int_equal(gn_fabric_close(fabric), 0);
}

/* ---- the log ---- */

static unsigned lost_lines;

static void count_lost(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg, (void)level;
	if (strstr(line, "lost"))
		__atomic_add_fetch(&lost_lines, 1, __ATOMIC_RELAXED);
}

/* Closing a session, and opening with a wrong token, are no reasons for a warning. */
static int quiet_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts), .share = true};
	struct gn_io_target *target;
	struct gn_source *source;
	struct user u;

	gn_log_to(count_lost, NULL);
	lost_lines = 0;
	EXPECT(user_open(w, fabric, &u) == 0);
	EXPECT(gn_io_target_open(u.io, gn_donor_data_addr(u.donor), &opts, NULL, &target) ==
	       -EACCES);
	EXPECT(gn_io_queue_source(u.queue, &source) == 0); /* a thread that connects again */
	for (unsigned i = 0; i < 30; i++) {
		EXPECT(gn_donor_close(u.donor, 0) == 0);
		EXPECT(gn_donor_connect(fabric, u.io, w->addr, NULL, &u.donor) == 0);
		EXPECT(gn_donor_grant(u.donor, 1, &u.slab, gn_deadline_us(LONG_US)) == 1);
	}
	EXPECT(user_close(&u) == 0);
	gn_log_to(NULL, NULL);
	EXPECT(lost_lines == 0);
	return 0;
}

static void test_quiet(void **state)
{
	(void)state;
	donor_run(NULL, quiet_program);
}

/* ---- another thread, and a forked child ---- */

struct second {
	struct user *u;
	int renew, close;
};

static void second_main(void *arg)
{
	struct second *s = arg;

	s->renew = gn_donor_renew(s->u->donor);
	s->close = gn_donor_close(s->u->donor, 0);
}

static int second_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct gn_thread *thread;
	struct second s;
	struct user u;

	EXPECT(user_open(w, fabric, &u) == 0);
	s.u = &u;
	EXPECT(gn_thread_start("second", second_main, &s, &thread) == 0);
	EXPECT(gn_thread_join(thread) == 0);
	EXPECT(s.renew == -EPERM && s.close == -EPERM);
	EXPECT(run(&u, GN_IO_WRITE, 0, LONG_US) == 0);
	return user_close(&u);
}

static void test_second_thread(void **state)
{
	(void)state;
	donor_run(NULL, second_program);
}

static unsigned told;

static void count_told(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	told += level == GN_LOG_ERROR && strstr(line, "fork");
}

static int child(struct donor_world *w, struct user *u)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	struct gn_donor_slab *slab;

	gn_log_to(count_told, NULL);
	EXPECT(gn_donor_grant(u->donor, 1, &slab, GN_FOREVER) == -EPERM && says("fork"));
	EXPECT(gn_donor_release(u->donor, u->slab, GN_FOREVER) == -EPERM);
	EXPECT(gn_donor_renew(u->donor) == -EPERM);
	EXPECT(gn_donor_query(u->donor, &stats, GN_FOREVER) == -EPERM);
	EXPECT(gn_donor_next_notice(u->donor, &notice, GN_FOREVER) == -EPERM);
	EXPECT(gn_donor_close(u->donor, 0) == -EPERM);
	EXPECT(told == 6);
	EXPECT(gn_donor_server_stats(w->server, &stats) == -EPERM);
	EXPECT(gn_donor_server_leave(w->server, GN_FOREVER) == -EPERM);
	EXPECT(gn_donor_server_drain(w->server, GN_FOREVER) == -EPERM);
	gn_donor_server_destroy(w->server); /* logs, and does nothing */
	EXPECT(told == 10);
	return 0;
}

/* A child that opens the provider itself is a client as any other. */
static int child_begins(struct donor_world *w)
{
	struct gn_fabric *fabric;
	struct user u;

	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(user_open(w, fabric, &u) == 0);
	EXPECT(run(&u, GN_IO_WRITE, 0, LONG_US) == 0);
	EXPECT(user_close(&u) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static int fork_program(struct donor_world *w, struct gn_fabric *fabric)
{
	struct user u;
	int status;
	pid_t pid;

	EXPECT(user_open(w, fabric, &u) == 0);
	fill(u.page, sizeof(u.page), 1);
	EXPECT(run(&u, GN_IO_WRITE, 4096, LONG_US) == 0);
	pid = fork();
	if (!pid)
		_exit(child(w, &u) || child_begins(w));
	EXPECT(pid > 0 && waitpid(pid, &status, 0) == pid);
	EXPECT(WIFEXITED(status) && !WEXITSTATUS(status));
	memset(u.page, 0, sizeof(u.page));
	EXPECT(run(&u, GN_IO_READ, 4096, LONG_US) == 0 && is_filled(u.page, sizeof(u.page), 1));
	EXPECT(gn_donor_release(u.donor, u.slab, gn_deadline_us(LONG_US)) == 0);
	return user_close(&u);
}

static void test_fork(void **state)
{
	struct donor_world w = {.program = fork_program};

	(void)state;
	if (!THREADS_WATCHED)
		assert_int_equal(donor_run_here(&w), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test(test_status),
		cmocka_unit_test(test_other_server),
		cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_second_thread),
		cmocka_unit_test(test_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
