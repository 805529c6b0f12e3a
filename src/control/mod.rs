// SPDX-License-Identifier: GPL-2.0-only
//! Control of the running scheduler: `scx_magpie set`, `reload` and SIGHUP; `status`, `config`.
//!
//! ```text
//! client::ask() --socket--> Server --> Control::answer(), in the scheduler's loop --> Config
//!                                        |  flags that may change while it runs: Scheduler::set()
//!                                        +- other flags: the loop ends, and main() restarts
//! ```

pub mod client;
mod server;
pub mod status;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Result, bail};
use log::{info, warn};
use serde::{Deserialize, Serialize};

use crate::config::{Change, Config, Setting, Settings, Stamp, changes, keys};
use crate::exit::Refusal;
use crate::logging;
use crate::tunables::Tunables;
use server::Server;
pub use status::Status;

/// Path of the socket, for root only.
pub const SOCKET: &str = "/var/run/scx/root/control";

/// How often the file is checked with --follow-config.
const FILE_INTERVAL: Duration = Duration::from_secs(1);

/// A request of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    Status,
    Config,
    /// `KEY=VALUE`s. With `reset` they replace all earlier ones.
    Set {
        changes: Vec<String>,
        reset: bool,
    },
    Reload,
}

/// The reply to a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Reply {
    Status(Status),
    /// The programs are loaded, and attached once this scheduler is detached.
    Waiting(String),
    Config(Vec<(String, Setting)>),
    /// The changes, and whether one of them needs a restart.
    Changes {
        changes: Vec<Change>,
        new_start: bool,
    },
    Refused(String),
}

/// Configuration and control socket of the running scheduler.
pub struct Control {
    config: Config,
    settings: Settings,
    /// The configuration before a restart, until the restart has succeeded.
    before: Option<Config>,
    server: Option<Server>,
    since: SystemTime,
    nr_starts: usize,
    nr_cgroups: u32,
    cgroup_mode: String,
    core_scheduling: bool,
    /// With --follow-config: when to look at the file, and what it was.
    follow: Option<(Instant, Option<Stamp>)>,
    hangup: Arc<AtomicBool>,
    has_terminal: bool,
    terminal: fn() -> bool,
}

impl Control {
    /// With `follows` a change of the file is a reload. SIGHUP sets `hangup`. `terminal` returns true if
    /// there is a terminal.
    pub fn new(config: Config, follows: bool, hangup: Arc<AtomicBool>, terminal: fn() -> bool) -> Result<Self> {
        Ok(Self {
            settings: config.settings()?,
            follow: follows.then(|| (Instant::now(), config.read_stamp())),
            config,
            before: None,
            server: None,
            since: SystemTime::now(),
            nr_starts: 0,
            nr_cgroups: 0,
            cgroup_mode: String::new(),
            core_scheduling: false,
            hangup,
            has_terminal: terminal(),
            terminal,
        })
    }

    /// Return the settings in force, or in force after the restart that is under way.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Note the number of cgroups that have a share of their own, how their weights count, and
    /// whether programs use core scheduling.
    pub fn note(&mut self, nr_cgroups: u32, cgroup_mode: String, core_scheduling: bool) {
        (self.nr_cgroups, self.cgroup_mode, self.core_scheduling) = (nr_cgroups, cgroup_mode, core_scheduling);
    }

    /// Note that the scheduler has started. Requests are accepted from now on.
    pub fn started(&mut self) {
        self.before = None;
        self.nr_starts += 1;
        self.listen();
    }

    fn listen(&mut self) {
        if self.server.is_none() {
            self.server = Server::launch(SOCKET.as_ref())
                .inspect_err(|err| warn!("continuing without 'set', 'reload' and 'status': {err:#}"))
                .ok();
        }
    }

    /// Answer pending requests while the scheduler `ops` is attached, and this one waits for its end.
    pub fn answer_waiting(&mut self, ops: &str) {
        if self.server.is_none() {
            info!("loaded, and waiting until the attached scheduler ({ops}) is detached");
        }
        self.listen();
        self.answer_all(|_, request| match request {
            Request::Status => Reply::Waiting(ops.into()),
            _ => Reply::Refused(format!("this scheduler is not attached yet: it waits until {ops} is detached")),
        });
    }

    /// Handle a failed start. Return true if a reload caused it and was undone: start again.
    pub fn take_back(&mut self, err: &anyhow::Error) -> bool {
        let Some(before) = self.before.take() else { return false };
        warn!("cannot load the reloaded configuration, continuing with the previous one: {err:#}");
        self.config = before;
        let settings = self.config.settings();
        settings.and_then(|settings| logging::set_level(&settings.log_level).map(|()| self.settings = settings)).is_ok()
    }

    /// Return true if the file has changed, and is to be followed.
    fn file_has_changed(&mut self, now: Instant) -> bool {
        let Some((look_at, seen)) = self.follow.as_mut().filter(|(look_at, _)| now >= *look_at) else { return false };
        *look_at = now + FILE_INTERVAL;
        let stamp = self.config.stamp();
        std::mem::replace(seen, stamp) != stamp
    }

