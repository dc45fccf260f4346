/* SPDX-License-Identifier: MIT */
/*
 * The meta protocol: two letters, a key, and flags of a letter each, some with something behind it.
 * Answers repeat flags in the order in which they were asked for, so they stay where they came.
 */
#include <string.h>

#include "protocol.h"

#define WORDS_MAX  19u /* of a command */
#define OPAQUE_MAX 32u /* with its O */

static const char bad_line[] = "CLIENT_ERROR bad command line format";
static const char bad_token[] = "CLIENT_ERROR bad token in command line format";

/* What flags say, whatever the command. */
struct flags {
	char mode;
	bool value, quiet, stale, lru, base64, opaque_bad, details;
	bool has_cas, has_ttl, has_create, has_recache, has_new_cas;
	bool recache_first; /* R came before T */
	uint32_t client_flags, ttl_s, create_s, recache_s, first_ttl_s;
	uint64_t cas, new_cas, initial, delta;
};

static const char *take_ttl(const char *text, const struct px_context *context, bool *has,
			    uint32_t *out)
{
	int32_t exptime;

	if (!px_i32(text, &exptime))
		return bad_token;
	*has = true;
	*out = px_ttl(exptime, context->now_s);
	return NULL;
}

static const char *take_mode(const struct px_word *word, struct flags *f)
{
	if (word->len != 2)
		return "CLIENT_ERROR incorrect length for M token";
	f->mode = word->at[1];
	return NULL;
}

static const char *take_key(struct px_word *key, struct flags *f)
{
	key->len = (uint32_t)px_base64_decode(key->at, key->len, key->at);
	f->base64 = true;
	return key->len ? NULL : "CLIENT_ERROR error decoding key";
}

static const char *take_u64(const char *text, bool *has, uint64_t *out)
{
	if (!px_u64(text, out))
		return bad_token;
	*has = true;
	return NULL;
}

static const char unknown[] = "CLIENT_ERROR invalid flag";

/* Flags that are followed by something. NULL: it was. */
static const char *take_more(const struct px_word *word, const struct px_context *context,
			     struct flags *f)
{
	const char *wrong;
	bool dummy;

	switch (word->at[0]) {
	case 'N':
		wrong = take_ttl(word->at + 1, context, &f->has_create, &f->create_s);
		f->first_ttl_s = f->has_ttl ? f->ttl_s : f->create_s;
		return wrong;
	case 'T':
		wrong = take_ttl(word->at + 1, context, &f->has_ttl, &f->ttl_s);
		f->first_ttl_s = f->has_create ? f->create_s : f->ttl_s;
		if (f->has_create) /* of both the last counts */
			f->create_s = f->ttl_s;
		return wrong;
	case 'R':
		f->recache_first = !f->has_ttl;
		return take_ttl(word->at + 1, context, &f->has_recache, &f->recache_s);
	case 'F':
		return px_u32(word->at + 1, &f->client_flags) ? NULL : bad_line;
	case 'C':
		return take_u64(word->at + 1, &f->has_cas, &f->cas);
	case 'E':
		return take_u64(word->at + 1, &f->has_new_cas, &f->new_cas);
	case 'M':
		return take_mode(word, f);
	case 'J':
		return take_u64(word->at + 1, &dummy, &f->initial) ?
			       "CLIENT_ERROR invalid numeric initial value" :
			       NULL;
	case 'D':
		return take_u64(word->at + 1, &dummy, &f->delta) ?
			       "CLIENT_ERROR invalid numeric delta value" :
			       NULL;
	case 'O':
		f->opaque_bad = word->len > OPAQUE_MAX;
		return NULL;
	default:
		return unknown;
	}
}

/* NULL, or what is wrong. */
static const char *take_flag(const struct px_word *word, struct px_word *key,
			     const struct px_context *context, struct flags *f)
{
	switch (word->at[0]) {
	case 'b':
		return take_key(key, f);
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
	case 'c': /* of the answer only */
	case 'h':
	case 'l':
	case 't':
		f->details = true;
		return NULL;
	case 'f':
	case 'k':
	case 's':
	case 'L': /* hints that other proxies take */
	case 'P':
		return NULL;
	default:
		return take_more(word, context, f);
	}
}

/* NULL, or what is wrong. What is unknown or doubled ends it, of other mistakes the last counts. */
static const char *take_flags(struct px_word *words, unsigned n, struct px_word *key,
			      const struct px_context *context, struct flags *f)
{
	uint64_t seen[2] = {0};
	const char *wrong = NULL;

	for (unsigned i = 0; i < n; i++) {
		const unsigned c = (uint8_t)words[i].at[0];
		const char *what;

		if (c >= 127 || seen[c / 64] >> c % 64 & 1)
			return "CLIENT_ERROR duplicate flag";
		seen[c / 64] |= 1ull << c % 64;
		what = take_flag(&words[i], key, context, f);
		if (what == unknown)
			return what;
		if (what && !(what == bad_line && wrong))
			wrong = what;
	}
	return wrong;
}

