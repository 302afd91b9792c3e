//! Host link: the choice of the linker, the user's command line with registration objects added,
//! and the OpenMP runtime if the command line lacks it. Also the facts about the host that the
//! inputs contain: its triple, and whether another wrapper's object is among them. The output is
//! checked here as well.

mod runtime;
mod side_outputs;

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use object::{Endianness, LittleEndian, Object, ObjectSymbol, pe, pod};
use rustix::fs::{Access, access};
use rustix::process::geteuid;

use crate::args::settings::{LinkSettings, Named};
use crate::args::{ArgumentList, Dialect, LineChanges, Role};
use crate::link::inputs::search::Naming;
use crate::link::inputs::{InputObject, Inputs};
use crate::link::scan::{HostFacts, Machine};
use crate::toolchain::{self, LinkerFamily};
use offld_system::atomic_file::{self, folder_of, target_of};
use offld_system::io::bytes::Bytes;
use offld_system::io::file_slice::FileSlice;
use offld_system::io::rope::Rope;
use offld_system::run::{Cmd, Equivalent, is_ourselves};
use offld_system::threads;
use offload_formats::elf::edit;
use offload_formats::elf::raw::{Class, FileHeader, ProgramHeader, Record, SectionHeader};
use offload_formats::magic;
use offload_formats::model::{ObjectFormat, Origin};
use offload_formats::offload_sections::{self, START_PREFIX, STOP_PREFIX};

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
        (Some(path), _) if is_ourselves(path) => other(),
        (Some(path), _) => Ok(path.clone()),
        (None, Role::Wrapper) => bail!("linker path missing, must pass 'linker-path'"),
        (None, Role::Ld) => other(),
    }
}

/// Returns the command of the host link: the user's command line with `changes`.
pub(crate) fn command(arguments: &ArgumentList, linker: &Path, changes: &LineChanges<'_>) -> Cmd {
    Cmd {
        step: "host link".to_owned(),
        program: linker.to_path_buf(),
        args: arguments.changed_host_line(changes),
        quoting: arguments.dialect().response_style(),
        inputs: Vec::new(),
        output: None,
    }
}

/// Returns the arguments (`-m` and its value) with which ld.lld can be started before the other
/// arguments are known. Returns none for other linkers, for a command line without `-m`, and if an
/// input is stdin: a linker that starts early gets its other arguments through stdin.
pub(crate) fn preload_args(arguments: &ArgumentList, linker: &Path) -> Option<Vec<OsString>> {
    if !toolchain::is_ld_lld(linker) {
        return None;
    }
    let line = arguments.host_line(&[], &[]);
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
/// option that preserves the entry tables. Nothing refers to an entry except the `__start_` and
/// `__stop_` symbols of its table, and in lld such symbols do not keep a section. Near a process
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

/// Returns the arguments after the last input: `runtime`, and `-z nostart-stop-gc` if the user passes
/// `--gc-sections` and `-z start-stop-gc`, which would drop the entry tables. The last `-z` option
/// wins.
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

/// Whether `linker` is LLVM's, by its name or, for a symlink, by the name of its target
/// (`/usr/bin/ld` on some systems).
fn is_lld(linker: &Path) -> bool {
    let named = |path: &Path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().contains("lld"))
    };
    named(linker) || linker.canonicalize().is_ok_and(|real| named(&real))
}

/// Edits the output of a relocatable link (docs/spec/link-driver.md 9.1): removes the device code
/// that this link has linked, and renames all entry tables, so that a later link processes neither
/// again. Before that, checks that the output still refers to the `__start_` symbols of
/// `tables`. The file is replaced atomically.
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
        let bound = format!("{START_PREFIX}{table}");
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

