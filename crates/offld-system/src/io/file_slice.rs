//! Files that users name, and parts of them. A piece is read through a map, and copied from file to
//! file by the kernel. Every page read through a map counts as memory of this process, so large
//! contents are never read that way.
//!
//! There is one way to open any kind of file that a user names: a regular file, stdin (`-`), a pipe
//! (`/dev/fd/63`, as shells write `<(…)`), a file below `/proc`. A file without a size, or one that
//! can be read only once, is first copied to an unnamed temporary file. A file that another file
//! names (a member of a thin archive) is opened by [`FileSlice::open_member`], which accepts
//! regular files only.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::ops::{Deref, Range};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use rustix::io::Errno;

use crate::io::bytes::Bytes;
use crate::io::outputs::{Output, cut_short, io_error};
use crate::progress::Share;
use crate::scratch;
use crate::session::Session;
use crate::signals::Signals;
use offload_formats::archive::{MemberContents, NewMember, member_at, write};
use offload_formats::error::Malformed;
use offload_formats::zip::{ZipMember, ZipMethod, ZipReader};
use offload_formats::{bitcode, magic};

/// Pieces up to this size, in bytes, are read through the map: that costs less than copying does.
const SMALL: u64 = 64 << 10;
/// Number of bytes of two pieces that are compared before their memory is released.
const SPAN: usize = 16 << 20;
/// Buffer size for temporary files, in bytes.
const BUFFER: usize = 256 << 10;

/// Part of a file, or owned bytes; cheap to clone.
#[derive(Clone)]
pub struct FileSlice {
    bytes: Bytes,
    /// The file that the bytes are copied from, and their offset in it.
    source: Option<(Arc<Source>, u64)>,
    /// Whether offld made the bytes (decompressed, read from a pipe), so that they are not part of
    /// the user's file.
    made: bool,
}

/// A file that bytes are copied from.
#[derive(Debug)]
enum Source {
    Open(File),
    /// Opened again for each copy: an archive may name more files than can be open at once.
    Path(PathBuf),
    /// No file: the user passed bytes, whose offsets are reported like those of a file.
    Memory,
}

/// A `Source` that is open.
#[derive(Debug)]
pub enum SourceFile<'p> {
    /// The source was open already.
    Kept(&'p File),
    /// The source was opened for this use.
    Opened(File),
}

impl Deref for SourceFile<'_> {
    type Target = File;

    fn deref(&self) -> &File {
        match self {
            SourceFile::Kept(file) => file,
            SourceFile::Opened(file) => file,
        }
    }
}

impl Source {
    fn file(&self) -> io::Result<Option<SourceFile<'_>>> {
        Ok(match self {
            Source::Open(file) => Some(SourceFile::Kept(file)),
            Source::Path(path) => Some(SourceFile::Opened(File::open(path)?)),
            Source::Memory => None,
        })
    }
}

impl FileSlice {
    /// Opens the whole file at `path`; `-` is stdin. The error has LLVM's wording: the name in
    /// quotes, and the system's text.
    pub fn open(path: &Path) -> Result<FileSlice> {
        FileSlice::try_open(path).map_err(|error| io_error(path, &error))
    }

    /// Like [`FileSlice::open`], for one file of many: no descriptor stays open.
    pub fn open_one_of_many(path: &Path) -> Result<FileSlice> {
        FileSlice::try_open_one_of_many(path).map_err(|error| io_error(path, &error))
    }

    /// Like [`FileSlice::open_one_of_many`], with the system's error.
    pub fn try_open_one_of_many(path: &Path) -> io::Result<FileSlice> {
        Ok(FileSlice::try_open(path)?.without_handle(path))
    }

    /// Opens the whole file at `path`, which another file names. It must be a regular file: an
    /// archive that names a device or a pipe would make us read without end. No descriptor stays
    /// open.
    pub fn open_member(path: &Path) -> Result<FileSlice> {
        FileSlice::try_open_member(path).map_err(|error| io_error(path, &error))
    }

