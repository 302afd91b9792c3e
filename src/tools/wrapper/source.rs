//! An input of the wrapper, of which only headers are read, and the contents to wrap.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::error::Malformed;
use crate::formats::compose::Part;
use crate::formats::offload_binary;
use crate::io::file_slice::FileSlice;
use crate::io::outputs::io_error;
use crate::io::rope::Rope;
use crate::sys::session::Session;

pub(super) struct Source {
    path: PathBuf,
    piece: FileSlice,
    content: Rope,
}

impl Source {
    /// Opens the file at `path`. `-` is stdin.
    pub(super) fn open(path: &Path, session: &Session) -> Result<Source> {
        let piece = FileSlice::open(path)?;
        let source = Source {
            path: path.to_owned(),
            content: Rope::from(piece.clone()),
            piece,
        };
        if source.piece.is_made() {
            source.keep("input", session)?;
        }
        Ok(source)
    }

    /// The path, as the user specified it.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The contents of the file.
    pub(super) fn bytes(&self) -> &[u8] {
        self.piece.bytes()
    }

    /// The contents to wrap: those of the file, or the ones from [`Source::replace`].
    pub(super) fn content(&self) -> Rope {
        self.content.clone()
    }

    /// The `size` bytes of the file from `at`.
    pub(super) fn part(&self, at: u64, size: u64) -> Result<Rope, Malformed> {
        self.piece
            .slice(at, size)
            .map(Rope::from)
            .ok_or(Malformed::new("image past the end", at))
    }

    /// Replaces the contents to wrap by these parts of the file.
    pub(super) fn replace(&mut self, parts: Vec<Part>) -> Result<(), Malformed> {
        self.content = Rope::of_parts(&self.piece, parts, [])?;
        Ok(())
    }

    /// With `--save-temps`, writes the contents to the temporary file `<stem>.tmp` and prints its
    /// path. For contents that are in no other file.
    pub(super) fn keep(&self, stem: &str, session: &Session) -> Result<()> {
        if !session.scratch.keeps() {
            return Ok(());
        }
        let file = session.scratch.path(stem, "tmp")?;
        let written = File::create(&file).and_then(|mut out| self.content.write_to(&mut out));
        written.map_err(|error| io_error(&file, &error))?;
        session
            .shell
            .warn(&format!("keeping temporary file {}", file.display()));
        Ok(())
    }

    /// Returns the images of a file as uncompressed OffloadBinaries, because the runtime cannot
    /// decompress them. `None` if no image is compressed.
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
            let strings: Vec<_> = image
                .strings
                .iter()
                .map(|(key, value)| (text(key), text(value)))
                .collect();
            let strings: Vec<_> = strings
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            plain.extend(offload_binary::write(
                image.image_kind,
                image.offload_kind,
                image.flags,
                &strings,
                &image.image,
            ));
        }
        Ok(Some(plain))
    }
}
