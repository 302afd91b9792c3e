//! The tool llvm-offload-binary (clang-offload-packager): packs device images into OffloadBinaries,
//! and extracts them from any supported file (docs/spec/containers.md 4). Images are copied from
//! file to file, so that memory use does not depend on their size.

mod extract;
mod read;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use extract::image_kind;
pub use extract::{Extract, extract};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::session::Session;
use offload_formats::magic::is_bitcode;
use offload_formats::model::{ImageKind, OffloadKind};
use offload_formats::offload_binary::{self, Entry, frame_of, plain_frame, shared_frame};
use offload_formats::recipe::Recipe;
pub use read::{Image as StoredImage, unpack};

/// The keys and values of `--image=<key>=<value>,…` in the order of first occurrence: the
/// properties of an image to pack, or the filter for images to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageArguments {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ImageArguments {
    /// Arguments with these pairs. Each key must occur only once.
    pub fn new<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        ImageArguments {
            pairs: pairs
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect(),
        }
    }

    /// Splits at commas, and each part at its first `=`. A part without `=` has an empty value. The
    /// values of a repeated key are joined by commas. An empty text is one empty key.
    pub fn parse(text: &OsStr) -> Self {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for part in text.as_bytes().split(|byte| *byte == b',') {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let (key, value) = (
                halves.next().unwrap_or_default(),
                halves.next().unwrap_or_default(),
            );
            match pairs.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => {
                    values.push(b',');
                    values.extend(value);
                }
                None => pairs.push((key.to_vec(), value.to_vec())),
            }
        }
        ImageArguments { pairs }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs
            .iter()
            .find(|(known, _)| known == key.as_bytes())
            .map(|(_, value)| value.as_slice())
    }

    /// The value of `file`, as given.
    pub(crate) fn file(&self) -> Option<OsString> {
        self.get("file")
            .map(|name| OsString::from_vec(name.to_vec()))
    }

    /// The strings to store with an image: all pairs except `file` and `kind`.
    pub(crate) fn strings(&self) -> Vec<(&[u8], &[u8])> {
        let pairs = self
            .pairs
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_slice()));
        pairs
            .filter(|(key, _)| *key != b"file" && *key != b"kind")
            .collect()
    }

    /// The number of the offload kind in `kind`, or 0 if there is none.
    pub(crate) fn kind(&self) -> u16 {
        self.get("kind").map_or(0, kind_number)
    }

    /// The argument for messages: as given, but with repeated keys joined.
    pub(crate) fn shown(&self) -> String {
        let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            if value.is_empty() {
                key.into_owned()
            } else {
                format!("{key}={value}")
            }
        };
        self.pairs.iter().map(pair).collect::<Vec<_>>().join(",")
    }
}

/// The number of the offload kind `name`, or 0 for an unknown kind.
pub(crate) fn kind_number(name: &[u8]) -> u16 {
    OffloadKind::ALL
        .into_iter()
        .find(|kind| kind.name().as_bytes() == name)
        .map_or(0, |kind| kind as u16)
}

// Packs images and their metadata into one file: one OffloadBinary per image, or, in version 2,
// one for all images.

/// The format version of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// Version 1, which every release reads: one binary per image.
    #[default]
    Separate,
    /// Version 2, which LLVM 23 reads: one binary for all images.
    Shared,
}

/// The settings of packing.
#[derive(Debug)]
pub struct Pack {
    /// The images.
    pub images: Vec<ImageArguments>,
    /// The output. `-` is stdout.
    pub output: PathBuf,
    /// The format version.
    pub format: Format,
    /// The recipe that compresses all images together into one binary of version 3, which LLVM 24
    /// reads. `None` for uncompressed binaries.
    pub compression: Option<Recipe>,
    /// Whether to use the offload kind numbers of LLVM 15 to 20, in which HIP is 3.
    pub legacy_kinds: bool,
}

/// An image's file, of which only the first bytes have been read.
struct ImageFile<'a> {
    path: &'a Path,
    contents: FileSlice,
    entry: Entry<'a>,
}

/// Packs images according to `request`.
pub fn pack(request: &Pack, session: &Session) -> Result<()> {
    if request.images.is_empty() {
        bail!(
            "nothing to write to '{}': pass at least one --image",
            request.output.display()
        );
    }
    let mut inputs = Vec::new();
    for image in &request.images {
        let Some(files) = image.get("file") else {
            bail!("'file' is a required image arguments")
        };
        if image.get("triple").is_none() {
            session.shell.warn(&format!(
                "'--image={}' has no 'triple': linkers cannot find the image by its target; add triple=TRIPLE",
                image.shown()
            ));
        }
        let kind = kind_of(image, request.legacy_kinds, session)?;
        for file in files.split(|byte| *byte == b',') {
            inputs.push(open(Path::new(OsStr::from_bytes(file)), image, kind)?);
        }
    }
    let mut outputs = Outputs::new(session);
    let mut out = outputs.create_anew_or_stdout(&request.output)?;
    match (request.compression, request.format) {
        (Some(recipe), _) => write_compressed(&inputs, recipe, &mut out)?,
        (None, Format::Separate) => write_separate(&inputs, &mut out)?,
        (None, Format::Shared) => write_shared(&inputs, &mut out)?,
    }
    outputs.commit()
}

