//! The contents of a file or a buffer: opening, listing, freeing. The options for reading are a
//! handle with functions, so that new options change no structure.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::given;
use super::image::{OffldImage, OffldRegistration};
use super::package::OffldBuffer;
use super::status::{OffldError, OffldStatus, OffldString, Text, made, needed, nth, shown};
use crate::facade::{self, InspectOptions};
use offload_files::contents::report::FileReport;

/// Options for opening something. Created by `offld_options_new`, freed by `offld_options_free`.
/// NULL in place of options means the defaults. One handle can be used for any number of calls;
/// while one thread changes it, no other may use it.
#[derive(Debug, Default)]
pub struct OffldOptions(pub(super) InspectOptions);

/// Creates options with the defaults: no kernels, hashes and bytes of every image, at most 64 GiB
/// of decompressed data.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_new() -> Box<OffldOptions> {
    Box::default()
}

/// Sets whether the kernels of ELF images are read, too (default: false). Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_kernels(options: Option<&mut OffldOptions>, kernels: bool) {
    if let Some(OffldOptions(options)) = options {
        options.kernels = kernels;
    }
}

/// Sets whether only headers are read (default: false): no hashes, and only compressed files,
/// archive members and the headers of compressed bundles are decompressed. The bytes of the images
/// are then unavailable. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_headers_only(
    options: Option<&mut OffldOptions>,
    headers_only: bool,
) {
    if let Some(OffldOptions(options)) = options {
        options.headers_only = headers_only;
    }
}

/// Sets the limit for decompressed data in bytes (default: 64 GiB). 1000 times the size of the file
/// is a limit, too. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_set_max_unpacked(options: Option<&mut OffldOptions>, bytes: u64) {
    if let Some(OffldOptions(options)) = options {
        options.max_unpacked = Some(bytes);
    }
}

/// Frees options. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_options_free(options: Option<Box<OffldOptions>>) {
    drop(options);
}

/// The contents of a file or a buffer: images, registrations, errors. A report never changes, so
/// any number of threads may read it at the same time. Everything obtained from it belongs to it,
/// and is valid until `offld_report_free`.
#[derive(Debug)]
pub struct OffldReport {
    report: Arc<FileReport>,
    name: Text,
    kind: Text,
    images: Vec<OffldImage>,
    registrations: Vec<OffldRegistration>,
    errors: Vec<Text>,
}

impl OffldReport {
    fn new(report: FileReport) -> OffldReport {
        let report = Arc::new(report);
        OffldReport {
            name: Text::from(&report.file),
            kind: Text::from(report.kind),
            images: OffldImage::all(&report),
            registrations: report
                .registrations
                .iter()
                .map(OffldRegistration::new)
                .collect(),
            errors: Text::all(&report.errors),
            report,
        }
    }
}

/// Opens the file at `path`: an object, library, program, archive, wheel, bundle or image of any
/// kind. `-` is stdin. Libraries that a program needs and members of thin archives are opened, too.
/// The file must not change until the report is freed.
///
/// Damage in the file is reported by `offld_report_error`, next to the readable contents. The call
/// fails only if the file cannot be opened, or if an argument is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_open_path(
    path: *const c_char,
    options: Option<&OffldOptions>,
    report: *mut *mut OffldReport,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller guarantees it.
        let path = unsafe { given::path(path) }?;
        Ok(OffldReport::new(facade::inspect(
            path,
            &or_default(options),
        )?))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(report, error, open) }
}

/// Reads an open file: all of a regular file, or the remaining contents of a pipe. The caller keeps
/// the descriptor and may close it after the call. Messages call the file `name` (`descriptor` if
/// that is NULL). No other file is opened. The file must not change until the report is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_open_fd(
    descriptor: c_int,
    name: *const c_char,
    options: Option<&OffldOptions>,
    report: *mut *mut OffldReport,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller guarantees it.
        let name = unsafe { given::name(name, "descriptor") };
        Ok(OffldReport::new(facade::inspect_file(
            name,
            given::file(descriptor)?,
            &or_default(options),
        )?))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(report, error, open) }
}

/// Reads the `size` bytes at `data` like a file with these contents. They are copied, so the caller
/// may free them after the call. Messages call them `name` (`memory` if that is NULL). No other
/// file is opened; compressed data is decompressed into unnamed temporary files, as for files.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_open_memory(
    data: *const u8,
    size: usize,
    name: *const c_char,
    options: Option<&OffldOptions>,
    report: *mut *mut OffldReport,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller guarantees it.
        let (bytes, name) = unsafe { (given::bytes(data, size)?, given::name(name, "memory")) };
        Ok(OffldReport::new(facade::inspect_bytes(
            name,
            bytes,
            &or_default(options),
        )))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(report, error, open) }
}

/// Returns the options, or the defaults for NULL.
fn or_default(options: Option<&OffldOptions>) -> facade::InspectOptions {
    options
        .map(|OffldOptions(options)| options.clone())
        .unwrap_or_default()
}

/// Returns the name by which the file or buffer was opened.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_name(report: Option<&OffldReport>) -> OffldString {
    shown(report.map(|report| &report.name))
}

/// Returns the type of the file: `elf-executable`, `archive`, `bitcode`, `bundle`, `unknown`, …
/// (docs/reference/json.md).
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_type(report: Option<&OffldReport>) -> OffldString {
    shown(report.map(|report| &report.kind))
}

/// Returns the number of images, including host images of bundles. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_image_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.images.len())
}

/// Returns the image with this index, in file order; NULL if `index` is out of range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_image(
    report: Option<&OffldReport>,
    index: usize,
) -> Option<&OffldImage> {
    report?.images.get(index)
}

/// Returns the number of registrations with runtimes. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_registration_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.registrations.len())
}

/// Returns the registration with this index; NULL if `index` is out of range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_registration(
    report: Option<&OffldReport>,
    index: usize,
) -> Option<&OffldRegistration> {
    report?.registrations.get(index)
}

/// Returns the number of errors in the file: 0 if all of it could be read, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_error_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.errors.len())
}

/// Returns the error with this index, with its location; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_error(report: Option<&OffldReport>, index: usize) -> OffldString {
    nth(report.map(|report| &report.errors), index)
}

/// Writes the whole report as JSON, in the format of `offld inspect --json` for one file
/// (docs/reference/json.md). It includes kernels, entry tables and the linker of the file, which
/// have no accessors. The caller frees the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_report_json(
    report: Option<&OffldReport>,
    json: *mut *mut OffldBuffer,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let text = serde_json::to_vec(&*needed(report, "the report")?.report)
            .map_err(std::io::Error::from)?;
        Ok(OffldBuffer::new(text))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(json, error, write) }
}

/// Frees a report and everything that belongs to it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_free(report: Option<Box<OffldReport>>) {
    drop(report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_can_be_shared_between_threads() {
        fn assert_shareable<T: Send + Sync>() {}
        assert_shareable::<OffldReport>();
        assert_shareable::<OffldError>();
        assert_shareable::<OffldBuffer>();
        assert_shareable::<OffldOptions>();
    }
}
