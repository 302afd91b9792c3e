//! Descriptions of the environment variables, for the manual pages.

use super::Family;

/// An environment variable, the tools that read it, and its meaning.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) of: &'static [Family],
    pub(super) help: &'static str,
}

const LINK: &[Family] = &[Family::Link];
const LLVM: &[Family] = &[Family::Link, Family::Wrapper];
/// Read by `offld check`, `offld doctor` and `offld size`, not by an emulated tool.
const NATIVE: &[Family] = &[];
const BUNDLER: &[Family] = &[Family::Bundler];
const ALL: &[Family] = &[
    Family::Link,
    Family::Bundler,
    Family::Packager,
    Family::Wrapper,
];

const fn row(name: &'static str, of: &'static [Family], help: &'static str) -> Variable {
    Variable { name, of, help }
}

/// Every variable that offld itself reads, ordered by name.
pub(super) const VARIABLES: &[Variable] = &[
    row(
        "COLUMNS",
        ALL,
        "Width of the output if stdout is not a terminal.",
    ),
    row(
        "COMPILER_PATH",
        LINK,
        "Directories in which clang searches for linkers. A new linker in one of the directories invalidates cached device links.",
    ),
    row(
        "COMPRESSED_BUNDLE_FORMAT_VERSION",
        BUNDLER,
        "Version of compressed bundles to write: 2 or 3 [default: 3].",
    ),
    row(
        "HOME",
        LINK,
        "Home directory; the default of XDG_CACHE_HOME is HOME/.cache.",
    ),
    row(
        "LC_ALL",
        ALL,
        "Locale; if set and not UTF-8, the output is ASCII [default: LC_CTYPE, then LANG].",
    ),
    row(
        "LD_LIBRARY_PATH",
        LINK,
        "Directories that GNU ld and `offld check` search for needed shared libraries.",
    ),
    row(
        "LD_RUN_PATH",
        LINK,
        "Run path that GNU ld writes to the output, and searches for needed shared libraries.",
    ),
    row(
        "LIB",
        LINK,
        "Directories, separated by semicolons, that Microsoft's linkers and lld-link search for libraries.",
    ),
    row(
        "LIBRARY_PATH",
        LINK,
        "Directories in which NVIDIA's linker searches for libraries. If LIBRARY_PATH is set, NVIDIA device links are not cached.",
    ),
    row(
        "MAKEFLAGS",
        LINK,
        "Options from the program make: its jobserver limits parallel device links, and -j1 allows one at a time.",
    ),
    row("NO_COLOR", ALL, "If set, messages have no colors."),
    row(
        "OFFLD_CACHE",
        LINK,
        "Directory of the cache, or off; --wrapper-cache= takes precedence [default: XDG_CACHE_HOME/offld].",
    ),
    row(
        "OFFLD_CACHE_KEY",
        LINK,
        "File with the key that signs entries of the remote cache: at least 32 bytes, readable only by the owner.",
    ),
    row(
        "OFFLD_CACHE_LOG",
        LINK,
        "Build log, a file to which each device link appends a line of JSON: the cache result, the cause of a miss, and the cost.",
    ),
    row(
        "OFFLD_CACHE_REMOTE",
        LINK,
        "URL of the remote cache: redis://, s3://, https://, file://.",
    ),
    row(
        "OFFLD_CACHE_REMOTE_READONLY",
        LINK,
        "1: write nothing to the remote cache.",
    ),
    row(
        "OFFLD_CACHE_REMOTE_TIMEOUT",
        LINK,
        "Time limit of one request to the remote cache, in seconds [default: 2].",
    ),
    row(
        "OFFLD_CACHE_SIZE",
        LINK,
        "Size limit of the cache: bytes, a size such as 500M, or 0 to turn the cache off [default: 5G].",
    ),
    row(
        "OFFLD_CLANG",
        LINK,
        "Device compiler, as a path or a name on PATH; --offld-clang= takes precedence.",
    ),
    row(
        "OFFLD_DISTRIBUTE",
        LINK,
        "Compile and cache each ThinLTO translation unit separately: auto, on or off; --wrapper-distribute= takes precedence [default: auto].",
    ),
    row(
        "OFFLD_LATE_IMAGES",
        LINK,
        "Insert images into a program after the host link: auto, on or off; --wrapper-late-images= takes precedence [default: auto].",
    ),
    row(
        "OFFLD_LAUNCHER",
        LINK,
        "Command that runs device links on other machines; for example, srun -n1 -c{threads} --mem={mem}M. offld splits the command as a shell does, and replaces {threads}, {mem} (MiB) and {job} (name of the job). --wrapper-launcher= takes precedence.",
    ),
    row(
        "OFFLD_LAUNCHER_WAIT",
        LINK,
        "Seconds that a job may wait in the launcher's queue before this machine runs the job; --wrapper-launcher-wait= takes precedence [default: 600].",
    ),
    row(
        "OFFLD_LINKER",
        LINK,
        "Host linker of ld.offld, as a path or a name on PATH; --offld-linker= takes precedence.",
    ),
    row(
        "OFFLD_LLVM",
        LLVM,
        "Path of the program offld-llvm [default: next to offld, then in ../libexec/offld].",
    ),
    row(
        "OFFLD_LLVM_TIMEOUT",
        LLVM,
        "Time limit of offld-llvm for one request, in seconds [default: 120].",
    ),
    row(
        "OFFLD_LTO_PARTITIONS",
        LINK,
        "Number of parallel partitions of full-LTO code generation for AMD GPUs, or auto; --wrapper-lto-partitions= takes precedence [default: clang's default].",
    ),
    row(
        "OFFLD_MEMORY",
        LINK,
        "Memory limit of all device links of this user together: a size such as 8G, auto (free memory) or off; --wrapper-memory= takes precedence [default: auto].",
    ),
    row(
        "OFFLD_MEMORY_ROOT",
        LINK,
        "Directory with the proc and sys that report the free memory, for tests [default: /].",
    ),
    row(
        "OFFLD_NATIVE_ROOT",
        NATIVE,
        "Directory with the proc and sys that describe the devices of this machine, for tests and for examining a container from outside [default: /]. The variable affects offld check --for native, offld doctor, and native in patterns.",
    ),
    row(
        "OFFLD_REMOTE_JOBS",
        LINK,
        "Maximum number of jobs that the launcher runs at the same time; --wrapper-remote-jobs= takes precedence [default: 32].",
    ),
    row(
        "OFFLD_REPRODUCE",
        LINK,
        "Directory in which each link with device code writes a tar file, as with --reproduce=.",
    ),
    row(
        "OFFLD_SHARED_TMP",
        LINK,
        "Directory for temporary files of links with a launcher, at the same path on all machines [default: the directory of the output].",
    ),
    row(
        "OFFLD_STABLE_NAMES",
        LINK,
        "Give OpenMP kernels names that do not depend on the location of the source file: on, objects or off; --wrapper-stable-names= takes precedence [default: on].",
    ),
    row(
        "OFFLD_TIME_TRACE",
        LINK,
        "Directory for time traces of links with device code, one file for each output, as with --wrapper-time-trace=.",
    ),
    row(
        "OFFLD_VERBOSE",
        LINK,
        "1: print commands before they run, as with --wrapper-verbose.",
    ),
    row(
        "OFFLD_WITHIN",
        LINK,
        "Internal; do not set. offld sets OFFLD_WITHIN in child processes, so that a link inside a device link does not wait for the outer link.",
    ),
    row(
        "OFFLOAD_BUNDLER_COMPRESS",
        BUNDLER,
        "1: compress, as with -compress.",
    ),
    row(
        "OFFLOAD_BUNDLER_COMPRESSION_LEVEL",
        BUNDLER,
        "Level of zstd, as with -compression-level=.",
    ),
    row(
        "OFFLOAD_BUNDLER_IGNORE_ENV_VAR",
        BUNDLER,
        "1: ignore the bundler's other variables.",
    ),
    row(
        "OFFLOAD_BUNDLER_VERBOSE",
        BUNDLER,
        "1: report compression and decompression, as with -verbose.",
    ),
    row(
        "PATH",
        LINK,
        "Directories that are searched for clang, the host linker and NVIDIA's tools.",
    ),
    row(
        "RAYON_NUM_THREADS",
        ALL,
        "Number of threads [default: number of CPU cores].",
    ),
    row(
        "TMPDIR",
        ALL,
        "Directory for temporary files [default: TMP, TEMP, TEMPDIR, then /tmp].",
    ),
    row(
        "VIRTUAL_ENV",
        LINK,
        "Python environment whose packages are searched for NVIDIA's tools.",
    ),
    row(
        "XDG_CACHE_HOME",
        LINK,
        "Directory for caches of the user; the default of OFFLD_CACHE is XDG_CACHE_HOME/offld [default: ~/.cache].",
    ),
    row(
        "XDG_RUNTIME_DIR",
        LINK,
        "Session directory of the user. All offld processes register running device links in XDG_RUNTIME_DIR/offld.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_variable_that_is_read() {
        // Variables that only compilers and linkers read are part of a link's cache key. Manual
        // pages do not describe them.
        const OF_TOOLS: [&str; 4] = ["LD_AUDIT", "LD_PRELOAD", "LLD_REPRODUCE", "TMPDIR"];
        let source = include_str!("../../crates/offld-system/src/environment.rs");
        let read = source.lines().filter_map(|line| {
            line.strip_prefix("pub const ")?
                .split_once(": &str = \"")?
                .1
                .strip_suffix("\";")
        });
        let read: Vec<&str> = read.filter(|name| !OF_TOOLS.contains(name)).collect();
        assert!(read.len() > 15, "{read:?}");
        for name in read {
            assert!(
                VARIABLES.iter().any(|variable| variable.name == name),
                "{name} is in no manual page"
            );
        }
        assert!(VARIABLES.is_sorted_by_key(|variable| variable.name));
    }
}
