//! Order in which the host linker reads its command line.

use std::path::Path;

use crate::args::request::{Defsym, InputSpec};
use crate::link::inputs::{Inputs, Loaded, LoadedFile};
use crate::link::scan::{self, SharedSymbols};
use crate::link::select::{Load, Reading, SharedLibrary};
use crate::model::printable_name;
use crate::sys::toolchain::{self, LinkerFamily};

/// Returns the reading order of the host linker. Also returns whether `--defsym` needs its symbols
/// only from its position on the command line on, as in GNU ld. gold needs them from the beginning.
pub(super) fn reading(linker: &Path) -> (Reading, bool) {
    match toolchain::linker_family(linker) {
        LinkerFamily::Gnu => (Reading::InTurn, true),
        LinkerFamily::Gold => (Reading::InTurn, false),
        LinkerFamily::Lld => (Reading::Remembering, false),
        // wild extracts an archive member even if a later object has a weak definition of the
        // symbol.
        LinkerFamily::Mold | LinkerFamily::Wild | LinkerFamily::Other => (Reading::AnyOrder, false),
    }
}

/// Returns the files in the linker's reading order, with each of `defsyms` at its position. Also
/// returns the symbols of the shared libraries among the files.
pub(super) fn loads<'r>(
    inputs: &Inputs,
    defsyms: impl Iterator<Item = &'r Defsym>,
) -> (Vec<Load>, Vec<SharedLibrary>) {
    let mut objects = vec![0..0; inputs.files.len()];
    for (index, object) in inputs.objects.iter().enumerate() {
        let own = &mut objects[object.file];
        *own = if own.start == own.end {
            index..index + 1
        } else {
            own.start..index + 1
        };
    }
    let symbols = scan::shared_symbols(inputs);
    let load = |load: &LoadedFile| {
        let (as_needed, group) = (load.as_needed, load.group);
        match load.what {
            Loaded::File(file) => {
                let library = symbols.iter().position(|(own, _)| *own == file);
                Load {
                    objects: objects[file].clone(),
                    library,
                    as_needed,
                    group,
                    ..Load::default()
                }
            }
            Loaded::Script(script) => {
                let script = &inputs.scripts[script];
                Load {
                    needs: [&script.external[..], &script.needed].concat(),
                    group,
                    ..Load::default()
                }
            }
        }
    };
    let library = |(file, symbols): &(usize, SharedSymbols)| SharedLibrary {
        name: printable_name(inputs.files[*file].path.as_os_str().as_encoded_bytes()),
        defines: symbols.defines.clone(),
        needs: symbols.needs.clone(),
    };
    let mut loads: Vec<Load> = Vec::with_capacity(inputs.loads.len());
    let mut defsyms = defsyms.peekable();
    let of_defsym = |defsym: &Defsym| Load {
        needs: defsym.needs.clone(),
        group: defsym.group,
        ..Load::default()
    };
    for file in &inputs.loads {
        // A file without a token is read before everything else, or belongs to a linker other than
        // GNU ld.
        while let Some(defsym) =
            defsyms.next_if(|defsym| file.token != InputSpec::NO_TOKEN && defsym.token < file.token)
        {
            loads.push(of_defsym(defsym));
        }
        loads.push(load(file));
    }
    loads.extend(defsyms.map(of_defsym));
    (loads, symbols.iter().map(library).collect())
}
