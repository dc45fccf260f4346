/* SPDX-License-Identifier: MIT */
/*
 * Agents: the thread that owns the session with a donor. It holds as many spare slabs as are
 * wanted, releases slabs that nobody uses any more, renews the lease, and receives notices. When
 * the keeper has given the donor up it ends the session, and connects anew: a donor that comes back
 * has no copies.
 */
#include <stdio.h>

#include "vol/vol.h"

#define RENEW_NS	 UINT64_C(1000000000)
#define QUERY_NS	 UINT64_C(2000000000)
#define GRANT_RETRY_NS	 UINT64_C(200000000)
#define LOOK_RETRY_NS	 UINT64_C(200000000)
#define TAKE_NS		 UINT64_C(1000000000) /* after its deadline a donor takes a slab by then */
#define BUSY_NS		 UINT64_C(2000000)    /* until a slab is not used any more */
#define NOTICES		 64u		      /* of one step, which has other work */
#define RECONNECT_MIN_NS UINT64_C(100000000)
#define RECONNECT_MAX_NS UINT64_C(3000000000)

struct agent {
	struct vol_donor *donor;
	struct gn_vol *vol;
	struct gn_donor *session;
	uint64_t renew_ns, query_ns, grant_ns, next_ns; /* when they are due; all of it */
	uint64_t backoff_ns;
	bool listens; /* the last step polled the session */
	bool look;    /* the donor took slabs and did not name them */
};

void vol_agent_wake(struct vol_donor *donor)
{
	gn_queue_push(donor->wake, donor); /* full: it is awake */
}

static void agent_due(struct agent *a, uint64_t due_ns)
{
	if (due_ns < a->next_ns)
		a->next_ns = due_ns;
}

/* What a call returned. -ESTALE: the session has ended. */
static void agent_result(struct agent *a, int rc)
{
	struct vol_donor *donor = a->donor;

	if (!rc || rc == -EBUSY)
		return;
	gn_mutex_lock(&a->vol->lock);
	donor->rc = rc;
	snprintf(donor->error, sizeof(donor->error), "%s", gn_error());
	donor->gone |= rc == -ESTALE;
	gn_mutex_unlock(&a->vol->lock);
	if (rc == -ESTALE)
		vol_keeper_wake(a->vol);
}

/* ---- the session ---- */

/* What the volume has to know of a donor. */
static int agent_ask(struct agent *a)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct vol_donor *donor = a->donor;
	int rc = gn_donor_query(a->session, &stats, gn_deadline_us(VOL_CALL_US));
	uint64_t taken;

	if (rc)
		return rc;
	taken = stats.granted + stats.ending;
	gn_mutex_lock(&a->vol->lock);
	donor->slab_bytes = stats.slab_bytes;
	donor->free_slabs = stats.slabs > taken ? stats.slabs - taken : 0;
	if (stats.reserve && stats.available && stats.available < stats.reserve)
		donor->free_slabs = 0;
	donor->full &= !donor->free_slabs;
	gn_mutex_unlock(&a->vol->lock);
	a->query_ns = gn_now_ns() + QUERY_NS;
	return 0;
}

static void agent_set_target(struct agent *a, struct gn_io_target *target)
{
	vol_map_lock(a->vol);
	a->donor->target = target;
	vol_map_unlock(a->vol);
}

static bool agent_is_idle(const struct agent *a)
{
	for (const struct vol_copy *copy = a->donor->copies; copy; copy = copy->next)
		if (!vol_copy_idle(copy))
			return false;
	return true;
}

/* Ends the session. Nobody uses its copies, and none is in the map, unless the volume ends. */
static int agent_close(struct agent *a)
{
	struct vol_donor *donor = a->donor;
	int rc;

	agent_set_target(a, NULL); /* the keeper must not use it any more */
	rc = gn_donor_close(a->session, 0);
	if (rc) {
		agent_set_target(a, gn_donor_target(a->session));
		return rc;
	}
	a->session = NULL;
	vol_map_lock(a->vol);
	while (donor->copies) {
		struct vol_copy *copy = donor->copies;

		list_remove(copy);
		gn_free(copy);
	}
	donor->n_spare = donor->n_used = 0;
	donor->leaving = donor->given_up = false;
	vol_map_unlock(a->vol);
	return 0;
}

/* The volume's lock is held: is a donor that came back one of another kind? */
static int agent_check_again(const struct agent *a, uint64_t incarnation)
{
	const struct gn_vol *vol = a->vol;

	if (a->donor->slab_bytes != vol->extent_bytes)
		return gn_fail(-EINVAL, "the donor at %s now lends slabs of another size",
			       a->donor->addr);
	for (unsigned d = 0; d < vol->opts.n_donors; d++)
		if (d != a->donor->index && vol->donors[d].id.incarnation == incarnation)
			return gn_fail(-ENOTUNIQ, "%s and %s are now the same donor",
				       a->donor->addr, vol->donors[d].addr);
	return 0;
}

