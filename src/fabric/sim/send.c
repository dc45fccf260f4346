/* SPDX-License-Identifier: MIT */
/*
 * The life of a request: seven stages. Each is an event of the qp. It takes the request at its head
 * when the request's time has come, sets the time of the next stage, and reschedules itself while
 * there are more requests.
 */
#include "fabric/sim/sim.h"

#define LOCAL_STORE_OPS (1u << GN_OP_READ | 1u << GN_OP_CAS | 1u << GN_OP_FAA)

#define WQE_BYTES   64u
#define RECEIVE_OPS (1u << GN_OP_SEND | 1u << GN_OP_SEND_IMM | 1u << GN_OP_WRITE_IMM)

static bool is_read(const struct gn_wr *wr)
{
	return LOCAL_STORE_OPS & 1u << wr->op;
}

static bool takes_receive(const struct gn_wr *wr)
{
	return RECEIVE_OPS & 1u << wr->op;
}

static uint64_t stage_end(const struct sim_qp *qp, enum sim_stage stage)
{
	return stage == SIM_RING ? qp->sq.head : qp->passed[stage - 1];
}

void sim_stage_kick(struct sim_qp *qp, enum sim_stage stage)
{
	struct sim_event *event = &qp->stage[stage];

	if (qp->passed[stage] != stage_end(qp, stage) && !sim_event_waits(event))
		sim_event_at(sim_engine_of(qp), event, sim_send_at(qp, qp->passed[stage])->at_ps);
}

/* Passes the request to the next stage at at_ps. */
static void stage_pass(struct sim_qp *qp, enum sim_stage stage, struct sim_send *send,
		       uint64_t at_ps)
{
	send->at_ps = at_ps;
	send->tries = 0;
	qp->passed[stage]++;
	sim_stage_kick(qp, stage + 1);
	sim_stage_kick(qp, stage);
}

/* The first request of the stage; NULL: none, or not due yet. */
static struct sim_send *stage_head(struct sim_qp *qp, enum sim_stage stage, const struct gn_wr **wr)
{
	const uint64_t position = qp->passed[stage];
	struct sim_send *send = sim_send_at(qp, position);

	if (position == stage_end(qp, stage))
		return NULL;
	if (send->at_ps > sim_engine_of(qp)->now_ps) {
		sim_stage_kick(qp, stage);
		return NULL;
	}
	*wr = &qp->sq.wr[position & qp->sq.mask];
	return send;
}

/* No response: repeats the stage after_ps later; false: the retries are used up. */
static bool send_retry(struct sim_qp *qp, enum sim_stage stage, struct sim_send *send,
		       uint32_t tries, uint64_t after_ps)
{
	if (send->tries++ >= tries)
		return false;
	send->at_ps = sim_after(sim_engine_of(qp), after_ps);
	sim_stage_kick(qp, stage);
	return true;
}

static void send_trace(struct sim_qp *qp, const struct gn_wr *wr, const struct sim_send *send)
{
	struct sim_engine *engine = sim_engine_of(qp);

	sim_trace(engine, (uint64_t)wr->op << 56 | send->bytes);
	if (qp->qp.type == GN_QP_UD) {
		sim_trace(engine, wr->to.ud.qpn);
	} else if (wr->op != GN_OP_SEND && wr->op != GN_OP_SEND_IMM) {
		sim_trace(engine, wr->to.remote.key);
		sim_trace(engine, wr->to.remote.offset);
	}
}

void sim_request_keep(struct sim_qp *qp, const struct sim_send *send)
{
	qp->lines += send->lines;
	sim_device_of(qp)->wqes += send->lines;
}

void sim_request_drop(struct sim_qp *qp, const struct sim_send *send)
{
	qp->lines -= send->lines;
	sim_device_of(qp)->wqes -= send->lines;
}

/* Buffers of a request that its device looks up where it fetches or stores their bytes. */
static unsigned requester_spans(const struct sim_qp *qp, const struct gn_wr *wr,
				struct sim_span spans[SIM_SGE_MAX])
{
	const struct soft_key *keys = sim_fabric_of(&qp->qp.obj)->keys.table;
	unsigned n = 0;

