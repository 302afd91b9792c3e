//! The commands of links: `clang-linker-wrapper`, `ld.offld` and `ld`; `offld thinlto-distributor`,
//! which ld.lld starts for the translation units of a ThinLTO link; `offld links`, which creates the
//! names by which compilers find the tools. `--help`, `--version` and suggestions for misspelled
//! options come from the option table.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;

use super::EMULATED_TOOLS;
use crate::args::settings::{Jobs, LinkSettings, Named};
use crate::args::{ArgKind, ArgumentList, Dashes, Mode, OptionRow, Role, Scope, own_rows};
use crate::link::pipeline::{self, DistributorRequest};
use offld_system::environment;
use offld_system::shell::Shell;
use offload_formats::model::{LLVM_MAJOR, printable};

/// Runs as `clang-linker-wrapper`: offld's options first, then the host linker's arguments.
pub(super) fn clang_linker_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Wrapper, false)
}

/// Runs as `ld.offld`, which compilers call for `-fuse-ld=offld`.
pub(super) fn ld_offld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, false)
}

/// Runs as `ld`, for compiler drivers that look for no other name. Users of these drivers expect
/// the host link by the system's `ld`, so it is the first choice.
pub(super) fn ld(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, Role::Ld, true)
}

fn run(argv: &[OsString], shell: &Arc<Shell>, role: Role, ld_first: bool) -> Result<()> {
    let arguments = ArgumentList::read(role, argv.to_vec())?;
    match arguments.mode() {
        Mode::Help { hidden } => return help(role, hidden, shell),
        Mode::Version => return version(role),
        Mode::Link => {}
    }
    if let Some(list) = pipeline::llvm_help(&arguments)? {
        // A closed pipe is not an error.
        let _ = writeln!(std::io::stdout(), "{list}");
        return Ok(());
    }
    warn_of_misspelled(&arguments, shell);
    pipeline::run(&arguments, shell, ld_first, false)
}

/// Prefixes of option names that no linker uses.
const OURS: [&str; 3] = ["wrapper-", "offld-", "offload-"];

/// Prints `--help` or `--help-hidden` to stdout.
fn help(role: Role, hidden: bool, shell: &Shell) -> Result<()> {
    let name = name(role);
    let mut text = format!(
        "OVERVIEW: {name} (offld): links the device code embedded in host objects, registers it with its runtime, and runs the host link.\n\n\
         USAGE: {name} [options] <linker arguments>\n\nOPTIONS:\n"
    );
    for row in rows(role).filter(|row| hidden || !row.help.is_empty()) {
        text.push_str(&format!("  {:<40} {}\n", row.spelling(), row.help));
    }
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(shell.stdout_style().prose(&text).as_bytes());
    Ok(())
}

/// Every option of this tool as its help spells it, with its help text, for the manual page.
pub(super) fn options(role: Role) -> Vec<(String, String)> {
    const EARLIER: &str = "Accepted for compatibility with earlier LLVM releases.";
    let help = |row: &OptionRow| {
        if row.help.is_empty() {
            EARLIER
        } else {
            row.help
        }
    };
    let mut all: Vec<(String, String)> = rows(role)
        .map(|row| (row.spelling(), help(row).to_owned()))
        .collect();
    all.sort();
    all.dedup_by(|next, previous| next.0 == previous.0);
    all
}

/// The options of this tool, including those of earlier releases.
fn rows(role: Role) -> impl Iterator<Item = &'static OptionRow> {
    own_rows()
        .iter()
        .filter(move |row| role == Role::Wrapper || row.scope == Scope::Everywhere)
}

/// Prints `--version`. `ld.offld` mentions `GNU ld`, because build systems search for it to
/// determine the linker's options.
fn version(role: Role) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let line = match role {
        Role::Wrapper => {
            format!("offld {version} clang-linker-wrapper version {LLVM_MAJOR} (compatible)\n")
        }
        Role::Ld => format!("offld {version} (compatible with GNU ld)\n"),
    };
    let _ = std::io::stdout().write_all(line.as_bytes());
    Ok(())
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Wrapper => "clang-linker-wrapper",
        Role::Ld => "ld.offld",
    }
}

