//! Libraries of a device link: for a CPU, those of the host link, with its library directories,
//! sysroot and linker; for a GPU, those that every OpenMP image needs.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::{ArgList, DeviceContext};
use crate::args::Role;
use crate::args::settings::{InputName, LinkSettings};
use crate::link::inputs::Inputs;
use crate::link::scan::DeviceImage;
use crate::link::select::DeviceJob;
use crate::toolchain::{self, LinkerFamily};
use offld_system::run;
use offload_formats::magic::Magic;
use offload_formats::model::OffloadKind;
use offload_formats::target::Target;

// Host link settings that a device link for a CPU uses: library directories, sysroot, host linker
// and libraries.
//
// The dynamic loader, libomptarget, and archives whose device code is already linked are excluded.

/// A library of the host link that device code may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostLibrary {
    name: HostLibraryName,
    prefer_static: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum HostLibraryName {
    /// `-l<name>`.
    Name(OsString),
    /// `-L<folder>`, for the libraries after it.
    Folder(OsString),
    /// A file given by its path.
    File(PathBuf),
    /// A runtime of the program, which provides its functions to the image.
    OfProgram,
}

/// Returns the libraries that CPU device code needs from the arguments that offld adds to the host
/// link for OpenMP.
///
/// These are `-lomp` and its directory.
pub(crate) fn added_libraries(runtime_args: &[OsString]) -> Vec<HostLibrary> {
    if !runtime_args.iter().any(|arg| arg == "-lomp") {
        return Vec::new();
    }
    let folders = runtime_args
        .iter()
        .filter_map(|arg| arg.as_bytes().strip_prefix(b"-L"));
    let folders =
        folders.map(|folder| HostLibraryName::Folder(OsStr::from_bytes(folder).to_owned()));
    let names = folders.chain([HostLibraryName::Name("omp".into())]);
    names
        .map(|name| HostLibrary {
            name,
            prefer_static: false,
        })
        .collect()
}

