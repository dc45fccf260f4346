/* SPDX-License-Identifier: MIT */
/*
 * A donor that does not answer, or lies: every call of its client ends by the deadline, and the
 * client keeps nothing. The donor is a process of its own: what it keeps does not count.
 */
#include <dirent.h>
#include <malloc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "donor/client.h"
#include "donor/wire.h"
#include "gannet/donor.h"
#include "gannet/rpc.h"
#include "io_world.h"

#define SLAB	    (1u << 20)
#define SOON_US	    4000u
#define LATE_NS	    5000000000ull /* a busy machine */
#define WARM_UP	    70u
#define ROUNDS	    30u
#define GROWTH	    8192u
#define LEASE_BYTES 4096u
#define LONG_US	    20000000u

/* Shared by the two processes. */
struct evil {
	struct lender lender; /* its data connections */
	char addr[64], data_addr[80];
	bool ready;	 /* atomic */
	unsigned silent; /* atomic: methods that get no answer, a bit each */
	bool endless;	 /* atomic: LIST has always one more page of slabs */
	unsigned n_slabs;
	uint32_t generation;
	uint64_t lease_bytes, use_offset; /* atomic: that HELLO and GRANT tell; 0: honest ones */
};

static struct evil *evil;

/* ---- the donor ---- */

static struct donor_remote evil_remote(uint64_t offset, uint64_t length)
{
	struct gn_remote remote;

	if (gn_mr_remote(evil->lender.mr, &remote))
		abort();
	return (struct donor_remote){remote.offset + offset, length, remote.key, 0};
}

static void evil_hello(struct gn_rpc_request *request)
{
	struct donor_hello_result result = {.version = DONOR_VERSION,
					    .n_slabs = evil->n_slabs,
					    .incarnation = INCARNATION,
					    .session = 1,
					    .slab_bytes = SLAB,
					    .lease = evil_remote(0, LEASE_BYTES),
					    .generation = evil->generation += 1000};

	if (__atomic_load_n(&evil->lease_bytes, __ATOMIC_RELAXED))
		result.lease.length = evil->lease_bytes;
	strcpy(result.data, evil->data_addr + strlen("shm:"));
	gn_rpc_answer(request, GN_RPC_OK, &result, sizeof(result));
}

static void evil_grant(struct gn_rpc_request *request)
{
	const uint64_t use_offset = __atomic_load_n(&evil->use_offset, __ATOMIC_RELAXED);
	const struct donor_grant_result result = {.slab = 1,
						  .remote = evil_remote(SLAB, SLAB),
						  .use_offset = use_offset ? use_offset : 8};

	gn_rpc_answer(request, GN_RPC_OK, &result, sizeof(result));
}

static void evil_list(struct gn_rpc_request *request)
{
	struct {
		struct donor_list_result head;
		struct donor_list_entry entries[DONOR_LIST_MAX];
	} page = {.head.n = DONOR_LIST_MAX};
	struct donor_list_request list;
	uint32_t len;

	memcpy(&list, gn_rpc_request_data(request, &len), sizeof(list));
	for (unsigned i = 0; i < DONOR_LIST_MAX; i++)
		page.entries[i] = (struct donor_list_entry){.slab = list.after + i + 1,
							    .session = 1,
							    .bytes = SLAB,
							    .remote = evil_remote(SLAB, SLAB),
							    .use_offset = 8};
	page.head.next = list.after + DONOR_LIST_MAX;
	gn_rpc_answer(request, GN_RPC_OK, &page, sizeof(page));
}

