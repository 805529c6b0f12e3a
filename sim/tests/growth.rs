// SPDX-License-Identifier: GPL-2.0-only
//! A wakeup and a dispatch() in an LLC of 1024 CPUs cost about what they cost in one of 8: `magpie-sim growth`, with
//! fewer samples.

use magpie_sim::growth::{Growth, Row, State, Table, measure};

/// What still reads a word a line of the LLC's bitmap, with 16 CPUs a line, and why.
const BY_THE_WORD: [(&str, State, &str); 4] = [
    ("wakeup", State::Half, "most cores have a busy CPU, and whole idle ones are looked for until there is one"),
    ("wakeup", State::Overloaded, "map_any() reads all of idle_map in vain, for the waker and for the kick"),
    ("dispatch", State::Idle, "a CPU about to go idle looks through all of overload_map, twice"),
    ("dispatch", State::Half, "as when idle"),
];

/// Instructions for a line at most, where growth is by the word. Looking at its CPUs one by one takes ten times that.
const MAX_PER_LINE: f64 = 60.0;

fn check(what: &str, state: State, growth: &Growth) {
    match BY_THE_WORD.iter().find(|known| (known.0, known.1) == (what, state)) {
        Some((.., why)) => {
            let per_line = growth.per_line();
            println!("{what}, {}: {per_line:.0} instructions a line, not logarithmic yet: {why}", state.name());
            assert!(per_line < MAX_PER_LINE, "{what}, {}: {per_line} instructions a line", state.name());
        }
        None => assert!(growth.is_logarithmic(), "{what}, {}: worse than logarithmic: {growth:?}", state.name()),
    }
}

#[test]
fn no_worse_than_logarithmic_or_by_the_word() {
    let rows = measure(&[], 20, 1).unwrap();
    println!("{}", Table(&rows));
    for Row { state, wakeup, dispatch } in &rows {
        check("wakeup", *state, wakeup);
        check("dispatch", *state, dispatch);
    }
}
