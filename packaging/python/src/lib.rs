//! `offld._offld`: the library's functions for the Python module (`../offld`), which adds types.
//! Paths are passed as bytes, and reports are returned as the JSON that the commands print. The
//! functions release the interpreter lock while they work.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use offld::inspect_report::{FileReport, Image};
use offld::size_report::Level;
use offld::{CheckOptions, DiffOptions, Error, GateOptions, InspectOptions, SizeOptions};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The report on one file, with access to the bytes of its images.
#[pyclass(frozen, module = "offld._offld")]
#[derive(Debug)]
struct Inspected {
    report: FileReport,
}

#[pymethods]
impl Inspected {
    /// The report, as an element of `files` in the output of `offld inspect --json`.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let text = py.detach(|| serde_json::to_string(&self.report));
        text.map_err(|error| {
            raised(
                py,
                &format!("cannot write the report as JSON: {error}"),
                None,
                None,
            )
        })
    }

    /// The bytes of the image with this number.
    fn read<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let image = self.image(index)?;
        let bytes = py.detach(|| {
            let mut bytes = Vec::new();
            image.write_to(&mut bytes).map(|()| bytes)
        });
        Ok(PyBytes::new(
            py,
            &bytes.map_err(|error| exception(py, error))?,
        ))
    }

    /// Writes the bytes of the image with this number to a file, which appears complete or not at
    /// all.
    fn write(&self, py: Python<'_>, index: usize, path: &[u8]) -> PyResult<()> {
        let image = self.image(index)?;
        py.detach(|| image.write_file(path_of(path)))
            .map_err(|error| exception(py, error))
    }
}

impl Inspected {
    fn image(&self, index: usize) -> PyResult<&Image> {
        self.report
            .images
            .get(index)
            .ok_or_else(|| PyIndexError::new_err("there is no image with this number"))
    }
}

/// Inspects the file at `path`.
#[pyfunction]
#[pyo3(signature = (path, kernels, headers_only, max_unpacked))]
fn inspect(
    py: Python<'_>,
    path: &[u8],
    kernels: bool,
    headers_only: bool,
    max_unpacked: Option<u64>,
) -> PyResult<Inspected> {
    let options = inspect_options(kernels, headers_only, max_unpacked);
    let report = py.detach(|| offld::inspect(path_of(path), &options));
    Ok(Inspected {
        report: report.map_err(|error| exception(py, error))?,
    })
}

/// Inspects `data`, which the report calls `name`.
#[pyfunction]
#[pyo3(signature = (name, data, kernels, headers_only, max_unpacked))]
fn inspect_bytes(
    py: Python<'_>,
    name: &[u8],
    data: &[u8],
    kernels: bool,
    headers_only: bool,
    max_unpacked: Option<u64>,
) -> Inspected {
    let options = inspect_options(kernels, headers_only, max_unpacked);
    Inspected {
        report: py.detach(|| offld::inspect_bytes(path_of(name), data, &options)),
    }
}

