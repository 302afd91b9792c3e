//! Restores a file, byte for byte, from its host half and the parts of its devices. Parts of other
//! files are errors.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rayon::prelude::*;

use crate::edit::split_manifest::{
    self, Checksum, Device, HostPart, PackedStep, Part, Piecewise, Step, is_host, pack, read_host,
    read_part,
};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::model::printable;
use offload_formats::recipe::compressor;

/// The inputs of a merge.
#[derive(Debug)]
pub struct Job {
    /// The host half, with its path.
    pub host: (PathBuf, FileSlice),
    /// The parts, with their paths.
    pub parts: Vec<(PathBuf, FileSlice)>,
}

/// Whether `piece` is a host half.
pub fn is_host_part(piece: &FileSlice) -> bool {
    is_host(piece)
}

/// Whether `piece` is a part of a device.
pub fn is_part(piece: &FileSlice) -> bool {
    split_manifest::is_part(piece)
}

/// A restored file.
#[derive(Debug)]
pub struct Joined {
    /// Its bytes.
    pub bytes: Rope,
    /// Number of its streams that `split` recompressed, which differ from the original.
    pub recompressed: usize,
    /// Inputs and their expected checksums.
    checks: Vec<Check>,
}

/// Bytes of a part, with their expected checksum.
#[derive(Debug)]
pub(crate) struct Check {
    piece: FileSlice,
    /// None if it was compared already.
    sum: Option<Checksum>,
    /// The error message for a mismatch.
    fault: String,
}

impl Check {
    /// Bytes whose checksum was compared.
    pub(crate) fn passed(piece: FileSlice) -> Check {
        Check {
            piece,
            sum: None,
            fault: String::new(),
        }
    }
}

impl Joined {
    /// Verifies the checksums of the parts, on all cores. The caller may write the file in
    /// parallel.
    ///
    /// # Errors
    /// A part is damaged, or cannot be read.
    pub fn check(&self) -> Result<()> {
        check_all(&self.checks)
    }
}

fn check_all(checks: &[Check]) -> Result<()> {
    checks.par_iter().try_for_each(|check| match &check.sum {
        Some(sum) if Checksum::of(&check.piece)? != *sum => Err(anyhow!("{}", check.fault)),
        _ => Ok(()),
    })
}

/// Restores the file. Recompressed data is in `spool`.
///
/// # Errors
/// A file is not a part, belongs to another host half, or is given twice; or a device has no part.
/// Some damage is only detected by [`Joined::check`].
pub fn join(job: &Job, spool: &mut Spool) -> Result<Joined> {
    let (path, piece) = &job.host;
    let host = read_host(piece).with_context(|| path.display().to_string())?;
    let parts = parts_by_device(&host, path, &job.parts)?;
    restore(path, &host, spool, &mut |image, device| {
        let (from, part) = parts.get(device).ok_or_else(|| damaged(path))?;
        let entry = image.entry;
        let found = part.images.get(entry).with_context(|| {
            format!(
                "{}: an image is missing: the part has {}, but the host half needs more",
                from.display(),
                part.images.len()
            )
        })?;
        let fault = format!(
            "{}: damaged: image {entry} does not match its checksum",
            from.display()
        );
        Ok(Check {
            piece: found.clone(),
            sum: Some(image.sum.clone()),
            fault,
        })
    })
}

/// Restores the file of a host half, which is at `path`. `find` finds the images, each
/// with its device.
///
/// # Errors
/// The host half is damaged, or an image is missing.
pub(crate) fn restore(
    path: &Path,
    host: &HostPart,
    spool: &mut Spool,
    find: &mut dyn FnMut(&Piecewise, &Device) -> Result<Check>,
) -> Result<Joined> {
    let fault = format!(
        "{}: damaged: the host contents do not match their checksum",
        path.display()
    );
    let mut checks = vec![Check {
        piece: host.rest.clone(),
        sum: Some(host.recipe.rest.clone()),
        fault,
    }];
    let mut images = Vec::new();
    for image in &host.recipe.images {
        let device = host
            .recipe
            .parts
            .get(image.part)
            .ok_or_else(|| damaged(path))?;
        let check = find(image, device)?;
        images.push(check.piece.clone());
        checks.push(check);
    }
    // Check the inputs before any recompression: otherwise their damage would look like a
    // compressor that produces other bytes.
    if host.recipe.compressor.is_some() {
        check_all(&checks)?;
        checks.clear();
    }
    let mut joiner = Joiner {
        rest: host.rest.clone(),
        at: 0,
        images,
        spool,
        path,
        compressor: host
            .recipe
            .compressor
            .as_deref()
            .unwrap_or("another version"),
    };
    let bytes = joiner.take(&host.recipe.steps)?;
    if joiner.at != host.rest.size() || bytes.size() != host.recipe.size {
        return Err(damaged(path));
    }
    Ok(Joined {
        bytes,
        recompressed: host.recipe.recompressed,
        checks,
    })
}

