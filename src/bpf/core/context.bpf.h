/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a CPU was at when it came to call us: a task's system call, or an interrupt of whatever it
 * ran.
 *
 * An interrupt has no waker: the task that it interrupted has nothing to do with the one that it
 * wakes, though the kernel passes WF_SYNC for what comes from the network. Soft interrupts run
 * after hard ones, and also at the end of a system call that sends a packet: over loopback its
 * receiver is woken there, by the sender. So a task is the waker in a soft interrupt if it is in a
 * system call, and a packet from outside that comes just then is taken for its own.
 */
#pragma once

/* As include/linux/preempt.h has them. */
enum {
	SERVING_SOFTIRQ = 1 << 8,
	IN_HARDIRQ = 0xf << 16,
	IN_NMI = 0xf << 20,
};

/* As asm/unistd.h has them. */
enum {
#ifdef __TARGET_ARCH_arm64
	NR_FUTEX = 98,
#else
	NR_FUTEX = 202,
#endif
	NR_FUTEX_WAKE = 454,
	NR_FUTEX_REQUEUE = 456,
};

#ifndef __TARGET_ARCH_arm64
/* Of the CPU; on arm64 it is the task's. */
extern int __preempt_count __ksym __weak;
#endif

/* What the interrupt that goes on has interrupted. Of the CPU. */
extern struct pt_regs *__irq_regs __ksym __weak;

static u32 preempt_count(void)
{
#ifdef __TARGET_ARCH_arm64
	return bpf_get_current_task_btf()->thread_info.preempt.count;
#else
	const int *count =
		bpf_ksym_exists(&__preempt_count) ? bpf_this_cpu_ptr(&__preempt_count) : NULL;

	return count ? *count : 0;
#endif
}

/* In a tick: has it interrupted user space? */
static bool tick_in_user(void)
{
	struct pt_regs **at = bpf_ksym_exists(&__irq_regs) ? bpf_this_cpu_ptr(&__irq_regs) : NULL;
	const struct pt_regs *regs = at ? bpf_core_cast(*at, struct pt_regs) : NULL;

#ifdef __TARGET_ARCH_arm64
	return regs && !(regs->pstate & 0xf);
#else
	return regs && regs->cs & 3;
#endif
}

/* By which system call @curr, no kernel thread, has entered the kernel; -1: by an interrupt. */
static long syscall_nr(struct task_struct *curr)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs(curr);

#ifdef __TARGET_ARCH_arm64
	return regs->syscallno;
#else
	return regs->orig_ax;
#endif
}

/* Kernel threads are always there. */
static bool in_syscall(struct task_struct *curr)
{
	if (curr->flags & PF_KTHREAD)
		return !(curr->flags & PF_IDLE);
	return syscall_nr(curr) != -1;
}

/* Does current wake a task by a futex? */
static bool in_futex(void)
{
	struct task_struct *curr = bpf_get_current_task_btf();
	long nr = curr->flags & PF_KTHREAD ? -1 : syscall_nr(curr);

	return nr == NR_FUTEX || nr == NR_FUTEX_WAKE || nr == NR_FUTEX_REQUEUE;
}

/* Is it an interrupt that wakes a task, and not current? */
static bool in_interrupt(void)
{
	u32 count = preempt_count();

	return count & (IN_HARDIRQ | IN_NMI) ||
	       (count & SERVING_SOFTIRQ && !in_syscall(bpf_get_current_task_btf()));
}
