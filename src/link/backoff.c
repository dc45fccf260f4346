/* SPDX-License-Identifier: MIT */
/* How long a client waits until it tries again to connect. */
#include <errno.h>

#include "link/link.h"

#define RETRY_US   1000u /* after the first attempt that failed */
#define DOUBLINGS  7u
#define RETRY_MOST 100000u /* us */

void link_backoff_failed(struct link_backoff *backoff)
{
	const uint32_t us = RETRY_US << backoff->failed;

	backoff->at_ns = gn_deadline_us(us < RETRY_MOST ? us : RETRY_MOST);
	backoff->failed += backoff->failed < DOUBLINGS;
}

int link_backoff_wait(const struct link_backoff *backoff, uint64_t deadline_ns)
{
	const uint64_t until_ns = backoff->at_ns < deadline_ns ? backoff->at_ns : deadline_ns;
	const uint64_t now_ns = gn_now_ns();

	if (now_ns < until_ns)
		gn_sleep_us((until_ns - now_ns) / 1000 + 1);
	return until_ns < deadline_ns ? 0 : -ETIMEDOUT;
}
