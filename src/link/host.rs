//! Host link: the choice of the linker, the user's command line with registration objects added,
//! and the OpenMP runtime if the command line lacks it. Also the facts about the host that the
//! inputs contain: its triple, and whether another wrapper's object is among them.

mod output;
mod runtime;
mod side_outputs;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSymbol};

use crate::args::response::Style;
use crate::args::settings::{LinkSettings, Named};
use crate::args::{ArgumentList, Dialect, Role};
use crate::formats::elf::edit;
use crate::formats::offload_sections;
use crate::io::bytes::Bytes;
use crate::io::file_slice::FileSlice;
use crate::io::rope::Rope;
use crate::link::inputs::search::Naming;
use crate::link::inputs::{InputObject, Inputs};
use crate::link::scan::{HostFacts, Machine};
use crate::model::{ObjectFormat, Origin};
use crate::sys::atomic_file;
use crate::sys::run::{Cmd, Equivalent};
use crate::sys::threads;
use crate::sys::toolchain::{self, LinkerFamily};

pub(crate) use output::{Place, check_whole, remove_leftovers, remove_partial};
pub(crate) use runtime::{may_add_directory_of, openmp_runtime};
pub(crate) use side_outputs::{Done, clean};

/// Returns the program for the host link.
pub(crate) fn linker(settings: &LinkSettings, ld_first: bool) -> Result<PathBuf> {
    let other = || toolchain::host_linker(Some(&settings.host), ld_first);
    let by_option = settings.host.offld_linker.as_ref();
    let by_option = by_option.is_some_and(Named::is_by_option);
    match (&settings.host.linker_path, settings.role) {
        (_, Role::Wrapper) if by_option => other(),
        // With `-fuse-ld=offld` in an offload build, the linker is offld as well: it would only
        // call itself.
        (Some(path), _) if toolchain::is_ourselves(path) => other(),
        (Some(path), _) => Ok(path.clone()),
        (None, Role::Wrapper) => bail!("linker path missing, must pass 'linker-path'"),
        (None, Role::Ld) => other(),
    }
}

/// Returns the host link with `additions` at the position of the objects of LLVM's wrapper, and
/// `libraries` after the last input. If `output` is given, it replaces the user's. Without all
/// three, the user's command line is unchanged.
pub(crate) fn command(
    ledger: &ArgumentList,
    linker: &Path,
    output: Option<&Path>,
    additions: &[OsString],
    libraries: &[OsString],
) -> Cmd {
    Cmd {
        step: "host link".to_owned(),
        program: linker.to_path_buf(),
        args: ledger.host_line_to(output.map(Path::as_os_str), additions, libraries),
        quoting: Style::of_linker(ledger.dialect()),
        inputs: Vec::new(),
        output: None,
    }
}

