//! `--reproduce`: a tar with every file that a link reads, and a script that repeats the link on
//! another machine, with offld or LLVM's wrapper. It is written before the link starts, so that
//! failing links can be reproduced as well. It does not change the link itself, and reads device
//! code only to determine its compiler and CPU.
//!
//! The tar contains one directory with the name of the tar, with these entries:
//! - `root/`: every file by its absolute path
//! - `needed/`: the parts that a linker reads of the libraries that only libraries need
//! - `response.txt`: the arguments, with paths below `root/`
//! - `original.txt`: the original command line
//! - `run.sh` and `versions.txt`

mod line;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tar::{Builder, EntryType, Header};
use xxhash_rust::xxh3::Xxh3;

use crate::args::settings::{Destination, InputName, InputSpec, LinkSettings};
use crate::args::{self, ArgKind, ArgumentList, Role};
use crate::link::host;
use crate::link::inputs::search::{Naming, Search};
use crate::link::inputs::{self, Inputs, OpenedFiles};
use crate::link::scan::{self, DeviceImage};
use crate::toolchain::{self, Compiler};
use line::{OUT, ROOT, ReproducedLine, Root};
use offld_system::atomic_file::AtomicFile;
use offld_system::environment::{self, OFFLD_REPRODUCE};
use offld_system::io::bytes::Bytes;
use offld_system::io::loader::{self, RunPaths};
use offld_system::posix_shell::quoted_if_needed;
use offld_system::{response, run};
use offload_formats::elf::interface;
use offload_formats::magic::{Magic, magic};
use offload_formats::target::Target;
use offload_formats::{bitcode, dynamic};

/// The directory for the libraries that only libraries need.
const NEEDED: &str = "needed";

pub(crate) struct LinkToReproduce<'a> {
    /// The command line.
    pub arguments: &'a ArgumentList,
    /// The options and inputs in the command line.
    pub settings: &'a LinkSettings,
    /// The inputs, and the default libraries that objects name in turn.
    pub inputs: &'a dyn Fn() -> Cow<'a, [InputSpec]>,
    /// The search path for libraries.
    pub search: &'a Search,
    pub linker: &'a Path,
}

/// Writes the reproduction if the user requested one: with `--reproduce` for this link, or with
/// `OFFLD_REPRODUCE` for every link with device code.
pub(crate) fn write(link: &LinkToReproduce<'_>) -> Result<()> {
    let Some(destination) = &link.settings.run.reproduce else {
        return Ok(());
    };
    let inputs = inputs::open(&(link.inputs)(), link.search, &mut |_, _| {});
    let found = inputs.as_ref().ok().map(scan::scan);
    // A link whose device code cannot be read is reproduced as well: that failure may be the reason
    // for the request.
    let has_none = link.settings.device.override_images.is_empty()
        && matches!(&found, Some(Ok(found)) if found.is_empty());
    if has_none && matches!(destination, Destination::Directory(_)) {
        return Ok(());
    }
    let found = found.and_then(Result::ok).unwrap_or_default();
    let tools = Tools::of(link, inputs.as_ref().unwrap_or(&Inputs::default()), &found);
    let entries = entries(link, &tools)?;
    let written = write_tar(&entries, destination, output(link.settings));
    written.with_context(|| match destination {
        Destination::File(_) => "cannot write the reproduction of this link".to_owned(),
        Destination::Directory(_) => {
            format!("{OFFLD_REPRODUCE}: cannot write the reproduction of this link")
        }
    })
}

/// The output's file name.
fn output(settings: &LinkSettings) -> &OsStr {
    settings
        .output
        .as_deref()
        .and_then(Path::file_name)
        .unwrap_or(OsStr::new("a.out"))
}

