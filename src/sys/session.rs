//! The [`Session`]: the objects through which a link affects the outside (command runner, temporary
//! directory, messages, signals, time trace). It is created once in `cli/` and passed to every
//! stage. Also the names of the environment variables that offld reads; `args::settings` has those
//! of a link's settings.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::args::settings::OFFLD_SHARED_TMP;
pub(crate) use crate::args::settings::{OFFLD_CACHE, OFFLD_CACHE_LOG};
use crate::sys::launcher::Launcher;
use crate::sys::run::{Dry, Real, Run};
use crate::sys::scratch::Scratch;
use crate::sys::shell::Shell;
use crate::sys::signals::Signals;
use crate::sys::trace::Trace;

/// Path of the program that generates registration code with LLVM.
pub(crate) const OFFLD_LLVM: &str = "OFFLD_LLVM";
/// Time limit of that program for one request, in seconds.
pub(crate) const OFFLD_LLVM_TIMEOUT: &str = "OFFLD_LLVM_TIMEOUT";
/// URL of the remote cache.
pub(crate) const OFFLD_CACHE_REMOTE: &str = "OFFLD_CACHE_REMOTE";
/// `1`: nothing is written to the remote cache.
pub(crate) const OFFLD_CACHE_REMOTE_READONLY: &str = "OFFLD_CACHE_REMOTE_READONLY";
/// Time limit of one request to the remote cache, in seconds.
pub(crate) const OFFLD_CACHE_REMOTE_TIMEOUT: &str = "OFFLD_CACHE_REMOTE_TIMEOUT";
/// File with the key that signs records and images of the remote cache.
pub(crate) const OFFLD_CACHE_KEY: &str = "OFFLD_CACHE_KEY";
/// Size limit of that cache: `500M`, `5G`.
pub(crate) const OFFLD_CACHE_SIZE: &str = "OFFLD_CACHE_SIZE";
/// Root directory for the system's memory files, instead of `/`.
pub(crate) const OFFLD_MEMORY_ROOT: &str = "OFFLD_MEMORY_ROOT";
/// Set by offld for the programs that it starts: a link within a device link must not wait for that
/// one.
pub(crate) const OFFLD_WITHIN: &str = "OFFLD_WITHIN";
/// Runtime directory of the user's session (XDG base directories).
pub(crate) const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Root directory for the files that describe this machine's devices, instead of `/`.
pub(crate) const OFFLD_NATIVE_ROOT: &str = "OFFLD_NATIVE_ROOT";
/// The user's cache directory (XDG base directories).
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's home directory.
pub(crate) const HOME: &str = "HOME";
/// Directories of shared libraries, which GNU ld also searches.
pub(crate) const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Directories of libraries, which GCC and NVIDIA's linker also search.
pub(crate) const LIBRARY_PATH: &str = "LIBRARY_PATH";
/// Set by make: its options, and the address of its jobserver.
pub(crate) const MAKEFLAGS: &str = "MAKEFLAGS";
/// Directories in which programs are looked up.
pub(crate) const PATH: &str = "PATH";
/// Directories in which compilers look for the tools that they run.
pub(crate) const COMPILER_PATH: &str = "COMPILER_PATH";
/// The active Python environment: PyPI packages may contain CUDA's tools.
pub(crate) const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// `1`: the bundler ignores its other variables.
pub(crate) const OFFLOAD_BUNDLER_IGNORE_ENV_VAR: &str = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR";
/// `1`: the bundler reports compression and decompression.
pub(crate) const OFFLOAD_BUNDLER_VERBOSE: &str = "OFFLOAD_BUNDLER_VERBOSE";
/// `1`: the bundler compresses.
pub(crate) const OFFLOAD_BUNDLER_COMPRESS: &str = "OFFLOAD_BUNDLER_COMPRESS";
/// Compression level of the bundler.
pub(crate) const OFFLOAD_BUNDLER_COMPRESSION_LEVEL: &str = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL";
/// `2` or `3`: header version of the compressed bundles that are written.
pub(crate) const COMPRESSED_BUNDLE_FORMAT_VERSION: &str = "COMPRESSED_BUNDLE_FORMAT_VERSION";
/// Directories that GNU ld writes into its output as run path, and searches.
pub(crate) const LD_RUN_PATH: &str = "LD_RUN_PATH";
/// Libraries that are loaded before all others.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";
/// Libraries that observe the loader, and may change its decisions.
pub(crate) const LD_AUDIT: &str = "LD_AUDIT";
/// If set, ld.lld writes a reproduction.
pub(crate) const LLD_REPRODUCE: &str = "LLD_REPRODUCE";
/// Other variables that compilers and linkers read. Their values are part of the cache key of a
/// device link.
pub(crate) const TOOL_VARIABLES: [&str; 12] = [
    COMPILER_PATH,
    LIBRARY_PATH,
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "SDKROOT",
    "SYSROOT",
    "GNUTARGET",
    "LDEMULATION",
    "SOURCE_DATE_EPOCH",
    "LANG",
    "VIRTUAL_ENV",
];
/// Prefixes of further such variables.
pub(crate) const TOOL_PREFIXES: [&str; 13] = [
    "LLVM_",
    "LLD_",
    "CLANG_",
    "CCC_",
    "LD_",
    "GCC_",
    "COLLECT_",
    "CUDA_",
    "HIP_",
    "ROCM_",
    "NVCC_",
    "LC_",
    "QA_OVERRIDE_GCC3_",
];
/// Variables that name the directory for temporary files. The first that is set counts, in LLVM's
/// order.
const TEMP: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// The objects through which one process affects the outside.
pub struct Session {
    /// Prints messages.
    pub shell: Arc<Shell>,
    /// Runs other programs.
    pub runner: Box<dyn Run>,
    /// Names temporary files.
    pub scratch: Arc<Scratch>,
    /// Handles signals.
    pub signals: Arc<Signals>,
    /// The time trace, which records nothing unless one was requested.
    pub trace: Trace,
    /// Runs device links on other machines, if one is set.
    pub(crate) launcher: Option<Launcher>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}

