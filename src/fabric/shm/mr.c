/* SPDX-License-Identifier: MIT */
/*
 * Memory and who may reach it. A pd has a table of grants that its qps' peers map: what is in it
 * they may do, and they check it before every copy. What they cannot do at all is reach memory
 * whose fd was never sent to them.
 */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define REMOTE (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)
#define WRITES (GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)

/* The kernel wants whole huge pages back. */
static size_t anonymous_size(const struct gn_mem *mem)
{
	const size_t page = mem->rights & GN_MEM_HUGE ? SHM_HUGE_PAGE : GN_PAGE;

	return (mem->size + page - 1) & ~(page - 1);
}

int shm_mem_alloc(struct gn_mem *base)
{
	struct shm_mem *mem = (struct shm_mem *)base;
	const bool huge = base->rights & GN_MEM_HUGE;
	int rc = 0;

	mem->fd = -1;
	if (base->rights & REMOTE) {
		rc = shm_map_create("gannet-mem", base->size, huge, !(base->rights & WRITES),
				    &mem->map, &mem->fd);
		base->addr = rc ? NULL : mem->map->addr;
		mem->id = __atomic_fetch_add(&shm_of(&base->obj)->next_mem_id, 1, __ATOMIC_RELAXED);
	} else {
		/* Never leaves the process: anonymous, and inherited by nobody. */
		void *addr = mmap(NULL, anonymous_size(base), PROT_READ | PROT_WRITE,
				  MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB : 0), -1, 0);

		rc = addr == MAP_FAILED ? -errno : 0;
		base->addr = rc ? NULL : addr;
	}
	if (rc)
		gn_fail_log(0, "shm: cannot allocate %zu bytes of memory: %s%s", base->size,
			    gn_strerror(rc),
			    huge	  ? "; are there huge pages? (sysctl vm.nr_hugepages)" :
			    rc == -EMFILE ? "; raise the limit on open files (ulimit -n)" :
					    "");
	return rc;
}

/*
 * Tell the peers that have it; one that does not listen keeps the mapping until its connection
 * ends.
 */
static void forget_everywhere(struct shm_mem *mem)
{
	struct shm_fabric *fabric = shm_of(&mem->mem.obj);
	const struct wire_mems msg = {.head = wire_head(WIRE_FORGET), .n = 1, .mem[0].id = mem->id};

	gn_mutex_lock(&fabric->grant_lock);
	for (struct shm_qp *qp = fabric->conns; qp; qp = qp->next_conn)
		for (uint32_t i = 0; i < qp->conn.n_sent; i++)
			if (qp->conn.sent[i] == mem->id) {
				wire_send(qp->conn.sock.fd, &msg, wire_mems_len(1), NULL, 0);
				qp->conn.sent[i] = qp->conn.sent[--qp->conn.n_sent];
				break;
			}
	gn_mutex_unlock(&fabric->grant_lock);
}

void shm_mem_fini(struct gn_mem *base)
{
	struct shm_mem *mem = (struct shm_mem *)base;

	if (mem->map) {
		forget_everywhere(mem);
		shm_map_put(mem->map);
		close(mem->fd);
	} else if (!base->foreign) {
		munmap(base->addr, anonymous_size(base));
	}
}

