//! A device link whose ThinLTO units are compiled one by one, by compilers that ld.lld has `offld thinlto-distributor` start
//! (`distributor`): each by itself is looked up in the cache, and what one machine has compiled need not be compiled on another. The image
//! is the one that ld.lld makes of them in its own process.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::DeviceContext;
use super::distributor::Report;
use super::memo::{LinkQuery, ResolvedLink};
use super::out_of_memory;
use super::remote_words::RemoteWords;
use super::turn::Done;
use crate::args::request::{Distribute, Jobs, Launching, LinkRequest};
use crate::args::values;
use crate::error::StepFailed;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;
use crate::sys::jobs::are_counted;
use crate::sys::launcher::{FolderGuard, Launcher};
use crate::sys::lifeline::Lifeline;
use crate::sys::run::{self, Cmd};
use crate::sys::session::{self, Session};
use crate::sys::threads;
use crate::sys::toolchain::Compiler;

/// From this release on ld.lld starts distributors.
const SINCE: u32 = 22;

/// One link whose units are distributed.
pub(super) struct Distribution {
    /// The linker's arguments but for those that the distributor gets.
    args: Vec<OsString>,
    /// What the distributor is told.
    words: Vec<OsString>,
    /// How many units may be compiled at once, whatever the link itself is granted.
    at_once: Option<usize>,
    report: PathBuf,
    /// By which the distributor hears that this process has ended.
    lifeline: Option<(PathBuf, Lifeline)>,
    /// Where other machines use the temporary folder.
    guard: Option<FolderGuard>,
    /// The temporary file of each input, and what it holds.
    names: Vec<(String, String)>,
}

/// Whether units are to be distributed where they can be.
///
/// # Errors
/// The variable of the environment has no such value.
pub(super) fn is_wanted(request: &LinkRequest, session: &Session) -> Result<bool> {
    let setting = match (request.distribute, Session::env(session::OFFLD_DISTRIBUTE)) {
        (None, Some(text)) => values::distribute(session::OFFLD_DISTRIBUTE, &text)?,
        (given, _) => given.unwrap_or_default(),
    };
    Ok(match setting {
        Distribute::Auto => session.launcher.is_some(),
        Distribute::On => true,
        Distribute::Off => false,
    })
}

impl Distribution {
    /// For the link of `query`, whose inputs go into `files`; an error says why the linker has to compile its units itself. None if it
    /// has none.
    pub(super) fn of(
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
        files: &[PathBuf],
        context: &DeviceContext<'_>,
        session: &Session,
    ) -> Option<Result<Distribution, String>> {
        let is_thin = |bytes: &[u8]| magic::is_bitcode(bytes) && bitcode::is_thin(bytes).unwrap_or(false);
        if !resolved.is_lld() || !query.job.inputs.iter().any(|input| is_thin(&input.bytes)) {
            return None;
        }
        // A caller of the library is not the program that linkers can start.
        let of_library = !session.runner.can_be_replaced();
        let found = if of_library { Err("offld is used as a library".to_owned()) } else { linker_args(resolved, query, context) };
        Some(found.map(|args| Distribution {
            args,
            words: distributor_words(context.request, session),
            at_once: at_once(context.request.jobs, session),
            report: query.image.with_extension("report"),
            lifeline: lifeline(query.image),
            guard: None,
            names: names(query.job, files),
        }))
    }

    /// The linker's arguments, for a link that is about to run with so many threads. They do not belong to what it is known by: the image is the same.
    pub(super) fn arguments(&mut self, granted: usize, session: &Session) -> Vec<OsString> {
        if session.launcher.as_ref().is_some_and(Launcher::is_available) {
            self.guard = FolderGuard::start(session);
        }
        // What an earlier run has left.
        let _ = std::fs::remove_file(&self.report);
        let at_once = format!("--jobs={}", self.at_once.unwrap_or(granted));
        let lifeline = self.lifeline.iter().map(|(path, _)| option("--lifeline=", path));
        let words = [at_once.into(), option("--report=", &self.report)].into_iter().chain(lifeline);
        let words = words.chain(self.words.iter().cloned());
        let words = words.map(|word| option("--thinlto-distributor-arg=", word));
        self.args.iter().cloned().chain(words).collect()
    }

