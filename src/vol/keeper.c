/* SPDX-License-Identifier: MIT */
/*
 * The keeper: takes copies that failed out of the map, gives up donors that cannot be reached, and
 * says how much memory the agents should hold. It does no I/O, so nothing that fails can stop it.
 */
#include "vol/vol.h"

void vol_keeper_wake(struct gn_vol *vol)
{
	gn_mutex_lock(&vol->lock);
	vol->kicked = true;
	gn_cond_signal(&vol->keeper_cond);
	gn_mutex_unlock(&vol->lock);
}

/* The volume's lock is held. */
static void failed_add(struct gn_vol *vol, struct vol_copy *copy)
{
	if (copy->failed)
		return;
	copy->failed = true;
	vol_copy_use(copy); /* until the keeper is done with it */
	copy->failed_next = vol->failed;
	vol->failed = copy;
	vol->kicked = true;
	gn_cond_signal(&vol->keeper_cond);
}

void vol_keeper_report_copy(struct vol_copy *copy)
{
	struct gn_vol *vol = copy->donor->vol;

	gn_mutex_lock(&vol->lock);
	failed_add(vol, copy);
	gn_mutex_unlock(&vol->lock);
}

void vol_keeper_report(struct vol_op *op)
{
	struct gn_vol *vol = op->queue->vol;
	int rc = gn_io_expect(op->queue->io, &op->wake);

	assert(!rc); /* the op has no other request now */
	(void)rc;
	gn_mutex_lock(&vol->lock);
	for (unsigned i = 0; i < op->n_copies; i++)
		if (op->failed & 1u << i)
			failed_add(vol, op->copy[i]);
	op->next = vol->waiting;
	vol->waiting = op;
	if (op->failed) { /* otherwise the op tries again at the next tick */
		vol->kicked = true;
		gn_cond_signal(&vol->keeper_cond);
	}
	gn_mutex_unlock(&vol->lock);
}

/* ---- copies that failed ---- */

/* Takes a copy out of the map: 0, or the authority's error. */
static int keeper_lose(struct gn_vol *vol, struct vol_copy *copy)
{
	struct vol_bucket *bucket = &vol->buckets[0];
	const struct gn_vol_copy described = vol_copy_describe(copy);
	enum vol_copy_state state;
	bool known;
	int rc = 0;

	vol_bucket_lock(bucket);
	state = copy->state;
	known = state == VOL_LIVE && !copy->untold; /* to the authority */
	vol_bucket_unlock(bucket);
	if (known && vol->authority.lose_copy)
		rc = vol->authority.lose_copy(vol->authority.arg, &described);
	/* When the volume ends, only READs are left that wait: of its backup. */
	if (rc && !__atomic_load_n(&vol->stop, __ATOMIC_RELAXED))
		return rc;
	vol_map_lock(vol);
	if (copy->joining || (copy->state == VOL_LIVE && state != VOL_LIVE)) {
		vol_map_unlock(vol);
		return -EAGAIN; /* the authority knows of it now, or soon */
	}
	if (copy->state != VOL_RETIRED) {
		vol->stats.copies_lost += copy->state != VOL_SPARE;
		vol_copy_retire(copy);
	}
	vol_map_unlock(vol);
	vol_agent_wake(copy->donor);
	return 0;
}

/* A copy of which the authority has to be told, or NULL. */
static struct vol_copy *keeper_find_untold(struct gn_vol *vol)
{
	struct vol_copy *copy = NULL;

	vol_map_lock(vol);
	for (unsigned d = 0; vol->n_untold && !copy && d < vol->opts.n_donors; d++)
		for (copy = vol->donors[d].copies; copy && !copy->untold;)
			copy = copy->next;
	if (copy)
		vol_copy_use(copy);
	vol_map_unlock(vol);
	return copy;
}

/* Tells the authority of copies that did not go through repair. It is asked until it agrees. */
static void keeper_tell(struct gn_vol *vol)
{
	struct vol_copy *copy;
	int rc = 0;

	while (!rc && (copy = keeper_find_untold(vol))) {
		const struct gn_vol_copy described = vol_copy_describe(copy);

		rc = vol->authority.add_copy(vol->authority.arg, &described);
		vol_map_lock(vol);
		if (!rc)
			vol_copy_set_untold(copy, false);
		vol_map_unlock(vol);
		vol_copy_unuse(copy);
	}
}