int shm_pd_init(struct gn_pd *base)
{
	struct shm_pd *pd = (struct shm_pd *)base;
	int rc = shm_map_create("gannet-grants", SOFT_KEYS * sizeof(struct grant), false, true,
				&pd->grants, &pd->grants_fd);

	if (rc)
		gn_fail_log(0, "shm: cannot make a protection domain: %s%s", gn_strerror(rc),
			    rc == -EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
	return rc;
}

void shm_pd_fini(struct gn_pd *base)
{
	struct shm_pd *pd = (struct shm_pd *)base;

	shm_map_put(pd->grants);
	close(pd->grants_fd);
}

static bool was_sent(const struct shm_conn *conn, uint64_t id)
{
	for (uint32_t i = conn->n_sent; i-- > 0;)
		if (conn->sent[i] == id)
			return true;
	return false;
}

/* Memory on its way to a peer, several in a message: a socket holds some hundred messages only. */
struct parcel {
	struct wire_mems msg;
	int fds[WIRE_FDS];
};

/* Note that these were sent. The grant lock is held. */
static int note_sent(struct shm_conn *conn, const struct wire_mems *mems)
{
	if (conn->n_sent + mems->n > conn->sent_cap) {
		const uint32_t cap = conn->sent_cap * 2 + WIRE_MEMS;
		uint64_t *sent = gn_alloc(cap * sizeof(*sent), 0);

		if (!sent)
			return -ENOMEM;
		for (uint32_t i = 0; i < conn->n_sent; i++)
			sent[i] = conn->sent[i];
		gn_free(conn->sent);
		conn->sent = sent;
		conn->sent_cap = cap;
	}
	for (uint32_t i = 0; i < mems->n; i++)
		conn->sent[conn->n_sent++] = mems->mem[i].id;
	conn->mems_sent += mems->n;
	return 0;
}

static int send_parcel(struct shm_qp *qp, struct parcel *parcel)
{
	int rc = 0;

	if (parcel->msg.n) {
		parcel->msg.head = wire_head(WIRE_MEM);
		rc = wire_send(qp->conn.sock.fd, &parcel->msg, wire_mems_len(parcel->msg.n),
			       parcel->fds, (int)parcel->msg.n);
		if (!rc)
			rc = note_sent(&qp->conn, &parcel->msg);
	}
	parcel->msg.n = 0;
	return rc;
}

/* Hand a mem to a peer, once. The grant lock is held. */
static int pack(struct shm_qp *qp, const struct shm_mem *mem, struct parcel *parcel)
{
	const uint32_t at = parcel->msg.n;

	if (was_sent(&qp->conn, mem->id))
		return 0;
	for (uint32_t i = 0; i < at; i++)
		if (parcel->msg.mem[i].id == mem->id)
			return 0;
	parcel->msg.mem[at] = (struct wire_mem){
		.id = mem->id, .size = mem->mem.size, .writable = !!(mem->mem.rights & WRITES)};
	parcel->fds[at] = mem->fd;
	parcel->msg.n++;
	return parcel->msg.n == WIRE_MEMS ? send_parcel(qp, parcel) : 0;
}

/* A region with remote rights in its pd. The grant lock is held. */
static void enter(struct shm_pd *pd, struct shm_mr *shm)
{
	shm->next = pd->granted;
	shm->prev = &pd->granted;
	if (shm->next)
		shm->next->prev = &shm->next;
	pd->granted = shm;
}

/* Peers may use it. Their memory is sent, or announced. */
static void put_in_force(struct shm_fabric *fabric, struct shm_pd *pd, struct shm_mr *shm)
{
	struct grant *grant =
		(struct grant *)(void *)pd->grants->addr + soft_key_index(shm->mr.rkey);
	const uint32_t access = shm->mr.access | fabric->grant_serial++ << GRANT_SERIAL;

	grant->mem_id = ((struct shm_mem *)shm->mr.mem)->id;
	grant->base = (uint64_t)(shm->mr.addr - shm->mr.mem->addr);
	grant->length = shm->mr.length;
	/* Pairs with the acquires in the peer's find_remote() and shm_view_find(). */
	__atomic_store_n(&grant->word, (uint64_t)access << 32 | shm->mr.rkey, __ATOMIC_RELEASE);
}

/*
 * Tell the peer how much it was sent: what a grant names and is not among it will never come. A
 * peer that does not read its socket is not waited for: it is told that there is more, and gets it
 * when it asks. The grant lock is held.
 */
static void announce(struct shm_qp *qp, int rc)
{
	struct shm_conn *c = &qp->conn;

	/* The second: too many descriptors are on their way, to this peer or to others. */
	c->mems_behind = rc == -EAGAIN || rc == -ETOOMANYREFS;
	if (rc && !c->mems_behind && rc != -EPIPE && rc != -ECONNRESET) {
		/* Its own connection suffers, not the others of this pd. */
		gn_log(GN_LOG_WARN, "shm: a peer takes no memory (%s); its connection ends",
		       gn_strerror(rc));
		shutdown(c->sock.fd, SHUT_RDWR);
	}
	/* The release in put_in_force() comes behind this: a peer that sees the grant sees this. */
	__atomic_store_n(&c->mine->mood.mems, c->mems_behind ? UINT64_MAX : c->mems_sent,
			 __ATOMIC_RELEASE);
}

int shm_mr_init(struct gn_mr *mr)
{
	struct shm_fabric *fabric = shm_of(&mr->obj);
	struct shm_pd *pd = (struct shm_pd *)mr->pd;
	const struct shm_mem *mem = (struct shm_mem *)mr->mem;
	int rc = soft_key_add(&fabric->keys, mr);

	if (rc || !(mr->access & REMOTE))
		return rc;
	gn_mutex_lock(&fabric->grant_lock);
	enter(pd, (struct shm_mr *)mr);
	for (struct shm_qp *qp = fabric->conns; qp; qp = qp->next_conn) {
		struct parcel parcel = {.msg.n = 0};

		if (qp->qp.pd != mr->pd || qp->conn.mems_behind)
			continue;
		rc = pack(qp, mem, &parcel);
		announce(qp, rc ? rc : send_parcel(qp, &parcel));
	}
	put_in_force(fabric, pd, (struct shm_mr *)mr);
	gn_mutex_unlock(&fabric->grant_lock);
	return 0;
}

int shm_mr_revoke(struct gn_mr *mr)
{
	struct shm_fabric *fabric = shm_of(&mr->obj);
	struct shm_mr *shm = (struct shm_mr *)mr;
	bool quiet;

	if (!(mr->access & REMOTE))
		return 0;
	gn_mutex_lock(&fabric->grant_lock);
	if (!shm->ending.revocation) {
		struct grant *grant =
			(struct grant *)(void *)((struct shm_pd *)mr->pd)->grants->addr +
			soft_key_index(mr->rkey);

		__atomic_store_n(&grant->word, 0, __ATOMIC_RELAXED);
		*shm->prev = shm->next;
		if (shm->next)
			shm->next->prev = shm->prev;
		shm_revoke(fabric, &shm->ending);
	}
	quiet = shm_peers_quiet(fabric, mr->pd, NULL, &shm->ending);
	gn_mutex_unlock(&fabric->grant_lock);
	return quiet ? 0 : -EAGAIN;
}

void shm_mr_fini(struct gn_mr *mr)
{
	soft_key_remove(&shm_of(&mr->obj)->keys, mr);
}

/*
 * Send the memory granted in the qp's pd so far. The grant lock is held, so no region comes or
 * goes.
 */
static int send_all(struct shm_qp *qp)
{
	struct parcel parcel = {.msg.n = 0};
	int rc = 0;

	for (struct shm_mr *mr = ((struct shm_pd *)qp->qp.pd)->granted; mr && !rc; mr = mr->next)
		rc = pack(qp, (const struct shm_mem *)mr->mr.mem, &parcel);
	return rc ? rc : send_parcel(qp, &parcel);
}

void shm_grant_catch_up(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);

	gn_mutex_lock(&fabric->grant_lock);
	if (qp->prev_conn && qp->conn.mems_behind)
		announce(qp, send_all(qp));
	gn_mutex_unlock(&fabric->grant_lock);
}

int shm_grant_join(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	int rc;

	gn_mutex_lock(&fabric->grant_lock);
	rc = send_all(qp);
	announce(qp, rc);
	if (qp->conn.mems_behind)
		rc = 0;
	qp->next_conn = fabric->conns;
	qp->prev_conn = &fabric->conns;
	if (qp->next_conn)
		qp->next_conn->prev_conn = &qp->next_conn;
	fabric->conns = qp;
	gn_mutex_unlock(&fabric->grant_lock);
	return rc;
}

void shm_grant_leave(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);

	gn_mutex_lock(&fabric->grant_lock);
	if (qp->prev_conn) {
		*qp->prev_conn = qp->next_conn;
		if (qp->next_conn)
			qp->next_conn->prev_conn = qp->prev_conn;
		qp->prev_conn = NULL;
	}
	gn_mutex_unlock(&fabric->grant_lock);
}
