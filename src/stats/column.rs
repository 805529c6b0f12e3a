// SPDX-License-Identifier: GPL-2.0-only
//! Figures as columns of a table: heads, units and formats. `--help-stats` has their meaning.

use std::borrow::Cow;
use std::str::FromStr;

use anyhow::Result;
use scx_stats::prelude::*;
use serde::Serialize;
use serde_json::Value;

use super::Group;

/// Format of a figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unit {
    /// Events of an interval, per second.
    PerSecond,
    /// Value at the end of the interval.
    Now,
    Percent,
    Micros,
}

/// A figure of a [`Group`] or of another struct of the statistics.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub head: Cow<'static, str>,
    /// Name in JSON and in the metadata.
    pub field: Cow<'static, str>,
    pub unit: Unit,
}

/// All figures of a struct of the statistics, by name.
pub struct Figures {
    values: Value,
    interval_s: f64,
}

/// Columns of the default table: 80 characters with the names of the rows.
const DEFAULT: [Column; 10] = [
    Column::new("util%", "util", Unit::Percent),
    Column::new("busy%", "busy", Unit::Percent),
    Column::new("waiting", "nr_queued", Unit::Now),
    Column::new("nr_scan", "nr_scan", Unit::Now),
    Column::new("search", "search", Unit::PerSecond),
    Column::new("fast%", "fast_rate", Unit::Percent),
    Column::new("found%", "success_rate", Unit::Percent),
    Column::new("se_eff%", "se_eff", Unit::Percent),
    Column::new("preempt", "preempt", Unit::PerSecond),
    Column::new("stolen", "stolen", Unit::PerSecond),
];

/// Additional columns of the wide table.
const MORE: [Column; 10] = [
    Column::new("cpus", "nr_cpus", Unit::Now),
    Column::new("scanned", "scanned", Unit::PerSecond),
    Column::new("failed", "failed", Unit::PerSecond),
    Column::new("domeff%", "dom_eff", Unit::Percent),
    Column::new("queued", "queued", Unit::PerSecond),
    Column::new("own", "own", Unit::PerSecond),
    Column::new("st_llc", "steal_llc", Unit::PerSecond),
    Column::new("st_node", "steal_node", Unit::PerSecond),
    Column::new("st_far", "steal_far", Unit::PerSecond),
    Column::new("balance", "balance", Unit::PerSecond),
];

impl Column {
    pub const fn new(head: &'static str, field: &'static str, unit: Unit) -> Self {
        Self { head: Cow::Borrowed(head), field: Cow::Borrowed(field), unit }
    }

    pub fn default_set() -> Vec<Self> {
        DEFAULT.to_vec()
    }

    pub fn wide_set() -> Vec<Self> {
        DEFAULT.into_iter().chain(MORE).collect()
    }

    /// Return the figure; if it counts events, per second.
    pub fn value(&self, figures: &Figures) -> f64 {
        let value = figures.get(&self.field);
        if self.unit == Unit::PerSecond { value / figures.interval_s } else { value }
    }

    pub fn text(&self, figures: &Figures) -> String {
        let value = self.value(figures);
        match self.unit {
            Unit::PerSecond | Unit::Now => number(value),
            Unit::Percent => percent(value),
            Unit::Micros if value < 10.0 => format!("{value:.1}"),
            Unit::Micros => number(value),
        }
    }
}

/// Parse a column of a [`Group`]: a head of the tables, or any name of `--help-stats`.
impl FromStr for Column {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let known = Self::wide_set().into_iter().find(|column| column.head == name || column.field == name);
        if let Some(column) = known {
            return Ok(column);
        }
        let unit = match Group::meta().fields.get(name).map(|field| &field.data) {
            Some(StatsData::Datum(StatsKind::Float)) if name.ends_with("_us") => Unit::Micros,
            Some(StatsData::Datum(StatsKind::Float)) => Unit::Percent,
            Some(StatsData::Datum(_)) if name == "max_queued" => Unit::Now,
            Some(StatsData::Datum(_)) => Unit::PerSecond,
            _ => return Err(format!("there is no column '{name}': --help-stats lists their names under [Group]")),
        };
        Ok(Self { head: name.to_owned().into(), field: name.to_owned().into(), unit })
    }
}

impl Figures {
    /// Collect the figures of an interval of this length.
    pub fn new(of: &impl Serialize, interval_ms: u64) -> Self {
        let values = serde_json::to_value(of).unwrap_or_default();
        Self { values, interval_s: seconds(interval_ms) }
    }

    /// Return the value of a field, or 0 if there is no such field.
    fn get(&self, field: &str) -> f64 {
        self.values[field].as_f64().unwrap_or(0.0)
    }
}

/// Convert an interval to seconds. At least a millisecond, because event counts are divided by it.
pub fn seconds(interval_ms: u64) -> f64 {
    interval_ms.max(1) as f64 / 1000.0
}

/// Format a number in at most six characters, if it is below a hundred million.
pub fn number(value: f64) -> String {
    match value {
        ..0.05 => "0".into(),
        ..9.95 if value.fract() != 0.0 => format!("{value:.1}"),
        ..99_999.5 => format!("{value:.0}"),
        ..999_500.0 => format!("{:.0}k", value / 1e3),
        ..99_950_000.0 => format!("{:.1}M", value / 1e6),
        _ => format!("{:.0}M", value / 1e6),
    }
}

/// Format a percentage without the sign.
pub fn percent(value: f64) -> String {
    if value > 0.0 && value < 0.95 { format!("{value:.2}") } else { format!("{value:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_column_is_a_figure() {
        let meta = Group::meta();
        for column in Column::wide_set() {
            assert!(meta.fields.contains_key(&*column.field), "{}", column.field);
            assert_eq!(column.head.parse(), Ok(column.clone()));
            assert!(column.head.len() <= 7, "{}", column.head);
        }
    }

    #[test]
    fn columns_are_found_by_name() {
        let unit = |name: &str| name.parse::<Column>().map(|column| column.unit);
        assert_eq!(unit("se_eff"), Ok(Unit::Percent));
        assert_eq!(unit("on_preferred"), Ok(Unit::Percent));
        assert_eq!(unit("stolen_wait_us"), Ok(Unit::Micros));
        assert_eq!(unit("kick"), Ok(Unit::PerSecond));
        assert_eq!(unit("max_queued"), Ok(Unit::Now));
        assert!(unit("latencies").unwrap_err().contains("--help-stats"));
        assert!(unit("").is_err());
    }

    #[test]
    fn events_are_by_the_second_and_states_are_not() {
        let group = Group { search: 500, nr_scan: 12, stolen_wait_us: 3.25, busy: 0.056, ..Group::default() };
        let figures = Figures::new(&group, 250);
        let text = |name: &str| name.parse::<Column>().unwrap().text(&figures);
        assert_eq!(
            (text("search"), text("nr_scan"), text("stolen_wait_us")),
            ("2000".into(), "12".into(), "3.2".into())
        );
        assert_eq!((text("busy"), text("util")), ("0.06".into(), "0.0".into()));
    }

    #[test]
    fn numbers_stay_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.04, "0"),
            (0.5, "0.5"),
            (9.0, "9"),
            (9.96, "10"),
            (1234.5, "1234"),
            (99_999.4, "99999"),
            (99_999.6, "100k"),
            (999_499.0, "999k"),
            (999_999.0, "1.0M"),
            (12_345_678.0, "12.3M"),
            (123_456_789.0, "123M"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
