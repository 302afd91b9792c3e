//! The [`Session`]: the objects through which a link affects the outside (command runner, temporary folder, messages, signals, time
//! trace), created once in `cli/` and passed to every stage. Also the names of all environment variables that offld reads.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::sys::launcher::Launcher;
use crate::sys::run::{Dry, Real, Run};
use crate::sys::scratch::Scratch;
use crate::sys::shell::Shell;
use crate::sys::signals::Signals;
use crate::sys::trace::Trace;

/// The device compiler, as a path.
pub(crate) const OFFLD_CLANG: &str = "OFFLD_CLANG";
/// The program that generates registration code with LLVM, as a path.
pub(crate) const OFFLD_LLVM: &str = "OFFLD_LLVM";
/// How long that program may take for one request, in seconds.
pub(crate) const OFFLD_LLVM_TIMEOUT: &str = "OFFLD_LLVM_TIMEOUT";
/// Whether ThinLTO's units are compiled one by one: `auto`, `on` or `off`.
pub(crate) const OFFLD_DISTRIBUTE: &str = "OFFLD_DISTRIBUTE";
/// Whether images are put into a program after its host link: `auto`, `on` or `off`.
pub(crate) const OFFLD_LATE_IMAGES: &str = "OFFLD_LATE_IMAGES";
/// Into how many parts full LTO for AMD's GPUs divides the code that it generates: `auto` or a number.
pub(crate) const OFFLD_LTO_PARTITIONS: &str = "OFFLD_LTO_PARTITIONS";
/// The real host linker of `ld.offld`, as a path or a name to look up.
pub(crate) const OFFLD_LINKER: &str = "OFFLD_LINKER";
/// A folder in which a reproduction of every link with device code is written.
pub(crate) const OFFLD_REPRODUCE: &str = "OFFLD_REPRODUCE";
/// The URL of a cache that is shared with other machines.
pub(crate) const OFFLD_CACHE_REMOTE: &str = "OFFLD_CACHE_REMOTE";
/// `1`: nothing is written to the shared cache.
pub(crate) const OFFLD_CACHE_REMOTE_READONLY: &str = "OFFLD_CACHE_REMOTE_READONLY";
/// How long one request to the shared cache may take, in seconds.
pub(crate) const OFFLD_CACHE_REMOTE_TIMEOUT: &str = "OFFLD_CACHE_REMOTE_TIMEOUT";
/// The file of the key that records and images of the shared cache are signed with.
pub(crate) const OFFLD_CACHE_KEY: &str = "OFFLD_CACHE_KEY";
/// The folder of the cache of device links, or `off`.
pub(crate) const OFFLD_CACHE: &str = "OFFLD_CACHE";
/// The size limit of that cache: `500M`, `5G`.
pub(crate) const OFFLD_CACHE_SIZE: &str = "OFFLD_CACHE_SIZE";
/// The file to which each device link appends a line that says what became of it.
pub(crate) const OFFLD_CACHE_LOG: &str = "OFFLD_CACHE_LOG";
/// How much memory all device links may take: a size, `auto` or `off`.
pub(crate) const OFFLD_MEMORY: &str = "OFFLD_MEMORY";
/// The folder that the system's files about memory are read below, instead of `/`.
pub(crate) const OFFLD_MEMORY_ROOT: &str = "OFFLD_MEMORY_ROOT";
/// A command that runs device links on other machines.
pub(crate) const OFFLD_LAUNCHER: &str = "OFFLD_LAUNCHER";
/// How long a job may wait in its queue, in seconds.
pub(crate) const OFFLD_LAUNCHER_WAIT: &str = "OFFLD_LAUNCHER_WAIT";
/// How many jobs it runs at once.
pub(crate) const OFFLD_REMOTE_JOBS: &str = "OFFLD_REMOTE_JOBS";
/// The folder for the temporary files of a link that uses it, which all machines see.
pub(crate) const OFFLD_SHARED_TMP: &str = "OFFLD_SHARED_TMP";
/// Set by offld for what it starts: a link within a device link must not wait for that one.
pub(crate) const OFFLD_WITHIN: &str = "OFFLD_WITHIN";
/// The folder of the user's session (XDG base directories).
pub(crate) const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// The folder that this machine's devices are read below, instead of `/`.
pub(crate) const OFFLD_NATIVE_ROOT: &str = "OFFLD_NATIVE_ROOT";
/// The user's folder for caches (XDG base directories).
pub(crate) const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's home folder.
pub(crate) const HOME: &str = "HOME";
/// Folders of shared libraries, which GNU ld searches as well.
pub(crate) const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Folders of libraries, which GCC and NVIDIA's linker search as well.
pub(crate) const LIBRARY_PATH: &str = "LIBRARY_PATH";
/// Set by make: its options, and how to reach its jobserver.
pub(crate) const MAKEFLAGS: &str = "MAKEFLAGS";
/// Folders that programs are looked up in.
pub(crate) const PATH: &str = "PATH";
/// Folders in which compilers look for the tools that they run.
pub(crate) const COMPILER_PATH: &str = "COMPILER_PATH";
/// The Python environment that is active: PyPI packages may hold CUDA's tools.
pub(crate) const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// Folders separated by semicolons in which Microsoft's linkers and lld-link search for libraries, after those of the command line.
pub(crate) const LIB: &str = "LIB";
/// `1`: the bundler ignores its other variables.
pub(crate) const OFFLOAD_BUNDLER_IGNORE_ENV_VAR: &str = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR";
/// `1`: the bundler reports what it compresses and decompresses.
pub(crate) const OFFLOAD_BUNDLER_VERBOSE: &str = "OFFLOAD_BUNDLER_VERBOSE";
/// `1`: the bundler compresses.
pub(crate) const OFFLOAD_BUNDLER_COMPRESS: &str = "OFFLOAD_BUNDLER_COMPRESS";
/// The bundler's compression level.
pub(crate) const OFFLOAD_BUNDLER_COMPRESSION_LEVEL: &str = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL";
/// `2` or `3`: the header version of the compressed bundles that are written.
pub(crate) const COMPRESSED_BUNDLE_FORMAT_VERSION: &str = "COMPRESSED_BUNDLE_FORMAT_VERSION";
/// Folders that GNU ld writes into its output as run path, and searches.
pub(crate) const LD_RUN_PATH: &str = "LD_RUN_PATH";
/// Libraries loaded before all others.
pub(crate) const LD_PRELOAD: &str = "LD_PRELOAD";
/// Libraries that are loaded to watch what the loader does, and may change it.
pub(crate) const LD_AUDIT: &str = "LD_AUDIT";
/// Set: ld.lld writes a reproduction.
pub(crate) const LLD_REPRODUCE: &str = "LLD_REPRODUCE";
/// Other variables that compilers and linkers read: their values are part of the cache key of a device link.
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
/// The same, for all variables whose names begin with one of these.
pub(crate) const TOOL_PREFIXES: [&str; 13] =
    ["LLVM_", "LLD_", "CLANG_", "CCC_", "LD_", "GCC_", "COLLECT_", "CUDA_", "HIP_", "ROCM_", "NVCC_", "LC_", "QA_OVERRIDE_GCC3_"];
