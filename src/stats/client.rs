// SPDX-License-Identifier: GPL-2.0-only
//! Client of the running scheduler's statistics.

use std::io::ErrorKind;

use anyhow::{Context, Result, bail};
use scx_stats::prelude::*;

use super::{Metrics, SOCKET};
use crate::exit::Refusal;

/// Connection to one scheduler, until that exits or restarts.
pub struct Client(StatsClient);

impl Client {
    /// Connect. None: no scheduler serves statistics. Fails if waiting for one is pointless.
    pub fn connect() -> Result<Option<Self>> {
        match StatsClient::new().set_path(SOCKET).connect(None) {
            Ok(client) => Ok(Some(Self(client))),
            Err(err) => check_absent(err).map(|()| None),
        }
    }

    /// Return the increase since the last call. None: the scheduler has exited or restarts.
    pub fn read(&mut self) -> Result<Option<Metrics>> {
        match self.0.request("stats", vec![]) {
            Ok(metrics) => Ok(Some(metrics)),
            Err(err) if is_foreign(&err) => {
                bail!("the statistics at {SOCKET} are not those of scx_magpie of this version: {err}")
            }
            Err(_) => Ok(None),
        }
    }
}

/// Return an error unless a new scheduler would make the connection succeed.
fn check_absent(err: anyhow::Error) -> Result<()> {
    match err.downcast_ref::<std::io::Error>().map(std::io::Error::kind) {
        Some(ErrorKind::NotFound | ErrorKind::ConnectionRefused) => Ok(()),
        Some(ErrorKind::PermissionDenied) => Err(Refusal::NotRoot.into()),
        _ => Err(err)
            .with_context(|| format!("no scheduler can create the socket {SOCKET}: remove the file in its place")),
    }
}

/// Return true if the reply is complete but in another scheduler's format.
fn is_foreign(err: &anyhow::Error) -> bool {
    err.downcast_ref::<serde_json::Error>().is_some_and(serde_json::Error::is_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_waiting_does_not_mend() {
        let of_kind = |kind| check_absent(std::io::Error::from(kind).into());
        assert!(of_kind(ErrorKind::NotFound).is_ok());
        assert!(of_kind(ErrorKind::ConnectionRefused).is_ok());
        let refusal = of_kind(ErrorKind::PermissionDenied).unwrap_err();
        assert_eq!(refusal.downcast_ref(), Some(&Refusal::NotRoot));
        assert!(of_kind(ErrorKind::NotADirectory).unwrap_err().to_string().contains(SOCKET));
    }

    #[test]
    fn replies_of_others_are_told_from_replies_cut_short() {
        let error_of = |text| serde_json::from_str::<Metrics>(text).unwrap_err().into();
        assert!(is_foreign(&error_of(r#"{"name": "another scheduler"}"#)));
        assert!(!is_foreign(&error_of(r#"{"name": "#)));
        assert!(!is_foreign(&anyhow::anyhow!("connection closed")));
    }
}
