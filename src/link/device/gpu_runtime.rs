//! The libraries of GPUs that are linked into each OpenMP image: clang puts them on the wrapper's line (docs/spec/link-driver.md
//! 1.3), but whoever calls `ld.offld` directly does not.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::DeviceContext;
use super::arg_list::ArgList;
use crate::args::Role;
use crate::link::select::DeviceJob;
use crate::model::OffloadKind;
use crate::target::Target;

/// The first release that has the runtime as a library; before, it is bitcode that the compiler adds.
const FIRST: u32 = 22;

/// Which libraries clang passes, and when.
struct Library {
    name: &'static str,
    /// Where it is installed.
    place: Place,
    /// Whether clang passes it to relocatable links, too.
    relocatable: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// `lib/TRIPLE` beside the compiler.
    Runtime,
    /// There, too; clang takes it to be there if the headers are (`include/TRIPLE`).
    C,
    /// `lib/TRIPLE` of the folder with what belongs to this release of the compiler.
    Release,
}

/// In clang's order. What the user names stands after the first, the runtime of OpenMP.
const LIBRARIES: [Library; 5] = [
    Library { name: "ompdevice", place: Place::Runtime, relocatable: true },
    Library { name: "c", place: Place::C, relocatable: false },
    Library { name: "m", place: Place::C, relocatable: false },
    Library { name: "clang_rt.builtins", place: Place::Release, relocatable: false },
    Library { name: "flang_rt.runtime", place: Place::Release, relocatable: false },
];

/// The words for an OpenMP image, each for the linker.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// The folders of the libraries.
    folders: Vec<PathBuf>,
    /// The libraries that stand before those of the user.
    before: Vec<String>,
    /// The others.
    after: Vec<String>,
}

impl Words {
    /// Adds the folders, and what stands before the words of the user.
    pub(super) fn add_before(&self, args: &mut ArgList) {
        for folder in &self.folders {
            args.arg("-Xlinker").joined("-L", folder.as_os_str());
        }
        add(&self.before, args);
    }

    /// Adds what stands after them.
    pub(super) fn add_after(&self, args: &mut ArgList) {
        add(&self.after, args);
    }
}

fn add(names: &[String], args: &mut ArgList) {
    for name in names {
        args.arg("-Xlinker").arg(format!("-l{name}"));
    }
}

/// The libraries for the images of one target.
struct Search<'a> {
    context: &'a DeviceContext<'a>,
    target: &'a Target,
    /// The folder that the compiler is installed in.
    root: PathBuf,
}

impl<'a> Search<'a> {
    /// None if offld does not have to think of libraries for `target`.
    fn new(context: &'a DeviceContext<'_>, target: &'a Target) -> Option<Search<'a>> {
        let request = context.request;
        let has_them = context.compiler.major.is_none_or(|major| major >= FIRST);
        let is_ours = request.role == Role::Ld && !request.no_offload_runtime && (target.is_amdgcn() || target.is_nvptx());
        let root = || Some(context.compiler.library_folder()?.parent()?.to_path_buf());
        (is_ours && has_them).then(root).flatten().map(|root| Search { context, target, root })
    }

    /// What the user hands to the linker of this target.
    fn users_words(&self) -> impl Iterator<Item = &OsStr> {
        self.context.request.device_linker.iter().filter_map(|value| value.for_target(self.target))
    }

    /// Whether the user names the library.
    fn is_named(&self, library: &Library) -> bool {
        let (option, file) = (format!("-l{}", library.name), format!("lib{}.a", library.name));
        let is_file = |word: &[u8]| word.rsplit(|byte| *byte == b'/' || *byte == b':').next() == Some(file.as_bytes());
        self.users_words().any(|word| word.as_bytes() == option.as_bytes() || is_file(word.as_bytes()))
    }

    /// Where the library is installed.
    fn home(&self, library: &Library) -> Option<PathBuf> {
        let lib = self.root.join("lib");
        Some(match library.place {
            Place::Runtime | Place::C => lib.join(&self.target.triple),
            Place::Release => lib.join(format!("clang/{}/lib", self.context.compiler.major?)).join(&self.target.triple),
        })
    }

    /// Whether clang would pass the library, as far as that does not depend on the library itself.
    fn is_expected(&self, library: &Library) -> bool {
        let has_headers = || self.root.join("include").join(&self.target.triple).is_dir();
        (library.relocatable || !self.context.request.relocatable) && (library.place != Place::C || has_headers())
    }

    /// The folder that has the library: its own, or one that the user names with `-L`.
    fn folder_with(&self, library: &Library) -> Option<PathBuf> {
        let file = format!("lib{}.a", library.name);
        let users = self.users_words().filter_map(|word| word.as_bytes().strip_prefix(b"-L"));
        let users = users.filter(|folder| !folder.is_empty()).map(|folder| Path::new(OsStr::from_bytes(folder)).to_path_buf());
        users.chain(self.home(library)).find(|folder| folder.join(&file).is_file())
    }
}

/// The libraries that are there, of those that clang would pass and the user does not name.
pub(super) fn words(context: &DeviceContext<'_>, job: &DeviceJob<'_>) -> Words {
    let mut words = Words::default();
    let Some(search) = Search::new(context, &job.target).filter(|_| job.kinds.contains(OffloadKind::OpenMp)) else {
        return words;
    };
    for library in LIBRARIES.iter().filter(|library| search.is_expected(library) && !search.is_named(library)) {
        let Some(folder) = search.folder_with(library) else { continue };
        if search.home(library).is_some_and(|home| home == folder) && !words.folders.contains(&folder) {
            words.folders.push(folder);
        }
        let place = if library.place == Place::Runtime { &mut words.before } else { &mut words.after };
        place.push(library.name.to_owned());
    }
    words
}

/// What to say of a failed link for `target` if a library is not there that its code may need.
pub(crate) fn missing_runtime(target: &Target, context: &DeviceContext<'_>) -> Option<String> {
    let search = Search::new(context, target)?;
    let surely = LIBRARIES.iter().filter(|library| library.place != Place::Release && search.is_expected(library));
    let missing: Vec<String> = surely
        .filter(|library| !search.is_named(library) && search.folder_with(library).is_none())
        .map(|library| format!("lib{}", library.name))
        .collect();
    let folder = search.root.join("lib").join(&target.triple);
    (!missing.is_empty()).then(|| {
        format!(
            "OpenMP device code for {target} needs {}, and there is none in {}: install the OpenMP runtime for this GPU, or name the library \
             with --device-linker={}=FILE",
            missing.join(" and "),
            folder.display(),
            target.triple
        )
    })
}
