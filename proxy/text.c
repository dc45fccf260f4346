/* SPDX-License-Identifier: MIT */
/*
 * The text protocol: lines.
 */
#include <string.h>

#include "protocol.h"

#define DAYS_30	    (30 * 24 * 3600)
#define CLASSES_MAX 64u /* memcached has no more slab classes */

static const char bad_line[] = "CLIENT_ERROR bad command line format";

/* ---- words and keys ---- */

unsigned px_split(char *text, struct px_word *words)
{
	unsigned n = 0;

	while (n < PX_WORDS) {
		char *end;

		while (*text == ' ')
			text++;
		if (!*text)
			break;
		end = strchrnul(text, ' ');
		words[n].at = text;
		words[n++].len = (uint32_t)(end - text);
		if (!*end)
			break;
		*end = 0;
		text = end + 1;
	}
	return n;
}

/* A byte of 0x20 or less, the lowest such, has its upper bit set in the result. */
static inline uint64_t find_blank(uint64_t x)
{
	return (x - 0x2121212121212121u) & ~x & 0x8080808080808080u;
}

/* From at on, the first byte that may end a word: eight at a time, because keys are most of it. */
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
	/* Only spaces and a NUL end a word; other control characters are part of it. */
	for (to = skip_word(text, len, from); to < len && text[to] != ' ' && text[to];)
		to = skip_word(text, len, to + 1);
	*at = to < len && !text[to] ? len : to;
	*key = text + from;
	return to - from;
}

