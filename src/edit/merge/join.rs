//! The merged file is put together: the first build with the images of the others in it. `row`
//! merges containers in a row, `entries` what is in one of them, `host_file` objects and programs.

mod entries;
mod host_file;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, anyhow, bail};

use super::images::MergedUnit;
use super::lockstep::{Build, Locations, Shape};
use crate::contents::tree::Node;
use crate::edit::{Changed, Outcome};
use crate::formats::archive::resize::plan;
use crate::io::file_slice::Spool;
use crate::io::rope::Rope;

/// The file merged of `builds`, with the images that `units` name
/// ([`check_images`](super::check_images)); none where it is the first build as it was. What had to
/// be compressed or composed for it is in `spool`.
///
/// # Errors
/// A build is damaged, or an image is where none can be added; the error says where and why.
pub(crate) fn join(
    builds: &[Build<'_>],
    units: &[MergedUnit],
    spool: &mut Spool,
) -> Result<Option<Rope>> {
    let locations = Locations::of(builds);
    let mut joiner = Joiner {
        fates: fates(builds.len(), units),
        placed: HashSet::new(),
        spool,
    };
    let outcome = joiner.enter(&locations)?;
    joiner.check_all_placed(builds, units)?;
    match outcome {
        Outcome::Same => Ok(None),
        Outcome::New(changed) => Ok(Some(changed.bytes)),
        Outcome::Gone => Err(anyhow!(
            "{}: nothing is left of the file",
            locations.base()?.place
        )),
    }
}

/// What becomes of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is taken; the number is its place among all that are.
    Taken(usize),
    /// It is left out: another build has the same one.
    Also,
}

/// The state of the recursion.
struct Joiner<'j> {
    /// For each build, the fates of its images by number. Images that runtimes do not see have none:
    /// the host's entries of bundles.
    fates: Vec<HashMap<usize, Fate>>,
    /// The images of the others that have been put in, by build and number.
    placed: HashSet<(usize, usize)>,
    spool: &'j mut Spool,
}

impl Joiner<'_> {
    /// What becomes of the first build's bytes.
    fn enter(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        match locations.shape()? {
            Shape::Same => {
                self.note_same(locations);
                Ok(Outcome::Same)
            }
            Shape::Archive => self.archive(locations),
            Shape::Host => self.host_file(locations),
            Shape::Containers => {
                let base = locations.base()?;
                let row = self.row(&locations.all)?;
                Ok(row
                    .lay_out(&base.piece, crate::edit::containers::ALIGNMENT, |_| false)
                    .with_context(|| base.place.clone())?
                    .outcome())
            }
            Shape::Other => bail!(
                "{}: files of this format cannot be merged",
                locations.base()?.place
            ),
        }
    }

    /// Notes that images are there which are the same in all builds, since all is.
    fn note_same(&mut self, locations: &Locations<'_>) {
        for (build, location) in locations.all.iter().enumerate() {
            if let Some(node) = location.node {
                self.place(build, node);
            }
        }
    }

    /// Notes that the images in `node` of a build are there.
    fn place(&mut self, build: usize, node: &Node) {
        let images = node.images.clone();
        self.placed.extend(images.map(|image| (build, image)));
    }

    fn fate(&self, build: usize, image: usize) -> Option<Fate> {
        self.fates.get(build)?.get(&image).copied()
    }

    fn archive(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        let base = locations.base()?;
        let start = base.piece.file_offset(0).unwrap_or_default();
        let (mut sizes, mut ropes) = (Vec::new(), Vec::new());
        for member in locations.members()? {
            let piece = &member.base()?.piece;
            let offset = piece
                .file_offset(0)
                .and_then(|at| at.checked_sub(start))
                .context("a member outside of its archive")?;
            if let Outcome::New(Changed { bytes, .. }) = self.enter(&member)? {
                sizes.push((offset, bytes.size()));
                ropes.push(bytes);
            }
            member.release();
        }
        if sizes.is_empty() {
            return Ok(Outcome::Same);
        }
        let parts = plan(base.piece.bytes(), &sizes)
            .map_err(|fault| anyhow!(fault.in_archive(&base.place)))?;
        let bytes =
            Rope::of_parts(&base.piece, parts, ropes).with_context(|| base.place.clone())?;
        Ok(bytes.into())
    }

    /// That every image which was to be taken of the other builds is in the file.
    fn check_all_placed(&self, builds: &[Build<'_>], units: &[MergedUnit]) -> Result<()> {
        for taken in units.iter().flat_map(|unit| &unit.images) {
            if taken.build > 0 && !self.placed.contains(&(taken.build, taken.image)) {
                let file = builds
                    .get(taken.build)
                    .map(|build| build.path.display().to_string())
                    .unwrap_or_default();
                bail!("{file}: cannot merge image {} at its location", taken.image);
            }
        }
        Ok(())
    }
}

/// The fates of the images of each build.
fn fates(builds: usize, units: &[MergedUnit]) -> Vec<HashMap<usize, Fate>> {
    let mut fates = vec![HashMap::new(); builds];
    let mut set = |build: usize, image: usize, fate: Fate| {
        if let Some(of_build) = fates.get_mut(build) {
            // An image of several runtimes is in several units, and stands where the first of these
            // is.
            of_build.entry(image).or_insert(fate);
        }
    };
    for (rank, taken) in units.iter().flat_map(|unit| &unit.images).enumerate() {
        set(taken.build, taken.image, Fate::Taken(rank));
        taken
            .also
            .iter()
            .for_each(|(build, image)| set(*build, *image, Fate::Also));
    }
    fates
}
