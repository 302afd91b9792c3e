//! clang-offload-bundler's text bundle (docs/spec/containers.md 2.8): each code object between two
//! comment lines with its ID. The reader streams line by line, so that neither the file nor a code
//! object has to be in memory.
//!
//! ```text
//! EOL COMMENT " __CLANG_OFFLOAD_BUNDLE____START__ " ID EOL  bytes  EOL COMMENT " __CLANG_OFFLOAD_BUNDLE____END__ " ID EOL
//! ```

#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Read};

use super::{MAGIC, NewObject};
use crate::compose::{Item, Part, is_same, push_old};
use crate::error::Malformed;

/// The limit on line length: every ID is shorter. A longer line cannot be a marker, and its rest is
/// skipped.
const LONGEST_LINE: u64 = 64 << 10;

/// A code object of a text bundle, by its range in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// The ID, as stored.
    pub id: String,
    /// The offset of the contents.
    pub start: u64,
    /// The size of the contents in bytes.
    pub size: u64,
}

/// The marker line before a code object, with the line end that precedes it.
pub fn start_marker(comment: &str, id: &str) -> String {
    format!("\n{}{id}\n", marker(comment, "START"))
}

/// The marker line after a code object, with the line end that precedes it.
pub fn end_marker(comment: &str, id: &str) -> String {
    format!("\n{}{id}\n", marker(comment, "END"))
}

fn marker(comment: &str, which: &str) -> String {
    format!("{comment} {}__{which}__ ", String::from_utf8_lossy(MAGIC))
}

/// Returns the code objects in `input`, in order. Data outside of them is ignored, so a file
/// without markers has none.
///
/// Unlike LLVM's reader, this one accepts a marker at the start of the file, CR LF line ends, and
/// nested text bundles. A start marker without an end marker is an error, while LLVM 22 writes its
/// own memory to the output (docs/spec/faults.md B7).
pub fn scan(comment: &str, mut input: impl BufRead) -> io::Result<Vec<Span>> {
    let mut scan = Scan {
        start: marker(comment, "START").into_bytes(),
        end: marker(comment, "END").into_bytes(),
        open: Vec::new(),
        found: Vec::new(),
    };
    let mut line = Vec::new();
    let mut at = 0;
    let mut before = Ending::None;
    loop {
        line.clear();
        let len = (&mut input)
            .take(LONGEST_LINE)
            .read_until(b'\n', &mut line)? as u64;
        if len == 0 {
            break;
        }
        scan.line(&line, at, before)?;
        at += len;
        before = Ending::of(&line);
        if before == Ending::None && len == LONGEST_LINE {
            (at, before) = skip_line(&mut input, at)?;
        }
    }
    scan.finish()
}

/// The line end of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    None,
    Lf,
    CrLf,
}

impl Ending {
    fn of(line: &[u8]) -> Ending {
        match line {
            [.., b'\r', b'\n'] => Ending::CrLf,
            [.., b'\n'] => Ending::Lf,
            _ => Ending::None,
        }
    }

    fn size(self) -> u64 {
        match self {
            Ending::None => 0,
            Ending::Lf => 1,
            Ending::CrLf => 2,
        }
    }
}

/// Skips the rest of a line that is too long. Returns the offset of the next line and the line end
/// of this one.
fn skip_line(input: &mut impl BufRead, mut at: u64) -> io::Result<(u64, Ending)> {
    let mut last = 0;
    loop {
        let buffer = input.fill_buf()?;
        let Some(&end) = buffer.last() else {
            return Ok((at, Ending::None));
        };
        let (used, ending) = match memchr::memchr(b'\n', buffer) {
            Some(index) => {
                let before = index
                    .checked_sub(1)
                    .and_then(|index| buffer.get(index))
                    .copied()
                    .unwrap_or(last);
                (
                    index + 1,
                    if before == b'\r' {
                        Ending::CrLf
                    } else {
                        Ending::Lf
                    },
                )
            }
            None => (buffer.len(), Ending::None),
        };
        last = end;
        input.consume(used);
        at += used as u64;
        if ending != Ending::None {
            return Ok((at, ending));
        }
    }
}

/// A code object whose end marker has not been read yet.
struct Open {
    id: String,
    /// The offset of the start marker.
    marker: u64,
    start: u64,
    ending: Ending,
}

struct Scan {
    start: Vec<u8>,
    end: Vec<u8>,
    /// Outermost first: a code object may itself be a bundle.
    open: Vec<Open>,
    found: Vec<Span>,
}

