/* SPDX-License-Identifier: MIT */
/*
 * A process that lends memory, as a donor does: a session for each client, with a protection domain
 * and channels of its own. It ends and begins anew, with other memory.
 */
#include <errno.h>
#include <string.h>

#include "base/mutant.h"
#include "sim_io.h"

#define ATTEMPTS   300u
#define MEMORY_US  1000u
#define DOWN_US	   2000u
#define SILENCE_NS 6000000000ull

struct session {
	struct gn_pd *pd;
	struct gn_mr *mr;
	struct gn_qp *qp[IO_CHANNELS_MAX], *old[IO_CHANNELS_MAX];
	uint32_t generation[IO_CHANNELS_MAX];
};

struct lender {
	struct world *w;
	struct gn_ctx *ctx;
	struct gn_chan *chan;
	struct gn_cq *cq;
	struct gn_mem *mem;
	struct gn_listener *listener;
	uint64_t incarnation;
	struct session session[CLIENTS_MAX];
};

static bool all_over(const struct seeds *run)
{
	return seeds_over(run, ((const struct world *)run)->plan.n_clients, SILENCE_NS) ||
	       *run->failure;
}

/* The old qp must be gone before the new one carries data. */
static void session_fence(struct session *s, unsigned channel)
{
	if (mutant("io-no-fence", MUTANT_ALWAYS) || mutant("io-fence-error", MUTANT_ALWAYS)) {
		/* The old one lives on until the next comes. */
		gn_qp_destroy(s->old[channel]);
		if (s->qp[channel] && !mutant("io-no-fence", MUTANT_ALWAYS))
			gn_qp_error(s->qp[channel]);
		s->old[channel] = s->qp[channel];
	} else {
		gn_qp_destroy(s->qp[channel]);
	}
	s->qp[channel] = NULL;
}

static uint16_t lender_check(const struct lender *l, const struct io_attach *attach, uint32_t len)
{
	const struct session *s = &l->session[attach->token[0] % CLIENTS_MAX];

	if (len < sizeof(*attach) || attach->magic != IO_ATTACH_MAGIC ||
	    attach->channel >= IO_CHANNELS_MAX)
		return IO_ATTACH_BAD_REQUEST;
	if (attach->incarnation != l->incarnation)
		return IO_ATTACH_OTHER_INCARNATION;
	if (attach->generation <= s->generation[attach->channel] &&
	    !mutant("io-old-generation", MUTANT_ALWAYS))
		return IO_ATTACH_OLD_GENERATION;
	return IO_ATTACH_OK;
}

static void lender_answer(struct lender *l, struct gn_event *event)
{
	struct io_attach_reply reply = {.magic = IO_ATTACH_MAGIC,
					.version = IO_ATTACH_VERSION,
					.incarnation = l->incarnation};
	struct gn_conn_opts conn = {
		.size = sizeof(conn), .private_data = &reply, .private_len = sizeof(reply)};
	struct gn_qp_opts opts = {.size = sizeof(opts),
				  .send_cq = l->cq,
				  .recv_cq = l->cq,
				  .chan = l->chan,
				  .max_send_wr = 1,
				  .max_recv_wr = 1};
	struct io_attach attach;
	struct session *s;

	memcpy(&attach, event->private_data, sizeof(attach));
	s = &l->session[attach.token[0] % CLIENTS_MAX];
	reply.status = lender_check(l, &attach, event->private_len);
	if (reply.status) {
		reply.generation = s->generation[attach.channel % IO_CHANNELS_MAX];
		gn_reject(event->req, &reply, sizeof(reply));
		return;
	}
	session_fence(s, attach.channel);
	if (gn_qp_create(s->pd, &opts, &s->qp[attach.channel])) {
		reply.status = IO_ATTACH_BUSY;
		gn_reject(event->req, &reply, sizeof(reply));
		return;
	}
	s->generation[attach.channel] = attach.generation;
	world_log(l->w, "client %u, channel %u: generation %u", attach.token[0], attach.channel,
		  attach.generation);
	gn_accept(event->req, s->qp[attach.channel], &conn);
}

