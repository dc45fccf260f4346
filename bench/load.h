/* SPDX-License-Identifier: MIT */
/*
 * Loads: programs for gn_node_main that keep servers busy and count what they do. A load is written
 * once, against the public headers, and runs in two ways:
 *
 *  - as processes of this machine over shm or verbs (procs.c). The parent is client 0. Time is
 *    measured in blocks that take turns with a limit (blocks.c); a group of operations is timed
 *    together, because reading the clock costs a third of a call.
 *  - as nodes of a simulated cluster (cluster.c). Every operation is timed, for virtual clocks cost
 *    nothing. After a warm-up operations are counted until there are enough of them.
 *
 * All processes of a run share one struct load_run, the control block. It carries phases, addresses
 * and results, never the traffic that is measured. A layer's own control block begins with it.
 */
#ifndef GN_BENCH_LOAD_H
#define GN_BENCH_LOAD_H

#include <gannet/exec.h>
#include <gannet/rpc.h>

#include "pair.h"

#define LOAD_CLIENTS_MAX  64u /* processes; a simulated cluster may have more */
#define LOAD_TALLIES_MAX  (LOAD_CLIENTS_MAX + 1)
#define LOAD_SERVERS_MAX  256u
#define LOAD_ADDR_MAX	  192u
#define LOAD_ERROR_MAX	  256u
#define LOAD_SECONDS_MAX  3600.0
#define LOAD_OP_US	  30000000u /* an operation that takes longer has failed */
#define LOAD_CONNECT_US	  10000000u /* processes that poll share cores with others of the machine */
#define LOAD_MACHINES_MAX 256u
#define LOAD_THREADS_MAX  256u /* of a server, and clients of a machine */
#define LOAD_BATCH_MAX	  1024u
#define LOAD_INFLIGHT_MAX 32768u
#define LOAD_BATCHES	  4u   /* under way, unless told otherwise */
#define LOAD_AUTO_MAX	  128u /* RF-RPC 4.2: the range of the best batch is 1 to 128 */

/* What every load has in its options. */
struct load_opts {
	char provider[80]; /* for gn_fabric_open(); a simulated cluster's is "sim" */
	char host[128];	   /* where servers listen over verbs; else empty */
	/* A simulated cluster: its network cards, and how long it runs (1: as a figure needs). */
	const char *profile; /* NULL: processes */
	double effort;
	const char *faults; /* … and what is injected: gn_sim_inject(); NULL: none */
	double seconds;	    /* processes: to measure, limits not counted */
	uint32_t paper;	    /* of load_presets: the library's own way, or the papers' */
	uint64_t seed;
	/* Loads of calls. */
	uint32_t threads;  /* of the server */
	uint32_t machines; /* simulated: with clients */
	uint32_t clients;  /* of each machine */
	uint32_t batch;	   /* operations that go together */
	uint32_t inflight; /* operations that a client has under way; batch: one batch at a time */
	/* The library chooses the batch, up to batch, by latency limit and alpha (RF-RPC 4.2). */
	bool batch_auto;
	double limit_us; /* latency; 0: none. Operations above it are counted in any case. */
	uint32_t alpha_pct;
	uint32_t fetch_bytes, retries; /* 0: the library's choice */
	int cpus[2]; /* processes: the first client's and the first server thread's */
};

/* Nothing but counters: load_sums_add() depends on that. */
struct load_sums {
	uint64_t ops;	    /* that the load asked for; a call may have several */
	uint64_t late;	    /* ops above the latency limit */
	uint64_t below_7us; /* ops */
	uint64_t calls, messages, fetches, failed_fetches, second_reads;
	uint64_t gets, puts, hits, bypass_gets, bypass_reads;
	uint64_t wrs, doorbells, cqes;	    /* without receives */
	uint64_t repeats, lost;		    /* datagrams */
	uint64_t datagrams, recv_doorbells; /* of datagram calls; datagrams: sent */
	uint64_t switches;		    /* between modes, since the connection was made */
	uint64_t batches, batched; /* the sizes of batches that clients chose, and of how many */
	/* The I/O engine's. */
	uint64_t events, polls, empty_polls, wakeups, held_back;
	uint64_t inflight_bytes, inflight_samples; /* the sum of so many samples */
	uint64_t cpu_ns;			   /* processes: of all threads */
};

