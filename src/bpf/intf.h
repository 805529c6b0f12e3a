/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Definitions that the BPF program and the loader share: limits, layouts, tunables and counters.
 *
 * A CPU has a *slot*, its index in the sparse bitmaps. Slots are numbered LLC by LLC and core by
 * core, so that SMT siblings are neighbours, and each LLC begins a new line:
 *
 *	LLC 0 (6 cores, SMT 2)              LLC 1
 *	line 0            line 1            line 2
 *	[0 1|2 3|4 5|6 7] [8 9|10 11|. .]   [12 13|...     (drawn: 4 cores a line; really: 8)
 *
 * The loader fills cpu_layouts, llc_layouts and slot_cpus before it loads the program, and when a
 * CPU appears.
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
	/* cgroups with shares of their own, and the root; --max-cgroups sets how many */
	MAX_GROUPS = 65536,
	SLOTS_PER_LINE = 16, /* of the sparse bitmaps; a multiple of every SMT width */
	MAX_SLOTS = MAX_LINES * SLOTS_PER_LINE,
	NO_SLOT = MAX_SLOTS,
	LINES_PER_LLC = 64,
	CACHE_LINE = 64,
	SMALL_LLC = 16, /* --small-llc-boost scales nr_scan up in LLCs of at most so many CPUs */
	STALE_INTERVALS = 3, /* intervals for which published values are valid */
	LATENCY_BUCKETS = 32,
	/* the first LLCs: steals from each of them are counted separately */
	MATRIX_LLCS = 8,
	MAX_NODE_IDS = 1024, /* node ids of the kernel */
	/* processes whose memory is known; the kernel evicts those that ran least recently */
	MAX_PROCESSES = 1024,
	MAX_STARVE_CHECKS = 1024, /* last waiting tasks of a queue that are checked for starving */
};

enum { NO_NODE = -1, NO_CPU = -1 };

/* A CPU's DSQs: its id, and these plus its id. See order/queue.bpf.h and run/throttle.bpf.h. */
enum magpie_queues { PINNED_QUEUES = MAX_CPUS, THROTTLED_QUEUES = 2 * MAX_CPUS };

enum pelt_consts {
	PELT_UNIT_SHIFT = 10,	   /* PELT counts in units of 1024 ns, the kernel's "us" */
	PELT_PERIOD = 1024,	   /* units */
	PELT_HALFLIFE = 32,	   /* periods */
	PELT_LOAD_AVG_MAX = 47742, /* limit of the sum of a CPU that is never idle */
	CAPACITY_SCALE = 1024,
	/* of CAPACITY_SCALE: a capacity is greater if it exceeds another by this factor */
	STRONGER = 1078,
};

/* Constants of the loaded program: the verifier removes code that they switch off. */
struct machine {
	/* a task that waits for longer runs next: a quarter of the watchdog's timeout */
	u64 starve_ns;
	u32 smt_width;	/* most CPUs of a core, a power of two up to SLOTS_PER_LINE */
	u32 core_first; /* bits of a line: the first slot of each core, */
	u32 core_last;	/* ... and the last */
	u32 nr_cpu_ids; /* CPU ids are below this, also those of CPUs that may appear */
	u32 nr_cpus_possible;
	u32 nr_llcs;
	u32 nr_cpus;	 /* placed when the program was loaded */
	u32 nr_stronger; /* those stronger than the weakest: the first of capacity_order */
	u32 nr_nodes;	 /* nodes with CPUs */
	/* cgroup ids are below this; a cgroup without an id counts as part of its parent */
	u32 max_groups;
	u8 cgroups;	  /* the settings of cgroups are in force */
	u8 polls_cgroups; /* ... and the kernel does not report some of them */
	u8 autogroups;	  /* ... and the kernel has autogroups */
	u8 asym;	  /* CPUs differ in capacity, and the program uses that */
	u8 cpufreq;	  /* frequencies of CPUs follow utilization */
	u8 ranked;	  /* some cores of an LLC are preferred to others */
	u8 pack;	  /* light tasks share few cores, the weakest */
	u8 nohz_full;	  /* some CPUs are nohz_full */
	u32 perf_scale;	  /* factor from utilization to frequency target, of CAPACITY_SCALE */
};

