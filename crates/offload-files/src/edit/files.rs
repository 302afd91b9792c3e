//! Edits images in files on disk: reads each file, asks for verdicts, writes the new file next to
//! its destination, reads it back for its build id and digest, and renames it. The destination has
//! either the whole new file or the old one.

mod place;
pub(crate) mod wheel;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, elf};
use rayon::prelude::*;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::{Fixed, Levels, Recompressed, Repack, Verdict, edit};
use crate::contents::bytes_of::{chunks, rope_sha256, sha256};
use crate::contents::report::{FileReport, Image};
use crate::contents::selection::Selection;
use crate::contents::{self, Reader};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::output_directory::OutputDirectory;
use offld_system::io::outputs::{Output, Outputs};
use offld_system::io::rope::Rope;
use offld_system::progress::{Meter, Reached};
use offld_system::session::Session;
use offld_system::{atomic_file, threads};
use offload_formats::error;
pub use place::{Entry, Made, To, Tree, entries};

/// The last bytes of files that the kernel's `sign-file` has signed.
const APPENDED_SIGNATURE: &[u8] = b"~Module signature appended~\n";
/// Sections in which tools store a signature of the file.
const SIGNATURE_SECTIONS: [&str; 3] = [".signature", ".sig", ".sgn"];

/// Settings of an edit.
#[derive(Debug, Clone)]
pub struct Options {
    /// The destination of new files.
    pub to: To,
    /// Whether to compute the result without writing it.
    pub dry_run: bool,
    /// Whether to change even files that are signed or have several hard links.
    pub force: bool,
    /// Whether a registration or file may lose all of its images.
    pub allow_empty: bool,
    /// Whether changed programs get a new build id.
    pub new_build_id: bool,
    /// The recompression settings.
    pub levels: Levels,
    /// Whether to compute the digests of the files.
    pub digests: bool,
    /// Whether the images for the verdicts include their bytes, also in compressed containers.
    pub image_bytes: bool,
    /// The files and members to change.
    pub selection: Arc<Selection>,
}

/// The result for a file.
#[derive(Debug, Clone, Serialize)]
pub struct Change {
    /// The file, as given or found.
    pub file: String,
    /// The path of the new file; `None` if none was written.
    pub written: Option<String>,
    /// Whether the new file differs from the old one.
    pub changed: bool,
    /// Old size, in bytes.
    pub before: u64,
    /// New size, in bytes.
    pub after: u64,
    /// SHA-256 of the old file, if digests are requested.
    pub sha256_before: Option<String>,
    /// SHA-256 of the new file; `None` for a dry run that would give it a new build id.
    pub sha256_after: Option<String>,
    /// Its images.
    pub images: Vec<ImageChange>,
    /// The directories with its external images, and the paths of its kpack archives. They stay as
    /// they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub external: Vec<String>,
    /// Registrations and members that have lost all of their images.
    pub emptied: Vec<String>,
    /// Whether the file is removed, or left out of the new directory, because all of its images are
    /// dropped and it has no other contents.
    pub removed: bool,
    /// The members of a zip file that are removed for the same reason.
    pub removed_members: Vec<String>,
    /// The counts of recompressed containers, for `recompress`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompressed: Option<Recompressed>,
    /// The reason why the file is unchanged, if that is an error.
    pub error: Option<String>,
    /// The images that cannot be changed, if they are the reason.
    #[serde(skip)]
    pub(crate) fixed: Option<Fixed>,
}

/// The result for an image.
#[derive(Debug, Clone, Serialize)]
pub struct ImageChange {
    /// Its number in the file.
    pub index: usize,
    /// Its programming models.
    pub kinds: Vec<String>,
    /// Its triple.
    pub triple: String,
    /// Its architecture.
    pub target: String,
    /// Its architecture as reports name it: `compute_90` for PTX. See [`Image::arch`].
    pub arch: String,
    /// The archive members that contain it.
    pub members: Vec<String>,
    /// Its size, in bytes.
    pub size: u64,
    /// `keep`, `drop` or `replace`.
    pub fate: &'static str,
    /// Whether it is in a data section, in which offld changes no images.
    pub in_data: bool,
}

impl ImageChange {
    fn is_device(&self) -> bool {
        !self.kinds.iter().any(|kind| kind == "host")
    }
}

/// Returns the verdicts for the images of the file at this path. The numbers of the images are
/// those of `inspect`; in a zip file they continue across its members.
pub(crate) type Decide<'d> = dyn Fn(&Path, &[Image]) -> Result<Vec<Verdict>> + Sync + 'd;