extern const char *const load_presets[]; /* gannet, paper */

void load_sums_add(struct load_sums *to, const struct load_sums *what, int sign);

/* What a client has done; its own cache lines. */
struct load_tally {
	LINE struct load_sums sums;
	uint64_t ns, group_ops;
	struct gn_hist group_ns;
	struct gn_hist latency_ns; /* processes: of single operations, if the load times some */
	uint64_t inflight_max;	   /* bytes of one operation in flight */
	/* Processes: the last signal that a thread follows. */
	LINE uint32_t follows;
};

enum load_phase { LOAD_SETUP, LOAD_WARM, LOAD_MEASURED, LOAD_OVER };

/* How long a simulated run is. */
struct load_length {
	uint64_t warm_ops, min_ops, max_ops;
	uint64_t warm_ns, min_ns, max_ns;
};

struct load_run;
struct load_client;
struct load_proc;

/* A layer's load. Functions return 0 or -errno after load_fail() said why. */
struct load_kind {
	const char *name;
	bool one_ctx; /* the papers' way: servers have the context of their process, too */
	bool threads; /* clients are threads of one process; the server's core is theirs, too */
	/* What the servers and clients of a process share: proc->state. May be NULL. */
	int (*proc_open)(struct load_proc *proc);
	void (*proc_close)(struct load_proc *proc);
	/* A server from its beginning to its end: load_listen(), load_serve(). */
	int (*serve)(struct load_proc *proc, uint32_t number);
	/* A client; its struct begins with struct load_client. */
	size_t client_bytes;
	/* Looks at load_gives_up() before each connection: there may be thousands. */
	int (*open)(struct load_client *client);
	/* Operations until load_stops(); some may still be under way then. */
	int (*run)(struct load_client *client);
	/* Processes: the same work without the library, by all clients at the same time. */
	int (*limit)(struct load_client *client, uint64_t block_ns, struct block *out);
	/*
	 * Processes: client 0 serves the others while it waits for them, and returns true as long
	 * as they need that. NULL where clients serve nobody.
	 */
	bool (*idle)(struct load_client *client);
	/* Waits for the end of what is under way. */
	int (*rest)(struct load_client *client);
	/* After the last rest: is all that came back right? May be NULL. */
	int (*check)(struct load_client *client);
	void (*close)(struct load_client *client);
	/* What its connections have counted since they were opened. */
	void (*count)(const struct load_client *client, struct load_sums *out);
	/* Operations that are timed together, in processes. */
	uint64_t (*group_ops)(const struct load_client *client);
};

struct load_run {
	struct shared pair; /* orders between the first two processes: pair.h */
	size_t bytes;	    /* of the layer's whole control block */
	struct load_opts opts;
	uint32_t n_clients, n_servers; /* n_servers: that must listen before anyone connects */
	uint32_t clients_per_proc;     /* processes; the parent has the first ones */
	bool simulated;
	enum load_phase phase; /* simulated */
	/* Processes: servers listen at prefix and a number from first_port on, and note where. */
	char prefix[LOAD_ADDR_MAX];
	uint32_t first_port;
	char addr[LOAD_SERVERS_MAX][LOAD_ADDR_MAX];
	/* Simulated: server 0 is on this node, and nodes with servers have so many each. */
	uint32_t first_server_node, servers_per_node;

	LINE uint32_t failed; /* anyone: everyone stops */
	char error[LOAD_ERROR_MAX];
	LINE uint32_t listening;  /* servers */
	uint32_t connected, gone; /* clients */
	/* Simulated: what all fabrics counted; ops begun, if the last are not waited for. */
	LINE struct load_sums life;
	struct load_served { /* by server 0, since it began */
		uint64_t messages, wrs, doorbells, cpu_ns;
	} served;

