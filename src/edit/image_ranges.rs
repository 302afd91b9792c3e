//! Where the images of a file are, for who takes the file apart: which bytes of it are an image,
//! and which are a compressed stream with images in it.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};

use super::rewriter::{Location, Rewriter};
use super::{Levels, Verdict};
use crate::contents::report::FileReport;
use crate::io::file_slice::{FileSlice, Spool};

/// A part of a file that is device code.
#[derive(Debug)]
pub(crate) struct Place {
    /// Which bytes of the file it has.
    pub range: Range<u64>,
    /// What they are.
    pub holds: Held,
}

/// What is at a place.
#[derive(Debug)]
pub(crate) enum Held {
    /// The image with this number, as it is stored.
    Image(usize),
    /// Something compressed.
    Stream(Stream),
}

/// Something compressed that holds images.
#[derive(Debug)]
pub(crate) struct Stream {
    /// What is in it.
    pub plain: FileSlice,
    /// Where the images are in that.
    pub places: Vec<Place>,
}

/// The places of the images of the file `piece`, in the order of the file. Images that cannot be
/// taken out are not among them.
///
/// # Errors
/// The file is damaged.
pub(crate) fn places(
    (path, piece): (&Path, &FileSlice),
    report: &FileReport,
    spool: &mut Spool,
) -> Result<Vec<Place>> {
    let verdicts = vec![Verdict::Keep; report.images.len()];
    let mut rewriter = Rewriter::new(report, &verdicts, Levels::default(), spool)?;
    rewriter.places = Some(Places {
        base: piece.file_offset(0).unwrap_or_default(),
        found: Vec::new(),
    });
    rewriter.file(path, piece)?;
    let mut found = rewriter
        .places
        .map(|places| places.found)
        .unwrap_or_default();
    found.sort_by_key(|place| place.range.start);
    if found
        .windows(2)
        .any(|pair| matches!(pair, [one, next] if one.range.end > next.range.start))
    {
        bail!("{}: images overlap", path.display());
    }
    Ok(found)
}

/// What has been found so far.
pub(super) struct Places {
    /// Where what is gone through begins, as pieces tell their offsets.
    base: u64,
    found: Vec<Place>,
}

impl Places {
    fn push(&mut self, piece: &FileSlice, holds: Held) {
        let Some(start) = piece
            .file_offset(0)
            .and_then(|at| at.checked_sub(self.base))
        else {
            return;
        };
        if piece.size() > 0 {
            self.found.push(Place {
                range: start..start + piece.size(),
                holds,
            });
        }
    }
}

impl Rewriter<'_> {
    /// Notes where the image is that was met last, if that is wanted.
    pub(super) fn note_image(&mut self, piece: &FileSlice, number: usize) {
        if let Some(places) = &mut self.places {
            places.push(piece, Held::Image(number));
        }
    }

    /// Goes into `whole`, which is what comes out of the container at `location` when `stream` is
    /// inflated; before `from` it has what is not compressed. Notes where the stream is, and the
    /// images in it.
    pub(super) fn note_stream(
        &mut self,
        location: &Location,
        stream: &FileSlice,
        whole: FileSlice,
        from: u64,
    ) -> Result<()> {
        let whole = whole.as_file();
        let plain = whole.from(from);
        let base = plain.file_offset(0).context("a stream outside of a file")?;
        let outer = self.places.replace(Places {
            base,
            found: Vec::new(),
        });
        self.enter(&location.inside(whole, location.place.clone()))?;
        let inner = std::mem::replace(&mut self.places, outer)
            .map(|places| places.found)
            .unwrap_or_default();
        if let Some(places) = &mut self.places {
            places.push(
                stream,
                Held::Stream(Stream {
                    plain,
                    places: inner,
                }),
            );
        }
        Ok(())
    }
}