/// Returns all entries of the tar.
fn entries(link: &LinkToReproduce<'_>, tools: &Tools) -> Result<BTreeMap<PathBuf, Content>> {
    let root = Root::here()?;
    let opened = inputs::files(&(link.inputs)(), link.search);
    let mut line = ReproducedLine::new(&root, link.search);
    line.append(link.arguments);
    complete(&mut line, link, tools, &opened, &root)?;
    let files = files(link, tools, opened, &line)?;

    let shared = files
        .iter()
        .filter(|path| is_shared(path))
        .cloned()
        .collect();
    let libraries = needed_libraries(shared, &run_time_folders(link), link.search);
    let triple = tools
        .host_triple
        .as_ref()
        .map(|triple| OsString::from(format!("--host-triple={triple}")));
    // The quoting depends on the host's triple, which the script passes on the command line.
    let style = args::response_style(link.settings.role, triple.as_slice());
    let facts = ScriptValues {
        role: link.settings.role,
        linker: link.linker,
        output: output(link.settings),
        host_triple: triple.as_slice(),
        offld_only: &line.offld_only,
    };
    let file = |path: PathBuf| (root.place(&path), Content::File(path));
    let library = |(name, path)| {
        (
            Path::new(NEEDED).join::<OsString>(name),
            Content::Interface(path),
        )
    };
    let texts = [
        ("run.sh", Content::Script(script_text(&facts))),
        (
            "response.txt",
            Content::Text(response::spill(&line.args, style)),
        ),
        (
            "original.txt",
            Content::Text(original_text(root.current(), link.arguments.given())),
        ),
        (
            "versions.txt",
            Content::Text(versions_text(tools.compiler.as_ref(), link.linker)),
        ),
    ];
    let texts = texts
        .into_iter()
        .map(|(name, content)| (PathBuf::from(name), content));
    Ok(files
        .into_iter()
        .map(file)
        .chain(libraries.into_iter().map(library))
        .chain(texts)
        .collect())
}

/// Returns every file of the link, by every path that it is opened by.
fn files(
    link: &LinkToReproduce<'_>,
    tools: &Tools,
    opened: OpenedFiles,
    line: &ReproducedLine<'_>,
) -> Result<BTreeSet<PathBuf>> {
    let mut files: BTreeSet<PathBuf> = link
        .arguments
        .response_files()
        .iter()
        .chain(&line.files)
        .cloned()
        .collect();
    files.extend(paths_of(opened));
    files.extend(opened_files(
        line.scripts.iter().cloned().map(InputName::File),
        link.search,
    ));
    if !tools.runtime.is_empty() {
        // The runtime's arguments add a search directory, so the link finds more libraries.
        let whole =
            ArgumentList::parse(Role::Ld, [link.arguments.tokens(), &tools.runtime].concat())?;
        let settings = LinkSettings::new(&whole, &environment::get)?;
        let multiarch = host::multiarch(&settings);
        let search = Search::new(
            &settings.host.library_dirs,
            settings.host.sysroot.as_deref(),
            Naming::Unix,
            &multiarch,
        );
        files.extend(paths_of(inputs::files(&settings.inputs, &search)));
    }
    if let Some(compiler) = &tools.compiler {
        files.extend(tools.cpus.iter().flat_map(|cpu| {
            files_of_compiler(compiler, cpu, link.settings.host.sysroot.as_deref())
        }));
    }
    Ok(files)
}

/// Adds the arguments that make the linker find, below `root/`, the files that the original link
/// finds by default.
fn complete(
    line: &mut ReproducedLine<'_>,
    link: &LinkToReproduce<'_>,
    tools: &Tools,
    opened: &OpenedFiles,
    root: &Root,
) -> Result<()> {
    line.append(&ArgumentList::parse(Role::Ld, tools.runtime.clone())?);
    if link.settings.output.is_none() {
        line.output_in_front(output(link.settings));
    }
    if tools
        .host_triple
        .as_ref()
        .is_some_and(|triple| triple.contains("windows"))
    {
        return Ok(());
    }
    for folder in &opened.script_folders {
        line.folder("-L", folder);
    }
    if opened
        .opened
        .iter()
        .any(|file| file.by_script && file.path.is_relative())
    {
        // A script names the file relative to the directory in which the original link runs.
        line.folder("-L", root.current());
    }
    line.args.push(format!("-rpath-link={NEEDED}").into());
    line.args.extend(
        tools
            .cpus
            .iter()
            .map(|cpu| format!("--device-linker={cpu}=-rpath-link={NEEDED}").into()),
    );
    if link.settings.host.sysroot.is_none() {
        // Linkers look below the sysroot for absolute names in scripts such as libc.so.
        line.args.push(format!("--sysroot={ROOT}").into());
    }
    Ok(())
}

