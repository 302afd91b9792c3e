//! Compiles the ThinLTO units of a device link as separate jobs.
//!
//! A ThinLTO unit is one bitcode module of the link. ld.lld starts `offld thinlto-distributor`
//! (module `distributor`), which looks up the object of each unit in the cache. The distributor
//! compiles the units whose objects are missing. Machines that share a remote cache can reuse each
//! other's objects. The image is the same as if ld.lld compiled all units in its own process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::DeviceContext;
use super::codegen_options::RemoteCompilerArgs;
use super::link_cache::{LinkQuery, ResolvedLink};
use super::messages;
use super::running::Completed;
use crate::args::joined;
use crate::args::settings::{Distribute, Jobs, Launching, LinkSettings};
use crate::link::select::DeviceJob;
use crate::toolchain::Compiler;
use offld_system::jobs::are_counted;
use offld_system::launcher::{FolderGuard, Launcher};
use offld_system::run::{self, Cmd};
use offld_system::session::Session;
use offld_system::signals::Lifeline;
use offld_system::threads;
use offload_formats::error::StepFailed;

/// First LLVM release whose ld.lld starts distributors.
const FIRST_RELEASE: u32 = 22;

/// One link with distributed ThinLTO units.
pub(super) struct Distribution {
    /// The arguments that [`linker_args`] returned.
    args: Vec<OsString>,
    /// The arguments that [`distributor_args`] returned.
    distributor_args: Vec<OsString>,
    /// Maximum number of units that compile at once. `None`: the link's number of threads.
    at_once: Option<usize>,
    report: PathBuf,
    /// Lets the distributor detect that this process exits.
    lifeline: Option<(PathBuf, Lifeline)>,
    /// Removes the temporary directory if this process is killed. Used only with a launcher, which
    /// can run jobs on other machines.
    guard: Option<FolderGuard>,
    /// The temporary file and the display name of each input.
    names: Vec<(String, String)>,
}

/// Whether to distribute units if possible.
///
/// # Errors
/// Fails if the environment variable for this setting has an invalid value.
pub(super) fn is_wanted(settings: &LinkSettings, session: &Session) -> Result<bool> {
    Ok(match settings.run.distribute.get()? {
        Distribute::Auto => session.launcher.is_some(),
        Distribute::On => true,
        Distribute::Off => false,
    })
}

impl Distribution {
    /// Prepares the link of `query`. `files` are the temporary files for the inputs. Returns `None`
    /// if the linker is not lld or the link has no ThinLTO units.
    ///
    /// The error is the reason why the linker has to compile the units itself.
    pub(super) fn of(
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
        files: &[PathBuf],
        context: &DeviceContext<'_>,
        session: &Session,
    ) -> Option<Result<Distribution, String>> {
        if !resolved.is_lld() || !query.job.inputs.iter().any(|input| input.is_thin()) {
            return None;
        }
        // If offld is a library, the current executable is not offld. The linker cannot start such
        // an executable as the distributor.
        let in_library = !session.runner.can_be_replaced();
        let found = if in_library {
            Err("offld is used as a library".to_owned())
        } else {
            linker_args(resolved, query, context)
        };
        Some(found.map(|args| Distribution {
            args,
            distributor_args: distributor_args(context.settings, session),
            at_once: at_once(context.settings.run.jobs, session),
            report: query.image.with_extension("report"),
            lifeline: lifeline(query.image),
            guard: None,
            names: names(query.job, files),
        }))
    }

    /// Returns the linker's arguments for a link with `granted` threads. The cache key does not
    /// cover these arguments, because distribution does not change the image.
    pub(super) fn arguments(&mut self, granted: usize, session: &Session) -> Vec<OsString> {
        if session
            .launcher
            .as_ref()
            .is_some_and(Launcher::is_available)
        {
            self.guard = FolderGuard::start(session);
        }
        // Remove a report that an earlier run left at this path.
        let _ = std::fs::remove_file(&self.report);
        let at_once = format!("--jobs={}", self.at_once.unwrap_or(granted));
        let lifeline = self
            .lifeline
            .iter()
            .map(|(path, _)| joined("--lifeline=", path));
        let args = [at_once.into(), joined("--report=", &self.report)]
            .into_iter()
            .chain(lifeline);
        let args = args.chain(self.distributor_args.iter().cloned());
        let args = args.map(|word| joined("--thinlto-distributor-arg=", word));
        self.args.iter().cloned().chain(args).collect()
    }

