// SPDX-License-Identifier: GPL-2.0-only
//! Whether frequencies follow utilization (`bpf/capacity/cpufreq.bpf.h`), and what a CPU can reach while its frequency is
//! clamped. `util_avg` is relative to its highest frequency: where the user allows less (`scaling_max_freq`), a CPU that never
//! idles would still look as if it had room to spare. The author of SIS_UTIL names this as what it does not see (commit
//! 70fb5ccf2e).

use std::fs;
use std::path::Path;

use scx_utils::misc::read_from_file;

use crate::tunables::{CpuFreq, Power};

/// Where the kernel tells of CPUs.
pub const SYS_CPU: &str = "/sys/devices/system/cpu";

/// Are the kernel's targets to follow utilization? Only the governor schedutil reads them.
pub fn follows(sys_cpu: &Path, asked: CpuFreq, power: Power) -> bool {
    let has_schedutil = || {
        let policies = fs::read_dir(sys_cpu.join("cpufreq")).into_iter().flatten().flatten();
        let mut governors = policies.map(|policy| read_from_file::<String>(&policy.path().join("scaling_governor")));
        governors.any(|governor| governor.is_ok_and(|governor| governor == "schedutil"))
    };
    match asked {
        CpuFreq::Auto => power != Power::Performance && has_schedutil(),
        CpuFreq::On => true,
        CpuFreq::Off => false,
    }
}

/// `capacity` of the CPU, lowered as far as its frequency is clamped: 1..=capacity. CPUs without cpufreq, or with files
/// that make no sense, reach it all.
pub fn reachable(sys_cpu: &Path, cpu: usize, capacity: usize) -> usize {
    let khz = |file: &str| read_from_file::<u64>(&sys_cpu.join(format!("cpu{cpu}/cpufreq/{file}")));
    match (khz("scaling_max_freq"), khz("cpuinfo_max_freq")) {
        (Ok(allowed), Ok(highest)) if (1..highest).contains(&allowed) => {
            ((capacity as u64 * allowed / highest) as usize).max(1)
        }
        _ => capacity,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_follow_where_any_policy_has_schedutil() {
        let dir = tempfile::tempdir().unwrap();
        let follow =
            || [CpuFreq::Auto, CpuFreq::On, CpuFreq::Off].map(|asked| follows(dir.path(), asked, Power::Balanced));
        assert_eq!(follow(), [false, true, false]);
        let govern = |policy: &str, governor: &str| {
            let folder = dir.path().join("cpufreq").join(policy);
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("scaling_governor"), governor).unwrap();
        };
        fs::create_dir_all(dir.path().join("cpufreq/boost")).unwrap();
        govern("policy0", "performance\n");
        assert_eq!(follow(), [false, true, false]);
        govern("policy4", "schedutil\n");
        assert_eq!(follow(), [true, true, false]);
        assert!(!follows(dir.path(), CpuFreq::Auto, Power::Performance));
    }

    #[test]
    fn clamped_cpus_reach_less() {
        let dir = tempfile::tempdir().unwrap();
        let clamp = |cpu: usize, allowed: &str, highest: &str| {
            let folder = dir.path().join(format!("cpu{cpu}/cpufreq"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("scaling_max_freq"), allowed).unwrap();
            fs::write(folder.join("cpuinfo_max_freq"), highest).unwrap();
        };
        clamp(0, "1000000\n", "4000000\n");
        clamp(1, "4000000\n", "4000000\n");
        clamp(2, "4800000\n", "4000000\n");
        clamp(3, "x", "4000000");
        clamp(4, "0", "4000000");
        let reach: Vec<_> = (0..6).map(|cpu| reachable(dir.path(), cpu, 1024)).collect();
        assert_eq!(reach, [256, 1024, 1024, 1024, 1024, 1024]);
        assert_eq!(reachable(dir.path(), 0, 3), 1);
    }
}
