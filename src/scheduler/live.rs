// SPDX-License-Identifier: GPL-2.0-only
//! Changes at run time: flags (`scx_magpie set`, `reload`), CPU hotplug, frequency limits.

use std::slice;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result};
use bytemuck::bytes_of_mut;
use log::{info, warn};

use super::variables::{self, twins};
use super::{Scheduler, call_with};
use crate::bpf_config::Live;
use crate::bpf_intf::{placed_cpu, tunables};
use crate::nr_scan::ScanLimit;
use crate::shared::load;
use crate::tunables::{Power, Tunables};
use crate::{cgroup_mode, energy, hotplug, publisher};

impl Scheduler<'_> {
    /// Apply the flags that may change at run time. The others in `flags` are unchanged.
    pub fn set(&mut self, flags: &Tunables) -> Result<()> {
        let maps = &mut self.skel.maps;
        let bss = maps.bss_data.as_mut().context("no .bss")?;
        let bss_tunables = maps.bss_tunables_data.as_mut().context("no .bss.tunables")?;
        // SAFETY: pairs made from the same C structs, which hold integers only.
        let live = unsafe {
            let tunables = &twins::<_, tunables>(slice::from_mut(&mut bss_tunables.tunables))[0];
            Live { tunables, llc_layouts: twins(&mut bss.llc_layouts) }
        };
        let cgroup_mode = cgroup_mode::of_this_machine(flags.cgroup_mode);
        live.set(&self.layout, &Tunables { cgroup_mode, ..flags.clone() });
        self.publisher.set_limit(ScanLimit::from(flags));
        match &self.sampler {
            Some(sampler) => sampler.set(flags),
            None if self.layout.nr_nodes() > 1 && flags.numa_sample_share > 0 => {
                warn!("NUMA memory is not sampled: its thread could not be started");
            }
            None => {}
        }
        // Resolved for this machine: it may lack cgroups, and decides what `auto` means.
        let Tunables { no_cgroups, power, cpufreq, .. } = self.tunables;
        self.tunables = Tunables { no_cgroups, power, cpufreq, cgroup_mode, ..flags.clone() };
        self.asked = flags.clone();
        self.about = Arc::new(self.about(self.about.attached_at));
        Ok(())
    }

    /// Apply the kernel's mode for the weights of cgroups if it has changed.
    pub(super) fn follow_cgroup_mode(&mut self) -> Result<()> {
        let mode = cgroup_mode::of_this_machine(self.asked.cgroup_mode);
        if mode != self.tunables.cgroup_mode {
            info!("the kernel's cgroup mode has changed: {} applies now", mode.name());
            self.set(&self.asked.clone())?;
        }
        Ok(())
    }

    /// Place CPUs that appeared. Return true if one fits nowhere and hotplug has been quiet since.
    pub(super) fn follow_hotplugs(&mut self, now: Instant) -> Result<bool> {
        let seen = self.nr_hotplugs()?;
        if self.hotplugs.is_due(seen, now)
            && let Some(fresh) = hotplug::read_machine(self.tunables.power == Power::Powersave)
            && self.nr_hotplugs()? == seen
        {
            let shared = variables::shared(&mut self.skel, self.groups, &self.tunables)?;
            let is_online = |cpu| publisher::is_online(shared.cpu_layouts, cpu);
            let came = self.hotplugs.follow(&mut self.layout, &fresh, is_online);
            self.place(&came)?;
        }
        Ok(self.hotplugs.is_outgrown(now))
    }

    fn nr_hotplugs(&self) -> Result<u64> {
        Ok(load(&self.skel.maps.bss_data.as_ref().context("no .bss")?.nr_hotplugs))
    }

    /// Publish the places of CPUs that appeared, and then allow the program to use them.
    fn place(&mut self, cpus: &[usize]) -> Result<()> {
        for &cpu in cpus {
            variables::tell_place(&mut self.skel, &self.layout, cpu)?;
            self.publisher.set_layout(&self.layout);
            let mut args = placed_cpu { cpu: cpu as i32 };
            call_with(&mut self.skel.progs.place_cpu, Some(bytes_of_mut(&mut args)))?;
            info!("CPU {cpu} came online, in LLC {}", self.layout.cpus[&cpu].llc);
        }
        if !cpus.is_empty() {
            self.policies = energy::policies();
            self.publish_limits()?;
        }
        Ok(())
    }

    /// Publish the capacities that CPUs reach under their frequency limits.
    pub(super) fn publish_limits(&mut self) -> Result<()> {
        self.publisher.set_reachable(|cpu, capacity| self.policies.reachable(cpu, capacity));
        let shared = variables::shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish_capacities(shared.capacities);
        Ok(())
    }
}
