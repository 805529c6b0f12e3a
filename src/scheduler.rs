// SPDX-License-Identifier: GPL-2.0-only
//! The BPF program's life: load, attach, serve it while it runs, detach and report.
//!
//! ```text
//! open -> tell it machine and tunables (Told) -> load -> register_loader -> attach
//!   run: publish sum_util each interval, answer statistics, give CPUs that come a place, watch for its exit
//! detach -> the kernel's exit reason and dump
//! ```

use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{AsRawLibbpf, Link, MapHandle, OpenMapMut, OpenObject, ProgramInput, ProgramMut, libbpf_sys};
use log::{debug, info, warn};
use scx_utils::{
    NR_CPU_IDS, NR_CPUS_POSSIBLE, UserExitInfo, compat, scx_ops_attach, scx_ops_open, uei_exited, uei_report,
    uei_set_size,
};

use crate::bpf_intf::{
    capacities, cpu_ctx, cpu_layout, group, latency_hist, llc_layout, llc_published, loss, placed_cpu, tunables,
    wake_cases,
};
use crate::bpf_skel::*;
use crate::cli::{CpuFreq, Opts, Power, Tunables};
use crate::control::Control;
use crate::frequency;
use crate::hotplug;
use crate::nr_scan::ScanLimit;
use crate::numa::Sampler;
use crate::power;
use crate::preflight;
use crate::publisher::{self, Publisher, monotonic};
use crate::service::{self, Watchdog};
use crate::stats::{self, About, Shared, Snapshot};
use crate::told::{Live, Possible, Told};
use crate::topology::Layout;

/// How long Ctrl-C, an ejection or a request for statistics waits at most.
const RESPONSE: Duration = Duration::from_millis(50);

/// How often frequency clamps are looked at: users and daemons set them, seldom.
const FREQUENCY_INTERVAL: Duration = Duration::from_secs(1);

/// How often cgroups are looked at, where the kernel does not report all that is set of them.
const CGROUP_INTERVAL: Duration = Duration::from_millis(100);

/// When sysfs is read once more that was changing.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Why a scheduler does not serve any more.
pub enum Ended {
    /// It is detached.
    Exit(UserExitInfo),
    /// CPUs came for which it has no place, or it was made for another power profile or governor. It is still attached.
    Outgrown,
    /// It is to start anew with another configuration. It is still attached.
    Reloaded,
}

/// CPUs that came and went.
struct Hotplugs {
    /// How many the program had seen at the last look.
    seen: u64,
    at: Instant,
    /// When to look at the machine.
    look_at: Option<Instant>,
    outgrown: bool,
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
    /// Loads the programs, without attaching.
    pub fn load(opts: &Opts, object: &'a mut MaybeUninit<OpenObject>) -> Result<Self> {
        Self::load_for(opts, object, |_| ())
    }

