//! Words of a link's command line that look like options of offld, but are none: they go to the linker, whose error says nothing of
//! us.

use super::help::spelling;
use crate::args::{ArgKind, Dashes, Ledger, OptionRow, Role, Scope, own_rows};
use crate::sys::shell::Shell;

/// Names that no linker has options with.
const OURS: [&str; 3] = ["wrapper-", "offld-", "offload-"];

/// A warning for each such word, with the option that it was meant to be.
pub(super) fn warn(ledger: &Ledger, shell: &Shell) {
    for arg in ledger.args().iter().filter(|arg| matches!(arg.kind, ArgKind::Unknown)) {
        let word = ledger.tokens().get(arg.tokens.start).and_then(|token| token.to_str());
        if let Some(meant) = word.and_then(|word| meant(word, ledger.role())) {
            let word = word.unwrap_or_default();
            shell.warn(&format!("`{word}` is no option of offld and goes to the linker; did you mean `{meant}`?"));
        }
    }
}

/// The option that `word` is nearly, as the help spells it.
fn meant(word: &str, role: Role) -> Option<String> {
    let dashes = word.strip_prefix("--").map(|name| (Dashes::Two, name));
    let (dashes, name) = dashes.or_else(|| word.strip_prefix('-').map(|name| (Dashes::One, name)))?;
    let name = name.split('=').next()?;
    let rows = own_rows().iter().filter(|row| !row.help.is_empty() && (role == Role::Wrapper || row.scope == Scope::Everywhere));
    let distance = |row: &&OptionRow| strsim::damerau_levenshtein(name, row.name);
    let nearest = rows.min_by_key(distance)?;
    // With one dash most words are linkers' letters with values.
    let ours = dashes == Dashes::Two && OURS.iter().any(|start| name.starts_with(start));
    let near = match distance(&nearest) {
        0 => true,
        1 | 2 => dashes == Dashes::Two && name.len() > 6,
        far => ours && far <= name.len() / 2,
    };
    near.then(|| spelling(nearest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_nearly_ours_is_and_what_linkers_have_is_not() {
        let wrapper = |word| meant(word, Role::Wrapper);
        assert_eq!(wrapper("--wrapper-vebose").as_deref(), Some("--wrapper-verbose"));
        assert_eq!(wrapper("--wrapper-job=4").as_deref(), Some("--wrapper-jobs=<value>"));
        assert_eq!(wrapper("--wrapper-jobs").as_deref(), Some("--wrapper-jobs=<value>"));
        assert_eq!(wrapper("-wrapper-why").as_deref(), Some("--wrapper-why"));
        assert_eq!(wrapper("--offld-clangg=x").as_deref(), Some("--offld-clang=<value>"));
        for others in
            ["--gc-sections", "-soname", "--compress-debug-sections=zlib", "-lv", "--hash-style=gnu", "--verbose", "-z", "--"]
        {
            assert_eq!(wrapper(others), None, "{others}");
        }
        assert_eq!(meant("--wrapper-vebose", Role::Ld).as_deref(), Some("--wrapper-verbose"));
    }
}
