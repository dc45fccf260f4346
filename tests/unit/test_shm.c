/* SPDX-License-Identifier: MIT */
/*
 * The shared-memory provider's own promises, beyond what the conformance suite asks of every provider: names and
 * their files, limits that run out, memory that comes and goes under a connection, many quiet connections.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define ADDR "shm:unit-test"

/* Is there a file of this name in the provider's folder? */
static bool left(const struct side *s, const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", ((struct shm_fabric *)s->fabric)->dir, name);
	return access(path, F_OK) == 0;
}

/* ---- names ---- */

static void names_leave_nothing(void **state)
{
	struct gn_listener *listener, *second;
	struct side a, b;
	struct stat st;

	(void)state;
	side_make(&a);
	side_make(&b);
	assert_int_equal(stat(((struct shm_fabric *)a.fabric)->dir, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0700);
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
	assert_true(left(&a, &ADDR[4]) && left(&a, "unit-test" SHM_LOCK_SUFFIX));
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &second), -EADDRINUSE);
	assert_int_equal(gn_listener_create(b.ctx, ADDR, b.chan, 0, &second), -EADDRINUSE);
	assert_int_equal(gn_listener_destroy(listener), 0);
	assert_false(left(&a, &ADDR[4]) || left(&a, "unit-test" SHM_LOCK_SUFFIX));
	assert_int_equal(gn_listener_create(b.ctx, ADDR, b.chan, 0, &second), 0);
	assert_int_equal(gn_listener_destroy(second), 0);
	side_free(&a);
	side_free(&b);
}

/*
 * A server that was killed leaves its files; the next one takes the name over. In a folder of its
 * own: other tests would tidy up.
 */
static void stale_name(void **state)
{
	struct gn_listener *listener;
	struct gn_qp *c, *q;
	struct side a, b;
	struct gn_ud_addr addr;
	int ready[2], status;
	char ud[64];
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		side_make(&a);
		q = side_qp(&a, GN_QP_UD);
		if (gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener) ||
		    gn_qp_ud_addr(q, &addr) || write(ready[1], &addr, sizeof(addr)) != sizeof(addr))
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(ready[0], &addr, sizeof(addr)), sizeof(addr));
	side_make(&a);
	side_make(&b);
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), -EADDRINUSE);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	/* Nobody there, though a socket lies about. */
	q = side_qp(&b, GN_QP_RC);
	assert_int_equal(gn_connect_wait(q, ADDR, NULL, NULL), -ECONNREFUSED);
	assert_int_equal(gn_qp_destroy(q), 0);
	snprintf(ud, sizeof(ud), "%s%016llx-%06x", SHM_UD_PREFIX,
		 *(unsigned long long *)(void *)(addr.gid + 8), addr.qpn);
	assert_true(left(&a, &ADDR[4]) && left(&a, ud));
	/* Whoever comes next tidies up. */
	side_free(&b);
	side_make(&b);
	assert_false(left(&a, &ADDR[4]) || left(&a, ud));
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
	side_connect(&b, &a, ADDR, &c, &q);
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(q), 0);
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&a);
	side_free(&b);
	close(ready[0]);
	close(ready[1]);
}

/* ---- what runs out ---- */

static void no_more_files(void **state)
{
	struct rlimit old, low;
	struct gn_listener *listener;
	struct gn_qp *c, *s, *more[64];
	struct gn_mem *mem[64];
	struct side a, b;
	unsigned made = 0, n_mems;
	int rc = 0;

	(void)state;
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&a);
	side_make(&b);
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
	side_connect(&b, &a, ADDR, &c, &s);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = old;
	low.rlim_cur = (rlim_t)dup(0) + 4;
	close((int)low.rlim_cur - 4);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (!rc && made < 64) {
		more[made] = side_qp(&b, GN_QP_RC);
		rc = gn_connect(more[made++], ADDR, NULL);
	}
	assert_int_equal(rc, -EMFILE);
	for (n_mems = 0, rc = 0; !rc && n_mems < 64; n_mems += !rc)
		rc = gn_mem_alloc(b.fabric, 4096, GN_REMOTE_READ, &mem[n_mems]);
	assert_int_equal(rc, -EMFILE);
	/* The connection that was there goes on. */
	assert_int_equal(side_recv(&a, s, 1, 0, 64), 0);
	assert_int_equal(side_send(&b, c, 2, 0, 64), 0);
	side_expect(b.cq, 2, GN_WC_OK);
	side_expect(a.cq, 1, GN_WC_OK);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	while (made)
		assert_int_equal(gn_qp_destroy(more[--made]), 0);
	while (n_mems)
		assert_int_equal(gn_mem_free(mem[--n_mems]), 0);
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(s), 0);
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&a);
	side_free(&b);
}

