// SPDX-License-Identifier: GPL-2.0-only
//! `order/preempt.bpf.h`: which wakee takes the CPU of which task, and that critical tasks wait for each other only.

use std::ops::Range;

use magpie_sim::cgroup::Spec;
use magpie_sim::dsq::TaskId;
use magpie_sim::native::{PF_KTHREAD, SCX_WAKE_SYNC, SCX_WAKE_TTWU, SHORT_SHARE, WEIGHT_SHIFT};
use magpie_sim::task::{LOADER_TGID, SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL};
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::{Rig, nice_weight};

const SLICE: i64 = 3_000_000;
/// The default of --slice-us-lag.
const CREDIT: i64 = 9_000_000;

/// A wakee, and the task that runs on CPU 0, whose vruntime is the CPU's.
#[derive(Clone, Debug)]
struct Pair {
    policy: u32,
    weight: u32,
    short: bool,
    sync: bool,
    /// Its positive lag.
    owed: i64,
    curr_policy: u32,
    curr_weight: u32,
    curr_short: bool,
    curr_sync: bool,
    curr_critical: bool,
    /// ns until the running task sleeps, by its estimate.
    left: i64,
}

const PLAIN: Pair = Pair {
    policy: SCHED_NORMAL,
    weight: 1024,
    short: false,
    sync: false,
    owed: 0,
    curr_policy: SCHED_NORMAL,
    curr_weight: 1024,
    curr_short: false,
    curr_sync: false,
    curr_critical: false,
    left: 0,
};

impl Pair {
    fn preempts(&self, flags: &[&str]) -> bool {
        let mut rig = Rig::new("1x1x2x1", flags);
        let (curr, wakee) = (rig.task(), rig.task());
        let vtime = 1_u64 << 40;
        rig.cpu(0, |cctx| cctx.vtime = vtime);
        for (task, policy, weight, short, sync, owed) in [
            (curr, self.curr_policy, self.curr_weight, self.curr_short, self.curr_sync, 0),
            (wakee, self.policy, self.weight, self.short, self.sync, self.owed),
        ] {
            rig.kernel.tasks[task].raw_mut().policy = policy;
            rig.set_weight(task, weight);
            let burst_est = if short { 0 } else { SLICE as u64 };
            rig.remembered(task, |tctx| {
                (tctx.vruntime, tctx.burst_est) = (vtime.wrapping_add_signed(-owed), burst_est)
            });
            let flags = SCX_WAKE_TTWU | if sync { SCX_WAKE_SYNC } else { 0 };
            rig.call(rig.u.begin_burst, (rig.raw(task), rig.tctx(task), flags));
            rig.set_deadline(task, 0);
        }
        rig.run_noted(curr, 0);
        let now = rig.kernel.now;
        rig.cpu(0, |cctx| {
            cctx.curr_critical = self.curr_critical.into();
            (cctx.curr_started, cctx.curr_left) = (now - 5000, self.left + 5000);
        });
        rig.call(rig.u.preempts, (rig.raw(wakee), rig.tctx(wakee), rig.cctx(0), rig.kernel.now))
    }

    fn expected(&self) -> bool {
        let due = |short: bool, sync: bool, policy, weight: u32, ahead: i64| {
            let slice = SLICE * 1024 / i64::from(weight);
            let request = if short { (slice - SLICE).max(0) / i64::from(SHORT_SHARE) } else { slice };
            let credit = if !sync && policy == SCHED_NORMAL { CREDIT * 1024 / i64::from(weight.max(1024)) } else { 0 };
            ahead + request - credit
        };
        let deadline = due(self.short, self.sync, self.policy, self.weight, -self.owed);
        let curr_deadline = due(self.curr_short, self.curr_sync, self.curr_policy, self.curr_weight, 0);
        match () {
            () if self.policy != SCHED_NORMAL || self.curr_critical => false,
            () if self.curr_policy == SCHED_IDLE => true,
            () if self.sync || deadline >= curr_deadline => false,
            () => self.left <= 0 || self.left > SLICE / 2,
        }
    }
}

