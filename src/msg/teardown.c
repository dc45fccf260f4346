/* SPDX-License-Identifier: MIT */
/*
 * The end of a connection. A peer on shared memory may stop in the middle of a copy to ours, and
 * only time tells whether it goes on. A responder serves others meanwhile: an end whose peer has
 * not let go yet waits on the desk's list, and is tried again whenever the channel is looked at.
 */
#include <errno.h>

#include "msg/end.h"

static bool lane_freed(struct msg_desk *desk, struct msg_lane *lane)
{
	if (gn_mr_deregister_try(lane->mr) == -EAGAIN)
		return false;
	lane->mr = NULL;
	gn_mem_free(lane->mem);
	lane->mem = NULL;
	msg_desk_give_bytes(desk, lane->bytes);
	lane->bytes = 0;
	gn_free(lane->lengths);
	lane->lengths = NULL;
	return true;
}

static bool end_freed(struct msg_end *end)
{
	struct msg_desk *desk = end->desk;

	if (end->qp) {
		if (gn_qp_destroy_try(end->qp) == -EAGAIN)
			return false;
		end->qp = NULL;
		desk->cq_room += end->depth + msg_end_receives(end);
	}
	if (gn_mr_deregister_try(end->data) == -EAGAIN)
		return false;
	end->data = NULL;
	if (!lane_freed(desk, &end->said) || !lane_freed(desk, &end->told))
		return false;
	if (end->said.verb != MSG_DATAGRAM)
		gn_pd_destroy(end->pd);
	gn_free(end->sends);
	gn_free(end);
	return true;
}

void msg_end_free(struct msg_end *end)
{
	struct msg_desk *desk = end->desk;

	if (desk->ends[end->number] == end) {
		desk->ends[end->number] = NULL;
		desk->n_ends--;
	}
	msg_ud_forget(end);
	if (end_freed(end))
		return;
	end->next = desk->torn_down;
	desk->torn_down = end;
	desk->n_torn_down++;
}

void msg_desk_sweep(struct msg_desk *desk)
{
	struct msg_end **at = &desk->torn_down;

	while (*at) {
		struct msg_end *end = *at, *next = end->next;

		if (end_freed(end)) {
			*at = next;
			desk->n_torn_down--;
		} else {
			at = &end->next;
		}
	}
}

void msg_desk_sweep_all(struct msg_desk *desk)
{
	for (msg_desk_sweep(desk); desk->torn_down; msg_desk_sweep(desk))
		gn_sleep_us(MSG_SWEEP_US);
}
