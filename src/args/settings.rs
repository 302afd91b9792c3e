//! The settings of a link, as plain data: offld's options with checked values, and the inputs in
//! command-line order with the linker state at each. [`LinkSettings::of_environment`] reads the
//! environment variables that stand in for options. [`LinkSettings::new`] then applies the command
//! line, so that options take precedence. No later stage decides between the two.
//!
//! Linker options such as `--whole-archive` change the treatment of later inputs. Each input gets a
//! copy of the state at its position, so no later stage has to read these options
//! (docs/spec/faults.md F4, F6, F18). Inputs are not looked up on disk here;
//! `link::inputs` does that.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::Result;

use super::link_exe::{exported, plain_and_i386};
pub use super::values::{Defsym, Destination, Distribute, KernelNames, LateImages, LtoPartitions};
use super::values::{
    distribute, granularity, jobs, late_images, launcher_wait, lto_partitions, memory_limit, names,
    pair, remote_jobs, sycl_release, text,
};
use super::{Arg, ArgKind, ArgumentList, Dialect, Id, Role, TargetArg};
pub use offld_system::environment::{Checked, Env, Named};
use offld_system::environment::{
    LIB, OFFLD_CACHE_LOG, OFFLD_CLANG, OFFLD_DISTRIBUTE, OFFLD_LATE_IMAGES, OFFLD_LAUNCHER,
    OFFLD_LAUNCHER_WAIT, OFFLD_LINKER, OFFLD_LTO_PARTITIONS, OFFLD_MEMORY, OFFLD_REMOTE_JOBS,
    OFFLD_REPRODUCE, OFFLD_SHARED_TMP, OFFLD_STABLE_NAMES, OFFLD_TIME_TRACE, OFFLD_VERBOSE,
};
pub use offld_system::jobs::{Jobs, MemoryLimit};
pub use offld_system::launcher::Launching;
use offld_system::store::settings::named_by_environment;
use offload_formats::error::Error;
use offload_formats::target::Target;

/// An argument for LLVM. Both kinds reach the LTO of the device link, in command-line order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LlvmOption {
    /// `-mllvm X`, which is passed to the device compiler as well.
    Mllvm(OsString),
    /// `--offload-opt=X`.
    OffloadOpt(OsString),
}

impl LlvmOption {
    /// `option` and `value` joined, as an argument of `--offload-opt`.
    fn of(option: &str, value: &OsStr) -> LlvmOption {
        let mut text = OsString::from(option);
        text.push(value);
        LlvmOption::OffloadOpt(text)
    }

    /// The argument itself.
    pub fn value(&self) -> &OsStr {
        match self {
            LlvmOption::Mllvm(value) | LlvmOption::OffloadOpt(value) => value,
        }
    }
}

/// `--bitcode-library=<kind>-<triple>-<arch>=<path>` of LLVM 15 to 19, `-target-library` of LLVM
/// 14.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BitcodeLibrary {
    /// `<kind>-<triple>-<arch>`, as given.
    pub target: String,
    /// The library.
    pub path: PathBuf,
}

impl BitcodeLibrary {
    /// Whether the library is for device code of this kind and target.
    pub fn is_for(&self, kind: &str, triple: &str, arch: &str) -> bool {
        self.target == format!("{kind}-{triple}-{arch}")
    }
}

/// The file or library that an input names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputName {
    /// A file, as given.
    File(PathBuf),
    /// `-l`: a library to search for. A leading `:` requests a file of exactly that name.
    Library(OsString),
    /// `-T`: a linker script to search for.
    Script(PathBuf),
}

/// The options in effect at one position of a command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InputState {
    /// `--whole-archive`.
    pub whole_archive: bool,
    /// Between `--start-lib` and `--end-lib`: an object is treated like a member of an archive.
    pub lazy: bool,
    /// `-Bstatic`: `-l` finds archives only.
    pub prefer_static: bool,
    /// `--as-needed`.
    pub as_needed: bool,
    /// `--format=binary`: a file is data, even if its contents look like an object.
    pub binary: bool,
    /// The index of the enclosing `--start-group`, counted from 0.
    pub group: Option<usize>,
}

