//! Paths of files in a reproduction: their absolute paths below `root/`, so that names do not
//! collide and directories stay together.

use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

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
