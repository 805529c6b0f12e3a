// SPDX-License-Identifier: GPL-2.0-only
//! What this machine knows, whether or not scx_magpie is attached: its scheduler, starts, failures
//! and the time that tasks waited for CPUs. A fleet is watched by these.

use std::fs;
use std::path::Path;

use crate::control::status::nr_failures;
use crate::preflight::sched_ext;

/// Name of the kernel's own scheduler, in place of one of sched_ext.
const EEVDF: &str = "EEVDF";

/// Pressure of all tasks: `/proc/pressure/cpu`, which is hidden from the exporter's service.
const PRESSURE: &str = "/sys/fs/cgroup/cpu.pressure";

/// State of this machine. None: the kernel does not say.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Name of the attached sched_ext scheduler, or EEVDF.
    pub scheduler: String,
    /// Number of times that a sched_ext scheduler was attached.
    pub nr_attached: Option<u64>,
    /// Number of scx_magpie's failures.
    pub nr_failures: u64,
    /// Time in which tasks waited for a CPU, us.
    pub pressure_us: Option<u64>,
}

impl Host {
    /// Return the state of this machine now.
    pub fn now() -> Self {
        Self {
            scheduler: sched_ext("root/ops").unwrap_or_else(|| EEVDF.into()),
            nr_attached: sched_ext("enable_seq").and_then(|count| count.parse().ok()),
            nr_failures: nr_failures() as u64,
            pressure_us: pressure(Path::new(PRESSURE)),
        }
    }
}

/// Return the total of the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=US`.
fn pressure(file: &Path) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.split_once("total=")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_is_that_of_some_task() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let full = "full avg10=0.00 avg60=0.00 avg300=0.00 total=3\n";
        for (text, total) in [
            (format!("some avg10=1.00 avg60=0.50 avg300=0.10 total=1234567\n{full}"), Some(1_234_567)),
            (full.into(), None),
            (String::new(), None),
        ] {
            fs::write(file.path(), text).unwrap();
            assert_eq!(pressure(file.path()), total);
        }
        assert_eq!(pressure(Path::new("/nonexistent")), None);
    }
}
