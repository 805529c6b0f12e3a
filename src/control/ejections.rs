// SPDX-License-Identifier: GPL-2.0-only
//! Why schedulers ended that nobody stopped, since the machine was booted: a line each in a file that `status` reads.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::SystemTime;

use log::warn;

/// Gone with the next boot. The service may write to this folder only.
const FILE: &str = "/run/scx/scx_magpie.ejected";

/// Notes that the scheduler ends for this reason.
pub fn note(reason: &anyhow::Error) {
    if let Err(err) = note_in(FILE.as_ref(), reason) {
        warn!("'status' will not tell that it ended: {FILE}: {err}");
    }
}

/// How many there are, and the last one's time and reason.
pub fn summary() -> String {
    summary_of(FILE.as_ref())
}

fn note_in(file: &Path, reason: &anyhow::Error) -> io::Result<()> {
    let reason = format!("{reason:#}");
    let line = format!(
        "{}: {}\n",
        humantime::format_rfc3339_seconds(SystemTime::now()),
        reason.lines().next().unwrap_or_default()
    );
    file.parent().map_or(Ok(()), fs::create_dir_all)?;
    OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())
}

fn summary_of(file: &Path) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    match text.lines().last() {
        None => "no ejections since boot".into(),
        Some(last) => format!("ejections since boot: {}, the last {last}", text.lines().count()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::anyhow;

    #[test]
    fn ejections_are_counted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("scx/ejected");
        assert_eq!(summary_of(&file), "no ejections since boot");
        note_in(&file, &anyhow!("a")).unwrap();
        note_in(&file, &anyhow!("stall\nof a task").context("EXIT")).unwrap();
        let summary = summary_of(&file);
        assert!(summary.starts_with("ejections since boot: 2, the last 20"), "{summary}");
        assert!(summary.ends_with("Z: EXIT: stall"), "{summary}");
    }
}
