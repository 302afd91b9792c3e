//! Linker scripts among the inputs: the files that they name, and the symbols that they need.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

// Files of scripts such as `libc.so`: those that INPUT, GROUP, AS_NEEDED and INCLUDE name. All
// other commands concern only the host linker and are skipped.

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

// Symbols that a linker script needs: those of EXTERN and ENTRY, and those in the expressions of
// its assignments. Linkers search archives for them. Extra names are harmless, because a name
// counts only if an archive member defines it.

/// The symbols that a script needs.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct ScriptSymbols {
    /// The symbols of EXTERN.
    pub external: Vec<String>,
    /// The symbols of ENTRY.
    pub entries: Vec<String>,
    /// The symbols in the expressions of assignments.
    pub assigned: Vec<String>,
    /// The symbols in the conditions of ASSERT.
    pub asserted: Vec<String>,
    /// Symbols that PROVIDE defines if they are needed, each with a symbol in its expression.
    pub provided: Vec<(String, String)>,
}

/// Returns the symbols of the script `text`.
pub(super) fn symbols_of(text: &[u8]) -> ScriptSymbols {
    let mut symbols = ScriptSymbols::default();
    let tokens = symbol_tokens(text);
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let opens = matches!(tokens.get(at + 1), Some(Token::Sign(b'(')));
        at += 1;
        match token {
            Token::Name(b"EXTERN") if opens => {
                let end = closing(&tokens, at);
                symbols.external.extend(plain_names(&tokens[at..end]));
                at = end;
            }
            Token::Name(b"ENTRY") if opens => {
                let end = closing(&tokens, at);
                symbols.entries.extend(plain_names(&tokens[at..end]));
                at = end;
            }
            Token::Name(b"ASSERT") if opens => {
                let end = closing(&tokens, at);
                symbols.asserted.extend(names(&tokens[at..end]));
                at = end;
            }
            Token::Name(word) if opens && OTHER_LISTS.contains(word) => at = closing(&tokens, at),
            Token::Name(word @ (b"PROVIDE" | b"PROVIDE_HIDDEN" | b"HIDDEN")) if opens => {
                let end = closing(&tokens, at);
                if let [
                    Token::Sign(b'('),
                    Token::Name(symbol),
                    Token::Assign,
                    expression @ ..,
                ] = &tokens[at..end]
                {
                    if *word == b"HIDDEN" {
                        symbols.assigned.extend(names(expression));
                    } else {
                        symbols.provided.extend(
                            names(expression)
                                .into_iter()
                                .map(|name| (text_of(symbol), name)),
                        );
                    }
                }
                at = end;
            }
            Token::Assign => {
                let rest = &tokens[at..];
                let end = rest
                    .iter()
                    .position(|token| matches!(token, Token::End))
                    .unwrap_or(rest.len());
                symbols.assigned.extend(names(&rest[..end]));
                at += end;
            }
            _ => {}
        }
    }
    symbols
}

/// Commands whose lists contain names of files, formats and the like instead of symbols.
const OTHER_LISTS: [&[u8]; 9] = [
    b"INPUT",
    b"GROUP",
    b"SEARCH_DIR",
    b"OUTPUT",
    b"OUTPUT_FORMAT",
    b"OUTPUT_ARCH",
    b"STARTUP",
    b"TARGET",
    b"REGION_ALIAS",
];

