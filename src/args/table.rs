//! The table of offld's own options and the types of its rows: spelling, form of the operand,
//! recipient, help. `table_ld` has the options of host linkers. The parser, the help text and the
//! tests use only these tables.

use super::Role;

/// The recipients of an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route {
    /// The host linker only.
    Host,
    /// offld only; the host linker does not get it.
    Wrapper,
    /// The host linker and offld.
    Both,
}

/// The dashes before an option's name.
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

/// The form of an option's operand.
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
    /// `--opt N`, `--opt=N`, or `--opt` alone if no number follows: a flag for some linkers, an
    /// option with a value for others.
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

/// The command lines on which a row applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Scope {
    /// On every command line.
    Everywhere,
    /// Only for `clang-linker-wrapper`: the option has another meaning for linkers, or it is from
    /// an earlier LLVM release.
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
    /// The dashes before the name.
    pub dashes: Dashes,
    /// The form of its operand.
    pub shape: Shape,
    /// Its recipients.
    pub route: Route,
    /// The command lines on which it applies.
    pub scope: Scope,
    /// The option's identity, shared by all its spellings.
    pub id: Id,
    /// One line for `--help`; empty for options that only `--help-hidden` lists, and for linker
    /// options.
    pub help: &'static str,
}

impl OptionRow {
    /// The option as the help shows it: `--opt=<value>`, or another form that matches its operand.
    pub(crate) fn spelling(&self) -> String {
        let dashes = if self.dashes == Dashes::One {
            "-"
        } else {
            "--"
        };
        let value = match self.shape {
            Shape::Flag => "",
            Shape::Separate | Shape::Letter | Shape::LetterNumber => " <value>",
            _ => "=<value>",
        };
        format!("{dashes}{}{value}", self.name)
    }
}

/// The identity of an option, independent of its spelling.
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
    ExternalImages,
    Kpack,
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
    StableNames,
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
    FortranCommon,
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
    NoFortranCommon,
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
    // Other options of host linkers, listed so that offld does not mistake an operand for an input,
    // or a long name for a letter with a value.
    Flag,
    Operand,
}

/// Returns the rows with this name, in a table ordered by name.
pub(super) fn named(table: &'static [OptionRow], name: &[u8]) -> &'static [OptionRow] {
    let start = table.partition_point(|row| row.name.as_bytes() < name);
    let end = table.partition_point(|row| row.name.as_bytes() <= name);
    &table[start..end]
}

/// offld's options, ordered by name.
pub fn own_rows() -> &'static [OptionRow] {
    OWN
}

const fn own(
    name: &'static str,
    dashes: Dashes,
    shape: Shape,
    id: Id,
    help: &'static str,
) -> OptionRow {
    OptionRow {
        name,
        dashes,
        shape,
        route: Route::Wrapper,
        scope: Scope::Everywhere,
        id,
        help,
    }
}

/// An option for `clang-linker-wrapper` only: one of an earlier release, or one with another
/// meaning for linkers.
const fn wrapper(
    name: &'static str,
    dashes: Dashes,
    shape: Shape,
    id: Id,
    help: &'static str,
) -> OptionRow {
    OptionRow {
        scope: Scope::Wrapper,
        ..own(name, dashes, shape, id, help)
    }
}

/// A spelling of LLVM 14 or 15 that later releases and linkers do not know, or read differently.
const fn before(name: &'static str, dashes: Dashes, id: Id) -> OptionRow {
    OptionRow {
        scope: Scope::BeforeSeparator,
        ..own(name, dashes, Flag, id, "")
    }
}

/// An option that belongs to offld only as the sole argument (`Mode`), and to the linker otherwise.
const fn alone(name: &'static str, dashes: Dashes, id: Id, help: &'static str) -> OptionRow {
    OptionRow {
        route: Route::Host,
        ..own(name, dashes, Flag, id, help)
    }
}

