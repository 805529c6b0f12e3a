// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie top` on a pseudo terminal: it takes keys, and leaves the terminal as it was, whatever
//! ends it.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{Termios, tcgetattr};
use nix::unistd::Pid;

const PATIENCE: Duration = Duration::from_secs(60);

/// A pseudo terminal with `top` on it, which plays a recording.
struct Screen {
    terminal: File,
    before: Termios,
    process: Child,
    output: Receiver<Vec<u8>>,
    /// What was written to the terminal, after what was waited for last.
    text: String,
}

impl Screen {
    fn new(rows: u16, columns: u16) -> Self {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).unwrap();
        let before = tcgetattr(&pty.slave).unwrap();
        let side = || Stdio::from(pty.slave.try_clone().unwrap());
        // Without setsid /dev/tty, whose size `top` takes, is the terminal that the tests run on.
        let mut command = Command::new("setsid");
        command.args(["--ctty", env!("CARGO_BIN_EXE_scx_magpie"), "top", "--replay", "tests/data/top.jsonl"]);
        command.env("TERM", "xterm").env("LANG", "C.UTF-8");
        let process = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        let terminal = File::from(pty.master);
        let (sender, output) = mpsc::channel();
        let mut reader = terminal.try_clone().unwrap();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // When nobody has the other side open any more it fails.
            while let Ok(read @ 1..) = reader.read(&mut bytes)
                && sender.send(bytes[..read].to_vec()).is_ok()
            {}
        });
        Self { terminal, before, process, output, text: String::new() }
    }

    /// Waits until this is written, after what was waited for last.
    fn wait_for(&mut self, word: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.text.find(word) {
                self.text.drain(..at + word.len());
                return;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok(bytes) = self.output.recv_timeout(left) else { panic!("no '{word}' in: {:?}", self.text) };
            self.text += &String::from_utf8_lossy(&bytes);
        }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for its end; the terminal must be as it was.
    fn end(mut self) -> ExitStatus {
        let status = self.process.wait().unwrap();
        assert_eq!(tcgetattr(&self.terminal).unwrap(), self.before);
        status
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        _ = self.process.kill();
    }
}

const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";

// Words: what does not change between them is not written again, a space neither.
#[test]
fn keys_choose_views_and_end_it() {
    for last in ["q", "\x03"] {
        let mut screen = Screen::new(30, 100);
        screen.wait_for(ENTER);
        assert_ne!(tcgetattr(&screen.terminal).unwrap(), screen.before);
        screen.wait_for("stolen");
        screen.press("4");
        screen.wait_for("deepest");
        screen.press(last);
        screen.wait_for(LEAVE);
        assert!(screen.end().success());
    }
}

#[test]
fn signals_leave_the_terminal_as_it_was() {
    let mut screen = Screen::new(24, 80);
    screen.wait_for(ENTER);
    kill(Pid::from_raw(screen.process.id() as i32), Signal::SIGTERM).unwrap();
    screen.wait_for(LEAVE);
    assert!(screen.end().success());
}

#[test]
fn a_terminal_without_a_size_is_refused() {
    let mut screen = Screen::new(0, 0);
    screen.wait_for("does not report its size");
    assert!(!screen.end().success());
}