/// Where temporary files go: the first that is set, in LLVM's order.
const TEMP: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// The objects through which one process affects the outside.
pub struct Session {
    /// Messages.
    pub shell: Arc<Shell>,
    /// Runs other programs.
    pub runner: Box<dyn Run>,
    /// Temporary files.
    pub scratch: Arc<Scratch>,
    /// Signals.
    pub signals: Arc<Signals>,
    /// The time trace, which records nothing unless one was requested.
    pub trace: Trace,
    /// What runs device links on other machines, if anything does.
    pub(crate) launcher: Option<Launcher>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("scratch", &self.scratch).finish_non_exhaustive()
    }
}

/// How a session behaves.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Show commands instead of running them.
    pub dry_run: bool,
    /// Show commands before running them.
    pub verbose: bool,
    /// Leave temporary files in the current folder.
    pub save_temps: bool,
    /// Where a time trace goes.
    pub time_trace: Option<PathBuf>,
    /// The shortest span of a trace, in microseconds.
    pub time_trace_granularity: u32,
    /// The process belongs to somebody else, who uses this crate as a library: it gets no signal handlers, and is not replaced by
    /// another program.
    pub embedded: bool,
    /// The folder for temporary files, where it is not the system's.
    pub temp_folder: Option<PathBuf>,
}

impl Session {
    /// A session for this process.
    pub fn new(shell: Arc<Shell>, options: SessionOptions) -> Self {
        let scratch = Arc::new(Scratch::new(options.temp_folder.unwrap_or_else(temp_folder), options.save_temps));
        let signals = Arc::new(Signals::default());
        if options.embedded {
            signals.leave_alone();
        }
        let runner: Box<dyn Run> = if options.dry_run {
            Box::new(Dry { shell: Arc::clone(&shell) })
        } else {
            let (shell, scratch, signals) = (Arc::clone(&shell), Arc::clone(&scratch), Arc::clone(&signals));
            Box::new(Real { shell, verbose: options.verbose, embedded: options.embedded, scratch, signals })
        };
        let trace = Trace::new(options.time_trace, options.time_trace_granularity, shell.name());
        Session { shell, runner, scratch, signals, trace, launcher: None }
    }

    /// After commands have been shown: that the files which they name are gone, where they are.
    pub(crate) fn tell_of_removed_files(&self) {
        if let Some(folder) = self.scratch.folder() {
            let folder = folder.display();
            self.shell
                .note(&format!("these commands cannot be run: what is in `{folder}` is removed now, and kept with --save-temps"));
        }
    }

    /// The value of an environment variable, unless it is unset or empty.
    pub fn env(name: &str) -> Option<OsString> {
        std::env::var_os(name).filter(|value| !value.is_empty())
    }
}

/// The folder for temporary files.
pub(crate) fn temp_folder() -> PathBuf {
    TEMP.iter().find_map(|name| Session::env(name)).map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// The folder for temporary files in a message: with the variable that names it, if one does.
pub(crate) fn shown_temp_folder(folder: &Path) -> String {
    let is_it = |name: &&&str| Session::env(name).is_some_and(|value| Path::new(&value) == folder);
    let named =
        [OFFLD_SHARED_TMP].iter().chain(&TEMP).find(is_it).map(|name| format!(", which {name} names")).unwrap_or_default();
    format!("`{}`{named}", folder.display())
}