    /// Like [`FileSlice::open`], with the system's error.
    pub fn try_open(path: &Path) -> io::Result<FileSlice> {
        if path == Path::new("-") {
            return FileSlice::spooled(&mut io::stdin().lock());
        }
        FileSlice::try_of(File::open(path)?)
    }

    /// All of an open file, or the remaining data of a pipe.
    pub fn try_of(mut file: File) -> io::Result<FileSlice> {
        let meta = file.metadata()?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        // Files below /proc are regular files with size 0, whatever they contain.
        if meta.is_file() && meta.len() > 0 {
            FileSlice::of(file)
        } else {
            FileSlice::spooled(&mut file)
        }
    }

    /// Like [`FileSlice::open_member`], with the system's error.
    pub fn try_open_member(path: &Path) -> io::Result<FileSlice> {
        // Check before opening: opening a pipe waits for a writer.
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Err(Errno::ISDIR.into());
        }
        if !meta.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        Ok(FileSlice::of(File::open(path)?)?.without_handle(path))
    }

    fn without_handle(mut self, path: &Path) -> FileSlice {
        if !self.made {
            self.source = Some((Arc::new(Source::Path(path.to_owned())), 0));
        }
        self
    }

    /// A copy of everything that `from` yields.
    fn spooled(from: &mut impl Read) -> io::Result<FileSlice> {
        let mut first = [0; 1];
        // For empty input, no file is created: compilers name `/dev/null` for the host, once for
        // each bundle, so there may be many.
        if from.read(&mut first)? == 0 {
            return Ok(FileSlice::owned(Vec::new()));
        }
        let mut file = tempfile::tempfile_in(scratch::temp_folder())?;
        io::copy(&mut first.chain(from), &mut file)?;
        Ok(FileSlice {
            made: true,
            ..FileSlice::of(file)?
        })
    }

    /// All of an open file, which must have a size.
    fn of(file: File) -> io::Result<FileSlice> {
        let size = file.metadata()?.len();
        Ok(FileSlice {
            bytes: Bytes::map(&file, size)?,
            source: Some((Arc::new(Source::Open(file)), 0)),
            made: false,
        })
    }

    /// Bytes that are not in a file.
    pub fn owned(bytes: Vec<u8>) -> FileSlice {
        FileSlice {
            bytes: bytes.into(),
            source: None,
            made: true,
        }
    }

    /// Bytes that the user passes instead of a file.
    pub fn handed_over(bytes: Vec<u8>) -> FileSlice {
        FileSlice {
            bytes: bytes.into(),
            source: Some((Arc::new(Source::Memory), 0)),
            made: false,
        }
    }

    /// The bytes that `write` writes, in an unnamed temporary file.
    pub fn made(write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<FileSlice> {
        let mut out = io::BufWriter::with_capacity(BUFFER, temporary()?);
        write(&mut out)?;
        Ok(FileSlice {
            made: true,
            ..FileSlice::of(out.into_inner().map_err(io::IntoInnerError::into_error)?)?
        })
    }

    /// Number of bytes.
    pub fn size(&self) -> u64 {
        self.bytes().len() as u64
    }

    /// The bytes. Pages that are read stay in memory.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// Releases the memory of the pages that have been read.
    pub fn release(&self) {
        self.bytes.release();
    }

    /// The `size` bytes from `offset`. Returns `None` if they exceed the end.
    pub fn slice(&self, offset: u64, size: u64) -> Option<FileSlice> {
        let bytes = self.bytes.slice(offset, size)?;
        let source = self
            .source
            .as_ref()
            .map(|(source, at)| (Arc::clone(source), at.saturating_add(offset)));
        Some(FileSlice {
            bytes,
            source,
            made: self.made,
        })
    }

    /// The bytes from `offset` on; empty if the offset exceeds the end.
    pub fn from(&self, offset: u64) -> FileSlice {
        let offset = offset.min(self.size());
        self.slice(offset, self.size() - offset)
            .unwrap_or_else(|| self.clone())
    }

    /// Whether the bytes are not in a file of the user: for example decompressed, or read from
    /// stdin.
    pub fn is_made(&self) -> bool {
        self.made
    }

    /// The same bytes as a file of their own, so that unpacked data has offsets as well.
    pub fn as_file(self) -> FileSlice {
        if !self.made {
            return self;
        }
        FileSlice {
            made: false,
            ..self
        }
    }

    /// Offset in the user's file of the byte at offset `within` of this piece. Returns `None` for
    /// bytes that offld made.
    pub fn file_offset(&self, within: u64) -> Option<u64> {
        let (_, at) = self.source.as_ref().filter(|_| !self.made)?;
        at.checked_add(within)
    }

    /// The range of these bytes in `outer`. Returns `None` if they are not part of it, for example
    /// because they were decompressed.
    pub fn range_in(&self, outer: &FileSlice) -> Option<Range<u64>> {
        let (bytes, around) = (self.bytes().as_ptr_range(), outer.bytes().as_ptr_range());
        let start = bytes.start.addr().checked_sub(around.start.addr())?;
        let end = bytes.end.addr().checked_sub(around.start.addr())?;
        (bytes.end <= around.end).then_some(start as u64..end as u64)
    }

    /// Whether both are the same part of the same file.
    pub fn is(&self, other: &FileSlice) -> bool {
        std::ptr::eq(self.bytes(), other.bytes())
    }

    /// Whether both have the same bytes. Comparing takes little memory, however many bytes there
    /// are.
    pub fn has_bytes_of(&self, other: &FileSlice) -> bool {
        let same = |(one, theirs): (&[u8], &[u8])| {
            let same = one == theirs;
            self.release();
            other.release();
            same
        };
        let (own, theirs) = (self.bytes(), other.bytes());
        self.is(other)
            || own.len() == theirs.len() && own.chunks(SPAN).zip(theirs.chunks(SPAN)).all(same)
    }

    /// The open file to copy the bytes from, and their offset in it. Returns `None` if it is better
    /// to use the bytes in memory, because they are few or not in a file.
    pub fn file_range(&self) -> io::Result<Option<(SourceFile<'_>, u64)>> {
        match &self.source {
            Some((source, at)) if self.size() > SMALL => Ok(source.file()?.map(|file| (file, *at))),
            _ => Ok(None),
        }
    }

    /// Offset of the bytes in the file that they are copied from.
    pub fn copied_from(&self) -> Option<u64> {
        self.source
            .as_ref()
            .filter(|(source, _)| !matches!(**source, Source::Memory))
            .map(|(_, at)| *at)
    }

    /// Copies the bytes to the current position of `out`. Many bytes are copied by the kernel,
    /// without this process's memory.
    pub fn copy_to(&self, out: &mut Output) -> io::Result<()> {
        match self.file_range()? {
            Some((file, at)) => out.copy_range(&file, at, self.size()),
            None => out.write_all(self.bytes()),
        }
    }

    /// Reads the bytes from their file, so that they take no memory afterwards.
    pub fn reader(&self) -> PieceReader<'_> {
        PieceReader {
            piece: self,
            opened: None,
            at: 0,
        }
    }
}

