/* SPDX-License-Identifier: MIT */
/*
 * A client of a donor, for test_donor: gets slabs, fills them, and checks their content whenever a
 * line comes on standard input. Prints a line for what happens.
 * Usage: donor_client ADDR SLABS hold|return: return: gives slabs back when the donor asks for them.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gannet/donor.h>

#define N	   4096u
#define SLABS_MAX  64
#define TIMEOUT_US 10000000u
#define LOOK_US	   20000u

struct client {
	struct gn_fabric *fabric;
	struct gn_io *io;
	struct gn_donor *donor;
	struct gn_io_queue *queue;
	uint8_t page[N];
};

static void check(int rc, const char *what)
{
	if (rc >= 0)
		return;
	printf("failed: %s: %s\n", what, gn_error() ? gn_error() : gn_strerror(rc));
	exit(1);
}

static int run(struct client *c, enum gn_io_op op, const struct gn_donor_slab *slab,
	       uint64_t offset)
{
	const struct gn_io_sge sge = {.addr = c->page, .len_bytes = N};
	struct gn_io_req req = {.op = op,
				.n_sge = 1,
				.sge = &sge,
				.region = slab->region,
				.offset = offset,
				.deadline_ns = gn_deadline_us(TIMEOUT_US)};
	const int rc = gn_io_run(c->queue, &req);

	return rc < 0 ? rc : req.status;
}

/* First and last page of each slab. */
static void fill(struct client *c)
{
	for (const struct gn_donor_slab *s = NULL; (s = gn_donor_next_slab(c->donor, s));) {
		memset(c->page, (int)s->id, N);
		check(run(c, GN_IO_WRITE, s, 0), "write");
		check(run(c, GN_IO_WRITE, s, s->bytes - N), "write");
	}
}

static void verify(struct client *c)
{
	int n = 0;

	for (const struct gn_donor_slab *s = NULL; (s = gn_donor_next_slab(c->donor, s)); n++)
		for (unsigned end = 0; end < 2; end++) {
			memset(c->page, 0, N);
			check(run(c, GN_IO_READ, s, end ? s->bytes - N : 0), "read");
			for (unsigned i = 0; i < N; i++)
				if (c->page[i] != (uint8_t)s->id) {
					puts("failed: other bytes");
					exit(1);
				}
		}
	printf("verified %d\n", n);
}

static void hear(struct client *c, bool returns)
{
	struct gn_donor_notice notice = {.size = sizeof(notice)};
	const int rc = gn_donor_next_notice(c->donor, &notice, gn_deadline_us(LOOK_US));

	if (rc == -ETIMEDOUT)
		return;
	check(rc, "notice");
	printf("notice %d\n", notice.kind);
	if (returns && notice.kind == GN_DONOR_TAKE_BACK && notice.slab)
		check(gn_donor_release(c->donor, notice.slab, gn_deadline_us(TIMEOUT_US)),
		      "release");
	while (returns && notice.kind == GN_DONOR_GOING_AWAY && gn_donor_next_slab(c->donor, NULL))
		check(gn_donor_release(c->donor, gn_donor_next_slab(c->donor, NULL),
				       gn_deadline_us(TIMEOUT_US)),
		      "release");
}

int main(int argc, char **argv)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts), .owner = "e2e"};
	struct gn_donor_slab *slabs[SLABS_MAX];
	struct client c = {.io = NULL};
	struct pollfd in = {.fd = 0, .events = POLLIN};
	char line[64];
	int rc;

	if (argc != 4 || atoi(argv[2]) > SLABS_MAX)
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	check(gn_fabric_open(strncmp(argv[1], "shm:", 4) ? "verbs" : "shm", &c.fabric), "fabric");
	check(gn_io_create(c.fabric, NULL, &c.io), "engine");
	check(gn_donor_connect(c.fabric, c.io, argv[1], &opts, &c.donor), "connect");
	check(gn_io_queue_create(c.io, 16, &c.queue), "queue");
	rc = gn_donor_grant(c.donor, (unsigned)atoi(argv[2]), slabs, gn_deadline_us(TIMEOUT_US));
	check(rc, "grant");
	fill(&c);
	printf("holding %d\n", rc);
	for (;;) {
		gn_donor_renew(c.donor); /* hear() says if the session is lost */
		hear(&c, !strcmp(argv[3], "return"));
		if (poll(&in, 1, 0) <= 0)
			continue;
		if (!fgets(line, sizeof(line), stdin))
			break;
		verify(&c);
	}
	check(gn_io_queue_destroy(c.queue), "queue");
	check(gn_donor_close(c.donor, 0), "close");
	check(gn_io_destroy(c.io), "engine");
	check(gn_fabric_close(c.fabric), "fabric");
	puts("closed");
	return 0;
}
