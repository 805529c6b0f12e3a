// SPDX-License-Identifier: GPL-2.0-only
//! What the processes do. None of these functions returns.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::time::{ClockId, ClockNanosleepFlags, clock_nanosleep};
use nix::unistd::{ForkResult, Pid, fork, getpid, getppid};

use crate::frames::{Frames, Timeline};
use crate::shared::{Shared, now, own_cpu_time};

/// CPU time between two readings of a clock, ns.
const BLOCK: u64 = 20_000;

/// How fast this machine is: iterations of the loop in [`Speed::spin`] in 1024 ns.
#[derive(Clone, Copy)]
pub struct Speed(u64);

impl Speed {
    /// Measure the speed. The fastest of several tries counts.
    pub fn measure() -> Self {
        const ITERATIONS: u64 = 50_000;
        let one = Speed(1024);
        let took = |_| {
            let before = own_cpu_time();
            one.spin(ITERATIONS);
            (own_cpu_time() - before).max(1)
        };
        Speed((ITERATIONS * 1024 / (0..20).map(took).min().unwrap_or(ITERATIONS)).max(1))
    }

    /// Calculate for about `ns` of CPU time. The pause lets QEMU emulate the next CPU: CPUs whose
    /// tasks never pause may not be emulated for seconds.
    fn spin(self, ns: u64) {
        for i in 0..ns * self.0 / 1024 {
            black_box(i);
        }
        spin_loop();
    }

    /// Use `ns` of CPU time, however often the caller is preempted. Call `each_block` after each
    /// BLOCK of it.
    fn work(self, ns: u64, mut each_block: impl FnMut()) {
        let until = own_cpu_time() + ns;
        while let Some(left) = until.checked_sub(own_cpu_time()).filter(|left| *left > 0) {
            self.spin(left.min(BLOCK));
            each_block();
        }
    }
}

/// The context of an actor.
#[derive(Clone, Copy)]
pub struct Actor<'a> {
    pub shared: &'a Shared,
    pub speed: Speed,
    /// CPU time of a fork loop's child, and of a worker's turn, ns.
    pub run: u64,
}

impl Actor<'_> {
    /// Sleep until all processes may begin.
    pub fn await_start(&self) {
        while self.shared.start.0.load(SeqCst) == 0 {
            self.shared.start.wait(0);
        }
    }

    /// Never sleep, and publish the waits of this runner.
    pub fn run_forever(&self, runner: usize) -> ! {
        let waits = &self.shared.waits[runner];
        let began = self.shared.began.load(Relaxed);
        waits.set_last(now());
        loop {
            self.speed.spin(BLOCK);
            waits.ran(now(), began);
        }
    }

    /// Draw frames. The time from a frame's begin until the process runs is a wait, too.
    pub fn draw(&self, frames: Frames) -> ! {
        let waits = &self.shared.waits[0];
        let timeline = frames.timeline(self.shared.began.load(Relaxed), self.shared.end.load(Relaxed));
        let mut frame = timeline.after(0, now());
        loop {
            if now() < timeline.begin(frame) {
                waits.set_last(timeline.begin(frame)); // the wait begins there
                sleep_until(timeline.begin(frame));
            }
            let ran = || waits.ran(now(), timeline.measured.start);
            ran();
            self.speed.work(frames.work_us * 1000, ran);
            let finished = now();
            if timeline.counts(frame) && finished < timeline.measured.end {
                self.shared.frames_done.fetch_add(1, Relaxed);
                self.shared.frames_on_time.fetch_add(timeline.is_on_time(frame, finished).into(), Relaxed);
            }
            frame = timeline.after(frame, finished);
        }
    }

    /// Fork a child that works and exits, and wait for it, over and over.
    pub fn fork_forever(&self) -> ! {
        let parent = getpid();
        loop {
            // SAFETY: this process has one thread; the child only works and exits.
            match unsafe { fork() } {
                Ok(ForkResult::Parent { child }) => self.reap(child),
                Ok(ForkResult::Child) => {
                    die_with(parent);
                    self.speed.work(self.run, || ());
                    exit(0)
                }
                Err(_) => exit(1),
            }
        }
    }

    /// Wait for a child of this fork loop, and count its CPU time.
    fn reap(&self, child: Pid) {
        // SAFETY: usage is a valid address; 0 is a valid value of each field.
        let usage = unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::wait4(child.as_raw(), std::ptr::null_mut(), 0, &mut usage);
            usage
        };
        let ns = |time: libc::timeval| (time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64) * 1000;
        self.shared.children_ns.fetch_add(ns(usage.ru_utime) + ns(usage.ru_stime), Relaxed);
        self.shared.children.fetch_add(1, Relaxed);
    }

    /// Work in the pool of `nr`: work, wake the worker that has been idle the longest, and wait.
    pub fn take_turns(&self, nr: usize, worker: usize) -> ! {
        let queue = &self.shared.queue;
        let mut ticket = worker as u64;
        loop {
            queue.await_turn(nr, ticket);
            self.speed.work(self.run, || ());
            self.shared.turns.fetch_add(1, Relaxed);
            ticket = queue.take_ticket();
            queue.give_turn(nr);
        }
    }
}

impl Frames {
    /// Frames begin together with the measured time: those before it are drawn, but do not count.
    pub fn timeline(self, began: u64, end: u64) -> Timeline {
        let period = self.period_us * 1000;
        Timeline { first: began - began / period * period, period, measured: began..end }
    }
}

fn sleep_until(time: u64) {
    let time = std::time::Duration::from_nanos(time).into();
    while clock_nanosleep(ClockId::CLOCK_MONOTONIC, ClockNanosleepFlags::TIMER_ABSTIME, &time).is_err() {}
}

/// Be killed when the parent ends, or exit if it has.
pub fn die_with(parent: Pid) {
    if set_pdeathsig(Signal::SIGKILL).is_err() || getppid() != parent {
        exit(1);
    }
}

fn exit(status: i32) -> ! {
    // SAFETY: exits without the parent's handlers.
    unsafe { libc::_exit(status) }
}
