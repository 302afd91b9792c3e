//! Every device image in a file, whatever the file is: OffloadBinaries by themselves, fat objects and linked programs, bitcode,
//! archives of all these (docs/spec/containers.md 4.4).

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::read::archive::ArchiveFile;

use super::names::is_bitcode;
use crate::formats::magic::{Magic, magic};
use crate::formats::offload_binary::{self, Packed};
use crate::formats::offload_sections;
use crate::io::piece::{Piece, Spool};
use crate::llvm;
use crate::model::{ImageKind, OffloadKind, OffloadKinds, Origin};
use crate::sys::session::Session;

/// No sane file nests deeper; a cycle of thin archives does.
const DEEPEST: usize = 16;
/// More images than any build makes. Entries may share bytes, so that a few kilobytes can hold containers in containers without end.
const MOST: usize = 1 << 18;
/// How much of a member's name a message shows.
const LONGEST_NAME: usize = 512;
/// What LLVM 15 to 19 stored for HIP.
const OLD_HIP: u16 = 3;

/// A device image, and what is said of it.
pub struct Image {
    /// What an error names.
    pub origin: Origin,
    /// What the bytes are said to be.
    pub image_kind: ImageKind,
    /// The bits of the programming models. LLVM 15 to 19 stored 3 for HIP, which is 4 here (docs/spec/faults.md P2).
    pub offload_kind: u16,
    /// The entry's flags.
    pub flags: u32,
    /// Key and value, as stored.
    pub strings: Vec<(Vec<u8>, Vec<u8>)>,
    /// The bytes.
    pub contents: Piece,
    /// The images in it, when it is a container itself.
    pub inner: Vec<Image>,
}

impl Image {
    /// The value of `key`, empty where there is none; the last one, where there are several.
    pub fn get(&self, key: &[u8]) -> &[u8] {
        self.strings.iter().rfind(|(name, _)| name == key).map_or(&[], |(_, value)| value)
    }
}

/// All images in the file `path`, which `piece` is, in its order. A file that can hold none has none.
pub fn images(path: &Path, piece: &Piece, session: &Session) -> Result<Vec<Image>> {
    let mut reader = Reader { images: Vec::new(), seen: 0, spool: Spool::new(session) };
    reader.read(&Origin::file(path), path, piece, 0)?;
    Ok(reader.images)
}

struct Reader<'s> {
    images: Vec<Image>,
    /// How many images were read, those in images too.
    seen: usize,
    /// What was compressed.
    spool: Spool<'s>,
}

impl Reader<'_> {
    /// `at` is the file that the piece is or is in: names in a thin archive are seen from there.
    fn read(&mut self, origin: &Origin, at: &Path, piece: &Piece, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            bail!("{origin}: nested more than {DEEPEST} deep");
        }
        match magic(piece.bytes()) {
            Magic::OffloadBinary => self.binaries(origin, piece, depth)?,
            Magic::Elf | Magic::ElfShared | Magic::Coff => self.object(origin, piece, depth)?,
            Magic::Bitcode => self.bitcode(origin, piece, depth)?,
            Magic::Archive => self.archive(origin, at, piece, depth)?,
            Magic::Text | Magic::Other => {}
        }
        Ok(())
    }

    fn object(&mut self, origin: &Origin, piece: &Piece, depth: usize) -> Result<()> {
        let told = |error| anyhow::anyhow!("{origin}: {error} (it has {:#x} bytes)", piece.bytes().len());
        for section in offload_sections::sections(piece.bytes()).map_err(told)? {
            let origin = origin.in_section(&section.name);
            let Some(contents) = piece.slice(section.offset, section.size) else {
                bail!("{origin}: the section is past the end of the file, at offset {:#x} of it", section.offset);
            };
            if offload_binary::is_offload_binary(contents.bytes()) {
                self.linked_or_fat(&origin, &contents, section.allocated, depth)?;
            } else if offload_sections::named(&section.name).is_some() || !section.allocated {
                self.section(&origin, &section.name, contents, depth)?;
            }
            // What is left a linker made: the bare images of SYCL, which say nothing of themselves.
        }
        Ok(())
    }

    /// A section that begins with no container: an image of LLVM 14's, or damaged.
    fn section(&mut self, origin: &Origin, name: &str, contents: Piece, depth: usize) -> Result<()> {
        match offload_sections::named(name) {
            Some((triple, arch)) => self.images.push(bare(origin, triple, arch, contents)),
            None => self.binaries(origin, &contents, depth)?,
        }
        Ok(())
    }

    fn bitcode(&mut self, origin: &Origin, piece: &Piece, depth: usize) -> Result<()> {
        for embedded in llvm::embedded_images(piece.bytes()).with_context(|| origin.to_string())? {
            let origin = origin.in_section(&embedded.section);
            self.section(&origin, &embedded.section, Piece::owned(embedded.bytes), depth)?;
        }
        Ok(())
    }

    fn archive(&mut self, origin: &Origin, at: &Path, piece: &Piece, depth: usize) -> Result<()> {
        let data = piece.bytes();
        let archive = ArchiveFile::parse(data).with_context(|| origin.to_string())?;
        let mut last = 0;
        for member in archive.members() {
            let member = member.map_err(|error| anyhow::anyhow!("{origin}: {error} (after offset {last:#x})"))?;
            // Any number of members may share one long name, so it is cut.
            let name = member.name().get(..LONGEST_NAME).unwrap_or(member.name());
            let inner = origin.member(&String::from_utf8_lossy(name));
            let (offset, size) = member.file_range();
            last = offset;
            if member.is_thin() {
                let path = at.with_file_name(OsStr::from_bytes(member.name()));
                let contents = Piece::open_one_of_many(&path).with_context(|| format!("{origin}: the thin archive's member"))?;
                self.read(&inner, &path, &contents, depth + 1)?;
            } else {
                let Some(contents) = piece.slice(offset, size) else {
                    bail!("{inner}: past the end of the archive, at offset {offset:#x} of it");
                };
                self.read(&inner, at, &contents, depth + 1)?;
            }
        }
        Ok(())
    }
}

