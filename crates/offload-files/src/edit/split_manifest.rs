//! Reads and writes the files of `offld split`: the host half, which has the recipe and everything
//! but device images, and one part for each device. All of them are OffloadBinaries of version 2
//! (docs/spec/containers.md, 4.6), so that other tools can list them. Restoring a file recompresses
//! its streams to the same bytes. Also finds the ranges of a file that `offld split` takes out.

use std::collections::HashSet;
use std::io::{BufReader, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::FileKind;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::files::wheel::LEVEL;
use super::objects::{are_registered, are_rows};
use super::rewriter::Location;
use crate::contents::bytes_of::quick_digest;
use crate::contents::containers::{SPLIT_HOST, SPLIT_KPACK, SPLIT_ROLE};
use crate::contents::inflate;
use crate::contents::report::FileReport;
use crate::contents::tree::{Node, NodeKind, SectionForm};
use offld_system::io::file_slice::{FileSlice, PieceReader, Spool};
use offld_system::io::rope::Rope;
use offload_formats::archive;
use offload_formats::compressed::Header;
use offload_formats::containers::Kind;
use offload_formats::model::ImageKind;
use offload_formats::offload_binary::{self, Entry, Head, Image, spaced_frame};
use offload_formats::recipe::{self, Recipe};

/// The version of the recipe and of the strings in parts.
pub(crate) const SCHEMA: u32 = 1;
/// The role of a part, as [`SPLIT_HOST`] is that of a host half.
const PART: &str = "split-part";
/// Contents of at least this size get up to 64 KiB of padding before them.
const LARGE: u64 = 4 << 20;

/// The recipe that restores a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SplitManifest {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The versions of the compressors, if the file has streams: other versions may produce other
    /// bytes.
    pub compressor: Option<String>,
    /// Number of streams of the original file that could not be reproduced. `split` recompressed
    /// them first, so the restored file differs from the original there.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recompressed: usize,
    /// The name of the file.
    pub file: String,
    /// Its size in bytes.
    pub size: u64,
    /// The checksum of the host half's contents, without the recipe.
    pub rest: Checksum,
    /// The devices that have a part.
    pub parts: Vec<Device>,
    /// The images, each with the part and entry that contains it.
    pub images: Vec<Piecewise>,
    /// The contents of the file, in order.
    pub steps: Vec<Step>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Size and checksum of bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Checksum {
    /// In bytes.
    pub size: u64,
    /// 128-bit XXH3, in hexadecimal.
    pub xxh3: String,
}

impl Checksum {
    /// The checksum of a file slice.
    ///
    /// # Errors
    /// The slice cannot be read.
    pub(crate) fn of(piece: &FileSlice) -> Result<Checksum> {
        Ok(Checksum {
            size: piece.size(),
            xxh3: format!("{:032x}", quick_digest(piece)?),
        })
    }
}

/// A device that has a part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Device {
    /// Its triple.
    pub triple: String,
    /// The architecture or target id; empty for any.
    pub target: String,
}

impl Device {
    /// The name for messages and file names.
    pub fn name(&self) -> &str {
        // OpenMP images for CPUs have no particular architecture.
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
    /// The index of the part.
    pub part: usize,
    /// The index of the entry in the part.
    pub entry: usize,
    /// The checksum of its bytes.
    #[serde(flatten)]
    pub sum: Checksum,
}

/// A step of the recipe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Step {
    /// The next bytes of the host half: their number.
    Rest(u64),
    /// The image with this index.
    Image(usize),
    /// A compressed stream.
    Stream(PackedStep),
}

/// A stream: steps whose result is compressed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PackedStep {
    /// The compression settings: `zstd-long 3`.
    pub how: String,
    /// The checksum of the compressed bytes.
    #[serde(flatten)]
    pub sum: Checksum,
    /// The contents before compression.
    pub steps: Vec<Step>,
}

/// A host half, parsed.
#[derive(Debug)]
pub(crate) struct HostPart {
    pub recipe: SplitManifest,
    /// The digest of the recipe. Each part contains it.
    pub digest: String,
    pub rest: FileSlice,
}

