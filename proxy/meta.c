/* SPDX-License-Identifier: MIT */
/*
 * The meta protocol: two letters, a key, and flags of one letter each, some with a value. Responses
 * repeat flags in the order of the request, so flags stay in the input.
 */
#include <string.h>

#include "protocol.h"

#define TOKENS_MAX 19u /* of a command */
#define OPAQUE_MAX 32u /* with its O */

static const char bad_line[] = "CLIENT_ERROR bad command line format";
static const char bad_token[] = "CLIENT_ERROR bad token in command line format";

/* The flags of any command, parsed. */
struct meta_flags {
	char mode;
	bool value, quiet, stale, lru, base64, opaque_bad, details;
	bool has_cas, has_ttl, has_create, has_recache, has_new_cas;
	bool recache_first; /* R came before T */
	uint32_t client_flags, ttl_s, create_s, recache_s, first_ttl_s;
	uint64_t cas, new_cas, initial, delta;
};

static const char *flag_ttl(const char *text, const struct px_context *context, bool *has,
			    uint32_t *out)
{
	int32_t exptime;

	if (!px_i32(text, &exptime))
		return bad_token;
	*has = true;
	*out = px_ttl(exptime, context->now_s);
	return NULL;
}

static const char *flag_mode(const struct px_token *token, struct meta_flags *f)
{
	if (token->len != 2)
		return "CLIENT_ERROR incorrect length for M token";
	f->mode = token->at[1];
	return NULL;
}

static const char *flag_base64_key(struct px_token *key, struct meta_flags *f)
{
	key->len = (uint32_t)px_base64_decode(key->at, key->len, key->at);
	f->base64 = true;
	return key->len ? NULL : "CLIENT_ERROR error decoding key";
}

static const char *flag_u64(const char *text, bool *has, uint64_t *out)
{
	if (!px_u64(text, out))
		return bad_token;
	*has = true;
	return NULL;
}

static const char unknown[] = "CLIENT_ERROR invalid flag";

/* Flags with a value. NULL: valid. */
static const char *flag_with_value(const struct px_token *token, const struct px_context *context,
				   struct meta_flags *f)
{
	const char *wrong;
	bool dummy;

	switch (token->at[0]) {
	case 'N':
		wrong = flag_ttl(token->at + 1, context, &f->has_create, &f->create_s);
		f->first_ttl_s = f->has_ttl ? f->ttl_s : f->create_s;
		return wrong;
	case 'T':
		wrong = flag_ttl(token->at + 1, context, &f->has_ttl, &f->ttl_s);
		f->first_ttl_s = f->has_create ? f->create_s : f->ttl_s;
		if (f->has_create) /* of both, the last counts */
			f->create_s = f->ttl_s;
		return wrong;
	case 'R':
		f->recache_first = !f->has_ttl;
		return flag_ttl(token->at + 1, context, &f->has_recache, &f->recache_s);
	case 'F':
		return px_u32(token->at + 1, &f->client_flags) ? NULL : bad_line;
	case 'C':
		return flag_u64(token->at + 1, &f->has_cas, &f->cas);
	case 'E':
		return flag_u64(token->at + 1, &f->has_new_cas, &f->new_cas);
	case 'M':
		return flag_mode(token, f);
	case 'J':
		return flag_u64(token->at + 1, &dummy, &f->initial) ?
			       "CLIENT_ERROR invalid numeric initial value" :
			       NULL;
	case 'D':
		return flag_u64(token->at + 1, &dummy, &f->delta) ?
			       "CLIENT_ERROR invalid numeric delta value" :
			       NULL;
	case 'O':
		f->opaque_bad = token->len > OPAQUE_MAX;
		return NULL;
	default:
		return unknown;
	}
}

/* NULL, or the error. */
static const char *flag_parse(const struct px_token *token, struct px_token *key,
			      const struct px_context *context, struct meta_flags *f)
{
	switch (token->at[0]) {
	case 'b':
		return flag_base64_key(key, f);
	case 'v':
		f->value = true;
		return NULL;
	case 'q':
		f->quiet = true;
		return NULL;
	case 'I':
		f->stale = true;
		return NULL;
	case 'u':
		f->lru = true;
		return NULL;
	case 'c': /* for the response only */
	case 'h':
	case 'l':
	case 't':
		f->details = true;
		return NULL;
	case 'f':
	case 'k':
	case 's':
	case 'L': /* hints for other proxies */
	case 'P':
		return NULL;
	default:
		return flag_with_value(token, context, f);
	}
}

