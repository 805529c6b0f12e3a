// SPDX-License-Identifier: GPL-2.0-only
//! Reasons not to run here: each a line that says what to do, and an exit code. Some are found before anything is loaded,
//! others are what loading or attaching failed for: a kernel that does without them is not refused.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use libbpf_rs::ErrorKind;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::utsname::uname;
use nix::unistd::geteuid;
use scx_utils::compat;
use scx_utils::misc::read_from_file;

const SYSFS: &str = "/sys/kernel/sched_ext";

/// At the end of `--help`.
pub const AFTER_HELP: &str = "\
Times may have a unit: --slice-us 5ms is --slice-us 5000. A flag that is on or off may be given as --no-cgroups=false.

Exit codes: 0 detached on request; 1 ejected by the kernel, or another failure; 2 wrong flag, key or value; 3 not root;
4 kernel without sched_ext; 5 another scheduler is attached; 6 malformed kfunc prototypes in the kernel's BTF;
7 the machine's topology, as sysfs has it, cannot be right, or is too large; 8 isolcpus= on the kernel's command line; 9 too few
files may be open; 10 the kernel is locked down; 11 no scx_magpie runs that could be asked (status, set, reload);
12 ended by SysRq-S; 13 failed three times in ten minutes as a service.";

/// Files that may be open, at least: a third are the BPF programs and maps, the others are for clients of statistics.
const FILES: u64 = 128;

/// The inode of the machine's own user namespace (PROC_USER_INIT_INO).
const FIRST_USER_NAMESPACE: u64 = 0xeffffffd;

/// What loading takes; CAP_SYS_ADMIN is as good as either.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
const CAP_SYS_ADMIN: u32 = 21;

/// Ejected by the kernel, or another failure.
pub const EXIT_FAILURE: u8 = 1;

/// Wrong flag, value, key or file.
pub const EXIT_USAGE: u8 = 2;

/// SysRq-S: an operator wants the kernel's own scheduler, and no restart.
pub const EXIT_SYSRQ: u8 = 12;

/// As a service it fails again and again.
pub const EXIT_GIVE_UP: u8 = 13;

/// How long a scheduler that comes or goes is waited for.
const PASSING: Duration = Duration::from_secs(10);

/// How often the kernel's state is read meanwhile.
const PASSING_INTERVAL: Duration = Duration::from_millis(50);

/// A reason for which the scheduler cannot run on this machine now.
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
    /// Wrong flag, value, key or file.
    Usage {
        problem: String,
    },
    NotRunning {
        state: String,
    },
    /// A service that is not to be restarted.
    FailsAgain,
}

impl std::error::Error for Refusal {}

impl Refusal {
    /// The process's exit code, as listed in [`AFTER_HELP`].
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
            Self::FailsAgain => EXIT_GIVE_UP,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotRoot => write!(f, "needs root: run it with sudo"),
            Self::RootOfNamespace => write!(
                f,
                "needs the machine's root, and is root of a user namespace only: run it outside, not in a rootless \
                 container"
            ),
            Self::RootWithout { capabilities } => {
                write!(
                    f,
                    "root lacks {capabilities} here, as in most containers: grant what is missing, or run it outside"
                )
            }
            Self::NoSchedExt { release } => write!(
                f,
                "kernel {release} has no sched_ext: boot one of 6.12 or newer built with CONFIG_SCHED_CLASS_EXT=y"
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
            Self::TooLarge { problem } => write!(f, "the machine has more than scx_magpie can schedule: {problem}"),
            Self::IsolatedCpus { cpus } => write!(
                f,
                "the kernel's sched_ext does not work with isolcpus= on its command line, which isolates CPUs {cpus}: boot \
                 without it, and isolate CPUs by a cpuset partition"
            ),
            Self::FewFiles { limit } => write!(
                f,
                "may open {limit} files only and needs {FILES}: raise the limit (ulimit -n, LimitNOFILE= of a systemd unit)"
            ),
            Self::LockedDown => write!(
                f,
                "the kernel is locked down (lockdown=confidentiality), and lets no BPF program read its memory: boot \
                 with lockdown=integrity or none"
            ),
            Self::Usage { problem } => write!(f, "{problem}"),
            Self::NotRunning { state } => write!(f, "not running: {state}"),
            Self::FailsAgain => {
                write!(
                    f,
                    "failed three times in ten minutes: systemd does not restart it, 'systemctl start scx_magpie' does"
                )
            }
        }
    }
}