static void evil_handle(struct gn_rpc_request *request, void *arg)
{
	const unsigned method = gn_rpc_request_method(request);

	(void)arg;
	if (__atomic_load_n(&evil->silent, __ATOMIC_RELAXED) & 1u << method)
		return;
	if (method == DONOR_HELLO)
		evil_hello(request);
	else if (method == DONOR_GRANT)
		evil_grant(request);
	else if (method == DONOR_LIST && evil->endless)
		evil_list(request);
	else
		gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static int evil_serve(void)
{
	struct gn_rpc_server *server;
	struct gn_fabric *fabric;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(lender_start(&evil->lender, fabric, evil->data_addr) == 0);
	EXPECT(gn_rpc_server_create(fabric, evil->addr, NULL, &server) == 0);
	for (unsigned m = DONOR_HELLO; m <= DONOR_END; m++)
		EXPECT(gn_rpc_server_handle(server, m, evil_handle, NULL) == 0);
	EXPECT(gn_rpc_server_start(server) == 0);
	__atomic_store_n(&evil->ready, true, __ATOMIC_RELEASE);
	for (;;)
		pause();
}

/* ---- the client ---- */

struct client {
	pid_t pid; /* of the donor */
	struct gn_fabric *fabric;
	struct gn_io *io;
};

static int setup(void **state)
{
	static struct client c;

	evil = mmap(NULL, sizeof(*evil), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (evil == MAP_FAILED)
		return -1;
	snprintf(evil->addr, sizeof(evil->addr), "shm:evil-%d", (int)getpid());
	snprintf(evil->data_addr, sizeof(evil->data_addr), "%s.data", evil->addr);
	c.pid = fork();
	if (!c.pid)
		_exit(evil_serve());
	while (!__atomic_load_n(&evil->ready, __ATOMIC_ACQUIRE))
		gn_sleep_us(1000);
	*state = &c;
	return gn_fabric_open("shm", &c.fabric) || gn_io_create(c.fabric, NULL, &c.io);
}

static int teardown(void **state)
{
	struct client *c = *state;
	int rc = gn_io_destroy(c->io);

	if (!rc)
		rc = gn_fabric_close(c->fabric);
	kill(c->pid, SIGKILL);
	waitpid(c->pid, NULL, 0);
	munmap(evil, sizeof(*evil));
	return rc;
}

static unsigned lines_of(const char *path, bool is_dir)
{
	DIR *dir = is_dir ? opendir(path) : NULL;
	FILE *file = is_dir ? NULL : fopen(path, "re");
	unsigned n = 0;
	int c;

	while (dir && readdir(dir))
		n++;
	while (file && (c = getc(file)) != EOF)
		n += c == '\n';
	if (dir)
		closedir(dir);
	if (file)
		fclose(file);
	return n;
}

struct kept {
	unsigned fds, maps;
	uint64_t heap;
};

static struct kept kept_now(void)
{
	return (struct kept){lines_of("/proc/self/fd", true), lines_of("/proc/self/maps", false),
			     mallinfo2().uordblks};
}

static bool kept_no_more(const struct kept *before, const struct kept *after)
{
	return after->fds <= before->fds &&
	       after->maps <= before->maps + 4 && /* stacks of threads, arenas */
	       after->heap <= before->heap + GROWTH;
}

/*
 * Calls fn again and again; nothing grows after some rounds. The fabric keeps a number of destroyed
 * objects, to detect their use; a thread of it closes and unmaps, later on a busy machine.
 */
static void must_not_grow(struct client *c, void (*fn)(struct client *c))
{
	struct kept before, after;
	uint64_t until_ns;

	for (unsigned i = 0; i < WARM_UP; i++)
		fn(c);
	before = kept_now();
	for (unsigned i = 0; i < ROUNDS; i++)
		fn(c);
	until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	while (after = kept_now(), !kept_no_more(&before, &after) && gn_now_ns() < until_ns)
		gn_sleep_us(1000);
	print_message("# %u and %u descriptors, %u and %u mappings, %llu and %llu bytes\n",
		      before.fds, after.fds, before.maps, after.maps,
		      (unsigned long long)before.heap, (unsigned long long)after.heap);
	assert_true(kept_no_more(&before, &after));
}

static int connect_timed(struct client *c, uint32_t timeout_us, struct gn_donor **out)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts), .timeout_us = timeout_us};
	const uint64_t begin_ns = gn_now_ns();
	const int rc = gn_donor_connect(c->fabric, c->io, evil->addr, &opts, out);

	assert_true(gn_now_ns() - begin_ns < timeout_us * 1000ull + LATE_NS);
	return rc;
}

/* ---- no answers ---- */

static void connect_in_vain(struct client *c)
{
	struct gn_donor *donor;

	const int rc = connect_timed(c, SOON_US, &donor);

	assert_true(rc == -ETIMEDOUT || rc == -ECONNREFUSED); /* its backlog is full */
}

static void test_silent_hello(void **state)
{
	evil->silent = 1u << DONOR_HELLO;
	must_not_grow(*state, connect_in_vain);
}

/* The control connection works; data connections are neither accepted nor refused. */
static void test_silent_data(void **state)
{
	evil->silent = 0;
	evil->lender.silent = true;
	must_not_grow(*state, connect_in_vain);
	evil->lender.silent = false;
}

static int list_nothing(void *arg, const struct gn_donor_entry *entry)
{
	(void)arg, (void)entry;
	return 0;
}

#define TIMED_OUT(call)                                                           \
	do {                                                                      \
		const uint64_t call_ns = gn_now_ns();                             \
                                                                                  \
		assert_int_equal(call, -ETIMEDOUT);                               \
		assert_true(gn_now_ns() - call_ns < SOON_US * 1000ull + LATE_NS); \
	} while (0)

