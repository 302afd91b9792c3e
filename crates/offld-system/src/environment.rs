//! Environment variables: access, the names of those that offld reads, and [`Named`] and
//! [`Checked`] for settings that an option or a variable sets.

use std::ffi::{OsStr, OsString};

use anyhow::{Context, Error, Result, bail};

/// Value of the environment variable `name`, unless it is unset or empty.
pub fn get(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Names of all environment variables that are set.
pub fn names() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name)
}

/// Path of the device compiler.
pub const OFFLD_CLANG: &str = "OFFLD_CLANG";
/// The real host linker of `ld.offld`, as a path or a name to look up.
pub const OFFLD_LINKER: &str = "OFFLD_LINKER";
/// Number of partitions for the code generation of full LTO for AMD GPUs: `auto` or a number.
pub const OFFLD_LTO_PARTITIONS: &str = "OFFLD_LTO_PARTITIONS";
/// Whether ThinLTO translation units are compiled one by one: `auto`, `on` or `off`.
pub const OFFLD_DISTRIBUTE: &str = "OFFLD_DISTRIBUTE";
/// Whether images are written into a program after its host link: `auto`, `on` or `off`.
pub const OFFLD_LATE_IMAGES: &str = "OFFLD_LATE_IMAGES";
/// Whether OpenMP kernels get names that do not depend on the location of the source file: `on`,
/// `objects` or `off`.
pub const OFFLD_STABLE_NAMES: &str = "OFFLD_STABLE_NAMES";
/// Memory limit of all device links together: a size, `auto` or `off`.
pub const OFFLD_MEMORY: &str = "OFFLD_MEMORY";
/// A command that runs device links on other machines.
pub const OFFLD_LAUNCHER: &str = "OFFLD_LAUNCHER";
/// Time that a job may wait in the queue of the launcher, in seconds.
pub const OFFLD_LAUNCHER_WAIT: &str = "OFFLD_LAUNCHER_WAIT";
/// Number of jobs that the launcher runs at once.
pub const OFFLD_REMOTE_JOBS: &str = "OFFLD_REMOTE_JOBS";
/// Directory for the temporary files of a link that uses the launcher. All machines must see it.
pub const OFFLD_SHARED_TMP: &str = "OFFLD_SHARED_TMP";
/// Directory of the cache of device links, or `off`.
pub const OFFLD_CACHE: &str = "OFFLD_CACHE";
/// File to which each device link appends a line with its outcome.
pub const OFFLD_CACHE_LOG: &str = "OFFLD_CACHE_LOG";
/// Directory for a reproduction of every link with device code.
pub const OFFLD_REPRODUCE: &str = "OFFLD_REPRODUCE";
/// Directory for the time trace of every link with device code.
pub const OFFLD_TIME_TRACE: &str = "OFFLD_TIME_TRACE";
/// `1`: every link prints its commands.
pub const OFFLD_VERBOSE: &str = "OFFLD_VERBOSE";
/// Directories, separated by semicolons, in which Microsoft's linkers and lld-link search for
/// libraries after those of the command line.
pub const LIB: &str = "LIB";
/// Path of the program that generates registration code with LLVM.
pub const OFFLD_LLVM: &str = "OFFLD_LLVM";
/// Time limit of `offld-llvm` for one request, in seconds.
pub const OFFLD_LLVM_TIMEOUT: &str = "OFFLD_LLVM_TIMEOUT";
/// URL of the remote cache.
pub const OFFLD_CACHE_REMOTE: &str = "OFFLD_CACHE_REMOTE";
/// `1`: nothing is written to the remote cache.
pub const OFFLD_CACHE_REMOTE_READONLY: &str = "OFFLD_CACHE_REMOTE_READONLY";
/// Time limit of one request to the remote cache, in seconds.
pub const OFFLD_CACHE_REMOTE_TIMEOUT: &str = "OFFLD_CACHE_REMOTE_TIMEOUT";
/// File with the key that signs records and images of the remote cache.
pub const OFFLD_CACHE_KEY: &str = "OFFLD_CACHE_KEY";
/// Size limit of the local cache: `500M`, `5G`.
pub const OFFLD_CACHE_SIZE: &str = "OFFLD_CACHE_SIZE";
/// Root directory for the system's memory files, instead of `/`.
pub const OFFLD_MEMORY_ROOT: &str = "OFFLD_MEMORY_ROOT";
/// Set by offld for the programs that it starts: a link within a device link must not wait for the
/// outer link.
pub const OFFLD_WITHIN: &str = "OFFLD_WITHIN";
/// Runtime directory of the user's session (XDG base directories).
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
/// Root directory for the files that describe this machine's devices, instead of `/`.
pub const OFFLD_NATIVE_ROOT: &str = "OFFLD_NATIVE_ROOT";
/// The user's cache directory (XDG base directories).
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
/// The user's home directory.
pub const HOME: &str = "HOME";
/// Directories of shared libraries, which GNU ld also searches.
pub const LD_LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Directories of libraries, which GCC and NVIDIA's linker also search.
pub const LIBRARY_PATH: &str = "LIBRARY_PATH";
/// Set by make: its options, and the address of its jobserver.
pub const MAKEFLAGS: &str = "MAKEFLAGS";
/// Directories in which programs are looked up.
pub const PATH: &str = "PATH";
/// Directories in which compilers look for the tools that they run.
pub const COMPILER_PATH: &str = "COMPILER_PATH";
/// The active Python environment: PyPI packages may contain CUDA's tools.
pub const VIRTUAL_ENV: &str = "VIRTUAL_ENV";
/// `1`: the bundler ignores its other variables.
pub const OFFLOAD_BUNDLER_IGNORE_ENV_VAR: &str = "OFFLOAD_BUNDLER_IGNORE_ENV_VAR";
/// `1`: the bundler reports compression and decompression.
pub const OFFLOAD_BUNDLER_VERBOSE: &str = "OFFLOAD_BUNDLER_VERBOSE";
/// `1`: the bundler compresses.
pub const OFFLOAD_BUNDLER_COMPRESS: &str = "OFFLOAD_BUNDLER_COMPRESS";
/// Compression level of the bundler.
pub const OFFLOAD_BUNDLER_COMPRESSION_LEVEL: &str = "OFFLOAD_BUNDLER_COMPRESSION_LEVEL";
/// `2` or `3`: header version of the compressed bundles that are written.
pub const COMPRESSED_BUNDLE_FORMAT_VERSION: &str = "COMPRESSED_BUNDLE_FORMAT_VERSION";
/// Directories that GNU ld writes into its output as run path, and searches.
pub const LD_RUN_PATH: &str = "LD_RUN_PATH";
/// Libraries that are loaded before all others.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
/// Libraries that observe the loader, and may change its decisions.
pub const LD_AUDIT: &str = "LD_AUDIT";
/// If set, ld.lld writes a reproduction.
pub const LLD_REPRODUCE: &str = "LLD_REPRODUCE";
/// Other variables that compilers and linkers read. Their values are part of the cache key of a
/// device link.
pub const TOOL_VARIABLES: [&str; 12] = [
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
/// Prefixes of further variables like [`TOOL_VARIABLES`].
pub const TOOL_PREFIXES: [&str; 13] = [
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
/// Returns the value of an environment variable, unless the variable is unset or empty.
pub type Env<'e> = &'e dyn Fn(&str) -> Option<OsString>;

/// A value, and the option or the environment variable that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The value, as given.
    pub value: OsString,
    /// The option or the variable, for messages.
    pub by: &'static str,
}

impl Named {
    /// Creates a value that `by` sets.
    pub fn new(by: &'static str, value: impl Into<OsString>) -> Named {
        let value = value.into();
        Named { value, by }
    }

    /// Whether an option sets the value.
    pub fn is_by_option(&self) -> bool {
        self.by.starts_with('-')
    }
}

/// A checked value. An invalid option ends the link at once, but an invalid environment variable
/// only a link that needs the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checked<T>(std::result::Result<T, String>);

impl<T: Copy> Checked<T> {
    /// Returns the value.
    ///
    /// # Errors
    /// The environment variable is invalid.
    pub fn get(&self) -> Result<T> {
        self.0.clone().map_err(Error::msg)
    }

    /// Holds the value of an environment variable, or the error about it.
    pub fn of_variable(value: Result<T>) -> Checked<T> {
        Checked(value.map_err(|error| format!("{error:#}")))
    }
}

impl<T> From<T> for Checked<T> {
    fn from(value: T) -> Self {
        Checked(Ok(value))
    }
}

impl<T: Default> Default for Checked<T> {
    fn default() -> Self {
        T::default().into()
    }
}

/// Parses a size in bytes. Suffixes: `K`, `M`, `G` or `T` for powers of 1024 (`5G`, `1.5g`,
/// `2GiB`); `KB`, `MB`, `GB` or `TB` for powers of 1000.
///
/// # Errors
/// Any other text is an error.
pub fn parse_size(text: &OsStr) -> Result<u64> {
    let invalid = || {
        format!(
            "invalid size '{}': expected bytes, or a number with K, M, G, T",
            text.display()
        )
    };
    let all = text.to_str().with_context(invalid)?.trim();
    let digits = all
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(all.len());
    let (number, unit) = all.split_at_checked(digits).with_context(invalid)?;
    let unit: u64 = match unit.to_ascii_uppercase().as_str() {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "KB" => 1000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => bail!(invalid()),
    };
    let bytes = match number.parse::<u64>() {
        Ok(number) => number.checked_mul(unit),
        Err(_) => {
            let bytes = number
                .parse::<f64>()
                .ok()
                .map(|number| number * unit as f64);
            bytes
                .filter(|bytes| *bytes >= 0.0 && *bytes < u64::MAX as f64)
                .map(|bytes| bytes as u64)
        }
    };
    bytes.with_context(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        let size = |text: &str| parse_size(OsStr::new(text)).ok();
        assert_eq!(size("5G"), Some(5 << 30));
        assert_eq!(
            (size("500MB"), size("500M"), size("1.5gb")),
            (Some(500_000_000), Some(500 << 20), Some(1_500_000_000))
        );
        assert_eq!(size("1.5k"), Some(1536));
        assert_eq!(
            (size("2TiB"), size("7"), size("7b")),
            (Some(2 << 40), Some(7), Some(7))
        );
        assert_eq!(size("18446744073709551615"), Some(u64::MAX));
        for wrong in [
            "",
            "G",
            "5X",
            "-5",
            "5 G",
            "1.2.3",
            "99999999999T",
            "18446744073709551616",
            "1e3",
            "nan",
            ".",
        ] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
    }
}
