/* SPDX-License-Identifier: MIT */
/*
 * An operation and its limit take turns in short blocks, because what the machine can do changes
 * within a second: the two cores of a virtual machine move together and apart. A block counts only
 * if the limit was about the same right before and right after it.
 */
#include "pair.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#define BLOCKS_MIN 20	     /* a median of fewer says little */
#define BLOCKS_MAX 1000	     /* so that long runs have longer blocks */
#define BLOCK_NS   2000000.0 /* at least, of the operation */
#define DRIFT_MAX  1.3	     /* between the limits before and after a block */
#define OVERTIME_S 10.0	     /* at most, to get BLOCKS_MIN */
#define CEILING	   (BLOCKS_MAX + BLOCKS_MIN + 1)

struct run {
	struct gn_hist groups;
	uint64_t group_ops;
	struct block block;
	double own[CEILING], limit[CEILING + 1], part[CEILING];
	double ratio[CEILING], overhead[CEILING];
};

static int one_block(struct run *run, const struct load *load, double ns, double *median_ns)
{
	int rc;

	run->block = (struct block){.ops = 0};
	gn_hist_init(&run->block.group_ns);
	rc = load->run(load->arg, (uint64_t)ns, &run->block);
	if (!rc)
		*median_ns = (double)gn_hist_percentile(&run->block.group_ns, 50) /
			     (double)run->block.group_ops;
	return rc;
}

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), by_value);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* own[i] ran between limit[i] and limit[i + 1]. Medians of fewer than BLOCKS_MIN are not given. */
static void compare(struct run *run, bool has_part, struct bench_result *result,
		    struct comparison *out)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < result->blocks; i++) {
		const double before = run->limit[i], after = run->limit[i + 1];
		const double limit = (before + after) / 2;

		if (before > after * DRIFT_MAX || after > before * DRIFT_MAX)
			continue;
		run->ratio[kept] = run->own[i] / limit;
		run->overhead[kept++] = run->own[i] - limit - (has_part ? run->part[i] : 0);
	}
	result->blocks_dropped = result->blocks - kept;
	if (result->blocks < BLOCKS_MIN || !kept)
		return;
	out->ratio = median(run->ratio, kept);
	out->overhead_ns = median(run->overhead, kept);
	out->limit_ns = median(run->limit, result->blocks);
}

static int take_turns(struct run *run, struct pair *pair, const struct load *own,
		      const struct load *limit, const struct load *part,
		      bench_progress_fn *progress, struct bench_result *result)
{
	const struct bench_opts *opts = &pair->shared->opts;
	const double block_ns = fmax(BLOCK_NS, opts->seconds * 1e9 / BLOCKS_MAX);
	const double overtime_s = limit || part ? OVERTIME_S : 0;
	unsigned n = 0;
	int rc = 0;

	if (limit)
		rc = one_block(run, limit, block_ns * limit->share, &run->limit[0]);
	while (!rc && n < CEILING) {
		rc = one_block(run, own, block_ns, &run->own[n]);
		if (!rc && pair->pid)
			rc = pair_check(pair);
		if (rc)
			break;
		gn_hist_merge(&run->groups, &run->block.group_ns);
		result->ops += run->block.ops;
		result->seconds += (double)run->block.ns / 1e9;
		run->group_ops = run->block.group_ops;
		if (part)
			rc = one_block(run, part, block_ns * part->share, &run->part[n]);
		n++;
		if (limit && !rc)
			rc = one_block(run, limit, block_ns * limit->share, &run->limit[n]);
		if (progress)
			progress(opts, fmin(1, result->seconds / opts->seconds));
		if (result->seconds >= opts->seconds + (n < BLOCKS_MIN ? overtime_s : 0))
			break;
	}
	result->blocks = n;
	return rc;
}

int blocks_run(struct pair *pair, const struct load *own, const struct load *limit,
	       const struct load *part, bench_progress_fn *progress, struct bench_result *result,
	       struct comparison *compared)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (!run)
		return -ENOMEM;
	*compared = (struct comparison){NAN, NAN, NAN, NAN};
	gn_hist_init(&run->groups);
	rc = take_turns(run, pair, own, limit, part, progress, result);
	if (!rc) {
		const double group_ops = (double)run->group_ops;

		result->p50_ns = (double)gn_hist_percentile(&run->groups, 50) / group_ops;
		result->p99_ns = (double)gn_hist_percentile(&run->groups, 99) / group_ops;
		result->p999_ns = (double)gn_hist_percentile(&run->groups, 99.9) / group_ops;
		if (limit)
			compare(run, part, result, compared);
		if (part && result->blocks >= BLOCKS_MIN)
			compared->part_ns = median(run->part, result->blocks);
	}
	free(run);
	return rc;
}