use Dashes::{Any, One, Two};
use Shape::{Either, Equals, Flag, OptionalEquals, Separate};

#[rustfmt::skip]
const OWN: &[OptionRow] = &[
    wrapper("bitcode-library", Two, Equals, Id::BitcodeLibrary, ""),
    wrapper("builtin-bitcode", Two, Equals, Id::BuiltinBitcode, ""),
    wrapper("clang-backend", Two, Flag, Id::ClangBackend, ""),
    own("compress", Two, Flag, Id::Compress, "Compress the bundles of HIP images"),
    own("compression-level", Two, Equals, Id::CompressionLevel, "Set the compression level of bundles"),
    own("cuda-path", Any, Either, Id::CudaPath, "Use fatbinary, nvlink and ptxas of this CUDA installation"),
    own("device-compiler", Two, Equals, Id::DeviceCompiler, "Pass an argument to the device compiler: <value>, or <triple>=<value> for one target"),
    wrapper("device-debug", Two, Flag, Id::DeviceDebug, ""),
    own("device-linker", Two, Equals, Id::DeviceLinker, "Pass an argument to the device linker: <value>, or <triple>=<value> for one target"),
    before("dry-run", One, Id::DryRun),
    own("dry-run", Two, Flag, Id::DryRun, "Print the commands without running them"),
    before("embed-bitcode", One, Id::EmbedBitcode),
    own("embed-bitcode", Two, Flag, Id::EmbedBitcode, "Embed linked bitcode instead of machine code, for compilation at run time"),
    own("emit-fatbin-only", Two, Flag, Id::EmitFatbinOnly, "Write the bundled device images to the output, and skip the host link"),
    before("g", One, Id::DeviceDebug),
    alone("help", Two, Id::Help, "Print this help (only as the sole argument)"),
    alone("help-hidden", Two, Id::Help, "Print this help with the options of earlier LLVM releases"),
    own("host-triple", Any, Either, Id::HostTriple, "Set the target triple of the host code"),
    own("linker-path", Any, Either, Id::LinkerPath, "Set the host linker"),
    wrapper("mllvm", One, Separate, Id::Mllvm, "Pass an argument to LLVM in device links"),
    wrapper("no-lto", Two, Flag, Id::NoLto, "Compile each AMD GPU bitcode input separately, without link-time optimization"),
    own("no-offld-note", Two, Flag, Id::NoOffldNote, "Do not write the versions of offld and the device compiler into the output"),
    own("no-offload-runtime", Two, Flag, Id::NoOffloadRuntime, "Add no offload runtime library to the host link"),
    own("offld-clang", Two, Equals, Id::OffldClang, "Set the device compiler (OFFLD_CLANG)"),
    own("offld-linker", Two, Equals, Id::OffldLinker, "Set the host linker (OFFLD_LINKER). Precedence: --offld-linker=, --linker-path=, OFFLD_LINKER"),
    own("offld-sycl-registration", Two, Equals, Id::OffldSyclRegistration, "Set the LLVM version of the SYCL runtime that the program will load: 22, 23 or 24"),
    own("offload-opt", Any, Equals, Id::OffloadOpt, "Pass an argument to LLVM in device links"),
    wrapper("opt-level", Any, Either, Id::OptLevel, ""),
    own("override-image", Two, Equals, Id::OverrideImage, "Use a file as device image instead of device code from the inputs: <kind>=<file>"),
    wrapper("pass-remarks", Two, Equals, Id::PassRemarks, ""),
    wrapper("pass-remarks-analysis", Two, Equals, Id::PassRemarksAnalysis, ""),
    wrapper("pass-remarks-missed", Two, Equals, Id::PassRemarksMissed, ""),
    own("print-wrapped-module", Two, Flag, Id::PrintWrappedModule, "Print the registration code as LLVM IR"),
    wrapper("ptxas-arg", Two, Equals, Id::PtxasArg, ""),
    wrapper("ptxas-args", Any, Either, Id::PtxasArg, ""),
    own("reproduce", Two, Either, Id::Reproduce, "Write a tar file with all inputs and a script that repeats the link (replaces lld's --reproduce)"),
    before("save-temps", One, Id::SaveTemps),
    own("save-temps", Two, Flag, Id::SaveTemps, "Keep intermediate files in the current directory"),
    own("should-extract", Two, Equals, Id::ShouldExtract, "Always link archive members with device code for these architectures, separated by commas"),
    wrapper("strip-sections", Any, Flag, Id::StripSections, ""),
    wrapper("target-embed-bc", Any, Flag, Id::EmbedBitcode, ""),
    wrapper("target-feature", Any, Either, Id::TargetFeature, ""),
    wrapper("target-library", Any, Either, Id::BitcodeLibrary, ""),
    before("v", Any, Id::Verbose),
    before("verbose", Any, Id::Verbose),
    alone("version", Any, Id::Version, "Print the version (only as the sole argument)"),
    own("wrapper-cache", Two, Equals, Id::Cache, "Use the cache in this directory, or none if it is `off` (OFFLD_CACHE) [default: ~/.cache/offld]"),
    own("wrapper-distribute", Two, OptionalEquals, Id::Distribute, "Compile and cache each ThinLTO translation unit separately: auto, on or off (OFFLD_DISTRIBUTE) [default: auto]"),
    own("wrapper-external-images", Two, OptionalEquals, Id::ExternalImages, "Write images to files in this directory, which the program loads when it starts; a relative path starts at the program's directory [default: OUTPUT.images]"),
    own("wrapper-jobs", Two, Equals, Id::Jobs, "Limit device links that run at the same time: a number, or jobserver [default: number of CPU cores, or make's jobserver]"),
    own("wrapper-kpack", Two, Flag, Id::Kpack, "Move HIP code from the output into kpack archives in the directory .kpack next to the output, where ROCm's loader finds them"),
    own("wrapper-late-images", Two, Equals, Id::LateImages, "Insert images into the program after the host link: auto, on or off (OFFLD_LATE_IMAGES) [default: auto]"),
    own("wrapper-launcher", Two, Equals, Id::Launcher, "Use this command to run device links on other machines: 'srun -n1 -c{threads} --mem={mem}M' (OFFLD_LAUNCHER)"),
    own("wrapper-launcher-wait", Two, Equals, Id::LauncherWait, "Limit the time of a job in the launcher's queue, in seconds (OFFLD_LAUNCHER_WAIT) [default: 600]"),
    own("wrapper-lto-partitions", Two, Equals, Id::LtoPartitions, "Split full-LTO code generation for AMD GPUs into N parallel partitions: auto or a number (OFFLD_LTO_PARTITIONS) [default: clang's default]"),
    own("wrapper-memory", Two, Equals, Id::Memory, "Limit the memory of all device links of this user together: a size, auto (free memory) or off (OFFLD_MEMORY) [default: auto]"),
    own("wrapper-remote-jobs", Two, Equals, Id::RemoteJobs, "Limit jobs that the launcher runs at the same time (OFFLD_REMOTE_JOBS) [default: 32]"),
    own("wrapper-stable-names", Two, Equals, Id::StableNames, "Give OpenMP kernels names that do not depend on the location of the source file: on (rename in the linked program), objects (rename in copies of the inputs before the host link, for reproducible programs) or off (OFFLD_STABLE_NAMES) [default: on]"),
    own("wrapper-time-trace", Two, Equals, Id::TimeTrace, "Write a time trace in Chrome's format to this file"),
    own("wrapper-time-trace-granularity", Two, Equals, Id::TimeTraceGranularity, "Omit spans shorter than this number of microseconds from the time trace [default: 500]"),
    own("wrapper-verbose", Two, Flag, Id::Verbose, "Print the commands before running them"),
    own("wrapper-why", Two, Flag, Id::Why, "Print for each archive member whether its device code is linked, and why"),
];
