//! The host halves of all builds compared, object by object.

use anyhow::{Context, Result};

use super::alike::{Build, Shape, Spots};
use super::{HostHalf, compare_hosts, device_ranges};

/// Where the host halves of `builds` differ from that of the first one, each with its place and, where one is known, the remedy.
/// Nothing where they agree.
///
/// # Errors
/// A build is damaged, is of a format that cannot be merged, or of another one than the first.
pub(crate) fn differences(builds: &[Build<'_>]) -> Result<Vec<Told>> {
    let mut found = Vec::new();
    compare(&Spots::of(builds), &mut found)?;
    Ok(found)
}

/// A difference between two builds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Told {
    /// Where it is and what differs.
    pub(crate) text: String,
    /// Whether the text says what makes them agree.
    pub(crate) has_remedy: bool,
}

fn compare(spots: &Spots, found: &mut Vec<Told>) -> Result<()> {
    let base = spots.base()?;
    match spots.shape()? {
        Shape::Same => {}
        // What is in containers is compared when they are put together.
        Shape::Containers => {}
        Shape::Archive => {
            for member in spots.members()? {
                compare(&member, found)?;
                member.release();
            }
        }
        Shape::Host => {
            let ranges = device_ranges(base.piece.bytes()).with_context(|| base.place.clone())?;
            let first = HostHalf { name: &base.place, data: base.piece.bytes(), device: &ranges };
            for spot in spots.all.iter().skip(1) {
                let ranges = device_ranges(spot.piece.bytes()).with_context(|| spot.place.clone())?;
                let other = HostHalf { name: &spot.place, data: spot.piece.bytes(), device: &ranges };
                let differences = compare_hosts(&first, &other)?;
                let told = |difference: super::Difference| Told {
                    text: format!("{} differs from {}: {difference}", spot.place, base.place),
                    has_remedy: difference.remedy.is_some(),
                };
                found.extend(differences.into_iter().map(told));
            }
        }
        Shape::Other => {
            let differs = spots.all.iter().skip(1).filter(|spot| !spot.piece.has_bytes_of(&base.piece));
            let told = |other: &super::alike::Spot| Told {
                text: format!(
                    "{} differs from {}: there is no host half in it that could be compared (make it the same in every build, or \
                     leave it out of all of them)",
                    other.place, base.place
                ),
                has_remedy: false,
            };
            found.extend(differs.map(told));
        }
    }
    Ok(())
}