/// Returns the directories that GNU ld searches first for the libraries that libraries need.
fn run_time_folders(link: &LinkToReproduce<'_>) -> Vec<PathBuf> {
    let is_link_path =
        |kind: ArgKind| matches!(kind, ArgKind::Known(row) if row.name == "rpath-link");
    let link_paths = link
        .arguments
        .args()
        .iter()
        .filter(|arg| is_link_path(arg.kind))
        .filter_map(|arg| arg.value.as_ref());
    link_paths
        .chain(&link.settings.host.rpaths)
        .flat_map(|folders| loader::split(folders))
        .collect()
}

fn is_shared(path: &Path) -> bool {
    Bytes::open(path).is_ok_and(|bytes| magic(bytes.as_slice()) == Magic::ElfShared)
}

/// The tools of the link. Tools that cannot be determined are omitted: the link itself reports
/// that.
struct Tools {
    compiler: Option<Compiler>,
    host_triple: Option<String>,
    /// The arguments that `ld.offld` adds for OpenMP. The reproduction contains them because LLVM's
    /// wrapper does not add them.
    runtime: Vec<OsString>,
    /// The triples of CPU device code with the host's architecture, whose device links read
    /// libraries of the host.
    cpus: BTreeSet<String>,
}

impl Tools {
    fn of(link: &LinkToReproduce<'_>, inputs: &Inputs, found: &[DeviceImage<'_>]) -> Tools {
        let need = found
            .iter()
            .filter_map(|image| bitcode::producer_major(&image.bytes))
            .max();
        let compiler = toolchain::device_compiler(Some(&link.settings.device), need)
            .ok()
            .map(|choice| choice.compiler);
        let facts = scan::host_facts(inputs, true).unwrap_or_default();
        let host_triple = host::triple(link.settings, &facts).ok();
        let is_registered = !found.is_empty()
            && link.settings.device.override_images.is_empty()
            && host::wrapper_object(&facts, inputs).is_none();
        let runtime = compiler.as_ref().filter(|_| is_registered);
        let images: Vec<&DeviceImage<'_>> = found.iter().collect();
        let runtime = runtime.and_then(|compiler| {
            host::openmp_runtime(
                link.settings,
                inputs,
                &facts,
                &images,
                link.search,
                compiler,
            )
            .ok()
        });
        let host_machine = host_triple
            .as_ref()
            .and_then(|triple| triple.split('-').next());
        let targets = found
            .iter()
            .map(|image| Target::new(&image.triple, &image.arch));
        let cpus =
            targets.filter(|target| target.is_cpu() && Some(target.arch_name()) == host_machine);
        let cpus = cpus.map(|target| target.triple).collect();
        Tools {
            compiler,
            host_triple,
            runtime: runtime.unwrap_or_default().args,
            cpus,
        }
    }
}

// Files that a link reads but its command line does not name. These are the files that the device
// compiler adds to a link for a CPU, and the libraries that shared libraries need. GNU ld opens
// the latter to check that every symbol is defined.

/// The start files of a shared object, and `crtbegin.o`, by which clang recognises the directory of
/// a GCC.
const START_FILES: [&str; 5] = [
    ":crti.o",
    ":crtn.o",
    ":crtbegin.o",
    ":crtbeginS.o",
    ":crtendS.o",
];
/// The libraries that clang adds.
const COMPILER_LIBRARIES: [&str; 4] = ["gcc", "gcc_s", "c", "m"];

