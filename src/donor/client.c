/* SPDX-License-Identifier: MIT */
/* A client's session: connect and close, slabs and shares. */
#include <errno.h>
#include <string.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "donor/client.h"

#define CONNECT_US     2000000u
#define RENEWALS       1u  /* under way at once */
#define GRANTS_AT_ONCE 14u /* calls; a slot of the connection is for the notice */

/* ---- slabs ---- */

static unsigned rights_of_access(unsigned rights)
{
	return (rights & GN_REMOTE_READ ? IO_RIGHT_READ : 0u) |
	       (rights & GN_REMOTE_WRITE ? IO_RIGHT_WRITE : 0u);
}

static struct gn_io_range range_of(const struct donor_remote *remote)
{
	return (struct gn_io_range){
		.remote = {.offset = remote->offset, .length = remote->length, .key = remote->key},
		.rights = GN_REMOTE_READ | GN_REMOTE_WRITE};
}

static int slab_add(struct gn_donor *donor, uint64_t id, const struct donor_remote *remote,
		    uint64_t use_offset, struct gn_donor_slab **out)
{
	const struct gn_io_range range = range_of(remote);
	struct gn_donor_slab *slab;
	int rc;

	if (!id || remote->length != donor->hello.slab_bytes || use_offset % 8 ||
	    use_offset > donor->hello.lease.length - 8)
		return gn_fail(-EPROTO, "the donor at %s grants no slab", donor->addr);
	if (donor->n_slabs == GN_DONOR_SLABS_MAX)
		return gn_fail(-EPROTO, "the donor at %s grants more slabs than a donor has",
			       donor->addr);
	slab = gn_alloc(sizeof(*slab), 0);
	if (!slab)
		return -ENOMEM;
	rc = gn_io_region_add(donor->target, &range, &slab->region);
	if (rc) {
		gn_free(slab);
		return rc;
	}
	slab->id = id;
	slab->bytes = remote->length;
	slab->use_offset = use_offset;
	slab->next = donor->slabs;
	slab->prev = &donor->slabs;
	if (slab->next)
		slab->next->prev = &slab->next;
	donor->slabs = slab;
	donor->n_slabs++;
	if (out)
		*out = slab;
	return 0;
}

static void slab_forget(struct gn_donor *donor, struct gn_donor_slab *slab)
{
	donor->n_slabs--;
	*slab->prev = slab->next;
	if (slab->next)
		slab->next->prev = slab->prev;
	gn_free(slab);
}

struct gn_donor_slab *gn_donor_next_slab(const struct gn_donor *donor,
					 const struct gn_donor_slab *slab)
{
	return slab ? slab->next : donor ? donor->slabs : NULL;
}

/* ---- list ---- */

static int owner_copy(char to[GN_DONOR_OWNER], const char *owner)
{
	const bool fits = !owner || strlen(owner) < GN_DONOR_OWNER;

	if (owner && fits)
		strcpy(to, owner);
	if (fits && donor_owner_ok(to))
		return 0;
	return gn_fail(-EINVAL,
		       "an owner tag is printable text without blanks, of at most %u bytes",
		       GN_DONOR_OWNER - 1);
}

typedef int entry_fn(struct gn_donor *donor, const struct donor_list_entry *entry, void *arg);

