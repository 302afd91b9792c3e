//! Values of options and of the environment variables that stand in for them: text, numbers, sizes,
//! pairs of a name and a path. An error names the option or the variable, and its value.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use offld_system::environment::parse_size;
use offld_system::jobs::{Jobs, MemoryLimit};

use super::Arg;

/// Returns a value as text. Invalid UTF-8 is replaced, which is harmless: such values are only
/// compared with ASCII text or parsed.
pub(super) fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// The destination of a file that the user requests from links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// An option names the file of one link.
    File(PathBuf),
    /// An environment variable names a directory, in which every link with device code writes a
    /// file of its own.
    Directory(PathBuf),
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

/// The names of OpenMP kernels in a linked program (docs/explanation/stable-names.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KernelNames {
    /// Names that do not depend on the location of the source file, if possible.
    #[default]
    Stable,
    /// Stable names also in the objects of the host link, so that its output does not depend on the
    /// location of a source file at all.
    InObjects,
    /// The names that clang chose.
    Clang,
}

/// Parses the value of `option`, [`KernelNames`].
pub(super) fn names(option: &str, value: &OsStr) -> Result<KernelNames> {
    match text(value).as_str() {
        "on" => Ok(KernelNames::Stable),
        "objects" => Ok(KernelNames::InObjects),
        "off" => Ok(KernelNames::Clang),
        given => bail!("{option}={given}: expected on, objects or off"),
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
