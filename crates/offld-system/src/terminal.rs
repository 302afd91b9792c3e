//! Properties of the terminal (width, colours, characters beyond ASCII), and line wrapping.

use std::env;
use std::io::IsTerminal;

/// When text has colours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ColourChoice {
    /// On a terminal, unless `NO_COLOR` or `TERM=dumb` disables them.
    #[default]
    Auto,
    /// Everywhere.
    Always,
    /// Nowhere.
    Never,
}

impl ColourChoice {
    /// Whether a stream shows colours, depending on whether it is a terminal.
    pub(crate) fn shows(self, is_terminal: bool) -> bool {
        match self {
            ColourChoice::Auto => {
                is_terminal
                    && env::var_os("NO_COLOR").is_none()
                    && env::var_os("TERM").is_none_or(|name| name != "dumb")
            }
            ColourChoice::Always => true,
            ColourChoice::Never => false,
        }
    }
}

/// The form of text for a stream.
#[derive(Debug, Clone, Copy, Default)]
pub struct Style {
    /// Whether sizes are in bytes instead of K, M or G.
    pub bytes: bool,
    /// Whether kernels have the mangled names of the image instead of those of the source.
    pub mangled: bool,
    /// Number of characters that fit into a line; `None` without a limit.
    pub width: Option<usize>,
    /// Whether there are colours.
    pub colour: bool,
    /// Whether the text is limited to ASCII.
    pub ascii: bool,
}

impl Style {
    pub(crate) fn of_stdout(colour: ColourChoice) -> Style {
        let colour = colour.shows(std::io::stdout().is_terminal());
        Style {
            width: width(),
            colour,
            ascii: is_ascii(),
            ..Style::default()
        }
    }

    /// Removes the limit of the width if `wide` is set.
    pub fn wide(self, wide: bool) -> Style {
        Style {
            width: self.width.filter(|_| !wide),
            ..self
        }
    }

    /// The mark for omitted text.
    pub fn ellipsis(self) -> &'static str {
        if self.ascii { "..." } else { "…" }
    }

    /// Returns `text` in a colour, if there are colours.
    pub fn paint(self, colour: Colour, text: &str) -> String {
        if self.colour {
            format!("\x1b[{}m{text}\x1b[0m", colour.code())
        } else {
            text.to_owned()
        }
    }

    /// Wraps prose of offld itself, such as a help text, and limits it to ASCII if necessary.
    pub fn prose(self, text: &str) -> String {
        let wrapped = wrapped_prose(text, self.width);
        if self.ascii {
            wrapped.replace('…', "...")
        } else {
            wrapped
        }
    }
}

/// Colours by their meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Colour {
    /// Emphasis.
    Bold,
    /// Success.
    Good,
    /// Failure.
    Bad,
    /// An open question.
    Unsure,
}

impl Colour {
    fn code(self) -> &'static str {
        match self {
            Colour::Bold => "1",
            Colour::Good => "32",
            Colour::Bad => "31",
            Colour::Unsure => "33",
        }
    }
}

/// Width of the terminal on stdout, else the value of `COLUMNS`, else `None`.
pub fn width() -> Option<usize> {
    const NARROWEST: usize = 20;
    let of_terminal = console::Term::stdout()
        .size_checked()
        .map(|(_, columns)| usize::from(columns));
    let named = || env::var("COLUMNS").ok()?.parse().ok();
    of_terminal.or_else(named).map(|width| width.max(NARROWEST))
}

/// Whether the locale names a character set other than UTF-8. Without a locale, all characters are
/// allowed.
pub(super) fn is_ascii() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| env::var(name).ok().filter(|value| !value.is_empty()));
    set.is_some_and(|locale| {
        !locale
            .to_ascii_lowercase()
            .replace('-', "")
            .contains("utf8")
    })
}

/// Wraps each line of `text` that is longer than `width` at blanks. In a row with two columns,
/// continuation lines begin in the second column; otherwise they are indented by two characters. A
/// word that is longer than a line is broken after `/`, `,` or `=` only.
pub fn wrapped(text: &str, width: Option<usize>) -> String {
    each_line(text, width, 2)
}

/// Like [`wrapped`], for paragraphs: lines without indent continue without indent.
pub fn wrapped_prose(text: &str, width: Option<usize>) -> String {
    each_line(text, width, 0)
}

fn each_line(text: &str, width: Option<usize>, margin: usize) -> String {
    let Some(width) = width else {
        return text.to_owned();
    };
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (body, end) = line
            .strip_suffix('\n')
            .map_or((line, ""), |body| (body, "\n"));
        wrap(
            body,
            width,
            if body.starts_with(' ') { 2 } else { margin },
            &mut out,
        );
        out.push_str(end);
    }
    out
}

/// Appends one line. Continuation lines are indented by `indent` more characters.
fn wrap(line: &str, width: usize, indent: usize, out: &mut String) {
    if shown_width(line) <= width {
        return out.push_str(line);
    }
    let start = line.chars().take_while(|c| *c == ' ').count();
    let hanging = second_column(line, width * 3 / 5).unwrap_or((start + indent).min(width / 2));
    let mut at = 0;
    let mut first = true;
    for word in words(line, width.saturating_sub(hanging)) {
        let (text, blanks) = word;
        let length = shown_width(text);
        if !first && at + length > width {
            out.truncate(out.trim_end_matches(' ').len());
            out.push('\n');
            out.push_str(&" ".repeat(hanging));
            at = hanging;
        }
        out.push_str(text);
        out.push_str(&" ".repeat(blanks));
        at += length + blanks;
        first = text.is_empty() && first;
    }
    out.truncate(out.trim_end_matches(' ').len());
}

