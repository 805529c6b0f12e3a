// SPDX-License-Identifier: GPL-2.0-only
//! Determine the LLCs of CPUs without an L3 in sysfs.
//!
//! ```text
//! an L3                          the LLC of `Topology`
//! no L3, L2 of several cores     the highest such cache
//! no cache of several cores      all CPUs of the package on the node
//! ```
//!
//! `Topology` takes the L2 if there is no L3. If each core has an L2, as in many virtual machines,
//! no wakeup would search beyond its core.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use scx_utils::misc::read_from_file;
use scx_utils::{Core, Cpu, Cpumask, Llc, ROOT_PREFIX, Topology, read_cpulist};

/// What the CPUs of an LLC have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum LlcKind {
    /// A cache of this level.
    Cache(usize),
    Package,
}

impl fmt::Display for LlcKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cache(level) => write!(f, "L{level}"),
            Self::Package => write!(f, "package"),
        }
    }
}

/// A data cache of a CPU, and the CPUs that share it.
#[derive(Clone, Debug, PartialEq)]
struct Cache {
    level: usize,
    cpus: Vec<usize>,
}

/// The group to which a CPU belongs.
#[derive(Clone, Debug, PartialEq)]
enum Domain {
    /// The LLC that `Topology` has assigned.
    L3(usize),
    Cache(Cache),
    Package(usize),
}

impl Domain {
    fn kind(&self) -> LlcKind {
        match self {
            Self::L3(_) => LlcKind::Cache(3),
            Self::Cache(cache) => LlcKind::Cache(cache.level),
            Self::Package(_) => LlcKind::Package,
        }
    }
}

/// Regroup `topo.all_llcs` of this machine, and return the kind of each, in order. `first_of`
/// returns the first CPU of a CPU's core. The LLCs in `topo.nodes` are unchanged.
pub fn regroup(topo: &mut Topology, first_of: impl Fn(&Core, usize) -> usize) -> Vec<LlcKind> {
    let cpus = format!("{}/sys/devices/system/cpu", *ROOT_PREFIX);
    regroup_by(topo, first_of, |cpu| caches_of(&Path::new(&cpus).join(format!("cpu{cpu}/cache"))))
}

fn regroup_by(
    topo: &mut Topology,
    first_of: impl Fn(&Core, usize) -> usize,
    caches_of: impl Fn(usize) -> Vec<Cache>,
) -> Vec<LlcKind> {
    let cores = || topo.all_llcs.values().flat_map(|llc| llc.cores.values());
    let firsts: std::collections::BTreeMap<usize, usize> =
        cores().flat_map(|core| core.cpus.keys().map(|&id| (id, first_of(core, id)))).collect();
    let is_of_several_cores =
        |cache: &Cache| cache.cpus.iter().filter_map(|id| firsts.get(id)).collect::<BTreeSet<_>>().len() > 1;

    let mut domains: Vec<(usize, Domain)> = Vec::new();
    let mut llcs: Vec<Llc> = Vec::new();
    for core in cores() {
        for (&id, cpu) in &core.cpus {
            let domain = if cpu.l3_id != usize::MAX {
                Domain::L3(cpu.llc_id)
            } else {
                let shared = caches_of(id).into_iter().filter(&is_of_several_cores);
                shared.max_by_key(|cache| cache.level).map_or(Domain::Package(cpu.package_id), Domain::Cache)
            };
            let key = (core.node_id, domain);
            let index = domains.iter().position(|known| *known == key).unwrap_or_else(|| {
                domains.push(key);
                llcs.push(empty_llc(llcs.len(), core.node_id));
                llcs.len() - 1
            });
            add_cpu(&mut llcs[index], core, cpu);
        }
    }
    topo.all_llcs = llcs.into_iter().map(|llc| (llc.id, Arc::new(llc))).collect();
    domains.iter().map(|(_, domain)| domain.kind()).collect()
}

fn empty_llc(id: usize, node_id: usize) -> Llc {
    Llc { id, kernel_id: id, cores: Default::default(), span: Cpumask::new(), node_id, all_cpus: Default::default() }
}

/// Add a CPU of `core` to an LLC. Other CPUs of the core may be in other LLCs, because a core of
/// `Topology` may have CPUs of several clusters on Arm.
fn add_cpu(llc: &mut Llc, core: &Core, cpu: &Cpu) {
    let cpu = Arc::new(Cpu { llc_id: llc.id, ..cpu.clone() });
    let own = llc.cores.entry(core.id).or_insert_with(|| {
        let (cpus, span) = (Default::default(), Cpumask::new());
        Arc::new(Core { cpus, span, llc_id: llc.id, ..core.clone() })
    });
    let own = Arc::make_mut(own);
    // Cannot fail: `Topology` has put these ids into masks of the same size.
    let _ = own.span.set_cpu(cpu.id).and(llc.span.set_cpu(cpu.id));
    own.cpus.insert(cpu.id, cpu.clone());
    llc.all_cpus.insert(cpu.id, cpu);
}