static void calls_in_vain(struct client *c)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_slab *slab, *more[4];
	uint8_t token[GN_DONOR_TOKEN] = {1};
	struct gn_donor *donor;

	evil->silent = 0;
	assert_int_equal(connect_timed(c, LONG_US, &donor), 0);
	assert_int_equal(gn_donor_grant(donor, 1, &slab, gn_deadline_us(LONG_US)), 1);
	evil->silent = ~(1u << DONOR_END);
	TIMED_OUT(gn_donor_grant(donor, 4, more, gn_deadline_us(SOON_US)));
	TIMED_OUT(gn_donor_share(donor, slab, 0, 4096, GN_REMOTE_READ, gn_deadline_us(SOON_US),
				 token));
	TIMED_OUT(gn_donor_revoke(donor, token, gn_deadline_us(SOON_US)));
	TIMED_OUT(gn_donor_list(donor, NULL, list_nothing, NULL, gn_deadline_us(SOON_US)));
	TIMED_OUT(gn_donor_query(donor, &stats, gn_deadline_us(SOON_US)));
	TIMED_OUT(gn_donor_next_notice(donor, &notice, gn_deadline_us(SOON_US)));
	TIMED_OUT(gn_donor_release(donor, slab, gn_deadline_us(SOON_US)));
	/* … which was not freed: it can be released again. */
	TIMED_OUT(gn_donor_release(donor, slab, gn_deadline_us(SOON_US)));
	assert_int_equal(gn_donor_renew(donor), 0); /* one-sided */
	assert_int_equal(gn_donor_close(donor, 0), 0);
}

static void test_silent_calls(void **state)
{
	must_not_grow(*state, calls_in_vain);
}

/* More calls than the connection has slots for. */
static void test_silent_slots(void **state)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor_slab *slabs[40];
	struct gn_donor *donor;
	uint64_t begin_ns;

	assert_int_equal(connect_timed(*state, LONG_US, &donor), 0);
	evil->silent = ~0u;
	for (unsigned i = 0; i < 5; i++) {
		TIMED_OUT(gn_donor_grant(donor, 40, slabs, gn_deadline_us(SOON_US)));
		TIMED_OUT(gn_donor_query(donor, &stats, gn_deadline_us(SOON_US)));
		TIMED_OUT(gn_donor_next_notice(donor, &notice, gn_deadline_us(SOON_US)));
		TIMED_OUT(gn_donor_next_notice(donor, &notice, GN_NO_WAIT));
	}
	assert_int_equal(gn_donor_renew(donor), 0);
	begin_ns = gn_now_ns();
	assert_int_equal(gn_donor_close(donor, 0), 0);
	assert_true(gn_now_ns() - begin_ns < 2000000000u + LATE_NS);
}

/* ---- lies ---- */

static void connect_nonsense(struct client *c)
{
	struct gn_donor *donor;

	assert_int_equal(connect_timed(c, LONG_US, &donor), -EPROTO);
}

static void test_nonsense_data(void **state)
{
	evil->lender.nonsense = true;
	must_not_grow(*state, connect_nonsense);
	evil->lender.nonsense = false;
}

static void connect_endless(struct client *c)
{
	struct gn_donor *donor;

	assert_int_equal(connect_timed(c, LONG_US, &donor), -EPROTO);
}

/* A list of slabs that does not end. */
static void test_endless_list(void **state)
{
	evil->n_slabs = 1;
	evil->endless = true;
	must_not_grow(*state, connect_endless);
	evil->n_slabs = UINT32_MAX;
	connect_endless(*state);
}

/*
 * The session has other lease memory after the control connection broke: a slab's counter would be
 * behind the end of the memory that the client has for it.
 */
static void run_other_lease(struct client *c, uint64_t lease_bytes, uint64_t use_offset)
{
	struct gn_donor_slab *slab;
	struct gn_donor *donor;
	int rc;

	__atomic_store_n(&evil->lease_bytes, 0, __ATOMIC_RELAXED);
	assert_int_equal(connect_timed(c, LONG_US, &donor), 0);
	__atomic_store_n(&evil->lease_bytes, lease_bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&evil->use_offset, use_offset, __ATOMIC_RELAXED);
	donor->in_session = false; /* as if the connection had broken */
	rc = gn_donor_grant(donor, 1, &slab, gn_deadline_us(LONG_US));
	if (rc == 1)
		assert_true(slab->use_offset < LEASE_BYTES);
	assert_int_equal(rc, -ESTALE);
	assert_int_equal(gn_donor_close(donor, 0), 0);
}

static void test_other_lease(void **state)
{
	run_other_lease(*state, 7, LEASE_BYTES);
	run_other_lease(*state, SLAB, SLAB - 8);
}

#define WITH_DONOR(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_DONOR(test_silent_hello),	WITH_DONOR(test_silent_data),
		WITH_DONOR(test_silent_calls),	WITH_DONOR(test_silent_slots),
		WITH_DONOR(test_nonsense_data), WITH_DONOR(test_endless_list),
		WITH_DONOR(test_other_lease),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
