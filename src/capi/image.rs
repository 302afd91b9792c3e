//! The parts of a report: device images, with their metadata, their bytes and the things that enclose
//! them, and registrations with runtimes.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use super::given::{self, OffldWrite, to_function};
use super::status::{
    OffldError, OffldStatus, OffldString, Text, catch_into_status, needed, nth, shown,
};
use crate::facade;
use offload_files::contents::report::{FileReport, Image, Registration, Step};
use offload_formats::model::OffloadKind;

/// OpenMP, in `offld_image_kinds` and in packages.
pub const OFFLD_KIND_OPENMP: u32 = 1;
/// CUDA.
pub const OFFLD_KIND_CUDA: u32 = 2;
/// HIP.
pub const OFFLD_KIND_HIP: u32 = 4;
/// SYCL.
pub const OFFLD_KIND_SYCL: u32 = 8;
/// The host: code in a bundle that is not for a device. Only in `offld_image_kinds`.
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
    /// Creates handles for all images of a report.
    pub(super) fn all(report: &Arc<FileReport>) -> Vec<OffldImage> {
        report
            .images
            .iter()
            .enumerate()
            .map(|(index, image)| OffldImage::new(report, index, image))
            .collect()
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

    /// The image in the report.
    fn image(&self) -> Option<&Image> {
        self.report.images.get(self.index)
    }
}

/// Returns the bit of the kind `name`; 0 if it has none.
fn bit(name: &str) -> u32 {
    let known = OffloadKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name);
    known.map_or(if name == "host" { OFFLD_KIND_HOST } else { 0 }, |kind| {
        u32::from(kind as u16)
    })
}

/// Returns a number of an image, or `OFFLD_NONE` if it is missing.
fn number(image: Option<&OffldImage>, value: impl Fn(&Image) -> Option<u64>) -> u64 {
    image
        .and_then(OffldImage::image)
        .and_then(value)
        .unwrap_or(u64::MAX)
}

/// Returns the index of an image in its report.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_index(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.index)
}

/// Returns the programming models of an image, one bit for each: `OFFLD_KIND_OPENMP` and so on. 0
/// if its container does not specify any.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kinds(image: Option<&OffldImage>) -> u32 {
    image.map_or(0, |image| image.kinds)
}

/// Returns the triple of an image's device; empty if unknown.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_triple(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.triple))
}

/// Returns the processor or target id, such as `gfx90a:xnack+` or `sm_90`; empty for any.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_target(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.target))
}

/// Returns the format, determined by the image's bytes: `elf`, `cubin`, `bitcode`, `spirv`, `ptx`,
/// `empty`, `unknown`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_format(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.format))
}

/// Returns the machine of an ELF image; empty for other formats.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_machine(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.machine))
}

/// Returns the section that contains the image; empty if no section does.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_section(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.section))
}

/// Returns the innermost container of the image: `offload-binary`, `bundle`, `fatbinary`, …; empty
/// if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_container(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.container))
}

/// Returns the id of an image in a bundle, as stored; empty for other containers.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_id(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.id))
}

/// Returns the format that the OffloadBinary stores for the image: `object`, `bitcode`, …; empty
/// for other containers.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_stored_as(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.stored_as))
}

/// Returns the SHA-256 of the image's bytes, in hexadecimal; empty if only headers were read.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_sha256(image: Option<&OffldImage>) -> OffldString {
    shown(image.map(|image| &image.sha256))
}

/// Returns the offset of the image in the file or buffer, in bytes; `OFFLD_NONE` if it was
/// decompressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_offset(image: Option<&OffldImage>) -> u64 {
    number(image, |image| image.offset)
}

/// Returns the size of the image in bytes.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_size(image: Option<&OffldImage>) -> u64 {
    image
        .and_then(OffldImage::image)
        .map_or(0, |image| image.size)
}

/// Returns the compressed size of the image, or of the whole bundle that was decompressed to obtain
/// it; `OFFLD_NONE` if neither was compressed.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_compressed_size(image: Option<&OffldImage>) -> u64 {
    number(image, |image| image.compressed_size)
}

/// Returns the flags of the image's OffloadBinary entry; 0 for other containers.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_flags(image: Option<&OffldImage>) -> u32 {
    image
        .and_then(OffldImage::image)
        .and_then(|image| image.flags)
        .unwrap_or(0)
}

/// Returns the number of nested archives that contain the image.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_member_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.members.len())
}

/// Returns the name of the archive member that contains the image, in the archive with this index,
/// the outermost first; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_member(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.members), index)
}