/// Edits files. An error in one file is in its result, and the other files are still changed. For a
/// directory, edits all files below it.
///
/// # Errors
/// The destinations are invalid, or a signal arrives.
pub fn change(
    files: &[PathBuf],
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
) -> Result<Vec<Change>> {
    let (subjects, directory) = place::subjects(files, options, session)?;
    let size =
        |subject: &place::Subject| std::fs::metadata(&subject.path).map_or(0, |meta| meta.len());
    let meter = Meter::new(session.shell.is_terminal(), subjects.iter().map(size).sum());
    let failed = |subject: &place::Subject, error: &anyhow::Error| {
        let fixed = error.downcast_ref::<Fixed>().cloned();
        let text = fixed
            .as_ref()
            .map_or_else(|| error::chain(error), ToString::to_string);
        Change {
            error: Some(text),
            fixed,
            ..Change::of(subject.path.display().to_string(), size(subject))
        }
    };
    let each = |subject| -> Option<(&place::Subject, Change)> {
        let (reached, size) = (meter.file(), size(subject));
        reached.now_at(&subject.path.display().to_string());
        let done = edit_file(
            subject,
            directory.as_ref(),
            options,
            session,
            decide,
            &reached,
        );
        reached.up_to(size);
        match done {
            Ok(change) => Some((subject, change?)),
            Err(error) => Some((subject, failed(subject, &error))),
        }
    };
    let changes: Vec<(&place::Subject, Change)> =
        threads::in_parallel(|| subjects.par_iter().filter_map(each).collect());
    drop(meter);
    session.signals.check()?;
    // Whether a file may be removed depends on the images of all other files.
    let any_stays = changes.iter().any(|(_, change)| change.keeps_images());
    let removed = |(subject, change): (&place::Subject, Change)| match change.removed {
        true => match remove(subject, directory.as_ref(), any_stays, options) {
            Ok(()) => change,
            Err(error) => failed(subject, &error),
        },
        false => change,
    };
    let mut changes: Vec<Change> = changes.into_iter().map(removed).collect();
    if !directory.map_or(Ok(true), OutputDirectory::commit)? {
        changes.iter_mut().for_each(|change| change.written = None);
    }
    Ok(changes)
}

/// Removes the destination of a file that has no contents left. A file from a directory may be
/// removed if other files of the directory keep images.
///
/// # Errors
/// The file was given by name or is the last one with images, and `allow_empty` is not set; or it
/// cannot be removed.
fn remove(
    subject: &place::Subject,
    directory: Option<&OutputDirectory>,
    any_stays: bool,
    options: &Options,
) -> Result<()> {
    let path = subject.path.display();
    if !options.allow_empty && (subject.named || !any_stays) {
        bail!(
            "{path}: all of its images are dropped, so nothing is left of the file; pass --allow-empty to remove it"
        );
    }
    let place = subject.to.as_deref().unwrap_or(&subject.path);
    if options.dry_run || place == Path::new("-") {
        return Ok(());
    }
    if !options.force {
        subject.check_links()?;
    }
    let current = directory.map_or_else(|| place.to_owned(), |one| one.current(place));
    match std::fs::remove_file(current) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove `{}`", place.display()))
        }
        _ => Ok(()),
    }
}

impl Change {
    /// Whether device images stay in the file.
    fn keeps_images(&self) -> bool {
        self.error.is_none()
            && self
                .images
                .iter()
                .any(|image| image.fate != "drop" && image.is_device())
    }

    fn of(file: String, size: u64) -> Change {
        Change {
            file,
            written: None,
            changed: false,
            before: size,
            after: size,
            sha256_before: None,
            sha256_after: None,
            images: Vec::new(),
            external: Vec::new(),
            emptied: Vec::new(),
            removed: false,
            removed_members: Vec::new(),
            recompressed: None,
            error: None,
            fixed: None,
        }
    }
}