static int agent_connect(struct agent *a)
{
	struct gn_donor_opts opts = {.size = sizeof(opts), .owner = a->vol->opts.owner};
	struct vol_donor *donor = a->donor;
	struct gn_donor_id id = {0};
	int rc = gn_donor_connect(a->vol->fabric, a->vol->io, donor->addr, &opts, &a->session);

	if (!rc)
		rc = agent_ask(a);
	if (!rc)
		rc = gn_donor_session_id(a->session, &id);
	gn_mutex_lock(&a->vol->lock);
	if (!rc && a->vol->extent_bytes)
		rc = agent_check_again(a, id.incarnation);
	donor->rc = rc;
	if (rc)
		snprintf(donor->error, sizeof(donor->error), "%s", gn_error());
	donor->id = rc ? (struct gn_donor_id){.incarnation = 0} : id;
	donor->full = donor->gone = false;
	donor->ready = false;
	gn_mutex_unlock(&a->vol->lock);
	if (!rc)
		agent_set_target(a, gn_donor_target(a->session));
	/* A donor that is ready has a target, or failed: vol_keeper_set_wants(). */
	gn_mutex_lock(&a->vol->lock);
	donor->ready = true;
	gn_cond_broadcast(&a->vol->changed);
	gn_mutex_unlock(&a->vol->lock);
	if (rc) {
		gn_donor_close(a->session, 0);
		a->session = NULL;
		return rc;
	}
	a->renew_ns = gn_now_ns() + RENEW_NS;
	a->grant_ns = 0;
	a->look = false;
	vol_keeper_wake(a->vol);
	return 0;
}

/* ---- slabs ---- */

/* Spare slabs that the agent should have, and has. */
static void agent_count(struct agent *a, uint32_t *want, uint32_t *spare)
{
	/* In this order: spares that become copies are not granted once more. */
	vol_bucket_lock(&a->vol->buckets[0]);
	*spare = a->donor->n_spare;
	vol_bucket_unlock(&a->vol->buckets[0]);
	gn_mutex_lock(&a->vol->lock);
	*want = a->donor->want + a->donor->want_repair;
	gn_mutex_unlock(&a->vol->lock);
}

static int agent_adopt_slab(struct agent *a, struct gn_donor_slab *slab)
{
	struct vol_donor *donor = a->donor;
	struct vol_copy *copy;

	/* Without a region: its release failed. */
	if (slab->bytes != a->vol->extent_bytes || !slab->region)
		return gn_fail_text(-EPROTO, "its slabs are of another size, and cannot be used");
	copy = gn_alloc(sizeof(*copy), 0);
	if (!copy)
		return gn_fail_text(-ENOMEM, "vol: " NO_MEMORY);
	slab->user = copy;
	copy->donor = donor;
	copy->slab = slab;
	copy->id = slab->id;
	copy->region = slab->region;
	vol_map_lock(a->vol);
	list_push(&donor->copies, copy);
	donor->n_spare++;
	vol_map_unlock(a->vol);
	return 0;
}

/*
 * New slabs of the session become spares, also those of grants whose answer was lost: returns how
 * many. Slabs that cannot be used are returned to the donor: an error, which is recorded.
 */
static int agent_adopt(struct agent *a)
{
	struct gn_donor_slab *slab = gn_donor_next_slab(a->session, NULL), *next;
	int n = 0, error = 0;

	for (int rc = 0; slab && !rc; slab = next) {
		next = gn_donor_next_slab(a->session, slab);
		if (slab->user)
			continue;
		rc = agent_adopt_slab(a, slab);
		if (!rc) {
			n++;
			continue;
		}
		error = rc;
		agent_result(a, rc); /* with the text of this error */
		rc = gn_donor_release(a->session, slab, gn_deadline_us(VOL_CALL_US));
	}
	return error ? error : n;
}