impl Scan {
    /// Processes a line at offset `at`. `before` is the line end of the previous line.
    fn line(&mut self, line: &[u8], at: u64, before: Ending) -> Result<(), Malformed> {
        let ending = Ending::of(line);
        let text = line
            .get(..line.len().saturating_sub(ending.size() as usize))
            .unwrap_or_default();
        if let Some(id) = text.strip_prefix(&*self.start) {
            let id =
                std::str::from_utf8(id).map_err(|_| Malformed::new("bundle id is not text", at))?;
            if ending == Ending::None {
                return Err(Malformed::new(
                    "the text bundle is cut short in a start marker",
                    at,
                ));
            }
            self.open.push(Open {
                id: id.to_owned(),
                marker: at,
                start: at + line.len() as u64,
                ending,
            });
        } else if let Some(id) = text.strip_prefix(&*self.end) {
            self.close(id, at, before);
        }
        Ok(())
    }

    /// Processes an end marker at offset `at`. It closes the innermost code object with that ID, or
    /// the innermost one if none has it.
    fn close(&mut self, id: &[u8], at: u64, before: Ending) {
        let depth = self
            .open
            .iter()
            .rposition(|open| open.id.as_bytes() == id)
            .unwrap_or(self.open.len().saturating_sub(1));
        let closed = self.open.drain(depth.min(self.open.len())..).next();
        if let (Some(closed), true) = (closed, self.open.is_empty()) {
            // The line end before the marker belongs to the marker. A CR belongs to it only in
            // files whose markers end with CR LF.
            let ending = if closed.ending == Ending::CrLf {
                before.size()
            } else {
                before.size().min(1)
            };
            let size = at.saturating_sub(ending).saturating_sub(closed.start);
            self.found.push(Span {
                id: closed.id,
                start: closed.start,
                size,
            });
        }
    }

    fn finish(self) -> io::Result<Vec<Span>> {
        match self.open.first() {
            Some(open) => Err(Malformed::new(
                "a code object of the text bundle has no end marker",
                open.marker,
            )
            .into()),
            None => Ok(self.found),
        }
    }
}

/// Returns the parts of the text bundle `data` with the code objects of `items`, in their order.
/// `Part::New` has the index of an item. Markers stay unchanged. Markers of new objects have the
/// line ends of the old bundle's first marker. Text before the first object stays. Text between two
/// objects belongs to the first of them.
///
/// # Errors
/// The bundle is damaged, its markers do not match, or an item names a missing entry.
///
/// ```
/// use offload_formats::bundle::text::{compose, end_marker, start_marker};
/// use offload_formats::compose::{Item, join};
///
/// let object = |id, text| format!("{}{text}{}", start_marker("#", id), end_marker("#", id));
/// let old = object("host-a", "one") + &object("hip-b", "two") + &object("hip-c", "three");
/// let parts = compose("#", old.as_bytes(), &[Item::Old(0), Item::Changed { entry: 2, size: 5 }])?;
/// let new = join(old.as_bytes(), &parts, &[b"other"])?;
/// assert_eq!(String::from_utf8(new)?, object("host-a", "one") + &object("hip-c", "other"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(
    comment: &str,
    data: &[u8],
    items: &[Item<NewObject<'_>>],
) -> Result<Vec<Part>, Malformed> {
    let size = data.len() as u64;
    let fault = |error: std::io::Error| {
        Malformed::of(&error).unwrap_or(Malformed::new("cannot read the text bundle", 0))
    };
    let spans = scan(comment, data).map_err(fault)?;
    if is_same(items, spans.len()) {
        return Ok(vec![Part::Old(0..size)]);
    }
    let marker_of_end = marker(comment, "END").into_bytes();
    if let Some(span) = spans
        .iter()
        .find(|span| !end_marker_matches(data, span, &marker_of_end))
    {
        // If an object is removed, readers could pair the markers differently.
        return Err(Malformed::new(
            "the end marker names another code object",
            end_of(data, span),
        ));
    }
    let mut starts = Vec::with_capacity(spans.len());
    let mut ends_before = 0;
    for span in &spans {
        starts.push(marker_start(data, span.start).max(ends_before));
        ends_before = marker_end(data, span, &marker_of_end);
    }
    let next = |entry: usize| starts.get(entry + 1).copied().unwrap_or(size);
    let crlf = spans
        .first()
        .is_some_and(|span| Ending::of(before(data, span.start)) == Ending::CrLf);
    let line = |text: String| {
        Part::Bytes(
            if crlf {
                text.replace('\n', "\r\n")
            } else {
                text
            }
            .into_bytes(),
        )
    };
    let mut parts = Vec::new();
    push_old(&mut parts, 0..starts.first().copied().unwrap_or(size));
    for (place, item) in items.iter().enumerate() {
        let old = match item {
            Item::Old(entry) | Item::Changed { entry, .. } => {
                let found = starts.get(*entry).zip(spans.get(*entry));
                let (start, span) =
                    found.ok_or(Malformed::new("the bundle has no such code object", 0))?;
                Some((*start, span, next(*entry)))
            }
            Item::New(_) => None,
        };
        if old.is_some_and(|(start, ..)| continues_line(data, &parts, start)) {
            parts.push(line("\n".to_owned()));
        }
        match (item, old) {
            (Item::Old(_), Some((start, _, end))) => push_old(&mut parts, start..end),
            (_, Some((start, span, end))) => {
                push_old(&mut parts, start..span.start);
                parts.push(Part::New(place));
                // The marker of an empty object may have no line end of its own before it.
                let is_empty = matches!(item, Item::Changed { size: 0, .. });
                if !is_empty && after(data, end_of(data, span)).starts_with(&marker_of_end) {
                    let own = Ending::of(before(data, span.start));
                    parts.push(Part::Bytes(if own == Ending::CrLf {
                        b"\r\n".to_vec()
                    } else {
                        b"\n".to_vec()
                    }));
                }
                push_old(&mut parts, end_of(data, span)..end);
            }
            (Item::New(new), None) => {
                parts.extend([
                    line(start_marker(comment, new.id)),
                    Part::New(place),
                    line(end_marker(comment, new.id)),
                ]);
            }
            (_, None) => {}
        }
    }
    Ok(parts)
}

