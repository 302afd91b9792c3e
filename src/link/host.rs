//! The host link: which linker runs, the user's command line with offld's objects added, and the OpenMP runtime if the line lacks
//! it. Also what the inputs tell about the host: its triple, and whether another wrapper's object is among them.

mod argument_versions;
mod runtime;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};

use crate::args::request::LinkRequest;
use crate::args::response::Style;
use crate::args::{Dialect, Ledger, Role};
use crate::formats::elf::edit;
use crate::formats::offload_sections;
use crate::io::bytes::Bytes;
use crate::link::inputs::search::Naming;
use crate::link::inputs::{InputObject, Inputs};
use crate::link::scan::{HostFacts, Machine};
use crate::model::{ObjectFormat, Origin};
use crate::sys::atomic_file;
use crate::sys::run::{Cmd, Equivalent};
use crate::sys::{threads, toolchain};

pub(crate) use runtime::openmp_runtime;

/// The program that does the host link.
pub(crate) fn linker(request: &LinkRequest, ld_first: bool) -> Result<PathBuf> {
    let other = || toolchain::host_linker(request.offld_linker.as_deref(), ld_first);
    match (&request.linker_path, request.role) {
        (_, Role::Wrapper) if request.offld_linker.is_some() => other(),
        // With `-fuse-ld=offld` in an offload build, the linker is offld as well: it would only call itself.
        (Some(path), _) if toolchain::is_ourselves(path) => other(),
        (Some(path), _) => Ok(path.clone()),
        (None, Role::Wrapper) => bail!("linker path missing, must pass 'linker-path'"),
        (None, Role::Ld) => other(),
    }
}

/// The host link with `additions` where LLVM's wrapper puts its objects, and `libraries` after the last input; with neither, the
/// user's command line unchanged.
pub(crate) fn command(ledger: &Ledger, linker: &Path, additions: &[OsString], libraries: &[OsString]) -> Cmd {
    of_line(ledger, linker, ledger.host_line(additions, libraries))
}

/// The same, to `output`.
pub(crate) fn command_to(ledger: &Ledger, linker: &Path, output: &Path, additions: &[OsString], libraries: &[OsString]) -> Cmd {
    of_line(ledger, linker, ledger.host_line_to(Some(output.as_os_str()), additions, libraries))
}

fn of_line(ledger: &Ledger, linker: &Path, args: Vec<OsString>) -> Cmd {
    let quoting = Style::of_linker(ledger.dialect());
    Cmd { step: "host link".to_owned(), program: linker.to_path_buf(), args, quoting, inputs: Vec::new(), output: None }
}

/// The arguments (`-m` and its value) with which ld.lld can be started before the other arguments are known; none for other
/// linkers, if the line has no `-m`, and if it reads what comes through its stdin, by which it is told the other arguments then.
pub(crate) fn preload_args(ledger: &Ledger, linker: &Path) -> Option<Vec<OsString>> {
    if !toolchain::is_ld_lld(linker) {
        return None;
    }
    let line = ledger.host_line(&[], &[]);
    if line.iter().any(|arg| names_stdin(arg)) {
        return None;
    }
    let at = line.iter().position(|arg| arg == "-m")?;
    line.get(at..at + 2).map(<[OsString]>::to_vec)
}

/// Whether an argument, or the value after its `=`, is one of the paths of the stream that a process is given as its stdin.
fn names_stdin(arg: &OsStr) -> bool {
    const PATHS: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    PATHS.iter().any(|path| arg.as_bytes().ends_with(path.as_bytes()))
}

/// The arguments added for registration: the objects, and for lld with `--gc-sections` the option that keeps the entry tables.
/// Nothing refers to an entry but the `__start_`/`__stop_` symbols of its table, which by default do not keep a section alive in
/// lld. Near a limit of processes also the option that makes lld do with one thread.
pub(crate) fn additions(request: &LinkRequest, linker: &Path, host_triple: &str, objects: &[PathBuf]) -> Vec<OsString> {
    let mut args: Vec<OsString> = objects.iter().map(|path| path.clone().into_os_string()).collect();
    let elf = ObjectFormat::of(host_triple) == ObjectFormat::Elf;
    if elf && request.gc_sections && is_lld(linker) {
        args.extend(KEEP_TABLES.map(OsString::from));
    }
    if threads::is_short() && toolchain::is_ld_lld(linker) {
        // It starts a thread for each processor, and dies where it cannot.
        args.push("--threads=1".into());
    }
    args
}

