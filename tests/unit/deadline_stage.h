/* SPDX-License-Identifier: MIT */
/*
 * A stage for test_deadline.c: servers of all kinds, polled by one thread that can hold still, and
 * a way to have something happen later.
 */
#ifndef GN_TESTS_DEADLINE_STAGE_H
#define GN_TESTS_DEADLINE_STAGE_H

#include <string.h>

#include "gannet/kv.h"
#include "gannet/msg.h"
#include "unit_sim.h"

#define LATER_US 20000u
#define ECHO	 1u

struct stage {
	const char *provider; /* as in an address */
	struct gn_fabric *fabric;
	char rpc_addr[64], kv_addr[64], msg_addr[64], own_addr[64];
	/* A thread serves all three, or holds still. */
	struct gn_thread *server_thread;
	bool up, stop, still; /* atomic */
	int server_failed;
	struct gn_rpc_client *rpc;
	struct gn_kv_client *kv;
	struct gn_msg_requester *requester;
	struct gn_msg_conn *conn;
};

#define LOAD(x)	     __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, to) __atomic_store_n(&(x), to, __ATOMIC_RELEASE)

/* ---- servers that can hold still ---- */

static inline void echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

static inline int answer(void *arg, const void *request, uint32_t len, void *value, uint32_t max)
{
	(void)arg, (void)max;
	memcpy(value, request, len);
	return (int)len;
}

static inline int serve(struct stage *s)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .flags = GN_RPC_POLLED};
	const struct gn_kv_server_opts kv_opts = {.size = sizeof(kv_opts), .rpc = opts};
	const struct gn_msg_responder_opts msg_opts = {.size = sizeof(msg_opts), .answer = answer};
	struct gn_msg_responder *responder;
	struct gn_rpc_server *rpc;
	struct gn_kv_server *kv;

	EXPECT(gn_rpc_server_create(s->fabric, s->rpc_addr, &opts, &rpc) == 0);
	EXPECT(gn_rpc_server_handle(rpc, ECHO, echo, NULL) == 0);
	EXPECT(gn_rpc_server_start(rpc) == 0);
	EXPECT(gn_kv_server_create(s->fabric, s->kv_addr, &kv_opts, &kv) == 0);
	EXPECT(gn_kv_server_start(kv) == 0);
	EXPECT(gn_msg_responder_create(s->fabric, s->msg_addr, &msg_opts, &responder) == 0);
	STORE(s->up, true);
	while (!LOAD(s->stop)) {
		if (!LOAD(s->still)) {
			EXPECT(gn_rpc_server_poll(rpc) >= 0);
			EXPECT(gn_rpc_server_poll(gn_kv_server_rpc(kv)) >= 0);
			EXPECT(gn_msg_respond(responder, GN_NO_WAIT) >= 0);
		}
		gn_sleep_us(50);
	}
	gn_msg_responder_destroy(responder);
	gn_kv_server_destroy(kv);
	gn_rpc_server_destroy(rpc);
	return 0;
}

static inline void serve_main(void *arg)
{
	struct stage *s = arg;

	s->server_failed = serve(s);
	STORE(s->up, true);
}

/* ---- what happens later ---- */

struct later {
	struct stage *stage;
	void (*fn)(void *arg);
	void *arg;
	struct gn_thread *thread;
	bool happened; /* atomic */
};

static inline void later_main(void *arg)
{
	struct later *l = arg;

	gn_sleep_us(LATER_US);
	STORE(l->happened, true);
	l->fn(l->arg);
}

static inline void move_on(void *arg)
{
	struct stage *s = arg;

	STORE(s->still, false);
}

static inline int later(struct later *l, void (*fn)(void *arg), void *arg)
{
	*l = (struct later){.fn = fn, .arg = arg};
	return gn_thread_start("later", later_main, l, &l->thread);
}

#endif
