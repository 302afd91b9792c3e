//! Finds every device image in a file: OffloadBinaries, fat objects, linked programs, bitcode, and
//! archives of these (docs/spec/containers.md 4.4).

use std::io::ErrorKind;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};

use offld_system::io::file_slice::{FileSlice, Spool, member_of};
use offld_system::session::Session;
use offload_formats::archive::{self, ArchiveFault, MemberContents};
use offload_formats::bitcode::embedded_images;
use offload_formats::containers::{self, Fault, Item, Kind, check_nesting};
use offload_formats::error::Malformed;
use offload_formats::magic::{Magic, is_bitcode, magic};
use offload_formats::model::{ImageKind, OffloadKind, OffloadKinds, Origin};
use offload_formats::offload_binary::{self, Image as Stored, Packed};
use offload_formats::offload_sections;

/// The limit on images per file, which no build reaches. Entries may share bytes, so a damaged file
/// of some kilobytes can contain nested containers whose images would fill the memory.
const MAX_IMAGES: usize = 1 << 18;
/// The number that LLVM 15 to 20 stored for HIP.
const OLD_HIP: u16 = 3;

/// A device image with its metadata.
#[derive(Debug)]
pub struct Image {
    /// The image kind, as stored.
    pub image_kind: ImageKind,
    /// The offload kinds, one bit each. The value 3, which LLVM 15 to 20 stored for HIP, is
    /// replaced by today's 4 (docs/spec/faults.md P2).
    pub offload_kind: u16,
    /// The entry's flags, as stored.
    pub flags: u32,
    /// Pairs of key and value, as stored.
    pub strings: Vec<(Vec<u8>, Vec<u8>)>,
    /// The contents.
    pub contents: FileSlice,
    /// The images in this one, if it is a container.
    pub inner: Vec<Image>,
    /// The archive member that contains the image.
    pub(crate) member: Option<Member>,
}

/// A member of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Member {
    /// The name, as `ar t` prints it.
    pub name: String,
    /// The number among all members of the file, because several may have the same name.
    number: usize,
}

impl Image {
    /// The value of `key`, or an empty one if there is none. If a key occurs several times, the
    /// last value counts.
    pub(crate) fn get(&self, key: &[u8]) -> &[u8] {
        self.strings
            .iter()
            .rfind(|(name, _)| name == key)
            .map_or(&[], |(_, value)| value)
    }
}

/// Returns all images in `piece`, the contents of the file at `path`, in the order of the file.
/// Files of other types have none.
pub(crate) fn images(path: &Path, piece: &FileSlice, session: &Session) -> Result<Vec<Image>> {
    let mut reader = ImageReader {
        images: Vec::new(),
        seen: 0,
        members: 0,
        left: u64::MAX,
        spool: Spool::new(session),
    };
    reader.read(&Origin::file(path), path, piece, 0)?;
    Ok(reader.images)
}

/// Returns the images of the OffloadBinaries in `bytes`, in order. The decompressed size of
/// compressed ones is limited to `most` bytes.
pub fn unpack(bytes: &[u8], most: u64, session: &Session) -> Result<Vec<Image>> {
    if !offload_binary::is_offload_binary(bytes) {
        return Err(Malformed::new("not an offload binary", 0).into());
    }
    let mut reader = ImageReader {
        images: Vec::new(),
        seen: 0,
        members: 0,
        left: most,
        spool: Spool::new(session),
    };
    reader.binaries(
        &Origin::file(Path::new("package")),
        &FileSlice::owned(bytes.to_vec()),
        0,
    )?;
    Ok(reader.images)
}

impl Image {
    /// An image without programming model and strings, whose kind is detected from its contents.
    pub fn new(contents: FileSlice) -> Self {
        let image_kind = kind_by_bytes(&contents);
        let (strings, inner) = (Vec::new(), Vec::new());
        Image {
            image_kind,
            offload_kind: 0,
            flags: 0,
            strings,
            contents,
            inner,
            member: None,
        }
    }

    /// The image's description in an OffloadBinary.
    pub(super) fn entry(&self) -> offload_binary::Entry<'_> {
        let Image {
            image_kind,
            offload_kind,
            flags,
            strings,
            contents,
            ..
        } = self;
        let strings = strings
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
            .collect();
        let (image_kind, offload_kind, flags) = (*image_kind, *offload_kind, *flags);
        offload_binary::Entry {
            image_kind,
            offload_kind,
            flags,
            strings,
            image_size: contents.size(),
        }
    }
}

/// The kind of an image without metadata.
fn kind_by_bytes(contents: &FileSlice) -> ImageKind {
    if is_bitcode(contents.bytes()) {
        ImageKind::Bitcode
    } else {
        ImageKind::Object
    }
}

