/* SPDX-License-Identifier: MIT */
/* Volumes: creation, placement of the first copies, state. */
#include <stdio.h>

#include "base/sized.h"
#include "io/core/place.h"
#include "vol/claim.h"
#include "vol/vol.h"

#define COPIES	     2u
#define REPAIR_SHARE 25u
#define DETECT_US    60000u
#define LOST_US	     40000000u
#define TIMEOUT_US   60000000u
#define CHANNELS     4u /* of all donors: as an engine has for one target */
#define PROGRESS_NS  UINT64_C(100000000)

uint64_t gn_vol_bytes(const struct gn_vol *vol)
{
	return vol ? vol->opts.bytes : 0;
}

bool vol_claim(struct gn_vol *vol)
{
	return !__atomic_exchange_n(&vol->claimed, true, __ATOMIC_ACQUIRE);
}

void vol_unclaim(struct gn_vol *vol)
{
	__atomic_store_n(&vol->claimed, false, __ATOMIC_RELEASE);
}

struct gn_io *gn_vol_engine(struct gn_vol *vol)
{
	return vol ? vol->io : NULL;
}

/* ---- options ---- */

static int opts_check(const struct gn_vol_opts *opts)
{
	if (!opts->bytes || opts->bytes % GN_VOL_BLOCK || opts->bytes > GN_VOL_SIZE_MAX)
		return gn_fail(-EINVAL,
			       "gn_vol_create(): the size is a multiple of %u bytes, up to 16 TiB",
			       GN_VOL_BLOCK);
	if (!opts->donors || !opts->n_donors || opts->n_donors > GN_VOL_DONORS_MAX)
		return gn_fail(-EINVAL, "gn_vol_create(): a volume needs 1 to %u donors",
			       GN_VOL_DONORS_MAX);
	if (opts->copies > GN_VOL_COPIES_MAX)
		return gn_fail(-EINVAL, "gn_vol_create(): at most %u copies", GN_VOL_COPIES_MAX);
	if (opts->copies > opts->n_donors)
		return gn_fail(-EINVAL,
			       "gn_vol_create(): %u copies need as many donors, but there %s %u: "
			       "name more donors, or ask for fewer copies",
			       opts->copies, opts->n_donors == 1 ? "is" : "are", opts->n_donors);
	if (opts->repair_share > 100)
		return gn_fail(-EINVAL, "gn_vol_create(): repair_share is a percentage");
	for (uint32_t i = 0; i < opts->n_donors; i++) {
		if (!opts->donors[i] || strlen(opts->donors[i]) >= GN_VOL_ADDR)
			return gn_fail(-EINVAL, "gn_vol_create(): the address of donor %u is %s", i,
				       opts->donors[i] ? "too long" : "NULL");
		for (uint32_t j = 0; j < i; j++)
			if (!strcmp(opts->donors[i], opts->donors[j]))
				return gn_fail(-ENOTUNIQ,
					       "gn_vol_create(): donor %s is listed twice",
					       opts->donors[i]);
	}
	return 0;
}

static int vol_opts_read(struct gn_vol *vol, const struct gn_vol_opts *given)
{
	struct gn_vol_opts *opts = &vol->opts;
	int rc;

	opts->size = sizeof(*opts);
	rc = SIZED_READ(opts, given, "gn_vol_opts");
	if (rc)
		return rc;
	if (!opts->copies)
		opts->copies = COPIES;
	rc = opts_check(opts);
	if (rc)
		return rc;
	if (!opts->repair_share)
		opts->repair_share = REPAIR_SHARE;
	if (!opts->detect_us)
		opts->detect_us = DETECT_US;
	if (!opts->lost_us)
		opts->lost_us = LOST_US;
	if (!opts->timeout_us)
		opts->timeout_us = TIMEOUT_US;
	/* One byte more: a tag that is too long is refused by gn_donor_connect(). */
	snprintf(vol->owner, sizeof(vol->owner), "%s", opts->owner ? opts->owner : "vol");
	opts->owner = vol->owner;
	if (opts->authority)
		vol->authority = *opts->authority;
	vol->io_opts.size = sizeof(vol->io_opts);
	rc = SIZED_READ(&vol->io_opts, opts->io, "gn_io_opts");
	if (rc)
		return rc;
	vol->io_opts.size = sizeof(vol->io_opts);
	if (!vol->io_opts.channels)
		vol->io_opts.channels = (CHANNELS + opts->n_donors - 1) / opts->n_donors;
	vol->io_opts.lost_us = opts->lost_us;
	return 0;
}

