/* SPDX-License-Identifier: MIT */
/*
 * Looks at the donors before nbdkit forks into the background. A process of its own does it, so
 * that no thread and no connection is there when nbdkit forks.
 */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin.h"

#define PROBE_TIMEOUT_US 5000000u
#define MIB		 1048576.0

struct probe {
	uint64_t slab_bytes;
	uint64_t free; /* extents that the donors have space for, none twice on one donor */
	char *why;
	size_t room;
};

static int probe_fail(struct probe *p, const char *addr, int rc)
{
	const char *why = nbd_why(rc);
	const bool named = strstr(why, addr);

	snprintf(p->why, p->room, "%s%s%s%s", named ? "" : addr, named ? "" : ": ", why,
		 rc == -ECONNREFUSED ? "; gannet donor serve starts a donor" : "");
	return -1;
}

/* Adds what a donor has. */
static int probe_count(struct probe *p, const char *addr, const struct gn_donor_stats *s)
{
	const uint64_t free = s->slabs > s->granted ? s->slabs - s->granted : 0;
	uint64_t extents;

	if (p->slab_bytes && s->slab_bytes != p->slab_bytes) {
		snprintf(p->why, p->room,
			 "donor %s lends slabs of %.1f MiB, and donor %s of %.1f MiB: start all "
			 "with the same --slab",
			 nbd_config.donors[0], (double)p->slab_bytes / MIB, addr,
			 (double)s->slab_bytes / MIB);
		return -1;
	}
	p->slab_bytes = s->slab_bytes;
	extents = (nbd_config.vol.bytes + s->slab_bytes - 1) / s->slab_bytes;
	p->free += free < extents ? free : extents;
	return 0;
}

static int probe_donor(struct probe *p, struct gn_fabric *fabric, const char *addr)
{
	const struct gn_donor_opts opts = {.size = sizeof(opts), .timeout_us = PROBE_TIMEOUT_US};
	struct gn_donor_stats stats = {.size = sizeof(stats)};
	struct gn_donor *donor;
	int rc = gn_donor_connect(fabric, NULL, addr, &opts, &donor);

	if (rc)
		return probe_fail(p, addr, rc);
	rc = gn_donor_query(donor, &stats, gn_deadline_us(PROBE_TIMEOUT_US));
	rc = rc ? probe_fail(p, addr, rc) : probe_count(p, addr, &stats);
	gn_donor_close(donor, 0);
	return rc;
}

/* In the other process. */
static int probe_donors(char *why, size_t room)
{
	const struct gn_vol_opts *vol = &nbd_config.vol;
	struct probe p = {.why = why, .room = room};
	struct gn_fabric *fabric;
	uint64_t wanted;
	int rc = gn_fabric_open(nbd_config.provider, &fabric);

	if (rc) {
		snprintf(why, room, "cannot open %s: %s; gannet doctor says what it lacks",
			 nbd_config.provider, nbd_why(rc));
		return -1;
	}
	for (uint32_t i = 0; i < vol->n_donors && !rc; i++)
		rc = probe_donor(&p, fabric, vol->donors[i]);
	if (rc || vol->headroom)
		return rc;
	wanted = (vol->bytes + p.slab_bytes - 1) / p.slab_bytes * vol->copies;
	if (p.free >= wanted)
		return 0;
	snprintf(why, room,
		 "the donors have too little free memory: %" PRIu32
		 " cop%s of %.1f MiB need %" PRIu64 " slabs of %.1f MiB, and %" PRIu64
		 " can be used; start more donors, or give them "
		 "more --memory; gannet donor list says who holds their slabs",
		 vol->copies, vol->copies == 1 ? "y" : "ies on different donors",
		 (double)vol->bytes / MIB, wanted, (double)p.slab_bytes / MIB, p.free);
	return -1;
}

static void probe_child(int to)
{
	char why[512] = "";
	int rc = probe_donors(why, sizeof(why));
	ssize_t sent = rc ? write(to, why, strlen(why)) : 0;

	_exit(rc || sent < 0);
}

int nbd_probe(void)
{
	char why[512];
	size_t len = 0;
	ssize_t got;
	int fds[2], status = 0;
	pid_t child;

	if (pipe2(fds, O_CLOEXEC)) {
		nbdkit_error("pipe: %m");
		return -1;
	}
	child = fork();
	if (child == 0) {
		close(fds[0]);
		probe_child(fds[1]);
	}
	close(fds[1]);
	while (child > 0 && len < sizeof(why) - 1 &&
	       (got = read(fds[0], why + len, sizeof(why) - 1 - len)) > 0)
		len += (size_t)got;
	why[len] = '\0';
	close(fds[0]);
	if (child < 0) {
		nbdkit_error("fork: %m");
		return -1;
	}
	if (waitpid(child, &status, 0) == child && status == 0)
		return 0;
	nbdkit_error("%s", len ? why : "the process that looks at the donors has died");
	return -1;
}
