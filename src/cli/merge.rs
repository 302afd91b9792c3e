//! `offld merge`: files are put together, of what `split` has made of them or of whole builds for different devices.

use std::collections::HashMap;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::Args;
use rayon::prelude::*;

use super::inspect::with_status;
use crate::edit::files::{copy_checked, copy_while, copy_with_attributes, tree};
use crate::error::{self, Silent};
use crate::io::piece::{Piece, Spool};
use crate::model::printable;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::sys::threads;
use crate::tools::merge::builds::{Merged, Outcome, merge};
use crate::tools::merge::folders;
use crate::tools::merge::parts::{Job, is_host_part, is_part, join, name_of};

/// The exit status where a file could not be put together.
const FAILED: u8 = 2;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "With a host part among the files, they are put together to the file that `offld split` has taken apart, byte for byte.\n\
    Without one, they are builds of one source, each compiled for other devices: the first one gets the images of all. Their host\n\
    halves must be the same, every registered kernel must be in every image, and no device may have two images that differ.\n\
    Build all from one source tree (OpenMP), with a -cuid= of your own (HIP).\n\
    Of wheels and folders, every file is merged with the ones of its name; what has no device code must be the same.\n\n\
    Exit status: 0, or 2 where a file could not be read or put together.\n\n\
    Examples:\n  offld merge parts/libhip.so.host parts/libhip.so.*.part -o libhip.so\n  offld merge parts -d lib\n  \
    offld merge -o libsum.so gfx90a/libsum.so gfx942/libsum.so gfx1100/libsum.so\n  \
    offld merge -o all gfx90a/install gfx942/install\n  offld merge -o some-1.0-py3-none-linux_x86_64.whl gfx90a/some-*.whl gfx942/some-*.whl";

/// The options of `offld merge`.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true).multiple(false).args(["output", "dir"]))]
pub(super) struct Options {
    /// A host part and the parts of all its devices, as `offld split` makes them; or a folder of such; or builds for different
    /// devices: files, wheels or folders
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the file here, or the folder of builds that are folders; - is stdout
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Write the files below this folder
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Runs `offld merge`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let mut text = String::new();
    let done = match (&options.files[..], &options.dir) {
        ([path], Some(dir)) if path.is_dir() => folder(path, dir, &session, &mut text),
        (files, _) => parts(files, options, &session, &mut text),
    };
    shell::print(&text).map_err(with_status)?;
    done.or_else(|error| {
        session.signals.check()?;
        if error.is::<Silent>() {
            return Err(error);
        }
        shell.error(&error::chain(&error));
        Err(Silent { status: FAILED }.into())
    })
}

fn open(path: &Path) -> Result<(PathBuf, Piece)> {
    Ok((path.to_owned(), Piece::try_open(path).with_context(|| path.display().to_string())?))
}

/// Puts one file together of a host part and its parts, in any order.
fn parts(files: &[PathBuf], options: &Options, session: &Session, text: &mut String) -> Result<()> {
    if let Some(folder) = files.iter().find(|path| path.is_dir()) {
        if let Some(file) = files.iter().find(|path| !path.is_dir()) {
            bail!("{} is a folder, and {} is none: folders are merged with folders", folder.display(), file.display());
        }
        if files.len() == 1 {
            bail!("{}: a folder with parts is merged to another one (-d), and of builds there must be several", folder.display());
        }
        return build_folders(files, options, session, text);
    }
    let mut opened = files.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let Some(host) = opened.iter().position(|(_, piece)| is_host_part(piece)) else {
        return builds(&opened, options, session, text);
    };
    let job = Job { host: opened.remove(host), parts: opened };
    let place = match (&options.output, &options.dir) {
        (Some(output), _) => output.clone(),
        (None, dir) => dir.clone().unwrap_or_default().join(name_of(&job.host)?),
    };
    one(&job, &place, session, text)
}

