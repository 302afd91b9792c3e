//! On-disk layout of a store, relative to the cache directory:
//!
//! ```text
//! CACHEDIR.TAG marks the directory as a cache, which backup programs skip
//! v3/b/a0/a0f3… a blob: a copy of a cached file, named by the digest of its contents
//! v3/r/17/17c2… a record, in the format of `record_file`
//! v3/tmp/ files that are not complete yet
//! v3/stats the counters; the file is locked while a process changes the counters
//! v3/lock the file is locked while a process removes entries and leftover temporary files
//! ```
//!
//! This module reads and writes these files, and lists the entries (blobs and records).

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};

use super::super::{BlobName, Key};
use super::on_disk;
use crate::folder::Folder;
use crate::store::digest::copy;
use crate::store::{Digest, KeyBuilder, Naming};
use crate::threads::lock;

/// The contents of a cache directory tag: <https://bford.info/cachedir/>.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This directory is a cache of offld (docs/reference/cache.md). You can remove it at any time.\n";

/// Directory of all files except the cache directory tag. An incompatible layout gets a new number.
pub(super) const VERSION: &str = "v3";
/// Layouts of earlier releases. Releases with different layouts do not read each other's entries.
pub(super) const EARLIER: [&str; 2] = ["v1", "v2"];
/// Directory of the blobs, below [`VERSION`].
pub(super) const BLOBS: &str = "b";
/// Directory of the records, below [`VERSION`].
pub(super) const RECORDS: &str = "r";
/// Directory of temporary files, below [`VERSION`].
pub(super) const TMP: &str = "tmp";
/// File of the counters, below [`VERSION`].
pub(super) const STATS: &str = "stats";
/// Lock file, below [`VERSION`].
pub(super) const LOCK: &str = "lock";
/// File name of the cache directory tag.
const TAG_NAME: &str = "CACHEDIR.TAG";

/// Mode of a new cache directory that the user named, and of its new parents. The group may write,
/// because teams share such directories.
const MODE_OF_NAMED: u32 = 0o775;
/// Mode of a new default cache directory, and of its new parents, such as `~/.cache`. The XDG Base
/// Directory Specification requires this mode.
const MODE_OF_USER: u32 = 0o700;

/// The directories of a store.
pub(super) struct Layout {
    /// The cache directory, as an absolute path.
    pub root: PathBuf,
    /// Mode, before the umask, of `root` and its parents when offld creates these directories.
    mode: u32,
    /// The directory [`VERSION`] below `root`. `None` until the first use opens the directory.
    version: Mutex<Option<Arc<Folder>>>,
}

/// Location of a blob or record: its directory below [`VERSION`], and its file name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) folder: String,
    pub(super) name: String,
}

impl Place {
    /// Returns the location of the file `name` in the directory `kind`. The first two digits of
    /// `name` select a subdirectory, because very many files in one directory are slow.
    fn new(kind: &str, name: String) -> Place {
        let start: String = name.chars().take(2).collect();
        Place {
            folder: format!("{kind}/{start}"),
            name,
        }
    }
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Layout {
        Layout {
            root,
            mode: MODE_OF_NAMED,
            version: Mutex::default(),
        }
    }

    /// Returns the layout of a store in the user's default cache directory.
    pub(super) fn of_user(root: PathBuf) -> Layout {
        Layout {
            mode: MODE_OF_USER,
            ..Layout::new(root)
        }
    }

    pub(super) fn blob(name: BlobName) -> Place {
        Place::new(BLOBS, name.to_string())
    }

    pub(super) fn record(key: Key) -> Place {
        Place::new(RECORDS, key.to_string())
    }

    /// Returns the path of `below`, a name below [`VERSION`], for messages.
    pub(super) fn shown(&self, below: &str) -> String {
        self.root.join(VERSION).join(below).display().to_string()
    }

    /// Returns the path of a blob or record, for messages.
    pub(super) fn shown_place(&self, place: &Place) -> String {
        self.shown(&format!("{}/{}", place.folder, place.name))
    }

