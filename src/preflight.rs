// SPDX-License-Identifier: GPL-2.0-only
//! Reasons not to run here, found before anything is loaded: each a line that says what to do, and an exit code.

use std::fmt;
use std::fs;
use std::path::Path;

use scx_utils::compat;

const SYSFS: &str = "/sys/kernel/sched_ext";

pub const EXIT_CODES: &str = "\
Exit codes: 0 detached on request; 1 ejected by the kernel, or another failure; 2 wrong flag or value; 3 not root;
4 kernel without sched_ext; 5 another scheduler is attached; 6 malformed kfunc prototypes in the kernel's BTF;
7 the machine's topology, as sysfs has it, cannot be right.";

/// Wrong flag or value.
pub const EXIT_USAGE: u8 = 2;

/// A reason for which the scheduler cannot run on this machine now.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    NotRoot,
    NoSchedExt {
        release: String,
    },
    Busy {
        ops: String,
    },
    MalformedBtf {
        release: String,
        kfuncs: usize,
    },
    /// `problem` also says what to do.
    Topology {
        problem: String,
    },
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The process's exit code, as listed in [`EXIT_CODES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotRoot => 3,
            Self::NoSchedExt { .. } => 4,
            Self::Busy { .. } => 5,
            Self::MalformedBtf { .. } => 6,
            Self::Topology { .. } => 7,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => write!(f, "needs root: run it with sudo"),
            Self::NoSchedExt { release } => write!(
                f,
                "kernel {release} has no sched_ext: boot one of 6.16 or newer built with CONFIG_SCHED_CLASS_EXT=y"
            ),
            Self::Busy { ops } => {
                write!(f, "another sched_ext scheduler is attached ({ops}): stop it first, for example with Ctrl-C")
            }
            Self::MalformedBtf { release, kfuncs } => write!(
                f,
                "kernel {release} describes {kfuncs} scx kfuncs wrongly in its BTF (built with pahole < 1.26), so no \
                 sched_ext scheduler loads: boot another build"
            ),
            Self::Topology { problem } => write!(f, "the machine's topology cannot be right: {problem}"),
        }
    }
}

/// Checks what can be checked without loading anything.
pub fn check() -> Result<(), Refusal> {
    // SAFETY: geteuid() has no preconditions.
    check_facts(unsafe { libc::geteuid() } == 0, Path::new(SYSFS))
}

fn check_facts(root: bool, sysfs: &Path) -> Result<(), Refusal> {
    if !sysfs.exists() {
        return Err(Refusal::NoSchedExt { release: release() });
    }
    if !root {
        return Err(Refusal::NotRoot);
    }
    let read = |name: &str| fs::read_to_string(sysfs.join(name)).map(|s| s.trim().to_string());
    if read("state").is_ok_and(|state| state != "disabled") {
        let ops = read("root/ops").unwrap_or_else(|_| "just coming or going".into());
        return Err(Refusal::Busy { ops });
    }
    Ok(())
}

/// Why loading failed, if it is the kernel's BTF: asked only after a failure, for it goes through all of it.
pub fn malformed_btf() -> Option<Refusal> {
    match compat::malformed_scx_kfuncs().len() {
        0 => None,
        kfuncs => Some(Refusal::MalformedBtf { release: release(), kfuncs }),
    }
}

fn release() -> String {
    fs::read_to_string("/proc/sys/kernel/osrelease").map_or_else(|_| "?".into(), |s| s.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sysfs(name: &str, state: &str) -> std::path::PathBuf {
        let dir = std::env::temp_dir().join(format!("magpie-preflight-{}-{name}", std::process::id()));
        fs::create_dir_all(dir.join("root")).unwrap();
        fs::write(dir.join("state"), state).unwrap();
        fs::write(dir.join("root/ops"), "other_1.0\n").unwrap();
        dir
    }

    #[test]
    fn each_refusal_is_told_from_the_others() {
        let idle = sysfs("idle", "disabled\n");
        let busy = sysfs("busy", "enabled\n");
        assert_eq!(check_facts(true, &idle), Ok(()));
        assert_eq!(check_facts(false, &idle), Err(Refusal::NotRoot));
        assert_eq!(check_facts(true, &busy), Err(Refusal::Busy { ops: "other_1.0".into() }));
        assert!(matches!(check_facts(true, Path::new("/nonexistent")), Err(Refusal::NoSchedExt { .. })));
        fs::remove_dir_all(idle).unwrap();
        fs::remove_dir_all(busy).unwrap();
    }

    #[test]
    fn messages_are_one_line_and_codes_are_documented() {
        let refusals = [
            Refusal::NotRoot,
            Refusal::NoSchedExt { release: "6.1".into() },
            Refusal::Busy { ops: "x".into() },
            Refusal::MalformedBtf { release: "7.1".into(), kfuncs: 3 },
            Refusal::Topology { problem: "no CPUs".into() },
        ];
        for refusal in refusals {
            assert!(!refusal.to_string().contains('\n'));
            assert!(EXIT_CODES.contains(&format!("{} ", refusal.exit_code())), "{refusal:?}");
        }
    }
}
