//! Search for the runtimes that an object or program registers images with, by the functions that
//! it refers to.

use anyhow::{Error, Result};
use object::{Object, ObjectSymbol};

use super::libraries;
use super::report::Registration;
use super::walk::{Cursor, Walk};
use crate::registration::{fatbin, openmp, sycl};

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
                    libraries::that_define(data, &cursor.file, runtime.symbol, runtime.libraries);
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
