/* SPDX-License-Identifier: MIT */
/*
 * One connection to a server: a batch at a time, written as far as the socket takes it, and answers
 * taken as far as they have come. Nothing here waits.
 */
#ifndef GN_BENCH_SOCKET_CONN_H
#define GN_BENCH_SOCKET_CONN_H

#include "socket_wire.h"

struct conn {
	int fd;
	struct batch batch;
	bool busy;    /* a batch is under way */
	bool writing; /* and not all of it is written: watch for room */
	size_t written;
	char *in;
	size_t in_size, in_len;
	uint64_t since_ns;
};

/* For batches of up to n operations. */
int conn_open(struct conn *conn, const struct bench_socket_opts *opts, uint32_t n);
/* Also one that was never opened, if fd is -1 and the rest is zero. */
void conn_close(struct conn *conn);

/* Send batch.gets and batch.puts. -errno, logged. */
int conn_begin(struct conn *conn, const struct wire *wire, bool acknowledge);
/* Write what is left. */
int conn_write(struct conn *conn, const struct wire *wire);
/* Read what has come; not busy any more when all is answered. */
int conn_read(struct conn *conn, const struct wire *wire);

#endif
