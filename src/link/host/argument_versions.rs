//! What compilers and OpenMP runtimes tell each other of a kernel's arguments, where releases of LLVM do not agree on it:
//!
//! * From LLVM 23 on a kernel for a CPU takes one pointer to all its arguments, and the runtime refuses the others with a fatal
//!   error when the program runs (llvm/llvm-project#186261).
//! * LLVM 15 describes a call of a kernel by a struct of 64 bytes. The runtimes of LLVM 16 and later read more, the flags behind
//!   them, whatever its version says. With what happens to be there on the stack, programs crash.

use super::runtime::Library;
use crate::formats::producer::llvm_release;
use crate::link::scan::{DeviceImage, HostFacts};
use crate::target::Target;

/// The first release whose kernels take one pointer.
const ONE_POINTER: u32 = 23;

/// The warning if `runtime` calls the kernels in one of `images` in another way than their compiler made them.
pub(super) fn of_cpu_kernels(runtime: &Library, images: &[&DeviceImage<'_>]) -> Option<String> {
    let release = runtime.release;
    let is_other = |(_, producer): &(&DeviceImage<'_>, u32)| (*producer < ONE_POINTER) != (release < ONE_POINTER);
    let cpu = images.iter().filter(|image| Target::new(&image.triple, &image.arch).is_cpu());
    let (image, producer) = cpu.filter_map(|image| Some((*image, llvm_release(&image.bytes)?))).find(is_other)?;
    Some(format!(
        "{} is of LLVM {release} and does not call kernels for CPUs as LLVM {producer} made them in {}: the program will end with an error \
         when it runs one. Compile it with the LLVM of the runtime",
        runtime.path.display(),
        image.origin
    ))
}

/// The release whose calls are described by 64 bytes.
const SHORT_CALLS: u32 = 15;

/// The warning if `runtime` reads more of a call of a kernel than the host code with one of `images` has written.
pub(super) fn of_15(runtime: &Library, images: &[&DeviceImage<'_>], facts: &[HostFacts<'_>]) -> Option<String> {
    if runtime.release <= SHORT_CALLS {
        return None;
    }
    let calls = |image: &DeviceImage<'_>| {
        let host = facts.get(image.input_object);
        host.is_some_and(|host| host.undefined.iter().any(|symbol| symbol.name.starts_with(b"__tgt_target_kernel")))
    };
    let image = images.iter().find(|image| calls(image) && llvm_release(&image.bytes) == Some(SHORT_CALLS))?;
    Some(format!(
        "{} is of LLVM {} and reads more of a call of a kernel than LLVM 15 has written in {}: the program can crash where it runs one. \
         Compile it with LLVM 16 or later, or link the libomptarget of LLVM 15",
        runtime.path.display(),
        runtime.release,
        image.origin
    ))
}
