/* SPDX-License-Identifier: MIT */
/*
 * Datagram calls between two guests whose link loses, duplicates, reorders, delays and cuts: netem,
 * on both sides. Every call ends with GN_RPC_OK before a deadline that only a defect reaches, and is
 * executed once. A case also fails if the link did not do to the datagrams what the case is about.
 * In one guest there would be nothing to test: Soft-RoCE delivers what is for its own address
 * without a qdisc.
 *
 * usage: dgram_lossy serve ADDR (guest 2) | call ADDR (guest 1, prints TAP)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dgram_lossy.h"

#define LIMIT_US    30000000u
#define WORKERS_MAX 8u
#define BACK_EVERY  4u /* calls of a worker: one of so many is answered after a call back */

static struct gn_dgram_endpoint *here;
static struct gn_dgram_peer *server, *control; /* threads of the server */
static struct counts back;		       /* of calls by the server */
static uint32_t next_key;
static unsigned number, failures;

#define CHECK(condition) check(condition, #condition, __LINE__)

static bool good; /* the case that runs */

static bool check(bool condition, const char *text, int line)
{
	if (!condition)
		printf("# line %d: not %s\n", line, text);
	good = good && condition;
	return condition;
}

static void end_case(const char *name)
{
	failures += !good;
	printf("%s %u - %s\n", good ? "ok" : "not ok", ++number, name);
	fflush(stdout);
	good = true;
}

static struct gn_dgram_stats stats_now(void)
{
	struct gn_dgram_stats stats = {.size = sizeof(stats)};

	CHECK(!gn_dgram_endpoint_stats(here, &stats));
	return stats;
}

/* ---- control ---- */

static unsigned call(struct gn_dgram_peer *peer, enum method method, const void *request,
		     uint32_t len, void *result, uint32_t room)
{
	struct gn_dgram_op op = {.peer = peer,
				 .method = method,
				 .request = request,
				 .request_len = len,
				 .result = result,
				 .result_room = room,
				 .deadline_ns = gn_deadline_us(LIMIT_US)};

	return gn_dgram_call(&op) ? (unsigned)GN_RPC_FAILED : op.status;
}

/* The link of both sides; the server's counters begin. */
static void begin_case(enum link link)
{
	const uint32_t theirs = link;

	CHECK(call(control, LINK, &theirs, sizeof(theirs), NULL, 0) == GN_RPC_OK);
	CHECK(!link_set(link));
	back.report = (struct report){0};
}

/* ---- load ---- */

struct load {
	unsigned made, answered, gone; /* calls */
	unsigned calls;		       /* to make, at least */
	uint64_t sent;		       /* datagrams of the endpoint, at least: see struct kind */
	uint32_t bytes;
	bool may_go; /* the server: calls may end with GN_RPC_PEER_GONE */
	bool stop;
	uint64_t longest_ns;
};

static bool is_echo(const struct gn_dgram_op *op, uint32_t key)
{
	const size_t behind = sizeof(struct numbered);
	struct numbered numbered;

	if (op->result_len != op->request_len)
		return false;
	memcpy(&numbered, op->result, sizeof(numbered));
	return numbered.key == key && numbered.times == 1 &&
	       !memcmp((const char *)op->result + behind, (const char *)op->request + behind,
		       op->request_len - behind);
}

static void load_call(struct load *load, uint8_t *request, uint8_t *result)
{
	const struct numbered numbered = {.key = next_key++};
	struct gn_dgram_op op = {.peer = server,
				 .method = numbered.key % BACK_EVERY ? COUNT : BACK,
				 .request = request,
				 .request_len = load->bytes,
				 .result = result,
				 .result_room = load->bytes,
				 .deadline_ns = gn_deadline_us(LIMIT_US)};
	const uint64_t began_ns = gn_now_ns();

	for (uint32_t i = sizeof(numbered); i < load->bytes; i++)
		request[i] = (uint8_t)(numbered.key + i * 7);
	memcpy(request, &numbered, sizeof(numbered));
	if (!CHECK(!gn_dgram_call(&op)))
		return;
	if (gn_now_ns() - began_ns > load->longest_ns)
		load->longest_ns = gn_now_ns() - began_ns;
	/* The server's call back, too, ends with PEER_GONE where the epoch has ended. */
	if (load->may_go && op.status == GN_RPC_PEER_GONE)
		load->gone++;
	else if (CHECK(op.status == GN_RPC_OK) && CHECK(is_echo(&op, numbered.key)))
		load->answered++;
	else
		printf("# key %u: %s\n", numbered.key, gn_rpc_status_str(op.status));
}

static bool load_goes_on(const struct load *load)
{
	return good && !load->stop && (load->made < load->calls || stats_now().sent < load->sent);
}

static void load_worker(void *arg)
{
	struct load *load = arg;
	uint8_t *request = malloc(load->bytes), *result = malloc(load->bytes);

	while (CHECK(request && result) && load_goes_on(load)) {
		load->made++;
		load_call(load, request, result);
	}
	free(request);
	free(result);
}

