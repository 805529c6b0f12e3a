/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the BPF program and the loader share: limits, layouts, tunables and counters.
 *
 * A CPU has a *slot* in its LLC's sparse bitmaps. Slots are handed out LLC by LLC and core by core,
 * so that SMT siblings are neighbours, and each LLC starts on a line of its own:
 *
 *	LLC 0 (6 cores, SMT 2)              LLC 1
 *	line 0            line 1            line 2
 *	[0 1|2 3|4 5|6 7] [8 9|10 11|. .]   [12 13|...        (4 cores a line here, 8 for real)
 *
 * The loader fills cpu_layouts, llc_layouts and slot_cpus before the program loads, or when a CPU
 * comes.
 */
#ifndef __MAGPIE_INTF_H
#define __MAGPIE_INTF_H

#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;
#endif

enum magpie_limits {
	MAX_CPUS = 1024,
	MAX_LLCS = 256,
	MAX_LINES = 512,
	/* cgroups with a share of their own, and the root; --max-cgroups says how many */
	MAX_GROUPS = 65536,
	SLOTS_PER_LINE = 16, /* of the sparse bitmaps; a multiple of every SMT width */
	MAX_SLOTS = MAX_LINES * SLOTS_PER_LINE,
	NO_SLOT = MAX_SLOTS,
	LINES_PER_LLC = 64,
	CACHE_LINE = 64,
	SMALL_LLC = 16,	     /* CPUs of an LLC whose nr_scan --small-llc-boost scales up */
	STALE_INTERVALS = 3, /* for which what is published counts */
	LATENCY_BUCKETS = 32,
	/* the first LLCs: from which of them tasks are stolen is counted for each */
	MATRIX_LLCS = 8,
	MAX_NODE_IDS = 1024, /* the kernel's ids */
	/* whose memory is known; with more the kernel forgets those that run least */
	MAX_PROCESSES = 1024,
	/* tasks that wait on a CPU: more are served in FIFO order */
	MAX_LONG_QUEUE = 1024,
};

enum { NO_NODE = -1, NO_CPU = -1 };

enum pelt_consts {
	PELT_UNIT_SHIFT = 10,	   /* PELT counts in units of 1024 ns, the kernel's "us" */
	PELT_PERIOD = 1024,	   /* units */
	PELT_HALFLIFE = 32,	   /* periods */
	PELT_LOAD_AVG_MAX = 47742, /* what the sum of a CPU that never idles converges to */
	CAPACITY_SCALE = 1024,
	/* of CAPACITY_SCALE: a capacity that is no more than that of another is no greater */
	STRONGER = 1078,
};

/*
 * Constant from the load on: the verifier leaves out what this machine and these flags do not need.
 */
struct machine {
	/* a task that waits for longer runs next: a quarter of the watchdog's timeout */
	u64 starve_ns;
	u32 smt_width;	/* CPUs a core at most, a power of two up to SLOTS_PER_LINE */
	u32 core_first; /* bits of a line: the first slot of each core, */
	u32 core_last;	/* ... and the last */
	u32 nr_cpu_ids; /* CPU ids are below this, also of CPUs that may come */
	u32 nr_cpus_possible;
	u32 nr_llcs;
	u32 nr_cpus;	 /* with a place when the program was loaded */
	u32 nr_stronger; /* of them, stronger than the weakest: the first of capacity_order */
	u32 nr_nodes;	 /* with CPUs */
	/*
	 * ids of cgroups are below this; those for which there is none count as part of their
	 * parents
	 */
	u32 max_groups;
	u8 cgroups;	  /* do cgroups' settings count? */
	u8 polls_cgroups; /* ... and are some of them not reported by the kernel? */
	u8 autogroups;	  /* does the kernel have autogroups, and do cgroups count? */
	u8 asym;	  /* do CPUs differ in capacity, and does that count? */
	u8 cpufreq;	  /* do CPUs' frequencies follow utilization? */
	u8 ranked;	  /* are cores of an LLC preferred to others? */
	u8 pack;	  /* do light tasks share few cores, of the weakest? */
	u8 nohz_full;	  /* are some CPUs nohz_full? */
	u32 perf_scale;	  /* part of its utilization that a CPU's target is, of CAPACITY_SCALE */
};

/*
 * From the loader's flags; it may write them while the program runs, each on its own. They have a
 * page of their own.
 */
struct tunables {
	u64 slice_ns; /* for which a task runs before its queue is checked */
	/*
	 * how far ahead a task comes that was not woken by a message, until it has run for a slice
	 */
	u64 credit_ns;
	/* a waker that sleeps this soon after it woke another hands its CPU off; 0: none does */
	u64 handoff_ns;
	/* for which a task that ran is left to its LLC by idle CPUs of the node's others, */
	u64 llc_cost_ns;
	u64 node_cost_ns;     /* ... and by those of other nodes */
	u64 util_interval_ns; /* between two of the publisher's rounds */
	/* tasks, a slice each, that it takes starve_ns to run; MAX_LONG_QUEUE at most */
	u32 long_queue;
	u32 imbalance_pct; /* an LLC that is utilized more than 100 / this is not searched */
	/* overloaded CPUs that a CPU about to go idle tries before it gives up */
	u32 steal_tries;
	/* scan periods for which a task is not moved home after wake-affine moved it away */
	u32 numa_backoff;
	u8 scan_limit;	    /* does nr_scan bound the search? */
	u8 small_llc_boost; /* ... and is larger for LLCs of SMALL_LLC CPUs or fewer? */
	u8 latency_hist;    /* is the time that searches take counted? */
	u8 wakeup_preempt;
	u8 steal;	 /* do CPUs take each other's waiting tasks? */
	u8 numa_sampler; /* does the loader tell where processes have their memory? */
	/* Which of wake-affine's rules are in force; see numa/wake_affine.bpf.h. */
	u8 affine_idle;
	u8 affine_sync;
};

/* See core/hotplug.bpf.h. */
enum cpu_state {
	CPU_ONLINE = 1,
	CPU_PLACED = 2,
	CPU_PRESENT = CPU_ONLINE | CPU_PLACED,
};

/* Where a CPU stands. */
struct cpu_layout {
	u32 llc;
	u32 node;
	u32 slot;
	u32 capacity; /* 0..CAPACITY_SCALE */
	u32 rank;     /* the higher, the more preferred */
	/* the slot after which scans for an idle CPU begin: its own, or the LLC's last */
	u32 scan_from;
	u32 nohz_full; /* the kernel can stop its tick: order/tickless.bpf.h */
	u32 state;     /* enum cpu_state; atomic */
};

/* An LLC, and the others in the order in which they are searched and robbed: nearest first. */
struct llc_layout {
	u32 first_line;
	u32 node;
	u32 nr_lines;
	u32 nr_slots; /* from its first CPU's to its last's */
	u32 nr_cpus;  /* present; counted by the program, atomic */
	u32 nr_near;  /* the first nr_near of others[] are on the same node */
	u32 nr_reach; /* its CPUs steal from the first nr_reach of others[]; follows --steal */
	u16 others[MAX_LLCS];
};

struct placed_cpu {
	s32 cpu;
};

/*
 * What CPUs can reach now, for their frequency may be clamped: 1..CAPACITY_SCALE; most and least of
 * it. Written by the loader.
 */
struct capacities {
	u32 max;
	u32 min;
	u32 of[MAX_CPUS];
};

struct map_line {
	u64 bits;
	u64 pad[CACHE_LINE / sizeof(u64) - 1];
} __attribute__((aligned(CACHE_LINE)));

/* A bitmap of all slots; see core/bitmap.bpf.h. */
struct sparse_map {
	struct map_line lines[MAX_LINES];
};

/*
 * What became of a wakeup, where tasks waited, and which CPUs took them: counted on the CPU that
 * did it.
 */
enum magpie_stat {
	STAT_SEARCH, /* calls of select_cpu, except STAT_HANDOFF */
	STAT_TARGET, /* ... placed on an idle target */
	STAT_PREV,   /* ... on an idle previous CPU */
	STAT_RECENT, /* ... on the CPU used before that */
	STAT_SCAN,   /* ... on an idle CPU of the target's LLC */
	STAT_BEYOND, /* ... on an idle CPU of another LLC */
	STAT_FAILED, /* ... none idle: left to enqueue */
	/* wakeups not searched for: the waker, about to sleep, handed its CPU off */
	STAT_HANDOFF,
	STAT_SCANNED, /* CPUs that searches went over, beyond the fast candidates */
	/* times that nr_scan began to be estimated here, for the loader was late */
	STAT_STALE,
	STAT_LOCAL,	 /* enqueued on a CPU that was idle */
	STAT_KTHREAD,	 /* per-CPU kernel threads and the loader, run at once */
	STAT_PREEMPT,	 /* wakees that preempted current */
	STAT_QUEUED,	 /* put into a CPU's queue */
	STAT_THROTTLED,	 /* made to wait, for their cgroup has used up its cpu.max */
	STAT_RELEASED,	 /* tasks that waited so and were queued again */
	STAT_KICK,	 /* idle CPUs woken to take a task that waits in a queue */
	STAT_IPI,	 /* kicks of other CPUs, those included */
	STAT_OWN,	 /* tasks a CPU took from its own queue */
	STAT_KEEP,	 /* slices prolonged: the running task was still ahead, or alone */
	STAT_STEAL,	 /* times that a CPU without work looked for some at others */
	STAT_STEAL_LLC,	 /* tasks taken from a CPU of the same LLC */
	STAT_STEAL_NODE, /* ... of another LLC of the node */
	STAT_STEAL_FAR,	 /* ... of another node */
	STAT_STOLEN_NS,	 /* for which tasks had been queued that then ran on another CPU */
	/* tasks that a busy CPU took from one where they have more lag, or waited longer */
	STAT_BALANCE,
	STAT_STARVED,	 /* tasks run out of turn because they waited far too long */
	STAT_STEAL_MISS, /* victims whose waiting tasks were gone or could not come */
	STAT_EMPTY,	 /* dispatches that found nothing to run */
	STAT_REENQUEUE,	 /* tasks that fled a CPU taken by a higher scheduling class */
	STAT_AFFINE,	 /* wakeups pulled to the waking CPU, away from the previous one */
	STAT_AFFINE_FAR, /* ... of another node */
	STAT_HOME_WAKE,	 /* woken tasks that returned to their home node */
	STAT_HOME_STEAL, /* waiting tasks that a CPU of their home node took */
	STAT_HOME_MOVE,	 /* running tasks that were moved home */
	/* looks at running tasks away from home that wake-affine's back-off kept there */
	STAT_HOME_HELD,
	STAT_HOME,	  /* looks at running tasks that were on their home node */
	STAT_AWAY,	  /* ... that were not */
	STAT_MISFIT,	  /* running tasks that outgrew their CPU */
	STAT_MISFIT_NS,	  /* for which such tasks ran there */
	STAT_MISFIT_MOVE, /* ... that were moved to a stronger one */
	STAT_MISFIT_SWAP, /* ... which a task had to leave that fits elsewhere */
	/*
	 * running tasks that were moved off a shared core, to a preferred one, or to an LLC with
	 * more room
	 */
	STAT_ROOM_MOVE,
	STAT_BUSY_NS, /* not idle */
	MAGPIE_NR_STATS,
};

/* Utilization of a CPU, or of a task, by PELT; see core/pelt.bpf.h, capacity/task_util.bpf.h. */
struct pelt {
	u64 updated_at; /* scx_bpf_now() up to which time is in util_sum */
	u64 util_sum;
	u32 period_contrib; /* units into the running period */
	u32 util_avg;	    /* 0..CAPACITY_SCALE */
	/* units that idle time is to make up for: it ran below the highest frequency */
	u32 behind;

	/* Of a CPU. */
	u64 since;  /* scx_bpf_now() of its last tick, or when it entered or left idle */
	u64 ran;    /* ns between updated_at and since for which it was not idle */
	u8 running; /* not idle since then */
	u8 idled;   /* idle at some time between updated_at and since */
};

/* Whose wakeup current of a CPU makes way for. */
enum preempter {
	BY_NONE,
	BY_WAKEE,
	BY_KTHREAD, /* a per-CPU kernel thread, which is brief */
};

/* What is due in the next dispatch(), as a tick finds. */
enum due {
	DUE_SHARES = 1,	 /* a check of the weights of the last tasks that wait */
	DUE_STARVED = 2, /* ... and for tasks that starve */
	DUE_BALANCE = 4, /* a check of the queue of another CPU */
	DUE_YIELD = 8,	 /* the task that current yielded to; set by current */
};

/* Which queues of a CPU may have tasks: order/queue.bpf.h. */
enum queued {
	QUEUED_MOVABLE = 1, /* of tasks that may migrate */
	QUEUED_PINNED = 2,  /* of tasks that may not */
};

/*
 * State of a CPU. Written by the CPU itself or under its rq lock, unless it says otherwise; read by
 * any CPU.
 */
struct cpu_ctx {
	/* What other CPUs read when they wake a task, or look for one: a line. */
	u64 vclock; /* order/: the CPU's virtual time, weighted ns */
	/* makes it comparable with those of other CPUs; see steal/balance.bpf.h */
	u64 voffset;
	u64 queued_load;     /* sum of the weights of the tasks in its queues; atomic */
	u64 curr_deadline;   /* current's task_ctx.deadline */
	u64 curr_requeued;   /* ... if its slice ends, at least */
	u64 curr_started;    /* ran_until() when it started */
	s64 curr_left;	     /* ns for which it was expected to run then, before it sleeps */
	u32 curr_weight;     /* its task_weight(); 0: no task of sched_ext runs */
	u32 curr_util;	     /* task_util of current, when it started or at the last tick */
	u8 curr_idle_policy; /* SCHED_IDLE or cpu.idle */
	u8 curr_critical;    /* is_critical() */
	u8 curr_resumes;     /* it has the rest of its slice */
	u8 preempted_by;     /* enum preempter: current makes way */
	u8 idle;	     /* in the idle loop */
	u8 taken;	     /* a higher class took it, and no task of ours has run since */
	u8 misfit;	     /* current is too big for this CPU */
	u8 queued;	     /* enum queued */
	u8 fifo;	     /* FIFO mode: deadlines do not matter */
	u8 due;		     /* DUE_*: what dispatch() is to see to, set by the tick */
	u8 tickless;	     /* current has no tick: order/tickless.bpf.h */

	/* From here on it is the CPU's own. */
	/* the latest that a task was queued with */
	u64 last_deadline __attribute__((aligned(CACHE_LINE)));
	/* scx_bpf_now() - the kernel's clock_task, which leaves out interrupts; at the last tick */
	u64 clock_lag;
	u64 requeued_at; /* scx_bpf_now() of the last DUE_SHARES */
	s32 nr_queued;	 /* sampled by sample_queues() */

	/* order/pick.bpf.h */
	u64 starved_at; /* scx_bpf_now() of the last DUE_STARVED */
	s32 yield_to;	/* DUE_YIELD: PID of the task */
	s32 yield_from; /* ... and the CPU for which it waits */

	/* order/slice_timer.bpf.h */
	u64 slice_ends;	    /* scx_bpf_now() when current's slice is over */
	u64 slice_timer_at; /* ... when the timer fires; 0: not set */

	/* steal/ */
	u64 balanced_at;  /* scx_bpf_now() of the last balance_victim() */
	u32 balance_turn; /* counts them */
	u32 balance_slot; /* of the last CPU of the LLC that it found */
	s32 balance_with; /* the CPU that balance() is to look at */
	/* the victim at which steal() ran out of tries; NO_SLOT: it did not */
	u32 steal_slot;
	u8 awaits;  /* the last steal() found a queue into which a task may be inserted soon */
	u8 awaited; /* ... and this CPU, which idles, was kicked to look there once more */

	/* numa/: the hand-off of current. */
	u64 sync_woke_at;  /* CLOCK_MONOTONIC of its last sync wakeup; 0: not timed */
	s32 handoff_score; /* its task_ctx.handoff_score */
	u32 nr_handoffs;   /* of this CPU: one in HANDOFF_SAMPLE is timed */
	u8 sync_wakes;	   /* by WF_SYNC: 0, 1, or 2 for more */
	u8 handed_off;	   /* ... and the wakee waits in the local DSQ for this CPU */
	u64 homed_at;	   /* scx_bpf_now() of the last look at how local current is */

	/* capacity/ */
	u32 util_est;	    /* util_avg when the CPU went idle, rising at once and falling slowly */
	u32 cpuperf_target; /* what the kernel holds; sampled by sample_queues() */
	u32 fallback_turn;  /* the next CPU that fallback_cpu() looks at, */
	u32 move_turn;	    /* ... and find_stronger(), and the next LLC that find_room() does */

	/* cgroup/weight.bpf.h */
	u32 settle_turn; /* the next idle CPU that it settles */

	u32 absent_turn; /* core/hotplug.bpf.h: the next CPU that a tick looks at */

	/* cgroup/throttle.bpf.h */
	u64 throttle_timer_at; /* scx_bpf_now() when its timer comes; 0: not set */
	u8 throttled_due;      /* it has come; set by the timer, cleared by the CPU */

	struct pelt pelt __attribute__((aligned(CACHE_LINE)));
	u64 mono_offset; /* CLOCK_MONOTONIC - scx_bpf_now() on this CPU */
	u64 mono_at;	 /* scx_bpf_now() when mono_offset was taken */

	u64 stats[MAGPIE_NR_STATS] __attribute__((aligned(CACHE_LINE)));
	/* STAT_STEAL_NODE and STAT_STEAL_FAR by the LLC that they came from */
	u64 stolen_from[MATRIX_LLCS];
} __attribute__((aligned(512)));

/* What the loader publishes of an LLC each interval. */
struct llc_published {
	u64 at;	      /* CLOCK_MONOTONIC */
	u32 sum_util; /* sum of util_avg of its CPUs, 0..capacity */
	/*
	 * that they can reach now, for their frequency may be clamped: 1..nr_cpus * CAPACITY_SCALE
	 */
	u32 capacity;
	/* CPUs that a search may go over; written by the BPF program while the loader is late */
	u32 nr_scan;
} __attribute__((aligned(CACHE_LINE)));

/* State of an LLC that is not for the loader. */
struct llc_ctx {
	u64 estimated_at; /* CLOCK_MONOTONIC of the last own nr_scan */
	u8 has_idle_core; /* under SMT: maybe a core is idle as a whole */
} __attribute__((aligned(CACHE_LINE)));

/* A cgroup, by an id of ours; 0 is the root, which has none of this. See cgroup/weight.bpf.h. */
struct group {
	s64 sum;     /* of the weights of what is runnable directly in it; atomic */
	u64 counted; /* its weight in its parent's sum; atomic */

	/* What all CPUs read, and changes seldom. The kernel's id, or the autogroup. */
	u64 cgroup __attribute__((aligned(CACHE_LINE)));
	u32 weight; /* the kernel's, 1024 for cpu.weight 100; 0: the id is free */
	u32 parent;
	u32 level;
	u8 idle; /* cpu.idle */
	u8 autogroup;
	u32 members; /* of an autogroup: tasks; atomic */
	u32 unused;  /* ... looks in a row that found none */
	u64 quota;   /* cpu.max, ns; 0: none */
	u64 period;
	u64 burst;

	/* See cgroup/bandwidth.bpf.h. */
	s64 budget __attribute__((aligned(CACHE_LINE))); /* what is left of its quota */
	u64 period_start;				 /* scx_bpf_now() */
	u32 filling;					 /* bw_refill() is at work; atomic */
	u64 throttled_at;				 /* scx_bpf_now(); 0: it is not */
	u64 throttled_ns;				 /* in all, until it last went on */
	u64 nr_periods;					 /* in which it ran or was throttled */
	u64 nr_throttled;				 /* ... and was throttled */
} __attribute__((aligned(CACHE_LINE)));

/* A process, by its tgid; see numa/home.bpf.h and src/numa. */
struct process {
	u64 looks; /* at its tasks while they ran */
	s32 node;  /* that has its memory; NO_NODE: none, or not known */
	u32 pad;
};

/*
 * Searches by the time that they took: bucket i counts those of [2^i, 2^(i+1)) ns, the first also
 * those of 0.
 */
struct latency_hist {
	u64 buckets[LATENCY_BUCKETS];
} __attribute__((aligned(CACHE_LINE)));

/* Where wakeups went on machines with CPUs of different capacity; see capacity/wake_cases.bpf.h. */
enum magpie_wake_case {
	WAKE_BIG_TASK = 4,
	WAKE_BIG_PREV = 2,
	WAKE_BIG_WAKING = 1,
	NR_WAKE_CASES = 8,
};

enum magpie_wake_end {
	WAKE_FAST,     /* the target, previous or recently used CPU */
	WAKE_SCAN,     /* another idle one */
	WAKE_FALLBACK, /* none: it waits in a queue */
	NR_WAKE_ENDS,
};

struct wake_cases {
	u64 little[NR_WAKE_CASES][NR_WAKE_ENDS]; /* the new CPU is little, */
	u64 big[NR_WAKE_CASES][NR_WAKE_ENDS];	 /* ... or big */
} __attribute__((aligned(CACHE_LINE)));

#endif /* __MAGPIE_INTF_H */