/// Returns the llvm-objcopy command for the edits of [`finish_relocatable`]. In
/// a dry run, the tag in the new table names is that of an empty output, as in LLVM.
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
        for bound in [START_PREFIX, STOP_PREFIX] {
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

// The following items check that the output of the host link is complete. For late images, they also
// treat existing files and symlinks as the linker does.

/// Checks that the linker has written its complete output. GNU ld ignores failures of its last
/// writes, for example on a full disk. The check reads headers only.
///
/// # Errors
/// The headers describe more bytes than the file has.
pub(crate) fn check_whole(output: &Path, linker: &Path) -> Result<()> {
    if !fs::metadata(output).is_ok_and(|meta| meta.is_file()) {
        return Ok(());
    }
    // An output without read permission cannot be checked.
    let Ok(file) = File::open(output) else {
        return Ok(());
    };
    let has = file.metadata()?.len();
    let needs = described_size(&file, has)?;
    if needs > has {
        bail!(
            "`{}` reported success but `{}` is truncated: {has} of at least {needs} bytes. offld removes the file. Check whether \
             the disk is full",
            linker.display(),
            output.display()
        );
    }
    Ok(())
}

/// Returns the minimum size of a file in bytes according to its headers; 0 for formats other than
/// ELF and PE. `size` is the actual size, beyond which nothing is read.
fn described_size(file: &File, size: u64) -> io::Result<u64> {
    let start = read_part(file, 0, 4096, size)?;
    if let Ok((class, header)) = FileHeader::read(&start) {
        let end =
            |at: u64, count: u64, each: usize| at.saturating_add(count.saturating_mul(each as u64));
        let (each, count) = (SectionHeader::size(class), u64::from(header.shnum));
        let sections = if header.shoff == 0 {
            0
        } else {
            end(header.shoff, count.max(1), each)
        };
        let (segment, segments) = (ProgramHeader::size(class), u64::from(header.phnum));
        let mut needs = sections.max(if header.phoff == 0 {
            0
        } else {
            end(header.phoff, segments, segment)
        });
        if needs <= size {
            let table = read_part(file, header.shoff, count.saturating_mul(each as u64), size)?;
            let of_sections = table
                .chunks_exact(each)
                .filter_map(|bytes| SectionHeader::of(class, bytes));
            let in_file = of_sections.filter(|section| !section.is_empty_in_file());
            needs = in_file.fold(needs, |needs, section| {
                needs.max(section.offset.saturating_add(section.size))
            });
            let table = read_part(
                file,
                header.phoff,
                segments.saturating_mul(segment as u64),
                size,
            )?;
            let of_segments = table
                .chunks_exact(segment)
                .filter_map(|bytes| ProgramHeader::of(class, bytes));
            needs = of_segments.fold(needs, |needs, segment| {
                needs.max(segment.offset.saturating_add(segment.filesz))
            });
        }
        return Ok(needs);
    }
    if start.starts_with(&magic::ELF) {
        // The header itself is truncated.
        return Ok(FileHeader::size(Class {
            is_64: false,
            endian: Endianness::Little,
        }) as u64);
    }
    Ok(described_by_pe(&start).unwrap_or(0))
}

/// Returns the minimum size in bytes of the PE file with these first bytes.
fn described_by_pe(start: &[u8]) -> Option<u64> {
    let (dos, _) = pod::from_bytes::<pe::ImageDosHeader>(start).ok()?;
    let at = (dos.e_magic.get(LittleEndian) == pe::IMAGE_DOS_SIGNATURE)
        .then(|| dos.e_lfanew.get(LittleEndian) as usize)?;
    let header = start.get(at..)?.strip_prefix(b"PE\0\0")?;
    let (header, rest) = pod::from_bytes::<pe::ImageFileHeader>(header).ok()?;
    let sections = rest.get(usize::from(header.size_of_optional_header.get(LittleEndian))..)?;
    let count = usize::from(header.number_of_sections.get(LittleEndian));
    let (sections, _) = pod::slice_from_bytes::<pe::ImageSectionHeader>(sections, count).ok()?;
    let end = |section: &pe::ImageSectionHeader| {
        u64::from(section.pointer_to_raw_data.get(LittleEndian))
            + u64::from(section.size_of_raw_data.get(LittleEndian))
    };
    let symbols = u64::from(header.pointer_to_symbol_table.get(LittleEndian));
    let table =
        u64::from(header.number_of_symbols.get(LittleEndian)) * pe::IMAGE_SIZEOF_SYMBOL as u64;
    sections
        .iter()
        .filter(|section| section.pointer_to_raw_data.get(LittleEndian) != 0)
        .map(end)
        .chain((symbols != 0).then_some(symbols + table))
        .max()
}

/// Reads up to `len` bytes of `file` from `at`. `size` is the file's size.
fn read_part(file: &File, at: u64, len: u64, size: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(len.min(size.saturating_sub(at))).unwrap_or(0)];
    file.read_exact_at(&mut bytes, at)?;
    Ok(bytes)
}

/// The location of an output that the linker does not write itself. Linkers treat existing files
/// and symlinks in different ways: ld.lld replaces a symlink, mold writes to the file that it
/// points to, and GNU ld does either, depending on that file. So the linker gets a stand-in for the
/// output in another directory. offld then does to the real output what the
/// linker did to the stand-in.
#[derive(Debug)]
pub(crate) struct Place {
    name: PathBuf,
    /// The file that the symlink `name` points to, which need not exist.
    target: Option<PathBuf>,
    /// The existing file at `name`, if there is one.
    old: Option<OldFile>,
}

