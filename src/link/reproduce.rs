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

mod archive;
mod line;
mod needed;
mod texts;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::args::response;
use crate::args::settings::{Destination, InputName, InputSpec, LinkSettings, OFFLD_REPRODUCE};
use crate::args::{ArgKind, ArgumentList, Role};
use crate::formats::bitcode;
use crate::formats::magic::{Magic, magic};
use crate::io::bytes::Bytes;
use crate::io::loader;
use crate::link::host;
use crate::link::inputs::search::{Naming, Search};
use crate::link::inputs::{self, Inputs, OpenedFiles};
use crate::link::scan::{self, DeviceImage};
use crate::sys::session::Session;
use crate::sys::toolchain::{self, Compiler};
use crate::target::Target;
use archive::{Content, Root};
use line::ReproducedLine;

/// The directory for the libraries that only libraries need.
const NEEDED: &str = "needed";

/// The link to reproduce.
pub(crate) struct LinkToReproduce<'a> {
    /// The command line.
    pub ledger: &'a ArgumentList,
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
    let written = archive::write(&entries, destination, output(link.settings));
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
    line.append(link.ledger);
    complete(&mut line, link, tools, &opened, &root)?;
    let files = files(link, tools, opened, &line)?;

    let shared = files
        .iter()
        .filter(|path| is_shared(path))
        .cloned()
        .collect();
    let libraries = needed::libraries(shared, &run_time_folders(link), link.search);
    let triple = tools
        .host_triple
        .as_ref()
        .map(|triple| OsString::from(format!("--host-triple={triple}")));
    // The quoting depends on the host's triple, which the script passes on the command line.
    let style = response::style_of(link.settings.role, triple.as_slice());
    let facts = texts::ScriptValues {
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
        ("run.sh", Content::Script(texts::script(&facts))),
        (
            "response.txt",
            Content::Text(response::spill(&line.args, style)),
        ),
        (
            "original.txt",
            Content::Text(texts::original(root.current(), link.ledger.given())),
        ),
        (
            "versions.txt",
            Content::Text(texts::versions(tools.compiler.as_ref(), link.linker)),
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
        .ledger
        .response_files()
        .iter()
        .chain(&line.files)
        .cloned()
        .collect();
    files.extend(opened.opened.into_iter().map(|file| file.path));
    files.extend(needed::opened(
        line.scripts.iter().cloned().map(InputName::File),
        link.search,
    ));
    if !tools.runtime.is_empty() {
        // The runtime's arguments add a search directory, so the link finds more libraries.
        let whole = ArgumentList::parse(Role::Ld, [link.ledger.tokens(), &tools.runtime].concat())?;
        let settings = LinkSettings::new(&whole, &Session::env)?;
        let multiarch = host::multiarch(&settings);
        let search = Search::new(
            &settings.host.library_dirs,
            settings.host.sysroot.as_deref(),
            Naming::Unix,
            &multiarch,
        );
        files.extend(
            inputs::files(&settings.inputs, &search)
                .opened
                .into_iter()
                .map(|file| file.path),
        );
    }
    if let Some(compiler) = &tools.compiler {
        files.extend(tools.cpus.iter().flat_map(|cpu| {
            needed::of_compiler(compiler, cpu, link.settings.host.sysroot.as_deref())
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
        line.args
            .push(format!("--sysroot={}", archive::ROOT).into());
    }
    Ok(())
}

/// Returns the directories that GNU ld searches first for the libraries that libraries need.
fn run_time_folders(link: &LinkToReproduce<'_>) -> Vec<PathBuf> {
    let is_link_path =
        |kind: ArgKind| matches!(kind, ArgKind::Known(row) if row.name == "rpath-link");
    let link_paths = link
        .ledger
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
