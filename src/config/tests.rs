// SPDX-License-Identifier: GPL-2.0-only

use super::*;
use crate::bpf_config::{BpfConfig, Possible};
use crate::topology::Layout;
use crate::tunables::{self, Steal};
use clap::{Args, Command, Parser};
use scx_utils::testutils::make_test_topo;
use std::fs;
use tempfile::NamedTempFile;

fn config(file: &str, flags: &[&str]) -> (NamedTempFile, Config) {
    let path = NamedTempFile::new().unwrap();
    fs::write(&path, file).unwrap();
    let command = Settings::augment_args(Command::new("scx_magpie"));
    let matches = command.try_get_matches_from([&["scx_magpie"], flags].concat()).unwrap();
    let config = Config::new(&matches, path.path()).unwrap();
    (path, config)
}

fn get(config: &Config, key: &str) -> (String, String) {
    let (_, setting) = config.values().into_iter().find(|(name, _)| name == key).unwrap();
    let origin = match setting.origin {
        Origin::File { line, .. } => format!("line {line}"),
        origin => origin.to_string(),
    };
    (setting.value, origin)
}

fn is(config: &Config, key: &str, value: &str, origin: &str) {
    assert_eq!(get(config, key), (value.into(), origin.into()), "{key}");
}

fn set(config: &mut Config, change: &str) -> Result<()> {
    config.set(&[change.into()])
}

#[test]
fn the_strongest_place_wins() {
    let (path, mut config) = config("profile = 'latency'\nslice-us = 1000\nhandoff-us = 2\n", &["--handoff-us=3"]);
    is(&config, "slice-us-lag", "18000", "profile latency");
    is(&config, "slice-us", "1000", "line 2");
    is(&config, "handoff-us", "3", "command line");
    is(&config, "steal-tries", "8", "default");
    set(&mut config, "handoff_us=4").unwrap();
    is(&config, "handoff-us", "4", "set");
    assert_eq!(config.settings().unwrap().tunables.handoff_us, 4);

    // A value in the file overrides a profile, wherever the profile is named.
    set(&mut config, "slice-us-lag=1").unwrap();
    set(&mut config, "profile=latency").unwrap();
    is(&config, "slice-us-lag", "1", "set");
    set(&mut config, "profile=default").unwrap();
    config.reset();
    is(&config, "slice-us-lag", "18000", "profile latency");
    is(&config, "profile", "latency", "line 1");
    is(&config, "handoff-us", "3", "command line");

    set(&mut config, "handoff-us=4").unwrap();
    fs::write(&path, "\nslice-us = 5000").unwrap();
    config.reload().unwrap();
    is(&config, "slice-us", "5000", "line 2");
    is(&config, "handoff-us", "3", "command line");
    is(&config, "profile", "default", "default");
}

#[test]
fn what_is_wrong_changes_nothing() {
    let (path, mut config) = config("slice-us = 5000", &[]);
    let before = config.values();
    for (change, message) in [
        ("slice-us=99", "invalid value '99' for '--slice-us <US>': 99 is not in 100..=100000"),
        ("slise-us=500", "unknown key 'slise-us': the nearest one is 'slice-us'"),
        ("steal", "'steal' is not of the form KEY=VALUE"),
        ("stats=1", "unknown key 'stats'"),
    ] {
        let err = config.set(&["handoff-us=1".into(), change.into()]).unwrap_err();
        assert!(err.to_string().starts_with(message), "{err}");
        assert!(matches!(err.downcast_ref(), Some(Refusal::Usage { .. })));
    }
    fs::write(&path, "handoff-us = 1\nslice-us = 1").unwrap();
    set(&mut config, "steal-tries=2").unwrap();
    assert!(config.reload().unwrap_err().to_string().contains(":2: invalid value '1' for '--slice-us <US>'"));
    is(&config, "steal-tries", "2", "set");
    config.reset();
    assert_eq!(config.values(), before);
}

#[derive(Parser)]
struct Flags {
    #[command(flatten)]
    settings: Settings,
}

#[test]
fn changed_flags_are_those_that_differ() {
    let changed = |flags: &[&str]| {
        let flags = Flags::parse_from([&["scx_magpie", "--timeout-ms=30000", "--log-level=info"], flags].concat());
        tunables::changed(&flags.settings).join(" ")
    };
    assert_eq!(changed(&[]), "");
    assert_eq!(changed(&["--slice-us", "3ms"]), "");
    let flags =
        "--profile latency --slice-us 5000 --steal node --wake-affine sync --small-llc-boost off --latency-hist";
    assert_eq!(changed(&flags.split(' ').collect::<Vec<_>>()), flags);
}

#[test]
fn flags_that_are_on_can_be_turned_off() {
    let (_path, mut config) = config("no-scan-limit = true", &["--no-cgroups", "--latency-hist=false"]);
    let settings = config.settings().unwrap();
    assert!(settings.tunables.no_scan_limit && settings.tunables.no_cgroups && !settings.tunables.latency_hist);
    set(&mut config, "no-scan-limit=false").unwrap();
    assert!(!config.settings().unwrap().tunables.no_scan_limit);
}

#[test]
fn what_is_printed_is_a_file_that_says_the_same() {
    let (path, config) = config("steal = 'llc'\nslice-us = '5ms'", &["--no-capacity"]);
    let printed = as_file(&config.values());
    assert!(printed.contains("no-capacity = true ") && printed.contains("  # command line\n"), "{printed}");
    fs::write(&path, &printed).unwrap();
    let mut read = config.clone();
    read.command_line.clear();
    read.reload().unwrap();
    let tunables = read.settings().unwrap().tunables;
    assert_eq!((tunables.steal, tunables.slice_us, tunables.no_capacity), (Steal::Llc, 5000, true));
    assert_eq!(changes(&config, &read), []);
}

/// Return a valid value of the key other than `value`.
fn other_value(key: &str, value: &str) -> String {
    let number = value.parse::<u64>().ok();
    let numbers = number.iter().flat_map(|n| [n + 1, n.saturating_sub(1)]).map(|n| n.to_string());
    let words = ["true", "smp", "on", "powersave", "off", "node", "latency", "debug"].into_iter().map(String::from);
    numbers.chain(words).find(|other| other != value && keys::check(key, other).is_ok()).unwrap()
}

/// Only a key that needs a reload may change a constant of the loaded program, and it has to.
#[test]
fn what_takes_a_new_start_is_what_is_constant() {
    let (topo, _) = make_test_topo(2, 1, 2, 1);
    let mut layout = Layout::new(&topo, 0).unwrap();
    layout.set_capacities(&[(0, 512)].into());
    let constants = |config: &Config| {
        let settings = config.settings().unwrap();
        let bpf_config = BpfConfig::new(&layout, &settings.tunables, Possible { cpus: 4, ids: 4 });
        (format!("{:?}", bpf_config.machine), settings.tunables.timeout_ms, settings.exit_dump_len)
    };
    let (_path, config) = config("", &[]);
    for (key, setting) in config.values() {
        let mut changed = config.clone();
        set(&mut changed, &format!("{key}={}", other_value(&key, &setting.value))).unwrap();
        assert_ne!(changes(&config, &changed), [], "{key}");
        assert_eq!(keys::needs_new_start(&key), constants(&changed) != constants(&config), "{key}");
    }
}

#[test]
fn profiles_are_live_and_good() {
    assert!(!Profile::values("latency").is_empty());
    for (key, value) in Profile::values("latency") {
        assert_eq!(keys::check(key, value), Ok(()));
        assert!(!keys::needs_new_start(key), "{key}");
        assert_ne!(keys::default_of(key), *value, "{key}");
    }
}
