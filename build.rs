// SPDX-License-Identifier: GPL-2.0-only
//! Compiles `src/bpf/main.bpf.c`, generates its skeleton and the bindings of `intf.h`, and notes the commit.

use std::process::Command;

fn main() {
    scx_cargo::BpfBuilder::new()
        .expect("clang 18 or newer is needed (BPF_CLANG names it)")
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("building src/bpf/main.bpf.c failed");

    // Empty outside of a checkout.
    let describe = Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    let commit = describe
        .ok()
        .filter(|out| out.status.success())
        .map_or(String::new(), |out| format!("-g{}", String::from_utf8_lossy(&out.stdout).trim()));
    // Its folders, too.
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rustc-env=MAGPIE_COMMIT={commit}");
    if std::path::Path::new(".git/logs/HEAD").exists() {
        println!("cargo:rerun-if-changed=.git/logs/HEAD");
    }
}