static void run_load(struct load *load, unsigned workers)
{
	for (unsigned i = 0; i < workers; i++)
		CHECK(!gn_dgram_spawn(here, load_worker, load));
	CHECK(!gn_dgram_run(here, gn_deadline_us(2 * LIMIT_US)));
}

/* ---- one kind of link after the other ---- */

#define DROPS	  (1u << 0)
#define TWICE	  (1u << 1) /* requests arrive twice */
#define OVERTAKEN (1u << 2)
#define NONE	  (1u << 3) /* no drop */

/*
 * Calls of all workers can share a datagram. So a case ends when enough datagrams were sent for what
 * it is about to have happened to some of them, in each direction: with 5%, to none of 400 once in
 * 10^9 runs.
 */
struct kind {
	const char *name;
	enum link link;
	unsigned proof, workers, calls, datagrams;
	uint32_t bytes;
};

static const struct kind kinds[] = {
	{"a link that loses nothing", CLEAN, NONE, 8, 200, 0, 32},
	{"10% loss", LOSS, DROPS, 8, 400, 250, 32},
	{"loss in bursts", BURSTS, DROPS, 8, 400, 250, 200},
	{"20% duplicates", DUPLICATES, TWICE | NONE, 8, 300, 120, 32},
	{"reordering", REORDER, OVERTAKEN | NONE, 8, 300, 120, 32},
	{"loss, duplicates, reordering and delay", MIXED, DROPS, 8, 400, 450, 32},
	{"the same, 20000 bytes each way", MIXED, DROPS, 2, 40, 450, LARGE_BYTES},
	{"30% loss", HEAVY, DROPS, 8, 100, 100, 32},
	{"30% loss, 20000 bytes each way", HEAVY, DROPS, 2, 8, 100, LARGE_BYTES},
};

static void check_proof(const struct kind *kind, const struct report *theirs, int64_t drops,
			const struct gn_dgram_stats *before, const struct gn_dgram_stats *after)
{
	const uint64_t repeats = after->repeats - before->repeats;
	const uint64_t pieces = after->pieces_repeated - before->pieces_repeated;

	if (kind->proof & DROPS) {
		CHECK(drops > 0);
		CHECK(theirs->drops > 0);
		CHECK(kind->bytes == LARGE_BYTES ? pieces > 0 : repeats > 0);
	}
	if (kind->proof & NONE)
		CHECK(drops == 0 && theirs->drops == 0);
	/* Without a drop each repeat arrives; whatever else arrives twice is netem's doing. */
	CHECK(!(kind->proof & TWICE) || theirs->duplicates > repeats);
	CHECK(!(kind->proof & OVERTAKEN) || theirs->overtaken > 0);
}

static void run_kind(const struct kind *kind)
{
	struct load load = {.calls = kind->calls, .bytes = kind->bytes};
	struct gn_dgram_stats before, after;
	struct report theirs = {0};
	const uint64_t began_ns = gn_now_ns();
	uint32_t first = next_key, backs;
	int64_t drops;

	begin_case(kind->link);
	before = stats_now();
	load.sent = before.sent + kind->datagrams;
	run_load(&load, kind->workers);
	after = stats_now();
	drops = link_drops();
	CHECK(call(control, REPORT, NULL, 0, &theirs, sizeof(theirs)) == GN_RPC_OK);
	CHECK(load.answered == load.made);
	CHECK(theirs.executed == load.made);
	CHECK(theirs.twice == 0);
	for (backs = 0; first < next_key; first++)
		backs += !(first % BACK_EVERY);
	CHECK(back.report.executed == backs && back.report.twice == 0);
	check_proof(kind, &theirs, drops, &before, &after);
	printf("# %u calls in %llu ms, the longest %llu ms; sent %llu and %llu datagrams; dropped "
	       "%lld and %llu; repeated %llu requests, %llu pieces; arrived twice %llu, overtaken %llu\n",
	       load.answered, (unsigned long long)(gn_now_ns() - began_ns) / 1000000,
	       (unsigned long long)load.longest_ns / 1000000,
	       (unsigned long long)(after.sent - before.sent), (unsigned long long)theirs.sent,
	       (long long)drops, (unsigned long long)theirs.drops,
	       (unsigned long long)(after.repeats - before.repeats),
	       (unsigned long long)(after.pieces_repeated - before.pieces_repeated),
	       (unsigned long long)theirs.duplicates, (unsigned long long)theirs.overtaken);
	end_case(kind->name);
}

/* ---- a cut ---- */

#define CUT_US	 1500000u /* longer than an attempt to ask for the server's epoch */
#define SHORT_US 300000u
#define N_CUT	 5u

static void op_done(struct gn_dgram_op *op)
{
	++*(unsigned *)op->arg;
}

static void poll_until(uint64_t deadline_ns, const unsigned *n, unsigned wanted)
{
	while (*n < wanted && gn_now_ns() < deadline_ns)
		gn_dgram_wait(here, deadline_ns);
}