/// Options of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Print commands instead of running them.
    pub dry_run: bool,
    /// Print commands before running them.
    pub verbose: bool,
    /// Leave temporary files in `kept_in`.
    pub save_temps: bool,
    /// Directory for temporary files that stay; an empty path is the current directory.
    pub kept_in: PathBuf,
    /// File for a time trace.
    pub time_trace: Option<PathBuf>,
    /// Shortest span of a trace, in microseconds.
    pub time_trace_granularity: u32,
    /// The process belongs to a caller of the library: it gets no signal handlers, and is not
    /// replaced by another program.
    pub embedded: bool,
    /// Directory for temporary files, if it is not the system's.
    pub temp_folder: Option<PathBuf>,
}

impl Session {
    /// Creates the session of this process.
    pub fn new(shell: Arc<Shell>, options: SessionOptions) -> Self {
        let temporary = || options.temp_folder.clone().unwrap_or_else(temp_folder);
        let folder = if options.save_temps {
            options.kept_in.clone()
        } else {
            temporary()
        };
        let scratch = Arc::new(Scratch::new(folder, options.save_temps));
        let signals = Arc::new(Signals::default());
        if options.embedded {
            signals.leave_alone();
        }
        let runner: Box<dyn Run> = if options.dry_run {
            Box::new(Dry {
                shell: Arc::clone(&shell),
            })
        } else {
            let (shell, scratch, signals) = (
                Arc::clone(&shell),
                Arc::clone(&scratch),
                Arc::clone(&signals),
            );
            Box::new(Real {
                shell,
                verbose: options.verbose,
                embedded: options.embedded,
                scratch,
                signals,
            })
        };
        let trace = Trace::new(
            options.time_trace,
            options.time_trace_granularity,
            shell.name(),
        );
        Session {
            shell,
            runner,
            scratch,
            signals,
            trace,
            launcher: None,
        }
    }

    /// The session of a command that has no options for it.
    pub(crate) fn of(shell: &Arc<Shell>) -> Self {
        Session::new(Arc::clone(shell), SessionOptions::default())
    }

    /// After commands were printed, notes that the temporary files that they name are gone.
    pub(crate) fn tell_of_removed_files(&self) {
        if let Some(folder) = self.scratch.folder() {
            let folder = folder.display();
            self.shell.note(&format!(
                "these commands cannot be run: the files in `{folder}` are removed; pass --save-temps to save them"
            ));
        }
    }

    /// Value of an environment variable, unless it is unset or empty.
    pub fn env(name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }

    /// Names of all environment variables that are set.
    pub(crate) fn env_names() -> impl Iterator<Item = OsString> {
        std::env::vars_os().map(|(name, _)| name)
    }
}

pub(crate) fn temp_folder() -> PathBuf {
    TEMP.iter()
        .find_map(|name| Session::env(name))
        .map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// Text for messages: the directory for temporary files, and the variable that sets it, if one
/// does.
pub(crate) fn shown_temp_folder(folder: &Path) -> String {
    let sets_it =
        |name: &&&str| Session::env(name).is_some_and(|value| Path::new(&value) == folder);
    let named = [OFFLD_SHARED_TMP]
        .iter()
        .chain(&TEMP)
        .find(sets_it)
        .map(|name| format!(" (set by {name})"))
        .unwrap_or_default();
    format!("`{}`{named}", folder.display())
}
