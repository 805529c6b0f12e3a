// SPDX-License-Identifier: GPL-2.0-only
//! BPF arrays, and the timers in them.

use std::ffi::c_void;

use crate::kernel::{Event, Kernel};
use crate::trace::Op;

/// Callback of a timer: map, key, and the value whose first field is the timer.
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

    /// Return the value of a key; null beyond the last.
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
    /// The value that contains the timer, in the array of this index.
    pub value: *mut c_void,
    pub array: usize,
    pub callback: Option<Callback>,
    /// When it fires, ns; None: not armed.
    pub due: Option<u64>,
}

impl Kernel {
    pub fn init_timer(&mut self, value: *mut c_void, map: *const c_void) -> i32 {
        if self.timers.iter().any(|timer| timer.value == value) {
            return -libc::EBUSY;
        }
        let Some(array) = self.arrays.iter().position(|array| array.is_of(map)) else { return -libc::EINVAL };
        self.timers.push(Timer { value, array, callback: None, due: None });
        0
    }

    pub fn timer_of(&mut self, value: *mut c_void) -> Option<&mut Timer> {
        self.timers.iter_mut().find(|timer| timer.value == value)
    }

    pub fn start_timer(&mut self, value: *mut c_void, delay: u64) -> i32 {
        if self.timers_fail {
            return -libc::ENOMEM;
        }
        let due = self.now + self.cost + delay;
        let Some(index) = self.timers.iter().position(|timer| timer.value == value) else { return -libc::EINVAL };
        self.timers[index].due = Some(due);
        self.push(due, Event::BpfTimer { index, due });
        0
    }

    /// Returns index and time of the armed timer that fires first of those that do not fire before `from`.
    pub fn due_timer(&self, from: u64) -> Option<(usize, u64)> {
        let armed = self.timers.iter().enumerate().filter_map(|(index, timer)| Some((index, timer.due?)));
        armed.filter(|&(_, due)| due >= from).min_by_key(|&(_, due)| due)
    }

    pub fn bpf_timer(&mut self, index: usize, due: u64) {
        let Some(timer) = self.timers.get_mut(index).filter(|timer| timer.due == Some(due)) else { return };
        timer.due = None;
        let (value, array, callback) = (timer.value, timer.array, timer.callback);
        let map = self.arrays[array].map.cast_mut();
        let (Some(callback), Some(mut key)) = (callback, self.arrays[array].key_of(value)) else { return };
        self.call(Op::Timer, None, key.into(), |_| unsafe { callback(map, &mut key, value) });
    }
}
