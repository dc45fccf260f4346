/* SPDX-License-Identifier: MIT */
/* Between the files of the requester: requester.c, and repeat.c, which asks again what is lost. */
#ifndef GN_MSG_REQUESTER_H
#define GN_MSG_REQUESTER_H

#include "msg/end.h"

/* Places, first in first out. */
struct msg_fifo {
	uint16_t *places;
	uint32_t first, n;
};

/* A datagram that is under way. */
struct msg_asked {
	uint64_t at_ns, due_ns; /* when it was asked, and is to be asked again */
	uint32_t number, length;
	uint16_t tries;
	bool under_way;
	bool lost;
};

struct gn_msg_conn {
	struct gn_msg_requester *requester;
	struct msg_end *end;
	uint64_t *ids; /* of what is asked in each place */
	uint32_t under_way;
	uint64_t data_bytes;
	/* Datagrams: */
	struct msg_asked *asked;     /* of each place */
	struct msg_fifo idle, ready; /* places to ask in, and with results to be taken */
};

struct gn_msg_requester {
	struct msg_desk desk;
	struct gn_msg_requester_opts opts;
	uint32_t under_way;
	unsigned first; /* connection to be looked at first */
	/* Datagrams: */
	uint64_t due_ns;  /* look whether something must be asked again */
	uint64_t trip_ns; /* from a request to its answer, as of late */
};

void msg_requester_result(struct gn_msg_conn *conn, uint32_t at, enum gn_msg_status status,
			  uint32_t len, const void *value, struct gn_msg_result *out);

/* ---- repeat.c ---- */

int msg_requester_places(struct gn_msg_conn *conn);
int msg_requester_ask(struct gn_msg_conn *conn, const void *request, uint32_t len, uint64_t id);
unsigned msg_requester_take(struct gn_msg_conn *conn, struct gn_msg_result *out, unsigned n);
/* Asks again what has not been answered in time, if it is time to look. */
void msg_requester_repeat(struct gn_msg_requester *requester);
int msg_requester_wait(struct gn_msg_requester *requester, uint64_t deadline_ns);
void msg_requester_datagram(struct msg_end *end, const struct msg_datagram *head,
			    const uint8_t *data);

#endif
