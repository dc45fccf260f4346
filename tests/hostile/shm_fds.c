/* SPDX-License-Identifier: MIT */
/*
 * Descriptors that are no memory. To close one may take for ever: a socket lingers until its peer has
 * read all, and so does a socket in whose queue it waits. Peers of another user send them wherever a
 * descriptor can be sent; the longest poll of the victim is measured.
 */
#include "cost.h"
#include "shm_raw.h"
#include "shm_side.h"

#include <netinet/in.h>

#define ADDR	 "shm:fds-test"
#define NAME	 "fds-test"
#define LINGER_S 3
/* A busy machine takes the processor away, but not for so long. */
#define STALL_NS 1000000000u
#define MANY	 200u /* descriptors of a message, of which the wire knows 32 */

/* ---- the hostile process ---- */

/* Its close() takes LINGER_S: the sent bytes are never read. */
static int lingering(void)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = LINGER_S};
	struct sockaddr_in addr = {.sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof(addr);
	static char bytes[65536];
	const int listener = socket(AF_INET, SOCK_STREAM, 0), fd = socket(AF_INET, SOCK_STREAM, 0);

	assert_int_equal(bind(listener, (struct sockaddr *)&addr, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&addr, &len), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, len), 0);
	assert_true(accept(listener, NULL, NULL) >= 0);
	while (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
	close(listener);
	return fd;
}

/* Another user's bytes, with these descriptors, which are then this message's alone. */
static void send_fds(int sock, const void *bytes, size_t len, int *fds, size_t n)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(MANY * sizeof(int))];
	} control = {.align = {.cmsg_len = 0}};
	struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = len};
	struct msghdr hdr = {.msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = CMSG_SPACE(n * sizeof(int))};
	struct cmsghdr *cmsg = CMSG_FIRSTHDR(&hdr);

	*cmsg = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
				 .cmsg_type = SCM_RIGHTS,
				 .cmsg_len = CMSG_LEN(n * sizeof(int))};
	memcpy(CMSG_DATA(cmsg), fds, n * sizeof(int));
	assert_int_equal(sendmsg(sock, &hdr, 0), (ssize_t)len);
	for (size_t i = 0; i < n; i++)
		close(fds[i]);
}

/* A socket in whose queue another one waits. */
static int nested(void)
{
	int pair[2], fd = lingering();

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	send_fds(pair[0], "x", 1, &fd, 1);
	return pair[1];
}

static void evil_connect(struct raw *r)
{
	raw_make(r);
	r->sock = raw_dial(NAME);
	raw_say(r, WIRE_HELLO, r->area_fd, r->grants_fd);
}

