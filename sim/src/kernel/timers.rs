// SPDX-License-Identifier: GPL-2.0-only
//! BPF timers, in values of the program's arrays.

use std::ffi::c_void;

use crate::kernel::{Event, Kernel};
use crate::trace::Op;

/// Callback of a timer: map, key, and the value whose first field is the timer.
pub type Callback = unsafe extern "C" fn(*mut c_void, *mut u32, *mut c_void) -> i32;

pub struct Timer {
    /// The value that contains the timer, and its place.
    pub value: *mut c_void,
    map: *mut c_void,
    key: u32,
    pub callback: Option<Callback>,
    /// When it fires, ns; None: not armed.
    pub due: Option<u64>,
}

impl Kernel {
    pub fn init_timer(&mut self, value: *mut c_void, map: *mut c_void) -> i32 {
        if self.timers.iter().any(|timer| timer.value == value) {
            return -libc::EBUSY;
        }
        let of_map = (map as usize, 0)..=(map as usize, u64::MAX);
        let found = self.arrays.range(of_map).find(|(_, words)| words.as_ptr().addr() == value.addr());
        let Some((&(_, key), _)) = found else { return -libc::EINVAL };
        self.timers.push(Timer { value, map, key: key as u32, callback: None, due: None });
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
        let (value, map, mut key, callback) = (timer.value, timer.map, timer.key, timer.callback);
        let Some(callback) = callback else { return };
        self.call(Op::Timer, None, key.into(), |_| unsafe { callback(map, &mut key, value) });
    }
}