/* ---- the first copies ---- */

/*
 * Chooses a donor for each copy of each extent: plan[extent * copies + i]. most: the donor with
 * most free memory, which finds a plan if there is one.
 */
static bool vol_plan(struct gn_vol *vol, uint8_t *plan, bool most)
{
	const unsigned n = vol->opts.n_donors;
	uint64_t slabs[GN_VOL_DONORS_MAX];

	gn_mutex_lock(&vol->lock); /* the agents ask again from time to time */
	for (unsigned d = 0; d < n; d++)
		slabs[d] = vol->donors[d].free_slabs;
	gn_mutex_unlock(&vol->lock);
	for (uint32_t e = 0; e < vol->n_extents; e++) {
		uint64_t left[GN_VOL_DONORS_MAX];

		memcpy(left, slabs, sizeof(left));
		for (unsigned i = 0; i < vol->opts.copies; i++) {
			const unsigned d = most ? io_place_most(left, n) :
						  io_place(left, n, gn_random());

			if (d == n)
				return false;
			plan[(size_t)e * vol->opts.copies + i] = (uint8_t)d;
			left[d] = 0;
			slabs[d]--;
		}
	}
	return true;
}

/*
 * failed: a donor that does not grant what it should, or NULL. late: such a donor, or another one
 * that has not granted everything yet.
 */
static uint64_t vol_count_spares(struct gn_vol *vol, uint64_t *wanted, struct vol_donor **failed,
				 struct vol_donor **late)
{
	uint32_t spare[GN_VOL_DONORS_MAX];
	uint64_t spares = 0;

	*wanted = 0;
	*failed = *late = NULL;
	vol_bucket_lock(&vol->buckets[0]);
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		spares += spare[d] = vol->donors[d].n_spare;
	vol_bucket_unlock(&vol->buckets[0]);
	gn_mutex_lock(&vol->lock);
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		struct vol_donor *donor = &vol->donors[d];

		*wanted += donor->want;
		if (spare[d] >= donor->want)
			continue;
		if (donor->gone || donor->full)
			*failed = *late = donor;
		else if (!*late)
			*late = donor;
	}
	gn_mutex_unlock(&vol->lock);
	return spares;
}

/* The donors have not granted enough. late: as vol_count_spares(). */
static int vol_grants_failed(struct gn_vol *vol, uint64_t have, uint64_t wanted,
			     struct vol_donor *late)
{
	char error[sizeof(late->error)] = "no answer in time";
	int rc = -ETIMEDOUT;

	gn_mutex_lock(&vol->lock);
	if (late && late->rc) {
		rc = late->rc;
		memcpy(error, late->error, sizeof(error));
	}
	gn_mutex_unlock(&vol->lock);
	return gn_fail(rc,
		       "gn_vol_create(): the donors granted %llu of %llu slabs%s%s: %s. Start more "
		       "donors, or give them more --memory",
		       (unsigned long long)have, (unsigned long long)wanted, late ? "; donor " : "",
		       late ? late->addr : "", error);
}

/* Waits until the agents hold the wanted slabs. */
static int vol_await_grants(struct gn_vol *vol, uint64_t deadline_ns)
{
	uint64_t wanted, have;

	for (;;) {
		struct vol_donor *failed, *late;
		int rc;

		have = vol_count_spares(vol, &wanted, &failed, &late);
		if (vol->opts.progress)
			vol->opts.progress(vol->opts.progress_arg, have * vol->extent_bytes,
					   wanted * vol->extent_bytes);
		if (have >= wanted)
			return 0;
		gn_mutex_lock(&vol->lock);
		rc = failed ? failed->rc : 0;
		/* The agent tries again. A donor may say -ENOSPC for calls that timed out. */
		if (rc == -ETIMEDOUT || rc == -ECONNRESET || (rc == -ENOSPC && failed->free_slabs))
			rc = 0;
		if (!rc)
			gn_cond_wait(&vol->changed, &vol->lock, gn_now_ns() + PROGRESS_NS, "slabs");
		gn_mutex_unlock(&vol->lock);
		if (rc < 0 || gn_now_ns() >= deadline_ns)
			return vol_grants_failed(vol, have, wanted, late);
	}
}

