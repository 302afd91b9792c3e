//! The table of offld's own options and the types of its rows: spelling, form of the operand, who gets the option, help. `table_ld`
//! has the host linkers' options. The parser, the help text and the tests use only these tables.

use super::Role;

/// Who gets an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// The host linker only.
    Host,
    /// offld only; it is not passed to the host linker.
    Wrapper,
    /// The host linker and offld.
    Both,
}

/// How many dashes an option is written with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dashes {
    /// `-opt`
    One,
    /// `--opt`
    Two,
    /// Either.
    Any,
}

impl Dashes {
    pub(super) fn accept(self, written: Dashes) -> bool {
        self == Dashes::Any || self == written
    }
}

/// How an option takes its operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shape {
    /// `--opt`
    Flag,
    /// `--opt=V`
    Equals,
    /// `--opt V`
    Separate,
    /// `--opt V` or `--opt=V`
    Either,
    /// `--opt N`, `--opt=N`, or `--opt` alone if no number follows: it is a flag for some linkers and takes a value for others.
    EitherNumber,
    /// `--opt` or `--opt=V`
    OptionalEquals,
    /// `-xV` or `-x V`
    Letter,
    /// `-xN`, `-x N`, or `-x` alone if no number follows.
    LetterNumber,
    /// `/opt:V`
    Colon,
    /// `/opt` or `/opt:V`
    OptionalColon,
}

impl Shape {
    pub(super) fn is_letter(self) -> bool {
        matches!(self, Shape::Letter | Shape::LetterNumber)
    }
}

/// Where a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// On every command line.
    Everywhere,
    /// Only for `clang-linker-wrapper`: linkers have another meaning for the option, or it is from an earlier release of LLVM.
    Wrapper,
    /// Only for `clang-linker-wrapper`, before the `--` that clang 14 to 16 writes.
    BeforeSeparator,
}

impl Scope {
    pub(super) fn holds(self, role: Role, before_separator: bool) -> bool {
        match self {
            Scope::Everywhere => true,
            Scope::Wrapper => role == Role::Wrapper,
            Scope::BeforeSeparator => before_separator,
        }
    }
}

/// One option.
#[derive(Debug)]
#[non_exhaustive]
pub struct OptionRow {
    /// Its name, without dashes.
    pub name: &'static str,
    /// The dashes it is written with.
    pub dashes: Dashes,
    /// How it takes its operand.
    pub shape: Shape,
    /// Who gets it.
    pub route: Route,
    /// Where it applies.
    pub scope: Scope,
    /// What it is.
    pub id: Id,
    /// One line for `--help`; empty for options that only `--help-hidden` lists, and for those of linkers.
    pub help: &'static str,
}

/// What an option is, however it is spelled.
#[expect(missing_docs, reason = "each is named after the option it stands for")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Id {
    // Options of clang-linker-wrapper in LLVM 22.
    Compress,
    CompressionLevel,
    CudaPath,
    DeviceCompiler,
    DeviceLinker,
    DryRun,
    EmbedBitcode,
    EmitFatbinOnly,
    Help,
    HostTriple,
    Jobs,
    LinkerPath,
    Mllvm,
    OffloadOpt,
    OverrideImage,
    PrintWrappedModule,
    SaveTemps,
    ShouldExtract,
    TimeTrace,
    TimeTraceGranularity,
    Verbose,
    Version,
    // Options of clang-linker-wrapper in LLVM 14 to 20.
    BitcodeLibrary,
    BuiltinBitcode,
    ClangBackend,
    DeviceDebug,
    OptLevel,
    PassRemarks,
    PassRemarksAnalysis,
    PassRemarksMissed,
    PtxasArg,
    StripSections,
    TargetFeature,
    // Options of clang-linker-wrapper in other builds of LLVM.
    NoLto,
    // Options that only offld has.
    Cache,
    Distribute,
    LateImages,
    Launcher,
    LauncherWait,
    LtoPartitions,
    Memory,
    NoOffldNote,
    NoOffloadRuntime,
    OffldClang,
    OffldLinker,
    OffldSyclRegistration,
    RemoteJobs,
    Reproduce,
    Why,
    // Options of host linkers that offld reads.
    AllowMultipleDefinition,
    AsNeeded,
    Bdynamic,
    Bstatic,
    Defsym,
    Emulation,
    EndGroup,
    EndLib,
    Entry,
    Format,
    GcSections,
    GpSize,
    Library,
    LibraryPath,
    LinkAlternateName,
    LinkDefaultLib,
    LinkEntry,
    LinkExport,
    LinkNoDefaultLib,
    LinkOut,
    LinkWholeArchive,
    NoAsNeeded,
    NoGcSections,
    NoWholeArchive,
    Output,
    PopState,
    PushState,
    Relocatable,
    Rpath,
    Script,
    Shared,
    StartGroup,
    StartLib,
    Static,
    Sysroot,
    Undefined,
    UndefinedGlob,
    WholeArchive,
    Wrap,
    Z,
    // Other options of host linkers: listed so that an operand is not taken for an input, nor a long name for a letter with a
    // value.
    Flag,
    Operand,
}

