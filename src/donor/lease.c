/* SPDX-License-Identifier: MIT */
/*
 * Leases and pressure: what the data thread checks from time to time. Clients renew their leases by
 * one-sided WRITEs, so that a client needs no thread for it, and a donor that is stopped misses
 * none.
 */
#include "base/memory.h"
#include "donor/server.h"

#define NS_PER_US	1000u
#define PRESSURE_LOG_NS 10000000000ull

/* ---- leases ---- */

static uint64_t lease_word(const struct donor_session *session, uint64_t offset)
{
	return __atomic_load_n(
		(const uint64_t *)((const char *)gn_mem_addr(session->lease_mem) + offset),
		__ATOMIC_RELAXED);
}

static void lease_check(struct gn_donor_server *server, struct donor_session *session,
			uint64_t now_ns)
{
	const uint64_t renewed = lease_word(session, 0);

	if (session->access.state != ACCESS_OPEN)
		return;
	if (renewed != session->renewed) {
		session->renewed = renewed;
		session->active_ns = now_ns;
	}
	if (donor_session_left_ns(server, session, now_ns))
		return;
	gn_log(GN_LOG_INFO, "donor: the lease of '%s' ended: %u slab%s", session->owner,
	       session->n_slabs, session->n_slabs == 1 ? "" : "s");
	server->counts.expired++;
	donor_session_end(server, session);
}

/*
 * This process did not run for a while: stopped, or the machine was. Clients may have tried to
 * renew and to connect meanwhile.
 */
static void leases_extend(struct gn_donor_server *server, uint64_t gap_ns)
{
	server->counts.pauses++;
	for (unsigned i = 0; i < server->n_sessions; i++) {
		struct donor_session *s = server->sessions[i];

		s->active_ns += gap_ns;
		if (s->alone_ns)
			s->alone_ns += gap_ns;
	}
	for (unsigned i = 0; i < server->n_slabs; i++)
		if (server->slabs[i].asked_ns)
			server->slabs[i].asked_ns += gap_ns;
}

/* ---- pressure ---- */

/* Recent use, as the client reports it: halved each time. */
static void slab_update_heat(const struct gn_donor_server *server, struct donor_slab *slab)
{
	const uint64_t used = lease_word(slab->session, donor_use_offset(server, slab));
	const uint64_t delta = used - slab->used;

	slab->used = used;
	slab->heat = slab->heat / 2 + (delta < UINT32_MAX ? delta : UINT32_MAX);
}

/* The least used slab that was not asked for, the oldest among equals. */
static struct donor_slab *slab_to_take(struct gn_donor_server *server)
{
	struct donor_slab *best = NULL;

	for (unsigned i = 0; i < server->n_slabs; i++) {
		struct donor_slab *slab = &server->slabs[i];

		if (slab->state != SLAB_GRANTED || slab->asked_ns)
			continue;
		if (donor_slab_less_used(slab, best))
			best = slab;
	}
	return best;
}

static void pressure_ask(struct gn_donor_server *server, uint64_t missing, uint64_t now_ns)
{
	uint64_t need = (missing + server->opts.slab - 1) / server->opts.slab;

	for (unsigned i = 0; i < server->n_slabs && need; i++) {
		const struct donor_slab *slab = &server->slabs[i];

		need -= slab->state == SLAB_FILLING || slab->state == SLAB_READY ||
			slab->state == SLAB_ENDING || slab->asked_ns;
	}
	for (struct donor_slab *slab; need && (slab = slab_to_take(server)); need--) {
		slab->asked_ns = now_ns + server->opts.take_back_us * NS_PER_US;
		slab->asked_told = false;
		donor_session_notify(server, slab->session);
	}
}

/* The client did not return it: its next access breaks the connection. */
static void slab_take(struct gn_donor_server *server, struct donor_slab *slab)
{
	struct donor_session *session = slab->session;

	gn_log(GN_LOG_WARN, "donor: took slab %llu of '%s' back: it was not returned in time",
	       (unsigned long long)slab->id, session->owner);
	server->counts.taken++;
	if (session->n_taken < DONOR_TAKEN_MAX)
		session->taken[session->n_taken] = slab->id;
	session->n_taken += session->n_taken <= DONOR_TAKEN_MAX;
	donor_slab_end(server, slab);
	donor_session_notify(server, session);
}

/* Pressure is over: clients may keep what they were asked for. */
static void pressure_end(struct gn_donor_server *server)
{
	for (unsigned i = 0; i < server->n_slabs; i++)
		server->slabs[i].asked_ns = 0;
	server->pressure = false;
	gn_cond_signal(&server->work);
}

static uint64_t pressure_available(const struct gn_donor_server *server)
{
	return server->opts.available ? server->opts.available(server->opts.available_arg) :
					exec_memory_available();
}

/* Returns whether there is pressure; logs when it begins, but not again and again. */
static bool pressure_update(struct gn_donor_server *server, uint64_t available, uint64_t now_ns)
{
	const uint64_t reserve = server->opts.reserve;
	const bool begins = available < reserve && !server->pressure;

	server->counts.available = available == UINT64_MAX ? 0 : available;
	if (begins && now_ns >= server->pressure_log_ns) {
		server->pressure_log_ns = now_ns + PRESSURE_LOG_NS;
		gn_log(GN_LOG_WARN,
		       "donor: the system has %llu MiB available, less than the reserve of %llu "
		       "MiB: nothing is granted, and clients are asked for slabs",
		       (unsigned long long)(available >> 20), (unsigned long long)(reserve >> 20));
	}
	server->pressure |= begins;
	return available < reserve;
}

void donor_pressure_begin(struct gn_donor_server *server)
{
	pressure_update(server, pressure_available(server), gn_now_ns());
}

static void pressure_check(struct gn_donor_server *server, uint64_t available, uint64_t now_ns)
{
	for (unsigned i = 0; i < server->n_slabs; i++)
		if (server->slabs[i].state == SLAB_GRANTED)
			slab_update_heat(server, &server->slabs[i]);
	if (!pressure_update(server, available, now_ns)) {
		if (server->pressure)
			pressure_end(server);
		return;
	}
	gn_cond_signal(&server->work);
	pressure_ask(server, server->opts.reserve - available, now_ns);
	for (unsigned i = 0; i < server->n_slabs; i++) {
		struct donor_slab *slab = &server->slabs[i];

		if (slab->state == SLAB_GRANTED && slab->asked_ns && slab->asked_ns <= now_ns)
			slab_take(server, slab);
	}
}

/* ---- tick ---- */

void donor_tick(struct link_timer *timer, uint64_t now_ns)
{
	struct gn_donor_server *server = container_of(timer, struct gn_donor_server, tick);
	const uint64_t available = pressure_available(server);
	const uint64_t gap_ns = now_ns - server->ticked_ns;

	gn_mutex_lock(&server->lock);
	if (gap_ns > 2 * server->tick_ns)
		leases_extend(server, gap_ns - server->tick_ns);
	for (unsigned i = 0; i < server->n_sessions; i++)
		lease_check(server, server->sessions[i], now_ns);
	pressure_check(server, available, now_ns);
	gn_mutex_unlock(&server->lock);
	server->ticked_ns = now_ns;
	link_timer_set(&server->loop.timers, timer, now_ns + server->tick_ns);
}
