/* SPDX-License-Identifier: MIT */
/* The page: what it is about, how well it went, a list, and a section for each figure. */
#include "page.h"

#include <math.h>
#include <string.h>

#include "draw.h"
#include "score.h"
#include "svg.h"
#include "table.h"

#define MEASURED_PLOTS_MAX 16u /* of a figure: to find another takes longer each time */

static const char style[] =
	"body{font:16px/1.5 system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;"
	"color:#222;background:#fff;margin:0 auto;padding:1rem 1.25rem 3rem;max-width:78rem}\n"
	"h1{font-size:1.9rem;line-height:1.2;margin:.6rem 0 .4rem}\n"
	"h2{font-size:1.35rem;margin:2.6rem 0 .5rem;padding-top:.6rem;"
	"border-top:2px solid #222}\n"
	"h3{font-size:1.1rem;margin:2.2rem 0 .3rem}\n"
	"h3 span{color:#666;font-weight:400}\n"
	"p{margin:.4rem 0;max-width:46rem}\n"
	"a{color:#005a8c}\n"
	".note{color:#555}\n"
	"dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1rem;margin:1rem 0}\n"
	"dt{color:#555}dd{margin:0;overflow-wrap:anywhere}\n"
	"nav ul{list-style:none;padding:0;margin:.2rem 0 .8rem;columns:2 22rem;column-gap:2rem}\n"
	"nav li{break-inside:avoid;padding:.1rem 0}\n"
	"nav h3{margin:.8rem 0 0;font-size:1rem}\n"
	".plots{display:flex;flex-wrap:wrap;gap:.5rem 1.5rem;margin:.6rem 0}\n"
	"figure{margin:0;flex:1 1 30rem;min-width:0;max-width:34rem}\n"
	".tables{flex:1 1 34rem;min-width:0}\n"
	"svg{display:block;width:100%;height:auto}\n"
	".wide{overflow-x:auto;margin:.6rem 0}\n"
	"table{border-collapse:collapse;font-size:.86rem;line-height:1.35}\n"
	".lines{width:100%}.lines td{overflow-wrap:anywhere}\n"
	".lines td:nth-child(7){min-width:5.5rem}.lines td:nth-child(6){min-width:3.6rem}\n"
	".lines td:nth-child(1){white-space:nowrap}.o{min-width:6rem}\n"
	".lines td:nth-child(2){min-width:9.5rem}\n"
	"th{text-align:left;font-weight:600;border-bottom:1.5px solid #222;white-space:nowrap}\n"
	"th,td{padding:.22rem .7rem .22rem 0;vertical-align:top}\n"
	"td{border-bottom:1px solid #e4e4e4}\n"
	".n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}\n"
	"small{color:#666}.hit{color:#00694d}.miss{color:#a33b00;font-weight:600}.no{color:#666}\n"
	"details{margin:.3rem 0}summary{cursor:pointer;color:#005a8c;font-size:.9rem}\n"
	"@media(max-width:40rem){body{padding:.5rem .6rem 2rem}h1{font-size:1.5rem}"
	"dl{grid-template-columns:1fr;gap:0}dt{margin-top:.4rem}}\n"
	"@media print{body{max-width:none;font-size:11pt}.plots{display:block}"
	"h2,h3,.note{break-after:avoid}figure{max-width:12cm;break-inside:avoid}"
	"tr{break-inside:avoid}details{display:none}a{color:inherit;text-decoration:none}}\n";

static const struct {
	const char *id, *name;
} papers[] = {
	{"S003", "S003: An Evaluation of RDMA-based Message Passing Protocols"},
	{"S002", "S002: RFP and Jakiro, a store whose clients fetch"},
	{"S000", "S000: RF-RPC, calls whose clients fetch (TPDS 2018)"},
	{"S004", "S004: FaSST, datagrams for transactions (slides and repositories)"},
	{"S001", "S001: RDMAbox"},
};

#define PAPERS (sizeof(papers) / sizeof(papers[0]))

/* ---- the head ---- */

static void fact(FILE *f, const char *name, const struct words *words, const char *text)
{
	if (words ? !words->n : !text)
		return;
	fprintf(f, "<dt>%s</dt><dd>", name);
	if (text)
		svg_escape(f, text);
	for (unsigned i = 0; words && i < words->n; i++) {
		fputs(i ? ", " : "", f);
		svg_escape(f, words->word[i]);
	}
	fputs("</dd>\n", f);
}

