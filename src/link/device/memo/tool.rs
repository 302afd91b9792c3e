//! What a tool is: its executable and every library it loads, each by its place, size, time and build id, so that the same packages on
//! another machine are the same tool. Whoever puts another build in the same place without changing any of those changes the system's
//! stamp of the file all the same: from then on the contents count, too.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use object::Object;
use serde::{Deserialize, Serialize};

use super::libraries;
use super::stamp::{self, Stamp};
use crate::formats::dynamic;
use crate::formats::magic::ELF;
use crate::io::bytes::Bytes;
use crate::io::loader;
use crate::store::{Cache, Digest, KeyBuilder};
use crate::sys::session::{self, Session};

/// A tool as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    /// Stands for all of it.
    pub digest: Digest,
    files: Vec<Part>,
}

/// One of a tool's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Part {
    path: String,
    stamp: Stamp,
    /// Its build id, or the digest of its contents where it has none.
    build: String,
    /// The digest of its contents, once its stamp has changed without anything else.
    contents: Option<String>,
}

impl Tool {
    /// The tool at `path`, which must be an executable by itself and no script, or why it cannot be told.
    pub(crate) fn of(path: &Path, cache: &Arc<Cache>) -> Result<Tool, String> {
        let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        let now = cache.clock().now();
        let files = match known(&real, cache).and_then(|files| checked(files, now)) {
            Some((files, false)) => return Ok(Tool::new(files)),
            Some((files, true)) => files,
            None => look(&real, now)?,
        };
        if let Ok(text) = serde_json::to_vec(&files) {
            let (own, key) = (Arc::clone(cache), key(&real));
            cache.later(move || own.put_own_record(key, &text));
        }
        Ok(Tool::new(files))
    }

    /// The same, if it was asked for before and nothing has changed since: without running or reading anything.
    pub(super) fn remembered(path: &Path, cache: &Cache) -> Option<Tool> {
        let files = known(&path.canonicalize().ok()?, cache)?;
        files.iter().all(Part::is_untouched).then(|| Tool::new(files))
    }

    /// An error unless the tool is still what it was, and was that already at the moment `since`: it may have been started before it was
    /// looked at.
    pub(super) fn still(&self, since: SystemTime) -> Result<(), String> {
        match self.files.iter().find(|part| !part.is_untouched() || !part.stamp.at_rest(since)) {
            Some(part) => Err(format!("{} has changed meanwhile", part.path)),
            None => Ok(()),
        }
    }

    fn new(files: Vec<Part>) -> Tool {
        let mut parts = KeyBuilder::default();
        for file in &files {
            let contents = file.contents.as_deref().unwrap_or_default();
            parts.add(&file.path).add(file.stamp.size().to_le_bytes()).add(file.stamp.modified()).add(&file.build).add(contents);
        }
        Tool { digest: parts.digest(), files }
    }
}

impl Part {
    fn is_untouched(&self) -> bool {
        Stamp::of(Path::new(&self.path)).is_ok_and(|stamp| stamp == self.stamp)
    }
}

fn known(real: &Path, cache: &Cache) -> Option<Vec<Part>> {
    let bytes = cache.own_record(key(real))?;
    serde_json::from_slice::<Vec<Part>>(&bytes).ok().filter(|files| !files.is_empty())
}

/// What is known, with what has changed only by its stamp looked into; none when a file is another one. `now`: a moment before that. `true`: it is
/// to be remembered.
fn checked(mut files: Vec<Part>, now: SystemTime) -> Option<(Vec<Part>, bool)> {
    let mut renewed = false;
    for part in &mut files {
        let stamp = Stamp::of(Path::new(&part.path)).ok()?;
        if stamp == part.stamp {
            continue;
        }
        let same = stamp.size() == part.stamp.size() && stamp.modified() == part.stamp.modified();
        if !same || !stamp.at_rest(now) || build(&part.path).ok()? != part.build {
            return None;
        }
        if !stamp.is_elsewhere(&part.stamp) {
            part.contents = Some(stamp::digest(Path::new(&part.path)).ok()?.to_string());
        }
        part.stamp = stamp;
        renewed = true;
    }
    Some((files, renewed))
}

/// What decides on the libraries that are loaded.
fn key(real: &Path) -> Digest {
    let mut parts = KeyBuilder::default();
    parts.add("tool 1").add(real.as_os_str().as_encoded_bytes());
    for name in [session::LD_LIBRARY_PATH, session::LD_PRELOAD] {
        parts.add(Session::env(name).unwrap_or_default().as_encoded_bytes());
    }
    parts.digest()
}

