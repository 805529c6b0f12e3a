// SPDX-License-Identifier: GPL-2.0-only
//! A thread that samples where the busiest processes have their memory, and publishes preferred
//! nodes to the BPF program (`bpf/numa/preferred.bpf.h`). It does not run on machines with one node.
//!
//! ```text
//! processes (BPF map): checks --Tracker::due()--> busy and due --Pass::go_on()--> Tally --preferred()--+
//!            node <-----------------------------------------------------------------------------------+
//!                            tracker.rs                              maps.rs
//! ```
//!
//! The thread uses at most `--numa-sample-share` of a CPU: it rests after each sample in proportion
//! to its CPU time. A sample takes at most `--numa-sample-ms` (or one mapping, which the kernel
//! reads entirely); a process with more mappings is continued in a later round.

mod maps;
mod tracker;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bytemuck::bytes_of;
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use log::warn;
use nix::time::ClockId;
use scx_utils::Cpumask;

use maps::Pass;
use tracker::Tracker;

use crate::bpf_intf::{NO_NODE, process};
use crate::publisher::clock;
use crate::topology::Layout;
use crate::tunables::Tunables;

/// How often the busy processes are determined.
const ROUND: Duration = Duration::from_millis(500);

/// Statistics of the sampler since the start.
#[derive(Debug, Default)]
pub struct Costs {
    /// CPU time, ns.
    pub cpu_ns: AtomicU64,
    /// Processes sampled completely.
    pub samples: AtomicU64,
    /// Samples that were interrupted because they took too long.
    pub cut: AtomicU64,
    /// The longest uninterrupted sample, ns.
    pub longest_ns: AtomicU64,
    /// Processes that have a preferred node by memory now.
    pub known: AtomicU64,
}

/// Parameters of the running thread.
#[derive(Default)]
struct Orders {
    /// Share of a CPU in percent; 0: sleep.
    share: AtomicU32,
    /// Limit of one sample, ms.
    limit: AtomicU64,
    stop: AtomicBool,
}

impl Orders {
    fn share(&self) -> u32 {
        self.share.load(Ordering::Relaxed)
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.limit.load(Ordering::Relaxed))
    }

    fn are_to_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn are_to_work(&self) -> bool {
        self.share() > 0 && !self.are_to_stop()
    }
}

/// The thread. It ends soon after this is dropped, unless a process that is stuck blocks it.
pub struct Sampler {
    pub costs: Arc<Costs>,
    orders: Arc<Orders>,
    thread: JoinHandle<()>,
}

impl Sampler {
    /// Start the thread. `processes` is the BPF map of this name.
    pub fn start(processes: MapHandle, layout: &Layout, tunables: &Tunables) -> Result<Self> {
        let (costs, orders) = (Arc::new(Costs::default()), Arc::new(Orders::default()));
        let mut worker = Worker {
            processes,
            node_cpus: layout.node_cpus(),
            orders: orders.clone(),
            tracker: Tracker::default(),
            rested: Instant::now(),
            costs: costs.clone(),
            is_refused: false,
        };
        let run = move || {
            // With SCHED_BATCH the BPF program does not take it for an urgent thread of the loader.
            // SAFETY: of this thread; the parameters are valid.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &libc::sched_param { sched_priority: 0 }) };
            while !worker.orders.are_to_stop() {
                if !worker.orders.are_to_work() {
                    thread::park();
                    continue;
                }
                if let Err(err) = worker.round() {
                    return warn!("NUMA memory sampling has stopped: {err:#}");
                }
                thread::park_timeout(ROUND);
            }
        };
        let thread = thread::Builder::new().name("magpie-numa".into()).spawn(run).context("cannot start a thread")?;
        let sampler = Self { costs, orders, thread };
        sampler.set(tunables);
        Ok(sampler)
    }

    /// Apply the limits in `tunables` to later samples. With a share of 0 the thread sleeps.
    pub fn set(&self, tunables: &Tunables) {
        self.orders.limit.store(tunables.numa_sample_ms, Ordering::Relaxed);
        self.orders.share.store(tunables.numa_sample_share, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.orders.stop.store(true, Ordering::Relaxed);
        self.thread.thread().unpark();
    }
}

struct Worker {
    processes: MapHandle,
    /// CPUs of each node that has any.
    node_cpus: BTreeMap<i32, Vec<usize>>,
    orders: Arc<Orders>,
    tracker: Tracker,
    /// When the rest for all samples so far is over.
    rested: Instant,
    costs: Arc<Costs>,
    /// A process's memory was refused, and a warning was logged.
    is_refused: bool,
}

impl Worker {
    /// Return immediately while resting. Otherwise sample at least one process, however small the
    /// share is, and others after rests, until the next round.
    fn round(&mut self) -> Result<()> {
        if Instant::now() < self.rested {
            return Ok(());
        }
        let (began, end) = (thread_time(), Instant::now() + ROUND);
        let entries = self.entries()?;
        let known = entries.iter().filter(|(_, process)| process.node != NO_NODE).count();
        self.costs.known.store(known as u64, Ordering::Relaxed);
        let due = self.tracker.due(Instant::now(), &entries);
        self.rest(began);
        for (tgid, process) in due {
            let began = thread_time();
            self.look_at(tgid, process, began)?;
            self.costs.longest_ns.fetch_max((thread_time() - began).as_nanos() as u64, Ordering::Relaxed);
            self.rest(began);
            while self.orders.are_to_work() && Instant::now() < self.rested.min(end) {
                thread::park_timeout(self.rested.min(end) - Instant::now());
            }
            if Instant::now() < self.rested || !self.orders.are_to_work() {
                break;
            }
        }
        Ok(())
    }

