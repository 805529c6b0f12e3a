// SPDX-License-Identifier: GPL-2.0-only
//! What tasks do: programs of steps, and the channels by which they wake each other.
//!
//! ```text
//! Run 100us -> Send 3 -> Recv 4 -> End -> Loop to 0
//! ```
//!
//! A program is a list of [`Step`]s that any number of tasks run, each with a place of its own in it.

use std::collections::VecDeque;

use crate::costs::WORK_SPREAD;
use crate::dsq::TaskId;
use crate::mask::Mask;

/// A duration in ns, drawn each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dist {
    Fixed(u64),
    /// The mean, with [`WORK_SPREAD`] to both sides.
    About(u64),
    /// From..=to.
    Uniform(u64, u64),
    /// The mean; many short ones and a few long.
    Exp(u64),
}

impl Dist {
    pub fn draw(self, rng: &mut fastrand::Rng) -> u64 {
        match self {
            Self::Fixed(ns) => ns,
            Self::About(ns) => rng.u64(ns - ns * WORK_SPREAD / 100..=ns + ns * WORK_SPREAD / 100),
            Self::Uniform(from, to) => rng.u64(from..=to),
            Self::Exp(mean) => (-(1.0 - rng.f64()).ln() * mean as f64) as u64,
        }
    }
}

/// Index of a channel, of a program.
pub type ChannelId = usize;
pub type ProgramId = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Work, in ns of a CPU of capacity 1024.
    Run(Dist),
    /// Work during which the task may not migrate.
    RunPinned(Dist),
    /// Busy until so many ns have passed, however much work that is and whatever else ran meanwhile.
    Spin(u64),
    Sleep(Dist),
    /// Sleep until so many ns after the task's timer was due last, at first after the task's start. If that is past there is
    /// no sleep.
    Timer(u64),
    /// Puts a message into a channel, and wakes a task that waits for it; waits while it is full.
    Send(ChannelId),
    /// As Send; nothing if the channel is full.
    Post(ChannelId),
    /// Takes a message, and wakes a task that waits for room; waits while there is none.
    Recv(ChannelId),
    /// From Join on the task is among those that the next Broadcast releases. Await waits until it was. Broadcast is lost if
    /// there is nobody.
    Join(ChannelId),
    Await(ChannelId),
    Broadcast(ChannelId),
    Yield,
    /// A child that runs the program from its start.
    Fork(ProgramId),
    /// Waits until all children have exited.
    Wait,
    /// A unit of the workload's work begins (for its latency) and ends (for that and the throughput).
    Begin,
    End,
    /// As Begin, but when the task was due: its timer, its release, or the last End when it has not waited since.
    BeginDue,
    /// Goes to a step so many times, then on.
    Loop(usize, u32),
    /// Goes to a step.
    Jump(usize),
    Exit,
    /// For a task, itself or another, the kernel does what a system call asks for: where it may run, its nice value.
    Affinity(TaskId, Mask),
    Nice(TaskId, i32),
    /// Wakes a real-time task that takes a CPU for so many ns.
    HigherClass(usize, u64),
    /// The scheduler's loader publishes sum_util.
    Publish,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub steps: Vec<Step>,
    /// Whose statistics its tasks count in.
    pub group: usize,
    pub name: String,
}

/// A bounded queue of messages: a pipe, a socket, a futex.
#[derive(Clone, Debug)]
pub struct Channel {
    pub capacity: usize,
    /// One that waits for room is woken when no more messages than that are left.
    pub low: usize,
    /// The waker says that it is about to sleep (WF_SYNC), as pipes and sockets do.
    pub sync: bool,
    /// The CPU that each message was written on.
    pub messages: VecDeque<usize>,
    pub receivers: VecDeque<TaskId>,
    pub senders: VecDeque<TaskId>,
}

impl Channel {
    pub fn new(capacity: usize, sync: bool) -> Self {
        let (messages, receivers, senders) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { capacity, low: capacity - 1, sync, messages, receivers, senders }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_kept() {
        let mut rng = fastrand::Rng::with_seed(1);
        for dist in [Dist::Fixed(1000), Dist::About(1000), Dist::Uniform(500, 1500), Dist::Exp(1000)] {
            let sum: u64 = (0..20_000).map(|_| dist.draw(&mut rng)).sum();
            assert!((950..1050).contains(&(sum / 20_000)), "{dist:?}: {sum}");
        }
        assert!((0..1000).all(|_| (800..=1200).contains(&Dist::About(1000).draw(&mut rng))));
    }
}