static int donor_list_all(struct gn_donor *donor, const char *owner, uint64_t session, entry_fn *fn,
			  void *arg, uint64_t deadline_ns)
{
	struct donor_list_request list = {.session = session};
	union {
		struct donor_list_result head;
		uint8_t bytes[sizeof(struct donor_list_result) +
			      DONOR_LIST_MAX * sizeof(struct donor_list_entry)];
	} page;
	struct gn_rpc_op op = {.method = DONOR_LIST,
			       .request = &list,
			       .request_len = sizeof(list),
			       .result = &page,
			       .result_room = sizeof(page),
			       .deadline_ns = deadline_ns};
	uint64_t before;

	int rc = owner_copy(list.owner, owner);

	if (rc)
		return rc;
	do {
		rc = donor_control_call(donor, &op, true);
		if (rc)
			return rc;
		before = list.after;
		list.after = page.head.next;
		if (op.result_len < sizeof(page.head) || page.head.n > DONOR_LIST_MAX ||
		    op.result_len !=
			    sizeof(page.head) + page.head.n * sizeof(page.head.entries[0]) ||
		    (list.after && list.after <= before))
			return gn_fail(-EPROTO, "the donor at %s sends no list", donor->addr);
		for (unsigned i = 0; i < page.head.n && !rc; i++)
			rc = fn(donor, &page.head.entries[i], arg);
		if (rc)
			return rc;
	} while (list.after);
	return 0;
}

struct list_call {
	int (*fn)(void *arg, const struct gn_donor_entry *entry);
	void *arg;
};

static int list_entry(struct gn_donor *donor, const struct donor_list_entry *entry, void *arg)
{
	const struct list_call *call = arg;
	struct gn_donor_entry e = {
		.slab = entry->slab,
		.session = entry->session,
		.bytes = entry->bytes,
		.held_ms = entry->held_ms,
		.left_ms = entry->left_ms,
		.state = entry->state <= DONOR_ENDING ? (enum gn_donor_state)entry->state :
							GN_DONOR_ENDING,
		.mine = donor->in_session && entry->session == donor->hello.session};

	memcpy(e.owner, entry->owner, sizeof(e.owner) - 1);
	return call->fn(call->arg, &e);
}

int gn_donor_list(struct gn_donor *donor, const char *owner,
		  int (*fn)(void *arg, const struct gn_donor_entry *entry), void *arg,
		  uint64_t deadline_ns)
{
	struct list_call call = {fn, arg};

	int rc = donor_check(donor, "gn_donor_list()");

	if (!rc && !fn)
		rc = gn_fail(-EINVAL, "gn_donor_list(): fn is NULL");
	return rc ? rc :
		    donor_list_all(donor, owner, 0, list_entry, &call, deadline_given(deadline_ns));
}

int gn_donor_query(struct gn_donor *donor, struct gn_donor_stats *out, uint64_t deadline_ns)
{
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	uint64_t words[DONOR_STATS_WORDS];
	struct gn_rpc_op op = {.method = DONOR_STATS,
			       .result = words,
			       .result_room = sizeof(words),
			       .deadline_ns = deadline_given(deadline_ns)};
	int rc = donor_check(donor, "gn_donor_query()");

	if (!rc)
		rc = donor_control_call(donor, &op, true);
	if (!rc && op.result_len != sizeof(words))
		rc = gn_fail(-EPROTO, "the donor at %s sends other statistics", donor->addr);
	if (rc)
		return rc;
	donor_stats_read(words, &stats);
	return SIZED_WRITE(out, &stats, "gn_donor_stats");
}

/* ---- connect and close ---- */

/* The data connections end. No request is under way. */
static void donor_detach(struct gn_donor *donor)
{
	gn_io_queue_destroy(donor->queue);
	gn_io_region_remove(donor->lease);
	gn_io_target_close(donor->target);
	donor->queue = NULL;
	donor->lease = NULL;
	donor->target = NULL;
}

static void donor_free(struct gn_donor *donor)
{
	while (donor->slabs) {
		gn_io_region_remove(donor->slabs->region);
		slab_forget(donor, donor->slabs);
	}
	donor_detach(donor);
	gn_rpc_client_close(donor->rpc);
	gn_free(donor->uses);
	gn_free(donor->sent);
	gn_free(donor->addr);
	gn_free(donor);
}

