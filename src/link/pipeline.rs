//! A link, on one page. Each stage takes the previous stage's value by reference and returns a new one; nothing is changed
//! afterwards. What goes on beside the stages, and what is asked of several of them, is behind the page: `beside` and `steps`.

mod beside;
mod named;
mod steps;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::args::request::LinkRequest;
use crate::args::{Ledger, Role};
use crate::link::device::{self, DeviceContext, Linked};
use crate::link::host;
use crate::link::inputs;
use crate::link::payload::{self, BundleContext};
use crate::link::register::{self, RegisterContext};
use crate::link::scan;
use crate::sys::session::Session;
use crate::sys::trace::span;
use beside::Beside;
use named::{inputs_of, out_base, out_name, search};

/// Links what `request` asks for. `ld_first`: the real linker to look for is `ld` rather than `ld.lld`.
pub(crate) fn link(ledger: &Ledger, request: &LinkRequest, session: &Session, ld_first: bool) -> Result<()> {
    let beside = Beside::new(request, session);
    let result = stages(ledger, request, &beside, session, ld_first);
    beside.finish();
    result
}

fn stages(ledger: &Ledger, request: &LinkRequest, beside: &Beside<'_>, session: &Session, ld_first: bool) -> Result<()> {
    let linker = if request.emit_fatbin_only { PathBuf::new() } else { host::linker(request, ld_first)? };
    // Whatever goes wrong from here on can be repeated elsewhere, if that was asked for.
    steps::write_reproduction(ledger, request, &linker)?;

    // Linked images, each in a file; without device code, or where another wrapper has registered it, there is nothing for us to do.
    let images = match request.override_images.as_slice() {
        [] => device_images(ledger, request, &linker, beside, session)?,
        options => Some(given_images(options, request, session)?),
    };
    let Some(images) = images else {
        return if request.emit_fatbin_only {
            payload::emit(&[], out_name(request), session)
        } else {
            steps::plain_link(ledger, request, &linker, session)
        };
    };
    session.signals.check()?;

    // The images as their runtimes want them.
    let bundling = session.trace.span(span::BUNDLE, 0);
    let payloads =
        payload::bundle(&images.linked, &BundleContext::new(request, &out_base(request), &images.host_triple), session)?;
    drop(bundling);
    if request.emit_fatbin_only {
        return payload::emit(&payloads, out_name(request), session);
    }

    // Host objects that hold the images and register them when the program starts. LLVM is not needed any more.
    let registering = session.trace.span(span::WRAP, 0);
    let context = RegisterContext::new(request, out_name(request), &images.host_triple, &beside.llvm, &beside.cache);
    let objects = register::make(&payloads, &context, session)?;
    beside.llvm.dismiss();
    drop(registering);

    // The user's own link, with those objects in it.
    let additions = host::additions(request, &linker, &images.host_triple, &objects);
    let endings = host::endings(request, images.runtime);
    let mut line = host::command(ledger, &linker, &additions, &endings);
    line.inputs = images.host_inputs;
    steps::host_link(&line, beside.take_linker(), request, session)
}

/// What the inputs come to: the linked images, and what the later stages need to know of the inputs.
struct Images {
    linked: Vec<Linked>,
    host_triple: String,
    /// What the host line lacks for the runtime.
    runtime: Vec<OsString>,
    /// The host link's inputs, for its report.
    host_inputs: Vec<String>,
}

/// Images of `--override-image`: the inputs are not looked at.
fn given_images(options: &[(String, PathBuf)], request: &LinkRequest, session: &Session) -> Result<Images> {
    session.signals.watch();
    let host_triple = host::triple(request, &[])?;
    steps::check_host(request, &host_triple)?;
    Ok(Images { linked: device::given(options)?, host_triple, runtime: Vec::new(), host_inputs: Vec::new() })
}

/// From the inputs to linked images; none when there is no device code, or it is registered already.
fn device_images(
    ledger: &Ledger,
    request: &LinkRequest,
    linker: &std::path::Path,
    beside: &Beside<'_>,
    session: &Session,
) -> Result<Option<Images>> {
    // Every file the line names, as bytes; archives are spread into members. What the host linker reads, we have seen.
    let extract = session.trace.span(span::EXTRACT, 0);
    let search = search(request);
    let inputs = inputs::open(&inputs_of(request, &search), &search)?;

    // Every device image in the inputs. From here on nothing reads the user's files again but for their symbol tables.
    let found = scan::scan(&inputs)?;
    if found.is_empty() {
        return Ok(None);
    }
    // Members of archives are of interest where one has device code, and to a linker that looks for calls of the runtime.
    let members = request.role == Role::Ld || found.iter().any(|image| inputs.objects[image.input_object].lazy);
    let facts = scan::host_facts(&inputs, members)?;
    if host::is_wrapped(&facts, &inputs) {
        return Ok(None);
    }
    session.signals.watch();

    // One job for each image of the program, in the order the runtimes will see them.
    let jobs = steps::select(request, &inputs, &found, &facts, session)?;
    if jobs.is_empty() {
        return Ok(None);
    }
    let host_triple = host::triple(request, &facts)?;
    steps::check_host(request, &host_triple)?;
    drop(extract);
    // There will be a host link: its linker loads while the device links run.
    let preload_args = beside.start_linker(ledger, linker);

    // What the host's runtime library asks of the line, and what device code for CPUs may be linked with.
    let _device = session.trace.span(span::DEVICE, 0);
    let compiler = steps::compiler(request, &jobs, session)?;
    let runtime = steps::runtime(request, &inputs, &facts, &jobs, &compiler, session)?;
    let mut libraries = device::host_libraries(&request.inputs, &inputs, &found);
    libraries.extend(device::added_libraries(&runtime));

    // Linked images.
    let context = DeviceContext {
        request,
        compiler: &compiler,
        host_triple: &host_triple,
        host_linker: linker,
        preload_args,
        libraries: &libraries,
        out_base: out_base(request),
        cache: &beside.cache,
        on_first_job: &|| beside.start_llvm(&host_triple),
    };
    let linked = device::link(&jobs, &context, session)?;
    Ok(Some(Images { linked, host_triple, runtime, host_inputs: host::input_names(&inputs) }))
}

#[cfg(test)]
mod tests;