/// The rows with a name, in a table ordered by name.
pub(super) fn named(table: &'static [OptionRow], name: &[u8]) -> &'static [OptionRow] {
    let start = table.partition_point(|row| row.name.as_bytes() < name);
    let end = table.partition_point(|row| row.name.as_bytes() <= name);
    &table[start..end]
}

/// offld's options, ordered by name.
pub fn own_rows() -> &'static [OptionRow] {
    OWN
}

const fn own(name: &'static str, dashes: Dashes, shape: Shape, id: Id, help: &'static str) -> OptionRow {
    OptionRow { name, dashes, shape, route: Route::Wrapper, scope: Scope::Everywhere, id, help }
}

/// An option that only `clang-linker-wrapper` takes: one of an earlier release, or one that linkers read differently.
const fn wrapper(name: &'static str, dashes: Dashes, shape: Shape, id: Id, help: &'static str) -> OptionRow {
    OptionRow { name, dashes, shape, route: Route::Wrapper, scope: Scope::Wrapper, id, help }
}

/// A spelling of LLVM 14 or 15 that later releases and linkers do not know or read differently.
const fn before(name: &'static str, dashes: Dashes, id: Id) -> OptionRow {
    OptionRow { name, dashes, shape: Shape::Flag, route: Route::Wrapper, scope: Scope::BeforeSeparator, id, help: "" }
}

/// An option that is offld's only as the sole argument (`Mode`) and the linker's otherwise.
const fn alone(name: &'static str, dashes: Dashes, id: Id, help: &'static str) -> OptionRow {
    OptionRow { name, dashes, shape: Shape::Flag, route: Route::Host, scope: Scope::Everywhere, id, help }
}

use Dashes::{Any, One, Two};
use Shape::{Either, Equals, Flag, OptionalEquals, Separate};