/// One input of the host link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputSpec {
    /// The file or library.
    pub name: InputName,
    /// The linker state at its position on the command line.
    pub state: InputState,
    /// The index of its first token in [`ArgumentList::tokens`].
    pub token: usize,
}

impl InputSpec {
    /// The token of an input that is not on the command line.
    pub const NO_TOKEN: usize = usize::MAX;

    /// An input that an object or an option requests, and that is not on the command line itself.
    pub fn requested(name: InputName) -> InputSpec {
        InputSpec {
            name,
            state: InputState::default(),
            token: InputSpec::NO_TOKEN,
        }
    }
}

/// Options for device code and its links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// `--offld-clang`, or `OFFLD_CLANG`.
    pub offld_clang: Option<Named>,
    /// `--cuda-path`.
    pub cuda_path: Option<PathBuf>,
    /// `--device-linker`, in order.
    pub device_linker: Vec<TargetArg>,
    /// `--device-compiler`, in order.
    pub device_compiler: Vec<TargetArg>,
    /// `-mllvm` and `--offload-opt`, in order. LLVM 15 to 19's `--pass-remarks…=` are here too.
    pub llvm_options: Vec<LlvmOption>,
    /// `--embed-bitcode`.
    pub embed_bitcode: bool,
    /// `--compress`.
    pub compress: bool,
    /// `--compression-level`, unchecked: the code that compresses knows the range.
    pub compression_level: Option<String>,
    /// `--wrapper-lto-partitions`, the last one, or `OFFLD_LTO_PARTITIONS`.
    pub lto_partitions: Option<Checked<LtoPartitions>>,
    /// `--override-image`: kind and file.
    pub override_images: Vec<(String, PathBuf)>,
    /// `--should-extract`: architectures, without repetition.
    pub should_extract: Vec<String>,
    /// `--no-lto`: device bitcode for AMD GPUs is compiled separately for each input, instead of
    /// being linked as bitcode.
    pub no_lto: bool,
    /// `--no-offload-runtime`.
    pub no_offload_runtime: bool,
    /// `--offld-sycl-registration`: the LLVM version of the SYCL runtime that the program will
    /// load.
    pub sycl_release: Option<u32>,
    /// `--device-debug` of LLVM 15 to 20: `-g` for the device compiler.
    pub device_debug: bool,
    /// `--opt-level=O2` of LLVM 14 to 20: the optimization level of the device compiler, as given
    /// (`O2`).
    pub opt_level: Option<String>,
    /// `--ptxas-arg` of LLVM 14 to 20: each goes to ptxas through `-Xcuda-ptxas`.
    pub ptxas_args: Vec<OsString>,
    /// `--bitcode-library` of LLVM 15 to 19, or `-target-library` of LLVM 14.
    pub bitcode_libraries: Vec<BitcodeLibrary>,
    /// `--builtin-bitcode=<triple>=<file>` of LLVM 18 and 19.
    pub builtin_bitcode: Vec<TargetArg>,
    /// `-target-feature=<triple>=<features>` of LLVM 14.
    pub target_features: Vec<TargetArg>,
}

impl DeviceOptions {
    /// The user's arguments for the linker of `target`.
    pub(crate) fn linker_args(&self, target: &Target) -> impl DoubleEndedIterator<Item = &OsStr> {
        let args = self.device_linker.iter();
        args.filter_map(|arg| arg.for_target(target))
    }

    /// The user's arguments for the compiler of `target`.
    pub(crate) fn compiler_args(&self, target: &Target) -> impl DoubleEndedIterator<Item = &OsStr> {
        let args = self.device_compiler.iter();
        args.filter_map(|arg| arg.for_target(target))
    }
}