    /// Returns the directory [`VERSION`]. Opens the directory only if no earlier call has opened
    /// it. If another process later removes or recreates the directory, lookups find nothing.
    pub(super) fn version(&self) -> io::Result<Arc<Folder>> {
        let mut version = lock(&self.version);
        if let Some(version) = version.as_ref() {
            return Ok(Arc::clone(version));
        }
        let opened = Arc::new(Folder::root(&self.root)?.sub(VERSION)?);
        Ok(Arc::clone(version.insert(opened)))
    }

    /// Opens a directory below [`VERSION`].
    pub(super) fn folder(&self, names: &str) -> io::Result<Folder> {
        self.version()?.sub(names)
    }

    /// Opens the directory `names` of the layout `version`: the current layout or an earlier
    /// layout.
    pub(super) fn folder_of(&self, version: &str, names: &str) -> io::Result<Folder> {
        if version == VERSION {
            self.folder(names)
        } else {
            self.opened_root()?.sub(&format!("{version}/{names}"))
        }
    }

    /// Opens the cache directory.
    pub(super) fn opened_root(&self) -> io::Result<Folder> {
        Folder::root(&self.root)
    }

    /// Creates the cache directory, its directory for temporary files, and the cache directory tag.
    pub(super) fn make(&self) -> Result<()> {
        make_root(&self.root, self.mode)
            .with_context(|| format!("cannot create the directory `{}`", self.root.display()))?;
        let made = self.opened_root().and_then(|root| {
            root.make_sub(&format!("{VERSION}/{TMP}"))?;
            let version = Arc::new(root.sub(VERSION)?);
            *lock(&self.version) = Some(version);
            Ok(root)
        });
        let root =
            made.with_context(|| format!("cannot create the directory `{}`", self.shown(TMP)))?;
        let tagged = match root.create(TAG_NAME) {
            Ok(mut file) => file.write_all(TAG.as_bytes()),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        };
        tagged.with_context(|| format!("cannot write `{}`", self.root.join(TAG_NAME).display()))
    }
}

#[cfg(test)]
impl Layout {
    /// Returns the path of a blob or record.
    pub(super) fn path(&self, place: &Place) -> PathBuf {
        self.below(&place.folder).join(&place.name)
    }

    /// Returns the path of `name` below [`VERSION`].
    pub(super) fn below(&self, name: &str) -> PathBuf {
        self.root.join(VERSION).join(name)
    }
}

/// Creates the cache directory and its missing parents. With any umask, only the owner and possibly
/// the group can write to these directories, because cached data becomes part of programs.
fn make_root(root: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(root)
}

// The files of a store: records, temporary files, and copies of blobs.
//
// A record file is a header and the bytes of the record. The digest covers the key and the bytes.
// So a record under the name of another record fails verification, like a record with a flipped
// bit.
//
// ```text
// offset size contents
// 0 8 "offld\0r2"
// 8 32 digest of the key and the bytes
// 40 … the bytes of the record, to the end of the file
// ```

const MAGIC: &[u8; 8] = b"offld\0r2";
/// Size of the header, in bytes.
const HEAD: usize = 40;
/// Maximum size of a record file, in bytes. The size is limited because offld reads the whole file
/// into memory. offld never writes larger record files.
const LARGEST: u64 = 64 << 20;

/// Returns the contents of the record file for `key` and `bytes`.
///
/// # Errors
/// Fails if the file would be larger than [`LARGEST`].
pub(super) fn record_file(key: Key, bytes: &[u8]) -> Result<Vec<u8>> {
    let len = bytes.len() as u64;
    if len > LARGEST - HEAD as u64 {
        bail!("a record of {len} bytes exceeds the limit of 64 MiB");
    }
    Ok([MAGIC.as_slice(), digest(key, bytes).bytes(), bytes].concat())
}

/// Returns the bytes of the record in `file`, or `None` if `file` is not a valid record for `key`.
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

/// Number of names to try for a temporary file. Two processes can choose the same name only if they
/// run on different machines and share a directory.
const TRIES: usize = 100;

/// A temporary file. Dropping an `Aside` removes the file.
#[derive(Debug)]
pub(super) struct Aside {
    folder: Folder,
    name: String,
}

