/* SPDX-License-Identifier: MIT */
/*
 * READs of exposed memory: of every size, in chains, beside calls, refused, and ended by a
 * disconnect.
 */
#include "rpc_world.h"

static const struct gn_rpc_server_opts quick = {.size = sizeof(quick), .park_us = 300};

static int show_of(struct gn_rpc_client *client, unsigned method, uint32_t which, struct shown *out)
{
	unsigned status;
	uint32_t len;

	EXPECT(gn_rpc_call(client, method, &which, sizeof(which), out, sizeof(*out), &len,
			   GN_FOREVER, &status) == 0);
	EXPECT(status == GN_RPC_OK && len == sizeof(*out));
	return 0;
}

static int link_up(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode,
		   struct gn_rpc_client **out, struct gn_rpc_view *view)
{
	struct gn_rpc_client_opts opts = in_mode(mode);
	struct shown shown;

	EXPECT(gn_rpc_client_open(fabric, w->addr, &opts, out) == 0);
	EXPECT(show_of(*out, SHOW, 0, &shown) == 0);
	EXPECT(shown.rc == 0 && shown.view.bytes == MEM_BYTES);
	*view = shown.view;
	return 0;
}

/* A read, its bytes, and its outcome. */
struct item {
	struct gn_rpc_read_op read;
	unsigned ended;
	const uint8_t *want;
	bool same; /* short reads: checked where they landed */
	uint8_t bytes[GN_RPC_READ_SHORT];
};

static void item_done(struct gn_rpc_read_op *read)
{
	struct item *item = read->arg;

	item->ended++;
	if (read->status == GN_RPC_OK && read->len <= GN_RPC_READ_SHORT)
		item->same = !memcmp(read->data, item->want, read->len);
}

static struct gn_rpc_read_op *item_set(struct item *item, const struct gn_rpc_view *view,
				       const uint8_t *all, uint64_t offset, uint32_t len)
{
	*item = (struct item){
		.read = {.view = *view,
			 .offset = offset,
			 .len = len,
			 .to = item->bytes,
			 .done = item_done,
			 .arg = item},
		.want = all + offset,
	};
	return &item->read;
}

static int wait_for(struct gn_rpc_client *client, const struct item *item)
{
	while (!item->ended)
		EXPECT(gn_rpc_wait(client, GN_FOREVER) >= 0);
	EXPECT(item->ended == 1);
	return 0;
}

static uint8_t *all_of_it(void)
{
	uint8_t *all = gn_alloc(MEM_BYTES, 0);

	if (all)
		fill(all, MEM_BYTES, 1);
	return all;
}

/* ---- sizes ---- */

static int read_one(struct gn_rpc_client *client, const struct gn_rpc_view *view,
		    const uint8_t *all, uint64_t offset, uint32_t len)
{
	uint8_t *buf = gn_alloc(len + 64, 0);
	struct item *item = gn_alloc(sizeof(*item), 0);

	EXPECT(buf && item);
	memset(buf, 0xee, len + 64);
	item_set(item, view, all, offset, len)->to = buf + 32;
	EXPECT(gn_rpc_read(client, &item->read) == 0);
	EXPECT(wait_for(client, item) == 0);
	EXPECT(item->read.status == GN_RPC_OK && !memcmp(buf + 32, all + offset, len));
	EXPECT(item->same || len > GN_RPC_READ_SHORT);
	for (unsigned i = 0; i < 32; i++)
		EXPECT(buf[i] == 0xee && buf[len + 32 + i] == 0xee);
	EXPECT(gn_rpc_wait(client, GN_FOREVER) == 0);
	gn_free(item);
	gn_free(buf);
	return 0;
}