/// Options of the host link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct HostOptions {
    /// `--host-triple`.
    pub host_triple: Option<String>,
    /// `--linker-path`.
    pub linker_path: Option<PathBuf>,
    /// `--offld-linker`, which wins over `linker_path`, or `OFFLD_LINKER`, which does not.
    pub offld_linker: Option<Named>,
    /// `--allow-multiple-definition`, or `-z muldefs`: the first of several definitions of a symbol
    /// is used.
    pub allow_multiple_definition: bool,
    /// `--sysroot`, the last one.
    pub sysroot: Option<PathBuf>,
    /// `-L` of the whole command line in order, as given: a leading `=` stands for the sysroot.
    pub library_dirs: Vec<PathBuf>,
    /// `LIB`: directories for link.exe, separated by semicolons.
    pub lib: Option<OsString>,
    /// `-rpath` and `-R` in order.
    pub rpaths: Vec<OsString>,
    /// `-r`.
    pub relocatable: bool,
    /// `-shared`.
    pub shared: bool,
    /// `-static`. `-Bstatic` only changes the state of the inputs after it.
    pub static_link: bool,
    /// `--fortran-common` (`true`) or `--no-fortran-common`, whichever is last.
    pub fortran_common: Option<bool>,
    /// `--gc-sections` or `--no-gc-sections`, whichever is last.
    pub gc_sections: bool,
    /// `-m`, the last one.
    pub emulation: Option<String>,
    /// Symbols that the command line requires, from `-u` and `--require-defined`.
    pub undefined: Vec<String>,
    /// Symbols that the command line requires, from `-e`.
    pub entries: Vec<String>,
    /// `--defsym`, with the symbols that each definition requires.
    pub defsyms: Vec<Defsym>,
    /// `--undefined-glob`: patterns for symbols whose definitions must be linked.
    pub undefined_globs: Vec<String>,
    /// `--wrap`.
    pub wrapped_symbols: Vec<String>,
    /// `-z` keywords in order.
    pub z_keywords: Vec<OsString>,
    /// link.exe's `/defaultlib:`, which the linker searches after everything else.
    pub default_libraries: Vec<OsString>,
    /// link.exe's `/nodefaultlib:`.
    pub without_libraries: Vec<OsString>,
    /// link.exe's `/nodefaultlib` without a value, which excludes all default libraries.
    pub no_default_libraries: bool,
    /// link.exe's `/alternatename:from=to`: `to` is used for `from` if nothing defines `from`.
    pub alternate_names: Vec<(String, String)>,
    /// Whether an option sets the program's entry or declares that it has none (link.exe's
    /// `/entry:` and `/noentry`).
    pub entry_is_named: bool,
}

/// Options of the cache for device links.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheOptions {
    /// `--wrapper-cache`, the last one, or `OFFLD_CACHE`: a directory, or a keyword that turns the
    /// cache off or on.
    pub folder: Option<Named>,
    /// `OFFLD_CACHE_LOG`: the file to which each device link appends a line.
    pub log: Option<PathBuf>,
}

/// Options for how a link runs: its output on the terminal, its use of the machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// `--dry-run`.
    pub dry_run: bool,
    /// `--wrapper-verbose`, or `OFFLD_VERBOSE`.
    pub verbose: bool,
    /// `--print-wrapped-module`.
    pub print_wrapped_module: bool,
    /// `--save-temps`.
    pub save_temps: bool,
    /// `--wrapper-time-trace`, or `OFFLD_TIME_TRACE`.
    pub time_trace: Option<Destination>,
    /// `--wrapper-time-trace-granularity`, in microseconds.
    pub time_trace_granularity: u32,
    /// `--wrapper-jobs`, the last one.
    pub jobs: Jobs,
    /// `--wrapper-memory`, the last one, or `OFFLD_MEMORY`.
    pub memory: Checked<MemoryLimit>,
    /// `--wrapper-late-images`, the last one, or `OFFLD_LATE_IMAGES`.
    pub late_images: Checked<LateImages>,
    /// `--wrapper-stable-names`, the last one, or `OFFLD_STABLE_NAMES`.
    pub kernel_names: Checked<KernelNames>,
    /// The settings for the launcher of device links.
    pub launching: Launching,
    /// `--wrapper-distribute`, the last one, or `OFFLD_DISTRIBUTE`.
    pub distribute: Checked<Distribute>,
    /// `--reproduce`, or `OFFLD_REPRODUCE`.
    pub reproduce: Option<Destination>,
    /// `--wrapper-why`.
    pub why: bool,
}