/// Checks what can be checked without loading anything, and raises the limit of open files.
pub fn check() -> Result<(), Refusal> {
    check_facts(geteuid().is_root(), Path::new(SYSFS), PASSING)?;
    raise_file_limit()
}

/// What `err`, from loading or attaching, comes from, if it is one of the known reasons; else `err` itself.
pub fn explain(err: anyhow::Error) -> anyhow::Error {
    if err.is::<Refusal>() {
        return err;
    }
    // Another scheduler may have been faster.
    if let Err(refusal) = check() {
        return refusal.into();
    }
    let refusal = match err.downcast_ref::<libbpf_rs::Error>().map(libbpf_rs::Error::kind) {
        Some(ErrorKind::PermissionDenied) => lacking_privileges(),
        Some(ErrorKind::InvalidInput) => locked_down(Path::new("/sys/kernel/security/lockdown")).or_else(isolated_cpus),
        _ => None,
    };
    refusal.map_or(err, Into::into)
}

/// Raises the limit of open files as far as it goes: a BPF program or map is one, and so is a client of statistics.
fn raise_file_limit() -> Result<(), Refusal> {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let limit = hard.max(FILES);
    match setrlimit(Resource::RLIMIT_NOFILE, limit, limit) {
        Err(_) if hard < FILES => Err(Refusal::FewFiles { limit: hard }),
        _ => Ok(()),
    }
}

/// What root lacks that loading takes.
fn lacking_privileges() -> Option<Refusal> {
    let namespace = fs::metadata("/proc/self/ns/user").ok()?.ino();
    privilege_refusal(namespace, &fs::read_to_string("/proc/self/status").ok()?)
}

fn privilege_refusal(namespace: u64, status: &str) -> Option<Refusal> {
    if namespace != FIRST_USER_NAMESPACE {
        return Some(Refusal::RootOfNamespace);
    }
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let held = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |capability: u32| held & 1 << capability != 0;
    let missing: Vec<_> = CAPABILITIES.iter().filter(|(_, id)| !has(*id)).map(|(name, _)| *name).collect();
    (!missing.is_empty() && !has(CAP_SYS_ADMIN)).then(|| Refusal::RootWithout { capabilities: missing.join(" and ") })
}

fn locked_down(file: &Path) -> Option<Refusal> {
    let modes = fs::read_to_string(file).ok()?;
    modes.contains("[confidentiality]").then_some(Refusal::LockedDown)
}

fn isolated_cpus() -> Option<Refusal> {
    let isolated = fs::read_to_string("/sys/devices/system/cpu/isolated").ok()?;
    isolation(&isolated, &fs::read_to_string("/proc/cmdline").ok()?)
}

/// `isolated` may also be of cpuset partitions, with which sched_ext works.
fn isolation(isolated: &str, command_line: &str) -> Option<Refusal> {
    let by_boot = command_line.split_whitespace().any(|argument| argument.starts_with("isolcpus="));
    let cpus = isolated.trim().to_string();
    (by_boot && !cpus.is_empty()).then_some(Refusal::IsolatedCpus { cpus })
}

/// A scheduler that comes or goes is waited for, `patience` at most.
fn check_facts(root: bool, sysfs: &Path, patience: Duration) -> Result<(), Refusal> {
    if !sysfs.exists() {
        return Err(Refusal::NoSchedExt { release: release() });
    }
    if !root {
        return Err(Refusal::NotRoot);
    }
    let read = |name: &str| read_from_file::<String>(&sysfs.join(name));
    let start = Instant::now();
    loop {
        let state = read("state").unwrap_or_default();
        let passes = state == "enabling" || state == "disabling";
        if passes && start.elapsed() < patience {
            thread::sleep(PASSING_INTERVAL);
            continue;
        }
        return match state.as_str() {
            // Kernels that say nothing find out when it is attached.
            "disabled" | "" => Ok(()),
            _ => Err(Refusal::Busy { ops: read("root/ops").unwrap_or(state) }),
        };
    }
}

/// Why loading failed, if it is the kernel's BTF: asked only after a failure, for it goes through all of it.
pub fn malformed_btf() -> Option<Refusal> {
    match compat::malformed_scx_kfuncs().len() {
        0 => None,
        kfuncs => Some(Refusal::MalformedBtf { release: release(), kfuncs }),
    }
}

