// SPDX-License-Identifier: GPL-2.0-only
//! The socket that serves statistics. If it fails, the scheduler continues.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use log::warn;
use nix::unistd::getegid;
use scx_stats::prelude::*;

use super::{Snapshot, server_data};

/// Path at which scx schedulers serve statistics.
pub const SOCKET: &str = "/var/run/scx/root/stats";

/// Return true if a group may read statistics: that of the process, unless it is root's.
pub fn has_readers() -> bool {
    getegid().as_raw() != 0
}

/// A server and its socket. Dropping it removes the socket.
pub struct Server {
    socket: PathBuf,
    /// None if statistics cannot be served.
    server: Option<StatsServer<(), Snapshot>>,
}

impl Server {
    /// Listen on `socket`. Replaces a socket that a killed scheduler left. Warns on failure.
    pub fn launch(socket: &Path) -> Self {
        let launched = StatsServer::new(server_data()).set_path(socket).launch();
        let launched = launched.and_then(|server| {
            if has_readers() {
                fs::set_permissions(socket, Permissions::from_mode(0o660))?;
            }
            Ok(server)
        });
        let place = socket.display();
        let server = launched
            .map_err(|err| {
                warn!("continuing without statistics: {err:#}: root must be able to create the socket {place}")
            })
            .ok();
        Self { socket: socket.into(), server }
    }

    /// Answer the waiting clients. If `snapshot` fails, statistics end.
    pub fn answer(&mut self, mut snapshot: impl FnMut() -> Result<Snapshot>) {
        let Some((res, req)) = self.server.as_ref().map(StatsServer::channels) else { return };
        while req.try_recv().is_ok() {
            // Sending fails if the server's threads have ended.
            if let Err(err) = snapshot().and_then(|snapshot| Ok(res.send(snapshot)?)) {
                warn!("continuing without statistics: {err:#}");
                self.end();
                return;
            }
        }
    }

    fn end(&mut self) {
        if self.server.take().is_some() {
            let _ = fs::remove_file(&self.socket);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;
    use std::time::Duration;

    fn ask(socket: &Path) -> Result<serde_json::Value> {
        StatsClient::new().set_path(socket).connect(Some(5000))?.request("stats", vec![])
    }

    /// Answer with `snapshot` until a client has its reply or gives up.
    fn answered(server: &mut Server, mut snapshot: impl FnMut() -> Result<Snapshot>) -> Result<serde_json::Value> {
        let socket = server.socket.clone();
        let client = thread::spawn(move || ask(&socket));
        while !client.is_finished() {
            server.answer(&mut snapshot);
            thread::sleep(Duration::from_millis(1));
        }
        client.join().unwrap()
    }

    #[test]
    fn takes_over_a_stale_socket_and_leaves_none() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("root/stats");
        fs::create_dir(folder.path().join("root")).unwrap();
        drop(UnixListener::bind(&socket).unwrap());
        let mut server = Server::launch(&socket);
        // A client that disconnects before it is answered.
        drop(StatsClient::new().set_path(&socket).connect(None).unwrap());
        assert!(answered(&mut server, || Ok(Snapshot::default())).is_ok());
        drop(server);
        assert!(!socket.exists());
    }

    #[test]
    fn does_without_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        fs::create_dir_all(folder.path().join("folder/stats/child")).unwrap();
        for socket in ["file/root/stats", "folder/stats"] {
            let mut server = Server::launch(&folder.path().join(socket));
            server.answer(|| panic!("nobody asks"));
            assert!(server.server.is_none());
        }
        assert!(folder.path().join("folder/stats/child").exists());
    }

    #[test]
    fn does_without_snapshots() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("stats");
        let mut server = Server::launch(&socket);
        assert!(answered(&mut server, || anyhow::bail!("none")).is_err());
        assert!(!socket.exists());
    }
}
