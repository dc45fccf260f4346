/* SPDX-License-Identifier: MIT */
/*
 * The methods of gannet rpc serve: what one needs to try calls, results of every size and time, and
 * every status. Arguments are text.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "rpc_cmd.h"

#define WORK_US_MAX 10000000u

static void service_refuse(struct gn_rpc_request *request, const char *why)
{
	gn_rpc_answer(request, GN_RPC_FAILED, why, (uint32_t)strlen(why));
}

/* The request as a number of up to max, which is copied first; false: it was refused. */
static bool service_number(struct gn_rpc_request *request, uint32_t max, uint32_t *out)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);
	char text[32], *end;
	unsigned long long n;

	len = len < sizeof(text) - 1 ? len : sizeof(text) - 1;
	memcpy(text, data, len);
	text[len] = '\0';
	text[strcspn(text, "\n")] = '\0'; /* as a shell's echo ends it */
	errno = 0;
	n = strtoull(text, &end, 10);
	if (*end == 'K' || *end == 'M')
		n = n > max ? n : n << (*end++ == 'K' ? 10 : 20);
	if (!isdigit((unsigned char)text[0]) || *end || errno || n > max) {
		char why[64];

		snprintf(why, sizeof(why), "not a number from 0 to %u\n", max);
		service_refuse(request, why);
		return false;
	}
	*out = (uint32_t)n;
	return true;
}

static void service_echo(struct gn_rpc_request *request, void *arg)
{
	uint32_t len;
	const void *data = gn_rpc_request_data(request, &len);

	(void)arg;
	gn_rpc_answer(request, GN_RPC_OK, data, len);
}

/* In room of its own if it is too long for the request's. */
static void service_upper(struct gn_rpc_request *request, void *arg)
{
	uint32_t len, room;
	const uint8_t *data = gn_rpc_request_data(request, &len);
	uint8_t *to = gn_rpc_request_room(request, &room), *own = NULL;

	(void)arg;
	if (!to || room < len)
		to = own = malloc(len);
	if (!to && len)
		return gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	for (uint32_t i = 0; i < len; i++)
		to[i] = (uint8_t)toupper(data[i]);
	gn_rpc_answer(request, GN_RPC_OK, to, len);
	free(own);
}

static void service_time(struct gn_rpc_request *request, void *arg)
{
	struct timespec now;
	struct tm tm;
	char text[64], zone[8];
	int n;

	(void)arg;
	clock_gettime(CLOCK_REALTIME, &now);
	localtime_r(&now.tv_sec, &tm);
	strftime(zone, sizeof(zone), "%z", &tm);
	n = snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%09ld%s\n",
		     tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
		     now.tv_nsec, zone);
	gn_rpc_answer(request, GN_RPC_OK, text, (uint32_t)n);
}

static void service_work(struct gn_rpc_request *request, void *arg)
{
	const uint64_t since_ns = gn_now_ns();
	uint32_t us;

	(void)arg;
	if (!service_number(request, WORK_US_MAX, &us))
		return;
	while (gn_now_ns() - since_ns < us * 1000ull)
		;
	gn_rpc_answer(request, GN_RPC_OK, NULL, 0);
}

static void service_blob(struct gn_rpc_request *request, void *arg)
{
	uint8_t *bytes;
	uint32_t n;

	(void)arg;
	if (!service_number(request, GN_RPC_LARGE_MAX, &n))
		return;
	bytes = malloc((size_t)n + 1);
	if (!bytes)
		return gn_rpc_answer(request, GN_RPC_BUSY, NULL, 0);
	for (uint32_t i = 0; i < n; i++)
		bytes[i] = (uint8_t)('a' + i % 26);
	gn_rpc_answer(request, GN_RPC_OK, bytes, n);
	free(bytes);
}

static void service_status(struct gn_rpc_request *request, void *arg)
{
	uint32_t n;

	(void)arg;
	if (service_number(request, UINT16_MAX, &n))
		gn_rpc_answer(request, n, NULL, 0);
}

const struct rpc_method rpc_methods[] = {
	{"echo", 0, service_echo},
	{"upper", 1, service_upper},
	{"time", 2, service_time},
	{"work", 3, service_work},
	{"blob", 4, service_blob},
	{"status", 5, service_status},
	{"ping", GN_RPC_PING, NULL},
	{"stats-json", GN_RPC_STATS_JSON, NULL},
	{"stats-prometheus", GN_RPC_STATS_PROMETHEUS, NULL},
};
const unsigned rpc_n_methods = sizeof(rpc_methods) / sizeof(rpc_methods[0]);

int rpc_parse_method(const char *text, unsigned *out)
{
	uint32_t number = 0;
	int rc;

	for (unsigned i = 0; i < rpc_n_methods; i++) {
		if (!strcmp(text, rpc_methods[i].name)) {
			*out = rpc_methods[i].number;
			return 0;
		}
	}
	if (!isdigit((unsigned char)text[0]))
		return cmd_usage_error("there is no method '%s'; gannet rpc serve --help has "
				       "names, and all methods have numbers",
				       text);
	rc = cmd_count("METHOD", text, 0, UINT16_MAX, &number);
	*out = number;
	return rc;
}