fn pair() -> impl Strategy<Value = Pair> {
    let policy = || prop_oneof![8 => Just(SCHED_NORMAL), 1 => Just(SCHED_BATCH), 1 => Just(SCHED_IDLE)];
    let weight = || nice_weight();
    let sync = || prop::bool::weighted(0.3);
    let left = prop_oneof![-1000..2 * SLICE, Just(SLICE / 2), Just(SLICE / 2 + 1), Just(0), Just(1)];
    let wakee = (policy(), weight(), any::<bool>(), sync(), -2 * CREDIT..2 * CREDIT);
    let curr = (policy(), weight(), any::<bool>(), sync(), prop::bool::weighted(0.1), left);
    (wakee, curr).prop_map(|((policy, weight, short, sync, owed), curr)| {
        let (curr_policy, curr_weight, curr_short, curr_sync, curr_critical, left) = curr;
        Pair { policy, weight, short, sync, owed, curr_policy, curr_weight, curr_short, curr_sync, curr_critical, left }
    })
}

proptest! {
    #[test]
    fn by_the_rule(pair in pair()) {
        prop_assert_eq!(pair.preempts(&[]), pair.expected());
        prop_assert!(!pair.preempts(&["--no-wakeup-preempt"]));
    }
}

#[test]
fn at_the_edges() {
    for (pair, preempts) in [
        // By the deadlines.
        (Pair { owed: 1, ..PLAIN }, true),
        (PLAIN, false),
        // The credit outweighs a negative lag of less than that.
        (Pair { curr_sync: true, owed: 1 - CREDIT, ..PLAIN }, true),
        (Pair { curr_sync: true, owed: -CREDIT, ..PLAIN }, false),
        // The wakee is short, and current is not.
        (Pair { short: true, ..PLAIN }, true),
        (Pair { short: true, curr_short: true, ..PLAIN }, false),
        (Pair { curr_short: true, owed: SLICE, ..PLAIN }, false),
        (Pair { curr_short: true, owed: SLICE + 1, ..PLAIN }, true),
        // Current is about to sleep, unless it has overrun its estimate.
        (Pair { left: 1, owed: 1 << 30, ..PLAIN }, false),
        (Pair { left: SLICE / 2, owed: 1 << 30, ..PLAIN }, false),
        (Pair { left: SLICE / 2 + 1, owed: 1, ..PLAIN }, true),
        (Pair { left: -1, owed: 1, ..PLAIN }, true),
        // The wakee was sent a message.
        (Pair { sync: true, curr_sync: true, owed: 1 << 30, ..PLAIN }, false),
        (Pair { curr_critical: true, owed: 1 << 30, ..PLAIN }, false),
        // Tasks that run when nothing else wants to.
        (Pair { curr_policy: SCHED_IDLE, sync: true, left: 1, owed: -(1 << 30), ..PLAIN }, true),
        (Pair { curr_policy: SCHED_IDLE, policy: SCHED_BATCH, ..PLAIN }, false),
        (Pair { curr_policy: SCHED_IDLE, policy: SCHED_IDLE, ..PLAIN }, false),
        (Pair { policy: SCHED_BATCH, owed: 1 << 30, ..PLAIN }, false),
    ] {
        assert_eq!(pair.preempts(&[]), preempts, "{pair:?}");
        assert_eq!(pair.expected(), preempts, "{pair:?}");
    }
}

/// What interrupts took is not the task's.
#[test]
fn what_a_task_has_run_for_is_without_interrupts() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let curr = rig.task();
    rig.cpu(0, |cctx| cctx.clock_lag = 1000);
    rig.remembered(curr, |tctx| tctx.burst_est = 5000);
    rig.run_noted(curr, 0);
    // The kernel's clock of tasks stood still for another 3000 ns.
    let now = rig.kernel.now + 1000;
    for (ran, sleeps) in [(0, true), (4999, true), (5000, false)] {
        assert_eq!(rig.call(rig.u.is_about_to_sleep, (rig.cctx(0).cast_const(), now + ran)), sleeps, "{ran}");
    }
}

