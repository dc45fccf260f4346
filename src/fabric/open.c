/* SPDX-License-Identifier: MIT */
/* Opens a provider by name; contexts. */
#include "base/fail.h"
#include "base/sized.h"
#include "fabric/fabric.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define MAGIC_FABRIC 0x67634300u

static const struct provider *const providers[] = {&provider_shm, &provider_verbs, &provider_sim};

static int find_provider(const char *name, const struct provider **out, const char **device)
{
	for (size_t i = 0; i < sizeof(providers) / sizeof(providers[0]); i++) {
		const size_t len = strlen(providers[i]->name);

		if (strncmp(name, providers[i]->name, len) || (name[len] && name[len] != ':'))
			continue;
		*out = providers[i];
		*device = name[len] ? name + len + 1 : "";
		return 0;
	}
	return gn_fail_log(-EINVAL,
			   "fabric: unknown provider '%s'; known: shm, verbs[:DEVICE] and sim:NODE",
			   name);
}

int gn_fabric_open(const char *name, struct gn_fabric **out)
{
	const unsigned failures_before = gn_fail_count();
	const struct provider *provider = NULL;
	struct gn_fabric *fabric;
	const char *device = NULL;
	int rc;

	if (!name || !out)
		return gn_fail(-EINVAL, "gn_fabric_open(): name is NULL, or out is NULL");
	rc = find_provider(name, &provider, &device);
	if (rc)
		return rc;
	if (exec_current() != &exec_real && provider != &provider_sim)
		return gn_fail_log(-EOPNOTSUPP,
				   "fabric: '%s' is outside the simulation; open gn_env.fabric",
				   name);

	assert(!provider->fabric_size || provider->fabric_size >= sizeof(*fabric));
	fabric = gn_alloc(provider->fabric_size ? provider->fabric_size : sizeof(*fabric),
			  GN_CACHELINE);
	if (!fabric)
		return -ENOMEM;
	fabric->provider = gn_alloc(sizeof(*fabric->provider), GN_CACHELINE);
	if (!fabric->provider) {
		rc = -ENOMEM;
		goto free_fabric;
	}
	provider_fill(fabric->provider, provider);
	fabric->magic = MAGIC_FABRIC;
	gn_mutex_init(&fabric->lock);
	strncpy(fabric->attr.provider, provider->name, sizeof(fabric->attr.provider) - 1);
	rc = fabric->provider->open(fabric, device);
	if (rc) {
		gn_fail_since(failures_before, rc, name);
		goto fini_lock;
	}
	*out = fabric;
	return 0;
fini_lock:
	gn_mutex_fini(&fabric->lock);
	gn_free(fabric->provider);
free_fabric:
	gn_free(fabric);
	return rc;
}

int fabric_check(const struct gn_fabric *fabric)
{
	if (fabric && fabric->magic == MAGIC_FABRIC)
		return 0;
	return gn_fail_log(-EINVAL, "fabric: the pointer is not a fabric");
}

int gn_fabric_close(struct gn_fabric *fabric)
{
	int rc;

	if (!fabric)
		return 0;
	rc = fabric_check(fabric);
	if (rc)
		return rc;
	for (int type = 0; type < OBJ_TYPES; type++)
		if (fabric->pool[type].live) {
			gn_log(GN_LOG_WARN, "fabric: the fabric still has objects");
			return gn_fail(-EBUSY,
				       "gn_fabric_close(): destroy the fabric's objects first");
		}
	for (int type = 0; type < OBJ_TYPES; type++)
		for (struct obj *obj = fabric->pool[type].dead_first, *next; obj; obj = next) {
			next = obj->next;
			gn_free(obj);
		}
	fabric->provider->close(fabric);
	gn_mutex_fini(&fabric->lock);
	fabric->magic = 0;
	gn_free(fabric->provider);
	gn_free(fabric);
	return 0;
}

int gn_fabric_query(const struct gn_fabric *fabric, struct gn_attr *out)
{
	int rc = fabric_check(fabric);

	return rc ? rc : SIZED_WRITE(out, &fabric->attr, "gn_attr");
}

int gn_ctx_create(struct gn_fabric *fabric, struct gn_ctx **out)
{
	const unsigned failures_before = gn_fail_count();
	struct gn_ctx *ctx;
	int rc = fabric_check(fabric);

	if (rc)
		return rc;
	if (!out)
		return gn_fail(-EINVAL, "gn_ctx_create(): out is NULL");
	rc = obj_create(fabric, OBJ_CTX, sizeof(*ctx), &ctx);
	if (rc)
		return rc;
	gn_mutex_init(&ctx->lock);
	rc = fabric->provider->ctx_init(ctx);
	if (rc) {
		gn_mutex_fini(&ctx->lock);
		obj_destroy(&ctx->obj);
		return gn_fail_since(failures_before, rc, "gn_ctx_create()");
	}
	*out = ctx;
	return 0;
}

int gn_ctx_destroy(struct gn_ctx *ctx)
{
	int rc;

	if (!ctx)
		return 0;
	rc = obj_check_idle(ctx, OBJ_CTX);
	if (rc)
		return rc;
	ctx->obj.fabric->provider->ctx_fini(ctx);
	gn_mutex_fini(&ctx->lock);
	obj_destroy(&ctx->obj);
	return 0;
}
