//! The same place in every build: what is there has one format in all of them, and members of
//! archives stand in one order.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use crate::contents::is_device_elf;
use crate::contents::report::{FileReport, Image};
use crate::contents::tree::Node;
use crate::formats::archive::{ArchiveFault, ArchiveMember, MemberContents, members};
use crate::formats::containers::check_nesting;
use crate::formats::magic;
use crate::formats::magic::{ByteKind, byte_kind};
use crate::io::file_slice::FileSlice;
use crate::model::{OffloadKind, printable};

/// A build that is to be merged with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'b> {
    /// Where it was opened.
    pub(crate) path: &'b Path,
    /// All of it.
    pub(crate) piece: &'b FileSlice,
    /// What is in it: with kernels, what is registered, and hashes.
    pub(crate) report: &'b FileReport,
}

/// Fills in what a fatbinary that is a file by itself does not say: that its images are for CUDA.
/// Without a runtime they would be in nobody's way, and images that differ would not be found.
pub(crate) fn name_kinds(report: &mut FileReport) {
    let is_nameless =
        |image: &&mut Image| image.kinds.is_empty() && image.container == Some("fatbinary");
    for image in report.images.iter_mut().filter(is_nameless) {
        image.kinds.push(OffloadKind::Cuda.name().to_owned());
    }
}

/// A place in a build.
#[derive(Debug, Clone)]
pub(super) struct Location<'b> {
    pub(super) piece: FileSlice,
    /// For messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
    /// The device code there; none if there is none.
    pub(super) node: Option<&'b Node>,
}

/// The same place in every build, in the order of the builds; in none of them a list is empty.
#[derive(Debug, Clone)]
pub(super) struct Locations<'b> {
    pub(super) all: Vec<Location<'b>>,
    depth: usize,
}

/// What is at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An archive.
    Archive,
    /// An ELF object, program or shared library for the host, or a COFF object.
    Host,
    /// Containers of device code in a row.
    Containers,
    /// The same bytes in all builds.
    Same,
    /// Something else that differs.
    Other,
}

impl<'b> Locations<'b> {
    /// All of the builds.
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

    /// The place in the first build, whose file the others are merged into.
    pub(super) fn base(&self) -> Result<&Location<'b>> {
        self.all.first().context("no builds to merge")
    }

    /// What is there.
    ///
    /// # Errors
    /// It has another format in one of the builds, or one of which the parts cannot be merged.
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

    /// The members of the archives that are there, each in every build.
    ///
    /// # Errors
    /// An archive is damaged, or they have not the same members in the same order.
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

    /// Lets go of what was read of these bytes.
    pub(super) fn release(&self) {
        self.all
            .iter()
            .for_each(|location| location.piece.release());
    }
}

/// What is at a place, and what people call it.
fn shape_of(location: &Location<'_>) -> Result<(Shape, &'static str)> {
    let data = location.piece.bytes();
    Ok(match byte_kind(data, true) {
        ByteKind::Archive if data.starts_with(&magic::THIN_ARCHIVE) => {
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
