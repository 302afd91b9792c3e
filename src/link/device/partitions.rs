//! Into how many parts full link-time optimization for AMD's GPUs divides the code that it generates (`--wrapper-lto-partitions=`).
//! ld.lld generates the parts in parallel, which is the only part of such a link that can use more than one core.
//!
//! How many there are changes the code: functions of two parts cannot be placed, or their registers counted, together. So `auto`
//! depends on nothing but the bitcode, and a program is the same whichever machine it is linked on.

use anyhow::Result;

use super::DeviceContext;
use super::arg_list::ArgList;
use crate::args::request::{LinkRequest, LtoPartitions};
use crate::args::values;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;
use crate::sys::session::{self, Session};

/// How much bitcode is worth a part of its own: some seconds of code generation. With less, LLVM spends as long on dividing the
/// module as it gains.
const WORTH: usize = 128 << 10;
/// The most parts that `auto` makes: the number that clang chooses for HIP.
const MOST: usize = 8;
/// From this release on clang itself has code for AMD's GPUs generated in parts. LLVM before it does not divide modules in a way
/// that these targets can do with.
const SINCE: u32 = 21;

/// The number of parts for the link of `job`; none where nobody has asked for any. The inner error says why the number that was
/// asked for is ignored.
///
/// # Errors
/// The variable of the environment has no such value.
pub(super) fn count(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Result<Option<std::result::Result<u32, String>>> {
    Ok(wanted(context.request)?.map(|wanted| match obstacle(job, context) {
        Some(why) => Err(why),
        None => Ok(match wanted {
            LtoPartitions::N(count) => count,
            LtoPartitions::Auto => by_size(full_bitcode(job)),
        }),
    }))
}

/// Adds the argument of the compiler by which the linker divides the code. It belongs behind all others, since ld.lld takes the last:
/// clang gives HIP a number of its own, and the user may have given one with `--device-linker=`.
pub(super) fn add(args: &mut ArgList, job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Result<()> {
    if let Some(Ok(count)) = count(job, context)? {
        args.arg(format!("-Wl,--lto-partitions={count}"));
    }
    Ok(())
}

fn wanted(request: &LinkRequest) -> Result<Option<LtoPartitions>> {
    match (request.lto_partitions, Session::env(session::OFFLD_LTO_PARTITIONS)) {
        (None, Some(text)) => Ok(Some(values::lto_partitions(session::OFFLD_LTO_PARTITIONS, &text)?)),
        (given, _) => Ok(given),
    }
}

fn obstacle(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> Option<String> {
    let request = context.request;
    if !job.target.is_amdgcn() {
        return Some("only code for AMD's GPUs is generated in parts".to_owned());
    }
    if request.no_lto || request.embed_bitcode {
        return Some("the link generates no code".to_owned());
    }
    if let Some(major) = context.compiler.major.filter(|major| *major < SINCE) {
        return Some(format!("the linker of LLVM {major} cannot do it, but that of LLVM {SINCE} can"));
    }
    (full_bitcode(job) == 0)
        .then(|| "no input is bitcode for full LTO, and ThinLTO's units are compiled one by one anyway".to_owned())
}

/// How many bytes of bitcode the linker optimizes as one module.
fn full_bitcode(job: &DeviceJob<'_>) -> usize {
    let full = |bytes: &[u8]| magic::is_bitcode(bytes) && !bitcode::is_thin(bytes).unwrap_or(false);
    job.inputs.iter().filter(|input| full(&input.bytes)).map(|input| input.bytes.len()).sum()
}

fn by_size(bytes: usize) -> u32 {
    // At most `MOST`.
    u32::try_from((bytes / WORTH).clamp(1, MOST)).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_alone_decides() {
        for (bytes, count) in [(1, 1), (WORTH, 1), (2 * WORTH - 1, 1), (2 * WORTH, 2), (5 * WORTH, 5), (1 << 40, 8)] {
            assert_eq!(by_size(bytes), count, "{bytes}");
        }
    }
}
