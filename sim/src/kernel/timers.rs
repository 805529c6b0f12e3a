// SPDX-License-Identifier: GPL-2.0-only
//! Arms and fires BPF timers.

use std::ffi::c_void;

use crate::kernel::{Event, Kernel};
use crate::timer::Timer;
use crate::trace::Op;

impl Kernel {
    /// bpf_timer_init()
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

    /// bpf_timer_start(), `delay` ns from now.
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

    pub fn bpf_timer(&mut self, index: usize, due: u64) {
        let Some(timer) = self.timers.get_mut(index).filter(|timer| timer.due == Some(due)) else { return };
        timer.due = None;
        let (value, array, callback) = (timer.value, timer.array, timer.callback);
        let map = self.arrays[array].map.cast_mut();
        let (Some(callback), Some(mut key)) = (callback, self.arrays[array].key_of(value)) else { return };
        self.call(Op::Timer, None, key.into(), |_| unsafe { callback(map, &mut key, value) });
    }
}
