//! Bytes joined from owned bytes, ranges of files and zeros. Nothing is read before it is written,
//! so a rope of gigabytes takes as much memory as its list of parts. Objects and programs with
//! resized sections are ropes.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::file_slice::{FileSlice, Spool};
use super::outputs::{GRAIN, Output, copy_range, copy_range_to_writer};
use offload_formats::coff;
use offload_formats::compose::Part;
use offload_formats::elf::resize::{self, NewSize, plan};
pub use offload_formats::elf::resize::{NO_ROOM, Patch};
use offload_formats::error::Malformed;

/// Bytes that are joined when they are written. Cheap to create, and to clone except for owned
/// bytes.
#[derive(Debug, Clone, Default)]
pub struct Rope {
    parts: Vec<RopePart>,
    size: u64,
}

#[derive(Debug, Clone)]
enum RopePart {
    Bytes(Vec<u8>),
    /// A range of a file that is opened for each write: a rope may consist of more files than can
    /// be open at once.
    File {
        path: PathBuf,
        offset: u64,
        size: u64,
    },
    FileSlice(FileSlice),
    Zeros(u64),
}

impl RopePart {
    fn size(&self) -> u64 {
        match self {
            RopePart::Bytes(bytes) => bytes.len() as u64,
            RopePart::File { size, .. } | RopePart::Zeros(size) => *size,
            RopePart::FileSlice(piece) => piece.size(),
        }
    }

    /// Offset of the part in the file that it is copied from.
    fn file_offset(&self) -> Option<u64> {
        match self {
            RopePart::File { offset, .. } => Some(*offset),
            RopePart::FileSlice(piece) => piece.copied_from(),
            RopePart::Bytes(_) | RopePart::Zeros(_) => None,
        }
    }

    fn write_into(&self, to: &mut impl Sink) -> io::Result<()> {
        match self {
            RopePart::Bytes(bytes) => to.bytes(bytes),
            RopePart::Zeros(count) => to.zeros(*count),
            RopePart::File { size: 0, .. } => Ok(()),
            RopePart::File { path, offset, size } => {
                let named = |error| named(path, error);
                let from = open(path, *offset, *size).map_err(named)?;
                to.range(&from, *offset, *size).map_err(named)
            }
            RopePart::FileSlice(piece) => match piece.file_range()? {
                Some((from, offset)) => to.range(&from, offset, piece.size()),
                None => to.bytes(piece.bytes()),
            },
        }
    }
}

impl Rope {
    /// All of the file at `path`.
    ///
    /// # Errors
    /// There is no such file. Whether it is readable shows when the rope is written.
    pub fn of_file(path: PathBuf) -> Result<Self> {
        let meta = std::fs::metadata(&path)
            .with_context(|| format!("cannot read `{}`", path.display()))?;
        let mut all = Rope::default();
        all.push_file(path, 0, meta.len());
        Ok(all)
    }

    /// A file that is assembled from `parts` of `old`, with `new` as the new contents.
    ///
    /// # Errors
    /// A part is outside of `old`, or `new` has too few elements.
    pub fn of_parts(
        old: &FileSlice,
        parts: Vec<Part>,
        new: impl IntoIterator<Item = Rope>,
    ) -> Result<Self, Malformed> {
        let mut new: Vec<Option<Rope>> = new.into_iter().map(Some).collect();
        let mut all = Rope::default();
        for part in parts {
            match part {
                Part::Old(range) => all.push_piece(
                    old.slice(range.start, range.end.saturating_sub(range.start))
                        .ok_or(Malformed::new("a range past the end", range.start))?,
                ),
                Part::New(index) => all.append(
                    new.get_mut(index)
                        .and_then(Option::take)
                        .ok_or(Malformed::new("new contents are missing", 0))?,
                ),
                Part::Bytes(bytes) => all.push_bytes(bytes),
                Part::Zeros(count) => all.push_zeros(count),
            }
        }
        Ok(all)
    }

    /// A file with `head` at its start, then each of `contents` at its offset, in ascending order.
    /// Gaps are zeros.
    pub fn framed(head: Vec<u8>, contents: impl IntoIterator<Item = (u64, Rope)>) -> Self {
        let mut all = Rope::from(head);
        for (at, rope) in contents {
            all.pad_to(at);
            all.append(rope);
        }
        all
    }

