//! Splits a file into a host half and one part for each device. `merge` restores the file byte for
//! byte, unless a compressed stream with images for several devices cannot be reproduced. In that
//! case the file is recompressed first, which is reported.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use crate::contents::report::{FileReport, Image};
use crate::contents::selection::Selection;
use crate::contents::{self, Reader};
use crate::edit::files::wheel;
use crate::edit::split_manifest::{
    self, Checksum, Device, Held, NewImage, PackedStep, Piecewise, Place, SCHEMA, SplitManifest,
    Step, places,
};
use crate::edit::{Levels, Repack, Verdict, edit};
use offld_system::io::file_slice::{FileSlice, Spool, start_of_zip_member, zip_member};
use offld_system::io::rope::Rope;
use offld_system::progress::Reached;
use offld_system::session::Session;
use offload_formats::archive::ArchiveFault;
use offload_formats::bytes::overlap;
use offload_formats::magic::{START, may_have_device_code};
use offload_formats::model::{ImageKind, OffloadKinds};
use offload_formats::recipe;
use offload_formats::zip::{ZipFile, ZipMember, ZipMethod, is_zip};

/// The result of a split.
#[derive(Debug)]
pub struct Split {
    /// The host half.
    pub host: Rope,
    /// The parts, each with its device.
    pub parts: Vec<(Device, Rope)>,
    /// Number of streams that were recompressed, so that `merge` can reproduce them.
    pub repacked: usize,
    /// Number of streams that stay whole in the host half.
    pub kept: usize,
}

/// Splits the file `piece`, which is at `path`. With `keep_original`, streams that cannot be
/// reproduced stay whole in the host half; otherwise the file is recompressed first. Returns `None`
/// if there are no images to extract.
///
/// # Errors
/// The file is damaged, cannot be read, or is itself a result of a split.
pub fn split(
    path: &Path,
    piece: &FileSlice,
    keep_original: bool,
    session: &Session,
    reached: &Reached,
) -> Result<Option<Split>> {
    if split_manifest::is_host(piece) || split_manifest::is_part(piece) {
        bail!("{}: already a part from `offld split`", path.display());
    }
    let mut spool = Spool::new(session);
    let first = Builder::build((path, piece), keep_original, session, &mut spool, reached)?;
    let (lost, lost_in) = (first.lost, first.lost_in.clone());
    if lost == 0 || keep_original {
        return first.finish(path, piece.size(), 0);
    }
    let levels = Levels {
        level: None,
        repack: Repack::Shared,
        only_smaller: false,
        sort: false,
    };
    let again = repacked(path, piece, levels, &lost_in, session, &mut spool)?
        .into_piece(&mut spool)?
        .as_file();
    // The progress bar covers only the first pass.
    let second = Builder::build(
        (path, &again),
        true,
        session,
        &mut spool,
        &Reached::default(),
    )?;
    second.finish(path, again.size(), lost)
}

/// The host half of the file `piece` without the images with the numbers `wanted`, whose code objects
/// are stored elsewhere. Streams that cannot be reproduced stay whole in it.
///
/// # Errors
/// The file is damaged or cannot be read.
pub(crate) fn without_images(
    path: &Path,
    piece: &FileSlice,
    wanted: &[usize],
    session: &Session,
    spool: &mut Spool,
) -> Result<Rope> {
    let report = report(path, piece, session);
    let is_wanted = |image: &Image| wanted.binary_search(&image.index).is_ok();
    let chunks = chunks_with_info(places(path, piece, &report)?, &report.images, &is_wanted);
    let builder = Builder::of_chunks(
        (path, piece),
        chunks,
        Streams::Plain,
        spool,
        &Reached::default(),
    )?;
    Ok(builder.halves(path, piece.size(), 0)?.host)
}

/// The host half of the wheel `zip` without the images that `wanted` selects, by member and number,
/// as [`without_images`].
///
/// # Errors
/// The wheel is damaged or cannot be read.
pub(crate) fn wheel_without_images(
    path: &Path,
    zip: &FileSlice,
    wanted: &HashMap<Vec<u8>, Vec<usize>>,
    session: &Session,
    spool: &mut Spool,
) -> Result<Rope> {
    let is_wanted = |member: &[u8], image: &Image| {
        let numbers = wanted.get(member);
        numbers.is_some_and(|numbers| numbers.binary_search(&image.index).is_ok())
    };
    let chunks = find_in_zip(path, zip, &is_wanted, session)?;
    let reached = Reached::default();
    let builder = Builder::of_chunks((path, zip), chunks, Streams::Plain, spool, &reached)?;
    Ok(builder.halves(path, zip.size(), 0)?.host)
}

