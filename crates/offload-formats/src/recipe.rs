//! Recipes of compressed streams: finds the compressor settings that reproduce a stream, so that
//! the uncompressed data and the recipe can replace the stream.
//!
//! offld finds a recipe only if its compressor is from the release that wrote the stream. Other
//! releases and other programs divide the same data differently. Likewise, a recipe is only valid
//! for builds of offld with the same compressor ([`compressor`]).
//!
//! ```
//! use offload_formats::recipe::{Recipe, find};
//!
//! let plain = b"some code, more code, and some code again".repeat(50);
//! let recipe: Recipe = "zstd-long 7".parse()?;
//! let stream = recipe.pack(&plain[..], plain.len() as u64, Vec::new())?;
//!
//! // For small data, several levels give the same stream.
//! let found = find(|| &stream[..], || &plain[..], plain.len() as u64)?.ok_or("no recipe")?;
//! assert_eq!(found.pack(&plain[..], plain.len() as u64, Vec::new())?, stream);
//! // No recipe gives a stream with one different byte.
//! let other = [&stream[..stream.len() - 1], b"?"].concat();
//! assert_eq!(find(|| &other[..], || &plain[..], plain.len() as u64)?, None);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

use std::cell::Cell;
use std::fmt;
use std::io::{self, Read, Write};
use std::str::FromStr;

use super::compressed::encoder as own_encoder;
use super::magic::numbers as magic;

/// The settings that give a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// The compressor and its mode.
    pub style: Style,
    /// The compressor's level: 1 to 9 for zlib, 1 to 22 for zstd.
    pub level: i32,
}

/// A compressor and its mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// zlib (RFC 1950).
    Zlib,
    /// A zstd frame from a single call, as in `llvm-offload-binary` and `fatbinary`.
    Zstd,
    /// The same with long-distance matching, as in clang's bundles.
    ZstdLong,
    /// A zstd frame as offld writes it for bundles: in jobs that can run in parallel.
    ZstdJobs,
}

const STYLES: [(Style, &str); 4] = [
    (Style::ZstdLong, "zstd-long"),
    (Style::ZstdJobs, "zstd-jobs"),
    (Style::Zstd, "zstd"),
    (Style::Zlib, "zlib"),
];

impl Style {
    fn levels(self) -> std::ops::RangeInclusive<i32> {
        if self == Style::Zlib { 1..=9 } else { 1..=22 }
    }
}

impl fmt::Display for Recipe {
    /// A style and a level, such as `zstd-long 3`, which `parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STYLES
            .iter()
            .find(|(style, _)| *style == self.style)
            .map_or("", |(_, name)| name);
        write!(f, "{name} {}", self.level)
    }
}

/// The error for a text that is not a valid recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoRecipe;

impl fmt::Display for NoRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("expected a compressor and a level, such as zstd-long 3")
    }
}

impl std::error::Error for NoRecipe {}

impl FromStr for Recipe {
    type Err = NoRecipe;

    fn from_str(text: &str) -> Result<Self, NoRecipe> {
        let (name, level) = text.split_once(' ').ok_or(NoRecipe)?;
        let (style, _) = STYLES
            .into_iter()
            .find(|(_, known)| *known == name)
            .ok_or(NoRecipe)?;
        let level = level
            .parse()
            .ok()
            .filter(|level| style.levels().contains(level))
            .ok_or(NoRecipe)?;
        Ok(Recipe { style, level })
    }
}

/// The built-in compressor, such as `zstd 1.5.7`. Store it with recipes, because other compressors
/// give other streams.
pub fn compressor() -> String {
    format!("zstd {}", zstd::zstd_safe::version_string())
}

impl Recipe {
    /// Compresses the `plain_size` bytes that `plain` yields, and writes the stream to `out`.
    ///
    /// # Errors
    /// Reading or writing fails, or `plain` yields more or fewer bytes.
    pub fn pack<W: Write>(self, plain: impl Read, plain_size: u64, out: W) -> io::Result<W> {
        match self.style {
            Style::Zlib => {
                let level = flate2::Compression::new(self.level.unsigned_abs());
                let mut encoder = flate2::write::ZlibEncoder::new(out, level);
                copy(plain, plain_size, &mut encoder)?;
                encoder.finish()
            }
            _ => {
                let mut encoder = self.zstd(out, plain_size)?;
                copy(plain, plain_size, &mut encoder)?;
                encoder.finish()
            }
        }
    }

    /// A zstd encoder with the settings of this recipe.
    fn zstd<W: Write>(
        self,
        out: W,
        plain_size: u64,
    ) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
        if self.style == Style::ZstdJobs {
            return own_encoder(out, plain_size, self.level, 1);
        }
        let mut encoder = zstd::stream::write::Encoder::new(out, self.level)?;
        encoder.long_distance_matching(self.style == Style::ZstdLong)?;
        encoder.set_pledged_src_size(Some(plain_size))?;
        encoder.include_contentsize(true)?;
        Ok(encoder)
    }
}

fn copy(plain: impl Read, size: u64, out: &mut impl Write) -> io::Result<()> {
    // Reads one byte more than expected, to detect data that is too long.
    let copied = io::copy(&mut plain.take(size.saturating_add(1)), out)?;
    if copied == size {
        Ok(())
    } else {
        Err(io::Error::other(
            "the data to be compressed does not have the expected size",
        ))
    }
}

