//! A device image: what is known of it, and its bytes.

#![expect(unsafe_code, reason = "names that C finds, and pointers that it hands in")]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::given;
use super::sink::{OffldWrite, to_function};
use super::status::{OffldError, OffldStatus, needed, told};
use super::step::OffldStep;
use super::text::{OffldString, Text, nth, shown};
use crate::contents::report::{FileReport, Image};
use crate::facade;
use crate::model::OffloadKind;

/// OpenMP, in `offld_image_kinds` and in what is packed.
pub const OFFLD_KIND_OPENMP: u32 = 1;
/// CUDA.
pub const OFFLD_KIND_CUDA: u32 = 2;
/// HIP.
pub const OFFLD_KIND_HIP: u32 = 4;
/// SYCL.
pub const OFFLD_KIND_SYCL: u32 = 8;
/// The host: code of a bundle that is not for a device. Only in `offld_image_kinds`.
pub const OFFLD_KIND_HOST: u32 = 0x10000;

/// A device image. It belongs to its report.
#[derive(Debug)]
pub struct OffldImage {
    report: Arc<FileReport>,
    index: usize,
    kinds: u32,
    triple: Text,
    target: Text,
    format: Text,
    machine: Text,
    section: Text,
    container: Text,
    id: Text,
    stored_as: Text,
    sha256: Text,
    members: Vec<Text>,
    producers: Vec<Text>,
    kernels: Vec<Text>,
    steps: Vec<OffldStep>,
    keys: Vec<Text>,
    values: Vec<Text>,
}

impl OffldImage {
    /// All images of a report.
    pub(super) fn all(report: &Arc<FileReport>) -> Vec<OffldImage> {
        report.images.iter().enumerate().map(|(index, image)| OffldImage::new(report, index, image)).collect()
    }

    fn new(report: &Arc<FileReport>, index: usize, image: &Image) -> OffldImage {
        OffldImage {
            report: Arc::clone(report),
            index,
            kinds: image.kinds.iter().fold(0, |bits, kind| bits | bit(kind)),
            triple: Text::from(&image.triple),
            target: Text::from(&image.target),
            format: Text::from(image.format),
            machine: Text::of(image.machine.as_ref()),
            section: Text::of(image.section.as_ref()),
            container: Text::of(image.container),
            id: Text::of(image.id.as_ref()),
            stored_as: Text::of(image.stored_as.as_ref()),
            sha256: Text::of(image.sha256.as_ref()),
            members: Text::all(&image.members),
            producers: Text::all(&image.producers),
            kernels: Text::all(image.kernels.iter().flatten().map(|kernel| &kernel.name)),
            steps: image.path.iter().map(OffldStep::new).collect(),
            keys: Text::all(image.strings.keys()),
            values: Text::all(image.strings.values()),
        }
    }

    /// What the report has of it.
    fn image(&self) -> Option<&Image> {
        self.report.images.get(self.index)
    }
}

/// The bit of a kind with this name; 0 for one that has none.
fn bit(name: &str) -> u32 {
    let known = OffloadKind::ALL.into_iter().find(|kind| kind.name() == name);
    known.map_or(if name == "host" { OFFLD_KIND_HOST } else { 0 }, |kind| u32::from(kind as u16))
}

/// A number of an image; `otherwise` where there is none.
fn number(image: Option<&OffldImage>, of: impl Fn(&Image) -> Option<u64>) -> u64 {
    image.and_then(OffldImage::image).and_then(of).unwrap_or(u64::MAX)
}

/// Its number in the report.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_index(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.index)
}

/// The programming models that it is for: `OFFLD_KIND_OPENMP` and the like, a bit for each. 0 if its container does not say.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kinds(image: Option<&OffldImage>) -> u32 {
    image.map_or(0, |image| image.kinds)
}

/// The triple of its device; empty if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_triple(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.triple))
}

/// The processor or target id, such as `gfx90a:xnack+` or `sm_90`; empty for any.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_target(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.target))
}

/// Its format by its bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`, `empty`, `unknown`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_format(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.format))
}

/// The machine of an ELF file; empty for others.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_machine(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.machine))
}

/// The section that it is in; empty if it is in none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_section(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.section))
}

/// The container that it is in, the innermost of them: `offload-binary`, `bundle`, `fatbinary`, …; empty if it is in none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_container(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.container))
}

/// Its id in a bundle, as stored; empty elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_id(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.id))
}

/// The format that its OffloadBinary gives it: `object`, `bitcode`, …; empty elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_stored_as(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.stored_as))
}

