// SPDX-License-Identifier: GPL-2.0-only
//! Metrics over HTTP, at `/metrics`. The scheduler is asked once a second at most, by all clients.
//!
//! Each of a fixed number of threads serves one client at a time, one request per connection,
//! within a time limit: idle clients cost no more. Other connections wait in the kernel's queue.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use log::{debug, info, warn};

use super::{Format, Host, Reader, encode};
use crate::stats::Metrics;

/// Answers of the scheduler younger than this are used again.
const FRESH: Duration = Duration::from_secs(1);

/// Maximum number of clients that are served at a time.
const CLIENTS: usize = 8;

/// Time limit for a client to send its request and to read the reply.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Limits of a request.
const MAX_REQUEST: usize = 8192;
const MAX_HEADERS: usize = 64;

const PLAIN: &str = "text/plain; charset=utf-8";

/// The last answer of the scheduler.
struct Last {
    reader: Reader,
    metrics: Option<Metrics>,
    read_at: Option<Instant>,
}

impl Last {
    fn new(reader: Reader) -> Mutex<Self> {
        Mutex::new(Self { reader, metrics: None, read_at: None })
    }

    fn text(&mut self, format: Format) -> Result<String> {
        if self.read_at.is_none_or(|at| at.elapsed() >= FRESH) {
            self.metrics = self.reader.read()?;
            self.read_at = Some(Instant::now());
        }
        encode(&Host::now(), self.metrics.as_ref(), format)
    }
}

/// Serve until the process is killed.
pub fn serve(address: SocketAddr, reader: Reader) -> Result<()> {
    let last = Last::new(reader);
    // Fail immediately if statistics cannot be read; report if there is no scheduler.
    lock(&last).text(Format::Prometheus)?;
    let listener = TcpListener::bind(address).with_context(|| format!("cannot listen on {address}"))?;
    info!("metrics at http://{}/metrics", listener.local_addr()?);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| accept(&listener, &last, TIMEOUT));
        }
    });
    Ok(())
}

fn accept(listener: &TcpListener, last: &Mutex<Last>, timeout: Duration) {
    for stream in listener.incoming() {
        let answered = stream.and_then(|stream| answer(&mut Client { stream, until: Instant::now() + timeout }, last));
        if let Err(err) = answered {
            debug!("a client was not answered: {err}");
        }
    }
}

/// A connection with a time limit.
struct Client {
    stream: TcpStream,
    until: Instant,
}

impl Client {
    /// Return the time left. Fails if none is left.
    fn time_left(&self) -> io::Result<Option<Duration>> {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(Some(left)) }
    }
}

impl Read for Client {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.time_left()?)?;
        self.stream.read(bytes)
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn answer(client: &mut Client, last: &Mutex<Last>) -> io::Result<()> {
    let (status, kind, text) = match read_request(client)? {
        Err(status) => (status, PLAIN, format!("{status}\n")),
        Ok(format) => match lock(last).text(format) {
            Ok(text) => ("200 OK", format.content_type(), text),
            Err(err) => {
                warn!("{err:#}");
                ("500 Internal Server Error", PLAIN, format!("{err:#}\n"))
            }
        },
    };
    let length = text.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    client.write_all((head + &text).as_bytes())
}

/// Read a request. Return the format, or an HTTP status: OpenMetrics if the client names it, as
/// Prometheus does, else Prometheus' text format.
fn read_request(client: &mut Client) -> io::Result<Result<Format, &'static str>> {
    let (mut bytes, mut length) = ([0; MAX_REQUEST], 0);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&bytes[..length]) {
            Err(_) => return Ok(Err("400 Bad Request")),
            Ok(httparse::Status::Partial) if length == MAX_REQUEST => {
                return Ok(Err("431 Request Header Fields Too Large"));
            }
            Ok(httparse::Status::Partial) => {}
            Ok(httparse::Status::Complete(_)) => return Ok(format_of(&request)),
        }
        length += match client.read(&mut bytes[length..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => read,
        };
    }
}

fn format_of(request: &httparse::Request<'_, '_>) -> Result<Format, &'static str> {
    let path = request.path.unwrap_or_default();
    match request.method {
        _ if path.split('?').next() != Some("/metrics") => Err("404 Not Found"),
        Some("GET") => {
            let mut accepts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
            let names = |header: &httparse::Header<'_>| {
                String::from_utf8_lossy(header.value).contains("application/openmetrics-text")
            };
            Ok(if accepts.any(names) { Format::OpenMetrics } else { Format::Prometheus })
        }
        _ => Err("405 Method Not Allowed"),
    }
}

fn lock(last: &Mutex<Last>) -> std::sync::MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Return how long a client that sends `request` is kept, at most 200 ms, and its reply.
    fn send(request: &[u8]) -> (Duration, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let timeout = Duration::from_millis(200);
        thread::spawn(move || accept(&listener, &Last::new(Reader::new(0)), timeout));
        let mut stream = TcpStream::connect(address).unwrap();
        let start = Instant::now();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // The connection is reset if more was sent than the limit.
        _ = stream.read_to_string(&mut answer);
        (start.elapsed(), answer)
    }

    #[test]
    fn clients_that_do_nothing_are_dropped() {
        for part in ["", "GET /metrics HTTP/1.1\r\nHost: x\r\n"] {
            let (kept, answer) = send(part.as_bytes());
            assert!(kept >= Duration::from_millis(200) && answer.is_empty(), "{kept:?}: {answer}");
        }
    }

    #[test]
    fn what_is_no_request_for_metrics_is_refused() {
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}", "x".repeat(MAX_REQUEST));
        for (request, status) in [
            ("GET /metrics?x HTTP/1.0\r\n\r\n", "200"),
            ("GET /metric HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("\0\r\n\r\n", "400"),
            (&long[..MAX_REQUEST], "431"),
        ] {
            let answer = send(request.as_bytes()).1;
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request}: {answer}");
        }
    }
}
