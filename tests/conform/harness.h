/* SPDX-License-Identifier: MIT */
/*
 * harness.h - inside the harness: how main.c, the runner and the control connection fit together.
 *
 * main.c decides where the sides run and calls cf_lead() for A and cf_follow() for B; these run the
 * cases and speak to each other through control.c.
 */
#ifndef CONFORM_HARNESS_H
#define CONFORM_HARNESS_H

#include <stdio.h>

#include "conform.h"

/* ---- a run ---- */

/* What A needs from the world outside: NULL where the world has no such thing. */
struct cf_world {
	int (*peer_start)(void *arg);			      /* start B */
	void (*peer_stop)(void *arg, char *how, size_t size); /* end B, and report how it ended */
	void (*case_begins)(void *arg, unsigned number);
	void (*die)(void *arg); /* does not return */
	void *arg;
};

struct cf_run {
	const char *fabric_name[2]; /* by role, as the next */
	const char *host[2];
	const char *name; /* no other run on this machine has it */
	bool process;
	unsigned effort;
	uint64_t seed;
	uint64_t wait_us;	  /* for anything that must happen */
	uint64_t limit_us;	  /* for a case's loops, 0: none */
	const unsigned *only;	  /* case numbers, ended by 0; NULL: all */
	const char *replay;	  /* the command that repeats this run */
	bool quiet;		  /* print nothing */
	const struct cf_sim *sim; /* NULL: not simulated */
	struct cf_world world;
	int no_peer; /* why B cannot be had */
	unsigned passed, failed, skipped;
};

#define CF_NUMBER_MAX 99u /* of a case */

const struct cf_case *cf_case_find(unsigned number);
bool cf_run_selects(const struct cf_run *run, unsigned number);

/*
 * Run the cases as A and print the results. 0, or a negative errno when the run could not be done.
 */
int cf_lead(struct cf_run *run);
/* Run the CF_OUTSIDE cases, after a simulation. */
void cf_lead_outside(struct cf_run *run);
/* Run B's sides for A until A has had enough. */
int cf_follow(struct cf_run *run);

/* ---- verdicts ---- */

struct cf_verdict {
	uint8_t failed, skipped;
	char report[CF_REPORT_MAX]; /* lines, or the reason of the skip */
};

/* Why this case cannot pass on this device, or NULL. */
const char *cf_expected_failure(const struct gn_attr *attr, unsigned number);

/* ---- the control connection ---- */

enum cf_kind {
	CF_MSG_CASE = 1, /* A: run this one */
	CF_MSG_SYNC,
	CF_MSG_TELL,
	CF_MSG_END,  /* this side's function has returned; its objects still live */
	CF_MSG_DONE, /* … and are gone: its verdict */
	CF_MSG_QUIT,
};

int cf_ctl_open(const char *fabric_name, const char *addr, bool listen, struct cf_ctl **out);
void cf_ctl_close(struct cf_ctl *ctl);
const struct gn_attr *cf_ctl_attr(const struct cf_ctl *ctl);
/* A: take B's connection. B: connect, again and again until A listens. */
int cf_ctl_accept(struct cf_ctl *ctl, uint64_t deadline_ns);
int cf_ctl_connect(struct cf_ctl *ctl, uint64_t deadline_ns);
void cf_ctl_hangup(struct cf_ctl *ctl);
bool cf_ctl_up(const struct cf_ctl *ctl);

int cf_ctl_put(struct cf_ctl *ctl, enum cf_kind kind, const void *data, uint32_t len_bytes,
	       uint64_t deadline_ns);
/*
 * The next message; *len_bytes is data's size, then the message's. -EPIPE if the other side has
 * ended.
 */
int cf_ctl_get(struct cf_ctl *ctl, enum cf_kind *kind, void *data, uint32_t *len_bytes,
	       uint64_t deadline_ns);
/* Without waiting: has the other side reported a failure, or ended? */
bool cf_ctl_ended(struct cf_ctl *ctl);

/* Waits until the other side has quit as requested. */
void cf_ctl_bye(struct cf_ctl *ctl, uint64_t deadline_ns);

/* Take one message of this kind and length for the running case. */
bool cf_get(struct cf *cf, enum cf_kind kind, void *data, uint32_t len_bytes, uint64_t deadline_ns);

/* ---- objects ---- */

/* Destroy what the case made, the youngest first. */
bool cf_destroy_all(struct cf *cf);

/* ---- small things ---- */

#define CF_ADDR_CTL 100u /* number of the control connection's address */

uint64_t cf_mix(uint64_t x);
/* The first capability in caps, by name. */
const char *cf_cap_str(uint64_t caps);

#endif