/* ---- commands ---- */

static void say(struct px_request *out, const char *text)
{
	out->kind = PX_SAY;
	out->bits &= (uint8_t)~PX_NOREPLY; /* mistakes are always told */
	out->say = text;
}

static void common(const struct flags *f, const struct px_word *key, struct px_request *out)
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

static void get(const struct flags *f, struct px_request *out)
{
	struct gn_kv_op *op = &out->op;

	out->kind = PX_META_GET;
	op->verb = GN_KV_GET;
	/* Who asks for a stale one is offered to renew it, so that is always asked for. */
	op->how |= GN_KV_RECACHE | (f->value ? 0 : GN_KV_NO_VALUE) | (f->lru ? GN_KV_QUIET : 0) |
		   (f->has_ttl ? GN_KV_AND_TOUCH : 0) | (f->has_create ? GN_KV_VIVIFY : 0) |
		   (f->details ? GN_KV_DETAILS : 0) | (f->recache_first ? GN_KV_RECACHE_FIRST : 0);
	op->recache_s = f->recache_s == GN_KV_TTL_PAST ? 0 : f->recache_s;
}

static bool set_mode(const struct flags *f, struct gn_kv_op *op)
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
	/* What is compared is there; the others take 0 for any version, and add takes none. */
	if (f->has_cas && op->verb == GN_KV_REPLACE)
		op->verb = GN_KV_SET;
	if (f->has_cas && op->verb != GN_KV_ADD && (f->cas || op->verb == GN_KV_SET))
		op->how |= GN_KV_IF_CAS;
	if (f->stale && (op->how & GN_KV_IF_CAS) && op->verb == GN_KV_SET)
		op->how |= GN_KV_INVALIDATE;
	return true;
}

static void set(const struct flags *f, const struct px_context *context, struct px_request *out)
{
	out->kind = PX_META_SET;
	out->op.flags = f->client_flags;
	if (!set_mode(f, &out->op))
		say(out, "CLIENT_ERROR invalid mode for ms M token");
	else if (f->opaque_bad)
		say(out, "CLIENT_ERROR opaque token too long");
	else if (out->op.value_len > context->max_value) {
		say(out, "SERVER_ERROR object too large for cache");
		out->bits |= PX_FORGET;
	}
	if (out->kind == PX_SAY)
		out->bits |= PX_SKIP;
}

static void delete (const struct flags *f, struct px_request *out)
{
	out->kind = PX_META_DELETE;
	out->op.verb = GN_KV_DELETE;
	out->op.how |= (f->has_cas ? GN_KV_IF_CAS : 0) | (f->stale ? GN_KV_INVALIDATE : 0) |
		       (f->stale && f->has_ttl ? GN_KV_AND_TOUCH : 0);
}

static void number(const struct flags *f, struct px_request *out)
{
	struct gn_kv_op *op = &out->op;

	out->kind = PX_META_NUMBER;
	if (f->mode && !strchr("ID+-", f->mode)) {
		say(out, "CLIENT_ERROR invalid mode for ma M token");
		return;
	}
	op->verb = f->mode && strchr("D-", f->mode) ? GN_KV_DECR : GN_KV_INCR;
	op->number = f->delta;
	op->initial = f->initial;
	op->how |= (f->cas ? GN_KV_IF_CAS : 0) | (f->has_ttl ? GN_KV_AND_TOUCH : 0) |
		   (f->has_create ? GN_KV_CREATE : 0) | (f->value ? 0 : GN_KV_NO_VALUE);
}

static void debug(struct px_word *words, unsigned n, struct px_request *out)
{
	struct px_word *key = &words[1];

	if (n < 2 || key->len > GN_KV_KEY_MAX) {
		say(out, bad_line);
		return;
	}
	if (n > 2 && words[2].len == 1 && words[2].at[0] == 'b') {
		key->len = (uint32_t)px_base64_decode(key->at, key->len, key->at);
		out->bits |= PX_BASE64;
		if (!key->len) {
			say(out, bad_line);
			return;
		}
	}
	out->kind = PX_META_DEBUG;
	out->op.key = key->at;
	out->op.key_len = key->len;
	out->op.verb = GN_KV_GET;
	out->op.how = GN_KV_QUIET | GN_KV_UNCOUNTED | GN_KV_NO_VALUE | GN_KV_DETAILS;
}

