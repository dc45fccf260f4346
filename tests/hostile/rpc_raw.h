/* SPDX-License-Identifier: MIT */
/*
 * A client that speaks the RPC protocol without the library's client: it sends the given hello and
 * request messages, and consumes and acknowledges only what it is told to. The server under attack
 * runs in its own process, so that its memory can be measured.
 */
#ifndef GN_TESTS_HOSTILE_RPC_RAW_H
#define GN_TESTS_HOSTILE_RPC_RAW_H

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "../raw_endpoint.h"
#include "cost.h"
#include "rpc/wire.h"
#include "rpc_world.h"

#define RAW_BYTES (64u << 10) /* of a client's own memory */
#define RAW_SENDS 64u

struct raw_client {
	struct gn_fabric *fabric;
	struct raw_endpoint ep;
	struct gn_mem *reply;
	struct gn_mr *reply_mr;
	uint8_t *buf;
	struct rpc_hello hello;
	struct rpc_welcome welcome;
	uint32_t number;
	uint16_t flags, index; /* of its messages, and of their entries */
	bool up;
};

static inline struct rpc_hello raw_hello(uint32_t window)
{
	return (struct rpc_hello){.magic = RPC_MAGIC,
				  .version = RPC_VERSION,
				  .bytes = sizeof(struct rpc_hello),
				  .slots = GN_RPC_SLOTS_DEFAULT,
				  .max_request = GN_RPC_BYTES_DEFAULT,
				  .max_result = GN_RPC_BYTES_DEFAULT,
				  .window = window,
				  .nonce = 0x5a5a};
}

static inline void raw_end(struct raw_client *r)
{
	gn_qp_destroy(r->ep.qp);
	r->ep.qp = NULL;
	gn_mr_deregister(r->reply_mr);
	gn_mem_free(r->reply);
	raw_endpoint_end(&r->ep);
	*r = (struct raw_client){.fabric = r->fabric, .flags = r->flags};
}

static inline int raw_make(struct raw_client *r)
{
	const struct raw_endpoint_opts opts = {.bytes = RAW_BYTES,
					       .remote = GN_REMOTE_READ,
					       .cq_depth = 2 * RAW_SENDS,
					       .notify = true};
	struct gn_qp_opts qp = {
		.size = sizeof(qp), .type = GN_QP_RC, .max_send_wr = RAW_SENDS, .max_inline = 64};

	EXPECT(raw_endpoint_make(&r->ep, r->fabric, &opts, &qp) == 0);
	EXPECT(gn_mem_alloc(r->fabric, RAW_BYTES, GN_REMOTE_WRITE, &r->reply) == 0);
	EXPECT(gn_mr_register(r->ep.pd, r->reply, 0, RAW_BYTES, GN_LOCAL_WRITE | GN_REMOTE_WRITE,
			      &r->reply_mr) == 0);
	r->buf = gn_mem_addr(r->ep.mem);
	return 0;
}

/* Connects with this hello: 0 and a welcome, or the error of gn_connect_wait(). */
static inline int raw_connect(struct raw_client *r, const char *addr, struct rpc_hello hello)
{
	const struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &hello, .private_len = sizeof(hello)};
	struct gn_remote reply;
	struct gn_event event;
	int rc;

	EXPECT(raw_make(r) == 0);
	EXPECT(gn_mr_remote(r->reply_mr, &reply) == 0);
	if (!hello.reply_key)
		hello.reply_key = reply.key;
	rc = gn_connect_wait(r->ep.qp, addr, &opts, &event);
	if (rc)
		return rc;
	r->hello = hello;
	memcpy(&r->welcome, event.private_data, sizeof(r->welcome));
	r->number = 1;
	r->up = true;
	return 0;
}

/* 0, or an error when the server has closed the connection. */
static inline int raw_post(struct raw_client *r, struct gn_wr *wr)
{
	struct gn_event event;
	struct gn_wc wc;
	int rc;

	wr->flags |= GN_SIGNALED;
	rc = gn_post_send(r->ep.qp, wr, NULL);
	while (!rc) {
		const int n = gn_cq_poll(r->ep.cq, &wc, 1);

		if (n)
			rc = n < 0 || wc.status != GN_WC_OK ? -EPIPE : 1;
		else if (!gn_chan_next(r->ep.chan, &event) && event.type == GN_EVENT_DISCONNECTED)
			rc = -EPIPE;
		else
			gn_yield();
	}
	r->up = rc == 1;
	return rc == 1 ? 0 : rc;
}

