// SPDX-License-Identifier: GPL-2.0-only
//! What docs say is there: links, commands with their flags, make's targets, files, messages. And docs are short.
//!
//! ```text
//! *.md --pages()--> Page: headings, links, code, tables --> each test: what is wrong, as FILE:LINE: what
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::error::ErrorKind;
use clap::{Command, CommandFactory};
use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use scx_magpie::cli::Opts;
use scx_magpie::config::keys;
use scx_magpie::exit::Refusal;

/// Where pages are.
const FOLDERS: [&str; 6] = ["", "docs", "docs/experiments", "bench", "sim", "vm"];
/// Says what was: of its commands and files some are gone.
const HISTORY: &str = "docs/experiments";
const TUNING: &str = "docs/tuning.md";
const TROUBLESHOOTING: &str = "docs/troubleshooting.md";

const MAX_COLUMNS: usize = 128;
const MAX_LINES: [(&str, usize); 2] = [("README.md", 150), ("docs/benchmarks.md", 150)];

/// Other commands of ours, and the files and folders that have their flags.
const TOOLS: [(&str, &[&str]); 10] = [
    ("vm/run", &["vm/run"]),
    ("tests/vm/run", &["tests/vm/run"]),
    ("bench/run", &["bench/run"]),
    ("tools/setup", &["tools/setup"]),
    ("magpie-sim", &["sim/src", "src/cli.rs"]),
    ("magpie-wakeup", &["bench/src/wakeup"]),
    ("magpie-numa", &["bench/src/numa.rs"]),
    ("magpie-callbacks", &["bench/src/callbacks.rs"]),
    ("magpie-conservation", &["bench/src/conservation"]),
    ("magpie-table", &["bench/src/table.rs"]),
];

/// The flags of a page that has no command before them, by the page's folder.
const FOLDER_FLAGS: [(&str, &[&str]); 3] =
    [("vm", &["vm/run"]), ("bench", &["bench", "src/cli.rs"]), ("sim", &["sim/src", "src/cli.rs"])];

#[derive(Default)]
struct Page {
    /// From the top.
    path: PathBuf,
    text: String,
    /// What `#` may lead to.
    anchors: BTreeSet<String>,
    links: Vec<(usize, String)>,
    code: Vec<Code>,
    tables: Vec<Table>,
}

/// A span, or a line of a block.
struct Code {
    line: usize,
    text: String,
    is_span: bool,
}

#[derive(Default)]
struct Table {
    /// The first one is the head.
    rows: Vec<Vec<Cell>>,
}

#[derive(Default)]
struct Cell {
    line: usize,
    text: String,
    has_link: bool,
    code: Vec<String>,
}

impl Page {
    fn read(path: PathBuf) -> Self {
        let text = fs::read_to_string(top().join(&path)).unwrap();
        let mut page = Page { path, text, ..Page::default() };
        let text = page.text.clone();
        let line = |at: &Range<usize>| text[..at.start].matches('\n').count() + 1;
        let (mut heading, mut in_block) = (None::<String>, false);
        for (event, at) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            let words = match &event {
                Event::Text(words) | Event::Code(words) => words.as_ref(),
                _ => "",
            };
            if let Some(heading) = &mut heading {
                heading.push_str(words);
            }
            let cell = page.tables.last_mut().and_then(|table| table.rows.last_mut()?.last_mut());
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::End(TagEnd::Heading(_)) => page.add_anchor(&heading.take().unwrap_or_default()),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line(&at), dest_url.to_string()));
                    if let Some(cell) = cell {
                        cell.has_link = true;
                    }
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    in_block = !matches!(&kind, CodeBlockKind::Fenced(language) if !language.is_empty());
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Text(block) if in_block => {
                    let lines = block.lines().enumerate();
                    page.code.extend(lines.map(|(nr, text)| Code {
                        line: line(&at) + nr,
                        text: text.into(),
                        is_span: false,
                    }));
                }
                Event::Code(span) => {
                    if let Some(cell) = cell {
                        cell.text.push_str(&span);
                        cell.code.push(span.to_string());
                    }
                    page.code.push(Code { line: line(&at), text: span.to_string(), is_span: true });
                }
                Event::Text(words) => {
                    if let Some(cell) = cell {
                        cell.text.push_str(&words);
                    }
                }
                Event::Start(Tag::Table(_)) => page.tables.push(Table::default()),
                Event::Start(Tag::TableHead | Tag::TableRow) => page.tables.last_mut().unwrap().rows.push(vec![]),
                Event::Start(Tag::TableCell) => {
                    let row = page.tables.last_mut().unwrap().rows.last_mut().unwrap();
                    row.push(Cell { line: line(&at), ..Cell::default() });
                }
                // What comes now is not of its last cell.
                Event::End(TagEnd::Table) => page.tables.last_mut().unwrap().rows.push(vec![]),
                _ => (),
            }
        }
        page.tables.iter_mut().for_each(|table| drop(table.rows.pop()));
        page
    }

    /// As GitHub makes them of headings.
    fn add_anchor(&mut self, heading: &str) {
        let kept =
            heading.to_lowercase().chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).collect::<String>();
        let anchor = kept.replace(' ', "-");
        let mut unique = anchor.clone();
        for nr in 1.. {
            if self.anchors.insert(unique) {
                break;
            }
            unique = format!("{anchor}-{nr}");
        }
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap()
    }

    fn is_history(&self) -> bool {
        self.folder() == Path::new(HISTORY)
    }

    fn at(&self, line: usize, what: impl std::fmt::Display) -> String {
        format!("{}:{line}: {what}", self.path.display())
    }
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<Page> {
    let mut paths = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(top().join(folder)).unwrap() {
            let path = Path::new(folder).join(entry.unwrap().file_name());
            if path.extension().is_some_and(|extension| extension == "md") {
                paths.push(path);
            }
        }
    }
    paths.sort();
    assert!(paths.len() > 30, "{paths:?}");
    paths.into_iter().map(Page::read).collect()
}

