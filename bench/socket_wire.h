/* SPDX-License-Identifier: MIT */
/*
 * The wire formats of other stores: a batch of operations as text, and its replies. socket_run.c
 * sends and receives the bytes.
 */
#ifndef GN_BENCH_SOCKET_WIRE_H
#define GN_BENCH_SOCKET_WIRE_H

#include "keys.h"
#include "socket.h"

/* A command that will be answered: it stored something, or asked for some of a batch's keys. */
struct pending {
	bool store;
	uint32_t first, n; /* of struct batch's gets */
};

struct batch {
	uint32_t *gets, *puts; /* numbers of keys */
	uint32_t n_gets, n_puts;
	struct pending *pending;
	uint32_t n_pending;
	char *out;
	size_t out_len;
	/* the answers so far */
	uint32_t answered; /* commands */
	uint32_t next;	   /* GET that the next value can belong to */
	bool begun;	   /* Redis: how many values will come has come */
	uint32_t hits;
};

struct wire {
	const struct bench_socket_opts *opts;
	struct choice *choice;
};

/* Room for a batch: of n operations, of which any may be a GET. */
size_t wire_out_bytes(const struct bench_socket_opts *opts, uint32_t n);
/* Nothing that is answered is longer: a value, or a line. */
size_t wire_unit_bytes(const struct bench_socket_opts *opts);

/* Make the text, and what is expected, from gets and puts. acknowledge: whatever noreply says. */
void wire_write(const struct wire *wire, struct batch *batch, bool acknowledge);

/*
 * Take one unit of what has come: how many bytes it was, 0 if it is not all there, or -EBADMSG,
 * logged. batch->answered reaches n_pending when all is answered.
 */
long wire_read(const struct wire *wire, struct batch *batch, const char *in, size_t len);

#endif
