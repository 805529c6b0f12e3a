// SPDX-License-Identifier: GPL-2.0-only
//! A team: a message thread and its workers.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::prctl::set_timerslack;

use crate::Cli;
use crate::futex::Futex;
use crate::report::Latencies;
use crate::work::Work;

/// Sleep times of a message thread.
pub struct Pause {
    least_ns: u64,
    most_ns: u64,
    chance: fastrand::Rng,
    /// Latencies begin when a sleep should end.
    from_due: bool,
    /// Sleeps end at multiples of their length since the start, whether or not a worker waits.
    every: bool,
}

impl Pause {
    /// Create the pauses of a team. Different seeds give different sleeps.
    pub fn new(cli: &Cli, seed: u64) -> Self {
        let percent_ns = cli.s * 10;
        Self {
            least_ns: percent_ns * (100 - cli.j),
            most_ns: percent_ns * (100 + cli.j),
            chance: fastrand::Rng::with_seed(seed),
            from_due: cli.from_due,
            every: cli.every,
        }
    }

    /// Sleep. Return when the sleep should have ended, in ns since `start`.
    fn take(&mut self, start: Instant) -> u64 {
        let mut ns = self.chance.u64(self.least_ns..=self.most_ns);
        if self.every && ns > 0 {
            ns -= ns_since(start) % ns;
        }
        let due = ns_since(start) + ns;
        if ns > 0 {
            thread::sleep(Duration::from_nanos(ns));
        }
        due
    }
}

fn ns_since(start: Instant) -> u64 {
    start.elapsed().as_nanos() as u64
}

/// By default the kernel may end a sleep 50 us late, to batch several.
fn end_sleeps_on_time() {
    set_timerslack(1).expect("1 ns is allowed");
}

/// Object on which a worker waits.
enum Bell {
    /// 1: woken.
    Futex(Futex),
    Pipe(PipeReader, PipeWriter),
}

impl Bell {
    fn new(pipe: bool) -> Result<Self> {
        if !pipe {
            return Ok(Self::Futex(Futex::default()));
        }
        let (reader, writer) = std::io::pipe()?;
        Ok(Self::Pipe(reader, writer))
    }

    /// Reset the bell, before the ringing thread can know that this one waits.
    fn reset(&self) {
        if let Self::Futex(futex) = self {
            futex.0.store(0, Ordering::Release);
        }
    }

    fn ring(&self) {
        match self {
            Self::Futex(futex) => {
                futex.0.store(1, Ordering::Release);
                futex.wake();
            }
            Self::Pipe(_, writer) => (&mut &*writer).write_all(&[1]).expect("its reader is there"),
        }
    }

    fn wait(&self, stop: &AtomicBool) {
        match self {
            Self::Futex(futex) => {
                while futex.0.load(Ordering::Acquire) == 0 && !stop.load(Ordering::Relaxed) {
                    futex.wait(0);
                }
            }
            Self::Pipe(reader, _) => (&mut &*reader).read_exact(&mut [0]).expect("its writer is there"),
        }
    }
}

struct Worker {
    bell: Bell,
    /// ns since the start: begin of the wait, then the wakeup; with --from-due, when that was due.
    since: AtomicU64,
}

impl Worker {
    /// Wake the worker. `at`: when this was due, perhaps before the worker began to wait.
    fn wake(&self, at: u64) {
        self.since.fetch_max(at, Ordering::Relaxed);
        self.bell.ring();
    }
}

#[derive(Default)]
pub struct Team {
    workers: Vec<Worker>,
    /// Workers that wait, in order.
    waiting: Mutex<Vec<usize>>,
    /// 1: a worker waits.
    news: Futex,
}

impl Team {
    pub fn new(workers: u32, pipe: bool) -> Result<Self> {
        let worker = |_| Ok(Worker { bell: Bell::new(pipe)?, since: AtomicU64::new(0) });
        Ok(Self { workers: (0..workers).map(worker).collect::<Result<_>>()?, ..Self::default() })
    }

    pub fn message(&self, start: Instant, mut pause: Pause, stop: &AtomicBool) {
        if pause.from_due {
            end_sleeps_on_time();
        }
        let mut due = ns_since(start);
        while !stop.load(Ordering::Relaxed) {
            let waiting = std::mem::take(&mut *self.waiting.lock().expect("nobody panics"));
            for worker in waiting {
                self.workers[worker].wake(if pause.from_due { due } else { ns_since(start) });
            }
            while !pause.every && self.news.0.swap(0, Ordering::AcqRel) == 0 && !stop.load(Ordering::Relaxed) {
                self.news.wait(0);
            }
            due = pause.take(start);
        }
        self.workers.iter().for_each(|worker| worker.wake(ns_since(start)));
    }

    pub fn work(&self, id: usize, start: Instant, work: &Work, stop: &AtomicBool) -> Latencies {
        let worker = &self.workers[id];
        let mut latencies = Latencies::default();
        loop {
            worker.bell.reset();
            worker.since.store(ns_since(start), Ordering::Relaxed);
            self.waiting.lock().expect("nobody panics").push(id);
            self.tell();
            worker.bell.wait(stop);
            if stop.load(Ordering::Relaxed) {
                return latencies;
            }
            let since = worker.since.load(Ordering::Relaxed);
            latencies.wakeup.push(ns_since(start).saturating_sub(since));
            work.do_request();
            latencies.request.push(ns_since(start).saturating_sub(since));
        }
    }

    /// Wake the message thread: a worker waits, or the run ends.
    pub fn tell(&self) {
        self.news.0.store(1, Ordering::Release);
        self.news.wake();
    }
}
