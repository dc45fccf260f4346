/* SPDX-License-Identifier: MIT */
/* A pager: its handler thread, and commands of other threads to it. */
#ifndef GN_PAGER_PAGER_H
#define GN_PAGER_PAGER_H

#include "base/fail.h"
#include "gannet/exec.h"
#include "pager/follow.h"
#include "pager/uffd.h"

enum pager_command_kind { PAGER_START, PAGER_STOP, PAGER_MAP, PAGER_UNMAP, PAGER_ADVISE };

struct pager_command {
	enum pager_command_kind kind;
	uint64_t page, n;
	enum gn_pager_advice advice;
	int rc;
	char text[FAIL_TEXT_MAX]; /* of gn_error() */
};

/* keeper.c */
struct pager_keeper {
	struct gn_thread *thread;
	struct gn_mutex lock;
	struct gn_cond cond;
	int fd, rc;
	bool ready, stop;
};

struct gn_pager {
	struct gn_vol *vol;
	struct gn_pager_opts opts;
	struct uffd uffd;
	struct pager_core *core; /* belongs to the handler; NULL: it could not be created */
	struct gn_thread *thread;
	struct pager_keeper keeper;
	uint64_t creator; /* gn_thread_id(): is this a forked child? */
	bool claimed; /* the volume */
	bool stopped;
	struct follow follow;
	uint64_t faults_write; /* counter */

	struct gn_mutex lock; /* of the caller of a command, with its signals blocked */
	struct pager_command command;
	unsigned asked, answered; /* atomic: commands so far */
};

/* Keeps fd open until keeper_stop(). */
int keeper_start(struct pager_keeper *keeper, int fd);
void keeper_stop(struct pager_keeper *keeper);

void pager_handler(void *pager);
/* Has the handler execute pager->command, which the caller has filled, with the lock. */
void pager_ring(struct gn_pager *pager);

#endif
