/* SPDX-License-Identifier: MIT */
/*
 * Runs the cases. A leads: it names a case, both sides run their function, report its end, destroy
 * its objects, and send a verdict. A side that fails reports this at once, which ends the other's
 * waits. A B that died or does not answer is started again for the next case.
 */
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "harness.h"

/* For B to be started and to connect: two guests boot at their own pace. */
#define START_US 60000000u

static const struct cf_case *const tables[] = {
	cf_cases_objects,    cf_cases_memory,
	cf_cases_state,	     cf_cases_send,
	cf_cases_onesided,   cf_cases_atomics,
	cf_cases_chains,     cf_cases_events,
	cf_cases_epoll,	     cf_cases_ud,
	cf_cases_isolation,  cf_cases_connect,
	cf_cases_disconnect, cf_cases_ordering,
	cf_cases_visible,    cf_cases_repeat,
	cf_cases_faults,     cf_cases_beside,
	cf_cases_timer,	     cf_cases_one,
	cf_cases_fixed,	     cf_cases_fence,
	NULL,
};

const struct cf_case *cf_case_find(unsigned number)
{
	for (unsigned t = 0; tables[t]; t++)
		for (const struct cf_case *c = tables[t]; c->number; c++)
			if (c->number == number)
				return c;
	return NULL;
}

bool cf_run_selects(const struct cf_run *run, unsigned number)
{
	if (!run->only)
		return true;
	for (const unsigned *only = run->only; *only; only++)
		if (*only == number)
			return true;
	return false;
}

/* ---- verdicts ---- */

bool cf_why(struct cf *cf, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cf->why, sizeof(cf->why), fmt, ap);
	va_end(ap);
	return false;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

void cf_fail(struct cf *cf, const char *file, int line, const char *cond, const char *fmt, ...)
{
	size_t used = strlen(cf->report);
	char more[CF_WHY_MAX + 2];
	va_list ap;

	/* Not this side's fault: the other side failed first and reported why. */
	if (cf->peer_ended || cf->skipped)
		return;
	va_start(ap, fmt);
	vsnprintf(more, sizeof(more), fmt, ap);
	va_end(ap);
	if (!more[1] && cf->why[0])
		snprintf(more, sizeof(more), " %s", cf->why);
	cf->failed = true;
	snprintf(cf->report + used, sizeof(cf->report) - used, "%c: %s:%d: %s%s%s\n",
		 cf->role == CF_A ? 'a' : 'b', base_name(file), line, cond, more[1] ? ":" : "",
		 more[1] ? more : "");
}

void cf_skip(struct cf *cf, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cf->report, sizeof(cf->report), fmt, ap);
	va_end(ap);
	cf->skipped = true;
}

void cf_note(struct cf *cf, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(cf->note, sizeof(cf->note), fmt, ap);
	va_end(ap);
}

/* ---- one side of one case ---- */

static bool set_up(struct cf *cf)
{
	CHECK_INT(gn_fabric_open(cf->fabric_name, &cf->fabric), 0);
	cf_own(cf, CF_FABRIC, cf->fabric);
	cf->attr.size = sizeof(cf->attr);
	CHECK_INT(gn_fabric_query(cf->fabric, &cf->attr), 0);
	CHECK_INT(gn_ctx_create(cf->fabric, &cf->ctx), 0);
	cf_own(cf, CF_CTX, cf->ctx);
	CHECK_INT(gn_pd_create(cf->ctx, &cf->pd), 0);
	cf_own(cf, CF_PD, cf->pd);
	CHECK_INT(gn_chan_create(cf->ctx, &cf->chan), 0);
	cf_own(cf, CF_CHAN, cf->chan);
	return true;
}

static bool take_down(struct cf *cf, int fds_before)
{
	CHECK(cf_destroy_all(cf));
	CHECK(cf_open_fds(cf) <= fds_before, "%d file descriptors left open",
	      cf_open_fds(cf) - fds_before);
	return true;
}

