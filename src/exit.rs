// SPDX-License-Identifier: GPL-2.0-only
//! Exit statuses of the process, and the errors that have one, each a line with a remedy.

use std::fmt;

/// Last line of `-h`.
pub const AFTER_SHORT_HELP: &str = "scx_magpie --help has units, ranges, examples and exit statuses.";

/// Notations for values and flags.
pub const VALUES: [&str; 3] = [
    "A time may have a unit: --slice-us 5ms is the same as --slice-us 5000.",
    "A switch may have a value: --no-cgroups=false overrides a true in the file.",
    "Each tuning flag, without its dashes, is also a key of /etc/scx_magpie.toml.",
];

/// Command lines, each with its effect.
pub const EXAMPLES: [(&str, &str); 6] = [
    ("sudo scx_magpie --stats 1", "attach, and print a row each second"),
    ("sudo systemctl enable --now scx_magpie", "start it now and at each boot"),
    ("sudo scx_magpie status", "report whether a scheduler runs"),
    ("sudo scx_magpie set slice-us=5ms", "change a flag while it runs"),
    ("sudo scx_magpie top", "watch it full-screen"),
    ("sudo systemctl disable --now scx_magpie", "stop it, and do not start it at boot"),
];

/// Each exit status with its meaning.
pub const STATUSES: [(u8, &str); 16] = [
    (0, "The scheduler was detached on request."),
    (EXIT_FAILURE, "The kernel ejected the scheduler, or another failure occurred."),
    (EXIT_USAGE, "A flag, a key, a value or the configuration file is wrong."),
    (3, "The user is not root, or root lacks capabilities, as in containers."),
    (4, "The kernel has no sched_ext."),
    (5, "Another sched_ext scheduler is attached."),
    (6, "The kernel's BTF describes scx kfuncs wrongly."),
    (7, "sysfs does not show all CPUs, or the machine exceeds a limit."),
    (8, "The kernel's command line has isolcpus=."),
    (9, "Too few files may be open."),
    (10, "The kernel is locked down."),
    (11, "No scx_magpie runs (status, set, reload)."),
    (EXIT_SYSRQ, "SysRq-S detached the scheduler."),
    (EXIT_GIVE_UP, "It failed three times in ten minutes, or --give-up refuses this start."),
    (130, "A second SIGINT (Ctrl-C) ended the process immediately."),
    (143, "A second SIGTERM ended the process immediately."),
];

/// Where to report a bug, and with which data.
pub const BUGS: &str = "\
Report a bug to the distribution whose package you use, or as an issue where
you got the source. Attach the messages (journalctl -u scx_magpie) and the
output of uname -r and of scx_magpie --version, topology and config.";

/// Return the end of `--help`. No line is longer than 80 columns.
pub fn after_help() -> String {
    let examples = EXAMPLES.map(|(command, what)| format!("  {command:<40} {what}")).join("\n");
    let statuses = STATUSES.map(|(status, meaning)| format!("  {status:>3}  {meaning}")).join("\n");
    let values = VALUES.map(|line| format!("  {line}")).join("\n");
    let bugs = BUGS.replace('\n', "\n  ");
    format!("Values:\n{values}\n\nExamples:\n{examples}\n\nExit status:\n{statuses}\n\nBugs:\n  {bugs}")
}

/// Status after an ejection by the kernel, or another failure.
pub const EXIT_FAILURE: u8 = 1;

/// Status for a wrong flag, value, key or file.
pub const EXIT_USAGE: u8 = 2;

/// Status after SysRq-S: an operator wants the kernel's own scheduler, and no restart.
pub const EXIT_SYSRQ: u8 = 12;

/// Status of a service that failed repeatedly.
pub const EXIT_GIVE_UP: u8 = 13;

/// Minimum limit of open files: a third for BPF programs and maps, the rest for clients.
pub const FILES: u64 = 128;

