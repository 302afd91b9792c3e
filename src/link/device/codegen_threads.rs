//! Number of threads that a device link can use: one per ThinLTO unit, or one per partition of full
//! LTO.
//!
//! The threads come from the slots for device links. Their number does not change the image.
//! ThinLTO respects the granted number. Full LTO starts one thread per partition in any case,
//! because ld.lld has no option to limit them.

use std::ffi::{OsStr, OsString};

use super::DeviceContext;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;
use crate::sys::{threads, toolchain};

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
        let by_lld = job.target.is_amdgcn()
            || job.target.is_cpu() && toolchain::is_ld_lld(context.host_linker);
        if !by_lld || context.settings.device.no_lto || threads::is_short() {
            return CodegenThreads {
                wanted: 1,
                told: false,
            };
        }
        let is_thin =
            |bytes: &[u8]| magic::is_bitcode(bytes) && bitcode::is_thin(bytes).unwrap_or(false);
        let thin = job
            .inputs
            .iter()
            .filter(|input| is_thin(&input.bytes))
            .count();
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
}
