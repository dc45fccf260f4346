/* SPDX-License-Identifier: MIT */
/* Computes configurations, and writes them as bytes. */
#include <errno.h>
#include <string.h>

#include "gannet/base.h"
#include "gannet/exec.h"
#include "tx/config.h"

int tx_config_member(const struct tx_config *config, uint32_t id)
{
	for (uint32_t i = 0; i < config->n_members; i++)
		if (config->members[i].id == id)
			return (int)i;
	return -ENOENT;
}

int tx_config_primary(const struct tx_config *config, uint32_t partition)
{
	const struct tx_partition_map *map = &config->map[partition];

	return map->n && map->holder[0].full ? map->holder[0].member : -ENOENT;
}

/* ---- members ---- */

static bool id_in(const uint32_t *ids, uint32_t n, uint32_t id)
{
	for (uint32_t i = 0; i < n; i++)
		if (ids[i] == id)
			return true;
	return false;
}

/* index: where members of the old configuration are in the new one; UINT16_MAX: removed. */
static void members_next(const struct tx_config *old, const struct tx_change *change,
			 struct tx_config *out, uint16_t *index)
{
	out->n_members = 0;
	for (uint32_t i = 0; i < old->n_members; i++) {
		index[i] = UINT16_MAX;
		if (id_in(change->removed, change->n_removed, old->members[i].id))
			continue;
		index[i] = (uint16_t)out->n_members;
		out->members[out->n_members++] = old->members[i];
	}
	for (uint32_t i = 0; i < change->n_joined && out->n_members < TX_MEMBERS_MAX; i++) {
		struct tx_member *member = &out->members[out->n_members++];

		*member = change->joined[i];
		member->id = out->next_id++;
	}
}

/* ---- partitions ---- */

static uint32_t holders_full(const struct tx_partition_map *map)
{
	uint32_t n = 0;

	while (n < map->n && map->holder[n].full)
		n++;
	return n;
}

static bool map_has(const struct tx_partition_map *map, uint32_t member)
{
	for (uint32_t i = 0; i < map->n; i++)
		if (map->holder[i].member == member)
			return true;
	return false;
}

static bool was_filled(const struct tx_change *change, uint32_t partition, uint32_t id)
{
	for (uint32_t i = 0; i < change->n_filled; i++)
		if (change->filled[i].partition == partition && change->filled[i].member == id)
			return true;
	return false;
}

/* Keeps the holders that remain, full ones first, in their order. */
static void map_keep(const struct tx_config *old, const struct tx_change *change,
		     uint32_t partition, const uint16_t *index, struct tx_partition_map *out)
{
	const struct tx_partition_map *map = &old->map[partition];

	*out = (struct tx_partition_map){.lost = map->lost};
	for (int full = 1; full >= 0; full--)
		for (uint32_t i = 0; i < map->n; i++) {
			const struct tx_holder *h = &map->holder[i];
			const bool now_full = h->full || was_filled(change, partition,
								    old->members[h->member].id);

			if (index[h->member] != UINT16_MAX && now_full == full)
				out->holder[out->n++] =
					(struct tx_holder){index[h->member], now_full};
		}
	/* Without a full replica the filling ones have nothing to be filled from. */
	if (map->n && !holders_full(out))
		*out = (struct tx_partition_map){.lost = true};
}

struct loads {
	uint32_t held[TX_MEMBERS_MAX], primary[TX_MEMBERS_MAX];
};

static void loads_count(const struct tx_config *config, struct loads *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		const struct tx_partition_map *map = &config->map[p];

		for (uint32_t i = 0; i < map->n; i++)
			out->held[map->holder[i].member]++;
		if (map->n)
			out->primary[map->holder[0].member]++;
	}
}

/*
 * The member with the least partitions that does not hold this one; -ENOENT. Ties go to the next
 * one after the partition's number, so that the partitions of a member have their copies
 * everywhere.
 */
static int least_loaded(const struct tx_config *config, const struct tx_partition_map *map,
			uint32_t partition, const struct loads *loads)
{
	int best = -ENOENT;

	for (uint32_t i = 0; i < config->n_members; i++) {
		const uint32_t m = (partition + i) % config->n_members;

		if (!map_has(map, m) && (best < 0 || loads->held[m] < loads->held[best]))
			best = (int)m;
	}
	return best;
}

/* An empty cluster: every partition begins with full replicas, because there is no data. */
static void maps_place(struct tx_config *config, struct loads *loads)
{
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		struct tx_partition_map *map = &config->map[p];

		*map = (struct tx_partition_map){0};
		while (map->n < config->replicas && map->n < config->n_members) {
			const uint16_t m = (uint16_t)((p + map->n) % config->n_members);

			map->holder[map->n++] = (struct tx_holder){m, true};
			loads->held[m]++;
		}
	}
}