static void measured_machines(const struct results *r, struct words *out)
{
	for (unsigned i = 0; i < r->n_measured; i++) {
		char text[RESULTS_WORD_MAX + 32];

		snprintf(text, sizeof(text), "%s: %s", r->measured[i].provider,
			 r->measured[i].machine[0] ? r->measured[i].machine : "not said");
		if (strcmp(r->measured[i].provider, "sim"))
			words_add(out, text);
	}
}

static void head(FILE *f, const struct results *r, const struct page_facts *facts)
{
	struct words machines = {0};

	measured_machines(r, &machines);
	fprintf(f,
		"<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
		"<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
		"<title>Gannet: the papers’ figures, again</title>\n<style>\n%s</style>\n</head>\n"
		"<body>\n<h1>Gannet: the papers’ figures, again</h1>\n"
		"<p><strong>Curves and bars are simulated</strong>: the library’s own code on "
		"clusters in virtual time, with network cards fitted to published "
		"microbenchmarks. Hollow symbols are what the papers say in words and tables; "
		"each is drawn in every figure that has its configuration. Where something was "
		"measured, it says so, and on what.</p>\n<dl>\n",
		style);
	fact(f, "Version", &r->versions, NULL);
	fact(f, "Simulated cards", &r->profiles, NULL);
	fact(f, "Seeds", &r->seeds, NULL);
	fact(f, "Effort", &r->efforts, NULL);
	fact(f, "Measured on", &machines, NULL);
	fact(f, "Page made on", NULL, facts->machine);
	fact(f, "Date", NULL, facts->date);
	fact(f, "Results from", &facts->files, NULL);
	fputs("</dl>\n", f);
}

/* ---- the score ---- */

static bool score_of(const struct results *r, const char *layer, struct score *score)
{
	bool any = false;

	*score = (struct score){0};
	for (unsigned i = 0; i < r->paper->n; i++) {
		if (!r->lines[i].known || strcmp(r->paper->lines[i].layer, layer))
			continue;
		score_add(score, &r->paper->lines[i], &r->lines[i].figure);
		any = any || r->lines[i].figure.status == FIGURE_MEASURED;
	}
	return any;
}

static void scores(FILE *f, const struct results *r)
{
	struct score score;
	bool any = false;

	for (const struct lab_layer *layer = lab_layers; layer->name; layer++) {
		if (!score_of(r, layer->name, &score))
			continue;
		if (!any)
			fputs("<h2 id=\"score\">Score</h2>\n<p class=\"note\">How many of the "
			      "papers’ figures the simulator meets. Of those with a number 80 % "
			      "are to be within their tolerance (5 or 10 %) and none off by more "
			      "than 25 %; of bounds, orders and peaks 90 % are to be right.</p>\n"
			      "<div class=\"wide\"><table>\n<thead><tr><th>Layer</th>"
			      "<th class=\"n\">within tolerance</th><th class=\"n\">largest error"
			      "</th><th class=\"n\">other lines right</th>"
			      "<th class=\"n\">cannot be run</th><th>verdict</th></tr></thead>\n"
			      "<tbody>\n",
			      f);
		any = true;
		fprintf(f,
			"<tr><td>%s</td><td class=\"n\">%u of %u</td><td class=\"n\">%.1f %%</td>"
			"<td class=\"n\">%u of %u</td><td class=\"n\">%u</td>"
			"<td class=\"%s\">%s</td></tr>\n",
			layer->name, score.within, score.equal, score.worst_pct, score.right,
			score.others, score.no, score_reached(&score) ? "hit" : "miss",
			score_reached(&score) ? "reached" : "missed");
	}
	if (any)
		fputs("</tbody></table></div>\n", f);
}

/* ---- the list of contents ---- */

static bool is_shown(const struct results *r, const struct chart *chart)
{
	return r->chart[chart - r->charts->chart].n || draw_has_measured(r, chart);
}

static bool is_of(const struct chart *chart, unsigned paper)
{
	return !strncmp(chart->id, papers[paper].id, strlen(papers[paper].id));
}

/* S003-8a: Fig 8a; S000-T3: Table 3. */
#define NAME_MAX_BYTES 64u
static void name_of(const struct chart *chart, char out[NAME_MAX_BYTES])
{
	const char *part = strchr(chart->id, '-');

	if (part && part[1] == 'T')
		snprintf(out, NAME_MAX_BYTES, "Table %s", part + 2);
	else if (part && part[1] >= '0' && part[1] <= '9')
		snprintf(out, NAME_MAX_BYTES, "Fig %s", part + 1);
	else
		snprintf(out, NAME_MAX_BYTES, "Text");
}

