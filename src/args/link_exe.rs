//! Command lines of link.exe and lld-link: how to recognize them, their own options, and the
//! defaults of these linkers.

use offld_system::response::Style;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use super::Role;

/// The family of linkers whose syntax the host arguments use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// GNU ld, gold, ld.lld, mold, wild.
    #[default]
    Gnu,
    /// link.exe and lld-link: `/opt:value`, and no single-letter options.
    LinkExe,
}

impl Dialect {
    /// Returns the style of the response files that linkers of this dialect read.
    pub fn response_style(self) -> Style {
        match self {
            Dialect::Gnu => Style::Gnu,
            Dialect::LinkExe => Style::Windows,
        }
    }
}

/// Returns the dialect of a command line: link.exe's if the host linker is link.exe or lld-link, or
/// if the host triple is Windows with the Microsoft toolchain.
pub(super) fn dialect_of(role: Role, tokens: &[OsString]) -> Dialect {
    let is_link_exe = tokens.iter().any(|token| {
        let token = token.to_string_lossy();
        let linker = token
            .strip_prefix("--linker-path=")
            .or_else(|| token.strip_prefix("--offld-linker="));
        if let Some(linker) = linker {
            return is_link_exe(linker);
        }
        let triple = token.strip_prefix("--host-triple=").unwrap_or_default();
        role == Role::Wrapper && is_msvc(triple)
    });
    if is_link_exe {
        Dialect::LinkExe
    } else {
        Dialect::Gnu
    }
}

/// Whether the file name of a linker is `link` or `lld-link`, also with a version or `.exe`.
fn is_link_exe(linker: &str) -> bool {
    let name = linker
        .rsplit(['/', '\\'])
        .next()
        .unwrap_or_default()
        .to_ascii_lowercase();
    let stem = name.strip_suffix(".exe").unwrap_or(&name);
    stem == "link" || stem == "lld-link" || stem.starts_with("lld-link-")
}

/// Whether a triple is Windows with the Microsoft toolchain, the default for `-windows` without an
/// environment.
pub(super) fn is_msvc(triple: &str) -> bool {
    triple.contains("-windows")
        && !["gnu", "cygnus", "itanium", "elf", "macho"]
            .iter()
            .any(|e| triple.contains(e))
}

/// The possible entry functions of a program, which the linker looks for if no option sets the
/// entry. The start code of the C library calls the first few, but offld may not find that library.
/// On i386 the names start with `_`.
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
    let stdcall = [
        "_WinMain@16",
        "_wWinMain@16",
        "_DllMain@12",
        "__DllMainCRTStartup@12",
    ];
    NAMES
        .iter()
        .flat_map(|name| plain_and_i386(name))
        .chain(stdcall.map(str::to_owned))
}

/// Returns the symbols of a C function: its name, and its name on i386. The command line may not
/// reveal the machine.
pub(super) fn plain_and_i386(name: &str) -> [String; 2] {
    [name.to_owned(), format!("_{name}")]
}

/// Returns the symbol that must be defined for `/export:name[=internal][,@ordinal][,flags]`.
pub(super) fn exported(value: &str) -> &str {
    let name = value.split(',').next().unwrap_or_default();
    name.split_once('=').map_or(name, |(_, internal)| internal)
}

/// Whether `/nodefaultlib:without` excludes the library `name`. Case and the extension `.lib` do
/// not matter.
pub fn is_left_out(name: &OsStr, without: &OsStr) -> bool {
    let full = |name: &OsStr| {
        let lower = name.to_string_lossy().to_ascii_lowercase();
        if Path::new(&lower).extension().is_some() {
            lower
        } else {
            format!("{lower}.lib")
        }
    };
    full(name) == full(without)
}