/// Edits one file. Returns `None` for a file from a directory that has no images.
fn edit_file(
    subject: &place::Subject,
    directory: Option<&OutputDirectory>,
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
    reached: &Reached,
) -> Result<Option<Change>> {
    let path = subject.path.as_path();
    let piece = FileSlice::try_open(path).with_context(|| path.display().to_string())?;
    let progress = reached.share(piece.size(), piece.size());
    let mut spool = Spool::new(session).with_progress(progress);
    let mut change = Change::of(path.display().to_string(), piece.size());
    let bytes = match wheel::is_wheel(&piece) {
        true => wheel::edit(
            (path, &piece),
            options,
            session,
            decide,
            &mut change,
            reached,
        )?,
        false => edited_bytes(
            path,
            &piece,
            options,
            session,
            decide,
            &mut change,
            &mut spool,
        )?,
    };
    if !subject.named && change.images.is_empty() && subject.to.is_none() {
        return Ok(None);
    }
    if !options.allow_empty
        && let Some(first) = change.emptied.first()
    {
        let others = change.emptied.len() - 1;
        let what = if others > 0 {
            format!("{} containers", others + 1)
        } else {
            "it".to_owned()
        };
        bail!(
            "{first}: removing these images would leave {what} empty; pass --allow-empty to allow that"
        );
    }
    // Members and containers that did not become smaller may still have a new layout.
    let bytes = bytes.filter(|bytes| !options.levels.only_smaller || bytes.size() < piece.size());
    if let (None, Some(recompressed)) = (&bytes, &mut change.recompressed) {
        recompressed.smaller = 0;
    }
    change.changed = bytes.is_some();
    if change.removed {
        change.after = 0;
        return Ok(Some(change));
    }
    if change.changed && !options.force {
        check_unsigned(path, &piece)?;
    }
    change.after = bytes.as_ref().map_or(piece.size(), Rope::size);
    if options.digests {
        change.sha256_before = Some(sha256(&piece)?);
        change.sha256_after.clone_from(&change.sha256_before);
    }
    if change.changed && !options.force {
        subject.check_links()?;
    }
    if options.dry_run {
        if options.digests
            && let Some(bytes) = &bytes
        {
            // A new build id is derived from the written file.
            change.sha256_after = if options.new_build_id {
                None
            } else {
                Some(rope_sha256(bytes)?)
            };
        }
        return Ok(Some(change));
    }
    let outputs = directory.map_or_else(
        || Outputs::new(session),
        |directory| directory.outputs(session),
    );
    write(subject, &piece, bytes, options, outputs, &mut change)?;
    Ok(Some(change))
}

/// The new bytes of a file that is not a zip file; `None` if nothing changes.
fn edited_bytes(
    path: &Path,
    piece: &FileSlice,
    options: &Options,
    session: &Session,
    decide: &Decide<'_>,
    change: &mut Change,
    spool: &mut Spool,
) -> Result<Option<Rope>> {
    let report = inspect(
        path,
        piece,
        options.image_bytes,
        &options.selection,
        session,
    );
    let verdicts = verdicts_for(path, &report.images, decide)?;
    apply_verdicts((path, piece), &report, &verdicts, options, change, spool)
}

/// Inspects a file that is not a zip file, as input for its verdicts.
fn inspect(
    path: &Path,
    piece: &FileSlice,
    wants_bytes: bool,
    selection: &Arc<Selection>,
    session: &Session,
) -> FileReport {
    let (headers_only, keep_bytes, selection) = (!wants_bytes, wants_bytes, Arc::clone(selection));
    let reading = contents::Options {
        headers_only,
        keep_bytes,
        selection,
        ..contents::Options::default()
    };
    Reader::new(reading, session).opened(path, piece.clone())
}

/// The verdicts for these images.
fn verdicts_for(path: &Path, images: &[Image], decide: &Decide<'_>) -> Result<Vec<Verdict>> {
    let verdicts = decide(path, images)?;
    if verdicts.len() != images.len() {
        bail!(
            "{}: {} verdicts for {} images",
            path.display(),
            verdicts.len(),
            images.len()
        );
    }
    Ok(verdicts)
}

/// Applies `verdicts` to the file `piece`, which `report` describes. Returns the new bytes, or
/// `None` if nothing changes.
fn apply_verdicts(
    (path, piece): (&Path, &FileSlice),
    report: &FileReport,
    verdicts: &[Verdict],
    options: &Options,
    change: &mut Change,
    spool: &mut Spool,
) -> Result<Option<Rope>> {
    change.images = report
        .images
        .iter()
        .zip(verdicts)
        .map(|(image, verdict)| image_change(image, verdict))
        .collect();
    let images = report.external.iter().map(|one| one.directory.clone());
    let packs = report.kpack.iter().flat_map(|one| &one.search_paths);
    change.external = images.chain(packs.cloned()).collect();
    change.external.dedup();
    if let Some(error) = report.errors.first() {
        bail!("{error}");
    }
    if options.levels.repack == Repack::No && verdicts.iter().all(Verdict::is_keep) {
        return Ok(None);
    }
    let edited = edit((path, piece), report, verdicts, options.levels, spool)?;
    change.emptied = edited.emptied;
    change.removed = edited.is_gone;
    if options.levels.only_smaller {
        change
            .recompressed
            .get_or_insert_default()
            .add(edited.recompressed);
    }
    Ok(edited.bytes)
}

