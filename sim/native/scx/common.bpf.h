/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Replacement for scx_cargo's <scx/common.bpf.h> when src/bpf/main.bpf.c is compiled for the host:
 * the kernel types, BPF helpers and sched_ext kfuncs that the program uses, with the names and
 * values of the kernel.
 *
 *	src/bpf/main.bpf.c --> this file --> native.c, one object for the host
 *	                                    |  calls kfuncs (src/kfuncs.rs)      ^ is called through `magpie`
 *	                                    v                                    |
 *	                                  the simulated kernel (src/kernel.rs) --+
 *
 * Types have only the fields that the program reads. If the program uses more of the kernel, this
 * build fails first: declare it below, and define it in src/kfuncs.rs.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed int s32;
typedef signed long long s64;

/* Values of include/linux/sched.h, sched/ext.h and ext_internal.h. */
#define PF_IDLE	   0x00000002
#define PF_EXITING 0x00000004
#define PF_KTHREAD 0x00200000

enum uclamp_id {
	UCLAMP_MIN,
	UCLAMP_MAX,
};

enum scx_public_consts {
	SCX_TASK_QUEUED = 1,
	SCX_DSQ_ITER_REV = 1 << 16,
};

static const u64 SCX_DSQ_LOCAL = ((1ULL << 63) | 2);
static const u64 SCX_DSQ_LOCAL_ON = ((1ULL << 63) | (1ULL << 62));

static const u64 SCX_ENQ_WAKEUP = 1ULL;
static const u64 SCX_ENQ_HEAD = 16ULL;
static const u64 SCX_ENQ_PREEMPT = (1ULL << 32);
static const u64 SCX_ENQ_REENQ = (1ULL << 40);
static const u64 SCX_ENQ_LAST = (1ULL << 41);

static const u64 SCX_WAKE_FORK = 4ULL;
static const u64 SCX_WAKE_TTWU = 8ULL;
static const u64 SCX_WAKE_SYNC = 16ULL;

static const u64 SCX_SLICE_INF = ~0ULL;
static const u64 SCX_KICK_IDLE = 1ULL;
static const u64 SCX_KICK_PREEMPT = 2ULL;

enum scx_ops_flags {
	SCX_OPS_ENQ_LAST = 1 << 1,
	SCX_OPS_ENQ_EXITING = 1 << 2,
	SCX_OPS_ENQ_MIGRATION_DISABLED = 1 << 4,
	SCX_OPS_ALLOW_QUEUED_WAKEUP = 1 << 5,
};

#define MAX_MASK_WORDS 16

struct cpumask {
	u64 bits[MAX_MASK_WORDS];
};

struct task_struct {
	u32 __state; /* 0: not about to sleep */
	u32 flags;   /* PF_* */
	u32 policy;
	s32 static_prio; /* 120 + nice */
	s32 prio;	 /* below 100: a real-time task */
	s32 pid;
	s32 tgid;
	struct {
		struct {
			unsigned long sig[1]; /* 1 << 8: SIGKILL */
		} signal;
	} pending;
	s32 nr_cpus_allowed;
	u16 migration_disabled;
	bool sched_contributes_to_load; /* a bit in the kernel: it sleeps, and no signal may wake it */
	bool in_iowait;			/* a bit there */
	struct {
		u32 value;
		u32 active;
	} uclamp[2]; /* by uclamp_id */
	const struct cpumask *cpus_ptr;
	struct {
		/* runqueue clock without the time of interrupts, which are none here */
		u64 exec_start;
		u64 sum_exec_runtime;
		u8 custom_slice;
		u64 slice; /* ns, if custom_slice */
	} se;
	struct {
		u32 flags; /* SCX_TASK_* */
		u64 slice;
		u64 dsq_vtime;
	} scx;
	struct task_group *sched_task_group; /* that of its cgroup or autogroup */
	u32 sim_id;			     /* index among the simulator's tasks */
};

struct pcpu_hot {
	int preempt_count;
};

/* The fields of a runqueue that the program or the governor schedutil reads. */
#define rq___core rq
struct rq {
	unsigned int core_enabled;
	unsigned int ttwu_pending;
	struct {
		unsigned long util_avg;
	} avg_rt, avg_dl;
	struct {
		u32 cpuperf_target;
	} scx;
};

