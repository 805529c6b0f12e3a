// SPDX-License-Identifier: GPL-2.0-only
//! Run two CPUs at the same time: each side has a thread, and one thread runs at a time. A side may
//! make way for the other before it accesses a word that both access and one writes.
//!
//! ```text
//! CPU 1  dispatch()  load  store ......................... load  return
//! CPU 0                          select_cpu()  load  store
//! ```
//!
//! - Words are DSQs, runqueue locks and variables in atomics, READ_ONCE() and WRITE_ONCE(). The
//!   order is the program's: litmus tests (`tests/litmus/`) cover reordering.
//! - A side that needs a lock of the other makes way.
//! - A plan decides at each choice which side continues. `interleave.rs` makes the plans.
//! - Orders that differ only in independent accesses are equal: a side that made way by choice
//!   sleeps until the other accesses the word that it is about to access (sleep sets: Godefroid,
//!   1996). If it sleeps until the other ends or waits for it, the order is redundant.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use crate::kernel::Kernel;
use crate::native::variable;
use crate::trace::Op;

/// One of the two CPUs: the index of its [`Kernel::run_both`] argument.
pub type Side = usize;

/// What a side does.
pub type Run = Box<dyn FnOnce(&mut Kernel) + Send>;

/// A word that both sides may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Word {
    /// A variable of the program, by address.
    Variable(usize),
    Dsq(u64),
    /// The lock of a CPU's runqueue.
    Lock(usize),
}

