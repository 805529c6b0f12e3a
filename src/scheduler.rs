// SPDX-License-Identifier: GPL-2.0-only
//! The BPF program's life: load, attach, serve it while it runs, detach and report.
//!
//! ```text
//! open -> tell it machine and tunables -> load -> register_loader -> attach
//!   run: publish sum_util each interval, answer statistics, watch for its exit
//! detach -> the kernel's exit reason and dump
//! ```

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, OpenObject, ProgramInput, ProgramMut};
use log::info;
use scx_stats::prelude::*;
use scx_utils::{
    NR_CPUS_POSSIBLE, Topology, UserExitInfo, scx_ops_attach, scx_ops_open, try_set_rlimit_infinity, uei_exited,
    uei_report, uei_set_size,
};

use crate::bpf_skel::*;
use crate::cli::Opts;
use crate::pelt;
use crate::preflight;
use crate::publisher::{Publisher, monotonic};
use crate::stats::{self, Counters, LlcSnapshot, Snapshot};
use crate::topology::Layout;

const NSEC_PER_USEC: u64 = 1000;
const NSEC_PER_MSEC: u64 = 1_000_000;

/// How long Ctrl-C, an ejection or a request for statistics waits at most.
const RESPONSE: Duration = Duration::from_millis(50);

/// A loaded scheduler, attached while `link` is held.
pub struct Scheduler<'a> {
    pub skel: BpfSkel<'a>,
    layout: Layout,
    publisher: Publisher,
    util_interval: Duration,
    link: Option<Link>,
}

impl<'a> Scheduler<'a> {
    /// Loads the programs, without attaching.
    pub fn load(opts: &Opts, object: &'a mut MaybeUninit<OpenObject>) -> Result<Self> {
        try_set_rlimit_infinity();
        let builder = BpfSkelBuilder::default();
        let mut skel = scx_ops_open!(builder, object, magpie, opts.libbpf.clone().into_bpf_open_opts())?;
        // scx_utils links in an fentry program. Nothing here needs it, and kernels without function tracing lack it.
        skel.progs.scx_lib_init_probe.set_autoload(false);
        // After the open, which notes hotplug_seq: so the kernel refuses a layout that a hotplug made stale.
        let layout = Layout::new(&Topology::new().context("cannot read the machine's topology")?)?;

        let ops = skel.struct_ops.magpie_mut();
        ops.exit_dump_len = opts.exit_dump_len;
        ops.timeout_ms = opts.timeout_ms;
        let rodata = skel.maps.rodata_data.as_mut().context("no .rodata in the BPF object")?;
        describe_machine(rodata, &layout);
        set_tunables(rodata, opts);

        // scx_ops_load! would refuse a kernel without function tracing.
        uei_set_size!(skel, magpie, uei);
        let skel = skel.load().map_err(|err| match preflight::malformed_btf() {
            Some(refusal) => anyhow!(refusal),
            None => anyhow!(err).context("the kernel refused the BPF programs; -v prints libbpf's reasons"),
        })?;

        Ok(Self {
            skel,
            publisher: Publisher::new(layout.clone()),
            layout,
            util_interval: Duration::from_millis(opts.util_interval),
            link: None,
        })
    }

    /// Hands the machine's tasks over to the loaded programs.
    pub fn attach(&mut self) -> Result<()> {
        call(&mut self.skel.progs.register_loader)?;
        let skel = &mut self.skel;
        self.link = Some(scx_ops_attach!(skel, magpie)?);
        info!("attached: {} CPUs, {} LLCs", self.layout.cpus.len(), self.layout.llcs.len());
        Ok(())
    }

    /// Serves until `shutdown` or until the kernel ejects the scheduler, then detaches and reports.
    pub fn run(&mut self, shutdown: &AtomicBool) -> Result<UserExitInfo> {
        let served = self.serve(shutdown);
        self.link.take();
        let report = uei_report!(&self.skel, uei)?;
        served.map(|()| report)
    }