	for (uint32_t i = 0; i < wr->n_sge && n < SIM_SGE_MAX; i++) {
		const struct gn_sge *sge = &wr->sge[i];
		const struct soft_key *key = soft_key_find(keys, sge->lkey, qp->qp.pd);

		if (key && sge->len_bytes)
			spans[n++] = (struct sim_span){
				.memory = key->key,
				.offset = (uint64_t)((uint8_t *)sge->addr - key->addr),
				.bytes = sge->len_bytes,
			};
	}
	return n;
}

/* What the requester's device looks up for a request: its context and its buffers. */
static struct sim_message requester_message(const struct sim_qp *qp, const struct gn_wr *wr,
					    const struct sim_send *send, enum sim_packet packet,
					    struct sim_span spans[SIM_SGE_MAX])
{
	struct sim_message m = {
		.packet = packet,
		.read = is_read(wr),
		.qpn = qp->qp.qpn,
		.lines = qp->qp.type == GN_QP_RC ? send->lines : 0,
		.qp_lines = qp->lines,
		.bytes = send->bytes,
		.spans = spans,
	};

	if (!(wr->flags & GN_INLINE) && m.read == (packet == SIM_READ_RESPONSE))
		m.n_spans = requester_spans(qp, wr, spans);
	return m;
}

/* ---- ring ---- */

/* When the device has fetched a request; a small one comes with the doorbell. */
static uint64_t wqe_fetched_ps(struct sim_qp *qp, const struct gn_wr *wr,
			       const struct sim_send *send, uint64_t at_ps)
{
	struct sim_device *device = sim_device_of(qp);
	const bool payload = send->bytes && !is_read(wr) && !(wr->flags & GN_INLINE);
	const bool pushed = send->alone && (wr->flags & GN_INLINE || is_read(wr));
	struct sim_span spans[SIM_SGE_MAX];

	if (payload && device->profile->stalls) {
		const struct sim_message message =
			requester_message(qp, wr, send, SIM_REQUEST, spans);

		at_ps = sim_dma_stall(device, at_ps, sim_gather_ps(device, &message));
	}
	/* The payload's read depends on the WQE's read. */
	return sim_dma_read(device, at_ps, (pushed ? 0 : WQE_BYTES) + (payload ? send->bytes : 0),
			    !pushed + payload);
}

/* The doorbell of the chain that starts with send. False: it has not arrived yet. */
static bool doorbell_arrived(struct sim_qp *qp, const struct gn_wr *wr, struct sim_send *send)
{
	struct sim_device *device = sim_device_of(qp);

	if (!send->first || send->rung)
		return true;
	qp->cold = !is_read(wr) && qp->qp.type == GN_QP_RC && sim_is_cold(device, qp->qp.qpn);
	qp->bell_ps = sim_doorbell(device, sim_engine_of(qp)->now_ps,
				   send->alone && wr->flags & GN_INLINE, qp->cold);
	if (!device->profile->stalls)
		return true;
	send->rung = true;
	send->at_ps = qp->bell_ps;
	return false;
}

/* Processes all requests of a doorbell at once. */
static void stage_ring(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_RING]);
	const struct gn_wr *wr;
	struct sim_send *send;

	while ((send = stage_head(qp, SIM_RING, &wr))) {
		if (!doorbell_arrived(qp, wr, send))
			continue;
		send->cold = qp->cold && !(send->alone && wr->flags & GN_INLINE);
		send->at_ps = wqe_fetched_ps(qp, wr, send, qp->bell_ps);
		qp->passed[SIM_RING]++;
	}
	sim_stage_kick(qp, SIM_TX);
}

/* ---- tx ---- */

bool sim_local_ok(const struct sim_qp *qp, const struct gn_wr *wr)
{
	return wr->flags & GN_INLINE ||
	       soft_sge_ok(sim_fabric_of(&qp->qp.obj)->keys.table, qp->qp.pd, wr->sge, wr->n_sge,
			   is_read(wr) ? GN_LOCAL_WRITE : 0);
}