    /// Prints the distributor's messages after the linker has ended. Adds the peak memory of the
    /// distributor's jobs to the link's peak memory.
    ///
    /// Returns the completed link, and the reason not to cache the image, if there is one.
    ///
    /// # Errors
    /// Fails if the linker failed. Returns the error of a failed job instead of the linker's error,
    /// unless the linker ran out of memory.
    pub(super) fn ended(
        self,
        done: Result<Completed>,
        cmd: &Cmd,
        verbose: bool,
        session: &Session,
    ) -> Result<(Completed, Option<String>)> {
        let report = Report::read(&self.report).unwrap_or_default();
        let (step, shell) = (&cmd.step, &session.shell);
        // The distributor's warning about a failed launcher, if this process already knew of the
        // failure. It is not printed again. For a new failure, `is_given_up_now` records the failure
        // and returns true.
        let known = report.given_up.as_ref().filter(|_| {
            session
                .launcher
                .as_ref()
                .is_some_and(|launcher| !launcher.is_given_up_now())
        });
        for (label, text) in report
            .messages
            .iter()
            .filter(|(_, text)| Some(text) != known)
        {
            let text = self.with_input_names(text);
            match label.as_str() {
                "" => shell.line(&text),
                "warning" => shell.warn(&format!("{step}: {text}")),
                _ => shell.note(&format!("{step}: {text}")),
            }
        }
        match done {
            Ok(mut done) => {
                if verbose {
                    shell.note(&format!("{step}: {}", report.count()));
                }
                done.usage.peak_memory = done.usage.peak_memory.saturating_add(report.memory);
                Ok((done, report.not_kept))
            }
            Err(error) => Err(match report.failed {
                Some((why, status)) if messages::out_of_memory(&error).is_none() => {
                    let report = format!("{step}: {}", self.with_input_names(&why));
                    StepFailed::new(report, status).into()
                }
                _ => error,
            }),
        }
    }

    /// Replaces the names of temporary files in `text` with the display names of the inputs.
    fn with_input_names(&self, text: &str) -> String {
        self.names
            .iter()
            .fold(text.to_owned(), |text, (file, name)| {
                text.replace(&format!("`{file}`"), &format!("`{name}`"))
            })
    }
}

/// Returns the linker's arguments for distribution. [`Distribution::arguments`] adds more arguments
/// for the distributor.
///
/// The error is the reason why the linker has to compile the units itself.
fn linker_args(
    resolved: &ResolvedLink,
    query: &LinkQuery<'_>,
    context: &DeviceContext<'_>,
) -> Result<Vec<OsString>, String> {
    let (compiler, triple) = (context.compiler, &query.job.target.triple);
    check_release(resolved.linker(), compiler)?;
    let words = RemoteCompilerArgs::of(resolved.words())?;
    let compiler_args = words.for_compiler(triple);
    if words.are_uncertain() && !takes(compiler, triple, &compiler_args) {
        return Err(format!(
            "{} does not support all of the linker's LLVM options",
            compiler.path.display()
        ));
    }
    // ld.lld writes the list of jobs as JSON, and JSON requires paths in UTF-8.
    if [query.image, &compiler.path]
        .iter()
        .any(|path| path.to_str().is_none())
    {
        return Err("a path is not in UTF-8".to_owned());
    }
    let mut args = vec![
        joined("--thinlto-distributor=", own_executable(query.image)?),
        joined("--thinlto-remote-compiler=", &compiler.path),
        "--thinlto-remote-compiler-prepend-arg=--no-default-config".into(),
        "--thinlto-distributor-arg=thinlto-distributor".into(),
    ];
    args.extend(
        compiler_args
            .iter()
            .map(|word| joined("--thinlto-remote-compiler-arg=", word)),
    );
    Ok(args)
}

