/* SPDX-License-Identifier: MIT */
/*
 * What commands share that serve until a signal: they wait for it, and end tidily.
 */
#ifndef GN_CMD_SERVING_H
#define GN_CMD_SERVING_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct gn_fabric;
struct metrics;

/* Of limits on what clients may make a server keep. */
#define SERVING_CLIENTS_MAX 1000000u
#define SERVING_MEMORY_MIN  (1ull << 20)
#define SERVING_MEMORY_MAX  (1ull << 40)

/*
 * Calls serve with the provider of an address open, and the signals of *set blocked in all threads
 * and waited for: before any exists. The exit status.
 */
int serving(const char *addr,
	    int (*serve)(const void *arg, struct gn_fabric *fabric, const sigset_t *set),
	    const void *arg);
/*
 * Flags of gn_listener_create(). Warns if other users are let in at a name in a directory that only
 * this user may enter.
 */
unsigned serving_listener_flags(const char *addr, bool any_user);
/* The next of them; or 0 after so many milliseconds, unless those are 0. */
int serving_wait(const sigset_t *set, uint64_t timeout_ms);
/* The one that has come, or 0. */
int serving_look(const sigset_t *set);
/* Until all clients are served, the time is over, or the next signal comes: then it prints late. */
void serving_drain(int (*drain)(void *server, uint64_t deadline_ns), void *server,
		   const sigset_t *set, uint32_t drain_ms, const char *late);
/* Says there what was done; the exit status after that signal. */
int serving_end(FILE *to, uint64_t calls, int signo);

/* A metrics_write_fn: what a gn_rpc_server has counted. Any thread. */
int serving_metrics(void *server, char *buf, size_t room);
/* Says there where metrics are, if anywhere. */
void serving_tell_metrics(FILE *to, const struct metrics *metrics);

/* A gn_rpc_peer_fn: prints connects and disconnects to stderr. */
void serving_tell_peer(void *arg, uint64_t client, bool came);

#endif
