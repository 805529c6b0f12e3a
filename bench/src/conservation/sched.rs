// SPDX-License-Identifier: GPL-2.0-only
//! Since when and where tasks wait, since when CPUs idle, and for how long both overlap.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::still::{Still, clipped, union, without};
use crate::trace::{Event, Line, parse};

/// CPUs on which each task may run.
pub type Allowed = BTreeMap<i32, BTreeSet<usize>>;

/// A task that waited next to an idle CPU for longer than the limit. Times in us.
pub struct Case {
    pub from: f64,
    pub to: f64,
    pub pid: i32,
    pub cpu: usize,
    pub idle: usize,
}

impl Case {
    /// Return true if the line of the trace may explain the case.
    pub fn concerns(&self, line: &str) -> bool {
        parse(line).is_some_and(|line| (self.from - 9000.0..=self.to).contains(&line.now))
    }
}

/// Overlaps of idle CPUs with waiting tasks that may run on them.
#[derive(Default, Serialize)]
pub struct Overlap {
    /// Time per second with such a CPU and such a task in an LLC, summed over LLCs.
    us_per_s: f64,
    /// The longest overlap, and the number of overlaps longer than the limit.
    max_us: f64,
    over_limit: u64,
    /// The longest overlap: time (us), task, the CPU where it waited, the idle CPU.
    longest: Option<(f64, i32, usize, usize)>,
    /// All overlaps, by the LLC where the task waited.
    #[serde(skip)]
    spans: BTreeMap<usize, Vec<(f64, f64)>>,
}

struct Waiting {
    since: f64,
    cpu: usize,
    /// The CPU that queued the task, and notifies others.
    by: usize,
    /// The task's CPU has been notified and has not rescheduled yet.
    under_way: bool,
}

/// A notification within this time of a task's enqueue concerns that task. us
const AT_ONCE: f64 = 100.0;

/// State after the events so far.
pub struct Sched<'a> {
    llc_of: &'a [usize],
    pub still: Still,
    allowed: &'a Allowed,
    /// Limits in us, for CPUs of the same LLC and for others.
    limits: [f64; 2],
    waiting: BTreeMap<i32, Waiting>,
    running: Vec<Option<i32>>,
    idle_since: Vec<Option<f64>>,
    /// Time of the notification, and whether the CPU was idle.
    told_at: Vec<Option<(f64, bool)>>,
    /// Notification and reaction of CPUs that were idle; us.
    came: Vec<Vec<(f64, f64)>>,
    pub overlaps: [Overlap; 2],
    pub cases: Vec<Case>,
    /// Longest time from the notification of an idle CPU to its reaction, us.
    pub told_max: f64,
    pub nr_waits: u64,
    /// Times of the first and the last event.
    traced: Option<(f64, f64)>,
}

impl<'a> Sched<'a> {
    pub fn new(llc_of: &'a [usize], allowed: &'a Allowed, limits: [f64; 2], still: Still) -> Self {
        Sched {
            llc_of,
            still,
            allowed,
            limits,
            waiting: BTreeMap::new(),
            running: vec![None; llc_of.len()],
            idle_since: vec![None; llc_of.len()],
            told_at: vec![None; llc_of.len()],
            came: vec![Vec::new(); llc_of.len()],
            overlaps: Default::default(),
            cases: Vec::new(),
            told_max: 0.0,
            nr_waits: 0,
            traced: None,
        }
    }

    pub fn event(&mut self, Line { cpu, now, resched, event }: Line) {
        let by = cpu;
        self.traced.get_or_insert((now, now)).1 = now;
        if resched {
            self.idle_ends(cpu, now);
        }
        match event {
            Event::Switch { prev, runnable, may_migrate, next } => {
                self.idle_ends(cpu, now);
                self.told(cpu, now);
                if prev != 0 && runnable && may_migrate {
                    self.wait_begins(prev, cpu, by, now, false);
                }
                self.running[cpu] = Some(next);
                if next != 0 {
                    self.wait_ends(next, now);
                }
            }
            Event::Told { cpu } => {
                let idle = self.idle_ends(cpu, now);
                self.told_at[cpu].get_or_insert((now, idle));
                for waiting in self.waiting.values_mut().filter(|waiting| waiting.cpu == cpu) {
                    waiting.under_way |= now - waiting.since < AT_ONCE;
                }
            }
            Event::Halt => {
                self.told(cpu, now);
                self.idle_since[cpu] = Some(now);
            }
            Event::Wake => _ = self.idle_ends(cpu, now),
            Event::Timer | Event::IrqWork | Event::Start { .. } | Event::Cancel { .. } => {}
            // sched_wakeup is also reported for a task that has not left its CPU yet.
            Event::Wakeup { pid, cpu } if !self.running.contains(&Some(pid)) => {
                let by_itself = by == cpu && self.running[cpu] == Some(0);
                if by_itself {
                    self.told_at[cpu].get_or_insert((now, true));
                }
                self.wait_begins(pid, cpu, by, now, by_itself);
            }
            Event::Wakeup { .. } => {}
            // The idle CPUs of the new LLC are not at fault for the wait so far.
            Event::Migrate { pid, cpu } => {
                if self.wait_ends(pid, now) {
                    self.wait_begins(pid, cpu, by, now, false);
                }
            }
        }
    }

