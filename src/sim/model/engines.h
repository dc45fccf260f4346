/* SPDX-License-Identifier: MIT */
/* Look-ups of both kinds of cards (engines.c), and the engines of cards that stall (stalls.c). */
#ifndef GN_SIM_MODEL_ENGINES_H
#define GN_SIM_MODEL_ENGINES_H

#include "sim/model/model.h"

enum sim_object { SIM_REQUESTER = 1, SIM_RESPONDER, SIM_TRANSLATION };

uint64_t sim_object_key(enum sim_object object, uint64_t id, uint64_t page);
/* Calls look() with the key of each page that the message accesses. Returns the number of true. */
uint64_t sim_pages_count(struct sim_device *device, const struct sim_message *message,
			 bool (*look)(struct sim_device *device, uint64_t key, void *arg),
			 void *arg);
/*
 * How long the card takes to fetch the message's request again: 0 if it is cached, which depends on
 * how many are outstanding.
 */
uint64_t sim_refetch_ps(struct sim_device *device, const struct sim_message *message);
uint64_t sim_packets(const struct sim_device *device, uint64_t bytes);

uint64_t sim_stall_tx(struct sim_device *device, const struct sim_message *message);
uint64_t sim_stall_rx(struct sim_device *device, const struct sim_message *message,
		      uint64_t *stall_ps);

#endif