/* Are the copies of the op that failed out of the map, and the others known to the authority? */
static bool op_may_go_on(struct vol_op *op)
{
	struct vol_bucket *bucket = &op->queue->vol->buckets[0];
	bool may = true;

	vol_bucket_lock(bucket);
	for (unsigned i = 0; i < op->n_copies; i++)
		may &= op->failed & 1u << i ? op->copy[i]->state == VOL_RETIRED :
					      !op->copy[i]->untold || op->op == GN_VOL_READ;
	vol_bucket_unlock(bucket);
	return may;
}

static void keeper_wake_ops(struct gn_vol *vol)
{
	struct vol_op *op, *next, *still = NULL, *ready = NULL;

	gn_mutex_lock(&vol->lock);
	op = vol->waiting;
	vol->waiting = NULL;
	gn_mutex_unlock(&vol->lock);
	for (; op; op = next) {
		struct vol_op **list = op_may_go_on(op) ? &ready : &still;

		next = op->next;
		op->next = *list;
		*list = op;
	}
	gn_mutex_lock(&vol->lock);
	/* Under the lock: the queue of an op that has ended may be destroyed at once. */
	for (op = ready; op; op = next) {
		next = op->next;
		gn_io_end(&op->wake, 0);
	}
	for (op = still; op; op = next) {
		next = op->next;
		op->next = vol->waiting;
		vol->waiting = op;
	}
	gn_mutex_unlock(&vol->lock);
}

static void keeper_lose_failed(struct gn_vol *vol)
{
	struct vol_copy *copy, *next, *again = NULL;

	gn_mutex_lock(&vol->lock);
	copy = vol->failed;
	vol->failed = NULL;
	gn_mutex_unlock(&vol->lock);
	for (; copy; copy = next) {
		next = copy->failed_next;
		if (keeper_lose(vol, copy)) {
			copy->failed_next = again;
			again = copy;
		} else {
			/* It stays failed: another op may find it in its list. */
			vol_copy_unuse(copy);
		}
		if (vol->authority.lose_copy)
			keeper_wake_ops(vol); /* the next call may take long */
	}
	if (!again)
		return;
	gn_mutex_lock(&vol->lock);
	for (copy = again; copy; copy = next) {
		next = copy->failed_next;
		copy->failed_next = vol->failed;
		vol->failed = copy;
	}
	gn_mutex_unlock(&vol->lock);
}

/* ---- donors ---- */

/* The map is locked: has every extent with a copy here another good one that can be reached? */
static bool donor_is_dispensable(const struct vol_donor *donor)
{
	struct gn_vol *vol = donor->vol;
	bool reachable[GN_VOL_DONORS_MAX], dispensable = true;

	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		const struct vol_donor *other = &vol->donors[d];

		reachable[d] = other != donor && other->target && !other->losing &&
			       !gn_io_target_down_us(other->target);
	}
	gn_mutex_lock(&vol->lock);
	for (const struct vol_copy *copy = donor->copies; copy && dispensable; copy = copy->next) {
		const struct vol_extent *e = &vol->extents[copy->extent];
		bool other = false;

		if (copy->state != VOL_LIVE)
			continue;
		for (unsigned i = 0; i < e->n_live; i++)
			other |= reachable[e->copy[i]->donor->index] && !e->copy[i]->failed &&
				 !__atomic_load_n(&e->copy[i]->wrong, __ATOMIC_RELAXED);
		dispensable = other;
	}
	gn_mutex_unlock(&vol->lock);
	return dispensable;
}

/* The donor's target, or NULL: there is none, or its agent is about to close it. */
static struct gn_io_target *donor_target(struct vol_donor *donor)
{
	struct vol_bucket *bucket = &donor->vol->buckets[0];
	struct gn_io_target *target;

	vol_bucket_lock(bucket);
	target = donor->given_up ? NULL : donor->target;
	vol_bucket_unlock(bucket);
	return target;
}

static bool donor_is_lost(struct vol_donor *donor)
{
	struct gn_vol *vol = donor->vol;
	uint64_t down_us;
	bool lost;

	gn_mutex_lock(&vol->lock);
	lost = donor->gone;
	gn_mutex_unlock(&vol->lock);
	gn_io_target_check(donor->target);
	if (lost || gn_io_target_state(donor->target) == -ESTALE)
		return true;
	down_us = gn_io_target_down_us(donor->target);
	if (down_us < vol->opts.detect_us)
		return false;
	/* The others must not count as reachable only because nobody has looked lately. */
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		struct gn_io_target *target = donor_target(&vol->donors[d]);

		if (target)
			gn_io_target_check(target);
	}
	vol_map_lock(vol);
	lost = donor_is_dispensable(donor);
	vol_map_unlock(vol);
	return lost;
}

