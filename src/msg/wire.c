/* SPDX-License-Identifier: MIT */
/* Greetings, messages in memory, datagrams: written, and checked when a peer has written them. */
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
	return gn_fail(-EINVAL, "gn_msg_protocol_parse(): '%s' is no protocol, or out is NULL",
		       text ? text : "");
}

const char *gn_msg_status_str(unsigned status)
{
	static const char *const texts[GN_MSG_STATUSES] = {
		[GN_MSG_OK] = "ok",	      [GN_MSG_GONE] = "the peer is gone",
		[GN_MSG_LOST] = "no answer",  [GN_MSG_REFUSED] = "refused",
		[GN_MSG_BROKEN] = "nonsense",
	};

	return status < GN_MSG_STATUSES ? texts[status] : "unknown";
}

/* ---- greetings ---- */

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
	return MSG_WELCOME;
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
	if (welcome.refusal == MSG_WELCOME && len < sizeof(welcome))
		return -EPROTO;
	*out = welcome;
	return 0;
}

const char *msg_refusal_text(unsigned refusal)
{
	static const char *const texts[MSG_REFUSALS] = {
		[MSG_WELCOME] = "it is welcome",
		[MSG_NO_VERSION] = "the responder speaks another version",
		[MSG_NO_PROTOCOL] = "the responder does not know the protocol",
		[MSG_NO_DATA] = "the responder has no data to READ",
		[MSG_NO_ANSWERS] = "the responder has data to READ, and answers nothing",
		[MSG_TOO_MANY_PENDING] = "the responder does not take so many pending requests",
		[MSG_TOO_LARGE_REQUEST] = "the responder does not take requests of that size",
		[MSG_TOO_LARGE_VALUE] = "the responder does not give answers of that size",
		[MSG_FULL] = "the responder has as many connections as it takes",
		[MSG_NO_MEMORY] = "the responder has no memory for another connection",
		[MSG_NO_DATAGRAMS] = "the responder's fabric cannot carry such datagrams",
	};

	return refusal < MSG_REFUSALS ? texts[refusal] : "for no reason that is known here";
}

/* ---- messages in memory ---- */

struct head {
	uint32_t number, length, sum, zero;
};

static uint32_t sum_of(const uint8_t *place, uint32_t number, uint32_t length, uint32_t len)
{
	const uint32_t about[2] = {number, length};

	gn_charge(GN_WORK_CHECKSUM, len);
	exec_preempt();
	return gn_crc32c(gn_crc32c(0, about, sizeof(about)), place + sizeof(struct head), len);
}

/* The first 8 bytes, which come together. */
static uint64_t first_word(const uint8_t *place)
{
	return __atomic_load_n((const uint64_t *)(const void *)place, __ATOMIC_ACQUIRE);
}

void msg_frame_put(enum msg_frame frame, uint8_t *place, uint32_t number, uint32_t nonce,
		   uint32_t length)
{
	const uint32_t len = length & ~MSG_REFUSED;
	struct head head = {.number = number, .length = length};
	const uint64_t tail = msg_tail(nonce, number);

	if (frame == MSG_PLAIN)
		return;
	if (frame == MSG_MARKERS) {
		memcpy(place, &length, 4);
		place[4] = MARKER;
		place[5 + len] = MARKER;
		return;
	}
	if (frame == MSG_SUMMED)
		head.sum = sum_of(place, number, length, len);
	memcpy(place, &head, sizeof(head));
	memcpy(place + msg_frame_bytes(frame, len) - 8, &tail, 8);
}

bool msg_frame_begun(enum msg_frame frame, uint64_t word, uint32_t number)
{
	return frame == MSG_MARKERS ? (word >> 32 & 0xff) == MARKER : (uint32_t)word == number;
}

/*
 * The last bytes of a WRITE may come by several stores, each with release. The thread sanitizer
 * does not know that who sees the last of them has seen the others: it is shown each.
 */
static void see_all(const uint8_t *last)
{
#ifdef __SANITIZE_THREAD__
	const uint8_t *byte = (const uint8_t *)((uintptr_t)last & ~(uintptr_t)7);

	for (; byte <= last; byte++)
		(void)__atomic_load_n(byte, __ATOMIC_ACQUIRE);
#else
	(void)last;
#endif
}

static int64_t look_for_markers(const uint8_t *place, uint32_t max)
{
	const uint64_t word = first_word(place);
	const uint32_t length = (uint32_t)word, len = length & ~MSG_REFUSED;

	if (!msg_frame_begun(MSG_MARKERS, word, 0))
		return -EAGAIN;
	if (len > max)
		return -EPROTO;
	exec_preempt();
	/* Pairs with the WRITE, whose last bytes come last. */
	if (__atomic_load_n(&place[5 + len], __ATOMIC_ACQUIRE) != MARKER &&
	    !mutant("msg-tail", MUTANT_ALWAYS))
		return -EINPROGRESS;
	see_all(&place[5 + len]);
	return length;
}

int64_t msg_frame_look(enum msg_frame frame, const uint8_t *place, uint32_t number, uint32_t nonce,
		       uint32_t max)
{
	uint64_t word;
	const uint64_t *tail;
	uint32_t length, len;

	if (frame == MSG_MARKERS)
		return look_for_markers(place, max);
	word = first_word(place);
	length = (uint32_t)(word >> 32);
	len = length & ~MSG_REFUSED;
	if (!msg_frame_begun(frame, word, number))
		return -EAGAIN;
	if (len > max)
		return -EPROTO;
	exec_preempt();
	/* Pairs with the WRITE, whose last word comes last where there is no checksum. */
	tail = (const uint64_t *)(const void *)(place + msg_frame_bytes(frame, len) - 8);
	if (__atomic_load_n(tail, __ATOMIC_ACQUIRE) != msg_tail(nonce, number) &&
	    !mutant("msg-tail", MUTANT_ALWAYS))
		return -EINPROGRESS;
	if (frame == MSG_SUMMED &&
	    sum_of(place, number, length, len) !=
		    __atomic_load_n(&((const uint32_t *)(const void *)place)[2],
				    __ATOMIC_RELAXED) &&
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
