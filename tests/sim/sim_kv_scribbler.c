/* SPDX-License-Identifier: MIT */
/*
 * A client of the store that overwrites its operations while they are read: see scribble.h. All
 * bytes of its keys and values are equal, and no other key has this byte: whatever lengths the
 * server uses, it can reach only its own keys.
 */
#include "kv/wire.h"
#include "scribble.h"
#include "sim_kv.h"

#define ROUNDS 6u
#define BYTE   0xee
#define KEY    4u
#define VALUE  16u

static uint64_t some_head(unsigned i)
{
	static const uint8_t verbs[] = {GN_KV_GET, GN_KV_SET, GN_KV_SET, GN_KV_APPEND, 0xff};
	static const uint8_t keys[] = {KEY, KEY, 0, 12, 250, 255};
	static const uint32_t bytes[] = {VALUE, VALUE, 0, 8, 64, 1000, 65536, 0xfffffff8u};
	struct kv_request head = {0};
	uint64_t word;

	(void)i;
	head.verb = verbs[gn_random() % sizeof(verbs)];
	head.key_len = keys[gn_random() % sizeof(keys)];
	head.room_bytes = bytes[gn_random() % (sizeof(bytes) / sizeof(bytes[0]))];
	memcpy(&word, &head, sizeof(word));
	return word;
}

static uint32_t body(uint8_t *to)
{
	const struct kv_request head = {.verb = GN_KV_SET, .key_len = KEY};
	const uint32_t rest = (KEY + VALUE + 7) & ~7u;

	memcpy(to, &head, sizeof(head));
	memset(to + sizeof(head), BYTE, rest);
	return (uint32_t)sizeof(head) + rest;
}

int scribbler_main(struct gn_env *env, int argc, char **argv)
{
	struct world *w = env->arg;
	const struct scribbler s = {
		.addr = ADDR,
		.method = KV_DO,
		.rounds = ROUNDS,
		.body = body,
		.words = 1,
		.word = some_head,
	};

	(void)argc;
	(void)argv;
	w->sums.scribbled += scribble(&w->run, env->fabric, &s);
	return 0;
}
