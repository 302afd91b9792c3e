//! The stages of a link, in order: `Link::stages` runs all of them, and calls `Link::device_images`
//! for the device code. Each stage reads the previous results and returns a new value. Two results
//! change later: `linked_images` adds the names of kernels and variables to the selected jobs, and
//! completes [`HostLink`]; and [`HostLink::late`] becomes false if a late link fails. `background`
//! has the work that runs in parallel with the stages, `late` the branch for late images, and
//! `steps` the parts of stages that are too long for this file.

mod background;
mod input_copies;
mod late;
mod line_inputs;
mod names;
mod packs;
mod steps;

use std::ffi::OsString;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::args::settings::{Destination, KernelNames, LinkSettings};
use crate::args::{ArgumentList, Role};
pub(crate) use crate::link::device::DistributorRequest;
use crate::link::device::{self, DeviceContext, Linked};
use crate::link::host;
use crate::link::inputs::search::Search;
use crate::link::inputs::{self, Inputs, is_at};
use crate::link::payload::{self, BundleContext, Payload, RegisteredImage};
use crate::link::register::{self, RegisterContext};
use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::link::select::Selection;
use background::Background;
use input_copies::Copies;
use late::{NamesNotPut, Unfilled};
use line_inputs::{input_specs, out_name};
use names::Tables;
use offld_system::atomic_file::folder_of;
use offld_system::environment::{self, OFFLD_TIME_TRACE};
use offld_system::launcher::Launcher;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offld_system::trace::span;
use offload_formats::registration::{self, sycl};
use offload_formats::stable_names::StableNames;
use offload_formats::target::Target;

/// Runs the link that `arguments` describes, in a new session. `ld_first`: look for `ld` as the
/// host linker before `ld.lld`. `embedded`: offld runs as a library in another process (see
/// [`SessionOptions`]).
pub(crate) fn run(
    arguments: &ArgumentList,
    shell: &Arc<Shell>,
    ld_first: bool,
    embedded: bool,
) -> Result<()> {
    let settings = LinkSettings::new(arguments, &environment::get)?;
    let run = &settings.run;
    let output = out_name(&settings);
    // A dry run ignores the launcher, so that it prints the same commands on every machine.
    let launcher = if run.dry_run {
        None
    } else {
        Launcher::new(&run.launching, run.verbose)?
    };
    let options = SessionOptions {
        dry_run: run.dry_run,
        verbose: run.verbose,
        save_temps: run.save_temps,
        kept_in: if settings.saves_temps_beside_output() {
            folder_of(output).to_path_buf()
        } else {
            PathBuf::new()
        },
        time_trace: run
            .time_trace
            .as_ref()
            .map(|trace| trace_file(trace, output)),
        time_trace_granularity: run.time_trace_granularity,
        embedded,
        temp_folder: launcher
            .as_ref()
            .map(|launcher| launcher.temp_folder(output)),
    };
    let session = Session {
        launcher,
        ..Session::new(Arc::clone(shell), options)
    };
    let whole = session.trace.span(span::WHOLE, 0);
    let result = link(arguments, &settings, &session, ld_first).or_else(|error| {
        let Some(NamesNotPut(why)) = error.downcast_ref() else {
            return Err(error);
        };
        shell.warn(&format!(
            "{why}; linking again with the names of clang (--wrapper-stable-names=off avoids the first link)"
        ));
        let mut settings = settings.clone();
        settings.run.kernel_names = KernelNames::Clang.into();
        link(arguments, &settings, &session, ld_first)
    });
    drop(whole);
    // A failed link gets a trace as well.
    let traced = write_trace(&settings, &session);
    result.and(traced)
}

fn write_trace(settings: &LinkSettings, session: &Session) -> Result<()> {
    if let Some(Destination::Directory(folder)) = &settings.run.time_trace {
        if !session.trace.has_device_links() {
            return Ok(());
        }
        std::fs::create_dir_all(folder).with_context(|| {
            format!(
                "{OFFLD_TIME_TRACE}: cannot create the directory `{}`",
                folder.display()
            )
        })?;
    }
    session.trace.write()
}

