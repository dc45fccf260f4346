/* SPDX-License-Identifier: MIT */
/*
 * nbdkit-gannet-plugin: a volume in the memory of donors, for everything that speaks NBD.
 *
 * All connections share one volume. It is created after nbdkit has forked, because it has threads.
 * Requests run in nbdkit's own threads: a hand-off to another thread would halve small reads.
 * nbdkit waits for all requests before cleanup().
 */
#define NBDKIT_API_VERSION 2
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "plugin.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

static struct gn_fabric *fabric, *monitor_fabric;
static struct gn_vol *vol;
static struct gn_vol_monitor *monitor;
static struct gn_vol_backup backup;
static atomic_uint_fast64_t failures;

const char *nbd_why(int rc)
{
	return *gn_error() ? gn_error() : gn_strerror(rc);
}

static void plugin_log(void *arg, enum gn_log_level level, const char *line)
{
	(void)arg;
	if (level <= GN_LOG_WARN)
		nbdkit_error("%s", line);
	else
		nbdkit_debug("%s", line);
}

/* ---- start and end ---- */

static void plugin_dump(void)
{
	printf("gannet_version=%s\n", gn_version());
}

static int plugin_thread_model(void)
{
	return nbd_config.parallel ? NBDKIT_THREAD_MODEL_PARALLEL :
				     NBDKIT_THREAD_MODEL_SERIALIZE_REQUESTS;
}

static int plugin_get_ready(void)
{
	if (nbd_probe())
		return -1;
	return nbd_config.backup ?
		       nbd_backup_open(nbd_config.backup, nbd_config.vol.bytes, &backup) :
		       0;
}

/*
 * This process writes pages out when the system is short of memory, so it must not wait for pages
 * to be written out. Threads inherit the flag: call it before there are any.
 */
static int plugin_prepare_swap(void)
{
	const char none[] = "-1000";
	int fd, rc;

	/* nbdkit did so with --swap, but a fork undoes it. */
	if (mlockall(MCL_CURRENT | MCL_FUTURE)) {
		nbdkit_error("swap: cannot lock memory: %m; raise ulimit -l, or be root");
		return -1;
	}
	if (prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0)) {
		nbdkit_error("swap: PR_SET_IO_FLUSHER: %m; it needs CAP_SYS_RESOURCE");
		return -1;
	}
	fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	rc = fd < 0 || write(fd, none, sizeof(none) - 1) < 0 ? -1 : 0;
	if (rc)
		nbdkit_error("swap: /proc/self/oom_score_adj: %m");
	if (fd >= 0)
		close(fd);
	return rc;
}

static void plugin_progress(void *arg, uint64_t granted, uint64_t wanted)
{
	(void)arg;
	nbdkit_debug("%" PRIu64 " of %" PRIu64 " bytes granted", granted, wanted);
}

static void plugin_tell_ready(void)
{
	if (nbd_config.ready_fd < 0)
		return;
	if (write(nbd_config.ready_fd, "ready\n", 6) < 0)
		nbdkit_error("ready-fd=%d: %m", nbd_config.ready_fd);
	close(nbd_config.ready_fd);
	nbd_config.ready_fd = -1;
}

static int plugin_create(void)
{
	int rc = gn_fabric_open(nbd_config.provider, &fabric);

	if (rc) {
		nbdkit_error("cannot open %s: %s", nbd_config.provider, nbd_why(rc));
		return -1;
	}
	if (backup.write)
		nbd_config.vol.backup = &backup;
	nbd_config.vol.progress = plugin_progress;
	rc = gn_vol_create(fabric, &nbd_config.vol, &vol);
	if (rc)
		nbdkit_error("cannot create the volume: %s", nbd_why(rc));
	return rc ? -1 : 0;
}

/* Its address may be of another provider than those of the donors. */
static int plugin_monitor(void)
{
	const char *addr = nbd_config.monitor;
	char provider[16];
	int rc;

	if (!addr)
		return 0;
	snprintf(provider, sizeof(provider), "%.*s", (int)strcspn(addr, ":"), addr);
	rc = gn_fabric_open(provider, &monitor_fabric);
	if (!rc)
		rc = gn_vol_monitor_create(vol, monitor_fabric, addr, 0, &monitor);
	if (rc)
		nbdkit_error("monitor=%s: %s", addr, nbd_why(rc));
	return rc ? -1 : 0;
}

static void plugin_cleanup(void)
{
	int rc;

	gn_vol_monitor_destroy(monitor);
	monitor = NULL;
	gn_fabric_close(monitor_fabric);
	monitor_fabric = NULL;
	rc = gn_vol_destroy(vol);
	if (rc) {
		nbdkit_error("cannot end the volume: %s", nbd_why(rc));
		return;
	}
	vol = NULL;
	gn_fabric_close(fabric);
	fabric = NULL;
	nbd_backup_close(&backup);
}

static int plugin_after_fork(void)
{
	gn_log_to(plugin_log, NULL);
	if ((nbd_config.swap && plugin_prepare_swap()) || plugin_create() || plugin_monitor()) {
		plugin_cleanup();
		return -1;
	}
	plugin_tell_ready();
	return 0;
}

/* ---- connections ---- */

