// SPDX-License-Identifier: GPL-2.0-only
//! By how much the kernel counts the weight of a cgroup: up to Linux 7.2 once (smp), later by the
//! mode in debugfs, which root may change at any time.

use std::fs;

use clap::ValueEnum;
use scx_utils::compat;

use crate::tunables::CgroupMode;

/// All modes, with that in force in parentheses: `up smp (concur) max tasks`.
const FILE: &str = "/sys/kernel/debug/sched/cgroup_mode";

/// A field that the kernel has since the mode is concur unless somebody changed it.
const SINCE_CONCUR: (&str, &str) = ("task_group", "runnable_avg");

/// Return the name of the mode in force, from the text of the file.
fn in_force(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('(')?.strip_suffix(')'))
}

/// Return the name of the running kernel's mode.
fn of_kernel() -> String {
    let text = fs::read_to_string(FILE).unwrap_or_default();
    in_force(&text).map_or_else(
        || {
            let (of, field) = SINCE_CONCUR;
            if compat::struct_has_field(of, field).unwrap_or(false) { "concur" } else { "smp" }.into()
        },
        Into::into,
    )
}

/// Resolve --cgroup-mode for the running kernel; never Auto. The kernel's mode up lets a group weigh
/// as much on each CPU where it has tasks as on one, and concur is the nearest to it.
pub fn of_this_machine(asked: CgroupMode) -> CgroupMode {
    match asked {
        CgroupMode::Auto => CgroupMode::from_str(&of_kernel(), false).unwrap_or(CgroupMode::Concur),
        mode => mode,
    }
}

/// Describe the resolved mode for `status`, and the kernel's if that is another one.
pub fn describe(mode: CgroupMode) -> String {
    let (name, kernel) = (mode.name(), of_kernel());
    if name == kernel { name } else { format!("{name} (not followed: the kernel's {kernel})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_in_parentheses_is_in_force() {
        assert_eq!(in_force("up smp (concur) max tasks\n"), Some("concur"));
        assert_eq!(in_force("(up) smp concur\n"), Some("up"));
        assert_eq!(in_force(""), None);
        assert_eq!(of_this_machine(CgroupMode::Max), CgroupMode::Max);
        assert_ne!(of_this_machine(CgroupMode::Auto), CgroupMode::Auto);
    }
}
