//! Steps of the link that take more than one call, in a file of their own to keep `pipeline` short.

use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

use super::input_copies::Copies;
use super::line_inputs::input_specs;
use super::{DeviceCode, HostLink, Link, Scanned};
use crate::args::settings::{Destination, LinkSettings, LlvmOption};
use crate::args::{LineChanges, Role};
use crate::link::device::{self, Linked};
use crate::link::host::Done;
use crate::link::inputs::Inputs;
use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::link::select::{self, DeviceJob, ForAnotherTarget, OnTheHost, Selection};
use crate::link::{host, reproduce};
use crate::toolchain::{self, Compiler};
use offld_system::io::bytes::Bytes;
use offld_system::posix_shell;
use offld_system::run::{self, Cmd};
use offld_system::trace::span;
use offload_formats::error::{Silent, StepFailed, step_failed};
use offload_formats::magic::Magic;
use offload_formats::model::{ObjectFormat, OffloadKind, Origin, printable_name};
use offload_formats::registration::fatbin::{HIP_IMAGE, ModuleCalls};
use offload_formats::registration::{self, sycl};
use offload_formats::target::Target;
use offload_formats::{bitcode, kernels, offload_binary};

/// Returns the device compiler's answer to `-mllvm --help` and the like, which request a list of
/// LLVM's options instead of a link.
pub(super) fn llvm_help(settings: &LinkSettings) -> Result<Option<String>> {
    const LISTS: [&str; 4] = ["help", "help-hidden", "help-list", "help-list-hidden"];
    let asks = |option: &&LlvmOption| {
        let name = option
            .value()
            .to_str()
            .and_then(|text| text.strip_prefix("--").or(text.strip_prefix('-')));
        matches!(option, LlvmOption::Mllvm(_)) && name.is_some_and(|name| LISTS.contains(&name))
    };
    let Some(option) = settings.device.llvm_options.iter().find(asks) else {
        return Ok(None);
    };
    let compiler = toolchain::device_compiler(Some(&settings.device), None)?.compiler;
    let option = option.value().to_string_lossy();
    let args = [
        "-mllvm",
        option.as_ref(),
        "-x",
        "c",
        "-c",
        "/dev/null",
        "-o",
        "/dev/null",
    ];
    let text = run::stdout_of(&compiler.path, &args);
    text.map(Some).with_context(|| {
        format!(
            "{} prints no list of options for -mllvm {option}",
            compiler.path.display()
        )
    })
}

