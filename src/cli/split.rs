//! `offld split FILE… -d DIR`: splits files into a host half and one part for each device.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use rayon::prelude::*;

use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::output_directory::OutputDirectory;
use offld_system::io::rope::Rope;
use offld_system::progress::{Meter, Reached};
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offld_system::table::{self, Style};
use offld_system::terminal::wrapped;
use offld_system::threads;
use offload_files::edit::files::{Tree, copy_with_attributes, keep_attributes};
use offload_files::edit::split_manifest::Device;
use offload_files::kpack::{self, Source};
use offload_files::split::{Split, split};
use offload_formats::error::{self, Silent};
use offload_formats::model::printable;

/// The exit status if a file could not be split.
const FAILED: u8 = 2;

/// The options of `offld split`.
#[derive(Debug, Args)]
#[command(
    after_help = "Without --kpack, the command writes NAME.host and NAME.DEVICE.part for each file NAME with device code. `offld merge` restores the file byte for byte, unless\n\
    a compressed stream cannot be reproduced. The parts can be larger than the file, because images from compressed streams\n\
    are uncompressed in the parts. Files without device code are copied.\n\n\
    Exit status: 0, or 2 if a file could not be read or split.\n\n\
    Examples:\n  offld split libhip.so -d parts\n  offld merge parts/libhip.so.host parts/libhip.so.*.part -o libhip.so\n  \
    offld split build/lib -d parts && offld merge parts -d build/lib"
)]
pub(super) struct Options {
    /// Split files, or all files in directories: objects, libraries, programs, archives, wheels,
    /// bundles, other containers
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the parts below DIR
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
    /// Leave compressed streams in the host half if recompression cannot reproduce the original
    /// bytes
    #[arg(long)]
    keep_original: bool,
    /// Move HIP code into kpack archives below DIR/.kpack, where ROCm's loader finds it. For a wheel,
    /// write the archives into one more wheel for each architecture
    #[arg(long, conflicts_with = "keep_original")]
    kpack: bool,
    /// Name the archives NAME_ARCH.kpack, except in wheels (default: the name of the first file or
    /// directory, without extension)
    #[arg(long, value_name = "NAME", requires = "kpack")]
    kpack_name: Option<String>,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::of(shell);
    run_in(&options, shell, &session).or_else(|error| {
        session.signals.check()?;
        if error.is::<Silent>() {
            return Err(error);
        }
        shell.error(&error::chain(&error));
        Err(Silent { status: FAILED }.into())
    })
}

fn run_in(options: &Options, shell: &Arc<Shell>, session: &Session) -> Result<()> {
    let mut tree = Tree::default();
    for path in &options.files {
        if path.is_dir() {
            tree.extend(Tree::list(path, &options.dir)?);
        } else {
            let name = path
                .file_name()
                .with_context(|| format!("{}: path without a file name", path.display()))?;
            tree.files.push((path.clone(), options.dir.join(name)));
        }
    }
    if options.kpack {
        return kpack(&tree, options, session);
    }
    let directory = OutputDirectory::new(&options.dir, session)?;
    tree.make(&directory)?;
    let files = &tree.files;
    // Errors of one file are reported, and the other files are split.
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    let meter = Meter::new(
        session.shell.is_terminal(),
        files.iter().map(|(path, _)| size(path)).sum(),
    );
    let each = |(path, place): &(PathBuf, PathBuf)| {
        let reached = meter.file();
        reached.now_at(&path.display().to_string());
        let summary = one(path, place, &directory, options, session, &reached);
        reached.up_to(size(path));
        summary
    };
    let done: Vec<Result<String>> = threads::in_parallel(|| files.par_iter().map(each).collect());
    drop(meter);
    if directory.commit()? {
        let text: String = done.iter().flatten().map(String::as_str).collect();
        shell::print(&wrapped(&text, shell.stdout_style().width))?;
    }
    let errors: Vec<String> = done
        .iter()
        .filter_map(|one| one.as_ref().err().map(error::chain))
        .collect();
    errors.iter().for_each(|error| shell.error(error));
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Silent { status: FAILED }.into())
    }
}

