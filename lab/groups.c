/* SPDX-License-Identifier: MIT */
/* Names that stand for several settings: WRITE/x, x/SEND, rest. */
#include "figure_run.h"

#include <string.h>

static const char *const protocols[] = {
	"READ", "SEND/SEND", "SEND/WRITE", "WRITE/SEND", "WRITE/WRITE",
};

#define PROTOCOLS (sizeof(protocols) / sizeof(protocols[0]))

/* REQUEST/x and x/RESPONSE: the part before or after the stroke. */
static bool matches(const char *name, const char *protocol)
{
	const char *stroke = strchr(protocol, '/');
	const size_t len = strlen(name);

	if (!stroke || len < 3)
		return false;
	if (!strcmp(name + len - 2, "/x"))
		return (size_t)(stroke - protocol) == len - 2 && !memcmp(name, protocol, len - 2);
	return !strncmp(name, "x/", 2) && !strcmp(name + 1, stroke);
}

static bool is_named(const char *protocol, const char *named)
{
	char item[CONFIG_VALUE_MAX];

	while (list_next(&named, item, sizeof(item)))
		if (!strcmp(item, protocol) || matches(item, protocol))
			return true;
	return false;
}

bool setting_is_group(const char *key, const char *name)
{
	return !strcmp(key, "protocol") &&
	       (!strcmp(name, "rest") || !strncmp(name, "x/", 2) ||
		(strlen(name) > 2 && !strcmp(strchr(name, '\0') - 2, "/x")));
}

const char *setting_group_member(const char *key, const char *name, const char *named, unsigned i)
{
	const bool rest = !strcmp(name, "rest");

	if (!setting_is_group(key, name))
		return NULL;
	for (size_t p = 0; p < PROTOCOLS; p++)
		if ((rest ? !is_named(protocols[p], named) : matches(name, protocols[p])) &&
		    i-- == 0)
			return protocols[p];
	return NULL;
}
