/* SPDX-License-Identifier: MIT */
/*
 * Searches for an order of one key's operations. A state that the search has visited before, with the
 * same operations done and the key in the same state, is not visited again. An operation that does
 * not change the key is done as soon as it fits. Of equivalent operations only the first to begin is
 * tried.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "history_inner.h"

#define NONE UINT32_MAX

struct place {
	uint64_t a, b; /* of the set of those done, and of the state; 0 and 0: nothing is here */
};

struct candidate {
	struct history_op *op;
	uint32_t number;
	uint32_t next, prev; /* known ones that are to be done, in the order of beginning */
	uint32_t like;	     /* unknown: the equivalent one before it */
	uint64_t rank;	     /* the lower, the sooner it is tried */
	bool unlikely;	     /* unknown, and no client has read what it wrote */
	bool done;
};

struct search {
	struct history *h;
	struct candidate *c; /* known first; then those that may have been done */
	uint32_t n_known, n, first, left;
	struct place *been;
	uint64_t been_room, been_n;
	uint64_t steps, most;
	unsigned budget; /* of unlikely ones that may have been done */
	bool gave_up;
	uint32_t least_left, stuck; /* the longest order found */
};

/* ---- where it has been ---- */

static struct place place_of(const struct key_state *at, uint64_t set)
{
	const uint64_t *words = (const uint64_t *)(const void *)at;
	struct place p = {set, ~set};

	_Static_assert(sizeof(*at) == 48, "words");
	for (unsigned i = 0; i < sizeof(*at) / 8; i++) {
		p.a = history_mix(p.a + words[i] + 0x9e3779b97f4a7c15u);
		p.b = history_mix((p.b ^ words[i]) * 0xd6e8feb86659fd93u + i + 1);
	}
	p.a |= 1;
	return p;
}

static void put(struct place *table, uint64_t room, struct place p)
{
	uint64_t i = p.a / 2 & (room - 1);

	while (table[i].a)
		i = (i + 1) & (room - 1);
	table[i] = p;
}

static void make_room(struct search *s)
{
	const uint64_t room = s->been_room ? 4 * s->been_room : 256;
	struct place *table = calloc(room, sizeof(*table));

	if (!table)
		abort();
	for (uint64_t i = 0; i < s->been_room; i++)
		if (s->been[i].a)
			put(table, room, s->been[i]);
	free(s->been);
	s->been = table;
	s->been_room = room;
}

/* It is from now on. */
static bool was_here(struct search *s, const struct key_state *at, uint64_t set)
{
	const struct place p = place_of(at, set);

	if (2 * s->been_n >= s->been_room)
		make_room(s);
	for (uint64_t i = p.a / 2 & (s->been_room - 1); s->been[i].a;
	     i = (i + 1) & (s->been_room - 1))
		if (s->been[i].a == p.a && s->been[i].b == p.b)
			return true;
	put(s->been, s->been_room, p);
	s->been_n++;
	return false;
}

/* ---- the search ---- */

static void take(struct search *s, uint32_t i)
{
	struct candidate *c = &s->c[i];

	c->done = true;
	s->budget -= c->unlikely;
	if (i >= s->n_known)
		return;
	s->left--;
	if (c->prev == NONE)
		s->first = c->next;
	else
		s->c[c->prev].next = c->next;
	if (c->next != NONE)
		s->c[c->next].prev = c->prev;
}

static void put_back(struct search *s, uint32_t i)
{
	struct candidate *c = &s->c[i];

	c->done = false;
	s->budget += c->unlikely;
	if (i >= s->n_known)
		return;
	s->left++;
	if (c->prev == NONE)
		s->first = i;
	else
		s->c[c->prev].next = i;
	if (c->next != NONE)
		s->c[c->next].prev = i;
}

/* The sum of these numbers identifies a set. */
static uint64_t member(uint32_t i)
{
	return history_mix((i + 1) * 0x9e3779b97f4a7c15u);
}

static bool explore(struct search *s, const struct key_state *at, uint64_t set);