/* Slabs of this session that are not known: of a session that was taken over, or a lost answer. */
static int slab_found(struct gn_donor *donor, const struct donor_list_entry *entry, void *arg)
{
	uint32_t *found = arg;

	if (entry->session != donor->hello.session || !entry->remote.length)
		return 0;
	for (const struct gn_donor_slab *s = donor->slabs; s; s = s->next)
		if (s->id == entry->slab)
			return 0;
	/* GRANTs without an answer may have been executed since HELLO. */
	if ((*found)++ == donor->hello.n_slabs + GRANTS_AT_ONCE)
		return gn_fail(-EPROTO, "the donor at %s lists more slabs than it told of",
			       donor->addr);
	return slab_add(donor, entry->slab, &entry->remote, entry->use_offset, NULL);
}

static int donor_find_slabs(struct gn_donor *donor, uint64_t deadline_ns)
{
	uint32_t found = 0;
	const int rc =
		donor_list_all(donor, NULL, donor->hello.session, slab_found, &found, deadline_ns);

	if (!rc)
		donor->unsure = false;
	return rc;
}

static int donor_attach(struct gn_donor *donor, uint32_t timeout_us)
{
	struct gn_io_target_opts opts = {.size = sizeof(opts),
					 .incarnation = donor->hello.incarnation,
					 .generation = donor->hello.generation,
					 .timeout_us = timeout_us};
	const struct gn_io_range lease = range_of(&donor->hello.lease);
	int rc;

	if (lease.remote.length < 64 || lease.remote.length > GN_IO_BYTES_MAX)
		return gn_fail(-EPROTO, "the donor at %s tells no lease", donor->addr);
	donor->uses = gn_alloc(lease.remote.length, 0);
	donor->sent = gn_alloc(lease.remote.length, 0);
	if (!donor->uses || !donor->sent)
		return -ENOMEM;
	donor->uses[0] = gn_random(); /* not the counter of an earlier client of the session */
	donor->uses_end = sizeof(uint64_t);
	memcpy(opts.token, donor->hello.token, sizeof(opts.token));
	rc = gn_io_target_open(donor->io, donor->data_addr, &opts, NULL, &donor->target);
	if (!rc)
		rc = gn_io_region_add(donor->target, &lease, &donor->lease);
	if (!rc)
		rc = gn_io_queue_create(donor->io, RENEWALS, &donor->queue);
	return rc;
}

int gn_donor_connect(struct gn_fabric *fabric, struct gn_io *io, const char *addr,
		     const struct gn_donor_opts *opts, struct gn_donor **out)
{
	struct gn_donor_opts o = {.size = sizeof(o)};
	struct gn_donor *donor;
	int rc = SIZED_READ(&o, opts, "gn_donor_opts");

	if (rc)
		return rc;
	if (!fabric || !addr || !out)
		return gn_fail(-EINVAL, "gn_donor_connect(): fabric, addr or out is NULL");
	if (!o.timeout_us)
		o.timeout_us = CONNECT_US;
	donor = gn_alloc(sizeof(*donor), 0);
	if (!donor)
		return -ENOMEM;
	*donor = (struct gn_donor){.thread = gn_thread_id(), .fabric = fabric, .io = io};
	donor->addr = gn_alloc(strlen(addr) + 1, 0);
	rc = donor->addr ? owner_copy(donor->owner, o.owner) : -ENOMEM;
	if (!rc) {
		strcpy(donor->addr, addr);
		rc = donor_control_open(donor, o.id, o.timeout_us);
	}
	if (!rc && io)
		rc = donor_attach(donor, o.timeout_us);
	if (!rc && io && donor->hello.n_slabs)
		rc = donor_find_slabs(donor, gn_deadline_us(o.timeout_us));
	if (rc) {
		donor_free(donor);
		return rc == -EDQUOT ? -ENOSPC : rc;
	}
	*out = donor;
	return 0;
}

