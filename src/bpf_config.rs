// SPDX-License-Identifier: GPL-2.0-only
//! Configuration of the BPF program before it loads: machine and tunables. `bpf/intf.h` describes
//! each field, `bpf/core/topology.bpf.h` has the functions that read them.
//!
//! ```text
//! Layout   --> machine, node_llcs, capacity_order --+
//! Tunables --> machine                              +--> the C's constants of these names
//! pelt     --> pelt_decay --------------------------+
//! Tunables --> tunables, nr_reach of llc_layouts -------> variables: may change while it runs
//! Layout   --> cpu_layouts, llc_layouts, slot_cpus -----> variables: places of new CPUs are added later
//! ```

use std::cell::UnsafeCell;

use bytemuck::Zeroable;

use crate::bpf_intf::{
    cpu_layout, cpu_state_CPU_PLACED as CPU_PLACED, llc_layout, machine, magpie_cgroup_mode_CGROUP_CONCUR,
    magpie_cgroup_mode_CGROUP_MAX, magpie_cgroup_mode_CGROUP_SMP, magpie_cgroup_mode_CGROUP_TASKS,
    magpie_limits_MAX_CPUS as MAX_CPUS, magpie_limits_MAX_LLCS as MAX_LLCS, magpie_limits_MAX_NODE_IDS as MAX_NODE_IDS,
    magpie_limits_MAX_SLOTS as MAX_SLOTS, pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE, tunables,
};
use crate::energy::power::POWERSAVE_PERF_SCALE;
use crate::pelt;
use crate::shared::{Access, part};
use crate::topology::{CpuPlace, Layout, LlcPlace};
use crate::tunables::{CgroupMode, CpuFreq, Power, Steal, Switch, Tunables};

const NSEC_PER_USEC: u64 = 1000;
const NSEC_PER_MSEC: u64 = 1_000_000;

/// Constants and variables by their names in C. Each vector has the length of its array.
#[derive(Clone, Debug)]
pub struct BpfConfig {
    pub machine: machine,
    pub tunables: tunables,
    pub cpu_layouts: Vec<cpu_layout>,
    pub llc_layouts: Vec<llc_layout>,
    pub slot_cpus: Vec<u16>,
    pub node_llcs: Vec<u16>,
    pub capacity_order: Vec<u16>,
    pub pelt_decay: [u32; 32],
}

/// Possible CPUs of the kernel: at most `cpus` will ever exist.
#[derive(Clone, Copy, Debug)]
pub struct Possible {
    pub cpus: usize,
    /// Highest id plus one.
    pub ids: usize,
}

impl BpfConfig {
    pub fn new(layout: &Layout, tunables: &Tunables, possible: Possible) -> Self {
        let mut config = Self {
            machine: machine_of(layout, tunables, possible),
            tunables: tunables_of(tunables),
            cpu_layouts: vec![Zeroable::zeroed(); MAX_CPUS as usize],
            llc_layouts: vec![Zeroable::zeroed(); MAX_LLCS as usize],
            slot_cpus: vec![0; MAX_SLOTS as usize],
            node_llcs: vec![0; MAX_NODE_IDS as usize],
            capacity_order: vec![0; MAX_CPUS as usize],
            pelt_decay: pelt::decay_factors(),
        };
        for (&id, cpu) in &layout.cpus {
            config.cpu_layouts[id] = cpu_layout { state: CPU_PLACED, ..cpu.into() };
        }
        for (entry, llc) in config.llc_layouts.iter_mut().zip(&layout.llcs) {
            entry.first_line = llc.first_line as u32;
            entry.node = llc.node as u32;
            entry.nr_lines = llc.nr_lines as u32;
            entry.nr_slots = llc.nr_slots as u32;
            entry.nr_near = llc.nr_near as u32;
            entry.nr_reach = nr_reach(layout, llc, tunables);
            for (slot, &other) in entry.others.iter_mut().zip(&llc.others) {
                *slot = other as u16;
            }
        }
        for (index, llc) in layout.llcs.iter().enumerate().rev() {
            config.node_llcs[llc.node] = index as u16;
        }
        for (entry, cpu) in config.slot_cpus.iter_mut().zip(&layout.slot_cpus) {
            *entry = cpu.unwrap_or(0) as u16;
        }
        for (entry, cpu) in config.capacity_order.iter_mut().zip(layout.capacity_order()) {
            *entry = cpu as u16;
        }
        config
    }
}