/*
 * NULL, or the error. An unknown or duplicate flag ends parsing; of other errors the last counts.
 */
static const char *flags_parse(struct px_token *tokens, unsigned n, struct px_token *key,
			       const struct px_context *context, struct meta_flags *f)
{
	uint64_t seen[2] = {0};
	const char *wrong = NULL;

	for (unsigned i = 0; i < n; i++) {
		const unsigned c = (uint8_t)tokens[i].at[0];
		const char *what;

		if (c >= 127 || seen[c / 64] >> c % 64 & 1)
			return "CLIENT_ERROR duplicate flag";
		seen[c / 64] |= 1ull << c % 64;
		what = flag_parse(&tokens[i], key, context, f);
		if (what == unknown)
			return what;
		if (what && !(what == bad_line && wrong))
			wrong = what;
	}
	return wrong;
}

/* ---- commands ---- */

static void meta_reply_error(struct px_request *out, const char *text)
{
	out->kind = PX_REPLY_TEXT;
	out->bits &= (uint8_t)~PX_NOREPLY; /* errors are always reported */
	out->reply = text;
}

static void meta_common(const struct meta_flags *f, const struct px_token *key,
			struct px_request *out)
{
	out->bits |= (uint8_t)((f->quiet ? PX_NOREPLY : 0) | (f->base64 ? PX_BASE64 : 0));
	out->op.key = key->at;
	out->op.key_len = key->len;
	out->op.cas = f->cas;
	out->op.new_cas = f->new_cas;
	out->op.how |= f->has_new_cas ? GN_KV_SET_CAS : 0;
	out->op.ttl_s = f->ttl_s;
	out->op.create_s = f->create_s;
	out->first_ttl_s = f->first_ttl_s;
}

static void meta_get(const struct meta_flags *f, struct px_request *out)
{
	struct gn_kv_op *op = &out->op;

	out->kind = PX_META_GET;
	op->verb = GN_KV_GET;
	/* RECACHE is always set: a client that reads a stale item is offered to renew it. */
	op->how |= GN_KV_RECACHE | (f->value ? 0 : GN_KV_NO_VALUE) | (f->lru ? GN_KV_QUIET : 0) |
		   (f->has_ttl ? GN_KV_AND_TOUCH : 0) | (f->has_create ? GN_KV_VIVIFY : 0) |
		   (f->details ? GN_KV_DETAILS : 0) | (f->recache_first ? GN_KV_RECACHE_FIRST : 0);
	op->recache_s = f->recache_s == GN_KV_TTL_PAST ? 0 : f->recache_s;
}

static bool meta_set_mode(const struct meta_flags *f, struct gn_kv_op *op)
{
	switch (f->mode) {
	case 0:
	case 'S':
		op->verb = GN_KV_SET;
		break;
	case 'E':
		op->verb = GN_KV_ADD;
		break;
	case 'A':
		op->verb = GN_KV_APPEND;
		break;
	case 'P':
		op->verb = GN_KV_PREPEND;
		break;
	case 'R':
		op->verb = GN_KV_REPLACE;
		break;
	default:
		return false;
	}
	/* Compared items must exist; for other verbs 0 means any version, and add ignores it. */
	if (f->has_cas && op->verb == GN_KV_REPLACE)
		op->verb = GN_KV_SET;
	if (f->has_cas && op->verb != GN_KV_ADD && (f->cas || op->verb == GN_KV_SET))
		op->how |= GN_KV_IF_CAS;
	if (f->stale && (op->how & GN_KV_IF_CAS) && op->verb == GN_KV_SET)
		op->how |= GN_KV_INVALIDATE;
	return true;
}

