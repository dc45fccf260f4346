/* SPDX-License-Identifier: MIT */
/* Encodes and checks connection private data, messages in memory and datagrams. */
#include "msg/wire.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/mutant.h"
#include "base/preempt.h"

#define MARKER 0xa5u

static const char *const protocols[GN_MSG_PROTOCOLS] = {
	[GN_MSG_SEND_SEND] = "SEND/SEND",
	[GN_MSG_SEND_WRITE] = "SEND/WRITE",
	[GN_MSG_WRITE_SEND] = "WRITE/SEND",
	[GN_MSG_WRITE_WRITE] = "WRITE/WRITE",
	[GN_MSG_READ] = "READ",
	[GN_MSG_WRITE_IMM] = "WRITE_IMM",
	[GN_MSG_UD] = "UD",
};

const char *gn_msg_protocol_str(unsigned protocol)
{
	return protocol < GN_MSG_PROTOCOLS ? protocols[protocol] : "unknown";
}

int gn_msg_protocol_parse(const char *text, enum gn_msg_protocol *out)
{
	for (unsigned i = 0; text && out && i < GN_MSG_PROTOCOLS; i++)
		if (!strcasecmp(text, protocols[i])) {
			*out = (enum gn_msg_protocol)i;
			return 0;
		}
	return gn_fail(-EINVAL, "gn_msg_protocol_parse(): '%s' is not a protocol, or out is NULL",
		       text ? text : "");
}

const char *gn_msg_status_str(unsigned status)
{
	static const char *const texts[GN_MSG_STATUSES] = {
		[GN_MSG_OK] = "ok",
		[GN_MSG_GONE] = "disconnected",
		[GN_MSG_LOST] = "no answer",
		[GN_MSG_REFUSED] = "refused",
		[GN_MSG_BROKEN] = "invalid answer",
	};

	return status < GN_MSG_STATUSES ? texts[status] : "unknown";
}

/* ---- private data ---- */

enum msg_refusal msg_hello_check(const void *data, uint32_t len, struct msg_hello *out)
{
	struct msg_hello hello;

	if (len < sizeof(hello))
		return MSG_NO_VERSION;
	memcpy(&hello, data, sizeof(hello));
	if (hello.magic != MSG_MAGIC || hello.version != MSG_VERSION)
		return MSG_NO_VERSION;
	if (hello.protocol >= GN_MSG_PROTOCOLS)
		return MSG_NO_PROTOCOL;
	if (!hello.pending || hello.pending > GN_MSG_PENDING_MAX)
		return MSG_TOO_MANY_PENDING;
	if (hello.request_bytes > GN_MSG_BYTES_MAX)
		return MSG_TOO_LARGE_REQUEST;
	if (hello.value_bytes > GN_MSG_BYTES_MAX && hello.protocol != GN_MSG_READ)
		return MSG_TOO_LARGE_VALUE;
	*out = hello;
	return MSG_ACCEPTED;
}

unsigned msg_welcome_version(const void *data, uint32_t len)
{
	struct msg_welcome welcome = {0};

	memcpy(&welcome, data, len < sizeof(welcome) ? len : sizeof(welcome));
	return welcome.magic == MSG_MAGIC ? welcome.version : MSG_VERSION;
}

int msg_welcome_check(const void *data, uint32_t len, struct msg_welcome *out)
{
	struct msg_welcome welcome = {0};

	if (len < offsetof(struct msg_welcome, request_key))
		return -EPROTO;
	memcpy(&welcome, data, len < sizeof(welcome) ? len : sizeof(welcome));
	if (welcome.magic != MSG_MAGIC || welcome.version != MSG_VERSION ||
	    welcome.refusal >= MSG_REFUSALS)
		return -EPROTO;
	if (welcome.refusal == MSG_ACCEPTED && len < sizeof(welcome))
		return -EPROTO;
	*out = welcome;
	return 0;
}

const char *msg_refusal_text(unsigned refusal)
{
	static const char *const texts[MSG_REFUSALS] = {
		[MSG_ACCEPTED] = "accepted",
		[MSG_NO_VERSION] = "the responder has another protocol version",
		[MSG_NO_PROTOCOL] = "the responder does not know the protocol",
		[MSG_NO_DATA] = "the responder has no data to READ",
		[MSG_READ_ONLY] = "the responder serves READs only",
		[MSG_TOO_MANY_PENDING] = "pending is larger than the responder allows",
		[MSG_TOO_LARGE_REQUEST] = "request_bytes is larger than the responder allows",
		[MSG_TOO_LARGE_VALUE] = "value_bytes is larger than the responder allows",
		[MSG_FULL] = "the responder has max_conns connections",
		[MSG_NO_MEMORY] = "the responder has no memory for another connection",
		[MSG_NO_DATAGRAMS] = "the responder's fabric cannot carry such datagrams",
	};

	return refusal < MSG_REFUSALS ? texts[refusal] : "unknown reason";
}