    /// After the linker has ended: says what the distributor has to say, and adds the memory of what it ran. Where one of its jobs has
    /// failed, that is the error. Also returns why the image may not be kept, if it may not.
    pub(super) fn ended(self, done: Result<Done>, cmd: &Cmd, verbose: bool, session: &Session) -> Result<(Done, Option<String>)> {
        let report = Report::read(&self.report).unwrap_or_default();
        let (step, shell) = (&cmd.step, &session.shell);
        // One launcher that does not work is told of once.
        let known =
            report.given_up.as_ref().filter(|_| session.launcher.as_ref().is_some_and(|launcher| !launcher.is_given_up_now()));
        for (label, text) in report.messages.iter().filter(|(_, text)| Some(text) != known) {
            let text = self.named(text);
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
                Some((why, status)) if out_of_memory::of(&error).is_none() => {
                    StepFailed { report: format!("{step}: {}", self.named(&why)), status }.into()
                }
                _ => error,
            }),
        }
    }

    /// `text` with the inputs in place of the temporary files that hold them.
    fn named(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (file, name)| text.replace(&format!("`{file}`"), &format!("`{name}`")))
    }
}

/// The linker's arguments but for those that the distributor gets.
fn linker_args(resolved: &ResolvedLink, query: &LinkQuery<'_>, context: &DeviceContext<'_>) -> Result<Vec<OsString>, String> {
    let (compiler, triple) = (context.compiler, &query.job.target.triple);
    check_release(resolved.linker(), compiler)?;
    let words = RemoteWords::of(resolved.words())?;
    let words_for = words.for_compiler(triple);
    if words.are_uncertain() && !takes(compiler, triple, &words_for) {
        return Err(format!("{} does not know all of LLVM's options that the linker is given", compiler.path.display()));
    }
    // ld.lld writes the list of jobs as JSON, which has no other names.
    if [query.image, &compiler.path].iter().any(|path| path.to_str().is_none()) {
        return Err("a path is not in UTF-8".to_owned());
    }
    let mut args = vec![
        option("--thinlto-distributor=", ourselves(query.image)?),
        option("--thinlto-remote-compiler=", &compiler.path),
        "--thinlto-remote-compiler-prepend-arg=--no-default-config".into(),
        "--thinlto-distributor-arg=thinlto-distributor".into(),
    ];
    args.extend(words_for.iter().map(|word| option("--thinlto-remote-compiler-arg=", word)));
    Ok(args)
}

/// What the distributor is told of the user's options: it has the same environment.
fn distributor_words(request: &LinkRequest, session: &Session) -> Vec<OsString> {
    let Launching { launcher, wait, jobs } = &request.launching;
    let mut words = Vec::new();
    if request.verbose {
        words.push("--verbose".into());
    }
    words.extend(request.cache.iter().map(|cache| option("--cache=", cache)));
    if session.launcher.as_ref().is_some_and(|launcher| !launcher.is_available()) {
        words.push("--launcher=".into());
        return words;
    }
    words.extend(launcher.iter().map(|launcher| option("--launcher=", launcher)));
    words.extend(wait.iter().map(|wait| format!("--launcher-wait={wait}").into()));
    words.extend(jobs.iter().map(|jobs| format!("--remote-jobs={jobs}").into()));
    words
}

/// How many units are compiled at once on this machine where a launcher that was to do it does not work: the link itself has one thread.
/// None: as many as the link has threads.
fn at_once(jobs: Jobs, session: &Session) -> Option<usize> {
    session.launcher.as_ref().filter(|launcher| launcher.is_available() && !are_counted(jobs))?;
    Some(if let Jobs::N(count) = jobs { count } else { threads::count() })
}

/// The lifeline of the distributor for `image`. Without one it goes on when this process is killed.
fn lifeline(image: &Path) -> Option<(PathBuf, Lifeline)> {
    let path = image.with_extension("lifeline");
    let lifeline = Lifeline::at(&path).ok()?;
    Some((path, lifeline))
}

/// The files of the inputs of `job`, and their names for the user.
fn names(job: &DeviceJob<'_>, files: &[PathBuf]) -> Vec<(String, String)> {
    let named = files.iter().zip(&job.inputs);
    named.map(|(file, input)| (file.display().to_string(), input.origin.to_string())).collect()
}

