//! An input of the wrapper, of which only headers are looked at, and the bytes that are wrapped.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::Malformed;
use crate::formats::offload_binary;
use crate::io::outputs::io_error;
use crate::io::piece::Piece;
use crate::io::rope::Rope;
use crate::sys::session::Session;

/// An open input.
pub(super) struct Source {
    path: PathBuf,
    piece: Piece,
    content: Rope,
}

impl Source {
    /// The file at `path`; `-` is stdin.
    pub(super) fn open(path: &Path, session: &Session) -> Result<Source> {
        let piece = Piece::open(path)?;
        let source = Source { path: path.to_owned(), content: Rope::from(piece.clone()), piece };
        if source.piece.is_made() {
            source.keep("input", session)?;
        }
        Ok(source)
    }

    /// The input as the user named it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The bytes of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// What is to be wrapped: the bytes of the file, or what [`Source::replace`] has put in their place.
    pub(super) fn content(&self) -> Rope {
        self.content.clone()
    }

    /// The `size` bytes of the file from `at`.
    pub(super) fn part(&self, at: u64, size: u64) -> Result<Rope, Malformed> {
        self.piece.slice(at, size).map(Rope::from).ok_or(Malformed::new("image past the end", at))
    }

    /// Has other bytes wrapped: those of the file, but with `head` over its first bytes, and with `tail` from `tail_at` on.
    pub(super) fn replace(&mut self, head: Vec<u8>, tail_at: u64, tail: Vec<u8>) {
        let rest = self.piece.from(head.len() as u64);
        let mut content = Rope::from(head);
        content.push_piece(rest);
        content.pad_to(tail_at);
        content.push_bytes(tail);
        self.content = content;
    }

    /// With `--save-temps`, writes what is wrapped to a temporary file `<stem>.tmp` that is kept, and says so: for content that is
    /// in no file of the user's.
    pub(super) fn keep(&self, stem: &str, session: &Session) -> Result<()> {
        if !session.scratch.keeps() {
            return Ok(());
        }
        let kept = session.scratch.path(stem, "tmp")?;
        let written = File::create(&kept).and_then(|mut out| self.content.write_to(&mut out));
        written.map_err(|error| io_error(&kept, &error))?;
        session.shell.warn(&format!("keeping temporary file {}", kept.display()));
        Ok(())
    }

    /// The images of a file in which some are compressed, as OffloadBinaries in which none is, because the runtime cannot
    /// decompress them. `None` where none is compressed.
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
