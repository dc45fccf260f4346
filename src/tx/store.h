/* SPDX-License-Identifier: MIT */
/*
 * The records of one partition at one replica. The caller holds the partition's lock.
 *
 * A record has a version, which grows with every change of its key and never restarts: a delete
 * leaves a *tombstone*, a record without a value, and an insert continues its version. Tombstones
 * are dropped in batches; the store then keeps a *floor*, a version at or above those of all
 * dropped tombstones. A key without a record has the floor as its version.
 *
 * A primary locks records for a transaction. The lock of a key without a record is a record without
 * a value at the floor's version, which goes with the lock.
 */
#ifndef GN_TX_STORE_H
#define GN_TX_STORE_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TX_KEY_MAX   64u
#define TX_VALUE_MAX 4096u

struct tx_key {
	const void *data;
	uint32_t table;
	uint32_t len;
	uint64_t hash; /* tx_key_hash() */
};

struct tx_record {
	struct tx_record *next; /* of the bucket */
	uint64_t lock;		/* the transaction that holds it; 0: none */
	uint64_t version;
	uint32_t hash; /* low half */
	uint16_t table;
	uint16_t value_len;
	uint8_t key_len;
	uint8_t state;	    /* enum tx_state */
	uint8_t size_class; /* of its memory */
	uint8_t reserved[5];
	uint8_t data[]; /* key, padded to 8 bytes; value, or struct tx_absent */
};
static_assert(offsetof(struct tx_record, data) == 40, "values are aligned to 8 bytes");

enum tx_state {
	TX_PRESENT,
	TX_TOMBSTONE,
	TX_LOCK_ONLY, /* the lock of a key without a record */
};

/* Records without a value are on a list. */
struct tx_absent {
	struct tx_record *next, **prev;
};

enum tx_op { TX_UPDATE, TX_INSERT, TX_DELETE };

enum tx_found {
	TX_FOUND,
	TX_ABSENT,
	TX_EXISTS,    /* lock for an insert: there is a value */
	TX_LOCKED,    /* by another transaction */
	TX_NO_MEMORY, /* the store's limit is reached */
};

struct tx_store;

struct tx_store_stats {
	uint64_t records; /* with a value */
	uint64_t tombstones;
	uint64_t locked;
	uint64_t bytes; /* of memory, with the index */
};

int tx_store_create(uint64_t max_bytes, struct tx_store **out);
void tx_store_destroy(struct tx_store *store);

uint64_t tx_key_hash(uint32_t table, const void *data, uint32_t len, uint64_t seed);
void tx_store_prefetch(const struct tx_store *store, uint64_t hash);

/* NULL: the key has no record. */
struct tx_record *tx_store_find(const struct tx_store *store, const struct tx_key *key);
/* The version of a key without a record. */
uint64_t tx_store_floor(const struct tx_store *store);
static inline const void *tx_record_key(const struct tx_record *record)
{
	return record->data;
}
static inline const void *tx_record_value(const struct tx_record *record)
{
	return record->data + ((record->key_len + 7u) & ~7u);
}

/*
 * Locks the key's record for a transaction that will do op; a transaction may lock a record again.
 * TX_FOUND: *out is locked. TX_ABSENT: an update or delete of nothing; TX_EXISTS: an insert of
 * something. Then nothing is locked, and *out is the record, or NULL if there is none.
 */
enum tx_found tx_store_lock(struct tx_store *store, const struct tx_key *key, enum tx_op op,
			    uint64_t id, struct tx_record **out);
/* Releases a lock if the transaction has it. True: it had. */
bool tx_store_unlock(struct tx_store *store, const struct tx_key *key, uint64_t id);
typedef bool tx_store_keep(void *arg, uint64_t id);
/* Releases every lock for which keep() is false. Returns their number. */
uint64_t tx_store_unlock_all(struct tx_store *store, tx_store_keep *keep, void *arg);

/*
 * Makes a change if version is above the key's. value is NULL for TX_DELETE. A lock stays. 0; 1:
 * not newer; -ENOMEM.
 */
int tx_store_apply(struct tx_store *store, const struct tx_key *key, enum tx_op op,
		   uint64_t version, const void *value, uint32_t len);

typedef void tx_store_visit(void *arg, const struct tx_record *record);
/*
 * Visits the records of some buckets, tombstones too and locks of keys without a record not, and
 * moves *cursor (0 at first) behind them. A record that exists all the time is visited, whatever is
 * inserted and deleted between two calls. True: there may be more. The visitor may not change the
 * store.
 */
bool tx_store_scan(const struct tx_store *store, uint64_t *cursor, tx_store_visit *visit,
		   void *arg);

/*
 * Drops tombstones with versions up to floor that are not locked, and raises the store's floor. The
 * caller knows that no change at or below the floor is still to be applied here.
 */
void tx_store_drop_tombstones(struct tx_store *store, uint64_t floor);
/*
 * At a primary, where changes under way have locks: the floor up to which tombstones can be
 * dropped. A locked key without a value may get the version after its own. 0: there is nothing to
 * drop.
 */
uint64_t tx_store_droppable(const struct tx_store *store);

void tx_store_query(const struct tx_store *store, struct tx_store_stats *out);

#endif