static void meta_set(const struct meta_flags *f, const struct px_context *context,
		     struct px_request *out)
{
	out->kind = PX_META_SET;
	out->op.flags = f->client_flags;
	if (!meta_set_mode(f, &out->op))
		meta_reply_error(out, "CLIENT_ERROR invalid mode for ms M token");
	else if (f->opaque_bad)
		meta_reply_error(out, "CLIENT_ERROR opaque token too long");
	else if (out->op.value_len > context->max_value) {
		meta_reply_error(out, "SERVER_ERROR object too large for cache");
		out->bits |= PX_DELETE_OLD;
	}
	if (out->kind == PX_REPLY_TEXT)
		out->bits |= PX_SKIP;
}

static void meta_delete(const struct meta_flags *f, struct px_request *out)
{
	out->kind = PX_META_DELETE;
	out->op.verb = GN_KV_DELETE;
	out->op.how |= (f->has_cas ? GN_KV_IF_CAS : 0) | (f->stale ? GN_KV_INVALIDATE : 0) |
		       (f->stale && f->has_ttl ? GN_KV_AND_TOUCH : 0);
}

static void meta_number(const struct meta_flags *f, struct px_request *out)
{
	struct gn_kv_op *op = &out->op;

	out->kind = PX_META_NUMBER;
	if (f->mode && !strchr("ID+-", f->mode)) {
		meta_reply_error(out, "CLIENT_ERROR invalid mode for ma M token");
		return;
	}
	op->verb = f->mode && strchr("D-", f->mode) ? GN_KV_DECR : GN_KV_INCR;
	op->number = f->delta;
	op->initial = f->initial;
	op->how |= (f->cas ? GN_KV_IF_CAS : 0) | (f->has_ttl ? GN_KV_AND_TOUCH : 0) |
		   (f->has_create ? GN_KV_CREATE : 0) | (f->value ? 0 : GN_KV_NO_VALUE);
}

static void meta_debug(struct px_token *tokens, unsigned n, struct px_request *out)
{
	struct px_token *key = &tokens[1];

	if (n < 2 || key->len > GN_KV_KEY_MAX) {
		meta_reply_error(out, bad_line);
		return;
	}
	if (n > 2 && tokens[2].len == 1 && tokens[2].at[0] == 'b') {
		key->len = (uint32_t)px_base64_decode(key->at, key->len, key->at);
		out->bits |= PX_BASE64;
		if (!key->len) {
			meta_reply_error(out, bad_line);
			return;
		}
	}
	out->kind = PX_META_DEBUG;
	out->op.key = key->at;
	out->op.key_len = key->len;
	out->op.verb = GN_KV_GET;
	out->op.how = GN_KV_QUIET | GN_KV_UNCOUNTED | GN_KV_NO_VALUE | GN_KV_DETAILS;
}

/* Checks before the flags are parsed. False: the error is in out. */
static bool meta_check_tokens(char command, struct px_token *tokens, unsigned n,
			      struct px_request *out)
{
	int32_t len;

	if (n < 2)
		meta_reply_error(out, "ERROR");
	else if (tokens[1].len > GN_KV_KEY_MAX || (command == 's' && n == 2))
		meta_reply_error(out, bad_line);
	else if (n > TOKENS_MAX)
		meta_reply_error(out, command == 'g' ? "CLIENT_ERROR options flags are too long" :
						       "CLIENT_ERROR options flags too long");
	else if (command == 's' && (!px_i32(tokens[2].at, &len) || len < 0 || len > INT32_MAX - 2))
		meta_reply_error(out, bad_line);
	else if (command == 's') {
		out->op.value_len = (uint32_t)len;
		out->bits |= PX_DATA;
		return true;
	} else
		return true;
	return false;
}

static void meta_fill_request(char command, const struct meta_flags *f,
			      const struct px_context *context, struct px_request *out)
{
	switch (command) {
	case 'g':
		meta_get(f, out);
		break;
	case 's':
		meta_set(f, context, out);
		return;
	case 'd':
		meta_delete(f, out);
		break;
	default:
		meta_number(f, out);
		break;
	}
	if (f->opaque_bad && out->kind != PX_REPLY_TEXT)
		meta_reply_error(out, "CLIENT_ERROR opaque token too long");
}