    /// Answer pending requests. `apply` changes flags that may change while the scheduler runs.
    /// Return true if a restart is needed. SIGHUP after a loss of the terminal is a shutdown.
    pub fn answer(&mut self, shutdown: &AtomicBool, mut apply: impl FnMut(&Tunables) -> Result<()>) -> bool {
        let hangup = self.hangup.swap(false, Ordering::Relaxed);
        if hangup && self.has_terminal && !(self.terminal)() {
            shutdown.store(true, Ordering::Relaxed);
        } else if (hangup || self.file_has_changed(Instant::now()))
            && let Err(err) = self.reload(&mut apply)
        {
            warn!("the configuration is not reloaded, and nothing has changed: {err:#}");
        }
        self.answer_all(|control, request| {
            control.reply(request, &mut apply).unwrap_or_else(|err| Reply::Refused(format!("{err:#}")))
        });
        self.before.is_some()
    }

    fn answer_all(&mut self, mut reply: impl FnMut(&mut Self, Request) -> Reply) {
        while let Some(request) = self.server.as_ref().and_then(Server::request) {
            let reply = reply(self, request);
            if let Some(Err(err)) = self.server.as_ref().map(|server| server.reply(reply)) {
                warn!("continuing without 'set', 'reload' and 'status': {err:#}");
                self.server = None;
            }
        }
    }

    fn reply(&mut self, request: Request, apply: &mut impl FnMut(&Tunables) -> Result<()>) -> Result<Reply> {
        let mut config = self.config.clone();
        match request {
            Request::Status => return Ok(Reply::Status(self.status())),
            Request::Config => return Ok(Reply::Config(self.config.values())),
            Request::Reload => return self.reload(apply),
            Request::Set { changes, reset } => {
                if reset {
                    config.reset();
                }
                config.set(&changes)?;
            }
        }
        let new_start = changes(&self.config, &config).into_iter().find(|change| keys::needs_new_start(&change.key));
        if let Some(Change { key, .. }) = new_start {
            let problem = format!(
                "'{key}' cannot change while the scheduler runs: write it to the configuration file, then run 'scx_magpie reload'"
            );
            bail!(Refusal::Usage { problem });
        }
        self.change(config, apply)
    }

    fn reload(&mut self, apply: &mut impl FnMut(&Tunables) -> Result<()>) -> Result<Reply> {
        let mut config = self.config.clone();
        if let Some((_, seen)) = &mut self.follow {
            *seen = config.stamp();
        }
        config.reload()?;
        info!("the configuration file was read again");
        self.change(config, apply)
    }

    fn change(&mut self, config: Config, apply: &mut impl FnMut(&Tunables) -> Result<()>) -> Result<Reply> {
        let changes = changes(&self.config, &config);
        let new_start = changes.iter().any(|change| keys::needs_new_start(&change.key));
        let settings = config.settings()?;
        changes.iter().for_each(|change| info!("{change}"));
        if new_start {
            info!("loading the scheduler again");
            self.before.get_or_insert(self.config.clone());
        } else {
            apply(&settings.tunables)?;
        }
        logging::set_level(&settings.log_level)?;
        (self.config, self.settings) = (config, settings);
        Ok(Reply::Changes { changes, new_start })
    }

