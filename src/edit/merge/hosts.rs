//! The host halves of all builds compared, object by object.

use anyhow::{Context, Result};

use super::lockstep::{Build, Locations, Shape};
use super::{HostHalf, compare_hosts, device_ranges};

/// Where the host halves of `builds` differ from that of the first one, each with its place and,
/// where one is known, the remedy. Nothing where they agree.
///
/// # Errors
/// A build is damaged, is of a format that cannot be merged, or of another one than the first.
pub(crate) fn differences(builds: &[Build<'_>]) -> Result<Vec<HostDifference>> {
    let mut found = Vec::new();
    compare(&Locations::of(builds), &mut found)?;
    Ok(found)
}

/// A difference between two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostDifference {
    /// Where it is and what differs.
    pub(crate) text: String,
    /// Whether the text says what makes them agree.
    pub(crate) has_remedy: bool,
}

fn compare(locations: &Locations, found: &mut Vec<HostDifference>) -> Result<()> {
    let base = locations.base()?;
    match locations.shape()? {
        Shape::Same => {}
        // What is in containers is compared when they are put together.
        Shape::Containers => {}
        Shape::Archive => {
            for member in locations.members()? {
                compare(&member, found)?;
                member.release();
            }
        }
        Shape::Host => {
            let ranges = device_ranges(base.piece.bytes()).with_context(|| base.place.clone())?;
            let first = HostHalf {
                name: &base.place,
                data: base.piece.bytes(),
                device: &ranges,
            };
            for location in locations.all.iter().skip(1) {
                let ranges = device_ranges(location.piece.bytes())
                    .with_context(|| location.place.clone())?;
                let other = HostHalf {
                    name: &location.place,
                    data: location.piece.bytes(),
                    device: &ranges,
                };
                let differences = compare_hosts(&first, &other)?;
                let told = |difference: super::Difference| HostDifference {
                    text: format!(
                        "{} differs from {}: {difference}",
                        location.place, base.place
                    ),
                    has_remedy: difference.remedy.is_some(),
                };
                found.extend(differences.into_iter().map(told));
            }
        }
        Shape::Other => {
            let differs = locations
                .all
                .iter()
                .skip(1)
                .filter(|location| !location.piece.has_bytes_of(&base.piece));
            let told = |other: &super::lockstep::Location| HostDifference {
                text: format!(
                    "{} differs from {} and has no host half to compare; make the file the same in every build, or remove it from \
                     all builds",
                    other.place, base.place
                ),
                has_remedy: false,
            };
            found.extend(differs.map(told));
        }
    }
    Ok(())
}