/* Only a deadline ends a call while the link is cut; the others end when it works again. */
static void test_cut(void)
{
	struct numbered numbered[N_CUT], results[N_CUT];
	struct gn_dgram_op ops[N_CUT];
	const uint64_t epoch = gn_dgram_peer_epoch(server);
	struct report theirs;
	unsigned n = 0;

	begin_case(CLEAN);
	CHECK(!link_set(CUT));
	for (unsigned i = 0; i < N_CUT; i++) {
		numbered[i] = (struct numbered){.key = next_key++};
		ops[i] =
			(struct gn_dgram_op){.peer = server,
					     .method = COUNT,
					     .request = &numbered[i],
					     .request_len = sizeof(numbered[i]),
					     .result = &results[i],
					     .result_room = sizeof(results[i]),
					     .deadline_ns = gn_deadline_us(i ? LIMIT_US : SHORT_US),
					     .done = op_done,
					     .arg = &n};
		CHECK(!gn_dgram_submit(&ops[i]));
	}
	poll_until(gn_deadline_us(CUT_US), &n, N_CUT);
	CHECK(n == 1 && ops[0].status == GN_RPC_TIMEOUT);
	CHECK(link_drops() > 0);
	CHECK(!link_set(CLEAN));
	poll_until(gn_deadline_us(LIMIT_US), &n, N_CUT);
	CHECK(n == N_CUT);
	for (unsigned i = 1; i < N_CUT; i++)
		CHECK(ops[i].status == GN_RPC_OK && is_echo(&ops[i], numbered[i].key));
	CHECK(call(control, REPORT, NULL, 0, &theirs, sizeof(theirs)) == GN_RPC_OK);
	CHECK(theirs.twice == 0 && theirs.executed - (N_CUT - 1) <= 1);
	CHECK(gn_dgram_peer_epoch(server) == epoch);
	end_case("a cut of 1.5 s ends no call but the one whose deadline passed");
}

/* ---- a server that is killed ---- */

static unsigned long long ms_since(uint64_t ns)
{
	return (gn_now_ns() - ns) / 1000000;
}

static void killer(void *arg)
{
	struct load *load = arg;

	CHECK(call(server, DIE, NULL, 0, NULL, 0) == GN_RPC_PEER_GONE);
	load->stop = true;
}

static void test_killed(const struct kind *kind)
{
	const uint64_t epoch = gn_dgram_peer_epoch(server), began_ns = gn_now_ns();
	struct load load = {.calls = KEYS / 4, .bytes = kind->bytes, .may_go = true};
	struct gn_dgram_stats before;

	begin_case(kind->link);
	before = stats_now();
	CHECK(epoch != 0);
	CHECK(!gn_dgram_spawn(here, killer, &load));
	run_load(&load, kind->workers);
	CHECK(load.gone > 0);			    /* calls beside DIE */
	CHECK(stats_now().gone == before.gone + 2); /* both threads */
	printf("# gone with %u calls after %llu ms\n", load.gone, ms_since(began_ns));
	load = (struct load){.calls = kind->calls,
			     .bytes = kind->bytes,
			     .sent = stats_now().sent + kind->datagrams};
	run_load(&load, kind->workers);
	CHECK(load.answered == load.made);
	CHECK(gn_dgram_peer_epoch(server) && gn_dgram_peer_epoch(server) != epoch);
	CHECK(link_drops() > 0);
	printf("# answered after %llu ms\n", ms_since(began_ns));
	end_case(kind->name);
}

/* Handshakes lose packets, too; one that fails is made anew after a second. */
static const struct kind killed = {
	"the server is killed and started again", LOSS, DROPS, 8, 100, 150, 32};

/* ---- all ---- */

#define LENGTH(array) (unsigned)(sizeof(array) / sizeof((array)[0]))

static int call_all(const char *addr)
{
	struct gn_dgram_node *node;
	struct gn_fabric *fabric;

	printf("1..%u\n", LENGTH(kinds) + 3);
	good = true;
	if (!CHECK(!gn_fabric_open("verbs", &fabric)) ||
	    !CHECK(!gn_dgram_node_create(fabric, NULL, NULL, &node)) ||
	    !CHECK(!gn_dgram_handle(node, COUNT, count_handler, NULL, &back, 0)) ||
	    !CHECK(!gn_dgram_endpoint_create(node, 0, &here)) ||
	    !CHECK(!gn_dgram_peer_open(here, addr, LOAD_THREAD, &server)) ||
	    !CHECK(!gn_dgram_peer_open(here, addr, CONTROL_THREAD, &control)))
		return 1;
	for (unsigned i = 0; i < LENGTH(kinds); i++)
		run_kind(&kinds[i]);
	test_cut();
	test_killed(&killed);
	begin_case(CLEAN);
	CHECK(call(server, END, NULL, 0, NULL, 0) == GN_RPC_OK);
	CHECK(!gn_dgram_endpoint_destroy(here));
	CHECK(!gn_dgram_node_destroy(node));
	CHECK(!gn_fabric_close(fabric));
	end_case("the end");
	return failures != 0;
}

int main(int argc, char **argv)
{
	if (argc == 3 && !strcmp(argv[1], "serve"))
		return serve(argv[2]);
	if (argc == 3 && !strcmp(argv[1], "call"))
		return call_all(argv[2]);
	fprintf(stderr, "usage: dgram_lossy serve ADDR | call ADDR\n");
	return 2;
}
