/* SPDX-License-Identifier: MIT */
/*
 * A peer on shared memory that writes anything into anything it was handed: its area, its grants, its datagram
 * ring, the control socket. The other side must survive, and serve an honest client correctly all the while.
 */
#include "shm_side.h"

#include "fabric/shm/shm.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define ADDR   "shm:hostile-test"
#define ROUNDS 3000
#define MSG    256u

static uint64_t rng;

static uint32_t pick(uint32_t n)
{
	return unit_next(&rng) % n;
}

static uint64_t strange(void)
{
	static const uint64_t odd[] = {0,
				       1,
				       48,
				       49,
				       255,
				       256,
				       4096,
				       SHM_DATA,
				       SHM_DATA + 1,
				       UINT32_MAX,
				       1ull << 32,
				       1ull << 63,
				       UINT64_MAX,
				       UINT64_MAX - 1};

	return pick(2) ? odd[pick(sizeof(odd) / sizeof(odd[0]))] :
			 (uint64_t)unit_next(&rng) << 32 | unit_next(&rng);
}

static uint32_t strange32(void)
{
	return (uint32_t)strange();
}

/* A slot that looks like the next one, with nonsense in it. */
static void forge_slot(struct shm_conn *evil)
{
	const uint64_t position = evil->tx_slot + pick(3);
	struct slot *slot = &evil->tx_slots[position & (SHM_SLOTS - 1)];

	slot->msg_len = pick(3) ? pick(MSG * 2) : strange32();
	slot->imm = strange32();
	slot->data_at = pick(2) ? evil->tx_data_at : strange();
	__atomic_store_n(
		&slot->head,
		slot_head(position, pick(3) ? pick(MSG) : strange32() & 0xffffff, pick(256)),
		__ATOMIC_RELEASE);
	if (pick(2))
		evil->tx_slot = position + 1;
}

static void scribble_area(struct shm_conn *evil)
{
	struct area *area = evil->own_area;

	switch (pick(6)) {
	case 0:
		area->credit.posted = strange();
		break;
	case 1:
		area->credit.slots_consumed = strange();
		break;
	case 2:
		area->credit.data_consumed = strange();
		break;
	case 3:
		area->conn_state.armed = strange32();
		area->conn_state.tx_waiting = strange32();
		break;
	case 4:
		evil->own_sizes[pick(evil->own_rq_size)] = strange32();
		break;
	default:
		if (!pick(50))
			area->conn_state.state = strange32();
		break;
	}
}

static void scribble_grants(struct side *evil)
{
	struct shm_pd *pd = (struct shm_pd *)evil->pd;
	struct grant *grant =
		(struct grant *)(void *)pd->grants->addr + soft_key_index(gn_mr_lkey(evil->mr));

	switch (pick(4)) {
	case 0:
		grant->base = strange();
		break;
	case 1:
		grant->length = strange();
		break;
	case 2:
		grant->mem_id = pick(2) ? ((struct shm_mem *)evil->mem)->id : strange();
		break;
	default:
		grant->access = strange32();
		break;
	}
}

static int strange_fd(void)
{
	int fd;

	switch (pick(4)) {
	case 0:
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	case 1: /* can be cut short: must be refused */
		fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, 1 << 20), 0);
		return fd;
	case 2: /* too small */
		fd = memfd_create("small", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		assert_int_equal(ftruncate(fd, 4096), 0);
		fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
		return fd;
	default:
		return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	}
}

static void babble(int sock)
{
	union wire_any msg;
	const size_t sizes[] = {0,
				1,
				sizeof(msg.head),
				wire_mems_len(1),
				wire_mems_len(4),
				sizeof(msg.mems),
				sizeof(msg.ud),
				sizeof(msg.hello)};
	int fds[4], n_fds = (int)pick(4);

	for (size_t i = 0; i < sizeof(msg); i++)
		((uint8_t *)&msg)[i] = (uint8_t)unit_next(&rng);
	if (pick(4))
		msg.head = wire_head((enum wire_type)pick(9));
	if (pick(2))
		msg.mems.mem[0].id = pick(8);
	if (pick(2))
		msg.mems.n = pick(WIRE_MEMS + 2);
	if (pick(2))
		msg.hello.rq_size = 1u << pick(20);
	for (int i = 0; i < n_fds; i++)
		fds[i] = strange_fd();
	wire_send(sock, &msg, sizes[pick(sizeof(sizes) / sizeof(sizes[0]))], fds, n_fds);
	for (int i = 0; i < n_fds; i++)
		close(fds[i]);
}

