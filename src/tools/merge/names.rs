//! What is in one build and not in another: it would be lost, or be in the result for some devices
//! only.

use std::collections::BTreeSet;

use crate::model::printable_name;

/// How many are told one by one.
const MOST: usize = 20;

/// What each of the builds after the first lacks of the names in that, and what they have beside
/// these. A build is what people call it, and the names in it; `what` is what has these names.
pub(super) fn unmatched(builds: &[(String, BTreeSet<&[u8]>)], what: &str) -> Vec<String> {
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