    /// Appends bytes.
    pub fn push_bytes(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.push(RopePart::Bytes(bytes));
        }
    }

    /// Appends the `size` bytes from `offset` of the file at `path`. A file with fewer bytes is an
    /// error when the rope is written.
    pub fn push_file(&mut self, path: PathBuf, offset: u64, size: u64) {
        self.push(RopePart::File { path, offset, size });
    }

    /// Appends a piece.
    pub fn push_piece(&mut self, piece: FileSlice) {
        if piece.size() > 0 {
            self.push(RopePart::FileSlice(piece));
        }
    }

    /// Appends zeros.
    pub fn push_zeros(&mut self, count: u64) {
        if count > 0 {
            self.push(RopePart::Zeros(count));
        }
    }

    /// Appends zeros until there are `size` bytes. Does nothing if there are as many already.
    pub fn pad_to(&mut self, size: u64) {
        self.push_zeros(size.saturating_sub(self.size));
    }

    /// Appends all of `other`.
    pub fn append(&mut self, other: Rope) {
        other.parts.into_iter().for_each(|part| self.push(part));
    }

    fn push(&mut self, part: RopePart) {
        self.size = self.size.saturating_add(part.size());
        self.parts.push(part);
    }

    /// Number of bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The paths of the files that were appended by path, in order.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.parts.iter().filter_map(|part| match part {
            RopePart::File { path, .. } => Some(path.as_path()),
            _ => None,
        })
    }

    /// Best start offset in a file, relative to a multiple of [`GRAIN`]: with it, the first large
    /// part is copied fast.
    pub fn best_offset(&self) -> u64 {
        let mut at = 0u64;
        for part in &self.parts {
            if let Some(offset) = part.file_offset().filter(|_| part.size() >= GRAIN) {
                return offset.wrapping_sub(at) % GRAIN;
            }
            at = at.saturating_add(part.size());
        }
        0
    }

    /// The first offset from `free` on with the best start for this rope ([`Rope::best_offset`]).
    pub fn best_start(&self, free: u64) -> u64 {
        free + self.best_offset().wrapping_sub(free) % GRAIN
    }

    /// Writes the bytes into `out` from `start` on. Zeros are not written: `out` must have a hole
    /// there, or end before.
    pub fn write_at(&self, out: &mut File, start: u64) -> io::Result<()> {
        out.seek(SeekFrom::Start(start))?;
        self.write_into(&mut ToFile(out))
    }

    /// Writes the bytes to the current position of `out`.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        self.write_into(out)
    }

    /// Writes all bytes, including zeros, to any writer (a pipe, a compressor, a hash).
    pub fn write_to(&self, out: &mut (impl Write + ?Sized)) -> io::Result<()> {
        self.write_into(&mut ToWriter(out))
    }

    /// Passes the bytes to `take` in chunks.
    pub fn for_each_chunk(&self, take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
        self.write_to(&mut Chunks(take))
    }

    /// The bytes, in memory.
    pub fn read(&self) -> io::Result<Vec<u8>> {
        let mut all = Vec::with_capacity(usize::try_from(self.size).map_err(io::Error::other)?);
        self.write_to(&mut all)?;
        Ok(all)
    }

    /// The bytes as one piece. If there is more than one part, they are written to `spool` first.
    pub fn into_piece(mut self, spool: &mut Spool) -> Result<FileSlice> {
        match self.parts.pop() {
            Some(RopePart::FileSlice(piece)) if self.parts.is_empty() => return Ok(piece),
            last => self.parts.extend(last),
        }
        spool.add(|out| Ok(self.write_to(out)?))
    }

    fn write_into(&self, to: &mut impl Sink) -> io::Result<()> {
        self.parts.iter().try_for_each(|part| part.write_into(to))
    }
}

impl From<Vec<u8>> for Rope {
    fn from(bytes: Vec<u8>) -> Self {
        let mut rope = Rope::default();
        rope.push_bytes(bytes);
        rope
    }
}

impl From<FileSlice> for Rope {
    fn from(piece: FileSlice) -> Self {
        let mut rope = Rope::default();
        rope.push_piece(piece);
        rope
    }
}

/// Target of a rope, which is written part by part.
trait Sink {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()>;
    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()>;
    fn zeros(&mut self, count: u64) -> io::Result<()>;
}

impl Sink for Output {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        self.copy_range(from, offset, size)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.write_zeros(count)
    }
}

/// Writes to the current position of the file, and skips zeros.
struct ToFile<'f>(&'f mut File);

impl Sink for ToFile<'_> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        copy_range(from, offset, self.0, size, &|| Ok(()))
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        self.0
            .seek_relative(i64::try_from(count).map_err(io::Error::other)?)
    }
}

struct ToWriter<'w, W: Write + ?Sized>(&'w mut W);

impl<W: Write + ?Sized> Sink for ToWriter<'_, W> {
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn range(&mut self, from: &File, offset: u64, size: u64) -> io::Result<()> {
        copy_range_to_writer(from, offset, size, self.0)
    }

    fn zeros(&mut self, count: u64) -> io::Result<()> {
        io::copy(&mut io::repeat(0).take(count), self.0).map(drop)
    }
}

struct Chunks<F>(F);

impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Chunks<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.0)(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Opens the file at `path`, which must have `size` bytes from `offset` on.
fn open(path: &Path, offset: u64, size: u64) -> io::Result<File> {
    let file = File::open(path)?;
    let available = file.metadata()?.len().saturating_sub(offset);
    if available < size {
        return Err(io::Error::other(format!(
            "{available} bytes, expected {size}"
        )));
    }
    Ok(file)
}

/// Adds the file name to an error. A signal's error, which ends the whole program, keeps its type
/// and stays unchanged.
fn named(path: &Path, error: io::Error) -> io::Error {
    match offload_formats::error::StepFailed::of(&error).is_some() {
        true => error,
        false => io::Error::new(error.kind(), format!("{}: {error}", path.display())),
    }
}

// Replaces the contents of sections in an ELF file or a COFF object. The new file is a rope:
// unchanged parts are copied by the kernel, not through memory.

/// New contents for a section.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Index in the section table.
    pub section: usize,
    /// The new contents.
    pub contents: Rope,
}

/// Returns the ELF file `file` with new contents in some sections, and with `patches` applied.
/// Contents may have any size. In programs and shared libraries, addresses stay, and whole pages of
/// the file that are no longer needed are removed. Contents that do not fit into their old location
/// move behind all loaded data, to the address that `addresses_with` returns.
///
/// Symbols beyond the new end of a section get its start and the size 0. The caller must change
/// relocations.
///
/// # Errors
/// The file is damaged, or its kind cannot be changed. A section has no bytes in the file, is named
/// twice, or shares its bytes with another section or an indivisible segment. A patch covers bytes
/// that are replaced or rewritten. There is no room for another program header.
pub fn resize(
    file: &FileSlice,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
) -> Result<Rope, Malformed> {
    resize_with(file, replacements, patches, &[], &[])
}

/// Like `resize`, and adds an array of `pointers` to a program or shared library. The array is
/// writable, and behind all loaded data, at the address that `addresses_with` returns. The pointers
/// are addresses in the file, none of them null. The loader relocates them to the file's load
/// address.
///
/// New contents of the sections with the indices `movable` may begin at a later address even if
/// they fit into their old location. This requires that `patches` cover all pointers to them. Then
/// they do not directly follow the program headers, to which other tools add more. `addresses_with`
/// returns the addresses.
///
/// # Errors
/// Those of `resize`. There are pointers for an object, or for a position-independent file whose
/// relocations cannot be extended.
pub fn resize_with(
    file: &FileSlice,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
    pointers: &[u64],
    movable: &[usize],
) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), movable);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    Rope::of_parts(
        file,
        plan(file.bytes(), &sizes, &patches, pointers)?,
        replacements.into_iter().map(|new| new.contents),
    )
}

/// Returns the COFF object `file` with new contents in some sections; `Replacement::section` is the
/// number of a section, from 1. Data behind them moves in the file.
///
/// # Errors
/// The file is damaged. A section has no bytes in the file, has relocations, is named twice, or
/// shares its bytes. The object becomes larger than its format allows.
pub fn resize_coff(file: &FileSlice, replacements: Vec<Replacement>) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), &[]);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    Rope::of_parts(
        file,
        coff::resize(file.bytes(), &sizes)?,
        replacements.into_iter().map(|new| new.contents),
    )
}

/// Returns the program `file` with one more page in front for the file header and the program
/// headers, and the size of that page. Everything else moves back by that many bytes in the file,
/// and stays at its address. Returns `None` if the file cannot have such a page.
///
/// # Errors
/// The file is damaged.
pub fn with_front_page(file: &FileSlice) -> Result<Option<(u64, Rope)>, Malformed> {
    let Some((page, parts)) = resize::with_front_page(file.bytes())? else {
        return Ok(None);
    };
    Ok(Some((page, Rope::of_parts(file, parts, [])?)))
}

/// Returns the program `file` with a section called `name` for each of `ranges`. The ranges are in
/// order, each with bytes of one loaded section. Everything stays at its offset and address.
///
/// # Errors
/// The file is damaged or an object, a range is not within a loaded section, or the section names
/// are loaded.
pub fn divide(file: &FileSlice, ranges: &[Range<u64>], name: &str) -> Result<Rope, Malformed> {
    let parts = resize::divide(file.bytes(), ranges, name.as_bytes())?;
    Rope::of_parts(file, parts, [])
}

/// Returns the addresses in memory of new contents, for sections of a program or shared library
/// (index, and size of the new contents in bytes). They must be passed to `resize_with` together,
/// with as many `pointers`. Also returns the address of the pointers. The sections with the indices
/// `movable` may begin at a later address. For an object, the results are meaningless.
///
/// # Errors
/// Those of `resize_with`.
pub fn addresses_with(
    file: &FileSlice,
    sizes: &[(usize, u64)],
    pointers: usize,
    movable: &[usize],
) -> Result<(Vec<u64>, u64), Malformed> {
    let sizes: Vec<NewSize> = sizes
        .iter()
        .map(|(section, size)| new_size(*section, *size, movable))
        .collect();
    resize::addresses(file.bytes(), &sizes, pointers)
}

