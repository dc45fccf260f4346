/* SPDX-License-Identifier: MIT */
/*
 * Reading sweeps, and finding their points. Whatever is impossible is told here, before anything is
 * measured.
 */
#include "msg_sweep.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

const struct sweep_trait sweep_traits[SWEEP_KEYS] = {
	[SWEEP_PROTOCOL] = {"protocol", 0, GN_MSG_PROTOCOLS - 1},
	[SWEEP_TOPOLOGY] = {"topology", 0, BENCH_MSG_TOPOLOGIES - 1},
	[SWEEP_NODES] = {"nodes", 1, BENCH_MSG_NODES_MAX},
	[SWEEP_THREADS] = {"threads", 1, BENCH_MSG_THREADS_MAX},
	[SWEEP_PENDING] = {"pending", 1, GN_MSG_PENDING_MAX},
	[SWEEP_REQUEST] = {"request", BENCH_MSG_REQUEST_MIN, GN_MSG_BYTES_MAX},
	[SWEEP_VALUE] = {"value", 1, GN_MSG_BYTES_MAX},
};

#define ITEM_MAX 64u

/* ---- an axis ---- */

static int append(struct sweep_axis *axis, uint32_t value, char why[BENCH_WHY_MAX])
{
	const struct sweep_trait *trait = &sweep_traits[axis->key];

	for (uint32_t i = 0; i < axis->n; i++)
		if (axis->values[i] == value)
			return bench_refuse(why, "%s has the same value twice", trait->name);
	if (axis->n == SWEEP_POINTS_MAX)
		return bench_refuse(why, "%s has more than %u values", trait->name,
				    SWEEP_POINTS_MAX);
	if (!axis->values)
		axis->values = malloc(SWEEP_POINTS_MAX * sizeof(*axis->values));
	if (!axis->values)
		return -ENOMEM;
	axis->values[axis->n++] = value;
	return 0;
}

/* A number with K or M behind it, if there is one; *text moves on. */
static bool read_number(const char **text, uint64_t *out)
{
	char *end;
	unsigned long long n;

	if (**text < '0' || **text > '9')
		return false;
	errno = 0;
	n = strtoull(*text, &end, 10);
	if (errno || n > UINT32_MAX)
		n = UINT32_MAX; /* which is too large for anything */
	if (*end == 'K' || *end == 'M')
		n <<= *end++ == 'K' ? 10 : 20;
	*text = end;
	*out = n;
	return true;
}

static int check_number(const struct sweep_trait *trait, uint64_t n, const char *item,
			char why[BENCH_WHY_MAX])
{
	if (n >= trait->min && n <= trait->max)
		return 0;
	return bench_refuse(why, "%s must be from %u to %u, not '%s'", trait->name, trait->min,
			    trait->max, item);
}

static int append_range(struct sweep_axis *axis, const char *item, char why[BENCH_WHY_MAX])
{
	const struct sweep_trait *trait = &sweep_traits[axis->key];
	const char *at = item;
	uint64_t from, to, step = 1;
	char kind = '+';
	bool whole = read_number(&at, &from);
	int rc;

	to = from;
	if (whole && !strncmp(at, "..", 2)) {
		at += 2;
		whole = read_number(&at, &to);
		if (whole && (*at == 'x' || *at == '+')) {
			kind = *at++;
			whole = read_number(&at, &step);
		}
	}
	if (!whole || *at)
		return bench_refuse(
			why,
			"%s must be a number or FROM..TO, FROM..TOxTIMES or FROM..TO+MORE, "
			"not '%s'",
			trait->name, item);
	rc = check_number(trait, from, item, why);
	if (!rc)
		rc = check_number(trait, to, item, why);
	if (rc)
		return rc;
	if (to < from)
		return bench_refuse(why, "%s goes down in '%s': put the smaller number first",
				    trait->name, item);
	if (step < (kind == 'x' ? 2u : 1u))
		return bench_refuse(why, "%s never ends in '%s': steps are x2 or +1 at least",
				    trait->name, item);
	for (; !rc && from <= to; from = kind == 'x' ? from * step : from + step)
		rc = append(axis, (uint32_t)from, why);
	return rc;
}

static int append_protocol(struct sweep_axis *axis, const char *item, char why[BENCH_WHY_MAX])
{
	enum gn_msg_protocol protocol;
	int rc = 0;

	if (!strcmp(item, "all")) {
		for (uint32_t i = 0; !rc && i < GN_MSG_PROTOCOLS; i++)
			rc = append(axis, i, why);
		return rc;
	}
	if (!gn_msg_protocol_parse(item, &protocol))
		return append(axis, protocol, why);
	return bench_refuse(
		why,
		"protocol must be SEND/SEND, SEND/WRITE, WRITE/SEND, WRITE/WRITE, READ, "
		"WRITE_IMM, UD or all, not '%s'",
		item);
}

