//! clang-offload-bundler's text bundle (docs/spec/containers.md 2.8): each code object between two
//! comment lines with its ID. The reader streams line by line, so that neither the file nor a code
//! object has to be in memory.
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
