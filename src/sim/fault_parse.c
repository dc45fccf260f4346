/* SPDX-License-Identifier: MIT */
/*
 * Parses the text of gn_sim_inject(). Numbers become integers in the smallest unit, so 0.1ms is
 * exact on every machine; a number that would not be exact is refused.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "sim/nodes.h"

#define FACTOR_MAX  10000u
#define MICRO	    1000000u
#define COUNT_MAX   1000000000000ull
#define SHOWN_MAX   200 /* characters of an item in a message */
#define SEPARATORS  ", \t\n"
#define MESSAGE_MAX 512

/* A substring. */
struct substring {
	const char *at;
	size_t len;
};

#define PIECE(p) (int)(p).len, (p).at

struct parser {
	struct gn_sim *sim;
	struct substring item; /* the fault being parsed */
	struct sim_fault_list *list;
	struct sim_plan **last;
};

__attribute__((format(printf, 2, 3))) static int refuse(const struct parser *p, const char *fmt,
							...)
{
	const size_t len = p->item.len < SHOWN_MAX ? p->item.len : SHOWN_MAX;
	char message[MESSAGE_MAX];
	va_list args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);
	return gn_fail_log(-EINVAL, "sim: faults: %.*s: %s", (int)len, p->item.at, message);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool text_equals(struct substring substring, const char *text)
{
	return strlen(text) == substring.len && !memcmp(substring.at, text, substring.len);
}

/*
 * Splits rest at the first of the stops: returns the part before; rest then starts with the stop.
 */
static struct substring text_cut(struct substring *rest, const char *stops)
{
	struct substring head = {rest->at, 0};

	while (head.len < rest->len && !strchr(stops, head.at[head.len]))
		head.len++;
	rest->at += head.len;
	rest->len -= head.len;
	return head;
}

static bool text_skip(struct substring *rest, char c)
{
	if (!rest->len || *rest->at != c)
		return false;
	rest->at++;
	rest->len--;
	return true;
}

/* ---- numbers ---- */

struct unit {
	const char *name;
	uint64_t worth;
};

static const struct unit time_units[] = {
	{"ns", SIM_PS_PER_NS},
	{"us", 1000ull * SIM_PS_PER_NS},
	{"ms", 1000ull * 1000 * SIM_PS_PER_NS},
	{"s", 1000ull * 1000 * 1000 * SIM_PS_PER_NS},
	{NULL, 0},
};
static const struct unit rate_units[] = {
	{"%", SIM_RATE_ONE / 100},
	{"ppm", SIM_RATE_ONE / 1000000},
	{NULL, 0},
};
static const struct unit factor_units[] = {{"x", MICRO}, {NULL, 0}};
static const struct unit drift_units[] = {{"ppm", 1}, {NULL, 0}};

static const struct unit *find_unit(const struct unit *units, struct substring name)
{
	while (units->name && !text_equals(name, units->name))
		units++;
	return units->name ? units : NULL;
}

static int refuse_unit(const struct parser *p, const char *what, struct substring text,
		       const struct unit *units)
{
	char names[64] = "";
	size_t len = 0;

	for (; units->name; units++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, "%s%s", len ? " " : "",
					units->name);
	return refuse(p, "%s '%.*s' is not a number with a unit (%s)", what, PIECE(text), names);
}

