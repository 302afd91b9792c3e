//! Decides whether a link is late, from the command line and the inputs alone: not from the cache,
//! the time, or the number of jobs.

use std::path::Path;

use anyhow::Result;

use crate::args::gnu_ld;
use crate::args::request::{LateImages, LinkRequest};
use crate::args::{Arg, ArgKind, ArgumentList, Dialect, Id, values};
use crate::link::host::Place;
use crate::link::payload::Group;
use crate::model::{ObjectFormat, OffloadKind};
use crate::registration::sycl;
use crate::sys::session::{self, Session};
use crate::sys::toolchain::{self, LinkerFamily};

/// Bytes of device code in the inputs from which a late link is faster even if all images are in
/// the cache (docs/explanation/late-images.md).
const PAYS_FROM: u64 = 4 << 20;

/// The link to decide about.
pub(in crate::link::pipeline) struct Asked<'a> {
    /// The command line.
    pub ledger: &'a ArgumentList,
    /// The settings of the command line.
    pub request: &'a LinkRequest,
    pub linker: &'a Path,
    pub host_triple: &'a str,
    pub output: &'a Path,
    pub inputs: &'a [&'a Path],
    /// The registrations.
    pub groups: &'a [Group],
    /// The data that the registration passes to SYCL's runtime.
    pub sycl: sycl::Registration,
    /// Bytes of device code in the inputs.
    pub device_bytes: u64,
}

/// Whether the link is late. In verbose mode, prints the reason why it cannot be late.
///
/// # Errors
/// `OFFLD_LATE_IMAGES` is invalid.
pub(in crate::link::pipeline) fn wanted(asked: &Asked<'_>, session: &Session) -> Result<bool> {
    let setting = match asked.request.late_images {
        Some(setting) => setting,
        None => match Session::env(session::OFFLD_LATE_IMAGES).filter(|text| !text.is_empty()) {
            Some(text) => values::late_images(session::OFFLD_LATE_IMAGES, &text)?,
            None => LateImages::Auto,
        },
    };
    if setting == LateImages::Off || (setting == LateImages::Auto && asked.device_bytes < PAYS_FROM)
    {
        return Ok(false);
    }
    let obstacle = obstacle(asked);
    if let Some(why) = obstacle.as_ref().filter(|_| asked.request.verbose) {
        session.shell.note(&format!("no late link: {why}"));
    }
    Ok(obstacle.is_none())
}

fn shows(request: &LinkRequest) -> bool {
    request.dry_run
        || request.save_temps
        || request.print_wrapped_module
        || request.emit_fatbin_only
}

/// Returns the reason why the link cannot be late.
fn obstacle(asked: &Asked<'_>) -> Option<String> {
    let request = asked.request;
    if shows(request) {
        return Some("an option prints or saves the steps of the link".to_owned());
    }
    if request.relocatable {
        return Some("-r writes an object, not a program".to_owned());
    }
    let is_known_host = ["x86_64-", "aarch64-"]
        .iter()
        .any(|arch| asked.host_triple.starts_with(arch))
        && !asked.host_triple.ends_with("x32")
        && ObjectFormat::of(asked.host_triple) == ObjectFormat::Elf
        && request.dialect == Dialect::Gnu;
    if !is_known_host {
        return Some(format!("the host {} is not supported", asked.host_triple));
    }
    if asked
        .groups
        .iter()
        .any(|group| group.kind == OffloadKind::Sycl)
        && asked.sycl > sycl::Registration::Llvm22
    {
        return Some(
            "the SYCL registration of LLVM 23 and later contains the image sizes".to_owned(),
        );
    }
    if toolchain::linker_family(asked.linker) == LinkerFamily::Other {
        return Some(format!(
            "the linker `{}` is not supported",
            asked.linker.display()
        ));
    }
    if let Some(arg) = asked
        .ledger
        .args()
        .iter()
        .find(|arg| sees_the_output(arg, asked.ledger))
    {
        let token = asked
            .ledger
            .tokens()
            .get(arg.tokens.start)
            .map(|token| token.to_string_lossy().into_owned());
        return Some(format!(
            "{} depends on the linker's own output file",
            token.unwrap_or_default()
        ));
    }
    if names_versions_by_output(asked) {
        return Some(
            "without -soname, symbol versions contain the name of the linker's output file"
                .to_owned(),
        );
    }
    Place::of(asked.output, asked.inputs.iter().copied()).err()
}

