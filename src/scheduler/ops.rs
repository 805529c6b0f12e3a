// SPDX-License-Identifier: GPL-2.0-only
//! The callbacks, for a kernel that may lack some.

use std::ptr;

use anyhow::Result;
use log::info;
use scx_utils::compat;

use crate::bpf_skel::types;

/// Leaves out the callbacks that are not wanted, and callbacks and flags that this kernel would refuse for it has no such thing.
/// True if any of these callbacks would have told of cgroups.
pub fn fit(ops: &mut types::sched_ext_ops, no_cgroups: bool) -> Result<bool> {
    // 6.12 has neither of the last two; there the kernel never queues wakeups, and tells of all tasks that may not migrate.
    ops.flags &= *compat::SCX_OPS_ENQ_LAST
        | *compat::SCX_OPS_ENQ_EXITING
        | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED
        | *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP;
    if reenqueues_from_anywhere()? {
        // The program does it in stopping(), and the kernel would warn.
        ops.cpu_release = ptr::null_mut();
    }
    let reports_max = compat::struct_has_field("sched_ext_ops", "cgroup_set_bandwidth")?;
    let reports_idle = compat::struct_has_field("sched_ext_ops", "cgroup_set_idle")?;
    if no_cgroups {
        ops.cgroup_init = ptr::null_mut();
        ops.cgroup_exit = ptr::null_mut();
        ops.cgroup_move = ptr::null_mut();
        ops.cgroup_set_weight = ptr::null_mut();
    }
    if no_cgroups || !reports_max {
        ops.cgroup_set_bandwidth = ptr::null_mut();
    }
    if no_cgroups || !reports_idle {
        ops.cgroup_set_idle = ptr::null_mut();
    }
    let missing: Vec<_> = [("cpu.max", reports_max), ("cpu.idle", reports_idle)]
        .iter()
        .filter(|(_, known)| !known)
        .map(|(f, _)| *f)
        .collect();
    if no_cgroups || missing.is_empty() {
        return Ok(false);
    }
    info!("this kernel does not report changes of {}: reading them ten times a second", missing.join(" and "));
    Ok(true)
}

/// May scx_bpf_reenqueue_local(), or its successor, be called outside of ops.cpu_release()? From 6.19 on.
fn reenqueues_from_anywhere() -> Result<bool> {
    Ok(compat::ksym_exists("scx_bpf_reenqueue_local___v2")? || compat::ksym_exists("scx_bpf_dsq_reenq")?)
}
