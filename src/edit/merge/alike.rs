//! The same place in every build: what is there has one format in all of them, and members of archives stand in one order.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use crate::contents::is_device_elf;
use crate::contents::report::{FileReport, Image};
use crate::contents::what::{ByteKind, byte_kind};
use crate::formats::archive::{ArchiveFault, ArchiveMember, MAX_NESTING, MemberContents, members};
use crate::formats::magic;
use crate::io::piece::Piece;
use crate::model::{OffloadKind, printable};

/// A build that is to be merged with others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Build<'b> {
    /// Where it was opened.
    pub(crate) path: &'b Path,
    /// All of it.
    pub(crate) piece: &'b Piece,
    /// What is in it: with kernels, what is registered, and hashes.
    pub(crate) report: &'b FileReport,
}

/// Fills in what a fatbinary that is a file by itself does not say: that its images are for CUDA. Without a runtime they would be in
/// nobody's way, and images that differ would not be found.
pub(crate) fn name_kinds(report: &mut FileReport) {
    let is_nameless = |image: &&mut Image| image.kinds.is_empty() && image.container == Some("fatbinary");
    for image in report.images.iter_mut().filter(is_nameless) {
        image.kinds.push(OffloadKind::Cuda.name().to_owned());
    }
}

/// A place in a build.
#[derive(Debug, Clone)]
pub(super) struct Spot {
    pub(super) piece: Piece,
    /// For messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
}

/// The same place in every build, in the order of the builds; in none of them a list is empty.
#[derive(Debug, Clone)]
pub(super) struct Spots {
    pub(super) all: Vec<Spot>,
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

impl Spots {
    /// All of the builds.
    pub(super) fn of(builds: &[Build<'_>]) -> Spots {
        let spot = |build: &Build<'_>| Spot {
            piece: build.piece.clone(),
            place: printable(&build.path.display().to_string()).into_owned(),
        };
        Spots { all: builds.iter().map(spot).collect(), depth: 0 }
    }

    /// The place in the first build, whose file the others are merged into.
    pub(super) fn base(&self) -> Result<&Spot> {
        self.all.first().context("there is no build")
    }

    /// What is there.
    ///
    /// # Errors
    /// It has another format in one of the builds, or one of which the parts cannot be merged.
    pub(super) fn shape(&self) -> Result<Shape> {
        let base = self.base()?;
        if self.depth > MAX_NESTING {
            bail!("{}: nested more than {MAX_NESTING} deep", base.place);
        }
        if self.all.iter().all(|spot| spot.piece.has_bytes_of(&base.piece)) {
            return Ok(Shape::Same);
        }
        let (shape, name) = shape_of(base)?;
        for spot in &self.all {
            let (_, other) = shape_of(spot)?;
            if other != name {
                bail!("{} is {name}, and {} is {other}", base.place, spot.place);
            }
        }
        Ok(shape)
    }

    /// The members of the archives that are there, each in every build.
    ///
    /// # Errors
    /// An archive is damaged, or they have not the same members in the same order.
    pub(super) fn members(&self) -> Result<Vec<Spots>> {
        let base = self.base()?;
        let all = self.all.iter().map(members_of).collect::<Result<Vec<_>>>()?;
        let (first, others) = all.split_first().context("there is no build")?;
        for (spot, theirs) in self.all.iter().skip(1).zip(others) {
            let same = first.iter().zip(theirs).position(|(one, other)| one.0 != other.0);
            if let Some(((one, _), (other, _))) = same.and_then(|at| Some((first.get(at)?, theirs.get(at)?))) {
                let order = "merged archives must have the same members in the same order";
                bail!("{} has the member {one} where {} has {other}: {order}", base.place, spot.place);
            }
            if first.len() != theirs.len() {
                bail!("{} has {} members, and {} has {}", base.place, first.len(), spot.place, theirs.len());
            }
        }
        let member = |at: usize| all.iter().filter_map(|of_build| Some(of_build.get(at)?.1.clone())).collect();
        Ok((0..first.len()).map(|at| Spots { all: member(at), depth: self.depth + 1 }).collect())
    }

    /// Lets go of what was read of these bytes.
    pub(super) fn release(&self) {
        self.all.iter().for_each(|spot| spot.piece.release());
    }
}

/// What is at a place, and what people call it.
fn shape_of(spot: &Spot) -> Result<(Shape, &'static str)> {
    let data = spot.piece.bytes();
    Ok(match byte_kind(data, true) {
        ByteKind::Archive if data.starts_with(&magic::THIN_ARCHIVE) => {
            bail!("{}: a thin archive, whose members are files of their own: merge these", spot.place)
        }
        ByteKind::Archive => (Shape::Archive, "an archive"),
        ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) if !is_device_elf(data) => (Shape::Host, "an ELF file for the host"),
        ByteKind::Object(FileKind::Coff | FileKind::CoffBig) => (Shape::Host, "a COFF object"),
        ByteKind::Object(_) if is_device_elf(data) => (Shape::Other, "a device image by itself"),
        ByteKind::Object(_) => bail!("{}: objects of this format cannot be merged", spot.place),
        ByteKind::Containers => (Shape::Containers, "a container of device code"),
        ByteKind::TextBundle(_) => bail!("{}: text bundles cannot be merged", spot.place),
        ByteKind::Zip => bail!(
            "{}: a zip file in another file, or beside a file that is none, cannot be merged: merge the files in it",
            spot.place
        ),
        ByteKind::Tar => bail!("{}: tar archives cannot be merged: merge the files in them", spot.place),
        ByteKind::Compressed(_) => bail!("{}: compressed files cannot be merged: inflate them first", spot.place),
        ByteKind::Bitcode => bail!("{}: bitcode for the host cannot be merged: compile it to an object first", spot.place),
        ByteKind::Empty => (Shape::Other, "empty"),
        ByteKind::Spirv | ByteKind::Ptx | ByteKind::TileIr => (Shape::Other, "a device image by itself"),
        ByteKind::Zstd | ByteKind::Unknown => (Shape::Other, "of a format that is not known"),
    })
}

/// The members of an archive, with their names.
fn members_of(spot: &Spot) -> Result<Vec<(String, Spot)>> {
    let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&spot.place));
    let one = |member: Result<ArchiveMember<'_>, ArchiveFault>| {
        let member = member.map_err(describe)?;
        let name = member.shown_name().to_string();
        let place = format!("{}({name})", spot.place);
        let MemberContents::Within { offset, size } = member.contents else {
            bail!("{place}: a member in a file of its own cannot be merged");
        };
        let piece = spot.piece.slice(offset, size).with_context(|| place.clone())?;
        Ok((name, Spot { piece, place }))
    };
    members(spot.piece.bytes()).map_err(describe)?.map(one).collect()
}
