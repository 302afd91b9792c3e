//! What environment variables mean, for the manual pages.

use super::Family;

/// A variable, whose tools read it, and what it means.
pub(super) struct Variable {
    pub(super) name: &'static str,
    pub(super) of: &'static [Family],
    pub(super) help: &'static str,
}

const LINK: &[Family] = &[Family::Link];
const LLVM: &[Family] = &[Family::Link, Family::Wrapper];
/// Of no name that offld is called by, but of `offld check`, `offld doctor` and `offld size`.
const NATIVE: &[Family] = &[];
const BUNDLER: &[Family] = &[Family::Bundler];
const ALL: &[Family] = &[Family::Link, Family::Bundler, Family::Packager, Family::Wrapper];

const fn row(name: &'static str, of: &'static [Family], help: &'static str) -> Variable {
    Variable { name, of, help }
}

/// Every variable that offld reads for itself, by name.
pub(super) const VARIABLES: &[Variable] = &[
    row(
        "COMPILER_PATH",
        LINK,
        "Folders in which clang looks for linkers; a link in the cache is made again when another one is there.",
    ),
    row("COMPRESSED_BUNDLE_FORMAT_VERSION", BUNDLER, "2 or 3: the version of the compressed bundles that are written."),
    row("HOME", LINK, "The user's folder: the cache is in .cache/offld below it."),
    row(
        "LD_LIBRARY_PATH",
        LINK,
        "Folders of shared libraries, which GNU ld searches as well for the libraries that libraries need.",
    ),
    row("LD_RUN_PATH", LINK, "Folders that GNU ld writes into its output as run path, and searches."),
    row("LIB", LINK, "Folders, separated by semicolons, in which Microsoft's linkers and lld-link search for libraries."),
    row(
        "LIBRARY_PATH",
        LINK,
        "Folders of libraries, which NVIDIA's linker searches as well; device links for its GPUs are not cached where it is set.",
    ),
    row("MAKEFLAGS", LINK, "Set by make: its jobserver says how many device links may run at once, and -j1 means one."),
    row("NO_COLOR", ALL, "Set: no colours in messages."),
    row("OFFLD_CACHE", LINK, "The folder of the cache of device links, or off."),
    row(
        "OFFLD_CACHE_KEY",
        LINK,
        "The file of the key that what is shared is signed with: 32 bytes or more, which nobody but its owner can read.",
    ),
    row(
        "OFFLD_CACHE_LOG",
        LINK,
        "A file to which each device link appends a line of JSON: whether it was in the cache, why not, and what it cost.",
    ),
    row("OFFLD_CACHE_REMOTE", LINK, "The URL of a cache that is shared with other machines: redis://, s3://, https://, file://."),
    row("OFFLD_CACHE_REMOTE_READONLY", LINK, "1: nothing is written to the shared cache."),
    row("OFFLD_CACHE_REMOTE_TIMEOUT", LINK, "How many seconds one request to the shared cache may take."),
    row(
        "OFFLD_CACHE_SIZE",
        LINK,
        "The size limit of the cache: a number of bytes, or something like 500M or 5G; 0 turns it off.",
    ),
    row("OFFLD_CLANG", LINK, "The clang that links device code, as a path or a name on PATH; --offld-clang= wins."),
    row(
        "OFFLD_DISTRIBUTE",
        LINK,
        "auto, on or off: whether ThinLTO's units are compiled one by one, each looked up in the cache; --wrapper-distribute= wins.",
    ),
    row(
        "OFFLD_LATE_IMAGES",
        LINK,
        "auto, on or off: whether images are put into a program after its host link; --wrapper-late-images= wins.",
    ),
    row(
        "OFFLD_LAUNCHER",
        LINK,
        "A command that runs device links on other machines, such as srun -n1 -c{threads} --mem={mem}M; it is split as a shell would, and {threads}, {mem} (MiB) and {job} (a name) are replaced; --wrapper-launcher= wins.",
    ),
    row(
        "OFFLD_LAUNCHER_WAIT",
        LINK,
        "How many seconds a job may wait in the launcher's queue before this machine does it (600); --wrapper-launcher-wait= wins.",
    ),
    row("OFFLD_LINKER", LINK, "The host linker of ld.offld, as a path or a name on PATH; --offld-linker= wins."),
    row(
        "OFFLD_LLVM",
        LLVM,
        "The program offld-llvm, as a path, where it is not beside offld or in ../libexec/offld as seen from there.",
    ),
    row("OFFLD_LLVM_TIMEOUT", LLVM, "How many seconds offld-llvm may take for one request (120)."),
    row(
        "OFFLD_LTO_PARTITIONS",
        LINK,
        "auto or a number: in how many parts at once full LTO generates code for AMD's GPUs; --wrapper-lto-partitions= wins.",
    ),
    row(
        "OFFLD_MEMORY",
        LINK,
        "How much memory all device links of this user may take together: a size such as 8G, auto (what is free) or off; --wrapper-memory= wins.",
    ),
    row(
        "OFFLD_MEMORY_ROOT",
        LINK,
        "The folder below which proc and sys are read for the memory that is free, instead of /: for tests.",
    ),
    row(
        "OFFLD_NATIVE_ROOT",
        NATIVE,
        "The folder below which offld check --for native, offld doctor, and native in the budgets of offld size, read sys and proc, instead of /: for tests, and for a container that is looked at from outside.",
    ),
    row("OFFLD_REMOTE_JOBS", LINK, "How many jobs the launcher runs at once (32); --wrapper-remote-jobs= wins."),
    row(
        "OFFLD_REPRODUCE",
        LINK,
        "A folder in which a reproduction of every link with device code is written, as by --reproduce=.",
    ),
    row(
        "OFFLD_SHARED_TMP",
        LINK,
        "The folder for the temporary files of a link with a launcher, which all its machines see at the same path; if it is not set the folder of the output.",
    ),
    row(
        "OFFLD_WITHIN",
        LINK,
        "Set by offld for the programs that it starts: what they link does not wait for the link that they are part of.",
    ),
    row("OFFLOAD_BUNDLER_COMPRESS", BUNDLER, "1: compress, as by -compress."),
    row("OFFLOAD_BUNDLER_COMPRESSION_LEVEL", BUNDLER, "zstd's level, as by -compression-level=."),
    row("OFFLOAD_BUNDLER_IGNORE_ENV_VAR", BUNDLER, "1: ignore the bundler's other variables."),
    row("OFFLOAD_BUNDLER_VERBOSE", BUNDLER, "1: report what is compressed and decompressed, as by -verbose."),
    row("PATH", LINK, "Where clang, the host linker and NVIDIA's tools are searched for."),
    row("RAYON_NUM_THREADS", ALL, "The number of threads, where it should not be that of the processors."),
    row("TMPDIR", ALL, "The folder for temporary files; if it is not set TMP, TEMP or TEMPDIR, else /tmp."),
    row("VIRTUAL_ENV", LINK, "A Python environment, in whose packages NVIDIA's tools are searched for."),
    row("XDG_CACHE_HOME", LINK, "The user's folder for caches: the cache is in offld below it."),
    row(
        "XDG_RUNTIME_DIR",
        LINK,
        "The folder of the user's session: offld's processes see each other's device links in offld below it.",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_variable_that_is_read() {
        // What only compilers and linkers read is part of a link's cache key, and nothing of ours.
        const OF_TOOLS: [&str; 4] = ["LD_AUDIT", "LD_PRELOAD", "LLD_REPRODUCE", "TMPDIR"];
        let source = include_str!("../sys/session.rs");
        let read = source
            .lines()
            .filter_map(|line| line.strip_prefix("pub(crate) const ")?.split_once(": &str = \"")?.1.strip_suffix("\";"));
        let read: Vec<&str> = read.filter(|name| !OF_TOOLS.contains(name)).collect();
        assert!(read.len() > 15, "{read:?}");
        for name in read {
            assert!(VARIABLES.iter().any(|variable| variable.name == name), "{name} is in no manual page");
        }
        assert!(VARIABLES.is_sorted_by_key(|variable| variable.name));
    }
}
