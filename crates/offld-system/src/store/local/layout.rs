//! On-disk layout below the root of a store:
//!
//! ```text
//! CACHEDIR.TAG marks the directory as a cache, which backup programs skip
//! v3/b/a0/a0f3… a blob: the file itself, named by its digest
//! v3/r/17/17c2… a record, in the format of `record_file`
//! v3/tmp/ files that are not complete yet
//! v3/stats the counters; locked while they change
//! v3/lock locked while a process collects
//! ```
//!
//! Also reads and writes these files, and lists the entries.

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

/// Directory of everything except the tag. An incompatible layout gets another number.
pub(super) const VERSION: &str = "v3";
/// Layouts of earlier releases. Releases with different layouts do not read each other's entries.
pub(super) const EARLIER: [&str; 2] = ["v1", "v2"];
/// Directories of the entries, and of temporary files.
pub(super) const BLOBS: &str = "b";
pub(super) const RECORDS: &str = "r";
pub(super) const TMP: &str = "tmp";
/// Files that are changed in place.
pub(super) const STATS: &str = "stats";
pub(super) const LOCK: &str = "lock";
const TAG_NAME: &str = "CACHEDIR.TAG";

/// Mode of new directories on the path to a cache directory that the user chose. Teams share such
/// directories.
const MODE_OF_NAMED: u32 = 0o775;
/// Mode of new directories that the XDG Base Directory Specification defines, such as `~/.cache`:
/// it asks for this mode.
const MODE_OF_USER: u32 = 0o700;

/// The directories of a store.
pub(super) struct Layout {
    /// The directory that the user named, as an absolute path.
    pub root: PathBuf,
    /// Mode of that directory and its parents, if they are created, before the umask.
    mode: u32,
    /// The directory [`VERSION`] below `root`. `None` until it is opened.
    version: Mutex<Option<Arc<Folder>>>,
}

/// Location of a blob or record: the directory, and the name there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) folder: String,
    pub(super) name: String,
}

impl Place {
    /// The first two digits name a subdirectory, because file systems are slow with very many files
    /// in one directory.
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

    /// A layout below the user's own cache directory.
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

    /// A path below [`VERSION`], for messages.
    pub(super) fn shown(&self, below: &str) -> String {
        self.root.join(VERSION).join(below).display().to_string()
    }

    /// The path of a blob or record, for messages.
    pub(super) fn shown_place(&self, place: &Place) -> String {
        self.shown(&format!("{}/{}", place.folder, place.name))
    }

    /// Opens, once, the directory of everything except the tag. If it is removed or recreated
    /// meanwhile, lookups in it miss.
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

    /// Opens the directory `names` of the layout `version`, which is the current or an earlier one.
    pub(super) fn folder_of(&self, version: &str, names: &str) -> io::Result<Folder> {
        if version == VERSION {
            self.folder(names)
        } else {
            self.opened_root()?.sub(&format!("{version}/{names}"))
        }
    }

    /// Opens the directory that the user named.
    pub(super) fn opened_root(&self) -> io::Result<Folder> {
        Folder::root(&self.root)
    }

    /// Creates the base directories and the tag.
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
    /// The path of a blob or record.
    pub(super) fn path(&self, place: &Place) -> PathBuf {
        self.below(&place.folder).join(&place.name)
    }

    /// A path below [`VERSION`].
    pub(super) fn below(&self, name: &str) -> PathBuf {
        self.root.join(VERSION).join(name)
    }
}

/// Creates the directory of a cache and its missing parents. Whatever the umask is, others cannot
/// write to them: cached data becomes part of programs.
fn make_root(root: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(root)
}

// The files of a store: records, temporary files in a directory of their own, and copies of blobs.
//
// A record has a header, then the bytes. The digest covers key and bytes, so a record under the
// name of another one is as invalid as one with a flipped bit.
//
// ```text
// 0 8 "offld\0r2"
// 8 32 digest of key and bytes
// 40 the bytes, to the end of the file
// ```

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
    /// Calls `make` with `folder` and the name of a new file, and tries other names while a file has
    /// that name. `make` must not overwrite files.
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

// Lists the entries of a store, and those of earlier releases next to it, by reading the
// directories.

/// Totals of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of blobs.
    pub blobs: u64,
    /// Number of records.
    pub records: u64,
    /// Disk space of all entries, in bytes, including those of earlier releases below the same
    /// directory.
    pub size: u64,
    /// The part of `size` that belongs to earlier releases, in bytes.
    pub earlier: u64,
}

pub(super) struct StoreEntry {
    /// The layout that it belongs to.
    pub version: &'static str,
    pub place: Place,
    pub size: u64,
    /// Time of its last use.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// Lists all blobs and records, including those of earlier releases, in no particular order. Files
/// that disappear meanwhile, and files with names that offld does not use, are omitted.
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
                        // Earlier releases name all entries by digests of 32 digits.
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

    /// The totals without `entry`.
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
