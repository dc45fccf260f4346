/* SPDX-License-Identifier: MIT */
/*
 * gannet demo: two processes that share nothing but a name. The first one writes, reads and counts
 * in the second one's memory, and exchanges messages with it; then a short benchmark. The two
 * speak in turns, so their lines come in order.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gannet/fabric.h>

#include "bench.h"
#include "cmd.h"

#define REGION	   4096u
#define COUNTER_AT 1024u /* in the region: a number */
#define NOTE_AT	   2048u /* … and a text that is there to be read */
#define LINE_BYTES 128u
#define RECEIVES   4u
#define WAIT_US	   5000000u

/* One of the two processes. */
struct end {
	const char *who;
	struct gn_fabric *fabric;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_pd *pd;
	struct gn_mem *mem;
	struct gn_mr *shared; /* the first REGION bytes of mem: for the peer */
	struct gn_mr *own;    /* the rest: receives, then what is sent */
	struct gn_qp *qp;
	char *region;
	uint32_t next_receive;
	struct gn_remote peer;
};

static void say(const struct end *end, const char *verb, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void say(const struct end *end, const char *verb, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	printf("  %s %d  %-7s ", end->who, (int)getpid(), verb);
	vprintf(fmt, args);
	putchar('\n');
	fflush(stdout);
	va_end(args);
}

static int failed(const char *what, int rc)
{
	if (!bench_stopped())
		fprintf(stderr, "gannet: demo: cannot %s: %s\n", what, gn_strerror(rc));
	return rc;
}

/* ---- what both ends do ---- */

static char *receive_at(const struct end *end, uint32_t i)
{
	return end->region + REGION + i * LINE_BYTES;
}

static char *send_buffer(const struct end *end)
{
	return receive_at(end, RECEIVES);
}

static int post_receive(struct end *end)
{
	const struct gn_sge sge = {receive_at(end, end->next_receive), LINE_BYTES,
				   gn_mr_lkey(end->own)};
	const struct gn_recv_wr wr = {.id = end->next_receive, .sge = &sge, .n_sge = 1};

	end->next_receive = (end->next_receive + 1) % RECEIVES;
	return gn_post_recv(end->qp, &wr, NULL);
}

static int end_open(struct end *end, const char *who)
{
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC;
	const size_t bytes = REGION + (RECEIVES + 1) * LINE_BYTES;
	struct gn_cq_opts cq = {.depth = 64};
	struct gn_qp_opts qp = {.type = GN_QP_RC};
	int rc;

	*end = (struct end){.who = who};
	rc = gn_fabric_open("shm", &end->fabric);
	if (!rc)
		rc = gn_ctx_create(end->fabric, &end->ctx);
	if (!rc)
		rc = gn_chan_create(end->ctx, &end->chan);
	cq.chan = qp.chan = end->chan;
	if (!rc)
		rc = gn_cq_create(end->ctx, &cq, &end->cq);
	qp.send_cq = qp.recv_cq = end->cq;
	if (!rc)
		rc = gn_pd_create(end->ctx, &end->pd);
	if (!rc)
		rc = gn_mem_alloc(end->fabric, bytes, rights, &end->mem);
	if (!rc)
		rc = gn_mr_register(end->pd, end->mem, 0, REGION, GN_LOCAL_WRITE | rights,
				    &end->shared);
	if (!rc)
		rc = gn_mr_register(end->pd, end->mem, REGION, bytes - REGION, GN_LOCAL_WRITE,
				    &end->own);
	if (!rc)
		rc = gn_qp_create(end->pd, &qp, &end->qp);
	if (rc)
		return failed("set up", rc);
	end->region = gn_mem_addr(end->mem);
	for (uint32_t i = 0; i < RECEIVES && !rc; i++)
		rc = post_receive(end);
	return rc;
}

static void end_close(struct end *end)
{
	gn_qp_destroy(end->qp);
	gn_mr_deregister(end->own);
	gn_mr_deregister(end->shared);
	gn_mem_free(end->mem);
	gn_pd_destroy(end->pd);
	gn_cq_destroy(end->cq);
	gn_chan_destroy(end->chan);
	gn_ctx_destroy(end->ctx);
	gn_fabric_close(end->fabric);
}

/* The next completion; a failed one is an error. */
static int complete(struct end *end, struct gn_wc *wc)
{
	const uint64_t deadline_ns = gn_deadline_us(WAIT_US);
	int n;

	do {
		n = gn_cq_wait(end->cq, wc, 1, deadline_ns, "a completion");
	} while (n == 0 || (n == -EINTR && !bench_stopped()));
	if (n < 0)
		return n;
	return wc->status == GN_WC_OK ? 0 : -EIO;
}

static int send_text(struct end *end, const char *text)
{
	const struct gn_sge sge = {send_buffer(end), (uint32_t)strlen(text) + 1,
				   gn_mr_lkey(end->own)};
	struct gn_wr wr;

	memcpy(sge.addr, text, sge.len_bytes);
	gn_wr_send(&wr, 0, &sge, GN_SIGNALED);
	return gn_post_send(end->qp, &wr, NULL);
}

/* The next message, as a string. Completions of our own requests are passed over. */
static int receive_text(struct end *end, char text[LINE_BYTES])
{
	struct gn_wc wc;
	int rc;

	do {
		rc = complete(end, &wc);
		if (rc)
			return rc;
	} while (wc.op != GN_OP_RECV);
	memcpy(text, receive_at(end, (uint32_t)wc.id), LINE_BYTES);
	text[LINE_BYTES - 1] = '\0';
	return post_receive(end);
}

/* ---- the server: it owns the memory, and does little ---- */

static int accept_client(struct end *end)
{
	struct gn_conn_opts opts = {.rnr_retry = GN_RNR_RETRY_DEFAULT};
	struct gn_remote remote;
	struct gn_event event;
	int rc = gn_mr_remote(end->shared, &remote);

	if (!rc)
		rc = gn_chan_wait(end->chan, gn_deadline_us(WAIT_US), &event);
	if (rc)
		return rc;
	if (event.type != GN_EVENT_CONNECT_REQUEST)
		return -EPROTO;
	opts.private_data = &remote; /* where our memory is: all a client needs */
	opts.private_len = sizeof(remote);
	rc = gn_accept(event.req, end->qp, &opts);
	return rc ? rc : gn_chan_wait(end->chan, gn_deadline_us(WAIT_US), &event);
}

static int serve(struct end *end)
{
	char text[LINE_BYTES];
	uint64_t counter;
	int rc = receive_text(end, text);

	if (rc)
		return rc;
	say(end, "got", "\"%s\"", text);
	memcpy(&counter, end->region + COUNTER_AT, sizeof(counter));
	say(end, "finds", "in its memory \"%.80s\" and the number %llu", end->region,
	    (unsigned long long)counter);
	rc = send_text(end, "seen, and so it is");
	return rc ? rc : receive_text(end, text); /* good-bye */
}

static int server(const char *addr, int ready_fd)
{
	struct gn_listener *listener = NULL;
	struct end end;
	int rc = end_open(&end, "server");

	if (!rc)
		rc = gn_listen(end.ctx, addr, end.chan, 0, &listener);
	if (rc) {
		end_close(&end);
		return failed("listen", rc);
	}
	snprintf(end.region + NOTE_AT, LINE_BYTES, "a gannet sees its fish from above");
	say(&end, "listens", "at %s, with %u bytes of memory for others to use", addr, REGION);
	rc = write(ready_fd, "", 1) == 1 ? accept_client(&end) : -errno;
	gn_listener_close(listener);
	if (!rc)
		rc = serve(&end);
	if (rc)
		failed("serve", rc);
	end_close(&end);
	return rc;
}

/* ---- the client: it knows a name ---- */

static int meet_server(struct end *end, const char *addr)
{
	const struct gn_conn_opts opts = {.rnr_retry = GN_RNR_RETRY_DEFAULT};
	struct gn_event reply;
	int rc = gn_connect_wait(end->qp, addr, &opts, &reply);

	if (rc)
		return rc;
	if (reply.private_len < sizeof(end->peer))
		return -EPROTO;
	memcpy(&end->peer, reply.private_data, sizeof(end->peer));
	say(end, "connect", "and is told where that memory is: %llu bytes, key %08x",
	    (unsigned long long)end->peer.length, end->peer.key);
	return 0;
}

static int one_request(struct end *end, const struct gn_wr *wr)
{
	struct gn_wc wc;
	int rc = gn_post_send(end->qp, wr, NULL);

	return rc ? rc : complete(end, &wc);
}

static int write_and_read(struct end *end)
{
	struct gn_sge sge = {send_buffer(end), LINE_BYTES, gn_mr_lkey(end->own)};
	struct gn_wr wr;
	int rc;

	snprintf(sge.addr, LINE_BYTES, "process %d was here", (int)getpid());
	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &end->peer, 0, GN_SIGNALED);
	rc = one_request(end, &wr);
	if (rc)
		return rc;
	say(end, "write", "\"%s\" into the server's memory", send_buffer(end));
	gn_wr_rdma(&wr, GN_OP_READ, 0, &sge, &end->peer, NOTE_AT, GN_SIGNALED);
	rc = one_request(end, &wr);
	if (!rc)
		say(end, "read", "\"%s\" from it", send_buffer(end));
	return rc;
}

