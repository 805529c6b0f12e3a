// SPDX-License-Identifier: GPL-2.0-only
//! Fit the table of callbacks to the running kernel, which may lack some.

use std::ptr;

use anyhow::Result;
use log::info;
use scx_utils::compat;

use crate::bpf_skel::types;
use crate::core_sched;

/// Remove unwanted callbacks, and callbacks and flags that this kernel does not know and would
/// refuse. Return true if a callback that reports cgroups was removed.
pub fn fit(ops: &mut types::sched_ext_ops, no_cgroups: bool) -> Result<bool> {
    // 6.12 lacks the last two: it never queues wakeups, and enqueues tasks with migration disabled.
    ops.flags &= *compat::SCX_OPS_ENQ_LAST
        | *compat::SCX_OPS_ENQ_EXITING
        | *compat::SCX_OPS_ENQ_MIGRATION_DISABLED
        | *compat::SCX_OPS_ALLOW_QUEUED_WAKEUP;
    let is_6_19 = reenqueues_from_anywhere()?;
    if is_6_19 {
        // stopping() does this work, and the kernel would warn about the callback.
        ops.cpu_release = ptr::null_mut();
    }
    core_sched::warn_of_hangs()?;
    if !core_sched::orders_right()? {
        ops.core_sched_before = ptr::null_mut();
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

/// Return true if tasks can be enqueued again from outside of ops.cpu_release(): from 6.19 on.
fn reenqueues_from_anywhere() -> Result<bool> {
    Ok(compat::ksym_exists("scx_bpf_reenqueue_local___v2")? || compat::ksym_exists("scx_bpf_dsq_reenq")?)
}
