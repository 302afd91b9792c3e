//! The host link: which linker, the user's own line with our objects in it, and the OpenMP runtime where nothing on
//! the line brings it. Also what is read off the inputs about the host: its triple, and whether the link is wrapped already.

mod runtime;

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::args::request::LinkRequest;
use crate::args::response::Style;
use crate::args::{Dialect, Ledger, Role};
use crate::formats::elf::edit;
use crate::io::bytes::Bytes;
use crate::link::inputs::Inputs;
use crate::link::inputs::search::Naming;
use crate::link::scan::{HostFacts, Machine};
use crate::model::ObjectFormat;
use crate::sys::atomic_file;
use crate::sys::run::Cmd;
use crate::sys::toolchain;

pub(crate) use runtime::openmp_runtime;

/// The program that does the host link.
pub(crate) fn linker(request: &LinkRequest, ld_first: bool) -> Result<PathBuf> {
    let other = || toolchain::host_linker(request.offld_linker.as_deref(), ld_first);
    match (&request.linker_path, request.role) {
        (_, Role::Wrapper) if request.offld_linker.is_some() => other(),
        // `-fuse-ld=offld` inside an offload build: one of us is enough.
        (Some(path), _) if toolchain::is_ourselves(path) => other(),
        (Some(path), _) => Ok(path.clone()),
        (None, Role::Wrapper) => bail!("linker path missing, must pass 'linker-path'"),
        (None, Role::Ld) => other(),
    }
}

/// The host link with `additions` in the objects' place and `libraries` after the last input; with neither, the user's line as it is.
pub(crate) fn command(ledger: &Ledger, linker: &Path, additions: &[OsString], libraries: &[OsString]) -> Cmd {
    let args = ledger.host_line(additions, libraries);
    let quoting = Style::of_linker(ledger.dialect());
    Cmd { step: "host link".to_owned(), program: linker.to_path_buf(), args, quoting, inputs: Vec::new(), output: None }
}

/// The words of the line by which ld.lld can be started before the rest of the line is known; none for other linkers, and for lines that
/// do not name their emulation as drivers do.
pub(crate) fn preload_args(ledger: &Ledger, linker: &Path) -> Option<Vec<OsString>> {
    if !toolchain::is_ld_lld(linker) {
        return None;
    }
    let line = ledger.host_line(&[], &[]);
    let at = line.iter().position(|word| word == "-m")?;
    line.get(at..at + 2).map(<[OsString]>::to_vec)
}

/// What goes where the objects go: the objects, and for ld.lld under `--gc-sections` the option that keeps the entry tables. Nothing
/// refers to an entry but the bounds around its table, and lld alone takes that for nothing by default.
pub(crate) fn additions(request: &LinkRequest, linker: &Path, host_triple: &str, objects: &[PathBuf]) -> Vec<OsString> {
    let mut words: Vec<OsString> = objects.iter().map(|path| path.clone().into_os_string()).collect();
    let elf = ObjectFormat::of(host_triple) == ObjectFormat::Elf;
    if elf && request.gc_sections && is_lld(linker) {
        words.extend(KEEP_TABLES.map(OsString::from));
    }
    words
}

/// What goes after the last input: `runtime`, and where the line asks for what would drop the entry tables, the option again, as the
/// last word on it.
pub(crate) fn endings(request: &LinkRequest, runtime: Vec<OsString>) -> Vec<OsString> {
    let dropped = request.gc_sections && request.z_keywords.iter().any(|keyword| keyword == "start-stop-gc");
    runtime.into_iter().chain(KEEP_TABLES.map(OsString::from).into_iter().filter(|_| dropped)).collect()
}

const KEEP_TABLES: [&str; 2] = ["-z", "nostart-stop-gc"];

/// Whether `linker` is LLVM's, by its own name or that of the program it links to (`/usr/bin/ld`, on some systems).
fn is_lld(linker: &Path) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("lld"));
    named(linker) || linker.canonicalize().is_ok_and(|real| named(&real))
}

/// What a relocatable link does to its output (docs/spec/link-driver.md 9.1): device code that is linked now goes, and the entry
/// tables get a name of their own, so that a later link leaves images and tables alone. The file is replaced whole.
pub(crate) fn finish_relocatable(output: &Path) -> Result<()> {
    if atomic_file::is_special(output) {
        // `/dev/null`: what the linker wrote cannot be read back.
        return Ok(());
    }
    let linked = Bytes::of(output)?;
    let tag = edit::entry_table_tag(linked.as_slice());
    let edited = atomic_file::replace(output, |out| {
        let mut writer = BufWriter::new(out);
        edit::rename_entry_tables(linked.as_slice(), &tag, &mut writer)?;
        Ok(writer.flush()?)
    });
    edited.with_context(|| format!("cannot rename the entry tables of `{}`", output.display()))
}

fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// Removes the output of a linker that was stopped, which objects what it has written so far. Never a device, a pipe or a link.
pub(crate) fn remove_partial(output: &Path) {
    if std::fs::symlink_metadata(output).is_ok_and(|meta| meta.is_file()) {
        let _ = std::fs::remove_file(output);
    }
}

