/* SPDX-License-Identifier: MIT */
/*
 * The papers' own interface: messages instead of methods. A client keeps the results that came in
 * the order of its requests; a server keeps requests until somebody receives them.
 */
#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "rpc/client.h"
#include "rpc/server.h"

#define METHOD 0u

/* ---- memory ---- */

/* Of the page before the buffer: what it belongs to. */
struct head {
	uint64_t magic;
	struct gn_mem *mem;
};

#define HEAD_MAGIC 0x676e2d7270632d31u

void *gn_rpc_buf_alloc(struct gn_fabric *fabric, size_t size)
{
	struct gn_mem *mem;
	struct head *head;

	if (!fabric || !size || size > SIZE_MAX - GN_PAGE ||
	    gn_mem_alloc(fabric, size + GN_PAGE, GN_REMOTE_READ, &mem))
		return NULL;
	head = gn_mem_addr(mem);
	*head = (struct head){.magic = HEAD_MAGIC, .mem = mem};
	return (uint8_t *)head + GN_PAGE;
}

void gn_rpc_buf_free(void *buf)
{
	struct head *head;

	if (!buf)
		return;
	head = (struct head *)(void *)((uint8_t *)buf - GN_PAGE);
	if (head->magic == HEAD_MAGIC)
		gn_mem_free(head->mem);
}

/* ---- a client ---- */

struct rpc_letter {
	struct rpc_letter *next;
	struct gn_rpc_op op;
	bool ended;
	uint8_t *large; /* a large result that came while nobody waited for it; or NULL */
	uint8_t result[];
};

#define UNRECEIVED 4u /* times max_large: bytes of large results that nobody has received */

struct rpc_mail {
	struct rpc_letter *first, **end;
	uint64_t large_bytes; /* of all letters */
};

static void free_first(struct gn_rpc_client *c)
{
	struct rpc_letter *letter = c->mail->first;

	c->mail->first = letter->next;
	if (letter->large)
		c->mail->large_bytes -= letter->op.result_room;
	gn_free(letter->large);
	gn_free(letter);
}

void rpc_mail_free(struct gn_rpc_client *c)
{
	while (c->mail && c->mail->first)
		free_first(c);
	gn_free(c->mail);
	c->mail = NULL;
}

static void note_end(struct gn_rpc_op *op)
{
	((struct rpc_letter *)op->arg)->ended = true;
}

void rpc_mail_room(const struct gn_rpc_client *c, struct gn_rpc_op *op, uint32_t len)
{
	struct rpc_letter *letter = op->arg;

	if (op->done != note_end || op->result != letter->result || len > c->opts.max_large ||
	    c->mail->large_bytes + len > (uint64_t)UNRECEIVED * c->opts.max_large)
		return;
	letter->large = gn_alloc(len, 0);
	if (!letter->large)
		return;
	op->result = letter->large;
	op->result_room = len;
	c->mail->large_bytes += len;
}

int gn_rpc_client_send(struct gn_rpc_client *c, const void *buf, uint32_t len_bytes)
{
	struct rpc_letter *letter;
	int rc = rpc_client_check(c);

	if (rc)
		return rc;
	if (!c->mail)
		c->mail = gn_alloc(sizeof(*c->mail), 0);
	letter = gn_alloc(sizeof(*letter) + c->limits.max_result, 0);
	if (!c->mail || !letter) {
		gn_free(letter);
		return -ENOMEM;
	}
	letter->op = (struct gn_rpc_op){
		.method = METHOD,
		.request = buf,
		.request_len = len_bytes,
		.result = letter->result,
		.result_room = c->limits.max_result,
		.done = note_end,
		.arg = letter,
	};
	if (!c->mail->first)
		c->mail->end = &c->mail->first;
	rc = gn_rpc_submit(c, &letter->op);
	if (rc) {
		gn_free(letter);
		return rc;
	}
	*c->mail->end = letter;
	c->mail->end = &letter->next;
	return 0;
}

/* The first letter's result goes straight to its receiver while that waits. */
static void direct(struct gn_rpc_client *c, struct rpc_letter *letter, void *buf, uint32_t room)
{
	if (letter->ended || letter->large)
		return;
	letter->op.result = buf ? buf : letter->result;
	letter->op.result_room = buf ? room : c->limits.max_result;
}

/* Is part of its result in the receiver's memory? */
static bool half_way(const struct gn_rpc_client *c, const struct rpc_letter *letter)
{
	for (const struct rpc_large_read *read = c->large_reads; read; read = read->next)
		if (read->call == letter->op.slot && !letter->large)
			return true;
	return false;
}

static int await(struct gn_rpc_client *c, struct rpc_letter *letter, uint64_t deadline_ns)
{
	int rc = 0;

	while (!letter->ended && rc >= 0)
		rc = gn_rpc_wait(c, deadline_ns);
	return letter->ended ? 0 : rc;
}

