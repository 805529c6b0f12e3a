// SPDX-License-Identifier: GPL-2.0-only
//! Life of the scheduler: start, restart, ejection, end. A failed load keeps the attached program.
//!
//! ```text
//!    +---------> load <------------------------------------------------------+
//!    |            | fails: a reload is undone; without a program attached the |
//!    |            |        loader ends, else that one is served, and the next |
//!    |            v        load is delayed                                    |
//!    |          wait for the turn, at a start with --wait                      |
//!    |            v                                                           |
//!    |          replace the attached program: was it ejected meanwhile? --yes--> report, end
//!    |            |                                                           |
//!    |            v                                                           |
//!    |          attach; fails: a reload is undone; load once more, then end   |
//!    |            |                                                           |
//!    |            v                                                           |
//!    |          serve --a reload, a change of the machine---------------------+
//!    |            |
//!    |            +--stop requested, ejected--> report, end
//!    +-- CPUs ----+ (the kernel asks for a restart, or hotplug made a step fail: wait until it is over)
//!    +-- clock ---+ (the machine stood still, and the kernel's watchdog took it for a stall)
//! ```

pub mod loader;

use std::time::Duration;

use anyhow::{Error, Result};
use log::warn;

use crate::hotplug::{MAX_PAUSE, QUIET};
use crate::scheduler::Served;

/// What follows the end of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Next {
    #[default]
    Nothing,
    /// Start again.
    Start,
    /// Start again, once no CPU has been hotplugged for a while.
    StartWhenQuiet,
}

/// Environment of the lifecycle: the loader, or a fake in tests.
pub trait Host {
    type Program;

    /// Load a program for the current configuration and machine. Another one may be attached.
    fn load(&mut self, is_attached: bool) -> Result<Self::Program>;

    /// Wait until no other scheduler is attached, if that is asked for, or until a stop is requested.
    fn wait_for_turn(&mut self) -> Result<()>;

    /// Attach the program. No other is attached.
    fn attach(&mut self, program: &mut Self::Program) -> Result<()>;

    /// Serve the program until it has ended or is outdated.
    fn serve(&mut self, program: &mut Self::Program) -> Result<Served>;

    /// Detach the program for the next one. Fails with the kernel's reason if it was ejected.
    fn replace(&mut self, program: Self::Program) -> Result<()>;

    /// Detach the program and report. Fails if it was ejected.
    fn end(&mut self, program: Self::Program) -> Result<Next>;

    /// Undo a reload that failed to start with `err`. Return false if there was none.
    fn take_back(&mut self, err: &Error) -> bool;

    /// Ignore changes of the machine for the time `pause`.
    fn put_off(&mut self, program: &mut Self::Program, pause: Duration);

    /// Return the kernel's count of CPU hotplug events.
    fn hotplug_seq(&self) -> u64;

    /// Wait until no CPU has been hotplugged for the time `quiet`, or until a stop is requested.
    fn wait_until_quiet(&mut self, quiet: Duration);

    /// Return true if a stop is requested.
    fn is_told_to_stop(&self) -> bool;
}

/// Run until a stop is requested, the scheduler is ejected, or it cannot start.
pub fn run(host: &mut impl Host) -> Result<()> {
    let (mut attached, mut pause) = (None, QUIET);
    loop {
        if host.is_told_to_stop() {
            return attached.map_or(Ok(()), |program| host.end(program).map(drop));
        }
        let (hotplugs, is_restart) = (host.hotplug_seq(), attached.is_some());
        let started = match host.load(is_restart) {
            Ok(mut next) => {
                match attached.take() {
                    Some(old) => host.replace(old)?,
                    None => host.wait_for_turn()?,
                }
                if !is_restart && host.is_told_to_stop() {
                    continue;
                }
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
            Err(err) if attached.is_some() => {
                if !host.take_back(&err) {
                    warn!(
                        "cannot load the scheduler again, continuing with the attached one for at least {} s: {err:#}",
                        pause.as_secs()
                    );
                }
                attached.iter_mut().for_each(|program| host.put_off(program, pause));
                pause = longer(pause);
            }
            Err(err) if host.take_back(&err) => continue,
            // A program was attached until now, so attaching is possible.
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
                let next = attached.take().map_or(Ok(Next::Nothing), |program| host.end(program))?;
                over?;
                match next {
                    Next::Nothing => return Ok(()),
                    Next::Start => {}
                    Next::StartWhenQuiet => host.wait_until_quiet(pause),
                }
            }
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (2 * pause).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests;