static uint64_t end_deadline(const struct cf *cf)
{
	return gn_deadline_us(4 * cf->wait_us);
}

/* Wait for a message of this kind, whatever an abandoned case left before it. */
static int await_kind(struct cf *cf, enum cf_kind want, void *data, uint32_t *len_bytes)
{
	uint64_t deadline_ns = end_deadline(cf);
	uint32_t size = *len_bytes;
	enum cf_kind kind;
	int err;

	do {
		*len_bytes = size;
		err = cf_ctl_get(cf->ctl, &kind, data, len_bytes, deadline_ns);
	} while (!err && kind != want);
	return err;
}

/* Neither side destroys anything before both functions returned: what was sent can be received. */
static int end_together(struct cf *cf)
{
	bool bad = cf->failed || cf->skipped || cf->peer_ended;
	uint32_t len_bytes = sizeof(bad);
	int err = cf_ctl_put(cf->ctl, CF_MSG_END, &bad, sizeof(bad), end_deadline(cf));

	if (!err && !cf->peer_said_end)
		err = await_kind(cf, CF_MSG_END, &bad, &len_bytes);
	return err;
}

static void begin(struct cf *cf, const struct cf_case *c, uint64_t seed)
{
	cf->running = c;
	cf->seed = cf_mix(seed + c->number);
	cf->rand = cf->seed;
	cf->started_ns = gn_now_ns();
	cf->failed = cf->skipped = cf->peer_said_end = cf->peer_ended = false;
	cf->listener = NULL;
	cf->report[0] = cf->why[0] = cf->note[0] = '\0';
}

static void call_side(struct cf *cf, cf_side *side)
{
	if (!side(cf) && !cf->failed && !cf->skipped && !cf->peer_ended)
		cf_fail(cf, cf->running->name, 0, "returned false", " %s",
			cf->why[0] ? cf->why : "without a reason");
}

/* 0, or why the other side can no longer be reached. */
static int run_side(struct cf *cf, cf_side *side)
{
	int fds = cf_open_fds(cf);
	int err = 0;

	if (set_up(cf))
		call_side(cf, side);
	if (cf->running->b)
		err = end_together(cf);
	take_down(cf, fds);
	return err;
}

/* ---- B ---- */

struct case_msg {
	uint64_t seed;
	uint32_t number, effort;
};

static int follow_case(struct cf *cf, const struct case_msg *msg)
{
	const struct cf_case *c = cf_case_find(msg->number);
	struct cf_verdict verdict;
	int err;

	if (!c || !c->b)
		return -EPROTO;
	cf->effort = msg->effort;
	begin(cf, c, msg->seed);
	err = run_side(cf, c->b);
	if (err)
		return err;
	memset(&verdict, 0, sizeof(verdict));
	verdict.failed = cf->failed;
	verdict.skipped = cf->skipped;
	memcpy(verdict.report, cf->report, sizeof(verdict.report));
	return cf_ctl_put(cf->ctl, CF_MSG_DONE, &verdict, sizeof(verdict), end_deadline(cf));
}

static int follow_all(struct cf *cf)
{
	for (;;) {
		struct case_msg msg;
		uint32_t len_bytes = sizeof(msg);
		enum cf_kind kind;
		int err = cf_ctl_get(cf->ctl, &kind, &msg, &len_bytes, GN_FOREVER);

		if (err)
			return err;
		if (kind == CF_MSG_QUIT)
			return 0;
		if (kind == CF_MSG_CASE && len_bytes == sizeof(msg))
			err = follow_case(cf, &msg);
		if (err)
			return err;
	}
}

static void cf_init(struct cf *cf, const struct cf_run *run, enum cf_role role)
{
	memset(cf, 0, sizeof(*cf));
	cf->role = role;
	cf->fabric_name = run->fabric_name[role];
	cf->process = run->process;
	cf->effort = run->effort;
	cf->host[CF_A] = run->host[CF_A];
	cf->host[CF_B] = run->host[CF_B];
	cf->run_name = run->name;
	cf->wait_us = run->wait_us;
	cf->limit_us = run->limit_us;
	cf->world = &run->world;
	cf->sim = run->sim;
}

