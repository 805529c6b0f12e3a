// SPDX-License-Identifier: GPL-2.0-only
//! Life of the BPF program: load, attach, serve while it runs, detach and report.
//!
//! ```text
//! open -> set machine and tunables (BpfConfig) -> load -> register_loader -> attach
//!   serve: publish sum_util each interval, answer statistics, place new CPUs, watch for the exit
//! detach -> the kernel's exit reason and dump
//!
//! ops.rs        callbacks that this kernel has        live.rs       set, reload, CPU hotplug
//! variables.rs  the program's variables               exit_info.rs  the kernel's reason to end it
//! jump.rs       a clock that jumps
//! ```

mod exit_info;
mod jump;
mod live;
mod ops;
mod variables;

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapHandle, OpenObject, ProgramInput, ProgramMut};
use log::{info, warn};
use scx_utils::{NR_CPU_IDS, NR_CPUS_POSSIBLE, compat, scx_ops_attach, scx_ops_open};

use crate::bpf_config::{BpfConfig, Possible};
use crate::bpf_intf::group;
use crate::bpf_skel::*;
use crate::cgroup_mode;
use crate::cli::Opts;
use crate::control::Control;
use crate::energy::{self, Policies};
use crate::hotplug::Hotplugs;
use crate::nr_scan::ScanLimit;
use crate::numa::Sampler;
use crate::preflight;
use crate::publisher::{Publisher, monotonic};
use crate::service::{self, Watchdog};
use crate::shared::{Access, load, part};
use crate::stats::{self, About, Snapshot};
use crate::topology::Layout;
use crate::tunables::{CpuFreq, Power, Tunables};
use exit_info::{Dump, Exit};
use jump::Clock;

/// Longest time until Ctrl-C, an ejection or a request for statistics is noticed.
const RESPONSE: Duration = Duration::from_millis(50);

/// Exists if the kernel has autogroups, whether they are enabled or not.
const AUTOGROUP: &str = "/proc/sys/kernel/sched_autogroup_enabled";

/// How often the program polls facts about cgroups that the kernel does not report.
const CGROUP_INTERVAL: Duration = Duration::from_millis(100);

/// Percentage of --max-cgroups above which a warning is logged.
const NEARLY_ALL: u64 = 90;

/// Why `serve()` returned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Served {
    /// A shutdown was requested, or the kernel has ended the program.
    Over,
    /// Configuration or machine have changed. The program is still attached.
    Outdated,
}

/// A loaded scheduler, attached while `link` is held.
pub struct Scheduler<'a> {
    pub skel: BpfSkel<'a>,
    layout: Layout,
    publisher: Publisher,
    /// The flags as requested, and as resolved for this machine.
    asked: Tunables,
    tunables: Tunables,
    /// `tunables.max_cgroups` groups, and the root.
    groups: NonNull<UnsafeCell<group>>,
    /// Number of cgroups without a group at the last warning, and the thread that logs warnings.
    lost_groups: u32,
    lost_warner: Option<SyncSender<stats::cgroups::Snapshot>>,
    has_warned_of_few: bool,
    hotplugs: Hotplugs,
    policies: Policies,
    energy: energy::Watch,
    /// Changes of the machine before this time are ignored.
    outdated_from: Instant,
    sampler: Option<Sampler>,
    about: Arc<About>,
    clock: Clock,
    dump: Dump,
    link: Option<Link>,
}

