// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie status`: one line about the running scheduler, and the number of failures.
//!
//! A file has a line for each scheduler that failed since the machine was booted.
//!
//! ```text
//! begin()    the mark exists: the previous scheduler was killed or crashed, noted  creates the mark
//! end()      an ejection or another failure: noted                                 removes the mark
//! forgive()  a second SIGINT or SIGTERM ended the process immediately              removes the mark
//! ```
//!
//! A service that has failed three times in ten minutes exits with a status for which systemd does
//! not restart it. systemd's own limit also counts starts by the operator. With --give-up, for a
//! supervisor that always restarts, a second mark makes each further start fail until it is removed.

use std::ffi::{CString, c_int};
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Result, bail};
use clap::ValueEnum;
use log::warn;
use serde::{Deserialize, Serialize};

use crate::config::Settings;
use crate::exit::{Ejected, Refusal};
use crate::logging::printable;
use crate::{preflight, service, tunables};

/// Folder of the file and the mark: empty after a boot, and writable for the service.
const FOLDER: &str = "/run/scx";
const FILE: &str = "scx_magpie.failures";

/// File that exists while a scheduler runs.
const MARK: &str = "scx_magpie.running";

/// File that exists once no scheduler may start any more, with --give-up.
const STOPPED: &str = "scx_magpie.stopped";

/// Number of failures within a time after which the service is not restarted.
const TOO_MANY: usize = 3;
const RECENT: Duration = Duration::from_secs(600);

/// State of a running scheduler.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Status {
    version: String,
    kernel: String,
    pid: u32,
    /// When the process started, in seconds since 1970.
    since: u64,
    nr_starts: usize,
    nr_cgroups: u32,
    max_cgroups: u32,
    /// By how much their weights count; empty in the first second.
    #[serde(default)]
    cgroup_mode: String,
    /// Programs use core scheduling.
    #[serde(default)]
    core_scheduling: bool,
    profile: String,
    /// Number of flags that differ from their defaults.
    nr_changed: usize,
    failures: String,
}

impl Status {
    pub fn new(
        since: SystemTime,
        nr_starts: usize,
        (nr_cgroups, cgroup_mode, core_scheduling): (u32, &str, bool),
        settings: &Settings,
    ) -> Self {
        let profile = settings.profile.to_possible_value();
        Self {
            version: crate::version(),
            kernel: preflight::release(),
            pid: std::process::id(),
            since: since.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs(),
            nr_starts,
            nr_cgroups,
            max_cgroups: settings.tunables.max_cgroups,
            cgroup_mode: cgroup_mode.into(),
            core_scheduling,
            profile: profile.map_or_else(String::new, |profile| profile.get_name().into()),
            nr_changed: tunables::changed(settings).len(),
            failures: summary(),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(self.since);
        let uptime = Duration::from_secs(since.elapsed().unwrap_or_default().as_secs());
        write!(
            f,
            "running since {} ({}), ",
            humantime::format_rfc3339_seconds(since),
            humantime::format_duration(uptime)
        )?;
        write!(f, "pid {}, {} on {}, ", self.pid, self.version, self.kernel)?;
        write!(f, "profile {}, flags not default: {}, ", self.profile, self.nr_changed)?;
        write!(f, "starts: {}, cgroups: {} of {}, ", self.nr_starts, self.nr_cgroups, self.max_cgroups)?;
        if !self.cgroup_mode.is_empty() {
            write!(f, "cgroup mode: {}, ", self.cgroup_mode)?;
        }
        if self.core_scheduling {
            write!(f, "core scheduling is in use, ")?;
        }
        write!(f, "{}", self.failures)
    }
}

/// Return the number of failures, and the time and reason of the last one.
pub fn summary() -> String {
    Failures::in_folder(FOLDER).summary()
}

/// Return the number of failures since the boot.
pub fn nr_failures() -> usize {
    Failures::in_folder(FOLDER).lines().len()
}

/// The failures of all schedulers since the boot.
pub struct Failures {
    folder: PathBuf,
    /// A service manager restarts the scheduler, unless the exit status says otherwise.
    is_restarted: bool,
    /// --give-up: the supervisor restarts it in any case.
    gives_up: bool,
}

impl Failures {
    /// Return the failures on this machine. `gives_up`: see --give-up.
    pub fn of_this_machine(gives_up: bool) -> Self {
        Self { gives_up, ..Self::in_folder(FOLDER) }
    }

