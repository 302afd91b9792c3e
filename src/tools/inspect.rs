//! What device code is in files: objects, programs, archives, containers, bare images. Each file is gone into, and whatever is in it, down
//! to the images; what is damaged is told beside what the rest holds. Nothing is taken for granted that can be read, and memory does not
//! grow with the images.
//!
//! `walk` leads the way; `what` tells bytes apart; `containers`, `objects`, `archive` and `bitcode` go through one kind of thing each;
//! `leaf` is its end. `registers` and `libraries` tell of runtimes; `table` and `report` are how it is told; `extract` writes images.

mod archive;
mod bitcode;
mod bytes_of;
mod containers;
mod extract;
mod image;
mod inflate;
mod libraries;
mod objects;
mod registers;
pub(crate) mod report;
pub(crate) mod table;
#[cfg(test)]
mod tests;
mod walk;
mod what;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use object::elf::{ET_DYN, ET_EXEC, ET_REL};
use rayon::prelude::*;

use crate::formats::{bundle, compressed, dynamic, fatbin, magic, offload_binary};
use crate::io::piece::Piece;
use crate::sys::session::Session;
use image::ImageMetadata;
use report::{FileReport, Place, Report, SCHEMA, UNREADABLE};
use walk::{Cursor, Walk};
use what::{What, what};

/// What to look for.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// The files, in the order their reports are wanted.
    pub files: Vec<PathBuf>,
    /// Read the kernels of images, too.
    pub kernels: bool,
    /// Read no more than headers: no hashes, and nothing is inflated but the header of a compressed bundle.
    pub headers_only: bool,
    /// Where images are extracted to.
    pub extract: Option<PathBuf>,
}

/// Looks into the files. What is wrong with them is in the report; an error is one of writing the images.
pub(crate) fn inspect(request: &Request, session: &Session) -> Result<Report> {
    let mut files: Vec<FileReport> = request.files.par_iter().map(|path| file(path, request, session)).collect();
    session.signals.check()?;
    if let Some(folder) = &request.extract {
        extract::all(&mut files, folder, session)?;
    }
    Ok(Report { schema: SCHEMA, generator: format!("offld {}", env!("CARGO_PKG_VERSION")), files })
}

fn file(path: &Path, request: &Request, session: &Session) -> FileReport {
    let name = path.display().to_string();
    let opened = Piece::try_open(path).with_context(|| name.clone());
    let mut walk = Walk::new(request, Arc::clone(&session.signals), opened.as_ref().map_or(0, Piece::size));
    let kind = match opened {
        Ok(piece) => {
            let kind = kind(piece.bytes());
            let place = Place { file: path.to_owned(), steps: Vec::new() };
            walk.enter(&Cursor { piece, file: path.to_owned(), place, facts: ImageMetadata::default(), inside: false, depth: 0 });
            kind
        }
        Err(error) => {
            walk.note(&error);
            UNREADABLE
        }
    };
    FileReport { file: name, kind, images: walk.images, registrations: walk.registrations, errors: walk.errors }
}

/// What a file is, for the report.
fn kind(data: &[u8]) -> &'static str {
    use object::FileKind;
    match what(data, true) {
        What::Containers if offload_binary::is_offload_binary(data) => "offload-binary",
        What::Containers if bundle::is_bundle(data) => "bundle",
        What::Containers if compressed::is_compressed(data) => "compressed-bundle",
        What::Containers => {
            debug_assert!(fatbin::is_fatbin(data));
            "fatbinary"
        }
        What::TextBundle(_) => "text-bundle",
        What::Archive if data.starts_with(&magic::THIN_ARCHIVE) => "thin-archive",
        What::Archive => "archive",
        What::Object(FileKind::Elf32 | FileKind::Elf64) => elf_kind(data),
        What::Object(FileKind::Coff | FileKind::CoffBig) => "coff-object",
        What::Object(FileKind::Pe32 | FileKind::Pe64) => "pe",
        What::Object(FileKind::MachO32 | FileKind::MachO64) => "mach-o",
        What::Object(_) => "object",
        What::Bitcode => "bitcode",
        What::Spirv => "spirv",
        What::Ptx => "ptx",
        What::Empty => "empty",
        What::Unknown => "unknown",
    }
}

/// An object, a library or a program. A position independent program has the type of a library, but names its loader.
fn elf_kind(data: &[u8]) -> &'static str {
    match magic::elf_type(data) {
        Some(ET_REL) => "elf-object",
        Some(ET_EXEC) => "elf-executable",
        Some(ET_DYN) if matches!(dynamic::interpreter(data), Ok(Some(_))) => "elf-executable",
        Some(ET_DYN) => "elf-shared",
        _ => "elf",
    }
}
