// SPDX-License-Identifier: GPL-2.0-only
//! `capacity/misfit.bpf.h`: a running task that is too big for its CPU moves to a stronger one, if there is room.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::*;
use magpie_sim::task::{Place, SCHED_BATCH};
use magpie_sim::trace::Op;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
/// CPUs 0 and 1 are the strongest, 2 is between, 3 is the weakest.
const MACHINE: &str = "1x1x4x1:1024*2,620,250";
const WEAK: usize = 3;

fn rig() -> Rig {
    let mut rig = Rig::new(MACHINE, &[]);
    rig.kernel.now = 1000 * MSEC;
    rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.read_prolog_depth.unwrap()() });
    rig.only_idle(&[]);
    rig
}

/// A task of that size runs on the CPU.
fn runner(rig: &mut Rig, cpu: usize, util: u32) -> TaskId {
    let task = rig.task();
    sized(rig, task, util);
    rig.run(task, cpu);
    rig.kernel.cpu = cpu;
    rig.call(rig.u.util_starts, (rig.raw(task).cast_const(), rig.tctx(task), cpu as i32, rig.cctx(cpu)));
    task
}

fn sized(rig: &mut Rig, task: TaskId, util: u32) {
    let now = rig.kernel.now;
    rig.remembered(task, |tctx| (tctx.util.updated_at, tctx.util_est, tctx.task_util) = (now, util, util));
}

/// Others run on all other CPUs, of these sizes.
fn others(rig: &mut Rig, utils: [u32; 3]) {
    for (cpu, util) in utils.into_iter().enumerate() {
        rig.cpu(cpu, |cctx| (cctx.curr_weight, cctx.curr_util) = (100, util));
    }
}

fn tick(rig: &mut Rig, task: TaskId) -> bool {
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    rig.kernel.tasks[task].raw_mut().scx.slice = 5;
    let now = rig.kernel.now;
    rig.call(rig.u.check_move, (rig.raw(task), rig.tctx(task), cpu as i32, rig.cctx(cpu), now));
    let migrate_up = rig.remembered(task, |tctx| tctx.move_why == move_why_MOVE_UP as u8);
    assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, migrate_up);
    migrate_up
}

fn enqueue(rig: &mut Rig, task: TaskId) -> Place {
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    rig.kernel.cpus[cpu].nr_running += 1;
    rig.kernel.do_enqueue(task, cpu, 0);
    assert_eq!(rig.kernel.violation, None);
    rig.kernel.tasks[task].place
}

/// (its util, idle CPUs, utils of the running tasks of the others) -> where it goes.
#[test]
fn a_misfit_moves_to_a_stronger_cpu_that_is_idle_or_runs_a_small_task() {
    for (util, idle, running, goes) in [
        (800, &[1][..], [900, 0, 500], Some(1)),
        // One that is stronger, if not strong enough.
        (800, &[2], [900, 900, 0], Some(2)),
        // Fits where it is.
        (100, &[1], [900, 0, 500], None),
        (800, &[], [900, 900, 500], None),
        // A task that runs there fits the misfit's CPU.
        (800, &[], [900, 150, 500], Some(1)),
        (800, &[], [900, 900, 100], Some(2)),
        // Idle ones first.
        (800, &[2], [100, 100, 0], Some(2)),
    ] {
        let mut rig = rig();
        let task = runner(&mut rig, WEAK, util);
        others(&mut rig, running);
        rig.only_idle(idle);
        let what = format!("{util} {idle:?} {running:?}");
        assert_eq!(tick(&mut rig, task), goes.is_some(), "{what}");
        let place = enqueue(&mut rig, task);
        assert_eq!(rig.kernel.kicks.contains(&(goes.unwrap_or(0), SCX_KICK_PREEMPT)), goes.is_some(), "{what}");
        assert_eq!(place, goes.map_or(Place::Dsq(WEAK), Place::Local), "{what}");
        let swaps = u64::from(goes.is_some() && idle.is_empty());
        let moved = [magpie_stat_STAT_MISFIT_MOVE, magpie_stat_STAT_MISFIT_SWAP].map(|stat| rig.stat(stat));
        assert_eq!(moved, [u64::from(goes.is_some()), swaps], "{what}");
        assert!(!rig.remembered(task, |tctx| tctx.move_why != 0));
    }
}

#[test]
fn a_misfit_that_may_not_move_stays() {
    for (disabled, allowed, moves) in [(0, 0..4, true), (1, 0..4, false), (0, 2..4, false), (0, 3..4, false)] {
        let mut rig = rig();
        let task = rig.task_on(allowed.clone().rev());
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        sized(&mut rig, task, 800);
        rig.run(task, WEAK);
        others(&mut rig, [900, 0, 900]);
        rig.only_idle(&[1]);
        assert_eq!(tick(&mut rig, task), moves, "{disabled} {allowed:?}");
        rig.remembered(task, |tctx| tctx.move_why = move_why_MOVE_UP as u8);
        assert_eq!(enqueue(&mut rig, task) == Place::Local(1), moves);
    }
}

/// Critical tasks are not preempted, nor those of other classes; and SCHED_BATCH tasks preempt none.
#[test]
fn which_tasks_a_misfit_preempts() {
    for (policy, weight, critical, moves) in
        [(0, 100, 0, true), (0, 100, 1, false), (0, 0, 0, false), (SCHED_BATCH, 100, 0, false)]
    {
        let mut rig = rig();
        let task = runner(&mut rig, WEAK, 800);
        rig.kernel.tasks[task].raw_mut().policy = policy;
        rig.kernel.tasks[task].traits.policy = policy;
        others(&mut rig, [900, 900, 900]);
        rig.cpu(0, |cctx| (cctx.curr_util, cctx.curr_weight, cctx.curr_critical) = (100, weight, critical));
        assert_eq!(tick(&mut rig, task), moves, "{policy} {weight} {critical}");
    }
}

#[test]
fn a_wakeup_has_searched_already() {
    let mut rig = rig();
    let task = runner(&mut rig, WEAK, 800);
    rig.only_idle(&[1]);
    rig.remembered(task, |tctx| tctx.move_why = move_why_MOVE_UP as u8);
    let args = (rig.raw(task), WEAK as i32, SCX_ENQ_WAKEUP);
    assert!(!rig.call(rig.u.send_away, args));
}

/// Its slice is not renewed.
#[test]
fn a_task_that_is_to_move_up_does_not_keep_running() {
    for migrate_up in [false, true] {
        let mut rig = rig();
        let task = runner(&mut rig, WEAK, 800);
        rig.kernel.tasks[task].set_queued(true);
        rig.remembered(task, |tctx| tctx.move_why = if migrate_up { move_why_MOVE_UP as u8 } else { 0 });
        let (ops, raw) = (rig.kernel.ops, rig.raw(task));
        rig.call(ops.dispatch, (WEAK as i32, raw));
        assert_eq!(rig.stat(magpie_stat_STAT_KEEP), u64::from(!migrate_up));
    }
}