/// Returns the libraries among the inputs, in order and without duplicates.
///
/// Archives with device code for a CPU are left out. Their device code is already an input, and
/// their host code must not resolve symbols of device code. Runtimes for executables only are left
/// out, too.
///
/// If the search directories of `linker`, the host linker, are known, libraries that it will not
/// find are left out, too: the host link reports them.
pub(crate) fn host_libraries(
    settings: &LinkSettings,
    inputs: &Inputs,
    found: &[DeviceImage<'_>],
    linker: &Path,
) -> Vec<HostLibrary> {
    let own_folders = OnceCell::new();
    let is_nowhere = |name: &OsStr| {
        let folders = own_folders.get_or_init(|| default_folders_of(linker, settings));
        folders
            .as_ref()
            .is_some_and(|folders| !folders.iter().any(|folder| contains_library(folder, name)))
    };
    let mut with_device_code = vec![false; inputs.files.len()];
    for image in found
        .iter()
        .filter(|image| Target::new(&image.triple, &image.arch).is_cpu())
    {
        with_device_code[inputs.objects[image.input_object].file] = true;
    }
    let mut libraries: Vec<HostLibrary> = Vec::new();
    for (index, (spec, file)) in settings.inputs.iter().zip(&inputs.named).enumerate() {
        let kind = file.map(|file| inputs.files[file].kind);
        if file.is_some_and(|file| with_device_code[file]) {
            continue;
        }
        let name = match &spec.name {
            InputName::Library(name) if is_runtime(name.as_bytes()) => continue,
            InputName::Library(name)
                if spec.state.prefer_static && is_for_executables(name.as_bytes()) =>
            {
                HostLibraryName::OfProgram
            }
            InputName::Library(name) if inputs.missing.contains(&index) && is_nowhere(name) => {
                continue;
            }
            InputName::Library(name) => HostLibraryName::Name(name.clone()),
            InputName::File(path) if matches!(kind, Some(Magic::Archive | Magic::ElfShared)) => {
                let name = path.file_name().unwrap_or_default().as_bytes();
                let library = name.strip_prefix(b"lib").unwrap_or_default();
                if is_loader(name) || is_runtime(library) {
                    continue;
                }
                match kind {
                    Some(Magic::Archive) if is_for_executables(library) => {
                        HostLibraryName::OfProgram
                    }
                    _ => HostLibraryName::File(path.clone()),
                }
            }
            InputName::File(_) | InputName::Script(_) => continue,
        };
        let library = HostLibrary {
            name,
            prefer_static: spec.state.prefer_static,
        };
        if !libraries.contains(&library) {
            libraries.push(library);
        }
    }
    libraries
}

/// Whether `linker` finds `-l` with this `name` outside the directories in its arguments. `None` if
/// its search directories are unknown.
pub(crate) fn linker_finds(linker: &Path, settings: &LinkSettings, name: &OsStr) -> Option<bool> {
    default_folders_of(linker, settings)
        .map(|folders| folders.iter().any(|folder| contains_library(folder, name)))
}

/// Returns the default search directories of `linker`, if they are known. ld.lld and wild have
/// none. GNU ld and gold print theirs.
fn default_folders_of(linker: &Path, settings: &LinkSettings) -> Option<Vec<PathBuf>> {
    let family = toolchain::linker_family(linker);
    if toolchain::is_ld_lld(linker) || family == LinkerFamily::Wild {
        return Some(Vec::new());
    }
    let default_folders = match family {
        LinkerFamily::Gnu | LinkerFamily::Gold => {
            builtin_folders(linker, settings.host.emulation.as_deref())
        }
        LinkerFamily::Lld | LinkerFamily::Mold | LinkerFamily::Wild | LinkerFamily::Other => {
            Vec::new()
        }
    };
    let root = settings.host.sysroot.as_deref().unwrap_or(Path::new("/"));
    // The sysroot replaces `=`.
    let rooted = |folder: PathBuf| match folder.as_os_str().as_bytes().strip_prefix(b"=/") {
        Some(below) => root.join(OsStr::from_bytes(below)),
        None => folder,
    };
    (!default_folders.is_empty()).then(|| default_folders.into_iter().map(rooted).collect())
}

/// Returns the default search directories of GNU ld for `emulation`, from the script that
/// `--verbose` prints. In them, `=` stands for the sysroot.
pub(super) fn builtin_folders(program: &Path, emulation: Option<&str>) -> Vec<PathBuf> {
    let mut args: Vec<&str> = emulation
        .into_iter()
        .flat_map(|emulation| ["-m", emulation])
        .collect();
    args.push("--verbose");
    script_words(
        run::stdout_of(program, &args)
            .unwrap_or_default()
            .as_bytes(),
    )
    .1
}

/// Returns the words of the linker script `text`, which may be file names, and its search
/// directories (`SEARCH_DIR`).
pub(super) fn script_words(text: &[u8]) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let path = |word: &[u8]| PathBuf::from(OsStr::from_bytes(word));
    let quoted = text.split(|byte| *byte == b'"').skip(1).step_by(2);
    let words = text.split(|byte| byte.is_ascii_whitespace() || b"(){},;\"".contains(byte));
    let called = words
        .chain(quoted)
        .filter(|word| !word.is_empty())
        .map(path)
        .collect();
    let folder = |at: usize| {
        let after = text
            .get(at + b"SEARCH_DIR".len()..)?
            .trim_ascii_start()
            .strip_prefix(b"(")?
            .trim_ascii_start();
        let (after, end) = match after.strip_prefix(b"\"") {
            Some(quoted) => (quoted, b'"'),
            None => (after, b')'),
        };
        Some(path(after.split(|byte| *byte == end).next()?.trim_ascii()))
    };
    let folders = memchr::memmem::find_iter(text, b"SEARCH_DIR")
        .filter_map(folder)
        .collect();
    (called, folders)
}

/// Whether `folder` contains the library that `-l` with this `name` finds.
fn contains_library(folder: &Path, name: &OsStr) -> bool {
    let is_there = |file: &[u8]| folder.join(OsStr::from_bytes(file)).exists();
    match name.as_bytes().strip_prefix(b":") {
        Some(file) => is_there(file),
        None => [&b".so"[..], b".a"]
            .iter()
            .any(|end| is_there(&[b"lib", name.as_bytes(), end].concat())),
    }
}

/// Whether the library is the offload runtime, which only host code uses.
fn is_runtime(name: &[u8]) -> bool {
    let name = name.strip_prefix(b":lib").unwrap_or(name);
    name.starts_with(b"omptarget") || name.starts_with(b"LLVMOffload")
}

