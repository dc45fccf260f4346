/* SPDX-License-Identifier: MIT */
/*
 * Statistics under the names that memcached's tools look for, as far as there is something behind
 * them: of the store, over all of its clients, and of this proxy.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "front.h"

#define TEXT_BYTES 16384u
#define LINE_BYTES 256u

struct text {
	char *at;
	size_t len;
};

static void line(struct text *text, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Lines that do not fit are left out; END always fits. */
static void line(struct text *text, const char *name, const char *fmt, ...)
{
	char *at = text->at + text->len;
	va_list args;
	int n;

	if (text->len + 2 * LINE_BYTES > TEXT_BYTES)
		return;
	n = snprintf(at, LINE_BYTES, "STAT %s ", name);
	va_start(args, fmt);
	n += vsnprintf(at + n, LINE_BYTES - (size_t)n - 2, fmt, args);
	va_end(args);
	n = n > (int)LINE_BYTES - 3 ? (int)LINE_BYTES - 3 : n;
	memcpy(at + n, "\r\n", 2);
	text->len += (size_t)n + 2;
}

static void count(struct text *text, const char *name, uint64_t value)
{
	line(text, name, "%" PRIu64, value);
}

static void process(struct text *text, const struct px_thread *t)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_SELF, &usage);
	count(text, "pid", (uint64_t)getpid());
	count(text, "uptime", (uint64_t)(t->context.now_s - t->proxy->start_s));
	count(text, "time", (uint64_t)t->context.now_s);
	line(text, "version", PX_VERSION);
	count(text, "pointer_size", 8 * sizeof(void *));
	line(text, "rusage_user", "%ld.%06ld", (long)usage.ru_utime.tv_sec,
	     (long)usage.ru_utime.tv_usec);
	line(text, "rusage_system", "%ld.%06ld", (long)usage.ru_stime.tv_sec,
	     (long)usage.ru_stime.tv_usec);
}

static void connections(struct text *text, const struct proxy *p)
{
	struct px_counters sum;

	px_sum(p, &sum);
	count(text, "max_connections", p->conns_max);
	count(text, "curr_connections", sum.came - sum.gone);
	count(text, "total_connections", sum.came);
	count(text, "rejected_connections", __atomic_load_n(&p->rejected, __ATOMIC_RELAXED));
	count(text, "connection_structures", sum.came - sum.gone);
	count(text, "bytes_read", sum.bytes_read);
	count(text, "bytes_written", sum.bytes_written);
	count(text, "threads", p->n_threads);
	count(text, "proxy_commands", sum.commands);
	count(text, "proxy_values_asked_again", sum.rooms_short);
	count(text, "proxy_closed_slow", sum.closed_slow);
	count(text, "proxy_closed_stalled", sum.closed_stalled);
	count(text, "idle_kicks", sum.closed_idle);
}

static void store(struct text *text, const struct gn_kv_stats *s)
{
	count(text, "cmd_get", s->gets);
	count(text, "cmd_set", s->sets);
	count(text, "cmd_flush", s->flushes);
	count(text, "cmd_touch", s->touches);
	count(text, "get_hits", s->hits);
	count(text, "get_misses", s->misses);
	count(text, "delete_hits", s->deletes);
	count(text, "cas_hits", s->cas_ok);
	count(text, "cas_badval", s->cas_bad);
	count(text, "limit_maxbytes", s->memory);
	count(text, "accepting_conns", 1);
	count(text, "hash_bytes", s->buckets * 64);
	count(text, "curr_items", s->items);
	count(text, "total_items", s->sets);
	count(text, "bytes", s->item_bytes);
	count(text, "evictions", s->evicted_bucket + s->evicted_log);
	count(text, "reclaimed", s->expired);
	count(text, "store_incr_decr", s->numbers);
	count(text, "store_no_memory", s->no_memory);
	count(text, "store_partitions", s->partitions);
	count(text, "store_uptime", s->uptime_s);
	count(text, "store_used", s->used);
	count(text, "store_moved", s->moved);
}