/// Warns of each misspelled option and suggests the correct one.
fn warn_of_misspelled(arguments: &ArgumentList, shell: &Shell) {
    for arg in arguments
        .args()
        .iter()
        .filter(|arg| matches!(arg.kind, ArgKind::Unknown))
    {
        let word = arguments
            .tokens()
            .get(arg.tokens.start)
            .and_then(|token| token.to_str());
        if let Some(meant) = word.and_then(|word| nearest_option(word, arguments.role())) {
            let word = word.unwrap_or_default();
            shell.warn(&format!(
                "unknown offld option `{word}` passed to the linker; did you mean `{meant}`?"
            ));
        }
    }
}

/// Returns the option most similar to `word`, as the help spells it, if it is similar enough.
fn nearest_option(word: &str, role: Role) -> Option<String> {
    let dashes = word.strip_prefix("--").map(|name| (Dashes::Two, name));
    let (dashes, name) =
        dashes.or_else(|| word.strip_prefix('-').map(|name| (Dashes::One, name)))?;
    let name = name.split('=').next()?;
    let rows = own_rows().iter().filter(|row| {
        !row.help.is_empty() && (role == Role::Wrapper || row.scope == Scope::Everywhere)
    });
    let distance = |row: &&OptionRow| strsim::damerau_levenshtein(name, row.name);
    let nearest = rows.min_by_key(distance)?;
    // With one dash, most arguments are a linker's letter with a value.
    let ours = dashes == Dashes::Two && OURS.iter().any(|start| name.starts_with(start));
    let near = match distance(&nearest) {
        0 => true,
        1 | 2 => dashes == Dashes::Two && name.len() > 6,
        far => ours && far <= name.len() / 2,
    };
    near.then(|| nearest.spelling())
}

/// The options of `offld thinlto-distributor`.
#[derive(Debug, Args)]
#[command(
    after_help = "ld.lld (LLVM 22 and later) starts the program of --thinlto-distributor= with the argument JOBS.json. In device links with\n\
    --wrapper-distribute, offld passes this command to ld.lld. For other ThinLTO links, pass:\n\n  \
    ld.lld --thinlto-distributor=/usr/bin/offld --thinlto-distributor-arg=thinlto-distributor \\\n    \
    --thinlto-remote-compiler=/usr/bin/clang …\n\n\
    OFFLD_CACHE and OFFLD_CACHE_REMOTE set the cache, as they do for links."
)]
pub(super) struct ThinltoDistributor {
    /// Read the job description of ld.lld from this file
    #[arg(value_name = "JOBS.json")]
    jobs_file: PathBuf,
    /// Limit jobs that run at the same time [default: number of CPU cores, or make's jobserver]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    jobs: Option<usize>,
    /// Use the cache in this directory, or none if it is `off` (OFFLD_CACHE) [default:
    /// ~/.cache/offld]
    #[arg(long, value_name = "DIR")]
    cache: Option<OsString>,
    /// Write messages and errors as JSON to this file, instead of printing them
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit when the device link that holds this named pipe has ended
    #[arg(long, value_name = "FILE", hide = true)]
    lifeline: Option<PathBuf>,
    /// Use this command to run jobs on other machines (OFFLD_LAUNCHER)
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<OsString>,
    /// Limit the time of a job in the launcher's queue, in seconds (OFFLD_LAUNCHER_WAIT) [default:
    /// 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    launcher_wait: Option<u64>,
    /// Limit jobs that the launcher runs at the same time (OFFLD_REMOTE_JOBS) [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    remote_jobs: Option<usize>,
    /// Report each job
    #[arg(long)]
    verbose: bool,
}

