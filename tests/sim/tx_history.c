/* SPDX-License-Identifier: MIT */
/* Checks histories of transactions: versions, then the graph of what came before what. */
#include "tx_history.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX
#define INIT (UINT32_MAX - 1) /* the attempt that wrote what was there at the beginning */

struct attempt {
	uint64_t inv_ns, ret_ns;
	enum tx_outcome outcome;
	bool seen;	       /* INFO: it has committed */
	uint32_t first, count; /* accesses */
};

struct state {
	uint64_t version, digest;
	bool present;
};

struct final {
	uint32_t key;
	struct state state;
};

/* A version of a key, and who made it. */
struct version {
	uint32_t key, writer;
	uint64_t prev, version, digest;
	bool present;
	uint32_t next; /* the version after it; NONE */
};

struct edge {
	uint32_t to, next;
};

struct tx_history {
	uint32_t n_keys;
	struct state *init;
	struct attempt *attempts;
	struct tx_access *accesses; /* of the attempt that is open, then of all */
	struct final *finals;
	struct version *versions;
	uint32_t *owner; /* of each access: its attempt */
	uint32_t n_attempts, n_accesses, n_finals, n_versions, n_edges;
	uint32_t max_attempts, max_accesses, max_finals, max_edges;
	struct edge *edges;
	uint32_t *heads, n_nodes;
	char error[256];
};

static void *must(void *at)
{
	if (!at)
		abort();
	return at;
}

#define GROW(array, n, max)                                                         \
	do {                                                                        \
		if ((n) == (max)) {                                                 \
			(max) = (max) ? 2 * (max) : 64;                             \
			(array) = must(realloc((array), (max) * sizeof(*(array)))); \
		}                                                                   \
	} while (0)

__attribute__((format(printf, 2, 3))) static int wrong(struct tx_history *h, const char *format,
						       ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(h->error, sizeof(h->error), format, args);
	va_end(args);
	return -EILSEQ;
}

/* ---- telling ---- */

struct tx_history *tx_history_create(uint32_t n_keys)
{
	struct tx_history *h = must(calloc(1, sizeof(*h)));

	h->n_keys = n_keys;
	h->init = must(calloc(n_keys ? n_keys : 1, sizeof(*h->init)));
	return h;
}

void tx_history_destroy(struct tx_history *h)
{
	if (!h)
		return;
	free(h->init);
	free(h->attempts);
	free(h->accesses);
	free(h->owner);
	free(h->finals);
	free(h->versions);
	free(h->edges);
	free(h->heads);
	free(h);
}

void tx_history_init(struct tx_history *h, uint32_t key, uint64_t version, uint64_t digest)
{
	h->init[key] = (struct state){version, digest, true};
}

uint32_t tx_history_begin(struct tx_history *h, uint64_t inv_ns)
{
	GROW(h->attempts, h->n_attempts, h->max_attempts);
	h->attempts[h->n_attempts] = (struct attempt){
		.inv_ns = inv_ns, .ret_ns = TX_HISTORY_NEVER, .outcome = TX_HISTORY_INFO};
	return h->n_attempts++;
}

void tx_history_access(struct tx_history *h, uint32_t attempt, const struct tx_access *access)
{
	const uint32_t max = h->max_accesses;

	GROW(h->accesses, h->n_accesses, h->max_accesses);
	if (max != h->max_accesses)
		h->owner = must(realloc(h->owner, h->max_accesses * sizeof(*h->owner)));
	h->owner[h->n_accesses] = attempt;
	h->accesses[h->n_accesses++] = *access;
}

void tx_history_end(struct tx_history *h, uint32_t attempt, enum tx_outcome outcome,
		    uint64_t ret_ns)
{
	h->attempts[attempt].outcome = outcome;
	h->attempts[attempt].ret_ns = ret_ns;
}

void tx_history_final(struct tx_history *h, uint32_t key, uint64_t version, bool present,
		      uint64_t digest)
{
	GROW(h->finals, h->n_finals, h->max_finals);
	h->finals[h->n_finals++] = (struct final){key, {version, digest, present}};
}

