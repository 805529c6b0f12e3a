/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of an ejected scheduler in the kernel's exit dump: its state of CPUs and tasks. */
#pragma once

void BPF_STRUCT_OPS(magpie_dump, struct scx_dump_ctx *dctx)
{
	scx_bpf_dump("magpie: slice %llu ns, credit %llu ns, %u LLCs, SMT %u", tunables.slice_ns,
		     tunables.credit_ns, machine.nr_llcs, machine.smt_width);
}

void BPF_STRUCT_OPS(magpie_dump_cpu, struct scx_dump_ctx *dctx, s32 cpu, bool idle)
{
	struct cpu_ctx *cctx = cpu_ctx(cpu);

	if (idle && !cctx->queued)
		return;
	scx_bpf_dump("magpie: vtime %llu util_avg %u idle %d queued %d pinned %d", cctx->vtime,
		     cctx->pelt.util_avg, cctx->idle, scx_bpf_dsq_nr_queued(cpu),
		     scx_bpf_dsq_nr_queued(pinned_queue(cpu)));
}

void BPF_STRUCT_OPS(magpie_dump_task, struct scx_dump_ctx *dctx, struct task_struct *p)
{
	struct task_ctx *tctx = task_ctx(p);

	if (tctx)
		scx_bpf_dump(
			"magpie: vruntime %llu clock of CPU %d recent %d group %u throttled %d",
			tctx->vruntime, tctx->vtime_cpu, tctx->recent, tctx->group,
			is_throttled(tctx));
}
