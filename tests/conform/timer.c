/* SPDX-License-Identifier: MIT */
/* Case 81: a channel's timer. */
#include <errno.h>

#include "conform.h"

#define SOON_US	 3000u
#define LATER_US 6000u
#define ROUNDS	 100u

/* The channel's next event is the timer's, not before its time, and it is the only one. */
static bool timer_event(struct cf *cf, struct gn_chan *chan, uint64_t due_ns)
{
	struct gn_event ev;

	CHECK(cf_expect_event(cf, chan, GN_EVENT_TIMER, &ev));
	CHECK(gn_now_ns() >= due_ns, "%llu ns early", (unsigned long long)(due_ns - gn_now_ns()));
	CHECK(!ev.qp && !ev.cq && !ev.req && !ev.listener, "the event is about something else");
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	return true;
}

/* No event of the channel until then. */
static bool no_event(struct cf *cf, struct gn_chan *chan, uint64_t until_ns)
{
	struct gn_event ev;
	int rc;

	do
		rc = gn_chan_wait(chan, until_ns, &ev);
	while (rc == -EINTR);
	CHECK(rc == -ETIMEDOUT, "%s", rc ? gn_strerror(rc) : gn_event_str(ev.type));
	return true;
}

static bool on_time(struct cf *cf, struct gn_chan *chan)
{
	struct gn_wait_item item = gn_wait_on(gn_chan_source(chan));
	uint64_t due_ns = gn_deadline_us(SOON_US);
	struct gn_event ev;
	int rc;

	CHECK_INT(gn_chan_timer(chan, due_ns), 0);
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	CHECK(timer_event(cf, chan, due_ns));
	CHECK(no_event(cf, chan, gn_deadline_us(SOON_US))); /* once only */

	CHECK_INT(gn_chan_timer(chan, 1), 0); /* long ago */
	CHECK(timer_event(cf, chan, 0));

	due_ns = gn_deadline_us(SOON_US);
	CHECK_INT(gn_chan_timer(chan, due_ns), 0);
	do
		rc = gn_wait(&item, 1, cf_deadline(cf), "a timer");
	while (rc == 0 || rc == -EINTR);
	CHECK_INT(rc, 1);
	CHECK(gn_now_ns() >= due_ns, "woken early");
	return timer_event(cf, chan, due_ns);
}

/* The last word counts. */
static bool set_anew(struct cf *cf, struct gn_chan *chan)
{
	uint64_t due_ns;

	CHECK_INT(gn_chan_timer(chan, gn_deadline_us(SOON_US)), 0);
	due_ns = gn_deadline_us(LATER_US);
	CHECK_INT(gn_chan_timer(chan, due_ns), 0);
	CHECK(timer_event(cf, chan, due_ns));

	CHECK_INT(gn_chan_timer(chan, gn_deadline_us(60000000)), 0);
	CHECK_INT(gn_chan_timer(chan, gn_now_ns()), 0);
	CHECK(timer_event(cf, chan, 0));

	CHECK_INT(gn_chan_timer(chan, gn_deadline_us(SOON_US)), 0);
	CHECK_INT(gn_chan_timer(chan, 0), 0);
	CHECK(no_event(cf, chan, gn_deadline_us(LATER_US)));
	CHECK_INT(gn_chan_timer(chan, gn_deadline_us(SOON_US)), 0);
	CHECK_INT(gn_chan_timer(chan, GN_FOREVER), 0);
	return no_event(cf, chan, gn_deadline_us(LATER_US));
}

/* A queued event is removed with its deadline. */
static bool untaken(struct cf *cf, struct gn_chan *chan)
{
	struct gn_wait_item item = gn_wait_on(gn_chan_source(chan));
	struct gn_event ev;
	uint64_t due_ns;
	int rc;

	CHECK_INT(gn_chan_timer(chan, gn_now_ns()), 0);
	do
		rc = gn_wait(&item, 1, cf_deadline(cf), "a timer");
	while (rc == 0 || rc == -EINTR);
	CHECK_INT(rc, 1);
	CHECK_INT(gn_chan_timer(chan, GN_FOREVER), 0);
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	for (uint64_t i = 0; cf_more(cf, i, ROUNDS); i++) {
		due_ns = gn_now_ns() + i * 1000;
		CHECK_INT(gn_chan_timer(chan, due_ns), 0);
		CHECK(timer_event(cf, chan, due_ns));
	}
	return true;
}

static bool timer_a(struct cf *cf)
{
	const int fds = cf_open_fds(cf);
	struct gn_chan *chan;
	struct gn_event ev;

	CHECK_INT(gn_chan_timer(NULL, 1), -EINVAL);
	CHECK((chan = cf_make_chan(cf)));
	CHECK_INT(gn_chan_timer(chan, 0), 0);
	CHECK_INT(gn_chan_next(chan, &ev), -EAGAIN);
	CHECK(on_time(cf, chan));
	CHECK(set_anew(cf, chan));
	CHECK(untaken(cf, chan));
	CHECK_INT(gn_chan_timer(chan, gn_deadline_us(SOON_US)), 0); /* goes with its channel */
	CHECK(cf_destroy(cf, chan));
	CHECK_INT(cf_open_fds(cf), fds);
	return true;
}

const struct cf_case cf_cases_timer[] = {
	{81, "a channel's timer", timer_a, NULL, 0, 0},
	{0},
};