impl AsRef<[u8]> for FileSlice {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl fmt::Debug for FileSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSlice")
            .field("size", &self.size())
            .field("source", &self.source)
            .field("made", &self.made)
            .finish()
    }
}

/// Reads a piece from its start, with its own position.
#[derive(Debug)]
pub struct PieceReader<'p> {
    piece: &'p FileSlice,
    opened: Option<SourceFile<'p>>,
    at: u64,
}

impl PieceReader<'_> {
    /// Number of bytes that are not read yet.
    pub fn left(&self) -> u64 {
        self.piece.size() - self.at
    }
}

impl Read for PieceReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = usize::try_from(self.left())
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = buffer.get_mut(..wanted).unwrap_or_default();
        if let (Some((source, _)), None) = (&self.piece.source, &self.opened) {
            self.opened = source.file()?;
        }
        let len = match (&self.opened, &self.piece.source) {
            (Some(file), Some((_, start))) => {
                file.read_at(buffer, start.saturating_add(self.at))?
            }
            _ => self
                .piece
                .bytes()
                .get(usize::try_from(self.at).unwrap_or(usize::MAX)..)
                .unwrap_or_default()
                .read(buffer)?,
        };
        if len == 0 && wanted > 0 {
            return Err(cut_short());
        }
        self.at += len as u64;
        Ok(len)
    }
}

