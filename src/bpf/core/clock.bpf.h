/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The time, by one clock in four ways:
 *
 *	scx_bpf_now()     the clock of this CPU's runqueue: free, and right where its lock is held
 *	ran_until(p)      the same for a task that stops: when the kernel last accounted it; free
 *	unlocked_now()    elsewhere: in select_cpu, in timers
 *	locked_now(cpu)   in enqueue, which may be called for another CPU
 *
 * scx_bpf_now() is not right elsewhere: move_remote_task_to_local_dsq() updates the clock of
 * another runqueue and unlocks it without rq_unpin_lock(), so its CPU reads that old time until it
 * takes the lock again, which an idle CPU does late.
 */
#pragma once

#define NSEC_PER_SEC 1000000000ULL

/*
 * Note, for the CPU of @cctx, the distance of its clock to CLOCK_MONOTONIC, the loader's clock. NTP
 * changes it slowly.
 */
static void note_clock(struct cpu_ctx *cctx, u64 now)
{
	if (now - cctx->mono_at <= NSEC_PER_SEC)
		return;
	cctx->mono_offset = bpf_ktime_get_ns() - now;
	cctx->mono_at = now;
}

static u64 ran_until(const struct task_struct *p, const struct cpu_ctx *cctx)
{
	return p->se.exec_start + cctx->clock_lag;
}

/* May be a few us behind. */
static u64 unlocked_now(void)
{
	return bpf_ktime_get_ns() - this_cpu_ctx()->mono_offset;
}

/* The rq lock of @cpu is held. */
static u64 locked_now(s32 cpu)
{
	return cpu == bpf_get_smp_processor_id() ? scx_bpf_now() : unlocked_now();
}