static void *plugin_open(int readonly)
{
	(void)readonly;
	return NBDKIT_HANDLE_NOT_NEEDED;
}

static int64_t plugin_get_size(void *handle)
{
	(void)handle;
	return (int64_t)gn_vol_bytes(vol);
}

/* Requests of any alignment are right; whole blocks are fast. */
static int plugin_block_size(void *handle, uint32_t *minimum, uint32_t *preferred,
			     uint32_t *maximum)
{
	(void)handle;
	*minimum = 1;
	*preferred = GN_VOL_BLOCK;
	*maximum = UINT32_MAX;
	return 0;
}

static int plugin_yes(void *handle)
{
	(void)handle;
	return 1;
}

static int plugin_can_fua(void *handle)
{
	(void)handle;
	return NBDKIT_FUA_NATIVE;
}

/* ---- requests ---- */

/*
 * What nbdkit returns for rc. The first failures are logged, then fewer and fewer: a failing volume
 * must not fill a disk with messages.
 */
static int plugin_end(int rc, const char *op, uint64_t offset, uint32_t count)
{
	uint64_t n;

	if (!rc)
		return 0;
	n = atomic_fetch_add_explicit(&failures, 1, memory_order_relaxed) + 1;
	if (n <= 16 || !(n & (n - 1)))
		nbdkit_error("%s of %" PRIu32 " bytes at %" PRIu64 ": %s (failure %" PRIu64 ")", op,
			     count, offset, nbd_why(rc), n);
	/* NBD has few errors; nbdkit sends EINVAL for all others. */
	errno = rc == -ENOSPC || rc == -ENOMEM || rc == -EINVAL || rc == -ESHUTDOWN ? -rc : EIO;
	return -1;
}

static unsigned plugin_flags(uint32_t flags)
{
	return flags & NBDKIT_FLAG_FUA ? GN_VOL_FUA : 0;
}

static int plugin_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	(void)flags;
	return plugin_end(gn_vol_read(vol, buf, count, offset), "read", offset, count);
}

static int plugin_pwrite(void *handle, const void *buf, uint32_t count, uint64_t offset,
			 uint32_t flags)
{
	(void)handle;
	return plugin_end(gn_vol_write(vol, buf, count, offset, plugin_flags(flags)), "write",
			  offset, count);
}

static int plugin_zero(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	return plugin_end(gn_vol_zero(vol, count, offset, plugin_flags(flags)), "zero", offset,
			  count);
}

static int plugin_trim(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
	(void)handle;
	return plugin_end(gn_vol_discard(vol, count, offset, plugin_flags(flags)), "trim", offset,
			  count);
}

static int plugin_flush(void *handle, uint32_t flags)
{
	(void)handle;
	(void)flags;
	return plugin_end(gn_vol_flush(vol), "flush", 0, 0);
}

struct extents_walk {
	struct nbdkit_extents *to;
	bool one;
	int failed; /* errno */
};

/* A lost block is data: its reader must see the error. */
static int plugin_add_extent(void *arg, uint64_t offset, uint64_t len_bytes,
			     enum gn_vol_extent_kind kind)
{
	struct extents_walk *walk = arg;
	const uint32_t type = kind == GN_VOL_HOLE ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;

	if (nbdkit_add_extent(walk->to, offset, len_bytes, type))
		walk->failed = errno;
	return walk->failed || walk->one;
}

static int plugin_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
			  struct nbdkit_extents *extents)
{
	struct extents_walk walk = {.to = extents, .one = flags & NBDKIT_FLAG_REQ_ONE};
	const uint64_t begin = offset - offset % GN_VOL_BLOCK;
	const uint64_t end = (offset + count + GN_VOL_BLOCK - 1) / GN_VOL_BLOCK * GN_VOL_BLOCK;
	const int rc = gn_vol_extents(vol, begin, end - begin, plugin_add_extent, &walk);

	(void)handle;
	if (walk.failed) {
		errno = walk.failed;
		return -1;
	}
	return plugin_end(rc < 0 ? rc : 0, "extents", offset, count);
}

static struct nbdkit_plugin plugin = {
	.name = "gannet",
	.longname = "Gannet volume",
	.version = GN_NBD_VERSION,
	.description = "a volume in the memory of other machines, with copies on several of them",
	.config = nbd_config_set,
	.config_complete = nbd_config_complete,
	.config_help = nbd_config_help,
	.magic_config_key = "donor",
	.dump_plugin = plugin_dump,
	.thread_model = plugin_thread_model,
	.get_ready = plugin_get_ready,
	.after_fork = plugin_after_fork,
	.cleanup = plugin_cleanup,
	.open = plugin_open,
	.get_size = plugin_get_size,
	.block_size = plugin_block_size,
	.can_multi_conn = plugin_yes,
	.can_flush = plugin_yes,
	.can_trim = plugin_yes,
	.can_zero = plugin_yes,
	.can_fast_zero = plugin_yes,
	.can_extents = plugin_yes,
	.can_fua = plugin_can_fua,
	.pread = plugin_pread,
	.pwrite = plugin_pwrite,
	.zero = plugin_zero,
	.trim = plugin_trim,
	.flush = plugin_flush,
	.extents = plugin_extents,
	.errno_is_preserved = 1,
};

NBDKIT_REGISTER_PLUGIN(plugin)
