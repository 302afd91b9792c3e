//! Lists the device code in files: objects, programs, archives, zip files, containers, bare images.
//! [`crate::contents`] finds it, and `table` shows it as text.

pub(crate) mod table;

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use crate::contents::report::{FileReport, Image, Report, SCHEMA};
use crate::contents::{Options, Reader, folders};
use crate::io::outputs::{Outputs, io_error};
use crate::sys::progress::Meter;
use crate::sys::scratch::safe_name;
use crate::sys::session::Session;
use crate::sys::threads;

/// The files to inspect, and options.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The files, in the order of their reports, and directories. From directories, every file with
    /// device code is reported.
    pub files: Vec<PathBuf>,
    /// The options of the inspection.
    pub options: Options,
    /// The directory to extract images to.
    pub extract: Option<PathBuf>,
}

/// Inspects the files. Errors in a file are part of its report. Fails if extracted images cannot be
/// written, or after a signal.
pub(crate) fn inspect(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::expand(&request.files, session);
    let mut options = request.options.clone();
    options.keep_bytes |= request.extract.is_some();
    let meter = Meter::new(
        session.shell.is_terminal(),
        paths.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let mut files: Vec<FileReport> = threads::in_parallel(|| {
        let each = paths.par_iter().filter_map(|found| {
            let also = found
                .also
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Some(FileReport {
                also,
                ..reader.one_of_many(&found.path)
            })
            .filter(|file| found.is_wanted(file))
        });
        each.collect()
    });
    files.extend(
        faults
            .into_iter()
            .map(|(path, error)| reader.unreadable(&path, &error)),
    );
    drop(meter);
    session.signals.check()?;
    if let Some(directory) = &request.extract {
        extract(&mut files, directory, session)?;
    }
    Ok(Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        files,
    })
}

/// Extracts the images of all files to `directory`, and adds their file names to the reports. If
/// one image fails, none is written. File names consist of an image's metadata, in which characters
/// that could lead out of the directory are replaced. Existing files are never overwritten.
fn extract(files: &mut [FileReport], directory: &Path, session: &Session) -> Result<()> {
    let context = || format!("cannot create the directory `{}`", directory.display());
    fs::create_dir_all(directory).with_context(context)?;
    let mut outputs = Outputs::new(session);
    let mut taken = HashSet::new();
    for file in files {
        let stem = Path::new(&file.file)
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for image in &mut file.images {
            let Some(piece) = image
                .piece
                .take()
                .filter(|piece| image.is_device() && piece.size() > 0)
            else {
                continue;
            };
            let path = free(directory, &name(&stem, image), &mut taken);
            if fs::symlink_metadata(&path).is_ok() {
                bail!(
                    "`{}` already exists: remove the file, or pass another directory",
                    path.display()
                );
            }
            let mut output = outputs.create(&path)?;
            piece
                .copy_to(&mut output)
                .map_err(|error| io_error(&path, &error))?;
            image.extracted = Some(path.display().to_string());
        }
    }
    outputs.commit()
}

/// The name of an extracted file, such as `lib.so.0.hip-amdgcn-amd-amdhsa-gfx90a.elf`.
fn name(stem: &str, image: &Image) -> String {
    let member = image
        .members
        .last()
        .map(|member| format!(".{}", member.rsplit('/').next().unwrap_or_default()));
    let known = [
        image.kinds.join("+"),
        image.triple.clone(),
        image.target.clone(),
    ];
    let known: Vec<String> = known.into_iter().filter(|part| !part.is_empty()).collect();
    let known = if known.is_empty() {
        "image".to_owned()
    } else {
        known.join("-")
    };
    let end = match image.format {
        "elf" => "elf",
        "cubin" => "cubin",
        "bitcode" => "bc",
        "spirv" => "spv",
        "ptx" => "ptx",
        "archive" => "a",
        _ => "bin",
    };
    format!(
        "{stem}{}.{}.{known}.{end}",
        member.unwrap_or_default(),
        image.index
    )
}

/// A path in `directory` that no other image of this run has. Inspected files in different
/// directories may have the same name.
fn free(directory: &Path, name: &str, taken: &mut HashSet<PathBuf>) -> PathBuf {
    let name = safe_name(name);
    let names = std::iter::once(name.clone()).chain((1..).map(|number| format!("{number}.{name}")));
    let mut paths = names.map(|name| directory.join(name));
    let path = paths.find(|path| taken.insert(path.clone()));
    path.unwrap_or_else(|| directory.join(name))
}
