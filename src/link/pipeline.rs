//! A link, on one page. Each stage takes the previous stage's value by reference and returns a new one; nothing is changed
//! afterwards.

mod named;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Result, bail};

use crate::args::request::LinkRequest;
use crate::args::{Ledger, Role, link_exe, response};
use crate::formats::bitcode_ident;
use crate::formats::magic::Magic;
use crate::link::device::{self, DeviceContext, Linked};
use crate::link::host;
use crate::link::inputs::search::Naming;
use crate::link::inputs::{self, Inputs};
use crate::link::payload::{self, BundleContext, Payload};
use crate::link::register::warm_up::WarmUp;
use crate::link::register::{self, WrapContext};
use crate::link::reproduce;
use crate::link::scan::{self, DeviceImage, HostFacts, Machine};
use crate::link::select::{self, DeviceJob, SelectOptions};
use crate::model::ObjectFormat;
use crate::store::{Cache, settings};
use crate::sys::run::{Cmd, Waiting};
use crate::sys::session::Session;
use crate::sys::toolchain;
use crate::sys::toolchain::Compiler;
use crate::sys::trace::span;
use named::{inputs_of, search};

/// Hands a link without device code to the host linker in place of this process, and then does not return. It returns when there is
/// device code, or telling takes LLVM, with the inputs for [`link`]; or when something is wrong that that will report.
pub fn replace_if_plain(ledger: &Ledger, request: &LinkRequest, session: &Session, ld_first: bool) -> Result<Inputs> {
    let linker = host::linker(request, ld_first)?;
    let search = search(request);
    let inputs = inputs::open(&inputs_of(request, &search), &search)?;
    if !inputs.objects.iter().any(|input_object| input_object.kind == Magic::Bitcode) && !scan::has_images(&inputs) {
        let line = host::command(ledger, &linker, &[], &[]);
        // A long line takes a response file, which somebody has to outlive: `link` does that.
        if !response::needs_spill(&line.args) {
            session.runner.replace(&line)?;
        }
    }
    Ok(inputs)
}

/// Links what `request` asks for. `opened`: its inputs, if they are open already. `ld_first`: the real linker to look for is `ld` rather
/// than `ld.lld`.
pub fn link(ledger: &Ledger, request: &LinkRequest, opened: Option<Inputs>, session: &Session, ld_first: bool) -> Result<()> {
    let cache = cache(request, session);
    let result = link_with(&cache, ledger, request, opened, session, ld_first);
    // What is still on its way into the cache was done beside the host link.
    if let Ok(cache) = &cache {
        cache.finish_unless(&|| session.signals.check().is_err());
    }
    result
}

/// Where device links are kept, or why they are not.
fn cache(request: &LinkRequest, session: &Session) -> std::result::Result<Arc<Cache>, String> {
    let setting = settings::resolve(request.cache.as_deref());
    let root = setting.root.ok_or_else(|| setting.why_off.unwrap_or_default())?;
    let shell = Arc::clone(&session.shell);
    let cache = Cache::open(&root, setting.limit, Arc::new(move |trouble| shell.warn(trouble)));
    Ok(Arc::new(cache.map_err(|error| format!("{error:#}"))?))
}

fn link_with(
    cache: &std::result::Result<Arc<Cache>, String>,
    ledger: &Ledger,
    request: &LinkRequest,
    opened: Option<Inputs>,
    session: &Session,
    ld_first: bool,
) -> Result<()> {
    let linker = if request.emit_fatbin_only { PathBuf::new() } else { host::linker(request, ld_first)? };
    // Whatever goes wrong from here on can be repeated elsewhere, if that was asked for.
    write_reproduction(ledger, request, &linker)?;

    // The host linker loads while others work, and then waits for its line.
    let mut waiting = None;
    let mut device_code_is_there = || {
        let words = host::first_words(ledger, &linker).filter(|_| !request.emit_fatbin_only);
        waiting = words.as_ref().and_then(|words| session.runner.prepare(&linker, words, false));
        words
    };

    // Linked images, each in a file, or nothing to do for us.
    let device = match request.override_images.as_slice() {
        [] => device_code(cache, request, opened, &linker, &mut device_code_is_there, session)?,
        options => {
            session.signals.watch();
            Some(DeviceCode::given(options, request)?)
        }
    };
    let Some(device) = device else {
        return if request.emit_fatbin_only {
            payload::emit(&[], out_name(request), session)
        } else {
            plain_link(ledger, request, &linker, session)
        };
    };
    session.signals.check()?;

    // The images as their runtimes want them.
    let payloads = bundled(&device, request, session)?;
    if request.emit_fatbin_only {
        return payload::emit(&payloads, out_name(request), session);
    }

    // Host objects that hold the images and register them when the program starts.
    let objects = registered(&payloads, &device.host_triple, request, session)?;

    // The user's own link, with those objects in it.
    let additions = host::additions(request, &linker, &device.host_triple, &objects);
    let endings = host::endings(request, device.runtime);
    let mut line = host::command(ledger, &linker, &additions, &endings);
    line.inputs = device.host_inputs;
    host_link_to_the_end(&line, waiting, request, session)
}