struct ImageReader {
    images: Vec<Image>,
    /// The number of images so far, including those within images.
    seen: usize,
    /// The number of archive members so far.
    members: usize,
    /// The number of bytes that may still be decompressed.
    left: u64,
    /// The temporary files for decompressed binaries.
    spool: Spool,
}

impl ImageReader {
    /// Collects the images of `piece`. `at` is the file that contains it: names in a thin archive
    /// are relative to that file.
    fn read(&mut self, origin: &Origin, at: &Path, piece: &FileSlice, depth: usize) -> Result<()> {
        check_nesting(depth, origin)?;
        match magic(piece.bytes()) {
            Magic::OffloadBinary => self.binaries(origin, piece, depth)?,
            Magic::Elf | Magic::ElfShared | Magic::Coff => self.object(origin, piece, depth)?,
            Magic::Bitcode => self.bitcode(origin, piece, depth)?,
            Magic::Archive => self.archive(origin, at, piece, depth)?,
            Magic::Text | Magic::Other => {}
        }
        Ok(())
    }

    fn object(&mut self, origin: &Origin, piece: &FileSlice, depth: usize) -> Result<()> {
        let context =
            |error| anyhow::anyhow!("{origin}: {error} (size: {:#x} bytes)", piece.bytes().len());
        for section in offload_sections::sections(piece.bytes()).map_err(context)? {
            let origin = origin.in_section(&section.name);
            let Some(contents) = piece.slice(section.offset, section.size) else {
                bail!(
                    "{origin}: the section is past the end of the file, at offset {:#x}",
                    section.offset
                );
            };
            if offload_binary::is_offload_binary(contents.bytes()) {
                self.linked_or_fat(&origin, &contents, section.allocated, depth)?;
            } else if offload_sections::named(&section.name).is_some() || !section.allocated {
                self.section(&origin, &section.name, contents, depth)?;
            }
            // The remaining sections are those of linked programs with bare SYCL images, which have
            // no distinguishing mark.
        }
        Ok(())
    }

    /// Reads a section that does not begin with a container: a bare image of LLVM 14, otherwise
    /// damaged data.
    fn section(
        &mut self,
        origin: &Origin,
        name: &str,
        contents: FileSlice,
        depth: usize,
    ) -> Result<()> {
        match offload_sections::named(name) {
            Some((triple, arch)) => self.images.push(bare(triple, arch, contents)),
            None => self.binaries(origin, &contents, depth)?,
        }
        Ok(())
    }

    fn bitcode(&mut self, origin: &Origin, piece: &FileSlice, depth: usize) -> Result<()> {
        for embedded in embedded_images(piece.bytes()).with_context(|| origin.to_string())? {
            let origin = origin.in_section(&embedded.section);
            self.section(
                &origin,
                &embedded.section,
                FileSlice::owned(embedded.bytes.into_owned()),
                depth,
            )?;
        }
        Ok(())
    }

    fn archive(
        &mut self,
        origin: &Origin,
        at: &Path,
        piece: &FileSlice,
        depth: usize,
    ) -> Result<()> {
        let in_archive = |fault: ArchiveFault| anyhow!(fault.in_archive(origin));
        for member in archive::members(piece.bytes()).map_err(in_archive)? {
            let member = member.map_err(in_archive)?;
            let inner = origin.member(&member.shown_name());
            let first = self.images.len();
            match member.contents {
                MemberContents::Within { offset, size } => {
                    let contents = piece
                        .slice(offset, size)
                        .with_context(|| inner.to_string())?;
                    self.read(&inner, at, &contents, depth + 1)?;
                }
                MemberContents::File => {
                    let path = member.file(at);
                    let opened = FileSlice::open_member(&path);
                    let contents = opened.with_context(|| {
                        format!("{origin}: cannot read the thin archive's member")
                    })?;
                    self.read(&inner, &path, &contents, depth + 1)?;
                }
                MemberContents::InArchive { header } => {
                    let path = member.file(at);
                    let contents = member_of(&path, header).with_context(|| {
                        format!("{origin}: cannot read the thin archive's member")
                    })?;
                    self.read(&inner, &path, &contents, depth + 1)?;
                }
            }
            let name = inner.members.last().cloned().unwrap_or_default();
            let member = Member {
                name,
                number: self.members,
            };
            self.members += 1;
            let unnamed = self
                .images
                .iter_mut()
                .skip(first)
                .filter(|image| image.member.is_none());
            unnamed.for_each(|image| image.member = Some(member.clone()));
        }
        Ok(())
    }
}

/// A bare image, as LLVM 14 embedded it. The name of its section contains the target.
fn bare(triple: &str, arch: &str, contents: FileSlice) -> Image {
    let image_kind = kind_by_bytes(&contents);
    let pair = |key: &str, value: &str| (key.as_bytes().to_vec(), value.as_bytes().to_vec());
    Image {
        image_kind,
        offload_kind: OffloadKind::OpenMp as u16,
        flags: 0,
        strings: vec![pair("triple", triple), pair("arch", arch)],
        contents,
        inner: Vec::new(),
        member: None,
    }
}