impl<'a> Scheduler<'a> {
    /// Load the programs without attaching them. `change` modifies this machine's layout first.
    pub fn load_for(
        opts: &Opts,
        object: &'a mut MaybeUninit<OpenObject>,
        change: impl FnOnce(&mut Layout),
    ) -> Result<Self> {
        let builder = BpfSkelBuilder::default();
        let mut skel = scx_ops_open!(builder, object, magpie, opts.libbpf.clone().into_bpf_open_opts())?;
        // scx_utils links in this fentry program. Kernels without function tracing refuse it.
        skel.progs.scx_lib_init_probe.set_autoload(false);
        // Hotplug until the attach is no error: the program checks then which CPUs are online.
        skel.struct_ops.magpie_mut().hotplug_seq = 0;
        let mut tunables = opts.settings.tunables.clone();
        let policies = energy::policies();
        (tunables.power, tunables.cpufreq) = energy::of_this_machine(&tunables, &policies);
        tunables.cgroup_mode = cgroup_mode::of_this_machine(tunables.cgroup_mode);
        let mut layout = Layout::of_this_machine(tunables.power == Power::Powersave)?;
        change(&mut layout);
        if !tunables.no_cgroups && !compat::struct_has_field("sched_ext_ops", "cgroup_init")? {
            warn!("cgroups are ignored: this kernel was built without CONFIG_EXT_GROUP_SCHED");
            tunables.no_cgroups = true;
        }
        skel.progs.decay_cpuperfs.set_autoload(tunables.cpufreq == CpuFreq::On);
        let ops = skel.struct_ops.magpie_mut();
        ops.exit_dump_len = opts.settings.exit_dump_len;
        ops.timeout_ms = opts.settings.tunables.timeout_ms;
        let polls_cgroups = ops::fit(ops, tunables.no_cgroups)?;
        skel.progs.poll_groups.set_autoload(!tunables.no_cgroups);
        if layout.nr_nodes() < 2 {
            skel.maps.processes.set_max_entries(1)?;
        }
        let possible = Possible { cpus: *NR_CPUS_POSSIBLE, ids: *NR_CPU_IDS };
        let mut bpf_config = BpfConfig::new(&layout, &tunables, possible);
        bpf_config.machine.polls_cgroups = polls_cgroups.into();
        bpf_config.machine.autogroups = (!tunables.no_cgroups && Path::new(AUTOGROUP).exists()).into();
        variables::tell(&mut skel, &bpf_config)?;
        skel.maps.group_ids.set_max_entries(tunables.max_cgroups + 1)?;
        let groups = variables::cut_groups(&mut skel.maps.bss_groups, tunables.max_cgroups + 1)?;
        if !tunables.no_cgroups {
            let megabytes = (tunables.max_cgroups as usize + 1) * size_of::<group>() / 1_000_000;
            info!("memory for {} cgroups: {megabytes} MB", tunables.max_cgroups);
        }

        let dump = Dump::make_room(&mut skel, opts.settings.exit_dump_len)?;
        // scx_ops_load! would refuse a kernel without function tracing.
        let skel = skel.load().map_err(|err| match preflight::malformed_btf() {
            Some(refusal) => anyhow!(refusal),
            None => anyhow!(err).context("the kernel refused to load the BPF programs (-v prints libbpf's messages)"),
        })?;

        Ok(Self {
            skel,
            publisher: Publisher::new(layout.clone(), ScanLimit::from(&opts.settings.tunables)),
            layout,
            asked: opts.settings.tunables.clone(),
            tunables,
            groups,
            lost_groups: 0,
            lost_warner: None,
            has_warned_of_few: false,
            hotplugs: Hotplugs::default(),
            policies,
            energy: energy::Watch::default(),
            outdated_from: Instant::now(),
            sampler: None,
            about: Arc::default(),
            clock: Clock::new(),
            dump,
            link: None,
        })
    }

    /// Attach the loaded programs. Fails with the kernel's reason if it ends them immediately.
    pub fn attach(&mut self) -> Result<()> {
        call(&mut self.skel.progs.register_loader)?;
        self.publish_limits()?;
        let skel = &mut self.skel;
        self.link = Some(scx_ops_attach!(skel, magpie).map_err(|err| preflight::explain(err, false))?);
        // The kernel reports it as attached even if init() or init_task() failed.
        if Exit::has_happened(&self.skel) {
            let exit = self.end()?;
            exit.print_dump();
            exit.check()?;
            bail!("the kernel ejected the scheduler as it was attached: {exit}");
        }
        self.about = Arc::new(self.about(monotonic()));
        self.publish()?;
        let attached = format!("attached: {} CPUs, {} LLCs", self.layout.cpus.len(), self.layout.llcs.len());
        info!("{attached}");
        service::ready(&attached);
        self.lost_warner = Some(stats::cgroups::start_warner(self.tunables.max_cgroups));
        self.start_sampler();
        Ok(())
    }

