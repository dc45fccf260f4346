/* SPDX-License-Identifier: MIT */
/* One end of a connection: its memory, its qp, what it says and what it is told. */
#include "msg/end.h"

#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"

#define INLINE_MAX 92u /* as the papers have it (S000 3.2): more costs the processor more */
#define NOTICE_ID  (1ull << 32)		     /* of requests and receives that carry no message */
#define ASLEEP	   (1ull << 32)		     /* in a word, with the number that is waited for */
enum { PEERS_WORD, OWN_WORD, NOTICE_WORDS }; /* what the peer has said, and what it is told */
#define SIGNAL_EVERY 16u /* at most; a lost completion of so many is noticed by the next */

/* ---- making ---- */

static const struct {
	enum msg_verb request, answer;
} verbs[GN_MSG_PROTOCOLS] = {
	[GN_MSG_SEND_SEND] = {MSG_SEND, MSG_SEND},
	[GN_MSG_SEND_WRITE] = {MSG_SEND, MSG_WRITE},
	[GN_MSG_WRITE_SEND] = {MSG_WRITE, MSG_SEND},
	[GN_MSG_WRITE_WRITE] = {MSG_WRITE, MSG_WRITE},
	[GN_MSG_READ] = {MSG_NONE, MSG_READ},
	[GN_MSG_WRITE_IMM] = {MSG_WRITE_IMM, MSG_WRITE_IMM},
	[GN_MSG_UD] = {MSG_DATAGRAM, MSG_DATAGRAM},
};

static int make_lane(struct msg_end *end, struct msg_lane *lane, unsigned access)
{
	size_t bytes;
	int rc;

	if (lane->verb == MSG_NONE)
		return 0;
	lane->lengths = gn_alloc(end->pending * sizeof(*lane->lengths), 0);
	if (!lane->lengths)
		return -ENOMEM;
	if (lane->verb == MSG_DATAGRAM)
		lane->frame = MSG_HEADED;
	else if (lane->verb != MSG_WRITE)
		lane->frame = MSG_PLAIN;
	lane->stride = msg_stride(lane->frame, lane->max);
	bytes = (size_t)lane->stride * lane->slots;
	rc = msg_desk_take_bytes(end->desk, bytes);
	if (rc)
		return rc;
	lane->bytes = bytes;
	rc = gn_mem_alloc(end->desk->loop.fabric, bytes, access & GN_REMOTE_WRITE, &lane->mem);
	if (!rc)
		rc = gn_mr_register(end->pd, lane->mem, 0, bytes, access, &lane->mr);
	if (rc)
		return rc;
	lane->places = gn_mem_addr(lane->mem);
	lane->lkey = gn_mr_lkey(lane->mr);
	return 0;
}

uint32_t msg_lane_key(const struct msg_lane *lane)
{
	struct gn_remote remote = {0};

	if (lane->mr)
		gn_mr_remote(lane->mr, &remote);
	return remote.key;
}

static unsigned told_access(const struct msg_lane *lane)
{
	const bool written = lane->verb == MSG_WRITE || lane->verb == MSG_WRITE_IMM;

	return GN_LOCAL_WRITE | (written ? GN_REMOTE_WRITE : 0);
}

static bool receives(const struct msg_end *end)
{
	return end->told.verb == MSG_SEND || end->told.verb == MSG_WRITE_IMM;
}

/*
 * A peer has nothing to do until a chain is posted: with all that may be under way on one, the two
 * sides would take turns. Nobody does anything for a READ.
 */
static uint32_t longest_chain(const struct msg_end *end)
{
	const uint32_t part = end->pending < 4 ? 1 : end->pending / 4;

	if (end->desk->flags & GN_MSG_PAPER)
		return 1;
	return end->told.verb == MSG_READ || part > MSG_CHAIN ? MSG_CHAIN : part;
}

/*
 * The send queue has room for all that may be under way and for what is done without having said
 * so. What says nothing itself is known to be done when something later is.
 */
