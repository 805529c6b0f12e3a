// SPDX-License-Identifier: GPL-2.0-only
//! The BPF program's life: load, attach, serve it while it runs, detach and report.
//!
//! ```text
//! open -> tell it machine and tunables (Told) -> load -> register_loader -> attach
//!   run: publish sum_util each interval, answer statistics, give CPUs that come a place, watch for its exit
//! detach -> the kernel's exit reason and dump
//!
//! ops.rs     callbacks that this kernel has        energy.rs  power profile, governors, limits of frequencies
//! memory.rs  the program's memory                  follow.rs  CPUs that come and go
//!                                                  live.rs    set, reload
//! ```

mod energy;
mod follow;
mod live;
mod memory;
mod ops;

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapHandle, OpenObject, ProgramInput, ProgramMut};
use log::{info, warn};
use scx_utils::{
    NR_CPU_IDS, NR_CPUS_POSSIBLE, UserExitInfo, compat, scx_ops_attach, scx_ops_open, uei_exited, uei_report,
    uei_set_size,
};

use crate::bpf_intf::group;
use crate::bpf_skel::*;
use crate::cli::Opts;
use crate::control::Control;
use crate::nr_scan::ScanLimit;
use crate::numa::Sampler;
use crate::preflight;
use crate::publisher::{Publisher, monotonic};
use crate::service::{self, Watchdog};
use crate::stats::{self, About, Snapshot};
use crate::told::{Possible, Told};
use crate::topology::Layout;
use crate::tunables::{CpuFreq, Power, Tunables};
use follow::Hotplugs;

/// How long Ctrl-C, an ejection or a request for statistics waits at most.
const RESPONSE: Duration = Duration::from_millis(50);

/// How often cgroups are looked at, where the kernel does not report all that is set of them.
const CGROUP_INTERVAL: Duration = Duration::from_millis(100);

/// Why a scheduler does not serve any more.
pub enum Ended {
    /// It is detached.
    Exit(UserExitInfo),
    /// CPUs came for which it has no place, or it was made for another power profile or governor. It is still attached.
    Outgrown,
    /// It is to start anew with another configuration. It is still attached.
    Reloaded,
}

/// A loaded scheduler, attached while `link` is held.
pub struct Scheduler<'a> {
    pub skel: BpfSkel<'a>,
    layout: Layout,
    publisher: Publisher,
    /// The kernel does not report all that is set of cgroups.
    polls_cgroups: bool,
    /// On the command line, and what this machine makes of it now.
    asked: Tunables,
    tunables: Tunables,
    /// As many as `tunables` says, and the root.
    groups: NonNull<UnsafeCell<group>>,
    /// Cgroups that none was left for, when that was last said.
    lost_groups: u32,
    hotplugs: Hotplugs,
    sampler: Option<Sampler>,
    about: Arc<About>,
    link: Option<Link>,
}

impl<'a> Scheduler<'a> {
    /// Loads the programs, without attaching, for a machine that differs from this one: `change` says how.
    pub fn load_for(
        opts: &Opts,
        object: &'a mut MaybeUninit<OpenObject>,
        change: impl FnOnce(&mut Layout),
    ) -> Result<Self> {
        let builder = BpfSkelBuilder::default();
        let mut skel = scx_ops_open!(builder, object, magpie, opts.libbpf.clone().into_bpf_open_opts())?;
        // scx_utils links in an fentry program. Nothing here needs it, and kernels without function tracing lack it.
        skel.progs.scx_lib_init_probe.set_autoload(false);
        // CPUs may come and go from here on: the program sees which are there when it is attached.
        skel.struct_ops.magpie_mut().hotplug_seq = 0;
        let mut tunables = opts.settings.tunables.clone();
        (tunables.power, tunables.cpufreq) = energy::of_this_machine(&tunables);
        let mut layout = Layout::of_this_machine(tunables.power == Power::Powersave)?;
        change(&mut layout);
        if !tunables.no_cgroups && !compat::struct_has_field("sched_ext_ops", "cgroup_init")? {
            warn!("cgroups do not count: this kernel was built without CONFIG_EXT_GROUP_SCHED");
            tunables.no_cgroups = true;
        }
        skel.progs.decay_cpuperfs.set_autoload(tunables.cpufreq == CpuFreq::On);
        let ops = skel.struct_ops.magpie_mut();
        ops.exit_dump_len = opts.settings.exit_dump_len;
        ops.timeout_ms = opts.settings.tunables.timeout_ms;
        let polls_cgroups = ops::fit(ops, tunables.no_cgroups)?;
        skel.progs.poll_cgroups.set_autoload(polls_cgroups);
        if layout.nr_nodes() < 2 {
            skel.maps.processes.set_max_entries(1)?;
        }
        let possible = Possible { cpus: *NR_CPUS_POSSIBLE, ids: *NR_CPU_IDS };
        memory::tell(&mut skel, &Told::new(&layout, &tunables, possible))?;
        skel.maps.group_ids.set_max_entries(tunables.max_cgroups + 1)?;
        let groups = memory::cut_groups(&mut skel.maps.bss_groups, tunables.max_cgroups + 1)?;

        // scx_ops_load! would refuse a kernel without function tracing.
        uei_set_size!(skel, magpie, uei);
        let skel = skel.load().map_err(|err| match preflight::malformed_btf() {
            Some(refusal) => anyhow!(refusal),
            None => anyhow!(err).context("the kernel refused the BPF programs; -v prints libbpf's reasons"),
        })?;

        Ok(Self {
            skel,
            publisher: Publisher::new(layout.clone(), ScanLimit::from(&opts.settings.tunables)),
            layout,
            polls_cgroups,
            asked: opts.settings.tunables.clone(),
            tunables,
            groups,
            lost_groups: 0,
            hotplugs: Hotplugs::new(),
            sampler: None,
            about: Arc::default(),
            link: None,
        })
    }

