// SPDX-License-Identifier: GPL-2.0-only
//! Check whether the topology in sysfs is plausible. A container may mask a part of
//! `/sys/devices/system/cpu`: the scheduler would leave the other CPUs idle.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;

use scx_utils::ROOT_PREFIX;

use super::cpulist::list;

const UNMASK: &str = "run scx_magpie outside of the container, where all of sysfs is visible";

/// Return what is wrong with `laid_out`, the CPUs of a layout, if `shown` are online by sysfs.
pub fn problem(laid_out: &BTreeSet<usize>, shown: &BTreeSet<usize>) -> Option<String> {
    compare(laid_out, shown, kernel_online().as_ref())
}

/// Return the problem if a file is missing without which `Topology` would panic.
pub fn missing_in_sysfs() -> Option<String> {
    if let Err(err) = libbpf_rs::num_possible_cpus() {
        return Some(format!("/sys/devices/system/cpu/possible cannot be read ({err}): {UNMASK}"));
    }
    let cpus = format!("{}/sys/devices/system/cpu", *ROOT_PREFIX);
    let is_cpu = |name: &str| name.strip_prefix("cpu").is_some_and(|id| id.parse::<usize>().is_ok());
    let mut names = fs::read_dir(cpus).into_iter().flatten().flatten();
    let has_cpus = names.any(|entry| entry.file_name().to_str().is_some_and(is_cpu));
    (!has_cpus).then(|| format!("/sys/devices/system/cpu has no CPUs: {UNMASK}"))
}

fn compare(laid_out: &BTreeSet<usize>, shown: &BTreeSet<usize>, kernel: Option<&BTreeSet<usize>>) -> Option<String> {
    let text = |cpus: &BTreeSet<usize>| list(&cpus.iter().copied().collect::<Vec<_>>());
    let lost = shown - laid_out;
    let hidden = kernel.map_or_else(BTreeSet::new, |kernel| kernel - shown);
    if !lost.is_empty() {
        let cpus = text(&lost);
        Some(format!("CPUs {cpus} are online but in no node of /sys/devices/system/node, so in no LLC: {UNMASK}"))
    } else if !hidden.is_empty() {
        let (cpus, all) = (text(&hidden), kernel.map(text).unwrap_or_default());
        Some(format!("/sys/devices/system/cpu hides CPUs {cpus} of the {all} that are online: {UNMASK}"))
    } else if laid_out.is_empty() {
        Some(format!("/sys/devices/system has no CPUs online: {UNMASK}"))
    } else {
        None
    }
}

/// Return the online CPUs by the head of /proc/interrupts, which lxcfs does not mask as it does
/// sysfs and /proc/stat. None if it cannot be read.
fn kernel_online() -> Option<BTreeSet<usize>> {
    let mut head = String::new();
    let file = File::open(Path::new(&format!("{}/proc/interrupts", *ROOT_PREFIX))).ok()?;
    BufReader::new(file).read_line(&mut head).ok()?;
    cpus_of_head(&head)
}

/// Parse a line like "           CPU0       CPU2".
fn cpus_of_head(head: &str) -> Option<BTreeSet<usize>> {
    let cpus: Option<BTreeSet<usize>> =
        head.split_whitespace().map(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    cpus.filter(|cpus| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_of_proc_interrupts() {
        let cpus = cpus_of_head("           CPU0       CPU2       CPU13      \n");
        assert_eq!(cpus, Some(BTreeSet::from([0, 2, 13])));
        assert_eq!(cpus_of_head(""), None);
        assert_eq!(cpus_of_head("  0:   92   IO-APIC\n"), None);
    }

    #[test]
    fn this_kernel_says_which_cpus_are_online() {
        // Containers may hide the file.
        if let Some(cpus) = kernel_online() {
            assert!(cpus.len() >= std::thread::available_parallelism().unwrap().get());
        }
    }

    #[test]
    fn each_problem_is_told_from_the_others() {
        let all = &BTreeSet::from([0, 1, 2, 3]);
        let some = &BTreeSet::from([0, 2]);
        let none = &BTreeSet::new();
        assert_eq!(compare(all, all, Some(all)), None);
        assert_eq!(compare(all, all, None), None);
        assert!(compare(some, some, Some(all)).unwrap().contains("hides CPUs 1,3 of the 0-3"));
        assert!(compare(some, all, Some(all)).unwrap().contains("CPUs 1,3 are online but in no node"));
        assert!(compare(none, none, None).unwrap().contains("no CPUs online"));
        // CPUs that go offline between the two reads are left to hotplug.
        assert_eq!(compare(all, all, Some(some)), None);
    }
}
