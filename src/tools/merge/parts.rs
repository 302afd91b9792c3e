//! A host part and the parts of its devices become the file that they were taken out of, byte for byte. What is not of that file is
//! refused by name.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use rayon::prelude::*;

use crate::edit::pack::{compressor, pack};
use crate::edit::recipe::{self, Device, Host, PackedStep, Part, Step, Sum, is_host, read_host, read_part};
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;
use crate::model::printable;

/// A file that is to be put together.
#[derive(Debug)]
pub(crate) struct Job {
    /// The host part, as it was named.
    pub host: (PathBuf, Piece),
    /// The parts.
    pub parts: Vec<(PathBuf, Piece)>,
}

/// Whether `piece` is a host part.
pub(crate) fn is_host_part(piece: &Piece) -> bool {
    is_host(piece)
}

/// Whether `piece` is the part of a device.
pub(crate) fn is_part(piece: &Piece) -> bool {
    recipe::is_part(piece)
}

/// A file that is put together.
#[derive(Debug)]
pub(crate) struct Joined {
    /// Its bytes.
    pub bytes: Rope,
    /// What it is made of, with what that has to be.
    checks: Vec<Check>,
}

/// Bytes of a part, and what they have to be.
#[derive(Debug)]
struct Check {
    piece: Piece,
    sum: Sum,
    /// What is wrong where they are not.
    fault: String,
}

impl Joined {
    /// That the parts are what was written, on all cores. Who writes the file may do that at the same time.
    ///
    /// # Errors
    /// A part is damaged, or cannot be read.
    pub(crate) fn check(&self) -> Result<()> {
        check_all(&self.checks)
    }
}

fn check_all(checks: &[Check]) -> Result<()> {
    checks.par_iter().try_for_each(
        |check| {
            if Sum::of(&check.piece)? == check.sum { Ok(()) } else { Err(anyhow!("{}", check.fault)) }
        },
    )
}

/// Puts the file together. What had to be compressed for it is in `spool`.
///
/// # Errors
/// A part is none, belongs to another host part, or is there twice; or a device has no part. A part that is damaged may show only
/// when the result is checked.
pub(crate) fn join(job: &Job, spool: &mut Spool) -> Result<Joined> {
    let (path, piece) = &job.host;
    let host = read_host(piece).with_context(|| path.display().to_string())?;
    let parts = all(&host, path, &job.parts)?;
    let fault = format!("{}: damaged: what it has of the host is not what was written", path.display());
    let mut checks = vec![Check { piece: host.rest.clone(), sum: host.recipe.rest.clone(), fault }];
    let mut images = Vec::new();
    for image in &host.recipe.images {
        let device = host.recipe.parts.get(image.part).ok_or_else(|| damaged(path))?;
        let (from, part) = parts.get(device).ok_or_else(|| damaged(path))?;
        let found = part.images.get(image.entry).with_context(|| {
            format!("{}: an image is missing: it has {}, and the host part wants more", from.display(), part.images.len())
        })?;
        let entry = image.entry;
        let fault = format!("{}: damaged: its image {entry} is not the one that was taken out of the file", from.display());
        checks.push(Check { piece: found.clone(), sum: image.sum.clone(), fault });
        images.push(found);
    }
    // What is compressed again is compared at once, and would be blamed for what is wrong with what goes into it.
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
        compressor: host.recipe.compressor.as_deref().unwrap_or("another release"),
    };
    let bytes = joiner.take(&host.recipe.steps)?;
    if joiner.at != host.rest.size() || bytes.size() != host.recipe.size {
        return Err(damaged(path));
    }
    Ok(Joined { bytes, checks })
}

/// The name that the file had.
///
/// # Errors
/// The host part cannot be read.
pub(crate) fn name_of(host: &(PathBuf, Piece)) -> Result<String> {
    Ok(read_host(&host.1).with_context(|| host.0.display().to_string())?.recipe.file)
}

fn damaged(path: &Path) -> anyhow::Error {
    anyhow!("{}: damaged: its recipe contradicts what is in it", path.display())
}

/// The parts by their devices: one for each of the host part's, and no other.
fn all<'p>(host: &Host, path: &Path, parts: &'p [(PathBuf, Piece)]) -> Result<HashMap<Device, (&'p Path, Part)>> {
    let mut all: HashMap<Device, (&Path, Part)> = HashMap::new();
    for (from, piece) in parts {
        if is_host(piece) {
            bail!(
                "{}: is a host part, and {} is one already: one file is put together at a time",
                from.display(),
                path.display()
            );
        }
        if !recipe::is_part(piece) {
            bail!("{}: is no part that `offld split` has made", from.display());
        }
        let part = read_part(piece).with_context(|| from.display().to_string())?;
        if part.host != host.digest {
            let (own, other) = (printable(&host.recipe.file), printable(&part.file));
            let why = if own == other { format!("another build of `{own}`") } else { format!("`{other}`, and not of `{own}`") };
            bail!("{}: is a part of {why}: it does not belong to {}", from.display(), path.display());
        }
        if !host.recipe.parts.contains(&part.device) {
            bail!(
                "{}: is for {}, and {} has no such device: {}",
                from.display(),
                part.device.name(),
                path.display(),
                names(&host.recipe.parts)
            );
        }
        if let Some((first, _)) = all.get(&part.device) {
            bail!("{} and {} are both for {}", first.display(), from.display(), part.device.name());
        }
        all.insert(part.device.clone(), (from, part));
    }
    let missing: Vec<Device> = host.recipe.parts.iter().filter(|device| !all.contains_key(device)).cloned().collect();
    if !missing.is_empty() {
        bail!("{}: no part is given for {}", path.display(), names(&missing));
    }
    Ok(all)
}

fn names(devices: &[Device]) -> String {
    devices.iter().map(Device::name).collect::<Vec<_>>().join(", ")
}

/// Follows the steps of a recipe.
struct Joiner<'j> {
    rest: Piece,
    /// How much of the host part has been used.
    at: u64,
    images: Vec<&'j Piece>,
    spool: &'j mut Spool,
    path: &'j Path,
    /// What the streams were made with.
    compressor: &'j str,
}

impl Joiner<'_> {
    fn take(&mut self, steps: &[Step]) -> Result<Rope> {
        let mut rope = Rope::default();
        for step in steps {
            match step {
                Step::Rest(size) => {
                    rope.push_piece(self.rest.slice(self.at, *size).ok_or_else(|| damaged(self.path))?);
                    self.at = self.at.saturating_add(*size);
                }
                Step::Image(number) => rope.push_piece((*self.images.get(*number).ok_or_else(|| damaged(self.path))?).clone()),
                Step::Stream(stream) => rope.push_piece(self.stream(stream)?),
            }
        }
        Ok(rope)
    }

    fn stream(&mut self, stream: &PackedStep) -> Result<Piece> {
        let plain = self.take(&stream.steps)?;
        let packed = pack(&plain, &stream.how, self.spool).with_context(|| self.path.display().to_string())?;
        if Sum::of(&packed)? != stream.sum {
            bail!(
                "{}: a compressed stream does not come out as it was: it was made by {}, and here is {}",
                self.path.display(),
                self.compressor,
                compressor()
            );
        }
        Ok(packed)
    }
}
