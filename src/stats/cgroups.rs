// SPDX-License-Identifier: GPL-2.0-only
//! Statistics of cgroups: the BPF program's figures of cgroups that have a share of their own, and
//! the CPU time in the kernel's `cpu.stat`.
//!
//! ```text
//! groups[]                 --Snapshot::new()--+     in the loop that publishes nr_scan
//! <cgroup>/cpu.stat, by id --look_up()--------+--> Snapshot --since()--> Cgroups with the busiest
//! ```

use std::cell::UnsafeCell;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use log::warn;
use scx_stats_derive::{Stats, stat_doc};
use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::percent;
use crate::bpf_intf::group;
use crate::logging::printable;
use crate::shared::{Access, part};

/// Mount point of cgroup v2 under systemd.
pub const SYS_CGROUP: &str = "/sys/fs/cgroup";

/// Number of cgroups that are listed.
const TOP: usize = 20;

/// Number of cgroups that are named in a warning.
const NAMED: usize = 5;

/// Convert the kernel's weight to `cpu.weight`: 1024 is 100.
fn cpu_weight(kernel_weight: u32) -> u32 {
    ((kernel_weight * 100 + 512) / 1024).max(1)
}

/// State of a cgroup at one time.
#[derive(Clone, Debug, Default)]
struct State {
    level: u32,
    weight: u32,
    quota: u64,
    period: u64,
    nr_periods: u64,
    nr_throttled: u64,
    throttled_ns: u64,
    /// Path below the root, and CPU time so far. None if the cgroup was removed meanwhile.
    used: Option<(String, Duration)>,
}

impl State {
    /// Return the increase since `prev`.
    fn since(&self, prev: &Self) -> Cgroup {
        Cgroup {
            weight: self.weight.into(),
            quota_pct: percent(self.quota, self.period),
            nr_periods: self.nr_periods.saturating_sub(prev.nr_periods),
            nr_throttled: self.nr_throttled.saturating_sub(prev.nr_throttled),
            throttled_ms: self.throttled_ns.saturating_sub(prev.throttled_ns) / 1_000_000,
            ..Cgroup::default()
        }
    }
}

/// The cgroups that the program knows at one time, by the kernel's id.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    cgroups: BTreeMap<u64, State>,
    nr_lost: u32,
}

/// Statistics of one of the busiest cgroups in an interval.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[serde(default)]
#[stat(_om_prefix = "c_", _om_label = "cgroup")]
pub struct Cgroup {
    #[stat(desc = "CPU time of the tasks of the cgroup, without those of child cgroups, in % of one CPU")]
    pub cpu_pct: f64,
    #[stat(desc = "CPU time of the tasks of the cgroup and its descendants, in microseconds")]
    pub usage_us: u64,
    #[stat(desc = "cpu.weight")]
    pub weight: u64,
    #[stat(desc = "cpu.max in % of one CPU; 0 if there is no limit")]
    pub quota_pct: f64,
    #[stat(desc = "periods of cpu.max in which the cgroup ran or was throttled")]
    pub nr_periods: u64,
    #[stat(desc = "periods of cpu.max in which the cgroup was throttled")]
    pub nr_throttled: u64,
    #[stat(desc = "time that the cgroup was throttled, in milliseconds; counted when it is unthrottled")]
    pub throttled_ms: u64,
}

/// Start a thread that warns of cgroups beyond `max`. It is separate because a walk over all
/// folders takes long. The thread ends when the sender is dropped.
pub fn start_warner(max: u32) -> SyncSender<Snapshot> {
    let (sender, snapshots) = sync_channel::<Snapshot>(1);
    thread::spawn(move || snapshots.iter().for_each(|snapshot| snapshot.warn_of_lost(max, SYS_CGROUP.as_ref())));
    sender
}