static int sizes(struct world *w, struct gn_fabric *fabric)
{
	static const uint32_t lens[] = {1,    7,    8,		32,	1000,	  4095,
					4096, 4097, 256u << 10, 300000, MEM_BYTES};
	uint8_t *all = all_of_it();
	struct gn_rpc_client *client;
	struct gn_rpc_counters count = {.size = sizeof(count)};
	struct gn_rpc_view view;
	uint64_t reads = 0;

	EXPECT(all);
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++) {
		EXPECT(link_up(w, fabric, mode, &client, &view) == 0);
		for (unsigned i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
			const uint64_t last = MEM_BYTES - lens[i];

			EXPECT(read_one(client, &view, all, 0, lens[i]) == 0);
			EXPECT(read_one(client, &view, all, last / 3, lens[i]) == 0);
			EXPECT(read_one(client, &view, all, last, lens[i]) == 0);
			EXPECT(call_echo(client, ECHO, i, i) == 0);
		}
		reads = 3 * sizeof(lens) / sizeof(lens[0]);
		EXPECT(gn_rpc_client_counters(client, &count) == 0);
		EXPECT(count.reads == reads && count.large == 0);
		EXPECT(gn_rpc_client_close(client) == 0);
	}
	gn_free(all);
	return 0;
}

/* ---- chains ---- */

static unsigned chain_up(struct item *items, unsigned n, const struct gn_rpc_view *view,
			 const uint8_t *all)
{
	for (unsigned i = 0; i < n; i++) {
		item_set(&items[i], view, all, i * 4097ull, i % 2 ? 32 : GN_RPC_READ_SHORT - i);
		if (i)
			items[i - 1].read.next = &items[i].read;
	}
	return n;
}

/* As many as allowed, at once: one work request each, one doorbell per sixteen. */
static int chain(struct world *w, struct gn_fabric *fabric)
{
	struct gn_rpc_client_opts opts = in_mode(GN_RPC_FETCH);
	struct gn_counters before = {.size = sizeof(before)}, after = {.size = sizeof(after)};
	uint8_t *all = all_of_it();
	struct gn_rpc_limits limits = {.size = sizeof(limits)};
	struct gn_rpc_client *client;
	struct shown shown;
	struct item *items;
	unsigned n;

	opts.slots = 64;
	EXPECT(all && gn_rpc_client_open(fabric, w->addr, &opts, &client) == 0);
	EXPECT(show_of(client, SHOW, 0, &shown) == 0 && shown.rc == 0);
	EXPECT(gn_rpc_client_limits(client, &limits) == 0 && limits.reads == 64);
	items = gn_alloc((limits.reads + 1) * sizeof(*items), 0);
	EXPECT(items);
	n = chain_up(items, limits.reads + 1, &shown.view, all);
	EXPECT(gn_rpc_read(client, &items[0].read) == -EAGAIN);
	EXPECT(gn_rpc_poll(client) == 0);
	n = chain_up(items, limits.reads, &shown.view, all);
	EXPECT(gn_fabric_counters(fabric, &before) == 0);
	EXPECT(gn_rpc_read(client, &items[0].read) == 0);
	EXPECT(gn_fabric_counters(fabric, &after) == 0);
	if (w->simulated) { /* else the server's are among them */
		EXPECT(after.wrs[GN_OP_READ] - before.wrs[GN_OP_READ] == n);
		EXPECT(after.doorbells - before.doorbells == n / 16);
	}
	item_set(&items[n], &shown.view, all, 0, 8);
	EXPECT(gn_rpc_read(client, &items[n].read) == -EAGAIN);
	for (unsigned i = 0; i < n; i++)
		EXPECT(wait_for(client, &items[i]) == 0);
	for (unsigned i = 0; i < n; i++) {
		EXPECT(items[i].read.status == GN_RPC_OK && items[i].same);
		EXPECT(!memcmp(items[i].bytes, items[i].want, items[i].read.len));
		EXPECT(!items[i].read.next);
	}
	EXPECT(gn_rpc_read(client, &items[n].read) == 0);
	EXPECT(wait_for(client, &items[n]) == 0 && items[n].same);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(items);
	gn_free(all);
	return 0;
}