    /// Return the kernel's capacities, 0..1024 by CPU id, if they differ from the layout's: x86 has
    /// no file for them. They are known only while attached; the caller then loads again.
    pub fn other_capacities(&mut self) -> Result<Option<BTreeMap<usize, usize>>> {
        call(&mut self.skel.progs.read_capacities)?;
        let known = &self.skel.maps.bss_data.as_ref().context("no .bss")?.kernel_capacities;
        // 0: the CPU has just been removed.
        let known = self.layout.cpus.keys().map(|&id| (id, known[id] as usize)).filter(|(_, capacity)| *capacity > 0);
        let capacities: BTreeMap<_, _> = known.collect();
        // The kernel may know of no differences where the loader does.
        if capacities.values().min() == capacities.values().max() {
            return Ok(None);
        }
        Ok(capacities.iter().any(|(id, capacity)| self.layout.cpus[id].capacity != *capacity).then_some(capacities))
    }

    /// Describe the scheduler, with the flags as requested, except that it may lack cgroups.
    fn about(&self, attached_at: Duration) -> About {
        let no_cgroups = self.tunables.no_cgroups;
        About::new(&self.layout, &Tunables { no_cgroups, ..self.asked.clone() }, &self.tunables, attached_at)
    }

    /// Start the thread that samples where processes have their memory, if there are several nodes.
    /// The thread sleeps while --numa-sample-share is 0, so that serve() never starts one.
    fn start_sampler(&mut self) {
        if self.layout.nr_nodes() < 2 {
            return;
        }
        match self.sampler_of_processes() {
            Ok(sampler) => self.sampler = Some(sampler),
            Err(_) if self.tunables.numa_sample_share == 0 => {}
            Err(err) => warn!("NUMA memory is not sampled: {err:#}"),
        }
    }

    fn sampler_of_processes(&self) -> Result<Sampler> {
        // The program identifies processes by their ids in the initial PID namespace.
        let ours = self.skel.maps.bss_data.as_ref().context("no .bss")?.loader_tgid;
        ensure!(
            ours == std::process::id() as i32,
            "the process ids in /proc are not those of the kernel (a PID namespace)"
        );
        let processes = MapHandle::try_from(&self.skel.maps.processes).context("no map of processes")?;
        Sampler::start(processes, &self.layout, &self.tunables)
    }

    /// Detach the program, if the kernel has not yet. Another scheduler takes over.
    pub fn end(&mut self) -> Result<Exit> {
        self.link.take();
        self.sampler.take();
        self.lost_warner.take();
        Exit::read(&self.skel, &self.dump)
    }

    /// Return how far the clock has jumped, if that is why the kernel ended the program with `exit`.
    pub fn jump(&mut self, exit: &Exit) -> Option<Duration> {
        let timeout = Duration::from_millis(self.tunables.timeout_ms.into());
        let shared = variables::shared(&mut self.skel, self.groups, &self.tunables).ok()?;
        let stood_still = shared.cpu_ctxs.iter().map(|cctx| part!(cctx, stood_still).load()).max();
        let jump = self.clock.jump(timeout, Duration::from_nanos(stood_still.unwrap_or_default()));
        jump.filter(|_| exit.is_by_watchdog())
    }

    /// Ignore changes of the machine for the time `pause`.
    pub fn put_off(&mut self, pause: Duration) {
        self.outdated_from = Instant::now() + pause;
    }

    /// Serve until `shutdown`, until the kernel ends the program, or until a change of
    /// configuration or machine needs a reload.
    pub fn serve(&mut self, shutdown: &AtomicBool, control: &mut Control, watchdog: &mut Watchdog) -> Result<Served> {
        self.clock = Clock::new();
        let mut server = stats::Server::launch(stats::SOCKET.as_ref());
        let mut publish_at = Instant::now();
        let mut energy_at = publish_at + energy::INTERVAL;
        let mut cgroups_at = publish_at + CGROUP_INTERVAL;

        while !shutdown.load(Ordering::Relaxed) && !Exit::has_happened(&self.skel) {
            let now = Instant::now();
            if now >= energy_at {
                self.policies.refresh();
                let loaded = (self.tunables.power, self.tunables.cpufreq);
                let seen = energy::of_this_machine(&self.asked, &self.policies);
                if self.energy.has_changed(loaded, seen, now) && now >= self.outdated_from {
                    info!("the power profile or the frequency governor has changed: loading the scheduler again");
                    return Ok(Served::Outdated);
                }
                self.publish_limits()?;
                self.follow_cgroup_mode()?;
                let nr_groups = self.nr_groups()?;
                let core_scheduling = ask(&mut self.skel.progs.core_sched, None)? != 0;
                control.note(nr_groups, cgroup_mode::describe(self.tunables.cgroup_mode), core_scheduling);
                self.warn_of_few_groups(nr_groups);
                self.warn_of_lost_groups()?;
                self.clock.note();
                energy_at = now + energy::INTERVAL;
            }
            if !self.tunables.no_cgroups && now >= cgroups_at {
                call(&mut self.skel.progs.poll_groups)?;
                cgroups_at = now + CGROUP_INTERVAL;
            }
            if self.follow_hotplugs(now)? && now >= self.outdated_from {
                info!("CPUs have appeared that do not fit the topology: loading the scheduler again");
                return Ok(Served::Outdated);
            }
            if control.answer(shutdown, |flags| self.set(flags)) {
                return Ok(Served::Outdated);
            }
            if now >= publish_at {
                self.publish()?;
                publish_at = now + Duration::from_millis(self.tunables.util_interval);
            }
            server.answer(|| self.snapshot());
            watchdog.pet(now);
            // recv_timeout() on the channel would spin first, which costs more than this loop.
            self.clock.sleep(publish_at.saturating_duration_since(now).min(RESPONSE));
        }
        Ok(Served::Over)
    }

