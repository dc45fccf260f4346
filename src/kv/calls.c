/* SPDX-License-Identifier: MIT */
/* Synchronous calls for the common operations; limits, statistics and counters of a client. */
#include <errno.h>

#include "base/deadline.h"
#include "base/fail.h"
#include "base/sized.h"
#include "kv/client.h"

static int status_to_error(const struct gn_kv_client *c, unsigned status)
{
	static const int errors[GN_KV_STATUSES] = {
		[GN_KV_MISS] = -ENOENT,	      [GN_KV_EXISTS] = -EEXIST,
		[GN_KV_NOT_STORED] = -EEXIST, [GN_KV_NOT_NUMBER] = -EINVAL,
		[GN_KV_TOO_BIG] = -EFBIG,     [GN_KV_NO_MEMORY] = -ENOMEM,
		[GN_KV_INVALID] = -EINVAL,    [GN_KV_TIMEOUT] = -ETIMEDOUT,
		[GN_KV_GONE] = -ENOTCONN,     [GN_KV_BUSY] = -EBUSY,
		[GN_KV_FAILED] = -EIO,
	};

	if (status == GN_KV_GONE)
		return gn_fail(-ENOTCONN, KV_DISCONNECTED, c->addr);
	return status == GN_KV_OK ? 0 : gn_fail_text(errors[status], gn_kv_status_str(status));
}

int kv_do_one(struct gn_kv_client *client, struct gn_kv_op *op, uint64_t deadline_ns)
{
	int rc = gn_kv_do(client, op, 1, deadline_ns);

	return rc ? rc : status_to_error(client, op->status);
}

int gn_kv_get(struct gn_kv_client *client, const void *key, uint32_t key_len, void *room,
	      uint32_t room_bytes, uint32_t *len, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_GET,
			      .key = key,
			      .key_len = key_len,
			      .room = room,
			      .room_bytes = room_bytes};
	int rc = kv_do_one(client, &op, deadline_ns);

	if (len)
		*len = op.len;
	return rc;
}

int gn_kv_set(struct gn_kv_client *client, const void *key, uint32_t key_len, const void *value,
	      uint32_t value_len, uint32_t ttl_s, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_SET,
			      .key = key,
			      .key_len = key_len,
			      .value = value,
			      .value_len = value_len,
			      .ttl_s = ttl_s};

	return kv_do_one(client, &op, deadline_ns);
}

int gn_kv_del(struct gn_kv_client *client, const void *key, uint32_t key_len, uint64_t deadline_ns)
{
	struct gn_kv_op op = {.verb = GN_KV_DELETE, .key = key, .key_len = key_len};

	return kv_do_one(client, &op, deadline_ns);
}

int gn_kv_clear(struct gn_kv_client *client, uint32_t delay_s, uint64_t deadline_ns)
{
	const struct kv_clear clear = {.delay_s = delay_s};
	int rc = kv_client_check(client);

	deadline_ns = deadline_given(deadline_ns);
	if (!rc)
		rc = kv_client_ensure_connected(client, deadline_ns);
	for (uint32_t i = 0; !rc && i < client->n_links; i++)
		rc = kv_client_call(client, i, KV_CLEAR, &clear, sizeof(clear), NULL, 0,
				    deadline_ns);
	return rc;
}

/* All members are sums, except these two. */
void kv_stats_sum(struct gn_kv_stats *to, const struct gn_kv_stats *what)
{
	const uint64_t idle_s = to->evicted_idle_s > what->evicted_idle_s ? to->evicted_idle_s :
									    what->evicted_idle_s;

#define KV_STATS_ADD(field) to->field += what->field;
	KV_STATS_FIELDS(KV_STATS_ADD)
	to->evicted_idle_s = idle_s;
	to->uptime_s = what->uptime_s;
}

int gn_kv_client_stats(struct gn_kv_client *client, uint32_t partition, struct gn_kv_stats *out,
		       uint64_t deadline_ns)
{
	struct gn_kv_stats sum = {.size = sizeof(sum)};
	int rc = kv_client_check(client);

	if (rc)
		return rc;
	deadline_ns = deadline_given(deadline_ns);
	rc = kv_client_ensure_connected(client, deadline_ns);
	if (!rc && partition != GN_KV_ALL && partition >= client->n_links)
		rc = gn_fail(-EINVAL, "gn_kv_client_stats(): partition %u of %u", partition,
			     client->n_links);
	for (uint32_t i = 0; !rc && i < client->n_links; i++) {
		uint64_t words[KV_STATS_WORDS];
		struct gn_kv_stats one = {.size = sizeof(one)};

		if (partition != GN_KV_ALL && partition != i)
			continue;
		rc = kv_client_call(client, i, KV_STATS, NULL, 0, words, sizeof(words),
				    deadline_ns);
		if (rc)
			break;
		kv_stats_read(words, &one);
		kv_stats_sum(&sum, &one);
	}
	return rc ? rc : SIZED_WRITE(out, &sum, "gn_kv_stats");
}

int gn_kv_client_limits(const struct gn_kv_client *client, struct gn_kv_limits *out)
{
	struct gn_kv_limits limits = {.size = sizeof(limits)};
	int rc = kv_client_check(client);

	if (rc)
		return rc;
	limits = (struct gn_kv_limits){.size = sizeof(struct gn_kv_limits),
				       .partitions = client->layout.partitions,
				       .max_value = client->layout.max_value,
				       .bypass = kv_client_bypasses(client)};
	return SIZED_WRITE(out, &limits, "gn_kv_limits");
}

uint64_t kv_link_messages(const struct kv_link *link)
{
	struct gn_rpc_counters count = {.size = sizeof(count)};

	return link->rpc && !gn_rpc_client_counters(link->rpc, &count) ? count.batches : 0;
}

int gn_kv_client_counters(const struct gn_kv_client *client, struct gn_kv_counters *out)
{
	struct gn_kv_counters count;
	int rc = kv_client_check(client);

	if (rc)
		return rc;
	count = client->count;
	count.size = sizeof(count);
	for (uint32_t i = 0; i < client->n_links; i++)
		count.messages += kv_link_messages(&client->links[i]);
	return SIZED_WRITE(out, &count, "gn_kv_counters");
}

struct gn_rpc_client *gn_kv_client_rpc(const struct gn_kv_client *client, uint32_t partition)
{
	return kv_client_check(client) || partition >= client->n_links ?
		       NULL :
		       client->links[partition].rpc;
}
