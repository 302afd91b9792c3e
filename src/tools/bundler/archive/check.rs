//! `-check-input-archive`: checks that the target IDs of an archive's code objects do not conflict
//! (docs/spec/containers.md 2.12.6, 3.5).
//!
//! Unlike LLVM's check, this one includes compressed members, and compares code objects of
//! different members, because they end up in the same program (docs/spec/faults.md B22).

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Result, bail};

use super::MemberObject;
use crate::formats::bundle::{Id, IdFault, check};

/// Fails if two code objects for a processor specify different features.
pub(super) fn composition(found: &[MemberObject], path: &Path) -> Result<()> {
    // Consecutive members with the same name count as one, because nothing distinguishes them.
    let members = found.chunk_by(|one, other| one.member == other.member);
    members
        .into_iter()
        .chain([found])
        .try_for_each(|members| check_members(members, path))
}

fn check_members(found: &[MemberObject], path: &Path) -> Result<()> {
    let mut first_of: BTreeMap<&Id, &MemberObject> = BTreeMap::new();
    for one in found {
        first_of.entry(&one.id).or_insert(one);
    }
    let ids: Vec<Id> = first_of.keys().map(|id| (*id).clone()).collect();
    let Err(IdFault::Conflict(one, other)) = check(&ids) else {
        return Ok(());
    };
    let find = |text: &str| first_of.values().find(|found| found.id.to_string() == text);
    let text =
        |text: &str| find(text).map_or_else(|| text.to_owned(), |found| found.entry.id.clone());
    let mut members: Vec<&str> = [&one, &other]
        .iter()
        .filter_map(|id| Some(find(id)?.member.as_str()))
        .collect();
    members.dedup();
    let members = members.join(" and ");
    bail!(
        "conflicting TargetIDs [{}, {}] found in {members} of {}",
        text(&one),
        text(&other),
        path.display()
    );
}
