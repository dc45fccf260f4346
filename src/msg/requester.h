/* SPDX-License-Identifier: MIT */
/* Between the files of the requester: requester.c, and repeat.c, which repeats datagrams. */
#ifndef GN_MSG_REQUESTER_H
#define GN_MSG_REQUESTER_H

#include "msg/end.h"

/* Places, first in first out. */
struct msg_fifo {
	uint16_t *places;
	uint32_t first, n;
};

/* A request that was sent as a datagram. */
struct msg_asked {
	uint64_t first_ns, last_ns;	 /* when the first and the last copy were sent */
	uint64_t repeat_ns, deadline_ns; /* when it is repeated, and given up */
	uint64_t timeout_ns;		 /* of the last copy */
	uint32_t number, length;
	uint32_t repeats;
	bool under_way;
	bool lost;
};

/* The round trip to a peer (RFC 6298), and how long its answers are waited for now. */
struct msg_rtt {
	uint64_t smoothed_ns, variation_ns; /* 0: not measured yet */
	uint64_t timeout_ns;		    /* of the next request; doubled by each repeat */
};

struct gn_msg_conn {
	struct gn_msg_requester *requester;
	struct msg_end *end;
	uint64_t *ids; /* of what is asked in each place */
	uint32_t under_way;
	uint64_t data_bytes;
	const char *refusal; /* in words, or NULL */
	/* Datagrams: */
	struct msg_asked *asked;     /* of each place */
	struct msg_fifo idle, ready; /* places to ask in, and with results to be taken */
	struct msg_rtt rtt;
};

struct gn_msg_requester {
	struct msg_desk desk;
	struct gn_msg_requester_opts opts;
	uint32_t under_way;
	unsigned first;		  /* connection to be looked at first */
	struct link_timer repeat; /* datagrams: not later than the first is to be repeated */
};

void msg_requester_result(struct gn_msg_conn *conn, uint32_t at, enum gn_msg_status status,
			  uint32_t len, const void *value, struct gn_msg_result *out);

int msg_requester_answered(struct msg_end *end, const struct gn_event *event);

/* ---- repeat.c ---- */

int msg_requester_places(struct gn_msg_conn *conn);
int msg_requester_ask(struct gn_msg_conn *conn, const void *request, uint32_t len, uint64_t id);
unsigned msg_requester_take(struct gn_msg_conn *conn, struct gn_msg_result *out, unsigned n);
/* Repeats requests that were not answered in time, and gives up those whose deadline is over. */
void msg_requester_repeat(struct link_timer *timer, uint64_t now_ns);
/* Of datagrams, before a sleep; see struct msg_desk. */
int msg_requester_sleep(struct msg_desk *desk);
void msg_requester_datagram(struct msg_end *end, const struct msg_datagram *head, uint32_t copy,
			    const uint8_t *data);

#endif
