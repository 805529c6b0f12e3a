// SPDX-License-Identifier: GPL-2.0-only
//! Compiles `src/bpf/main.bpf.c` for the host against the stand-in, and generates bindings of both. Compiles the
//! conformance test's tracing programs for BPF.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    let clang = env::var("BPF_CLANG").unwrap_or("clang".into());
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it"));
    println!("cargo:rerun-if-changed=native");
    println!("cargo:rerun-if-changed=../src/bpf");
    println!("cargo:rerun-if-env-changed=BPF_CLANG");

    let mut native = cc::Build::new();
    native
        .compiler(&clang)
        .file("native/native.c")
        .include("native")
        .include("../src/bpf")
        .flag("-std=gnu11")
        // Undefined is what is undefined for BPF, too: no -fwrapv there. Debug lines lead callgrind and sanitizer
        // reports to the source.
        .flag("-fno-strict-aliasing")
        .debug(true)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(false);
    if env::var_os("CARGO_FEATURE_SANITIZE").is_some() {
        native.flag("-fsanitize=address,undefined").flag("-fno-sanitize-recover=all").flag("-fno-omit-frame-pointer");
        link_sanitizers(&clang);
    }
    if env::var_os("CARGO_FEATURE_LINES").is_some() {
        native.flag("-fsanitize-coverage=func,trace-pc,trace-loads,trace-stores");
    }
    native.compile("native");

    scx_cargo::BpfBuilder::new()
        .expect("clang 18 or newer is needed (BPF_CLANG names it)")
        .enable_skel("conformance/trace.bpf.c", "trace")
        .build()
        .expect("building conformance/trace.bpf.c failed");

    bindgen::Builder::default()
        .header("native/native.c")
        .clang_args(["-Inative", "-I../src/bpf", "-std=gnu11"])
        // The project's own library has these.
        .blocklist_file(".*/intf.h")
        .allowlist_type("task_struct|cpumask|scx_init_task_args|scx_cpu_release_args|scx_exit_info|sched_ext_ops")
        .allowlist_type("cgroup|cpuset|kernfs_node|task_group|scx_cgroup_init_args|changes|cpu_budget")
        .allowlist_type("scx_ops_flags|scx_public_consts|bpf_iter_scx_dsq|scx_dump_ctx|rq")
        .allowlist_type("units|uclamp_id|pull_why|move_why")
        .allowlist_var("units|(SCX|HANDOFF|PF|MAX|BALANCE|FIND|FLIPS|AFFINE|PREFERRED|SCAN_PERIOD|RETRY|ALL|NO|CHANGE|SETTLE|SHARE|SHOWN|WEIGHT|GROUP|BW|THROTTLE|FITS|MISFIT|UTIL|PELT|PULL|WEAK|ROOM)_.*|STARVE_CHECKS|REQUEUE_NS|ALONE_NS|OVERRUN_NS|FORGIVEN_PART|LONG_QUEUE_SLICE_NS|SHORT_SHARE|IN_HARDIRQ_OR_NMI_7_3|NR_FUTEX|SERVING_SOFTIRQ")
        .allowlist_var("BPF_LOCAL_STORAGE_GET_F_CREATE")
        .clang_macro_fallback()
        .clang_macro_fallback_build_dir(&out)
        .derive_default(true)
        .generate()
        .expect("bindings of native/native.c")
        .write_to_file(out.join("bindings.rs"))
        .expect("OUT_DIR is writable");
}

/// Rust's linker is the system's, which does not know clang's runtime.
fn link_sanitizers(clang: &str) {
    let arch = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    // Its name on most distributions, and on those with a folder for each target.
    let runtime = [format!("libclang_rt.asan-{arch}.a"), "libclang_rt.asan.a".into()].into_iter().find_map(|name| {
        let found = Command::new(clang).arg(format!("-print-file-name={name}")).output().expect("clang runs");
        // Without its path if there is none.
        Some(PathBuf::from(String::from_utf8_lossy(&found.stdout).trim())).filter(|path| path.is_absolute())
    });
    let runtime = runtime.expect("clang's runtime is missing: tools/setup installs it (Debian: libclang-rt-NN-dev)");
    println!("cargo:rustc-link-arg=-Wl,--whole-archive,{},--no-whole-archive", runtime.display());
    println!("cargo:rustc-link-arg=-Wl,--export-dynamic");
    for lib in ["pthread", "rt", "m", "dl", "resolv"] {
        println!("cargo:rustc-link-arg=-l{lib}");
    }
}
