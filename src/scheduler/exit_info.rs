// SPDX-License-Identifier: GPL-2.0-only
//! Why the kernel ended the scheduler: kind of exit, reason, message and dump.
//!
//! The texts contain names of tasks, which any user may choose: bytes may be invalid UTF-8 or
//! terminal commands. So they are decoded lossily, and control characters are escaped.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char};
use std::fmt;
use std::ptr::NonNull;

use anyhow::{Context, Result};
use scx_utils::{SCX_ECODE_ACT_RESTART, ScxConsts, ScxExitKind, compat};

use crate::bpf_skel::{BpfSkel, OpenBpfSkel};
use crate::exit::{EXIT_FAILURE, EXIT_SYSRQ, Ejected};
use crate::logging::printable;
use crate::shared::load;

/// Buffer to which the BPF program writes the dump, a text that ends with a zero.
pub struct Dump(NonNull<UnsafeCell<c_char>>);

impl Dump {
    /// Allocate `len` bytes (0: the kernel's default). Loading the program does not move them.
    pub fn make_room(skel: &mut OpenBpfSkel<'_>, len: u32) -> Result<Self> {
        let len = if len == 0 { ScxConsts::ExitDumpDflLen as u32 } else { len };
        skel.maps.rodata_data.as_mut().context("no .rodata in the BPF object")?.uei_dump_len = len;
        skel.maps.data_uei_dump.set_value_size(len)?;
        let memory = skel.maps.data_uei_dump.initial_value_mut().context("no map of the dump")?;
        Ok(Self(NonNull::from(memory).cast()))
    }
}

/// The kernel's report about the end of the scheduler.
#[derive(Debug)]
pub struct Exit {
    kind: i32,
    code: i64,
    cpu: Option<i32>,
    reason: String,
    message: String,
    dump: String,
}

impl Exit {
    /// Return true if the kernel has ended the scheduler.
    pub fn has_happened(skel: &BpfSkel<'_>) -> bool {
        skel.maps.data_data.as_ref().is_some_and(|data| load(&data.uei.kind) != 0)
    }

    /// Read the report. `dump` belongs to the same skeleton.
    pub fn read(skel: &BpfSkel<'_>, dump: &Dump) -> Result<Self> {
        let uei = &skel.maps.data_data.as_ref().context("no .data")?.uei;
        // SAFETY: texts that end with a zero; the program writes them once, before `kind`.
        let text = |at: *const c_char| unsafe { CStr::from_ptr(at) }.to_string_lossy();
        let has = |field| compat::struct_has_field("scx_exit_info", field).unwrap_or(false);
        Ok(Self {
            kind: load(&uei.kind),
            code: if has("exit_code") { uei.exit_code } else { 0 },
            cpu: (has("exit_cpu") && uei.exit_cpu >= 0).then_some(uei.exit_cpu),
            reason: printable(&text(uei.reason.as_ptr().cast())),
            message: printable(&text(uei.msg.as_ptr().cast())),
            dump: text(dump.0.as_ptr().cast_const().cast()).split('\n').map(printable).collect::<Vec<_>>().join("\n"),
        })
    }

    /// Return true if the kernel or the program asked for a restart, because of CPU hotplug.
    pub fn wants_restart(&self) -> bool {
        let may = [ScxExitKind::UnregBPF as i32, ScxExitKind::UnregKern as i32].contains(&self.kind);
        may && self.code & *SCX_ECODE_ACT_RESTART as i64 != 0
    }

    /// Return true if the kernel found that tasks had waited for too long: its watchdog of schedulers,
    /// or those of soft lockups and RCU, which have no kind of their own.
    pub fn is_by_watchdog(&self) -> bool {
        [ScxExitKind::Error as i32, ScxExitKind::ErrorStall as i32].contains(&self.kind)
    }

    /// Return an error if the kernel ended the scheduler and nobody requested it.
    pub fn check(&self) -> Result<(), Ejected> {
        if self.kind <= ScxExitKind::UnregKern as i32 {
            return Ok(());
        }
        let status = if self.kind == ScxExitKind::SysRq as i32 { EXIT_SYSRQ } else { EXIT_FAILURE };
        Err(Ejected { why: self.to_string(), status })
    }

    /// Print the dump, if there is one.
    pub fn print_dump(&self) {
        if !self.dump.is_empty() {
            let rule = "=".repeat(80);
            eprintln!("\nDEBUG DUMP\n{rule}\n\n{}\n{rule}\n", self.dump);
        }
    }
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { reason, message, cpu, .. } = self;
        write!(f, "EXIT: {}", if reason.is_empty() { "the kernel gave no reason" } else { reason })?;
        if !message.is_empty() {
            write!(f, " ({message})")?;
        }
        cpu.map_or(Ok(()), |cpu| write!(f, " on CPU {cpu}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(kind: ScxExitKind, code: i64) -> Exit {
        let (reason, message) = ("stall".into(), "task x[3]".into());
        Exit { kind: kind as i32, code, cpu: Some(2), reason, message, dump: String::new() }
    }

    #[test]
    fn who_ended_it_decides_the_status() {
        assert!(exit(ScxExitKind::Unreg, 0).check().is_ok());
        for (kind, status) in [(ScxExitKind::SysRq, EXIT_SYSRQ), (ScxExitKind::ErrorStall, EXIT_FAILURE)] {
            let ejected = exit(kind, 0).check().unwrap_err();
            assert_eq!((ejected.to_string().as_str(), ejected.status), ("EXIT: stall (task x[3]) on CPU 2", status));
        }
    }
}