struct pt_regs {
	u16 cs; /* & 3: user space */
	u64 orig_ax;
};

struct bpf_map;

struct kernfs_node {
	u64 id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct task_group {
	struct cgroup_subsys_state css; /* cgroup is NULL for an autogroup */
	u64 shares;
	s32 idle;
	struct {
		s64 period; /* ns */
		u64 quota;
		u64 burst;
	} cfs_bandwidth;
};

struct cpuset {
	struct cgroup_subsys_state css;
	struct cpumask *effective_cpus;
};

enum cgroup_subsys_id {
	cpuset_cgrp_id,
	cpu_cgrp_id,
	CGROUP_SUBSYS_COUNT,
};

struct cgroup {
	struct cgroup_subsys_state self;
	s32 level;
	struct kernfs_node *kn;
	struct cgroup_subsys_state *subsys[CGROUP_SUBSYS_COUNT];
};

struct scx_init_task_args {
	bool fork;
	struct cgroup *cgroup;
};

struct scx_cgroup_init_args {
	u32 weight;
};

struct scx_cpu_release_args {
	struct task_struct *task;
};

struct scx_exit_info {
	s32 kind;
};

struct scx_dump_ctx {
	u64 at_ns;
};

/* The callbacks in the order of the kernel; NULL if the program has none. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *p, s32 prev_cpu, u64 wake_flags);
	void (*enqueue)(struct task_struct *p, u64 enq_flags);
	void (*dispatch)(s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*update_idle)(s32 cpu, bool idle);
	void (*cpu_release)(s32 cpu, struct scx_cpu_release_args *args);
	bool (*core_sched_before)(struct task_struct *a, struct task_struct *b);
	void (*cpu_online)(s32 cpu);
	void (*cpu_offline)(s32 cpu);
	s32 (*init_task)(struct task_struct *p, struct scx_init_task_args *args);
	void (*disable)(struct task_struct *p);
	void (*dump)(struct scx_dump_ctx *dctx);
	void (*dump_cpu)(struct scx_dump_ctx *dctx, s32 cpu, bool idle);
	void (*dump_task)(struct scx_dump_ctx *dctx, struct task_struct *p);
	s32 (*cgroup_init)(struct cgroup *cgrp, struct scx_cgroup_init_args *args);
	void (*cgroup_exit)(struct cgroup *cgrp);
	void (*cgroup_move)(struct task_struct *p, struct cgroup *from, struct cgroup *to);
	void (*cgroup_set_weight)(struct cgroup *cgrp, u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgrp, u64 period_us, u64 quota_us,
				     u64 burst_us);
	void (*cgroup_set_idle)(struct cgroup *cgrp, bool idle);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	u64 flags;
	const char *name;
};

/* kfuncs and helpers. */
u64 scx_bpf_now(void);
u64 bpf_ktime_get_ns(void);
u32 bpf_get_smp_processor_id(void);
struct task_struct *bpf_get_current_task_btf(void);
long bpf_task_pt_regs(struct task_struct *p);
u64 bpf_get_current_pid_tgid(void);
s32 scx_bpf_task_cpu(const struct task_struct *p);
bool scx_bpf_task_running(const struct task_struct *p);
bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *mask);
u32 bpf_cpumask_any_and_distribute(const struct cpumask *a, const struct cpumask *b);
const struct cpumask *scx_bpf_get_online_cpumask(void);
const struct cpumask *scx_bpf_get_possible_cpumask(void);
void scx_bpf_put_cpumask(const struct cpumask *mask);
u32 scx_bpf_cpuperf_cur(s32 cpu);
u32 scx_bpf_cpuperf_cap(s32 cpu);
void scx_bpf_cpuperf_set(s32 cpu, u32 perf);
struct rq *sim_rq(s32 cpu);
struct task_struct *scx_bpf_cpu_curr(s32 cpu);
s32 scx_bpf_create_dsq(u64 dsq_id, s32 node);
void scx_bpf_destroy_dsq(u64 dsq_id);
void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags);
void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime,
			      u64 enq_flags);
