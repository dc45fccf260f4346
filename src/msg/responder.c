/* SPDX-License-Identifier: MIT */
/* The side that answers: takes connections, executes what comes, and forgets who is gone. */
#include <errno.h>
#include <string.h>

#include "base/bits.h"
#include "base/deadline.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/sized.h"
#include "msg/end.h"

#define CONNS_DEFAULT	64u
#define PENDING_DEFAULT 256u
#define REQUEST_DEFAULT 4096u
#define VALUE_DEFAULT	65536u
#define MEMORY_DEFAULT	(256ull << 20)
#define UD_RECEIVES_MAX 8192u
#define UD_BESIDE	64u /* sends that are done without having said so, and more */

struct gn_msg_responder {
	struct msg_desk desk;
	struct gn_msg_responder_opts opts;
	struct gn_listener *listener;
	int answered; /* in this turn */
};

/* What the responder keeps of a connection. */
struct guest {
	struct msg_end *end;
	/* Datagrams: the last message executed in each place. */
	struct done {
		uint32_t number, length;
		bool is;
	} * done;
};

static struct gn_msg_responder *responder_of(struct msg_desk *desk)
{
	return container_of(desk, struct gn_msg_responder, desk);
}

/* ---- executing ---- */

/* The answer's bytes go where they are sent from. */
static uint32_t execute(struct gn_msg_responder *r, const struct msg_end *end,
			const uint8_t *request, uint32_t len, uint8_t *value)
{
	const int rc = r->opts.answer(r->opts.arg, request, len, value, end->said.max);

	r->desk.stats.requests++;
	r->answered++;
	if (rc < 0)
		r->desk.stats.failed++;
	return rc < 0 ? MSG_REFUSED : (uint32_t)rc <= end->said.max ? (uint32_t)rc : end->said.max;
}

static void serve(struct gn_msg_responder *r, struct msg_end *end)
{
	uint8_t *request;

	while (end->fate == GN_MSG_OK && msg_end_has_room(end)) {
		const int64_t length = msg_end_next(end, &request);
		const uint32_t at = end->told.at;
		uint32_t answer;

		if (length < 0)
			break;
		answer = execute(r, end, request, (uint32_t)length & ~MSG_REFUSED,
				 msg_end_bytes(end));
		msg_end_took(end, (uint32_t)length);
		msg_end_clear(end, at);
		if (end->told.verb != MSG_WRITE && !mutant("msg-receive", end->queued))
			msg_end_want(end);
		msg_end_say(end, answer);
		r->desk.stats.answers++;
	}
	msg_end_flush(end);
}

/* ---- datagrams ---- */

static void datagram(struct msg_end *end, const struct msg_datagram *head, uint32_t copy,
		     const uint8_t *data)
{
	struct gn_msg_responder *r = responder_of(end->desk);
	const struct guest *guest = end->owner;
	struct done *done = &guest->done[head->place];
	const uint32_t len = head->length & ~MSG_REFUSED;
	bool again = false;

	if (len > end->told.max || (done->is && (int32_t)(head->number - done->number) < 0)) {
		r->desk.stats.strays++;
		return;
	}
	if (done->is && head->number == done->number && !mutant("msg-again", head->number)) {
		r->desk.stats.repeats++;
		again = true;
	} else if (!msg_ud_writable(end, head->place)) {
		/*
		 * An earlier answer may still wait to be sent. As if the network had lost it, this
		 * request comes again, later. That answer, said once more, tells when it is done.
		 */
		if (msg_ud_will_tell(end, head->place))
			return;
		again = true;
	} else {
		*done = (struct done){.number = head->number, .is = true};
		done->length = execute(r, end, data, len,
				       msg_place(&end->said, head->place) +
					       msg_frame_head(end->said.frame));
		r->desk.stats.answers++;
	}
	/* Without room it is as if the network had lost it. */
	msg_ud_say(end, head->place, done->number, done->length, copy, again);
}

/* ---- connections ---- */

static void free_guest(struct guest *guest)
{
	if (guest->end)
		msg_end_free(guest->end);
	gn_free(guest->done);
	gn_free(guest);
}

