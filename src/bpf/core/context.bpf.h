/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What this CPU was doing when the kernel called a callback: a system call of a task, or an
 * interrupt.
 *
 * An interrupt has no waker. The interrupted task has nothing to do with the wakee, although the
 * kernel passes WF_SYNC for packets from the network. Soft interrupts run after hard ones, and also
 * at the end of a system call that sends a packet: over loopback the sender wakes the receiver
 * there. So in a soft interrupt current counts as the waker if it is in a system call. A packet
 * that arrives from outside at that moment is taken for one that current has sent.
 */
#pragma once

/*
 * As in include/linux/preempt.h. From 7.3 on bits 16 to 23 count how often interrupts were
 * disabled, and the bits of hard interrupts and NMIs come after them.
 */
enum {
	SERVING_SOFTIRQ = 1 << 8,
	IN_HARDIRQ_OR_NMI = 0xff << 16,
	IN_HARDIRQ_OR_NMI_7_3 = 0x1f << 24,
};

/* As in asm/unistd.h. */
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
/* Of the CPU; on arm64 it is the task's. Up to 6.14 it is in pcpu_hot. */
extern int __preempt_count __ksym __weak;

#ifdef __VMLINUX_H__
struct pcpu_hot {
	int preempt_count;
} __attribute__((preserve_access_index));
#endif

extern struct pcpu_hot pcpu_hot __ksym __weak;
#endif

/* Where the kernel has it, from 7.3 on, preempt_count() counts disabled interrupts. */
extern unsigned long local_interrupt_disable_state __ksym __weak;

/* The registers that the running interrupt has saved. Of the CPU. */
extern struct pt_regs *__irq_regs __ksym __weak;

/* Not in the BTF of every kernel. */
extern struct rq runqueues __ksym __weak;

/* Return the rq of @cpu, any CPU. NULL if the kernel's BTF has no runqueues. */
static struct rq *kernel_rq(s32 cpu)
{
	return bpf_ksym_exists(&runqueues) ? bpf_per_cpu_ptr(&runqueues, cpu) : NULL;
}

static u32 preempt_count(void)
{
#ifdef __TARGET_ARCH_arm64
	return bpf_get_current_task_btf()->thread_info.preempt.count;
#else
	if (bpf_ksym_exists(&__preempt_count)) {
		const int *count = bpf_this_cpu_ptr(&__preempt_count);

		return *count;
	}
	if (bpf_ksym_exists(&pcpu_hot)) {
		const struct pcpu_hot *hot = bpf_this_cpu_ptr(&pcpu_hot);

		return hot->preempt_count;
	}
	return 0;
#endif
}

/* In tick: return true if it has interrupted user space. */
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

/* Return the number of @curr's system call, -1 in an interrupt. @curr is not a kernel thread. */
static long syscall_nr(struct task_struct *curr)
{
	const struct pt_regs *regs = (void *)bpf_task_pt_regs(curr);

#ifdef __TARGET_ARCH_arm64
	return regs->syscallno;
#else
	return regs->orig_ax;
#endif
}

/* Return true if @curr is in a system call. Kernel threads count as such, except the idle task. */
static bool in_syscall(struct task_struct *curr)
{
	if (curr->flags & PF_KTHREAD)
		return !(curr->flags & PF_IDLE);
	return syscall_nr(curr) != -1;
}

/* Return true if current wakes a task by a futex. */
static bool in_futex(void)
{
	struct task_struct *curr = bpf_get_current_task_btf();
	long nr = curr->flags & PF_KTHREAD ? -1 : syscall_nr(curr);

	return nr == NR_FUTEX || nr == NR_FUTEX_WAKE || nr == NR_FUTEX_REQUEUE;
}

/*
 * Return true if this CPU carries out wakeups that other CPUs have queued for it (ttwu_queue): the
 * interrupt that told it so has a waker, on another CPU.
 */
static bool in_queued_wakeup(void)
{
	const struct rq *rq = kernel_rq(bpf_get_smp_processor_id());

	return rq && READ_ONCE(rq->ttwu_pending);
}

/* Return true if an interrupt wakes a task, and not current. */
static bool in_interrupt(void)
{
	u32 count = preempt_count();
	u32 mask = bpf_ksym_exists(&local_interrupt_disable_state) ? IN_HARDIRQ_OR_NMI_7_3
								   : IN_HARDIRQ_OR_NMI;

	return count & mask || (count & SERVING_SOFTIRQ && !in_syscall(bpf_get_current_task_btf()));
}