/// A part, parsed.
#[derive(Debug)]
pub(crate) struct Part {
    pub device: Device,
    /// The digest of the host half's recipe.
    pub host: String,
    /// The name of the original file.
    pub file: String,
    pub images: Vec<FileSlice>,
}

/// An image of a new part.
#[derive(Debug, Clone)]
pub(crate) struct NewImage {
    pub piece: FileSlice,
    pub image_kind: ImageKind,
    /// The programming models, as bits.
    pub offload_kind: u16,
}

/// What restores a file whose HIP code is in kpack archives.
#[derive(Debug)]
pub(crate) struct KpackRecipe {
    /// The path of the program in its installation.
    pub binary: String,
    /// The checksum of the program without the code.
    pub host: Checksum,
    /// The members of a wheel that lost code, in the order in which the patch refers to them.
    pub programs: Vec<String>,
    /// The host half, compressed with the help of the program without the code.
    pub patch: FileSlice,
}

/// The bytes of a recipe for the program `binary`, which has the checksum `host` without its code.
/// `programs`: the members of a wheel that lost code.
pub(crate) fn kpack_recipe(
    binary: &str,
    host: &Checksum,
    programs: &[String],
    patch: Rope,
) -> Rope {
    let (schema, size) = (SCHEMA.to_string(), host.size.to_string());
    // The names of members have no line ends: see `wheels::split`.
    let programs = programs.join("\n");
    let entry = Entry {
        image_kind: ImageKind::None,
        offload_kind: 0,
        flags: 0,
        strings: vec![
            (SPLIT_ROLE.as_bytes(), SPLIT_KPACK.as_bytes()),
            (b"schema", schema.as_bytes()),
            (b"file", binary.as_bytes()),
            (b"size", size.as_bytes()),
            (b"xxh3", host.xxh3.as_bytes()),
            (b"programs", programs.as_bytes()),
        ],
        image_size: patch.size(),
    };
    framed(&[entry], vec![patch])
}

/// Reads a recipe.
///
/// # Errors
/// The file is not a recipe, has another version, or is damaged.
pub(crate) fn read_kpack_recipe(piece: &FileSlice) -> Result<KpackRecipe> {
    if role(piece).as_deref() != Some(SPLIT_KPACK) {
        bail!("not a recipe of `offld split --kpack`");
    }
    let images = offload_binary::read_all(piece.bytes())?;
    let [image] = &images[..] else {
        bail!("a recipe has one entry, but this file has {}", images.len())
    };
    check_schema(image)?;
    Ok(KpackRecipe {
        binary: text_of(image, "file"),
        host: Checksum {
            size: text_of(image, "size")
                .parse()
                .context("damaged: no size of the program")?,
            xxh3: text_of(image, "xxh3"),
        },
        programs: text_of(image, "programs")
            .lines()
            .map(str::to_owned)
            .collect(),
        patch: bytes_of(piece, image)?,
    })
}

