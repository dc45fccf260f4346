/* SPDX-License-Identifier: MIT */
/*
 * Internals of the simulated cluster, for its own files and the sim provider: nodes, processes and
 * threads.
 *
 * Everything runs on one OS thread, in one of two contexts: as a simulated thread, on its fiber,
 * which may park; or as the engine, inside an event, which may not. Both may change anything
 * without locks. The engine acts for one process at a time (sim->proc), and allocates from its
 * heap.
 */
#ifndef GN_SIM_NODES_H
#define GN_SIM_NODES_H

#include "base/exec.h"
#include "base/fail.h"
#include "gannet/sim.h"
#include "sim/clock.h"
#include "sim/engine.h"
#include "sim/fault.h"
#include "sim/model/model.h"
#include "sim/profile.h"

/* Limits. A thread that reaches one of the next two is in an endless loop, and the run ends. */
#define SIM_LOOKS_MAX	1000000u   /* empty polls and yields without a wait */
#define SIM_SPINS_MAX	100000000u /* calls that let no time pass, such as reading the clock */
#define SIM_INSTANT_MAX 100000000u /* events of one instant */
#define SIM_SLOTS	64u	   /* gn_slots of a process */
#define SIM_THREAD_NAME 32u

extern const struct exec_ops exec_sim;

struct sim_proc;
struct sim_thread;

/* Threads that wait for a lock. */
struct sim_waiters {
	struct sim_thread *first;
	uint32_t n;
};

/* The fields that every event uses come first. */
struct sim_thread {
	/* the thread continues; while parked with a deadline: at the deadline */
	struct sim_event run;
	struct gn_fiber *fiber; /* the saved context, whichever stack that is on */
	struct sim_proc *proc;
	uint64_t busy_ps; /* end of the work charged so far: see sim_owe() */
	uint64_t until_ps;
	uint64_t deadline_ns; /* local time of the deadline; GN_FOREVER: none */
	const char *reason;   /* why it is parked */
	uint64_t reason_id;   /* the thread it waits for, or 0 */
	unsigned core;	      /* core of its node that it runs on */
	uint32_t looks;	      /* SIM_LOOKS_MAX */
	uint32_t spins;	      /* SIM_SPINS_MAX */
	uint32_t locks;	      /* mutexes it holds */
	bool done;
	bool working;  /* parked in sim_spend() */
	bool held_up;  /* runnable, but its node is paused */
	bool unparked; /* … but still busy */

	/* gn_wait() */
	bool looking; /* polls its sources: not an empty poll */
	bool woken;
	unsigned n_items;
	struct gn_wait_item *items;

	/* a lock's waiters */
	struct sim_waiters *queue;
	struct sim_thread *queue_next, **queue_prev;

	struct sim_thread *next, **prev; /* the process's threads */
	struct sim_thread *joiner;
	uint64_t id;
	void (*fn)(void *arg);
	void *arg;
	char name[SIM_THREAD_NAME];
	void *slot[SIM_SLOTS];
	struct fail_state error; /* gn_error() */
};

/*
 * Called by the engine when a process ends with the hook still linked. Lives in the process's heap.
 */
struct sim_hook {
	void (*fn)(struct sim_hook *hook);
	struct sim_hook *next, **prev;
};

struct sim_block; /* an allocation */
struct sim_held;  /* a posted buffer: see the sim provider */
#define SIM_HELD_LISTS 64u

struct sim_proc {
	struct gn_sim *sim;
	struct sim_node *node;
	unsigned number;
	struct sim_event end;
	bool ending, ended, killed;
	bool down; /* its node crashed, and will restart it */
	int status;
	gn_node_main *program;
	struct gn_env env;
	int argc;
	char **args; /* as spawned */
	char **argv; /* the program's copy, which it may change */

	struct sim_thread *threads;
	struct sim_hook *hooks;
	struct gn_fiber *fibers;      /* created inside: exec_ops.fibers */
	struct gn_wait_item *watched; /* memory words that its threads wait for */
	uint32_t n_watched;
	uint64_t looked_ps;	/* when all of them were last polled */
	struct sim_event words; /* … the next poll of all, if there are many */
	const struct gn_slot *slot[SIM_SLOTS];
	struct sim_held *held[SIM_HELD_LISTS + 1]; /* by address; last: those in several ranges */
	struct sim_block *blocks;
	uint64_t n_blocks, block_bytes;
};

