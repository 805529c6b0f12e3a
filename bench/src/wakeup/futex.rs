// SPDX-License-Identifier: GPL-2.0-only
//! Waiting between threads of this process.

use std::sync::atomic::{AtomicU32, Ordering};

/// A word on which threads sleep while it has a given value.
#[derive(Default)]
pub struct Futex(pub AtomicU32);

impl Futex {
    pub fn wait(&self, while_it_is: u32) {
        // SAFETY: the word outlives the call; there is no timeout.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.0.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                while_it_is,
                std::ptr::null::<libc::timespec>(),
            )
        };
    }

    pub fn wake(&self) {
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    }
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and a thread may sleep until the lock is free.
const CONTENDED: u32 = 2;

/// How often a thread checks the lock before it sleeps.
const SPINS: u32 = 300;

/// Behavior of a thread while another one holds the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Wait {
    /// Spin for a while, then sleep until the lock is free.
    Sleep,
    /// Spin until the lock is free.
    Spin,
}

/// A lock on a separate cache line.
#[derive(Default)]
#[repr(align(128))]
pub struct Lock(Futex);

impl Lock {
    /// Take the lock. Dropping the result releases it.
    pub fn lock(&self, wait: Wait) -> Held<'_> {
        let mut spins = SPINS;
        while spins > 0 {
            if self.0.0.compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Held(self);
            }
            std::hint::spin_loop();
            if wait == Wait::Sleep {
                spins -= 1;
            }
        }
        while self.0.0.swap(CONTENDED, Ordering::Acquire) != FREE {
            self.0.wait(CONTENDED);
        }
        Held(self)
    }
}

pub struct Held<'a>(&'a Lock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if self.0.0.0.swap(FREE, Ordering::Release) == CONTENDED {
            self.0.0.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::thread;
    use std::time::Duration;

    struct Guarded(Lock, UnsafeCell<u64>);
    // SAFETY: the number is only accessed under the lock.
    unsafe impl Sync for Guarded {}

    #[test]
    fn one_thread_at_a_time() {
        for wait in [Wait::Sleep, Wait::Spin] {
            expect_one_at_a_time(wait);
        }
    }

    fn expect_one_at_a_time(wait: Wait) {
        let guarded = Guarded(Lock::default(), UnsafeCell::new(0));
        let add = |guarded: &Guarded| {
            for turn in 0..1000 {
                let _held = guarded.0.lock(wait);
                // SAFETY: as above.
                let before = unsafe { guarded.1.get().read_volatile() };
                if turn % 100 == 0 {
                    thread::sleep(Duration::from_micros(100)); // long enough for the others to sleep
                }
                // SAFETY: as above.
                unsafe { guarded.1.get().write_volatile(before + 1) };
            }
        };
        thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| add(&guarded)))));
        assert_eq!(guarded.1.into_inner(), 4000);
        assert_eq!(guarded.0.0.0.into_inner(), FREE);
    }
}