/// The digest of a recipe's text, which identifies the host half.
fn digest(text: &[u8]) -> String {
    Sha256::digest(text)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The bytes of a host half, and its digest.
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
            (SPLIT_ROLE.as_bytes(), SPLIT_HOST.as_bytes()),
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
            (SPLIT_ROLE.as_bytes(), PART.as_bytes()),
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

/// An OffloadBinary of these entries and their contents. Large contents start at the same offset
/// within a page as in their source file. They are then copied fast, and file systems that support
/// it share their blocks, both here and when the file is restored.
fn framed(entries: &[Entry<'_>], contents: Vec<Rope>) -> Rope {
    let place = |number: usize, free: u64| match contents.get(number) {
        Some(rope) if rope.size() >= LARGE => rope.best_start(free),
        _ => free,
    };
    let frame = spaced_frame(entries, place);
    let mut bytes = Rope::framed(frame.head, frame.places.into_iter().zip(contents));
    bytes.pad_to(frame.total_size);
    bytes
}

/// The role of `piece` by its string: `split-host` or `split-part`; `None` for other files.
fn role(piece: &FileSlice) -> Option<String> {
    let images = Some(piece.bytes())
        .filter(|data| offload_binary::is_offload_binary(data))
        .map(offload_binary::read_all)?
        .ok()?;
    images
        .first()?
        .get(SPLIT_ROLE)
        .map(|role| String::from_utf8_lossy(role).into_owned())
}

/// Whether `piece` is a host half.
pub(crate) fn is_host(piece: &FileSlice) -> bool {
    role(piece).is_some_and(|role| role == SPLIT_HOST)
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

/// Reads a host half, without verifying the checksum of its contents.
///
/// # Errors
/// The file is not a host half, has another version, or is damaged.
pub(crate) fn read_host(piece: &FileSlice) -> Result<HostPart> {
    let images = offload_binary::read_all(piece.bytes())?;
    let [text, rest] = &images[..] else {
        bail!(
            "a host half has two entries, but this file has {}",
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
/// The file is not a part, has another version, or has entries that contradict each other.
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

/// The name of the zip compression method in recipes.
const DEFLATE: &str = "deflate";

/// The compression settings that produce `stream` from `plain`, for [`pack`]; `None` if no known
/// settings do. `deflate` selects the streams of zip files.
///
/// # Errors
/// One of the two cannot be read.
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

/// Compresses `plain` with the settings `how`.
///
/// # Errors
/// `plain` cannot be read, or `how` is unknown.
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

// The ranges of the images of a file, and of compressed streams with images, for the commands that
// split a file.

/// A part of a file that is device code.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its range in the file.
    pub range: Range<u64>,
    /// The code in it.
    pub holds: Held,
}

/// The code in a range.
#[derive(Debug)]
pub(crate) enum Held {
    /// The image with this number, as it is stored.
    Image(usize),
    /// Compressed data with images.
    Stream(Stream),
}

/// Compressed data that holds images.
#[derive(Debug)]
pub(crate) struct Stream {
    /// The decompressed data.
    pub plain: FileSlice,
    /// The ranges of the images in it.
    pub places: Vec<Place>,
}

/// The ranges of the images of the file `piece`, in the order of the file. Images that cannot be
/// extracted are left out.
///
/// # Errors
/// The file is damaged.
pub(crate) fn places(path: &Path, piece: &FileSlice, report: &FileReport) -> Result<Vec<Place>> {
    if let Some(error) = report.errors.first() {
        bail!("{error}");
    }
    let Some(tree) = &report.tree else {
        return Ok(Vec::new());
    };
    let mut places = Places {
        base: piece.file_offset(0).unwrap_or_default(),
        found: Vec::new(),
    };
    places.add(tree, &Location::of(path, piece))?;
    places.found.sort_by_key(|place| place.range.start);
    let overlaps = |pair: &[Place]| matches!(pair, [one, next] if one.range.end > next.range.start);
    if places.found.windows(2).any(overlaps) {
        bail!("{}: images overlap", path.display());
    }
    Ok(places.found)
}

/// The ranges found so far.
struct Places {
    /// The offset of the file, or of the decompressed data, as [`FileSlice::file_offset`] counts.
    base: u64,
    found: Vec<Place>,
}

impl Places {
    /// Adds the images in `node`, whose bytes are at `location`.
    fn add(&mut self, node: &Node, location: &Location) -> Result<()> {
        match &node.kind {
            NodeKind::Image | NodeKind::ZstdFrame | NodeKind::FatbinaryEntry => {
                self.push(&location.piece, Held::Image(node.images.start));
                Ok(())
            }
            NodeKind::Archive if location.inside => {
                self.push(&location.piece, Held::Image(node.images.start));
                Ok(())
            }
            NodeKind::Archive if archive::is_thin(location.piece.bytes()) => Ok(()),
            NodeKind::Archive | NodeKind::Member(_) => {
                for child in &node.children {
                    self.add(child, &location.child(child)?)?;
                }
                Ok(())
            }
            NodeKind::Row | NodeKind::TextBundle => self.add_entries(node, location),
            NodeKind::Kpack => {
                // Entries may share a code object.
                let mut seen = HashSet::new();
                for child in &node.children {
                    if seen.insert(child.range.start) {
                        self.add(child, &location.entry(child)?)?;
                    }
                }
                Ok(())
            }
            NodeKind::Container(kind) => self.add_container(*kind, node, location),
            NodeKind::HostFile(
                FileKind::Elf32 | FileKind::Elf64 | FileKind::Coff | FileKind::CoffBig,
            ) => self.add_host_file(node, location),
            NodeKind::HostFile(_)
            | NodeKind::HostBitcode
            | NodeKind::Zip
            | NodeKind::Tar
            | NodeKind::Compressed
            | NodeKind::Section(_)
            | NodeKind::Data => Ok(()),
        }
    }

    fn add_entries(&mut self, node: &Node, location: &Location) -> Result<()> {
        for child in &node.children {
            self.add(child, &location.entry(child)?)?;
        }
        Ok(())
    }

    fn add_container(&mut self, kind: Kind, node: &Node, location: &Location) -> Result<()> {
        let place = || location.place.clone();
        match kind {
            Kind::Bundle | Kind::Fatbinary => self.add_entries(node, location),
            Kind::OffloadBinary => {
                let head = Head::read(location.piece.bytes(), 0).with_context(place)?;
                let Some(packed) = head.packed else {
                    return self.add_entries(node, location);
                };
                let whole = inflate::offload_binary(&location.piece, &head, &packed)
                    .with_context(place)?
                    .as_file();
                let stream = location.piece.from(packed.at);
                self.add_stream(&stream, whole.from(packed.at), |inner| {
                    inner.add_entries(node, &location.decompressed(whole))
                })
            }
            Kind::CompressedBundle => {
                let Some(contents) = node.children.first() else {
                    return Ok(());
                };
                let header = Header::read(location.piece.bytes(), 0).with_context(place)?;
                let stream = location.piece.from(header.size);
                let plain = inflate::compressed_bundle(&stream, header)
                    .with_context(place)?
                    .as_file();
                self.add_stream(&stream, plain.clone(), |inner| {
                    inner.add(contents, &location.decompressed(plain))
                })
            }
        }
    }

    /// Adds the compressed `stream`, which holds `plain`, with the images that `add` finds in it.
    fn add_stream(
        &mut self,
        stream: &FileSlice,
        plain: FileSlice,
        add: impl FnOnce(&mut Places) -> Result<()>,
    ) -> Result<()> {
        let mut inner = Places {
            base: plain.file_offset(0).context("a stream outside of a file")?,
            found: Vec::new(),
        };
        add(&mut inner)?;
        let places = inner.found;
        self.push(stream, Held::Stream(Stream { plain, places }));
        Ok(())
    }

    fn add_host_file(&mut self, node: &Node, location: &Location) -> Result<()> {
        let mut others = Vec::new();
        for child in &node.children {
            match &child.kind {
                NodeKind::Section(section) => {
                    let inner = location.entry(child)?;
                    let is_bare = section.form(inner.piece.bytes()) == SectionForm::BareImages;
                    if !is_bare || are_registered(location, section, child)? {
                        self.add_entries(child, &inner)?;
                    }
                }
                NodeKind::Data => {}
                _ => others.push(child),
            }
        }
        if !others.is_empty() && are_rows(location, &others)? {
            for image in others {
                self.add(image, &location.entry(image)?)?;
            }
        }
        Ok(())
    }

    fn push(&mut self, piece: &FileSlice, holds: Held) {
        let start = piece
            .file_offset(0)
            .and_then(|at| at.checked_sub(self.base));
        if let Some(start) = start.filter(|_| piece.size() > 0) {
            self.found.push(Place {
                range: start..start + piece.size(),
                holds,
            });
        }
    }
}
