//! What is in a file or a buffer: opened, listed, freed.

#![expect(unsafe_code, reason = "names that C finds, and pointers that it hands in")]

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use super::buffer::OffldBuffer;
use super::given;
use super::image::OffldImage;
use super::options::OffldOptions;
use super::registration::OffldRegistration;
use super::status::{OffldError, OffldStatus, made, needed};
use super::text::{OffldString, Text, nth, shown};
use crate::contents::report::FileReport;
use crate::facade;

/// What was found in a file or a buffer: images, registrations, errors. It is never changed, so that any number of threads may read
/// it at the same time. Everything that is asked of it belongs to it, and is valid until `offld_report_free`.
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
            registrations: report.registrations.iter().map(OffldRegistration::new).collect(),
            errors: Text::all(&report.errors),
            report,
        }
    }
}

/// Looks into the file at `path`: an object, library, program, archive, wheel, bundle or image of any kind. `-` is stdin. Libraries
/// that a program needs and files that a thin archive names are opened, too. The file must not change until the report is freed.
///
/// What is damaged in the file is told by `offld_report_error`, beside what the rest holds; that the call fails means that the file
/// cannot be opened, or that an argument is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_open_path(
    path: *const c_char,
    options: Option<&OffldOptions>,
    report: *mut *mut OffldReport,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller says so.
        let path = unsafe { given::path(path) }?;
        Ok(OffldReport::new(facade::inspect(path, &of(options))?))
    };
    // SAFETY: the caller says so.
    unsafe { made(report, error, open) }
}

/// Looks into an open file, whose descriptor stays the caller's and may be closed after the call: all of a regular file, and of a
/// pipe what is still in it. `name` is what messages call it (`descriptor` where that is NULL). No other file is opened for it. The
/// file must not change until the report is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_open_fd(
    descriptor: c_int,
    name: *const c_char,
    options: Option<&OffldOptions>,
    report: *mut *mut OffldReport,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller says so.
        let name = unsafe { given::name(name, "descriptor") };
        Ok(OffldReport::new(facade::inspect_file(name, given::file(descriptor)?, &of(options))?))
    };
    // SAFETY: the caller says so.
    unsafe { made(report, error, open) }
}

/// Looks into the `size` bytes at `data` as into a file with these contents. They are copied: the caller may free them after the
/// call. `name` is what messages call them (`memory` where that is NULL). No file is opened for them; what is compressed in them is
/// unpacked into unnamed temporary files, as it is of files.
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
        // SAFETY: the caller says so.
        let (bytes, name) = unsafe { (given::bytes(data, size)?, given::name(name, "memory")) };
        Ok(OffldReport::new(facade::inspect_bytes(name, bytes, &of(options))))
    };
    // SAFETY: the caller says so.
    unsafe { made(report, error, open) }
}

/// The options to open something with.
fn of(options: Option<&OffldOptions>) -> facade::InspectOptions {
    options.map(|OffldOptions(options)| options.clone()).unwrap_or_default()
}

/// The name that the file or buffer was opened by.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_name(report: Option<&OffldReport>) -> OffldString {
    shown(report.map(|report| &report.name))
}

/// The type of the file: `elf-executable`, `archive`, `bitcode`, `bundle`, `unknown`, … (docs/inspect-json.md).
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_type(report: Option<&OffldReport>) -> OffldString {
    shown(report.map(|report| &report.kind))
}

/// How many images there are, those for the host in bundles among them. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_image_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.images.len())
}

/// An image by its number, in the order of the file; NULL where there are fewer, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_image(report: Option<&OffldReport>, index: usize) -> Option<&OffldImage> {
    report?.images.get(index)
}

/// How many registrations with runtimes there are. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_registration_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.registrations.len())
}

/// A registration by its number; NULL where there are fewer, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_registration(report: Option<&OffldReport>, index: usize) -> Option<&OffldRegistration> {
    report?.registrations.get(index)
}

/// How many errors were found in the file: 0 where all of it could be read, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_error_count(report: Option<&OffldReport>) -> usize {
    report.map_or(0, |report| report.errors.len())
}

/// An error in the file, with its place; empty where there are fewer.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_error(report: Option<&OffldReport>, index: usize) -> OffldString {
    nth(report.map(|report| &report.errors), index)
}

/// The whole report as JSON, as `offld inspect --json` has it for one file (docs/inspect-json.md): with kernels, tables of entries
/// and who linked the file, which have no functions of their own. The caller frees the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_report_json(
    report: Option<&OffldReport>,
    json: *mut *mut OffldBuffer,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let text = serde_json::to_vec(&*needed(report, "the report")?.report).map_err(std::io::Error::from)?;
        Ok(OffldBuffer::new(text))
    };
    // SAFETY: the caller says so.
    unsafe { made(json, error, write) }
}

/// Frees a report and everything that was asked of it. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_report_free(report: Option<Box<OffldReport>>) {
    drop(report);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_threads_read_can_be_shared() {
        fn shared<T: Send + Sync>() {}
        shared::<OffldReport>();
        shared::<OffldError>();
        shared::<OffldBuffer>();
        shared::<OffldOptions>();
    }
}
