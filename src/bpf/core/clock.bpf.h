/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The time, by one clock that is read in four ways:
 *
 *	scx_bpf_now()     the clock of this CPU's runqueue: cheap, and exact while its lock is held
 *	ran_until(p)      the same for a task that stops: when the kernel last accounted it; cheap
 *	unlocked_now()    without the rq lock: in select_cpu, in timers
 *	locked_now(cpu)   in enqueue, which may be called for another CPU
 *
 * Without the rq lock scx_bpf_now() may be old: move_remote_task_to_local_dsq() updates the clock
 * of another runqueue and unlocks it without rq_unpin_lock(). Until the CPU of that runqueue takes
 * its rq lock again, its scx_bpf_now() returns this old time. An idle CPU may take the lock late.
 */
#pragma once

#define NSEC_PER_SEC 1000000000ULL

/*
 * Note, at most once a second, the distance of this CPU's clock to CLOCK_MONOTONIC, the loader's
 * clock. NTP changes it slowly.
 */
static void set_mono_offset(struct cpu_ctx *cctx, u64 now)
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

/*
 * Return the time without the rq lock. It is wrong by what CLOCK_MONOTONIC has drifted from this
 * CPU's clock since set_mono_offset(): a few us, or more if the CPU was idle for long.
 */
static u64 unlocked_now(void)
{
	return bpf_ktime_get_ns() - this_cpu_ctx()->mono_offset;
}

/* Return the time while the rq lock of @cpu is held. */
static u64 locked_now(s32 cpu)
{
	return cpu == bpf_get_smp_processor_id() ? scx_bpf_now() : unlocked_now();
}
