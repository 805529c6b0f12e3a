// SPDX-License-Identifier: GPL-2.0-only
//! Determine whether frequency targets follow utilization (`bpf/capacity/cpufreq.bpf.h`), and the
//! capacity that a CPU reaches under a frequency clamp. `util_avg` is relative to the highest
//! frequency: a CPU that never idles under a lower `scaling_max_freq` would seem to have room.
//! SIS_UTIL's author names this limit (commit 70fb5ccf2e).

//!
//! ```text
//! /sys/devices/system/cpu/cpufreq/policyN --read(): all, once--> Policies --follows(), reachable()
//!                                         --refresh(): a few at a time-^
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use scx_utils::misc::read_from_file;

use crate::tunables::{CpuFreq, Power};

/// The kernel's folder of CPUs.
pub const SYS_CPU: &str = "/sys/devices/system/cpu";

/// Maximum number of policies read at a time, so that the cost does not grow with the machine.
const AT_ONCE: usize = 16;

/// The CPUs that share a frequency, and their settings when last read.
struct Policy {
    folder: PathBuf,
    cpus: Vec<usize>,
    has_schedutil: bool,
    /// scaling_max_freq and cpuinfo_max_freq, kHz, if the first is lower.
    clamped: Option<(u64, u64)>,
}

impl Policy {
    /// Read a policy. CPUs that are offline belong to it, too.
    fn read(folder: PathBuf) -> Self {
        let cpus = fs::read_to_string(folder.join("related_cpus")).unwrap_or_default();
        let cpus = cpus.split_whitespace().filter_map(|id| id.parse().ok()).collect();
        let mut policy = Self { folder, cpus, has_schedutil: false, clamped: None };
        policy.refresh();
        policy
    }

    /// Read the settings again. Missing or malformed files clamp nothing.
    fn refresh(&mut self) {
        let governor = read_from_file::<String>(&self.folder.join("scaling_governor"));
        self.has_schedutil = governor.is_ok_and(|governor| governor == "schedutil");
        let khz = |file: &str| read_from_file::<u64>(&self.folder.join(file)).ok();
        let range = khz("scaling_max_freq").zip(khz("cpuinfo_max_freq"));
        self.clamped = range.filter(|&(allowed, highest)| (1..highest).contains(&allowed));
    }
}

/// The machine's policies; empty without cpufreq.
pub struct Policies {
    sys_cpu: PathBuf,
    policies: Vec<Policy>,
    by_cpu: BTreeMap<usize, usize>,
    /// Index of the policy that is read next.
    next: usize,
}

impl Policies {
    /// Read all policies.
    pub fn read(sys_cpu: &Path) -> Self {
        let policies: Vec<_> = folders(sys_cpu).into_iter().map(Policy::read).collect();
        let cpus = policies.iter().enumerate();
        let pairs = cpus.flat_map(|(index, policy)| policy.cpus.iter().map(move |&cpu| (cpu, index)));
        Self { sys_cpu: sys_cpu.into(), by_cpu: pairs.collect(), policies, next: 0 }
    }

    /// Read the next few policies again; or all, if their set has changed since the last round.
    pub fn refresh(&mut self) {
        let known = self.policies.iter().map(|policy| &policy.folder);
        if self.next == 0 && !folders(&self.sys_cpu).iter().eq(known) {
            *self = Self::read(&self.sys_cpu);
            return;
        }
        let end = (self.next + AT_ONCE).min(self.policies.len());
        self.policies[self.next..end].iter_mut().for_each(Policy::refresh);
        self.next = if end < self.policies.len() { end } else { 0 };
    }

    /// Return true if targets follow utilization. Only the governor schedutil reads them.
    pub fn follows(&self, asked: CpuFreq, power: Power) -> bool {
        match asked {
            CpuFreq::Auto => power != Power::Performance && self.policies.iter().any(|policy| policy.has_schedutil),
            CpuFreq::On => true,
            CpuFreq::Off => false,
        }
    }