/// Recompresses the streams of the file. In a zip file, recompresses only the members that overlap
/// the ranges `lost_in`.
fn repacked(
    path: &Path,
    piece: &FileSlice,
    levels: Levels,
    lost_in: &[Range<u64>],
    session: &Session,
    spool: &mut Spool,
) -> Result<Rope> {
    if is_zip(piece.bytes()) {
        let zip = wheel::opened(path, piece)?;
        let members = wheel::members(path, &zip)?;
        let is_lost = |member: &&ZipMember<'_>| {
            let stored = member.offset..member.offset + member.size;
            lost_in.iter().any(|range| overlap(range, &stored))
        };
        let names = members
            .iter()
            .filter(is_lost)
            .map(|member| String::from_utf8_lossy(member.name).into_owned());
        let selection = Selection::of_members(names);
        return Ok(wheel::repacked(path, piece, levels, selection, session)?
            .unwrap_or_else(|| piece.clone().into()));
    }
    let report = report(path, piece, session);
    let verdicts = vec![Verdict::Keep; report.images.len()];
    Ok(edit((path, piece), &report, &verdicts, levels, spool)?
        .bytes
        .unwrap_or_else(|| piece.clone().into()))
}

/// The report on a file, from its headers only.
fn report(path: &Path, piece: &FileSlice, session: &Session) -> FileReport {
    let options = contents::Options {
        headers_only: true,
        ..contents::Options::default()
    };
    Reader::new(options, session).opened(path, piece.clone())
}

/// The treatment of compressed streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Streams {
    /// A stream with images for one device is an image as it is.
    Stored,
    /// Images are always decompressed.
    Plain,
}

/// The state of a split.
struct Builder<'s> {
    spool: &'s mut Spool,
    keep_original: bool,
    streams: Streams,
    rest: Rope,
    devices: Vec<Device>,
    images: Vec<Vec<NewImage>>,
    entries: Vec<Piecewise>,
    /// The index of each image, by part and checksum.
    known: HashMap<(usize, Checksum), usize>,
    steps: Vec<Step>,
    /// Number of streams that cannot be reproduced.
    lost: usize,
    /// The ranges of these streams, or of the outermost streams that contain them.
    lost_in: Vec<Range<u64>>,
    /// Number of streams around the current data.
    depth: usize,
    /// The progress in the file.
    reached: Reached,
    /// Whether the recipe has streams.
    has_streams: bool,
}

