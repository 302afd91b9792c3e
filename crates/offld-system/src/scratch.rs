//! The temporary directory for intermediate files. Its owner is dropped on every way out of the
//! process, signals included, and that removes it. With `--save-temps`, the files go to the current
//! directory or that of the output instead, and stay.

use std::collections::HashMap;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};

use crate::atomic_file::Directory;
use crate::environment::{self, OFFLD_SHARED_TMP};
use crate::threads::{self, lock};

/// Variables that name the directory for temporary files. The first that is set counts, in LLVM's
/// order.
const TEMP: [&str; 4] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR"];

/// Files of at least this many bytes are removed on another thread, because the system takes long
/// to remove them.
const LARGE: u64 = 8 << 20;

/// Returns the directory for temporary files.
pub fn temp_folder() -> PathBuf {
    TEMP.iter()
        .find_map(|name| environment::get(name))
        .map_or_else(|| PathBuf::from("/tmp"), PathBuf::from)
}

/// Text for messages: the directory for temporary files, and the variable that sets it, if one
/// does.
pub(crate) fn shown_temp_folder(folder: &Path) -> String {
    let sets_it =
        |name: &&&str| environment::get(name).is_some_and(|value| Path::new(&value) == folder);
    let named = [OFFLD_SHARED_TMP]
        .iter()
        .chain(&TEMP)
        .find(sets_it)
        .map(|name| format!(" (set by {name})"))
        .unwrap_or_default();
    format!("`{}`{named}", folder.display())
}

/// Names temporary files, and owns their directory.
#[derive(Debug)]
pub struct Scratch {
    keep: bool,
    parent: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<Directory>,
    /// Names in use, each with the lowest number that may still be free for it.
    names: HashMap<String, usize>,
    removals: Vec<JoinHandle<()>>,
}

impl Scratch {
    /// Files go to a new directory below `parent`, created when the first path is requested. With
    /// `keep`, they go to `parent` itself; an empty path is the current directory.
    pub fn new(parent: PathBuf, keep: bool) -> Self {
        Scratch {
            keep,
            parent,
            state: Mutex::default(),
        }
    }

    /// A unique path for a new file `<prefix>.<ext>`. Characters of `prefix` that could lead out of
    /// the directory or confuse a tool are replaced, and a repeated name gets a number. Names
    /// depend on the order of the calls, so a stage chooses all of its names before it starts to
    /// work in parallel.
    pub fn path(&self, prefix: &str, ext: &str) -> Result<PathBuf> {
        let mut state = lock(&self.state);
        let stem = safe_name(prefix);
        let name = state.unique(&stem, ext);
        if self.keep {
            let at_start = self.parent.as_os_str().is_empty() && name.starts_with('-');
            return Ok(if at_start {
                Path::new(".").join(name)
            } else {
                self.parent.join(name)
            });
        }
        if state.folder.is_none() {
            // Device code is private to the user, whatever the umask.
            let private = Permissions::from_mode(0o700);
            let made = Directory::new_in(
                &self.parent,
                tempfile::Builder::new()
                    .prefix("offld-")
                    .permissions(private),
            );
            state.folder = Some(made.with_context(|| {
                format!(
                    "cannot create a temporary directory in {}",
                    shown_temp_folder(&self.parent)
                )
            })?);
        }
        let folder = state.folder.as_deref().unwrap_or(&self.parent);
        Ok(folder.join(name))
    }

    /// Whether the files stay (`--save-temps`).
    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// The directory, after it has been created; `None` with `--save-temps`.
    pub fn folder(&self) -> Option<PathBuf> {
        let state = lock(&self.state);
        state.folder.as_ref().map(|folder| folder.to_path_buf())
    }

    /// Removes a file that is no longer needed, to limit the peak of disk use. Does nothing with
    /// `--save-temps`, nor to files outside the temporary directory (an image that the user
    /// passed).
    pub fn discard(&self, path: &Path) {
        let mut state = lock(&self.state);
        if state
            .folder
            .as_ref()
            .is_some_and(|folder| path.starts_with(&**folder))
        {
            // Errors are ignored: remaining files are removed with the directory.
            if std::fs::metadata(path).is_ok_and(|meta| meta.len() >= LARGE) {
                let path = path.to_owned();
                state
                    .removals
                    .extend(threads::beside(move || drop(std::fs::remove_file(path))));
            } else {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl State {
    /// Returns `stem.ext`, with a number if that name is in use.
    fn unique(&mut self, stem: &str, ext: &str) -> String {
        let plain = format!("{stem}.{ext}");
        let Some(mut count) = self.names.get(&plain).copied() else {
            self.names.insert(plain.clone(), 1);
            return plain;
        };
        loop {
            let name = format!("{stem}.{count}.{ext}");
            count += 1;
            if !self.names.contains_key(&name) {
                self.names.insert(plain, count);
                self.names.insert(name.clone(), 1);
                return name;
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The fields, and with them the directory, are dropped after this.
        for removal in state.removals.drain(..) {
            let _ = removal.join();
        }
    }
}

/// `text` with every character except letters, digits and `._+:@=-` replaced by `_`, and no longer
/// than file systems allow.
pub fn safe_name(text: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+:@=-".contains(c);
    let name: String = text
        .chars()
        .map(|c| if allowed(c) { c } else { '_' })
        .take(180)
        .collect();
    if name.is_empty() || name.chars().all(|c| c == '.') {
        "x".to_owned()
    } else {
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_closed_to_other_users() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path().to_owned(), false);
        let file = scratch.path("image", "o").unwrap();
        let mode = std::fs::metadata(file.parent().unwrap())
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn f30_names_cannot_leave_the_folder() {
        let scratch = Scratch::new(std::env::temp_dir(), false);
        let path = scratch
            .path("e5-x86_64-unknown-linux-gnu-../../evil", "o")
            .unwrap();
        assert_eq!(
            path.file_name().unwrap(),
            "e5-x86_64-unknown-linux-gnu-.._.._evil.o"
        );
    }

    #[test]
    fn f22_names_are_distinct() {
        let scratch = Scratch::new(PathBuf::new(), true);
        assert_eq!(scratch.path("same", "o").unwrap(), Path::new("same.o"));
        assert_eq!(scratch.path("same", "o").unwrap(), Path::new("same.1.o"));
        assert_eq!(
            Scratch::new("of/output".into(), true)
                .path("same", "o")
                .unwrap(),
            Path::new("of/output/same.o")
        );
    }

    #[test]
    fn discards_only_its_own_files() {
        let (scratch, theirs) = (
            Scratch::new(std::env::temp_dir(), false),
            tempfile::NamedTempFile::new().unwrap(),
        );
        let ours = scratch.path("a", "o").unwrap();
        std::fs::write(&ours, "x").unwrap();
        scratch.discard(&ours);
        scratch.discard(theirs.path());
        assert!(!ours.exists() && theirs.path().exists());
    }

    #[test]
    fn f8_the_folder_goes_with_its_owner() {
        let scratch = Scratch::new(std::env::temp_dir(), false);
        let path = scratch.path("a", "o").unwrap();
        std::fs::write(&path, "x").unwrap();
        drop(scratch);
        assert!(!path.parent().unwrap().exists());
    }
}