/// All of a file, or of the files in a folder.
fn source(path: &str) -> String {
    let files = walkdir::WalkDir::new(top().join(path)).sort_by_file_name().into_iter().map(Result::unwrap);
    files.filter(|file| file.file_type().is_file()).map(|file| fs::read_to_string(file.path()).unwrap()).collect()
}

fn assert_none(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

/// The commands of a line of shell; none if it is something else.
fn commands(line: &str) -> Vec<Vec<String>> {
    let Some(words) = shlex::split(line) else { return vec![] };
    let mut commands = vec![vec![]];
    for word in words {
        if ["&", "&&", "|", "||", ";"].contains(&word.as_str()) {
            commands.push(vec![]);
            continue;
        }
        let ends = word.ends_with(';');
        let word = word.trim_end_matches(';').to_string();
        if commands.last().is_some_and(Vec::is_empty) && ["sudo", "do", "then", "!"].contains(&word.as_str()) {
            continue;
        }
        commands.last_mut().unwrap().push(word);
        if ends {
            commands.push(vec![]);
        }
    }
    commands.retain(|command| !command.is_empty());
    // What another command runs: `vm/run ... -- COMMAND`, `sh -c 'COMMAND; ...'`.
    let inner: Vec<_> = commands
        .iter_mut()
        .flat_map(|command| {
            let shell =
                |words: &[String]| (words.len() == 3 && words[..2] == ["sh", "-c"]).then(|| self::commands(&words[2]));
            match command.iter().position(|word| word == "--") {
                Some(at) => {
                    let run = command.split_off(at)[1..].to_vec();
                    shell(&run).unwrap_or_else(|| vec![run])
                }
                None => shell(command).unwrap_or_default(),
            }
        })
        .collect();
    commands.extend(inner.into_iter().filter(|command| !command.is_empty()));
    commands
}

/// FILE, KEY=VALUE..., 'US'
fn is_placeholder(word: &str) -> bool {
    let name = word.split('=').next_back().unwrap_or_default().trim_end_matches('.');
    name.len() > 1 && name.chars().all(|c| c.is_ascii_uppercase())
}

fn flags(words: &str) -> impl Iterator<Item = &str> {
    words.split(|c: char| c.is_whitespace() || "\"'()[]=,".contains(c)).filter(|word| {
        let name = word.strip_prefix("--").unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_lowercase())
    })
}

fn all_flags(command: &Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(|arg| arg.get_long()).map(|name| format!("--{name}"));
    own.chain(command.get_subcommands().flat_map(all_flags)).chain(["--help".into()]).collect()
}

