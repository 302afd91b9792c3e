//! Command lines of link.exe and lld-link: how they are told from those of GNU ld, their own options, and such a linker's defaults.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::request::LinkRequest;
use super::values::text;
use super::{Id, Role};

/// Which family of linkers the host arguments are spelled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// GNU ld, gold, ld.lld, mold, wild.
    #[default]
    Gnu,
    /// link.exe and lld-link: `/opt:value`, and no single-letter options.
    LinkExe,
}

/// The dialect of a line: link.exe's if the host linker is link.exe or lld-link, or if the host triple is Windows with Microsoft's
/// toolchain.
pub(super) fn dialect_of(role: Role, tokens: &[OsString]) -> Dialect {
    let is_link_exe = tokens.iter().any(|token| {
        let token = token.to_string_lossy();
        let linker = token.strip_prefix("--linker-path=").or_else(|| token.strip_prefix("--offld-linker="));
        if let Some(linker) = linker {
            return is_link_exe(linker);
        }
        let triple = token.strip_prefix("--host-triple=").unwrap_or_default();
        role == Role::Wrapper && is_msvc(triple)
    });
    if is_link_exe { Dialect::LinkExe } else { Dialect::Gnu }
}

/// Whether the file name of a linker is that of link.exe or lld-link.
fn is_link_exe(linker: &str) -> bool {
    let name = linker.rsplit(['/', '\\']).next().unwrap_or_default().to_ascii_lowercase();
    let stem = name.strip_suffix(".exe").unwrap_or(&name);
    stem == "link" || stem == "lld-link" || stem.starts_with("lld-link-")
}

/// Whether a triple is Windows with Microsoft's toolchain, which is the default if `-windows` has no environment.
pub(super) fn is_msvc(triple: &str) -> bool {
    triple.contains("-windows") && !["gnu", "cygnus", "itanium", "elf", "macho"].iter().any(|e| triple.contains(e))
}

/// The functions that a program may start at if no option names its entry. The linker looks for them, and the C library's start
/// code, which may be in no library that offld finds, calls the first few. On i386 their names start with `_`.
pub fn default_entries() -> impl Iterator<Item = String> {
    const NAMES: [&str; 10] = [
        "main",
        "wmain",
        "WinMain",
        "wWinMain",
        "DllMain",
        "mainCRTStartup",
        "wmainCRTStartup",
        "WinMainCRTStartup",
        "wWinMainCRTStartup",
        "_DllMainCRTStartup",
    ];
    let stdcall = ["_WinMain@16", "_wWinMain@16", "_DllMain@12", "__DllMainCRTStartup@12"];
    NAMES.iter().flat_map(|name| plain_and_i386(name)).chain(stdcall.map(str::to_owned))
}

/// The symbols of a C function: its name, and its name on i386. The machine may not be known from the command line.
fn plain_and_i386(name: &str) -> [String; 2] {
    [name.to_owned(), format!("_{name}")]
}

/// The symbol that must be defined for `/export:name[=internal][,@ordinal][,flags]`.
fn exported(value: &str) -> &str {
    let name = value.split(',').next().unwrap_or_default();
    name.split_once('=').map_or(name, |(_, internal)| internal)
}

/// Whether `/nodefaultlib:without` leaves out the library `name`. Case does not matter, nor whether `.lib` is written.
pub fn is_left_out(name: &OsStr, without: &OsStr) -> bool {
    let full = |name: &OsStr| {
        let lower = name.to_string_lossy().to_ascii_lowercase();
        if Path::new(&lower).extension().is_some() { lower } else { format!("{lower}.lib") }
    };
    full(name) == full(without)
}

impl LinkRequest {
    /// Applies an option that only link.exe has.
    pub(super) fn link_exe_option(&mut self, id: Id, value: &OsStr) {
        match id {
            Id::LinkAlternateName => {
                let given = text(value);
                let names = given.split_once('=').map(|(from, to)| (from.to_owned(), to.to_owned()));
                self.alternate_names.extend(names);
            }
            Id::LinkDefaultLib => self.default_libraries.push(value.to_owned()),
            Id::LinkEntry => {
                self.entry_is_named = true;
                self.undefined.extend(plain_and_i386(&text(value)).into_iter().filter(|_| !value.is_empty()));
            }
            Id::LinkExport => self.undefined.extend(plain_and_i386(exported(&text(value)))),
            Id::LinkNoDefaultLib if value.is_empty() => self.no_default_libraries = true,
            Id::LinkNoDefaultLib => self.without_libraries.push(value.to_owned()),
            _ => {}
        }
    }
}
