//! Debug information of device code leaves a file: that of AMD's and NVIDIA's images, and of those for CPUs.

use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::contents::report::{FileReport, Image, Step};
use crate::edit::Verdict;
use crate::edit::files::{Change, Options, change};
use crate::formats::compose::Part;
use crate::formats::elf::strip::strip_debug;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;
use crate::sys::session::Session;

/// Takes debug information out of the ELF images of the files. Images of other formats stay as they are, and so do those that are in
/// other images.
///
/// # Errors
/// The places of the new files cannot be, or a signal. What is wrong with one file is in its change.
pub(crate) fn strip_device(files: &[PathBuf], options: &Options, session: &Session) -> Result<Vec<Change>> {
    let options = Options { image_bytes: true, ..options.clone() };
    let decide = |report: &FileReport| {
        let mut spool = Spool::new(session);
        let mut verdicts = Vec::with_capacity(report.images.len());
        let mut outer: Option<&Image> = None;
        for image in &report.images {
            let is_embedded =
                outer.is_some_and(|outer| image.path.len() > outer.path.len() && image.path.starts_with(&outer.path));
            let stripped = if is_embedded { None } else { stripped(image, &mut spool)? };
            verdicts.push(stripped.map_or(Verdict::Keep, Verdict::Replace));
            outer = if is_embedded { outer } else { Some(image) };
            session.signals.check()?;
        }
        Ok(verdicts)
    };
    change(files, &options, session, &decide)
}

/// The image without debug information; none where it has none, or is no ELF file, or is a compressed file of its own, which its runtime
/// has to find as it is.
fn stripped(image: &Image, spool: &mut Spool) -> Result<Option<Piece>> {
    let is_frame = image.path.iter().any(|step| matches!(step, Step::Container { name: "zstd", .. }));
    if !image.is_device() || is_frame || !matches!(image.format, "elf" | "cubin") {
        return Ok(None);
    }
    let Some(piece) = &image.piece else { return Ok(None) };
    let parts = strip_debug(piece.bytes()).with_context(|| format!("image {}", image.index))?;
    piece.release();
    if let [Part::Old(range)] = parts.as_slice()
        && *range == (0..piece.size())
    {
        return Ok(None);
    }
    let mut rope = Rope::default();
    for part in parts {
        match part {
            Part::Old(range) => {
                let part = piece.slice(range.start, range.end.saturating_sub(range.start));
                rope.push_piece(part.with_context(|| format!("image {}: a range past the end", image.index))?);
            }
            Part::Bytes(bytes) => rope.push_bytes(bytes),
            Part::Zeros(count) => rope.push_zeros(count),
            Part::New(_) => {}
        }
    }
    Ok(Some(rope.into_piece(spool)?))
}