/// Returns the arguments (`-m` and its value) with which ld.lld can be started before the other
/// arguments are known. Returns none for other linkers, for a command line without `-m`, and if an
/// input is stdin: a linker that starts early gets its other arguments through stdin.
pub(crate) fn preload_args(ledger: &ArgumentList, linker: &Path) -> Option<Vec<OsString>> {
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

/// Whether an argument, or the value after its `=`, is a path of the process's stdin.
fn names_stdin(arg: &OsStr) -> bool {
    const PATHS: [&str; 3] = ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"];
    PATHS
        .iter()
        .any(|path| arg.as_bytes().ends_with(path.as_bytes()))
}

/// Returns the arguments for the registration: the objects, and for lld with `--gc-sections` an
/// option that preserves the entry tables. Only the `__start_` and `__stop_` symbols of its table
/// refer to an entry, and in lld such symbols do not keep a section by default. Near a process
/// limit, an option limits lld to one thread. For wild, an option makes its exit status reliable.
pub(crate) fn additions(
    settings: &LinkSettings,
    linker: &Path,
    host_triple: &str,
    objects: &[PathBuf],
) -> Vec<OsString> {
    let mut args: Vec<OsString> = objects
        .iter()
        .map(|path| path.clone().into_os_string())
        .collect();
    let elf = ObjectFormat::of(host_triple) == ObjectFormat::Elf;
    if elf && settings.host.gc_sections && is_lld(linker) {
        args.extend(KEEP_TABLES.map(OsString::from));
    }
    if threads::is_short() && toolchain::is_ld_lld(linker) {
        // ld.lld starts one thread for each CPU, and aborts if it cannot.
        args.push("--threads=1".into());
    }
    if toolchain::linker_family(linker) == LinkerFamily::Wild {
        args.push(toolchain::RELIABLE_STATUS_OF_WILD.into());
    }
    args
}

/// Returns the arguments after the last input: `runtime`, and the opposite of `-z start-stop-gc` if
/// the user's command line has it. That option would drop the entry tables, and the last one wins.
pub(crate) fn endings(settings: &LinkSettings, runtime: &[OsString]) -> Vec<OsString> {
    let dropped = settings.host.gc_sections
        && settings
            .host
            .z_keywords
            .iter()
            .any(|keyword| keyword == "start-stop-gc");
    runtime
        .iter()
        .cloned()
        .chain(
            KEEP_TABLES
                .map(OsString::from)
                .into_iter()
                .filter(|_| dropped),
        )
        .collect()
}

const KEEP_TABLES: [&str; 2] = ["-z", "nostart-stop-gc"];

/// Whether `linker` is LLVM's, by its name or by that of the file it links to (`/usr/bin/ld` on
/// some systems).
fn is_lld(linker: &Path) -> bool {
    let named = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains("lld"))
    };
    named(linker) || linker.canonicalize().is_ok_and(|real| named(&real))
}

/// Edits the output of a relocatable link (docs/spec/link-driver.md 9.1): removes the device code,
/// which is linked now, and renames the entry tables `tables`, so that a later link ignores images
/// and tables. The file is replaced atomically.
pub(crate) fn finish_relocatable(output: &Path, tables: &[&str], linker: &Path) -> Result<()> {
    if atomic_file::is_special(output) {
        // For example `/dev/null`, whose contents cannot be read.
        return Ok(());
    }
    let linked = File::open(output)
        .and_then(FileSlice::try_of)
        .with_context(|| format!("cannot read `{}`", output.display()))?;
    check_bounds(linked.bytes(), tables, linker)
        .with_context(|| format!("`{}`", output.display()))?;
    let tag = edit::entry_table_tag(linked.bytes());
    let edited = atomic_file::replace(output, |out| {
        let parts = edit::rename_entry_tables(linked.bytes(), &tag)?;
        let mut writer = BufWriter::new(out);
        Rope::of_parts(&linked, parts, [])?.write_to(&mut writer)?;
        Ok(writer.flush()?)
    });
    edited.with_context(|| format!("cannot rename the entry tables of `{}`", output.display()))
}

/// Checks that the relocatable output `linked` still refers to the bounds of its entry tables. wild
/// 0.10 replaces them by 0, and a program from such an output would run without its kernels.
fn check_bounds(linked: &[u8], tables: &[&str], linker: &Path) -> Result<()> {
    let Ok(file) = object::File::parse(linked) else {
        return Ok(());
    };
    for table in tables
        .iter()
        .filter(|table| file.section_by_name(table).is_some())
    {
        let bound = format!("__start_{table}");
        if !file
            .symbols()
            .any(|symbol| symbol.is_undefined() && symbol.name_bytes() == Ok(bound.as_bytes()))
        {
            bail!(
                "`{}` drops the symbol `{bound}` from a relocatable output: use ld.lld, GNU ld, gold or mold",
                linker.display()
            );
        }
    }
    Ok(())
}

/// The directory of a file.
pub(crate) fn folder_of(file: &Path) -> &Path {
    file.parent()
        .filter(|folder| *folder != Path::new(""))
        .unwrap_or(Path::new("."))
}