static int append_topology(struct sweep_axis *axis, const char *item, char why[BENCH_WHY_MAX])
{
	for (uint32_t i = 0; i < BENCH_MSG_TOPOLOGIES; i++)
		if (!strcasecmp(item, bench_msg_topologies[i]))
			return append(axis, i, why);
	return bench_refuse(why, "topology must be M:1, 1:M or M:M, not '%s'", item);
}

static int append_item(struct sweep_axis *axis, const char *item, char why[BENCH_WHY_MAX])
{
	switch (axis->key) {
	case SWEEP_PROTOCOL:
		return append_protocol(axis, item, why);
	case SWEEP_TOPOLOGY:
		return append_topology(axis, item, why);
	default:
		return append_range(axis, item, why);
	}
}

static int read_axis(struct sweep_axis *axis, const char *range, char why[BENCH_WHY_MAX])
{
	const char *name = sweep_traits[axis->key].name;
	int rc = 0;

	for (const char *at = range; !rc; at++) {
		const size_t len = strcspn(at, ",");
		char item[ITEM_MAX];

		if (!len || len >= sizeof(item))
			return bench_refuse(why,
					    "%s needs values with commas between them, not '%.60s'",
					    name, range);
		memcpy(item, at, len);
		item[len] = '\0';
		rc = append_item(axis, item, why);
		at += len;
		if (!*at)
			break;
	}
	return rc;
}

/* ---- all of them ---- */

int sweep_add_range(struct sweep *s, enum sweep_key key, const char *range, char why[BENCH_WHY_MAX])
{
	struct sweep_axis axis = {.key = key};
	int rc;

	if (sweep_has(s, key))
		return bench_refuse(why, "%s is there twice", sweep_traits[key].name);
	rc = read_axis(&axis, range, why);
	if (!rc && (uint64_t)axis.n * sweep_points(s) > SWEEP_POINTS_MAX)
		rc = bench_refuse(why, "%s makes it %llu points; the most are %u",
				  sweep_traits[key].name,
				  (unsigned long long)axis.n * sweep_points(s), SWEEP_POINTS_MAX);
	if (rc) {
		free(axis.values);
		return rc;
	}
	s->axis[s->n++] = axis;
	return 0;
}

int sweep_add(struct sweep *s, const char *text, char why[BENCH_WHY_MAX])
{
	const char *is = strchr(text, '=');

	for (unsigned key = 0; is && key < SWEEP_KEYS; key++) {
		const char *name = sweep_traits[key].name;

		if (strlen(name) == (size_t)(is - text) && !strncmp(text, name, strlen(name)))
			return sweep_add_range(s, key, is + 1, why);
	}
	return bench_refuse(why,
			    "must be KEY=RANGE with a KEY of protocol, topology, nodes, threads, "
			    "pending, request, value, not '%.60s'",
			    text);
}

bool sweep_has(const struct sweep *s, enum sweep_key key)
{
	for (unsigned i = 0; i < s->n; i++)
		if (s->axis[i].key == key)
			return true;
	return false;
}

uint32_t sweep_points(const struct sweep *s)
{
	uint32_t n = 1;

	for (unsigned i = 0; i < s->n; i++)
		n *= s->axis[i].n;
	return n;
}

static void set(struct bench_msg_opts *o, enum sweep_key key, uint32_t value)
{
	switch (key) {
	case SWEEP_PROTOCOL:
		o->protocol = (enum gn_msg_protocol)value;
		break;
	case SWEEP_TOPOLOGY:
		o->topology = (enum bench_msg_topology)value;
		break;
	case SWEEP_NODES:
		o->nodes = value;
		break;
	case SWEEP_THREADS:
		o->threads = value;
		break;
	case SWEEP_PENDING:
		o->pending = value;
		break;
	case SWEEP_REQUEST:
		o->request_bytes = value;
		break;
	default:
		o->value_bytes = value;
	}
}

void sweep_point(const struct sweep *s, uint32_t i, struct bench_msg_opts *opts)
{
	for (unsigned k = s->n; k-- > 0; i /= s->axis[k].n)
		set(opts, s->axis[k].key, s->axis[k].values[i % s->axis[k].n]);
}

void sweep_free(struct sweep *s)
{
	for (unsigned i = 0; i < s->n; i++)
		free(s->axis[i].values);
	*s = (struct sweep){0};
}
