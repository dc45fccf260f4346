/* SPDX-License-Identifier: MIT */
/*
 * memcached's text and meta protocols, as memcached 1.6.18 speaks them: a line becomes a request
 * with an operation of the store in it, and a request whose operation has ended becomes an answer.
 * Nothing here reads, writes, allocates or keeps anything.
 */
#ifndef GN_PROXY_PROTOCOL_H
#define GN_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gannet/kv.h>

#define PX_LINE_MAX 2048u /* a longer line without an end is nonsense, unless it is a get */
#define PX_HEAD_MAX 1024u /* of an answer but for its value */
#define PX_WORDS    23u	  /* that are looked at, of a line that is no get */
/* What clients take it for, and what it is. */
#define PX_VERSION "1.6.18-gannet"
#define PX_SLACK   8u /* bytes after a line that may be looked at */

enum px_kind {
	PX_SAY,	 /* there is nothing to do but to say something */
	PX_KEYS, /* get and its like: keys follow, see px_key(); then each is a PX_VALUE */
	PX_VALUE,
	PX_END, /* … and this is their end, if the last was not known to be it */
	PX_STORE,
	PX_DELETE,
	PX_NUMBER,
	PX_TOUCH,
	PX_META_GET,
	PX_META_SET,
	PX_META_DELETE,
	PX_META_NUMBER,
	PX_META_DEBUG,
	PX_FLUSH, /* the store, in op.ttl_s seconds */
	PX_STATS, /* say: which */
	PX_DUMP,  /* keys: op.flags says how, enum px_dump_format, and op.number how many */
	PX_QUIT,
	PX_CLOSE, /* at once */
};

enum px_dump_format { PX_DUMP_META, PX_DUMP_ITEMS };

enum px_bit {
	PX_NOREPLY = 1 << 0,
	PX_CAS = 1 << 1,    /* gets, gats */
	PX_BASE64 = 1 << 2, /* the key came so */
	PX_DATA = 1 << 3,   /* op.value_len bytes follow, and CR LF */
	PX_SKIP = 1 << 4,   /* … that are of no use */
	PX_FORGET = 1 << 5, /* what is there under this key is outdated, though */
	PX_LAST = 1 << 6,   /* PX_VALUE: END follows */
};

struct px_request {
	uint8_t kind; /* enum px_kind */
	uint8_t bits; /* enum px_bit */
	uint8_t n_flags;
	uint32_t first_ttl_s; /* of a meta command: what the first of T and N says */
	const char *flags;    /* of a meta command: its words, with spaces or NULs between */
	const char *say;      /* without CR LF */
	struct gn_kv_op op;
};

struct px_context {
	int64_t now_s;	    /* since 1970 */
	uint32_t max_value; /* that the store takes */
};

/*
 * What the line asks for. It has len bytes without its end, is followed by PX_SLACK bytes, is
 * changed, and must stay as long as the request. After PX_KEYS the keys are to be taken from the
 * line, which is unchanged, from the offset *keys on.
 */
void px_parse(char *line, size_t len, const struct px_context *context, struct px_request *out,
	      size_t *keys);

/*
 * Is it get or its like, which may have any number of keys? Where those begin, or 0. Of out only
 * what they need is set.
 */
size_t px_keys_of(const char *line, struct px_request *out);

/*
 * The next key of text from *at on, which is moved behind it: how long it is, 0 when there are no
 * more. It may be too long for the store.
 */
size_t px_key(const char *text, size_t len, size_t *at, const char **key);

/* Is a key of that line too long? */
bool px_keys_bad(const char *text, size_t len);

/*
 * The answer, but for the value: its length, at most PX_HEAD_MAX. *value: op.len bytes of op.room
 * and CR LF follow.
 */
size_t px_answer(const struct px_request *request, char *out, bool *value);

/* Seconds to live from what clients say: seconds, 0, negative, or since 1970. */
uint32_t px_ttl(int32_t exptime, int64_t now_s);

/* ---- their parts ---- */

struct px_word {
	char *at;
	uint32_t len;
};

/* Words of a text with a NUL at its end: at most PX_WORDS, each with a NUL behind it. */
unsigned px_split(char *text, struct px_word *words);

/* Numbers as memcached reads them: with strtol() and so on, up to a space or the end. */
bool px_i32(const char *text, int32_t *out);
bool px_u32(const char *text, uint32_t *out);
bool px_u64(const char *text, uint64_t *out);
/* Writes it in digits: behind the last one. */
char *px_put_u64(char *at, uint64_t value);

size_t px_base64_encode(const void *from, size_t len, char *to);
/* How many bytes; 0: it is no base64. to may be from. */
size_t px_base64_decode(const char *from, size_t len, void *to);

void px_parse_meta(struct px_word *words, unsigned n, const struct px_context *context,
		   struct px_request *out);
char *px_answer_meta(const struct px_request *request, char *at, bool *value);

/* For an operation that could not be done. */
const char *px_failure(const struct px_request *request);

#endif