void px_parse_meta(struct px_token *tokens, unsigned n, const struct px_context *context,
		   struct px_request *out)
{
	const char command = tokens[0].at[1];
	const unsigned first = command == 's' ? 3 : 2;
	struct meta_flags f = {.delta = 1};
	const char *wrong;

	if (command == 'n') {
		meta_reply_error(out, "MN");
		return;
	}
	if (command == 'e') {
		meta_debug(tokens, n, out);
		return;
	}
	if (!strchr("gsda", command)) {
		meta_reply_error(out, "ERROR");
		return;
	}
	if (!meta_check_tokens(command, tokens, n, out))
		return;
	wrong = flags_parse(tokens + first, n - first, &tokens[1], context, &f);
	if (wrong) {
		meta_reply_error(out, strchr("da", command) ?
					      "CLIENT_ERROR invalid or duplicate flag" :
					      wrong);
		out->bits |= command == 's' ? PX_SKIP : 0;
		return;
	}
	meta_common(&f, &tokens[1], out);
	out->n_flags = (uint8_t)(n - first);
	out->flags = n > first ? tokens[first].at : "";
	meta_fill_request(command, &f, context, out);
}

/* ---- responses ---- */

static char *put_key(const struct px_request *r, char *at)
{
	if (r->bits & PX_BASE64)
		return at + px_base64_encode(r->op.key, r->op.key_len, at);
	memcpy(at, r->op.key, r->op.key_len);
	return at + r->op.key_len;
}

/* The value of t depends on which of N and T precede it: each sets the time to live in turn. */
struct times {
	unsigned set, sets; /* so far; in all */
};

static bool sets_time(const struct px_request *r, char flag)
{
	return flag == 'T' || (flag == 'N' && r->op.found & GN_KV_CREATED);
}

static uint32_t ttl_at_flag(const struct px_request *r, const struct times *times)
{
	if (times->set == times->sets)
		return r->op.ttl_s;
	if (!times->set)
		return r->op.was_ttl_s;
	return !r->first_ttl_s			? GN_KV_TTL_NONE :
	       r->first_ttl_s == GN_KV_TTL_PAST ? 0 :
						  r->first_ttl_s;
}

static char *put_ttl(uint32_t ttl_s, char *at)
{
	if (ttl_s != GN_KV_TTL_NONE)
		return px_put_u64(at, ttl_s);
	*at++ = '-';
	*at++ = '1';
	return at;
}

/* Repeats a flag, if the command returns it. */
static char *put_flag(const struct px_request *r, const char *flag, size_t len, bool found,
		      const struct times *times, char *at)
{
	const bool get = r->kind == PX_META_GET && found;
	const bool number = r->kind == PX_META_NUMBER && found;

	switch (*flag) {
	case 'O':
		*at++ = ' ';
		memcpy(at, flag, len);
		return at + len;
	case 'k':
		*at++ = ' ', *at++ = 'k';
		at = put_key(r, at);
		if (r->bits & PX_BASE64)
			*at++ = ' ', *at++ = 'b';
		return at;
	case 'c':
		if (!get && !number && r->kind != PX_META_SET)
			return at;
		*at++ = ' ', *at++ = 'c';
		return px_put_u64(at, found ? r->op.cas : 0);
	case 't':
		if (!get && !number)
			return at;
		*at++ = ' ', *at++ = 't';
		return put_ttl(ttl_at_flag(r, times), at);
	default:
		break;
	}
	if (!get || !strchr("sflh", *flag))
		return at;
	*at++ = ' ';
	*at++ = *flag;
	return px_put_u64(at, *flag == 's' ? r->op.len :
			      *flag == 'f' ? r->op.flags :
			      *flag == 'l' ? r->op.idle_s :
					     !!(r->op.found & GN_KV_HIT_BEFORE));
}

/* Advances to the next flag of a request and returns its length. */
static size_t next_flag(const char **at)
{
	while (!**at || **at == ' ')
		(*at)++;
	return strcspn(*at, " ");
}

