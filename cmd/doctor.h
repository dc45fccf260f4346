/* SPDX-License-Identifier: MIT */
/*
 * What the parts of `gannet doctor` share: findings, and a connection to itself that moves bytes.
 * One thread; findings live in the struct doctor and are printed at the end.
 */
#ifndef GN_CMD_DOCTOR_H
#define GN_CMD_DOCTOR_H

#include <gannet/fabric.h>

enum doctor_state { DOCTOR_OK, DOCTOR_NO, DOCTOR_NOTE };

struct finding {
	const char *about; /* a provider, or "machine" */
	const char *what;  /* what was looked at */
	enum doctor_state state;
	char detail[320];
	char fix[320]; /* a command, or empty */
};

#define FINDINGS_MAX 96u /* devices and ports beyond this are left out */

struct doctor {
	struct finding findings[FINDINGS_MAX];
	unsigned n;
	char reason[256]; /* the first complaint in the log since doctor_try() */
};

/* Never NULL, so that a fix can follow. */
struct finding *doctor_say(struct doctor *d, enum doctor_state state, const char *about,
			   const char *what, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void doctor_fix(struct finding *finding, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Before a call that may fail: what it logs is its reason. */
void doctor_try(struct doctor *d);
/* That reason, or the error's text if nothing was logged. */
const char *doctor_reason(const struct doctor *d, int rc);

/* The first line of a file, without its newline: false when there is none. */
bool doctor_read(char *out, size_t size, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* doctor_probe.c: on failure *step says what failed. */
struct probe_result {
	const char *step;
	struct gn_attr attr; /* valid once the fabric was open */
	bool opened;
	uint64_t virtual_ns; /* probe_sim() only */
	uint64_t events;
};
/* Opens the fabric, connects it to itself at addr, and moves bytes by WRITE, READ and SEND. */
int probe_self(const char *fabric, const char *addr, struct probe_result *out);
/* One simulated node connects to another and sends it a message. */
int probe_sim(struct probe_result *out);

/* doctor_verbs.c */
void doctor_verbs(struct doctor *d);

#endif