/* Parses 12, 0.25, .5 and a unit. out is in multiples of the smallest unit. */
static int parse_number(const struct parser *p, const char *what, struct substring text,
			const struct unit *units, uint64_t *out)
{
	struct substring name = text, digits = text_cut(&name, "abcdefghijklmnopqrstuvwxyz%");
	const struct unit *unit = find_unit(units, name);
	uint64_t value = 0, worth;
	bool any = false;
	size_t i = 0;

	if (!text.len)
		return refuse(p, "%s is missing", what);
	if (*text.at == '-')
		return refuse(p, "%s %.*s is negative", what, PIECE(text));
	if (!unit)
		return refuse_unit(p, what, text, units);
	for (; i < digits.len && is_digit(digits.at[i]); i++, any = true)
		if (__builtin_mul_overflow(value, 10u, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(digits.at[i] - '0'), &value))
			return refuse(p, "%s %.*s is too large", what, PIECE(text));
	if (__builtin_mul_overflow(value, unit->worth, &value))
		return refuse(p, "%s %.*s is too large", what, PIECE(text));
	if (i < digits.len && digits.at[i] == '.')
		i++;
	for (worth = unit->worth; i < digits.len && is_digit(digits.at[i]); i++, any = true) {
		const uint64_t digit = (uint64_t)(digits.at[i] - '0');

		if (digit && worth % 10)
			return refuse(p, "%s %.*s has too many decimals", what, PIECE(text));
		worth /= 10;
		if (__builtin_add_overflow(value, digit * worth, &value))
			return refuse(p, "%s %.*s is too large", what, PIECE(text));
	}
	if (!any || i < digits.len)
		return refuse_unit(p, what, text, units);
	*out = value;
	return 0;
}

static int parse_time(const struct parser *p, const char *what, struct substring text,
		      uint64_t *out)
{
	int rc = parse_number(p, what, text, time_units, out);

	if (!rc && *out > sim_ns_to_ps(SIM_NS_MAX))
		rc = refuse(p, "%s %.*s is too large", what, PIECE(text));
	return rc;
}

/* ---- where ---- */

static int parse_node(const struct parser *p, struct substring text, uint32_t *out)
{
	struct substring digits = text;
	uint32_t n = 0;

	if (!text_skip(&digits, 'n') || !digits.len || (digits.len > 1 && *digits.at == '0'))
		return refuse(p, "'%.*s' is not a node (n0, n1 …)", PIECE(text));
	for (size_t i = 0; i < digits.len; i++) {
		if (!is_digit(digits.at[i]))
			return refuse(p, "'%.*s' is not a node (n0, n1 …)", PIECE(text));
		n = n * 10 + (uint32_t)(digits.at[i] - '0');
		if (n >= p->sim->n_nodes)
			return refuse(p, "there is no node %.*s; nodes is %u", PIECE(text),
				      p->sim->n_nodes);
	}
	*out = n;
	return 0;
}

/* n1+n2. An empty group means all other nodes, which the caller handles. */
static int parse_group(const struct parser *p, struct substring text, uint64_t *nodes)
{
	while (text.len) {
		uint32_t node;
		int rc = parse_node(p, text_cut(&text, "+"), &node);

		if (rc)
			return rc;
		nodes[node / 64] |= 1ull << node % 64;
		if (text_skip(&text, '+') && !text.len)
			return refuse(p, "a node is missing after '+'");
	}
	return 0;
}

/* GROUP, GROUP|GROUP, GROUP>GROUP; one of the two may be empty. */
static int parse_groups(const struct parser *p, struct substring text, struct sim_plan *plan)
{
	const unsigned n = p->sim->n_nodes, words = (n + 63) / 64;
	struct substring rest = text, from = text_cut(&rest, "|>");
	uint64_t *others = NULL, *given;
	int rc;

	plan->from = calloc(2u * words, sizeof(*plan->from));
	if (!plan->from)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	plan->to = plan->from + words;
	plan->groups = true;
	plan->both_ways = !text_skip(&rest, '>');
	text_skip(&rest, '|');
	rc = parse_group(p, from, plan->from);
	if (!rc)
		rc = parse_group(p, rest, plan->to);
	if (rc)
		return rc;
	if (!from.len)
		others = plan->from;
	else if (!rest.len)
		others = plan->to;
	given = others == plan->from ? plan->to : plan->from;
	if (!from.len && !rest.len)
		return refuse(p, "WHERE '%.*s' names no node", PIECE(text));
	for (unsigned i = 0; i < words; i++) {
		if (others)
			others[i] = ~given[i];
		else if (plan->from[i] & plan->to[i])
			return refuse(
				p, "n%u is on both sides",
				i * 64 + (unsigned)__builtin_ctzll(plan->from[i] & plan->to[i]));
	}
	return 0;
}