static int lender_begin(struct lender *l, struct gn_fabric *fabric)
{
	const unsigned rights = GN_REMOTE_READ | GN_REMOTE_WRITE;
	struct gn_cq_opts cq = {.size = sizeof(cq), .depth = 256};
	int rc = gn_ctx_create(fabric, &l->ctx);

	if (!rc)
		rc = gn_chan_create(l->ctx, &l->chan);
	cq.chan = l->chan;
	if (!rc)
		rc = gn_cq_create(l->ctx, &cq, &l->cq);
	if (!rc)
		rc = gn_mem_alloc(fabric, MEMORY, rights, &l->mem);
	for (unsigned i = 0; !rc && i < l->w->plan.n_clients; i++) {
		struct session *s = &l->session[i];
		struct gn_remote remote = {0};

		rc = gn_pd_create(l->ctx, &s->pd);
		if (!rc)
			rc = gn_mr_register(s->pd, l->mem, i * CLIENT_STRIDE, CLIENT_STRIDE,
					    GN_LOCAL_WRITE | rights, &s->mr);
		if (!rc)
			rc = gn_mr_remote(s->mr, &remote);
		l->w->keys[i] = remote.key;
	}
	return rc ? rc : gn_listener_create(l->ctx, ADDR, l->chan, 0, &l->listener);
}

/* Nothing but a client's own lines is in its part of the memory. */
static void lender_check_memory(const struct lender *l)
{
	const uint64_t *word = gn_mem_addr(l->mem);

	for (uint32_t i = 0; i < MEMORY / 8; i++) {
		const uint32_t at = i * 8 % CLIENT_STRIDE, client = i * 8 / CLIENT_STRIDE;
		const uint32_t block = (at - CLIENT_START) / BLOCK;

		if (!word[i])
			continue;
		if (at < CLIENT_START || block >= BLOCKS ||
		    (word[i] & 0xffffffff) !=
			    (uint32_t)line_word(client, block, at % BLOCK / 64, 1))
			world_fail(l->w, "client %u, byte %u: foreign data %llx", client, at,
				   (unsigned long long)word[i]);
	}
}

static void lender_end(struct lender *l)
{
	gn_listener_destroy(l->listener);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		struct session *s = &l->session[i];

		for (unsigned c = 0; c < IO_CHANNELS_MAX; c++) {
			gn_qp_destroy(s->qp[c]);
			gn_qp_destroy(s->old[c]);
		}
		gn_mr_deregister(s->mr);
		gn_pd_destroy(s->pd);
	}
	if (l->mem)
		lender_check_memory(l);
	gn_mem_free(l->mem);
	gn_cq_destroy(l->cq);
	gn_chan_destroy(l->chan);
	gn_ctx_destroy(l->ctx);
}

static int lender_serve_once(struct seeds *run, struct gn_fabric *fabric, uint32_t stop_us)
{
	struct world *w = (struct world *)run;
	struct lender l = {.w = w, .incarnation = ++w->incarnation};
	int rc = lender_begin(&l, fabric);

	world_log(w, "lends memory, incarnation %llu: %s", (unsigned long long)l.incarnation,
		  gn_strerror(rc));
	while (!rc && !all_over(run) &&
	       (!stop_us || gn_sim_now_ns(w->run.sim) < stop_us * 1000ull)) {
		struct gn_event event;
		struct gn_wc wc;

		if (gn_chan_wait(l.chan, gn_deadline_us(100), &event) == 0 &&
		    event.type == GN_EVENT_CONNECT_REQUEST)
			lender_answer(&l, &event);
		gn_cq_poll(l.cq, &wc, 1);
	}
	lender_end(&l);
	w->sums.restarts += !rc && stop_us;
	return rc;
}

int lender_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct seeds_server server = {.serve_once = lender_serve_once,
					    .all_over = all_over,
					    .stop_us = w->plan.stop_us,
					    .attempts = ATTEMPTS,
					    .pause_us = MEMORY_US,
					    .max_down_us = DOWN_US,
					    .no_memory = w->plan.cluster.no_memory};

	(void)argc, (void)argv;
	return seeds_serve(&w->run, env, &server);
}
