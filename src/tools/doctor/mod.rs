//! `offld doctor`: reports the requirements of links that this machine meets, the missing ones for
//! each kind of link, and how to install those. It only inspects the machine and changes nothing.

mod advice;
mod caches;
mod compiler;
mod found;
mod needs;
pub(crate) mod report;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::path::PathBuf;

use crate::llvm::Llvm;
use crate::llvm::program;
use crate::sys::native::Machine;
use crate::sys::session::Session;
use crate::sys::toolchain;
use needs::Facts;
use report::{Compiler, Devices, Kind, OffldLlvm, Own, Report, SCHEMA};

/// The settings of an examination.
#[derive(Debug)]
pub(crate) struct Request {
    /// The directory below which the machine's devices are read.
    pub native_root: PathBuf,
}

/// Examines this machine, like a link in the same environment.
pub(crate) fn examine(request: &Request, session: &Session) -> Report {
    let chosen = chosen();
    let compilers = compilers(chosen.as_ref().ok());
    let folders = chosen
        .as_ref()
        .map(|own| compiler::folders(&own.path))
        .unwrap_or_default();
    let (linkers, tools) = (found::linkers(&folders), found::tools(&folders));
    let files = found::files(chosen.as_ref().ok(), &folders);
    let offld_llvm = offld_llvm(session);
    let compiler_error = chosen.as_ref().err().cloned();
    let complaints_of = |kind: Kind| {
        let all = chosen
            .as_ref()
            .map(|own| compiler::complaints(&own.path, kind))
            .unwrap_or_default();
        all.into_iter().map(move |text| (kind, text))
    };
    let links = needs::links(&Facts {
        llvm: chosen.as_ref().ok().and_then(|own| own.major),
        compiler_error: compiler_error.clone(),
        offld_llvm_error: offld_llvm.error.clone(),
        key_error: caches::key_error(),
        has_linker: linkers.iter().any(|linker| linker.chosen),
        parts: tools.iter().chain(&files).cloned().collect(),
        complaints: Kind::ALL.into_iter().flat_map(complaints_of).collect(),
    });
    let cache = caches::own();
    Report {
        schema: SCHEMA,
        version: SCHEMA,
        generator: concat!("offld ", env!("CARGO_PKG_VERSION")).to_owned(),
        host_openmp: links
            .iter()
            .any(|link| link.kind == Kind::OpenMpHost && link.link),
        offld: Own {
            path: std::env::current_exe().ok(),
            names: toolchain::folder_of_names(),
        },
        offld_llvm,
        compilers,
        compiler_error,
        linkers,
        tools,
        files,
        devices: devices(request),
        remote: caches::shared(&cache),
        cache,
        links,
    }
}

/// Returns the compiler for device links, unless their bitcode requires another LLVM version, or
/// the reason why none is usable.
fn chosen() -> Result<toolchain::Compiler, String> {
    let chosen = toolchain::device_compiler(None, None)
        .map_err(|error| crate::error::chain(&error))?
        .compiler;
    let path = chosen.path.display();
    match chosen.major {
        None => Err(format!("`{path}` does not report its version")),
        Some(_) if compiler::first_line(&chosen.path).is_none() => {
            Err(format!("`{path}` does not run"))
        }
        Some(major) if major < needs::FIRST => Err(format!(
            "`{path}` is of LLVM {major}: LLVM {} or later is required",
            needs::FIRST
        )),
        Some(_) => Ok(chosen),
    }
}

/// Every installed clang, with a mark on the chosen one.
fn compilers(chosen: Option<&toolchain::Compiler>) -> Vec<Compiler> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let chosen_path = chosen.map(|own| real(&own.path));
    let mut paths = toolchain::installed_compilers();
    // `OFFLD_CLANG` may name a clang that the search does not find.
    if let Some(own) = chosen.filter(|own| !paths.iter().any(|path| real(path) == real(&own.path)))
    {
        paths.insert(0, own.path.clone());
    }
    let all = paths.into_iter().map(|path| Compiler {
        says: compiler::first_line(&path),
        llvm: toolchain::release_of(&path),
        chosen: chosen_path.as_ref() == Some(&real(&path)),
        path,
    });
    all.collect()
}

/// Finds `offld-llvm` and checks that it runs and is from the same build.
fn offld_llvm(session: &Session) -> OffldLlvm {
    let path = match program::find() {
        Ok(path) => path,
        Err(error) => {
            return OffldLlvm {
                error: Some(crate::error::chain(&error)),
                ..OffldLlvm::default()
            };
        }
    };
    match Llvm::new(session).default_triple() {
        Ok(triple) => OffldLlvm {
            path: Some(path),
            host_triple: Some(triple),
            error: None,
        },
        Err(error) => OffldLlvm {
            path: Some(path),
            host_triple: None,
            error: Some(crate::error::chain(&error)),
        },
    }
}

fn devices(request: &Request) -> Devices {
    match Machine::read(&request.native_root) {
        Ok(machine) => Devices {
            cpu: Some(machine.cpu),
            amd: machine.amd,
            nvidia: machine.nvidia,
            nvidia_driver: machine.driver,
            error: None,
        },
        Err(error) => Devices {
            error: Some(crate::error::chain(&error)),
            ..Devices::default()
        },
    }
}
