/* SPDX-License-Identifier: MIT */
/*
 * What clients have counted, and the figures that it comes to.
 */
#include <math.h>

#include "crew.h"

void tally_calls(struct tally *t, const struct gn_rpc_client *client, int sign)
{
	const uint64_t factor = (uint64_t)(int64_t)sign;
	struct gn_rpc_counters rpc = {.size = sizeof(rpc)};

	gn_rpc_client_counters(client, &rpc);
	t->fetches += factor * rpc.fetches;
	t->failed_fetches += factor * rpc.failed_fetches;
	t->second_reads += factor * rpc.second_reads;
	t->batches += factor * rpc.batches;
}

void tally_fabric(struct tally *t, const struct gn_fabric *fabric, int sign)
{
	const uint64_t factor = (uint64_t)(int64_t)sign;
	struct gn_counters counters = {.size = sizeof(counters)};

	gn_fabric_counters((struct gn_fabric *)fabric, &counters);
	for (int op = 0; op < GN_OP_RECV; op++)
		t->wrs += factor * counters.wrs[op];
	t->doorbells += factor * counters.doorbells;
}

void tally_block(struct tally *t, const struct block *block)
{
	t->group_ops = block->group_ops;
	t->ns += block->ns;
	gn_hist_merge(&t->group_ns, &block->group_ns);
}

static double share_of(const struct gn_hist *hist, double percent, uint64_t group_ops)
{
	return (double)gn_hist_percentile(hist, percent) / (double)group_ops;
}

void tally_sum(const struct crew_hall *hall, struct bench_rpc_result *r)
{
	struct tally all = {.calls = 0};
	double calls, per_batch;

	gn_hist_init(&all.group_ns);
	r->mops = 0;
	for (uint32_t i = 0; i < hall->clients; i++) {
		const struct tally *t = &hall->tally[i];

		gn_hist_merge(&all.group_ns, &t->group_ns);
		all.calls += t->calls;
		all.wrs += t->wrs;
		all.doorbells += t->doorbells;
		all.batches += t->batches;
		all.fetches += t->fetches;
		r->switches += t->switches;
		r->failed_fetches += t->failed_fetches;
		r->second_reads += t->second_reads;
		if (t->ns)
			r->mops += (double)t->group_ns.count * (double)t->group_ops /
				   ((double)t->ns / 1e3);
	}
	calls = (double)all.calls;
	r->run.ops = all.calls;
	r->run.p50_ns = share_of(&all.group_ns, 50, hall->tally[0].group_ops);
	r->run.p99_ns = share_of(&all.group_ns, 99, hall->tally[0].group_ops);
	r->run.p999_ns = share_of(&all.group_ns, 99.9, hall->tally[0].group_ops);
	r->has_counters = true;
	r->client_wrs = (double)all.wrs / calls;
	/* The server counts since it began; its work requests go with messages, not with calls. */
	per_batch = (double)all.batches / calls / (double)hall->server_batches;
	r->server_wrs = (double)hall->server_wrs * per_batch;
	r->doorbells = (double)all.doorbells / calls + (double)hall->server_doorbells * per_batch;
	r->batch_fill = all.batches ? calls / (double)all.batches : NAN;
	/* What a client waits for: its own reads, and what the server's card did. */
	r->round_trips = (double)all.fetches / calls + r->server_wrs;
}
