//! A link, on one page. Each stage takes the previous stage's value by reference and returns a new one; nothing is changed
//! afterwards.

use std::path::Path;

use anyhow::{Result, bail};

use crate::args::Ledger;
use crate::args::request::LinkRequest;
use crate::device::{self, DeviceContext, Linked};
use crate::formats::bitcode_ident;
use crate::inputs::magic::Magic;
use crate::inputs::search::Search;
use crate::inputs::{self, Inputs};
use crate::scan::{self, Found, HostFacts};
use crate::select::{self, DeviceJob, Wishes};
use crate::session::Session;
use crate::wrap::objects::{self, WrapContext};
use crate::{bundle, host, reproduce, toolchain};

/// Hands a link without device code to the host linker in place of this process, and then does not return. It returns when there is
/// device code, or telling takes LLVM, or when something is wrong that [`link`] will report.
pub fn replace_if_plain(ledger: &Ledger, request: &LinkRequest, session: &Session, ld_first: bool) -> Result<()> {
    let linker = host::linker(request, ld_first)?;
    let inputs = inputs::open(&request.inputs, &search(request))?;
    if !inputs.leaves.iter().any(|leaf| leaf.kind == Magic::Bitcode) && scan::scan(&inputs)?.is_empty() {
        session.runner.replace(&host::command(ledger, &linker, &[], &[]))?;
    }
    Ok(())
}

fn search(request: &LinkRequest) -> Search {
    Search::new(&request.library_dirs, request.sysroot.as_deref(), &host::multiarch(request.host_triple.as_deref()))
}

/// Links what `request` asks for. `ld_first`: the real linker to look for is `ld` rather than `ld.lld`.
pub fn link(ledger: &Ledger, request: &LinkRequest, session: &Session, ld_first: bool) -> Result<()> {
    refuse_what_is_missing(request)?;
    let linker = host::linker(request, ld_first)?;
    let plain = || session.runner.replace(&host::command(ledger, &linker, &[], &[]));
    // Every file the line names, as bytes; archives are spread into members. What the host linker reads, we have seen.
    let search = search(request);
    let inputs = inputs::open(&request.inputs, &search)?;
    // Whatever goes wrong from here on can be repeated elsewhere, if that was asked for.
    reproduce::write(&reproduce::Link { ledger, request, inputs: &inputs, search: &search, linker: &linker })?;

    // Every device image in the inputs. From here on nothing reads the user's files again but for their symbol tables.
    let found = scan::scan(&inputs)?;
    if found.is_empty() {
        return plain();
    }
    let facts = scan::host_facts(&inputs)?;
    if host::is_wrapped(&facts, &inputs) {
        return plain();
    }
    session.signals.watch();

    // One job for each image of the program, in the order the runtimes will see them.
    let jobs = select(request, &inputs, &found, &facts, session)?;
    if jobs.is_empty() {
        return plain();
    }

    let host_triple = host::triple(request, &facts)?;
    if request.relocatable && host_triple.contains("windows") {
        bail!("Relocatable linking is not supported on COFF targets");
    }

    // Linked images, each in a file.
    let choice = toolchain::device_compiler(request.offld_clang.as_deref(), producer(&jobs))?;
    if let Some(warning) = &choice.warning {
        session.shell.warn(warning);
    }
    let libraries = device::host_libraries(&request.inputs, &inputs, &found);
    let out_base = out_name(request).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let context = DeviceContext {
        request,
        compiler: &choice.compiler,
        host_triple: &host_triple,
        host_linker: &linker,
        libraries: &libraries,
        out_base,
    };
    let linked = device::link(&jobs, &context, session)?;

    // Host objects that hold the images and register them when the program starts.
    let objects = registered(&linked, request, &host_triple, session)?;

    // The user's own link, with those objects in it.
    let runtime = host::openmp_runtime(request, &inputs, &facts, &choice.compiler);
    let mut host_link = host::command(ledger, &linker, &host::additions(request, &linker, &objects), &runtime);
    host_link.inputs = host::input_names(&inputs);
    let mut result = session.runner.run(&host_link);
    if request.relocatable {
        result = result.and_then(|()| session.runner.edit(out_name(request), &host::finish_relocatable));
    }
    if session.signals.check().is_err() {
        // A linker that is killed leaves what it has written so far.
        let _ = std::fs::remove_file(out_name(request));
    }
    result
}

/// What the options ask for that this version does not do: an error now, rather than a link that lacks something.
fn refuse_what_is_missing(request: &LinkRequest) -> Result<()> {
    if request.emit_fatbin_only {
        bail!("--emit-fatbin-only is not part of this version of offld");
    }
    if let Some((kind, file)) = request.override_images.first() {
        bail!("--override-image={kind}={} is not part of this version of offld", file.display());
    }
    Ok(())
}

fn select<'a>(
    request: &LinkRequest,
    inputs: &Inputs,
    found: &'a [Found<'a>],
    facts: &[HostFacts<'_>],
    session: &Session,
) -> Result<Vec<DeviceJob<'a>>> {
    let wishes = Wishes {
        should_extract: request.should_extract.clone(),
        roots: request.undefined.clone(),
        wrapped: request.wrapped_symbols.clone(),
    };
    let lazy: Vec<bool> = inputs.leaves.iter().map(|leaf| leaf.lazy).collect();
    let origins: Vec<String> = inputs.leaves.iter().map(|leaf| leaf.origin.to_string()).collect();
    let selection = select::select(found, facts, &lazy, &origins, &wishes)?;
    if request.why {
        selection.why.iter().for_each(|line| session.shell.line(line));
    }
    let (known, unknown): (Vec<_>, Vec<_>) = selection.jobs.into_iter().partition(|job| job.kinds.iter().next().is_some());
    for job in unknown {
        let names: Vec<String> = job.inputs.iter().map(|input| input.origin.to_string()).collect();
        session.shell.warn(&format!(
            "device code for {} is of no offload kind and is not registered: {}",
            job.target,
            names.join(", ")
        ));
    }
    Ok(known)
}

/// The newest LLVM among the producers of the bitcode that is linked.
fn producer(jobs: &[DeviceJob<'_>]) -> Option<u32> {
    let inputs = jobs.iter().flat_map(|job| &job.inputs);
    inputs.filter_map(|input| bitcode_ident::producer_major(&input.bytes)).max()
}

fn registered(linked: &[Linked], request: &LinkRequest, host_triple: &str, session: &Session) -> Result<Vec<std::path::PathBuf>> {
    let payloads = bundle::bundle(linked, session)?;
    let context = WrapContext {
        host_triple,
        output: out_name(request),
        relocatable: request.relocatable,
        print: request.print_wrapped_module,
        keep_bitcode: request.save_temps,
    };
    objects::make(&payloads, &context, session)
}

/// The output as the user named it.
fn out_name(request: &LinkRequest) -> &Path {
    let windows = request.host_triple.as_deref().is_some_and(|triple| triple.contains("windows"));
    request.output.as_deref().unwrap_or(Path::new(if windows { "a.exe" } else { "a.out" }))
}

#[cfg(all(test, feature = "llvm"))]
mod tests;
