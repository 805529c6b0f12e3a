// SPDX-License-Identifier: GPL-2.0-only
//! `numa/home.bpf.h`, `numa/return.bpf.h`: where home is, when a task goes there, and what holds it back.

use magpie_sim::dsq::TaskId;
use magpie_sim::native::*;
use magpie_sim::task::Place;
use magpie_sim::trace::Op;
use proptest::prelude::*;
use scx_magpie::bpf_intf::*;

use crate::rig::Rig;

const MSEC: u64 = 1_000_000;
/// CPUs of the two nodes of two LLCs of two.
const MACHINE: &str = "2x2x2x1";
const HERE: usize = 0;
const THERE: usize = 4;

fn rig(flags: &[&str]) -> Rig {
    let mut rig = Rig::new(MACHINE, flags);
    rig.kernel.now = 1_000_000 * MSEC;
    rig.only_idle(&[]);
    rig
}

/// What the BPF prolog counts in tasks gets known.
fn note_prolog(rig: &mut Rig) {
    rig.kernel.call(Op::UpdateIdle, None, 0, |_| unsafe { rig.u.note_prolog.unwrap()() });
}

/// A task that runs on node 0 and whose home is `node`.
fn runner(rig: &mut Rig, node: i32) -> TaskId {
    let task = rig.task();
    rig.run(task, HERE);
    rig.remembered(task, |tctx| tctx.preferred_node = node);
    task
}

/// A tick of the task's CPU, later than the last one.
fn look(rig: &mut Rig, task: TaskId) {
    rig.kernel.now += 4 * MSEC;
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    rig.call(rig.u.check_preferred_node, (rig.raw(task), cpu as i32, rig.cctx(cpu)));
}

/// Is it to go home when it is next put in line?
fn migrate_home(rig: &mut Rig, task: TaskId) -> bool {
    rig.remembered(task, |tctx| tctx.migrate_home != 0)
}

#[test]
fn home_is_where_it_first_runs_then_where_it_runs_most() {
    let mut rig = rig(&[]);
    let task = rig.task();
    let settle = |rig: &mut Rig, node: i32, times: usize| {
        (0..times).for_each(|_| rig.call(rig.u.settle_preferred_node, (rig.tctx(task), node, NO_NODE)));
        rig.remembered(task, |tctx| tctx.preferred_node)
    };
    assert_eq!(settle(&mut rig, 1, 1), 1);
    // It has not run for long: it soon has another home.
    assert_eq!(settle(&mut rig, 0, 2), 0);
    // Then not so soon: the share falls below half after ln 2 of the time constant.
    assert_eq!(settle(&mut rig, 0, 10_000), 0);
    assert_eq!(settle(&mut rig, 1, 85), 0);
    assert_eq!(settle(&mut rig, 1, 6), 1);
}

#[test]
fn memory_is_home_whatever_it_has_run() {
    let mut rig = rig(&[]);
    let task = runner(&mut rig, 0);
    rig.remembered(task, |tctx| tctx.home_share = HOME_ALL as i32);
    for (memory, home) in [(1, 1), (1, 1), (0, 0), (1, 1)] {
        rig.call(rig.u.settle_preferred_node, (rig.tctx(task), 0, memory));
        assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), home);
    }
    // For as long as it is there.
    for _ in 0..1000 {
        rig.call(rig.u.settle_preferred_node, (rig.tctx(task), 0, 1));
    }
    assert_eq!(rig.remembered(task, |tctx| (tctx.preferred_node, tctx.home_share)), (1, 0));
    rig.call(rig.u.settle_preferred_node, (rig.tctx(task), 0, NO_NODE));
    assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), 0);
}

proptest! {
    /// By the kernel's rule: more than seven tenths local, and the period grows by as many tenths of itself.
    #[test]
    fn scan_periods_follow_locality(period in 1000..60_000u32, share in 0..=HOME_ALL as i32) {
        let mut rig = rig(&[]);
        let (task, now) = (rig.task(), 1_000_000 * MSEC);
        rig.remembered(task, |tctx| (tctx.scan_period, tctx.home_share, tctx.scan_at) = (period, share, now + 1));
        rig.call(rig.u.adapt_scan_period, (rig.tctx(task), now));
        prop_assert_eq!(rig.remembered(task, |tctx| tctx.scan_period), period);
        rig.call(rig.u.adapt_scan_period, (rig.tctx(task), now + 1));
        let tenths = 10 * share / HOME_ALL as i32;
        let step = match tenths - 7 { 0 => 1, by => by };
        let expected = (period as i32 + step * (period as i32 / 10)).clamp(1000, 60_000) as u32;
        let (adapted, at) = rig.remembered(task, |tctx| (tctx.scan_period, tctx.scan_at));
        prop_assert_eq!((adapted, at), (expected, now + 1 + u64::from(expected) * MSEC));
    }
}

