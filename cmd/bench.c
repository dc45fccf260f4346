/* SPDX-License-Identifier: MIT */
/*
 * gannet bench: which benchmark, and the peer process that benchmarks start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "cmd.h"
#include "rpc.h"

int cmd_bench(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], "fabric"))
		return cmd_bench_fabric(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "rpc"))
		return cmd_bench_rpc(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "sim"))
		return cmd_bench_sim(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "socket"))
		return cmd_bench_socket(argc - 1, argv + 1);
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h"))) {
		puts("Usage: gannet bench fabric|rpc|sim|socket [OPTION…]\n"
		     "\n"
		     "  fabric   writes, reads, atomics and messages between two processes\n"
		     "  rpc      calls between a server and its clients\n"
		     "  sim      events per second of the simulator, on a cluster of READs\n"
		     "  socket   memcached, Redis, and gannet kv proxy under the same load\n"
		     "\n"
		     "gannet bench fabric --help, and so on, list options.");
		return cmd_flush_stdout();
	}
	if (argc > 1)
		return cmd_usage_error("there is no benchmark '%s'; try gannet bench --help",
				       argv[1]);
	return cmd_usage_error("bench needs to know what to measure; try gannet bench --help");
}

int cmd_bench_peer(int argc, char **argv)
{
	if (argc != 2 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("--bench-peer is for gannet itself");
	return bench_peer_main();
}

int cmd_bench_rpc_peer(int argc, char **argv)
{
	if (argc != 2 || bench_die_with_parent(argv[1]))
		return cmd_usage_error("--bench-rpc is for gannet itself");
	return bench_rpc_peer_main();
}