fn temporary() -> Result<File> {
    let folder = scratch::temp_folder();
    tempfile::tempfile_in(&folder).with_context(|| {
        format!(
            "cannot create a temporary file in {}",
            scratch::shown_temp_folder(&folder)
        )
    })
}

/// An unnamed temporary file to which many pieces are appended: there may be more pieces than files
/// can be open at once.
#[derive(Debug)]
pub struct Spool {
    signals: Arc<Signals>,
    file: Option<(File, Arc<Source>)>,
    end: u64,
    progress: Share,
}

impl Spool {
    /// An empty spool. The file is created with the first piece: most runs need none.
    pub fn new(session: &Session) -> Self {
        Spool {
            signals: Arc::clone(&session.signals),
            file: None,
            end: 0,
            progress: Share::default(),
        }
    }

    /// The same spool for an edit with this progress.
    pub fn with_progress(self, progress: Share) -> Self {
        Spool { progress, ..self }
    }

    /// The progress of the edit that writes the pieces.
    pub fn progress(&self) -> Share {
        self.progress.clone()
    }

    /// Appends the bytes that `write` writes, and returns them as a piece. If `write` fails,
    /// nothing is appended.
    pub fn add(&mut self, write: impl FnOnce(&mut File) -> Result<()>) -> Result<FileSlice> {
        let (file, source) = match self.file.take() {
            Some(made) => self.file.insert(made),
            None => self.file.insert(Spool::make()?),
        };
        file.seek(SeekFrom::Start(self.end))?;
        write(file)?;
        self.signals.check()?;
        let (at, end) = (self.end, file.stream_position()?);
        let bytes = Bytes::map_part(file, at, end - at)?;
        self.end = end;
        Ok(FileSlice {
            bytes,
            source: Some((Arc::clone(source), at)),
            made: true,
        })
    }

    fn make() -> Result<(File, Arc<Source>)> {
        let file = temporary()?;
        let other = file
            .try_clone()
            .context("cannot duplicate the handle of a temporary file")?;
        Ok((file, Arc::new(Source::Open(other))))
    }
}

/// Returns the member with its header at offset `header` of the archive at `path`. A thin archive
/// refers to members of other archives this way.
pub fn member_of(path: &Path, header: u64) -> Result<FileSlice> {
    let archive = FileSlice::open_member(path)?;
    let found = member_at(archive.bytes(), header)
        .map_err(|fault| anyhow!(fault.in_archive(&path.display())))?;
    let piece = found.and_then(|member| match member.contents {
        MemberContents::Within { offset, size } => archive.slice(offset, size),
        _ => None,
    });
    piece.with_context(|| {
        format!(
            "{}: no member at offset {header:#x}: the archive has changed",
            path.display()
        )
    })
}

