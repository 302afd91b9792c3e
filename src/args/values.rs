//! The values of options: as text, as numbers, as pairs of a name and a path. An error names the option and what it was given.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::Arg;
use super::size::parse_size;

/// A value as text. Invalid UTF-8 is replaced, which is harmless as such values are only compared with ASCII text or parsed.
pub(super) fn text(value: &OsStr) -> String {
    value.to_string_lossy().into_owned()
}

/// How many device links run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jobs {
    /// As many as there are cores.
    #[default]
    Auto,
    /// `--wrapper-jobs=N`.
    N(usize),
    /// `--wrapper-jobs=jobserver`: as many as make's jobserver, found through the environment, allows.
    Jobserver,
}

/// The value of `--wrapper-jobs`.
pub(super) fn jobs(value: &OsStr) -> Result<Jobs> {
    let given = text(value);
    if given.eq_ignore_ascii_case("jobserver") {
        return Ok(Jobs::Jobserver);
    }
    match given.parse() {
        Ok(count) if count > 0 => Ok(Jobs::N(count)),
        _ => bail!("--wrapper-jobs={given}: expected a positive integer or 'jobserver', got '{given}'"),
    }
}

/// How much memory all device links may take together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryLimit {
    /// What is free.
    #[default]
    Free,
    /// So many bytes, and no more than is free.
    Bytes(u64),
    /// They are not counted.
    Off,
}

/// The value of `option`, which says how much memory device links may take.
pub(crate) fn memory_limit(option: &str, value: &OsStr) -> Result<MemoryLimit> {
    match text(value).as_str() {
        "auto" => Ok(MemoryLimit::Free),
        "off" => Ok(MemoryLimit::Off),
        given => match parse_size(value) {
            Ok(bytes) if bytes > 0 => Ok(MemoryLimit::Bytes(bytes)),
            _ => bail!("{option}={given}: expected auto, off or a size such as 8G"),
        },
    }
}

/// Whether images are put into a program after its host link (docs/late-images.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LateImages {
    /// Where it pays, as far as the command line and the inputs tell.
    #[default]
    Auto,
    /// Wherever it can be done.
    On,
    /// Never.
    Off,
}

/// The value of `option`, which says whether images are put into a program after its host link.
pub(crate) fn late_images(option: &str, value: &OsStr) -> Result<LateImages> {
    match text(value).as_str() {
        "auto" => Ok(LateImages::Auto),
        "on" => Ok(LateImages::On),
        "off" => Ok(LateImages::Off),
        given => bail!("{option}={given}: expected auto, on or off"),
    }
}

/// Into how many parts the code of a full LTO link for AMD's GPUs is divided when it is generated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LtoPartitions {
    /// As many as the size of the bitcode is worth.
    Auto,
    /// So many.
    N(u32),
}

/// Each part is a module of its own that LLVM writes and reads, so that very many only cost time.
const MOST_PARTITIONS: u32 = 256;

/// The value of `option`, which says into how many parts code is divided.
pub(crate) fn lto_partitions(option: &str, value: &OsStr) -> Result<LtoPartitions> {
    let given = text(value);
    match given.parse() {
        _ if given == "auto" => Ok(LtoPartitions::Auto),
        Ok(count) if (1..=MOST_PARTITIONS).contains(&count) && given.bytes().all(|byte| byte.is_ascii_digit()) => {
            Ok(LtoPartitions::N(count))
        }
        _ => bail!("{option}={given}: expected auto or a number from 1 to {MOST_PARTITIONS}, got '{given}'"),
    }
}

/// Whether ThinLTO's units are compiled one by one, each looked up in the cache (docs/build-loop.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Distribute {
    /// Where other machines are there to do it.
    #[default]
    Auto,
    /// Wherever it can be done.
    On,
    /// Never: by the linker, in its own process.
    Off,
}

/// The value of `option`, which says whether ThinLTO's units are compiled one by one; without a value they are.
pub(crate) fn distribute(option: &str, value: &OsStr) -> Result<Distribute> {
    match text(value).as_str() {
        "auto" => Ok(Distribute::Auto),
        "" | "on" => Ok(Distribute::On),
        "off" => Ok(Distribute::Off),
        given => bail!("{option}={given}: expected auto, on or off"),
    }
}

/// The shortest span that a time trace shows.
pub(super) fn granularity(value: &OsStr) -> Result<u32> {
    let given = text(value);
    match given.parse() {
        Ok(microseconds) => Ok(microseconds),
        Err(_) => bail!("--wrapper-time-trace-granularity={given}: expected a number of microseconds, got '{given}'"),
    }
}

/// Splits `<name>=<path>`; both must be there.
pub(super) fn pair(option: &str, form: &str, value: &OsStr) -> Result<(String, PathBuf)> {
    use std::os::unix::ffi::OsStrExt;
    let bytes = value.as_bytes();
    match bytes.iter().position(|byte| *byte == b'=') {
        Some(equals) if equals > 0 && equals + 1 < bytes.len() => {
            let name = text(OsStr::from_bytes(&bytes[..equals]));
            Ok((name, Path::new(OsStr::from_bytes(&bytes[equals + 1..])).to_owned()))
        }
        _ => bail!("{option}={}: expected {form}", value.display()),
    }
}

/// A `--defsym`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Defsym {
    /// Every name in its expression. This includes functions of the script language, but an extra name does no harm.
    pub needs: Vec<String>,
    /// Its first token, an index into [`Ledger::tokens`](super::Ledger::tokens).
    pub token: usize,
    /// The `--start-group` it is in, counted from 0.
    pub group: Option<usize>,
}

impl Defsym {
    pub(super) fn new(arg: &Arg, group: Option<usize>) -> Defsym {
        let value = arg.value.as_deref().map(text).unwrap_or_default();
        let expression = value.split_once('=').map_or("", |(_, expression)| expression);
        let in_name = |c: char| c.is_alphanumeric() || "_.$@".contains(c);
        let words = expression.split(|c| !in_name(c)).filter(|word| !word.is_empty());
        let needs = words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit())).map(str::to_owned).collect();
        Defsym { needs, token: arg.tokens.start, group }
    }
}

/// The release of LLVM whose SYCL runtime the program meets.
pub(super) fn sycl_release(value: &OsStr) -> Result<u32> {
    match text(value).as_str() {
        "22" => Ok(22),
        "23" => Ok(23),
        "24" => Ok(24),
        given => {
            bail!("--offld-sycl-registration={given}: expected 22, 23 or 24, the release of LLVM whose SYCL runtime is used")
        }
    }
}