const char *tx_history_error(const struct tx_history *h)
{
	return h->error;
}

/* ---- versions ---- */

static bool is_write(const struct tx_access *a)
{
	return a->op != 'r';
}

static int by_version(const void *left, const void *right)
{
	const struct version *a = left, *b = right;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	return a->version < b->version ? -1 : a->version > b->version;
}

/* The first of the versions with this number; several writers may claim it. */
static uint32_t version_find(const struct tx_history *h, uint32_t key, uint64_t number)
{
	const struct version want = {.key = key, .version = number};
	uint32_t low = 0, high = h->n_versions;

	while (low < high) {
		const uint32_t middle = low + (high - low) / 2;

		if (by_version(&h->versions[middle], &want) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool version_is(const struct tx_history *h, uint32_t i, uint32_t key, uint64_t number)
{
	return i < h->n_versions && h->versions[i].key == key && h->versions[i].version == number;
}

/* Every version that an attempt may have made, and those at the beginning. */
static void versions_collect(struct tx_history *h)
{
	h->versions = must(calloc(h->n_keys + h->n_accesses + 1, sizeof(*h->versions)));
	for (uint32_t key = 0; key < h->n_keys; key++)
		h->versions[h->n_versions++] = (struct version){.key = key,
								.writer = INIT,
								.version = h->init[key].version,
								.digest = h->init[key].digest,
								.present = h->init[key].present,
								.next = NONE};
	for (uint32_t i = 0; i < h->n_accesses; i++) {
		const struct tx_access *a = &h->accesses[i];

		if (is_write(a) && h->attempts[h->owner[i]].outcome != TX_HISTORY_FAIL)
			h->versions[h->n_versions++] = (struct version){.key = a->key,
									.writer = h->owner[i],
									.prev = a->prev,
									.version = a->version,
									.digest = a->digest,
									.present = a->op != 'd',
									.next = NONE};
	}
	qsort(h->versions, h->n_versions, sizeof(*h->versions), by_version);
}

/*
 * The version that was seen; NONE: nobody has written it. A key without a value may show a version
 * above the one that deleted it, the floor of its partition.
 */
static uint32_t version_seen(const struct tx_history *h, uint32_t key, uint64_t number,
			     bool present, uint64_t digest)
{
	uint32_t i = version_find(h, key, number);

	if (present) {
		for (; version_is(h, i, key, number); i++)
			if (h->versions[i].present && h->versions[i].digest == digest)
				return i;
		return NONE;
	}
	while (version_is(h, i, key, number))
		i++;
	while (i-- > 0 && h->versions[i].key == key)
		if (!h->versions[i].present)
			return i;
	return NONE;
}

static bool has_committed(const struct tx_history *h, uint32_t writer)
{
	return writer == INIT || h->attempts[writer].outcome == TX_HISTORY_OK ||
	       h->attempts[writer].seen;
}

static bool mark_seen(struct tx_history *h, uint32_t writer)
{
	if (has_committed(h, writer))
		return false;
	h->attempts[writer].seen = true;
	return true;
}

/* An attempt with an unknown end has committed if a read, a replica or a committed write saw it. */
static int versions_settle(struct tx_history *h)
{
	bool again = true;

	for (uint32_t i = 0; i < h->n_accesses; i++) {
		const struct tx_access *a = &h->accesses[i];
		uint32_t v;

		if (is_write(a))
			continue;
		v = version_seen(h, a->key, a->version, a->present, a->digest);
		if (v == NONE)
			return wrong(h,
				     "attempt %u read version %llu of key %u (%s), which nobody "
				     "wrote, or who did has aborted",
				     h->owner[i], (unsigned long long)a->version, a->key,
				     a->present ? "a value" : "absent");
		mark_seen(h, h->versions[v].writer);
	}
	for (uint32_t i = 0; i < h->n_finals; i++) {
		const struct final *f = &h->finals[i];
		const uint32_t v = version_seen(h, f->key, f->state.version, f->state.present,
						f->state.digest);

		if (v == NONE)
			return wrong(h, "a replica has version %llu of key %u, which nobody wrote",
				     (unsigned long long)f->state.version, f->key);
		mark_seen(h, h->versions[v].writer);
	}
	/* A committed write was seen by nobody before the one that it follows had been. */
	while (again) {
		again = false;
		for (uint32_t i = 0; i < h->n_versions; i++) {
			const struct version *v = &h->versions[i];
			const uint32_t before = version_find(h, v->key, v->prev);

			/* Of several candidates another attempt tells which it was. */
			if (v->writer != INIT && has_committed(h, v->writer) &&
			    version_is(h, before, v->key, v->prev) &&
			    !version_is(h, before + 1, v->key, v->prev))
				again |= mark_seen(h, h->versions[before].writer);
		}
	}
	return 0;
}

static void versions_drop_uncommitted(struct tx_history *h)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < h->n_versions; i++)
		if (has_committed(h, h->versions[i].writer))
			h->versions[n++] = h->versions[i];
	h->n_versions = n;
}

/* What the access found: the last version up to the one that it names. */
static uint32_t access_found(const struct tx_history *h, const struct tx_access *a)
{
	const uint64_t number = is_write(a) ? a->prev : a->version;
	const uint32_t i = version_find(h, a->key, number);

	return version_is(h, i, a->key, number) ? i : i - 1;
}

/* Each version follows the one before it, and is made once. */
static int versions_chain(struct tx_history *h)
{
	for (uint32_t i = 1; i < h->n_versions; i++) {
		struct version *v = &h->versions[i], *before = v - 1;

		if (v->key != before->key)
			continue;
		if (v->version == before->version)
			return wrong(h, "attempts %u and %u both made version %llu of key %u",
				     before->writer, v->writer, (unsigned long long)v->version,
				     v->key);
		if (v->writer == INIT || v->prev < before->version)
			return wrong(h, "version %llu of key %u does not follow %llu",
				     (unsigned long long)v->version, v->key,
				     (unsigned long long)before->version);
		before->next = i;
	}
	return 0;
}

/* Every access found what it says; an absent key may have a higher version, its floor. */
static int accesses_check(struct tx_history *h)
{
	for (uint32_t i = 0; i < h->n_accesses; i++) {
		const struct tx_access *a = &h->accesses[i];
		const uint64_t number = is_write(a) ? a->prev : a->version;
		const bool present = is_write(a) ? a->op != 'i' : a->present;
		const struct version *found;

		if (!has_committed(h, h->owner[i]))
			continue;
		found = &h->versions[access_found(h, a)];
		if (found->key != a->key || found->present != present ||
		    (present && found->version != number))
			return wrong(h, "attempt %u: '%c' of key %u at version %llu, which was %s",
				     h->owner[i], a->op, a->key, (unsigned long long)number,
				     present ? "not there" : "there");
	}
	return 0;
}

static int finals_check(struct tx_history *h)
{
	for (uint32_t i = 0; i < h->n_finals; i++) {
		const struct final *f = &h->finals[i];
		const struct tx_access a = {.key = f->key, .op = 'r', .version = f->state.version};
		const struct version *v = &h->versions[access_found(h, &a)];

		if (v->next != NONE)
			return wrong(h,
				     "a replica has version %llu of key %u, but %llu was written",
				     (unsigned long long)v->version, f->key,
				     (unsigned long long)h->versions[v->next].version);
	}
	return 0;
}

/* ---- the graph ---- */

static void edge_add(struct tx_history *h, uint32_t from, uint32_t to)
{
	if (from == to)
		return;
	GROW(h->edges, h->n_edges, h->max_edges);
	h->edges[h->n_edges] = (struct edge){to, h->heads[from]};
	h->heads[from] = h->n_edges++;
}

struct moment {
	uint64_t ns;
	uint32_t attempt;
	bool end;
};

/* At the same time, begins come first: the two may overlap. */
static int by_time(const void *left, const void *right)
{
	const struct moment *a = left, *b = right;

	if (a->ns != b->ns)
		return a->ns < b->ns ? -1 : 1;
	return (int)a->end - (int)b->end;
}

/*
 * Real time: a chain of nodes behind those of the attempts, one for each end. An end leads to its
 * node of the chain; the last node before a begin leads to the begin.
 */
static void edges_of_time(struct tx_history *h)
{
	struct moment *moments = must(calloc(2 * h->n_attempts + 1, sizeof(*moments)));
	uint32_t n = 0, last = NONE, node = h->n_attempts;

	for (uint32_t i = 0; i < h->n_attempts; i++) {
		if (!has_committed(h, i))
			continue;
		moments[n++] = (struct moment){h->attempts[i].inv_ns, i, false};
		if (h->attempts[i].outcome == TX_HISTORY_OK)
			moments[n++] = (struct moment){h->attempts[i].ret_ns, i, true};
	}
	qsort(moments, n, sizeof(*moments), by_time);
	for (uint32_t i = 0; i < n; i++) {
		if (!moments[i].end) {
			if (last != NONE)
				edge_add(h, last, moments[i].attempt);
			continue;
		}
		edge_add(h, moments[i].attempt, node);
		if (last != NONE)
			edge_add(h, last, node);
		last = node++;
	}
	free(moments);
}

static void edges_of_accesses(struct tx_history *h)
{
	for (uint32_t i = 0; i < h->n_accesses; i++) {
		const struct tx_access *a = &h->accesses[i];
		const uint32_t self = h->owner[i];
		uint32_t at, next;

		if (!has_committed(h, self))
			continue;
		at = access_found(h, a);
		if (h->versions[at].writer != INIT)
			edge_add(h, h->versions[at].writer, self);
		next = h->versions[at].next;
		if (!is_write(a) && next != NONE)
			edge_add(h, self, h->versions[next].writer);
	}
}

/* Depth first; -EILSEQ names the attempts of a cycle. */
static int graph_check(struct tx_history *h)
{
	enum { WHITE, GREY, BLACK };
	uint8_t *colour = must(calloc(h->n_nodes + 1, 1));
	uint32_t *stack = must(calloc(h->n_nodes + 1, sizeof(*stack)));
	uint32_t *at = must(calloc(h->n_nodes + 1, sizeof(*at)));
	uint32_t depth = 0, found = NONE;

	memcpy(at, h->heads, h->n_nodes * sizeof(*at));
	for (uint32_t root = 0; root < h->n_nodes && found == NONE; root++) {
		if (colour[root] != WHITE)
			continue;
		stack[depth++] = root;
		colour[root] = GREY;
		while (depth && found == NONE) {
			const uint32_t node = stack[depth - 1], e = at[node];
			const uint32_t to = e == NONE ? NONE : h->edges[e].to;

			if (e == NONE) {
				colour[node] = BLACK;
				depth--;
				continue;
			}
			at[node] = h->edges[e].next;
			if (colour[to] == GREY)
				found = to;
			if (colour[to] != WHITE)
				continue;
			colour[to] = GREY;
			stack[depth++] = to;
		}
	}
	if (found != NONE) {
		size_t len = (size_t)snprintf(h->error, sizeof(h->error), "a cycle:");

		for (uint32_t i = depth; i-- > 0 && len < sizeof(h->error);) {
			if (stack[i] < h->n_attempts)
				len += (size_t)snprintf(h->error + len, sizeof(h->error) - len,
							" %u", stack[i]);
			if (stack[i] == found)
				break;
		}
	}
	free(colour);
	free(stack);
	free(at);
	return found == NONE ? 0 : -EILSEQ;
}

int tx_history_check(struct tx_history *h)
{
	int rc;

	versions_collect(h);
	rc = versions_settle(h);
	if (rc)
		return rc;
	versions_drop_uncommitted(h);
	rc = versions_chain(h);
	if (!rc)
		rc = accesses_check(h);
	if (!rc)
		rc = finals_check(h);
	if (rc)
		return rc;
	h->n_nodes = 2 * h->n_attempts;
	h->heads = must(malloc((h->n_nodes + 1) * sizeof(*h->heads)));
	memset(h->heads, 0xff, (h->n_nodes + 1) * sizeof(*h->heads));
	edges_of_time(h);
	edges_of_accesses(h);
	return graph_check(h);
}