/* By how much the weight of a group counts; the names are those of debugfs sched/cgroup_mode. */
enum magpie_cgroup_mode {
	CGROUP_SMP,    /* once */
	CGROUP_CONCUR, /* for each of its runnable tasks, but no more than its cpuset has CPUs */
	CGROUP_MAX,    /* for each CPU of its cpuset */
	CGROUP_TASKS,  /* for each of its runnable tasks */
};

/* The values of flags, on their own page. The loader may write each of them at any time. */
struct tunables {
	u64 slice_ns; /* time that a task runs before the queue is checked */
	/*
	 * virtual-deadline credit of tasks woken by a timer, a device or a futex; ends after a
	 * slice
	 */
	u64 credit_ns;
	/* a waker that sleeps this soon after it woke another task hands its CPU off; 0: off */
	u64 handoff_ns;
	/* for this long after a task ran, idle CPUs of other LLCs of the node leave it alone, */
	u64 llc_cost_ns;
	u64 node_cost_ns;     /* ... and idle CPUs of other nodes */
	u64 util_interval_ns; /* time between two rounds of the publisher */
	u32 imbalance_pct;    /* an LLC of utilization above 100 / this is not searched */
	/* overloaded CPUs that one steal() tries */
	u32 steal_tries;
	/* scan periods for which a task that wake-affine moved to another node is not moved back */
	u32 numa_backoff;
	u8 scan_limit;	    /* nr_scan bounds the search */
	u8 small_llc_boost; /* ... and is larger for LLCs of at most SMALL_LLC CPUs */
	u8 latency_hist;    /* count the times of searches */
	u8 wakeup_preempt;
	u8 steal;	 /* CPUs take waiting tasks from each other */
	u8 numa_sampler; /* the loader samples the memory of processes */
	/* The rules of wake-affine that are in force; see wake/wake_affine.bpf.h. */
	u8 affine_idle;
	u8 affine_sync;
	u8 cgroup_mode; /* enum magpie_cgroup_mode */
};

/* See hotplug.bpf.h. */
enum cpu_state {
	CPU_ONLINE = 1,
	CPU_PLACED = 2,
	CPU_USABLE = CPU_ONLINE | CPU_PLACED,
};

/* The place of a CPU. */
struct cpu_layout {
	u32 llc;
	u32 node;
	u32 slot;
	u32 capacity; /* 0..CAPACITY_SCALE */
	u32 rank;     /* the higher, the more preferred */
	/* scans for an idle CPU begin after this slot: its own, or the last one of the LLC */
	u32 scan_from;
	u32 nohz_full; /* the kernel can stop its tick: run/tickless.bpf.h */
	u32 state;     /* enum cpu_state; atomic */
};

/* An LLC, and the other LLCs in the order of searching and stealing: nearest first. */
struct llc_layout {
	u32 first_line;
	u32 node;
	u32 nr_lines;
	u32 nr_slots; /* from the slot of its first CPU to that of its last */
	u32 nr_cpus;  /* usable CPUs; counted by the program, atomic */
	u32 nr_near;  /* the first nr_near of others[] are on the same node */
	u32 nr_reach; /* its CPUs steal from the first nr_reach of others[], as --steal allows */
	u16 others[MAX_LLCS];
};

struct placed_cpu {
	s32 cpu;
};

