//! The OpenMP runtime of a host link: added where a line lacks it, refused or warned of where it cannot do what the device code
//! needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::args::Role;
use crate::args::request::{InputName, LinkRequest};
use crate::inputs::magic::Magic;
use crate::inputs::search::{Naming, Search};
use crate::inputs::{InputFile, Inputs};
use crate::model::{Generation, OffloadKind};
use crate::scan::{Found, HostFacts};
use crate::toolchain::{self, Compiler};

/// What is to be done about the runtime.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Runtime {
    /// Words for the end of the line.
    pub words: Vec<OsString>,
    /// What the user should hear.
    pub warning: Option<String>,
}

/// What a raw linker line lacks for OpenMP offloading: `-lomptarget`, and `-lomp` where host code calls it, with their folder. A
/// compiler driver puts both on the line itself; somebody who calls `ld.offld` through gcc, rustc or by hand does not. An error when
/// there is no runtime that could be linked.
pub fn openmp_runtime(
    request: &LinkRequest,
    inputs: &Inputs,
    facts: &[HostFacts<'_>],
    found: &[Found<'_>],
    search: &Search,
    compiler: &Compiler,
) -> Result<Runtime> {
    let ours: Vec<&Found<'_>> = found.iter().filter(|image| image.kinds.contains(OffloadKind::OpenMp)).collect();
    // For Windows there is none to find here, and who links for it brings it along.
    let elsewhere = super::naming(request) != Naming::Unix;
    if ours.is_empty() || request.no_offload_runtime || request.relocatable || elsewhere {
        return Ok(Runtime::default());
    }
    let target = named(request, inputs, b"omptarget");
    let wants_target = request.role == Role::Ld && target == Library::Absent && !provided(inputs, facts, "__tgt_register_lib");
    let folder = toolchain::openmp_runtime_folder(compiler).filter(|_| request.role == Role::Ld);
    let here = |name: &str, folder: &Path| folder.join(name).exists();
    if request.static_link && !request.shared && !request.dry_run && (wants_target || target == Library::Missing) {
        let found = search.library(OsStr::new("omptarget"), true).is_some()
            || folder.as_deref().is_some_and(|folder| here("libomptarget.a", folder));
        if !found {
            bail!(
                "a static executable cannot offload here: libomptarget, which loads its images, is a shared library only. Link without \
                 -static (-static-libstdc++ and -static-libgcc still work)"
            );
        }
    }
    let warning = match target {
        Library::Found(file) => too_old(&inputs.files[file], &ours, facts),
        _ => None,
    };
    if request.role != Role::Ld {
        return Ok(Runtime { words: Vec::new(), warning });
    }
    let omp = named(request, inputs, b"omp");
    let wants_omp = omp == Library::Absent
        && named(request, inputs, b"iomp5") == Library::Absent
        && calls(facts, b"__kmpc_")
        && !provided(inputs, facts, "__kmpc_global_thread_num");
    if wants_target
        && !request.dry_run
        && folder.is_none()
        && search.library(OsStr::new("omptarget"), request.static_link).is_none()
    {
        bail!(
            "OpenMP device code needs libomptarget, and there is none where {} or this line look for libraries: install it (Debian: \
             liboffload-22-dev), name its folder with -L, or say --no-offload-runtime",
            compiler.path.display()
        );
    }
    let unfound = target == Library::Missing || omp == Library::Missing;
    let mut words: Vec<OsString> = Vec::new();
    if wants_target || wants_omp || unfound {
        words.push("--push-state".into());
        words.extend((!request.static_link).then(|| "-Bdynamic".into()));
        words.extend(folder.map(|folder| {
            let mut option = OsString::from("-L");
            option.push(folder);
            option
        }));
        words.extend(wants_omp.then(|| "-lomp".into()));
        words.extend(wants_target.then(|| "-lomptarget".into()));
        words.push("--pop-state".into());
    }
    Ok(Runtime { words, warning })
}

/// What the line says of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    /// Nothing.
    Absent,
    /// It asks for it, and no folder has it.
    Missing,
    /// It asks for it; the index of the file.
    Found(usize),
}

/// Whether the line asks for library `name`, by `-l` or by a path.
fn named(request: &LinkRequest, inputs: &Inputs, name: &[u8]) -> Library {
    let is_it = |file: &[u8]| {
        file.strip_prefix(b"lib").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(b"."))
    };
    let asked = request.inputs.iter().zip(&inputs.named).filter(|(spec, _)| match &spec.name {
        InputName::Library(library) => library.as_bytes() == name || library.as_bytes().strip_prefix(b":").is_some_and(is_it),
        InputName::File(path) => path.file_name().is_some_and(|file| is_it(file.as_bytes())),
    });
    asked.fold(Library::Absent, |said, (_, file)| match (said, file) {
        (Library::Found(file), _) | (_, &Some(file)) => Library::Found(file),
        _ => Library::Missing,
    })
}

fn calls(facts: &[HostFacts<'_>], prefix: &[u8]) -> bool {
    facts.iter().any(|facts| facts.undefined.iter().any(|symbol| !symbol.weak && symbol.name.starts_with(prefix)))
}

/// Whether an object, archive member or shared library of the line defines `symbol`.
fn provided(inputs: &Inputs, facts: &[HostFacts<'_>], symbol: &str) -> bool {
    let defines = |facts: &HostFacts<'_>| facts.defined.iter().any(|definition| *definition.name == *symbol.as_bytes());
    let exports = |data: &[u8]| {
        let Ok(library) = goblin::elf::Elf::parse(data) else { return false };
        library.dynsyms.iter().any(|entry| !entry.is_import() && library.dynstrtab.get_at(entry.st_name) == Some(symbol))
    };
    facts.iter().any(defines) || inputs.files.iter().any(|file| file.kind == Magic::ElfShared && exports(file.data()))
}

/// A runtime up to LLVM 19 crashes on the entries of later compilers. Told by the number in its name; 14's has none, and lacks what
/// later compilers call.
fn too_old(runtime: &InputFile, images: &[&Found<'_>], facts: &[HostFacts<'_>]) -> Option<String> {
    let later = images.iter().find(|image| facts[image.leaf].generation.is_some_and(Generation::wide_entries))?;
    let library = goblin::elf::Elf::parse(runtime.data()).ok()?;
    let number = library.soname?.strip_prefix("libomptarget.so.")?.split('.').next()?.parse::<u32>().ok()?;
    (number < 20).then(|| {
        format!(
            "{} is of LLVM 19 or earlier and cannot read the entries of {}, which a later LLVM compiled: the program will crash unless it \
             runs with a later runtime",
            runtime.path.display(),
            later.origin
        )
    })
}