/// As text, or as the field that clap makes a flag of.
fn has_flag(sources: &[&str], flag: &str) -> bool {
    let field = format!(" {}:", flag[2..].replace('-', "_"));
    let goes_on = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let has = |text: String| {
        text.contains(&field) || text.match_indices(flag).any(|(at, _)| !text[at + flag.len()..].starts_with(goes_on))
    };
    flag == "--help" || sources.iter().any(|path| has(source(path)))
}

/// What is wrong with a command line of scx_magpie. Its mere name may lack what it needs.
fn parse(words: &[String]) -> Result<(), String> {
    let words: Vec<_> = words.iter().filter(|word| !word.contains('>')).collect();
    let known = all_flags(&Opts::command());
    if words.iter().any(|word| is_placeholder(word)) {
        let text = words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(" ");
        return flags(&text).find(|flag| !known.contains(*flag)).map_or(Ok(()), |flag| Err(format!("no flag {flag}")));
    }
    if let Err(err) = Opts::command().try_get_matches_from(&words) {
        match err.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (),
            ErrorKind::MissingRequiredArgument if words.len() == 2 => (),
            _ => return Err(keys::first_line(&err)),
        }
    }
    if words.get(1).is_some_and(|word| *word == "set") {
        for (key, value) in words[2..].iter().filter_map(|word| word.split_once('=')) {
            keys::check(&keys::canonical(key)?, value)?;
        }
    }
    Ok(())
}

fn make_targets() -> BTreeSet<String> {
    let text = source("Makefile");
    let names = text.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    names.filter(|name| !name.contains(char::is_whitespace)).map(str::to_string).collect()
}

/// What is wrong with a command, if it is one of ours.
fn check_command(words: &[String]) -> Result<(), String> {
    let own = all_flags(&Opts::command());
    match words[0].as_str() {
        "scx_magpie" => parse(words),
        "make" => words[1..].iter().try_for_each(|word| match word.split_once('=') {
            Some(("BENCH_FLAGS", value)) => {
                match flags(value).find(|flag| !own.contains(*flag) && !has_flag(&["bench/run"], flag)) {
                    Some(flag) => Err(format!("bench/run has no {flag}")),
                    None => Ok(()),
                }
            }
            Some(_) => Ok(()),
            None if is_placeholder(word) || make_targets().contains(word) => Ok(()),
            None => Err(format!("no target {word}")),
        }),
        "systemctl" => {
            let units = words.iter().filter(|word| word.starts_with("scx_magpie"));
            let file = |unit: &str| format!("dist/{}.service", unit.trim_end_matches(".service"));
            units
                .map(|unit| file(unit))
                .find(|file| !top().join(file).exists())
                .map_or(Ok(()), |file| Err(format!("no {file}")))
        }
        name => {
            let Some((_, sources)) = TOOLS.iter().find(|(tool, _)| *tool == name) else { return Ok(()) };
            let text = words[1..].join(" ");
            if let Some(flag) = flags(&text).find(|flag| !has_flag(sources, flag)) {
                return Err(format!("{name} has no {flag}"));
            }
            let is_test = |word: &&String| name == "tests/vm/run" && word.starts_with(|c: char| c.is_ascii_lowercase());
            let test =
                words[1..].iter().filter(is_test).find(|test| !top().join(format!("tests/vm/{test}.sh")).exists());
            test.map_or(Ok(()), |test| Err(format!("no test {test}")))
        }
    }
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let mut problems = Vec::new();
    for page in &pages {
        for (line, url) in page.links.iter().filter(|(_, url)| !url.starts_with("http")) {
            let (file, anchor) = url.split_once('#').unwrap_or((url, ""));
            let target = if file.is_empty() { top().join(&page.path) } else { top().join(page.folder()).join(file) };
            let Ok(target) = target.canonicalize() else {
                problems.push(page.at(*line, format!("no file {file}")));
                continue;
            };
            let has_anchor = |other: &&Page| target == top().join(&other.path).canonicalize().unwrap();
            if !anchor.is_empty() && !pages.iter().find(has_anchor).is_some_and(|other| other.anchors.contains(anchor))
            {
                problems.push(page.at(*line, format!("no heading {url}")));
            }
        }
    }
    assert_none(&problems);
}

#[test]
fn commands_exist_with_their_flags() {
    let mut problems = Vec::new();
    let mut nr_checked = 0;
    for page in pages().iter().filter(|page| !page.is_history()) {
        for code in &page.code {
            for command in commands(&code.text) {
                nr_checked += usize::from(command[0] == "scx_magpie");
                if let Err(err) = check_command(&command) {
                    problems.push(page.at(code.line, format!("{}: {err}", command.join(" "))));
                }
            }
        }
    }
    assert_none(&problems);
    assert!(nr_checked > 30, "{nr_checked}");
}