impl Word {
    pub fn name(self) -> String {
        match self {
            Self::Variable(at) => format!("{} ({at:#x})", variable(at).unwrap_or_default()),
            Self::Dsq(id) => format!("DSQ {id:#x}"),
            Self::Lock(cpu) => format!("lock of CPU {cpu}"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub side: Side,
    pub word: Word,
    pub store: bool,
}

impl Access {
    fn depends_on(&self, other: &Self) -> bool {
        self.word == other.word && (self.store || other.store)
    }
}

/// The kernel, and the side that holds it.
struct Baton {
    of: Mutex<(Side, *mut Kernel)>,
    passed: Condvar,
}

// SAFETY: only the side that holds the kernel uses it.
unsafe impl Send for Baton {}
unsafe impl Sync for Baton {}

impl Baton {
    /// From `kernel` the compiler knows that it changes until [`Baton::wait`] returns.
    fn pass_to(&self, side: Side, kernel: *mut Kernel) {
        *self.of.lock().unwrap_or_else(PoisonError::into_inner) = (side, kernel);
        self.passed.notify_all();
    }

    fn wait(&self, side: Side) -> *mut Kernel {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        self.passed.wait_while(of, |of| of.0 != side).unwrap_or_else(PoisonError::into_inner).1
    }
}

/// State of two sides and of their order.
#[derive(Default)]
pub struct Turns {
    /// Words at which the other side may come first.
    points: BTreeSet<Word>,
    /// For each choice: true if the other side continues. False beyond the end of the plan.
    plan: Vec<bool>,
    /// The choices so far.
    pub choices: Vec<bool>,
    pub accesses: Vec<Access>,
    /// Another order has the same dependent accesses in the same order.
    pub redundant: bool,
    /// The second side schedules on this CPU. It begins when that CPU is kicked.
    pub begins_when_kicked: Option<usize>,
    baton: Option<Arc<Baton>>,
    /// The side that runs.
    side: Side,
    begun: [bool; 2],
    over: [bool; 2],
    /// The next access of each side.
    next: [Option<Access>; 2],
    asleep: Option<Side>,
    /// Holders of runqueue locks, and the CPU for whose lock each side waits.
    holders: BTreeMap<usize, Side>,
    waits_for: [Option<usize>; 2],
}

impl Turns {
    pub fn new(points: BTreeSet<Word>, plan: Vec<bool>) -> Self {
        Self { points, plan, ..Self::default() }
    }

    /// Return true if the side makes way before this access. `begins`: the other side may begin.
    fn makes_way(&mut self, access: Access, begins: bool) -> bool {
        let (side, other) = (access.side, 1 - access.side);
        self.next[side] = Some(access);
        if self.redundant || !self.can_go(other, begins) {
            return false;
        }
        // Both sides advance to their first point before there is a choice.
        if !self.begun[other] && self.begins_when_kicked.is_none() {
            return true;
        }
        if self.asleep.is_some() {
            return false;
        }
        let switch = self.plan.get(self.choices.len()).is_some_and(|&switch| switch);
        self.choices.push(switch);
        if switch {
            self.asleep = Some(side);
        }
        switch
    }

    fn can_go(&self, side: Side, begins: bool) -> bool {
        let waits = self.waits_for[side].is_some_and(|cpu| self.holders.get(&cpu) == Some(&(1 - side)));
        !self.over[side] && !waits && (self.begun[side] || begins)
    }

    fn note(&mut self, access: Access) {
        self.accesses.push(access);
        let depends = |side: Side| self.next[side].is_some_and(|next| access.depends_on(&next));
        self.asleep = self.asleep.filter(|&side| side == access.side || !depends(side));
    }

    /// End the sleep of the side.
    fn wake(&mut self, side: Side) {
        if self.asleep == Some(side) {
            self.asleep = None;
            self.redundant = true;
        }
    }

    /// Return the words that both sides have accessed, one of them with a store.
    pub fn shared(&self) -> BTreeSet<Word> {
        let is_shared = |a: &&Access| self.accesses.iter().any(|b| a.side != b.side && a.depends_on(b));
        self.accesses.iter().filter(is_shared).map(|access| access.word).collect()
    }
}

impl Kernel {
    /// Run the two sides by `turns`, and return that.
    pub fn run_both(&mut self, turns: Turns, sides: [Run; 2]) -> Turns {
        let baton = Arc::new(Baton { of: Mutex::new((0, std::ptr::null_mut())), passed: Condvar::new() });
        self.turns = Some(Turns { baton: Some(baton.clone()), ..turns });
        baton.pass_to(0, self);
        thread::scope(|scope| {
            for (side, run) in sides.into_iter().enumerate() {
                let baton = baton.clone();
                scope.spawn(move || {
                    // SAFETY: the caller of run_both() and the other side wait.
                    let kernel = unsafe { &mut *baton.wait(side) };
                    if let Some(turns) = &mut kernel.turns {
                        (turns.side, turns.begun[side]) = (side, true);
                    }
                    (kernel.call, kernel.kicks) = (None, Vec::new());
                    if kernel.may_begin(side) {
                        run(kernel);
                    }
                    kernel.end_side(side);
                });
            }
        });
        self.turns.take().expect("nobody takes it")
    }

    fn may_begin(&self, side: Side) -> bool {
        let kicked = self.turns.as_ref().and_then(|turns| turns.begins_when_kicked);
        side == 0 || kicked.is_none_or(|cpu| self.cpus[cpu].need_resched)
    }

    fn end_side(&mut self, side: Side) {
        let Some(turns) = &mut self.turns else { return };
        turns.over[side] = true;
        if turns.over[1 - side] {
            return;
        }
        if let Some(baton) = turns.baton.clone() {
            baton.pass_to(1 - side, self);
        }
    }

    /// Note that the running callback accesses a variable. A runqueue's lock covers its tasks.
    pub fn accesses_variable(&mut self, addr: usize, store: bool) {
        if self.turns.is_some() && variable(addr).is_some() {
            self.accesses(Word::Variable(addr), store);
        }
    }

    pub fn accesses(&mut self, word: Word, store: bool) {
        if self.turns.is_none() {
            return;
        }
        // The timer runs with interrupts on, so a kick is delivered immediately.
        if self.call.is_some_and(|call| call.op == Op::Timer) {
            self.deliver_kicks();
        }
        let begins = self.may_begin(1);
        let Some(turns) = &mut self.turns else { return };
        let access = Access { side: turns.side, word, store };
        if turns.points.contains(&word) && turns.makes_way(access, begins) {
            self.make_way();
        }
        if let Some(turns) = &mut self.turns {
            turns.note(access);
        }
    }

    /// Note that the side polls for the other one, which continues.
    pub fn spin(&mut self) {
        let Some(turns) = &self.turns else { return };
        if turns.can_go(1 - turns.side, self.may_begin(1)) {
            self.make_way();
        }
    }

    /// Let the other side run until it makes way or ends.
    fn make_way(&mut self) {
        let Some(turns) = &self.turns else { return };
        let (side, Some(baton)) = (turns.side, turns.baton.clone()) else { return };
        let ours = (self.cpu, self.cost, self.call, std::mem::take(&mut self.kicks));
        baton.pass_to(1 - side, self);
        _ = baton.wait(side);
        (self.cpu, self.cost, self.call, self.kicks) = ours;
        if let Some(turns) = &mut self.turns {
            turns.side = side;
            turns.wake(side);
        }
    }

    pub fn lock_rq(&mut self, cpu: usize) {
        self.accesses(Word::Lock(cpu), true);
        loop {
            let Some(turns) = &mut self.turns else { return };
            let side = turns.side;
            if turns.holders.get(&cpu).is_none_or(|&holder| holder == side) {
                turns.waits_for[side] = None;
                turns.holders.insert(cpu, side);
                return;
            }
            turns.waits_for[side] = Some(cpu);
            self.make_way();
        }
    }

    pub fn unlock_rq(&mut self, cpu: usize) {
        if let Some(turns) = &mut self.turns {
            turns.holders.remove(&cpu);
        }
    }
}
