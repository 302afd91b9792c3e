//! What a file was taken apart into, and how it is put together again: the host part, which has
//! everything but device images and the recipe, and one part for each device. All of them are
//! OffloadBinaries of version 2 (docs/spec/containers.md, 4.6), so that other tools can list them.
//! Compressed streams are compressed again, so that the same bytes come out.

use std::io::{BufReader, Write};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::wheel::LEVEL;
use crate::contents::bytes_of::quick_digest;
use crate::formats::offload_binary::{self, Entry, Image, spaced_frame};
use crate::formats::recipe::{self, Recipe};
use crate::io::file_slice::{FileSlice, PieceReader, Spool};
use crate::io::rope::Rope;
use crate::model::ImageKind;

/// The version of the recipe and of the strings of parts.
pub(crate) const SCHEMA: u32 = 1;
/// The string by which host parts and parts of devices are known.
const KEY: &str = "offld";
const HOST: &str = "split-host";
const PART: &str = "split-part";
/// Contents of this size are worth up to 64 KiB of zeros before them.
const LARGE: u64 = 4 << 20;

/// How a file is put together again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SplitManifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The compressors that streams were made with, where there are any: others may make other
    /// bytes.
    pub compressor: Option<String>,
    /// How many streams of the file that was taken apart could not be made again, so that they were
    /// compressed anew first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recompressed: usize,
    /// The name of the file.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    /// What is in the host part beside this.
    pub rest: Checksum,
    /// The devices that there are parts for.
    pub parts: Vec<Device>,
    /// The images, each as one of the entries of a part.
    pub images: Vec<Piecewise>,
    /// What the file is made of, in order.
    pub steps: Vec<Step>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Size and digest of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Checksum {
    /// In bytes.
    pub size: u64,
    /// XXH3 with 128 bits, in hexadecimal.
    pub xxh3: String,
}

impl Checksum {
    /// Of a piece.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(piece: &FileSlice) -> Result<Checksum> {
        Ok(Checksum {
            size: piece.size(),
            xxh3: format!("{:032x}", quick_digest(piece)?),
        })
    }
}

/// A device that there is a part for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Device {
    /// Its triple.
    pub triple: String,
    /// The processor or target id; empty for any.
    pub target: String,
}

impl Device {
    /// For people, and in names of files.
    pub(crate) fn name(&self) -> &str {
        // OpenMP's images for CPUs are for no processor in particular.
        if self.target.is_empty() || self.target == "generic" {
            &self.triple
        } else {
            &self.target
        }
    }
}

/// An image, in a part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Piecewise {
    /// Which part.
    pub part: usize,
    /// Which of its entries.
    pub entry: usize,
    /// Its bytes.
    #[serde(flatten)]
    pub sum: Checksum,
}

/// A step of putting a file together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// As many of the next bytes of the host part.
    Rest(u64),
    /// This image.
    Image(usize),
    /// Something that is compressed.
    Stream(PackedStep),
}

/// Something that is put together and then compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedStep {
    /// How it is compressed: `zstd-long 3`.
    pub how: String,
    /// What comes out.
    #[serde(flatten)]
    pub sum: Checksum,
    /// What goes in.
    pub steps: Vec<Step>,
}

/// A host part that has been read.
#[derive(Debug)]
pub(crate) struct HostPart {
    pub recipe: SplitManifest,
    /// Its identity: parts name it.
    pub digest: String,
    pub rest: FileSlice,
}

/// A part that has been read.
#[derive(Debug)]
pub(crate) struct Part {
    pub device: Device,
    /// The host part that it belongs to.
    pub host: String,
    /// The file that it was taken out of.
    pub file: String,
    pub images: Vec<FileSlice>,
}

/// An image of a part that is to be written.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    pub piece: FileSlice,
    pub image_kind: ImageKind,
    /// The bits of the programming models.
    pub offload_kind: u16,
}

/// The identity of a host part with this recipe, as its text.
fn digest(text: &[u8]) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The bytes of a host part, and its identity.
///
/// # Errors
/// The recipe cannot be written as JSON.
pub(crate) fn host(recipe: &SplitManifest, rest: Rope) -> Result<(Rope, String)> {
    let text = serde_json::to_vec(recipe).context("cannot write the recipe as JSON")?;
    let digest = digest(&text);
    let schema = SCHEMA.to_string();
    let entry = |what: &'static str, size: u64| Entry {
        image_kind: ImageKind::None,
        offload_kind: 0,
        flags: 0,
        strings: vec![
            (KEY.as_bytes(), HOST.as_bytes()),
            (b"schema", schema.as_bytes()),
            (b"what", what.as_bytes()),
        ],
        image_size: size,
    };
    let entries = [
        entry("recipe", text.len() as u64),
        entry("rest", rest.size()),
    ];
    Ok((framed(&entries, vec![text.into(), rest]), digest))
}