/* A process that sends invalid messages to the listener, and disconnects or stays. */
static void knock(const struct side *server, int *lingering)
{
	struct sockaddr_un addr;
	const int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_true(sock >= 0);
	shm_path((struct shm_fabric *)server->fabric, &ADDR[4], &addr);
	assert_int_equal(connect(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
	if (pick(4))
		babble(sock);
	if (*lingering >= 0)
		close(*lingering);
	*lingering = sock;
}

/* Rejects connect requests; ignores other events. */
static void drain_events(struct side *s)
{
	struct gn_event ev;

	while (!gn_chan_next(s->chan, &ev))
		if (ev.type == GN_EVENT_CONNECT_REQUEST)
			gn_reject(ev.req, "no", 2);
}

/* The server's own dealings with the hostile one: all may fail, none may hurt. */
static void deal(struct side *server, struct gn_qp *qp, const struct gn_remote *remote)
{
	struct gn_sge sge = {server->buf + SIDE_BYTES / 2, 1 + pick(4096), gn_mr_lkey(server->mr)};
	struct gn_wr wr;

	side_recv(server, qp, 1, SIDE_BYTES / 2 + 8192, MSG);
	gn_wr_rdma(&wr, pick(2) ? GN_OP_WRITE : GN_OP_READ, 2, &sge, remote,
		   pick(2) ? 0 : strange(), pick(4) ? 0 : GN_SIGNALED);
	gn_post_send(qp, &wr, NULL);
	side_send(server, qp, 3, SIDE_BYTES / 2, 1 + pick(MSG * 2));
}

/* A message of the honest client, there and back. Completions of the hostile qp are let by. */
static void honest_round(struct side *client, struct side *server, struct gn_qp *c, struct gn_qp *s,
			 uint32_t round)
{
	const uint64_t deadline_ns = gn_deadline_us(UNIT_PATIENCE_US);
	bool got = false;
	struct gn_wc wc;

	memset(client->buf, (int)round, MSG);
	assert_int_equal(side_recv(server, s, 100, 0, MSG), 0);
	assert_int_equal(side_send(client, c, 101, 0, MSG), 0);
	while (!got) {
		assert_true(gn_now_ns() < deadline_ns);
		if (gn_cq_poll(server->cq, &wc, 1) == 1 && wc.qp == s) {
			assert_int_equal(wc.status, GN_WC_OK);
			assert_int_equal(wc.id, 100);
			assert_int_equal(wc.len_bytes, MSG);
			got = true;
		}
		drain_events(server);
	}
	for (uint32_t i = 0; i < MSG; i++)
		assert_int_equal(server->buf[i], (uint8_t)round);
	do {
		assert_true(gn_now_ns() < deadline_ns);
	} while (gn_cq_poll(client->cq, &wc, 1) != 1);
	assert_int_equal(wc.status, GN_WC_OK);
}

static void hostile_connection(void **state)
{
	struct side server, honest, evil;
	struct gn_qp *hc, *hs, *ec, *es;
	struct gn_listener *listener;
	struct gn_remote remote;
	int lingering = -1;

	(void)state;
	rng = unit_seed();
	gn_log_level_set(GN_LOG_ERROR);
	side_make(&server);
	side_make(&honest);
	side_make(&evil);
	assert_int_equal(gn_listener_create(server.ctx, ADDR, server.chan, 0, &listener), 0);
	side_connect(&honest, &server, ADDR, &hc, &hs);
	side_connect(&evil, &server, ADDR, &ec, &es);
	gn_mr_remote(evil.mr, &remote);
	for (uint32_t round = 0; round < (unit_slow() ? ROUNDS / 4 : ROUNDS); round++) {
		struct shm_conn *conn = &((struct shm_qp *)ec)->conn;
		struct gn_qp_attr attr = {.size = sizeof(attr)};

		switch (pick(8)) {
		case 0:
		case 1:
		case 2:
			forge_slot(conn);
			break;
		case 3:
			scribble_area(conn);
			break;
		case 4:
			scribble_grants(&evil);
			break;
		case 5:
			babble(conn->sock.fd);
			break;
		case 6:
			knock(&server, &lingering);
			break;
		default:
			side_send(&evil, ec, 9, 0, 1 + pick(MSG * 2));
			break;
		}
		deal(&server, es, &remote);
		honest_round(&honest, &server, hc, hs, round);
		assert_int_equal(gn_qp_query(es, &attr), 0);
		if (attr.state == GN_QP_ERROR) {
			assert_int_equal(gn_qp_destroy(es), 0);
			assert_int_equal(gn_qp_destroy(ec), 0);
			side_free(&evil);
			side_make(&evil);
			side_connect(&evil, &server, ADDR, &ec, &es);
			gn_mr_remote(evil.mr, &remote);
		}
	}
	close(lingering);
	assert_int_equal(gn_qp_destroy(es), 0);
	assert_int_equal(gn_qp_destroy(ec), 0);
	assert_int_equal(gn_qp_destroy(hs), 0);
	assert_int_equal(gn_qp_destroy(hc), 0);
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&evil);
	side_free(&honest);
	side_free(&server);
}

static void forge_datagram(struct shm_ah *ah)
{
	struct ud_slot *slot = &ah->ring->slots[ah->slot & (UD_SLOTS - 1)];

	slot->qkey = pick(4) ? 0x1234 : strange32();
	slot->src_qpn = strange32();
	slot->data_at = pick(2) ? ah->data_at : strange();
	__atomic_store_n(
		&slot->head,
		slot_head(ah->slot, pick(3) ? pick(4096) : strange32() & 0xffffff, pick(256)),
		__ATOMIC_RELEASE);
	ah->slot++;
	if (!pick(4))
		ah->ring->slots_consumed = strange();
	if (!pick(4))
		ah->ring->data_consumed = strange();
	if (!pick(4))
		ah->ring->armed = strange32();
}

static void hostile_datagrams(void **state)
{
	struct side server, evil;
	struct gn_qp *sq, *eq;
	struct gn_ud_addr addr;
	struct gn_ah *ah;
	struct gn_wc wc;
	uint8_t *guard;

	(void)state;
	rng = unit_seed();
	side_make(&server);
	side_make(&evil);
	sq = side_qp(&server, GN_QP_UD);
	eq = side_qp(&evil, GN_QP_UD);
	assert_int_equal(gn_qp_ud_addr(sq, &addr), 0);
	assert_int_equal(gn_ah_create(eq, &addr, &ah), 0);
	guard = server.buf + 8192;
	memset(guard, 0x5a, 4096);
	for (uint32_t round = 0; round < ROUNDS; round++) {
		struct gn_sge sge = {evil.buf, 1 + pick(4096), gn_mr_lkey(evil.mr)};
		struct gn_wr wr;

		side_recv(&server, sq, round, 0, pick(2) ? 8192 : pick(200));
		forge_datagram((struct shm_ah *)ah);
		gn_wr_ud(&wr, 1, &sge, ah, addr.qpn, addr.qkey, GN_SIGNALED);
		assert_int_equal(gn_post_send(eq, &wr, NULL), 0);
		while (gn_cq_poll(evil.cq, &wc, 1) == 1)
			assert_int_equal(wc.status, GN_WC_OK);
		for (int i = 0; i < 8; i++)
			if (gn_cq_poll(server.cq, &wc, 1) == 1 && wc.status == GN_WC_OK)
				assert_true(wc.len_bytes >= GN_GRH_BYTES && wc.len_bytes <= 8192);
		if (!pick(64)) {
			assert_int_equal(gn_ah_destroy(ah), 0);
			assert_int_equal(gn_ah_create(eq, &addr, &ah), 0);
		}
	}
	for (uint32_t i = 0; i < 4096; i++)
		assert_int_equal(guard[i], 0x5a);
	assert_int_equal(gn_ah_destroy(ah), 0);
	assert_int_equal(gn_qp_destroy(eq), 0);
	assert_int_equal(gn_qp_destroy(sq), 0);
	side_free(&evil);
	side_free(&server);
}

/* What was handed out for reading cannot be written, whatever the holder does with the fd. */
static void sealed_memory(void **state)
{
	struct side s;
	struct gn_mem *mem;
	char path[64];
	int fd, again;

	(void)state;
	side_make(&s);
	assert_int_equal(gn_mem_alloc(s.fabric, 4096, GN_REMOTE_READ, &mem), 0);
	fd = ((struct shm_mem *)mem)->fd;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	assert_true(again >= 0);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0),
			 MAP_FAILED);
	assert_int_equal(write(again, "x", 1), -1);
	assert_int_equal(ftruncate(again, 0), -1);
	assert_int_equal(ftruncate(again, 8192), -1);
	close(again);
	assert_int_equal(gn_mem_free(mem), 0);
	/* Memory that is not remote at all is in no file. */
	assert_int_equal(gn_mem_alloc(s.fabric, 4096, 0, &mem), 0);
	assert_int_equal(((struct shm_mem *)mem)->fd, -1);
	assert_int_equal(gn_mem_free(mem), 0);
	side_free(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hostile_connection),
		cmocka_unit_test(hostile_datagrams),
		cmocka_unit_test(sealed_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
