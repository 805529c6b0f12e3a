// SPDX-License-Identifier: GPL-2.0-only
//! Compiles `src/bpf/main.bpf.c` and generates its skeleton and the bindings of `intf.h`.

fn main() {
    scx_cargo::BpfBuilder::new()
        .expect("clang 18 or newer is needed (BPF_CLANG names it)")
        .enable_intf("src/bpf/intf.h", "bpf_intf.rs")
        .enable_skel("src/bpf/main.bpf.c", "bpf")
        .build()
        .expect("building src/bpf/main.bpf.c failed");
}
