/* SPDX-License-Identifier: MIT */
/*
 * The simulated cluster as its own files and the sim provider see it: nodes, processes and threads.
 *
 * Everything runs on one OS thread, in one of two ways: as a simulated thread, on its fiber, which
 * may park; or as the engine, inside an event, which may not. Both may change anything without
 * locks. The engine acts for one process at a time (sim->proc), whose heap it allocates from.
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

/* Bounds. A thread that reaches one of the next two goes round in circles, and the run ends. */
#define SIM_LOOKS_MAX	1000000u   /* empty polls and yields without a wait */
#define SIM_SPINS_MAX	100000000u /* calls that let no time pass, like reading the clock */
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

/* What every event of it touches comes first. */
struct sim_thread {
	struct sim_event run;	/* it goes on; while it is parked with a deadline, that */
	struct gn_fiber *fiber; /* its context while it does not run, whichever stack that is on */
	struct sim_proc *proc;
	uint64_t busy_ps; /* until then it works on what it has done already: see sim_owe() */
	uint64_t until_ps;
	uint64_t deadline_ns; /* the same by its node's clock; GN_FOREVER if it is not from there */
	const char *reason;   /* why it is parked */
	uint64_t reason_id;   /* the thread it waits for, or 0 */
	unsigned core;	      /* of its node that it works on */
	uint32_t looks;	      /* SIM_LOOKS_MAX */
	uint32_t spins;	      /* SIM_SPINS_MAX */
	uint32_t locks;	      /* mutexes it holds */
	bool done;
	bool working;  /* parked in sim_spend() */
	bool held_up;  /* it could go on, but its node is paused */
	bool unparked; /* … but it is still busy */

	/* gn_wait() */
	bool looking; /* asks its sources: that is no empty poll */
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

/* Called, by the engine, when a process ends with it still linked. Lives in the process's heap. */
struct sim_hook {
	void (*fn)(struct sim_hook *hook);
	struct sim_hook *next, **prev;
};

struct sim_block; /* an allocation */
struct sim_held;  /* a buffer that a card may look at: the sim provider's */
#define SIM_HELD_LISTS 64u

struct sim_proc {
	struct gn_sim *sim;
	struct sim_node *node;
	unsigned number;
	struct sim_event end;
	bool ending, ended, killed;
	bool down; /* its node crashed, and will start it again */
	int status;
	gn_node_main *program;
	struct gn_env env;
	int argc;
	char **args; /* as spawned */
	char **argv; /* the program's copy, which it may change */

	struct sim_thread *threads;
	struct sim_hook *hooks;
	struct gn_fiber *fibers;      /* made inside: exec_ops.fibers */
	struct gn_wait_item *watched; /* memory words that its threads wait for */
	uint32_t n_watched;
	uint64_t looked_ps;	/* when all of them were last looked at */
	struct sim_event words; /* … and are to be looked at again, if they are many */
	const struct gn_slot *slot[SIM_SLOTS];
	struct sim_held *held[SIM_HELD_LISTS + 1]; /* by address; the last: in several ranges */
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
	void *nic; /* the sim provider's, freed with nic_free */
	void (*nic_free)(void *nic);

	struct sim_clock clock;
	struct sim_alarm *alarms;
	uint32_t n_alarms; /* ever made */
	/* What is wrong with it, each until a moment (fault_node.c). */
	bool crashed;	      /* it is silent, and … */
	bool down;	      /* its programs have ended, or will start again at up_ps */
	uint32_t incarnation; /* how often it went down */
	uint64_t up_ps;	      /* down: until */
	struct sim_event restart;
	bool has_restart, restart_is_idle;
	uint64_t paused_until_ps; /* no thread of it runs; its device does */
	struct sim_slow slow_cpu;
	uint64_t cut_out_until_ps, cut_in_until_ps; /* it is not heard, does not hear */
	bool side;				    /* sim_faults.split_until_ps */
};

/* Rings once, when its node's clock shows deadline_ns; alarm.c. */
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
/* The node's clock runs differently from now on. */
void sim_alarms_drift(struct sim_node *node);

struct gn_sim {
	struct sim_engine engine;
	struct sim_faults faults;
	struct sim_profile profile;
	uint64_t caps_off;
	size_t stack_bytes;
	const void *home; /* the OS thread it belongs to */
	bool running;
	int stop; /* why the run is to end early */

	struct gn_fiber *scheduler; /* the engine's context while a thread runs */
	struct sim_thread *thread;  /* that runs; NULL: the engine */
	struct sim_proc *proc;	    /* that it belongs to, or that the engine acts for */
	uint64_t n_threads;	    /* ever started */
	uint32_t n_stacks;	    /* that there are now */
	uint64_t leaks;
	struct fail_state error; /* of what the engine did for no thread */

