/* SPDX-License-Identifier: MIT */
/*
 * Until a signal: the wait for it, and an end in which what is under way is answered.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gannet/base.h>
#include <gannet/fabric.h>

#include "metrics.h"
#include "rpc_cmd.h"
#include "serving.h"

int serving(const char *addr,
	    int (*serve)(const void *arg, struct gn_fabric *fabric, const sigset_t *set),
	    const void *arg)
{
	struct gn_fabric *fabric;
	sigset_t set;
	int status;

	/* Blocked in the server's threads too: only this one waits for them. */
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, NULL);
	if (rpc_open(addr, &fabric))
		return EXIT_FAILURE;
	status = serve(arg, fabric, &set);
	gn_fabric_close(fabric);
	return status;
}

unsigned serving_listener_flags(const char *addr, bool any_user)
{
	const char *dir = getenv("GANNET_SHM_DIR");

	if (any_user && !strncmp(addr, "shm:", 4) && (!dir || !*dir))
		fputs("gannet: --any-user: other users cannot enter the default directory of "
		      "names; set GANNET_SHM_DIR to one that both sides may enter\n",
		      stderr);
	return any_user ? GN_ANY_USER : 0;
}

int serving_wait(const sigset_t *set, uint64_t timeout_ms)
{
	const struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000),
					 .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
	int signo;

	do {
		signo = sigtimedwait(set, NULL, timeout_ms ? &timeout : NULL);
	} while (signo < 0 && errno != EAGAIN);
	return signo < 0 ? 0 : signo;
}

int serving_look(const sigset_t *set)
{
	const struct timespec now = {0};
	const int signo = sigtimedwait(set, NULL, &now);

	return signo < 0 ? 0 : signo;
}

void serving_drain(int (*drain)(void *server, uint64_t deadline_ns), void *server,
		   const sigset_t *set, uint32_t drain_ms, const char *late)
{
	const uint64_t end_ns = gn_deadline_us((uint64_t)drain_ms * 1000);
	int rc;

	do {
		const uint64_t slice_ns = gn_deadline_us(50000);

		rc = drain(server, slice_ns < end_ns ? slice_ns : end_ns);
	} while (rc == -ETIMEDOUT && gn_now_ns() < end_ns && !serving_look(set));
	if (rc == -ETIMEDOUT)
		fprintf(stderr, "gannet: %s\n", late);
	else if (rc)
		fprintf(stderr, "gannet: cannot drain: %s\n", gn_strerror(rc));
}

int serving_end(FILE *to, uint64_t calls, int signo)
{
	int status;

	fprintf(to, "%" PRIu64 " calls served\n", calls);
	status = cmd_flush_stdout();
	return status ? status : signo == SIGINT ? EXIT_INTERRUPTED : EXIT_SUCCESS;
}

int serving_metrics(void *server, char *buf, size_t room)
{
	return gn_rpc_server_metrics(server, GN_RPC_PROMETHEUS, buf, room);
}

void serving_tell_metrics(FILE *to, const struct metrics *metrics)
{
	if (metrics)
		fprintf(to, "metrics at http://%s/metrics\n", metrics_place(metrics));
}

/* On a server thread. */
void serving_tell_peer(void *arg, uint64_t client, bool came)
{
	(void)arg;
	fprintf(stderr, "client %" PRIu64 " %s\n", client, came ? "came" : "went");
}