int gn_donor_close(struct gn_donor *donor, unsigned flags)
{
	struct gn_rpc_op op = {.method = DONOR_END, .deadline_ns = gn_deadline_us(CONNECT_US)};

	int rc;

	if (!donor)
		return 0;
	rc = donor_check(donor, "gn_donor_close()");
	if (!rc && flags & ~(unsigned)GN_DONOR_KEEP)
		rc = gn_fail(-EINVAL, "gn_donor_close(): unknown flags");
	if (rc)
		return rc;
	while (donor->slabs) {
		rc = gn_io_region_remove(donor->slabs->region);
		if (rc)
			return rc;
		slab_forget(donor, donor->slabs);
	}
	if (donor->renewing) {
		gn_io_cancel(&donor->renewal);
		/* The request is a part of donor, which is freed: a signal must not end this. */
		while (gn_io_wait(donor->queue, NULL, 1, GN_FOREVER) == -EINTR)
			;
	}
	/* Before the donor ends the session: the engine would connect again, and be refused. */
	donor_detach(donor);
	/* A donor that does not answer ends the session when the lease ends. */
	if (donor->io && donor->in_session && !(flags & GN_DONOR_KEEP))
		donor_control_call(donor, &op, false);
	donor_free(donor);
	return 0;
}

int gn_donor_session_id(const struct gn_donor *donor, struct gn_donor_id *out)
{
	if (!donor || !donor->io || !out)
		return gn_fail(-EINVAL,
			       "gn_donor_session_id(): there is no session, or out is NULL");
	memcpy(out->token, donor->hello.token, sizeof(out->token));
	out->incarnation = donor->hello.incarnation;
	return 0;
}

struct gn_io_target *gn_donor_target(const struct gn_donor *donor)
{
	return donor ? donor->target : NULL;
}

const char *gn_donor_data_addr(const struct gn_donor *donor)
{
	return donor && donor->io ? donor->data_addr : NULL;
}

/* ---- grant and release ---- */

static void grant_done(struct gn_rpc_op *op)
{
	(void)op;
}

/* Up to GRANTS_AT_ONCE: how many came, and in *error why no more did. */
static unsigned grant_some(struct gn_donor *donor, unsigned n, struct gn_donor_slab **out,
			   uint64_t deadline_ns, int *error)
{
	struct gn_rpc_op ops[GRANTS_AT_ONCE];
	struct donor_grant_result results[GRANTS_AT_ONCE];
	unsigned got = 0;

	for (unsigned i = 0; i < n; i++)
		ops[i] = (struct gn_rpc_op){.method = DONOR_GRANT,
					    .result = &results[i],
					    .result_room = sizeof(results[i]),
					    .deadline_ns = deadline_ns,
					    .done = grant_done};
	*error = gn_rpc_call_all(donor->rpc, ops, n);
	if (*error == -ENOTCONN)
		*error = -ECONNRESET;
	if (*error == -EAGAIN) /* see donor_control_call() */
		*error = donor_control_error(donor, GN_RPC_TIMEOUT);
	for (unsigned i = 0; i < n; i++) {
		const struct donor_grant_result *r = &results[i];
		int rc = donor_control_error(donor, ops[i].status);

		donor->unsure |= rc == -ETIMEDOUT || rc == -ECONNRESET;
		if (!rc && ops[i].result_len != sizeof(*r))
			rc = gn_fail(-EPROTO, "the donor at %s grants no slab", donor->addr);
		if (!rc)
			rc = slab_add(donor, r->slab, &r->remote, r->use_offset, &out[got]);
		got += !rc;
		if (rc && !*error)
			*error = rc;
	}
	return got;
}

