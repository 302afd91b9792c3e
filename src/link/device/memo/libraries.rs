//! The libraries that a program loads: every file that the dynamic loader could take for one of them. Running the loader itself would
//! tell which it takes, but that takes longer than all the rest of a link that is found.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use object::read::elf::{Dyn, FileHeader};
use object::{Endianness, elf};

use crate::io::bytes::Bytes;
use crate::sys::session::{self, Session};

/// The loader's own list of libraries.
pub(super) const CACHE: &str = "/etc/ld.so.cache";
/// Where it looks without being told.
const FOLDERS: [&str; 6] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib", "/usr/local/lib64"];
/// Below each folder of a line, for processors that can do more.
const FOR_PROCESSORS: [&str; 4] = ["", "glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"];

/// What an executable or a library asks the loader for.
#[derive(Default)]
struct Wants {
    names: Vec<String>,
    folders: Vec<PathBuf>,
}

/// The files for the program at `real`, and for its libraries in turn; or the one library that is nowhere to be found.
pub(super) fn of(real: &Path) -> Result<Vec<String>, String> {
    let known = std::fs::read(CACHE).unwrap_or_default();
    let program = wants(real)?;
    let mut folders = program.folders.clone();
    let told = Session::env(session::LD_LIBRARY_PATH).unwrap_or_default();
    folders.extend(std::env::split_paths(&told).filter(|folder| !folder.as_os_str().is_empty()));
    folders.extend(FOLDERS.map(PathBuf::from));
    let mut found = BTreeSet::new();
    let mut asked = BTreeSet::new();
    let mut open: Vec<(String, Vec<PathBuf>)> = program.names.into_iter().map(|name| (name, Vec::new())).collect();
    while let Some((name, own)) = open.pop() {
        if !asked.insert(name.clone()) {
            continue;
        }
        let files = candidates(&name, own.iter().chain(&folders), &known);
        if files.is_empty() {
            return Err(format!("{}: its library {name} is not found", real.display()));
        }
        for file in files {
            let path = file.to_str().ok_or_else(|| format!("{} is not in UTF-8", file.display()))?.to_owned();
            if found.insert(path) {
                let more = wants(&file)?;
                open.extend(more.names.into_iter().map(|name| (name, more.folders.clone())));
            }
        }
    }
    Ok(found.into_iter().collect())
}

fn candidates<'f>(name: &str, folders: impl Iterator<Item = &'f PathBuf>, known: &[u8]) -> BTreeSet<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name)).into_iter().filter(|path| path.is_file()).collect();
    }
    let mut files: BTreeSet<PathBuf> =
        folders.flat_map(|folder| FOR_PROCESSORS.iter().map(move |part| folder.join(part).join(name))).collect();
    // The list's paths are strings with a zero at their ends; what stands between them does not matter here.
    let ending = [b"/", name.as_bytes(), b"\0"].concat();
    for at in memchr::memmem::find_iter(known, &ending) {
        let start = known[..at].iter().rposition(|byte| *byte == 0).map_or(0, |zero| zero + 1);
        if let Ok(path) = std::str::from_utf8(&known[start..at + ending.len() - 1]) {
            files.insert(path.into());
        }
    }
    files.retain(|path| path.is_file());
    files
}

/// What the ELF file at `path` asks for; nothing of other files.
fn wants(path: &Path) -> Result<Wants, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let bytes = Bytes::open(path).map_err(|error| wrong(&error))?;
    let data = bytes.as_slice();
    let read = match object::FileKind::parse(data) {
        Ok(object::FileKind::Elf64) => dynamic::<elf::FileHeader64<Endianness>>(data, path),
        Ok(object::FileKind::Elf32) => dynamic::<elf::FileHeader32<Endianness>>(data, path),
        _ => return Ok(Wants::default()),
    };
    read.map_err(|error| wrong(&error))
}

fn dynamic<Elf: FileHeader<Endian = Endianness>>(data: &[u8], path: &Path) -> object::read::Result<Wants> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    let mut wants = Wants::default();
    let Some((entries, strings)) = sections.dynamic(endian, data)? else { return Ok(wants) };
    let strings = sections.strings(endian, data, strings)?;
    for entry in entries {
        let text = || entry.string(endian, strings).map(|text| String::from_utf8_lossy(text).into_owned());
        match entry.tag(endian) {
            elf::DT_NEEDED => wants.names.push(text()?),
            elf::DT_RPATH | elf::DT_RUNPATH => {
                let origin = path.parent().unwrap_or(Path::new("/")).to_string_lossy().into_owned();
                let folders = text()?.replace("${ORIGIN}", &origin).replace("$ORIGIN", &origin);
                wants.folders.extend(folders.split(':').filter(|folder| !folder.is_empty()).map(PathBuf::from));
            }
            _ => {}
        }
    }
    Ok(wants)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_loader_takes_is_among_them() {
        let own = std::env::current_exe().unwrap();
        let files = of(&own).unwrap();
        let loaded = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libraries = loaded.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
        for library in libraries.filter(|path| path.contains(".so")) {
            let real = Path::new(library).canonicalize().unwrap();
            assert!(files.iter().any(|file| Path::new(file).canonicalize().unwrap() == real), "{library} is not in {files:?}");
        }
    }

    #[test]
    fn what_is_no_program_asks_for_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("text");
        std::fs::write(&file, "text").unwrap();
        assert!(of(&file).unwrap().is_empty());
        assert!(of(&dir.path().join("none")).is_err());
    }
}