static inline int raw_write(struct raw_client *r, uint64_t to, uint32_t len)
{
	const struct gn_sge sge = {r->buf, len, gn_mr_lkey(r->ep.mr)};
	struct gn_wr wr;

	gn_wr_rdma(&wr, GN_OP_WRITE, 0, &sge, &(struct gn_remote){.key = r->welcome.request_key},
		   to, 0);
	return raw_post(r, &wr);
}

/* Sends one message with as many copies of a request as fit, or so many; acknowledges only ack. */
static inline int raw_send(struct raw_client *r, uint16_t method, const void *data, uint32_t len,
			   uint32_t copies, uint32_t ack)
{
	const uint32_t max = rpc_max_len(r->welcome.max_request);
	const uint32_t each = (uint32_t)sizeof(struct rpc_entry) + rpc_align8(len);
	const struct rpc_entry entry = {.len = len, .code = method, .index = r->index};
	struct rpc_seal seal = {.seq = rpc_seq(r->welcome.epoch, r->number),
				.nonce = r->hello.nonce,
				.flags = r->flags,
				.ack = ack};
	const uint32_t slot = r->number & (r->welcome.slots - 1);
	struct gn_wr wake;

	for (; seal.aux < copies && seal.len + each <= max; seal.aux++, seal.len += each) {
		memcpy(r->buf + sizeof(struct rpc_head) + seal.len, &entry, sizeof(entry));
		memcpy(r->buf + sizeof(struct rpc_head) + seal.len + sizeof(entry), data, len);
	}
	r->number++;
	if (raw_write(r, slot * rpc_stride(r->welcome.max_request),
		      (uint32_t)rpc_seal(r->buf, &seal)))
		return -EPIPE;
	/* The server may have parked this client. */
	gn_wr_init(&wake, GN_OP_WRITE_IMM, 0, NULL, 0, GN_SOLICITED);
	return raw_post(r, &wake);
}

/* ---- the server under attack ---- */

struct victim {
	pid_t pid;
	int stop; /* closed: the server must end */
	char addr[64];
};

/* Runs in its own process until the parent closes the pipe: 0 or a line number. */
typedef int victim_main(const char *addr, int ready, int stop, void *arg);

static inline void victim_wait(int ready, int stop)
{
	char byte = 1;

	if (write(ready, &byte, 1) != 1)
		return;
	while (read(stop, &byte, 1) > 0)
		;
}

/* A victim_main: the service of rpc_world.h; arg: its options. */
static inline int victim_serve(const char *addr, int ready, int stop, void *arg)
{
	const struct gn_rpc_server_opts *opts = arg;
	struct gn_fabric *fabric;
	struct service s;

	EXPECT(gn_fabric_open("shm", &fabric) == 0);
	EXPECT(service_start(&s, fabric, addr, opts) == 0);
	victim_wait(ready, stop);
	EXPECT(service_stop(&s) == 0);
	EXPECT(gn_fabric_close(fabric) == 0);
	return 0;
}

static inline void victim_start(struct victim *v, const char *name, victim_main *program, void *arg)
{
	int ready[2], stop[2];
	char byte;

	snprintf(v->addr, sizeof(v->addr), "shm:hostile-%s-%llx", name,
		 (unsigned long long)gn_random());
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(stop), 0);
	v->pid = fork();
	assert_true(v->pid >= 0);
	if (!v->pid) {
		close(ready[0]);
		close(stop[1]);
		_exit(program(v->addr, ready[1], stop[0], arg) ? 1 : 0);
	}
	close(ready[1]);
	close(stop[0]);
	v->stop = stop[1];
	if (read(ready[0], &byte, 1) != 1)
		fail_msg("the server did not start");
	close(ready[0]);
}

static inline void victim_stop(struct victim *v)
{
	int status = -1;

	close(v->stop);
	assert_int_equal(waitpid(v->pid, &status, 0), v->pid);
	assert_int_equal(status, 0);
}

#endif
