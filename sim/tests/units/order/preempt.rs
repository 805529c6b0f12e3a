// SPDX-License-Identifier: GPL-2.0-only
//! `order/preempt.bpf.h`: who takes the CPU of whom, and that urgent tasks wait for each other only.

use magpie_sim::native::{HOG_NS, PROMPT_NS, SCX_ENQ_WAKEUP};
use magpie_sim::task::{LOADER_TGID, SCHED_BATCH, SCHED_IDLE, SCHED_NORMAL, State};
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const GRAN: i64 = 4_000_000;
const SLICE: i64 = 3_000_000;
const LAG: i64 = 6_000_000;
/// What the prompt come before others.
const LEAD: i64 = LAG + PROMPT_NS as i64;
const TURN: i64 = 250_000;

/// A woken task against the one that runs on CPU 0.
#[derive(Clone, Debug)]
struct Pair {
    policy: u32,
    weight: u32,
    /// vruntime, relative to what the running one had when it started.
    owed: i64,
    curr_policy: u32,
    curr_weight: u32,
    curr_hog: bool,
    prompt: bool,
    curr_prompt: bool,
    curr_critical: bool,
    ran: i64,
}

impl Pair {
    fn preempts(&self, flags: &[&str]) -> bool {
        let mut rig = Rig::new("1x1x2x1", flags);
        let (curr, woken) = (rig.task(), rig.task());
        for (task, policy, weight) in [(curr, self.curr_policy, self.curr_weight), (woken, self.policy, self.weight)] {
            rig.kernel.tasks[task].raw_mut().policy = policy;
            rig.set_weight(task, weight);
            rig.remembered(task, |tctx| tctx.vruntime = 1 << 40);
        }
        rig.remembered(curr, |tctx| tctx.prompt = self.curr_prompt.into());
        rig.remembered(woken, |tctx| (tctx.prompt, tctx.fresh) = (self.prompt.into(), self.prompt.into()));
        rig.kernel.tasks[curr].raw_mut().se.sum_exec_runtime = if self.curr_hog { HOG_NS.into() } else { 0 };
        rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
        rig.cpu(0, |cctx| cctx.curr_critical = self.curr_critical.into());
        rig.kernel.now = rig.kernel.now.wrapping_add_signed(self.ran);
        rig.remembered(woken, |tctx| tctx.vruntime = tctx.vruntime.wrapping_sub(self.owed as u64));
        rig.call(rig.u.preempts, (rig.raw(woken), rig.tctx(woken), rig.cctx(0), rig.kernel.now))
    }

    fn expected(&self) -> bool {
        let by_weight = |ns: i64, weight: u32| ns * 100 / i64::from(weight);
        if [SCHED_BATCH, SCHED_IDLE].contains(&self.policy) {
            return false;
        }
        let brief = |weight: u32| by_weight(SLICE, weight.max(100));
        let sooner = |prompt| if prompt { LEAD } else { 0 };
        let (gran, curr_asks) = match (self.curr_hog, self.curr_prompt) {
            (true, _) => (0, by_weight(SLICE, self.curr_weight) + LAG),
            (false, prompt) if !self.prompt || self.curr_critical => (GRAN, brief(self.curr_weight) - sooner(prompt)),
            (false, false) => (0, brief(self.curr_weight)),
            (false, true) => (TURN, brief(self.curr_weight) - LEAD),
        };
        let ran = self.ran.max(0);
        let curr_deadline = by_weight(ran, self.curr_weight) + curr_asks;
        self.curr_policy == SCHED_IDLE
            || (ran >= gran
                && brief(self.weight) - sooner(self.prompt) - self.owed + by_weight(gran, self.weight) < curr_deadline)
    }
}

const PLAIN: Pair = Pair {
    policy: SCHED_NORMAL,
    weight: 100,
    owed: 0,
    curr_policy: SCHED_NORMAL,
    curr_weight: 100,
    curr_hog: false,
    prompt: false,
    curr_prompt: false,
    curr_critical: false,
    ran: 0,
};

