// SPDX-License-Identifier: GPL-2.0-only
//! How CPUs differ, by sysfs, beyond the kernel's `cpu_capacity`, which x86 does not export.
//!
//! ```text
//! capacity   if both cpu_core and cpu_atom exist (hybrid x86): in proportion to CPPC's highest_perf,
//!            or, if that is missing or equal for all, to the highest frequency
//! rank       amd_pstate_prefcore_ranking, else CPPC's highest_perf: preferred cores of AMD and of Intel (ITMT)
//! ```
//!
//! Values that all CPUs share are ignored. No file is read if the kernel exports capacities.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use scx_utils::misc::read_from_file;
use scx_utils::read_cpulist;

use crate::bpf_intf::pelt_consts_CAPACITY_SCALE as CAPACITY_SCALE;

/// Differences by CPU id, each with its source. Maps are empty if CPUs do not differ.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kinds {
    /// 1..=1024
    pub capacities: BTreeMap<usize, usize>,
    pub capacities_from: &'static str,
    /// Higher ranks are preferred.
    pub ranks: BTreeMap<usize, usize>,
    pub ranks_from: &'static str,
    /// Light tasks are packed on weak CPUs: these have the first slots of each LLC.
    pub weak_first: bool,
    /// CPUs whose tick the kernel can stop (the kernel's parameter nohz_full).
    pub nohz_full: BTreeSet<usize>,
}

const HIGHEST_PERF: &str = "acpi_cppc/highest_perf";
const MAX_FREQ: &str = "cpufreq/cpuinfo_max_freq";
const PREFCORE_RANKING: &str = "cpufreq/amd_pstate_prefcore_ranking";

impl Kinds {
    /// Read the differences between `cpus` from `devices`, which is /sys/devices.
    pub fn read(devices: &Path, cpus: &[usize]) -> Self {
        let first_of = |files: &[&'static str]| {
            let known = files.iter().find_map(|&file| Some((differing(devices, cpus, file)?, file)));
            known.unwrap_or_default()
        };
        let is_hybrid = ["cpu_core", "cpu_atom"].iter().all(|pmu| devices.join(pmu).join("cpus").exists());
        let (perfs, capacities_from) = if is_hybrid { first_of(&[HIGHEST_PERF, MAX_FREQ]) } else { Default::default() };
        let highest = perfs.values().max().copied().unwrap_or(1);
        let scale = |perf: usize| (perf * CAPACITY_SCALE as usize / highest).max(1);
        let (ranks, ranks_from) = first_of(&[PREFCORE_RANKING, HIGHEST_PERF]);
        Self {
            capacities: perfs.into_iter().map(|(id, perf)| (id, scale(perf))).collect(),
            capacities_from,
            ranks,
            ranks_from,
            weak_first: false,
            nohz_full: nohz_full(devices),
        }
    }
}

/// Return the CPUs of `nohz_full`. Without the parameter the file is missing or has no list.
fn nohz_full(devices: &Path) -> BTreeSet<usize> {
    let list = fs::read_to_string(devices.join("system/cpu/nohz_full")).ok();
    list.and_then(|list| read_cpulist(&list).ok()).unwrap_or_default().into_iter().collect()
}

/// Return each CPU's number in `file`; `None` if one CPU has none, or all have the same.
fn differing(devices: &Path, cpus: &[usize], file: &str) -> Option<BTreeMap<usize, usize>> {
    let number = |&id: &usize| {
        let number = read_from_file(&devices.join(format!("system/cpu/cpu{id}")).join(file)).ok()?;
        (number > 0).then_some((id, number))
    };
    let numbers: BTreeMap<usize, usize> = cpus.iter().map(number).collect::<Option<_>>()?;
    let first = numbers.values().next()?;
    numbers.values().any(|number| number != first).then_some(numbers)
}
