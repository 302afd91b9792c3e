//! The stages of a link in order, on one page. Each stage takes the previous results by reference and returns a new value, which is
//! not changed afterwards. Work in parallel with the stages is in `background`; steps that need more than one call are in `steps`.

mod background;
mod late;
mod line_inputs;
mod reading_order;
mod steps;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use crate::args::request::LinkRequest;
use crate::args::{Ledger, Role};
pub(crate) use crate::link::device::DistributorRequest;
use crate::link::device::{self, DeviceContext, Linked};
use crate::link::host;
use crate::link::inputs::{self, Inputs};
use crate::link::payload::{self, BundleContext};
use crate::link::register::{self, RegisterContext};
use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::link::select::DeviceJob;
use crate::registration::sycl;
use crate::sys::launcher::Launcher;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::sys::trace::span;
use crate::target::Target;
use background::Background;
use late::{Asked, HostLink, Unfilled};
use line_inputs::{input_specs, out_base, out_name, search};

/// Does the link that `ledger` describes, in a session of its own. `ld_first`: look for `ld` as the real host linker before
/// `ld.lld`. `embedded`: the process is not ours (see [`SessionOptions`]).
pub(crate) fn run(ledger: &Ledger, shell: &Arc<Shell>, ld_first: bool, embedded: bool) -> Result<()> {
    let request = LinkRequest::new(ledger)?;
    // What is only shown is the same on every machine.
    let launcher = if request.dry_run { None } else { Launcher::new(&request.launching, request.verbose)? };
    let options = SessionOptions {
        dry_run: request.dry_run,
        verbose: request.verbose,
        save_temps: request.save_temps,
        time_trace: request.time_trace.clone(),
        time_trace_granularity: request.time_trace_granularity,
        embedded,
        temp_folder: launcher.as_ref().map(|_| Launcher::temp_folder(out_name(&request))),
    };
    let session = Session { launcher, ..Session::new(Arc::clone(shell), options) };
    let whole = session.trace.span(span::WHOLE, 0);
    let result = link(ledger, &request, &session, ld_first);
    drop(whole);
    // The trace is written for a failed link as well.
    result.and(session.trace.write())
}

/// The list of LLVM's options, if `-mllvm --help` or the like asks for one: the line then asks for no link.
pub(crate) fn llvm_help(ledger: &Ledger) -> Result<Option<String>> {
    // Most lines say nothing to LLVM, and are read only once.
    if !ledger.tokens().iter().any(|token| token == "-mllvm") {
        return Ok(None);
    }
    steps::llvm_help(&LinkRequest::new(ledger)?)
}

/// Compiles the units of a ThinLTO link, for the ld.lld that has started us.
pub(crate) fn distribute(request: &DistributorRequest, shell: &Arc<Shell>) -> Result<()> {
    device::distribute(request, shell)
}

/// Does the link that `request` describes.
fn link(ledger: &Ledger, request: &LinkRequest, session: &Session, ld_first: bool) -> Result<()> {
    let background = Background::new(request, session);
    let result = stages(ledger, request, &background, session, ld_first);
    if request.dry_run && result.is_ok() {
        session.tell_of_removed_files();
    }
    background.finish();
    result
}

fn stages(ledger: &Ledger, request: &LinkRequest, background: &Background<'_>, session: &Session, ld_first: bool) -> Result<()> {
    let linker = if request.emit_fatbin_only { PathBuf::new() } else { host::linker(request, ld_first)? };
    // Written first, so that a link that fails later can be reproduced elsewhere (`--reproduce`).
    steps::write_reproduction(ledger, request, &linker)?;

    // The linked images, each in a file; none if there is no device code, or another wrapper has registered it.
    let images = match request.override_images.as_slice() {
        [] => device_images(ledger, request, &linker, background, session)?,
        options => DeviceCode::Linked(override_images(options, ledger, request, &linker, session)?),
    };
    let images = match images {
        DeviceCode::Linked(images) => images,
        DeviceCode::None(_) if request.emit_fatbin_only => return payload::emit(&[], out_name(request), session),
        DeviceCode::None(endings) => {
            return steps::plain_link(ledger, background.take_linker(), request, &linker, &endings, session);
        }
    };
    session.signals.check()?;

    // The images in the containers that their runtimes read.
    let bundling = session.trace.span(span::BUNDLE, 0);
    let bundle = BundleContext::new(request, &out_base(request), &images.host_triple, &background.cache);
    let payloads = payload::bundle(&images.linked, &bundle, session)?;
    drop(bundling);
    if request.emit_fatbin_only {
        return payload::emit(&payloads, out_name(request), session);
    }

    // Host objects that hold the images and register them when the program starts. LLVM is not needed after that.
    let registering = session.trace.span(span::WRAP, 0);
    let (triple, sycl, compiler) = (&images.host_triple, images.sycl, images.device_compiler);
    let context =
        || RegisterContext::new(request, out_name(request), triple, sycl, compiler, &background.llvm, &background.cache);
    if images.late {
        let context = RegisterContext { late: true, ..context() };
        let (runtime, inputs, output) = (images.runtime.clone(), images.host_inputs.clone(), out_name(request));
        let link = HostLink { ledger, request, linker: &linker, output, context, runtime, inputs, trace_line: 0 };
        if link.finish(images.unfilled, &payloads, || background.take_linker(), session)? {
            return Ok(());
        }
    }
    let objects = register::make(&payloads, &context(), session)?;
    background.llvm.dismiss();
    drop(registering);

    // The user's host link, with those objects added.
    let additions = host::additions(request, &linker, &images.host_triple, &objects);
    let endings = host::endings(request, images.runtime);
    let mut line = host::command(ledger, &linker, &additions, &endings);
    line.inputs = images.host_inputs;
    background.use_spare_processors();
    steps::host_link(&line, background.take_linker(), &register::tables(&payloads), request, session)
}

