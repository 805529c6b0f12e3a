// SPDX-License-Identifier: GPL-2.0-only
//! Sets of CPUs, in the layout of the kernel's `struct cpumask`.

use std::fmt;
use std::str::FromStr;

use scx_magpie::topology::cpulist;
use serde_with::{DeserializeFromStr, SerializeDisplay};

use crate::native::{MAX_CPUS, cpumask};

const WORDS: usize = MAX_CPUS / 64;

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, SerializeDisplay, DeserializeFromStr)]
#[repr(transparent)]
pub struct Mask([u64; WORDS]);

impl Mask {
    pub const fn all() -> Self {
        Self([u64::MAX; WORDS])
    }

    pub fn only(cpu: usize) -> Self {
        let mut mask = Self::default();
        mask.set(cpu);
        mask
    }

    pub fn first(nr: usize) -> Self {
        (0..nr).collect()
    }

    pub fn set(&mut self, cpu: usize) {
        self.0[cpu / 64] |= 1 << (cpu % 64);
    }

    pub fn clear(&mut self, cpu: usize) {
        self.0[cpu / 64] &= !(1 << (cpu % 64));
    }

    pub fn test(&self, cpu: usize) -> bool {
        self.0[cpu / 64] & 1 << (cpu % 64) != 0
    }

    pub fn is_only(&self, cpu: usize) -> bool {
        *self == Self::only(cpu)
    }

    pub fn is_empty(&self) -> bool {
        self.0 == [0; WORDS]
    }

    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    pub fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i] & other.0[i]))
    }

    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(i, &word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                let bit = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
                rest &= rest - 1;
                Some(i * 64 + bit)
            })
        })
    }

    /// Return the first CPU after `cpu`, wrapping around.
    pub fn next_after(&self, cpu: usize) -> Option<usize> {
        self.iter().find(|&id| id > cpu).or_else(|| self.iter().next())
    }

    /// Return the mask as the program sees it.
    pub fn as_c(&self) -> *const cpumask {
        (&raw const *self).cast()
    }

    pub fn of_c(mask: &cpumask) -> Self {
        Self(mask.bits)
    }
}

impl FromIterator<usize> for Mask {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut mask = Self::default();
        cpus.into_iter().for_each(|cpu| mask.set(cpu));
        mask
    }
}

/// Format as in sysfs: "0-3,8"; or "all".
impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::all() {
            return f.write_str("all");
        }
        f.write_str(&cpulist::list(&self.iter().collect::<Vec<_>>()))
    }
}

impl FromStr for Mask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "all" {
            return Ok(Self::all());
        }
        let mut mask = Self::default();
        for range in text.split(',').filter(|range| !range.is_empty()) {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |text: &str| text.parse().ok().filter(|&cpu| cpu < MAX_CPUS);
            let (Some(from), Some(to)) = (number(from), number(to)) else {
                return Err(format!("'{range}' is not a range of CPUs"));
            };
            (from..=to).for_each(|cpu| mask.set(cpu));
        }
        Ok(mask)
    }
}