    /// End all waits at the end of the trace, and compute the sums.
    pub fn finish(&mut self) {
        let Some((from, to)) = self.traced else { return };
        let waiting: Vec<i32> = self.waiting.keys().copied().collect();
        for pid in waiting {
            self.wait_ends(pid, to);
        }
        for overlap in &mut self.overlaps {
            let sum = std::mem::take(&mut overlap.spans).into_values().map(union).fold(0.0, |a, b| a + b);
            overlap.us_per_s = sum / (to - from) * 1e6;
        }
    }

    /// Begin a wait. `comes`: the CPU is idle and was notified just now.
    fn wait_begins(&mut self, pid: i32, cpu: usize, by: usize, now: f64, comes: bool) {
        let under_way = comes || self.told_at[cpu].is_some_and(|(told, _)| now - told < AT_ONCE);
        self.waiting.entry(pid).or_insert(Waiting { since: now, cpu, by, under_way });
    }

    /// End a wait. Return false if the task did not wait.
    fn wait_ends(&mut self, pid: i32, now: f64) -> bool {
        let Some(waiting) = self.waiting.remove(&pid) else { return false };
        self.nr_waits += 1;
        for idle in 0..self.idle_since.len() {
            self.overlap(pid, &waiting, idle, now);
        }
        true
    }

    /// Note that the CPU has rescheduled, if it was notified.
    fn told(&mut self, cpu: usize, now: f64) {
        let Some((at, idle)) = self.told_at[cpu].take() else { return };
        if idle {
            self.told_max = self.told_max.max(now - at);
            self.came[cpu].push((at, now));
        }
        for waiting in self.waiting.values_mut().filter(|waiting| waiting.cpu == cpu && waiting.under_way) {
            (waiting.since, waiting.under_way) = (now, false);
        }
    }

    /// End an idle period. Return false if the CPU did not idle.
    fn idle_ends(&mut self, cpu: usize, now: f64) -> bool {
        let waiting = std::mem::take(&mut self.waiting);
        for (&pid, waits) in &waiting {
            self.overlap(pid, waits, cpu, now);
        }
        self.waiting = waiting;
        self.idle_since[cpu].take().is_some()
    }

