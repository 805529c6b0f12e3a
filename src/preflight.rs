// SPDX-License-Identifier: GPL-2.0-only
//! Reasons to refuse to run here, each with a remedy and an exit code. Some are checked before the
//! load, others explain why it failed: a kernel that works regardless is not refused.

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

use crate::exit::{FILES, Refusal};

const SYSFS: &str = "/sys/kernel/sched_ext";

/// How the name of each scx_magpie in the kernel begins.
pub const OPS: &str = "magpie";

/// Inode of the initial user namespace (PROC_USER_INIT_INO).
const FIRST_USER_NAMESPACE: u64 = 0xeffffffd;

/// Capabilities that loading needs. CAP_SYS_ADMIN replaces either.
const CAPABILITIES: [(&str, u32); 2] = [("CAP_BPF", 39), ("CAP_PERFMON", 38)];
const CAP_SYS_ADMIN: u32 = 21;

/// How long to wait for another scheduler that is being attached or detached.
const PASSING: Duration = Duration::from_secs(10);

/// How often the kernel's state is read during that wait.
const PASSING_INTERVAL: Duration = Duration::from_millis(50);

/// Check everything that needs no load, and raise the limit of open files. With `waits` another
/// scx_magpie may be attached.
pub fn check(waits: bool) -> Result<(), Refusal> {
    check_facts(geteuid().is_root(), Path::new(SYSFS), PASSING, waits)?;
    raise_file_limit()
}

/// Return the name of the scx_magpie that has to be detached before this one can be attached; for a
/// moment it has none. Fails if another scheduler is attached.
pub fn predecessor() -> Result<Option<String>, Refusal> {
    predecessor_in(Path::new(SYSFS))
}

fn predecessor_in(sysfs: &Path) -> Result<Option<String>, Refusal> {
    let read = |name: &str| read_from_file::<String>(&sysfs.join(name));
    match (read("state").as_deref(), read("root/ops")) {
        (Ok("disabled") | Err(_), _) => Ok(None),
        (Ok("enabled"), Ok(ops)) if !ops.starts_with(OPS) => Err(Refusal::Busy { ops }),
        (Ok(state), ops) => Ok(Some(ops.unwrap_or_else(|_| state.into()))),
    }
}

/// Check everything that a recording needs.
pub fn check_root() -> Result<(), Refusal> {
    if !Path::new(SYSFS).exists() {
        return Err(Refusal::NoSchedExt { release: release() });
    }
    if !geteuid().is_root() {
        return Err(Refusal::NotRoot);
    }
    raise_file_limit()
}

/// Return true if the kernel runs this scheduler, by the name that it knows.
pub fn is_magpie_attached() -> bool {
    sched_ext("root/ops").is_some_and(|ops| ops.starts_with(OPS))
}

/// Replace `err`, from loading programs that record, by the known reason that explains it.
pub fn explain_record(err: anyhow::Error) -> anyhow::Error {
    reason(&err, || None).map_or(err, Into::into)
}

/// Replace `err`, from loading or attaching, by the known reason that explains it, if there is one.
/// With `waits` an attached scx_magpie explains nothing.
pub fn explain(err: anyhow::Error, waits: bool) -> anyhow::Error {
    if err.is::<Refusal>() {
        return err;
    }
    // Another scheduler may have been attached meanwhile.
    if let Err(refusal) = check(waits) {
        return refusal.into();
    }
    reason(&err, isolated_cpus).map_or(err, Into::into)
}

/// Return the known reason for an error of libbpf. `other` explains invalid input.
fn reason(err: &anyhow::Error, other: impl FnOnce() -> Option<Refusal>) -> Option<Refusal> {
    match err.downcast_ref::<libbpf_rs::Error>().map(libbpf_rs::Error::kind) {
        Some(ErrorKind::PermissionDenied) => lacking_privileges(),
        Some(ErrorKind::InvalidInput) => locked_down(Path::new("/sys/kernel/security/lockdown")).or_else(other),
        _ => None,
    }
}

