//! Search for the library from which a program gets a function, in the way of its dynamic loader.
//! Libraries are searched breadth first, which is the loader's order of symbol lookup.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use super::report::Library;
use crate::error::Malformed;
use crate::formats::dynamic::{self, Dynamic};
use crate::io::bytes::Bytes;
use crate::io::loader::{Loader, RunPaths};

/// Limit of the search; no real program needs as many libraries.
const MOST: usize = 1000;

/// A library that is still to be searched.
struct Needed {
    name: OsString,
    /// The chain of libraries through which the program needs it. The program itself names the
    /// first.
    through: Vec<String>,
    /// The run paths of the file that needs it.
    run_paths: Rc<RunPaths>,
}

/// The library from which the program `data` in `file` gets `symbol`: the first needed one that
/// defines it. If there is none, returns the needed libraries that were not found and whose names
/// start with one of `names`. Fails if the program's own dynamic section is damaged.
pub(super) fn that_define(
    data: &[u8],
    file: &Path,
    symbol: &str,
    names: &[&str],
) -> Result<Vec<Library>, Malformed> {
    let program = dynamic::read(data)?;
    let loader = Loader::new();
    let real = fs::canonicalize(file).unwrap_or_else(|_| file.to_owned());
    let mut queue: VecDeque<Needed> = needed(&program, &real, None, &[]).collect();
    let mut seen = BTreeSet::new();
    let mut missing = Vec::new();
    while let Some(Needed {
        name,
        through,
        run_paths,
    }) = queue.pop_front()
    {
        if !seen.insert(name.clone()) || seen.len() > MOST {
            continue;
        }
        let library = Library {
            name: name.to_string_lossy().into_owned(),
            path: None,
            through,
        };
        let opened = loader
            .candidates(&name, &run_paths)
            .find_map(|path| Some((open(&path, &program)?, path)));
        let Some((bytes, path)) = opened else {
            if names.iter().any(|start| library.name.starts_with(start)) {
                missing.push(library);
            }
            continue;
        };
        if dynamic::exports(bytes.as_slice(), symbol.as_bytes()).unwrap_or(false) {
            return Ok(vec![Library {
                path: Some(path.display().to_string()),
                ..library
            }]);
        }
        if let Ok(dynamic) = dynamic::read(bytes.as_slice()) {
            let through: Vec<String> = library.through.into_iter().chain([library.name]).collect();
            queue.extend(needed(&dynamic, &path, Some(&run_paths), &through));
        }
    }
    Ok(missing)
}

/// The libraries that the file at `path` needs. `loaded_by` has the run paths of the file that
/// caused it to be loaded.
fn needed(
    dynamic: &Dynamic<'_>,
    path: &Path,
    loaded_by: Option<&RunPaths>,
    through: &[String],
) -> impl Iterator<Item = Needed> {
    let run_paths = Rc::new(RunPaths::new(dynamic, path, loaded_by));
    let names = dynamic
        .needed
        .iter()
        .map(|name| OsStr::from_bytes(name).to_owned())
        .collect::<Vec<_>>();
    names.into_iter().map(move |name| Needed {
        name,
        through: through.to_vec(),
        run_paths: Rc::clone(&run_paths),
    })
}

/// The library at `path`, if it is for the processor of `program`. Loaders skip other files, too.
fn open(path: &Path, program: &Dynamic<'_>) -> Option<Bytes> {
    // Opening a pipe would block.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let bytes = Bytes::open(path).ok()?;
    let library = dynamic::read(bytes.as_slice()).ok()?;
    let fits = (library.machine, library.is_64) == (program.machine, program.is_64);
    fits.then_some(bytes)
}