    /// Add the overlap of a task's wait until now with an idle period of the CPU `idle`.
    fn overlap(&mut self, pid: i32, waiting: &Waiting, idle: usize, now: f64) {
        let Some(idle_since) = self.idle_since[idle] else { return };
        if waiting.under_way {
            return;
        }
        let may_run = |cpu: &usize| self.allowed.get(&pid).is_none_or(|allowed| allowed.contains(cpu));
        if !may_run(&idle) {
            return;
        }
        let distance = usize::from(self.llc_of[idle] != self.llc_of[waiting.cpu]);
        let overlap = &mut self.overlaps[distance];
        let since = idle_since.max(waiting.since);
        // Exclude times in which another CPU was on its way.
        let mut excused = Vec::new();
        for cpu in (0..self.came.len()).filter(may_run) {
            // A notification before the wait was for another task.
            let for_it = |&(told, _): &(f64, f64)| told > waiting.since;
            let coming = self.told_at[cpu].filter(|told| told.1).map(|told| (told.0, now));
            let came = &self.came[cpu];
            excused.extend(clipped(&came[came.partition_point(|span| span.0 <= waiting.since)..], since, now));
            excused.extend(coming.filter(for_it).map(|span| (span.0.max(since), span.1)));
        }
        // The sum keeps stalls, because not all schedulers use timers that show them.
        let spans = overlap.spans.entry(self.llc_of[waiting.cpu]).or_default();
        spans.extend(without((since, now), excused.clone()));
        let still = |cpu| self.still.within(cpu, since, now);
        excused.extend(still(waiting.cpu).chain(still(waiting.by)));
        let both = now - since - union(excused);
        if both > self.limits[distance] {
            overlap.over_limit += 1;
            self.cases.push(Case { from: since, to: now, pid, cpu: waiting.cpu, idle });
        }
        if both > overlap.max_us {
            overlap.max_us = both;
            overlap.longest = Some((now, pid, waiting.cpu, idle));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn overlaps(allowed: &[(i32, &[usize])], lines: &[&str]) -> [(f64, u64); 2] {
        traced(allowed, lines).map(|overlap| (overlap.max_us.round(), overlap.over_limit))
    }

    /// Return the sums in us per second.
    fn sums(allowed: &[(i32, &[usize])], lines: &[&str]) -> [f64; 2] {
        traced(allowed, lines).map(|overlap| overlap.us_per_s.round())
    }

    fn traced(allowed: &[(i32, &[usize])], lines: &[&str]) -> [Overlap; 2] {
        let allowed = allowed.iter().map(|&(pid, cpus)| (pid, cpus.iter().copied().collect())).collect();
        let lines: Vec<Line> = lines.iter().map(|line| parse(line).unwrap_or_else(|| panic!("{line}"))).collect();
        let mut sched = Sched::new(&[0, 0, 1], &allowed, [1000.0, 2000.0], Still::new(3, lines.iter()));
        lines.into_iter().for_each(|line| sched.event(line));
        sched.finish();
        sched.overlaps
    }

    /// CPU 0 runs task 10. The others are idle from 1 ms on.
    const START: [&str; 5] = [
        "          <idle>-0       [000] d..2.     0.001000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=hog next_pid=10 next_prio=120",
        "             a b-7       [001] d..2.     0.001000: sched_switch: prev_comm=a b prev_pid=7 prev_prio=120 prev_state=S ==> next_comm=swapper/1 next_pid=0 next_prio=120",
        "               c-8       [002] d..2.     0.001000: sched_switch: prev_comm=c prev_pid=8 prev_prio=120 prev_state=I ==> next_comm=swapper/2 next_pid=0 next_prio=120",
        "          <idle>-0       [001] d..1.     0.001000: cpu_idle: state=1 cpu_id=1",
        "          <idle>-0       [002] d..1.     0.001000: cpu_idle: state=0 cpu_id=2",
    ];
    const WAKES: &str =
        "             hog-10      [000] d.h4.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=000";
    const RUNS: &str = "             hog-10      [000] d..2.     0.007000: sched_switch: prev_comm=hog prev_pid=10 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=11 next_prio=120";

    #[test]
    fn a_task_waits_beside_idle_cpus() {
        assert_eq!(overlaps(&[], &[&START[..], &[WAKES, RUNS]].concat()), [(5000.0, 1), (5000.0, 1)]);
    }

    /// Time counts once per LLC, however many tasks wait and CPUs idle: here 4 ms of 10 ms in the
    /// first LLC, 5 ms with the idle CPU of the other.
    #[test]
    fn sums_are_of_a_second() {
        let also = WAKES.replace("pid=11", "pid=12").replace("0.002000", "0.004000");
        let busy = "          <idle>-0       [001] d..2.     0.006000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        let end = "               x-11      [000] d..2.     0.011000: sched_switch: prev_comm=x prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120";
        let allowed: &[(i32, &[usize])] = &[(10, &[0])];
        let lines = [&START[..], &[WAKES, &also, busy, RUNS, end]].concat();
        assert_eq!(sums(allowed, &lines), [400_000.0, 500_000.0]);
        // Time in which a CPU is on its way does not count.
        let told =
            "             hog-10      [000] d.h4.     0.003000: ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0";
        let lines = [&START[..], &[WAKES, told, busy, RUNS, end]].concat();
        assert_eq!(sums(allowed, &lines), [100_000.0, 200_000.0]);
    }

    /// A wait that outlasts the trace counts until its end. So does a wait on a CPU that stalls.
    #[test]
    fn sums_include_the_end_and_what_stands_still() {
        let timer = "             hog-10      [000] d.h2.     0.001500: hrtimer_start: hrtimer=00000000a1 function=f expires=2700000 softexpires=1 mode=ABS";
        let taken = "             hog-10      [000] d.h2.     0.006000: local_timer_entry: vector=236";
        let lines = [&START[..], &[timer, WAKES, taken]].concat();
        assert_eq!(sums(&[], &lines), [800_000.0, 800_000.0]);
        assert_eq!(overlaps(&[], &lines), [(700.0, 0), (700.0, 0)]);
    }

    #[test]
    fn where_it_may_not_run_does_not_count() {
        assert_eq!(overlaps(&[(11, &[0, 2])], &[&START[..], &[WAKES, RUNS]].concat()), [(0.0, 0), (5000.0, 1)]);
        assert_eq!(overlaps(&[(11, &[0])], &[&START[..], &[WAKES, RUNS]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn an_idle_period_ends_before_the_wait() {
        let other = "          <idle>-0       [001] d..2.     0.002500: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        assert_eq!(overlaps(&[(11, &[0, 1])], &[&START[..], &[WAKES, other, RUNS]].concat()), [(500.0, 0), (0.0, 0)]);
    }

    #[test]
    fn who_is_preempted_waits_and_who_sleeps_does_not() {
        let preempted = &[&START[..], &[WAKES, RUNS]].concat();
        let back = "               x-11      [000] d..2.     0.008500: sched_switch: prev_comm=x prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120";
        let mut allowed: Vec<(i32, &[usize])> = vec![(11, &[0])];
        assert_eq!(overlaps(&allowed, &[preempted, &[back][..]].concat()), [(1500.0, 1), (1500.0, 0)]);
        allowed.push((10, &[0]));
        assert_eq!(overlaps(&allowed, &[preempted, &[back][..]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn who_may_not_migrate_does_not_count() {
        let back = "               x-11      [000] d..2.     0.008500: sched_switch: prev_comm=x prev_pid=11 prev_prio=120 prev_state=S ==> next_comm=hog next_pid=10 next_prio=120";
        let disabled = RUNS.replace("d..2.", "d..21");
        let alone = [(11, &[0][..])];
        assert_eq!(overlaps(&alone, &[&START[..], &[WAKES, RUNS, back]].concat()), [(1500.0, 1), (1500.0, 0)]);
        assert_eq!(overlaps(&alone, &[&START[..], &[WAKES, &disabled, back]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    #[test]
    fn one_that_is_taken_by_another_llc_waits_anew_there() {
        let taken = "          <idle>-0       [002] d..2.     0.002400: sched_migrate_task: comm=x pid=11 prio=120 orig_cpu=0 dest_cpu=2";
        let lines = [&START[..], &[WAKES, taken, RUNS]].concat();
        assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(400.0, 0), (4600.0, 1)]);
        // A wakeup of a task that has not left its CPU changes nothing.
        let again =
            "             hog-10      [000] d.h4.     0.006000: sched_wakeup: comm=hog pid=10 prio=120 target_cpu=000";
        assert_eq!(overlaps(&[(11, &[0])], &[&START[..], &[again, WAKES, RUNS]].concat()), [(0.0, 0), (0.0, 0)]);
    }

    /// A task whose CPU has been notified is not other CPUs' fault until that CPU has rescheduled.
    #[test]
    fn under_way() {
        let told =
            "             hog-10      [000] d.h4.     0.002000: ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0";
        let wakes =
            "             hog-10      [000] d.h4.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=001";
        let looks = "          <idle>-0       [001] d..2.     0.005000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        for lines in [[wakes, told], [told, wakes]] {
            let lines = [&START[..], &lines, &[looks, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[1, 2])], &lines), [(0.0, 0), (2000.0, 0)]);
        }
    }

    /// The same if an idle CPU wakes the task in an interrupt: nobody can take it before the end.
    #[test]
    fn an_idle_cpu_wakes_it_for_itself() {
        let of = |cpu: usize, task: &str| {
            format!(
                "          {task}      [00{cpu}] dNh2.     0.002000: sched_wakeup: comm=x pid=11 prio=120 target_cpu=001"
            )
        };
        let looks = "          <idle>-0       [001] d..2.     0.005000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        let waits = |wakes: &str| overlaps(&[(11, &[1, 2])], &[&START[..], &[wakes, looks, RUNS]].concat())[1];
        assert_eq!(waits(&of(1, "<idle>-0 ")), (2000.0, 0));
        // Another CPU woke it without a notification.
        assert_eq!(waits(&of(0, "hog-10   ")), (5000.0, 1));
    }

    /// A notified CPU does not idle until it has rescheduled. It idles again if it found nothing.
    #[test]
    fn told_to_look() {
        for told in ["ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0", "sched_wake_idle_without_ipi: cpu=1"] {
            let told = format!("             hog-10      [000] d.h4.     0.002300: {told}");
            let wakes = "          <idle>-0       [001] d..1.     0.003000: cpu_idle: state=4294967295 cpu_id=1";
            let halts = "          <idle>-0       [001] d..1.     0.006400: cpu_idle: state=1 cpu_id=1";
            let lines = [&START[..], &[WAKES, &told, wakes, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(300.0, 0), (0.0, 0)]);
            let lines = [&START[..], &[WAKES, &told, wakes, halts, RUNS]].concat();
            assert_eq!(overlaps(&[(11, &[0, 1])], &lines), [(600.0, 0), (0.0, 0)]);
        }
    }

    /// The idle task runs, but in an interrupt.
    #[test]
    fn what_is_about_to_reschedule_does_not_idle() {
        let irq =
            "          <idle>-0       [001] dNs5.     0.002300: sched_wakeup: comm=y pid=12 prio=120 target_cpu=001";
        assert_eq!(overlaps(&[(11, &[0, 1])], &[&START[..], &[WAKES, irq, RUNS]].concat()), [(300.0, 0), (0.0, 0)]);
    }

    /// The task's CPU does not take its timer interrupt, so nothing there can help.
    #[test]
    fn a_cpu_that_stands_still() {
        let start = |cpu: usize, due: &str| {
            format!(
                "             hog-10      [{cpu:03}] d.h2.     0.001500: hrtimer_start: hrtimer=00000000a1 function=f expires={due} softexpires=1 mode=ABS"
            )
        };
        let (own, of_idle) = (start(0, "2700000"), start(1, "2700000"));
        let cancel = "             hog-10      [000] d.h2.     0.001800: hrtimer_cancel: hrtimer=00000000a1";
        let taken = "             hog-10      [000] d.h2.     0.005000: local_timer_entry: vector=236";
        let waits = |lines: &[&str]| overlaps(&[(11, &[0, 1])], &[&START[..], lines, &[RUNS]].concat())[0];
        assert_eq!(waits(&[&own, WAKES, taken]), (2700.0, 1));
        assert_eq!(waits(&[&own, WAKES]), (5000.0, 1));
        assert_eq!(waits(&[&start(0, "5000000"), WAKES, taken]), (5000.0, 1));
        // The timer may belong to another CPU, and a cancelled timer is not due.
        assert_eq!(waits(&[&of_idle, WAKES, taken]), (5000.0, 1));
        assert_eq!(waits(&[&own, cancel, WAKES, taken]), (5000.0, 1));
    }

    /// The CPU has interrupts off, so its irq_work, which notifies others, is late.
    #[test]
    fn a_cpu_that_does_not_hear_itself() {
        let own = "             hog-10      [000] d.h4.     0.002100: ipi_send_cpu: cpu=0 callsite=irq_work_queue+0x1/0x2 callback=x+0x0/0x1";
        let heard = "             hog-10      [000] d.h4.     0.005000: irq_work_exit: vector=246";
        let waits = |lines: &[&str]| overlaps(&[(11, &[0, 1])], &[&START[..], lines, &[RUNS]].concat())[0];
        assert_eq!(waits(&[WAKES, own, heard]), (2100.0, 1));
        assert_eq!(waits(&[WAKES, own, &heard.replace("0.005000", "0.002150")]), (5000.0, 1));
        // The same for the CPU that queued the task.
        let (by, own, heard) = (&WAKES.replace("[000]", "[002]"), &own.replace("cpu=0 ", "cpu=2 "), heard);
        assert_eq!(waits(&[by, &own.replace("[000]", "[002]"), &heard.replace("[000]", "[002]")]), (2100.0, 1));
    }

    /// While another idle CPU is on its way, CPUs that were not notified are not at fault.
    #[test]
    fn help_is_under_way() {
        let told =
            "             hog-10      [000] d.h4.     0.002500: ipi_send_cpu: cpu=1 callsite=x+0x1/0x2 callback=0x0";
        let comes = "          <idle>-0       [001] d..2.     0.006000: sched_switch: prev_comm=swapper/1 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=y next_pid=12 next_prio=120";
        let waits =
            |allowed: &[usize], lines: &[&str]| overlaps(&[(11, allowed)], &[&START[..], lines, &[RUNS]].concat())[1];
        assert_eq!(waits(&[0, 1, 2], &[WAKES, told, comes]), (1500.0, 0));
        assert_eq!(waits(&[0, 1, 2], &[WAKES, told]), (500.0, 0));
        // It comes for another task: it may not run this one, or was notified earlier.
        assert_eq!(waits(&[0, 2], &[WAKES, told, comes]), (5000.0, 1));
        assert_eq!(waits(&[0, 1, 2], &[&told.replace("0.002500", "0.001500"), WAKES, comes]), (5000.0, 1));
    }

    #[test]
    fn comments_are_not_events() {
        assert!(parse("#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION").is_none());
        let line = parse(WAKES).unwrap();
        assert_eq!((line.cpu, line.now, line.event), (0, 2000.0, Event::Wakeup { pid: 11, cpu: 0 }));
    }
}
