/* SPDX-License-Identifier: MIT */
/*
 * GETs of a client that reads the server's memory by itself. Everything that it finds there may be
 * half written, or not what it should be: nothing is believed before its checksum is right, and
 * nothing is used without a look at its bounds.
 */
#ifndef GN_KV_BYPASS_H
#define GN_KV_BYPASS_H

#include "kv/client.h"
#include "kv/entry.h"

/* A GET that is under way. */
struct kv_look {
	struct kv_look *next; /* that is idle, or has another after it */
	struct kv_bypass *bypass;
	struct gn_kv_op *op; /* NULL: it has ended early */
	struct gn_rpc_read_op read[KV_WAYS];
	struct kv_entry entry[KV_WAYS];
	uint64_t crc[KV_WAYS];	   /* when they were read once more */
	uint64_t refuted[KV_WAYS]; /* crc of an entry whose item was read, and is another's */
	unsigned known;		   /* a bit for each entry that was read, this time */
	unsigned pending;	   /* … whose read is under way */
	unsigned way;		   /* whose item is read */
	unsigned tries;
	bool again; /* it is not the first time that all are read */
	bool moved, failed, gone;
	uint8_t *large; /* an item for which a slot is too short */
};

#define KV_BYPASS_KINDS 256u

/* What a client knows of a partition's memory. */
struct kv_bypass {
	struct gn_kv_client *client;
	uint32_t part;
	bool paper;
	bool stale; /* the table is elsewhere */
	bool asking;
	struct gn_rpc_op ask;
	struct kv_layout answer, layout;
	uint64_t asked_ns, learnt_ns; /* when that was asked for, and answered */
	uint64_t trust_ns;	      /* until then the server's clock is thought to be known */
	struct kv_look *looks, *idle;
	uint32_t n_looks, n_busy;
	struct gn_kv_op *waiting, **waiting_end;	 /* for one of them */
	struct gn_rpc_read_op *gathered, **gathered_end; /* to be begun together */
	struct gn_rpc_read_op *alone, **alone_end;	 /* … each by itself */
	/*
	 * Operations on a key are done in the order in which they were begun, though some are calls
	 * and some are not: how many of each are under way, by some bits of the hash.
	 */
	uint32_t writes[KV_BYPASS_KINDS], gets[KV_BYPASS_KINDS];
	struct gn_kv_op *held, **held_end; /* that wait for others */
};

/* learn.c */
/* For a partition that has told where its memory is, or that it shows none. */
int kv_bypass_make(struct gn_kv_client *client, uint32_t part, const struct kv_layout *layout,
		   uint64_t asked_ns);
/* … and once more, without waiting for it. */
void kv_bypass_learn(struct kv_bypass *bypass);
void kv_bypass_free(struct kv_link *link);

/* bypass.c */
/* The connection is closed: what has not ended does. */
void kv_bypass_end_all(struct kv_bypass *bypass);
/* Begin an operation of a link that has one. */
int kv_bypass_begin(struct gn_kv_client *client, struct gn_kv_op *op);
/* Move on, before and after the calls are. */
void kv_bypass_poll(struct kv_bypass *bypass);
/* As kv_ops_pick_late(), of all that are here. */
struct gn_kv_op *kv_bypass_pick_late(struct kv_bypass *bypass, uint64_t now_ns,
				     struct gn_kv_op *late);
/* It has something to begin: nothing that comes would have it polled. */
bool kv_bypass_must_poll(const struct kv_bypass *bypass);
/* An operation has ended that others may wait for. */
void kv_bypass_ended(struct gn_kv_client *client, const struct gn_kv_op *op);

#endif