static void no_more_memory(void **state)
{
	struct gn_mem *mem = (struct gn_mem *)&mem;
	struct side s;

	(void)state;
	side_make(&s);
	assert_int_equal(gn_mem_alloc(s.fabric, 1ull << 46, 0, &mem), -ENOMEM);
	assert_int_not_equal(gn_mem_alloc(s.fabric, 1ull << 47, GN_REMOTE_READ, &mem), 0);
	assert_ptr_equal(mem, &mem);
	/* Huge pages are there, or their absence is an error; never small pages in secret. */
	if (!gn_mem_alloc(s.fabric, 1ull << 40, GN_REMOTE_READ | GN_MEM_HUGE, &mem))
		assert_int_equal(gn_mem_free(mem), 0);
	side_free(&s);
}

/* ---- memory under a live connection ---- */

#define CYCLES 3000u

/* Regions registered and removed long after the connection was made are seen by the peer at once. */
static void memory_comes_and_goes(void **state)
{
	struct pair p;

	(void)state;
	pair_make(&p, ADDR, NULL);
	for (uint64_t i = 0; i < CYCLES; i++) {
		struct gn_sge sge = {p.client.buf, 64, gn_mr_lkey(p.client.mr)};
		struct gn_remote remote;
		struct gn_mem *mem;
		struct gn_mr *mr;
		struct gn_wr wr;

		assert_int_equal(gn_mem_alloc(p.server.fabric, 8192, GN_REMOTE_WRITE, &mem), 0);
		assert_int_equal(gn_mr_register(p.server.pd, mem, 4096, 4096,
						GN_LOCAL_WRITE | GN_REMOTE_WRITE, &mr),
				 0);
		gn_mr_remote(mr, &remote);
		memset(p.client.buf, (int)i, 64);
		gn_wr_rdma(&wr, GN_OP_WRITE, i, &sge, &remote, 1024, GN_SIGNALED);
		assert_int_equal(gn_post_send(p.c, &wr, NULL), 0);
		side_expect(p.client.cq, i, GN_WC_OK);
		assert_memory_equal((uint8_t *)gn_mem_addr(mem) + 4096 + 1024, p.client.buf, 64);
		assert_int_equal(gn_mr_deregister(mr), 0);
		assert_int_equal(gn_mem_free(mem), 0);
		side_drain(p.client.chan); /* takes the news of freed memory, too */
		if (i == CYCLES - 1) {
			assert_int_equal(gn_post_send(p.c, &wr, NULL), 0);
			side_expect(p.client.cq, i, GN_WC_REMOTE_ACCESS);
		}
	}
	assert_true(((struct shm_qp *)p.c)->conn.n_mems < 1024);
	pair_free(&p);
}

#define MEMS 2000u

/* As many mems in one pd as anybody needs, there before the connection. */
static void many_mems(void **state)
{
	static struct gn_mem *mem[MEMS];
	static struct gn_mr *mr[MEMS];
	struct rlimit old, high;
	struct gn_listener *listener;
	struct gn_qp *c, *s;
	struct side a, b;

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	high = old;
	high.rlim_cur = high.rlim_max;
	if (high.rlim_max < 4 * MEMS || setrlimit(RLIMIT_NOFILE, &high))
		skip();
	side_make(&a);
	side_make(&b);
	for (unsigned i = 0; i < MEMS; i++) {
		assert_int_equal(gn_mem_alloc(a.fabric, 4096, GN_REMOTE_READ, &mem[i]), 0);
		assert_int_equal(gn_mr_register(a.pd, mem[i], 0, 4096, GN_REMOTE_READ, &mr[i]), 0);
		memset(gn_mem_addr(mem[i]), (int)i, 64);
	}
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
	side_connect(&b, &a, ADDR, &c, &s);
	for (unsigned i = 0; i < MEMS; i++) {
		struct gn_sge sge = {b.buf, 64, gn_mr_lkey(b.mr)};
		struct gn_remote remote;
		struct gn_wr wr;

		gn_mr_remote(mr[i], &remote);
		gn_wr_rdma(&wr, GN_OP_READ, i, &sge, &remote, 0, GN_SIGNALED);
		assert_int_equal(gn_post_send(c, &wr, NULL), 0);
		side_expect(b.cq, i, GN_WC_OK);
		assert_int_equal(b.buf[63], (uint8_t)i);
	}
	assert_int_equal(gn_qp_destroy(c), 0);
	assert_int_equal(gn_qp_destroy(s), 0);
	for (unsigned i = 0; i < MEMS; i++) {
		assert_int_equal(gn_mr_deregister(mr[i]), 0);
		assert_int_equal(gn_mem_free(mem[i]), 0);
	}
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&a);
	side_free(&b);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

struct writer {
	struct side *side;
	struct gn_qp *qp;
	struct gn_remote remote;
	uint32_t refused; /* atomic */
};

