//! The files of a store: records, temporary files in a directory of their own, and copies of blobs.
//!
//! A record has a header, then the bytes. The digest covers key and bytes, so a record under the
//! name of another one is as invalid as one with a flipped bit.
//!
//! ```text
//! 0 8 "offld\0r2"
//! 8 32 digest of key and bytes
//! 40 the bytes, to the end of the file
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::super::digest::copy;
use super::super::{BlobName, Digest, Key, KeyBuilder, Naming};
use crate::sys::folder::Folder;

const MAGIC: &[u8; 8] = b"offld\0r2";
const HEAD: usize = 40;
/// Maximum file size, in bytes: records are read into memory whole. Larger files were not written
/// by offld.
const LARGEST: u64 = 64 << 20;

/// Returns the contents of a record file.
///
/// # Errors
/// There are too many bytes.
pub(super) fn record_file(key: Key, bytes: &[u8]) -> Result<Vec<u8>> {
    let len = bytes.len() as u64;
    if len > LARGEST - HEAD as u64 {
        bail!("a record of {len} bytes exceeds the limit of 64 MiB");
    }
    Ok([MAGIC.as_slice(), digest(key, bytes).bytes(), bytes].concat())
}

/// Returns the bytes of the record in `file`, or `None` if it is not a valid record under `key`.
pub(super) fn read_record(file: &File, key: Key) -> Option<Vec<u8>> {
    let mut whole = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut whole).ok()?;
    if whole.len() as u64 > LARGEST {
        return None;
    }
    let rest = whole.strip_prefix(MAGIC)?;
    let (found, bytes) = rest.split_at_checked(HEAD - MAGIC.len())?;
    (found == digest(key, bytes).bytes()).then(|| bytes.to_vec())
}

fn digest(key: Key, bytes: &[u8]) -> Digest {
    KeyBuilder::default().add(key.bytes()).add(bytes).digest()
}

/// Number of names to try. Another process can use the same name only if processes of several
/// machines share a directory.
const TRIES: usize = 100;

/// A temporary file, which is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Aside {
    folder: Folder,
    name: String,
}

impl Aside {
    /// Lets `make` create a file in `folder` under the name that it gets. It must not overwrite a
    /// file.
    pub(super) fn make<T>(
        folder: Folder,
        make: impl Fn(&Folder, &str) -> io::Result<T>,
    ) -> io::Result<(Aside, T)> {
        for _ in 0..TRIES {
            let name = unique();
            match make(&folder, &name) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
                Ok(made) => return Ok((Aside { folder, name }, made)),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }

    /// Name of the file in the directory for temporary files.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Moves the file to `name` in `folder`, replacing an existing file.
    pub(super) fn rename(&self, folder: &Folder, name: &str) -> io::Result<()> {
        self.folder.rename(&self.name, folder, name)
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Needed after a rename as well: renaming a hard link over another link to the same file
        // does nothing (POSIX).
        let _ = self.folder.remove(OsStr::new(&self.name));
    }
}

fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos());
    format!(
        "{:x}-{:x}-{now:x}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    )
}

/// Copies `from` to `to` and returns the name of the contents. The outer error is a write error,
/// which is a problem of the link. The inner one is a read error, a problem of the store.
pub(super) fn copy_to_new_file(
    mut from: File,
    to: &Path,
    naming: Naming,
) -> Result<io::Result<BlobName>> {
    let context = || format!("cannot write `{}`", to.display());
    let mut out = ErrorKeeper {
        file: File::create_new(to).with_context(context)?,
        failed: None,
    };
    let copied = copy(&mut from, &mut out, naming);
    match out.failed {
        Some(error) => {
            let _ = fs::remove_file(to);
            Err(error).with_context(context)
        }
        None => Ok(copied),
    }
}

/// A file that remembers its write errors, so that they can be distinguished from read errors.
struct ErrorKeeper {
    file: File,
    failed: Option<io::Error>,
}

impl Write for ErrorKeeper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| {
            let kind = error.kind();
            if kind != ErrorKind::Interrupted {
                self.failed = Some(error);
            }
            kind.into()
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