/* With headroom, less than wanted is enough to begin with. */
static int vol_await_headroom(struct gn_vol *vol, uint64_t deadline_ns)
{
	unsigned with = 0;
	int rc;

	vol_keeper_set_wants(vol);
	rc = vol_await_grants(vol, deadline_ns);
	vol_bucket_lock(&vol->buckets[0]);
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		with += vol->donors[d].n_spare > 0;
	vol_bucket_unlock(&vol->buckets[0]);
	return with >= vol->opts.copies ? 0 : rc;
}

static int vol_no_space(struct gn_vol *vol)
{
	char text[256] = "";
	size_t at = 0;

	gn_mutex_lock(&vol->lock);
	for (unsigned d = 0; d < vol->opts.n_donors && at < sizeof(text) - 1; d++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%s has %llu", d ? ", " : "",
				       vol->donors[d].addr,
				       (unsigned long long)vol->donors[d].free_slabs);
	gn_mutex_unlock(&vol->lock);
	return gn_fail(-ENOSPC,
		       "gn_vol_create(): the volume needs %u slabs on each of %u donors, but %s: "
		       "start more donors, or give them more --memory",
		       vol->n_extents, vol->opts.copies, text);
}

/* Gets slabs for the whole volume, and makes them its copies. */
static int vol_allocate(struct gn_vol *vol, uint64_t deadline_ns)
{
	const size_t n = (size_t)vol->n_extents * vol->opts.copies;
	uint8_t *plan = gn_alloc(n, 0);
	int rc;

	if (!plan)
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	if (!vol_plan(vol, plan, false) && !vol_plan(vol, plan, true)) {
		gn_free(plan);
		return vol_no_space(vol);
	}
	gn_mutex_lock(&vol->lock);
	for (size_t i = 0; i < n; i++)
		vol->donors[plan[i]].want++;
	gn_mutex_unlock(&vol->lock);
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		vol_agent_wake(&vol->donors[d]);
	rc = vol_await_grants(vol, deadline_ns);
	if (!rc) {
		vol_map_lock(vol);
		for (size_t i = 0; i < n && !rc; i++)
			if (!vol_copy_take(&vol->donors[plan[i]], (uint32_t)(i / vol->opts.copies),
					   VOL_LIVE))
				rc = gn_fail(-EAGAIN,
					     "gn_vol_create(): the donor at %s took a "
					     "slab back",
					     vol->donors[plan[i]].addr);
		/* Together with the spares: agent_count(). */
		gn_mutex_lock(&vol->lock);
		for (unsigned d = 0; d < vol->opts.n_donors; d++)
			vol->donors[d].want = 0;
		gn_mutex_unlock(&vol->lock);
		vol_map_unlock(vol);
	}
	gn_free(plan);
	return rc;
}

/* ---- donors ---- */

/* The volume's lock is held. */
static bool donor_timed_out(const struct vol_donor *donor)
{
	return !donor->id.incarnation && donor->rc == -ETIMEDOUT;
}

/*
 * Waits until each agent has connected or failed, and compares the donors. An agent tries again
 * after a connect that timed out.
 */
static int vol_connect(struct gn_vol *vol, uint64_t deadline_ns)
{
	int rc = 0;

	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		struct vol_donor *donor = &vol->donors[d];

		gn_mutex_lock(&vol->lock);
		while (!donor->ready ||
		       (!rc && donor_timed_out(donor) && gn_now_ns() < deadline_ns))
			gn_cond_wait(&vol->changed, &vol->lock,
				     donor->ready ? deadline_ns : GN_FOREVER, "a donor");
		if (!donor->id.incarnation && !rc)
			rc = gn_fail(donor->rc ? donor->rc : -EPROTO,
				     "gn_vol_create(): donor %s: %s%s", donor->addr, donor->error,
				     donor->rc == -ECONNREFUSED ? "; is a donor running there?" :
								  "");
		for (unsigned i = 0; i < d && !rc; i++) {
			const struct vol_donor *other = &vol->donors[i];

			if (other->id.incarnation == donor->id.incarnation)
				rc = gn_fail(-ENOTUNIQ,
					     "gn_vol_create(): %s and %s are the same donor",
					     other->addr, donor->addr);
			else if (other->slab_bytes != donor->slab_bytes)
				rc = gn_fail(
					-EINVAL,
					"gn_vol_create(): %s lends slabs of %llu bytes, but %s "
					"of %llu: start them with the same --slab",
					other->addr, (unsigned long long)other->slab_bytes,
					donor->addr, (unsigned long long)donor->slab_bytes);
		}
		gn_mutex_unlock(&vol->lock);
	}
	gn_mutex_lock(&vol->lock); /* agents compare it when they connect again */
	vol->extent_bytes = vol->donors[0].slab_bytes;
	gn_mutex_unlock(&vol->lock);
	if (!rc && (!vol->extent_bytes || vol->extent_bytes % VOL_STRIPE ||
		    vol->extent_bytes > GN_VOL_SIZE_MAX))
		rc = gn_fail(-EINVAL,
			     "gn_vol_create(): volumes need slabs of whole MiB, but the "
			     "donors lend %llu bytes",
			     (unsigned long long)vol->extent_bytes);
	return rc;
}