/// For a task and its waker, four scan periods each; a longer wait stays; nothing where nobody leaves home.
#[test]
fn a_pull_away_from_home_holds_both_back() {
    for (flag, prev, home, starts) in [
        ("4", THERE, 1, true),
        ("4", THERE, 0, false),
        ("4", THERE, NO_NODE, false),
        ("4", HERE + 2, 1, false),
        ("0", THERE, 1, false),
        ("7", THERE, 1, true),
    ] {
        let mut rig = rig(&["--numa-backoff", flag]);
        let (waker, task) = (runner(&mut rig, 0), rig.task());
        rig.kernel.cpu = HERE;
        rig.cpu(HERE, |cctx| cctx.curr_weight = 1);
        rig.remembered(task, |tctx| (tctx.preferred_node, tctx.scan_period) = (home, 5000));
        rig.remembered(waker, |tctx| (tctx.scan_period, tctx.migrate_home) = (0, 1));
        let flags = SCX_WAKE_TTWU | SCX_WAKE_SYNC;
        let target = rig.call(rig.u.affine_target, (rig.raw(task), rig.tctx(task), prev as i32, flags));
        assert_eq!(target as usize, HERE);
        assert_eq!(rig.stat(magpie_stat_STAT_AFFINE_FAR), u64::from(prev == THERE));
        let (now, periods) = (rig.kernel.now, flag.parse::<u64>().unwrap());
        for (id, period) in [(task, 5000), (waker, 1000)] {
            let wait = if starts { (now + periods * period * MSEC, 1) } else { (0, 0) };
            assert_eq!(rig.remembered(id, |tctx| (tctx.home_retry_at, tctx.held)), wait, "{flag} {prev} {home}");
        }
        assert_eq!(migrate_home(&mut rig, waker), !starts);
    }
}

#[test]
fn a_longer_wait_is_never_shortened() {
    let mut rig = rig(&[]);
    let (task, now) = (rig.task(), rig.kernel.now);
    for (ms, held, wait) in
        [(500, false, (500, 0)), (100, true, (500, 0)), (4000, true, (4000, 1)), (60, false, (4000, 1))]
    {
        rig.call(rig.u.delay_return, (rig.tctx(task), now, ms, held));
        let (at, held) = rig.remembered(task, |tctx| (tctx.home_retry_at, tctx.held));
        assert_eq!(((at - now) / MSEC, held), wait);
    }
}

#[test]
fn a_tick_sends_home_when_there_is_room_and_nothing_holds_back() {
    for (home, idle, held, allowed, disabled, goes) in [
        (1, &[THERE][..], false, 0..8, 0, true),
        (1, &[THERE + 3], false, 0..8, 0, true),
        (1, &[], false, 0..8, 0, false),
        (1, &[HERE + 1], false, 0..8, 0, false),
        (1, &[THERE], true, 0..8, 0, false),
        (1, &[THERE], false, 0..1, 0, false),
        (1, &[THERE], false, 0..8, 1, false),
        (0, &[THERE], false, 0..8, 0, false),
    ] {
        let mut rig = rig(&[]);
        note_prolog(&mut rig);
        let task = rig.task_on(allowed.clone());
        rig.run(task, HERE);
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        rig.kernel.tasks[task].raw_mut().scx.slice = 5;
        rig.call(rig.u.settle_preferred_node, (rig.tctx(task), 0, home));
        rig.kernel.set_memory(rig.kernel.tasks[task].raw().tgid, home);
        let later = rig.kernel.now + 1000 * MSEC;
        rig.remembered(task, |tctx| (tctx.home_retry_at, tctx.held) = if held { (later, 1) } else { (0, 0) });
        // The LLCs' words are hints, until somebody has looked in vain.
        rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), HERE as i32, HERE as i32));
        rig.only_idle(idle);
        look(&mut rig, task);
        let what = format!("{home} {idle:?} {held} {allowed:?} {disabled}");
        assert_eq!(migrate_home(&mut rig, task), goes, "{what}");
        assert_eq!(rig.kernel.tasks[task].raw().scx.slice == 0, goes, "{what}");
        let stats = [magpie_stat_STAT_HOME, magpie_stat_STAT_AWAY, magpie_stat_STAT_HOME_HELD];
        let expected = [u64::from(home == 0), u64::from(home == 1), u64::from(held)];
        assert_eq!(stats.map(|stat| rig.stat(stat)), expected, "{what}");
    }
}

