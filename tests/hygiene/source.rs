//! A simple parser of Rust sources for `hygiene`: files, their code without comments and literals,
//! and the paths in it.

use std::path::{Path, PathBuf};

/// A source file.
pub(crate) struct Source {
    /// The path, relative to the root of the project.
    pub path: String,
    /// The whole text.
    pub text: String,
    /// The text with comments and literals blanked. The lines stay.
    pub bare: String,
}

impl Source {
    /// The module in `LAYERS`: `link::scan` for `src/link/scan/object.rs`. The files of another
    /// program form a module with its name. `None` for a file of another crate.
    pub(crate) fn room(&self) -> Option<String> {
        let inside = self.path.strip_prefix("src/")?;
        Some(room_of(
            &inside
                .trim_end_matches(".rs")
                .trim_end_matches("/mod")
                .replace('/', "::"),
        ))
    }

    /// Whether the file only has unit tests.
    fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or_default();
        self.path.contains("/tests/") || name == "tests.rs" || name == "reference.rs"
    }

    /// The bare text without the unit tests at its end.
    pub(crate) fn product(&self) -> &str {
        self.bare
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default()
    }

    pub(crate) fn line(&self, at: usize) -> String {
        format!("{}:{}", self.path, self.bare[..at].lines().count().max(1))
    }
}

/// The module in `LAYERS` of a path below `crate::`. In `link`, `tools` and `bin`, each submodule
/// counts separately.
pub(crate) fn room_of(path: &str) -> String {
    let mut parts = path.split("::");
    let first = parts.next().unwrap_or_default();
    match parts.next() {
        Some(second) if matches!(first, "link" | "tools" | "bin") => format!("{first}::{second}"),
        _ => first.to_owned(),
    }
}

/// All Rust files of the directories, in order of their paths.
pub(crate) fn sources(folders: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut waiting: Vec<PathBuf> = folders.iter().map(|folder| root.join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            let inside = std::fs::read_dir(&path)
                .unwrap()
                .map(|entry| entry.unwrap().path());
            // Skip build output of the examples.
            waiting.extend(inside.filter(|path| !path.join("CACHEDIR.TAG").exists()));
        } else if path.extension().is_some_and(|end| end == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let path = path
                .strip_prefix(root)
                .unwrap()
                .to_string_lossy()
                .into_owned();
            found.push(Source {
                path,
                bare: bare(&text),
                text,
            });
        }
    }
    assert!(!found.is_empty(), "no source in {folders:?}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

/// The sources of the product, without unit test files.
pub(crate) fn product() -> Vec<Source> {
    sources(&["src", "crates"])
        .into_iter()
        .filter(|source| !source.is_test())
        .collect()
}

/// Blanks comments, and string and character literals.
pub(crate) fn bare(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < chars.len() {
        let end = literal_end(&chars, at);
        if end == at {
            out.push(chars[at]);
            at += 1;
            continue;
        }
        // One space per character, quotes included, so that offsets in characters and the lines
        // stay the same.
        chars[at..end]
            .iter()
            .for_each(|c| out.push(if *c == '\n' { '\n' } else { ' ' }));
        at = end;
    }
    out
}

/// The end of the comment or literal that starts at `at`, or `at` if none starts there.
fn literal_end(chars: &[char], at: usize) -> usize {
    let rest = &chars[at..];
    let in_word = at > 0 && (chars[at - 1].is_alphanumeric() || chars[at - 1] == '_');
    let end_of = |from: usize, terminator: &[char]| {
        let found = rest[from..]
            .windows(terminator.len())
            .position(|window| window == terminator);
        found.map_or(chars.len(), |found| at + from + found + terminator.len())
    };
    match rest {
        ['/', '/', ..] => rest
            .iter()
            .position(|c| *c == '\n')
            .map_or(chars.len(), |end| at + end),
        ['/', '*', ..] => end_of(2, &['*', '/']),
        ['"', ..] => quoted_end(chars, at + 1),
        ['r' | 'b' | 'c', ..] if !in_word => {
            let prefix = rest
                .iter()
                .take_while(|c| matches!(c, 'r' | 'b' | 'c'))
                .count();
            let hashes = rest[prefix..].iter().take_while(|c| **c == '#').count();
            match rest.get(prefix + hashes) {
                Some('"') if rest[..prefix].contains(&'r') => {
                    let mut close = vec!['"'];
                    close.extend(std::iter::repeat_n('#', hashes));
                    end_of(prefix + hashes + 1, &close)
                }
                Some('"') if hashes == 0 => quoted_end(chars, at + prefix + 1),
                _ => at,
            }
        }
        ['\'', '\\', ..] => end_of(3, &['\'']),
        ['\'', _, '\'', ..] => at + 3,
        _ => at,
    }
}

fn quoted_end(chars: &[char], mut at: usize) -> usize {
    while at < chars.len() {
        match chars[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    chars.len()
}

/// The offsets at which `word` occurs as a whole word.
pub(crate) fn places<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = usize> + 't {
    let in_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |&at| {
            !text[..at].ends_with(in_word) && !text[at + word.len()..].starts_with(in_word)
        })
}

/// The paths of a `use` tree, or of a path in code, without `crate::`: `a::{self, b::C}` gives
/// `a::self` and `a::b::C`.
pub(crate) fn paths(text: &str) -> Vec<String> {
    let end = text
        .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .unwrap_or(text.len());
    let (head, rest) = text.split_at(end);
    if !rest.starts_with('{') || !(head.is_empty() || head.ends_with("::")) {
        return vec![head.trim_end_matches("::").to_owned()];
    }
    let mut depth = 0;
    let mut parts = vec![String::new()];
    for c in rest.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        match (c, depth) {
            (_, 0) => break,
            ('{', 1) => {}
            (',', 1) => parts.push(String::new()),
            _ => parts.last_mut().into_iter().for_each(|part| part.push(c)),
        }
    }
    let inner = parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty())
        .flat_map(paths);
    inner.map(|inner| format!("{head}{inner}")).collect()
}