/// Statistics of all cgroups in an interval.
#[stat_doc]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Stats)]
#[serde(default)]
pub struct Cgroups {
    #[stat(desc = "cgroups with a weight of their own, without the root")]
    pub nr_groups: u64,
    #[stat(desc = "cgroups beyond --max-cgroups, whose tasks count as tasks of the parent cgroup")]
    pub nr_lost: u64,
    #[stat(desc = "level of the deepest cgroup; 1 is below the root")]
    pub max_level: u64,
    #[stat(desc = "periods of cpu.max in which cgroups ran or were throttled, summed over the cgroups")]
    pub nr_periods: u64,
    #[stat(desc = "periods of cpu.max in which cgroups were throttled, summed over the cgroups")]
    pub nr_throttled: u64,
    #[stat(
        desc = "time that cgroups were throttled, in milliseconds, summed over the cgroups; counted when they are unthrottled"
    )]
    pub throttled_ms: u64,
    #[stat(desc = "the cgroups that used most CPU time, by path")]
    pub top: BTreeMap<String, Cgroup>,
}

/// Folder of a cgroup.
struct Folder {
    /// The kernel's id of the cgroup.
    ino: u64,
    path: PathBuf,
    /// Path below the root.
    name: String,
}

/// Return the folders of all cgroups below `root`.
fn folders(root: &Path) -> impl Iterator<Item = Folder> {
    let folders = WalkDir::new(root).min_depth(1).into_iter().filter_entry(|entry| entry.file_type().is_dir());
    folders.flatten().filter_map(move |folder| {
        let ino = folder.metadata().ok()?.ino();
        let name = folder.path().strip_prefix(root).unwrap_or(folder.path()).display().to_string();
        Some(Folder { ino, path: folder.into_path(), name })
    })
}

/// Return the paths of all cgroups below `root`, by the kernel's id.
pub fn names(root: &Path) -> impl Iterator<Item = (u64, String)> {
    folders(root).map(|folder| (folder.ino, folder.name))
}

/// Read the CPU time of a cgroup from its `cpu.stat`.
fn usage(folder: &Path) -> Option<Duration> {
    let stat = fs::read_to_string(folder.join("cpu.stat")).ok()?;
    let usec = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
    Some(Duration::from_micros(usec.parse().ok()?))
}

impl Snapshot {
    /// Take a snapshot of the program's groups. `nr_lost` cgroups have no group.
    pub fn new(groups: &[UnsafeCell<group>], nr_lost: u32) -> Self {
        let states = groups.iter().filter_map(|group| {
            let kernel_weight = part!(group, weight).load();
            let state = State {
                level: part!(group, level).load(),
                weight: cpu_weight(kernel_weight),
                quota: part!(group, quota).load(),
                period: part!(group, period).load(),
                nr_periods: part!(group, nr_periods).load(),
                nr_throttled: part!(group, nr_throttled).load(),
                throttled_ns: part!(group, throttled_ns).load(),
                used: None,
            };
            (kernel_weight != 0 && part!(group, autogroup).load() == 0).then_some((part!(group, cgroup).load(), state))
        });
        Self { cgroups: states.collect(), nr_lost }
    }

    /// Read path and CPU time of each cgroup below `root`. The kernel's id is the folder's inode.
    pub fn look_up(&mut self, root: &Path) {
        if self.cgroups.is_empty() {
            return;
        }
        for folder in folders(root) {
            let Some(state) = self.cgroups.get_mut(&folder.ino) else { continue };
            state.used = usage(&folder.path).map(|used| (folder.name, used));
        }
    }

    /// Log that there are more than `max` cgroups, and which of them have a cpu.max without effect.
    pub fn warn_of_lost(&self, max: u32, root: &Path) {
        let Self { cgroups, nr_lost } = self;
        warn!(
            "{nr_lost} cgroups exceed --max-cgroups {max}, and their cpu.weight, cpu.max and cpu.idle are ignored: use \
             --max-cgroups {}",
            (max + nr_lost).saturating_mul(2).min(u32::from(u16::MAX))
        );
        let is_limited = |folder: &Folder| {
            !cgroups.contains_key(&folder.ino)
                && fs::read_to_string(folder.path.join("cpu.max")).is_ok_and(|max| !max.starts_with("max"))
        };
        let lost: Vec<_> = folders(root).filter(is_limited).map(|folder| printable(&folder.name)).collect();
        if let Some(names) = lost.chunks(NAMED).next() {
            let more = if lost.len() > NAMED { format!(", and {} more", lost.len() - NAMED) } else { String::new() };
            warn!("cpu.max is ignored in {}{more}", names.join(", "));
        }
    }