/* New filling replicas where some were lost. */
static void maps_refill(struct tx_config *config, struct loads *loads)
{
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		struct tx_partition_map *map = &config->map[p];

		while (map->n && map->n < config->replicas) {
			const int m = least_loaded(config, map, p, loads);

			if (m < 0)
				break;
			map->holder[map->n++] = (struct tx_holder){(uint16_t)m, false};
			loads->held[m]++;
		}
	}
}

/*
 * Moves: a member that holds two partitions less than another one fills a copy; when it is full,
 * the holder with the most partitions gives its own up. One more holder than replicas is under way.
 */
static void maps_shed(struct tx_config *config, struct loads *loads)
{
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		struct tx_partition_map *map = &config->map[p];
		uint32_t most = 0;

		if (holders_full(map) <= config->replicas)
			continue;
		for (uint32_t i = 1; i < holders_full(map); i++)
			if (loads->held[map->holder[i].member] >
			    loads->held[map->holder[most].member])
				most = i;
		loads->held[map->holder[most].member]--;
		memmove(&map->holder[most], &map->holder[most + 1],
			(size_t)(map->n - most - 1) * sizeof(map->holder[0]));
		map->holder[--map->n] = (struct tx_holder){0};
	}
}

static uint32_t heaviest_holder(const struct tx_partition_map *map, const struct loads *loads)
{
	uint32_t held = 0;

	for (uint32_t i = 0; i < map->n; i++)
		if (held < loads->held[map->holder[i].member])
			held = loads->held[map->holder[i].member];
	return held;
}

static void maps_balance(struct tx_config *config, struct loads *loads)
{
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		struct tx_partition_map *map = &config->map[p];
		const int m = least_loaded(config, map, p, loads);

		if (m < 0 || map->n != config->replicas || holders_full(map) != map->n ||
		    heaviest_holder(map, loads) < loads->held[m] + 2)
			continue;
		map->holder[map->n++] = (struct tx_holder){(uint16_t)m, false};
		loads->held[m]++;
	}
}

/* Of the full holders, the member that is primary least often becomes the primary. */
static void maps_balance_primaries(struct tx_config *config, struct loads *loads)
{
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		struct tx_partition_map *map = &config->map[p];
		uint32_t least = 0;
		struct tx_holder first;

		for (uint32_t i = 1; i < holders_full(map); i++)
			if (loads->primary[map->holder[i].member] <
			    loads->primary[map->holder[least].member])
				least = i;
		if (!least || loads->primary[map->holder[0].member] <
				      loads->primary[map->holder[least].member] + 2)
			continue;
		loads->primary[map->holder[0].member]--;
		loads->primary[map->holder[least].member]++;
		first = map->holder[0];
		map->holder[0] = map->holder[least];
		map->holder[least] = first;
	}
}

static bool is_placed(const struct tx_config *config)
{
	for (uint32_t p = 0; p < config->n_partitions; p++)
		if (config->map[p].n || config->map[p].lost)
			return true;
	return false;
}

void tx_config_next(const struct tx_config *old, const struct tx_change *change, uint64_t proposal,
		    struct tx_config *out)
{
	uint16_t index[TX_MEMBERS_MAX];
	struct loads loads;

	*out = *old;
	out->number = old->number + 1;
	out->proposal = proposal;
	out->manager = change->manager;
	members_next(old, change, out, index);
	for (uint32_t p = 0; p < old->n_partitions; p++)
		map_keep(old, change, p, index, &out->map[p]);
	loads_count(out, &loads);
	if (!is_placed(old)) {
		if (out->n_members >= out->min_members)
			maps_place(out, &loads);
		return;
	}
	maps_shed(out, &loads);
	maps_refill(out, &loads);
	maps_balance(out, &loads);
	loads_count(out, &loads);
	maps_balance_primaries(out, &loads);
}

/* ---- bytes ---- */

#define CONFIG_MAGIC   0x78746e67u /* "gntx" */
#define CONFIG_VERSION 1u
#define HOLDER_FULL    0x8000u
#define MAP_LOST       0x80u

struct config_head {
	uint32_t magic, version;
	uint64_t number, proposal, hash_seed;
	uint32_t threads, n_partitions, replicas, min_members, next_id, manager, n_members;
	uint32_t check; /* CRC-32C of all bytes, with this member 0 */
};
static_assert(sizeof(struct config_head) == 64, "stored");
static_assert(sizeof(struct tx_member) == 144, "stored");

static uint32_t map_bytes(const struct tx_partition_map *map)
{
	return 1 + 2u * map->n;
}

uint32_t tx_config_bytes(const struct tx_config *config)
{
	uint32_t bytes = (uint32_t)(sizeof(struct config_head) +
				    config->n_members * sizeof(struct tx_member));

	for (uint32_t p = 0; p < config->n_partitions; p++)
		bytes += map_bytes(&config->map[p]);
	return bytes;
}

