//! The temporary folder for intermediate files. It is removed on every way out of the process, signals included, because its owner
//! is dropped on each; with `--save-temps`, the files go to the current folder instead and are kept.

use std::collections::HashSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::sys::session::shown_temp_folder;
use crate::sys::threads;

/// Files of at least this many bytes are removed on another thread, because the system takes long to remove them.
const LARGE: u64 = 8 << 20;

/// Names temporary files and owns the folder they are in.
#[derive(Debug)]
pub struct Scratch {
    keep: bool,
    parent: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<TempDir>,
    names: HashSet<String>,
    /// Threads that are removing large files.
    removals: Vec<JoinHandle<()>>,
}

impl Scratch {
    /// Files in a new folder below `parent`, created when the first path is requested; with `keep`, in the current folder.
    pub fn new(parent: PathBuf, keep: bool) -> Self {
        Scratch { keep, parent, state: Mutex::default() }
    }

    /// A unique path for a new file `<prefix>.<ext>`. Characters of `prefix` that could lead out of the folder or confuse a tool
    /// are replaced, and a repeated name gets a number. Names depend on the order of the calls, so a stage chooses all of its names
    /// before it starts to work in parallel.
    pub fn path(&self, prefix: &str, ext: &str) -> Result<PathBuf> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let stem = safe_name(prefix);
        let mut name = format!("{stem}.{ext}");
        let mut count = 1;
        while !state.names.insert(name.clone()) {
            name = format!("{stem}.{count}.{ext}");
            count += 1;
        }
        if self.keep {
            return Ok(if name.starts_with('-') { Path::new(".").join(name) } else { name.into() });
        }
        if state.folder.is_none() {
            // Device code is nobody else's business, whatever the umask.
            let private = Permissions::from_mode(0o700);
            let made = tempfile::Builder::new().prefix("offld-").permissions(private).tempdir_in(&self.parent);
            state.folder =
                Some(made.with_context(|| format!("cannot make a temporary folder in {}", shown_temp_folder(&self.parent)))?);
        }
        let folder = state.folder.as_ref().map(TempDir::path).unwrap_or(&self.parent);
        Ok(folder.join(name))
    }

    /// Whether the files are kept (`--save-temps`).
    pub fn keeps(&self) -> bool {
        self.keep
    }

    /// The folder, once it has been created; none with `--save-temps`.
    pub fn folder(&self) -> Option<PathBuf> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.folder.as_ref().map(|folder| folder.path().to_path_buf())
    }

    /// Removes a file that is not needed any more, to keep the peak of disk use low. Does nothing with `--save-temps`, nor to files
    /// outside the temporary folder (an image that the user gave).
    pub fn discard(&self, path: &Path) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.folder.as_ref().is_some_and(|folder| path.starts_with(folder.path())) {
            // Errors are ignored: what remains is removed with the folder.
            if std::fs::metadata(path).is_ok_and(|meta| meta.len() >= LARGE) {
                let path = path.to_owned();
                state.removals.extend(threads::beside(move || drop(std::fs::remove_file(path))));
            } else {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        // The fields, and with them the folder, are dropped after this.
        for removal in state.removals.drain(..) {
            let _ = removal.join();
        }
    }
}

/// `text` with everything but letters, digits and `._+:@=-` replaced by `_`, and no longer than file systems allow.
pub(crate) fn safe_name(text: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "._+:@=-".contains(c);
    let name: String = text.chars().map(|c| if keep(c) { c } else { '_' }).take(180).collect();
    if name.is_empty() || name.chars().all(|c| c == '.') { "x".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_closed_to_other_users() {
        let parent = tempfile::tempdir().unwrap();
        let scratch = Scratch::new(parent.path().to_owned(), false);
        let file = scratch.path("image", "o").unwrap();
        let mode = std::fs::metadata(file.parent().unwrap()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[test]
    fn f30_names_cannot_leave_the_folder() {
        let scratch = Scratch::new(std::env::temp_dir(), false);
        let path = scratch.path("e5-x86_64-unknown-linux-gnu-../../evil", "o").unwrap();
        assert_eq!(path.file_name().unwrap(), "e5-x86_64-unknown-linux-gnu-.._.._evil.o");
    }

    #[test]
    fn f22_names_are_distinct() {
        let scratch = Scratch::new(std::env::temp_dir(), true);
        assert_eq!(scratch.path("same", "o").unwrap(), Path::new("same.o"));
        assert_eq!(scratch.path("same", "o").unwrap(), Path::new("same.1.o"));
    }

    #[test]
    fn only_files_of_ours_are_discarded() {
        let (scratch, theirs) = (Scratch::new(std::env::temp_dir(), false), tempfile::NamedTempFile::new().unwrap());
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