/* Its requests end, and all its copies fail. */
static void keeper_give_up(struct vol_donor *donor)
{
	struct gn_vol *vol = donor->vol;
	uint64_t copies = 0;

	vol_map_lock(vol);
	donor->losing = true;
	for (struct vol_copy *copy = donor->copies; copy; copy = copy->next) {
		copies += copy->state == VOL_LIVE || copy->state == VOL_FILLING;
		if (copy->state == VOL_SPARE)
			vol_copy_retire(copy);
	}
	donor->left = donor->leaving && !copies;
	vol_map_unlock(vol);
	gn_io_target_abandon(donor->target);
	if (donor->left)
		gn_log(GN_LOG_INFO, "vol: the donor at %s has left", donor->addr);
	else
		gn_log(GN_LOG_WARN, "vol: the donor at %s is lost, with %llu cop%s", donor->addr,
		       (unsigned long long)copies, copies == 1 ? "y" : "ies");
}

/* All copies of the donor fail; when none is left, the agent ends the session. */
static void keeper_finish_loss(struct vol_donor *donor)
{
	struct gn_vol *vol = donor->vol;
	struct vol_copy *left = NULL;

	vol_map_lock(vol);
	for (struct vol_copy *copy = donor->copies; copy; copy = copy->next) {
		if (copy->state == VOL_RETIRED)
			continue;
		left = copy;
		vol_keeper_report_copy(copy);
	}
	if (!left) {
		donor->losing = false;
		__atomic_store_n(&donor->given_up, true, __ATOMIC_RELEASE);
	}
	vol_map_unlock(vol);
	if (left)
		return;
	gn_mutex_lock(&vol->lock);
	donor->times_lost += !donor->left;
	vol->work = true;
	gn_cond_signal(&vol->repair_cond);
	gn_cond_broadcast(&vol->changed);
	gn_mutex_unlock(&vol->lock);
	vol_agent_wake(donor);
}

static void keeper_check_donors(struct gn_vol *vol)
{
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		struct vol_donor *donor = &vol->donors[d];

		if (!donor_target(donor))
			continue;
		if (donor->losing)
			gn_io_target_abandon(donor->target); /* a qp may have been busy */
		else if (donor_is_lost(donor))
			keeper_give_up(donor);
		if (donor->losing)
			keeper_finish_loss(donor);
	}
}

/* Spare slabs of each donor for extents without copies. */
void vol_keeper_set_wants(struct gn_vol *vol)
{
	uint64_t slabs = vol->opts.headroom / vol->extent_bytes +
			 (vol->opts.headroom % vol->extent_bytes != 0);
	uint64_t unused;
	unsigned usable = 0;
	bool can[GN_VOL_DONORS_MAX];

	if (!vol->opts.headroom)
		return;
	vol_map_lock(vol);
	unused = vol->n_extents - vol->n_used;
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		usable += can[d] = vol_donor_usable(&vol->donors[d]);
	vol_map_unlock(vol);
	if (slabs > unused * vol->opts.copies)
		slabs = unused * vol->opts.copies;
	for (unsigned d = 0; d < vol->opts.n_donors; d++) {
		const uint32_t want = can[d] ? (uint32_t)((slabs + usable - 1) / usable) : 0;
		bool more;

		gn_mutex_lock(&vol->lock);
		more = want != vol->donors[d].want;
		vol->donors[d].want = want;
		gn_mutex_unlock(&vol->lock);
		if (more)
			vol_agent_wake(&vol->donors[d]);
	}
}

void vol_keeper_main(void *arg)
{
	struct gn_vol *vol = arg;

	gn_mutex_lock(&vol->lock);
	while (!vol->stop_keeper) {
		vol->kicked = false;
		gn_mutex_unlock(&vol->lock);
		keeper_check_donors(vol);
		keeper_lose_failed(vol);
		keeper_tell(vol);
		keeper_wake_ops(vol);
		vol_keeper_set_wants(vol);
		gn_mutex_lock(&vol->lock);
		if (!vol->kicked && !vol->stop_keeper)
			gn_cond_wait(&vol->keeper_cond, &vol->lock, gn_now_ns() + VOL_TICK_NS,
				     "the volume's keeper");
	}
	gn_mutex_unlock(&vol->lock);
}
