// SPDX-License-Identifier: GPL-2.0-only
//! The control socket: lines of JSON, with the same library as the socket of statistics. Its
//! threads wait for clients, so the scheduler's loop does not.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use scx_stats::prelude::*;

use super::{Reply, Request};

pub struct Server {
    socket: PathBuf,
    server: StatsServer<Request, Reply>,
}

impl Server {
    /// Listen on `socket`. Replaces a socket that a killed scheduler left.
    pub fn launch(socket: &Path) -> Result<Self> {
        let read: Box<dyn StatsReaderSend<Request, Reply>> = Box::new(|args, (req, res)| {
            req.send(serde_json::from_str(args.get("request").context("no request")?)?)?;
            Ok(serde_json::to_value(res.recv()?)?)
        });
        let server = StatsServer::new(StatsServerData::new().add_stats("control", read)).set_path(socket).launch()?;
        let server = Self { socket: socket.into(), server };
        fs::set_permissions(socket, fs::Permissions::from_mode(0o600))?;
        Ok(server)
    }

    /// Return the next pending request, if there is one.
    pub fn request(&self) -> Option<Request> {
        self.server.channels().1.try_recv().ok()
    }

    pub fn reply(&self, reply: Reply) -> Result<()> {
        // Sending fails if the server's threads have ended.
        Ok(self.server.channels().0.send(reply)?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = fs::remove_file(&self.socket);
    }
}