/// Moves the HIP code of files into archives. Writes all files or none.
fn kpack(tree: &Tree, options: &Options, session: &Session) -> Result<()> {
    let files = &tree.files;
    let binary = |place: &Path| {
        let within = place.strip_prefix(&options.dir).unwrap_or(place);
        let name = within.to_str().map(str::to_owned);
        name.with_context(|| format!("{}: kpack archives need names in UTF-8", within.display()))
    };
    let sources = files.iter().map(|(path, place)| {
        Ok(Source {
            path: path.clone(),
            binary: binary(place)?,
        })
    });
    let sources = sources.collect::<Result<Vec<_>>>()?;
    let named = options
        .files
        .first()
        .and_then(|path| Some(path.canonicalize().ok()?.file_stem()?.to_str()?.to_owned()));
    let group = options
        .kpack_name
        .clone()
        .or(named)
        .context("no name for the archives: pass --kpack-name")?;
    let mut spool = Spool::new(session);
    let packed = kpack::split(&sources, &group, session, &mut spool)?;
    let archives = options.dir.join(kpack::DIRECTORY);
    let is_own =
        |place: &Path| place.parent() == Some(&*archives) && kpack::is_of_group(place, &group);
    if let Some((path, _)) = files.iter().find(|(_, place)| is_own(place)) {
        bail!(
            "{}: the name of a new archive: pass another --kpack-name",
            path.display()
        );
    }
    for host in &packed.hosts {
        let Some((path, place)) = files.get(host.source) else {
            continue;
        };
        let is_device = |(_, other): &&(PathBuf, PathBuf)| kpack::is_device_wheel(other, place);
        if let Some((other, _)) = files.iter().find(is_device) {
            bail!(
                "{}: has the name of a wheel with the HIP code of {}",
                other.display(),
                path.display()
            );
        }
    }
    let directory = OutputDirectory::new(&options.dir, session)?;
    tree.make(&directory)?;
    let mut outputs = directory.outputs(session);
    let mut write = |place: &Path, bytes: &Rope, like: Option<&Path>| -> Result<()> {
        if let Some(folder) = place.parent() {
            directory.create_dir_all(folder)?;
        }
        let mut output = outputs.create(place)?;
        bytes
            .copy_to(&mut output)
            .with_context(|| place.display().to_string())?;
        like.map_or(Ok(()), |like| keep_attributes(like, &output))
    };
    // Outputs appear in the order in which they were written: in a directory that exists, a program
    // appears after its archives.
    let (mut text, mut written) = (String::new(), String::new());
    for (arch, bytes) in &packed.archives {
        let place = archives.join(kpack::archive_name(&group, arch));
        write(&place, bytes, None)?;
        written.push_str(&format!(
            "{}: {}\n",
            printable(&place.display().to_string()),
            size(bytes.size())
        ));
    }
    let mut unchanged: Vec<_> = files.iter().map(Some).collect();
    for host in &packed.hosts {
        let (Some(Some((path, place))), Some(source)) = (
            unchanged.get_mut(host.source).map(Option::take),
            sources.get(host.source),
        ) else {
            continue;
        };
        let recipe = archives
            .join(&group)
            .join(format!("{}{}", source.binary, kpack::RECIPE));
        write(&recipe, &host.recipe, None)?;
        for (name, bytes) in &host.device_wheels {
            let place = place.with_file_name(name);
            write(&place, bytes, Some(path))?;
            written.push_str(&format!(
                "{}: {}\n",
                printable(&place.display().to_string()),
                size(bytes.size())
            ));
        }
        write(place, &host.bytes, Some(path))?;
        text.push_str(&format!(
            "{}: {}, {}\n",
            printable(&path.display().to_string()),
            size(host.bytes.size()),
            counted(host.images, "code object")
        ));
    }
    for (path, place) in unchanged.into_iter().flatten() {
        let piece = FileSlice::try_open(path).with_context(|| path.display().to_string())?;
        write(place, &piece.into(), Some(path))?;
    }
    outputs.commit()?;
    directory.commit()?;
    text.push_str(&written);
    if packed.hosts.is_empty() {
        text.push_str("no HIP code that a program registers: all files are copies\n");
    }
    shell::print(&wrapped(&text, session.shell.stdout_style().width))
}

/// Splits one file and returns its summary. Writes all of its parts or none.
fn one(
    path: &Path,
    place: &Path,
    directory: &OutputDirectory,
    options: &Options,
    session: &Session,
    reached: &Reached,
) -> Result<String> {
    session.signals.check()?;
    let piece = FileSlice::try_open(path).with_context(|| path.display().to_string())?;
    if let Some(folder) = place.parent() {
        directory.create_dir_all(folder)?;
    }
    let mut outputs = directory.outputs(session);
    let Some(Split {
        host,
        parts,
        repacked,
        kept,
    }) = split(path, &piece, options.keep_original, session, reached)?
    else {
        copy_with_attributes(path, &piece.into(), place, outputs)?;
        return Ok(String::new());
    };
    let mut sizes = vec![format!("host {}", size(host.size()))];
    let with_suffix = |suffix: &str| {
        let mut name = place.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut names = vec![(with_suffix(".host"), host)];
    for (device, rope) in parts {
        sizes.push(format!("{} {}", device.name(), size(rope.size())));
        let mut name = with_suffix(&format!(".{}.part", file_name(&device, false)));
        if names.iter().any(|(other, _)| *other == name) {
            name = with_suffix(&format!(".{}.part", file_name(&device, true)));
        }
        names.push((name, rope));
    }
    for (name, rope) in names {
        let mut output = outputs.create(&name)?;
        rope.copy_to(&mut output)
            .with_context(|| name.display().to_string())?;
        keep_attributes(path, &output)?;
    }
    outputs.commit()?;
    let mut text = format!(
        "{}: {}\n",
        printable(&path.display().to_string()),
        sizes.join(", ")
    );
    if repacked > 0 {
        text.push_str(&format!(
            "  {} cannot be reproduced byte for byte: the merged file has the same contents, recompressed (--keep-original preserves the bytes)\n",
            counted(repacked, "compressed stream")
        ));
    }
    if kept > 0 {
        text.push_str(&format!(
            "  {} cannot be reproduced: left in the host half\n",
            counted(kept, "compressed stream")
        ));
    }
    Ok(text)
}

/// `count` and the `noun` in its number.
fn counted(count: usize, noun: &str) -> String {
    let end = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{end}")
}

/// Returns a device as a part of a file name.
fn file_name(device: &Device, with_triple: bool) -> String {
    let name = if with_triple {
        format!("{}-{}", device.triple, device.target)
    } else {
        device.name().to_owned()
    };
    name.chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "-+._".contains(letter) {
                letter
            } else {
                '_'
            }
        })
        .collect()
}

fn size(bytes: u64) -> String {
    table::size(bytes, Style::default())
}
