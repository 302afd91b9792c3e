//! Number of partitions for the code generation of full LTO on AMD GPUs
//! (`--wrapper-lto-partitions=`).
//!
//! ld.lld generates the partitions in parallel. The rest of such a link uses a single core.
//!
//! The number changes the generated code: LLVM cannot lay out functions of different partitions
//! together, or count their registers together. So `auto` depends only on the bitcode, and the
//! image is the same on every machine.

use std::ffi::OsString;

use anyhow::Result;

use super::DeviceContext;
use crate::args::settings::LtoPartitions;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;

/// Bytes of bitcode per partition: some seconds of code generation. With less, splitting the module
/// costs as much as it saves.
const BITCODE_PER_PARTITION: usize = 128 << 10;
/// Maximum for `auto`: the number that clang chooses for HIP.
const MAX_AUTO: usize = 8;
/// First LLVM release whose clang partitions AMD GPU code. Earlier releases split modules in a way
/// that these targets do not support.
const FIRST_RELEASE: u32 = 21;

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
        .filter(|major| *major < FIRST_RELEASE)
    {
        return Some(format!(
            "the linker is from LLVM {major}, and partitions need LLVM {FIRST_RELEASE} or later"
        ));
    }
    (full_bitcode(job) == 0).then(|| {
        "no input is bitcode for full LTO, and ThinLTO compiles each unit separately".to_owned()
    })
}

/// Bytes of bitcode that the linker optimizes as one module.
fn full_bitcode(job: &DeviceJob<'_>) -> usize {
    let full = |bytes: &[u8]| magic::is_bitcode(bytes) && !bitcode::is_thin(bytes).unwrap_or(false);
    job.inputs
        .iter()
        .filter(|input| full(&input.bytes))
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
