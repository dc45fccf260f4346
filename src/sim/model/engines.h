/* SPDX-License-Identifier: MIT */
/* What both kinds of cards look up (engines.c), and the engines of those that stall (stalls.c). */
#ifndef GN_SIM_MODEL_ENGINES_H
#define GN_SIM_MODEL_ENGINES_H

#include "sim/model/model.h"

enum sim_object { SIM_REQUESTER = 1, SIM_RESPONDER, SIM_TRANSLATION };

uint64_t sim_object_key(enum sim_object object, uint64_t id, uint64_t page);
/* The pages that a message is about, up to a number; false if there are none. */
bool sim_pages(const struct sim_device *device, const struct sim_message *message, uint64_t *first,
	       uint64_t *n);
/* With more requests under way than the card keeps: is this one of those it does not? */
bool sim_request_gone(struct sim_device *device);
uint64_t sim_packets(const struct sim_device *device, uint64_t bytes);

uint64_t sim_stall_tx(struct sim_device *device, const struct sim_message *message);
uint64_t sim_stall_rx(struct sim_device *device, const struct sim_message *message,
		      uint64_t *stall_ps);

#endif
