/* SPDX-License-Identifier: MIT */
/*
 * gannet kv, and what its commands share: the store's address, operations that an interrupt ends,
 * and error messages.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "kv_cmd.h"
#include "rpc_cmd.h"

#define TIMEOUT_MS_MAX 3600000u
#define LOOK_US	       50000u /* between looks for an interrupt */

static const struct command *const kv_commands[] = {
	&command_kv_serve, &command_kv_get,   &command_kv_set,	 &command_kv_del,
	&command_kv_incr,  &command_kv_decr,  &command_kv_touch, &command_kv_keys,
	&command_kv_clear, &command_kv_proxy, &command_kv_stats, NULL,
};

const struct command command_kv = {
	.name = "kv",
	.what = "a key-value store: gannet kv serve, get, set, del, proxy, stats, …",
	.about = "A key-value store whose clients fetch; gannet/kv.h has it for programs.",
	.more = "Keys have 1 to 250 bytes, values up to 1 MiB. What was used least recently is "
		"forgotten when memory is short, and everything when the server ends.",
	.commands = kv_commands,
};

/* ---- options ---- */

static const char *const modes[] = {
	[GN_RPC_HYBRID] = "hybrid",  [GN_RPC_FETCH] = "fetch", [GN_RPC_REPLY] = "reply",
	[KV_MODE_BYPASS] = "bypass", [KV_MODE_ANY] = NULL,
};

const struct opt kv_target_options[] = {
	OPT_SERVER(struct kv_target, addr),
	{OPT_CHOICE, "mode", "M",
	 "hybrid, fetch or reply: call, and get results so; bypass: read values",
	 "bypass if the server has it, else hybrid", .to = offsetof(struct kv_target, mode),
	 .choices = modes},
	{OPT_U32, "timeout-ms", "N", "to connect, and for the answer",
	 .to = offsetof(struct kv_target, timeout_ms), RANGE(1, TIMEOUT_MS_MAX)},
	{.type = OPT_END},
};

int kv_check_keys(char **keys, int n)
{
	for (int i = 0; i < n; i++) {
		const size_t len = strlen(keys[i]);

		if (len < 1 || len > GN_KV_KEY_MAX)
			return cmd_usage_error("a key must have 1 to %u bytes, not %zu",
					       GN_KV_KEY_MAX, len);
	}
	return 0;
}

uint64_t kv_deadline(const struct kv_target *target)
{
	return gn_deadline_us((uint64_t)target->timeout_ms * 1000);
}

/* ---- a connection ---- */

int kv_link_open(struct kv_link *link, const struct kv_target *target)
{
	const bool bypass = target->mode == KV_MODE_BYPASS;
	/* A way to get results is one of calls. */
	const bool calls = target->mode < KV_MODE_BYPASS;
	const struct gn_kv_client_opts opts = {
		.size = sizeof(opts),
		.flags = GN_KV_RECONNECT | (calls ? GN_KV_CALL_ONLY : 0u),
		.rpc.mode = calls ? (enum gn_rpc_mode)target->mode : GN_RPC_HYBRID,
		.rpc.timeout_us = (uint64_t)target->timeout_ms * 1000,
	};
	int rc;

	*link = (struct kv_link){.target = target};
	rc = rpc_open(target->addr, &link->fabric);
	if (rc)
		return rc;
	link->limits.size = sizeof(link->limits);
	rc = gn_kv_client_open(link->fabric, target->addr, &opts, &link->client);
	if (!rc)
		rc = gn_kv_client_limits(link->client, &link->limits);
	if (rc) {
		cmd_connect_failed(target->addr, rc, "gannet kv serve");
	} else if (bypass && !link->limits.bypass) {
		fprintf(stderr,
			"gannet: clients of %s cannot bypass it; it must be started with "
			"gannet kv serve --mode bypass\n",
			target->addr);
		rc = -EOPNOTSUPP;
	} else {
		bench_stop_on_signals(); /* until here a signal may end the process as it likes */
		return 0;
	}
	kv_link_close(link);
	return rc;
}