/// Writes a GNU archive of `members`, each with its name, to `out`. Its symbol index covers native
/// objects and bitcode. Unreadable bitcode is stored without symbols, with a warning.
pub fn write_archive<'a>(
    members: impl IntoIterator<Item = (&'a str, &'a FileSlice)>,
    out: &mut Output,
    session: &Session,
) -> io::Result<()> {
    let members: Vec<(&str, &FileSlice)> = members.into_iter().collect();
    for (name, piece) in &members {
        if magic::is_bitcode(piece.bytes())
            && let Err(fault) = bitcode::symbols(piece.bytes())
        {
            session.shell.warn(&format!(
                "'{name}': its symbols are missing from the archive's index: cannot read the bitcode at offset {:#x}: {}",
                fault.at, fault.what
            ));
        }
    }
    let pieces = members
        .iter()
        .map(|(_, piece)| (address(piece.bytes()), *piece))
        .collect();
    let members = members.into_iter().map(|(name, piece)| NewMember {
        name: name.to_owned(),
        bytes: Box::new(piece),
    });
    write(members.collect(), &mut PieceWriter { out, pieces })
}

/// Copies a piece's bytes from its file if the archive writer writes exactly that piece, and passes
/// everything else on. The writer gets byte slices only, so a piece is recognised by the address of
/// its slice.
struct PieceWriter<'a> {
    out: &'a mut Output,
    pieces: HashMap<(usize, usize), &'a FileSlice>,
}

/// The address and length of a slice.
fn address(bytes: &[u8]) -> (usize, usize) {
    (bytes.as_ptr().addr(), bytes.len())
}

impl Write for PieceWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.pieces.get(&address(bytes)) {
            Some(piece) => piece.copy_to(self.out).map(|()| bytes.len()),
            None => self.out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Seek for PieceWriter<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.out.seek(to)
    }
}

/// Returns `member` of the zip file `zip`: a part of the file, or decompressed, in an unnamed
/// temporary file that is removed with the piece. Decompressed data is compared with its checksum;
/// for stored data, use [`check_zip_member`].
pub fn zip_member(zip: &FileSlice, member: &ZipMember<'_>) -> Result<FileSlice> {
    let stored = stored_zip_member(zip, member)?;
    if member.method == ZipMethod::Stored {
        return Ok(stored);
    }
    FileSlice::made(|out| {
        io::copy(&mut zip_reader(&stored, member)?, out)
            .map_err(|error| zip_error(member, error))?;
        Ok(())
    })
}

/// Returns up to `len` bytes from the start of `member` of the zip file `zip`.
pub fn start_of_zip_member(zip: &FileSlice, member: &ZipMember<'_>, len: u64) -> Result<Vec<u8>> {
    let stored = stored_zip_member(zip, member)?;
    let mut start = Vec::new();
    zip_reader(&stored, member)?
        .take(len)
        .read_to_end(&mut start)
        .map_err(|error| zip_error(member, error))?;
    Ok(start)
}

/// Compares all of a `member` of the zip file `zip` with its checksum.
pub fn check_zip_member(zip: &FileSlice, member: &ZipMember<'_>) -> Result<()> {
    let stored = stored_zip_member(zip, member)?;
    io::copy(&mut zip_reader(&stored, member)?, &mut io::sink())
        .map_err(|error| zip_error(member, error))?;
    Ok(())
}

/// The bytes of `member` as they are in the zip file.
fn stored_zip_member(zip: &FileSlice, member: &ZipMember<'_>) -> Result<FileSlice> {
    zip.slice(member.offset, member.size)
        .ok_or_else(|| anyhow!(member.fault("past the end of the zip file")))
}

fn zip_reader<'p>(
    stored: &'p FileSlice,
    member: &ZipMember<'_>,
) -> Result<ZipReader<BufReader<PieceReader<'p>>>> {
    ZipReader::new(member, BufReader::with_capacity(BUFFER, stored.reader()))
        .map_err(|fault| anyhow!(member.fault(fault.what)))
}