    fn in_folder(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().into(), is_restarted: service::is_managed(), gives_up: false }
    }

    /// Note the start of a scheduler. Fails if the previous one failed too often to restart.
    pub fn begin(&self) -> Result<()> {
        if self.gives_up && self.folder.join(STOPPED).exists() {
            bail!(self.give_up());
        }
        if self.folder.join(MARK).exists() {
            self.note("killed, or crashed");
            if self.should_give_up() {
                self.remove_mark();
                bail!(self.give_up());
            }
        }
        let marked = fs::create_dir_all(&self.folder).and_then(|()| fs::write(self.folder.join(MARK), ""));
        self.warn(marked);
        Ok(())
    }

    /// Note the end of the scheduler with `result`. Return the result to exit with.
    pub fn end(&self, result: Result<()>) -> Result<()> {
        self.remove_mark();
        let err = match result {
            Err(err) if !err.is::<Refusal>() => err,
            fine => return fine,
        };
        self.note(&format!("{err:#}"));
        // systemd does not restart the service after SysRq-S.
        if !err.downcast_ref::<Ejected>().is_none_or(Ejected::may_restart) {
            self.stop();
            return Err(err);
        }
        Err(match self.should_give_up() {
            // Its message has the reason.
            true if self.gives_up => self.give_up().into(),
            true => err.context(self.give_up()),
            false => err,
        })
    }

    /// Let the end by `signal` not count as a failure once `shutdown` is set: the operator asked for it.
    pub fn forgive(&self, signal: c_int, shutdown: Arc<AtomicBool>) -> io::Result<()> {
        let mark = CString::new(self.folder.join(MARK).into_os_string().into_vec())?;
        let remove = move || {
            if shutdown.load(Ordering::Relaxed) {
                // SAFETY: `mark` is a C string. A signal handler may call unlink().
                unsafe { libc::unlink(mark.as_ptr()) };
            }
        };
        // SAFETY: `remove` allocates nothing and takes no lock.
        unsafe { signal_hook::low_level::register(signal, remove) }.map(drop)
    }

    fn should_give_up(&self) -> bool {
        (self.is_restarted || self.gives_up) && self.recent() >= TOO_MANY
    }

    fn give_up(&self) -> Refusal {
        if !self.gives_up {
            return Refusal::FailsAgain;
        }
        self.stop();
        Refusal::StaysDetached { last: self.lines().pop().unwrap_or_default() }
    }

    fn stop(&self) {
        if self.gives_up {
            self.warn(fs::write(self.folder.join(STOPPED), ""));
        }
    }

    fn note(&self, reason: &str) {
        let reason = printable(reason.lines().next().unwrap_or_default());
        let line = format!("{}: {reason}\n", humantime::format_rfc3339_seconds(SystemTime::now()));
        let noted = fs::create_dir_all(&self.folder)
            .and_then(|()| OpenOptions::new().create(true).append(true).open(self.folder.join(FILE)))
            .and_then(|mut file| file.write_all(line.as_bytes()));
        self.warn(noted);
    }

    fn remove_mark(&self) {
        _ = fs::remove_file(self.folder.join(MARK));
    }

