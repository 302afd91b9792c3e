//! Streams that are compressed again, so that the same bytes come out: what takes files apart finds
//! out by it whether a stream can be made again, and what puts them together makes it.

use std::io::{BufReader, Write};

use anyhow::{Context, Result};

use super::files::wheel::LEVEL;
use super::split_manifest::Checksum;
use crate::formats::recipe::{self, Recipe};
use crate::io::file_slice::{FileSlice, PieceReader, Spool};
use crate::io::rope::Rope;

/// How streams of zip files are made, in recipes.
const DEFLATE: &str = "deflate";

/// The release of the compressors here: another one may make other streams.
pub(crate) fn compressor() -> String {
    recipe::compressor()
}

/// How `stream` is made of `plain`, for [`pack`]; none if that is not known here. `deflate`: it is
/// a stream as zip files have it.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn find(
    stream: &FileSlice,
    plain: &FileSlice,
    deflate: bool,
    spool: &mut Spool,
) -> Result<Option<String>> {
    if !deflate {
        let found = recipe::find(|| buffered(stream), || buffered(plain), plain.size())?;
        return Ok(found.map(|recipe| recipe.to_string()));
    }
    let how = format!("{DEFLATE} {LEVEL}");
    let again = pack(&plain.clone().into(), &how, spool)?;
    Ok(
        (again.size() == stream.size() && Checksum::of(&again)? == Checksum::of(stream)?)
            .then_some(how),
    )
}

fn buffered(piece: &FileSlice) -> BufReader<PieceReader<'_>> {
    BufReader::with_capacity(256 << 10, piece.reader())
}

/// `plain`, compressed as `how` says.
///
/// # Errors
/// It cannot be read, or `how` is nothing that is known here.
pub(crate) fn pack(plain: &Rope, how: &str, spool: &mut Spool) -> Result<FileSlice> {
    if let Some(level) = how
        .strip_prefix(DEFLATE)
        .and_then(|level| level.trim().parse::<u32>().ok())
    {
        return spool.add(|file| {
            let mut encoder = flate2::write::DeflateEncoder::new(
                &mut *file,
                flate2::Compression::new(level.min(9)),
            );
            plain.write_to(&mut encoder)?;
            encoder.finish()?.flush()?;
            Ok(())
        });
    }
    let recipe: Recipe = how
        .parse()
        .map_err(|error| anyhow::Error::msg(format!("`{how}`: {error}")))?;
    let plain = plain
        .clone()
        .into_piece(spool)
        .context("cannot read a stream")?;
    spool.add(|file| {
        recipe
            .pack(plain.reader(), plain.size(), &mut *file)?
            .flush()?;
        Ok(())
    })
}