static bool go(struct search *s, uint32_t i, const struct key_state *to, uint64_t set)
{
	bool found;

	take(s, i);
	found = explore(s, to, set + member(i));
	if (!found)
		put_back(s, i);
	return found;
}

static bool only_reads(const struct history_op *op)
{
	return op->verb == GN_KV_GET && !(op->how & GN_KV_AND_TOUCH);
}

/* Is nothing left of its batch that comes before it? Reads may overtake each other. */
static bool may_come(const struct search *s, uint32_t i)
{
	const struct history_op *op = s->c[i].op;

	if (!op->batch)
		return true;
	for (uint32_t k = s->c[i].prev; k != NONE; k = s->c[k].prev)
		if (s->c[k].op->batch == op->batch && !(only_reads(op) && only_reads(s->c[k].op)))
			return false;
	return true;
}

/* With the key as it is, and forgotten. */
static bool try_one(struct search *s, uint32_t i, const struct key_state *at, uint64_t set)
{
	const struct history_op *op = s->c[i].op;
	struct key_state to, absent;

	if (history_may_live(op, at) && history_step(s->h, op, at, &to) && go(s, i, &to, set))
		return true;
	if (!history_may_die(s->h, op, at))
		return false;
	absent = history_absent(at);
	return history_step(s->h, op, &absent, &to) && go(s, i, &to, set);
}

/* Wherever it is put, with the answer that it had: so it need not be kept for later. */
static bool changes_nothing(struct search *s, uint32_t i, const struct key_state *at)
{
	const struct history_op *op = s->c[i].op;
	struct key_state to;

	if (op->verb >= GN_KV_VERBS || (op->status == GN_KV_OK && !only_reads(op)))
		return false;
	return history_may_live(op, at) && history_step(s->h, op, at, &to) &&
	       !memcmp(&to, at, sizeof(to));
}

static void note_stuck(struct search *s)
{
	uint32_t stuck = s->first;

	if (s->left >= s->least_left)
		return;
	s->least_left = s->left;
	for (uint32_t i = s->first; i != NONE; i = s->c[i].next)
		if (s->c[i].op->end_ns < s->c[stuck].op->end_ns)
			stuck = i;
	s->stuck = s->c[stuck].number;
}

/* Nothing that begins later can come next: there is one that must have come before. */
static uint64_t last_begin(const struct search *s)
{
	uint64_t least = HISTORY_NEVER;

	for (uint32_t i = s->first; i != NONE && s->c[i].op->begin_ns <= least; i = s->c[i].next)
		if (s->c[i].op->end_ns < least)
			least = s->c[i].op->end_ns;
	return least;
}

#define TRIED_MAX 96u

/* Puts it where its rank says; how many there are. */
static unsigned insert(const struct search *s, uint32_t *list, unsigned n, uint32_t i)
{
	unsigned k = n;

	for (; k && s->c[list[k - 1]].rank > s->c[i].rank; k--)
		list[k] = list[k - 1];
	list[k] = i;
	return n + 1;
}

/* What may come next, up to TRIED_MAX. */
static unsigned candidates(const struct search *s, uint64_t by, uint32_t *list)
{
	unsigned n = 0;

	for (uint32_t i = s->first; i != NONE && s->c[i].op->begin_ns <= by && n < TRIED_MAX;
	     i = s->c[i].next)
		if (may_come(s, i))
			n = insert(s, list, n, i);
	for (uint32_t i = s->n_known; i < s->n && s->c[i].op->begin_ns <= by && n < TRIED_MAX;
	     i++) {
		const uint32_t like = s->c[i].like;

		if (!s->c[i].done && (like == NONE || s->c[like].done) &&
		    (s->budget || !s->c[i].unlikely))
			n = insert(s, list, n, i);
	}
	return n;
}

