// SPDX-License-Identifier: GPL-2.0-only
//! The life of the scheduler: start, restart, ejection, end. A restart that fails leaves the program attached that works.
//!
//! ```text
//!    +---------> load <------------------------------------------------------+
//!    |            | fails: a reload is undone; without a program attached it  |
//!    |            |        ends, else that one is served, and the next load   |
//!    |            v        is put off                                         |
//!    |          replace the program that is attached: was it ejected meanwhile? --yes--> report, end
//!    |            |                                                           |
//!    |            v                                                           |
//!    |          attach: fails: a reload is undone; load once more, then end   |
//!    |            |                                                           |
//!    |            v                                                           |
//!    |          serve --a reload, a change of the machine---------------------+
//!    |            |
//!    |            +--told to stop, ejected--> report, end
//!    +-- CPUs ----+ (the kernel asks for a restart, or hotplug was why something failed: wait until it is over)
//! ```

pub mod loader;

use std::time::Duration;

use anyhow::{Error, Result};
use log::{info, warn};

use crate::hotplug::{MAX_PAUSE, QUIET};
use crate::scheduler::Served;

/// What the states need of the world.
pub trait Host {
    type Program;

    /// Load a program for the configuration and the machine as they are. Another one may be attached.
    fn load(&mut self, is_attached: bool) -> Result<Self::Program>;

    /// Attach it; none is attached.
    fn attach(&mut self, program: &mut Self::Program) -> Result<()>;

    /// Serve it until it is over or outdated.
    fn serve(&mut self, program: &mut Self::Program) -> Result<Served>;

    /// Detach it to make room for the next one. Fails if the kernel had ended it: the reason.
    fn replace(&mut self, program: Self::Program) -> Result<()>;

    /// Detach it and report. Fails if the kernel has ended it. True: the kernel asked for a restart.
    fn end(&mut self, program: Self::Program) -> Result<bool>;

    /// Undo a reload that `err` has kept from starting. False: there was none.
    fn take_back(&mut self, err: &Error) -> bool;

    /// A change of the machine does not make the program outdated for so long.
    fn put_off(&mut self, program: &mut Self::Program, pause: Duration);

    /// The kernel's count of CPUs that came or went.
    fn hotplug_seq(&self) -> u64;

    /// Wait until none has for so long, or until it is to stop.
    fn wait_until_quiet(&mut self, quiet: Duration);

    /// Is it to stop?
    fn is_told_to_stop(&self) -> bool;
}

/// Run until it is told to stop, ejected, or cannot start.
pub fn run(host: &mut impl Host) -> Result<()> {
    let (mut attached, mut pause) = (None, QUIET);
    loop {
        if host.is_told_to_stop() {
            return attached.map_or(Ok(()), |program| host.end(program).map(drop));
        }
        let (hotplugs, is_restart) = (host.hotplug_seq(), attached.is_some());
        let started = match host.load(is_restart) {
            Ok(mut next) => {
                attached.take().map_or(Ok(()), |old| host.replace(old))?;
                host.attach(&mut next).map(|()| next)
            }
            Err(err) => Err(err),
        };
        match started {
            Ok(program) => {
                attached = Some(program);
                pause = QUIET;
            }
            Err(err) if host.hotplug_seq() != hotplugs => {
                warn!("{err:#}; CPUs were hotplugged meanwhile: retrying after {} s without hotplug", pause.as_secs());
                host.wait_until_quiet(pause);
                pause = longer(pause);
                continue;
            }
            Err(err) if let Some(program) = &mut attached => {
                if !host.take_back(&err) {
                    warn!(
                        "cannot load the scheduler again, continuing with the attached one for at least {} s: {err:#}",
                        pause.as_secs()
                    );
                }
                host.put_off(program, pause);
                pause = longer(pause);
            }
            Err(err) if host.take_back(&err) => continue,
            // A program was attached until now: so one can be.
            Err(err) if is_restart => {
                warn!("cannot attach the scheduler again, retrying: {err:#}");
                continue;
            }
            Err(err) => return Err(err),
        }
        let Some(program) = &mut attached else { continue };
        match host.serve(program) {
            Ok(Served::Outdated) => {}
            over => {
                let wants_restart = attached.take().map_or(Ok(false), |program| host.end(program))?;
                over?;
                if !wants_restart {
                    return Ok(());
                }
                info!("the kernel asked for a restart");
                host.wait_until_quiet(pause);
            }
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (2 * pause).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests;
