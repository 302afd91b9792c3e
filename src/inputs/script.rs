//! Linker scripts that are inputs (`libc.so` is one): the files that INPUT, GROUP, AS_NEEDED and INCLUDE name. The rest of the language
//! is the host linker's business and is passed over.

use std::path::PathBuf;

/// Something a script adds to the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A file.
    File(PathBuf),
    /// `-lname`.
    Library(String),
    /// A folder to search (`SEARCH_DIR`).
    Folder(PathBuf),
    /// Another script, read in this place (`INCLUDE`).
    Script(PathBuf),
}

/// What `text` names, in order.
pub fn entries(text: &str) -> Vec<Entry> {
    let tokens = tokens(text);
    let mut found = Vec::new();
    let (mut braces, mut at) = (0usize, 0);
    while let Some(token) = tokens.get(at) {
        at += 1;
        let opens = tokens.get(at).is_some_and(|next| next == "(");
        match token.as_str() {
            "{" => braces += 1,
            "}" => braces = braces.saturating_sub(1),
            // Allowed within blocks as well.
            "INCLUDE" => {
                found.extend(tokens.get(at).map(|name| Entry::Script(name.into())));
                at += 1;
            }
            "INPUT" | "GROUP" if braces == 0 && opens => at = list(&tokens, at + 1, &mut found),
            "SEARCH_DIR" if braces == 0 && opens => {
                found.extend(tokens.get(at + 1).map(|dir| Entry::Folder(dir.into())));
                at += 2;
            }
            _ => {}
        }
    }
    found
}

/// Reads a list up to its closing parenthesis; lists within it (AS_NEEDED) are flattened. Returns where to go on.
fn list(tokens: &[String], mut at: usize, found: &mut Vec<Entry>) -> usize {
    let mut depth = 1usize;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token.as_str() {
            "(" => depth += 1,
            ")" if depth == 1 => break,
            ")" => depth -= 1,
            "," | "AS_NEEDED" => {}
            name => found.push(match name.strip_prefix("-l") {
                Some(library) => Entry::Library(library.to_owned()),
                None => Entry::File(name.into()),
            }),
        }
    }
    at
}

/// Words, quoted names and the punctuation of lists and blocks; comments are dropped.
fn tokens(text: &str) -> Vec<String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let (token, after) = if let Some(comment) = rest.strip_prefix("/*") {
            (None, comment.split_once("*/").map_or("", |(_, after)| after))
        } else if let Some(quoted) = rest.strip_prefix('"') {
            let (name, after) = quoted.split_once('"').unwrap_or((quoted, ""));
            (Some(name), after)
        } else if first.is_whitespace() || first == ';' {
            (None, &rest[first.len_utf8()..])
        } else if "(){},".contains(first) {
            (Some(&rest[..1]), &rest[1..])
        } else {
            let end = rest.find(|c: char| c.is_whitespace() || "(){},;\"".contains(c)).unwrap_or(rest.len());
            (Some(&rest[..end]), &rest[end..])
        };
        out.extend(token.map(str::to_owned));
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
        let file = |name: &str| Entry::File(name.into());
        let expected =
            [file("/lib/x/libc.so.6"), file("/usr/lib/libc_nonshared.a"), file("/lib64/ld.so"), Entry::Library("m".into())];
        assert_eq!(entries(text), expected);
    }

    #[test]
    fn quoted_names_commas_and_blocks() {
        let text = "SECTIONS { .text : { INPUT(no.o) } } INPUT(\"a b.o\", c.o) SEARCH_DIR(=/x);";
        assert_eq!(entries(text), [Entry::File("a b.o".into()), Entry::File("c.o".into()), Entry::Folder("=/x".into())]);
        let included = "INCLUDE a.ld SECTIONS { INCLUDE \"b c.ld\" }";
        assert_eq!(entries(included), [Entry::Script("a.ld".into()), Entry::Script("b c.ld".into())]);
        assert_eq!(entries("INPUT ( unclosed"), [Entry::File("unclosed".into())]);
        assert_eq!(entries("/* open"), []);
    }
}