int gn_donor_grant(struct gn_donor *donor, unsigned n, struct gn_donor_slab **out,
		   uint64_t deadline_ns)
{
	unsigned got = 0;
	int rc = donor_check_session(donor, "gn_donor_grant()");

	if (!rc && (!n || !out))
		rc = gn_fail(-EINVAL, "gn_donor_grant(): n is 0 or out is NULL");
	deadline_ns = deadline_given(deadline_ns);
	while (!rc && got < n) {
		rc = donor_control_up(donor, deadline_ns);
		if (!rc && donor->unsure)
			rc = donor_find_slabs(donor, deadline_ns);
		if (!rc)
			got += grant_some(donor,
					  n - got < GRANTS_AT_ONCE ? n - got : GRANTS_AT_ONCE,
					  out + got, deadline_ns, &rc);
		/* Answers that were lost: the donor knows what it granted. */
		if (rc == -ECONNRESET && !donor_control_up(donor, deadline_ns))
			donor_find_slabs(donor, deadline_ns);
	}
	return got ? (int)got : rc;
}

int gn_donor_release(struct gn_donor *donor, struct gn_donor_slab *slab, uint64_t deadline_ns)
{
	struct donor_slab_id id;
	struct gn_rpc_op op = {.method = DONOR_RELEASE,
			       .request = &id,
			       .request_len = sizeof(id),
			       .deadline_ns = deadline_given(deadline_ns)};
	int rc = donor_check_session(donor, "gn_donor_release()");

	if (rc || !slab)
		return rc;
	id.slab = slab->id;
	if (slab->region)
		rc = gn_io_region_remove(slab->region);
	if (rc)
		return rc;
	slab->region = NULL;
	rc = donor_control_call(donor, &op, true);
	if (rc && rc != -ENOENT && rc != -ESTALE)
		return rc;
	/* Not found: taken back, or released by a call whose answer was lost. */
	slab_forget(donor, slab);
	return rc == -ENOENT ? 0 : rc;
}

/* ---- shares ---- */

int gn_donor_share(struct gn_donor *donor, const struct gn_donor_slab *slab, uint64_t offset,
		   uint64_t length, unsigned rights, uint64_t deadline_ns,
		   uint8_t token[GN_DONOR_TOKEN])
{
	struct donor_share_request share = {
		.offset = offset, .length = length, .rights = rights_of_access(rights)};
	struct donor_token result;
	struct gn_rpc_op op = {.method = DONOR_SHARE,
			       .request = &share,
			       .request_len = sizeof(share),
			       .result = &result,
			       .result_room = sizeof(result),
			       .deadline_ns = deadline_given(deadline_ns)};
	int rc = donor_check_session(donor, "gn_donor_share()");

	if (!rc && (!slab || !token))
		rc = gn_fail(-EINVAL, "gn_donor_share(): slab or token is NULL");
	if (!rc && (!rights || rights & ~(unsigned)(GN_REMOTE_READ | GN_REMOTE_WRITE)))
		rc = gn_fail(-EINVAL, "gn_donor_share(): rights are GN_REMOTE_READ, "
				      "GN_REMOTE_WRITE or both");
	if (!rc && (offset % GN_PAGE || length % GN_PAGE || !length || length > slab->bytes ||
		    offset > slab->bytes - length))
		rc = gn_fail(-EINVAL,
			     "gn_donor_share(): offset and length are multiples of %u, inside the "
			     "slab",
			     GN_PAGE);
	if (rc)
		return rc;
	share.slab = slab->id;
	rc = donor_control_call(donor, &op, false);
	if (!rc && op.result_len != sizeof(result))
		rc = gn_fail(-EPROTO, "the donor at %s shares nothing", donor->addr);
	if (!rc)
		memcpy(token, result.token, sizeof(result.token));
	return rc;
}

int gn_donor_revoke(struct gn_donor *donor, const uint8_t token[GN_DONOR_TOKEN],
		    uint64_t deadline_ns)
{
	struct gn_rpc_op op = {.method = DONOR_REVOKE,
			       .request = token,
			       .request_len = GN_DONOR_TOKEN,
			       .deadline_ns = deadline_given(deadline_ns)};
	const int rc = donor_check_session(donor, "gn_donor_revoke()");

	if (!rc && !token)
		return gn_fail(-EINVAL, "gn_donor_revoke(): token is NULL");
	return rc ? rc : donor_control_call(donor, &op, true);
}
