/* SPDX-License-Identifier: MIT */
/*
 * Round trip time of a peer: smoothed, its variation (RFC 6298), its minimum, and the
 * retransmission timeout, which doubles with each repeat. For datagram calls and for msg's UD
 * protocol.
 *
 * An answer names the attempt that it answers, as TCP's timestamps do. If only requests that were
 * not repeated were samples, a timeout that doubles with each loss would grow without bound at a
 * loss of one datagram in six.
 */
#ifndef GN_DGRAM_RTT_H
#define GN_DGRAM_RTT_H

#include <stdbool.h>
#include <stdint.h>

#define DGRAM_RTT_MAX_NS 2000000000u
#define DGRAM_RTO_MAX_NS 100000000u /* a call is repeated at least so often */

struct dgram_rtt {
	uint32_t srtt_ns; /* 0: not measured yet */
	uint32_t var_ns;
	uint32_t min_ns; /* rises slowly, so that a changed path is noticed */
	uint32_t rto_ns; /* of datagram calls */
};

static inline void dgram_rtt_measured(struct dgram_rtt *rtt, uint64_t sample_ns)
{
	const uint32_t ns = sample_ns > DGRAM_RTT_MAX_NS ? DGRAM_RTT_MAX_NS : (uint32_t)sample_ns;
	const uint32_t off_ns = rtt->srtt_ns > ns ? rtt->srtt_ns - ns : ns - rtt->srtt_ns;

	if (!rtt->srtt_ns) {
		rtt->srtt_ns = ns ? ns : 1;
		rtt->var_ns = ns / 2;
		rtt->min_ns = ns;
	} else {
		rtt->var_ns += off_ns / 4 - rtt->var_ns / 4;
		rtt->srtt_ns += ns / 8 - rtt->srtt_ns / 8;
	}
	if (ns < rtt->min_ns)
		rtt->min_ns = ns;
	else
		rtt->min_ns += rtt->min_ns / 1024;
}

/* Bounds of a retransmission timeout. The variation counts as at least srtt / var_divisor. */
struct dgram_rto_bounds {
	uint64_t min_ns, max_ns;
	uint32_t var_divisor;
};

/* srtt + 4 x variation, within the bounds. */
static inline uint64_t dgram_rto_ns(const struct dgram_rtt *rtt, struct dgram_rto_bounds bounds)
{
	const uint32_t least_ns = rtt->srtt_ns / bounds.var_divisor;
	const uint64_t var_ns = rtt->var_ns > least_ns ? rtt->var_ns : least_ns;
	const uint64_t rto_ns = rtt->srtt_ns + 4 * var_ns;

	if (rto_ns < bounds.min_ns)
		return bounds.min_ns;
	return rto_ns < bounds.max_ns ? rto_ns : bounds.max_ns;
}

/* The timeout after a repeat. */
static inline uint64_t dgram_rto_doubled(uint64_t rto_ns, uint64_t most_ns)
{
	return 2 * rto_ns < most_ns ? 2 * rto_ns : most_ns;
}

/*
 * Is the answer to this attempt a sample? The times of the first attempt (0) and of the last one
 * are known. Attempts from the 255th on have one number.
 */
static inline bool dgram_rtt_is_sample(uint32_t attempt, uint32_t last)
{
	return !attempt || (attempt == last && attempt < UINT8_MAX);
}

/*
 * A sample of a datagram call. A timeout below five round trips would repeat calls whose answers
 * only queue behind others.
 */
static inline void dgram_rtt_sample(struct dgram_rtt *rtt, uint64_t sample_ns, uint32_t floor_ns)
{
	const struct dgram_rto_bounds bounds = {
		.min_ns = floor_ns, .max_ns = DGRAM_RTO_MAX_NS, .var_divisor = 1};

	dgram_rtt_measured(rtt, sample_ns);
	rtt->rto_ns = (uint32_t)dgram_rto_ns(rtt, bounds);
}

#endif