static void send_datagram(struct sim_qp *qp, const struct gn_wr *wr, struct sim_send *send)
{
	struct sim_device *device = sim_device_of(qp);
	const uint64_t leaves = sim_tx_datagram(device);

	if (send->status == GN_WC_OK)
		sim_ud_send(qp, wr, leaves);
	for (enum sim_stage stage = SIM_TX; stage <= SIM_BACK; stage++)
		qp->passed[stage]++;
	send->at_ps = sim_complete(device, leaves);
	if (send->status != GN_WC_OK)
		sim_qp_fail(qp);
	sim_stage_kick(qp, SIM_DONE);
	sim_stage_kick(qp, SIM_TX);
}

/* Waits for responses to earlier READs; read_answered() continues it. */
static bool send_has_to_wait(const struct sim_qp *qp, const struct gn_wr *wr)
{
	if (wr->flags & GN_FENCE && qp->reads)
		return true;
	return is_read(wr) && qp->reads >= sim_device_of(qp)->profile->max_rd_atomic;
}

/* The device processes a request. Invalid buffers fail it later, in order. */
static void stage_tx(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_TX]);
	struct sim_device *device = sim_device_of(qp);
	struct sim_span spans[SIM_SGE_MAX];
	struct sim_message message;
	const struct gn_wr *wr;
	struct sim_send *send = stage_head(qp, SIM_TX, &wr);
	uint64_t leaves;

	if (!send || send_has_to_wait(qp, wr))
		return;
	send_trace(qp, wr, send);
	sim_held_check(qp, qp->passed[SIM_TX]);
	if (!sim_local_ok(qp, wr))
		send->status = GN_WC_LOCAL_ACCESS;
	else if (sim_fault(sim_fabric_of(&qp->qp.obj)->sim, SIM_QP_ERROR, sim_node_of(qp)->index))
		send->status = GN_WC_LOCAL_QP;
	if (qp->qp.type == GN_QP_UD) {
		send_datagram(qp, wr, send);
		return;
	}
	send->sent = true;
	qp->reads += is_read(wr);
	message = requester_message(qp, wr, send, SIM_REQUEST, spans);
	message.cold = send->cold;
	message.more = qp->sq.head - qp->passed[SIM_DONE] > 1;
	message.visit = sim_engine_of(qp)->now_ps >= qp->visit_ps;
	leaves = sim_tx(device, &message);
	if (message.visit)
		qp->visit_ps = leaves;
	stage_pass(qp, SIM_TX, send, sim_link_send(device, leaves, is_read(wr) ? 0 : send->bytes));
}

/* ---- rx ---- */

/* False: the connection is not up yet; its next step retries or flushes. */
static bool peer_reachable(struct sim_qp *qp, struct sim_send *send, struct sim_qp **to)
{
	struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;

	*to = qp->conn.peer;
	if (send->status != GN_WC_OK)
		return true;
	if (qp->conn.phase != SIM_CONN_UP)
		return false;
	if (*to && (*to)->qp.state == GN_QP_READY &&
	    !sim_fault_cut(sim, sim_node_of(qp)->index, sim_node_of(*to)->index))
		return true;
	if (send_retry(qp, SIM_RX, send, SIM_RETRIES, SIM_RETRY_PS))
		return false;
	send->status = GN_WC_RETRY;
	return true;
}

/* Size of the request's region, for the model of the CPU's cache. */
static uint64_t remote_region_bytes(const struct sim_qp *to, const struct gn_wr *wr)
{
	const struct soft_key *key =
		soft_key_find(sim_fabric_of(&to->qp.obj)->keys.table, wr->to.remote.key, to->qp.pd);

	return key ? key->length : 0;
}

static struct sim_span remote_span(const struct gn_wr *wr, const struct sim_send *send)
{
	return (struct sim_span){
		.memory = wr->to.remote.key, .offset = wr->to.remote.offset, .bytes = send->bytes};
}

