/* SPDX-License-Identifier: MIT */
/*
 * memcached's text commands, its meta commands, and Redis' protocol (RESP2), as far as storing and
 * getting goes. What is stored goes before what is asked for, so that a batch without
 * acknowledgements still ends with an answer.
 */
#include "socket_wire.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <gannet/base.h>

#define FRAME_BYTES 64u	 /* of a command around its key and value, more than enough */
#define LINE_BYTES  512u /* of an answer: "VALUE ", a key, numbers; or an error's words */

const char *const bench_socket_protocols[BENCH_SOCKET_PROTOCOLS + 1] = {"memcached", "meta",
									"redis"};

size_t wire_out_bytes(const struct bench_socket_opts *opts, uint32_t n)
{
	return ((size_t)opts->key_bytes + opts->value_bytes + FRAME_BYTES) * n + FRAME_BYTES;
}

size_t wire_unit_bytes(const struct bench_socket_opts *opts)
{
	return LINE_BYTES + opts->value_bytes + 2;
}

/* ---- what is said ---- */

static char *put_text(char *to, const char *text)
{
	const size_t len = strlen(text);

	memcpy(to, text, len);
	return to + len;
}

static char *put_number(char *to, uint32_t n)
{
	char digits[10];
	unsigned at = sizeof(digits);

	do {
		digits[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	memcpy(to, digits + at, sizeof(digits) - at);
	return to + sizeof(digits) - at;
}

static char *put_key(const struct wire *wire, char *to, uint32_t number)
{
	keys_name(to, wire->opts->key_bytes, number);
	return to + wire->opts->key_bytes;
}

static char *put_value(const struct wire *wire, char *to, uint32_t number)
{
	keys_value_fill((uint8_t *)to, wire->opts->value_bytes, number,
			(uint32_t)choice_word(wire->choice));
	return put_text(to + wire->opts->value_bytes, "\r\n");
}

static char *put_bulk(char *to, uint32_t len)
{
	*to++ = '$';
	return put_text(put_number(to, len), "\r\n");
}

static char *put_array(char *to, uint32_t n, const char *command)
{
	*to++ = '*';
	to = put_text(put_number(to, n), "\r\n");
	to = put_bulk(to, (uint32_t)strlen(command));
	return put_text(put_text(to, command), "\r\n");
}

static void expect_replies(struct batch *batch, bool store, uint32_t first, uint32_t n)
{
	batch->pending[batch->n_pending++] =
		(struct pending){.store = store, .first = first, .n = n};
}

static char *put_stores(const struct wire *wire, struct batch *batch, char *to, bool quiet)
{
	const bool meta = wire->opts->protocol == BENCH_SOCKET_META;

	for (uint32_t i = 0; i < batch->n_puts; i++) {
		/* Without replies to the others, the last reply shows that all are done. */
		const bool silent = quiet && (batch->n_gets || i + 1 < batch->n_puts);

		to = put_key(wire, put_text(to, meta ? "ms " : "set "), batch->puts[i]);
		to = put_text(to, meta ? " " : " 0 0 ");
		to = put_number(to, wire->opts->value_bytes);
		if (silent)
			to = put_text(to, meta ? " q" : " noreply");
		to = put_value(wire, put_text(to, "\r\n"), batch->puts[i]);
		if (!silent)
			expect_replies(batch, true, 0, 0);
	}
	return to;
}

static char *put_gets(const struct wire *wire, struct batch *batch, char *to)
{
	const bool meta = wire->opts->protocol == BENCH_SOCKET_META;
	const uint32_t many = meta ? 1 : wire->opts->multiget;

	for (uint32_t first = 0; first < batch->n_gets; first += many) {
		const uint32_t left = batch->n_gets - first, n = left < many ? left : many;

		to = put_text(to, meta ? "mg" : "get");
		for (uint32_t i = first; i < first + n; i++) {
			*to++ = ' ';
			to = put_key(wire, to, batch->gets[i]);
		}
		to = put_text(to, meta ? " v\r\n" : "\r\n");
		expect_replies(batch, false, first, n);
	}
	return to;
}

static char *put_redis_key(const struct wire *wire, char *to, uint32_t number)
{
	to = put_bulk(to, wire->opts->key_bytes);
	return put_text(put_key(wire, to, number), "\r\n");
}

static char *put_redis_stores(const struct wire *wire, struct batch *batch, char *to)
{
	const uint32_t many = wire->opts->multiget;

	for (uint32_t first = 0; first < batch->n_puts; first += many) {
		const uint32_t left = batch->n_puts - first, n = left < many ? left : many;

		to = put_array(to, 1 + 2 * n, n > 1 ? "MSET" : "SET");
		for (uint32_t i = first; i < first + n; i++) {
			to = put_redis_key(wire, to, batch->puts[i]);
			to = put_bulk(to, wire->opts->value_bytes);
			to = put_value(wire, to, batch->puts[i]);
		}
		expect_replies(batch, true, 0, 0);
	}
	return to;
}

static char *put_redis_gets(const struct wire *wire, struct batch *batch, char *to)
{
	const uint32_t many = wire->opts->multiget;

	for (uint32_t first = 0; first < batch->n_gets; first += many) {
		const uint32_t left = batch->n_gets - first, n = left < many ? left : many;

		to = put_array(to, 1 + n, n > 1 ? "MGET" : "GET");
		for (uint32_t i = first; i < first + n; i++)
			to = put_redis_key(wire, to, batch->gets[i]);
		expect_replies(batch, false, first, n);
	}
	return to;
}

void wire_write(const struct wire *wire, struct batch *batch, bool acknowledge)
{
	char *to = batch->out;

	batch->n_pending = batch->answered = batch->next = batch->hits = 0;
	batch->begun = false;
	if (wire->opts->protocol == BENCH_SOCKET_REDIS) {
		to = put_redis_stores(wire, batch, to);
		to = put_redis_gets(wire, batch, to);
	} else {
		to = put_stores(wire, batch, to, wire->opts->noreply && !acknowledge);
		to = put_gets(wire, batch, to);
	}
	batch->out_len = (size_t)(to - batch->out);
}

/* ---- what is heard ---- */

/* An answer that is none: the first of its bytes, as far as they can be printed. */
static long wire_complain(const struct wire *wire, const char *what, const char *in, size_t len)
{
	char shown[64];
	size_t n = 0;

	while (n < len && n < sizeof(shown) - 1 && isprint((unsigned char)in[n])) {
		shown[n] = in[n];
		n++;
	}
	shown[n] = '\0';
	gn_log(GN_LOG_ERROR, "%s at %s %s: '%s'", bench_socket_protocols[wire->opts->protocol],
	       wire->opts->connect, what, shown);
	return -EBADMSG;
}

/* The length of a line with its end, 0 if that has not come. */
static size_t line_bytes(const char *in, size_t len)
{
	const char *end = memchr(in, '\n', len);

	return end ? (size_t)(end - in) + 1 : 0;
}

static bool line_is(const char *in, size_t line, const char *word)
{
	const size_t len = strlen(word);

	return line == len + 2 && !memcmp(in, word, len);
}

static void end_command(struct batch *batch)
{
	batch->answered++;
	batch->begun = false;
	if (batch->answered < batch->n_pending)
		batch->next = batch->pending[batch->answered].first;
}

/* What follows a line: a value of this key. The whole unit's length, or 0, or -EBADMSG. */
static long take_value(const struct wire *wire, struct batch *batch, const char *in, size_t len,
		       size_t line, uint32_t number)
{
	const size_t unit = line + wire->opts->value_bytes + 2;

	if (len < unit)
		return 0;
	if (!keys_value_is_right((const uint8_t *)in + line, wire->opts->value_bytes, number) ||
	    memcmp(in + unit - 2, "\r\n", 2))
		return wire_complain(wire, "sent a wrong value after", in, line);
	batch->hits++;
	return (long)unit;
}

/* The decimal number at *at, which moves behind it; -1 if there is none. */
static long take_number(const char **at, const char *end)
{
	long n = 0;
	const char *from = *at;

	while (*at < end && isdigit((unsigned char)**at) && n < (1l << 40))
		n = 10 * n + (*(*at)++ - '0');
	return *at == from ? -1 : n;
}

/* "VALUE key flags bytes": of the next key that is there; those before it are not. */
static long read_value_line(const struct wire *wire, struct batch *batch, const struct pending *p,
			    const char *in, size_t len, size_t line)
{
	const uint32_t key_bytes = wire->opts->key_bytes;
	const char *at = in + 6 + key_bytes + 3, *end = in + line;
	char name[BENCH_SOCKET_KEY_MAX];
	uint32_t next = batch->next;
	long rc;

	if (line < 6 + key_bytes + 3 || memcmp(in + 6 + key_bytes, " 0 ", 3) ||
	    take_number(&at, end) != wire->opts->value_bytes)
		return wire_complain(wire, "sent", in, line);
	for (;; next++) {
		if (next == p->first + p->n)
			return wire_complain(wire, "sent what was not asked for", in, line);
		keys_name(name, key_bytes, batch->gets[next]);
		if (!memcmp(name, in + 6, key_bytes))
			break;
	}
	rc = take_value(wire, batch, in, len, line, batch->gets[next]);
	if (rc > 0)
		batch->next = next + 1;
	return rc;
}

static long read_memcached(const struct wire *wire, struct batch *batch, const struct pending *p,
			   const char *in, size_t len, size_t line)
{
	if (p->store) {
		if (!line_is(in, line, "STORED"))
			return wire_complain(wire, "did not store, but replied", in, line);
		end_command(batch);
		return (long)line;
	}
	if (line_is(in, line, "END")) {
		end_command(batch);
		return (long)line;
	}
	if (line > 6 && !memcmp(in, "VALUE ", 6))
		return read_value_line(wire, batch, p, in, len, line);
	return wire_complain(wire, "did not get, but replied", in, line);
}

static long read_meta(const struct wire *wire, struct batch *batch, const struct pending *p,
		      const char *in, size_t len, size_t line)
{
	const char *at = in + 3;
	long rc = (long)line;

	if (p->store) {
		if (!line_is(in, line, "HD"))
			return wire_complain(wire, "did not store, but replied", in, line);
	} else if (line > 3 && !memcmp(in, "VA ", 3)) {
		if (take_number(&at, in + line) != wire->opts->value_bytes)
			return wire_complain(wire, "sent", in, line);
		rc = take_value(wire, batch, in, len, line, batch->gets[p->first]);
	} else if (!line_is(in, line, "EN")) {
		return wire_complain(wire, "did not get, but replied", in, line);
	}
	if (rc > 0)
		end_command(batch);
	return rc;
}

/* "*64", once before the values of one MGET. */
static long read_array(const struct wire *wire, struct batch *batch, const struct pending *p,
		       const char *in, size_t line)
{
	const char *at = in + 1;

	if (*in != '*' || take_number(&at, in + line) != p->n)
		return wire_complain(wire, "did not get, but replied", in, line);
	batch->begun = true;
	return (long)line;
}

static long read_redis(const struct wire *wire, struct batch *batch, const struct pending *p,
		       const char *in, size_t len, size_t line)
{
	const char *at = in + 1;
	long rc = (long)line;

	if (p->store) {
		if (!line_is(in, line, "+OK"))
			return wire_complain(wire, "did not store, but replied", in, line);
		end_command(batch);
		return rc;
	}
	if (p->n > 1 && !batch->begun)
		return read_array(wire, batch, p, in, line);
	if (!line_is(in, line, "$-1")) {
		if (*in != '$' || take_number(&at, in + line) != wire->opts->value_bytes)
			return wire_complain(wire, "did not get, but replied", in, line);
		rc = take_value(wire, batch, in, len, line, batch->gets[batch->next]);
	}
	if (rc > 0 && ++batch->next == p->first + p->n)
		end_command(batch);
	return rc;
}

long wire_read(const struct wire *wire, struct batch *batch, const char *in, size_t len)
{
	const size_t line = line_bytes(in, len);
	const struct pending *p = &batch->pending[batch->answered];

	if (!line)
		return len < LINE_BYTES ? 0 : wire_complain(wire, "sent", in, len);
	if (batch->answered == batch->n_pending)
		return wire_complain(wire, "sent what was not asked for", in, line);
	switch (wire->opts->protocol) {
	case BENCH_SOCKET_MEMCACHED:
		return read_memcached(wire, batch, p, in, len, line);
	case BENCH_SOCKET_META:
		return read_meta(wire, batch, p, in, len, line);
	default:
		return read_redis(wire, batch, p, in, len, line);
	}
}