/// Raise the limit of open files to its maximum: BPF programs, maps and clients each take a file.
fn raise_file_limit() -> Result<(), Refusal> {
    let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return Ok(()) };
    let limit = hard.max(FILES);
    match setrlimit(Resource::RLIMIT_NOFILE, limit, limit) {
        Err(_) if hard < FILES => Err(Refusal::FewFiles { limit: hard }),
        _ => Ok(()),
    }
}

/// Return the privileges for loading that root lacks.
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

/// Refuse only `isolcpus=`. `isolated` may also come from cpuset partitions, which work.
fn isolation(isolated: &str, command_line: &str) -> Option<Refusal> {
    let by_boot = command_line.split_whitespace().any(|argument| argument.starts_with("isolcpus="));
    let cpus = isolated.trim().to_string();
    (by_boot && !cpus.is_empty()).then_some(Refusal::IsolatedCpus { cpus })
}

/// Check the kernel's state. Wait up to `patience` for a scheduler that starts or ends. With `waits`
/// another scx_magpie may be attached.
fn check_facts(root: bool, sysfs: &Path, patience: Duration, waits: bool) -> Result<(), Refusal> {
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
            // If the kernel does not say, the attach shows it.
            "disabled" | "" => Ok(()),
            "enabled" if waits => predecessor_in(sysfs).map(drop),
            _ => Err(Refusal::Busy { ops: read("root/ops").unwrap_or(state) }),
        };
    }
}

/// Return the content of a file of the kernel's sched_ext. None: there is no such file.
pub fn sched_ext(file: &str) -> Option<String> {
    read_from_file(&Path::new(SYSFS).join(file)).ok()
}

/// Return the refusal if the kernel's BTF is wrong. Slow, so called only after a failed load.
pub fn malformed_btf() -> Option<Refusal> {
    match compat::malformed_scx_kfuncs().len() {
        0 => None,
        kfuncs => Some(Refusal::MalformedBtf { release: release(), kfuncs }),
    }
}

/// Return the release of the kernel.
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
        let check_facts = |root, sysfs: &Path| check_facts(root, sysfs, Duration::ZERO, false);
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
        assert_eq!(check_facts(true, &sysfs, Duration::ZERO, true), Err(Refusal::Busy { ops: "other_1.0".into() }));
        let waiting = thread::spawn({
            let sysfs = sysfs.clone();
            move || check_facts(true, &sysfs, Duration::from_secs(60), false)
        });
        // The thread waits for this change, so a longer sleep does no harm.
        thread::sleep(2 * PASSING_INTERVAL);
        assert!(!waiting.is_finished());
        fs::write(sysfs.join("state.new"), "disabled\n").unwrap();
        fs::rename(sysfs.join("state.new"), sysfs.join("state")).unwrap();
        assert_eq!(waiting.join().unwrap(), Ok(()));
        fs::remove_dir_all(sysfs).unwrap();
    }

    #[test]
    fn only_another_magpie_is_waited_for() {
        let sysfs = sysfs("predecessor", "enabled\n");
        let busy = Err(Refusal::Busy { ops: "other_1.0".into() });
        assert_eq!(check_facts(true, &sysfs, Duration::ZERO, true), busy);
        assert_eq!(predecessor_in(&sysfs), busy.map(|()| None));
        fs::write(sysfs.join("root/ops"), "magpie_1.0\n").unwrap();
        assert_eq!(check_facts(true, &sysfs, Duration::ZERO, true), Ok(()));
        assert_eq!(predecessor_in(&sysfs), Ok(Some("magpie_1.0".into())));
        fs::remove_file(sysfs.join("root/ops")).unwrap();
        fs::write(sysfs.join("state"), "disabling\n").unwrap();
        assert_eq!(predecessor_in(&sysfs), Ok(Some("disabling".into())));
        fs::write(sysfs.join("state"), "disabled\n").unwrap();
        assert_eq!(predecessor_in(&sysfs), Ok(None));
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
        let err = explain(anyhow::anyhow!(Refusal::LockedDown).context("loading"), false);
        assert_eq!(err.downcast_ref(), Some(&Refusal::LockedDown));
        assert_eq!(err.to_string(), "loading");
    }
}
