//! Arguments of a launcher: split like a POSIX shell does, without a shell, with the placeholders
//! filled in.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::sys::posix_shell::quoted_if_needed;

/// Splits `text` by a shell's rules for quotes and backslashes. Nothing else is special, and no
/// variable is replaced.
///
/// # Errors
/// A description of the syntax error.
pub(super) fn split(text: &OsStr) -> Result<Vec<OsString>, &'static str> {
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

/// Replaces each placeholder in braces (`{mem}`) in `word` by its value. Other braces stay.
pub(super) fn filled(word: &OsStr, values: &[(&str, String)]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let value = values
            .iter()
            .find_map(|(name, value)| Some((value, rest.strip_prefix(name.as_bytes())?)));
        if let Some((value, after)) = value {
            out.extend_from_slice(value.as_bytes());
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(out)
}

/// A path as a program gets it: quoted if the program passes its arguments to a shell.
pub(super) fn for_program(path: &Path, by_a_shell: bool) -> OsString {
    if by_a_shell {
        OsString::from_vec(quoted_if_needed(path.as_os_str().as_bytes()))
    } else {
        path.into()
    }
}

/// `name` with every character except letters, digits and `._-` replaced by `-`, and cut to 128
/// characters.
pub(super) fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(128)
        .collect()
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
    fn placeholders_are_replaced_and_other_braces_stay() {
        let values = [("{mem}", "{job}".to_owned()), ("{job}", "j".to_owned())];
        let filled = |word: &str| filled(OsStr::new(word), &values).into_string().unwrap();
        assert_eq!(filled("--mem={mem}M:{job}{job}"), "--mem={job}M:jj");
        assert_eq!(filled("{a} {{mem}} {mem {} }"), "{a} {{job}} {mem {} }");
    }

    #[test]
    fn any_characters_become_one_word() {
        assert_eq!(
            plain("offld-a b/\u{fc}.so-gfx90a:xnack+"),
            "offld-a-b--.so-gfx90a-xnack-"
        );
    }
}
