// SPDX-License-Identifier: GPL-2.0-only
//! The configuration file: TOML with one `flag = value` per line.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fs, io};

use anyhow::{Context, Result, anyhow, bail};
use toml::{Spanned, Value};

use super::{Layer, Origin, Setting, keys};

/// The file that is read if it exists.
pub const DEFAULT: &str = "/etc/scx_magpie.toml";

/// Parse the file. Fails with the wrong line. Only the default file may be missing.
pub fn read(path: &Path) -> Result<Layer> {
    match fs::read_to_string(path) {
        Ok(text) => parse(&text, path),
        Err(err) if err.kind() == io::ErrorKind::NotFound && path == Path::new(DEFAULT) => Ok(Layer::new()),
        Err(err) => Err(err).with_context(|| format!("cannot read {}", path.display())),
    }
}

fn parse(text: &str, path: &Path) -> Result<Layer> {
    let at = |offset: usize| Origin::File { path: path.into(), line: line_of(text, offset) };
    let table: BTreeMap<Spanned<String>, Spanned<Value>> = toml::from_str(text).map_err(|err| {
        anyhow!("{}: {}", at(err.span().unwrap_or_default().start), err.message().replace('\n', ", "))
    })?;
    let mut layer = Layer::new();
    for (name, value) in table {
        let origin = at(name.span().start);
        let setting = setting(name.get_ref(), value.into_inner()).map_err(|err| anyhow!("{origin}: {err}"))?;
        if layer.insert(setting.0.clone(), Setting { value: setting.1, origin: origin.clone() }).is_some() {
            bail!("{origin}: key '{}' occurs twice", setting.0);
        }
    }
    Ok(layer)
}

/// Return the checked key and value.
fn setting(name: &str, value: Value) -> Result<(String, String), String> {
    let key = keys::canonical(name)?;
    let text = match value {
        Value::String(text) => text,
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) => value.to_string(),
        Value::Array(values) => words(&values).ok_or_else(|| format!("'{key}' takes a list of words"))?,
        Value::Table(_) | Value::Datetime(_) => {
            return Err(format!("'{key}' takes a value, not a {}", value.type_str()));
        }
    };
    keys::check(&key, &text)?;
    Ok((key, text))
}

fn words(values: &[Value]) -> Option<String> {
    values.iter().map(Value::as_str).collect::<Option<Vec<_>>>().map(|words| words.join(","))
}

fn line_of(text: &str, offset: usize) -> usize {
    text[..offset.min(text.len())].matches('\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text, Path::new("f.toml")).unwrap_err().to_string()
    }

    #[test]
    fn keys_are_flags() {
        let text =
            "# a comment\nslice-us = 5000\nslice_us_lag = '9ms'\nno-cgroups = true\nwake-affine = ['idle', 'sync']\n";
        let layer = parse(text, Path::new("f.toml")).unwrap();
        let has = |key: &str, value: &str, line| {
            let origin = Origin::File { path: "f.toml".into(), line };
            assert_eq!(layer.get(key), Some(&Setting { value: value.into(), origin }));
        };
        has("slice-us", "5000", 2);
        has("slice-us-lag", "9ms", 3);
        has("no-cgroups", "true", 4);
        has("wake-affine", "idle,sync", 5);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, message) in [
            ("\nslice-u = 5", "f.toml:2: unknown key 'slice-u': the nearest one is 'slice-us'"),
            ("stats = 1", "f.toml:1: unknown key 'stats'"),
            ("slice-us = 5", "f.toml:1: invalid value '5' for '--slice-us <US>': 5 is not in 100..=100000"),
            ("\n\nno-cgroups = 3", "f.toml:3: invalid value '3' for '--no-cgroups[=<BOOL>]'"),
            ("slice-us = 200\nslice_us = 300", "f.toml:2: key 'slice-us' occurs twice"),
            ("slice-us = 200\nslice-us = 300", "f.toml:2: "),
            ("slice-us = 200\nsteal = \"all", "f.toml:2: "),
            ("[tunables]\nslice-us = 200", "f.toml:1: unknown key 'tunables'"),
            ("steal = { a = 1 }", "f.toml:1: 'steal' takes a value, not a table"),
        ] {
            assert!(error(text).starts_with(message) && !error(text).contains('\n'), "{text}: {}", error(text));
        }
    }

    #[test]
    fn only_the_default_file_may_be_absent() {
        assert!(read(Path::new("/nowhere/magpie.toml")).unwrap_err().to_string().contains("/nowhere/magpie.toml"));
    }
}
