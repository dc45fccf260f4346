/* SPDX-License-Identifier: MIT */
/*
 * Answers of the text protocol.
 */
#include <string.h>

#include "protocol.h"

const char *px_failure(const struct px_request *r)
{
	switch (r->op.status) {
	case GN_KV_NOT_NUMBER:
		return "CLIENT_ERROR cannot increment or decrement non-numeric value";
	case GN_KV_TOO_BIG:
		return "SERVER_ERROR object too large for cache";
	case GN_KV_NO_MEMORY:
		return "SERVER_ERROR out of memory storing object";
	case GN_KV_TIMEOUT:
		return "SERVER_ERROR the store does not answer";
	case GN_KV_GONE:
		return "SERVER_ERROR the store is not there";
	case GN_KV_BUSY:
		return "SERVER_ERROR the store is busy";
	default:
		return "SERVER_ERROR the store could not do it";
	}
}

/* The line of a value, which is what most answers are. */
static char *put_value(const struct px_request *r, char *at)
{
	memcpy(at, "VALUE ", 6);
	at += 6;
	memcpy(at, r->op.key, r->op.key_len);
	at += r->op.key_len;
	*at++ = ' ';
	at = px_put_u64(at, r->op.flags);
	*at++ = ' ';
	at = px_put_u64(at, r->op.len);
	if (r->bits & PX_CAS) {
		*at++ = ' ';
		at = px_put_u64(at, r->op.cas);
	}
	return at;
}

/* Of what changes the store; NULL: it is no text. */
static const char *said(const struct px_request *r)
{
	switch (r->op.status) {
	case GN_KV_OK:
		return r->kind == PX_STORE  ? "STORED" :
		       r->kind == PX_DELETE ? "DELETED" :
					      "TOUCHED";
	case GN_KV_MISS:
		return "NOT_FOUND";
	case GN_KV_EXISTS:
		return "EXISTS";
	case GN_KV_NOT_STORED:
		return "NOT_STORED";
	case GN_KV_TOO_BIG:
		/* What is there and what is added are each of a size that is taken. */
		if (r->op.verb == GN_KV_APPEND || r->op.verb == GN_KV_PREPEND)
			return "NOT_STORED";
		/* fall through */
	default:
		return px_failure(r);
	}
}

static char *put(const struct px_request *r, char *at, bool *value)
{
	switch (r->kind) {
	case PX_VALUE:
		if (r->op.status != GN_KV_OK)
			return at;
		*value = true;
		return put_value(r, at);
	case PX_END:
		return stpcpy(at, r->say ? r->say : "END");
	case PX_SAY:
		return r->bits & PX_NOREPLY ? at : stpcpy(at, r->say);
	case PX_DUMP:
		return stpcpy(at, px_failure(r));
	case PX_STORE:
	case PX_DELETE:
	case PX_TOUCH:
		return r->bits & PX_NOREPLY ? at : stpcpy(at, said(r));
	case PX_NUMBER:
		if (r->bits & PX_NOREPLY)
			return at;
		return r->op.status == GN_KV_OK ? px_put_u64(at, r->op.number) :
						  stpcpy(at, said(r));
	default:
		return px_answer_meta(r, at, value);
	}
}

size_t px_answer(const struct px_request *r, char *out, bool *value)
{
	char *at;

	*value = false;
	at = put(r, out, value);
	if (at == out)
		return 0;
	*at++ = '\r';
	*at++ = '\n';
	return (size_t)(at - out);
}