int cf_follow(struct cf_run *run)
{
	char addr[CF_ADDR_MAX];
	struct cf cf;
	int err;

	cf_init(&cf, run, CF_B);
	err = cf_ctl_open(cf.fabric_name, cf_addr(&cf, CF_A, CF_ADDR_CTL, addr), false, &cf.ctl);
	if (err)
		return err;
	err = cf_ctl_connect(cf.ctl, gn_deadline_us(START_US));
	if (!err)
		err = follow_all(&cf);
	cf_ctl_close(cf.ctl);
	return err;
}

/* ---- A ---- */

static void lose_peer(struct cf_run *run, struct cf *cf, char *how, size_t size)
{
	cf_ctl_hangup(cf->ctl);
	snprintf(how, size, "gone");
	if (run->world.peer_stop)
		run->world.peer_stop(run->world.arg, how, size);
}

/* A B that did not come once is not waited for again. */
static int have_peer(struct cf_run *run, struct cf *cf)
{
	char how[64];

	if (cf_ctl_up(cf->ctl) || run->no_peer)
		return run->no_peer;
	if (run->world.peer_start)
		run->no_peer = run->world.peer_start(run->world.arg);
	if (run->no_peer)
		return run->no_peer;
	run->no_peer = cf_ctl_accept(cf->ctl, gn_deadline_us(START_US));
	if (run->no_peer)
		lose_peer(run, cf, how, sizeof(how));
	return run->no_peer;
}

/* B's verdict, or that B has ended. */
static void hear_verdict(struct cf_run *run, struct cf *cf, int err, struct cf_verdict *verdict)
{
	uint32_t len_bytes = sizeof(*verdict);
	char how[64];

	memset(verdict, 0, sizeof(*verdict));
	if (!err)
		err = await_kind(cf, CF_MSG_DONE, verdict, &len_bytes);
	if (!err && len_bytes == sizeof(*verdict)) {
		verdict->report[CF_REPORT_MAX - 1] = '\0';
		return;
	}
	lose_peer(run, cf, how, sizeof(how));
	if (err != -ETIMEDOUT && cf->running->flags & CF_B_DIES)
		return;
	verdict->failed = true;
	snprintf(verdict->report, sizeof(verdict->report), "b: %s: %s\n",
		 err == -ETIMEDOUT ? "does not answer" : "gone", how);
}

static void print_lines(const char *lines)
{
	while (*lines) {
		const char *end = strchrnul(lines, '\n');

		printf("# %.*s\n", (int)(end - lines), lines);
		lines = *end ? end + 1 : end;
	}
}

/* A's findings, then B's. */
static void print_findings(const struct cf *cf, const struct cf_verdict *theirs)
{
	if (cf->failed)
		print_lines(cf->report);
	if (theirs->failed)
		print_lines(theirs->report);
	if (!cf->failed && !theirs->failed && cf->note[0])
		printf("# %s\n", cf->note);
	fflush(stdout);
}

static void judge(struct cf_run *run, const struct cf *cf, const struct cf_verdict *theirs)
{
	const struct cf_case *c = cf->running;
	const struct gn_attr *attr = cf->ctl ? cf_ctl_attr(cf->ctl) : NULL;
	const char *cause = attr ? cf_expected_failure(attr, c->number) : NULL;
	const bool failed = cf->failed || theirs->failed;
	const bool skipped = cf->skipped || theirs->skipped;
	const char *verb = failed && !cause ? "not ok" : "ok";

	run->failed += failed && !cause;
	run->skipped += failed ? cause != NULL : skipped;
	run->passed += !failed && !skipped;
	if (run->quiet)
		return;
	printf("%s %u - %s", verb, c->number, c->name);
	if (failed && cause)
		printf(" # SKIP expected failure on %s: %s", attr->device, cause);
	else if (!failed && skipped)
		printf(" # SKIP %s", cf->skipped ? cf->report : theirs->report);
	putchar('\n');
	if (!failed && !skipped && cause)
		printf("# passed, but was expected to fail: %s\n", cause);
	print_findings(cf, theirs);
}

