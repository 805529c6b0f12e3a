// SPDX-License-Identifier: GPL-2.0-only
//! Where processes have their memory: a thread that looks at those that use most CPU time, now and then, and tells the
//! BPF program of each on which node its tasks are at home (`bpf/home.bpf.h`). Not on machines with one node.
//!
//! ```text
//! processes (BPF map): looks --Tracker::due()--> busy, and its turn --Pass::go_on()--> Tally --preferred()--+
//!            node <-----------------------------------------------------------------------------------------+
//! ```
//!
//! It costs `--numa-sample-share` of a CPU at most: what a look took is followed by as much rest as that asks for. A
//! look takes `--numa-sample-ms` at most; a process with more mappings than fit is gone on with in a later round. (One
//! mapping is read as a whole, by the kernel. That cannot be cut short, but is paid for by rest like all else.)

use std::collections::HashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapFlags, MapHandle};
use log::warn;
use scx_utils::Cpumask;

use crate::bpf_intf::{NO_NODE, process};
use crate::cli::Tunables;
use crate::publisher::clock;
use crate::topology::Layout;

/// How often it is looked who uses CPU time.
const ROUND: Duration = Duration::from_millis(500);

/// How often a process is looked at: less and less often while its memory stays where it is.
const INTERVAL: Duration = Duration::from_millis(500);
const MAX_INTERVAL: Duration = Duration::from_secs(60);

/// At most so many processes take turns, those that use most.
const MAX_BUSY: usize = 32;

/// Ticks in a round that make a process busy: some 4 % of a CPU.
const MIN_LOOKS: u64 = 5;

/// With less memory than this it does not matter where it is.
const MIN_KB: u64 = 1024;

/// As much as the kernel gives at a time, so that it is not asked for what will not be looked at any more.
const CHUNK: usize = 4096;

/// A process's memory by node, in kB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    nodes: BTreeMap<i32, u64>,
    total: u64,
}

impl Tally {
    /// Adds a mapping, a line of `numa_maps`. Not counted are files' pages that the process has not written: they are
    /// where whoever read them first was. Where the user bound a mapping to a node, all of it counts for that.
    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace().skip(1);
        let policy = words.next().unwrap_or_default();
        let (mut is_file, mut written, mut page_kb) = (false, false, 4);
        let mut pages = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("file", _)) => is_file = true,
                Some(("anon" | "dirty", _)) => written = true,
                Some(("kernelpagesize_kB", kb)) => page_kb = kb.parse().unwrap_or(page_kb),
                Some((name, count)) => {
                    if let Some(Ok(node)) = name.strip_prefix('N').map(str::parse::<i32>) {
                        pages.push((node, count.parse::<u64>().unwrap_or(0)));
                    }
                }
                None => {}
            }
        }
        // An interleaved mapping is on all nodes by intent.
        if is_file && !written || policy.starts_with("interleave") || policy.starts_with("weighted") {
            return;
        }
        let bound = bound_to(policy);
        for (node, count) in pages {
            *self.nodes.entry(bound.unwrap_or(node)).or_default() += count * page_kb;
            self.total += count * page_kb;
        }
    }

    /// The node that has most of it, more than half; [`NO_NODE`]: none.
    pub fn preferred(&self) -> i32 {
        let most = self.nodes.iter().max_by_key(|&(_, kb)| kb);
        match most {
            Some((&node, &kb)) if self.total >= MIN_KB && 2 * kb > self.total => node,
            _ => NO_NODE,
        }
    }
}

/// The one node of a policy like `bind:1` or `prefer=static:1`.
fn bound_to(policy: &str) -> Option<i32> {
    let (mode, nodes) = policy.split_once(':')?;
    let (mode, _flags) = mode.split_once('=').unwrap_or((mode, ""));
    matches!(mode, "bind" | "prefer").then(|| nodes.parse().ok())?
}

/// A walk over the mappings of one process, which may pause.
struct Pass {
    file: File,
    /// The beginning of a line whose end was not read yet.
    rest: Vec<u8>,
    tally: Tally,
}