static bool explore(struct search *s, const struct key_state *at, uint64_t set)
{
	uint32_t list[TRIED_MAX];
	unsigned n;
	uint64_t by;

	if (!s->left)
		return true;
	if (s->steps >= s->most)
		s->gave_up = true;
	if (s->gave_up || was_here(s, at, set))
		return false;
	s->steps++;
	note_stuck(s);
	by = last_begin(s);
	for (uint32_t i = s->first; i != NONE && s->c[i].op->begin_ns <= by; i = s->c[i].next)
		if (may_come(s, i) && changes_nothing(s, i, at))
			return go(s, i, at, set);
	n = candidates(s, by, list);
	for (unsigned i = 0; i < n; i++)
		if (try_one(s, list[i], at, set))
			return true;
	/* More at once than can be ordered: then not all orders were tried. */
	s->gave_up |= n == TRIED_MAX;
	return false;
}

/* ---- what there is to order ---- */

static int by_begin(const void *a, const void *b)
{
	const struct candidate *c = a, *d = b;
	const bool known = history_known(c->op);

	if (known != history_known(d->op))
		return known ? -1 : 1;
	if (c->op->begin_ns != d->op->begin_ns)
		return c->op->begin_ns < d->op->begin_ns ? -1 : 1;
	return c->number < d->number ? -1 : c->number > d->number;
}

/* Has a client read a piece of it? */
static bool was_seen(const struct search *s, uint32_t value)
{
	const struct history_value *wrote = &s->h->value[value];

	for (uint32_t i = 0; i < s->n_known; i++) {
		const uint32_t seen = s->c[i].op->seen;
		const struct history_value *v;

		if (seen == HISTORY_UNSEEN)
			continue;
		v = &s->h->value[seen];
		for (uint32_t k = 0; k < v->n; k++)
			for (uint32_t j = 0; j < wrote->n; j++)
				if (v->pieces[k].what == wrote->pieces[j].what)
					return true;
	}
	return !wrote->n;
}

static bool alike(const struct search *s, const struct history_op *a, const struct history_op *b)
{
	if (a->verb != b->verb || a->how != b->how || a->last_epoch != b->last_epoch || a->ttl_s ||
	    b->ttl_s || a->create_s || b->create_s || a->cas != b->cas ||
	    a->new_cas != b->new_cas || a->number != b->number || a->initial != b->initial)
		return false;
	if (a->verb < GN_KV_SET || a->verb > GN_KV_PREPEND)
		return true;
	return s->h->value[a->value].len == s->h->value[b->value].len && !was_seen(s, a->value) &&
	       !was_seen(s, b->value);
}

/* By version, and what others know of one behind what wrote it. */
static uint64_t rank_of(const struct history_op *op)
{
	const uint64_t last = UINT64_MAX - history_known(op);

	if (op->how & GN_KV_SET_CAS)
		return last;
	if (op->version)
		return 2 * op->version;
	return history_known(op) && op->seen_cas ? 2 * op->seen_cas + 1 : last;
}

static void link_all(struct search *s)
{
	s->first = s->n_known ? 0 : NONE;
	for (uint32_t i = 0; i < s->n; i++) {
		struct candidate *c = &s->c[i];

		c->done = false;
		c->like = NONE;
		c->rank = rank_of(c->op);
		if (i < s->n_known) {
			c->prev = i ? i - 1 : NONE;
			c->next = i + 1 < s->n_known ? i + 1 : NONE;
			continue;
		}
		for (uint32_t k = i; k-- > s->n_known && c->like == NONE;)
			if (alike(s, s->c[k].op, c->op))
				c->like = k;
	}
}

/* Reads that saw nothing of a state whose end nobody knows say nothing. */
static bool matters(const struct history_op *op)
{
	if (history_known(op))
		return op->status != GN_KV_BUSY && op->status != GN_KV_INVALID;
	return op->verb != GN_KV_GET || op->how & GN_KV_AND_TOUCH;
}

/*
 * The version of what an operation wrote: as it was told, or as others were told of that value,
 * which nobody else wrote.
 */
static void pin_version(const struct search *s, struct history_op *op)
{
	const bool changes = op->verb >= GN_KV_SET && op->verb <= GN_KV_DECR;
	const struct history_value *value = &s->h->value[op->value];

	op->version = 0;
	if (history_known(op))
		op->version = op->status == GN_KV_OK && changes ? op->seen_cas : 0;
	if (op->version || op->verb < GN_KV_SET || op->verb > GN_KV_REPLACE)
		return;
	if (value->n == 1 && !value->pieces[0].number)
		for (uint32_t i = 0; i < s->h->n_named; i++)
			if (s->h->named[i].value == op->value)
				op->version = s->h->named[i].cas;
}