/*
 * Capacities of CPUs under their present frequency limits, 1..CAPACITY_SCALE, and the largest and
 * smallest of them. Written by the loader.
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

/* Counters of wakeups, waiting tasks and steals. The CPU that executes the event counts it. */
enum magpie_stat {
	STAT_SEARCH, /* calls of select_cpu, except STAT_HANDOFF */
	STAT_TARGET, /* ... placed on an idle target */
	STAT_PREV,   /* ... on an idle previous CPU */
	STAT_RECENT, /* ... on the CPU used before that */
	STAT_SCAN,   /* ... on an idle CPU of the target's LLC */
	STAT_BEYOND, /* ... on an idle CPU of another LLC */
	STAT_FAILED, /* ... none idle: left to enqueue */
	/* wakeups without search: the waker, about to sleep, handed its CPU off */
	STAT_HANDOFF,
	STAT_SCANNED, /* CPUs scanned by searches, without the fast candidates */
	/* times that the program began to estimate nr_scan, because the loader was late */
	STAT_STALE,
	STAT_LOCAL,	 /* enqueued on a CPU that was idle */
	STAT_KTHREAD,	 /* per-CPU kernel threads and the loader, run immediately */
	STAT_PREEMPT,	 /* wakees that preempted current */
	STAT_QUEUED,	 /* put into a CPU's queue */
	STAT_THROTTLED,	 /* tasks throttled because their cgroup has used up its cpu.max */
	STAT_RELEASED,	 /* throttled tasks that were queued again */
	STAT_KICK,	 /* idle CPUs kicked to take a task that waits in a queue */
	STAT_IPI,	 /* kicks of other CPUs, STAT_KICK included */
	STAT_OWN,	 /* tasks that a CPU took from its own queue */
	STAT_KEEP,	 /* slices prolonged: current is still first, or alone */
	STAT_STEAL,	 /* times that a CPU without work tried to steal */
	STAT_STEAL_LLC,	 /* tasks taken from a CPU of the same LLC */
	STAT_STEAL_NODE, /* ... of another LLC of the node */
	STAT_STEAL_FAR,	 /* ... of another node */
	STAT_STOLEN_NS,	 /* time that tasks had waited in a queue before another CPU ran them */
	/* tasks that a busy CPU pulled because they had more lag, or had waited for longer */
	STAT_BALANCE,
	STAT_OWN_SLICE,	 /* runs of tasks with a slice of their own (sched_attr.sched_runtime) */
	STAT_STARVED,	 /* tasks run out of turn because they had waited for starve_ns */
	STAT_STEAL_MISS, /* victims from which no task could be taken */
	STAT_EMPTY,	 /* dispatches that found nothing to run */
	STAT_REENQUEUE,	 /* tasks enqueued again because a higher class took their CPU */
	STAT_AFFINE,	 /* wakeups pulled to the waking CPU, away from the previous one */
	STAT_AFFINE_FAR, /* ... of another node */
	STAT_PREFERRED_WAKE,  /* wakeups that returned to the preferred node */
	STAT_PREFERRED_STEAL, /* waiting tasks that a CPU of their preferred node took */
	STAT_PREFERRED_MOVE,  /* running tasks that were moved to their preferred node */
	/* checks that found a task away from its preferred node, held there by the back-off */
	STAT_PREFERRED_HELD,
	STAT_ON_PREFERRED,  /* checks that found a task on its preferred node */
	STAT_OFF_PREFERRED, /* checks that found a task away from it */
	STAT_MISFIT,	    /* running tasks that became too big for their CPU */
	STAT_MISFIT_NS,	    /* time that such tasks ran there */
	STAT_MISFIT_MOVE,   /* ... that were moved to a stronger CPU */
	STAT_MISFIT_SWAP,   /* ... of these, where a running task had to leave that CPU */
	/* running tasks moved to a preferred core, an idle core, or an LLC with more room */
	STAT_ROOM_MOVE,
	STAT_BUSY_NS, /* not idle */
	MAGPIE_NR_STATS,
};

/* Utilization of a CPU or a task, by PELT; see core/pelt.bpf.h, capacity/task_util.bpf.h. */
struct pelt {
	u64 updated_at; /* scx_bpf_now() until which util_sum is up to date */
	u64 util_sum;
	u32 period_contrib; /* units of the present period */
	u32 util_avg;	    /* 0..CAPACITY_SCALE */
	/* PELT time lost to low frequency, repaid by idle time */
	u32 behind;

	/* Only used for a CPU. */
	u64 since;  /* scx_bpf_now() of its last tick, or when it entered or left idle */
	u64 ran;    /* busy ns between updated_at and since */
	u8 running; /* not idle since then */
	u8 idled;   /* idle at some time between updated_at and since */
};

/* The reason why current of a CPU is being preempted. */
enum preempter {
	BY_NONE,
	BY_WAKEE,
	BY_KTHREAD, /* a per-CPU kernel thread, which is brief */
};

