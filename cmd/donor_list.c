/* SPDX-License-Identifier: MIT */
/* gannet donor list: who holds which slabs of a donor. */
#include <inttypes.h>
#include <stdlib.h>

#include "bench.h"
#include "donor_cmd.h"

struct request {
	struct donor_target target;
	const char *owner;
	bool json;
};

#define TO(member) .to = offsetof(struct request, member)

static const struct opt options[] = {
	OPT_DONOR_TARGET(struct request, target),
	{OPT_TEXT, "owner", "TAG", "only those of this owner", "", TO(owner)},
	{OPT_FLAG, "json", NULL, "a JSON object per line", TO(json)},
	{.type = OPT_END},
};

static const char *const states[] = {
	[GN_DONOR_HELD] = "held", [GN_DONOR_ASKED] = "asked", [GN_DONOR_ENDING] = "ending"};

static void donor_list_print_json(const struct gn_donor_entry *e)
{
	putchar('{');
	bench_json_string(stdout, "owner", e->owner);
	bench_json_count(stdout, "session", true, e->session);
	bench_json_count(stdout, "slab", e->slab, e->slab);
	bench_json_count(stdout, "bytes", true, e->bytes);
	bench_json_count(stdout, "held_ms", e->slab, e->held_ms);
	bench_json_count(stdout, "left_ms", true, e->left_ms);
	printf("\"state\":\"%s\"}\n", states[e->state]);
}

static int donor_list_entry(void *arg, const struct gn_donor_entry *e)
{
	const struct request *r = arg;

	if (r->json)
		donor_list_print_json(e);
	else if (e->slab)
		printf("%s\tsession %" PRIu64 "\tslab %" PRIu64 "\t%" PRIu64
		       " bytes\theld for %.1f s\tlease %.1f s%s%s\n",
		       e->owner[0] ? e->owner : "-", e->session, e->slab, e->bytes,
		       (double)e->held_ms / 1e3, (double)e->left_ms / 1e3,
		       e->state == GN_DONOR_HELD ? "" : "\t",
		       e->state == GN_DONOR_HELD ? "" : states[e->state]);
	else
		printf("%s\tsession %" PRIu64 "\tno slabs\t\t\tlease %.1f s\n",
		       e->owner[0] ? e->owner : "-", e->session, (double)e->left_ms / 1e3);
	return 0;
}

static int donor_list_run(const struct args *args)
{
	struct request *r = args->opts;
	struct donor_link link;

	if (donor_link_open(&link, &r->target))
		return EXIT_FAILURE;
	return donor_link_end(
		&link, gn_donor_list(link.donor, r->owner, donor_list_entry, r, link.deadline_ns));
}

const struct command command_donor_list = {
	.name = "list",
	.what = "who holds which slabs of a running donor",
	.about = "Prints a line for each slab that a client holds, and for each session without "
		 "slabs: owner tag, session, slab, and how long the donor keeps it if the client "
		 "gives no sign of life.",
	.run = donor_list_run,
	OPTIONS(options, struct request, .target = DONOR_TARGET_DEFAULT),
};