impl Pass {
    fn new(tgid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{tgid}/numa_maps"))?;
        Ok(Self { file, rest: Vec::new(), tally: Tally::default() })
    }

    /// Goes on while `in_time`; true if that was all.
    fn go_on(&mut self, in_time: impl Fn() -> bool) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.file.read(&mut chunk)? {
                0 => return Ok(true),
                len => self.rest.extend_from_slice(&chunk[..len]),
            }
            let complete = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            String::from_utf8_lossy(&self.rest[..complete]).lines().for_each(|line| self.tally.add(line));
            self.rest.drain(..complete);
            if !in_time() {
                return Ok(false);
            }
        }
    }
}

/// What is known of a process.
struct Known {
    /// At the last round.
    looks: u64,
    due: Instant,
    interval: Duration,
    pass: Option<Pass>,
    /// Its memory when it was last looked at, kB.
    kb: u64,
}

impl Known {
    /// Has it so much more or less memory now that it may soon be elsewhere? Remembers how much it is.
    fn resized(&mut self, kb: u64) -> bool {
        let before = std::mem::replace(&mut self.kb, kb);
        kb.abs_diff(before) > before / 4
    }

    /// Its memory was looked at; `stays` where it was.
    fn looked_at(&mut self, now: Instant, stays: bool) {
        self.interval = if stays { (2 * self.interval).min(MAX_INTERVAL) } else { INTERVAL };
        self.due = now + self.interval;
    }
}

/// Who uses CPU time, and whose turn it is.
#[derive(Default)]
struct Tracker {
    known: HashMap<i32, Known>,
}

impl Tracker {
    /// Of all processes that the map has now: the busiest since the last round whose turn it is. First those that have waited
    /// longest for it, so that one of many mappings, which is gone on with again and again, does not shut out others.
    fn due(&mut self, now: Instant, entries: &[(i32, process)]) -> Vec<(i32, process)> {
        let present: BTreeSet<i32> = entries.iter().map(|&(tgid, _)| tgid).collect();
        self.known.retain(|tgid, _| present.contains(tgid));
        let mut busy = Vec::new();
        for &(tgid, process) in entries {
            let first = Known { looks: 0, due: now, interval: INTERVAL, pass: None, kb: 0 };
            let known = self.known.entry(tgid).or_insert(first);
            // The kernel may have forgotten the entry, and made it anew.
            let looks = process.looks.checked_sub(known.looks).unwrap_or(process.looks);
            known.looks = process.looks;
            if looks >= MIN_LOOKS {
                busy.push((looks, tgid, process));
            }
        }
        busy.sort_by_key(|&(looks, tgid, _)| (std::cmp::Reverse(looks), tgid));
        busy.truncate(MAX_BUSY);
        busy.retain(|(_, tgid, _)| self.known[tgid].due <= now);
        busy.sort_by_key(|(_, tgid, _)| self.known[tgid].due);
        busy.into_iter().map(|(_, tgid, process)| (tgid, process)).collect()
    }
}

/// What the sampler has done since the start, for statistics.
#[derive(Debug, Default)]
pub struct Costs {
    /// CPU time, ns.
    pub cpu_ns: AtomicU64,
    /// Processes looked at, whole.
    pub samples: AtomicU64,
    /// Times that one was left for later, for it took too long.
    pub cut: AtomicU64,
    /// The longest look at a time, ns.
    pub longest_ns: AtomicU64,
    /// Processes whose memory is on one node, as far as is known now.
    pub homes: AtomicU64,
}