    fn serve(&mut self, shutdown: &AtomicBool) -> Result<()> {
        let server = StatsServer::new(stats::server_data()).launch().context("cannot serve statistics")?;
        let (res, req) = server.channels();
        let mut publish_at = Instant::now();

        while !shutdown.load(Ordering::Relaxed) && !uei_exited!(&self.skel, uei) {
            let now = Instant::now();
            if now >= publish_at {
                self.publisher.publish(self.skel.maps.bss_data.as_mut().context("no .bss")?);
                publish_at = now + self.util_interval;
            }
            while req.try_recv().is_ok() {
                res.send(self.snapshot()?)?;
            }
            // Waiting on the channel would spin first, which costs more than all the rest.
            thread::sleep(publish_at.saturating_duration_since(now).min(RESPONSE));
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        call(&mut self.skel.progs.sample_queues)?;
        let bss = self.skel.maps.bss_data.as_ref().context("no .bss")?;
        let sum_util = self.publisher.sum_util(bss, monotonic());

        let mut llcs: Vec<LlcSnapshot> = (self.layout.llcs.iter().zip(sum_util))
            .map(|(llc, sum_util)| LlcSnapshot {
                nr_cpus: llc.nr_cpus,
                capacity: llc.capacity,
                sum_util,
                nr_queued: 0,
                max_queued: 0,
                counters: Counters::default(),
            })
            .collect();
        for (&id, cpu) in &self.layout.cpus {
            let cctx = &bss.cpu_ctxs[id];
            let llc = &mut llcs[cpu.llc];
            let nr_queued = cctx.nr_queued.max(0) as u64;
            llc.nr_queued += nr_queued;
            llc.max_queued = llc.max_queued.max(nr_queued);
            for (stat, count) in llc.counters.iter_mut().enumerate() {
                // SAFETY: in bounds; a plain word that its CPU increments.
                *count += unsafe { std::ptr::read_volatile(&cctx.stats[stat]) };
            }
        }
        Ok(Snapshot { llcs })
    }
}

fn describe_machine(rodata: &mut types::rodata, layout: &Layout) {
    rodata.tun.nr_cpu_ids = layout.nr_cpu_ids() as u32;
    rodata.tun.nr_cpus_possible = *NR_CPUS_POSSIBLE as u32;
    rodata.tun.nr_llcs = layout.llcs.len() as u32;
    rodata.tun.smt_width = layout.smt_width as u32;
    (rodata.tun.core_first, rodata.tun.core_last) = layout.core_ends();
    rodata.pelt_decay = pelt::decay_factors();

    for (&id, cpu) in &layout.cpus {
        let entry = &mut rodata.cpu_layouts[id];
        entry.llc = cpu.llc as u32;
        entry.node = cpu.node as u32;
        entry.slot = cpu.slot as u32;
        entry.capacity = cpu.capacity as u32;
        entry.present = 1;
    }
    for (entry, llc) in rodata.llc_layouts.iter_mut().zip(&layout.llcs) {
        entry.first_line = llc.first_line as u32;
        entry.nr_lines = llc.nr_lines as u32;
        entry.nr_near = llc.nr_near as u32;
        for (slot, &other) in entry.others.iter_mut().zip(&llc.others) {
            *slot = other as u16;
        }
    }
    for (entry, cpu) in rodata.slot_cpus.iter_mut().zip(&layout.slot_cpus) {
        *entry = cpu.unwrap_or(0) as u16;
    }
    for (entry, absent) in rodata.absent_slots.iter_mut().zip(layout.absent_slots()) {
        *entry = absent;
    }
}

fn set_tunables(rodata: &mut types::rodata, opts: &Opts) {
    rodata.tun.slice_ns = opts.slice_us * NSEC_PER_USEC;
    rodata.tun.slice_lag_ns = opts.slice_us_lag * NSEC_PER_USEC;
    rodata.tun.wakeup_gran_ns = opts.wakeup_gran_us * NSEC_PER_USEC;
    rodata.tun.starve_ns = u64::from(opts.timeout_ms) * NSEC_PER_MSEC / 4;
    rodata.tun.wakeup_preempt = u8::from(!opts.no_wakeup_preempt);
}

/// Runs a `SEC("syscall")` program, here and now.
fn call(prog: &mut ProgramMut<'_>) -> Result<()> {
    let name = prog.name().to_string_lossy().into_owned();
    let out = prog.test_run(ProgramInput::default()).with_context(|| format!("cannot run {name}"))?;
    ensure!(out.return_value == 0, "{name} failed: {}", out.return_value as i32);
    Ok(())
}