/// Functions whose arguments are names of sections and memory regions, or symbols that need not
/// exist.
const OF_OTHER_NAMES: [&[u8]; 9] = [
    b"SIZEOF",
    b"ADDR",
    b"LOADADDR",
    b"ALIGNOF",
    b"DEFINED",
    b"ORIGIN",
    b"LENGTH",
    b"CONSTANT",
    b"SEGMENT_START",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'t> {
    Name(&'t [u8]),
    /// `=`, also as a part of `+=` and the like.
    Assign,
    /// `;`, `{` or `}`.
    End,
    Sign(u8),
}

/// Returns the index after the parenthesis that closes the one at `at`.
fn closing(tokens: &[Token<'_>], at: usize) -> usize {
    let mut depth = 0usize;
    for (index, token) in tokens.iter().enumerate().skip(at) {
        match token {
            Token::Sign(b'(') => depth += 1,
            Token::Sign(b')') if depth <= 1 => return index + 1,
            Token::Sign(b')') => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

fn plain_names(tokens: &[Token<'_>]) -> Vec<String> {
    let name = |token: &Token<'_>| match token {
        Token::Name(name) => Some(text_of(name)),
        _ => None,
    };
    tokens.iter().filter_map(name).collect()
}

/// Returns the symbols in an expression.
fn names(tokens: &[Token<'_>]) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let calls = matches!(tokens.get(at + 1), Some(Token::Sign(b'(')));
        at += 1;
        match token {
            Token::Name(function) if calls && OF_OTHER_NAMES.contains(function) => {
                at = closing(tokens, at)
            }
            Token::Name(name) if !calls && *name != b"." && !name[0].is_ascii_digit() => {
                found.push(text_of(name))
            }
            _ => {}
        }
    }
    found
}

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Splits a script into names, with or without quotes, and punctuation. Drops comments.
fn symbol_tokens(text: &[u8]) -> Vec<Token<'_>> {
    let mut out = Vec::new();
    let mut rest = text;
    while let [first, after @ ..] = rest {
        rest = if let Some(comment) = rest.strip_prefix(b"/*") {
            let end = comment
                .windows(2)
                .position(|two| two == b"*/")
                .map_or(comment.len(), |at| at + 2);
            &comment[end..]
        } else if *first == b'"' {
            let end = after
                .iter()
                .position(|byte| *byte == b'"')
                .unwrap_or(after.len());
            out.extend((end > 0).then_some(Token::Name(&after[..end])));
            after.get(end + 1..).unwrap_or_default()
        } else if in_name(first) {
            let end = rest
                .iter()
                .position(|byte| !in_name(byte))
                .unwrap_or(rest.len());
            out.push(Token::Name(&rest[..end]));
            &rest[end..]
        } else if let Some(compared) = [b"==", b"!=", b"<=", b">="]
            .iter()
            .find_map(|two| rest.strip_prefix(&two[..]))
        {
            compared
        } else {
            match first {
                b'=' => out.push(Token::Assign),
                b';' | b'{' | b'}' => out.push(Token::End),
                sign if !sign.is_ascii_whitespace() => out.push(Token::Sign(*sign)),
                _ => {}
            }
            after
        };
    }
    out
}

fn in_name(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_.$@".contains(byte) || !byte.is_ascii()
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

    fn symbols_of(text: &str) -> ScriptSymbols {
        super::symbols_of(text.as_bytes())
    }

    #[test]
    fn symbols_of_lists_and_assignments() {
        let found = symbols_of(
            "EXTERN(a \"b c\") EXTERN ( d, e ) ENTRY(start) /* EXTERN(no) */ x = y; \"z\" += f+0x10*MAX(g, h) ; i=j;\n\
                        HIDDEN(k = l); ASSERT(m < n, \"text\") INPUT(o=p.o) SEARCH_DIR(\"=/usr/lib\")",
        );
        assert_eq!(found.external, ["a", "b c", "d", "e"]);
        assert_eq!(found.entries, ["start"]);
        assert_eq!(found.assigned, ["y", "f", "g", "h", "j", "l"]);
        assert_eq!(found.asserted, ["m", "n", "text"]);
        assert_eq!(found.provided, []);
    }

    #[test]
    fn symbols_of_provide_are_needed_only_with_its_symbol() {
        let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        let found = symbols_of("PROVIDE(alias = f); PROVIDE_HIDDEN(end = . + g);");
        assert_eq!(found.provided, [pair("alias", "f"), pair("end", "g")]);
        assert_eq!(found.assigned, [] as [&str; 0]);
    }

    #[test]
    fn section_names_and_comparisons_are_not_symbols() {
        let text = "SECTIONS { . = ALIGN(8); .text : { *(.text .text.*) PROVIDE(etext = .); len = SIZEOF(.data) + ADDR(.bss); } =0x90 }\n\
                    VERSION { V1 { global: f*; local: *; }; } q = DEFINED(r) ? 1 : (s == t);";
        assert_eq!(symbols_of(text).assigned, ["s", "t"]);
        for end in 0..text.len() {
            symbols_of(&text[..end]);
        }
    }
}
