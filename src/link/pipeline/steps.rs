//! Steps of the link that take more than one call, kept out of `pipeline` so that it stays short.

use std::ffi::OsString;
use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::line_inputs::{input_specs, out_name, search};
use super::reading_order::{loads, reading};
use crate::args::request::{LinkRequest, LlvmOption};
use crate::args::{Ledger, Role, link_exe};
use crate::error::{Silent, StepFailed};
use crate::formats::{bitcode, offload_binary};
use crate::io::bytes::Bytes;
use crate::link::device::Linked;
use crate::link::inputs::Inputs;
use crate::link::scan::{self, DeviceImage, HostFacts, Machine};
use crate::link::select::{self, DeviceJob, Reading, SelectOptions};

use crate::link::{host, reproduce};
use crate::model::{ObjectFormat, OffloadKind, printable_name};
use crate::registration::{self, sycl};
use crate::sys::run::{self, Cmd, PreloadedLinker};
use crate::sys::session::Session;
use crate::sys::shell;
use crate::sys::toolchain::{self, Compiler};
use crate::sys::trace::span;
use crate::target::Target;

/// `-mllvm --help` and the like ask for a list of LLVM's options and for no link: the answer of the compiler for device links.
pub(super) fn llvm_help(request: &LinkRequest) -> Result<Option<String>> {
    const LISTS: [&str; 4] = ["help", "help-hidden", "help-list", "help-list-hidden"];
    let asks = |option: &&LlvmOption| {
        let name = option.value().to_str().and_then(|text| text.strip_prefix("--").or(text.strip_prefix('-')));
        matches!(option, LlvmOption::Mllvm(_)) && name.is_some_and(|name| LISTS.contains(&name))
    };
    let Some(option) = request.llvm_options.iter().find(asks) else { return Ok(None) };
    let compiler = toolchain::device_compiler(request.offld_clang.as_deref(), None)?.compiler;
    let option = option.value().to_string_lossy();
    let args = ["-mllvm", option.as_ref(), "-x", "c", "-c", "/dev/null", "-o", "/dev/null"];
    let text = run::stdout_of(&compiler.path, &args);
    text.map(Some).with_context(|| format!("{} has no list of options for -mllvm {option}", compiler.path.display()))
}

