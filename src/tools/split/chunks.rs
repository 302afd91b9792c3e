//! Finds the bytes of a file that belong to each device.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::report;
use crate::contents::report::Image;
use crate::edit::image_ranges::{Held, Place, places};
use crate::edit::split_manifest::Device;
use crate::formats::archive::ArchiveFault;
use crate::formats::magic::{START, may_have_device_code};
use crate::formats::zip::{ZipFile, ZipMember, ZipMethod, is_zip};
use crate::io::file_slice::{FileSlice, start_of_zip_member, zip_member};
use crate::model::{ImageKind, OffloadKinds};
use crate::sys::session::Session;

/// A range that is, or contains, device code.
pub(super) struct Chunk {
    pub(super) range: Range<u64>,
    pub(super) holds: Holds,
}

pub(super) enum Holds {
    Image(ImageInfo),
    Stream(Stream),
}

/// Compressed data, with the device code in it.
pub(super) struct Stream {
    /// Whether it is a member of a zip file.
    pub(super) deflate: bool,
    pub(super) plain: FileSlice,
    pub(super) chunks: Vec<Chunk>,
}

impl Stream {
    /// The metadata of the first image, if the stream contains only images of one device.
    pub(super) fn only_device(&self) -> Option<&ImageInfo> {
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
pub(super) struct ImageInfo {
    pub(super) device: Device,
    pub(super) image_kind: ImageKind,
    pub(super) offload_kind: u16,
}

/// The chunks of the file `piece`, in order.
pub(super) fn find(path: &Path, piece: &FileSlice, session: &Session) -> Result<Vec<Chunk>> {
    if is_zip(piece.bytes()) {
        return find_in_zip(path, piece, session);
    }
    let report = report(path, piece, session);
    Ok(chunks_with_info(
        places(path, piece, &report)?,
        &report.images,
    ))
}

/// The ranges of images, with their metadata. Host images and images without a known device are
/// left out.
fn chunks_with_info(places: Vec<Place>, images: &[Image]) -> Vec<Chunk> {
    let one = |Place { range, holds }: Place| {
        let holds = match holds {
            Held::Image(number) => Holds::Image(image_info(images.get(number)?)?),
            Held::Stream(stream) => {
                let chunks = chunks_with_info(stream.places, images);
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

fn find_in_zip(path: &Path, zip: &FileSlice, session: &Session) -> Result<Vec<Chunk>> {
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
        let chunks = chunks_with_info(places(&name, &plain, &report)?, &report.images);
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
