//! `offld merge`: joins the files that `split` wrote, or merges whole builds for different devices.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use rayon::prelude::*;

use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::output_directory::OutputDirectory;
use offld_system::io::outputs::Outputs;
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offld_system::terminal::wrapped;
use offld_system::threads;
use offload_files::edit::files::{Made, Tree, copy_checked, copy_while, copy_with_attributes};
use offload_files::kpack;
use offload_files::merge::parts::{Job, is_host_part, is_part, join, name_of};
use offload_files::merge::{Merged, Outcome, merge, merge_folders};
use offload_formats::error::{self, Silent};
use offload_formats::model::printable;

/// The exit status if a file could not be merged.
const FAILED: u8 = 2;

/// The options of `offld merge`.
#[derive(Debug, Args)]
#[command(
    after_help = "If one of the files is a host half, the command restores the original file of `offld split`.\n\
    After `offld split --kpack`, the command restores a file from its kpack archives, or a wheel from the wheels that `split` wrote.\n\
    Otherwise, the files must be builds of one source for different devices. The output is the first build, with\n\
    the images of all builds. The host code of all builds must be identical. Every image must contain every registered kernel.\n\
    Two images for one device must be identical.\n\
    For OpenMP, compile all builds from one source tree. For HIP, compile each source file with the same -cuid= in all builds.\n\
    In wheels and directories, files with equal names are merged. Files without device code must be identical in all builds.\n\n\
    Exit status: 0, or 2 if a file could not be read or merged.\n\n\
    Examples:\n  offld merge parts/libhip.so.host parts/libhip.so.*.part -o libhip.so\n  offld merge parts -d lib\n  \
    offld merge -o libsum.so gfx90a/libsum.so gfx942/libsum.so gfx1100/libsum.so\n  \
    offld merge -o all gfx90a/install gfx942/install\n  offld merge -o some-1.0-py3-none-linux_x86_64.whl gfx90a/some-*.whl gfx942/some-*.whl"
)]
#[command(group = clap::ArgGroup::new("place").required(true).multiple(false).args(["output", "dir"]))]
pub(super) struct Options {
    /// Join a host half and all parts (the files, or a directory written by `offld split`), or
    /// merge builds for different devices (files, wheels or directories)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the merged file or directory to OUT (- is stdout)
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Write the merged files below DIR
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::of(shell);
    let mut text = String::new();
    let done = match (&options.files[..], &options.dir) {
        ([path], Some(dir)) if path.is_dir() => join_folder(path, dir, &session, &mut text),
        (files, _) => parts(files, &options, &session, &mut text),
    };
    shell::print(&wrapped(&text, shell.stdout_style().width))?;
    done.or_else(|error| {
        session.signals.check()?;
        if error.is::<Silent>() {
            return Err(error);
        }
        shell.error(&error::chain(&error));
        Err(Silent { status: FAILED }.into())
    })
}

fn open(path: &Path) -> Result<(PathBuf, FileSlice)> {
    Ok((
        path.to_owned(),
        FileSlice::try_open(path).with_context(|| path.display().to_string())?,
    ))
}

/// Joins one file from a host half and its parts, in any order, or merges whole builds.
fn parts(files: &[PathBuf], options: &Options, session: &Session, text: &mut String) -> Result<()> {
    if let Some(folder) = files.iter().find(|path| path.is_dir()) {
        if let Some(file) = files.iter().find(|path| !path.is_dir()) {
            bail!(
                "cannot merge the directory {} with the file {}: pass only directories or only files",
                folder.display(),
                file.display()
            );
        }
        if files.len() == 1 {
            bail!(
                "cannot merge one directory, {}: pass -d DIR to join split parts, or pass several builds",
                folder.display()
            );
        }
        return build_folders(files, options, session, text);
    }
    let mut opened = files
        .iter()
        .map(|path| open(path))
        .collect::<Result<Vec<_>>>()?;
    if let [(path, piece)] = &opened[..]
        && let Some((recipe, archives)) = kpack::find(path, piece)?
    {
        let job = kpack::Job {
            recipe: open(&recipe)?,
            host: opened.remove(0),
            archives: archives
                .iter()
                .map(|path| open(path))
                .collect::<Result<_>>()?,
        };
        let name = job.host.0.file_name().unwrap_or_default();
        let dir = || options.dir.clone().unwrap_or_default();
        let place = options.output.clone().unwrap_or_else(|| dir().join(name));
        return join_packed(&job, &place, Outputs::new(session), session, text);
    }
    let Some(host) = opened.iter().position(|(_, piece)| is_host_part(piece)) else {
        return builds(&opened, options, session, text);
    };
    let job = Job {
        host: opened.remove(host),
        parts: opened,
    };
    let place = match (&options.output, &options.dir) {
        (Some(output), _) => output.clone(),
        (None, dir) => dir.clone().unwrap_or_default().join(name_of(&job.host)?),
    };
    join_parts(&job, &place, Outputs::new(session), session, text)
}

