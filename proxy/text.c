/* SPDX-License-Identifier: MIT */
/* The text protocol: commands and responses. */
#include <string.h>

#include "protocol.h"

#define DAYS_30	    (30 * 24 * 3600)
#define CLASSES_MAX 64u /* memcached has no more slab classes */

static const char bad_line[] = "CLIENT_ERROR bad command line format";

/* ---- tokens and keys ---- */

unsigned px_split(char *text, struct px_token *tokens)
{
	unsigned n = 0;

	while (n < PX_TOKENS_MAX) {
		char *end;

		while (*text == ' ')
			text++;
		if (!*text)
			break;
		end = strchrnul(text, ' ');
		tokens[n].at = text;
		tokens[n++].len = (uint32_t)(end - text);
		if (!*end)
			break;
		*end = 0;
		text = end + 1;
	}
	return n;
}

/* Sets the upper bit of the lowest byte that is 0x20 or less. */
static inline uint64_t find_blank(uint64_t x)
{
	return (x - 0x2121212121212121u) & ~x & 0x8080808080808080u;
}

/*
 * The first byte from at on that may end a token: eight at a time, because most of a line is keys.
 */
static inline size_t skip_word(const char *text, size_t len, size_t at)
{
	while (at < len) {
		uint64_t x, found;

		memcpy(&x, text + at, sizeof(x));
		found = find_blank(x);
		if (found) {
			at += (unsigned)__builtin_ctzll(found) / 8;
			return at < len ? at : len;
		}
		at += sizeof(x);
	}
	return len;
}

size_t px_key(const char *text, size_t len, size_t *at, const char **key)
{
	size_t from = *at, to;

	while (from < len && text[from] == ' ')
		from++;
	/* Only spaces and a NUL end a token; other control characters are part of it. */
	for (to = skip_word(text, len, from); to < len && text[to] != ' ' && text[to];)
		to = skip_word(text, len, to + 1);
	*at = to < len && !text[to] ? len : to;
	*key = text + from;
	return to - from;
}

/* Within each stretch that starts with a token, the last space says where the next starts. */
bool px_keys_too_long(const char *text, size_t len)
{
	const char *nul = len > GN_KV_KEY_MAX ? memchr(text, 0, len) : NULL;
	size_t at = 0;

	if (nul) /* what follows is not a key */
		len = (size_t)(nul - text);
	while (at + GN_KV_KEY_MAX < len) {
		const char *space = memrchr(text + at, ' ', GN_KV_KEY_MAX + 1);

		if (!space)
			return true;
		at = (size_t)(space + 1 - text);
	}
	return false;
}

/* ---- commands ---- */

uint32_t px_ttl(int32_t exptime, int64_t now_s)
{
	if (exptime < 0)
		return GN_KV_TTL_PAST;
	if (exptime <= DAYS_30)
		return (uint32_t)exptime;
	return exptime > now_s ? (uint32_t)(exptime - now_s) : GN_KV_TTL_PAST;
}

static void text_reply(struct px_request *out, const char *text)
{
	out->kind = PX_REPLY_TEXT;
	out->reply = text;
}

static bool token_is(const struct px_token *token, const char *text)
{
	return !strcmp(token->at, text);
}

static void parse_noreply(const struct px_token *tokens, unsigned n, struct px_request *out)
{
	if (token_is(&tokens[n - 1], "noreply"))
		out->bits |= PX_NOREPLY;
}

/* False: the key is too long, and the error is in out. */
static bool parse_key(const struct px_token *token, struct px_request *out)
{
	if (token->len > GN_KV_KEY_MAX) {
		text_reply(out, bad_line);
		return false;
	}
	out->op.key = token->at;
	out->op.key_len = token->len;
	return true;
}

static void parse_store(struct px_token *tokens, unsigned n, enum gn_kv_verb verb, bool cas,
			const struct px_context *context, struct px_request *out)
{
	int32_t exptime, len;

	if (n != 5u + cas && n != 6u + cas) {
		text_reply(out, "ERROR");
		return;
	}
	parse_noreply(tokens, n, out);
	if (!parse_key(&tokens[1], out))
		return;
	if (!px_u32(tokens[2].at, &out->op.flags) || !px_i32(tokens[3].at, &exptime) ||
	    !px_i32(tokens[4].at, &len) || (cas && !px_u64(tokens[5].at, &out->op.cas)) ||
	    len < 0 || len > INT32_MAX - 2) {
		text_reply(out, bad_line);
		return;
	}
	out->kind = PX_STORE;
	out->bits |= PX_DATA;
	out->op.verb = verb;
	out->op.how = cas ? GN_KV_IF_CAS : 0;
	out->op.ttl_s = px_ttl(exptime, context->now_s);
	out->op.value_len = (uint32_t)len;
	if ((uint32_t)len > context->max_value) {
		text_reply(out, "SERVER_ERROR object too large for cache");
		out->bits |= PX_SKIP | (verb == GN_KV_SET && !cas ? PX_DELETE_OLD : 0);
	}
}