/// The original name of the file.
///
/// # Errors
/// The host half cannot be read.
pub fn name_of(host: &(PathBuf, FileSlice)) -> Result<String> {
    Ok(read_host(&host.1)
        .with_context(|| host.0.display().to_string())?
        .recipe
        .file)
}

fn damaged(path: &Path) -> anyhow::Error {
    anyhow!(
        "{}: damaged: the recipe contradicts the contents",
        path.display()
    )
}

/// The parts by device: exactly one for each device of the host half.
fn parts_by_device<'p>(
    host: &HostPart,
    path: &Path,
    parts: &'p [(PathBuf, FileSlice)],
) -> Result<HashMap<Device, (&'p Path, Part)>> {
    let mut all: HashMap<Device, (&Path, Part)> = HashMap::new();
    for (from, piece) in parts {
        if is_host(piece) {
            bail!(
                "{}: a host half, like {}: pass the parts of one file at a time",
                from.display(),
                path.display()
            );
        }
        if !split_manifest::is_part(piece) {
            bail!("{}: not a part from `offld split`", from.display());
        }
        let part = read_part(piece).with_context(|| from.display().to_string())?;
        if part.host != host.digest {
            let (own, other) = (printable(&host.recipe.file), printable(&part.file));
            let why = if own == other {
                format!("another build of `{own}`")
            } else {
                format!("`{other}`, not of `{own}`")
            };
            bail!(
                "{}: a part of {why}, which does not belong to {}",
                from.display(),
                path.display()
            );
        }
        if !host.recipe.parts.contains(&part.device) {
            bail!(
                "{}: a part for {}, but {} has only these devices: {}",
                from.display(),
                part.device.name(),
                path.display(),
                names(&host.recipe.parts)
            );
        }
        if let Some((first, _)) = all.get(&part.device) {
            bail!(
                "{} and {} are both for {}",
                first.display(),
                from.display(),
                part.device.name()
            );
        }
        all.insert(part.device.clone(), (from, part));
    }
    let missing: Vec<Device> = host
        .recipe
        .parts
        .iter()
        .filter(|device| !all.contains_key(device))
        .cloned()
        .collect();
    if !missing.is_empty() {
        bail!(
            "{}: parts are missing: also pass those for {}",
            path.display(),
            names(&missing)
        );
    }
    Ok(all)
}

fn names(devices: &[Device]) -> String {
    devices
        .iter()
        .map(Device::name)
        .collect::<Vec<_>>()
        .join(", ")
}

/// Executes the steps of a recipe.
struct Joiner<'j> {
    rest: FileSlice,
    /// The offset in the host half's contents.
    at: u64,
    images: Vec<FileSlice>,
    spool: &'j mut Spool,
    path: &'j Path,
    /// The versions of the compressors that `split` used.
    compressor: &'j str,
}

impl Joiner<'_> {
    fn take(&mut self, steps: &[Step]) -> Result<Rope> {
        let mut rope = Rope::default();
        for step in steps {
            match step {
                Step::Rest(size) => {
                    rope.push_piece(
                        self.rest
                            .slice(self.at, *size)
                            .ok_or_else(|| damaged(self.path))?,
                    );
                    self.at = self.at.saturating_add(*size);
                }
                Step::Image(number) => rope.push_piece(
                    self.images
                        .get(*number)
                        .ok_or_else(|| damaged(self.path))?
                        .clone(),
                ),
                Step::Stream(stream) => rope.push_piece(self.stream(stream)?),
            }
        }
        Ok(rope)
    }

    fn stream(&mut self, stream: &PackedStep) -> Result<FileSlice> {
        let plain = self.take(&stream.steps)?;
        let packed = pack(&plain, &stream.how, self.spool)
            .with_context(|| self.path.display().to_string())?;
        if Checksum::of(&packed)? != stream.sum {
            bail!(
                "{}: cannot reproduce a compressed stream from {}: this offld has {}",
                self.path.display(),
                self.compressor,
                compressor()
            );
        }
        Ok(packed)
    }
}