static bool can_run(struct cf_run *run, struct cf *cf)
{
	const struct cf_case *c = cf->running;
	uint64_t missing = c->needs & ~cf_ctl_attr(cf->ctl)->caps;
	int err;

	if (missing) {
		cf_skip(cf, "%s", cf_cap_str(missing));
		return false;
	}
	if (c->flags & CF_OUTSIDE) {
		cf_skip(cf, "nothing is simulated here");
		return false;
	}
	if (c->flags & CF_B_DIES && !run->world.die) {
		cf_skip(cf, "nothing here can kill the other side");
		return false;
	}
	err = c->b ? have_peer(run, cf) : 0;
	if (err)
		cf_fail(cf, __FILE__, __LINE__, "no other side", " %s", gn_strerror(err));
	return !err;
}

static void lead_case(struct cf_run *run, struct cf *cf, const struct cf_case *c)
{
	struct case_msg msg = {.seed = run->seed, .number = c->number, .effort = run->effort};
	struct cf_verdict theirs = {.failed = false};
	int err = 0;

	begin(cf, c, run->seed);
	if (run->world.case_begins)
		run->world.case_begins(run->world.arg, c->number);
	if (can_run(run, cf)) {
		if (c->b)
			err = cf_ctl_put(cf->ctl, CF_MSG_CASE, &msg, sizeof(msg), cf_deadline(cf));
		if (!err)
			err = run_side(cf, c->a);
		if (c->b)
			hear_verdict(run, cf, err, &theirs);
	}
	judge(run, cf, &theirs);
}

static void outside_case(struct cf_run *run, struct cf *cf, const struct cf_case *c)
{
	struct cf_verdict none = {.failed = false};

	begin(cf, c, run->seed);
	if (run->world.case_begins)
		run->world.case_begins(run->world.arg, c->number);
	call_side(cf, c->a);
	judge(run, cf, &none);
}

typedef void lead_fn(struct cf_run *run, struct cf *cf, const struct cf_case *c);

/* Cases with these flags from all tables, in the order of their numbers. */
static void lead_all(struct cf_run *run, struct cf *cf, unsigned flags, lead_fn *lead)
{
	for (unsigned number = 1; number <= CF_NUMBER_MAX; number++) {
		const struct cf_case *c = cf_case_find(number);

		if (c && cf_run_selects(run, number) && c->flags == flags)
			lead(run, cf, c);
	}
}

void cf_lead_outside(struct cf_run *run)
{
	struct cf cf;

	cf_init(&cf, run, CF_A);
	lead_all(run, &cf, CF_OUTSIDE, outside_case);
}

int cf_lead(struct cf_run *run)
{
	char addr[CF_ADDR_MAX], how[64];
	struct cf cf;
	int err;

	if (!run->quiet)
		printf("# %s, seed %llu, effort %u\n# %s\n", run->fabric_name[CF_A],
		       (unsigned long long)run->seed, run->effort, run->replay);
	fflush(stdout);
	cf_init(&cf, run, CF_A);
	err = cf_ctl_open(cf.fabric_name, cf_addr(&cf, CF_A, CF_ADDR_CTL, addr), true, &cf.ctl);
	if (err)
		return err;
	lead_all(run, &cf, 0, lead_case);
	lead_all(run, &cf, CF_B_DIES, lead_case);
	if (!run->sim)
		lead_all(run, &cf, CF_OUTSIDE, lead_case);
	if (cf_ctl_up(cf.ctl)) {
		cf_ctl_put(cf.ctl, CF_MSG_QUIT, NULL, 0, cf_deadline(&cf));
		cf_ctl_bye(cf.ctl, cf_deadline(&cf));
		lose_peer(run, &cf, how, sizeof(how));
	}
	cf_ctl_close(cf.ctl);
	return 0;
}