/// Return the data caches in a CPU's folder of sysfs; none if the folder is missing.
fn caches_of(folder: &Path) -> Vec<Cache> {
    let indices = fs::read_dir(folder).into_iter().flatten().flatten();
    indices.filter_map(|index| cache_of(&index.path())).collect()
}

fn cache_of(index: &Path) -> Option<Cache> {
    let is_of_code = fs::read_to_string(index.join("type")).is_ok_and(|kind| kind.trim() == "Instruction");
    let level = read_from_file(&index.join("level")).ok()?;
    let cpus = read_cpulist(&fs::read_to_string(index.join("shared_cpu_list")).ok()?).ok()?;
    (!is_of_code).then_some(Cache { level, cpus })
}

#[cfg(test)]
mod tests {
    use super::*;
    use scx_utils::testutils::{make_het_test_topo, make_test_topo};

    /// Regroup a machine without L3. `l2` returns the CPUs that share a CPU's L2.
    fn regrouped(topo: &mut Topology, l2: impl Fn(usize) -> Vec<usize>) -> (Vec<LlcKind>, Vec<Vec<usize>>) {
        for llc in topo.all_llcs.values_mut() {
            let llc = Arc::make_mut(llc);
            for core in llc.cores.values_mut() {
                let core = Arc::make_mut(core);
                for cpu in core.cpus.values_mut() {
                    Arc::make_mut(cpu).l3_id = usize::MAX;
                }
            }
        }
        let first_of = |core: &Core, _| *core.cpus.keys().next().unwrap();
        let kinds =
            regroup_by(topo, first_of, |id| vec![Cache { level: 1, cpus: vec![id] }, Cache { level: 2, cpus: l2(id) }]);
        (kinds, spans(topo))
    }

    fn spans(topo: &Topology) -> Vec<Vec<usize>> {
        topo.all_llcs.values().map(|llc| llc.all_cpus.keys().copied().collect()).collect()
    }

    #[test]
    fn machines_with_an_l3_stay_as_they_are() {
        let (mut topo, _) = make_het_test_topo(&[&[2, 3], &[1]], 2);
        let before = spans(&topo);
        let kinds = regroup_by(&mut topo, |core, _| core.id, |_| panic!("needs no caches"));
        assert_eq!(kinds, [LlcKind::Cache(3); 3]);
        assert_eq!(spans(&topo), before);
    }

    #[test]
    fn caches_of_one_core_do_not_make_llcs() {
        // Two packages with one node each, and an L2 for each core of two CPUs.
        let (mut topo, _) = make_test_topo(2, 1, 2, 2);
        let (kinds, spans) = regrouped(&mut topo, |id| vec![id & !1, id | 1]);
        assert_eq!(kinds, [LlcKind::Package; 2]);
        assert_eq!(spans, [[0, 1, 2, 3], [4, 5, 6, 7]]);
    }

    #[test]
    fn an_l2_of_several_cores_is_an_llc() {
        let (mut topo, _) = make_test_topo(1, 1, 8, 1);
        let (kinds, spans) = regrouped(&mut topo, |id| (id & !3..(id & !3) + 4).collect());
        assert_eq!(kinds, [LlcKind::Cache(2); 2]);
        assert_eq!(spans, [[0, 1, 2, 3], [4, 5, 6, 7]]);
    }

    /// The low-power cores of some hybrid machines do not share the L3.
    #[test]
    fn some_cpus_may_have_no_l3() {
        let (mut topo, _) = make_test_topo(1, 1, 6, 1);
        let llc = Arc::make_mut(topo.all_llcs.get_mut(&0).unwrap());
        for id in 4..6 {
            let core = Arc::make_mut(llc.cores.get_mut(&id).unwrap());
            Arc::make_mut(core.cpus.get_mut(&id).unwrap()).l3_id = usize::MAX;
        }
        let l2 = |id| vec![Cache { level: 2, cpus: if id < 4 { vec![id] } else { vec![4, 5] } }];
        let kinds = regroup_by(&mut topo, |core, _| core.id, l2);
        assert_eq!(kinds, [LlcKind::Cache(3), LlcKind::Cache(2)]);
        assert_eq!(spans(&topo), [vec![0, 1, 2, 3], vec![4, 5]]);
    }

    #[test]
    fn caches_are_read_by_level() {
        let folder = tempfile::tempdir().unwrap();
        for (index, level, kind, cpus) in [(0, 1, "Instruction", "0-7"), (1, 2, "Unified", "0-2,5")] {
            let index = folder.path().join(format!("index{index}"));
            fs::create_dir(&index).unwrap();
            fs::write(index.join("level"), format!("{level}\n")).unwrap();
            fs::write(index.join("type"), format!("{kind}\n")).unwrap();
            fs::write(index.join("shared_cpu_list"), format!("{cpus}\n")).unwrap();
        }
        fs::write(folder.path().join("uevent"), "").unwrap();
        assert_eq!(caches_of(folder.path()), [Cache { level: 2, cpus: vec![0, 1, 2, 5] }]);
        assert_eq!(caches_of(Path::new("/nonexistent")), []);
    }
}