/// A sixteenth of the scan period, a second at most.
#[test]
fn attempts_are_some_time_apart() {
    for (period, wait) in [(0, 62), (1000, 62), (16_000, 1000), (60_000, 1000)] {
        let mut rig = rig(&[]);
        let task = runner(&mut rig, 1);
        rig.kernel.set_memory(rig.kernel.tasks[task].raw().tgid, 1);
        let far = rig.kernel.now * 2;
        rig.remembered(task, |tctx| (tctx.scan_period, tctx.scan_at) = (period, far));
        look(&mut rig, task);
        let at = rig.remembered(task, |tctx| tctx.home_retry_at);
        assert_eq!((at - rig.kernel.now) / MSEC, wait, "{period}");
    }
}

#[test]
fn kernel_threads_and_machines_of_one_node_have_no_homes() {
    let mut rig = rig(&[]);
    let task = rig.task();
    rig.run(task, HERE);
    rig.kernel.tasks[task].raw_mut().flags = PF_KTHREAD;
    look(&mut rig, task);
    assert_eq!(rig.remembered(task, |tctx| tctx.preferred_node), NO_NODE);
    drop(rig);

    let mut rig = Rig::new("1x2x2x1", &[]);
    let task = rig.task();
    rig.run(task, HERE);
    look(&mut rig, task);
    assert_eq!((rig.remembered(task, |tctx| tctx.preferred_node), rig.kernel.hashes.len()), (NO_NODE, 0));
}

/// Nor is anything said of them, if nobody asks; else each tick counts.
#[test]
fn ticks_tell_the_sampler_who_runs() {
    for (flag, looks) in [("0", None), ("5", Some(3))] {
        let mut rig = rig(&["--numa-sample-share", flag]);
        let task = rig.task();
        rig.run(task, HERE);
        (0..3).for_each(|_| look(&mut rig, task));
        // Ticks may come faster than is wanted.
        rig.kernel.now -= 3 * MSEC;
        look(&mut rig, task);
        assert_eq!(rig.kernel.hashes.values().next().map(|process| process[0]), looks);
    }
}

/// As put_prev_task_scx() does, with the task's slice over. Where it went.
fn put_in_line(rig: &mut Rig, task: TaskId) -> Place {
    let cpu = rig.kernel.tasks[task].cpu;
    rig.kernel.cpu = cpu;
    rig.kernel.do_enqueue(task, cpu, 0);
    assert_eq!(rig.kernel.violation, None);
    rig.kernel.tasks[task].place
}

#[test]
fn a_task_is_sent_home_if_it_surely_may() {
    for (seed, prolog, idle, disabled, sent) in [
        (0, true, &[THERE + 1][..], 0, true),
        (1, true, &[THERE + 1], 0, true),
        // On the node's other LLC.
        (0, true, &[THERE + 2], 0, true),
        // Nobody is idle there any more.
        (0, true, &[], 0, false),
        (0, true, &[HERE + 1], 0, false),
        // It may not migrate: the kernel would eject us.
        (0, true, &[THERE + 1], 1, false),
        (1, true, &[THERE + 1], 1, false),
        // That is not known yet.
        (0, false, &[THERE + 1], 0, false),
        (1, false, &[THERE + 1], 0, false),
    ] {
        let mut rig = rig(&[]);
        rig.kernel.quirks.prolog_disables_migration = seed == 1;
        let task = rig.task();
        if prolog {
            note_prolog(&mut rig);
        }
        rig.run(task, HERE);
        rig.kernel.cpus[HERE].nr_running += 1;
        rig.kernel.tasks[task].raw_mut().migration_disabled = disabled;
        rig.remembered(task, |tctx| (tctx.preferred_node, tctx.migrate_home) = (1, 1));
        rig.only_idle(idle);
        let place = put_in_line(&mut rig, task);
        let expected = if sent { Place::Local(idle[0]) } else { Place::Dsq(HERE) };
        assert_eq!(place, expected, "{seed} {prolog} {idle:?} {disabled}");
        assert_eq!(rig.stat(magpie_stat_STAT_HOME_MOVE), u64::from(sent));
        // Some kernels forget on the way that it preempts; others are told that there is a task to steal.
        let kicks = rig.kernel.kicks.contains(&(idle.first().copied().unwrap_or(0), SCX_KICK_PREEMPT));
        assert_eq!(kicks, sent);
        assert!(!migrate_home(&mut rig, task));
    }
}

