//! Walks all builds in lockstep: checks that each location has the same format in every build, and
//! that archives have the same members in the same order.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use crate::contents::is_device_elf;
use crate::contents::report::{FileReport, Image};
use crate::contents::tree::Node;
use offld_system::io::file_slice::FileSlice;
use offload_formats::archive::{self, ArchiveFault, ArchiveMember, MemberContents, members};
use offload_formats::containers::check_nesting;
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::{OffloadKind, printable};

/// A build to be merged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'b> {
    /// The path at which it was opened.
    pub(crate) path: &'b Path,
    /// Its contents.
    pub(crate) piece: &'b FileSlice,
    /// Its report, with kernels, registrations and hashes.
    pub(crate) report: &'b FileReport,
}

/// Sets the kind of images in standalone fatbinaries to CUDA, because the format does not name a
/// runtime. Without a kind, no two images would conflict, and differing ones would not be found.
pub(crate) fn name_kinds(report: &mut FileReport) {
    let is_nameless =
        |image: &&mut Image| image.kinds.is_empty() && image.container == Some("fatbinary");
    for image in report.images.iter_mut().filter(is_nameless) {
        image.kinds.push(OffloadKind::Cuda.name().to_owned());
    }
}

/// A location in a build.
#[derive(Debug, Clone)]
pub(super) struct Location<'b> {
    pub(super) piece: FileSlice,
    /// The location, for messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
    /// The tree of the device code there, if any.
    pub(super) node: Option<&'b Node>,
}

/// The same location in every build, in the order of the builds. An empty list is invalid.
#[derive(Debug, Clone)]
pub(super) struct Locations<'b> {
    pub(super) all: Vec<Location<'b>>,
    depth: usize,
}

/// The format of the data at a location.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An archive.
    Archive,
    /// An ELF object, program or shared library for the host, or a COFF object.
    Host,
    /// A row of device code containers.
    Containers,
    /// The same bytes in all builds.
    Same,
    /// Something else that differs.
    Other,
}

impl<'b> Locations<'b> {
    /// The whole builds.
    pub(super) fn of(builds: &[Build<'b>]) -> Locations<'b> {
        let location = |build: &Build<'b>| Location {
            piece: build.piece.clone(),
            place: printable(&build.path.display().to_string()).into_owned(),
            node: build.report.tree.as_ref(),
        };
        Locations {
            all: builds.iter().map(location).collect(),
            depth: 0,
        }
    }

    /// The location in the first build, which the others are merged into.
    pub(super) fn base(&self) -> Result<&Location<'b>> {
        self.all.first().context("no builds to merge")
    }

    /// The format of the data at this location.
    ///
    /// # Errors
    /// The format differs between builds, or files of this format cannot be merged.
    pub(super) fn shape(&self) -> Result<Shape> {
        let base = self.base()?;
        check_nesting(self.depth, &base.place)?;
        if self
            .all
            .iter()
            .all(|location| location.piece.has_bytes_of(&base.piece))
        {
            return Ok(Shape::Same);
        }
        let (shape, name) = shape_of(base)?;
        for location in &self.all {
            let (_, other) = shape_of(location)?;
            if other != name {
                bail!(
                    "{} is {name}, but {} is {other}",
                    base.place,
                    location.place
                );
            }
        }
        Ok(shape)
    }