/// Returns the libraries that `libraries` need, directly or indirectly, by name. The search order
/// is GNU ld's: `folders` (`-rpath-link`, then `-rpath`), `LD_LIBRARY_PATH`, the run path of the
/// library that needs them, and the directories for all libraries.
fn needed_libraries(
    libraries: Vec<PathBuf>,
    folders: &[PathBuf],
    search: &Search,
) -> BTreeMap<OsString, PathBuf> {
    let folders = [folders, &loader::environment()].concat();
    let mut found = BTreeMap::new();
    let mut todo = libraries;
    while let Some(library) = todo.pop() {
        let Ok(bytes) = Bytes::open(&library) else {
            continue;
        };
        let Ok(dynamic) = dynamic::read(bytes.as_slice()) else {
            continue;
        };
        let run_paths = RunPaths::new(&dynamic, &library, None);
        for name in dynamic.needed.into_iter().map(OsStr::from_bytes) {
            if found.contains_key(name) {
                continue;
            }
            let there = folders
                .iter()
                .chain(run_paths.folders())
                .map(|folder| folder.join(name))
                .find(|path| path.is_file());
            if let Some(path) = there.or_else(|| search.exact(name)) {
                todo.push(path.clone());
                found.insert(name.to_owned(), path);
            }
        }
    }
    found
}

/// Returns the files that `compiler` adds to a link for `triple`: start files, and the compiler's
/// and C's libraries.
fn files_of_compiler(compiler: &Compiler, triple: &str, sysroot: Option<&Path>) -> Vec<PathBuf> {
    let mut args = vec![
        format!("--target={triple}"),
        "-print-search-dirs".to_owned(),
    ];
    args.extend(sysroot.map(|sysroot| format!("--sysroot={}", sysroot.display())));
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let answer = run::stdout_of(&compiler.path, &args).unwrap_or_default();
    let Some(folders) = answer
        .lines()
        .find_map(|line| line.strip_prefix("libraries: ="))
    else {
        return Vec::new();
    };
    let folders: Vec<PathBuf> = loader::split(OsStr::new(folders)).collect();
    let search = Search::new(&folders, sysroot, Naming::Unix, "");
    let names = START_FILES.iter().chain(&COMPILER_LIBRARIES);
    opened_files(
        names.map(|name| InputName::Library(OsString::from(name))),
        &search,
    )
}

/// Returns the files that are opened for inputs with these names.
fn opened_files(names: impl Iterator<Item = InputName>, search: &Search) -> Vec<PathBuf> {
    let specs: Vec<InputSpec> = names.map(InputSpec::requested).collect();
    paths_of(inputs::files(&specs, search)).collect()
}

fn paths_of(files: OpenedFiles) -> impl Iterator<Item = PathBuf> {
    files.opened.into_iter().map(|file| file.path)
}

// Texts of a reproduction: the script that repeats the link, the original command line, and the
// versions of the tools.

/// The values that are inserted into the script.
struct ScriptValues<'a> {
    /// The tool that the command line is for.
    role: Role,
    /// The linker of the original link.
    linker: &'a Path,
    /// The output's name.
    output: &'a OsStr,
    /// The option for the host's triple, if it is known.
    host_triple: &'a [OsString],
    /// Options of offld that LLVM's wrapper does not have.
    offld_only: &'a [OsString],
}

/// `run.sh`.
fn script_text(values: &ScriptValues<'_>) -> Vec<u8> {
    let output = [OsStr::new(OUT), values.output].join(OsStr::new("/"));
    let tool_name = match values.role {
        Role::Wrapper => "clang-linker-wrapper",
        Role::Ld => "ld",
    };
    // `--emit-fatbin-only` needs no linker, but the script needs a name there.
    let linker = if values.linker.as_os_str().is_empty() {
        OsStr::new("ld")
    } else {
        values.linker.as_os_str()
    };
    let replacements: [(&[u8], Vec<u8>); 6] = [
        (b"@LINKER@", quoted(linker)),
        (b"@OUTPUT@", one_line(&output)),
        (b"@OUT@", OUT.into()),
        (b"@HOST_TRIPLE@", all_quoted(values.host_triple)),
        (b"@OFFLD_ONLY@", all_quoted(values.offld_only)),
        (b"@PERSONALITY@", tool_name.into()),
    ];
    let mut text = Vec::new();
    let mut rest: &[u8] = include_bytes!("reproduce/run.sh");
    while let Some((byte, after)) = rest.split_first() {
        match replacements.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                text.extend_from_slice(value);
                rest = &rest[name.len()..];
            }
            None => {
                text.push(*byte);
                rest = after;
            }
        }
    }
    text
}