/// A read error: damaged contents become a fault of the member, and system errors stay unchanged.
fn zip_error(member: &ZipMember<'_>, error: io::Error) -> anyhow::Error {
    match Malformed::of(&error) {
        Some(fault) => anyhow!(member.fault(fault.what)),
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::SessionOptions;
    use crate::shell::Shell;

    type Outcome = std::result::Result<(), Box<dyn std::error::Error>>;

    fn read(piece: &FileSlice) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        piece.reader().read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    #[test]
    fn parts_are_read_and_copied_and_have_offsets() -> Outcome {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("file");
        let all: Vec<u8> = (0..200_000u32)
            .map(|number| number as u8 ^ (number >> 8) as u8)
            .collect();
        std::fs::write(&path, &all)?;
        let session = Session::new(
            Arc::new(Shell::from_write("test", Box::new(io::sink()))),
            SessionOptions::default(),
        );
        let mut spool = Spool::new(&session);
        let first = spool.add(|out| Ok(out.write_all(b"before")?))?;
        assert!(
            spool
                .add(|out| {
                    out.write_all(b"torn")?;
                    anyhow::bail!("no")
                })
                .is_err()
        );
        let pieces = [
            (FileSlice::open(&path)?, true),
            (FileSlice::open_one_of_many(&path)?, true),
            (FileSlice::owned(all.clone()), false),
            (FileSlice::made(|out| Ok(out.write_all(&all)?))?, false),
            (spool.add(|out| Ok(out.write_all(&all)?))?, false),
        ];
        assert_eq!(first.bytes(), b"before");
        for (piece, of_a_file) in pieces {
            let part = piece.from(10).slice(5, 150_000).ok_or("not all there")?;
            assert_eq!(
                (part.bytes(), read(&part)?),
                (&all[15..150_015], all[15..150_015].to_vec())
            );
            assert_eq!(part.file_offset(1), of_a_file.then_some(16));
            assert!(part.is(&part.clone()) && !part.is(&piece));
            assert!(piece.slice(1, all.len() as u64).is_none() && piece.from(1 << 40).size() == 0);
            let mut outputs = crate::io::outputs::Outputs::new(&session);
            let mut out = outputs.create(&folder.path().join("out"))?;
            out.write_all(b"head")?;
            part.copy_to(&mut out)?;
            outputs.commit()?;
            assert_eq!(
                std::fs::read(folder.path().join("out"))?[4..],
                all[15..150_015]
            );
        }
        Ok(())
    }

    #[test]
    fn a_missing_file_is_named() {
        for open in [
            FileSlice::open,
            FileSlice::open_one_of_many,
            FileSlice::open_member,
        ] {
            let error = |path: &str| {
                open(Path::new(path))
                    .map(drop)
                    .map_err(|error| error.to_string())
            };
            assert_eq!(
                error("/no/file"),
                Err("'/no/file': No such file or directory".to_owned())
            );
            assert_eq!(error("/"), Err("'/': Is a directory".to_owned()));
        }
    }

    #[test]
    fn files_without_a_size_are_read_to_their_end() -> Outcome {
        for open in [FileSlice::open, FileSlice::open_one_of_many] {
            let words = open(Path::new("/proc/self/cmdline"))?;
            assert_eq!(words.bytes(), std::fs::read("/proc/self/cmdline")?);
            let (from, mut to) = std::io::pipe()?;
            let writer = std::thread::spawn(move || to.write_all(&vec![7; 300_000]));
            let piped = open(Path::new(&format!(
                "/proc/self/fd/{}",
                std::os::fd::AsRawFd::as_raw_fd(&from)
            )));
            drop(from);
            assert_eq!(piped?.bytes(), vec![7; 300_000]);
            assert!(writer.join().is_ok_and(|written| written.is_ok()));
            assert!(words.is_made() && words.file_offset(0).is_none());
            assert_eq!(open(Path::new("/dev/null"))?.size(), 0);
        }
        Ok(())
    }

    #[test]
    fn members_must_be_regular_files() {
        for path in ["/dev/zero", "/dev/null"] {
            let error = FileSlice::open_member(Path::new(path))
                .err()
                .map(|error| error.to_string());
            assert_eq!(error, Some(format!("'{path}': not a regular file")));
        }
    }
}