/* Not between completions: they may name it. */
static void forget_gone(struct msg_desk *desk)
{
	for (unsigned i = 0; i < desk->max_ends; i++)
		if (desk->ends[i] && desk->ends[i]->fate != GN_MSG_OK)
			free_guest(desk->ends[i]->owner);
}

static enum msg_refusal judge(const struct gn_msg_responder *r, const struct msg_hello *hello)
{
	const bool reads = hello->protocol == GN_MSG_READ;

	if (reads && !r->opts.data)
		return MSG_NO_DATA;
	if (!reads && !r->opts.answer)
		return MSG_NO_ANSWERS;
	if (!reads && hello->pending > r->opts.max_pending)
		return MSG_TOO_MANY_PENDING;
	if (!reads && hello->request_bytes > r->opts.max_request)
		return MSG_TOO_LARGE_REQUEST;
	if (!reads && hello->value_bytes > r->opts.max_value)
		return MSG_TOO_LARGE_VALUE;
	if (msg_desk_number(&r->desk) < 0 ||
	    r->desk.n_ends + r->desk.loop.n_closing >= 2 * r->opts.max_conns)
		return MSG_FULL;
	return MSG_WELCOME;
}

static uint32_t datagram_receives(const struct gn_msg_responder_opts *o)
{
	const uint32_t all = o->max_conns * o->max_pending;

	return all < UD_RECEIVES_MAX ? all : UD_RECEIVES_MAX;
}

static int open_datagrams(struct gn_msg_responder *r, const struct msg_hello *hello)
{
	const uint32_t max = msg_ud_max(&r->desk.loop.attr), n = datagram_receives(&r->opts);

	if (hello->request_bytes > max || hello->value_bytes > max)
		return -EMSGSIZE;
	return msg_ud_open(&r->desk, n, n, r->opts.max_request < max ? r->opts.max_request : max);
}

static int make_guest(struct gn_msg_responder *r, const struct msg_hello *hello, struct guest **out)
{
	const struct msg_end_opts opts = {
		.protocol = hello->protocol,
		.pending = hello->pending,
		.said_max = hello->value_bytes,
		.told_max = hello->request_bytes,
		.said_frame = msg_frame_of(hello->flags & MSG_HELLO_MARKERS,
					   hello->flags & MSG_HELLO_SUMS),
		.told_frame = msg_frame_of(hello->flags & MSG_HELLO_MARKERS, r->desk.sums),
		.nonce = hello->nonce,
	};
	struct guest *guest = gn_alloc(sizeof(*guest), 0);
	int rc = guest ? 0 : -ENOMEM;

	if (rc)
		return rc;
	if (hello->protocol == GN_MSG_UD) {
		rc = open_datagrams(r, hello);
		guest->done = gn_alloc(hello->pending * sizeof(*guest->done), 0);
		if (!rc && !guest->done)
			rc = -ENOMEM;
	}
	if (!rc)
		rc = msg_end_make(&r->desk, &opts, &guest->end);
	if (!rc) {
		guest->end->owner = guest;
		guest->end->awaited = 1;
		guest->end->to.key = hello->answer_key;
		guest->end->notice_key = hello->notice_key;
	}
	if (!rc && hello->protocol == GN_MSG_READ)
		rc = gn_mr_register(guest->end->pd, r->opts.data, 0, gn_mem_size(r->opts.data),
				    GN_REMOTE_READ, &guest->end->data);
	if (rc) {
		free_guest(guest);
		return rc;
	}
	*out = guest;
	return 0;
}

static int welcome(struct gn_msg_responder *r, struct guest *guest, struct msg_welcome *out)
{
	struct gn_remote remote;

	out->sums = r->desk.sums;
	out->request_key = msg_lane_key(&guest->end->told);
	out->notice_key = msg_lane_key(&guest->end->notice);
	out->conn = guest->end->number;
	if (guest->end->data) {
		gn_mr_remote(guest->end->data, &remote);
		out->data_key = remote.key;
		out->data_bytes = remote.length;
	}
	return guest->done ? msg_ud_addr(&r->desk, &out->ud) : 0;
}

static enum msg_refusal refusal_of(int rc)
{
	switch (rc) {
	case -EMSGSIZE:
	case -EOPNOTSUPP:
		return MSG_NO_DATAGRAMS;
	case -ENOSPC:
		return MSG_FULL;
	case -EINVAL:
		return MSG_TOO_MANY_PENDING;
	default:
		return MSG_NO_MEMORY;
	}
}