/// Returns the path of the time trace of the link that writes `output`. In a directory, the name
/// contains a hash of the output's absolute path, so each output has its own trace.
fn trace_file(trace: &Destination, output: &Path) -> PathBuf {
    let folder = match trace {
        Destination::File(file) => return file.clone(),
        Destination::Directory(folder) => folder,
    };
    let place = std::path::absolute(output).unwrap_or_else(|_| output.to_path_buf());
    let name = output.file_name().unwrap_or_default().display();
    folder.join(format!(
        "{name}-{:016x}.json",
        xxh3_64(place.as_os_str().as_bytes())
    ))
}

/// Returns the list of LLVM's options if the arguments ask for it, such as `-mllvm --help`. There
/// is then no link to run.
pub(crate) fn llvm_help(arguments: &ArgumentList) -> Result<Option<String>> {
    // Most command lines pass no options to LLVM, and do not need to be parsed a second time.
    if !arguments.tokens().iter().any(|token| token == "-mllvm") {
        return Ok(None);
    }
    steps::llvm_help(&LinkSettings::new(arguments, &environment::get)?)
}

/// Compiles the translation units of a ThinLTO link, for the ld.lld that started this process.
pub(crate) fn distribute(request: &DistributorRequest, shell: &Arc<Shell>) -> Result<()> {
    device::distribute(request, shell)
}

/// Runs the link that `settings` describes.
fn link(
    arguments: &ArgumentList,
    settings: &LinkSettings,
    session: &Session,
    ld_first: bool,
) -> Result<()> {
    let background = Background::new(settings, session);
    let link = Link::new(arguments, settings, &background, session, ld_first);
    let result = link.and_then(|link| {
        link.stages()?;
        link.write_packs()
    });
    if settings.run.dry_run && result.is_ok() {
        session.tell_of_removed_files();
    }
    background.finish();
    result
}

/// The command line of a link, and the services that its stages share.
struct Link<'a> {
    arguments: &'a ArgumentList,
    settings: &'a LinkSettings,
    background: &'a Background<'a>,
    session: &'a Session,
    /// The linker of the host link; empty if there is no host link.
    linker: PathBuf,
    /// The search path for libraries.
    search: Search,
    /// The output's path as the user gave it, or the linker's default.
    output: &'a Path,
}

/// The device code of a link.
enum DeviceCode {
    Linked(Box<Images>),
    /// No device code to link. If an input registers images, the host link may need arguments that
    /// the command line lacks. They are in this list.
    None(Vec<OsString>),
}

/// The linked images.
struct Images {
    /// The images, in the containers that their runtimes read.
    payloads: Vec<Payload>,
    host: HostLink,
    /// The program, if the host link ran in parallel with the device links.
    unfilled: Option<Unfilled>,
}

/// The facts for the registration and the host link, which are known before the device links run.
struct HostLink {
    triple: String,
    /// The control-flow protection of the host objects.
    protection: u32,
    /// The data that the registration passes to SYCL's runtime.
    sycl: sycl::Registration,
    /// The major version of the device compiler, if it runs and its version is known.
    device_compiler: Option<u32>,
    /// Arguments that the command line lacks for the OpenMP runtime.
    runtime: Vec<OsString>,
    /// Whether an image has modules (nvcc, old driver) that register themselves. The registration
    /// code then refers to symbols that archive members may define.
    has_modules: bool,
    /// The inputs, for error reports.
    inputs: Vec<String>,
    /// Whether the images are written into the program after its link.
    late: bool,
    /// The stable names of OpenMP kernels, which are written into the program after its link. Empty
    /// if the program keeps the names of clang, or if `copies` have the stable names.
    names: Arc<StableNames>,
    /// Copies of inputs that the host link reads instead: with stable names, or extracted from
    /// archives.
    copies: Copies,
}

/// The opened inputs with their device code and symbols.
struct Scanned<'a> {
    inputs: &'a Inputs,
    images: &'a [DeviceImage<'a>],
    facts: &'a [HostFacts<'a>],
}

