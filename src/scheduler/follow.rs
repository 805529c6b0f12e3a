// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that come and go while the scheduler runs: those that come get a place in its layout, or it is outgrown.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytemuck::bytes_of_mut;
use log::{debug, info};

use super::{Scheduler, call_with, energy, memory};
use crate::bpf_intf::{cpu_layout, llc_layout, placed_cpu};
use crate::shared::{Access, load, part};
use crate::topology::Layout;
use crate::tunables::Power;
use crate::{hotplug, publisher};

/// When sysfs is read once more that was changing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// CPUs that came and went.
pub struct Hotplugs {
    /// How many the program had seen at the last look.
    seen: u64,
    at: Instant,
    /// When to look at the machine.
    look_at: Option<Instant>,
    outgrown: bool,
}

impl Hotplugs {
    /// None yet. CPUs may have come between the look at the machine and the load: it is looked at once more.
    pub fn new() -> Self {
        let now = Instant::now();
        Self { seen: 0, at: now, look_at: Some(now), outgrown: false }
    }
}

impl Scheduler<'_> {
    /// CPUs that came get a place. True: there is none for them, and no other has come or gone since.
    pub(super) fn follow_hotplugs(&mut self, now: Instant) -> Result<bool> {
        let seen = self.nr_hotplugs()?;
        if seen != self.hotplugs.seen {
            self.hotplugs = Hotplugs { seen, at: now, look_at: Some(now), outgrown: self.hotplugs.outgrown };
        }
        if self.hotplugs.look_at.is_some_and(|at| at <= now) {
            self.hotplugs.look_at = Some(now + LOOK_AGAIN);
            // While CPUs come and go, files do.
            match Layout::read(self.tunables.power == Power::Powersave) {
                Ok(Ok(fresh)) if self.nr_hotplugs()? == seen => {
                    self.hotplugs.look_at = None;
                    let shared = memory::shared(&mut self.skel, self.groups, &self.tunables)?;
                    let came = self.layout.follow(&fresh, |cpu| publisher::is_online(shared.cpu_layouts, cpu));
                    self.hotplugs.outgrown = came.is_none();
                    self.place(&came.unwrap_or_default())?;
                }
                Ok(Ok(_)) => debug!("CPUs came or went while sysfs was read"),
                Ok(Err(problem)) => debug!("{problem}"),
                Err(err) => debug!("{err:#}"),
            }
        }
        Ok(self.hotplugs.outgrown && now - self.hotplugs.at >= hotplug::QUIET)
    }

    fn nr_hotplugs(&self) -> Result<u64> {
        Ok(load(&self.skel.maps.bss_data.as_ref().context("no .bss")?.nr_hotplugs))
    }

    /// Tells the program where CPUs stand that have come, and then that it may use them.
    fn place(&mut self, cpus: &[usize]) -> Result<()> {
        for &cpu in cpus {
            let place = &self.layout.cpus[&cpu];
            let bss = self.skel.maps.bss_data.as_mut().context("no .bss")?;
            // SAFETY: pairs made from the same C structs, which hold integers only.
            let (cpu_layouts, llc_layouts) = unsafe {
                (
                    memory::twins::<_, cpu_layout>(&mut bss.cpu_layouts),
                    memory::twins::<_, llc_layout>(&mut bss.llc_layouts),
                )
            };
            // The program reads and writes the state, because the CPU may come online at any time;
            // it does not read the other words yet.
            let (to, from) = (&cpu_layouts[cpu], cpu_layout::from(place));
            part!(to, llc).store(from.llc);
            part!(to, node).store(from.node);
            part!(to, slot).store(from.slot);
            part!(to, capacity).store(from.capacity);
            part!(to, rank).store(from.rank);
            part!(to, scan_from).store(from.scan_from);
            part!(&llc_layouts[place.llc], nr_slots).store(self.layout.llcs[place.llc].nr_slots as u32);
            bss.slot_cpus[place.slot] = cpu as u16;
            self.publisher.set_layout(&self.layout);
            let mut args = placed_cpu { cpu: cpu as i32 };
            call_with(&mut self.skel.progs.place_cpu, Some(bytes_of_mut(&mut args)))?;
            info!("CPU {cpu} came, in LLC {}", place.llc);
        }
        if !cpus.is_empty() {
            self.policies = energy::policies();
            self.publish_limits()?;
        }
        Ok(())
    }
}