bool scx_bpf_dsq_move_to_local(u64 dsq_id, u64 enq_flags);
s32 scx_bpf_dsq_nr_queued(u64 dsq_id);
struct task_struct *scx_bpf_dsq_peek(u64 dsq_id);
void scx_bpf_kick_cpu(s32 cpu, u64 flags);
bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice);
u32 scx_bpf_reenqueue_local(void);
s32 scx_bpf_reenqueue_local_from_anywhere(void);
bool __COMPAT_has_generic_reenq(void);
void scx_bpf_dsq_reenq(u64 dsq_id, u64 flags);
u64 sim_enq_immed(void);
static const u64 SCX_ENQ_IMMED_FLAG = 1ULL << 33;
#define SCX_ENQ_IMMED sim_enq_immed() /* 0 before 7.1 */
void sim_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sim_dump(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void sim_report(bool error, const char *text);
void *sim_task_storage(const void *map, struct task_struct *p, u64 size, bool create);
void *sim_array(const void *map, u32 key, u64 size, u64 max_entries);
void *sim_hash(const void *map, u64 key, u64 size);
s32 sim_hash_insert(const void *map, u64 key, const void *value, u64 size);
s32 sim_hash_delete(const void *map, u64 key);
struct cgroup *bpf_cgroup_from_id(u64 id);
void bpf_cgroup_release(struct cgroup *cgrp);

#define scx_bpf_error(fmt, args...)		sim_error(fmt, ##args)
#define scx_bpf_dump(fmt, args...)		sim_dump(fmt, ##args)
#define __COMPAT_scx_bpf_dsq_peek		scx_bpf_dsq_peek
#define __COMPAT_scx_bpf_cpu_curr		scx_bpf_cpu_curr
#define bpf_ksym_exists(sym)			true
#define bpf_core_field_exists(field)		true
#define BPF_CORE_READ_BITFIELD(s, field)	(s)->field
#define bpf_core_cast(ptr, type)		((type *)(ptr))
#define bpf_core_enum_value(type, value)	(value)
#define bpf_core_enum_value_exists(type, value) true
#define bpf_probe_read_kernel(to, size, from)	(__builtin_memcpy(to, from, size), 0)
/* Types that the kernel of vmlinux.h does not have. */
#define task_struct___uclamp			  task_struct
#define cpuset___pointer			  cpuset
#define cpuset___array				  cpuset
#define BPF_CORE_READ_BITFIELD_PROBED(ptr, field) ((ptr)->field)
#define bpf_preempt_disable()
#define bpf_preempt_enable()
#define bpf_rcu_read_lock()
#define bpf_rcu_read_unlock()

/*
 * An iteration over a DSQ goes by position, because in the simulated kernel only move() changes the
 * queue meanwhile.
 */
struct bpf_iter_scx_dsq {
	u64 dsq_id;
	u64 flags;
	u64 vtime; /* the key for a move */
	u32 pos;
	u32 checks;
	u64 seq; /* counts the tasks that were there when it began */
};

void bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags);
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it);
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
		      u64 enq_flags);
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, u64 vtime);
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq_id,
			    u64 enq_flags);

