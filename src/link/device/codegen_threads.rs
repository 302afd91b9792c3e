//! Parallel code generation of a device link: the number of partitions of full LTO, and the number
//! of threads that the link can use.

use std::ffi::{OsStr, OsString};

use anyhow::Result;

use super::DeviceContext;
use crate::args::settings::LtoPartitions;
use crate::link::select::DeviceJob;
use offld_system::threads;
use offload_formats::magic;

// Number of threads that a device link can use: one per ThinLTO unit, or one per partition of full
// LTO.
//
// The threads come from the slots for device links. Their number does not change the image.
// ThinLTO respects the granted number. Full LTO starts one thread per partition in any case,
// because ld.lld has no option to limit them.

/// Options that set the number of full LTO partitions. The last one on the command line takes
/// effect.
const PARTITIONS: [&str; 4] = [
    "--lto-partitions=",
    "-lto-partitions=",
    "--plugin-opt=lto-partitions=",
    "-plugin-opt=lto-partitions=",
];
/// The same option of clang. clang puts it before the linker's own arguments.
const OF_CLANG: [&str; 1] = ["-flto-partitions="];
/// Options that set the number of parallel ThinLTO jobs.
const THIN_JOBS: [&str; 4] = [
    "--thinlto-jobs=",
    "-thinlto-jobs=",
    "--plugin-opt=jobs=",
    "-plugin-opt=jobs=",
];

/// Number of threads for a device link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CodegenThreads {
    /// Number of useful threads, at least one.
    pub(super) wanted: usize,
    /// Whether offld has to pass the granted number to the linker.
    pub(super) told: bool,
}

impl CodegenThreads {
    /// Reads the options in `args`, the arguments of the compiler or of the linker that it runs.
    pub(super) fn of(job: &DeviceJob<'_>, context: &DeviceContext<'_>, args: &[OsString]) -> Self {
        if !context.links_by_lld(&job.target)
            || context.settings.device.no_lto
            || threads::is_short()
        {
            return CodegenThreads {
                wanted: 1,
                told: false,
            };
        }
        let thin = job.inputs.iter().filter(|input| input.is_thin()).count();
        wanted(thin, args.iter().map(OsString::as_os_str))
    }

    /// The linker argument that limits ThinLTO to `granted` threads.
    pub(super) fn argument(self, granted: usize) -> Option<OsString> {
        self.told
            .then(|| format!("--thinlto-jobs={granted}").into())
    }
}

/// Number of threads for a link of `thin` ThinLTO units.
fn wanted<'w>(thin: usize, args: impl Iterator<Item = &'w OsStr>) -> CodegenThreads {
    let (mut of_clang, mut parts, mut jobs) = (None, None, None);
    for arg in args.filter_map(OsStr::to_str).flat_map(words) {
        let value_of = |names: &[&str]| names.iter().find_map(|name| arg.strip_prefix(name));
        of_clang = value_of(&OF_CLANG).or(of_clang);
        parts = value_of(&PARTITIONS).or(parts);
        jobs = value_of(&THIN_JOBS).or(jobs);
    }
    let number = |value: Option<&str>| value.and_then(|value| value.parse().ok());
    // The user's value takes precedence, even if it is a word such as `all`.
    let units = if jobs.is_some() {
        number(jobs).unwrap_or(1)
    } else {
        thin
    };
    CodegenThreads {
        wanted: units.max(number(parts.or(of_clang)).unwrap_or(1)).max(1),
        told: thin > 0 && jobs.is_none(),
    }
}

/// The linker arguments in `arg`: the list after `-Wl,`, else `arg` itself.
fn words(arg: &str) -> Vec<&str> {
    arg.strip_prefix("-Wl,")
        .map_or_else(|| vec![arg], |words| words.split(',').collect())
}

// Number of partitions for the code generation of full LTO on AMD GPUs
// (`--wrapper-lto-partitions=`).
//
// ld.lld generates the partitions in parallel. The rest of such a link uses a single core.
//
// The number changes the generated code: LLVM cannot lay out functions of different partitions
// together, or count their registers together. So `auto` depends only on the bitcode, and the
// image is the same on every machine.

/// Bytes of bitcode per partition: some seconds of code generation. With less, splitting the module
/// costs as much as it saves.
const BITCODE_PER_PARTITION: usize = 128 << 10;
/// Maximum for `auto`: the number that clang chooses for HIP.
const MAX_AUTO: usize = 8;
/// First LLVM release whose clang partitions AMD GPU code. Earlier releases split modules in a way
/// that these targets do not support.
pub(super) const FIRST_PARTITIONING_RELEASE: u32 = 21;

