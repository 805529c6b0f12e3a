/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The machine: its layout, published by the loader, and the state of each CPU, with accessors.
 *
 *	cpu id --cpu_layout()--> LLC, node, slot     slot --slot_cpu()--> cpu id
 *	cpu id --cpu_ctx()-----> clock, running task, queue state, util_avg, counters
 *
 * All tables are plain global arrays, which the loader maps. Indices are masked for the verifier
 * only.
 */
#pragma once

enum { MAX_BEYOND = 8 }; /* other LLCs that one search scans at most */

/* clang-format off */
#define min(a, b) ({ typeof(a) a_ = (a); typeof(b) b_ = (b); a_ < b_ ? a_ : b_; })
#define max(a, b) ({ typeof(a) a_ = (a); typeof(b) b_ = (b); a_ > b_ ? a_ : b_; })
/* clang-format on */

/*
 * Loops: bpf_for() if the body is large. If it is small, can_loop and a counter that begins at
 * bpf_arena_loop_zero, an opaque 0, so that the verifier explores the body once. A
 * __noinline function that is not static is checked once for all callers; it has to return a
 * scalar, so some functions return 0.
 */

enum { MAX_MOVE_CHECKS = 16 }; /* CPUs that are checked for one to which a running task may move */

const volatile struct machine machine;
const volatile u16 node_llcs[MAX_NODE_IDS]; /* the first LLC of the node */
/* ids of the CPUs that have a place, strongest first */
const volatile u16 capacity_order[MAX_CPUS];

volatile struct tunables tunables SEC(".bss.tunables");

/* Filled by the loader, which adds CPUs that appear later. */
struct cpu_layout cpu_layouts[MAX_CPUS];
struct llc_layout llc_layouts[MAX_LLCS];
u16 slot_cpus[MAX_SLOTS];

struct cpu_ctx cpu_ctxs[MAX_CPUS];
struct llc_published llc_publisheds[MAX_LLCS];
struct llc_ctx llc_ctxs[MAX_LLCS];

static const volatile struct cpu_layout *cpu_layout(s32 cpu)
{
	return &cpu_layouts[cpu & (MAX_CPUS - 1)];
}

static const volatile struct llc_layout *llc_layout(u32 llc)
{
	return &llc_layouts[llc & (MAX_LLCS - 1)];
}

static struct llc_published *llc_published(u32 llc)
{
	return &llc_publisheds[llc & (MAX_LLCS - 1)];
}

static struct llc_ctx *llc_ctx(u32 llc)
{
	return &llc_ctxs[llc & (MAX_LLCS - 1)];
}

/* Return the last slot of the LLC: a walk that begins after it visits the first slot first. */
static u32 last_slot(u32 llc)
{
	const volatile struct llc_layout *l = llc_layout(llc);

	return l->first_line * SLOTS_PER_LINE + l->nr_slots - 1;
}

/* Return the i-th nearest LLC. The compiler must not drop the mask, which the verifier needs. */
static u32 other_llc(const volatile struct llc_layout *l, u32 i)
{
	barrier_var(i);
	return l->others[i & (MAX_LLCS - 1)];
}

static s32 slot_cpu(u32 slot)
{
	return slot_cpus[slot & (MAX_SLOTS - 1)];
}

static struct cpu_ctx *cpu_ctx(s32 cpu)
{
	return &cpu_ctxs[cpu & (MAX_CPUS - 1)];
}

static struct cpu_ctx *this_cpu_ctx(void)
{
	return cpu_ctx(bpf_get_smp_processor_id());
}

/*
 * Return true if @cpu is online and placed by the loader. No other CPU is searched or gets a task.
 */
static bool is_usable(s32 cpu)
{
	return READ_ONCE(cpu_layout(cpu)->state) == CPU_USABLE;
}

/* Return true if @cpu serves interrupts, which it does for longer than it is usable. */
static bool is_online(s32 cpu)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool is = bpf_cpumask_test_cpu(cpu, online);

	scx_bpf_put_cpumask(online);
	return is;
}

/*
 * Return true if @cpu may ever appear. Ids may have holes; the kernel ejects a scheduler that asks
 * about the state of one.
 */
static bool is_possible(s32 cpu)
{
	const struct cpumask *possible = scx_bpf_get_possible_cpumask();
	bool is = bpf_cpumask_test_cpu(cpu, possible);

	scx_bpf_put_cpumask(possible);
	return is;
}

/* Return true if the kernel can stop the tick of @cpu while a task runs there. */
static bool is_nohz_full(s32 cpu)
{
	return machine.nohz_full && cpu_layout(cpu)->nohz_full;
}

/* Return true if current has no tick: run/tickless.bpf.h. */
static bool is_tickless(const struct cpu_ctx *cctx)
{
	return machine.nohz_full && READ_ONCE(cctx->tickless);
}

static u32 cpu_node(s32 cpu)
{
	return cpu_layout(cpu)->node;
}

/* Return the first LLC of @node, which has CPUs. Its first nr_near others[] are on @node, too. */
static u32 node_llc(u32 node)
{
	return node_llcs[node & (MAX_NODE_IDS - 1)];
}

static bool share_llc(s32 a, s32 b)
{
	return cpu_layout(a)->llc == cpu_layout(b)->llc;
}

/*
 * Return an estimate updated by the last value @seen: it rises immediately, and falls by a quarter
 * of the difference, as the kernel's util_est does.
 */
static u64 peak(u64 estimate, u64 seen)
{
	return seen >= estimate ? seen : estimate - (estimate - seen) / 4;
}