    /// Hands the machine's tasks over to the loaded programs. Fails with the kernel's reason if it ends them at once.
    pub fn attach(&mut self) -> Result<()> {
        call(&mut self.skel.progs.register_loader)?;
        self.look_at_frequencies()?;
        let skel = &mut self.skel;
        self.link = Some(scx_ops_attach!(skel, magpie).map_err(preflight::explain)?);
        // For the kernel it is attached, too, if init() or init_task() failed.
        if uei_exited!(&self.skel, uei) {
            self.detach();
            uei_report!(&self.skel, uei)?;
            bail!("the kernel ended it as it started");
        }
        self.about = Arc::new(self.about(monotonic()));
        self.publish()?;
        let attached = format!("attached: {} CPUs, {} LLCs", self.layout.cpus.len(), self.layout.llcs.len());
        info!("{attached}");
        service::ready(&attached);
        self.start_sampler();
        Ok(())
    }

    /// What the kernel takes for the capacities of the CPUs, 0..1024 by id, if that is not what sysfs says: x86 has no file
    /// for it. Only known once attached; the programs are to be loaded anew for a machine that has these.
    pub fn other_capacities(&mut self) -> Result<Option<BTreeMap<usize, usize>>> {
        call(&mut self.skel.progs.note_capacities)?;
        let known = &self.skel.maps.bss_data.as_ref().context("no .bss")?.kernel_capacities;
        // 0: it has just gone.
        let known = self.layout.cpus.keys().map(|&id| (id, known[id] as usize)).filter(|(_, capacity)| *capacity > 0);
        let capacities: BTreeMap<_, _> = known.collect();
        // It may know of none, and the loader of some.
        if capacities.values().min() == capacities.values().max() {
            return Ok(None);
        }
        Ok(capacities.iter().any(|(id, capacity)| self.layout.cpus[id].capacity != *capacity).then_some(capacities))
    }

    /// What it is, with the flags that were asked for.
    fn about(&self, attached_at: Duration) -> About {
        let Tunables { power, cpufreq, .. } = self.asked;
        About::new(&self.layout, &Tunables { power, cpufreq, ..self.tunables.clone() }, attached_at)
    }

    /// Looks at where processes have their memory, where there are several nodes.
    fn start_sampler(&mut self) {
        if self.layout.nr_nodes() < 2 || self.tunables.numa_sample_share == 0 {
            return;
        }
        match self.sampler_of_processes() {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(err) => warn!("memory is not looked at: {err:#}"),
        }
    }

    fn sampler_of_processes(&self) -> Result<Sampler> {
        // The program knows processes by the numbers that they have outside of all containers.
        let ours = self.skel.maps.bss_data.as_ref().context("no .bss")?.loader_tgid;
        ensure!(
            ours == std::process::id() as i32,
            "/proc here has other process numbers than the kernel (a PID namespace)"
        );
        let processes = MapHandle::try_from(&self.skel.maps.processes).context("no map of processes")?;
        Sampler::start(processes, &self.layout, &self.tunables)
    }