/// Whether compilers link this static library, named without `lib`, into executables only.
///
/// These are the runtimes of sanitizers and fuzzers. A process has one such runtime. Like any
/// shared library, a CPU image uses the functions of the program's runtime.
fn is_for_executables(name: &[u8]) -> bool {
    /// Runtimes of clang that are linked into each shared library as well.
    const OF_LIBRARIES: [&[u8]; 6] = [
        b"asan_static",
        b"atomic",
        b"builtins",
        b"profile",
        b"stats_client",
        b"xray-dso",
    ];
    /// Runtimes of GCC that are linked into executables only (`-static-libasan` and the like).
    const OF_GCC: [&[u8]; 4] = [b"asan", b"hwasan", b"lsan", b"tsan"];
    let name = name.strip_suffix(b".a").unwrap_or(name);
    // The architecture may follow the runtime's name.
    let is = |runtime: &&[u8], name: &[u8]| {
        name.strip_prefix(*runtime)
            .is_some_and(|rest| matches!(rest, [] | [b'-', ..]))
    };
    match name
        .strip_prefix(b":lib")
        .unwrap_or(name)
        .strip_prefix(b"clang_rt.")
    {
        Some(clangs) => !OF_LIBRARIES.iter().any(|runtime| is(runtime, clangs)),
        None => OF_GCC.contains(&name),
    }
}

fn is_loader(name: &[u8]) -> bool {
    [&b"ld-linux"[..], b"ld-musl", b"ld64.so", b"ld.so"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
}

/// Whether a CPU image uses functions of the program's runtime, which no library of its own link
/// defines.
pub(crate) fn leave_symbols_open(libraries: &[HostLibrary]) -> bool {
    libraries
        .iter()
        .any(|library| library.name == HostLibraryName::OfProgram)
}

/// Whether the CPU `target` has the host's architecture.
fn is_host(context: &DeviceContext<'_>, target: &Target) -> bool {
    Target::new(context.host_triple, "").device().0 == Target::new(&target.triple, "").device().0
}

/// Returns the linker that offld passes to the compiler for the CPU `target`. `None` if the
/// compiler runs plain `ld`, its default.
pub(super) fn linker_path<'c>(context: &'c DeviceContext<'_>, target: &Target) -> Option<&'c Path> {
    let linker = Some(context.host_linker);
    if is_host(context, target) {
        return linker.filter(|linker| {
            linker.is_absolute() && linker.file_name().is_some_and(|name| name != "ld")
        });
    }
    // ld.lld links for all architectures.
    linker.filter(|linker| linker.to_string_lossy().ends_with("ld.lld"))
}

/// Adds the arguments of a link for the CPU `target`, except its inputs.
pub(super) fn cpu_arguments(args: &mut ArgList, context: &DeviceContext<'_>, target: &Target) {
    let settings = context.settings;
    args.arg("-Wl,-Bsymbolic").arg("-shared");
    let same_machine = is_host(context, target);
    if let Some(sysroot) = settings.host.sysroot.as_ref().filter(|_| same_machine) {
        args.joined("--sysroot=", sysroot.as_os_str());
    }
    if let Some(linker) = linker_path(context, target) {
        args.joined("--ld-path=", linker.as_os_str());
        if toolchain::linker_family(linker) == LinkerFamily::Wild {
            args.joined("-Wl,", OsStr::new(toolchain::RELIABLE_STATUS_OF_WILD));
        }
    }
    if !same_machine {
        // The host's directories and libraries contain code for the host only.
        return;
    }
    // After a bare `-L`, the compiler would use the next argument as the directory.
    for folder in settings
        .host
        .library_dirs
        .iter()
        .filter(|folder| !folder.as_os_str().is_empty() && !is_empty_folder_of_rustc(folder))
    {
        args.joined("-L", folder.as_os_str());
    }
    for folder in settings
        .host
        .rpaths
        .iter()
        .filter(|folder| !folder.is_empty())
    {
        // `-Wl,-rpath,…` would split directory names at commas.
        args.arg("-Xlinker")
            .arg("-rpath")
            .arg("-Xlinker")
            .arg(folder);
    }
    if context.libraries.is_empty() {
        return;
    }
    args.arg("-Wl,--as-needed");
    let mut is_static = false;
    for library in context.libraries {
        let wants_static = library.prefer_static && !settings.host.static_link;
        if wants_static != is_static {
            args.arg(if wants_static {
                "-Wl,-Bstatic"
            } else {
                "-Wl,-Bdynamic"
            });
            is_static = wants_static;
        }
        match &library.name {
            HostLibraryName::Folder(folder) => args.joined("-L", folder),
            HostLibraryName::Name(name) => args.joined("-l", name),
            HostLibraryName::File(path) => args.path(path),
            HostLibraryName::OfProgram => continue,
        };
    }
    if is_static {
        args.arg("-Wl,-Bdynamic");
    }
    args.arg("-Wl,--no-as-needed");
}

/// Whether `folder` is the directory that rustc passes to each link for its generated import
/// libraries (`raw_dylib_dir` in rustc_codegen_ssa's back/link.rs), and contains none. The path has
/// a random part, so with it, no image of an earlier link would be found in the cache.
fn is_empty_folder_of_rustc(folder: &Path) -> bool {
    let is_empty = || std::fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_none());
    folder.ends_with("raw-dylibs") && is_empty()
}

