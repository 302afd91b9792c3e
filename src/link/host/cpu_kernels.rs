//! Kernels for CPU devices and the OpenMP runtime that calls them. From LLVM 23 on a kernel takes one pointer to all its arguments, and the
//! runtime refuses the others with a fatal error when the program runs (llvm/llvm-project#186261).

use crate::formats::{bitcode, dynamic, elf};
use crate::link::inputs::InputFile;
use crate::link::scan::DeviceImage;
use crate::model::llvm_major;
use crate::target::Target;

/// The first release whose kernels take one pointer.
const ONE_POINTER: u32 = 23;

/// The warning if `runtime` calls the kernels in one of `images` in another way than their compiler made them.
pub(super) fn warning(runtime: &InputFile, images: &[&DeviceImage<'_>]) -> Option<String> {
    let soname = std::str::from_utf8(dynamic::read(runtime.data()).ok()?.soname?).ok()?;
    let release = llvm_major(soname.strip_prefix("libomptarget.so.")?)?;
    let is_other = |(_, producer): &(&DeviceImage<'_>, u32)| (*producer < ONE_POINTER) != (release < ONE_POINTER);
    let cpu = images.iter().filter(|image| Target::new(&image.triple, &image.arch).is_cpu());
    let (image, producer) = cpu.filter_map(|image| Some((*image, producer(image)?))).find(is_other)?;
    Some(format!(
        "{} is of LLVM {release} and does not call kernels for CPUs as LLVM {producer} made them in {}: the program will end with an error \
         when it runs one. Compile it with the LLVM of the runtime",
        runtime.path.display(),
        image.origin
    ))
}

/// The release of the clang that made an image: by its bitcode, or by what it notes in objects, `clang version 22.1.8`.
fn producer(image: &DeviceImage<'_>) -> Option<u32> {
    let noted = || {
        let notes = elf::section(&image.bytes, b".comment").ok()??;
        let mut texts = notes.split(|byte| *byte == 0).map(String::from_utf8_lossy);
        texts.find_map(|text| llvm_major(text.split_once("clang version ")?.1))
    };
    bitcode::producer_major(&image.bytes).or_else(noted)
}
