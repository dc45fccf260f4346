/* SPDX-License-Identifier: MIT */
/*
 * Round trip time of a peer: smoothed, its variation (RFC 6298), its minimum, and the
 * retransmission timeout, at most 100 ms. A timeout below four round trips would repeat requests
 * whose answers only queue behind others.
 */
#ifndef GN_DGRAM_RTT_H
#define GN_DGRAM_RTT_H

#include <stdint.h>

#define DGRAM_RTT_MAX_NS 500000000u
#define DGRAM_RTO_MAX_NS 100000000u /* a request is repeated at least so often */

struct dgram_rtt {
	uint32_t srtt_ns; /* 0: not measured yet */
	uint32_t var_ns;
	uint32_t min_ns; /* rises slowly, so that a changed path is noticed */
	uint32_t rto_ns;
};

static inline void dgram_rtt_sample(struct dgram_rtt *rtt, uint64_t sample_ns, uint32_t floor_ns)
{
	const uint32_t ns = sample_ns > DGRAM_RTT_MAX_NS ? DGRAM_RTT_MAX_NS : (uint32_t)sample_ns;
	const uint32_t off_ns = rtt->srtt_ns > ns ? rtt->srtt_ns - ns : ns - rtt->srtt_ns;
	uint32_t rto_ns;

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
	rto_ns = rtt->srtt_ns + 4 * (rtt->var_ns > rtt->srtt_ns ? rtt->var_ns : rtt->srtt_ns);
	rto_ns = rto_ns > floor_ns ? rto_ns : floor_ns;
	rtt->rto_ns = rto_ns < DGRAM_RTO_MAX_NS ? rto_ns : DGRAM_RTO_MAX_NS;
}

#endif