/// The words of a line, each with the number of blanks after it. Words longer than `limit` are
/// split.
fn words(line: &str, limit: usize) -> Vec<(&str, usize)> {
    let mut all = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let end = rest.find(' ').unwrap_or(rest.len());
        let end = with_unit(rest, end);
        let (word, after) = rest.split_at(end);
        let blanks = after.len() - after.trim_start_matches(' ').len();
        let mut parts = if shown_width(word) > limit {
            parts(word, limit)
        } else {
            vec![word]
        };
        let last = parts.pop().unwrap_or_default();
        all.extend(parts.into_iter().map(|part| (part, 0)));
        all.push((last, blanks));
        rest = &after[blanks..];
    }
    all
}

/// Returns the end of a word that ends at `end`, including the unit after a number: the two are not
/// separated.
fn with_unit(text: &str, end: usize) -> usize {
    const UNITS: [&str; 3] = ["s", "min", "h"];
    let (word, after) = text.split_at(end);
    let next = after
        .strip_prefix(' ')
        .and_then(|after| after.split(' ').next())
        .unwrap_or_default();
    if word.ends_with(|c: char| c.is_ascii_digit())
        && UNITS.contains(&next.trim_end_matches([',', ';', ')']))
    {
        end + 1 + next.len()
    } else {
        end
    }
}

/// Splits a word into parts of at most `limit` characters, as far as it has break points.
fn parts(word: &str, limit: usize) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut length, mut break_point) = (0, 0, None);
    for (at, c) in word.char_indices() {
        length += 1;
        if length > limit
            && let Some(end) = break_point.take()
        {
            parts.push(&word[start..end]);
            length = word[end..at].chars().count() + 1;
            start = end;
        }
        if matches!(c, '/' | ',' | '=') && at > start {
            break_point = Some(at + c.len_utf8());
        }
    }
    parts.push(&word[start..]);
    parts
}

/// Start of the last column of a row, if that is not beyond `limit`. The column starts after the
/// last run of two or more blanks behind the first word.
fn second_column(line: &str, limit: usize) -> Option<usize> {
    let first = line.trim_start_matches(' ');
    let start = line.len() - first.len();
    let ends = first.match_indices("  ").map(|(at, _)| {
        let rest = &first[at..];
        start + at + rest.len() - rest.trim_start_matches(' ').len()
    });
    ends.map(|end| shown_width(&line[..end]))
        .filter(|column| *column <= limit)
        .last()
}

/// Number of characters that a terminal shows for `text`: colour escapes have no width.
pub fn shown_width(text: &str) -> usize {
    let mut count = 0;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => drop(chars.find(|c| c.is_ascii_alphabetic())),
            _ => count += 1,
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_at_blanks_with_a_hanging_indent() {
        let wrap = |text: &str, width| wrapped(text, Some(width));
        assert_eq!(
            wrap("one two three four\n", 10),
            "one two\n  three\n  four\n"
        );
        assert_eq!(
            wrap("  --by LEVEL  Split by these levels", 24),
            "  --by LEVEL  Split by\n              these\n              levels"
        );
        assert_eq!(
            wrap("  -o  Write the new file here", 20),
            "  -o  Write the new\n      file here"
        );
        assert_eq!(wrap("short\n\nlines\n", 10), "short\n\nlines\n");
        assert_eq!(wrap("no end", 6), "no end");
        assert_eq!(wrap("it took 4.20 s, and", 14), "it took\n  4.20 s, and");
        assert_eq!(
            wrapped_prose("one two three\n  four five six\n", Some(10)),
            "one two\nthree\n  four\n    five\n    six\n"
        );
        assert_eq!(
            wrapped("a long line of words", None),
            "a long line of words"
        );
    }

    #[test]
    fn words_are_not_broken_but_paths_and_lists_are() {
        let wrap = |text: &str, width| wrapped(text, Some(width));
        assert_eq!(
            wrap("see supercalifragilistic words", 12),
            "see\n  supercalifragilistic\n  words"
        );
        assert_eq!(
            wrap("in /usr/lib/x86_64-linux-gnu/libm.so", 20),
            "in /usr/lib/\n  x86_64-linux-gnu/\n  libm.so"
        );
        assert_eq!(
            wrap("for sm_50,sm_60,sm_70,sm_80", 16),
            "for sm_50,sm_60,\n  sm_70,sm_80"
        );
    }

    #[test]
    fn colours_take_no_room() {
        let style = Style {
            colour: true,
            ..Style::default()
        };
        let text = style.paint(Colour::Good, "yes");
        assert_eq!(
            (text.as_str(), shown_width(&text)),
            ("\x1b[32myes\x1b[0m", 3)
        );
        let line = format!("{text} and no more");
        assert_eq!(wrapped(&line, Some(15)), line);
        assert_eq!(wrapped(&line, Some(14)), format!("{text} and no\n  more"));
        assert!(ColourChoice::Always.shows(false) && !ColourChoice::Never.shows(true));
        assert!(!ColourChoice::Auto.shows(false));
    }

    #[test]
    fn prose_is_ascii_if_the_style_is() {
        assert_eq!(
            Style {
                ascii: true,
                ..Style::default()
            }
            .prose("a…\n"),
            "a...\n"
        );
        assert_eq!(Style::default().prose("a…\n"), "a…\n");
    }
}