/// Translates the user's options to arguments of the distributor. A cache or launcher that an
/// environment variable sets is omitted, because the distributor inherits the variable. The
/// messages of the distributor can then name the variable instead of an option.
fn distributor_args(settings: &LinkSettings, session: &Session) -> Vec<OsString> {
    let Launching {
        launcher,
        wait,
        jobs,
        shared_temp: _,
    } = &settings.run.launching;
    let mut args = Vec::new();
    if settings.run.verbose {
        args.push("--verbose".into());
    }
    args.extend(
        settings
            .cache
            .folder
            .iter()
            .filter(|cache| cache.is_by_option())
            .map(|cache| joined("--cache=", &cache.value)),
    );
    if session
        .launcher
        .as_ref()
        .is_some_and(|launcher| !launcher.is_available())
    {
        args.push("--launcher=".into());
        return args;
    }
    args.extend(
        launcher
            .iter()
            .filter(|launcher| launcher.is_by_option())
            .map(|launcher| joined("--launcher=", &launcher.value)),
    );
    args.extend(
        wait.iter()
            .filter_map(|wait| wait.get().ok())
            .map(|wait| format!("--launcher-wait={wait}").into()),
    );
    args.extend(
        jobs.iter()
            .filter_map(|jobs| jobs.get().ok())
            .map(|jobs| format!("--remote-jobs={jobs}").into()),
    );
    args
}

/// Returns the number of units to compile at once on this machine if the launcher fails later. The
/// link's number of threads is too low for this: a link with a launcher gets only one thread.
///
/// Returns `None` if the link's number of threads applies: without an available launcher, or if
/// make's jobserver counts the jobs.
fn at_once(jobs: Jobs, session: &Session) -> Option<usize> {
    session
        .launcher
        .as_ref()
        .filter(|launcher| launcher.is_available() && !are_counted(jobs))?;
    Some(if let Jobs::N(count) = jobs {
        count
    } else {
        threads::count()
    })
}

/// Creates the lifeline for the distributor of `image`. Returns `None` if that fails: the
/// distributor then continues even if this process is killed.
fn lifeline(image: &Path) -> Option<(PathBuf, Lifeline)> {
    let path = image.with_extension("lifeline");
    let lifeline = Lifeline::at(&path).ok()?;
    Some((path, lifeline))
}

/// Pairs the input files of `job` with their display names.
fn names(job: &DeviceJob<'_>, files: &[PathBuf]) -> Vec<(String, String)> {
    let pairs = files.iter().zip(&job.inputs);
    pairs
        .map(|(file, input)| (file.display().to_string(), input.origin.to_string()))
        .collect()
}

/// Checks that the linker can start distributors, and that linker and compiler are from the same
/// LLVM release. Different releases may generate different code.
///
/// The error is the reason why the linker has to compile the units itself.
fn check_release(linker: &Path, compiler: &Compiler) -> Result<(), String> {
    let paths = (linker.display(), compiler.path.display());
    match compiler.major {
        Some(major) if major < FIRST_RELEASE => {
            return Err(format!(
                "the linker is from LLVM {major}, and distributed ThinLTO needs LLVM {FIRST_RELEASE} or later"
            ));
        }
        Some(_) => {}
        None => return Err(format!("the LLVM version of {} is unknown", paths.1)),
    }
    let folder = |path: &Path| {
        path.canonicalize()
            .ok()
            .and_then(|real| real.parent().map(Path::to_owned))
    };
    if folder(linker).is_some_and(|of_linker| folder(&compiler.path) == Some(of_linker)) {
        return Ok(());
    }
    let number = |program: &Path| release_number(&run::stdout_of(program, &["--version"])?);
    match (number(linker), number(&compiler.path)) {
        (Some(one), Some(other)) if one == other => Ok(()),
        _ => Err(format!(
            "{} and {} may be from different LLVM versions",
            paths.0, paths.1
        )),
    }
}

/// Returns the first version number with three parts in `text`, such as `22.1.8`.
fn release_number(text: &str) -> Option<String> {
    let is_release = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        parts.len() == 3
            && parts
                .iter()
                .all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .find(is_release)
        .map(str::to_owned)
}

/// Whether the compiler accepts `options` for `triple`.
fn takes(compiler: &Compiler, triple: &str, options: &[String]) -> bool {
    let target = format!("--target={triple}");
    let mut args = vec![
        "--no-default-config",
        &*target,
        "-c",
        "-x",
        "ir",
        "/dev/null",
        "-o",
        "/dev/null",
    ];
    args.extend(options.iter().map(String::as_str));
    run::stdout_of(&compiler.path, &args).is_some()
}

