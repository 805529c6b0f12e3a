/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What CPUs have lost of their capacity to others than our tasks, as the kernel's scale_rt_capacity() has it:
 *
 *	capacity - real-time and deadline tasks - heat     of that, what interrupts leave
 *
 * The kernel brings these averages up to date while something runs. Those of an idle CPU stand still, so what it has lost
 * decays from when they were last updated. The loader has it looked up each util_interval, and takes it from `capacities`.
 * Where CPUs are of one kind nothing is.
 */
#pragma once

struct loss losses[MAX_CPUS];

#ifdef __VMLINUX_H__
/* Not in every kernel, nor in vmlinux.h. */
struct rq___others {
	struct sched_avg avg_irq;
	struct sched_avg avg_hw;
} __attribute__((preserve_access_index));
#endif

static u32 lost_capacity(const struct rq *rq, u32 capacity)
{
	const struct rq___others *others = (const void *)rq;
	u64 used = rq->avg_rt.util_avg + rq->avg_dl.util_avg, irq = 0;

	if (bpf_core_field_exists(others->avg_hw))
		used += others->avg_hw.load_avg;
	if (bpf_core_field_exists(others->avg_irq))
		irq = others->avg_irq.util_avg;
	if (used >= capacity || irq >= capacity)
		return capacity;
	return capacity - (capacity - used) * (capacity - irq) / capacity;
}

/* No lock is held. */
static void note_loss(s32 cpu, u64 now)
{
	struct rq *rq = bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;
	struct loss *loss = &losses[cpu & (MAX_CPUS - 1)];
	u64 updated_at;

	if (!rq)
		return;
	updated_at = rq->avg_rt.last_update_time;
	if (updated_at != loss->updated_at) {
		loss->updated_at = updated_at;
		loss->seen_at = now;
	}
	loss->lost = decay_load(lost_capacity(rq, cpu_layout(cpu)->capacity), (now - loss->seen_at) / PELT_PERIOD_NS);
}