static void settings(struct text *text, const struct px_thread *t, const struct gn_kv_stats *s)
{
	count(text, "maxbytes", s->memory);
	count(text, "maxconns", t->proxy->conns_max);
	for (unsigned i = 0; i < t->proxy->n_listeners; i++)
		line(text, "inter", "%s", t->proxy->listeners[i].name);
	count(text, "verbosity", 0);
	line(text, "evictions", "on");
	count(text, "num_threads", t->proxy->n_threads);
	line(text, "cas_enabled", "yes");
	line(text, "auth_enabled_ascii", "no");
	count(text, "item_size_max", t->context.max_value);
	line(text, "hash_algorithm", "xxh3");
	line(text, "binding_protocol", "ascii");
	line(text, "flush_enabled", "yes");
	line(text, "dump_enabled", "no");
	line(text, "store", "%s", t->proxy->opts.server);
}

/* All items are of one class. */
static void items(struct text *text, const struct gn_kv_stats *s)
{
	if (!s->items)
		return;
	count(text, "items:1:number", s->items);
	count(text, "items:1:mem_requested", s->item_bytes);
	count(text, "items:1:evicted", s->evicted_bucket + s->evicted_log);
	count(text, "items:1:outofmemory", s->no_memory);
	count(text, "items:1:reclaimed", s->expired);
}

static void slabs(struct text *text, const struct gn_kv_stats *s)
{
	if (s->items) {
		count(text, "1:used_chunks", s->items);
		count(text, "1:mem_requested", s->item_bytes);
		count(text, "1:get_hits", s->hits);
		count(text, "1:cmd_set", s->sets);
		count(text, "1:delete_hits", s->deletes);
		count(text, "1:cas_hits", s->cas_ok);
		count(text, "1:cas_badval", s->cas_bad);
		count(text, "1:touch_hits", s->touches);
	}
	count(text, "active_slabs", s->items ? 1 : 0);
	count(text, "total_malloced", s->used);
}

/* Those of this thread, which are the ones that it may look at. */
static void conns(struct text *text, const struct px_thread *t)
{
	for (unsigned i = 0; i < t->proxy->n_listeners; i++) {
		char name[32];

		snprintf(name, sizeof(name), "%d:addr", t->proxy->listeners[i].fd);
		line(text, name, "%s", t->proxy->listeners[i].name);
		snprintf(name, sizeof(name), "%d:state", t->proxy->listeners[i].fd);
		line(text, name, "conn_listening");
	}
	for (const struct px_conn *c = t->conns; c; c = c->next) {
		char name[32];

		snprintf(name, sizeof(name), "%d:state", c->fd);
		line(text, name, "%s",
		     c->out			      ? "conn_mwrite" :
		     c->mode == PX_MODE_VALUE	      ? "conn_nread" :
		     c->mode == PX_MODE_SKIP	      ? "conn_swallow" :
		     c->slots || c->in_at < c->in_len ? "conn_parse_cmd" :
							"conn_read");
	}
}

/* False: there is no such kind. */
static bool fill(struct text *text, const char *which, const struct px_thread *t,
		 const struct gn_kv_stats *s)
{
	if (!*which) {
		process(text, t);
		connections(text, t->proxy);
		store(text, s);
	} else if (!strcmp(which, "settings")) {
		settings(text, t, s);
	} else if (!strcmp(which, "items")) {
		items(text, s);
	} else if (!strcmp(which, "slabs")) {
		slabs(text, s);
	} else if (!strcmp(which, "conns")) {
		conns(text, t);
	} else if (!strcmp(which, "sizes")) {
		line(text, "sizes_status", "disabled");
	} else {
		return false;
	}
	return true;
}

bool px_stats_local(struct px_slot *s, const char *which)
{
	if (strcmp(which, "reset") != 0)
		return false;
	s->request.say = "RESET"; /* what the store counts is not only this client's */
	return true;
}

void px_stats(struct px_slot *s, const char *which, const struct gn_kv_stats *stats)
{
	struct px_thread *t = s->conn->thread;
	struct text text = {0};

	if (!px_slot_more(t, s, TEXT_BYTES)) {
		s->request.say = "SERVER_ERROR out of memory writing stats";
		return;
	}
	text.at = s->more;
	if (!fill(&text, which, t, stats)) {
		s->request.say = "ERROR";
		return;
	}
	memcpy(text.at + text.len, "END\r\n", 5);
	s->raw_bytes = (uint32_t)text.len + 5;
}
