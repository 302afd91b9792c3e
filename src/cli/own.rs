//! `offld` called by its own name: its commands (`offld inspect FILE`), and every tool as the first
//! argument (`offld ld …`).

use std::ffi::OsString;
use std::io::Write;
use std::sync::Arc;

use anyhow::Result;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use super::{by_word, cache, edits, help, link, manual, merge, reports, size, split};
use offld_system::shell::Shell;
use offld_system::terminal::{self, ColourChoice};
use offload_formats::error::{self, Silent, StepFailed};

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

/// Values of `--color`.
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
            "baseline",
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
            "changed_code",
            "init",
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

/// Defines [`Command`] from one row for each command: its group on the page of `offld --help`, its
/// description, its name, its options, and the function that runs it.
macro_rules! commands {
    ($($group:literal $(#[$about:meta])* $name:literal $variant:ident($options:path) $run:path;)*) => {
        #[derive(Debug, Subcommand)]
        enum Command {
            $($(#[$about])* #[command(name = $name)] $variant($options),)*
        }

        impl Command {
            fn run(self, shell: &Arc<Shell>) -> Result<()> {
                match self {
                    $(Command::$variant(options) => $run(options, shell),)*
                }
            }
        }

        /// Group and name of each command.
        pub(super) const COMMANDS: &[(&str, &str)] = &[$(($group, $name)),*];
    };
}

commands! {
    "Set up"
    /// Create symlinks that are named like LLVM's tools
    "links" Links(link::Links) link::links;
    "Look"
    /// List the device code in files
    "inspect" Inspect(reports::Inspect) reports::inspect;
    "Look"
    /// Show bytes by device, translation unit and kernel
    "size" Size(size::Options) size::run;
    "Look"
    /// Compare the kernels of two builds
    "diff" Diff(reports::Diff) reports::diff;
    "Look"
    /// Check whether a binary has code for a device
    "check" Check(reports::Check) reports::check;
    "Look"
    /// Check files against a policy
    "gate" Gate(reports::Gate) reports::gate;
    "Change"
    /// Remove device images from finished files
    "prune" Prune(edits::Prune) edits::prune;
    "Change"
    /// Split files into a host half and a part per device
    "split" Split(split::Options) split::run;
    "Change"
    /// Restore split files, or merge per-device builds
    "merge" Merge(merge::Options) merge::run;
    "Change"
    /// Replace device images in a file
    "replace" Replace(edits::Replace) edits::replace;
    "Change"
    /// Recompress compressed device images
    "recompress" Recompress(edits::Recompress) edits::recompress;
    "Change"
    /// Remove debug information from device images
    "strip-device" StripDevice(edits::StripDevice) edits::strip_device;
    "Builds"
    /// Show, trim or clear the cache of device links
    "cache" Cache(cache::Options) cache::run;
    "Builds"
    /// Show the slowest steps of a build
    "explain" Explain(reports::Explain) reports::explain;
    "Builds"
    /// Compile ThinLTO translation units for ld.lld
    "thinlto-distributor" ThinltoDistributor(link::ThinltoDistributor) link::thinlto_distributor;
    "Set up"
    /// Report installed and missing requirements of links
    "doctor" Doctor(reports::Doctor) reports::doctor;
    ""
    /// Explain a command, an emulated tool or a topic
    "help" Help(help::Options) help::run;
    "Shells"
    /// Print completions for a shell
    "completions" Completions(help::Completions) help::completions;
    "Shells"
    /// Write manual pages to a directory
    "man" Man(manual::Options) manual::run;
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
            with_status(error)
        }
    })
}

/// Makes an error end the program with status 2. An error with its own status keeps it.
fn with_status(error: anyhow::Error) -> anyhow::Error {
    match error::exit_status(&error) {
        1 => StepFailed::new(error::chain(&error), 2).into(),
        _ => error,
    }
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
            let text = with_best_suggestion(error).render().to_string();
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
    own.command.run(shell)
}

/// Reduces the suggestions for a misspelled command to the most similar one. clap sorts them by
/// similarity and puts the best one last.
fn with_best_suggestion(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.remove(ContextKind::SuggestedSubcommand)
        && let Some(best) = names.into_iter().next_back()
    {
        error.insert(ContextKind::SuggestedSubcommand, ContextValue::String(best));
    }
    error
}

/// The command line of `offld` itself. The help is as wide as the terminal, else 100 characters.
pub(super) fn command() -> clap::Command {
    command_of_width(Some(terminal::width().unwrap_or(100)))
}

/// The command line with help of this width. Manual pages have no width, because their readers wrap
/// lines.
pub(super) fn command_of_width(width: Option<usize>) -> clap::Command {
    let command = Own::command()
        .term_width(width.unwrap_or_default())
        .mut_subcommands(|own| with_headings(own, width));
    let page = help::page(&command);
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
