// SPDX-License-Identifier: GPL-2.0-only
//! Metrics for Prometheus: a client of the statistics socket, in a process of its own.
//!
//! ```text
//! socket, target "totals" --Reader::read()--> Metrics since the start --encode() (encode.rs, families.rs)--> text
//!                                     text --> a file for node_exporter, each interval; or HTTP (http.rs), on request
//! ```
//!
//! No scheduler is no error: `scx_magpie_up` is 0 then.

mod encode;
mod families;
mod http;

use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use log::{info, warn};
use scx_stats::prelude::*;

pub use encode::{Format, encode};

use crate::cli::Export;
use crate::preflight::Refusal;
use crate::stats::{Metrics, NR_CGROUPS, SOCKET, TOTALS};

/// How long the scheduler may take to answer. Milliseconds.
const PATIENCE: u64 = 5000;

/// Exports until it is killed.
pub fn export(args: &Export) -> Result<()> {
    let reader = Reader::new(args.cgroups);
    match (&args.textfile, args.listen) {
        (Some(path), _) => to_textfile(path, Duration::from_secs_f64(args.interval), reader),
        (None, Some(address)) => http::serve(address, reader),
        (None, None) => bail!("--textfile or --listen is needed"),
    }
}

/// Writes the file each `interval`, as a whole, so that no reader sees half of it.
fn to_textfile(path: &Path, interval: Duration, mut reader: Reader) -> Result<()> {
    ensure!(
        path.extension() == Some(OsStr::new("prom")),
        "node_exporter reads files only whose names end in .prom: call {} so",
        path.display()
    );
    let fresh = path.with_extension("prom.new");
    loop {
        let text = encode(reader.read()?.as_ref(), Format::Prometheus)?;
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path)).with_context(|| {
            format!("cannot write {}: see to it that its folder exists and may be written", path.display())
        })?;
        thread::sleep(interval);
    }
}

/// Reads what the scheduler has counted. Says when it comes and goes.
struct Reader {
    nr_cgroups: u32,
    /// As of the last look.
    is_attached: Option<bool>,
}

impl Reader {
    fn new(nr_cgroups: u32) -> Self {
        Self { nr_cgroups, is_attached: None }
    }

    /// None: no scx_magpie is attached. Fails if none that comes could be read.
    fn read(&mut self) -> Result<Option<Metrics>> {
        let read = self.request();
        if let Err(err) = &read
            && err
                .downcast_ref::<std::io::Error>()
                .is_some_and(|err| err.kind() == std::io::ErrorKind::PermissionDenied)
        {
            bail!(Refusal::NotRoot);
        }
        if self.is_attached.replace(read.is_ok()) != Some(read.is_ok()) {
            match &read {
                Ok(_) => info!("scx_magpie is attached"),
                Err(err) => warn!("no statistics of scx_magpie at {SOCKET}: {err:#}; scx_magpie_up is 0"),
            }
        }
        Ok(read.ok())
    }

    fn request(&self) -> Result<Metrics> {
        let args = [("target", TOTALS.into()), (NR_CGROUPS, self.nr_cgroups.to_string())];
        let args = args.map(|(name, value)| (name.into(), value)).into();
        StatsClient::new().set_path(SOCKET).connect(Some(PATIENCE))?.request("stats", args)
    }
}
