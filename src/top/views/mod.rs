// SPDX-License-Identifier: GPL-2.0-only
//! The views, in the order of their numbers.

mod bars;
mod capacity;
mod cgroups;
mod grid;
mod latency;
mod llcs;
mod numa;
mod overview;
mod wakeups;

use super::view::View;

/// The first view applies to every machine.
pub static VIEWS: [&View; 6] =
    [&overview::VIEW, &llcs::VIEW, &wakeups::VIEW, &cgroups::VIEW, &numa::VIEW, &capacity::VIEW];