	/* Simulated clusters: all of it is memory of one thread. */
	struct load_length length;
	uint64_t start_ns; /* when all clients begin; 0: not known yet */
	uint64_t ops;	   /* of all clients */
	uint64_t begin_ns, end_ns, begin_ops, end_ops;
	void (*mark)(struct load_run *run); /* the phase has become MEASURED or OVER */
	bench_progress_fn *progress;	    /* may be NULL */
	uint64_t progress_ops;		    /* at which it is called next */
	void *mark_arg;
	const volatile sig_atomic_t *interrupted;

	/* Processes. */
	char kind[16];
	cpu_set_t server_cpus, more_server_cpus[LOAD_TALLIES_MAX], client_cpus[LOAD_TALLIES_MAX];
	LINE uint32_t joined; /* processes that know their number: the server, then clients */
	uint32_t ready;	      /* clients */
	LINE uint32_t signal; /* enum load_signal of procs.h */

	LINE struct load_tally tally[LOAD_TALLIES_MAX];
};

/* A process with servers, clients, or both. Each has a thread, unless there is only one. */
struct load_proc {
	struct load_run *run;
	const struct load_kind *kind;
	uint32_t first_server, n_servers;
	uint32_t first_client, n_clients;
	/* A client's thread. */
	void (*client_main)(struct load_client *client);
	/* A server listens, or cannot. */
	void (*listens)(struct load_proc *proc, uint32_t number, int rc);
	/* Is there nobody left to be served? rpc: whose counters to note, or NULL. */
	bool (*served)(struct load_proc *proc, struct gn_rpc_server *rpc);
	uint64_t nap_us;   /* between two looks at that */
	struct pair *pair; /* the parent and server 0; else NULL */
	/* Set by load_program(). */
	struct gn_fabric *fabric;
	struct gn_ctx *ctx; /* the papers have one to a process; else NULL */
	void *state;	    /* the kind's own */
};

struct load_client {
	struct load_run *run;
	struct load_proc *proc;
	const struct load_kind *kind;
	uint32_t number; /* of all clients */
	struct load_tally *tally;
	struct load_sums own;	 /* counted by the load itself */
	struct load_sums before; /* what was counted when measuring began */
	uint64_t limit_ns;	 /* latency; 0: none */
	uint64_t deadline_ns;	 /* of operations that begin now */
	uint64_t slack_ns;	 /* that a group of operations may take longer than usual */
	const volatile sig_atomic_t *interrupted;
	bool counts; /* simulated: before is set */
	/* Operations ended so far, and the number at which to look at the clock. */
	uint64_t ended, look_at;
	/* Processes: the block under way (NULL: getting warm), and its clock. */
	struct block *block;
	uint64_t since_ns, block_ns;
	bool stops;
};

/* The program of every process; env->arg is its struct load_proc. Returns its exit status. */
gn_node_main load_program;

/* ---- for loads ---- */

