// SPDX-License-Identifier: GPL-2.0-only
//! Figures of a group of tasks.

use hdrhistogram::Histogram;

use crate::time::SEC;

#[derive(Clone, Debug)]
pub struct GroupStats {
    pub name: String,
    /// Omitted from reports: background noise and the loader.
    pub background: bool,
    pub wakeup: Histogram<u64>,
    pub request: Histogram<u64>,
    pub ran: u64,
    pub capacity_time: u64,
    /// Migrations by [`Distance`](crate::machine::Distance).
    pub migrations: [u64; 5],
}

impl GroupStats {
    pub fn new(name: &str, background: bool) -> Self {
        let histogram = || Histogram::new_with_bounds(1, 100 * SEC, 3).expect("these bounds are allowed");
        Self {
            name: name.into(),
            background,
            wakeup: histogram(),
            request: histogram(),
            ran: 0,
            capacity_time: 0,
            migrations: [0; 5],
        }
    }
}
