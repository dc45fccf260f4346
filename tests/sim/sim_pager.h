/* SPDX-License-Identifier: MIT */
/*
 * A pager under faults: what the files of this test share. Nodes: the donors, the program with its
 * pager, and a process that ends all faults. The world is the test's own memory, which no simulated
 * process has in its heap.
 */
#ifndef GN_TESTS_SIM_PAGER_H
#define GN_TESTS_SIM_PAGER_H

#include "../pager_model.h"
#include "cluster_plan.h"
#include "seeds.h"

#define DONORS_MAX  4u
#define THREADS_MAX 4u
#define PAGES_MAX   1024u
#define EVENTS_MAX  64u

struct plan {
	struct cluster_plan cluster;
	/* One donor fails at a time, and all copies exist again before the next one. */
	bool careful;
	bool tight; /* the donors have less memory than the volume */
	unsigned n_donors, n_threads, copies, donor_slabs;
	uint64_t slab, pages, local, shared; /* shared: pages that all threads use */
	uint32_t window;
	unsigned steps;			 /* of each thread */
	uint32_t pace_us;		 /* between two steps, at most */
	uint32_t step_one_in, step_us;	 /* how often, and for how long, a call is interrupted */
	unsigned writes, rows, commands; /* of 1000 steps */
	uint32_t refuse_one_in;		 /* calls of the kernel that fail; 0: none */
	uint32_t hot;			 /* pages that most steps use */
	bool verify;
	uint64_t headroom;
	uint32_t detect_us, lost_us, heal_us, event_us;
	unsigned events;
	uint64_t lease_us;
	struct gn_io_opts io;
};

struct sums {
	uint64_t touches, writes, sigbus, commands[GN_PAGER_ADVICES + 2], events, ended, created,
		stale, no_memory, refused, forgotten, longest_us;
	struct gn_pager_stats pager;
};

struct world {
	struct seeds run;
	struct plan plan;
	/* Of the program's present life: */
	struct pager_model model;
	uint8_t pte[PAGES_MAX];
	_Alignas(64) uint8_t file[PAGES_MAX * GN_PAGER_PAGE];
	uint32_t version[PAGES_MAX]; /* of the bytes that a page must have; 0: zeros */
	bool lost[PAGES_MAX];	     /* it raised SIGBUS */
	struct client *client;
	unsigned lives;
	bool over, calm;
	uint64_t active_ns;
	struct sums sums;
};

gn_node_main donor_main, healer_main, client_main;

/* ---- the program ---- */

enum command { COMMAND_MAP = GN_PAGER_ADVICES, COMMAND_UNMAP };

struct request {
	struct request *next;
	unsigned command; /* enum gn_pager_advice or enum command */
	uint64_t page, n;
	int status;
	bool done;
};

/* A thread that waits for a page, as the kernel keeps it. */
struct sleeper {
	uint64_t page;
	bool waits;
};

struct client {
	struct world *w;
	struct gn_fabric *fabric;
	struct gn_vol *vol;
	struct pager_core *core;
	struct gn_mutex lock;
	struct gn_cond handler_cond, threads_cond;
	/* Faults that the handler has not read; some are stale. */
	struct {
		uint64_t page, thread;
		bool writes;
	} events[EVENTS_MAX];
	unsigned n_events;
	struct request *requests;
	struct sleeper sleepers[THREADS_MAX + 1];
	unsigned threads_over;
	uint64_t shared; /* the first page of the range that all threads use */
	bool end;
};

struct thread {
	struct client *c;
	unsigned index;
	uint64_t own, own_n; /* a mapping of its own; n is 0: none */
	uint64_t pinned_n;   /* of its first pages */
};

void thread_main(void *arg);
/* Touches a page, and checks its bytes; write: gives it other ones. */
void thread_touch(struct thread *t, uint64_t page, bool write);
/* A command of a program thread; waits for the handler. */
int client_command(struct client *c, unsigned command, uint64_t *page, uint64_t n);
/* A touch or a command that began then has ended: not later than donors that fail explain. */
void client_ended(struct client *c, uint64_t start_ns, const char *what);
/* Has this run a reason to lose pages? */
bool may_lose(const struct world *w);

#endif
