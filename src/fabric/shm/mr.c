/* SPDX-License-Identifier: MIT */
/*
 * Memory and grants. A pd has a table of grants that its qps' peers map and check before every
 * access. A peer cannot access memory whose fd was never sent to it.
 */
#include "base/fail.h"
#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define REMOTE (GN_REMOTE_READ | GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)
#define WRITES (GN_REMOTE_WRITE | GN_REMOTE_ATOMIC)

/* munmap() needs a multiple of the huge page size. */
static size_t mem_anonymous_size(const struct gn_mem *mem)
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
		/* Local memory: anonymous, and not inherited by children. */
		void *addr = mmap(NULL, mem_anonymous_size(base), PROT_READ | PROT_WRITE,
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
 * Notifies the peers that have the mem. A peer that does not read its socket keeps the mapping
 * until its connection ends.
 */
static void mem_forget_peers(struct shm_mem *mem)
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

/*
 * Returns the pages to the kernel now: a peer that is stopped, or does not read its socket, may
 * keep its mapping for any time. A seal against writing forbids this. Huge pages stay, because a
 * peer that is in the middle of a copy would get SIGBUS if there are none left for the hole.
 */
static void mem_return_pages(const struct shm_mem *mem)
{
	if (!(mem->mem.rights & GN_MEM_HUGE))
		fallocate(mem->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
			  (off_t)mem->map->size);
}

void shm_mem_fini(struct gn_mem *base)
{
	struct shm_mem *mem = (struct shm_mem *)base;

	if (mem->map) {
		mem_forget_peers(mem);
		mem_return_pages(mem);
		shm_map_put(mem->map);
		close(mem->fd);
	} else if (!base->foreign) {
		munmap(base->addr, mem_anonymous_size(base));
	}
}

int shm_pd_init(struct gn_pd *base)
{
	struct shm_pd *pd = (struct shm_pd *)base;
	int rc = shm_map_create("gannet-grants", SOFT_KEYS * sizeof(struct grant), false, true,
				&pd->grants, &pd->grants_fd);

	if (rc)
		gn_fail_log(0, "shm: cannot create a protection domain: %s%s", gn_strerror(rc),
			    rc == -EMFILE ? "; raise the limit on open files (ulimit -n)" : "");
	return rc;
}

void shm_pd_fini(struct gn_pd *base)
{
	struct shm_pd *pd = (struct shm_pd *)base;

	shm_map_put(pd->grants);
	close(pd->grants_fd);
}

static bool conn_was_sent(const struct shm_conn *conn, uint64_t id)
{
	for (uint32_t i = conn->n_sent; i-- > 0;)
		if (conn->sent[i] == id)
			return true;
	return false;
}

/* Mems to send in one message: a socket holds only some hundred messages. */
struct mem_batch {
	struct wire_mems msg;
	int fds[WIRE_FDS];
};

/* Records that these mems were sent. The caller holds the grant lock. */
static int conn_note_sent(struct shm_conn *conn, const struct wire_mems *mems)
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

static int mem_batch_send(struct shm_qp *qp, struct mem_batch *mem_batch)
{
	int rc = 0;

	if (mem_batch->msg.n) {
		mem_batch->msg.head = wire_head(WIRE_MEM);
		rc = wire_send(qp->conn.sock.fd, &mem_batch->msg, wire_mems_len(mem_batch->msg.n),
			       mem_batch->fds, (int)mem_batch->msg.n);
		if (!rc)
			rc = conn_note_sent(&qp->conn, &mem_batch->msg);
	}
	mem_batch->msg.n = 0;
	return rc;
}

/* Adds a mem to the batch, once per peer. The caller holds the grant lock. */
static int mem_batch_add(struct shm_qp *qp, const struct shm_mem *mem, struct mem_batch *mem_batch)
{
	const uint32_t at = mem_batch->msg.n;

	if (conn_was_sent(&qp->conn, mem->id))
		return 0;
	for (uint32_t i = 0; i < at; i++)
		if (mem_batch->msg.mem[i].id == mem->id)
			return 0;
	mem_batch->msg.mem[at] = (struct wire_mem){
		.id = mem->id, .size = mem->mem.size, .writable = !!(mem->mem.rights & WRITES)};
	mem_batch->fds[at] = mem->fd;
	mem_batch->msg.n++;
	return mem_batch->msg.n == WIRE_MEMS ? mem_batch_send(qp, mem_batch) : 0;
}

/* The peer does not get the mem's descriptor: the owner executes its requests (serve.c). */
static bool mr_is_served(const struct gn_mr *mr)
{
	return mr->access & GN_CONFINED || (mr->mem->rights & WRITES && !(mr->access & WRITES));
}

/* Sends a peer what it needs for a region. The caller holds the grant lock. */
static int mem_batch_add_region(struct shm_qp *qp, const struct gn_mr *mr,
				struct mem_batch *mem_batch)
{
	return mr_is_served(mr) ? shm_serve_offer(qp) :
				  mem_batch_add(qp, (const struct shm_mem *)mr->mem, mem_batch);
}

/* Adds a region with remote rights to its pd. The caller holds the grant lock. */
static void pd_add_region(struct shm_pd *pd, struct shm_mr *shm)
{
	shm->next = pd->granted;
	shm->prev = &pd->granted;
	if (shm->next)
		shm->next->prev = &shm->next;
	pd->granted = shm;
}

/* Publishes a grant. Its mem was sent to all peers, or announced. */
static void grant_publish(struct shm_fabric *fabric, struct shm_pd *pd, struct shm_mr *shm)
{
	struct grant *grant =
		(struct grant *)(void *)pd->grants->addr + soft_key_index(shm->mr.rkey);
	const uint32_t access = shm->mr.access | (mr_is_served(&shm->mr) ? GRANT_SERVED : 0) |
				fabric->grant_serial++ << GRANT_SERIAL;

	grant->mem_id = ((struct shm_mem *)shm->mr.mem)->id;
	grant->base = (uint64_t)(shm->mr.addr - shm->mr.mem->addr);
	grant->length = shm->mr.length;
	/* Pairs with the acquires in the peer's peer_find_remote() and shm_view_find(). */
	__atomic_store_n(&grant->word, (uint64_t)access << 32 | shm->mr.rkey, __ATOMIC_RELEASE);
}

/*
 * Publishes how many mems were sent: a grant whose mem is not among them is invalid. Does not wait
 * for a peer that does not read its socket: the peer sees that more will come, and gets it when it
 * asks. The caller holds the grant lock.
 */
static void conn_announce_mems(struct shm_qp *qp, int rc)
{
	struct shm_conn *c = &qp->conn;

	/* -ETOOMANYREFS: too many descriptors in flight, to any peer. */
	c->mems_unsent = rc == -EAGAIN || rc == -ETOOMANYREFS;
	if (rc && !c->mems_unsent && rc != -EPIPE && rc != -ECONNRESET) {
		/* Only this connection fails, not the others of the pd. */
		gn_log(GN_LOG_WARN,
		       "shm: cannot send memory to a peer (%s); closing its connection",
		       gn_strerror(rc));
		shutdown(c->sock.fd, SHUT_RDWR);
	}
	/* Before the release in grant_publish(): a peer that sees the grant sees this count. */
	__atomic_store_n(&c->own_area->conn_state.mems, c->mems_unsent ? UINT64_MAX : c->mems_sent,
			 __ATOMIC_RELEASE);
}

int shm_mr_init(struct gn_mr *mr)
{
	struct shm_fabric *fabric = shm_of(&mr->obj);
	struct shm_pd *pd = (struct shm_pd *)mr->pd;
	int rc = soft_key_add(&fabric->keys, mr);

	if (rc || !(mr->access & REMOTE))
		return rc;
	gn_mutex_lock(&fabric->grant_lock);
	rc = mr_is_served(mr) ? shm_serve_start(fabric) : 0;
	if (rc) {
		gn_mutex_unlock(&fabric->grant_lock);
		soft_key_remove(&fabric->keys, mr);
		return rc;
	}
	pd_add_region(pd, (struct shm_mr *)mr);
	for (struct shm_qp *qp = fabric->conns; qp; qp = qp->next_conn) {
		struct mem_batch mem_batch = {.msg.n = 0};

		if (qp->qp.pd != mr->pd || qp->conn.mems_unsent)
			continue;
		rc = mem_batch_add_region(qp, mr, &mem_batch);
		conn_announce_mems(qp, rc ? rc : mem_batch_send(qp, &mem_batch));
	}
	grant_publish(fabric, pd, (struct shm_mr *)mr);
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
	quiet = shm_peers_quiesced(fabric, mr->pd, NULL, &shm->ending);
	gn_mutex_unlock(&fabric->grant_lock);
	return quiet ? 0 : -EAGAIN;
}

void shm_mr_fini(struct gn_mr *mr)
{
	struct shm_fabric *fabric = shm_of(&mr->obj);

	pthread_mutex_lock(&fabric->serve_lock);
	soft_key_remove(&fabric->keys, mr);
	pthread_mutex_unlock(&fabric->serve_lock);
}

/*
 * Sends all mems granted in the qp's pd. The caller holds the grant lock, so no region is added or
 * removed.
 */
static int conn_send_all_mems(struct shm_qp *qp)
{
	struct mem_batch mem_batch = {.msg.n = 0};
	int rc = 0;

	for (struct shm_mr *mr = ((struct shm_pd *)qp->qp.pd)->granted; mr && !rc; mr = mr->next)
		rc = mem_batch_add_region(qp, &mr->mr, &mem_batch);
	return rc ? rc : mem_batch_send(qp, &mem_batch);
}

void shm_grant_catch_up(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);

	gn_mutex_lock(&fabric->grant_lock);
	if (qp->prev_conn && qp->conn.mems_unsent)
		conn_announce_mems(qp, conn_send_all_mems(qp));
	gn_mutex_unlock(&fabric->grant_lock);
}

int shm_grant_join(struct shm_qp *qp)
{
	struct shm_fabric *fabric = shm_of(&qp->qp.obj);
	int rc;

	gn_mutex_lock(&fabric->grant_lock);
	rc = conn_send_all_mems(qp);
	conn_announce_mems(qp, rc);
	if (qp->conn.mems_unsent)
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
