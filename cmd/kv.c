/* SPDX-License-Identifier: MIT */
/*
 * gannet kv: finds the second word and calls it.
 */
#include <stddef.h>

#include "kv_cmd.h"

static const struct cmd_word words[] = {
	{"serve", cmd_kv_serve, "a server that holds keys and values in memory"},
	{"get", cmd_kv_get, "print values"},
	{"set", cmd_kv_set, "store a value"},
	{"del", cmd_kv_del, "delete keys"},
	{"keys", cmd_kv_keys, "list what a running server holds"},
	{"clear", cmd_kv_clear, "have a server forget everything"},
	{"proxy", cmd_kv_proxy, "memcached's protocols, for programs that speak them"},
	{"stats", cmd_kv_stats, "what a running server holds and has counted"},
	{NULL, NULL, NULL},
};

static const struct cmd_group group = {
	.name = "kv",
	.about = "A key-value store whose clients fetch; gannet/kv.h has it for programs.",
	.more = "Keys have 1 to 250 bytes, values up to 1 MiB. What was used least recently is\n"
		"forgotten when memory is short, and everything when the server ends.\n",
	.words = words,
};

int cmd_kv(int argc, char **argv)
{
	return cmd_second_word(argc, argv, &group);
}
