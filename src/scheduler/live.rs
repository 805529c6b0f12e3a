// SPDX-License-Identifier: GPL-2.0-only
//! Changes while the scheduler runs, as `scx_magpie set` and `reload` ask for them.

use std::slice;
use std::sync::Arc;

use anyhow::{Context, Result};
use log::warn;

use super::{Scheduler, memory::twins};
use crate::bpf_config::Live;
use crate::bpf_intf::tunables;
use crate::nr_scan::ScanLimit;
use crate::tunables::Tunables;

impl Scheduler<'_> {
    /// Changes what may change while it runs; all else in `flags` is as it was.
    pub fn set(&mut self, flags: &Tunables) -> Result<()> {
        let maps = &mut self.skel.maps;
        let bss = maps.bss_data.as_mut().context("no .bss")?;
        let bss_tunables = maps.bss_tunables_data.as_mut().context("no .bss.tunables")?;
        // SAFETY: pairs made from the same C structs, which hold integers only.
        let live = unsafe {
            let tunables = &twins::<_, tunables>(slice::from_mut(&mut bss_tunables.tunables))[0];
            Live { tunables, llc_layouts: twins(&mut bss.llc_layouts) }
        };
        live.set(&self.layout, flags);
        self.publisher.set_limit(ScanLimit::from(flags));
        match &self.sampler {
            Some(sampler) => sampler.set(flags),
            None if self.layout.nr_nodes() > 1 && flags.numa_sample_share > 0 => {
                warn!("memory is not looked at: the thread for it could not start");
            }
            None => {}
        }
        // The kernel may have no cgroups for us, and the machine says what `auto` is.
        let Tunables { no_cgroups, power, cpufreq, .. } = self.tunables;
        self.tunables = Tunables { no_cgroups, power, cpufreq, ..flags.clone() };
        self.asked = flags.clone();
        self.about = Arc::new(self.about(self.about.attached_at));
        Ok(())
    }
}
