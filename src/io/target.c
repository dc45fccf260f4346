/* SPDX-License-Identifier: MIT */
/* Targets and their regions. */
#include <string.h>

#include "base/sized.h"
#include "io/engine.h"

#define CONNECT_US	2000000u
#define CONNECT_LOOK_US 20u
#define RIGHTS_KNOWN	((unsigned)(GN_REMOTE_READ | GN_REMOTE_WRITE))

static void target_free(struct gn_io_target *target)
{
	for (unsigned i = 0; target->channels && i < target->n_channels; i++)
		gn_free(target->channels[i].posted);
	gn_free(target->channels);
	gn_free(target->addr);
	gn_free(target);
}

static int target_alloc(struct gn_io *io, const char *addr, const struct gn_io_target_opts *opts,
			struct gn_io_target **out)
{
	struct gn_io_target *target = gn_alloc(sizeof(*target), 0);
	uint32_t ring = 1;

	if (!target)
		return gn_fail(-ENOMEM, "gn_io_target_open(): " NO_MEMORY);
	target->io = io;
	target->n_channels = io->opts.channels;
	target->takes_over = opts->share && !opts->generation;
	target->timeout_us = opts->timeout_us ? opts->timeout_us : CONNECT_US;
	target->attach = (struct io_attach){
		.magic = IO_ATTACH_MAGIC,
		.version = IO_ATTACH_VERSION,
		.kind = opts->share ? IO_ATTACH_SHARE : IO_ATTACH_SESSION,
		.incarnation = opts->incarnation,
	};
	memcpy(target->attach.token, opts->token, sizeof(target->attach.token));
	target->addr = gn_alloc(strlen(addr) + 1, 0);
	target->channels = gn_alloc(target->n_channels * sizeof(struct io_channel),
				    _Alignof(struct io_channel));
	if (!target->addr || !target->channels)
		goto no_memory;
	strcpy(target->addr, addr);
	while (ring < io->opts.depth)
		ring *= 2;
	for (uint32_t i = 0; i < target->n_channels; i++) {
		struct io_channel *ch = &target->channels[i];

		io_channel_init(ch, target, i);
		ch->depth = io->opts.depth;
		ch->generation = opts->generation ? opts->generation : 1;
		ch->mask = ring - 1;
		ch->max_sge = io->max_sge;
		ch->posted = gn_alloc(ring * sizeof(*ch->posted), 0);
		if (!ch->posted)
			goto no_memory;
	}
	*out = target;
	return 0;

no_memory:
	target_free(target);
	return gn_fail(-ENOMEM, "gn_io_target_open(): " NO_MEMORY);
}

/* Removes the channels from their pollers. -EBUSY: requests are under way, and nothing changed. */
static int target_detach(struct gn_io_target *target)
{
	for (uint32_t i = 0; i < target->n_channels; i++) {
		struct io_channel *ch = &target->channels[i];
		bool busy;

		if (!ch->poller)
			continue;
		io_poller_lock(ch->poller);
		busy = io_channel_busy(ch);
		io_poller_leave(ch->poller, NULL);
		if (busy)
			return -EBUSY;
	}
	for (uint32_t i = 0; i < target->n_channels; i++) {
		struct io_channel *ch = &target->channels[i];
		struct io_poller *poller = ch->poller;

		if (!poller)
			continue;
		io_poller_lock(poller);
		io_channel_close(ch);
		io_poller_remove(poller, ch);
		io_poller_leave(poller, NULL);
	}
	return 0;
}

static bool target_all_up(const struct gn_io_target *target)
{
	for (uint32_t i = 0; i < target->n_channels; i++)
		if (__atomic_load_n(&target->channels[i].state, __ATOMIC_ACQUIRE) != IO_CHANNEL_UP)
			return false;
	return true;
}