fn pair() -> impl Strategy<Value = Pair> {
    let policy = || prop::sample::select(&[SCHED_NORMAL, SCHED_NORMAL, SCHED_BATCH, SCHED_IDLE]);
    let weight = || prop_oneof![Just(100), 1..=10_000u32];
    // The running CPU's clock may be behind by a little.
    let ran = prop_oneof![-1000..3 * GRAN, Just(GRAN), Just(GRAN - 1)];
    (policy(), weight(), -3 * GRAN..3 * GRAN, policy(), weight(), any::<[bool; 4]>(), ran).prop_map(
        |(policy, weight, owed, curr_policy, curr_weight, [curr_hog, prompt, curr_prompt, curr_critical], ran)| Pair {
            policy,
            weight,
            owed,
            curr_policy,
            curr_weight,
            curr_hog,
            prompt,
            curr_prompt,
            curr_critical,
            ran,
        },
    )
}

proptest! {
    #[test]
    fn whose_deadline_is_before_by_the_granularity(pair in pair()) {
        prop_assert_eq!(pair.preempts(&[]), pair.expected());
        prop_assert!(!pair.preempts(&["--no-wakeup-preempt"]));
    }
}

#[test]
fn at_the_edges() {
    for (pair, preempts) in [
        // Left alone until it has run for the granularity, whatever is owed.
        (Pair { ran: GRAN - 1, owed: 1 << 30, ..PLAIN }, false),
        (Pair { ran: GRAN, owed: 1, ..PLAIN }, true),
        (Pair { ran: GRAN, owed: 0, ..PLAIN }, false),
        // The clock of the running one's CPU is ahead: it has not run for ages.
        (Pair { ran: -1, owed: 1 << 30, ..PLAIN }, false),
        // A light one has to be owed more to be as far behind.
        (Pair { ran: 2 * GRAN, weight: 40, ..PLAIN }, false),
        (Pair { ran: 2 * GRAN, weight: 60, ..PLAIN }, true),
        (Pair { ran: -1, prompt: true, ..PLAIN }, true),
        // Before one that is prompt there is no rest, but for who was prompt itself.
        (Pair { prompt: true, ran: 1, ..PLAIN }, true),
        (Pair { prompt: true, ran: 1, owed: -LEAD, ..PLAIN }, true),
        (Pair { prompt: true, ran: 1, owed: -LEAD - 1, ..PLAIN }, false),
        (Pair { prompt: true, curr_prompt: true, ran: TURN - 1, ..PLAIN }, false),
        (Pair { prompt: true, curr_prompt: true, ran: TURN + 1, ..PLAIN }, true),
        (Pair { prompt: true, curr_critical: true, ran: GRAN - 1, ..PLAIN }, false),
        // A hog makes way at once, for any but those that had much more than it had.
        (Pair { curr_hog: true, ran: 1, ..PLAIN }, true),
        (Pair { curr_hog: true, ran: 1, weight: 1, ..PLAIN }, true),
        (Pair { curr_hog: true, ran: 1, owed: -LAG, ..PLAIN }, true),
        (Pair { curr_hog: true, ran: 0, owed: -LAG, ..PLAIN }, false),
        (Pair { curr_policy: SCHED_IDLE, owed: -(1 << 30), ..PLAIN }, true),
        (Pair { curr_policy: SCHED_IDLE, policy: SCHED_BATCH, ..PLAIN }, false),
        (Pair { curr_policy: SCHED_IDLE, policy: SCHED_IDLE, ..PLAIN }, false),
    ] {
        assert_eq!(pair.preempts(&[]), preempts, "{pair:?}");
    }
}

#[test]
fn nobody_is_preempted_twice() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    let woken = rig.task();
    rig.cpu(0, |cctx| (cctx.curr_weight, cctx.curr_idle_policy) = (0, 1));
    assert!(!rig.call(rig.u.preempts, (rig.raw(woken), rig.tctx(woken), rig.cctx(0), rig.kernel.now)));
}

#[test]
fn the_running_one_makes_way_if_there_is_one() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    for (weight, made, makes_way) in [(100, 0, 1), (0, 0, 0), (0, 1, 1)] {
        rig.cpu(0, |cctx| (cctx.curr_weight, cctx.making_way) = (weight, made));
        rig.call(rig.u.make_way, (0, rig.cctx(0)));
        assert_eq!(rig.cpu(0, |cctx| (cctx.curr_weight, cctx.making_way)), (0, makes_way));
    }
}

