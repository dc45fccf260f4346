/* SPDX-License-Identifier: MIT */
/*
 * gannet rpc call: one call. The result's bytes go to stdout as they are, everything else to
 * stderr.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "rpc_cmd.h"

#define TIMEOUT_MS_DEFAULT 5000u
#define TIMEOUT_MS_MAX	   3600000u
#define HEX_COLUMNS	   32u

#define AT(member) .to = offsetof(struct request, member)

struct request {
	const char *addr;
	unsigned method;
	const char *data, *file;
	enum gn_rpc_mode mode;
	uint32_t timeout_ms;
	bool hex;
	uint8_t *bytes;
	uint32_t len;
};

static const struct opt options[] = {
	OPT_SERVER(struct request, addr),
	{OPT_TEXT, "data", "TEXT",
	 "the request; else it is read from stdin, unless that is a terminal", AT(data)},
	{OPT_TEXT, "file", "F", "the request is what is in there, to 64M", AT(file)},
	{OPT_CHOICE, "mode", "M",
	 "fetch: read the result from the server's memory; reply: have it written to ours; hybrid",
	 AT(mode), .choices = rpc_modes},
	{OPT_U32, "timeout-ms", "N", "to connect, and for the call, each", AT(timeout_ms),
	 RANGE(1, TIMEOUT_MS_MAX)},
	{OPT_FLAG, "hex", NULL, "the result as hexadecimal digits", AT(hex)},
	{.type = OPT_END},
};

/* ---- the request ---- */

static int rpc_call_read_input(struct request *r)
{
	const char *name = r->file ? r->file : "stdin";
	int fd = STDIN_FILENO, rc;

	if (!r->file && (r->data || isatty(STDIN_FILENO))) {
		r->bytes = (uint8_t *)strdup(r->data ? r->data : "");
		r->len = r->data ? (uint32_t)strlen(r->data) : 0;
		return r->bytes ? 0 : -ENOMEM;
	}
	if (r->file)
		fd = open(r->file, O_RDONLY | O_CLOEXEC);
	rc = fd < 0 ? -errno : cmd_read_all(fd, GN_RPC_LARGE_MAX, &r->bytes, &r->len);
	if (fd > STDIN_FILENO)
		close(fd);
	if (rc == -EFBIG)
		fprintf(stderr, "gannet: %s has more than 64 MiB, which a call can carry\n", name);
	else if (rc)
		fprintf(stderr, "gannet: cannot read %s: %s\n", name, gn_strerror(rc));
	return rc;
}

/* ---- the call ---- */

static void rpc_call_print_hex(const uint8_t *bytes, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		printf("%02x", bytes[i]);
		if (i + 1 == len || i % HEX_COLUMNS == HEX_COLUMNS - 1)
			putchar('\n');
	}
}

static void rpc_call_report(const struct gn_rpc_op *op, uint64_t took_ns)
{
	if (op->status == GN_RPC_TOO_BIG)
		fprintf(stderr, "%s: %u bytes of result\n", rpc_status_text(op->status),
			op->result_len);
	else
		fprintf(stderr, "%s: %u bytes in %.1f us\n", rpc_status_text(op->status),
			op->result_len, (double)took_ns / 1000);
}

static int rpc_call_once(const struct request *r, struct rpc_link *link)
{
	struct gn_rpc_op op = {.method = r->method,
			       .request = r->bytes,
			       .request_len = r->len,
			       .result_room = link->limits.max_large};
	const uint64_t since_ns = gn_now_ns();
	int rc;

	/* As large as results get: what is not written to costs nothing. */
	op.result = malloc(op.result_room);
	rc = op.result ? rpc_link_call(link, &op, r->timeout_ms) : -ENOMEM;
	if (!rc) {
		const bool has = op.status == GN_RPC_OK || op.status >= GN_RPC_FAILED;

		rpc_call_report(&op, gn_now_ns() - since_ns);
		if (has && r->hex)
			rpc_call_print_hex(op.result, op.result_len);
		else if (has)
			fwrite(op.result, 1, op.result_len, stdout);
		rc = cmd_flush_stdout();
		rc = rc ? rc : op.status == GN_RPC_OK ? EXIT_SUCCESS : EXIT_FAILURE;
	} else {
		rc = rc == -EINTR ? EXIT_INTERRUPTED : EXIT_FAILURE;
	}
	free(op.result);
	return rc;
}

static int rpc_call_run(const struct args *args)
{
	struct gn_rpc_client_opts client = {.size = sizeof(client)};
	struct request *r = args->opts;
	struct rpc_link link;
	int status = rpc_parse_method(args->words[0], &r->method), rc;

	if (status)
		return status;
	if (r->data && r->file)
		return cmd_usage_error("--data and --file: the request is one or the other");
	rc = rpc_call_read_input(r);
	client.mode = r->mode;
	client.timeout_us = (uint64_t)r->timeout_ms * 1000;
	if (!rc)
		rc = rpc_link_open(&link, r->addr, &client);
	if (!rc) {
		status = rpc_call_once(r, &link);
		rpc_link_close(&link);
	} else {
		status = EXIT_FAILURE;
	}
	free(r->bytes);
	return status;
}

const struct command command_rpc_call = {
	.name = "call",
	.what = "one call, of any server",
	.about = "Calls METHOD, and writes the result to stdout unchanged; the status of the call "
		 "goes to stderr. METHOD is a number, or a name that gannet rpc serve --help "
		 "lists. The exit status is 0 only if the call's is ok.",
	.run = rpc_call_run,
	.words = "METHOD",
	.min_words = 1,
	.max_words = 1,
	OPTIONS(options, struct request, .timeout_ms = TIMEOUT_MS_DEFAULT),
};