fn write_reproduction(ledger: &Ledger, request: &LinkRequest, linker: &Path) -> Result<()> {
    let search = search(request);
    reproduce::write(&reproduce::Link { ledger, request, inputs: &|| inputs_of(request, &search), search: &search, linker })
}

/// What the inputs come to: the linked images, and what the later stages need to know of the inputs.
struct DeviceCode {
    linked: Vec<Linked>,
    host_triple: String,
    /// What the host line lacks for the runtime.
    runtime: Vec<OsString>,
    /// The host link's inputs, for its report.
    host_inputs: Vec<String>,
}

impl DeviceCode {
    /// Images of `--override-image`: the inputs are not looked at.
    fn given(options: &[(String, PathBuf)], request: &LinkRequest) -> Result<Self> {
        let host_triple = host::triple(request, &[])?;
        check_host(request, &host_triple)?;
        Ok(DeviceCode { linked: device::given(options)?, host_triple, runtime: Vec::new(), host_inputs: Vec::new() })
    }
}

/// From the inputs to linked images; none when there is no device code, or it is registered already.
fn device_code(
    cache: &std::result::Result<Arc<Cache>, String>,
    request: &LinkRequest,
    opened: Option<Inputs>,
    linker: &Path,
    on_device_code: &mut dyn FnMut() -> Option<Vec<OsString>>,
    session: &Session,
) -> Result<Option<DeviceCode>> {
    // Every file the line names, as bytes; archives are spread into members. What the host linker reads, we have seen.
    let extract = session.trace.span(span::EXTRACT, 0);
    let search = search(request);
    let inputs = opened.map_or_else(|| inputs::open(&inputs_of(request, &search), &search), Ok)?;

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
    let jobs = select(request, &inputs, &found, &facts, session)?;
    if jobs.is_empty() {
        return Ok(None);
    }
    let host_triple = host::triple(request, &facts)?;
    check_host(request, &host_triple)?;
    drop(extract);
    let first_words = on_device_code();

    // Linked images.
    let _device = session.trace.span(span::DEVICE, 0);
    let compiler = compiler(request, &jobs, session)?;
    let images: Vec<&DeviceImage<'_>> = jobs.iter().flat_map(|job| &job.inputs).copied().collect();
    let runtime = host::openmp_runtime(request, &inputs, &facts, &images, &search, &compiler)?;
    if let Some(warning) = &runtime.warning {
        session.shell.warn(warning);
    }
    let mut libraries = device::host_libraries(&request.inputs, &inputs, &found);
    libraries.extend(device::added_libraries(&runtime.words));
    let out_base = out_base(request);
    let warm_up = WarmUp::new(&host_triple);
    let context = DeviceContext {
        request,
        compiler: &compiler,
        host_triple: &host_triple,
        host_linker: linker,
        first_words,
        libraries: &libraries,
        out_base,
        cache,
        // LLVM gets ready while others work.
        on_first_job: &|| {
            if !request.dry_run {
                warm_up.start();
            }
        },
    };
    let linked = device::link(&jobs, &context, session)?;
    Ok(Some(DeviceCode { linked, host_triple, runtime: runtime.words, host_inputs: host::input_names(&inputs) }))
}

/// An error where images cannot be registered, before the work of linking them is done. A bundle by itself is for a device.
fn check_host(request: &LinkRequest, host_triple: &str) -> Result<()> {
    if request.emit_fatbin_only {
        return Ok(());
    }
    if request.relocatable && ObjectFormat::of(host_triple) == ObjectFormat::Coff {
        bail!("Relocatable linking is not supported on COFF targets");
    }
    register::check_host(host_triple)
}

