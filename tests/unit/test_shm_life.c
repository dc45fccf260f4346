/* SPDX-License-Identifier: MIT */
/*
 * What comes and goes on shared memory at the wrong moment: memory the peer has not heard of yet, a
 * qp put in error while it connects, regions that end while they are written, files of others in
 * our folder.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define ADDR "shm:life-test-" /* and the case, or one that fails would take others along */

/* ---- memory that is still on its way ---- */

#define MEMS 100u

/* The newest mem's fd comes behind a hundred others. */
static void newest_mem(void **state)
{
	struct gn_remote remote;
	struct gn_mem *mem[MEMS];
	struct gn_mr *mr[MEMS];
	struct gn_sge sge;
	struct gn_wr wr;
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "mems", NULL);
	for (unsigned i = 0; i < MEMS; i++) {
		assert_int_equal(gn_mem_alloc(p.server.fabric, 4096, GN_REMOTE_WRITE, &mem[i]), 0);
		assert_int_equal(gn_mr_register(p.server.pd, mem[i], 0, 4096,
						GN_LOCAL_WRITE | GN_REMOTE_WRITE, &mr[i]),
				 0);
	}
	assert_int_equal(gn_mr_remote(mr[MEMS - 1], &remote), 0);
	memset(p.client.buf, 0x5a, 64);
	sge = (struct gn_sge){p.client.buf, 64, gn_mr_lkey(p.client.mr)};
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(p.c, &wr, NULL), 0);
	side_expect(p.client.cq, 1, GN_WC_OK);
	assert_memory_equal(gn_mem_addr(mem[MEMS - 1]), p.client.buf, 64);
	for (unsigned i = 0; i < MEMS; i++) {
		assert_int_equal(gn_mr_deregister(mr[i]), 0);
		assert_int_equal(gn_mem_free(mem[i]), 0);
	}
	pair_free(&p);
}

/* ---- a qp that is put in error while it connects ---- */

static enum gn_qp_state state_of(struct gn_qp *qp)
{
	struct gn_qp_attr attr = {.size = sizeof(attr)};

	assert_int_equal(gn_qp_query(qp, &attr), 0);
	return attr.state;
}

static void count_warnings(void *arg, enum gn_log_level level, const char *line)
{
	(void)line;
	*(unsigned *)arg += level <= GN_LOG_WARN;
}

