//! Values of options and of the environment variables that stand in for them: text, numbers, sizes,
//! pairs of a name and a path. An error names the option or the variable, and its value.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Error, Result, bail};

use super::Arg;

/// Returns a value as text. Invalid UTF-8 is replaced, which is harmless: such values are only
/// compared with ASCII text or parsed.
pub(super) fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// A value, and the option or the environment variable that sets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// The value, as given.
    pub value: OsString,
    /// The option or the variable, for messages.
    pub by: &'static str,
}

impl Named {
    pub(crate) fn new(by: &'static str, value: impl Into<OsString>) -> Named {
        let value = value.into();
        Named { value, by }
    }

    /// Whether an option sets the value.
    pub(crate) fn is_by_option(&self) -> bool {
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
    pub(crate) fn get(&self) -> Result<T> {
        self.0.clone().map_err(Error::msg)
    }

    /// Holds the value of an environment variable, or the error about it.
    pub(super) fn of_variable(value: Result<T>) -> Checked<T> {
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

/// The location of a file that the user requests of links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An option names the file of one link.
    File(PathBuf),
    /// An environment variable names a directory, in which every link with device code writes a
    /// file of its own.
    Directory(PathBuf),
}

/// The number of device links that run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jobs {
    /// The number of cores.
    #[default]
    Auto,
    /// `--wrapper-jobs=N`.
    N(usize),
    /// `--wrapper-jobs=jobserver`: the number that make's jobserver, found through the environment,
    /// allows.
    Jobserver,
}

/// Parses the value of `--wrapper-jobs`.
pub(super) fn jobs(value: &OsStr) -> Result<Jobs> {
    let given = text(value);
    if given.eq_ignore_ascii_case("jobserver") {
        return Ok(Jobs::Jobserver);
    }
    match given.parse() {
        Ok(count) if count > 0 => Ok(Jobs::N(count)),
        _ => bail!(
            "--wrapper-jobs={given}: expected a positive integer or 'jobserver', got '{given}'"
        ),
    }
}

/// The memory limit for all device links together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryLimit {
    /// The free memory.
    #[default]
    Free,
    /// A number of bytes, and never more than the free memory.
    Bytes(u64),
    /// No limit.
    Off,
}

/// Parses the memory limit in the value of `option`.
pub(super) fn memory_limit(option: &str, value: &OsStr) -> Result<MemoryLimit> {
    match text(value).as_str() {
        "auto" => Ok(MemoryLimit::Free),
        "off" => Ok(MemoryLimit::Off),
        given => match parse_size(value) {
            Ok(bytes) if bytes > 0 => Ok(MemoryLimit::Bytes(bytes)),
            _ => bail!("{option}={given}: expected auto, off or a size such as 8G"),
        },
    }
}

/// When offld inserts images into a program after its host link (docs/explanation/late-images.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LateImages {
    /// If the command line and the inputs suggest that the link gets faster.
    #[default]
    Auto,
    /// Whenever possible.
    On,
    /// Never.
    Off,
}

/// Parses the value of `option`, a [`LateImages`].
pub(super) fn late_images(option: &str, value: &OsStr) -> Result<LateImages> {
    match text(value).as_str() {
        "auto" => Ok(LateImages::Auto),
        "on" => Ok(LateImages::On),
        "off" => Ok(LateImages::Off),
        given => bail!("{option}={given}: expected auto, on or off"),
    }
}

/// The number of parts into which the code generation of a full LTO link for AMD GPUs is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LtoPartitions {
    /// Depends on the size of the bitcode.
    Auto,
    /// This many parts.
    N(u32),
}

/// LLVM writes and reads each part as a separate module, so a very large number only costs time.
const MOST_PARTITIONS: u32 = 256;

/// Parses the number of partitions in the value of `option`.
pub(super) fn lto_partitions(option: &str, value: &OsStr) -> Result<LtoPartitions> {
    let given = text(value);
    match given.parse() {
        _ if given == "auto" => Ok(LtoPartitions::Auto),
        Ok(count)
            if (1..=MOST_PARTITIONS).contains(&count)
                && given.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            Ok(LtoPartitions::N(count))
        }
        _ => bail!(
            "{option}={given}: expected auto or a number from 1 to {MOST_PARTITIONS}, got '{given}'"
        ),
    }
}

/// When the translation units of ThinLTO are compiled one by one, each with its own cache lookup
/// (docs/explanation/lto.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribute {
    /// If other machines are available.
    #[default]
    Auto,
    /// Whenever possible.
    On,
    /// Never: the linker compiles them in its own process.
    Off,
}

