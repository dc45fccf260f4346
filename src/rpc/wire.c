/* SPDX-License-Identifier: MIT */
/* Messages in slots: sealing and finding. */
#include "rpc/wire.h"

#include "base/mutant.h"
#include "rpc/copy.h"

uint32_t rpc_checksum(const void *slot, struct rpc_head head)
{
	uint32_t crc;

	head.crc = 0;
	if (head.flags & RPC_RESULT)
		head.ack = 0;
	crc = gn_crc32c(0, &head, sizeof(head));
	gn_charge(GN_WORK_CHECKSUM, rpc_message_bytes(head.len));
	exec_preempt();
	return gn_crc32c(crc, (const char *)slot + sizeof(head),
			 rpc_message_bytes(head.len) - sizeof(head));
}

/* The sequence is there. A separate function, so that a miss costs nothing of it. */
static no_inline enum rpc_found message_check(const void *slot, uint64_t have, uint64_t seq,
					      uint64_t nonce, uint32_t max, bool check,
					      struct rpc_head *head)
{
	uint64_t tail;
	uint32_t len;

	rpc_load(head, slot, sizeof(*head));
	head->seq = seq;
	if (head->len > max || head->len < sizeof(struct rpc_entry) || head->len % 8)
		return RPC_TORN;
	if (have < rpc_message_bytes(head->len))
		return RPC_FOUND;
	exec_preempt();
	/* All bytes written before the tail are visible now. */
	tail = __atomic_load_n(rpc_tail_of(slot, head->len), __ATOMIC_ACQUIRE);
	if (tail != rpc_tail(seq, nonce) && !mutant("rpc-tail-unchecked", seq))
		return RPC_TORN;
	/*
	 * The first load may have mixed two heads, of this message and of the slot's previous one.
	 */
	len = head->len;
	rpc_load(head, slot, sizeof(*head));
	head->seq = seq;
	if (head->len != len && !mutant("rpc-double-fetch", MUTANT_ALWAYS))
		return RPC_TORN;
	if (!check || mutant("rpc-crc-unchecked", seq))
		return RPC_FOUND;
	return head->flags & RPC_CRC && head->crc == rpc_checksum(slot, *head) ? RPC_FOUND :
										 RPC_TORN;
}

enum rpc_found rpc_message_find(const void *slot, uint64_t have, uint64_t seq, uint64_t nonce,
				uint32_t max, bool check, struct rpc_head *head)
{
	const uint64_t is = __atomic_load_n((const uint64_t *)slot, __ATOMIC_ACQUIRE);

	if (mutant("rpc-epoch-unchecked", 8) && (uint32_t)is == (uint32_t)seq)
		seq = is;
	if (is != seq)
		return RPC_ABSENT;
	return message_check(slot, have, seq, nonce, max, check, head);
}
