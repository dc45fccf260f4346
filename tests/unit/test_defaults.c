/* SPDX-License-Identifier: MIT */
/* A provider that has nothing answers "unsupported" everywhere, and one that has something keeps it. */
#include "unit.h"

#include "fabric/fabric.h"

#include <errno.h>

static void nothing_is_unsupported(void **state)
{
	const struct provider empty = {.name = "empty"};
	struct provider p;
	struct gn_wc wc;

	(void)state;
	provider_fill(&p, &empty);
	assert_string_equal(p.name, "empty");
	assert_int_equal(p.open(NULL, ""), -EOPNOTSUPP);
	assert_int_equal(p.ctx_init(NULL), 0);
	assert_int_equal(p.mem_alloc(NULL), -EOPNOTSUPP);
	assert_int_equal(p.mr_init(NULL), -EOPNOTSUPP);
	assert_int_equal(p.cq_init(NULL), -EOPNOTSUPP);
	assert_int_equal(p.cq_poll(NULL, &wc, 1), 0);
	assert_int_equal(p.cq_arm(NULL, false), -EOPNOTSUPP);
	assert_false(p.cq_ready(NULL));
	assert_int_equal(p.qp_init(NULL), -EOPNOTSUPP);
	assert_int_equal(p.qp_error(NULL), -EOPNOTSUPP);
	assert_int_equal(p.ud_addr(NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(p.ah_init(NULL), -EOPNOTSUPP);
	assert_int_equal(p.ah_reverse(NULL, NULL, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(p.post_send(NULL, NULL, 1), 0);
	assert_false(p.post_plain(NULL, NULL));
	assert_int_equal(p.post_recv(NULL, NULL, 1), 0);
	assert_int_equal(p.listen_init(NULL, ""), -EOPNOTSUPP);
	assert_int_equal(p.connect(NULL, "", NULL), -EOPNOTSUPP);
	assert_int_equal(p.accept(NULL, NULL, NULL), -EOPNOTSUPP);
	assert_int_equal(p.reject(NULL, NULL, 0), -EOPNOTSUPP);
	assert_int_equal(p.disconnect(NULL), -EOPNOTSUPP);
	p.close(NULL);
	p.chan_pump(NULL);
	p.qp_fini(NULL);
	p.listen_fini(NULL);
}

static int my_open(struct gn_fabric *fabric, const char *device)
{
	(void)fabric;
	(void)device;
	return 42;
}

static void what_is_there_stays(void **state)
{
	const struct provider own = {.name = "own", .fabric_size = 7, .open = my_open};
	struct provider p;

	(void)state;
	provider_fill(&p, &own);
	assert_int_equal(p.open(NULL, ""), 42);
	assert_int_equal(p.fabric_size, 7);
	assert_int_equal(p.disconnect(NULL), -EOPNOTSUPP);
}

/* Names that are none, and objects that are none. */
static void bad_names(void **state)
{
	struct gn_fabric *fabric = (struct gn_fabric *)&fabric;

	(void)state;
	gn_log_level_set(GN_LOG_ERROR);
	assert_int_equal(gn_fabric_open(NULL, &fabric), -EINVAL);
	assert_int_equal(gn_fabric_open("", &fabric), -EINVAL);
	assert_int_equal(gn_fabric_open("shmx", &fabric), -EINVAL);
	assert_int_equal(gn_fabric_open("nonsense:0", &fabric), -EINVAL);
	assert_int_equal(gn_fabric_open("shm:device", &fabric), -EINVAL);
	assert_int_equal(gn_fabric_open("sim:n0", &fabric), -ENODEV);
	assert_ptr_equal(fabric, &fabric);
	assert_int_equal(gn_fabric_close(NULL), 0);
	assert_int_equal(gn_qp_destroy(NULL), 0);
	assert_int_equal(gn_post_send(NULL, NULL, NULL), -EINVAL);
	assert_int_equal(gn_cq_poll(NULL, NULL, 1), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_unsupported),
		cmocka_unit_test(what_is_there_stays),
		cmocka_unit_test(bad_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
