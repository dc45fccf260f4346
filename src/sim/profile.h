/* SPDX-License-Identifier: MIT */
/*
 * Costs of a simulated machine and its network card. A profile is a text with one value per line,
 * followed by its source. The built-in ones are data/nics/NAME.nic; a user's is a file of the same
 * form. docs/simulator.md explains the fields.
 */
#ifndef GN_SIM_PROFILE_H
#define GN_SIM_PROFILE_H

#include "gannet/exec.h"

#define SIM_PROFILE_NAME 32u
#define SIM_SGE_MAX	 64u /* the largest max_sge */

/* Ordering guarantees of a card; the provider translates them into capabilities. */
enum sim_promise {
	SIM_UD,
	SIM_ATOMICS,
	SIM_ATOMIC_CPU,
	SIM_INORDER_WRITE,
	SIM_INORDER_128,
	SIM_WRITE_ORDER,
	SIM_READ_HEAD_FIRST,
	SIM_FOREIGN_REMOTE,
	SIM_PROMISES
};

/* Bytes take (bytes * ps_per_kib) >> 10; 0: no time. */
typedef uint64_t sim_rate;

struct sim_profile {
	char name[SIM_PROFILE_NAME];
	uint32_t promises; /* 1 << enum sim_promise */
	uint64_t jitter_ppm;

	/* CPU */
	uint64_t cores; /* per node; 0: as many as threads */
	uint64_t work_ps[GN_WORK_KINDS];
	uint64_t look_ps; /* an empty poll */
	uint64_t yield_ps;
	uint64_t post_ps, doorbell_ps, inline_line_ps, recv_ps, poll_ps;
	/*
	 * Extra cost of a post by a thread with more requests in flight than fit its core's cache.
	 */
	uint64_t near_requests, post_far_ps;
	uint64_t mutex_handover_ps, mutex_waiter_ps;

	/* doorbell path of a context */
	uint64_t hold_ps, hold_handover_ps, hold_waiter_ps;
	uint64_t post_paths; /* per context: qps use them in turn */

	/* PCIe */
	uint64_t mmio_ps, doorbell_gap_ps, blueflame_gap_ps, dma_read_ps;
	sim_rate pcie;

	/* engines, by type of packet */
	uint64_t tx_request_ps, tx_response_ps, tx_ack_ps, tx_datagram_ps;
	uint64_t rx_request_ps, rx_response_ps, rx_ack_ps, rx_datagram_ps, rx_receive_ps;
	uint64_t place_ps, sample_ps;
	uint64_t atomic_ps, atomic_dram_ps, cpu_cache_bytes;

	/* the link */
	sim_rate link;
	uint64_t wire_ps, header_bytes, mtu;

	/* context and translation cache */
	uint64_t cache_units, requester_units, reader_units, responder_units;
	uint64_t translation_bytes; /* covered by one entry of one unit */
	uint64_t translation_units; /* of a separate translation cache; 0: shared with contexts */
	uint64_t miss_ps, miss_inbound_ps, miss_write_ps;
	/* lines of 64 bytes of outstanding requests that the card keeps: in all, and of one qp */
	uint64_t wqe_slots, wqe_qp_slots;
	uint64_t wqe_miss_ps, wqe_miss_write_ps;
	/* A card that stalls where others continue (stalls.c): 0 or 1; and the costs of a stall. */
	uint64_t stalls, visit_ps, visit_send_ps, miss_receive_ps;

	/* completions */
	uint64_t cqe_ps, interrupt_ps, spin_ps;

	/* registration */
	uint64_t register_ps, register_page_ps, deregister_ps;

	/* limits of gn_attr */
	uint64_t max_inline, max_send_wr, max_sge, max_rd_atomic, ud_mtu, max_msg;
};

/*
 * Reads a built-in profile, or a file if name contains '/'. -EINVAL: the log says what is wrong and
 * where.
 */
int sim_profile_load(const char *name, struct sim_profile *out);

#endif