impl<'s> Builder<'s> {
    fn build(
        (path, piece): (&Path, &FileSlice),
        keep_original: bool,
        session: &Session,
        spool: &'s mut Spool,
        reached: &Reached,
    ) -> Result<Builder<'s>> {
        let chunks = find_chunks(path, piece, session)?;
        let builder = Builder::of_chunks((path, piece), chunks, Streams::Stored, spool, reached)?;
        Ok(Builder {
            keep_original,
            ..builder
        })
    }

    /// Splits the file into these chunks. Streams that cannot be reproduced stay whole.
    fn of_chunks(
        (path, piece): (&Path, &FileSlice),
        chunks: Vec<Chunk>,
        streams: Streams,
        spool: &'s mut Spool,
        reached: &Reached,
    ) -> Result<Builder<'s>> {
        let mut builder = Builder {
            spool,
            keep_original: true,
            streams,
            rest: Rope::default(),
            devices: Vec::new(),
            images: Vec::new(),
            entries: Vec::new(),
            known: HashMap::new(),
            steps: Vec::new(),
            lost: 0,
            lost_in: Vec::new(),
            depth: 0,
            reached: reached.clone(),
            has_streams: false,
        };
        let steps = builder
            .take(piece, &chunks)
            .with_context(|| path.display().to_string())?;
        builder.steps = steps;
        Ok(builder)
    }

    /// The steps that restore `piece`.
    fn take(&mut self, piece: &FileSlice, chunks: &[Chunk]) -> Result<Vec<Step>> {
        let mut steps = Vec::new();
        let mut at = 0;
        for chunk in chunks {
            self.rest(piece, at, chunk.range.start, &mut steps)?;
            let lost = self.lost;
            let bytes = piece
                .slice(chunk.range.start, chunk.range.end - chunk.range.start)
                .context("past the end")?;
            let step = match &chunk.holds {
                Holds::Image(info) => Some(self.image(info, bytes.clone())?),
                Holds::Stream(stream) => match stream
                    .only_device()
                    .filter(|_| self.streams == Streams::Stored)
                {
                    Some(info) => Some(self.image(info, bytes.clone())?),
                    None => self.stream(&bytes, stream)?,
                },
            };
            match step {
                Some(step) => steps.push(step),
                None => self.rest(piece, chunk.range.start, chunk.range.end, &mut steps)?,
            }
            if self.depth == 0 {
                self.reached.up_to(chunk.range.end);
                if self.lost > lost {
                    self.lost_in.push(chunk.range.clone());
                }
            }
            at = chunk.range.end;
        }
        self.rest(piece, at, piece.size(), &mut steps)?;
        Ok(steps)
    }

    /// Adds a range to the host half.
    fn rest(
        &mut self,
        piece: &FileSlice,
        start: u64,
        end: u64,
        steps: &mut Vec<Step>,
    ) -> Result<()> {
        let size = end.saturating_sub(start);
        if size > 0 {
            self.rest
                .push_piece(piece.slice(start, size).context("past the end")?);
            match steps.last_mut() {
                Some(Step::Rest(count)) => *count += size,
                _ => steps.push(Step::Rest(size)),
            }
        }
        Ok(())
    }

    /// Adds an image to the part of its device. Equal images are stored once.
    fn image(&mut self, info: &ImageInfo, piece: FileSlice) -> Result<Step> {
        let part = match self
            .devices
            .iter()
            .position(|device| *device == info.device)
        {
            Some(part) => part,
            None => {
                self.devices.push(info.device.clone());
                self.images.push(Vec::new());
                self.devices.len() - 1
            }
        };
        let sum = Checksum::of(&piece)?;
        if let Some(known) = self.known.get(&(part, sum.clone())) {
            return Ok(Step::Image(*known));
        }
        let images = self
            .images
            .get_mut(part)
            .context("a part that does not exist")?;
        let number = self.entries.len();
        self.entries.push(Piecewise {
            part,
            entry: images.len(),
            sum: sum.clone(),
        });
        images.push(NewImage {
            piece,
            image_kind: info.image_kind,
            offload_kind: info.offload_kind,
        });
        self.known.insert((part, sum), number);
        Ok(Step::Image(number))
    }

    /// Splits a stream. Returns `None` if it stays whole.
    fn stream(&mut self, packed: &FileSlice, stream: &Stream) -> Result<Option<Step>> {
        let Some(how) = split_manifest::find(packed, &stream.plain, stream.deflate, self.spool)?
        else {
            self.lost += 1;
            return Ok(None);
        };
        self.depth += 1;
        let steps = self.take(&stream.plain, &stream.chunks)?;
        self.depth -= 1;
        self.has_streams = true;
        Ok(Some(Step::Stream(PackedStep {
            how,
            sum: Checksum::of(packed)?,
            steps,
        })))
    }

    fn finish(self, path: &Path, size: u64, repacked: usize) -> Result<Option<Split>> {
        if self.entries.is_empty() {
            return Ok(None);
        }
        self.halves(path, size, repacked).map(Some)
    }

    /// The same, also without images: the host half then has the whole file.
    fn halves(self, path: &Path, size: u64, repacked: usize) -> Result<Split> {
        let rest = self.rest.clone().into_piece(self.spool)?;
        let name = path
            .file_name()
            .unwrap_or(path.as_os_str())
            .to_string_lossy()
            .into_owned();
        let recipe = SplitManifest {
            schema: SCHEMA,
            generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
            compressor: self.has_streams.then(recipe::compressor),
            recompressed: repacked,
            file: name.clone(),
            size,
            rest: Checksum::of(&rest)?,
            parts: self.devices.clone(),
            images: self.entries,
            steps: self.steps,
        };
        let (host, digest) = split_manifest::host(&recipe, self.rest)?;
        let parts = self.devices.into_iter().zip(self.images);
        let parts = parts.map(|(device, images)| {
            (
                split_manifest::part(&device, &digest, &name, images),
                device,
            )
        });
        let parts = parts.map(|(rope, device)| (device, rope)).collect();
        let kept = if self.keep_original && repacked == 0 {
            self.lost
        } else {
            0
        };
        Ok(Split {
            host,
            parts,
            repacked,
            kept,
        })
    }
}

// Finds the bytes of a file that belong to each device.

/// A range that is, or contains, device code.
struct Chunk {
    range: Range<u64>,
    holds: Holds,
}

enum Holds {
    Image(ImageInfo),
    Stream(Stream),
}

/// Compressed data, with the device code in it.
struct Stream {
    /// Whether it is a member of a zip file.
    deflate: bool,
    plain: FileSlice,
    chunks: Vec<Chunk>,
}