static int count(struct end *end)
{
	const struct gn_sge sge = {send_buffer(end), sizeof(uint64_t), gn_mr_lkey(end->own)};
	struct gn_wr wr;
	uint64_t old;
	int rc;

	gn_wr_faa(&wr, 0, &sge, &end->peer, COUNTER_AT, 42, GN_SIGNALED);
	rc = one_request(end, &wr);
	if (rc)
		return rc;
	memcpy(&old, sge.addr, sizeof(old));
	say(end, "atomic", "add 42 to a number there; it was %llu", (unsigned long long)old);
	gn_wr_cas(&wr, 0, &sge, &end->peer, COUNTER_AT, 42, 1000, GN_SIGNALED);
	rc = one_request(end, &wr);
	if (rc)
		return rc;
	memcpy(&old, sge.addr, sizeof(old));
	say(end, "atomic", "if it is 42, make it 1000; it was %llu", (unsigned long long)old);
	return 0;
}

static int talk(struct end *end)
{
	char text[LINE_BYTES];
	int rc;

	puts("\n  All that was the client alone: the server's process slept. Now a message.\n");
	say(end, "send", "\"have a look\"");
	rc = send_text(end, "have a look");
	if (!rc)
		rc = receive_text(end, text);
	if (rc)
		return rc;
	say(end, "got", "\"%s\"", text);
	return send_text(end, "good-bye");
}

