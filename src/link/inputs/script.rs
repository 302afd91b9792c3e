//! Linker scripts among the inputs, such as `libc.so`: the files that INPUT, GROUP, AS_NEEDED and
//! INCLUDE name. All other commands concern only the host linker and are skipped.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// An input or a search directory that a script names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ScriptEntry {
    /// A file or archive by its path.
    File(PathBuf),
    /// `-lname`.
    Library(OsString),
    /// A directory to search (`SEARCH_DIR`).
    Folder(PathBuf),
    /// Another script, which is read at this point (`INCLUDE`).
    Script(PathBuf),
}

/// Returns the entries of the script `text`, in order.
pub(super) fn entries(text: &[u8]) -> Vec<ScriptEntry> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let (mut braces, mut at) = (0usize, 0);
    while let Some(token) = tokens.get(at) {
        at += 1;
        let opens = tokens.get(at) == Some(&&b"("[..]);
        match *token {
            b"{" => braces += 1,
            b"}" => braces = braces.saturating_sub(1),
            // Blocks may contain INCLUDE as well.
            b"INCLUDE" => {
                found.extend(tokens.get(at).map(|name| ScriptEntry::Script(path(name))));
                at += 1;
            }
            b"INPUT" | b"GROUP" if braces == 0 && opens => at = list(&tokens, at + 1, &mut found),
            b"SEARCH_DIR" if braces == 0 && opens => {
                found.extend(tokens.get(at + 1).map(|dir| ScriptEntry::Folder(path(dir))));
                at += 2;
            }
            _ => {}
        }
    }
    found
}

/// Reads a list up to its closing parenthesis and flattens nested lists (AS_NEEDED). Returns the
/// index of the token after it.
fn list(tokens: &[&[u8]], mut at: usize, found: &mut Vec<ScriptEntry>) -> usize {
    let mut depth = 1usize;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match *token {
            b"(" => depth += 1,
            b")" if depth == 1 => break,
            b")" => depth -= 1,
            b"," | b"AS_NEEDED" => {}
            name => found.push(match name.strip_prefix(b"-l") {
                Some(library) => ScriptEntry::Library(OsStr::from_bytes(library).to_owned()),
                None => ScriptEntry::File(path(name)),
            }),
        }
    }
    at
}

/// Converts a name, which need not be UTF-8.
fn path(name: &[u8]) -> PathBuf {
    OsStr::from_bytes(name).into()
}

/// Splits a script into words, quoted names, and the punctuation of lists and blocks. Drops
/// comments.
fn tokens(text: &[u8]) -> Vec<&[u8]> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.first() {
        let (token, after) = if let Some(comment) = rest.strip_prefix(b"/*") {
            let end = comment
                .windows(2)
                .position(|two| two == b"*/")
                .map_or(comment.len(), |at| at + 2);
            (None, &comment[end..])
        } else if let Some(quoted) = rest.strip_prefix(b"\"") {
            let end = quoted
                .iter()
                .position(|byte| *byte == b'"')
                .unwrap_or(quoted.len());
            (
                Some(&quoted[..end]),
                quoted.get(end + 1..).unwrap_or_default(),
            )
        } else if first.is_ascii_whitespace() || *first == b';' {
            (None, &rest[1..])
        } else if b"(){},".contains(first) {
            (Some(&rest[..1]), &rest[1..])
        } else {
            let ends = |byte: &u8| byte.is_ascii_whitespace() || b"(){},;\"".contains(byte);
            let end = rest.iter().position(ends).unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        };
        out.extend(token);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_c_library_is_a_script() {
        let text = "/* GNU ld script */\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/x/libc.so.6 /usr/lib/libc_nonshared.a AS_NEEDED ( /lib64/ld.so -lm ) )";
        let file = |name: &str| ScriptEntry::File(name.into());
        let expected = [
            file("/lib/x/libc.so.6"),
            file("/usr/lib/libc_nonshared.a"),
            file("/lib64/ld.so"),
            ScriptEntry::Library("m".into()),
        ];
        assert_eq!(entries(text.as_bytes()), expected);
    }

    #[test]
    fn quoted_names_commas_and_blocks() {
        let text = "SECTIONS { .text : { INPUT(no.o) } } INPUT(\"a b.o\", c.o) SEARCH_DIR(=/x);";
        assert_eq!(
            entries(text.as_bytes()),
            [
                ScriptEntry::File("a b.o".into()),
                ScriptEntry::File("c.o".into()),
                ScriptEntry::Folder("=/x".into())
            ]
        );
        let included = "INCLUDE a.ld SECTIONS { INCLUDE \"b c.ld\" }";
        assert_eq!(
            entries(included.as_bytes()),
            [
                ScriptEntry::Script("a.ld".into()),
                ScriptEntry::Script("b c.ld".into())
            ]
        );
        assert_eq!(
            entries(b"INPUT ( unclosed"),
            [ScriptEntry::File("unclosed".into())]
        );
        assert_eq!(entries(b"/* open"), []);
        assert_eq!(
            entries(b"INPUT(k\xff.o)"),
            [ScriptEntry::File(path(b"k\xff.o"))]
        );
    }
}