static void write_until_refused(void *arg)
{
	struct writer *w = arg;
	struct gn_sge sge[2] = {{w->side->buf, 8192, gn_mr_lkey(w->side->mr)},
				{w->side->buf + 8192, 8192, gn_mr_lkey(w->side->mr)}};
	struct gn_wc wc = {.status = GN_WC_OK};

	memset(w->side->buf, 1, 8192);
	memset(w->side->buf + 8192, 2, 8192);
	for (unsigned i = 0; wc.status == GN_WC_OK; i++) {
		struct gn_wr wr;

		gn_wr_rdma(&wr, GN_OP_WRITE, i, &sge[i % 2], &w->remote, 0, GN_SIGNALED);
		if (gn_post_send(w->qp, &wr, NULL) || gn_cq_poll(w->side->cq, &wc, 1) != 1)
			break;
	}
	__atomic_store_n(&w->refused, wc.status == GN_WC_REMOTE_ACCESS ? 1u : 2u, __ATOMIC_RELEASE);
}

/* Once gn_mr_deregister() has returned, nothing is copied under the key any more. */
static void deregister_waits(void **state)
{
	const uint64_t rounds = unit_slow() ? 20 : 200;

	(void)state;
	for (uint64_t i = 0; i < rounds; i++) {
		struct gn_listener *listener;
		struct gn_thread *thread;
		struct gn_mem *mem;
		struct gn_mr *mr;
		struct gn_qp *c, *s;
		struct side a, b;
		struct writer w;
		uint8_t *target, seen[8192];

		side_make(&a);
		side_make(&b);
		assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
		side_connect(&b, &a, ADDR, &c, &s);
		assert_int_equal(gn_mem_alloc(a.fabric, 8192, GN_REMOTE_WRITE, &mem), 0);
		assert_int_equal(
			gn_mr_register(a.pd, mem, 0, 8192, GN_LOCAL_WRITE | GN_REMOTE_WRITE, &mr),
			0);
		w = (struct writer){.side = &b, .qp = c};
		gn_mr_remote(mr, &w.remote);
		target = gn_mem_addr(mem);
		assert_int_equal(gn_thread_start("writer", write_until_refused, &w, &thread), 0);
		while (!__atomic_load_n(target, __ATOMIC_RELAXED))
			gn_yield();
		assert_int_equal(gn_mr_deregister(mr), 0);
		memcpy(seen, target, sizeof(seen));
		while (!__atomic_load_n(&w.refused, __ATOMIC_ACQUIRE))
			gn_yield();
		assert_memory_equal(seen, target, sizeof(seen));
		assert_int_equal(w.refused, 1);
		assert_int_equal(gn_thread_join(thread), 0);
		assert_int_equal(gn_qp_destroy(c), 0);
		assert_int_equal(gn_qp_destroy(s), 0);
		assert_int_equal(gn_mem_free(mem), 0);
		assert_int_equal(gn_listener_destroy(listener), 0);
		side_free(&a);
		side_free(&b);
	}
}

/* ---- many connections ---- */

#define MANY 200u

/* Quiet connections are looked at in turn, and what they send after a long silence still arrives. */
static void many_quiet_ones(void **state)
{
	struct gn_qp *c[MANY], *s[MANY];
	struct gn_listener *listener;
	struct side a, b;
	struct gn_wc wc;

	(void)state;
	side_make(&a);
	side_make(&b);
	assert_int_equal(gn_listener_create(a.ctx, ADDR, a.chan, 0, &listener), 0);
	for (uint64_t i = 0; i < MANY; i++) {
		side_connect(&b, &a, ADDR, &c[i], &s[i]);
		assert_int_equal(side_recv(&a, s[i], i, 0, 64), 0);
	}
	for (int i = 0; i < 3000; i++)
		assert_int_equal(gn_cq_poll(a.cq, &wc, 1), 0);
	assert_non_null(((struct shm_cq *)a.cq)->cold);
	for (uint64_t i = 0; i < MANY; i++) {
		assert_int_equal(side_send(&b, c[i], i, 0, 64), 0);
		side_expect(b.cq, i, GN_WC_OK);
		side_expect(a.cq, i, GN_WC_OK);
	}
	for (uint64_t i = 0; i < MANY; i++) {
		assert_int_equal(gn_qp_destroy(c[i]), 0);
		assert_int_equal(gn_qp_destroy(s[i]), 0);
	}
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&a);
	side_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_leave_nothing),
		cmocka_unit_test_setup_teardown(stale_name, side_folder_make, side_folder_remove),
		cmocka_unit_test(no_more_files),
		cmocka_unit_test(no_more_memory),
		cmocka_unit_test(memory_comes_and_goes),
		cmocka_unit_test(deregister_waits),
		cmocka_unit_test(many_mems),
		cmocka_unit_test(many_quiet_ones),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
