//! Rebuilds a file bottom up along its tree ([`crate::contents::tree`]): each node becomes the same
//! bytes, new ones, or none.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use super::{Changed, Fixed, Levels, Outcome, Recompressed, Verdict};
use crate::contents::report::{FileReport, Image};
use crate::contents::tree::{Node, NodeKind};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::archive::resize::plan;
use offload_formats::archive::{self, ArchiveFault};

const IN_DATA: &str = "cannot change images in data sections: the program loads them itself";

/// A file that is being rebuilt.
pub(super) struct Rewriter<'a> {
    pub(super) images: &'a [Image],
    pub(super) verdicts: &'a [Verdict],
    pub(super) levels: Levels,
    pub(super) spool: &'a mut Spool,
    /// Registrations and members that have lost all of their images.
    pub(super) emptied: Vec<String>,
    /// The counts of recompressed containers.
    pub(super) recompressed: Recompressed,
}

/// The bytes of a node, and their location.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) piece: FileSlice,
    /// The location, for messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
    /// The file, with the archive members that contain the bytes: `libx.a(a.o)`.
    pub(super) file: String,
    /// Whether the bytes are in a section or container.
    pub(super) inside: bool,
}

impl Location {
    /// All of the file at `path`.
    pub(super) fn of(path: &Path, piece: &FileSlice) -> Location {
        let place = path.display().to_string();
        Location {
            piece: piece.clone(),
            file: place.clone(),
            place,
            inside: false,
        }
    }

    /// The bytes of `node`, a child of the node at this location.
    ///
    /// # Errors
    /// The bytes are past the end, because the file has changed.
    pub(super) fn child(&self, node: &Node) -> Result<Location> {
        let (start, size) = (node.range.start, node.range.end - node.range.start);
        let piece = self
            .piece
            .slice(start, size)
            .with_context(|| format!("{}: past the end", self.place))?;
        let mut place = self.place.clone();
        let mut file = self.file.clone();
        match &node.kind {
            NodeKind::Member(name) => {
                place = format!("{place}({name})");
                file.clone_from(&place);
            }
            NodeKind::Section(section) => place = format!("{place}: {}", section.name),
            NodeKind::Container(kind) => {
                place = format!("{place}: {} at {start:#x}", kind.name());
            }
            _ => {}
        }
        Ok(Location {
            piece,
            place,
            file,
            inside: self.inside,
        })
    }

    /// The bytes of `node`, an entry of the container or section at this location.
    ///
    /// # Errors
    /// As [`Location::child`].
    pub(super) fn entry(&self, node: &Node) -> Result<Location> {
        Ok(Location {
            inside: true,
            ..self.child(node)?
        })
    }

    /// The location of the decompressed data of this part.
    pub(super) fn decompressed(&self, plain: FileSlice) -> Location {
        Location {
            piece: plain,
            ..self.clone()
        }
    }
}

impl<'a> Rewriter<'a> {
    /// A rewriter for the file that `report` describes; each image has one of `verdicts`.
    ///
    /// # Errors
    /// The report has errors.
    pub(super) fn new(
        report: &'a FileReport,
        verdicts: &'a [Verdict],
        levels: Levels,
        spool: &'a mut Spool,
    ) -> Result<Self> {
        if let Some(error) = report.errors.first() {
            bail!("{error}");
        }
        Ok(Rewriter {
            images: &report.images,
            verdicts,
            levels,
            spool,
            emptied: Vec::new(),
            recompressed: Recompressed::default(),
        })
    }

    /// Rebuilds `node`, whose bytes are at `location`.
    pub(super) fn rebuild(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        match &node.kind {
            NodeKind::Image => self.image(node, location),
            NodeKind::Row => self.containers(node, location),
            NodeKind::Container(kind) => self.container(*kind, node, location),
            NodeKind::TextBundle => self.text_bundle(node, location),
            NodeKind::Kpack => self.kpack(node, location),
            NodeKind::Archive if location.inside => self.device_archive(node, location),
            NodeKind::Archive => self.archive(node, location),
            NodeKind::ZstdFrame => self.zstd_frame(node, location),
            NodeKind::HostFile(
                FileKind::Elf32 | FileKind::Elf64 | FileKind::Coff | FileKind::CoffBig,
            ) => self.host_file(node, location),
            NodeKind::Member(_) => match node.children.first() {
                Some(contents) => self.rebuild(contents, &location.child(contents)?),
                None => Ok(Outcome::Same),
            },
            NodeKind::HostFile(FileKind::Pe32 | FileKind::Pe64) => {
                self.fixed(node, location, "a Windows program")
            }
            NodeKind::HostFile(_) => self.fixed(node, location, "an object of this format"),
            NodeKind::HostBitcode => self.fixed(node, location, "host bitcode"),
            NodeKind::Zip => self.fixed(node, location, "a zip file in another file"),
            NodeKind::Tar => self.fixed(node, location, "a tar archive"),
            NodeKind::Compressed => self.fixed(node, location, "a compressed file"),
            NodeKind::Data => self.in_data(node, location),
            // The parent nodes rebuild these.
            NodeKind::Section(_) => self.fixed(node, location, "a section"),
            NodeKind::FatbinaryEntry => self.fixed(node, location, "a fatbinary"),
        }
    }