/* Which version had which value: one each. */
static bool name_versions(struct search *s, struct history_result *out)
{
	s->h->n_named = 0;
	for (uint32_t i = 0; i < s->n_known; i++) {
		const struct history_op *op = s->c[i].op;
		const bool stores = op->verb >= GN_KV_SET && op->verb <= GN_KV_REPLACE;
		uint32_t value = op->seen;

		if (op->status != GN_KV_OK || !op->seen_cas)
			continue;
		if (stores)
			value = op->value;
		if (value != HISTORY_UNSEEN && !history_name(s->h, op->seen_cas, value)) {
			out->stuck = s->c[i].number;
			snprintf(out->why, sizeof(out->why), "version %llx names two values",
				 (unsigned long long)op->seen_cas);
			return false;
		}
	}
	for (uint32_t i = 0; i < s->n; i++)
		pin_version(s, s->c[i].op);
	return true;
}

static void conclude(struct search *s, uint32_t key, bool fits, struct history_result *out)
{
	out->steps += s->steps;
	if (fits)
		return;
	if (s->gave_up) {
		out->undecided++;
		out->verdict = HISTORY_UNDECIDED;
		snprintf(out->why, sizeof(out->why), "undecided after %llu steps",
			 (unsigned long long)s->steps);
	} else {
		out->verdict = HISTORY_WRONG;
		out->stuck = s->stuck;
		snprintf(out->why, sizeof(out->why),
			 "no order of its %u operations fits; at best all but %u, of which %u ends "
			 "first",
			 s->n, s->least_left, s->stuck);
	}
	out->key = key;
}

/* Can it be needed to explain what others saw, at first sight? */
static bool is_likely(const struct search *s, const struct history_op *op)
{
	const bool writes = op->verb >= GN_KV_SET && op->verb <= GN_KV_PREPEND;

	return writes ? was_seen(s, op->value) : op->verb == GN_KV_INCR || op->verb == GN_KV_DECR;
}

/* So many unlikely ones may have been done, in so many steps. */
static bool try_with(struct search *s, unsigned budget, uint64_t steps)
{
	const struct key_state nothing = {.dies_from_ns = HISTORY_NEVER,
					  .dies_by_ns = HISTORY_NEVER};
	bool fits;

	link_all(s);
	s->left = s->n_known;
	s->least_left = UINT32_MAX;
	s->gave_up = false;
	s->budget = budget;
	s->most = s->steps + steps;
	fits = explore(s, &nothing, 0);
	free(s->been);
	s->been = NULL;
	s->been_room = s->been_n = 0;
	return fits;
}

/* Mostly none of the unlikely ones is needed, or a few are: that is soon found out. */
static bool try_all(struct search *s)
{
	const uint64_t most = s->h->opts.most;
	unsigned unlikely = 0;

	for (uint32_t i = s->n_known; i < s->n; i++)
		unlikely += s->c[i].unlikely = !is_likely(s, s->c[i].op);
	for (unsigned budget = 0; budget < 4 && budget < unlikely; budget++)
		if (try_with(s, budget, most / 8))
			return true;
	return try_with(s, unlikely, most);
}

void history_search(struct history *h, const uint32_t *ops, uint32_t n, uint32_t key,
		    struct history_result *out)
{
	struct search s = {.h = h};

	s.c = calloc(n + 1, sizeof(*s.c));
	if (!s.c)
		abort();
	for (uint32_t i = 0; i < n; i++)
		if (matters(&h->op[ops[i]])) {
			s.c[s.n++] = (struct candidate){.op = &h->op[ops[i]], .number = ops[i]};
			s.n_known += history_known(&h->op[ops[i]]);
		}
	qsort(s.c, s.n, sizeof(*s.c), by_begin);
	if (name_versions(&s, out)) {
		conclude(&s, key, try_all(&s), out);
	} else {
		out->verdict = HISTORY_WRONG;
		out->key = key;
	}
	free(s.c);
}
