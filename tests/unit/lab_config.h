/* SPDX-License-Identifier: MIT */
/* For tests of the lab: a configuration from a text that is right. */
#ifndef GN_TESTS_LAB_CONFIG_H
#define GN_TESTS_LAB_CONFIG_H

#include <string.h>

#include "config.h"
#include "unit.h"

static struct config make(const char *text)
{
	struct lab_error error = {""};
	struct config config;

	if (config_parse(&config, text, strlen(text), &error))
		fail_msg("%s: %s", text, error.text);
	return config;
}

#endif