/// Parses the value of `option`, a [`Distribute`]; an empty value means `on`.
pub(super) fn distribute(option: &str, value: &OsStr) -> Result<Distribute> {
    match text(value).as_str() {
        "auto" => Ok(Distribute::Auto),
        "" | "on" => Ok(Distribute::On),
        "off" => Ok(Distribute::Off),
        given => bail!("{option}={given}: expected auto, on or off"),
    }
}

/// Parses the duration of the shortest span in a time trace, in microseconds.
pub(super) fn granularity(value: &OsStr) -> Result<u32> {
    let given = text(value);
    match given.parse() {
        Ok(microseconds) => Ok(microseconds),
        Err(_) => bail!(
            "--wrapper-time-trace-granularity={given}: expected a number of microseconds, got '{given}'"
        ),
    }
}

/// Splits `<name>=<path>`; neither may be empty.
pub(super) fn pair(option: &str, form: &str, value: &OsStr) -> Result<(String, PathBuf)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = value.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(equals) if equals > 0 && equals + 1 < bytes.len() => {
            let name = text(OsStr::from_bytes(&bytes[..equals]));
            Ok((
                name,
                Path::new(OsStr::from_bytes(&bytes[equals + 1..])).to_owned(),
            ))
        }
        _ => bail!("{option}={}: expected {form}", value.display()),
    }
}

/// The definition of a symbol by `--defsym`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defsym {
    /// The symbol.
    pub defines: String,
    /// Every name in its expression. This includes functions of the script language, but an extra
    /// name does no harm.
    pub needs: Vec<String>,
    /// The index of its first token in [`ArgumentList::tokens`](super::ArgumentList::tokens).
    pub token: usize,
    /// The index of the enclosing `--start-group`, counted from 0.
    pub group: Option<usize>,
}

impl Defsym {
    pub(super) fn new(arg: &Arg, group: Option<usize>) -> Defsym {
        let value = arg.value.as_deref().map(text).unwrap_or_default();
        let (defines, expression) = value.split_once('=').unwrap_or((&value, ""));
        let in_name = |c: char| c.is_alphanumeric() || "_.$@".contains(c);
        let words = expression
            .split(|c| !in_name(c))
            .filter(|word| !word.is_empty());
        let needs = words
            .filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()))
            .map(str::to_owned)
            .collect();
        Defsym {
            defines: defines.to_owned(),
            needs,
            token: arg.tokens.start,
            group,
        }
    }
}

/// Parses the LLVM version of the SYCL runtime that the program will load.
pub(super) fn sycl_release(value: &OsStr) -> Result<u32> {
    match text(value).as_str() {
        "22" => Ok(22),
        "23" => Ok(23),
        "24" => Ok(24),
        given => {
            bail!(
                "--offld-sycl-registration={given}: expected 22, 23 or 24, the LLVM version of the SYCL runtime"
            )
        }
    }
}

/// The settings for the launcher of device links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launching {
    /// `--wrapper-launcher`, the last one, or `OFFLD_LAUNCHER`: the launcher's command, unsplit. An
    /// empty one means no launcher.
    pub launcher: Option<Named>,
    /// `--wrapper-launcher-wait`, the last one, or `OFFLD_LAUNCHER_WAIT`: the maximum time of a job
    /// in the launcher's queue, in seconds.
    pub wait: Option<Checked<u64>>,
    /// `--wrapper-remote-jobs`, the last one, or `OFFLD_REMOTE_JOBS`: the number of jobs that the
    /// launcher runs at once.
    pub jobs: Option<Checked<usize>>,
    /// `OFFLD_SHARED_TMP`: the parent of the temporary directories of links with a launcher.
    pub shared_temp: Option<PathBuf>,
}

/// Parses the maximum queue time of a job in the value of `option`, in seconds.
pub(super) fn launcher_wait(option: &str, value: &OsStr) -> Result<u64> {
    positive(option, value, "a number of seconds")
}

/// Parses the number of jobs that the launcher runs at once in the value of `option`.
pub(super) fn remote_jobs(option: &str, value: &OsStr) -> Result<usize> {
    positive(option, value, "a positive number")
}

fn positive<N: std::str::FromStr + PartialOrd + From<u8>>(
    option: &str,
    value: &OsStr,
    expected: &str,
) -> Result<N> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(number) if number > N::from(0) => Ok(number),
        _ => bail!("{option}={}: expected {expected}", value.display()),
    }
}

/// Parses a size in bytes. Suffixes: `K`, `M`, `G` or `T` for powers of 1024 (`5G`, `1.5g`,
/// `2GiB`); `KB`, `MB`, `GB` or `TB` for powers of 1000.
///
/// # Errors
/// Any other text is an error.
pub(crate) fn parse_size(text: &OsStr) -> Result<u64> {
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