// Adds the GPU libraries that every OpenMP image needs.
//
// clang adds them to the wrapper's arguments (docs/spec/link-driver.md 1.3). A direct call of
// `ld.offld` lacks them.

/// First LLVM release with the runtime as a library. Earlier compilers add it as bitcode.
const FIRST_RELEASE_WITH_RUNTIME: u32 = 22;

/// A library that clang passes to device links.
struct GpuLibrary {
    name: &'static str,
    /// The install location.
    place: Origin,
    /// Whether clang passes it to relocatable links, too.
    relocatable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// `lib/TRIPLE` in the compiler's installation.
    Runtime,
    /// Also in `lib/TRIPLE`. clang assumes it exists if the headers do (`include/TRIPLE`).
    C,
    /// `lib/TRIPLE` in the resource directory of the compiler's release.
    Release,
}

/// In clang's order. The user's libraries follow the first one, the OpenMP runtime.
const GPU_LIBRARIES: [GpuLibrary; 5] = [
    GpuLibrary {
        name: "ompdevice",
        place: Origin::Runtime,
        relocatable: true,
    },
    GpuLibrary {
        name: "c",
        place: Origin::C,
        relocatable: false,
    },
    GpuLibrary {
        name: "m",
        place: Origin::C,
        relocatable: false,
    },
    GpuLibrary {
        name: "clang_rt.builtins",
        place: Origin::Release,
        relocatable: false,
    },
    GpuLibrary {
        name: "flang_rt.runtime",
        place: Origin::Release,
        relocatable: false,
    },
];

/// Linker arguments for an OpenMP image.
#[derive(Debug, Default)]
pub(super) struct RuntimeArgs {
    folders: Vec<PathBuf>,
    /// Libraries before the user's arguments.
    before: Vec<String>,
    /// Libraries after the user's arguments.
    after: Vec<String>,
}

impl RuntimeArgs {
    /// Adds the directories, and the libraries before the user's arguments.
    pub(super) fn add_before(&self, args: &mut ArgList) {
        for folder in &self.folders {
            args.arg("-Xlinker").joined("-L", folder.as_os_str());
        }
        add_libraries(&self.before, args);
    }

    /// Adds the libraries after the user's arguments.
    pub(super) fn add_after(&self, args: &mut ArgList) {
        add_libraries(&self.after, args);
    }
}

fn add_libraries(names: &[String], args: &mut ArgList) {
    for name in names {
        args.arg("-Xlinker").arg(format!("-l{name}"));
    }
}

/// Finds the libraries for images of one target.
struct Search<'a> {
    context: &'a DeviceContext<'a>,
    target: &'a Target,
    /// The directory in which the compiler is installed.
    root: PathBuf,
}