/// Returns the number of things that enclose the image: members, compressed files, sections,
/// variables, containers.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_step_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.steps.len())
}

/// Returns the enclosing thing with this index, the outermost first; NULL if `index` is out of
/// range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_step(image: Option<&OffldImage>, index: usize) -> Option<&OffldStep> {
    image?.steps.get(index)
}

/// Returns the number of strings in the image's OffloadBinary entry.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.keys.len())
}

/// Returns the key of the string with this index, sorted by key; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_key(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.keys), index)
}

/// Returns the value of the string with this index; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_string_value(
    image: Option<&OffldImage>,
    index: usize,
) -> OffldString {
    nth(image.map(|image| &image.values), index)
}

/// Returns the number of tools that recorded their names in the image.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_producer_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.producers.len())
}

/// Returns the name of the tool with this index; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_producer(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.producers), index)
}

/// Returns the number of kernels; 0 if the options do not request kernels
/// (`offld_options_set_kernels`).
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kernel_count(image: Option<&OffldImage>) -> usize {
    image.map_or(0, |image| image.kernels.len())
}

/// Returns the name of the kernel with this index, mangled as in the image; empty if `index` is out
/// of range. `offld_report_json` has the resources that each kernel needs.
#[unsafe(no_mangle)]
pub extern "C" fn offld_image_kernel(image: Option<&OffldImage>, index: usize) -> OffldString {
    nth(image.map(|image| &image.kernels), index)
}

/// Sets `*data` and `*size` to the image's bytes, without copying them: they are in the memory map
/// of the file or in the copy of the buffer, and are valid until the report is freed. `*data` is
/// not NULL even if `*size` is 0. Fails if only headers were read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_bytes(
    image: Option<&OffldImage>,
    data: *mut *const u8,
    size: *mut usize,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let find = || {
        let (data, size) = (
            needed(std::ptr::NonNull::new(data), "data")?,
            needed(std::ptr::NonNull::new(size), "size")?,
        );
        let bytes = known(image)?.bytes()?;
        // SAFETY: the caller guarantees it.
        unsafe { (data.write(bytes.as_ptr()), size.write(bytes.len())) };
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, find) }
}

/// Writes the image's bytes to the current position of a file descriptor, which the caller keeps.
/// The memory use does not depend on the size of the image.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write_fd(
    image: Option<&OffldImage>,
    descriptor: c_int,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || Ok(known(image)?.write_to(&mut given::file(descriptor)?)?);
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, write) }
}

/// Writes the image's bytes to the file at `path`, which appears complete or not at all, and
/// replaces an existing file. `-` is stdout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write_path(
    image: Option<&OffldImage>,
    path: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let image = known(image)?;
        // SAFETY: the caller guarantees it.
        let path = unsafe { given::path(path) }?;
        Ok(facade::whole_file(path, |mut out| {
            image.write_to(&mut out)
        })?)
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, write) }
}

/// Passes the image's bytes to `write`, in several calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_image_write(
    image: Option<&OffldImage>,
    write: OffldWrite,
    context: *mut c_void,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let image = known(image)?;
        // SAFETY: the caller guarantees it.
        unsafe { to_function(write, context, |mut out| image.write_to(&mut out)) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, all) }
}

fn known(image: Option<&OffldImage>) -> Result<&Image, OffldError> {
    needed(image.and_then(OffldImage::image), "the image")
}

/// One of the things that enclose an image. It belongs to the report.
#[derive(Debug)]
pub struct OffldStep {
    kind: Text,
    name: Text,
    compression: Text,
    offset: Option<u64>,
    size: u64,
    plain_size: Option<u64>,
    version: u32,
}

impl OffldStep {
    pub(super) fn new(step: &Step) -> OffldStep {
        let plain = |kind: &str, name: &str, offset: Option<u64>, size: u64| {
            let (kind, name) = (Text::from(kind), Text::from(name));
            OffldStep {
                kind,
                name,
                compression: Text::from(""),
                offset,
                size,
                plain_size: None,
                version: 0,
            }
        };
        match step {
            Step::Member {
                name,
                offset,
                size,
                compression,
                plain_size,
                ..
            } => OffldStep {
                compression: Text::of(*compression),
                plain_size: *plain_size,
                ..plain("member", name, *offset, *size)
            },
            Step::File { name, size, .. } => plain("file", name, None, *size),
            Step::Compressed {
                name,
                offset,
                size,
                plain_size,
            } => OffldStep {
                compression: Text::from(*name),
                plain_size: *plain_size,
                ..plain("compressed", name, *offset, *size)
            },
            Step::Section { name, offset, size } => plain("section", name, *offset, *size),
            Step::Symbol { name, offset, size } => plain("symbol", name, *offset, *size),
            Step::Container {
                name,
                offset,
                size,
                version,
                compression,
                plain_size,
                ..
            } => OffldStep {
                compression: Text::of(*compression),
                plain_size: *plain_size,
                version: version.unwrap_or(0),
                ..plain("container", name, *offset, *size)
            },
        }
    }
}