/// The settings of a link.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LinkSettings {
    /// The tool whose command line was read.
    pub role: Role,
    /// The family of linkers whose syntax the host arguments use.
    pub dialect: Dialect,
    /// `--emit-fatbin-only`.
    pub emit_fatbin_only: bool,
    /// `--no-offld-note`.
    pub no_note: bool,
    /// `--wrapper-external-images`, the last one: the directory for images in files. An empty path
    /// means the default, `OUTPUT.images`.
    pub external_images: Option<PathBuf>,
    /// `--wrapper-kpack`.
    pub kpack: bool,
    /// The options for device code.
    pub device: DeviceOptions,
    /// The options of the host link.
    pub host: HostOptions,
    /// The options of the cache.
    pub cache: CacheOptions,
    /// The options for how the link runs.
    pub run: RunOptions,
    /// The output: the last `-o`, else link.exe's `/out:`.
    pub output: Option<PathBuf>,
    /// The inputs in order.
    pub inputs: Vec<InputSpec>,
}

impl LinkSettings {
    /// Returns the settings that the environment `env` makes, for a command line without options.
    pub fn of_environment(env: Env<'_>) -> LinkSettings {
        let path = |name: &str| env(name).map(PathBuf::from);
        let directory = |name: &str| path(name).map(Destination::Directory);
        let named = |by: &'static str| Some(Named::new(by, env(by)?));
        let mut settings = LinkSettings::default();
        let (device, host) = (&mut settings.device, &mut settings.host);
        let (cache, run) = (&mut settings.cache, &mut settings.run);

        device.offld_clang = named(OFFLD_CLANG);
        device.lto_partitions = checked(env, OFFLD_LTO_PARTITIONS, lto_partitions);

        host.lib = env(LIB);
        host.offld_linker = named(OFFLD_LINKER);

        cache.folder = named_by_environment(env);
        cache.log = path(OFFLD_CACHE_LOG);

        run.distribute = checked(env, OFFLD_DISTRIBUTE, distribute).unwrap_or_default();
        run.late_images = checked(env, OFFLD_LATE_IMAGES, late_images).unwrap_or_default();
        run.kernel_names = checked(env, OFFLD_STABLE_NAMES, names).unwrap_or_default();
        run.memory = checked(env, OFFLD_MEMORY, memory_limit).unwrap_or_default();
        run.launching.launcher = named(OFFLD_LAUNCHER);
        run.launching.wait = checked(env, OFFLD_LAUNCHER_WAIT, launcher_wait);
        run.launching.jobs = checked(env, OFFLD_REMOTE_JOBS, remote_jobs);
        run.launching.shared_temp = path(OFFLD_SHARED_TMP);
        run.reproduce = directory(OFFLD_REPRODUCE);
        run.time_trace = directory(OFFLD_TIME_TRACE);
        run.verbose = env(OFFLD_VERBOSE).is_some_and(|value| value != "0");
        settings
    }

    /// Returns the settings of a command line in the environment `env`. An error names the option
    /// with the invalid value.
    pub fn new(arguments: &ArgumentList, env: Env<'_>) -> Result<LinkSettings, Error> {
        let (role, dialect) = (arguments.role(), arguments.dialect());
        let mut settings = LinkSettings {
            role,
            dialect,
            ..LinkSettings::of_environment(env)
        };
        settings.run.time_trace_granularity = 500;
        let mut walk = Walk::new(arguments.args());
        for arg in arguments.args() {
            walk.step(arg);
            if arg.is_input() || arg.id() == Some(Id::Script) {
                settings.inputs.extend(input(arg, walk.state));
            }
            if let Some(id) = arg.id() {
                let set = settings.set(id, arg, walk.state.group);
                set.map_err(Error::in_line)?;
            }
        }
        let mut args = arguments.args().iter();
        let link_output = args.rfind(|arg| arg.id() == Some(Id::LinkOut));
        settings.output = settings
            .output
            .or_else(|| Some(link_output?.value.clone().unwrap_or_default().into()));
        Ok(settings)
    }

