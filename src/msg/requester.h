/* SPDX-License-Identifier: MIT */
/* Shared by requester.c and retransmit.c (UD requests). */
#ifndef GN_MSG_REQUESTER_H
#define GN_MSG_REQUESTER_H

#include "dgram/rtt.h"
#include "msg/endpoint.h"

/* A FIFO of slot numbers. */
struct msg_fifo {
	uint16_t *slots;
	uint32_t first, n;
};

/* A request sent by UD. */
struct msg_request {
	uint64_t first_ns, last_ns;	 /* when the first and the last transmission were sent */
	uint64_t repeat_ns, deadline_ns; /* next retransmission, and when the request expires */
	uint64_t timeout_ns;		 /* of the last transmission */
	uint32_t seq, length;
	uint32_t repeats;
	bool in_flight;
	bool lost;
};

struct gn_msg_conn {
	struct gn_msg_requester *requester;
	struct msg_ep *ep;
	uint64_t *ids; /* per slot: the caller's id */
	uint32_t in_flight;
	uint64_t data_bytes;
	const char *refusal; /* the responder's reason for a refusal, or NULL */
	/* UD only: */
	struct msg_request *requests; /* per slot */
	struct msg_fifo idle, ready;  /* slots without a request, and slots with a result */
	struct dgram_rtt rtt;
	uint64_t timeout_ns; /* of the next request; each retransmission doubles it */
};

struct gn_msg_requester {
	struct msg_poller poller;
	struct gn_msg_requester_opts opts;
	uint32_t in_flight;
	unsigned first;		  /* index of the endpoint to collect from first */
	struct link_timer repeat; /* UD: no later than the first retransmission is due */
};

void msg_requester_result(struct gn_msg_conn *conn, uint32_t at, enum gn_msg_status status,
			  uint32_t len, const void *value, struct gn_msg_result *out);

int msg_requester_connect_done(struct msg_ep *ep, const struct gn_event *event);

/* ---- retransmit.c ---- */

int msg_requester_init_slots(struct gn_msg_conn *conn);
int msg_requester_send(struct gn_msg_conn *conn, const void *request, uint32_t len, uint64_t id);
unsigned msg_requester_take_datagrams(struct gn_msg_conn *conn, struct gn_msg_result *out,
				      unsigned n);
/* Retransmits requests without an answer in time, and expires those past their deadline. */
void msg_requester_retransmit(struct link_timer *timer, uint64_t now_ns);
/* UD: called before a sleep; see struct msg_poller. */
int msg_requester_prepare_sleep(struct msg_poller *poller);
void msg_requester_datagram(struct msg_ep *ep, const struct msg_datagram *head, uint32_t attempt,
			    const uint8_t *data);

#endif
