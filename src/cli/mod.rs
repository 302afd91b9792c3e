//! The program's personalities: offld behaves as a different tool for each name it is called by. Each personality turns its command
//! line into a request to the library. Only `main` turns a result into an exit status.

mod bundler;
mod cache;
mod check;
mod doctor;
mod edits;
mod environment;
mod explain;
mod front;
mod help;
mod inspect;
mod link;
mod links;
mod manual;
mod merge;
mod misspelled;
mod own;
mod packager;
mod prune;
mod recompress;
mod replace;
mod size;
mod split;
mod strip_device;
mod thinlto_distributor;
mod topics;
mod wrapper;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use crate::args::Role;
use crate::args::cl::Refused;
use crate::error;
use crate::sys::shell::Shell;

/// Runs a personality with its arguments (without `argv[0]`).
type RunFn = fn(&[OsString], &Arc<Shell>) -> anyhow::Result<()>;

/// A tool that offld behaves as when it is called by the tool's name.
pub(crate) struct Personality {
    /// The name: of the executable, or the first word after `offld`.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Whether `offld links` makes it only with `--as-ld`.
    pub only_as_ld: bool,
    /// What kind of tool it is.
    family: Family,
    /// Its options as its help spells them, each with its help text.
    options: fn() -> Vec<(String, String)>,
    run: RunFn,
}

/// A kind of tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Link,
    Bundler,
    Packager,
    Wrapper,
}

/// All names, in the order the help text lists them.
pub(crate) const PERSONALITIES: [Personality; 8] = [
    Personality {
        name: "clang-linker-wrapper",
        about: "the drop-in for LLVM's, found by clang through -B DIR",
        only_as_ld: false,
        family: Family::Link,
        options: || help::options(Role::Wrapper),
        run: link::clang_linker_wrapper,
    },
    Personality {
        name: "ld.offld",
        about: "the linker, for -fuse-ld=offld, --ld-path= or by hand",
        only_as_ld: false,
        family: Family::Link,
        options: || help::options(Role::Ld),
        run: link::ld_offld,
    },
    Personality {
        name: "ld",
        about: "the linker, for drivers such as gcc that only know -B DIR",
        only_as_ld: true,
        family: Family::Link,
        options: || help::options(Role::Ld),
        run: link::ld,
    },
    Personality {
        name: "llvm-offload-binary",
        about: "packs device images into OffloadBinaries, and extracts them from any file",
        only_as_ld: false,
        family: Family::Packager,
        options: packager::options,
        run: packager::llvm_offload_binary,
    },
    Personality {
        name: "clang-offload-packager",
        about: "the same, by the name it had up to LLVM 21",
        only_as_ld: false,
        family: Family::Packager,
        options: packager::options,
        run: packager::clang_offload_packager,
    },
    Personality {
        name: "llvm-offload-wrapper",
        about: "registration code for device images, as LLVM 22 has it",
        only_as_ld: false,
        family: Family::Wrapper,
        options: wrapper::options_of_llvm,
        run: wrapper::llvm_offload_wrapper,
    },
    Personality {
        name: "clang-offload-wrapper",
        about: "the same, as LLVM 14 and 15 had it, with --offload-arch",
        only_as_ld: false,
        family: Family::Wrapper,
        options: wrapper::options_of_clang,
        run: wrapper::clang_offload_wrapper,
    },
    Personality {
        name: "clang-offload-bundler",
        about: "the drop-in for LLVM's: code objects of several targets in one file, and out of it",
        only_as_ld: false,
        family: Family::Bundler,
        options: bundler::options,
        run: bundler::run,
    },
];

/// The program: selects the personality by `argv[0]`, else by the first word, runs it, and prints its error if it fails.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let called = argv.first().cloned().unwrap_or_else(|| "offld".into());
    let shell = Arc::new(Shell::stderr(&called.to_string_lossy()));
    let result = match by_name(&called) {
        Some(personality) => (personality.run)(&argv[1..], &shell),
        None => own::run(&argv, &shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<Refused>() {
                Some(refused) => refused.lines.iter().for_each(|line| shell.line(line)),
                None if error.is::<error::Silent>() => {}
                None => shell.error(&error::chain(&error)),
            }
            ExitCode::from(error::exit_status(&error))
        }
    }
}

/// The personality for the executable's name. Its folder, `.exe`, a version suffix (`-22`) and a target prefix are ignored; clang
/// looks for names with a target prefix on `PATH` (`x86_64-pc-linux-gnu-clang-linker-wrapper`).
fn by_name(called: &OsStr) -> Option<&'static Personality> {
    let name = Path::new(called).file_name()?.to_str()?;
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let name = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.').trim_end_matches('-');
    PERSONALITIES
        .iter()
        .find(|personality| name.strip_suffix(personality.name).is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-')))
}

/// The personality whose name is the first word after `offld`. `offld ld` is `ld.offld`.
fn by_word(word: &OsStr) -> Option<&'static Personality> {
    let word = if word == "ld" { OsStr::new("ld.offld") } else { word };
    PERSONALITIES.iter().find(|personality| personality.name == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_selects_the_personality() {
        let name = |called: &str| by_name(OsStr::new(called)).map(|personality| personality.name);
        assert_eq!(name("/x/clang-linker-wrapper"), Some("clang-linker-wrapper"));
        assert_eq!(name("clang-linker-wrapper-22"), Some("clang-linker-wrapper"));
        assert_eq!(name("x86_64-pc-linux-gnu-clang-linker-wrapper"), Some("clang-linker-wrapper"));
        assert_eq!(name("ld.offld"), Some("ld.offld"));
        assert_eq!(name("/dir/ld"), Some("ld"));
        assert_eq!(name("x86_64-linux-gnu-ld"), Some("ld"));
        assert_eq!(name("offld"), None);
        assert_eq!(name("offld-0.1"), None);
    }
}
