// SPDX-License-Identifier: GPL-2.0-only
//! The power profile: as requested, or the system's. power-profiles-daemon, tuned and TLP all set
//! it in files of the kernel, which are read here.

use std::path::Path;

use scx_utils::misc::read_from_file;

use crate::tunables::Power;

/// Target of a CPU under powersave, in 1/1024 of its utilization: an eighth of headroom remains.
pub const POWERSAVE_PERF_SCALE: u32 = 922;

const EPP: &str = "sys/devices/system/cpu/cpufreq/policy0/energy_performance_preference";
const PLATFORM_PROFILE: &str = "sys/firmware/acpi/platform_profile";

/// Return the profile in force, which is not [`Power::Auto`]. `root` is the parent of sys/.
pub fn profile(root: &Path, asked: Power) -> Power {
    if asked != Power::Auto {
        return asked;
    }
    let known = |file: &&str| match read_from_file::<String>(&root.join(file)).ok()?.as_str() {
        "power" | "low-power" | "quiet" | "cool" => Some(Power::Powersave),
        "performance" => Some(Power::Performance),
        _ => None,
    };
    [EPP, PLATFORM_PROFILE].iter().find_map(known).unwrap_or(Power::Balanced)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn auto_follows_the_systems_profile() {
        let root = tempfile::tempdir().unwrap();
        let write = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let auto = || profile(root.path(), Power::Auto);
        assert_eq!(auto(), Power::Balanced);
        for (platform, epp, goal) in [
            ("low-power\n", "balance_power\n", Power::Powersave),
            ("balanced\n", "balance_performance\n", Power::Balanced),
            ("performance\n", "128\n", Power::Performance),
            ("balanced\n", "power\n", Power::Powersave),
            ("low-power\n", "performance\n", Power::Performance),
        ] {
            write(PLATFORM_PROFILE, platform);
            write(EPP, epp);
            assert_eq!(auto(), goal, "{platform} {epp}");
        }
        assert_eq!(profile(root.path(), Power::Balanced), Power::Balanced);
    }
}