/// The thread; it ends when this is dropped.
pub struct Sampler {
    pub costs: Arc<Costs>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Starts it. `processes` is the BPF map of this name.
    pub fn start(processes: MapHandle, layout: &Layout, tunables: &Tunables) -> Result<Self> {
        let (costs, stop) = (Arc::new(Costs::default()), Arc::new(AtomicBool::new(false)));
        let mut worker = Worker {
            processes,
            node_cpus: layout.node_cpus(),
            share: tunables.numa_sample_share,
            limit: Duration::from_millis(tunables.numa_sample_ms),
            tracker: Tracker::default(),
            rested: Instant::now(),
            costs: costs.clone(),
        };
        let stopped = stop.clone();
        let run = move || {
            // So that the BPF program does not take it for one of the threads that it must not keep waiting.
            // SAFETY: of this thread; the parameters are valid.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &libc::sched_param { sched_priority: 0 }) };
            while !stopped.load(Ordering::Relaxed) {
                if let Err(err) = worker.round(&stopped) {
                    return warn!("memory is not looked at any more: {err:#}");
                }
                thread::park_timeout(ROUND);
            }
        };
        let thread = thread::Builder::new().name("magpie-numa".into()).spawn(run).context("cannot start a thread")?;
        Ok(Self { costs, stop, thread: Some(thread) })
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It has said what went wrong.
            _ = thread.join();
        }
    }
}

struct Worker {
    processes: MapHandle,
    /// CPUs of each node that has any.
    node_cpus: BTreeMap<i32, Vec<usize>>,
    /// % of a CPU.
    share: u32,
    /// For one look.
    limit: Duration,
    tracker: Tracker,
    /// When it has rested for all that it did.
    rested: Instant,
    costs: Arc<Costs>,
}

impl Worker {
    /// Nothing, if it has not rested yet. One process at least, or it might always be too tired for any; others after a
    /// rest, until it is time to look again who is busy.
    fn round(&mut self, stopped: &AtomicBool) -> Result<()> {
        if Instant::now() < self.rested {
            return Ok(());
        }
        let (began, end) = (thread_time(), Instant::now() + ROUND);
        let entries = self.entries()?;
        let homes = entries.iter().filter(|(_, process)| process.node != NO_NODE).count();
        self.costs.homes.store(homes as u64, Ordering::Relaxed);
        let due = self.tracker.due(Instant::now(), &entries);
        self.rest(began);
        for (tgid, process) in due {
            let began = thread_time();
            self.look_at(tgid, process, began)?;
            self.costs.longest_ns.fetch_max((thread_time() - began).as_nanos() as u64, Ordering::Relaxed);
            self.rest(began);
            while !stopped.load(Ordering::Relaxed) && Instant::now() < self.rested.min(end) {
                thread::park_timeout(self.rested.min(end) - Instant::now());
            }
            if Instant::now() < self.rested || stopped.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }

    /// After work that began then, by this thread's CPU time.
    fn rest(&mut self, began: Duration) {
        let took = thread_time() - began;
        self.costs.cpu_ns.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.rested = self.rested.max(Instant::now()) + took * 100 / self.share;
    }

    fn entries(&self) -> Result<Vec<(i32, process)>> {
        let batches =
            self.processes.lookup_batch(256, MapFlags::ANY, MapFlags::ANY).context("cannot read processes")?;
        Ok(batches
            .filter_map(|(key, value)| Some((i32::from_ne_bytes(key.try_into().ok()?), decode(&value)?)))
            .collect())
    }

    /// Looks at a process's memory, some of it if there is much.
    fn look_at(&mut self, tgid: i32, process: process, began: Duration) -> Result<()> {
        let Some(known) = self.tracker.known.get_mut(&tgid) else { return Ok(()) };
        let limit = self.limit;
        let pass = known.pass.take().map_or_else(|| Pass::new(tgid), Ok);
        let done = pass.and_then(|mut pass| Ok((pass.go_on(|| thread_time() - began < limit)?, pass)));
        match done {
            Ok((true, pass)) => {
                let node = Some(pass.tally.preferred()).filter(|node| may_run_there(tgid, self.node_cpus.get(node)));
                let node = node.unwrap_or(NO_NODE);
                let resized = known.resized(pass.tally.total);
                known.looked_at(Instant::now(), node == process.node && !resized);
                self.costs.samples.fetch_add(1, Ordering::Relaxed);
                if node != process.node {
                    self.publish(tgid, bpf_process(process.looks, node))?;
                }
            }
            Ok((false, pass)) => {
                known.pass = Some(pass);
                known.due = Instant::now();
                self.costs.cut.fetch_add(1, Ordering::Relaxed);
            }
            // It has ended: its number may come again.
            Err(err) if err.kind() == ErrorKind::NotFound || err.raw_os_error() == Some(libc::ESRCH) => {
                self.tracker.known.remove(&tgid);
                _ = self.processes.delete(&tgid.to_ne_bytes());
            }
            Err(_) => known.looked_at(Instant::now(), true),
        }
        Ok(())
    }

    fn publish(&self, tgid: i32, process: process) -> Result<()> {
        match self.processes.update(&tgid.to_ne_bytes(), &encode(&process), MapFlags::EXIST) {
            // Forgotten meanwhile, for others ran more.
            Err(err) if err.kind() == libbpf_rs::ErrorKind::NotFound => Ok(()),
            result => result.context("cannot tell of a process's memory"),
        }
    }
}

/// Do CPUs that the user lets the process use belong to the node?
fn may_run_there(tgid: i32, cpus: Option<&Vec<usize>>) -> bool {
    let (Some(cpus), Ok(status)) = (cpus, fs::read_to_string(format!("/proc/{tgid}/status"))) else { return false };
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let Some(Ok(allowed)) = allowed.map(|list| Cpumask::from_cpulist(list.trim())) else { return false };
    cpus.iter().any(|&cpu| allowed.test_cpu(cpu))
}

fn bpf_process(looks: u64, node: i32) -> process {
    process { looks, node, pad: 0 }
}

fn encode(process: &process) -> [u8; size_of::<process>()] {
    let mut bytes = [0; size_of::<process>()];
    bytes[..8].copy_from_slice(&process.looks.to_ne_bytes());
    bytes[8..12].copy_from_slice(&process.node.to_ne_bytes());
    bytes
}

fn decode(value: &[u8]) -> Option<process> {
    let looks = u64::from_ne_bytes(value.get(..8)?.try_into().ok()?);
    Some(bpf_process(looks, i32::from_ne_bytes(value.get(8..12)?.try_into().ok()?)))
}

fn thread_time() -> Duration {
    clock(libc::CLOCK_THREAD_CPUTIME_ID)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally
    }