/* The first cause is kept, and everyone stops. Returns rc. */
int load_fail(struct load_run *run, int rc, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* If rc is an error, fails with what could not be done. Returns rc, or 0 if that is above. */
int load_check(struct load_run *run, int rc, const char *what);

static inline bool load_failed(const struct load_run *run)
{
	return __atomic_load_n(&run->failed, __ATOMIC_RELAXED);
}

/*
 * Calls listen_at with addresses for a server until one is not in use. When the server listens,
 * clients may connect; if it cannot, the run fails. Returns listen_at's last.
 */
int load_listen(struct load_proc *proc, uint32_t number,
		int (*listen_at)(void *arg, const char *addr), void *arg);
/* The same for a client that listens: nobody is told. */
int load_listen_at(struct load_run *run, uint32_t number,
		   int (*listen_at)(void *arg, const char *addr), void *arg);
/* Where a server listens. */
void load_server_addr(const struct load_run *run, uint32_t number, char out[LOAD_ADDR_MAX]);
/* Returns when the server is not needed any more. rpc: whose counters to note. */
void load_serve(struct load_proc *proc, struct gn_rpc_server *rpc);

/* A server's: waits for another order than the last. ORDER_QUIT: it is not needed any more. */
uint64_t load_next_order(struct load_proc *proc, uint64_t last);

/* Compute for so long. */
void load_work(uint64_t ns);

/* The run has failed, or was interrupted: nothing more is begun. */
static inline bool load_gives_up(const struct load_client *c)
{
	return *c->interrupted || load_failed(c->run);
}

static inline bool load_stops(const struct load_client *c)
{
	return unlikely(c->stops || load_gives_up(c));
}

/* When an operation begins: to be handed to load_done(). 0: its time is not known. */
static inline uint64_t load_stamp(const struct load_client *c)
{
	return c->run->simulated ? gn_now_ns() : 0;
}

void load_look(struct load_client *c, unsigned n, uint64_t began_ns);

/* n operations, under way since began_ns, have ended well. */
static inline void load_done(struct load_client *c, unsigned n, uint64_t began_ns)
{
	c->ended += n;
	if (unlikely(c->ended >= c->look_at))
		load_look(c, n, began_ns);
}

/* Nothing of a call is under way: in a simulation only whole calls are counted. */
void load_between(struct load_client *c);

/* ---- for those who run loads ---- */

/* number: of all clients. Zeroed by the caller, client_bytes long. */
void load_client_init(struct load_client *c, struct load_proc *proc, uint32_t number);
/* A load of blocks.c: getting warm, then about block_ns; client is a struct load_client. */
int load_block(void *client, uint64_t block_ns, struct block *out);
/* Adds what a client has counted to its tally, simulated or at its end. */
void load_client_ends(struct load_client *c);
/* Adds what connections or a fabric have counted. */
void load_count_rpc(const struct gn_rpc_client *rpc, struct load_sums *out);
void load_count_fabric(struct gn_fabric *fabric, struct load_sums *out);
/* Adds the batch that a connection has chosen for a method. */
void load_count_choice(const struct gn_rpc_client *rpc, unsigned method, struct load_sums *out);

/* ---- results ---- */

/* NAN where a figure has no meaning. */
struct load_result {
	struct bench_result run; /* ops and seconds of all clients */
	struct load_sums sums;	 /* of all clients */
	double mops;
	double latency_ns_mean, p15_ns;
	double limit_ratio; /* of the speed of the limit, with several operations under way */
	double server_wrs, client_wrs, round_trips, doorbells, cqes; /* per operation */
	double batch_fill;					     /* operations in a message */
	double batch;		   /* that clients chose, on average */
	double server_cpu_percent; /* of one core */
	/* Simulated: of a request in the caches of all cards; of one that node 0 served. */
	double misses, served_misses;
	double interrupts; /* simulated: of the clients' machines, per operation */
	double cpu_ns;	   /* … and their time */
	uint64_t inflight_max;
	uint64_t events, trace_hash; /* simulated */
	double wall_seconds;	     /* simulated: that it took */
	char error[LOAD_ERROR_MAX];  /* why there is no result */
};

/* Sets all figures to NAN. */
void load_result_init(struct load_result *out);
/* Where it ran; and all figures, by the names that they have in JSON. */
void load_sheet_opts(struct bench_sheet *sheet, const struct load_opts *opts);
void load_sheet_result(struct bench_sheet *sheet, const struct load_result *result);
/* -ENOMEM, and says so. */
int load_no_memory(struct load_result *out);

/* ---- simulated clusters (cluster.c) ---- */

/* A process and its node. */
struct load_place {
	unsigned node;
	uint32_t first_server, n_servers;
	uint32_t first_client, n_clients;
};

/* How long calls are simulated: so many operations at effort 1, more of a larger batch. */
void load_set_length(struct load_run *run, uint64_t min_ops, uint32_t batch, bool batch_auto);
/*
 * Runs the load of a control block, whose length is set, on a cluster. 0, -EINTR, or -errno and
 * out->error. Frees the block.
 */
int load_simulate(struct load_run *run, const struct load_kind *kind,
		  const struct load_place *places, unsigned n_places, struct load_result *out);
/* The same: one server, and a process with opts.clients clients on each of opts.machines. */
int load_simulate_machines(struct load_run *run, const struct load_kind *kind,
			   struct load_result *out);
/* A control block of so many bytes, for one server and the clients of opts; to be freed. */
struct load_run *load_run_create(size_t bytes, const struct load_opts *opts);

#endif
