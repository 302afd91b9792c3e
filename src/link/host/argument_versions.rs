//! Differences between LLVM releases in how compilers and OpenMP runtimes pass a kernel's
//! arguments:
//!
//! * From LLVM 23 on, a CPU kernel takes one pointer to all its arguments. The runtime refuses
//!   other kernels with a fatal error when the program runs (llvm/llvm-project#186261).
//! * LLVM 15 describes a kernel call by a struct of 64 bytes. The runtimes of LLVM 16 and later
//!   also read the flags behind it, whatever the struct's version is. These flags are then
//!   arbitrary stack contents, and programs crash.

use super::runtime::Library;
use crate::formats::producer::llvm_release;
use crate::link::scan::{DeviceImage, HostFacts};
use crate::target::Target;

/// The first LLVM release whose kernels take one pointer.
const ONE_POINTER: u32 = 23;

/// Returns the warning if `runtime` does not call a kernel in one of `images` in the way that its
/// compiler expects.
pub(super) fn of_cpu_kernels(runtime: &Library, images: &[&DeviceImage<'_>]) -> Option<String> {
    let release = runtime.release;
    let is_other = |(_, producer): &(&DeviceImage<'_>, u32)| {
        (*producer < ONE_POINTER) != (release < ONE_POINTER)
    };
    let cpu = images
        .iter()
        .filter(|image| Target::new(&image.triple, &image.arch).is_cpu());
    let (image, producer) = cpu
        .filter_map(|image| Some((*image, llvm_release(&image.bytes)?)))
        .find(is_other)?;
    Some(format!(
        "{} is from LLVM {release} and cannot call CPU kernels that LLVM {producer} compiled in {}: the program will fail at its \
         first kernel. Compile the object with the LLVM version of the runtime",
        runtime.path.display(),
        image.origin
    ))
}

/// The LLVM release whose kernel calls are described by 64 bytes.
const SHORT_CALLS: u32 = 15;

/// Returns the warning if `runtime` reads more of a kernel call than the host code of one of
/// `images` has written.
pub(super) fn of_15(
    runtime: &Library,
    images: &[&DeviceImage<'_>],
    facts: &[HostFacts<'_>],
) -> Option<String> {
    if runtime.release <= SHORT_CALLS {
        return None;
    }
    let calls = |image: &DeviceImage<'_>| {
        let host = facts.get(image.input_object);
        host.is_some_and(|host| {
            host.undefined
                .iter()
                .any(|symbol| symbol.name.starts_with(b"__tgt_target_kernel"))
        })
    };
    let image = images
        .iter()
        .find(|image| calls(image) && llvm_release(&image.bytes) == Some(SHORT_CALLS))?;
    Some(format!(
        "{} is from LLVM {} and reads more kernel arguments than LLVM 15 passes in {}: the program can crash when it starts a \
         kernel. Compile the object with LLVM 16 or later, or link the libomptarget of LLVM 15",
        runtime.path.display(),
        runtime.release,
        image.origin
    ))
}
