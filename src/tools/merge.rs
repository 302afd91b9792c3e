//! Merges files: a host half with the parts that `split` wrote for one file (`parts`), or whole
//! builds that were compiled for different devices, as single files (`builds`), wheels (`wheels`)
//! or directories (`folders`).

pub(crate) mod builds;
pub(crate) mod folders;
pub(crate) mod parts;
mod wheels;

use std::collections::BTreeSet;

use crate::model::printable_name;

/// Limit on reported names.
const MOST: usize = 20;

/// The names that are not in every build, as messages that compare the first build with each other
/// one. A build has its name for messages, and a set of names; `what` is the kind of these names.
fn unmatched(builds: &[(String, BTreeSet<&[u8]>)], what: &str) -> Vec<String> {
    let Some(((first, names), others)) = builds.split_first() else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (other, theirs) in others {
        for (has, lacks, name) in names
            .difference(theirs)
            .map(|name| (first, other, name))
            .chain(theirs.difference(names).map(|name| (other, first, name)))
        {
            let name = printable_name(name);
            found.push(format!(
                "{lacks}: no {what} {name}, which {has} has: every build must have the same"
            ));
        }
    }
    let more = found.len().saturating_sub(MOST);
    found.truncate(MOST);
    if more > 0 {
        found.push(format!("and {more} more that are not in every build"));
    }
    found
}
