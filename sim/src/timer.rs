// SPDX-License-Identifier: GPL-2.0-only
//! BPF arrays and the timers in them.

use std::ffi::c_void;

/// A timer's callback: the map, the key, and the value whose first field the timer is.
pub type Callback = unsafe extern "C" fn(*mut c_void, *mut u32, *mut c_void) -> i32;

pub struct Array {
    pub map: *const c_void,
    value_size: usize,
    values: Box<[u64]>,
}

impl Array {
    pub fn new(map: *const c_void, value_size: usize, max_entries: usize) -> Self {
        Self { map, value_size, values: vec![0; (value_size * max_entries).div_ceil(8)].into() }
    }

    pub fn is_of(&self, map: *const c_void) -> bool {
        self.map == map
    }

    /// Returns the value of a key; null beyond the last.
    pub fn lookup(&mut self, key: u32) -> *mut c_void {
        let at = key as usize * self.value_size;
        if at + self.value_size > self.values.len() * 8 {
            return std::ptr::null_mut();
        }
        // SAFETY: within the values.
        unsafe { self.values.as_mut_ptr().cast::<u8>().add(at).cast() }
    }

    pub fn key_of(&self, value: *const c_void) -> Option<u32> {
        let at = (value as usize).wrapping_sub(self.values.as_ptr() as usize);
        (at < self.values.len() * 8).then(|| (at / self.value_size) as u32)
    }
}

pub struct Timer {
    /// The value that holds it, in the array of this index.
    pub value: *mut c_void,
    pub array: usize,
    pub callback: Option<Callback>,
    /// When it fires, ns; None: not armed.
    pub due: Option<u64>,
}