/// Returns a path that leads to the current executable and ends in `offld`. Under other names, the
/// executable acts as other tools. If necessary, a symlink is created next to `image`.
fn own_executable(image: &Path) -> Result<PathBuf, String> {
    let me = run::own_executable()
        .map_err(|error| format!("cannot determine the path of offld: {error}"))?;
    if me.file_name().is_some_and(|name| name == "offld") {
        return Ok(me);
    }
    let link = image.with_extension("offld.d");
    let named = link.join("offld");
    let created = std::fs::create_dir_all(&link).and_then(|()| {
        match std::os::unix::fs::symlink(&me, &named) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            created => created,
        }
    });
    created
        .map(|()| named)
        .map_err(|error| format!("{}: {error}", link.display()))
}

// The report that a distributor writes for the waiting device link: unit counts, messages for the
// user, and the error, if any.

/// The report of one distributor.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Report {
    /// Number of units found in the cache.
    pub(super) found: usize,
    /// Number of those that came from the remote cache.
    pub(super) shared: usize,
    /// Number of units compiled.
    pub(super) compiled: usize,
    /// Number of those compiled on this machine.
    pub(super) here: usize,
    /// Estimated peak memory of all jobs on this machine together, in bytes.
    pub(super) memory: u64,
    /// Messages for the user, each with its label: `warning`, `note`, or empty for a plain line.
    pub(super) messages: Vec<(String, String)>,
    /// The message that reports a failed launcher.
    pub(super) given_up: Option<String>,
    /// Reason not to cache the resulting image.
    pub(super) not_kept: Option<String>,
    /// The error and the exit status.
    pub(super) failed: Option<(String, u8)>,
}

impl Report {
    /// Reads the report at `path`, or returns `None` if the distributor wrote none.
    pub(super) fn read(path: &Path) -> Option<Report> {
        serde_json::from_slice(&std::fs::read(path).ok()?).ok()
    }

    /// The message with the counts.
    pub(super) fn count(&self) -> String {
        let Report {
            found,
            shared,
            compiled,
            ..
        } = self;
        let of_others = if *shared > 0 {
            format!(" ({shared} of them in the remote cache)")
        } else {
            String::new()
        };
        format!("ThinLTO: {found} units found in the cache{of_others}, {compiled} compiled")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_all_three_numbers() {
        let number = release_number("Debian LLD 22.1.8 (compatible with GNU linkers)");
        assert_eq!(number.as_deref(), Some("22.1.8"));
        assert_eq!(
            release_number("Debian clang version 22.1.8 (1~deb12u1)\nTarget: x86_64-pc-linux-gnu"),
            number
        );
        assert_eq!(
            release_number("AMD LLD 22.0.0git (https://github.com 26.1 x)").as_deref(),
            Some("22.0.0")
        );
        assert_eq!(release_number("LLD 22"), None);
    }

    #[test]
    fn older_releases_are_rejected() {
        let compiler = |major| Compiler {
            path: "/c/clang".into(),
            major,
        };
        let why = check_release(Path::new("/c/ld.lld"), &compiler(Some(21))).unwrap_err();
        assert_eq!(
            why,
            "the linker is from LLVM 21, and distributed ThinLTO needs LLVM 22 or later"
        );
        assert!(
            check_release(Path::new("/c/ld.lld"), &compiler(None))
                .unwrap_err()
                .contains("is unknown")
        );
        let why = check_release(Path::new("/c/ld.lld"), &compiler(Some(22))).unwrap_err();
        assert!(why.contains("may be from different LLVM versions"), "{why}");
    }

    #[test]
    fn messages_name_inputs() {
        let names = vec![(
            "/tmp/offld-x/a-amdgcn.o".to_owned(),
            "liba.a(a.o)".to_owned(),
        )];
        let distribution = Distribution {
            args: Vec::new(),
            distributor_args: Vec::new(),
            at_once: None,
            report: PathBuf::from("/nowhere"),
            lifeline: None,
            guard: None,
            names,
        };
        assert_eq!(
            distribution.with_input_names("for `/tmp/offld-x/a-amdgcn.o` failed"),
            "for `liba.a(a.o)` failed"
        );
    }
}