/// The output of `offld size --json` for the file or directory at `path`.
#[pyfunction]
#[pyo3(signature = (path, by, by_inflated, filter, max_unpacked))]
fn size(
    py: Python<'_>,
    path: &[u8],
    by: Vec<String>,
    by_inflated: bool,
    filter: Option<String>,
    max_unpacked: Option<u64>,
) -> PyResult<String> {
    let mut options = SizeOptions::default();
    let levels = by
        .iter()
        .map(|name| Level::from_str(name))
        .collect::<Result<_, _>>();
    options.by = levels.map_err(|error| exception(py, error))?;
    options.by_inflated = by_inflated;
    options.filter = filter;
    options.max_unpacked = max_unpacked;
    let text = py.detach(|| offld::size(path_of(path), &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// The output of `offld check --json` for the file or directory at `path`, with `--for` for each of
/// `devices`.
#[pyfunction]
fn check(py: Python<'_>, path: &[u8], devices: Vec<String>) -> PyResult<String> {
    let mut options = CheckOptions::default();
    options.devices = devices;
    let text = py.detach(|| offld::check(path_of(path), &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// The output of `offld diff --json` for two builds.
#[pyfunction]
fn diff(
    py: Python<'_>,
    old: &[u8],
    new: &[u8],
    only: Vec<String>,
    exclude: Vec<String>,
    changed_code: bool,
    max_unpacked: Option<u64>,
) -> PyResult<String> {
    let mut options = DiffOptions::default();
    options.changed_code = changed_code;
    options.only = only;
    options.exclude = exclude;
    options.max_unpacked = max_unpacked;
    let text = py.detach(|| offld::diff(path_of(old), path_of(new), &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// The output of `offld gate --json` for files.
#[pyfunction]
fn gate(
    py: Python<'_>,
    policy: &[u8],
    files: Vec<Vec<u8>>,
    baseline: Vec<Vec<u8>>,
    max_unpacked: Option<u64>,
) -> PyResult<String> {
    let paths = |names: &[Vec<u8>]| names.iter().map(|name| path_of(name).to_owned()).collect();
    let files: Vec<PathBuf> = paths(&files);
    let mut options = GateOptions::default();
    options.baseline = paths(&baseline);
    options.max_unpacked = max_unpacked;
    let text = py.detach(|| offld::gate(path_of(policy), &files, &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// The contents of the module `_offld`.
#[pymodule]
fn _offld(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", offld::VERSION)?;
    module.add_class::<Inspected>()?;
    module.add_function(wrap_pyfunction!(inspect, module)?)?;
    module.add_function(wrap_pyfunction!(inspect_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(size, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)?;
    module.add_function(wrap_pyfunction!(diff, module)?)?;
    module.add_function(wrap_pyfunction!(gate, module)?)
}

fn path_of(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

fn inspect_options(kernels: bool, headers_only: bool, max_unpacked: Option<u64>) -> InspectOptions {
    let mut options = InspectOptions::default();
    options.kernels = kernels;
    options.headers_only = headers_only;
    options.max_unpacked = max_unpacked;
    options
}

/// The exception for an error: `OSError` for errors of the operating system, `offld.Error` for all
/// others.
fn exception(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Io { path, error, .. } => match (number_of(&error), path) {
            (Some(number), Some(path)) => {
                PyOSError::new_err((number, text_of(number), path.into_os_string()))
            }
            (Some(number), None) => PyOSError::new_err((number, message)),
            (None, _) => PyOSError::new_err(message),
        },
        Error::Malformed { place, offset, .. } => raised(
            py,
            &message,
            Some(place).filter(|place| !place.is_empty()),
            offset,
        ),
        _ => raised(py, &message, None, None),
    }
}

/// The system's number for an error. The crate for temporary files keeps only the error's kind;
/// then the number is derived from the kind.
fn number_of(error: &io::Error) -> Option<i32> {
    const ENOENT: i32 = 2;
    const EACCES: i32 = 13;
    const ENOSPC: i32 = 28;
    const EROFS: i32 = 30;
    error.raw_os_error().or(match error.kind() {
        ErrorKind::NotFound => Some(ENOENT),
        ErrorKind::PermissionDenied => Some(EACCES),
        ErrorKind::StorageFull => Some(ENOSPC),
        ErrorKind::ReadOnlyFilesystem => Some(EROFS),
        _ => None,
    })
}

/// The system's text for an error number, without the number that Rust adds.
fn text_of(number: i32) -> String {
    let text = io::Error::from_raw_os_error(number).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// An `offld.Error`. The class is defined in Python, where it has types and documentation.
fn raised(py: Python<'_>, message: &str, file: Option<String>, offset: Option<u64>) -> PyErr {
    let instance = py
        .import("offld._errors")
        .and_then(|errors| errors.getattr("Error")?.call1((message, file, offset)));
    instance.map_or_else(|error| error, PyErr::from_value)
}
