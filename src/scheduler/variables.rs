// SPDX-License-Identifier: GPL-2.0-only
//! Variables of the BPF program: set before the load, and shared with the loader while it runs.
//!
//! The skeleton and `bpf_intf` have different Rust types for the same C type: *twins*.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::slice;

use anyhow::{Context, Result};
use libbpf_rs::OpenMapMut;

use crate::bpf_config::BpfConfig;
use crate::bpf_intf::{capacities, cpu_ctx, cpu_layout, group, latency_hist, llc_layout, llc_published, wake_cases};
use crate::bpf_skel::{BpfSkel, OpenBpfSkel};
use crate::shared::{Access, load, part};
use crate::stats::Shared;
use crate::topology::Layout;
use crate::tunables::Tunables;

/// Set the length of the program's array of groups, and return it. Loading does not move it.
pub fn cut_groups(map: &mut OpenMapMut<'_>, nr: u32) -> Result<NonNull<UnsafeCell<group>>> {
    let size = nr as usize * size_of::<group>();
    map.set_value_size(size as u32).with_context(|| format!("cannot allocate memory for {nr} cgroups"))?;
    let memory = map.initial_value_mut().filter(|memory| memory.len() == size).context("no map of cgroups")?;
    Ok(NonNull::from(memory).cast())
}

/// Write the configuration into the memory with which the program will be loaded.
pub fn tell(skel: &mut OpenBpfSkel<'_>, config: &BpfConfig) -> Result<()> {
    let rodata = skel.maps.rodata_data.as_mut().context("no .rodata in the BPF object")?;
    let bss = skel.maps.bss_data.as_mut().context("no .bss in the BPF object")?;
    let bss_tunables = skel.maps.bss_tunables_data.as_mut().context("no .bss.tunables in the BPF object")?;
    // SAFETY: pairs made from the same C structs, which hold integers only.
    unsafe {
        copy_twins(slice::from_mut(&mut rodata.machine), slice::from_ref(&config.machine));
        copy_twins(slice::from_mut(&mut bss_tunables.tunables), slice::from_ref(&config.tunables));
        copy_twins(&mut bss.cpu_layouts, &config.cpu_layouts);
        copy_twins(&mut bss.llc_layouts, &config.llc_layouts);
    }
    bss.slot_cpus.copy_from_slice(&config.slot_cpus);
    rodata.node_llcs.copy_from_slice(&config.node_llcs);
    rodata.capacity_order.copy_from_slice(&config.capacity_order);
    rodata.pelt_decay = config.pelt_decay;
    Ok(())
}

/// Publish the place of a CPU that appeared, before the program may use that CPU.
pub fn tell_place(skel: &mut BpfSkel<'_>, layout: &Layout, cpu: usize) -> Result<()> {
    let place = &layout.cpus[&cpu];
    let bss = skel.maps.bss_data.as_mut().context("no .bss")?;
    // SAFETY: pairs made from the same C structs, which hold integers only.
    let (cpu_layouts, llc_layouts) =
        unsafe { (twins::<_, cpu_layout>(&mut bss.cpu_layouts), twins::<_, llc_layout>(&mut bss.llc_layouts)) };
    // The program reads and writes the state, because the CPU may come online at any time;
    // it does not read the other words yet.
    let (to, from) = (&cpu_layouts[cpu], cpu_layout::from(place));
    part!(to, llc).store(from.llc);
    part!(to, node).store(from.node);
    part!(to, slot).store(from.slot);
    part!(to, capacity).store(from.capacity);
    part!(to, rank).store(from.rank);
    part!(to, scan_from).store(from.scan_from);
    part!(to, nohz_full).store(from.nohz_full);
    part!(&llc_layouts[place.llc], nr_slots).store(layout.llcs[place.llc].nr_slots as u32);
    bss.slot_cpus[place.slot] = cpu as u16;
    Ok(())
}

/// Return true if the program distinguishes CPUs by capacity.
pub(super) fn is_asym(skel: &BpfSkel<'_>) -> Result<bool> {
    Ok(skel.maps.rodata_data.as_ref().context("no .rodata")?.machine.asym != 0)
}

/// Return the memory that the loader and the running program share.
pub fn shared<'a>(
    skel: &'a mut BpfSkel<'_>,
    groups: NonNull<UnsafeCell<group>>,
    tunables: &Tunables,
) -> Result<Shared<'a>> {
    let counts_wake_cases = is_asym(skel)?;
    let skel = skel.maps.bss_data.as_mut().context("no .bss")?;
    let (max_group, lost_groups) = (load(&skel.max_group), load(&skel.lost_groups));
    // SAFETY: pairs of the same C structs, which hold integers only; cut_groups() set the length.
    Ok(unsafe {
        Shared {
            cpu_ctxs: twins::<_, cpu_ctx>(&mut skel.cpu_ctxs),
            cpu_layouts: twins::<_, cpu_layout>(&mut skel.cpu_layouts),
            llc_publisheds: twins::<_, llc_published>(&mut skel.llc_publisheds),
            latency_hists: twins::<_, latency_hist>(&mut skel.latency_hists),
            groups: slice::from_raw_parts(groups.as_ptr(), max_group.min(tunables.max_cgroups) as usize + 1),
            lost_groups,
            capacities: &twins::<_, capacities>(slice::from_mut(&mut skel.capacities))[0],
            wake_cases: counts_wake_cases.then_some(twins::<_, wake_cases>(&mut skel.wake_cases)),
        }
    })
}

/// Copy C values from the type `S` of `bpf_intf` to the type `D` of the skeleton.
///
/// # Safety
///
/// `S` and `D` are made from the same C type, of which all bit patterns are valid.
unsafe fn copy_twins<S, D>(to: &mut [D], from: &[S]) {
    const { assert!(size_of::<S>() == size_of::<D>()) };
    assert_eq!(to.len(), from.len());
    // SAFETY: lengths are equal by the assertions; the caller promises that the bytes are valid.
    unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().cast::<u8>(), to.as_mut_ptr().cast(), size_of_val(from)) };
}

/// Return the skeleton's C values of type `S` as cells of `bpf_intf`'s type `D`: the BPF program
/// accesses them at the same time.
///
/// # Safety
///
/// `S` and `D` are made from the same C type, of which all bit patterns are valid.
pub unsafe fn twins<S, D>(array: &mut [S]) -> &[UnsafeCell<D>] {
    const { assert!(size_of::<S>() == size_of::<D>()) };
    let twins: *mut UnsafeCell<D> = array.as_mut_ptr().cast();
    // The skeleton's types have a smaller alignment than the C, but its memory is aligned.
    assert!(twins.is_aligned());
    // SAFETY: borrowed from `array`, with its length; the caller promises that the bytes are valid.
    unsafe { slice::from_raw_parts(twins, array.len()) }
}
