// SPDX-License-Identifier: GPL-2.0-only
//! What the scheduler is and how it was started: what does not change while it runs.

use std::time::Duration;

use crate::preflight;
use crate::topology::Layout;
use crate::tunables::{self, Steal, Tunables};
use crate::version;

/// Of a scheduler that is attached.
#[derive(Clone, Debug, Default)]
pub struct About {
    pub version: String,
    /// Release of the kernel.
    pub kernel: String,
    /// CLOCK_MONOTONIC.
    pub attached_at: Duration,
    /// What counts on this machine.
    pub mode: String,
    /// Flags that are not the default, as on a command line.
    pub flags: String,
    pub max_cgroups: u32,
}

impl About {
    pub fn new(layout: &Layout, tunables: &Tunables, attached_at: Duration) -> Self {
        let flags = tunables::changed(tunables).join(" ");
        let max_cgroups = tunables.max_cgroups;
        let (version, kernel, mode) = (version(), preflight::release(), mode(layout, tunables));
        Self { version, kernel, attached_at, mode, flags, max_cgroups }
    }
}

fn mode(layout: &Layout, tunables: &Tunables) -> String {
    let parts = [
        ("SMT", layout.smt_width > 1),
        ("capacity", !tunables.no_capacity && layout.nr_stronger() > 0),
        ("NUMA", layout.nr_nodes() > 1),
        ("cgroups", !tunables.no_cgroups),
        ("stealing", tunables.steal != Steal::Off),
    ];
    let counts: Vec<_> = parts.iter().filter(|(_, counts)| *counts).map(|&(name, _)| name).collect();
    counts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use scx_utils::testutils::make_test_topo;

    #[test]
    fn what_counts_depends_on_machine_and_flags() {
        let (topo, _) = make_test_topo(2, 1, 2, 2);
        let layout = Layout::new(&topo, 0).unwrap();
        let about = |flags: &[&str]| About::new(&layout, &Tunables::parse(flags).unwrap(), Duration::ZERO);
        let (plain, bare) = (about(&[]), about(&["--no-cgroups", "--steal", "off", "--slice-us=4000"]));
        assert_eq!((plain.mode.as_str(), plain.flags.as_str()), ("SMT, NUMA, cgroups, stealing", ""));
        assert_eq!(bare.mode, "SMT, NUMA");
        assert_eq!(bare.flags, "--slice-us 4000 --steal off --no-cgroups");
        assert!(!plain.kernel.is_empty() && !plain.version.is_empty());
    }
}