/// The image in a section of LLVM 14, which has no header.
fn bare(origin: &Origin, triple: &str, arch: &str, contents: Piece) -> Image {
    let image_kind = if is_bitcode(contents.bytes()) { ImageKind::Bitcode } else { ImageKind::Object };
    let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Image {
        origin: origin.clone(),
        image_kind,
        offload_kind: OffloadKind::OpenMp as u16,
        flags: 0,
        strings: vec![pair("triple", triple), pair("arch", arch)],
        contents,
        inner: Vec::new(),
    }
}

impl Reader<'_> {
    /// The images of the containers in a section, back to back. In memory's sections other things may follow.
    fn linked_or_fat(&mut self, origin: &Origin, contents: &Piece, allocated: bool, depth: usize) -> Result<()> {
        let whole = if allocated { offload_binary::extent(contents.bytes()) } else { 0 };
        let part = contents.slice(0, whole).filter(|_| whole > 0);
        self.binaries(origin, part.as_ref().unwrap_or(contents), depth)
    }

    /// The images of the containers that `piece` is made of.
    fn binaries(&mut self, origin: &Origin, piece: &Piece, depth: usize) -> Result<()> {
        if depth > DEEPEST {
            bail!("{origin}: nested more than {DEEPEST} deep");
        }
        let mut at = 0;
        while let Some(rest) = piece.bytes().get(at..).filter(|rest| !rest.is_empty()) {
            let place = || origin.to_string();
            let packed = Packed::of(rest).map_err(|fault| fault.shifted(at as u64)).with_context(place)?;
            let size = if let Some(packed) = packed {
                let plain = self.inflate(&packed, at as u64).with_context(place)?;
                self.binaries(origin, &plain, depth + 1).context("in a compressed binary")?;
                usize::try_from(packed.size())?
            } else {
                let mut stored = Vec::new();
                let size = offload_binary::read_first(rest, &mut stored, at as u64).with_context(place)?;
                for image in stored {
                    let image = self.taken(origin, piece, image, depth)?;
                    self.images.push(image);
                }
                size
            };
            at += size + offload_binary::padding(rest.get(size..).unwrap_or_default());
        }
        Ok(())
    }

    /// The plain form of a binary, in a file without a name: it may be larger than memory is.
    fn inflate(&mut self, packed: &Packed<'_>, at: u64) -> Result<Piece> {
        self.spool.add(|file| {
            packed.inflate(file).map_err(|error| match error.kind() {
                ErrorKind::InvalidData => packed.fault(&error).shifted(at).into(),
                _ => error.into(),
            })
        })
    }

    /// What is stored in `piece`, as an image of ours.
    fn taken(&mut self, origin: &Origin, piece: &Piece, stored: offload_binary::Image<'_>, depth: usize) -> Result<Image> {
        self.seen += 1;
        if self.seen > MOST {
            bail!("{origin}: more than {MOST} images");
        }
        let kinds = OffloadKinds::from_stored(stored.offload_kind, &stored.triple());
        let old_hip = stored.offload_kind == OLD_HIP && kinds.contains(OffloadKind::Hip);
        let offload_kind = if old_hip { OffloadKind::Hip as u16 } else { stored.offload_kind };
        let part = piece.slice(stored.at, stored.image.len() as u64);
        let strings = stored.strings.into_iter().map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        // An image that is only told of has no bytes and may be anywhere.
        let contents = part.unwrap_or_else(|| Piece::owned(stored.image.into_owned()));
        let inner = self.inner(origin, &contents, depth);
        let (image_kind, flags) = (stored.image_kind, stored.flags);
        Ok(Image { origin: origin.clone(), image_kind, offload_kind, flags, strings, contents, inner })
    }

    /// The images in an image. What only begins like a container is an image like any other.
    fn inner(&mut self, origin: &Origin, contents: &Piece, depth: usize) -> Vec<Image> {
        if !offload_binary::is_offload_binary(contents.bytes()) {
            return Vec::new();
        }
        let outside = std::mem::take(&mut self.images);
        let read = self.binaries(origin, contents, depth + 1);
        let inner = std::mem::replace(&mut self.images, outside);
        if read.is_ok() { inner } else { Vec::new() }
    }
}
