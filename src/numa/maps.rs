// SPDX-License-Identifier: GPL-2.0-only
//! Read where a process has its memory, from `/proc/PID/numa_maps`:
//!
//! ```text
//! a chunk of the file --Pass::go_on(), may pause--> whole lines (mappings) --> Tally --preferred()--> node
//! ```

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};

use crate::bpf_intf::NO_NODE;

/// A process with less memory than this has no preferred node by memory.
const MIN_KB: u64 = 1024;

/// The kernel's own chunk size: it computes no mappings that are not read.
const CHUNK: usize = 4096;

/// A process's memory by node, in kB.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    nodes: BTreeMap<i32, u64>,
    pub total: u64,
}

impl Tally {
    /// Add a mapping, a line of `numa_maps`. File pages that the process has not written do not
    /// count: their first reader placed them. A mapping bound to a node counts entirely for it.
    fn add(&mut self, line: &str) {
        let mut words = line.split_ascii_whitespace().skip(1);
        let policy = words.next().unwrap_or_default();
        let (mut is_file, mut written, mut page_kb) = (false, false, 4);
        let mut pages = Vec::new();
        for word in words {
            match word.split_once('=') {
                Some(("file", _)) => is_file = true,
                Some(("anon" | "dirty", _)) => written = true,
                Some(("kernelpagesize_kB", kb)) => page_kb = kb.parse().unwrap_or(page_kb),
                Some((name, count)) => {
                    if let Some(Ok(node)) = name.strip_prefix('N').map(str::parse::<i32>) {
                        pages.push((node, count.parse::<u64>().unwrap_or(0)));
                    }
                }
                None => {}
            }
        }
        // Interleaved mappings are on all nodes by intent.
        if is_file && !written || policy.starts_with("interleave") || policy.starts_with("weighted") {
            return;
        }
        let bound = bound_to(policy);
        for (node, count) in pages {
            *self.nodes.entry(bound.unwrap_or(node)).or_default() += count * page_kb;
            self.total += count * page_kb;
        }
    }

    /// Return the node with more than half of the memory, or [`NO_NODE`].
    pub fn preferred(&self) -> i32 {
        let most = self.nodes.iter().max_by_key(|&(_, kb)| kb);
        match most {
            Some((&node, &kb)) if self.total >= MIN_KB && 2 * kb > self.total => node,
            _ => NO_NODE,
        }
    }
}

/// Return the node of a policy with one node, like `bind:1` or `prefer=static:1`.
fn bound_to(policy: &str) -> Option<i32> {
    let (mode, nodes) = policy.split_once(':')?;
    let (mode, _flags) = mode.split_once('=').unwrap_or((mode, ""));
    matches!(mode, "bind" | "prefer").then(|| nodes.parse().ok())?
}

/// A walk over the mappings of one process that may pause.
pub struct Pass {
    file: File,
    /// Beginning of a line whose end has not been read.
    rest: Vec<u8>,
    pub tally: Tally,
}

impl Pass {
    pub fn new(tgid: i32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{tgid}/numa_maps"))?;
        Ok(Self { file, rest: Vec::new(), tally: Tally::default() })
    }

    /// Continue while `in_time` returns true. Return true at the end of the file.
    pub fn go_on(&mut self, in_time: impl Fn() -> bool) -> io::Result<bool> {
        let mut chunk = [0; CHUNK];
        loop {
            match self.file.read(&mut chunk)? {
                0 => return Ok(true),
                len => self.rest.extend_from_slice(&chunk[..len]),
            }
            let complete = self.rest.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            String::from_utf8_lossy(&self.rest[..complete]).lines().for_each(|line| self.tally.add(line));
            self.rest.drain(..complete);
            if !in_time() {
                return Ok(false);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        lines.iter().for_each(|line| tally.add(line));
        tally
    }

    #[test]
    fn pages_count_by_node_and_size() {
        let tally = tally(&[
            "7f0000000000 default anon=300 dirty=300 N0=100 N1=200 kernelpagesize_kB=4",
            "7f1000000000 default file=/anon_hugepage\\040(deleted) huge anon=2 dirty=2 N1=2 kernelpagesize_kB=2048",
            "7f2000000000 default file=/usr/lib/libc.so mapped=900 mapmax=40 N0=900 kernelpagesize_kB=4",
            "7f3000000000 default file=/dev/shm/x dirty=10 N0=10 kernelpagesize_kB=4",
            "7f4000000000 default stack",
            "7f5000000000",
            "",
        ]);
        assert_eq!(tally.nodes, BTreeMap::from([(0, 440), (1, 800 + 4096)]));
        assert_eq!(tally.preferred(), 1);
    }

    #[test]
    fn policies_of_the_user_win() {
        let anon = |policy: &str| tally(&[&format!("7f00 {policy} anon=1000 dirty=1000 N0=1000 kernelpagesize_kB=4")]);
        for (policy, node) in [
            ("default", 0),
            ("local", 0),
            ("bind:1", 1),
            ("bind=static:1", 1),
            ("prefer:1", 1),
            ("bind:0-1", 0),
            ("prefer (many):1", 0),
            ("interleave:0-1", NO_NODE),
            ("weighted interleave:0-1", NO_NODE),
        ] {
            assert_eq!(anon(policy).preferred(), node, "{policy}");
        }
    }

    #[test]
    fn half_is_not_most_and_little_does_not_matter() {
        let of = |here: u64, there: u64| {
            tally(&[&format!("7f00 default anon=1 N0={here} N3={there} kernelpagesize_kB=4")]).preferred()
        };
        assert_eq!((of(500, 500), of(500, 501), of(0, 255), of(0, 256)), (NO_NODE, 3, NO_NODE, 3));
        assert_eq!(Tally::default().preferred(), NO_NODE);
    }

    #[test]
    fn a_pass_that_pauses_sees_the_same() {
        let text: String =
            (0..3000).map(|i| format!("7f{i:06x}000 default anon={i} N{}={i} kernelpagesize_kB=4\n", i % 3)).collect();
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &text).unwrap();
        let pass = || Pass { file: File::open(file.path()).unwrap(), rest: Vec::new(), tally: Tally::default() };
        let (mut whole, mut paused) = (pass(), pass());
        assert!(whole.go_on(|| true).unwrap());
        let mut pauses = 0;
        while !paused.go_on(|| false).unwrap() {
            pauses += 1;
        }
        assert_eq!(pauses, text.len().div_ceil(CHUNK));
        assert_eq!(whole.tally, paused.tally);
        assert_eq!(whole.tally.total, 4 * (0..3000).sum::<u64>());
    }

    #[test]
    fn own_memory_is_somewhere() {
        let pid = std::process::id() as i32;
        // Kernels without NUMA have no such file.
        let Ok(mut pass) = Pass::new(pid) else { return };
        let memory = std::hint::black_box(vec![1u8; 8 << 20]);
        assert!(pass.go_on(|| true).unwrap());
        assert!(pass.tally.total >= memory.len() as u64 / 1024, "{:?}", pass.tally);
    }
}
