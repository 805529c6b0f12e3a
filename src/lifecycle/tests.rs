// SPDX-License-Identifier: GPL-2.0-only
use std::collections::VecDeque;

use anyhow::{anyhow, bail, ensure};

use super::*;

/// A host whose calls return scripted results in order, then success. It records all calls.
#[derive(Default)]
struct Fake {
    calls: Vec<String>,
    nr_loaded: usize,
    loads: VecDeque<bool>,
    attaches: VecDeque<bool>,
    /// False: an error. Empty: Over.
    serves: VecDeque<Result<Served, ()>>,
    /// Programs that the kernel ends during the next load.
    ejected: Vec<usize>,
    /// What follows the ends of programs, in order.
    nexts: VecDeque<Next>,
    /// Programs become outdated by reloads.
    reloads: bool,
    has_reloaded: bool,
    /// Numbers of CPUs that appear during the next loads.
    hotplugs: VecDeque<u64>,
    seq: u64,
    is_told_to_stop: bool,
    /// What happens while the fake waits for its turn, if it has to.
    turn: Option<Turn>,
}

#[derive(Clone, Copy)]
enum Turn {
    Comes,
    Stopped,
    TooLate,
}

impl Fake {
    fn note(&mut self, call: String) {
        assert!(self.calls.len() < 100, "for ever: {:?}", self.calls);
        self.calls.push(call);
    }

    /// Run the fake. Return the calls and the error.
    fn lives(mut self) -> (String, Option<String>) {
        let result = run(&mut self);
        (self.calls.join(", "), result.err().map(|err| err.to_string()))
    }
}

impl Host for Fake {
    type Program = usize;

    fn load(&mut self, is_attached: bool) -> Result<usize> {
        self.nr_loaded += 1;
        self.note(format!("load {}{}", self.nr_loaded, if is_attached { "" } else { " alone" }));
        self.seq += self.hotplugs.pop_front().unwrap_or(0);
        ensure!(self.loads.pop_front().unwrap_or(true), "load {}", self.nr_loaded);
        Ok(self.nr_loaded)
    }

    fn wait_for_turn(&mut self) -> Result<()> {
        let Some(turn) = self.turn.take() else { return Ok(()) };
        self.note("wait for turn".into());
        self.is_told_to_stop = matches!(turn, Turn::Stopped);
        ensure!(!matches!(turn, Turn::TooLate), "too late");
        Ok(())
    }

    fn attach(&mut self, program: &mut usize) -> Result<()> {
        self.note(format!("attach {program}"));
        ensure!(self.attaches.pop_front().unwrap_or(true), "attach {program}");
        self.has_reloaded = false;
        Ok(())
    }

    fn serve(&mut self, program: &mut usize) -> Result<Served> {
        self.note(format!("serve {program}"));
        let served = self.serves.pop_front().unwrap_or(Ok(Served::Over));
        self.has_reloaded = self.reloads && served == OUTDATED;
        served.map_err(|()| anyhow!("serve"))
    }

    fn replace(&mut self, program: usize) -> Result<()> {
        self.note(format!("replace {program}"));
        ensure!(!self.ejected.contains(&program), "ejected {program}");
        Ok(())
    }

    fn end(&mut self, program: usize) -> Result<Next> {
        self.note(format!("end {program}"));
        if self.ejected.contains(&program) {
            bail!("ejected {program}");
        }
        Ok(self.nexts.pop_front().unwrap_or_default())
    }

    fn take_back(&mut self, _: &Error) -> bool {
        let had = std::mem::take(&mut self.has_reloaded);
        if had {
            self.note("take back".into());
        }
        had
    }

    fn put_off(&mut self, program: &mut usize, pause: Duration) {
        self.note(format!("put off {program} by {}", pause.as_secs()));
    }

    fn hotplug_seq(&self) -> u64 {
        self.seq
    }

    fn wait_until_quiet(&mut self, quiet: Duration) {
        self.note(format!("wait {}", quiet.as_secs()));
    }

    fn is_told_to_stop(&self) -> bool {
        self.is_told_to_stop
    }
}

const OUTDATED: Result<Served, ()> = Ok(Served::Outdated);

#[test]
fn starts_and_stops() {
    assert_eq!(Fake::default().lives(), ("load 1 alone, attach 1, serve 1, end 1".into(), None));
    let stopped = Fake { is_told_to_stop: true, ..Fake::default() };
    assert_eq!(stopped.lives(), (String::new(), None));
}