/// The partitions of one device link.
pub(super) enum Partitions {
    /// The compiler chooses their number.
    Default,
    Number(u32),
    /// The user's number does not apply to the link, for this reason.
    Ignored(String),
}

impl Partitions {
    /// Determines the partitions for the link of `job`.
    ///
    /// # Errors
    /// Fails if the environment variable has an invalid value.
    pub(super) fn of(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Result<Partitions> {
        let Some(setting) = &context.settings.device.lto_partitions else {
            return Ok(Partitions::Default);
        };
        let wanted = setting.get()?;
        Ok(match (obstacle(job, context), wanted) {
            (Some(why), _) => Partitions::Ignored(why),
            (None, LtoPartitions::N(number)) => Partitions::Number(number),
            (None, LtoPartitions::Auto) => Partitions::Number(by_size(full_bitcode(job))),
        })
    }

    /// Returns the compiler argument that sets the number of partitions.
    ///
    /// It must come after all others, because ld.lld uses the last value: clang sets a number for
    /// HIP, and `--device-linker=` may contain one.
    pub(super) fn argument(&self) -> Option<OsString> {
        match self {
            Partitions::Number(number) => Some(format!("-Wl,--lto-partitions={number}").into()),
            Partitions::Default | Partitions::Ignored(_) => None,
        }
    }
}

fn obstacle(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Option<String> {
    let settings = context.settings;
    if !job.target.is_amdgcn() {
        return Some("only AMD GPU code can be generated in parts".to_owned());
    }
    if settings.device.no_lto || settings.device.embed_bitcode {
        return Some("the link generates no code".to_owned());
    }
    if let Some(major) = context
        .compiler
        .major
        .filter(|major| *major < FIRST_PARTITIONING_RELEASE)
    {
        return Some(format!(
            "the linker is from LLVM {major}, and partitions need LLVM {FIRST_PARTITIONING_RELEASE} or later"
        ));
    }
    (full_bitcode(job) == 0).then(|| {
        "no input is bitcode for full LTO, and ThinLTO compiles each unit separately".to_owned()
    })
}

/// Bytes of bitcode that the linker optimizes as one module.
fn full_bitcode(job: &DeviceJob<'_>) -> usize {
    job.inputs
        .iter()
        .filter(|input| magic::is_bitcode(&input.bytes) && !input.is_thin())
        .map(|input| input.bytes.len())
        .sum()
}

fn by_size(bytes: usize) -> u32 {
    // The value is at most `MAX_AUTO`, so the conversion succeeds.
    u32::try_from((bytes / BITCODE_PER_PARTITION).clamp(1, MAX_AUTO)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_and_partitions_are_counted_and_user_values_win() {
        let wanted = |thin, line: &str| {
            let CodegenThreads { wanted, told } =
                wanted(thin, line.split_whitespace().map(OsStr::new));
            (wanted, told)
        };
        assert_eq!(wanted(0, "-shared a.o"), (1, false));
        assert_eq!(wanted(40, "-shared a.o"), (40, true));
        assert_eq!(wanted(40, "--thinlto-jobs=2"), (2, false));
        assert_eq!(wanted(40, "-Wl,--thinlto-jobs=all"), (1, false));
        assert_eq!(wanted(40, "-Wl,-O2,--thinlto-jobs=2"), (2, false));
        assert_eq!(
            wanted(0, "--lto-partitions=8 a.o -Wl,--lto-partitions=2"),
            (2, false)
        );
        assert_eq!(wanted(2, "-flto-partitions=8"), (8, true));
        assert_eq!(
            wanted(0, "-Xlinker --lto-partitions=4 -flto-partitions=8"),
            (4, false)
        );
        assert_eq!(wanted(0, "--lto-partitions=x"), (1, false));
        assert_eq!(wanted(0, "--lto-partitions=0"), (1, false));
    }

    #[test]
    fn the_argument_is_given_only_if_needed() {
        assert_eq!(
            CodegenThreads {
                wanted: 4,
                told: true
            }
            .argument(2),
            Some("--thinlto-jobs=2".into())
        );
        assert_eq!(
            CodegenThreads {
                wanted: 4,
                told: false
            }
            .argument(2),
            None
        );
    }

    #[test]
    fn the_size_alone_decides() {
        for (bytes, count) in [
            (1, 1),
            (BITCODE_PER_PARTITION, 1),
            (2 * BITCODE_PER_PARTITION - 1, 1),
            (2 * BITCODE_PER_PARTITION, 2),
            (5 * BITCODE_PER_PARTITION, 5),
            (1 << 40, 8),
        ] {
            assert_eq!(by_size(bytes), count, "{bytes}");
        }
    }
}