/// A per-CPU kernel thread runs at once, but waits for another that does, in the order in which they woke.
#[test]
fn urgent_tasks_wait_for_each_other_only() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let curr = rig.task_on([0]);
    let (hog, urgent) = (rig.task_on([0]), [0; 3].map(|_| rig.task_on([0])));
    for task in urgent {
        rig.kernel.tasks[task].raw_mut().flags = magpie_sim::native::PF_KTHREAD;
    }
    let wake = |rig: &mut Rig, task: usize| {
        rig.kernel.cpus[0].need_resched = false;
        rig.kernel.tasks[task].state = State::Sleeping;
        rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
        assert_eq!(rig.kernel.violation, None);
        rig.kernel.cpus[0].need_resched
    };
    // An ordinary task runs: the first takes its CPU, and those that wake before it is there queue up behind it.
    rig.run(curr, 0);
    rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
    assert!(wake(&mut rig, urgent[0]));
    assert_eq!(rig.local(0), [urgent[0]]);
    assert_eq!(rig.cpu(0, |cctx| cctx.making_way), 1);

    // It runs: the others do not take the CPU from it.
    rig.kernel.take_out(urgent[0]);
    rig.run(urgent[0], 0);
    rig.call(rig.u.note_running, (rig.raw(urgent[0]), rig.tctx(urgent[0]), rig.cctx(0)));
    assert!(!wake(&mut rig, urgent[1]));
    assert!(!wake(&mut rig, urgent[2]));
    assert_eq!(rig.local(0), [urgent[1], urgent[2]]);
    assert_eq!(rig.stat(magpie_stat_STAT_KTHREAD), 3);

    // And an ordinary task that wakes takes it from none of them.
    rig.kernel.now += 10 * GRAN as u64;
    assert!(!wake(&mut rig, hog));
    assert_eq!((rig.waiting(0), rig.stat(magpie_stat_STAT_PREEMPT)), (vec![hog], 0));
}

/// Who preempts waits in line, where another CPU may take it: what runs goes on then, if its deadline is before the next
/// one's. A SCHED_IDLE task makes way all the same, once.
#[test]
fn who_makes_way_does_so_for_who_is_owed_more_or_is_not_idle() {
    makes_way(SCHED_NORMAL, false);
    makes_way(SCHED_IDLE, true);
}

fn makes_way(curr_policy: u32, for_anybody: bool) {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let (curr, late, next) = (rig.task(), rig.task(), rig.task());
    let wake = |rig: &mut Rig, task: usize| {
        rig.kernel.tasks[task].state = State::Sleeping;
        rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
        assert_eq!(rig.kernel.violation, None);
        (rig.stat(magpie_stat_STAT_PREEMPT), rig.stat(magpie_stat_STAT_QUEUED), rig.kicked())
    };
    let dispatch = |rig: &mut Rig| {
        let raw = rig.raw(curr);
        rig.kernel.call(Op::Dispatch, Some(curr), 0, |ops| unsafe { ops.dispatch.unwrap()(0, raw) });
        rig.local(0)
    };
    rig.kernel.tasks[curr].raw_mut().policy = curr_policy;
    rig.remembered(late, |tctx| (tctx.home, tctx.vruntime) = (0, 2 * GRAN as u64));
    rig.run(curr, 0);
    rig.kernel.tasks[curr].set_queued(true);
    rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
    rig.kernel.now += 15 * GRAN as u64;
    assert_eq!(wake(&mut rig, late), (1, 0, vec![0]));
    assert_eq!(wake(&mut rig, next), (1, 1, vec![]));
    let by_deadline = [next, late].map(|task| rig.call(rig.u.deadline, (rig.raw(task), rig.tctx(task))));
    let of_curr = rig.call(rig.u.deadline, (rig.raw(curr), rig.tctx(curr)));
    assert!(by_deadline[0] < by_deadline[1] && of_curr < by_deadline[1]);
    rig.kernel.take_out(next);
    assert_eq!(dispatch(&mut rig), if for_anybody { vec![late] } else { vec![] });

    if for_anybody {
        rig.kernel.take_out(late);
        rig.queue(late, 0, by_deadline[1]);
    }
    assert!(dispatch(&mut rig).is_empty());
}

