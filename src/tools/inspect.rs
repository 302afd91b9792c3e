//! Lists the device code in files: objects, programs, archives, zip files, containers, bare images. Containers are opened
//! recursively down to the device images. A damaged part is reported as an error, and everything else in the file is still listed.
//! Images are read in chunks, so memory use does not depend on their size.
//!
//! `walk` does the recursion; `what` recognizes formats; `containers`, `objects`, `archive`, `zip` and `bitcode` each read one
//! family of formats; `image` describes an image. `registers` and `libraries` find the runtimes that a file registers with;
//! `report` is the result as data, `table` as text; `extract` writes images to files.

mod archive;
mod bitcode;
mod bytes_of;
mod containers;
mod extract;
mod folders;
mod image;
mod inflate;
mod libraries;
mod objects;
mod registers;
pub mod report;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod walk;
mod what;
mod zip;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::{Context, Result};
use object::elf::{ET_DYN, ET_EXEC, ET_REL};
use rayon::prelude::*;

use crate::formats::{bundle, compressed, dynamic, fatbin, magic, offload_binary};
use crate::io::piece::{Piece, Spool};
use crate::sys::session::Session;
use crate::sys::threads;
use image::ImageMetadata;
use report::{FileReport, Place, Report, SCHEMA, UNREADABLE};
use walk::{Cursor, Walk};
use what::{ByteKind, byte_kind};

/// What to inspect, and how.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The files, in the order of their reports, and folders, of which every file with device code is reported.
    pub files: Vec<PathBuf>,
    /// Whether to list the kernels of images.
    pub kernels: bool,
    /// Whether to read headers only: no hashes or checksums, and of a compressed bundle only the header is decompressed.
    pub headers_only: bool,
    /// The folder to extract images to.
    pub extract: Option<PathBuf>,
    /// Keep the bytes of each image, for whoever writes them somewhere.
    pub keep_bytes: bool,
}

/// Inspects the files. Errors in a file are part of its report; this fails only if extracted images cannot be written or after a
/// signal.
pub(crate) fn inspect(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::expand(&request.files);
    let spool = Mutex::new(Spool::new(session));
    let inspection = Inspection { request, session, spool: &spool };
    let mut files: Vec<FileReport> = threads::in_parallel(|| {
        let each = paths.par_iter().filter_map(|found| Some(inspection.file(&found.path)).filter(|file| found.is_wanted(file)));
        each.collect()
    });
    files.extend(faults.into_iter().map(|(path, error)| inspection.unreadable(&path, &error)));
    session.signals.check()?;
    if let Some(folder) = &request.extract {
        extract::all(&mut files, folder, session)?;
    }
    Ok(Report { schema: SCHEMA, generator: format!("offld {}", env!("CARGO_PKG_VERSION")), files })
}

/// Looks into one file. What is wrong with what is in it is in the report; an error is one of opening it.
pub(crate) fn inspect_one(path: &Path, request: &Request, session: &Session) -> Result<FileReport> {
    let piece = Piece::open(path)?;
    Ok(Inspection { request, session, spool: &Mutex::new(Spool::new(session)) }.opened(path, piece))
}

/// What is the same for all files.
#[derive(Clone, Copy)]
struct Inspection<'r> {
    request: &'r Request,
    session: &'r Session,
    /// What was inflated of images whose bytes are wanted afterwards.
    spool: &'r Mutex<Spool>,
}

impl Inspection<'_> {
    fn file(&self, path: &Path) -> FileReport {
        // There may be more files than can be open at once, and those with images that are extracted are needed to the end.
        let piece = if self.request.extract.is_some() { Piece::try_open_one_of_many(path) } else { Piece::try_open(path) };
        match piece.with_context(|| path.display().to_string()) {
            Ok(piece) => self.opened(path, piece),
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn unreadable(&self, path: &Path, error: &anyhow::Error) -> FileReport {
        let mut walk = Walk::new(self, 0);
        walk.note(error);
        walk.report(path, UNREADABLE)
    }

    fn opened(&self, path: &Path, piece: Piece) -> FileReport {
        let mut walk = Walk::new(self, piece.size());
        let kind = kind(piece.bytes());
        let place = Place { file: path.to_owned(), steps: Vec::new() };
        walk.enter(&Cursor { piece, file: path.to_owned(), place, facts: ImageMetadata::default(), inside: false, depth: 0 });
        walk.report(path, kind)
    }
}

/// The type of a file, for the report.
fn kind(data: &[u8]) -> &'static str {
    use object::FileKind;
    match byte_kind(data, true) {
        ByteKind::Containers if offload_binary::is_offload_binary(data) => "offload-binary",
        ByteKind::Containers if bundle::is_bundle(data) => "bundle",
        ByteKind::Containers if compressed::is_compressed(data) => "compressed-bundle",
        ByteKind::Containers => {
            debug_assert!(fatbin::is_fatbin(data));
            "fatbinary"
        }
        ByteKind::TextBundle(_) => "text-bundle",
        ByteKind::Archive if data.starts_with(&magic::THIN_ARCHIVE) => "thin-archive",
        ByteKind::Archive => "archive",
        ByteKind::Zip => "zip",
        ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) => elf_kind(data),
        ByteKind::Object(FileKind::Coff | FileKind::CoffBig) => "coff-object",
        ByteKind::Object(FileKind::Pe32 | FileKind::Pe64) => "pe",
        ByteKind::Object(FileKind::MachO32 | FileKind::MachO64) => "mach-o",
        ByteKind::Object(_) => "object",
        ByteKind::Bitcode => "bitcode",
        ByteKind::Spirv => "spirv",
        ByteKind::Ptx => "ptx",
        ByteKind::TileIr => "tile-ir",
        ByteKind::Zstd => "zstd",
        ByteKind::Empty => "empty",
        ByteKind::Unknown => "unknown",
    }
}

/// Tells objects, libraries and programs apart. A position independent program has the type of a library but names a loader.
fn elf_kind(data: &[u8]) -> &'static str {
    match magic::elf_type(data) {
        Some(ET_REL) => "elf-object",
        Some(ET_EXEC) => "elf-executable",
        Some(ET_DYN) if matches!(dynamic::interpreter(data), Ok(Some(_))) => "elf-executable",
        Some(ET_DYN) => "elf-shared",
        _ => "elf",
    }
}