static int open_letter(const struct rpc_letter *letter, void *buf, uint32_t room)
{
	const struct gn_rpc_op *op = &letter->op;

	if (op->status == GN_RPC_TOO_BIG || op->result_len > room)
		return gn_fail(-EMSGSIZE, "gn_rpc_client_recv(): the result has %u bytes, not %u",
			       op->result_len, room);
	if (op->status == GN_RPC_PEER_GONE)
		return gn_fail_text(-ENOTCONN, RPC_GONE);
	if (op->status != GN_RPC_OK)
		return gn_fail(-EIO, "gn_rpc_client_recv(): the call ended: %s",
			       gn_rpc_status_str(op->status));
	if (op->result != buf && op->result_len)
		memcpy(buf, op->result, op->result_len);
	return (int)op->result_len;
}

int gn_rpc_client_recv(struct gn_rpc_client *c, void *buf, uint32_t room, uint64_t deadline_ns)
{
	struct rpc_letter *letter;
	int rc = rpc_client_check(c);

	if (!rc && ((room && !buf) || c->busy))
		rc = c->busy ? gn_fail(-EDEADLK,
				       "gn_rpc_client_recv(): not from within a done function") :
			       gn_fail(-EINVAL, "gn_rpc_client_recv(): buf is NULL");
	if (!rc && (!c->mail || !c->mail->first))
		rc = gn_fail(-ESRCH, "gn_rpc_client_recv(): nothing was sent");
	if (rc)
		return rc;
	letter = c->mail->first;
	if (room)
		direct(c, letter, buf, room);
	rc = await(c, letter, deadline_ns);
	if (rc && !half_way(c, letter)) {
		direct(c, letter, NULL, 0);
		return rc;
	}
	if (rc) /* it could not go on elsewhere */
		gn_rpc_cancel(&letter->op);
	else
		rc = open_letter(letter, buf, room);
	free_first(c);
	return rc;
}

/* ---- a server ---- */

struct rpc_parcel {
	struct rpc_parcel *next;
	struct gn_rpc_request *request;
	bool received;
};

/* All that is not answered, in the order of coming. */
struct rpc_post {
	struct rpc_parcel *first, **end;
};

void rpc_post_handler(struct gn_rpc_request *request, void *arg)
{
	struct gn_rpc_server *server = arg;
	struct rpc_parcel *parcel = gn_alloc(sizeof(*parcel), 0);

	if (!server->post) {
		server->post = gn_alloc(sizeof(*server->post), 0);
		if (server->post)
			server->post->end = &server->post->first;
	}
	if (!parcel || !server->post) {
		gn_free(parcel);
		gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
		return;
	}
	parcel->request = request;
	*server->post->end = parcel;
	server->post->end = &parcel->next;
}

/* Take one off and answer it. */
static void answer(struct gn_rpc_server *server, struct rpc_parcel **at, unsigned status,
		   const void *buf, uint32_t len_bytes)
{
	struct rpc_parcel *parcel = *at;

	*at = parcel->next;
	if (server->post->end == &parcel->next)
		server->post->end = at;
	gn_rpc_answer(parcel->request, status, buf, len_bytes);
	gn_free(parcel);
}

void rpc_post_free(struct gn_rpc_server *server)
{
	if (!server->post)
		return;
	while (server->post->first)
		answer(server, &server->post->first, GN_RPC_BUSY, NULL, 0);
	gn_free(server->post);
	server->post = NULL;
}

static struct rpc_parcel **next_unreceived(struct gn_rpc_server *server)
{
	struct rpc_parcel **at = server->post ? &server->post->first : NULL;

	while (at && *at && (*at)->received)
		at = &(*at)->next;
	return at && *at ? at : NULL;
}

int gn_rpc_server_recv(struct gn_rpc_server *server, uint64_t *client, void *buf, uint32_t room,
		       uint64_t deadline_ns)
{
	struct rpc_parcel **at;
	const void *data;
	uint32_t len;
	int rc;

	if (!server || !client || (room && !buf))
		return gn_fail(
			-EINVAL,
			"gn_rpc_server_recv(): server or client is NULL, or buf is NULL but room "
			"is not 0");
	while (!(at = next_unreceived(server))) {
		rc = gn_rpc_server_poll(server);
		if (!rc)
			rc = gn_rpc_server_wait(server, deadline_ns);
		if (rc < 0)
			return rc;
	}
	data = gn_rpc_request_data((*at)->request, &len);
	*client = gn_rpc_request_client((*at)->request);
	if (len > room) {
		answer(server, at, GN_RPC_TOO_BIG, NULL, 0);
		return gn_fail(-EMSGSIZE, "gn_rpc_server_recv(): the request has %u bytes, not %u",
			       len, room);
	}
	if (len)
		memcpy(buf, data, len);
	(*at)->received = true;
	return (int)len;
}

int gn_rpc_server_send(struct gn_rpc_server *server, uint64_t client, const void *buf,
		       uint32_t len_bytes)
{
	if (!server || (len_bytes && !buf))
		return gn_fail(
			-EINVAL,
			"gn_rpc_server_send(): server is NULL, or len_bytes is set and buf is "
			"NULL");
	for (struct rpc_parcel **at = server->post ? &server->post->first : NULL; at && *at;
	     at = &(*at)->next)
		if ((*at)->received && gn_rpc_request_client((*at)->request) == client) {
			answer(server, at, GN_RPC_OK, buf, len_bytes);
			return 0;
		}
	return gn_fail(-ESRCH, "gn_rpc_server_send(): nothing was received from this client");
}