/* In the first message, in place of its memory; and in an unknown message. */
static void evil_hello(int ctl)
{
	const struct wire_hello hello = {.head = wire_head(WIRE_HELLO), .rq_size = RAW_RQ_SIZE};
	const struct wire_head none = {.magic = 1};
	int fds[2] = {lingering(), nested()};
	int other = lingering();

	send_fds(raw_dial(NAME), &hello, sizeof(hello), fds, 2);
	send_fds(raw_dial(NAME), &none, sizeof(none), &other, 1);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* With a word that brings none, and as memory. */
static void evil_up(int ctl)
{
	const struct wire_head wake = wire_head(WIRE_WAKE);
	const struct wire_mems mem = {
		.head = wire_head(WIRE_MEM), .n = 1, .mem[0] = {.id = 7, .size = GN_PAGE}};
	int fds[2] = {lingering(), nested()};
	struct raw r;

	evil_connect(&r);
	send_fds(r.sock, &wake, sizeof(wake), &fds[0], 1);
	send_fds(r.sock, &mem, wire_mems_len(1), &fds[1], 1);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* In messages behind the one that ends the connection, after some that are empty. */
static void evil_unread(int ctl)
{
	const struct wire_head none = {.magic = 1};
	int fd = lingering(), last = nested();
	struct raw r;

	evil_connect(&r);
	assert_int_equal(send(r.sock, &none, sizeof(none), 0), sizeof(none));
	for (unsigned i = 0; i < 5; i++)
		assert_int_equal(send(r.sock, "", 0, 0), 0);
	send_fds(r.sock, "", 0, &fd, 1);
	send_fds(r.sock, "", 0, &last, 1);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

/* More than any message has: the last of them. */
static void evil_many(int ctl)
{
	const struct wire_head wake = wire_head(WIRE_WAKE);
	int fds[MANY];
	struct raw r;

	evil_connect(&r);
	for (unsigned i = 0; i < MANY; i++)
		fds[i] = i + 1 < MANY ? dup(r.area_fd) : lingering();
	send_fds(r.sock, &wake, sizeof(wake), fds, MANY);
	raw_turn_end(ctl);
	raw_turn_wait(ctl);
}

static const struct raw_role roles[] = {
	{"hello", evil_hello}, {"up", evil_up}, {"unread", evil_unread},
	{"many", evil_many},   {NULL, NULL},
};

/* ---- the victim ---- */

/* Accepts and destroys connections. Returns how long that took. */
static uint64_t turn(struct side *side)
{
	const uint64_t begun_ns = gn_now_ns();
	struct gn_event ev;
	struct gn_wc wc;

	gn_cq_poll(side->cq, &wc, 1);
	while (!gn_chan_next(side->chan, &ev)) {
		if (ev.type == GN_EVENT_CONNECT_REQUEST) {
			struct gn_qp *qp = side_qp(side, GN_QP_RC);

			if (gn_accept(ev.req, qp, NULL))
				assert_int_equal(gn_qp_destroy(qp), 0);
		} else if (ev.type == GN_EVENT_DISCONNECTED) {
			assert_int_equal(gn_qp_destroy(ev.qp), 0);
		}
	}
	return gn_now_ns() - begun_ns;
}

static void serve_hostile(void **state)
{
	uint64_t worst_ns = 0, until_ns;
	struct gn_listener *listener;
	struct raw_process evil;
	struct side side;
	unsigned fds;

	gn_log_level_set(GN_LOG_ERROR);
	side_make(&side);
	assert_int_equal(gn_listener_create(side.ctx, ADDR, side.chan, GN_ANY_USER, &listener), 0);
	raw_start(&evil, *state);
	fds = cost_fds(getpid());
	raw_turn_wait(evil.ctl);
	until_ns = gn_deadline_us(200000);
	while (gn_now_ns() < until_ns) {
		const uint64_t took_ns = turn(&side);

		worst_ns = took_ns > worst_ns ? took_ns : worst_ns;
	}
	print_message("# the longest poll took %u ms\n", (unsigned)(worst_ns / 1000000));
	raw_turn_end(evil.ctl);
	raw_end(&evil);
	assert_true(worst_ns < STALL_NS);
	/*
	 * And none is left when nobody is there any more who could hold it up. The cq has one of its
	 * own since then, in the place of the one to the other process.
	 */
	until_ns = gn_deadline_us(UNIT_PATIENCE_US);
	while (cost_fds(getpid()) > fds) {
		assert_true(gn_now_ns() < until_ns);
		turn(&side);
		gn_sleep_us(1000);
	}
	assert_int_equal(gn_listener_destroy(listener), 0);
	side_free(&side);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		RAW_CASE_ROLE(with_the_hello, serve_hostile, "hello"),
		RAW_CASE_ROLE(on_a_connection, serve_hostile, "up"),
		RAW_CASE_ROLE(left_unread, serve_hostile, "unread"),
		RAW_CASE_ROLE(more_than_are_taken, serve_hostile, "many"),
	};
	const int status = raw_main(roles, 0, argc, argv);

	return status >= 0 ? status : cmocka_run_group_tests(tests, NULL, NULL);
}