fn builds(
    files: &[(PathBuf, FileSlice)],
    options: &Options,
    session: &Session,
    text: &mut String,
) -> Result<()> {
    let [(first, _), _, ..] = files else {
        let file = files
            .first()
            .map(|(path, _)| path.display().to_string())
            .unwrap_or_default();
        bail!(
            "{file} is not a host half of `offld split`, and has no recipe of `offld split --kpack` in .kpack: pass a host half with its parts, or several builds"
        );
    };
    if let Some((part, _)) = files.iter().find(|(_, piece)| is_part(piece)) {
        bail!(
            "{} is a part of `offld split`: pass its host half (NAME.host) as well",
            part.display()
        );
    }
    let place = match (&options.output, &options.dir) {
        (Some(output), _) => output.clone(),
        (None, dir) => dir.clone().unwrap_or_default().join(
            first
                .file_name()
                .with_context(|| first.display().to_string())?,
        ),
    };
    let mut spool = Spool::new(session);
    let merged = match merge(files, &mut spool, session)? {
        Outcome::Merged(merged) => merged,
        Outcome::Refused(reasons) => return Err(print_reasons(&reasons, session)),
    };
    if let Some(dir) = &options.dir {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    copy_checked(
        first,
        &merged.bytes,
        &place,
        Outputs::new(session),
        &|piece| merged.check(&place, piece, session),
    )?;
    if place != Path::new("-") {
        text.push_str(&line(&place, files.len(), &merged));
    }
    Ok(())
}

/// Formats the summary of builds that were merged into one file.
fn line(place: &Path, builds: usize, merged: &Merged) -> String {
    let devices: Vec<_> = merged
        .devices
        .iter()
        .map(|device| printable(device))
        .collect();
    let (name, count, devices) = (
        place.display().to_string(),
        merged.count,
        devices.join(", "),
    );
    format!(
        "{}: {builds} builds merged, {count} images: {devices}\n",
        printable(&name)
    )
}

/// Prints the reasons why builds cannot be merged.
fn print_reasons(reasons: &[String], session: &Session) -> anyhow::Error {
    reasons
        .iter()
        .for_each(|reason| session.shell.error(reason));
    Silent { status: FAILED }.into()
}

/// Merges directories that contain whole builds.
fn build_folders(
    folders: &[PathBuf],
    options: &Options,
    session: &Session,
    text: &mut String,
) -> Result<()> {
    let Some(to) = options
        .output
        .as_ref()
        .or(options.dir.as_ref())
        .filter(|to| *to != Path::new("-"))
    else {
        bail!("cannot write merged directories to stdout: pass -o DIR");
    };
    let folder = match merge_folders(folders, session)? {
        Ok(folder) => folder,
        Err(reasons) => return Err(print_reasons(&reasons, session)),
    };
    let all = folder.write(to, session)?;
    let merged: Vec<_> = all
        .iter()
        .filter_map(|file| Some((&file.place, file.merged.as_ref()?)))
        .collect();
    text.extend(
        merged
            .iter()
            .map(|(place, merged)| line(place, folders.len(), merged)),
    );
    let name = to.display().to_string();
    let (name, builds, some, count) = (printable(&name), folders.len(), merged.len(), all.len());
    text.push_str(&format!(
        "{name}: {builds} builds merged, {some} of {count} files have images of several builds\n"
    ));
    Ok(())
}

fn join_parts(
    job: &Job,
    place: &Path,
    outputs: Outputs,
    session: &Session,
    text: &mut String,
) -> Result<()> {
    let mut spool = Spool::new(session);
    let joined = join(job, &mut spool)?;
    copy_while(&job.host.0, &joined.bytes, place, outputs, &|| {
        joined.check()
    })?;
    if place != Path::new("-") {
        let name = place.display().to_string();
        let anew = match joined.recompressed {
            0 => String::new(),
            1 => "; 1 compressed stream differs from the original, because `offld split` recompressed the images".to_owned(),
            count => {
                format!("; {count} compressed streams differ from the original, because `offld split` recompressed the images")
            }
        };
        text.push_str(&format!(
            "{}: {} parts merged{anew}\n",
            printable(&name),
            job.parts.len() + 1
        ));
    }
    Ok(())
}

/// Restores one file whose HIP code is in kpack archives.
fn join_packed(
    job: &kpack::Job,
    place: &Path,
    outputs: Outputs,
    session: &Session,
    text: &mut String,
) -> Result<()> {
    let mut spool = Spool::new(session);
    let joined = kpack::merge(job, &mut spool)?;
    copy_while(&job.host.0, &joined.bytes, place, outputs, &|| {
        joined.check()
    })?;
    if place != Path::new("-") {
        let (name, count) = (place.display().to_string(), job.archives.len());
        let what = if job.has_wheels() {
            "device wheels"
        } else {
            "kpack archives"
        };
        text.push_str(&format!(
            "{}: merged with {count} {what}\n",
            printable(&name)
        ));
    }
    Ok(())
}

/// The task for one file of a directory.
enum Work {
    /// Copy a file.
    Copy(PathBuf, PathBuf),
    /// Join a host half and its parts.
    Merge {
        host: PathBuf,
        parts: Vec<PathBuf>,
        place: PathBuf,
    },
    /// Restore a file whose HIP code is in kpack archives.
    Unpack {
        recipe: PathBuf,
        host: PathBuf,
        archives: Vec<PathBuf>,
        place: PathBuf,
    },
}

/// Joins all parts in a directory, and copies all other files.
fn join_folder(from: &Path, to: &Path, session: &Session, text: &mut String) -> Result<()> {
    let (tree, all) = plan(from, to)?;
    let directory = OutputDirectory::new(to, session)?;
    tree.make(&directory)?;
    let each = |work: &Work| -> Result<String> {
        session.signals.check()?;
        let mut text = String::new();
        let outputs = directory.outputs(session);
        match work {
            Work::Copy(path, place) => {
                copy_with_attributes(path, &open(path)?.1.into(), place, outputs)?
            }
            Work::Merge { host, parts, place } => {
                let job = Job {
                    host: open(host)?,
                    parts: parts.iter().map(|path| open(path)).collect::<Result<_>>()?,
                };
                join_parts(&job, place, outputs, session, &mut text)?;
            }
            Work::Unpack {
                recipe,
                host,
                archives,
                place,
            } => {
                let job = kpack::Job {
                    recipe: open(recipe)?,
                    host: open(host)?,
                    archives: archives
                        .iter()
                        .map(|path| open(path))
                        .collect::<Result<_>>()?,
                };
                join_packed(&job, place, outputs, session, &mut text)?;
            }
        }
        Ok(text)
    };
    let done: Vec<Result<String>> = threads::in_parallel(|| all.par_iter().map(each).collect());
    // In a new directory, no file appears if one cannot be written.
    if !directory.is_new() {
        text.extend(done.iter().flatten().map(String::as_str));
        return done.into_iter().find_map(Result::err).map_or(Ok(()), Err);
    }
    let done = done.into_iter().collect::<Result<Vec<_>>>()?;
    directory.commit()?;
    text.extend(done);
    Ok(())
}

/// Lists the tasks for everything below a directory.
fn plan(from: &Path, to: &Path) -> Result<(Tree, Vec<Work>)> {
    let mut tree = Tree::list(from, to)?;
    let mut all = unpacked(from, to, &mut tree)?;
    let (files, mut hosts) = (std::mem::take(&mut tree.files), Vec::new());
    for (path, _) in files
        .iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "host"))
    {
        if is_host_part(&open(path)?.1) {
            hosts.push(path.clone());
        }
    }
    // If `a.host` and `a.b.host` exist, the part `a.b.gfx90a.part` belongs to the one with the
    // longer name.
    let host_of = |path: &Path| -> Option<&PathBuf> {
        let stem = path.as_os_str().as_bytes().strip_suffix(b".part")?;
        let owns_part = |host: &&PathBuf| {
            let name = host.as_os_str().as_bytes().strip_suffix(b"host");
            host.parent() == path.parent() && name.is_some_and(|name| stem.starts_with(name))
        };
        hosts
            .iter()
            .filter(owns_part)
            .max_by_key(|host| host.as_os_str().len())
    };
    let mut parts: HashMap<PathBuf, Vec<PathBuf>> = HashMap::new();
    for (path, place) in &files {
        match host_of(path) {
            Some(host) if is_part(&open(path)?.1) => {
                parts.entry(host.clone()).or_default().push(path.clone())
            }
            _ if !hosts.contains(path) => all.push(Work::Copy(path.clone(), place.clone())),
            _ => {}
        }
    }
    for (host, place) in files.into_iter().filter(|(path, _)| hosts.contains(path)) {
        let parts = parts.remove(&host).unwrap_or_default();
        all.push(Work::Merge {
            host,
            parts,
            place: place.with_extension(""),
        });
    }
    Ok((tree, all))
}

