// SPDX-License-Identifier: GPL-2.0-only
//! Metrics over HTTP, at `/metrics`. The scheduler is asked once a second at most, however many ask here.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use axum::Router;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::get;
use log::{info, warn};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

use super::{Format, Reader, encode};
use crate::stats::Metrics;

/// Younger answers of the scheduler are given again.
const FRESH: Duration = Duration::from_secs(1);

/// The last answer of the scheduler.
struct Last {
    reader: Reader,
    metrics: Option<Metrics>,
    read_at: Option<Instant>,
}

impl Last {
    fn text(&mut self, format: Format) -> Result<String> {
        if self.read_at.is_none_or(|at| at.elapsed() >= FRESH) {
            self.metrics = self.reader.read()?;
            self.read_at = Some(Instant::now());
        }
        encode(self.metrics.as_ref(), format)
    }
}

type Shared = Arc<Mutex<Last>>;

/// Serves until it is killed.
pub fn serve(address: SocketAddr, reader: Reader) -> Result<()> {
    let last: Shared = Arc::new(Mutex::new(Last { reader, metrics: None, read_at: None }));
    // Says at once if there is no scheduler, or none that can be read.
    lock(&last).text(Format::Prometheus)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    runtime.context("cannot start a thread")?.block_on(async {
        let listener = TcpListener::bind(address).await.with_context(|| format!("cannot listen at {address}"))?;
        info!("metrics at http://{}/metrics", listener.local_addr()?);
        axum::serve(listener, router(last)).await.context("cannot serve metrics")
    })
}

fn router(last: Shared) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state(last)
}

/// OpenMetrics for clients that name it, as Prometheus does; else Prometheus' older format.
async fn metrics(State(last): State<Shared>, headers: HeaderMap) -> impl IntoResponse {
    let accepts = headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format =
        if accepts.contains("application/openmetrics-text") { Format::OpenMetrics } else { Format::Prometheus };
    let text = spawn_blocking(move || lock(&last).text(format)).await.map_err(anyhow::Error::from).flatten();
    match text {
        Ok(text) => (StatusCode::OK, [(CONTENT_TYPE, format.content_type())], text),
        Err(err) => {
            warn!("{err:#}");
            let plain = "text/plain; charset=utf-8";
            (StatusCode::INTERNAL_SERVER_ERROR, [(CONTENT_TYPE, plain)], format!("{err:#}\n"))
        }
    }
}

fn lock(last: &Mutex<Last>) -> std::sync::MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}