fn image_change(image: &Image, verdict: &Verdict) -> ImageChange {
    ImageChange {
        index: image.index,
        kinds: image.kinds.clone(),
        triple: image.triple.clone(),
        target: image.target.clone(),
        arch: image.arch(),
        members: image.members.clone(),
        size: image.size,
        in_data: image.in_data,
        fate: match verdict {
            Verdict::Keep => "keep",
            Verdict::Drop => "drop",
            Verdict::Replace(_) => "replace",
        },
    }
}

/// Writes the new file if its contents or its path differ from the old ones.
fn write(
    subject: &place::Subject,
    piece: &FileSlice,
    bytes: Option<Rope>,
    options: &Options,
    mut outputs: Outputs,
    change: &mut Change,
) -> Result<()> {
    let Some(to) = subject
        .to
        .as_deref()
        .or(bytes.is_some().then_some(subject.path.as_path()))
    else {
        return Ok(());
    };
    let is_changed = bytes.is_some();
    let context = || format!("cannot write `{}`", to.display());
    let mut output = outputs.create_or_stdout(to)?;
    bytes
        .unwrap_or_else(|| piece.clone().into())
        .copy_to(&mut output)
        .with_context(context)?;
    if is_changed && options.new_build_id {
        renew_build_id(&mut output).with_context(context)?;
    }
    subject.keep_attributes(&output).with_context(context)?;
    if options.digests && is_changed {
        change.sha256_after = Some(place::digest(&output).with_context(context)?);
    }
    change.after = output
        .file()
        .metadata()
        .map_or(change.after, |meta| meta.len());
    drop(output);
    outputs.commit()?;
    change.written = Some(to.display().to_string());
    Ok(())
}

/// Copies the attributes of the file at `from`, such as mode and extended attributes, to `output`.
///
/// # Errors
/// The old file cannot be read, or the new file does not support an attribute.
pub fn keep_attributes(from: &Path, output: &Output) -> Result<()> {
    let subject = place::Subject {
        path: from.to_owned(),
        to: None,
        named: true,
    };
    subject
        .keep_attributes(output)
        .with_context(|| from.display().to_string())
}

/// Writes `bytes` to `place` atomically, with the attributes of the file at `from`. Replaces a
/// file, a running program or a symlink at `place`.
///
/// # Errors
/// The file cannot be written.
pub fn replace_with_attributes(
    from: &Path,
    bytes: &Rope,
    place: &Path,
    session: &Session,
) -> Result<()> {
    let mut outputs = Outputs::new(session);
    let mut output = outputs.create_anew(place)?;
    bytes
        .copy_to(&mut output)
        .with_context(|| format!("cannot write `{}`", place.display()))?;
    keep_attributes(from, &output)?;
    drop(output);
    outputs.commit()
}

/// Writes `bytes` to `place` as an output of `outputs`, with the attributes of the file at `from`.
/// `-` is stdout.
///
/// # Errors
/// The file cannot be written.
pub fn copy_with_attributes(
    from: &Path,
    bytes: &Rope,
    place: &Path,
    outputs: Outputs,
) -> Result<()> {
    copy_checked(from, bytes, place, outputs, &|_| Ok(()))
}

/// Like [`copy_with_attributes`], and runs `check` on the written file before the rename.
///
/// # Errors
/// The file cannot be written, or `check` fails; then `place` stays unchanged.
pub fn copy_checked(
    from: &Path,
    bytes: &Rope,
    place: &Path,
    outputs: Outputs,
    check: &dyn Fn(&FileSlice) -> Result<()>,
) -> Result<()> {
    write_checked(from, bytes, place, outputs, (&|| Ok(()), check))
}

/// Like [`copy_with_attributes`], and runs `beside` in parallel, which must succeed before the
/// rename.
///
/// # Errors
/// The file cannot be written, or `beside` fails; then `place` stays unchanged.
pub fn copy_while(
    from: &Path,
    bytes: &Rope,
    place: &Path,
    outputs: Outputs,
    beside: &(dyn Fn() -> Result<()> + Sync),
) -> Result<()> {
    write_checked(from, bytes, place, outputs, (beside, &|_| Ok(())))
}

