/* SPDX-License-Identifier: MIT */
/*
 * Keeps all of its input in the memory of another process, and writes it to its output when the
 * input has ended, as sponge(1) does. "example-remote-memory lend shm:lender" in one terminal, and
 * in another "sort big.txt | example-remote-memory use shm:lender >big.txt". Other networks:
 * verbs:HOST:PORT. The local buffers take 1 MiB, whatever the length of the input.
 */
#include <err.h>
#include <gannet/donor.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#define LENT	   (32u << 20)
#define SLAB	   (1u << 20)
#define SLABS_MAX  4096
#define BLOCK	   65536u
#define BLOCKS	   16u /* requests under way */
#define TIMEOUT_US 10000000

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* A donor: its threads serve until a signal comes. */
static void lend(struct gn_fabric *fabric, const char *addr)
{
	const struct gn_donor_server_opts opts = {
		.size = sizeof(opts), .memory = LENT, .slab = SLAB};
	struct gn_donor_server *server;
	sigset_t signals;
	int signal;

	sigemptyset(&signals);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigprocmask(SIG_BLOCK, &signals, NULL); /* inherited by the donor's threads */
	must(gn_donor_server_create(fabric, addr, &opts, &server), addr);
	must(gn_donor_server_start(server), addr);
	sigwait(&signals, &signal);
	gn_donor_server_destroy(server);
}

struct block {
	struct gn_io_req req;
	struct gn_io_sge sge;
	bool under_way;
};

struct user {
	struct gn_io *io;
	struct gn_io_queue *queue;
	struct gn_io_mem *mem; /* of bytes */
	struct gn_donor *donor;
	struct gn_donor_slab *slabs[SLABS_MAX];
	uint64_t n_slabs;
	struct block blocks[BLOCKS];
	uint8_t bytes[BLOCKS][BLOCK];
};

/* Waits until block i can be used again, and handles others that end meanwhile. */
static struct block *block_wait(struct user *u, uint64_t i)
{
	struct block *block = &u->blocks[i % BLOCKS], *other;
	struct gn_io_req *ended[BLOCKS];

	while (block->under_way) {
		const int n = gn_io_wait(u->queue, ended, BLOCKS, GN_FOREVER);

		must(n, "wait");
		for (int k = 0; k < n; k++) {
			if (ended[k]->status)
				errx(1, "remote memory: %s", gn_strerror(ended[k]->status));
			other = ended[k]->user;
			other->under_way = false;
		}
	}
	return block;
}

/* Starts a READ or WRITE of block i, which is at this position of the input. */
static void block_start(struct user *u, uint64_t i, enum gn_io_op op, uint64_t at, uint32_t len)
{
	struct block *block = &u->blocks[i % BLOCKS];
	struct gn_io_req *req = &block->req;

	block->sge =
		(struct gn_io_sge){.addr = u->bytes[i % BLOCKS], .len_bytes = len, .mem = u->mem};
	*req = (struct gn_io_req){.op = op,
				  .region = u->slabs[at / u->slabs[0]->bytes]->region,
				  .offset = at % u->slabs[0]->bytes,
				  .sge = &block->sge,
				  .n_sge = 1,
				  .deadline_ns = gn_deadline_us(TIMEOUT_US),
				  .user = block};
	must(gn_io_submit(u->queue, &req, 1), "submit");
	block->under_way = true;
}

/* The bytes of the block at this position: blocks do not cross slabs. */
static uint32_t block_len(const struct user *u, uint64_t at)
{
	const uint64_t left = u->slabs[0]->bytes - at % u->slabs[0]->bytes;

	return left < BLOCK ? (uint32_t)left : BLOCK;
}

/* From the standard input to remote memory. Returns the length of the input. */
static uint64_t put(struct user *u)
{
	uint64_t at = 0;

	for (uint64_t i = 0;; i++) {
		size_t n;

		if (!u->n_slabs || at == u->n_slabs * u->slabs[0]->bytes) {
			if (u->n_slabs == SLABS_MAX)
				errx(1, "the input is too long");
			must(gn_donor_grant(u->donor, 1, &u->slabs[u->n_slabs],
					    gn_deadline_us(TIMEOUT_US)),
			     "no more memory");
			u->n_slabs++;
		}
		block_wait(u, i);
		n = fread(u->bytes[i % BLOCKS], 1, block_len(u, at), stdin);
		if (!n)
			return at;
		block_start(u, i, GN_IO_WRITE, at, (uint32_t)n);
		at += n;
	}
}

/* From remote memory to the standard output, with up to BLOCKS READs under way. */
static void get(struct user *u, uint64_t length)
{
	uint64_t asked = 0, at = 0, next = 0;

	for (uint64_t i = 0; at < length; i++) {
		for (; asked < length && next < i + BLOCKS; next++) {
			uint32_t len = block_len(u, asked);

			if (length - asked < len)
				len = (uint32_t)(length - asked);
			block_start(u, next, GN_IO_READ, asked, len);
			asked += len;
		}
		at += fwrite(block_wait(u, i)->sge.addr, 1, u->blocks[i % BLOCKS].sge.len_bytes,
			     stdout);
		if (ferror(stdout))
			err(1, "output");
	}
}

static void use(struct gn_fabric *fabric, const char *addr)
{
	static struct user u;
	struct gn_io_stats stats = {.size = sizeof(stats)};
	uint64_t length;

	must(gn_io_create(fabric, NULL, &u.io), "engine");
	must(gn_donor_connect(fabric, u.io, addr, NULL, &u.donor), addr);
	must(gn_io_queue_create(u.io, BLOCKS, &u.queue), "queue");
	must(gn_io_mem_register(u.io, u.bytes, sizeof(u.bytes), &u.mem), "buffers");
	length = put(&u);
	for (unsigned i = 0; i < BLOCKS; i++)
		block_wait(&u, i); /* READs come after the WRITEs have ended */
	get(&u, length);
	must(gn_io_query(u.io, &stats), "counters");
	fprintf(stderr, "%llu bytes, %llu requests, %llu work requests, %llu doorbells\n",
		(unsigned long long)length,
		(unsigned long long)(stats.requests[GN_IO_READ] + stats.requests[GN_IO_WRITE]),
		(unsigned long long)stats.wrs, (unsigned long long)stats.doorbells);
	must(gn_io_mem_deregister(u.mem), "buffers");
	must(gn_io_queue_destroy(u.queue), "queue");
	must(gn_donor_close(u.donor, 0), "session");
	must(gn_io_destroy(u.io), "engine");
}

int main(int argc, char **argv)
{
	struct gn_fabric *fabric;
	char provider[16]; /* "shm" or "verbs" */

	if (argc != 3 || (strcmp(argv[1], "lend") && strcmp(argv[1], "use")))
		errx(2, "usage: example-remote-memory lend ADDR | use ADDR");
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(argv[2], ":"), argv[2]);
	must(gn_fabric_open(provider, &fabric), provider);
	if (!strcmp(argv[1], "lend"))
		lend(fabric, argv[2]);
	else
		use(fabric, argv[2]);
	gn_fabric_close(fabric);
}