/// The executable, its libraries, and what the dynamic loader finds them by. `begun`: a moment before they are looked at.
fn look(real: &Path, begun: SystemTime) -> Result<Vec<Part>, String> {
    let name = real.to_str().ok_or_else(|| format!("{} is not in UTF-8", real.display()))?;
    let bytes = Bytes::open(real).map_err(|error| format!("{name}: {error}"))?;
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|_| format!("{name} is a script: what it runs is not known"))?;
    let mut paths = vec![name.to_owned()];
    if dynamic.interpreter.is_some() {
        paths.extend(libraries::of(real)?);
        let loaders = [loader::CACHE, "/etc/ld.so.preload"].into_iter().filter(|path| Path::new(path).exists());
        paths.extend(loaders.map(str::to_owned));
    }
    paths
        .into_iter()
        .map(|path| {
            let wrong = |error: std::io::Error| format!("{path}: {error}");
            let stamp = Stamp::of(Path::new(&path)).map_err(wrong)?;
            if !stamp.at_rest(begun) {
                return Err(format!("{path} has only just been written"));
            }
            let build = build(&path).map_err(wrong)?;
            Ok(Part { stamp, build, contents: None, path })
        })
        .collect()
}

fn build(path: &str) -> std::io::Result<String> {
    let bytes = Bytes::open(Path::new(path))?;
    let id = object::File::parse(bytes.as_slice()).ok().and_then(|elf| elf.build_id().ok().flatten().map(<[u8]>::to_vec));
    match id {
        Some(id) => Ok(id.iter().map(|byte| format!("{byte:02x}")).collect()),
        None => Ok(stamp::digest(Path::new(path))?.to_string()),
    }
}

/// An error unless the compiler at `path` is one that answers `-###`: a program of its own, of that name. A script may do anything, and
/// what stands in for a compiler (`ccache`) is not the compiler.
pub(super) fn check_clang(path: &Path) -> Result<(), String> {
    let real: PathBuf = path.canonicalize().unwrap_or_default();
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if !["clang", "clang++", "amdclang", "amdclang++", "icx", "icpx"].contains(&stem) {
        return Err(format!("{} is not clang itself: what it does is not known", path.display()));
    }
    let mut magic = [0; 4];
    match File::open(&real).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == ELF => Ok(()),
        _ => Err(format!("{} is a script: what it runs is not known", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::formats::reference;
    use crate::store::Store;
    use crate::sys::clock::{Clock, TestClock};

    #[test]
    fn a_tool_that_is_replaced_in_place_is_another() {
        let Some([real]) = reference::tools(["true"]) else { return };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(&dir.path().join("cache"), 1 << 30, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let cache = Arc::new(Cache::new(store));
        let tool = dir.path().join("tool");
        let bytes = std::fs::read(&real).unwrap();
        let write = |bytes: &[u8]| {
            stamp::write_anew(&tool, bytes);
            std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::File::open(&tool).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(&bytes);
        assert!(Tool::of(&tool, &cache).unwrap_err().contains("only just"));
        // From here on everything was written an hour ago.
        clock.pass(Duration::from_secs(3600));
        cache.finish();
        assert_eq!(Tool::remembered(&tool, &cache), None);
        let first = Tool::of(&tool, &cache).unwrap();
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap(), first);
        assert_eq!(Tool::remembered(&tool, &cache).unwrap(), first);
        assert_eq!(first.still(clock.now()), Ok(()));
        assert!(first.still(clock.now() - Duration::from_secs(2 * 3600)).unwrap_err().contains("has changed meanwhile"));
        // The same size, time and build id, and another byte at the end: only the system's stamp tells.
        let mut other = bytes.clone();
        *other.last_mut().unwrap() ^= 1;
        write(&other);
        cache.finish();
        assert!(first.still(clock.now()).is_err());
        assert_eq!(Tool::remembered(&tool, &cache), None);
        let second = Tool::of(&tool, &cache).unwrap();
        assert_ne!(second.digest, first.digest);
        write(&bytes);
        cache.finish();
        let third = Tool::of(&tool, &cache).unwrap();
        assert!(third.digest != second.digest && third.digest != first.digest);
        // Written anew as it was: from here on the contents tell.
        write(&bytes);
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap().digest, third.digest);
    }

    #[test]
    fn scripts_are_not_known() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(Store::open(&dir.path().join("cache"), 1 << 30).unwrap()));
        let script = dir.path().join("clang");
        std::fs::write(&script, "#!/bin/sh\nexec /usr/bin/clang\n").unwrap();
        assert!(Tool::of(&script, &cache).unwrap_err().contains("is a script"));
        assert!(check_clang(&script).unwrap_err().contains("is a script"));
        assert!(check_clang(Path::new("/bin/sh")).unwrap_err().contains("is not clang itself"));
    }
}
