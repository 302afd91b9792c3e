//! `offld` called by its own name: its commands (`offld inspect FILE`), and every tool as the first
//! argument (`offld ld …`).

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::{
    by_word, cache, check, doctor, explain, inspect, links, manual, merge, overview, prune,
    recompress, replace, size, split, strip_device, thinlto_distributor,
};
use crate::error::Silent;
use crate::model::printable;
use crate::sys::shell::Shell;
use crate::sys::terminal::{self, ColourChoice};

/// The offload linker: links device code, and inspects, checks and edits binaries.
#[derive(Debug, Parser)]
#[command(
    name = "offld",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Own {
    #[command(subcommand)]
    command: Command,
    /// Use colours
    #[arg(long, global = true, value_enum, value_name = "WHEN", default_value = "auto", help_heading = DISPLAY)]
    color: Color,
}

/// When there are colours, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Color {
    Auto,
    Always,
    Never,
}

const DISPLAY: &str = "Display";

/// The headings in the help of all commands, each with the ids of its options.
const HEADINGS: [(&str, &[&str]); 4] = [
    (
        "Input",
        &[
            "max_unpacked",
            "headers_only",
            "level",
            "images",
            "since",
            "log",
            "diff",
            "devices",
        ],
    ),
    (
        "Selection",
        &[
            "by",
            "top",
            "sort",
            "filter",
            "budget",
            "kernels",
            "summary",
            "keep",
            "drop",
            "only",
            "exclude",
            "allow_empty",
            "allow_unmatched",
            "all",
        ],
    ),
    (
        "Output",
        &[
            "json",
            "markdown",
            "html",
            "save",
            "extract",
            "output",
            "in_place",
            "dir",
            "dry_run",
            "force",
            "new_build_id",
        ],
    ),
    (DISPLAY, &["bytes", "wide", "duplicates", "no_demangle"]),
];

#[derive(Debug, Subcommand)]
enum Command {
    /// Create symlinks named like LLVM's tools in DIR
    #[command(
        after_help = "Examples:\n  offld links ~/offld && clang++ -B ~/offld -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu a.cpp\n  \
        offld links --as-ld ~/offld && g++ -B ~/offld main.o kernels.o"
    )]
    Links {
        /// The directory, created if it is missing
        dir: PathBuf,
        /// Also create `ld`, for drivers such as gcc that only support -B DIR
        #[arg(long)]
        as_ld: bool,
    },
    /// List the device code in files
    #[command(after_help = inspect::AFTER_HELP)]
    Inspect(inspect::Options),
    /// Show bytes by device, translation unit and kernel
    #[command(after_help = size::AFTER_HELP)]
    Size(size::Options),
    /// Check whether a binary has code for a device
    #[command(after_help = check::AFTER_HELP)]
    Check(check::Options),
    /// Remove device images from finished files
    #[command(after_help = prune::AFTER_HELP)]
    Prune(prune::Options),
    /// Split files into a host part and device parts
    #[command(after_help = split::AFTER_HELP)]
    Split(split::Options),
    /// Join split parts, or builds for several devices
    #[command(after_help = merge::AFTER_HELP)]
    Merge(merge::Options),
    /// Replace device images in a file
    #[command(after_help = replace::AFTER_HELP)]
    Replace(replace::Options),
    /// Recompress compressed device images
    #[command(after_help = recompress::AFTER_HELP)]
    Recompress(recompress::Options),
    /// Remove debug information from device images
    #[command(after_help = strip_device::AFTER_HELP)]
    StripDevice(strip_device::Options),
    /// Show, trim or clear the cache of device links
    #[command(after_help = cache::AFTER_HELP)]
    Cache(cache::Options),
    /// Show which steps of a build took the time
    #[command(after_help = explain::AFTER_HELP)]
    Explain(explain::Options),
    /// Compile ThinLTO translation units for ld.lld
    #[command(name = "thinlto-distributor", after_help = thinlto_distributor::AFTER_HELP)]
    ThinltoDistributor(thinlto_distributor::Options),
    /// Report installed and missing parts for links
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::Options),
    /// Explain a command, an emulated tool or a topic
    Help {
        /// A command, with its subcommand if any; a tool; or a topic, which `topics` lists
        #[arg(value_name = "COMMAND|TOOL|TOPIC")]
        words: Vec<OsString>,
    },
    /// Write completions for a shell to stdout
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write manual pages to a directory
    Man {
        /// The directory, created if it is missing
        dir: PathBuf,
    },
}

/// Runs the command or tool that the first argument of `argv` (after the program's name) selects.
pub(super) fn run(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    if let Some(personality) = argv.get(1).and_then(|word| by_word(word)) {
        return (personality.run)(&argv[2..], shell);
    }
    own(argv, shell).map_err(|error| {
        let is_distributor = argv
            .get(1)
            .is_some_and(|word| word == "thinlto-distributor");
        if is_distributor || error.is::<Silent>() {
            error
        } else {
            inspect::with_status(error)
        }
    })
}