/// The SHA-256 of its bytes, in hexadecimal; empty if headers alone were read.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_sha256(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.sha256))
}

/// Its offset in the file on disk or in the buffer; `OFFLD_NONE` if it was decompressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_offset(image: Option<&OffldImage>) -> u64 {
    number(image, |image| image.offset)
}

/// Its size in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_size(image: Option<&OffldImage>) -> u64 {
    image.and_then(OffldImage::image).map_or(0, |image| image.size)
}

/// The compressed size of what it was decompressed from, which is the image or the whole bundle that it is in; `OFFLD_NONE` if it
/// was not compressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_compressed_size(image: Option<&OffldImage>) -> u64 {
    number(image, |image| image.compressed_size)
}

/// The flags of its OffloadBinary entry; 0 elsewhere.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_flags(image: Option<&OffldImage>) -> u32 {
    image.and_then(OffldImage::image).and_then(|image| image.flags).unwrap_or(0)
}

/// How many archives it is in, one in the other.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_member_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.members.len())
}

/// The name of the member that it is in, of the archive with this number, the outermost first; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_member(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.members), index)
}

/// How many things it is in: members, compressed files, sections, variables, containers.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_step_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.steps.len())
}

/// One of these things by its number, the outermost first; NULL where there are fewer, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_step(image: Option<&OffldImage>, index: usize) -> Option<&OffldStep> {
    image?.steps.get(index)
}

/// How many strings its OffloadBinary entry has.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.keys.len())
}

/// The key of one of these strings, in the order of the keys; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_key(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.keys), index)
}

/// Its value; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_value(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.values), index)
}

/// How many tools that made it have left their names in it.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_producer_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.producers.len())
}

/// One of these names; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_producer(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.producers), index)
}

/// How many kernels it has; 0 where they were not asked for (`offld_options_set_kernels`).
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kernel_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.kernels.len())
}

/// The name of a kernel, mangled as in the image; empty where there are fewer. `offld_report_json` has what they need.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kernel(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.kernels), index)
}

/// The image's bytes where they are, in the memory map of the file or in the copy of the buffer: nothing is copied, and they are
/// valid until the report is freed. `*data` is not NULL even if `*size` is 0. It is an error where headers alone were read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_bytes(
    image: Option<&OffldImage>,
    data: *mut *const u8,
    size: *mut usize,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let find = || {
        let (data, size) = (needed(std::ptr::NonNull::new(data), "data")?, needed(std::ptr::NonNull::new(size), "size")?);
        let bytes = known(image)?.bytes()?;
        // SAFETY: the caller says so.
        unsafe { (data.write(bytes.as_ptr()), size.write(bytes.len())) };
        Ok(())
    };
    // SAFETY: the caller says so.
    unsafe { told(error, find) }
}

/// Writes the image's bytes to where the file descriptor stands, which stays the caller's. With few bytes of memory, however large
/// the image is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write_fd(
    image: Option<&OffldImage>,
    descriptor: c_int,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || Ok(known(image)?.write_to(&mut given::file(descriptor)?)?);
    // SAFETY: the caller says so.
    unsafe { told(error, write) }
}

/// Writes the image's bytes to the file at `path`, which appears whole or not at all, and takes the place of one that is there. `-`
/// is stdout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write_path(
    image: Option<&OffldImage>,
    path: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let image = known(image)?;
        // SAFETY: the caller says so.
        let path = unsafe { given::path(path) }?;
        Ok(facade::whole_file(path, |mut out| image.write_to(&mut out))?)
    };
    // SAFETY: the caller says so.
    unsafe { told(error, write) }
}

/// Hands the image's bytes to `write`, part after part.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write(
    image: Option<&OffldImage>,
    write: OffldWrite,
    context: *mut c_void,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let image = known(image)?;
        // SAFETY: the caller says so.
        unsafe { to_function(write, context, |mut out| image.write_to(&mut out)) }
    };
    // SAFETY: the caller says so.
    unsafe { told(error, all) }
}

fn known(image: Option<&OffldImage>) -> Result<&Image, OffldError> {
    needed(image.and_then(OffldImage::image), "the image")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bits_are_those_of_the_model() {
        let bits = [OFFLD_KIND_OPENMP, OFFLD_KIND_CUDA, OFFLD_KIND_HIP, OFFLD_KIND_SYCL];
        assert_eq!(OffloadKind::ALL.map(|kind| bit(kind.name())), bits);
        assert_eq!((bit("host"), bit("other")), (OFFLD_KIND_HOST, 0));
    }
}