    #[test]
    fn pages_count_by_node_and_size() {
        let tally = tally(&[
            "7f0000000000 default anon=300 dirty=300 N0=100 N1=200 kernelpagesize_kB=4",
            "7f1000000000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048",
            "7f2000000000 default file=/usr/lib/libc.so mapped=900 mapmax=40 N0=900 kernelpagesize_kB=4",
            "7f3000000000 default file=/dev/shm/x dirty=10 N0=10 kernelpagesize_kB=4",
            "7f4000000000 default stack",
            "7f5000000000",
            "",
        ]);
        assert_eq!(tally.nodes, BTreeMap::from([(0, 440), (1, 800 + 4096)]));
        assert_eq!(tally.preferred(), 1);
    }

    #[test]
    fn policies_of_the_user_win() {
        let anon = |policy: &str| tally(&[&format!("7f00 {policy} anon=1000 dirty=1000 N0=1000 kernelpagesize_kB=4")]);
        for (policy, node) in [
            ("default", 0),
            ("local", 0),
            ("bind:1", 1),
            ("bind=static:1", 1),
            ("prefer:1", 1),
            ("bind:0-1", 0),
            ("prefer (many):1", 0),
            ("interleave:0-1", NO_NODE),
            ("weighted interleave:0-1", NO_NODE),
        ] {
            assert_eq!(anon(policy).preferred(), node, "{policy}");
        }
    }

    #[test]
    fn half_is_not_most_and_little_does_not_matter() {
        let of = |here: u64, there: u64| {
            tally(&[&format!("7f00 default anon=1 N0={here} N3={there} kernelpagesize_kB=4")]).preferred()
        };
        assert_eq!((of(500, 500), of(500, 501), of(0, 255), of(0, 256)), (NO_NODE, 3, NO_NODE, 3));
        assert_eq!(Tally::default().preferred(), NO_NODE);
    }

