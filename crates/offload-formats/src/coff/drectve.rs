//! Linker directives in COFF objects: the text of `.drectve` sections, which linkers treat like
//! command-line options.

/// The directives that affect which objects are linked.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Directives {
    /// `/defaultlib:`, libraries to search after all others.
    pub default_libraries: Vec<String>,
    /// `/nodefaultlib:`.
    pub without_libraries: Vec<String>,
    /// `/include:`, symbols that must be defined.
    pub include: Vec<String>,
    /// `/alternatename:from=to`: `to` replaces `from` if `from` is undefined.
    pub alternate_names: Vec<(String, String)>,
}

/// Parses the text of one section. Other directives are skipped, because only the linker needs
/// them.
pub fn read(section: &[u8]) -> Directives {
    let text = section.strip_prefix(b"\xef\xbb\xbf").unwrap_or(section);
    let text = String::from_utf8_lossy(text);
    let mut all = Directives::default();
    for word in split_options(&text) {
        let Some(body) = word.strip_prefix(['/', '-']) else {
            continue;
        };
        let Some((name, value)) = body.split_once(':') else {
            continue;
        };
        let value = value.to_owned();
        match name.to_ascii_lowercase().as_str() {
            "defaultlib" => all.default_libraries.push(value),
            "nodefaultlib" | "disallowlib" => all.without_libraries.push(value),
            "include" => all.include.push(value),
            "alternatename" => {
                all.alternate_names.extend(
                    value
                        .split_once('=')
                        .map(|(from, to)| (from.to_owned(), to.to_owned())),
                );
            }
            _ => {}
        }
    }
    all
}

/// Splits text at white space and zeros outside of double quotes, and removes the quotes.
fn split_options(text: &str) -> Vec<String> {
    let mut options = vec![String::new()];
    let mut quoted = false;
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' | '\t' | '\r' | '\n' | '\0' if !quoted => options.push(String::new()),
            _ => options
                .iter_mut()
                .last()
                .into_iter()
                .for_each(|word| word.push(letter)),
        }
    }
    options.retain(|word| !word.is_empty());
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_are_read_as_linkers_do() {
        let text = b"\xef\xbb\xbf   /DEFAULTLIB:\"my lib.lib\" -defaultlib:uuid /EXPORT:f,DATA /include:_g \
                     /alternatename:__a=__b /FAILIFMISMATCH:\"x=1\" /nodefaultlib:libcmt /include\0 junk";
        let read = read(text);
        assert_eq!(read.default_libraries, ["my lib.lib", "uuid"]);
        assert_eq!(read.without_libraries, ["libcmt"]);
        assert_eq!(read.include, ["_g"]);
        assert_eq!(read.alternate_names, [("__a".to_owned(), "__b".to_owned())]);
        assert_eq!(
            super::read(b"\xff\xfe\"open /include:x"),
            Directives::default()
        );
    }
}