    /// The members of the archives at this location, each in every build.
    ///
    /// # Errors
    /// An archive is damaged, or the builds do not have the same members in the same order.
    pub(super) fn members(&self) -> Result<Vec<Locations<'b>>> {
        let base = self.base()?;
        let all = self
            .all
            .iter()
            .map(members_of)
            .collect::<Result<Vec<_>>>()?;
        let (first, others) = all.split_first().context("no builds to merge")?;
        for (location, theirs) in self.all.iter().skip(1).zip(others) {
            let same = first
                .iter()
                .zip(theirs)
                .position(|(one, other)| one.0 != other.0);
            if let Some(((one, _), (other, _))) =
                same.and_then(|at| Some((first.get(at)?, theirs.get(at)?)))
            {
                let order = "merged archives must have the same members in the same order";
                bail!(
                    "{} has the member {one}, but {} has {other} in its place: {order}",
                    base.place,
                    location.place
                );
            }
            if first.len() != theirs.len() {
                bail!(
                    "{} has {} members, but {} has {}",
                    base.place,
                    first.len(),
                    location.place,
                    theirs.len()
                );
            }
        }
        let member = |at: usize| {
            all.iter()
                .filter_map(|of_build| Some(of_build.get(at)?.1.clone()))
                .collect()
        };
        Ok((0..first.len())
            .map(|at| Locations {
                all: member(at),
                depth: self.depth + 1,
            })
            .collect())
    }

    /// Releases the pages of these files from memory.
    pub(super) fn release(&self) {
        self.all
            .iter()
            .for_each(|location| location.piece.release());
    }
}

/// The format of the data at a location, and its name for messages.
fn shape_of(location: &Location<'_>) -> Result<(Shape, &'static str)> {
    let data = location.piece.bytes();
    Ok(match byte_kind(data, true) {
        ByteKind::Archive if archive::is_thin(data) => {
            bail!(
                "{}: thin archives cannot be merged: merge the member files",
                location.place
            )
        }
        ByteKind::Archive => (Shape::Archive, "an archive"),
        ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) if !is_device_elf(data) => {
            (Shape::Host, "a host ELF file")
        }
        ByteKind::Object(FileKind::Coff | FileKind::CoffBig) => (Shape::Host, "a COFF object"),
        ByteKind::Object(_) if is_device_elf(data) => (Shape::Other, "a bare device image"),
        ByteKind::Object(_) => bail!(
            "{}: objects of this format cannot be merged",
            location.place
        ),
        ByteKind::Container(_) => (Shape::Containers, "a container of device code"),
        ByteKind::Kpack => bail!(
            "{}: kpack archives cannot be merged: merge the programs before `offld split --kpack`",
            location.place
        ),
        ByteKind::TextBundle(_) => bail!("{}: text bundles cannot be merged", location.place),
        ByteKind::Zip => bail!(
            "{}: cannot merge a zip file inside another file, or with a file of another type: merge the files in it",
            location.place
        ),
        ByteKind::Tar => bail!(
            "{}: tar archives cannot be merged: merge the files in them",
            location.place
        ),
        ByteKind::Compressed(_) => bail!(
            "{}: compressed files cannot be merged: decompress them first",
            location.place
        ),
        ByteKind::Bitcode => bail!(
            "{}: host bitcode cannot be merged: compile it to an object first",
            location.place
        ),
        ByteKind::Empty => (Shape::Other, "empty"),
        ByteKind::Spirv | ByteKind::Ptx | ByteKind::TileIr => (Shape::Other, "a bare device image"),
        ByteKind::Zstd | ByteKind::Unknown => (Shape::Other, "of an unknown format"),
    })
}

/// The members of an archive, with their names.
fn members_of<'b>(location: &Location<'b>) -> Result<Vec<(String, Location<'b>)>> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&location.place));
    let one = |member: Result<ArchiveMember<'_>, ArchiveFault>| {
        let member = member.map_err(describe)?;
        let name = member.shown_name().to_string();
        let place = format!("{}({name})", location.place);
        let MemberContents::Within { offset, size } = member.contents else {
            bail!("{place}: members of thin archives cannot be merged: merge the member files");
        };
        let piece = location
            .piece
            .slice(offset, size)
            .with_context(|| place.clone())?;
        let node = location
            .node
            .and_then(|archive| member_node(archive, offset));
        Ok((name, Location { piece, place, node }))
    };
    members(location.piece.bytes())
        .map_err(describe)?
        .map(one)
        .collect()
}

/// The device code in the member whose contents are at `offset` of the archive.
fn member_node(archive: &Node, offset: u64) -> Option<&Node> {
    let members = &archive.children;
    let at = members.partition_point(|member| member.range.start < offset);
    let member = members.get(at).filter(|one| one.range.start == offset)?;
    member.children.first()
}