static void parse_delete(struct px_token *tokens, unsigned n, struct px_request *out)
{
	if (n < 2 || n > 4) {
		text_reply(out, "ERROR");
		return;
	}
	if (n > 2) {
		const bool zero = token_is(&tokens[2], "0");

		parse_noreply(tokens, n, out);
		if (n == 3 ? !zero && !(out->bits & PX_NOREPLY) :
			     !zero || !(out->bits & PX_NOREPLY)) {
			text_reply(out, "CLIENT_ERROR bad command line format.  "
					"Usage: delete <key> [noreply]");
			return;
		}
	}
	if (!parse_key(&tokens[1], out))
		return;
	out->kind = PX_DELETE;
	out->op.verb = GN_KV_DELETE;
}

/* COMMAND KEY ARGUMENT [noreply]; the key is taken. False: the error is in out. */
static bool parse_key_and_argument(struct px_token *tokens, unsigned n, struct px_request *out)
{
	if (n != 3 && n != 4) {
		text_reply(out, "ERROR");
		return false;
	}
	parse_noreply(tokens, n, out);
	return parse_key(&tokens[1], out);
}

static void parse_number(struct px_token *tokens, unsigned n, enum gn_kv_verb verb,
			 struct px_request *out)
{
	if (!parse_key_and_argument(tokens, n, out))
		return;
	if (!px_u64(tokens[2].at, &out->op.number)) {
		text_reply(out, "CLIENT_ERROR invalid numeric delta argument");
		return;
	}
	out->kind = PX_NUMBER;
	out->op.verb = verb;
}

static void parse_touch(struct px_token *tokens, unsigned n, const struct px_context *context,
			struct px_request *out)
{
	int32_t exptime;

	if (!parse_key_and_argument(tokens, n, out))
		return;
	if (!px_i32(tokens[2].at, &exptime)) {
		text_reply(out, "CLIENT_ERROR invalid exptime argument");
		return;
	}
	out->kind = PX_TOUCH;
	out->op.verb = GN_KV_TOUCH;
	out->op.ttl_s = px_ttl(exptime, context->now_s);
}

static void parse_flush(struct px_token *tokens, unsigned n, const struct px_context *context,
			struct px_request *out)
{
	int32_t exptime = 0;

	if (n > 3) {
		text_reply(out, "ERROR");
		return;
	}
	parse_noreply(tokens, n, out);
	if (n != (out->bits & PX_NOREPLY ? 2 : 1) && !px_i32(tokens[1].at, &exptime)) {
		text_reply(out, "CLIENT_ERROR invalid exptime argument");
		return;
	}
	out->kind = PX_FLUSH;
	out->op.ttl_s = exptime > 0 ? px_ttl(exptime, context->now_s) : 0;
	if (out->op.ttl_s == GN_KV_TTL_PAST)
		out->op.ttl_s = 0;
}

static void parse_verbosity(struct px_token *tokens, unsigned n, struct px_request *out)
{
	uint32_t level;

	if (n != 2 && n != 3) {
		text_reply(out, "ERROR");
		return;
	}
	parse_noreply(tokens, n, out);
	text_reply(out, px_u32(tokens[1].at, &level) ? "OK" : bad_line);
}

static void parse_detail(struct px_token *tokens, unsigned n, struct px_request *out)
{
	static const char *const known[] = {"detail on", "detail off", "detail dump"};

	out->kind = PX_STATS;
	for (unsigned i = 0; n > 2 && i < sizeof(known) / sizeof(known[0]); i++) {
		out->reply = known[i];
		if (token_is(&tokens[2], known[i] + strlen("detail ")))
			return;
	}
	text_reply(out, "CLIENT_ERROR usage: stats detail on|off|dump");
}