/* Returns when data received at at_ps is in memory, or data read has arrived from there. */
static uint64_t dma_done_ps(const struct sim_qp *qp, const struct gn_wr *wr,
			    const struct sim_send *send, uint64_t at_ps)
{
	const struct sim_qp *to = qp->conn.peer;
	struct sim_device *device = sim_device_of(to);

	at_ps = sim_dma_stall(device, at_ps, send->stall_ps);
	if (wr->op == GN_OP_CAS || wr->op == GN_OP_FAA)
		at_ps = sim_atomic_unit(device, at_ps, remote_region_bytes(to, wr));
	if (wr->op == GN_OP_READ)
		at_ps = sim_dma_read(device, at_ps, send->bytes, 0) + device->profile->sample_ps;
	else
		at_ps = sim_dma_write(device, at_ps, send->bytes) + device->profile->place_ps;
	return takes_receive(wr) ? sim_complete(device, at_ps) : at_ps;
}

/* The request arrives; its effect follows when the device has processed it. */
static void stage_rx_done(struct sim_qp *qp, struct sim_send *send, uint64_t at_ps, bool moves)
{
	if (moves || qp->passed[SIM_MOVE] != qp->passed[SIM_RX]) {
		stage_pass(qp, SIM_RX, send, at_ps);
		return;
	}
	qp->passed[SIM_RX]++;
	stage_pass(qp, SIM_MOVE, send, at_ps);
	sim_stage_kick(qp, SIM_RX);
}

static void stage_rx(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_RX]), *to;
	const uint64_t now = sim_engine_of(qp)->now_ps;
	struct sim_message message = {.packet = SIM_REQUEST};
	struct sim_device *device;
	struct sim_span span;
	const struct gn_wr *wr;
	struct sim_send *send = stage_head(qp, SIM_RX, &wr);
	uint64_t in, at_ps;

	if (!send || !peer_reachable(qp, send, &to))
		return;
	if (send->status != GN_WC_OK) {
		stage_rx_done(qp, send, now, false);
		return;
	}
	device = sim_device_of(to);
	in = sim_link_receive(device, is_read(wr) ? 0 : send->bytes);
	message.read = is_read(wr);
	message.qpn = to->qp.qpn;
	message.bytes = send->bytes;
	if (wr->op != GN_OP_SEND && wr->op != GN_OP_SEND_IMM) {
		span = remote_span(wr, send);
		message.spans = &span;
		message.n_spans = 1;
	}
	message.receive = takes_receive(wr);
	at_ps = sim_later(sim_rx(device, &message, &send->stall_ps), in);
	/* On a card that stalls, others may use the bus until this request leaves the engine. */
	if (device->profile->stalls)
		stage_rx_done(qp, send, at_ps, true);
	else
		stage_rx_done(qp, send, dma_done_ps(qp, wr, send, at_ps), false);
}

static void stage_move(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_MOVE]);
	const struct gn_wr *wr;
	struct sim_send *send = stage_head(qp, SIM_MOVE, &wr);
	uint64_t at_ps = sim_engine_of(qp)->now_ps;

	if (!send)
		return;
	if (send->status == GN_WC_OK && qp->conn.peer)
		at_ps = dma_done_ps(qp, wr, send, at_ps);
	stage_pass(qp, SIM_MOVE, send, at_ps);
}

/* ---- place ---- */

static struct sim_message response_message(const struct sim_qp *qp, const struct sim_qp *to,
					   const struct gn_wr *wr, const struct sim_send *send)
{
	return (struct sim_message){
		.packet = is_read(wr) ? SIM_READ_RESPONSE : SIM_ACK,
		.qpn = to->qp.qpn,
		.bytes = is_read(wr) ? send->bytes : 0,
		.visit = is_read(wr) && sim_engine_of(qp)->now_ps >= qp->answer_visit_ps,
	};
}