static void agent_grant(struct agent *a)
{
	struct gn_donor_slab *slabs[VOL_GRANTS];
	struct vol_donor *donor = a->donor;
	uint32_t want, spare, n;
	int rc, adopted;

	agent_count(a, &want, &spare);
	if (want <= spare)
		return;
	if (gn_now_ns() < a->grant_ns) {
		agent_due(a, a->grant_ns);
		return;
	}
	n = want - spare < VOL_GRANTS ? want - spare : VOL_GRANTS;
	rc = gn_donor_grant(a->session, n, slabs, gn_deadline_us(VOL_CALL_US));
	if (rc < 0) /* its text is the reason, unless there are slabs nevertheless */
		agent_result(a, rc);
	adopted = agent_adopt(a);
	if (adopted <= 0) {
		gn_mutex_lock(&a->vol->lock);
		donor->full = true;
		gn_cond_broadcast(&a->vol->changed);
		gn_mutex_unlock(&a->vol->lock);
		a->grant_ns = gn_now_ns() + GRANT_RETRY_NS;
		agent_due(a, a->grant_ns);
		return;
	}
	gn_mutex_lock(&a->vol->lock);
	donor->full = false;
	donor->free_slabs -= donor->free_slabs > (unsigned)adopted ? (unsigned)adopted :
								     donor->free_slabs;
	a->vol->work = true;
	gn_cond_broadcast(&a->vol->changed);
	gn_cond_signal(&a->vol->repair_cond);
	gn_mutex_unlock(&a->vol->lock);
	a->next_ns = GN_NO_WAIT; /* perhaps there is more to grant */
}

/* Spares that are not wanted any more. */
static void agent_shrink(struct agent *a)
{
	struct vol_donor *donor = a->donor;
	uint32_t want, spare;

	agent_count(a, &want, &spare);
	if (spare <= want)
		return;
	vol_map_lock(a->vol);
	for (struct vol_copy *copy = donor->copies; copy && donor->n_spare > want;
	     copy = copy->next)
		if (copy->state == VOL_SPARE)
			vol_copy_retire(copy);
	vol_map_unlock(a->vol);
}

static void agent_release(struct agent *a)
{
	struct vol_donor *donor = a->donor;
	struct vol_copy *copy, *next;

	for (copy = donor->copies; copy; copy = next) {
		int rc;

		next = copy->next;
		if (vol_copy_state(copy) != VOL_RETIRED)
			continue;
		if (!vol_copy_idle(copy)) {
			agent_due(a, gn_now_ns() + BUSY_NS);
			continue;
		}
		rc = gn_donor_release(a->session, copy->slab, gn_deadline_us(VOL_CALL_US));
		agent_result(a, rc);
		if (rc == -ESTALE)
			copy->slab = NULL; /* with the session */
		if (rc) {
			agent_due(a, gn_now_ns() + 10 * BUSY_NS);
			return;
		}
		vol_map_lock(a->vol);
		list_remove(copy);
		vol_map_unlock(a->vol);
		gn_free(copy);
	}
}

/* ---- notices ---- */

static void copy_move_away(struct vol_copy *copy, uint64_t until_ns)
{
	copy->move_until_ns = until_ns;
	if (copy->state == VOL_SPARE)
		vol_copy_retire(copy);
	else
		copy->moving = true;
}

/* The donor has not taken slabs that it wanted back: its shortage of memory is over. */
static void agent_keep(struct agent *a, uint64_t now_ns)
{
	for (struct vol_copy *copy = a->donor->copies; copy; copy = copy->next) {
		const uint64_t until_ns = copy->move_until_ns;

		if (!until_ns || until_ns == GN_FOREVER)
			continue;
		if (now_ns < until_ns + TAKE_NS) {
			agent_due(a, until_ns + TAKE_NS);
			continue;
		}
		copy->move_until_ns = 0;
		vol_map_lock(a->vol);
		copy->moving = false;
		vol_map_unlock(a->vol);
	}
}

static void agent_notice(struct agent *a, const struct gn_donor_notice *notice)
{
	struct vol_donor *donor = a->donor;
	struct vol_copy *copy = notice->slab ? notice->slab->user : NULL;

	vol_map_lock(a->vol);
	if (notice->kind == GN_DONOR_TAKE_BACK && copy)
		copy_move_away(copy, notice->deadline_ns);
	if (notice->kind == GN_DONOR_GOING_AWAY) {
		donor->leaving = true;
		for (copy = donor->copies; copy; copy = copy->next)
			copy_move_away(copy, GN_FOREVER);
	}
	vol_map_unlock(a->vol);
	if (notice->kind == GN_DONOR_TAKEN && copy)
		vol_keeper_report_copy(copy);
	if (notice->kind == GN_DONOR_TAKEN && !notice->id)
		a->look = true;
	gn_mutex_lock(&a->vol->lock);
	if (notice->kind == GN_DONOR_GOING_AWAY && !(donor->full && donor->rc == -ESHUTDOWN)) {
		gn_log(GN_LOG_INFO, "vol: the donor at %s leaves: its copies are moved",
		       donor->addr);
		donor->full = true;
		donor->rc = -ESHUTDOWN;
		snprintf(donor->error, sizeof(donor->error), "it is going away");
		gn_cond_broadcast(&a->vol->changed);
	}
	a->vol->work = true;
	gn_cond_signal(&a->vol->repair_cond);
	gn_mutex_unlock(&a->vol->lock);
}