/// `original.txt`: shell commands that repeat the original link.
fn original_text(folder: &Path, given: &[OsString]) -> Vec<u8> {
    let mut text = b"cd ".to_vec();
    text.extend(quoted(folder.as_os_str()));
    text.push(b'\n');
    text.extend(quoted(&std::env::args_os().next().unwrap_or_default()));
    for arg in given {
        text.push(b' ');
        text.extend(quoted(arg));
    }
    text.push(b'\n');
    text
}

/// `versions.txt`.
fn versions_text(compiler: Option<&Compiler>, linker: &Path) -> Vec<u8> {
    let mut text = format!("offld {}\n", env!("CARGO_PKG_VERSION")).into_bytes();
    add_tool(
        &mut text,
        "device compiler",
        compiler.map(|compiler| compiler.path.as_path()),
    );
    add_tool(
        &mut text,
        "host linker",
        Some(linker).filter(|linker| !linker.as_os_str().is_empty()),
    );
    text
}

fn add_tool(text: &mut Vec<u8>, what: &str, path: Option<&Path>) {
    let Some(path) = path else {
        return text.extend(format!("{what}: none found\n").bytes());
    };
    let answer = run::stdout_of(path, &["--version"]).unwrap_or_default();
    text.extend(format!("{what}: {}", one_line(path.as_os_str()).escape_ascii()).bytes());
    text.extend(
        format!(
            " ({})\n",
            answer.lines().next().unwrap_or("unknown version")
        )
        .bytes(),
    );
}

fn all_quoted(args: &[OsString]) -> Vec<u8> {
    args.iter()
        .map(|arg| quoted(arg))
        .collect::<Vec<_>>()
        .join(&b' ')
}

fn quoted(arg: &OsStr) -> Vec<u8> {
    quoted_if_needed(arg.as_bytes())
}

/// Returns `text` for a comment: line breaks, which would end the comment, are replaced.
fn one_line(text: &OsStr) -> Vec<u8> {
    text.as_bytes()
        .iter()
        .map(|byte| if *byte == b'\n' { b'?' } else { *byte })
        .collect()
}

// The tar. It is written atomically. The same contents give the same bytes: entries are sorted,
// without times and owners. Hard links remain hard links, because linkers and offld use an archive
// only once if it is named twice. Files are below `root/` with their absolute paths, so that names
// do not collide and directories stay together.

/// The content of an entry.
enum Content {
    File(PathBuf),
    /// The parts of a shared library that a linker reads.
    Interface(PathBuf),
    Text(Vec<u8>),
    /// An executable script.
    Script(Vec<u8>),
}

/// Writes the tar of `entries`. In a directory, the name of the tar consists of `name` and a hash
/// of its contents, so that different links have different files.
fn write_tar(
    entries: &BTreeMap<PathBuf, Content>,
    destination: &Destination,
    name: &OsStr,
) -> Result<()> {
    match destination {
        Destination::File(file) if file.exists() && !file.is_file() => {
            bail!("`{}` is not a regular file", file.display())
        }
        Destination::File(path) => {
            let context = || format!("cannot write `{}`", path.display());
            let (mut file, pending) = AtomicFile::create(path).with_context(context)?;
            fill(
                &mut file,
                entries,
                path.file_stem().unwrap_or_default().as_ref(),
            )?;
            pending.commit().with_context(context)
        }
        Destination::Directory(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create the directory `{}`", folder.display()))?;
            let context = || format!("cannot write a file in `{}`", folder.display());
            let (mut file, pending) = AtomicFile::create_in(folder).with_context(context)?;
            // The tar's directory has a name that depends on its contents, so the contents are
            // hashed first.
            let hash = fill(&mut io::sink(), entries, Path::new(""))?;
            let name = format!("{}-{hash:016x}", name.display());
            fill(&mut file, entries, name.as_ref())?;
            pending
                .commit_as(&folder.join(name + ".tar"))
                .with_context(context)
        }
    }
}