/// Runs one of offld's own commands. Several commands answer "no", such as "no device code", with
/// exit status 1, so errors have 2.
fn own(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    let parsed = command()
        .try_get_matches_from(argv)
        .and_then(|matches| Own::from_arg_matches(&matches));
    let own = match parsed {
        Ok(own) => own,
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let typed: Vec<_> = argv
                .iter()
                .skip(1)
                .map(|word| format!("{} ", word.display()))
                .collect();
            anyhow::bail!(
                "missing command: `offld {}--help` lists the commands",
                typed.concat()
            );
        }
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            anyhow::bail!("{}", text.trim_start_matches("error: ").trim_end());
        }
        Err(help) => {
            // A closed pipe is not an error.
            let style = shell.stdout_style();
            let text = if style.colour {
                help.render().ansi().to_string()
            } else {
                help.render().to_string()
            };
            let _ = write!(std::io::stdout(), "{}", style.prose(&text));
            return Ok(());
        }
    };
    shell.choose_colour(match own.color {
        Color::Auto => ColourChoice::Auto,
        Color::Always => ColourChoice::Always,
        Color::Never => ColourChoice::Never,
    });
    match own.command {
        Command::Links { dir, as_ld } => {
            for link in links::make(&dir, as_ld)? {
                let _ = writeln!(std::io::stdout(), "{}", printable(&link.to_string_lossy()));
            }
            Ok(())
        }
        Command::Inspect(options) => inspect::run(options, shell),
        Command::Size(options) => size::run(&options, shell),
        Command::Check(options) => check::run(options, shell),
        Command::Prune(options) => prune::run(&options, shell),
        Command::Split(options) => split::run(&options, shell),
        Command::Merge(options) => merge::run(&options, shell),
        Command::Replace(options) => replace::run(&options, shell),
        Command::Recompress(options) => recompress::run(&options, shell),
        Command::StripDevice(options) => strip_device::run(&options, shell),
        Command::Cache(options) => cache::run(&options, shell),
        Command::Explain(options) => explain::run(&options, shell),
        Command::ThinltoDistributor(options) => thinlto_distributor::run(options, shell),
        Command::Doctor(options) => doctor::run(&options, shell),
        Command::Help { words } => overview::run(&words, command(), shell),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            let words = clap::builder::PossibleValuesParser::new(overview::words());
            let mut completed = command().mut_subcommand("help", |help| {
                help.mut_arg("words", |arg| arg.value_parser(words))
            });
            clap_complete::generate(shell, &mut completed, "offld", &mut text);
            let _ = std::io::stdout().write_all(&text);
            Ok(())
        }
        Command::Man { dir } => manual::write(command_of_width(None), &dir),
    }
}

/// The command line of `offld` itself. The help is as wide as the terminal, else 100 characters.
pub(super) fn command() -> clap::Command {
    command_of_width(Some(terminal::width().unwrap_or(100)))
}

/// The command line with help of this width. Manual pages have no width, because their readers wrap
/// lines.
fn command_of_width(width: Option<usize>) -> clap::Command {
    let command = Own::command()
        .term_width(width.unwrap_or_default())
        .mut_subcommands(|own| with_headings(own, width));
    let page = overview::page(&command);
    command.override_help(page)
}

/// Groups the options of a command and its subcommands under headings. The terminal wraps
/// paragraphs, so their line breaks are removed.
fn with_headings(command: clap::Command, width: Option<usize>) -> clap::Command {
    let heading = |arg: clap::Arg| {
        let found = HEADINGS
            .iter()
            .find(|(_, options)| options.contains(&arg.get_id().as_str()));
        match found.filter(|_| !arg.is_positional()) {
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
    };
    let paragraph = |text: &str| {
        if text.contains("\n  ") {
            text.to_owned()
        } else {
            text.replace('\n', " ")
        }
    };
    let after = command.get_after_help().map(ToString::to_string);
    let after = after.map(|text| {
        text.split("\n\n")
            .map(paragraph)
            .collect::<Vec<_>>()
            .join("\n\n")
    });
    let after = terminal::wrapped_prose(&after.unwrap_or_default(), width);
    command
        .mut_args(heading)
        .mut_subcommands(|own| with_headings(own, width))
        .after_help(after)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }

    /// Shell completion must not offer file names for devices and patterns.
    #[test]
    fn devices_and_patterns_are_not_completed_to_files() {
        let command = super::command();
        for (name, long) in [
            ("check", "for"),
            ("check", "only"),
            ("prune", "keep"),
            ("prune", "drop"),
            ("size", "exclude"),
        ] {
            let own = command.find_subcommand(name).unwrap();
            let arg = own
                .get_arguments()
                .find(|arg| arg.get_long() == Some(long))
                .unwrap();
            assert_eq!(
                arg.get_value_hint(),
                clap::ValueHint::Other,
                "{name} --{long}"
            );
        }
    }
}