/// The kernel's.
pub fn release() -> String {
    uname().map_or_else(|_| "?".into(), |name| name.release().to_string_lossy().into_owned())
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
        let check_facts = |root, sysfs: &Path| check_facts(root, sysfs, Duration::ZERO);
        assert_eq!(check_facts(true, &idle), Ok(()));
        assert_eq!(check_facts(false, &idle), Err(Refusal::NotRoot));
        assert_eq!(check_facts(true, &busy), Err(Refusal::Busy { ops: "other_1.0".into() }));
        assert!(matches!(check_facts(true, Path::new("/nonexistent")), Err(Refusal::NoSchedExt { .. })));
        fs::remove_dir_all(idle).unwrap();
        fs::remove_dir_all(busy).unwrap();
    }

    #[test]
    fn a_scheduler_that_goes_is_waited_for() {
        let sysfs = sysfs("passing", "disabling\n");
        assert_eq!(check_facts(true, &sysfs, Duration::ZERO), Err(Refusal::Busy { ops: "other_1.0".into() }));
        let waiting = thread::spawn({
            let sysfs = sysfs.clone();
            move || check_facts(true, &sysfs, Duration::from_secs(60))
        });
        // It has to be waited for, so this cannot be too early.
        thread::sleep(2 * PASSING_INTERVAL);
        assert!(!waiting.is_finished());
        fs::write(sysfs.join("state.new"), "disabled\n").unwrap();
        fs::rename(sysfs.join("state.new"), sysfs.join("state")).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
        fs::remove_dir_all(sysfs).unwrap();
    }

    #[test]
    fn capabilities_are_those_of_the_machine() {
        let status = |mask: u64| format!("Name:\tscx_magpie\nCapInh:\t0\nCapEff:\t{mask:016x}\nCapBnd:\t0\n");
        let without = |text: &str| Some(Refusal::RootWithout { capabilities: text.into() });
        let (perfmon, bpf, sys_admin) = (1 << 38, 1 << 39, 1 << 21);
        assert_eq!(privilege_refusal(FIRST_USER_NAMESPACE, &status(0)), without("CAP_BPF and CAP_PERFMON"));
        assert_eq!(privilege_refusal(FIRST_USER_NAMESPACE, &status(bpf)), without("CAP_PERFMON"));
        assert_eq!(privilege_refusal(FIRST_USER_NAMESPACE, &status(bpf | perfmon)), None);
        assert_eq!(privilege_refusal(FIRST_USER_NAMESPACE, &status(sys_admin)), None);
        assert_eq!(privilege_refusal(4026532000, &status(u64::MAX)), Some(Refusal::RootOfNamespace));
    }

    #[test]
    fn only_cpus_isolated_at_boot_count() {
        let refusal = Some(Refusal::IsolatedCpus { cpus: "2-3".into() });
        assert_eq!(isolation("2-3\n", "quiet isolcpus=domain,2-3 ro\n"), refusal);
        assert_eq!(isolation("2-3\n", "quiet noisolcpus=1\n"), None);
        assert_eq!(isolation("\n", "isolcpus=managed_irq,2-3\n"), None);
    }

    #[test]
    fn lockdown_by_its_mode() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (modes, refusal) in [
            ("[none] integrity confidentiality\n", None),
            ("none [integrity] confidentiality\n", None),
            ("none integrity [confidentiality]\n", Some(Refusal::LockedDown)),
        ] {
            fs::write(file.path(), modes).unwrap();
            assert_eq!(locked_down(file.path()), refusal);
        }
        assert_eq!(locked_down(Path::new("/nonexistent")), None);
    }

    #[test]
    fn refusals_need_no_explanation() {
        let err = explain(anyhow::anyhow!(Refusal::LockedDown).context("loading"));
        assert_eq!(err.downcast_ref(), Some(&Refusal::LockedDown));
        assert_eq!(err.to_string(), "loading");
    }

    fn is_documented(code: u8) -> bool {
        AFTER_HELP.split_whitespace().any(|word| word == code.to_string())
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
        ];
        for refusal in refusals {
            assert!(!refusal.to_string().contains('\n'));
            assert!(is_documented(refusal.exit_code()), "{refusal:?}");
        }
        assert!([EXIT_FAILURE, EXIT_USAGE, EXIT_SYSRQ].into_iter().all(is_documented));
    }
}
