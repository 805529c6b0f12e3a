// SPDX-License-Identifier: GPL-2.0-only
//! Metrics for Prometheus: a client of the statistics socket in a separate process.
//!
//! ```text
//! socket, target "totals" --Reader::read()--> Metrics since the start --encode() (encode.rs, families.rs)--> text
//!                                     text --> a file for node_exporter, each interval; or HTTP (http.rs), on request
//! ```
//!
//! A missing scheduler is no error: `scx_magpie_up` is 0 then, and the metrics of [`Host`] remain.

mod encode;
mod families;
mod host;
mod http;

use std::ffi::OsStr;
use std::fs::Permissions;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::{ArgGroup, Args, value_parser};
use log::{info, warn};
use scx_stats::prelude::*;
use tempfile::NamedTempFile;

pub use encode::{Format, encode};
pub use host::Host;

use crate::exit::Refusal;
use crate::stats::{Metrics, NR_CGROUPS, SOCKET, TOTALS};
use crate::units::interval;

/// How long the scheduler may take to answer, in milliseconds.
const PATIENCE: u64 = 5000;

/// Destination and selection of the metrics.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("way").required(true).args(["textfile", "listen"]))]
pub struct ExportOpts {
    /// Write the metrics to this file at each interval, for node_exporter's textfile collector.
    ///
    /// The name of the file must end in .prom.
    ///
    /// Example: --textfile /var/lib/prometheus/node-exporter/scx_magpie.prom
    #[arg(long, value_name = "PATH")]
    pub textfile: Option<PathBuf>,

    /// Serve the metrics over HTTP at this port, at the path /metrics.
    ///
    /// Without ADDR only this machine can connect. There is no password, and metrics name cgroups.
    /// The format is OpenMetrics if the client asks for it, else Prometheus' text format.
    ///
    /// Example: --listen 9811
    #[arg(long, value_name = "[ADDR:]PORT", value_parser = listen_address)]
    pub listen: Option<SocketAddr>,

    /// Write the file of --textfile at this interval.
    ///
    /// Unit: seconds, more than 0. Set it to the scrape interval of node_exporter.
    ///
    /// Example: --interval 30
    #[arg(long, default_value_t = 15.0, value_name = "SEC", value_parser = interval, conflicts_with = "listen")]
    pub interval: f64,

    /// Export metrics of this many cgroups.
    ///
    /// Range: 0..10000. The cgroups that were throttled for longest come first, then those that
    /// used most CPU time.
    ///
    /// Example: --cgroups 100
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = value_parser!(u32).range(0..=10_000))]
    pub cgroups: u32,
}

/// Export until the process is killed.
pub fn export(args: &ExportOpts) -> Result<()> {
    let reader = Reader::new(args.cgroups);
    match (&args.textfile, args.listen) {
        (Some(path), _) => to_textfile(path, Duration::from_secs_f64(args.interval), reader),
        (None, Some(address)) => http::serve(address, reader),
        (None, None) => bail!("--textfile or --listen is needed"),
    }
}

/// Write the file each `interval`. It is replaced entirely, so no reader sees a part of it.
fn to_textfile(path: &Path, interval: Duration, mut reader: Reader) -> Result<()> {
    ensure!(
        path.extension() == Some(OsStr::new("prom")),
        "node_exporter reads only files whose names end in .prom: rename {}",
        path.display()
    );
    loop {
        let text = encode(&Host::now(), reader.read()?.as_ref(), Format::Prometheus)?;
        replace(path, &text)
            .with_context(|| format!("cannot write {}: its folder must exist and be writable", path.display()))?;
        thread::sleep(interval);
    }
}

/// Replace a file atomically. Another user may own its folder and put links there, so the new file
/// has an unpredictable name and must not exist.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(".".as_ref());
    let mut fresh = NamedTempFile::new_in(folder)?;
    fresh.write_all(text.as_bytes())?;
    fresh.as_file().set_permissions(Permissions::from_mode(0o644))?;
    fresh.persist(path)?;
    Ok(())
}

/// Reader of the scheduler's totals. It logs when a scheduler appears or exits.
struct Reader {
    nr_cgroups: u32,
    /// Whether a scheduler was attached at the last request.
    is_attached: Option<bool>,
}

impl Reader {
    fn new(nr_cgroups: u32) -> Self {
        Self { nr_cgroups, is_attached: None }
    }

    /// Return the totals. None: no scx_magpie is attached. Fails if waiting for one is pointless.
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

fn listen_address(s: &str) -> Result<SocketAddr, String> {
    let local = s.parse().map(|port: u16| (Ipv4Addr::LOCALHOST, port).into());
    local.or_else(|_| s.parse()).map_err(|_| "an address is PORT, ADDR:PORT or [IPV6]:PORT".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn files_of_others_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, file) = (folder.path().join("victim"), folder.path().join("x.prom"));
        fs::write(&victim, "old").unwrap();
        for link in ["x.prom.new", "x.prom"] {
            symlink(&victim, folder.path().join(link)).unwrap();
        }
        replace(&file, "new").unwrap();
        assert_eq!(
            (fs::read_to_string(&victim).unwrap(), fs::read_to_string(&file).unwrap()),
            ("old".into(), "new".into())
        );
        let metadata = fs::symlink_metadata(&file).unwrap();
        assert_eq!((metadata.is_file(), metadata.permissions().mode() & 0o777), (true, 0o644));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn ports_are_of_this_machine_unless_said_otherwise() {
        for (text, address) in [("9999", "127.0.0.1:9999"), ("0.0.0.0:80", "0.0.0.0:80"), ("[::1]:80", "[::1]:80")] {
            assert_eq!(listen_address(text), Ok(address.parse().unwrap()));
        }
        for bad in ["", "70000", "host:80", "127.0.0.1", "::1:x"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }
}
