//! The path of a file in a reproduction: its absolute path below `root/`, so that names do not collide and folders stay together.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

/// The folder below which all files are.
pub(super) const ROOT: &str = "root";

/// Maps paths of the command line to paths in the reproduction.
pub(super) struct Root {
    current: PathBuf,
}

impl Root {
    /// For a command line with paths relative to the current folder.
    pub(super) fn here() -> Result<Root> {
        Ok(Root { current: std::env::current_dir().context("cannot tell the current folder")? })
    }

    /// The folder that paths of the command line are relative to.
    pub(super) fn current(&self) -> &Path {
        &self.current
    }

    /// The path of `path` in the reproduction, relative to its folder.
    pub(super) fn place(&self, path: &Path) -> PathBuf {
        let absolute = self.absolute(path);
        Path::new(ROOT).join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }

    /// `path` as an absolute path without `.` and `..`. Symlinks are resolved only if a `..` follows, since the parent of their
    /// target is meant then.
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
        let root = Root { current: "/nowhere/here".into() };
        assert_eq!(root.place(Path::new("./a.o")), Path::new("root/nowhere/here/a.o"));
        assert_eq!(root.place(Path::new("../b/./c.o")), Path::new("root/nowhere/b/c.o"));
        assert_eq!(root.place(Path::new("/../x")), Path::new("root/x"));
    }

    #[test]
    fn the_folder_above_a_symlink_is_that_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink(dir.join("a/b"), dir.join("link")).unwrap();
        let root = Root { current: dir.clone() };
        let below = |path: &str| Path::new(ROOT).join(dir.strip_prefix("/").unwrap()).join(path);
        assert_eq!(root.place(Path::new("link/../x")), below("a/x"));
        assert_eq!(root.place(Path::new("link/x")), below("link/x"));
    }
}