struct sim_node {
	struct gn_sim *sim;
	unsigned index;
	char name[16];
	char fabric[24];
	struct sim_device device;
	struct sim_cpu cpu;
	void *nic; /* of the sim provider, freed by nic_free */
	void (*nic_free)(void *nic);

	struct sim_clock clock;
	struct sim_alarm *alarms;
	uint32_t n_alarms; /* created so far */
	/* Faults in effect, each until a time (fault_node.c). */
	bool crashed;	      /* peers get no notice, and … */
	bool down;	      /* its processes have ended, or restart at up_ps */
	uint32_t incarnation; /* number of crashes */
	uint64_t up_ps;	      /* end of down */
	struct sim_event restart;
	bool has_restart, restart_is_idle;
	uint64_t paused_until_ps; /* its threads do not run; its device does */
	struct sim_slow slow_cpu;
	uint64_t low_memory_until_ps;
	uint64_t cut_out_until_ps, cut_in_until_ps; /* no packets out, no packets in */
	bool side;				    /* sim_faults.split_until_ps */
};

/* Fires once, when the node's clock shows deadline_ns; alarm.c. */
struct sim_alarm {
	struct sim_event event;
	struct sim_node *node;
	uint64_t deadline_ns; /* GN_FOREVER: off */
	void (*ring)(struct sim_alarm *alarm);
	struct sim_alarm *next, **prev;
};

int sim_alarm_init(struct sim_alarm *alarm, struct sim_node *node,
		   void (*ring)(struct sim_alarm *alarm));
void sim_alarm_fini(struct sim_alarm *alarm);
void sim_alarm_set(struct sim_alarm *alarm, uint64_t deadline_ns);
/* Adapts the alarms to a changed rate of the node's clock. */
void sim_alarms_drift(struct sim_node *node);

struct gn_sim {
	struct sim_engine engine;
	struct sim_faults faults;
	struct sim_profile profile;
	uint64_t caps_off;
	size_t stack_bytes;
	const void *home; /* the OS thread it belongs to */
	bool running;
	int stop; /* error that ends the run early */
	const volatile sig_atomic_t *interrupted; /* of struct gn_sim_opts */

	struct gn_fiber *scheduler; /* the engine's context while a thread runs */
	struct sim_thread *thread;  /* the running thread; NULL: the engine */
	struct sim_proc *proc;	    /* its process, or the one that the engine acts for */
	uint64_t n_threads;	    /* started so far */
	uint32_t n_stacks;	    /* existing now */
	uint64_t leaks;
	struct fail_state error; /* for work that belongs to no thread */

	struct sim_node *nodes;
	unsigned n_nodes;
	struct sim_proc **procs;
	unsigned n_procs, n_live;
};

/* cluster.c */
struct gn_sim *sim_current(void); /* NULL outside a simulation */
struct sim_entry {
	struct gn_sim *sim;
	const struct exec_ops *ops;
};
int sim_check_home(const struct gn_sim *sim); /* -EINVAL on another OS thread, logged */
/* Enters the simulation on this OS thread, and leaves it. */
struct sim_entry sim_enter(struct gn_sim *sim);
void sim_leave(struct sim_entry before);
/* From a thread: ends the run with rc, which was logged. Returns if the run is continued. */
void sim_give_up(struct gn_sim *sim, int rc);

/* proc.c */
void sim_proc_destroy(struct sim_proc *proc); /* kills it if it is running */
/* Its node crashes: it ends, or is down until the restart. */
void sim_proc_crash(struct sim_proc *proc, bool restarts);
void sim_proc_restart(struct sim_proc *proc);
void sim_hook_add(struct sim_proc *proc, struct sim_hook *hook);
void sim_hook_del(struct sim_hook *hook);
/* Makes the engine act for another process; returns the previous one. */
static inline struct sim_proc *sim_act_for(struct gn_sim *sim, struct sim_proc *proc)
{
	struct sim_proc *before = sim->proc;

	sim->proc = proc;
	return before;
}

/* thread.c */
int sim_thread_create(struct sim_proc *proc, const char *name, void (*fn)(void *), void *arg,
		      struct sim_thread **out);
