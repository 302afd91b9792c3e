//! Writes the tar atomically. The same contents give the same bytes: entries are sorted, without
//! times and owners. Hard links remain hard links, because linkers and offld use an archive only
//! once if it is named twice. Files are below `root/` with their absolute paths, so that names do
//! not collide and directories stay together.

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsStr;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, bail};
use tar::{Builder, EntryType, Header};
use xxhash_rust::xxh3::Xxh3;

use crate::args::settings::Destination;
use offld_system::atomic_file::AtomicFile;
use offld_system::io::bytes::Bytes;
use offload_formats::elf::interface;

/// The content of an entry.
pub(super) enum Content {
    File(PathBuf),
    /// The parts of a shared library that a linker reads.
    Interface(PathBuf),
    Text(Vec<u8>),
    /// An executable script.
    Script(Vec<u8>),
}

/// Writes the tar of `entries`. In a directory, the name of the tar consists of `name` and a hash
/// of its contents, so that different links have different files.
pub(super) fn write(
    entries: &BTreeMap<PathBuf, Content>,
    destination: &Destination,
    name: &OsStr,
) -> Result<()> {
    match destination {
        Destination::File(file) if file.exists() && !file.is_file() => {
            bail!("`{}` is not a regular file", file.display())
        }
        Destination::File(path) => {
            let context = || format!("cannot write `{}`", path.display());
            let (mut file, pending) = AtomicFile::create(path).with_context(context)?;
            fill(
                &mut file,
                entries,
                path.file_stem().unwrap_or_default().as_ref(),
            )?;
            pending.commit().with_context(context)
        }
        Destination::Directory(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the directory `{}`", folder.display()))?;
            let context = || format!("cannot write a file in `{}`", folder.display());
            let (mut file, pending) = AtomicFile::create_in(folder).with_context(context)?;
            // The tar's directory has a name that depends on its contents, so the contents are
            // hashed first.
            let hash = fill(&mut io::sink(), entries, Path::new(""))?;
            let name = format!("{}-{hash:016x}", name.display());
            fill(&mut file, entries, name.as_ref())?;
            pending
                .commit_as(&folder.join(name + ".tar"))
                .with_context(context)
        }
    }
}

/// Writes all entries below the directory `top`, so that unpacking creates only one entry. Returns
/// the hash of the tar.
fn fill(file: &mut dyn Write, entries: &BTreeMap<PathBuf, Content>, top: &Path) -> Result<u64> {
    let hashed = Hashed {
        file: BufWriter::new(file),
        hash: Xxh3::new(),
    };
    let mut writer = Writer {
        tar: Builder::new(hashed),
        seen: HashMap::new(),
    };
    for (place, content) in entries {
        writer
            .entry(&top.join(place), content)
            .with_context(|| format!("cannot add `{}`", place.display()))?;
    }
    let mut hashed = writer.tar.into_inner()?;
    hashed.flush()?;
    Ok(hashed.hash.digest())
}

struct Writer<W: Write> {
    tar: Builder<W>,
    /// The entries of files that have been written, by device and inode.
    seen: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Writer<W> {
    fn entry(&mut self, place: &Path, content: &Content) -> Result<()> {
        match content {
            Content::File(path) => return self.file(place, path),
            Content::Interface(path) => {
                let bytes = Bytes::open(path)?;
                let interface = interface::interface(bytes.as_slice());
                self.bytes(
                    place,
                    0o644,
                    interface.as_deref().unwrap_or(bytes.as_slice()),
                )?;
            }
            Content::Text(text) => self.bytes(place, 0o644, text)?,
            Content::Script(text) => self.bytes(place, 0o755, text)?,
        }
        Ok(())
    }

    fn file(&mut self, place: &Path, path: &Path) -> Result<()> {
        let meta = std::fs::metadata(path)?;
        if let Some(first) = self.seen.get(&(meta.dev(), meta.ino())) {
            let mut header = header(0o644, 0);
            header.set_entry_type(EntryType::Link);
            self.tar.append_link(&mut header, place, first)?;
            return Ok(());
        }
        self.seen
            .insert((meta.dev(), meta.ino()), place.to_path_buf());
        // Only the executable bit is recorded, because the rest of the mode depends on the user's
        // umask.
        let mode = if meta.mode() & 0o111 == 0 {
            0o644
        } else {
            0o755
        };
        self.bytes(place, mode, Bytes::open(path)?.as_slice())?;
        Ok(())
    }

    fn bytes(&mut self, place: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.tar
            .append_data(&mut header(mode, bytes.len() as u64), place, bytes)
    }
}

/// A header without times and owners.
fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A writer that hashes its output.
struct Hashed<W> {
    file: W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// The directory of all files.
pub(super) const ROOT: &str = "root";

/// Maps paths of the command line to paths in the reproduction.
pub(super) struct Root {
    current: PathBuf,
}

impl Root {
    /// Creates a map for a command line with paths relative to the current directory.
    pub(super) fn here() -> Result<Root> {
        Ok(Root {
            current: std::env::current_dir().context("cannot determine the current directory")?,
        })
    }

    /// The directory that relative paths of the command line refer to.
    pub(super) fn current(&self) -> &Path {
        &self.current
    }

    /// Returns the path of `path` in the reproduction, relative to the reproduction's directory.
    pub(super) fn place(&self, path: &Path) -> PathBuf {
        let absolute = self.absolute(path);
        Path::new(ROOT).join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }

    /// Returns `path` as an absolute path without `.` and `..`. A symlink is resolved only if `..`
    /// follows, because that means the parent of its target.
    fn absolute(&self, path: &Path) -> PathBuf {
        let mut done = PathBuf::new();
        for part in self.current.join(path).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    if done.is_symlink() {
                        done = done.canonicalize().unwrap_or(done);
                    }
                    done.pop();
                }
                part => done.push(part),
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_place_is_the_absolute_path_without_dots() {
        let root = Root {
            current: "/nowhere/here".into(),
        };
        assert_eq!(
            root.place(Path::new("./a.o")),
            Path::new("root/nowhere/here/a.o")
        );
        assert_eq!(
            root.place(Path::new("../b/./c.o")),
            Path::new("root/nowhere/b/c.o")
        );
        assert_eq!(root.place(Path::new("/../x")), Path::new("root/x"));
    }

    #[test]
    fn the_parent_of_a_symlink_is_that_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink(dir.join("a/b"), dir.join("link")).unwrap();
        let root = Root {
            current: dir.clone(),
        };
        let below = |path: &str| {
            Path::new(ROOT)
                .join(dir.strip_prefix("/").unwrap())
                .join(path)
        };
        assert_eq!(root.place(Path::new("link/../x")), below("a/x"));
        assert_eq!(root.place(Path::new("link/x")), below("link/x"));
    }
}
