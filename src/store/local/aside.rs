//! Temporary files of a store: in a directory of their own, under unique names.

use std::ffi::OsStr;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::sys::folder::Folder;

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
