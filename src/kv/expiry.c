/* SPDX-License-Identifier: MIT */
/* Histogram of the expiry times in a region. */
#include "kv/log.h"

/* Rearranges the bins to include when_s, with the narrowest width that fits. */
static void expiry_rebin(struct kv_expiry *e, uint32_t when_s)
{
	const struct kv_expiry old = *e;
	uint32_t first = when_s >> e->shift, last = first;
	unsigned by = 0;

	for (uint32_t i = 0; i < KV_EXPIRY_BINS; i++) {
		if (!old.bytes[i])
			continue;
		first = old.base + i < first ? old.base + i : first;
		last = old.base + i > last ? old.base + i : last;
	}
	while ((last >> by) - (first >> by) >= KV_EXPIRY_BINS)
		by++;
	*e = (struct kv_expiry){.base = first >> by, .shift = old.shift + by, .all = old.all};
	for (uint32_t i = 0; i < KV_EXPIRY_BINS; i++)
		if (old.bytes[i])
			e->bytes[((old.base + i) >> by) - e->base] += old.bytes[i];
}

void kv_expiry_add(struct kv_expiry *e, uint32_t when_s, uint32_t bytes)
{
	if ((when_s >> e->shift) - e->base >= KV_EXPIRY_BINS) {
		if (!e->all)
			*e = (struct kv_expiry){.base = when_s};
		else
			expiry_rebin(e, when_s);
	}
	e->bytes[(when_s >> e->shift) - e->base] += bytes;
	e->all += bytes;
}

void kv_expiry_remove(struct kv_expiry *e, uint32_t when_s, uint32_t bytes)
{
	e->bytes[(when_s >> e->shift) - e->base] -= bytes;
	e->all -= bytes;
}

uint32_t kv_expiry_by(const struct kv_expiry *e, uint32_t now_s)
{
	uint32_t bytes = 0;

	if (!e->all)
		return 0;
	for (uint32_t i = 0; i < KV_EXPIRY_BINS; i++)
		if ((((uint64_t)e->base + i + 1) << e->shift) <= (uint64_t)now_s + 1)
			bytes += e->bytes[i];
	return bytes;
}