static void contents(FILE *f, const struct results *r, bool other)
{
	char name[NAME_MAX_BYTES];

	fputs("<nav aria-label=\"Figures\">\n<h2>Figures</h2>\n", f);
	for (unsigned p = 0; p < PAPERS; p++) {
		bool any = false;

		for (unsigned c = 0; c < r->charts->n; c++) {
			const struct chart *chart = &r->charts->chart[c];

			if (!is_of(chart, p) || !is_shown(r, chart))
				continue;
			if (!any) {
				fputs("<h3>", f);
				svg_escape(f, papers[p].name);
				fputs("</h3>\n<ul>\n", f);
			}
			any = true;
			name_of(chart, name);
			fprintf(f, "<li><a href=\"#f-%s\">", chart->id);
			svg_escape(f, name);
			fputs("</a> ", f);
			svg_escape(f, chart->title);
			fputs("</li>\n", f);
		}
		if (any)
			fputs("</ul>\n", f);
	}
	if (other)
		fputs("<p><a href=\"#other\">Lines that belong to no figure</a></p>\n", f);
	fputs("</nav>\n", f);
}

/* ---- figures ---- */

static void figure(FILE *f, const struct plot *plot)
{
	fputs("<figure>\n", f);
	plot_svg(f, plot);
	fputs("</figure>\n", f);
}

static void section(FILE *f, const struct results *r, const struct chart *chart,
		    const struct chart_mark *marks, unsigned n_marks)
{
	struct draw_measured drawn;
	char name[NAME_MAX_BYTES];
	struct plot plot;

	draw_chart(r, chart, marks, n_marks, &plot);
	name_of(chart, name);
	fprintf(f, "<section id=\"f-%s\">\n<h3><span>", chart->id);
	svg_escape(f, name);
	fputs("</span> ", f);
	svg_escape(f, chart->title);
	fputs("</h3>\n", f);
	if (chart->note) {
		fputs("<p class=\"note\">", f);
		svg_escape(f, chart->note);
		fputs("</p>\n", f);
	}
	fputs("<div class=\"plots\">\n", f);
	if (r->chart[chart - r->charts->chart].n)
		figure(f, &plot);
	for (unsigned i = 0; draw_measured(r, chart, i, &drawn); i++) {
		if (i == MEASURED_PLOTS_MAX) {
			fputs("<p class=\"note\">More was measured than is drawn here.</p>\n", f);
			break;
		}
		figure(f, &drawn.plot);
	}
	fputs("<div class=\"tables\">\n", f);
	table_of_marks(f, r, chart, marks, n_marks);
	table_of_values(f, &plot);
	fputs("</div>\n</div>\n", f);
	fputs("</section>\n", f);
}

static int sections(FILE *f, const struct results *r, struct lab_error *error)
{
	struct chart_mark marks[CHART_MARKS_MAX];
	unsigned n;

	for (unsigned p = 0; p < PAPERS; p++) {
		bool any = false;

		for (unsigned c = 0; c < r->charts->n; c++) {
			const struct chart *chart = &r->charts->chart[c];
			int rc;

			if (!is_of(chart, p) || !is_shown(r, chart))
				continue;
			if (!any) {
				fprintf(f, "<h2 id=\"%s\">", papers[p].id);
				svg_escape(f, papers[p].name);
				fputs("</h2>\n", f);
			}
			any = true;
			rc = chart_marks(chart, r->paper, marks, &n, error);
			if (rc)
				return rc;
			section(f, r, chart, marks, n);
		}
	}
	return 0;
}

int page_write(FILE *f, const struct results *r, const struct page_facts *facts,
	       struct lab_error *error)
{
	const bool other = table_has_others(r);
	int rc;

	head(f, r, facts);
	scores(f, r);
	contents(f, r, other);
	rc = sections(f, r, error);
	if (other)
		table_of_others(f, r);
	fputs("</body>\n</html>\n", f);
	return rc;
}

int page_svg(FILE *f, const struct results *r, const struct chart *chart, struct lab_error *error)
{
	struct chart_mark marks[CHART_MARKS_MAX];
	char name[NAME_MAX_BYTES], heading[256];
	struct plot plot;
	unsigned n;
	int rc = chart_marks(chart, r->paper, marks, &n, error);

	if (rc)
		return rc;
	draw_chart(r, chart, marks, n, &plot);
	name_of(chart, name);
	snprintf(heading, sizeof(heading), "%.*s %s: %.160s", (int)strcspn(chart->id, "-"),
		 chart->id, name, chart->title);
	plot.heading = heading;
	plot_svg(f, &plot);
	return 0;
}