/// The running task only wanted to go on; one that is to go home does not.
#[test]
fn who_is_to_go_home_is_not_kept() {
    for migrate_home in [false, true] {
        let mut rig = rig(&[]);
        let task = runner(&mut rig, 1);
        rig.kernel.tasks[task].set_queued(true);
        rig.remembered(task, |tctx| tctx.migrate_home = migrate_home.into());
        let (ops, raw) = (rig.kernel.ops, rig.raw(task));
        rig.call(ops.dispatch, (HERE as i32, raw));
        assert_eq!(rig.stat(magpie_stat_STAT_KEEP), u64::from(!migrate_home));
    }
}

/// When it wakes and no CPU of the node is idle, home comes before nearer nodes.
#[test]
fn woken_away_from_home() {
    for (home, idle, held, found) in [
        (2, &[2, 4, 8][..], false, 2),
        (2, &[4, 8, 12], false, 8),
        (2, &[4, 10, 12], false, 10),
        (2, &[4, 12], false, 4),
        (2, &[4, 8, 12], true, 4),
        (0, &[4, 8, 12], false, 4),
        (NO_NODE, &[4, 8, 12], false, 4),
    ] {
        let mut rig = Rig::new("4x2x2x1", &[]);
        let task = rig.task();
        rig.only_idle(idle);
        let later = rig.kernel.now + MSEC;
        rig.remembered(task, |tctx| {
            (tctx.preferred_node, tctx.home_retry_at) = (home, if held { later } else { 0 });
        });
        let cpu = rig.call(rig.u.find_idle, (rig.raw(task), rig.tctx(task), 0, 0));
        assert_eq!(cpu, found, "home {home}, idle {idle:?}, held back: {held}");
        let homed = !held && home == 2 && (8..12).contains(&found);
        assert_eq!(rig.stat(magpie_stat_STAT_HOME_WAKE), u64::from(homed));
    }
}

/// Of another node's waiting tasks first those that belong here, if they are not held back and near the head.
#[test]
fn a_cpu_without_work_takes_its_own_first() {
    for (home, held, behind, own) in [
        (0, false, 1, true),
        (0, false, MAX_HOME_LOOKS as usize - 1, true),
        (0, false, MAX_HOME_LOOKS as usize, false),
        (0, true, 1, false),
        (1, false, 1, false),
        (NO_NODE, false, 1, false),
    ] {
        let mut rig = rig(&[]);
        let others: Vec<_> = (0..behind).map(|_| rig.task()).collect();
        let task = rig.task();
        let later = rig.kernel.now + MSEC;
        rig.remembered(task, |tctx| {
            (tctx.preferred_node, tctx.home_retry_at) = (home, if held { later } else { 0 });
        });
        for (at, &task) in others.iter().chain([&task]).enumerate() {
            rig.queue(task, THERE, at as u64);
        }
        rig.kernel.cpu = HERE;
        assert!(rig.call(rig.u.steal, (HERE as i32,)));
        assert_eq!(rig.local(HERE), [if own { task } else { others[0] }], "home {home}, {held}, behind {behind}");
        let stats = [magpie_stat_STAT_HOME_STEAL, magpie_stat_STAT_STEAL_FAR, magpie_stat_STAT_STEAL_MISS];
        assert_eq!(stats.map(|stat| rig.stat(stat)), [own.into(), 1, 0]);
    }
}

/// One that may not come stays; and the own node's work comes before what belongs here and is elsewhere.
#[test]
fn own_tasks_that_may_not_come_and_nearer_work() {
    let mut rig = rig(&[]);
    let (barred, other, near) = (rig.task_on(4..8), rig.task(), rig.task());
    rig.queue(barred, THERE, 1);
    rig.queue(other, THERE, 2);
    rig.queue(near, HERE + 2, 3);
    rig.remembered(barred, |tctx| tctx.preferred_node = 0);
    rig.remembered(other, |tctx| tctx.preferred_node = 0);
    rig.kernel.cpu = HERE;
    assert!(rig.call(rig.u.steal, (HERE as i32,)));
    assert!(rig.call(rig.u.steal, (HERE as i32,)));
    assert_eq!(rig.local(HERE), [near, other]);
    assert_eq!(rig.stat(magpie_stat_STAT_HOME_STEAL), 1);
    assert!(!rig.call(rig.u.steal, (HERE as i32,)));
}