static void size_queue(struct msg_end *end, bool requester)
{
	const struct msg_desk *desk = end->desk;

	end->signal_every = end->pending / 2 < SIGNAL_EVERY ? end->pending / 2 : SIGNAL_EVERY;
	if (!end->signal_every || end->told.verb == MSG_READ || (desk->flags & GN_MSG_PAPER))
		end->signal_every = 1;
	end->chain_max = longest_chain(end);
	end->depth = end->pending + 2 * end->signal_every;
	if (end->depth > desk->loop.attr.max_send_wr - LINK_PROBE_SENDS - MSG_NOTICES)
		end->depth = desk->loop.attr.max_send_wr - LINK_PROBE_SENDS - MSG_NOTICES;
	end->said.slots = end->depth;
	end->told.slots = end->pending;
	if (end->said.verb == MSG_DATAGRAM) {
		end->said.slots = end->pending;
		if (requester) /* it waits for each before it asks in the same place again */
			end->signal_every = 1;
	}
	/* A qp that only tells whether the peer is there. */
	if (end->said.verb == MSG_DATAGRAM || end->told.verb == MSG_NONE)
		end->depth = 1;
}

uint32_t msg_end_receives(const struct msg_end *end)
{
	return receives(end) ? end->pending : MSG_NOTICES;
}

static int make_qp(struct msg_end *end)
{
	const struct gn_attr *attr = &end->desk->loop.attr;
	struct gn_qp_opts opts = {
		.size = sizeof(opts),
		.type = GN_QP_RC,
		.max_send_wr = end->depth + MSG_NOTICES,
		.max_recv_wr = msg_end_receives(end),
		.max_inline = attr->max_inline < INLINE_MAX ? attr->max_inline : INLINE_MAX,
	};

	if (opts.max_recv_wr > attr->max_recv_wr)
		return gn_fail(-EINVAL, "msg: pending %u: %s takes %u receives", end->pending,
			       attr->provider, attr->max_recv_wr);
	return link_conn_make(&end->link, end->pd, &opts);
}

static void shape(struct msg_end *end, const struct msg_end_opts *opts)
{
	const enum msg_verb request = verbs[opts->protocol].request;
	const enum msg_verb answer = verbs[opts->protocol].answer;

	end->said = (struct msg_lane){.verb = opts->requester ? request : answer,
				      .frame = opts->said_frame,
				      .max = opts->said_max};
	end->told = (struct msg_lane){.verb = opts->requester ? answer : request,
				      .frame = opts->told_frame,
				      .max = opts->told_max};
	/* One of the two sides has no event to wake it. */
	if (request == MSG_WRITE || answer == MSG_WRITE)
		end->notice = (struct msg_lane){
			.verb = MSG_WRITE_IMM, .max = sizeof(uint64_t), .slots = NOTICE_WORDS};
	/* Whose data is READ has nothing to do, and no places. */
	if (!opts->requester && answer == MSG_READ)
		end->said.verb = MSG_NONE;
	/* A responder wants requests all the time, a requester an answer when it has asked. */
	if (!opts->requester && receives(end))
		end->told.wanted = opts->pending;
	/* Places are zeroed to begin with: none of them has a message with such a number. */
	end->said.number = end->told.number = 1;
}

int msg_end_make(struct msg_desk *desk, const struct msg_end_opts *opts, struct msg_end **out)
{
	const int number = msg_desk_number(desk);
	struct msg_end *end;
	int rc;

	if (number < 0)
		return number;
	end = gn_alloc(sizeof(*end), MSG_LINE);
	if (!end)
		return -ENOMEM;
	link_conn_init(&desk->loop, &end->link);
	end->desk = desk;
	end->number = (unsigned)number;
	end->pending = opts->pending;
	end->nonce = opts->nonce;
	shape(end, opts);
	size_queue(end, opts->requester);
	/* The datagram qp sends from memory of its own pd; no peer has rights to any of it. */
	rc = opts->protocol == GN_MSG_UD ? msg_ud_pd(desk, &end->pd) :
					   gn_pd_create(desk->loop.ctx, &end->pd);
	if (!rc && opts->protocol == GN_MSG_UD) {
		end->sends = msg_ud_sends(opts->pending);
		rc = end->sends ? 0 : -ENOMEM;
	}
	if (!rc)
		rc = make_lane(end, &end->said, GN_LOCAL_WRITE);
	if (!rc)
		rc = make_lane(end, &end->told, told_access(&end->told));
	if (!rc)
		rc = make_lane(end, &end->notice, GN_LOCAL_WRITE | GN_REMOTE_WRITE);
	if (!rc)
		rc = make_qp(end);
	for (unsigned i = 0; i < MSG_NOTICES && !rc && end->told.verb == MSG_WRITE; i++)
		rc = gn_post_recv(end->link.qp, &(struct gn_recv_wr){.id = NOTICE_ID}, NULL);
	if (rc) {
		msg_end_free(end);
		return rc;
	}
	desk->ends[number] = end;
	desk->n_ends++;
	*out = end;
	return 0;
}

