// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie record`: some seconds of this machine as a trace for Perfetto.
//!
//! ```text
//! bpf/record.bpf.c --a ring buffer for each CPU--> Recorder --timeline.rs--> writer.rs --proto.rs--> FILE
//! ```
//!
//! The simulator writes its traces with the same writer.rs.

mod proto;
#[cfg(test)]
mod tests;
pub mod timeline;
pub mod writer;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::BufWriter;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, RingBuffer, RingBufferBuilder, libbpf_sys};
use log::info;
use nix::sys::utsname::uname;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use crate::bpf_intf::record_event;
use crate::preflight;
use crate::record_skel::{RecordSkel, RecordSkelBuilder};
use crate::shared::load;
use crate::stats::cgroups::{self, SYS_CGROUP};
use crate::topology::Layout;
use crate::units::interval;
use timeline::Timeline;
use writer::{Machine, Writer};

/// How often the ring buffers are drained.
const DRAIN: Duration = Duration::from_millis(10);

/// Memory of all ring buffers, and the least and most of a CPU: 64 bytes an event.
const BUFFERS: usize = 64 << 20;
const MIN_BUFFER: usize = 256 << 10;
const MAX_BUFFER: usize = 4 << 20;

const MEGABYTE: u64 = 1_000_000;

/// What to record, and where to.
#[derive(Debug, Args)]
pub struct RecordOpts {
    /// Write the trace to this file, in Perfetto's format.
    ///
    /// An existing file is replaced. Open it at https://ui.perfetto.dev, which reads it in the
    /// browser and uploads nothing. It has names of tasks and cgroups, and no command lines.
    ///
    /// Example: --perfetto /tmp/load.pftrace
    #[arg(long, value_name = "FILE")]
    pub perfetto: PathBuf,

    /// Stop after this time. Ctrl-C stops it earlier, and the file is complete, too.
    ///
    /// Unit: seconds, more than 0.
    ///
    /// Example: --seconds 500ms
    #[arg(long, default_value_t = 5.0, value_name = "SEC", value_parser = interval)]
    pub seconds: f64,

    /// Stop when the file has this size.
    ///
    /// Unit: megabytes, 1 to 10000. A context switch with a wakeup takes about 60 bytes.
    ///
    /// Example: --max-size 500
    #[arg(long, default_value_t = 200, value_name = "MB", value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub max_size: u64,
}

/// Record, and print one line about the file.
pub fn run(args: &RecordOpts) -> Result<()> {
    preflight::check_root()?;
    let shutdown = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, shutdown.clone())?;
        flag::register(signal, shutdown.clone())?;
    }
    let layout = Layout::of_this_machine(false)?;
    let mut object = MaybeUninit::uninit();
    let mut skel = load_programs(&mut object, &layout).map_err(preflight::explain_record)?;
    let rings = make_rings(&skel, &layout)?;

    let cannot_write = || format!("cannot write {}", args.perfetto.display());
    let file = File::create(&args.perfetto).with_context(cannot_write)?;
    let (uts, names) = (
        uname()?,
        layout.cpus.iter().map(|(&id, cpu)| {
            (id, format!("CPU {id} (LLC {}, node {}, capacity {})", cpu.llc, cpu.node, cpu.capacity))
        }),
    );
    let machine = Machine {
        release: &uts.release().to_string_lossy(),
        version: &uts.version().to_string_lossy(),
        arch: &uts.machine().to_string_lossy(),
        cpus: names.collect(),
    };
    let writer = Writer::new(BufWriter::new(file), &machine).with_context(cannot_write)?;
    let mut recorder = Recorder {
        timeline: Timeline::new(writer, cgroup_names()),
        lost: HashMap::new(),
        nr: 0,
        max_size: args.max_size * MEGABYTE,
    };

    let events = RefCell::new(Vec::new());
    let buffers = ring_buffers(&rings, &events)?;
    skel.attach().map_err(|err| preflight::explain_record(err.into())).context("cannot attach to the tracepoints")?;
    info!("recording for {} s; Ctrl-C ends it", args.seconds);
    let start = Instant::now();
    let time = Duration::from_secs_f64(args.seconds);
    let mut is_full = false;
    while !shutdown.load(Ordering::Relaxed) && start.elapsed() < time && !is_full {
        thread::sleep(DRAIN.min(time.saturating_sub(start.elapsed())));
        is_full = recorder.drain(&buffers, &events, &skel).with_context(cannot_write)?;
    }
    let took = start.elapsed().as_secs_f64();
    // Without programs no event is added, and no part of one.
    skel.links = Default::default();
    is_full = is_full || recorder.drain(&buffers, &events, &skel).with_context(cannot_write)?;
    let (nr, lost) = (recorder.nr, recorder.lost.values().sum::<u64>());
    let size = recorder.timeline.writer.finish(process_name).with_context(cannot_write)?;
    println!(
        "{}: {nr} events in {took:.1} s, {lost} lost, {:.1} MB{}; open it at https://ui.perfetto.dev",
        args.perfetto.display(),
        size as f64 / MEGABYTE as f64,
        if is_full { " (--max-size reached)" } else { "" },
    );
    Ok(())
}