static int parse_where(const struct parser *p, struct substring text, struct sim_plan *plan)
{
	if (plan->kind == SIM_PARTITION)
		return parse_groups(p, text, plan);
	return parse_node(p, text, &plan->node);
}

/* ---- how much ---- */

static int parse_count(const struct parser *p, struct substring text, uint64_t *out)
{
	struct substring digits = text;
	uint64_t n = 0;

	if (!text_skip(&digits, '#'))
		return refuse(p, "AMOUNT '%.*s' is not a #NUMBER", PIECE(text));
	for (; digits.len && is_digit(*digits.at) && n < COUNT_MAX; digits.at++, digits.len--)
		n = n * 10 + (uint64_t)(*digits.at - '0');
	if (digits.len || !n || n > COUNT_MAX)
		return refuse(p, "AMOUNT '%.*s' is not within #1 to #%llu", PIECE(text), COUNT_MAX);
	*out = n;
	return 0;
}

static int parse_factor(const struct parser *p, struct substring text, uint32_t *out)
{
	uint64_t micro;
	int rc = parse_number(p, "AMOUNT", text, factor_units, &micro);

	if (rc)
		return rc;
	if (micro < MICRO || micro > (uint64_t)FACTOR_MAX * MICRO)
		return refuse(p, "AMOUNT %.*s is not within 1x to %ux", PIECE(text), FACTOR_MAX);
	*out = (uint32_t)((micro * SIM_FACTOR_ONE + MICRO / 2) / MICRO);
	return 0;
}

static int parse_drift(const struct parser *p, struct substring text, int32_t *out)
{
	struct substring rest = text;
	const bool slow = text_skip(&rest, '-');
	uint64_t ppm;
	int rc;

	if (!slow)
		text_skip(&rest, '+');
	rc = parse_number(p, "AMOUNT", rest, drift_units, &ppm);
	if (rc)
		return rc;
	if (ppm > SIM_DRIFT_MAX)
		return refuse(p, "AMOUNT %.*s is not within -%dppm to %dppm", PIECE(text),
			      SIM_DRIFT_MAX, SIM_DRIFT_MAX);
	*out = slow ? -(int32_t)ppm : (int32_t)ppm;
	return 0;
}

static int parse_amount(const struct parser *p, struct substring text, struct sim_plan *plan)
{
	uint64_t n = 1;
	int rc;

	switch (plan->kind) {
	case SIM_SLOW_NODE:
	case SIM_SLOW_LINK:
		return parse_factor(p, text, &plan->factor);
	case SIM_DRIFT:
		return parse_drift(p, text, &plan->ppm);
	case SIM_CRASH:
	case SIM_KILL:
	case SIM_PAUSE:
	case SIM_PARTITION:
	case SIM_LOW_MEMORY:
		return refuse(p, "'%.*s' is too much: %s has no AMOUNT", PIECE(text),
			      gn_sim_fault_name(plan->kind));
	default:
		rc = parse_count(p, text, &n);
		if (!rc)
			plan->skip = n - 1;
		return rc;
	}
}

/* ---- items ---- */

/* Are all required parts present, and no others? */
static int check_plan(const struct parser *p, const struct sim_plan *plan, bool amount)
{
	if (plan->kind == SIM_PAUSE && !plan->span_ps)
		return refuse(p, "a pause needs a +DURATION");
	if (plan->kind == SIM_DRIFT && plan->span_ps)
		return refuse(p, "a drift has no DURATION; a later one of 0ppm ends it");
	if ((plan->kind == SIM_SLOW_NODE || plan->kind == SIM_SLOW_LINK) && !amount)
		return refuse(p, "AMOUNT is missing: how much slower (20x)");
	if (plan->kind == SIM_DRIFT && !amount)
		return refuse(p, "AMOUNT is missing: how much faster (200ppm, -200ppm)");
	return 0;
}