static bool lane_freed(struct msg_desk *desk, struct msg_lane *lane)
{
	if (gn_mr_deregister_try(lane->mr) == -EAGAIN)
		return false;
	lane->mr = NULL;
	gn_mem_free(lane->mem);
	lane->mem = NULL;
	msg_desk_give_bytes(desk, lane->bytes);
	lane->bytes = 0;
	gn_free(lane->lengths);
	lane->lengths = NULL;
	return true;
}

bool msg_end_destroy(struct msg_end *end)
{
	if (gn_mr_deregister_try(end->data) == -EAGAIN)
		return false;
	end->data = NULL;
	if (!lane_freed(end->desk, &end->said) || !lane_freed(end->desk, &end->told) ||
	    !lane_freed(end->desk, &end->notice))
		return false;
	if (end->said.verb != MSG_DATAGRAM)
		gn_pd_destroy(end->pd);
	gn_free(end->sends);
	gn_free(end);
	return true;
}

void msg_end_free(struct msg_end *end)
{
	struct msg_desk *desk = end->desk;

	if (desk->ends[end->number] == end) {
		desk->ends[end->number] = NULL;
		desk->n_ends--;
	}
	msg_ud_forget(end);
	link_conn_close(&end->link);
	link_conns_sweep(&desk->loop);
}

void msg_end_fail(struct msg_end *end, enum gn_msg_status fate)
{
	if (end->fate != GN_MSG_OK)
		return;
	end->fate = fate;
	end->n_chain = 0;
	end->told.wanted = 0;
	gn_qp_error(end->link.qp);
}

/* ---- what is said ---- */

static force_inline uint32_t after(const struct msg_end *end, uint32_t at)
{
	return at + 1 == end->pending ? 0 : at + 1;
}

static struct gn_wr *chain_add(struct msg_end *end, void *addr, uint32_t len, uint32_t lkey,
			       uint32_t *flags)
{
	const uint32_t i = end->n_chain++;

	end->sge[i] = (struct gn_sge){addr, len, lkey};
	*flags = len <= INLINE_MAX && len <= end->desk->loop.attr.max_inline ? GN_INLINE : 0;
	if (++end->silent >= end->signal_every) {
		end->silent = 0;
		*flags |= GN_SIGNALED;
	}
	return &end->chain[i];
}

void msg_end_say(struct msg_end *end, uint32_t length)
{
	struct msg_lane *lane = &end->said;
	const uint32_t len = length & ~MSG_REFUSED, i = end->n_chain;
	const uint32_t bytes = msg_frame_bytes(lane->frame, len);
	uint8_t *place = msg_place(lane, lane->source);
	struct gn_wr *wr;
	uint32_t flags;

	if (end->fate != GN_MSG_OK)
		return;
	msg_frame_put(lane->frame, place, lane->number, end->nonce, length);
	wr = chain_add(end, place, bytes, lane->lkey, &flags);
	if (lane->verb == MSG_SEND) {
		gn_wr_send(wr, end->queued, &end->sge[i], flags);
		if (unlikely(length & MSG_REFUSED)) {
			wr->op = GN_OP_SEND_IMM;
			wr->imm = 1;
		}
	} else {
		gn_wr_rdma(wr, lane->verb == MSG_WRITE ? GN_OP_WRITE : GN_OP_WRITE_IMM, end->queued,
			   &end->sge[i], &end->to, (uint64_t)lane->at * lane->stride, flags);
		wr->imm = length;
	}
	if (!bytes)
		wr->n_sge = 0;
	end->queued++;
	lane->number++;
	lane->at = after(end, lane->at);
	lane->source = lane->source + 1 == lane->slots ? 0 : lane->source + 1;
	if (end->n_chain >= end->chain_max)
		msg_end_flush(end);
}

