/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * `scx_magpie record`: events of the kernel's tracepoints, to one ring buffer for each CPU. This is
 * an object of its own, which is attached only while a recording runs: the scheduler has no code
 * for it. It works under any scheduler.
 *
 *	tracepoint           runs on            event
 *	sched_switch         the CPU            RECORD_SWITCH: which task runs; why the last stopped
 *	sched_waking         the waker's CPU    RECORD_WAKING
 *	sched_wakeup, _new   the waker's CPU,   RECORD_WAKEUP, RECORD_NEW: where the task was placed
 *	                     or the task's
 *	sched_migrate_task   any                RECORD_MIGRATE: a task moved that was not waking up
 *
 * Under scx_magpie the ids of DSQs also say in which queue a task waits. The kernel calls enqueue()
 * before sched_switch and sched_wakeup, so a task that cpu.max throttles is in the throttled queue
 * by then. No tracepoint fires when a task leaves that queue, in dispatch() of the CPU. So the next
 * sched_switch there checks the tasks that it saw entering the queue.
 */
#include <vmlinux.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "intf.h"

/*
 * Throttled tasks of a CPU that are checked at each switch. A further one has no
 * RECORD_UNTHROTTLED: the reader of the events sees the task again when it runs.
 */
enum { MAX_THROTTLED = 8 };

#define TASK_WAKING 0x200 /* include/linux/sched.h */

/* Set by the loader: scx_magpie is attached, so that DSQs have its ids. */
const volatile bool is_magpie;

/* Events for which a ring buffer had no room, by CPU; atomic. */
u64 lost[MAX_CPUS];

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* the loader makes larger ones */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, MAX_CPUS);
	__type(key, u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* PIDs of tasks that wait in the throttled queue of a CPU; 0: none. Used by that CPU alone. */
struct throttled {
	s32 pids[MAX_THROTTLED];
	u32 nr;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct throttled);
} throttled_tasks SEC(".maps");

struct task_struct *bpf_task_from_pid(s32 pid) __ksym;
void bpf_task_release(struct task_struct *p) __ksym;

static u8 queue_of(const struct task_struct *p)
{
	const struct scx_dispatch_q *dsq = p->scx.dsq;
	u64 id;

	if (!is_magpie || !dsq)
		return RECORD_NO_QUEUE;
	id = dsq->id;
	if (id >= 3 * MAX_CPUS) /* the kernel's have the highest bit */
		return RECORD_LOCAL_QUEUE;
	return id >= THROTTLED_QUEUES ? RECORD_THROTTLED_QUEUE : RECORD_QUEUE;
}

static s32 task_cpu(const struct task_struct *p)
{
	return p->thread_info.cpu;
}

/* Return a new event about @p, or NULL if there is no room. To be submitted. */
static struct record_event *reserve(const struct task_struct *p, u8 kind)
{
	u32 cpu = bpf_get_smp_processor_id();
	void *ring = bpf_map_lookup_elem(&rings, &cpu);
	struct record_event *event = NULL;

	if (ring)
		event = bpf_ringbuf_reserve(ring, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost[cpu & (MAX_CPUS - 1)], 1);
		return NULL;
	}
	event->at = bpf_ktime_get_boot_ns();
	event->cgroup = 0;
	event->pid = p->pid;
	event->tgid = p->tgid;
	event->cpu = task_cpu(p);
	event->other = 0;
	event->state = 0;
	event->prio = p->prio;
	event->kind = kind;
	event->queue = RECORD_NO_QUEUE;
	bpf_probe_read_kernel(event->comm, sizeof(event->comm), p->comm);
	return event;
}

/* The loader drains the ring buffers at an interval: a wakeup for each event would be a load. */
static void submit(struct record_event *event)
{
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
}

/* Report the tasks that have left the throttled queue of this CPU. Bounded by MAX_THROTTLED. */
static void report_unthrottled(struct throttled *throttled)
{
	struct record_event *event;
	struct task_struct *p;
	int i;

	for (i = 0; i < MAX_THROTTLED; i++) {
		if (!throttled->pids[i])
			continue;
		p = bpf_task_from_pid(throttled->pids[i]);
		if (p && queue_of(p) == RECORD_THROTTLED_QUEUE) {
			bpf_task_release(p);
			continue;
		}
		throttled->pids[i] = 0;
		throttled->nr--;
		if (!p)
			continue;
		event = reserve(p, RECORD_UNTHROTTLED);
		if (event)
			submit(event);
		bpf_task_release(p);
	}
}

/* Remember that @p waits in the throttled queue of this CPU, unless there is no room. */
static void add_throttled(struct throttled *throttled, const struct task_struct *p)
{
	int i;

	for (i = 0; i < MAX_THROTTLED; i++) {
		if (throttled->pids[i])
			continue;
		throttled->pids[i] = p->pid;
		throttled->nr++;
		return;
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(record_switch, bool preempt, struct task_struct *prev, struct task_struct *next,
	     unsigned int prev_state)
{
	u32 zero = 0;
	struct throttled *throttled = bpf_map_lookup_elem(&throttled_tasks, &zero);
	struct record_event *event;
	u8 queue = queue_of(prev);

	if (throttled && throttled->nr)
		report_unthrottled(throttled);
	if (throttled && queue == RECORD_THROTTLED_QUEUE)
		add_throttled(throttled, prev);
	event = reserve(next, RECORD_SWITCH);
	if (!event)
		return 0;
	event->other = prev->pid;
	event->state = preempt ? RECORD_PREEMPTED : prev_state | prev->exit_state;
	event->queue = queue;
	if (queue == RECORD_THROTTLED_QUEUE)
		event->cgroup = prev->cgroups->dfl_cgrp->kn->id;
	submit(event);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(record_waking, struct task_struct *p)
{
	struct record_event *event = reserve(p, RECORD_WAKING);

	if (event)
		submit(event);
	return 0;
}

static int placed(const struct task_struct *p, u8 kind)
{
	struct record_event *event = reserve(p, kind);

	if (!event)
		return 0;
	event->queue = queue_of(p);
	submit(event);
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(record_wakeup, struct task_struct *p)
{
	return placed(p, RECORD_WAKEUP);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(record_new, struct task_struct *p)
{
	return placed(p, RECORD_NEW);
}

/* sched_wakeup has the CPU of a task that wakes up. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(record_migrate, struct task_struct *p, int to)
{
	const struct task_struct *current = bpf_get_current_task_btf();
	struct record_event *event;

	if (p->__state == TASK_WAKING)
		return 0;
	event = reserve(p, RECORD_MIGRATE);
	if (!event)
		return 0;
	event->other = task_cpu(p);
	event->cpu = to;
	/* 1: current of this CPU is runnable, and not the idle task. */
	event->state = current->pid && !current->__state;
	submit(event);
	return 0;
}

char _license[] SEC("license") = "GPL";