/// Convert the place of a CPU. The state is set later.
impl From<&CpuPlace> for cpu_layout {
    fn from(cpu: &CpuPlace) -> Self {
        Self {
            llc: cpu.llc as u32,
            node: cpu.node as u32,
            slot: cpu.slot as u32,
            capacity: cpu.capacity as u32,
            rank: cpu.rank as u32,
            scan_from: cpu.scan_from as u32,
            nohz_full: u32::from(cpu.nohz_full),
            state: 0,
        }
    }
}

/// Configuration that may change while the program runs, in the program's memory.
pub struct Live<'a> {
    pub tunables: &'a UnsafeCell<tunables>,
    pub llc_layouts: &'a [UnsafeCell<llc_layout>],
}

impl Live<'_> {
    /// Apply the flags. The program may run: it reads each value as before or as after the change.
    pub fn set(&self, layout: &Layout, flags: &Tunables) {
        let fresh = tunables_of(flags);
        const WORDS: usize = size_of::<tunables>() / size_of::<u64>();
        const { assert!(size_of::<tunables>() == WORDS * size_of::<u64>()) };
        let (to, from) = (self.tunables.get().cast::<u64>(), (&raw const fresh).cast::<u64>());
        for word in 0..WORDS {
            // SAFETY: both are this long, aligned and of integers only; no field crosses a word.
            unsafe { to.add(word).write_volatile(from.add(word).read()) };
        }
        for (to, llc) in self.llc_layouts.iter().zip(&layout.llcs) {
            part!(to, nr_reach).store(nr_reach(layout, llc, flags));
        }
    }
}

fn machine_of(layout: &Layout, tunables: &Tunables, possible: Possible) -> machine {
    let (core_first, core_last) = layout.core_ends();
    let powersave = tunables.power == Power::Powersave;
    machine {
        starve_ns: starve_ns(tunables),
        // With a width of 1 an idle sibling counts as an idle core.
        smt_width: if powersave { 1 } else { layout.smt_width as u32 },
        core_first,
        core_last,
        nr_cpu_ids: possible.ids.min(MAX_CPUS as usize) as u32,
        nr_cpus_possible: possible.cpus as u32,
        nr_llcs: layout.llcs.len() as u32,
        nr_cpus: layout.cpus.len() as u32,
        nr_stronger: layout.nr_stronger() as u32,
        nr_nodes: layout.nr_nodes() as u32,
        max_groups: tunables.max_cgroups + 1,
        cgroups: u8::from(!tunables.no_cgroups),
        polls_cgroups: 0,
        autogroups: 0,
        asym: u8::from(!tunables.no_capacity && layout.nr_stronger() > 0),
        cpufreq: u8::from(tunables.cpufreq == CpuFreq::On),
        ranked: u8::from(layout.is_ranked()),
        pack: u8::from(powersave),
        nohz_full: u8::from(layout.cpus.values().any(|cpu| cpu.nohz_full)),
        perf_scale: if powersave { POWERSAVE_PERF_SCALE } else { CAPACITY_SCALE },
    }
}

fn tunables_of(tunables: &Tunables) -> tunables {
    tunables {
        slice_ns: tunables.slice_us * NSEC_PER_USEC,
        credit_ns: tunables.slice_us_lag * NSEC_PER_USEC,
        handoff_ns: tunables.handoff_us * NSEC_PER_USEC,
        llc_cost_ns: tunables.migration_cost_llc_us * NSEC_PER_USEC,
        node_cost_ns: tunables.migration_cost_node_us * NSEC_PER_USEC,
        util_interval_ns: tunables.util_interval * NSEC_PER_MSEC,
        imbalance_pct: tunables.imbalance_pct,
        steal_tries: tunables.steal_tries,
        numa_backoff: tunables.numa_backoff,
        scan_limit: u8::from(!tunables.no_scan_limit),
        small_llc_boost: u8::from(tunables.small_llc_boost == Switch::On),
        latency_hist: u8::from(tunables.latency_hist),
        wakeup_preempt: u8::from(!tunables.no_wakeup_preempt),
        steal: u8::from(tunables.steal != Steal::Off),
        numa_sampler: u8::from(tunables.numa_sample_share > 0),
        affine_idle: u8::from(tunables.wake_affine.idle),
        affine_sync: u8::from(tunables.wake_affine.sync),
        cgroup_mode: match tunables.cgroup_mode {
            CgroupMode::Auto | CgroupMode::Smp => magpie_cgroup_mode_CGROUP_SMP,
            CgroupMode::Concur => magpie_cgroup_mode_CGROUP_CONCUR,
            CgroupMode::Max => magpie_cgroup_mode_CGROUP_MAX,
            CgroupMode::Tasks => magpie_cgroup_mode_CGROUP_TASKS,
        } as u8,
    }
}

