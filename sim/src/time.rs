// SPDX-License-Identifier: GPL-2.0-only
//! Units of simulated time, which counts nanoseconds since boot.

pub const USEC: u64 = 1_000;
pub const MSEC: u64 = 1_000_000;
pub const SEC: u64 = 1_000_000_000;