/* Work that a tick leaves for the next dispatch(). */
enum due {
	DUE_SHARES = 1,	 /* check the weights of the last waiting tasks */
	DUE_STARVED = 2, /* ... and whether tasks starve */
	DUE_BALANCE = 4, /* balance with another CPU */
	DUE_YIELD = 8,	 /* run the task that current yielded to; set by current */
};

/* Which queues of a CPU may have tasks: order/queue.bpf.h. */
enum queued {
	QUEUED_MOVABLE = 1, /* of tasks that may migrate */
	QUEUED_PINNED = 2,  /* of tasks that may not */
};

/*
 * State of a CPU. Written by the CPU itself or under its rq lock, except where noted; read by any
 * CPU.
 */
struct cpu_ctx {
	/* The line that other CPUs read when they place a task or scan for one. */
	u64 vtime; /* order/deadline.bpf.h: the CPU's virtual time, weighted ns */
	/* vtime + voffset is comparable between CPUs; see steal/balance.bpf.h */
	u64 voffset;
	u64 queued_load;     /* sum of the weights of the tasks in its queues; atomic */
	u64 curr_deadline;   /* current's task_ctx.deadline */
	u64 curr_slice;	     /* current's task_ctx.slice */
	u64 curr_requeued;   /* ... plus a slice: its deadline after this slice is not earlier */
	u64 curr_started;    /* ran_until() when it started */
	s64 curr_left;	     /* expected ns from then on until current sleeps */
	u32 curr_weight;     /* its task_weight(); 0: no task of sched_ext runs */
	u32 curr_util;	     /* task_util of current, when it started or at the last tick */
	u8 curr_idle_policy; /* SCHED_IDLE or cpu.idle */
	u8 curr_critical;    /* is_critical() */
	u8 curr_has_credit;  /* its task_ctx.has_credit */
	u8 curr_resumes;     /* it runs the rest of its slice */
	u8 preempted_by;     /* enum preempter: current is being preempted */
	u8 idle;	     /* in the idle loop */
	u8 released;	     /* to a higher class; no task of sched_ext has run since */
	u8 misfit;	     /* current is too big for this CPU */
	u8 queued;	     /* enum queued */
	u8 due;		     /* DUE_*: work for dispatch(), set by the tick */
	u8 tickless;	     /* current has no tick: run/tickless.bpf.h */

	/* Only the CPU itself uses these, except where noted. */
	/* scx_bpf_now() - the kernel's clock_task, which leaves out interrupts; at the last tick */
	u64 clock_lag __attribute__((aligned(CACHE_LINE)));
	u64 requeued_at; /* scx_bpf_now() of the last DUE_SHARES */
	s32 nr_queued;	 /* sampled by sample_queues() */

	/* order/deadline.bpf.h */
	u64 local_load;	 /* weights of tasks that enqueue() inserted into the local DSQ; atomic */
	u64 advanced_at; /* scx_bpf_now() up to which vtime has advanced */
	s64 advanced;	 /* ... ns by which it has advanced since current was last charged */
	/* the shortest that a program has asked for, of the tasks queued since the last tick */
	u64 queued_slice;
	s64 ahead; /* ns of CPU time that tasks which sleep now had beyond their part */
	u64 lent;  /* ns by which tasks with credit have passed others: 0..slice_ns */

	/* run/pick.bpf.h */
	u64 starved_at; /* scx_bpf_now() of the last DUE_STARVED */
	s32 yield_to;	/* DUE_YIELD: PID of the task */
	s32 yield_from; /* ... and the CPU for which it waits */

	/* run/tickless.bpf.h; of nohz_full CPUs */
	u64 shared_at; /* scx_bpf_now() when a task last started to run while others waited */

	/* run/slice_timer.bpf.h */
	u64 slice_ends;	    /* scx_bpf_now() when current's slice is over */
	u64 slice_timer_at; /* ... when the timer fires; 0: not set */