/// Merges whole builds.
fn builds(files: &[(PathBuf, Piece)], options: &Options, session: &Session, text: &mut String) -> Result<()> {
    let [(first, _), _, ..] = files else {
        let file = files.first().map(|(path, _)| path.display().to_string()).unwrap_or_default();
        bail!("{file}: is no host part that `offld split` has made, and one build cannot be merged: name several");
    };
    if let Some((part, _)) = files.iter().find(|(_, piece)| is_part(piece)) {
        bail!("{}: is a part that `offld split` has made, and none of the files is a host part", part.display());
    }
    let place = match (&options.output, &options.dir) {
        (Some(output), _) => output.clone(),
        (None, dir) => dir.clone().unwrap_or_default().join(first.file_name().with_context(|| first.display().to_string())?),
    };
    let mut spool = Spool::new(session);
    let merged = match merge(files, &mut spool, session)? {
        Outcome::Merged(merged) => merged,
        Outcome::Refused(reasons) => return Err(refused(&reasons, session)),
    };
    if let Some(dir) = &options.dir {
        fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    copy_checked(first, &merged.bytes, &place, session, &|piece| merged.check(&place, piece, session))?;
    if place != Path::new("-") {
        text.push_str(&line(&place, files.len(), &merged));
    }
    Ok(())
}

/// What became of builds that are one file now.
fn line(place: &Path, builds: usize, merged: &Merged) -> String {
    let devices: Vec<_> = merged.devices.iter().map(|device| printable(device)).collect();
    let (name, count, devices) = (place.display().to_string(), merged.count, devices.join(", "));
    format!("{}: {builds} builds merged, {count} images: {devices}\n", printable(&name))
}

/// Says why builds cannot be merged.
fn refused(reasons: &[String], session: &Session) -> anyhow::Error {
    reasons.iter().for_each(|reason| session.shell.error(reason));
    Silent { status: FAILED }.into()
}

/// Merges folders with whole builds.
fn build_folders(folders: &[PathBuf], options: &Options, session: &Session, text: &mut String) -> Result<()> {
    let Some(to) = options.output.as_ref().or(options.dir.as_ref()).filter(|to| *to != Path::new("-")) else {
        bail!("folders are merged to a folder, and not to stdout");
    };
    let folder = match folders::merge(folders, session)? {
        Ok(folder) => folder,
        Err(reasons) => return Err(refused(&reasons, session)),
    };
    let all = folder.write(to, session)?;
    let merged: Vec<_> = all.iter().filter_map(|file| Some((&file.place, file.merged.as_ref()?))).collect();
    text.extend(merged.iter().map(|(place, merged)| line(place, folders.len(), merged)));
    let name = to.display().to_string();
    let (name, builds, some, count) = (printable(&name), folders.len(), merged.len(), all.len());
    text.push_str(&format!("{name}: {builds} builds merged, {some} of {count} files have images of several\n"));
    Ok(())
}

fn one(job: &Job, place: &Path, session: &Session, text: &mut String) -> Result<()> {
    let mut spool = Spool::new(session);
    let joined = join(job, &mut spool)?;
    copy_while(&job.host.0, &joined.bytes, place, session, &|| joined.check())?;
    if place != Path::new("-") {
        text.push_str(&format!("{}: {} parts merged\n", printable(&place.display().to_string()), job.parts.len() + 1));
    }
    Ok(())
}

/// What becomes of a file of a folder.
enum Work {
    /// It is copied.
    Copy(PathBuf, PathBuf),
    /// A host part and its parts are put together.
    Merge { host: PathBuf, parts: Vec<PathBuf>, place: PathBuf },
}

/// Puts together all that is in a folder, and copies what is no part.
fn folder(from: &Path, to: &Path, session: &Session, text: &mut String) -> Result<()> {
    let all = list(from, to)?;
    let each = |work: &Work| -> Result<String> {
        session.signals.check()?;
        let mut text = String::new();
        match work {
            Work::Copy(path, place) => copy_with_attributes(path, &open(path)?.1.into(), place, session)?,
            Work::Merge { host, parts, place } => {
                let job = Job { host: open(host)?, parts: parts.iter().map(|path| open(path)).collect::<Result<_>>()? };
                one(&job, place, session, &mut text)?;
            }
        }
        Ok(text)
    };
    let done: Vec<Result<String>> = threads::in_parallel(|| all.par_iter().map(each).collect());
    text.extend(done.iter().flatten().map(String::as_str));
    done.into_iter().find_map(Result::err).map_or(Ok(()), Err)
}

/// Lists what becomes of everything below a folder; makes the folders and links of its place.
fn list(from: &Path, to: &Path) -> Result<Vec<Work>> {
    let (mut files, mut hosts) = (Vec::new(), Vec::new());
    tree(from, to, true, &mut files)?;
    for (path, _) in files.iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "host")) {
        if is_host_part(&open(path)?.1) {
            hosts.push(path.clone());
        }
    }
    // Of `a.host` and `a.b.host`, the part `a.b.gfx90a.part` is of the one with the longer name.
    let host_of = |path: &Path| -> Option<&PathBuf> {
        let stem = path.as_os_str().as_bytes().strip_suffix(b".part")?;
        let is_its = |host: &&PathBuf| {
            let name = host.as_os_str().as_bytes().strip_suffix(b"host");
            host.parent() == path.parent() && name.is_some_and(|name| stem.starts_with(name))
        };
        hosts.iter().filter(is_its).max_by_key(|host| host.as_os_str().len())
    };
    let mut all = Vec::new();
    let mut parts: HashMap<PathBuf, Vec<PathBuf>> = HashMap::new();
    for (path, place) in &files {
        match host_of(path) {
            Some(host) if is_part(&open(path)?.1) => parts.entry(host.clone()).or_default().push(path.clone()),
            _ if !hosts.contains(path) => all.push(Work::Copy(path.clone(), place.clone())),
            _ => {}
        }
    }
    for (host, place) in files.into_iter().filter(|(path, _)| hosts.contains(path)) {
        let parts = parts.remove(&host).unwrap_or_default();
        all.push(Work::Merge { host, parts, place: place.with_extension("") });
    }
    Ok(all)
}