/// The number to store for an image's offload kind.
fn kind_of(image: &ImageArguments, legacy: bool, session: &Session) -> Result<u16> {
    const LEGACY_HIP: u16 = 3;
    let Some(name) = image.get("kind") else {
        return Ok(0);
    };
    let kind = kind_number(name);
    if kind == 0 && !matches!(name, b"" | b"none") {
        let name = String::from_utf8_lossy(name);
        session.shell.warn(&format!(
            "unknown kind '{name}', stored as 0: expected openmp, cuda, hip or sycl"
        ));
    }
    match kind {
        _ if !legacy => Ok(kind),
        kind if kind == OffloadKind::Hip as u16 => Ok(LEGACY_HIP),
        kind if kind == OffloadKind::Sycl as u16 => bail!(
            "'--image={}': the legacy format has no kind for sycl",
            image.shown()
        ),
        kind => Ok(kind),
    }
}

fn open<'a>(path: &'a Path, image: &'a ImageArguments, offload_kind: u16) -> Result<ImageFile<'a>> {
    let contents = FileSlice::open_one_of_many(path)?;
    let image_kind = if is_bitcode(contents.bytes()) {
        ImageKind::Bitcode
    } else {
        image_kind(path)
    };
    let entry = Entry {
        image_kind,
        offload_kind,
        flags: 0,
        strings: image.strings(),
        image_size: contents.size(),
    };
    Ok(ImageFile {
        path,
        contents,
        entry,
    })
}

fn write_separate(inputs: &[ImageFile<'_>], out: &mut Output) -> Result<()> {
    for input in inputs {
        let frame = frame_of(&input.entry);
        let start = out.stream_position()?;
        out.write_all(&frame.head)?;
        copy(input, out)?;
        out.pad_to(start + frame.total_size)?;
    }
    Ok(())
}

fn write_shared(inputs: &[ImageFile<'_>], out: &mut Output) -> Result<()> {
    let entries: Vec<Entry<'_>> = inputs.iter().map(|input| input.entry.clone()).collect();
    let frame = shared_frame(&entries);
    out.write_all(&frame.head)?;
    for input in inputs {
        copy(input, out)?;
    }
    Ok(out.pad_to(frame.total_size)?)
}

/// Compresses images while it reads them, so that none has to be in memory.
fn write_compressed(inputs: &[ImageFile<'_>], recipe: Recipe, out: &mut Output) -> Result<()> {
    let entries: Vec<Entry<'_>> = inputs.iter().map(|input| input.entry.clone()).collect();
    let frame = plain_frame(&entries);
    let images: u64 = inputs.iter().map(|input| input.contents.size()).sum();
    let padding = frame
        .total_size
        .saturating_sub(frame.head.len() as u64 + images);
    let mut plain: Box<dyn Read + '_> = Box::new(&frame.head[..]);
    for input in inputs {
        plain = Box::new(plain.chain(input.contents.reader()));
    }
    offload_binary::pack(
        plain.chain(std::io::repeat(0).take(padding)),
        frame.total_size,
        recipe,
        &mut *out,
    )?;
    Ok(())
}

fn copy(input: &ImageFile<'_>, out: &mut Output) -> Result<()> {
    input
        .contents
        .copy_to(out)
        .map_err(|error| io_error(input.path, &error))
}

/// Writes `images` to `out`. Each image is copied in chunks.
///
/// # Errors
/// There is no image, a string contains a zero (which terminates strings in version 1), or `out`
/// fails.
pub fn pack_to(images: &[&StoredImage], format: Format, out: &mut dyn Write) -> Result<()> {
    use offload_formats::error::Error;

    if images.is_empty() {
        return Err(Error::usage("no images to pack").into());
    }
    let entries: Vec<Entry<'_>> = images.iter().map(|image| image.entry()).collect();
    let ends_early = |text: &[u8]| text.contains(&0);
    let mut strings = entries.iter().flat_map(|entry| &entry.strings);
    if format == Format::Separate
        && strings.any(|(key, value)| ends_early(key) || ends_early(value))
    {
        return Err(Error::usage(
            "a string contains a zero byte, which only version 2 of the format can store",
        )
        .into());
    }
    let mut whole = |head: &[u8], parts: &[&StoredImage], size: u64| -> Result<()> {
        out.write_all(head)?;
        let mut written = head.len() as u64;
        for part in parts {
            written += std::io::copy(&mut part.contents.reader(), out)?;
        }
        std::io::copy(
            &mut std::io::repeat(0).take(size.saturating_sub(written)),
            out,
        )?;
        Ok(())
    };
    match format {
        Format::Separate => images.iter().zip(&entries).try_for_each(|(image, entry)| {
            let frame = frame_of(entry);
            whole(&frame.head, std::slice::from_ref(image), frame.total_size)
        }),
        Format::Shared => {
            let frame = shared_frame(&entries);
            whole(&frame.head, images, frame.total_size)
        }
    }
}