/* ---- messages in memory ---- */

struct head {
	uint32_t seq, length, checksum, zero;
};

static uint32_t frame_checksum(const uint8_t *slot, uint32_t seq, uint32_t length, uint32_t len)
{
	const uint32_t about[2] = {seq, length};

	gn_charge(GN_WORK_CHECKSUM, len);
	exec_preempt();
	return gn_crc32c(gn_crc32c(0, about, sizeof(about)), slot + sizeof(struct head), len);
}

/* The first 8 bytes, in one load. */
static uint64_t frame_first_word(const uint8_t *slot)
{
	return __atomic_load_n((const uint64_t *)(const void *)slot, __ATOMIC_ACQUIRE);
}

void msg_frame_put(enum msg_frame frame, uint8_t *slot, uint32_t seq, uint32_t nonce,
		   uint32_t length)
{
	const uint32_t len = length & ~MSG_REFUSED;
	struct head head = {.seq = seq, .length = length};
	const uint64_t tail = msg_tail(nonce, seq);

	if (frame == MSG_PLAIN)
		return;
	if (frame == MSG_MARKERS) {
		memcpy(slot, &length, 4);
		slot[4] = MARKER;
		slot[5 + len] = MARKER;
		return;
	}
	if (frame == MSG_CHECKSUMMED)
		head.checksum = frame_checksum(slot, seq, length, len);
	memcpy(slot, &head, sizeof(head));
	memcpy(slot + msg_frame_bytes(frame, len) - 8, &tail, 8);
}

bool msg_frame_started(enum msg_frame frame, uint64_t word, uint32_t seq)
{
	return frame == MSG_MARKERS ? (word >> 32 & 0xff) == MARKER : (uint32_t)word == seq;
}

/*
 * The last bytes of a WRITE may be stored one by one, each with release. The thread sanitizer does
 * not know that a reader of the last byte has seen the others, so load each with acquire.
 */
static void tsan_acquire_bytes(const uint8_t *last)
{
#ifdef __SANITIZE_THREAD__
	const uint8_t *byte = (const uint8_t *)((uintptr_t)last & ~(uintptr_t)7);

	for (; byte <= last; byte++)
		(void)__atomic_load_n(byte, __ATOMIC_ACQUIRE);
#else
	(void)last;
#endif
}

static int64_t frame_peek_markers(const uint8_t *slot, uint32_t max)
{
	const uint64_t word = frame_first_word(slot);
	const uint32_t length = (uint32_t)word, len = length & ~MSG_REFUSED;

	if (!msg_frame_started(MSG_MARKERS, word, 0))
		return -EAGAIN;
	if (len > max)
		return -EPROTO;
	exec_preempt();
	/* Pairs with the WRITE: its last byte becomes visible last. */
	if (__atomic_load_n(&slot[5 + len], __ATOMIC_ACQUIRE) != MARKER &&
	    !mutant("msg-tail", MUTANT_ALWAYS))
		return -EINPROGRESS;
	tsan_acquire_bytes(&slot[5 + len]);
	return length;
}

int64_t msg_frame_peek(enum msg_frame frame, const uint8_t *slot, uint32_t seq, uint32_t nonce,
		       uint32_t max)
{
	uint64_t word;
	const uint64_t *tail;
	uint32_t length, len;

	if (frame == MSG_MARKERS)
		return frame_peek_markers(slot, max);
	word = frame_first_word(slot);
	length = (uint32_t)(word >> 32);
	len = length & ~MSG_REFUSED;
	if (!msg_frame_started(frame, word, seq))
		return -EAGAIN;
	if (len > max)
		return -EPROTO;
	exec_preempt();
	/* Pairs with the WRITE: without a checksum its last word becomes visible last. */
	tail = (const uint64_t *)(const void *)(slot + msg_frame_bytes(frame, len) - 8);
	if (__atomic_load_n(tail, __ATOMIC_ACQUIRE) != msg_tail(nonce, seq) &&
	    !mutant("msg-tail", MUTANT_ALWAYS))
		return -EINPROGRESS;
	if (frame == MSG_CHECKSUMMED &&
	    frame_checksum(slot, seq, length, len) !=
		    __atomic_load_n(&((const uint32_t *)(const void *)slot)[2], __ATOMIC_RELAXED) &&
	    !mutant("msg-sum", MUTANT_ALWAYS))
		return -EINPROGRESS;
	return length;
}

/* ---- datagrams ---- */

int msg_datagram_check(const void *data, uint32_t len, struct msg_datagram *out)
{
	struct msg_datagram head;

	if (len < sizeof(head))
		return -EPROTO;
	memcpy(&head, data, sizeof(head));
	if ((head.length & ~MSG_REFUSED) != len - sizeof(head))
		return -EPROTO;
	*out = head;
	return 0;
}