	struct sim_node *nodes;
	unsigned n_nodes;
	struct sim_proc **procs;
	unsigned n_procs, n_live;
};

/* cluster.c */
struct gn_sim *sim_current(void); /* NULL outside */
struct sim_entry {
	struct gn_sim *sim;
	const struct exec_ops *ops;
};
int sim_check_home(const struct gn_sim *sim); /* -EINVAL on another OS thread, logged */
/* Put this OS thread into the simulation, and back. */
struct sim_entry sim_enter(struct gn_sim *sim);
void sim_leave(struct sim_entry before);
/* From a thread: end the run with rc, which was logged. Returns if the run is taken up again. */
void sim_give_up(struct gn_sim *sim, int rc);

/* proc.c */
void sim_proc_destroy(struct sim_proc *proc); /* kills it if it still runs */
/* Its node crashes. It ends, or is down until it is restarted. */
void sim_proc_crash(struct sim_proc *proc, bool restarts);
void sim_proc_restart(struct sim_proc *proc);
void sim_hook_add(struct sim_proc *proc, struct sim_hook *hook);
void sim_hook_del(struct sim_hook *hook);
/* The engine acts for another process: returns the one before. */
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
/* gn_thread_id() of it: not the number of any OS thread. */
static inline uint64_t sim_thread_number(const struct sim_thread *thread)
{
	return thread->id | UINT64_C(1) << 62;
}
/* Until sim_unpark() or until_ps, whichever is first. */
void sim_park(struct sim_thread *self, uint64_t until_ps, const char *reason);
/* … until the clock of its node shows deadline_ns. */
void sim_park_till(struct sim_thread *self, uint64_t deadline_ns, const char *reason);
static inline bool sim_passed(const struct sim_thread *self, uint64_t deadline_ns)
{
	return sim_clock_ns(&self->proc->node->clock, self->proc->sim->engine.now_ps) >=
	       deadline_ns;
}
void sim_unpark(struct sim_thread *thread);
/* The running thread, if one runs, is busy for ps: others may run meanwhile, also for 0. */
void sim_spend(struct gn_sim *sim, uint64_t ps);
/*
 * It is busy for ps, but that is settled later, by what next lets time pass: a few nanoseconds of
 * polling or posting are not worth an event.
 */
void sim_owe(struct gn_sim *sim, uint64_t ps);
void sim_owe_until(struct gn_sim *sim, uint64_t at_ps);
void sim_settle(struct gn_sim *sim);
/* The running thread looked for something in vain, or found it: see SIM_LOOKS_MAX. */
void sim_looked(struct gn_sim *sim, uint64_t ps);
void sim_found(struct gn_sim *sim);
/* The running thread made a call that lets no time pass: see SIM_SPINS_MAX. */
void sim_spun(struct gn_sim *sim);

/* ---- faults: what the places where they happen ask ---- */

/*
 * Whether this chance is taken: by the schedule, or by a draw; counts it if so. A kind that no list
 * names costs one load and draws nothing.
 */
static inline bool sim_fault(struct gn_sim *sim, enum sim_fault kind, unsigned node)
{
	return unlikely(sim->faults.named & 1u << kind) && sim_fault_taken(sim, kind, node);
}

/* What from sends does not reach to. */
static inline bool sim_fault_cut(const struct gn_sim *sim, unsigned from, unsigned to)
{
	return unlikely(sim->faults.cut_until_ps > sim->engine.now_ps) &&
	       sim_fault_is_cut(sim, from, to);
}

/* In 1/256, 256 for a healthy one: how much longer work takes. */
static inline uint32_t sim_fault_cpu_factor(const struct gn_sim *sim, unsigned node)
{
	return sim_slow_factor(&sim->nodes[node].slow_cpu, sim->engine.now_ps);
}

/* Nothing waits in the queue but faults that would find nobody: the run is stuck. */
static inline bool sim_only_idle(const struct gn_sim *sim)
{
	return sim->engine.n_now + sim->engine.later.n == sim->faults.n_idle;
}

/* wait.c */
int sim_wait(struct gn_wait_item *items, unsigned n, uint64_t deadline_ns, const char *reason);
void sim_wait_unlink(struct sim_thread *thread); /* before it is destroyed */
void sim_words_due(struct sim_event *event);	 /* proc->words */
/* The fabric has placed something in memory of proc. */
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
	struct sim_thread *thread); /* gives the thread's values to their destroy functions */

/* heap.c */
void *sim_heap_alloc(size_t size, size_t align);
void sim_heap_free(void *ptr);
/* Frees what is left of a process's heap. Returns how many allocations that was. */
uint64_t sim_heap_release(struct sim_proc *proc);

#endif
