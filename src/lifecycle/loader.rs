// SPDX-License-Identifier: GPL-2.0-only
//! The loader as the host of the lifecycle: BPF programs, this machine, requests of operators.

use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use log::{info, warn};

use super::{Host, Next};
use crate::cli::Opts;
use crate::control::Control;
use crate::exit::Refusal;
use crate::scheduler::{Scheduler, Served};
use crate::service::Watchdog;
use crate::{hotplug, preflight};

/// How often a loader that waits for its turn reads the kernel's state: the gap without a scheduler
/// is up to so much longer.
const TURN_INTERVAL: Duration = Duration::from_millis(10);

pub struct Loader {
    opts: Opts,
    control: Control,
    shutdown: Arc<AtomicBool>,
    watchdog: Watchdog,
    /// Capacities by CPU, from the kernel once a program is attached, before that from sysfs.
    capacities: BTreeMap<usize, usize>,
}

impl Loader {
    /// Create a loader. `shutdown` asks it to stop.
    pub fn new(opts: Opts, control: Control, shutdown: Arc<AtomicBool>) -> Self {
        Self { opts, control, shutdown, watchdog: Watchdog::from_env(), capacities: BTreeMap::new() }
    }
}

impl Host for Loader {
    type Program = Scheduler<'static>;

    fn load(&mut self, is_attached: bool) -> Result<Self::Program> {
        self.opts.settings = self.control.settings().clone();
        // Leaks some bytes per load. Loads are rare.
        let object = Box::leak(Box::new(MaybeUninit::uninit()));
        let loaded = Scheduler::load_for(&self.opts, object, |layout| layout.set_capacities(&self.capacities));
        // The attached scheduler is this process's, so `explain()` would report it as busy.
        let waits = self.opts.wait.is_some();
        loaded.map_err(|err| if is_attached { err } else { preflight::explain(err, waits) })
    }

    fn wait_for_turn(&mut self) -> Result<()> {
        let Some(patience) = self.opts.wait.map(Duration::from_secs_f64) else { return Ok(()) };
        let start = Instant::now();
        while let Some(ops) = preflight::predecessor()? {
            if self.is_told_to_stop() {
                return Ok(());
            }
            let now = Instant::now();
            if now - start >= patience {
                return Err(Refusal::Busy { ops }.into());
            }
            self.control.answer_waiting(&ops);
            self.watchdog.pet(now);
            thread::sleep(TURN_INTERVAL);
        }
        Ok(())
    }

    fn attach(&mut self, scheduler: &mut Self::Program) -> Result<()> {
        scheduler.attach()?;
        self.control.started();
        Ok(())
    }

    fn serve(&mut self, scheduler: &mut Self::Program) -> Result<Served> {
        if let Some(others) = scheduler.other_capacities()?.filter(|others| *others != self.capacities) {
            info!("the kernel's CPU capacities differ from those in sysfs: loading the scheduler again");
            self.capacities = others;
            return Ok(Served::Outdated);
        }
        scheduler.serve(&self.shutdown, &mut self.control, &mut self.watchdog)
    }

    fn replace(&mut self, mut scheduler: Self::Program) -> Result<()> {
        let exit = scheduler.end()?;
        exit.check().inspect_err(|_| exit.print_dump())?;
        Ok(())
    }

    fn end(&mut self, mut scheduler: Self::Program) -> Result<Next> {
        let exit = scheduler.end()?;
        if let Some(jump) = scheduler.jump(&exit) {
            let sec = jump.as_secs();
            warn!("the machine stood still for {sec} s, which the kernel took for a stall ({exit}): attaching again");
            return Ok(Next::Start);
        }
        exit.print_dump();
        exit.check()?;
        eprintln!("{exit}");
        if exit.wants_restart() {
            info!("the kernel asked for a restart");
            return Ok(Next::StartWhenQuiet);
        }
        Ok(Next::Nothing)
    }

    fn take_back(&mut self, err: &Error) -> bool {
        self.control.take_back(err)
    }

    fn put_off(&mut self, scheduler: &mut Self::Program, pause: Duration) {
        scheduler.put_off(pause);
    }

    fn hotplug_seq(&self) -> u64 {
        hotplug::seq()
    }

    fn wait_until_quiet(&mut self, quiet: Duration) {
        hotplug::wait_until_quiet(quiet, |now| {
            self.watchdog.pet(now);
            !self.is_told_to_stop()
        });
    }

    fn is_told_to_stop(&self) -> bool {
        self.shutdown.load(Ordering::Relaxed)
    }
}
