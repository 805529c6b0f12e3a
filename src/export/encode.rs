// SPDX-License-Identifier: GPL-2.0-only
//! Encode statistics in the formats that Prometheus reads.

use std::fmt;

use anyhow::{Context, Result};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, EncodeMetric, NoLabelSet, prometheus_text, text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use super::Host;
use crate::SCHEDULER_NAME;
use crate::stats::Metrics;

/// Number of these units in a second.
pub const NS: f64 = 1e9;
pub const US: f64 = 1e6;
pub const MS: f64 = 1e3;

/// Output format.
#[derive(Clone, Copy, Debug)]
pub enum Format {
    /// Version 0.0.4, which node_exporter reads from files.
    Prometheus,
    OpenMetrics,
}

impl Format {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// Return the metrics as text. None: no scx_magpie is attached.
pub fn encode(host: &Host, metrics: Option<&Metrics>, format: Format) -> Result<String> {
    let mut registry = Registry::with_prefix(SCHEDULER_NAME);
    registry.register_collector(Box::new(Totals(host.clone(), metrics.cloned())));
    let mut out = String::new();
    match format {
        Format::Prometheus => prometheus_text::encode(&mut out, &registry),
        Format::OpenMetrics => text::encode(&mut out, &registry),
    }
    .context("cannot write metrics")?;
    Ok(out)
}

#[derive(Debug)]
struct Totals(Host, Option<Metrics>);

impl Collector for Totals {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        let Self(host, metrics) = self;
        let up = u64::from(metrics.is_some());
        families.gauge("up", "whether scx_magpie is attached", None, &[(vec![], up)])?;
        families.host(host)?;
        let Some(metrics) = metrics else { return Ok(()) };
        let about = vec![("version", metrics.version.clone()), ("kernel", metrics.kernel.clone())];
        let help = "version of the attached scx_magpie, and release of the kernel; always 1";
        families.gauge("build_info", help, None, &[(about, 1u64)])?;
        let uptime = metrics.interval_ms as f64 / MS;
        families.gauge("uptime", "time since scx_magpie was attached", Some(&Unit::Seconds), &[(vec![], uptime)])?;
        families.llcs(metrics)?;
        families.nodes(metrics)?;
        families.memory(metrics)?;
        families.cgroups(metrics)?;
        families.wake_cases(metrics)
    }
}

/// Names of labels, each with its value.
pub type Labels = Vec<(&'static str, String)>;

/// Encoder of metric families.
pub struct Families<'a>(DescriptorEncoder<'a>);

impl Families<'_> {
    /// Write a counter. Nothing if there are no samples.
    pub fn counter<V: EncodeCounterValue + Copy>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: &[(Labels, V)],
    ) -> fmt::Result
    where
        ConstCounter<V>: EncodeMetric,
    {
        self.family(name, help, unit, MetricType::Counter, samples, |value| ConstCounter::new(*value))
    }

    pub fn gauge<V: EncodeGaugeValue + Copy>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        samples: &[(Labels, V)],
    ) -> fmt::Result
    where
        ConstGauge<V>: EncodeMetric,
    {
        self.family(name, help, unit, MetricType::Gauge, samples, |value| ConstGauge::new(*value))
    }

    fn family<V, M: EncodeMetric>(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<&Unit>,
        kind: MetricType,
        samples: &[(Labels, V)],
        metric: impl Fn(&V) -> M,
    ) -> fmt::Result {
        if samples.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, unit, kind)?;
        for (labels, value) in samples {
            metric(value).encode(family.encode_family(labels)?)?;
        }
        Ok(())
    }

    /// Write a histogram. `counts[i]` events took less than 2^(i+1) ns. Their sum is unknown: each
    /// is estimated as the middle of its bucket, which is three quarters of that bound.
    pub fn histogram(&mut self, name: &str, help: &str, samples: &[(Labels, &[u64])]) -> fmt::Result {
        if samples.is_empty() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for (labels, counts) in samples {
            let ends = (1..counts.len()).map(|i| (1u64 << i) as f64 / NS).chain([f64::INFINITY]);
            let buckets: Vec<_> = ends.zip(counts.iter().copied()).collect();
            let middle = |(i, &count): (usize, &u64)| 1.5 * (1u64 << i) as f64 * count as f64 / NS;
            let sum = counts.iter().enumerate().map(middle).sum();
            family.encode_family(labels)?.encode_histogram::<NoLabelSet>(sum, counts.iter().sum(), &buckets, None)?;
        }
        Ok(())
    }
}
