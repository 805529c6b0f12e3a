// SPDX-License-Identifier: GPL-2.0-only
//! Bindings of `bpf/intf.h`: its constants and types. (The skeleton has types of its own for its memory, made from
//! the same C.)
#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#![allow(clippy::all)]

include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));