    #[test]
    fn a_pass_that_pauses_sees_the_same() {
        let text: String =
            (0..3000).map(|i| format!("7f{i:06x}000 default anon={i} N{}={i} kernelpagesize_kB=4\n", i % 3)).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &text).unwrap();
        let pass = || Pass { file: File::open(file.path()).unwrap(), rest: Vec::new(), tally: Tally::default() };
        let (mut whole, mut paused) = (pass(), pass());
        assert!(whole.go_on(|| true).unwrap());
        let mut pauses = 0;
        while !paused.go_on(|| false).unwrap() {
            pauses += 1;
        }
        assert_eq!(pauses, text.len().div_ceil(CHUNK));
        assert_eq!(whole.tally, paused.tally);
        assert_eq!(whole.tally.total, 4 * (0..3000).sum::<u64>());
    }

    #[test]
    fn the_busiest_come_first_and_rest_longer_while_they_stay() {
        let mut tracker = Tracker::default();
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut entries: Vec<_> = (1..=40).map(|tgid| (tgid, bpf_process(10 * tgid as u64, NO_NODE))).collect();
        entries.push((50, bpf_process(MIN_LOOKS - 1, NO_NODE)));
        let tgids = |due: Vec<(i32, process)>| due.into_iter().map(|(tgid, _)| tgid).collect::<Vec<_>>();
        let due = tgids(tracker.due(at(0), &entries));
        assert_eq!((due.len(), due[0], due[31]), (MAX_BUSY, 40, 9));

        // All but two have used nothing since.
        entries[6].1.looks += 20;
        entries[39].1.looks += 30;
        let known = tracker.known.get_mut(&40).unwrap();
        assert_eq!([1000, 1250, 1500, 2000, 100].map(|kb| known.resized(kb)), [true, false, false, true, true]);
        for (stays, ms) in [(true, 1000), (true, 2000), (true, 4000), (false, 500), (true, 1000), (true, 2000)] {
            known.looked_at(at(0), stays);
            assert_eq!(known.interval, Duration::from_millis(ms));
        }
        assert_eq!(tgids(tracker.due(at(1999), &entries)), [7]);
        entries[39].1.looks += 30;
        assert_eq!(tgids(tracker.due(at(2000), &entries)), [40]);
        // Made anew.
        entries[39].1.looks = 6;
        assert_eq!(tgids(tracker.due(at(2500), &entries)), [40]);
        // Who has waited longer comes before who has used more.
        tracker.known.get_mut(&40).unwrap().due = at(2500);
        tracker.known.get_mut(&7).unwrap().due = at(2400);
        (entries[6].1.looks, entries[39].1.looks) = (200, 900);
        assert_eq!(tgids(tracker.due(at(2600), &entries)), [7, 40]);
        for _ in 0..10 {
            tracker.known.get_mut(&40).unwrap().looked_at(at(0), true);
        }
        assert_eq!(tracker.known[&40].interval, MAX_INTERVAL);
        tracker.due(at(3000), &entries[..3]);
        assert_eq!(tracker.known.len(), 3);
    }

    #[test]
    fn own_memory_is_somewhere() {
        let pid = std::process::id() as i32;
        // Kernels without NUMA have no such file.
        let Ok(mut pass) = Pass::new(pid) else { return };
        let memory = std::hint::black_box(vec![1u8; 8 << 20]);
        assert!(pass.go_on(|| true).unwrap());
        assert!(pass.tally.total >= memory.len() as u64 / 1024, "{:?}", pass.tally);
        assert!(may_run_there(pid, Some(&(0..1024).collect())) && !may_run_there(pid, Some(&vec![])));
    }

    #[test]
    fn what_the_map_has_survives() {
        let process = bpf_process(7 << 40, -1);
        assert_eq!(decode(&encode(&process)).map(|process| (process.looks, process.node)), Some((7 << 40, -1)));
        assert!(decode(&[0; 3]).is_none());
    }
}
