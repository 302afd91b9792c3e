//! Device link cache: finds images by everything that determines their contents.
//!
//! The key of an image consists of its device code, the linker's arguments, the linker itself and
//! the environment. In addition, a manifest ([`Manifest`]) records the other files that the linker
//! read. A cached image is valid only while those are unchanged.
//!
//! The compiler provides the linker's arguments (`linker_command`). offld then runs the linker
//! directly, with an option that lists the files it reads.
//!
//! If the inputs of a link cannot be fully determined, the link is not cached, and a note gives the
//! reason. The compiler then runs it as without a cache.

mod driver_files;
mod file_snapshot;
pub(crate) mod history;
mod libraries;
mod linker_args;
mod linker_command;
mod linker_reads;
mod nvidia;
mod reads;
mod store;
mod thin;
mod tool;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use anyhow::Result;

use super::DeviceContext;
use super::distribution::Distribution;
use super::messages::{Hit, LogLine};
use super::running::{Attempt, Completed, RunContext};
use crate::args::{gnu_ld, joined};
use crate::build_log::{Cost, Outcome, now_us};
use crate::link::inputs::worth_threads;
use crate::link::select::DeviceJob;
use offld_system::clock::Moment;
use offld_system::environment;
use offld_system::run::{Cmd, PreloadedLinker};
use offld_system::session::Session;
use offld_system::signals::Usage;
use offld_system::store::{BlobName, Cache, Digest, Event, Key, KeyBuilder, Scope};
use offld_system::threads::{self, lock};

pub(super) use file_snapshot::digest as digest_of_file;
use history::{History, KeyParts, Miss, PastLink, Place};
use linker_args::{Linker, LinkerArgs, LinkerCommand};
use store::Manifest;
use thin::ThinCache;
pub(crate) use tool::Tool;

/// Placeholder for the inputs. It must be an existing file whose name does not reveal a file type
/// to the compiler.
pub(super) const INPUT: &str = "/dev/null";
/// Placeholder for the image: an unwritable path, in case a compiler ignores `-###` and runs the
/// link.
pub(super) const OUTPUT: &str = "/dev/null/image";
/// Placeholder for the prefix of further outputs (`-dumpdir`).
const DUMP: &str = "/dev/null/dump.";

/// The identity of a tool, computed once. Concurrent callers block until it is known.
type SharedTool = Arc<OnceLock<Result<Tool, String>>>;

/// The compiler's answer to one query, computed once. Concurrent callers block until it is known.
type SharedLinkerCommand = Arc<Mutex<Option<Result<LinkerCommand, String>>>>;

/// The cache for the device links of one run.
pub(super) struct DeviceCache<'a> {
    cache: &'a Arc<Cache>,
    context: &'a DeviceContext<'a>,
    session: &'a Session,
    environment: Digest,
    verbose: bool,
    /// The creation time. No tool was started and no file was read before it.
    begun: Moment,
    tools: Mutex<HashMap<PathBuf, SharedTool>>,
    linker_commands: Mutex<HashMap<Vec<OsString>, SharedLinkerCommand>>,
    /// A linker that was started early and is loading.
    preloaded: Mutex<Option<PreloadedLinker>>,
}

/// Describes a job for its lookup in the cache.
pub(super) struct LinkQuery<'a> {
    pub(super) job: &'a DeviceJob<'a>,
    /// The compiler command that links the job without a cache.
    pub(super) cmd: &'a Cmd,
    /// The compiler's arguments, with the placeholders [`INPUT`] and [`OUTPUT`].
    pub(super) args: &'a [OsString],
    /// The output path of the image.
    pub(super) image: &'a Path,
    /// The path of the linked program. It identifies the link from one build to the next, so that a
    /// miss can report changes.
    pub(super) program: &'a Path,
}

/// A link whose cache key and linker command are known.
pub(super) struct ResolvedLink {
    linker_command: LinkerCommand,
    linker_args: LinkerArgs,
    /// The linker and the programs that it runs.
    tools: Vec<Tool>,
    key: Key,
    inputs: Vec<Digest>,
    /// The reason of the miss.
    pub(super) miss: Miss,
}

/// The inputs of one linker run that are not part of its cached command.
pub(super) struct LinkFiles<'a> {
    /// The linker arguments for the device code.
    pub(super) args: &'a [OsString],
    /// The temporary files that those arguments name.
    pub(super) files: &'a [PathBuf],
    /// The path for the linker's dependency file.
    pub(super) dependencies: PathBuf,
    /// Set if the ThinLTO units are compiled as separate jobs.
    pub(super) distribution: Option<Distribution>,
}