#define BPF_FOR_EACH_ITER (&___it)
#define bpf_for_each(type, cur, args...)                                                           \
	for (struct bpf_iter_##type ___it,                                                         \
	     *___once = (bpf_iter_##type##_new(&___it, args), &___it);                             \
	     ___once; ___once = NULL)                                                              \
		while (((cur) = bpf_iter_##type##_next(&___it)))
#define bpf_for(i, start, end) for ((i) = (start); (i) < (end); (i)++)

/*
 * Check each round of a loop: a loop without a bound ends in an error, not in a hang. The bound is
 * that of the kernel's may_goto.
 */
bool sim_can_loop(void);
#define can_loop	    sim_can_loop()
#define bpf_arena_loop_zero 0
#define bpf_arena_loop_one  1

/* Accesses to memory that CPUs share: src/cache.rs counts the cache lines that move. */
void sim_load(const volatile void *addr);
void sim_store(const volatile void *addr);
#define time_before(a, b) ((s64)((u64)(a) - (u64)(b)) < 0)

#define READ_ONCE(x)                                                                               \
	({                                                                                         \
		sim_load(&(x));                                                                    \
		*(volatile typeof(x) *)&(x);                                                       \
	})
#define WRITE_ONCE(x, val)                                                                         \
	({                                                                                         \
		typeof(x) ___val = (val);                                                          \
		sim_store(&(x));                                                                   \
		*(volatile typeof(x) *)&(x) = ___val;                                              \
	})
#define __sync_fetch_and_or(addr, val)                                                             \
	(sim_store(addr), __atomic_fetch_or(addr, val, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_and(addr, val)                                                            \
	(sim_store(addr), __atomic_fetch_and(addr, val, __ATOMIC_SEQ_CST))
#define __sync_fetch_and_add(addr, val)                                                            \
	(sim_store(addr), __atomic_fetch_add(addr, val, __ATOMIC_SEQ_CST))
#define __sync_lock_test_and_set(addr, val)                                                        \
	(sim_store(addr), __atomic_exchange_n(addr, val, __ATOMIC_SEQ_CST))
#define __sync_val_compare_and_swap(addr, was, val)                                                \
	(sim_store(addr), (__sync_val_compare_and_swap)(addr, was, val))

/* Maps: only task storage, arrays, and hashes of words that are never full. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1,
	BPF_NOEXIST = 1,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1
};
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
#define bpf_task_storage_get(map, p, init, flags)                                                  \
	((typeof((map)->value))sim_task_storage(map, p, sizeof(*(map)->value),                     \
						(flags) & BPF_LOCAL_STORAGE_GET_F_CREATE))

#define bpf_map_lookup_elem(map, key)                                                              \
	((typeof((map)->value))(sizeof(*(map)->type) / sizeof(int) == BPF_MAP_TYPE_ARRAY           \
					? sim_array(map, *(key), sizeof(*(map)->value),            \
						    sizeof(*(map)->max_entries) / sizeof(int))     \
					: sim_hash(map, *(key), sizeof(*(map)->value))))
/* Only of a hash, with BPF_NOEXIST. */
#define bpf_map_update_elem(map, key, value, flags)                                                \
	sim_hash_insert(map, *(key), value, sizeof(*(value)))
#define bpf_map_delete_elem(map, key) sim_hash_delete(map, *(key))

struct bpf_task_work {
	u64 opaque;
};
typedef int (*bpf_task_work_callback_t)(struct bpf_map *map, void *key, void *value);

#define CLOCK_MONOTONIC 1
struct bpf_timer {
	u64 opaque[2];
};
s32 sim_timer_init(void *timer, const void *map);
s32 sim_timer_set_callback(void *timer, s32 (*callback)(void *map, u32 *key, void *value));
enum { BPF_F_TIMER_CPU_PIN = 2 };
s32 bpf_timer_start(struct bpf_timer *timer, u64 delay, u64 flags);
s32 bpf_timer_cancel(struct bpf_timer *timer);
#define bpf_timer_init(timer, map, clock) sim_timer_init(timer, map)
#define bpf_timer_set_callback(timer, callback)                                                    \
	sim_timer_set_callback(timer, (s32 (*)(void *, u32 *, void *))(callback))

/* Variables exist once, for the CPU that runs, except runqueues. */
#define bpf_this_cpu_ptr(addr)                                                                     \
	_Generic(addr, struct rq *: sim_rq(bpf_get_smp_processor_id()), default: (addr))
#define bpf_per_cpu_ptr(addr, cpu) sim_rq(cpu)

/* Only BPF's loader and verifier use these. */
#define SEC(name)
#define __ksym
#define __weak	   __attribute__((weak))
#define barrier()  asm volatile("" ::: "memory")
#define __noinline __attribute__((noinline))
#define __arg_trusted
#define __arg_nonnull
#define barrier_var(var) asm volatile("" : "+r"(var))

#define BPF_STRUCT_OPS(name, args...)		name(args)
#define BPF_STRUCT_OPS_SLEEPABLE(name, args...) name(args)
#define SCX_OPS_DEFINE(name, ...)		struct sched_ext_ops name = {__VA_ARGS__}

#define UEI_DEFINE(uei)	    s32 uei##_kind
#define UEI_RECORD(uei, ei) ((void)(uei##_kind = (ei)->kind))

static inline int ctzll(u64 v)
{
	return __builtin_ctzll(v);
}