	/* steal/ */
	u64 balanced_at;  /* scx_bpf_now() of the last balance_victim() */
	u32 balance_turn; /* counts calls of balance_victim() */
	u32 balance_slot; /* slot of the last CPU of the LLC that it found */
	s32 balance_with; /* the CPU with which balance() compares */
	/* slot of the victim at which steal() ran out of tries; NO_SLOT: it did not */
	u32 steal_slot;
	/* the last steal() found a queue into which a task may soon be inserted, */
	u8 awaits_insertion;
	u8 checks_again; /* ... and this idle CPU has kicked itself, to check it once more */

	/* numa/: the hand-off of current. */
	u64 sync_woke_at;  /* CLOCK_MONOTONIC of its last sync wakeup; 0: not timed */
	s32 handoff_score; /* its task_ctx.handoff_score */
	u32 nr_handoffs;   /* WF_SYNC wakeups with a full score: one in HANDOFF_SAMPLE is timed */
	u8 sync_wakes;	   /* WF_SYNC wakeups by current: 0, 1, or 2 for more */
	u8 handed_off;	   /* ... and the wakee waits in the local DSQ for this CPU */
	u64 preferred_checked_at; /* scx_bpf_now() of the last check of the preferred node */

	/* capacity/ */
	u32 util_est;	    /* util_avg when the CPU went idle: rises immediately, falls slowly */
	u32 cpuperf_target; /* the kernel's target; sampled by sample_queues() */
	u32 fallback_turn;  /* the next CPU that fallback_cpu() checks, */
	u32 move_turn;	    /* ... and find_stronger(), and the next LLC that find_room() checks */

	/* cgroup/weight.bpf.h */
	u32 flush_turn; /* the next idle CPU whose changes it flushes */

	u32 unusable_turn; /* hotplug.bpf.h: the next CPU that a tick checks */

	/* run/throttle.bpf.h */
	u64 throttle_timer_at;	 /* scx_bpf_now() when its timer fires; 0: not set */
	u8 throttle_timer_fired; /* it has fired; set by the timer, cleared by the CPU */
	u8 limit_changed;	 /* of a throttled group: check all; set by who changes it */

	struct pelt pelt __attribute__((aligned(CACHE_LINE)));
	u64 stood_still; /* ns in which it was busy and not even a tick came, the last time */
	u64 mono_offset; /* CLOCK_MONOTONIC - scx_bpf_now() on this CPU */
	u64 mono_at;	 /* scx_bpf_now() when mono_offset was taken */

	u64 stats[MAGPIE_NR_STATS] __attribute__((aligned(CACHE_LINE)));
	/* STAT_STEAL_NODE and STAT_STEAL_FAR by the LLC of the victim */
	u64 stolen_from[MATRIX_LLCS];
} __attribute__((aligned(512)));

/* Values of an LLC that the loader publishes each interval. */
struct llc_published {
	u64 at;	      /* CLOCK_MONOTONIC */
	u32 sum_util; /* sum of util_avg of its CPUs, 0..capacity */
	/* of its CPUs under their frequency limits: 1..nr_cpus * CAPACITY_SCALE */
	u32 capacity;
	/* CPUs that a search may scan; written by the program while the loader is late */
	u32 nr_scan;
} __attribute__((aligned(CACHE_LINE)));

/* State of an LLC that the loader does not use. */
struct llc_ctx {
	u64 estimated_at; /* CLOCK_MONOTONIC of the last estimate_nr_scan() */
	u8 has_idle_core; /* hint (SMT): all CPUs of some core may be idle */
} __attribute__((aligned(CACHE_LINE)));

/* A cgroup, by an id of this program; 0 is the root, not stored here. See cgroup/weight.bpf.h. */
struct group {
	s64 sum;     /* weights of the tasks and groups that are runnable directly in it; atomic */
	u64 counted; /* its weight in its parent's sum; atomic */
	s64 tasks;   /* runnable tasks, with those of the groups below; atomic */
	/* their average, times 1024, and << 32 the PELT period in which it was updated; atomic */
	u64 tasks_avg;
	u64 weighs; /* in its parent's sum, while it has runnable tasks; seldom written */