static int vol_start_agents(struct gn_vol *vol, uint64_t deadline_ns)
{
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		struct vol_donor *donor = &vol->donors[d];
		int rc;

		donor->vol = vol;
		donor->addr = vol->addrs[d];
		donor->index = d;
		rc = gn_queue_create(2, &donor->wake);
		if (!rc)
			rc = gn_thread_start("vol-agent", vol_agent_main, donor, &donor->thread);
		if (rc)
			return rc;
	}
	return vol_connect(vol, deadline_ns);
}

static void vol_stop_agents(struct gn_vol *vol)
{
	gn_mutex_lock(&vol->lock);
	vol->stop_agents = true;
	gn_mutex_unlock(&vol->lock);
	for (unsigned d = 0; vol->donors && d < vol->opts.n_donors; d++) {
		if (vol->donors[d].thread) {
			vol_agent_wake(&vol->donors[d]);
			gn_thread_join(vol->donors[d].thread);
		}
		gn_queue_destroy(vol->donors[d].wake);
	}
}

/* ---- creation ---- */

static int vol_tables(struct gn_vol *vol)
{
	const uint64_t blocks = vol->opts.bytes >> VOL_BLOCK_SHIFT;

	if (!(vol->extent_bytes & (vol->extent_bytes - 1)))
		vol->extent_shift = (unsigned)__builtin_ctzll(vol->extent_bytes);
	vol->n_extents = (uint32_t)((vol->opts.bytes + vol->extent_bytes - 1) / vol->extent_bytes);
	vol->extents = gn_alloc(vol->n_extents * sizeof(*vol->extents), GN_CACHELINE);
	vol->blocks = gn_alloc((blocks + 31) / 32 * sizeof(*vol->blocks), GN_CACHELINE);
	if (vol->opts.verify)
		vol->crcs = gn_alloc(blocks * sizeof(*vol->crcs), GN_CACHELINE);
	if (!vol->extents || !vol->blocks || (vol->opts.verify && !vol->crcs))
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	return 0;
}

static int vol_init(struct gn_vol *vol)
{
	struct gn_attr attr = {.size = sizeof(attr)};
	int rc;

	gn_mutex_init(&vol->lock);
	gn_cond_init(&vol->changed);
	gn_cond_init(&vol->keeper_cond);
	gn_cond_init(&vol->repair_cond);
	gn_cond_init(&vol->pool_cond);
	gn_cond_init(&vol->backup_cond);
	vol->buckets = gn_alloc(VOL_BUCKETS * sizeof(*vol->buckets), _Alignof(struct vol_bucket));
	vol->donors = gn_alloc(vol->opts.n_donors * sizeof(*vol->donors), 0);
	vol->addrs = gn_alloc(vol->opts.n_donors * sizeof(*vol->addrs), 0);
	if (!vol->buckets || !vol->donors || !vol->addrs)
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	for (unsigned i = 0; i < VOL_BUCKETS; i++) {
		vol->buckets[i].last = &vol->buckets[i].first;
	}
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		strcpy(vol->addrs[d], vol->opts.donors[d]);
	rc = gn_fabric_query(vol->fabric, &attr);
	if (rc)
		return rc;
	if (attr.max_sge < 3)
		return gn_fail(-EOPNOTSUPP,
			       "gn_vol_create(): the device has %u SGEs, volumes need 3",
			       attr.max_sge);
	vol->max_sge = attr.max_sge > GN_VOL_SGE_MAX + 2 ? GN_VOL_SGE_MAX : attr.max_sge - 2;
	return gn_io_create(vol->fabric, &vol->io_opts, &vol->io);
}