void tx_config_encode(const struct tx_config *config, void *out)
{
	struct config_head head = {
		.magic = CONFIG_MAGIC,
		.version = CONFIG_VERSION,
		.number = config->number,
		.proposal = config->proposal,
		.hash_seed = config->hash_seed,
		.threads = config->threads,
		.n_partitions = config->n_partitions,
		.replicas = config->replicas,
		.min_members = config->min_members,
		.next_id = config->next_id,
		.manager = config->manager,
		.n_members = config->n_members,
	};
	uint8_t *at = (uint8_t *)out + sizeof(head);

	memcpy(out, &head, sizeof(head));
	memcpy(at, config->members, config->n_members * sizeof(struct tx_member));
	at += config->n_members * sizeof(struct tx_member);
	for (uint32_t p = 0; p < config->n_partitions; p++) {
		const struct tx_partition_map *map = &config->map[p];

		*at++ = (uint8_t)(map->n | (map->lost ? MAP_LOST : 0));
		for (uint32_t i = 0; i < map->n; i++, at += 2) {
			const uint16_t holder = (uint16_t)(map->holder[i].member |
							   (map->holder[i].full ? HOLDER_FULL : 0));

			memcpy(at, &holder, 2);
		}
	}
	head.check = gn_crc32c(0, out, tx_config_bytes(config));
	memcpy(out, &head, sizeof(head));
}

static int decode_head(const void *bytes, uint32_t len, struct tx_config *out)
{
	static const uint32_t zero;
	struct config_head head;
	uint32_t crc;

	if (len < sizeof(head))
		return -EPROTO;
	memcpy(&head, bytes, sizeof(head));
	crc = gn_crc32c(0, bytes, offsetof(struct config_head, check));
	crc = gn_crc32c(crc, &zero, sizeof(zero));
	crc = gn_crc32c(crc, (const uint8_t *)bytes + sizeof(head), len - sizeof(head));
	if (head.magic != CONFIG_MAGIC || head.version != CONFIG_VERSION || head.check != crc ||
	    !head.threads || head.threads > TX_THREADS_MAX || !head.n_partitions ||
	    head.n_partitions > TX_PARTITIONS_MAX || !head.replicas ||
	    head.replicas > TX_REPLICAS_MAX || head.n_members > TX_MEMBERS_MAX)
		return -EPROTO;
	*out = (struct tx_config){
		.number = head.number,
		.proposal = head.proposal,
		.hash_seed = head.hash_seed,
		.threads = head.threads,
		.n_partitions = head.n_partitions,
		.replicas = head.replicas,
		.min_members = head.min_members,
		.next_id = head.next_id,
		.manager = head.manager,
		.n_members = head.n_members,
	};
	return 0;
}

static int decode_members(struct tx_config *config)
{
	for (uint32_t i = 0; i < config->n_members; i++) {
		const struct tx_member *m = &config->members[i];

		if (!m->id || m->id >= config->next_id || !memchr(m->addr, 0, sizeof(m->addr)))
			return -EPROTO;
		for (uint32_t j = 0; j < i; j++)
			if (config->members[j].id == m->id)
				return -EPROTO;
	}
	return 0;
}

static int decode_map(const uint8_t **at, const uint8_t *end, uint32_t n_members,
		      struct tx_partition_map *out)
{
	uint8_t n;

	if (*at == end)
		return -EPROTO;
	n = *(*at)++;
	*out = (struct tx_partition_map){.lost = n & MAP_LOST};
	n &= (uint8_t)~MAP_LOST;
	if (n > TX_HOLDERS_MAX || end - *at < 2 * n || (n && out->lost))
		return -EPROTO;
	for (; out->n < n; *at += 2) {
		struct tx_holder h;
		uint16_t word;

		memcpy(&word, *at, 2);
		h = (struct tx_holder){word & (uint16_t)~HOLDER_FULL, word & HOLDER_FULL};
		if (h.member >= n_members || map_has(out, h.member) ||
		    (h.full && out->n && !out->holder[out->n - 1].full) || (!h.full && !out->n))
			return -EPROTO;
		out->holder[out->n++] = h;
	}
	return 0;
}

int tx_config_decode(const void *bytes, uint32_t len, struct tx_config *out)
{
	const uint8_t *at = bytes, *end = at + len;
	int rc = decode_head(bytes, len, out);

	at += sizeof(struct config_head);
	if (rc || (uint64_t)(end - at) < out->n_members * sizeof(struct tx_member))
		return -EPROTO;
	memcpy(out->members, at, out->n_members * sizeof(struct tx_member));
	at += out->n_members * sizeof(struct tx_member);
	rc = decode_members(out);
	for (uint32_t p = 0; !rc && p < out->n_partitions; p++)
		rc = decode_map(&at, end, out->n_members, &out->map[p]);
	return rc ? rc : at == end ? 0 : -EPROTO;
}
