// SPDX-License-Identifier: GPL-2.0-only
//! What docs say is there: links, commands with their flags, make's targets, files, messages.
//!
//! ```text
//! *.md --pages()--> Page: headings, links, code, tables --> each test: the first that is wrong, as FILE:LINE: what
//! ```

use std::collections::BTreeSet;
use std::fs;
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

const MAX_COLUMNS: usize = 128;
/// Of the page that is read first, in a terminal or on a web page.
const README_COLUMNS: usize = 100;
const README_LINES: usize = 150;

#[derive(Default)]
struct Page {
    /// From the top.
    path: PathBuf,
    text: String,
    /// What `#` may lead to.
    anchors: BTreeSet<String>,
    links: Vec<(usize, String)>,
    code: Vec<Code>,
    /// The first row of each is the head.
    tables: Vec<Vec<Row>>,
}

/// A span, or a line of a block.
struct Code {
    line: usize,
    text: String,
    is_span: bool,
}

struct Row {
    line: usize,
    cells: Vec<String>,
}

impl Row {
    /// A cell without its marks.
    fn plain(&self, cell: usize) -> String {
        self.cells[cell].replace(['*', '`'], "")
    }

    /// Code in the first cell.
    fn code(&self) -> impl Iterator<Item = &str> {
        self.cells[0].split('`').skip(1).step_by(2)
    }
}

impl Page {
    fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = fs::read_to_string(top().join(&path)).unwrap();
        let mut page = Page { path, tables: tables(&text), ..Page::default() };
        let (mut heading, mut in_block) = (String::new(), false);
        for (event, at) in Parser::new_ext(&text, Options::ENABLE_TABLES).into_offset_iter() {
            let line = text[..at.start].matches('\n').count() + 1;
            if let Event::Text(words) | Event::Code(words) = &event {
                heading.push_str(words);
            }
            match event {
                Event::Start(Tag::Heading { .. }) => heading.clear(),
                Event::End(TagEnd::Heading(_)) => _ = page.anchors.insert(anchor(&heading)),
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    page.links.push((line, dest_url.to_string()));
                }
                Event::Start(Tag::CodeBlock(kind)) => {
                    in_block = !matches!(&kind, CodeBlockKind::Fenced(language) if !language.is_empty());
                }
                Event::End(TagEnd::CodeBlock) => in_block = false,
                Event::Text(block) if in_block => {
                    let code = |(line, text): (usize, &str)| Code { line, text: text.into(), is_span: false };
                    page.code.extend((line..).zip(block.lines()).map(code));
                }
                Event::Code(span) => page.code.push(Code { line, text: span.to_string(), is_span: true }),
                _ => (),
            }
        }
        Page { text, ..page }
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap()
    }

    /// Rows of the tables whose head has that word in the first or last column.
    fn rows_of(&self, head: &str) -> impl Iterator<Item = &Row> {
        let is_of = move |rows: &&Vec<Row>| rows[0].plain(0) == head || rows[0].plain(rows[0].cells.len() - 1) == head;
        self.tables.iter().filter(is_of).flat_map(|rows| &rows[1..])
    }

    fn at(&self, line: usize) -> String {
        format!("{}:{line}", self.path.display())
    }
}

fn tables(text: &str) -> Vec<Vec<Row>> {
    let lines: Vec<_> = (1..).zip(text.lines()).filter(|(_, line)| line.starts_with('|')).collect();
    let row = |&(line, text): &(usize, &str)| {
        let cells = text.trim().trim_matches('|').split('|').map(|cell| cell.trim().to_string());
        Row { line, cells: cells.collect() }
    };
    let is_rule = |row: &Row| row.cells.iter().all(|cell| cell.starts_with(['-', ':']));
    let tables = lines.chunk_by(|(line, _), (next, _)| line + 1 == *next);
    tables.map(|lines| lines.iter().map(row).filter(|row| !is_rule(row)).collect()).collect()
}

/// As GitHub makes them of headings.
fn anchor(heading: &str) -> String {
    let kept = heading.to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

fn top() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn pages() -> Vec<Page> {
    let files = |folder: &str| fs::read_dir(top().join(folder)).unwrap().map(|file| file.unwrap().path());
    let is_page = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "md");
    let paths = FOLDERS.into_iter().flat_map(files).filter(is_page);
    let pages: Vec<_> = paths.map(|path| Page::read(path.strip_prefix(top()).unwrap())).collect();
    assert!(pages.len() > 30);
    pages
}

/// Without what says what was.
fn present_pages() -> Vec<Page> {
    pages().into_iter().filter(|page| page.folder() != Path::new(HISTORY)).collect()
}

/// All of a file, or of the files in a folder.
fn source(path: &str) -> String {
    let files = walkdir::WalkDir::new(top().join(path)).sort_by_file_name().into_iter().map(Result::unwrap);
    files.filter(|file| file.file_type().is_file()).map(|file| fs::read_to_string(file.path()).unwrap()).collect()
}