    fn status(&self) -> Status {
        let noted = (self.nr_cgroups, self.cgroup_mode.as_str(), self.core_scheduling);
        Status::new(self.since, self.nr_starts, noted, &self.settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Opts;
    use clap::CommandFactory;
    use std::fs;
    use std::os::unix::fs::symlink;
    use tempfile::NamedTempFile;

    fn control(file: &NamedTempFile, flags: &[&str]) -> Control {
        let matches = Opts::command().get_matches_from([&["scx_magpie"], flags].concat());
        Control::new(Config::new(&matches, file.path()).unwrap(), true, Arc::default(), || false).unwrap()
    }

    /// Return the reply, the slices that were applied, and whether a restart is needed.
    fn ask(control: &mut Control, request: Request) -> (Result<Reply>, Vec<u64>, bool) {
        let mut slices = vec![];
        let mut apply = |tunables: &Tunables| {
            slices.push(tunables.slice_us);
            Ok(())
        };
        let reply = control.reply(request, &mut apply);
        (reply, slices, control.before.is_some())
    }

    fn set(changes: &[&str]) -> Request {
        Request::Set { changes: changes.iter().map(|change| change.to_string()).collect(), reset: changes.is_empty() }
    }

    #[test]
    fn changes_while_it_runs() {
        let file = NamedTempFile::new().unwrap();
        let mut control = control(&file, &[]);
        let (reply, applied, restarts) = ask(&mut control, set(&["slice_us=5000"]));
        let Reply::Changes { changes, new_start: false } = reply.unwrap() else { panic!() };
        assert_eq!((changes[0].to_string().as_str(), changes.len()), ("slice-us: 3000 -> 5000", 1));
        assert_eq!((applied, restarts), (vec![5000], false));
        // A value that is set for a key overrides a profile.
        assert_eq!(ask(&mut control, set(&["profile=latency"])).1, [5000]);
        assert_eq!(ask(&mut control, set(&[])).1, [3000]);
        assert_eq!(control.settings().tunables.slice_us, 3000);
    }

    #[test]
    fn a_new_start_is_for_a_reload() {
        let file = NamedTempFile::new().unwrap();
        let mut control = control(&file, &[]);
        let (reply, applied, restarts) = ask(&mut control, set(&["timeout-ms=5s", "slice-us=5000"]));
        assert!(reply.unwrap_err().to_string().contains("'timeout-ms' cannot change while the scheduler runs"));
        assert_eq!((applied, restarts, control.settings().tunables.slice_us), (vec![], false, 3000));

        fs::write(&file, "timeout-ms = 5000").unwrap();
        let (reply, applied, restarts) = ask(&mut control, Request::Reload);
        assert!(matches!(reply.unwrap(), Reply::Changes { new_start: true, .. }));
        assert_eq!((applied, restarts, control.settings().tunables.timeout_ms), (vec![], true, 5000));
        assert!(control.take_back(&anyhow::anyhow!("no")));
        assert_eq!(control.settings().tunables.timeout_ms, 30_000);
        assert!(!control.take_back(&anyhow::anyhow!("no")));
    }

    #[test]
    fn a_hangup_reloads_and_ends_one_whose_terminal_is_gone() {
        let file = NamedTempFile::new().unwrap();
        let mut control = control(&file, &[]);
        fs::write(&file, "slice-us = 5000").unwrap();
        for (had_terminal, ends) in [(false, false), (true, true)] {
            let (shutdown, mut slices) = (AtomicBool::new(false), vec![]);
            control.has_terminal = had_terminal;
            control.hangup.store(true, Ordering::Relaxed);
            control.answer(&shutdown, |tunables| {
                slices.push(tunables.slice_us);
                Ok(())
            });
            assert_eq!((shutdown.into_inner(), slices.is_empty()), (ends, ends));
        }
    }

    /// As the kubelet does: the file is a link through a link that is replaced.
    #[test]
    fn a_file_that_is_replaced_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let put = |version: &str, text: &str| {
            fs::create_dir(folder.path().join(version)).unwrap();
            fs::write(folder.path().join(version).join("f.toml"), text).unwrap();
            symlink(version, folder.path().join("new")).unwrap();
            fs::rename(folder.path().join("new"), folder.path().join("..data")).unwrap();
        };
        put("1", "slice-us = 5000");
        symlink("..data/f.toml", folder.path().join("f.toml")).unwrap();
        let config = Config::new(&Opts::command().get_matches_from(["scx_magpie"]), &folder.path().join("f.toml"));
        let mut control = Control::new(config.unwrap(), true, Arc::default(), || false).unwrap();
        let mut looks = || {
            let mut slices: Vec<u64> = vec![];
            control.follow.as_mut().unwrap().0 = Instant::now();
            control.answer(&AtomicBool::new(false), |tunables| {
                slices.push(tunables.slice_us);
                Ok(())
            });
            slices
        };
        assert!(looks().is_empty());
        put("2", "slice-us = 6000");
        assert_eq!([looks(), looks()], [vec![6000], vec![]]);
        // One that is wrong changes nothing, and the next one counts.
        put("3", "slice-us = 1");
        put("4", "slice-us = 7000");
        assert_eq!(looks(), [7000]);
        put("5", "slice-us = 1");
        assert!(looks().is_empty());
        assert_eq!(control.settings().tunables.slice_us, 7000);
        fs::remove_file(folder.path().join("f.toml")).unwrap();
    }

    #[test]
    fn a_default_in_other_words_is_no_change() {
        let file = NamedTempFile::new().unwrap();
        fs::write(&file, "slice-us = '3ms'\nprofile = 'latency'").unwrap();
        let status = control(&file, &["--steal=llc"]).status().to_string();
        assert!(status.contains("profile latency, flags not default: 3,"), "{status}");
        assert!(status.contains("cgroups: 0 of 65535,"), "{status}");
    }

    #[test]
    fn a_broken_file_changes_nothing() {
        let file = NamedTempFile::new().unwrap();
        let mut control = control(&file, &[]);
        ask(&mut control, set(&["slice-us=5000"])).0.unwrap();
        fs::write(&file, "slice-us = 200\nsteal = 3").unwrap();
        let (reply, applied, restarts) = ask(&mut control, Request::Reload);
        assert!(reply.unwrap_err().to_string().contains(":2: invalid value '3' for '--steal <STEAL>'"));
        assert_eq!((applied, restarts, control.settings().tunables.slice_us), (vec![], false, 5000));
    }
}