fn option(name: &str, value: impl Into<OsString>) -> OsString {
    let mut option = OsString::from(name);
    option.push(value.into());
    option
}

/// An error unless the linker starts distributors, and the compiler is of the same release: what they make of a unit is the same then.
fn check_release(linker: &Path, compiler: &Compiler) -> Result<(), String> {
    let shown = (linker.display(), compiler.path.display());
    match compiler.major {
        Some(major) if major < SINCE => {
            return Err(format!("the linker of LLVM {major} cannot do it, but that of LLVM {SINCE} can"));
        }
        Some(_) => {}
        None => return Err(format!("the release of {} is not known", shown.1)),
    }
    let folder = |path: &Path| path.canonicalize().ok().and_then(|real| real.parent().map(Path::to_owned));
    if folder(linker).is_some_and(|of_linker| folder(&compiler.path) == Some(of_linker)) {
        return Ok(());
    }
    let number = |program: &Path| release_number(&run::stdout_of(program, &["--version"])?);
    match (number(linker), number(&compiler.path)) {
        (Some(one), Some(other)) if one == other => Ok(()),
        _ => Err(format!("{} and {} are not known to be of one release", shown.0, shown.1)),
    }
}

/// The first number in `text` that has three parts: `22.1.8`.
fn release_number(text: &str) -> Option<String> {
    let is_release = |word: &&str| {
        let parts: Vec<&str> = word.split('.').collect();
        parts.len() == 3 && parts.iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    text.split(|c: char| !c.is_ascii_digit() && c != '.').find(is_release).map(str::to_owned)
}

/// Whether the compiler takes these `words`.
fn takes(compiler: &Compiler, triple: &str, words: &[String]) -> bool {
    let target = format!("--target={triple}");
    let mut args = vec!["--no-default-config", &*target, "-c", "-x", "ir", "/dev/null", "-o", "/dev/null"];
    args.extend(words.iter().map(String::as_str));
    run::stdout_of(&compiler.path, &args).is_some()
}

/// A path by which we are called as `offld`, whatever we were called as ourselves.
fn ourselves(image: &Path) -> Result<PathBuf, String> {
    let me = std::env::current_exe().map_err(|error| format!("offld does not find itself: {error}"))?;
    if me.file_name().is_some_and(|name| name == "offld") {
        return Ok(me);
    }
    let link = image.with_extension("offld.d");
    let named = link.join("offld");
    let made = std::fs::create_dir_all(&link).and_then(|()| match std::os::unix::fs::symlink(&me, &named) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    });
    made.map(|()| named).map_err(|error| format!("{}: {error}", link.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_all_of_their_numbers() {
        let number = release_number("Debian LLD 22.1.8 (compatible with GNU linkers)");
        assert_eq!(number.as_deref(), Some("22.1.8"));
        assert_eq!(release_number("Debian clang version 22.1.8 (1~deb12u1)\nTarget: x86_64-pc-linux-gnu"), number);
        assert_eq!(release_number("AMD LLD 22.0.0git (https://github.com 26.1 x)").as_deref(), Some("22.0.0"));
        assert_eq!(release_number("LLD 22"), None);
    }

    #[test]
    fn older_releases_cannot_do_it() {
        let compiler = |major| Compiler { path: "/c/clang".into(), major };
        let why = check_release(Path::new("/c/ld.lld"), &compiler(Some(21))).unwrap_err();
        assert_eq!(why, "the linker of LLVM 21 cannot do it, but that of LLVM 22 can");
        assert!(check_release(Path::new("/c/ld.lld"), &compiler(None)).unwrap_err().contains("is not known"));
        let why = check_release(Path::new("/c/ld.lld"), &compiler(Some(22))).unwrap_err();
        assert!(why.contains("not known to be of one release"), "{why}");
    }

    #[test]
    fn what_is_said_names_inputs() {
        let names = vec![("/tmp/offld-x/a-amdgcn.o".to_owned(), "liba.a(a.o)".to_owned())];
        let distribution = Distribution {
            args: Vec::new(),
            words: Vec::new(),
            at_once: None,
            report: PathBuf::from("/nowhere"),
            lifeline: None,
            guard: None,
            names,
        };
        assert_eq!(distribution.named("for `/tmp/offld-x/a-amdgcn.o` failed"), "for `liba.a(a.o)` failed");
    }
}