/// The arguments after the last input: `runtime`, and if the user's line has `-z start-stop-gc`, which would drop the entry tables,
/// the opposite option, because the last one counts.
pub(crate) fn endings(request: &LinkRequest, runtime: Vec<OsString>) -> Vec<OsString> {
    let dropped = request.gc_sections && request.z_keywords.iter().any(|keyword| keyword == "start-stop-gc");
    runtime.into_iter().chain(KEEP_TABLES.map(OsString::from).into_iter().filter(|_| dropped)).collect()
}

const KEEP_TABLES: [&str; 2] = ["-z", "nostart-stop-gc"];

/// Whether `linker` is LLVM's, by its name or that of the file it is a symlink to (`/usr/bin/ld`, on some systems).
fn is_lld(linker: &Path) -> bool {
    let named = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("lld"));
    named(linker) || linker.canonicalize().is_ok_and(|real| named(&real))
}

/// Edits the output of a relocatable link (docs/spec/link-driver.md 9.1): removes the device code, which is linked now, and renames
/// the entry tables, so that a later link leaves images and tables alone. The file is replaced atomically.
pub(crate) fn finish_relocatable(output: &Path) -> Result<()> {
    if atomic_file::is_special(output) {
        // For example `/dev/null`: what the linker wrote cannot be read back.
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

/// The command of llvm-objcopy that gives the entry tables `tables` of a relocatable output the same names; in a dry run, those of
/// an output without contents, as LLVM has it.
pub(crate) fn objcopy_command(output: &Path, tables: &[&str], request: &LinkRequest) -> Result<Option<Equivalent>> {
    let tag = if request.dry_run {
        edit::entry_table_tag(&[])
    } else if atomic_file::is_special(output) {
        return Ok(None);
    } else {
        edit::entry_table_tag(Bytes::of(output)?.as_slice())
    };
    let mut args: Vec<OsString> = vec![output.into(), "--remove-section".into(), offload_sections::NAME.into()];
    for table in tables {
        args.extend(["--rename-section".into(), format!("{table}={table}_{tag}").into()]);
        for bound in ["__start_", "__stop_"] {
            args.extend(["--redefine-sym".into(), format!("{bound}{table}={bound}{table}_{tag}").into()]);
        }
    }
    Ok(Some((toolchain::llvm_tool("llvm-objcopy", request.offld_clang.as_deref()), args)))
}

/// Removes the partial output of a linker that was stopped. Only a regular file, never a device, a pipe or a symlink.
pub(crate) fn remove_partial(output: &Path) {
    if std::fs::symlink_metadata(output).is_ok_and(|meta| meta.is_file()) {
        let _ = std::fs::remove_file(output);
    }
}

/// Removes the temporary output that ld.lld leaves when it crashes. It writes to a memory map of `<output>.tmpXXXXXXX`, and on a
/// full disk two of its threads may crash at once, before it has cleaned up. Only files that are not older than the link are
/// removed.
pub(crate) fn remove_linker_temps(output: &Path, started: SystemTime) {
    // Timestamps of files are coarser than the system's clock.
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

/// Another wrapper's object among the inputs. The link is then done without ours, or the images would be registered twice.
pub(crate) fn wrapper_object(facts: &[HostFacts<'_>], inputs: &Inputs) -> Option<Origin> {
    let wraps = |facts: &HostFacts<'_>, object: &InputObject| !object.lazy && facts.refers_to_bounds;
    facts.iter().zip(&inputs.objects).find(|(facts, object)| wraps(facts, object)).map(|(_, object)| object.origin())
}

/// The host's triple: that of `--host-triple=`, else that of the first object, else that of the machine offld was built for.
pub(crate) fn triple(request: &LinkRequest, facts: &[HostFacts<'_>]) -> Result<String> {
    if let Some(triple) = &request.host_triple {
        return Ok(triple.clone());
    }
    let machine = facts.iter().find_map(|facts| facts.machine);
    Ok(match machine.and_then(triple_of) {
        // A command line in GNU ld's spelling belongs to the MinGW toolchain.
        Some(triple) if request.dialect == Dialect::Gnu => triple.replace("pc-windows-msvc", "w64-windows-gnu"),
        Some(triple) => triple.to_owned(),
        None => match machine {
            Some(machine) => bail!("cannot tell the host's triple from objects for {machine:?}: name it with --host-triple="),
            None => format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        },
    })
}

/// The naming scheme of the host's libraries, as far as the command line tells.
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

/// The name that Debian uses for the host in library folders: `/usr/lib/<multiarch>`, for Windows `/usr/<multiarch>/lib`.
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

/// The input files, each once, for the report of a failed host link.
pub(crate) fn input_names(inputs: &Inputs) -> Vec<String> {
    let mut seen = HashSet::new();
    inputs.files.iter().map(|file| file.path.display().to_string()).filter(|name| seen.insert(name.clone())).collect()
}