    /// Serves until `shutdown` or until the kernel ejects the scheduler, then detaches and reports; or until there is reason to
    /// start anew.
    pub fn run(&mut self, shutdown: &AtomicBool, control: &mut Control) -> Result<Ended> {
        let anew = self.serve(shutdown, control);
        if let Ok(Some(anew)) = anew {
            return Ok(anew);
        }
        self.detach();
        let report = uei_report!(&self.skel, uei)?;
        anew.map(|_| Ended::Exit(report))
    }

    /// The kernel's own scheduler takes over, or the next one attached.
    pub fn detach(&mut self) {
        self.link.take();
        self.sampler.take();
    }

    /// A reason to start anew; none if it is over.
    fn serve(&mut self, shutdown: &AtomicBool, control: &mut Control) -> Result<Option<Ended>> {
        let mut server = stats::Server::launch(stats::SOCKET.as_ref());
        let mut watchdog = Watchdog::from_env();
        let mut publish_at = Instant::now();
        let mut energy_at = publish_at + energy::INTERVAL;
        let mut cgroups_at = publish_at + CGROUP_INTERVAL;

        while !shutdown.load(Ordering::Relaxed) && !uei_exited!(&self.skel, uei) {
            let now = Instant::now();
            if now >= energy_at {
                if self.is_of_other_energy() {
                    info!("another power profile or frequency governor: starting anew");
                    return Ok(Some(Ended::Outgrown));
                }
                self.look_at_frequencies()?;
                self.warn_of_lost_groups()?;
                energy_at = now + energy::INTERVAL;
            }
            if self.polls_cgroups && now >= cgroups_at {
                call(&mut self.skel.progs.poll_cgroups)?;
                cgroups_at = now + CGROUP_INTERVAL;
            }
            if self.follow_hotplugs(now)? {
                info!("the machine has CPUs that there is no place for: starting anew");
                return Ok(Some(Ended::Outgrown));
            }
            if control.answer(shutdown, |flags| self.set(flags)) {
                return Ok(Some(Ended::Reloaded));
            }
            if now >= publish_at {
                self.publish()?;
                publish_at = now + Duration::from_millis(self.tunables.util_interval);
            }
            server.answer(|| self.snapshot());
            watchdog.pet(now);
            // Waiting on the channel would spin first, which costs more than all the rest.
            thread::sleep(publish_at.saturating_duration_since(now).min(RESPONSE));
        }
        Ok(None)
    }

    /// Says how many cgroups there are too many, once and again when there are more.
    fn warn_of_lost_groups(&mut self) -> Result<()> {
        let shared = memory::shared(&mut self.skel, self.groups, &self.tunables)?;
        if shared.lost_groups > self.lost_groups {
            self.lost_groups = shared.lost_groups;
            let cgroups = stats::cgroups::Snapshot::new(shared.groups, shared.lost_groups);
            let max = self.tunables.max_cgroups;
            // Walking all folders takes its time.
            thread::spawn(move || cgroups.warn_of_lost(max, stats::cgroups::SYS_CGROUP.as_ref()));
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        let shared = memory::shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish(shared.cpu_ctxs, shared.cpu_layouts, shared.llc_publisheds, monotonic());
        if self.tunables.cpufreq == CpuFreq::On {
            call(&mut self.skel.progs.decay_cpuperfs)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        call(&mut self.skel.progs.sample_queues)?;
        let shared = memory::shared(&mut self.skel, self.groups, &self.tunables)?;
        let now = monotonic();
        let sum_util = self.publisher.sum_util(shared.cpu_ctxs, now);
        let sampler = self.sampler.as_ref().map(|sampler| sampler.costs.as_ref());
        let snapshot = Snapshot::new(&self.layout, &shared, &sum_util, sampler, now);
        Ok(Snapshot { about: self.about.clone(), ..snapshot })
    }
}

/// Runs a `SEC("syscall")` program, here and now.
fn call(prog: &mut ProgramMut<'_>) -> Result<()> {
    call_with(prog, None)
}

/// The same, with its argument.
fn call_with(prog: &mut ProgramMut<'_>, context_in: Option<&mut [u8]>) -> Result<()> {
    let name = prog.name().to_string_lossy().into_owned();
    let out = prog
        .test_run(ProgramInput { context_in, ..ProgramInput::default() })
        .with_context(|| format!("cannot run {name}"))?;
    ensure!(out.return_value == 0, "{name} failed: {}", out.return_value as i32);
    Ok(())
}