void msg_end_read(struct msg_end *end, uint64_t offset, uint32_t len)
{
	struct msg_lane *lane = &end->told;
	const uint32_t i = end->n_chain, at = lane->wanted_at;
	struct gn_wr *wr;
	uint32_t flags;

	lane->lengths[at] = len;
	wr = chain_add(end, msg_place(lane, at), len, lane->lkey, &flags);
	gn_wr_rdma(wr, GN_OP_READ, end->queued++, &end->sge[i], &end->to, offset, GN_SIGNALED);
	lane->wanted_at = after(end, at);
	if (end->n_chain >= end->chain_max)
		msg_end_flush(end);
}

void msg_end_want(struct msg_end *end)
{
	end->told.wanted++;
}

static void flush_receives(struct msg_end *end)
{
	struct msg_lane *lane = &end->told;
	const uint32_t most = end->desk->flags & GN_MSG_PAPER ? 1 : MSG_CHAIN;
	struct gn_recv_wr wrs[MSG_CHAIN];
	struct gn_sge sge[MSG_CHAIN];

	while (lane->wanted) {
		const uint32_t n = lane->wanted < most ? lane->wanted : most;

		for (uint32_t i = 0; i < n; i++) {
			sge[i] = (struct gn_sge){msg_place(lane, lane->wanted_at), lane->max,
						 lane->lkey};
			/* A WRITE_IMM has put its bytes elsewhere. */
			wrs[i] = (struct gn_recv_wr){
				.sge = &sge[i],
				.n_sge = lane->verb == MSG_SEND && lane->max ? 1 : 0,
				.next = i + 1 < n ? &wrs[i + 1] : NULL,
			};
			lane->wanted_at = after(end, lane->wanted_at);
		}
		lane->wanted -= n;
		if (gn_post_recv(end->link.qp, wrs, NULL)) {
			msg_end_fail(end, GN_MSG_GONE);
			return;
		}
		end->desk->stats.recvs += n;
	}
}

void msg_end_flush(struct msg_end *end)
{
	const struct gn_wr *bad = NULL;
	uint32_t n = end->n_chain, posted = n;
	int rc;

	/* The peer sends when it is told something: the receive for that must be there. */
	if (end->told.wanted)
		flush_receives(end);
	if (!n || end->fate != GN_MSG_OK)
		return;
	for (uint32_t i = 0; i + 1 < n; i++)
		end->chain[i].next = &end->chain[i + 1];
	end->n_chain = 0;
	rc = gn_post_send(end->link.qp, end->chain, &bad);
	if (unlikely(rc)) {
		/* There was room by our own count, so this is not for want of it. */
		posted = bad ? (uint32_t)(bad - end->chain) : 0;
		msg_end_fail(end, GN_MSG_GONE);
	}
	end->desk->stats.wrs += posted;
	end->desk->stats.doorbells += posted != 0;
	if (end->said.verb == MSG_WRITE)
		msg_end_wake_peer(end);
}

/* ---- notices ---- */

static uint64_t *notice_word(const struct msg_end *end, uint32_t which)
{
	return (uint64_t *)(void *)msg_place(&end->notice, which);
}

/* False: it is not posted. */
static bool post_notice(struct msg_end *end, struct gn_wr *wr)
{
	int rc;

	if (end->n_notices == MSG_NOTICES || end->fate != GN_MSG_OK || end->link.state != LINK_UP)
		return false;
	rc = gn_post_one(end->link.qp, wr);
	if (rc < 0)
		return false;
	end->n_notices += !rc;
	return true;
}

void msg_end_sleep(struct msg_end *end)
{
	uint64_t *word = notice_word(end, OWN_WORD);
	const struct gn_sge sge = {word, sizeof(*word), end->notice.lkey};
	struct gn_wr wr;

	if (end->told.verb != MSG_WRITE || end->asleep_since == end->told.number || end->n_notices)
		return;
	*word = ASLEEP | end->told.number;
	gn_wr_rdma(&wr, GN_OP_WRITE, NOTICE_ID, &sge, &(struct gn_remote){.key = end->notice_key},
		   PEERS_WORD * (uint64_t)end->notice.stride, GN_SIGNALED);
	if (post_notice(end, &wr))
		end->asleep_since = end->told.number;
}