    /// Return the `capacity` of the CPU, lowered by its frequency clamp: 1..=capacity.
    pub fn reachable(&self, cpu: usize, capacity: usize) -> usize {
        let clamped = self.by_cpu.get(&cpu).and_then(|&index| self.policies[index].clamped);
        let lowered = |(allowed, highest)| (capacity as u64 * allowed / highest) as usize;
        clamped.map_or(capacity, |clamped| lowered(clamped).max(1))
    }
}

/// Return the policies' folders, in order.
fn folders(sys_cpu: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(sys_cpu.join("cpufreq")).into_iter().flatten().flatten();
    let policies = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("policy"));
    let mut folders: Vec<_> = policies.map(|entry| entry.path()).collect();
    folders.sort();
    folders
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// Write the files of `policy`, which has one CPU.
    fn set(dir: &TempDir, policy: usize, files: &[(&str, &str)]) {
        let folder = dir.path().join(format!("cpufreq/policy{policy}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("related_cpus"), format!("{policy}\n")).unwrap();
        files.iter().for_each(|(file, text)| fs::write(folder.join(file), text).unwrap());
    }

    #[test]
    fn targets_follow_where_any_policy_has_schedutil() {
        let dir = tempfile::tempdir().unwrap();
        let mut policies = Policies::read(dir.path());
        let mut follow = || {
            policies.refresh();
            [CpuFreq::Auto, CpuFreq::On, CpuFreq::Off].map(|asked| policies.follows(asked, Power::Balanced))
        };
        assert_eq!(follow(), [false, true, false]);
        fs::create_dir_all(dir.path().join("cpufreq/boost")).unwrap();
        set(&dir, 0, &[("scaling_governor", "performance\n")]);
        assert_eq!(follow(), [false, true, false]);
        set(&dir, 4, &[("scaling_governor", "schedutil\n")]);
        assert_eq!(follow(), [true, true, false]);
        set(&dir, 4, &[("scaling_governor", "powersave\n")]);
        assert_eq!(follow(), [false, true, false]);
        set(&dir, 0, &[("scaling_governor", "schedutil\n")]);
        assert_eq!(follow(), [true, true, false]);
        assert!(!policies.follows(CpuFreq::Auto, Power::Performance));
    }

    #[test]
    fn clamped_cpus_reach_less() {
        let dir = tempfile::tempdir().unwrap();
        let clamp = |policy: usize, allowed: &str, highest: &str| {
            set(&dir, policy, &[("scaling_max_freq", allowed), ("cpuinfo_max_freq", highest)]);
        };
        clamp(0, "1000000\n", "4000000\n");
        clamp(1, "4000000\n", "4000000\n");
        clamp(2, "4800000\n", "4000000\n");
        clamp(3, "x", "4000000");
        clamp(4, "0", "4000000");
        set(&dir, 0, &[("related_cpus", "0 6\n")]);
        let policies = Policies::read(dir.path());
        let reach: Vec<_> = (0..7).map(|cpu| policies.reachable(cpu, 1024)).collect();
        assert_eq!(reach, [256, 1024, 1024, 1024, 1024, 1024, 256]);
        assert_eq!(policies.reachable(0, 3), 1);
    }

    #[test]
    fn a_refresh_reads_some_policies_and_the_next_one_the_next() {
        let dir = tempfile::tempdir().unwrap();
        const NR: usize = 2 * AT_ONCE + 1;
        let allow = |allowed: &str| {
            let files = [("scaling_max_freq", allowed), ("cpuinfo_max_freq", "4")];
            (0..NR).for_each(|policy| set(&dir, policy, &files));
        };
        allow("4");
        let mut policies = Policies::read(dir.path());
        let clamped = |policies: &Policies| (0..NR).filter(|&cpu| policies.reachable(cpu, 4) == 1).count();
        allow("1");
        let reads = [AT_ONCE, 2 * AT_ONCE, NR].map(|seen| {
            policies.refresh();
            (clamped(&policies), seen)
        });
        assert!(reads.iter().all(|(clamped, seen)| clamped == seen), "{reads:?}");
        // A new policy causes a full read; removed policies clamp nothing.
        allow("4");
        fs::remove_dir_all(dir.path().join("cpufreq/policy0")).unwrap();
        policies.refresh();
        assert_eq!((clamped(&policies), policies.policies.len()), (0, NR - 1));
    }
}