/* Sends the response, unless it is lost: then the request is repeated. */
static void send_response(struct sim_qp *qp, const struct gn_wr *wr, struct sim_send *send,
			  struct sim_qp *to)
{
	struct gn_sim *sim = sim_fabric_of(&qp->qp.obj)->sim;
	struct sim_device *device = sim_device_of(to);
	const struct sim_message message = response_message(qp, to, wr, send);
	uint64_t leaves;

	if (!send->acted)
		sim_held_acted(qp, qp->passed[SIM_PLACE]);
	send->acted = true;
	to->heard++;
	qp->heard += is_read(wr);
	if (sim_fault_cut(sim, sim_node_of(to)->index, sim_node_of(qp)->index) ||
	    sim_fault(sim, SIM_ACK_LOSS, sim_node_of(qp)->index)) {
		if (send_retry(qp, SIM_PLACE, send, SIM_RETRIES, SIM_RETRY_PS))
			return;
		send->status = GN_WC_RETRY;
		sim_orphans_leave(qp);
		stage_pass(qp, SIM_PLACE, send, sim_engine_of(qp)->now_ps);
		sim_qp_fail_answered(qp);
		return;
	}
	leaves = sim_tx(device, &message);
	if (message.visit)
		qp->answer_visit_ps = leaves;
	stage_pass(qp, SIM_PLACE, send, sim_link_send(device, leaves, message.bytes));
}

static void stage_place(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_PLACE]), *to;
	const struct gn_wr *wr;
	struct sim_send *send = stage_head(qp, SIM_PLACE, &wr);
	enum sim_placed placed = SIM_REFUSED;

	if (!send)
		return;
	to = qp->conn.peer;
	if (send->status == GN_WC_OK && (!to || to->qp.state != GN_QP_READY)) {
		/* The target was destroyed meanwhile: as if the request had not arrived. */
		if (send_retry(qp, SIM_PLACE, send, SIM_RETRIES, SIM_RETRY_PS))
			return;
		send->status = GN_WC_RETRY;
	}
	if (send->status == GN_WC_OK && !sim_local_ok(qp, wr))
		send->status = GN_WC_LOCAL_ACCESS;
	if (!send->acted)
		sim_held_check(qp, qp->passed[SIM_PLACE]);
	qp->placing = true;
	if (send->status == GN_WC_OK)
		placed = send->acted && wr->op != GN_OP_READ ?
				 SIM_PLACED :
				 sim_place(qp, sim_node_of(qp)->index, wr, send, to);
	qp->placing = false;
	if (qp->qp.state == GN_QP_ERROR) /* the request itself overran a cq */
		return;
	switch (placed) {
	case SIM_UNFINISHED:
		sim_stage_kick(qp, SIM_PLACE);
		return;
	case SIM_NOT_READY:
		if (send_retry(qp, SIM_PLACE, send, qp->conn.rnr_retry, qp->conn.rnr_timer_ps))
			return;
		send->status = GN_WC_RNR;
		break;
	case SIM_PLACED:
		send_response(qp, wr, send, to);
		return;
	case SIM_REFUSED:
		break;
	}
	sim_sample_drop(send);
	stage_pass(qp, SIM_PLACE, send, sim_engine_of(qp)->now_ps);
	sim_qp_fail_answered(qp);
}

/* ---- back, done ---- */

static void read_answered(struct sim_qp *qp, const struct gn_wr *wr, const struct sim_send *send)
{
	if (send->sent && is_read(wr)) {
		qp->reads--;
		sim_stage_kick(qp, SIM_TX);
	}
}