/// It may move, and who runs may take its time to make way: it can be stolen until then.
#[test]
fn the_loader_is_first_in_line() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let (curr, next, loader) = (rig.task(), rig.task(), rig.task());
    rig.kernel.tasks[loader].raw_mut().tgid = LOADER_TGID;
    rig.queue(next, 0, 0);
    rig.run(curr, 0);
    for (weight, urgent, preempts) in [(100, 0, true), (0, 0, false), (100, 1, false)] {
        rig.cpu(0, |cctx| (cctx.curr_weight, cctx.curr_critical) = (weight, urgent));
        rig.kernel.tasks[loader].state = State::Sleeping;
        rig.kernel.activate(loader, 0, SCX_ENQ_WAKEUP);
        assert_eq!(rig.waiting(0), [loader, next]);
        assert_eq!(rig.kicked(), if preempts { vec![0] } else { vec![] });
        rig.kernel.take_out(loader);
    }
    assert_eq!((rig.stat(magpie_stat_STAT_KTHREAD), rig.stat(magpie_stat_STAT_PREEMPT)), (3, 0));
}

#[test]
fn an_idle_cpu_takes_who_would_preempt() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[1]);
    let (curr, woken) = (rig.task(), rig.task());
    rig.run(curr, 0);
    rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
    rig.kernel.now += 15 * GRAN as u64;
    rig.kernel.tasks[woken].state = State::Sleeping;
    rig.kernel.activate(woken, 0, SCX_ENQ_WAKEUP);
    assert_eq!((rig.waiting(0), rig.kicked()), (vec![woken], vec![1]));
    assert_eq!((rig.stat(magpie_stat_STAT_PREEMPT), rig.stat(magpie_stat_STAT_QUEUED)), (0, 1));
}

/// Who makes way for one urgent task is left alone, for that is brief; for two it is not.
#[test]
fn who_makes_way_for_two_or_comes_to_it_late_is_offered() {
    let wake = |rig: &mut Rig, task: usize| {
        rig.kernel.tasks[task].state = State::Sleeping;
        rig.kernel.activate(task, 0, SCX_ENQ_WAKEUP);
    };
    // On CPU 0 an ordinary task runs, and so many urgent ones wake; CPU 1 is idle. It makes way after so many ns.
    let start = |nr_urgent, after| {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[1]);
        let (curr, urgent) = (rig.task(), [0; 2].map(|_| rig.task_on([0])));
        for task in urgent {
            rig.kernel.tasks[task].raw_mut().flags = magpie_sim::native::PF_KTHREAD;
        }
        rig.run(curr, 0);
        rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
        urgent[..nr_urgent].iter().for_each(|&task| wake(&mut rig, task));
        // The first takes the CPU.
        rig.kernel.now += after;
        rig.kernel.do_enqueue(curr, 0, 0);
        (rig, urgent)
    };
    {
        let (mut rig, _) = start(2, 0);
        assert_eq!((rig.local(0).len(), rig.kicked()), (2, vec![1]));
    }
    {
        let (mut rig, _) = start(1, 250_000);
        assert_eq!((rig.local(0).len(), rig.kicked()), (1, vec![1]), "the timer fired before it was in line");
    }
    let (mut rig, urgent) = start(1, 249_999);
    assert_eq!((rig.local(0).len(), rig.kicked()), (1, vec![]));
    rig.kernel.take_out(urgent[0]);
    rig.run(urgent[0], 0);
    rig.call(rig.u.note_running, (rig.raw(urgent[0]), rig.tctx(urgent[0]), rig.cctx(0)));
    wake(&mut rig, urgent[1]);
    assert_eq!(rig.kicked(), [1]);
    drop(rig);

    // The urgent one is not as brief as it should be.
    let (rig, _) = start(1, 0);
    let due = rig.kernel.timers.iter().find_map(|timer| timer.due).unwrap_or(0);
    assert!((250_000..260_000).contains(&(due - rig.kernel.now)), "the timer looks at {due}");
    drop(rig);

    // It is done, and another goes on.
    let (mut rig, urgent) = start(1, 0);
    let other = rig.task();
    rig.queue(other, 0, 1 << 50);
    rig.kernel.take_out(urgent[0]);
    let ops = rig.kernel.ops;
    rig.kernel.call(Op::Dispatch, None, 0, |_| unsafe { ops.dispatch.unwrap()(0, std::ptr::null_mut()) });
    assert_eq!((rig.waiting(0), rig.kicked()), (vec![other], vec![1]));
}