impl<'a> Link<'a> {
    fn new(
        arguments: &'a ArgumentList,
        settings: &'a LinkSettings,
        background: &'a Background<'a>,
        session: &'a Session,
        ld_first: bool,
    ) -> Result<Self> {
        Ok(Link {
            arguments,
            settings,
            background,
            session,
            linker: if settings.emit_fatbin_only {
                PathBuf::new()
            } else {
                host::linker(settings, ld_first)?
            },
            search: line_inputs::search(settings),
            output: out_name(settings),
        })
    }

    /// Runs all stages.
    fn stages(&self) -> Result<()> {
        let (settings, session) = (self.settings, self.session);
        // Written first, so that a link that fails later can be reproduced elsewhere
        // (`--reproduce`).
        self.write_reproduction()?;
        register::check_external(settings)?;
        packs::check(settings)?;

        // The images in the containers that their runtimes read. After this, no input is read. If
        // there is no device code, or another wrapper has registered it, the link has no images.
        let images = match settings.device.override_images.as_slice() {
            [] => self.device_images()?,
            options => DeviceCode::Linked(Box::new(self.override_images(options)?)),
        };
        let Images {
            payloads,
            mut host,
            unfilled,
        } = match images {
            DeviceCode::Linked(images) => *images,
            DeviceCode::None(_) if settings.emit_fatbin_only => {
                return payload::emit(&[], self.output, session);
            }
            DeviceCode::None(endings) => {
                register::warn_of_no_files(settings, session);
                return self.plain_link(&endings);
            }
        };
        session.signals.check()?;
        if settings.emit_fatbin_only {
            return payload::emit(&payloads, self.output, session);
        }

        // Write external images to files. If the link fails, new files are removed again.
        let files = register::external_files(&payloads, &self.registration(&host), session)?;

        // A late link is complete after the images are written into the program.
        let registering = session.trace.span(span::WRAP, 0);
        if host.late && self.fill(unfilled, &host, &payloads)? {
            return Ok(());
        }
        host.late = false;

        // Host objects that contain the images and register them when the program starts. After
        // this, LLVM is not needed.
        let objects = register::make(&payloads, &files, &self.registration(&host), session)?;
        self.background.llvm.dismiss();
        drop(registering);

        // The user's host link, with the registration objects added.
        self.background.use_spare_processors();
        self.host_link(&host, &objects, &register::tables(&payloads))?;
        files.keep();
        Ok(())
    }

    /// Links the device code of the inputs. If there is no device code, or another wrapper has
    /// registered it, the link has no images.
    fn device_images(&self) -> Result<DeviceCode> {
        let (settings, session) = (self.settings, self.session);
        // The contents of every file on the command line. Each archive member is an object of its own.
        // The host linker starts as soon as there is device code, or if there are many inputs to
        // search. It loads while everything else runs.
        let extract = session.trace.span(span::EXTRACT, 0);
        let mut starter = self.background.linker_starter(self.arguments, &self.linker);
        let specs = input_specs(settings, &self.search);
        starter.expect(specs.len());
        let inputs = inputs::open(&specs, &self.search, &mut |kind, data| {
            starter.look(kind, data)
        })?;
        self.check_shown(&inputs)?;

        // Every device image in the inputs. After this, no stage searches the inputs for device
        // code.
        let images = scan::scan(&inputs)?;
        if images.is_empty() {
            drop(images);
            return self.without_device_code(inputs);
        }

        // Symbol tables. When it runs as `ld.offld`, offld also needs those of archive members, to find
        // calls of the OpenMP runtime.
        let members = settings.role == Role::Ld || scan::needs_members(&images, &inputs);
        let facts = scan::host_facts(&inputs, members)?;
        let scanned = Scanned {
            inputs: &inputs,
            images: &images,
            facts: &facts,
        };
        if host::wrapper_object(&facts, &inputs).is_some() {
            self.warn_if_wrapped(&scanned);
            return Ok(DeviceCode::None(Vec::new()));
        }
        self.warn_of_old_hip(&inputs, &facts, &images);
        session.signals.watch();

        // One device link for each image of the program, in the order of registration. Device code
        // for the host's own CPU may call host code in archives.
        let triple = host::triple(settings, &facts)?;
        let arch = triple.split('-').next().unwrap_or_default();
        let host_code = scan::host_code(&inputs, &images, arch);
        let selection = self.select(&scanned, &host_code)?;
        if selection.jobs.is_empty() {
            return Ok(DeviceCode::None(Vec::new()));
        }
        self.background.check_setting()?;
        self.check_host(&triple)?;
        drop(extract);

        // The device links. After this, the inputs are closed.
        let images = self.linked_images(&scanned, selection, triple, starter.start())?;
        Ok(DeviceCode::Linked(Box::new(images)))
    }