/// Returns the kind: `member` of an archive, `compressed` file, `section`, `symbol` (a variable),
/// `container`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_kind(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.kind))
}

/// Returns the name of the member, section or variable, the format of a container
/// (`offload-binary`, `bundle`, `fatbinary`, …), or the compression of a compressed file.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_name(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.name))
}

/// Returns the offset in the file or buffer, in bytes; `OFFLD_NONE` inside decompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_offset(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.offset).unwrap_or(u64::MAX)
}

/// Returns the stored size in bytes, which is the compressed size for compressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_size(step: Option<&OffldStep>) -> u64 {
    step.map_or(0, |step| step.size)
}

/// Returns the uncompressed size; `OFFLD_NONE` if the data is not compressed, or if the size is
/// unknown.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_plain_size(step: Option<&OffldStep>) -> u64 {
    step.and_then(|step| step.plain_size).unwrap_or(u64::MAX)
}

/// Returns the compression: `zstd`, `zlib`, `lz4`, …; empty for uncompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_compression(step: Option<&OffldStep>) -> OffldString {
    shown(step.map(|step| &step.compression))
}

/// Returns the version of a container's format; 0 if it has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_step_version(step: Option<&OffldStep>) -> u32 {
    step.map_or(0, |step| step.version)
}

/// A registration with a runtime. It belongs to its report.
#[derive(Debug)]
pub struct OffldRegistration {
    runtime: Text,
    symbol: Text,
    found: Text,
    members: Vec<Text>,
    names: Vec<Text>,
    paths: Vec<Text>,
}

impl OffldRegistration {
    pub(super) fn new(from: &Registration) -> OffldRegistration {
        OffldRegistration {
            runtime: Text::from(from.runtime),
            symbol: Text::from(&from.symbol),
            found: Text::from(from.found),
            members: Text::all(&from.members),
            names: Text::all(from.libraries.iter().map(|library| &library.name)),
            paths: from
                .libraries
                .iter()
                .map(|library| Text::of(library.path.as_ref()))
                .collect(),
        }
    }
}

/// Returns the runtime: `openmp`, `cuda`, `hip`, `sycl`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_runtime(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.runtime))
}

/// Returns the registration function that is called: `__tgt_register_lib`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_symbol(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.symbol))
}

/// Returns the location of that function: `here` in the file itself, in a `library` that the
/// program needs, or `elsewhere` if the file is an object that leaves it undefined.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_found(
    registration: Option<&OffldRegistration>,
) -> OffldString {
    shown(registration.map(|registration| &registration.found))
}

/// Returns the number of nested archives that contain the registration.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member_count(
    registration: Option<&OffldRegistration>,
) -> usize {
    registration.map_or(0, |registration| registration.members.len())
}

/// Returns the name of the archive member that contains the registration, in the archive with this
/// index, the outermost first; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_member(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(
        registration.map(|registration| &registration.members),
        index,
    )
}

/// Returns the number of needed libraries that define that function, or would define it if they
/// were found. 0 if the file was opened by descriptor or from memory, because no other file is
/// opened then.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_count(
    registration: Option<&OffldRegistration>,
) -> usize {
    registration.map_or(0, |registration| registration.names.len())
}

/// Returns the name of the library with this index, as stored in the program; empty if `index` is
/// out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(registration.map(|registration| &registration.names), index)
}

/// Returns the path at which the dynamic loader would find that library now; empty if it would not
/// find it, and if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_registration_library_path(
    registration: Option<&OffldRegistration>,
    index: usize,
) -> OffldString {
    nth(registration.map(|registration| &registration.paths), index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_match_the_model() {
        let bits = [
            OFFLD_KIND_OPENMP,
            OFFLD_KIND_CUDA,
            OFFLD_KIND_HIP,
            OFFLD_KIND_SYCL,
        ];
        assert_eq!(OffloadKind::ALL.map(|kind| bit(kind.name())), bits);
        assert_eq!((bit("host"), bit("other")), (OFFLD_KIND_HOST, 0));
    }
}
