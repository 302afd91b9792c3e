//! Edits a file and checks the result, for the engine's fuzz target and for tests.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::{Levels, Verdict, edit};
use crate::contents::report::{FileReport, Image};
use crate::contents::{self, Reader};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;

/// The bytes that replace images.
const OTHER: &[u8; 8] = b"REPLACED";

/// Edits the file at `path`. `fates` has a byte for each image and repeats if there are more
/// images: modulo 4, 1 removes the image, 2 replaces it, and other values keep it. Returns the size
/// of the new file; `None` if the file is damaged or does not support the edit.
///
/// # Errors
/// The new file is damaged or has unexpected images: a bug in this library.
pub fn trial(path: &Path, fates: &[u8]) -> Result<Option<u64>> {
    let session = Session::new(
        Shell::from_write("offld", Box::new(std::io::sink())).into(),
        SessionOptions {
            embedded: true,
            ..SessionOptions::default()
        },
    );
    let headers = contents::Options {
        headers_only: true,
        ..contents::Options::default()
    };
    let listed = Reader::new(headers, &session).open(path)?;
    let old = read(path, FileSlice::open(path)?, &session);
    if !listed.errors.is_empty()
        || !old.errors.is_empty()
        || listed.images.len() != old.images.len()
    {
        return Ok(None);
    }
    let mut fates = fates.iter().cycle();
    let fate = |_| match fates.next().map(|fate| fate % 4) {
        Some(1) => Verdict::Drop,
        Some(2) => Verdict::Replace(FileSlice::owned(OTHER.to_vec())),
        _ => Verdict::Keep,
    };
    let verdicts: Vec<Verdict> = (0..listed.images.len()).map(fate).collect();
    let piece = FileSlice::open(path)?;
    let mut spool = Spool::new(&session);
    let Ok(edited) = edit(
        (path, &piece),
        &listed,
        &verdicts,
        Levels::default(),
        &mut spool,
    ) else {
        return Ok(None);
    };
    let bytes = edited.bytes.unwrap_or_else(|| Rope::from(piece.clone()));
    let (size, other) = (bytes.size(), digest(&FileSlice::owned(OTHER.to_vec()))?);
    let piece = bytes.into_piece(&mut spool)?;
    // If the file itself is an image, the new file consists of the replacement bytes, in which a
    // reader finds no image.
    if let ([image, ..], [Verdict::Replace(_), ..]) = (&old.images[..], &verdicts[..])
        && image.path.is_empty()
    {
        ensure!(
            digest(&piece)? == other,
            "the new file differs from the expected bytes"
        );
        return Ok(Some(size));
    }
    let new = read(path, piece, &session);
    if let Some(error) = new.errors.first() {
        bail!("the new file is damaged: {error}");
    }
    let (mut wanted, mut found) = (expected(&old.images, &verdicts, &other)?, Vec::new());
    for image in &new.images {
        found.push(image.sha256.clone().context("an image without a digest")?);
    }
    wanted.sort_unstable();
    found.sort_unstable();
    if wanted != found {
        bail!(
            "the new file has {} images, expected {}, or other ones",
            found.len(),
            wanted.len()
        );
    }
    Ok(Some(size))
}

fn read(path: &Path, piece: FileSlice, session: &Session) -> FileReport {
    Reader::new(contents::Options::default(), session).opened(path, piece)
}

fn digest(piece: &FileSlice) -> Result<String> {
    Ok(crate::contents::bytes_of::sha256(piece)?)
}

/// The digests of the images that the new file must contain. An embedded image shares the verdict
/// of the image around it.
fn expected(images: &[Image], verdicts: &[Verdict], other: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut outer: Option<(&Image, &Verdict)> = None;
    // A bundle in the same container as an image has a path that starts in the same way.
    let can_be_in = |image: &Image, outer: &Image| match (image.offset, outer.offset) {
        (Some(start), Some(outer_start)) => {
            (outer_start..=outer_start + outer.size).contains(&start)
        }
        _ => true,
    };
    for (image, verdict) in images.iter().zip(verdicts) {
        let within = outer.filter(|(outer, _)| {
            image.path.len() > outer.path.len()
                && image.path.starts_with(&outer.path)
                && can_be_in(image, outer)
        });
        let fate = within.map_or(verdict, |(_, fate)| fate);
        match fate {
            Verdict::Keep => all.push(image.sha256.clone().context("an image without a digest")?),
            Verdict::Replace(_) if within.is_none() => all.push(other.to_owned()),
            _ => {}
        }
        if within.is_none() {
            outer = Some((image, verdict));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The corpus of the fuzz targets, with every verdict.
    #[test]
    fn the_fuzz_corpus_is_edited_correctly() -> Result<()> {
        let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let mut changed = 0;
        for target in std::fs::read_dir(&corpus).with_context(|| corpus.display().to_string())? {
            for seed in std::fs::read_dir(target?.path())? {
                let seed = seed?.path();
                let bytes = std::fs::read(&seed)?;
                // The seeds of some targets begin with one or eight bytes of parameters, or with a
                // command line.
                let line = bytes
                    .iter()
                    .position(|byte| *byte == 0xff)
                    .map_or(0, |at| at + 1);
                for start in [0, 1, 8, line] {
                    std::fs::write(&path, bytes.get(start..).unwrap_or_default())?;
                    for fates in [&[0][..], &[1], &[2], &[1, 0], &[0, 2, 1]] {
                        let done = trial(&path, fates)
                            .with_context(|| format!("{}: {start} {fates:?}", seed.display()))?;
                        changed += u32::from(done.is_some());
                    }
                }
            }
        }
        assert!(changed > 100, "only {changed} files could be changed");
        Ok(())
    }
}
