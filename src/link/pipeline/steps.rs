//! Steps of the link that are more than one call of a stage: what the page would only be made longer by.

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Result, bail};

use super::named::{inputs_of, out_name, search};
use crate::args::request::LinkRequest;
use crate::args::{Ledger, link_exe};
use crate::formats::bitcode;
use crate::link::inputs::Inputs;
use crate::link::scan::{self, DeviceImage, HostFacts, Machine};
use crate::link::select::{self, DeviceJob, SelectOptions};
use crate::link::{host, reproduce};
use crate::model::ObjectFormat;
use crate::registration;
use crate::sys::run::{Cmd, PreloadedLinker};
use crate::sys::session::Session;
use crate::sys::toolchain::{self, Compiler};
use crate::sys::trace::span;

/// Writes the tar that repeats this link elsewhere, if one is asked for.
pub(super) fn write_reproduction(ledger: &Ledger, request: &LinkRequest, linker: &Path) -> Result<()> {
    let search = search(request);
    reproduce::write(&reproduce::Link { ledger, request, inputs: &|| inputs_of(request, &search), search: &search, linker })
}

/// An error where images cannot be registered, before the work of linking them is done. A bundle by itself is for a device.
pub(super) fn check_host(request: &LinkRequest, host_triple: &str) -> Result<()> {
    if request.emit_fatbin_only {
        return Ok(());
    }
    if request.relocatable && ObjectFormat::of(host_triple) == ObjectFormat::Coff {
        bail!("Relocatable linking is not supported on COFF targets");
    }
    registration::host::check(host_triple)
}

/// The line as it is: there is nothing for us to do.
pub(super) fn plain_link(ledger: &Ledger, request: &LinkRequest, linker: &Path, session: &Session) -> Result<()> {
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
pub(super) fn host_link(line: &Cmd, waiting: Option<PreloadedLinker>, request: &LinkRequest, session: &Session) -> Result<()> {
    let mut host = session.trace.span(span::HOST, 0);
    let started = SystemTime::now();
    let mut result = session.runner.run_preloaded(waiting, line).map(|(usage, _)| host.record_usage(usage));
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
pub(super) fn compiler(request: &LinkRequest, jobs: &[DeviceJob<'_>], session: &Session) -> Result<Compiler> {
    let choice = toolchain::device_compiler(request.offld_clang.as_deref(), producer(jobs))?;
    if let Some(warning) = &choice.warning {
        session.shell.warn(warning);
    }
    Ok(choice.compiler)
}

/// What the host line lacks for the OpenMP runtime; a warning where that runtime cannot do what the objects need.
pub(super) fn runtime(
    request: &LinkRequest,
    inputs: &Inputs,
    facts: &[HostFacts<'_>],
    jobs: &[DeviceJob<'_>],
    compiler: &Compiler,
    session: &Session,
) -> Result<Vec<OsString>> {
    let images: Vec<&DeviceImage<'_>> = jobs.iter().flat_map(|job| &job.inputs).copied().collect();
    let runtime = host::openmp_runtime(request, inputs, facts, &images, &search(request), compiler)?;
    if let Some(warning) = &runtime.warning {
        session.shell.warn(warning);
    }
    Ok(runtime.words)
}

/// One job for each image of the program; images that no runtime is known for are left out with a warning.
pub(super) fn select<'a>(
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
    inputs.filter_map(|input| bitcode::producer_major(&input.bytes)).max()
}
