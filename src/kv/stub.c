/* SPDX-License-Identifier: MIT */
/* Stands in until it is written. */
#include <errno.h>
#include <gannet/kv.h>
#pragma GCC diagnostic ignored "-Wunused-parameter"
int gn_kv_server_create(struct gn_fabric *fabric, const char *addr,
			const struct gn_kv_server_opts *opts, struct gn_kv_server **out)
{
	return -ENOSYS;
}
int gn_kv_server_start(struct gn_kv_server *server)
{
	return -ENOSYS;
}
int gn_kv_server_drain(struct gn_kv_server *server, uint64_t deadline_ns)
{
	return -ENOSYS;
}
void gn_kv_server_destroy(struct gn_kv_server *server)
{
}
struct gn_rpc_server *gn_kv_server_rpc(struct gn_kv_server *server)
{
	return NULL;
}
int gn_kv_connect(struct gn_fabric *fabric, const char *addr, const struct gn_kv_client_opts *opts,
		  struct gn_kv_client **out)
{
	return -ENOSYS;
}
int gn_kv_close(struct gn_kv_client *client)
{
	return -ENOSYS;
}
int gn_kv_limits(const struct gn_kv_client *client, struct gn_kv_limits *out)
{
	return -ENOSYS;
}
int gn_kv_do(struct gn_kv_client *client, struct gn_kv_op *ops, unsigned n, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_submit(struct gn_kv_client *client, struct gn_kv_op *op)
{
	return -ENOSYS;
}
int gn_kv_flush(struct gn_kv_client *client)
{
	return -ENOSYS;
}
int gn_kv_poll(struct gn_kv_client *client)
{
	return -ENOSYS;
}
int gn_kv_wait(struct gn_kv_client *client, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_get(struct gn_kv_client *client, const void *key, uint32_t key_len, void *room,
	      uint32_t room_bytes, uint32_t *len, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_set(struct gn_kv_client *client, const void *key, uint32_t key_len, const void *value,
	      uint32_t value_len, uint32_t ttl_s, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_del(struct gn_kv_client *client, const void *key, uint32_t key_len, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_clear(struct gn_kv_client *client, uint32_t delay_s, uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_stats(struct gn_kv_client *client, uint32_t partition, struct gn_kv_stats *out,
		uint64_t deadline_ns)
{
	return -ENOSYS;
}
int gn_kv_counters(const struct gn_kv_client *client, struct gn_kv_counters *out)
{
	return -ENOSYS;
}
struct gn_rpc_client *gn_kv_rpc(const struct gn_kv_client *client, uint32_t partition)
{
	return NULL;
}