    /// Runs the device links, and for late images the host link in parallel with them.
    /// `preload_args`: the arguments for starting the host linker early.
    fn linked_images(
        &self,
        scanned: &Scanned<'_>,
        selection: Selection<'_>,
        triple: String,
        preload_args: Option<Vec<OsString>>,
    ) -> Result<Images> {
        let (settings, session, background) = (self.settings, self.session, self.background);
        let Scanned { inputs, images, .. } = *scanned;
        let Selection {
            mut jobs,
            extracted,
            ..
        } = selection;
        let _device = session.trace.span(span::DEVICE, 0);
        // The kernels and variables that each image must define.
        let mut tables = Tables::read(inputs, &mut jobs);

        // The OpenMP runtime for the host link, and the libraries that CPU device code may be
        // linked with.
        let compiler = self.compiler(&jobs)?;
        let mut host = HostLink {
            protection: scanned.protection(&jobs, &triple),
            sycl: self.sycl(&jobs, &compiler)?,
            device_compiler: (!jobs.iter().all(device::needs_no_compiler))
                .then_some(compiler.major)
                .flatten(),
            runtime: self.runtime(scanned, &jobs, &compiler)?,
            has_modules: jobs.iter().any(|job| !job.modules.is_empty()),
            inputs: host::input_names(inputs),
            late: false,
            names: Arc::default(),
            copies: Copies::default(),
            triple,
        };
        let mut libraries = device::host_libraries(settings, inputs, images, &self.linker);
        libraries.extend(device::added_libraries(&host.runtime));

        // The registrations, and whether the link is late.
        let groups = payload::groups(jobs.iter().map(RegisteredImage::from));
        let device_code = jobs.iter().flat_map(|job| &job.inputs);
        let device_bytes = device_code.map(|input| input.bytes.len() as u64).sum();
        let is_input = |output: &Metadata| inputs.files.iter().any(|file| file.is(output));
        host.late = self.is_late(&host, &groups, &is_input, device_bytes)?;
        let is_beside = host.late && late::can_be_beside(settings, &groups);

        // Stable names for OpenMP kernels. They do not depend on the path of the source file, so
        // other checkouts find the images in the cache.
        let stable = self.stable_code(scanned, &tables, &jobs, &host)?;
        let jobs = stable.jobs(jobs);
        tables.rename(&stable.names);
        match self.copies(inputs, &stable.names)? {
            Some(copies) => host.copies = copies,
            None => host.names = Arc::clone(&stable.names),
        }
        host.copies.extract(inputs, &extracted, session)?;

        // The device links run in parallel with two steps: registration code is looked up or
        // generated, and the host linker loads. If the host link runs in parallel with the device
        // links, it includes both steps.
        let late_args = preload_args.clone();
        let prepare = || {
            if !is_beside {
                register::begin(&groups, &self.registration(&host));
                background.start_late_linker(&self.linker, late_args.as_ref());
            }
        };
        let context = DeviceContext {
            settings,
            compiler: &compiler,
            host_triple: &host.triple,
            host_linker: &self.linker,
            preload_args,
            libraries: &libraries,
            out_base: self.out_base(),
            caching: &background.caching,
            while_running: &|| background.while_linking(prepare),
        };
        let device_links = || {
            if !settings.host.relocatable && device::leave_symbols_open(&libraries) {
                scanned.expect_device_code(&jobs)?;
            }
            let linked = device::link(&jobs, &context, session);
            let linked = linked.map_err(|error| {
                let missing_runtime = |target: &Target| device::missing_runtime(target, &context);
                scanned.with_hints(error, &jobs, &missing_runtime)
            })?;
            let payloads = self.bundled(&linked, &host.triple)?;
            Ok((linked, payloads))
        };
        let (unfilled, (linked, payloads)) = if is_beside {
            let host_link =
                || self.link_unfilled(&host, &late::payloads_of(&groups), jobs.len() + 1);
            let (program, images) = late::beside(session, host_link, device_links)?;
            (Some(program), images)
        } else {
            (None, device_links()?)
        };
        tables.warn_of_missing(&jobs, &linked, inputs, settings, session);
        drop(jobs);
        // Freeing thousands of images takes longer than the rest of the link.
        std::mem::forget(stable);
        Ok(Images {
            payloads,
            host,
            unfilled,
        })
    }

