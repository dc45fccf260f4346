/* SPDX-License-Identifier: MIT */
/* Engines: options, creation, statistics. */
#include "io/engine.h"
#include "base/sized.h"

#define DEFAULT(member, value)              \
	do {                                \
		if (!(member))              \
			(member) = (value); \
	} while (0)

static int opts_check(struct gn_io_opts *opts)
{
	if ((unsigned)opts->batching >= GN_IO_BATCHINGS || (unsigned)opts->mr >= GN_IO_MRS ||
	    (unsigned)opts->polling >= GN_IO_POLLINGS)
		return gn_fail(-EINVAL, "gn_io_create(): opts.batching, mr or polling is unknown");
	DEFAULT(opts->read_window, IO_WINDOW_DEFAULT);
	DEFAULT(opts->write_window, IO_WINDOW_DEFAULT);
	DEFAULT(opts->channels, 4);
	DEFAULT(opts->depth, 128);
	DEFAULT(opts->merge_bytes, IO_STRIPE_BYTES);
	DEFAULT(opts->max_retry, 120);
	DEFAULT(opts->poll_batch, 16);
	DEFAULT(opts->staging_bytes, 16u << 20);
	DEFAULT(opts->lost_us, 40000000u);
	if (opts->channels > IO_CHANNELS_MAX)
		return gn_fail(-EINVAL, "gn_io_create(): opts.channels is at most %u",
			       IO_CHANNELS_MAX);
	if (opts->depth > IO_CHANNEL_DEPTH_MAX)
		return gn_fail(-EINVAL, "gn_io_create(): opts.depth is at most %u",
			       IO_CHANNEL_DEPTH_MAX);
	if (opts->staging_bytes < 2 * GN_IO_BYTES_MAX)
		return gn_fail(-EINVAL, "gn_io_create(): opts.staging_bytes is at least %u",
			       2 * GN_IO_BYTES_MAX);
	return 0;
}

static void window_init(struct gn_io *io, enum gn_io_op op, uint64_t limit)
{
	if (limit == GN_IO_WINDOW_AUTO)
		io_auto_init(&io->adapt[op], &io->window[op]);
	else
		io_window_init(&io->window[op], limit);
}

int gn_io_create(struct gn_fabric *fabric, const struct gn_io_opts *given, struct gn_io **out)
{
	struct gn_io_opts opts = {.size = sizeof(opts)};
	struct gn_attr attr = {.size = sizeof(attr)};
	struct gn_io *io;
	int rc;

	if (!fabric || !out)
		return gn_fail(-EINVAL, "gn_io_create(): fabric or out is NULL");
	rc = SIZED_READ(&opts, given, "gn_io_opts");
	if (!rc)
		rc = opts_check(&opts);
	if (!rc)
		rc = gn_fabric_query(fabric, &attr);
	if (rc)
		return rc;
	io = gn_alloc(sizeof(*io), _Alignof(struct gn_io));
	if (!io)
		return gn_fail(-ENOMEM, "gn_io_create(): " NO_MEMORY);
	io->fabric = fabric;
	io->creator = gn_thread_id();
	io->attr = attr;
	io->opts = opts;
	io->max_sge = attr.max_sge < GN_IO_SGE_MAX ? attr.max_sge : GN_IO_SGE_MAX;
	if (io->opts.depth > attr.max_send_wr)
		io->opts.depth = attr.max_send_wr;
	window_init(io, GN_IO_READ, opts.read_window);
	window_init(io, GN_IO_WRITE, opts.write_window);
	gn_mutex_init(&io->lock);
	rc = gn_ctx_create(fabric, &io->ctx);
	if (!rc)
		rc = gn_pd_create(io->ctx, &io->pd);
	if (!rc)
		rc = io_memory_init(io);
	if (rc) {
		gn_io_destroy(io);
		return rc;
	}
	*out = io;
	return 0;
}

int gn_io_destroy(struct gn_io *io)
{
	int rc;

	if (!io)
		return 0;
	rc = io_check(io, "gn_io_destroy()");
	if (rc)
		return rc;
	if (io->n_targets || io->n_mems || io->n_queues > (io->service ? 1 : 0))
		return gn_fail(-EBUSY,
			       "gn_io_destroy(): the engine has %u targets, %u mems and %u "
			       "queues",
			       io->n_targets, io->n_mems, io->n_queues - !!io->service);
	io_service_stop(io);
	for (uint32_t i = 0; i < io->n_pollers; i++)
		io_poller_destroy(io->pollers[i]);
	io_memory_fini(io);
	gn_pd_destroy(io->pd);
	gn_ctx_destroy(io->ctx);
	gn_mutex_fini(&io->lock);
	gn_free(io);
	return 0;
}

static void stats_add_poller(struct gn_io_stats *stats, const struct io_poller_stats *of)
{
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		stats->requests[op] += counter_read(&of->requests[op]);
		stats->bytes[op] += counter_read(&of->bytes[op]);
	}
	stats->failed += counter_read(&of->failed);
	stats->wrs += counter_read(&of->wrs);
	stats->doorbells += counter_read(&of->doorbells);
	stats->merged += counter_read(&of->merged);
	stats->waited += counter_read(&of->waited);
	stats->repeated += counter_read(&of->repeated);
	stats->reconnects += counter_read(&of->reconnects);
	stats->polls += counter_read(&of->polls);
	stats->polls_empty += counter_read(&of->polls_empty);
	stats->arms += counter_read(&of->arms);
	stats->events += counter_read(&of->events);
}

int gn_io_query(const struct gn_io *io, struct gn_io_stats *out)
{
	struct gn_io_stats stats = {.size = sizeof(stats)};

	if (!io)
		return gn_fail(-EINVAL, "gn_io_query(): io is NULL");
	for (uint32_t i = 0; i < __atomic_load_n(&io->n_pollers, __ATOMIC_ACQUIRE); i++)
		stats_add_poller(&stats, &io->pollers[i]->stats);
	for (unsigned op = 0; op < GN_IO_OPS; op++) {
		stats.in_flight[op] = counter_read(&io->window[op].in_flight);
		stats.in_flight_max[op] = counter_read(&io->window[op].in_flight_max);
		stats.window[op] = counter_read(&io->window[op].limit);
	}
	stats.wakeups = counter_read(&io->wakeups);
	stats.copy_below = __atomic_load_n(&io->copy_below, __ATOMIC_RELAXED);
	stats.targets = __atomic_load_n(&io->n_targets, __ATOMIC_RELAXED);
	stats.mems = __atomic_load_n(&io->n_mems, __ATOMIC_RELAXED);
	stats.queues = __atomic_load_n(&io->n_queues, __ATOMIC_RELAXED);
	return SIZED_WRITE(out, &stats, "gn_io_stats");
}