    /// Return the totals of `nr` cgroups: those throttled for longest, then those with most CPU
    /// time. CPU time includes cgroups below, because the difference might decrease.
    pub fn totals(&self, nr: usize) -> BTreeMap<String, Cgroup> {
        let mut states: Vec<_> = self.cgroups.values().filter(|state| state.used.is_some()).collect();
        states.sort_by_key(|state| (Reverse(state.throttled_ns), Reverse(state.used.as_ref().map(|(_, used)| used))));
        let listed = states.into_iter().take(nr).filter_map(|state| {
            let (path, used) = state.used.clone()?;
            Some((path, Cgroup { usage_us: used.as_micros() as u64, ..state.since(&State::default()) }))
        });
        listed.collect()
    }

    /// Return the increase since `prev`, `interval` ago.
    pub fn since(&self, prev: &Self, interval: Duration) -> Cgroups {
        let (nr_groups, nr_lost) = (self.cgroups.len() as u64, self.nr_lost.into());
        let mut sum = Cgroups { nr_groups, nr_lost, ..Cgroups::default() };
        let (mut throttled_ns, mut used, none) = (0, BTreeMap::new(), State::default());
        for (id, state) in &self.cgroups {
            let before = prev.cgroups.get(id).unwrap_or(&none);
            let cgroup = state.since(before);
            throttled_ns += state.throttled_ns.saturating_sub(before.throttled_ns);
            sum.max_level = sum.max_level.max(state.level.into());
            sum.nr_periods += cgroup.nr_periods;
            sum.nr_throttled += cgroup.nr_throttled;
            if let Some((path, now)) = &state.used {
                let since = now.saturating_sub(before.used.as_ref().map_or(Duration::ZERO, |(_, used)| *used));
                used.insert(path.as_str(), (since, cgroup));
            }
        }
        // The kernel's CPU time of a cgroup includes the cgroups below it.
        let mut own: BTreeMap<&str, Duration> = used.iter().map(|(&path, &(since, ..))| (path, since)).collect();
        for (path, &(since, ..)) in &used {
            if let Some(up) = path.rsplit_once('/').and_then(|(up, _)| own.get_mut(up)) {
                *up = up.saturating_sub(since);
            }
        }
        let mut top: Vec<_> = own.into_iter().filter(|(_, own)| !own.is_zero()).collect();
        top.sort_by_key(|&(path, own)| (Reverse(own), path));
        let listed = top.into_iter().take(TOP).map(|(path, own)| {
            let cpu_pct = 100.0 * own.as_secs_f64() / interval.as_secs_f64();
            let (usage, cgroup) = &used[path];
            (path.to_owned(), Cgroup { cpu_pct, usage_us: usage.as_micros() as u64, ..cgroup.clone() })
        });
        sum.top = listed.collect();
        sum.throttled_ms = throttled_ns / 1_000_000;
        sum
    }
}