/// What there is of device code.
enum DeviceCode {
    Linked(Images),
    /// Nothing to link; arguments that the host link lacks for images which an input registers.
    None(Vec<OsString>),
}

/// The linked images, and what the later stages need to know about the inputs.
struct Images {
    linked: Vec<Linked>,
    host_triple: String,
    /// What SYCL's runtime is handed.
    sycl: sycl::Registration,
    /// The major version of the device compiler, if there was one and it is known.
    device_compiler: Option<u32>,
    /// Arguments that the host link lacks for the OpenMP runtime.
    runtime: Vec<OsString>,
    /// The host link's inputs, for error reports.
    host_inputs: Vec<String>,
    /// Whether the images are put into the program after its link.
    late: bool,
    /// That program, if it was linked beside the images.
    unfilled: Option<Unfilled>,
}

/// The images of `--override-image`; the inputs are not read.
fn override_images(
    options: &[(String, PathBuf)],
    ledger: &Ledger,
    request: &LinkRequest,
    linker: &Path,
    session: &Session,
) -> Result<Images> {
    session.signals.watch();
    let host_triple = host::triple(request, &[])?;
    steps::check_host(request, &host_triple)?;
    let linked = device::override_images(options)?;
    let sycl = steps::sycl_of_linked(request, &linked)?;
    let described: Vec<_> = linked.iter().map(|image| (image.kinds, image.generation)).collect();
    let late = late::wanted(
        &Asked {
            ledger,
            request,
            linker,
            host_triple: &host_triple,
            output: out_name(request),
            groups: &payload::groups(&described),
            sycl,
            device_bytes: linked.iter().filter_map(|image| std::fs::metadata(&image.path).ok()).map(|meta| meta.len()).sum(),
        },
        session,
    )?;
    let (runtime, host_inputs) = (Vec::new(), Vec::new());
    Ok(Images { linked, host_triple, sycl, device_compiler: None, runtime, host_inputs, late, unfilled: None })
}

/// Links the device code of the inputs; none if there is no device code, or it is registered already.
fn device_images(
    ledger: &Ledger,
    request: &LinkRequest,
    linker: &Path,
    background: &Background<'_>,
    session: &Session,
) -> Result<DeviceCode> {
    // The contents of every file that the command line names, archives as their members.
    let extract = session.trace.span(span::EXTRACT, 0);
    let search = search(request);
    // The host linker is started as soon as there is something to register, or much to look through, so that it loads while everything
    // else is done.
    let mut starter = background.linker_starter(ledger, linker);
    let specs = input_specs(request, &search);
    starter.expect(specs.len());
    let inputs = inputs::open(&specs, &search, &mut |kind, data| starter.look(kind, data))?;

    // Every device image in the inputs. After this, only the symbol tables of the user's files are read.
    let found = scan::scan(&inputs)?;
    if found.is_empty() {
        drop(found);
        // A compiler that calls its wrapper expects device code, so it is worth looking for some that is not in reach.
        if request.role == Role::Wrapper && scan::has_hip_wrapper(&inputs) {
            steps::warn_of_old_hip(&inputs, &scan::host_facts(&inputs, false)?, session);
        }
        let endings = steps::late_runtime(request, &inputs, session)?;
        // The host linker replaces this process soon, which frees all at once: thousands of members one by one take longer.
        std::mem::forget(inputs);
        return Ok(DeviceCode::None(endings));
    }
    // Symbol tables of archive members are needed if one has device code, and in `ld.offld` to find calls of the OpenMP runtime.
    let members = request.role == Role::Ld || found.iter().any(|image| inputs.objects[image.input_object].lazy);
    let facts = scan::host_facts(&inputs, members)?;
    if host::wrapper_object(&facts, &inputs).is_some() {
        steps::warn_if_wrapped(request, &facts, &inputs, session);
        return Ok(DeviceCode::None(Vec::new()));
    }
    steps::warn_of_old_hip(&inputs, &facts, session);
    session.signals.watch();

    // One device link for each image of the program, in the order in which they are registered.
    let host_code = steps::host_code(request, &inputs, &found, &facts)?;
    let jobs = steps::select(request, linker, &inputs, &found, &host_code, &facts, session)?;
    if jobs.is_empty() {
        return Ok(DeviceCode::None(Vec::new()));
    }
    background.check_setting()?;
    let host_triple = host::triple(request, &facts)?;
    steps::check_host(request, &host_triple)?;
    drop(extract);
    let selected = Selected { inputs: &inputs, found: &found, facts: &facts, jobs, host_triple };
    linked_images((ledger, request, linker), selected, starter.start(), background, session).map(DeviceCode::Linked)
}

