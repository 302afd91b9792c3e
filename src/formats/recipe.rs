//! How a compressed stream was made: found by making it again. Who has the plain data and the recipe need not keep the stream.
//!
//! A recipe is found only where the compressor here is of the release that wrote the stream: others, and other programs, divide the same
//! data otherwise. So is a recipe good only for this build of offld, or another with the same compressor ([`compressor`]).
//!
//! ```
//! use offld::formats::recipe::{Recipe, find};
//!
//! let plain = b"some code, more code, and some code again".repeat(50);
//! let recipe: Recipe = "zstd-long 7".parse()?;
//! let stream = recipe.pack(&plain[..], plain.len() as u64, Vec::new())?;
//!
//! // Of little data several levels make the same.
//! let found = find(|| &stream[..], || &plain[..], plain.len() as u64)?.ok_or("no recipe")?;
//! assert_eq!(found.pack(&plain[..], plain.len() as u64, Vec::new())?, stream);
//! // One byte that differs, and there is none.
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
use super::magic;

/// How a stream is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// What makes it.
    pub style: Style,
    /// The compressor's level: 1 to 9 of zlib, 1 to 22 of zstd.
    pub level: i32,
}

/// What makes a stream, and how it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Style {
    /// zlib (RFC 1950).
    Zlib,
    /// A zstd frame as one call of zstd makes it: `llvm-offload-binary`, `fatbinary`.
    Zstd,
    /// The same, which also looks for what repeats at a distance: clang's bundles.
    ZstdLong,
    /// A zstd frame as offld makes it for bundles: in jobs, which can be done in parallel.
    ZstdJobs,
}

const STYLES: [(Style, &str); 4] =
    [(Style::ZstdLong, "zstd-long"), (Style::ZstdJobs, "zstd-jobs"), (Style::Zstd, "zstd"), (Style::Zlib, "zlib")];

impl Style {
    fn levels(self) -> std::ops::RangeInclusive<i32> {
        if self == Style::Zlib { 1..=9 } else { 1..=22 }
    }
}

impl fmt::Display for Recipe {
    /// A style and a level, `zstd-long 3`: what `parse` reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = STYLES.iter().find(|(style, _)| *style == self.style).map_or("", |(_, name)| name);
        write!(f, "{name} {}", self.level)
    }
}

/// A text that is no recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NoRecipe;

impl fmt::Display for NoRecipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not the name of a compressor and one of its levels")
    }
}

impl std::error::Error for NoRecipe {}

impl FromStr for Recipe {
    type Err = NoRecipe;

    fn from_str(text: &str) -> Result<Self, NoRecipe> {
        let (name, level) = text.split_once(' ').ok_or(NoRecipe)?;
        let (style, _) = STYLES.into_iter().find(|(_, known)| *known == name).ok_or(NoRecipe)?;
        let level = level.parse().ok().filter(|level| style.levels().contains(level)).ok_or(NoRecipe)?;
        Ok(Recipe { style, level })
    }
}

/// Which compressor is built in: `zstd 1.5.7`. Recipes are to be kept with it; another one makes other streams.
pub fn compressor() -> String {
    format!("zstd {}", zstd::zstd_safe::version_string())
}

impl Recipe {
    /// Writes the stream of the `plain_size` bytes that `plain` gives to `out`.
    ///
    /// # Errors
    /// Those of `plain` and `out`; `plain` gives more or fewer bytes than it should.
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

    /// zstd set for this recipe.
    fn zstd<W: Write>(self, out: W, plain_size: u64) -> io::Result<zstd::stream::write::Encoder<'static, W>> {
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
    // Asks for one byte more than expected, to notice data that is too long.
    let copied = io::copy(&mut plain.take(size.saturating_add(1)), out)?;
    if copied == size { Ok(()) } else { Err(io::Error::other("the data to be compressed has another size than was told")) }
}

/// Levels in the order in which they are tried: the ones that programs have by default, or that their users choose, first.
const LEVELS: [i32; 22] = [3, 19, 6, 9, 1, 22, 10, 12, 15, 5, 18, 20, 2, 4, 7, 8, 11, 13, 14, 16, 17, 21];
/// From this level on zstd takes up to a GiB of memory: these are tried for smaller data only.
const HEAVY: i32 = 20;
const SMALL: u64 = 64 << 20;
/// How much of the data is compressed to see whether a level can be the one: more than the first block takes, which has 128 KiB at most.
const SAMPLE: u64 = 132 << 10;