void msg_end_wake_peer(struct msg_end *end)
{
	const uint64_t word = __atomic_load_n(notice_word(end, PEERS_WORD), __ATOMIC_RELAXED);
	struct gn_wr wr;

	if (likely(word == end->woken) || (int32_t)(end->said.number - (uint32_t)word) <= 0)
		return;
	gn_wr_init(&wr, GN_OP_WRITE_IMM, NOTICE_ID, NULL, 0, GN_SIGNALED | GN_SOLICITED);
	if (post_notice(end, &wr))
		end->woken = word;
}

/* ---- what is told ---- */

static void arrived(struct msg_end *end, uint32_t length)
{
	struct msg_lane *lane = &end->told;

	if ((length & ~MSG_REFUSED) > lane->max || lane->arrived == end->pending) {
		msg_end_fail(end, GN_MSG_BROKEN);
		return;
	}
	lane->lengths[lane->arrived_at] = length;
	lane->arrived_at = after(end, lane->arrived_at);
	lane->arrived++;
}

void msg_end_completed(struct msg_end *end, const struct gn_wc *wc)
{
	if (unlikely(wc->id == NOTICE_ID)) { /* what it is for is that the thread is awake */
		if (wc->op != GN_OP_RECV_WRITE_IMM && wc->op != GN_OP_RECV)
			end->n_notices--;
		else if (gn_post_recv(end->link.qp, &(struct gn_recv_wr){.id = NOTICE_ID}, NULL))
			msg_end_fail(end, GN_MSG_GONE);
		return;
	}
	switch (wc->op) {
	case GN_OP_RECV:
		arrived(end, wc->len_bytes | (wc->flags & GN_WC_IMM ? MSG_REFUSED : 0));
		break;
	case GN_OP_RECV_WRITE_IMM:
		arrived(end, wc->imm);
		break;
	case GN_OP_READ:
		arrived(end, end->told.lengths[end->told.arrived_at]);
		end->done = (uint32_t)wc->id + 1;
		break;
	default:
		end->done = (uint32_t)wc->id + 1;
		break;
	}
}

int64_t msg_end_next(struct msg_end *end, uint8_t **bytes)
{
	struct msg_lane *lane = &end->told;
	uint8_t *place = msg_place(lane, lane->at);
	int64_t length;

	if (unlikely(end->fate == GN_MSG_BROKEN || end->over))
		return -EAGAIN;
	*bytes = place + msg_frame_head(lane->frame);
	if (lane->verb != MSG_WRITE)
		return lane->arrived ? (int64_t)lane->lengths[lane->at] : -EAGAIN;
	length = msg_frame_look(lane->frame, place, lane->number, end->nonce, lane->max);
	if (unlikely(length == -EPROTO)) {
		msg_end_fail(end, GN_MSG_BROKEN);
		return -EAGAIN;
	}
	end->desk->stats.looks += length < 0;
	return length;
}

void msg_end_took(struct msg_end *end, uint32_t length)
{
	struct msg_lane *lane = &end->told;

	end->link.heard = true;
	if (unlikely(end->link.state == LINK_OPENING)) /* the news of that may be lost */
		link_conn_established(&end->link);
	if (lane->verb == MSG_WRITE) {
		lane->lengths[lane->at] = length;
		gn_charge(GN_WORK_FOUND, 1);
	} else {
		lane->arrived--;
	}
	lane->number++;
	lane->at = after(end, lane->at);
}

void msg_end_clear(struct msg_end *end, uint32_t at)
{
	const struct msg_lane *lane = &end->told;
	uint32_t bytes;

	if (lane->frame != MSG_MARKERS || mutant("msg-zero", lane->number))
		return;
	bytes = msg_frame_bytes(MSG_MARKERS, lane->lengths[at] & ~MSG_REFUSED);
	memset(msg_place(lane, at), 0, bytes);
	gn_charge(GN_WORK_COPY, bytes);
}

const uint64_t *msg_end_word(const struct msg_end *end)
{
	const struct msg_lane *lane = &end->told;

	return lane->verb == MSG_WRITE ? (const uint64_t *)(const void *)msg_place(lane, lane->at) :
					 NULL;
}