/// Warns of host objects of HIP's old driver, whose device code no link but that driver's finds.
pub(super) fn warn_of_old_hip(inputs: &Inputs, facts: &[HostFacts<'_>], session: &Session) {
    if let Some(warning) = old_hip(inputs, facts) {
        session.shell.warn(&warning);
    }
}

fn old_hip(inputs: &Inputs, facts: &[HostFacts<'_>]) -> Option<String> {
    let is_fat_binary = |name: &[u8]| name == b"__hip_fatbin" || name.starts_with(b"__hip_fatbin_");
    let mut symbols =
        facts.iter().zip(&inputs.objects).filter(|(_, input_object)| !input_object.lazy).flat_map(|(facts, object)| {
            let needed = facts.undefined.iter().filter(|symbol| is_fat_binary(&symbol.name));
            needed.map(move |symbol| (symbol.name.as_ref(), object))
        });
    let defined = |name: &[u8]| facts.iter().any(|facts| facts.defined.iter().any(|symbol| symbol.name.as_ref() == name));
    let (name, object) = symbols.find(|(name, _)| !defined(name))?;
    Some(format!(
        "{} was compiled by HIP's old driver (-fgpu-rdc with --no-offload-new-driver): nothing here defines `{}`, its device code. Compile it \
         with --offload-new-driver, or let clang make the device code of all such objects with --hip-link --no-offload-new-driver",
        object.origin(),
        printable_name(name)
    ))
}

/// Writes the tar that reproduces this link elsewhere, if it was requested.
pub(super) fn write_reproduction(ledger: &Ledger, request: &LinkRequest, linker: &Path) -> Result<()> {
    let search = search(request);
    reproduce::write(&reproduce::LinkToReproduce {
        ledger,
        request,
        inputs: &|| input_specs(request, &search),
        search: &search,
        linker,
    })
}

/// An error if images cannot be registered for this host, before they are linked. `--emit-fatbin-only` registers none.
pub(super) fn check_host(request: &LinkRequest, host_triple: &str) -> Result<()> {
    if request.emit_fatbin_only {
        return Ok(());
    }
    if request.relocatable && ObjectFormat::of(host_triple) == ObjectFormat::Coff {
        bail!("Relocatable linking is not supported on COFF targets");
    }
    registration::host::check(host_triple)
}

/// The host link with the user's command line, and `endings` if an output of a relocatable link needs a library: by this process
/// itself, unless the linker runs already or a trace is wanted. An error of a linker that runs already is told by the linker alone,
/// as it is where this process becomes the linker.
pub(super) fn plain_link(
    ledger: &Ledger,
    preloaded: Option<PreloadedLinker>,
    request: &LinkRequest,
    linker: &Path,
    endings: &[OsString],
    session: &Session,
) -> Result<()> {
    let line = host::command(ledger, linker, &[], endings);
    let result = if preloaded.is_none() && request.time_trace.is_none() {
        session.runner.replace(&line)
    } else {
        let _host = session.trace.span(span::HOST, 0);
        let in_its_place = preloaded.is_some() && session.runner.can_be_replaced() && !request.verbose;
        let ran = session.runner.run_preloaded(preloaded, &line, &|| ()).map(drop);
        ran.map_err(|error| if in_its_place { told_by_linker(error) } else { error })
    };
    remove_output_if_stopped(result, request, session)
}

/// The host link, and for `-r` the edit of its output (`tables` get other names). A signal or a full disk leaves no partial output.
pub(super) fn host_link(
    line: &Cmd,
    preloaded: Option<PreloadedLinker>,
    tables: &[&str],
    request: &LinkRequest,
    session: &Session,
) -> Result<()> {
    let mut host = session.trace.span(span::HOST, 0);
    let started = SystemTime::now();
    let ran = session
        .runner
        .run_preloaded(preloaded, line, &|| ())
        .map_err(|error| if request.verbose { error } else { one_line(error) });
    let mut result = ran.map(|(usage, _)| host.record_usage(usage));
    if request.relocatable && result.is_ok() {
        let output = out_name(request);
        let shown = || Ok(host::objcopy_command(output, tables, request)?.into_iter().collect());
        result = session.runner.show_in_process(&shown).and_then(|()| session.runner.edit(output, &host::finish_relocatable));
        if result.is_err() {
            // Its entry tables still have their original names, which a later link would register again.
            host::remove_partial(out_name(request));
        }
    }
    if result.is_err() {
        host::remove_linker_temps(out_name(request), started);
    }
    remove_output_if_stopped(result, request, session)
}

/// The failure that `error` is, also that of a program which has ended for want of memory.
fn failed_step(error: &anyhow::Error) -> Option<&StepFailed> {
    error.chain().find_map(|cause| cause.downcast_ref())
}

/// The report of a host linker that has told of a fault in its line: without the command and its inputs, hundreds of words.
pub(super) fn one_line(error: anyhow::Error) -> anyhow::Error {
    match failed_step(&error) {
        Some(StepFailed { report, status }) if *status < 128 && ended_itself(report) => match report.split_once('\n') {
            Some((first, _)) => {
                StepFailed { report: format!("{first} (--wrapper-verbose shows its command)"), status: *status }.into()
            }
            _ => error,
        },
        _ => error,
    }
}

/// What is left to say of a linker that ended with an exit status of its own: that status.
fn told_by_linker(error: anyhow::Error) -> anyhow::Error {
    match failed_step(&error) {
        Some(StepFailed { report, status }) if *status < 128 && ended_itself(report) => Silent { status: *status }.into(),
        _ => error,
    }
}

/// Whether the report is that of a program that could be started and was not ended by a signal.
fn ended_itself(report: &str) -> bool {
    report.lines().next().is_some_and(|first| first.contains(" exited with status "))
}

/// The report of failed device links, with what is to be done about symbols that they left undefined.
pub(super) fn with_hints(
    error: anyhow::Error,
    jobs: &[DeviceJob<'_>],
    facts: &[HostFacts<'_>],
    inputs: &Inputs,
    runtime: &dyn Fn(&Target) -> Option<String>,
) -> anyhow::Error {
    let Some(StepFailed { report, status }) = error.downcast_ref::<StepFailed>() else { return error };
    let missing = select::undefined_but_on_the_host(jobs, facts);
    let mut hints: Vec<String> = missing
        .into_iter()
        .map(|missing| {
            format!(
                "`{}` is host code: {} defines it, for no device. Put it between `#pragma omp begin declare target` and `#pragma omp end declare \
                 target` (HIP and CUDA: `__device__`), and compile it with the options for offloading",
                printable_name(&missing.symbol),
                inputs.objects[missing.object].origin()
            )
        })
        .collect();
    hints.extend(jobs.iter().filter(|job| job.kinds.contains(OffloadKind::OpenMp)).filter_map(|job| runtime(&job.target)));
    if hints.is_empty() {
        return error;
    }
    hints.dedup();
    StepFailed { report: format!("{report}\n  {}", hints.join("\n  ")), status: *status }.into()
}

/// The arguments that a line without device code lacks for the runtime of images that an output of a relocatable link registers.
pub(super) fn late_runtime(request: &LinkRequest, inputs: &Inputs, session: &Session) -> Result<Vec<OsString>> {
    if request.role != Role::Ld || request.relocatable || !scan::has_registered(inputs) {
        return Ok(Vec::new());
    }
    let facts = scan::host_facts(inputs, true)?;
    // Without a compiler the line stays as it is: it may name all that it needs.
    let Ok(choice) = toolchain::device_compiler(request.offld_clang.as_deref(), None) else { return Ok(Vec::new()) };
    runtime(request, inputs, &facts, &[], &choice.compiler, session)
}

/// A warning if another wrapper has linked the device code before the linker `offld` was called, which clang does by itself when
/// its line has options for offloading.
pub(super) fn warn_if_wrapped(request: &LinkRequest, facts: &[HostFacts<'_>], inputs: &Inputs, session: &Session) {
    let Some(object) = host::wrapper_object(facts, inputs).filter(|_| request.role == Role::Ld) else { return };
    let folder = toolchain::folder_of_names().map(|folder| shell::quoted(folder.as_os_str()));
    let (before, folder) = folder.map_or(("run `offld links DIR`, and ", "DIR".to_owned()), |folder| ("", folder));
    session.shell.warn(&format!(
        "{object} registers device code already: another wrapper has linked it, as clang's own does on a line with options for offloading. offld only does \
         the host link. To have offld link device code, {before}add `-B {folder}` to clang's line, or leave out clang's options for offloading",
    ));
}

/// Returns `result`; but after a signal, removes the linker's partial output and returns the error for the signal.
fn remove_output_if_stopped(result: Result<()>, request: &LinkRequest, session: &Session) -> Result<()> {
    if let Err(stopped) = session.signals.check() {
        host::remove_partial(out_name(request));
        // The signal may have arrived after the linker succeeded; since the output is removed, that is an error, too.
        return result.and(Err(stopped));
    }
    result
}

/// The compiler for the device links of `jobs`. Prints the warning about the choice, if there is one.
pub(super) fn compiler(request: &LinkRequest, jobs: &[DeviceJob<'_>], session: &Session) -> Result<Compiler> {
    let choice = toolchain::device_compiler(request.offld_clang.as_deref(), producer(jobs))?;
    if let Some(warning) = &choice.warning {
        session.shell.warn(warning);
    }
    Ok(choice.compiler)
}

/// What SYCL's runtime is handed: what the user says; else what the runtime of the newest LLVM among the producers of SYCL's device
/// code and the compilers reads. Device code of releases whose runtimes read different things is an error.
pub(super) fn sycl(request: &LinkRequest, jobs: &[DeviceJob<'_>], compiler: &Compiler) -> Result<sycl::Registration> {
    if let Some(release) = request.sycl_release {
        return Ok(sycl::Registration::of_release(release));
    }
    let images = || jobs.iter().flat_map(|job| &job.inputs).filter(|image| image.kinds.contains(OffloadKind::Sycl));
    if images().next().is_none() {
        return Ok(sycl::Registration::default());
    }
    let producers: Vec<(&DeviceImage<'_>, u32)> =
        images().filter_map(|image| Some((*image, bitcode::producer_major(&image.bytes)?))).collect();
    let with_binary = |major: u32| sycl::Registration::of_release(major) > sycl::Registration::Llvm22;
    let first = |binary: bool| producers.iter().find(|(_, major)| with_binary(*major) == binary);
    if let (Some((old, old_major)), Some((new, new_major))) = (first(false), first(true)) {
        bail!(
            "the SYCL code in {} is of LLVM {old_major} and that in {} of LLVM {new_major}, whose runtimes are handed device code in \
             different ways: compile both with the same LLVM, or name the runtime with --offld-sycl-registration=22, 23 or 24",
            old.origin,
            new.origin
        );
    }
    let majors = producers.iter().map(|(_, major)| *major);
    let newest = majors.chain(compiler.major).chain(toolchain::calling_release()).max();
    Ok(newest.map_or_else(sycl::Registration::default, sycl::Registration::of_release))
}

/// The same for linked images: from LLVM 23 on, their containers list the kernels in another form.
pub(super) fn sycl_of_linked(request: &LinkRequest, linked: &[Linked]) -> Result<sycl::Registration> {
    if let Some(release) = request.sycl_release {
        return Ok(sycl::Registration::of_release(release));
    }
    for image in linked.iter().filter(|image| image.kinds.contains(OffloadKind::Sycl)) {
        let bytes = Bytes::of(&image.path)?;
        let images = offload_binary::read_all(bytes.as_slice()).with_context(|| format!("`{}`", image.path.display()))?;
        if images.iter().any(sycl::has_table) {
            return Ok(sycl::Registration::Llvm23);
        }
    }
    Ok(sycl::Registration::default())
}

/// The arguments that the host link lacks for the OpenMP runtime. Prints a warning if that runtime cannot do what the objects need.
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
    Ok(runtime.args)
}

/// The patterns of `--undefined-glob`, which in ld.lld's spelling may be quoted and negate with `^`.
fn globs(request: &LinkRequest) -> Result<Vec<glob::Pattern>> {
    let pattern = |text: &String| {
        let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        let mut plain = quoted.map_or_else(|| text.replace("[^", "[!"), glob::Pattern::escape);
        while plain.contains("**") {
            plain = plain.replace("**", "*");
        }
        glob::Pattern::new(&plain).with_context(|| format!("--undefined-glob={text}"))
    };
    request.undefined_globs.iter().map(pattern).collect()
}

/// The host code in archives that device code for the host's own CPU may call.
pub(super) fn host_code<'a>(
    request: &LinkRequest,
    inputs: &'a Inputs,
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
) -> Result<Vec<DeviceImage<'a>>> {
    let triple = host::triple(request, facts)?;
    Ok(scan::host_code(inputs, found, triple.split('-').next().unwrap_or_default()))
}

/// One job for each image of the program; images without an offload kind are left out with a warning.
pub(super) fn select<'a>(
    request: &LinkRequest,
    linker: &Path,
    inputs: &Inputs,
    found: &'a [DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    session: &Session,
) -> Result<Vec<DeviceJob<'a>>> {
    let lazy: Vec<bool> = inputs.objects.iter().map(|input_object| input_object.lazy).collect();
    let coff = facts.iter().any(|facts| matches!(facts.machine, Some(Machine::Coff(_))));
    let starts = (coff && !request.entry_is_named).then(link_exe::default_entries).into_iter().flatten();
    let scripts = || inputs.scripts.iter();
    let defsyms = || request.defsyms.iter().flat_map(|defsym| &defsym.needs);
    let late = request.late_undefined.iter().chain(defsyms()).chain(scripts().flat_map(|script| &script.needed));
    // Without members of archives nothing depends on how the line is read.
    let has_members = found.iter().any(|image| lazy[image.input_object]);
    let (reading, in_place) = if has_members && !coff { reading(linker) } else { (Reading::AnyOrder, false) };
    let (loads, shared) =
        if has_members { loads(inputs, request.defsyms.iter().filter(|_| in_place)) } else { Default::default() };
    let of_defsyms = defsyms().filter(|_| !in_place);
    let of_scripts =
        scripts().flat_map(|script| script.external.iter().chain(&script.needed)).filter(|_| reading != Reading::InTurn);
    let options = SelectOptions {
        should_extract: request.should_extract.clone(),
        roots: request.undefined.iter().chain(of_defsyms).chain(of_scripts).cloned().chain(starts).collect(),
        late_roots: late.cloned().collect(),
        globs: globs(request)?,
        wrapped: request.wrapped_symbols.clone(),
        alternate_names: request.alternate_names.iter().chain(scripts().flat_map(|script| &script.provided)).cloned().collect(),
        reading,
        loads,
        shared,
    };
    let origins: Vec<String> = inputs.objects.iter().map(|input_object| input_object.origin().to_string()).collect();
    let selection = select::select(found, host_code, facts, &lazy, &origins, &options)?;
    if request.why {
        selection.why.iter().for_each(|line| session.shell.line(line));
    }
    selection.warnings.iter().for_each(|warning| session.shell.warn(warning));
    let (registered, unknown): (Vec<_>, Vec<_>) = selection.jobs.into_iter().partition(|job| job.kinds.iter().next().is_some());
    for job in unknown {
        let names: Vec<String> = job.inputs.iter().map(|input| input.origin.to_string()).collect();
        session.shell.warn(&format!(
            "device code for {} is of no offload kind and is not registered: {}",
            job.target,
            names.join(", ")
        ));
    }
    Ok(registered)
}

/// The newest LLVM among the producers of the bitcode that is linked.
fn producer(jobs: &[DeviceJob<'_>]) -> Option<u32> {
    let inputs = jobs.iter().flat_map(|job| &job.inputs);
    inputs.filter_map(|input| bitcode::producer_major(&input.bytes)).max()
}