impl ImageReader {
    /// Collects the images of consecutive containers in a section. In a linked program
    /// (`allocated`), other data may follow them.
    fn linked_or_fat(
        &mut self,
        origin: &Origin,
        contents: &FileSlice,
        allocated: bool,
        depth: usize,
    ) -> Result<()> {
        let whole = if allocated {
            offload_binary::extent(contents.bytes())
        } else {
            0
        };
        let part = contents.slice(0, whole).filter(|_| whole > 0);
        self.binaries(origin, part.as_ref().unwrap_or(contents), depth)
    }

    /// Collects the images of the consecutive containers in `piece`.
    fn binaries(&mut self, origin: &Origin, piece: &FileSlice, depth: usize) -> Result<()> {
        check_nesting(depth, origin)?;
        let place = || origin.to_string();
        let other = |at| Err(Malformed::new("not an offload binary", at)).with_context(place);
        // Zeros may only follow a binary.
        if piece.bytes().first() == Some(&0) {
            return other(0);
        }
        for item in containers::row(piece.bytes()) {
            let at = match item {
                Ok(Item {
                    kind: Kind::OffloadBinary,
                    range,
                }) => range.start,
                Err(Fault {
                    kind: Some(Kind::OffloadBinary),
                    reason,
                    ..
                }) => return Err(reason).with_context(place),
                Ok(Item { range, .. }) => return other(range.start),
                Err(Fault { at, .. }) => return other(at),
            };
            let rest = piece.from(at);
            let packed = Packed::of(rest.bytes())
                .map_err(|fault| fault.shifted(at))
                .with_context(place)?;
            if let Some(packed) = packed {
                let plain = self.inflate(&packed, at).with_context(place)?;
                self.binaries(origin, &plain, depth + 1)
                    .context("in a compressed binary")?;
            } else {
                let mut stored = Vec::new();
                offload_binary::read_first(rest.bytes(), &mut stored, at).with_context(place)?;
                for image in stored {
                    let image = self.image_of(origin, piece, image, depth)?;
                    self.images.push(image);
                }
            }
        }
        Ok(())
    }

    /// Decompresses a binary into a temporary file, because it may be larger than the memory.
    fn inflate(&mut self, packed: &Packed<'_>, at: u64) -> Result<FileSlice> {
        let too_much = Malformed::new("decompressed data exceeds the limit", at);
        self.left = self.left.checked_sub(packed.plain_size()).ok_or(too_much)?;
        self.spool.add(|file| {
            packed.inflate(file).map_err(|error| match error.kind() {
                ErrorKind::InvalidData => packed.fault(&error).shifted(at).into(),
                _ => error.into(),
            })
        })
    }

    /// The image for the entry `stored` in `piece`.
    fn image_of(
        &mut self,
        origin: &Origin,
        piece: &FileSlice,
        stored: Stored<'_>,
        depth: usize,
    ) -> Result<Image> {
        self.seen += 1;
        if self.seen > MAX_IMAGES {
            bail!("{origin}: more than {MAX_IMAGES} images");
        }
        let kinds = OffloadKinds::from_stored(stored.offload_kind, &stored.triple());
        let old_hip = stored.offload_kind == OLD_HIP && kinds.contains(OffloadKind::Hip);
        let offload_kind = if old_hip {
            OffloadKind::Hip as u16
        } else {
            stored.offload_kind
        };
        let part = piece.slice(stored.at, stored.image.len() as u64);
        let strings = stored
            .strings
            .into_iter()
            .map(|(key, value)| (key.into_owned(), value.into_owned()))
            .collect();
        // Metadata-only images have no bytes, and their offset may be anything.
        let contents = part.unwrap_or_else(|| FileSlice::owned(stored.image.into_owned()));
        let inner = self.inner(origin, &contents, depth);
        let Stored {
            image_kind, flags, ..
        } = stored;
        Ok(Image {
            image_kind,
            offload_kind,
            flags,
            strings,
            contents,
            inner,
            member: None,
        })
    }

    /// The images within an image. A damaged container counts as a plain image.
    fn inner(&mut self, origin: &Origin, contents: &FileSlice, depth: usize) -> Vec<Image> {
        if !offload_binary::is_offload_binary(contents.bytes()) {
            return Vec::new();
        }
        let outside = std::mem::take(&mut self.images);
        let read = self.binaries(origin, contents, depth + 1);
        let inner = std::mem::replace(&mut self.images, outside);
        if read.is_ok() { inner } else { Vec::new() }
    }
}