#[test]
fn a_start_waits_for_its_turn_with_the_programs_loaded() {
    for (turn, calls, err) in [
        (Turn::Comes, ", attach 1, serve 1, load 2, replace 1, attach 2, serve 2, end 2", None),
        (Turn::Stopped, "", None),
        (Turn::TooLate, "", Some("too late".into())),
    ] {
        let fake = Fake { turn: Some(turn), serves: [OUTDATED].into(), ..Fake::default() };
        assert_eq!(fake.lives(), (format!("load 1 alone, wait for turn{calls}"), err));
    }
}

#[test]
fn a_start_that_fails_ends_it() {
    let fake = Fake { loads: [false].into(), ..Fake::default() };
    assert_eq!(fake.lives(), ("load 1 alone".into(), Some("load 1".into())));
    let fake = Fake { attaches: [false].into(), ..Fake::default() };
    assert_eq!(fake.lives(), ("load 1 alone, attach 1".into(), Some("attach 1".into())));
}

#[test]
fn what_hotplug_makes_fail_is_tried_again() {
    let fake = Fake { loads: [false, false].into(), hotplugs: [1, 1].into(), ..Fake::default() };
    let calls = "load 1 alone, wait 1, load 2 alone, wait 2, load 3 alone, attach 3, serve 3, end 3";
    assert_eq!(fake.lives(), (calls.into(), None));
}

#[test]
fn a_restart_replaces_what_is_attached() {
    let fake = Fake { serves: [OUTDATED].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, replace 1, attach 2, serve 2, end 2";
    assert_eq!(fake.lives(), (calls.into(), None));
}

#[test]
fn a_load_that_fails_twice_leaves_the_old_program_attached() {
    let fake =
        Fake { loads: [true, false, false].into(), serves: [OUTDATED, OUTDATED, OUTDATED].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, put off 1 by 1, serve 1, load 3, put off 1 by 2, serve 1, \
                 load 4, replace 1, attach 4, serve 4, end 4";
    assert_eq!(fake.lives(), (calls.into(), None));
}

#[test]
fn a_reload_that_fails_is_undone() {
    let fake = Fake { loads: [true, false].into(), serves: [OUTDATED].into(), reloads: true, ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, take back, put off 1 by 1, serve 1, end 1";
    assert_eq!(fake.lives(), (calls.into(), None));
    // The new program loads but does not attach. The previous configuration is started again.
    let fake = Fake { attaches: [true, false].into(), serves: [OUTDATED].into(), reloads: true, ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, replace 1, attach 2, take back, load 3 alone, attach 3, serve 3, end 3";
    assert_eq!(fake.lives(), (calls.into(), None));
}

#[test]
fn a_restart_that_does_not_attach_is_tried_once_more() {
    let fake = Fake { attaches: [true, false].into(), serves: [OUTDATED].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, replace 1, attach 2, load 3 alone, attach 3, serve 3, end 3";
    assert_eq!(fake.lives(), (calls.into(), None));
    let fake = Fake { attaches: [true, false, false].into(), serves: [OUTDATED].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, replace 1, attach 2, load 3 alone, attach 3";
    assert_eq!(fake.lives(), (calls.into(), Some("attach 3".into())));
}

#[test]
fn an_ejection_is_reported_also_during_a_reload() {
    let fake = Fake { ejected: vec![1], ..Fake::default() };
    assert_eq!(fake.lives(), ("load 1 alone, attach 1, serve 1, end 1".into(), Some("ejected 1".into())));
    let fake = Fake { ejected: vec![1], serves: [OUTDATED].into(), reloads: true, ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, load 2, replace 1";
    assert_eq!(fake.lives(), (calls.into(), Some("ejected 1".into())));
}

#[test]
fn an_error_while_it_is_served_ends_it_unless_it_was_ejected() {
    let fake = Fake { serves: [Err(())].into(), ..Fake::default() };
    assert_eq!(fake.lives(), ("load 1 alone, attach 1, serve 1, end 1".into(), Some("serve".into())));
    let fake = Fake { serves: [Err(())].into(), ejected: vec![1], ..Fake::default() };
    assert_eq!(fake.lives(), ("load 1 alone, attach 1, serve 1, end 1".into(), Some("ejected 1".into())));
}

#[test]
fn the_kernel_may_ask_for_a_restart() {
    let fake = Fake { nexts: [Next::StartWhenQuiet].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, end 1, wait 1, load 2 alone, attach 2, serve 2, end 2";
    assert_eq!(fake.lives(), (calls.into(), None));
}

#[test]
fn what_stood_still_starts_again_at_once() {
    let fake = Fake { nexts: [Next::Start].into(), ..Fake::default() };
    let calls = "load 1 alone, attach 1, serve 1, end 1, load 2 alone, attach 2, serve 2, end 2";
    assert_eq!(fake.lives(), (calls.into(), None));
}