/// Levels in the order of the search: defaults and popular choices first.
const LEVELS: [i32; 22] = [
    3, 19, 6, 9, 1, 22, 10, 12, 15, 5, 18, 20, 2, 4, 7, 8, 11, 13, 14, 16, 17, 21,
];
/// From this level on, zstd takes up to a GiB of memory, so only smaller data is tried with it.
const HEAVY: i32 = 20;
const HEAVY_LIMIT: u64 = 64 << 20;
/// The number of bytes that are compressed to test a level: more than the first block takes, which
/// has at most 128 KiB.
const SAMPLE: u64 = 132 << 10;

/// Finds the recipe with which the `plain_size` bytes of `plain` give the stream of `stream`. Both
/// are read from the start several times. `None` if there is no such recipe.
///
/// The first block rules out most levels. Each remaining level costs as much as compressing the
/// data.
///
/// # Errors
/// Reading fails, or there is no memory for the compressor.
pub fn find<S: Read, P: Read>(
    stream: impl Fn() -> S,
    plain: impl Fn() -> P,
    plain_size: u64,
) -> io::Result<Option<Recipe>> {
    let mut start = [0; 5];
    let read = read_up_to(&mut stream(), &mut start)?;
    let Some(zstd) = kind(start.get(..read).unwrap_or_default()) else {
        return Ok(None);
    };
    let styles = STYLES
        .into_iter()
        .filter(|(style, _)| (*style == Style::Zlib) != zstd);
    for (style, _) in styles {
        for level in LEVELS {
            let heavy = zstd && level >= HEAVY && plain_size > HEAVY_LIMIT;
            let recipe = Recipe { style, level };
            if style.levels().contains(&level)
                && !heavy
                && recipe.is_likely(stream(), plain(), plain_size)?
                && recipe.reproduces(stream(), plain(), plain_size)?
            {
                return Ok(Some(recipe));
            }
        }
    }
    Ok(None)
}

/// Returns true for the start of a zstd frame and false for that of a zlib stream. `None` for other
/// data, and for frames that no recipe gives, such as one with a checksum.
fn kind(start: &[u8]) -> Option<bool> {
    /// Bits of the descriptor: a checksum, a reserved bit, and a dictionary.
    const UNSUPPORTED: u8 = 0b0000_1111;
    match start {
        [a, b, c, d, descriptor] if [*a, *b, *c, *d] == magic::ZSTD => {
            (descriptor & UNSUPPORTED == 0).then_some(true)
        }
        // A window of 32 KiB, no dictionary, and a check that makes the header a multiple of 31.
        [0x78, flags, ..] => (flags & 0x20 == 0
            && u16::from_be_bytes([0x78, *flags]).is_multiple_of(31))
        .then_some(false),
        _ => None,
    }
}

impl Recipe {
    /// Whether the first block of the stream matches this recipe.
    fn is_likely(
        self,
        mut stream: impl Read,
        plain: impl Read,
        plain_size: u64,
    ) -> io::Result<bool> {
        if self.style == Style::Zlib || plain_size <= SAMPLE {
            return Ok(true);
        }
        let mut encoder = self.zstd(Vec::new(), plain_size)?;
        io::copy(&mut plain.take(SAMPLE), &mut encoder)?;
        encoder.flush()?;
        let sample = encoder.get_ref();
        let Some(sample) = first_block(sample).and_then(|end| sample.get(..end)) else {
            return Ok(true);
        };
        let mut start = vec![0; sample.len()];
        let read = read_up_to(&mut stream, &mut start)?;
        Ok(start.get(..read) == Some(sample))
    }

    /// Whether this recipe gives the stream.
    fn reproduces(
        self,
        mut stream: impl Read,
        plain: impl Read,
        plain_size: u64,
    ) -> io::Result<bool> {
        let same = self.compare(&mut stream, |out| {
            self.pack(plain, plain_size, out).map(drop)
        })?;
        Ok(same && read_up_to(&mut stream, &mut [0])? == 0)
    }

    /// Whether `write` writes the bytes of the stream.
    fn compare<S: Read>(
        self,
        stream: S,
        write: impl FnOnce(Compare<'_, S>) -> io::Result<()>,
    ) -> io::Result<bool> {
        let differs = Cell::new(false);
        let done = write(Compare {
            stream,
            differs: &differs,
            buffer: Vec::new(),
        });
        if differs.get() {
            return Ok(false);
        }
        done.map(|()| true)
    }
}

/// The end of the first block of a zstd frame without a dictionary (RFC 8878, 3.1.1).
fn first_block(frame: &[u8]) -> Option<usize> {
    let descriptor = *frame.get(4)?;
    let is_single_segment = descriptor & 0x20 != 0;
    let size_of_size = match descriptor >> 6 {
        0 => usize::from(is_single_segment),
        other => 1 << other,
    };
    let block = 5 + size_of_size + usize::from(!is_single_segment);
    let [a, b, c] = *frame.get(block..)?.first_chunk()?;
    let header = u32::from_le_bytes([a, b, c, 0]);
    // A block that repeats one byte stores it once.
    let size = if header >> 1 & 3 == 1 { 1 } else { header >> 3 };
    Some(block + 3 + size as usize)
}

/// A writer that compares its input with a stream, and fails at the first difference.
struct Compare<'d, S> {
    stream: S,
    differs: &'d Cell<bool>,
    buffer: Vec<u8>,
}

impl<S: Read> Write for Compare<'_, S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.buffer.resize(bytes.len(), 0);
        let read = read_up_to(&mut self.stream, &mut self.buffer)?;
        if self.buffer.get(..read) != Some(bytes) {
            self.differs.set(true);
            return Err(io::Error::other("the stream differs"));
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fills `buffer`, or reads to the end. Returns the number of bytes read.
fn read_up_to(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(len) => done += len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