    /// Returns the linked images in the containers that their runtimes read.
    fn bundled(&self, linked: &[Linked], host_triple: &str) -> Result<Vec<Payload>> {
        let (settings, session) = (self.settings, self.session);
        session.signals.check()?;
        let _bundling = session.trace.span(span::BUNDLE, 0);
        let context = BundleContext {
            settings,
            out_base: self.out_base(),
            host_triple,
            cache: self.background.caching.cache().ok(),
        };
        payload::bundle(linked, &context, session)
    }

    /// Returns the images of `--override-image`. Only a dry run opens the inputs, to report missing
    /// files.
    fn override_images(&self, options: &[(String, PathBuf)]) -> Result<Images> {
        let settings = self.settings;
        self.session.signals.watch();
        if settings.run.dry_run {
            self.check_shown(&inputs::open(
                &settings.inputs,
                &self.search,
                &mut |_, _| {},
            )?)?;
        }
        let triple = host::triple(settings, &[])?;
        self.check_host(&triple)?;
        let linked = device::override_images(options)?;
        let mut host = HostLink {
            // The protection of the inputs is unknown, because they are not read. So the
            // registration objects claim every protection: a linker gives a program only the
            // protections that all of its objects claim.
            protection: registration::host::whole_protection(&triple),
            sycl: self.sycl_of_linked(&linked)?,
            device_compiler: None,
            has_modules: false,
            runtime: Vec::new(),
            inputs: Vec::new(),
            late: false,
            names: Arc::default(),
            copies: Copies::default(),
            triple,
        };
        let sizes = linked
            .iter()
            .filter_map(|image| std::fs::metadata(&image.path).ok())
            .map(|meta| meta.len());
        let is_input =
            |output: &Metadata| line_inputs::files(settings).any(|path| is_at(path, output));
        let groups = payload::groups(linked.iter().map(RegisteredImage::from));
        host.late = self.is_late(&host, &groups, &is_input, sizes.sum())?;
        Ok(Images {
            payloads: self.bundled(&linked, &host.triple)?,
            host,
            unfilled: None,
        })
    }

    /// Returns the parameters of the registration.
    fn registration<'b>(&'b self, host: &'b HostLink) -> RegisterContext<'b> {
        RegisterContext {
            settings: self.settings,
            output: self.output,
            host_triple: &host.triple,
            sycl: host.sycl,
            late: host.late,
            device_compiler: host.device_compiler,
            protection: host.protection,
            llvm: &self.background.llvm,
            cache: self.background.caching.cache().ok(),
        }
    }

    /// The file name of the output, which is the prefix of temporary names.
    fn out_base(&self) -> String {
        let name = self.output.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

// The tests start `offld-llvm` by its path, and a build without LLVM does not have it.
#[cfg(feature = "with-llvm")]
#[cfg(test)]
mod tests;