fn load_programs<'a>(object: &'a mut MaybeUninit<libbpf_rs::OpenObject>, layout: &Layout) -> Result<RecordSkel<'a>> {
    let mut skel = RecordSkelBuilder::default().open(object)?;
    let rodata = skel.maps.rodata_data.as_mut().context("no .rodata in the BPF object")?;
    rodata.is_magpie = preflight::is_magpie_attached();
    let ids = layout.cpus.keys().last().map_or(1, |last| *last as u32 + 1);
    skel.maps.rings.set_max_entries(ids)?;
    skel.load().context("the kernel refused to load the BPF programs (-v prints libbpf's messages)")
}

/// Make a ring buffer for each CPU. Events of CPUs that appear later count as lost.
fn make_rings(skel: &RecordSkel<'_>, layout: &Layout) -> Result<Vec<(usize, MapHandle)>> {
    let size = (BUFFERS / layout.cpus.len().max(1)).clamp(MIN_BUFFER, MAX_BUFFER);
    let size = 1u32 << size.ilog2();
    let options =
        libbpf_sys::bpf_map_create_opts { sz: size_of::<libbpf_sys::bpf_map_create_opts>() as _, ..Default::default() };
    let mut rings = Vec::new();
    for &cpu in layout.cpus.keys() {
        let ring = MapHandle::create(MapType::RingBuf, Some("record_ring"), 0, 0, size, &options)
            .with_context(|| format!("cannot make a ring buffer of {} KB for CPU {cpu}", size >> 10))?;
        let fd = ring.as_fd().as_raw_fd() as u32;
        skel.maps.rings.update(&(cpu as u32).to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)?;
        rings.push((cpu, ring));
    }
    Ok(rings)
}

type Events = RefCell<Vec<(usize, record_event)>>;

fn ring_buffers<'a>(rings: &'a [(usize, MapHandle)], events: &'a Events) -> Result<RingBuffer<'a>> {
    let mut builder = RingBufferBuilder::new();
    for (cpu, ring) in rings {
        builder.add(ring, move |data| {
            events.borrow_mut().push((*cpu, bytemuck::pod_read_unaligned(data)));
            0
        })?;
    }
    Ok(builder.build()?)
}

struct Recorder {
    timeline: Timeline<BufWriter<File>>,
    /// Events lost, by CPU.
    lost: HashMap<usize, u64>,
    nr: u64,
    /// Bytes of the file.
    max_size: u64,
}

impl Recorder {
    /// Write all events that are in the ring buffers. Return true if the file has its size.
    fn drain(&mut self, buffers: &RingBuffer<'_>, events: &Events, skel: &RecordSkel<'_>) -> Result<bool> {
        buffers.consume()?;
        let mut events = events.take();
        // Stable: events of one CPU remain in order.
        events.sort_by_key(|(_, event)| event.at);
        for (cpu, event) in &events {
            if self.timeline.writer.written() >= self.max_size {
                return Ok(true);
            }
            self.timeline.take(*cpu, event)?;
            self.nr += 1;
        }
        let lost = &skel.maps.bss_data.as_ref().context("no .bss")?.lost;
        for (cpu, lost) in lost.iter().map(load).enumerate().filter(|(_, lost)| *lost > 0) {
            if self.lost.insert(cpu, lost) != Some(lost) {
                self.timeline.writer.lost(cpu);
            }
        }
        Ok(false)
    }
}

/// Return a function that finds the path of a cgroup by its id. It reads them again for a new id.
fn cgroup_names() -> impl FnMut(u64) -> String {
    let mut known: HashMap<u64, String> = HashMap::new();
    move |id| {
        if !known.contains_key(&id) {
            known.extend(cgroups::names(Path::new(SYS_CGROUP)));
        }
        known.entry(id).or_insert_with(|| format!("cgroup {id}")).clone()
    }
}

fn process_name(pid: i32) -> Option<String> {
    Some(fs::read_to_string(format!("/proc/{pid}/comm")).ok()?.trim_end().into())
}
