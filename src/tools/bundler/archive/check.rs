//! `-check-input-archive`: whether the target ids of an archive's code objects conflict (docs/spec/containers.md 2.12.6, 3.5).
//! Unlike LLVM's, the check includes compressed members, and code objects of different members, because they end up in one program
//! (docs/spec/faults.md B22).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::MemberObject;
use crate::formats::bundle::{Id, IdFault, check};

/// An error when two code objects for one processor do not both fix, or both leave open, the same features.
pub(super) fn composition(found: &[MemberObject], path: &Path) -> Result<()> {
    // Neighbours of the same name are taken for one member: nothing distinguishes two members of one name.
    let members = found.chunk_by(|one, other| one.member == other.member);
    members.into_iter().chain([found]).try_for_each(|members| together(members, path))
}

fn together(found: &[MemberObject], path: &Path) -> Result<()> {
    let mut first_of: BTreeMap<&Id, &MemberObject> = BTreeMap::new();
    for one in found {
        first_of.entry(&one.id).or_insert(one);
    }
    let ids: Vec<Id> = first_of.keys().map(|id| (*id).clone()).collect();
    let Err(IdFault::Conflict(one, other)) = check(&ids) else { return Ok(()) };
    let of = |text: &str| first_of.values().find(|found| found.id.to_string() == text);
    let text = |text: &str| of(text).map_or_else(|| text.to_owned(), |found| found.entry.id.clone());
    let mut members: Vec<&str> = [&one, &other].iter().filter_map(|id| Some(of(id)?.member.as_str())).collect();
    members.dedup();
    let members = members.join(" and ");
    bail!("conflicting TargetIDs [{}, {}] found in {members} of {}", text(&one), text(&other), path.display());
}
