// SPDX-License-Identifier: GPL-2.0-only
//! How long a server waits for a CPU after a packet woke it, if packets arrive by interrupts.
//!
//! ```text
//! client  writes everything --> the kernel sends a packet per millisecond, from the pacing timer's softirq
//!                                   \--> loopback --> the server wakes, reads, and sleeps again
//! ```
//! The kernel pins that timer to the CPU of the client's write, so an interrupt there is the waker.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::str;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use serde::Serialize;

/// Bytes per packet, and packets per second.
const PACKET: u32 = 1000;
const RATE: u32 = 1000;

/// Measures how long a task that packets wake waits for a CPU.
#[derive(Parser)]
struct Opts {
    /// Packets to send, one a millisecond.
    #[arg(short, long, default_value_t = 1000)]
    packets: u32,
}

#[derive(Serialize)]
struct Waits {
    /// Number of times that the server slept.
    wakeups: usize,
    p50_us: f64,
    p99_us: f64,
}

fn set(socket: impl AsFd, level: i32, name: i32, value: u32) -> Result<()> {
    // SAFETY: the value outlives the call.
    let error = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
    ensure!(error == 0, "setsockopt: {}", std::io::Error::last_os_error());
    Ok(())
}

/// Return the client's and the server's end of a connection over loopback.
fn connect(packets: u32) -> Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    set(&listener, libc::IPPROTO_TCP, libc::TCP_MAXSEG, PACKET)?;
    let client = TcpStream::connect(listener.local_addr()?).context("no loopback device: ip link set lo up")?;
    set(&client, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 4 * packets * PACKET)?;
    set(&client, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, RATE * PACKET)?;
    Ok((client, listener.accept()?.0))
}

/// Return how long this thread has waited for a CPU so far, ns.
fn waited(schedstat: &File) -> Result<u64> {
    let mut text = [0; 80];
    let len = schedstat.read_at(&mut text, 0)?;
    let field = str::from_utf8(&text[..len])?.split_ascii_whitespace().nth(1);
    field.and_then(|ns| ns.parse().ok()).context("/proc/thread-self/schedstat: no wait time")
}

fn main() -> Result<()> {
    let opts = Opts::parse();
    let (mut client, mut server) = connect(opts.packets)?;
    client.write_all(&vec![0; (opts.packets * PACKET) as usize])?;
    client.shutdown(std::net::Shutdown::Write)?;

    let schedstat = File::open("/proc/thread-self/schedstat")?;
    let mut waits = Vec::new();
    let mut packet = [0; 1 << 16];
    let mut before = waited(&schedstat)?;
    while server.read(&mut packet)? > 0 {
        let now = waited(&schedstat)?;
        waits.push((now - before) as f64 / 1000.0);
        before = now;
    }
    waits.sort_by(f64::total_cmp);
    let at = |share: f64| waits[(waits.len() as f64 * share) as usize];
    println!("{}", serde_json::to_string(&Waits { wakeups: waits.len(), p50_us: at(0.5), p99_us: at(0.99) })?);
    Ok(())
}