impl Link<'_> {
    /// Writes the tar that reproduces this link elsewhere, if the user requested one.
    pub(super) fn write_reproduction(&self) -> Result<()> {
        reproduce::write(&reproduce::LinkToReproduce {
            arguments: self.arguments,
            settings: self.settings,
            inputs: &|| input_specs(self.settings, &self.search),
            search: &self.search,
            linker: &self.linker,
        })
    }

    /// Ends the search for device code in `inputs`, which have none. Warns if the device code of
    /// HIP objects is missing, except in a relocatable link of `ld.offld`, to whose output another
    /// link adds the device code.
    pub(super) fn without_device_code(&self, inputs: Inputs) -> Result<DeviceCode> {
        let complete = self.settings.role == Role::Wrapper || !self.settings.host.relocatable;
        if complete && scan::has_hip_wrapper(&inputs) {
            self.warn_of_old_hip(&inputs, &scan::host_facts(&inputs, false)?, &[]);
        }
        let endings = self.late_runtime(&inputs)?;
        // The host linker replaces this process soon, which frees all memory at once. Freeing
        // thousands of members one by one is slower.
        std::mem::forget(inputs);
        Ok(DeviceCode::None(endings))
    }

    /// Warns of host objects from HIP's old driver whose device code is neither in `images` nor
    /// defined by an input.
    pub(super) fn warn_of_old_hip(
        &self,
        inputs: &Inputs,
        facts: &[HostFacts<'_>],
        images: &[DeviceImage<'_>],
    ) {
        if let Some(warning) = old_hip(self.settings, inputs, facts, images) {
            self.session.shell.warn(&warning);
        }
    }

    /// Returns the arguments that a command line without device code lacks for the runtime. It
    /// needs a runtime if an output of a relocatable link registers images.
    fn late_runtime(&self, inputs: &Inputs) -> Result<Vec<OsString>> {
        let settings = self.settings;
        if settings.role != Role::Ld || settings.host.relocatable || !scan::has_registered(inputs) {
            return Ok(Vec::new());
        }
        let facts = scan::host_facts(inputs, true)?;
        // Without a compiler, the command line stays unchanged: it may name everything that it
        // needs.
        let Ok(choice) = toolchain::device_compiler(Some(&settings.device), None) else {
            return Ok(Vec::new());
        };
        let scanned = Scanned {
            inputs,
            images: &[],
            facts: &facts,
        };
        self.runtime(&scanned, &[], &choice.compiler)
    }

    /// Warns if another wrapper has linked the device code before it called the linker `offld`.
    /// clang runs its own wrapper when its command line has offload options.
    pub(super) fn warn_if_wrapped(&self, scanned: &Scanned<'_>) {
        let Some(object) = host::wrapper_object(scanned.facts, scanned.inputs)
            .filter(|_| self.settings.role == Role::Ld)
        else {
            return;
        };
        let folder =
            toolchain::folder_of_names().map(|folder| posix_shell::shown(folder.as_os_str()));
        let (before, folder) = folder.map_or(
            ("run `offld links DIR`, and ", "DIR".to_owned()),
            |folder| ("", folder),
        );
        self.session.shell.warn(&format!(
            "{object} registers device code already: another wrapper has linked it, such as clang's own. offld only does the host link. To \
             link device code with offld, {before}add `-B {folder}` to clang's command line, or remove clang's offload options",
        ));
    }

    /// Selects one job for each image of the program. Warns of images without an offload kind and
    /// omits them.
    pub(super) fn select<'j>(
        &self,
        scanned: &Scanned<'j>,
        host_code: &'j [DeviceImage<'j>],
    ) -> Result<Selection<'j>> {
        let (settings, session) = (self.settings, self.session);
        let Scanned {
            inputs,
            images,
            facts,
        } = *scanned;
        let objects = inputs.objects.iter();
        let lazy: Vec<bool> = objects.map(|object| object.lazy).collect();
        let options = self.select_options(scanned)?;
        let origins: Vec<String> = inputs
            .objects
            .iter()
            .map(|input_object| input_object.origin().to_string())
            .collect();
        let mut selection = select::select(images, host_code, facts, &lazy, &origins, &options)?;
        if settings.run.why {
            selection
                .why
                .iter()
                .for_each(|line| session.shell.line(line));
        }
        selection
            .warnings
            .iter()
            .for_each(|warning| session.shell.warn(warning));
        let (registered, unknown): (Vec<_>, Vec<_>) = std::mem::take(&mut selection.jobs)
            .into_iter()
            .partition(|job| job.kinds.iter().next().is_some());
        for job in unknown {
            let names: Vec<String> = job
                .inputs
                .iter()
                .map(|input| input.origin.to_string())
                .collect();
            session.shell.warn(&format!(
                "device code for {} has no offload kind and is not registered, so the program cannot use it: {}",
                job.target,
                names.join(", ")
            ));
        }
        selection.jobs = registered;
        Ok(selection)
    }

    /// Reports, before any device link, that images cannot be registered for this host.
    /// `--emit-fatbin-only` registers none.
    pub(super) fn check_host(&self, host_triple: &str) -> Result<()> {
        if self.settings.emit_fatbin_only {
            return Ok(());
        }
        if self.settings.host.relocatable && ObjectFormat::of(host_triple) == ObjectFormat::Coff {
            bail!("Relocatable linking is not supported on COFF targets");
        }
        registration::host::check(host_triple)
    }

    /// Returns the compiler for the device links of `jobs`. Prints the warning about the choice, if
    /// there is one.
    pub(super) fn compiler(&self, jobs: &[DeviceJob<'_>]) -> Result<Compiler> {
        // The newest LLVM among the producers of the bitcode that is linked.
        let producer = jobs
            .iter()
            .flat_map(|job| &job.inputs)
            .filter_map(|input| bitcode::producer_major(&input.bytes))
            .max();
        let choice = match toolchain::device_compiler(Some(&self.settings.device), producer) {
            // Code of nvcc is linked without a compiler.
            Err(_) if jobs.iter().all(device::needs_no_compiler) => {
                return Ok(Compiler {
                    path: PathBuf::from("clang"),
                    major: None,
                });
            }
            choice => choice?,
        };
        if let Some(warning) = &choice.warning {
            self.session.shell.warn(warning);
        }
        Ok(choice.compiler)
    }

    /// Returns the data that SYCL's runtime expects. The option `--offld-sycl-registration`
    /// decides. Without it, the newest LLVM among the producers of the SYCL device code and the
    /// compilers decides. Device code from releases with different registrations is an error.
    pub(super) fn sycl(
        &self,
        jobs: &[DeviceJob<'_>],
        compiler: &Compiler,
    ) -> Result<sycl::Registration> {
        if let Some(release) = self.settings.device.sycl_release {
            return Ok(sycl::Registration::of_release(release));
        }
        let images = || {
            jobs.iter()
                .flat_map(|job| &job.inputs)
                .filter(|image| image.kinds.contains(OffloadKind::Sycl))
        };
        if images().next().is_none() {
            return Ok(sycl::Registration::default());
        }
        let producers: Vec<(&DeviceImage<'_>, u32)> = images()
            .filter_map(|image| Some((*image, bitcode::producer_major(&image.bytes)?)))
            .collect();
        let with_binary =
            |major: u32| sycl::Registration::of_release(major) > sycl::Registration::Llvm22;
        let first = |binary: bool| {
            producers
                .iter()
                .find(|(_, major)| with_binary(*major) == binary)
        };
        if let (Some((old, old_major)), Some((new, new_major))) = (first(false), first(true)) {
            bail!(
                "the SYCL code in {} is from LLVM {old_major} and the code in {} from LLVM {new_major}, whose runtimes register device \
                 code differently: compile both with the same LLVM, or select the runtime with --offld-sycl-registration=22, 23 or 24",
                old.origin,
                new.origin
            );
        }
        let majors = producers.iter().map(|(_, major)| *major);
        let newest = majors
            .chain(compiler.major)
            .chain(toolchain::calling_release())
            .max();
        Ok(newest.map_or_else(sycl::Registration::default, sycl::Registration::of_release))
    }

    /// Like `sycl`, for images that are linked already. Containers from LLVM 23 and later list the
    /// kernels in another form.
    pub(super) fn sycl_of_linked(&self, linked: &[Linked]) -> Result<sycl::Registration> {
        if let Some(release) = self.settings.device.sycl_release {
            return Ok(sycl::Registration::of_release(release));
        }
        for image in linked
            .iter()
            .filter(|image| image.kinds.contains(OffloadKind::Sycl))
        {
            let bytes = Bytes::of(&image.path)?;
            let images = offload_binary::read_all(bytes.as_slice())
                .with_context(|| format!("`{}`", image.path.display()))?;
            if images.iter().any(sycl::has_table) {
                return Ok(sycl::Registration::Llvm23);
            }
        }
        Ok(sycl::Registration::default())
    }

    /// Returns the arguments that the host link lacks for the OpenMP runtime. Prints a warning if
    /// that runtime lacks a feature that the objects need.
    pub(super) fn runtime(
        &self,
        scanned: &Scanned<'_>,
        jobs: &[DeviceJob<'_>],
        compiler: &Compiler,
    ) -> Result<Vec<OsString>> {
        let Scanned { inputs, facts, .. } = *scanned;
        let images: Vec<&DeviceImage<'_>> =
            jobs.iter().flat_map(|job| &job.inputs).copied().collect();
        let runtime = host::openmp_runtime(
            self.settings,
            inputs,
            facts,
            &images,
            &self.search,
            compiler,
        )?;
        if let Some(warning) = &runtime.warning {
            self.session.shell.warn(warning);
        }
        Ok(runtime.args)
    }

    /// Runs the host link with the user's command line, and with `endings` if the output of a
    /// relocatable link needs a library. This process becomes the linker, unless the linker runs
    /// already or a trace is wanted. An error of a linker that runs already is printed by the
    /// linker alone, as if this process had become the linker.
    pub(super) fn plain_link(&self, endings: &[OsString]) -> Result<()> {
        let (settings, session) = (self.settings, self.session);
        let changes = LineChanges {
            libraries: endings,
            ..LineChanges::default()
        };
        let line = host::command(self.arguments, &self.linker, &changes);
        let preloaded = self.background.take_linker();
        let is_traced = matches!(settings.run.time_trace, Some(Destination::File(_)));
        let result = if preloaded.is_none() && !is_traced && !settings.kpack {
            session.runner.replace(&line)
        } else {
            let mut host = session.trace.span(span::HOST, 0);
            host.set_arg("linker", line.program.display().to_string());
            let in_its_place =
                preloaded.is_some() && session.runner.can_be_replaced() && !settings.run.verbose;
            let ran = session
                .runner
                .run_preloaded(preloaded, &line, &|| ())
                .map(drop);
            ran.map_err(|error| {
                if in_its_place {
                    silent_if_reported(error)
                } else {
                    error
                }
            })
        };
        self.remove_output_if_stopped(result)
    }

    /// Returns the host link with the registration objects `objects`. If `output` is given, it
    /// replaces the user's.
    pub(super) fn host_command(
        &self,
        host: &HostLink,
        objects: &[PathBuf],
        output: Option<&Path>,
    ) -> Cmd {
        let objects: Vec<PathBuf> = objects
            .iter()
            .chain(&host.copies.members)
            .cloned()
            .collect();
        let additions = host::additions(self.settings, &self.linker, &host.triple, &objects);
        let endings = host::endings(self.settings, &host.runtime);
        let changes = LineChanges {
            output: output.map(Path::as_os_str),
            objects: &additions,
            objects_first: host.has_modules,
            libraries: &endings,
            copies: Some(&host.copies.by_token),
        };
        Cmd {
            inputs: host.inputs.clone(),
            ..host::command(self.arguments, &self.linker, &changes)
        }
    }

    /// Runs the host link with the registration objects `objects`, and for `-r` renames the entry
    /// tables `tables` in its output. A signal or a full disk leaves no partial output.
    pub(super) fn host_link(
        &self,
        host: &HostLink,
        objects: &[PathBuf],
        tables: &[&str],
    ) -> Result<()> {
        let (session, output) = (self.session, self.output);
        if !host.names.is_empty() {
            let program = self.link_aside(host, objects, tables, 0);
            let done = program.and_then(|program| self.publish(&program, &host.names));
            return self.remove_output_if_stopped(done);
        }
        let line = self.host_command(host, objects, None);
        let preloaded = self.background.take_linker();
        let mut trace = session.trace.span(span::HOST, 0);
        trace.set_arg("linker", line.program.display().to_string());
        let started = SystemTime::now();
        let ran = session
            .runner
            .run_preloaded(preloaded, &line, &|| ())
            .map_err(|error| self.shortened(error));
        let mut result = ran
            .map(|(usage, _)| trace.record_usage(usage))
            .and_then(|()| self.after_link(objects, &host.copies, output));
        if result.is_ok() {
            result = self.finish_relocatable(output, tables);
            if result.is_err() {
                // The entry tables still have their original names, and a later link would register
                // them again.
                host::remove_partial(output);
            }
        }
        if let Err(error) = &result {
            let crashed = step_failed(error).is_some_and(|failed| failed.status >= 128);
            host::remove_leftovers(output, started, crashed);
        }
        self.remove_output_if_stopped(result)
    }

    /// For `-r`, renames the entry tables `tables` in the file `output` of the host link.
    pub(super) fn finish_relocatable(&self, output: &Path, tables: &[&str]) -> Result<()> {
        let (settings, runner) = (self.settings, &self.session.runner);
        if !settings.host.relocatable {
            return Ok(());
        }
        let commands = || {
            Ok(host::objcopy_command(output, tables, settings)?
                .into_iter()
                .collect())
        };
        runner.show_in_process(&commands)?;
        runner.edit(output, &|output| {
            host::finish_relocatable(output, tables, &self.linker)
        })
    }

    /// Runs after each host link with registration objects. Removes the file `written` if it is
    /// truncated, and removes temporary names from other files that the linker wrote.
    pub(super) fn after_link(
        &self,
        objects: &[PathBuf],
        copies: &Copies,
        written: &Path,
    ) -> Result<()> {
        let whole = self
            .session
            .runner
            .edit(written, &|output| host::check_whole(output, &self.linker));
        if whole.is_err() {
            host::remove_partial(written);
        }
        let done = Done {
            arguments: self.arguments,
            settings: self.settings,
            linker: &self.linker,
            objects,
            copies: &copies.inputs,
            output: self.output,
            written,
        };
        whole.and_then(|()| host::clean(&done, self.session))
    }

    /// Returns `result`. After a signal, removes the linker's partial output and returns the
    /// signal's error instead.
    fn remove_output_if_stopped(&self, result: Result<()>) -> Result<()> {
        if let Err(stopped) = self.session.signals.check() {
            host::remove_partial(self.output);
            // The signal may have arrived after the linker succeeded. The output is removed, so
            // this is an error as well.
            return result.and(Err(stopped));
        }
        result
    }

    /// Shortens the report of a host linker that has printed a message about its inputs or options.
    /// Omits its command and inputs, which can be hundreds of arguments.
    pub(super) fn shortened(&self, error: anyhow::Error) -> anyhow::Error {
        match has_reported(&error) {
            Some(StepFailed { report, status, .. }) if !self.settings.run.verbose => {
                let report = format!("{report} (--wrapper-verbose shows its command)");
                StepFailed::new(report, *status).into()
            }
            _ => error,
        }
    }
}

impl Scanned<'_> {
    /// Returns the report of failed device links, with advice about the symbols that they left
    /// undefined.
    pub(super) fn with_hints(
        &self,
        error: anyhow::Error,
        jobs: &[DeviceJob<'_>],
        runtime: &dyn Fn(&Target) -> Option<String>,
    ) -> anyhow::Error {
        let Some(failed) = error.downcast_ref::<StepFailed>() else {
            return error;
        };
        let missing = select::undefined_but_on_the_host(jobs, self.facts);
        let mut hints: Vec<String> = missing
            .iter()
            .map(|missing| is_host_code(missing, self.inputs))
            .collect();
        hints.extend(for_another_target(jobs, self.images));
        hints.extend(
            jobs.iter()
                .filter(|job| job.kinds.contains(OffloadKind::OpenMp))
                .filter_map(|job| runtime(&job.target)),
        );
        hints.extend(
            jobs.iter()
                .filter(|job| job.target.is_cpu())
                .find_map(gpu_calls_on_a_cpu),
        );
        hints.extend(jobs.iter().find_map(undefined_in_modules));
        if hints.is_empty() {
            return error;
        }
        hints.dedup();
        failed.with_details(&hints.join("\n  ")).into()
    }

    /// Reports CPU device code that calls functions of the program that were compiled for the host
    /// alone. Linkers report this, unless the image takes a sanitizer's functions from the program.
    pub(super) fn expect_device_code(&self, jobs: &[DeviceJob<'_>]) -> Result<()> {
        let Scanned { inputs, facts, .. } = *self;
        for job in jobs.iter().filter(|job| job.target.is_cpu()) {
            let missing = select::undefined_but_on_the_host(std::slice::from_ref(job), facts);
            // Archives are libraries of the image as well.
            let of_archive =
                |object: usize| inputs.files[inputs.objects[object].file].kind == Magic::Archive;
            let of_program = missing.iter().filter(|missing| !of_archive(missing.object));
            let reports: Vec<String> = of_program
                .map(|missing| is_host_code(missing, inputs))
                .collect();
            if !reports.is_empty() {
                bail!("device link for {}: {}", job.target, reports.join("\n  "));
            }
        }
        Ok(())
    }

    /// Returns the control-flow protection of the host objects: the bits that all objects with
    /// device code have in common. Archive members count only if no other object has device code,
    /// because a member may be linked for a device alone. Bitcode objects do not count, because
    /// their protection is known only when they are compiled. If only bitcode has device code, the
    /// result is every protection: linkers give a program the protections that all of its objects
    /// have, so an object can claim too little, but not too much.
    pub(super) fn protection(&self, jobs: &[DeviceJob<'_>], host_triple: &str) -> u32 {
        let images = jobs
            .iter()
            .flat_map(|job| &job.inputs)
            .filter(|image| image.kinds.iter().next().is_some());
        let (members, regular): (Vec<usize>, Vec<usize>) = images
            .map(|image| image.input_object)
            .partition(|object| self.inputs.objects[*object].lazy);
        let counted = if regular.is_empty() { members } else { regular };
        let known = counted
            .iter()
            .filter_map(|object| self.facts[*object].protection)
            .reduce(|all, one| all & one);
        known.unwrap_or_else(|| registration::host::whole_protection(host_triple))
    }
}

fn old_hip(
    settings: &LinkSettings,
    inputs: &Inputs,
    facts: &[HostFacts<'_>],
    images: &[DeviceImage<'_>],
) -> Option<String> {
    let own_code = images.iter().filter(|image| image.modules.is_some());
    let has_code: HashSet<usize> = own_code.map(|image| image.input_object).collect();
    let is_fat_binary = |name: &[u8]| ModuleCalls::id_of(HIP_IMAGE, name).is_some();
    let mut symbols = facts
        .iter()
        .zip(&inputs.objects)
        .enumerate()
        .filter(|(index, (_, object))| !object.lazy && !has_code.contains(index))
        .flat_map(|(_, (facts, object))| {
            let needed = facts
                .undefined
                .iter()
                .filter(|symbol| is_fat_binary(&symbol.name));
            needed.map(move |symbol| (symbol.name.as_ref(), object))
        });
    let on_the_line = |name: &[u8]| {
        settings
            .host
            .defsyms
            .iter()
            .any(|defsym| defsym.defines.as_bytes() == name)
    };
    let defined = |name: &[u8]| {
        on_the_line(name)
            || facts.iter().any(|facts| {
                facts
                    .defined
                    .iter()
                    .any(|symbol| symbol.name.as_ref() == name)
            })
    };
    let (name, object) = symbols.find(|(name, _)| !defined(name))?;
    let is_plain = |facts: &HostFacts<'_>| {
        facts
            .defined
            .iter()
            .any(|symbol| symbol.name.as_ref() == HIP_IMAGE.as_bytes())
    };
    if let Some((_, plain)) = facts
        .iter()
        .zip(&inputs.objects)
        .find(|(facts, _)| is_plain(facts))
    {
        let name = printable_name(name);
        return Some(format!(
            "{} needs `{name}`, but {} defines plain `{HIP_IMAGE}`, as separately assembled device code does. Compile the host \
             code with -fuse-cuid=none, or pass --defsym={name}={HIP_IMAGE}",
            object.origin(),
            plain.origin()
        ));
    }
    Some(format!(
        "{} was compiled by HIP's old driver (-fgpu-rdc with --no-offload-new-driver): no input defines `{}`, its device code. \
         Compile the object with --offload-new-driver, or link with clang --hip-link --no-offload-new-driver",
        object.origin(),
        printable_name(name)
    ))
}

/// Returns an error without text if the linker exited with a status of its own, because it has
/// printed the message itself.
fn silent_if_reported(error: anyhow::Error) -> anyhow::Error {
    match has_reported(&error) {
        Some(StepFailed { status, .. }) => Silent { status: *status }.into(),
        None => error,
    }
}

/// Returns the failed step if its program exited by itself, after a message of its own. A status
/// from 128 on is that of a shell whose program was ended by a signal.
fn has_reported(error: &anyhow::Error) -> Option<&StepFailed> {
    step_failed(error).filter(|failed| failed.has_exited && failed.status < 128)
}

fn is_host_code(missing: &OnTheHost, inputs: &Inputs) -> String {
    format!(
        "`{}` is host code: {} defines it, for no device. Put it between `#pragma omp begin declare target` and `#pragma omp end declare \
         target` (HIP and CUDA: `__device__`), and compile it with the options for offloading",
        printable_name(&missing.symbol),
        inputs.objects[missing.object].origin()
    )
}

/// Returns the advice for CPU device code with calls that only GPU runtimes define. flang generates
/// these calls for every device.
fn gpu_calls_on_a_cpu(job: &DeviceJob<'_>) -> Option<String> {
    const CALL: &[u8] = b"__kmpc_target_init";
    let calls = |facts: HostFacts<'_>| facts.undefined.iter().any(|need| *need.name == *CALL);
    let object = job
        .inputs
        .iter()
        .find(|input| scan::device_symbols(input).is_ok_and(calls))?;
    Some(format!(
        "{} has a target region that was compiled for {} with calls to the OpenMP runtime for GPUs, as flang always does: that \
         runtime does not exist for CPUs. Compile the code for a GPU (--offload-arch=), or write the target region in C or C++",
        object.origin, job.target
    ))
}

/// Returns the undefined symbols of code of nvcc, each with the object that needs it. nvlink names
/// temporary files.
fn undefined_in_modules(job: &DeviceJob<'_>) -> Option<String> {
    /// The start of the names of the functions with which kernels launch kernels.
    const LAUNCHES: &[u8] = b"__cudaCDP";
    if job.modules.is_empty() {
        return None;
    }
    let undefined = select::undefined_device_symbols(job);
    let launches = undefined.iter().any(|(name, _)| name.starts_with(LAUNCHES));
    let lines = undefined.iter().map(|(name, origin)| {
        let name = source_name(name);
        format!("no input defines the device symbol `{name}`, which {origin} needs")
    });
    let advice =
        "kernels that launch kernels need the library of the device runtime: pass -lcudadevrt";
    let lines: Vec<String> = lines.chain(launches.then(|| advice.to_owned())).collect();
    (!lines.is_empty()).then(|| lines.join("\n  "))
}

/// The name of a symbol in the source, if it can be demangled.
fn source_name(symbol: &[u8]) -> String {
    kernels::demangled(&String::from_utf8_lossy(symbol)).unwrap_or_else(|| printable_name(symbol))
}

/// Returns the advice about symbols that an input defines only for targets without an image in this
/// link, one line for each such input.
fn for_another_target(jobs: &[DeviceJob<'_>], found: &[DeviceImage<'_>]) -> Vec<String> {
    let all = select::undefined_but_for_another_target(jobs, found);
    let mut each: Vec<(&ForAnotherTarget<'_>, usize)> = Vec::new();
    for missing in &all {
        let same = |known: &&mut (&ForAnotherTarget<'_>, usize)| {
            std::ptr::eq(known.0.image, missing.image) && known.0.wanted == missing.wanted
        };
        match each.iter_mut().find(same) {
            Some((_, count)) => *count += 1,
            None => each.push((missing, 1)),
        }
    }
    let hint = |(missing, count): (&ForAnotherTarget<'_>, usize)| {
        let ForAnotherTarget {
            symbol,
            image,
            has,
            wanted,
        } = missing;
        let origin = Origin {
            section: None,
            ..image.origin.clone()
        };
        let more = if count > 1 {
            format!(" and {} more symbols", count - 1)
        } else {
            String::new()
        };
        let name = |target: &Target| {
            if target.arch.is_empty() {
                target.to_string()
            } else {
                target.arch.clone()
            }
        };
        let name = |target: &Target| printable_name(name(target).as_bytes());
        let link_for = if wanted.serves(has) {
            format!("link for that target (--offload-arch={}), or ", name(has))
        } else {
            String::new()
        };
        format!(
            "{origin} defines `{}`{more} for {} only, and this image is for {}: {link_for}compile the source of {origin} for {}",
            source_name(symbol),
            name(has),
            name(wanted),
            name(wanted)
        )
    };
    each.into_iter().map(hint).collect()
}
