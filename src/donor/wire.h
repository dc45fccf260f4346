/* SPDX-License-Identifier: MIT */
/*
 * The control calls of a donor: requests and results. Integers are little-endian. Data connections
 * use io/core/attach.h.
 *
 * A control connection has at most one session: HELLO creates or resumes it. All calls but HELLO,
 * LIST and STATS need one.
 */
#ifndef GN_DONOR_WIRE_H
#define GN_DONOR_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gannet/donor.h"
#include "io/core/attach.h"

#define DONOR_VERSION	1u
#define DONOR_DATA_NAME 128u /* bytes of a data address's last part, with a NUL */
#define DONOR_ADDR_MAX	256u

enum donor_method {
	DONOR_HELLO = 1,
	DONOR_GRANT,   /* one slab; deferred until one is ready */
	DONOR_RELEASE, /* returns when nothing can land in the slab any more */
	DONOR_SHARE,
	DONOR_REVOKE, /* returns when nothing can land under the token any more */
	DONOR_LIST,
	DONOR_NOTICE, /* deferred until there is something to tell */
	DONOR_STATS,
	DONOR_END, /* ends the session */
};

/* Statuses of the calls, beside those of rpc.h. */
enum donor_status {
	DONOR_NO_SESSION = 16, /* unknown, expired or ended: the same answer for all */
	DONOR_OTHER_INCARNATION,
	DONOR_BAD_VERSION,
	DONOR_NO_SPACE,	  /* all memory is granted, or the system is short of memory */
	DONOR_LIMIT,	  /* a limit on what one client, or all, may have */
	DONOR_NOT_FOUND,  /* no such slab or token of this session */
	DONOR_INVALID,	  /* range or rights */
	DONOR_GOING_AWAY, /* the donor ends */
	DONOR_STATUS_END
};

struct donor_remote {
	uint64_t offset, length;
	uint32_t key, reserved;
};

struct donor_hello {
	uint32_t version;
	uint32_t resume; /* 0: a new session; 1: the session of this token */
	uint8_t token[IO_TOKEN_BYTES];
	uint64_t incarnation; /* of the donor that issued the token */
	/*
	 * Resume: 0 takes the session over; otherwise the first generation of this client, which
	 * lost its control connection and must not have been replaced by another.
	 */
	uint32_t generation, reserved;
	char owner[GN_DONOR_OWNER];
};

struct donor_hello_result {
	uint32_t version;
	uint32_t n_slabs; /* that the session holds */
	uint8_t token[IO_TOKEN_BYTES];
	uint64_t incarnation;
	uint64_t session; /* its number, for LIST */
	uint64_t slab_bytes;
	uint64_t lease_us, silence_us;
	/*
	 * Memory that the client WRITEs to renew its lease: a counter at offset 0, then at the
	 * offsets that GRANT returns how often it has used each slab.
	 */
	struct donor_remote lease;
	/* The first generation of the data connections of a client that begins now. */
	uint32_t generation, reserved;
	char data[DONOR_DATA_NAME]; /* the last part of the data address */
};

static inline uint32_t donor_epoch(uint32_t generation)
{
	return generation >> IO_EPOCH_SHIFT;
}

struct donor_slab_id {
	uint64_t slab;
};

struct donor_grant_result {
	uint64_t slab;
	struct donor_remote remote;
	uint64_t use_offset; /* of this slab's counter in the lease memory */
};

struct donor_share_request {
	uint64_t slab, offset, length;
	uint32_t rights; /* IO_RIGHT_READ | IO_RIGHT_WRITE */
	uint32_t reserved;
};

struct donor_token {
	uint8_t token[IO_TOKEN_BYTES];
};

struct donor_list_request {
	char owner[GN_DONOR_OWNER]; /* empty: all owners */
	uint64_t session;	    /* 0: all sessions */
	uint64_t after;		    /* 0, or next of the last result */
};

struct donor_list_entry {
	uint64_t slab; /* 0: a session without slabs */
	uint64_t session;
	uint64_t bytes;
	uint64_t held_ms;	    /* since the grant */
	uint64_t left_ms;	    /* until the lease ends */
	struct donor_remote remote; /* zero unless the session is the caller's */
	uint64_t use_offset;
	uint32_t state; /* enum donor_entry_state */
	uint32_t reserved;
	char owner[GN_DONOR_OWNER];
};

enum donor_entry_state { DONOR_HELD, DONOR_ASKED, DONOR_ENDING };

#define DONOR_LIST_MAX 24u

struct donor_list_result {
	uint64_t next; /* 0: this is the end */
	uint32_t n, reserved;
	struct donor_list_entry entries[];
};

struct donor_notice {
	uint32_t kind; /* enum donor_notice_kind */
	uint32_t reserved;
	uint64_t slab;	  /* 0 for a lost slab: see LIST, more were lost than are told */
	uint64_t left_ms; /* to return the slab, or before the donor ends */
};

enum donor_notice_kind {
	DONOR_TAKE_BACK = 1, /* return this slab */
	DONOR_TAKEN,	     /* this slab was taken: its content is lost */
	DONOR_LEAVING,	     /* return all slabs: the donor ends */
};

#define DONOR_STATS_WORDS (sizeof(struct gn_donor_stats) / sizeof(uint64_t) - 1)

_Static_assert(sizeof(struct donor_hello) == 72, "wire format");
_Static_assert(offsetof(struct donor_hello, incarnation) == 24, "wire format");
_Static_assert(sizeof(struct donor_hello_result) == 96 + DONOR_DATA_NAME, "wire format");
_Static_assert(sizeof(struct donor_grant_result) == 40, "wire format");
_Static_assert(sizeof(struct donor_share_request) == 32, "wire format");
_Static_assert(sizeof(struct donor_list_request) == 48, "wire format");
_Static_assert(sizeof(struct donor_list_entry) == 112, "wire format");
_Static_assert(sizeof(struct donor_list_result) +
			       DONOR_LIST_MAX * sizeof(struct donor_list_entry) <=
		       4096 - 256,
	       "a page of the list fits a slot");
_Static_assert(sizeof(struct donor_notice) == 24, "wire format");

/*
 * The last part of the data address for a control address: the next port, or the name with ".data".
 * -EINVAL: too long, or there is no next port.
 */
int donor_data_name(const char *addr, char out[DONOR_DATA_NAME]);
/* The address with its last part replaced. -EINVAL: too long, or name is not one. */
int donor_data_addr(const char *addr, const char *name, char out[DONOR_ADDR_MAX]);

/* Printable text without blanks, and NULs to the end. */
bool donor_owner_ok(const char owner[GN_DONOR_OWNER]);

/* Requests: true if well-formed. */
bool donor_hello_read(const void *data, uint32_t len, struct donor_hello *out);
bool donor_share_read(const void *data, uint32_t len, uint64_t slab_bytes,
		      struct donor_share_request *out);
bool donor_list_read(const void *data, uint32_t len, struct donor_list_request *out);
/* io_attach_status of a connect request's private data; *out is valid unless it is BAD_REQUEST. */
enum io_attach_status donor_attach_read(const void *data, uint32_t len, struct io_attach *out);

/* Takes the same time for all contents. */
bool donor_token_equal(const uint8_t *a, const uint8_t *b);

void donor_stats_write(uint64_t words[DONOR_STATS_WORDS], const struct gn_donor_stats *stats);
void donor_stats_read(const uint64_t words[DONOR_STATS_WORDS], struct gn_donor_stats *stats);

#endif
