//! `offld` called by its own name: its own commands (`offld inspect FILE`), and every personality as a first word (`offld ld …`).

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use super::{
    by_word, cache, check, doctor, explain, front, inspect, links, manual, merge, prune, recompress, replace, size, split,
    strip_device, thinlto_distributor,
};
use crate::model::printable;
use crate::sys::shell::Shell;

/// The offload linker: links the device code in host objects, and registers it.
#[derive(Debug, Parser)]
#[command(name = "offld", version, arg_required_else_help = true, disable_help_subcommand = true)]
struct Own {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make the names that compilers look for in a folder
    #[command(
        after_help = "Examples:\n  offld links ~/offld && clang++ -B ~/offld -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu a.cpp\n  \
        offld links --as-ld ~/offld && g++ -B ~/offld main.o kernels.o"
    )]
    Links {
        /// The folder, made if it is not there
        dir: PathBuf,
        /// Also make `ld`, for drivers such as gcc that only know -B DIR
        #[arg(long)]
        as_ld: bool,
    },
    /// Show what device code is in files
    #[command(after_help = inspect::AFTER_HELP)]
    Inspect(inspect::Options),
    /// Show the bytes of each device, unit and kernel
    #[command(after_help = size::AFTER_HELP)]
    Size(size::Options),
    /// Say whether it will run, or which image would load
    #[command(after_help = check::AFTER_HELP)]
    Check(check::Options),
    /// Take device images out of finished files
    #[command(after_help = prune::AFTER_HELP)]
    Prune(prune::Options),
    /// Take files apart: the host, and each device
    #[command(after_help = split::AFTER_HELP)]
    Split(split::Options),
    /// Put parts together, or builds for several devices
    #[command(after_help = merge::AFTER_HELP)]
    Merge(merge::Options),
    /// Put other images in the places of those of a file
    #[command(after_help = replace::AFTER_HELP)]
    Replace(replace::Options),
    /// Compress anew what is compressed in files
    #[command(after_help = recompress::AFTER_HELP)]
    Recompress(recompress::Options),
    /// Take debug information out of device images
    #[command(after_help = strip_device::AFTER_HELP)]
    StripDevice(strip_device::Options),
    /// Show, trim or empty the cache of device links
    #[command(after_help = cache::AFTER_HELP)]
    Cache(cache::Options),
    /// Show where the time of a build went
    #[command(after_help = explain::AFTER_HELP)]
    Explain(explain::Options),
    /// Compile or find units of a ThinLTO link, for ld.lld
    #[command(name = "thinlto-distributor", after_help = thinlto_distributor::AFTER_HELP)]
    ThinltoDistributor(thinlto_distributor::Options),
    /// Show what links need here, and what is missing
    #[command(after_help = doctor::AFTER_HELP)]
    Doctor(doctor::Options),
    /// Explain a command, a name that offld is called by, or a topic
    Help {
        /// A command and its own command, a name, or a topic; `topics` lists those
        #[arg(value_name = "COMMAND|NAME|TOPIC")]
        words: Vec<OsString>,
    },
    /// Write completions for a shell to stdout
    Completions {
        /// The shell
        #[arg(value_enum)]
        shell: clap_complete::Shell,
    },
    /// Write manual pages to a folder
    Man {
        /// The folder, made if it is not there
        dir: PathBuf,
    },
}

/// Runs the command or personality that the first word of `argv` (after the program's name) selects.
pub(super) fn run(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    if let Some(personality) = argv.get(1).and_then(|word| by_word(word)) {
        return (personality.run)(&argv[2..], shell);
    }
    let parsed = command().try_get_matches_from(argv).and_then(|matches| Own::from_arg_matches(&matches));
    let own = match parsed {
        Ok(own) => own,
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let words: Vec<_> = argv.iter().skip(1).map(|word| format!("{} ", word.display())).collect();
            anyhow::bail!("no command is given: `offld {}--help` lists them", words.concat());
        }
        Err(error) if error.use_stderr() => {
            let text = error.render().to_string();
            let refused = anyhow::anyhow!("{}", text.trim_start_matches("error: ").trim_end());
            // The exit status of these is an answer: 1 is "no device code" of `offld inspect` and "no" of `offld check`. A command line
            // that is wrong has 2, like a file that cannot be read.
            let inspects = argv.get(1).is_some_and(|word| {
                [
                    "inspect",
                    "size",
                    "check",
                    "prune",
                    "split",
                    "merge",
                    "replace",
                    "recompress",
                    "strip-device",
                    "explain",
                    "doctor",
                ]
                .iter()
                .any(|own| word == own)
            });
            return Err(if inspects { inspect::with_status(refused) } else { refused });
        }
        Err(help) => {
            // Help and version go to stdout. A reader that has closed the pipe is not an error.
            let _ = write!(std::io::stdout(), "{}", help.render());
            return Ok(());
        }
    };
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
        Command::Help { words } => front::run(&words, command(), shell),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            let words = clap::builder::PossibleValuesParser::new(front::words());
            let mut completed = command().mut_subcommand("help", |help| help.mut_arg("words", |arg| arg.value_parser(words)));
            clap_complete::generate(shell, &mut completed, "offld", &mut text);
            let _ = std::io::stdout().write_all(&text);
            Ok(())
        }
        Command::Man { dir } => manual::write(command(), &dir),
    }
}

/// The command line of `offld` itself.
pub(super) fn command() -> clap::Command {
    let command = Own::command();
    let page = front::page(&command);
    command.override_help(page)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_command_line_is_sound() {
        super::command().debug_assert();
    }
}
