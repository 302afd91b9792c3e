//! What a command line names: its inputs, the libraries that Windows objects name in turn, the folders that are searched, the
//! output.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use crate::args::link_exe;
use crate::args::request::{InputName, InputSpec, LinkRequest};
use crate::link::host;
use crate::link::inputs;
use crate::link::inputs::search::{Naming, Search};
use crate::link::scan;
use crate::sys::session::{self, Session};
use std::path::Path;

/// The inputs of the command line, the scripts that its options name, and for Windows the default libraries that objects name in
/// turn, which linkers search after all others. Inputs that cannot be read are ignored here: opening them later reports the error.
pub(super) fn input_specs<'r>(request: &'r LinkRequest, search: &Search) -> Cow<'r, [InputSpec]> {
    let mut specs = Cow::Borrowed(request.inputs.as_slice());
    if !request.scripts.is_empty() {
        specs.to_mut().extend(request.scripts.iter().filter_map(|script| script_spec(script, search)));
    }
    if host::naming(request) == Naming::Unix || request.no_default_libraries {
        return specs;
    }
    let left_out = |name: &OsStr| request.without_libraries.iter().any(|without| link_exe::is_left_out(name, without));
    let mut known = HashSet::new();
    let mut named = request.default_libraries.clone();
    loop {
        named.retain(|name| known.insert(name.to_ascii_lowercase()) && !left_out(name));
        named.retain(|name| search.library(name, false).is_some());
        specs.to_mut().extend(named.into_iter().map(InputSpec::library));
        let Ok(inputs) = inputs::open(&specs, search, &mut |_, _| {}) else { return specs };
        named = scan::default_libraries(&inputs).into_iter().map(OsString::from).collect();
        if named.iter().all(|name| known.contains(&name.to_ascii_lowercase())) {
            return specs;
        }
    }
}

/// The script that an option names, as an input after all others: it stands in the current folder or in one that is searched for
/// libraries.
fn script_spec(script: &Path, search: &Search) -> Option<InputSpec> {
    let exact: OsString = [OsStr::new(":"), script.as_os_str()].into_iter().collect();
    let found = if script.is_file() { Some(script.to_path_buf()) } else { search.library(&exact, false) };
    found
        .filter(|path| inputs::is_script(path))
        .map(|path| InputSpec { name: InputName::File(path), ..InputSpec::library(OsString::new()) })
}

/// The folders that are searched for libraries: those of the command line, for link.exe those of `LIB`, and the linkers' built-in
/// ones.
pub(super) fn search(request: &LinkRequest) -> Search {
    let naming = host::naming(request);
    let mut folders = request.library_dirs.clone();
    if naming == Naming::LinkExe {
        let lib = Session::env(session::LIB).unwrap_or_default();
        folders.extend(
            lib.as_bytes().split(|byte| *byte == b';').filter(|part| !part.is_empty()).map(|part| OsStr::from_bytes(part).into()),
        );
    }
    Search::new(&folders, request.sysroot.as_deref(), naming, &host::multiarch(request))
}

/// The file name of the output, with which temporary names begin.
pub(super) fn out_base(request: &LinkRequest) -> String {
    out_name(request).file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The output's path as the user gave it, or the linker's default.
pub(super) fn out_name(request: &LinkRequest) -> &Path {
    let windows = host::naming(request) != Naming::Unix;
    request.output.as_deref().unwrap_or(Path::new(if windows { "a.exe" } else { "a.out" }))
}