pub(super) fn thinlto_distributor(options: ThinltoDistributor, shell: &Arc<Shell>) -> Result<()> {
    let ThinltoDistributor {
        jobs_file,
        jobs,
        cache,
        report,
        lifeline,
        launcher,
        launcher_wait,
        remote_jobs,
        verbose,
    } = options;
    let mut settings = LinkSettings::of_environment(&environment::get);
    settings.run.jobs = jobs.map_or(Jobs::Auto, Jobs::N);
    settings.run.verbose = verbose;
    if let Some(folder) = cache {
        settings.cache.folder = Some(Named::new("--wrapper-cache", folder));
    }
    let launching = &mut settings.run.launching;
    if let Some(command) = launcher {
        launching.launcher = Some(Named::new("--wrapper-launcher", command));
    }
    launching.wait = launcher_wait.map(Into::into).or(launching.wait.take());
    launching.jobs = remote_jobs.map(Into::into).or(launching.jobs.take());
    pipeline::distribute(
        &DistributorRequest {
            jobs_file,
            report,
            lifeline,
            settings,
        },
        shell,
    )
}

/// The options of `offld links`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  offld links ~/offld && clang++ -B ~/offld -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu a.cpp\n  \
    offld links --as-ld ~/offld && g++ -B ~/offld main.o kernels.o"
)]
pub(super) struct Links {
    /// Create the symlinks in this directory (created if missing)
    dir: PathBuf,
    /// Create an additional symlink `ld`, for drivers such as gcc that find offld only through -B DIR
    #[arg(long)]
    as_ld: bool,
}

pub(super) fn links(options: Links, _shell: &Arc<Shell>) -> Result<()> {
    for link in make_links(&options.dir, options.as_ld)? {
        let _ = writeln!(std::io::stdout(), "{}", printable(&link.to_string_lossy()));
    }
    Ok(())
}

/// Creates the symlinks in `folder` and returns their paths. Replaces existing symlinks; an
/// existing file is an error.
fn make_links(folder: &Path, as_ld: bool) -> Result<Vec<PathBuf>> {
    let me = offld_system::run::own_executable().context("cannot find the executable of offld")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create directory `{}`", folder.display()))?;
    let mut made = Vec::new();
    for personality in EMULATED_TOOLS
        .iter()
        .filter(|personality| as_ld || !personality.only_as_ld)
    {
        let link = folder.join(personality.name);
        match fs::symlink_metadata(&link) {
            Ok(meta) if meta.is_symlink() => fs::remove_file(&link)
                .with_context(|| format!("cannot replace `{}`", link.display()))?,
            Ok(_) => bail!(
                "`{}` exists and is not a symlink: remove the file, or pass another directory",
                link.display()
            ),
            Err(_) => {}
        }
        symlink(&me, &link)
            .with_context(|| format!("cannot create symlink `{}`", link.display()))?;
        made.push(link);
    }
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_offld_options_are_detected_and_linker_options_are_not() {
        let wrapper = |word| nearest_option(word, Role::Wrapper);
        assert_eq!(
            wrapper("--wrapper-vebose").as_deref(),
            Some("--wrapper-verbose")
        );
        assert_eq!(
            wrapper("--wrapper-job=4").as_deref(),
            Some("--wrapper-jobs=<value>")
        );
        assert_eq!(
            wrapper("--wrapper-jobs").as_deref(),
            Some("--wrapper-jobs=<value>")
        );
        assert_eq!(wrapper("-wrapper-why").as_deref(), Some("--wrapper-why"));
        assert_eq!(
            wrapper("--offld-clangg=x").as_deref(),
            Some("--offld-clang=<value>")
        );
        for others in [
            "--gc-sections",
            "-soname",
            "--compress-debug-sections=zlib",
            "-lv",
            "--hash-style=gnu",
            "--verbose",
            "-z",
            "--",
        ] {
            assert_eq!(wrapper(others), None, "{others}");
        }
        assert_eq!(
            nearest_option("--wrapper-vebose", Role::Ld).as_deref(),
            Some("--wrapper-verbose")
        );
    }
}
