/* SPDX-License-Identifier: MIT */
/*
 * The limit of every WRITE and READ: memcpy over the same number and kind of buffers, in the same
 * order.
 */
#include "pair.h"

#include <errno.h>

int copying_run(void *arg, uint64_t block_ns, struct block *out)
{
	struct copying *c = arg;
	const uint32_t slots = c->plan->slots;
	const size_t stride = c->plan->stride;
	uint32_t from = (uint32_t)(c->ops % (2 * slots)), to = (uint32_t)(c->ops % slots);
	uint64_t since_ns = gn_now_ns();

	out->group_ops = c->group_ops;
	while (out->ns < block_ns) {
		for (uint64_t i = 0; i < c->group_ops; i++) {
			memcpy(c->dst + to * stride, c->src + from * stride, c->size_bytes);
			from = from + 1 == 2 * slots ? 0 : from + 1;
			to = to + 1 == slots ? 0 : to + 1;
		}
		c->ops += c->group_ops;
		since_ns = block_group(out, since_ns);
		if (bench_stopped())
			return -EINTR;
	}
	return 0;
}
