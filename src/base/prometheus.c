/* SPDX-License-Identifier: MIT */
/* Prometheus' text format: families, samples, and the escapes of help texts and label values. */
#include "base/prometheus.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void prom_write(struct prom *p, const char *text, size_t len)
{
	const size_t left = p->len < p->room ? p->room - p->len - 1 : 0;
	const size_t n = len < left ? len : left;

	if (n) {
		memcpy(p->buf + p->len, text, n);
		p->buf[p->len + n] = '\0';
	}
	p->len += len;
}

static void prom_put(struct prom *p, const char *text)
{
	prom_write(p, text, strlen(text));
}

static void prom_put_number(struct prom *p, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void prom_put_number(struct prom *p, const char *fmt, ...)
{
	char text[48];
	va_list args;
	int n;

	va_start(args, fmt);
	n = vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	assert(n > 0 && n < (int)sizeof(text));
	prom_write(p, text, (size_t)n);
}

/* special: characters that have a backslash before them. */
static void prom_put_escaped(struct prom *p, const char *text, const char *special)
{
	for (;;) {
		const size_t plain = strcspn(text, special);

		prom_write(p, text, plain);
		text += plain;
		if (!*text)
			return;
		prom_write(p, "\\", 1);
		prom_write(p, *text == '\n' ? "n" : text, 1);
		text++;
	}
}

static bool prom_is_total(const char *name)
{
	const size_t len = strlen(name);

	return len > 6 && !strcmp(name + len - 6, "_total");
}

void prom_init(struct prom *p, const char *prefix, char *buf, size_t room)
{
	*p = (struct prom){.prefix = prefix, .buf = buf, .room = room};
	if (room)
		buf[0] = '\0';
}

void prom_family(struct prom *p, enum prom_type type, const char *name, const char *help)
{
	static const char *const types[] = {"counter", "gauge", "histogram"};

	assert(prom_is_total(name) == (type == PROM_COUNTER) && *help);
	p->family = name;
	prom_put(p, "# HELP ");
	prom_put(p, p->prefix);
	prom_put(p, name);
	prom_put(p, " ");
	prom_put_escaped(p, help, "\n\\");
	prom_put(p, "\n# TYPE ");
	prom_put(p, p->prefix);
	prom_put(p, name);
	prom_put(p, " ");
	prom_put(p, types[type]);
	prom_put(p, "\n");
}

/* The name and the labels of a sample; label and le may be NULL. */
static void prom_put_series(struct prom *p, const char *suffix, const struct prom_label *label,
			    const char *le)
{
	prom_put(p, p->prefix);
	prom_put(p, p->family);
	prom_put(p, suffix);
	if (label) {
		prom_put(p, "{");
		prom_put(p, label->name);
		prom_put(p, "=\"");
		prom_put_escaped(p, label->value, "\n\\\"");
		prom_put(p, "\"");
	}
	if (le) {
		prom_put(p, label ? ",le=\"" : "{le=\"");
		prom_put(p, le);
		prom_put(p, "\"");
	}
	prom_put(p, label || le ? "} " : " ");
}

void prom_count(struct prom *p, const struct prom_label *label, uint64_t value)
{
	prom_put_series(p, "", label, NULL);
	prom_put_number(p, "%" PRIu64 "\n", value);
}

void prom_real(struct prom *p, const struct prom_label *label, double value)
{
	prom_put_series(p, "", label, NULL);
	prom_put_number(p, "%.15g\n", value);
}

void prom_histogram(struct prom *p, const struct prom_label *label, const struct prom_histogram *h)
{
	uint64_t below = 0;
	char le[32];

	for (unsigned i = 0; i <= h->n; i++) {
		below += h->bucket[i];
		if (i < h->n)
			snprintf(le, sizeof(le), "%.11g", h->le[i]);
		else
			strcpy(le, "+Inf");
		prom_put_series(p, "_bucket", label, le);
		prom_put_number(p, "%" PRIu64 "\n", below);
	}
	prom_put_series(p, "_sum", label, NULL);
	prom_put_number(p, "%.15g\n", h->sum);
	prom_put_series(p, "_count", label, NULL);
	prom_put_number(p, "%" PRIu64 "\n", below);
}

void prom_single(struct prom *p, enum prom_type type, const char *name, const char *help,
		 uint64_t value)
{
	prom_family(p, type, name, help);
	prom_count(p, NULL, value);
}