impl Stream {
    /// The metadata of the first image, if the stream contains only images of one device.
    fn only_device(&self) -> Option<&ImageInfo> {
        if self.deflate {
            return None;
        }
        let info_of = |chunk: &Chunk| match &chunk.holds {
            Holds::Image(info) => Some(info.clone()),
            Holds::Stream(_) => None,
        };
        let Holds::Image(first) = &self.chunks.first()?.holds else {
            return None;
        };
        self.chunks
            .iter()
            .all(|chunk| info_of(chunk).is_some_and(|info| info.device == first.device))
            .then_some(first)
    }
}

/// The metadata of an image in a part.
#[derive(Debug, Clone)]
struct ImageInfo {
    device: Device,
    image_kind: ImageKind,
    offload_kind: u16,
}

/// The chunks of the file `piece`, in order.
fn find_chunks(path: &Path, piece: &FileSlice, session: &Session) -> Result<Vec<Chunk>> {
    if is_zip(piece.bytes()) {
        return find_in_zip(path, piece, &|_, _| true, session);
    }
    let report = report(path, piece, session);
    Ok(chunks_with_info(
        places(path, piece, &report)?,
        &report.images,
        &|_| true,
    ))
}

/// The ranges of the images that `is_wanted` selects, with their metadata. Host images and images
/// without a known device are left out.
fn chunks_with_info(
    places: Vec<Place>,
    images: &[Image],
    is_wanted: &dyn Fn(&Image) -> bool,
) -> Vec<Chunk> {
    let one = |Place { range, holds }: Place| {
        let holds = match holds {
            Held::Image(number) => {
                let image = images.get(number).filter(|image| is_wanted(image))?;
                Holds::Image(image_info(image)?)
            }
            Held::Stream(stream) => {
                let chunks = chunks_with_info(stream.places, images, is_wanted);
                Holds::Stream(
                    Some(Stream {
                        deflate: false,
                        plain: stream.plain,
                        chunks,
                    })
                    .filter(|one| !one.chunks.is_empty())?,
                )
            }
        };
        Some(Chunk { range, holds })
    };
    places.into_iter().filter_map(one).collect()
}

fn image_info(image: &Image) -> Option<ImageInfo> {
    if !image.is_device() || (image.triple.is_empty() && image.target.is_empty()) {
        return None;
    }
    let kinds = OffloadKinds::from_names(image.kinds.iter().map(String::as_str));
    let offload_kind = kinds.iter().fold(0, |bits, kind| bits | kind as u16);
    let image_kind = match image.format {
        "bitcode" => ImageKind::Bitcode,
        "cubin" => ImageKind::Cubin,
        "ptx" => ImageKind::Ptx,
        "spirv" => ImageKind::Spirv,
        _ => ImageKind::Object,
    };
    // An archive with code for several devices belongs to one part.
    let target = if image.steps_to_archive().is_some() {
        String::new()
    } else {
        image.target.clone()
    };
    let device = Device {
        triple: image.triple.clone(),
        target,
    };
    Some(ImageInfo {
        device,
        image_kind,
        offload_kind,
    })
}

/// The chunks of a zip file, with the images that `is_wanted` selects by the name of their member.
fn find_in_zip(
    path: &Path,
    zip: &FileSlice,
    is_wanted: &dyn Fn(&[u8], &Image) -> bool,
    session: &Session,
) -> Result<Vec<Chunk>> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&path.display()));
    let mut all = Vec::new();
    let read = ZipFile::read(zip.bytes()).map_err(describe)?;
    for member in read.members() {
        session.signals.check()?;
        let member: ZipMember<'_> = member.map_err(describe)?;
        let place = || format!("{}({})", path.display(), member.shown_name());
        if !may_have_device_code(&start_of_zip_member(zip, &member, START).with_context(place)?) {
            continue;
        }
        let plain = zip_member(zip, &member).with_context(place)?.as_file();
        let name = path.join(member.path().with_context(place)?);
        let report = report(&name, &plain, session);
        let is_wanted = |image: &Image| is_wanted(member.name, image);
        let places = places(&name, &plain, &report)?;
        let chunks = chunks_with_info(places, &report.images, &is_wanted);
        if chunks.is_empty() {
            continue;
        }
        if member.method == ZipMethod::Stored {
            let moved = chunks.into_iter().map(|chunk| {
                let range = chunk.range.start + member.offset..chunk.range.end + member.offset;
                Chunk { range, ..chunk }
            });
            all.extend(moved);
        } else {
            let range = member.offset..member.offset + member.size;
            all.push(Chunk {
                range,
                holds: Holds::Stream(Stream {
                    deflate: true,
                    plain,
                    chunks,
                }),
            });
        }
    }
    all.sort_by_key(|chunk| chunk.range.start);
    Ok(all)
}
