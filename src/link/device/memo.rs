//! Device links that need not be done again. The image of a link is found by what the link is made of: the device code, the linker's
//! command, the linker itself, the environment; and by the files that it read besides, which are written down when it is done
//! (`manifest`). The linker's command is the compiler's answer (`linker_command`); with it the linker is run directly, and asked for the list
//! of what it reads.
//!
//! A link of which something cannot be known is not kept, and says why; it is done by the compiler then, as without a cache.

mod asking;
mod driver_probe_paths;
mod history;
mod libraries;
mod line;
mod linker_command;
mod manifest;
mod stamp;
mod store;
mod tool;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Instant, SystemTime};

use anyhow::Result;

use super::DeviceContext;
use crate::link::select::DeviceJob;
use crate::store::{Cache, Digest, Event, KeyBuilder};
use crate::sys::run::{Cmd, Waiting};
use crate::sys::session::{self, Session};
use crate::sys::trace::Usage;

use line::{Line, Linker};
use linker_command::LinkerCommand;
pub(super) use linker_command::{INPUT, OUTPUT};
use manifest::Manifest;
pub(crate) use tool::Tool;

/// A tool, once it is told. Whoever asks meanwhile waits.
type Slot = Arc<OnceLock<Result<Tool, String>>>;

/// What the compiler says, once it is asked.
type Answer = Arc<Mutex<Option<Result<LinkerCommand, String>>>>;

/// The cache as one run's device links use it.
pub(super) struct DeviceCache<'a> {
    cache: &'a Arc<Cache>,
    context: &'a DeviceContext<'a>,
    session: &'a Session,
    environment: Digest,
    verbose: bool,
    /// From here on tools may have been started, and files read.
    begun: (SystemTime, Instant),
    tools: Mutex<HashMap<PathBuf, Slot>>,
    answers: Mutex<HashMap<Vec<OsString>, Answer>>,
    /// A linker that loads meanwhile.
    waiting: Mutex<Option<Waiting>>,
}

/// What the cache is told about a job.
pub(super) struct LinkQuery<'a> {
    /// The job.
    pub(super) job: &'a DeviceJob<'a>,
    /// The job's command, as the compiler would be run for it.
    pub(super) cmd: &'a Cmd,
    /// The compiler's arguments with the stand-ins [`INPUT`] and [`OUTPUT`].
    pub(super) args: &'a [OsString],
    /// Where the image goes.
    pub(super) image: &'a Path,
    /// The program that is linked, by whose name the link is known from time to time.
    pub(super) program: &'a Path,
}

/// A link of which all is known but what came of it.
pub(super) struct ResolvedLink {
    linker_command: LinkerCommand,
    line: Line,
    linker: Tool,
    key: Digest,
    inputs: Vec<Digest>,
    made: history::KeyParts,
}

impl ResolvedLink {
    /// Whether the linker may be given the device code as one archive: it then makes the same of it, unless it is told to treat what
    /// comes out of archives otherwise.
    pub(super) fn takes_archives(&self) -> bool {
        !self.linker_command.args.iter().any(|arg| arg.trim_start_matches('-').starts_with("exclude-libs"))
    }
}

impl<'a> DeviceCache<'a> {
    /// For the links of one run.
    pub(super) fn new(cache: &'a Arc<Cache>, context: &'a DeviceContext<'a>, session: &'a Session) -> Self {
        let verbose = context.request.verbose;
        let own = DeviceCache {
            cache,
            context,
            session,
            environment: environment(),
            verbose,
            begun: (cache.clock().now(), cache.clock().running()),
            tools: Mutex::default(),
            answers: Mutex::default(),
            waiting: Mutex::default(),
        };
        // The device's linker is most probably the host's.
        for tool in [&context.compiler.path, context.host_linker] {
            let slot = own.slot(tool);
            match Tool::remembered(tool, cache) {
                Some(known) => drop(slot.set(Ok(known))),
                // It takes a moment, in which the compiler can be asked already.
                None if tool::check_clang(tool).is_ok() || Linker::of(tool).is_some() => {
                    let (cache, path) = (Arc::clone(cache), tool.to_owned());
                    std::thread::spawn(move || {
                        slot.get_or_init(|| Tool::of(&path, &cache));
                    });
                }
                None => {}
            }
        }
        own
    }

    /// Starts the linker that the compiler will most probably name for a CPU: it loads while the compiler is asked.
    fn expect_linker(&self) {
        let Some(words) = &self.context.first_words else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_none() {
            *waiting = self.session.runner.prepare(self.context.host_linker, words, true);
        }
    }