static void request(struct msg_desk *desk, struct gn_event *event)
{
	struct gn_msg_responder *r = responder_of(desk);
	struct msg_welcome reply = {.magic = MSG_MAGIC, .version = MSG_VERSION};
	struct gn_conn_opts opts = {
		.size = sizeof(opts), .private_data = &reply, .private_len = sizeof(reply)};
	struct guest *guest = NULL;
	struct msg_hello hello = {0};
	enum msg_refusal refusal = msg_hello_check(event->private_data, event->private_len, &hello);
	int rc;

	forget_gone(desk); /* who comes back may be in its own way */
	if (refusal == MSG_WELCOME)
		refusal = judge(r, &hello);
	if (refusal == MSG_WELCOME) {
		rc = make_guest(r, &hello, &guest);
		if (!rc)
			rc = welcome(r, guest, &reply);
		if (rc)
			refusal = refusal_of(rc);
	}
	if (refusal != MSG_WELCOME) {
		if (guest)
			free_guest(guest);
		reply.refusal = (uint8_t)refusal;
		gn_reject(event->req, &reply, offsetof(struct msg_welcome, request_key));
		return;
	}
	/* The first requests may come with the acceptance: their receives are there. */
	msg_end_flush(guest->end);
	rc = gn_accept(event->req, guest->end->link.qp, &opts);
	if (!rc)
		link_conn_begin(&guest->end->link);
	/* Now the way to it is known, and nothing that it says has to be resolved for that. */
	if (!rc && guest->done)
		rc = msg_ud_peer(guest->end, &hello.ud, hello.nonce & MSG_NONCE_CONN);
	if (rc)
		free_guest(guest);
}

/* ---- turns ---- */

static int turn(struct gn_msg_responder *r, bool now)
{
	struct msg_desk *desk = &r->desk;
	const uint64_t looks = desk->stats.looks;

	r->answered = 0;
	msg_desk_turn(desk, now);
	for (unsigned i = 0; i < desk->max_ends; i++) {
		struct msg_end *end = desk->ends[i];

		if (!end)
			continue;
		if (unlikely(end->fate != GN_MSG_OK))
			free_guest(end->owner);
		else if (end->told.arrived || end->told.verb == MSG_WRITE)
			serve(r, end);
	}
	msg_ud_flush(desk);
	gn_charge(GN_WORK_SCAN, desk->stats.looks - looks);
	return r->answered;
}

int gn_msg_respond(struct gn_msg_responder *r, uint64_t deadline_ns)
{
	bool now = false;

	if (!r)
		return gn_fail(-EINVAL, "gn_msg_respond(): responder is NULL");
	if (msg_desk_check(&r->desk))
		return -EPERM;
	deadline_ns = deadline_given(deadline_ns);
	for (;;) {
		const int n = turn(r, now);
		int rc;

		if (n)
			return n;
		if (deadline_ns == GN_NO_WAIT) {
			if (now || !link_loop_overdue(&r->desk.loop))
				return 0;
			now = true;
			continue;
		}
		rc = link_loop_wait(&r->desk.loop, deadline_ns, "requests");
		if (rc == -EINTR)
			return rc;
		if (rc == -ETIMEDOUT && now)
			return 0;
		now = rc == -ETIMEDOUT;
	}
}

struct gn_source *gn_msg_responder_source(struct gn_msg_responder *r)
{
	if (r)
		return msg_desk_check(&r->desk) ? NULL : msg_desk_source(&r->desk);
	gn_fail(-EINVAL, "gn_msg_responder_source(): responder is NULL");
	return NULL;
}

unsigned gn_msg_responder_conns(const struct gn_msg_responder *r)
{
	return r ? r->desk.n_ends : 0;
}

int gn_msg_responder_stats(const struct gn_msg_responder *r, struct gn_msg_stats *out)
{
	if (!r)
		return gn_fail(-EINVAL, "gn_msg_responder_stats(): responder is NULL");
	return SIZED_WRITE(out, &r->desk.stats, "gn_msg_stats");
}

/* ---- making ---- */