/// Returns the llvm-objcopy command that renames the entry tables `tables` of a relocatable output
/// in the same way. In a dry run, the names are those for an empty output, as with LLVM.
pub(crate) fn objcopy_command(
    output: &Path,
    tables: &[&str],
    settings: &LinkSettings,
) -> Result<Option<Equivalent>> {
    let tag = if settings.run.dry_run {
        edit::entry_table_tag(&[])
    } else if atomic_file::is_special(output) {
        return Ok(None);
    } else {
        edit::entry_table_tag(Bytes::of(output)?.as_slice())
    };
    let mut args: Vec<OsString> = vec![
        output.into(),
        "--remove-section".into(),
        offload_sections::NAME.into(),
    ];
    for table in tables {
        args.extend([
            "--rename-section".into(),
            format!("{table}={table}_{tag}").into(),
        ]);
        for bound in ["__start_", "__stop_"] {
            args.extend([
                "--redefine-sym".into(),
                format!("{bound}{table}={bound}{table}_{tag}").into(),
            ]);
        }
    }
    Ok(Some((
        toolchain::llvm_tool("llvm-objcopy", &settings.device),
        args,
    )))
}

/// Finds another wrapper's object among the inputs. The link then adds no registration, or the
/// images would be registered twice.
pub(crate) fn wrapper_object(facts: &[HostFacts<'_>], inputs: &Inputs) -> Option<Origin> {
    let wraps =
        |facts: &HostFacts<'_>, object: &InputObject| !object.lazy && facts.refers_to_bounds;
    facts
        .iter()
        .zip(&inputs.objects)
        .find(|(facts, object)| wraps(facts, object))
        .map(|(_, object)| object.origin())
}

/// Returns the host's triple: that of `--host-triple=`, else that of the first object, else that of
/// the machine offld was built for.
pub(crate) fn triple(settings: &LinkSettings, facts: &[HostFacts<'_>]) -> Result<String> {
    if let Some(triple) = &settings.host.host_triple {
        return Ok(triple.clone());
    }
    let machine = facts.iter().find_map(|facts| facts.machine);
    Ok(match machine.and_then(triple_of) {
        // A command line in GNU ld's syntax belongs to the MinGW toolchain.
        Some(triple) if settings.dialect == Dialect::Gnu => {
            triple.replace("pc-windows-msvc", "w64-windows-gnu")
        }
        Some(triple) => triple.to_owned(),
        None => match machine {
            Some(machine) => bail!(
                "cannot determine the host triple from objects for {machine:?}: pass --host-triple="
            ),
            None => format!("{}-unknown-linux-gnu", std::env::consts::ARCH),
        },
    })
}

/// Returns the naming scheme of the host's libraries, as far as the command line determines it.
pub(crate) fn naming(settings: &LinkSettings) -> Naming {
    const FOR_WINDOWS: [&str; 6] = [
        "i386pe",
        "i386pep",
        "thumb2pe",
        "arm64pe",
        "arm64ecpe",
        "arm64xpe",
    ];
    let emulates = settings
        .host
        .emulation
        .as_ref()
        .is_some_and(|emulation| FOR_WINDOWS.contains(&emulation.as_str()));
    let named = settings
        .host
        .host_triple
        .as_ref()
        .is_some_and(|triple| ObjectFormat::of(triple) == ObjectFormat::Coff);
    match settings.dialect {
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

/// Returns Debian's name for the host in library directories: `/usr/lib/<multiarch>`, or
/// `/usr/<multiarch>/lib` for Windows.
pub(crate) fn multiarch(settings: &LinkSettings) -> String {
    let arch = settings
        .host
        .host_triple
        .as_ref()
        .and_then(|triple| triple.split('-').next());
    let arch = arch.unwrap_or(std::env::consts::ARCH);
    let i386 = arch.starts_with('i') && arch.ends_with("86");
    match naming(settings) {
        Naming::Unix => format!("{}-linux-gnu", if i386 { "i386" } else { arch }),
        _ if i386 || settings.host.emulation.as_deref() == Some("i386pe") => {
            "i686-w64-mingw32".to_owned()
        }
        _ => format!("{arch}-w64-mingw32"),
    }
}

/// Returns the input files, each once, for the report of a failed host link.
pub(crate) fn input_names(inputs: &Inputs) -> Vec<String> {
    let mut seen = HashSet::new();
    inputs
        .files
        .iter()
        .map(|file| file.path.display().to_string())
        .filter(|name| seen.insert(name.clone()))
        .collect()
}
