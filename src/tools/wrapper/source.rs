//! An input: a file of which only headers are looked at. What is no file (stdin, a pipe) becomes one first.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use super::content::Content;
use crate::error::Malformed;
use crate::formats::offload_binary;
use crate::io::bytes::Bytes;
use crate::io::outputs::trouble;
use crate::sys::session::Session;

/// An open input.
pub(super) struct Source {
    path: PathBuf,
    file: Arc<File>,
    bytes: Bytes,
    content: Content,
}

impl Source {
    /// The file at `path`; `-` is stdin.
    pub(super) fn open(path: &Path, session: &Session) -> Result<Source> {
        let opened = if path == Path::new("-") {
            spooled(&mut io::stdin().lock(), path, session)?
        } else {
            let mut file = File::open(path).map_err(|error| trouble(path, &error))?;
            let kind = file.metadata().map_err(|error| trouble(path, &error))?.file_type();
            if kind.is_dir() {
                return Err(trouble(path, &io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error())));
            }
            if kind.is_file() { file } else { spooled(&mut file, path, session)? }
        };
        let size = opened.metadata().map_err(|error| trouble(path, &error))?.len();
        let bytes = Bytes::map(&opened, size).map_err(|error| trouble(path, &error))?;
        let file = Arc::new(opened);
        let mut content = Content::default();
        content.add_file(&file, 0, bytes.as_slice().len() as u64);
        Ok(Source { path: path.to_owned(), file, bytes, content })
    }

    /// The input as it was named.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The file's bytes, as they lie in it.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    /// What is to be wrapped.
    pub(super) fn content(&self) -> Content {
        self.content.clone()
    }

    /// A part of the file.
    pub(super) fn part(&self, at: u64, size: u64) -> Content {
        let mut content = Content::default();
        content.add_file(&self.file, at, size);
        content
    }

    /// Has other bytes at the front than the file, and these after what the file has up to `tail_at`.
    pub(super) fn replace(&mut self, head: Vec<u8>, tail_at: u64, tail: Vec<u8>) {
        let (start, size) = (head.len() as u64, self.bytes().len() as u64);
        let mut content = Content::default();
        content.add_bytes(head);
        content.add_file(&self.file, start, size.saturating_sub(start));
        content.add_bytes(vec![0; usize::try_from(tail_at.saturating_sub(size)).unwrap_or(0)]);
        content.add_bytes(tail);
        self.content = content;
    }

    /// With `--save-temps`, leaves what is wrapped in a file where it is not the input as it was, and says so.
    pub(super) fn keep(&self, session: &Session) -> Result<()> {
        if !session.scratch.keeps() {
            return Ok(());
        }
        let name = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kept = session.scratch.path(&format!("{name}.elfwithnotes"), "tmp")?;
        let mut out = File::create(&kept).map_err(|error| trouble(&kept, &error))?;
        self.content.each_chunk(|chunk| io::Write::write_all(&mut out, chunk)).map_err(|error| trouble(&kept, &error))?;
        session.shell.warn(&format!("keeping temporary file {}", kept.display()));
        Ok(())
    }

    /// The images of a file in which some are compressed, as OffloadBinaries in which none is: the runtime inflates nothing.
    pub(super) fn inflated(&self) -> Result<Option<Vec<u8>>, Malformed> {
        let bytes = self.bytes();
        if !offload_binary::is_offload_binary(bytes) {
            return Ok(None);
        }
        let images = offload_binary::read_all(bytes)?;
        if images.iter().all(|image| image.at != 0) {
            return Ok(None);
        }
        let mut plain = Vec::new();
        for image in images.iter().filter(|image| !image.is_description()) {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let strings: Vec<_> = image.strings.iter().map(|(key, value)| (text(key), text(value))).collect();
            let strings: Vec<_> = strings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            plain.extend(offload_binary::write(image.image_kind, image.offload_kind, image.flags, &strings, &image.image));
        }
        Ok(Some(plain))
    }
}

/// What comes out of `from`, as a temporary file.
fn spooled(from: &mut impl io::Read, path: &Path, session: &Session) -> Result<File> {
    let place = session.scratch.path("input", "tmp")?;
    if session.scratch.keeps() {
        session.shell.warn(&format!("keeping temporary file {}", place.display()));
    }
    let mut file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&place);
    let file = file.as_mut().map_err(|error| trouble(&place, error))?;
    io::copy(from, file).with_context(|| format!("cannot read '{}'", path.display()))?;
    file.try_clone().map_err(|error| trouble(&place, &error))
}