/// The recipe by which the stream that `stream` gives is made of the `plain_size` bytes that `plain` gives; both are read from their
/// start each time. None where there is no such recipe here.
///
/// Most levels are ruled out by the first blocks. One that is not costs as much as compressing the data.
///
/// # Errors
/// Those of reading; there is no memory for the compressor.
pub fn find<S: Read, P: Read>(stream: impl Fn() -> S, plain: impl Fn() -> P, plain_size: u64) -> io::Result<Option<Recipe>> {
    let mut start = [0; 5];
    let read = read_up_to(&mut stream(), &mut start)?;
    let Some(zstd) = kind(start.get(..read).unwrap_or_default()) else { return Ok(None) };
    let styles = STYLES.into_iter().filter(|(style, _)| (*style == Style::Zlib) != zstd);
    for (style, _) in styles {
        for level in LEVELS {
            let heavy = zstd && level >= HEAVY && plain_size > SMALL;
            let recipe = Recipe { style, level };
            if style.levels().contains(&level)
                && !heavy
                && recipe.is_likely(stream(), plain(), plain_size)?
                && recipe.gives(stream(), plain(), plain_size)?
            {
                return Ok(Some(recipe));
            }
        }
    }
    Ok(None)
}

/// Whether a stream that starts so is a zstd frame, or else a zlib stream. None if it is neither, or a frame of another kind than any
/// recipe makes: one with a checksum, say.
fn kind(start: &[u8]) -> Option<bool> {
    /// Of the descriptor: a checksum, a bit that must not be set, and a dictionary.
    const OTHERS: u8 = 0b0000_1111;
    match start {
        [a, b, c, d, descriptor] if [*a, *b, *c, *d] == magic::ZSTD => (descriptor & OTHERS == 0).then_some(true),
        // A window of 32 KiB, no dictionary, and a check that makes it a multiple of 31.
        [0x78, flags, ..] => (flags & 0x20 == 0 && u16::from_be_bytes([0x78, *flags]).is_multiple_of(31)).then_some(false),
        _ => None,
    }
}

impl Recipe {
    /// Whether the stream may be of this recipe, by its first block.
    fn is_likely(self, mut stream: impl Read, plain: impl Read, plain_size: u64) -> io::Result<bool> {
        if self.style == Style::Zlib || plain_size <= SAMPLE {
            return Ok(true);
        }
        let mut encoder = self.zstd(Vec::new(), plain_size)?;
        io::copy(&mut plain.take(SAMPLE), &mut encoder)?;
        encoder.flush()?;
        let sample = encoder.get_ref();
        let Some(sample) = first_block(sample).and_then(|end| sample.get(..end)) else { return Ok(true) };
        let mut start = vec![0; sample.len()];
        let read = read_up_to(&mut stream, &mut start)?;
        Ok(start.get(..read) == Some(sample))
    }

    /// Whether the stream is of this recipe.
    fn gives(self, mut stream: impl Read, plain: impl Read, plain_size: u64) -> io::Result<bool> {
        let same = self.compare(&mut stream, |out| self.pack(plain, plain_size, out).map(drop))?;
        Ok(same && read_up_to(&mut stream, &mut [0])? == 0)
    }

    /// Whether what `write` writes is what the stream has.
    fn compare<S: Read>(self, stream: S, write: impl FnOnce(Compare<'_, S>) -> io::Result<()>) -> io::Result<bool> {
        let differs = Cell::new(false);
        let done = write(Compare { stream, differs: &differs, buffer: Vec::new() });
        if differs.get() {
            return Ok(false);
        }
        done.map(|()| true)
    }
}

/// Where the first block of a zstd frame without a dictionary ends (RFC 8878, 3.1.1).
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
    // A block of one byte that is repeated stores it once.
    let size = if header >> 1 & 3 == 1 { 1 } else { header >> 3 };
    Some(block + 3 + size as usize)
}

/// Takes bytes as long as they are those of a stream.
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

/// Fills `buffer`, or reads to the end; returns how many bytes were read.
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
