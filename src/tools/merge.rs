//! Files are put together: of a host part and the parts of devices that `split` has made of one
//! file (`parts`), or of whole builds that were each compiled for other devices: a file of each
//! (`builds`), a wheel (`wheels`) or a folder (`folders`).

pub(crate) mod builds;
pub(crate) mod folders;
pub(crate) mod parts;
mod wheels;

use std::collections::BTreeSet;

use crate::model::printable_name;

/// How many are told one by one.
const MOST: usize = 20;

/// What each of the builds after the first lacks of the names in that, and what they have beside
/// these. A build is what people call it, and the names in it; `what` is what has these names.
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
