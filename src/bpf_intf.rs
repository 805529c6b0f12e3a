// SPDX-License-Identifier: GPL-2.0-only
//! Bindings of `bpf/intf.h`: constants and types. (The skeleton has separate types for its memory,
//! generated from the same C.)
#![allow(non_upper_case_globals, non_camel_case_types, non_snake_case, dead_code)]
#![allow(clippy::all)]

use bytemuck::{Pod, Zeroable};

include!(concat!(env!("OUT_DIR"), "/bpf_intf.rs"));

// Types that are exchanged with the kernel as bytes.

// SAFETY: integers.
unsafe impl Zeroable for cpu_layout {}
// SAFETY: integers.
unsafe impl Zeroable for llc_layout {}
// SAFETY: integers, without padding.
unsafe impl Zeroable for process {}
// SAFETY: as above.
unsafe impl Pod for process {}
// SAFETY: integers.
unsafe impl Zeroable for record_event {}
// SAFETY: as above, without padding.
unsafe impl Pod for record_event {}
// SAFETY: one integer.
unsafe impl Zeroable for placed_cpu {}
// SAFETY: as above.
unsafe impl Pod for placed_cpu {}
