// SPDX-License-Identifier: GPL-2.0-only
//! Manual pages and shell completions, generated from the definition of the command line.
//!
//! ```text
//! Opts::command() --pages()--> scx_magpie.8, scx_magpie-SUBCOMMAND.1 ...
//! Settings        --pages()--> scx_magpie.toml.5
//! Opts::command() --completions()--> a script for bash, zsh, fish ...
//! ```

use std::fs;
use std::io;
use std::path::Path;

use anyhow::{Context, Result};
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::SCHEDULER_NAME;
use crate::cli::Opts;
use crate::config::{DEFAULT_FILE, Settings, keys};
use crate::exit;

const MANUAL: &str = "sched_ext schedulers";

/// Files that the daemon reads and creates, each with a description.
const FILES: [(&str, &str); 4] = [
    (DEFAULT_FILE, "The configuration: flags without dashes as keys. Flags of the command line override it."),
    (crate::control::SOCKET, "The socket of set, reload, status and config, for root."),
    (crate::stats::SOCKET, "The socket of statistics, for root: one line of JSON per request, as in scx_stats."),
    ("/run/scx/scx_magpie.failures", "Failures since boot: one line each, with time and reason."),
];

/// Name, title and first paragraph of the page about the configuration file.
const FILE_PAGE: &str = "scx_magpie.toml";
const FILE_ABOUT: &str = "configuration file of scx_magpie";
const FILE_TEXT: &str = "The file is TOML: one key and its value on each line. A key is a flag of scx_magpie(8) without its dashes. \
    Flags of the command line and variables of the environment override the file; the file overrides a profile. \
    scx_magpie-config(1) prints what is in force, and validates the file with --check. scx_magpie-reload(1) reads the file again.";

/// Write all manual pages into `folder`: the command, its subcommands, the configuration file.
pub fn pages(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut command = Opts::command();
    command.build();
    let main = main_sections(&command);
    for subcommand in visible(&command) {
        let see_also = section("SEE ALSO", [roman(format!("{SCHEDULER_NAME}(8)"))]);
        page(folder, subcommand.clone(), "1", &see_also)?;
    }
    page(folder, command, "8", &main)?;
    let file = Command::new(FILE_PAGE).about(FILE_ABOUT).long_about(FILE_TEXT).disable_help_flag(true);
    page(folder, file, "5", &file_sections())
}

/// Return the sections of the page about the configuration file: each key with its default.
fn file_sections() -> Roff {
    let mut roff = section("KEYS", []);
    for flag in Settings::augment_args(Command::new("")).get_arguments() {
        let key = flag.get_long().unwrap_or_default();
        let help = flag.get_long_help().or(flag.get_help()).map(ToString::to_string).unwrap_or_default();
        let default = roman(format!(" = {}", keys::default_of(key)));
        roff.control("TP", []).text([bold(key), default]).text([roman(help.replace("\n\n", " "))]);
    }
    roff.extend([section("SEE ALSO", [roman(format!("{SCHEDULER_NAME}(8)"))])]);
    roff
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
}

/// Return the name of a command's page.
fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or(command.get_name()).replace(' ', "-")
}

/// Return the sections after the options on the main page.
fn main_sections(command: &Command) -> Roff {
    let mut roff = section("COMMANDS", []);
    for subcommand in visible(command) {
        let about = subcommand.get_about().map(ToString::to_string).unwrap_or_default();
        roff.control("TP", []).text([bold(page_name(subcommand)), roman("(1)")]).text([roman(about)]);
    }
    roff.extend([section("VALUES", [roman(exit::VALUES.join(" "))]), section("EXAMPLES", [])]);
    for (command, what) in exit::EXAMPLES {
        roff.control("TP", []).text([bold(command)]).text([roman(what)]);
    }
    roff.extend([section("EXIT STATUS", [])]);
    for (status, meaning) in exit::STATUSES {
        roff.control("TP", []).text([bold(status.to_string())]).text([roman(meaning)]);
    }
    roff.extend([section("BUGS", [roman(exit::BUGS.replace('\n', " "))]), section("FILES", [])]);
    for (file, what) in FILES {
        roff.control("TP", []).text([bold(file)]).text([roman(what)]);
    }
    roff
}

fn section(title: &str, text: impl Into<Vec<Inline>>) -> Roff {
    let mut roff = Roff::new();
    roff.control("SH", [title]).text(text);
    roff
}

fn page(folder: &Path, command: Command, section: &str, more: &Roff) -> Result<()> {
    let name = page_name(&command);
    let path = folder.join(format!("{name}.{section}"));
    let source = format!("{SCHEDULER_NAME} {}", env!("CARGO_PKG_VERSION"));
    let has_options = command.get_arguments().next().is_some();
    let man = Man::new(command).title(&name).section(section).source(source).manual(MANUAL);
    let mut text = Vec::new();
    let mut render = || -> io::Result<()> {
        man.render_title(&mut text)?;
        man.render_name_section(&mut text)?;
        man.render_synopsis_section(&mut text)?;
        man.render_description_section(&mut text)?;
        if has_options {
            man.render_options_section(&mut text)?;
        }
        more.to_writer(&mut text)?;
        fs::write(&path, &text)
    };
    render().with_context(|| format!("cannot write {}", path.display()))
}

/// Print a shell completion script.
pub fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Opts::command(), SCHEDULER_NAME, &mut io::stdout());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_subcommand_has_a_page() {
        let folder = tempfile::tempdir().unwrap();
        pages(folder.path()).unwrap();
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let main = read("scx_magpie.8");
        for text in [
            "slice\\-us",
            "The user is not root",
            ".SH FILES",
            ".SH EXAMPLES",
            ".SH BUGS",
            "scx_magpie\\-export\\fR(1)",
        ] {
            assert!(main.contains(text), "{text}: {main}");
        }
        assert!(read("scx_magpie-export.1").contains("textfile"));
        let file = read("scx_magpie.toml.5");
        assert!(file.contains("slice\\-us") && file.contains("= 3000") && !file.contains("OPTIONS"), "{file}");
        let command = Opts::command();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2 + visible(&command).count());
    }
}
