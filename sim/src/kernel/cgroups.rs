// SPDX-License-Identifier: GPL-2.0-only
//! Cgroups as the scheduler sees them: a tree with weights, and tasks that move between them.
//!
//! ```text
//! mkdir, rmdir        cgroup_init(), cgroup_exit()
//! cpu.weight, .idle   cgroup_set_weight(), cgroup_set_idle()
//! cgroup.procs        queued: dequeued, cgroup_move(), enqueue()
//!                     running: stopping(false), cgroup_move(), running()      (sched_move_task)
//! ```

use crate::cgroup::{Cgroup, CgroupId, IDLE_POLICY_WEIGHT, Spec, WEIGHT_DFL, kernel_weight, shares};
use crate::dsq::TaskId;
use crate::kernel::Kernel;
use crate::native::{cgroup, sched_ext_ops, scx_cgroup_init_args, task_group};
use crate::time::USEC;
use crate::trace::Op;

impl Kernel {
    /// Return the program's id of a cgroup or of its nearest ancestor with an id; 0 for the root.
    pub fn program_id(&self, id: CgroupId) -> u32 {
        let own = |id: CgroupId| self.hashes.get(&(self.native.group_ids(), self.cgroups[id].kernel_id()));
        self.cgroup_path(id).find_map(own).map_or(0, |value| value[0] as u32)
    }

    pub fn init_cgroup(&mut self, id: CgroupId) {
        if self.tunables.no_cgroups {
            return;
        }
        let raw = &raw mut *self.cgroups[id].raw;
        let mut args = scx_cgroup_init_args { weight: self.cgroups[id].weight };
        let err = self.call(Op::CgroupInit, None, id as u64, |ops| unsafe { ops.cgroup_init.unwrap()(raw, &mut args) });
        fail_if!(self, err != 0, "init", "cgroup_init() returned {err}");
    }

    pub fn make_cgroup(&mut self, spec: &Spec) -> CgroupId {
        let id = self.cgroups.len();
        let made = Cgroup::new(id, Some(&mut self.cgroups[spec.parent].raw), spec);
        self.cgroups.push(made);
        // The kernel sets `subsys` last.
        let subsys = std::mem::take(&mut self.cgroups[id].raw.subsys);
        self.init_cgroup(id);
        self.cgroups[id].raw.subsys = subsys;
        if spec.idle {
            self.set_cgroup_idle(id, true);
        }
        id
    }

    /// Remove a cgroup. Does nothing if the cgroup has tasks or children.
    pub fn remove_cgroup(&mut self, id: CgroupId) {
        let used = self.cgroups.iter().any(|other| other.alive && other.parent == id)
            || self.tasks.iter().any(|task| task.cgroup == id && task.is_alive());
        if id == 0 || used || !self.cgroups[id].alive {
            return;
        }
        self.cgroups[id].alive = false;
        if !self.tunables.no_cgroups {
            let raw = &raw mut *self.cgroups[id].raw;
            self.call(Op::CgroupExit, None, id as u64, |ops| unsafe { ops.cgroup_exit.unwrap()(raw) });
        }
    }

    /// Report a changed setting to the program. The kernel reports none of the root.
    fn tell_setting(&mut self, id: CgroupId, op: Op, call: impl FnOnce(&sched_ext_ops, *mut cgroup)) {
        if id != 0 && self.cgroups[id].alive && !self.tunables.no_cgroups {
            let raw = &raw mut *self.cgroups[id].raw;
            self.call(op, None, id as u64, |ops| call(ops, raw));
        }
    }

    pub fn set_cgroup_weight(&mut self, id: CgroupId, weight: u32) {
        self.cgroups[id].weight = weight;
        self.cgroups[id].tg.shares = shares(kernel_weight(weight));
        self.tell_setting(id, Op::CgroupSetWeight, |ops, raw| unsafe { ops.cgroup_set_weight.unwrap()(raw, weight) });
    }

    pub fn set_cgroup_idle(&mut self, id: CgroupId, idle: bool) {
        self.cgroups[id].tg.idle = idle.into();
        // The kernel drops the weight that was set.
        self.cgroups[id].weight = WEIGHT_DFL;
        self.cgroups[id].tg.shares = shares(if idle { IDLE_POLICY_WEIGHT } else { kernel_weight(WEIGHT_DFL) });
        self.tell_setting(id, Op::CgroupSetIdle, |ops, raw| unsafe { ops.cgroup_set_idle.unwrap()(raw, idle) });
    }

    pub fn set_cgroup_max(&mut self, id: CgroupId, quota_us: Option<u64>, period_us: u64, burst_us: u64) {
        let bandwidth = &mut self.cgroups[id].tg.cfs_bandwidth;
        bandwidth.quota = quota_us.map_or(u64::MAX, |us| us * USEC);
        bandwidth.period = (period_us * USEC) as i64;
        bandwidth.burst = burst_us * USEC;
        let quota = quota_us.unwrap_or(u64::MAX);
        self.tell_setting(id, Op::CgroupSetBandwidth, |ops, raw| unsafe {
            ops.cgroup_set_bandwidth.unwrap()(raw, period_us, quota, burst_us)
        });
    }

    pub fn move_to_cgroup(&mut self, task: TaskId, to: CgroupId) {
        let from = self.tasks[task].cgroup;
        if !self.cgroups[to].alive || from == to {
            return;
        }
        self.change(task, |kernel| {
            kernel.tasks[task].cgroup = to;
            kernel.set_task_group(task);
            if !kernel.tunables.no_cgroups {
                let raw = kernel.tasks[task].raw;
                let [from, to] = [from, to].map(|id| &raw mut *kernel.cgroups[id].raw);
                kernel.call(Op::CgroupMove, Some(task), 0, |ops| unsafe { ops.cgroup_move.unwrap()(raw, from, to) });
            }
        });
    }

    /// setsid(): the task belongs to this autogroup while it is in the root cgroup.
    pub fn set_session(&mut self, task: TaskId, session: usize) {
        self.change(task, |kernel| {
            kernel.tasks[task].session = Some(session);
            kernel.set_task_group(task);
        });
    }

    pub fn set_task_group(&mut self, task: TaskId) {
        let (cgroup, session) = (self.tasks[task].cgroup, self.tasks[task].session);
        let own: *mut task_group = match session {
            Some(session) if cgroup == 0 => &raw mut *self.autogroups[session],
            _ => &raw mut *self.cgroups[cgroup].tg,
        };
        self.tasks[task].raw_mut().sched_task_group = own;
    }

    /// Return the program's id of the autogroup; 0: none yet.
    pub fn autogroup_id(&self, session: usize) -> u32 {
        let key = (&raw const *self.autogroups[session]).addr() as u64;
        self.hashes.get(&(self.native.group_ids(), key)).map_or(0, |value| value[0] as u32)
    }

    pub fn cgroup_path(&self, id: CgroupId) -> impl Iterator<Item = CgroupId> + '_ {
        std::iter::successors(Some(id), |&id| Some(self.cgroups[id].parent)).take_while(|&id| id != 0)
    }
}
