//! The bundler's text bundle (docs/spec/containers.md 2.8): each code object between two comment lines that name its id. Read as
//! a stream, a line at a time, so that neither the file nor a code object need be in memory.
//!
//! ```text
//! EOL COMMENT " __CLANG_OFFLOAD_BUNDLE____START__ " ID EOL  bytes  EOL COMMENT " __CLANG_OFFLOAD_BUNDLE____END__ " ID EOL
//! ```

mod compose;
#[cfg(test)]
mod tests;

pub use compose::compose;

use std::io::{self, BufRead, Read};

use super::MAGIC;
use crate::error::Malformed;

/// No id is longer; a line that is cannot be a marker, and is passed over without keeping it.
const LONGEST_LINE: u64 = 64 << 10;

/// A code object of a text bundle: where it stands in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Span {
    /// Its id, as stored.
    pub id: String,
    /// Where its bytes start.
    pub start: u64,
    /// How many they are.
    pub size: u64,
}

/// The line before a code object, with the line end that precedes it.
pub fn start_marker(comment: &str, id: &str) -> String {
    format!("\n{}{id}\n", marker(comment, "START"))
}

/// The line after a code object, with the line end that precedes it.
pub fn end_marker(comment: &str, id: &str) -> String {
    format!("\n{}{id}\n", marker(comment, "END"))
}

fn marker(comment: &str, which: &str) -> String {
    format!("{comment} {}__{which}__ ", String::from_utf8_lossy(MAGIC))
}

/// The code objects in `input`, in order. What stands outside of them is passed over: a file without markers has none.
///
/// Unlike LLVM's, this reader takes a marker at the very start of the file, lines that end CR LF, and a code object that is itself
/// a text bundle. A start without an end is an error, where LLVM 22 writes out its own memory (docs/spec/faults.md B7).
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
        let len = (&mut input).take(LONGEST_LINE).read_until(b'\n', &mut line)? as u64;
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

/// How a line ends.
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

/// Passes over the rest of a line too long to be kept; where the next one starts, and how this one ends.
fn skip_line(input: &mut impl BufRead, mut at: u64) -> io::Result<(u64, Ending)> {
    let mut last = 0;
    loop {
        let buffer = input.fill_buf()?;
        let Some(&end) = buffer.last() else { return Ok((at, Ending::None)) };
        let (used, ending) = match memchr::memchr(b'\n', buffer) {
            Some(index) => {
                let before = index.checked_sub(1).and_then(|index| buffer.get(index)).copied().unwrap_or(last);
                (index + 1, if before == b'\r' { Ending::CrLf } else { Ending::Lf })
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

/// A code object whose end is not yet seen.
struct Open {
    id: String,
    /// Where its marker stands.
    marker: u64,
    start: u64,
    ending: Ending,
}

struct Scan {
    start: Vec<u8>,
    end: Vec<u8>,
    /// The outermost first: a code object may be a bundle of its own.
    open: Vec<Open>,
    found: Vec<Span>,
}

impl Scan {
    /// A line that starts at `at`; `before` is how the previous one ended.
    fn line(&mut self, line: &[u8], at: u64, before: Ending) -> Result<(), Malformed> {
        let ending = Ending::of(line);
        let text = line.get(..line.len().saturating_sub(ending.size() as usize)).unwrap_or_default();
        if let Some(id) = text.strip_prefix(&*self.start) {
            let id = std::str::from_utf8(id).map_err(|_| Malformed::new("bundle id is not text", at))?;
            if ending == Ending::None {
                return Err(Malformed::new("the text bundle is cut short in a start marker", at));
            }
            self.open.push(Open { id: id.to_owned(), marker: at, start: at + line.len() as u64, ending });
        } else if let Some(id) = text.strip_prefix(&*self.end) {
            self.close(id, at, before);
        }
        Ok(())
    }

    /// An end marker at `at`. It ends the innermost code object of that id; where none has it, the innermost of all.
    fn close(&mut self, id: &[u8], at: u64, before: Ending) {
        let depth = self.open.iter().rposition(|open| open.id.as_bytes() == id).unwrap_or(self.open.len().saturating_sub(1));
        let closed = self.open.drain(depth.min(self.open.len())..).next();
        if let (Some(closed), true) = (closed, self.open.is_empty()) {
            // The line end before the marker is the marker's; its CR only in a file whose markers end so.
            let ending = if closed.ending == Ending::CrLf { before.size() } else { before.size().min(1) };
            let size = at.saturating_sub(ending).saturating_sub(closed.start);
            self.found.push(Span { id: closed.id, start: closed.start, size });
        }
    }

    fn finish(self) -> io::Result<Vec<Span>> {
        match self.open.first() {
            Some(open) => Err(Malformed::new("a code object of the text bundle has no end marker", open.marker).into()),
            None => Ok(self.found),
        }
    }
}