    /// Whether `--should-extract` adds archive members with device code for `arch` to the link.
    pub fn extracts(&self, arch: &str) -> bool {
        self.device
            .should_extract
            .iter()
            .any(|wanted| wanted == arch)
    }

    /// Returns the existing files that the command line names for device links only; the host
    /// linker reads none of them.
    pub(crate) fn device_files(&self) -> Vec<PathBuf> {
        let arguments = self
            .device
            .device_linker
            .iter()
            .chain(&self.device.builtin_bitcode)
            .map(|arg| PathBuf::from(arg.argument()));
        let images = self
            .device
            .override_images
            .iter()
            .map(|(_, file)| file.clone());
        let libraries = self
            .device
            .bitcode_libraries
            .iter()
            .map(|library| library.path.clone());
        arguments
            .chain(images)
            .chain(libraries)
            .filter(|path| path.is_file())
            .collect()
    }

    /// Whether temporary files go into the directory of the output (`-save-temps=obj`). clang
    /// passes `--save-temps` for all forms of the option. It also passes the form that the user
    /// wrote, as an argument for the device compiler: `--device-compiler=-save-temps=obj`.
    pub(crate) fn saves_temps_beside_output(&self) -> bool {
        let mut kinds = self
            .device
            .device_compiler
            .iter()
            .filter_map(|arg| arg.argument().to_str()?.strip_prefix("-save-temps"));
        kinds.next_back() == Some("=obj")
    }