void kv_link_close(struct kv_link *link)
{
	gn_kv_client_close(link->client);
	gn_fabric_close(link->fabric);
	*link = (struct kv_link){.target = link->target};
}

static void kv_count_down(struct gn_kv_op *op)
{
	--*(unsigned *)op->arg;
}

/* At least one more has ended, unless it is time to look for an interrupt. */
static int kv_backoff(struct kv_link *link)
{
	const int rc = gn_kv_wait(link->client, gn_deadline_us(LOOK_US));

	if (bench_stopped())
		return -EINTR;
	return rc == -ETIMEDOUT || rc == -EINTR || rc > 0 ? 0 : rc;
}

int kv_link_do(struct kv_link *link, struct gn_kv_op *ops, unsigned n)
{
	const uint64_t deadline_ns = kv_deadline(link->target);
	unsigned left = n, begun = 0;
	int rc = 0;

	while (!rc && left) {
		if (begun == n) {
			rc = kv_backoff(link);
			continue;
		}
		ops[begun].deadline_ns = deadline_ns;
		ops[begun].done = kv_count_down;
		ops[begun].arg = &left;
		rc = gn_kv_submit(link->client, &ops[begun]);
		if (!rc)
			begun++;
		else if (rc == -EAGAIN)
			rc = kv_backoff(link);
	}
	if (rc && rc != -EINTR)
		fprintf(stderr, "gannet: %s: %s\n", link->target->addr, gn_strerror(rc));
	if (rc)
		kv_link_close(link); /* all that were begun end, while left is still there */
	return rc;
}

/* ---- output ---- */

int kv_leave(struct kv_link *link, int rc, bool failed)
{
	const int status = cmd_flush_stdout();

	kv_link_close(link);
	if (rc)
		return rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	return status ? status : failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

bool kv_tell(const struct gn_kv_op *op)
{
	if (op->status != GN_KV_OK)
		fprintf(stderr, "gannet: %.*s: %s\n", (int)op->key_len, (const char *)op->key,
			gn_kv_status_str(op->status));
	return op->status == GN_KV_OK;
}

/* How many bytes the character has, 0 if it is no UTF-8: shortest forms, no surrogates. */
static uint32_t utf8_bytes(const uint8_t *p, uint32_t len)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const uint32_t n = p[0] < 0x80	     ? 1 :
			   p[0] >> 5 == 0x06 ? 2 :
			   p[0] >> 4 == 0x0e ? 3 :
			   p[0] >> 3 == 0x1e ? 4 :
					       0;
	uint32_t c = n > 1 ? p[0] & (0x7fu >> n) : p[0];

	if (!n || n > len)
		return 0;
	for (uint32_t i = 1; i < n; i++) {
		if (p[i] >> 6 != 2)
			return 0;
		c = c << 6 | (p[i] & 0x3f);
	}
	return c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : n;
}

static bool is_utf8(const uint8_t *p, uint32_t len)
{
	for (uint32_t n, i = 0; i < len; i += n) {
		n = utf8_bytes(p + i, len - i);
		if (!n)
			return false;
	}
	return true;
}

void kv_json_bytes(FILE *f, const char *name, const void *bytes, uint32_t len)
{
	const uint8_t *p = bytes;
	const bool text = is_utf8(p, len);

	fprintf(f, "\"%s%s\":\"", name, text ? "" : "_hex");
	for (uint32_t i = 0; i < len; i++) {
		if (!text)
			fprintf(f, "%02x", p[i]);
		else if (p[i] == '"' || p[i] == '\\')
			fprintf(f, "\\%c", p[i]);
		else if (p[i] < 0x20)
			fprintf(f, "\\u%04x", p[i]);
		else
			fputc(p[i], f);
	}
	fputs("\",", f);
}
