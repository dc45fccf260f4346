/* SPDX-License-Identifier: MIT */
/* To come. */
#include <errno.h>
#include "gannet/rpc.h"
#define NOT(name, ...) int name(__VA_ARGS__) { return -EOPNOTSUPP; }
#pragma GCC diagnostic ignored "-Wunused-parameter"
NOT(gn_rpc_server_poll, struct gn_rpc_server *s)
NOT(gn_rpc_server_wait, struct gn_rpc_server *s, uint64_t d)
NOT(gn_rpc_server_drain, struct gn_rpc_server *s, uint64_t d)
void gn_rpc_answer_mem(struct gn_rpc_request *r, unsigned st, struct gn_mem *m, size_t o, uint32_t l, void (*f)(void *), void *a) { gn_rpc_answer(r, st, (char *)gn_mem_addr(m) + o, l); if (f) f(a); }
NOT(gn_rpc_reconnect, struct gn_rpc_client *c)
NOT(gn_rpc_call_all, struct gn_rpc_client *c, struct gn_rpc_op *o, unsigned n)
NOT(gn_rpc_flush, struct gn_rpc_client *c)
NOT(gn_rpc_client_send, struct gn_rpc_client *c, const void *b, uint32_t n)
NOT(gn_rpc_client_recv, struct gn_rpc_client *c, void *b, uint32_t n, uint64_t d)
NOT(gn_rpc_server_recv, struct gn_rpc_server *s, uint64_t *c, void *b, uint32_t n, uint64_t d)
NOT(gn_rpc_server_send, struct gn_rpc_server *s, uint64_t c, const void *b, uint32_t n)
void *gn_rpc_buf_alloc(struct gn_fabric *f, size_t n) { return NULL; }
void gn_rpc_buf_free(void *b) {}
NOT(gn_rpc_choice, const struct gn_rpc_client *c, unsigned m, struct gn_rpc_choice *o)
NOT(gn_rpc_client_metrics, const struct gn_rpc_client *c, enum gn_rpc_format f, char *b, size_t n)
NOT(gn_rpc_server_metrics, struct gn_rpc_server *c, enum gn_rpc_format f, char *b, size_t n)
