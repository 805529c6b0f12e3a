/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Notes each callback of the scheduler that is attached, on entry: which, on which CPU, about which task. The scheduler
 * itself stays as it is: these programs are attached to its programs (magpie-conform does, by name: on_NAME to
 * magpie_NAME).
 */
#include <scx/common.bpf.h>
#include <bpf/bpf_core_read.h>

char _license[] SEC("license") = "GPL";

/* As kernel.rs in magpie-conform reads it. */
struct callback {
	u64 at;			/* CLOCK_MONOTONIC */
	u64 arg;		/* flags, or what else it is told */
	u32 cpu;		/* the executing one */
	s32 pid;		/* the task that it is about; -1: none */
	u64 migration_disabled; /* of the current task, the callback's own included */
	char name[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} callbacks SEC(".maps");

u64 nr_lost;

/* No wakeup of the reader: a runqueue's lock is held, and it reads when all is over. */
static void note(const char *name, struct task_struct *p, u64 arg)
{
	struct callback *callback = bpf_ringbuf_reserve(&callbacks, sizeof(*callback), 0);

	if (!callback) {
		__sync_fetch_and_add(&nr_lost, 1);
		return;
	}
	callback->at = bpf_ktime_get_ns();
	callback->arg = arg;
	callback->cpu = bpf_get_smp_processor_id();
	callback->migration_disabled = bpf_get_current_task_btf()->migration_disabled;
	callback->pid = p ? BPF_CORE_READ(p, pid) : -1;
	bpf_probe_read_kernel_str(callback->name, sizeof(callback->name), name);
	bpf_ringbuf_submit(callback, BPF_RB_NO_WAKEUP);
}

/* A callback's only argument is a pointer to an array of those that the kernel gave it. */
static u64 argument(const u64 *ctx, int nr)
{
	u64 value = 0;

	bpf_probe_read_kernel(&value, sizeof(value), (u64 *)ctx[0] + nr);
	return value;
}

/* clang-format off */
#define ON(name, task, arg)							\
SEC("fentry")									\
int on_##name(u64 *ctx)								\
{										\
	static const char text[] = #name;					\
										\
	note(text, (struct task_struct *)(task), arg);				\
	return 0;								\
}
/* clang-format on */

ON(select_cpu, argument(ctx, 0), argument(ctx, 2))
ON(enqueue, argument(ctx, 0), argument(ctx, 1))
ON(dispatch, argument(ctx, 1), 0)
ON(running, argument(ctx, 0), 0)
ON(stopping, argument(ctx, 0), (u8)argument(ctx, 1))
ON(yield, argument(ctx, 0), 0)
ON(update_idle, 0, (u8)argument(ctx, 1))
ON(cpu_release, 0, 0)
