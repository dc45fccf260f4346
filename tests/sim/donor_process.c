/* SPDX-License-Identifier: MIT */
/* A donor of the tests: donor_process.h. */
#include "donor_process.h"

#include "gannet/exec.h"

#define LOOK_US 200u

static int donor_start(struct gn_fabric *fabric, const struct donor_process *process,
		       struct gn_donor_server **server)
{
	const struct gn_donor_server_opts opts = {
		.size = sizeof(opts),
		.memory = process->slabs * process->slab,
		.slab = process->slab,
		.ready = 1,
		.lease_us = process->lease_us,
		.silence_us = 60000000,
		.take_back_us = process->take_back_us,
		.reserve = process->reserve,
		.available = process->available,
		.available_arg = process->arg,
		.max_sessions = 64,
		.max_shares = 64,
		.max_conns = 64,
	};
	const int rc = gn_donor_server_create(fabric, process->addr, &opts, server);

	return rc ? rc : gn_donor_server_start(*server);
}

int donor_serve(struct gn_fabric *fabric, const struct donor_process *process)
{
	struct gn_donor_server *server = NULL;
	const int rc = donor_start(fabric, process, &server);
	bool leaves = false;

	if (!rc && process->out)
		*process->out = server;
	while (!rc && process->serves(process->arg, &leaves))
		gn_sleep_us(LOOK_US);
	if (!rc && leaves)
		gn_donor_server_drain(server, gn_deadline_us(gn_random() % process->drain_us));
	if (process->out)
		*process->out = NULL;
	gn_donor_server_destroy(server);
	return rc;
}
