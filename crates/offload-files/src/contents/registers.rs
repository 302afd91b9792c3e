//! Search for the runtimes that an object or program registers images with, by the functions that
//! it refers to, and for the libraries that it gets these functions from.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;

use anyhow::{Error, Result};
use object::{Object, ObjectSection, ObjectSymbol};

use super::report::{Library, Module, Registration};
use super::walk::{Cursor, Walk};
use offld_system::io::bytes::Bytes;
use offld_system::io::loader::{Loader, RunPaths};
use offload_formats::dynamic::{self, Dynamic};
use offload_formats::error::Malformed;
use offload_formats::model::printable_name;
use offload_formats::nvcc;
use offload_formats::offload_sections::HIP_WRAPPERS;
use offload_formats::registration::fatbin::ModuleCalls;
use offload_formats::registration::{fatbin, openmp, sycl};

/// A runtime: its function that registers images, its name, and the prefixes of the names of its
/// libraries.
struct Runtime {
    symbol: &'static str,
    name: &'static str,
    libraries: &'static [&'static str],
}

const RUNTIMES: [Runtime; 4] = [
    Runtime {
        symbol: openmp::REGISTER_LIB,
        name: "openmp",
        libraries: &["libomptarget"],
    },
    Runtime {
        symbol: fatbin::CUDA_REGISTER,
        name: "cuda",
        libraries: &["libcudart"],
    },
    Runtime {
        symbol: fatbin::HIP_REGISTER,
        name: "hip",
        libraries: &["libamdhip64", "libchipstar", "libCHIP"],
    },
    Runtime {
        symbol: sycl::REGISTER_LIB,
        name: "sycl",
        libraries: &["libsycl"],
    },
];

/// Records the modules of the ELF file at `cursor` that register themselves.
pub(super) fn modules(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let data = cursor.piece.bytes();
    let file = object::File::parse(data)?;
    let mut found: Vec<(&'static str, String, bool)> = Vec::new();
    if let Some(section) = file.section_by_name(nvcc::MODULE_IDS) {
        let ids = nvcc::module_ids(section.data()?);
        found.extend(ids.into_iter().map(|(id, linked)| ("cuda", id, linked)));
    }
    let is_object = matches!(file.kind(), object::ObjectKind::Relocatable);
    if is_object && file.section_by_name(HIP_WRAPPERS).is_some() {
        let names = file.symbols().filter(|symbol| symbol.is_undefined());
        let ids = names
            .filter_map(|symbol| ModuleCalls::id_of(fatbin::HIP_IMAGE, symbol.name_bytes().ok()?));
        found.extend(ids.map(|id| ("hip", printable_name(id), false)));
    }
    let members = cursor.place.members();
    let module = |(runtime, id, linked)| Module {
        members: members.clone(),
        runtime,
        id,
        linked,
    };
    walk.modules.extend(found.into_iter().map(module));
    Ok(())
}

/// Records the registrations of the object or program at `cursor`. If it has no images
/// (`has_images`) but defines the function itself, it is the runtime and does not use one.
pub(super) fn registrations(walk: &mut Walk<'_>, cursor: &Cursor, has_images: bool) -> Result<()> {
    let data = cursor.piece.bytes();
    let file = object::File::parse(data)?;
    let linked = !matches!(file.kind(), object::ObjectKind::Relocatable);
    let mut found: Vec<(&Runtime, &'static str)> = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Some(runtime) = symbol.name().ok().and_then(|name| runtime_of_symbol(name)) else {
            continue;
        };
        let place = match (symbol.is_undefined(), linked) {
            (true, true) => "library",
            (true, false) => "elsewhere",
            (false, _) => "here",
        };
        if !found.iter().any(|(other, _)| other.name == runtime.name) {
            found.push((runtime, place));
        }
    }
    found.retain(|(_, place)| has_images || *place != "here");
    for (runtime, place) in found {
        let libraries = match place {
            "library"
                if matches!(file.format(), object::BinaryFormat::Elf) && !walk.options.alone =>
            {
                let libraries =
                    libraries_that_define(data, &cursor.file, runtime.symbol, runtime.libraries);
                libraries.unwrap_or_else(|fault| {
                    walk.note(&Error::new(fault).context(cursor.place.to_string()));
                    Vec::new()
                })
            }
            _ => Vec::new(),
        };
        let symbol = runtime.symbol.to_owned();
        walk.registrations.push(Registration {
            members: cursor.place.members(),
            numbers: cursor.numbers.clone(),
            runtime: runtime.name,
            symbol,
            found: place,
            libraries,
        });
    }
    if matches!(file.format(), object::BinaryFormat::Pe) {
        imports(walk, cursor, &file)?;
    }
    Ok(())
}

/// Records the registrations of a program for Windows, whose import table names the library of each
/// function.
fn imports(walk: &mut Walk<'_>, cursor: &Cursor, file: &object::File<'_>) -> Result<()> {
    for import in file.imports()? {
        let import = import?;
        let object::NameOrOrdinal::Name(name) = import.name() else {
            continue;
        };
        let Some(runtime) = std::str::from_utf8(name).ok().and_then(runtime_of_symbol) else {
            continue;
        };
        let name = String::from_utf8_lossy(import.library()).into_owned();
        let library = super::report::Library {
            name,
            path: None,
            through: Vec::new(),
        };
        walk.registrations.push(Registration {
            members: cursor.place.members(),
            numbers: cursor.numbers.clone(),
            runtime: runtime.name,
            symbol: runtime.symbol.to_owned(),
            found: "library",
            libraries: vec![library],
        });
    }
    Ok(())
}

/// The runtime whose function has this name. On Windows, imported functions have a prefix, and on
/// i386 an underscore is added.
fn runtime_of_symbol(name: &str) -> Option<&'static Runtime> {
    let name = name.strip_prefix("__imp_").unwrap_or(name);
    const LONGEST: usize = 256;
    if name.len() > LONGEST {
        return None;
    }
    // A versioned symbol: `name@VERS`.
    let name = name.split('@').next().unwrap_or(name);
    RUNTIMES
        .iter()
        .find(|runtime| name == runtime.symbol || name.strip_prefix('_') == Some(runtime.symbol))
}

// Search for the library from which a program gets a function, in the way of its dynamic loader.
// Libraries are searched breadth first, which is the loader's order of symbol lookup.

/// Limit of the search; no real program needs as many libraries.
const MOST_LIBRARIES: usize = 1000;

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
fn libraries_that_define(
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
        if !seen.insert(name.clone()) || seen.len() > MOST_LIBRARIES {
            continue;
        }
        let library = Library {
            name: name.to_string_lossy().into_owned(),
            path: None,
            through,
        };
        let opened = loader
            .candidates(&name, &run_paths)
            .find_map(|path| Some((open_library(&path, &program)?, path)));
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
fn open_library(path: &Path, program: &Dynamic<'_>) -> Option<Bytes> {
    // Opening a pipe would block.
    fs::metadata(path).ok().filter(fs::Metadata::is_file)?;
    let bytes = Bytes::open(path).ok()?;
    let library = dynamic::read(bytes.as_slice()).ok()?;
    let fits = (library.machine, library.is_64) == (program.machine, program.is_64);
    fits.then_some(bytes)
}