/// The device links that a link needs, and what they were found by.
struct Selected<'a> {
    inputs: &'a Inputs,
    found: &'a [DeviceImage<'a>],
    facts: &'a [HostFacts<'a>],
    jobs: Vec<DeviceJob<'a>>,
    host_triple: String,
}

/// Does the device links, and where the images come late, the host link beside them. `preload_args`: what the host linker is started
/// with ahead of its time.
fn linked_images(
    (ledger, request, linker): (&Ledger, &LinkRequest, &Path),
    selected: Selected<'_>,
    preload_args: Option<Vec<OsString>>,
    background: &Background<'_>,
    session: &Session,
) -> Result<Images> {
    let Selected { inputs, found, facts, jobs, host_triple } = selected;
    // The OpenMP runtime for the host link, and the libraries that device code for CPUs may be linked with.
    let _device = session.trace.span(span::DEVICE, 0);
    let compiler = steps::compiler(request, &jobs, session)?;
    let sycl = steps::sycl(request, &jobs, &compiler)?;
    let runtime = steps::runtime(request, inputs, facts, &jobs, &compiler, session)?;
    let mut libraries = device::host_libraries(request, inputs, found, linker);
    libraries.extend(device::added_libraries(&runtime));

    // Meanwhile the registration code is looked for, and generated where it is missing, and the host linker loads if it does not yet.
    let late_args = preload_args.clone();
    let described: Vec<_> = jobs.iter().map(|job| (job.kinds, job.generation)).collect();
    let groups = payload::groups(&described);
    let registration = || {
        RegisterContext::new(request, out_name(request), &host_triple, sycl, compiler.major, &background.llvm, &background.cache)
    };
    let device_bytes = jobs.iter().flat_map(|job| &job.inputs).map(|input| input.bytes.len() as u64).sum();
    let (output, triple) = (out_name(request), &host_triple);
    let late = late::wanted(
        &Asked { ledger, request, linker, host_triple: triple, output, groups: &groups, sycl, device_bytes },
        session,
    )?;
    let is_beside = late && late::can_be_beside(request, &groups);

    // The device links themselves.
    let context = DeviceContext {
        request,
        compiler: &compiler,
        host_triple: &host_triple,
        host_linker: linker,
        preload_args,
        libraries: &libraries,
        out_base: out_base(request),
        cache: &background.cache,
        while_running: &|| {
            background.while_linking(|| {
                if !is_beside {
                    register::begin(&groups, &RegisterContext { late, ..registration() });
                    background.start_late_linker(linker, late_args.as_ref());
                }
            });
        },
    };
    let missing_runtime = |target: &Target| device::missing_runtime(target, &context);
    let device_links = || {
        let linked = device::link(&jobs, &context, session);
        linked.map_err(|error| steps::with_hints(error, &jobs, facts, inputs, &missing_runtime))
    };
    let host_inputs = host::input_names(inputs);
    let (unfilled, linked) = if is_beside {
        let registration = RegisterContext { late, ..registration() };
        let (runtime, inputs, trace_line) = (runtime.clone(), host_inputs.clone(), jobs.len() + 1);
        let link = HostLink { ledger, request, linker, output, context: registration, runtime, inputs, trace_line };
        let host_link = || link.run(&late::payloads_of(&groups), || background.take_linker(), session);
        let (program, linked) = late::beside(session, host_link, device_links)?;
        (Some(program), linked)
    } else {
        (None, device_links()?)
    };
    let device_compiler = compiler.major;
    Ok(Images { linked, host_triple, sycl, device_compiler, runtime, host_inputs, late, unfilled })
}

// They start `offld-llvm` by its place, which a build without it does not have.
#[cfg(feature = "with-llvm")]
#[cfg(test)]
mod tests;
