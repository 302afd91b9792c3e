//! Quoting for a POSIX shell, for scripts that offld writes. This module runs no shell.

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
pub(crate) fn quoted_if_needed(word: &[u8]) -> Vec<u8> {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-+=./,:@%".contains(byte);
    if !word.is_empty() && word.iter().all(plain) {
        word.to_vec()
    } else {
        quoted(word)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_back_what_was_quoted() {
        assert_eq!(quoted(b"it's $x \xff\n"), b"'it'\\''s $x \xff\n'");
        assert_eq!(quoted(b"plain"), b"'plain'");
        assert_eq!(quoted_if_needed(b"/a/b-c.o"), b"/a/b-c.o");
        assert_eq!(quoted_if_needed(b"it's \xff"), b"'it'\\''s \xff'");
        assert_eq!(quoted_if_needed(b""), b"''");
    }
}
