/* SPDX-License-Identifier: MIT */
/* Messages in slots: completed, found, taken apart. */
#include "rpc/wire.h"

#include <string.h>

#include "rpc/copy.h"

uint64_t rpc_tail(uint64_t seq, uint64_t nonce)
{
	uint64_t x = seq * 0x9e3779b97f4a7c15u ^ nonce;

	x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93u;
	return x ^ (x >> 32);
}

static uint32_t checksum(const void *slot, struct rpc_head head)
{
	uint32_t crc;

	head.crc = 0;
	crc = gn_crc32c(0, &head, sizeof(head));
	gn_charge(GN_WORK_CHECKSUM, rpc_message_bytes(head.len));
	return gn_crc32c(crc, (const char *)slot + sizeof(head),
			 rpc_message_bytes(head.len) - sizeof(head));
}

uint64_t rpc_seal(void *slot, const struct rpc_seal *seal)
{
	static const uint8_t zeros[8];
	const uint64_t tail = rpc_tail(seal->seq, seal->nonce), at = rpc_tail_at(seal->len);
	const uint32_t end = (uint32_t)sizeof(struct rpc_head) + seal->len;
	struct rpc_head head = {
		.seq = seal->seq, .len = seal->len, .aux = seal->aux, .flags = seal->flags};

	rpc_store((char *)slot + end, zeros, at - end);
	rpc_store((char *)slot + at, &tail, sizeof(tail));
	if (seal->flags & RPC_CRC)
		head.crc = checksum(slot, head);
	rpc_store((char *)slot + sizeof(head.seq), (char *)&head + sizeof(head.seq),
		  sizeof(head) - sizeof(head.seq));
	__atomic_store_n((uint64_t *)slot, head.seq, __ATOMIC_RELEASE);
	return rpc_message_bytes(seal->len);
}

enum rpc_found rpc_look(const void *slot, uint64_t have, uint64_t seq, uint64_t nonce, uint32_t max,
			bool check, struct rpc_head *head)
{
	uint64_t tail;

	if (__atomic_load_n((const uint64_t *)slot, __ATOMIC_ACQUIRE) != seq)
		return RPC_NOTHING;
	rpc_load(head, slot, sizeof(*head));
	head->seq = seq;
	if (head->len > max || head->len < sizeof(struct rpc_entry))
		return RPC_TORN;
	if (have < rpc_message_bytes(head->len))
		return RPC_FOUND;
	/* What was there before the tail became visible is there now. */
	tail = __atomic_load_n(
		(const uint64_t *)(const void *)((const char *)slot + rpc_tail_at(head->len)),
		__ATOMIC_ACQUIRE);
	if (tail != rpc_tail(seq, nonce))
		return RPC_TORN;
	if (!check)
		return RPC_FOUND;
	return head->flags & RPC_CRC && head->crc == checksum(slot, *head) ? RPC_FOUND : RPC_TORN;
}

bool rpc_entry(const void *slot, uint32_t len, uint32_t *at, struct rpc_entry *entry,
	       const uint8_t **bytes)
{
	const uint8_t *from = (const uint8_t *)slot + sizeof(struct rpc_head);

	if (len - *at < sizeof(*entry))
		return false;
	memcpy(entry, from + *at, sizeof(*entry));
	if (entry->len > len - *at - sizeof(*entry))
		return false;
	*bytes = from + *at + sizeof(*entry);
	*at += (uint32_t)sizeof(*entry) + entry->len;
	return true;
}
