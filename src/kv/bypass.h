/* SPDX-License-Identifier: MIT */
/*
 * GETs that a client executes with one-sided READs. Anything read may be half written or invalid:
 * nothing is used before its checksum matches and its bounds are checked.
 */
#ifndef GN_KV_BYPASS_H
#define GN_KV_BYPASS_H

#include "kv/client.h"
#include "kv/entry.h"

/* An outstanding bypass GET. */
struct kv_lookup {
	struct kv_lookup *next; /* on the free list */
	struct kv_bypass *bypass;
	struct gn_kv_op *op; /* NULL: the operation has completed early */
	struct gn_rpc_read_op read[KV_WAYS];
	struct kv_entry entry[KV_WAYS];
	uint64_t crc[KV_WAYS];		/* second READs of the crcs */
	uint64_t rejected_crc[KV_WAYS]; /* crc of an entry whose item has another key */
	unsigned valid;			/* bit per way: a valid entry was read, in this round */
	unsigned pending;		/* bit per way: a READ is outstanding */
	unsigned way;			/* the way whose item is being read */
	unsigned attempts;
	bool retry; /* not the first round of READs */
	bool moved, failed, disconnected;
	uint8_t *large; /* an item that is too long for a read slot */
};

#define KV_BYPASS_CLASSES 256u

/* What a client knows about a partition's memory. */
struct kv_bypass {
	struct gn_kv_client *client;
	uint32_t part;
	bool paper;
	bool stale; /* the layout is out of date */
	bool layout_pending;
	struct gn_rpc_op layout_op;
	struct kv_layout layout_response, layout;
	uint64_t layout_sent_ns, layout_ns; /* when the layout was requested and received */
	uint64_t clock_valid_until_ns;	    /* until then the server's clock is known */
	struct kv_lookup *lookups, *free_lookups;
	uint32_t n_lookups, n_busy;
	struct gn_kv_op *queued, **queued_end; /* operations that wait for a free lookup */
	struct gn_rpc_read_op *gathered, **gathered_end; /* READs to be posted together */
	struct gn_rpc_read_op *single, **single_end;	 /* READs to be posted one by one */
	/*
	 * Operations on one key are executed in order, though some are calls and some are READs:
	 * the number of outstanding operations of both sorts, by a few bits of the hash.
	 */
	uint32_t writes[KV_BYPASS_CLASSES], gets[KV_BYPASS_CLASSES];
	struct gn_kv_op *held, **held_end; /* operations that wait for others on the same key */
};

/* bypass_layout.c */
/*
 * Create the bypass state of a partition from its layout, which may say that it exposes no memory.
 */
int kv_bypass_create(struct gn_kv_client *client, uint32_t part, const struct kv_layout *layout,
		     uint64_t asked_ns);
/* Request the layout again, without waiting. */
void kv_bypass_refresh_layout(struct kv_bypass *bypass);
void kv_bypass_free(struct kv_link *link);

/* bypass.c */
/* The connection is closed: complete all operations. */
void kv_bypass_end_all(struct kv_bypass *bypass);
/* Start an operation of a link with bypass. */
int kv_bypass_begin(struct gn_kv_client *client, struct gn_kv_op *op);
/* Make progress; called before and after gn_rpc_poll(). */
void kv_bypass_poll(struct kv_bypass *bypass);
/* kv_ops_collect_expired() for all operations of this bypass. */
struct gn_kv_op *kv_bypass_collect_expired(struct kv_bypass *bypass, uint64_t now_ns,
					   struct gn_kv_op *expired);
/* True if there is something to post, so that a completion alone would not wake the client. */
bool kv_bypass_must_poll(const struct kv_bypass *bypass);
/* An operation has completed that others may wait for. */
void kv_bypass_ended(struct gn_kv_client *client, const struct gn_kv_op *op);

#endif