fn new_size(section: usize, size: u64, movable: &[usize]) -> NewSize {
    NewSize {
        section,
        size,
        may_move: movable.contains(&section),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::outputs::Outputs;
    use crate::session::{Session, SessionOptions};
    use crate::shell::Shell;

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn pattern(size: u64) -> Vec<u8> {
        (0..size)
            .map(|at| (at % 251) as u8 ^ (at >> 13) as u8)
            .collect()
    }

    fn session() -> Session {
        Session::new(
            std::sync::Arc::new(Shell::from_write("test", Box::new(io::sink()))),
            SessionOptions::default(),
        )
    }

    #[test]
    fn writes_every_kind_of_part_in_every_way() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let bytes = pattern(2 * GRAIN);
        std::fs::write(&path, &bytes)?;
        let mut inner = Rope::from(b"inner".to_vec());
        inner.push_file(path.clone(), 10, 2 * GRAIN - 20);
        let mut all = Rope::from(b"head".to_vec());
        all.pad_to(4096);
        all.append(inner);
        all.push_file(path.clone(), 5, 0);
        all.push_piece(FileSlice::open(&path)?.from(7));
        all.push_piece(FileSlice::open_one_of_many(&path)?);
        all.push_piece(FileSlice::owned(b"owned".to_vec()));
        all.push_zeros(3 * GRAIN);
        all.push_bytes(b"tail".to_vec());
        all.push_zeros(9);
        all.pad_to(12);

        let image = usize::try_from(2 * GRAIN - 20)?;
        let mut wanted = b"head".to_vec();
        wanted.resize(4096, 0);
        for part in [
            &b"inner"[..],
            &bytes[10..][..image],
            &bytes[7..],
            &bytes,
            b"owned",
        ] {
            wanted.extend(part);
        }
        wanted.resize(wanted.len() + usize::try_from(3 * GRAIN)?, 0);
        wanted.extend(b"tail");
        wanted.resize(wanted.len() + 9, 0);
        assert_eq!((all.size(), all.files().count()), (wanted.len() as u64, 2));
        // The first large part begins at offset 10 of the file, and at 4101 of the rope.
        assert_eq!(all.best_offset(), GRAIN + 10 - 4101);

        assert!(all.read()? == wanted);
        let mut chunks = Vec::new();
        all.for_each_chunk(|chunk| chunks.write_all(chunk))?;
        assert!(chunks == wanted);
        let mut file = tempfile::tempfile()?;
        all.write_at(&mut file, 3)?;
        file.set_len(3 + all.size())?;
        let mut written = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut written)?;
        assert!(written[..3] == [0; 3] && written[3..] == wanted);
        let session = session();
        let mut outputs = Outputs::new(&session);
        let mut out = outputs.create(&folder.path().join("out"))?;
        out.write_all(b"before")?;
        all.copy_to(&mut out)?;
        out.write_all(b"after")?;
        outputs.commit()?;
        assert!(
            std::fs::read(folder.path().join("out"))?
                == [b"before", &wanted[..], b"after"].concat()
        );
        let mut spool = Spool::new(&session);
        assert!(all.into_piece(&mut spool)?.bytes() == wanted);
        Ok(())
    }

    #[test]
    fn a_single_piece_is_not_copied() -> Outcome {
        let session = session();
        let mut spool = Spool::new(&session);
        let piece = FileSlice::owned(b"alone".to_vec());
        assert!(Rope::from(piece.clone()).into_piece(&mut spool)?.is(&piece));
        assert_eq!(Rope::default().into_piece(&mut spool)?.bytes(), b"");
        Ok(())
    }

    #[test]
    fn errors_name_a_file_that_is_too_short() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        std::fs::write(&path, "short")?;
        let mut rope = Rope::default();
        rope.push_file(path.clone(), 10, 500);
        let mut out = tempfile::tempfile()?;
        for error in [
            rope.write_to(&mut io::sink()).err(),
            rope.write_at(&mut out, 0).err(),
        ] {
            assert!(
                error
                    .ok_or("no error")?
                    .to_string()
                    .ends_with("/file: 0 bytes, expected 500")
            );
        }
        std::fs::remove_file(&path)?;
        let error = rope.read().err().ok_or("no error")?;
        assert!(
            error.kind() == io::ErrorKind::NotFound
                && error.to_string().starts_with(&path.display().to_string()),
            "{error}"
        );
        assert!(Rope::of_file(path).is_err());
        Ok(())
    }
}