static void test_chain(void **state)
{
	const struct gn_rpc_server_opts opts = {.size = sizeof(opts), .max_slots = 64};

	(void)state;
	run_everywhere(chain, &opts, 2);
}

/* ---- refusals ---- */

static int refused(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *all = all_of_it(), *buf = gn_alloc(2 * GN_RPC_READ_SHORT, 0);
	struct item *item = gn_alloc(2 * sizeof(*item), 0);
	struct gn_rpc_client *client;
	struct gn_rpc_read_op *read;
	struct gn_rpc_view view;

	EXPECT(all && buf && item);
	EXPECT(link_up(w, fabric, GN_RPC_HYBRID, &client, &view) == 0);
	EXPECT(gn_rpc_read(NULL, &item->read) == -EINVAL);
	EXPECT(gn_rpc_read(client, NULL) == -EINVAL);
	EXPECT(gn_rpc_read(client, item_set(item, &view, all, 0, 0)) == -EINVAL);
	EXPECT(gn_rpc_read(client, item_set(item, &view, all, MEM_BYTES, 1)) == -EINVAL);
	EXPECT(gn_rpc_read(client, item_set(item, &view, all, MEM_BYTES - 7, 8)) == -EINVAL);
	EXPECT(gn_rpc_read(client, item_set(item, &view, all, UINT64_MAX - 7, 8)) == -EINVAL);
	EXPECT(gn_rpc_read(client, item_set(item, &view, all, 0, MEM_BYTES + 1)) == -EINVAL);
	read = item_set(item, &view, all, 0, GN_RPC_READ_SHORT + 1);
	read->to = NULL;
	EXPECT(gn_rpc_read(client, read) == -EINVAL);
	read->to = buf;
	read->next = item_set(&item[1], &view, all, 0, 8);
	EXPECT(gn_rpc_read(client, read) == -EINVAL);
	read = item_set(item, &view, all, 0, 8);
	read->next = item_set(&item[1], &view, all, MEM_BYTES, 8);
	EXPECT(gn_rpc_read(client, read) == -EINVAL);
	read = item_set(item, &view, all, 0, 8);
	read->view.epoch++;
	EXPECT(gn_rpc_read(client, read) == -ESTALE);
	EXPECT(gn_rpc_poll(client) == 0 && !item->ended && !item[1].ended);
	/* Refused reads leave no trace: valid ones still work, also without a destination. */
	read = item_set(item, &view, all, 5, GN_RPC_READ_SHORT);
	read->to = NULL;
	EXPECT(gn_rpc_read(client, read) == 0);
	EXPECT(wait_for(client, item) == 0 && item->same);
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(item);
	gn_free(buf);
	gn_free(all);
	return 0;
}

static int show_limits(struct world *w, struct gn_fabric *fabric)
{
	struct shown shown, again;
	struct gn_rpc_client *client;
	struct gn_rpc_view view;

	EXPECT(link_up(w, fabric, GN_RPC_HYBRID, &client, &view) == 0);
	EXPECT(show_of(client, SHOW_LATER, 0, &shown) == 0 && shown.rc == -EPERM);
	EXPECT(show_of(client, SHOW, SHOW_OWN, &shown) == 0 && shown.rc < 0);
	for (uint32_t i = 1; i < GN_RPC_VIEWS_MAX; i++) {
		EXPECT(show_of(client, SHOW, i, &shown) == 0 && shown.rc == 0);
		EXPECT(shown.view.key != view.key && shown.view.bytes == GN_PAGE);
		EXPECT(show_of(client, SHOW, i, &again) == 0 && again.rc == 0);
		EXPECT(!memcmp(&shown.view, &again.view, sizeof(view)));
	}
	EXPECT(show_of(client, SHOW, GN_RPC_VIEWS_MAX, &shown) == 0 && shown.rc == -ENOSPC);
	EXPECT(show_of(client, SHOW, 0, &shown) == 0 && shown.rc == 0);
	EXPECT(!memcmp(&shown.view, &view, sizeof(view)));
	EXPECT(gn_rpc_client_close(client) == 0);
	return 0;
}

