//! Adds the GPU libraries that every OpenMP image needs.
//!
//! clang adds them to the wrapper's arguments (docs/spec/link-driver.md 1.3). A direct call of
//! `ld.offld` lacks them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DeviceContext;
use super::clang::ArgList;
use crate::args::Role;
use crate::link::select::DeviceJob;
use crate::model::OffloadKind;
use crate::target::Target;

/// First LLVM release with the runtime as a library. Earlier compilers add it as bitcode.
const FIRST_RELEASE: u32 = 22;

/// A library that clang passes to device links.
struct Library {
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
const LIBRARIES: [Library; 5] = [
    Library {
        name: "ompdevice",
        place: Origin::Runtime,
        relocatable: true,
    },
    Library {
        name: "c",
        place: Origin::C,
        relocatable: false,
    },
    Library {
        name: "m",
        place: Origin::C,
        relocatable: false,
    },
    Library {
        name: "clang_rt.builtins",
        place: Origin::Release,
        relocatable: false,
    },
    Library {
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
        add(&self.before, args);
    }

    /// Adds the libraries after the user's arguments.
    pub(super) fn add_after(&self, args: &mut ArgList) {
        add(&self.after, args);
    }
}

fn add(names: &[String], args: &mut ArgList) {
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
            .is_none_or(|major| major >= FIRST_RELEASE);
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
    fn is_named(&self, library: &Library) -> bool {
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
    fn home(&self, library: &Library) -> Option<PathBuf> {
        let lib = self.root.join("lib");
        Some(match library.place {
            Origin::Runtime | Origin::C => lib.join(&self.target.triple),
            Origin::Release => lib
                .join(format!("clang/{}/lib", self.context.compiler.major?))
                .join(&self.target.triple),
        })
    }

    /// Whether clang would pass the library if it exists.
    fn is_expected(&self, library: &Library) -> bool {
        let has_headers = || self.root.join("include").join(&self.target.triple).is_dir();
        (library.relocatable || !self.context.settings.host.relocatable)
            && (library.place != Origin::C || has_headers())
    }

    /// Returns the directory that contains the library: one from the user's `-L` arguments, or its
    /// install location.
    fn folder_with(&self, library: &Library) -> Option<PathBuf> {
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
pub(super) fn words(context: &DeviceContext<'_>, job: &DeviceJob<'_>) -> RuntimeArgs {
    let mut words = RuntimeArgs::default();
    let Some(search) =
        Search::new(context, &job.target).filter(|_| job.kinds.contains(OffloadKind::OpenMp))
    else {
        return words;
    };
    for library in LIBRARIES
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
    let surely = LIBRARIES
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
