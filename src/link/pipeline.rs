//! Stages of a link in order, on one page. Each stage takes the previous results by reference and
//! returns a new value, which is not changed afterwards. `background` has the work that runs in
//! parallel with the stages, `steps` the steps that need more than one call.

mod background;
mod kernels;
mod late;
mod line_inputs;
mod reading_order;
mod steps;

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::args::request::LinkRequest;
use crate::args::{ArgumentList, Role};
pub(crate) use crate::link::device::DistributorRequest;
use crate::link::device::{self, DeviceContext, Linked};
use crate::link::host::{self, Done};
use crate::link::inputs::{self, Inputs};
use crate::link::payload::{self, BundleContext};
use crate::link::register::{self, RegisterContext};
use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::link::select::DeviceJob;
use crate::registration::{self, sycl};
use crate::sys::launcher::Launcher;
use crate::sys::session::{self, Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::sys::trace::span;
use crate::target::Target;
use background::Background;
use late::{Asked, HostLink, Unfilled};
use line_inputs::{check_shown, input_specs, out_base, out_name, search};

/// Runs the link that `ledger` describes in a session of its own. `ld_first`: look for `ld` as the
/// host linker before `ld.lld`. `embedded`: offld runs as a library in another process (see
/// [`SessionOptions`]).
pub(crate) fn run(
    ledger: &ArgumentList,
    shell: &Arc<Shell>,
    ld_first: bool,
    embedded: bool,
) -> Result<()> {
    let mut request = LinkRequest::new(ledger)?;
    request.verbose |= Session::env(session::OFFLD_VERBOSE).is_some_and(|value| value != "0");
    // A dry run prints the same commands on every machine.
    let launcher = if request.dry_run {
        None
    } else {
        Launcher::new(&request.launching, request.verbose)?
    };
    let options = SessionOptions {
        dry_run: request.dry_run,
        verbose: request.verbose,
        save_temps: request.save_temps,
        kept_in: if request.saves_temps_beside_output() {
            host::folder_of(out_name(&request)).to_path_buf()
        } else {
            PathBuf::new()
        },
        time_trace: request
            .time_trace
            .clone()
            .or_else(|| trace_in_directory(&request)),
        time_trace_granularity: request.time_trace_granularity,
        embedded,
        temp_folder: launcher
            .as_ref()
            .map(|_| Launcher::temp_folder(out_name(&request))),
    };
    let session = Session {
        launcher,
        ..Session::new(Arc::clone(shell), options)
    };
    let whole = session.trace.span(span::WHOLE, 0);
    let result = link(ledger, &request, &session, ld_first);
    drop(whole);
    // A failed link gets a trace as well.
    let traced = write_trace(&request, &session);
    result.and(traced)
}

fn write_trace(request: &LinkRequest, session: &Session) -> Result<()> {
    if request.time_trace.is_none()
        && let Some(folder) = Session::env(session::OFFLD_TIME_TRACE)
    {
        if !session.trace.has_device_links() {
            return Ok(());
        }
        std::fs::create_dir_all(&folder).with_context(|| {
            format!(
                "{}: cannot create the directory `{}`",
                session::OFFLD_TIME_TRACE,
                folder.display()
            )
        })?;
    }
    session.trace.write()
}

/// Returns the path of the link's time trace in the directory that `OFFLD_TIME_TRACE` names. The
/// name contains a hash of the output's absolute path, so each output has its own trace.
fn trace_in_directory(request: &LinkRequest) -> Option<PathBuf> {
    let folder = PathBuf::from(Session::env(session::OFFLD_TIME_TRACE)?);
    let output = out_name(request);
    let place = std::path::absolute(output).unwrap_or_else(|_| output.to_path_buf());
    let name = output.file_name().unwrap_or_default().display();
    Some(folder.join(format!(
        "{name}-{:016x}.json",
        xxh3_64(place.as_os_str().as_bytes())
    )))
}

/// Returns the list of LLVM's options if the arguments ask for it, such as `-mllvm --help`. They
/// then ask for no link.
pub(crate) fn llvm_help(ledger: &ArgumentList) -> Result<Option<String>> {
    // Most command lines pass no options to LLVM, and do not need to be parsed a second time.
    if !ledger.tokens().iter().any(|token| token == "-mllvm") {
        return Ok(None);
    }
    steps::llvm_help(&LinkRequest::new(ledger)?)
}

/// Compiles the translation units of a ThinLTO link, for the ld.lld that started this process.
pub(crate) fn distribute(request: &DistributorRequest, shell: &Arc<Shell>) -> Result<()> {
    device::distribute(request, shell)
}

/// Runs the link that `request` describes.
fn link(
    ledger: &ArgumentList,
    request: &LinkRequest,
    session: &Session,
    ld_first: bool,
) -> Result<()> {
    let background = Background::new(request, session);
    let result = stages(ledger, request, &background, session, ld_first);
    if request.dry_run && result.is_ok() {
        session.tell_of_removed_files();
    }
    background.finish();
    result
}

fn stages(
    ledger: &ArgumentList,
    request: &LinkRequest,
    background: &Background<'_>,
    session: &Session,
    ld_first: bool,
) -> Result<()> {
    let linker = if request.emit_fatbin_only {
        PathBuf::new()
    } else {
        host::linker(request, ld_first)?
    };
    // Written first, so that a link that fails later can be reproduced elsewhere (`--reproduce`).
    steps::write_reproduction(ledger, request, &linker)?;

    // The linked images, each in a file. There are no images without device code, or if another
    // wrapper has registered it.
    let images = match request.override_images.as_slice() {
        [] => device_images(ledger, request, &linker, background, session)?,
        options => DeviceCode::Linked(Box::new(override_images(
            options, ledger, request, &linker, session,
        )?)),
    };
    let images = match images {
        DeviceCode::Linked(images) => *images,
        DeviceCode::None(_) if request.emit_fatbin_only => {
            return payload::emit(&[], out_name(request), session);
        }
        DeviceCode::None(endings) => {
            return steps::plain_link(
                ledger,
                background.take_linker(),
                request,
                &linker,
                &endings,
                session,
            );
        }
    };
    session.signals.check()?;

    // The images in the containers that their runtimes read.
    let bundling = session.trace.span(span::BUNDLE, 0);
    let bundle = BundleContext::new(
        request,
        &out_base(request),
        &images.host_triple,
        background.caching.cache().ok(),
    );
    let payloads = payload::bundle(&images.linked, &bundle, session)?;
    drop(bundling);
    if request.emit_fatbin_only {
        return payload::emit(&payloads, out_name(request), session);
    }

    // Host objects that contain the images and register them when the program starts. Later steps
    // do not need LLVM.
    let registering = session.trace.span(span::WRAP, 0);
    let (triple, sycl, compiler) = (&images.host_triple, images.sycl, images.device_compiler);
    let context = || {
        RegisterContext::new(
            request,
            out_name(request),
            triple,
            sycl,
            compiler,
            &background.llvm,
            background.caching.cache().ok(),
        )
    };
    let context = || RegisterContext {
        protection: images.protection,
        ..context()
    };
    if images.late {
        let context = RegisterContext {
            late: true,
            ..context()
        };
        let (runtime, inputs, output) = (
            images.runtime.clone(),
            images.host_inputs.clone(),
            out_name(request),
        );
        let link = HostLink {
            ledger,
            request,
            linker: &linker,
            output,
            context,
            runtime,
            inputs,
            trace_line: 0,
        };
        if link.finish(
            images.unfilled,
            &payloads,
            || background.take_linker(),
            session,
        )? {
            return Ok(());
        }
    }
    let objects = register::make(&payloads, &context(), session)?;
    background.llvm.dismiss();
    drop(registering);

    // The user's host link, with the registration objects added.
    let additions = host::additions(request, &linker, &images.host_triple, &objects);
    let endings = host::endings(request, images.runtime);
    let mut line = host::command(ledger, &linker, &additions, &endings);
    line.inputs = images.host_inputs;
    background.use_spare_processors();
    let output = out_name(request);
    let done = Done {
        ledger,
        request,
        linker: &linker,
        objects: &objects,
        output,
        written: output,
    };
    steps::host_link(
        &line,
        background.take_linker(),
        &register::tables(&payloads),
        &done,
        session,
    )
}

/// The device code of a link.
enum DeviceCode {
    Linked(Box<Images>),
    /// Nothing to link, with the arguments that the host link lacks for images that an input
    /// registers.
    None(Vec<OsString>),
}

/// The linked images and the facts about the inputs that later stages need.
struct Images {
    linked: Vec<Linked>,
    host_triple: String,
    /// The control-flow protection of the host objects.
    protection: u32,
    /// The data that the registration passes to SYCL's runtime.
    sycl: sycl::Registration,
    /// The major version of the device compiler, if it ran and its version is known.
    device_compiler: Option<u32>,
    /// Arguments that the host link lacks for the OpenMP runtime.
    runtime: Vec<OsString>,
    /// The inputs of the host link, for error reports.
    host_inputs: Vec<String>,
    /// Whether the images are written into the program after its link.
    late: bool,
    /// The program, if the host link ran in parallel with the device links.
    unfilled: Option<Unfilled>,
}

/// Returns the images of `--override-image`, without reading the inputs.
fn override_images(
    options: &[(String, PathBuf)],
    ledger: &ArgumentList,
    request: &LinkRequest,
    linker: &Path,
    session: &Session,
) -> Result<Images> {
    session.signals.watch();
    if request.dry_run {
        let search = search(request);
        check_shown(
            request,
            &inputs::open(&request.inputs, &search, &mut |_, _| {})?,
            &search,
            linker,
        )?;
    }
    let host_triple = host::triple(request, &[])?;
    steps::check_host(request, &host_triple)?;
    let linked = device::override_images(options)?;
    let sycl = steps::sycl_of_linked(request, &linked)?;
    let described: Vec<_> = linked
        .iter()
        .map(|image| (image.kinds, image.generation))
        .collect();
    let late = late::wanted(
        &Asked {
            ledger,
            request,
            linker,
            host_triple: &host_triple,
            output: out_name(request),
            inputs: &line_inputs::files(request),
            groups: &payload::groups(&described),
            sycl,
            device_bytes: linked
                .iter()
                .filter_map(|image| std::fs::metadata(&image.path).ok())
                .map(|meta| meta.len())
                .sum(),
        },
        session,
    )?;
    let (runtime, host_inputs) = (Vec::new(), Vec::new());
    // The inputs are not read, so the objects claim every protection: a linker gives a program only
    // the protections that all of its objects claim.
    let protection = registration::host::whole_protection(&host_triple);
    Ok(Images {
        linked,
        host_triple,
        protection,
        sycl,
        device_compiler: None,
        runtime,
        host_inputs,
        late,
        unfilled: None,
    })
}

/// Links the device code of the inputs. There are no images without device code, or if it is
/// registered already.
fn device_images(
    ledger: &ArgumentList,
    request: &LinkRequest,
    linker: &Path,
    background: &Background<'_>,
    session: &Session,
) -> Result<DeviceCode> {
    // The contents of every file that the command line names, with archives as their members.
    let extract = session.trace.span(span::EXTRACT, 0);
    let search = search(request);
    // The host linker starts as soon as there is device code, or if there are many inputs to
    // search. It loads while everything else runs.
    let mut starter = background.linker_starter(ledger, linker);
    let specs = input_specs(request, &search);
    starter.expect(specs.len());
    let inputs = inputs::open(&specs, &search, &mut |kind, data| starter.look(kind, data))?;
    check_shown(request, &inputs, &search, linker)?;

    // Every device image in the inputs. After this, only symbol tables of the user's files are
    // read.
    let found = scan::scan(&inputs)?;
    if found.is_empty() {
        drop(found);
        // Look for device code that this link does not find. Relocatable output of a linker is
        // different: another link adds the device code.
        let complete = request.role == Role::Wrapper || !request.relocatable;
        if complete && scan::has_hip_wrapper(&inputs) {
            steps::warn_of_old_hip(
                request,
                &inputs,
                &scan::host_facts(&inputs, false)?,
                session,
            );
        }
        let endings = steps::late_runtime(request, &inputs, session)?;
        // The host linker replaces this process soon, which frees all memory at once. Freeing
        // thousands of members one by one is slower.
        std::mem::forget(inputs);
        return Ok(DeviceCode::None(endings));
    }
    // Symbol tables of archive members are needed if a member has device code, and in `ld.offld` to
    // find calls of the OpenMP runtime.
    let members = request.role == Role::Ld
        || found
            .iter()
            .any(|image| inputs.objects[image.input_object].lazy);
    let facts = scan::host_facts(&inputs, members)?;
    if host::wrapper_object(&facts, &inputs).is_some() {
        steps::warn_if_wrapped(request, &facts, &inputs, session);
        return Ok(DeviceCode::None(Vec::new()));
    }
    steps::warn_of_old_hip(request, &inputs, &facts, session);
    session.signals.watch();

    // One device link for each image of the program, in the order of registration.
    let host_code = steps::host_code(request, &inputs, &found, &facts)?;
    let jobs = steps::select(
        request, linker, &inputs, &found, &host_code, &facts, session,
    )?;
    if jobs.is_empty() {
        return Ok(DeviceCode::None(Vec::new()));
    }
    background.check_setting()?;
    let host_triple = host::triple(request, &facts)?;
    steps::check_host(request, &host_triple)?;
    drop(extract);
    let selected = Selected {
        inputs: &inputs,
        found: &found,
        facts: &facts,
        jobs,
        host_triple,
    };
    let images = linked_images(
        (ledger, request, linker),
        selected,
        starter.start(),
        background,
        session,
    )?;
    Ok(DeviceCode::Linked(Box::new(images)))
}

/// The required device links, with the facts that selected them.
struct Selected<'a> {
    inputs: &'a Inputs,
    found: &'a [DeviceImage<'a>],
    facts: &'a [HostFacts<'a>],
    jobs: Vec<DeviceJob<'a>>,
    host_triple: String,
}