/// The check that runs while a file is written, and the one that runs after that.
type Checks<'c> = (
    &'c (dyn Fn() -> Result<()> + Sync),
    &'c dyn Fn(&FileSlice) -> Result<()>,
);

fn write_checked(
    from: &Path,
    bytes: &Rope,
    place: &Path,
    mut outputs: Outputs,
    (beside, check): Checks<'_>,
) -> Result<()> {
    let mut output = outputs.create_or_stdout(place)?;
    let (checked, written) =
        threads::in_parallel(|| rayon::join(beside, || bytes.copy_to(&mut output)));
    checked?;
    written.with_context(|| format!("cannot write `{}`", place.display()))?;
    check(&place::written(&output)?)?;
    if place != Path::new("-") {
        keep_attributes(from, &output)?;
    }
    drop(output);
    outputs.commit()
}

/// Checks that the file at `path` is not signed. A change would invalidate the signature, and
/// programs that verify it would refuse the file.
///
/// # Errors
/// The file is signed; the error names the signature.
fn check_unsigned(path: &Path, piece: &FileSlice) -> Result<()> {
    let by = if piece.bytes().ends_with(APPENDED_SIGNATURE) {
        Some("with a signature at its end".to_owned())
    } else {
        signing_attribute(path)?.or_else(|| signing_section(piece.bytes()))
    };
    match by {
        None => Ok(()),
        Some(by) => bail!(
            "{}: the file is signed {by}, and a change would invalidate the signature; pass --force to change it anyway",
            path.display()
        ),
    }
}

fn signing_attribute(path: &Path) -> Result<Option<String>> {
    if path == Path::new("-") {
        return Ok(None);
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let name = atomic_file::signature(&file).with_context(|| path.display().to_string())?;
    Ok(name.map(|name| format!("by its extended attribute `{name}`")))
}

fn signing_section(data: &[u8]) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    file.sections().find_map(|section| {
        let name = section.name().ok()?;
        (SIGNATURE_SECTIONS.contains(&name) && section.size() > 0)
            .then(|| format!("in its section `{name}`"))
    })
}

/// Gives the file in `output` a new build id, if it has one: the first bytes of the SHA-256 of the
/// file with the old build id. The length stays the same.
///
/// # Errors
/// The file cannot be read or written.
fn renew_build_id(output: &mut Output) -> Result<()> {
    output.flush()?;
    let piece = FileSlice::try_open(&PathBuf::from(format!(
        "/proc/self/fd/{}",
        output.file().as_raw_fd()
    )))?;
    let Some((offset, len)) = build_id_place(piece.bytes()) else {
        return Ok(());
    };
    let mut hash = Sha256::new();
    chunks(&piece, |chunk| hash.update(chunk))?;
    let digest = hash.finalize();
    let id: Vec<u8> = digest.iter().cycle().take(len).copied().collect();
    let end = output.seek(SeekFrom::End(0))?;
    output.seek(SeekFrom::Start(offset))?;
    output.write_all(&id).context("the build id")?;
    output.seek(SeekFrom::Start(end))?;
    Ok(())
}

/// Offset and length of the build id in the ELF file `data`.
pub(in crate::edit) fn build_id_place(data: &[u8]) -> Option<(u64, usize)> {
    let place = |id: &[u8]| {
        (
            id.as_ptr().addr().wrapping_sub(data.as_ptr().addr()) as u64,
            id.len(),
        )
    };
    match object::FileKind::parse(data).ok()? {
        object::FileKind::Elf64 => build_id::<elf::FileHeader64<Endianness>>(data).map(place),
        object::FileKind::Elf32 => build_id::<elf::FileHeader32<Endianness>>(data).map(place),
        _ => None,
    }
}

fn build_id<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<&[u8]> {
    let header = Elf::parse(data).ok()?;
    let endian = header.endian().ok()?;
    for segment in header.program_headers(endian, data).ok()? {
        let Some(mut notes) = segment.notes(endian, data).ok().flatten() else {
            continue;
        };
        while let Ok(Some(note)) = notes.next() {
            if note.name() == elf::ELF_NOTE_GNU && note.n_type(endian) == elf::NT_GNU_BUILD_ID {
                return Some(note.desc());
            }
        }
    }
    None
}