#[test]
fn a_task_of_a_cpu_idle_group_is_preempted_and_preempts_not() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let group = rig.kernel.make_cgroup(&Spec { idle: true, ..Spec::default() });
    let (of_idle_group, other) = (rig.task(), rig.task());
    rig.kernel.move_to_cgroup(of_idle_group, group);
    rig.call(rig.u.group_enter, (rig.raw(of_idle_group), rig.tctx(of_idle_group)));
    for task in [of_idle_group, other] {
        rig.call(rig.u.begin_burst, (rig.raw(task), rig.tctx(task), SCX_WAKE_TTWU));
    }
    for (curr, wakee, preempts) in [(of_idle_group, other, true), (other, of_idle_group, false)] {
        // By its deadline it would.
        rig.remembered(curr, |tctx| tctx.vruntime = 1 << 50);
        rig.remembered(wakee, |tctx| tctx.vruntime = 0);
        rig.run_noted(curr, 0);
        rig.set_deadline(wakee, 0);
        assert_eq!(rig.call(rig.u.preempts, (rig.raw(wakee), rig.tctx(wakee), rig.cctx(0), rig.kernel.now)), preempts);
    }
}

#[test]
fn a_task_is_preempted_once() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let wakee = rig.task();
    rig.cpu(0, |cctx| (cctx.curr_weight, cctx.curr_idle_policy) = (0, 1));
    assert!(!rig.call(rig.u.preempts, (rig.raw(wakee), rig.tctx(wakee), rig.cctx(0), rig.kernel.now)));
}

/// On CPU 0 a task that a timer woke has run for a slice, and such CPUs are idle.
fn rig(idle: &[usize], policy: u32) -> (Rig, TaskId) {
    rig_of(idle, policy, &[])
}