/// Removes what ld.lld objects when it crashes: it writes to `<output>.tmpXXXXXXX`, as memory, and on a full disk two of its threads may
/// crash at once before it has cleaned up. Only files that are not older than the link.
pub(crate) fn remove_linker_temps(output: &Path, started: SystemTime) {
    // File times come from a clock that ticks more slowly.
    const TICK: Duration = Duration::from_secs(1);
    let Some(name) = output.file_name() else { return };
    let is_theirs = |file: &[u8]| {
        let random = file.strip_prefix(name.as_encoded_bytes()).and_then(|rest| rest.strip_prefix(b".tmp"));
        random.is_some_and(|random| random.len() == 7 && random.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in std::fs::read_dir(folder_of(output)).into_iter().flatten().flatten() {
        let young = || entry.metadata().and_then(|meta| meta.modified()).is_ok_and(|time| time + TICK >= started);
        if is_theirs(entry.file_name().as_encoded_bytes()) && young() {
            remove_partial(&entry.path());
        }
    }
}

/// Whether another wrapper's object is on the line already: then it is a plain link, or the images would be registered twice.
pub(crate) fn is_wrapped(facts: &[HostFacts<'_>], inputs: &Inputs) -> bool {
    facts.iter().zip(&inputs.objects).any(|(facts, input_object)| !input_object.lazy && facts.refers_to_bounds)
}

/// The host's triple: as told, else that of the first object, else the one we were built for.
pub(crate) fn triple(request: &LinkRequest, facts: &[HostFacts<'_>]) -> Result<String> {
    if let Some(triple) = &request.host_triple {
        return Ok(triple.clone());
    }
    let machine = facts.iter().find_map(|facts| facts.machine);
    Ok(match machine.and_then(triple_of) {
        // A line in the spelling of GNU ld is one of its toolchain for Windows.
        Some(triple) if request.dialect == Dialect::Gnu => triple.replace("pc-windows-msvc", "w64-windows-gnu"),
        Some(triple) => triple.to_owned(),
        None => match machine {
            Some(machine) => bail!("cannot tell the host's triple from objects for {machine:?}: name it with --host-triple="),
            None => format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        },
    })
}

/// What libraries of the host are called, as far as the line tells.
pub(crate) fn naming(request: &LinkRequest) -> Naming {
    const FOR_WINDOWS: [&str; 6] = ["i386pe", "i386pep", "thumb2pe", "arm64pe", "arm64ecpe", "arm64xpe"];
    let emulates = request.emulation.as_ref().is_some_and(|emulation| FOR_WINDOWS.contains(&emulation.as_str()));
    let named = request.host_triple.as_ref().is_some_and(|triple| ObjectFormat::of(triple) == ObjectFormat::Coff);
    match request.dialect {
        Dialect::LinkExe => Naming::LinkExe,
        Dialect::Gnu if emulates || named => Naming::MinGw,
        Dialect::Gnu => Naming::Unix,
    }
}

fn triple_of(machine: Machine) -> Option<&'static str> {
    use object::{elf, pe};
    Some(match machine {
        Machine::Elf(elf::EM_X86_64, ..) => "x86_64-unknown-linux-gnu",
        Machine::Elf(elf::EM_386, ..) => "i386-unknown-linux-gnu",
        Machine::Elf(elf::EM_AARCH64, ..) => "aarch64-unknown-linux-gnu",
        Machine::Elf(elf::EM_PPC64, _, true) => "powerpc64le-unknown-linux-gnu",
        Machine::Elf(elf::EM_RISCV, true, _) => "riscv64-unknown-linux-gnu",
        Machine::Elf(elf::EM_S390, true, _) => "s390x-unknown-linux-gnu",
        Machine::Elf(elf::EM_LOONGARCH, true, _) => "loongarch64-unknown-linux-gnu",
        Machine::Coff(pe::IMAGE_FILE_MACHINE_AMD64) => "x86_64-pc-windows-msvc",
        Machine::Coff(pe::IMAGE_FILE_MACHINE_ARM64) => "aarch64-pc-windows-msvc",
        Machine::Coff(pe::IMAGE_FILE_MACHINE_I386) => "i386-pc-windows-msvc",
        _ => return None,
    })
}

/// The folder that Debian has for a host: `/usr/lib/<multiarch>`, for Windows `/usr/<multiarch>/lib`.
pub(crate) fn multiarch(request: &LinkRequest) -> String {
    let arch = request.host_triple.as_ref().and_then(|triple| triple.split('-').next());
    let arch = arch.unwrap_or(std::env::consts::ARCH);
    let i386 = arch.starts_with('i') && arch.ends_with("86");
    match naming(request) {
        Naming::Unix => format!("{}-linux-gnu", if i386 { "i386" } else { arch }),
        _ if i386 || request.emulation.as_deref() == Some("i386pe") => "i686-w64-mingw32".to_owned(),
        _ => format!("{arch}-w64-mingw32"),
    }
}

/// Where the parts of a link come from, for the report of a failed host link: each file once.
pub(crate) fn input_names(inputs: &Inputs) -> Vec<String> {
    let mut seen = HashSet::new();
    inputs.files.iter().map(|file| file.path.display().to_string()).filter(|name| seen.insert(name.clone())).collect()
}