impl<'a> Search<'a> {
    /// Returns `None` if offld does not add libraries for `target`.
    fn new(context: &'a DeviceContext<'_>, target: &'a Target) -> Option<Search<'a>> {
        let settings = context.settings;
        let has_them = context
            .compiler
            .major
            .is_none_or(|major| major >= FIRST_RELEASE_WITH_RUNTIME);
        let is_ours = settings.role == Role::Ld
            && !settings.device.no_offload_runtime
            && (target.is_amdgcn() || target.is_nvptx());
        let root = || Some(context.compiler.library_folder()?.parent()?.to_path_buf());
        (is_ours && has_them)
            .then(root)
            .flatten()
            .map(|root| Search {
                context,
                target,
                root,
            })
    }

    /// The user's linker arguments for this target.
    fn user_args(&self) -> impl Iterator<Item = &OsStr> {
        self.context.settings.device.linker_args(self.target)
    }

    /// Whether the user's arguments name the library.
    fn is_named(&self, library: &GpuLibrary) -> bool {
        let (option, file) = (
            format!("-l{}", library.name),
            format!("lib{}.a", library.name),
        );
        let is_file = |word: &[u8]| {
            word.rsplit(|byte| *byte == b'/' || *byte == b':').next() == Some(file.as_bytes())
        };
        self.user_args()
            .any(|word| word.as_bytes() == option.as_bytes() || is_file(word.as_bytes()))
    }

    /// Returns the directory in which the library is installed.
    fn home(&self, library: &GpuLibrary) -> Option<PathBuf> {
        let lib = self.root.join("lib");
        Some(match library.place {
            Origin::Runtime | Origin::C => lib.join(&self.target.triple),
            Origin::Release => lib
                .join(format!("clang/{}/lib", self.context.compiler.major?))
                .join(&self.target.triple),
        })
    }

    /// Whether clang would pass the library if it exists.
    fn is_expected(&self, library: &GpuLibrary) -> bool {
        let has_headers = || self.root.join("include").join(&self.target.triple).is_dir();
        (library.relocatable || !self.context.settings.host.relocatable)
            && (library.place != Origin::C || has_headers())
    }

    /// Returns the directory that contains the library: one from the user's `-L` arguments, or its
    /// install location.
    fn folder_with(&self, library: &GpuLibrary) -> Option<PathBuf> {
        let file = format!("lib{}.a", library.name);
        let users = self
            .user_args()
            .filter_map(|word| word.as_bytes().strip_prefix(b"-L"));
        let users = users
            .filter(|folder| !folder.is_empty())
            .map(|folder| Path::new(OsStr::from_bytes(folder)).to_path_buf());
        users
            .chain(self.home(library))
            .find(|folder| folder.join(&file).is_file())
    }
}

/// Returns the existing libraries that clang would pass and the user does not name.
pub(super) fn gpu_runtime_args(context: &DeviceContext<'_>, job: &DeviceJob<'_>) -> RuntimeArgs {
    let mut words = RuntimeArgs::default();
    let Some(search) =
        Search::new(context, &job.target).filter(|_| job.kinds.contains(OffloadKind::OpenMp))
    else {
        return words;
    };
    for library in GPU_LIBRARIES
        .iter()
        .filter(|library| search.is_expected(library) && !search.is_named(library))
    {
        let Some(folder) = search.folder_with(library) else {
            continue;
        };
        if search.home(library).is_some_and(|home| home == folder)
            && !words.folders.contains(&folder)
        {
            words.folders.push(folder);
        }
        let place = if library.place == Origin::Runtime {
            &mut words.before
        } else {
            &mut words.after
        };
        place.push(library.name.to_owned());
    }
    words
}

/// Returns a hint for a failed link for `target` if a library is missing that its code may need.
pub(crate) fn missing_runtime(target: &Target, context: &DeviceContext<'_>) -> Option<String> {
    let search = Search::new(context, target)?;
    let surely = GPU_LIBRARIES
        .iter()
        .filter(|library| library.place != Origin::Release && search.is_expected(library));
    let missing: Vec<String> = surely
        .filter(|library| !search.is_named(library) && search.folder_with(library).is_none())
        .map(|library| format!("lib{}", library.name))
        .collect();
    let folder = search.root.join("lib").join(&target.triple);
    (!missing.is_empty()).then(|| {
        format!(
            "OpenMP device code for {target} needs {}, which is missing in {}: install the OpenMP runtime for this GPU, or pass the library \
             with --device-linker={}=FILE",
            missing.join(" and "),
            folder.display(),
            target.triple
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference;

    #[test]
    fn gnu_ld_prints_its_directories() {
        let Some([program]) = reference::tools(["ld.bfd"]) else {
            return;
        };
        for emulation in [None, Some("elf_x86_64")] {
            let folders = builtin_folders(&program, emulation);
            assert!(
                folders.iter().any(|folder| folder.ends_with("usr/lib")),
                "{folders:?}"
            );
        }
    }

    #[test]
    fn scripts_name_files_and_folders() {
        let text = b"/* x */ INPUT(sub/libx.a AS_NEEDED(\"my lib.a\", /abs.a)) SEARCH_DIR(\"=/usr/lib\"); SEARCH_DIR( one )";
        let (called, folders) = script_words(text);
        for name in ["sub/libx.a", "my lib.a"] {
            assert!(called.contains(&PathBuf::from(name)), "{called:?}");
        }
        assert!(called.contains(&PathBuf::from("/abs.a")));
        assert_eq!(folders, [PathBuf::from("=/usr/lib"), PathBuf::from("one")]);
    }
}