#[test]
fn flags_alone_exist() {
    let own = all_flags(&Opts::command());
    let mut problems = Vec::new();
    for page in pages().iter().filter(|page| !page.is_history()) {
        let others = FOLDER_FLAGS.iter().find(|(folder, _)| page.folder() == Path::new(folder));
        for code in page.code.iter().filter(|code| code.is_span && code.text.starts_with("--")) {
            let exists = |flag: &str| match others {
                Some((_, sources)) => has_flag(sources, flag),
                None => own.contains(flag),
            };
            problems.extend(
                flags(&code.text)
                    .filter(|flag| !exists(flag))
                    .map(|flag| page.at(code.line, format!("no flag {flag}"))),
            );
        }
    }
    assert_none(&problems);
}

#[test]
fn each_key_is_in_the_table_of_flags() {
    let page = Page::read(TUNING.into());
    let is_of_flags = |table: &&Table| table.rows[0][0].text == "flag";
    let rows = page.tables.iter().filter(is_of_flags).flat_map(|table| &table.rows[1..]);
    // `--small-llc-boost off`
    let flag = |code: &String| code.split(' ').next().unwrap().to_string();
    let flags: BTreeSet<_> = rows.flat_map(|row| &row[0].code).map(flag).collect();
    let keys: BTreeSet<_> = keys::all().into_iter().map(|key| format!("--{key}")).collect();
    assert_eq!(flags, keys);
}

#[test]
fn files_exist() {
    const ROOTS: [&str; 8] = ["bench/", "dist/", "docs/", "sim/", "src/", "tests/", "tools/", "vm/"];
    let mut problems = Vec::new();
    for page in pages().iter().filter(|page| !page.is_history()) {
        for code in page.code.iter().filter(|code| code.is_span && ROOTS.iter().any(|root| code.text.starts_with(root)))
        {
            let path = code.text.split_whitespace().next().unwrap();
            let is_pattern = path.contains(['*', '<']) || path.split(['/', '.']).any(is_placeholder);
            if !is_pattern && !top().join(path).exists() && !top().join(page.folder()).join(path).exists() {
                problems.push(page.at(code.line, format!("no file {path}")));
            }
        }
    }
    assert_none(&problems);
}

/// Tables whose last column is "figures from" say there where they come from.
#[test]
fn figures_have_a_source() {
    let mut nr_checked = 0;
    let mut problems = Vec::new();
    for page in &pages() {
        let has_figures = |table: &&Table| table.rows[0].last().is_some_and(|head| head.text == "figures from");
        for row in page.tables.iter().filter(has_figures).flat_map(|table| &table.rows[1..]) {
            let cell = row.last().unwrap();
            nr_checked += 1;
            if !cell.has_link && cell.text != "not measured" {
                problems.push(page.at(cell.line, "neither a link to figures nor 'not measured'"));
            }
        }
    }
    assert_none(&problems);
    assert!(nr_checked > 10, "{nr_checked}");
}

/// The figures of a row of docs/benchmarks.md, those of scx_magpie first: ratios to EEVDF's, without their intervals.
fn ratios<'a>(table: &'a Table, row: &str) -> Option<Vec<&'a str>> {
    let cells = table.rows.iter().find(|cells| cells[0].text == row)?;
    Some(cells[2..].iter().map(|cell| cell.text.split(' ').next().unwrap_or_default()).collect())
}

#[test]
fn figures_of_the_readme_are_those_of_the_table() {
    let pages = pages();
    let table_of = |path: &str, column: &str| {
        let page = pages.iter().find(|page| page.path == Path::new(path)).unwrap();
        page.tables.iter().find(|table| table.rows[0][1].text == column).unwrap()
    };
    let table = table_of("docs/benchmarks.md", "EEVDF");
    let mut problems = Vec::new();
    let rows = &table_of("README.md", "row").rows[1..];
    for row in rows {
        let [_, name, ours, others] = &row[..] else { panic!("README.md:{}: four columns", row[0].line) };
        let Some(ratios) = ratios(table, &name.text) else {
            problems.push(format!("README.md:{}: no row {}", name.line, name.text));
            continue;
        };
        let by_value = |a: &&&str, b: &&&str| a.parse::<f64>().unwrap().total_cmp(&b.parse().unwrap());
        let [least, most] =
            [ratios[1..].iter().min_by(by_value).unwrap(), ratios[1..].iter().max_by(by_value).unwrap()];
        let expected = (ratios[0].to_string(), format!("{least} to {most}"));
        if (&ours.text, &others.text) != (&expected.0, &expected.1) {
            problems.push(format!("README.md:{}: {}: not {expected:?}", name.line, name.text));
        }
    }
    assert_none(&problems);
    assert!(rows.len() > 10);
}

