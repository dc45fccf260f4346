/* SPDX-License-Identifier: MIT */
/*
 * memcached's text and meta protocols, as in memcached 1.6.18: a line is parsed into a request with
 * an operation of the store, and a completed request is formatted as a response. Nothing here
 * reads, writes, allocates or keeps state.
 */
#ifndef GN_PROXY_PROTOCOL_H
#define GN_PROXY_PROTOCOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gannet/kv.h>

#define PX_LINE_MAX   2048u /* a longer line without an end is invalid, unless it is a get */
#define PX_HEAD_MAX   1024u /* of a response without its value */
#define PX_TOKENS_MAX 23u   /* parsed from a line that is not a get */
/* The version reported to clients. */
#define PX_VERSION "1.6.18-gannet"
#define PX_SLACK   8u /* readable bytes required behind a line */

enum px_kind {
	PX_REPLY_TEXT, /* reply with a fixed text */
	PX_KEYS,       /* get and similar: keys follow, see px_key(); each becomes a PX_VALUE */
	PX_VALUE,
	PX_END, /* … their end, if the last key was not known to be the last */
	PX_STORE,
	PX_DELETE,
	PX_NUMBER,
	PX_TOUCH,
	PX_META_GET,
	PX_META_SET,
	PX_META_DELETE,
	PX_META_NUMBER,
	PX_META_DEBUG,
	PX_FLUSH, /* clear the store, after op.ttl_s seconds */
	PX_STATS, /* reply: which statistics */
	PX_DUMP,  /* list keys: op.flags is enum px_dump_format, op.number the limit */
	PX_QUIT,
	PX_CLOSE, /* close at once */
};

enum px_dump_format { PX_DUMP_META, PX_DUMP_ITEMS };

enum px_bit {
	PX_NOREPLY = 1 << 0,
	PX_CAS = 1 << 1,	/* gets, gats */
	PX_BASE64 = 1 << 2,	/* the key was sent in base64 */
	PX_DATA = 1 << 3,	/* op.value_len bytes follow, and CR LF */
	PX_SKIP = 1 << 4,	/* … to be skipped */
	PX_DELETE_OLD = 1 << 5, /* delete the existing value of this key */
	PX_LAST = 1 << 6,	/* PX_VALUE: END follows */
};

struct px_request {
	uint8_t kind;
	uint8_t bits; /* enum px_bit, ORed */
	uint8_t n_flags;
	uint32_t first_ttl_s; /* meta command: the value of the first of T and N */
	const char *flags;    /* meta command: its flags, separated by spaces or NULs */
	const char *reply;    /* without CR LF */
	struct gn_kv_op op;
};

struct px_context {
	int64_t now_s;	    /* since 1970 */
	uint32_t max_value; /* limit of the store */
};

/*
 * Parses a line of len bytes without its end. The line must be followed by PX_SLACK bytes; it is
 * modified and must stay valid as long as the request. After PX_KEYS the keys are in the unmodified
 * line, from the offset *keys on.
 */
void px_parse(char *line, size_t len, const struct px_context *context, struct px_request *out,
	      size_t *keys);

/*
 * Is it a get or similar, with any number of keys? Returns the offset of the keys, or 0. Sets only
 * the members of out that keys need.
 */
size_t px_keys_of(const char *line, struct px_request *out);

/*
 * Finds the next key of text from *at on and advances *at. Returns its length, 0 at the end. The
 * key may be too long for the store.
 */
size_t px_key(const char *text, size_t len, size_t *at, const char **key);

/* Is a key of this line too long? */
bool px_keys_too_long(const char *text, size_t len);

/*
 * Formats the response without its value. Returns its length, at most PX_HEAD_MAX. *value: op.len
 * bytes of op.room and CR LF follow.
 */
size_t px_response(const struct px_request *request, char *out, bool *value);

/* The time to live of a client's exptime: seconds, 0, negative, or since 1970. */
uint32_t px_ttl(int32_t exptime, int64_t now_s);

/* ---- parts of both protocols ---- */

struct px_token {
	char *at;
	uint32_t len;
};

/* Splits a NUL-terminated text into at most PX_TOKENS_MAX tokens, each NUL-terminated. */
unsigned px_split(char *text, struct px_token *tokens);

/* Parse numbers as memcached does: with strtol() etc., up to a space or the end. */
bool px_i32(const char *text, int32_t *out);
bool px_u32(const char *text, uint32_t *out);
bool px_u64(const char *text, uint64_t *out);
/* Writes decimal digits; returns the position behind them. */
char *px_put_u64(char *at, uint64_t value);

size_t px_base64_encode(const void *from, size_t len, char *to);
/* Returns the number of bytes; 0: invalid. to may be from. */
size_t px_base64_decode(const char *from, size_t len, void *to);

void px_parse_meta(struct px_token *tokens, unsigned n, const struct px_context *context,
		   struct px_request *out);
char *px_response_meta(const struct px_request *request, char *at, bool *value);

/* The error text of an operation that failed. */
const char *px_error_text(const struct px_request *request);

#endif