int gn_io_target_check(struct gn_io_target *target)
{
	if (!target)
		return gn_fail(-EINVAL, "gn_io_target_check(): target is NULL");
	for (uint32_t i = 0; i < target->n_channels; i++) {
		struct io_poller *poller = target->channels[i].poller;

		if (!io_poller_try(poller))
			continue; /* its holder looks from time to time */
		io_poller_maintain(poller, NULL);
		io_poller_leave(poller, NULL);
	}
	return 0;
}

static int target_connect(struct gn_io_target *target)
{
	const uint64_t deadline_ns = gn_deadline_us(target->timeout_us);

	while (!target_all_up(target)) {
		int rc = __atomic_load_n(&target->lost, __ATOMIC_RELAXED);

		if (rc == -EACCES)
			return gn_fail(rc, "gn_io_target_open(): %s does not know the token",
				       target->addr);
		if (rc)
			return gn_fail(rc, "gn_io_target_open(): %s: %s", target->addr,
				       __atomic_load_n(&target->why_lost, __ATOMIC_RELAXED));
		rc = __atomic_load_n(&target->refused, __ATOMIC_RELAXED);
		if (gn_now_ns() >= deadline_ns)
			return gn_fail(rc && rc != -EAGAIN ? rc : -ETIMEDOUT,
				       "gn_io_target_open(): cannot connect to %s: %s",
				       target->addr, gn_strerror(rc ? rc : -ETIMEDOUT));
		if (rc == -EPROTO)
			return gn_fail(rc,
				       "gn_io_target_open(): %s is not the data address of a donor "
				       "of this version",
				       target->addr);
		if (rc == -ECONNREFUSED)
			return gn_fail(rc, "gn_io_target_open(): cannot connect to %s: %s",
				       target->addr, gn_strerror(rc));
		gn_io_target_check(target);
		if (!target_all_up(target))
			gn_sleep_us(CONNECT_LOOK_US);
	}
	return 0;
}

/* The channels of one token have access to one range. It does not change once they are UP. */
static int target_check_ranges(const struct gn_io_target *target)
{
	for (uint32_t i = 1; i < target->n_channels; i++)
		if (!io_range_equal(&target->channels[i].shared, &target->channels[0].shared))
			return gn_fail(-ESTALE,
				       "gn_io_target_open(): %s gave its channels different ranges",
				       target->addr);
	return 0;
}

int gn_io_target_open(struct gn_io *io, const char *addr, const struct gn_io_target_opts *given,
		      struct gn_io_range *shared, struct gn_io_target **out)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts)};
	struct gn_io_target *target = NULL;
	struct io_poller *poller;
	int rc;

	if (!io || !addr || !given || !out)
		return gn_fail(-EINVAL, "gn_io_target_open(): io, addr, opts or out is NULL");
	rc = SIZED_READ(&opts, given, "gn_io_target_opts");
	if (!rc)
		rc = io_check(io, "gn_io_target_open()");
	if (!rc)
		rc = target_alloc(io, addr, &opts, &target);
	if (rc)
		return rc;
	gn_mutex_lock(&io->lock);
	for (uint32_t i = 0; !rc && i < target->n_channels; i++)
		rc = io_poller_get(io, &target->channels[i], &poller);
	gn_mutex_unlock(&io->lock);
	if (!rc)
		rc = target_connect(target);
	/* From now on another client that opens the share takes it over. */
	__atomic_store_n(&target->takes_over, false, __ATOMIC_RELAXED);
	if (!rc)
		rc = target_check_ranges(target);
	if (rc) {
		gn_mutex_lock(&io->lock);
		target_detach(target);
		gn_mutex_unlock(&io->lock);
		target_free(target);
		return rc;
	}
	__atomic_fetch_add(&io->n_targets, 1, __ATOMIC_RELAXED);
	if (shared)
		*shared = target->channels->shared;
	*out = target;
	return 0;
}