static char *put_flags(const struct px_request *r, bool found, char *at)
{
	struct times times = {0};
	const char *flag = r->flags;

	for (unsigned i = 0; i < r->n_flags; i++) {
		const size_t len = next_flag(&flag);

		times.sets += sets_time(r, *flag);
		flag += len;
	}
	flag = r->flags;
	for (unsigned i = 0; i < r->n_flags; i++) {
		const size_t len = next_flag(&flag);

		times.set += sets_time(r, *flag);
		at = put_flag(r, flag, len, found, &times, at);
		flag += len;
	}
	if (r->kind != PX_META_GET || !found)
		return at;
	if (r->op.found & GN_KV_LOST)
		*at++ = ' ', *at++ = 'Z';
	if (r->op.found & GN_KV_STALE)
		*at++ = ' ', *at++ = 'X';
	if (r->op.found & GN_KV_WON)
		*at++ = ' ', *at++ = 'W';
	return at;
}

static char *put_debug(const struct px_request *r, char *at)
{
	static const uint32_t head_bytes = 24; /* of an item */

	*at++ = 'M', *at++ = 'E', *at++ = ' ';
	at = put_key(r, at);
	memcpy(at, " exp=", 5);
	at += 5;
	if (r->op.ttl_s != GN_KV_TTL_NONE && r->op.ttl_s)
		*at++ = '-'; /* memcached prints the negative of the remaining time */
	at = put_ttl(r->op.ttl_s, at);
	memcpy(at, " la=", 4);
	at = px_put_u64(at + 4, r->op.idle_s);
	memcpy(at, " cas=", 5);
	at = px_put_u64(at + 5, r->op.cas);
	memcpy(at, " fetch=", 7);
	at += 7;
	at = stpcpy(at, r->op.found & GN_KV_HIT_BEFORE ? "yes" : "no");
	memcpy(at, " cls=1 size=", 12);
	at = px_put_u64(at + 12, (head_bytes + r->op.key_len + r->op.len + 7) / 8 * 8);
	return at;
}

/* Two letters, or NULL: the operation failed. */
static const char *meta_code(const struct px_request *r)
{
	switch (r->op.status) {
	case GN_KV_OK:
		return "HD";
	case GN_KV_EXISTS:
		return "EX";
	case GN_KV_NOT_STORED:
		return "NS";
	case GN_KV_TOO_BIG:
		/* Existing and appended value are each within the limit. */
		return r->op.verb == GN_KV_APPEND || r->op.verb == GN_KV_PREPEND ? "NS" : NULL;
	case GN_KV_MISS:
		/* Appending to a missing key is NS, also with a version. */
		return r->kind == PX_META_GET || r->kind == PX_META_DEBUG ? "EN" :
		       r->kind == PX_META_SET && r->op.verb != GN_KV_SET  ? "NS" :
									    "NF";
	default:
		return NULL;
	}
}

/* Is the response suppressed by q? That depends on the command. */
static bool meta_is_silent(const struct px_request *r)
{
	if (!(r->bits & PX_NOREPLY))
		return false;
	if (r->kind == PX_META_GET)
		return r->op.status == GN_KV_MISS;
	if (r->kind == PX_META_NUMBER && (r->op.found & GN_KV_CREATED))
		return false;
	return r->op.status == GN_KV_OK;
}

char *px_response_meta(const struct px_request *r, char *at, bool *value)
{
	const bool found = r->op.status == GN_KV_OK;
	const bool with_value = found && !(r->op.how & GN_KV_NO_VALUE);
	const char *two = meta_code(r);

	if (meta_is_silent(r))
		return at;
	if (!two)
		return stpcpy(at, px_error_text(r));
	if (r->kind == PX_META_DEBUG && found)
		return put_debug(r, at);
	if (r->kind == PX_META_NUMBER && with_value) {
		char digits[24];
		const size_t n = (size_t)(px_put_u64(digits, r->op.number) - digits);

		at = px_put_u64(stpcpy(at, "VA "), n);
		at = put_flags(r, found, at);
		*at++ = '\r', *at++ = '\n';
		memcpy(at, digits, n);
		return at + n;
	}
	if (r->kind == PX_META_GET && with_value) {
		*value = true;
		at = px_put_u64(stpcpy(at, "VA "), r->op.len);
		return put_flags(r, found, at);
	}
	*at++ = two[0];
	*at++ = two[1];
	return put_flags(r, found, at);
}
