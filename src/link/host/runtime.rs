//! The OpenMP runtime of a host link: added where a line lacks it, refused or warned of where it cannot do what the device code
//! needs.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use anyhow::{Result, bail};

use crate::args::Role;
use crate::args::request::{InputName, LinkRequest};
use crate::formats::dynamic;
use crate::formats::magic::Magic;
use crate::link::inputs::search::{Naming, Search};
use crate::link::inputs::{InputFile, Inputs};
use crate::link::scan::{DeviceImage, HostFacts};
use crate::model::{Generation, OffloadKind, llvm_major};
use crate::sys::toolchain::{self, Compiler};

/// What is to be done about the runtime.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Runtime {
    /// Words for the end of the line.
    pub words: Vec<OsString>,
    /// What the user should hear.
    pub warning: Option<String>,
}

/// What a raw linker line lacks for offloading the OpenMP code among `images`: `-lomptarget`, and `-lomp` where host code calls it,
/// with their folder. A compiler driver puts both on the line itself; somebody who calls `ld.offld` through gcc, rustc or by hand
/// does not. An error when there is no runtime that could be linked.
pub(crate) fn openmp_runtime(
    request: &LinkRequest,
    inputs: &Inputs,
    facts: &[HostFacts<'_>],
    images: &[&DeviceImage<'_>],
    search: &Search,
    compiler: &Compiler,
) -> Result<Runtime> {
    let ours: Vec<&DeviceImage<'_>> = images.iter().copied().filter(|image| image.kinds.contains(OffloadKind::OpenMp)).collect();
    // For Windows there is none to find here, and who links for it brings it along.
    let elsewhere = super::naming(request) != Naming::Unix;
    if ours.is_empty() || request.no_offload_runtime || request.relocatable || elsewhere {
        return Ok(Runtime::default());
    }
    let is_ld = request.role == Role::Ld;
    let (target, omp) = (named(request, inputs, b"omptarget"), named(request, inputs, b"omp"));
    let wants_target = is_ld && target == Library::Absent && !provided(inputs, facts, "__tgt_register_lib");
    let folder = toolchain::openmp_runtime_folder(compiler).filter(|_| is_ld);
    let warning = match target {
        Library::Named(Some(file)) => too_old(&inputs.files[file], &ours, facts),
        Library::Missing if request.static_link => nowhere(request, search, folder.as_deref(), compiler)?,
        Library::Absent if wants_target => nowhere(request, search, folder.as_deref(), compiler)?,
        _ => None,
    };
    let wants_omp = is_ld
        && omp == Library::Absent
        && named(request, inputs, b"iomp5") == Library::Absent
        && calls(facts, b"__kmpc_")
        && !provided(inputs, facts, "__kmpc_global_thread_num");
    let unfound = target == Library::Missing || omp == Library::Missing;
    let folder = folder.filter(|_| wants_target || wants_omp || unfound).map(|folder| {
        let mut option = OsString::from("-L");
        option.push(folder);
        option
    });
    if !wants_target && !wants_omp {
        return Ok(Runtime { words: folder.into_iter().collect(), warning });
    }
    let mut words: Vec<OsString> = vec!["--push-state".into()];
    words.extend((!request.static_link).then(|| "-Bdynamic".into()));
    words.extend(folder);
    words.extend(wants_omp.then(|| "-lomp".into()));
    words.extend(wants_target.then(|| "-lomptarget".into()));
    words.push("--pop-state".into());
    Ok(Runtime { words, warning })
}

/// What is to be said where no libomptarget is found, in `folder` or in those of the line. For a static executable there has to be
/// an archive of it, and nobody makes one: that is an error. Otherwise the linker may know more folders than we do.
fn nowhere(request: &LinkRequest, search: &Search, folder: Option<&Path>, compiler: &Compiler) -> Result<Option<String>> {
    let is_static = request.static_link && !request.shared;
    let in_folder = |folder: &Path| !is_static || folder.join("libomptarget.a").exists();
    if search.library(OsStr::new("omptarget"), is_static).is_some() || folder.is_some_and(in_folder) {
        return Ok(None);
    }
    if is_static {
        bail!(
            "a static executable cannot offload here: libomptarget, which loads its images, is a shared library only. Link without \
             -static (-static-libstdc++ and -static-libgcc still work)"
        );
    }
    Ok(Some(format!(
        "OpenMP device code needs libomptarget, and there is none where {} or this line look for libraries: install it (Debian: \
         liboffload-22-dev), or name its folder with -L",
        compiler.path.display()
    )))
}

/// What the line says of a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    /// Nothing.
    Absent,
    /// It asks for it with `-l`, and no folder has it.
    Missing,
    /// It names it; the index of the file, if there is one.
    Named(Option<usize>),
}

/// Whether the line asks for library `name`, by `-l` or by a path.
fn named(request: &LinkRequest, inputs: &Inputs, name: &[u8]) -> Library {
    let is_it = |file: &[u8]| {
        file.strip_prefix(b"lib").and_then(|rest| rest.strip_prefix(name)).is_some_and(|rest| rest.starts_with(b"."))
    };
    let said = request.inputs.iter().zip(&inputs.named).filter_map(|(spec, &file)| match &spec.name {
        InputName::Library(library) => {
            let is_it = library.as_bytes() == name || library.as_bytes().strip_prefix(b":").is_some_and(is_it);
            is_it.then_some(if file.is_some() { Library::Named(file) } else { Library::Missing })
        }
        InputName::File(path) => path.file_name().is_some_and(|file| is_it(file.as_bytes())).then_some(Library::Named(file)),
    });
    said.fold(Library::Absent, |said, more| if matches!(said, Library::Named(_)) { said } else { more })
}

fn calls(facts: &[HostFacts<'_>], prefix: &[u8]) -> bool {
    facts.iter().any(|facts| facts.undefined.iter().any(|symbol| !symbol.weak && symbol.name.starts_with(prefix)))
}

/// Whether an object, archive member or shared library of the line defines `symbol`.
fn provided(inputs: &Inputs, facts: &[HostFacts<'_>], symbol: &str) -> bool {
    let defines = |facts: &HostFacts<'_>| facts.defined.iter().any(|definition| *definition.name == *symbol.as_bytes());
    let exports = |data: &[u8]| {
        // What is wrong with a library, the host linker says.
        dynamic::exports(data, symbol.as_bytes()).unwrap_or(false)
    };
    facts.iter().any(defines) || inputs.files.iter().any(|file| file.kind == Magic::ElfShared && exports(file.data()))
}

/// A runtime up to LLVM 19 crashes on the entries of later compilers. Told by the number in its name; 14's has none, and lacks what
/// later compilers call.
fn too_old(runtime: &InputFile, images: &[&DeviceImage<'_>], facts: &[HostFacts<'_>]) -> Option<String> {
    let is_later = |image: &&&DeviceImage<'_>| {
        facts.get(image.input_object).and_then(|facts| facts.generation).is_some_and(Generation::wide_entries)
    };
    let later = images.iter().find(is_later)?;
    let soname = std::str::from_utf8(dynamic::read(runtime.data()).ok()?.soname?).ok()?;
    let number = llvm_major(soname.strip_prefix("libomptarget.so.")?)?;
    (number < 20).then(|| {
        format!(
            "{} is of LLVM 19 or earlier and cannot read the entries of {}, which a later LLVM compiled: the program will crash unless it \
             runs with a later runtime",
            runtime.path.display(),
            later.origin
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_runtime_is_told_and_a_static_one_asked_for() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search::new(&[], Some(folder.path()), Naming::Unix, "none");
        let compiler = Compiler { path: "/c/clang".into(), major: Some(22) };
        let dynamic = LinkRequest::default();
        let told = nowhere(&dynamic, &search, None, &compiler).unwrap();
        assert!(told.unwrap().contains("there is none where /c/clang"));
        assert_eq!(nowhere(&dynamic, &search, Some(folder.path()), &compiler).unwrap(), None);
        let fixed = LinkRequest { static_link: true, ..LinkRequest::default() };
        let told = nowhere(&fixed, &search, Some(folder.path()), &compiler).unwrap_err().to_string();
        assert!(told.starts_with("a static executable cannot offload here"));
        std::fs::write(folder.path().join("libomptarget.a"), "").unwrap();
        assert_eq!(nowhere(&fixed, &search, Some(folder.path()), &compiler).unwrap(), None);
    }
}
