/* SPDX-License-Identifier: MIT */
/* Objects: sources with members. */
#include <errno.h>

#include "base/deadline.h"
#include "base/source.h"

void source_join(struct gn_source *object, struct gn_source *member)
{
	member->parent = object;
	member->next = object->members;
	object->members = member;
}

static void source_leave_parent(struct gn_source *member)
{
	struct gn_source **at;

	if (!member->parent)
		return;
	for (at = &member->parent->members; *at != member; at = &(*at)->next)
		;
	*at = member->next;
	member->parent = NULL;
}

void source_fini(struct gn_source *source)
{
	if (!source->ops)
		return;
	source_poller_fini(source);
	source_leave_parent(source);
	while (source->members)
		source_leave_parent(source->members);
}

uint64_t source_due_ns(const struct gn_source *source)
{
	uint64_t due_ns = source->due_ns;

	for (const struct gn_source *m = source->mute ? NULL : source->members; m; m = m->next) {
		const uint64_t ns = source_due_ns(m);

		if (ns < due_ns)
			due_ns = ns;
	}
	return due_ns;
}

bool source_object_ready(struct gn_source *object)
{
	if (object->due_ns != GN_FOREVER && gn_now_ns() >= object->due_ns)
		return true;
	for (struct gn_source *m = object->mute ? NULL : object->members; m; m = m->next)
		if (m->ops->ready(m))
			return true;
	return false;
}

int source_prepare(struct gn_source *source)
{
	int rc;

	if (!source_is_object(source))
		return 0;
	source->due_ns = GN_FOREVER;
	source->mute = false;
	rc = source->ops->prepare(source);
	for (struct gn_source *m = source->mute ? NULL : source->members; m && !rc; m = m->next)
		rc = source_prepare(m);
	if (rc)
		source_rest(source);
	return rc;
}

void source_rest(struct gn_source *source)
{
	source->due_ns = GN_FOREVER;
	for (struct gn_source *m = source->members; m; m = m->next)
		source_rest(m);
}

int source_prepare_items(struct gn_wait_item *items, unsigned n, uint64_t *deadline_ns)
{
	int ready = 0;

	for (unsigned i = 0; i < n; i++) {
		uint64_t due_ns;
		int rc;

		if (items[i].kind != GN_WAIT_SOURCE || !source_is_object(items[i].source))
			continue;
		rc = source_prepare(items[i].source);
		if (rc && rc != -EAGAIN)
			return rc;
		items[i].ready = rc;
		ready += items[i].ready;
		due_ns = deadline_due(source_due_ns(items[i].source));
		if (due_ns < *deadline_ns)
			*deadline_ns = due_ns;
	}
	return ready;
}

void source_rest_items(const struct gn_wait_item *items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		if (items[i].kind == GN_WAIT_SOURCE && source_is_object(items[i].source))
			source_rest(items[i].source);
}