/// "..." stands for what differs.
fn pieces(message: &str) -> impl Iterator<Item = &str> {
    message.split("...").map(str::trim).filter(|piece| !piece.is_empty())
}

#[test]
fn messages_are_those_of_the_source() {
    let page = Page::read(TROUBLESHOOTING.into());
    // A string may go on in the next line.
    let source = source("src").split("\\\n").map(str::trim_start).collect::<String>();
    let mut messages = Vec::new();
    let mut problems = Vec::new();
    for row in page.tables.iter().filter(|table| table.rows[0][0].text == "message").flat_map(|table| &table.rows[1..])
    {
        for message in &row[0].code {
            let unknown = pieces(message).find(|piece| !source.contains(piece));
            problems.extend(unknown.map(|piece| page.at(row[0].line, format!("no message has '{piece}'"))));
            messages.push(message.clone());
        }
    }
    for refusal in refusals() {
        let text = refusal.to_string();
        if !messages.iter().any(|message| pieces(message).all(|piece| text.contains(piece))) {
            problems.push(format!("{TROUBLESHOOTING}: nothing about '{text}'"));
        }
    }
    assert_none(&problems);
}

fn refusals() -> Vec<Refusal> {
    vec![
        Refusal::NotRoot,
        Refusal::RootOfNamespace,
        Refusal::RootWithout { capabilities: "?".into() },
        Refusal::NoSchedExt { release: "?".into() },
        Refusal::Busy { ops: "?".into() },
        Refusal::MalformedBtf { release: "?".into(), kfuncs: 1 },
        Refusal::Topology { problem: "?".into() },
        Refusal::TooLarge { problem: "?".into() },
        Refusal::IsolatedCpus { cpus: "?".into() },
        Refusal::FewFiles { limit: 1 },
        Refusal::LockedDown,
        Refusal::NotRunning { state: "?".into() },
        Refusal::FailsAgain,
    ]
}

#[test]
fn pages_and_lines_are_short() {
    let mut problems = Vec::new();
    for page in pages().iter().filter(|page| !page.is_history()) {
        // Rows of tables cannot be broken.
        let lines = page.text.lines().enumerate().filter(|(_, line)| !line.starts_with('|'));
        let long = lines.filter(|(_, line)| line.chars().count() > MAX_COLUMNS);
        problems.extend(long.map(|(nr, _)| page.at(nr + 1, format!("more than {MAX_COLUMNS} columns"))));
        let limit = MAX_LINES.iter().find(|(path, _)| page.path == Path::new(path));
        if let Some((_, max)) = limit.filter(|(_, max)| page.text.lines().count() > *max) {
            problems.push(page.at(*max, format!("more than {max} lines")));
        }
    }
    assert_none(&problems);
}

#[test]
fn what_is_wrong_is_found() {
    let check = |line: &str| commands(line).iter().try_for_each(|command| check_command(command));
    for good in [
        "scx_magpie --slice-us 5ms # a comment",
        "sudo scx_magpie set slice-us=5ms handoff-us=0",
        "scx_magpie --slice-us US",
        "vm/run --cpus 8 -- sh -c 'scx_magpie & hackbench; scx_magpie status'",
        "make bench BENCH_FLAGS='--rounds 1 --flags=--no-scan-limit' KERNEL=7.2",
        "tests/vm/run --kernel 7.2 load features/search",
        "systemctl enable --now scx_magpie",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for bad in [
        "scx_magpie --slice-us 5h",
        "scx_magpie set slice-us=1",
        "scx_magpie set slice=5ms",
        "scx_magpie --slices US",
        "scx_magpie stat",
        "vm/run --cpu 8 -- uname",
        "vm/run -- sh -c 'true; scx_magpie stat'",
        "make benches",
        "make bench BENCH_FLAGS=--round",
        "tests/vm/run loads",
        "systemctl enable --now scx_magpies",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