	/* Read by all CPUs, seldom written. cgroup: the kernel's id, or the autogroup. */
	u64 cgroup __attribute__((aligned(CACHE_LINE)));
	u32 weight; /* the kernel's, 1024 for cpu.weight 100; 0: the id is free */
	u32 parent;
	u32 level;
	u32 cpus; /* of its cpuset; see groups.bpf.h */
	u8 idle;  /* cpu.idle */
	u8 autogroup;
	u32 members; /* tasks of an autogroup; atomic */
	u32 unused;  /* ... polls in a row that found none */
	u64 quota;   /* cpu.max, ns; 0: none */
	u64 period;
	u64 burst;

	/* See cgroup/bandwidth.bpf.h. */
	s64 budget __attribute__((aligned(CACHE_LINE))); /* ns left of its quota; atomic */
	u64 period_start;				 /* scx_bpf_now() */
	u32 filling;					 /* bw_refill() runs; atomic */
	u64 throttled_at;				 /* scx_bpf_now(); 0: not throttled */
	u64 throttled_ns; /* total, without the time since throttled_at */
	u64 nr_periods;	  /* periods in which it ran or was throttled */
	u64 nr_throttled; /* ... in which it was throttled */
} __attribute__((aligned(CACHE_LINE)));

/* A process, by its tgid; see numa/preferred.bpf.h and src/numa. */
struct process {
	u64 checks; /* checks of its tasks in ticks */
	s32 node;   /* the node of its memory; NO_NODE: none, or not known */
	u32 pad;
};

/*
 * Searches by duration: bucket i counts searches of [2^i, 2^(i+1)) ns, the first one also 0 ns, the
 * last one all longer searches.
 */
struct latency_hist {
	u64 buckets[LATENCY_BUCKETS];
} __attribute__((aligned(CACHE_LINE)));

/* Wake cases of machines with CPUs of different capacity; see capacity/wake_cases.bpf.h. */
enum magpie_wake_case {
	WAKE_BIG_TASK = 4,
	WAKE_BIG_PREV = 2,
	WAKE_BIG_WAKING = 1,
	NR_WAKE_CASES = 8,
};

enum magpie_wake_end {
	WAKE_FAST,     /* the target, previous or recently used CPU */
	WAKE_SCAN,     /* another idle CPU */
	WAKE_FALLBACK, /* none: the task waits in a queue */
	NR_WAKE_ENDS,
};

struct wake_cases {
	u64 little[NR_WAKE_CASES][NR_WAKE_ENDS]; /* the new CPU is little, */
	u64 big[NR_WAKE_CASES][NR_WAKE_ENDS];	 /* ... or big */
} __attribute__((aligned(CACHE_LINE)));

/* An event of record.bpf.c. Fields without an entry in this table are those of @pid. */
enum record_kind {
	/*               pid      cpu                   other      state                          */
	RECORD_SWITCH, /*  runs   (of the task)         prev's pid prev's: as the tracepoint's    */
	RECORD_WAKING, /*  wakee  its previous one                                                */
	RECORD_WAKEUP, /*  wakee  chosen for it                                                   */
	RECORD_NEW,    /*  child  chosen for it                                                   */
	/*                 moved  the new one           old CPU    1: current of the CPU that     */
	RECORD_MIGRATE, /*                                         executes it could run on       */
	RECORD_UNTHROTTLED,
};

enum record_queue {
	RECORD_NO_QUEUE,	/* of scx_magpie, or not known */
	RECORD_LOCAL_QUEUE,	/* local DSQ */
	RECORD_QUEUE,		/* of a CPU, ordered by deadline */
	RECORD_THROTTLED_QUEUE, /* until its cgroup has a new quota of cpu.max */
};

/* The state of a task that is preempted: a bit that the kernel does not use. */
enum record_states { RECORD_PREEMPTED = 1 << 30 };

struct record_event {
	u64 at;	    /* CLOCK_BOOTTIME */
	u64 cgroup; /* kernel's id, if a switch throttles prev */
	s32 pid;
	s32 tgid;
	s32 cpu;
	s32 other;
	u32 state;
	u16 prio; /* the kernel's */
	u8 kind;  /* enum record_kind */
	u8 queue; /* enum record_queue: of prev, or of the wakee */
	char comm[16];
};

#endif /* __MAGPIE_INTF_H */
