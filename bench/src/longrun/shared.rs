// SPDX-License-Identifier: GPL-2.0-only
//! Memory that all processes share, and clocks.

use std::num::NonZeroUsize;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

use anyhow::{Context, Result};
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use nix::time::{ClockId, clock_gettime};

/// The largest number of runners, and of workers in the pool.
pub const MOST: usize = 1000;
/// A runner that did not read the clock for so long has waited, ns.
const WAITED: u64 = 500_000;

/// A word on which processes sleep while it has a given value.
pub struct Futex(pub AtomicU32);

impl Futex {
    pub fn wait(&self, while_it_is: u32) {
        // SAFETY: the word outlives the call; there is no timeout.
        unsafe {
            let timeout = std::ptr::null::<libc::timespec>();
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAIT, while_it_is, timeout)
        };
    }

    pub fn wake_all(&self) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }
}

/// When a runner ran last, and the longest time that it did not. Only the runner writes it.
#[repr(align(128))]
pub struct Waits {
    last: AtomicU64,
    longest: AtomicU64,
}

impl Waits {
    /// The runner runs at this time, or is due to: the time until then is no wait.
    pub fn set_last(&self, now: u64) {
        self.last.store(now, Relaxed);
    }

    /// The runner runs: count the time since it ran last, from `began` on.
    pub fn ran(&self, now: u64, began: u64) {
        let waited = now.saturating_sub(self.last.swap(now, Relaxed).max(began));
        if waited > WAITED {
            self.longest.fetch_max(waited, Relaxed);
        }
    }

    /// Return the longest wait until `now`. A runner may not have run at all.
    pub fn longest(&self, now: u64, began: u64) -> u64 {
        let waiting = now.saturating_sub(self.last.load(Relaxed).max(began));
        self.longest.load(Relaxed).max(if waiting > WAITED { waiting } else { 0 })
    }
}

/// A place in the pool's queue: the ticket that got a turn last, plus 1.
#[repr(align(128))]
pub struct Place(Futex);

/// Idle workers in the order in which they became idle. Each takes a ticket; turns are given to
/// tickets in their order. As there are at most as many waiting tickets as places, no two of them
/// share a place.
pub struct Queue {
    next_ticket: AtomicU64,
    next_turn: AtomicU64,
    places: [Place; MOST],
}

impl Queue {
    /// Let workers 0..`nr` have the tickets 0..`nr`, and the first `working` of them work.
    pub fn init(&self, nr: usize, working: usize) {
        self.next_ticket.store(nr as u64, SeqCst);
        (0..working).for_each(|_| self.give_turn(nr));
    }

    pub fn take_ticket(&self) -> u64 {
        self.next_ticket.fetch_add(1, SeqCst)
    }

    /// Wake the worker that has been idle for the longest time.
    pub fn give_turn(&self, nr: usize) {
        let ticket = self.next_turn.fetch_add(1, SeqCst);
        let place = &self.places[ticket as usize % nr].0;
        place.0.fetch_max(ticket as u32 + 1, SeqCst); // an earlier turn may come late
        place.wake_all();
    }

    pub fn await_turn(&self, nr: usize, ticket: u64) {
        let place = &self.places[ticket as usize % nr].0;
        loop {
            // A later ticket may have got its turn at this place already.
            let turn = place.0.load(SeqCst);
            if turn.wrapping_sub(ticket as u32 + 1) as i32 >= 0 {
                return;
            }
            place.wait(turn);
        }
    }
}

/// What the processes share. All of it is 0 at first.
pub struct Shared {
    /// 1: the processes may begin.
    pub start: Futex,
    /// The measured time. Set before `start`.
    pub began: AtomicU64,
    pub end: AtomicU64,
    /// Of the fork loops: children that have exited, and their CPU time.
    pub children: AtomicU64,
    pub children_ns: AtomicU64,
    pub turns: AtomicU64,
    pub frames_done: AtomicU64,
    pub frames_on_time: AtomicU64,
    pub queue: Queue,
    pub waits: [Waits; MOST],
}

/// The mapping of Shared. Dropping it unmaps the memory in this process.
pub struct Map(std::ptr::NonNull<Shared>);

impl Map {
    pub fn new() -> Result<Self> {
        let size = NonZeroUsize::new(size_of::<Shared>()).context("nothing to share")?;
        let protection = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the mapping is new, zeroed and page-aligned; 0 is valid for each field.
        let map = unsafe { mmap_anonymous(None, size, protection, MapFlags::MAP_SHARED) };
        Ok(Map(map.context("cannot map shared memory")?.cast()))
    }
}

impl Deref for Map {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        // SAFETY: mapped for the lifetime of self.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: no reference outlives self.
        let _ = unsafe { munmap(self.0.cast(), size_of::<Shared>()) };
    }
}

/// Return the time of a clock that exists, ns.
pub fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock).expect("the clock exists");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

/// Return CLOCK_MONOTONIC, ns.
pub fn now() -> u64 {
    read(ClockId::CLOCK_MONOTONIC)
}

/// Return the CPU time of the caller, ns.
pub fn own_cpu_time() -> u64 {
    read(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_count_within_the_measured_time() {
        let waits = Waits { last: AtomicU64::new(0), longest: AtomicU64::new(0) };
        const MS: u64 = 1_000_000;
        let began = 100 * MS;
        waits.ran(101 * MS, began);
        assert_eq!(waits.longest(101 * MS, began), MS);
        waits.ran(101 * MS + WAITED, began); // too short
        waits.ran(105 * MS, began);
        assert_eq!(waits.longest(105 * MS, began), 4 * MS - WAITED);
        assert_eq!(waits.longest(112 * MS, began), 7 * MS); // still waiting
        waits.set_last(111 * MS); // slept
        waits.ran(112 * MS, began);
        assert_eq!(waits.longest(112 * MS, began), 4 * MS - WAITED);
    }

    #[test]
    fn idle_workers_get_turns_in_order() {
        let map = Map::new().unwrap();
        map.queue.init(3, 1);
        map.queue.await_turn(3, 0); // returns immediately
        let has_turn = |ticket: u64| map.queue.places[ticket as usize % 3].0.0.load(SeqCst) == ticket as u32 + 1;
        assert!(has_turn(0) && !has_turn(1) && !has_turn(2));
        assert_eq!(map.queue.take_ticket(), 3);
        for ticket in 1..4 {
            map.queue.give_turn(3);
            assert!(has_turn(ticket));
            map.queue.await_turn(3, ticket);
        }
        map.queue.await_turn(3, 0); // its place was given to ticket 3 since
    }
}