/* All items are of class 1. */
static void parse_cachedump(struct px_token *tokens, unsigned n, struct px_request *out)
{
	uint32_t class, limit;

	if (n < 4)
		text_reply(out, "CLIENT_ERROR bad command line");
	else if (!px_u32(tokens[2].at, &class) || !px_u32(tokens[3].at, &limit))
		text_reply(out, bad_line);
	else if (class >= CLASSES_MAX)
		text_reply(out, "CLIENT_ERROR Illegal slab id");
	else if (class != 1)
		text_reply(out, "END");
	else {
		out->kind = PX_DUMP;
		out->op.flags = PX_DUMP_ITEMS;
		out->op.number = limit;
	}
}

static void parse_lru_crawler(struct px_token *tokens, unsigned n, struct px_request *out)
{
	if (n != 3 || !token_is(&tokens[1], "metadump")) {
		text_reply(out, "ERROR");
	} else if (!token_is(&tokens[2], "all") && !token_is(&tokens[2], "hash") &&
		   !token_is(&tokens[2], "1")) {
		text_reply(out, "BADCLASS invalid class id");
	} else {
		out->kind = PX_DUMP;
		out->op.flags = PX_DUMP_META;
	}
}

static void parse_stats(struct px_token *tokens, unsigned n, struct px_request *out)
{
	if (n > 1 && token_is(&tokens[1], "detail")) {
		parse_detail(tokens, n, out);
		return;
	}
	if (n > 1 && token_is(&tokens[1], "cachedump")) {
		parse_cachedump(tokens, n, out);
		return;
	}
	out->kind = PX_STATS;
	out->reply = n > 1 ? tokens[1].at : "";
}

/* ---- lines ---- */

struct get {
	const char *name;
	uint8_t len, bits;
	unsigned how;
};

static const struct get gets[] = {{"get ", 4, 0, 0},
				  {"gets ", 5, PX_CAS, GN_KV_DETAILS},
				  {"gat ", 4, 0, GN_KV_AND_TOUCH},
				  {"gats ", 5, PX_CAS, GN_KV_AND_TOUCH | GN_KV_DETAILS},
				  {"bget ", 5, 0, 0}};

static const struct get *find_get(const char *name)
{
	for (unsigned i = 0; i < sizeof(gets) / sizeof(gets[0]); i++)
		if (!strncmp(name, gets[i].name, gets[i].len))
			return &gets[i];
	return NULL;
}

size_t px_keys_of(const char *line, struct px_request *out)
{
	const struct get *get = &gets[0];
	size_t spaces = 0;

	if (memcmp(line, "get ", 4)) {
		while (line[spaces] == ' ')
			spaces++;
		get = find_get(line + spaces);
	}
	if (!get)
		return 0;
	out->kind = PX_KEYS;
	out->bits = get->bits;
	out->op.verb = GN_KV_GET;
	out->op.how = get->how;
	return spaces + get->len;
}

static void parse_keys(const char *line, size_t len, size_t *keys, const struct px_context *context,
		       struct px_request *out)
{
	char text[32];
	int32_t exptime;
	const char *key;
	size_t at = *keys, n;

	while (line[at] == ' ')
		at++;
	if (!line[at]) {
		text_reply(out, "ERROR");
		return;
	}
	if (out->op.how & GN_KV_AND_TOUCH) {
		n = px_key(line, len, &at, &key);
		*keys = at;
		n = n < sizeof(text) ? n : 0;
		memcpy(text, key, n);
		text[n] = 0;
		if (!px_i32(text, &exptime)) {
			text_reply(out, "CLIENT_ERROR invalid exptime argument");
			return;
		}
		out->op.ttl_s = px_ttl(exptime, context->now_s);
	}
	if (px_keys_too_long(line + *keys, len - *keys))
		text_reply(out, bad_line);
}

static void parse_other(struct px_token *tokens, unsigned n, const struct px_context *context,
			struct px_request *out)
{
	if (token_is(&tokens[0], "flush_all"))
		parse_flush(tokens, n, context, out);
	else if (token_is(&tokens[0], "version"))
		text_reply(out, "VERSION " PX_VERSION);
	else if (token_is(&tokens[0], "quit"))
		out->kind = PX_QUIT;
	else if (token_is(&tokens[0], "verbosity"))
		parse_verbosity(tokens, n, out);
	else if (token_is(&tokens[0], "stats"))
		parse_stats(tokens, n, out);
	else if (token_is(&tokens[0], "lru_crawler"))
		parse_lru_crawler(tokens, n, out);
	else if (token_is(&tokens[0], "shutdown"))
		text_reply(out, "ERROR: shutdown not enabled");
	else if (!strchr("gsacidt", tokens[0].at[0]) && !strncmp(tokens[n - 1].at, "HTTP/", 5))
		out->kind = PX_CLOSE; /* an HTTP client: close before it sends its body */
	else
		text_reply(out, "ERROR");
}

