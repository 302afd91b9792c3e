//! `offld._offld`: the library's functions for the Python module around it (`../offld`), which gives them their names and types. Paths
//! come as bytes and reports go as JSON, in the form that the commands print. The interpreter's lock is released while they work.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::str::FromStr;

use offld::report::{FileReport, Image};
use offld::sizes::Level;
use offld::{CheckOptions, Error, InspectOptions, SizeOptions};
use pyo3::exceptions::{PyIndexError, PyOSError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// The report on one file, and the bytes of the images in it.
#[pyclass(frozen, module = "offld._offld")]
#[derive(Debug)]
struct Inspected {
    report: FileReport,
}

#[pymethods]
impl Inspected {
    /// The report, as an element of `files` in what `offld inspect --json` prints.
    fn json(&self, py: Python<'_>) -> PyResult<String> {
        let text = py.detach(|| serde_json::to_string(&self.report));
        text.map_err(|error| raised(py, &format!("cannot write the report as JSON: {error}"), None, None))
    }

    /// The bytes of the image with this number.
    fn read<'py>(&self, py: Python<'py>, index: usize) -> PyResult<Bound<'py, PyBytes>> {
        let image = self.image(index)?;
        let bytes = py.detach(|| {
            let mut bytes = Vec::new();
            image.write_to(&mut bytes).map(|()| bytes)
        });
        Ok(PyBytes::new(py, &bytes.map_err(|error| exception(py, error))?))
    }

    /// Writes the bytes of the image with this number to a file, which appears whole or not at all.
    fn write(&self, py: Python<'_>, index: usize, path: &[u8]) -> PyResult<()> {
        let image = self.image(index)?;
        py.detach(|| image.write_file(path_of(path))).map_err(|error| exception(py, error))
    }
}

impl Inspected {
    fn image(&self, index: usize) -> PyResult<&Image> {
        self.report.images.get(index).ok_or_else(|| PyIndexError::new_err("there is no image with this number"))
    }
}

/// What is in the file at `path`.
#[pyfunction]
#[pyo3(signature = (path, kernels, headers_only, max_unpacked))]
fn inspect(py: Python<'_>, path: &[u8], kernels: bool, headers_only: bool, max_unpacked: Option<u64>) -> PyResult<Inspected> {
    let options = inspect_options(kernels, headers_only, max_unpacked);
    let report = py.detach(|| offld::inspect(path_of(path), &options));
    Ok(Inspected { report: report.map_err(|error| exception(py, error))? })
}

/// What is in `data`, which the report calls `name`.
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
    Inspected { report: py.detach(|| offld::inspect_bytes(path_of(name), data, &options)) }
}

/// What `offld size --json` prints of the file or folder at `path`.
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
    let levels = by.iter().map(|name| Level::from_str(name)).collect::<Result<_, _>>();
    options.by = levels.map_err(|error| exception(py, error))?;
    options.by_inflated = by_inflated;
    options.filter = filter;
    options.max_unpacked = max_unpacked;
    let text = py.detach(|| offld::size(path_of(path), &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// What `offld check --json` prints of the file or folder at `path`, with `--for` for each of `devices`.
#[pyfunction]
fn check(py: Python<'_>, path: &[u8], devices: Vec<String>) -> PyResult<String> {
    let mut options = CheckOptions::default();
    options.devices = devices;
    let text = py.detach(|| offld::check(path_of(path), &options)?.to_json());
    text.map_err(|error| exception(py, error))
}

/// What is imported.
#[pymodule]
fn _offld(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", offld::VERSION)?;
    module.add_class::<Inspected>()?;
    module.add_function(wrap_pyfunction!(inspect, module)?)?;
    module.add_function(wrap_pyfunction!(inspect_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(size, module)?)?;
    module.add_function(wrap_pyfunction!(check, module)?)
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

/// The exception for an error: `OSError` for what the system refused, `offld.Error` for everything else.
fn exception(py: Python<'_>, error: Error) -> PyErr {
    let message = error.to_string();
    match error {
        Error::Io { path, error, .. } => match (number_of(&error), path) {
            (Some(number), Some(path)) => PyOSError::new_err((number, text_of(number), path.into_os_string())),
            (Some(number), None) => PyOSError::new_err((number, message)),
            (None, _) => PyOSError::new_err(message),
        },
        Error::Malformed { place, offset, .. } => raised(py, &message, Some(place).filter(|place| !place.is_empty()), offset),
        _ => raised(py, &message, None, None),
    }
}

/// The system's number for an error; where it was lost on the way (what makes temporary files keeps the kind alone), by the kind.
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

/// What the system says for an error number, without the number that Rust adds.
fn text_of(number: i32) -> String {
    let text = io::Error::from_raw_os_error(number).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// An `offld.Error`; the class is Python's own, so that it is one with types and documentation.
fn raised(py: Python<'_>, message: &str, file: Option<String>, offset: Option<u64>) -> PyErr {
    let made = py.import("offld._errors").and_then(|errors| errors.getattr("Error")?.call1((message, file, offset)));
    made.map_or_else(|error| error, PyErr::from_value)
}
