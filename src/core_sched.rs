// SPDX-License-Identifier: GPL-2.0-only
//! Core scheduling (PR_SCHED_CORE): what the running kernel gets wrong with it under sched_ext.
//! By reading 6.12.117, 7.2.13 and 7.3.4; docs/experiments/kernel-facts.md has the sources.
//!
//! ```text
//! 6.12             hung when a CPU stole; up to 6.12.110 it asks in the wrong order
//! 6.19 to 7.1      may release the lock while it picks for a core, and hang
//! 7.2.13, 7.3.4    the pick starts again then; they ask in the right order
//! ```

use std::fs;

use anyhow::Result;
use log::warn;
use scx_utils::compat;

/// Where the kernel says whether CPUs share cores: 0 or 1.
const SMT: &str = "/sys/devices/system/cpu/smt/active";

/// Return true if the kernel has core scheduling.
fn is_built_in() -> Result<bool> {
    compat::struct_has_field("task_struct", "core_cookie")
}

/// Return true if the pick for a core starts again when the lock was released meanwhile. Such
/// kernels also call ops.core_sched_before() with its arguments in the right order.
fn is_mended() -> Result<bool> {
    compat::struct_has_field("scx_rq", "lock_drop_seq")
}

/// Return true if ops.core_sched_before() means what it says. Others order tasks by how long they
/// have waited if there is no such callback.
pub fn orders_right() -> Result<bool> {
    Ok(is_built_in()? && is_mended()?)
}

/// Warn of a kernel that may hang.
pub fn warn_of_hangs() -> Result<()> {
    let has_siblings = fs::read_to_string(SMT).is_ok_and(|active| active.trim() == "1");
    if has_siblings && is_built_in()? && !is_mended()? {
        warn!(
            "this kernel may hang once a program uses core scheduling (cloud-hypervisor, crosvm): use a newer 7.2 or 7.3, or \
             switch it off in that program"
        );
    }
    Ok(())
}
