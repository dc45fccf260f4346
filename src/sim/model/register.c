/* SPDX-License-Identifier: MIT */
/* Registration: a system call, and each page is pinned and entered into a table. */
#include "sim/model/model.h"

#define PAGE 4096u

uint64_t sim_register_cost(const struct sim_profile *profile, uint64_t bytes)
{
	return profile->register_ps + (bytes + PAGE - 1) / PAGE * profile->register_page_ps;
}