static int client(const char *addr)
{
	struct end end;
	int rc = end_open(&end, "client");

	if (!rc)
		rc = meet_server(&end, addr);
	if (!rc)
		rc = write_and_read(&end);
	if (!rc)
		rc = count(&end);
	if (!rc)
		rc = talk(&end);
	if (rc)
		failed("go on", rc);
	end_close(&end);
	return rc;
}

/* ---- the two together ---- */

static void address_for(char *addr, size_t size, const char *client_pid)
{
	snprintf(addr, size, "shm:demo-%s", client_pid);
}

/* 0 when the server listens; it has said so by a byte through the pipe. */
static int await_server(int fd)
{
	char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR && !bench_stopped());
	return n == 1 ? 0 : -ECONNREFUSED;
}

static int two_processes(void)
{
	char pid_text[16], addr[64];
	int fds[2], pid, status, rc;

	snprintf(pid_text, sizeof(pid_text), "%d", (int)getpid());
	address_for(addr, sizeof(addr), pid_text);
	if (pipe2(fds, O_CLOEXEC))
		return failed("make a pipe", -errno);
	rc = bench_spawn("--demo-peer", fds[1], &pid);
	close(fds[1]);
	if (rc) {
		close(fds[0]);
		return rc;
	}
	rc = await_server(fds[0]);
	close(fds[0]);
	if (!rc)
		rc = client(addr);
	if (rc)
		kill(pid, SIGTERM);
	waitpid(pid, &status, 0);
	return rc ? rc : WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EPIPE;
}

static const struct bench_opts measured[] = {
	{.op = BENCH_SEND, .size_bytes = 32, .depth = 1},
	{.op = BENCH_WRITE, .size_bytes = 32, .depth = 16},
	{.op = BENCH_READ, .size_bytes = 32, .depth = 16},
	{.op = BENCH_WRITE, .size_bytes = 1 << 20, .depth = 1},
};

#define MEASURED_SECONDS 0.5

static int measure(void)
{
	struct bench_machine machine;
	int rc = 0;

	bench_machine_get(&machine);
	printf("\nHow fast that is here: %s, two of %d cores, Linux %s\n\n", machine.cpu,
	       machine.cores, machine.kernel);
	bench_print_head(stdout);
	for (size_t i = 0; i < sizeof(measured) / sizeof(measured[0]) && !rc; i++) {
		struct bench_opts opts = measured[i];
		struct bench_result result;

		memcpy(opts.provider, "shm", sizeof("shm"));
		opts.seconds = MEASURED_SECONDS;
		opts.seed = gn_random();
		bench_pick_cpus(opts.cpus);
		rc = bench_run(&opts, NULL, &result);
		if (!rc)
			bench_print_row(stdout, &opts, &result);
	}
	return rc;
}

int cmd_demo_peer(int argc, char **argv)
{
	char addr[64];

	if (argc != 2 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("--demo-peer is for gannet itself");
	address_for(addr, sizeof(addr), argv[1]);
	return server(addr, BENCH_PEER_FD) ? EXIT_FAILURE : EXIT_SUCCESS;
}

static const char help[] =
	"Usage: gannet demo\n"
	"\n"
	"Starts a second process, uses its memory, talks to it, and measures how fast that is.\n"
	"Takes a few seconds and needs no RDMA hardware.";

static const char farewell[] =
	"\n"
	"p50 and p99 are the time of one operation; its limit is what the two cores can do with\n"
	"no library at all. The same code runs on an RDMA device: only the names change.\n"
	"\n"
	"Next:  README.md        a program of your own in under 100 lines (examples/)\n"
	"       build/gannet doctor  what works on this machine, and how to mend the rest\n"
	"       make check       every test, also on emulated RDMA hardware\n"
	"       build/gannet bench fabric --help";

int cmd_demo(int argc, char **argv)
{
	int rc;

	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts(help);
		return cmd_flush_stdout();
	}
	if (argc > 1)
		return cmd_usage_error("demo takes no '%s'; just gannet demo", argv[1]);
	bench_stop_on_signals();
	printf("Gannet %s: two processes, and shared memory in place of a network card.\n\n",
	       gn_version());
	fflush(stdout);
	rc = two_processes();
	if (!rc)
		rc = measure();
	if (bench_stopped())
		return EXIT_INTERRUPTED;
	if (rc)
		return EXIT_FAILURE;
	puts(farewell);
	return cmd_flush_stdout();
}
