/* SPDX-License-Identifier: MIT */
/* Pieces of a drawing. */
#include "svg.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define SYMBOLS 7u

/* Okabe and Ito's colours, which differ for all kinds of eyes, and a grey. */
static const char *const colours[SVG_STYLES] = {
	"#0072b2", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#555555", "#000000",
};

const char *svg_colour(unsigned style)
{
	return colours[style % SVG_STYLES];
}

/* ---- texts ---- */

/* A sequence of UTF-8 that is one: its length, else 0. */
static size_t utf8(const unsigned char *s)
{
	const size_t len = s[0] < 0x80		       ? 1 :
			   s[0] >= 0xc2 && s[0] < 0xe0 ? 2 :
			   s[0] >= 0xe0 && s[0] < 0xf0 ? 3 :
			   s[0] >= 0xf0 && s[0] < 0xf5 ? 4 :
							 0;

	for (size_t i = 1; i < len; i++)
		if ((s[i] & 0xc0) != 0x80)
			return 0;
	if ((len == 3 && s[0] == 0xe0 && s[1] < 0xa0) ||
	    (len == 4 && s[0] == 0xf0 && s[1] < 0x90) ||
	    (len == 3 && s[0] == 0xed && s[1] >= 0xa0) ||
	    (len == 4 && s[0] == 0xf4 && s[1] >= 0x90))
		return 0; /* longer than it need be, half a pair, or beyond the last */
	return len;
}

void svg_escape(FILE *f, const char *text)
{
	const unsigned char *s = (const unsigned char *)text;

	while (*s) {
		const size_t len = utf8(s);

		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '>')
			fputs("&gt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else if (*s == '"')
			fputs("&quot;", f);
		else if (*s == '\'')
			fputs("&#39;", f);
		else if (!len || (*s < 0x20 && *s != '\t' && *s != '\n') || *s == 0x7f)
			fputs("\xef\xbf\xbd", f);
		else
			fwrite(s, 1, len, f);
		s += len ? len : 1;
	}
}

double svg_width(const char *text, double size)
{
	double ems = 0;

	for (; *text; text++) {
		const unsigned char c = (unsigned char)*text;

		if ((c & 0xc0) == 0x80)
			continue;
		if (strchr("iljtfrI.,:;|'()[]/ -", c))
			ems += 0.35;
		else if (c == 'm' || c == 'w' || c == 'M' || c == 'W' || c == '%')
			ems += 0.92;
		else
			ems += isupper(c) ? 0.7 : 0.59;
	}
	return ems * size;
}

void svg_number(double value, char out[SVG_NUMBER_MAX])
{
	const double size = fabs(value);

	if (!isfinite(value))
		snprintf(out, SVG_NUMBER_MAX, "–");
	else if (size >= 100 && size < 1e9)
		snprintf(out, SVG_NUMBER_MAX, "%.0f", value);
	else if (size >= 1e-3 && size < 100)
		snprintf(out, SVG_NUMBER_MAX, "%.3g", value);
	else
		snprintf(out, SVG_NUMBER_MAX, "%.4g", value);
}

void svg_bytes(double value, char out[SVG_NUMBER_MAX])
{
	if (value >= 1024 && fmod(value, 1024) == 0)
		snprintf(out, SVG_NUMBER_MAX, "%g Ki", value / 1024);
	else
		snprintf(out, SVG_NUMBER_MAX, "%g", value);
}

static const char *const anchors[] = {
	[SVG_START] = "start", [SVG_MIDDLE] = "middle", [SVG_END] = "end"};

/* It has a white edge, so that no line behind it crosses it. */
static void text_at(FILE *f, double size, enum svg_anchor anchor, const char *fill,
		    const char *text)
{
	fprintf(f,
		" font-size=\"%g\" text-anchor=\"%s\" fill=\"%s\" stroke=\"#ffffff\" "
		"stroke-width=\"3\" stroke-linejoin=\"round\" paint-order=\"stroke\">",
		size, anchors[anchor], fill);
	svg_escape(f, text);
	fputs("</text>\n", f);
}

void svg_text(FILE *f, double x, double y, double size, enum svg_anchor anchor, const char *fill,
	      const char *text)
{
	fprintf(f, "<text x=\"%.1f\" y=\"%.1f\"", x, y);
	text_at(f, size, anchor, fill, text);
}

void svg_text_up(FILE *f, double x, double y, double size, enum svg_anchor anchor, const char *fill,
		 const char *text)
{
	fprintf(f, "<text transform=\"translate(%.1f %.1f) rotate(-90)\"", x, y);
	text_at(f, size, anchor, fill, text);
}

void svg_line(FILE *f, double x1, double y1, double x2, double y2, const char *stroke, double width,
	      const char *dash)
{
	fprintf(f,
		"<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" "
		"stroke-width=\"%g\"",
		x1, y1, x2, y2, stroke, width);
	if (dash)
		fprintf(f, " stroke-dasharray=\"%s\"", dash);
	fputs("/>\n", f);
}

/* ---- symbols ---- */

/* Corners of each, for a radius of 1; the first is a circle, the last two are strokes. */
static const char *const shapes[SYMBOLS] = {
	NULL,
	"M-.88-.88h1.76v1.76h-1.76z",
	"M0-1.2L1.2 0 0 1.2-1.2 0z",
	"M0-1.15L1.1.85h-2.2z",
	"M0 1.15L1.1-.85h-2.2z",
	"M-.9-.9L.9.9M-.9.9L.9-.9",
	"M0-1.15V1.15M-1.15 0H1.15",
};

void svg_symbol(FILE *f, unsigned style, double x, double y, double radius, bool hollow,
		const char *title)
{
	const char *colour = svg_colour(style), *shape = shapes[style % SYMBOLS];
	const bool strokes = style % SYMBOLS >= SYMBOLS - 2;

	if (shape)
		fprintf(f,
			"<path d=\"%s\" transform=\"translate(%.1f %.1f) scale(%g)\" fill=\"%s\" "
			"stroke=\"%s\" stroke-width=\"%g\">",
			shape, x, y, radius,
			strokes ? "none" :
			hollow	? "#ffffff" :
				  colour,
			colour, (hollow || strokes ? 2 : 0.5) / radius);
	else
		fprintf(f,
			"<circle cx=\"%.1f\" cy=\"%.1f\" r=\"%g\" fill=\"%s\" stroke=\"%s\" "
			"stroke-width=\"%g\">",
			x, y, radius, hollow ? "#ffffff" : colour, colour, hollow ? 2 : 0.5);
	if (title) {
		fputs("<title>", f);
		svg_escape(f, title);
		fputs("</title>", f);
	}
	fputs(shape ? "</path>\n" : "</circle>\n", f);
}

/* ---- scales ---- */

struct svg_ticks svg_ticks(double highest)
{
	static const double steps[] = {1, 2, 2.5, 5, 10};
	struct svg_ticks ticks = {.step = 1, .top = 1, .n = 1};
	double power;
	unsigned i = 0;

	if (!(highest > 0) || !isfinite(highest))
		return ticks;
	power = pow(10, floor(log10(highest / 4)));
	while (i < 4 && steps[i] * power * 6.5 < highest)
		i++;
	ticks.step = steps[i] * power;
	ticks.n = (unsigned)ceil(highest / ticks.step - 1e-9);
	ticks.top = ticks.step * ticks.n;
	return ticks;
}
