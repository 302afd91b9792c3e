//! The ranges of the images of a file, and of compressed streams with images, for the commands that
//! split a file.

use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::FileKind;

use super::objects::{are_registered, are_rows};
use super::rewriter::Location;
use crate::contents::inflate;
use crate::contents::objects::SectionForm;
use crate::contents::report::FileReport;
use crate::contents::tree::{Node, NodeKind};
use crate::formats::compressed::Header;
use crate::formats::containers::Kind;
use crate::formats::magic;
use crate::formats::offload_binary::Head;
use crate::io::file_slice::FileSlice;

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
            NodeKind::Archive if location.piece.bytes().starts_with(&magic::THIN_ARCHIVE) => Ok(()),
            NodeKind::Archive | NodeKind::Member(_) => {
                for child in &node.children {
                    self.add(child, &location.child(child)?)?;
                }
                Ok(())
            }
            NodeKind::Row | NodeKind::TextBundle => self.add_entries(node, location),
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

    /// Adds the compressed `stream`, which holds `plain`, with the images that `add` finds in that.
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