/// Whether the linker would write its output path into the output, as the file name in the version
/// definitions. GNU ld writes the name without the directory, which is the same for a late link.
fn names_versions_by_output(asked: &Asked<'_>) -> bool {
    let has = |names: &[&str]| {
        let mut args = asked.ledger.args().iter();
        args.any(|arg| matches!(arg.kind, ArgKind::Known(row) if names.contains(&row.name)))
    };
    let has_versions = has(&["version-script"])
        || asked.ledger.tokens().iter().any(|token| {
            let token = token.to_string_lossy();
            ["-default-symver", "--default-symver"].contains(&&*token)
                || gnu_ld::abbreviated(&token).contains(&"default-symver")
        });
    has_versions
        && !has(&["soname", "h"])
        && toolchain::linker_family(asked.linker) != LinkerFamily::Gnu
}

/// Whether an argument requires a special layout, asks for an output other than a program, or asks
/// for data about the linker's own output.
fn sees_the_output(arg: &Arg, ledger: &ArgumentList) -> bool {
    const OPTIONS: [&str; 17] = [
        "M",
        "Map",
        "N",
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
    /// Options of plugins and of ld.lld behind `-plugin-opt`.
    const OF_PLUGIN: [&str; 7] = [
        "emit-asm",
        "emit-llvm",
        "save-temps",
        "thinlto-index-only",
        "obj-path",
        "-save-temps",
        "lto-emit-asm",
    ];
    let name = match arg.kind {
        ArgKind::Known(row) if row.id == Id::Script => return true,
        ArgKind::Known(row) if row.name == "pack-dyn-relocs" => {
            return arg
                .value
                .as_ref()
                .is_some_and(|value| value.to_string_lossy().contains("android"));
        }
        ArgKind::Known(row) if row.name == "plugin-opt" => {
            let value = arg
                .value
                .as_ref()
                .map(|value| value.to_string_lossy())
                .unwrap_or_default();
            return OF_PLUGIN
                .iter()
                .any(|option| value == *option || value.starts_with(&format!("{option}=")));
        }
        ArgKind::Known(row) => row.name.to_owned(),
        ArgKind::Unknown => {
            let token = ledger
                .tokens()
                .get(arg.tokens.start)
                .map(|token| token.to_string_lossy())
                .unwrap_or_default();
            let Some(option) = token.strip_prefix("--").or(token.strip_prefix('-')) else {
                return false;
            };
            if gnu_ld::abbreviated(&token)
                .iter()
                .any(|name| OPTIONS.contains(name))
            {
                return true;
            }
            option
                .split_once('=')
                .map_or(option, |(name, _)| name)
                .to_owned()
        }
        ArgKind::Separator | ArgKind::Input => return false,
    };
    OPTIONS.contains(&name.as_str())
}

/// Whether the linker computes a build ID from its output, which must then include the images.
pub(super) fn build_id_is_hashed(ledger: &ArgumentList) -> bool {
    const HASHES: [&str; 7] = ["fast", "md5", "sha1", "tree", "sha256", "blake2b", "xxhash"];
    let build_id = ledger
        .args()
        .iter()
        .rev()
        .find(|arg| matches!(arg.kind, ArgKind::Known(row) if row.name == "build-id"));
    match build_id {
        // Some linkers write a build ID without the option, depending on their configuration.
        None => true,
        Some(arg) => match arg.value.as_ref().map(|value| value.to_string_lossy()) {
            None => true,
            Some(style) => HASHES.contains(&&*style),
        },
    }
}