/// Writes all entries below the directory `top`, so that unpacking creates only one entry. Returns
/// the hash of the tar.
fn fill(file: &mut dyn Write, entries: &BTreeMap<PathBuf, Content>, top: &Path) -> Result<u64> {
    let hashed = Hashed {
        file: BufWriter::new(file),
        hash: Xxh3::new(),
    };
    let mut writer = Writer {
        tar: Builder::new(hashed),
        seen: HashMap::new(),
    };
    for (place, content) in entries {
        writer
            .entry(&top.join(place), content)
            .with_context(|| format!("cannot add `{}`", place.display()))?;
    }
    let mut hashed = writer.tar.into_inner()?;
    hashed.flush()?;
    Ok(hashed.hash.digest())
}

struct Writer<W: Write> {
    tar: Builder<W>,
    /// The entries of files that have been written, by device and inode.
    seen: HashMap<(u64, u64), PathBuf>,
}

impl<W: Write> Writer<W> {
    fn entry(&mut self, place: &Path, content: &Content) -> Result<()> {
        match content {
            Content::File(path) => return self.file(place, path),
            Content::Interface(path) => {
                let bytes = Bytes::open(path)?;
                let interface = interface::interface(bytes.as_slice());
                self.bytes(
                    place,
                    0o644,
                    interface.as_deref().unwrap_or(bytes.as_slice()),
                )?;
            }
            Content::Text(text) => self.bytes(place, 0o644, text)?,
            Content::Script(text) => self.bytes(place, 0o755, text)?,
        }
        Ok(())
    }

    fn file(&mut self, place: &Path, path: &Path) -> Result<()> {
        let meta = std::fs::metadata(path)?;
        if let Some(first) = self.seen.get(&(meta.dev(), meta.ino())) {
            let mut header = header(0o644, 0);
            header.set_entry_type(EntryType::Link);
            self.tar.append_link(&mut header, place, first)?;
            return Ok(());
        }
        self.seen
            .insert((meta.dev(), meta.ino()), place.to_path_buf());
        // Only the executable bit is recorded, because the rest of the mode depends on the user's
        // umask.
        let mode = if meta.mode() & 0o111 == 0 {
            0o644
        } else {
            0o755
        };
        self.bytes(place, mode, Bytes::open(path)?.as_slice())?;
        Ok(())
    }

    fn bytes(&mut self, place: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.tar
            .append_data(&mut header(mode, bytes.len() as u64), place, bytes)
    }
}

/// A header without times and owners.
fn header(mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

/// A writer that hashes its output.
struct Hashed<W> {
    file: W,
    hash: Xxh3,
}

impl<W: Write> Write for Hashed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_the_script_is_replaced() {
        let values = ScriptValues {
            role: Role::Ld,
            linker: Path::new("/a b/ld"),
            output: OsStr::new("x"),
            host_triple: &[],
            offld_only: &["--wrapper-why".into()],
        };
        let text = String::from_utf8(script_text(&values)).unwrap();
        assert!(
            text.contains("linker='/a b/ld'\n") && text.contains("set -- ld \"$@\""),
            "{text}"
        );
        assert!(text.contains("set -- --wrapper-why \"$@\""), "{text}");
        assert_eq!(
            text.matches('@').count(),
            text.matches("$@").count() + text.matches("@response.txt").count()
        );
    }

    #[test]
    fn arguments_are_quoted_byte_for_byte() {
        assert_eq!(quoted(OsStr::from_bytes(b"it's \xff")), b"'it'\\''s \xff'");
        assert_eq!(quoted(OsStr::new("")), b"''");
    }
}