#[derive(Debug)]
struct OldFile {
    is_empty: bool,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl Place {
    /// Returns the location for `output`. `is_input`: whether a file is an input of the link.
    ///
    /// # Errors
    /// The reason why only the linker itself can write this output.
    pub(crate) fn of(output: &Path, is_input: &dyn Fn(&Metadata) -> bool) -> Result<Place, String> {
        let shown = output.display();
        if output == Path::new("-") {
            return Err("`-` is the standard output of some linkers".to_owned());
        }
        let of_symlink = fs::symlink_metadata(output).is_ok_and(|meta| meta.is_symlink());
        let target = of_symlink
            .then(|| target_of(output))
            .transpose()
            .map_err(|error| format!("`{shown}`: {error}"))?;
        let old = fs::metadata(output).ok();
        for directory in [Some(output), target.as_deref()]
            .into_iter()
            .flatten()
            .map(folder_of)
        {
            if access(directory, Access::WRITE_OK | Access::EXEC_OK).is_err() {
                return Err(format!("cannot create files in `{}`", directory.display()));
            }
        }
        if let Some(meta) = &old {
            if !meta.is_file() {
                return Err(format!("`{shown}` is not a regular file"));
            }
            if is_input(meta) {
                return Err(format!("`{shown}` is an input of the link"));
            }
            if meta.nlink() > 1 {
                return Err(format!("`{shown}` has several hard links"));
            }
            if meta.uid() != geteuid().as_raw() && !geteuid().is_root() {
                return Err(format!("`{shown}` belongs to another user"));
            }
        }
        let old = old.map(|meta| OldFile {
            is_empty: meta.len() == 0,
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
        });
        Ok(Place {
            name: output.to_path_buf(),
            target,
            old,
        })
    }

    /// Creates the stand-in `program` in an empty directory: a symlink if the output is one, and a
    /// file with the owner and mode of the output if that exists.
    ///
    /// # Errors
    /// The stand-in cannot be created.
    pub(crate) fn imitate(&self, program: &Path) -> io::Result<()> {
        let mut file = program.to_path_buf();
        if self.target.is_some() {
            file.set_file_name(".target");
            symlink(".target", program)?;
        }
        let Some(old) = &self.old else { return Ok(()) };
        // Some linkers write to an empty file and replace any other file.
        fs::write(&file, if old.is_empty { "" } else { "old" })?;
        let own = fs::metadata(&file)?;
        if own.uid() != old.uid {
            chown(&file, Some(old.uid), None)?;
        }
        if own.gid() != old.gid {
            // The user can set only groups that the user belongs to. The group matters only to
            // linkers that write to the existing file.
            let _ = chown(&file, None, Some(old.gid));
        }
        fs::set_permissions(&file, Permissions::from_mode(old.mode))
    }

    /// Returns the path to which the program moves, which depends on how the linker treated the
    /// stand-in.
    pub(crate) fn of_program(&self, program: &Path) -> &Path {
        let is_link = fs::symlink_metadata(program).is_ok_and(|meta| meta.is_symlink());
        self.target
            .as_deref()
            .filter(|_| is_link)
            .unwrap_or(&self.name)
    }
}

/// Removes the partial output of a linker that was stopped. Removes only a regular file, never a
/// device, a pipe or a symlink.
pub(crate) fn remove_partial(output: &Path) {
    if fs::symlink_metadata(output).is_ok_and(|meta| meta.is_file()) {
        let _ = fs::remove_file(output);
    }
}

/// Removes the files that a failed linker leaves, for example on a full disk. ld.lld leaves
/// `<output>.tmpXXXXXXX` if two of its threads crash at once. If a signal has ended the linker
/// (`crashed`), removes the output as well, because wild leaves a part of it. Files that are older
/// than the link stay.
pub(crate) fn remove_leftovers(output: &Path, started: SystemTime, crashed: bool) {
    // File timestamps are coarser than the system's clock.
    const TICK: Duration = Duration::from_secs(1);
    let is_young = |meta: io::Result<Metadata>| {
        meta.and_then(|meta| meta.modified())
            .is_ok_and(|time| time + TICK >= started)
    };
    if crashed && is_young(fs::metadata(output)) {
        remove_partial(output);
    }
    let Some(name) = output.file_name() else {
        return;
    };
    let is_theirs = |file: &[u8]| {
        let random = file
            .strip_prefix(name.as_encoded_bytes())
            .and_then(|rest| rest.strip_prefix(b".tmp"));
        random.is_some_and(|random| random.len() == 7 && random.iter().all(u8::is_ascii_hexdigit))
    };
    for entry in fs::read_dir(folder_of(output))
        .into_iter()
        .flatten()
        .flatten()
    {
        if is_theirs(entry.file_name().as_encoded_bytes()) && is_young(entry.metadata()) {
            remove_partial(&entry.path());
        }
    }
}