int gn_io_target_close(struct gn_io_target *target)
{
	struct gn_io *io;
	int rc;

	if (!target)
		return 0;
	io = target->io;
	rc = io_check(io, "gn_io_target_close()");
	if (rc)
		return rc;
	if (__atomic_load_n(&target->n_regions, __ATOMIC_RELAXED))
		return gn_fail(-EBUSY, "gn_io_target_close(): the target has regions");
	gn_mutex_lock(&io->lock);
	rc = target_detach(target);
	gn_mutex_unlock(&io->lock);
	if (rc)
		return gn_fail(rc, "gn_io_target_close(): requests are under way");
	target_free(target);
	__atomic_fetch_sub(&io->n_targets, 1, __ATOMIC_RELAXED);
	return 0;
}

uint64_t gn_io_target_down_us(const struct gn_io_target *target)
{
	const uint64_t now_ns = gn_now_ns();
	uint64_t longest_ns = 0;

	for (unsigned i = 0; target && i < target->n_channels; i++) {
		const struct io_channel *ch = &target->channels[i];
		const uint64_t down_ns = __atomic_load_n(&ch->down_ns, __ATOMIC_RELAXED);

		if (__atomic_load_n(&ch->state, __ATOMIC_ACQUIRE) != IO_CHANNEL_UP &&
		    now_ns > down_ns && now_ns - down_ns > longest_ns)
			longest_ns = now_ns - down_ns;
	}
	return (longest_ns + 999) / 1000;
}

int gn_io_target_abandon(struct gn_io_target *target)
{
	if (!target)
		return gn_fail(-EINVAL, "gn_io_target_abandon(): target is NULL");
	io_target_lose(target, -ESTALE, "it was given up", false); /* its caller knows */
	/* Threads that sleep until a request ends do not see that they should look. */
	for (unsigned i = 0; i < target->n_channels; i++) {
		struct io_poller *poller = target->channels[i].poller;

		io_poller_lock(poller);
		io_poller_maintain(poller, NULL);
		io_poller_leave(poller, NULL);
	}
	return 0;
}

int io_target_lost(const struct gn_io_target *target)
{
	return gn_fail(-ESTALE, "the memory at %s is lost: %s", target->addr,
		       __atomic_load_n(&target->why_lost, __ATOMIC_RELAXED));
}

int gn_io_target_state(const struct gn_io_target *target)
{
	if (!target)
		return gn_fail(-EINVAL, "gn_io_target_state(): target is NULL");
	return __atomic_load_n(&target->lost, __ATOMIC_ACQUIRE) ? io_target_lost(target) : 0;
}

int gn_io_region_add(struct gn_io_target *target, const struct gn_io_range *range,
		     struct gn_io_region **out)
{
	struct gn_io_region *region;

	if (!target || !range || !out || !range->remote.length || !range->rights ||
	    (range->rights & ~RIGHTS_KNOWN) ||
	    range->remote.offset + range->remote.length < range->remote.length)
		return gn_fail(-EINVAL,
			       "gn_io_region_add(): the range has a length, and the rights "
			       "GN_REMOTE_READ or GN_REMOTE_WRITE");
	region = gn_alloc(sizeof(*region), 0);
	if (!region)
		return gn_fail(-ENOMEM, "gn_io_region_add(): " NO_MEMORY);
	*region = (struct gn_io_region){.target = target,
					.start = range->remote.offset,
					.length = range->remote.length,
					.key = range->remote.key,
					.rights = range->rights};
	__atomic_fetch_add(&target->n_regions, 1, __ATOMIC_RELAXED);
	*out = region;
	return 0;
}

int gn_io_region_remove(struct gn_io_region *region)
{
	if (!region)
		return 0;
	if (__atomic_load_n(&region->refs, __ATOMIC_ACQUIRE))
		return gn_fail(-EBUSY, "gn_io_region_remove(): requests refer to it");
	__atomic_fetch_sub(&region->target->n_regions, 1, __ATOMIC_RELAXED);
	gn_free(region);
	return 0;
}

unsigned gn_io_region_channel(const struct gn_io_region *region, uint64_t offset)
{
	return io_channel_of(region->start + offset, region->target->n_channels);
}