static int limits(struct world *w, struct gn_fabric *fabric)
{
	EXPECT(refused(w, fabric) == 0);
	EXPECT(show_limits(w, fabric) == 0);
	return 0;
}

/* ---- beside calls ---- */

struct walk {
	struct gn_rpc_client *client;
	struct gn_rpc_read_op read;
	const uint8_t *all;
	uint8_t *large;
	unsigned steps, wrong;
};

/* Each read starts the next, at an offset that it has read, like following pointers. */
static void step(struct gn_rpc_read_op *read)
{
	struct walk *walk = read->arg;
	const uint8_t *bytes = read->to ? read->to : read->data;
	uint32_t word;

	walk->wrong += read->status != GN_RPC_OK ||
		       memcmp(bytes, walk->all + read->offset, read->len) != 0;
	if (read->status || !walk->steps--)
		return;
	memcpy(&word, bytes, sizeof(word));
	read->offset = word % (MEM_BYTES / 2) / 8 * 8;
	read->len = walk->steps % 16 == 7 ? 100000 : 8 + word % 512;
	read->to = read->len > GN_RPC_READ_SHORT ? walk->large : NULL;
	walk->wrong += gn_rpc_read(walk->client, read) != 0;
}

static int beside_in(struct world *w, struct gn_fabric *fabric, enum gn_rpc_mode mode)
{
	enum { WALKS = 16, CALLS = 4 };
	static const unsigned methods[CALLS] = {ECHO, LATER, BLOB, ECHO};
	struct walk *walks = gn_alloc(WALKS * sizeof(*walks), 0);
	uint8_t *all = all_of_it(), *result = gn_alloc(CALLS * 20000, 0);
	struct two want[CALLS] = {{50, 1}, {8, 2}, {20000, 3}, {8, 4}};
	struct gn_rpc_op ops[CALLS];
	struct gn_rpc_client *client;
	struct gn_rpc_view view;

	EXPECT(walks && all && result);
	EXPECT(link_up(w, fabric, mode, &client, &view) == 0);
	for (unsigned i = 0; i < WALKS; i++) {
		walks[i] = (struct walk){
			.client = client,
			.read = {.view = view, .offset = i, .len = 8, .done = step},
			.all = all,
			.large = gn_alloc(100000, 0),
			.steps = 100,
		};
		walks[i].read.arg = &walks[i];
		EXPECT(walks[i].large);
		EXPECT(gn_rpc_read(client, &walks[i].read) == 0);
	}
	for (unsigned round = 0; round < 30; round++) {
		for (unsigned i = 0; i < CALLS; i++)
			ops[i] = (struct gn_rpc_op){.method = methods[i],
						    .request = &want[i],
						    .request_len = sizeof(want[i]),
						    .result = result + i * 20000,
						    .result_room = 20000};
		EXPECT(gn_rpc_call_all(client, ops, CALLS) == 0);
		for (unsigned i = 0; i < CALLS; i++)
			EXPECT(ops[i].status == GN_RPC_OK);
		EXPECT(is_filled(result + 2 * 20000, 20000, 3));
	}
	while (gn_rpc_wait(client, GN_FOREVER) > 0)
		;
	for (unsigned i = 0; i < WALKS; i++) {
		EXPECT(walks[i].steps == UINT32_MAX && !walks[i].wrong);
		gn_free(walks[i].large);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(walks);
	gn_free(all);
	gn_free(result);
	return 0;
}

static int beside(struct world *w, struct gn_fabric *fabric)
{
	for (enum gn_rpc_mode mode = GN_RPC_HYBRID; mode < GN_RPC_MODES; mode++)
		EXPECT(beside_in(w, fabric, mode) == 0);
	return 0;
}

/* ---- ends ---- */

/* A restarted server has forgotten what it exposed, and its clients know. */
static int restart(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *all = all_of_it();
	struct item *items = gn_alloc(4 * sizeof(*items), 0);
	uint8_t *large = gn_alloc(MEM_BYTES, 0);
	struct gn_rpc_client *client;
	struct gn_rpc_view view, old;
	struct shown shown;

	EXPECT(all && items && large);
	EXPECT(link_up(w, fabric, GN_RPC_HYBRID, &client, &view) == 0);
	old = view;
	for (unsigned round = 0; round < 3; round++) {
		EXPECT(world_restart(w) == 0);
		/* Not polled yet: they start, and end with the connection. */
		for (unsigned i = 0; i < 3; i++)
			EXPECT(gn_rpc_read(client, item_set(&items[i], &view, all, i, 8)) == 0);
		item_set(&items[3], &view, all, 0, MEM_BYTES)->to = large;
		EXPECT(gn_rpc_read(client, &items[3].read) == 0);
		for (unsigned i = 0; i < 4; i++) {
			EXPECT(wait_for(client, &items[i]) == 0);
			EXPECT(items[i].read.status == GN_RPC_PEER_GONE);
		}
		EXPECT(gn_rpc_read(client, item_set(items, &view, all, 0, 8)) == -ENOTCONN);
		EXPECT(gn_rpc_reconnect(client) == 0);
		EXPECT(gn_rpc_read(client, item_set(items, &view, all, 0, 8)) == -ESTALE);
		EXPECT(show_of(client, SHOW, 0, &shown) == 0 && shown.rc == 0);
		view = shown.view;
		EXPECT(view.epoch != old.epoch);
		EXPECT(read_one(client, &view, all, 77, 777) == 0);
		EXPECT(read_one(client, &view, all, 77, 77777) == 0);
	}
	EXPECT(gn_rpc_client_close(client) == 0);
	gn_free(all);
	gn_free(items);
	gn_free(large);
	return 0;
}

static int client_leaves(struct world *w, struct gn_fabric *fabric)
{
	uint8_t *all = all_of_it();
	struct item *items = gn_alloc(4 * sizeof(*items), 0);
	uint8_t *large = gn_alloc(MEM_BYTES, 0);
	struct gn_rpc_client *client;
	struct gn_rpc_view view;

	EXPECT(all && items && large);
	for (unsigned round = 0; round < 12; round++) {
		EXPECT(link_up(w, fabric, (enum gn_rpc_mode)(round % 3), &client, &view) == 0);
		for (unsigned i = 0; i < 3; i++)
			EXPECT(gn_rpc_read(client, item_set(&items[i], &view, all, i, 8)) == 0);
		item_set(&items[3], &view, all, 0, MEM_BYTES)->to = large;
		EXPECT(gn_rpc_read(client, &items[3].read) == 0);
		if (round % 2)
			EXPECT(gn_rpc_poll(client) >= 0);
		EXPECT(gn_rpc_client_close(client) == 0);
		for (unsigned i = 0; i < 4; i++)
			EXPECT(items[i].ended == 1 &&
			       (items[i].read.status == GN_RPC_CANCELED ||
				(items[i].read.status == GN_RPC_OK && round % 2)));
	}
	gn_free(all);
	gn_free(items);
	gn_free(large);
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		RPC_TEST(test_sizes, sizes, &quick, 2),
		cmocka_unit_test(test_chain),
		RPC_TEST(test_limits, limits, &quick, 1),
		RPC_TEST(test_beside_calls, beside, &quick, 2),
		RPC_TEST(test_restart, restart, &quick, 1),
		RPC_TEST(test_client_leaves, client_leaves, &quick, 2),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
