/* SPDX-License-Identifier: MIT */
/* Queries of a case about its environment: addresses, timeouts, iterations, open objects. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define PORT_BASE 47000u /* and 256 more */

const char *cf_addr(struct cf *cf, enum cf_role role, unsigned n, char buf[CF_ADDR_MAX])
{
	unsigned port = PORT_BASE + (role == CF_B ? 128 : 0) + n;

	if (strncmp(cf->fabric_name, "shm", 3) == 0)
		snprintf(buf, CF_ADDR_MAX, "shm:%s-%u", cf->run_name, port);
	else if (strncmp(cf->fabric_name, "sim", 3) == 0)
		snprintf(buf, CF_ADDR_MAX, "sim:%s:%u", cf->host[role], port);
	else
		snprintf(buf, CF_ADDR_MAX, "verbs:%s:%u", cf->host[role], port);
	return buf;
}

_Noreturn void cf_die(struct cf *cf)
{
	cf->world->die(cf->world->arg);
	abort();
}

uint64_t cf_deadline(const struct cf *cf)
{
	return gn_deadline_us(cf->wait_us);
}

uint64_t cf_count(const struct cf *cf, uint64_t n)
{
	const uint64_t full = 10;
	uint64_t scaled = n * cf->effort / full;

	return scaled ? scaled : 1;
}

bool cf_more(struct cf *cf, uint64_t i, uint64_t n)
{
	if (i >= cf_count(cf, n))
		return false;
	return !cf->limit_us || i == 0 || gn_now_ns() - cf->started_ns < cf->limit_us * 1000;
}

bool cf_more_both(struct cf *cf, uint64_t i, uint64_t n)
{
	bool more = cf_more(cf, i, n);

	if (!cf->limit_us)
		return more;
	if (cf->role == CF_A)
		return cf_tell(cf, &more, sizeof(more)) && more;
	return cf_hear(cf, &more, sizeof(more)) && more;
}

int cf_open_fds(const struct cf *cf)
{
	DIR *dir = cf->process ? opendir("/proc/self/fd") : NULL;
	int n = 0;

	if (!dir)
		return -1;
	while (readdir(dir))
		n++;
	closedir(dir);
	return n - 3; /* ".", ".." and dir's own */
}

const char *cf_cap_str(uint64_t caps)
{
	static const char *const name[] = {
		"no datagrams",
		"no atomics",
		"atomics are not coherent with the CPU's",
		"WRITEs are not placed in order",
		"WRITEs are not placed in order within 128 bytes",
		"WRITEs overtake each other",
		"READs are not sampled head first",
		"channels have no fd",
		"messages move without their target",
		"wrapped memory cannot be a remote end",
		"no huge pages",
	};
	int bit = caps ? __builtin_ctzll(caps) : 64;

	return bit < (int)(sizeof(name) / sizeof(name[0])) ? name[bit] : "not provided";
}
