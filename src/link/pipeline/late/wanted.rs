//! Whether a link is late. That follows from the command line and the inputs alone: not from the cache, the time, or the number of jobs.

use std::path::Path;

use anyhow::Result;

use crate::args::request::{LateImages, LinkRequest};
use crate::args::{Arg, ArgKind, Dialect, Id, Ledger, values};
use crate::link::payload::Group;
use crate::model::{ObjectFormat, OffloadKind};
use crate::registration::sycl;
use crate::sys::atomic_file;
use crate::sys::session::{self, Session};
use crate::sys::toolchain::{self, LinkerFamily};

/// With so many bytes of device code in the inputs, a late link is faster than another one also where all images are in the cache
/// (docs/late-images.md).
const PAYS_FROM: u64 = 4 << 20;

/// A link of which is asked whether it is late.
pub(in crate::link::pipeline) struct Asked<'a> {
    /// The command line.
    pub ledger: &'a Ledger,
    /// Its settings.
    pub request: &'a LinkRequest,
    /// The host linker.
    pub linker: &'a Path,
    /// The host's triple.
    pub host_triple: &'a str,
    /// The output.
    pub output: &'a Path,
    /// The registrations.
    pub groups: &'a [Group],
    /// What SYCL's runtime is handed.
    pub sycl: sycl::Registration,
    /// How many bytes of device code are in the inputs.
    pub device_bytes: u64,
}

/// Whether the link is late, and why it is not although it shall be.
///
/// # Errors
/// A setting is none.
pub(in crate::link::pipeline) fn wanted(asked: &Asked<'_>, session: &Session) -> Result<bool> {
    let setting = match asked.request.late_images {
        Some(setting) => setting,
        None => match Session::env(session::OFFLD_LATE_IMAGES).filter(|text| !text.is_empty()) {
            Some(text) => values::late_images(session::OFFLD_LATE_IMAGES, &text)?,
            None => LateImages::Auto,
        },
    };
    if setting == LateImages::Off || (setting == LateImages::Auto && asked.device_bytes < PAYS_FROM) {
        return Ok(false);
    }
    let obstacle = obstacle(asked);
    if let Some(why) = obstacle.as_ref().filter(|_| asked.request.verbose) {
        session.shell.note(&format!("images are not put into the program after its link: {why}"));
    }
    Ok(obstacle.is_none())
}

fn shows(request: &LinkRequest) -> bool {
    request.dry_run || request.save_temps || request.print_wrapped_module || request.emit_fatbin_only
}

/// Why the link cannot be late.
fn obstacle(asked: &Asked<'_>) -> Option<String> {
    let request = asked.request;
    if shows(request) {
        return Some("what is done is to be shown or kept".to_owned());
    }
    if request.relocatable {
        return Some("-r makes a file that is linked again".to_owned());
    }
    let is_known_host = ["x86_64-", "aarch64-"].iter().any(|arch| asked.host_triple.starts_with(arch))
        && !asked.host_triple.ends_with("x32")
        && ObjectFormat::of(asked.host_triple) == ObjectFormat::Elf
        && request.dialect == Dialect::Gnu;
    if !is_known_host {
        return Some(format!("the host is {}", asked.host_triple));
    }
    if asked.groups.iter().any(|group| group.kind == OffloadKind::Sycl) && asked.sycl > sycl::Registration::Llvm22 {
        return Some("the code that registers images with SYCL of LLVM 23 and later has their size".to_owned());
    }
    if toolchain::linker_family(asked.linker) == LinkerFamily::Other {
        return Some(format!("the linker `{}` is not known", asked.linker.display()));
    }
    if let Some(arg) = asked.ledger.args().iter().find(|arg| sees_the_output(arg, asked.ledger)) {
        let token = asked.ledger.tokens().get(arg.tokens.start).map(|token| token.to_string_lossy().into_owned());
        return Some(format!("{} tells of, or decides on, the file that the linker writes", token.unwrap_or_default()));
    }
    if names_versions_by_output(asked) {
        return Some("without -soname the linker names versions of symbols by the file that it writes".to_owned());
    }
    if atomic_file::is_special(asked.output) {
        return Some(format!("`{}` is no file", asked.output.display()));
    }
    None
}

/// Whether the linker would write the path of its output into it: as the name of the file of which symbols are a version. GNU ld writes
/// the name without the folder, which is the same.
fn names_versions_by_output(asked: &Asked<'_>) -> bool {
    let has = |names: &[&str]| {
        let mut args = asked.ledger.args().iter();
        args.any(|arg| matches!(arg.kind, ArgKind::Known(row) if names.contains(&row.name)))
    };
    let has_versions = has(&["version-script"]) || asked.ledger.tokens().iter().any(|token| token == "--default-symver");
    has_versions && !has(&["soname", "h"]) && toolchain::linker_family(asked.linker) != LinkerFamily::Gnu
}

/// Whether an argument asks the host linker for a layout of its own, for another output than a program, or for something that tells
/// of the output as the linker made it.
fn sees_the_output(arg: &Arg, ledger: &Ledger) -> bool {
    const OPTIONS: [&str; 18] = [
        "M",
        "Map",
        "N",
        "dependency-file",
        "emit-llvm",
        "emit-relocs",
        "lto-emit-asm",
        "lto-emit-llvm",
        "n",
        "nmagic",
        "oformat",
        "omagic",
        "print-map",
        "q",
        "repro",
        "save-temps",
        "thinlto-index-only",
        "time-trace",
    ];
    /// What plugins and ld.lld take after `-plugin-opt`.
    const OF_PLUGIN: [&str; 7] =
        ["emit-asm", "emit-llvm", "save-temps", "thinlto-index-only", "obj-path", "-save-temps", "lto-emit-asm"];
    let name = match arg.kind {
        ArgKind::Known(row) if row.id == Id::Script => return true,
        ArgKind::Known(row) if row.name == "pack-dyn-relocs" => {
            return arg.value.as_ref().is_some_and(|value| value.to_string_lossy().contains("android"));
        }
        ArgKind::Known(row) if row.name == "plugin-opt" => {
            let value = arg.value.as_ref().map(|value| value.to_string_lossy()).unwrap_or_default();
            return OF_PLUGIN.iter().any(|option| value == *option || value.starts_with(&format!("{option}=")));
        }
        ArgKind::Known(row) => row.name.to_owned(),
        ArgKind::Unknown => {
            let token = ledger.tokens().get(arg.tokens.start).map(|token| token.to_string_lossy()).unwrap_or_default();
            let Some(option) = token.strip_prefix("--").or(token.strip_prefix('-')) else { return false };
            option.split_once('=').map_or(option, |(name, _)| name).to_owned()
        }
        ArgKind::Separator | ArgKind::Input => return false,
    };
    OPTIONS.contains(&name.as_str())
}

/// Whether the linker makes a build id of what it has written, which the images then are part of.
pub(super) fn build_id_is_hashed(ledger: &Ledger) -> bool {
    const HASHES: [&str; 7] = ["fast", "md5", "sha1", "tree", "sha256", "blake2b", "xxhash"];
    let of_line = ledger.args().iter().rev().find(|arg| matches!(arg.kind, ArgKind::Known(row) if row.name == "build-id"));
    match of_line {
        // Some linkers make one unasked, as they were configured.
        None => true,
        Some(arg) => match arg.value.as_ref().map(|value| value.to_string_lossy()) {
            None => true,
            Some(style) => HASHES.contains(&&*style),
        },
    }
}
