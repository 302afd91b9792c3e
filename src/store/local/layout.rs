//! On-disk layout below the root of a store:
//!
//! ```text
//! CACHEDIR.TAG      marks the folder as a cache, which backup programs skip
//! v2/b/a0/a0f3…     a blob: the file itself, named by its digest
//! v2/r/17/17c2…     a record, in the format of `record.rs`
//! v2/tmp/           files that are not complete yet
//! v2/stats          the counters; locked while they change
//! v2/lock           locked while a process collects
//! ```

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Digest;

/// The contents of a cache directory tag: <https://bford.info/cachedir/>.
const TAG: &str = "Signature: 8a477f597d28d172789f06886806bc55\n\
    # This folder is a cache of offld's (docs/cache.md). It may be removed at any time.\n";

/// The paths of a store.
pub(super) struct Layout {
    /// The folder that the user named, as an absolute path.
    pub root: PathBuf,
    /// The folder of everything but the tag. An incompatible layout gets another number.
    version: PathBuf,
}

impl Layout {
    pub(super) fn new(root: PathBuf) -> Layout {
        let version = root.join("v2");
        Layout { root, version }
    }

    /// The folders of the layouts that earlier releases use, where they exist. Releases with different layouts do not read each other's.
    pub(super) fn earlier(&self) -> Vec<PathBuf> {
        [self.root.join("v1")].into_iter().filter(|folder| folder.is_dir()).collect()
    }

    pub(super) fn blob(&self, name: Digest) -> PathBuf {
        fanned(&self.blobs(), name)
    }

    pub(super) fn record(&self, key: Digest) -> PathBuf {
        fanned(&self.records(), key)
    }

    pub(super) fn blobs(&self) -> PathBuf {
        self.version.join("b")
    }

    pub(super) fn records(&self) -> PathBuf {
        self.version.join("r")
    }

    pub(super) fn tmp(&self) -> PathBuf {
        self.version.join("tmp")
    }

    pub(super) fn stats(&self) -> PathBuf {
        self.version.join("stats")
    }

    pub(super) fn lock(&self) -> PathBuf {
        self.version.join("lock")
    }

    /// Makes the folders that everything else is made in, and the tag.
    pub(super) fn make(&self) -> Result<()> {
        make_folder(&self.tmp())?;
        let tag = self.root.join("CACHEDIR.TAG");
        if !tag.exists() {
            fs::write(&tag, TAG).with_context(|| format!("cannot write `{}`", tag.display()))?;
        }
        Ok(())
    }
}

/// The first two of 32 digits name a folder, because file systems are slow where a folder has very many files.
fn fanned(folder: &Path, name: Digest) -> PathBuf {
    let name = name.to_string();
    let start: String = name.chars().take(2).collect();
    folder.join(start).join(name)
}

/// Makes a folder and those above it. Whatever the umask is, others cannot write to it: what is in a cache becomes part of programs.
pub(super) fn make_folder(folder: &Path) -> Result<()> {
    let made: io::Result<()> = DirBuilder::new().recursive(true).mode(0o775).create(folder);
    made.with_context(|| format!("cannot make the folder `{}`", folder.display()))
}