#[rustfmt::skip]
const OWN: &[OptionRow] = &[
    wrapper("bitcode-library", Two, Equals, Id::BitcodeLibrary, ""),
    wrapper("builtin-bitcode", Two, Equals, Id::BuiltinBitcode, ""),
    wrapper("clang-backend", Two, Flag, Id::ClangBackend, ""),
    own("compress", Two, Flag, Id::Compress, "Compress the bundles of HIP images"),
    own("compression-level", Two, Equals, Id::CompressionLevel, "The level to compress bundles with"),
    own("cuda-path", Any, Either, Id::CudaPath, "The CUDA installation, for its fatbinary, nvlink and ptxas"),
    own("device-compiler", Two, Equals, Id::DeviceCompiler, "An argument for the device compiler, <value> or <triple>=<value>"),
    wrapper("device-debug", Two, Flag, Id::DeviceDebug, ""),
    own("device-linker", Two, Equals, Id::DeviceLinker, "An argument for the device linker, <value> or <triple>=<value>"),
    before("dry-run", One, Id::DryRun),
    own("dry-run", Two, Flag, Id::DryRun, "Print the commands without running them"),
    before("embed-bitcode", One, Id::EmbedBitcode),
    own("embed-bitcode", Two, Flag, Id::EmbedBitcode, "Embed linked bitcode instead of device code, for compilation at run time"),
    own("emit-fatbin-only", Two, Flag, Id::EmitFatbinOnly, "Write the bundled device images to the output and link nothing"),
    before("g", One, Id::DeviceDebug),
    alone("help", Two, Id::Help, "Print this help (when it is the only argument)"),
    alone("help-hidden", Two, Id::Help, "Print this help with the options of earlier releases"),
    own("host-triple", Any, Either, Id::HostTriple, "The triple the host code was compiled for"),
    own("linker-path", Any, Either, Id::LinkerPath, "The host linker"),
    wrapper("mllvm", One, Separate, Id::Mllvm, "An argument for LLVM, in device links too"),
    wrapper("no-lto", Two, Flag, Id::NoLto, "Compile bitcode for AMD's GPUs, each input by itself, in place of link-time optimization"),
    own("no-offld-note", Two, Flag, Id::NoOffldNote, "Leave out the note that says which offld and device compiler linked the file"),
    own("no-offload-runtime", Two, Flag, Id::NoOffloadRuntime, "Add no offload runtime library to the host link"),
    own("offld-clang", Two, Equals, Id::OffldClang, "The clang to link device code with"),
    own("offld-linker", Two, Equals, Id::OffldLinker, "The host linker; wins over --linker-path="),
    own("offld-sycl-registration", Two, Equals, Id::OffldSyclRegistration, "The release of LLVM whose SYCL runtime is used: 22, 23 or 24"),
    own("offload-opt", Any, Equals, Id::OffloadOpt, "An argument for LLVM, in device links too, as one word"),
    wrapper("opt-level", Any, Either, Id::OptLevel, ""),
    own("override-image", Two, Equals, Id::OverrideImage, "Take a file as the device image of a kind, <kind>=<file>, and scan no input"),
    wrapper("pass-remarks", Two, Equals, Id::PassRemarks, ""),
    wrapper("pass-remarks-analysis", Two, Equals, Id::PassRemarksAnalysis, ""),
    wrapper("pass-remarks-missed", Two, Equals, Id::PassRemarksMissed, ""),
    own("print-wrapped-module", Two, Flag, Id::PrintWrappedModule, "Print the registration modules"),
    wrapper("ptxas-arg", Two, Equals, Id::PtxasArg, ""),
    wrapper("ptxas-args", Any, Either, Id::PtxasArg, ""),
    own("reproduce", Two, Either, Id::Reproduce, "Write a tar with every input and a script that repeats the link (in place of lld's option)"),
    before("save-temps", One, Id::SaveTemps),
    own("save-temps", Two, Flag, Id::SaveTemps, "Keep intermediate files, in the current directory"),
    own("should-extract", Two, Equals, Id::ShouldExtract, "Link archive members of these architectures, separated by commas"),
    wrapper("strip-sections", Any, Flag, Id::StripSections, ""),
    wrapper("target-embed-bc", Any, Flag, Id::EmbedBitcode, ""),
    wrapper("target-feature", Any, Either, Id::TargetFeature, ""),
    wrapper("target-library", Any, Either, Id::BitcodeLibrary, ""),
    before("v", Any, Id::Verbose),
    before("verbose", Any, Id::Verbose),
    alone("version", Any, Id::Version, "Print the version (when it is the only argument)"),
    own("wrapper-cache", Two, Equals, Id::Cache, "The folder of the cache of device links, or off (OFFLD_CACHE)"),
    own("wrapper-distribute", Two, OptionalEquals, Id::Distribute, "Compile ThinLTO's units one by one, each looked up in the cache: on, off or auto (OFFLD_DISTRIBUTE)"),
    own("wrapper-jobs", Two, Equals, Id::Jobs, "How many device links run at once: a number, or jobserver"),
    own("wrapper-late-images", Two, Equals, Id::LateImages, "Put images into the program after its host link: auto, on or off (OFFLD_LATE_IMAGES)"),
    own("wrapper-launcher", Two, Equals, Id::Launcher, "Run device links by this command, on other machines: 'srun -n1 -c{threads} --mem={mem}M' (OFFLD_LAUNCHER)"),
    own("wrapper-launcher-wait", Two, Equals, Id::LauncherWait, "How many seconds a job may wait in the launcher's queue (OFFLD_LAUNCHER_WAIT)"),
    own("wrapper-lto-partitions", Two, Equals, Id::LtoPartitions, "Generate code for AMD's GPUs in so many parts at once: auto or a number (OFFLD_LTO_PARTITIONS)"),
    own("wrapper-memory", Two, Equals, Id::Memory, "How much memory all device links may take: a size, auto for what is free, or off (OFFLD_MEMORY)"),
    own("wrapper-remote-jobs", Two, Equals, Id::RemoteJobs, "How many jobs the launcher runs at once (OFFLD_REMOTE_JOBS)"),
    own("wrapper-time-trace", Two, Equals, Id::TimeTrace, "Write a time trace in Chrome's format"),
    own("wrapper-time-trace-granularity", Two, Equals, Id::TimeTraceGranularity, "The shortest span the trace shows, in microseconds"),
    own("wrapper-verbose", Two, Flag, Id::Verbose, "Print the commands before running them"),
    own("wrapper-why", Two, Flag, Id::Why, "Print for each archive member whether its device code is linked, and why"),
];