/// A reason why the scheduler cannot run on this machine now.
#[derive(Debug, PartialEq)]
pub enum Refusal {
    NotRoot,
    RootOfNamespace,
    RootWithout {
        capabilities: String,
    },
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
    Topology {
        problem: String,
    },
    TooLarge {
        problem: String,
    },
    IsolatedCpus {
        cpus: String,
    },
    FewFiles {
        limit: u64,
    },
    LockedDown,
    /// A wrong flag, value, key or file.
    Usage {
        problem: String,
    },
    NotRunning {
        state: String,
    },
    /// The service failed repeatedly and must not be restarted.
    FailsAgain,
    /// The same with --give-up, also after SysRq-S. `last`: the time and reason of the last failure.
    StaysDetached {
        last: String,
    },
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// Return the exit code, as listed in [`STATUSES`].
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::NotRoot | Self::RootOfNamespace | Self::RootWithout { .. } => 3,
            Self::NoSchedExt { .. } => 4,
            Self::Busy { .. } => 5,
            Self::MalformedBtf { .. } => 6,
            Self::Topology { .. } | Self::TooLarge { .. } => 7,
            Self::IsolatedCpus { .. } => 8,
            Self::FewFiles { .. } => 9,
            Self::LockedDown => 10,
            Self::Usage { .. } => EXIT_USAGE,
            Self::NotRunning { .. } => 11,
            Self::FailsAgain | Self::StaysDetached { .. } => EXIT_GIVE_UP,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => write!(f, "this command needs root: run it with sudo"),
            Self::RootOfNamespace => write!(
                f,
                "this process is root of a user namespace only, and the machine's root is needed: run it on the host, \
                 not in a rootless container"
            ),
            Self::RootWithout { capabilities } => {
                write!(
                    f,
                    "root lacks {capabilities} here, as in most containers: grant what is missing, or run scx_magpie on the host"
                )
            }
            Self::NoSchedExt { release } => write!(
                f,
                "kernel {release} has no sched_ext: boot Linux 6.12 or newer, built with CONFIG_SCHED_CLASS_EXT=y"
            ),
            Self::Busy { ops } => {
                write!(f, "another sched_ext scheduler is attached ({ops}): stop it or its service first")
            }
            Self::MalformedBtf { release, kfuncs } => write!(
                f,
                "kernel {release} describes {kfuncs} scx kfuncs wrongly in its BTF (built with pahole < 1.26), and \
                 no sched_ext scheduler can be loaded: boot another build of the kernel"
            ),
            Self::Topology { problem } => write!(f, "sysfs shows an incomplete CPU topology: {problem}"),
            Self::TooLarge { problem } => write!(f, "this machine exceeds a limit of scx_magpie: {problem}"),
            Self::IsolatedCpus { cpus } => write!(
                f,
                "the kernel's command line isolates CPUs {cpus} with isolcpus=, and sched_ext does not work with it: boot \
                 without it, and isolate CPUs with a cpuset partition"
            ),
            Self::FewFiles { limit } => write!(
                f,
                "this process may open {limit} files only and needs {FILES}: raise the limit (ulimit -n, or LimitNOFILE= of \
                 a systemd unit)"
            ),
            Self::LockedDown => write!(
                f,
                "the kernel is locked down (lockdown=confidentiality) and lets no BPF program read its memory: boot \
                 with lockdown=integrity, or without lockdown"
            ),
            Self::Usage { problem } => write!(f, "{problem}"),
            Self::NotRunning { state } => write!(f, "not running: {state}"),
            Self::FailsAgain => {
                write!(
                    f,
                    "the service failed three times within ten minutes, and systemd does not restart it: read \
                     'journalctl -u scx_magpie' for the reasons, then run 'systemctl start scx_magpie'"
                )
            }
            Self::StaysDetached { last } => write!(
                f,
                "it stays detached after three failures within ten minutes, or SysRq-S, the last {last}: delete this pod, or \
                 remove /run/scx/scx_magpie.stopped, to start it again"
            ),
        }
    }
}

/// The kernel ended the scheduler, for the reason `why`: one line.
#[derive(Debug)]
pub struct Ejected {
    pub why: String,
    /// Exit status of the process.
    pub status: u8,
}

impl std::error::Error for Ejected {}

impl Ejected {
    /// Return false if an operator ended the scheduler with SysRq-S.
    pub fn may_restart(&self) -> bool {
        self.status != EXIT_SYSRQ
    }
}

impl fmt::Display for Ejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_documented(code: u8) -> bool {
        STATUSES.iter().any(|(status, _)| *status == code)
    }

    #[test]
    fn help_fits_into_80_columns() {
        assert!(after_help().lines().all(|line| line.len() <= 80), "{}", after_help());
    }

    #[test]
    fn messages_are_one_line_and_codes_are_documented() {
        let refusals = [
            Refusal::NotRoot,
            Refusal::RootOfNamespace,
            Refusal::RootWithout { capabilities: "CAP_BPF".into() },
            Refusal::IsolatedCpus { cpus: "1".into() },
            Refusal::FewFiles { limit: 32 },
            Refusal::LockedDown,
            Refusal::NoSchedExt { release: "6.1".into() },
            Refusal::Busy { ops: "x".into() },
            Refusal::MalformedBtf { release: "7.1".into(), kfuncs: 3 },
            Refusal::Topology { problem: "no CPUs".into() },
            Refusal::TooLarge { problem: "257 LLCs, at most 256".into() },
            Refusal::FailsAgain,
            Refusal::StaysDetached { last: "stall".into() },
        ];
        for refusal in refusals {
            assert!(!refusal.to_string().contains('\n'));
            assert!(is_documented(refusal.exit_code()), "{refusal:?}");
        }
        assert!([EXIT_FAILURE, EXIT_USAGE, EXIT_SYSRQ].into_iter().all(is_documented));
    }
}
