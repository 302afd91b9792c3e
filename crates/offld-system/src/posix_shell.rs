//! Words of a POSIX shell: split, quoted for scripts, and quoted for messages. This module runs no
//! shell.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use offload_formats::model::printable;

/// Splits `text` by a shell's rules for quotes and backslashes. Nothing else is special, and no
/// variable is replaced. The crate `shlex` would drop words that begin with `#`.
///
/// # Errors
/// A description of the syntax error.
pub(crate) fn split(text: &OsStr) -> Result<Vec<OsString>, &'static str> {
    let mut words = Vec::new();
    let mut word: Option<Vec<u8>> = None;
    let mut bytes = text.as_bytes().iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b' ' | b'\t' | b'\n' => words.extend(word.take()),
            b'\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or("unclosed single quote (')")? {
                        b'\'' => break,
                        other => word.push(other),
                    }
                }
            }
            b'"' => {
                let word = word.get_or_insert_default();
                loop {
                    match bytes.next().ok_or("unclosed double quote (\")")? {
                        b'"' => break,
                        b'\\' => match bytes.next().ok_or("unclosed double quote (\")")? {
                            b'\n' => {}
                            special @ (b'"' | b'\\' | b'$' | b'`') => word.push(special),
                            other => word.extend([b'\\', other]),
                        },
                        other => word.push(other),
                    }
                }
            }
            b'\\' => match bytes.next().ok_or("nothing follows the last backslash")? {
                b'\n' => {}
                other => word.get_or_insert_default().push(other),
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Ok(words.into_iter().map(OsString::from_vec).collect())
}

/// Quotes `word`, which may contain any bytes.
pub(crate) fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => out.extend_from_slice(br"'\''"),
            other => out.push(*other),
        }
    }
    out.push(b'\'');
    out
}

/// Quotes `word` if a shell would otherwise change it.
pub fn quoted_if_needed(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=./,:@%".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        word.to_vec()
    } else {
        quoted(word)
    }
}

/// The command for a POSIX shell: `"/usr/bin/ld" -o 'o u t' a.o`.
pub fn command_line(program: &Path, args: &[OsString]) -> String {
    let mut text = double_quoted(program.as_os_str());
    for arg in args {
        text.push(' ');
        text.push_str(&shown(arg));
    }
    text
}

/// `text` as one word for a POSIX shell: in single quotes if it contains a character that is
/// special there.
pub fn shown(text: &OsStr) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-+=./,:@%^".contains(c) || !c.is_ascii();
    match verbatim(text) {
        Some(text) if !text.is_empty() && text.chars().all(plain) => text.to_owned(),
        Some(text) => format!("'{}'", text.replace('\'', r"'\''")),
        None => escaped(text),
    }
}

fn double_quoted(text: &OsStr) -> String {
    let Some(text) = verbatim(text) else {
        return escaped(text);
    };
    let mut out = String::from('"');
    for c in text.chars() {
        if matches!(c, '"' | '\\' | '$' | '`') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

/// `text`, if a terminal shows exactly the bytes that a shell must get.
fn verbatim(text: &OsStr) -> Option<&str> {
    text.to_str()
        .filter(|text| matches!(printable(text), Cow::Borrowed(_)))
}

/// `$'…'` with escapes, which shells read as the original bytes.
fn escaped(text: &OsStr) -> String {
    let mut out = String::from("$'");
    for chunk in text.as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\'' | '\\' => out.extend(['\\', c]),
                _ if matches!(printable(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_)) => {
                    out.push(c)
                }
                _ => c
                    .encode_utf8(&mut [0; 4])
                    .bytes()
                    .for_each(|byte| out.push_str(&format!("\\{byte:03o}"))),
            }
        }
        chunk
            .invalid()
            .iter()
            .for_each(|byte| out.push_str(&format!("\\{byte:03o}")));
    }
    out.push('\'');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_like_a_shell() {
        let words = |text: &str| {
            split(OsStr::new(text)).map(|words| {
                words
                    .into_iter()
                    .map(|word| word.into_string().unwrap())
                    .collect()
            })
        };
        let expect = |text, expected: &[&str]| {
            assert_eq!(
                words(text),
                Ok(expected
                    .iter()
                    .map(|word| (*word).to_owned())
                    .collect::<Vec<_>>()),
                "{text}"
            )
        };
        expect(
            "srun -Q  -n1\t--mem={mem}M\n",
            &["srun", "-Q", "-n1", "--mem={mem}M"],
        );
        expect(
            r#"a 'b c'd "e 'f' $HOME \$ \" \x" "" '' g\ h\'"#,
            &["a", "b cd", r#"e 'f' $HOME $ " \x"#, "", "", "g h'"],
        );
        expect("#a $(b) *.c ~ a\\\nb", &["#a", "$(b)", "*.c", "~", "ab"]);
        expect("  ", &[]);
        for (text, wrong) in [
            ("a 'b", "single quote"),
            ("a \"b'", "double quote"),
            ("\"a\\", "double quote"),
            ("a\\", "backslash"),
        ] {
            assert!(words(text).unwrap_err().contains(wrong), "{text}");
        }
    }

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        assert_eq!(quoted(b"it's $x \xff\n"), b"'it'\\''s $x \xff\n'");
        assert_eq!(quoted(b"plain"), b"'plain'");
        assert_eq!(quoted_if_needed(b"/a/b-c.o"), b"/a/b-c.o");
        assert_eq!(quoted_if_needed(b"it's \xff"), b"'it'\\''s \xff'");
        assert_eq!(quoted_if_needed(b""), b"''");
    }

    #[test]
    fn f11_printed_commands_can_be_pasted() {
        let args: Vec<OsString> = ["-o", "o u t", "it's", "", "-L=/x", "a.o"]
            .map(OsString::from)
            .to_vec();
        assert_eq!(
            command_line(Path::new("/usr/bin/ld"), &args),
            r#""/usr/bin/ld" -o 'o u t' 'it'\''s' '' -L=/x a.o"#
        );
    }

    #[test]
    fn terminal_control_characters_are_escaped_without_changing_the_word() {
        let odd = OsStr::from_bytes(b"a\x1b[31m'\n\xffb");
        assert_eq!(shown(odd), r"$'a\033[31m\'\012\377b'");
        assert_eq!(
            shown(OsStr::new("gr\u{fc}n\u{9b}")),
            "$'gr\u{fc}n\\302\\233'"
        );
        assert_eq!(command_line(Path::new("/x\t/ld"), &[]), r"$'/x\011/ld'");
    }
}