    /// Applies one option. The match is exhaustive, so that no option is forgotten.
    fn set(&mut self, id: Id, arg: &Arg, group: Option<usize>) -> Result<()> {
        let (device, host) = (&mut self.device, &mut self.host);
        let (cache, run) = (&mut self.cache, &mut self.run);
        let value = arg.value.as_deref().unwrap_or_default();
        let path = || PathBuf::from(value);
        let target_arg = || TargetArg::new(value);
        let named = |by: &'static str| Some(Named::new(by, value));
        let mut remarks = |option: &str| device.llvm_options.push(LlvmOption::of(option, value));
        match id {
            Id::Compress => device.compress = true,
            Id::CompressionLevel => device.compression_level = Some(text(value)),
            Id::CudaPath => device.cuda_path = Some(path()),
            Id::DeviceCompiler => device.device_compiler.push(target_arg()),
            Id::DeviceLinker => device.device_linker.push(target_arg()),
            Id::DryRun => run.dry_run = true,
            Id::EmbedBitcode => device.embed_bitcode = true,
            Id::EmitFatbinOnly => self.emit_fatbin_only = true,
            Id::HostTriple => host.host_triple = Some(text(value)),
            Id::Jobs => run.jobs = jobs(value)?,
            Id::LinkerPath => host.linker_path = Some(path()),
            Id::Mllvm => device.llvm_options.push(LlvmOption::Mllvm(value.into())),
            Id::OffloadOpt => {
                let option = LlvmOption::OffloadOpt(value.to_owned());
                device.llvm_options.push(option);
            }
            Id::OverrideImage => {
                let image = pair("--override-image", "<kind>=<file>", value)?;
                device.override_images.push(image);
            }
            Id::PrintWrappedModule => run.print_wrapped_module = true,
            Id::SaveTemps => run.save_temps = true,
            Id::ShouldExtract => {
                for arch in text(value).split(',').filter(|arch| !arch.is_empty()) {
                    if !device.should_extract.iter().any(|known| known == arch) {
                        device.should_extract.push(arch.to_owned());
                    }
                }
            }
            Id::TimeTrace => run.time_trace = Some(Destination::File(path())),
            Id::TimeTraceGranularity => run.time_trace_granularity = granularity(value)?,
            Id::Verbose => run.verbose = true,

            Id::BitcodeLibrary => {
                let form = "<kind>-<triple>-<arch>=<path>";
                let (target, path) = pair("--bitcode-library", form, value)?;
                device
                    .bitcode_libraries
                    .push(BitcodeLibrary { target, path });
            }
            Id::BuiltinBitcode => device.builtin_bitcode.push(target_arg()),
            Id::DeviceDebug => device.device_debug = true,
            Id::NoLto => device.no_lto = true,
            Id::OptLevel => device.opt_level = Some(text(value)),
            Id::PassRemarks => remarks("-pass-remarks="),
            Id::PassRemarksAnalysis => remarks("-pass-remarks-analysis="),
            Id::PassRemarksMissed => remarks("-pass-remarks-missed="),
            Id::PtxasArg => device.ptxas_args.push(value.to_owned()),
            Id::TargetFeature => device.target_features.push(target_arg()),
            // offld always behaves as these options request.
            Id::ClangBackend | Id::StripSections => {}

            Id::Cache => cache.folder = named("--wrapper-cache"),
            Id::Distribute => run.distribute = distribute("--wrapper-distribute", value)?.into(),
            Id::ExternalImages => self.external_images = Some(PathBuf::from(value)),
            Id::Kpack => self.kpack = true,
            Id::StableNames => run.kernel_names = names("--wrapper-stable-names", value)?.into(),
            Id::LateImages => run.late_images = late_images("--wrapper-late-images", value)?.into(),
            Id::Launcher => run.launching.launcher = named("--wrapper-launcher"),
            Id::LauncherWait => {
                run.launching.wait = Some(launcher_wait("--wrapper-launcher-wait", value)?.into());
            }
            Id::LtoPartitions => {
                device.lto_partitions =
                    Some(lto_partitions("--wrapper-lto-partitions", value)?.into());
            }
            Id::Memory => run.memory = memory_limit("--wrapper-memory", value)?.into(),
            Id::NoOffldNote => self.no_note = true,
            Id::NoOffloadRuntime => device.no_offload_runtime = true,
            Id::OffldClang => device.offld_clang = named("--offld-clang="),
            Id::OffldLinker => host.offld_linker = named("--offld-linker="),
            Id::OffldSyclRegistration => device.sycl_release = Some(sycl_release(value)?),
            Id::RemoteJobs => {
                run.launching.jobs = Some(remote_jobs("--wrapper-remote-jobs", value)?.into());
            }
            Id::Reproduce => run.reproduce = Some(Destination::File(path())),
            Id::Why => run.why = true,

            Id::AllowMultipleDefinition => host.allow_multiple_definition = true,
            Id::Defsym => host.defsyms.push(Defsym::new(arg, group)),
            Id::Emulation => host.emulation = Some(text(value)),
            Id::Entry => host.entries.push(text(value)),
            Id::FortranCommon => host.fortran_common = Some(true),
            Id::NoFortranCommon => host.fortran_common = Some(false),
            Id::GcSections | Id::NoGcSections => host.gc_sections = id == Id::GcSections,
            // GNU ld and gold read -G without a number as -shared.
            Id::GpSize => host.shared |= arg.value.is_none(),
            Id::LibraryPath => host.library_dirs.push(path()),
            Id::Output => self.output = Some(path()),
            Id::Relocatable => host.relocatable = true,
            Id::Rpath => host.rpaths.push(value.to_owned()),
            Id::Shared => host.shared = true,
            Id::Static => host.static_link = true,
            Id::Sysroot => host.sysroot = Some(path()),
            Id::Undefined => host.undefined.push(text(value)),
            Id::UndefinedGlob => host.undefined_globs.push(text(value)),
            Id::Wrap => host.wrapped_symbols.push(text(value)),
            Id::Z => {
                host.allow_multiple_definition |= value == "muldefs";
                host.z_keywords.push(value.to_owned());
            }
            Id::LinkAlternateName => {
                let names = text(value);
                let names = names.split_once('=');
                let names = names.map(|(from, to)| (from.to_owned(), to.to_owned()));
                host.alternate_names.extend(names);
            }
            Id::LinkDefaultLib => host.default_libraries.push(value.to_owned()),
            Id::LinkEntry => {
                host.entry_is_named = true;
                if !value.is_empty() {
                    host.undefined.extend(plain_and_i386(&text(value)));
                }
            }
            Id::LinkExport => {
                let names = plain_and_i386(exported(&text(value)));
                host.undefined.extend(names);
            }
            Id::LinkNoDefaultLib if value.is_empty() => host.no_default_libraries = true,
            Id::LinkNoDefaultLib => host.without_libraries.push(value.to_owned()),
            // `new` applies it after all other options, if there is no -o.
            Id::LinkOut => {}
            // `Walk` and `input` handle inputs, and options that change the state of later inputs.
            Id::AsNeeded | Id::Bdynamic | Id::Bstatic | Id::EndGroup | Id::EndLib => {}
            Id::Format | Id::Library | Id::LinkWholeArchive | Id::NoAsNeeded => {}
            Id::NoWholeArchive | Id::PopState | Id::PushState | Id::StartGroup => {}
            Id::Script | Id::StartLib | Id::WholeArchive => {}
            // For the host linker only.
            Id::Flag | Id::Help | Id::Operand | Id::Version => {}
        }
        Ok(())
    }
}