/// Return a quarter of the time after which the kernel ejects the scheduler, in ns.
fn starve_ns(tunables: &Tunables) -> u64 {
    u64::from(tunables.timeout_ms) * NSEC_PER_MSEC / 4
}

/// Return how many other LLCs the CPUs of `llc` steal from, nearest first.
fn nr_reach(layout: &Layout, llc: &LlcPlace, tunables: &Tunables) -> u32 {
    match tunables.steal {
        Steal::Off | Steal::Llc => 0,
        Steal::All if layout.nr_nodes() <= tunables.steal_node_limit as usize => llc.others.len() as u32,
        Steal::Node | Steal::All => llc.nr_near as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use scx_utils::testutils::make_test_topo;

    #[test]
    fn machine_and_tunables_arrive() {
        let (topo, _) = make_test_topo(2, 1, 9, 2); // two nodes, an LLC of 18 CPUs each
        let tunables = Tunables::parse(&["--slice-us", "500", "--timeout-ms", "4000", "--no-wakeup-preempt"]).unwrap();
        let config = BpfConfig::new(&Layout::new(&topo, 0).unwrap(), &tunables, Possible { cpus: 64, ids: 70 });

        assert_eq!(
            (config.tunables.slice_ns, config.machine.starve_ns, config.tunables.wakeup_preempt),
            (500_000, 1_000_000_000, 0)
        );
        assert_eq!((config.machine.nr_cpu_ids, config.machine.nr_cpus_possible, config.machine.nr_llcs), (70, 64, 2));
        assert_eq!(
            (config.machine.smt_width, config.machine.core_first, config.machine.core_last),
            (2, 0x5555, 0xaaaa)
        );

        let present = config.cpu_layouts.iter().filter(|cpu| cpu.state == CPU_PLACED).count();
        assert_eq!((present, config.cpu_layouts.len()), (36, MAX_CPUS as usize));
        let cpu = &config.cpu_layouts[18];
        assert_eq!((cpu.llc, cpu.slot, cpu.capacity), (1, 32, 1024));
        assert_eq!(config.slot_cpus[32], 18);
        let llc = &config.llc_layouts[1];
        assert_eq!((llc.first_line, llc.nr_lines, llc.nr_near, llc.others[0]), (2, 2, 0, 0));
        assert_eq!(config.llc_layouts[0].others[0], 1);
        assert_eq!((config.machine.nr_nodes, &config.node_llcs[..2]), (2, &[0, 1][..]));
    }

    #[test]
    fn how_far_tasks_are_taken_from() {
        let (topo, _) = make_test_topo(2, 2, 2, 1);
        for (flags, nr_reach) in [
            (&[][..], 3),
            (&["--steal", "node"], 1),
            (&["--steal", "llc"], 0),
            (&["--steal", "off"], 0),
            (&["--steal-node-limit", "2"], 3),
            (&["--steal-node-limit", "1"], 1),
            (&["--steal-node-limit", "1", "--steal", "llc"], 0),
        ] {
            let possible = Possible { cpus: 8, ids: 8 };
            let config = BpfConfig::new(&Layout::new(&topo, 0).unwrap(), &Tunables::parse(flags).unwrap(), possible);
            assert_eq!(config.llc_layouts[2].nr_reach, nr_reach, "{flags:?}");
        }
    }
}