/* All threads have ended. */
static void vol_free(struct gn_vol *vol)
{
	while (vol->pool) {
		struct gn_vol_queue *queue = vol->pool;

		vol->pool = queue->pool_next;
		gn_vol_queue_destroy(queue);
	}
	if (!vol->backup_thread) {
		gn_vol_queue_destroy(vol->backup_queue);
		gn_free(vol->backup_buf);
	}
	gn_io_mem_deregister(vol->repair_mem);
	gn_io_queue_destroy(vol->repair_queue);
	gn_free(vol->repair_buf);
	gn_io_destroy(vol->io);
	gn_cond_fini(&vol->changed);
	gn_cond_fini(&vol->keeper_cond);
	gn_cond_fini(&vol->repair_cond);
	gn_cond_fini(&vol->pool_cond);
	gn_cond_fini(&vol->backup_cond);
	gn_mutex_fini(&vol->lock);
	gn_free(vol->buckets);
	gn_free(vol->donors);
	gn_free(vol->addrs);
	gn_free(vol->extents);
	gn_free(vol->blocks);
	gn_free(vol->crcs);
	gn_free(vol->behind);
	gn_free(vol);
}

static void vol_stop(struct gn_vol *vol)
{
	gn_mutex_lock(&vol->lock);
	__atomic_store_n(&vol->stop, true, __ATOMIC_RELAXED);
	gn_cond_signal(&vol->repair_cond);
	gn_mutex_unlock(&vol->lock);
	if (vol->repair)
		gn_thread_join(vol->repair);
	gn_mutex_lock(&vol->lock);
	vol->stop_backup = true;
	gn_cond_signal(&vol->backup_cond);
	gn_mutex_unlock(&vol->lock);
	if (vol->backup_thread)
		gn_thread_join(vol->backup_thread);
	gn_mutex_lock(&vol->lock);
	vol->stop_keeper = true;
	gn_cond_signal(&vol->keeper_cond);
	gn_mutex_unlock(&vol->lock);
	if (vol->keeper)
		gn_thread_join(vol->keeper);
	vol_stop_agents(vol);
	vol_free(vol);
}

int gn_vol_create(struct gn_fabric *fabric, const struct gn_vol_opts *opts, struct gn_vol **out)
{
	struct gn_vol *vol;
	uint64_t deadline_ns;
	int rc;

	if (!fabric || !opts || !out)
		return gn_fail(-EINVAL, "gn_vol_create(): fabric, opts or out is NULL");
	vol = gn_alloc(sizeof(*vol), _Alignof(struct gn_vol));
	if (!vol)
		return gn_fail(-ENOMEM, "gn_vol_create(): " NO_MEMORY);
	vol->fabric = fabric;
	rc = vol_opts_read(vol, opts);
	if (rc) {
		gn_free(vol);
		return rc;
	}
	deadline_ns = gn_deadline_us(vol->opts.timeout_us);
	rc = vol_init(vol);
	if (!rc)
		rc = vol_start_agents(vol, deadline_ns);
	if (!rc)
		rc = vol_tables(vol);
	if (!rc)
		rc = vol->opts.headroom ? vol_await_headroom(vol, deadline_ns) :
					  vol_allocate(vol, deadline_ns);
	if (!rc)
		rc = gn_thread_start("vol-keeper", vol_keeper_main, vol, &vol->keeper);
	if (!rc)
		rc = vol_repair_start(vol);
	if (!rc)
		rc = vol_backup_start(vol);
	if (rc) {
		vol_stop(vol);
		return rc;
	}
	vol->opts.donors = NULL; /* the caller's */
	vol->opts.progress = NULL;
	*out = vol;
	return 0;
}

int gn_vol_destroy(struct gn_vol *vol)
{
	struct gn_io_stats stats = {.size = sizeof(stats)};

	if (!vol)
		return 0;
	if (__atomic_load_n(&vol->n_queues, __ATOMIC_RELAXED))
		return gn_fail(-EBUSY, "gn_vol_destroy(): the volume has queues");
	/* Repair has one mem. */
	if (!gn_io_query(vol->io, &stats) && stats.mems > 1)
		return gn_fail(-EBUSY, "gn_vol_destroy(): its engine has mems");
	vol_stop(vol);
	return 0;
}
