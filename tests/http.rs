// SPDX-License-Identifier: GPL-2.0-only
//! `scx_magpie export --listen`, as a client sees it, whether or not a scheduler is attached here.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

/// Ends it, however the test ends.
struct Exporter {
    process: Child,
    address: String,
}

impl Exporter {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_scx_magpie"));
        let mut process = command.args(["export", "--listen", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(process.stderr.take().unwrap());
        let address = log.lines().map_while(Result::ok).find_map(|line| {
            let (_, rest) = line.split_once("http://")?;
            Some(rest.trim_end_matches("/metrics").to_string())
        });
        Self { process, address: address.expect("it says where it listens") }
    }

    fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    /// Head and body of an answer.
    fn get(&self, path: &str, accept: &str) -> (String, String) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
        let mut answer = String::new();
        self.send(&request).read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_lowercase(), body.into())
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// More clients that do nothing than are served at a time: the next one waits until they are dropped, and is served.
#[test]
fn clients_that_do_nothing_do_not_keep_others_away() {
    let exporter = Exporter::start();
    let idle: Vec<_> = (0..8).map(|_| exporter.send("GET /metrics HTTP/1.1\r\n")).collect();
    let (head, body) = exporter.get("/metrics", "*/*");
    assert!(head.starts_with("http/1.1 200 ") && body.contains("\nscx_magpie_up "), "{head}");
    drop(idle);
}

#[test]
fn clients_get_the_format_that_they_ask_for() {
    let exporter = Exporter::start();
    let (head, body) = exporter.get("/metrics", "application/openmetrics-text;version=1.0.0,*/*;q=0.1");
    assert!(
        head.starts_with("http/1.1 200 ") && head.contains("content-type: application/openmetrics-text;"),
        "{head}"
    );
    assert!(body.contains("\nscx_magpie_up ") && body.ends_with("# EOF\n"), "{body}");
    let (head, body) = exporter.get("/metrics", "*/*");
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert!(body.contains("\nscx_magpie_up ") && !body.contains("# EOF"), "{body}");
    assert!(exporter.get("/", "*/*").0.starts_with("http/1.1 404 "));
}
