/* SPDX-License-Identifier: MIT */
/* Stands in until the layer is there. */
#include <errno.h>

#include "gannet/msg.h"

const char *gn_msg_protocol_str(unsigned p)
{
	(void)p;
	return "?";
}
int gn_msg_protocol_parse(const char *t, enum gn_msg_protocol *o)
{
	(void)t, (void)o;
	return -ENOSYS;
}
const char *gn_msg_status_str(unsigned s)
{
	(void)s;
	return "?";
}
int gn_msg_responder_create(struct gn_fabric *f, const char *a,
			    const struct gn_msg_responder_opts *o, struct gn_msg_responder **r)
{
	(void)f, (void)a, (void)o, (void)r;
	return -ENOSYS;
}
void gn_msg_responder_destroy(struct gn_msg_responder *r)
{
	(void)r;
}
int gn_msg_respond(struct gn_msg_responder *r, uint64_t d)
{
	(void)r, (void)d;
	return -ENOSYS;
}
unsigned gn_msg_responder_conns(const struct gn_msg_responder *r)
{
	(void)r;
	return 0;
}
void gn_msg_responder_stats(const struct gn_msg_responder *r, struct gn_msg_stats *o)
{
	(void)r, (void)o;
}
int gn_msg_requester_create(struct gn_fabric *f, const struct gn_msg_requester_opts *o,
			    struct gn_msg_requester **r)
{
	(void)f, (void)o, (void)r;
	return -ENOSYS;
}
void gn_msg_requester_destroy(struct gn_msg_requester *r)
{
	(void)r;
}
int gn_msg_connect(struct gn_msg_requester *r, const char *a, const char **w,
		   struct gn_msg_conn **o)
{
	(void)r, (void)a, (void)w, (void)o;
	return -ENOSYS;
}
void gn_msg_disconnect(struct gn_msg_conn *c)
{
	(void)c;
}
uint64_t gn_msg_data_bytes(const struct gn_msg_conn *c)
{
	(void)c;
	return 0;
}
uint32_t gn_msg_pending(const struct gn_msg_conn *c)
{
	(void)c;
	return 0;
}
int gn_msg_ask(struct gn_msg_conn *c, const void *r, uint32_t l, uint64_t i)
{
	(void)c, (void)r, (void)l, (void)i;
	return -ENOSYS;
}
int gn_msg_read(struct gn_msg_conn *c, uint64_t o, uint32_t l, uint64_t i)
{
	(void)c, (void)o, (void)l, (void)i;
	return -ENOSYS;
}
int gn_msg_flush(struct gn_msg_requester *r)
{
	(void)r;
	return -ENOSYS;
}
int gn_msg_take(struct gn_msg_requester *r, struct gn_msg_result *o, unsigned n, uint64_t d)
{
	(void)r, (void)o, (void)n, (void)d;
	return -ENOSYS;
}
void gn_msg_requester_stats(const struct gn_msg_requester *r, struct gn_msg_stats *o)
{
	(void)r, (void)o;
}