/* What can be said before flags are looked at. False: it was. */
static bool begin(char command, struct px_word *words, unsigned n, struct px_request *out)
{
	int32_t len;

	if (n < 2)
		say(out, "ERROR");
	else if (words[1].len > GN_KV_KEY_MAX || (command == 's' && n == 2))
		say(out, bad_line);
	else if (n > WORDS_MAX)
		say(out, command == 'g' ? "CLIENT_ERROR options flags are too long" :
					  "CLIENT_ERROR options flags too long");
	else if (command == 's' && (!px_i32(words[2].at, &len) || len < 0 || len > INT32_MAX - 2))
		say(out, bad_line);
	else if (command == 's') {
		out->op.value_len = (uint32_t)len;
		out->bits |= PX_DATA;
		return true;
	} else
		return true;
	return false;
}

static void of_flags(char command, const struct flags *f, const struct px_context *context,
		     struct px_request *out)
{
	switch (command) {
	case 'g':
		get(f, out);
		break;
	case 's':
		set(f, context, out);
		return;
	case 'd':
		delete (f, out);
		break;
	default:
		number(f, out);
		break;
	}
	if (f->opaque_bad && out->kind != PX_SAY)
		say(out, "CLIENT_ERROR opaque token too long");
}

void px_parse_meta(struct px_word *words, unsigned n, const struct px_context *context,
		   struct px_request *out)
{
	const char command = words[0].at[1];
	const unsigned first = command == 's' ? 3 : 2;
	struct flags f = {.delta = 1};
	const char *wrong;

	if (command == 'n') {
		say(out, "MN");
		return;
	}
	if (command == 'e') {
		debug(words, n, out);
		return;
	}
	if (!strchr("gsda", command)) {
		say(out, "ERROR");
		return;
	}
	if (!begin(command, words, n, out))
		return;
	wrong = take_flags(words + first, n - first, &words[1], context, &f);
	if (wrong) {
		say(out, strchr("da", command) ? "CLIENT_ERROR invalid or duplicate flag" : wrong);
		out->bits |= command == 's' ? PX_SKIP : 0;
		return;
	}
	common(&f, &words[1], out);
	out->n_flags = (uint8_t)(n - first);
	out->flags = n > first ? words[first].at : "";
	of_flags(command, &f, context, out);
}

/* ---- answers ---- */

static char *put_key(const struct px_request *r, char *at)
{
	if (r->bits & PX_BASE64)
		return at + px_base64_encode(r->op.key, r->op.key_len, at);
	memcpy(at, r->op.key, r->op.key_len);
	return at + r->op.key_len;
}

/* What t tells depends on which of N and T are before it: each sets the time in its turn. */
struct times {
	unsigned set, sets; /* so far; in all */
};

static bool sets_time(const struct px_request *r, char flag)
{
	return flag == 'T' || (flag == 'N' && r->op.found & GN_KV_CREATED);
}

static uint32_t time_now(const struct px_request *r, const struct times *times)
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

/* The one that begins at flag, if such a command answers it. */
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
		return put_ttl(time_now(r, times), at);
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

/* The next one of a request, from at on: its length. */
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
		*at++ = '-'; /* until then, and so it is counted from there */
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

/* Two letters, or NULL: it failed. */
static const char *code(const struct px_request *r)
{
	switch (r->op.status) {
	case GN_KV_OK:
		return "HD";
	case GN_KV_EXISTS:
		return "EX";
	case GN_KV_NOT_STORED:
		return "NS";
	case GN_KV_TOO_BIG:
		/* What is there and what is added are each of a size that is taken. */
		return r->op.verb == GN_KV_APPEND || r->op.verb == GN_KV_PREPEND ? "NS" : NULL;
	case GN_KV_MISS:
		/* Who appends to nothing has not stored it, also where the version was named. */
		return r->kind == PX_META_GET || r->kind == PX_META_DEBUG ? "EN" :
		       r->kind == PX_META_SET && r->op.verb != GN_KV_SET  ? "NS" :
									    "NF";
	default:
		return NULL;
	}
}

/* With q, what is as it should be is not worth a word: that depends on the command. */
static bool unsaid(const struct px_request *r)
{
	if (!(r->bits & PX_NOREPLY))
		return false;
	if (r->kind == PX_META_GET)
		return r->op.status == GN_KV_MISS;
	if (r->kind == PX_META_NUMBER && (r->op.found & GN_KV_CREATED))
		return false;
	return r->op.status == GN_KV_OK;
}

char *px_answer_meta(const struct px_request *r, char *at, bool *value)
{
	const bool found = r->op.status == GN_KV_OK;
	const bool with_value = found && !(r->op.how & GN_KV_NO_VALUE);
	const char *two = code(r);

	if (unsaid(r))
		return at;
	if (!two)
		return stpcpy(at, px_failure(r));
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
