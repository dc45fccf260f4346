/* SPDX-License-Identifier: MIT */
/*
 * Statistics under the names that memcached's tools look for, as far as there is something behind
 * them: of the store, over all of its clients, and of this proxy.
 */
#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/prometheus.h"
#include "internal.h"

#define TEXT_BYTES    16384u
#define LINE_BYTES    256u
#define ADDRESS_BYTES 160u

static const char no_memory[] = "SERVER_ERROR out of memory writing stats";

struct text {
	char *at;
	size_t len, room;
};

static void put_line(struct text *text, const char *name, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Lines that do not fit are left out; END always fits. */
static void put_line(struct text *text, const char *name, const char *fmt, ...)
{
	char *at = text->at + text->len;
	va_list args;
	int n;

	if (text->len + 2 * LINE_BYTES > text->room)
		return;
	n = snprintf(at, LINE_BYTES, "STAT %s ", name);
	va_start(args, fmt);
	n += vsnprintf(at + n, LINE_BYTES - (size_t)n - 2, fmt, args);
	va_end(args);
	n = n > (int)LINE_BYTES - 3 ? (int)LINE_BYTES - 3 : n;
	memcpy(at + n, "\r\n", 2);
	text->len += (size_t)n + 2;
}

static void put_count(struct text *text, const char *name, uint64_t value)
{
	put_line(text, name, "%" PRIu64, value);
}

static void put_process(struct text *text, const struct px_thread *t)
{
	struct rusage usage = {0};

	getrusage(RUSAGE_SELF, &usage);
	put_count(text, "pid", (uint64_t)getpid());
	put_count(text, "uptime", (uint64_t)(t->context.now_s - t->proxy->start_s));
	put_count(text, "time", (uint64_t)t->context.now_s);
	put_line(text, "version", PX_VERSION);
	put_count(text, "pointer_size", 8 * sizeof(void *));
	put_line(text, "rusage_user", "%ld.%06ld", (long)usage.ru_utime.tv_sec,
		 (long)usage.ru_utime.tv_usec);
	put_line(text, "rusage_system", "%ld.%06ld", (long)usage.ru_stime.tv_sec,
		 (long)usage.ru_stime.tv_usec);
}

/* ---- what was counted since the last reset ---- */

/* A store that restarted after the reset has counted since its start. */
static uint64_t counter_since(uint64_t now, uint64_t then)
{
	return now >= then ? now - then : now;
}

#define STORE_COUNTERS(X)                                                                     \
	X(gets)                                                                               \
	X(hits)                                                                               \
	X(misses)                                                                             \
	X(touches) X(touch_misses) X(sets) X(stored) X(deletes) X(delete_misses) X(numbers)   \
		X(incr_hits) X(incr_misses) X(decr_hits) X(decr_misses) X(cas_ok) X(cas_bad)  \
			X(cas_misses) X(evicted_bucket) X(evicted_log) X(evicted_unfetched)   \
				X(evicted_ttl) X(expired) X(expired_get) X(expired_unfetched) \
					X(clears) X(too_big) X(moved) X(no_memory)

static void since_reset(struct proxy *p, struct gn_kv_stats *s, struct px_counters *c,
			uint64_t *rejected)
{
	gn_mutex_lock(&p->lock);
	px_sum(p, c); /* not before: a reset in between would be later than what is summed */
	const struct gn_kv_stats *store = &p->reset_store;
	const struct px_counters *own = &p->reset_proxy;

#define SINCE(field) s->field = counter_since(s->field, store->field);
	STORE_COUNTERS(SINCE)
	c->gone -= own->gone; /* what is there now stays */
	c->came -= own->gone;
	c->bytes_read -= own->bytes_read;
	c->bytes_written -= own->bytes_written;
	c->commands -= own->commands;
	c->debugs -= own->debugs;
	c->rooms_short -= own->rooms_short;
	c->messages -= own->messages;
	c->waits -= own->waits;
	c->closed_slow -= own->closed_slow;
	c->closed_stalled -= own->closed_stalled;
	c->closed_idle -= own->closed_idle;
	*rejected = __atomic_load_n(&p->rejected, __ATOMIC_RELAXED) - p->reset_rejected;
	gn_mutex_unlock(&p->lock);
}

static void stats_reset(struct proxy *p, const struct gn_kv_stats *s)
{
	struct px_counters now;

	gn_mutex_lock(&p->lock);
	px_sum(p, &now);
	p->reset_store = *s;
	p->reset_proxy = now;
	p->reset_rejected = __atomic_load_n(&p->rejected, __ATOMIC_RELAXED);
	gn_mutex_unlock(&p->lock);
	px_detail_clear(p);
}

/* ---- kinds ---- */

static void put_connections(struct text *text, const struct proxy *p, const struct px_counters *sum,
			    uint64_t rejected)
{
	put_count(text, "max_connections", p->conns_max);
	put_count(text, "curr_connections", sum->came - sum->gone);
	put_count(text, "total_connections", sum->came);
	put_count(text, "rejected_connections", rejected);
	put_count(text, "connection_structures", sum->came - sum->gone);
	put_count(text, "bytes_read", sum->bytes_read);
	put_count(text, "bytes_written", sum->bytes_written);
	put_count(text, "accepting_conns", 1);
	put_count(text, "threads", p->n_threads);
	put_count(text, "cmd_meta", sum->debugs);
	put_count(text, "proxy_commands", sum->commands);
	put_count(text, "proxy_values_asked_again", sum->rooms_short);
	put_count(text, "proxy_store_messages", sum->messages);
	put_count(text, "proxy_store_waits", sum->waits);
	put_count(text, "proxy_closed_slow", sum->closed_slow);
	put_count(text, "proxy_closed_stalled", sum->closed_stalled);
	put_count(text, "idle_kicks", sum->closed_idle);
}

static uint64_t evictions_of(const struct gn_kv_stats *s)
{
	return s->evicted_bucket + s->evicted_log;
}

static void put_commands(struct text *text, const struct gn_kv_stats *s)
{
	put_count(text, "cmd_get", s->gets);
	put_count(text, "cmd_set", s->sets);
	put_count(text, "cmd_flush", s->clears / (s->partitions ? s->partitions : 1));
	put_count(text, "cmd_touch", s->touches + s->touch_misses);
	put_count(text, "get_hits", s->hits);
	put_count(text, "get_misses", s->misses);
	put_count(text, "get_expired", s->expired_get);
	put_count(text, "delete_misses", s->delete_misses);
	put_count(text, "delete_hits", s->deletes);
	put_count(text, "incr_misses", s->incr_misses);
	put_count(text, "incr_hits", s->incr_hits);
	put_count(text, "decr_misses", s->decr_misses);
	put_count(text, "decr_hits", s->decr_hits);
	put_count(text, "cas_misses", s->cas_misses);
	put_count(text, "cas_hits", s->cas_ok);
	put_count(text, "cas_badval", s->cas_bad);
	put_count(text, "touch_hits", s->touches);
	put_count(text, "touch_misses", s->touch_misses);
	put_count(text, "store_too_large", s->too_big);
	put_count(text, "store_no_memory", s->no_memory);
}

static void put_store(struct text *text, const struct gn_kv_stats *s)
{
	unsigned power = 0;

	while (s->buckets >> power > 1)
		power++;
	put_count(text, "limit_maxbytes", s->memory);
	put_count(text, "hash_power_level", power);
	put_count(text, "hash_bytes", s->buckets * 64);
	put_count(text, "bytes", s->item_bytes);
	put_count(text, "curr_items", s->items);
	put_count(text, "total_items", s->stored);
	put_count(text, "expired_unfetched", s->expired_unfetched);
	put_count(text, "evicted_unfetched", s->evicted_unfetched);
	put_count(text, "evictions", evictions_of(s));
	put_count(text, "reclaimed", s->expired);
	put_count(text, "store_partitions", s->partitions);
	put_count(text, "store_uptime", s->uptime_s);
	put_count(text, "store_used", s->used);
	put_count(text, "store_moved", s->moved);
}

static void put_settings(struct text *text, const struct px_thread *t, const struct gn_kv_stats *s)
{
	put_count(text, "maxbytes", s->memory);
	put_count(text, "maxconns", t->proxy->conns_max);
	for (unsigned i = 0; i < t->proxy->n_listeners; i++)
		put_line(text, "inter", "%s", t->proxy->listeners[i].name);
	put_count(text, "verbosity", 0);
	put_line(text, "evictions", "on");
	put_line(text, "shutdown_command", "no");
	put_count(text, "num_threads", t->proxy->n_threads);
	put_line(text, "stat_key_prefix", ":");
	put_line(text, "detail_enabled", "%s", px_detail_on(t->proxy) ? "yes" : "no");
	put_line(text, "cas_enabled", "yes");
	put_line(text, "auth_enabled_sasl", "no");
	put_line(text, "auth_enabled_ascii", "no");
	put_count(text, "item_size_max", t->context.max_value);
	put_line(text, "hash_algorithm", "xxh3");
	put_line(text, "binding_protocol", "ascii");
	put_line(text, "flush_enabled", "yes");
	put_line(text, "dump_enabled", "yes");
	put_line(text, "track_sizes", "no");
	put_count(text, "idle_timeout", t->proxy->opts.idle_ms / 1000);
	put_line(text, "ssl_enabled", "no");
	put_line(text, "store", "%s", t->proxy->opts.server);
}

/* All items are of one class. */
static void put_items(struct text *text, const struct gn_kv_stats *s)
{
	if (!s->items)
		return;
	put_count(text, "items:1:number", s->items);
	put_count(text, "items:1:mem_requested", s->item_bytes);
	put_count(text, "items:1:evicted", evictions_of(s));
	put_count(text, "items:1:evicted_nonzero", s->evicted_ttl);
	put_count(text, "items:1:evicted_time", s->evicted_idle_s);
	put_count(text, "items:1:outofmemory", s->no_memory);
	put_count(text, "items:1:reclaimed", s->expired);
	put_count(text, "items:1:expired_unfetched", s->expired_unfetched);
	put_count(text, "items:1:evicted_unfetched", s->evicted_unfetched);
}

static void put_slabs(struct text *text, const struct gn_kv_stats *s)
{
	if (s->items) {
		put_count(text, "1:chunk_size", s->item_bytes / s->items); /* on average */
		put_count(text, "1:used_chunks", s->items);
		put_count(text, "1:mem_requested", s->item_bytes);
		put_count(text, "1:get_hits", s->hits);
		put_count(text, "1:cmd_set", s->sets);
		put_count(text, "1:delete_hits", s->deletes);
		put_count(text, "1:incr_hits", s->incr_hits);
		put_count(text, "1:decr_hits", s->decr_hits);
		put_count(text, "1:cas_hits", s->cas_ok);
		put_count(text, "1:cas_badval", s->cas_bad);
		put_count(text, "1:touch_hits", s->touches);
	}
	put_count(text, "active_slabs", s->items ? 1 : 0);
	put_count(text, "total_malloced", s->used);
}

/* ---- connections ---- */

/* A client chooses the path of its socket: it must not break another client's output into lines. */
static void keep_in_line(char *text)
{
	for (; *text; text++)
		if ((unsigned char)*text <= ' ' || *text == 0x7f)
			*text = '?';
}

/* As memcached writes addresses. */
static void format_address(int fd, bool peer, char out[ADDRESS_BYTES])
{
	struct sockaddr_storage a = {0};
	socklen_t len = sizeof(a);
	char host[INET6_ADDRSTRLEN] = "";

	if (peer ? getpeername(fd, (struct sockaddr *)&a, &len) :
		   getsockname(fd, (struct sockaddr *)&a, &len)) {
		snprintf(out, ADDRESS_BYTES, "?");
	} else if (a.ss_family == AF_INET) {
		const struct sockaddr_in *in = (const void *)&a;

		inet_ntop(AF_INET, &in->sin_addr, host, sizeof(host));
		snprintf(out, ADDRESS_BYTES, "tcp:%s:%u", host, ntohs(in->sin_port));
	} else if (a.ss_family == AF_INET6) {
		const struct sockaddr_in6 *in = (const void *)&a;

		inet_ntop(AF_INET6, &in->sin6_addr, host, sizeof(host));
		snprintf(out, ADDRESS_BYTES, "tcp6:[%s]:%u", host, ntohs(in->sin6_port));
	} else {
		snprintf(out, ADDRESS_BYTES, "unix:%.*s", (int)(len - sizeof(a.ss_family)),
			 ((const struct sockaddr_un *)(const void *)&a)->sun_path);
		keep_in_line(out);
	}
}

static void put_conn_line(struct text *text, int fd, const char *what, const char *value)
{
	char name[64];

	snprintf(name, sizeof(name), "%d:%s", fd, what);
	put_line(text, name, "%s", value);
}

static const char *conn_state_name(const struct px_conn *c)
{
	return c->out || c->mode == PX_MODE_DUMP ? "conn_mwrite" :
	       c->mode == PX_MODE_VALUE		 ? "conn_nread" :
	       c->mode == PX_MODE_SKIP		 ? "conn_swallow" :
	       c->slots || c->in_at < c->in_len	 ? "conn_parse_cmd" :
						   "conn_read";
}

/* Those of this thread, which are the ones that it may look at. */
static void put_conns(struct text *text, const struct px_thread *t)
{
	char where[ADDRESS_BYTES], seconds[24];

	for (unsigned i = 0; i < t->proxy->n_listeners; i++) {
		const int fd = t->proxy->listeners[i].fd;

		format_address(fd, false, where);
		put_conn_line(text, fd, "addr", where);
		put_conn_line(text, fd, "state", "conn_listening");
	}
	for (const struct px_conn *c = t->conns; c; c = c->next) {
		if (c->fd < 0)
			continue;
		format_address(c->fd, true, where);
		put_conn_line(text, c->fd, "addr", where);
		format_address(c->fd, false, where);
		put_conn_line(text, c->fd, "listen_addr", where);
		put_conn_line(text, c->fd, "state", conn_state_name(c));
		snprintf(seconds, sizeof(seconds), "%" PRIu64,
			 (t->now_ns - c->last_ns) / 1000000000u);
		put_conn_line(text, c->fd, "secs_since_last_cmd", seconds);
	}
}

/* ---- for Prometheus ---- */

void proxy_metrics(const struct proxy *p, struct prom *prom)
{
	struct px_counters c;

	px_sum(p, &c);
	prom_single(prom, PROM_GAUGE, "current_connections", "Connections now.",
		    c.came > c.gone ? c.came - c.gone : 0);
	prom_single(prom, PROM_GAUGE, "max_connections", "Connections that may be open at a time.",
		    p->conns_max);
	prom_single(prom, PROM_COUNTER, "connections_total", "Connections accepted.", c.came);
	prom_single(prom, PROM_COUNTER, "connections_rejected_total",
		    "Connections rejected because there were too many.",
		    __atomic_load_n(&p->rejected, __ATOMIC_RELAXED));
	prom_family(prom, PROM_COUNTER, "connections_closed_total",
		    "Connections closed by the proxy: for want of memory, or because the client "
		    "stalled or was idle.");
	prom_count(prom, &(struct prom_label){"reason", "memory"}, c.closed_slow);
	prom_count(prom, &(struct prom_label){"reason", "stalled"}, c.closed_stalled);
	prom_count(prom, &(struct prom_label){"reason", "idle"}, c.closed_idle);
	prom_single(prom, PROM_COUNTER, "commands_total", "Commands of clients.", c.commands);
	prom_single(prom, PROM_COUNTER, "received_bytes_total", "Bytes from clients.",
		    c.bytes_read);
	prom_single(prom, PROM_COUNTER, "sent_bytes_total", "Bytes to clients.", c.bytes_written);
	prom_single(prom, PROM_COUNTER, "values_asked_again_total",
		    "Values requested again from the store because the buffer was too small.",
		    c.rooms_short);
	prom_single(prom, PROM_COUNTER, "store_messages_total", "Messages to the store.",
		    c.messages);
	prom_single(prom, PROM_COUNTER, "store_waits_total",
		    "Sleeps of a thread until the store answers.", c.waits);
	prom_single(prom, PROM_GAUGE, "threads", "Threads that serve clients.", p->n_threads);
}

/* False: there is no such kind. */
static bool stats_fill(struct text *text, const char *which, const struct px_thread *t,
		       struct gn_kv_stats *s)
{
	struct px_counters sum;
	uint64_t rejected;

	since_reset(t->proxy, s, &sum, &rejected);
	if (!*which) {
		put_process(text, t);
		put_connections(text, t->proxy, &sum, rejected);
		put_commands(text, s);
		put_store(text, s);
	} else if (!strcmp(which, "settings")) {
		put_settings(text, t, s);
	} else if (!strcmp(which, "items")) {
		put_items(text, s);
	} else if (!strcmp(which, "slabs")) {
		put_slabs(text, s);
	} else if (!strcmp(which, "conns")) {
		put_conns(text, t);
	} else if (!strcmp(which, "sizes")) {
		put_line(text, "sizes_status", "disabled");
	} else {
		return false;
	}
	return true;
}

bool px_stats_local(struct px_slot *s, const char *which)
{
	struct proxy *p = s->conn->thread->proxy;
	const bool on = !strcmp(which, "detail on"), off = !strcmp(which, "detail off");

	if (on || off) {
		px_detail_switch(p, on);
		s->request.reply = "OK";
		return true;
	}
	if (strcmp(which, "detail dump"))
		return false;
	if (!px_detail_dump(s))
		s->request.reply = no_memory;
	return true;
}

/* Four lines for each connection; of anything else there is less. */
static uint32_t text_bytes(const char *which, const struct px_thread *t)
{
	uint64_t bytes = TEXT_BYTES;

	for (const struct px_conn *c = t->conns; c && !strcmp(which, "conns"); c = c->next)
		bytes += 4 * LINE_BYTES;
	return bytes < UINT32_MAX ? (uint32_t)bytes : UINT32_MAX;
}

void px_stats(struct px_slot *s, const char *which, const struct gn_kv_stats *stats)
{
	struct px_thread *t = s->conn->thread;
	struct gn_kv_stats counted = *stats;
	struct text text = {0};

	if (!strcmp(which, "reset")) {
		stats_reset(t->proxy, stats); /* for this proxy: others may count on the store's */
		s->request.reply = "RESET";
		return;
	}
	text.room = text_bytes(which, t);
	if (!px_slot_alloc(t, s, (uint32_t)text.room)) {
		s->request.reply = no_memory;
		return;
	}
	text.at = s->buf;
	if (!stats_fill(&text, which, t, &counted)) {
		s->request.reply = "ERROR";
		return;
	}
	memcpy(text.at + text.len, "END\r\n", 5);
	s->reply_bytes = (uint32_t)text.len + 5;
}