/// Returns the value of the variable `name`, or the error about it.
fn checked<T: Copy>(
    env: Env<'_>,
    name: &str,
    parse: fn(&str, &OsStr) -> Result<T>,
) -> Option<Checked<T>> {
    Some(Checked::of_variable(parse(name, &env(name)?)))
}

/// Tracks the state from left to right along the arguments.
pub(super) struct Walk {
    /// The state after the last step.
    pub state: InputState,
    pushed: Vec<InputState>,
    groups: usize,
}

impl Walk {
    /// The state before the first argument. link.exe's `/wholearchive` applies to the whole command
    /// line at any position.
    pub(super) fn new(args: &[Arg]) -> Walk {
        let whole_archive = args
            .iter()
            .any(|arg| arg.id() == Some(Id::LinkWholeArchive) && arg.value.is_none());
        Walk {
            state: InputState {
                whole_archive,
                ..InputState::default()
            },
            pushed: Vec::new(),
            groups: 0,
        }
    }

    /// Applies one argument.
    pub(super) fn step(&mut self, arg: &Arg) {
        let state = &mut self.state;
        match arg.id() {
            Some(Id::WholeArchive) => state.whole_archive = true,
            Some(Id::NoWholeArchive) => state.whole_archive = false,
            Some(Id::StartLib) => state.lazy = true,
            Some(Id::EndLib) => state.lazy = false,
            Some(Id::Static | Id::Bstatic) => state.prefer_static = true,
            Some(Id::Bdynamic) => state.prefer_static = false,
            Some(Id::AsNeeded) => state.as_needed = true,
            Some(Id::NoAsNeeded) => state.as_needed = false,
            Some(Id::Format) => {
                state.binary = arg.value.as_ref().is_some_and(|format| format == "binary")
            }
            Some(Id::StartGroup) => {
                state.group = Some(self.groups);
                self.groups += 1;
            }
            Some(Id::EndGroup) => state.group = None,
            Some(Id::PushState) => self.pushed.push(*state),
            // GNU ld and lld both save these three and nothing else. The linker reports a
            // --pop-state without a --push-state.
            Some(Id::PopState) => {
                if let Some(saved) = self.pushed.pop() {
                    state.whole_archive = saved.whole_archive;
                    state.prefer_static = saved.prefer_static;
                    state.as_needed = saved.as_needed;
                }
            }
            _ => {}
        }
    }
}

/// Returns the input that an argument adds to the link.
fn input(arg: &Arg, state: InputState) -> Option<InputSpec> {
    let value = arg.value.as_ref()?;
    let (name, whole_archive) = match arg.kind {
        ArgKind::Known(row) if row.id == Id::Library => {
            (InputName::Library(value.clone()), state.whole_archive)
        }
        ArgKind::Known(row) if row.id == Id::Script => {
            (InputName::Script(PathBuf::from(value)), state.whole_archive)
        }
        // `/wholearchive:lib` names the library and links all of it.
        ArgKind::Known(_) => (InputName::File(PathBuf::from(value)), true),
        _ => (InputName::File(PathBuf::from(value)), state.whole_archive),
    };
    Some(InputSpec {
        name,
        state: InputState {
            whole_archive,
            ..state
        },
        token: arg.tokens.start,
    })
}
