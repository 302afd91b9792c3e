//! What a tool is: the contents of its executable and of every library it loads. The contents, because a package may put another build
//! in the same place, and because machines that share a cache have the same tools at other times. They are read once and remembered
//! with the files' stamps.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use object::Object;

use super::stamp::Seen;
use crate::bytes::Bytes;
use crate::cache::{Cache, Digest, Parts};
use crate::run;
use crate::session::{self, Session};

/// A tool as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tool {
    /// Stands for all of its contents.
    pub(super) digest: Digest,
    files: Vec<Seen>,
}

impl Tool {
    /// The tool at `path`, which must be an executable by itself and no script, or why it cannot be told.
    pub(super) fn of(path: &Path, cache: &Cache) -> Result<Tool, String> {
        let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        let key = key(&real);
        let known = cache.own_record(key).and_then(|bytes| serde_json::from_slice::<Vec<Seen>>(&bytes).ok());
        if let Some(mut files) = known
            && !files.is_empty()
        {
            let checked: Vec<Result<bool, String>> = files.iter_mut().map(Seen::holds).collect();
            if checked.iter().all(Result::is_ok) {
                if checked.contains(&Ok(true)) {
                    remember(cache, key, &files);
                }
                return Ok(Tool { digest: digest(&files), files });
            }
        }
        let files = look(&real)?;
        remember(cache, key, &files);
        Ok(Tool { digest: digest(&files), files })
    }

    /// An error when the tool is not any more what it was.
    pub(super) fn still(&self) -> Result<(), String> {
        self.files.clone().iter_mut().try_for_each(|file| file.holds().map(drop))
    }
}

fn remember(cache: &Cache, key: Digest, files: &[Seen]) {
    if let Ok(text) = serde_json::to_vec(files) {
        cache.put_own_record(key, &text);
    }
}

/// What decides on the libraries that are loaded.
fn key(real: &Path) -> Digest {
    let mut parts = Parts::default();
    parts.add("tool 1").add(real.as_os_str().as_encoded_bytes());
    for name in [session::LD_LIBRARY_PATH, session::LD_PRELOAD] {
        parts.add(Session::env(name).unwrap_or_default().as_encoded_bytes());
    }
    parts.digest()
}

fn digest(files: &[Seen]) -> Digest {
    let mut parts = Parts::default();
    files.iter().for_each(|file| {
        parts.add(&file.digest);
    });
    parts.digest()
}

/// The executable, its libraries, and what the dynamic loader finds them by.
fn look(real: &Path) -> Result<Vec<Seen>, String> {
    let begun = SystemTime::now();
    let name = real.to_str().ok_or_else(|| format!("{} is not in UTF-8", real.display()))?;
    let bytes = Bytes::open(real).map_err(|error| format!("{name}: {error}"))?;
    let elf = object::File::parse(bytes.as_slice()).map_err(|_| format!("{name} is a script: what it runs is not known"))?;
    let mut paths = vec![name.to_owned()];
    if elf.section_by_name(".interp").is_some() {
        paths.extend(libraries(real)?);
        paths.extend(["/etc/ld.so.cache", "/etc/ld.so.preload"].map(str::to_owned).into_iter().filter(|p| Path::new(p).exists()));
    }
    paths.iter().map(|path| Seen::now(path, begun)).collect()
}

/// The libraries that the dynamic loader takes, told by itself, as `ldd` has them: it runs nothing of the program.
fn libraries(real: &Path) -> Result<Vec<String>, String> {
    let answer =
        run::ask(real, &[], &[("LD_TRACE_LOADED_OBJECTS", "1")]).map_err(|error| format!("{}: {error}", real.display()))?;
    let text = String::from_utf8_lossy(&answer.stdout).into_owned();
    if !answer.success || text.contains("not found") {
        return Err(format!("{}: its libraries cannot be told", real.display()));
    }
    // `\tlibLLVM.so.22.1 => /usr/lib/… (0x…)`, `\t/lib64/ld-linux-x86-64.so.2 (0x…)`, and the kernel's own, which has no file.
    let paths = text.lines().filter_map(|line| {
        let (line, _) = line.trim().rsplit_once(" (0x")?;
        let path = line.rsplit_once(" => ").map_or(line, |(_, path)| path);
        path.starts_with('/').then(|| path.to_owned())
    });
    Ok(paths.collect())
}

/// Whether the compiler at `path` is one that answers `-###`: a program of its own of that name. A script may do anything, and what
/// stands in for a compiler (`ccache`) is not the compiler.
pub(super) fn is_clang(path: &Path) -> bool {
    let real: PathBuf = path.canonicalize().unwrap_or_default();
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    ["clang", "clang++", "amdclang", "amdclang++", "icx", "icpx"].contains(&stem)
}