void sim_thread_destroy(struct sim_thread *thread);
int sim_thread_join(struct sim_thread *self, struct sim_thread *thread);
/* Its gn_thread_id(): different from all OS threads'. */
static inline uint64_t sim_thread_number(const struct sim_thread *thread)
{
	return thread->id | UINT64_C(1) << 62;
}
/* Parks until sim_unpark() or until_ps. */
void sim_park(struct sim_thread *self, uint64_t until_ps, const char *reason);
/* … or until the node's clock shows deadline_ns. */
void sim_park_till(struct sim_thread *self, uint64_t deadline_ns, const char *reason);
static inline bool sim_passed(const struct sim_thread *self, uint64_t deadline_ns)
{
	return sim_clock_ns(&self->proc->node->clock, self->proc->sim->engine.now_ps) >=
	       deadline_ns;
}
void sim_unpark(struct sim_thread *thread);
/* The running thread, if any, works for ps: others may run meanwhile, also for 0. */
void sim_spend(struct gn_sim *sim, uint64_t ps);
/*
 * The same, charged later by the next call that lets time pass: a few nanoseconds of polling or
 * posting are not worth an event.
 */
void sim_owe(struct gn_sim *sim, uint64_t ps);
void sim_owe_until(struct gn_sim *sim, uint64_t at_ps);
void sim_settle(struct gn_sim *sim);
/* The running thread made an empty poll, or found something: see SIM_LOOKS_MAX. */
void sim_looked(struct gn_sim *sim, uint64_t ps);
void sim_found(struct gn_sim *sim);
/* The running thread made a call that lets no time pass: see SIM_SPINS_MAX. */
void sim_spun(struct gn_sim *sim);

/* ---- faults: interface for the affected operations ---- */

/*
 * Does the fault happen at this opportunity, scheduled or at random? Counts it. A kind that is not
 * configured costs one load and draws nothing.
 */
static inline bool sim_fault(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	return unlikely(sim->faults.named & 1u << kind) && sim_fault_taken(sim, kind, node);
}

/* Does a partition separate from and to? */
static inline bool sim_fault_cut(const struct gn_sim *sim, unsigned from, unsigned to)
{
	return unlikely(sim->faults.cut_until_ps > sim->engine.now_ps) &&
	       sim_fault_is_cut(sim, from, to);
}

/* CPU slowdown in units of 1/256; 256: none. */
static inline uint32_t sim_fault_cpu_factor(const struct gn_sim *sim, unsigned node)
{
	return sim_slow_factor(&sim->nodes[node].slow_cpu, sim->engine.now_ps);
}

/* The queue holds only faults that would wake no thread: the run is stuck. */
static inline bool sim_only_idle(const struct gn_sim *sim)
{
	return sim->engine.n_now + sim->engine.later.n == sim->faults.n_idle;
}

/* wait.c */
int sim_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason,
	     bool spin);
void sim_wait_unlink(struct sim_thread *thread); /* before it is destroyed */
void sim_words_due(struct sim_event *event);	 /* proc->words */
/* The fabric stored bytes in memory of proc. */
void sim_words_placed(struct sim_proc *proc, const void *addr, size_t len_bytes);
/* A thread of proc may have stored something. */
void sim_words_look(struct sim_proc *proc);
static inline void sim_words_stored(struct sim_proc *proc)
{
	if (proc->watched)
		sim_words_look(proc);
}

/* lock.c */
void sim_mutex_init(struct gn_mutex *mutex);
void sim_mutex_lock(struct gn_mutex *mutex);
void sim_mutex_unlock(struct gn_mutex *mutex);
void sim_mutex_fini(struct gn_mutex *mutex);
void sim_cond_init(struct gn_cond *cond);
int sim_cond_wait(struct gn_cond *cond, struct gn_mutex *mutex, uint64_t deadline_ns,
		  const char *reason);
void sim_cond_wake(struct gn_cond *cond, bool all);
void sim_cond_fini(struct gn_cond *cond);
void sim_waiters_leave(struct sim_thread *thread);

/* slot.c */
int sim_slot_create(void (*destroy)(void *value), struct gn_slot **out);
void *sim_slot_get(const struct gn_slot *slot);
int sim_slot_set(struct gn_slot *slot, void *value);
void sim_slot_destroy(struct gn_slot *slot);
void sim_slots_end(
	struct sim_thread *thread); /* calls the destroy functions with the thread's values */

/* heap.c */
void *sim_heap_alloc(size_t size, size_t align);
void sim_heap_free(void *ptr);
/* Frees the rest of a process's heap. Returns the number of allocations. */
uint64_t sim_heap_release(struct sim_proc *proc);

#endif