    /// The verdicts of the images in `node`.
    pub(super) fn verdicts_of(&self, node: &Node) -> &'a [Verdict] {
        self.verdicts.get(node.images.clone()).unwrap_or_default()
    }

    /// Whether all images in `node` stay as they are.
    pub(super) fn all_stay(&self, node: &Node) -> bool {
        self.verdicts_of(node).iter().all(Verdict::is_keep)
    }

    /// The verdict of an image. Its embedded images are kept or removed together with it.
    ///
    /// # Errors
    /// An embedded image has another verdict.
    pub(super) fn verdict(&self, node: &Node, location: &Location) -> Result<&'a Verdict> {
        let Some((verdict, embedded)) = self.verdicts_of(node).split_first() else {
            return Ok(&Verdict::Keep);
        };
        if !matches!(verdict, Verdict::Drop) && !embedded.iter().all(Verdict::is_keep) {
            bail!(
                "{}: cannot change an image inside another image on its own",
                location.place
            );
        }
        Ok(verdict)
    }

    fn image(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        Ok(match self.verdict(node, location)? {
            Verdict::Keep => Outcome::Same,
            Verdict::Drop => Outcome::Gone,
            Verdict::Replace(bytes) => Rope::from(bytes.clone()).into(),
        })
    }

    /// Keeps or removes an archive that is an image for several devices, as a whole.
    fn device_archive(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let verdicts = self.verdicts_of(node);
        if verdicts.iter().all(Verdict::is_keep) {
            Ok(Outcome::Same)
        } else if verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Drop))
        {
            Ok(Outcome::Gone)
        } else {
            let why = "they share an archive of Intel's ocloc with images for other devices; select all of them or none";
            Err(self.cannot_change(node, location, why.to_owned()).into())
        }
    }

    /// Replaces or removes a zstd frame. Replacement bytes are stored as they are, without
    /// compression.
    fn zstd_frame(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        match node.children.as_slice() {
            [
                inner @ Node {
                    kind: NodeKind::Archive,
                    ..
                },
            ] => self.device_archive(inner, location),
            [
                inner @ Node {
                    kind: NodeKind::Image,
                    ..
                },
            ] => self.image(inner, location),
            _ => self.fixed(node, location, "a zstd frame"),
        }
    }

    /// The error for images in `node` that cannot be changed, with the reason `why`.
    fn cannot_change(&self, node: &Node, location: &Location, why: String) -> Fixed {
        Fixed {
            place: location.file.clone(),
            kinds: self.kinds(node),
            why,
        }
    }

    /// The programming models of the images in `node`.
    pub(super) fn kinds(&self, node: &Node) -> Vec<String> {
        let images = self.images.get(node.images.clone()).unwrap_or_default();
        let mut kinds: Vec<String> = Vec::new();
        for kind in images.iter().flat_map(|image| &image.kinds) {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        kinds
    }

    /// Keeps a part whose images cannot be changed. `what` is its name in the error.
    ///
    /// # Errors
    /// An image in the part has a verdict other than `Keep`.
    pub(super) fn fixed(&self, node: &Node, location: &Location, what: &str) -> Result<Outcome> {
        let images = self.images.get(node.images.clone()).unwrap_or_default();
        let mut changed = images
            .iter()
            .zip(self.verdicts_of(node))
            .filter(|(_, verdict)| !verdict.is_keep());
        match changed.next() {
            None => Ok(Outcome::Same),
            Some((image, _)) if image.in_data => bail!("{}: {IN_DATA}", location.place),
            Some((image, _)) => Err(Fixed {
                place: location.file.clone(),
                kinds: image.kinds.clone(),
                why: format!("they are in {what}"),
            }
            .into()),
        }
    }

    /// Keeps a section of plain data, because the pointers to the images in it are unknown.
    /// `location` is that of the file.
    pub(super) fn in_data(&self, node: &Node, location: &Location) -> Result<Outcome> {
        if !self.all_stay(node) {
            bail!("{}: {IN_DATA}", location.place);
        }
        Ok(Outcome::Same)
    }

    /// Rebuilds the members of an archive. All other bytes of it stay the same.
    fn archive(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        if archive::is_thin(location.piece.bytes()) {
            return self.fixed(node, location, "a thin archive; edit the member files");
        }
        self.members(node, location)
            .with_context(|| location.place.clone())
    }

    fn members(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&location.place));
        let (mut sizes, mut ropes) = (Vec::new(), Vec::new());
        for member in &node.children {
            let inner = location.child(member)?;
            match self.rebuild(member, &inner)? {
                Outcome::Same => {}
                Outcome::Gone => {
                    self.emptied.push(inner.place);
                    sizes.push((member.range.start, 0));
                    ropes.push(Rope::default());
                }
                Outcome::New(Changed { bytes, .. }) => {
                    sizes.push((member.range.start, bytes.size()));
                    ropes.push(bytes);
                }
            }
            location.piece.release();
        }
        if sizes.is_empty() {
            return Ok(Outcome::Same);
        }
        let parts = plan(location.piece.bytes(), &sizes).map_err(describe)?;
        let bytes = Rope::of_parts(&location.piece, parts, ropes)
            .with_context(|| location.place.clone())?;
        Ok(bytes.into())
    }
}
