//! Composes the merged file: the first build, with the images of the others. `row` merges rows of
//! containers, `entries` the entries of one container, `host_file` objects and programs.

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

/// Merges `builds`, with the images that `units` select ([`check_images`](super::check_images)).
/// Returns `None` if the result equals the first build. Compressed and composed data is in `spool`.
///
/// # Errors
/// A build is damaged, or an image cannot be added at its location; the error names the location
/// and the reason.
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

/// The decision about an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The image is included; the number is its rank in the order of all images.
    Taken(usize),
    /// The image is left out, because another build has the same one.
    Also,
}

/// The state of the recursion.
struct Joiner<'j> {
    /// For each build, the fates of its images by number. Images that runtimes do not see, such as
    /// the host entries of bundles, have none.
    fates: Vec<HashMap<usize, Fate>>,
    /// The images that the file has, by build and number.
    placed: HashSet<(usize, usize)>,
    spool: &'j mut Spool,
}

impl Joiner<'_> {
    /// Merges the data at a location, and returns the outcome for the first build.
    fn enter(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        match locations.shape()? {
            Shape::Same => {
                self.record_identical(locations);
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

    /// Records the images of identical data as present.
    fn record_identical(&mut self, locations: &Locations<'_>) {
        for (build, location) in locations.all.iter().enumerate() {
            if let Some(node) = location.node {
                self.record_placed(build, node);
            }
        }
    }

    /// Records the images in `node` of a build as present.
    fn record_placed(&mut self, build: usize, node: &Node) {
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

    /// Checks that the file has every selected image of the other builds.
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
            // An image for several runtimes is in several units; its position in the first of these
            // counts.
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