/// Runs the device links, and for late images the host link in parallel with them. `preload_args`:
/// the arguments for starting the host linker early.
fn linked_images(
    (ledger, request, linker): (&ArgumentList, &LinkRequest, &Path),
    selected: Selected<'_>,
    preload_args: Option<Vec<OsString>>,
    background: &Background<'_>,
    session: &Session,
) -> Result<Images> {
    let Selected {
        inputs,
        found,
        facts,
        mut jobs,
        host_triple,
    } = selected;
    // The OpenMP runtime for the host link, and the libraries that CPU device code may be linked
    // with.
    let _device = session.trace.span(span::DEVICE, 0);
    let tables = kernels::Tables::read(inputs, &mut jobs);
    let compiler = steps::compiler(request, &jobs, session)?;
    let sycl = steps::sycl(request, &jobs, &compiler)?;
    let runtime = steps::runtime(request, inputs, facts, &jobs, &compiler, session)?;
    let mut libraries = device::host_libraries(request, inputs, found, linker);
    libraries.extend(device::added_libraries(&runtime));

    // The device links run in parallel with two steps: registration code is looked up or generated,
    // and the host linker loads.
    let late_args = preload_args.clone();
    let described: Vec<_> = jobs.iter().map(|job| (job.kinds, job.generation)).collect();
    let groups = payload::groups(&described);
    let protection = steps::protection(&jobs, facts, inputs, &host_triple);
    let (output, triple, llvm, cache) = (
        out_name(request),
        &host_triple,
        &background.llvm,
        background.caching.cache().ok(),
    );
    let registration = || RegisterContext {
        protection,
        ..RegisterContext::new(request, output, triple, sycl, compiler.major, llvm, cache)
    };
    let device_bytes = jobs
        .iter()
        .flat_map(|job| &job.inputs)
        .map(|input| input.bytes.len() as u64)
        .sum();
    let files: Vec<&Path> = inputs
        .files
        .iter()
        .map(|file| file.path.as_path())
        .collect();
    let late = late::wanted(
        &Asked {
            ledger,
            request,
            linker,
            host_triple: triple,
            output,
            inputs: &files,
            groups: &groups,
            sycl,
            device_bytes,
        },
        session,
    )?;
    let is_beside = late && late::can_be_beside(request, &groups);

    // The device links.
    let context = DeviceContext {
        request,
        compiler: &compiler,
        host_triple: &host_triple,
        host_linker: linker,
        preload_args,
        libraries: &libraries,
        out_base: out_base(request),
        caching: &background.caching,
        while_running: &|| {
            background.while_linking(|| {
                if !is_beside {
                    register::begin(
                        &groups,
                        &RegisterContext {
                            late,
                            ..registration()
                        },
                    );
                    background.start_late_linker(linker, late_args.as_ref());
                }
            });
        },
    };
    let missing_runtime = |target: &Target| device::missing_runtime(target, &context);
    let device_links = || {
        if !request.relocatable && device::leave_symbols_open(&libraries) {
            steps::expect_device_code(&jobs, facts, inputs)?;
        }
        let linked = device::link(&jobs, &context, session);
        linked.map_err(|error| {
            steps::with_hints(error, (&jobs, found, facts), inputs, &missing_runtime)
        })
    };
    let host_inputs = host::input_names(inputs);
    let (unfilled, linked) = if is_beside {
        let registration = RegisterContext {
            late,
            ..registration()
        };
        let (runtime, inputs, trace_line) = (runtime.clone(), host_inputs.clone(), jobs.len() + 1);
        let link = HostLink {
            ledger,
            request,
            linker,
            output,
            context: registration,
            runtime,
            inputs,
            trace_line,
        };
        let host_link = || {
            link.run(
                &late::payloads_of(&groups),
                || background.take_linker(),
                session,
            )
        };
        let (program, linked) = late::beside(session, host_link, device_links)?;
        (Some(program), linked)
    } else {
        (None, device_links()?)
    };
    tables.warn_of_missing(&jobs, &linked, inputs, request, session);
    let device_compiler = compiler.major;
    Ok(Images {
        linked,
        host_triple,
        protection,
        sycl,
        device_compiler,
        runtime,
        host_inputs,
        late,
        unfilled,
    })
}

// The tests start `offld-llvm` by its path, and a build without LLVM does not have it.
#[cfg(feature = "with-llvm")]
#[cfg(test)]
mod tests;
