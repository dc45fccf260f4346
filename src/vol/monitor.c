/* SPDX-License-Identifier: MIT */
/* A volume's monitor: a server of one call, which returns the state of the volume. */
#include "vol/monitor.h"

#include <errno.h>
#include <string.h>

#include "base/fail.h"
#include "base/sized.h"
#include "gannet/exec.h"
#include "gannet/rpc.h"

struct gn_vol_monitor {
	struct gn_vol *vol;
	struct gn_rpc_server *rpc;
};

/* ---- wire ---- */

#define AT(member) offsetof(struct gn_vol_stats, member)

/* The members of a status' words. */
static const size_t members[] = {
	AT(bytes),
	AT(extent_bytes),
	AT(extents),
	AT(with_copies[0]),
	AT(with_copies[1]),
	AT(with_copies[2]),
	AT(with_copies[3]),
	AT(with_copies[4]),
	AT(unused),
	AT(blocks_written),
	AT(blocks_lost),
	AT(repair_bytes),
	AT(repair_done),
	AT(requests[GN_VOL_READ]),
	AT(requests[GN_VOL_WRITE]),
	AT(requests[GN_VOL_ZERO]),
	AT(requests[GN_VOL_DISCARD]),
	AT(requests[GN_VOL_FLUSH]),
	AT(failed),
	AT(copies_lost),
	AT(copies_made),
	AT(copies_moved),
	AT(repaired_bytes),
	AT(crc_errors),
	AT(serialised),
	AT(backup_lag),
	AT(headroom),
};

_Static_assert(sizeof(members) / sizeof(members[0]) == VOL_STATUS_WORDS, "all of them");
_Static_assert(GN_VOL_COPIES_MAX == 4 && GN_VOL_OPS == 5, "all of them");

uint32_t vol_status_write(const struct gn_vol_stats *stats, void *buf)
{
	struct vol_status *to = buf;

	*to = (struct vol_status){.version = VOL_STATUS_VERSION,
				  .n_donors = stats->n_donors,
				  .copies = stats->copies,
				  .backup_error = stats->backup_error};
	for (unsigned i = 0; i < VOL_STATUS_WORDS; i++)
		memcpy(&to->words[i], (const char *)stats + members[i], sizeof(to->words[i]));
	for (uint32_t i = 0; i < stats->n_donors; i++) {
		const struct gn_vol_donor_stats *d = &stats->donors[i];

		to->donors[i] = (struct vol_status_donor){.state = (uint32_t)d->state,
							  .copies = d->copies,
							  .spare = d->spare,
							  .free_bytes = d->free_bytes,
							  .lost = d->lost};
		memcpy(to->donors[i].addr, d->addr, sizeof(d->addr));
	}
	return (uint32_t)(sizeof(*to) + stats->n_donors * sizeof(to->donors[0]));
}

/* Printable text that ends within the array. */
static bool addr_ok(const char addr[GN_VOL_ADDR])
{
	size_t n = 0;

	while (n < GN_VOL_ADDR && addr[n] > ' ' && addr[n] <= '~')
		n++;
	return n && n < GN_VOL_ADDR && !addr[n];
}

static bool donor_read(const struct vol_status_donor *from, struct gn_vol_donor_stats *to)
{
	if (!addr_ok(from->addr) || from->state > GN_VOL_DONOR_LEAVING)
		return false;
	*to = (struct gn_vol_donor_stats){.state = (enum gn_vol_donor_state)from->state,
					  .copies = from->copies,
					  .spare = from->spare,
					  .free_bytes = from->free_bytes,
					  .lost = from->lost};
	memcpy(to->addr, from->addr, strlen(from->addr));
	return true;
}

