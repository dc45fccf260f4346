/* SPDX-License-Identifier: MIT */
/*
 * The configuration of a cluster: its members, and which of them hold each partition. It is stored
 * as one value that is only changed by compare-and-set; its number grows by one with each change.
 *
 * A member is a process: a restarted one has another incarnation and gets another id. Ids are never
 * used twice. A replica is full, or it is *filling*: it receives all changes, counts for nothing
 * and is not promoted. The first full replica of a partition is its primary. A partition whose full
 * replicas have all been removed is lost: it stays unavailable.
 */
#ifndef GN_TX_CONFIG_H
#define GN_TX_CONFIG_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TX_MEMBERS_MAX	  256u
#define TX_PARTITIONS_MAX 4096u
#define TX_REPLICAS_MAX	  5u
#define TX_HOLDERS_MAX	  (TX_REPLICAS_MAX + 1) /* one more while a replica moves */
#define TX_THREADS_MAX	  63u			/* the last endpoint is the control thread's */
#define TX_ADDR_MAX	  128u

struct tx_member {
	uint64_t incarnation;
	uint32_t id; /* from 1 */
	char addr[TX_ADDR_MAX];
};

struct tx_holder {
	uint16_t member; /* index in members[] */
	bool full;
};

struct tx_partition_map {
	uint8_t n;
	bool lost;
	struct tx_holder holder[TX_HOLDERS_MAX]; /* full ones first */
};

struct tx_config {
	uint64_t number;
	uint64_t proposal; /* random: tells the writer of a compare-and-set that it was its own */
	uint64_t hash_seed;
	uint32_t threads, n_partitions, replicas;
	uint32_t min_members; /* partitions are placed when so many have joined */
	uint32_t next_id;
	uint32_t manager; /* id of the member that manages this configuration */
	uint32_t n_members;
	struct tx_member members[TX_MEMBERS_MAX];
	struct tx_partition_map map[TX_PARTITIONS_MAX];
};

/* Changes to make to a configuration. */
struct tx_change {
	const uint32_t *removed; /* ids */
	uint32_t n_removed;
	const struct tx_member *joined; /* their ids are assigned */
	uint32_t n_joined;
	const struct tx_filled {
		uint16_t partition;
		uint32_t member; /* id */
	} * filled;
	uint32_t n_filled;
	uint32_t manager; /* id; must stay a member */
};

/*
 * Computes the next configuration. Members without a partition get some as filling replicas; each
 * partition gets as many replicas as the configuration asks for, or as there are members.
 */
void tx_config_next(const struct tx_config *old, const struct tx_change *change, uint64_t proposal,
		    struct tx_config *out);

/* The index of a member, or -ENOENT. */
int tx_config_member(const struct tx_config *config, uint32_t id);
/* The index of the partition's primary, or -ENOENT: lost, or not placed yet. */
int tx_config_primary(const struct tx_config *config, uint32_t partition);
static inline uint32_t tx_config_partition(const struct tx_config *config, uint64_t hash)
{
	return (uint32_t)((hash >> 32) * config->n_partitions >> 32);
}

/* As bytes, little-endian, with a version and a checksum. */
uint32_t tx_config_bytes(const struct tx_config *config);
void tx_config_encode(const struct tx_config *config, void *out);
/* -EPROTO: not a configuration; nothing is trusted. */
int tx_config_decode(const void *bytes, uint32_t len, struct tx_config *out);

#endif