    /// Account for work since `began`, in this thread's CPU time, and extend the rest.
    fn rest(&mut self, began: Duration) {
        let took = thread_time() - began;
        self.costs.cpu_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.rested = self.rested.max(Instant::now()) + took * 100 / self.orders.share().max(1);
    }

    fn entries(&self) -> Result<Vec<(i32, process)>> {
        let batches =
            self.processes.lookup_batch(256, MapFlags::ANY, MapFlags::ANY).context("cannot read processes")?;
        Ok(batches
            .map(|(tgid, process)| (bytemuck::pod_read_unaligned(&tgid), bytemuck::pod_read_unaligned(&process)))
            .collect())
    }

    /// Sample a process's memory, or a part of it if there is much.
    fn look_at(&mut self, tgid: i32, process: process, began: Duration) -> Result<()> {
        let Some(known) = self.tracker.known.get_mut(&tgid) else { return Ok(()) };
        let limit = self.orders.limit();
        let pass = known.pass.take().map_or_else(|| Pass::new(tgid), Ok);
        let done = pass.and_then(|mut pass| Ok((pass.go_on(|| thread_time() - began < limit)?, pass)));
        match done {
            Ok((true, pass)) => {
                let node = Some(pass.tally.preferred()).filter(|node| may_run_there(tgid, self.node_cpus.get(node)));
                let node = node.unwrap_or(NO_NODE);
                let resized = known.resized(pass.tally.total);
                known.sampled(Instant::now(), node == process.node && !resized);
                self.costs.samples.fetch_add(1, Ordering::Relaxed);
                if node != process.node {
                    self.publish(tgid, process { node, ..process })?;
                }
            }
            Ok((false, pass)) => {
                known.pass = Some(pass);
                known.due = Instant::now();
                self.costs.cut.fetch_add(1, Ordering::Relaxed);
            }
            // The process has exited. Its id may be reused.
            Err(err) if err.kind() == ErrorKind::NotFound || err.raw_os_error() == Some(libc::ESRCH) => {
                self.tracker.known.remove(&tgid);
                _ = self.processes.delete(bytes_of(&tgid));
            }
            Err(err) => {
                known.sampled(Instant::now(), true);
                self.warn_if_refused(&err);
            }
        }
        Ok(())
    }

    /// Warn once: a loader without CAP_SYS_PTRACE may not read other users' processes.
    fn warn_if_refused(&mut self, err: &io::Error) {
        if err.kind() == ErrorKind::PermissionDenied && !mem::replace(&mut self.is_refused, true) {
            warn!(
                "the kernel does not reveal on which nodes some processes have their memory, so the preferred node of their tasks is where they ran most: grant \
                 CAP_SYS_PTRACE, or turn sampling off with --numa-sample-share 0"
            );
        }
    }

    fn publish(&self, tgid: i32, process: process) -> Result<()> {
        match self.processes.update(bytes_of(&tgid), bytes_of(&process), MapFlags::EXIST) {
            // The map has dropped this process in favor of busier ones.
            Err(err) if err.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            result => result.context("cannot publish the preferred node of a process"),
        }
    }
}

/// Return true if the process may run on CPUs of the node.
fn may_run_there(tgid: i32, cpus: Option<&Vec<usize>>) -> bool {
    let (Some(cpus), Ok(status)) = (cpus, fs::read_to_string(format!("/proc/{tgid}/status"))) else { return false };
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let Some(Ok(allowed)) = allowed.map(|list| Cpumask::from_cpulist(list.trim())) else { return false };
    cpus.iter().any(|&cpu| allowed.test_cpu(cpu))
}

fn thread_time() -> Duration {
    clock(ClockId::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_bound_stays() {
        let pid = std::process::id() as i32;
        assert!(may_run_there(pid, Some(&(0..1024).collect())));
        assert!(!may_run_there(pid, Some(&vec![])) && !may_run_there(pid, None));
    }
}
