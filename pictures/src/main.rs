// SPDX-License-Identifier: GPL-2.0-only
//! `magpie-pictures`: draws the pictures of the docs, from what is in the tree alone, so that each run draws the same:
//!
//! ```text
//! docs/pictures/data/top.jsonl, by `top` itself ------> top.svg
//! the formula of src/nr_scan.rs, its author's table --> nr_scan.svg
//! docs/pictures/data/shares.jsonl --------------------> shares.svg    (tools/pictures/record has top and shares)
//! the tables of docs/benchmarks.md -------------------> real-time.svg, benchmarks.svg
//! ```
//!
//! `magpie-pictures TABLE SVG` draws another table like these, as bench/run does.

mod benchmarks;
mod canvas;
mod nr_scan;
mod shares;
mod top;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

type Draw = fn() -> Result<String>;

/// A picture's name, and what draws it.
const PICTURES: [(&str, Draw); 5] = [
    ("top.svg", top::draw),
    ("nr_scan.svg", nr_scan::draw),
    ("shares.svg", shares::draw),
    ("real-time.svg", || {
        benchmarks::draw(&docs().join("benchmarks.md"), "## In real time", "Against EEVDF in real time")
    }),
    ("benchmarks.svg", || {
        benchmarks::draw(&docs().join("benchmarks.md"), "## The table on", "Against EEVDF in emulation")
    }),
];

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

/// What was recorded, a line of JSON each.
fn recorded<T: DeserializeOwned>(name: &str) -> Result<Vec<T>> {
    let path = docs().join("pictures/data").join(name);
    let parse = |line| serde_json::from_str(line).with_context(|| format!("{}: {line}", path.display()));
    read(&path)?.lines().map(parse).collect()
}

fn write(path: &Path, svg: &str) -> Result<()> {
    fs::write(path, svg).with_context(|| format!("cannot write {}", path.display()))
}

fn main() -> Result<()> {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match &files[..] {
        [] => PICTURES.iter().try_for_each(|(name, draw)| write(&docs().join("pictures").join(name), &draw()?)),
        [table, svg] => write(svg, &benchmarks::draw(table, "", "Against EEVDF")?),
        _ => bail!("usage: magpie-pictures [TABLE SVG]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_are_current() {
        for (name, draw) in PICTURES {
            let is_current = read(&docs().join("pictures").join(name)).ok() == Some(draw().unwrap());
            assert!(is_current, "docs/pictures/{name} is not what its data say: run make pictures");
        }
    }
}
