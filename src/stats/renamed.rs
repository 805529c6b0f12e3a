// SPDX-License-Identifier: GPL-2.0-only
//! Statistics that have new names since 0.1. JSON has the old names, too, until 0.3.

use anyhow::Result;
use serde::Serialize;
use serde_json::{Map, Value};

/// The old and the new name.
const RENAMED: [(&str, &str); 10] = [
    ("home_wake", "preferred_wake"),
    ("home_steal", "preferred_steal"),
    ("home_move", "preferred_move"),
    ("home_held", "preferred_held"),
    ("home_back", "preferred_back"),
    ("at_home", "on_preferred"),
    ("looks", "checks"),
    ("looks_home", "checks_preferred"),
    ("memory_homes", "memory_known"),
    ("homes", "known"),
];

/// Return the name of today.
pub fn new_name(name: &str) -> &str {
    RENAMED.iter().find(|(old, _)| *old == name).map_or(name, |(_, new)| new)
}

/// Convert statistics to JSON with both names.
pub fn with_old_names(statistics: &impl Serialize) -> Result<Value> {
    let mut json = serde_json::to_value(statistics)?;
    copy(&mut json, |(old, new)| (new, old));
    Ok(json)
}

/// Add the new names to JSON of version 0.1.
pub fn add_new_names(json: &mut Value) {
    copy(json, |names| names);
}

/// In each object, add the second of two `names` with the value of the first, if only that is there.
fn copy(json: &mut Value, names: fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    match json {
        Value::Object(object) => {
            object.values_mut().for_each(|value| copy(value, names));
            let copied: Map<_, _> = RENAMED
                .into_iter()
                .map(names)
                .filter(|(_, to)| !object.contains_key(*to))
                .filter_map(|(from, to)| Some((to.to_owned(), object.get(from)?.clone())))
                .collect();
            object.extend(copied);
        }
        Value::Array(values) => values.iter_mut().for_each(|value| copy(value, names)),
        _ => (),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::metrics::flat_meta;
    use crate::stats::{Group, Memory, Metrics, Node};
    use scx_stats::prelude::*;

    #[test]
    fn each_new_name_is_a_statistic() {
        let metas = [flat_meta(), Group::meta(), Node::meta(), Memory::meta()];
        let is_name = |name: &str| metas.iter().any(|meta| meta.fields.contains_key(name));
        for (old, new) in RENAMED {
            assert_eq!((is_name(old), is_name(new), new_name(old), new_name(new)), (false, true, new, new), "{old}");
        }
    }

    #[test]
    fn both_names_are_sent_and_either_is_read() {
        let node = Node { checks: 3, on_preferred: 60.0, ..Node::default() };
        let metrics = Metrics { nodes: [(1, node)].into(), ..Metrics::default() };
        let mut json = with_old_names(&metrics).unwrap();
        assert_eq!((&json["nodes"]["1"]["at_home"], &json["nodes"]["1"]["looks"]), (&60.0.into(), &3.into()));
        assert_eq!(serde_json::from_value::<Metrics>(json.clone()).unwrap(), metrics);
        let old = json["nodes"]["1"].as_object_mut().unwrap();
        old.retain(|name, _| new_name(name) != name || !RENAMED.iter().any(|(_, new)| new == name));
        assert!(!old.contains_key("checks") && old.contains_key("looks"));
        add_new_names(&mut json);
        assert_eq!(serde_json::from_value::<Metrics>(json).unwrap(), metrics);
    }
}
