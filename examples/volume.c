/* SPDX-License-Identifier: MIT */
/*
 * Loses a donor and no data: forks two processes that lend memory, makes a volume with a copy on
 * each, writes a text, kills one of the two with SIGKILL, and reads the text back. Then the second
 * one goes as well, and the text with it. "example-volume shm:NAME [TEXT]".
 */
#include <err.h>
#include <errno.h>
#include <gannet/vol.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLAB (1u << 20)
#define ADDR 100
#define TEXT 4096

static void must(int rc, const char *what)
{
	if (rc < 0)
		errx(1, "%s: %s", what, *gn_error() ? gn_error() : gn_strerror(rc));
}

/* A process that lends 8 MiB until it is killed. It writes a byte to the pipe when it is ready. */
static pid_t donor_start(const char *addr, int ready)
{
	const struct gn_donor_server_opts opts = {
		.size = sizeof(opts), .memory = 8 * SLAB, .slab = SLAB};
	struct gn_donor_server *server;
	struct gn_fabric *fabric;
	const pid_t pid = fork(); /* before this process opens a fabric */

	if (pid)
		return pid;
	must(gn_fabric_open("shm", &fabric), "shm");
	must(gn_donor_server_create(fabric, addr, &opts, &server), addr);
	must(gn_donor_server_start(server), addr);
	if (write(ready, "", 1) != 1)
		err(1, "pipe");
	for (;;)
		pause();
}

static void donor_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

int main(int argc, char **argv)
{
	const char *text = argc > 2 ? argv[2] : "not lost";
	char addr[2][ADDR], back[TEXT] = "";
	const char *donors[2] = {addr[0], addr[1]};
	const struct gn_vol_opts opts = {.size = sizeof(opts),
					 .bytes = 4 * SLAB,
					 .donors = donors,
					 .n_donors = 2,
					 .copies = 2,
					 .lost_us = 500000};
	struct gn_fabric *fabric;
	struct gn_vol *vol;
	pid_t pids[2];
	int ready[2], rc;

	if (argc < 2 || strncmp(argv[1], "shm:", 4) || strlen(argv[1]) > ADDR - 3 ||
	    strlen(text) >= TEXT)
		errx(2, "usage: example-volume shm:NAME [TEXT]");
	if (pipe(ready))
		err(1, "pipe");
	for (int i = 0; i < 2; i++) {
		snprintf(addr[i], sizeof(addr[i]), "%s-%d", argv[1], i);
		pids[i] = donor_start(addr[i], ready[1]);
		if (pids[i] < 0 || read(ready[0], back, 1) != 1)
			err(1, "donor");
	}
	must(gn_fabric_open("shm", &fabric), "shm");
	must(gn_vol_create(fabric, &opts, &vol), "volume");
	must(gn_vol_write(vol, text, strlen(text), 12345, 0), "write");

	donor_kill(pids[0]);
	must(gn_vol_read(vol, back, strlen(text), 12345), "read");
	printf("read back: %s\n", back);

	donor_kill(pids[1]);
	do { /* its memory can be read until the volume notices; then there is no copy left */
		rc = gn_vol_read(vol, back, strlen(text), 12345);
	} while (!rc);
	printf("both donors killed: %s\n", gn_strerror(rc));
	must(gn_vol_destroy(vol), "volume");
	gn_fabric_close(fabric);
	return rc == -EIO ? 0 : 1;
}