/// The line as it is: there is nothing for us to do.
fn plain_link(ledger: &Ledger, request: &LinkRequest, linker: &Path, session: &Session) -> Result<()> {
    let line = host::command(ledger, linker, &[], &[]);
    let result = if request.time_trace.is_none() {
        session.runner.replace(&line)
    } else {
        let _host = session.trace.span(span::HOST, 0);
        session.runner.run(&line).map(drop)
    };
    whole_or_gone(result, request, session)
}

/// The host link, and after a relocatable one our own last step. Of a link that a signal or a full disk ends nothing is left.
fn host_link_to_the_end(line: &Cmd, waiting: Option<Waiting>, request: &LinkRequest, session: &Session) -> Result<()> {
    let mut host = session.trace.span(span::HOST, 0);
    let started = SystemTime::now();
    let mut result = session.runner.run_waiting(waiting, line).map(|(usage, _)| host.tell_usage(usage));
    if request.relocatable && result.is_ok() {
        result = session.runner.edit(out_name(request), &host::finish_relocatable);
        if result.is_err() {
            // Its entry tables still have names that a later link would take for its own.
            host::remove_partial(out_name(request));
        }
    }
    if result.is_err() {
        host::remove_linker_temps(out_name(request), started);
    }
    whole_or_gone(result, request, session)
}

/// `result`; after a signal, without what the linker left of the output.
fn whole_or_gone(result: Result<()>, request: &LinkRequest, session: &Session) -> Result<()> {
    if let Err(stopped) = session.signals.check() {
        host::remove_partial(out_name(request));
        // It may have come when the linker was done: without an output that is no success.
        return result.and(Err(stopped));
    }
    result
}

/// The compiler for the device links of `jobs`, and the warning that goes with the choice.
fn compiler(request: &LinkRequest, jobs: &[DeviceJob<'_>], session: &Session) -> Result<Compiler> {
    let choice = toolchain::device_compiler(request.offld_clang.as_deref(), producer(jobs))?;
    if let Some(warning) = &choice.warning {
        session.shell.warn(warning);
    }
    Ok(choice.compiler)
}

fn select<'a>(
    request: &LinkRequest,
    inputs: &Inputs,
    found: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    session: &Session,
) -> Result<Vec<DeviceJob<'a>>> {
    let lazy: Vec<bool> = inputs.objects.iter().map(|input_object| input_object.lazy).collect();
    let coff = facts.iter().any(|facts| matches!(facts.machine, Some(Machine::Coff(_))));
    let starts = (coff && !request.entry_is_named).then(link_exe::default_entries).into_iter().flatten();
    let options = SelectOptions {
        should_extract: request.should_extract.clone(),
        roots: request.undefined.iter().cloned().chain(starts).collect(),
        wrapped: request.wrapped_symbols.clone(),
        alternate_names: request.alternate_names.clone(),
        shared: if found.iter().any(|image| lazy[image.input_object]) { scan::shared_needs(inputs) } else { Vec::new() },
    };
    let origins: Vec<String> = inputs.objects.iter().map(|input_object| input_object.origin.to_string()).collect();
    let selection = select::select(found, facts, &lazy, &origins, &options)?;
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

fn bundled(device: &DeviceCode, request: &LinkRequest, session: &Session) -> Result<Vec<Payload>> {
    let _span = session.trace.span(span::BUNDLE, 0);
    payload::bundle(&device.linked, &BundleContext::new(request, &out_base(request), &device.host_triple), session)
}

fn registered(payloads: &[Payload], host_triple: &str, request: &LinkRequest, session: &Session) -> Result<Vec<PathBuf>> {
    let _span = session.trace.span(span::WRAP, 0);
    let context = WrapContext {
        host_triple,
        output: out_name(request),
        relocatable: request.relocatable,
        print: request.print_wrapped_module,
        keep_bitcode: request.save_temps,
    };
    register::make(payloads, &context, session)
}

/// The output's file name, the stem of temporary names.
fn out_base(request: &LinkRequest) -> String {
    out_name(request).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The output as the user named it.
fn out_name(request: &LinkRequest) -> &Path {
    let windows = host::naming(request) != Naming::Unix;
    request.output.as_deref().unwrap_or(Path::new(if windows { "a.exe" } else { "a.out" }))
}

#[cfg(all(test, feature = "llvm"))]
mod tests;