/* Of each stretch that begins with a word, the last space says where the next begins. */
bool px_keys_bad(const char *text, size_t len)
{
	const char *nul = len > GN_KV_KEY_MAX ? memchr(text, 0, len) : NULL;
	size_t at = 0;

	if (nul) /* what follows is no key */
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

static void say(struct px_request *out, const char *text)
{
	out->kind = PX_SAY;
	out->say = text;
}

static bool is(const struct px_word *word, const char *text)
{
	return !strcmp(word->at, text);
}

static void note_noreply(const struct px_word *words, unsigned n, struct px_request *out)
{
	if (is(&words[n - 1], "noreply"))
		out->bits |= PX_NOREPLY;
}

/* False: it is no key, and so it was said. */
static bool take_key(const struct px_word *word, struct px_request *out)
{
	if (word->len > GN_KV_KEY_MAX) {
		say(out, bad_line);
		return false;
	}
	out->op.key = word->at;
	out->op.key_len = word->len;
	return true;
}

static void store(struct px_word *words, unsigned n, enum gn_kv_verb verb, bool cas,
		  const struct px_context *context, struct px_request *out)
{
	int32_t exptime, len;

	if (n != 5u + cas && n != 6u + cas) {
		say(out, "ERROR");
		return;
	}
	note_noreply(words, n, out);
	if (!take_key(&words[1], out))
		return;
	if (!px_u32(words[2].at, &out->op.flags) || !px_i32(words[3].at, &exptime) ||
	    !px_i32(words[4].at, &len) || (cas && !px_u64(words[5].at, &out->op.cas)) || len < 0 ||
	    len > INT32_MAX - 2) {
		say(out, bad_line);
		return;
	}
	out->kind = PX_STORE;
	out->bits |= PX_DATA;
	out->op.verb = verb;
	out->op.how = cas ? GN_KV_IF_CAS : 0;
	out->op.ttl_s = px_ttl(exptime, context->now_s);
	out->op.value_len = (uint32_t)len;
	if ((uint32_t)len > context->max_value) {
		say(out, "SERVER_ERROR object too large for cache");
		out->bits |= PX_SKIP | (verb == GN_KV_SET && !cas ? PX_FORGET : 0);
	}
}

static void delete (struct px_word *words, unsigned n, struct px_request *out)
{
	if (n < 2 || n > 4) {
		say(out, "ERROR");
		return;
	}
	if (n > 2) {
		const bool zero = is(&words[2], "0");

		note_noreply(words, n, out);
		if (n == 3 ? !zero && !(out->bits & PX_NOREPLY) :
			     !zero || !(out->bits & PX_NOREPLY)) {
			say(out, "CLIENT_ERROR bad command line format.  "
				 "Usage: delete <key> [noreply]");
			return;
		}
	}
	if (!take_key(&words[1], out))
		return;
	out->kind = PX_DELETE;
	out->op.verb = GN_KV_DELETE;
}

static void number(struct px_word *words, unsigned n, enum gn_kv_verb verb, struct px_request *out)
{
	if (n != 3 && n != 4) {
		say(out, "ERROR");
		return;
	}
	note_noreply(words, n, out);
	if (!take_key(&words[1], out))
		return;
	if (!px_u64(words[2].at, &out->op.number)) {
		say(out, "CLIENT_ERROR invalid numeric delta argument");
		return;
	}
	out->kind = PX_NUMBER;
	out->op.verb = verb;
}

static void touch(struct px_word *words, unsigned n, const struct px_context *context,
		  struct px_request *out)
{
	int32_t exptime;

	if (n != 3 && n != 4) {
		say(out, "ERROR");
		return;
	}
	note_noreply(words, n, out);
	if (!take_key(&words[1], out))
		return;
	if (!px_i32(words[2].at, &exptime)) {
		say(out, "CLIENT_ERROR invalid exptime argument");
		return;
	}
	out->kind = PX_TOUCH;
	out->op.verb = GN_KV_TOUCH;
	out->op.ttl_s = px_ttl(exptime, context->now_s);
}

static void flush(struct px_word *words, unsigned n, const struct px_context *context,
		  struct px_request *out)
{
	int32_t exptime = 0;

	if (n > 3) {
		say(out, "ERROR");
		return;
	}
	note_noreply(words, n, out);
	if (n != (out->bits & PX_NOREPLY ? 2 : 1) && !px_i32(words[1].at, &exptime)) {
		say(out, "CLIENT_ERROR invalid exptime argument");
		return;
	}
	out->kind = PX_FLUSH;
	out->op.ttl_s = exptime > 0 ? px_ttl(exptime, context->now_s) : 0;
	if (out->op.ttl_s == GN_KV_TTL_PAST)
		out->op.ttl_s = 0;
}

static void verbosity(struct px_word *words, unsigned n, struct px_request *out)
{
	uint32_t level;

	if (n != 2 && n != 3) {
		say(out, "ERROR");
		return;
	}
	note_noreply(words, n, out);
	say(out, px_u32(words[1].at, &level) ? "OK" : bad_line);
}

static void detail(struct px_word *words, unsigned n, struct px_request *out)
{
	static const char *const known[] = {"detail on", "detail off", "detail dump"};

	out->kind = PX_STATS;
	for (unsigned i = 0; n > 2 && i < sizeof(known) / sizeof(known[0]); i++) {
		out->say = known[i];
		if (is(&words[2], known[i] + strlen("detail ")))
			return;
	}
	say(out, "CLIENT_ERROR usage: stats detail on|off|dump");
}

/* All items are of class 1. */
static void cachedump(struct px_word *words, unsigned n, struct px_request *out)
{
	uint32_t class, limit;

	if (n < 4)
		say(out, "CLIENT_ERROR bad command line");
	else if (!px_u32(words[2].at, &class) || !px_u32(words[3].at, &limit))
		say(out, bad_line);
	else if (class >= CLASSES_MAX)
		say(out, "CLIENT_ERROR Illegal slab id");
	else if (class != 1)
		say(out, "END");
	else {
		out->kind = PX_DUMP;
		out->op.flags = PX_DUMP_ITEMS;
		out->op.number = limit;
	}
}

static void lru_crawler(struct px_word *words, unsigned n, struct px_request *out)
{
	if (n != 3 || !is(&words[1], "metadump")) {
		say(out, "ERROR");
	} else if (!is(&words[2], "all") && !is(&words[2], "hash") && !is(&words[2], "1")) {
		say(out, "BADCLASS invalid class id");
	} else {
		out->kind = PX_DUMP;
		out->op.flags = PX_DUMP_META;
	}
}

static void stats(struct px_word *words, unsigned n, struct px_request *out)
{
	if (n > 1 && is(&words[1], "detail")) {
		detail(words, n, out);
		return;
	}
	if (n > 1 && is(&words[1], "cachedump")) {
		cachedump(words, n, out);
		return;
	}
	out->kind = PX_STATS;
	out->say = n > 1 ? words[1].at : "";
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

static void keys_begin(const char *line, size_t len, size_t *keys, const struct px_context *context,
		       struct px_request *out)
{
	char text[32];
	int32_t exptime;
	const char *key;
	size_t at = *keys, n;

	while (line[at] == ' ')
		at++;
	if (!line[at]) {
		say(out, "ERROR");
		return;
	}
	if (out->op.how & GN_KV_AND_TOUCH) {
		n = px_key(line, len, &at, &key);
		*keys = at;
		n = n < sizeof(text) ? n : 0;
		memcpy(text, key, n);
		text[n] = 0;
		if (!px_i32(text, &exptime)) {
			say(out, "CLIENT_ERROR invalid exptime argument");
			return;
		}
		out->op.ttl_s = px_ttl(exptime, context->now_s);
	}
	if (px_keys_bad(line + *keys, len - *keys))
		say(out, bad_line);
}

static void rest(struct px_word *words, unsigned n, const struct px_context *context,
		 struct px_request *out)
{
	if (is(&words[0], "flush_all"))
		flush(words, n, context, out);
	else if (is(&words[0], "version"))
		say(out, "VERSION " PX_VERSION);
	else if (is(&words[0], "quit"))
		out->kind = PX_QUIT;
	else if (is(&words[0], "verbosity"))
		verbosity(words, n, out);
	else if (is(&words[0], "stats"))
		stats(words, n, out);
	else if (is(&words[0], "lru_crawler"))
		lru_crawler(words, n, out);
	else if (is(&words[0], "shutdown"))
		say(out, "ERROR: shutdown not enabled");
	else if (!strchr("gsacidt", words[0].at[0]) && !strncmp(words[n - 1].at, "HTTP/", 5))
		out->kind = PX_CLOSE; /* somebody's browser, or worse: let it not try its body */
	else
		say(out, "ERROR");
}

static void command(struct px_word *words, unsigned n, const struct px_context *context,
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
		if (is(&words[0], stores[i].name)) {
			store(words, n, stores[i].verb, false, context, out);
			return;
		}
	}
	if (is(&words[0], "cas"))
		store(words, n, GN_KV_SET, true, context, out);
	else if (is(&words[0], "delete"))
		delete (words, n, out);
	else if (is(&words[0], "incr"))
		number(words, n, GN_KV_INCR, out);
	else if (is(&words[0], "decr"))
		number(words, n, GN_KV_DECR, out);
	else if (is(&words[0], "touch"))
		touch(words, n, context, out);
	else
		rest(words, n, context, out);
}

void px_parse(char *line, size_t len, const struct px_context *context, struct px_request *out,
	      size_t *keys)
{
	struct px_word words[PX_WORDS];
	unsigned n;

	line[len] = 0;
	*keys = px_keys_of(line, out);
	if (*keys) {
		out->n_flags = 0;
		out->say = NULL;
		out->op.ttl_s = 0;
		keys_begin(line, len, keys, context, out);
		return;
	}
	memset(out, 0, sizeof(*out));
	n = px_split(line, words);
	if (!n || words[0].len < 2)
		say(out, "ERROR");
	else if (words[0].at[0] == 'm' && words[0].len == 2)
		px_parse_meta(words, n, context, out);
	else
		command(words, n, context, out);
}