fn rig_of(idle: &[usize], policy: u32, flags: &[&str]) -> (Rig, TaskId) {
    let mut rig = Rig::new("1x1x2x1", flags);
    rig.only_idle(idle);
    let curr = rig.task();
    rig.kernel.tasks[curr].raw_mut().policy = policy;
    rig.remembered(curr, |tctx| tctx.sync_wakeup = 0);
    rig.run_noted(curr, 0);
    rig.kernel.now += SLICE as u64;
    rig.kernel.tasks[curr].raw_mut().se.sum_exec_runtime += SLICE as u64;
    rig.call(rig.u.charge, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
    rig.set_deadline(curr, 0);
    rig.call(rig.u.publish_current, (rig.tctx(curr), rig.cctx(0), 1024 << WEIGHT_SHIFT));
    (rig, curr)
}

fn kthread(rig: &mut Rig) -> TaskId {
    let task = rig.task_on([0]);
    rig.kernel.tasks[task].raw_mut().flags = PF_KTHREAD;
    task
}

/// Tasks that preempted, and that were queued without.
fn preempted_queued(rig: &Rig) -> (u64, u64) {
    (rig.stat(magpie_stat_STAT_PREEMPT), rig.stat(magpie_stat_STAT_QUEUED))
}

/// What current makes way for.
fn made_way(rig: &mut Rig) -> u32 {
    rig.cpu(0, |cctx| cctx.preempted_by.into())
}

/// Where another CPU may take it until the running task is out of the kernel.
#[test]
fn a_wakee_that_preempts_waits_in_the_queue() {
    for policy in [SCHED_NORMAL, SCHED_IDLE] {
        let (mut rig, _) = rig(&[], policy);
        let wakee = rig.task();
        rig.wake(wakee, 0);
        assert_eq!((rig.waiting(0), rig.kicked(), preempted_queued(&rig)), (vec![wakee], vec![0], (1, 0)));
        assert_eq!(made_way(&mut rig), preempter_BY_WAKEE);
        // The next one finds it preempted.
        let another = rig.task();
        rig.wake(another, 0);
        assert_eq!((rig.kicked(), preempted_queued(&rig)), (vec![], (1, 1)));
    }
}

#[test]
fn an_idle_cpu_takes_a_wakee_that_would_preempt() {
    let (mut rig, _) = rig(&[1], SCHED_NORMAL);
    let wakee = rig.task();
    rig.wake(wakee, 0);
    assert_eq!((rig.waiting(0), rig.kicked(), preempted_queued(&rig)), (vec![wakee], vec![1], (0, 1)));
}

/// Nothing else can take it, and the kernel preempts as it inserts it.
#[test]
fn a_pinned_wakee_that_preempts_is_first_in_the_local_dsq() {
    for (flags, preempts) in [(&[][..], true), (&["--no-wakeup-preempt"], false)] {
        let (mut rig, curr) = rig_of(&[1], SCHED_NORMAL, flags);
        let (other, wakee) = (rig.task_on([0]), rig.task_on([0]));
        rig.queue_local(other, 0);
        rig.kernel.tasks[curr].raw_mut().scx.slice = 1000;
        rig.wake(wakee, 0);
        assert_eq!(rig.local(0), if preempts { vec![wakee, other] } else { vec![other] });
        assert_eq!(rig.waiting(0), if preempts { vec![] } else { vec![wakee] });
        assert_eq!((rig.kicked(), preempted_queued(&rig)), (vec![], if preempts { (1, 0) } else { (0, 1) }));
        assert_eq!(rig.kernel.tasks[curr].raw().scx.slice == 0, preempts);
        assert_eq!((made_way(&mut rig) == preempter_BY_WAKEE, rig.kernel.cpus[0].need_resched), (preempts, preempts));
    }
}

/// A task that was preempted after it had run for `ran` of its slice, and another that waits with a deadline before its own.
fn preempted(cpus: Range<usize>, ran: i64, by: preempter) -> (Rig, TaskId, TaskId) {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let (curr, other) = (rig.task_on(cpus.clone()), rig.task_on(cpus));
    rig.kernel.tasks[curr].raw_mut().scx.slice = SLICE as u64;
    rig.running(curr, 0);
    if rig.kernel.tasks[other].raw().nr_cpus_allowed > 1 {
        let deadline = rig.remembered(curr, |tctx| tctx.deadline);
        rig.queue(other, 0, deadline.wrapping_sub(1));
    } else {
        rig.queue_local(other, 0);
    }
    rig.cpu(0, |cctx| cctx.preempted_by = by as u8);
    let raw = rig.kernel.tasks[curr].raw_mut();
    (raw.se.sum_exec_runtime, raw.scx.slice) = (ran as u64, 0);
    rig.stopping(curr, true);
    rig.kernel.do_enqueue(curr, 0, 0);
    (rig, curr, other)
}

/// It may hold a lock for which the next one spins. After a slice it comes by its deadline.
#[test]
fn a_preempted_task_resumes_with_the_rest_of_its_slice() {
    for by in [preempter_BY_WAKEE, preempter_BY_KTHREAD] {
        for (ran, resumes) in [(0, true), (SLICE - 1, true), (SLICE, false), (SLICE + 1, false)] {
            let (rig, curr, other) = preempted(0..2, ran, by);
            let order = if resumes { [curr, other] } else { [other, curr] };
            assert_eq!(rig.waiting(0), order, "after {ran} ns");
            let slice = rig.kernel.tasks[curr].raw().scx.slice as i64;
            assert_eq!(slice == SLICE - ran, resumes, "{slice} after {ran} ns");
        }
    }
    // It was not preempted.
    let (rig, curr, _) = preempted(0..2, 1, preempter_BY_NONE);
    assert_eq!(rig.kernel.tasks[curr].raw().scx.slice, SLICE as u64);
}

/// Between them and those that waited already; a light task does not wait for them.
#[test]
fn a_long_task_that_wakes_comes_after_those_that_resume() {
    for light in [false, true] {
        let (mut rig, curr, other) = preempted(0..2, 1, preempter_BY_WAKEE);
        let wakee = rig.task();
        let vtime = rig.cpu(0, |cctx| cctx.vtime);
        rig.remembered(wakee, |tctx| {
            (tctx.burst_est, tctx.sync_wakeup) = (if light { 0 } else { SLICE as u64 }, 0);
            (tctx.vtime_cpu, tctx.vruntime) = (0, vtime);
        });
        rig.kernel.activate(wakee, 0, 0);
        assert_eq!(rig.waiting(0), if light { [wakee, curr, other] } else { [curr, wakee, other] });
    }
}

/// In the order in which they were.
#[test]
fn tasks_that_resume_come_one_after_the_other() {
    let (mut rig, first, other) = preempted(0..2, 1, preempter_BY_WAKEE);
    let second = rig.task();
    rig.kernel.tasks[second].raw_mut().scx.slice = SLICE as u64;
    rig.running(second, 0);
    rig.cpu(0, |cctx| cctx.preempted_by = preempter_BY_WAKEE as u8);
    rig.kernel.tasks[second].raw_mut().se.sum_exec_runtime = 1;
    rig.stopping(second, true);
    rig.kernel.do_enqueue(second, 0, 0);
    assert_eq!(rig.waiting(0), [first, second, other]);
}

#[test]
fn a_kthread_comes_before_a_pinned_task_that_is_next() {
    let (mut rig, curr, other) = preempted(0..1, 1, preempter_BY_WAKEE);
    let kthread = kthread(&mut rig);
    rig.cpu(0, |cctx| cctx.curr_critical = 1);
    rig.wake(kthread, 0);
    assert_eq!((rig.local(0), rig.waiting(0)), (vec![kthread, other], vec![curr]));
}

/// It resumes once.
#[test]
fn a_task_that_slept_since_it_was_preempted_does_not_resume() {
    let (mut rig, curr, _) = preempted(0..2, 1, preempter_BY_WAKEE);
    rig.kernel.take_out(curr);
    rig.running(curr, 0);
    rig.cpu(0, |cctx| cctx.preempted_by = preempter_BY_WAKEE as u8);
    rig.kernel.tasks[curr].raw_mut().__state = 1;
    rig.stopping(curr, false);
    rig.kernel.activate(curr, 0, 0);
    assert_eq!(rig.kernel.tasks[curr].raw().scx.slice, SLICE as u64);
}

#[test]
fn a_task_whose_slice_is_over_preempts_not() {
    let (mut rig, _) = rig(&[], SCHED_NORMAL);
    let task = rig.task();
    rig.kernel.activate(task, 0, 0);
    assert_eq!((rig.waiting(0), rig.kicked(), preempted_queued(&rig)), (vec![task], vec![], (0, 1)));
}

/// The last one to wake is first: tasks that resume may be in the local DSQ, too.
#[test]
fn per_cpu_kthreads_wait_for_each_other_only() {
    let (mut rig, _) = rig(&[], SCHED_NORMAL);
    let kthreads = [(); 4].map(|()| kthread(&mut rig));
    for (task, takes_the_cpu) in kthreads[..2].iter().zip([true, false]) {
        rig.kernel.cpus[0].need_resched = false;
        rig.wake(*task, 0);
        assert_eq!(rig.kernel.cpus[0].need_resched, takes_the_cpu);
    }
    assert_eq!(rig.local(0), [kthreads[1], kthreads[0]]);

    // The first runs, and leaves the CPU to none of the others.
    rig.kernel.take_out(kthreads[0]);
    rig.run_noted(kthreads[0], 0);
    rig.kernel.cpus[0].need_resched = false;
    rig.wake(kthreads[2], 0);
    rig.wake(kthreads[3], 0);
    assert!(!rig.kernel.cpus[0].need_resched);
    assert_eq!(rig.local(0), [kthreads[3], kthreads[2], kthreads[1]]);
    assert_eq!(rig.stat(magpie_stat_STAT_KTHREAD), 4);

    // Nor to a task that would preempt.
    let wakee = rig.task();
    rig.kernel.now += 10 * SLICE as u64;
    rig.wake(wakee, 0);
    assert_eq!((rig.waiting(0), rig.kicked(), rig.stat(magpie_stat_STAT_PREEMPT)), (vec![wakee], vec![], 0));
}

/// A kernel thread is brief, and the caches of the task that it preempts are warm.
#[test]
fn a_task_that_a_kthread_preempts_is_not_offered_to_idle_cpus() {
    let (mut rig, curr) = rig(&[1], SCHED_NORMAL);
    let kthread = kthread(&mut rig);
    rig.wake(kthread, 0);
    assert_eq!(made_way(&mut rig), preempter_BY_KTHREAD);
    rig.stopping(curr, true);
    rig.kernel.do_enqueue(curr, 0, 0);
    assert_eq!((rig.waiting(0), rig.kicked()), (vec![curr], vec![]));

    // From when the kernel thread runs, others are.
    rig.kernel.take_out(kthread);
    rig.running(kthread, 0);
    assert_eq!(made_way(&mut rig), preempter_BY_NONE);
    let other = rig.task();
    rig.wake(other, 0);
    assert_eq!(rig.kicked(), [1]);
}

/// That is for the preempted task only.
#[test]
fn a_wakee_is_offered_while_a_kthread_is_pending() {
    for idle in [&[1][..], &[]] {
        let (mut rig, curr) = rig(idle, SCHED_NORMAL);
        let kthread = kthread(&mut rig);
        rig.wake(kthread, 0);
        let other = rig.task();
        rig.wake(other, 0);
        assert_eq!((rig.waiting(0), rig.kicked(), preempted_queued(&rig)), (vec![other], idle.to_vec(), (0, 1)));
        rig.only_idle(&[1]);
        rig.stopping(curr, true);
        rig.kernel.do_enqueue(curr, 0, 0);
        assert_eq!((rig.waiting(0).len(), rig.kicked()), (2, vec![]));
    }
}

/// A kernel thread that comes to an idle CPU, or after another, preempts none.
#[test]
fn only_a_kthread_that_preempts_is_pending() {
    let (mut rig, _) = rig(&[], SCHED_NORMAL);
    let kthread = kthread(&mut rig);
    for (weight, critical, by) in
        [(0, 0, preempter_BY_NONE), (100, 1, preempter_BY_NONE), (100, 0, preempter_BY_KTHREAD)]
    {
        rig.cpu(0, |cctx| (cctx.curr_weight, cctx.curr_critical) = (weight, critical));
        rig.wake(kthread, 0);
        assert_eq!(made_way(&mut rig), by, "{weight} {critical}");
        rig.kernel.take_out(kthread);
    }
}

/// It may migrate, so it waits where it can be stolen.
#[test]
fn the_loader_is_first_in_the_queue() {
    let (mut rig, _) = rig(&[], SCHED_NORMAL);
    let (next, loader) = (rig.task(), rig.task());
    rig.kernel.tasks[loader].raw_mut().tgid = LOADER_TGID;
    rig.kernel.tasks[loader].traits.loader = true;
    rig.queue(next, 0, 0u64.wrapping_sub(1 << 59));
    for (weight, critical, preempts) in [(100, 0, true), (0, 0, false), (100, 1, false)] {
        rig.cpu(0, |cctx| (cctx.curr_weight, cctx.curr_critical) = (weight, critical));
        rig.wake(loader, 0);
        assert_eq!(rig.waiting(0), [loader, next]);
        assert_eq!(rig.kicked(), if preempts { vec![0] } else { vec![] });
        rig.kernel.take_out(loader);
    }
    assert_eq!((rig.stat(magpie_stat_STAT_KTHREAD), rig.stat(magpie_stat_STAT_PREEMPT)), (3, 0));
}

/// The CPU may find another task while the wakeup is under way: the wakee would wait behind it, where it cannot be stolen.
#[test]
fn a_wakee_comes_first_on_its_idle_cpu() {
    for (policy, first) in [(SCHED_NORMAL, true), (SCHED_BATCH, false), (SCHED_IDLE, false)] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[1]);
        let (other, wakee) = (rig.task(), rig.task());
        rig.kernel.cpus[1].local.push_back(other);
        rig.kernel.tasks[wakee].raw_mut().policy = policy;
        rig.kernel.cpu = 1;
        rig.kernel.wake(wakee, false);
        assert_eq!(rig.local(1), if first { [wakee, other] } else { [other, wakee] });
    }
}

/// Core scheduling compares tasks of two CPUs: by how far the deadlines are from the virtual times of their CPUs.
#[test]
fn of_a_cores_tasks_the_one_with_the_earlier_deadline_runs_first() {
    let mut rig = Rig::new("1x1x2x2", &[]);
    let (soon, late, critical) = (rig.task(), rig.task(), rig.task());
    for (cpu, vtime) in [(0, 1 << 40), (1, 5)] {
        rig.cpu(cpu, |cctx| cctx.vtime = vtime);
    }
    for (task, cpu, deadline) in [(soon, 0, (1 << 40) + 1000), (late, 1, 5 + 2000), (critical, 1, 5 + 3000)] {
        rig.remembered(task, |tctx| (tctx.vtime_cpu, tctx.deadline) = (cpu, deadline));
    }
    rig.kernel.tasks[critical].raw_mut().tgid = LOADER_TGID;
    for (first, then) in [(soon, late), (critical, soon), (critical, late)] {
        assert!(rig.call(rig.u.runs_before, (rig.raw(first), rig.raw(then))));
        assert!(!rig.call(rig.u.runs_before, (rig.raw(then), rig.raw(first))));
    }
}