static void agent_notices(struct agent *a)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	int rc = 0;

	for (unsigned i = 0; i < NOTICES; i++) {
		rc = gn_donor_next_notice(a->session, &notice, GN_NO_WAIT);
		if (rc)
			break;
		agent_notice(a, &notice);
	}
	if (!rc)
		a->next_ns = GN_NO_WAIT; /* there may be more */
	if (rc == -ESTALE)
		agent_result(a, rc);
}

static int copy_found(void *arg, const struct gn_donor_entry *entry)
{
	const struct agent *a = arg;
	struct vol_copy *copy = a->donor->copies;

	if (!entry->mine || entry->state == GN_DONOR_ENDING)
		return 0;
	while (copy && copy->id != entry->slab)
		copy = copy->next;
	if (copy)
		copy->listed = true;
	return 0;
}

/* Finds out which slabs the donor took: those that it does not list any more. */
static void agent_look(struct agent *a)
{
	int rc;

	for (struct vol_copy *copy = a->donor->copies; copy; copy = copy->next)
		copy->listed = false;
	rc = gn_donor_list(a->session, a->vol->opts.owner, copy_found, a,
			   gn_deadline_us(VOL_CALL_US));
	if (rc) {
		agent_result(a, rc);
		agent_due(a, gn_now_ns() + LOOK_RETRY_NS);
		return;
	}
	a->look = false;
	for (struct vol_copy *copy = a->donor->copies; copy; copy = copy->next)
		if (!copy->listed)
			vol_keeper_report_copy(copy);
}

static void agent_renew(struct agent *a)
{
	for (struct vol_copy *copy = a->donor->copies; copy; copy = copy->next)
		if (copy->slab)
			gn_donor_used(a->session, copy->slab,
				      __atomic_load_n(&copy->users, __ATOMIC_RELAXED) >> 32);
	agent_result(a, gn_donor_renew(a->session));
	a->renew_ns = gn_now_ns() + RENEW_NS;
}

/* ---- the thread ---- */

static void agent_wait(struct agent *a)
{
	struct gn_wait_item items[2];
	unsigned n = 0;

	items[n++] = gn_wait_on(gn_queue_source(a->donor->wake));
	if (a->session && a->listens && gn_donor_source(a->session))
		items[n++] = gn_wait_on(gn_donor_source(a->session));
	gn_wait_sleep(items, n, a->next_ns, "the volume's donor");
	while (gn_queue_pop(a->donor->wake))
		;
}

static void agent_step(struct agent *a)
{
	const uint64_t now_ns = gn_now_ns();
	bool gone;

	a->next_ns = now_ns + RENEW_NS;
	a->listens = false;
	gn_mutex_lock(&a->vol->lock);
	gone = a->donor->gone;
	gn_mutex_unlock(&a->vol->lock);
	if (__atomic_load_n(&a->donor->given_up, __ATOMIC_ACQUIRE)) {
		gn_io_target_abandon(gn_donor_target(a->session)); /* a qp may have been busy */
		if (!agent_is_idle(a) || agent_close(a))
			agent_due(a, now_ns + BUSY_NS);
		else
			a->next_ns = GN_NO_WAIT;
		return;
	}
	if (gone)
		return; /* until the keeper has given it up */
	a->listens = true;
	agent_notices(a);
	if (a->look)
		agent_look(a);
	if (!__atomic_load_n(&a->donor->leaving, __ATOMIC_ACQUIRE))
		agent_grant(a);
	agent_shrink(a);
	agent_release(a);
	agent_keep(a, now_ns);
	if (now_ns >= a->renew_ns)
		agent_renew(a);
	if (now_ns >= a->query_ns) {
		a->query_ns = now_ns + QUERY_NS;
		agent_result(a, agent_ask(a));
	}
}

static bool agent_stops(struct agent *a)
{
	bool stop;

	gn_mutex_lock(&a->vol->lock);
	stop = a->vol->stop_agents;
	gn_mutex_unlock(&a->vol->lock);
	return stop;
}

void vol_agent_main(void *arg)
{
	struct agent a = {.donor = arg, .vol = ((struct vol_donor *)arg)->vol};

	while (!agent_stops(&a)) {
		if (a.session) {
			agent_step(&a);
		} else if (!agent_connect(&a)) {
			a.backoff_ns = 0;
			continue;
		} else {
			a.backoff_ns = a.backoff_ns ? 2 * a.backoff_ns : RECONNECT_MIN_NS;
			if (a.backoff_ns > RECONNECT_MAX_NS)
				a.backoff_ns = RECONNECT_MAX_NS;
			a.next_ns = gn_now_ns() + a.backoff_ns;
		}
		agent_wait(&a);
	}
	/* Only agents are left: copies in vol.failed count as used, but there is no keeper. */
	while (a.session && agent_close(&a) == -EBUSY)
		gn_sleep_us(100);
}