static void error_while_connecting(void **state)
{
	unsigned unreachable = 0, warnings = 0;
	struct gn_event ev;
	struct pair p;
	int rc;

	(void)state;
	side_make(&p.client);
	side_make(&p.server);
	assert_int_equal(
		gn_listener_create(p.server.ctx, ADDR "error", p.server.chan, 0, &p.listener), 0);
	p.c = side_qp(&p.client, GN_QP_RC);
	p.s = side_qp(&p.server, GN_QP_RC);
	assert_int_equal(side_recv(&p.client, p.c, 1, 0, 64), 0);
	assert_int_equal(gn_connect(p.c, ADDR "error", NULL), 0);
	assert_int_equal(gn_qp_error(p.c), 0);
	assert_int_equal(state_of(p.c), GN_QP_ERROR);
	side_expect(p.client.cq, 1, GN_WC_FLUSHED);
	/* The server need not know yet. Its answer changes nothing. */
	assert_int_equal(gn_chan_wait(p.server.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_CONNECT_REQUEST);
	gn_log_to(count_warnings, &warnings);
	rc = gn_accept(ev.req, p.s, NULL);
	gn_log_to(NULL, NULL);
	assert_true(!rc || rc == -ECONNABORTED);
	assert_int_equal(warnings, 0); /* clients may change their minds */
	assert_int_equal(gn_chan_wait(p.client.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	do {
		assert_int_equal(ev.type, GN_EVENT_UNREACHABLE);
		assert_ptr_equal(ev.qp, p.c);
		unreachable++;
	} while (!gn_chan_next(p.client.chan, &ev));
	assert_int_equal(unreachable, 1);
	assert_int_equal(state_of(p.c), GN_QP_ERROR);
	pair_free(&p);
}

/* ---- the end of a region that is being written ---- */

#define CUT_OFF_NS 1000000000u /* a peer that copies for longer is no longer waited for */

enum ending { DEREGISTER, DISCONNECT, DESTROY, ENDINGS };

struct writer {
	struct gn_qp *qp;
	struct gn_sge sge;
	struct gn_remote remote;
	int rc;
};

static void write_all(void *arg)
{
	struct writer *w = arg;
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &w->sge, &w->remote, 0, 0);
	w->rc = gn_post_send(w->qp, &wr, NULL);
}

static void end_while_written(enum ending ending)
{
	const uint32_t size = unit_slow() ? 1u << 20 : 64u << 20; /* some milliseconds */
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	struct gn_thread *thread;
	struct gn_mem *from, *to;
	struct gn_mr *from_mr, *to_mr;
	struct writer w = {.rc = -1};
	uint64_t begun_ns, took_ns;
	uint8_t *target, last;
	struct pair p;

	pair_make(&p, ADDR "written", NULL);
	assert_int_equal(gn_mem_alloc(p.client.fabric, size, 0, &from), 0);
	assert_int_equal(gn_mr_register(p.client.pd, from, 0, size, 0, &from_mr), 0);
	assert_int_equal(gn_mem_alloc(p.server.fabric, size, GN_REMOTE_WRITE, &to), 0);
	assert_int_equal(
		gn_mr_register(p.server.pd, to, 0, size, GN_LOCAL_WRITE | GN_REMOTE_WRITE, &to_mr),
		0);
	target = gn_mem_addr(to);
	memset(gn_mem_addr(from), 1, size);
	memset(target, 2, size);
	assert_int_equal(gn_mr_remote(to_mr, &w.remote), 0);
	w.qp = p.c;
	w.sge = (struct gn_sge){gn_mem_addr(from), size, gn_mr_lkey(from_mr)};
	assert_int_equal(gn_thread_start("writer", write_all, &w, &thread), 0);
	while (__atomic_load_n(target, __ATOMIC_RELAXED) != 1 && gn_now_ns() < deadline_ns)
		;
	begun_ns = gn_now_ns();
	if (ending == DISCONNECT)
		assert_int_equal(gn_disconnect(p.s), 0);
	if (ending == DESTROY) {
		assert_int_equal(gn_qp_destroy(p.s), 0);
		p.s = NULL;
	}
	assert_int_equal(gn_mr_deregister(to_mr), 0);
	took_ns = gn_now_ns() - begun_ns;
	last = __atomic_load_n(target + size - 1, __ATOMIC_RELAXED);
	assert_int_equal(gn_thread_join(thread), 0);
	assert_int_equal(w.rc, 0);
	/* It had begun and, unless this machine is very busy, was not cut off: so it is done. */
	if (took_ns < CUT_OFF_NS)
		assert_int_equal(last, 1);
	assert_int_equal(gn_mem_free(to), 0);
	assert_int_equal(gn_mr_deregister(from_mr), 0);
	assert_int_equal(gn_mem_free(from), 0);
	pair_free(&p);
}

/* gn_mr_deregister() waits for a copy in progress, whatever became of the connection meanwhile. */
static void deregister_while_written(void **state)
{
	(void)state;
	for (enum ending ending = DEREGISTER; ending < ENDINGS; ending++)
		end_while_written(ending);
}

/* ---- ends that wait for nobody ---- */

#define QUICK_NS 200000000u /* what does not wait; a busy machine is slow */

/* What the client's library does while it copies under a key of the server's. */
static void client_copies(struct pair *p, bool copies)
{
	uint64_t *word = &((struct shm_qp *)p->c)->conn.own_area->busy.posting;

	__atomic_store_n(word, (*word + 1) | copies, __ATOMIC_SEQ_CST);
	assert_int_equal(*word & 1, copies);
}

/*
 * A region and a qp stay while a copy is in progress, and are destroyed afterwards. No call waits.
 */
static void teardown_tries(void **state)
{
	uint64_t begun_ns = gn_now_ns();
	struct gn_remote remote;
	struct gn_event ev;
	char failure[512];
	struct gn_sge sge;
	struct gn_wr wr;
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "tries", NULL);
	assert_int_equal(gn_mr_remote(p.server.mr, &remote), 0);
	client_copies(&p, true);
	assert_int_equal(gn_mem_free(p.server.mem), -EBUSY);
	snprintf(failure, sizeof(failure), "%s", gn_error());
	assert_int_equal(gn_mr_deregister_try(p.server.mr), -EAGAIN);
	assert_int_equal(gn_mr_deregister_try(p.server.mr), -EAGAIN);
	assert_string_equal(gn_error(), failure);
	assert_int_equal(gn_mem_free(p.server.mem), -EBUSY);
	/* The next copy is another one: it cannot know the grant. */
	client_copies(&p, false);
	client_copies(&p, true);
	assert_int_equal(gn_mr_deregister_try(p.server.mr), 0);
	assert_int_equal(side_recv(&p.server, p.s, 5, 0, 64), 0);
	assert_int_equal(gn_qp_destroy_try(p.s), -EAGAIN);
	side_drain(p.server.chan);
	assert_int_equal(gn_qp_destroy_try(p.s), -EAGAIN);
	assert_int_equal(gn_chan_next(p.server.chan, &ev), -EAGAIN);
	/* Teardown after a failure keeps the text that says what failed. */
	assert_string_equal(gn_error(), failure);
	client_copies(&p, false);
	assert_int_equal(gn_qp_destroy_try(p.s), 0);
	if (!unit_slow())
		assert_true(gn_now_ns() - begun_ns < QUICK_NS);
	p.s = NULL;
	/* The client finds it closed. */
	sge = (struct gn_sge){p.client.buf, 64, gn_mr_lkey(p.client.mr)};
	gn_wr_rdma(&wr, GN_OP_WRITE, 1, &sge, &remote, 0, GN_SIGNALED);
	assert_int_equal(gn_post_send(p.c, &wr, NULL), 0);
	side_expect(p.client.cq, 1, GN_WC_RETRY);
	assert_int_equal(gn_mr_register(p.server.pd, p.server.mem, 0, SIDE_BYTES, GN_LOCAL_WRITE,
					&p.server.mr),
			 0);
	pair_free(&p);
}

/* A peer that copies for ever is cut off, and only that one. */
static void teardown_bound(void **state)
{
	uint64_t begun_ns, took_ns;
	struct gn_event ev;
	struct pair p;
	int rc;

	(void)state;
	gn_log_level_set(GN_LOG_ERROR);
	pair_make(&p, ADDR "bound", NULL);
	client_copies(&p, true);
	begun_ns = gn_now_ns();
	do {
		rc = gn_mr_deregister_try(p.server.mr);
		took_ns = gn_now_ns() - begun_ns;
		gn_yield();
	} while (rc == -EAGAIN && took_ns < 10ull * CUT_OFF_NS);
	assert_int_equal(rc, 0);
	assert_true(took_ns >= CUT_OFF_NS);
	assert_int_equal(gn_chan_wait(p.client.chan, gn_deadline_us(UNIT_PATIENCE_US), &ev), 0);
	assert_int_equal(ev.type, GN_EVENT_DISCONNECTED);
	/* It is not waited for again. */
	begun_ns = gn_now_ns();
	assert_int_equal(gn_qp_destroy_try(p.s), 0);
	p.s = NULL;
	assert_int_equal(gn_mr_register(p.server.pd, p.server.mem, 0, SIDE_BYTES,
					GN_LOCAL_WRITE | GN_REMOTE_READ, &p.server.mr),
			 0);
	gn_log_level_set(GN_LOG_WARN);
	pair_free(&p);
}

struct stuck {
	struct pair p;
	bool done;
};

static void deregister_stuck(void *arg)
{
	struct stuck *stuck = arg;

	assert_int_equal(gn_mr_deregister(stuck->p.server.mr), 0);
	__atomic_store_n(&stuck->done, true, __ATOMIC_RELEASE);
}

/*
 * While one thread waits for a peer, other threads of its fabric register, connect and destroy as
 * usual.
 */
static void teardown_holds_nobody_up(void **state)
{
	struct stuck stuck = {.done = false};
	struct gn_thread *thread;
	unsigned rounds = 0;
	uint64_t worst_ns = 0;
	struct gn_pd *pd;

	(void)state;
	gn_log_level_set(GN_LOG_ERROR);
	pair_make(&stuck.p, ADDR "nobody", NULL);
	assert_int_equal(gn_pd_create(stuck.p.server.ctx, &pd), 0);
	client_copies(&stuck.p, true);
	assert_int_equal(gn_thread_start("stuck", deregister_stuck, &stuck, &thread), 0);
	while (!__atomic_load_n(&stuck.done, __ATOMIC_ACQUIRE)) {
		const uint64_t begun_ns = gn_now_ns();
		uint64_t took_ns;
		struct gn_mr *mr;

		assert_int_equal(gn_mr_register(pd, stuck.p.server.mem, 0, SIDE_BYTES,
						GN_LOCAL_WRITE | GN_REMOTE_READ, &mr),
				 0);
		assert_int_equal(gn_mr_deregister(mr), 0);
		took_ns = gn_now_ns() - begun_ns;
		worst_ns = took_ns > worst_ns ? took_ns : worst_ns;
		rounds++;
		gn_sleep_us(100);
	}
	assert_int_equal(gn_thread_join(thread), 0);
	print_message("# %u rounds, the longest %u us\n", rounds, (unsigned)(worst_ns / 1000));
	assert_true(rounds > 1);
	assert_true(worst_ns < CUT_OFF_NS / 2);
	assert_int_equal(gn_pd_destroy(pd), 0);
	assert_int_equal(gn_mr_register(stuck.p.server.pd, stuck.p.server.mem, 0, SIDE_BYTES,
					GN_LOCAL_WRITE, &stuck.p.server.mr),
			 0);
	gn_log_level_set(GN_LOG_WARN);
	pair_free(&stuck.p);
}

/* ---- files of others ---- */

static void path_of(const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s/%s", getenv("GANNET_SHM_DIR"), name);
}

static void put_file(const char *name)
{
	char path[256];
	int fd;

	path_of(name, path, sizeof(path));
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	close(fd);
}

static void take_file(const char *name)
{
	char path[256];

	path_of(name, path, sizeof(path));
	assert_int_equal(unlink(path), 0);
}

/* Only sockets are swept away, whatever lies beside them or looks like one of ours. */
static void foreign_files(void **state)
{
	struct side s;

	(void)state;
	put_file("notes");
	put_file("notes~lock");
	put_file("ud~notes");
	side_make(&s);
	side_free(&s);
	take_file("notes");
	take_file("ud~notes");
}

/* Memory that was granted before the connection is there as soon as the connection is. */
static void memory_comes_first(void **state)
{
	struct pair p;

	(void)state;
	pair_make(&p, ADDR "first", NULL);
	assert_int_equal(((struct shm_qp *)p.c)->conn.n_mems, 1);
	pair_free(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(memory_comes_first),
		cmocka_unit_test(newest_mem),
		cmocka_unit_test(error_while_connecting),
		cmocka_unit_test(deregister_while_written),
		cmocka_unit_test(teardown_tries),
		cmocka_unit_test(teardown_bound),
		cmocka_unit_test(teardown_holds_nobody_up),
		cmocka_unit_test(foreign_files),
	};

	return cmocka_run_group_tests(tests, side_folder_make, side_folder_remove);
}
