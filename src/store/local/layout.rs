//! On-disk layout below the root of a store:
//!
//! ```text
//! CACHEDIR.TAG marks the directory as a cache, which backup programs skip
//! v3/b/a0/a0f3… a blob: the file itself, named by its digest
//! v3/r/17/17c2… a record, in the format of `files.rs`
//! v3/tmp/ files that are not complete yet
//! v3/stats the counters; locked while they change
//! v3/lock locked while a process collects
//! ```

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

use super::super::{BlobName, Key};
use crate::sys::folder::Folder;
use crate::sys::threads::lock;

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

/// Mode of new directories on the path to a cache that the user named: teams share those.
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
    /// The directory [`VERSION`] in it, after it was opened.
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

    /// Opens a directory below that of a layout, which may be an earlier one.
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