/// Takes the recipes, the archives and the programs of `offld split --kpack` out of `tree`, with the
/// directories that have only recipes and archives, and lists their tasks.
fn unpacked(from: &Path, to: &Path, tree: &mut Tree) -> Result<Vec<Work>> {
    let files = &mut tree.files;
    let folder = from.join(kpack::DIRECTORY);
    let mut recipes = Vec::new();
    for (path, place) in files.iter() {
        let is_recipe = path
            .as_os_str()
            .as_bytes()
            .ends_with(kpack::RECIPE.as_bytes());
        if let Ok(within) = path.strip_prefix(&folder)
            && let Some(group) = within.iter().next().and_then(|group| group.to_str())
            && is_recipe
        {
            recipes.push((path.clone(), place.clone(), group.to_owned()));
        }
    }
    let mut taken: HashSet<PathBuf> = HashSet::new();
    let mut all = Vec::new();
    for (recipe, _, group) in &recipes {
        let binary = kpack::binary_of(&open(recipe)?)?;
        let host = from.join(&binary);
        let is_archive =
            |path: &Path| path.parent() == Some(&*folder) && kpack::is_of_group(path, group);
        let is_own = |path: &PathBuf| match host.extension() {
            Some(extension) if extension == "whl" => kpack::is_device_wheel(path, &host),
            _ => is_archive(path),
        };
        let archives = files.iter().map(|(path, _)| path.clone()).filter(is_own);
        let archives: Vec<PathBuf> = archives.collect();
        taken.extend([recipe.clone(), host.clone()]);
        taken.extend(archives.iter().cloned());
        all.push(Work::Unpack {
            recipe: recipe.clone(),
            host,
            archives,
            place: to.join(binary),
        });
    }
    files.retain(|(path, _)| !taken.contains(path));
    let emptied: HashSet<&Path> = recipes
        .iter()
        .flat_map(|(_, place, _)| {
            let above = place.ancestors().skip(1);
            above.take_while(|folder| *folder != to)
        })
        .collect();
    let (made, files) = (&tree.made, &tree.files);
    let others = made
        .iter()
        .filter(|(place, made)| matches!(made, Made::Link(_)) || !emptied.contains(place.as_path()))
        .map(|(place, _)| place);
    let needed: Vec<PathBuf> = others
        .chain(files.iter().map(|(_, place)| place))
        .cloned()
        .collect();
    let is_needed = |folder: &Path| needed.iter().any(|place| place.starts_with(folder));
    tree.made.retain(|(place, _)| is_needed(place));
    Ok(all)
}