static void parse_command(struct px_token *tokens, unsigned n, const struct px_context *context,
			  struct px_request *out)
{
	static const struct {
		const char *name;
		enum gn_kv_verb verb;
	} stores[] = {{"set", GN_KV_SET},
		      {"add", GN_KV_ADD},
		      {"replace", GN_KV_REPLACE},
		      {"append", GN_KV_APPEND},
		      {"prepend", GN_KV_PREPEND}};

	for (unsigned i = 0; i < sizeof(stores) / sizeof(stores[0]); i++) {
		if (token_is(&tokens[0], stores[i].name)) {
			parse_store(tokens, n, stores[i].verb, false, context, out);
			return;
		}
	}
	if (token_is(&tokens[0], "cas"))
		parse_store(tokens, n, GN_KV_SET, true, context, out);
	else if (token_is(&tokens[0], "delete"))
		parse_delete(tokens, n, out);
	else if (token_is(&tokens[0], "incr"))
		parse_number(tokens, n, GN_KV_INCR, out);
	else if (token_is(&tokens[0], "decr"))
		parse_number(tokens, n, GN_KV_DECR, out);
	else if (token_is(&tokens[0], "touch"))
		parse_touch(tokens, n, context, out);
	else
		parse_other(tokens, n, context, out);
}

void px_parse(char *line, size_t len, const struct px_context *context, struct px_request *out,
	      size_t *keys)
{
	struct px_token tokens[PX_TOKENS_MAX];
	unsigned n;

	line[len] = 0;
	*keys = px_keys_of(line, out);
	if (*keys) {
		out->n_flags = 0;
		out->reply = NULL;
		out->op.ttl_s = 0;
		parse_keys(line, len, keys, context, out);
		return;
	}
	memset(out, 0, sizeof(*out));
	n = px_split(line, tokens);
	if (!n || tokens[0].len < 2)
		text_reply(out, "ERROR");
	else if (tokens[0].at[0] == 'm' && tokens[0].len == 2)
		px_parse_meta(tokens, n, context, out);
	else
		parse_command(tokens, n, context, out);
}

/* ---- responses ---- */

const char *px_error_text(const struct px_request *r)
{
	switch (r->op.status) {
	case GN_KV_NOT_NUMBER:
		return "CLIENT_ERROR cannot increment or decrement non-numeric value";
	case GN_KV_TOO_BIG:
		return "SERVER_ERROR object too large for cache";
	case GN_KV_NO_MEMORY:
		return "SERVER_ERROR out of memory storing object";
	case GN_KV_TIMEOUT:
		return "SERVER_ERROR the store does not respond";
	case GN_KV_GONE:
		return "SERVER_ERROR the store is not connected";
	case GN_KV_BUSY:
		return "SERVER_ERROR the store is busy";
	default:
		return "SERVER_ERROR the operation failed";
	}
}

/* The VALUE line of a get, the most frequent response. */
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

/* The response of a command that changes the store. */
static const char *status_text(const struct px_request *r)
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
		/* Existing and appended value are each within the limit. */
		if (r->op.verb == GN_KV_APPEND || r->op.verb == GN_KV_PREPEND)
			return "NOT_STORED";
		/* fall through */
	default:
		return px_error_text(r);
	}
}

static char *put_response(const struct px_request *r, char *at, bool *value)
{
	switch (r->kind) {
	case PX_VALUE:
		if (r->op.status != GN_KV_OK)
			return at;
		*value = true;
		return put_value(r, at);
	case PX_END:
		return stpcpy(at, r->reply ? r->reply : "END");
	case PX_REPLY_TEXT:
		return r->bits & PX_NOREPLY ? at : stpcpy(at, r->reply);
	case PX_DUMP:
		return stpcpy(at, px_error_text(r));
	case PX_STORE:
	case PX_DELETE:
	case PX_TOUCH:
		return r->bits & PX_NOREPLY ? at : stpcpy(at, status_text(r));
	case PX_NUMBER:
		if (r->bits & PX_NOREPLY)
			return at;
		return r->op.status == GN_KV_OK ? px_put_u64(at, r->op.number) :
						  stpcpy(at, status_text(r));
	default:
		return px_response_meta(r, at, value);
	}
}

size_t px_response(const struct px_request *r, char *out, bool *value)
{
	char *at;

	*value = false;
	at = put_response(r, out, value);
	if (at == out)
		return 0;
	*at++ = '\r';
	*at++ = '\n';
	return (size_t)(at - out);
}