/// The commands of a line of shell, and those that another one runs: `vm/run ... -- sh -c 'COMMAND; ...'`.
fn commands(line: &str) -> Vec<Vec<&str>> {
    let line = line.split(" #").next().unwrap_or_default();
    let mut commands = vec![vec![]];
    for word in line.split([' ', '\'', '"']).filter(|word| !word.is_empty()) {
        let command = commands.last_mut().unwrap();
        match word.trim_end_matches(';') {
            "" | "&" | "&&" | "|" | "||" | "--" => commands.push(vec![]),
            "sudo" | "do" | "then" | "!" | "sh" | "-c" if command.is_empty() => (),
            name => command.push(name),
        }
        if word.ends_with(';') {
            commands.push(vec![]);
        }
    }
    commands.retain(|command| !command.is_empty());
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

/// Files and folders that have the flags of our other commands.
fn sources_of(name: &str) -> Vec<&str> {
    match name {
        "vm/run" | "tests/vm/run" | "bench/run" | "tools/setup" => vec![name],
        "make" => vec!["bench/run", "src"],
        "magpie-sim" => vec!["sim/src", "src"],
        _ if name.starts_with("magpie-") => vec!["bench/src"],
        _ => vec![],
    }
}

/// As text, or as the field that clap makes a flag of.
fn has_flag(source: &str, flag: &str) -> bool {
    let field = format!(" {}:", flag[2..].replace('-', "_"));
    flag == "--help" || source.contains(&field) || flags(source).any(|other| other == flag)
}

/// What is wrong with a command line of scx_magpie. Its mere name may lack what it needs.
fn parse(words: &[&str]) -> Result<(), String> {
    let words: Vec<_> = words.iter().copied().filter(|word| !word.contains('>')).collect();
    if words.iter().any(|word| is_placeholder(word)) {
        let (known, text) = (all_flags(&Opts::command()), words.join(" "));
        return flags(&text).find(|flag| !known.contains(*flag)).map_or(Ok(()), |flag| Err(format!("no flag {flag}")));
    }
    if let Err(err) = Opts::command().try_get_matches_from(&words) {
        match err.kind() {
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => (),
            ErrorKind::MissingRequiredArgument if words.len() == 2 => (),
            _ => return Err(keys::first_line(&err)),
        }
    }
    let changes = words.iter().skip(2).filter(|_| words[1] == "set");
    changes
        .filter_map(|word| word.split_once('='))
        .try_for_each(|(key, value)| keys::check(&keys::canonical(key)?, value))
}

/// What is wrong with a command, if it is one of ours.
fn check_command(words: &[&str]) -> Result<(), String> {
    let name = words[0];
    let is_name = |word: &&&str| word.starts_with(|c: char| c.is_ascii_lowercase());
    let mut names = words[1..].iter().take_while(|word| !word.contains('=')).filter(is_name);
    let exists = |file: String| top().join(file).exists();
    let unknown = match name {
        "scx_magpie" => return parse(words),
        "make" => names.find(|target| !source("Makefile").contains(&format!("\n{target}:"))),
        "tests/vm/run" => names.find(|test| !exists(format!("tests/vm/{test}.sh"))),
        "systemctl" => names.find(|unit| unit.starts_with("scx_magpie") && !exists(format!("dist/{unit}.service"))),
        _ => None,
    };
    let text = words[1..].join(" ");
    let sources: String = sources_of(name).into_iter().map(source).collect();
    let unknown =
        unknown.copied().or_else(|| flags(&text).find(|flag| !sources.is_empty() && !has_flag(&sources, flag)));
    unknown.map_or(Ok(()), |unknown| Err(format!("{name} has no {unknown}")))
}

#[test]
fn links_lead_somewhere() {
    let pages = pages();
    let find = |path: &Path| top().join(path).canonicalize().ok();
    for page in &pages {
        for (line, url) in page.links.iter().filter(|(_, url)| !url.starts_with("http")) {
            let (file, anchor) = url.split_once('#').unwrap_or((url, ""));
            let target = if file.is_empty() { find(&page.path) } else { find(&page.folder().join(file)) };
            assert!(target.is_some(), "{}: no file {file}", page.at(*line));
            let to = pages.iter().find(|other| find(&other.path) == target);
            let has_anchor = anchor.is_empty() || to.is_some_and(|to| to.anchors.contains(anchor));
            assert!(has_anchor, "{}: no heading {url}", page.at(*line));
        }
    }
}

#[test]
fn commands_flags_and_files_exist() {
    const ROOTS: [&str; 8] = ["bench/", "dist/", "docs/", "sim/", "src/", "tests/", "tools/", "vm/"];
    let own = all_flags(&Opts::command());
    let mut nr_checked = 0;
    for page in present_pages() {
        for code in &page.code {
            let at = page.at(code.line);
            for command in commands(&code.text) {
                nr_checked += usize::from(command[0] == "scx_magpie");
                assert_eq!(check_command(&command), Ok(()), "{at}: {}", command.join(" "));
            }
            let path = code.text.split_whitespace().next().unwrap_or_default();
            if code.is_span && ROOTS.iter().any(|root| path.starts_with(root)) {
                let is_pattern = path.contains(['*', '<']) || path.split(['/', '.']).any(is_placeholder);
                let is_there = top().join(path).exists() || top().join(page.folder()).join(path).exists();
                assert!(is_pattern || is_there, "{at}: no file {path}");
            }
            // Pages of other folders have flags of other commands.
            if code.is_span && path.starts_with("--") && ["", "docs"].map(Path::new).contains(&page.folder()) {
                flags(&code.text).for_each(|flag| assert!(own.contains(flag), "{at}: no flag {flag}"));
            }
        }
    }
    assert!(nr_checked > 30, "{nr_checked}");
}

#[test]
fn each_key_is_in_the_table_of_flags() {
    let page = Page::read("docs/tuning.md");
    // `--small-llc-boost off`
    let flag = |code: &str| code.split(' ').next().unwrap().to_string();
    let flags: BTreeSet<_> = page.rows_of("flag").flat_map(Row::code).map(flag).collect();
    let keys: BTreeSet<_> = keys::all().into_iter().map(|key| format!("--{key}")).collect();
    assert_eq!(flags, keys);
}

/// Tables whose last column is "figures from" say there where they come from.
#[test]
fn figures_have_a_source() {
    let pages = pages();
    let rows: Vec<_> = pages.iter().flat_map(|page| page.rows_of("figures from").map(move |row| (page, row))).collect();
    assert!(rows.len() > 10);
    for (page, row) in rows {
        let source = row.cells.last().unwrap();
        assert!(source.contains("](") || source == "not measured", "{}: '{source}'", page.at(row.line));
    }
}

/// "..." stands for what differs.
fn pieces(message: &str) -> impl Iterator<Item = &str> {
    message.split("...").map(str::trim).filter(|piece| !piece.is_empty())
}

#[test]
fn messages_are_those_of_the_source() {
    let page = Page::read("docs/troubleshooting.md");
    // A string may go on in the next line.
    let source = source("src").split("\\\n").map(str::trim_start).collect::<String>();
    let messages: Vec<_> =
        page.rows_of("message").flat_map(|row| row.code().map(move |code| (row.line, code))).collect();
    for (line, message) in &messages {
        pieces(message).for_each(|piece| assert!(source.contains(piece), "{}: no message '{piece}'", page.at(*line)));
    }
    let refusals = [
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
        Refusal::StaysDetached { last: "?".into() },
    ];
    for text in refusals.map(|refusal| refusal.to_string()) {
        let is_known = messages.iter().any(|(_, message)| pieces(message).all(|piece| text.contains(piece)));
        assert!(is_known, "{}: nothing about '{text}'", page.at(1));
    }
}

/// A line without the targets of its links, which cannot be broken.
fn without_targets(line: &str) -> String {
    let parts = line.split("](").enumerate();
    parts.map(|(i, part)| if i == 0 { part } else { part.split_once(')').map_or(part, |(_, rest)| rest) }).collect()
}

#[test]
fn lines_are_short() {
    assert!(Page::read("README.md").text.lines().count() <= README_LINES, "README.md: more than {README_LINES} lines");
    for page in present_pages() {
        let max = if page.path == Path::new("README.md") { README_COLUMNS } else { MAX_COLUMNS };
        // Rows of tables and pictures cannot be broken.
        for (nr, line) in (1..).zip(page.text.lines()).filter(|(_, line)| !line.starts_with(['|', '!'])) {
            assert!(without_targets(line).chars().count() <= max, "{}: more than {max} columns", page.at(nr));
        }
    }
}

#[test]
fn packages_have_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(source("dist/PKGBUILD").contains(&format!("\npkgver={version}\n")), "dist/PKGBUILD: not {version}");
    let manifests = source("dist/kubernetes/kustomization.yaml");
    assert!(
        manifests.contains(&format!("    newTag: {version}\n")),
        "dist/kubernetes/kustomization.yaml: not {version}"
    );
    let spec = source("dist/scx_magpie.spec");
    assert!(spec.contains(&format!("\nVersion:        {version}\n")), "dist/scx_magpie.spec: not {version}");
    assert!(source("CHANGELOG.md").contains(&format!("\n## {version}\n")), "CHANGELOG.md: nothing about {version}");
}

#[test]
fn what_is_wrong_is_found() {
    let check = |line: &str| commands(line).iter().try_for_each(|command| check_command(command));
    for good in [
        "sudo scx_magpie set slice-us=5ms handoff-us=0 # a comment",
        "vm/run --cpus 8 -- sh -c 'scx_magpie & hackbench; scx_magpie status'",
        "make bench BENCH_FLAGS='--rounds 1 --flags=--no-scan-limit' KERNEL=7.2",
        "tests/vm/run --kernel 7.2 load features/search",
        "systemctl enable --now scx_magpie",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for bad in [
        "scx_magpie set slice=5ms",
        "vm/run --cpu 8 -- uname",
        "vm/run -- sh -c 'true; scx_magpie stat'",
        "make bench BENCH_FLAGS=--round",
        "tests/vm/run loads",
        "systemctl enable --now scx_magpies",
    ] {
        assert!(check(bad).is_err(), "{bad}");
    }
}