/// The manifest entry of a link whose files are unchanged.
struct Found {
    manifest: Manifest,
    /// The entry's index.
    index: usize,
    /// Whether the manifest must be written again.
    renewed: bool,
}

/// Stores a finished link with its cost in the cache, or returns the reason why it cannot.
pub(super) type Keep = Box<dyn FnOnce(Cost) -> std::result::Result<(), String> + Send>;

impl ResolvedLink {
    pub(super) fn is_lld(&self) -> bool {
        self.linker_args.linker == Linker::Lld
    }

    /// The path of the linker.
    pub(super) fn linker(&self) -> &Path {
        &self.linker_command.program
    }

    /// The linker's arguments, with placeholders for inputs and image.
    pub(super) fn words(&self) -> &[String] {
        &self.linker_command.args
    }

    /// Whether the linker may get the device code as one archive. The image is the same unless
    /// `--exclude-libs` treats archive members differently.
    pub(super) fn takes_archives(&self) -> bool {
        self.linker_args.linker != Linker::Nvidia
            && !self.linker_command.args.iter().any(|arg| {
                arg.trim_start_matches('-').starts_with("exclude-libs")
                    || gnu_ld::abbreviated(arg).contains(&"exclude-libs")
            })
    }
}

impl<'a> DeviceCache<'a> {
    /// Creates the cache for the links of one run.
    pub(super) fn new(
        cache: &'a Arc<Cache>,
        context: &'a DeviceContext<'a>,
        session: &'a Session,
    ) -> Self {
        let verbose = context.settings.run.verbose;
        let own = DeviceCache {
            cache,
            context,
            session,
            environment: environment_digest(),
            verbose,
            begun: cache.clock().moment(),
            tools: Mutex::default(),
            linker_commands: Mutex::default(),
            preloaded: Mutex::default(),
        };
        // A tool without a record is inspected later, while the compiler runs (`linker_command`).
        // The device linker is most probably the host linker.
        for tool in [&context.compiler.path, context.host_linker] {
            if let Some(known) = Tool::from_record(tool, cache) {
                let _ = own.shared_tool(tool).set(Ok(known));
            }
        }
        own
    }

    /// Starts the linker that the compiler will most probably choose for a CPU, so that it loads
    /// while the compiler runs.
    fn preload_linker(&self) {
        let Some(args) = self
            .context
            .preload_args
            .as_ref()
            .filter(|_| self.session.launcher.is_none())
        else {
            return;
        };
        let mut preloaded = lock(&self.preloaded);
        if preloaded.is_none() {
            *preloaded = self
                .session
                .runner
                .preload(self.context.host_linker, args, true);
        }
    }

    /// Returns the preloaded linker if it matches `linker_command`, else kills it.
    fn take_preloaded(&self, linker_command: &LinkerCommand) -> Option<PreloadedLinker> {
        let preloaded = lock(&self.preloaded).take();
        let args = self.context.preload_args.as_ref()?;
        let has_preload_args = linker_command.args.windows(args.len()).any(|window| {
            window
                .iter()
                .map(OsStr::new)
                .eq(args.iter().map(OsString::as_os_str))
        });
        preloaded.filter(|_| has_preload_args && linker_command.program == self.context.host_linker)
    }

    /// Determines the linker command and the cache key of `query`, or returns the reason why that
    /// is impossible.
    pub(super) fn resolve(
        &self,
        query: &LinkQuery<'_>,
    ) -> std::result::Result<ResolvedLink, String> {
        let linker_command = self.linker_command(query)?;
        let linker_args = LinkerArgs::read(&linker_command)?;
        let programs = std::iter::once(&linker_command.program).chain(&linker_args.tools);
        let tools = programs
            .map(|program| self.tool(program))
            .collect::<std::result::Result<Vec<Tool>, String>>()?;
        let inputs = device_code_digests(query.job);
        let key = self.key(&linker_command, &tools, &inputs);
        Ok(ResolvedLink {
            linker_command,
            linker_args,
            tools,
            key,
            inputs,
            miss: Miss::default(),
        })
    }

