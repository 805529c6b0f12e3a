// SPDX-License-Identifier: GPL-2.0-only
//! Behavior of tasks: programs of steps, and the channels by which they wake each other.
//!
//! ```text
//! Run 100us -> Send 3 -> Recv 4 -> End -> Loop to 0
//! ```
//!
//! A program is a list of [`Step`]s. Any number of tasks run it, each at its position.

use std::collections::VecDeque;

use crate::costs::WORK_SPREAD;
use crate::dsq::TaskId;
use crate::mask::Mask;

/// A duration in ns, drawn each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Dist {
    Fixed(u64),
    /// This mean, with [`WORK_SPREAD`] to both sides.
    About(u64),
    Uniform(u64, u64),
    /// This mean, exponentially distributed: many short ones and a few long.
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

pub type ChannelId = usize;
pub type ProgramId = usize;

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Step {
    /// Work, in ns of a CPU of capacity 1024.
    Run(Dist),
    /// Work during which the task may not migrate.
    RunPinned(Dist),
    /// Busy until this many ns have passed, whatever the work and other tasks in that time.
    Spin(u64),
    Sleep(Dist),
    /// Sleep until this many ns after the task's timer was last due, or at first after its start.
    /// No sleep if that time is past.
    Timer(u64),
    /// Sleep until the next multiple of this many ns after the task's start. Times that are past
    /// are skipped, as a program of frames drops some.
    NextFrame(u64),
    /// Put a message into a channel and wake a task that waits for it. Wait while it is full.
    Send(ChannelId),
    /// Put a message into a channel. If it is full, the message is lost.
    Post(ChannelId),
    /// Take a message and wake a task that waits for room. Wait while there is none.
    Recv(ChannelId),
    /// Join adds the task to those that the next Broadcast releases. Await waits for that release.
    /// A Broadcast without joined tasks is lost.
    Join(ChannelId),
    Await(ChannelId),
    Broadcast(ChannelId),
    Yield,
    /// Start a child that runs the program from its first step.
    Fork(ProgramId),
    Wait,
    /// Begin or end a unit of work, for its latency and for throughput.
    Begin,
    End,
    /// Begin when the task was due: its timer, its release, or the last End without a wait since.
    BeginDue,
    /// Go to a step this many times, then continue.
    Loop(usize, u32),
    Jump(usize),
    Exit,
    /// Change the affinity or nice value of a task, or the own one. Without an online CPU it is refused.
    Affinity(Option<TaskId>, Mask),
    Nice(Option<TaskId>, i32),
    /// Wake a real-time task that takes a CPU for this many ns.
    HigherClass(usize, u64),
    Publish,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub steps: Vec<Step>,
    pub group: usize,
    pub name: String,
}

/// A bounded queue of messages: a pipe, a socket, a futex.
#[derive(Clone, Debug)]
pub struct Channel {
    pub capacity: usize,
    /// A task that waits for room is woken when this many messages or fewer are left.
    pub low: usize,
    /// The waker announces that it is about to sleep (WF_SYNC), as pipes and sockets do.
    pub sync: bool,
    /// Tasks are woken by a futex, and not by an eventfd, say.
    pub futex: bool,
    /// The CPU on which each message was written.
    pub messages: VecDeque<usize>,
    pub receivers: VecDeque<TaskId>,
    pub senders: VecDeque<TaskId>,
}

impl Channel {
    pub fn new(capacity: usize, sync: bool) -> Self {
        let (messages, receivers, senders) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Self { capacity, low: capacity - 1, sync, futex: false, messages, receivers, senders }
    }
}