impl Cgroups {
    /// Print a line for all cgroups and one for each of the busiest. Nothing without cgroups.
    pub fn format<W: Write>(&self, w: &mut W) -> Result<()> {
        let Self { nr_groups, nr_lost, max_level, nr_periods, nr_throttled, throttled_ms, top } = self;
        if *nr_groups == 0 {
            return Ok(());
        }
        writeln!(
            w,
            "cgroups {nr_groups}, deepest at level {max_level}; throttled in {nr_throttled} of {nr_periods} periods, \
             {throttled_ms} ms"
        )?;
        if *nr_lost > 0 {
            writeln!(w, "  {nr_lost} more than --max-cgroups, which count as part of their parents")?;
        }
        let mut top: Vec<_> = top.iter().collect();
        top.sort_by(|a, b| b.1.cpu_pct.total_cmp(&a.1.cpu_pct));
        for (path, Cgroup { cpu_pct, weight, throttled_ms, .. }) in top {
            let path = printable(path);
            writeln!(w, "  {cpu_pct:>7.1} % of a CPU, weight {weight:>5}, throttled {throttled_ms:>6} ms: {path}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Create `a/b`, which the program knows as groups 2 and 1, and `c`, which it does not know.
    fn tree(used_us: [u64; 3]) -> (tempfile::TempDir, Vec<UnsafeCell<group>>) {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::create_dir(root.path().join("c")).unwrap();
        // SAFETY: plain integers.
        let mut groups: Vec<UnsafeCell<group>> = (0..4).map(|_| unsafe { std::mem::zeroed() }).collect();
        for (id, name, used) in [(2, "a", used_us[0]), (1, "a/b", used_us[1]), (3, "c", used_us[2])] {
            let folder = root.path().join(name);
            fs::write(folder.join("cpu.stat"), format!("usage_usec {used}\nuser_usec 1\n")).unwrap();
            let group = groups[id].get_mut();
            group.cgroup = folder.metadata().unwrap().ino();
            group.weight = [0, 717, 1024, 0][id];
            group.level = [0, 2, 1, 0][id];
            (group.quota, group.period) = (25_000_000, 100_000_000);
            (group.nr_throttled, group.throttled_ns) = (used / 1000, used * 1000);
        }
        (root, groups)
    }

    #[test]
    fn the_busiest_are_listed() {
        let (root, groups) = tree([900_000, 700_000, 999_000]);
        let before = looked_up(&groups, root.path());
        fs::write(root.path().join("a/cpu.stat"), "usage_usec 4900000\n").unwrap();
        fs::write(root.path().join("a/b/cpu.stat"), "nr_periods 1\nusage_usec 3700000\n").unwrap();
        let cgroups = looked_up(&groups, root.path()).since(&before, 2 * SECOND);
        assert_eq!((cgroups.nr_groups, cgroups.max_level, cgroups.nr_throttled), (2, 2, 0));
        let listed = |path: &str| (cgroups.top[path].cpu_pct, cgroups.top[path].quota_pct, cgroups.top[path].weight);
        assert_eq!((cgroups.top.len(), listed("a"), listed("a/b")), (2, (50.0, 25.0, 100), (150.0, 25.0, 70)));
        let mut text = vec![];
        cgroups.format(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.find(": a/b").unwrap() < text.find(": a\n").unwrap(), "{text}");
    }

    #[test]
    fn totals_are_of_the_most_throttled_and_then_of_the_busiest() {
        let (root, mut groups) = tree([900_000, 700_000, 999_000]);
        let totals = looked_up(&groups, root.path()).totals(1);
        assert_eq!((totals.len(), totals["a"].usage_us, totals["a"].throttled_ms), (1, 900_000, 900));
        groups[1].get_mut().throttled_ns += 201_000_000;
        let totals = looked_up(&groups, root.path()).totals(1);
        assert_eq!((totals.len(), totals["a/b"].usage_us, totals["a/b"].throttled_ms), (1, 700_000, 901));
        assert_eq!(looked_up(&groups, root.path()).totals(9).len(), 2);
    }

    fn looked_up(groups: &[UnsafeCell<group>], root: &Path) -> Snapshot {
        let mut snapshot = Snapshot::new(groups, 0);
        snapshot.look_up(root);
        snapshot
    }

    #[test]
    fn groups_that_come_and_go_count_from_zero_or_not_at_all() {
        let (root, groups) = tree([900_000, 700_000, 999_000]);
        fs::remove_dir_all(root.path().join("a/b")).unwrap();
        let cgroups = looked_up(&groups, root.path()).since(&Snapshot::default(), SECOND);
        assert_eq!((cgroups.nr_throttled, cgroups.throttled_ms, cgroups.top.len()), (900 + 700, 900 + 700, 1));
        assert_eq!((cgroups.top["a"].cpu_pct, cgroups.top["a"].throttled_ms), (90.0, 900));
        let mut text = vec![];
        Snapshot::default().since(&Snapshot::default(), SECOND).format(&mut text).unwrap();
        assert!(text.is_empty());
    }
}