    /// The cache key of an image: its device code, its linker, the linker's arguments and the
    /// environment.
    fn key(&self, linker_command: &LinkerCommand, tools: &[Tool], inputs: &[Digest]) -> Key {
        let mut key = self.cache.shared_key("image 5");
        key.add(self.environment.bytes())
            .add((tools.len() as u64).to_le_bytes());
        tools.iter().for_each(|tool| {
            key.add(tool.digest.bytes());
        });
        // One executable can be several linkers, depending on the name it is called by.
        key.add(
            linker_command
                .program
                .file_name()
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
        key.add((linker_command.args.len() as u64).to_le_bytes());
        linker_command.args.iter().for_each(|arg| {
            key.add(arg);
        });
        inputs.iter().for_each(|input| {
            key.add(input.bytes());
        });
        key.key()
    }

    /// The parts of the key, for the history: the next cache miss can report the changes.
    fn key_parts(&self, query: &LinkQuery<'_>, resolved: &ResolvedLink) -> KeyParts {
        let ResolvedLink {
            linker_command,
            linker_args,
            tools,
            inputs,
            ..
        } = resolved;
        let named = query.job.inputs.iter().zip(inputs);
        let programs = std::iter::once(&linker_command.program).chain(&linker_args.tools);
        KeyParts {
            inputs: named
                .map(|(input, digest)| (input.origin.to_string(), digest.to_string()))
                .collect(),
            kernels: query.job.registered.clone(),
            stable_names: query.job.stable_names,
            linkers: programs
                .zip(tools)
                .map(|(program, tool)| (program.display().to_string(), tool.digest.to_string()))
                .collect(),
            arguments: linker_command.args.clone(),
            variables: variables()
                .into_iter()
                .map(|(name, value)| {
                    let text = |text: OsString| text.to_string_lossy().into_owned();
                    (text(name), text(value))
                })
                .collect(),
            signing_key: self.cache.trust().map(|trust| trust.to_string()),
        }
    }

    /// Copies the cached image to its output path. On a miss, returns what has changed since the
    /// last link.
    pub(super) fn fetch(
        &self,
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
    ) -> std::result::Result<Hit, Miss> {
        let step = &query.cmd.step;
        let place = Place::of(query.program, &query.job.target.to_string());
        let missing = |why: Miss| {
            self.cache.count(Event::Miss);
            self.note(|| format!("{step}: not in the cache: {}", why.text));
            Err(why)
        };
        let Found {
            manifest,
            index,
            renewed,
        } = match self.manifest(resolved.key) {
            Ok(found) => found,
            Err(Some(why)) => return missing(why.into()),
            Err(None) => {
                let history = History::read(self.cache, &place);
                let changes = |history: History| history.changes(&self.key_parts(query, resolved));
                return missing(Miss::since(history.and_then(changes)));
            }
        };
        let entry = &manifest.entries[index];
        let image = BlobName::parse(&entry.image);
        if image.is_some_and(|image| !self.cache.accepts(image)) {
            let why = "the image was cached before sharing was enabled, with a weaker digest";
            return missing(why.to_owned().into());
        }
        if !matches!(
            image.map(|image| self.cache.fetch_blob(image, query.image, Scope::Shared)),
            Some(Ok(true))
        ) {
            return missing("the image was evicted or is damaged".to_owned().into());
        }
        self.cache.count(Event::Hit);
        let shared = image.is_some_and(|image| self.cache.was_shared(image));
        self.note(|| {
            format!(
                "{step}: found in the {}",
                if shared { "remote cache" } else { "cache" }
            )
        });
        self.session.shell.text(&resolved.linker_command.warnings);
        self.session.shell.text(&entry.stderr);
        let hit = Hit {
            shared,
            saved: entry.cost,
        };
        let key = resolved.key;
        if !history::is_last(self.cache, &place, Outcome::Hit, key.bytes()) {
            let past = PastLink::hit(now_us(), self.key_parts(query, resolved));
            let cache = Arc::clone(self.cache);
            self.cache
                .later(move || history::add(&cache, &place, past, key.bytes()));
        }
        if renewed && let Ok(text) = serde_json::to_vec(&manifest) {
            // The update only avoids reading the files again next time, so errors are ignored. File
            // stats mean nothing on other machines, so it stays local.
            let cache = Arc::clone(self.cache);
            self.cache
                .later(move || cache.put_record(key, &text, Scope::Local));
        }
        Ok(hit)
    }

    /// Finds the manifest entry for `key` whose files are unchanged, in the local cache first and
    /// then in the remote cache.
    ///
    /// The error is the reason of the miss, or `None` if there is no manifest.
    fn manifest(&self, key: Key) -> std::result::Result<Found, Option<String>> {
        let own = self.cache.record(key, Scope::Local);
        let mut manifest = own.as_deref().map(Manifest::read).unwrap_or_default();
        let why = match manifest.find(self.cache.clock().now()) {
            Ok((index, renewed)) => {
                return Ok(Found {
                    manifest,
                    index,
                    renewed,
                });
            }
            Err(why) => own.map(|_| why),
        };
        let Some(shared) = self.cache.record(key, Scope::Remote) else {
            return Err(why);
        };
        manifest.merge(Manifest::from_remote(&shared));
        match manifest.find(self.cache.clock().now()) {
            Ok((index, _)) => Ok(Found {
                manifest,
                index,
                renewed: true,
            }),
            Err(why) => Err(Some(why)),
        }
    }

    /// Returns the linker's arguments for the device code `inputs`. It writes its dependency file to
    /// `dependencies`.
    fn args_for(
        &self,
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
        inputs: &[OsString],
        dependencies: &Path,
    ) -> Vec<OsString> {
        let dump = query
            .args
            .iter()
            .skip_while(|arg| *arg != "-dumpdir")
            .nth(1)
            .cloned()
            .unwrap_or_default();
        let mut args = resolved.linker_command.filled(inputs, query.image, &dump);
        if resolved.linker_args.linker != Linker::Nvidia {
            args.push(joined("--dependency-file=", dependencies));
        }
        if resolved.linker_args.linker == Linker::Lld && self.session.shell.is_terminal() {
            // The linker's stderr is a pipe, so colours must be forced.
            args.push("--color-diagnostics=always".into());
        }
        args
    }

    /// Runs the linker directly. Returns its usage, and a closure that stores the image.
    pub(super) fn link(
        &self,
        resolved: ResolvedLink,
        query: &LinkQuery<'_>,
        LinkFiles {
            args: inputs,
            files,
            dependencies,
            mut distribution,
        }: LinkFiles<'_>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Usage, Keep)> {
        let parts = self.key_parts(query, &resolved);
        let past = PastLink::miss(now_us(), parts, resolved.miss.clone());
        let key = resolved.key;
        let mut args = self.args_for(&resolved, query, inputs, &dependencies);
        // NVIDIA's tools create temporary files in offld's directory, and their messages may name
        // them.
        let nvidia = resolved.linker_args.linker == Linker::Nvidia;
        let temporary_files = files
            .iter()
            .cloned()
            .chain(self.session.scratch.folder().filter(|_| nvidia))
            .collect();
        // If another machine fails during the link, the objects that it left in the ThinLTO cache
        // directory cannot be trusted.
        let units = if attempt.is_launched() || distribution.is_some() {
            None
        } else {
            self.units(&resolved, query)
        };
        args.extend(units.iter().flat_map(ThinCache::arguments));
        args.extend(
            distribution
                .iter_mut()
                .flat_map(|distribution| distribution.arguments(attempt.granted, self.session)),
        );
        self.session.shell.text(&resolved.linker_command.warnings);
        let cmd = Cmd {
            program: resolved.linker_command.program.clone(),
            args,
            ..query.cmd.clone()
        };
        let about_to_read = nvidia::before(&resolved.linker_args, self.begun.time_of_day);
        let compare = if attempt.is_launched() {
            store::read_by_tools(&resolved.tools, &about_to_read)
        } else {
            Vec::new()
        };
        let preloaded = self.take_preloaded(&resolved.linker_command);
        let run_context = RunContext {
            preloaded,
            compare: &compare,
            dependencies: Some(&dependencies),
            ..RunContext::default()
        };
        let done = attempt.run(&cmd, run_context);
        let (Completed { usage, said, ran }, not_kept) = match distribution {
            None => (done?, None),
            Some(distribution) => distribution.ended(done, &cmd, self.verbose, self.session)?,
        };
        // The device code is in memory maps of the user's files, which may have changed since the
        // key was computed.
        let unchanged = device_code_digests(query.job) == resolved.inputs;
        if let Some(units) = units.filter(|_| unchanged) {
            self.keep_units(units, &resolved.tools, query);
        }
        let link = store::FinishedLink {
            linker_args: resolved.linker_args,
            program: resolved.linker_command.program,
            tools: resolved.tools,
            key: resolved.key,
            image: query.image.to_owned(),
            temporary_files,
            dependencies,
            about_to_read,
            stderr: said.stderr,
            begun: self.begun,
        };
        let place = Place::of(query.program, &query.job.target.to_string());
        let entry = match not_kept {
            Some(why) => Err(why),
            None if said.printed => {
                Err("the linker wrote to stdout, which must be repeated on every link".to_owned())
            }
            None if !unchanged => Err("the device code has changed during the link".to_owned()),
            None => link.prepare().and_then(|entry| {
                match ran.and_then(|ran| Some((entry.differing(&ran)?, ran))) {
                    None => Ok(entry),
                    Some((file, ran)) => Err(self.tell_of_file(&file, &ran.node, &cmd.step)),
                }
            }),
        };
        let cache = Arc::clone(self.cache);
        let keep = move |cost| {
            let stored = entry.and_then(|entry| entry.store(&cache, cost));
            match &stored {
                Ok(()) => history::add(&cache, &place, past, key.bytes()),
                Err(why) => {
                    let past = PastLink::uncached(past.time_us, why.clone());
                    history::add(&cache, &place, past, why.as_bytes());
                }
            }
            stored
        };
        Ok((usage, Box::new(keep)))
    }

    /// Stores a link in the background, and completes its `line` in the build log with the outcome.
    pub(super) fn keep(&self, keep: Keep, cost: Cost, step: &str, mut line: LogLine) {
        let shell = Arc::clone(&self.session.shell);
        let (verbose, step) = (self.verbose, step.to_owned());
        self.cache.later(move || {
            if let Err(why) = keep(cost) {
                if verbose {
                    shell.note(&format!("{step}: not cached: {why}"));
                }
                line.not_kept(why);
            }
        });
    }

    /// Warns that a file differs on another machine. Returns the reason not to cache the link.
    fn tell_of_file(&self, file: &Path, node: &str, step: &str) -> String {
        if let Some(launcher) = &self.session.launcher {
            launcher.tell_of_file(file, node, step, self.session);
        }
        format!(
            "`{}` differs between {node} and this machine",
            file.display()
        )
    }

    /// Counts a link that is not cached, and reports and remembers the reason.
    pub(super) fn skip(&self, query: &LinkQuery<'_>, why: &str) {
        self.cache.count(Event::Uncached);
        self.note(|| format!("{}: not cached: {why}", query.cmd.step));
        let place = Place::of(query.program, &query.job.target.to_string());
        if !history::is_last(self.cache, &place, Outcome::Uncached, why.as_bytes()) {
            let (cache, why) = (Arc::clone(self.cache), why.to_owned());
            self.cache.later(move || {
                let past = PastLink::uncached(now_us(), why.clone());
                history::add(&cache, &place, past, why.as_bytes());
            });
        }
    }

    fn note(&self, text: impl Fn() -> String) {
        if self.verbose {
            self.session.shell.note(&text());
        }
    }

    fn shared_tool(&self, path: &Path) -> SharedTool {
        let mut tools = lock(&self.tools);
        Arc::clone(tools.entry(path.to_owned()).or_default())
    }

    /// Returns the identity of the tool at `path`, computed once.
    fn tool(&self, path: &Path) -> std::result::Result<Tool, String> {
        self.shared_tool(path)
            .get_or_init(|| Tool::of(path, self.cache))
            .clone()
    }
}

/// Computes the digests of a job's device code, in order. Large inputs use all threads.
fn device_code_digests(job: &DeviceJob<'_>) -> Vec<Digest> {
    let known = job.inputs.iter().map(|input| input.bytes.known_digest());
    let known: Vec<Option<&Digest>> = known.collect();
    let unknown = job
        .inputs
        .iter()
        .zip(&known)
        .filter(|(_, known)| known.is_none());
    let contents: Vec<&[u8]> = unknown.map(|(input, _)| input.bytes.to_link()).collect();
    let read = if worth_threads(contents.iter().map(|bytes| bytes.len())) {
        threads::in_parallel(|| Digest::of_all(&contents))
    } else {
        contents.into_iter().map(Digest::of).collect()
    };
    let mut read = read.into_iter();
    known
        .into_iter()
        .filter_map(|known| known.cloned().or_else(|| read.next()))
        .collect()
}

/// Computes the digest of the environment variables that compilers and linkers read.
pub(super) fn environment_digest() -> Digest {
    let mut key = KeyBuilder::default();
    for (name, value) in variables() {
        key.add(name.as_encoded_bytes())
            .add(value.as_encoded_bytes());
    }
    key.digest()
}

/// The environment variables that compilers and linkers read, sorted.
fn variables() -> Vec<(OsString, OsString)> {
    let mut read: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| {
            let name = name.to_string_lossy();
            environment::TOOL_VARIABLES.contains(&name.as_ref())
                || environment::TOOL_PREFIXES
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        })
        .collect();
    read.sort();
    read
}