/// Who may run nowhere else, and is next, does not wait in line: that costs a dispatch().
#[test]
fn a_pinned_task_that_is_next_is_not_put_in_line() {
    let plain = (true, 100, 0, false, false);
    for ((pinned, weight, ahead, another_waits, another_is_next), next) in [
        (plain, true),
        ((false, 100, 0, false, false), false),
        ((true, 100, SLICE, false, false), true),
        // The running one's second slice comes before its first.
        ((true, 100, SLICE + 1, false, false), false),
        ((true, 100, 0, true, false), false),
        ((true, 100, 0, false, true), false),
    ] {
        let mut rig = Rig::new("1x1x2x1", &[]);
        rig.only_idle(&[]);
        let (curr, other) = (rig.task(), rig.task_on([0]));
        let woken = if pinned { rig.task_on([0]) } else { rig.task() };
        rig.set_weight(woken, weight);
        rig.run(curr, 0);
        for task in [curr, woken] {
            rig.remembered(task, |tctx| (tctx.vruntime, tctx.home) = (1 << 40, 0));
        }
        rig.remembered(woken, |tctx| tctx.vruntime = tctx.vruntime.wrapping_add(ahead as u64));
        rig.call(rig.u.note_running, (rig.raw(curr), rig.tctx(curr), rig.cctx(0)));
        if another_waits {
            rig.queue(other, 0, 0);
        }
        if another_is_next {
            rig.kernel.cpus[0].local.push_back(other);
        }
        rig.kernel.tasks[woken].state = State::Sleeping;
        rig.kernel.activate(woken, 0, SCX_ENQ_WAKEUP);
        let case = (pinned, weight, ahead, another_waits, another_is_next);
        assert_eq!(rig.local(0).contains(&woken), next, "{case:?}");
        let counted = (rig.stat(magpie_stat_STAT_NEXT), rig.stat(magpie_stat_STAT_QUEUED));
        assert_eq!(counted, (u64::from(next), u64::from(!next)), "{case:?}");
    }
}

/// Who comes back to its CPU is not told to make way for it, only for others.
#[test]
fn a_pinned_task_that_is_next_waits() {
    let mut rig = Rig::new("1x1x2x1", &[]);
    rig.only_idle(&[]);
    let (curr, next, other) = (rig.task(), rig.task_on([0]), rig.task());
    let runs = |rig: &mut Rig, task: usize| {
        rig.run(task, 0);
        let raw = rig.raw(task);
        // SAFETY: as the kernel calls it.
        rig.kernel.call(Op::Running, Some(task), 0, |ops| unsafe { ops.running.unwrap()(raw) });
        rig.kicked()
    };
    assert!(runs(&mut rig, curr).is_empty());
    rig.kernel.tasks[next].state = State::Sleeping;
    rig.kernel.activate(next, 0, SCX_ENQ_WAKEUP);
    assert_eq!(rig.local(0), [next]);
    assert!(runs(&mut rig, curr).is_empty());
    rig.kernel.cpus[0].local.push_back(other);
    assert_eq!(runs(&mut rig, curr), [0]);

    // It had its turn: there is nobody any more who waits by right.
    rig.kernel.take_out(next);
    rig.kernel.take_out(other);
    assert!(runs(&mut rig, next).is_empty());
    rig.kernel.cpus[0].local.push_back(other);
    assert_eq!(runs(&mut rig, next), [0]);
}