impl Aside {
    /// Calls `make` with `folder` and the name of a new file. If a file with this name exists,
    /// calls `make` again with another name. `make` must not overwrite files.
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
        // The file may exist even after a successful rename. If the old and the new name are hard
        // links to the same file, a rename does nothing (POSIX).
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

/// Copies `from` to the new file `to` and returns the blob name of the contents.
///
/// # Errors
/// The outer error is a write error, which is a problem of the link. The inner error is a read
/// error, which is a problem of the store.
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

/// A file that remembers its write errors, so that callers can distinguish write errors from read
/// errors.
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

// The list of entries, read from the directories of the current layout and of earlier layouts.

/// Totals of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of blobs in the current layout.
    pub blobs: u64,
    /// Number of records in the current layout.
    pub records: u64,
    /// Disk space of all entries, in bytes. Includes entries of earlier layouts in the same cache
    /// directory.
    pub size: u64,
    /// Disk space of the entries of earlier layouts, in bytes. `size` includes this space.
    pub earlier: u64,
}

/// A blob or record in a store.
pub(super) struct StoreEntry {
    /// The layout that the entry belongs to.
    pub version: &'static str,
    pub place: Place,
    /// Disk space of the entry, in bytes.
    pub size: u64,
    /// Time when the entry was last used.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// Lists all blobs and records in no particular order. Includes entries of earlier layouts. Omits
/// files that disappear during the listing, and files with names that offld does not use.
pub(super) fn entries(layout: &Layout) -> Vec<StoreEntry> {
    let versions = [VERSION].into_iter().chain(EARLIER);
    versions
        .flat_map(|version| entries_of(layout, version))
        .collect()
}

fn entries_of(layout: &Layout, version: &'static str) -> Vec<StoreEntry> {
    let mut all = Vec::new();
    for (kind, is_blob) in [(BLOBS, true), (RECORDS, false)] {
        let fans = layout
            .folder_of(version, kind)
            .map(|folder| folder.entries())
            .unwrap_or_default();
        for fan in fans
            .iter()
            .filter(|fan| fan.is_folder)
            .filter_map(|fan| fan.name.to_str())
        {
            let folder = format!("{kind}/{fan}");
            let Ok(opened) = layout.folder_of(version, &folder) else {
                continue;
            };
            all.extend(
                opened
                    .entries()
                    .into_iter()
                    .filter(|file| file.is_file)
                    .filter_map(|file| {
                        // Earlier layouts name records and blobs by digests of 32 digits.
                        let is_record = !is_blob && version == VERSION;
                        let ours = |name: &&str| {
                            if is_record {
                                Key::parse(name).is_some()
                            } else {
                                BlobName::parse(name).is_some()
                            }
                        };
                        let name = file.name.to_str().filter(ours)?.to_owned();
                        let place = Place {
                            folder: folder.clone(),
                            name,
                        };
                        Some(StoreEntry {
                            version,
                            place,
                            size: on_disk(file.size),
                            used: file.modified,
                            is_blob,
                        })
                    }),
            );
        }
    }
    all
}

impl Contents {
    pub(super) fn of(entries: &[StoreEntry]) -> Contents {
        entries.iter().fold(Contents::default(), |all, entry| {
            let one = Contents::one(entry);
            Contents {
                blobs: all.blobs + one.blobs,
                records: all.records + one.records,
                size: all.size + one.size,
                earlier: all.earlier + one.earlier,
            }
        })
    }

    /// Returns the totals without `entry`.
    pub(super) fn without(self, entry: &StoreEntry) -> Contents {
        let one = Contents::one(entry);
        Contents {
            blobs: self.blobs - one.blobs,
            records: self.records - one.records,
            size: self.size - one.size,
            earlier: self.earlier - one.earlier,
        }
    }

    fn one(entry: &StoreEntry) -> Contents {
        let own = entry.version == VERSION;
        let count = |kind: bool| u64::from(own && kind);
        let earlier = if own { 0 } else { entry.size };
        Contents {
            blobs: count(entry.is_blob),
            records: count(!entry.is_blob),
            size: entry.size,
            earlier,
        }
    }
}
