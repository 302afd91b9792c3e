//! Ranges of the old file that are other bytes in the new one, and where everything else is then.

use std::ops::Range;

use crate::error::Malformed;
use crate::formats::elf::file::PatchedBytes;
use crate::formats::elf::resize::Part;

/// A range of the old file, and what stands there in the new one.
struct Edit {
    range: Range<u64>,
    parts: Vec<Part>,
    /// The size of the parts.
    size: u64,
    /// The change that this edit makes, if it is one of those that the caller wants to find again.
    change: Option<usize>,
}

/// All edits, in the order of the file. They do not overlap.
#[derive(Default)]
pub(super) struct Edits(Vec<Edit>);

impl Edits {
    /// Puts `parts`, `size` bytes in all, in place of `range`. What is inserted at a place stands
    /// behind what was inserted there before.
    pub(super) fn replace(
        &mut self,
        range: Range<u64>,
        parts: Vec<Part>,
        size: u64,
        change: Option<usize>,
    ) -> Result<(), Malformed> {
        if size > i64::MAX as u64 {
            return Err(Malformed::new("new contents are too large", range.start));
        }
        let place = self
            .0
            .partition_point(|edit| (edit.range.start, edit.range.end) <= (range.start, range.end));
        let before = place.checked_sub(1).and_then(|before| self.0.get(before));
        let behind = self.0.get(place);
        if before.is_some_and(|edit| edit.range.end > range.start)
            || behind.is_some_and(|edit| edit.range.start < range.end)
        {
            return Err(Malformed::new("two changes of the same bytes", range.start));
        }
        self.0.insert(
            place,
            Edit {
                range,
                parts,
                size,
                change,
            },
        );
        Ok(())
    }

    /// Where the byte at `old` is now; in front of what has been inserted there.
    pub(super) fn before(&self, old: u64) -> u64 {
        self.locate(old, false)
    }

    /// Where the byte at `old` is now, behind what has been inserted there.
    pub(super) fn after(&self, old: u64) -> u64 {
        self.locate(old, true)
    }

    fn locate(&self, old: u64, behind_inserted: bool) -> u64 {
        let (mut from, mut to) = (0, 0u64);
        for edit in &self.0 {
            let Range { start, end } = edit.range;
            if end > old || (start == old && !behind_inserted) {
                if start < old {
                    return to + (start - from) + (old - start).min(edit.size);
                }
                break;
            }
            to = to.saturating_add(start - from).saturating_add(edit.size);
            from = end;
        }
        to.saturating_add(old - from)
    }

    /// Where the edit that makes this change begins.
    pub(super) fn start_of(&self, change: usize) -> Option<u64> {
        let (mut from, mut to) = (0, 0u64);
        for edit in &self.0 {
            to = to.saturating_add(edit.range.start - from);
            if edit.change == Some(change) {
                return Some(to);
            }
            to = to.saturating_add(edit.size);
            from = edit.range.end;
        }
        None
    }

    /// Reads what is moved, before its old place is written over.
    pub(super) fn read_moved(&mut self, bytes: &PatchedBytes<'_>) -> Result<(), Malformed> {
        for part in self.0.iter_mut().flat_map(|edit| &mut edit.parts) {
            if let Part::Old(range) = part {
                *part = Part::Bytes(bytes.get(range.start, range.end - range.start)?);
            }
        }
        Ok(())
    }

    /// The parts of the new file, made of the old one's `size` bytes.
    pub(super) fn apply(self, bytes: &PatchedBytes<'_>, size: u64) -> Vec<Part> {
        let mut parts = Vec::new();
        let mut at = 0;
        for edit in self.0 {
            bytes.emit(at..edit.range.start, &mut parts);
            parts.extend(edit.parts);
            at = edit.range.end;
        }
        bytes.emit(at..size, &mut parts);
        parts
    }
}