    /// Return the number of cgroups that have a share of their own.
    fn nr_groups(&self) -> Result<u32> {
        Ok(load(&self.skel.maps.bss_data.as_ref().context("no .bss")?.nr_groups))
    }

    /// Warn once when few groups are left for new cgroups.
    fn warn_of_few_groups(&mut self, nr: u32) {
        let max = self.tunables.max_cgroups;
        if !self.has_warned_of_few && u64::from(nr) * 100 >= u64::from(max) * NEARLY_ALL {
            self.has_warned_of_few = true;
            warn!(
                "{nr} of at most {max} cgroups are in use (--max-cgroups): cpu.weight, cpu.max and cpu.idle of those beyond \
                 it will be ignored"
            );
        }
    }

    /// Log the number of cgroups without a group: once, and again when it has risen.
    fn warn_of_lost_groups(&mut self) -> Result<()> {
        let shared = variables::shared(&mut self.skel, self.groups, &self.tunables)?;
        if shared.lost_groups > self.lost_groups {
            self.lost_groups = shared.lost_groups;
            let cgroups = stats::cgroups::Snapshot::new(shared.groups, shared.lost_groups);
            // Dropped if the thread is busy: the next warning includes these cgroups.
            _ = self.lost_warner.as_ref().map(|warner| warner.try_send(cgroups));
        }
        Ok(())
    }

    fn publish(&mut self) -> Result<()> {
        let shared = variables::shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish(shared.cpu_ctxs, shared.cpu_layouts, shared.llc_publisheds, monotonic());
        if self.tunables.cpufreq == CpuFreq::On {
            call(&mut self.skel.progs.decay_cpuperfs)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        call(&mut self.skel.progs.sample_queues)?;
        let shared = variables::shared(&mut self.skel, self.groups, &self.tunables)?;
        let now = monotonic();
        let sum_util = self.publisher.sum_util(shared.cpu_ctxs, now);
        let sampler = self.sampler.as_ref().map(|sampler| sampler.costs.as_ref());
        let snapshot = Snapshot::new(&self.layout, &shared, &sum_util, sampler, now);
        Ok(Snapshot { about: self.about.clone(), ..snapshot })
    }
}

/// Run a `SEC("syscall")` program synchronously on this CPU.
fn call(prog: &mut ProgramMut<'_>) -> Result<()> {
    call_with(prog, None)
}

/// Run a `SEC("syscall")` program with an argument. Fails if the program does not return 0.
fn call_with(prog: &mut ProgramMut<'_>, context_in: Option<&mut [u8]>) -> Result<()> {
    let returned = ask(prog, context_in)?;
    ensure!(returned == 0, "{} failed: {returned}", prog.name().to_string_lossy());
    Ok(())
}

/// Run a `SEC("syscall")` program, and return what it returns.
fn ask(prog: &mut ProgramMut<'_>, context_in: Option<&mut [u8]>) -> Result<i32> {
    let input = ProgramInput { context_in, ..ProgramInput::default() };
    let out = prog.test_run(input).with_context(|| format!("cannot run {}", prog.name().to_string_lossy()))?;
    Ok(out.return_value as i32)
}