static int check(const struct gn_msg_responder_opts *o)
{
	if (o->max_conns > GN_MSG_CONNS_MAX || o->max_pending > GN_MSG_PENDING_MAX ||
	    o->max_request > GN_MSG_BYTES_MAX || o->max_value > GN_MSG_BYTES_MAX ||
	    (o->flags & ~(unsigned)GN_MSG_PAPER))
		return gn_fail(-EINVAL,
			       "gn_msg_responder_create(): max_conns %u (at most %u), max_pending "
			       "%u (at most %u), max_request %u and max_value %u (at most %u), or "
			       "flags %x",
			       o->max_conns, GN_MSG_CONNS_MAX, o->max_pending, GN_MSG_PENDING_MAX,
			       o->max_request, o->max_value, GN_MSG_BYTES_MAX, o->flags);
	if (o->answer || o->data)
		return 0;
	return gn_fail(-EINVAL, "gn_msg_responder_create(): neither answer nor data is set");
}

/* Can it be read? Better known now than by the first who wants to. */
static int check_data(const struct gn_msg_responder *r)
{
	struct gn_mem *data = r->opts.data;
	struct gn_pd *pd = NULL;
	struct gn_mr *mr = NULL;
	int rc;

	if (!data)
		return 0;
	rc = gn_pd_create(r->desk.loop.ctx, &pd);
	if (!rc)
		rc = gn_mr_register(pd, data, 0, gn_mem_size(data), GN_REMOTE_READ, &mr);
	gn_mr_deregister(mr);
	gn_pd_destroy(pd);
	return rc;
}

int gn_msg_responder_create(struct gn_fabric *fabric, const char *addr,
			    const struct gn_msg_responder_opts *opts, struct gn_msg_responder **out)
{
	const unsigned said = gn_fail_count();
	struct gn_msg_responder *r;
	struct gn_msg_responder_opts *o;
	uint64_t completions;
	int rc;

	if (!fabric || !addr || !opts || !out)
		return gn_fail(
			-EINVAL,
			"gn_msg_responder_create(): fabric is NULL, or addr is NULL, or opts is "
			"NULL, or out is NULL");
	r = gn_alloc(sizeof(*r), MSG_LINE);
	if (!r)
		return -ENOMEM;
	r->desk.creator = gn_thread_id();
	o = &r->opts;
	rc = SIZED_READ(o, opts, "gn_msg_responder_opts");
	if (!rc)
		rc = check(o);
	if (rc) {
		gn_free(r);
		return rc;
	}
	o->max_conns = o->max_conns ? o->max_conns : CONNS_DEFAULT;
	o->max_pending = o->max_pending ? o->max_pending : PENDING_DEFAULT;
	o->max_request = o->max_request ? o->max_request : REQUEST_DEFAULT;
	o->max_value = o->max_value ? o->max_value : VALUE_DEFAULT;
	o->max_memory = o->max_memory ? o->max_memory : MEMORY_DEFAULT;
	/* Datagrams go through one qp beside those of the connections, when the first comes. */
	completions = (uint64_t)o->max_conns * (2 * o->max_pending + 64) +
		      2 * datagram_receives(o) + UD_BESIDE;
	rc = msg_desk_open(&r->desk, fabric, o->ctx, o->max_conns,
			   completions < UINT32_MAX ? (uint32_t)completions : UINT32_MAX);
	r->desk.flags = o->flags;
	r->desk.max_bytes = o->max_memory;
	r->desk.request = request;
	r->desk.datagram = datagram;
	if (!rc)
		rc = check_data(r);
	if (!rc)
		rc = gn_listener_create(r->desk.loop.ctx, addr, r->desk.loop.chan,
					o->listener_flags, &r->listener);
	if (rc) {
		gn_msg_responder_destroy(r);
		return gn_fail_since(said, rc, addr);
	}
	*out = r;
	return 0;
}

void gn_msg_responder_destroy(struct gn_msg_responder *r)
{
	if (!r || msg_desk_check(&r->desk))
		return;
	gn_listener_destroy(r->listener);
	for (unsigned i = 0; r->desk.ends && i < r->desk.max_ends; i++)
		if (r->desk.ends[i])
			free_guest(r->desk.ends[i]->owner);
	msg_desk_close(&r->desk);
	gn_free(r);
}