static void stage_back(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_BACK]);
	struct sim_device *device = sim_device_of(qp);
	const struct gn_wr *wr;
	struct sim_send *send = stage_head(qp, SIM_BACK, &wr);
	struct sim_span spans[SIM_SGE_MAX];
	uint64_t at_ps = sim_engine_of(qp)->now_ps, stall_ps;

	if (!send)
		return;
	if (send->status == GN_WC_OK) {
		const struct sim_message message = requester_message(
			qp, wr, send, is_read(wr) ? SIM_READ_RESPONSE : SIM_ACK, spans);
		const uint64_t in = sim_link_receive(device, is_read(wr) ? send->bytes : 0);

		at_ps = sim_later(sim_rx(device, &message, &stall_ps), in);
		at_ps = sim_dma_stall(device, at_ps, stall_ps);
		if (is_read(wr))
			at_ps = sim_dma_write(device, at_ps, send->bytes);
		at_ps = sim_complete(device, at_ps);
		if (sim_fault(sim_fabric_of(&qp->qp.obj)->sim, SIM_LATE_COMPLETION,
			      sim_node_of(qp)->index))
			at_ps += sim_fault_delay_ps(sim_fabric_of(&qp->qp.obj)->sim);
	}
	read_answered(qp, wr, send);
	stage_pass(qp, SIM_BACK, send, at_ps);
}

/* Completes sends up to the next that is signaled or failed. True: one was. */
static bool complete_send(struct sim_qp *qp)
{
	const struct gn_wr *wr;
	struct sim_send *send;

	while ((send = stage_head(qp, SIM_DONE, &wr))) {
		const uint64_t position = qp->passed[SIM_DONE]++;

		sim_held_end(qp, position);
		qp->sq.tail = qp->passed[SIM_DONE];
		sim_request_drop(qp, send);
		if (send->status == GN_WC_OK && !(wr->flags & GN_SIGNALED))
			continue;
		sim_cq_push(qp->qp.send_cq,
			    &(struct gn_wc){
				    .id = position,
				    .qp = &qp->qp,
				    .status = send->status,
				    .op = wr->op,
				    .len_bytes = send->bytes,
			    },
			    false);
		return true;
	}
	return false;
}

static void stage_done(struct sim_event *event)
{
	struct sim_qp *qp = container_of(event, struct sim_qp, stage[SIM_DONE]);

	if (complete_send(qp)) {
		sim_stage_kick(qp, SIM_DONE);
	} else if (qp->qp.state == GN_QP_ERROR && qp->passed[SIM_DONE] == qp->sq.head &&
		   !soft_rq_empty(&qp->rq)) {
		struct gn_wc wc = {.status = GN_WC_FLUSHED, .op = GN_OP_RECV};

		sim_recv_complete(qp, &wc, false);
	}
	if (qp->qp.state == GN_QP_ERROR && qp->passed[SIM_DONE] == qp->sq.head &&
	    !soft_rq_empty(&qp->rq))
		sim_event_now(sim_engine_of(qp), event);
}

void sim_stages_flush(struct sim_qp *qp)
{
	const uint64_t now = sim_engine_of(qp)->now_ps;

	for (uint64_t at = qp->passed[SIM_PLACE]; at < qp->sq.head; at++) {
		struct sim_send *send = sim_send_at(qp, at);

		sim_sample_drop(send);
		send->status = GN_WC_FLUSHED;
		send->at_ps = now;
	}
	for (enum sim_stage stage = SIM_RING; stage <= SIM_PLACE; stage++)
		qp->passed[stage] = qp->sq.head;
	sim_stage_kick(qp, SIM_BACK);
}

void sim_stages_unanswered(struct sim_qp *qp)
{
	const uint64_t first = qp->passed[SIM_BACK], end = qp->passed[SIM_PLACE];
	uint64_t at = first;

	if (at < end)
		at += sim_random_below(&sim_engine_of(qp)->random, (uint32_t)(end - at) + 1);
	for (; at < end; at++)
		sim_send_at(qp, at)->status = GN_WC_FLUSHED;
}

void (*const sim_stage_fn[SIM_STAGES])(struct sim_event *event) = {
	[SIM_RING] = stage_ring, [SIM_TX] = stage_tx,	    [SIM_RX] = stage_rx,
	[SIM_MOVE] = stage_move, [SIM_PLACE] = stage_place, [SIM_BACK] = stage_back,
	[SIM_DONE] = stage_done,
};