/// Whether the marker at `start`, without a line end of its own before it, would continue the last
/// line of `parts`.
fn continues_line(data: &[u8], parts: &[Part], start: u64) -> bool {
    let starts_line = matches!(after(data, start), [b'\n' | b'\r', ..]);
    match parts.last() {
        Some(Part::Old(range)) if range.end != start => {
            !starts_line && !before(data, range.end).ends_with(b"\n")
        }
        _ => false,
    }
}

/// The data before `at`.
fn before(data: &[u8], at: u64) -> &[u8] {
    usize::try_from(at)
        .ok()
        .and_then(|at| data.get(..at))
        .unwrap_or(data)
}

/// The data from `at` on.
fn after(data: &[u8], at: u64) -> &[u8] {
    usize::try_from(at)
        .ok()
        .and_then(|at| data.get(at..))
        .unwrap_or_default()
}

/// The offset of an object's start marker, including the line end before the marker. The contents
/// of the object start at `end`.
fn marker_start(data: &[u8], end: u64) -> u64 {
    let up_to = before(data, end);
    let ending = Ending::of(up_to);
    let line = up_to
        .get(..up_to.len().saturating_sub(ending.size() as usize))
        .unwrap_or_default();
    let start = memchr::memrchr(b'\n', line).map_or(0, |at| at + 1);
    let gap = Ending::of(line.get(..start).unwrap_or_default()).size();
    // The line end before the marker belongs to the marker. A CR belongs to it only in files whose
    // markers end with CR LF.
    let gap = if ending == Ending::CrLf {
        gap
    } else {
        gap.min(1)
    };
    (start as u64).saturating_sub(gap)
}

/// The end of an object's contents. The marker of an empty object may have no line end of its own
/// before it.
fn end_of(data: &[u8], span: &Span) -> u64 {
    span.start.saturating_add(span.size).min(data.len() as u64)
}

/// Whether the end marker of an object has the object's ID.
fn end_marker_matches(data: &[u8], span: &Span, marker: &[u8]) -> bool {
    let rest = after(data, end_of(data, span));
    let next_line = |rest: &'_ [u8]| memchr::memchr(b'\n', rest).map_or(0, |at| at + 1);
    let line = rest
        .get(
            if rest.starts_with(marker) {
                0
            } else {
                next_line(rest)
            }..,
        )
        .unwrap_or_default();
    let line = line
        .get(..memchr::memchr(b'\n', line).unwrap_or(line.len()))
        .unwrap_or_default();
    let id = line.strip_prefix(marker).unwrap_or_default();
    id.strip_suffix(b"\r").unwrap_or(id)
        == span
            .id
            .as_bytes()
            .strip_suffix(b"\r")
            .unwrap_or(span.id.as_bytes())
}

/// The end of an object's end marker, including its line end.
fn marker_end(data: &[u8], span: &Span, marker: &[u8]) -> u64 {
    let at = end_of(data, span);
    let mut rest = after(data, at);
    let mut len = 0;
    if !rest.starts_with(marker) {
        // The line end before the marker.
        len = memchr::memchr(b'\n', rest).map_or(0, |at| at + 1);
        rest = rest.get(len..).unwrap_or_default();
    }
    len += memchr::memchr(b'\n', rest).map_or(rest.len(), |at| at + 1);
    at.saturating_add(len as u64)
}
