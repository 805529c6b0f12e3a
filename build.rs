// SPDX-License-Identifier: GPL-2.0-only
//! Compile `src/bpf/main.bpf.c` and `record.bpf.c`, generate their skeletons and bindings of
//! `intf.h`, note the commit.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    scx_cargo::BpfBuilder::new()
        .expect("clang 18 or newer is needed (BPF_CLANG names it)")
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("building src/bpf/main.bpf.c failed");

    build_record();

    let in_checkout = in_checkout();
    let commit = git(&["describe", "--always", "--dirty", "--exclude=*"]).filter(|_| in_checkout);
    let commit = commit.map_or(String::new(), |commit| format!("-g{commit}"));
    // Rerun also for changes in subfolders.
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rustc-env=MAGPIE_COMMIT={commit}");
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"]).filter(|log| in_checkout && Path::new(log).exists());
    if let Some(log) = log {
        println!("cargo:rerun-if-changed={log}");
    }
}

/// Compile `src/bpf/record.bpf.c` with the headers that `BpfBuilder` has unpacked. It builds one
/// object only, and this one is loaded without the scheduler.
fn build_record() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = scx_cargo::ClangInfo::new().expect("clang was found before");
    let headers = out.join("scx_utils-bpf_h");
    let arch = headers.join("arch").join(clang.kernel_target().expect("the target was known before"));
    let mut flags = clang.determine_base_cflags().expect("clang has told its flags before");
    flags.extend([arch, headers].map(|folder| format!("-I{}", folder.display())));
    libbpf_cargo::SkeletonBuilder::new()
        .source("src/bpf/record.bpf.c")
        .obj(out.join("record.bpf.o"))
        .clang(&clang.clang)
        .clang_args(flags)
        .build_and_generate(out.join("record_skel.rs"))
        .expect("building src/bpf/record.bpf.c failed");
}

/// Return false in a published crate, even if it is unpacked inside another repository.
fn in_checkout() -> bool {
    let top = git(&["rev-parse", "--show-toplevel"]).and_then(|top| Path::new(&top).canonicalize().ok());
    top.is_some_and(|top| Path::new(".").canonicalize().is_ok_and(|here| here == top))
}

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
    Some(String::from_utf8_lossy(&out.stdout).trim().to_string())
}
