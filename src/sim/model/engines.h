/* SPDX-License-Identifier: MIT */
/* Look-ups of both kinds of cards (engines.c), and the engines of cards that stall (stalls.c). */
#ifndef GN_SIM_MODEL_ENGINES_H
#define GN_SIM_MODEL_ENGINES_H

#include "sim/model/model.h"

enum sim_object { SIM_REQUESTER = 1, SIM_RESPONDER, SIM_TRANSLATION };

uint64_t sim_object_key(enum sim_object object, uint64_t id, uint64_t page);
/* The pages of a message, up to a number; false: none. */
bool sim_pages(const struct sim_device *device, const struct sim_message *message, uint64_t *first,
	       uint64_t *n);
/* With more requests in flight than the card caches: is this one evicted? */
bool sim_request_gone(struct sim_device *device);
uint64_t sim_packets(const struct sim_device *device, uint64_t bytes);

uint64_t sim_stall_tx(struct sim_device *device, const struct sim_message *message);
uint64_t sim_stall_rx(struct sim_device *device, const struct sim_message *message,
		      uint64_t *stall_ps);

#endif