    /// The linker that waits, if it is the one of `linker_command`; else it is gone.
    fn expected(&self, linker_command: &LinkerCommand) -> Option<Waiting> {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let words = self.context.first_words.as_ref()?;
        let told = linker_command
            .args
            .windows(words.len())
            .any(|args| args.iter().map(OsStr::new).eq(words.iter().map(OsString::as_os_str)));
        waiting.filter(|_| told && linker_command.program == self.context.host_linker)
    }

    /// Finds out what `query` is about, or why that cannot be known.
    pub(super) fn know(&self, query: &LinkQuery<'_>) -> std::result::Result<ResolvedLink, String> {
        let linker_command = self.linker_command(query)?;
        let line = Line::read(&linker_command)?;
        let linker = self.tool(&linker_command.program)?;
        let inputs: Vec<Digest> = query.job.inputs.iter().map(|input| Digest::of(&input.bytes)).collect();
        let key = self.key(&linker_command, &linker, &inputs);
        let made = self.made(query, &linker_command, &linker, &inputs);
        Ok(ResolvedLink { linker_command, line, linker, key, inputs, made })
    }

    /// Puts the image of a link that was done before at its place; else says what has changed since.
    pub(super) fn fetch(&self, known: &ResolvedLink, query: &LinkQuery<'_>) -> Result<std::result::Result<(), String>> {
        let step = &query.cmd.step;
        let missing = |why: String| {
            self.cache.count(Event::Miss);
            self.say(|| format!("{step}: not in the cache: {why}"));
            Ok(Err(why))
        };
        let (manifest, index, renewed) = match self.manifest(known.key) {
            Ok(found) => found,
            Err(Some(why)) => return missing(why),
            Err(None) => {
                let last = self.cache.own_record(history::key(query.program, &query.job.target.to_string()));
                let last = last.and_then(|bytes| serde_json::from_slice(&bytes).ok());
                return missing(history::difference(last.as_ref(), &known.made));
            }
        };
        let variant = &manifest.variants[index];
        let image = Digest::parse(&variant.image);
        if !matches!(image.map(|image| self.cache.fetch_blob(image, query.image)), Some(Ok(true))) {
            return missing("its image is not there any more, or damaged".to_owned());
        }
        self.cache.count(Event::Hit);
        let shared = image.is_some_and(|image| self.cache.was_shared(image));
        self.say(|| format!("{step}: found in the {}", if shared { "shared cache" } else { "cache" }));
        self.session.shell.text(&known.linker_command.warnings);
        self.session.shell.text(&variant.said);
        if renewed && let Ok(text) = serde_json::to_vec(&manifest) {
            // A note for the next time, no matter whether it comes to be. Others have no use for stamps of files here.
            let (cache, key) = (Arc::clone(self.cache), known.key);
            self.cache.later(move || cache.put_own_record(key, &text));
        }
        Ok(Ok(()))
    }

    /// What was written down of links with this key, which of them holds, and whether that is to be written down anew; else why none
    /// does, or nothing where nothing is known at all. Others are asked where this machine knows none.
    fn manifest(&self, key: Digest) -> std::result::Result<(Manifest, usize, bool), Option<String>> {
        let own = self.cache.own_record(key);
        let mut manifest = own.as_deref().map(Manifest::read).unwrap_or_default();
        let why = match manifest.find(self.cache.clock().now()) {
            Ok((index, renewed)) => return Ok((manifest, index, renewed)),
            Err(why) => own.map(|_| why),
        };
        let Some(shared) = self.cache.shared_record(key) else { return Err(why) };
        manifest.join(Manifest::of_others(&shared));
        match manifest.find(self.cache.clock().now()) {
            Ok((index, _)) => Ok((manifest, index, true)),
            Err(why) => Err(Some(why)),
        }
    }