    fn warn(&self, done: io::Result<()>) {
        if let Err(err) = done {
            warn!("'status' will not show failures: cannot write to {}: {err}", self.folder.display());
        }
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join(FILE)).unwrap_or_default();
        text.lines().map(Into::into).collect()
    }

    /// Return the number of recent failures.
    fn recent(&self) -> usize {
        let is_recent = |line: &String| {
            let time = line.split_once(": ").and_then(|(time, _)| humantime::parse_rfc3339(time).ok());
            // A time in the future, after the clock was set back, counts as recent.
            time.is_some_and(|time| time.elapsed().is_ok_and(|ago| ago < RECENT) || time > SystemTime::now())
        };
        self.lines().iter().filter(|line| is_recent(line)).count()
    }

    fn summary(&self) -> String {
        let lines = self.lines();
        match lines.last() {
            None => "no failures since boot".into(),
            Some(last) => format!("failures since boot: {}, the last {last}", lines.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::EXIT_SYSRQ;
    use anyhow::anyhow;

    fn failures(folder: &tempfile::TempDir, is_restarted: bool) -> Failures {
        Failures { folder: folder.path().join("scx"), is_restarted, gives_up: false }
    }

    fn gives_up(result: Result<()>) -> bool {
        result.is_err_and(|err| err.downcast_ref() == Some(&Refusal::FailsAgain))
    }

    #[test]
    fn failures_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let failures = failures(&folder, false);
        assert_eq!(failures.summary(), "no failures since boot");
        failures.begin().unwrap();
        assert_eq!(failures.end(Err(anyhow!("a"))).unwrap_err().to_string(), "a");
        failures.begin().unwrap();
        failures.end(Err(anyhow!("st\x1b[31mall\nof a task").context("EXIT"))).unwrap_err();
        let summary = failures.summary();
        assert!(summary.starts_with("failures since boot: 2, the last 20"), "{summary}");
        assert!(summary.ends_with("Z: EXIT: st\\u{1b}[31mall"), "{summary}");
        // Actions of the operator and refusals of the machine are not failures.
        failures.begin().unwrap();
        failures.end(Ok(())).unwrap();
        failures.end(Err(anyhow!(Refusal::LockedDown))).unwrap_err();
        failures.begin().unwrap();
        assert_eq!(failures.summary(), summary);
        // The scheduler is killed.
        failures.begin().unwrap();
        assert!(failures.summary().ends_with("Z: killed, or crashed"), "{}", failures.summary());
    }

    #[test]
    fn a_service_that_fails_again_and_again_gives_up() {
        let folder = tempfile::tempdir().unwrap();
        let service = failures(&folder, true);
        let fails = || {
            service.begin().unwrap();
            service.end(Err(anyhow!("stall")))
        };
        assert_eq!([gives_up(fails()), gives_up(fails()), gives_up(fails())], [false, false, true]);
        // The operator starts it once more, which is allowed.
        service.begin().unwrap();
        // It is killed. The operator may start it once more.
        assert!(gives_up(service.begin()));
        service.begin().unwrap();
        // By hand nothing restarts it.
        assert!(!gives_up(failures(&folder, false).end(Err(anyhow!("stall")))));

        // Those of long ago do not count.
        let old = humantime::format_rfc3339_seconds(SystemTime::now() - 2 * RECENT);
        fs::write(service.folder.join(FILE), format!("{old}: stall\n").repeat(5)).unwrap();
        assert!(!gives_up(fails()));
    }

    #[test]
    fn with_give_up_no_start_follows() {
        let folder = tempfile::tempdir().unwrap();
        let refuses = |failures: &Failures, last: &str| {
            let err = failures.begin().unwrap_err();
            assert!(matches!(err.downcast_ref(), Some(Refusal::StaysDetached { last: said }) if said.ends_with(last)));
            fs::remove_file(failures.folder.join(STOPPED)).unwrap();
            failures.begin().unwrap();
        };
        let failures = Failures { gives_up: true, ..failures(&folder, false) };
        let sysrq = Ejected { why: "SysRq-S".into(), status: EXIT_SYSRQ };
        failures.begin().unwrap();
        assert_eq!(failures.end(Err(anyhow!(sysrq))).unwrap_err().to_string(), "SysRq-S");
        refuses(&failures, "Z: SysRq-S");
        failures.end(Err(anyhow!("stall"))).unwrap_err();
        failures.begin().unwrap();
        let third = failures.end(Err(anyhow!("the third"))).unwrap_err();
        assert!(third.to_string().contains("Z: the third: delete this pod"), "{third}");
        refuses(&failures, "Z: the third");
    }
}
