// SPDX-License-Identifier: GPL-2.0-only
//! `core/context.bpf.h`: an interrupt has no waker.

use magpie_sim::dsq::TaskId;
use magpie_sim::mask::Mask;
use magpie_sim::native::{Context, HANDOFF_SCORE};
use magpie_sim::task::Place;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

fn starts(rig: &mut Rig, waker: TaskId) {
    rig.run_noted(waker, 0);
    rig.kernel.cpu = 0;
}

/// The running task, another that is woken by a wakeup with WF_SYNC from this context, and what became of it.
fn woken_from(context: Context, machine: &str) -> (Rig, TaskId, TaskId) {
    let mut rig = Rig::new(machine, &[]);
    rig.only_idle(&[1]);
    let (waker, wakee) = (rig.task(), rig.task());
    starts(&mut rig, waker);
    rig.kernel.tasks[waker].raw_mut().scx.slice = 1000;
    rig.cpu(0, |cctx| cctx.handoff_score = HANDOFF_SCORE as i32);
    rig.kernel.wake_from(context, wakee, true);
    assert_eq!(rig.kernel.violation, None);
    (rig, waker, wakee)
}

/// From a system call it is the running task that wakes: also when that sends a packet over loopback.
#[test]
fn a_system_call_has_a_waker() {
    for context in [Context::Syscall, Context::SoftInSyscall] {
        let (mut rig, waker, wakee) = woken_from(context, "1x1x2x1");
        assert_eq!(rig.kernel.tasks[wakee].place, Place::Local(0), "{context:?}: handed off");
        assert_eq!(rig.kernel.tasks[waker].raw().scx.slice, 0);
        assert_eq!(rig.cpu(0, |cctx| cctx.sync_wakes), 1);
        assert_eq!(rig.remembered(wakee, |tctx| tctx.sync_wakeup), 1);
    }
}

/// The wakee goes to an idle CPU, with the credit of what a device wakes, and the interrupted task stays what it was.
#[test]
fn an_interrupt_has_none() {
    for context in [Context::HardInterrupt, Context::SoftInterrupt] {
        let (mut rig, waker, wakee) = woken_from(context, "1x1x2x1");
        assert_eq!(rig.stat(magpie_stat_STAT_HANDOFF), 0, "{context:?}");
        assert_eq!(rig.kernel.tasks[wakee].cpu, 1);
        assert_eq!(rig.kernel.tasks[waker].raw().scx.slice, 1000);
        assert_eq!(rig.cpu(0, |cctx| cctx.sync_wakes), 0);
        assert_eq!(rig.remembered(wakee, |tctx| tctx.sync_wakeup), 0);
    }
}

/// Wake-affine takes the wakee from its preferred node, and neither is moved back for some time. An interrupt leaves both alone.
#[test]
fn an_interrupted_task_does_not_back_off() {
    for (context, backs_off) in [(Context::Syscall, 1), (Context::SoftInterrupt, 0)] {
        let mut rig = Rig::new("2x1x1x1", &["--wake-affine", "sync"]);
        rig.only_idle(&[]);
        let (waker, wakee) = (rig.task(), rig.task());
        starts(&mut rig, waker);
        rig.kernel.tasks[wakee].cpu = 1;
        for task in [waker, wakee] {
            rig.remembered(task, |tctx| tctx.preferred_node = 1);
        }
        rig.kernel.wake_from(context, wakee, true);
        let backed_off = [waker, wakee].map(|task| rig.remembered(task, |tctx| tctx.numa_backoff));
        assert_eq!(backed_off, [backs_off; 2], "{context:?}");
    }
}

/// Another CPU has queued the wakeup of a pinned task: the interrupt that says so comes from a waker.
#[test]
fn a_queued_wakeup_has_a_waker() {
    for (queued, sync) in [(0, 0), (1, 1)] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        let (running, wakee) = (rig.task(), rig.task());
        rig.kernel.set_allowed(wakee, Mask::only(0));
        starts(&mut rig, running);
        rig.kernel.cpus[0].freq.rq.ttwu_pending = queued;
        rig.kernel.wake_from(Context::HardInterrupt, wakee, false);
        assert_eq!(rig.remembered(wakee, |tctx| tctx.sync_wakeup), sync, "queued: {queued}");
    }
}