    /// Links by the linker itself and keeps what comes of it. `inputs`: the words of its line for the device code; `files`: ours on it.
    pub(super) fn link(
        &self,
        known: ResolvedLink,
        query: &LinkQuery<'_>,
        inputs: &[OsString],
        files: &[PathBuf],
        dependencies: PathBuf,
    ) -> Result<Usage> {
        let dump = query.args.iter().skip_while(|arg| *arg != "-dumpdir").nth(1).cloned().unwrap_or_default();
        let mut args = known.linker_command.filled(inputs, query.image, &dump);
        let mut option = OsString::from("--dependency-file=");
        option.push(&dependencies);
        args.push(option);
        if known.line.linker == Linker::Lld && self.session.shell.is_terminal() {
            // It would not see the terminal through us.
            args.push("--color-diagnostics=always".into());
        }
        self.session.shell.text(&known.linker_command.warnings);
        let cmd = Cmd { program: known.linker_command.program.clone(), args, ..query.cmd.clone() };
        let (begun, clock) = self.begun;
        let (usage, said) = match self.expected(&known.linker_command) {
            None => self.session.runner.run_heard(&cmd)?,
            waiting => self.session.runner.run_waiting(waiting, &cmd)?,
        };
        // The device code is in maps of the user's files: it must still be what the key was made of.
        let unchanged = query.job.inputs.iter().map(|input| Digest::of(&input.bytes)).eq(known.inputs.iter().copied());
        let link = store::FinishedLink {
            line: known.line,
            program: known.linker_command.program,
            linker: known.linker,
            key: known.key,
            image: query.image.to_owned(),
            own: files.to_vec(),
            dependencies,
            said,
            begun,
            clock,
        };
        let last = history::key(query.program, &query.job.target.to_string());
        let kept = if unchanged { link.prepare() } else { Err("its device code changes at the moment".to_owned()) };
        match kept {
            Ok(kept) => {
                let (cache, made) = (Arc::clone(self.cache), known.made);
                let note = self.note(query.cmd.step.clone());
                self.cache.later(move || {
                    if let Ok(text) = serde_json::to_vec(&made) {
                        cache.put_own_record(last, &text);
                    }
                    if let Err(why) = kept.store(&cache) {
                        note(&why);
                    }
                });
            }
            Err(why) => self.note(query.cmd.step.clone())(&why),
        }
        Ok(usage)
    }

    /// Says that a link is not kept, and counts it.
    pub(super) fn pass(&self, step: &str, why: &str) {
        self.cache.count(Event::Uncached);
        self.say(|| format!("{step}: not cached: {why}"));
    }

    fn note(&self, step: String) -> impl Fn(&str) + Send + 'static {
        let shell = Arc::clone(&self.session.shell);
        let verbose = self.verbose;
        move |why| {
            if verbose {
                shell.note(&format!("{step}: not cached: {why}"));
            }
        }
    }

    fn say(&self, text: impl Fn() -> String) {
        if self.verbose {
            self.session.shell.note(&text());
        }
    }

    fn slot(&self, path: &Path) -> Slot {
        let mut tools = self.tools.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(tools.entry(path.to_owned()).or_default())
    }

    /// The tool at `path`, looked at once.
    fn tool(&self, path: &Path) -> std::result::Result<Tool, String> {
        self.slot(path).get_or_init(|| Tool::of(path, self.cache)).clone()
    }

    fn key(&self, linker_command: &LinkerCommand, linker: &Tool, inputs: &[Digest]) -> Digest {
        let mut parts = KeyBuilder::default();
        parts.add("image 1").add(linker.digest.to_string()).add(self.environment.to_string());
        // One executable is several linkers by several names.
        parts.add(linker_command.program.file_name().unwrap_or_default().as_encoded_bytes());
        parts.add((linker_command.args.len() as u64).to_le_bytes());
        linker_command.args.iter().for_each(|arg| {
            parts.add(arg);
        });
        inputs.iter().for_each(|input| {
            parts.add(input.to_string());
        });
        parts.digest()
    }

    fn made(&self, query: &LinkQuery<'_>, linker_command: &LinkerCommand, linker: &Tool, inputs: &[Digest]) -> history::KeyParts {
        let named = query.job.inputs.iter().zip(inputs);
        let mut made: history::KeyParts =
            named.map(|(input, digest)| (format!("the device code of {}", input.origin), digest.to_string())).collect();
        made.insert(format!("the linker {}", linker_command.program.display()), linker.digest.to_string());
        let mut command = KeyBuilder::default();
        linker_command.args.iter().for_each(|arg| {
            command.add(arg);
        });
        made.insert("the command".to_owned(), command.digest().to_string());
        made.insert("the environment".to_owned(), self.environment.to_string());
        made
    }
}

/// The variables that compilers and linkers read.
fn environment() -> Digest {
    let mut read: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            session::TOOL_VARIABLES.contains(&name.as_ref())
                || session::TOOL_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        })
        .collect();
    read.sort();
    let mut parts = KeyBuilder::default();
    for (name, value) in read {
        parts.add(name.as_encoded_bytes()).add(value.as_encoded_bytes());
    }
    parts.digest()
}
