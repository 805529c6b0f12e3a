// SPDX-License-Identifier: GPL-2.0-only
//! Words of memory that the loader and the BPF program share: each may read a word while the other
//! writes it. The compiler does not omit, repeat or split such an access.
//!
//! ```text
//! part!(cctx, pelt.since).load()              cells of bpf_intf's types
//! part!(published, nr_scan).store(3)
//! load(&bss.nr_groups)                        a word of the skeleton's types
//! ```
//!
//! Values of more than one word are read word by word: some words may be older than a change,
//! others newer.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicU64, Ordering};

/// A type for which all bit patterns are valid.
pub trait Word: bytemuck::AnyBitPattern {}

impl Word for u8 {}
impl Word for u32 {}
impl Word for i32 {}
impl Word for u64 {}

/// Access to a word in shared memory.
pub trait Access<T> {
    fn load(&self) -> T;
    fn store(&self, value: T);
}

impl<T: Word> Access<T> for UnsafeCell<T> {
    fn load(&self) -> T {
        // SAFETY: valid and aligned, and each bit pattern is a T.
        unsafe { self.get().read_volatile() }
    }

    fn store(&self, value: T) {
        // SAFETY: as above; nobody has a reference to the word.
        unsafe { self.get().write_volatile(value) }
    }
}

/// Store a word so that all earlier stores are visible before it, on each kind of CPU.
pub fn store_release(word: &UnsafeCell<u64>, value: u64) {
    // SAFETY: as in Access::store().
    unsafe { AtomicU64::from_ptr(word.get()) }.store(value, Ordering::Release);
}

/// Load a word that is not in a cell.
pub fn load<T: Word>(word: &T) -> T {
    // SAFETY: valid and aligned.
    unsafe { std::ptr::from_ref(word).read_volatile() }
}

/// Return the field of a C value, `UnsafeCell<T>`, with this name or path, as a cell.
macro_rules! part {
    ($value:expr, $($part:tt)+) => {{
        let value = $value;
        // SAFETY: the pointer is to a part of the value.
        unsafe { $crate::shared::part_at(value, |value| &raw mut (*value).$($part)+) }
    }};
}
pub(crate) use part;

/// Implementation of [`part!`].
///
/// # Safety
///
/// `part` returns a pointer into the value that it is given.
pub unsafe fn part_at<T, P>(value: &UnsafeCell<T>, part: impl FnOnce(*mut T) -> *mut P) -> &UnsafeCell<P> {
    // SAFETY: the field lives as long as the value, and a cell has the layout of its content.
    unsafe { &*part(value.get()).cast() }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Value {
        words: [u32; 3],
        at: u64,
    }

    #[test]
    fn parts_are_words_of_the_value() {
        let mut value = UnsafeCell::new(Value { words: [1, 2, 3], at: 0 });
        part!(&value, words[1]).store(7);
        store_release(part!(&value, at), 9);
        assert_eq!((part!(&value, words[1]).load(), part!(&value, at).load()), (7, 9));
        let value = value.get_mut();
        assert_eq!((value.words, load(&value.at)), ([1, 7, 3], 9));
    }
}