bool vol_status_read(const void *buf, uint32_t len, struct gn_vol_stats *out)
{
	struct vol_status_donor donor;
	struct vol_status from;

	if (len < sizeof(from))
		return false;
	memcpy(&from, buf, sizeof(from));
	if (from.version != VOL_STATUS_VERSION || from.n_donors > GN_VOL_DONORS_MAX ||
	    from.copies > GN_VOL_COPIES_MAX || from.backup_error > 0 ||
	    len != sizeof(from) + from.n_donors * sizeof(donor))
		return false;
	*out = (struct gn_vol_stats){.size = sizeof(*out),
				     .n_donors = from.n_donors,
				     .copies = from.copies,
				     .backup_error = from.backup_error};
	for (unsigned i = 0; i < VOL_STATUS_WORDS; i++)
		memcpy((char *)out + members[i], &from.words[i], sizeof(from.words[i]));
	for (uint32_t i = 0; i < from.n_donors; i++) {
		memcpy(&donor, (const char *)buf + sizeof(from) + i * sizeof(donor), sizeof(donor));
		if (!donor_read(&donor, &out->donors[i]))
			return false;
	}
	return true;
}

/* ---- server ---- */

static void monitor_answer(struct gn_rpc_request *request, void *arg)
{
	struct gn_vol_monitor *monitor = arg;
	struct gn_vol_stats stats = {.size = sizeof(stats)};
	_Alignas(uint64_t) uint8_t buf[VOL_STATUS_MAX];
	uint32_t len;

	gn_rpc_request_data(request, &len);
	if (len || gn_vol_query(monitor->vol, &stats))
		gn_rpc_answer(request, GN_RPC_FAILED, NULL, 0);
	else
		gn_rpc_answer(request, GN_RPC_OK, buf, vol_status_write(&stats, buf));
}

int gn_vol_monitor_create(struct gn_vol *vol, struct gn_fabric *fabric, const char *addr,
			  unsigned listener_flags, struct gn_vol_monitor **out)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts),
						.max_slots = 1,
						.max_clients = GN_VOL_MONITOR_CLIENTS,
						.listener_flags = listener_flags};
	struct gn_vol_monitor *monitor;
	int rc;

	if (!vol || !fabric || !addr || !out)
		return gn_fail(-EINVAL,
			       "gn_vol_monitor_create(): vol, fabric, addr or out is NULL");
	monitor = gn_alloc(sizeof(*monitor), 0);
	if (!monitor)
		return gn_fail(-ENOMEM, "gn_vol_monitor_create(): " NO_MEMORY);
	monitor->vol = vol;
	rc = gn_rpc_server_create(fabric, addr, &opts, &monitor->rpc);
	if (!rc)
		rc = gn_rpc_server_handle(monitor->rpc, VOL_STATUS, monitor_answer, monitor);
	if (!rc)
		rc = gn_rpc_server_start(monitor->rpc);
	if (rc) {
		gn_vol_monitor_destroy(monitor);
		return rc;
	}
	*out = monitor;
	return 0;
}

void gn_vol_monitor_destroy(struct gn_vol_monitor *monitor)
{
	if (!monitor)
		return;
	if (monitor->rpc)
		gn_rpc_server_destroy(monitor->rpc);
	gn_free(monitor);
}

/* ---- client ---- */

int gn_vol_monitor_query(struct gn_rpc_client *client, struct gn_vol_stats *out,
			 uint64_t deadline_ns)
{
	_Alignas(uint64_t) uint8_t buf[VOL_STATUS_MAX];
	struct gn_vol_stats stats;
	unsigned status;
	uint32_t len;
	int rc;

	if (!client)
		return gn_fail(-EINVAL, "gn_vol_monitor_query(): client is NULL");
	rc = gn_rpc_call(client, VOL_STATUS, NULL, 0, buf, sizeof(buf), &len, deadline_ns, &status);
	if (rc == -ENOTCONN) { /* it broke before */
		rc = 0;
		status = GN_RPC_PEER_GONE;
	}
	if (rc)
		return rc;
	if (status == GN_RPC_TIMEOUT)
		return gn_fail(-ETIMEDOUT, "the volume's monitor did not answer in time");
	if (status == GN_RPC_PEER_GONE)
		return gn_fail(-ECONNRESET, "the connection to the volume's monitor broke");
	if (status != GN_RPC_OK || !vol_status_read(buf, len, &stats))
		return gn_fail(-EPROTO, "there is no monitor of a volume, of this version, there");
	return SIZED_WRITE(out, &stats, "gn_vol_stats");
}