/* [:WHERE][:AMOUNT]: a node or group starts with a letter or the sign between groups. */
static int parse_tail(const struct parser *p, struct substring rest, struct sim_plan *plan)
{
	bool where = false, amount = false;

	while (text_skip(&rest, ':')) {
		const struct substring field = text_cut(&rest, ":");
		int rc;

		if (!field.len)
			return refuse(p, "nothing stands after a ':'");
		if (!where && !amount && strchr("n|>", *field.at)) {
			where = true;
			rc = parse_where(p, field, plan);
		} else if (!amount) {
			amount = true;
			rc = parse_amount(p, field, plan);
		} else {
			rc = refuse(p, "'%.*s' is too much", PIECE(field));
		}
		if (rc)
			return rc;
	}
	return check_plan(p, plan, amount);
}

static int parse_plan(struct parser *p, enum sim_fault kind, struct substring rest)
{
	const uint64_t now_ps = p->sim->engine.now_ps;
	struct sim_plan *plan = calloc(1, sizeof(*plan));
	int rc;

	if (!plan)
		return gn_fail_text(-ENOMEM, NO_MEMORY);
	*plan = (struct sim_plan){.sim = p->sim, .kind = kind, .node = SIM_ANY_NODE};
	*p->last = plan;
	p->last = &plan->next;
	rc = parse_time(p, "TIME", text_cut(&rest, "+:"), &plan->at_ps);
	if (!rc && text_skip(&rest, '+')) {
		const struct substring span = text_cut(&rest, ":");

		rc = parse_time(p, "DURATION", span, &plan->span_ps);
		if (!rc && !plan->span_ps)
			rc = refuse(p, "DURATION %.*s is no time at all", PIECE(span));
	}
	if (rc)
		return rc;
	if (plan->at_ps < now_ps)
		plan->at_ps = now_ps;
	return parse_tail(p, rest, plan);
}

static int parse_rate(struct parser *p, enum sim_fault kind, struct substring rest)
{
	uint64_t rate = 0;
	int rc = parse_number(p, "RATE", rest, rate_units, &rate);

	if (rc)
		return rc;
	if (rate > SIM_RATE_ONE)
		return refuse(p, "RATE %.*s is above 100%%", PIECE(rest));
	p->list->rated |= 1u << kind;
	p->list->rate[kind] = (uint32_t)rate;
	return 0;
}

static int refuse_kind(const struct parser *p, struct substring name)
{
	char names[MESSAGE_MAX / 2] = "";
	size_t len = 0;

	for (unsigned kind = 0; kind < SIM_FAULTS; kind++)
		len += (size_t)snprintf(names + len, sizeof(names) - len, " %s",
					gn_sim_fault_name(kind));
	return refuse(p, "there is no kind '%.*s'; there are%s", PIECE(name), names);
}

static int parse_item(struct parser *p)
{
	struct substring rest = p->item, name = text_cut(&rest, "=@");
	unsigned kind = 0;

	while (kind < SIM_FAULTS && !text_equals(name, gn_sim_fault_name(kind)))
		kind++;
	if (kind == SIM_FAULTS)
		return refuse_kind(p, name);
	if (text_skip(&rest, '='))
		return parse_rate(p, kind, rest);
	if (text_skip(&rest, '@'))
		return parse_plan(p, kind, rest);
	return refuse(p, "=RATE or @TIME is missing");
}

int sim_fault_parse(struct gn_sim *sim, const char *text, struct sim_fault_list *out)
{
	struct parser p = {.sim = sim, .list = out, .last = &out->plans};
	int rc = 0;

	*out = (struct sim_fault_list){0};
	for (text += strspn(text, SEPARATORS); *text && !rc; text += strspn(text, SEPARATORS)) {
		p.item = (struct substring){text, strcspn(text, SEPARATORS)};
		text += p.item.len;
		rc = parse_item(&p);
	}
	while (rc && out->plans) {
		struct sim_plan *plan = out->plans;

		out->plans = plan->next;
		sim_plan_free(plan);
	}
	return rc;
}