/// The bytes of a part.
pub(crate) fn part(device: &Device, host: &str, file: &str, images: Vec<NewImage>) -> Rope {
    let schema = SCHEMA.to_string();
    let entry = |image: &NewImage| Entry {
        image_kind: image.image_kind,
        offload_kind: image.offload_kind,
        flags: 0,
        strings: vec![
            (b"triple", device.triple.as_bytes()),
            (b"arch", device.target.as_bytes()),
            (KEY.as_bytes(), PART.as_bytes()),
            (b"schema", schema.as_bytes()),
            (b"host", host.as_bytes()),
            (b"file", file.as_bytes()),
        ],
        image_size: image.piece.size(),
    };
    let entries: Vec<Entry<'_>> = images.iter().map(entry).collect();
    framed(
        &entries,
        images
            .iter()
            .map(|image| image.piece.clone().into())
            .collect(),
    )
}

/// A binary of these entries and their contents. Large contents begin at the place within a page at
/// which they are in their file, so that they are copied fast, and shared by file systems that can
/// do so, here and when they are put together again.
fn framed(entries: &[Entry<'_>], contents: Vec<Rope>) -> Rope {
    let place = |number: usize, free: u64| match contents.get(number) {
        Some(rope) if rope.size() >= LARGE => rope.best_start(free),
        _ => free,
    };
    let frame = spaced_frame(entries, place);
    let mut bytes = Rope::from(frame.head);
    for (rope, at) in contents.into_iter().zip(frame.places) {
        bytes.pad_to(at);
        bytes.append(rope);
    }
    bytes.pad_to(frame.total_size);
    bytes
}

/// What `piece` says it is: `split-host` or `split-part`; none for anything else.
fn role(piece: &FileSlice) -> Option<String> {
    let images = Some(piece.bytes())
        .filter(|data| offload_binary::is_offload_binary(data))
        .map(offload_binary::read_all)?
        .ok()?;
    images
        .first()?
        .get(KEY)
        .map(|role| String::from_utf8_lossy(role).into_owned())
}

/// Whether `piece` is a host part.
pub(crate) fn is_host(piece: &FileSlice) -> bool {
    role(piece).is_some_and(|role| role == HOST)
}

/// Whether `piece` is a part of a device.
pub(crate) fn is_part(piece: &FileSlice) -> bool {
    role(piece).is_some_and(|role| role == PART)
}

fn text_of(image: &Image<'_>, key: &str) -> String {
    image
        .get(key)
        .map(|value| String::from_utf8_lossy(value).into_owned())
        .unwrap_or_default()
}

fn check_schema(image: &Image<'_>) -> Result<()> {
    let schema = text_of(image, "schema");
    if schema != SCHEMA.to_string() {
        bail!("the part has version {schema}, but this offld reads version {SCHEMA}");
    }
    Ok(())
}

fn bytes_of(piece: &FileSlice, image: &Image<'_>) -> Result<FileSlice> {
    piece
        .slice(image.at, image.image.len() as u64)
        .context("an image past the end")
}

/// Reads a host part. Whether the rest is what was written is not looked at.
///
/// # Errors
/// It is none, or of another version, or damaged.
pub(crate) fn read_host(piece: &FileSlice) -> Result<HostPart> {
    let images = offload_binary::read_all(piece.bytes())?;
    let [text, rest] = &images[..] else {
        bail!(
            "a host part has two entries, but this file has {}",
            images.len()
        )
    };
    check_schema(text)?;
    let recipe: SplitManifest =
        serde_json::from_slice(&text.image).context("damaged: cannot read its recipe")?;
    let rest = bytes_of(piece, rest)?;
    Ok(HostPart {
        digest: digest(&text.image),
        recipe,
        rest,
    })
}

/// Reads a part.
///
/// # Errors
/// It is none, or of another version, or its entries contradict each other.
pub(crate) fn read_part(piece: &FileSlice) -> Result<Part> {
    let images = offload_binary::read_all(piece.bytes())?;
    let first = images.first().context("a part without images")?;
    check_schema(first)?;
    let device = |image: &Image<'_>| Device {
        triple: image.triple().into_owned(),
        target: image.arch().into_owned(),
    };
    let (own, host, file) = (
        device(first),
        text_of(first, "host"),
        text_of(first, "file"),
    );
    if images
        .iter()
        .any(|image| device(image) != own || text_of(image, "host") != host)
    {
        bail!("damaged: one part has images for several devices or hosts");
    }
    let pieces = images
        .iter()
        .map(|image| bytes_of(piece, image))
        .collect::<Result<_>>()?;
    Ok(Part {
        device: own,
        host,
        file,
        images: pieces,
    })
}

/// How streams of zip files are made, in recipes.
const DEFLATE: &str = "deflate";

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
