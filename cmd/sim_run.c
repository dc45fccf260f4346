/* SPDX-License-Identifier: MIT */
/*
 * gannet sim run: one load on one simulated cluster, and everything that was measured, as JSON.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <gannet/sim.h>

#include "cmd.h"
#include "command.h"
#include "lab.h"

#define CARD_MAX 4096u

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *config, *profile;
	uint32_t preset;
	uint64_t seed;
	double effort;
	bool json;
};

static const char *const presets[] = {"gannet", "paper", NULL};

static const struct opt options[] = {
	{OPT_TEXT, "config", "K=V;K=V", "what runs, in the words of data/paper.tsv", AT(config)},
	{OPT_TEXT, "profile", "NAME[=P]",
	 "the machines and network cards of NAME; with =P the cards of the profile or file P",
	 AT(profile)},
	{OPT_CHOICE, "preset", "P", "gannet: the library's defaults; paper: as the papers posted",
	 AT(preset), .choices = presets},
	{OPT_U64, "seed", "N", "of everything left to chance", AT(seed)},
	{OPT_REAL, "effort", "E", "length of the run", AT(effort), RANGE(0.01, 100)},
	{OPT_FLAG, "json", NULL, "one object", AT(json)},
	{.type = OPT_END},
};

/* NAME=P in two. A file gets the '/' that tells it from the name of a built-in profile. */
static int sim_run_card(const char *text, char name[CARD_MAX], char card[CARD_MAX])
{
	const char *is = strchr(text, '=');
	const char *p = is ? is + 1 : text;
	const char *prefix = strchr(p, '/') || gn_sim_profile_text(p) ? "" : "./";

	if (is == text || !*p || strlen(text) + 3 > CARD_MAX)
		return cmd_usage_error("--profile must be NAME or NAME=P, not '%.60s'", text);
	snprintf(name, CARD_MAX, "%.*s", (int)strcspn(text, "="), text);
	snprintf(card, CARD_MAX, "%s%s", prefix, p);
	if (*prefix && access(card, R_OK))
		return cmd_usage_error("--profile: '%s' is neither a profile nor a file: %s", p,
				       strerror(errno));
	return cmd_sim_check(&(struct gn_sim_opts){
		.size = sizeof(struct gn_sim_opts), .profile = card, .nodes = 1});
}

static void sim_run_print(const struct lab_metrics *metrics, bool json)
{
	const char *between = "{";

	for (unsigned i = 0; i < metrics->n; i++) {
		const double value = metrics->metric[i].value;

		if (!json) {
			printf("%s\t%g\n", metrics->metric[i].name, value);
			continue;
		}
		printf("%s\"%s\":", between, metrics->metric[i].name);
		if (isfinite(value))
			printf("%.17g", value);
		else
			fputs("null", stdout);
		between = ",";
	}
	if (json)
		puts("}");
}

static int sim_run_run(const struct args *args)
{
	const struct request *r = args->opts;
	const struct lab_layer *layer = lab_layers;
	char name[CARD_MAX], card[CARD_MAX];
	struct lab_metrics metrics = {0};
	struct lab_error error = {""};
	struct config config;
	int rc = sim_run_card(r->profile, name, card);

	if (rc)
		return rc;
	while (layer->name && strcmp(layer->name, args->words[0]))
		layer++;
	if (!layer->name)
		return cmd_usage_error("there is no layer '%s': rpc, kv, msg", args->words[0]);
	if (config_parse(&config, r->config, strlen(r->config), &error))
		return cmd_usage_error("--config: %s", error.text);
	rc = layer->run(&(struct lab_setup){.profile = name,
					    .card = card,
					    .preset = presets[r->preset],
					    .seed = r->seed,
					    .effort = r->effort},
			&config, &metrics, &error);
	if (rc) {
		fprintf(stderr, "gannet: %s\n", *error.text ? error.text : cmd_why(rc));
		return EXIT_FAILURE;
	}
	sim_run_print(&metrics, r->json);
	return cmd_flush_stdout();
}

const struct command command_sim_run = {
	.name = "run",
	.what = "run one load on a simulated cluster and print all that was measured",
	.about = "Runs one load of the layer rpc, kv or msg on a simulated cluster, and "
		 "prints each metric and its value. The keys of --config and the metrics are those "
		 "of data/paper.tsv, whose head explains them.",
	.more = "  gannet sim run rpc --profile cx3 --config 'mode=fetch;req=16;resp=32'",
	.run = sim_run_run,
	.words = "LAYER",
	.min_words = 1,
	.max_words = 1,
	OPTIONS(options, struct request, .config = "-", .profile = "cx3-fdr", .seed = 1,
		.effort = 1),
};
