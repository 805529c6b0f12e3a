// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups as the scheduler sees them.

use std::ptr::null_mut;

use serde::{Deserialize, Serialize};

use crate::mask::Mask;
use crate::native::{cgroup, cgroup_subsys_state, cpuset, kernfs_node, task_group};
use crate::time::MSEC;

/// Index of a cgroup; 0 is the root.
pub type CgroupId = usize;

/// The kernel's CGROUP_WEIGHT_DFL.
pub const WEIGHT_DFL: u32 = 100;

/// The kernel's WEIGHT_IDLEPRIO.
pub const IDLE_POLICY_WEIGHT: u32 = 3;

pub fn kernel_weight(cpu_weight: u32) -> u32 {
    (f64::from(cpu_weight) * 1024.0 / 100.0).round() as u32
}

pub fn shares(weight: u32) -> u64 {
    u64::from(weight) * 1024
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Spec {
    /// A cgroup created earlier; 0: the root.
    pub parent: CgroupId,
    pub weight: u32,
    pub idle: bool,
    /// Its cpuset has this many CPUs. 0: no cpuset. Tasks have an affinity of their own.
    pub cpus: usize,
}

impl Default for Spec {
    fn default() -> Self {
        Self { parent: 0, weight: WEIGHT_DFL, idle: false, cpus: 0 }
    }
}

/// Number of sessions to which tasks may move.
pub const NR_AUTOGROUPS: usize = 4;

pub fn autogroup() -> Box<task_group> {
    let mut tg = Box::new(task_group { shares: shares(kernel_weight(WEIGHT_DFL)), ..Default::default() });
    tg.cfs_bandwidth.quota = u64::MAX;
    tg
}

pub struct Cgroup {
    /// The program's view, and its targets. Boxed, because the program keeps pointers.
    pub raw: Box<cgroup>,
    pub kn: Box<kernfs_node>,
    pub tg: Box<task_group>,
    _cpuset: Option<(Box<cpuset>, Box<Mask>)>,
    pub parent: CgroupId,
    pub weight: u32,
    pub alive: bool,
}

impl Cgroup {
    pub fn root() -> Self {
        Self::new(0, None, &Spec::default())
    }

    pub fn new(id: CgroupId, above: Option<&mut cgroup>, spec: &Spec) -> Self {
        let mut kn = Box::new(kernfs_node { id: 1000 + id as u64 });
        let mut tg = Box::new(task_group { shares: shares(kernel_weight(spec.weight)), ..Default::default() });
        tg.cfs_bandwidth.quota = u64::MAX;
        tg.cfs_bandwidth.period = 100 * MSEC as i64;
        let css: *mut cgroup_subsys_state = &mut tg.css;
        let level = above.as_ref().map_or(0, |above| above.level + 1);
        let parent = above.map_or(null_mut(), |above| &raw mut above.self_);
        let own = cgroup_subsys_state { cgroup: null_mut(), parent };
        let mut cpuset = (spec.cpus > 0).then(|| {
            let mask = Box::new(Mask::first(spec.cpus));
            (Box::new(cpuset { effective_cpus: mask.as_c().cast_mut(), ..Default::default() }), mask)
        });
        let cpuset_css = cpuset.as_mut().map_or(null_mut(), |(cpuset, _)| &raw mut cpuset.css);
        let mut raw = Box::new(cgroup { self_: own, level, kn: &mut *kn, subsys: [cpuset_css, css] });
        raw.self_.cgroup = &raw mut *raw;
        tg.css.cgroup = &raw mut *raw;
        let (parent, weight) = (spec.parent, spec.weight);
        Self { raw, kn, tg, _cpuset: cpuset, parent, weight, alive: true }
    }

    pub fn kernel_id(&self) -> u64 {
        self.kn.id
    }

    pub fn is_idle(&self) -> bool {
        self.tg.idle != 0
    }

    pub fn kernel_weight(&self) -> u32 {
        if self.is_idle() { IDLE_POLICY_WEIGHT } else { kernel_weight(self.weight) }
    }
}
