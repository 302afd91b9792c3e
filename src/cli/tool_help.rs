//! `--help` and `--version` of the emulated tools, and suggestions for misspelled offld options, both
//! from the option table.

use std::io::Write;

use anyhow::Result;

use crate::args::{ArgKind, ArgumentList, Dashes, OptionRow, Role, Scope, Shape, own_rows};
use offld_system::shell::Shell;
use offload_formats::model::{LLVM_MAJOR, LLVM_RELEASE};

/// Prints `--help` or `--help-hidden` to stdout.
pub(super) fn linker(role: Role, hidden: bool, shell: &Shell) -> Result<()> {
    let name = name(role);
    let mut text = format!(
        "OVERVIEW: {name} (offld): links the device code embedded in host objects, registers it with its runtime, and runs the host link.\n\n\
         USAGE: {name} [options] <linker arguments>\n\nOPTIONS:\n"
    );
    for row in rows(role).filter(|row| hidden || !row.help.is_empty()) {
        text.push_str(&format!("  {:<40} {}\n", spelling(row), row.help));
    }
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(shell.stdout_style().prose(&text).as_bytes());
    Ok(())
}

/// Prints the help or version of an emulated LLVM tool to stdout.
pub(super) fn of_llvm(text: &str, shell: &Shell) {
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(shell.stdout_style().prose(text).as_bytes());
}

/// Every option of this tool as its help spells it, with its help text, for the manual page.
pub(super) fn options(role: Role) -> Vec<(String, String)> {
    const EARLIER: &str = "Accepted for compatibility with earlier LLVM releases.";
    let help = |row: &OptionRow| {
        if row.help.is_empty() {
            EARLIER
        } else {
            row.help
        }
    };
    let mut all: Vec<(String, String)> = rows(role)
        .map(|row| (spelling(row), help(row).to_owned()))
        .collect();
    all.sort();
    all.dedup_by(|next, previous| next.0 == previous.0);
    all
}

/// The options of this tool, including those of earlier releases.
fn rows(role: Role) -> impl Iterator<Item = &'static OptionRow> {
    own_rows()
        .iter()
        .filter(move |row| role == Role::Wrapper || row.scope == Scope::Everywhere)
}

/// Prints `--version`. `ld.offld` mentions `GNU ld`, because build systems search for it to
/// determine the linker's options.
pub(super) fn version(role: Role) -> Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let line = match role {
        Role::Wrapper => {
            format!("offld {version} clang-linker-wrapper version {LLVM_MAJOR} (compatible)\n")
        }
        Role::Ld => format!("offld {version} (compatible with GNU ld)\n"),
    };
    let _ = std::io::stdout().write_all(line.as_bytes());
    Ok(())
}

/// The text of `--version` for a tool of LLVM 22. Scripts read the LLVM release after the word
/// `version`.
pub(super) fn llvm_version(tool: &str) -> String {
    format!(
        "offld {tool} version {LLVM_RELEASE} (offld {})\n",
        env!("CARGO_PKG_VERSION")
    )
}

fn name(role: Role) -> &'static str {
    match role {
        Role::Wrapper => "clang-linker-wrapper",
        Role::Ld => "ld.offld",
    }
}

/// An option as the help shows it: `--opt=<value>`, or another form that matches its operand.
pub(super) fn spelling(row: &OptionRow) -> String {
    let dashes = if row.dashes == Dashes::One { "-" } else { "--" };
    let value = match row.shape {
        Shape::Flag => "",
        Shape::Separate | Shape::Letter | Shape::LetterNumber => " <value>",
        _ => "=<value>",
    };
    format!("{dashes}{}{value}", row.name)
}

/// Prefixes of option names that no linker uses.
const OURS: [&str; 3] = ["wrapper-", "offld-", "offload-"];

/// Warns of each misspelled option and suggests the correct one.
pub(super) fn warn_of_misspelled(arguments: &ArgumentList, shell: &Shell) {
    for arg in arguments
        .args()
        .iter()
        .filter(|arg| matches!(arg.kind, ArgKind::Unknown))
    {
        let word = arguments
            .tokens()
            .get(arg.tokens.start)
            .and_then(|token| token.to_str());
        if let Some(meant) = word.and_then(|word| nearest_option(word, arguments.role())) {
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