    /// The same for a machine that differs from this one: `change` says how.
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
        (tunables.power, tunables.cpufreq) = energy(&tunables);
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
        if reenqueues_from_anywhere()? {
            // The program does it in stopping(), and the kernel would warn.
            ops.cpu_release = ptr::null_mut();
        }
        let polls_cgroups = fit_cgroup_ops(ops, tunables.no_cgroups)?;
        skel.progs.poll_cgroups.set_autoload(polls_cgroups);
        if layout.nr_nodes() < 2 {
            skel.maps.processes.set_max_entries(1)?;
        }
        let possible = Possible { cpus: *NR_CPUS_POSSIBLE, ids: *NR_CPU_IDS };
        tell(&mut skel, &Told::new(&layout, &tunables, possible))?;
        skel.maps.group_ids.set_max_entries(tunables.max_cgroups + 1)?;
        let groups = cut_groups(&mut skel.maps.bss_groups, tunables.max_cgroups + 1)?;

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
            hotplugs: Hotplugs { seen: 0, at: Instant::now(), look_at: Some(Instant::now()), outgrown: false },
            sampler: None,
            about: Arc::default(),
            link: None,
        })
    }

    /// Hands the machine's tasks over to the loaded programs.
    pub fn attach(&mut self) -> Result<()> {
        call(&mut self.skel.progs.register_loader)?;
        self.look_at_frequencies()?;
        let skel = &mut self.skel;
        self.link = Some(scx_ops_attach!(skel, magpie)?);
        self.about = Arc::new(self.about(monotonic()));
        self.publish()?;
        let attached = format!("attached: {} CPUs, {} LLCs", self.layout.cpus.len(), self.layout.llcs.len());
        info!("{attached}");
        service::ready(&attached);
        self.start_sampler()
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

    /// Changes what may change while it runs; all else in `flags` is as it was.
    pub fn set(&mut self, flags: &Tunables) -> Result<()> {
        let maps = &mut self.skel.maps;
        let bss = maps.bss_data.as_mut().context("no .bss")?;
        let bss_tunables = maps.bss_tunables_data.as_mut().context("no .bss.tunables")?;
        // SAFETY: pairs made from the same C structs, which hold integers only.
        let live = unsafe {
            let tunables = &twins::<_, tunables>(slice::from_mut(&mut bss_tunables.tunables))[0];
            Live { tunables, llc_layouts: twins(&mut bss.llc_layouts) }
        };
        live.set(&self.layout, flags);
        self.publisher.set_limit(ScanLimit::from(flags));
        let sampling = |flags: &Tunables| (flags.numa_sample_share, flags.numa_sample_ms);
        let resampled = sampling(flags) != sampling(&self.tunables);
        // The kernel may have no cgroups for us, and the machine says what `auto` is.
        let Tunables { no_cgroups, power, cpufreq, .. } = self.tunables;
        self.tunables = Tunables { no_cgroups, power, cpufreq, ..flags.clone() };
        self.asked = flags.clone();
        self.about = Arc::new(self.about(self.about.attached_at));
        if resampled {
            self.sampler.take();
            self.start_sampler()?;
        }
        Ok(())
    }

    /// What it is, with the flags that were asked for.
    fn about(&self, attached_at: Duration) -> About {
        let Tunables { power, cpufreq, .. } = self.asked;
        About::new(&self.layout, &Tunables { power, cpufreq, ..self.tunables.clone() }, attached_at)
    }

    /// Looks at where processes have their memory, where there are several nodes.
    fn start_sampler(&mut self) -> Result<()> {
        if self.layout.nr_nodes() < 2 || self.tunables.numa_sample_share == 0 {
            return Ok(());
        }
        // The program knows processes by the numbers that they have outside of all containers.
        let ours = self.skel.maps.bss_data.as_ref().context("no .bss")?.loader_tgid;
        if ours != std::process::id() as i32 {
            warn!("memory is not looked at: /proc here has other process numbers than the kernel (a PID namespace)");
            return Ok(());
        }
        let processes = MapHandle::try_from(&self.skel.maps.processes).context("no map of processes")?;
        self.sampler = Some(Sampler::start(processes, &self.layout, &self.tunables)?);
        Ok(())
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
        self.sampler.take();
        self.link.take();
    }

    /// A reason to start anew; none if it is over.
    fn serve(&mut self, shutdown: &AtomicBool, control: &mut Control) -> Result<Option<Ended>> {
        let mut server = stats::Server::launch(stats::SOCKET.as_ref());
        let mut watchdog = Watchdog::from_env();
        let mut publish_at = Instant::now();
        let mut frequencies_at = publish_at + FREQUENCY_INTERVAL;
        let mut cgroups_at = publish_at + CGROUP_INTERVAL;

        while !shutdown.load(Ordering::Relaxed) && !uei_exited!(&self.skel, uei) {
            let now = Instant::now();
            if now >= frequencies_at {
                let (power, cpufreq) = energy(&self.asked);
                if (power, cpufreq) != (self.tunables.power, self.tunables.cpufreq) {
                    info!("another power profile or frequency governor: starting anew");
                    return Ok(Some(Ended::Outgrown));
                }
                self.look_at_frequencies()?;
                self.warn_of_lost_groups()?;
                frequencies_at = now + FREQUENCY_INTERVAL;
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

    /// CPUs that came get a place. True: there is none for them, and no other has come or gone since.
    fn follow_hotplugs(&mut self, now: Instant) -> Result<bool> {
        let seen = self.nr_hotplugs()?;
        if seen != self.hotplugs.seen {
            self.hotplugs = Hotplugs { seen, at: now, look_at: Some(now), outgrown: self.hotplugs.outgrown };
        }
        if self.hotplugs.look_at.is_some_and(|at| at <= now) {
            self.hotplugs.look_at = Some(now + LOOK_AGAIN);
            // While CPUs come and go, files do.
            match Layout::read(self.tunables.power == Power::Powersave) {
                Ok(Ok(fresh)) if self.nr_hotplugs()? == seen => {
                    self.hotplugs.look_at = None;
                    let shared = shared(&mut self.skel, self.groups, &self.tunables)?;
                    let came = self.layout.follow(&fresh, |cpu| publisher::is_online(shared.cpu_layouts, cpu));
                    self.hotplugs.outgrown = came.is_none();
                    self.place(&came.unwrap_or_default())?;
                }
                Ok(Ok(_)) => debug!("CPUs came or went while sysfs was read"),
                Ok(Err(problem)) => debug!("{problem}"),
                Err(err) => debug!("{err:#}"),
            }
        }
        Ok(self.hotplugs.outgrown && now - self.hotplugs.at >= hotplug::QUIET)
    }

    fn nr_hotplugs(&self) -> Result<u64> {
        Ok(self.skel.maps.bss_data.as_ref().context("no .bss")?.nr_hotplugs)
    }

    /// Tells the program where CPUs stand that have come, and then that it may use them.
    fn place(&mut self, cpus: &[usize]) -> Result<()> {
        for &cpu in cpus {
            let place = &self.layout.cpus[&cpu];
            let bss = self.skel.maps.bss_data.as_mut().context("no .bss")?;
            // SAFETY: pairs made from the same C structs, which hold integers only.
            let (cpu_layouts, llc_layouts) =
                unsafe { (twins::<_, cpu_layout>(&mut bss.cpu_layouts), twins::<_, llc_layout>(&mut bss.llc_layouts)) };
            // SAFETY: plain words in valid memory. Of the CPU's nobody reads but the state, which is the program's: the CPU may
            // come online meanwhile.
            unsafe {
                let (to, from) = (cpu_layouts[cpu].get(), cpu_layout::from(place));
                (&raw mut (*to).llc).write_volatile(from.llc);
                (&raw mut (*to).node).write_volatile(from.node);
                (&raw mut (*to).slot).write_volatile(from.slot);
                (&raw mut (*to).capacity).write_volatile(from.capacity);
                (&raw mut (*to).rank).write_volatile(from.rank);
                (&raw mut (*to).scan_from).write_volatile(from.scan_from);
                let nr_slots = self.layout.llcs[place.llc].nr_slots as u32;
                (&raw mut (*llc_layouts[place.llc].get()).nr_slots).write_volatile(nr_slots);
            }
            bss.slot_cpus[place.slot] = cpu as u16;
            self.publisher.set_layout(&self.layout);
            let mut args = placed_cpu { cpu: cpu as i32 };
            // SAFETY: an integer.
            let bytes = unsafe { slice::from_raw_parts_mut((&raw mut args).cast(), size_of_val(&args)) };
            call_with(&mut self.skel.progs.place_cpu, Some(bytes))?;
            info!("CPU {cpu} came, in LLC {}", place.llc);
        }
        Ok(())
    }

    fn look_at_frequencies(&mut self) -> Result<()> {
        self.publisher.set_reachable(|cpu, capacity| frequency::reachable(frequency::SYS_CPU.as_ref(), cpu, capacity));
        let shared = shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish_capacities(shared.capacities, shared.losses);
        Ok(())
    }

    /// Says how many cgroups there are too many, once and again when there are more.
    fn warn_of_lost_groups(&mut self) -> Result<()> {
        let shared = shared(&mut self.skel, self.groups, &self.tunables)?;
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
        let asym = is_asym(&self.skel)?;
        if asym {
            call(&mut self.skel.progs.note_losses)?;
        }
        let shared = shared(&mut self.skel, self.groups, &self.tunables)?;
        self.publisher.publish(shared.cpu_ctxs, shared.cpu_layouts, shared.llc_publisheds, monotonic());
        if asym {
            self.publisher.publish_capacities(shared.capacities, shared.losses);
        }
        if self.tunables.cpufreq == CpuFreq::On {
            call(&mut self.skel.progs.decay_cpuperfs)?;
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot> {
        call(&mut self.skel.progs.sample_queues)?;
        let shared = shared(&mut self.skel, self.groups, &self.tunables)?;
        let now = monotonic();
        let sum_util = self.publisher.sum_util(shared.cpu_ctxs, now);
        let sampler = self.sampler.as_ref().map(|sampler| sampler.costs.as_ref());
        let snapshot = Snapshot::new(&self.layout, &shared, &sum_util, sampler, now);
        Ok(Snapshot { about: self.about.clone(), ..snapshot })
    }
}

/// May scx_bpf_reenqueue_local(), or its successor, be called outside of ops.cpu_release()? From 6.19 on.
fn reenqueues_from_anywhere() -> Result<bool> {
    Ok(compat::ksym_exists("scx_bpf_reenqueue_local___v2")? || compat::ksym_exists("scx_bpf_dsq_reenq")?)
}

/// --power and --cpufreq, for this machine as it is now: neither is Auto.
fn energy(asked: &Tunables) -> (Power, CpuFreq) {
    let power = power::profile("/".as_ref(), asked.power);
    let follows = frequency::follows(frequency::SYS_CPU.as_ref(), asked.cpufreq, power);
    (power, if follows { CpuFreq::On } else { CpuFreq::Off })
}

/// Leaves out the callbacks that are not wanted, and those that this kernel would refuse for it has no such thing.
/// True if any of the latter would have told of cgroups.
fn fit_cgroup_ops(ops: &mut types::sched_ext_ops, no_cgroups: bool) -> Result<bool> {
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
    info!("this kernel does not report changes of {}: looking ten times a second", missing.join(" and "));
    Ok(true)
}

/// Cuts the program's array of groups to `nr`, and returns it: the memory stays where it is when the program is loaded. libbpf-rs
/// has no calls for that.
fn cut_groups(map: &mut OpenMapMut<'_>, nr: u32) -> Result<NonNull<UnsafeCell<group>>> {
    let map = map.as_libbpf_object().as_ptr();
    let mut size = 0;
    // SAFETY: an open map that is not loaded.
    let (err, value) = unsafe {
        let err = libbpf_sys::bpf_map__set_value_size(map, nr * size_of::<group>() as u32);
        (err, libbpf_sys::bpf_map__initial_value(map, &raw mut size))
    };
    ensure!(err == 0, "cannot make room for {nr} cgroups: {}", std::io::Error::from_raw_os_error(-err));
    NonNull::new(value.cast())
        .filter(|_| size as usize == nr as usize * size_of::<group>())
        .context("no map of cgroups")
}

/// Tells the program, through the memory it will load with.
fn tell(skel: &mut OpenBpfSkel<'_>, told: &Told) -> Result<()> {
    let rodata = skel.maps.rodata_data.as_mut().context("no .rodata in the BPF object")?;
    let bss = skel.maps.bss_data.as_mut().context("no .bss in the BPF object")?;
    let bss_tunables = skel.maps.bss_tunables_data.as_mut().context("no .bss.tunables in the BPF object")?;
    // SAFETY: pairs made from the same C structs, which hold integers only.
    unsafe {
        copy_twins(slice::from_mut(&mut rodata.machine), slice::from_ref(&told.machine));
        copy_twins(slice::from_mut(&mut bss_tunables.tunables), slice::from_ref(&told.tunables));
        copy_twins(&mut bss.cpu_layouts, &told.cpu_layouts);
        copy_twins(&mut bss.llc_layouts, &told.llc_layouts);
    }
    bss.slot_cpus.copy_from_slice(&told.slot_cpus);
    rodata.node_llcs.copy_from_slice(&told.node_llcs);
    rodata.capacity_order.copy_from_slice(&told.capacity_order);
    rodata.pelt_decay = told.pelt_decay;
    Ok(())
}

/// Does the program tell CPUs by their capacity?
fn is_asym(skel: &BpfSkel<'_>) -> Result<bool> {
    Ok(skel.maps.rodata_data.as_ref().context("no .rodata")?.machine.asym != 0)
}

/// What the loader reads and writes while the program runs.
fn shared<'a>(
    skel: &'a mut BpfSkel<'_>,
    groups: NonNull<UnsafeCell<group>>,
    tunables: &Tunables,
) -> Result<Shared<'a>> {
    let counts_wake_cases = is_asym(skel)?;
    let skel = skel.maps.bss_data.as_mut().context("no .bss")?;
    // SAFETY: pairs made from the same C structs, which hold integers only; cut_groups() made the groups so many.
    Ok(unsafe {
        Shared {
            cpu_ctxs: twins::<_, cpu_ctx>(&mut skel.cpu_ctxs),
            cpu_layouts: twins::<_, cpu_layout>(&mut skel.cpu_layouts),
            llc_publisheds: twins::<_, llc_published>(&mut skel.llc_publisheds),
            latency_hists: twins::<_, latency_hist>(&mut skel.latency_hists),
            groups: slice::from_raw_parts(groups.as_ptr(), skel.max_group.min(tunables.max_cgroups) as usize + 1),
            lost_groups: skel.lost_groups,
            capacities: &twins::<_, capacities>(slice::from_mut(&mut skel.capacities))[0],
            losses: twins::<_, loss>(&mut skel.losses),
            wake_cases: counts_wake_cases.then_some(twins::<_, wake_cases>(&mut skel.wake_cases)),
        }
    })
}

/// Copies C values of the type that Rust knows as `S` from `bpf_intf` and as `D` from the skeleton.
///
/// # Safety
///
/// `S` and `D` are made from the same C type, of which all bit patterns are valid.
unsafe fn copy_twins<S, D>(to: &mut [D], from: &[S]) {
    const { assert!(size_of::<S>() == size_of::<D>()) };
    assert_eq!(to.len(), from.len());
    // SAFETY: both are as long, by the assertions; what the bytes mean is the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.as_mut_ptr().cast(), size_of_val(from)) };
}

/// C values that Rust knows as `S` from the skeleton, as the `D` that they are in `bpf_intf`; in cells, for the BPF
/// program has them at hand too.
///
/// # Safety
///
/// `S` and `D` are made from the same C type, of which all bit patterns are valid.
unsafe fn twins<S, D>(array: &mut [S]) -> &[UnsafeCell<D>] {
    const { assert!(size_of::<S>() == size_of::<D>()) };
    let twins: *mut UnsafeCell<D> = array.as_mut_ptr().cast();
    // The skeleton's types are not aligned as the C is, but its memory is.
    assert!(twins.is_aligned());
    // SAFETY: borrowed from `array`, with its length; what the bytes mean is the caller's promise.
    unsafe { slice::from_raw_parts(twins, array.len()) }
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
