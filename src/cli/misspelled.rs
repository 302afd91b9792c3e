//! Warns of misspelled offld options on a link's command line. The linker gets such arguments, and
//! its error does not mention offld.

use super::help::spelling;
use crate::args::{ArgKind, ArgumentList, Dashes, OptionRow, Role, Scope, own_rows};
use crate::sys::shell::Shell;

/// Prefixes of option names that no linker uses.
const OURS: [&str; 3] = ["wrapper-", "offld-", "offload-"];

/// Warns of each misspelled option and suggests the correct one.
pub(super) fn warn(ledger: &ArgumentList, shell: &Shell) {
    for arg in ledger
        .args()
        .iter()
        .filter(|arg| matches!(arg.kind, ArgKind::Unknown))
    {
        let word = ledger
            .tokens()
            .get(arg.tokens.start)
            .and_then(|token| token.to_str());
        if let Some(meant) = word.and_then(|word| nearest_option(word, ledger.role())) {
            let word = word.unwrap_or_default();
            shell.warn(&format!(
                "unknown offld option `{word}` passed to the linker; did you mean `{meant}`?"
            ));
        }
    }
}

/// Returns the option most similar to `word`, as the help spells it, if it is similar enough.
fn nearest_option(word: &str, role: Role) -> Option<String> {
    let dashes = word.strip_prefix("--").map(|name| (Dashes::Two, name));
    let (dashes, name) =
        dashes.or_else(|| word.strip_prefix('-').map(|name| (Dashes::One, name)))?;
    let name = name.split('=').next()?;
    let rows = own_rows().iter().filter(|row| {
        !row.help.is_empty() && (role == Role::Wrapper || row.scope == Scope::Everywhere)
    });
    let distance = |row: &&OptionRow| strsim::damerau_levenshtein(name, row.name);
    let nearest = rows.min_by_key(distance)?;
    // With one dash, most arguments are a linker's letter with a value.
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
    fn misspelled_offld_options_are_detected_and_linker_options_are_not() {
        let wrapper = |word| nearest_option(word, Role::Wrapper);
        assert_eq!(
            wrapper("--wrapper-vebose").as_deref(),
            Some("--wrapper-verbose")
        );
        assert_eq!(
            wrapper("--wrapper-job=4").as_deref(),
            Some("--wrapper-jobs=<value>")
        );
        assert_eq!(
            wrapper("--wrapper-jobs").as_deref(),
            Some("--wrapper-jobs=<value>")
        );
        assert_eq!(wrapper("-wrapper-why").as_deref(), Some("--wrapper-why"));
        assert_eq!(
            wrapper("--offld-clangg=x").as_deref(),
            Some("--offld-clang=<value>")
        );
        for others in [
            "--gc-sections",
            "-soname",
            "--compress-debug-sections=zlib",
            "-lv",
            "--hash-style=gnu",
            "--verbose",
            "-z",
            "--",
        ] {
            assert_eq!(wrapper(others), None, "{others}");
        }
        assert_eq!(
            nearest_option("--wrapper-vebose", Role::Ld).as_deref(),
            Some("--wrapper-verbose")
        );
    }
}
